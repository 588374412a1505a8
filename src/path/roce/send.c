// send.c - collects packets, adds their ICRC, and passes many to the kernel in one call
// follows: udp(7) (UDP_SEGMENT); IBA annex A17 (RoCEv2)
// SPDX-License-Identifier: MIT
#include <errno.h>
#include <netinet/in.h>
#include <netinet/udp.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

#include "capture/capture.h"
#include "frame/icrc.h"
#include "net/udp.h"
#include "net/udp_slots.h"
#include "path/roce/fault.h"
#include "path/roce/roce.h"
#include "util/calls.h"
#include "util/guard.h"
#include "util/log.h"

#ifndef UDP_SEGMENT
#define UDP_SEGMENT 103
#endif

/*
 * The stage is a buffer that holds packets one after another. Payload may stay in the program's memory: its part of the
 * stage is then a gap, and the kernel gathers the payload. If that memory changes between the sum and the send, the
 * ICRC is wrong, the peer drops the packet, and the requester retries it from a copy. So only packets that can be
 * retried are sent this way. The stage is reused after each send, so it stays in the processor's cache.
 */
#define BURST 2 /* full sends in the stage before it is sent; the kernel then runs the same code twice in a row */
#define STAGE ((BURST + 1) * 64u << 10) /* bytes; more than BURST sends, because a FIRST packet is longer */
#define FULL (STAGE - VB_ROCE_PACKET_MAX - VB_ICRC_LEN)
#define MESSAGES 32
#define SEGMENTS 64         /* the most segments of one send before Linux 6.9 */
#define DATAGRAM_MAX 65000u /* bytes of one send; with headers it must stay below 65,536 */
#define SNDBUF (4 << 20)
#define GAPS (STAGE / VB_TX_IN_PLACE_MIN)
#define SLOTS_AFTER 64 /* long sends of requests before memory for slots is taken */

/* One send: n packets of seg bytes to one address. The last may be shorter. */
struct message {
	uint32_t at, len;
	uint16_t seg, n;
	uint16_t gap, gaps; /* index of the first gap, and number of gaps */
	bool closed;
	bool requests; /* no responses, nothing repeated: the acknowledgement of its packets means that these have come */
	struct vb_roce_addr to;
};

/* Payload that stays in the program's memory. */
struct gap {
	uint32_t at, len;
	const uint8_t *from;
};

struct vb_tx {
	struct vb_lock lock;
	struct vb_roce_sockets *sockets;
	int fd[2]; /* IPv4, IPv6 */
	uint16_t sport[2];
	int hops[2];                    /* hop limits set on the sockets; -1: the kernel's default */
	uint8_t bound[2][VB_GID_LEN];   /* addresses that the sockets are bound to; zeros: none */
	uint16_t segment[2], wanted[2]; /* segment size set on the sockets, 0: none; that of the last send */
	bool no_gso;
	unsigned full; /* number of full sends in the stage; at BURST the stage is sent, while it is in the cache */
	uint32_t used;
	unsigned n, sent, gaps;
	atomic_bool waits;              /* the kernel did not accept all packets */
	struct vb_roce_fault *fault;    /* NULL: no rule acts on packets that are sent */
	struct vb_roce_fault *disarmed; /* kept for the next rule */
	const struct vb_qp *qp;         /* whose packets are added */
	uint32_t qpn;                   /* its number: it may end before packets that wait */
	struct vb_flow flow;            /* addresses and ports of the last message */
	struct vb_icrc_cache icrc;
	struct vb_icrc_known *known; /* cached parts of the ICRC for that flow, or NULL */
	struct message msg[MESSAGES];
	struct gap gap[GAPS];
	uint32_t long_sends;        /* of requests, until slots is asked for */
	bool no_slots;              /* the kernel has none */
	struct vb_udp_slots *slots; /* NULL: not needed yet */
	struct iovec pieces[2 * SEGMENTS + 1];
	uint8_t stage[STAGE + 64]; /* copies of 64 bytes may reach beyond the end */
};

