// services.c - bindings: which program has which port of which port space
// follows: IBA volume 1, annex A11 (RDMA IP CM service): service ids; ip(7), SO_REUSEADDR
// SPDX-License-Identifier: MIT
#include "broker/server/services.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <sys/random.h>

#include "frame/net.h"

/* 2^64 and 2^32 divided by the golden ratio: multiplying by them spreads numbers */
#define GOLDEN_RATIO 0x9e3779b97f4a7c15u
#define GOLDEN_RATIO_32 0x9e3779b1u

#define STEPS 32768 /* limit of a search for a free port: less than a millisecond */

static bool is_any(const uint8_t gid[16])
{
	static const uint8_t zeros[16];

	return !memcmp(gid, zeros, sizeof(zeros));
}

/* ---- look-up tables ---- */

/* Multiply-shift hashing: two ids chosen without the key share a bucket with probability 1/16384. */
static uint32_t id_bucket(const struct vb_services *t, uint32_t lane, uint32_t id)
{
	return (uint32_t)((t->key[0] * ((uint64_t)lane << 32 | id) + t->key[1]) >> (64 - VB_SERVICE_BUCKET_BITS));
}

/* Draws the hash key of an empty table. Without random numbers, users who choose colliding ids slow down the
 * look-up. */
static void draw_key(struct vb_services *t)
{
	if (getrandom(t->key, sizeof(t->key), 0) != sizeof(t->key))
		t->key[0] = GOLDEN_RATIO;
	t->key[0] |= 1;
}

