// rs_wire.c - encoding and decoding of rsocket messages
// follows: rdma-core docs/rsocket (protocol version 1)
// SPDX-License-Identifier: MIT
#include "rsocket/rs_wire.h"

#include <byteswap.h>
#include <endian.h>
#include <string.h>

enum { VERSION = 1, FLAG_BIG_ENDIAN = 1, FLAG_IOMAP = 2, QPN_MASK = 0xFFFFFF, UDP_TAG = 0x55555555 };

static void put16(uint8_t *p, uint16_t v)
{
	v = htobe16(v);
	memcpy(p, &v, sizeof(v));
}
static void put32(uint8_t *p, uint32_t v)
{
	v = htobe32(v);
	memcpy(p, &v, sizeof(v));
}
static void put64(uint8_t *p, uint64_t v)
{
	v = htobe64(v);
	memcpy(p, &v, sizeof(v));
}
static uint16_t get16(const uint8_t *p)
{
	uint16_t v;

	memcpy(&v, p, sizeof(v));
	return be16toh(v);
}
static uint32_t get32(const uint8_t *p)
{
	uint32_t v;

	memcpy(&v, p, sizeof(v));
	return be32toh(v);
}
static uint64_t get64(const uint8_t *p)
{
	uint64_t v;

	memcpy(&v, p, sizeof(v));
	return be64toh(v);
}

static void put_sge(uint8_t *p, const struct rs_sge *s)
{
	put64(p, s->addr);
	put32(p + 8, s->key);
	put32(p + 12, s->length);
}

static struct rs_sge get_sge(const uint8_t *p)
{
	return (struct rs_sge){.addr = get64(p), .key = get32(p + 8), .length = get32(p + 12)};
}

void rs_conn_encode(uint8_t out[RS_CONN_LEN], const struct rs_conn *c)
{
	memset(out, 0, RS_CONN_LEN);
	out[0] = VERSION;
	out[1] = (uint8_t)((c->big_endian ? FLAG_BIG_ENDIAN : 0) | (c->has_iomap ? FLAG_IOMAP : 0));
	put16(out + 2, c->credits);
	out[7] = rs_iomap_scale(c->iomap_size);
	put_sge(out + 8, &c->sgl);
	put_sge(out + 24, &c->buffer);
}

bool rs_conn_decode(struct rs_conn *c, const void *data, size_t len)
{
	const uint8_t *in = data;

	if (!data || len < RS_CONN_LEN || in[0] != VERSION)
		return false;
	c->big_endian = in[1] & FLAG_BIG_ENDIAN;
	c->has_iomap = in[1] & FLAG_IOMAP;
	c->credits = get16(in + 2);
	c->iomap_size = c->has_iomap ? rs_iomap_unscale(in[7]) : 0;
	c->sgl = get_sge(in + 8);
	c->buffer = get_sge(in + 24);
	return c->sgl.length != 0;
}

void rs_sge_store(uint8_t out[RS_SGE_LEN], const struct rs_sge *sge, bool swap)
{
	uint64_t addr = swap ? bswap_64(sge->addr) : sge->addr;
	uint32_t key = swap ? bswap_32(sge->key) : sge->key;
	uint32_t length = swap ? bswap_32(sge->length) : sge->length;

	memcpy(out, &addr, 8);
	memcpy(out + 8, &key, 4);
	memcpy(out + 12, &length, 4);
}

void rs_iomap_store(uint8_t out[RS_IOMAP_LEN], const struct rs_iomap *entry, bool swap)
{
	uint64_t offset = swap ? bswap_64(entry->offset) : entry->offset;

	memcpy(out, &offset, 8);
	rs_sge_store(out + 8, &entry->sge, swap);
}

/* An adapter stores the length last. While it is zero, the rest is not read. */
__attribute__((hot)) struct rs_sge rs_sge_load(const volatile uint8_t *in)
{
	struct rs_sge s = {.length = __atomic_load_n((const volatile uint32_t *)(in + 12), __ATOMIC_ACQUIRE)};

	if (s.length) {
		s.addr = *(const volatile uint64_t *)in;
		s.key = *(const volatile uint32_t *)(in + 8);
	}
	return s;
}

struct rs_iomap rs_iomap_load(const volatile uint8_t *in)
{
	struct rs_iomap m = {.sge = rs_sge_load(in + 8)};

	m.offset = *(const volatile uint64_t *)in;
	return m;
}