struct vb_tx *vb_tx_new(struct vb_roce_sockets *s)
{
	struct vb_tx *tx = calloc(1, sizeof(*tx));

	if (!tx)
		return NULL;
	tx->sockets = s;
	vb_lock_init(&tx->lock, VB_RANK_TX);
	tx->fd[0] = tx->fd[1] = -1;
	tx->hops[0] = tx->hops[1] = -1;
	vb_tx_arm(tx, vb_fault_is_armed(VB_FAULT_ARM_ROCE_TX));
	return tx;
}

void vb_tx_free(struct vb_tx *tx)
{
	if (!tx)
		return;
	for (int i = 0; i < 2; i++)
		if (tx->fd[i] >= 0)
			close(tx->fd[i]);
	vb_udp_slots_free(tx->slots);
	vb_roce_fault_free(tx->fault);
	vb_roce_fault_free(tx->disarmed);
	free(tx);
}

struct vb_tx *vb_tx_of(struct vb_roce_sockets *s, uint32_t qpn, uint32_t dest_qpn)
{
	/* The destination's lane counts most, so that a flow has packets for one program only, which the kernel may
	 * merge. */
	return s->tx[(VB_QP_LANE(dest_qpn) * 5 + VB_QP_INDEX(qpn) + VB_QP_INDEX(dest_qpn)) % VB_TX_COUNT];
}

uint32_t vb_tx_burst(uint32_t len)
{
	uint32_t n = DATAGRAM_MAX / (len + VB_ICRC_LEN);

	return n < SEGMENTS ? n : SEGMENTS;
}

static bool needs_interface(const uint8_t *gid)
{
	return gid[0] == 0xff || (gid[0] == 0xfe && (gid[1] & 0xc0) == 0x80);
}

/* Binds the socket to the source of the first packet if it can: the sends from this address need not name it. */
static bool open_socket(struct vb_tx *tx, bool v6, const uint8_t *from)
{
	int size = SNDBUF, cancel, fd = -1;

	vb_cancel_defer(&cancel);
	if (!needs_interface(from) && (fd = vb_udp_sender(v6, from, &tx->sport[v6])) >= 0)
		memcpy(tx->bound[v6], from, VB_GID_LEN);
	if (fd < 0)
		fd = vb_udp_sender(v6, NULL, &tx->sport[v6]);
	vb_cancel_restore(cancel);
	if (fd < 0)
		return false;
	if (setsockopt(fd, SOL_SOCKET, SO_SNDBUFFORCE, &size, sizeof(size)))
		setsockopt(fd, SOL_SOCKET, SO_SNDBUF, &size, sizeof(size));
	tx->fd[v6] = fd;
	return true;
}

/* --- sending --- */

struct control {
	_Alignas(struct cmsghdr) char buf[256];
	size_t len;
};

static void put_control(struct control *c, int level, int type, const void *data, size_t len)
{
	struct cmsghdr *h = (struct cmsghdr *)(c->buf + c->len);

	h->cmsg_level = level;
	h->cmsg_type = type;
	h->cmsg_len = CMSG_LEN(len);
	memset(c->buf + c->len + CMSG_SPACE(len) - sizeof(size_t), 0, sizeof(size_t)); /* the padding */
	memcpy(CMSG_DATA(h), data, len);
	c->len += CMSG_SPACE(len);
}

/* Does the send have to name its source? */
static bool needs_source(const struct vb_tx *tx, const struct vb_roce_addr *to)
{
	return vb_gid_is_multicast(to->dst) || needs_interface(to->dst) ||
	       memcmp(tx->bound[!vb_gid_is_ipv4(to->dst)], to->src, VB_GID_LEN);
}

/* Sets the hop limit on the socket, which is cheaper than with each send. Returns false if the send must carry it, as
 * for multicast. */
