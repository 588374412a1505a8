// rs_stream.c - sending, receiving and shutting down a stream
// follows: rdma-core docs/rsocket ("Data Streaming"); POSIX send(), recv(), shutdown()
// SPDX-License-Identifier: MIT
#include "rsocket/rs.h"

#include <string.h>

/*
 * Only every LOOK_EVERY-th short send polls for completions first, because across a network a poll costs the adapter a
 * system call. Long sends always poll, because unread acknowledgements may keep the adapter's window closed.
 */
enum { LOOK_EVERY = 8 };
enum { MTU_MIN = 256 }; /* of a path; other MTUs are multiples of it */

static __attribute__((hot)) uint32_t min_size(uint32_t a, size_t b)
{
	return b < a ? (uint32_t)b : a;
}

/* A pending error is reported once. After that, the error for a connection in this state (otherwise). */
int rs_error_of(struct rsocket *rs, int otherwise)
{
	int err = rs->err;

	rs->err = 0;
	return err ? err : otherwise;
}

__attribute__((hot)) bool rs_can_send(struct rsocket *rs)
{
	return rs->state == RS_CONNECTED && rs->can_write && rs_tx_may_send(&rs->tx);
}

__attribute__((hot)) bool rs_send_settled(struct rsocket *rs)
{
	if (rs_opening(rs))
		return false;
	return rs->state != RS_CONNECTED || !rs->can_write || rs_tx_may_send(&rs->tx);
}

__attribute__((hot)) bool rs_recv_settled(struct rsocket *rs)
{
	if (rs_opening(rs))
		return false;
	return rs->rx.unread || rs->state != RS_CONNECTED || !rs->can_read;
}

bool rs_control_settled(struct rsocket *rs)
{
	return rs->state != RS_CONNECTED || rs_tx_may_control(&rs->tx, 1);
}

bool rs_sends_done(struct rsocket *rs)
{
	return rs->state != RS_CONNECTED || rs_tx_idle(&rs->tx);
}

/* If much data follows, pieces are larger: the peer handles one while the next is sent. */
__attribute__((hot)) uint32_t rs_piece(struct rsocket *rs, size_t left)
{
	uint32_t n = min_size(left >= 4 * RS_PIECE_MAX ? 2 * RS_PIECE_MAX : RS_PIECE_MAX, left);

	return n <= rs->inline_max ? n : min_size(n, rs->tx.ring.size - rs->tx.ring.used);
}

/* Copies n bytes into the memory that the adapter sends from. Releases rs->lock meanwhile if they are many; send_lock
 * keeps the order. */
__attribute__((hot)) void rs_load(struct rsocket *rs, struct rs_load *l, struct rs_cursor *c, uint32_t n)
{
	struct rs_span span[2];

	l->inl = n <= rs->inline_max;
	l->ring = l->inl ? 0 : n;
	if (l->inl) {
		l->n = 1;
		rs_cursor_get(c, l->copy, n);
		l->sges[0] = (struct ibv_sge){.addr = (uintptr_t)l->copy, .length = n};
		return;
	}
	l->n = rs_ring_take(&rs->tx.ring, n, span);
	l->ring += rs_ring_pad(&rs->tx.ring);
	vb_mutex_unlock(&rs->lock);
	for (int i = 0; i < l->n; i++) {
		uint8_t *to = rs->send_buf + span[i].offset;

		rs_cursor_get(c, to, span[i].length);
		l->sges[i] = (struct ibv_sge){(uintptr_t)to, span[i].length, rs->send_mr->lkey};
	}
	vb_mutex_lock(&rs->lock, VB_RANK_RS);
}

/*
 * True if the message is better sent as a separate short packet. A last packet with full payload and immediate data is
 * longer than the packets before it, and an adapter that sends packets of one size together has to send it alone. Which
 * packet is full depends on the MTU, so all multiples of MTU_MIN count.
 */
static bool goes_apart(const struct rsocket *rs, uint32_t n)
{
	return n >= RS_PIECE_MAX / 4 && n % MTU_MIN == 0 && !rs->message_sends && rs->tx.sq;
}

static __attribute__((hot)) int send_piece(struct rsocket *rs, struct rs_cursor *c)
{
	uint32_t n = rs_piece(rs, c->left), msg;
	bool apart;
	struct rs_sge to;
	struct rs_load l;
	int err;

	if (n > rs->tx.to.length)
		rs_tx_join(&rs->tx);
	n = min_size(n, rs->tx.to.length);
	msg = rs_msg(RS_DATA, n);
	to = rs_tx_take(&rs->tx, n);
	apart = goes_apart(rs, n);
	rs->tx.sq -= apart;
	rs_load(rs, &l, c, n);
	if (apart)
		err = rs_post_write_then_message(rs, l.sges, l.n, to, msg, rs_wr_id(RS_WR_DATA, l.ring));
	else
		err = rs_post_write_message(rs, l.sges, l.n, l.inl, to, msg, rs_wr_id(RS_WR_DATA, l.ring));
	if (err)
		rs_break(rs, err);
	return err;
}

