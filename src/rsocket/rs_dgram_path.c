// rs_dgram_path.c - where datagrams go: destinations, the UDP socket that finds their queue pairs, their paths
// follows: rdma-core docs/rsocket ("Datagram Overview", "UDP Message Format")
// SPDX-License-Identifier: MIT
#include "rsocket/rs_dgram.h"
#include "util/units.h"

#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#define SURE_NS VB_S(1)
#define GIVE_UP_NS VB_MS(100)
#define ASKED_NS VB_S(1)

static bool is_any_address(const union rs_addr *a)
{
	if (a->sa.sa_family == AF_INET)
		return a->sin.sin_addr.s_addr == htonl(INADDR_ANY);
	return IN6_IS_ADDR_UNSPECIFIED(&a->sin6.sin6_addr);
}

/* Every header contains the port, so this binds one if necessary. */
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

/* Finds the local address for packets to this destination in the routing table. */
static int source_for(struct rsocket *rs, const union rs_addr *to, union rs_addr *out)
{
	socklen_t len = sizeof(*out);
	in_port_t port;
	int fd, err = local_name(rs, out);

	if (err || !is_any_address(out))
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

static void stop_looking(struct rs_dgram *d, struct rs_dest *t)
{
	struct rs_dest **at = &d->looking;

	if (!t->id)
		return;
	while (*at != t)
		at = &(*at)->look_next;
	*at = t->look_next;
	if (d->look_last == &t->look_next)
		d->look_last = at;
	d->look_ups--;
	rdma_destroy_id(t->id);
	t->id = NULL;
}

static void drop_dest(struct rs_dgram *d, struct rs_dest *t)
{
	stop_looking(d, t);
	if (t->ah)
		ibv_destroy_ah(t->ah);
	free(t);
}

void rs_dest_drop_all(struct rsocket *rs)
{
	struct rs_dgram *d = rs->dgram;
	struct rs_dest *t, *next;

	for (t = d->dests; t; t = next) {
		next = t->next;
		drop_dest(d, t);
	}
	d->dests = NULL;
	d->dest_count = 0;
	memset(d->asked, 0, sizeof(d->asked)); /* the entries name queue pairs */
	if (!d->look_cm)
		return;
	rs_service_del(d->look_cm->fd);
	rdma_destroy_event_channel(d->look_cm);
	d->look_cm = NULL;
}

/*
 * Bounds the addresses that are remembered for a program that answers any sender. Drops the destination unused for
 * longest, first among those without a known path.
 */
static void evict_dest(struct rs_dgram *d)
{
	struct rs_dest **at, **victim = NULL, *t;

	if (d->dest_count < RS_DESTS_MAX)
		return;
	for (at = &d->dests; *at; at = &(*at)->next)
		if (!(*at)->in_flight && (!victim || (*victim)->ah || !(*at)->ah))
			victim = at;
	if (!victim)
		return;
	t = *victim;
	*victim = t->next;
	d->dest_count--;
	drop_dest(d, t);
}

static struct rs_dest *find_dest(struct rs_dgram *d, const union rs_addr *addr)
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

	*out = find_dest(d, addr);
	if (*out)
		return 0;
	err = source_for(rs, addr, &local);
	if (!err)
		err = rs_dqp_get(rs, &local, &qp);
	if (err)
		return err;
	evict_dest(d);
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

static ssize_t udp_send(struct rsocket *rs, const union rs_addr *to, struct rs_dqp *from, struct rs_cursor *c,
                        unsigned op, int flags)
{
	struct rs_udp_header h = {.op = op, .qpn = from->id->qp->qp_num, .local = from->local};
	struct iovec iov[9];
	uint8_t head[RS_UDP_HEADER_MAX], *flat = NULL;
	struct msghdr msg = {.msg_name = (void *)to, .msg_namelen = rs_addr_len(to), .msg_iov = iov, .msg_iovlen = 1};
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

ssize_t rs_udp_send(struct rsocket *rs, struct rs_dest *to, struct rs_cursor *c, unsigned op, int flags)
{
	return udp_send(rs, &to->addr, to->qp, c, op, flags);
}

static bool open_look_ups(struct rsocket *rs)
{
	struct rs_dgram *d = rs->dgram;

	if (d->look_cm)
		return true;
	d->look_cm = rdma_create_event_channel();
	if (d->look_cm && !rs_service_add(rs, RS_WATCH_PATH, d->look_cm->fd))
		return true;
	if (d->look_cm)
		rdma_destroy_event_channel(d->look_cm);
	d->look_cm = NULL;
	return false;
}

/* Gives up the oldest look-up, because a reachable peer answers at once. Does so at intervals, because its thread goes
 * on asking for some seconds. */
static bool room_to_look_up(struct rs_dgram *d)
{
	uint64_t now;

	if (d->look_ups < RS_LOOK_UPS_MAX)
		return true;
	now = rs_now();
	if (now < d->gave_up + GIVE_UP_NS)
		return false;
	d->gave_up = now;
	stop_looking(d, d->looking);
	return true;
}

/*
 * Asks rdma_cm for the path to a queue pair's address; rs_dgram_path_ready continues. Until then UDP carries the data.
 * All look-ups share one channel.
 */
static void look_up(struct rsocket *rs, struct rs_dest *t)
{
	union rs_addr from = t->qp->local;
	struct rs_dgram *d = rs->dgram;

	if (t->ah || t->id || !open_look_ups(rs) || !room_to_look_up(d))
		return;
	rs_addr_set_port(&from, 0);
	if (rdma_create_id(d->look_cm, &t->id, t, RDMA_PS_UDP)) {
		t->id = NULL;
		return;
	}
	t->look_next = NULL;
	*d->look_last = t;
	d->look_last = &t->look_next;
	d->look_ups++;
	if (rdma_resolve_addr(t->id, &from.sa, &t->addr.sa, 2000))
		stop_looking(d, t);
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

/* True if the look-up has ended. */
static bool lookup_step(struct rs_dest *t, enum rdma_cm_event_type what)
{
	if (what == RDMA_CM_EVENT_ADDR_RESOLVED)
		return rdma_resolve_route(t->id, 2000) != 0;
	if (what == RDMA_CM_EVENT_ROUTE_RESOLVED)
		found_way(t);
	return what != RDMA_CM_EVENT_ADDR_CHANGE;
}

void rs_dgram_path_ready(struct rsocket *rs)
{
	struct rs_dgram *d = rs->dgram;
	enum rdma_cm_event_type what;
	struct rdma_cm_event *ev;
	struct rs_dest *t;

	vb_mutex_lock(&rs->lock, VB_RANK_RS);
	while (!rs->closed && d->look_cm) {
		struct pollfd p = {.fd = d->look_cm->fd, .events = POLLIN};

		if (poll(&p, 1, 0) <= 0 || rdma_get_cm_event(d->look_cm, &ev))
			break;
		t = ev->id->context;
		what = ev->event;
		rdma_ack_cm_event(ev);
		if (lookup_step(t, what))
			stop_looking(d, t);
	}
	vb_mutex_unlock(&rs->lock);
}

/*
 * A datagram from this address names a queue pair, but it may be forged. A peer repeats its number whenever data
 * arrives by UDP. So a second number is believed only after data went there by UDP and no other number arrived for a
 * second.
 */
static void qpn_told(struct rs_dest *t, uint32_t qpn)
{
	if (!qpn || t->qpn == qpn)
		return;
	t->doubted = t->qpn;
	t->sure_at = 0;
	t->qpn = qpn;
}

bool rs_dest_has_ud(struct rs_dest *t)
{
	if (t->ah && t->doubted) {
		if (!t->sure_at)
			t->sure_at = rs_now() + SURE_NS;
		else
			t->doubted = rs_now() < t->sure_at;
	}
	return t->ah && !t->doubted;
}

/* Queues a datagram that came by UDP. The last quarter of the queue is for the program's own peers, so unknown senders
 * cannot fill it. */
static void keep_gram(struct rsocket *rs, bool known_peer, const union rs_addr *from, const uint8_t *data, size_t len)
{
	struct rs_dgram *d = rs->dgram;
	struct rs_gram *g;

	if (d->by_udp >= (known_peer ? d->rq : d->rq - d->rq / 4))
		return;
	g = malloc(sizeof(*g) + len);
	if (!g)
		return;
	*g = (struct rs_gram){.from = *from, .data = (uint8_t *)(g + 1), .len = (uint32_t)len};
	memcpy(g->data, data, len);
	d->by_udp++;
	rs_gram_queue(rs, g);
}

static struct rs_dqp *qp_towards(struct rsocket *rs, const union rs_addr *to)
{
	struct rs_dgram *d = rs->dgram;
	union rs_addr local;
	struct rs_dqp *qp;

	if (source_for(rs, to, &local))
		return NULL;
	for (qp = d->qps; qp && !rs_addr_equal(&qp->local, &local); qp = qp->next)
		;
	if (!qp && (d->qp_count >= RS_UNASKED_QPS || rs_dqp_get(rs, &local, &qp)))
		return NULL;
	return qp;
}

/* Tells an unknown sender of data our queue pair. All that is stored is an entry of a fixed table, which other senders
 * may overwrite. */
static void answer_stranger(struct rsocket *rs, const union rs_addr *from)
{
	const uint8_t *raw = (const uint8_t *)from;
	struct rs_asked *a;
	uint64_t now = rs_now();
	uint32_t at = 0;

	for (size_t i = 0; i < rs_addr_len(from); i++)
		at = at * 31 + raw[i];
	a = &rs->dgram->asked[at % RS_ASKED];
	if (!rs_addr_equal(&a->addr, from) || now >= a->until)
		*a = (struct rs_asked){.addr = *from, .qp = qp_towards(rs, from), .until = now + ASKED_NS};
	if (a->qp)
		udp_send(rs, from, a->qp, NULL, RS_CONTROL, MSG_DONTWAIT);
}

static void udp_arrived(struct rsocket *rs, const union rs_addr *from, const uint8_t *data, size_t len)
{
	struct rs_udp_header h;
	size_t head = rs_udp_decode(&h, data, len, from->sa.sa_family);
	struct rs_dest *t = head ? find_dest(rs->dgram, from) : NULL;

	if (!head)
		return;
	if (t) {
		if (h.op == RS_DATA)
			rs_udp_send(rs, t, NULL, RS_CONTROL, MSG_DONTWAIT);
		qpn_told(t, h.qpn);
		if (t->qpn)
			look_up(rs, t);
	} else if (h.op == RS_DATA) {
		answer_stranger(rs, from);
	}
	if (h.op == RS_DATA)
		keep_gram(rs, t, from, data + head, len - head);
}

void rs_dgram_udp_ready(struct rsocket *rs)
{
	static uint8_t buf[RS_UDP_MAX]; /* used by the service thread only */
	union rs_addr from;
	socklen_t len;
	ssize_t n;

	vb_mutex_lock(&rs->lock, VB_RANK_RS);
	for (int i = 0; i < 16 && !rs->closed; i++) {
		len = sizeof(from);
		memset(&from, 0, sizeof(from));
		n = recvfrom(rs->fd, buf, sizeof(buf), MSG_DONTWAIT, &from.sa, &len);
		if (n < 0)
			break;
		udp_arrived(rs, &from, buf, (size_t)n);
	}
	vb_mutex_unlock(&rs->lock);
}