static bool hops_are_set(struct vb_tx *tx, const struct vb_roce_addr *to)
{
	bool v6 = !vb_gid_is_ipv4(to->dst);
	int hops = to->hop_limit ? to->hop_limit : -1;

	if (vb_gid_is_multicast(to->dst))
		return !to->hop_limit;
	if (tx->hops[v6] != hops && !setsockopt(tx->fd[v6], v6 ? IPPROTO_IPV6 : IPPROTO_IP,
	                                        v6 ? IPV6_UNICAST_HOPS : IP_TTL, &hops, sizeof(hops)))
		tx->hops[v6] = hops;
	return tx->hops[v6] == hops || !to->hop_limit;
}

/*
 * A segment size on the socket is cheaper than one with each send, and applies to longer sends only. So a size that
 * two sends have in a row is set on the socket. Returns false if the send must carry its size, 0 for none.
 */
static bool segment_is_set(struct vb_tx *tx, const struct message *m, uint16_t size)
{
	bool v6 = !vb_gid_is_ipv4(m->to.dst);
	int value = size;

	if (!size)
		return !tx->segment[v6] || m->len <= tx->segment[v6];
	if (tx->segment[v6] != size && tx->wanted[v6] == size &&
	    !setsockopt(tx->fd[v6], SOL_UDP, UDP_SEGMENT, &value, sizeof(value)))
		tx->segment[v6] = size;
	tx->wanted[v6] = size;
	return tx->segment[v6] == size;
}

static void control_of(struct vb_tx *tx, struct control *c, const struct message *m)
{
	const struct vb_roce_addr *to = &m->to;
	bool hops = !hops_are_set(tx, to), source = needs_source(tx, to);
	uint16_t segment = m->n > 1 ? m->seg : 0;
	int value;

	c->len = 0;
	if (vb_gid_is_ipv4(to->dst)) {
		struct in_pktinfo info = {.ipi_ifindex = vb_gid_is_multicast(to->dst) ? (int)to->ifindex : 0};

		memcpy(&info.ipi_spec_dst, to->src + 12, 4);
		if (source)
			put_control(c, IPPROTO_IP, IP_PKTINFO, &info, sizeof(info));
		value = to->traffic_class;
		if (value)
			put_control(c, IPPROTO_IP, IP_TOS, &value, sizeof(value));
		value = to->hop_limit;
		if (hops)
			put_control(c, IPPROTO_IP, IP_TTL, &value, sizeof(value));
	} else {
		struct in6_pktinfo info = {.ipi6_ifindex = needs_interface(to->dst) ? to->ifindex : 0};

		memcpy(&info.ipi6_addr, to->src, 16);
		if (source)
			put_control(c, IPPROTO_IPV6, IPV6_PKTINFO, &info, sizeof(info));
		value = to->traffic_class;
		if (value)
			put_control(c, IPPROTO_IPV6, IPV6_TCLASS, &value, sizeof(value));
		value = to->hop_limit;
		if (hops)
			put_control(c, IPPROTO_IPV6, IPV6_HOPLIMIT, &value, sizeof(value));
	}
	if (!segment_is_set(tx, m, segment))
		put_control(c, SOL_UDP, UDP_SEGMENT, &segment, sizeof(segment));
}

static void flow_of(const struct vb_tx *tx, const struct vb_roce_addr *to, struct vb_flow *flow)
{
	memcpy(flow->src, to->src, VB_GID_LEN);
	memcpy(flow->dst, to->dst, VB_GID_LEN);
	flow->sport = tx->sport[!vb_gid_is_ipv4(to->dst)];
	flow->dport = VB_ROCE_PORT;
}

/* Copies the payload into the gaps, because the program's memory is valid only until vb_tx_end. */
static void fill_gaps(struct vb_tx *tx, struct message *m)
{
	for (const struct gap *g = tx->gap + m->gap, *end = g + m->gaps; g < end; g++)
		if (!vb_guard_copy(tx->stage + g->at, g->from, g->len))
			memset(tx->stage + g->at, 0, g->len);
	m->gaps = 0;
}

