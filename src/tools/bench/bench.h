// bench.h - the parts of `verbena bench`
// follows: verbena-bench(1)
// SPDX-License-Identifier: MIT
#ifndef VB_TOOLS_BENCH_BENCH_H
#define VB_TOOLS_BENCH_BENCH_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <sys/socket.h>

#include "tools/doctor/verbs.h"

/* Prefix in this folder: bench_. */

#define BENCH_PORT 7472
#define BENCH_SIZES 3
#define BENCH_SIZE_MAX (16u << 20)
#define BENCH_SMALL 64u     /* bytes of a message for latency and rate */
#define BENCH_DEPTH 64u     /* requests outstanding */
#define BENCH_SESSION_S 90u /* a session ends by then, whatever its peer does */
#define BENCH_IDLE_MS 10000 /* and if it hears nothing for so long */

/* --- results, in memory that the processes share --- */

enum bench_way { BENCH_SEND, BENCH_WRITE, BENCH_READ, BENCH_WAYS };

struct bench_result {
	bool done;
	double median_us, p99_us;             /* half of a round trip; 0: not measured */
	double rate;                          /* messages of 64 bytes in a second; 0: not measured */
	double mbps[BENCH_WAYS][BENCH_SIZES]; /* 10^6 bytes in a second */
};

/* --- the exchange before a session, over TCP --- */

enum bench_kind { BENCH_RDMA, BENCH_TCP_ECHO, BENCH_TCP_SINK, BENCH_UDP_ECHO, BENCH_KINDS };

struct bench_ask {
	enum bench_kind kind;
	uint32_t size; /* of the largest message */
};
#define BENCH_ASK_LEN 16

/* The answer: the port of the session (RDMA, UDP) and a number that its messages must show. */
struct bench_grant {
	uint16_t port;
	uint64_t token;
};
#define BENCH_GRANT_LEN 24

void bench_encode_ask(uint8_t out[BENCH_ASK_LEN], const struct bench_ask *ask);
bool bench_decode_ask(struct bench_ask *ask, const uint8_t in[BENCH_ASK_LEN]);
void bench_encode_grant(uint8_t out[BENCH_GRANT_LEN], const struct bench_grant *g);
bool bench_decode_grant(struct bench_grant *g, const uint8_t in[BENCH_GRANT_LEN]);

/* Reads or writes all bytes of a socket within ms. */
bool bench_recv_all(int fd, void *buf, size_t n, int ms);
bool bench_send_all(int fd, const void *buf, size_t n, int ms);

void bench_set_port(struct sockaddr_storage *a, uint16_t port);
/* Are these addresses equal but for the port? */
bool bench_same_host(const struct sockaddr_storage *a, const struct sockaddr_storage *b);

/* --- the program at the other end --- */

/* Listens at this address (*port 0: any, and set). A descriptor, or -1 with errno. */
int bench_listen(const char *address, uint16_t *port);
/* Serves sessions until `most` have ended, 0: without end. */
int bench_serve(int listener, unsigned most, bool hardware);

/* --- the program that measures --- */

struct bench_plan {
	struct sockaddr_storage to; /* where the other end listens */
	uint32_t sizes[BENCH_SIZES];
	unsigned n_sizes;
	int64_t each_us;          /* time for one measurement */
	bool hardware;            /* the system's libraries */
	struct bench_result *out; /* shared */
};

/* Connects and asks for a session. A descriptor, or -1 after a line on standard error. */
int bench_ask_for(const struct bench_plan *p, enum bench_kind kind, struct bench_grant *g);

/* Each returns 0, or 1 after a line on standard error. */
int bench_measure_rdma(const struct bench_plan *p);
int bench_measure_tcp(const struct bench_plan *p);
int bench_measure_udp(const struct bench_plan *p);

/* Sorts the samples (microseconds of round trips) and stores half of the median and of the 99th percentile. */
void bench_latency(struct bench_result *r, double *samples, size_t n);

/* --- one end of a reliable connection: rdma.c --- */

struct bench_end {
	struct doc_verbs v;
	struct rdma_event_channel *ch;
	struct rdma_cm_id *id;
	struct ibv_pd *pd;
	struct ibv_cq *cq;
	struct ibv_mr *mr;
	uint8_t *buf; /* BENCH_OPS operation bytes, a small message, a large one */
	uint32_t size;
	unsigned sending, arrived; /* sends outstanding; receives that completed */
	uint64_t done;             /* sends that completed */
	uint64_t sent, credits;    /* SENDs that were posted; messages that the other end has taken, as it says */
	unsigned taken;            /* receives posted again since the last credit was sent */
};

/* The first byte of a message: what the other end does with it. */
enum bench_op { BENCH_DROP, BENCH_ECHO, BENCH_END, BENCH_CREDIT };
#define BENCH_FILL 0x5a       /* all other bytes of all messages, and no operation */
#define BENCH_CREDIT_EACH 32u /* messages that a credit stands for */

/* Loads the libraries and makes an id. Here and below: false after a line on standard error. */
bool bench_open_end(struct bench_end *e, uint32_t size, bool hardware);
bool bench_await(struct bench_end *e, enum rdma_cm_event_type want, struct doc_event *event);
bool bench_make_queues(struct bench_end *e);
bool bench_post_receive(struct bench_end *e, unsigned slot);
/* May another SEND be posted, so that the other end certainly has a receive for it? Without that, RNR NAKs are measured. */
bool bench_has_credit(const struct bench_end *e);
bool bench_post_small(struct bench_end *e, enum bench_op op);
bool bench_post_large(struct bench_end *e, enum bench_way way, uint32_t len, uint64_t addr, uint32_t rkey);
/* Polls once. *slot is the receive that completed, or -1. */
bool bench_poll(struct bench_end *e, int *slot);
/* The operation that the message in this slot asks for. */
uint8_t bench_op_of(const struct bench_end *e, unsigned slot);
uint64_t bench_large_address(const struct bench_end *e);

#endif
