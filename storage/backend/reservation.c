// reservation.c - the persistent reservation of a medium: what commands change, and what it forbids
// follows: NVM Express Base 1.4, 6.10 to 6.13 (the commands), 8.8 (reservations)
// SPDX-License-Identifier: MIT
#include "backend/reservation.h"

#include <string.h>

static bool same_as(const struct nr_host *a, const struct nr_host *b)
{
	return !memcmp(a, b, sizeof(*a));
}

static bool is_of_all(uint8_t type)
{
	return type == NR_WRITES_ALL_REGISTRANTS || type == NR_ACCESS_ALL_REGISTRANTS;
}

static bool is_of_registrants(uint8_t type)
{
	return type == NR_WRITES_REGISTRANTS || type == NR_ACCESS_REGISTRANTS || is_of_all(type);
}

const struct nr_registrant *nr_find(const struct nr_state *s, const struct nr_host *h)
{
	for (uint32_t i = 0; i < s->count; i++)
		if (same_as(&s->registrants[i].host, h))
			return &s->registrants[i];
	return NULL;
}

bool nr_holds(const struct nr_state *s, const struct nr_registrant *r)
{
	return s->type && (r->holder || is_of_all(s->type));
}

/* Base 1.4, figure 436: the behaviour of commands in the presence of a reservation */
bool nr_forbids(const struct nr_state *s, const struct nr_host *h, bool writes)
{
	if (!s->type)
		return false;
	bool reads_too =
	        s->type == NR_ACCESS || s->type == NR_ACCESS_REGISTRANTS || s->type == NR_ACCESS_ALL_REGISTRANTS;

	if (!writes && !reads_too)
		return false;
	const struct nr_registrant *r = nr_find(s, h);

	return !r || !(r->holder || is_of_registrants(s->type));
}

bool nr_valid(const struct nr_state *s)
{
	uint32_t holders = 0;

	if (s->type > NR_ACCESS_ALL_REGISTRANTS || s->count > NR_REGISTRANTS || s->notice_count > NR_NOTICES)
		return false;
	for (uint32_t i = 0; i < s->count; i++) {
		const struct nr_registrant *r = &s->registrants[i];

		holders += r->holder;
		if (!r->key || nr_find(s, &r->host) != r)
			return false;
	}
	return is_of_all(s->type) ? s->count && !holders : holders == (s->type ? 1 : 0);
}

/* ---- parts of changes ---- */

static struct nr_registrant *registrant_of(struct nr_state *s, const struct nr_host *h)
{
	return (struct nr_registrant *)(uintptr_t)nr_find(s, h);
}

static void notify(struct nr_state *s, enum nr_event event, const struct nr_host *by)
{
	if (s->notice_count == NR_NOTICES)
		memmove(s->notices, s->notices + 1, sizeof(*s->notices) * --s->notice_count);
	s->notices[s->notice_count++] = (struct nr_notice){.version = s->version, .event = (uint8_t)event, .by = *by};
}

static void hold(struct nr_state *s, struct nr_registrant *by, uint8_t type)
{
	for (uint32_t i = 0; i < s->count; i++)
		s->registrants[i].holder = false;
	s->type = type;
	by->holder = !is_of_all(type);
}

/* Base 1.4, 8.8.6: the other registrants learn it if they could write */
static void end_reservation(struct nr_state *s, const struct nr_host *by)
{
	bool tell = is_of_registrants(s->type);

	s->type = NR_NONE;
	for (uint32_t i = 0; i < s->count; i++)
		s->registrants[i].holder = false;
	if (tell)
		notify(s, NR_RELEASED, by);
}

static void remove_at(struct nr_state *s, uint32_t i)
{
	memmove(&s->registrants[i], &s->registrants[i + 1], sizeof(*s->registrants) * (s->count - i - 1));
	memset(&s->registrants[--s->count], 0, sizeof(*s->registrants));
}

/* The other registrants with a key; 0: all of them. */
static uint32_t remove_others(struct nr_state *s, const struct nr_host *by, uint64_t key)
{
	uint32_t n = 0;

	for (uint32_t i = s->count; i--;) {
		if (same_as(&s->registrants[i].host, by) || (key && s->registrants[i].key != key))
			continue;
		remove_at(s, i);
		n++;
	}
	if (n)
		notify(s, NR_REGISTRATION_PREEMPTED, by);
	return n;
}

/* ---- the changes ---- */

static enum nr_result add_registrant(struct nr_state *s, const struct nr_change *c)
{
	if (s->count == NR_REGISTRANTS)
		return NR_FULL;
	s->registrants[s->count++] = (struct nr_registrant){.host = c->by, .key = c->other};
	return NR_OK;
}

