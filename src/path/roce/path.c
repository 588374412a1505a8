// path.c - the RoCE path: connects a queue pair with the RoCE engine and the senders
// follows: IBA volume 1, 9.7 to 9.9, 10.3; annex A17 (RoCEv2)
// SPDX-License-Identifier: MIT
#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>

#include "path/roce/roce.h"

#include "core/device.h"
#include "core/sq.h"
#include "engine/local/local.h"
#include "path/path.h"
#include "util/log.h"
#include "util/units.h"

struct vb_roce_stats vb_roce_totals;

/*
 * UC has no window. A socket buffer holds some hundred kilobytes to some megabytes, and a busy receiver may not read it
 * for most of a millisecond. So a UC sender is limited to UC_BURST per UC_PERIOD (10 Gb/s), and to less if the peer
 * sends congestion notifications.
 */
#define UC_BURST (128u << 10) /* bytes */
#define UC_PERIOD VB_US(100)  /* ns */
#define UC_KBPS 10000000u
#define LINK_BYTES (1u << 20) /* a queue pair's, in flight on an InfiniBand link */
#define ACK_DELAY VB_US(10)   /* ns; how long an acknowledgement may wait for another packet to the peer */

/*
 * One send call costs about the same for one packet as for many. If a program posts short requests one by one while
 * earlier ones are in flight, the path collects up to TRAIN_MAX of them for up to TRAIN_GAP. It does so only while a
 * thread polls: otherwise it would have to wake the progress thread to send them.
 */
#define TRAIN_GAP VB_US(10) /* ns; the most between two posts of a train */
#define TRAIN_MIN 8         /* consecutive posts before the first request waits */
#define TRAIN_MAX 16        /* the most requests that wait */
#define TRAIN_SHORT 512u    /* bytes; a longer request does not wait */

/* --- start and end --- */

/* Passes attributes that ibv_modify_qp has changed to the engine. */
static void configure_engine(struct vb_qp *qp)
{
	struct vb_roce_config c = qp->roce->q.cfg;

	c.qkey = qp->attr.qkey;
	c.pkey = qp->ib ? qp->local.pkey : VB_DEFAULT_PKEY;
	c.sq_psn = vb_psn(qp->attr.sq_psn);
	c.timeout = qp->attr.timeout;
	c.retry_cnt = qp->attr.retry_cnt;
	c.rnr_retry = qp->attr.rnr_retry;
	c.min_rnr_timer = qp->attr.min_rnr_timer;
	c.max_rd_atomic = qp->attr.max_rd_atomic;
	c.max_dest_rd_atomic = qp->attr.max_dest_rd_atomic;
	c.access = vb_rights_of(qp->attr.qp_access_flags);
	vb_roce_reconfigure(&qp->roce->q, &c);
	qp->roce->limited = qp->rate.kbps && (qp->type != IBV_QPT_UC || qp->rate.kbps < UC_KBPS);
}

/* Sets the addresses of a connected queue pair from its present address vector. */
static int fill_address(struct vb_qp *qp, struct vb_roce_path *path)
{
	static _Atomic uint64_t connections;
	const struct ibv_ah_attr *ah = &qp->attr.ah_attr;
	struct vb_netdev nd;
	union ibv_gid sgid;
	int err = vb_query_gid_at(VB_CONTEXT_OF(qp)->dev, 1, ah->grh.sgid_index, &sgid);

	if (!err)
		vb_roce_address(&path->to, qp, &sgid, ah);
	if (!qp->ib) {
		vb_device_netdev(VB_CONTEXT_OF(qp)->dev, &nd);
		path->inside = nd.internal;
	}
	path->connection = atomic_fetch_add(&connections, 1) + 1;
	return err;
}

static uint32_t mtu_of(const struct vb_qp *qp)
{
	return qp->type == IBV_QPT_UD ? qp->max_msg < VB_PAYLOAD_MAX ? qp->max_msg : VB_PAYLOAD_MAX
	                              : 128u << qp->attr.path_mtu;
}

