// qos.c - limits of hosts and of namespaces, and the order in which hosts are served where they compete
// see: target/limit.h (token buckets), target/fair.h (deficit round robin)
// SPDX-License-Identifier: MIT
#include <stdlib.h>
#include <string.h>

#include "target/core.h"

#define NS_PER_MS 1000000ull

/*
 * A request passes the gate of its host, then that of its namespace, then it gets memory. So what waits for a limit has
 * no memory, apart from data that came with the capsule. Where the medium of a namespace has enough requests, others
 * wait for their turn with their data (nt_turn): only then can a host that does not send its data hold nobody up.
 */
enum { GATE_HOST, GATE_NAMESPACE, GATES };

static uint64_t now_ns(const struct nt_target *t)
{
	return t->now * NS_PER_MS;
}

/* ---- requests ---- */

static struct nt_request *request_at(struct nt_place *p)
{
	return (struct nt_request *)(void *)((uint8_t *)p - offsetof(struct nt_request, place));
}

/* The two of a fused pair wait in one line, so that they stay together. */
static inline enum nt_direction direction_of(const struct nt_request *r)
{
	if (r->sqe.opcode == NV_IO_WRITE)
		return NT_WRITES;
	switch (r->sqe.opcode) {
	case NV_IO_READ:
	case NV_IO_VERIFY:
		return NT_READS;
	case NV_IO_COMPARE:
		return r->sqe.fuse ? NT_WRITES : NT_READS;
	default:
		return NT_WRITES;
	}
}

/* Dataset Management is an operation without bytes. A command without data counts no more than the largest transfer. */
static inline uint64_t bytes_of(const struct nt_request *r)
{
	if (r->sqe.opcode == NV_IO_DSM)
		return 0;
	return r->left < NT_TRANSFER_MAX ? r->left : NT_TRANSFER_MAX;
}

/* The first of the pair has waited for both. */
static bool is_second(const struct nt_request *r)
{
	return r->sqe.fuse == NV_FUSE_SECOND;
}

static struct nt_gate *gate_of(struct nt_request *r)
{
	return r->gate == GATE_HOST ? &r->queue->ctrl->account->gate : &r->ns->gate;
}

static struct nt_account *account_of(const struct nt_request *r)
{
	return r->queue->ctrl->account;
}

/* ---- gates ---- */

#define RATES_OF_ONE 4

/* The limits of a request, those of operations and of bytes by turns. */
static const enum nt_rate rates_of[NT_DIRECTIONS][RATES_OF_ONE] = {
        [NT_READS] = {NT_IOPS, NT_BPS, NT_RIOPS, NT_RBPS}, [NT_WRITES] = {NT_IOPS, NT_BPS, NT_WIOPS, NT_WBPS}};

void nt_gate_open(struct nt_gate *g, struct nt_target *t)
{
	memset(g, 0, sizeof(*g));
	g->target = t;
	for (int i = 0; i < NT_DIRECTIONS; i++)
		g->lines[i].flows = &t->flows;
}

static inline void count_request(struct nt_gate *g, enum nt_direction way, uint64_t bytes)
{
	g->operations[way]++;
	g->bytes[way] += bytes;
}

static void take_tokens(struct nt_gate *g, const struct nt_request *r)
{
	enum nt_direction way = direction_of(r);
	uint64_t bytes = bytes_of(r), now = now_ns(g->target);

	count_request(g, way, bytes);
	for (int i = 0; g->limited && i < RATES_OF_ONE; i++) {
		enum nt_rate rate = rates_of[way][i];

		if (g->limits.rate[rate])
			nt_bucket_take(&g->buckets[rate], g->limits.rate[rate], i & 1 ? bytes : 1, now);
	}
}

/* ns: when the next request of this direction may pass. */
static uint64_t opens_at(const struct nt_gate *g, enum nt_direction way)
{
	uint64_t at = 0;

	for (int i = 0; g->limited && i < RATES_OF_ONE; i++) {
		enum nt_rate rate = rates_of[way][i];
		uint64_t opens = g->limits.rate[rate] ? nt_bucket_opens(&g->buckets[rate], g->limits.burst_ms) : 0;

		at = opens > at ? opens : at;
	}
	return at;
}

/* When the target ends, what it has received is not held back any more. */
static bool gate_is_open(const struct nt_gate *g, enum nt_direction way)
{
	return !g->limited || g->target->stopping || opens_at(g, way) <= now_ns(g->target);
}

