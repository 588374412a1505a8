// receive.c - receives on our lane: splits datagrams into packets, checks them, and passes them to their queue pairs
// follows: udp(7); IBA volume 1, 9.6.1 (packet validation); annex A17 (RoCEv2)
// SPDX-License-Identifier: MIT
#include <errno.h>
#include <netinet/in.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/socket.h>

#include "broker/proto/proto.h"
#include "capture/capture.h"
#include "frame/icrc.h"
#include "frame/fields.h"
#include "frame/lrh.h"
#include "frame/opcode.h"
#include "net/packet_ring.h"
#include "path/roce/fault.h"
#include "path/roce/roce.h"
#include "util/syscall.h"

#define BATCH 8u            /* the most datagrams of one recvmmsg */
#define BUFFER 65536u       /* bytes; the longest datagram that UDP_GRO makes */
#define ENOUGH (2 * BUFFER) /* bytes; larger batches would not stay in the near cache */
#define SOON 1024u          /* bytes of a datagram that takes no time to process */
#define ECN_CE 3

/* What a short datagram needs comes first, so that it is on one page or two. */
struct vb_roce_rx {
	int fd;
	bool relayed;          /* each message of fd starts with a relay head; see struct vb_roce_sockets */
	bool framed;           /* see struct vb_roce_sockets */
	bool crowded;          /* the last relay head reports that the socket's buffer fills up */
	bool touched_uc;       /* one of `touched` is UC */
	bool filled;           /* the last call returned as many datagrams as it could */
	unsigned vlen;         /* datagrams per call: more after two calls that returned as many */
	unsigned prepared;     /* so many of mh can be passed to the kernel */
	struct vb_qp *touched; /* queue pairs that must answer after the batch, by touched_next */
	struct vb_qp *locked;  /* the QP whose sq_lock is held: consecutive packets are often for one queue pair */
	struct vb_qp *run;     /* the same QP, if the last packet of this datagram was for it */
	struct vb_packet_ring *ring;            /* short datagrams come there instead; NULL: none do */
	uint32_t ifindex;                       /* where the last one came from */
	struct vb_roce_fault *fault, *disarmed; /* fault: NULL if no rule acts on packets that arrive. Under progress */
	unsigned next, n;                       /* of the last batch: taken; received */
	size_t train_at;                        /* of the train that is next: taken */
	_Atomic uint64_t waits_since;           /* a datagram of it waits for a receive, ns; 0: none does. starving.c */
	uint64_t now; /* arrival of the last datagram if it was short: hardly earlier than now; else 0 */
	uint8_t *buffers;
	struct mmsghdr mh[BATCH];
	struct iovec iov[BATCH];
	struct sockaddr_storage from[BATCH];
	_Alignas(struct cmsghdr) char control[BATCH][256];
	struct vb_icrc_cache icrc;
	struct vb_relay_head head[BATCH];
	struct iovec with_head[BATCH][2];
};

struct vb_roce_rx *vb_roce_rx_new(int fd, bool relayed)
{
	struct vb_roce_rx *rx = calloc(1, sizeof(*rx));
	void *p = mmap(NULL, (size_t)BATCH * BUFFER, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);

	if (!rx || p == MAP_FAILED) {
		if (p != MAP_FAILED)
			munmap(p, (size_t)BATCH * BUFFER);
		free(rx);
		return NULL;
	}
	rx->fd = fd;
	rx->relayed = relayed;
	rx->vlen = 1;
	rx->buffers = p;
	vb_roce_rx_arm(rx, vb_fault_is_armed(VB_FAULT_ARM_ROCE_RX));
	return rx;
}

void vb_roce_rx_frame(struct vb_roce_rx *rx)
{
	rx->framed = true;
	rx->prepared = 0;
}

void vb_roce_rx_replace(struct vb_roce_rx *rx, int fd)
{
	rx->fd = fd;
}

void vb_roce_rx_ring(struct vb_roce_rx *rx, struct vb_packet_ring *ring)
{
	rx->ring = ring;
}

void vb_roce_rx_free(struct vb_roce_rx *rx)
{
	if (!rx)
		return;
	munmap(rx->buffers, (size_t)BATCH * BUFFER);
	vb_roce_fault_free(rx->fault);
	vb_roce_fault_free(rx->disarmed);
	free(rx);
}

