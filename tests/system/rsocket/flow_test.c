// flow_test.c - grants and credits of a stream: two simulated ends, and a peer that violates the protocol
// follows: rdma-core docs/rsocket ("Data Streaming", "Message Format")
// SPDX-License-Identifier: MIT
#include "../../support/check.h"

#include <stdalign.h>

#include "rsocket/rs_flow.h"

enum { SIZE = 8192, CREDITS = 16 };

/* One direction: data of tx goes into rx's buffer at once, and credit messages come back. */
struct link {
	struct rs_tx tx;
	struct rs_rx rx;
	alignas(8) uint8_t sgl[RS_SGL_ENTRIES * RS_SGE_LEN];
	uint32_t lengths[CREDITS];
	uint8_t buffer[SIZE];
	unsigned entry;
	bool joins;
	uint64_t sent, read;
};

static void set_up(struct link *l)
{
	memset(l, 0, sizeof(*l));
	rs_rx_init(&l->rx, SIZE, CREDITS, l->lengths);
	l->tx = (struct rs_tx){.ring.size = 4 * RS_SEND_LOW,
	                       .to = {0, 7, SIZE / 2},
	                       .sgl = l->sgl,
	                       .sgl_next = 1,
	                       .sq = 1000000,
	                       .sq_max = 1000000,
	                       .limit = CREDITS,
	                       .cost = 1};
	l->entry = 1;
}

static void answer(struct link *l)
{
	while (rs_rx_owes(&l->rx)) {
		struct rs_span half = {0};
		bool has = rs_rx_has_half(&l->rx);

		l->tx.limit = rs_rx_grant(&l->rx, &half);
		if (!has)
			continue;
		CHECK(half.length == SIZE / 2);
		rs_sge_store(l->sgl + l->entry * RS_SGE_LEN, &(struct rs_sge){half.offset, 7, half.length}, false);
		l->entry = (l->entry + 1) % RS_SGL_ENTRIES;
	}
}

static uint8_t pattern(uint64_t at)
{
	return (uint8_t)(at * 31 + at / 256);
}

static uint32_t send_some(struct link *l, uint32_t n)
{
	struct rs_sge at;

	if (!rs_tx_may_send(&l->tx))
		return 0;
	if (n > l->tx.to.length && l->joins)
		rs_tx_join(&l->tx);
	n = n < l->tx.to.length ? n : l->tx.to.length;
	at = rs_tx_take(&l->tx, n);
	CHECK(at.addr + n <= SIZE);
	for (uint32_t i = 0; i < n; i++)
		l->buffer[at.addr + i] = pattern(l->sent++);
	CHECK(rs_rx_data(&l->rx, n));
	return n;
}

static void read_some(struct link *l, uint32_t n)
{
	while (n && l->rx.unread) {
		struct rs_span s = rs_rx_peek(&l->rx, 0, n);

		CHECK(s.length && s.offset + s.length <= SIZE);
		for (uint32_t i = 0; i < s.length; i++)
			CHECK(l->buffer[s.offset + i] == pattern(l->read++));
		rs_rx_read(&l->rx, s.length);
		n -= s.length;
	}
}

static void bytes_arrive_in_order(bool joins)
{
	static struct link l;
	unsigned seed = 1;

	set_up(&l);
	l.joins = joins;
	answer(&l);
	for (int i = 0; i < 200000; i++) {
		seed = seed * 1103515245 + 12345;
		if (seed >> 16 & 1)
			send_some(&l, 1 + (seed >> 17) % 3000);
		else
			read_some(&l, 1 + (seed >> 17) % 5000);
		answer(&l);
		CHECK(l.rx.unread == l.sent - l.read && l.rx.granted + l.rx.unread + l.rx.freed == SIZE);
	}
	CHECK(l.sent > 10 * SIZE);
}

static void every_byte_arrives_in_order(void)
{
	bytes_arrive_in_order(false);
	bytes_arrive_in_order(true);
}

static void a_message_crosses_the_border_of_ranges_that_touch(void)
{
	static struct link l;

	set_up(&l);
	l.joins = true;
	answer(&l);
	CHECK(send_some(&l, SIZE / 2 - 16) == SIZE / 2 - 16);
	CHECK(send_some(&l, 1000) == 1000 && l.tx.to.length == SIZE / 2 - 984);
	/* the next range is at the start of the buffer, so a message ends at the border */
	read_some(&l, SIZE / 2);
	answer(&l);
	CHECK(send_some(&l, SIZE) == SIZE / 2 - 984);
	CHECK(rs_tx_may_send(&l.tx) && l.tx.to.addr == 0);
}

static void ranges_that_the_peer_makes_up_are_not_joined(void)
{
	static const struct rs_sge bad[] = {
	        {SIZE / 2 + 1, 7, SIZE / 2}, /* does not touch */
	        {SIZE / 2, 8, SIZE / 2},     /* of another region */
	        {SIZE / 2, 7, UINT32_MAX},   /* the sum of lengths overflows */
	        {SIZE / 2, 7, 0},            /* not granted */
	};
	static struct link l;

	for (size_t i = 0; i < sizeof(bad) / sizeof(*bad); i++) {
		set_up(&l);
		rs_sge_store(l.sgl + RS_SGE_LEN, &bad[i], false);
		rs_tx_join(&l.tx);
		CHECK(l.tx.to.length == SIZE / 2 && l.tx.sgl_next == 1);
	}
}

