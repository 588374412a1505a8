// rss.c - receive side scaling as pure functions: the Toeplitz hash of a frame's fields
// follows: ibv_create_qp_ex(3) (rx_hash_conf)
// SPDX-License-Identifier: MIT
#include "core/rss.h"

#include <errno.h>
#include <string.h>

#define IPV4 (IBV_RX_HASH_SRC_IPV4 | IBV_RX_HASH_DST_IPV4)
#define IPV6 (IBV_RX_HASH_SRC_IPV6 | IBV_RX_HASH_DST_IPV6)
#define TCP (IBV_RX_HASH_SRC_PORT_TCP | IBV_RX_HASH_DST_PORT_TCP)
#define SPI IBV_RX_HASH_IPSEC_SPI
#define UDP (IBV_RX_HASH_SRC_PORT_UDP | IBV_RX_HASH_DST_PORT_UDP)

int vb_rss_parse(const struct ibv_rx_hash_conf *conf, struct vb_rss_hash *hash)
{
	uint64_t fields = conf->rx_hash_fields_mask;

	if (conf->rx_hash_function != IBV_RX_HASH_FUNC_TOEPLITZ || (fields & ~(uint64_t)VB_RSS_FIELDS))
		return EOPNOTSUPP;
	if (((fields & IPV4) && (fields & IPV6)) || !!(fields & TCP) + !!(fields & UDP) + !!(fields & SPI) > 1)
		return EINVAL;
	if (conf->rx_hash_key_len != VB_RSS_KEY_LEN || !conf->rx_hash_key)
		return EINVAL;
	hash->fields = (uint32_t)fields;
	memcpy(hash->key, conf->rx_hash_key, VB_RSS_KEY_LEN);
	return 0;
}

/* For each bit of the data that is set, the 32 bits of the key from its position on. */
uint32_t vb_rss_toeplitz(const uint8_t key[VB_RSS_KEY_LEN], const uint8_t *data, uint32_t len)
{
	uint64_t window = 0; /* its upper 32 bits stand where the data does */
	uint32_t hash = 0;

	for (unsigned i = 0; i < 4; i++)
		window = window << 8 | key[i];
	for (uint32_t i = 0; i < len; i++) {
		window = window << 8 | key[i + 4];
		for (unsigned bit = 0; bit < 8; bit++)
			hash ^= data[i] & 0x80u >> bit ? (uint32_t)(window >> (8 - bit)) : 0;
	}
	return hash;
}

struct hash_input {
	uint8_t data[36];
	uint32_t len;
};

static void append_field(struct hash_input *in, bool chosen, const void *field, uint32_t len)
{
	if (!chosen)
		return;
	memcpy(in->data + in->len, field, len);
	in->len += len;
}

uint32_t vb_rss_hash_of(const struct vb_rss_hash *hash, const union vb_frame_fields *fields, uint16_t layers)
{
	const struct vb_frame_key *key = &fields->key;
	uint32_t chosen = hash->fields;
	struct hash_input in = {.len = 0};
	bool whole = !(key->ip_flags & VB_IP_MORE_FRAGMENTS);
	bool tcp = whole && layers & VB_LAYER_TCP, udp = whole && layers & VB_LAYER_UDP;

	if (layers & VB_LAYER_IPV4) {
		append_field(&in, chosen & IBV_RX_HASH_SRC_IPV4, &key->src_ip, 4);
		append_field(&in, chosen & IBV_RX_HASH_DST_IPV4, &key->dst_ip, 4);
	} else if (layers & VB_LAYER_IPV6) {
		append_field(&in, chosen & IBV_RX_HASH_SRC_IPV6, key->src_ip6, 16);
		append_field(&in, chosen & IBV_RX_HASH_DST_IPV6, key->dst_ip6, 16);
	}
	append_field(&in, (tcp && chosen & IBV_RX_HASH_SRC_PORT_TCP) || (udp && chosen & IBV_RX_HASH_SRC_PORT_UDP),
	             &key->src_port, 2);
	append_field(&in, (tcp && chosen & IBV_RX_HASH_DST_PORT_TCP) || (udp && chosen & IBV_RX_HASH_DST_PORT_UDP),
	             &key->dst_port, 2);
	append_field(&in, whole && layers & VB_LAYER_ESP && chosen & SPI, &key->esp_spi, 4);
	return vb_rss_toeplitz(hash->key, in.data, in.len);
}
