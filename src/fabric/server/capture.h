// capture.h - the head of a record in a capture: that of a pcap file with nanoseconds, and ERF's
// follows: pcap-savefile(5)
// SPDX-License-Identifier: MIT
#ifndef VB_FABRIC_SERVER_CAPTURE_H
#define VB_FABRIC_SERVER_CAPTURE_H

#include <stdint.h>

struct capture_head {
	uint32_t sec, nsec, len, whole; /* len, whole: with erf */
	uint8_t erf[16];
};
_Static_assert(sizeof(struct capture_head) == 32, "no holes");

#endif
