// packet_ring.c - short packets in memory that the kernel shares: when a ring is made, and how it goes with the socket
// see: docs/roce.md, "Short packets without system calls"
// SPDX-License-Identifier: MIT
#include <stdlib.h>
#include <string.h>
#include <sys/epoll.h>
#include <unistd.h>

#include "core/counters.h"
#include "net/ipsec.h"
#include "net/packet_ring.h"
#include "path/roce/roce.h"
#include "util/env.h"
#include "util/log.h"

#define LEARN 64u         /* datagrams of one interface, one after the other, before a ring is made */
#define PROOF 32u         /* short packets that are in the ring as in the socket, before the socket leaves them to it */
#define MISMATCHES 8u     /* in the trial: two processors may deliver packets in another order each time */
#define BATCH 16u         /* packets of the ring per poll */
#define PATIENCE VB_MS(5) /* ns until an announced packet that does not come is taken for lost */
#define LOOK_EVERY 32u /* a poller looks at the socket once in so many polls, for packets that no ring announces … */
#define OFTEN 1024u    /* … and after one, so many times each time */
#define CHECK VB_S(1)  /* ns between checks whether the ring may go on */

static struct vb_packet_ring *ring_of(struct vb_roce_sockets *s)
{
	return atomic_load_explicit(&s->ring.now, memory_order_relaxed);
}

static const char link_down[] = "the interface went down";

/* --- polling --- */

static enum vb_ring_packet ring_shows(const struct vb_packet_ring *ring)
{
	struct vb_udp_arrival came;
	uint8_t *bytes;
	size_t len;

	return vb_packet_ring_first(ring, &came, &bytes, &len);
}

/* A packet socket shows what the link brings. IP would pass on what is for another host. */
static bool is_own(const uint8_t address[VB_GID_LEN], uint32_t ifindex)
{
	struct sockaddr_storage sa;
	socklen_t len = vb_gid_to_sockaddr(&sa, address, 0, ifindex);
	int fd = socket(sa.ss_family, SOCK_DGRAM | SOCK_CLOEXEC, 0);
	bool own = fd < 0 || !bind(fd, (struct sockaddr *)&sa, len);

	if (fd >= 0)
		close(fd);
	return own;
}

static __attribute__((hot)) bool is_for_us(struct vb_roce_ring *k, const struct vb_udp_arrival *came)
{
	if (__builtin_expect(!memcmp(k->own, came->flow.dst, VB_GID_LEN), 1))
		return true;
	if (!is_own(came->flow.dst, came->ifindex))
		return false;
	memcpy(k->own, came->flow.dst, VB_GID_LEN);
	return true;
}

static __attribute__((hot)) void take_from_ring(struct vb_roce_sockets *s, const struct vb_udp_arrival *came,
                                                uint8_t *bytes, size_t len)
{
	if (!len)
		VB_COUNT(drop_malformed, 1);
	else if (!is_for_us(&s->ring, came))
		VB_COUNT(drop_source, 1);
	else
		vb_roce_arrived(s->node, s->rx, came, bytes, len);
}

/* Takes the ring's packets up to a long one, `most` short ones at most. */
static __attribute__((hot)) unsigned take_short(struct vb_roce_sockets *s, struct vb_packet_ring *ring, unsigned most,
                                                enum vb_ring_packet *last)
{
	struct vb_udp_arrival came;
	unsigned n = 0;
	uint8_t *bytes;
	size_t len;

	*last = VB_RING_SHORT;
	while (n < most && (*last = vb_packet_ring_first(ring, &came, &bytes, &len)) == VB_RING_SHORT) {
		take_from_ring(s, &came, bytes, len);
		vb_packet_ring_next(ring);
		n++;
	}
	return n;
}

/* Takes the short packets that go before a long one, of which the socket has the rest. */
static __attribute__((hot)) unsigned take_ring(struct vb_roce_sockets *s, struct vb_packet_ring *ring)
{
	struct vb_roce_ring *k = &s->ring;
	enum vb_ring_packet last;
	unsigned n = take_short(s, ring, BATCH, &last);

	if (n)
		vb_roce_answer_batch(s->rx);
	for (; last == VB_RING_IN_SOCKET && k->awaits < BATCH; last = ring_shows(ring)) {
		vb_packet_ring_next(ring);
		k->awaits++;
	}
	return n;
}

/* The processor that brings an announced packet may be interrupted, for longest by a hypervisor. */
static void be_patient(struct vb_roce_ring *k)
{
	uint64_t now = vb_now();

	if (!k->waits_since)
		k->waits_since = now;
	if (now - k->waits_since < PATIENCE)
		return;
	k->awaits = 0;
	k->waits_since = 0;
}

