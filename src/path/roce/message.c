// message.c - passes messages of packets to the kernel: sockets, control data, segmentation, slots, refusals
// follows: udp(7) (UDP_SEGMENT); IBA annex A17 (RoCEv2)
// SPDX-License-Identifier: MIT
#include "path/roce/message.h"

#include <errno.h>
#include <netinet/in.h>
#include <netinet/udp.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/syscall.h>
#include <unistd.h>

#include "capture/capture.h"
#include "net/udp.h"
#include "util/calls.h"
#include "util/guard.h"
#include "util/log.h"

#ifndef UDP_SEGMENT
#define UDP_SEGMENT 103
#endif

#define SNDBUF (4 << 20)
#define SLOTS_AFTER 64 /* long sends of requests before memory for slots is taken */

/* --- sockets --- */

static bool needs_interface(const uint8_t *gid)
{
	return gid[0] == 0xff || (gid[0] == 0xfe && (gid[1] & 0xc0) == 0x80);
}

/* Binds the socket to the source of the first packet if it can: the sends from this address need not name it. */
bool vb_tx_open_socket(struct vb_tx *tx, bool v6, const uint8_t *from)
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

/* --- control data --- */

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
static bool segment_is_set(struct vb_tx *tx, const struct vb_tx_message *m, uint16_t size)
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

static __attribute__((hot)) void control_of(struct vb_tx *tx, struct control *c, const struct vb_tx_message *m)
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

/* --- one message --- */

/* Copies the payload into the gaps, because the program's memory is valid only until vb_tx_end, and the slot may be used
 * for another message. */
static void fill_gaps(struct vb_tx *tx, struct vb_tx_message *m)
{
	for (const struct vb_tx_gap *g = tx->gap + m->gap, *end = g + m->gaps; g < end; g++)
		if (!vb_guard_copy(tx->stage + g->at, g->from, g->len))
			memset(tx->stage + g->at, 0, g->len);
	m->gaps = 0;
	m->slot = NULL;
}

