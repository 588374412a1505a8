// packet_ring.c - short packets in memory that the kernel shares: when a ring is used, and how it goes with the socket
// see: docs/roce.md, "Short packets without system calls"
// SPDX-License-Identifier: MIT
#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "core/counters.h"
#include "net/ipsec.h"
#include "net/packet_ring.h"
#include "path/roce/roce.h"
#include "util/env.h"
#include "util/log.h"
#include "util/syscall.h"

#define LEARN 64u         /* batches of one interface, one after the other, before a ring is made or used again */
#define PROOF 32u         /* packets that are in the ring as in the socket, before the socket leaves short ones to it */
#define MISMATCHES 8u     /* packets in a trial that the ring lacks, and troubles of a ring, until it is given up … */
#define EARLIER 65536u    /* … if one has been found: the socket may have had so many before */
#define LOST 8u           /* announced packets, one after the other, that do not come: then the ring is of no use */
#define BATCH 16u         /* packets of the ring per poll */
#define PATIENCE VB_MS(5) /* ns until an announced packet is taken for lost, and copies have come */
#define LOOK_EVERY 32u /* a poller looks at the socket once in so many polls, for packets that no ring announces … */
#define OFTEN 1024u    /* … and after one, so many times each time */
#define CHECK VB_S(1)  /* ns between checks whether the ring may go on */

static const char differs[] = "what the ring has differs from what the socket has";

static struct vb_packet_ring *ring_of(struct vb_roce_sockets *s)
{
	return atomic_load_explicit(&s->ring.now, memory_order_relaxed);
}

/* --- whose packet it is --- */

/* No cancellation points, and errno stays. A refusal for another reason is no answer. */
static bool ask_address(const uint8_t address[VB_GID_LEN], uint32_t ifindex)
{
	struct sockaddr_storage sa;
	socklen_t len = vb_gid_to_sockaddr(&sa, address, 0, ifindex);
	long fd = vb_syscall(SYS_socket, sa.ss_family, SOCK_DGRAM | SOCK_CLOEXEC, 0, 0, 0, 0);

	if (fd < 0)
		return true;
	bool own = vb_syscall(SYS_bind, fd, (long)&sa, (long)len, 0, 0, 0) != -EADDRNOTAVAIL;

	vb_syscall(SYS_close, fd, 0, 0, 0, 0, 0);
	return own;
}

static __attribute__((hot)) bool is_own(struct vb_roce_ring *k, const uint8_t address[VB_GID_LEN], uint32_t ifindex)
{
	for (unsigned i = 0; i < VB_RING_ADDRESSES; i++)
		if (k->address[i].known && !memcmp(k->address[i].gid, address, VB_GID_LEN))
			return k->address[i].own;
	struct vb_ring_address *a = &k->address[k->next_address++ % VB_RING_ADDRESSES];

	*a = (struct vb_ring_address){.known = true, .own = ask_address(address, ifindex)};
	memcpy(a->gid, address, VB_GID_LEN);
	return a->own;
}

static bool is_loopback(const uint8_t gid[VB_GID_LEN])
{
	static const uint8_t v6[VB_GID_LEN] = {[15] = 1};

	return vb_gid_is_ipv4(gid) ? gid[12] == 127 : !memcmp(gid, v6, VB_GID_LEN);
}

/* A packet socket shows what the link brings. IP would pass on what is for another host, and drop what claims to be from
 * this one. */
static __attribute__((hot)) bool is_for_us(struct vb_roce_ring *k, const struct vb_packet_ring *ring,
                                           const struct vb_udp_arrival *came)
{
	const struct vb_flow *f = &came->flow;

	if (!is_own(k, f->dst, came->ifindex))
		return false;
	return vb_packet_ring_is_lo(ring) ||
	       (!is_loopback(f->src) && !is_loopback(f->dst) && !is_own(k, f->src, came->ifindex));
}

/* --- polling --- */

static __attribute__((hot)) void take_from_ring(struct vb_roce_sockets *s, struct vb_packet_ring *ring,
                                                const struct vb_udp_arrival *came, uint8_t *bytes, size_t len)
{
	if (!len)
		VB_COUNT(drop_malformed, 1);
	else if (!is_for_us(&s->ring, ring, came))
		VB_COUNT(drop_source, 1);
	else
		vb_roce_arrived(s->node, s->rx, came, bytes, len);
	vb_packet_ring_next(ring);
}

/* Takes the ring's packets up to a long one. Returns how many, and what is next. */
static __attribute__((hot)) unsigned take_short(struct vb_roce_sockets *s, struct vb_packet_ring *ring, unsigned most,
                                                enum vb_ring_packet *next)
{
	struct vb_udp_arrival came;
	unsigned n = 0;
	uint8_t *bytes;
	size_t len;

