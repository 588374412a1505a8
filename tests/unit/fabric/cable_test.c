// cable_test.c - the cables between two fabric processes: greeting, states of links, packets, losses, strangers, credits
// follows: fabric/cable/cable.h; Aumasson, Bernstein: SipHash, appendix A
// SPDX-License-Identifier: MIT
#include <stdlib.h>

#include "../../support/check.h"
#include "fabric/cable/cable.h"

#define MS 1000000ull

enum { ENDS = 3, QUEUE = 64, ROOM = 1 << 20, DATAGRAM = 700 };

/* A process: what it has been told, and the datagrams that are on their way to the other one. */
struct side {
	struct vb_cable c;
	struct side *other;
	struct {
		uint8_t bytes[1500];
		size_t len;
	} queue[QUEUE];
	unsigned queued;
	uint64_t nonces;
	unsigned came, went; /* sessions */
	size_t ends;
	struct vb_cable_line told[ENDS];
	unsigned tellings, packets;
	struct {
		uint64_t guid;
		uint8_t port;
		unsigned hops;
		size_t len;
		uint8_t fill;
	} last;
};

static struct {
	struct side a, b;
	uint64_t now;
} t;

static void on_send(void *own, const uint8_t *bytes, size_t len)
{
	struct side *s = own;

	CHECK(len <= sizeof(s->queue[0].bytes) && s->queued < QUEUE);
	memcpy(s->queue[s->queued].bytes, bytes, len);
	s->queue[s->queued++].len = len;
}

static uint64_t on_nonce(void *own)
{
	struct side *s = own;

	return (s == &t.a ? 0x1000 : 0x2000) + ++s->nonces;
}

static void on_there(void *own, bool there)
{
	struct side *s = own;

	s->came += there;
	s->went += !there;
}

static bool on_line(void *own, size_t i, struct vb_cable_line *line)
{
	const struct side *s = own;

	*line = (struct vb_cable_line){
	        .guid = 100 + i, .port = (uint8_t)i, .end = {.wants = true, .downs = (uint32_t)(7 * i)}};
	return i < s->ends;
}

static bool on_told(void *own, const struct vb_cable_line *line)
{
	struct side *s = own;

	if (line->guid < 100 || line->guid >= 100 + ENDS)
		return false;
	s->told[line->guid - 100] = *line;
	s->tellings++;
	return true;
}

static bool on_packet(void *own, uint64_t guid, uint8_t port, unsigned hops, uint8_t *bytes, size_t len)
{
	struct side *s = own;

	s->packets++;
	s->last.guid = guid;
	s->last.port = port;
	s->last.hops = hops;
	s->last.len = len;
	s->last.fill = bytes[0];
	for (size_t i = 0; i < len; i++)
		SAME(bytes[i], s->last.fill);
	return guid == 100;
}

static const struct vb_cable_ops ops = {on_send, on_nonce, on_there, on_line, on_told, on_packet};

static void start_side(struct side *s, struct side *other, uint64_t digest, const char *secret)
{
	memset(s, 0, sizeof(*s));
	s->other = other;
	s->ends = ENDS;
	vb_cable_init(&s->c, &ops, s, digest, secret, strlen(secret), ROOM, ROOM);
}

/* The datagrams of one side arrive, but for the i-th of them if drop is i. */
static void arrive_at_other(struct side *s, int drop)
{
	unsigned n = s->queued;
	static struct side copy;

	memcpy(copy.queue, s->queue, sizeof(copy.queue));
	s->queued = 0;
	for (unsigned i = 0; i < n; i++)
		if ((int)i != drop)
			vb_cable_input(&s->other->c, copy.queue[i].bytes, copy.queue[i].len, t.now);
}

static void exchange(void)
{
	for (int i = 0; i < 20 && t.a.queued + t.b.queued; i++) {
		arrive_at_other(&t.a, -1);
		arrive_at_other(&t.b, -1);
	}
	SAME(t.a.queued + t.b.queued, 0);
}