/* Maps slots for packets that arrive after a lost one. They take memory only from a loss until it is repaired. */
static void *ahead_open(uint32_t mtu, struct vb_roce_ahead *ahead)
{
	ahead->n = 1;
	while (ahead->n * 2 * VB_ROCE_SLOT(mtu) <= VB_ROCE_AHEAD)
		ahead->n *= 2;
	void *p = mmap(NULL, VB_ROCE_AHEAD, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);

	ahead->slots = p == MAP_FAILED ? NULL : p;
	return ahead->slots;
}

static unsigned transport_of(const struct vb_qp *qp)
{
	return qp->ib ? VB_TRANSPORT_IB : VB_TRANSPORT_ROCE;
}

int vb_roce_path_open_locked(struct vb_qp *qp)
{
	static const uint8_t types[] = {[IBV_QPT_RC] = VB_ROCE_RC,
	                                [IBV_QPT_UC] = VB_ROCE_UC,
	                                [IBV_QPT_UD] = VB_ROCE_UD,
	                                [IBV_QPT_XRC_SEND] = VB_ROCE_RC,
	                                [IBV_QPT_XRC_RECV] = VB_ROCE_RC};
	static const uint8_t ends[] = {
	        [IBV_QPT_XRC_SEND] = VB_ROCE_XRC_INITIATOR, [IBV_QPT_XRC_RECV] = VB_ROCE_XRC_TARGET};
	struct vb_roce_sockets *s = vb_roce_sockets_for(qp);
	uint32_t sends = qp->type == IBV_QPT_UD ? 1 : qp->sq_max_wr;
	struct vb_roce_path *path = calloc(1, sizeof(*path) + sends * sizeof(path->sends[0]));

	if (!path)
		return ENOMEM;
	const struct vb_roce_config cfg = {.type = types[qp->type],
	                                   .xrc = ends[qp->type],
	                                   .tagged = qp->srq && qp->srq->tm,
	                                   .mtu = mtu_of(qp),
	                                   .qpn = qp->qp.qp_num,
	                                   .dest_qpn = qp->attr.dest_qp_num,
	                                   .max_window = qp->ib ? LINK_BYTES / mtu_of(qp) : 0,
	                                   .rq_psn = vb_psn(qp->attr.rq_psn),
	                                   .max_dest_rd_atomic = qp->attr.max_dest_rd_atomic,
	                                   .ack_delay = ACK_DELAY,
	                                   .burst = vb_tx_burst(mtu_of(qp) + VB_BTH_LEN)};

	if (qp->type != IBV_QPT_UD && fill_address(qp, path)) {
		free(path);
		return EINVAL;
	}
	path->tx = vb_tx_of(s, qp->qp.qp_num, qp->attr.dest_qp_num);
	vb_roce_init(&path->q, &cfg, &vb_roce_engine_ops, qp, path->sends, sends);
	if (vb_qp_is_reliable(qp) && ahead_open(cfg.mtu, &path->ahead))
		vb_roce_keep_ahead(&path->q, &path->ahead);
	qp->roce = path;
	if (qp->type != IBV_QPT_UD)
		vb_path_use(qp, &vb_roce_path_ops);
	configure_engine(qp);
	atomic_fetch_add(&qp->node->io->transport[transport_of(qp)].users, 1);
	return 0;
}

int vb_roce_path_open(struct vb_qp *qp)
{
	vb_lock(&qp->node->progress);
	vb_lock(&qp->sq_lock);
	int err = vb_roce_path_open_locked(qp);

	vb_unlock(&qp->sq_lock);
	vb_unlock(&qp->node->progress);
	return err;
}

