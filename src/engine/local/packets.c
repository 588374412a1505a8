// packets.c - the packets that messages through shared memory would be on an InfiniBand fabric: for the counters of its ports
// follows: IBA volume 1, 5.2 (packet formats), 9.2 to 9.4 (transport headers), 16.1.3.5 (PortXmitData)
// SPDX-License-Identifier: MIT
#include "core/ib.h"
#include "core/node.h"
#include "engine/local/requester.h"
#include "frame/fields.h"
#include "frame/net.h"

/* Bytes: without VCRC, which the counters leave out. */
enum { LRH = 8, BTH = 12, DETH = 8, RETH = 16, AETH = 4, IMMDT = 4, ATOMIC = 28, ATOMIC_ACK = 8, ICRC = 4, WORD = 8 };

enum { THERE, BACK };

static void grow(_Atomic uint64_t *sum, uint64_t by)
{
	atomic_store_explicit(sum, atomic_load_explicit(sum, memory_order_relaxed) + by, memory_order_relaxed);
}

static void add(struct vb_qp *qp, int dir, uint64_t packets, uint64_t bytes)
{
	grow(&qp->local.sent_by->packets[dir], packets);
	grow(&qp->local.sent_by->bytes[dir], bytes);
}

/* Something was counted: the progress thread tells the fabric process of it. */
static void traffic_moves(struct vb_node *node)
{
	if (__builtin_expect(atomic_load_explicit(&node->traffic_rests, memory_order_relaxed), 0) &&
	    atomic_exchange(&node->traffic_rests, false))
		vb_timer_armed(node);
}

static uint32_t padded(uint32_t length)
{
	return (length + 3) & ~3u;
}

/* deviates: an adapter may acknowledge several messages by one packet; here each has its own. */
void vb_local_count_packets(struct vb_qp *qp, const struct vb_swqe *w)
{
	uint32_t head = LRH + (qp->attr.ah_attr.is_global ? VB_GRH_LEN : 0) + BTH + ICRC;
	uint32_t mtu = 128u << qp->attr.path_mtu, n = w->length > mtu ? (w->length + mtu - 1) / mtu : 1;
	bool imm = w->opcode == IBV_WR_SEND_WITH_IMM || w->opcode == IBV_WR_RDMA_WRITE_WITH_IMM ||
	           w->opcode == IBV_WR_SEND_WITH_INV;

	if (vb_local_needs_no_peer(w))
		return;
	if (w->opcode == IBV_WR_RDMA_READ) {
		add(qp, THERE, 1, head + RETH);
		add(qp, BACK, n, (uint64_t)n * head + (n > 1 ? 2 : 1) * AETH + padded(w->length));
	} else if (vb_local_is_atomic(w)) {
		add(qp, THERE, 1, head + ATOMIC);
		add(qp, BACK, 1, head + AETH + ATOMIC_ACK);
	} else if (vb_local_is_placed(w)) {
		add(qp, THERE, 1, head + RETH + WORD);
		add(qp, BACK, 1, head + AETH);
	} else {
		bool write = w->opcode == IBV_WR_RDMA_WRITE || w->opcode == IBV_WR_RDMA_WRITE_WITH_IMM;

		add(qp, THERE, n, (uint64_t)n * head + (write ? RETH : 0) + (imm ? IMMDT : 0) + padded(w->length));
		if (vb_qp_is_reliable(qp))
			add(qp, BACK, 1, head + AETH);
	}
	traffic_moves(qp->node);
}

void vb_local_count_datagram(struct vb_qp *qp, const struct vb_swqe *w)
{
	struct vb_ib_way *way = w->ah->way;
	uint32_t head = LRH + (w->ah->attr.is_global ? VB_GRH_LEN : 0) + BTH + DETH + ICRC;

	if (w->opcode == IBV_WR_SEND_WITH_IMM)
		head += IMMDT;
	if (!way->sent)
		return;
	atomic_fetch_add_explicit(&way->sent->packets[THERE], 1, memory_order_relaxed);
	atomic_fetch_add_explicit(&way->sent->bytes[THERE], head + padded(w->length), memory_order_relaxed);
	traffic_moves(qp->node);
}