static void pass_time(uint64_t ms)
{
	for (; ms; ms -= 50) {
		t.now += 50 * MS;
		vb_cable_time(&t.a.c, t.now);
		vb_cable_time(&t.b.c, t.now);
		exchange();
	}
}

static void begin(void)
{
	memset(&t, 0, sizeof(t));
	t.now = 1000 * MS;
	start_side(&t.a, &t.b, 1, "0123456789abcdef");
	start_side(&t.b, &t.a, 1, "0123456789abcdef");
	pass_time(300);
	CHECK(t.a.c.up && t.b.c.up);
}

/* Records of these packet lengths, each filled with its number, for the cable of 100/0. */
static size_t records_of(uint8_t *out, const size_t *len, size_t n)
{
	size_t at = 0;

	for (size_t i = 0; i < n; i++) {
		vb_cable_record(out + at, len[i], 3);
		memset(out + at + VB_CABLE_RECORD, (int)i + 1, len[i]);
		at += VB_CABLE_RECORD + len[i];
	}
	return at;
}

static void send_train(struct side *s, const size_t *len, size_t n)
{
	uint8_t records[20000], out[24000];
	size_t all = vb_cable_pack(&s->c, out, sizeof(out), DATAGRAM, 100, 0, records, records_of(records, len, n));

	CHECK(all);
	for (size_t at = 0; at < all; at += DATAGRAM)
		on_send(s, out + at, all - at < DATAGRAM ? all - at : DATAGRAM);
}

static void siphash_gives_what_its_authors_publish(void)
{
	const struct vb_sip_key key = {{0x0706050403020100ull, 0x0f0e0d0c0b0a0908ull}};
	const uint8_t text[] = {0, 1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 13, 14};

	CHECK(vb_siphash(&key, text, 8, text + 8, 7) == 0xa129ca6149be45e5ull);
	CHECK(vb_siphash(&key, NULL, 0, text, 15) == 0xa129ca6149be45e5ull);
}

/* The tag shows the key, which is made of the secret. */
static void a_greeting_has_the_same_bytes_on_all_machines(void)
{
	static const uint8_t tag[] = {0x79, 0x54, 0xd5, 0x08, 0xab, 0x8e, 0xf1, 0xfa};

	memset(&t, 0, sizeof(t));
	start_side(&t.a, &t.b, 1, "0123456789abcdef");
	vb_cable_time(&t.a.c, 1000 * MS);
	SAME(t.a.queued, 1);
	CHECK(!memcmp(t.a.queue[0].bytes + 24, tag, sizeof(tag)));
}

static void two_processes_meet_and_tell_each_other_their_ends(void)
{
	begin();
	SAME(t.a.came, 1);
	SAME(t.b.came, 1);
	SAME(t.a.went + t.b.went, 0);
	CHECK(t.a.tellings >= ENDS && t.b.told[2].end.wants && t.b.told[2].port == 2);
	SAME(t.b.told[2].end.downs, 14);
	SAME(t.a.c.counts.bad_tag + t.b.c.counts.bad_tag, 0);
	CHECK(t.a.c.nonce == t.b.c.peer_nonce && t.b.c.nonce == t.a.c.peer_nonce);
	CHECK(t.a.c.next_nonce != t.a.c.nonce);
}

/* Whichever one of the first datagrams is lost. */
static void a_lost_greeting_delays_but_does_no_harm(void)
{
	for (int lost = 0; lost < 6; lost++) {
		int n = 0;

		memset(&t, 0, sizeof(t));
		t.now = 1000 * MS;
		start_side(&t.a, &t.b, 1, "");
		start_side(&t.b, &t.a, 1, "");
		for (int i = 0; i < 100; i++) {
			t.now += 50 * MS;
			vb_cable_time(&t.a.c, t.now);
			vb_cable_time(&t.b.c, t.now);
			for (int k = 0; k < 10; k++) {
				struct side *s = k & 1 ? &t.b : &t.a;
				int before = n;

				n += (int)s->queued;
				arrive_at_other(s, lost - before);
			}
		}
		CHECK(t.a.c.up && t.b.c.up && t.a.tellings && t.b.tellings);
		CHECK(t.a.c.nonce == t.b.c.peer_nonce);
	}
}

