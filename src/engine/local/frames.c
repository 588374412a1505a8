// frames.c - shows a capture the traffic between programs of this host as the packets that a network would carry
// follows: IBA volume 1, 9.7 (segmentation, PSNs, acknowledgements); docs/capture.md
// SPDX-License-Identifier: MIT
#include "engine/local/frames.h"

#include <arpa/inet.h>
#include <stdlib.h>
#include <string.h>

#include "capture/capture.h"
#include "core/device.h"
#include "core/opcode.h"
#include "core/pd.h"
#include "core/place.h"
#include "frame/fields.h"
#include "frame/segment.h"

#define PKEY 0xffff

/*
 * Messages between programs of one host have one PSN each, packets on a network too. So the packets have PSNs of their
 * own here, which begin at the queue pair's. The requester shows its requests and the answers to them, because it alone
 * knows these PSNs, and because one-copy operations have no other witness.
 */
struct vb_local_frames {
	struct vb_flow there, back;
	struct vb_ip_fields ip;
	uint32_t mtu;
	struct vb_psn psn; /* of the next request that is shown for the first time */
	uint32_t msn;
	struct shown {
		uint32_t index; /* of the request, like sq_emit */
		bool used, answered;
		struct vb_psn psn;
	} of[]; /* by slot */
};

/* --- start and end --- */

static struct vb_flow shown_flow(const union ibv_gid *src, const union ibv_gid *dst, uint32_t qpn, uint32_t other_qpn)
{
	if (vb_gid_is_ipv4(src->raw) != vb_gid_is_ipv4(dst->raw)) /* the default GID of lo, and an address */
		src = dst;
	return vb_roce_flow(src->raw, dst->raw, vb_flow_label_sport(vb_flow_label_of_qps(qpn, other_qpn)));
}

static bool fill_flow(struct vb_qp *qp, struct vb_local_frames *f)
{
	const struct ibv_ah_attr *ah = &qp->attr.ah_attr;
	struct vb_device *dev = vb_qp_device(qp);
	union ibv_gid sgid;

	if (!dev || vb_query_gid_at(dev, 1, ah->grh.sgid_index, &sgid))
		return false;
	f->there = shown_flow(&sgid, &ah->grh.dgid, qp->qp.qp_num, qp->attr.dest_qp_num);
	f->back = vb_roce_flow(f->there.dst, f->there.src, f->there.sport);
	f->ip = (struct vb_ip_fields){.traffic_class = ah->grh.traffic_class,
	                              .hop_limit = ah->grh.hop_limit ? ah->grh.hop_limit : 64};
	return true;
}

void vb_local_frames_open(struct vb_qp *qp)
{
	struct vb_local_frames *f = qp->local.frames;

	if (qp->type == IBV_QPT_UD) {
		qp->datagram.shown = true;
		return;
	}
	if (!f)
		f = calloc(1, sizeof(*f) + (qp->sq_mask + 1u) * sizeof(f->of[0]));
	if (!f)
		return;
	qp->local.frames = f;
	memset(f->of, 0, (qp->sq_mask + 1u) * sizeof(f->of[0]));
	f->mtu = 128u << qp->attr.path_mtu;
	f->psn = vb_psn(qp->attr.sq_psn + (uint32_t)qp->local.ssn_emit);
	f->msn = (uint32_t)qp->local.ssn_una;
	if (fill_flow(qp, f))
		qp->local.owed |= VB_LOCAL_SHOWN;
}

void vb_local_frames_close(struct vb_qp *qp)
{
	qp->datagram.shown = false;
	qp->local.owed &= ~VB_LOCAL_SHOWN;
}

void vb_local_frames_free(struct vb_qp *qp)
{
	vb_local_frames_close(qp);
	free(qp->local.frames);
	qp->local.frames = NULL;
}

/* --- requests --- */

static struct shown *shown_at(struct vb_qp *qp, uint32_t i)
{
	struct shown *s = &qp->local.frames->of[i & qp->sq_mask];

	return s->used && s->index == i ? s : NULL;
}

static enum vb_service service_of(const struct vb_qp *qp)
{
	return qp->type == IBV_QPT_UC ? VB_SVC_UC : qp->type == IBV_QPT_XRC_SEND ? VB_SVC_XRC : VB_SVC_RC;
}

