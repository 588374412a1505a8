// sharers.c - programs that share a socket meet, because they pass datagrams to multicast groups on to each other
// follows: broker/proto/proto.h (vb_lane_socket); epoll(7)
// SPDX-License-Identifier: MIT
#include <sys/epoll.h>
#include <unistd.h>

#include "broker/server/lanes.h"
#include "broker/server/session.h"

/* Has it flushed when the event loop gets there: the caller may be in a flush itself. */
static void flush_soon(struct vb_broker *b, struct vb_session *s)
{
	struct epoll_event ev = {.events = s->interest | EPOLLOUT,
	                         .data.u64 = vb_source_key(VB_SRC_SOCK, s->slot, s->gen)};

	if (s->full || epoll_ctl(b->epoll_fd, EPOLL_CTL_MOD, s->sock, &ev))
		return;
	s->interest = ev.events;
	s->full = true;
}

static bool may_share(const struct vb_session *s)
{
	return s && s->lane && !s->foreign && !s->elsewhere;
}

bool vb_session_introduce_sharers(struct vb_broker *b, struct vb_session *s, bool ends)
{
	bool split = geteuid() == 0;
	uint32_t n = b->hold.n;
	bool met = false;

	if (n < VB_FEWEST_SOCKETS(split) || n == VB_LANE_COUNT || !may_share(s))
		return false;
	for (uint32_t lane = 1; lane < VB_LANE_COUNT; lane++) {
		struct vb_session *other = b->holder[lane];

		if (other == s || !may_share(other) || !(s->in_groups || other->in_groups) ||
		    vb_lane_socket(n, split, lane) != vb_lane_socket(n, split, s->lane))
			continue;
		vb_lane_set_add(&s->introduce, lane);
		vb_lane_set_add(&other->introduce, s->lane);
		if (ends)
			vb_lane_set_add(&other->introduce, lane);
		flush_soon(b, other);
		met = true;
	}
	return met;
}