	while ((*next = vb_packet_ring_first(ring, &came, &bytes, &len)) == VB_RING_SHORT && n++ < most)
		take_from_ring(s, ring, &came, bytes, len);
	return n < most ? n : most;
}

/* The short ones before a place, in their order; the long ones there have come, or will not be in order. */
static void pass(struct vb_roce_sockets *s, struct vb_packet_ring *ring, uint32_t end)
{
	enum vb_ring_packet what;
	struct vb_udp_arrival came;
	uint8_t *bytes;
	size_t len;

	while ((what = vb_packet_ring_first(ring, &came, &bytes, &len)) != VB_RING_EMPTY &&
	       (int32_t)(vb_packet_ring_at(ring) - end) < 0)
		if (what == VB_RING_SHORT)
			take_from_ring(s, ring, &came, bytes, len);
		else
			vb_packet_ring_next(ring);
}

/* The long packet at the front of the ring is not in the socket yet. The processor that brings it may be interrupted, at
 * worst by a hypervisor. */
static void wait_for_long(struct vb_roce_sockets *s, struct vb_packet_ring *ring)
{
	struct vb_roce_ring *k = &s->ring;
	uint64_t now = vb_now();

	if (!k->waits_since)
		k->waits_since = now;
	if (now - k->waits_since < PATIENCE)
		return;
	k->waits_since = 0;
	vb_packet_ring_next(ring);
	if (++k->lost < LOST)
		return;
	k->unfit = vb_packet_ring_ifindex(ring);
	vb_roce_ring_end(s, differs);
}

static bool looks_at_socket(struct vb_roce_ring *k)
{
	if (!k->often)
		return ++k->looks >= LOOK_EVERY;
	k->often--;
	return true;
}

/* The socket is empty. */
static void forget_copies(struct vb_roce_ring *k)
{
	if (k->claimed_at && vb_now() - k->claimed_at > PATIENCE)
		k->claimed_at = 0;
}

static __attribute__((hot)) unsigned poll_in_use(struct vb_roce_sockets *s, struct vb_packet_ring *ring)
{
	struct vb_roce_ring *k = &s->ring;
	enum vb_ring_packet next;
	unsigned n = take_short(s, ring, BATCH, &next);

	if (n)
		vb_roce_answer_batch(s->rx);
	if (next != VB_RING_LONG && !looks_at_socket(k))
		return n;
	k->looks = k->announced = 0;
	unsigned m = vb_roce_poll_socket(s->node, s->rx);

	if (m > k->announced)
		k->often = OFTEN;
	if (next == VB_RING_LONG && !k->announced)
		wait_for_long(s, ring);
	else
		k->waits_since = 0;
	if (!m)
		forget_copies(k);
	return n + m;
}

/* No copies are in the socket any more. */
static void leave(struct vb_roce_sockets *s)
{
	struct vb_packet_ring *r = ring_of(s);

	atomic_store(&s->ring.state, VB_RING_PAUSED);
	vb_roce_rx_ring(s->rx, NULL);
	s->ring.heard = 0;
	if (!s->ring.ends)
		return;
	s->ring.ends = false;
	atomic_store(&s->ring.now, NULL);
	atomic_store(&s->ring.dead, r);
}

/* The trial has ended well. Copies of what the ring has now are in the socket, too. */
static void use(struct vb_roce_sockets *s, struct vb_packet_ring *ring)
{
	if (!vb_packet_ring_claim(ring, s->lane_fd))
		return;
	s->ring.claimed_at = vb_now();
	s->ring.waits_since = 0;
	s->ring.looks = s->ring.often = s->ring.lost = 0;
	atomic_store(&s->ring.state, VB_RING_IN_USE);
}

__attribute__((hot)) unsigned vb_roce_poll_ring(struct vb_roce_sockets *s, struct vb_packet_ring *ring)
{
	if (__builtin_expect(atomic_load_explicit(&s->ring.state, memory_order_relaxed) == VB_RING_IN_USE, 1))
		return poll_in_use(s, ring);
	unsigned n = vb_roce_poll_socket(s->node, s->rx);
	enum vb_ring_state state = atomic_load_explicit(&s->ring.state, memory_order_relaxed);

	if (state == VB_RING_TRIAL && s->ring.matched >= PROOF)
		use(s, ring);
	if (state != VB_RING_LEFT || n)
		return n;
	forget_copies(&s->ring);
	if (!s->ring.claimed_at)
		leave(s);
	return n;
}

/* --- what comes by the socket --- */

