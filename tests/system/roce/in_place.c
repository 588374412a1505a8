// in_place.c - payload that is sent from the program's memory, and changes to that memory meanwhile
// follows: IBA volume 1, 9.7.5.2.4 (PSN sequence error); udp(7) (UDP_SEGMENT)
// SPDX-License-Identifier: MIT
#include "stranger.h"

#include <stdatomic.h>
#include <stddef.h>
#include <sys/mman.h>
#include <sys/socket.h>

#include "engine/local/local.h"
#include "net/udp.h"
#include "path/roce/roce.h"
#include "util/guard.h"

#define MTU 1024u
#define PACKETS 24u /* no more than are sent before an acknowledgement arrives */
#define CHANGED 5u  /* the packet whose memory changes */
#define FIRST 500u

static uint8_t *memory;
static enum { NOTHING, CHANGES, WAITS, FAULTS, GOES } happens;
static atomic_bool held;
static atomic_uint gathered; /* number of sends in more than one piece */

long __real_vb_udp_send(int fd, const struct msghdr *mh);
long __wrap_vb_udp_send(int fd, const struct msghdr *mh);

/* Called between CRC and send (wrapped by the linker). */
long __wrap_vb_udp_send(int fd, const struct msghdr *mh)
{
	if (mh->msg_iovlen < 2 || !memory)
		return __real_vb_udp_send(fd, mh);
	atomic_fetch_add(&gathered, 1);
	if (happens == WAITS) {
		atomic_store(&held, true);
		happens = NOTHING;
	} else if (happens == CHANGES) {
		memory[CHANGED * MTU + 100] ^= 1;
	} else if (happens == FAULTS) {
		errno = EFAULT;
	} else if (happens == GOES) {
		CHECK(!munmap(memory + 2 * 4096, 4096));
	}
	if (atomic_load(&held))
		errno = ENOBUFS;
	if (atomic_load(&held) || happens == FAULTS) {
		happens = NOTHING;
		return -1;
	}
	happens = NOTHING;
	return __real_vb_udp_send(fd, mh);
}

static void meet_with(struct stranger *s, bool v6, size_t length)
{
	stranger_meet(s, &(struct conf){.psn = FIRST}, v6);
	mem_end(&s->m);
	mem_make(&s->m, &s->d, length);
	fill(s->m.p, s->m.n, 3);
	memory = s->m.p;
}

static void meet(struct stranger *s, bool v6)
{
	meet_with(s, v6, 8 << 20);
}

/* Receives the requests of one message, each at least once. lost: packets with a wrong ICRC, which are requested again.
 * Returns their number. */
static unsigned take_all(struct stranger *s, const uint8_t *as)
{
	bool got[PACKETS] = {false};
	unsigned wrong = 0, next = 0;
	struct came c;

	s->any_icrc = true;
	while (next < PACKETS) {
		CHECK(stranger_take(s, &c, PATIENCE));
		uint32_t i = c.p.bth.psn.v - FIRST;

		CHECK(i < PACKETS && c.p.payload_len == MTU);
		if (!c.right) {
			struct vb_packet nak = stranger_packet(s, VB_RC_ACK, FIRST + i, 0);

			wrong++;
			nak.aeth.kind = VB_AETH_NAK;
			nak.aeth.value = VB_NAK_PSN_SEQUENCE;
			stranger_say(s, &nak, NULL);
			continue;
		}
		CHECK(!memcmp(c.payload, as + i * MTU, MTU));
		got[i] = true;
		while (next < PACKETS && got[next])
			next++;
		if (c.p.bth.ack_req && next) {
			struct vb_packet ack = stranger_packet(s, VB_RC_ACK, FIRST + next - 1, 0);

			stranger_say(s, &ack, NULL);
		}
	}
	return wrong;
}

static void write_all(struct stranger *s)
{
	POST(&s->l, .op = IBV_WR_RDMA_WRITE, .id = 1, .m = &s->m, .len = PACKETS * MTU, .far = {0x1234, 0x99, 0});
}

/* The next new packet. A retransmitted one may come in between. */
static void take_next(struct stranger *s, struct came *c, uint32_t i)
{
	do
		CHECK(stranger_take(s, c, PATIENCE));
	while (c->p.bth.psn.v < FIRST + i);
	SAME(c->p.bth.psn.v, FIRST + i);
}

static void ends(struct stranger *s)
{
	struct vb_packet ack = stranger_packet(s, VB_RC_ACK, FIRST + PACKETS - 1, 0);

	stranger_say(s, &ack, NULL);
	expect(s->l.scq, 1, IBV_WC_SUCCESS);
}

static void nothing_is_copied(bool v6)
{
	struct stranger s;

	meet(&s, v6);
	write_all(&s);
	SAME(take_all(&s, s.m.p), 0);
	ends(&s);
	CHECK(atomic_load(&gathered) > 0);
	CHECK(STAT(&s, bytes_in_place) >= PACKETS * MTU);
	if (!STAT(&s, resent_pkts))
		SAME(STAT(&s, bytes_copied_out), 0);
}

static void payload_goes_out_from_where_it_lies(void)
{
	nothing_is_copied(false);
}

static void payload_goes_out_from_where_it_lies_by_ipv6(void)
{
	nothing_is_copied(true);
}

/* Data that is probably in the cache is copied, because that is cheaper. */
static void a_small_region_is_copied(void)
{
	struct stranger s;

	meet_with(&s, false, 1 << 20);
	write_all(&s);
	SAME(take_all(&s, s.m.p), 0);
	ends(&s);
	SAME(STAT(&s, bytes_in_place), 0);
	CHECK(STAT(&s, bytes_copied_out) >= PACKETS * MTU);
}

