// rs_connect.c - the rdma_cm side of a stream: address, route, connection, disconnection
// follows: rdma_cm(7), rsocket(7); rdma-core docs/rsocket ("Connection Establishment")
// SPDX-License-Identifier: MIT
#include "rsocket/rs.h"

#include <string.h>
#include <unistd.h>

__attribute__((hot)) bool rs_opening(const struct rsocket *rs)
{
	return rs->state >= RS_RESOLVING_ADDR && rs->state <= RS_ACCEPTING;
}

static bool connect_settled(struct rsocket *rs)
{
	return !rs_opening(rs);
}

int rs_stream_open(struct rsocket *rs)
{
	rs->cm = rdma_create_event_channel();
	if (!rs->cm)
		return errno;
	if (rdma_create_id(rs->cm, &rs->id, rs, RDMA_PS_TCP)) {
		int err = errno;

		rdma_destroy_event_channel(rs->cm);
		rs->cm = NULL;
		return err;
	}
	return rs_publish(rs, rs->cm->fd);
}

int rs_stream_bind(struct rsocket *rs, const union rs_addr *addr)
{
	if (rs->state != RS_INIT)
		return EINVAL;
	if (rdma_bind_addr(rs->id, (struct sockaddr *)&addr->sa))
		return errno;
	rs->state = RS_BOUND;
	return 0;
}

static void refuse_connection(struct rsocket *rs, int err)
{
	vb_mutex_lock(&rs->lock, VB_RANK_RS);
	if (rs_opening(rs)) {
		rs->state = RS_REFUSED;
		rs->err = err ? err : ECONNREFUSED;
	}
	rs_wake(rs);
	vb_mutex_unlock(&rs->lock);
}

static void set_state(struct rsocket *rs, enum rs_state state)
{
	vb_mutex_lock(&rs->lock, VB_RANK_RS);
	rs->state = state;
	rs_wake(rs);
	vb_mutex_unlock(&rs->lock);
}

static enum rs_state state_of(struct rsocket *rs)
{
	enum rs_state state;

	vb_mutex_lock(&rs->lock, VB_RANK_RS);
	state = rs->state;
	vb_mutex_unlock(&rs->lock);
	return state;
}

static int resolve_addr(struct rsocket *rs)
{
	if (rdma_resolve_addr(rs->id, NULL, &rs->peer.sa, 1000 << rs->tries++))
		return errno;
	return 0;
}

static int resolve_route(struct rsocket *rs)
{
	if (rs->route) {
		if (rdma_set_option(rs->id, RDMA_OPTION_IB, RDMA_OPTION_IB_PATH, rs->route, rs->route_len))
			return errno;
		return 0;
	}
	return rdma_resolve_route(rs->id, 1000 << rs->tries++) ? errno : 0;
}

static int connect_now(struct rsocket *rs)
{
	uint8_t data[RS_CONN_LEN];
	struct rdma_conn_param param = {.private_data = data,
	                                .private_data_len = sizeof(data),
	                                .flow_control = 1,
	                                .retry_count = 7,
	                                .rnr_retry_count = 7};
	int err;

	vb_mutex_lock(&rs->lock, VB_RANK_RS);
	err = rs_ep_create(rs);
	if (!err)
		rs_ep_conn(rs, data);
	vb_mutex_unlock(&rs->lock);
	if (err)
		return err;
	/* Some iWARP adapters send an RDMA read as their first message. */
	param.initiator_depth = rs->message_sends;
	return rdma_connect(rs->id, &param) ? errno : 0;
}

static void connect_established(struct rsocket *rs, const struct rs_conn *peer)
{
	enum rs_state state = state_of(rs);

	if (state == RS_ACCEPTING) {
		set_state(rs, RS_CONNECTED);
		rs_accepted(rs, true);
		return;
	}
	if (state != RS_CONNECTING)
		return;
	if (!peer) {
		refuse_connection(rs, EPROTO);
		rdma_disconnect(rs->id);
		return;
	}
	vb_mutex_lock(&rs->lock, VB_RANK_RS);
	rs_ep_peer(rs, peer);
	rs->state = RS_CONNECTED;
	rs->can_read = rs->can_write = true;
	rs_keep_alive_set(rs);
	rs_process(rs);
	rs_wake(rs);
	vb_mutex_unlock(&rs->lock);
}

/* The peer's adapter has ended the connection. Its rsocket may have said so before. */
static void hung_up(struct rsocket *rs)
{
	if (state_of(rs) == RS_ACCEPTING) {
		rs_accepted(rs, false);
		return;
	}
	vb_mutex_lock(&rs->lock, VB_RANK_RS);
	if (rs->state == RS_CONNECTED) {
		rs_process(rs);
		if (rs->state == RS_CONNECTED)
			rs->state = RS_DISCONNECTED;
		rs->can_read = rs->can_write = false;
		rs_keep_alive_set(rs);
	}
	rs_wake(rs);
	vb_mutex_unlock(&rs->lock);
}

static void connect_failed(struct rsocket *rs, enum rdma_cm_event_type event, int status)
{
	int err = status < 0 ? -status : status;

	if (state_of(rs) == RS_ACCEPTING) {
		rs_accepted(rs, false);
		return;
	}
	if (event == RDMA_CM_EVENT_REJECTED)
		err = ECONNREFUSED; /* the status is the peer's reason, not an errno */
	else if (event == RDMA_CM_EVENT_UNREACHABLE)
		err = ETIMEDOUT;
	else if (err == ETIMEDOUT && rs->tries <= RS_CONNECT_TRIES) {
		err = event == RDMA_CM_EVENT_ADDR_ERROR ? resolve_addr(rs) : resolve_route(rs);
		if (!err)
			return;
	}
	refuse_connection(rs, err);
}

