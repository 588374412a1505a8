// rdma.c - queues over RDMA: sends capsules, receives answers; the table of functions
// follows: NVMe over Fabrics 1.1, 7.3 (RDMA transport binding)
// SPDX-License-Identifier: MIT
#include "client/rdma.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#define BATCH 32
#define ANSWER (1ull << 32) /* in wr_id: a receive, not a send */

unsigned vn_rdma_kinds(void)
{
	int n = 0, iwarp = 0;
	struct ibv_device **all = ibv_get_device_list(&n);

	for (int i = 0; all && i < n; i++)
		iwarp += all[i]->transport_type == IBV_TRANSPORT_IWARP;
	if (all)
		ibv_free_device_list(all);
	return !all || !n ? 0 : iwarp && iwarp < n ? 2 : 1;
}

/* ---- output ---- */

/* An adapter that was removed ends the connection, which leaves its commands to the next one. */
static void cannot_register(struct vn_rdma_queue *r, struct vn_cmd *c, int error)
{
	if (error == EIO || error == ENODEV) {
		vn_queue_break(&r->q, error, "registering memory: %s", strerror(error));
		return;
	}
	c->cqe = (struct nv_cqe){.status = VN_STATUS_NO_MEMORY};
	vn_cmd_complete(&r->q, c);
}

bool vn_rdma_reach(struct vn_rdma_queue *r, struct vn_cmd *c, uint64_t *address, uint32_t *key)
{
	struct ibv_mr *mr = c->memory ? c->memory->mr[r->device] : NULL;

	*address = (uintptr_t)c->data;
	if (!mr && c->length <= VN_RDMA_BOUNCE && r->n_bounces) {
		c->rdma.bounce = r->bounces[--r->n_bounces];
		*address = (uintptr_t)c->rdma.bounce;
		mr = r->mr;
		if (c->way == VN_TO_TARGET) {
			memcpy(c->rdma.bounce, c->data, c->length);
			r->q.copied += c->length;
		}
	}
	if (!mr)
		mr = c->rdma.once =
		        ibv_reg_mr(vn_rdma_pd(r), c->data, c->length,
		                   c->way == VN_TO_TARGET ? IBV_ACCESS_REMOTE_READ
		                                          : IBV_ACCESS_LOCAL_WRITE | IBV_ACCESS_REMOTE_WRITE);
	if (!mr) {
		cannot_register(r, c, errno);
		return false;
	}
	*key = mr->rkey;
	return true;
}

void vn_rdma_inside(struct vn_rdma_queue *r, struct vn_cmd *c, struct ibv_send_wr *w, uint8_t *message, uint32_t head)
{
	struct ibv_mr *mr = c->memory ? c->memory->mr[r->device] : NULL;

	w->sg_list[0].length = head;
	if (mr) {
		w->sg_list[1] = (struct ibv_sge){.addr = (uintptr_t)c->data, .length = c->length, .lkey = mr->lkey};
		w->num_sge = 2;
		return;
	}
	memcpy(message + head, c->data, c->length);
	r->q.copied += c->length;
	w->sg_list[0].length += c->length;
}

void vn_rdma_kick(struct vn_queue *q)
{
	struct vn_rdma_queue *r = vn_rdma_of(q);
	struct ibv_send_wr *bad;

	if (!r->n_sends || q->error)
		return;
	r->sends[r->n_sends - 1].next = NULL;
	r->n_sends = 0;
	int e = ibv_post_send(r->id->qp, r->sends, &bad);

	if (e)
		vn_queue_break(q, e < 0 ? -e : e, "posting a send: %s", strerror(e < 0 ? -e : e));
}

struct ibv_send_wr *vn_rdma_prepare(struct vn_rdma_queue *r, uint64_t wr_id, const uint8_t *at, uint32_t len)
{
	struct ibv_sge *sge = r->at[r->n_sends];
	struct ibv_send_wr *w = &r->sends[r->n_sends];

	sge[0] = (struct ibv_sge){.addr = (uintptr_t)at, .length = len, .lkey = r->mr->lkey};
	*w = (struct ibv_send_wr){.wr_id = wr_id,
	                          .next = w + 1,
	                          .sg_list = sge,
	                          .num_sge = 1,
	                          .opcode = IBV_WR_SEND,
	                          .send_flags = IBV_SEND_SIGNALED};
	return w;
}

void vn_rdma_post(struct vn_rdma_queue *r)
{
	if (++r->n_sends == VN_RDMA_CHAIN)
		vn_rdma_kick(&r->q);
}

