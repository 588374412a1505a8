// gid.h - the GID table of a port, computed from the interface's addresses
// follows: IBA Annex A17 (RoCEv2) A17.3.1; the Linux RoCE GID cache (roce_gid_mgmt.c)
// SPDX-License-Identifier: MIT
#ifndef VB_CORE_GID_H
#define VB_CORE_GID_H

#include <infiniband/verbs.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "core/limits.h"

/* Index 0 is the default GID, made from the MAC. The addresses start at index 1. An empty entry is all zeros. */
struct vb_gid_table {
	union ibv_gid gid[VB_GID_TBL_LEN];
};

/* The EUI-64 of a MAC with the universal/local bit inverted, as in IPv6 interface identifiers (RFC 4291, appendix
 * A). */
void vb_gid_eui64(uint8_t eui[8], const uint8_t mac[6]);

/* The default GID of a port with this MAC: fe80::/64 and the EUI-64. */
void vb_gid_default(union ibv_gid *gid, const uint8_t mac[6]);

bool vb_gid_is_zero(const union ibv_gid *gid);

/*
 * Updates the table to the current addresses of an interface (16 bytes each, IPv4 mapped). A remaining address keeps
 * its index, a removed one leaves an empty entry, and a new one takes the first free index. An address that equals the
 * default GID or another address is not added. Addresses that do not fit are left out. Returns whether anything
 * changed. An empty table is all zeros.
 */
bool vb_gid_table_update(struct vb_gid_table *table, const uint8_t mac[6], const uint8_t (*addrs)[16], size_t n_addrs);

/* An IPv4-mapped address of 224.0.0.0/4. */
static inline bool vb_gid_is_multicast4(const union ibv_gid *gid)
{
	static const uint8_t mapped[12] = {[10] = 0xff, [11] = 0xff};

	return (gid->raw[12] & 0xf0) == 0xe0 && !__builtin_memcmp(gid->raw, mapped, sizeof(mapped));
}

/* Index of a GID, or -1. The zero GID is never found. */
int vb_gid_table_find(const struct vb_gid_table *table, const union ibv_gid *gid);

#endif
