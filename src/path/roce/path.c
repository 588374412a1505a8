// path.c - the RoCE path: connects a queue pair with the RoCE engine and the senders
// follows: IBA volume 1, 9.7 to 9.9, 10.3; annex A17 (RoCEv2)
// SPDX-License-Identifier: MIT
#include <arpa/inet.h>
#include <errno.h>
#include <net/if_arp.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>

#include "path/roce/roce.h"

#include "core/cq.h"
#include "core/device.h"
#include "core/mcast.h"
#include "core/mr.h"
#include "core/pd.h"
#include "core/rq.h"
#include "core/sq.h"
#include "engine/local/local.h"
#include "frame/segment.h"
#include "path/path.h"
#include "util/guard.h"
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
#define AHEAD (16u << 20)     /* bytes; address space for out-of-order packets of one QP */
#define NEAR (4u << 20)       /* bytes; a larger region does not fit in the processor's nearest cache */
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

/* --- callbacks of the engine for queues and memory; the others are in queue_ops.c --- */

static bool copied_out(struct vb_roce_path *w, bool done, uint32_t len)
{
	w->q.stats.bytes_copied_out += done ? len : 0;
	return done;
}

static bool copied_in(struct vb_roce_path *w, bool done, uint32_t len)
{
	w->q.stats.bytes_copied_in += done ? len : 0;
	return done;
}

/*
 * Places the payload of a packet. For a full packet it computes the CRC sum during the copy. If the packet can be
 * retried and its data is probably not in the near cache, it computes the sum in place and the kernel gathers the data:
 * this is slower than a copy within the cache, but faster than a copy from memory.
 */
static bool place_payload(struct vb_roce_path *w, uint8_t *dst, const uint8_t *src, uint32_t len, uint64_t region)
{
	if (len % 256 || !len || !vb_guard_can_sum())
		return copied_out(w, vb_guard_copy(dst, src, len), len);
	struct vb_tx_laid *laid = &w->laid[(uint32_t)(dst - w->laying) / w->laying_apart];
	bool in_place = region > NEAR && len >= VB_TX_IN_PLACE_MIN && w->q.cfg.type == VB_ROCE_RC && !w->q.again &&
	                vb_tx_in_place(w->tx);

	if (!(in_place ? vb_guard_sum(src, len, laid->sum) : vb_guard_copy_sum(dst, src, len, laid->sum)))
		return false;
	laid->at = dst; /* only after success, because the next packet may use the place of a failed one */
	laid->from = in_place ? src : NULL;
	laid->len = len;
	w->q.stats.bytes_in_place += in_place ? len : 0;
	return copied_out(w, true, in_place ? 0 : len);
}

static bool fetch_payload(void *own, const struct vb_work *work, uint32_t offset, void *dst, uint32_t len)
{
	struct vb_roce_path *w = ((struct vb_qp *)own)->roce;
	const struct vb_known *k = vb_queue_pieces(own, &w->known, work, 0);

	if (k && k->n == 1 && offset + (uint64_t)len <= k->iov[0].iov_len)
		return place_payload(w, dst, (uint8_t *)k->iov[0].iov_base + offset, len, k->region);
	return copied_out(w, k && vb_copy_from(k->iov, k->n, offset, dst, len), len);
}

/* Stores the data of a READ or the result of an atomic. */
static bool scatter_payload(void *own, const struct vb_work *work, uint32_t offset, const void *bytes, uint32_t len)
{
	struct vb_roce_path *w = ((struct vb_qp *)own)->roce;
	const struct vb_known *k = vb_queue_pieces(own, &w->known, work, IBV_ACCESS_LOCAL_WRITE);

	return copied_in(w, k && vb_copy_to(k->iov, k->n, offset, bytes, len), len);
}

static bool scatter_receive(void *own, uint32_t offset, const void *bytes, uint32_t len)
{
	return copied_in(((struct vb_qp *)own)->roce, vb_receive_store(own, offset, bytes, len), len);
}

static uint32_t posted_receives(void *own)
{
	struct vb_qp *qp = own;

	return qp->srq ? UINT32_MAX : vb_rq_count(&qp->rq);
}

