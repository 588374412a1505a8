// stream.c - sends numbered messages over an RC or UC connection, and checks that only those arrive
// follows: ibv_post_send(3), ibv_poll_cq(3)
// usage: stream -t rc|uc -p PORT [SERVER]: the client sends until SIGINT. It prints its queue pair's number first. Exit
// status: 0 right, 1 wrong or missing data, 3 a completion with an error
// SPDX-License-Identifier: MIT
#include "../system/net/link.h"

#include <errno.h>
#include <inttypes.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <time.h>
#include <unistd.h>

#define LEN 256u
#define PAUSE 500000 /* ns between two messages */

static volatile sig_atomic_t ended;
static uint8_t memory[SLOTS][LEN];
static uint8_t target[4096]; /* remotely writable, but nobody writes there */
static struct ibv_mr *mr;

static void end(int signal)
{
	(void)signal;
	ended = 1;
}

static void write_message(uint8_t *to, uint64_t number)
{
	for (uint32_t i = 0; i < LEN; i++)
		to[i] = (uint8_t)((number >> i % 8 * 8) + i * 7);
}

static uint64_t number_of(const uint8_t *from)
{
	uint64_t n = 0;

	for (uint32_t i = 0; i < 8; i++)
		n |= (uint64_t)(uint8_t)(from[i] - i * 7) << i * 8;
	return n;
}

static void post_receive(struct link *l, uint32_t slot)
{
	struct ibv_sge sge = {(uintptr_t)memory[slot], LEN, mr->lkey};
	struct ibv_recv_wr wr = {.wr_id = slot, .sg_list = &sge, .num_sge = 1}, *bad;

	memset(memory[slot], 0xee, LEN);
	if (ibv_post_recv(l->qp, &wr, &bad))
		stop(FAILED, "ibv_post_recv: %s", strerror(errno));
}

static bool poll_one(struct link *l, struct ibv_wc *wc)
{
	int n = ibv_poll_cq(l->cq, 1, wc);

	if (n < 0 || (n && wc->status))
		stop(FAILED, "%s", n < 0 ? "ibv_poll_cq" : ibv_wc_status_str(wc->status));
	return n;
}

static void nap(long ns)
{
	nanosleep(&(struct timespec){.tv_nsec = ns}, NULL);
}

static void send_all(struct link *l)
{
	uint64_t sent = 0;

	for (; !ended; sent++) {
		struct ibv_sge sge = {(uintptr_t)memory[0], LEN, mr->lkey};
		struct ibv_send_wr wr = {.sg_list = &sge,
		                         .num_sge = 1,
		                         .opcode = IBV_WR_SEND,
		                         .send_flags = IBV_SEND_SIGNALED},
		                   *bad;
		struct ibv_wc wc;

		write_message(memory[0], sent);
		if (ibv_post_send(l->qp, &wr, &bad))
			stop(FAILED, "ibv_post_send: %s", strerror(errno));
		while (!poll_one(l, &wc))
			nap(20000);
		nap(PAUSE);
	}
	printf("sent %" PRIu64 "\n", sent);
	if (write(l->tcp, &sent, sizeof(sent)) != sizeof(sent))
		stop(GONE, "the other side");
	shutdown(l->tcp, SHUT_WR);
	while (read(l->tcp, &sent, 1) < 0) { /* until it has been sent */
		if (errno != EAGAIN)
			stop(GONE, "the other side: %s", strerror(errno));
		nap(1000000);
	}
}

static void take(struct link *l, const struct ibv_wc *wc, uint64_t *next, uint64_t *came)
{
	uint8_t want[LEN];
	uint64_t n = number_of(memory[wc->wr_id]);

	write_message(want, n);
	if (wc->opcode != IBV_WC_RECV || wc->byte_len != LEN || wc->wc_flags || memcmp(want, memory[wc->wr_id], LEN))
		stop(WRONG, "a message that nobody sent, after %" PRIu64, *came);
	if (l->o->transport == RC ? n != *next : n < *next)
		stop(WRONG, "message %" PRIu64 " in place of %" PRIu64, n, *next);
	*next = n + 1;
	++*came;
	post_receive(l, (uint32_t)wc->wr_id);
}

static void receive_all(struct link *l)
{
	uint64_t next = 0, came = 0, sent = UINT64_MAX;
	struct ibv_wc wc;

	for (int quiet = 0; quiet < 1000;) {
		if (poll_one(l, &wc)) {
			take(l, &wc, &next, &came);
			quiet = 0;
			continue;
		}
		if (sent == UINT64_MAX && recv(l->tcp, &sent, sizeof(sent), MSG_DONTWAIT) == 0)
			stop(GONE, "the other side");
		quiet += sent != UINT64_MAX;
		nap(100000);
	}
	for (uint32_t i = 0; i < sizeof(target); i++)
		if (target[i] != 0xee)
			stop(WRONG, "somebody wrote to byte %u", i);
	if (!sent || came < (l->o->transport == RC ? sent : sent / 2))
		stop(WRONG, "%" PRIu64 " of %" PRIu64 " came", came, sent);
	printf("right: %" PRIu64 " of %" PRIu64 "\n", came, sent);
}

int main(int argc, char **argv)
{
	static struct options o = {.gid = 1, .timeout = 18, .retries = 7, .reads = 8, .mtu = 1024};
	static struct link l;

	for (int c; (c = getopt(argc, argv, "t:p:")) != -1;)
		if (c == 't')
			o.transport = !strcmp(optarg, "uc") ? UC : RC;
		else if (c == 'p')
			o.port = atoi(optarg);
	o.server = argv[optind];
	setvbuf(stdout, NULL, _IOLBF, 0);
	signal(SIGINT, end);
	signal(SIGPIPE, SIG_IGN);
	alarm(3600);
	memset(target, 0xee, sizeof(target));
	link_open(&l, &o);
	mr = ibv_reg_mr(l.pd, memory, sizeof(memory), IBV_ACCESS_LOCAL_WRITE);
	struct ibv_mr *open = ibv_reg_mr(l.pd, target, sizeof(target),
	                                 IBV_ACCESS_LOCAL_WRITE | IBV_ACCESS_REMOTE_WRITE | IBV_ACCESS_REMOTE_READ |
	                                         IBV_ACCESS_REMOTE_ATOMIC);
	if (!mr || !open)
		stop(USAGE, "ibv_reg_mr: %s", strerror(errno));
	for (uint32_t i = 0; i < SLOTS && !l.number; i++)
		post_receive(&l, i);
	link_connect(&l);
	printf("qpn %x psn %x key %x va %p\n", l.here.qpn, l.here.psn, open->rkey, (void *)target);
	(l.number ? send_all : receive_all)(&l);
	return 0;
}