uint8_t rs_iomap_scale(uint32_t entries)
{
	if (entries <= 128)
		return (uint8_t)entries;
	return (uint8_t)(128 | (entries > 127 * 256 ? 127 : entries >> 8));
}

uint32_t rs_iomap_unscale(uint8_t wire)
{
	return wire <= 128 ? wire : (uint32_t)(wire & 127) << 8;
}

socklen_t rs_addr_len(const union rs_addr *a)
{
	return a->sa.sa_family == AF_INET ? sizeof(a->sin) : sizeof(a->sin6);
}

bool rs_addr_equal(const union rs_addr *a, const union rs_addr *b)
{
	if (a->sa.sa_family != b->sa.sa_family)
		return false;
	if (a->sa.sa_family == AF_INET)
		return a->sin.sin_port == b->sin.sin_port && a->sin.sin_addr.s_addr == b->sin.sin_addr.s_addr;
	return a->sin6.sin6_port == b->sin6.sin6_port && !memcmp(&a->sin6.sin6_addr, &b->sin6.sin6_addr, 16);
}

in_port_t rs_addr_port(const union rs_addr *a)
{
	return a->sa.sa_family == AF_INET ? a->sin.sin_port : a->sin6.sin6_port;
}

void rs_addr_set_port(union rs_addr *a, in_port_t port)
{
	if (a->sa.sa_family == AF_INET)
		a->sin.sin_port = port;
	else
		a->sin6.sin6_port = port;
}

size_t rs_ud_encode(uint8_t out[RS_UD_HEADER_MAX], const union rs_addr *from)
{
	in_port_t port = rs_addr_port(from);

	memset(out, 0, RS_UD_HEADER_MAX);
	memcpy(out + 2, &port, 2);
	if (from->sa.sa_family == AF_INET) {
		out[0] = 4;
		memcpy(out + 4, &from->sin.sin_addr, 4);
		return out[1] = 8;
	}
	out[0] = 6;
	memcpy(out + 4, &from->sin6.sin6_flowinfo, 4);
	memcpy(out + 8, &from->sin6.sin6_addr, 16);
	return out[1] = 24;
}

size_t rs_ud_decode(union rs_addr *from, const uint8_t *in, size_t len)
{
	memset(from, 0, sizeof(*from));
	if (len >= 8 && in[0] == 4 && in[1] == 8) {
		from->sin.sin_family = AF_INET;
		memcpy(&from->sin.sin_port, in + 2, 2);
		memcpy(&from->sin.sin_addr, in + 4, 4);
		return 8;
	}
	if (len >= 24 && in[0] == 6 && in[1] == 24) {
		from->sin6.sin6_family = AF_INET6;
		memcpy(&from->sin6.sin6_port, in + 2, 2);
		memcpy(&from->sin6.sin6_flowinfo, in + 4, 4);
		memcpy(&from->sin6.sin6_addr, in + 8, 16);
		return 24;
	}
	return 0;
}

size_t rs_udp_encode(uint8_t out[RS_UDP_HEADER_MAX], const struct rs_udp_header *h)
{
	memset(out, 0, RS_UDP_HEADER_MAX);
	put32(out, UDP_TAG);
	out[5] = (uint8_t)h->op;
	put32(out + 8, h->qpn & QPN_MASK);
	if (h->local.sa.sa_family == AF_INET) {
		out[4] = 4;
		memcpy(out + 12, &h->local.sin.sin_addr, 4);
		return out[6] = 16;
	}
	/*
	 * deviates: the document has the address here. rdma-core's code stores the flow label (4 bytes) and the first
	 * 12 bytes of the address. Neither side reads this field.
	 */
	out[4] = 6;
	memcpy(out + 12, &h->local.sin6.sin6_addr, 16);
	return out[6] = 28;
}

size_t rs_udp_decode(struct rs_udp_header *h, const uint8_t *in, size_t len, sa_family_t family)
{
	bool v4 = family == AF_INET;
	size_t want = v4 ? 16 : 28;

	memset(h, 0, sizeof(*h));
	if (len < want || get32(in) != UDP_TAG || in[4] != (v4 ? 4 : 6) || in[6] != want)
		return 0;
	if (in[5] != RS_DATA && in[5] != RS_CONTROL)
		return 0;
	h->op = in[5];
	h->qpn = get32(in + 8) & QPN_MASK;
	h->local.sa.sa_family = family;
	if (v4)
		memcpy(&h->local.sin.sin_addr, in + 12, 4);
	else
		memcpy(&h->local.sin6.sin6_addr, in + 12, 16);
	return want;
}
