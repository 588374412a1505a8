// peer_test.c - packets between two fabric processes with two cables: what waits for credit, and datagrams to groups
// see: fabric/server/peer_data.c; docs/infiniband.md, "Several hosts"
// SPDX-License-Identifier: MIT
#include "fabric/server/peer.h"
#include "fabric/topology.h"

#include "../../support/check.h"

enum { MLID = 0xc001, CABLES = 2, DATAGRAM = 1400, QUEUE_MOST = 1 << 20, ROOM = 1 << 20 };

/* A switch with a host is in process 0; each of its two cables leads to a switch with a host in process 1. */
static const char text[] = "Switch 4 \"s0\"\n[1] \"h0\"[1]\n[2] \"s1\"[3]\n[3] \"s2\"[3]\n"
                           "\nSwitch 4 \"s1\"\n[1] \"h1\"[1]\n\nSwitch 4 \"s2\"\n[1] \"h2\"[1]\n"
                           "\nCa 1 \"h0\"\n\nCa 1 \"h1\"\n\nCa 1 \"h2\"\n";

static struct process {
	struct server s;
	struct peer peer; /* the other one */
	struct peer_end ends[CABLES];
	unsigned copies;
} process[2];

static struct process *other(const struct process *p)
{
	return &process[p == &process[0]];
}

/* --- the parts of the server that are not there --- */

static bool behind; /* the program does not read */
static uint32_t given;

/* A packet of these tests ends with its number. */
bool client_offer(struct client *c, const void *bytes, size_t len, size_t most)
{
	uint32_t number;

	if (!most)
		return false;
	memcpy(&number, (const uint8_t *)bytes + len - sizeof(number), sizeof(number));
	SAME(number, given);
	given++;
	return true;
}

bool client_is_behind(const struct client *c)
{
	return behind;
}

void client_drop_waiting(struct client *c, void (*each)(void *arg, const uint8_t *bytes, size_t len), void *arg)
{
	behind = false;
}

void client_pause(struct client *c, bool pause)
{
}

static struct link *reader; /* whose program reads */
static size_t read_bytes;

bool client_flush(struct client *c)
{
	if (reader)
		link_reads(reader, read_bytes);
	return reader;
}

struct vb_fabric_node *server_ca(const struct server *s, const char *name)
{
	return vb_fabric_find(s->fabric, name);
}

/* It arrives at once. */
void peer_transmit(struct peer *p, const uint8_t *bytes, size_t len)
{
	struct process *to = other((struct process *)p->cable.own);

	for (size_t at = 0; at < len; at += DATAGRAM)
		vb_cable_input(&to->peer.cable, bytes + at, len - at < DATAGRAM ? len - at : DATAGRAM, 1);
}

static bool on_deliver(void *own, struct vb_fabric_port *port, const struct vb_fabric_packet *packet)
{
	return false;
}

static bool is_attached(void *own, struct vb_fabric_port *p, const struct vb_fabric_datagram *d)
{
	return true;
}

static void take_copy(void *own, struct vb_fabric_port *p, const struct vb_fabric_datagram *d)
{
	((struct process *)own)->copies++;
}

static const struct vb_fabric_ops ops = {.deliver = on_deliver,
                                         .is_attached = is_attached,
                                         .deliver_to_group = take_copy,
                                         .cross = peer_cross,
                                         .cross_group = peer_cross_group};

/* --- what the cables ask --- */

static void on_send(void *own, const uint8_t *bytes, size_t len)
{
}

static uint64_t on_nonce(void *own)
{
	return 1;
}

static bool on_packet(void *own, uint64_t guid, uint8_t port, unsigned hops, uint8_t *bytes, size_t len)
{
	return peer_packet(&((struct process *)own)->peer, guid, port, hops, bytes, len);
}

static const struct vb_cable_ops cable_ops = {.send = on_send, .nonce = on_nonce, .packet = on_packet};

/* --- both processes --- */

static void find_ends(struct process *p)
{
	const struct vb_fabric_end end = {.wants = true, .widths = 3, .speeds = 7};
	const struct vb_fabric *f = p->s.fabric;

	for (size_t i = 0; i < f->count; i++)
		for (unsigned k = 1; !f->nodes[i]->away && k <= f->nodes[i]->ports; k++) {
			struct vb_fabric_port *port = &f->nodes[i]->port[k];

			if (port->peer && port->peer->node->away) {
				CHECK(p->peer.end_count < CABLES);
				p->ends[p->peer.end_count++].port = port;
				vb_fabric_end_told(port, &end);
			}
			if (port->peer)
				port->info.state = VB_PORT_ACTIVE;
		}
	SAME(p->peer.end_count, CABLES);
}