static void silence_ends_the_session_on_both_sides_and_a_new_one_has_new_keys(void)
{
	begin();
	struct vb_sip_key old = t.a.c.in;

	for (int i = 0; i < 50; i++) {
		t.now += 50 * MS;
		vb_cable_time(&t.a.c, t.now);
		vb_cable_time(&t.b.c, t.now);
		t.a.queued = t.b.queued = 0; /* the network is cut */
	}
	CHECK(!t.a.c.up && !t.b.c.up);
	SAME(t.a.went, 1);
	SAME(t.b.went, 1);
	pass_time(500);
	CHECK(t.a.c.up && t.b.c.up && t.a.came == 2 && t.b.came == 2);
	CHECK(t.a.c.in.half[0] != old.half[0]);
}

static void a_restarted_process_replaces_its_session_at_once(void)
{
	begin();
	uint64_t nonces = t.b.nonces;

	start_side(&t.b, &t.a, 1, "0123456789abcdef");
	t.b.nonces = nonces + 10;
	vb_cable_init(&t.b.c, &ops, &t.b, 1, "0123456789abcdef", 16, ROOM, ROOM);
	pass_time(300);
	CHECK(t.a.c.up && t.b.c.up);
	SAME(t.a.went, 1);
	SAME(t.a.came, 2);
	SAME(t.b.came, 1);
}

static void packets_of_all_lengths_arrive_in_order(void)
{
	static const size_t len[] = {26, 290, 2174, 26, VB_CABLE_PACKET_MOST, 600, 664, 668, 30};

	begin();
	send_train(&t.a, len, 9);
	exchange();
	SAME(t.b.packets, 9);
	SAME(t.b.last.len, 30);
	SAME(t.b.last.fill, 9);
	SAME(t.b.last.hops, 3);
	for (size_t one = 26; one < 1500; one++) {
		send_train(&t.a, (size_t[]){one, 1500 - one + 26, one}, 3);
		exchange();
	}
	SAME(t.b.packets, 9 + 3 * 1474);
	SAME(t.b.c.counts.bad_record + t.b.c.counts.missing, 0);
}

static void a_lost_datagram_costs_the_packets_in_it_alone(void)
{
	static const size_t len[] = {300, 300, 300, 1000, 1000, 300, 300};
	static const unsigned left[] = {4, 5, 5, 6, 4, 6}; /* of 7, if this datagram of 668 bytes of records is lost */

	for (int lost = 0; lost < 6; lost++) {
		begin();
		send_train(&t.a, len, 7);
		SAME(t.a.queued, 6);
		arrive_at_other(&t.a, lost);
		SAME(t.b.packets, left[lost]);
		SAME(t.b.c.counts.missing, lost < 5); /* the last one is not missed yet */
		send_train(&t.a, len, 7);
		exchange();
		SAME(t.b.packets, left[lost] + 7);
	}
}

static void what_was_overtaken_or_repeated_is_dropped(void)
{
	begin();
	send_train(&t.a, (size_t[]){100}, 1);
	send_train(&t.a, (size_t[]){200}, 1);
	for (int i = 0; i < 3; i++)
		vb_cable_input(&t.b.c, t.a.queue[1].bytes, t.a.queue[1].len, t.now);
	vb_cable_input(&t.b.c, t.a.queue[0].bytes, t.a.queue[0].len, t.now);
	SAME(t.b.packets, 1);
	SAME(t.b.last.len, 200);
	SAME(t.b.c.counts.overtaken, 3);
	SAME(t.b.c.counts.missing, 1);
}

