// pingpong.h - two programs that send each other messages and check every byte
// follows: rdma_cm(7), ibv_post_send(3)
// SPDX-License-Identifier: MIT
#ifndef VB_TOOLS_DOCTOR_PINGPONG_H
#define VB_TOOLS_DOCTOR_PINGPONG_H

struct doc_pingpong {
	const char *wire, *devices; /* VERBENA_WIRE and VERBENA_DEVICES of both programs */
	int port[2];                /* a pipe: the server tells its port */
};

/* The two programs, for doc_child_start; arg is a struct doc_pingpong. The client writes the latency in microseconds.
 * Each returns 0, or 1 after a line on standard error. */
int doc_pingpong_server(int out, void *arg);
int doc_pingpong_client(int out, void *arg);

#endif
