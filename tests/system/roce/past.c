// past.c - payload that goes past the caches into pages that the kernel passes on, and what happens if it does not take them
// follows: splice(2), udp(7) (UDP_SEGMENT); IBA volume 1, 9.7.5.2.4 (PSN sequence error)
// SPDX-License-Identifier: MIT
#include "stranger.h"

#include <stdatomic.h>
#include <stddef.h>
#include <sys/mman.h>
#include <sys/socket.h>

#include "engine/local/local.h"
#include "net/udp.h"
#include "net/udp_slots.h"
#include "path/roce/roce.h"
#include "util/guard.h"

#define MTU 1024u
#define PACKETS 100u /* of a write: one full send, and a second one, from pages */
#define FIRST 500u
#define WRITES 300u /* after so many the sender has slots */

static atomic_bool refuses; /* the kernel takes no pages */
static atomic_bool full;    /* the socket takes nothing */
static atomic_uint passed, gathered, copied;
static struct {
	uint8_t *at;
	size_t len;
} lines[128]; /* the lines that the last copies have stored past the caches */

bool __real_vb_udp_slots_pass(struct vb_udp_slots *s, int fd, const struct msghdr *to, uint8_t *bytes, uint32_t len,
                              const struct vb_udp_slot_use *use);
bool __wrap_vb_udp_slots_pass(struct vb_udp_slots *s, int fd, const struct msghdr *to, uint8_t *bytes, uint32_t len,
                              const struct vb_udp_slot_use *use);
long __real_vb_udp_send(int fd, const struct msghdr *mh);
long __wrap_vb_udp_send(int fd, const struct msghdr *mh);
bool __real_vb_guard_copy_sum_past(void *dst, void *past, const void *src, size_t n, uint64_t sum[2]);
bool __wrap_vb_guard_copy_sum_past(void *dst, void *past, const void *src, size_t n, uint64_t sum[2]);

/* Called instead of the functions of the adapter (wrapped by the linker). */
bool __wrap_vb_udp_slots_pass(struct vb_udp_slots *s, int fd, const struct msghdr *to, uint8_t *bytes, uint32_t len,
                              const struct vb_udp_slot_use *use)
{
	errno = EAGAIN;
	if (atomic_load(&refuses) || !__real_vb_udp_slots_pass(s, fd, to, bytes, len, use))
		return false;
	atomic_fetch_add(&passed, 1);
	return true;
}

long __wrap_vb_udp_send(int fd, const struct msghdr *mh)
{
	if (atomic_load(&full)) {
		errno = ENOBUFS;
		return -1;
	}
	if (mh->msg_iovlen > 1)
		atomic_fetch_add(&gathered, 1);
	return __real_vb_udp_send(fd, mh);
}

bool __wrap_vb_guard_copy_sum_past(void *dst, void *past, const void *src, size_t n, uint64_t sum[2])
{
	unsigned i = atomic_load(&copied) % 128;

	lines[i].at = (uint8_t *)past + vb_guard_past(past);
	lines[i].len = n - VB_GUARD_EDGE;
	atomic_fetch_add(&copied, 1);
	return __real_vb_guard_copy_sum_past(dst, past, src, n, sum);
}

static void say_ack(struct stranger *s, uint32_t psn, bool nak)
{
	struct vb_packet p = stranger_packet(s, VB_RC_ACK, psn & 0xffffff, 0);

	if (nak) {
		p.aeth.kind = VB_AETH_NAK;
		p.aeth.value = VB_NAK_PSN_SEQUENCE;
	}
	stranger_say(s, &p, NULL);
}

/* Takes a write of PACKETS packets from this PSN on, and compares it. lost: a packet that is asked for again, once. Every
 * ICRC must be right. */
