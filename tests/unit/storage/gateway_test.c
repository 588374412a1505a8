// gateway_test.c - gateways of one image: a simulated cluster, where processes halt, die and come back at any moment
// see: backend/gateway.h
// SPDX-License-Identifier: MIT
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "../../support/check.h"
#include "backend/gateway.h"

/* ---- the cluster: one object, the blocklist, and writes to the image under way ---- */

#define PROCESSES 3
#define WRITES 64
#define CLIENTS 4096
#define TICK 10

enum phase { IDLE, READING, FENCING, WRITING };

struct process {
	struct ng g;
	bool alive;
	uint64_t halted_until, next;
	enum phase phase;
	uint64_t asked, executes, answered;
	bool executed, refused, conflict;
	struct ng_state read;
	uint64_t version;
	enum ng_role seen_role; /* by its loop */
	uint32_t writing;
	uint32_t client;
	uint64_t enforced, changes;
};

static struct {
	char text[NG_TEXT];
	size_t length;
	uint64_t version;
	bool blocklist[CLIENTS];
	struct {
		bool used;
		uint32_t by, client;
		uint64_t at, version; /* of the reservation that has admitted it */
	} writes[WRITES];
	uint32_t clients, landed, strays, takeovers, handovers, outlived, changes;
	uint64_t complete; /* the version of the last change that was answered */
	bool without_fencing, without_waiting;
} cluster;

static struct process processes[PROCESSES];
static uint64_t now;
static uint64_t seed;

static uint32_t chance(uint32_t n)
{
	seed = seed * 6364136223846793005u + 1442695040888963407u;
	return (uint32_t)(seed >> 33) % n;
}

/* Mostly milliseconds, now and then longer than a lease. */
static uint64_t latency(void)
{
	return chance(60) ? chance(80) : chance(6000);
}

static struct ng_state state_now(void)
{
	struct ng_state s = {0};

	if (cluster.version)
		CHECK(ng_decode(cluster.text, cluster.length, &s));
	return s;
}

static uint32_t client_number(const char *client)
{
	return (uint32_t)strtoul(client + 1, NULL, 10);
}

static void begin(struct process *p, bool again)
{
	uint32_t before = p->client;

	CHECK(cluster.clients + 1 < CLIENTS);
	p->client = ++cluster.clients;
	p->g = (struct ng){0};
	snprintf(p->g.name, NG_NAME, "g%d", (int)(p - processes));
	snprintf(p->g.client, NG_CLIENT, "c%u", p->client);
	if (again)
		snprintf(p->g.before, NG_CLIENT, "c%u", before);
	p->alive = true;
	p->phase = IDLE;
	p->next = now;
	p->seen_role = NG_JOINING;
	p->writing = 0;
	p->enforced = 0;
}

/* Whatever lands is of the owner of this moment. */
static void land_writes(void)
{
	for (uint32_t i = 0; i < WRITES; i++) {
		if (!cluster.writes[i].used || cluster.writes[i].at > now)
			continue;
		struct process *p = &processes[cluster.writes[i].by];
		struct ng_state s = state_now();

		cluster.writes[i].used = false;
		if (p->client == cluster.writes[i].client)
			p->writing--;
		if (cluster.blocklist[cluster.writes[i].client])
			continue;
		cluster.landed++;
		cluster.outlived += cluster.writes[i].version < cluster.complete;
		cluster.strays += client_number(s.owner_client) != cluster.writes[i].client;
	}
}

static void begin_write(struct process *p)
{
	for (uint32_t i = 0; i < WRITES; i++) {
		if (cluster.writes[i].used)
			continue;
		cluster.writes[i].used = true;
		cluster.writes[i].by = (uint32_t)(p - processes);
		cluster.writes[i].client = p->client;
		cluster.writes[i].version = p->enforced;
		cluster.writes[i].at = now + latency();
		p->writing++;
		return;
	}
}

/* ---- a process ---- */

static void begin_call(struct process *p, enum phase phase)
{
	uint64_t there = latency();

	p->phase = phase;
	p->asked = phase == READING ? now : p->asked;
	p->executes = now + there;
	p->answered = p->executes + latency();
	p->executed = p->refused = p->conflict = false;
}

static void replace_state(struct process *p)
{
	struct ng_state old = state_now();

	p->conflict = cluster.version != p->version;
	if (p->conflict)
		return;
	cluster.length = ng_encode(&p->g.next, cluster.text);
	CHECK(cluster.length < NG_TEXT);
	p->version = ++cluster.version;
	if (strcmp(old.owner_client, p->g.next.owner_client)) {
		cluster.takeovers += !strcmp(p->g.next.owner_client, p->g.client);
		cluster.handovers += !strcmp(old.owner_client, p->g.client);
		CHECK(p->g.next.epoch == old.epoch + 1);
	}
}

