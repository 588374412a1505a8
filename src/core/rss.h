// rss.h - receive side scaling as pure functions: which entry of an indirection table receives a frame
// follows: ibv_create_qp_ex(3) (rx_hash_conf)
// see: Microsoft, "RSS hashing functions" and "Verifying the RSS hash calculation"
// SPDX-License-Identifier: MIT
#ifndef VB_CORE_RSS_H
#define VB_CORE_RSS_H

#include "core/flow_match.h"

#define VB_RSS_KEY_LEN 40u
#define VB_RSS_FIELDS                                                                                                \
	(IBV_RX_HASH_SRC_IPV4 | IBV_RX_HASH_DST_IPV4 | IBV_RX_HASH_SRC_IPV6 | IBV_RX_HASH_DST_IPV6 |                 \
	 IBV_RX_HASH_SRC_PORT_TCP | IBV_RX_HASH_DST_PORT_TCP | IBV_RX_HASH_SRC_PORT_UDP | IBV_RX_HASH_DST_PORT_UDP | \
	 IBV_RX_HASH_IPSEC_SPI | IBV_RX_HASH_INNER)

struct vb_rss_hash {
	uint32_t fields; /* IBV_RX_HASH_*; 0: the hash is 0 */
	uint8_t key[VB_RSS_KEY_LEN];
};

/* Reads what a program asks for. Returns 0, EINVAL (a key of another length, fields that exclude each other) or
 * EOPNOTSUPP (another function or field). */
int vb_rss_parse(const struct ibv_rx_hash_conf *conf, struct vb_rss_hash *hash);

/* The Toeplitz hash of len bytes, at most 36. */
uint32_t vb_rss_toeplitz(const uint8_t key[VB_RSS_KEY_LEN], const uint8_t *data, uint32_t len);

/* The hash of the chosen fields that the frame has: addresses, then ports, the source first, or the SPI of ESP. fields are
 * those inside the tunnel if IBV_RX_HASH_INNER is chosen. The ports and the SPI of a
 * fragment do not count, so that all fragments of a packet have one hash. */
uint32_t vb_rss_hash_of(const struct vb_rss_hash *hash, const union vb_frame_fields *fields, uint16_t layers);

#endif
