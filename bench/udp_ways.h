// udp_ways.h - other ways to pass UDP to the kernel and back than sendmsg(2) and recvmsg(2), for bare loops
// follows: MSG_ZEROCOPY (Linux, Documentation/networking/msg_zerocopy.rst); io_uring_enter(2); udp_ways.c
// SPDX-License-Identifier: MIT
#ifndef BENCH_UDP_WAYS_H
#define BENCH_UDP_WAYS_H

#include <stdint.h>
#include <sys/socket.h>

enum udp_send_way {
	UDP_SENDMSG,
	UDP_ZEROCOPY,   // sendmsg(2) with MSG_ZEROCOPY
	UDP_URING,      // io_uring's sendmsg
	UDP_URING_ZERO, // io_uring's sendmsg without a copy
};

enum udp_receive_way {
	UDP_RECVMSG,
	UDP_MULTISHOT,       // io_uring's multishot recvmsg; the kernel interrupts the program for each completion
	UDP_MULTISHOT_ENTER, // the same; the program enters the kernel for its completions
};

struct udp_out;
struct udp_in;

/* Ends the program with a message if this machine lacks the way. size: bytes of a stage, two sends at most. */
struct udp_out *udp_out_new(int fd, enum udp_send_way way, size_t size);
/* Memory to lay a piece in, which the kernel does not need any more. */
uint8_t *udp_out_stage(struct udp_out *o);
/* Sends a part of the stage that was taken last, with this control data. */
void udp_out_send(struct udp_out *o, uint8_t *from, size_t len, const void *control, size_t control_len);
/* The piece is complete. */
void udp_out_flush(struct udp_out *o);
/* Says how many sends without a copy the kernel has copied nevertheless. */
void udp_out_report(struct udp_out *o);

struct udp_in *udp_in_new(int fd, enum udp_receive_way way, size_t name_len, size_t control_len);
/* Returns the length of a datagram and sets *bytes, or -1 if there is none. The bytes are valid until the next call.
 * name: NULL, or where the sender's address goes. */
ssize_t udp_in_take(struct udp_in *in, uint8_t **bytes, void *name);

#endif