static bool memory_named(struct vb_qp *qp, uint32_t rkey, uint64_t va, uint32_t len, uint32_t access, uint64_t *at)
{
	return vb_queue_find_region(qp, &qp->roce->known, rkey) &&
	       vb_mr_view_allows(&qp->roce->known.view, vb_pd_id(qp->pd), va, len, access, at);
}

static bool check_memory(void *own, uint32_t rkey, uint64_t va, uint32_t len, enum vb_right access)
{
	uint64_t at;

	return memory_named(own, rkey, va, len, vb_ibv_access_of(access), &at);
}

static bool write_memory(void *own, uint32_t rkey, uint64_t va, const void *bytes, uint32_t len, bool last)
{
	uint64_t at;

	if (!memory_named(own, rkey, va, len, IBV_ACCESS_REMOTE_WRITE, &at))
		return false;
	return copied_in(((struct vb_qp *)own)->roce,
	                 (last ? vb_guard_copy_tail : vb_guard_copy)((void *)(uintptr_t)at, bytes, len), len);
}

static bool read_memory(void *own, uint32_t rkey, uint64_t va, void *dst, uint32_t len)
{
	struct vb_roce_path *w = ((struct vb_qp *)own)->roce;
	uint64_t at;

	return memory_named(own, rkey, va, len, IBV_ACCESS_REMOTE_READ, &at) &&
	       place_payload(w, dst, (const void *)(uintptr_t)at, len, w->known.view.length);
}

static bool local_invalidate(void *own, const struct vb_work *work)
{
	struct vb_qp *qp = own;

	vb_roce_path_locked(qp->roce);
	return vb_queue_local_invalidate(qp, work);
}

static bool invalidate_key(void *own, uint32_t rkey)
{
	struct vb_qp *qp = own;

	vb_roce_path_locked(qp->roce);
	return vb_queue_invalidate(qp, rkey);
}

/* Gives the memory back to the kernel; the next access reads zeros. */
static void ahead_unused(void *own)
{
	madvise(((struct vb_qp *)own)->roce->ahead.slots, AHEAD, MADV_DONTNEED);
}

static void engine_failed(void *own, enum vb_work_event event)
{
	struct vb_qp *qp = own;

	qp->roce->failed = (uint8_t)event;
}

static const struct vb_roce_ops ops = {
        .next_send = vb_queue_next_send,
        .complete_send = vb_queue_complete_send,
        .fetch = fetch_payload,
        .scatter = scatter_payload,
        .local_invalidate = local_invalidate,
        .take_receive = vb_queue_take_receive,
        .scatter_receive = scatter_receive,
        .complete_receive = vb_queue_complete_receive,
        .receives = posted_receives,
        .check = check_memory,
        .write = write_memory,
        .read = read_memory,
        .atomic = vb_queue_atomic,
        .invalidate = invalidate_key,
        .ahead_unused = ahead_unused,
        .failed = engine_failed,
};

/* --- start and end --- */

/* Passes attributes that ibv_modify_qp has changed to the engine. */
static void configure_engine(struct vb_qp *qp)
{
	struct vb_roce_config c = qp->roce->q.cfg;

	c.qkey = qp->attr.qkey;
	c.sq_psn = vb_psn(qp->attr.sq_psn);
	c.timeout = qp->attr.timeout;
	c.retry_cnt = qp->attr.retry_cnt;
	c.rnr_retry = qp->attr.rnr_retry;
	c.min_rnr_timer = qp->attr.min_rnr_timer;
	c.max_rd_atomic = qp->attr.max_rd_atomic;
	c.max_dest_rd_atomic = qp->attr.max_dest_rd_atomic;
	c.access = vb_rights_of(qp->attr.qp_access_flags);
	vb_roce_reconfigure(&qp->roce->q, &c);
}

/* The default GID of an interface without a MAC address, which is lo. */
static const uint8_t default_of_lo[VB_GID_LEN] = {0xfe, 0x80, [8] = 2, [11] = 0xff, [12] = 0xfe};