/* Other threads may send meanwhile: what people see may be a moment old. */
__attribute__((no_sanitize("thread"))) void vb_roce_path_counts(const struct vb_roce_path *path, struct vb_counts *c)
{
	const struct vb_roce_stats *s = &path->q.stats;

	c->port_xmit_data += s->sent_bytes;
	c->port_rcv_data += s->rcvd_bytes;
	c->port_xmit_packets += s->sent_pkts;
	c->port_rcv_packets += s->rcvd_pkts;
	c->out_of_sequence += s->out_of_seq_request;
	c->packet_seq_err += s->seq_naks_rcvd;
	c->implied_nak_seq_err += s->lost_responses;
	c->duplicate_request += s->duplicate_request;
	c->rnr_nak_retry_err += s->rnr_naks_rcvd;
	c->out_of_buffer += s->rnr_naks_sent + s->drop_no_receive;
	c->local_ack_timeout_err += s->timeouts;
	c->rx_icrc_encapsulated += path->wrong_icrc;
	c->np_cnp_sent += s->cnp_sent;
	c->rp_cnp_handled += s->cnp_rcvd;
	c->bad_pkey_cntr += s->drop_pkey;
	c->qkey_viol_cntr += s->drop_qkey;
}

void vb_roce_path_close(struct vb_qp *qp)
{
	struct vb_roce_path *path = qp->roce;

	if (!path)
		return;
	if (vb_qp_device(qp))
		vb_roce_path_counts(path, &vb_qp_device(qp)->ended);
#define X(name, text) vb_roce_totals.name += path->q.stats.name;
	VB_ROCE_COUNTERS(X)
#undef X
	if (path->tx && vb_tx_waits(path->tx)) /* its last acknowledgement, or what UC has sent */
		vb_roce_datagrams_left(vb_roce_sockets_for(qp));
	atomic_fetch_sub(&qp->node->io->transport[transport_of(qp)].users, 1);
	qp->roce = NULL;
	atomic_store(&qp->due, 0);
	vb_log(VB_LOG_DEBUG, "RoCE: queue pair 0x%x: window %u packets, round trip %lu us (least %lu)", qp->qp.qp_num,
	       path->q.rq.window.packets, path->q.rq.window.srtt / 1000, path->q.rq.window.rtt_min / 1000);
	if (path->ahead.slots)
		munmap(path->ahead.slots, VB_ROCE_AHEAD);
	free(path);
}

void vb_roce_path_closed(struct vb_qp *qp)
{
	if (qp->roce && !qp->roce->q.dead) {
		vb_roce_last_words(qp);
		vb_roce_abort(&qp->roce->q);
	}
	vb_local_closed(qp);
}

void vb_roce_path_reset(struct vb_qp *qp)
{
	vb_roce_last_words(qp);
	if (!qp->roce) /* otherwise vb_roce_path_close drops the requests of the engine */
		vb_local_closed(qp);
	vb_local_reset(qp);
	vb_roce_path_close(qp);
}

/* Reinitialises the requester when the QP leaves SQE. The responder keeps its state. */
static void revive_requester(struct vb_qp *qp)
{
	struct vb_roce_path *path = qp->roce;
	struct vb_roce_responder rs = path->q.rs;
	struct vb_roce_stats stats = path->q.stats;
	struct vb_roce_config cfg = path->q.cfg;

	vb_roce_init(&path->q, &cfg, &vb_roce_engine_ops, qp, path->sends, path->q.mask + 1);
	path->q.rs = rs;
	path->q.stats = stats;
	path->failed = VB_WORK_EVENT_NONE;
}

void vb_roce_path_entered(struct vb_qp *qp, enum ibv_qp_state cur, enum ibv_qp_state next)
{
	struct vb_roce_path *path = qp->roce;

	if (!path)
		return;
	if (cur == IBV_QPS_SQE && qp->type == IBV_QPT_UC)
		revive_requester(qp);
	configure_engine(qp);
	if (qp->type == IBV_QPT_UD)
		return;
	if (next == IBV_QPS_RTS && (cur == IBV_QPS_RTR || cur == IBV_QPS_SQE))
		vb_roce_start(&path->q);
	vb_roce_pause(&path->q, next == IBV_QPS_SQD);
	if (next == IBV_QPS_SQD && cur == IBV_QPS_SQD) /* IBV_QP_AV */
		fill_address(qp, path);
}