/* --- one packet --- */

/* Checks the ICRC. It covers the IPv4 identification, which a UDP socket does not show, so this finds one that fits. */
static bool icrc_right(struct vb_roce_rx *rx, const struct vb_roce_arrival *a, uint16_t *id, uint8_t *bytes, size_t len)
{
	size_t covered = len - VB_ICRC_LEN;
	uint32_t residual = vb_icrc_residual(bytes + covered, vb_icrc_packet(&rx->icrc, &a->flow, *id, bytes, covered));

	if (!residual)
		return true;
	if (!vb_gid_is_ipv4(a->flow.dst))
		return false;
	int found = vb_icrc_find_id(residual, *id, len);

	if (found < 0)
		return false;
	*id = (uint16_t)found;
	return true;
}

static void remember_to_answer(struct vb_roce_rx *rx, struct vb_qp *qp)
{
	if (qp->roce->touched)
		return;
	qp->roce->touched = true;
	qp->roce->touched_next = rx->touched;
	rx->touched = qp;
	rx->touched_uc |= qp->type == IBV_QPT_UC;
}

/* A quarter of what keeps datagrams is full. UC senders, which have no window, must then get a congestion notification. */
static bool is_crowded(const struct vb_roce_rx *rx)
{
	if (rx->framed) /* its sender waits instead */
		return false;
	return (rx->ring && vb_packet_ring_crowded(rx->ring)) || rx->crowded ||
	       vb_roce_socket_crowded(rx->fd, rx->relayed);
}

static __attribute__((hot)) void unlock_qp(struct vb_roce_rx *rx)
{
	if (rx->locked)
		vb_unlock(&rx->locked->sq_lock);
	rx->locked = rx->run = NULL;
}

static __attribute__((hot)) void lock_qp(struct vb_roce_rx *rx, struct vb_qp *qp)
{
	if (rx->locked == qp)
		return;
	unlock_qp(rx);
	vb_lock(&qp->sq_lock);
	rx->locked = qp;
	if (qp->roce)
		vb_roce_path_locked(qp->roce);
}

__attribute__((hot)) void vb_roce_answer_batch(struct vb_roce_rx *rx)
{
	unlock_qp(rx);
	uint64_t now = !rx->touched ? 0 : rx->now ? rx->now : vb_now();
	bool full = rx->touched_uc && is_crowded(rx);

	rx->touched_uc = false;
	rx->now = 0;
	while (rx->touched) {
		struct vb_qp *qp = rx->touched;

		rx->touched = qp->roce->touched_next;
		qp->roce->touched = false;
		vb_roce_path_answer(qp, now, full);
	}
}

/* By words, without a call of memcmp(3). */
static inline bool same_gid(const uint8_t a[VB_GID_LEN], const uint8_t b[VB_GID_LEN])
{
	uint64_t x[2], y[2];

	memcpy(x, a, sizeof(x));
	memcpy(y, b, sizeof(y));
	return !((x[0] ^ y[0]) | (x[1] ^ y[1]));
}

/* IBA 9.6.1.2: source and destination must be those of the path. UD accepts datagrams from any source. */
static inline bool from_its_peer(const struct vb_qp *qp, const struct vb_roce_arrival *a)
{
	const struct vb_roce_addr *path = &qp->roce->to;

	if (qp->ib != (a->flow.link != VB_LINK_UDP))
		return false;
	return qp->type == IBV_QPT_UD || (a->flow.slid == path->dlid && a->flow.dlid == path->slid &&
	                                  same_gid(a->flow.src, path->dst) && same_gid(a->flow.dst, path->src));
}

/* The 40 bytes before a datagram. On an InfiniBand link: its GRH, or zeros. */
static void put_grh(uint8_t grh[VB_GRH_LEN], const struct vb_roce_arrival *a, size_t len)
{
	uint8_t front[VB_LINK_FRONT_MAX] = {0};

	if (a->flow.link == VB_LINK_UDP) {
		vb_grh(grh, &a->flow, &a->ip, len);
		return;
	}
	if (a->flow.link == VB_LINK_GLOBAL)
		vb_link_front(front, &a->flow, &a->ip, len);
	memcpy(grh, front + VB_LRH_LEN, VB_GRH_LEN);
}

