// siphash.h - a keyed hash of 64 bits, by which the two ends of a cable know each other's datagrams
// follows: Aumasson, Bernstein: SipHash: a fast short-input PRF (INDOCRYPT 2012), SipHash-2-4
// SPDX-License-Identifier: MIT
#ifndef VB_FABRIC_CABLE_SIPHASH_H
#define VB_FABRIC_CABLE_SIPHASH_H

#include <stddef.h>
#include <stdint.h>

struct vb_sip_key {
	uint64_t half[2];
};

/* Of head and then body, as of one text. head_len is a multiple of 8. */
uint64_t vb_siphash(const struct vb_sip_key *key, const void *head, size_t head_len, const void *body, size_t body_len);

#endif