static bool is_default_of_lo(const uint8_t gid[VB_GID_LEN])
{
	return !memcmp(gid, default_of_lo, VB_GID_LEN);
}

/* Returns an address of the interface, or NULL. Prefers IPv6, because the receiver of a datagram then gets a GRH. */
static const uint8_t *choose_address(const struct vb_netdev *nd)
{
	for (size_t i = 0; i < nd->n_addrs; i++)
		if (!vb_gid_is_ipv4(nd->addrs[i]))
			return nd->addrs[i];
	return nd->n_addrs ? nd->addrs[0] : NULL;
}

/* The default GID of lo is not an address of this host, so the kernel cannot send packets to it. Both ends replace it
 * with the same address of lo. These packets do not leave the host. */
static void replace_default(struct vb_roce_addr *to, struct vb_device *dev)
{
	bool src = is_default_of_lo(to->src), dst = is_default_of_lo(to->dst);
	struct vb_netdev nd;

	vb_device_netdev(dev, &nd);
	if (nd.arphrd != ARPHRD_LOOPBACK)
		return;
	for (size_t i = 0; i < nd.n_addrs; i++)
		if (is_default_of_lo(nd.addrs[i])) /* an administrator has assigned it to lo as an address */
			return;
	const uint8_t *own = choose_address(&nd);
	if (own && src)
		memcpy(to->src, own, VB_GID_LEN);
	if (own && dst)
		memcpy(to->dst, own, VB_GID_LEN);
}

static void address_from_ah(struct vb_roce_addr *to, struct vb_qp *qp, const union ibv_gid *sgid,
                            const struct ibv_ah_attr *ah)
{
	union ibv_gid group; /* the multicast IP address, or the unicast destination */

	*to = (struct vb_roce_addr){.ifindex = (uint32_t)vb_ctx(qp->qp.context)->dev->ifindex,
	                            .traffic_class = ah->grh.traffic_class,
	                            .hop_limit = ah->grh.hop_limit};
	memcpy(to->src, sgid->raw, VB_GID_LEN);
	vb_mcast_address(&ah->grh.dgid, &group);
	memcpy(to->dst, group.raw, VB_GID_LEN);
	if (is_default_of_lo(to->dst) || is_default_of_lo(to->src))
		replace_default(to, vb_ctx(qp->qp.context)->dev);
}

/* Sets the addresses of a connected queue pair from its present address vector. */
static int fill_address(struct vb_qp *qp, struct vb_roce_addr *to)
{
	const struct ibv_ah_attr *ah = &qp->attr.ah_attr;
	union ibv_gid sgid;
	int err = vb_query_gid_at(vb_ctx(qp->qp.context)->dev, 1, ah->grh.sgid_index, &sgid);

	if (!err)
		address_from_ah(to, qp, &sgid, ah);
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
	while (ahead->n * 2 * VB_ROCE_SLOT(mtu) <= AHEAD)
		ahead->n *= 2;
	void *p = mmap(NULL, AHEAD, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);

	ahead->slots = p == MAP_FAILED ? NULL : p;
	return ahead->slots;
}