/* The cluster executes a call, whether or not its process still runs. */
static void execute_call(struct process *p)
{
	if (p->phase == IDLE || p->executed || p->executes > now)
		return;
	p->executed = true;
	p->refused = cluster.blocklist[p->client];
	if (p->refused)
		return;
	if (p->phase == READING) {
		p->read = state_now();
		p->version = cluster.version;
	} else if (p->phase == WRITING) {
		replace_state(p);
	} else if (!cluster.without_fencing) {
		cluster.blocklist[client_number(p->g.victim)] = true;
	}
}

static void go_on(struct process *p, enum ng_act act)
{
	if (act == NG_FENCE)
		begin_call(p, FENCING);
	else if (act == NG_WRITE)
		begin_call(p, WRITING);
	else
		p->phase = IDLE;
	CHECK(act != NG_FULL);
	p->next = now + ng_pause(&p->g, now);
}

static void take_answer(struct process *p)
{
	enum phase phase = p->phase;

	p->phase = IDLE;
	p->next = now;
	if (p->refused || p->g.role == NG_OUT) {
		begin(p, true);
		return;
	}
	if (phase == WRITING) {
		if (!p->conflict)
			ng_wrote(&p->g, now);
		p->next = p->conflict ? now : now + ng_pause(&p->g, now);
		return;
	}
	if (phase == READING)
		ng_saw(&p->g, &p->read, p->asked, now);
	else
		ng_fenced(&p->g);
	go_on(p, ng_decide(&p->g, now));
}

/* None of its writes is left that an older reservation has admitted. */
static bool enforces_it(const struct process *p)
{
	for (uint32_t i = 0; i < WRITES; i++)
		if (cluster.writes[i].used && cluster.writes[i].client == p->client &&
		    cluster.writes[i].version < p->enforced)
			return false;
	return true;
}

static void change_reservation(struct process *p)
{
	if (p->g.change_number && p->g.answered == p->g.change_number) {
		bool made = p->g.change.result == NR_OK;

		if (made && p->g.version > cluster.complete)
			cluster.complete = p->g.version;
		cluster.changes += made;
		p->g.change_number = 0;
	}
	if (p->g.change_number || chance(150))
		return;
	p->g.change_number = ++p->changes;
	p->g.change = (struct nr_change){.op = chance(2) ? NR_REGISTER : NR_UNREGISTER, .ignore_key = true, .other = 1};
	p->g.change.by.id[0] = (uint8_t)chance(3);
}

/* The loop may be late. */
static void run_loop(struct process *p)
{
	if (chance(4))
		return;
	p->seen_role = p->g.role;
	p->enforced = p->g.seen.reservations.version;
	if (enforces_it(p) || cluster.without_waiting)
		p->g.enforces = p->enforced;
	change_reservation(p);
	if (p->seen_role == NG_OWNER && !chance(3) && p->writing < 8)
		begin_write(p);
	if (p->seen_role == NG_STANDBY && !chance(500))
		ng_want(&p->g, now);
	if (!chance(1000)) /* perhaps it was only slow */
		memcpy(p->g.silent, p->g.seen.owner_client, NG_CLIENT);
	p->g.drained = p->seen_role == NG_DRAINING && p->g.role == NG_DRAINING && !p->writing;
}

static void run_process(struct process *p)
{
	execute_call(p);
	if (!p->alive || p->halted_until > now)
		return;
	run_loop(p);
	if (p->phase == IDLE && p->next <= now)
		begin_call(p, READING);
	else if (p->phase != IDLE && p->executed && p->answered <= now)
		take_answer(p);
}

static void trouble(void)
{
	struct process *p = &processes[chance(PROCESSES)];

	if (!p->alive && !chance(100))
		begin(p, false);
	if (chance(150))
		return;
	if (chance(2))
		p->halted_until = now + chance(9000);
	else if (p->phase == IDLE)
		p->alive = false;
}

static void set_up(uint64_t with)
{
	memset(&cluster, 0, sizeof(cluster));
	memset(processes, 0, sizeof(processes));
	seed = with;
	now = 1000 + chance(1000);
	for (int i = 0; i < PROCESSES; i++)
		begin(&processes[i], false);
}