static void a_sender_stops_when_its_credits_are_used(void)
{
	static struct link l;
	int n = 0;

	set_up(&l);
	answer(&l);
	while (send_some(&l, 1))
		n++;
	CHECK(n == CREDITS);
	read_some(&l, CREDITS / 2);
	answer(&l);
	CHECK(send_some(&l, 1) == 1);
}

static void a_sender_stops_when_the_buffer_is_full(void)
{
	static struct link l;
	uint32_t all = 0, n;

	set_up(&l);
	answer(&l);
	while ((n = send_some(&l, 3000)))
		all += n;
	CHECK(all == SIZE);
	read_some(&l, SIZE / 2 - 1);
	answer(&l);
	CHECK(!send_some(&l, 1));
	read_some(&l, 1);
	answer(&l);
	CHECK(send_some(&l, SIZE) == SIZE / 2);
}

static void a_peer_that_sends_too_much_is_found_out(void)
{
	static struct link l;

	set_up(&l);
	CHECK(!rs_rx_data(&l.rx, SIZE / 2 + 1));
	CHECK(!rs_rx_data(&l.rx, RS_MSG_VALUE));
	CHECK(rs_rx_data(&l.rx, SIZE / 2));
	CHECK(!rs_rx_data(&l.rx, 1));
	set_up(&l);
	for (int i = 0; i < CREDITS; i++)
		CHECK(rs_rx_data(&l.rx, 1));
	CHECK(!rs_rx_data(&l.rx, 1));
	/* Empty messages do not end the stream. */
	set_up(&l);
	CHECK(rs_rx_data(&l.rx, 0) && !l.rx.unread && !l.rx.count);
}

static void an_empty_sgl_entry_is_not_used(void)
{
	static struct link l;

	set_up(&l);
	CHECK(send_some(&l, SIZE) == SIZE / 2);
	CHECK(!rs_tx_room(&l.tx) && !rs_tx_may_send(&l.tx));
	answer(&l);
	CHECK(rs_tx_room(&l.tx) && l.tx.to.addr == SIZE / 2);
}

static void a_ring_gives_two_stretches_at_its_end(void)
{
	struct rs_ring r = {.size = 100};
	struct rs_span s[2];

	CHECK(rs_ring_take(&r, 70, s) == 1 && s[0].offset == 0 && s[0].length == 70);
	rs_ring_give(&r, 70);
	CHECK(rs_ring_take(&r, 50, s) == 2 && s[0].offset == 70 && s[0].length == 30 && s[1].offset == 0 &&
	      s[1].length == 20);
	CHECK(rs_ring_take(&r, 50, s) == 1 && s[0].offset == 20 && r.used == 100);
	rs_ring_give(&r, 100);
	CHECK(rs_ring_take(&r, 30, s) == 1 && s[0].offset == 70 && r.head == 0);
}

static void after_an_odd_piece_the_next_begins_at_a_line(void)
{
	struct rs_ring r = {.size = 256};
	struct rs_span s[2];

	rs_ring_take(&r, 100, s);
	CHECK(rs_ring_pad(&r) == 28 && r.head == 128 && r.used == 128);
	CHECK(!rs_ring_pad(&r));
	rs_ring_take(&r, 128 - 10, s);
	CHECK(rs_ring_pad(&r) == 10 && r.head == 0 && r.used == 256);
	rs_ring_give(&r, 128);
	/* no room for the rest of the line */
	CHECK(rs_ring_take(&r, 120, s) == 1 && s[0].offset == 0 && r.head == 120);
	rs_ring_take(&r, 4, s);
	CHECK(r.used == 252 && rs_ring_pad(&r) == 4);
	/* the ring ends inside a line */
	r = (struct rs_ring){.size = 100};
	rs_ring_take(&r, 70, s);
	CHECK(!rs_ring_pad(&r) && r.head == 70);
	r = (struct rs_ring){.size = 256, .head = 200, .used = 250};
	CHECK(!rs_ring_pad(&r) && r.head == 200 && r.used == 250);
}

int main(void)
{
	RUN(every_byte_arrives_in_order);
	RUN(a_sender_stops_when_its_credits_are_used);
	RUN(a_sender_stops_when_the_buffer_is_full);
	RUN(a_peer_that_sends_too_much_is_found_out);
	RUN(an_empty_sgl_entry_is_not_used);
	RUN(a_message_crosses_the_border_of_ranges_that_touch);
	RUN(ranges_that_the_peer_makes_up_are_not_joined);
	RUN(after_an_odd_piece_the_next_begins_at_a_line);
	RUN(a_ring_gives_two_stretches_at_its_end);
	return 0;
}
