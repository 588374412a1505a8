// resolve.c - resolves addresses with the routing table and the adapter of the source address
// follows: rdma_resolve_addr(3)
// SPDX-License-Identifier: MIT
#include "rdmacm/fabric.h"
#include "rdmacm/hardware.h"
#include "util/units.h"

/* The default source: the zero address of the destination's family, with its scope for link-local addresses. */
static void source_for(union rcm_addr *src, const union rcm_addr *dst)
{
	*src = (union rcm_addr){.sa.sa_family = dst->sa.sa_family};
	if (rcm_addr_link_local(dst))
		src->sin6.sin6_scope_id = dst->sin6.sin6_scope_id;
}

/* Turns the unspecified address into the loopback address. */
static void to_loopback(union rcm_addr *dst)
{
	if (dst->sa.sa_family == AF_INET6)
		dst->sin6.sin6_addr = in6addr_loopback;
	else
		dst->sin.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
}

/* No later than the earliest timeout of a query; 0: none. rcm.lock guards it. */
static uint64_t due;

/* rcm.lock held. */
static int conclude_query(struct rcm_id *id, const struct rcm_found *found)
{
	int err = rcm_post(id, RDMA_CM_EVENT_ADDR_RESOLVED, 0);

	if (err)
		return err;
	id->src = found->src;
	id->dst = found->dst;
	id->source = found->source;
	if (found->source.dev->fabric) {
		id->path.dgid = found->dgid;
		id->path.pkey = found->pkey;
	}
	id->state = RCM_ADDR_RESOLVED;
	return 0;
}

/* rcm.lock held. */
static bool asks(const struct rcm_id *id, const struct rcm_found *found)
{
	return id->query == found->query && id->state == RCM_ADDR_QUERY;
}

/* rcm.lock held. NULL: the query was cancelled. */
static struct rcm_id *find_asker(const struct rcm_found *found)
{
	struct rcm_id *id = rcm.ids;

	while (id && id->query != found->query)
		id = id->next;
	return id && asks(id, found) ? id : NULL;
}

bool rcm_wanted(const struct rcm_found *found)
{
	rcm_lock();
	bool wanted = find_asker(found);

	rcm_unlock();
	return wanted;
}

/* id: the asker, whom this thread keeps from being destroyed; or NULL. */
static void give_answer(struct rcm_id *id, const struct rcm_found *found)
{
	rcm_lock();
	if (!id)
		id = find_asker(found);
	if (id && asks(id, found)) {
		id->state = RCM_BOUND;
		conclude_query(id, found);
	}
	rcm_unlock();
}

void rcm_found(const struct rcm_found *found)
{
	give_answer(NULL, found);
}

uint64_t rcm_resolve_due(void)
{
	return due;
}

void rcm_resolve_forget(void)
{
	due = 0;
}

void rcm_resolve_timeout(uint64_t now)
{
	if (!due || now < due)
		return;
	due = 0;
	for (struct rcm_id *id = rcm.ids; id; id = id->next) {
		if (id->state != RCM_ADDR_QUERY || !id->resolve_by)
			continue;
		if (id->resolve_by <= now) {
			id->state = RCM_BOUND;
			rcm_post(id, RDMA_CM_EVENT_ADDR_ERROR, -ETIMEDOUT);
		} else if (!due || id->resolve_by < due) {
			due = id->resolve_by;
		}
	}
}

/* Sets the deadline of the query. As in the kernel, a negative ms means no deadline. */
static void wait_for_answer(struct rcm_id *id, const struct rcm_found *found, int ms)
{
	rcm_lock();
	if (ms >= 0 && find_asker(found) == id) { /* or it has been answered, and perhaps destroyed */
		id->resolve_by = vb_gsi_client_now() + VB_MS((uint64_t)ms);
		if (!due || id->resolve_by < due)
			due = id->resolve_by;
		rcm_rearm();
	}
	rcm_unlock();
}

/* A separate thread asks the next hop if necessary. An event reports the result. */
static int look_up_source(struct rcm_id *id, struct rcm_found *found, int ms)
{
	static uint64_t queries;
	int err = EINVAL;

	rcm_lock();
	if (id->state == RCM_BOUND) {
		id->query = found->query = ++queries;
		id->state = RCM_ADDR_QUERY;
		id->resolve_by = 0;
		err = 0;
	}
	rcm_unlock();
	if (err)
		return err;
	if (rcm_ask_neighbour(found))
		wait_for_answer(id, found, ms);
	else
		give_answer(id, found);
	return 0;
}

