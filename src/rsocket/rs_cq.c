// rs_cq.c - completions of a stream: messages of the peer, credits, the end of the connection
// follows: rdma-core docs/rsocket ("Message Format")
// SPDX-License-Identifier: MIT
#include "rsocket/rs.h"

#include <endian.h>
#include <string.h>

enum { TAKE = 16 };    /* completions per poll */
enum { UNPOSTED = 8 }; /* receives are posted again when this part of them, an eighth, waits for it */

/* The connection cannot go on; rs->lock is held. */
void rs_break(struct rsocket *rs, int err)
{
	if (rs->state != RS_CONNECTED && rs->state != RS_ACCEPTING && rs->state != RS_CONNECTING)
		return;
	rs->state = RS_FAILED;
	rs->can_read = rs->can_write = false;
	rs->err = err;
	rs_keep_alive_set(rs);
}

static void peer_disconnected(struct rsocket *rs)
{
	rs->state = RS_DISCONNECTED;
	rs->can_read = rs->can_write = false;
	rs_keep_alive_set(rs);
}

static void take_control(struct rsocket *rs, uint32_t what)
{
	if (what == RS_CTRL_DISCONNECT)
		peer_disconnected(rs);
	if (what != RS_CTRL_SHUTDOWN)
		return;
	rs->can_read = false;
	rs->end_heard = true;
}

/* Ends a connection that both sides have shut down, once all data sent here has arrived. */
static __attribute__((hot)) void settle_ends(struct rsocket *rs)
{
	if (rs->state == RS_CONNECTED && rs->end_said && rs->end_heard && rs_tx_idle(&rs->tx))
		peer_disconnected(rs);
}

static __attribute__((hot)) void take_stream_message(struct rsocket *rs, uint32_t msg)
{
	switch (rs_msg_type(msg)) {
	case RS_DATA:
		if (!rs_rx_data(&rs->rx, rs_msg_value(msg)))
			rs_break(rs, EPROTO);
		break;
	case RS_CREDIT:
		rs->tx.limit = (uint16_t)rs_msg_value(msg);
		break;
	case RS_CONTROL:
		take_control(rs, rs_msg_value(msg));
		break;
	default: /* RS_IOMAP: the peer has written the entry already */
		break;
	}
}

/*
 * Posts the receives that messages have taken. It may wait until the program polls in vain, so that the program gets its
 * data sooner, but not beyond the credits that count on them. If the peer's control messages find none, they are
 * repeated. iWARP does not repeat.
 */
static __attribute__((hot)) void post_receives(struct rsocket *rs)
{
	for (; rs->unposted && rs->state == RS_CONNECTED; rs->unposted--) {
		int err = rs_post_receive(rs);

		if (err)
			rs_break(rs, err);
	}
}

static __attribute__((hot)) void receive_completed(struct rsocket *rs, const struct ibv_wc *wc)
{
	uint32_t msg;

	if (wc->status != IBV_WC_SUCCESS) {
		rs_break(rs, ECONNRESET);
		return;
	}
	if (wc->wc_flags & IBV_WC_WITH_IMM)
		msg = be32toh(wc->imm_data);
	else if (rs->message_sends && wc->byte_len == sizeof(msg))
		memcpy(&msg, rs->recv_buf + rs->config.recv_size + (uint32_t)wc->wr_id * sizeof(msg), sizeof(msg));
	else {
		rs_break(rs, EPROTO);
		return;
	}
	take_stream_message(rs, msg);
	rs->unposted++;
	if (rs->message_sends || rs->unposted * UNPOSTED >= rs->config.rq)
		post_receives(rs);
}

static int error_of(enum ibv_wc_status status)
{
	switch (status) {
	case IBV_WC_RETRY_EXC_ERR:
		return ETIMEDOUT;
	case IBV_WC_WR_FLUSH_ERR:
	case IBV_WC_REM_ABORT_ERR:
		return ECONNRESET;
	default:
		return EIO;
	}
}

static __attribute__((hot)) void send_completed(struct rsocket *rs, const struct ibv_wc *wc)
{
	switch ((enum rs_wr)(wc->wr_id >> 32)) {
	case RS_WR_DATA:
		rs_ring_give(&rs->tx.ring, (uint32_t)wc->wr_id);
		rs->tx.sq++;
		break;
	case RS_WR_NOTICE:
		rs->tx.sq++;
		break;
	case RS_WR_DISCONNECT:
		rs->tx.ctrl--;
		if (wc->status == IBV_WC_SUCCESS)
			peer_disconnected(rs);
		break;
	default:
		rs->tx.ctrl--;
		break;
	}
	if (wc->status != IBV_WC_SUCCESS)
		rs_break(rs, error_of(wc->status));
}

__attribute__((hot)) void rs_give_credits(struct rsocket *rs)
{
	int err;

	while (rs->state == RS_CONNECTED && rs_rx_owes(&rs->rx) &&
	       rs_tx_may_control(&rs->tx, rs->message_sends && rs_rx_has_half(&rs->rx) ? 2 : 1)) {
		post_receives(rs);
		err = rs_grant(rs);
		if (err)
			rs_break(rs, err);
	}
}

/* Handles all completions; rs->lock is held. */
__attribute__((hot)) void rs_process(struct rsocket *rs)
{
	struct ibv_wc wc[TAKE];
	bool news = false;
	int n;

	if (rs->type == SOCK_DGRAM) {
		rs_dgram_process(rs);
		return;
	}
	/* Data that arrives before the connection is established waits in the queue. */
	if (!rs->cq || rs->state < RS_CONNECTED)
		return;
	rs_give_credits(rs);
	do {
		n = ibv_poll_cq(rs->cq, TAKE, wc);
		for (int i = 0; i < n; i++) {
			if (wc[i].wr_id >> 32 == RS_WR_RECV)
				receive_completed(rs, &wc[i]);
			else
				send_completed(rs, &wc[i]);
		}
		news |= n > 0;
	} while (n == TAKE); /* with fewer the queue is empty, and another poll would cost time */
	if (n < 0)
		rs_break(rs, EIO);
	if (!news)
		post_receives(rs);
	rs_give_credits(rs);
	if (rs->owed && rs->state == RS_CONNECTED && rs_tx_may_control(&rs->tx, 1)) {
		enum rs_control what = (enum rs_control)(rs->owed - 1);

		rs->owed = 0;
		rs_send_control(rs, what);
	}
	settle_ends(rs);
	if (news)
		rs_wake(rs);
}

/* Arms the channel: from now on a completion makes it readable. rs->lock is held. */
void rs_arm(struct rsocket *rs)
{
	if (rs->type == SOCK_DGRAM) {
		rs_dgram_arm(rs);
		return;
	}
	if (!rs->cq || rs->armed)
		return;
	rs->armed = !ibv_req_notify_cq(rs->cq, 0);
}

/* Takes events out of the channel; rs->lock is held, so that no other thread takes events that poll(2) has reported. */
void rs_drain(struct rsocket *rs)
{
	struct pollfd p = {.events = POLLIN};
	struct ibv_cq *cq;
	void *context;

	if (rs->type == SOCK_DGRAM) {
		rs_dgram_drain(rs);
		return;
	}
	if (!rs->channel)
		return;
	p.fd = rs->channel->fd;
	while (poll(&p, 1, 0) > 0 && !ibv_get_cq_event(rs->channel, &cq, &context)) {
		ibv_ack_cq_events(cq, 1);
		rs->armed = false;
	}
}