int vb_roce_path_open_locked(struct vb_qp *qp)
{
	static const uint8_t types[] = {
	        [IBV_QPT_RC] = VB_ROCE_RC, [IBV_QPT_UC] = VB_ROCE_UC, [IBV_QPT_UD] = VB_ROCE_UD};
	struct vb_roce_sockets *s = qp->node->io->roce;
	uint32_t sends = qp->type == IBV_QPT_UD ? 1 : qp->sq_max_wr;
	struct vb_roce_path *w = calloc(1, sizeof(*w) + sends * sizeof(w->sends[0]));

	if (!w)
		return ENOMEM;
	const struct vb_roce_config cfg = {.type = types[qp->type],
	                                   .mtu = mtu_of(qp),
	                                   .qpn = qp->qp.qp_num,
	                                   .dest_qpn = qp->attr.dest_qp_num,
	                                   .pkey = VB_DEFAULT_PKEY,
	                                   .rq_psn = vb_psn(qp->attr.rq_psn),
	                                   .max_dest_rd_atomic = qp->attr.max_dest_rd_atomic,
	                                   .ack_delay = ACK_DELAY,
	                                   .burst = vb_tx_burst(mtu_of(qp) + VB_BTH_LEN)};

	if (qp->type != IBV_QPT_UD && fill_address(qp, &w->to)) {
		free(w);
		return EINVAL;
	}
	w->tx = vb_tx_of(s, qp->qp.qp_num, qp->attr.dest_qp_num);
	vb_roce_init(&w->q, &cfg, &ops, qp, w->sends, sends);
	if (qp->type == IBV_QPT_RC && ahead_open(cfg.mtu, &w->ahead))
		vb_roce_keep_ahead(&w->q, &w->ahead);
	qp->roce = w;
	if (qp->type != IBV_QPT_UD)
		vb_path_use(qp, &vb_roce_path_ops);
	configure_engine(qp);
	atomic_fetch_add(&qp->node->io->transport[VB_TRANSPORT_ROCE].users, 1);
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

void vb_roce_path_close(struct vb_qp *qp)
{
	struct vb_roce_path *w = qp->roce;

	if (!w)
		return;
#define X(name, text) vb_roce_totals.name += w->q.stats.name;
	VB_ROCE_COUNTERS(X)
#undef X
	atomic_fetch_sub(&qp->node->io->transport[VB_TRANSPORT_ROCE].users, 1);
	qp->roce = NULL;
	atomic_store(&qp->due, 0);
	vb_log(VB_LOG_DEBUG, "RoCE: queue pair 0x%x: window %u packets, round trip %lu us (least %lu)", qp->qp.qp_num,
	       w->q.rq.window.packets, w->q.rq.window.srtt / 1000, w->q.rq.window.rtt_min / 1000);
	if (w->ahead.slots)
		munmap(w->ahead.slots, AHEAD);
	free(w);
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
	struct vb_roce_path *w = qp->roce;
	struct vb_roce_responder rs = w->q.rs;
	struct vb_roce_stats stats = w->q.stats;
	struct vb_roce_config cfg = w->q.cfg;

	vb_roce_init(&w->q, &cfg, &ops, qp, w->sends, w->q.mask + 1);
	w->q.rs = rs;
	w->q.stats = stats;
	w->failed = VB_WORK_EVENT_NONE;
}

void vb_roce_path_entered(struct vb_qp *qp, enum ibv_qp_state cur, enum ibv_qp_state next)
{
	struct vb_roce_path *w = qp->roce;

	if (!w)
		return;
	if (cur == IBV_QPS_SQE && qp->type == IBV_QPT_UC)
		revive_requester(qp);
	configure_engine(qp);
	if (qp->type == IBV_QPT_UD)
		return;
	if (next == IBV_QPS_RTS && (cur == IBV_QPS_RTR || cur == IBV_QPS_SQE))
		vb_roce_start(&w->q);
	vb_roce_pause(&w->q, next == IBV_QPS_SQD);
	if (next == IBV_QPS_SQD && cur == IBV_QPS_SQD) /* IBV_QP_AV */
		fill_address(qp, &w->to);
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

static void set_due(struct vb_qp *qp, uint64_t at)
{
	atomic_store(&qp->due, at);
	if (!at)
		return;
	if (!atomic_load_explicit(&qp->on_active, memory_order_relaxed))
		vb_active_add(qp);
	vb_timer_at(qp->node, at);
}

/* Adds the MIDDLE packets that follow, as many as fit in the same send. */
static void emit_more(struct vb_roce_path *w, struct vb_roce_out *out)
{
	uint32_t mtu = w->q.cfg.mtu, n;

	while (out->run.left > 1 && (n = vb_tx_more(w->tx, &w->to, VB_BTH_LEN + mtu))) {
		out->packet = vb_tx_room(w->tx);
		w->laying = out->packet;
		w->laying_apart = VB_BTH_LEN + mtu + VB_ICRC_LEN;
		for (uint32_t i = 0; i < n; i++)
			w->laid[i].at = NULL;
		n = out->packet ? vb_roce_output_more(&w->q, out, n, w->laying_apart) : 0;
		if (!n)
			break;
		vb_tx_add_more(w->tx, n, VB_BTH_LEN + mtu, w->laid);
	}
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
static void emit_packets(struct vb_qp *qp, uint64_t now)
{
	struct vb_roce_path *w = qp->roce;
	bool paced = qp->type == IBV_QPT_UC;
	uint32_t bytes = 0;
	struct vb_roce_out out;
	bool all = true, sends = true; /* sends: all requests so far are sends */

	vb_roce_path_locked(w);
	out.run.left = 0;
	if (paced && now < w->next_burst) {
		set_due(qp, w->next_burst);
		return;
	}
	if (!vb_tx_begin(w->tx, qp)) {
		set_due(qp, now + VB_TX_AGAIN);
		return;
	}
	for (;;) {
		out.packet = paced && bytes > UC_BURST ? NULL : vb_tx_room(w->tx);
		if (!out.packet) {
			all = false;
			break;
		}
		w->laying = out.packet;
		w->laying_apart = UINT32_MAX;
		w->laid[0].at = NULL;
		if (!vb_roce_output(&w->q, &out, now))
			break;
		if (out.opcode == VB_RC_ACK && sends)
			vb_tx_add_ahead(w->tx, &w->to, out.header_len);
		else
			vb_tx_add(w->tx, &w->to, out.header_len, out.header_len + out.payload_len + out.pad, w->laid);
		sends = sends && is_send(out.opcode);
		bytes += out.payload_len;
		if (!paced)
			emit_more(w, &out);
	}
	all = vb_tx_end(w->tx) && all;
	if (qp->type == IBV_QPT_UC)
		vb_roce_sent(&w->q);
	if (paced && bytes > UC_BURST)
		w->next_burst = now + UC_PERIOD;
	set_due(qp, all ? vb_roce_deadline(&w->q) : paced && bytes > UC_BURST ? w->next_burst : now + VB_TX_AGAIN);
}

void vb_roce_last_words(struct vb_qp *qp)
{
	if (!qp->roce || qp->type == IBV_QPT_UD || qp->roce->q.dead)
		return;
	vb_roce_pause(&qp->roce->q, true); /* send no new requests */
	vb_roce_ack_now(&qp->roce->q);
	emit_packets(qp, vb_now());
}

/* Moves the queue pair to the error state if its engine has failed. Under progress + sq_lock. */
static void roce_settle(struct vb_qp *qp)
{
	struct vb_context *ctx = vb_ctx(qp->qp.context);
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
	struct vb_roce_path *w = qp->roce;
	const struct vb_roce_requester *rq = &w->q.rq;

	w->train = now - w->kicked_at < TRAIN_GAP ? w->train + 1 : 0;
	w->kicked_at = now;
	if (w->train < TRAIN_MIN || qp->type != IBV_QPT_RC || rq->una == rq->seq)
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

static enum vb_sq_status roce_kick(struct vb_qp *qp)
{
	uint64_t now = vb_now(), due = atomic_load_explicit(&qp->due, memory_order_relaxed);

	atomic_store_explicit(&qp->sq_pending, qp->sq_head - qp->sq_una, memory_order_relaxed);
	if (answers_by_send(qp))
		vb_roce_ack_all(&qp->roce->q);
	if (waits_for_more(qp, now)) {
		set_due(qp, due && due < now + TRAIN_GAP ? due : now + TRAIN_GAP);
		return VB_SQ_GOOD;
	}
	vb_roce_ack_now(&qp->roce->q);
	emit_packets(qp, now);
	return qp->roce->failed ? VB_SQ_FAILED : VB_SQ_GOOD;
}

static unsigned roce_visit(struct vb_qp *qp, bool finish)
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

struct vb_qp *vb_find_roce_receiver(struct vb_node *node, uint32_t qpn)
{
	struct vb_qp *qp = atomic_load_explicit(&node->qps[VB_QP_INDEX(qpn)], memory_order_relaxed);

	return qp && qp->qp.qp_num == qpn && qp->roce ? qp : NULL;
}

bool vb_roce_path_middle(struct vb_qp *qp, const uint8_t *bytes, size_t len, uint16_t port, uint64_t now)
{
	struct vb_roce_path *w = qp->roce;

	return w && !w->failed && atomic_load_explicit(&qp->state, memory_order_relaxed) >= IBV_QPS_RTR &&
	       vb_roce_input_middle(&w->q, bytes, len, port, now);
}

void vb_roce_path_input(struct vb_qp *qp, const struct vb_packet *p, const uint8_t *payload,
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

void vb_roce_path_answer(struct vb_qp *qp, uint64_t now, bool crowded)
{
	if (qp->type == IBV_QPT_UD)
		return;
	vb_lock(&qp->sq_lock);
	struct vb_roce_path *w = qp->roce;

	if (crowded && qp->type == IBV_QPT_UC)
		vb_roce_congested(&w->q, now);
	if (qp->sq_emit == qp->sq_head && vb_roce_silent(&w->q, now) && !vb_tx_waits(w->tx))
		set_due(qp, vb_roce_deadline(&w->q));
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
        .last_words = vb_roce_last_words,
        .next_psns = roce_next_psns,
        .reset = vb_roce_path_reset,
};

/* --- datagrams --- */

static struct vb_tx *tx_of_datagram(struct vb_qp *qp, const struct vb_swqe *w)
{
	return vb_tx_of(qp->node->io->roce, qp->qp.qp_num, w->ud_qpn);
}

static void build_datagram(struct vb_qp *qp, const struct vb_swqe *w, uint8_t *to, size_t *header_len, size_t *len)
{
	bool imm = w->opcode == IBV_WR_SEND_WITH_IMM;
	struct vb_writer out = vb_writer(to, VB_ROCE_MAX_HEADER);
	struct vb_packet p = {
	        .bth = {.opcode = imm ? VB_UD_SEND_ONLY_IMM : VB_UD_SEND_ONLY,
	                .pad = vb_pad_count(w->length),
	                .solicited = w->flags & IBV_SEND_SOLICITED,
	                .migreq = true,
	                .pkey = VB_DEFAULT_PKEY,
	                .dest_qpn = w->ud_qpn,
	                .psn = vb_psn(w->psn)},
	        .deth = {w->ud_qkey & VB_QKEY_CONTROLLED ? qp->attr.qkey : w->ud_qkey, qp->qp.qp_num}, /* IBA 10.2.5 */
	        .immdt = {ntohl(w->imm)}};

	vb_packet_encode(&out, &p);
	*header_len = out.pos;
	*len = out.pos + w->length + p.bth.pad;
	memset(to + out.pos + w->length, 0, p.bth.pad);
}

enum vb_datagram_result vb_roce_datagram(struct vb_qp *qp, struct vb_swqe *w)
{
	struct vb_tx *tx;
	struct vb_roce_addr to;
	struct iovec iov[VB_MAX_SGE + 1];
	size_t header_len, len;
	int n;

	if (!atomic_load_explicit(&qp->node->io->roce->up, memory_order_acquire))
		return VB_DATAGRAM_LOST;
	n = vb_gather(qp, w, 0, iov);
	if (n < 0)
		return VB_DATAGRAM_FAULT;
	tx = tx_of_datagram(qp, w);
	if (qp->datagram.tx_open != tx) {
		vb_roce_datagrams_end(qp);
		if (!vb_tx_begin(tx, qp))
			return VB_DATAGRAM_WAIT;
		qp->datagram.tx_open = tx;
	}
	uint8_t *room = vb_tx_room(tx);

	if (!room)
		return VB_DATAGRAM_WAIT;
	build_datagram(qp, w, room, &header_len, &len);
	if (!vb_copy_from(iov, n, 0, room + header_len, w->length))
		return VB_DATAGRAM_FAULT;
	address_from_ah(&to, qp, &w->ah->sgid, &w->ah->attr);
	vb_tx_add(tx, &to, header_len, len, NULL);
	return VB_DATAGRAM_SENT;
}

void vb_roce_datagrams_end(struct vb_qp *qp)
{
	struct vb_tx *tx = qp->datagram.tx_open;

	qp->datagram.tx_open = NULL;
	if (tx)
		vb_tx_end(tx);
}