/* Puts the gate among those where requests wait, or removes it, and finds out when it opens. */
static void set_gate_due(struct nt_gate *g)
{
	struct nt_target *t = g->target;
	bool waits = g->lines[NT_READS].count || g->lines[NT_WRITES].count;

	g->due = UINT64_MAX;
	for (int way = 0; way < NT_DIRECTIONS; way++) {
		uint64_t at = g->lines[way].count ? (opens_at(g, way) + NS_PER_MS - 1) / NS_PER_MS : UINT64_MAX;

		g->due = at < g->due ? at : g->due;
	}
	if (waits && (!t->gates || g->due < t->gates_due))
		t->gates_due = g->due;
	if (waits == !!g->back)
		return;
	if (!waits) {
		*g->back = g->next;
		if (g->next)
			g->next->back = g->back;
		g->back = NULL;
		return;
	}
	g->next = t->gates;
	g->back = &t->gates;
	if (g->next)
		g->next->back = &g->next;
	t->gates = g;
}

static bool pass_gate(struct nt_gate *g, struct nt_request *r)
{
	enum nt_direction way = direction_of(r);
	struct nt_account *a = account_of(r);

	if (!g->lines[way].count && (is_second(r) || gate_is_open(g, way))) {
		take_tokens(g, r);
		return true;
	}
	if (r->in_capsule && !r->room && nt_memory_park(r)) /* it comes here again, with its data */
		return false;
	g->waited++;
	r->state = NT_QUEUED;
	nt_fair_enter(&g->lines[way], &r->place, a, a->gate.limits.weight, bytes_of(r));
	set_gate_due(g);
	return false;
}

bool nt_qos_pass(struct nt_request *r)
{
	if (!r->ns)
		return true;
	struct nt_gate *host = &account_of(r)->gate, *ns = &r->ns->gate;

	if (!host->limited && !ns->limited && !r->gate) { /* nothing waits at a gate without limits */
		enum nt_direction way = direction_of(r);
		uint64_t bytes = bytes_of(r);

		count_request(host, way, bytes);
		count_request(ns, way, bytes);
		r->gate = GATES;
		return true;
	}
	for (; r->gate < GATES; r->gate++)
		if (!pass_gate(gate_of(r), r))
			return false;
	return true;
}

/* The next request that may pass, the two directions by turns. */
static struct nt_request *next_at(struct nt_gate *g)
{
	for (int i = 0; i < NT_DIRECTIONS; i++) {
		enum nt_direction way = (g->turn + i) % NT_DIRECTIONS;
		struct nt_place *p = nt_fair_next(&g->lines[way]);

		if (!p || !(is_second(request_at(p)) || gate_is_open(g, way)))
			continue;
		g->turn = (uint8_t)((way + 1) % NT_DIRECTIONS);
		return request_at(p);
	}
	return NULL;
}

static void let_all_go(struct nt_gate *g)
{
	for (struct nt_request *r; (r = next_at(g));) {
		nt_fair_serve(&r->place);
		take_tokens(g, r);
		r->state = NT_HELD;
		r->gate++;
		if (nt_qos_pass(r))
			nt_admit(r);
	}
	set_gate_due(g);
}

void nt_gate_lift(struct nt_gate *g)
{
	g->limited = false;
	let_all_go(g);
}

void nt_qos_tick(struct nt_target *t)
{
	if (!t->gates || (t->gates_due > t->now && !t->stopping))
		return;
	for (struct nt_gate *g = t->gates, *next; g; g = next) {
		next = g->next; /* this may remove only g, and puts others before it */
		if (g->due <= t->now || t->stopping)
			let_all_go(g);
	}
	t->gates_due = UINT64_MAX;
	for (struct nt_gate *g = t->gates; g; g = g->next)
		t->gates_due = g->due < t->gates_due ? g->due : t->gates_due;
}

uint64_t nt_qos_due(const struct nt_target *t)
{
	return t->gates ? t->gates_due : UINT64_MAX;
}

static bool is_at_turns(const struct nt_request *r)
{
	return r->ns && r->place.in == &r->ns->turns;
}

void nt_qos_leave(struct nt_request *r)
{
	bool turns = is_at_turns(r);

	nt_fair_leave(&r->place);
	r->state = NT_HELD;
	if (!turns)
		set_gate_due(gate_of(r));
}

/* ---- turns at the medium ---- */

static bool medium_has_room(const struct nt_namespace *ns)
{
	return ns->at_medium < (ns->gate.limits.depth ? ns->gate.limits.depth : NT_DEPTH);
}

static void go_to_medium(struct nt_request *r)
{
	if (!r->ns->at_medium++)
		r->ns->at_medium_since = r->queue->target->now;
	r->queue->target->at_medium++;
	r->at_medium = true;
	nt_launch(r);
}

void nt_turn(struct nt_request *r)
{
	struct nt_namespace *ns = r->ns;

	if (!ns->turns.count && medium_has_room(ns)) {
		go_to_medium(r);
		return;
	}
	struct nt_account *a = account_of(r);

	r->state = NT_QUEUED;
	if (!r->io.since)                          /* otherwise it has waited for memory already */
		r->io.since = a->gate.target->now; /* the host waits for the medium from now on */
	nt_fair_enter(&ns->turns, &r->place, a, a->gate.limits.weight, bytes_of(r));
}

