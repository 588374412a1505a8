// aeth.h - the acknowledge extended transport header: credits, RNR timers, NAK codes
// follows: IBA volume 1, 9.3 (AETH), 9.7.5.2 (NAK codes), 9.7.5.2.8 (RNR NAK timer), 9.7.7.2 (credits)
// SPDX-License-Identifier: MIT
#ifndef VB_FRAME_AETH_H
#define VB_FRAME_AETH_H

#include <stdint.h>

/* The three high bits of the syndrome; those not named here are reserved. */
enum vb_aeth_kind { VB_AETH_ACK = 0, VB_AETH_RNR_NAK = 1, VB_AETH_NAK = 3 };

enum vb_nak {
	VB_NAK_PSN_SEQUENCE = 0,
	VB_NAK_INVALID_REQUEST = 1,
	VB_NAK_REMOTE_ACCESS = 2,
	VB_NAK_REMOTE_OPERATIONAL = 3,
	VB_NAK_INVALID_RD_REQUEST = 4,
};

/* Credit code of a responder without credits, as with a shared receive queue: the requester may always send. */
#define VB_CREDITS_UNLIMITED 31

struct vb_aeth {
	uint8_t kind;  /* enum vb_aeth_kind, or one that is reserved */
	uint8_t value; /* 5 bits: credit code, RNR timer, or enum vb_nak */
	uint32_t msn;  /* 24 bits: number of messages that the responder has completed */
};

/* Credit and RNR timer codes stand for 0, 1, 2, 3, 4, 6, 8, 12, 16, 24, ...: each power of two, and 1.5 times it. */
static inline uint32_t vb_aeth_steps(uint8_t code)
{
	return code < 2 ? code : (2u | (code & 1)) << (code / 2 - 1);
}

/* The number of receives of a credit code other than VB_CREDITS_UNLIMITED. */
static inline uint32_t vb_credits(uint8_t code)
{
	return vb_aeth_steps(code & 31);
}

/* The largest code that promises no more than this many receives. */
static inline uint8_t vb_credit_code(uint32_t receives)
{
	uint8_t code = VB_CREDITS_UNLIMITED - 1;

	while (vb_aeth_steps(code) > receives)
		code--;
	return code;
}

/* How long a requester waits after an RNR NAK, in microseconds; code 0 is the longest. */
static inline uint32_t vb_rnr_timer_us(uint8_t code)
{
	return code & 31 ? vb_aeth_steps(code & 31) * 10 : 655360;
}

#endif