/* Fills tx->pieces with the message's parts in the stage and in the program's memory. Returns how many. */
static size_t lay_pieces(struct vb_tx *tx, const struct message *m)
{
	struct iovec *p = tx->pieces;
	uint32_t at = m->at;

	for (const struct gap *g = tx->gap + m->gap, *end = g + m->gaps; g < end; g++) {
		*p++ = (struct iovec){tx->stage + at, g->at - at};
		*p++ = (struct iovec){(void *)(uintptr_t)g->from, g->len};
		at = g->at + g->len;
	}
	*p++ = (struct iovec){tx->stage + at, m->at + m->len - at};
	return (size_t)(p - tx->pieces);
}

static void seal_packet(struct vb_tx *tx, uint8_t *packet, const struct vb_flow *flow, uint16_t id, size_t len)
{
	tx->known = NULL;
	vb_icrc_encode(packet + len, vb_icrc_packet(&tx->icrc, flow, id, packet, len));
}

/* Takes the segment size back from the socket. Returns false if it has none. */
static bool clear_segment(struct vb_tx *tx, bool v6)
{
	int none = 0;

	if (!tx->segment[v6] || setsockopt(tx->fd[v6], SOL_UDP, UDP_SEGMENT, &none, sizeof(none)))
		return false;
	tx->segment[v6] = tx->wanted[v6] = 0;
	return true;
}

/* Also a single packet may be refused on a socket that has a segment size: with IPsec. */
static void stop_segmenting(struct vb_tx *tx)
{
	tx->no_gso = true;
	clear_segment(tx, false);
	clear_segment(tx, true);
}

/* Sends the packets one by one, each with identification 0, because the device or kernel has no UDP segmentation. */
static int send_singly(struct vb_tx *tx, struct message *m, struct msghdr *mh)
{
	struct control c;
	struct vb_flow flow;
	struct message one = *m;

	one.n = 1;
	one.len = one.seg;
	fill_gaps(tx, m);
	control_of(tx, &c, &one);
	mh->msg_control = c.buf;
	mh->msg_controllen = c.len;
	mh->msg_iovlen = 1;
	flow_of(tx, &m->to, &flow);
	for (uint32_t off = 0; off < m->len; off += m->seg) {
		uint32_t len = m->len - off < m->seg ? m->len - off : m->seg;
		struct iovec iov = {tx->stage + m->at + off, len};

		seal_packet(tx, tx->stage + m->at + off, &flow, 0, len - VB_ICRC_LEN);
		mh->msg_iov = &iov;
		if (vb_udp_send(tx->fd[!vb_gid_is_ipv4(m->to.dst)], mh) < 0 && errno != EAGAIN)
			return errno;
	}
	return 0;
}

/*
 * Sends a long message of requests from a slot (net/udp_slots.h), because the kernel's copy of it is dear if the receiver
 * is on this machine. The queue pair whose packets are added is the sender of the message. Returns false if the message
 * must be sent by sendmsg(2).
 */
static bool send_from_slot(struct vb_tx *tx, const struct message *m, const struct msghdr *mh)
{
	if (m->len < VB_UDP_SLOT_MIN || !m->requests || m->gaps || !tx->qp || !tx->qp->roce || tx->no_slots ||
	    !tx->qp->roce->inside)
		return false;
	if (!tx->slots) {
		if (++tx->long_sends < SLOTS_AFTER)
			return false;
		tx->slots = vb_udp_slots_new();
		tx->no_slots = !tx->slots;
		if (!tx->slots)
			return false;
	}
	const struct vb_roce_requester *rq = &tx->qp->roce->q.rq;
	const struct vb_udp_slot_use use = {
	        .owner = tx->qp->roce->connection, .sent = rq->seq, .acked = rq->una, .now = vb_now()};

	if (!vb_udp_slots_send(tx->slots, tx->fd[!vb_gid_is_ipv4(m->to.dst)], mh, tx->stage + m->at, m->len, &use)) {
		tx->no_slots = vb_udp_slots_are_broken(tx->slots);
		return false;
	}
	VB_COUNT(tx_slots, 1);
	return true;
}

