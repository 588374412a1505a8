// rate.c - the limit of a queue pair's rate: what may leave, and when
// follows: ibv_modify_qp_rate_limit(3)
// SPDX-License-Identifier: MIT
#include "core/rate.h"

#include "core/sq.h"

/* The default burst: what the link carries in a millisecond, because a thread may wake up late by a part of that; but not
 * less than a few packets. */
#define BURST_KBPS 8u /* kbit/s per byte of a millisecond */
#define BURST_PACKETS 16u

void vb_rate_set(struct vb_rate *r, uint32_t kbps, uint32_t burst, uint32_t typical, uint32_t packet, uint32_t mtu,
                 uint64_t now)
{
	uint32_t granted = r->granted;
	uint64_t busy_until = r->busy_until > now ? r->busy_until : now;

	*r = (struct vb_rate){.kbps = kbps, .typical = typical ? typical : mtu, .granted = granted};
	if (!kbps)
		return;
	if (!burst)
		burst = kbps / BURST_KBPS > BURST_PACKETS * r->typical ? kbps / BURST_KBPS : BURST_PACKETS * r->typical;
	r->burst = burst > packet ? burst : packet;
	/* what has left under another limit counts, but never more than a burst */
	uint64_t most = now + vb_rate_time(r, r->burst);

	r->busy_until = busy_until < most ? busy_until : most;
}

uint64_t vb_rate_ready(struct vb_rate *r, uint64_t bytes, uint64_t now)
{
	uint64_t time = vb_rate_time(r, bytes), burst = vb_rate_time(r, r->burst);

	if (r->busy_until < now && !(r->waits && time > burst))
		r->busy_until = now;
	uint64_t ready = r->busy_until + time;

	r->waits = ready > now + burst;
	return r->waits ? ready - burst : 0;
}

/* How many bytes a request counts. What sends nothing counts as none, and the data of a READ is the peer's to send. The
 * segments of TSO are counted one by one when they leave. */
static uint64_t bytes_of_request(const struct vb_qp *qp, const struct vb_swqe *w)
{
	uint64_t packets = 1;

	switch (w->opcode) {
	case IBV_WR_LOCAL_INV:
	case IBV_WR_BIND_MW:
	case IBV_WR_TSO:
		return 0;
	case IBV_WR_RDMA_READ:
		return VB_RATE_HEADERS;
	default:
		if (qp->type == IBV_QPT_RAW_PACKET)
			return w->length;
		if (w->length > qp->rate.typical)
			packets = (w->length + (uint64_t)qp->rate.typical - 1) / qp->rate.typical;
		return w->length + packets * VB_RATE_HEADERS;
	}
}

uint32_t vb_rate_grant(struct vb_qp *qp, uint32_t end)
{
	struct vb_rate *r = &qp->rate;
	uint64_t now = vb_now();

	if ((int32_t)(r->granted - qp->sq_emit) < 0) /* they were sent before there was a limit */
		r->granted = qp->sq_emit;
	r->due = 0;
	if (r->granted != qp->sq_emit) /* the path holds those up: while it does, time earns no more than a burst */
		return (int32_t)(end - r->granted) < 0 ? end : r->granted;
	while ((int32_t)(end - r->granted) > 0) {
		uint64_t bytes = bytes_of_request(qp, vb_sq_at(qp, r->granted));

		if ((r->due = vb_rate_ready(r, bytes, now)))
			return r->granted;
		vb_rate_take(r, bytes);
		r->granted++;
	}
	return end;
}

void vb_rate_forget(struct vb_qp *qp)
{
	struct vb_rate *r = &qp->rate;

	for (uint32_t i = qp->sq_emit; r->kbps && (int32_t)(r->granted - i) > 0; i++) {
		uint64_t time = vb_rate_time(r, bytes_of_request(qp, vb_sq_at(qp, i)));

		/* they may have cost less, if they were counted under a higher limit */
		r->busy_until = time < r->busy_until ? r->busy_until - time : 0;
	}
	r->granted = qp->sq_head;
	r->due = 0;
	r->waits = false;
}
