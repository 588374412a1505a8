// datagram.c - sends UD datagrams as RoCE packets
// follows: IBA volume 1, 9.8.3, 10.2.5; annex A17 (RoCEv2)
// SPDX-License-Identifier: MIT
#include <arpa/inet.h>
#include <string.h>

#include "path/roce/roce.h"

#include "core/sq.h"
#include "engine/local/local.h"
#include "frame/segment.h"
#include "util/guard.h"

#define AGAIN VB_MS(1) /* ns; pause before a sleeping program retries datagrams that the kernel did not accept */

static struct vb_tx *tx_of_datagram(struct vb_qp *qp, const struct vb_swqe *w)
{
	return vb_tx_of(vb_roce_sockets_for(qp), qp->qp.qp_num, w->ud_qpn);
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
	                .pkey = qp->roce->q.cfg.pkey,
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

	if (!atomic_load_explicit(&vb_roce_sockets_for(qp)->up, memory_order_acquire))
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
	vb_roce_address(&to, qp, &w->ah->sgid, &w->ah->attr);
	uint8_t *room = vb_tx_room(tx, &to);

	if (!room)
		return VB_DATAGRAM_WAIT;
	build_datagram(qp, w, room, &header_len, &len);
	if (!vb_copy_from(iov, n, 0, room + header_len, w->length))
		return VB_DATAGRAM_FAULT;
	vb_tx_add(tx, &to, header_len, len, NULL);
	return VB_DATAGRAM_SENT;
}

void vb_roce_datagrams_end(struct vb_qp *qp)
{
	struct vb_tx *tx = qp->datagram.tx_open;

	qp->datagram.tx_open = NULL;
	if (!tx || vb_tx_end(tx))
		return;
	/* their requests complete now, and perhaps the queue pair never sends again */
	vb_roce_datagrams_left(vb_roce_sockets_for(qp));
}

static atomic_uint *users_of(struct vb_roce_sockets *s)
{
	return &s->node->io->transport[s->framed ? VB_TRANSPORT_IB : VB_TRANSPORT_ROCE].users;
}

void vb_roce_datagrams_left(struct vb_roce_sockets *s)
{
	if (!atomic_exchange(&s->datagrams_wait, true))
		atomic_fetch_add(users_of(s), 1);
	vb_timer_at(s->node, vb_now() + AGAIN);
}

uint64_t vb_roce_datagrams_due(const struct vb_roce_sockets *s)
{
	bool wait = atomic_load_explicit(&s->datagrams_wait, memory_order_relaxed);

	return wait && atomic_load_explicit(&s->up, memory_order_relaxed) ? vb_now() + AGAIN : 0;
}

void vb_roce_datagrams_again(struct vb_roce_sockets *s)
{
	bool wait = false;

	if (!atomic_exchange(&s->datagrams_wait, false))
		return;
	for (unsigned i = 0; i < VB_TX_COUNT; i++)
		wait |= !vb_tx_push(s->tx[i]);
	if (!wait || atomic_exchange(&s->datagrams_wait, true)) /* else they stay a user */
		atomic_fetch_sub(users_of(s), 1);
}