/* All ports of a switch are in the group. */
static void join_group(struct vb_fabric_node *sw)
{
	sw->sw->mft = calloc(VB_FABRIC_MFT_CAP, sizeof(uint16_t));
	CHECK(sw->sw->mft);
	sw->sw->mft[MLID - VB_LID_MULTICAST] = 1 << 1 | 1 << 2 | 1 << 3;
}

static void begin_process(struct process *p)
{
	struct vb_topology_error e;
	bool second = p == &process[1];

	p->s.now = 1;
	p->s.fabric = vb_fabric_new(&ops, p);
	CHECK(p->s.fabric && vb_topology_read(p->s.fabric, text, sizeof(text) - 1, &e));
	p->s.peers = &p->peer;
	p->peer.server = &p->s;
	p->peer.datagram = DATAGRAM;
	p->peer.ends = p->ends;
	for (size_t i = 0; i < p->s.fabric->count; i++) {
		struct vb_fabric_node *n = p->s.fabric->nodes[i];

		if ((n->desc[1] != '0') != second)
			vb_fabric_give_away(n, &p->peer);
		if (n->sw)
			join_group(n);
	}
	vb_fabric_train_all(p->s.fabric);
	find_ends(p);
	vb_cable_init(&p->peer.cable, &cable_ops, p, 1, "", 0, ROOM, ROOM);
	p->peer.cable.up = true;
	p->peer.cable.in = p->peer.cable.out = (struct vb_sip_key){{1, 2}};
	p->peer.cable.room = ROOM;
}

static void begin(void)
{
	memset(process, 0, sizeof(process));
	begin_process(&process[0]);
	begin_process(&process[1]);
}

static void end(void)
{
	for (int i = 0; i < 2; i++) {
		late_free(&process[i].s);
		peer_drop(&process[i].peer);
		vb_fabric_free(process[i].s.fabric);
	}
}

/* --- groups --- */

static struct group_message message = {.head = {.length = 100}};
static const uint8_t grh[40] = {0x60, [7] = 1, [24] = 0xff};
static const struct vb_fabric_datagram datagram = {.slid = 10,
                                                   .dlid = MLID,
                                                   .pkey = 0xffff,
                                                   .src_qpn = 7,
                                                   .length = 100,
                                                   .bytes = 400,
                                                   .grh = grh,
                                                   .own = &message};

static void a_group_reaches_hosts_by_both_cables_to_one_process(void)
{
	struct vb_fabric_datagram d = datagram;

	begin();
	for (unsigned i = 1; i <= 3; i++) {
		vb_fabric_multicast(&vb_fabric_find(process[0].s.fabric, "h0")->port[1], &d);
		peer_flush(&process[0].peer);
		SAME(process[1].copies, 2 * i);
	}
	SAME(process[1].s.fabric->drops.hop_limit, 0);
	end();
}

static void a_second_copy_by_the_same_cable_is_dropped(void)
{
	struct vb_fabric_datagram d = datagram;

	begin();
	d.psn = 77;
	for (int i = 0; i < 2; i++)
		peer_cross_group(NULL, process[0].ends[0].port, &d);
	peer_flush(&process[0].peer);
	SAME(process[1].copies, 1);
	SAME(process[1].s.fabric->drops.hop_limit, 1);
	end();
}

static void a_group_packet_with_a_wrong_vcrc_is_dropped(void)
{
	uint8_t bytes[GROUP_PACKET_MOST];

	begin();
	size_t len = group_encode(bytes, &datagram);
	const struct vb_fabric_port *in = process[1].ends[0].port;

	bytes[len - 1] ^= 1;
	CHECK(peer_packet(&process[1].peer, in->node->guid, in->num, 1, bytes, len));
	SAME(process[1].copies, 0);
	SAME(process[1].s.fabric->drops.bad_vcrc, 1);
	SAME(in->counters.rcv_errors, 1);
	bytes[len - 1] ^= 1;
	CHECK(peer_packet(&process[1].peer, in->node->guid, in->num, 1, bytes, len));
	SAME(process[1].copies, 1);
	end();
}