static void run_for(uint64_t ms, bool with_trouble)
{
	for (uint64_t until = now + ms; now < until; now += TICK) {
		land_writes();
		if (with_trouble)
			trouble();
		for (int i = 0; i < PROCESSES; i++)
			run_process(&processes[i]);
	}
}

static struct process *owner_now(void)
{
	struct ng_state s = state_now();

	for (int i = 0; i < PROCESSES; i++)
		if (processes[i].alive && !strcmp(processes[i].g.client, s.owner_client))
			return &processes[i];
	return NULL;
}

/* ---- the tests ---- */

static void only_the_owner_writes_whatever_halts_and_dies(void)
{
	uint32_t takeovers = 0, handovers = 0, changes = 0;

	for (uint64_t i = 1; i <= 60; i++) {
		set_up(i);
		run_for(120000, true);
		for (int k = 0; k < PROCESSES; k++) {
			processes[k].halted_until = 0;
			if (!processes[k].alive)
				begin(&processes[k], false);
		}
		run_for(60000, false);
		if (cluster.strays)
			CHECK_FAILED("seed %u: %u writes have landed after a takeover", (unsigned)i, cluster.strays);
		CHECK(cluster.landed > 100);
		if (cluster.outlived)
			CHECK_FAILED("seed %u: %u writes have landed after a change that was complete", (unsigned)i,
			             cluster.outlived);
		CHECK(owner_now());
		changes += cluster.changes;
		takeovers += cluster.takeovers;
		handovers += cluster.handovers;
	}
	CHECK(takeovers > 300 && handovers > 100 && changes > 600);
}

/* … and the simulation shows it if the blocklist is left out. */
static void without_fencing_late_writes_land(void)
{
	uint32_t strays = 0;

	for (uint64_t i = 1; i <= 20; i++) {
		set_up(i);
		cluster.without_fencing = true;
		run_for(120000, true);
		strays += cluster.strays;
	}
	CHECK(strays > 10);
}

/* … or that a gateway does not wait for the writes that it has admitted. */
static void without_waiting_writes_outlive_a_change(void)
{
	uint32_t outlived = 0;

	for (uint64_t i = 1; i <= 20; i++) {
		set_up(i);
		cluster.without_waiting = true;
		run_for(120000, true);
		outlived += cluster.outlived;
	}
	CHECK(outlived > 10);
}

static struct ng_state shared;

static void member(struct ng *g, const char *name, const char *client)
{
	*g = (struct ng){0};
	snprintf(g->name, NG_NAME, "%s", name);
	snprintf(g->client, NG_CLIENT, "%s", client);
}

static enum ng_act look(struct ng *g, uint64_t at)
{
	ng_saw(g, &shared, at, at);
	enum ng_act act = ng_decide(g, at);

	if (act != NG_WRITE)
		return act;
	shared = g->next;
	ng_wrote(g, at);
	return act;
}

/* a is the owner; its last beat: at 3500 */
static void both_up(struct ng *a, struct ng *b)
{
	shared = (struct ng_state){0};
	member(a, "a", "1");
	member(b, "b", "2");
	for (uint64_t at = 1000; at < 4000; at += 500) {
		look(a, at);
		look(b, at + 1);
	}
}

static void the_first_is_the_owner_and_a_failed_one_is_fenced_first(void)
{
	struct ng a, b;

	shared = (struct ng_state){0};
	member(&a, "a", "1");
	member(&b, "b", "2");
	look(&a, 1000);
	SAME(a.role, NG_STANDBY);
	look(&a, 1001);
	SAME(a.role, NG_OWNER);
	look(&b, 1002);
	look(&b, 1003);
	SAME(b.role, NG_STANDBY);
	SAME(ng_find(&shared, "a")->slot, 0);
	SAME(ng_find(&shared, "b")->slot, 1);
	for (uint64_t at = 2000; at < 8000; at += 500) { /* a lives */
		look(&a, at);
		look(&b, at + 1);
		SAME(b.role, NG_STANDBY);
	}
	/* a is silent: not before its lease is over */
	look(&b, 7501 + NG_LEASE_MS - 1);
	SAME(b.role, NG_STANDBY);
	SAME(look(&b, 7501 + NG_LEASE_MS), NG_FENCE);
	CHECK(!strcmp(b.victim, "1") && !strcmp(shared.owner, "a"));
	SAME(look(&b, 7502 + NG_LEASE_MS), NG_FENCE); /* not confirmed: nothing changes */
	CHECK(!strcmp(shared.owner, "a"));
	ng_fenced(&b);
	SAME(look(&b, 7503 + NG_LEASE_MS), NG_WRITE);
	SAME(b.role, NG_OWNER);
	CHECK(!strcmp(shared.owner_client, "2"));
	SAME(shared.epoch, 2);
	/* a comes back by another connection */
	struct ng again;

	member(&again, "a", "3");
	strcpy(again.before, "1");
	look(&again, 12000);
	SAME(again.role, NG_STANDBY);
	SAME(ng_find(&shared, "a")->slot, 0);
	SAME(look(&a, 12001), NG_WAIT);
	SAME(a.role, NG_OUT);
}

