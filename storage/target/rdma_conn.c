// rdma_conn.c - a connection's queue pair and memory, opening and closing
// follows: NVMe over Fabrics 1.1, 7.3.4 (queue pairs), 7.3.6 (connections); rdma_accept(3)
// SPDX-License-Identifier: MIT
#include <netdb.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>

#include "nvme/rdma_choice.h"
#include "target/rdma_conn.h"

#define SENDS_SPARE 16u /* beyond one for each command */

static uint32_t min_sends(uint32_t a, uint32_t b)
{
	return a < b ? a : b;
}

static bool get_memory(struct nt_rconn *c, uint16_t qid)
{
	struct nt_rdma_device *d = c->device;
	size_t slots = 1 + (qid ? NT_IO_ENTRIES_MAX : NT_ADMIN_ENTRIES), page = NV_PAGE - 1;

	c->capsule = NV_SQE_LEN + (qid ? NT_RDMA_INLINE : 0);
	c->memory_len = ((size_t)c->depth * c->capsule + slots * NV_CQE_LEN + page) & ~page;
	if (c->memory_len > NT_RDMA_RINGS_MAX - d->rings)
		return false;
	c->held = calloc(c->depth, sizeof(*c->held));
	c->memory = mmap(NULL, c->memory_len, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
	if (c->memory == MAP_FAILED)
		c->memory = NULL;
	else
		d->rings += c->memory_len;
	if (!c->held || !c->memory)
		return false;
	c->mr = ibv_reg_mr(c->domain->pd, c->memory, c->memory_len, IBV_ACCESS_LOCAL_WRITE);
	return c->mr;
}

static bool make_pair(struct nt_rconn *c)
{
	const struct ibv_device_attr *a = &c->device->attr;
	/* each command needs a read first, then data and response; fewer entries only delay commands */
	uint32_t sends = min_sends(2u * c->depth + SENDS_SPARE, (uint32_t)a->max_qp_wr);

	if (sends < 2 || c->depth > a->max_qp_wr || (uint64_t)sends + c->depth + 1 > (uint64_t)a->max_cqe ||
	    a->max_sge < 1)
		return false;
	c->cq = ibv_create_cq(c->device->ctx, (int)(sends + c->depth + 1), c, c->device->channel, 0);
	if (!c->cq)
		return false;
	struct ibv_qp_init_attr q = {.send_cq = c->cq,
	                             .recv_cq = c->cq,
	                             .qp_type = IBV_QPT_RC,
	                             .cap = {.max_send_wr = sends,
	                                     .max_recv_wr = c->depth,
	                                     .max_send_sge = 1,
	                                     .max_recv_sge = 1,
	                                     .max_inline_data = NV_CQE_LEN}};
	struct ibv_qp_init_attr plain = q;

	if (rdma_create_qp(c->id, c->domain->pd, &q)) {
		plain.cap.max_inline_data = 0;
		q = plain;
		if (rdma_create_qp(c->id, c->domain->pd, &q))
			return false;
	}
	c->inline_send = q.cap.max_inline_data;
	c->room = sends;
	for (uint16_t i = 0; i < c->depth; i++)
		if (!nt_rconn_receive(c, i))
			return false;
	return !ibv_req_notify_cq(c->cq, 0);
}

static void name_rdma_ends(struct nt_rconn *c)
{
	struct sockaddr *own = rdma_get_local_addr(c->id), *peer = rdma_get_peer_addr(c->id);
	char host[256], service[32];

	if (own)
		getnameinfo(own, own->sa_family == AF_INET6 ? sizeof(struct sockaddr_in6) : sizeof(struct sockaddr_in),
		            c->q.address, sizeof(c->q.address), NULL, 0, NI_NUMERICHOST);
	if (peer &&
	    !getnameinfo(peer, peer->sa_family == AF_INET6 ? sizeof(struct sockaddr_in6) : sizeof(struct sockaddr_in),
	                 host, sizeof(host), service, sizeof(service), NI_NUMERICHOST | NI_NUMERICSERV))
		snprintf(c->q.peer, sizeof(c->q.peer), "%s port %s", host, service);
	snprintf(c->q.device, sizeof(c->q.device), "%s", ibv_get_device_name(c->id->verbs->device));
	c->q.way = nv_rdma_way(c->id);
}

static const struct nt_port *port_for(struct nt_rdma *p, struct rdma_cm_id *id)
{
	const struct sockaddr *own = rdma_get_local_addr(id);

	return p->port4.trtype && own && own->sa_family == AF_INET ? &p->port4 : &p->port;
}

static bool accept_it(struct nt_rconn *c, const struct rdma_conn_param *peer)
{
	uint8_t hello[NT_RDMA_HELLO_LEN];
	struct rdma_conn_param a = {.private_data = hello,
	                            .private_data_len = sizeof(hello),
	                            .initiator_depth = (uint8_t)min_sends(
	                                    peer->initiator_depth, (uint32_t)c->device->attr.max_qp_init_rd_atom),
	                            .responder_resources = (uint8_t)min_sends(peer->responder_resources,
	                                                                      (uint32_t)c->device->attr.max_qp_rd_atom),
	                            .flow_control = 1,
	                            .rnr_retry_count = 7};

	nt_rdma_accept_encode(c->depth, hello);
	return !rdma_accept(c->id, &a);
}

/* The core does not know the queue yet, or has closed it. */
void nt_rconn_close(struct nt_rconn *c)
{
	if (c->id) {
		if (c->id->qp)
			rdma_destroy_qp(c->id);
		c->id->context = NULL;
	}
	if (c->cq)
		ibv_destroy_cq(c->cq);
	if (c->mr)
		ibv_dereg_mr(c->mr);
	if (c->memory) {
		munmap(c->memory, c->memory_len);
		c->device->rings -= c->memory_len;
	}
	free(c->held);
	c->held = NULL;
	c->memory = NULL;
	c->mr = NULL;
	c->cq = NULL;
}

static bool get_domain(struct nt_rconn *c)
{
	c->domain = c->device->tells_sinks ? &c->own : &c->device->shared;
	return c->domain != &c->own || !nt_rdma_domain_open(c->device, c->rdma->target, &c->own);
}

void nt_rconn_leave(struct nt_rconn *c)
{
	nt_rdma_domain_close(c->device, &c->own);
}

enum nt_rdma_reason nt_rconn_open(struct nt_rdma *p, const struct nt_ops *ops, struct rdma_cm_id *id,
                                  const struct nt_rdma_hello *h, const struct rdma_conn_param *peer,
                                  struct nt_rconn **out)
{
	struct nt_rdma_device *device;

	if (nt_rdma_device_get(p->loop, p->target, id->verbs, &device))
		return NT_RDMA_NO_RESOURCES;
	if (!peer->initiator_depth) /* we could never read its data */
		return NT_RDMA_INVALID_IRD;
	struct nt_rconn *c = calloc(1, sizeof(*c));

	if (!c)
		return NT_RDMA_NO_RESOURCES;
	c->rdma = p;
	c->device = device;
	c->id = id;
	c->depth = h->hsqsize + 1;
	c->wait_end = &c->wait_first;
	c->began = p->target->now;
	c->armed = true;
	nt_queue_open(&c->q, p->target, ops, port_for(p, id), NT_RDMA_INLINE, NULL);
	name_rdma_ends(c);
	c->q.named = true; /* its send queue fits this number of entries only */
	c->q.name = h->qid;
	c->q.stable = device->no_maps;
	id->context = c;
	if (!nt_peer_join(&c->q, rdma_get_peer_addr(id)) || !get_domain(c) || !get_memory(c, h->qid) || !make_pair(c) ||
	    !accept_it(c, peer)) {
		nt_rconn_close(c);
		nt_rconn_leave(c);
		nt_peer_leave(&c->q);
		free(c);
		return NT_RDMA_NO_RESOURCES;
	}
	device->conns++;
	*out = c;
	return 0;
}
