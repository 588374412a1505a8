// fuzz_xrc.c - XRC targets of other processes: any bytes of an opener, and any answers and events of an owner. The honest
// end answers within bounds, hands its program no value that no adapter has, and serves the next one
// see: src/node/xrc_far.h
// build: tests/fuzz/run 60 xrc
// SPDX-License-Identifier: MIT
#include <assert.h>
#include <errno.h>
#include <fcntl.h>
#include <infiniband/verbs.h>
#include <poll.h>
#include <pthread.h>
#include <stdbool.h>
#include <stdio.h>
#include <string.h>
#include <sys/eventfd.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/un.h>
#include <unistd.h>

#include "core/context.h"
#include "core/node.h"
#include "core/seg.h"
#include "node/xrc_far.h"

#include "adapter.h"
#include "input.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

static struct ibv_context *ctx;
static struct vb_node *node;
static struct ibv_xrcd *xrcd;
static struct ibv_qp *target;
static struct vb_xrc_id id;
static int dir_fd, file;

static uint32_t word(struct input *in)
{
	uint8_t b[4];

	bytes(in, b, sizeof(b));
	return (uint32_t)b[0] << 24 | (uint32_t)b[1] << 16 | (uint32_t)b[2] << 8 | b[3];
}

/* Changes some bytes. */
static void disturb(struct input *in, void *p, size_t n)
{
	for (unsigned k = byte(in) % 8; k; k--) {
		size_t at = (byte(in) | (size_t)byte(in) << 8) % n;

		((uint8_t *)p)[at] = byte(in);
	}
}

static void wait_for(int fd)
{
	struct pollfd p = {.fd = fd, .events = POLLIN};

	assert(poll(&p, 1, 20000) == 1);
}

/* --- openers --- */

#define OPENERS 4
static struct {
	int fd, events;
	unsigned asked;
} openers[OPENERS];

static int dial_owner(void)
{
	struct sockaddr_un sun;
	int fd = socket(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0);

	vb_xrc_socket_of(&sun, dir_fd, node->lane);
	assert(fd >= 0 && !connect(fd, (struct sockaddr *)&sun, sizeof(sun)));
	return fd;
}

static void send_with(int fd, const void *p, size_t n, const int *fds, unsigned nfds)
{
	_Alignas(struct cmsghdr) uint8_t control[CMSG_SPACE(2 * sizeof(int))] = {0};
	struct iovec iov = {(void *)(uintptr_t)p, n};
	struct msghdr msg = {.msg_iov = &iov, .msg_iovlen = 1};

	if (nfds) {
		msg.msg_control = control;
		msg.msg_controllen = CMSG_LEN(nfds * sizeof(int));
		struct cmsghdr *m = CMSG_FIRSTHDR(&msg);

		*m = (struct cmsghdr){
		        .cmsg_level = SOL_SOCKET, .cmsg_type = SCM_RIGHTS, .cmsg_len = CMSG_LEN(nfds * sizeof(int))};
		memcpy(CMSG_DATA(m), fds, nfds * sizeof(int));
	}
	(void)!sendmsg(fd, &msg, MSG_NOSIGNAL | MSG_DONTWAIT);
}

/* Each question is answered, or the connection is over. */
static void hear_answers(unsigned i)
{
	struct vb_xrc_answer a;

	for (; openers[i].asked; openers[i].asked--) {
		wait_for(openers[i].fd);
		ssize_t n = recv(openers[i].fd, &a, sizeof(a), 0);

		if (n <= 0)
			break;
		assert(n == sizeof(a) && a.err >= 0 && a.err < 4096 && a.state <= IBV_QPS_ERR);
	}
	openers[i].asked = 0;
}

static void opener_ends(unsigned i)
{
	if (openers[i].fd >= 0)
		close(openers[i].fd);
	if (openers[i].events >= 0)
		close(openers[i].events);
	openers[i].fd = openers[i].events = -1;
	openers[i].asked = 0;
}

/* The descriptor may be of any kind, and there may be none, or two. */
static unsigned some_descriptors(struct input *in, unsigned i, int *fds)
{
	uint8_t k = byte(in) % 8;
	int pair[2];

	if (k < 3 && openers[i].events >= 0)
		return 0;
	if (k < 6) {
		assert(!socketpair(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC | SOCK_NONBLOCK, 0, pair));
		if (openers[i].events >= 0)
			close(openers[i].events);
		openers[i].events = pair[0];
		fds[0] = pair[1];
	} else {
		fds[0] = k == 6 ? eventfd(0, EFD_CLOEXEC) : dup(file);
	}
	fds[1] = k == 5 ? dup(fds[0]) : -1;
	return fds[1] < 0 ? 1 : 2;
}