__attribute__((hot)) void vb_roce_to_qp(struct vb_roce_rx *rx, struct vb_qp *qp, const struct vb_roce_arrival *a,
                                        const struct vb_packet *p, const uint8_t *bytes, size_t len)
{
	uint8_t grh[VB_GRH_LEN];
	struct vb_roce_from from = {.congested = !qp->ib && (a->ip.traffic_class & 3) == ECN_CE,
	                            .port = a->flow.sport,
	                            .slid = a->flow.slid,
	                            .dlid = a->flow.dlid,
	                            .sl = a->flow.sl,
	                            .local = a->flow.link == VB_LINK_LOCAL};

	if (qp->type == IBV_QPT_UD) {
		put_grh(grh, a, len);
		from.grh = grh;
	}
	lock_qp(rx, qp);
	vb_roce_path_input(qp, p, bytes + p->payload_at, &from, a->now);
	remember_to_answer(rx, qp);
}

/* Passes a packet with a reserved opcode to its QP if that is RC or XRC. */
static void unknown_opcode(struct vb_node *node, struct vb_roce_rx *rx, const struct vb_roce_arrival *a,
                           const uint8_t *bytes)
{
	struct vb_reader r = vb_reader(bytes, VB_BTH_LEN);
	struct vb_bth bth;

	vb_bth_decode(&r, &bth);
	struct vb_qp *qp = vb_find_roce_receiver(node, bth.dest_qpn);

	if (!qp || !vb_qp_is_reliable(qp) || !from_its_peer(qp, a))
		return;
	lock_qp(rx, qp);
	vb_roce_path_input_unknown(qp, &bth);
	remember_to_answer(rx, qp);
}

__attribute__((hot)) void vb_roce_packet(struct vb_node *node, struct vb_roce_rx *rx, const struct vb_roce_arrival *a,
                                         const uint8_t *bytes, size_t len)
{
	struct vb_packet p;
	enum vb_verdict verdict = vb_packet_decode(&p, bytes, len);

	if (verdict != VB_PACKET_OK) {
		VB_COUNT(drop_malformed, 1);
		if (verdict == VB_PACKET_OPCODE)
			unknown_opcode(node, rx, a, bytes);
		return;
	}
	if (p.bth.dest_qpn == VB_QPN_MULTICAST) {
		vb_roce_multicast(node, rx, a, &p, bytes, len);
		return;
	}
	struct vb_qp *qp = vb_find_roce_receiver(node, p.bth.dest_qpn);

	if (!qp) {
		VB_COUNT(drop_no_qp, 1);
	} else if (!from_its_peer(qp, a)) {
		VB_COUNT(drop_source, 1);
	} else {
		vb_roce_to_qp(rx, qp, a, &p, bytes, len);
		if (qp->type != IBV_QPT_UD && (qp->ib || (a->ip.traffic_class & 3) != ECN_CE))
			rx->run = qp;
	}
}

static void forward_packet(struct vb_node *node, const struct vb_roce_arrival *a, uint32_t qpn, const uint8_t *bytes,
                           size_t len)
{
	unlock_qp(node->io->roce->rx);
	vb_roce_forward(node, a, qpn, bytes, len);
}

/* Counts it for the queue pair that it names, which need not be true. */
static void count_wrong_icrc(struct vb_node *node, const uint8_t *bytes, size_t n)
{
	struct vb_qp *qp = n < VB_BTH_LEN ? NULL : vb_find_roce_receiver(node, vb_bth_dest_qpn(bytes));

	VB_COUNT(drop_icrc, 1);
	if (qp)
		qp->roce->wrong_icrc++;
}

/* Shows a capture a packet for a queue pair of this program. Those for others are shown by them. */
static void show_arrival(struct vb_node *node, const struct vb_roce_arrival *a, uint8_t *bytes, size_t n,
                         uint32_t flags)
{
	uint32_t qpn = n < VB_BTH_LEN ? 0 : vb_bth_dest_qpn(bytes);
	const struct iovec iov = {bytes, n};
	const struct vb_capture_of of = {
	        .direction = VB_CAPTURE_IN, .time = vb_capture_now(), .qpn = qpn, .flags = flags};

	if (flags || VB_QP_LANE(qpn) == node->lane || qpn == VB_QPN_MULTICAST)
		vb_capture_roce(&of, &a->flow, &a->ip, &iov, 1, 0, n);
}