static void rdma_submit(struct vn_queue *q, struct vn_cmd *c)
{
	struct vn_rdma_queue *r = vn_rdma_of(q);
	uint8_t *capsule = vn_rdma_message(r, c->cid & q->mask);
	struct ibv_send_wr *w = vn_rdma_prepare(r, c->cid, capsule, NV_SQE_LEN);
	struct nv_sqe s = c->sqe;

	memset(&c->rdma, 0, sizeof(c->rdma));
	s.cid = c->cid;
	s.psdt = NV_PSDT_SGL;
	s.sgl = (struct nv_sgl){.type = NV_SGL_KEYED};
	if (c->way == VN_TO_TARGET && c->length <= q->inline_max) {
		s.sgl = (struct nv_sgl){.type = NV_SGL_DATA, .subtype = NV_SGL_OFFSET, .length = c->length};
		vn_rdma_inside(r, c, w, capsule, NV_SQE_LEN);
	} else if (c->way != VN_NO_DATA) {
		s.sgl.length = c->length;
		if (!vn_rdma_reach(r, c, &s.sgl.address, &s.sgl.key))
			return;
	}
	nv_sqe_encode(&s, capsule);
	vn_rdma_post(r);
}

/* ---- input ---- */

bool vn_rdma_receive(struct vn_rdma_queue *r, unsigned slot)
{
	uint32_t len = r->binding->answer;
	struct ibv_sge sge = {.addr = (uintptr_t)r->answers + slot * len, .length = len, .lkey = r->mr->lkey};
	struct ibv_recv_wr w = {.wr_id = ANSWER | slot, .sg_list = &sge, .num_sge = 1}, *bad;

	return !ibv_post_recv(r->id->qp, &w, &bad);
}

void vn_rdma_maybe_over(struct vn_rdma_queue *r, struct vn_cmd *c)
{
	if (c->answered && c->rdma.send_done)
		r->binding->over(r, c);
}

static void rdma_over(struct vn_rdma_queue *r, struct vn_cmd *c)
{
	vn_cmd_complete(&r->q, c);
}

static void take_answer(struct vn_rdma_queue *r, unsigned slot, uint32_t length)
{
	struct nv_cqe e = nv_cqe_decode(r->answers + slot * NV_CQE_LEN);
	struct vn_cmd *c = length == NV_CQE_LEN ? vn_queue_find(&r->q, e.cid) : NULL;

	if (!c || c->answered) {
		vn_queue_break(&r->q, EPROTO, "the target sent an answer to no command");
		return;
	}
	if (!vn_rdma_receive(r, slot)) {
		vn_queue_break(&r->q, EIO, "posting a receive");
		return;
	}
	c->cqe = e;
	c->answered = true;
	vn_rdma_maybe_over(r, c);
}

static void take_completion(struct vn_rdma_queue *r, const struct ibv_wc *w)
{
	struct vn_cmd *c;

	if (w->status != IBV_WC_SUCCESS) {
		vn_queue_break(&r->q, ECONNRESET, "by RDMA: %s", ibv_wc_status_str(w->status));
	} else if (w->wr_id & ANSWER) {
		r->binding->received(r, (unsigned)w->wr_id, w->byte_len);
	} else if (w->wr_id & VN_RDMA_OWN) {
		r->binding->sent(r, (unsigned)w->wr_id);
	} else if ((c = vn_queue_find(&r->q, (uint16_t)w->wr_id))) {
		c->rdma.send_done = true;
		vn_rdma_maybe_over(r, c);
	}
}

static bool drain_cq(struct vn_rdma_queue *r)
{
	struct ibv_wc w[BATCH];
	bool any = false;
	int n = 0;

	while (!r->q.error && (n = ibv_poll_cq(r->cq, BATCH, w)) > 0) {
		any = true;
		for (int i = 0; i < n && !r->q.error; i++)
			take_completion(r, &w[i]);
	}
	if (n < 0)
		vn_queue_break(&r->q, EIO, "ibv_poll_cq");
	return any;
}

static void take_cq_event(struct vn_rdma_queue *r)
{
	struct ibv_cq *cq;
	void *context;

	if (ibv_get_cq_event(r->channel, &cq, &context))
		return;
	r->armed = false;
	if (++r->unacknowledged >= 64) {
		ibv_ack_cq_events(cq, r->unacknowledged);
		r->unacknowledged = 0;
	}
}

void vn_rdma_progress(struct vn_queue *q)
{
	struct vn_rdma_queue *r = vn_rdma_of(q);

	if (q->error)
		return;
	if (r->armed)
		take_cq_event(r);
	drain_cq(r);
}

bool vn_rdma_arm(struct vn_queue *q)
{
	struct vn_rdma_queue *r = vn_rdma_of(q);

	if (q->error)
		return false;
	vn_rdma_events(r);
	if (q->error)
		return true;
	if (!r->armed) {
		if (ibv_req_notify_cq(r->cq, 0))
			vn_queue_break(q, EIO, "ibv_req_notify_cq");
		r->armed = true;
	}
	return drain_cq(r) || q->error; /* completions from before the arming */
}

int vn_rdma_descriptors(const struct vn_queue *q, struct pollfd p[2])
{
	const struct vn_rdma_queue *r = (const struct vn_rdma_queue *)q;

	p[0] = (struct pollfd){.fd = r->channel->fd, .events = POLLIN};
	p[1] = (struct pollfd){.fd = r->events->fd, .events = POLLIN};
	return 2;
}