static bool message_of(const struct vb_qp *qp, const struct vb_swqe *w, struct vb_message *m)
{
	*m = (struct vb_message){.service = service_of(qp),
	                         .xrceth = {qp->type == IBV_QPT_XRC_SEND ? qp->xrc.srqns[w - qp->swqe] : 0},
	                         .length = w->length,
	                         .mtu = qp->local.frames->mtu,
	                         .dest_qpn = qp->attr.dest_qp_num,
	                         .pkey = PKEY,
	                         .solicited = w->flags & IBV_SEND_SOLICITED,
	                         .reth = {w->remote_addr, w->rkey, w->length},
	                         .last = ntohl(w->imm)};
	switch (w->opcode) {
	case IBV_WR_SEND_WITH_INV:
		m->tail = VB_EXT_IETH;
		m->last = w->imm;
		break;
	case IBV_WR_SEND_WITH_IMM:
		m->tail = VB_EXT_IMMDT;
		break;
	case IBV_WR_SEND:
		break;
	case IBV_WR_RDMA_WRITE_WITH_IMM:
		m->tail = VB_EXT_IMMDT;
		m->op = VB_OP_WRITE;
		return true;
	case IBV_WR_RDMA_WRITE:
		m->op = VB_OP_WRITE;
		return true;
	case IBV_WR_RDMA_READ:
		m->op = VB_OP_READ;
		return true;
	case IBV_WR_ATOMIC_CMP_AND_SWP:
		m->op = VB_OP_CMP_SWAP;
		m->atomic = (struct vb_atomic){w->remote_addr, w->rkey, w->swap, w->compare_add};
		return true;
	case IBV_WR_ATOMIC_FETCH_AND_ADD:
		m->op = VB_OP_FETCH_ADD;
		m->atomic = (struct vb_atomic){w->remote_addr, w->rkey, w->compare_add, 0};
		return true;
	case IBV_WR_ATOMIC_WRITE:
		m->op = VB_OP_ATOMIC_WRITE;
		return true;
	case VB_IBV_WR_FLUSH:
		m->op = VB_OP_FLUSH;
		m->feth = vb_swqe_feth(w);
		m->reth.length = (uint32_t)w->swap;
		return true;
	default:
		return false;
	}
	m->op = VB_OP_SEND;
	return true;
}

/* Shows a request that was sent at this time. Repeated requests keep their PSNs. */
static void show_request(struct vb_qp *qp, const struct vb_swqe *w, uint64_t time)
{
	const struct vb_capture_of of = {.direction = VB_CAPTURE_OUT, .time = time, .qpn = qp->qp.qp_num};
	struct vb_local_frames *f = qp->local.frames;
	struct shown *s = shown_at(qp, qp->sq_emit);
	struct iovec iov[VB_MAX_SGE + 1];
	struct vb_message m;

	if (!message_of(qp, w, &m))
		return;
	if (!s) {
		s = &f->of[qp->sq_emit & qp->sq_mask];
		*s = (struct shown){.index = qp->sq_emit, .used = true, .psn = f->psn};
		f->psn = vb_psn_add(f->psn, (int32_t)vb_message_psns(&m));
	}
	m.psn = s->psn;
	int n = m.op == VB_OP_SEND || m.op == VB_OP_WRITE ? vb_gather(qp, w, 0, iov) : 0;

	if (m.op == VB_OP_ATOMIC_WRITE)
		iov[n++] = (struct iovec){(void *)(uintptr_t)&w->swap, sizeof(w->swap)};
	vb_capture_message(&of, &f->there, &f->ip, &m, iov, n < 0 ? 0 : n);
}

/* --- answers --- */

static void show_answer(struct vb_qp *qp, struct vb_message *m, const struct iovec *iov, int n)
{
	const struct vb_local_frames *f = qp->local.frames;
	const struct vb_capture_of of = {.direction = VB_CAPTURE_IN, .time = vb_capture_now(), .qpn = qp->qp.qp_num};

	m->service = service_of(qp);
	m->mtu = f->mtu;
	m->pkey = PKEY;
	m->dest_qpn = qp->qp.qp_num;
	m->aeth.msn = f->msn & VB_PSN_MASK;
	vb_capture_message(&of, &f->back, &f->ip, m, iov, n);
}

static void show_ack(struct vb_qp *qp, struct vb_psn last)
{
	struct vb_message m = {
	        .op = VB_OP_ACK, .psn = last, .aeth = {.kind = VB_AETH_ACK, .value = VB_CREDITS_UNLIMITED}};

	show_answer(qp, &m, NULL, 0);
}

/* The answer to a read, an atomic, a flush or an atomic write. */
static void show_data(struct vb_qp *qp, const struct vb_swqe *w, struct vb_psn psn)
{
	struct vb_message m = {.psn = psn, .aeth = {.kind = VB_AETH_ACK, .value = VB_CREDITS_UNLIMITED}};
	struct iovec iov[VB_MAX_SGE + 1];
	int n = 0;

	if (w->opcode == IBV_WR_RDMA_READ) {
		m.op = VB_OP_READ_RESPONSE;
		m.length = w->length;
		n = vb_gather(qp, w, 0, iov);
	} else if (w->opcode == IBV_WR_ATOMIC_WRITE || w->opcode == VB_IBV_WR_FLUSH) {
		m.op = VB_OP_READ_RESPONSE; /* of 0 bytes */
	} else {
		m.op = VB_OP_ATOMIC_ACK;
		m.atomic_ack.original = atomic_load_explicit(
		        &qp->local.remote->atomic_result[w->slot % VB_RD_ATOM_SLOTS], memory_order_relaxed);
	}
	show_answer(qp, &m, iov, n < 0 ? 0 : n);
}

