// collect_known.h - frames that were recorded by their sender, so that the receiver's record is not needed
// see: docs/capture.md, "Each frame once"
// SPDX-License-Identifier: MIT
#ifndef VB_TOOLS_COLLECT_KNOWN_H
#define VB_TOOLS_COLLECT_KNOWN_H

#include "tools/collect.h"

#define CAP_KNOWN (1u << 16)

/* Hints: an entry may be overwritten by another, and then a frame appears twice. All zeros at first. */
struct cap_known {
	struct {
		uint64_t hash;
		uint32_t n;
	} sent[CAP_KNOWN];
	uint64_t streams[CAP_KNOWN];
};

/* Has the sender of this frame recorded it too? Frames must come in the order of their times. */
bool cap_known_test(struct cap_known *k, const struct cap_frame *frame);

/* Offset of the IP addresses, their length each, and the offset behind the IP header. False: it is neither IP. */
bool cap_ip_layout(const struct cap_frame *frame, uint32_t *addrs, uint32_t *addr_len, uint32_t *body);

#endif