static void an_owner_that_answers_nothing_fails_when_it_has_missed_a_beat(void)
{
	struct ng a, b;

	both_up(&a, &b);
	strcpy(b.silent, "1");
	look(&b, 3501 + NG_SILENT_MS - 1);
	SAME(b.role, NG_STANDBY);
	look(&a, 3501 + NG_SILENT_MS); /* it was only slow: a new beat counts as an answer */
	look(&b, 3502 + NG_SILENT_MS);
	SAME(b.role, NG_STANDBY);
	look(&b, 3502 + 2 * NG_SILENT_MS);
	SAME(b.role, NG_STANDBY);
	strcpy(b.silent, "1");
	SAME(look(&b, 3503 + 2 * NG_SILENT_MS), NG_FENCE);
	CHECK(!strcmp(b.victim, "1") && !strcmp(shared.owner, "a"));
}

/* Its clock went on, but nothing says that the others were silent. */
static void a_gateway_that_slept_declares_nobody_failed(void)
{
	struct ng a, b;

	both_up(&a, &b);
	look(&a, 500000);
	SAME(look(&b, 500001), NG_WRITE);
	SAME(b.role, NG_STANDBY);
	/* a cluster that answered late is no proof either: the read had begun before */
	ng_saw(&b, &shared, 500002, 600000);
	ng_decide(&b, 600000);
	SAME(b.role, NG_STANDBY);
}

static void the_owner_hands_over_when_its_last_write_is_done(void)
{
	struct ng a, b;

	both_up(&a, &b);
	ng_want(&b, 4000);
	look(&b, 4001);
	SAME(b.role, NG_MOVING);
	CHECK(!strcmp(shared.wanted, "b"));
	look(&a, 4002);
	SAME(a.role, NG_DRAINING);
	look(&a, 4003);
	CHECK(!strcmp(shared.owner, "a"));
	a.drained = true;
	look(&a, 4004);
	SAME(a.role, NG_STANDBY);
	CHECK(!strcmp(shared.owner_client, "2"));
	look(&b, 4005);
	SAME(b.role, NG_OWNER);
	CHECK(!*shared.wanted);
	/* what still comes to a is no reason to take it back */
	ng_want(&a, 4006);
	look(&a, 4007);
	SAME(a.role, NG_STANDBY);
	CHECK(!*shared.wanted);
	/* later it is, but b keeps it for a second */
	ng_want(&a, 5100);
	look(&a, 5101);
	look(&b, 5102);
	SAME(b.role, NG_DRAINING);
	/* a wish that is withdrawn: the owner goes on, and the old report counts no more */
	b.drained = true;
	look(&a, 5101 + NG_WANT_MS);
	CHECK(!*shared.wanted);
	look(&b, 5103 + NG_WANT_MS);
	SAME(b.role, NG_OWNER);
	CHECK(!b.drained || !strcmp(shared.owner, "b"));
}

static void ask(struct ng *g, uint64_t number, uint8_t host)
{
	g->change = (struct nr_change){.op = NR_REGISTER, .other = 7};
	g->change.by.id[0] = host;
	g->change_number = number;
}

static void a_change_is_complete_when_all_enforce_it(void)
{
	struct ng a, b;

	both_up(&a, &b);
	ask(&b, 1, 9);
	look(&b, 4000);
	SAME(shared.reservations.count, 1);
	SAME(shared.reservations.version, 1);
	CHECK(!b.answered && ng_pause(&b, 4000) <= 100);
	look(&a, 4001); /* it has read it, and does not enforce it yet */
	look(&b, 4002);
	b.enforces = 1;
	look(&b, 4003);
	CHECK(!b.answered);
	a.enforces = 1;
	look(&a, 4004);
	look(&b, 4005);
	SAME(b.answered, 1);
	SAME(b.change.result, NR_OK);
	SAME(look(&b, 4006), NG_WAIT); /* it is made once */
	SAME(shared.reservations.version, 1);
	/* what is refused needs nobody */
	b.change.op = NR_ACQUIRE;
	b.change.type = NR_WRITES;
	b.change_number = 2;
	look(&b, 4007);
	SAME(b.answered, 2);
	SAME(b.change.result, NR_CONFLICT);
	SAME(shared.reservations.version, 1);
}