static __attribute__((hot)) unsigned take_socket(struct vb_roce_sockets *s)
{
	struct vb_roce_ring *k = &s->ring;

	k->announced = 0;
	unsigned n = vb_roce_poll_socket(s->node, s->rx);

	k->looks = 0;
	if (n > k->announced)
		k->often = OFTEN;
	if (n)
		k->waits_since = 0;
	else if (k->awaits)
		be_patient(k);
	return n;
}

/* A long packet has come by the socket. What the ring has before it goes first. */
static __attribute__((hot)) void await(struct vb_roce_sockets *s, struct vb_packet_ring *ring)
{
	enum vb_ring_packet last;

	s->ring.announced++;
	if (s->ring.awaits) {
		s->ring.awaits--;
		return;
	}
	take_short(s, ring, UINT32_MAX, &last);
	if (last == VB_RING_IN_SOCKET)
		vb_packet_ring_next(ring);
}

static __attribute__((hot)) bool looks_at_socket(struct vb_roce_ring *k, bool finish)
{
	if (k->awaits || finish)
		return true;
	if (k->often) {
		k->often--;
		return true;
	}
	return ++k->looks >= LOOK_EVERY;
}

/* Long packets that have come go from the front of the ring. */
static void pass_long(struct vb_roce_ring *k, struct vb_packet_ring *ring)
{
	enum vb_ring_packet what;

	while ((what = ring_shows(ring)) == VB_RING_IN_SOCKET && k->ahead) {
		vb_packet_ring_next(ring);
		k->ahead--;
	}
	if (what == VB_RING_EMPTY)
		k->ahead = 0;
}

/* The trial has ended well, if no packet that has come is in the ring any more. Copies of those that are there are in the
 * socket, too: they are discarded when they come. */
static void use(struct vb_roce_sockets *s, struct vb_packet_ring *ring)
{
	pass_long(&s->ring, ring);
	if (s->ring.ahead || !vb_packet_ring_claim(ring, s->lane_fd))
		return;
	s->ring.state = VB_RING_IN_USE;
	if (atomic_load_explicit(&s->node->owner, memory_order_relaxed) == VB_OWNER_THREAD)
		vb_roce_ring_watch(s, true);
}

__attribute__((hot)) unsigned vb_roce_poll_ring(struct vb_roce_sockets *s, struct vb_packet_ring *ring, bool finish)
{
	unsigned n;

	if (__builtin_expect(s->ring.state == VB_RING_TRIAL, 0)) {
		n = vb_roce_poll_socket(s->node, s->rx);
		if (s->ring.matched >= PROOF && ring_of(s))
			use(s, ring);
		return n;
	}
	n = s->ring.awaits ? 0 : take_ring(s, ring);

	if (looks_at_socket(&s->ring, finish))
		n += take_socket(s);
	if (finish && !n && vb_packet_ring_failed(ring))
		vb_roce_ring_end(s, link_down);
	return n;
}

/* --- what comes by the socket --- */

/* What entered the ring before the trial goes from its front. */
static bool find_first(struct vb_packet_ring *ring, const struct vb_udp_arrival *came, const uint8_t *bytes, size_t len)
{
	while (!vb_packet_ring_matches(ring, came, bytes, len)) {
		if (ring_shows(ring) == VB_RING_EMPTY)
			return false;
		vb_packet_ring_next(ring);
	}
	return true;
}

static void try_ring(struct vb_roce_sockets *s, struct vb_packet_ring *ring, const struct vb_udp_arrival *came,
                     const uint8_t *bytes, size_t len)
{
	struct vb_roce_ring *k = &s->ring;

	pass_long(k, ring);
	if (k->matched ? vb_packet_ring_matches(ring, came, bytes, len) : find_first(ring, came, bytes, len)) {
		vb_packet_ring_next(ring);
		k->matched++;
		return;
	}
	k->matched = k->ahead = 0;
	if (++k->mismatches <= MISMATCHES)
		return;
	k->unfit = came->ifindex;
	vb_roce_ring_end(s, "other packets are in the ring than in the socket");
}

__attribute__((hot)) bool vb_roce_ring_hears(struct vb_roce_sockets *s, struct vb_packet_ring *ring,
                                             const struct vb_udp_arrival *came, const uint8_t *bytes, size_t len)
{
	struct vb_roce_ring *k = &s->ring;
	enum vb_ring_packet has = vb_packet_ring_has(ring, came, bytes, len);

	if (has == VB_RING_IN_SOCKET && k->state == VB_RING_IN_USE)
		await(s, ring);
	else if (k->state == VB_RING_IN_USE)
		return has != VB_RING_SHORT;
	else if (has == VB_RING_IN_SOCKET)
		k->ahead += k->matched > 0; /* the ring may lack those before */
	else if (has == VB_RING_SHORT)
		try_ring(s, ring, came, bytes, len);
	return true;
}

