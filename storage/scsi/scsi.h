// scsi.h - numbers of SCSI: status, sense keys with their codes, operation codes
// follows: SAM-5; SPC-4; SBC-3
// SPDX-License-Identifier: MIT
#ifndef SC_SCSI_H
#define SC_SCSI_H

enum sc_status {
	SC_GOOD = 0x00,
	SC_CHECK_CONDITION = 0x02,
	SC_RESERVATION_CONFLICT = 0x18,
	SC_TASK_ABORTED = 0x40,
};

enum sc_key {
	SC_NO_SENSE = 0x0,
	SC_NOT_READY = 0x2,
	SC_MEDIUM_ERROR = 0x3,
	SC_HARDWARE_ERROR = 0x4,
	SC_ILLEGAL_REQUEST = 0x5,
	SC_UNIT_ATTENTION = 0x6,
	SC_DATA_PROTECT = 0x7,
	SC_MISCOMPARE = 0xe,
};

/* key << 16 | additional sense code << 8 | qualifier */
#define SC_SENSE(key, asc, ascq) ((uint32_t)(key) << 16 | (asc) << 8 | (ascq))

enum sc_sense {
	SC_S_NONE = 0,
	SC_S_INITIALIZING_REQUIRED = SC_SENSE(SC_NOT_READY, 0x04, 0x02),
	SC_S_WRITE_ERROR = SC_SENSE(SC_MEDIUM_ERROR, 0x0c, 0x00),
	SC_S_READ_ERROR = SC_SENSE(SC_MEDIUM_ERROR, 0x11, 0x00),
	SC_S_TARGET_FAILURE = SC_SENSE(SC_HARDWARE_ERROR, 0x44, 0x00),
	SC_S_FIELD_IN_UNIT = SC_SENSE(SC_ILLEGAL_REQUEST, 0x0e, 0x03), /* in command information unit */
	SC_S_LIST_LENGTH = SC_SENSE(SC_ILLEGAL_REQUEST, 0x1a, 0x00),
	SC_S_OPCODE = SC_SENSE(SC_ILLEGAL_REQUEST, 0x20, 0x00),
	SC_S_LBA = SC_SENSE(SC_ILLEGAL_REQUEST, 0x21, 0x00),
	SC_S_FIELD_IN_CDB = SC_SENSE(SC_ILLEGAL_REQUEST, 0x24, 0x00),
	SC_S_LUN = SC_SENSE(SC_ILLEGAL_REQUEST, 0x25, 0x00),
	SC_S_FIELD_IN_LIST = SC_SENSE(SC_ILLEGAL_REQUEST, 0x26, 0x00),
	SC_S_INVALID_RELEASE = SC_SENSE(SC_ILLEGAL_REQUEST, 0x26, 0x04),
	SC_S_SAVING = SC_SENSE(SC_ILLEGAL_REQUEST, 0x39, 0x00),
	SC_S_NO_REGISTRATIONS = SC_SENSE(SC_ILLEGAL_REQUEST, 0x55, 0x04), /* insufficient registration resources */
	SC_S_WRITE_PROTECTED = SC_SENSE(SC_DATA_PROTECT, 0x27, 0x00),
	SC_S_SOFTWARE_PROTECTED = SC_SENSE(SC_DATA_PROTECT, 0x27, 0x02), /* SWP of the control page */
	SC_S_SPACE = SC_SENSE(SC_DATA_PROTECT, 0x27, 0x07),
	SC_S_MISCOMPARE = SC_SENSE(SC_MISCOMPARE, 0x1d, 0x00),
};

/* Unit attentions that may be pending, the one to be reported first first. SAM-5, 5.14 */
#define SC_ATTENTIONS(X)                                             \
	X(SC_UA_POWER_ON, 0x29, 0x00)                                \
	X(SC_UA_RESET, 0x29, 0x03)   /* bus device reset function */ \
	X(SC_UA_CLEARED, 0x2f, 0x00) /* by another initiator */      \
	X(SC_UA_PREEMPTED, 0x2a, 0x03)                               \
	X(SC_UA_RELEASED, 0x2a, 0x04)                                \
	X(SC_UA_REGISTRATIONS, 0x2a, 0x05)                           \
	X(SC_UA_MODE, 0x2a, 0x01) /* mode parameters changed */      \
	X(SC_UA_CAPACITY, 0x2a, 0x09)                                \
	X(SC_UA_LUNS, 0x3f, 0x0e) /* reported luns data has changed */

enum sc_attention {
#define X(name, asc, ascq) name,
	SC_ATTENTIONS(X)
#undef X
	        SC_UA_COUNT
};

enum sc_opcode {
	SC_TEST_UNIT_READY = 0x00,
	SC_REQUEST_SENSE = 0x03,
	SC_READ6 = 0x08,
	SC_WRITE6 = 0x0a,
	SC_INQUIRY = 0x12,
	SC_MODE_SELECT6 = 0x15,
	SC_RESERVE6 = 0x16,
	SC_RELEASE6 = 0x17,
	SC_MODE_SENSE6 = 0x1a,
	SC_START_STOP = 0x1b,
	SC_READ_CAPACITY10 = 0x25,
	SC_READ10 = 0x28,
	SC_WRITE10 = 0x2a,
	SC_WRITE_VERIFY10 = 0x2e,
	SC_VERIFY10 = 0x2f,
	SC_PREFETCH10 = 0x34,
	SC_SYNC_CACHE10 = 0x35,
	SC_WRITE_SAME10 = 0x41,
	SC_UNMAP = 0x42,
	SC_MODE_SELECT10 = 0x55,
	SC_RESERVE10 = 0x56,
	SC_RELEASE10 = 0x57,
	SC_MODE_SENSE10 = 0x5a,
	SC_PR_IN = 0x5e,
	SC_PR_OUT = 0x5f,
	SC_READ16 = 0x88,
	SC_COMPARE_WRITE = 0x89,
	SC_WRITE16 = 0x8a,
	SC_WRITE_VERIFY16 = 0x8e,
	SC_VERIFY16 = 0x8f,
	SC_PREFETCH16 = 0x90,
	SC_SYNC_CACHE16 = 0x91,
	SC_WRITE_SAME16 = 0x93,
	SC_SERVICE_IN16 = 0x9e, /* READ CAPACITY (16) 10h, GET LBA STATUS 12h */
	SC_REPORT_LUNS = 0xa0,
	SC_MAINTENANCE_IN = 0xa3, /* REPORT SUPPORTED OPERATION CODES 0Ch, … TASK MANAGEMENT FUNCTIONS 0Dh */
	SC_READ12 = 0xa8,
	SC_WRITE12 = 0xaa,
	SC_WRITE_VERIFY12 = 0xae,
	SC_VERIFY12 = 0xaf,
};

#endif