/* Fills tx->pieces with the message's parts in the stage, in the program's memory and in its slot. Returns how many. */
static __attribute__((hot)) size_t lay_pieces(struct vb_tx *tx, const struct vb_tx_message *m)
{
	struct iovec *p = tx->pieces;
	uint32_t at = m->at;

	for (const struct vb_tx_gap *g = tx->gap + m->gap, *end = g + m->gaps; g < end; g++) {
		*p++ = (struct iovec){tx->stage + at, g->at - at};
		*p++ = (struct iovec){(void *)(uintptr_t)g->from, g->len};
		at = g->at + g->len;
	}
	*p++ = (struct iovec){tx->stage + at, m->at + m->len - at};
	return (size_t)(p - tx->pieces);
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
static int send_singly(struct vb_tx *tx, struct vb_tx_message *m, struct msghdr *mh)
{
	struct control c;
	struct vb_flow flow;
	struct vb_tx_message one = *m;

	one.n = 1;
	one.len = one.seg;
	fill_gaps(tx, m);
	control_of(tx, &c, &one);
	mh->msg_control = c.buf;
	mh->msg_controllen = c.len;
	mh->msg_iovlen = 1;
	vb_tx_flow(tx, &m->to, &flow);
	for (uint32_t off = 0; off < m->len; off += m->seg) {
		uint32_t len = m->len - off < m->seg ? m->len - off : m->seg;
		struct iovec iov = {tx->stage + m->at + off, len};

		vb_tx_seal(tx, tx->stage + m->at + off, &flow, 0, len - VB_ICRC_LEN);
		mh->msg_iov = &iov;
		if (vb_udp_send(tx->fd[!vb_gid_is_ipv4(m->to.dst)], mh) < 0 && errno != EAGAIN)
			return errno;
	}
	return 0;
}

static struct vb_udp_slot_use slot_use(const struct vb_tx *tx)
{
	const struct vb_roce_path *path = tx->qp->roce;

	return (struct vb_udp_slot_use){
	        .owner = path->connection, .sent = path->q.rq.seq, .acked = path->q.rq.una, .now = vb_now()};
}

bool vb_tx_has_slots(const struct vb_tx *tx)
{
	return tx->slots && !tx->no_slots && tx->qp && tx->qp->roce && tx->qp->roce->inside;
}

void vb_tx_take_slot(struct vb_tx *tx, struct vb_tx_message *m)
{
	const struct vb_udp_slot_use use = slot_use(tx);

	m->asked = true;
	m->slot = vb_udp_slots_room(tx->slots, &use);
}

/* Copies what the message has in the stage into its slot. */
static void fill_slot(const struct vb_tx *tx, const struct vb_tx_message *m)
{
	uint32_t at = m->at / VB_TX_LINE * VB_TX_LINE,
	         end = (m->at + m->len + VB_TX_LINE - 1) / VB_TX_LINE * VB_TX_LINE;

	for (const struct vb_tx_gap *g = tx->gap + m->gap, *last = g + m->gaps; g < last; g++) {
		vb_udp_slots_fill(vb_tx_in_slot(m, at), tx->stage + at, g->at - at);
		at = g->at + g->len;
	}
	vb_udp_slots_fill(vb_tx_in_slot(m, at), tx->stage + at, end - at);
}

/* Asks for slots after some long messages. */
static void make_slots(struct vb_tx *tx)
{
	if (tx->slots || tx->no_slots || !tx->qp->roce->inside || ++tx->long_sends < SLOTS_AFTER)
		return;
	tx->slots = vb_udp_slots_new();
	tx->no_slots = !tx->slots;
}

/*
 * Sends a long message of requests from a slot (net/udp_slots.h), because the kernel's copy of it is dear if the receiver
 * is on this machine. The queue pair whose packets are added is the sender of the message. Returns false if the message
 * must be sent by sendmsg(2).
 */
static bool send_from_slot(struct vb_tx *tx, struct vb_tx_message *m, const struct msghdr *mh)
{
	if (!m->requests || !tx->qp || !tx->qp->roce || (m->gaps ? !m->slot : m->len < VB_UDP_SLOT_MIN))
		return false;
	make_slots(tx);
	if (!vb_tx_has_slots(tx))
		return false;
	if (!m->slot && !m->asked)
		vb_tx_take_slot(tx, m);
	if (!m->slot)
		return false;
	const struct vb_udp_slot_use use = slot_use(tx);

	fill_slot(tx, m);
	if (!vb_udp_slots_pass(tx->slots, tx->fd[!vb_gid_is_ipv4(m->to.dst)], mh, vb_tx_in_slot(m, m->at), m->len,
	                       &use)) {
		tx->no_slots = vb_udp_slots_are_broken(tx->slots);
		return false;
	}
	VB_COUNT(tx_slots, 1);
	return true;
}

/* To the fabric process, all packets at once. If it has ended, they are lost as on a cut cable. */
static int send_train(struct vb_tx *tx, const struct vb_tx_message *m)
{
	const struct iovec iov = {tx->stage + m->at, m->len};
	const struct msghdr mh = {.msg_iov = (struct iovec *)&iov, .msg_iovlen = 1};

	for (int tries = 0; tries < 3; tries++) {
		if (syscall(SYS_sendmsg, tx->sockets->lane_fd, &mh, MSG_DONTWAIT | MSG_NOSIGNAL) >= 0)
			return 0;
		if (errno == EAGAIN || errno == ENOBUFS || errno == ENOMEM)
			return EAGAIN;
		if (errno != EINTR)
			break;
	}
	VB_COUNT(tx_refused, m->n);
	return 0;
}

/* Returns 0, EAGAIN, or another errno value: the message is then lost, and the requester retries it. */
static __attribute__((hot)) int send_one(struct vb_tx *tx, struct vb_tx_message *m)
{
	struct control c;
	struct sockaddr_storage sa;
	struct msghdr mh = {.msg_name = &sa, .msg_iov = tx->pieces, .msg_control = c.buf};
	bool v6 = !vb_gid_is_ipv4(m->to.dst);

	if (tx->sockets->framed)
		return send_train(tx, m);
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
static void show_message(struct vb_tx *tx, const struct vb_tx_message *m, uint64_t time)
{
	const struct vb_capture_of of = {.direction = VB_CAPTURE_OUT, .time = time, .qpn = tx->qpn};
	struct vb_ip_fields ip = {.traffic_class = m->to.traffic_class,
	                          .hop_limit = m->to.hop_limit ? m->to.hop_limit : 64};
	struct vb_flow flow;
	int n = (int)lay_pieces(tx, m);

	vb_tx_flow(tx, &m->to, &flow);
	size_t front = vb_link_front_len(m->to.link), frame = vb_tx_apart(&m->to, 0) - VB_ICRC_LEN;

	for (uint32_t off = 0; off < m->len; off += m->seg) {
		uint32_t len = m->len - off < m->seg ? m->len - off : m->seg;

		vb_capture_roce(&of, &flow, &ip, tx->pieces, n, off + front, len - frame);
		ip.id += !tx->no_gso; /* as seal_laid and send_singly number them */
	}
}

static void report_refusal(const struct vb_tx_message *m, int err)
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

__attribute__((hot)) bool vb_tx_flush(struct vb_tx *tx)
{
	while (tx->sent < tx->n) {
		struct vb_tx_message *m = &tx->msg[tx->sent];
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