/* --- what waits --- */

static size_t trains_of(const struct train_queue *q, const struct vb_fabric_port *out)
{
	size_t n = 0;

	for (const struct train *t = q->first; t; t = t->next)
		n += t->out == out;
	return n;
}

/* The records of a cable: 4 bytes, and packets that begin with their number. */
static void numbers_ascend(const struct train_queue *q, const struct vb_fabric_port *out, uint32_t n)
{
	uint32_t number = 0, want = 0;

	for (const struct train *t = q->first; t; t = t->next)
		for (size_t at = 0; t->out == out && at < t->len; want++) {
			memcpy(&number, t->records + at + VB_CABLE_RECORD, sizeof(number));
			SAME(number, want);
			at += VB_CABLE_RECORD + (size_t)(t->records[at] << 8 | t->records[at + 1]);
		}
	SAME(want, n);
}

/* As many as fit, which is told by the discards of the port. */
static void packets_that_alternate_between_cables_share_trains(void)
{
	static uint8_t packet[100]; /* an even number of records fits */
	uint32_t n = 0;

	begin();
	struct peer *p = &process[0].peer;

	p->cable.room = 0;
	for (; !p->ends[0].port->counters.xmit_discards; n++) {
		memcpy(packet, &n, sizeof(n));
		for (int i = 0; i < CABLES; i++)
			peer_offer(p->ends[i].port, packet, sizeof(packet), 1);
		CHECK(n < QUEUE_MOST);
	}
	SAME(p->queue.bytes, QUEUE_MOST / (VB_CABLE_RECORD + sizeof(packet)) * (VB_CABLE_RECORD + sizeof(packet)));
	for (int i = 0; i < CABLES; i++) {
		numbers_ascend(&p->queue, p->ends[i].port, n - 1);
		CHECK(trains_of(&p->queue, p->ends[i].port) <= QUEUE_MOST / CABLES / (PEER_TRAIN - 200) + 1);
	}
	end();
}

static void management_that_alternates_between_cables_shares_trains(void)
{
	static const uint8_t packet[300];

	begin();
	struct peer *p = &process[0].peer;

	for (int i = 0; i < 100; i++)
		peer_cross(NULL, p->ends[i % CABLES].port, packet, sizeof(packet), 1);
	for (int i = 0; i < CABLES; i++)
		SAME(trains_of(&p->urgent, p->ends[i].port), 1);
	end();
}

static void who_waits_for_credit_goes_on_when_there_is_room(void)
{
	static const uint8_t packet[1000];

	begin();
	struct peer *p = &process[0].peer, third = {.server = &process[0].s, .waits_way = p};

	p->next = &third;
	p->cable.room = 0;
	while (!peer_offer(p->ends[0].port, packet, sizeof(packet), 1))
		CHECK(p->queue.bytes < QUEUE_MOST);
	peer_flush(p);
	CHECK(third.waits_way == p);
	p->cable.room = ROOM;
	peer_flush(p);
	CHECK(!third.waits_way);
	SAME(p->queue.bytes, 0);
	/* once more, and what waits is discarded */
	third.waits_way = p;
	p->cable.room = 0;
	while (!peer_offer(p->ends[0].port, packet, sizeof(packet), 1))
		CHECK(p->queue.bytes < QUEUE_MOST);
	peer_drop(p);
	CHECK(!third.waits_way);
	end();
}

/* Peer 0 waits for a program from now on. */
static struct link *await_program(struct server *s)
{
	const struct vb_fabric_link_ask ask = {.port = 1, .node = "h0"};
	struct link *l;

	SAME(link_open(s, &ask, NULL, &l), 0);
	s->peers->waits_for = l;
	s->peers->waits_until = link_await(l);
	return l;
}