/* --- its beginning and its end --- */

static bool ring_is_allowed(void)
{
	const char *text = vb_env("VERBENA_RING");

	return !text || strcmp(text, "off") != 0;
}

void vb_roce_ring_learn(struct vb_roce_sockets *s, uint32_t ifindex)
{
	struct vb_roce_ring *k = &s->ring;

	if (ifindex != k->heard_from) {
		k->heard_from = ifindex;
		k->heard = 0;
	}
	if (k->heard >= LEARN || ifindex == k->unfit ||
	    atomic_load_explicit(&s->node->owner, memory_order_relaxed) != VB_OWNER_POLLER)
		return;
	if (++k->heard < LEARN || !ring_is_allowed())
		return;
	atomic_store(&k->wanted, ifindex);
	vb_progress_wake(s->node);
}

void vb_roce_ring_watch(struct vb_roce_sockets *s, bool watch)
{
	struct epoll_event ev = {.events = EPOLLIN, .data.ptr = &s->node->io->transport[VB_TRANSPORT_ROCE]};

	if (ring_of(s) && s->ring.state == VB_RING_IN_USE)
		epoll_ctl(s->node->io->epoll_fd, watch ? EPOLL_CTL_ADD : EPOLL_CTL_DEL, vb_packet_ring_fd(ring_of(s)),
		          &ev);
}

void vb_roce_ring_end(struct vb_roce_sockets *s, const char *why)
{
	struct vb_packet_ring *r = ring_of(s);

	if (!r)
		return;
	vb_roce_ring_watch(s, false);
	vb_packet_ring_forget(s->lane_fd);
	vb_roce_rx_ring(s->rx, NULL);
	s->ring.why = why;
	atomic_store(&s->ring.now, NULL);
	atomic_store(&s->ring.dead, r);
	s->ring.heard = 0; /* there may be another one */
}

void vb_roce_ring_free(struct vb_roce_sockets *s)
{
	struct vb_packet_ring *r = atomic_exchange(&s->ring.dead, NULL);

	if (!r)
		return;
	if (s->ring.why)
		vb_log(VB_LOG_INFO, "short packets come by the socket again: %s", s->ring.why);
	vb_packet_ring_free(r);
}

/* Packets of IPsec are not in the ring as they are in the socket. */
static void make(struct vb_roce_sockets *s, uint32_t ifindex)
{
	struct vb_packet_ring *r = vb_ipsec_is_unused() ? vb_packet_ring_new(ifindex, s->node->lane) : NULL;

	if (!r)
		return;
	vb_lock(&s->node->progress);
	s->ring.state = VB_RING_TRIAL;
	s->ring.matched = s->ring.mismatches = s->ring.awaits = s->ring.ahead = 0;
	vb_roce_rx_ring(s->rx, r);
	atomic_store(&s->ring.now, r);
	vb_unlock(&s->node->progress);
	s->ring.told = false;
}

static void say_ring(struct vb_roce_ring *k)
{
	if (!k->told && k->state == VB_RING_IN_USE)
		vb_log(VB_LOG_INFO, "short packets of interface %u come by the ring of a packet socket", k->heard_from);
	k->told |= k->state == VB_RING_IN_USE;
}

/* Takes no lock while there is nothing to do: the polling program would lose its right to take it without an exchange. */
void vb_roce_ring_look(struct vb_node *node)
{
	struct vb_roce_sockets *s = node->io->roce;
	struct vb_packet_ring *r = ring_of(s);
	uint32_t wanted = atomic_load_explicit(&s->ring.wanted, memory_order_relaxed);

	if (wanted && !r) {
		atomic_store(&s->ring.wanted, 0);
		make(s, wanted);
		return;
	}
	if (r)
		say_ring(&s->ring);
	if (r && vb_now() - s->ring.checked_at > CHECK) {
		s->ring.checked_at = vb_now();
		const char *why = vb_packet_ring_failed(r) ? link_down
		                  : !vb_ipsec_is_unused()  ? "the host uses IPsec"
		                                           : NULL;

		if (why) {
			vb_lock(&node->progress);
			vb_roce_ring_end(s, why);
			vb_unlock(&node->progress);
		}
	}
	vb_roce_ring_free(s);
}
