// rs_wire.h - the messages between two rsockets: connection data, immediate data, datagram headers
// follows: rdma-core docs/rsocket (protocol version 1)
// SPDX-License-Identifier: MIT
#ifndef VB_RSOCKET_WIRE_H
#define VB_RSOCKET_WIRE_H

#include <netinet/in.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

/* Types of a message: the top three bits of the immediate data. */
enum {
	RS_DATA = 0,    /* bytes written to the next free place of the peer's buffer */
	RS_CREDIT = 4,  /* sequence number (16 bits) up to which the peer may send; its SGL may have changed */
	RS_IOMAP = 6,   /* an entry of the peer's iomap was written: index */
	RS_CONTROL = 7, /* enum rs_control; in datagrams: "this is my queue pair" */
};

enum rs_control { RS_CTRL_DISCONNECT = 0, RS_CTRL_KEEPALIVE = 1, RS_CTRL_SHUTDOWN = 2 };

#define RS_MSG_VALUE 0x1FFFFFFFu

static inline uint32_t rs_msg(unsigned type, uint32_t value)
{
	return (uint32_t)type << 29 | (value & RS_MSG_VALUE);
}
static inline unsigned rs_msg_type(uint32_t msg)
{
	return msg >> 29;
}
static inline uint32_t rs_msg_value(uint32_t msg)
{
	return msg & RS_MSG_VALUE;
}

/* A range of remote memory. Its encoding is big-endian in connection data, and in the byte order of their owner in the
 * SGL and the iomap. */
struct rs_sge {
	uint64_t addr;
	uint32_t key, length;
};
#define RS_SGE_LEN 16
#define RS_IOMAP_LEN 24

struct rs_iomap {
	uint64_t offset;
	struct rs_sge sge;
};

#define RS_SGL_ENTRIES 2
#define RS_CONN_LEN 40

/* Private data of REQ and REP. */
struct rs_conn {
	bool big_endian; /* how this host writes SGL and iomap entries */
	bool has_iomap;
	uint16_t credits;
	uint32_t iomap_size; /* entries; encoded as one byte: see rs_iomap_scale */
	struct rs_sge sgl;   /* length: entries */
	struct rs_sge buffer;
};

void rs_conn_encode(uint8_t out[RS_CONN_LEN], const struct rs_conn *c);
/* False if the peer is not an rsocket, or not version 1. len may be more than was sent, because IB pads private
 * data. */
bool rs_conn_decode(struct rs_conn *c, const void *data, size_t len);

/* Entries in an SGL or iomap. swap: the memory belongs to a host of the other byte order. */
void rs_sge_store(uint8_t out[RS_SGE_LEN], const struct rs_sge *sge, bool swap);
void rs_iomap_store(uint8_t out[RS_IOMAP_LEN], const struct rs_iomap *entry, bool swap);
/* The peer writes these entries in our byte order. */
struct rs_sge rs_sge_load(const volatile uint8_t *in);
struct rs_iomap rs_iomap_load(const volatile uint8_t *in);

/* The byte of the connection data counts up to 128 entries exactly, and more in steps of 256. */
uint8_t rs_iomap_scale(uint32_t entries);
uint32_t rs_iomap_unscale(uint8_t wire);

union rs_addr {
	struct sockaddr sa;
	struct sockaddr_in sin;
	struct sockaddr_in6 sin6;
};
socklen_t rs_addr_len(const union rs_addr *a);
bool rs_addr_equal(const union rs_addr *a, const union rs_addr *b);
in_port_t rs_addr_port(const union rs_addr *a);
void rs_addr_set_port(union rs_addr *a, in_port_t port);

/* The header of each UD datagram: its sender. */
#define RS_UD_HEADER_MAX 24
size_t rs_ud_encode(uint8_t out[RS_UD_HEADER_MAX], const union rs_addr *from);
/* Returns the length of the header, or 0 if it is invalid. */
size_t rs_ud_decode(union rs_addr *from, const uint8_t *in, size_t len);

/* The header of each datagram over UDP. */
#define RS_UDP_HEADER_MAX 28
struct rs_udp_header {
	unsigned op; /* RS_DATA or RS_CONTROL */
	uint32_t qpn;
	union rs_addr local; /* the sender's; without the port */
};
size_t rs_udp_encode(uint8_t out[RS_UDP_HEADER_MAX], const struct rs_udp_header *h);
size_t rs_udp_decode(struct rs_udp_header *h, const uint8_t *in, size_t len, sa_family_t family);

#endif
