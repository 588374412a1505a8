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

#include "engine/local/local.h"
#include "path/roce/roce.h"

static bool no_memory;

void *__real_mmap64(void *addr, size_t len, int prot, int flags, int fd, off_t off);
void *__wrap_mmap64(void *addr, size_t len, int prot, int flags, int fd, off_t off);

void *__wrap_mmap64(void *addr, size_t len, int prot, int flags, int fd, off_t off)
{
	return no_memory ? MAP_FAILED : __real_mmap64(addr, len, prot, flags, fd, off);
}

/* The receiving part of a node; the test plays the broker. */
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
	CHECK_INT(h->io.roce->err, 0);
	return pair[0];
}

static void a_channel_that_has_ended_is_read_once(void)
{
	struct host *h = make_host();
	int keeper = relay_to(h);
	char byte = 0;

	CHECK_INT(vb_roce_poll(&h->node), 0);
	close(keeper);
	CHECK(vb_roce_poll(&h->node) > 0);
	CHECK(vb_roce_lost_at(&h->node) != 0);
	for (int i = 0; i < 10; i++)
		CHECK_INT(vb_roce_poll(&h->node), 0);
	keeper = relay_to(h);
	CHECK_INT(vb_roce_lost_at(&h->node), 0);
	CHECK_INT(send(keeper, &byte, 1, 0), 1);
	CHECK_INT(vb_roce_poll(&h->node), 1);
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
	CHECK_INT(h->io.roce->err, ENOMEM);
	CHECK(!is_open(g.lane_fd) && !is_open(g.lifeline_fd));
	CHECK(!pipe(pipe_fd)); /* the next has both again */
	g.lane_fd = dup(h->io.wake_fd);
	g.lifeline_fd = pipe_fd[1];
	vb_roce_answered(&h->node, &g);
	CHECK_INT(h->io.roce->err, 0);
	CHECK(is_open(g.lane_fd) && is_open(g.lifeline_fd));
	vb_roce_sockets_free(h->io.roce);
	CHECK(!is_open(g.lane_fd) && !is_open(g.lifeline_fd));
}

int main(int argc, char **argv)
{
	static const struct test tests[] = {
	        {"a channel that has ended is read once", a_channel_that_has_ended_is_read_once},
	        {"a lane that cannot be opened leaves no descriptor",
	         a_lane_that_cannot_be_opened_leaves_no_descriptor},
	};

	return RUN_TESTS(argc, argv, tests);
}
