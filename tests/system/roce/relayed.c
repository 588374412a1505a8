// relayed.c - the channel of a relayed lane, when it ends, and a lane that cannot be opened
// follows: verbena-broker(8), "Users"
// see: src/path/roce/roce.h
// SPDX-License-Identifier: MIT
#include "stranger.h"

#include <fcntl.h>
#include <stddef.h>
#include <sys/epoll.h>
#include <sys/eventfd.h>
#include <sys/mman.h>
#include <sys/socket.h>

#include "broker/proto/proto.h"
#include "core/device.h"
#include "core/handle.h"
#include "core/mcast.h"
#include "core/verbs.h"
#include "engine/local/local.h"
#include "path/roce/roce.h"

static bool no_memory;

void *__real_mmap64(void *addr, size_t len, int prot, int flags, int fd, off_t off);
void *__wrap_mmap64(void *addr, size_t len, int prot, int flags, int fd, off_t off);

void *__wrap_mmap64(void *addr, size_t len, int prot, int flags, int fd, off_t off)
{
	return no_memory ? MAP_FAILED : __real_mmap64(addr, len, prot, flags, fd, off);
}

/* What the broker is told of groups. */
static struct {
	const struct vb_node *node;
	unsigned joined, left;
	bool locked; /* a message was sent under a spin lock */
	int err;
} told;

int __wrap_vb_broker_post(struct vb_broker_client *c, uint8_t type, void *msg, size_t len, bool lossy);

int __wrap_vb_broker_post(struct vb_broker_client *c, uint8_t type, void *msg, size_t len, bool lossy)
{
	const struct vb_msg_roce_group *m = msg;

	SAME(type, VB_MSG_ROCE_GROUP);
	CHECK(len == sizeof(*m) && !lossy && !c);
	told.joined += m->join;
	told.left += !m->join;
	told.locked |= atomic_load(&told.node->progress.held);
	return told.err;
}

/* As much of a node as receives; its broker is this test. */
struct host {
	struct vb_node node;
	struct vb_io io;
};

static struct host *make_host(void)
{
	struct host *h = calloc(1, sizeof(*h));

	CHECK(h != NULL);
	h->node.io = &h->io;
	h->io.epoll_fd = epoll_create1(EPOLL_CLOEXEC);
	h->io.wake_fd = eventfd(0, EFD_NONBLOCK | EFD_CLOEXEC);
	pthread_mutex_init(&h->io.meet_lock, NULL);
	pthread_mutex_init(&h->node.mcast_lock, NULL);
	vb_lock_init(&h->node.progress, VB_RANK_PROGRESS);
	vb_lock_init(&h->io.questions_lock, VB_RANK_QUESTIONS);
	pthread_cond_init(&h->io.meet_cond, NULL);
	h->io.roce = vb_roce_sockets_new(&h->node);
	CHECK(h->io.roce != NULL);
	return h;
}

/* The keeper's end of the channel. */
static int relay_to(struct host *h)
{
	int pair[2];

	CHECK(!socketpair(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC | SOCK_NONBLOCK, 0, pair));
	vb_roce_answered(&h->node,
	                 &(struct vb_roce_grant){.lane_fd = pair[1], .lifeline_fd = -1, .relayed = true, .nlanes = 1});
	SAME(h->io.roce->err, 0);
	return pair[0];
}

static void a_channel_that_has_ended_is_read_once(void)
{
	struct host *h = make_host();
	int keeper = relay_to(h);
	char byte = 0;

	SAME(vb_roce_poll(&h->node), 0);
	close(keeper);
	CHECK(vb_roce_poll(&h->node) > 0);
	CHECK(vb_roce_lost_at(&h->node) != 0);
	for (int i = 0; i < 10; i++)
		SAME(vb_roce_poll(&h->node), 0);
	keeper = relay_to(h);
	SAME(vb_roce_lost_at(&h->node), 0);
	SAME(send(keeper, &byte, 1, 0), 1);
	SAME(vb_roce_poll(&h->node), 1);
	close(keeper);
	vb_roce_sockets_free(h->io.roce);
}

static bool is_open(int fd)
{
	return fcntl(fd, F_GETFD) >= 0;
}

static void a_lane_that_cannot_be_opened_leaves_no_descriptor(void)
{
	struct host *h = make_host();
	struct vb_roce_grant g = {.nlanes = 1};
	int pipe_fd[2];

	CHECK(!pipe(pipe_fd));
	g.lane_fd = dup(h->io.wake_fd);
	g.lifeline_fd = pipe_fd[1];
	no_memory = true;
	vb_roce_answered(&h->node, &g);
	no_memory = false;
	SAME(h->io.roce->err, ENOMEM);
	CHECK(!is_open(g.lane_fd) && !is_open(g.lifeline_fd));
	CHECK(!pipe(pipe_fd)); /* the next has both again */
	g.lane_fd = dup(h->io.wake_fd);
	g.lifeline_fd = pipe_fd[1];
	vb_roce_answered(&h->node, &g);
	SAME(h->io.roce->err, 0);
	CHECK(is_open(g.lane_fd) && is_open(g.lifeline_fd));
	vb_roce_sockets_free(h->io.roce);
	CHECK(!is_open(g.lane_fd) && !is_open(g.lifeline_fd));
}

/* The broker client has a mutex, which no thread may take while others spin for a lock that it holds. */
static void the_broker_is_told_of_groups_under_no_spin_lock(void)
{
	static const union ibv_gid group = {.raw = {[10] = 0xff, 0xff, 239, 1, 2, 3}};
	struct host *h = make_host();
	struct vb_device dev = {.ifindex = 1};
	struct vb_context ctx = {.dev = &dev};
	struct vb_qp qp = {.node = &h->node, .type = IBV_QPT_UD, .qp = {.context = &ctx.vctx.context}}, other;
	int first = relay_to(h), second;

	told.node = &h->node;
	qp.made = VB_MADE(qp.qp);
	other = qp;
	told.err = ENOMEM;
	SAME(vb_attach_mcast(&qp.qp, &group, 0), ENOMEM);
	told.err = ENOTCONN;
	SAME(vb_attach_mcast(&qp.qp, &group, 0), EAGAIN);
	CHECK(!h->node.mcasts && !qp.mcasts);
	told.err = told.joined = 0;
	SAME(vb_attach_mcast(&qp.qp, &group, 0), 0);
	SAME(vb_attach_mcast(&qp.qp, &group, 0), 0);
	SAME(vb_attach_mcast(&other.qp, &group, 0), 0);
	SAME(told.joined, 1);
	close(first);
	second = relay_to(h); /* another keeper does not know of the group */
	SAME(told.joined, 3);
	vb_roce_reattached(&h->node); /* nor does another broker */
	SAME(told.joined, 5);
	SAME(vb_detach_mcast(&qp.qp, &group, 0), 0);
	SAME(told.left, 0);
	SAME(vb_detach_mcast(&other.qp, &group, 0), 0);
	SAME(told.left, 1);
	SAME(vb_detach_mcast(&other.qp, &group, 0), EINVAL);
	CHECK(!told.locked);
	close(second);
	vb_roce_sockets_free(h->io.roce);
}

int main(int argc, char **argv)
{
	static const struct test tests[] = {
	        {"a channel that has ended is read once", a_channel_that_has_ended_is_read_once},
	        {"a lane that cannot be opened leaves no descriptor",
	         a_lane_that_cannot_be_opened_leaves_no_descriptor},
	        {"the broker is told of groups under no spin lock", the_broker_is_told_of_groups_under_no_spin_lock},
	};

	return RUN_TESTS(argc, argv, tests);
}
