// rs_accept.c - listening: the service thread accepts, the program takes established connections from a queue
// follows: rdma_cm(7), rsocket(7); rdma-core docs/rsocket ("Connection Establishment")
// SPDX-License-Identifier: MIT
#include "rsocket/rs.h"
#include "util/units.h"

#include <string.h>
#include <sys/resource.h>

/*
 * A connection has four descriptors and its buffers before the program accepts it, and its request may be forged. So
 * the unconfirmed connections of a listener, and those that wait for accept(), may each use no more than this share of
 * the descriptors. If the share of the unconfirmed is used up, connections of the source with the most are dropped
 * first, but not before the peer has had time to answer. A source with few gets more time: its host may be busy.
 */
enum { SHARE_OF_FDS = 24, SHARE_MIN = 8, ANSWER_MS = 250, FEW = 4, FEW_ANSWER_MS = 3000, HALF_OPEN_MS = 30000 };
enum { LOOK_FULL_MS = 50, LOOK_MS = 5000 };

static int share_of_fds(void)
{
	struct rlimit fds;

	return !getrlimit(RLIMIT_NOFILE, &fds) && fds.rlim_cur / SHARE_OF_FDS > SHARE_MIN
	               ? (int)(fds.rlim_cur / SHARE_OF_FDS)
	               : SHARE_MIN;
}

static int accept_share(const struct rsocket *listener)
{
	int most = share_of_fds();

	return listener->backlog < most ? listener->backlog : most;
}

/* Unlike those that wait for accept(), a few may be unconfirmed if the backlog is shorter. */
static int half_open_share(const struct rsocket *listener)
{
	int share = accept_share(listener);

	return share > SHARE_MIN ? share : SHARE_MIN;
}

static bool is_full_of_half_open(const struct rsocket *listener)
{
	return listener->half_count >= half_open_share(listener);
}

/* Stops or resumes taking requests. Requests that are not taken wait in librdmacm, where they use no descriptor. The
 * listener's lock is held. */
static void pause_or_go_on(struct rsocket *listener)
{
	bool full = is_full_of_half_open(listener), pause = full || listener->accept_count >= accept_share(listener);

	if (pause == listener->paused || !listener->cm || listener->closed)
		return;
	listener->paused = pause;
	rs_service_pause(listener->cm->fd, pause, listener, RS_WATCH_CM);
	if (full)
		rs_timer_set(listener, LOOK_FULL_MS);
}

int rs_stream_listen(struct rsocket *rs, int backlog)
{
	union rs_addr any = {.sa.sa_family = (sa_family_t)rs->domain};
	int err = 0;

	if (rs->state == RS_INIT)
		err = rs_stream_bind(rs, &any);
	if (!err && rs->state == RS_LISTENING)
		rs->deaf = false;
	if (err || rs->state == RS_LISTENING)
		return err;
	if (rs->state != RS_BOUND)
		return EINVAL;
	rs->backlog = backlog < 1 ? 1 : backlog > 4096 ? 4096 : backlog;
	if (rdma_listen(rs->id, rs->backlog))
		return errno;
	rs->state = RS_LISTENING;
	return rs_service_add(rs, RS_WATCH_CM, rs->cm->fd);
}

/* Gives the new connection an event channel of its own, whose descriptor is that of the rsocket. */
static int adopt_id(struct rsocket *rs, struct rdma_cm_id *id)
{
	rs->cm = rdma_create_event_channel();
	if (!rs->cm)
		return errno;
	if (rdma_migrate_id(id, rs->cm))
		return errno;
	id->context = rs;
	rs->id = id;
	memcpy(&rs->peer, rdma_get_peer_addr(id), sizeof(rs->peer));
	return rs_publish(rs, rs->cm->fd);
}