static void take_write(struct stranger *s, uint32_t psn, const uint8_t *as, uint32_t lost)
{
	uint32_t next = 0;
	struct came c;

	while (next < PACKETS) {
		CHECK(stranger_take(s, &c, PATIENCE));
		uint32_t i = (c.p.bth.psn.v - psn) & 0xffffff;

		if (i >= PACKETS) /* of the write before, again */
			continue;
		CHECK(c.right && c.p.payload_len == MTU);
		CHECK(!memcmp(c.payload, as + (size_t)i * MTU, MTU));
		if (i == next && i == lost) {
			lost = UINT32_MAX;
			say_ack(s, psn + i, true);
		} else if (i == next) {
			next++;
		}
		if (c.p.bth.ack_req && next)
			say_ack(s, psn + next - 1, false);
	}
	say_ack(s, psn + PACKETS - 1, false);
}

static uint32_t at; /* packets so far */

/* A write from this offset of the memory. */
static void write_from(struct stranger *s, uint64_t off)
{
	POST(&s->l, .op = IBV_WR_RDMA_WRITE, .id = 1, .m = &s->m, .off = off, .len = PACKETS * MTU,
	     .far = {0x1234, 0x99, 0});
}

static void write_and_take(struct stranger *s, uint64_t off, uint32_t lost)
{
	write_from(s, off);
	take_write(s, FIRST + at, s->m.p + off, lost);
	at += PACKETS;
	expect(s->l.scq, 1, IBV_WC_SUCCESS);
}

/* Writes until payload goes past the caches. */
static void meet(struct stranger *s, bool v6)
{
	stranger_meet(s, &(struct conf){.psn = FIRST}, v6);
	mem_end(&s->m);
	mem_make(&s->m, &s->d, 256 << 10);
	fill(s->m.p, s->m.n, 3);
	for (unsigned i = 0; !atomic_load(&copied); i++) {
		CHECK(i < WRITES);
		write_and_take(s, i % 64, UINT32_MAX);
	}
}

static void arrives(bool v6)
{
	struct stranger s;
	unsigned before;

	meet(&s, v6);
	before = atomic_load(&passed);
	for (uint64_t off = 0; off < 70; off += 3) {
		fill(s.m.p, s.m.n, (unsigned)off);
		write_and_take(&s, off, UINT32_MAX);
	}
	CHECK(atomic_load(&passed) > before + 12);
	CHECK(atomic_load(&copied) > 12 * 48);
}

static void payload_arrives_from_any_address(void)
{
	arrives(false);
}

static void payload_arrives_from_any_address_by_ipv6(void)
{
	arrives(true);
}

/* The same pages are sent by sendmsg(2). */
static void pages_that_the_kernel_refuses_are_copied(void)
{
	struct stranger s;
	unsigned before, pages;

	meet(&s, false);
	atomic_store(&refuses, true);
	before = atomic_load(&gathered);
	pages = atomic_load(&passed);
	for (unsigned i = 0; i < 40; i++) {
		fill(s.m.p, s.m.n, i);
		write_and_take(&s, 4 * i + 1, UINT32_MAX);
	}
	CHECK(atomic_load(&gathered) > before);
	SAME(atomic_load(&passed), pages);
	atomic_store(&refuses, false);
	for (unsigned i = 0; i < 40; i++)
		write_and_take(&s, i, UINT32_MAX);
	CHECK(atomic_load(&passed) > pages);
}

/* Neither the program's memory nor the slot is read again: both may have other content then. */
static void what_waits_is_what_it_was(void)
{
	static uint8_t was[PACKETS * MTU];
	struct stranger s;
	struct came c;
	uint64_t waits, fetched;
	unsigned first;

	meet(&s, false);
	memcpy(was, s.m.p, sizeof(was));
	waits = atomic_load(&vb_counters.tx_waits);
	fetched = STAT(&s, bytes_copied_out);
	first = atomic_load(&copied);
	atomic_store(&refuses, true);
	atomic_store(&full, true);
	write_from(&s, 0);
	WAIT_FOR(atomic_load(&vb_counters.tx_waits) > waits);
	fetched = (STAT(&s, bytes_copied_out) - fetched) / MTU;
	CHECK(fetched > 60 && atomic_load(&copied) > first); /* some were in a slot */
	memset(s.m.p, 0xcc, s.m.n);
	for (unsigned i = first; i < atomic_load(&copied); i++)
		memset(lines[i % 128].at, 0xcc, lines[i % 128].len);
	atomic_store(&refuses, false);
	atomic_store(&full, false);
	for (uint32_t i = 0; i < fetched;) {
		CHECK(stranger_take(&s, &c, PATIENCE));
		if (((c.p.bth.psn.v - FIRST - at) & 0xffffff) != i)
			continue;
		CHECK(c.right && !memcmp(c.payload, was + i * MTU, MTU));
		say_ack(&s, FIRST + at + i++, false);
	}
}

