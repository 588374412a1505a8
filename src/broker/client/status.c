// status.c - asks a running broker for its status, without attaching
// SPDX-License-Identifier: MIT
#include <errno.h>
#include <poll.h>
#include <stddef.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

#include "broker/proto/proto.h"
#include "broker/proto/runtime.h"
#include "broker/client/client.h"

#define STATUS_MS 2000

union answer {
	struct vb_msg_head head;
	struct vb_msg_status_part part;
	struct vb_msg_status_end end;
	struct vb_msg_error error;
};

static int find_broker_once(int *sock)
{
	struct vb_runtime rt;
	int err = vb_runtime_own(&rt);

	if (!err)
		err = vb_runtime_connect(&rt, sock);
	if (err && vb_runtime_root(&rt) && !vb_runtime_connect(&rt, sock))
		err = 0;
	return err;
}

/* EAGAIN: the broker's backlog is full. */
static int wait_for_broker(int *sock)
{
	int64_t until = vb_broker_now_ms() + STATUS_MS;
	int err;

	while ((err = find_broker_once(sock)) == EAGAIN && vb_broker_now_ms() < until)
		poll(NULL, 0, 5);
	return err;
}

static int add_lanes(struct vb_broker_report *r, const struct vb_msg_status_part *m)
{
	if (m->n > VB_STATUS_CHUNK ||
	    m->head.len != offsetof(struct vb_msg_status_part, lanes) + m->n * sizeof(m->lanes[0]))
		return EPROTO;
	for (uint32_t i = 0; i < m->n; i++) {
		if (r->nlanes == VB_LANE_COUNT)
			return EPROTO;
		struct vb_broker_lane *l = &r->lanes[r->nlanes++];
		*l = (struct vb_broker_lane){
		        .lane = m->lanes[i].lane,
		        .pid = m->lanes[i].pid,
		        .uid = m->lanes[i].uid,
		        .ngids = m->lanes[i].ngids,
		        .reserved = m->lanes[i].reserved,
		};
		memcpy(l->comm, m->lanes[i].comm, sizeof(l->comm) - 1);
	}
	return 0;
}

/* Returns 0 or an errno. *done becomes true with the last message. */
static int add_message(struct vb_broker_report *r, const union answer *a, size_t len, bool *done)
{
	if (len < sizeof(a->head) || a->head.len != len)
		return EPROTO;
	switch (a->head.type) {
	case VB_MSG_STATUS_PART:
		return add_lanes(r, &a->part);
	case VB_MSG_STATUS_END:
		if (len != sizeof(a->end))
			return EPROTO;
		r->counters = (struct vb_broker_counters){
		        .attaches = a->end.attaches,
		        .refused = a->end.refused,
		        .bad_messages = a->end.bad_messages,
		        .deaths = a->end.deaths,
		        .meets = a->end.meets,
		        .introductions = a->end.introductions,
		};
		*done = true;
		return 0;
	case VB_MSG_ERROR:
		return len == sizeof(a->error) && a->error.err > 0 ? a->error.err : EPROTO;
	default:
		return 0;
	}
}

static int read_report(int sock, struct vb_broker_report *r)
{
	int64_t until = vb_broker_now_ms() + STATUS_MS;
	union answer a;
	bool done = false;
	int err = 0;

	while (!err && !done) {
		ssize_t n = recv(sock, &a, sizeof(a), MSG_DONTWAIT);
		if (n > 0) {
			err = add_message(r, &a, (size_t)n, &done);
			continue;
		}
		if (n == 0)
			return ECONNRESET;
		int64_t left = until - vb_broker_now_ms();
		struct pollfd p = {.fd = sock, .events = POLLIN};
		if (left <= 0)
			return ETIMEDOUT;
		if (errno != EAGAIN && errno != EINTR && errno != ECONNRESET)
			return errno;
		poll(&p, 1, (int)left);
	}
	return err;
}

int vb_broker_status(struct vb_broker_report *report)
{
	struct vb_msg_head ask = {.type = VB_MSG_STATUS, .version = VB_PROTO_VERSION, .len = sizeof(ask)};
	struct ucred cred = {0};
	socklen_t len = sizeof(cred);
	int sock, err = wait_for_broker(&sock);

	if (err)
		return err;
	memset(report, 0, sizeof(*report));
	getsockopt(sock, SOL_SOCKET, SO_PEERCRED, &cred, &len);
	report->broker_pid = cred.pid;
	report->broker_uid = cred.uid;
	if (send(sock, &ask, sizeof(ask), MSG_DONTWAIT | MSG_NOSIGNAL) < 0)
		err = errno;
	if (!err)
		err = read_report(sock, report);
	close(sock);
	return err;
}