/* Returns 0, EAGAIN, or another errno value: the message is then lost, and the requester retries it. */
static int send_one(struct vb_tx *tx, struct message *m)
{
	struct control c;
	struct sockaddr_storage sa;
	struct msghdr mh = {.msg_name = &sa, .msg_iov = tx->pieces, .msg_control = c.buf};
	bool v6 = !vb_gid_is_ipv4(m->to.dst);

	mh.msg_namelen = vb_gid_to_sockaddr(&sa, m->to.dst, VB_ROCE_PORT, m->to.ifindex);
	if (m->n > 1 && tx->no_gso)
		return send_singly(tx, m, &mh);
	control_of(tx, &c, m);
	mh.msg_controllen = c.len;
	if (send_from_slot(tx, m, &mh))
		return 0;
	mh.msg_iovlen = lay_pieces(tx, m);
	for (int tries = 0; tries < 3; tries++) {
		if (vb_udp_send(tx->fd[v6], &mh) >= 0)
			return 0;
		if (errno == EIO || errno == EOPNOTSUPP || errno == ENOPROTOOPT) {
			if (tx->no_gso)
				break;
			stop_segmenting(tx);
			return send_singly(tx, m, &mh);
		}
		/* Before Linux 6.14 a route refuses also a short packet if the socket's segment size, which sends to
		 * another peer had, is longer than its MTU. */
		if (errno == EINVAL && m->n == 1 && clear_segment(tx, v6))
			continue;
		/* ENOBUFS and ENOMEM are temporary. ECONNREFUSED is an ICMP error of an earlier packet; try again. */
		if (errno == EAGAIN || errno == ENOBUFS || errno == ENOMEM)
			return EAGAIN;
		/* The program has unmapped some memory. The packets from it get a wrong ICRC; the others are sent. */
		if (errno == EFAULT && m->gaps) {
			fill_gaps(tx, m);
			mh.msg_iovlen = lay_pieces(tx, m);
		} else if (errno != ECONNREFUSED && errno != EINTR) {
			break;
		}
	}
	return errno;
}

/* Shows a capture the packets of a message that was sent at this time. */
static void show_message(struct vb_tx *tx, const struct message *m, uint64_t time)
{
	const struct vb_capture_of of = {.direction = VB_CAPTURE_OUT, .time = time, .qpn = tx->qpn};
	struct vb_ip_fields ip = {.traffic_class = m->to.traffic_class,
	                          .hop_limit = m->to.hop_limit ? m->to.hop_limit : 64};
	struct vb_flow flow;
	int n = (int)lay_pieces(tx, m);

	flow_of(tx, &m->to, &flow);
	for (uint32_t off = 0; off < m->len; off += m->seg) {
		uint32_t len = m->len - off < m->seg ? m->len - off : m->seg;

		vb_capture_roce(&of, &flow, &ip, tx->pieces, n, off, len);
		ip.id += !tx->no_gso; /* as seal_laid and send_singly number them */
	}
}

static void report_refusal(const struct message *m, int err)
{
	static _Atomic uint64_t said; /* a bit for each errno */
	uint64_t bit = 1ull << (err & 63);

	VB_COUNT(tx_refused, m->n);
	if (!(atomic_fetch_or(&said, bit) & bit))
		vb_log(VB_LOG_ERROR, "the network does not take a packet of %u bytes: %s%s", m->seg, strerror(err),
		       err == EMSGSIZE
		               ? " (the path MTU of the queue pair is larger than the network's: let the program use "
		                 "a smaller one, or raise the MTU of the way with ip link set IF mtu N)"
		       : err == EINVAL
		               ? " (is the GID in use still an address of this host? verbena devices lists them)"
		       : err == EPERM ? " (a firewall of this host drops it: allow UDP port 4791)"
		                      : " (verbena doctor looks for the reason)");
}