/* The write of the state was executed, but its answer was lost. */
static void a_change_is_made_once_although_its_answer_is_lost(void)
{
	struct ng a, b;

	both_up(&a, &b);
	ask(&b, 1, 9);
	ng_saw(&b, &shared, 4000, 4000);
	SAME(ng_decide(&b, 4000), NG_WRITE);
	shared = b.next;
	a.enforces = b.enforces = 1;
	look(&a, 4001);
	look(&b, 4002);
	look(&b, 4003);
	SAME(shared.reservations.version, 1);
	SAME(b.answered, 1);
	SAME(b.change.result, NR_OK);
}

static void a_failed_owner_is_fenced_before_a_change_is_complete(void)
{
	struct ng a, b, c;

	both_up(&a, &b);
	member(&c, "c", "3");
	look(&c, 4000);
	ask(&b, 1, 9);
	b.enforces = c.enforces = 1;
	for (uint64_t at = 4001; at < 4000 + NG_LEASE_MS; at += 500) { /* a is silent */
		look(&b, at);
		look(&c, at + 1);
		CHECK(!b.answered);
	}
	SAME(look(&b, 4001 + NG_LEASE_MS), NG_FENCE);
	CHECK(!b.answered);
	ng_fenced(&b);
	SAME(look(&b, 4002 + NG_LEASE_MS), NG_WRITE); /* it becomes the owner */
	look(&b, 4003 + NG_LEASE_MS);
	SAME(b.answered, 1);
	/* another one that fails is not waited for */
	ask(&b, 2, 8);
	b.enforces = 2;
	for (uint64_t at = 8000; at < 8000 + NG_LEASE_MS; at += 500)
		look(&b, at);
	look(&b, 9000 + NG_LEASE_MS);
	SAME(b.answered, 2);
	CHECK(!strcmp(shared.owner, "b"));
}

static void what_does_not_persist_ends_with_the_last_gateway(void)
{
	struct ng a, b, again;

	both_up(&a, &b);
	shared.reservations.count = 1;
	shared.reservations.registrants[0].key = 1;
	member(&again, "a", "3");
	strcpy(again.before, "1"); /* the program goes on by another connection */
	look(&again, 4000);
	SAME(shared.reservations.count, 1);
	member(&again, "a", "4"); /* b is alive */
	look(&again, 5000);
	look(&b, 5001);
	look(&again, 9000);
	look(&b, 9001);
	SAME(again.role, NG_STANDBY);
	SAME(shared.reservations.count, 1);
	member(&again, "a", "5"); /* nobody is */
	look(&again, 10000);
	look(&again, 10000 + NG_LEASE_MS);
	SAME(again.role, NG_STANDBY);
	SAME(shared.reservations.count, 0);
	shared.reservations =
	        (struct nr_state){.version = 9, .count = 1, .persists = true, .registrants = {{.key = 1}}};
	member(&again, "a", "6");
	look(&again, 20000);
	look(&again, 20000 + NG_LEASE_MS);
	SAME(again.role, NG_STANDBY);
	SAME(shared.reservations.count, 1);
	SAME(ng_find(&shared, "a")->enforces, 9);
}

static void the_dead_are_watched_before_what_does_not_persist_goes_on(void)
{
	struct ng a, b, c;

	both_up(&a, &b);
	shared.reservations.count = 1;
	shared.reservations.registrants[0].key = 1;
	member(&c, "c", "3"); /* its own name is new, so it has to wait for nobody else */
	SAME(look(&c, 4000), NG_WAIT);
	SAME(c.role, NG_JOINING);
	look(&b, 4500); /* b lives */
	SAME(look(&c, 4600), NG_WRITE);
	SAME(shared.reservations.count, 1);
	member(&c, "d", "4");
	SAME(look(&c, 20000), NG_WAIT);
	SAME(look(&c, 20000 + NG_LEASE_MS - 1), NG_WAIT);
	SAME(look(&c, 20000 + NG_LEASE_MS), NG_WRITE);
	SAME(c.role, NG_STANDBY);
	SAME(shared.reservations.count, 0);
}

