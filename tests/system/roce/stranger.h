// stranger.h - a peer without Verbena: a socket, and packets forged byte by byte
// follows: IBA volume 1, 9.2 to 9.7; annex A17 (RoCEv2)
// SPDX-License-Identifier: MIT
#ifndef VB_TEST_WIREIO_STRANGER_H
#define VB_TEST_WIREIO_STRANGER_H

#include "../local/pair.h"

#include "core/core.h"
#include "frame/packet.h"

#define STRANGER_QPN 0xfedcba /* an unused lane: the host's own sockets drop packets for it */

/* Our queue pair, with its memory and its peer. */
struct stranger {
	struct dev d;
	struct link l;
	struct mem m;
	bool v6;
	bool any_icrc; /* a wrong ICRC is no failure, but reported in struct came */
	int fd, raw;
	uint8_t here[16], there[16]; /* the program's address, the stranger's */
};

/* How a packet differs from a valid one. */
struct how {
	uint8_t tos, hops; /* hops 0: 64 */
	uint16_t id;       /* IPv4 */
	bool no_migreq;
	bool bad_icrc;
	bool spoofed, astray; /* from another address; to another address of the program */
	bool option;          /* IPv4: a header with an option */
	bool no_checksum;     /* of UDP; IPv4 packets never have one */
	uint16_t sport;
	unsigned cut, more;  /* bytes removed, bytes added; before the ICRC */
	unsigned fragment;   /* IPv4: bytes of IP payload in each, a multiple of 8 */
	bool only_first;     /* of the fragments */
	uint32_t flow_label; /* IPv6 */
};

/* Enters a new network with two addresses of each family. False if that is not possible. */
bool stranger_network(void);

/* Makes the pair and connects it, up to RTS; conf as for link_make. VERBENA_WIRE must be always. */
void stranger_meet(struct stranger *s, const struct conf *c, bool v6);
/* The same with this device and address. A second pair of the same program shares the stranger's socket. */
void stranger_meet_at(struct stranger *s, const struct conf *c, const char *device, const char *here);

/* A valid packet: the right P_Key, QP number and keys, for the beginning of the memory. */
struct vb_packet stranger_packet(const struct stranger *s, uint8_t opcode, uint32_t psn, uint32_t len);
/* Sends it. Each payload byte is the low byte of the PSN. how NULL: valid. */
void stranger_say(struct stranger *s, const struct vb_packet *p, const struct how *how);
/* A PSN of the program, n after the first one. */
void stranger_request(struct stranger *s, uint8_t opcode, uint32_t n, uint32_t len);
/* Sends arbitrary bytes with an ICRC. */
void stranger_bytes(struct stranger *s, const uint8_t *bytes, size_t len, const struct how *how);

struct came {
	struct vb_packet p;
	uint8_t payload[VB_PAYLOAD_MAX];
	uint8_t tos, hops;
	bool right; /* its ICRC is right */
};
/* The next packet that the stranger receives. Its ICRC is checked with the table of the tests. */
bool stranger_take(struct stranger *s, struct came *c, int ms);
/* Checks its opcode and PSN; skips repeated requests. */
void stranger_expect(struct stranger *s, struct came *c, uint8_t opcode, uint32_t psn);
/* Checks that nothing arrives for this time. */
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