/* Sends all messages. Returns false if some must wait. Under tx->lock. */
static bool flush_messages(struct vb_tx *tx)
{
	while (tx->sent < tx->n) {
		struct message *m = &tx->msg[tx->sent];
		uint64_t time = vb_capturing() ? vb_capture_now() : 0;
		int err = send_one(tx, m);

		if (err == EAGAIN) {
			for (unsigned i = tx->sent; i < tx->n; i++)
				fill_gaps(tx, &tx->msg[i]);
			atomic_store_explicit(&tx->waits, true, memory_order_relaxed);
			return false;
		}
		if (err)
			report_refusal(m, err);
		else if (time)
			show_message(tx, m, time);
		VB_COUNT(tx_packets, m->n);
		VB_COUNT(tx_bytes, m->len);
		tx->sent++;
	}
	tx->n = tx->sent = 0;
	tx->used = 0;
	tx->gaps = 0;
	tx->full = 0;
	atomic_store_explicit(&tx->waits, false, memory_order_relaxed);
	return true;
}

bool vb_tx_waits(const struct vb_tx *tx)
{
	return atomic_load_explicit(&tx->waits, memory_order_relaxed);
}

bool vb_tx_begin(struct vb_tx *tx, const struct vb_qp *qp)
{
	if (!atomic_load_explicit(&tx->sockets->up, memory_order_acquire))
		return false;
	vb_lock(&tx->lock);
	if (tx->n && !flush_messages(tx)) {
		VB_COUNT(tx_waits, 1);
		vb_unlock(&tx->lock);
		return false;
	}
	tx->qp = qp;
	tx->qpn = qp ? qp->qp.qp_num : 0;
	return true;
}

/* Returns true if the stage must be sent before another packet is added. */
static bool must_go(const struct vb_tx *tx)
{
	return tx->full >= BURST || tx->used > FULL || tx->n == MESSAGES;
}

bool vb_tx_in_place(const struct vb_tx *tx)
{
	/* a slot is filled from the stage */
	return !tx->fault && !tx->no_gso && !(tx->slots && !tx->no_slots && tx->qp && tx->qp->roce->inside);
}

uint8_t *vb_tx_room(struct vb_tx *tx)
{
	if (__builtin_expect(must_go(tx), 0) && !flush_messages(tx))
		return NULL;
	return tx->stage + tx->used;
}

static bool same_addr(const struct vb_roce_addr *a, const struct vb_roce_addr *b)
{
	uint64_t x[5], y[5];

	_Static_assert(sizeof(*a) == sizeof(x), "five words");
	memcpy(x, a, sizeof(x));
	memcpy(y, b, sizeof(y));
	return !((x[0] ^ y[0]) | (x[1] ^ y[1]) | (x[2] ^ y[2]) | (x[3] ^ y[3]) | (x[4] ^ y[4]));
}

/* Returns the message to which a packet of this size may be added, or NULL. */
static struct message *message_to_join(struct vb_tx *tx, const struct vb_roce_addr *to, uint32_t size)
{
	struct message *m = tx->n > tx->sent ? &tx->msg[tx->n - 1] : NULL;

	if (!m || m->closed || size > m->seg || m->n == SEGMENTS || m->len + size > DATAGRAM_MAX ||
	    !same_addr(&m->to, to))
		return NULL;
	return m;
}

/* Adds the ICRC to a packet whose payload has a known sum. */
static void seal_summed(struct vb_tx *tx, struct message *m, uint8_t *packet, const struct vb_tx_laid *laid)
{
	size_t header_len = (size_t)(laid->at - packet), len = header_len + laid->len;

	if (laid->from) {
		tx->gap[tx->gaps++] = (struct gap){(uint32_t)(laid->at - tx->stage), laid->len, laid->from};
		m->gaps++;
	}
	if (!tx->known || tx->known->len != len + VB_ICRC_LEN)
		tx->known = vb_icrc_known(&tx->icrc, &tx->flow, len + VB_ICRC_LEN);
	vb_icrc_encode(packet + len, vb_icrc_summed(tx->known, m->n, packet, header_len, laid->sum, laid->len));
}

