// client.c - the end that measures: RDMA, and plain TCP and UDP beside it
// follows: verbena-bench(1)
// SPDX-License-Identifier: MIT
#include <errno.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <poll.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "tools/bench/bench.h"
#include "tools/doctor/doctor.h"

#define SAMPLES 200000
#define CONNECT_MS 3000
#define STALL_US 5000000 /* no answer for so long: the connection is broken */
#define WARM_ROUNDS 20
#define TCP_CHUNK (1u << 20)

static bool complain_bench(const char *what, int err)
{
	fprintf(stderr, "%s: %s\n", what, strerror(err));
	return false;
}

static socklen_t address_len(const struct sockaddr_storage *a)
{
	return a->ss_family == AF_INET6 ? sizeof(struct sockaddr_in6) : sizeof(struct sockaddr_in);
}

static int connect_within(const struct sockaddr_storage *to)
{
	int fd = socket(to->ss_family, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0), err = 0, on = 1;
	struct pollfd p = {.fd = fd, .events = POLLOUT};
	socklen_t n = sizeof(err);

	if (fd < 0)
		return -1;
	setsockopt(fd, IPPROTO_TCP, TCP_NODELAY, &on, sizeof(on));
	if (connect(fd, (const struct sockaddr *)to, address_len(to)) && errno != EINPROGRESS)
		err = errno;
	else if (poll(&p, 1, CONNECT_MS) <= 0)
		err = ETIMEDOUT;
	else
		getsockopt(fd, SOL_SOCKET, SO_ERROR, &err, &n);
	if (!err)
		return fd;
	close(fd);
	errno = err;
	return -1;
}

int bench_ask_for(const struct bench_plan *p, enum bench_kind kind, struct bench_grant *g)
{
	uint8_t out[BENCH_ASK_LEN], in[BENCH_GRANT_LEN];
	struct bench_ask ask = {.kind = kind, .size = BENCH_SMALL};
	int fd = connect_within(&p->to);

	if (fd < 0) {
		complain_bench("no connection", errno);
		return -1;
	}
	for (unsigned i = 0; kind == BENCH_RDMA && i < p->n_sizes; i++)
		ask.size = p->sizes[i] > ask.size ? p->sizes[i] : ask.size;
	bench_encode_ask(out, &ask);
	if (bench_send_all(fd, out, sizeof(out), CONNECT_MS) && bench_recv_all(fd, in, sizeof(in), CONNECT_MS) &&
	    bench_decode_grant(g, in))
		return fd;
	fputs("no answer of a verbena bench --serve, or it has no session free\n", stderr);
	close(fd);
	return -1;
}

static int by_value(const void *a, const void *b)
{
	double x = *(const double *)a, y = *(const double *)b;

	return (x > y) - (x < y);
}

void bench_latency(struct bench_result *r, double *samples, size_t n)
{
	if (!n)
		return;
	qsort(samples, n, sizeof(*samples), by_value);
	r->median_us = samples[n / 2] / 2;
	r->p99_us = samples[(n - 1) * 99 / 100] / 2;
}

static double precise_us(void)
{
	struct timespec ts;

	clock_gettime(CLOCK_MONOTONIC, &ts);
	return (double)ts.tv_sec * 1e6 + (double)ts.tv_nsec / 1e3;
}

/* --- RDMA --- */

struct rdma_target {
	uint64_t addr;
	uint32_t rkey;
};

static bool connect_rdma(struct bench_end *e, const struct bench_plan *p, const struct bench_grant *g, uint32_t size,
                         struct rdma_target *t)
{
	struct sockaddr_storage to = p->to;
	struct rdma_conn_param param = {.private_data = &g->token,
	                                .private_data_len = sizeof(g->token),
	                                .responder_resources = 16,
	                                .initiator_depth = 16,
	                                .retry_count = 7,
	                                .rnr_retry_count = 7};
	struct doc_event event = {0};
	uint64_t memory[2];

	bench_set_port(&to, g->port);
	if (!bench_open_end(e, size, p->hardware))
		return false;
	if (e->v.rdma_resolve_addr(e->id, NULL, (struct sockaddr *)&to, CONNECT_MS))
		return complain_bench("rdma_resolve_addr", errno);
	if (!bench_await(e, RDMA_CM_EVENT_ADDR_RESOLVED, NULL))
		return false;
	if (e->v.rdma_resolve_route(e->id, CONNECT_MS))
		return complain_bench("rdma_resolve_route", errno);
	if (!bench_await(e, RDMA_CM_EVENT_ROUTE_RESOLVED, NULL) || !bench_make_queues(e))
		return false;
	if (e->v.rdma_connect(e->id, &param))
		return complain_bench("rdma_connect", errno);
	if (!bench_await(e, RDMA_CM_EVENT_ESTABLISHED, &event))
		return false;
	memcpy(memory, event.private_data, sizeof(memory));
	*t = (struct rdma_target){.addr = memory[0], .rkey = (uint32_t)memory[1]};
	return true;
}

