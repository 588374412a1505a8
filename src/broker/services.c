// services.c - which program has which port of which port space
// follows: IBA annex A11 (RDMA IP CM service): service ids; ip(7), SO_REUSEADDR
// SPDX-License-Identifier: MIT
#include "broker/services.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "frame/net.h"

static bool is_any(const uint8_t gid[16])
{
	static const uint8_t zeros[16];

	return !memcmp(gid, zeros, sizeof(zeros));
}

/* ---- the two ways in ---- */

static uint32_t port_bucket(uint16_t port_space, uint16_t port)
{
	return (port + port_space * 31u) % VB_SERVICE_BUCKETS;
}

static uint32_t id_bucket(uint32_t lane, uint32_t id)
{
	return (id + lane * 131u) % VB_SERVICE_BUCKETS;
}

static void insert(struct vb_services *t, struct vb_binding *s)
{
	struct vb_binding **port = &t->by_port[port_bucket(s->port_space, s->port)];
	struct vb_binding **id = &t->by_id[id_bucket(s->lane, s->id)];

	s->next_port = *port;
	*port = s;
	s->next_id = *id;
	*id = s;
	t->n++;
	t->each[s->lane]++;
}

struct vb_binding *vb_service_of(const struct vb_services *t, uint32_t lane, uint32_t id)
{
	struct vb_binding *s = t->by_id[id_bucket(lane, id)];

	while (s && (s->lane != lane || s->id != id))
		s = s->next_id;
	return s;
}

void vb_service_unbind(struct vb_services *t, struct vb_binding *s)
{
	struct vb_binding **at = &t->by_port[port_bucket(s->port_space, s->port)];

	while (*at != s)
		at = &(*at)->next_port;
	*at = s->next_port;
	at = &t->by_id[id_bucket(s->lane, s->id)];
	while (*at != s)
		at = &(*at)->next_id;
	*at = s->next_id;
	t->n--;
	t->each[s->lane]--;
	free(s);
}

void vb_services_forget(struct vb_services *t, uint32_t lane)
{
	for (uint32_t i = 0; i < VB_SERVICE_BUCKETS && t->each[lane]; i++) {
		for (struct vb_binding *s = t->by_id[i], *next; s; s = next) {
			next = s->next_id;
			if (s->lane == lane)
				vb_service_unbind(t, s);
		}
	}
}

/* ---- who is in whose way ---- */

static bool covers(const struct vb_binding *any, const uint8_t local[16])
{
	return vb_gid_is_ipv4(local) ? !any->v6_only : !any->v4_only;
}

static bool share_a_family(const struct vb_binding *a, const struct vb_binding *b)
{
	return !(a->v4_only && b->v6_only) && !(a->v6_only && b->v4_only);
}

/* Is there a datagram that is for both? */
static bool overlap(const struct vb_binding *a, const struct vb_binding *b)
{
	if (a->ifindex && b->ifindex && a->ifindex != b->ifindex)
		return false;
	if (is_any(a->local) && is_any(b->local))
		return share_a_family(a, b);
	if (is_any(a->local) || is_any(b->local))
		return is_any(a->local) ? covers(a, b->local) : covers(b, a->local);
	return !memcmp(a->local, b->local, sizeof(a->local));
}

static bool may_share(const struct vb_binding *a, const struct vb_binding *b)
{
	return a->reuse && b->reuse && !a->listening && !b->listening;
}

static bool in_the_way(const struct vb_services *t, const struct vb_binding *want)
{
	const struct vb_binding *s = t->by_port[port_bucket(want->port_space, want->port)];

	for (; s; s = s->next_port)
		if (s->port == want->port && s->port_space == want->port_space && overlap(s, want) && !may_share(s, want))
			return true;
	return false;
}

static int choose_port(const struct vb_services *t, struct vb_binding *want, const struct vb_port_range *range)
{
	struct vb_binding alone = *want;
	uint32_t n = range->high - range->low + 1u;

	alone.reuse = false; /* who asks for any port gets one of its own */
	for (uint32_t i = 0; i < n; i++) {
		alone.port = (uint16_t)(range->low + (range->start + i) % n);
		if (!alone.port || in_the_way(t, &alone))
			continue;
		want->port = alone.port;
		return 0;
	}
	return ENOSPC;
}

int vb_service_bind(struct vb_services *t, const struct vb_binding *want, const struct vb_port_range *range,
                    struct vb_binding **out)
{
	struct vb_binding *s;
	int err = 0;

	if (t->n >= VB_MAX_BINDINGS || t->each[want->lane] >= VB_MAX_BINDINGS_EACH)
		return ENOSPC;
	s = malloc(sizeof(*s));
	if (!s)
		return ENOMEM;
	*s = *want;
	s->listening = false;
	if (!s->port)
		err = choose_port(t, s, range);
	else if (in_the_way(t, s))
		err = EADDRINUSE;
	if (err) {
		free(s);
		return err;
	}
	insert(t, s);
	*out = s;
	return 0;
}

int vb_service_listen(struct vb_services *t, struct vb_binding *s)
{
	const struct vb_binding *o = t->by_port[port_bucket(s->port_space, s->port)];

	for (; o; o = o->next_port)
		if (o != s && o->listening && o->port == s->port && o->port_space == s->port_space && overlap(o, s))
			return EADDRINUSE;
	s->listening = true;
	return 0;
}

static bool is_for(const struct vb_binding *s, const uint8_t local[16], uint32_t ifindex)
{
	if (!s->listening || (s->ifindex && ifindex && s->ifindex != ifindex))
		return false;
	return is_any(s->local) ? covers(s, local) : !memcmp(s->local, local, sizeof(s->local));
}

const struct vb_binding *vb_service_find(const struct vb_services *t, uint16_t port_space, uint16_t port,
                                         const uint8_t local[16], uint32_t ifindex,
                                         bool (*may)(void *arg, uint32_t lane), void *arg)
{
	const struct vb_binding *s = t->by_port[port_bucket(port_space, port)];

	while (s && (s->port != port || s->port_space != port_space || !is_for(s, local, ifindex) || !may(arg, s->lane)))
		s = s->next_port;
	return s;
}

bool vb_service_bound(const struct vb_services *t, uint16_t port_space, uint16_t port)
{
	const struct vb_binding *s = t->by_port[port_bucket(port_space, port)];

	while (s && (s->port != port || s->port_space != port_space || s->listening))
		s = s->next_port;
	return s;
}
