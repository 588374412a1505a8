// rs_dgram_path.c - where datagrams go: destinations, the UDP socket that finds their queue pairs, the way there
// follows: rdma-core docs/rsocket ("Datagram Overview", "UDP Message Format")
// SPDX-License-Identifier: MIT
#include "rsocket/rs_dgram.h"

#include <stdlib.h>
#include <string.h>
#include <unistd.h>

static bool anywhere(const union rs_addr *a)
{
	if (a->sa.sa_family == AF_INET)
		return a->sin.sin_addr.s_addr == htonl(INADDR_ANY);
	return IN6_IS_ADDR_UNSPECIFIED(&a->sin6.sin6_addr);
}

/* The port stands in every header, so there must be one. */
static int local_name(struct rsocket *rs, union rs_addr *out)
{
	union rs_addr any = {.sa.sa_family = (sa_family_t)rs->domain};
	socklen_t len = sizeof(*out);

	if (getsockname(rs->fd, &out->sa, &len))
		return errno;
	if (rs_addr_port(out))
		return 0;
	if (bind(rs->fd, &any.sa, rs_addr_len(&any)))
		return errno;
	len = sizeof(*out);
	return getsockname(rs->fd, &out->sa, &len) ? errno : 0;
}

/* The local address that packets to this destination leave from: the routing table knows. */
static int source_for(struct rsocket *rs, const union rs_addr *to, union rs_addr *out)
{
	socklen_t len = sizeof(*out);
	in_port_t port;
	int fd, err = local_name(rs, out);

	if (err || !anywhere(out))
		return err;
	port = rs_addr_port(out);
	fd = rs_plain_socket(to->sa.sa_family);
	if (fd < 0)
		return errno;
	memset(out, 0, sizeof(*out));
	if (connect(fd, &to->sa, rs_addr_len(to)) || getsockname(fd, &out->sa, &len))
		err = errno;
	close(fd);
	rs_addr_set_port(out, port);
	return err;
}

static void stop_looking(struct rs_dest *t)
{
	if (t->cm)
		rs_service_del(t->cm->fd);
	if (t->id)
		rdma_destroy_id(t->id);
	if (t->cm)
		rdma_destroy_event_channel(t->cm);
	t->id = NULL;
	t->cm = NULL;
}

static void drop(struct rs_dest *t)
{
	stop_looking(t);
	if (t->ah)
		ibv_destroy_ah(t->ah);
	free(t);
}

void rs_dest_drop_all(struct rsocket *rs)
{
	struct rs_dest *t, *next;

	for (t = rs->dgram->dests; t; t = next) {
		next = t->next;
		drop(t);
	}
	rs->dgram->dests = NULL;
}

/* Strangers can make us remember addresses; not without end. The one unused for longest goes. */
static void make_room(struct rs_dgram *d)
{
	struct rs_dest **at, **victim = NULL, *t;

	if (d->dest_count < RS_DESTS_MAX)
		return;
	for (at = &d->dests; *at; at = &(*at)->next)
		if (!(*at)->in_flight)
			victim = at;
	if (!victim)
		return;
	t = *victim;
	*victim = t->next;
	d->dest_count--;
	drop(t);
}

static struct rs_dest *known(struct rs_dgram *d, const union rs_addr *addr)
{
	struct rs_dest **at, *t;

	for (at = &d->dests; *at && !rs_addr_equal(&(*at)->addr, addr); at = &(*at)->next)
		;
	t = *at;
	if (t && at != &d->dests) {
		*at = t->next;
		t->next = d->dests;
		d->dests = t;
	}
	return t;
}

int rs_dest_get(struct rsocket *rs, const union rs_addr *addr, struct rs_dest **out)
{
	struct rs_dgram *d = rs->dgram;
	union rs_addr local;
	struct rs_dest *t;
	struct rs_dqp *qp;
	int err;

	*out = known(d, addr);
	if (*out)
		return 0;
	err = source_for(rs, addr, &local);
	if (!err)
		err = rs_dqp_get(rs, &local, &qp);
	if (err)
		return err;
	make_room(d);
	t = calloc(1, sizeof(*t));
	if (!t)
		return ENOMEM;
	t->addr = *addr;
	t->qp = qp;
	t->next = d->dests;
	d->dests = *out = t;
	d->dest_count++;
	return 0;
}

ssize_t rs_udp_send(struct rsocket *rs, struct rs_dest *to, struct rs_cursor *c, unsigned op, int flags)
{
	struct rs_udp_header h = {.op = op, .qpn = to->qp->id->qp->qp_num, .local = to->qp->local};
	struct iovec iov[9];
	uint8_t head[RS_UDP_HEADER_MAX], *flat = NULL;
	struct msghdr msg = {
	        .msg_name = &to->addr, .msg_namelen = rs_addr_len(&to->addr), .msg_iov = iov, .msg_iovlen = 1};
	size_t len = rs_udp_encode(head, &h);
	ssize_t n;

	iov[0] = (struct iovec){head, len};
	if (c && c->left + len > RS_UDP_MAX)
		return rs_fail(EMSGSIZE);
	if (c && c->left) {
		flat = malloc(c->left);
		if (!flat)
			return -1;
		iov[1] = (struct iovec){flat, c->left};
		msg.msg_iovlen = 2;
		rs_cursor_get(c, flat, c->left);
	}
	n = sendmsg(rs->fd, &msg, (flags & (MSG_DONTWAIT | MSG_DONTROUTE)) | MSG_NOSIGNAL);
	free(flat);
	return n < 0 ? -1 : n - (ssize_t)len;
}