static void the_ports_of_those_that_live_are_listed(void)
{
	struct nb_port ports[NG_PORTS];
	struct ng a, b;

	both_up(&a, &b);
	SAME(ng_others(&b, ports), 0);
	a.port_count = 2;
	strcpy(a.ports[0].address, "192.0.2.1");
	strcpy(a.ports[1].address, "192.0.2.2");
	a.ports[1].id = 2;
	SAME(look(&a, 4000), NG_WRITE);
	CHECK(a.news);
	SAME(look(&a, 4001), NG_WAIT);
	look(&b, 4002);
	SAME(ng_others(&b, ports), 2);
	SAME(ports[1].id, 0x102);
	CHECK(!strcmp(ports[1].address, "192.0.2.2"));
	SAME(ng_others(&a, ports), 0);
	look(&b, 4002 + NG_LEASE_MS);
	SAME(ng_others(&b, ports), 0);
	/* one that was shut out is not waited for, although it may live */
	both_up(&a, &b);
	a.port_count = 1;
	strcpy(a.ports[0].address, "192.0.2.1");
	look(&a, 4000);
	look(&b, 4001);
	strcpy(b.silent, "1");
	SAME(look(&b, 4002 + NG_SILENT_MS), NG_FENCE);
	SAME(ng_others(&b, ports), 1);
	ng_fenced(&b);
	SAME(ng_others(&b, ports), 0);
	/* … unless the blocklist is lifted. Then it is listed, and is shut out again before another takes over */
	SAME(look(&b, 4003 + NG_SILENT_MS), NG_WRITE);
	CHECK(!strcmp(shared.owner_client, "2"));
	look(&a, 6000);
	look(&b, 6001);
	SAME(ng_others(&b, ports), 1);
	strcpy(shared.owner, "a");
	strcpy(shared.owner_client, "1");
	look(&b, 6002);
	SAME(look(&b, 6001 + NG_LEASE_MS), NG_FENCE);
}

static void a_gateway_that_leaves_gives_the_image_up(void)
{
	struct ng a, b;

	both_up(&a, &b);
	a.leaving = true;
	look(&a, 4000);
	SAME(a.role, NG_DRAINING);
	a.drained = true;
	look(&a, 4001);
	SAME(a.role, NG_LEFT);
	SAME(look(&b, 4002), NG_WRITE); /* without a fence */
	SAME(b.role, NG_OWNER);
}

static void names_and_places_are_unique(void)
{
	struct ng a, b, more[NG_GATEWAYS + 1];
	char name[NG_NAME];

	shared = (struct ng_state){0};
	member(&a, "a", "1");
	look(&a, 1000);
	look(&a, 1001);
	member(&b, "a", "2");
	SAME(look(&b, 1500), NG_WAIT);
	look(&a, 2100);
	SAME(look(&b, 2101), NG_TAKEN);
	for (uint32_t i = 0; i <= NG_GATEWAYS; i++) {
		snprintf(name, sizeof(name), "m%u", i);
		member(&more[i], name, name);
		enum ng_act act = look(&more[i], 3000 + i);

		SAME(act, i < NG_GATEWAYS - 1 ? NG_WRITE : NG_WAIT);
	}
	/* all live: full. One has failed: its place is free, but never that of the owner */
	struct ng *last = &more[NG_GATEWAYS];

	SAME(shared.count, NG_GATEWAYS);
	for (uint64_t at = 4100; at < 8000; at += 1000) {
		for (uint32_t i = 1; i < NG_GATEWAYS - 1; i++)
			look(&more[i], at);
		if (look(last, at + 1) == NG_WRITE)
			break;
	}
	SAME(last->role, NG_STANDBY);
	CHECK(!ng_find(&shared, "m0") && ng_find(&shared, "a"));
	for (uint32_t i = 0; i < NG_GATEWAYS; i++)
		for (uint32_t k = 0; k < i; k++)
			CHECK(shared.gateways[i].slot != shared.gateways[k].slot);
}

/* One that cannot be asked any more may have served it in any way. */
static void all_that_live_serve_the_image_in_the_same_way(void)
{
	struct ng a, b;
	char why[NB_WHY];

	shared = (struct ng_state){0};
	member(&a, "a", "1");
	strcpy(a.serves, "block=512,size=0,nsid=1");
	member(&b, "b", "2");
	strcpy(b.serves, "block=512,size=4096,nsid=1");
	look(&a, 1000);
	look(&a, 1001);
	SAME(look(&b, 1500), NG_WAIT);
	look(&a, 2100);
	SAME(look(&b, 2101), NG_DIFFERS);
	ng_tell_difference(&b, why, sizeof(why));
	CHECK(!strcmp(why, "the gateway a of this image has size=0, this one size=4096"));
	strcpy(a.serves, b.serves); /* it is set up anew */
	look(&a, 2200);
	SAME(look(&b, 2201), NG_WRITE);
	SAME(b.role, NG_STANDBY);
	member(&b, "c", "3");
	strcpy(b.serves, "block=512,size=4096,nsid=12");
	SAME(look(&b, 2300), NG_WAIT);
	SAME(look(&b, 2300 + NG_LEASE_MS), NG_WRITE);
}