/* What was in the socket when the trial began is not in the ring. After the first that is, all are. */
static void try_ring(struct vb_roce_sockets *s, struct vb_packet_ring *ring, const struct vb_udp_arrival *came, int at)
{
	struct vb_roce_ring *k = &s->ring;

	if (at >= 0)
		vb_packet_ring_seen(ring, at);
	if (at >= 0 && is_for_us(k, ring, came)) {
		k->mismatches = k->matched++ ? k->mismatches : 0;
		return;
	}
	if (++k->mismatches <= (k->matched ? MISMATCHES : EARLIER))
		return;
	k->unfit = came->ifindex;
	vb_roce_ring_end(s, differs);
}

/* The ring has been left: a datagram that it does not have came after all that it has. */
static bool hears_after(struct vb_roce_sockets *s, struct vb_packet_ring *ring, const struct vb_udp_arrival *came,
                        const uint8_t *bytes, size_t len, enum vb_ring_packet kind)
{
	if (kind == VB_RING_SHORT && vb_packet_ring_had(ring, came, bytes, len))
		return false;
	int at = vb_packet_ring_find(ring, came, bytes, len);

	if (at >= 0)
		vb_packet_ring_seen(ring, at);
	pass(s, ring, vb_packet_ring_at(ring) + (uint32_t)(at < 0 ? INT32_MAX : at));
	return true;
}

__attribute__((hot)) bool vb_roce_ring_hears(struct vb_roce_sockets *s, struct vb_packet_ring *ring,
                                             const struct vb_udp_arrival *came, const uint8_t *bytes, size_t len)
{
	struct vb_roce_ring *k = &s->ring;
	enum vb_ring_packet kind = vb_packet_ring_kind(ring, came, bytes, len);

	if (kind == VB_RING_EMPTY)
		return true;
	enum vb_ring_state state = atomic_load_explicit(&k->state, memory_order_relaxed);

	if (state == VB_RING_LEFT)
		return hears_after(s, ring, came, bytes, len, kind);
	bool in_use = state == VB_RING_IN_USE;

	if (in_use && kind == VB_RING_SHORT) /* a copy from before the claim, or what only looks as if it were there */
		return !k->claimed_at && !vb_packet_ring_had(ring, came, bytes, len);
	int at = vb_packet_ring_find(ring, came, bytes, len);

	if (!in_use) {
		try_ring(s, ring, came, at);
		return true;
	}
	if (at < 0)
		return true;
	k->announced++;
	k->lost = 0;
	vb_packet_ring_seen(ring, at);
	pass(s, ring, vb_packet_ring_at(ring) + (uint32_t)at);
	return true;
}

/* --- its beginning and its end --- */

static bool ring_is_allowed(void)
{
	const char *text = vb_env("VERBENA_RING");

	return !text || strcmp(text, "off") != 0;
}

/* Under progress. */
static void begin_trial(struct vb_roce_sockets *s, struct vb_packet_ring *r)
{
	struct vb_roce_ring *k = &s->ring;

	if (!vb_packet_ring_open(r))
		return;
	k->matched = k->mismatches = 0;
	atomic_store(&k->state, VB_RING_TRIAL);
	vb_roce_rx_ring(s->rx, r);
}

void vb_roce_ring_learn(struct vb_roce_sockets *s, uint32_t ifindex)
{
	struct vb_roce_ring *k = &s->ring;
	struct vb_packet_ring *r = ring_of(s);

	if (ifindex != k->heard_from) {
		k->heard_from = ifindex;
		k->heard = 0;
	}
	if (k->heard >= LEARN || ifindex == k->unfit || atomic_load(&k->forbidden) || vb_roce_sharing(s) ||
	    atomic_load_explicit(&s->node->owner, memory_order_relaxed) != VB_OWNER_POLLER)
		return;
	if (++k->heard < LEARN || !ring_is_allowed())
		return;
	if (r && vb_packet_ring_ifindex(r) == ifindex) {
		begin_trial(s, r);
		return;
	}
	if (r)
		vb_roce_ring_end(s, NULL);
	atomic_store(&k->wanted, ifindex);
	vb_progress_wake(s->node);
}

static void drop_all(struct vb_packet_ring *r)
{
	struct vb_udp_arrival came;
	uint8_t *bytes;
	size_t len;

	while (vb_packet_ring_first(r, &came, &bytes, &len) != VB_RING_EMPTY)
		vb_packet_ring_next(r);
}

/* Takes what the ring has, and the long packets between from the socket, which has all later ones. */
static void empty_ring(struct vb_roce_sockets *s, struct vb_packet_ring *r)
{
	uint64_t since = vb_now();
	enum vb_ring_packet next;

	for (;;) {
		take_short(s, r, UINT32_MAX, &next);
		vb_roce_answer_batch(s->rx);
		if (next == VB_RING_EMPTY)
			return;
		vb_roce_poll_socket(s->node, s->rx);
		if (vb_now() - since > PATIENCE)
			vb_packet_ring_next(r);
	}
}