static enum nr_result register_key(struct nr_state *s, const struct nr_change *c)
{
	const struct nr_registrant *r = nr_find(s, &c->by);

	if (!c->other)
		return NR_INVALID;
	if (r)
		return r->key == c->other ? NR_OK : NR_CONFLICT;
	return add_registrant(s, c);
}

static enum nr_result unregister_key(struct nr_state *s, const struct nr_change *c)
{
	struct nr_registrant *r = registrant_of(s, &c->by);

	if (!r || (r->key != c->key && !c->ignore_key))
		return NR_CONFLICT;
	bool ends = r->holder || (is_of_all(s->type) && s->count == 1);

	if (ends)
		end_reservation(s, &c->by);
	remove_at(s, (uint32_t)(r - s->registrants));
	return NR_OK;
}

static enum nr_result replace_key(struct nr_state *s, const struct nr_change *c)
{
	struct nr_registrant *r = registrant_of(s, &c->by);

	if (!c->other)
		return NR_INVALID;
	if (!r && c->ignore_key)
		return add_registrant(s, c);
	if (!r || (r->key != c->key && !c->ignore_key))
		return NR_CONFLICT;
	r->key = c->other;
	return NR_OK;
}

static enum nr_result acquire(struct nr_state *s, const struct nr_change *c, struct nr_registrant *r)
{
	if (s->type)
		return nr_holds(s, r) && s->type == c->type ? NR_OK : NR_CONFLICT;
	hold(s, r, c->type);
	return NR_OK;
}

static const struct nr_registrant *holder_of(const struct nr_state *s)
{
	for (uint32_t i = 0; i < s->count; i++)
		if (s->registrants[i].holder)
			return &s->registrants[i];
	return NULL;
}

/* Base 1.4, 8.8.7. A host that names its own key keeps its registration. */
static enum nr_result preempt(struct nr_state *s, const struct nr_change *c, struct nr_registrant *r)
{
	const struct nr_registrant *holder = holder_of(s);
	bool of_all = is_of_all(s->type), takes = of_all ? !c->other : holder && holder->key == c->other,
	     own = r->key == c->other;
	uint8_t before = s->type;

	if (!c->other && !of_all)
		return NR_INVALID;
	uint32_t n = remove_others(s, &c->by, c->other);

	if (!takes)
		return n || own ? NR_OK : NR_CONFLICT;
	hold(s, registrant_of(s, &c->by), c->type);
	if (before != c->type && is_of_registrants(before))
		notify(s, NR_RELEASED, &c->by);
	return NR_OK;
}

static enum nr_result release(struct nr_state *s, const struct nr_change *c, const struct nr_registrant *r)
{
	if (!nr_holds(s, r))
		return NR_OK;
	if (s->type != c->type)
		return NR_INVALID;
	end_reservation(s, &c->by);
	return NR_OK;
}

static enum nr_result clear(struct nr_state *s, const struct nr_change *c)
{
	memset(s->registrants, 0, sizeof(s->registrants));
	s->count = 0;
	s->type = NR_NONE;
	notify(s, NR_PREEMPTED, &c->by);
	return NR_OK;
}

static enum nr_result make(struct nr_state *s, const struct nr_change *c)
{
	struct nr_registrant *r = registrant_of(s, &c->by);

	if (c->persist == NR_NO || c->persist == NR_YES)
		s->persists = c->persist == NR_YES;
	switch (c->op) {
	case NR_REGISTER:
		return register_key(s, c);
	case NR_UNREGISTER:
		return unregister_key(s, c);
	case NR_REPLACE:
		return replace_key(s, c);
	case NR_PERSIST:
		return NR_OK;
	default:
		break;
	}
	if (!r || r->key != c->key)
		return NR_CONFLICT;
	switch (c->op) {
	case NR_ACQUIRE:
		return acquire(s, c, r);
	case NR_PREEMPT:
		return preempt(s, c, r);
	case NR_RELEASE:
		return release(s, c, r);
	default:
		return clear(s, c);
	}
}

enum nr_result nr_apply(struct nr_state *s, const struct nr_change *c)
{
	static const bool counts[] = {
	        [NR_REGISTER] = true, [NR_UNREGISTER] = true, [NR_REPLACE] = true, [NR_ACQUIRE] = false,
	        [NR_PREEMPT] = true,  [NR_RELEASE] = false,   [NR_CLEAR] = true,   [NR_PERSIST] = false};
	struct nr_state before = *s;

	s->version++; /* for notices, too */
	enum nr_result result = make(s, c);

	if (result == NR_OK)
		s->generation += counts[c->op];
	else
		*s = before;
	return result;
}

void nr_power_lost(struct nr_state *s)
{
	if (s->persists || !s->count)
		return;
	*s = (struct nr_state){.version = s->version + 1};
}