static void a_program_that_reads_slowly_is_waited_for(void)
{
	begin();
	struct server *s = &process[0].s;
	struct peer *p = &process[0].peer;

	s->now = 90;
	struct link *l = await_program(s);

	SAME(peer_data_deadline(p), 90 + LINK_LIFETIME);
	s->now += LINK_LIFETIME / 2;
	link_reads(l, LINK_QUEUE);
	SAME(peer_data_deadline(p), s->now + LINK_LIFETIME);
	s->now = p->waits_until;
	reader = l; /* it has read less than epoll tells of */
	read_bytes = 1000;
	peer_data_time(p);
	CHECK(p->waits_for == l && p->waits_until == s->now + 1000 * LINK_WORTH);
	reader = NULL;
	s->now = p->waits_until;
	peer_data_time(p);
	CHECK(!p->waits_for);
	p->waits_for = l;
	link_close(l);
	CHECK(!p->waits_for);
	end();
}

/* It reads one small message in each quarter of a second. */
static void a_program_that_hardly_reads_holds_others_up_for_a_small_part_of_the_time(void)
{
	uint64_t waited = 0, end_at;

	begin();
	struct server *s = &process[0].s;
	struct peer *p = &process[0].peer;
	struct link *l = await_program(s);

	for (end_at = s->now + 100ull * LINK_LIFETIME; s->now < end_at;) {
		uint64_t begun = s->now, next = begun + LINK_LIFETIME - 1;

		p->waits_for = l;
		p->waits_until = link_await(l);
		s->now = p->waits_until < next ? p->waits_until : next;
		peer_data_time(p);
		if (p->waits_for) { /* it reads just in time */
			link_reads(l, 100 + LINK_MESSAGE);
			link_caught_up(l);
		}
		CHECK(!p->waits_for);
		waited += s->now - begun;
		s->now = next;
	}
	CHECK(waited < 100ull * LINK_LIFETIME / 6);
	link_close(l);
	end();
}

/* --- links that take time --- */

static struct link *open_program(struct server *s, const char *node)
{
	struct vb_fabric_link_ask ask = {.port = 1};
	struct link *l;

	behind = false;
	given = 0;
	strcpy(ask.node, node);
	SAME(link_open(s, &ask, NULL, &l), 0);
	return l;
}

/* It has come from the peer, and arrives in so many ns. */
static void put_late_for(struct server *s, struct link *to, uint32_t number, uint64_t ns)
{
	uint8_t packet[1000] = {[3] = sizeof(packet) / 4 >> 8};
	const struct late_packet k = {
	        .due = s->now + ns, .to = to, .by = s->peers, .end = vb_fabric_by_id(s->fabric, "h1")->port + 1};

	packet[5] = (uint8_t)(sizeof(packet) / 4);
	memcpy(packet + sizeof(packet) - sizeof(number), &number, sizeof(number));
	late_put(s, &k, packet, sizeof(packet));
}

static void put_late(struct server *s, struct link *to, uint32_t number)
{
	put_late_for(s, to, number, 1000);
}

static void a_peer_gets_no_credit_while_too_much_of_it_is_under_way(void)
{
	begin();
	struct server *s = &process[1].s;
	struct peer *p = &process[1].peer;
	struct link *l = open_program(s, "h1");
	uint32_t n = 0;

	for (; !p->waits_late; n++)
		put_late(s, l, n);
	CHECK(p->late > LINK_LATE && p->late <= LINK_LATE + 1000);
	p->cable.heard_seq = 5;
	peer_came_end(p);
	SAME(p->cable.taken_seq, 0);
	CHECK(p->cable.holds);
	s->now += 1000;
	late_time(s);
	SAME(given, n);
	SAME(p->late, 0);
	SAME(p->cable.taken_seq, 5);
	CHECK(!p->cable.holds);
	SAME(s->fabric->drops.queue_full, 0);
	link_close(l);
	end();
}

/* A packet waits for credit so long, while the other process says that it is held up. */
static struct peer *waits_for_a_held_peer(unsigned seconds)
{
	static const uint8_t packet[1000];
	struct peer *p = &process[0].peer;

	p->cable.room = 0;
	p->cable.is_held = true;
	CHECK(!peer_offer(p->ends[0].port, packet, sizeof(packet), 1));
	for (unsigned i = 0; i < 2 * seconds; i++) {
		peer_flush(p);
		process[0].s.now += 500000000;
		peer_data_time(p);
	}
	return p;
}

static void a_sender_that_is_told_to_wait_discards_nothing(void)
{
	begin();
	struct peer *p = waits_for_a_held_peer(50);

	CHECK(p->queue.first);
	p->cable.is_held = false;
	peer_flush(p);
	process[0].s.now += 2000000000;
	peer_data_time(p);
	CHECK(!p->queue.first);
	end();
}