static void binding_insert(struct vb_services *t, struct vb_binding *s)
{
	if (!t->n)
		draw_key(t);
	s->at_port = &t->by_port[s->port];
	s->at_id = &t->by_id[id_bucket(t, s->lane, s->id)];
	s->at_own = &t->own[s->lane];
#define PUT(list)                                            \
	s->next_##list = *s->at_##list;                      \
	if (s->next_##list)                                  \
		s->next_##list->at_##list = &s->next_##list; \
	*s->at_##list = s;
	PUT(port)
	PUT(id)
	PUT(own)
#undef PUT
	t->n++;
	t->each[s->lane]++;
}

static void binding_remove(struct vb_services *t, struct vb_binding *s)
{
#define TAKE(list)                      \
	*s->at_##list = s->next_##list; \
	if (s->next_##list)             \
		s->next_##list->at_##list = s->at_##list;
	TAKE(port)
	TAKE(id)
	TAKE(own)
#undef TAKE
	t->n--;
	t->each[s->lane]--;
}

struct vb_binding *vb_service_of(const struct vb_services *t, uint32_t lane, uint32_t id)
{
	struct vb_binding *s = t->by_id[id_bucket(t, lane, id)];

	while (s && (s->lane != lane || s->id != id))
		s = s->next_id;
	return s;
}

/* ---- users' shares ---- */

static struct vb_service_user **place_of_user(struct vb_services *t, uid_t uid)
{
	struct vb_service_user **at = &t->users;

	while (*at && (*at)->uid != uid)
		at = &(*at)->next;
	return at;
}

static void binding_uncharge(struct vb_services *t, const struct vb_binding *s)
{
	struct vb_service_user *u = s->user;

	if (!u)
		return;
	u->n--;
	u->ephemeral -= s->ephemeral;
	t->foreign--;
	t->foreign_ephemeral -= s->ephemeral;
	if (u->n)
		return;
	*place_of_user(t, u->uid) = u->next;
	free(u);
}

/* A user may have as much as is left for others; an eighth is kept for the broker's own user. */
static bool has_share(uint32_t own, uint32_t all, uint32_t limit)
{
	limit -= limit / 8;
	return all < limit && own < limit - all;
}

/* Returns 0, ENOSPC or ENOMEM. */
static int binding_charge(struct vb_services *t, struct vb_binding *s, const struct vb_port_range *range)
{
	struct vb_service_user **at, *u;

	if (!s->foreign)
		return 0;
	s->ephemeral = !s->port || (s->port >= range->low && s->port <= range->high);
	at = place_of_user(t, s->uid);
	u = *at;
	if ((u && u->n >= VB_MAX_BINDINGS_USER) || !has_share(u ? u->n : 0, t->foreign, VB_MAX_BINDINGS) ||
	    (s->ephemeral && !has_share(u ? u->ephemeral : 0, t->foreign_ephemeral, range->high - range->low + 1u)))
		return ENOSPC;
	if (!u) {
		u = calloc(1, sizeof(*u));
		if (!u)
			return ENOMEM;
		u->uid = s->uid;
		*at = u;
	}
	u->n++;
	u->ephemeral += s->ephemeral;
	t->foreign++;
	t->foreign_ephemeral += s->ephemeral;
	s->user = u;
	return 0;
}

/* Limits the bindings of a port, because every look-up walks along them. */
static bool is_port_crowded(const struct vb_services *t, const struct vb_binding *want)
{
	uint32_t his = 0, all = 0;

	if (!want->foreign)
		return false;
	for (const struct vb_binding *s = t->by_port[want->port]; s; s = s->next_port) {
		all += s->foreign;
		his += s->foreign && s->uid == want->uid;
	}
	return his >= VB_MAX_AT_PORT_USER || all >= VB_MAX_AT_PORT;
}

void vb_service_unbind(struct vb_services *t, struct vb_binding *s)
{
	binding_remove(t, s);
	binding_uncharge(t, s);
	free(s);
}

void vb_services_forget(struct vb_services *t, uint32_t lane)
{
	while (t->own[lane])
		vb_service_unbind(t, t->own[lane]);
}

/* ---- conflicts ---- */

static bool covers_address(const struct vb_binding *any, const uint8_t local[16])
{
	return vb_gid_is_ipv4(local) ? !any->v6_only : !any->v4_only;
}

static bool share_a_family(const struct vb_binding *a, const struct vb_binding *b)
{
	return !(a->v4_only && b->v6_only) && !(a->v6_only && b->v4_only);
}

/* True if some MAD could be for both. */
static bool bindings_overlap(const struct vb_binding *a, const struct vb_binding *b)
{
	if (a->ifindex && b->ifindex && a->ifindex != b->ifindex)
		return false;
	if (is_any(a->local) && is_any(b->local))
		return share_a_family(a, b);
	if (is_any(a->local) || is_any(b->local))
		return is_any(a->local) ? covers_address(a, b->local) : covers_address(b, a->local);
	return !memcmp(a->local, b->local, sizeof(a->local));
}

static bool may_share(const struct vb_binding *a, const struct vb_binding *b)
{
	return a->reuse && b->reuse && !a->listening && !b->listening;
}

/* *steps bounds the search and is counted down. */
static bool has_conflict(const struct vb_services *t, const struct vb_binding *want, uint32_t *steps)
{
	const struct vb_binding *s = t->by_port[want->port];

	for (; s && *steps; s = s->next_port, --*steps)
		if (s->port_space == want->port_space && bindings_overlap(s, want) && !may_share(s, want))
			return true;
	return s;
}

static uint32_t common_divisor(uint32_t a, uint32_t b)
{
	while (b) {
		uint32_t rest = a % b;

		a = b;
		b = rest;
	}
	return a;
}

/* Starts at a random port and continues with a random stride that reaches every port. If an eighth of the ports is
 * free, one is found in about eight steps, whichever ports are in use. */
static int choose_port(const struct vb_services *t, struct vb_binding *want, const struct vb_port_range *range)
{
	uint32_t n = range->high - range->low + 1u, stride = (range->start * GOLDEN_RATIO_32) % n, steps = STEPS;
	struct vb_binding alone = *want;

	while (common_divisor(stride, n) != 1)
		stride = stride % n + 1;
	alone.reuse = false; /* a program that asks for any port gets one of its own */
	for (uint32_t i = 0; i < n && steps; i++, steps--) {
		alone.port = (uint16_t)(range->low + (range->start % n + (uint64_t)i * stride) % n);
		if (!alone.port || has_conflict(t, &alone, &steps))
			continue;
		want->port = alone.port;
		return 0;
	}
	return ENOSPC;
}

static int take_port(const struct vb_services *t, struct vb_binding *s, const struct vb_port_range *range)
{
	uint32_t no_end = UINT32_MAX;

	if (!s->port)
		return choose_port(t, s, range);
	if (has_conflict(t, s, &no_end))
		return EADDRINUSE;
	return is_port_crowded(t, s) ? ENOSPC : 0;
}

int vb_service_bind(struct vb_services *t, const struct vb_binding *want, const struct vb_port_range *range,
                    struct vb_binding **out)
{
	struct vb_binding *s;
	int err;

	if (t->n >= VB_MAX_BINDINGS || t->each[want->lane] >= VB_MAX_BINDINGS_EACH)
		return ENOSPC;
	s = malloc(sizeof(*s));
	if (!s)
		return ENOMEM;
	*s = *want;
	s->listening = false;
	err = binding_charge(t, s, range);
	if (!err) {
		err = take_port(t, s, range);
		if (err)
			binding_uncharge(t, s);
	}
	if (err) {
		free(s);
		return err;
	}
	binding_insert(t, s);
	*out = s;
	return 0;
}

int vb_service_listen(struct vb_services *t, struct vb_binding *s)
{
	const struct vb_binding *o = t->by_port[s->port];

	for (; o; o = o->next_port)
		if (o != s && o->listening && o->port_space == s->port_space && bindings_overlap(o, s))
			return EADDRINUSE;
	s->listening = true;
	return 0;
}

static bool is_for(const struct vb_binding *s, const uint8_t local[16], uint32_t ifindex)
{
	if (!s->listening || (s->ifindex && ifindex && s->ifindex != ifindex))
		return false;
	return is_any(s->local) ? covers_address(s, local) : !memcmp(s->local, local, sizeof(s->local));
}

const struct vb_binding *vb_service_find(const struct vb_services *t, uint16_t port_space, uint16_t port,
                                         const uint8_t local[16], uint32_t ifindex,
                                         bool (*may)(void *arg, uint32_t lane), void *arg)
{
	const struct vb_binding *s = t->by_port[port];

	while (s && (s->port_space != port_space || !is_for(s, local, ifindex) || !may(arg, s->lane)))
		s = s->next_port;
	return s;
}

const struct vb_binding *vb_service_bound(const struct vb_services *t, uint16_t port_space, uint16_t port)
{
	const struct vb_binding *s = t->by_port[port];

	while (s && (s->port_space != port_space || s->listening))
		s = s->next_port;
	return s;
}
