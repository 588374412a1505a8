// srp.h - the information units of SRP as structs in host order
// follows: SRP (ANSI INCITS 365, T10/1415-D), 6; the layouts of include/scsi/srp.h of Linux, also for SRP2's immediate data
// SPDX-License-Identifier: MIT
#ifndef SP_SRP_H
#define SP_SRP_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

enum sp_opcode {
	SP_LOGIN_REQ = 0x00,
	SP_TSK_MGMT = 0x01,
	SP_CMD = 0x02,
	SP_I_LOGOUT = 0x03,
	SP_CRED_RSP = 0x41,
	SP_AER_RSP = 0x42,
	SP_T_LOGOUT = 0x80,
	SP_CRED_REQ = 0x81,
	SP_AER_REQ = 0x82,
	SP_LOGIN_RSP = 0xc0,
	SP_RSP = 0xc1,
	SP_LOGIN_REJ = 0xc2,
};

#define SP_FORMAT_DIRECT 0x02u /* of logins */
#define SP_FORMAT_INDIRECT 0x04u
enum sp_desc_format { SP_DESC_NONE, SP_DESC_DIRECT, SP_DESC_INDIRECT, SP_DESC_IMMEDIATE };

enum sp_reject {
	SP_REJ_NO_CHANNEL = 0x00010000,
	SP_REJ_RESOURCES = 0x00010001,
	SP_REJ_IU_LENGTH = 0x00010002,
	SP_REJ_NO_SUCH_PORT = 0x00010003,
	SP_REJ_FORMAT = 0x00010004,
	SP_REJ_MULTI_CHANNEL = 0x00010005,
	SP_REJ_CHANNEL_LIMIT = 0x00010006,
};

#define SP_PORT_ID 16u
#define SP_LOGIN_LEN 56u    /* as private data of rdma_cm with IP addresses */
#define SP_LOGIN_IB_LEN 64u /* as private data of InfiniBand's connection management */
#define SP_LOGIN_RSP_LEN 52u
#define SP_LOGIN_REJ_LEN 32u
#define SP_CMD_LEN 48u
#define SP_TSK_MGMT_LEN 48u
#define SP_RSP_LEN 36u
#define SP_SHORT_LEN 16u /* logouts, credits, their responses, AER_RSP */
#define SP_DESC_LEN 16u
#define SP_INDIRECT_LEN 20u

#define SP_MULTI_CHANNEL 0x01u /* flags of the request */
#define SP_TELL_EVENTS 0x40u   /* … AESOLNT: it waits for asynchronous event reports */
#define SP_IMMEDIATE 0x80u     /* … and of the response */
#define SP_TERMINATED 0x01u
#define SP_MAINTAINED 0x02u

struct sp_login {
	uint64_t tag;
	uint8_t opcode, flags;
	uint16_t formats, immediate; /* offset of immediate data */
	uint32_t iu_len;             /* of the longest information unit to the target */
	uint8_t initiator[SP_PORT_ID], target[SP_PORT_ID];
};

struct sp_login_rsp {
	uint64_t tag;
	uint32_t credits, to_target, to_initiator; /* lengths of information units */
	uint16_t formats;
	uint8_t opcode, flags;
};

struct sp_login_rej {
	uint64_t tag;
	uint32_t reason;
	uint16_t formats;
	uint8_t opcode;
};

/* A memory descriptor. */
struct sp_desc {
	uint64_t va;
	uint32_t key, len;
};

/* The buffer of one direction. */
struct sp_buffer {
	enum sp_desc_format format;
	uint32_t len;          /* bytes in all */
	const uint8_t *list;   /* descriptors in the message: count of them, as they came */
	uint32_t count, whole; /* whole: of the table; more than count: it must be fetched */
	struct sp_desc table;  /* indirect: where the initiator has the table */
};

struct sp_cmd {
	uint64_t tag;
	uint8_t lun[8], cdb[16], attr;
	bool long_cdb; /* there are additional bytes of the CDB */
	struct sp_buffer out, in;
	const uint8_t *immediate; /* the data-out */
};

struct sp_tsk_mgmt {
	uint64_t tag, task_tag;
	uint8_t lun[8], function;
};