static __attribute__((hot)) void take_whole_packet(struct vb_node *node, struct vb_roce_rx *rx,
                                                   struct vb_roce_arrival *a, uint8_t *bytes, size_t n)
{
	if (n < VB_BTH_LEN + VB_ICRC_LEN || !icrc_right(rx, a, &a->ip.id, bytes, n)) {
		if (vb_capturing())
			show_arrival(node, a, bytes, n, VB_CAPTURE_BAD_ICRC);
		count_wrong_icrc(node, bytes, n);
		return;
	}
	if (vb_capturing())
		show_arrival(node, a, bytes, n, 0);
	if (rx->run && vb_roce_path_middle(rx->run, bytes, n, a->flow.sport, a->now))
		return;
	/* DestQP, the only field read before the packet is known to be ours */
	uint32_t qpn = vb_bth_dest_qpn(bytes);

	if (VB_QP_LANE(qpn) != node->lane && qpn != VB_QPN_MULTICAST && !rx->framed) {
		forward_packet(node, a, qpn, bytes, n);
		return;
	}
	vb_roce_packet(node, rx, a, bytes, n);
	if (__builtin_expect(qpn == VB_QPN_MULTICAST, 0) && !rx->framed) {
		unlock_qp(rx);
		vb_roce_forward_group(node, a, bytes, n);
	}
}

static void take_released(struct vb_node *node, struct vb_roce_rx *rx)
{
	uint8_t packet[VB_ROCE_PACKET_MAX + VB_ICRC_LEN];
	struct vb_roce_held held;

	while (vb_roce_fault_release(rx->fault, packet, &held)) {
		rx->run = NULL;
		take_whole_packet(node, rx, &held.from, packet, held.len);
	}
}

static __attribute__((hot)) void take_packet(struct vb_node *node, struct vb_roce_rx *rx, struct vb_roce_arrival *a,
                                             uint8_t *bytes, size_t n)
{
	if (__builtin_expect(!rx->fault || n > VB_ROCE_PACKET_MAX, 1)) {
		take_whole_packet(node, rx, a, bytes, n);
		return;
	}
	for (unsigned times = vb_roce_fault_rx(node, rx->fault, a, bytes, n); times; times--)
		take_whole_packet(node, rx, a, bytes, n);
	take_released(node, rx);
}

void vb_roce_rx_arm(struct vb_roce_rx *rx, bool on)
{
	if (on && !rx->fault) {
		rx->fault = rx->disarmed ? rx->disarmed : vb_roce_fault_new();
		rx->disarmed = NULL;
	} else if (!on && rx->fault && !vb_roce_fault_due(rx->fault)) {
		rx->disarmed = rx->fault;
		rx->fault = NULL;
	}
}

uint64_t vb_roce_rx_serve_faults(struct vb_node *node, struct vb_roce_rx *rx)
{
	if (!rx->fault)
		return 0;
	take_released(node, rx);
	vb_roce_answer_batch(rx);
	return vb_roce_fault_due(rx->fault);
}

/* Decodes the relay's head. Returns false if it is invalid. */
static bool relayed_arrival(const struct vb_relay_head *h, struct vb_udp_arrival *a)
{
	*a = (struct vb_udp_arrival){
	        .flow = {.sport = h->sport, .dport = VB_ROCE_PORT},
	        .ip = {.traffic_class = h->traffic_class,
	               .hop_limit = h->hop_limit,
	               .flow_label = h->flow_label,
	               .id = h->id},
	        .ifindex = h->ifindex,
	        .seg = h->seg,
	};
	memcpy(a->flow.src, h->src, sizeof(a->flow.src));
	memcpy(a->flow.dst, h->dst, sizeof(a->flow.dst));
	return vb_gid_is_ipv4(h->src) == vb_gid_is_ipv4(h->dst);
}

static bool decode_arrival(struct vb_roce_rx *rx, unsigned i, size_t *len, struct vb_udp_arrival *came)
{
	const struct msghdr *mh = &rx->mh[i].msg_hdr;

	if (!rx->relayed)
		return *len && vb_udp_arrived(mh, came);
	if (*len <= sizeof(rx->head[i]) || (mh->msg_flags & MSG_TRUNC))
		return false;
	*len -= sizeof(rx->head[i]);
	rx->crowded = rx->head[i].crowded;
	return relayed_arrival(&rx->head[i], came);
}