static bool poll_and_repost(struct bench_end *e, int64_t *until, unsigned *tries)
{
	uint64_t done = e->done;
	int slot;

	if (!bench_poll(e, &slot) || (slot >= 0 && !bench_post_receive(e, (unsigned)slot)))
		return false;
	if (slot >= 0 || e->done != done)
		*until = doc_now_us() + STALL_US;
	else if (!(++*tries % 1024) && doc_now_us() > *until)
		return complain_bench("nothing arrives", ETIMEDOUT);
	return true;
}

static bool measure_latency(struct bench_end *e, const struct bench_plan *p, double *samples)
{
	int64_t end = doc_now_us() + p->each_us, until = end + STALL_US;
	unsigned tries = 0;
	size_t n = 0;

	for (unsigned round = 0; n < SAMPLES && (round < WARM_ROUNDS + 1 || doc_now_us() < end); round++) {
		unsigned want = e->arrived + 1;
		double began = precise_us();

		while (!bench_has_credit(e))
			if (!poll_and_repost(e, &until, &tries))
				return false;
		if (!bench_post_small(e, BENCH_ECHO))
			return false;
		while (e->arrived != want || e->sending)
			if (!poll_and_repost(e, &until, &tries))
				return false;
		if (round >= WARM_ROUNDS)
			samples[n++] = precise_us() - began;
	}
	bench_latency(p->out, samples, n);
	return true;
}

/* Keeps up to `depth` requests outstanding for the time. len 0: small messages. Returns requests in a second, or -1. */
static double measure_flow(struct bench_end *e, const struct bench_plan *p, enum bench_way way, uint32_t len,
                           const struct rdma_target *t)
{
	unsigned depth = !len ? BENCH_DEPTH : way == BENCH_READ ? 16 : BENCH_DEPTH / 2, tries = 0;
	int64_t began = doc_now_us(), end = began + p->each_us, until = end + STALL_US;
	uint64_t first = e->done;
	bool first_round = true;

	while (first_round || doc_now_us() < end) {
		while (e->sending < depth && (way != BENCH_SEND || bench_has_credit(e)))
			if (!(len ? bench_post_large(e, way, len, t->addr, t->rkey) : bench_post_small(e, BENCH_DROP)))
				return -1;
		first_round = false;
		if (!poll_and_repost(e, &until, &tries))
			return -1;
	}
	while (e->sending)
		if (!poll_and_repost(e, &until, &tries))
			return -1;
	return (double)(e->done - first) * 1e6 / (double)(doc_now_us() - began);
}

/* Reads once into cleared memory: all bytes must be the other end's. */
static bool check_read(struct bench_end *e, uint32_t len, const struct rdma_target *t)
{
	uint8_t *at = e->buf + (bench_large_address(e) - (uintptr_t)e->buf);
	int64_t until = doc_now_us() + STALL_US;
	unsigned tries = 0;

	memset(at, 0, len);
	if (!bench_post_large(e, BENCH_READ, len, t->addr, t->rkey))
		return false;
	while (e->sending)
		if (!poll_and_repost(e, &until, &tries))
			return false;
	if (at[0] == BENCH_FILL && !memcmp(at, at + 1, len - 1))
		return true;
	fputs("an RDMA read gave wrong bytes\n", stderr);
	return false;
}

static bool measure_flows(struct bench_end *e, const struct bench_plan *p, const struct rdma_target *t)
{
	double rate = measure_flow(e, p, BENCH_SEND, 0, t);

	p->out->rate = rate;
	for (unsigned i = 0; i < p->n_sizes && rate >= 0; i++) {
		if (!check_read(e, p->sizes[i], t))
			return false;
		for (enum bench_way way = BENCH_SEND; way < BENCH_WAYS && rate >= 0; way++) {
			rate = measure_flow(e, p, way, p->sizes[i], t);
			p->out->mbps[way][i] = rate * p->sizes[i] / 1e6;
		}
	}
	return rate >= 0;
}

