// dm.h - the device management agent of the SRP target: answers to those who look for targets on a fabric
// follows: IBA volume 1, 16.3 (device management); SRP (ANSI INCITS 365, T10/1415-D), annex B.7
// SPDX-License-Identifier: MIT
#ifndef SP_DM_H
#define SP_DM_H

#include <stdbool.h>
#include <stdint.h>

#define SP_DM_MAD 256u
#define SP_DM_CLASS 0x06
#define SP_DM_METHODS (1ull << 1 | 1ull << 2) /* Get, Set */

/* The target as device management describes it: an I/O unit with one controller, which has one service. */
struct sp_dm {
	uint64_t id_ext, ioc_guid, service_id;
	uint32_t iu_len, rdma_len; /* bytes of a message and of a transfer, at most */
	uint16_t depth;            /* requests */
	const char *name;          /* 63 characters at most */
};

/* Answers a datagram of the class in place. False: it gets no answer. */
bool sp_dm_answer(const struct sp_dm *t, uint8_t mad[SP_DM_MAD]);

#endif