static bool roce_idle(const struct vb_qp *qp)
{
	return vb_roce_idle(&qp->roce->q);
}

static void roce_next_psns(const struct vb_qp *qp, uint32_t *sq_psn, uint32_t *rq_psn)
{
	const struct vb_roce_qp *q = &qp->roce->q;

	*sq_psn = vb_psn_add(q->cfg.sq_psn, (int32_t)q->rq.seq).v;
	*rq_psn = q->rs.epsn.v;
}

/* --- operation --- */

__attribute__((hot)) void vb_roce_set_due(struct vb_qp *qp, uint64_t at)
{
	atomic_store(&qp->due, at);
	if (!at)
		return;
	if (!atomic_load_explicit(&qp->on_active, memory_order_relaxed))
		vb_active_add(qp);
	vb_timer_at(qp->node, at);
}

/* Adds the MIDDLE packets that follow, as many as fit in the same send. */
static void emit_more(struct vb_roce_path *path, struct vb_roce_out *out)
{
	uint32_t mtu = path->q.cfg.mtu, n;

	while (out->run.left > 1 && (n = vb_tx_more(path->tx, &path->to, VB_BTH_LEN + mtu))) {
		out->packet = vb_tx_room(path->tx, &path->to);
		path->laying = out->packet;
		path->laying_apart = vb_tx_apart(&path->to, VB_BTH_LEN + mtu);
		for (uint32_t i = 0; i < n; i++)
			path->laid[i].at = NULL;
		path->laying_past = out->packet ? vb_tx_past(path->tx, out->run.left) : NULL;
		n = out->packet ? vb_roce_output_more(&path->q, out, n, path->laying_apart) : 0;
		if (!n)
			break;
		vb_tx_add_more(path->tx, n, VB_BTH_LEN + mtu, path->laid);
	}
	path->laying_past = NULL;
}

static bool is_send(uint8_t opcode)
{
	const struct vb_opcode_info *info = vb_opcode_info(opcode);

	return info->op == VB_OP_SEND && info->flags & VB_REQUEST;
}

/*
 * Sends all packets that may be sent now. Under sq_lock. vb_roce_output puts an acknowledgement after the requests. If
 * all requests are sends, the acknowledgement must arrive before them: a program expects its send to complete before
 * the peer's reply arrives, and may otherwise have no room in its send queue. After writes it stays behind them: as
 * soon as its own request completes, a receiver may poll only its memory.
 */
static __attribute__((hot)) void emit_packets(struct vb_qp *qp, uint64_t now)
{
	struct vb_roce_path *path = qp->roce;
	bool paced = qp->type == IBV_QPT_UC;
	uint32_t bytes = 0;
	struct vb_roce_out out;
	bool all = true, sends = true; /* sends: all requests so far are sends */

	if (__builtin_expect(path->limited, 0)) {
		vb_roce_emit_limited(qp, now);
		return;
	}
	vb_roce_path_locked(path);
	out.run.left = 0;
	if (paced && now < path->next_burst) {
		vb_roce_set_due(qp, path->next_burst);
		return;
	}
	if (!vb_tx_begin(path->tx, qp)) {
		vb_roce_set_due(qp, now + VB_TX_AGAIN);
		return;
	}
	for (;;) {
		out.packet = paced && bytes > UC_BURST ? NULL : vb_tx_room(path->tx, &path->to);
		if (!out.packet) {
			all = false;
			break;
		}
		path->laying = out.packet;
		path->laying_apart = UINT32_MAX;
		path->laid[0].at = NULL;
		if (!vb_roce_output(&path->q, &out, now))
			break;
		if (out.opcode == VB_RC_ACK && sends)
			vb_tx_add_ahead(path->tx, &path->to, out.header_len);
		else
			vb_tx_add(path->tx, &path->to, out.header_len, out.header_len + out.payload_len + out.pad,
			          path->laid);
		sends = sends && is_send(out.opcode);
		bytes += out.payload_len;
		if (!paced)
			emit_more(path, &out);
	}
	all = vb_tx_end(path->tx) && all;
	if (qp->type == IBV_QPT_UC)
		vb_roce_sent(&path->q);
	if (paced && bytes > UC_BURST)
		path->next_burst = now + UC_PERIOD;
	vb_roce_set_due(qp, all                         ? vb_roce_deadline(&path->q)
	                    : paced && bytes > UC_BURST ? path->next_burst
	                                                : now + VB_TX_AGAIN);
}