/* Has the request an answer of its own, not just an acknowledgement? */
static bool brings_data(const struct vb_swqe *w)
{
	return w->opcode == IBV_WR_RDMA_READ || w->opcode == IBV_WR_ATOMIC_CMP_AND_SWP ||
	       w->opcode == IBV_WR_ATOMIC_FETCH_AND_ADD || w->opcode == IBV_WR_ATOMIC_WRITE ||
	       w->opcode == VB_IBV_WR_FLUSH;
}

/* Will vb_local_retire_done complete this request? *ssn counts like local.ssn_una. */
static bool has_succeeded(const struct vb_qp *qp, const struct vb_swqe *w, uint64_t *ssn)
{
	if (w->state == VB_SWQE_SENT)
		return w->opcode != IBV_WR_RDMA_READ && (*ssn)++ < qp->local.acked_seen;
	if (w->state != VB_SWQE_DONE || w->status != IBV_WC_SUCCESS)
		return false;
	*ssn += w->slot && (w->opcode == IBV_WR_RDMA_READ || w->opcode == IBV_WR_RDMA_WRITE);
	return true;
}

void vb_local_show_answers(struct vb_qp *qp)
{
	struct vb_local_frames *f = qp->local.frames;
	uint64_t ssn = qp->local.ssn_una;
	struct vb_psn last = {0};
	bool acks = false;

	for (uint32_t i = qp->sq_una; i != qp->sq_emit; i++) {
		const struct vb_swqe *w = vb_sq_at(qp, i);
		struct shown *s = shown_at(qp, i);
		struct vb_message m;

		if (!has_succeeded(qp, w, &ssn))
			break;
		if (!s || s->answered || !vb_qp_is_reliable(qp) || !message_of(qp, w, &m))
			continue;
		s->answered = true;
		if (brings_data(w) && acks)
			show_ack(qp, last); /* of the requests before this one */
		f->msn++;
		acks = !brings_data(w);
		if (brings_data(w))
			show_data(qp, w, s->psn);
		else
			last = vb_psn_add(s->psn, (int32_t)vb_message_psns(&m) - 1);
	}
	if (acks)
		show_ack(qp, last);
}

void vb_local_show_nak(struct vb_qp *qp, enum vb_ring_nak code, uint64_t taken)
{
	const struct shown *s = shown_at(qp, qp->sq_una + (uint32_t)(taken - qp->local.ssn_una));
	struct vb_message m = {.op = VB_OP_ACK, .aeth = {.kind = VB_AETH_NAK}};

	if (!s)
		return;
	m.psn = s->psn;
	switch (code) {
	case VB_RING_NAK_RNR:
		m.aeth.kind = VB_AETH_RNR_NAK;
		m.aeth.value = atomic_load_explicit(&qp->local.remote->min_rnr_timer, memory_order_relaxed) & 31;
		break;
	case VB_RING_NAK_INV_REQ:
		m.aeth.value = VB_NAK_INVALID_REQUEST;
		break;
	case VB_RING_NAK_ACCESS:
		m.aeth.value = VB_NAK_REMOTE_ACCESS;
		break;
	case VB_RING_NAK_OP:
		m.aeth.value = VB_NAK_REMOTE_OPERATIONAL;
		break;
	default: /* the requester's own memory was at fault, which a network would not show */
		return;
	}
	show_answer(qp, &m, NULL, 0);
}

/* --- one request; one datagram --- */

enum vb_emit vb_local_emit_shown(struct vb_qp *qp, struct vb_swqe *w)
{
	uint64_t time = vb_capture_now();
	enum vb_emit r = vb_local_emit_one(qp, w);

	if (r == VB_EMIT_OK && vb_capturing())
		show_request(qp, w, time);
	return r;
}

void vb_local_show_datagram(struct vb_qp *qp, const struct vb_swqe *w, uint32_t qkey, const struct iovec *iov, int n)
{
	const struct ibv_global_route *route = &w->ah->attr.grh;
	const struct vb_capture_of of = {.direction = VB_CAPTURE_OUT, .time = vb_capture_now(), .qpn = qp->qp.qp_num};
	const struct vb_message m = {.service = VB_SVC_UD,
	                             .op = VB_OP_SEND,
	                             .tail = w->opcode == IBV_WR_SEND_WITH_IMM ? VB_EXT_IMMDT : 0,
	                             .length = w->length,
	                             .mtu = VB_PAYLOAD_MAX,
	                             .dest_qpn = w->ud_qpn,
	                             .psn = vb_psn(w->psn),
	                             .pkey = PKEY,
	                             .solicited = w->flags & IBV_SEND_SOLICITED,
	                             .deth = {qkey, qp->qp.qp_num},
	                             .last = ntohl(w->imm)};
	struct vb_ip_fields ip = {.traffic_class = route->traffic_class,
	                          .hop_limit = route->hop_limit ? route->hop_limit : 64,
	                          .flow_label = route->flow_label & VB_FLOW_LABEL_MASK};
	struct vb_flow flow = shown_flow(&w->ah->sgid, &route->dgid, qp->qp.qp_num, w->ud_qpn);

	vb_capture_message(&of, &flow, &ip, &m, iov, n);
}