static int cannot_write(struct rsocket *rs)
{
	int err;

	if (rs->state < RS_CONNECTED)
		return ENOTCONN;
	err = rs_error_of(rs, rs->we_shut || rs->reset_told ? EPIPE : ECONNRESET);
	rs->reset_told = true; /* reported once; then SIGPIPE stops a program that ignores errors */
	return err;
}

static bool look_first(struct rsocket *rs, size_t left)
{
	return left > rs->inline_max || rs->tx.seq % LOOK_EVERY == 0 || !rs_can_send(rs);
}

static __attribute__((hot)) int send_all(struct rsocket *rs, struct rs_cursor *c, int flags)
{
	struct rs_deadline until = rs_deadline_tv(&rs->send_timeout);
	bool nonblock = rs_nonblocking(rs, flags);
	int err;

	if (rs->maps_pending) {
		err = rs_iomap_send(rs, flags);
		if (err)
			return err;
	}
	do {
		err = look_first(rs, c->left) ? rs_wait_soft(rs, rs_send_settled, nonblock, &until, &rs->send_lock) : 0;
		if (!err && !rs_can_send(rs))
			err = cannot_write(rs);
		if (!err && c->left)
			err = send_piece(rs, c);
	} while (!err && c->left);
	return err;
}

__attribute__((hot)) ssize_t rs_stream_send(struct rsocket *rs, struct rs_cursor *c, int flags)
{
	size_t all = c->left;
	bool locked;
	int err;

	if (flags & MSG_OOB)
		return rs_fail(EOPNOTSUPP);
	locked = rs_lock_call(&rs->send_lock);
	vb_mutex_lock(&rs->lock, VB_RANK_RS);
	err = rs_connected(rs);
	if (!err || err == EAGAIN)
		err = send_all(rs, c, flags);
	vb_mutex_unlock(&rs->lock);
	if (locked)
		vb_mutex_unlock_program(&rs->send_lock);
	return c->left < all || !err ? (ssize_t)(all - c->left) : rs_fail(err);
}

static void peek_bytes(struct rsocket *rs, struct rs_cursor *c)
{
	struct rs_span s;

	for (uint32_t skip = 0; c->left && skip < rs->rx.unread; skip += s.length) {
		s = rs_rx_peek(&rs->rx, skip, min_size(UINT32_MAX, c->left));
		rs_cursor_put(c, rs->recv_buf + s.offset, s.length);
	}
}

/* Bytes that are copied sooner than the lock is released and taken. */
#define COPY_LOCKED 256u

/* Only this thread reads, because it holds recv_lock. So the bytes stay while it releases rs->lock for senders, which it
 * does if they are many. */
static __attribute__((hot)) void take_bytes(struct rsocket *rs, struct rs_cursor *c)
{
	struct rs_span s;

	while (c->left && rs->rx.unread) {
		s = rs_rx_peek(&rs->rx, 0, min_size(RS_PIECE_MAX, c->left));
		bool many = s.length > COPY_LOCKED;

		if (many)
			vb_mutex_unlock(&rs->lock);
		rs_cursor_put(c, rs->recv_buf + s.offset, s.length);
		if (many)
			vb_mutex_lock(&rs->lock, VB_RANK_RS);
		rs_rx_read(&rs->rx, s.length);
	}
}

static __attribute__((hot)) int receive_bytes(struct rsocket *rs, struct rs_cursor *c, int flags)
{
	struct rs_deadline until = rs_deadline_tv(&rs->recv_timeout);
	bool nonblock = rs_nonblocking(rs, flags), looked = false;
	int err = 0;

	do {
		looked |= !rs->rx.unread;
		if (!rs->rx.unread)
			err = rs_wait_soft(rs, rs_recv_settled, nonblock, &until, &rs->recv_lock);
		if (err)
			break;
		if (!rs->rx.unread) { /* the end of the stream, or of the connection */
			err = rs->state == RS_FAILED ? rs_error_of(rs, 0) : rs->state < RS_CONNECTED ? ENOTCONN : 0;
			break;
		}
		if (flags & MSG_PEEK) {
			peek_bytes(rs, c);
			break;
		}
		take_bytes(rs, c);
	} while (c->left && (flags & MSG_WAITALL));
	/* the space of data that was read can be granted again */
	if (looked)
		rs_give_credits(rs);
	else
		rs_process(rs);
	return err;
}

__attribute__((hot)) ssize_t rs_stream_recv(struct rsocket *rs, struct rs_cursor *c, int flags)
{
	size_t all = c->left;
	bool locked;
	int err;

	if (flags & MSG_OOB)
		return rs_fail(EINVAL);
	if (!all)
		return 0;
	locked = rs_lock_call(&rs->recv_lock);
	vb_mutex_lock(&rs->lock, VB_RANK_RS);
	err = rs_connected(rs);
	if (!err || err == EAGAIN)
		err = receive_bytes(rs, c, flags);
	vb_mutex_unlock(&rs->lock);
	if (locked)
		vb_mutex_unlock_program(&rs->recv_lock);
	return c->left < all || !err ? (ssize_t)(all - c->left) : rs_fail(err);
}