/* As with the kernel's work queue, an event reports failures from here on, for example that no adapter has the
 * source. */
static int resolve_source(struct rcm_id *id, const union rcm_addr *dst, const union rcm_addr *src, int ms)
{
	struct rcm_found found = {.src = *src, .dst = *dst, .source = id->source};
	uint8_t gid[16];

	rcm_addr_gid(src, gid);
	id->id.route.addr.dst_storage =
	        dst->ss; /* before the event is queued: the thread that fetches it writes here */
	if (!found.source.dev && rcm_find_source(id->kind, gid, rcm_addr_scope(src), &found.source))
		return rcm_post_unlocked(id, RDMA_CM_EVENT_ADDR_ERROR, -ENODEV);
	rcm_addr_set_port(&found.src, rcm_addr_port(&id->src));
	return look_up_source(id, &found, ms);
}

/* If the fabric leads there. As with the kernel's work queue, an event reports that the port is not active. */
static int resolve_on_fabric(struct rcm_id *id, const union rcm_addr *dst, int ms, bool *done)
{
	struct rcm_found found;
	int err = rcm_fabric_destination(id, dst, &found);

	*done = err != EHOSTUNREACH || dst->sa.sa_family == AF_IB;
	if (err == EHOSTUNREACH)
		return dst->sa.sa_family == AF_IB ? EADDRNOTAVAIL : 0;
	id->id.route.addr.dst_storage = dst->ss;
	return err ? rcm_post_unlocked(id, RDMA_CM_EVENT_ADDR_ERROR, -err) : look_up_source(id, &found, ms);
}

static int resolve_addr(struct rcm_id *id, const struct sockaddr *from, const struct sockaddr *to, int ms)
{
	union rcm_addr src, dst, local;
	int err;

	rcm_addr_copy(&dst, to);
	if (from && from->sa_family)
		rcm_addr_copy(&src, from);
	else
		source_for(&src, &dst);
	if (id->state == RCM_IDLE) {
		err = rcm_bind(id, &src, false);
		if (err)
			return err;
	}
	if (id->state != RCM_BOUND || id->src.sa.sa_family != dst.sa.sa_family)
		return EINVAL;
	if (rcm_fabric_present()) {
		bool done;

		err = resolve_on_fabric(id, &dst, ms, &done);
		if (done)
			return err;
	}
	if (rcm_addr_any(&dst))
		to_loopback(&dst);
	err = rcm_route_source(&dst, &id->src, &local);
	/* A multicast group needs no route if the program has given the source. */
	if (err && rcm_addr_multicast(&dst) && !rcm_addr_any(&id->src)) {
		local = id->src;
		err = 0;
	}
	return err ? err : resolve_source(id, &dst, &local, ms);
}

/* Now the route, and so the device, is known: Verbena or the system's librdmacm serves the id from now on. */
static int choose_server(struct rcm_id *id, const struct sockaddr *src, const struct sockaddr *dst)
{
	if (rcm_hw_server_to(id, src, dst) != RCM_BY_HARDWARE) {
		rcm_hw_end(id);
		return 0;
	}
	if (!id->real)
		return rcm_hw_start(id);
	id->by_both = false;
	vb_gsi_client_unbind(rcm.gsi, id->binding);
	id->bound = false;
	return 0;
}

RCM_EXPORT int rdma_resolve_addr(struct rdma_cm_id *cm_id, struct sockaddr *src, struct sockaddr *dst, int timeout_ms)
{
	struct rcm_id *id = rcm_id(cm_id);

	RCM_HARDWARE_WAITS(resolve_addr, cm_id, src, dst, timeout_ms);
	if (!rcm_ours(id) || !rcm_addr_len(dst) || (src && src->sa_family && !rcm_addr_len(src)))
		return -1;
	int err = choose_server(id, src, dst);

	if (err)
		return rcm_fail(err);
	RCM_HARDWARE_WAITS(resolve_addr, cm_id, src, dst, timeout_ms);
	err = resolve_addr(id, src, dst, timeout_ms);

	if (err)
		return rcm_fail(err);
	return rcm_result(rcm_complete(id));
}
