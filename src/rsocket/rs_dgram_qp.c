// rs_dgram_qp.c - the UD queue pair of one local address
// follows: rdma-core docs/rsocket ("Datagram Overview"); rdma_cm(7)
// SPDX-License-Identifier: MIT
#include "rsocket/rs_dgram.h"

#include <stdlib.h>
#include <string.h>
#include <sys/epoll.h>

enum { STRIDE = RS_UD_GRH + RS_UD_MAX };

int rs_dqp_post(struct rs_dqp *qp, struct rs_gram *slot)
{
	uint32_t at = (uint32_t)(slot - qp->grams);
	struct ibv_sge sge = {(uintptr_t)qp->recv_buf + at * STRIDE, STRIDE, qp->recv_mr->lkey};
	struct ibv_recv_wr wr = {.wr_id = rs_wr_id(RS_WR_RECV, at), .sg_list = &sge, .num_sge = 1}, *bad;

	slot->qp = qp;
	slot->data = qp->recv_buf + at * STRIDE + RS_UD_GRH;
	return ibv_post_recv(qp->id->qp, &wr, &bad);
}

static int open_id(struct rs_dqp *qp)
{
	qp->cm = rdma_create_event_channel();
	if (!qp->cm || rdma_create_id(qp->cm, &qp->id, qp, RDMA_PS_UDP))
		return errno;
	if (rdma_bind_addr(qp->id, &qp->local.sa))
		return errno;
	return qp->id->verbs ? 0 : ENODEV;
}

static int open_qp(struct rs_dqp *qp, struct rs_dgram *d, uint32_t inline_size)
{
	struct ibv_qp_init_attr attr = {.qp_type = IBV_QPT_UD,
	                                .sq_sig_all = 1,
	                                .cap = {.max_send_wr = d->sq,
	                                        .max_recv_wr = d->rq,
	                                        .max_send_sge = 1,
	                                        .max_recv_sge = 1,
	                                        .max_inline_data = inline_size}};
	struct ibv_port_attr port;

	qp->channel = ibv_create_comp_channel(qp->id->verbs);
	if (!qp->channel)
		return errno;
	qp->cq = ibv_create_cq(qp->id->verbs, (int)(d->sq + d->rq), qp, qp->channel, 0);
	if (!qp->cq)
		return errno;
	attr.send_cq = attr.recv_cq = qp->cq;
	if (rdma_create_qp(qp->id, NULL, &attr) || ibv_query_port(qp->id->verbs, qp->id->port_num, &port))
		return errno;
	qp->inline_max = attr.cap.max_inline_data;
	qp->mtu = 128u << port.active_mtu;
	if (qp->mtu > RS_UD_MAX)
		qp->mtu = RS_UD_MAX;
	return 0;
}

static int open_memory(struct rs_dqp *qp, struct rs_dgram *d)
{
	size_t len = (size_t)d->rq * STRIDE;

	qp->grams = calloc(d->rq, sizeof(*qp->grams));
	qp->recv_buf = rs_pages(len);
	if (!qp->grams || !qp->recv_buf)
		return ENOMEM;
	qp->recv_mr = ibv_reg_mr(qp->id->qp->pd, qp->recv_buf, len, IBV_ACCESS_LOCAL_WRITE);
	qp->send_mr = ibv_reg_mr(qp->id->qp->pd, d->send_buf, (size_t)d->sq * RS_UD_MAX, IBV_ACCESS_LOCAL_WRITE);
	return qp->recv_mr && qp->send_mr ? 0 : errno;
}

static void close_dqp(struct rs_dqp *qp)
{
	if (qp->id && qp->id->qp)
		rdma_destroy_qp(qp->id);
	if (qp->recv_mr)
		ibv_dereg_mr(qp->recv_mr);
	if (qp->send_mr)
		ibv_dereg_mr(qp->send_mr);
	if (qp->cq)
		ibv_destroy_cq(qp->cq);
	if (qp->channel)
		ibv_destroy_comp_channel(qp->channel);
	if (qp->id)
		rdma_destroy_id(qp->id);
	if (qp->cm)
		rdma_destroy_event_channel(qp->cm);
	free(qp->recv_buf);
	free(qp->grams);
	free(qp);
}

static int create_dqp(struct rsocket *rs, struct rs_dqp *qp)
{
	struct rs_dgram *d = rs->dgram;
	struct epoll_event ev = {.events = EPOLLIN};
	int err = open_id(qp);

	if (!err)
		err = open_qp(qp, d, rs->config.inline_size);
	if (!err)
		err = open_memory(qp, d);
	if (!err && epoll_ctl(d->epfd, EPOLL_CTL_ADD, qp->channel->fd, &ev))
		err = errno;
	for (uint32_t i = 0; !err && i < d->rq; i++)
		err = rs_dqp_post(qp, &qp->grams[i]);
	/* A thread may already wait for datagrams of this queue pair. */
	if (!err)
		qp->armed = !ibv_req_notify_cq(qp->cq, 0);
	return err;
}

int rs_dqp_get(struct rsocket *rs, const union rs_addr *local, struct rs_dqp **out)
{
	struct rs_dqp *qp;
	int err;

	for (qp = rs->dgram->qps; qp && !rs_addr_equal(&qp->local, local); qp = qp->next)
		;
	*out = qp;
	if (qp)
		return 0;
	qp = calloc(1, sizeof(*qp));
	if (!qp)
		return ENOMEM;
	qp->local = *local;
	err = create_dqp(rs, qp);
	if (err) {
		close_dqp(qp);
		return err;
	}
	qp->next = rs->dgram->qps;
	*out = rs->dgram->qps = qp;
	rs->dgram->qp_count++;
	return 0;
}

void rs_dqp_drop_all(struct rsocket *rs)
{
	struct rs_dqp *qp, *next;

	for (qp = rs->dgram->qps; qp; qp = next) {
		next = qp->next;
		close_dqp(qp);
	}
	rs->dgram->qps = NULL;
	rs->dgram->qp_count = 0;
}