int bench_measure_rdma(const struct bench_plan *p)
{
	static struct bench_end e;
	uint32_t size = BENCH_SMALL;
	struct rdma_target t;
	struct bench_grant g;
	int fd = bench_ask_for(p, BENCH_RDMA, &g);
	double *samples = malloc(SAMPLES * sizeof(*samples));

	for (unsigned i = 0; i < p->n_sizes; i++)
		size = p->sizes[i] > size ? p->sizes[i] : size;
	bool done = fd >= 0 && samples && connect_rdma(&e, p, &g, size, &t) && measure_latency(&e, p, samples) &&
	            measure_flows(&e, p, &t);
	int slot;

	if (done && bench_post_small(&e, BENCH_END))
		for (int64_t end = doc_now_us() + 200000; e.sending && doc_now_us() < end;)
			if (!bench_poll(&e, &slot))
				break;
	free(samples);
	if (fd >= 0)
		close(fd);
	p->out->done = done;
	return !done;
}

/* --- TCP and UDP --- */

static bool tcp_latency(const struct bench_plan *p, double *samples)
{
	char message[BENCH_SMALL] = {0};
	struct bench_grant g;
	int fd = bench_ask_for(p, BENCH_TCP_ECHO, &g);
	int64_t end = doc_now_us() + p->each_us;
	bool right = fd >= 0;
	size_t n = 0;

	while (right && n < SAMPLES && (!n || doc_now_us() < end)) {
		double began = precise_us();

		right = bench_send_all(fd, message, sizeof(message), CONNECT_MS) &&
		        bench_recv_all(fd, message, sizeof(message), CONNECT_MS);
		samples[n++] = precise_us() - began;
	}
	if (fd >= 0)
		close(fd);
	bench_latency(p->out, samples, n);
	return right || (fd >= 0 && complain_bench("TCP", EIO));
}

static bool tcp_bandwidth(const struct bench_plan *p)
{
	char *buf = calloc(1, TCP_CHUNK);
	struct bench_grant g;
	int fd = buf ? bench_ask_for(p, BENCH_TCP_SINK, &g) : -1;
	int64_t began = doc_now_us(), end = began + p->each_us;
	bool right = fd >= 0;
	uint64_t total = 0;

	while (right && (!total || doc_now_us() < end)) {
		right = bench_send_all(fd, buf, TCP_CHUNK, CONNECT_MS);
		total += TCP_CHUNK;
	}
	uint64_t theirs = 0;

	if (right) {
		shutdown(fd, SHUT_WR);
		right = bench_recv_all(fd, &theirs, sizeof(theirs), CONNECT_MS) && theirs == total;
		p->out->mbps[BENCH_SEND][0] = (double)total / (double)(doc_now_us() - began);
	}
	if (fd >= 0)
		close(fd);
	free(buf);
	return right || (fd >= 0 && complain_bench("TCP", EIO));
}

int bench_measure_tcp(const struct bench_plan *p)
{
	double *samples = malloc(SAMPLES * sizeof(*samples));

	p->out->done = samples && tcp_latency(p, samples) && tcp_bandwidth(p);
	free(samples);
	return !p->out->done;
}

/* A lost datagram is left out. */
int bench_measure_udp(const struct bench_plan *p)
{
	double *samples = malloc(SAMPLES * sizeof(*samples));
	struct sockaddr_storage to = p->to;
	char message[BENCH_SMALL] = {0};
	struct bench_grant g;
	int fd = samples ? bench_ask_for(p, BENCH_UDP_ECHO, &g) : -1;
	int udp = fd >= 0 ? socket(to.ss_family, SOCK_DGRAM | SOCK_CLOEXEC, 0) : -1;
	int64_t end = doc_now_us() + p->each_us;
	size_t n = 0;

	if (udp >= 0) {
		bench_set_port(&to, g.port);
		memcpy(message, &g.token, sizeof(g.token));
	}
	if (udp >= 0 && !connect(udp, (struct sockaddr *)&to, address_len(&to)))
		while (n < SAMPLES && doc_now_us() < end) {
			struct pollfd w = {.fd = udp, .events = POLLIN};
			double began = precise_us();

			if (send(udp, message, sizeof(message), 0) < 0 || poll(&w, 1, 50) <= 0)
				continue;
			if (recv(udp, message, sizeof(message), MSG_DONTWAIT) == sizeof(message))
				samples[n++] = precise_us() - began;
		}
	if (fd >= 0 && !n)
		complain_bench("UDP", ETIMEDOUT);
	bench_latency(p->out, samples, n);
	free(samples);
	if (udp >= 0)
		close(udp);
	if (fd >= 0)
		close(fd);
	p->out->done = n > 0;
	return !n;
}