static void a_changed_byte_anywhere_is_refused(void)
{
	begin();
	send_train(&t.a, (size_t[]){100, 50}, 2);
	uint64_t refused = 0;

	for (size_t i = 0; i < t.a.queue[0].len; i++) {
		t.a.queue[0].bytes[i] ^= 0x10;
		vb_cable_input(&t.b.c, t.a.queue[0].bytes, t.a.queue[0].len, t.now);
		t.a.queue[0].bytes[i] ^= 0x10;
		const struct vb_cable_counts *c = &t.b.c.counts;

		SAME(c->bad_tag + c->malformed + c->bad_version, ++refused);
	}
	SAME(t.b.packets, 0);
	/* what one side has sent is not accepted from the other */
	vb_cable_input(&t.a.c, t.a.queue[0].bytes, t.a.queue[0].len, t.now);
	SAME(t.a.c.counts.bad_tag, 1);
	exchange();
	SAME(t.b.packets, 2);
}

static void another_secret_or_topology_is_not_let_in(void)
{
	begin();
	start_side(&t.b, &t.a, 1, "0123456789abcdeF");
	pass_time(4000);
	CHECK(!t.a.c.up && !t.b.c.up && t.a.c.counts.bad_tag && t.b.c.counts.bad_tag);
	begin();
	start_side(&t.b, &t.a, 2, "0123456789abcdef");
	pass_time(4000);
	CHECK(!t.a.c.up && !t.b.c.up && t.a.c.counts.other_topology);
}

/* Who sees nothing of what is sent, but forges the address: he greets, and gets no answer. */
static void a_stranger_without_a_secret_cannot_end_a_session(void)
{
	static struct side stranger;

	memset(&t, 0, sizeof(t));
	t.now = 1000 * MS;
	start_side(&t.a, &t.b, 1, "");
	start_side(&t.b, &t.a, 1, "");
	pass_time(300);
	memset(&stranger, 0, sizeof(stranger));
	stranger.nonces = 1000;
	stranger.other = &t.a;
	vb_cable_init(&stranger.c, &ops, &stranger, 1, "", 0, ROOM, ROOM);
	for (int i = 0; i < 60; i++) {
		t.now += 50 * MS;
		vb_cable_time(&stranger.c, t.now);
		arrive_at_other(&stranger, -1);
		vb_cable_time(&t.a.c, t.now);
		vb_cable_time(&t.b.c, t.now);
		exchange(); /* the answers go to b */
	}
	CHECK(t.a.c.up && t.b.c.up && !stranger.c.up);
	SAME(t.a.went + t.b.went, 0);
}

/* Whose network returns all that it sends: before a session, and after one. */
static void what_a_process_has_sent_itself_begins_no_session(void)
{
	begin();
	for (int i = 0; i < 200; i++) {
		if (i == 100)
			start_side(&t.a, &t.a, 1, "0123456789abcdef");
		t.a.other = &t.a;
		t.now += 50 * MS;
		vb_cable_time(&t.a.c, t.now);
		arrive_at_other(&t.a, -1);
		SAME(t.a.came, i < 100);
	}
	CHECK(!t.a.c.up && t.a.c.counts.sent > 10);
	SAME(t.a.c.counts.overtaken, t.a.c.counts.sent);
}

static void credit_ends_with_what_the_other_has_not_taken(void)
{
	begin();
	size_t most = vb_cable_credit(&t.a.c, DATAGRAM), first = most;

	CHECK(most > 100 && most <= ROOM / DATAGRAM);
	for (int i = 0; i < 100; i++) {
		send_train(&t.a, (size_t[]){300}, 1);
		arrive_at_other(&t.a, -1);
	}
	SAME(vb_cable_credit(&t.a.c, DATAGRAM), most -= 100);
	vb_cable_tell(&t.b.c, false); /* it has taken nothing yet */
	exchange();
	SAME(vb_cable_credit(&t.a.c, DATAGRAM), most);
	t.b.c.taken_seq = t.b.c.heard_seq;
	vb_cable_tell(&t.b.c, false);
	exchange();
	CHECK(vb_cable_credit(&t.a.c, DATAGRAM) >= first);
}

