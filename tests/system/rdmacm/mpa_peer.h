// mpa_peer.h - a peer on a plain socket that sends arbitrary MPA frames, for the tests of iWARP's connections
// follows: RFC 5044, 7.1; RFC 6581, 9
// SPDX-License-Identifier: MIT
#ifndef VB_TEST_MPA_PEER_H
#define VB_TEST_MPA_PEER_H

#include "cm.h"

enum { M = 0x80, C = 0x40, R = 0x20, S = 0x10 };                /* flags of a frame */
enum { A = 0x8000, B = 0x4000, WRITE = 0x8000, READ = 0x4000 }; /* bits of its words */

struct bytes {
	uint8_t at[1024];
	size_t len;
};
struct bytes frame(bool reply, unsigned flags, unsigned revision, const void *data, size_t len);
/* Includes the words of the enhanced setup. */
struct bytes enhanced(bool reply, unsigned flags, unsigned ird, unsigned ord, const void *data, size_t len);

struct heard {
	bool reply;
	unsigned flags, revision, ird, ord;
	uint8_t data[512];
	size_t len;
};

int tcp_to(unsigned port); /* of 127.0.0.1 */
int tcp_listen(unsigned *port);
int tcp_accept(int fd);
void say(int fd, const struct bytes *b);
void has_arrived(int fd);       /* waits until the other kernel has received everything, including the end */
struct heard listen_to(int fd); /* one whole frame */
bool says(const struct heard *h, const char *text);
bool ends(int fd);          /* the other end has closed; skips data before that */
bool ends_in_order(int fd); /* the same, without a reset */
unsigned port_of(int fd, bool peer);

#endif