/* Adds the ICRC to the next packet of m. The kernel numbers the identifications of a send's segments from 0. */
static void seal_laid(struct vb_tx *tx, struct message *m, uint8_t *packet, uint32_t len, const struct vb_tx_laid *laid)
{
	if (laid && laid->at && laid->at + laid->len == packet + len)
		seal_summed(tx, m, packet, laid);
	else
		seal_packet(tx, packet, &tx->flow, m->n, len);
}

/* Is it a send or write of a reliable connection, for the first time? If it is repeated, the acknowledgement may be for
 * the first one, while this one waits in the receiver's socket. With fault injection packets of other queue pairs come
 * between. */
static bool is_request(const struct vb_tx *tx, uint8_t opcode)
{
	const struct vb_opcode_info *info = vb_opcode_info(opcode);

	return info && info->flags & VB_REQUEST && !(info->flags & VB_ANSWERED) && info->service == VB_SVC_RC &&
	       !tx->fault && tx->qp && tx->qp->roce && !tx->qp->roce->q.again;
}

/* Adds the packet at stage + used to the last message, or to a new one. */
static void append_packet(struct vb_tx *tx, const struct vb_roce_addr *to, uint32_t len, const struct vb_tx_laid *laid)
{
	uint8_t *packet = tx->stage + tx->used;
	uint32_t size = len + VB_ICRC_LEN;
	struct message *m = message_to_join(tx, to, size);

	if (!m) {
		m = &tx->msg[tx->n++];
		*m = (struct message){
		        .at = tx->used, .seg = (uint16_t)size, .gap = (uint16_t)tx->gaps, .requests = true, .to = *to};
		flow_of(tx, to, &tx->flow);
		tx->known = NULL;
	}
	seal_laid(tx, m, packet, len, laid);
	m->requests = m->requests && is_request(tx, packet[0]);
	m->closed = size < m->seg;
	m->n++;
	m->len += size;
	tx->used += size;
	tx->full += m->n == SEGMENTS || m->len + size > DATAGRAM_MAX;
}

static bool open_for(struct vb_tx *tx, const struct vb_roce_addr *to)
{
	bool v6 = !vb_gid_is_ipv4(to->dst);

	return tx->fd[v6] >= 0 || open_socket(tx, v6, to->src);
}

/* --- faults (fault.c) --- */

static bool has_room_for_fault(const struct vb_tx *tx)
{
	return tx->used <= FULL && tx->n < MESSAGES;
}

/* Adds held packets whose time has come. */
static void add_released(struct vb_tx *tx)
{
	struct vb_roce_held held;

	while (has_room_for_fault(tx) && vb_roce_fault_release(tx->fault, tx->stage + tx->used, &held)) {
		uint8_t *at = tx->stage + tx->used;

		append_packet(tx, &held.to, held.len, NULL);
		if (held.corrupt)
			vb_roce_fault_flip(at, held.len, held.random);
	}
}

static void add_faulty(struct vb_tx *tx, const struct vb_roce_addr *to, size_t len)
{
	uint8_t *at = tx->stage + tx->used;
	struct vb_fault_verdict v;

	vb_roce_fault_tx(tx->qp, to, at, len, &v);
	if (v.corrupt && v.icrc_right)
		vb_roce_fault_flip_payload(at, len, v.random);
	if (!v.drop && !vb_roce_fault_hold(tx->fault, at, len, to, &v)) {
		append_packet(tx, to, (uint32_t)len, NULL);
		if (v.duplicate && has_room_for_fault(tx)) {
			memcpy(tx->stage + tx->used, at, len);
			append_packet(tx, to, (uint32_t)len, NULL);
		}
		if (v.corrupt && !v.icrc_right)
			vb_roce_fault_flip(at, len, v.random);
	}
	add_released(tx);
}