/* Does nothing if called from within itself. */
static void take_turns(struct nt_namespace *ns)
{
	if (ns->turning)
		return;
	ns->turning = true;
	ns->users++;
	for (struct nt_place *p; medium_has_room(ns) && (p = nt_fair_next(&ns->turns));) {
		struct nt_request *r = request_at(p);

		nt_fair_serve(p);
		r->state = NT_HELD;
		go_to_medium(r);
	}
	ns->turning = false;
	nt_ns_put(ns);
}

void nt_turn_done(struct nt_request *r)
{
	if (!r->at_medium)
		return;
	r->at_medium = false;
	r->queue->target->at_medium--;
	r->ns->at_medium--;
	if (r->ns->turns.count)
		take_turns(r->ns);
}

/* ---- changes ---- */

static bool same_limits(const struct nt_limits *a, const struct nt_limits *b)
{
	return !memcmp(a->rate, b->rate, sizeof(a->rate)) && a->burst_ms == b->burst_ms && a->weight == b->weight &&
	       a->depth == b->depth;
}

static void change_limits(struct nt_gate *g, const struct nt_limits *l)
{
	if (same_limits(&g->limits, l))
		return;
	g->limits = *l;
	g->limited = nt_limits_any(l);
	for (int i = 0; i < NT_RATES; i++)
		nt_bucket_change(&g->buckets[i], now_ns(g->target));
	let_all_go(g);
}

void nt_limit_namespace(struct nt_namespace *ns, const struct nt_limits *l)
{
	change_limits(&ns->gate, l);
	take_turns(ns);
}

static struct nt_account **account_bucket(struct nt_target *t, const char *nqn)
{
	uint32_t h = 2166136261u;

	for (; *nqn; nqn++)
		h = (h ^ (uint8_t)*nqn) * 16777619u;
	return &t->accounts[(h ^ h >> 16) % NT_PEER_BUCKETS];
}

static struct nt_account *find_account(struct nt_target *t, const char *nqn)
{
	struct nt_account *a = *account_bucket(t, nqn);

	while (a && strcmp(a->nqn, nqn))
		a = a->next;
	return a;
}

static struct nt_account *get_account(struct nt_target *t, const char *nqn)
{
	struct nt_account **at = account_bucket(t, nqn), *a = find_account(t, nqn);

	if (a || !(a = calloc(1, sizeof(*a))))
		return a;
	strcpy(a->nqn, nqn);
	nt_gate_open(&a->gate, t);
	change_limits(&a->gate, &t->each_host);
	a->next = *at;
	*at = a;
	return a;
}

static void free_unused(struct nt_target *t, struct nt_account *a)
{
	struct nt_account **at = account_bucket(t, a->nqn);

	if (a->controllers || a->own)
		return;
	while (*at != a)
		at = &(*at)->next;
	*at = a->next;
	free(a);
}

struct nt_account *nt_account_join(struct nt_target *t, const char *hostnqn)
{
	struct nt_account *a = get_account(t, hostnqn);

	if (a)
		a->controllers++;
	return a;
}

void nt_account_leave(struct nt_target *t, struct nt_account *a)
{
	a->controllers--;
	free_unused(t, a);
}

bool nt_limit_host(struct nt_target *t, const char *nqn, const struct nt_limits *l)
{
	bool valid = strlen(nqn) < NV_NQN_SIZE && nv_nqn_valid(nqn, NV_NQN_SIZE);
	struct nt_account *a = !valid ? NULL : l ? get_account(t, nqn) : find_account(t, nqn);

	if (!a)
		return valid && !l;
	a->own = l;
	change_limits(&a->gate, l ? l : &t->each_host);
	free_unused(t, a);
	return true;
}

void nt_limit_each_host(struct nt_target *t, const struct nt_limits *l)
{
	t->each_host = *l;
	for (uint32_t i = 0; i < NT_PEER_BUCKETS; i++)
		for (struct nt_account *a = t->accounts[i]; a; a = a->next)
			if (!a->own)
				change_limits(&a->gate, l);
}

void nt_limit_hosts_forget(struct nt_target *t, bool (*keep)(const void *of, const char *nqn), const void *of)
{
	for (uint32_t i = 0; i < NT_PEER_BUCKETS; i++)
		for (struct nt_account *a = t->accounts[i], *next; a; a = next) {
			next = a->next;
			if (!a->own || keep(of, a->nqn))
				continue;
			a->own = false;
			change_limits(&a->gate, &t->each_host);
			free_unused(t, a);
		}
}

const struct nt_limits *nt_limits_of_host(struct nt_target *t, const char *nqn)
{
	const struct nt_account *a = find_account(t, nqn);

	return a ? &a->gate.limits : &t->each_host;
}

void nt_accounts_forget(struct nt_target *t)
{
	for (uint32_t i = 0; i < NT_PEER_BUCKETS; i++)
		while (t->accounts[i]) {
			struct nt_account *a = t->accounts[i];

			t->accounts[i] = a->next;
			free(a);
		}
}