enum sp_function {
	SP_ABORT_TASK = 1,
	SP_ABORT_TASK_SET = 2,
	SP_CLEAR_TASK_SET = 4,
	SP_LUN_RESET = 8,
	SP_CLEAR_ACA = 0x40
};

#define SP_RSP_VALID 0x01u
#define SP_SENSE_VALID 0x02u
#define SP_OUT_OVER 0x04u
#define SP_OUT_UNDER 0x08u
#define SP_IN_OVER 0x10u
#define SP_IN_UNDER 0x20u

/* Response codes of SP_RSP_VALID. SRP, table 21 */
enum { SP_DONE = 0, SP_FIELDS_INVALID = 1, SP_FUNCTION_UNSUPPORTED = 4, SP_FUNCTION_FAILED = 5 };

struct sp_rsp {
	uint64_t tag;
	uint32_t credits, out_residual, in_residual;
	uint8_t flags, status, code;
	uint8_t sense[32];
	uint32_t sense_len;
};

bool sp_login_decode(const uint8_t *at, size_t len, struct sp_login *l);
void sp_login_encode(const struct sp_login *l, uint8_t out[SP_LOGIN_LEN]);
bool sp_login_ib_decode(const uint8_t *at, size_t len, struct sp_login *l);
void sp_login_ib_encode(const struct sp_login *l, uint8_t out[SP_LOGIN_IB_LEN]);
void sp_login_rsp_encode(const struct sp_login_rsp *r, uint8_t out[SP_LOGIN_RSP_LEN]);
bool sp_login_rsp_decode(const uint8_t *at, size_t len, struct sp_login_rsp *r);
void sp_login_rej_encode(const struct sp_login_rej *r, uint8_t out[SP_LOGIN_REJ_LEN]);
bool sp_login_rej_decode(const uint8_t *at, size_t len, struct sp_login_rej *r);

void sp_desc_decode(const uint8_t *at, struct sp_desc *d);
void sp_desc_encode(const struct sp_desc *d, uint8_t *at);

/*
 * immediate: the offset agreed on, or 0. *c refers to the message. Returns false if the message is shorter than its
 * fixed part; *valid is false if its descriptors are wrong (tag is set then).
 */
bool sp_cmd_decode(const uint8_t *at, size_t len, uint32_t immediate, struct sp_cmd *c, bool *valid);
/*
 * For each direction that has a buffer, d describes all its data. With SP_DESC_INDIRECT the message contains the table,
 * and d of the initiator's memory that it is in is c->out.table or c->in.table. Immediate data follows at `immediate`.
 * Returns the length of the message without that data.
 */
size_t sp_cmd_encode(const struct sp_cmd *c, const struct sp_desc *d, uint8_t *out);
bool sp_tsk_mgmt_decode(const uint8_t *at, size_t len, struct sp_tsk_mgmt *m);
void sp_tsk_mgmt_encode(const struct sp_tsk_mgmt *m, uint8_t out[SP_TSK_MGMT_LEN]);
size_t sp_rsp_encode(const struct sp_rsp *r, uint8_t *out, size_t room); /* sense data may be cut */
bool sp_rsp_decode(const uint8_t *at, size_t len, struct sp_rsp *r);
/* A request of the target: SP_T_LOGOUT, SP_CRED_REQ or SP_AER_REQ. The unit and the sense data are those of the last. */
struct sp_target_req {
	uint64_t tag;
	uint32_t value; /* as in sp_short_encode */
	uint8_t opcode, lun[8];
	uint8_t sense[32];
	uint32_t sense_len;
};

#define SP_AER_LEN 36u
bool sp_target_req_decode(const uint8_t *at, size_t len, struct sp_target_req *r);
/* SP_AER_REQ. room: at least SP_AER_LEN; sense data may be cut */
size_t sp_aer_encode(const struct sp_target_req *r, uint8_t *out, size_t room);
/* T_LOGOUT (value: the reason), CRED_REQ (value: credits), I_LOGOUT, CRED_RSP, AER_RSP */
void sp_short_encode(uint8_t opcode, uint32_t value, uint64_t tag, uint8_t out[SP_SHORT_LEN]);

#endif