static int accept_request(struct rsocket *rs, struct rdma_conn_param *param, const struct rs_conn *peer)
{
	uint8_t data[RS_CONN_LEN];
	int err = rs_ep_create(rs);

	if (err)
		return err;
	rs_ep_peer(rs, peer);
	rs_ep_conn(rs, data);
	param->private_data = data;
	param->private_data_len = sizeof(data);
	rs->state = RS_ACCEPTING;
	rs->can_read = rs->can_write = true;
	err = rs_service_add(rs, RS_WATCH_CM, rs->cm->fd);
	if (!err && rdma_accept(rs->id, param))
		err = errno;
	return err;
}

static struct rsocket *inherit_rsocket(struct rsocket *listener)
{
	struct rsocket *rs = rs_new(listener->type, listener->domain, &listener->config);

	if (!rs)
		return NULL;
	rs->fs_flags = listener->fs_flags;
	rs->fd_flags = listener->fd_flags;
	rs->keep_alive = listener->keep_alive;
	rs->keep_idle_s = listener->keep_idle_s;
	rs->no_delay = listener->no_delay;
	rs->linger_on = listener->linger_on;
	rs->linger_s = listener->linger_s;
	rs->listener_fd = listener->fd;
	rs->listener_serial = listener->serial;
	return rs;
}

static void drop_connection(struct rsocket *rs)
{
	rs->closed = true;
	rs_stream_close(rs);
	rs_put(rs);
}

/* Both are called with the listener's lock held. */
static void half_open(struct rsocket *listener, struct rsocket *rs)
{
	struct rsocket **at = &listener->half_head;

	while (*at)
		at = &(*at)->half_next;
	*at = rs;
	rs->half_next = NULL;
	rs->half_since = rs_now();
	if (!listener->half_count++)
		rs_timer_set(listener, LOOK_MS);
}

static void no_longer_half_open(struct rsocket *listener, struct rsocket *rs)
{
	struct rsocket **at = &listener->half_head;

	while (*at && *at != rs)
		at = &(*at)->half_next;
	if (!*at)
		return;
	*at = rs->half_next;
	listener->half_count--;
}

/* Service thread; the listener's cm_lock is held. */
void rs_request(struct rsocket *listener, struct rdma_cm_event *event)
{
	struct rdma_conn_param param = event->param.conn;
	struct rdma_cm_id *id = event->id;
	struct rsocket *rs = NULL;
	struct rs_conn peer;
	int err = EPROTO;

	if (!listener->deaf && rs_conn_decode(&peer, param.private_data, param.private_data_len)) {
		rs = inherit_rsocket(listener);
		err = rs ? 0 : ENOMEM;
	}
	rdma_ack_cm_event(event);
	if (!err)
		err = adopt_id(rs, id);
	if (!err) {
		/* No lock: only the service thread, which runs this, can reach the new rsocket. */
		err = accept_request(rs, &param, &peer);
	}
	if (err)
		rdma_reject(id, NULL, 0);
	if (err && (!rs || !rs->id))
		rdma_destroy_id(id);
	if (err && rs)
		drop_connection(rs);
	if (err)
		return;
	vb_mutex_lock(&listener->lock, VB_RANK_RS);
	half_open(listener, rs);
	pause_or_go_on(listener);
	vb_mutex_unlock(&listener->lock);
}

/* Called with the listener's lock held. */
static void queue_accepted(struct rsocket *listener, struct rsocket *rs)
{
	struct rsocket **at = &listener->accept_head;

	while (*at)
		at = &(*at)->accept_next;
	*at = rs;
	rs->accept_next = NULL;
	listener->accept_count++;
	rs_wake(listener);
}

/* Called by the service thread with the cm_lock of the new connection. ok: it is established; otherwise it has
 * failed. */
void rs_accepted(struct rsocket *rs, bool ok)
{
	struct rsocket *listener = rs_get_serial(rs->listener_fd, rs->listener_serial);
	bool taken = false;

	vb_mutex_lock(&rs->lock, VB_RANK_RS);
	rs_keep_alive_set(rs);
	if (ok)
		rs_process(rs);
	vb_mutex_unlock(&rs->lock);
	if (listener) {
		vb_mutex_lock(&listener->lock, VB_RANK_RS);
		no_longer_half_open(listener, rs);
		taken = ok && !listener->closed && !listener->deaf;
		if (taken)
			queue_accepted(listener, rs);
		pause_or_go_on(listener);
		vb_mutex_unlock(&listener->lock);
		rs_put(listener);
	}
	if (!taken)
		drop_connection(rs);
}