void vb_tx_arm(struct vb_tx *tx, bool on)
{
	struct vb_roce_fault *spare = on && !tx->fault && !tx->disarmed ? vb_roce_fault_new() : NULL;

	vb_lock(&tx->lock);
	if (on && !tx->fault) {
		tx->fault = tx->disarmed ? tx->disarmed : spare;
		tx->disarmed = NULL;
	} else if (!on && tx->fault && !vb_roce_fault_due(tx->fault)) { /* packets that are held go first */
		tx->disarmed = tx->fault;
		tx->fault = NULL;
	}
	vb_unlock(&tx->lock);
}

uint64_t vb_tx_serve_faults(struct vb_tx *tx)
{
	uint64_t at = 0;

	if (!vb_tx_begin(tx, NULL))
		return vb_tx_waits(tx) ? vb_now() + VB_TX_AGAIN : 0;
	if (tx->fault) {
		add_released(tx);
		at = vb_roce_fault_due(tx->fault);
	}
	vb_tx_end(tx);
	return at;
}

void vb_tx_add(struct vb_tx *tx, const struct vb_roce_addr *to, size_t header_len, size_t len,
               const struct vb_tx_laid *laid)
{
	if (__builtin_expect(!open_for(tx, to), 0)) {
		VB_COUNT(tx_refused, 1);
		return;
	}
	if (__builtin_expect(tx->fault != NULL, 0))
		add_faulty(tx, to, len);
	else
		append_packet(tx, to, (uint32_t)len, laid);
}

/* If the only waiting message can take the packet, they share one send. Otherwise the packet becomes a message of its
 * own, which is sent first. */
void vb_tx_add_ahead(struct vb_tx *tx, const struct vb_roce_addr *to, size_t len)
{
	unsigned waits = tx->n - tx->sent;
	bool alone = !tx->fault && waits && tx->n < MESSAGES &&
	             (waits > 1 || !message_to_join(tx, to, (uint32_t)len + VB_ICRC_LEN));

	if (alone)
		tx->msg[tx->n - 1].closed = true;
	vb_tx_add(tx, to, len, len, NULL);
	if (!alone || tx->n - tx->sent != waits + 1)
		return;
	struct message m = tx->msg[tx->n - 1];

	memmove(&tx->msg[tx->sent + 1], &tx->msg[tx->sent], waits * sizeof(m));
	tx->msg[tx->sent] = m;
	tx->msg[tx->n - 1].closed = true; /* the next packet is not contiguous with this message */
}

uint32_t vb_tx_more(const struct vb_tx *tx, const struct vb_roce_addr *to, size_t len)
{
	uint32_t size = (uint32_t)len + VB_ICRC_LEN, n;
	const struct message *m = tx->n > tx->sent ? &tx->msg[tx->n - 1] : NULL;

	if (!m || m->closed || m->seg != size || tx->fault || !same_addr(&m->to, to))
		return 0;
	if (must_go(tx))
		return 0;
	n = (DATAGRAM_MAX - m->len) / size;
	n = n < SEGMENTS - m->n ? n : SEGMENTS - m->n;
	n = n < (STAGE - tx->used) / size ? n : (uint32_t)(STAGE - tx->used) / size;
	return n < VB_TX_MORE ? n : VB_TX_MORE;
}

void vb_tx_add_more(struct vb_tx *tx, uint32_t n, size_t len, const struct vb_tx_laid *laid)
{
	struct message *m = &tx->msg[tx->n - 1];

	m->requests = m->requests && is_request(tx, tx->stage[tx->used]);
	for (uint32_t i = 0; i < n; i++, m->n++, tx->used += m->seg)
		seal_laid(tx, m, tx->stage + tx->used, (uint32_t)len, laid + i);
	m->len += n * m->seg;
	tx->full += m->n == SEGMENTS || m->len + m->seg > DATAGRAM_MAX;
}

bool vb_tx_end(struct vb_tx *tx)
{
	bool all = !tx->n || flush_messages(tx);

	if (!all)
		VB_COUNT(tx_waits, 1);
	tx->qp = NULL; /* packets that wait may be sent after it has ended */
	vb_unlock(&tx->lock);
	return all;
}