static void credit_is_no_more_than_our_own_socket_holds(void)
{
	begin();
	size_t most = vb_cable_credit(&t.a.c, DATAGRAM);

	t.a.c.send_room = ROOM / 4;
	vb_cable_tell(&t.b.c, false);
	exchange();
	CHECK(vb_cable_credit(&t.a.c, DATAGRAM) <= most / 4 + 1 && vb_cable_credit(&t.a.c, DATAGRAM) > most / 8);
}

static void more_ends_than_one_datagram_has_are_told(void)
{
	begin();
	t.a.ends = 130;
	vb_cable_tell(&t.a.c, true);
	SAME(t.a.queued, 3);
	uint64_t before = t.b.c.counts.no_such_cable;

	exchange();
	SAME(t.b.c.counts.no_such_cable - before, 130 - ENDS);
}

static void a_guest_asks_and_is_told(void)
{
	const struct vb_sip_key key = vb_cable_key("secret", 6), other = vb_cable_key("Secret", 6);
	const struct vb_cable_ask ask = {.nonce = 0x0123456789abcdef, .at = VB_CABLE_TAKE, .node = "host4"};
	const struct vb_cable_tell tell = {
	        .nonce = 5, .answer = VB_CABLE_TAKEN, .at = 1024, .whole = 1100, .len = 76, .bytes = {[75] = 9}};
	uint8_t d[VB_CABLE_ASK_LEN + 1] = {0};
	struct vb_cable_ask a;
	struct vb_cable_tell b;

	vb_cable_ask_encode(d, &key, &ask);
	CHECK(vb_cable_is_sealed(&key, d, VB_CABLE_ASK_LEN) && !vb_cable_is_sealed(&other, d, VB_CABLE_ASK_LEN));
	CHECK(vb_cable_ask_decode(&a, d, VB_CABLE_ASK_LEN) && !vb_cable_tell_decode(&b, d, VB_CABLE_ASK_LEN));
	CHECK(a.nonce == ask.nonce && a.at == ask.at && !strcmp(a.node, "host4"));
	CHECK(!vb_cable_ask_decode(&a, d, VB_CABLE_ASK_LEN - 1) && !vb_cable_ask_decode(&a, d, VB_CABLE_ASK_LEN + 1));
	memset(d + VB_CABLE_HEADER + 4, 'x', VB_CABLE_NAME); /* a name without an end */
	CHECK(vb_cable_ask_decode(&a, d, VB_CABLE_ASK_LEN) && strlen(a.node) == VB_CABLE_NAME - 1);
	size_t len = vb_cable_tell_encode(d, &key, &tell);

	CHECK(vb_cable_is_sealed(&key, d, len) && vb_cable_tell_decode(&b, d, len) && !vb_cable_ask_decode(&a, d, len));
	CHECK(b.nonce == 5 && b.answer == VB_CABLE_TAKEN && b.at == 1024 && b.whole == 1100 && b.len == 76 &&
	      b.bytes[75] == 9);
	d[len - 1] ^= 1;
	CHECK(!vb_cable_is_sealed(&key, d, len));
	for (size_t n = 0; n < VB_CABLE_HEADER + 16; n++)
		CHECK(!vb_cable_tell_decode(&b, d, n));
	CHECK(!vb_cable_tell_decode(&b, d, sizeof(d)));
	begin(); /* within a session it is none of its datagrams */
	uint64_t before = t.b.c.counts.malformed;

	vb_cable_input(&t.b.c, d, len, t.now);
	SAME(t.b.c.counts.malformed, before + 1);
}