/* The fabric process has ended. The descriptor stays open, so that its number is not another file's while threads send. */
static void port_lost(struct vb_roce_sockets *s)
{
	vb_roce_watch_sockets(s, false);
	atomic_store(&s->lost_at, vb_now());
}

uint64_t vb_roce_port_due(const struct vb_roce_sockets *s)
{
	bool waits = atomic_load_explicit(&s->rx->waits_since, memory_order_relaxed);

	return waits && !atomic_load_explicit(&s->lost_at, memory_order_relaxed) ? vb_now() + VB_MS(1) : 0;
}

/* Packets of an InfiniBand link, one behind the other. They may come from different ports. False: the rest waits. */
static bool take_train(struct vb_node *node, struct vb_roce_rx *rx, uint8_t *bytes, size_t len)
{
	struct vb_roce_arrival a = {.now = vb_now()};
	struct vb_link_packet p;
	struct vb_flow flow;
	size_t whole = len;

	rx->run = NULL;
	bytes += rx->train_at;
	len -= rx->train_at;
	for (; len; bytes += p.len, len -= p.len, rx->train_at += p.len) {
		enum vb_link_verdict verdict = vb_link_decode_trusted(&p, bytes, len);

		if (verdict == VB_LINK_OK &&
		    vb_roce_awaits_receive(node, &rx->waits_since, bytes + p.transport_at, a.now))
			return false;
		VB_COUNT(rx_packets, 1);
		if (verdict != VB_LINK_OK) {
			VB_COUNT(drop_malformed, 1);
			if (!p.len)
				break;
			continue;
		}
		vb_link_addresses(&flow, &a.ip, &p, bytes);
		if (memcmp(&flow, &a.flow, sizeof(flow)) != 0)
			rx->run = NULL;
		a.flow = flow;
		take_packet(node, rx, &a, bytes + p.transport_at, p.transport_len);
	}
	rx->train_at = 0;
	VB_COUNT(rx_bytes, whole);
	return true;
}

__attribute__((hot)) void vb_roce_arrived(struct vb_node *node, struct vb_roce_rx *rx,
                                          const struct vb_udp_arrival *came, uint8_t *bytes, size_t len)
{
	struct vb_roce_arrival a = {.flow = came->flow, .ip = came->ip, .ifindex = came->ifindex, .now = vb_now()};
	uint32_t seg = came->seg && came->seg <= len ? came->seg : (uint32_t)len;

	rx->run = NULL;
	rx->now = len <= SOON ? a.now : 0;
	VB_COUNT(rx_packets, (len + seg - 1) / seg);
	VB_COUNT(rx_bytes, len);
	/* Process an acknowledgement at the end of the datagram before the requests in it: a program expects its send
	 * to complete before the peer's reply arrives. */
	size_t last = (len - 1) / seg * seg;
	bool ack = last && (bytes[last] == VB_RC_ACK || bytes[last] == VB_XRC_ACK);

	if (ack) {
		a.ip.id = (uint16_t)(came->ip.id + last / seg);
		take_packet(node, rx, &a, bytes + last, len - last);
		a.ip.id = came->ip.id;
		len = last;
	}
	for (size_t off = 0; off < len; off += seg, a.ip.id++)
		take_packet(node, rx, &a, bytes + off, len - off < seg ? len - off : seg);
}

/* False: the rest of it waits. */
static __attribute__((hot)) bool take_datagram(struct vb_node *node, struct vb_roce_rx *rx, unsigned i, size_t len)
{
	uint8_t *bytes = rx->buffers + (size_t)i * BUFFER;
	struct vb_udp_arrival came;

	if (!len && rx->relayed) {
		vb_roce_lost(node);
		return true;
	}
	if (rx->framed) {
		if (len)
			return take_train(node, rx, bytes, len);
		port_lost(node->io->link);
		return true;
	}
	if (!decode_arrival(rx, i, &len, &came)) {
		VB_COUNT(drop_malformed, 1);
		return true;
	}
	rx->ifindex = came.ifindex;
	if (!rx->ring || vb_roce_ring_hears(node->io->roce, rx->ring, &came, bytes, len))
		vb_roce_arrived(node, rx, &came, bytes, len);
	return true;
}