static void ask(struct input *in, unsigned i)
{
	static const int masks[] = {IBV_QP_STATE, IBV_QP_STATE | IBV_QP_PKEY_INDEX | IBV_QP_PORT | IBV_QP_ACCESS_FLAGS,
	                            IBV_QP_STATE | IBV_QP_AV | IBV_QP_PATH_MTU | IBV_QP_DEST_QPN | IBV_QP_RQ_PSN |
	                                    IBV_QP_MAX_DEST_RD_ATOMIC | IBV_QP_MIN_RNR_TIMER};
	struct {
		struct vb_xrc_ask ask;
		uint8_t more[16];
	} q = {.ask = {.version = VB_XRC_FAR_VERSION,
	               .question = byte(in) % 5,
	               .qpn = target->qp_num,
	               .mask = masks[byte(in) % 3],
	               .id = id,
	               .attr = {.qp_state = byte(in) % 8, .port_num = 1, .path_mtu = 3, .max_dest_rd_atomic = 1}}};
	uint8_t k = byte(in);
	int fds[2];
	unsigned nfds = q.ask.question == VB_XRC_OPEN || k & 1 ? some_descriptors(in, i, fds) : 0;

	q.ask.attr.ah_attr.is_global = 1;
	q.ask.attr.ah_attr.port_num = 1;
	q.ask.attr.ah_attr.grh.sgid_index = k & 2 ? 1 : byte(in);
	if (k & 4)
		disturb(in, &q.ask, sizeof(q.ask));
	send_with(openers[i].fd, &q, k & 8 ? byte(in) * 256u % sizeof(q) : sizeof(q.ask), fds, nfds);
	for (unsigned n = 0; n < nfds; n++)
		close(fds[n]);
	openers[i].asked++;
	if (k & 16)
		hear_answers(i);
}

/* What the target's own program does meanwhile. */
static void change_target(struct input *in)
{
	struct ibv_qp_attr a = {.qp_state = byte(in) & 1 ? IBV_QPS_RESET : IBV_QPS_ERR};

	ibv_modify_qp(target, &a, IBV_QP_STATE);
	vb_async_raise(vb_ctx(ctx), byte(in) & 1 ? IBV_EVENT_QP_FATAL : IBV_EVENT_COMM_EST, vb_qp_real(vb_qp(target)));
}

static void openers_act(struct input *in)
{
	for (unsigned steps = byte(in) % 32; steps && in->left; steps--) {
		unsigned what = byte(in) % 8, i = byte(in) % OPENERS;

		if (what == 7) {
			opener_ends(i);
			continue;
		}
		if (what == 6)
			change_target(in);
		if (openers[i].fd < 0)
			openers[i].fd = dial_owner();
		if (what < 6)
			ask(in, i);
	}
	for (unsigned i = 0; i < OPENERS; i++) {
		if (openers[i].fd >= 0 && byte(in) & 1)
			hear_answers(i);
		opener_ends(i);
	}
}

/* One that keeps to the rules is served. */
static void honest_opener(void)
{
	struct vb_xrc_ask q = {.version = VB_XRC_FAR_VERSION, .question = VB_XRC_OPEN, .qpn = target->qp_num, .id = id};
	struct vb_xrc_answer a;
	int fd = dial_owner(), pair[2];

	assert(!socketpair(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC | SOCK_NONBLOCK, 0, pair));
	for (unsigned n = 0; n < 3; n++) {
		q.question = n == 0 ? VB_XRC_OPEN : n == 1 ? VB_XRC_QUERY : VB_XRC_CLOSE;
		send_with(fd, &q, sizeof(q), &pair[1], n == 0);
		wait_for(fd);
		assert(recv(fd, &a, sizeof(a), 0) == sizeof(a) && !a.err);
	}
	close(fd);
	close(pair[0]);
	close(pair[1]);
}

/* --- an owner, in a thread --- */

#define ANSWERS 3