void vb_roce_last_words(struct vb_qp *qp)
{
	if (!qp->roce || qp->type == IBV_QPT_UD || qp->roce->q.dead)
		return;
	vb_roce_pause(&qp->roce->q, true); /* send no new requests */
	vb_roce_ack_now(&qp->roce->q);
	emit_packets(qp, vb_now());
}

static void roce_last_words(struct vb_qp *qp)
{
	if (qp->roce && !vb_tx_is_held(qp->roce->tx))
		vb_roce_last_words(qp);
}

/* Moves the queue pair to the error state if its engine has failed. Under progress + sq_lock. */
static __attribute__((hot)) void roce_settle(struct vb_qp *qp)
{
	struct vb_context *ctx = VB_CONTEXT_OF(qp);
	unsigned event = qp->roce ? qp->roce->failed : VB_WORK_EVENT_NONE;

	if (event == VB_WORK_EVENT_NONE)
		return;
	qp->roce->failed = VB_WORK_EVENT_NONE;
	if (qp->type == IBV_QPT_UC && event == VB_WORK_EVENT_SQ)
		vb_qp_sq_error(qp);
	else
		vb_qp_error(qp);
	if (event == VB_WORK_EVENT_REQ)
		vb_async_raise(ctx, IBV_EVENT_QP_REQ_ERR, &qp->qp);
	else if (event == VB_WORK_EVENT_ACCESS)
		vb_async_raise(ctx, IBV_EVENT_QP_ACCESS_ERR, &qp->qp);
}

static bool waits_for_more(struct vb_qp *qp, uint64_t now)
{
	struct vb_roce_path *path = qp->roce;
	const struct vb_roce_requester *rq = &path->q.rq;

	path->train = now - path->kicked_at < TRAIN_GAP ? path->train + 1 : 0;
	path->kicked_at = now;
	if (path->train < TRAIN_MIN || qp->type != IBV_QPT_RC || rq->una == rq->seq)
		return false;
	return qp->sq_head - qp->sq_emit < TRAIN_MAX && vb_sq_at(qp, qp->sq_head - 1)->length <= TRAIN_SHORT &&
	       atomic_load_explicit(&qp->node->owner, memory_order_relaxed) == VB_OWNER_POLLER;
}

/* Returns true if the last posted request is an RC send, which may be the reply to a received message. */
static bool answers_by_send(struct vb_qp *qp)
{
	uint8_t opcode = vb_sq_at(qp, qp->sq_head - 1)->opcode;

	return qp->type == IBV_QPT_RC &&
	       (opcode == IBV_WR_SEND || opcode == IBV_WR_SEND_WITH_IMM || opcode == IBV_WR_SEND_WITH_INV);
}

static __attribute__((hot)) enum vb_sq_status roce_kick(struct vb_qp *qp)
{
	uint64_t now = vb_now(), due = atomic_load_explicit(&qp->due, memory_order_relaxed);

	atomic_store_explicit(&qp->sq_pending, qp->sq_head - qp->sq_una, memory_order_relaxed);
	if (answers_by_send(qp))
		vb_roce_ack_all(&qp->roce->q);
	if (waits_for_more(qp, now)) {
		vb_roce_set_due(qp, due && due < now + TRAIN_GAP ? due : now + TRAIN_GAP);
		return VB_SQ_GOOD;
	}
	vb_roce_ack_now(&qp->roce->q);
	emit_packets(qp, now);
	return qp->roce->failed ? VB_SQ_FAILED : VB_SQ_GOOD;
}