static __attribute__((hot)) void prepare_buffer(struct vb_roce_rx *rx, unsigned i)
{
	rx->iov[i] = (struct iovec){rx->buffers + (size_t)i * BUFFER, BUFFER};
	rx->mh[i].msg_hdr = (struct msghdr){.msg_name = &rx->from[i],
	                                    .msg_namelen = sizeof(rx->from[i]),
	                                    .msg_iov = &rx->iov[i],
	                                    .msg_iovlen = 1,
	                                    .msg_control = rx->control[i],
	                                    .msg_controllen = sizeof(rx->control[i])};
	if (rx->framed)
		rx->mh[i].msg_hdr = (struct msghdr){.msg_iov = &rx->iov[i], .msg_iovlen = 1};
	if (!rx->relayed)
		return;
	rx->with_head[i][0] = (struct iovec){&rx->head[i], sizeof(rx->head[i])};
	rx->with_head[i][1] = rx->iov[i];
	rx->mh[i].msg_hdr = (struct msghdr){.msg_iov = rx->with_head[i], .msg_iovlen = 2};
}

/* Under progress. No cancellation points. Returns the number of datagrams, or -errno. */
static __attribute__((hot)) long receive_batch(struct vb_roce_rx *rx)
{
	if (rx->vlen > 1)
		return vb_syscall(SYS_recvmmsg, rx->fd, (long)rx->mh, rx->vlen, MSG_DONTWAIT, 0, 0);
	long len = vb_syscall(SYS_recvmsg, rx->fd, (long)&rx->mh[0].msg_hdr, MSG_DONTWAIT, 0, 0, 0);

	rx->mh[0].msg_len = len < 0 ? 0 : (unsigned)len;
	return len < 0 ? len : 1;
}

/* What of the last batch waits goes first. */
static __attribute__((hot)) bool next_batch(struct vb_roce_rx *rx)
{
	if (rx->next < rx->n)
		return true;
	for (; rx->prepared < rx->vlen; rx->prepared++)
		prepare_buffer(rx, rx->prepared);
	long n = receive_batch(rx);

	rx->next = 0;
	rx->n = n > 0 ? (unsigned)n : 0;
	if (rx->n)
		rx->prepared = 0; /* the kernel has changed the lengths */
	return rx->n;
}

__attribute__((hot)) unsigned vb_roce_poll_socket(struct vb_node *node, struct vb_roce_rx *rx)
{
	if (!next_batch(rx)) {
		rx->vlen = 1;
		rx->filled = false;
		return 0;
	}
	unsigned first = rx->next, n = rx->n;
	size_t bytes = 0;

	for (; rx->next < n && take_datagram(node, rx, rx->next, rx->mh[rx->next].msg_len); rx->next++)
		bytes += rx->mh[rx->next].msg_len;
	vb_roce_answer_batch(rx);
	if (rx->next < n)
		return rx->next - first;
	bool full = n == rx->vlen;

	if (bytes >= ENOUGH)
		rx->vlen = ENOUGH / BUFFER;
	else if (full && rx->filled && rx->vlen < BATCH)
		rx->vlen *= 2;
	rx->filled = full;
	return n - first;
}

__attribute__((hot)) unsigned vb_roce_poll(struct vb_node *node)
{
	struct vb_roce_sockets *s = node->io->roce;
	struct vb_roce_rx *rx = s->rx;

	if (__builtin_expect(s->held != NULL, 0))
		vb_roce_forward_held(node);
	if (rx->ring)
		return vb_roce_poll_ring(s, rx->ring);
	if (rx->relayed && vb_roce_lost_at(node)) /* every read would report the end of the channel again */
		return 0;
	unsigned n = vb_roce_poll_socket(node, rx);

	if (n && !s->relayed)
		vb_roce_ring_learn(s, rx->ifindex);
	return n;
}

unsigned vb_roce_poll_port(struct vb_roce_sockets *s)
{
	return atomic_load_explicit(&s->lost_at, memory_order_relaxed) ? 0 : vb_roce_poll_socket(s->node, s->rx);
}