/* Packets that arrive between the two calls of the kernel are lost. In the other order they would come twice. */
void vb_roce_ring_pause(struct vb_roce_sockets *s)
{
	struct vb_packet_ring *r = ring_of(s);
	enum vb_ring_state was = atomic_load_explicit(&s->ring.state, memory_order_relaxed);

	s->ring.heard = 0;
	if (!r || was == VB_RING_PAUSED || was == VB_RING_LEFT)
		return;
	vb_packet_ring_shut(r);
	if (was == VB_RING_TRIAL) {
		drop_all(r);
		leave(s);
		return;
	}
	vb_packet_ring_forget(s->lane_fd);
	atomic_store(&s->ring.state, VB_RING_LEFT);
	s->ring.claimed_at = vb_now();
	empty_ring(s, r);
}

void vb_roce_ring_end(struct vb_roce_sockets *s, const char *why)
{
	if (!ring_of(s) || s->ring.ends)
		return;
	s->ring.why = why;
	s->ring.ends = true;
	if (atomic_load(&s->ring.state) == VB_RING_PAUSED)
		leave(s);
	else
		vb_roce_ring_pause(s);
}

void vb_roce_ring_forbid(struct vb_node *node)
{
	struct vb_roce_sockets *s = node->io->roce;

	if (atomic_exchange(&s->ring.forbidden, true))
		return;
	vb_lock(&node->progress);
	vb_roce_ring_end(s, "the program has a queue pair that needs its packets in order");
	vb_unlock(&node->progress);
}

void vb_roce_ring_close(struct vb_roce_sockets *s)
{
	struct vb_packet_ring *r = ring_of(s);

	s->ring.why = NULL;
	vb_roce_ring_free(s);
	if (!r)
		return;
	vb_packet_ring_forget(s->lane_fd);
	vb_packet_ring_free(r);
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

/* Under progress. */
static void begin_life(struct vb_roce_sockets *s, struct vb_packet_ring *r)
{
	memset(s->ring.address, 0, sizeof(s->ring.address));
	atomic_store(&s->ring.state, VB_RING_PAUSED);
	atomic_store(&s->ring.now, r);
	if (atomic_load(&s->node->owner) == VB_OWNER_POLLER)
		begin_trial(s, r);
}

/* Packets of IPsec are not in the ring as they are in the socket. */
static void make_ring(struct vb_roce_sockets *s, uint32_t ifindex)
{
	struct vb_packet_ring *r = vb_ipsec_is_unused() ? vb_packet_ring_new(ifindex, s->node->lane) : NULL;

	vb_lock(&s->node->progress);
	bool wanted = r && !atomic_load(&s->ring.forbidden);

	if (wanted)
		begin_life(s, r);
	else
		s->ring.unfit = ifindex;
	vb_unlock(&s->node->progress);
	s->ring.told = false;
	if (r && !wanted)
		vb_packet_ring_free(r);
}

static void say_ring(struct vb_roce_ring *k, const struct vb_packet_ring *r)
{
	bool in_use = atomic_load_explicit(&k->state, memory_order_relaxed) == VB_RING_IN_USE;

	if (!k->told && in_use)
		vb_log(VB_LOG_INFO, "short packets of interface %u come by the ring of a packet socket",
		       vb_packet_ring_ifindex(r));
	k->told |= in_use;
}

static void check_ring(struct vb_roce_sockets *s, const struct vb_packet_ring *r)
{
	const char *why = vb_packet_ring_trouble(r);

	if (!why && !vb_ipsec_is_unused())
		why = "the host uses IPsec";
	if (!why)
		return;
	vb_lock(&s->node->progress);
	s->ring.troubles++;
	if (s->ring.troubles > MISMATCHES)
		s->ring.unfit = vb_packet_ring_ifindex(r);
	vb_roce_ring_end(s, why);
	vb_unlock(&s->node->progress);
}

/* Takes no lock while there is nothing to do: the polling program would lose its right to take it without an exchange. A
 * paused ring is not checked, so that nobody wakes for it: the next trial shows whether it is in order. */
void vb_roce_ring_look(struct vb_node *node)
{
	struct vb_roce_sockets *s = node->io->roce;
	uint32_t wanted = atomic_load_explicit(&s->ring.wanted, memory_order_relaxed);

	vb_roce_ring_free(s);
	struct vb_packet_ring *r = ring_of(s);

	if (wanted && !r) {
		atomic_store(&s->ring.wanted, 0);
		make_ring(s, wanted);
		return;
	}
	if (!r || atomic_load_explicit(&s->ring.state, memory_order_relaxed) == VB_RING_PAUSED)
		return;
	say_ring(&s->ring, r);
	if (vb_now() - s->ring.checked_at > CHECK) {
		s->ring.checked_at = vb_now();
		check_ring(s, r);
	}
}
