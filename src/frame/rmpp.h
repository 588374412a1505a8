// rmpp.h - the header of the reliable multi-packet protocol
// follows: IBA volume 1, 13.6.2 (RMPP formats), 13.6.2.1 (status)
// SPDX-License-Identifier: MIT
#ifndef VB_FRAME_RMPP_H
#define VB_FRAME_RMPP_H

#include "frame/mad.h"

#define VB_RMPP_VERSION 1
#define VB_RMPP_END 36      /* of the header in the MAD */
#define VB_RMPP_PAYLOAD 220 /* of a segment, with the header of the class */

enum vb_rmpp_type { VB_RMPP_NONE, VB_RMPP_DATA, VB_RMPP_ACK, VB_RMPP_STOP, VB_RMPP_ABORT };
enum vb_rmpp_flag { VB_RMPP_ACTIVE = 1, VB_RMPP_FIRST = 2, VB_RMPP_LAST = 4 };

/* Why a transfer ended: STOP has RESX alone, the others are of ABORT. */
enum vb_rmpp_status {
	VB_RMPP_RESX = 1,
	VB_RMPP_TIMED_OUT = 118,
	VB_RMPP_BAD_LENGTH = 119, /* the last and the first segment disagree */
	VB_RMPP_BAD_FIRST = 120,
	VB_RMPP_BAD_TYPE = 121,
	VB_RMPP_BAD_WINDOW = 122,  /* NewWindowLast is less than before */
	VB_RMPP_BAD_SEGMENT = 123, /* beyond the window */
	VB_RMPP_BAD_STATUS = 124,
	VB_RMPP_BAD_VERSION = 125,
	VB_RMPP_TOO_MANY_RETRIES = 126,
	VB_RMPP_UNSPECIFIED = 127,
};

struct vb_rmpp {
	uint8_t version, type;
	uint8_t resp_time, flags; /* 5 and 3 bits */
	uint8_t status;
	uint32_t segment; /* Data1 */
	uint32_t length;  /* Data2: bytes of payload in DATA, NewWindowLast in ACK */
};

/* Of a whole MAD. */
void vb_rmpp_decode(struct vb_rmpp *h, const uint8_t mad[VB_MAD_LEN]);
void vb_rmpp_encode(uint8_t mad[VB_MAD_LEN], const struct vb_rmpp *h);

/* The bytes of each segment that are header: common, RMPP and class. 0: the class has no RMPP. */
unsigned vb_rmpp_header_len(uint8_t mgmt_class);

#endif