static __attribute__((hot)) unsigned roce_visit(struct vb_qp *qp, bool finish)
{
	uint64_t due = atomic_load_explicit(&qp->due, memory_order_relaxed), now;

	if (!due || (now = vb_now()) < due)
		return 0;
	if (finish)
		vb_lock(&qp->sq_lock);
	else if (!vb_trylock(&qp->sq_lock))
		return 0;
	if (qp->roce) {
		vb_roce_timeout(&qp->roce->q, now);
		emit_packets(qp, now);
		roce_settle(qp);
		vb_qp_check_drained(qp);
	}
	vb_unlock(&qp->sq_lock);
	return 1;
}

__attribute__((hot)) struct vb_qp *vb_find_roce_receiver(struct vb_node *node, uint32_t qpn)
{
	struct vb_qp *qp = atomic_load_explicit(&node->qps[VB_QP_INDEX(qpn)], memory_order_relaxed);

	return qp && qp->qp.qp_num == qpn && qp->roce ? qp : NULL;
}

void vb_roce_path_pkey(struct vb_qp *qp)
{
	configure_engine(qp);
}

bool vb_roce_path_middle(struct vb_qp *qp, const uint8_t *bytes, size_t len, uint16_t port, uint64_t now)
{
	struct vb_roce_path *path = qp->roce;

	return path && !path->failed && atomic_load_explicit(&qp->state, memory_order_relaxed) >= IBV_QPS_RTR &&
	       vb_roce_input_middle(&path->q, bytes, len, port, now);
}

__attribute__((hot)) void vb_roce_path_input(struct vb_qp *qp, const struct vb_packet *p, const uint8_t *payload,
                                             const struct vb_roce_from *from, uint64_t now)
{
	if (atomic_load_explicit(&qp->state, memory_order_relaxed) < IBV_QPS_RTR) {
		VB_COUNT(drop_state, 1);
		return;
	}
	if (vb_roce_expects(&qp->roce->q, p))
		vb_first_contact(qp);
	vb_roce_input(&qp->roce->q, p, payload, from, now);
	if (__builtin_expect(qp->roce->failed, 0))
		roce_settle(qp);
}

void vb_roce_path_input_unknown(struct vb_qp *qp, const struct vb_bth *bth)
{
	if (!qp->roce || atomic_load_explicit(&qp->state, memory_order_relaxed) < IBV_QPS_RTR)
		return;
	vb_roce_input_unknown(&qp->roce->q, bth);
	roce_settle(qp);
}

__attribute__((hot)) void vb_roce_path_answer(struct vb_qp *qp, uint64_t now, bool crowded)
{
	if (qp->type == IBV_QPT_UD)
		return;
	vb_lock(&qp->sq_lock);
	struct vb_roce_path *path = qp->roce;

	if (crowded && qp->type == IBV_QPT_UC)
		vb_roce_congested(&path->q, now);
	if (qp->sq_emit == qp->sq_head && vb_roce_silent(&path->q, now) && !vb_tx_waits(path->tx))
		vb_roce_set_due(qp, vb_roce_deadline(&path->q));
	else
		emit_packets(qp, now);
	roce_settle(qp);
	vb_qp_check_drained(qp);
	vb_unlock(&qp->sq_lock);
}

const struct vb_path_ops vb_roce_path_ops = {
        .name = "RoCE",
        .socket = true,
        .only_timers = true,
        .kick = roce_kick,
        .settle = roce_settle,
        .visit = roce_visit,
        .entered = vb_roce_path_entered,
        .idle = roce_idle,
        .closing = roce_settle,
        .closed = vb_roce_path_closed,
        .last_words = roce_last_words,
        .next_psns = roce_next_psns,
        .reset = vb_roce_path_reset,
};