static void connect_step(struct rsocket *rs, enum rdma_cm_event_type event, int status, const struct rs_conn *peer)
{
	int err = 0;

	switch (event) {
	case RDMA_CM_EVENT_ADDR_RESOLVED:
		rs->tries = 0;
		set_state(rs, RS_RESOLVING_ROUTE);
		err = resolve_route(rs);
		break;
	case RDMA_CM_EVENT_ROUTE_RESOLVED:
		rs->tries = 0;
		set_state(rs, RS_CONNECTING);
		err = connect_now(rs);
		break;
	case RDMA_CM_EVENT_ESTABLISHED:
		connect_established(rs, peer);
		break;
	case RDMA_CM_EVENT_DISCONNECTED:
	case RDMA_CM_EVENT_DEVICE_REMOVAL:
		hung_up(rs);
		break;
	case RDMA_CM_EVENT_ADDR_ERROR:
	case RDMA_CM_EVENT_ROUTE_ERROR:
	case RDMA_CM_EVENT_CONNECT_ERROR:
	case RDMA_CM_EVENT_UNREACHABLE:
	case RDMA_CM_EVENT_REJECTED:
		connect_failed(rs, event, status);
		break;
	default:
		break;
	}
	if (err)
		refuse_connection(rs, err);
}

static bool fd_is_readable(int fd)
{
	struct pollfd p = {.fd = fd, .events = POLLIN};

	return poll(&p, 1, 0) > 0;
}

void rs_cm_ready(struct rsocket *rs)
{
	enum rdma_cm_event_type event;
	struct rdma_cm_event *ev;
	struct rs_conn peer;
	bool known;
	int status;

	vb_mutex_lock(&rs->cm_lock, VB_RANK_RS_CM);
	while (rs->cm && !rs->paused && fd_is_readable(rs->cm->fd) && !rdma_get_cm_event(rs->cm, &ev)) {
		if (ev->event == RDMA_CM_EVENT_CONNECT_REQUEST) {
			rs_request(rs, ev);
			continue;
		}
		event = ev->event;
		status = ev->status;
		known = event == RDMA_CM_EVENT_ESTABLISHED &&
		        rs_conn_decode(&peer, ev->param.conn.private_data, ev->param.conn.private_data_len);
		rdma_ack_cm_event(ev);
		connect_step(rs, event, status, known ? &peer : NULL);
	}
	vb_mutex_unlock(&rs->cm_lock);
}

__attribute__((hot)) int rs_connected(struct rsocket *rs)
{
	switch (rs->state) {
	case RS_CONNECTED:
	case RS_DISCONNECTED:
	case RS_FAILED:
		return 0;
	case RS_REFUSED:
		return rs_error_of(rs, ENOTCONN);
	case RS_RESOLVING_ADDR:
	case RS_RESOLVING_ROUTE:
	case RS_CONNECTING:
	case RS_ACCEPTING:
		return EAGAIN;
	default:
		return ENOTCONN;
	}
}

static int begin_connect(struct rsocket *rs, const union rs_addr *addr)
{
	int err;

	if (rs_opening(rs))
		return EALREADY;
	if (rs->state == RS_LISTENING)
		return EOPNOTSUPP;
	if (rs->state == RS_REFUSED)
		return ECONNABORTED;
	if (rs->state >= RS_CONNECTED)
		return EISCONN;
	err = rs_service_add(rs, RS_WATCH_CM, rs->cm->fd);
	if (err)
		return err;
	rs->peer = *addr;
	rs->state = RS_RESOLVING_ADDR;
	err = resolve_addr(rs);
	if (err) {
		rs->state = RS_REFUSED;
		rs->err = err;
		return rs_error_of(rs, err);
	}
	return 0;
}

int rs_stream_connect(struct rsocket *rs, const union rs_addr *addr)
{
	struct rs_deadline until;
	int err;

	vb_mutex_lock(&rs->cm_lock, VB_RANK_RS_CM);
	vb_mutex_lock(&rs->lock, VB_RANK_RS);
	err = begin_connect(rs, addr);
	vb_mutex_unlock(&rs->cm_lock);
	if (err == EALREADY && !(rs->fs_flags & O_NONBLOCK))
		err = 0; /* the connect was interrupted or began nonblocking: a blocking call waits for it */
	if (!err) {
		until = rs_deadline_tv(&rs->send_timeout);
		err = rs_wait_soft(rs, connect_settled, rs->fs_flags & O_NONBLOCK, &until, NULL);
		if (err == EAGAIN)
			err = EINPROGRESS;
		else if (!err)
			err = rs_connected(rs);
	}
	vb_mutex_unlock(&rs->lock);
	return err;
}

/* The last call on the rsocket: no other thread is inside. */
void rs_stream_close(struct rsocket *rs)
{
	if (rs->keep_timer >= 0) {
		rs_service_del(rs->keep_timer);
		close(rs->keep_timer);
		rs->keep_timer = -1;
	}
	if (rs->cm)
		rs_service_del(rs->cm->fd);
	rs_ep_destroy(rs);
	if (rs->id)
		rdma_destroy_id(rs->id);
	rs->id = NULL;
	rs_retract(rs);
	if (rs->cm)
		rdma_destroy_event_channel(rs->cm);
	rs->cm = NULL;
}