static void a_lost_packet_is_repeated_from_memory(void)
{
	struct stranger s;

	meet(&s, false);
	for (uint32_t lost = 1; lost < PACKETS; lost += 9) {
		fill(s.m.p, s.m.n, lost);
		write_and_take(&s, lost, lost);
	}
	CHECK(STAT(&s, resent_pkts) > 0);
}

/* The payload of a packet is in two pieces of memory. */
static void pieces_arrive(void)
{
	struct stranger s;

	meet(&s, false);
	for (unsigned i = 0; i < 20; i++) {
		uint32_t front = 50 * MTU + 4 * i + 3, rest = PACKETS * MTU - front;
		struct ibv_sge sge[2] = {{(uintptr_t)s.m.p, front, s.m.mr->lkey},
		                         {(uintptr_t)s.m.p + front, rest, s.m.mr->lkey}};
		struct ibv_send_wr *bad, wr = {.wr_id = 1,
		                               .sg_list = sge,
		                               .num_sge = 2,
		                               .opcode = IBV_WR_RDMA_WRITE,
		                               .send_flags = IBV_SEND_SIGNALED,
		                               .wr.rdma = {0x1234, 0x99}};

		fill(s.m.p, s.m.n, i);
		CHECK(!ibv_post_send(s.l.qp, &wr, &bad));
		take_write(&s, FIRST + at, s.m.p, UINT32_MAX);
		at += PACKETS;
		expect(s.l.scq, 1, IBV_WC_SUCCESS);
	}
}

/* What comes before it is sent. */
static void memory_that_is_not_there_fails_its_request(void)
{
	struct stranger s;

	meet(&s, false);
	CHECK(!munmap(s.m.p + 64 * MTU, 4096));
	write_from(&s, 0);
	for (uint32_t i = 0; i < 64; i++) {
		struct came c;

		CHECK(stranger_take(&s, &c, PATIENCE));
		if (((c.p.bth.psn.v - FIRST - at) & 0xffffff) != i) {
			i--;
			continue;
		}
		CHECK(c.right && !memcmp(c.payload, s.m.p + i * MTU, MTU));
		say_ack(&s, FIRST + at + i, false);
	}
	expect(s.l.scq, 1, IBV_WC_LOC_PROT_ERR);
}

int main(int argc, char **argv)
{
	static const struct test tests[] = {
	        {"payload arrives from any address", payload_arrives_from_any_address},
	        {"payload arrives from any address by IPv6", payload_arrives_from_any_address_by_ipv6},
	        {"pages that the kernel refuses are copied", pages_that_the_kernel_refuses_are_copied},
	        {"what waits is what it was", what_waits_is_what_it_was},
	        {"a lost packet is repeated from memory", a_lost_packet_is_repeated_from_memory},
	        {"pieces arrive", pieces_arrive},
	        {"memory that is not there fails its request", memory_that_is_not_there_fails_its_request},
	};
	struct vb_udp_slots *slots = vb_udp_slots_new();

	setenv("VERBENA_WIRE", "always", 1);
	if (!slots || !vb_guard_can_sum()) {
		printf("ok # skipped: this processor or kernel does not send from pages\n");
		return 77;
	}
	vb_udp_slots_free(slots);
	if (!stranger_network()) {
		printf("ok # skipped: no network namespaces here\n");
		return 77;
	}
	return RUN_TESTS(argc, argv, tests);
}
