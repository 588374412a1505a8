// stream.c - two programs whose queue pairs use a TCP connection made by the test
// follows: RFC 5044
// see: path/iwarp/iwarp.h
// SPDX-License-Identifier: MIT
#include "stream.h"

#include <arpa/inet.h>
#include <netinet/in.h>
#include <sys/socket.h>

#include "core/device.h"
#include "core/verbs.h"

struct stream how;
_Atomic int closed_calls, closed_status = -1;

/* Both send a number. The side with the higher one connects, and the other listens. */
int connection(int fd, bool *initiator)
{
	uint32_t mine = (uint32_t)getpid(), its;
	struct sockaddr_in at = {.sin_family = AF_INET};
	socklen_t len = sizeof(at);
	int s = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);

	CHECK(s >= 0);
	inet_pton(AF_INET, how.here ? how.here : "127.0.0.1", &at.sin_addr);
	CHECK(!bind(s, (struct sockaddr *)&at, sizeof(at)));
	tell(fd, &mine, sizeof(mine));
	hear(fd, &its, sizeof(its));
	*initiator = mine > its;
	if (*initiator) {
		hear(fd, &at, sizeof(at));
		CHECK(!connect(s, (struct sockaddr *)&at, sizeof(at)));
		return s;
	}
	CHECK(!listen(s, 1) && !getsockname(s, (struct sockaddr *)&at, &len));
	tell(fd, &at, sizeof(at));
	int c = accept4(s, NULL, NULL, SOCK_CLOEXEC);

	CHECK(c >= 0);
	close(s);
	return c;
}

static void on_closed(void *own, int status)
{
	closed_status = status;
	closed_calls++;
}

void stream_join(struct link *l, int fd)
{
	bool initiator;
	int s = connection(fd, &initiator);
	struct vb_iwarp_stream st = {
	        .fd = s,
	        .initiator = initiator,
	        .crc = how.crc,
	        .markers_in = how.markers,
	        .markers_out = how.markers,
	        .waits_for_initiator = how.hold && !initiator,
	        .ird = (uint16_t)(how.ird ? how.ird : 16),
	        .ord = (uint16_t)(how.ord ? how.ord : 16),
	        .send_rtr = initiator ? how.rtr : VB_IW_RTR_NONE,
	        .expect_rtr = initiator ? VB_IW_RTR_NONE : how.rtr,
	        .closed = on_closed,
	        .own = l,
	};

	l->it.gid = l->d->gid;
	SAME(vb_iwarp_attach(vb_qp(l->qp), &st), 0);
	SAME(state_of(l->qp), IBV_QPS_RTS);
	meet_up(fd);
}

void stream_open(struct link *l, struct dev *d, const struct conf *c, int fd)
{
	link_make(l, d, c);
	stream_join(l, fd);
}

void open_iwarp(struct dev *d)
{
	setenv("VERBENA_DEVICES", "iwarp:lo", 1);
	dev_open(d);
	CHECK(vb_ctx(d->ctx)->dev->iwarp);
}

void open_side(struct dev *d, struct link *l, struct mem *m, size_t n)
{
	open_iwarp(d);
	mem_make(m, d, n);
	link_make(l, d, &(struct conf){0});
}

void wait_closed(int calls)
{
	for (int i = 0; i < PATIENCE && closed_calls < calls; i++)
		sleep_ms(1);
	SAME(closed_calls, calls);
}

/* The other process reports its write, which ThreadSanitizer cannot see. The progress thread, which has stored it, held
 * this lock meanwhile. */
static void has_been_placed(struct dev *d)
{
	struct vb_node *node = vb_ctx(d->ctx)->node;

	vb_lock(&node->progress);
	vb_unlock(&node->progress);
}

void idle_peer(int fd, void *arg)
{
	struct dev d;
	struct link l;
	struct mem m;
	char c;

	open_side(&d, &l, &m, 8 << 20);
	mem_tell(&m, fd);
	stream_join(&l, fd);
	hear(fd, &c, 1);
	has_been_placed(&d);
	CHECK(holds(m.p, 8 << 20, 9));
	link_end(&l);
}