/* What it says to one question: answers, events, the end of the connection. */
struct reply {
	struct vb_xrc_answer answer[ANSWERS];
	uint8_t n, events, lengths;
	uint32_t event[8];
	bool ends, hangs_up;
};

static struct {
	int listener, fd, events;
	pthread_mutex_t lock;
	struct reply next;
} owner = {.fd = -1, .events = -1, .lock = PTHREAD_MUTEX_INITIALIZER};

static uint32_t their_lane(void)
{
	return (node->lane + 1) % VB_LANE_COUNT;
}

static void owner_close(int *fd)
{
	if (*fd >= 0)
		close(*fd);
	*fd = -1;
}

static void owner_answers(const struct reply *r)
{
	for (unsigned i = 0; i < r->n; i++)
		send(owner.fd, &r->answer[i], r->lengths & 1 << i ? i * 7 : sizeof(r->answer[i]),
		     MSG_NOSIGNAL | MSG_DONTWAIT);
	for (unsigned i = 0; i < r->events && owner.events >= 0; i++)
		send(owner.events, &r->event[i % 8], r->lengths & 8 ? i % 8 : 4, MSG_NOSIGNAL | MSG_DONTWAIT);
	if (r->ends || !r->n) /* silence would be waited for */
		owner_close(&owner.fd);
	if (r->hangs_up)
		owner_close(&owner.events);
}

/* Keeps the descriptor of a question. False: the opener has closed the connection. */
static bool owner_hears(void)
{
	_Alignas(struct cmsghdr) uint8_t control[CMSG_SPACE(sizeof(int))];
	struct vb_xrc_ask q;
	struct iovec iov = {&q, sizeof(q)};
	struct msghdr msg = {
	        .msg_iov = &iov, .msg_iovlen = 1, .msg_control = control, .msg_controllen = sizeof(control)};

	if (recvmsg(owner.fd, &msg, MSG_CMSG_CLOEXEC) != sizeof(q))
		return false;
	struct cmsghdr *m = CMSG_FIRSTHDR(&msg);

	if (m) {
		owner_close(&owner.events);
		memcpy(&owner.events, CMSG_DATA(m), sizeof(int));
	}
	return true;
}

static void *owner_main(void *arg)
{
	for (;;) {
		struct pollfd p[2] = {{.fd = owner.listener, .events = POLLIN}, {.fd = owner.fd, .events = POLLIN}};

		if (poll(p, 2, -1) <= 0)
			continue;
		if (p[1].revents && owner_hears()) {
			pthread_mutex_lock(&owner.lock);
			owner_answers(&owner.next);
			pthread_mutex_unlock(&owner.lock);
		} else if (p[1].revents || p[0].revents) { /* there is one opener at a time */
			owner_close(&owner.fd);
			owner_close(&owner.events);
		}
		if (p[0].revents)
			owner.fd = accept4(owner.listener, NULL, NULL, SOCK_CLOEXEC);
	}
	return NULL;
}

static void prepare_reply(struct input *in, bool good)
{
	struct reply r = {.n = 1};

	if (!good) {
		r.n = byte(in) % (ANSWERS + 1);
		r.lengths = byte(in) & byte(in);
		r.ends = byte(in) > 200;
		r.hangs_up = byte(in) > 200;
	}
	r.events = byte(in);
	for (unsigned i = 0; i < 8; i++)
		r.event[i] = byte(in) < 200 ? byte(in) % 24 : word(in);
	for (unsigned i = 0; i < ANSWERS; i++) {
		uint8_t k = byte(in);

		r.answer[i].err = good || k < 160 ? 0 : k < 200 ? k - 160 : (int32_t)word(in);
		r.answer[i].state = k & 1 ? IBV_QPS_RTR : IBV_QPS_INIT;
		r.answer[i].attr = (struct ibv_qp_attr){.qp_state = IBV_QPS_INIT, .port_num = 1, .path_mtu = 3};
		if (k & 2)
			disturb(in, &r.answer[i].attr, sizeof(r.answer[i].attr));
		if (k & 4 && !good)
			r.answer[i].state = word(in);
	}
	pthread_mutex_lock(&owner.lock);
	owner.next = r;
	pthread_mutex_unlock(&owner.lock);
}

/* --- the program that opened its target --- */

static bool is_error(int err)
{
	return err > 0 && err < 4096;
}