#define ID "00112233445566778899aabbccddeeff"
#define HOST ID " " ID
#define KEY "0000000000000001\n"
#define SOUND "verbena-gateways 2\nepoch 1\nowner - -\nwanted -\n"
#define NONE "reservation 0 0 0 0\n"

/* The longest that there can be. */
static void fill_reservations(struct nr_state *r)
{
	*r = (struct nr_state){.version = 9, .generation = UINT32_MAX, .type = NR_ACCESS, .persists = true};
	for (uint32_t i = 0; i < NR_REGISTRANTS; i++) {
		struct nr_registrant *one = &r->registrants[r->count++];

		memset(&one->host, 0xab, sizeof(one->host));
		one->host.id[3] = (uint8_t)i;
		one->key = UINT64_MAX - i;
		one->holder = i == 63;
	}
	for (uint32_t i = 0; i < NR_NOTICES; i++)
		r->notices[r->notice_count++] =
		        (struct nr_notice){.version = i, .event = NR_RELEASED, .by = r->registrants[i].host};
}

static void fill_ports(struct ng_gateway *w)
{
	for (uint32_t i = 0; i < NB_PORTS_OF_ONE; i++) {
		struct nb_port *p = &w->ports[w->port_count++];

		p->id = (uint16_t)(255 - i);
		p->trtype = 254;
		p->treq = 3;
		p->tsas[1] = 77;
		p->service = 65535;
		memset(p->subsystem, 0xcd, 16);
		memset(p->address, '1', sizeof(p->address) - 1);
		for (int at = 4; at < 39; at += 5)
			p->address[at] = ':';
		p->address[39] = '%';
	}
}