/* The pieces of a text of this length, by a way on which each n-th answer is lost. Returns how many times it was awaited. */
static unsigned turns_for(uint32_t whole, unsigned lost)
{
	static struct vb_cable_tell told[VB_CABLE_WINDOW];
	struct vb_cable_tell a = {.whole = whole, .len = whole < VB_CABLE_PIECE ? whole : VB_CABLE_PIECE};
	struct vb_cable_text x;
	unsigned turns = 0, answers = 0;
	uint32_t at;

	CHECK(vb_cable_text_begin(&x, &a));
	for (; !vb_cable_text_is_whole(&x); turns++) {
		unsigned n = 0;

		while (vb_cable_text_next(&x, &at)) {
			CHECK(n < VB_CABLE_WINDOW && at < whole);
			if (lost && ++answers % lost == 0)
				continue;
			told[n] = (struct vb_cable_tell){.at = at, .whole = whole, .len = whole - at};
			if (told[n].len > VB_CABLE_PIECE)
				told[n].len = VB_CABLE_PIECE;
			memset(told[n++].bytes, (int)(1 + at / VB_CABLE_PIECE % 250), VB_CABLE_PIECE);
		}
		while (n) /* they overtake each other */
			CHECK(vb_cable_text_take(&x, &told[--n]));
		vb_cable_text_again(&x);
	}
	for (at = VB_CABLE_PIECE; at < whole; at++)
		SAME((uint8_t)x.bytes[at], 1 + at / VB_CABLE_PIECE % 250);
	SAME(x.bytes[whole], 0);
	vb_cable_text_free(&x);
	return turns;
}

static void a_long_text_comes_many_pieces_at_a_time(void)
{
	SAME(turns_for(1, 0), 0);
	SAME(turns_for(VB_CABLE_PIECE, 0), 0);
	SAME(turns_for(VB_CABLE_PIECE + 1, 0), 1);
	SAME(turns_for(1000 * VB_CABLE_PIECE + 7, 0), (1000 + VB_CABLE_WINDOW - 1) / VB_CABLE_WINDOW);
	CHECK(turns_for(1000 * VB_CABLE_PIECE, 5) < 100);
}

static void pieces_of_another_text_are_refused(void)
{
	struct vb_cable_tell a = {.whole = 5000, .len = VB_CABLE_PIECE};
	struct vb_cable_text x;

	CHECK(vb_cable_text_begin(&x, &a));
	a.at = VB_CABLE_PIECE + 4;
	CHECK(!vb_cable_text_take(&x, &a));
	a.at = 5 * VB_CABLE_PIECE;
	CHECK(!vb_cable_text_take(&x, &a));
	a.at = VB_CABLE_TAKE;
	CHECK(!vb_cable_text_take(&x, &a));
	a.at = 4 * VB_CABLE_PIECE; /* the last one is shorter */
	CHECK(!vb_cable_text_take(&x, &a));
	a.at = VB_CABLE_PIECE;
	a.whole++;
	CHECK(!vb_cable_text_take(&x, &a));
	vb_cable_text_free(&x);
	a = (struct vb_cable_tell){.whole = 0};
	CHECK(!vb_cable_text_begin(&x, &a));
	a.whole = UINT32_MAX;
	CHECK(!vb_cable_text_begin(&x, &a));
	a = (struct vb_cable_tell){.whole = 5000, .len = 3};
	CHECK(!vb_cable_text_begin(&x, &a));
}

int main(void)
{
	RUN(siphash_gives_what_its_authors_publish);
	RUN(a_greeting_has_the_same_bytes_on_all_machines);
	RUN(two_processes_meet_and_tell_each_other_their_ends);
	RUN(a_lost_greeting_delays_but_does_no_harm);
	RUN(silence_ends_the_session_on_both_sides_and_a_new_one_has_new_keys);
	RUN(a_restarted_process_replaces_its_session_at_once);
	RUN(packets_of_all_lengths_arrive_in_order);
	RUN(a_lost_datagram_costs_the_packets_in_it_alone);
	RUN(what_was_overtaken_or_repeated_is_dropped);
	RUN(a_changed_byte_anywhere_is_refused);
	RUN(another_secret_or_topology_is_not_let_in);
	RUN(a_stranger_without_a_secret_cannot_end_a_session);
	RUN(what_a_process_has_sent_itself_begins_no_session);
	RUN(credit_ends_with_what_the_other_has_not_taken);
	RUN(credit_is_no_more_than_our_own_socket_holds);
	RUN(more_ends_than_one_datagram_has_are_told);
	RUN(a_guest_asks_and_is_told);
	RUN(a_long_text_comes_many_pieces_at_a_time);
	RUN(pieces_of_another_text_are_refused);
	return 0;
}