static void take_events(void)
{
	struct ibv_async_event ev;

	for (int n = 0; !ibv_get_async_event(ctx, &ev); n++) {
		assert(n < 100); /* each is queued once */
		assert((unsigned)ev.event_type <= IBV_EVENT_WQ_FATAL);
		ibv_ack_async_event(&ev);
	}
}

static void query_target(struct ibv_qp *qp)
{
	struct ibv_qp_init_attr init;
	struct ibv_qp_attr a;
	int err = ibv_query_qp(qp, &a, IBV_QP_STATE, &init);

	assert(!err || is_error(err));
	if (err)
		return;
	assert((unsigned)a.qp_state <= IBV_QPS_ERR && (unsigned)a.cur_qp_state <= IBV_QPS_ERR);
	assert((unsigned)a.path_mtu <= IBV_MTU_4096 && (unsigned)a.path_mig_state <= IBV_MIG_ARMED);
	assert(a.dest_qp_num <= 0xffffff && a.rq_psn <= 0xffffff && a.sq_psn <= 0xffffff && a.port_num <= 1);
	assert(init.qp_type == IBV_QPT_XRC_RECV && !init.send_cq && !init.recv_cq && !init.srq);
}

static void program_acts(struct input *in)
{
	struct ibv_qp_open_attr a = {.comp_mask = IBV_QP_OPEN_ATTR_NUM | IBV_QP_OPEN_ATTR_XRCD | IBV_QP_OPEN_ATTR_TYPE,
	                             .qp_num = their_lane() << VB_LANE_SHIFT | 5,
	                             .xrcd = xrcd,
	                             .qp_type = IBV_QPT_XRC_RECV};

	prepare_reply(in, byte(in) < 200);
	errno = 0;
	struct ibv_qp *qp = ibv_open_qp(ctx, &a);

	assert(qp || is_error(errno));
	for (unsigned steps = byte(in) % 16; qp && steps && in->left; steps--) {
		struct ibv_qp_attr attr = {.qp_state = byte(in) % 8};

		prepare_reply(in, false);
		if (byte(in) & 1) {
			int err = ibv_modify_qp(qp, &attr, IBV_QP_STATE);

			assert(!err || is_error(err));
		} else {
			query_target(qp);
		}
		assert((unsigned)qp->state <= IBV_QPS_ERR);
		if (byte(in) & 1)
			take_events();
	}
	prepare_reply(in, false);
	if (qp)
		assert(!ibv_destroy_qp(qp));
	take_events();
}

/* --- all of it --- */

static void open_adapter(void)
{
	ctx = open_on_lo();
	node = vb_ctx(ctx)->node;
	dir_fd = vb_xrc_dir_open();
	assert(dir_fd >= 0);
}

static void make_target(void)
{
	char path[64];

	snprintf(path, sizeof(path), "%s/domain", runtime);
	file = open(path, O_CREAT | O_RDWR | O_CLOEXEC, 0600);
	struct ibv_xrcd_init_attr x = {
	        .comp_mask = IBV_XRCD_INIT_ATTR_FD | IBV_XRCD_INIT_ATTR_OFLAGS, .fd = file, .oflags = O_CREAT};
	struct ibv_qp_init_attr_ex a = {.qp_type = IBV_QPT_XRC_RECV, .comp_mask = IBV_QP_INIT_ATTR_XRCD};

	a.xrcd = xrcd = ibv_open_xrcd(ctx, &x);
	assert(xrcd);
	target = ibv_create_qp_ex(ctx, &a);
	assert(target && vb_xrc_id_of(vb_xrcd(xrcd)->domain, &id));
}

static void start_owner(void)
{
	struct sockaddr_un sun;
	pthread_t thread;

	owner.listener = socket(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0);
	vb_xrc_socket_of(&sun, dir_fd, their_lane());
	assert(owner.listener >= 0 && !bind(owner.listener, (struct sockaddr *)&sun, sizeof(sun)) &&
	       !listen(owner.listener, 8) && !pthread_create(&thread, NULL, owner_main, NULL));
	for (unsigned i = 0; i < OPENERS; i++)
		openers[i].fd = openers[i].events = -1;
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
	struct input in = {data, size};

	if (!ctx) {
		open_adapter();
		make_target();
		start_owner();
	}
	while (in.left) {
		if (byte(&in) & 1) {
			openers_act(&in);
			honest_opener();
		} else {
			program_acts(&in);
		}
	}
	take_events();
	return 0;
}