static void only_text_that_a_gateway_writes_is_read(void)
{
	static const char *const wrong[] = {
	        "",
	        "verbena-gateways 1\nepoch 1\nowner - -\nwanted -\n",
	        "verbena-gateways 1\nepoch 1\nowner - -\nwanted -\n" NONE,
	        "verbena-gateways 2\nepoch 1\nowner - -\nwanted -\n",
	        "verbena-gateways 2\nepoch x\nowner - -\nwanted -\n" NONE,
	        "verbena-gateways 2\nepoch 99999999999999999999\nowner - -\nwanted -\n" NONE,
	        "verbena-gateways 2\nepoch 1\nowner  -\nwanted -\n" NONE,
	        "verbena-gateways 2\nepoch 1\nowner a/b -\nwanted -\n" NONE,
	        SOUND NONE "x\n",
	        SOUND "reservation 0 0 7 0\n",
	        SOUND "reservation 0 4294967296 0 0\n",
	        SOUND "reservation 0 0 0 2\n",
	        SOUND "reservation 1 1 1 0\n",                         /* nobody holds it */
	        SOUND "reservation 1 1 5 0\n",                         /* nobody is registered */
	        SOUND "reservation 1 1 1 0\nregistrant " HOST " " KEY, /* … holds it */
	        SOUND "reservation 1 1 0 0\nholder " HOST " " KEY,
	        SOUND "reservation 1 1 5 0\nholder " HOST " " KEY,
	        SOUND "reservation 1 1 0 0\nregistrant " HOST " " KEY "registrant " HOST " " KEY,
	        SOUND "reservation 1 1 0 0\nregistrant " HOST " 0000000000000000\n",
	        SOUND "reservation 1 1 0 0\nregistrant " HOST " 000000000000001\n",
	        SOUND "reservation 1 1 0 0\nregistrant " HOST " 000000000000000g\n",
	        SOUND "reservation 1 1 0 0\nnotice 2 1 " HOST "\n",
	        SOUND "reservation 1 1 0 0\nnotice 1 4 " HOST "\n",
	        SOUND "reservation 1 1 0 0\nnotice 1 0 " HOST "\n",
	        SOUND NONE "gateway a 16 1 0 0 x\n",
	        SOUND NONE "gateway a 1 1 0 x\n",
	        SOUND NONE "gateway a 1 1 0 0 x\ngateway a 2 1 0 0 x\n",
	        SOUND NONE "gateway a 1 1 0 0 x\ngateway b 1 1 0 0 x\n",
	        SOUND NONE "gateway - 1 1 0 0 x\n",
	        SOUND NONE "serves x\n",
	        SOUND NONE "gateway a 1 1 0 0 x\nserves -\n",
	        SOUND NONE "gateway a 1 1 0 0 x\nserves x y\n",
	        SOUND NONE "gateway a 1 1 0 0 x\nserves x\nserves x\n",
	        SOUND NONE "port 1 3 0 00000000 4420 " ID " 192.0.2.1\n",
	        SOUND NONE "gateway a 1 1 0 0 x\nport 256 3 0 00000000 4420 " ID " 192.0.2.1\n",
	        SOUND NONE "gateway a 1 1 0 0 x\nport 1 3 0 00000000 65536 " ID " 192.0.2.1\n",
	        SOUND NONE "gateway a 1 1 0 0 x\nport 1 3 0 00000000 4420 " ID " -\n",
	        SOUND NONE "gateway a 1 1 0 0 x\nport 1 3 0 00000000 4420 " ID " disk.example\n",
	        SOUND NONE "gateway a 1 1 0 0 x\nport 1 3 0 00000000 4420 " ID " 192.0.2.1.1\n"};
	struct ng_state s = {.epoch = 7, .owner = "a", .owner_client = "v2:[::1]:0/7", .wanted = "b"}, back;
	static char text[NG_TEXT];

	fill_reservations(&s.reservations);
	for (uint32_t i = 0; i < NG_GATEWAYS; i++) {
		struct ng_gateway *w = &s.gateways[s.count++];

		memset(w->name, 'a' + (int)i, NG_NAME - 1);
		if (i)
			memset(w->client, '1', NG_CLIENT - 1);
		w->beat = 999999999999999999u + i;
		w->enforces = w->change = w->beat;
		w->slot = (uint16_t)(NG_GATEWAYS - 1 - i);
		memset(w->serves, '=', NB_SERVES - 1);
		fill_ports(w);
	}
	size_t n = ng_encode(&s, text);

	CHECK(n < NG_TEXT - 1024 && ng_decode(text, n, &back));
	CHECK(!memcmp(&s, &back, sizeof(s)));
	for (size_t i = 0; i < sizeof(wrong) / sizeof(*wrong); i++)
		CHECK(!ng_decode(wrong[i], strlen(wrong[i]), &back));
	size_t all = n, whole = (size_t)(strstr(text, "gateway a") - text);

	for (size_t i = 0; i < n; i += i < 400 || i + 400 > all ? 1 : 7) {
		char old = text[i];

		CHECK(text[i] != '\n' || i + 1 == n || i < whole || ng_decode(text, i + 1, &back));
		CHECK(text[i ? i - 1 : 0] == '\n' || !ng_decode(text, i, &back));
		text[i] = (char)0xff;
		CHECK(!ng_decode(text, n, &back));
		text[i] = 0;
		CHECK(!ng_decode(text, n, &back));
		text[i] = old;
	}
	CHECK(ng_name_valid("a.B-9_") && !ng_name_valid("") && !ng_name_valid("-a") && !ng_name_valid("a b"));
}

int main(void)
{
	RUN(the_first_is_the_owner_and_a_failed_one_is_fenced_first);
	RUN(an_owner_that_answers_nothing_fails_when_it_has_missed_a_beat);
	RUN(a_gateway_that_slept_declares_nobody_failed);
	RUN(the_owner_hands_over_when_its_last_write_is_done);
	RUN(a_change_is_complete_when_all_enforce_it);
	RUN(a_change_is_made_once_although_its_answer_is_lost);
	RUN(a_failed_owner_is_fenced_before_a_change_is_complete);
	RUN(what_does_not_persist_ends_with_the_last_gateway);
	RUN(the_dead_are_watched_before_what_does_not_persist_goes_on);
	RUN(the_ports_of_those_that_live_are_listed);
	RUN(a_gateway_that_leaves_gives_the_image_up);
	RUN(names_and_places_are_unique);
	RUN(all_that_live_serve_the_image_in_the_same_way);
	RUN(only_text_that_a_gateway_writes_is_read);
	RUN(only_the_owner_writes_whatever_halts_and_dies);
	RUN(without_fencing_late_writes_land);
	RUN(without_waiting_writes_outlive_a_change);
	return 0;
}