static void a_peer_does_not_hold_its_senders_up_for_ever(void)
{
	begin();
	CHECK(!waits_for_a_held_peer(65)->queue.first);
	end();
}

static void late_packets_wait_for_their_reader_in_order(void)
{
	begin();
	struct server *s = &process[1].s;
	struct link *l = open_program(s, "h1");

	links_time(s);
	behind = true;
	for (uint32_t n = 0; n < 3; n++)
		put_late(s, l, n);
	s->now += 1000;
	late_time(s);
	SAME(given, 0);
	put_late(s, l, 3);
	CHECK(late_waits(l, NULL));
	behind = false;
	link_caught_up(l);
	SAME(given, 3);
	s->now += 1000;
	late_time(s);
	SAME(given, 4);
	SAME(s->fabric->drops.queue_full, 0);
	/* it reads no more */
	behind = true;
	put_late(s, l, 4);
	s->now += 1000;
	late_time(s);
	CHECK(late_waits(l, NULL));
	while (late_waits(l, NULL)) { /* the first deadline may be an older one */
		CHECK(links_deadline(s) > s->now && links_deadline(s) < UINT64_MAX);
		s->now = links_deadline(s);
		links_time(s);
	}
	SAME(s->fabric->drops.queue_full, 1);
	SAME(s->late_bytes, 0);
	link_close(l);
	end();
}

static void packets_of_links_with_different_latencies_arrive_in_time(void)
{
	enum { N = 101, STEP = 37, GONE = 3 };
	begin();
	struct server *s = &process[1].s;
	struct link *gone = open_program(s, "h2"), *l = open_program(s, "h1");

	for (uint32_t i = 0; i < N; i++) { /* two of each time, in the order of their numbers */
		uint32_t n = i * STEP % N;

		put_late_for(s, l, 2 * n, 1000 * (n + 1));
		put_late_for(s, l, 2 * n + 1, 1000 * (n + 1));
		for (uint32_t k = 0; k < GONE; k++)
			put_late_for(s, gone, 0, 500 * (n + k));
	}
	link_close(gone);
	SAME(late_deadline(s), s->now + 1000);
	s->now += 999;
	late_time(s);
	SAME(given, 0);
	for (uint32_t n = 0; n < N; n++) {
		s->now = late_deadline(s);
		late_time(s);
		SAME(given, 2 * n + 2);
	}
	SAME(late_deadline(s), UINT64_MAX);
	SAME(s->late_bytes, 0);
	link_close(l);
	end();
}

static void many_senders_to_slow_links_share_the_memory(void)
{
	begin();
	struct server *s = &process[1].s;

	s->late_bytes = 63 << 20;
	CHECK(!late_is_too_much(s, 0, true));
	CHECK(!late_is_too_much(s, 512 << 10, false));
	CHECK(late_is_too_much(s, (512 << 10) + 1, false));
	s->late_bytes = 65 << 20;
	CHECK(late_is_too_much(s, 1, false));
	s->late_bytes = 0;
	CHECK(!late_is_too_much(s, LINK_LATE, false));
	CHECK(late_is_too_much(s, LINK_LATE, true)); /* until it has some room */
	end();
}

int main(void)
{
	RUN(a_group_reaches_hosts_by_both_cables_to_one_process);
	RUN(a_second_copy_by_the_same_cable_is_dropped);
	RUN(a_group_packet_with_a_wrong_vcrc_is_dropped);
	RUN(packets_that_alternate_between_cables_share_trains);
	RUN(management_that_alternates_between_cables_shares_trains);
	RUN(who_waits_for_credit_goes_on_when_there_is_room);
	RUN(a_program_that_reads_slowly_is_waited_for);
	RUN(a_program_that_hardly_reads_holds_others_up_for_a_small_part_of_the_time);
	RUN(a_peer_gets_no_credit_while_too_much_of_it_is_under_way);
	RUN(a_sender_that_is_told_to_wait_discards_nothing);
	RUN(a_peer_does_not_hold_its_senders_up_for_ever);
	RUN(late_packets_wait_for_their_reader_in_order);
	RUN(packets_of_links_with_different_latencies_arrive_in_time);
	RUN(many_senders_to_slow_links_share_the_memory);
	return 0;
}