/* Asks rdma_cm for the way to a queue pair's address; rs_dgram_path_ready goes on. Until then UDP carries the data. */
static void look_up(struct rsocket *rs, struct rs_dest *t)
{
	union rs_addr from = t->qp->local;

	if (t->ah || t->cm)
		return;
	rs_addr_set_port(&from, 0);
	t->cm = rdma_create_event_channel();
	if (!t->cm || rdma_create_id(t->cm, &t->id, t, RDMA_PS_UDP) || rs_service_add(rs, RS_WATCH_PATH, t->cm->fd) ||
	    rdma_resolve_addr(t->id, &from.sa, &t->addr.sa, 2000))
		stop_looking(t);
}

static uint8_t gid_index(struct ibv_context *verbs, uint8_t port, const union ibv_gid *gid)
{
	struct ibv_port_attr attr;
	struct ibv_gid_entry e;
	int found = -1;

	if (ibv_query_port(verbs, port, &attr))
		return 0;
	for (int i = 0; i < attr.gid_tbl_len && i < 256; i++) {
		if (ibv_query_gid_ex(verbs, port, (uint32_t)i, &e, 0) || memcmp(&e.gid, gid, sizeof(*gid)))
			continue;
		if (found < 0 || e.gid_type == IBV_GID_TYPE_ROCE_V2)
			found = i;
		if (e.gid_type == IBV_GID_TYPE_ROCE_V2)
			break;
	}
	return found < 0 ? 0 : (uint8_t)found;
}

static void found_way(struct rs_dest *t)
{
	const struct ibv_sa_path_rec *p = t->id->route.path_rec;
	struct ibv_ah_attr attr = {.port_num = t->id->port_num};
	struct ibv_port_attr port;

	if (!p || t->id->route.num_paths < 1 || !t->qp->id->qp || ibv_query_port(t->id->verbs, t->id->port_num, &port))
		return;
	attr.is_global = p->hop_limit > 1 || port.link_layer == IBV_LINK_LAYER_ETHERNET;
	attr.grh.dgid = p->dgid;
	attr.grh.flow_label = ntohl(p->flow_label);
	attr.grh.sgid_index = gid_index(t->id->verbs, t->id->port_num, &p->sgid);
	attr.grh.hop_limit = p->hop_limit > 1 ? p->hop_limit : 64;
	attr.grh.traffic_class = p->traffic_class;
	attr.dlid = ntohs(p->dlid);
	attr.sl = p->sl;
	attr.src_path_bits = (uint8_t)(ntohs(p->slid) & ((1u << port.lmc) - 1));
	attr.static_rate = p->rate;
	t->ah = ibv_create_ah(t->qp->id->qp->pd, &attr);
}

/* true: the search is over. */
static bool step(struct rs_dest *t)
{
	struct pollfd p = {.fd = t->cm->fd, .events = POLLIN};
	enum rdma_cm_event_type what;
	struct rdma_cm_event *ev;

	if (poll(&p, 1, 0) <= 0 || rdma_get_cm_event(t->cm, &ev))
		return false;
	what = ev->event;
	rdma_ack_cm_event(ev);
	if (what == RDMA_CM_EVENT_ADDR_RESOLVED)
		return rdma_resolve_route(t->id, 2000) != 0;
	if (what == RDMA_CM_EVENT_ROUTE_RESOLVED)
		found_way(t);
	return true;
}

void rs_dgram_path_ready(struct rsocket *rs)
{
	pthread_mutex_lock(&rs->lock);
	for (struct rs_dest *t = rs->closed ? NULL : rs->dgram->dests; t; t = t->next)
		if (t->cm && step(t))
			stop_looking(t);
	pthread_mutex_unlock(&rs->lock);
}

static void keep(struct rsocket *rs, const union rs_addr *from, const uint8_t *data, size_t len)
{
	struct rs_gram *g;

	if (rs->dgram->by_udp >= rs->dgram->rq)
		return;
	g = malloc(sizeof(*g) + len);
	if (!g)
		return;
	*g = (struct rs_gram){.from = *from, .data = (uint8_t *)(g + 1), .len = (uint32_t)len};
	memcpy(g->data, data, len);
	rs->dgram->by_udp++;
	rs_gram_queue(rs, g);
}

static void arrived(struct rsocket *rs, const union rs_addr *from, const uint8_t *data, size_t len)
{
	struct rs_udp_header h;
	size_t head = rs_udp_decode(&h, data, len, from->sa.sa_family);
	struct rs_dest *t;

	if (!head)
		return;
	if (!rs_dest_get(rs, from, &t)) {
		if (h.op == RS_DATA)
			rs_udp_send(rs, t, NULL, RS_CONTROL, MSG_DONTWAIT);
		t->qpn = h.qpn;
		look_up(rs, t);
	}
	if (h.op == RS_DATA)
		keep(rs, from, data + head, len - head);
}

void rs_dgram_udp_ready(struct rsocket *rs)
{
	static uint8_t buf[RS_UDP_MAX]; /* of the service thread */
	union rs_addr from;
	socklen_t len;
	ssize_t n;

	pthread_mutex_lock(&rs->lock);
	for (int i = 0; i < 16 && !rs->closed; i++) {
		len = sizeof(from);
		memset(&from, 0, sizeof(from));
		n = recvfrom(rs->fd, buf, sizeof(buf), MSG_DONTWAIT, &from.sa, &len);
		if (n < 0)
			break;
		arrived(rs, &from, buf, (size_t)n);
	}
	pthread_mutex_unlock(&rs->lock);
}