/* ---- closing ---- */

void vn_rdma_release(struct vn_queue *q, struct vn_cmd *c)
{
	struct vn_rdma_queue *r = vn_rdma_of(q);

	if (c->rdma.bounce) {
		if (c->answered && c->way == VN_FROM_TARGET) {
			memcpy(c->data, c->rdma.bounce, c->length);
			r->q.copied += c->length;
		}
		r->bounces[r->n_bounces++] = c->rdma.bounce;
	}
	if (c->rdma.once)
		ibv_dereg_mr(c->rdma.once);
	memset(&c->rdma, 0, sizeof(c->rdma));
}

/*
 * With iWARP a disconnected stream still delivers all its data. That must not overtake commands that are sent again on
 * another connection. So this changes the queue pair to ERR, which resets the stream.
 */
void vn_rdma_cut(struct vn_queue *q)
{
	struct vn_rdma_queue *r = vn_rdma_of(q);
	struct ibv_qp_attr a = {.qp_state = IBV_QPS_ERR};

	if (r->cut)
		return;
	r->cut = true;
	if (q->qid && q->busy)
		ibv_modify_qp(r->id->qp, &a, IBV_QP_STATE);
	rdma_disconnect(r->id);
	rdma_destroy_qp(r->id);
}

void vn_rdma_close(struct vn_queue *q)
{
	struct vn_rdma_queue *r = vn_rdma_of(q);

	if (r->id && r->id->qp)
		vn_rdma_cut(q);
	if (r->cq) {
		ibv_ack_cq_events(r->cq, r->unacknowledged);
		ibv_destroy_cq(r->cq);
	}
	if (r->channel)
		ibv_destroy_comp_channel(r->channel);
	if (r->mr)
		ibv_dereg_mr(r->mr);
	if (r->attached)
		vn_domain_leave(r->domain, r->device);
	if (r->id)
		rdma_destroy_id(r->id);
	if (r->events)
		rdma_destroy_event_channel(r->events);
	if (r->memory)
		vn_shared_free(r->memory, r->memory_length, r->memory_fd);
	vn_queue_fini(q);
	free(r);
}

/* ---- the binding of NVMe. Fabrics 1.1, 7.3.6 ---- */

#define PRIVATE_LEN 32
enum { P_RECFMT = 0, P_QID = 2, P_HRQSIZE = 4, P_HSQSIZE = 6, P_CNTLID = 8 };

static uint32_t ask_nvme(const struct vn_link *l, struct vn_rdma_queue *r, uint8_t private[VN_RDMA_PRIVATE])
{
	nv_put16(private + P_QID, r->q.qid);
	nv_put16(private + P_HRQSIZE, r->q.depth + 1);
	nv_put16(private + P_HSQSIZE, r->q.depth);
	nv_put16(private + P_CNTLID, r->q.qid ? l->cntlid : 0);
	return PRIVATE_LEN;
}

/* An answer without a record format is accepted. */
static int accepted_nvme(struct vn_link *l, struct vn_rdma_queue *r, const uint8_t *private, size_t length)
{
	if (!private || length < 2 || !nv_get16(private))
		return 0;
	vn_say(l->why, "%s port %s by RDMA: an unknown form of answer", l->host, l->service);
	return -EPROTO;
}

static const struct vn_rdma_binding nvme_binding = {.head = NV_SQE_LEN,
                                                    .room = 16,
                                                    .answer = NV_CQE_LEN,
                                                    .ask = ask_nvme,
                                                    .accepted = accepted_nvme,
                                                    .received = take_answer,
                                                    .over = rdma_over};

static int rdma_open(struct vn_link *l, uint16_t qid, uint16_t depth, struct vn_queue **q)
{
	struct vn_rdma_queue *r = calloc(1, sizeof(*r));
	int e;

	if (!r)
		return -ENOMEM;
	r->domain = l->domain;
	r->binding = &nvme_binding;
	r->q.inline_max = !qid ? 0 : l->inline_max < VN_RDMA_INLINE_MAX ? l->inline_max : VN_RDMA_INLINE_MAX;
	e = vn_queue_init(&r->q, &vn_rdma, qid, depth);
	if (!e)
		e = vn_rdma_connect(l, r);
	if (e)
		vn_rdma_close(&r->q);
	else
		*q = &r->q;
	return e;
}

const struct vn_transport vn_rdma = {
        .name = "rdma",
        .open = rdma_open,
        .submit = rdma_submit,
        .kick = vn_rdma_kick,
        .progress = vn_rdma_progress,
        .descriptors = vn_rdma_descriptors,
        .spins = true,
        .arm = vn_rdma_arm,
        .release = vn_rdma_release,
        .cut = vn_rdma_cut,
        .close = vn_rdma_close,
        .list = vn_discover_at,
        .associate = vn_nvme_associate,
        .keep_alive = vn_ctl_keep_alive,
        .look = vn_events_look,
        .shutdown = vn_ctl_shutdown,
};