static void memory_that_changes_under_way_goes_again(void)
{
	struct stranger s;

	meet(&s, false);
	happens = CHANGES;
	write_all(&s);
	SAME(take_all(&s, s.m.p), 1);
	ends(&s);
	CHECK(STAT(&s, resent_pkts) > 0);
	CHECK(STAT(&s, bytes_copied_out) >= MTU); /* a retransmission is sent as it was summed */
}

/* From then on the memory is not read any more, because it may be unmapped. */
static void what_waits_is_what_it_was_when_it_was_added_up(void)
{
	uint8_t before[PACKETS * MTU];
	struct stranger s;
	struct came c;

	meet(&s, false);
	memcpy(before, s.m.p, sizeof(before));
	happens = WAITS;
	write_all(&s);
	WAIT_FOR(atomic_load(&held) && atomic_load(&vb_counters.tx_waits) > 0);
	fill(s.m.p, s.m.n, 4);
	atomic_store(&held, false);
	for (uint32_t i = 0; i < PACKETS; i++) {
		take_next(&s, &c, i);
		CHECK(!memcmp(c.payload, before + i * MTU, MTU));
	}
	ends(&s);
}

static void a_send_that_faults_is_tried_with_copies(void)
{
	struct stranger s;

	meet(&s, false);
	happens = FAULTS;
	write_all(&s);
	SAME(take_all(&s, s.m.p), 0);
	ends(&s);
}

/* Zeros are sent for it, with a wrong ICRC; the retransmission finds it unmapped. */
static void memory_that_goes_under_way_fails_its_request(void)
{
	struct stranger s;
	struct came c;

	meet(&s, false);
	s.any_icrc = true;
	happens = GOES;
	write_all(&s);
	for (uint32_t i = 0; i < PACKETS; i++) {
		take_next(&s, &c, i);
		SAME(c.right, i < 8 || i >= 12);
		if (!c.right)
			CHECK(!c.payload[0] && !memcmp(c.payload, c.payload + 1, MTU - 1));
	}
	struct vb_packet nak = stranger_packet(&s, VB_RC_ACK, FIRST + 8, 0);

	nak.aeth.kind = VB_AETH_NAK;
	nak.aeth.value = VB_NAK_PSN_SEQUENCE;
	stranger_say(&s, &nak, NULL);
	expect(s.l.scq, 1, IBV_WC_LOC_PROT_ERR);
}

static void read_from(struct stranger *s, uint32_t at, uint32_t packets)
{
	struct vb_packet p = stranger_packet(s, VB_RC_READ_REQUEST, s->l.it.psn + at, 0);

	p.reth.va = (uintptr_t)s->m.p + at * MTU;
	p.reth.rkey = s->m.mr->rkey;
	p.reth.length = packets * MTU;
	stranger_say(s, &p, NULL);
}

static void a_read_of_what_changes_is_answered_again(void)
{
	struct stranger s;
	struct came c;
	unsigned wrong = 0;

	meet(&s, false);
	s.any_icrc = true;
	happens = CHANGES;
	read_from(&s, 0, PACKETS);
	for (uint32_t i = 0; i < PACKETS; i++) {
		stranger_expect(&s, &c,
		                i == 0             ? VB_RC_READ_RESPONSE_FIRST
		                : i == PACKETS - 1 ? VB_RC_READ_RESPONSE_LAST
		                                   : VB_RC_READ_RESPONSE_MIDDLE,
		                s.l.it.psn + i);
		wrong += !c.right;
		CHECK(c.right || i == CHANGED);
		CHECK(!memcmp(c.payload, s.m.p + i * MTU, MTU));
	}
	SAME(wrong, 1);
	SAME(STAT(&s, bytes_in_place), PACKETS * MTU);
	SAME(STAT(&s, bytes_copied_out), 0);
	read_from(&s, CHANGED, PACKETS - CHANGED);
	for (uint32_t i = CHANGED; i < PACKETS; i++) {
		stranger_expect(&s, &c,
		                i == CHANGED       ? VB_RC_READ_RESPONSE_FIRST
		                : i == PACKETS - 1 ? VB_RC_READ_RESPONSE_LAST
		                                   : VB_RC_READ_RESPONSE_MIDDLE,
		                s.l.it.psn + i);
		CHECK(c.right && !memcmp(c.payload, s.m.p + i * MTU, MTU));
	}
	SAME(STAT(&s, bytes_copied_out), (PACKETS - CHANGED) * MTU);
}

int main(int argc, char **argv)
{
	static const struct test tests[] = {
	        {"payload goes out from where it lies", payload_goes_out_from_where_it_lies},
	        {"payload goes out from where it lies by IPv6", payload_goes_out_from_where_it_lies_by_ipv6},
	        {"a small region is copied", a_small_region_is_copied},
	        {"memory that changes under way goes again", memory_that_changes_under_way_goes_again},
	        {"what waits is what it was when it was added up", what_waits_is_what_it_was_when_it_was_added_up},
	        {"a send that faults is tried with copies", a_send_that_faults_is_tried_with_copies},
	        {"memory that goes under way fails its request", memory_that_goes_under_way_fails_its_request},
	        {"a read of what changes is answered again", a_read_of_what_changes_is_answered_again},
	};

	setenv("VERBENA_WIRE", "always", 1);
	if (!vb_guard_can_sum()) {
		printf("ok # skipped: this processor copies in any case\n");
		return 77;
	}
	if (!stranger_network()) {
		printf("ok # skipped: no network namespaces here\n");
		return 77;
	}
	return RUN_TESTS(argc, argv, tests);
}