static unsigned from_same_host(const struct rsocket *listener, const struct rsocket *rs)
{
	union rs_addr a = rs->peer, b;
	unsigned n = 0;

	rs_addr_set_port(&a, 0);
	for (const struct rsocket *i = listener->half_head; i; i = i->half_next) {
		b = i->peer;
		rs_addr_set_port(&b, 0);
		n += rs_addr_equal(&a, &b);
	}
	return n;
}

/* The unconfirmed connection to drop, or NULL if none has waited long enough. The listener's lock is held. */
static struct rsocket *to_give_up(struct rsocket *listener, bool full)
{
	struct rsocket *victim = NULL;
	uint64_t now = rs_now();
	unsigned most = 0, n;

	for (struct rsocket *rs = listener->half_head; rs; rs = rs->half_next) {
		if (rs->half_since + VB_MS(HALF_OPEN_MS) <= now)
			return rs;
		if (!full || rs->half_since + VB_MS(ANSWER_MS) > now)
			break;
		n = from_same_host(listener, rs);
		if (n > most && (n > FEW || rs->half_since + VB_MS(FEW_ANSWER_MS) <= now)) {
			most = n;
			victim = rs;
		}
	}
	return victim;
}

/* Called with the listener's cm_lock held. */
void rs_half_open_look(struct rsocket *listener)
{
	struct rsocket *rs;
	bool full;

	vb_mutex_lock(&listener->lock, VB_RANK_RS);
	full = is_full_of_half_open(listener);
	while ((rs = to_give_up(listener, full && listener->half_count > half_open_share(listener) / 2))) {
		no_longer_half_open(listener, rs);
		vb_mutex_unlock(&listener->lock);
		drop_connection(rs);
		vb_mutex_lock(&listener->lock, VB_RANK_RS);
	}
	pause_or_go_on(listener);
	rs_timer_set(listener, is_full_of_half_open(listener) ? LOOK_FULL_MS : listener->half_count ? LOOK_MS : 0);
	vb_mutex_unlock(&listener->lock);
}

static bool accept_is_settled(struct rsocket *rs)
{
	return rs->accept_head || rs->closed || rs->deaf;
}

struct rsocket *rs_stream_accept(struct rsocket *rs, int flags)
{
	struct rs_deadline until = rs_deadline_tv(&rs->recv_timeout);
	struct rsocket *got = NULL;
	int err;

	vb_mutex_lock(&rs->lock, VB_RANK_RS);
	if (rs->state != RS_LISTENING)
		err = EINVAL;
	else
		err = rs_wait_soft(rs, accept_is_settled, rs_nonblocking(rs, flags), &until, NULL);
	if (!err && rs->closed)
		err = EBADF;
	if (!err && rs->deaf)
		err = EINVAL;
	if (!err) {
		got = rs->accept_head;
		rs->accept_head = got->accept_next;
		got->accept_next = NULL;
		rs->accept_count--;
		pause_or_go_on(rs);
	}
	vb_mutex_unlock(&rs->lock);
	errno = err;
	return got;
}

/* A listener is closed or shut down: drops the connections in its queue, which will not be accepted. */
void rs_accept_flush(struct rsocket *listener)
{
	struct rsocket *rs, *next;

	vb_mutex_lock(&listener->lock, VB_RANK_RS);
	rs = listener->accept_head;
	listener->accept_head = NULL;
	listener->accept_count = 0;
	pause_or_go_on(listener);
	vb_mutex_unlock(&listener->lock);
	for (; rs; rs = next) {
		next = rs->accept_next;
		rclose(rs->fd);
	}
}
