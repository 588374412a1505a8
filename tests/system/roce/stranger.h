// stranger.h - a peer that is no Verbena: a socket, and packets that are forged byte by byte
// follows: IBA volume 1, 9.2 to 9.7; annex A17 (RoCEv2)
// SPDX-License-Identifier: MIT
#ifndef VB_TEST_WIREIO_STRANGER_H
#define VB_TEST_WIREIO_STRANGER_H

#include "../local/pair.h"

#include "core/core.h"
#include "frame/packet.h"

#define STRANGER_QPN 0xfedcba /* its lane is nobody's: what comes for it is dropped by the host's own sockets */

/* A queue pair of ours, with its memory, and who talks to it. */
struct stranger {
	struct dev d;
	struct link l;
	struct mem m;
	bool v6;
	bool any_icrc; /* a wrong one is no failure: struct came says so */
	int fd, raw;
	uint8_t here[16], there[16]; /* the program's address, the stranger's */
};

/* How a packet differs from one that is right. */
struct how {
	uint8_t tos, hops; /* hops 0: 64 */
	uint16_t id;       /* IPv4 */
	bool no_migreq;
	bool bad_icrc;
	bool spoofed, astray; /* from another address; to another of the program's */
	bool option;          /* IPv4: a header with an option */
	bool no_checksum;     /* of UDP; IPv4 packets never have one */
	uint16_t sport;
	unsigned cut, more;  /* bytes less, bytes more; before the ICRC */
	unsigned fragment;   /* IPv4: bytes of IP payload in each, a multiple of 8 */
	bool only_first;     /* of the fragments */
	uint32_t flow_label; /* IPv6 */
};

/* A network of the test program's own, with two addresses of each family. False: there can be none. */
bool stranger_network(void);

/* Makes the pair and connects it, RTS; conf as for link_make. VERBENA_WIRE has to be always. */
void stranger_meet(struct stranger *s, const struct conf *c, bool v6);
/* The same of this device, at this address of it. A second pair of the same program shares the stranger's socket. */
void stranger_meet_at(struct stranger *s, const struct conf *c, const char *device, const char *here);

/* A packet as a right peer sends it: of the right P_Key, QP number, keys, into the beginning of the memory. */
struct vb_packet stranger_packet(const struct stranger *s, uint8_t opcode, uint32_t psn, uint32_t len);
/* Sends it; each byte of the payload is the PSN's lowest. how: NULL, all is right. */
void stranger_say(struct stranger *s, const struct vb_packet *p, const struct how *how);
/* Of the program's numbers, n after those that it was told first. */
void stranger_request(struct stranger *s, uint8_t opcode, uint32_t n, uint32_t len);
/* Any bytes, to which an ICRC is added. */
void stranger_bytes(struct stranger *s, const uint8_t *bytes, size_t len, const struct how *how);

struct came {
	struct vb_packet p;
	uint8_t payload[VB_PAYLOAD_MAX];
	uint8_t tos, hops;
	bool right; /* its ICRC */
};
/* The next packet that comes to the stranger, its ICRC checked by the table of the tests. */
bool stranger_take(struct stranger *s, struct came *c, int ms);
/* It has this opcode, and this PSN; requests that come again are passed over. */
void stranger_expect(struct stranger *s, struct came *c, uint8_t opcode, uint32_t psn);
/* What comes for so long is nothing. */
void stranger_silence(struct stranger *s, int ms);

/* A counter of the queue pair, and one of the program. */
#define STAT(s, name) stranger_stat(s, offsetof(struct vb_roce_stats, name))
uint64_t stranger_stat(struct stranger *s, size_t offset);
#define WAIT_FOR(x)                                           \
	do {                                                  \
		for (int i_ = 0; !(x) && i_ < PATIENCE; i_++) \
			sleep_ms(1);                          \
		CHECK(x);                                     \
	} while (0)

#endif