/* The caller holds rs->lock, and rs_tx_may_control() was true. */
int rs_send_control(struct rsocket *rs, enum rs_control what)
{
	struct rs_sge nowhere = {0};
	int err;

	rs->tx.ctrl++;
	/* A keep-alive only needs the acknowledgement of the peer's adapter. The peer's program does not see it. */
	if (what == RS_CTRL_KEEPALIVE)
		err = rs_post_write(rs, NULL, 0, false, nowhere, rs_wr_id(RS_WR_CTRL, 1));
	else
		err = rs_post_message(rs, rs_msg(RS_CONTROL, what),
		                      rs_wr_id(what == RS_CTRL_DISCONNECT ? RS_WR_DISCONNECT : RS_WR_CTRL, 1));
	if (err)
		rs_break(rs, err);
	rs->end_said |= what == RS_CTRL_SHUTDOWN;
	rs->goodbye_said |= what == RS_CTRL_DISCONNECT;
	return err;
}

/* Waits in spite of signals: the end of a stream must not be sent half. */
static void wait_through(struct rsocket *rs, bool (*test)(struct rsocket *), const struct rs_deadline *until)
{
	while (rs_wait(rs, test, false, until) == EINTR)
		;
}

static void say_goodbye(struct rsocket *rs, int how, const struct rs_deadline *until)
{
	bool was_readable = rs->can_read;
	enum rs_control what;

	if (how != SHUT_WR)
		rs->can_read = false;
	if (how != SHUT_RD) {
		rs->can_write = false;
		rs->we_shut = true;
	}
	rs_wake(rs);
	if (how == SHUT_RD && rs->can_write)
		return;
	what = how == SHUT_WR && was_readable ? RS_CTRL_SHUTDOWN : RS_CTRL_DISCONNECT;
	wait_through(rs, rs_control_settled, until);
	if (rs->state == RS_CONNECTED && rs_tx_may_control(&rs->tx, 1))
		rs_send_control(rs, what);
	else if (rs->state == RS_CONNECTED)
		rs->owed = (uint8_t)(what + 1);
	/* Wait for the acknowledgement: the program, and with it the adapter, may end as soon as this returns. */
	wait_through(rs, rs_sends_done, until);
}

void rs_end_qp(struct rsocket *rs)
{
	struct ibv_qp_attr attr = {.qp_state = rs->message_sends ? IBV_QPS_SQD : IBV_QPS_ERR};

	if (rs->state == RS_DISCONNECTED && rs->qp)
		ibv_modify_qp(rs->qp, &attr, IBV_QP_STATE);
}

void rs_part(struct rsocket *rs, const struct rs_deadline *until)
{
	if (rs->state == RS_CONNECTED)
		say_goodbye(rs, SHUT_RDWR, until);
	rs_end_qp(rs);
	rs_wake(rs);
}

/* Writes to an address where the peer has no memory, so that the queue pairs and rsockets of both sides fail. */
void rs_abort(struct rsocket *rs, const struct rs_deadline *until)
{
	struct rs_sge nowhere = {.addr = rs->peer_sgl.addr ^ UINT64_C(1) << 63, .key = rs->peer_sgl.key};
	struct ibv_sge one = {.addr = (uintptr_t)rs->send_buf, .length = 1};
	bool inl = rs->inline_max > 0;

	rs->can_read = rs->can_write = false;
	rs_wake(rs);
	if (rs->state != RS_CONNECTED || !rs_tx_may_control(&rs->tx, 1))
		return;
	rs->goodbye_said = true;
	rs->tx.ctrl++;
	one.lkey = rs->send_mr->lkey;
	if (rs_post_write(rs, &one, 1, inl, nowhere, rs_wr_id(RS_WR_CTRL, 1)))
		rs_break(rs, ECONNABORTED);
	wait_through(rs, rs_sends_done, until);
}

/* As in Linux, accept() fails and connections are refused until the program calls listen() again. */
static int shut_listener(struct rsocket *rs, int how)
{
	if (how == SHUT_WR)
		return 0;
	vb_mutex_lock(&rs->lock, VB_RANK_RS);
	rs->deaf = true;
	rs_wake(rs);
	vb_mutex_unlock(&rs->lock);
	rs_accept_flush(rs);
	return 0;
}

int rs_stream_shutdown(struct rsocket *rs, int how)
{
	struct rs_deadline until;
	int err = 0;

	if (rs->state == RS_LISTENING)
		return shut_listener(rs, how);
	vb_mutex_lock(&rs->lock, VB_RANK_RS);
	until = rs_patience(rs); /* a peer that does not read does not delay the program: sent data stays in flight */
	if (rs->state < RS_CONNECTED || rs->state == RS_REFUSED)
		err = ENOTCONN;
	else if (rs->state == RS_CONNECTED)
		say_goodbye(rs, how, &until);
	/* Unless both sides have shut down: then the peer may still retransmit until its last data is acknowledged. */
	if (!(how == SHUT_WR && rs->end_heard))
		rs_end_qp(rs);
	rs_wake(rs);
	vb_mutex_unlock(&rs->lock);
	return err;
}
