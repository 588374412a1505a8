// reserve.c - reservations of a namespace: the commands, what they forbid, and when a change is complete
// follows: NVM Express Base 1.4, 6.10 to 6.13, 8.8
// SPDX-License-Identifier: MIT
#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "target/core.h"

#define IEKEY (1u << 3)
#define EDS 1u /* extended data structure: host identifiers of 16 bytes */
#define HEAD 64u
#define ENTRY 64u

/* ---- what a reservation forbids ---- */

static bool writes_medium(const struct nt_request *r)
{
	return r->fused ||
	       (r->sqe.opcode != NV_IO_READ && r->sqe.opcode != NV_IO_COMPARE && r->sqe.opcode != NV_IO_VERIFY);
}

uint16_t nt_reserve_check(const struct nt_request *r)
{
	const struct nr_state *s = &r->ns->reserve.state;

	if (!s->type || !nr_forbids(s, &r->queue->ctrl->who, writes_medium(r)))
		return 0;
	return NV_RESERVATION_CONFLICT | NV_DNR;
}

/*
 * A change is in force at once, and complete when no request is at the medium that was admitted before it. So requests are
 * counted in two groups. The older one gets no more; when it is empty, the groups change places.
 */
void nt_reserve_admit(struct nt_request *r)
{
	struct nt_reserve *v = &r->ns->reserve;

	r->admitted = v->group + 1;
	v->running[v->group]++;
}

/* Those whose changes are complete, or all. */
static void end_waiting(struct nt_namespace *ns, bool all, uint16_t status)
{
	struct nt_request **at = &ns->reserve.waiting;

	while (*at) {
		struct nt_request *r = *at;

		if (!all && r->at > ns->reserve.complete) {
			at = &r->next;
			continue;
		}
		*at = r->next;
		r->next = NULL;
		nt_complete(r, status);
		at = &ns->reserve.waiting; /* others may have come or gone */
	}
}

static void settle(struct nt_namespace *ns)
{
	struct nt_reserve *v = &ns->reserve;

	if (v->running[!v->group])
		return;
	v->complete = v->version;
	if (v->version != v->state.version) {
		v->group = !v->group;
		v->version = v->state.version;
		if (!v->running[!v->group])
			v->complete = v->version;
	}
	ns->users++; /* the last request of a removed one may end here */
	if (ns->backend->reservations)
		nb_reserved(ns->backend, v->complete);
	end_waiting(ns, false, 0);
	nt_ns_put(ns);
}

void nt_reserve_leave(struct nt_request *r)
{
	struct nt_reserve *v = &r->ns->reserve;

	if (!r->admitted)
		return;
	bool older = r->admitted != v->group + 1;

	v->running[r->admitted - 1]--;
	r->admitted = 0;
	if (older && !v->running[!v->group])
		settle(r->ns);
}

void nt_reserve_changed(struct nt_namespace *ns, bool joins)
{
	struct nt_reserve *v = &ns->reserve;
	const struct nr_state *shared = ns->backend->reservations;

	ns->users++; /* the last request of a removed one may end here */
	if (shared) {
		if (!ns->removed) /* a removed one may have requests left */
			nt_notices(ns, shared);
		bool others = joins || shared->version < v->version;

		v->state = *shared;
		if (others) { /* the versions were those of the target alone, or of a shared object that was lost */
			v->version = v->complete = 0;
			end_waiting(ns, true, NV_NS_NOT_READY);
		}
	}
	settle(ns);
	nt_ns_put(ns);
}

void nt_reserve_open(struct nt_namespace *ns)
{
	if (ns->backend->reservations)
		ns->reserve.state = *ns->backend->reservations;
	ns->reserve.complete = ns->reserve.version = ns->reserve.state.version;
}

/* ---- the commands that change it ---- */

static uint16_t check_reserved_ns(struct nt_request *r)
{
	uint16_t status = nt_check_ns(r);

	if (status)
		return status;
	return r->ns->backend->readonly ? NV_INVALID_OPCODE | NV_DNR : 0;
}

uint16_t nt_reserve_register_check(struct nt_request *r)
{
	uint16_t status = check_reserved_ns(r);

	r->length = 16;
	if (status)
		return status;
	return (r->sqe.cdw[0] & 7) > 2 || r->sqe.cdw[0] >> 30 == 1 ? NT_INVALID(r, NV_SQE_AT_CDW10) : 0;
}

static bool has_type(const struct nt_request *r)
{
	uint8_t type = (uint8_t)(r->sqe.cdw[0] >> 8);

	return type >= NR_WRITES && type <= NR_ACCESS_ALL_REGISTRANTS;
}

/* IEKEY is reserved for these two commands, as RESCAP says. */
uint16_t nt_reserve_acquire_check(struct nt_request *r)
{
	uint16_t status = check_reserved_ns(r);
	uint32_t cdw10 = r->sqe.cdw[0];

	r->length = 16;
	if (status)
		return status;
	return (cdw10 & 7) > 2 || (cdw10 & IEKEY) || !has_type(r) ? NT_INVALID(r, NV_SQE_AT_CDW10) : 0;
}

uint16_t nt_reserve_release_check(struct nt_request *r)
{
	uint16_t status = check_reserved_ns(r);
	uint32_t cdw10 = r->sqe.cdw[0], action = cdw10 & 7;

	r->length = 8;
	if (status)
		return status;
	return action > 1 || (cdw10 & IEKEY) || (!action && !has_type(r)) ? NT_INVALID(r, NV_SQE_AT_CDW10) : 0;
}

/* by enum nr_result */
static const uint16_t results[] = {[NR_OK] = 0,
                                   [NR_CONFLICT] = NV_RESERVATION_CONFLICT | NV_DNR,
                                   [NR_INVALID] = NV_INVALID_FIELD | NV_DNR,
                                   [NR_FULL] = NV_INTERNAL | NV_DNR};

static void change_done(struct nb_request *io, int error)
{
	struct nt_request *r = (struct nt_request *)(void *)((uint8_t *)io - offsetof(struct nt_request, io));
	struct nr_change *c = io->data;
	uint16_t status = error ? nt_io_status(r, error) : results[c->result];

	free(c);
	nt_complete(r, status);
}

static void change_shared(struct nt_request *r, const struct nr_change *change)
{
	struct nr_change *c = malloc(sizeof(*c));

	if (!c) {
		nt_complete(r, NV_INTERNAL);
		return;
	}
	*c = *change;
	r->io = (struct nb_request){.op = NB_RESERVE, .data = c, .done = change_done};
	nb_submit(r->ns->backend, &r->io);
}

/* It is in force at once; the answer comes when no request is left that the old reservation admitted. */
static void change_own(struct nt_request *r, struct nr_change *c)
{
	struct nt_namespace *ns = r->ns;
	struct nr_state next = ns->reserve.state;

	/* deviates: CPTPL is ignored, because Linux always asks for persistence, also if RESCAP does not offer it */
	c->persist = NR_AS_IT_IS;
	enum nr_result result = nr_apply(&next, c);

	if (result != NR_OK) {
		nt_complete(r, results[result]);
		return;
	}
	nt_notices(ns, &next);
	ns->reserve.state = next;
	r->at = next.version;
	r->next = ns->reserve.waiting;
	ns->reserve.waiting = r;
	settle(ns);
}

static void change_reservation(struct nt_request *r, struct nr_change *c)
{
	c->by = r->queue->ctrl->who;
	nt_lend(r);
	if (r->ns->backend->reservations)
		change_shared(r, c);
	else
		change_own(r, c);
}

void nt_reserve_register(struct nt_request *r)
{
	static const enum nr_op ops[] = {NR_REGISTER, NR_UNREGISTER, NR_REPLACE};
	uint32_t cdw10 = r->sqe.cdw[0];

	change_reservation(r, &(struct nr_change){.op = ops[cdw10 & 7],
	                                          .key = nv_get64(r->data),
	                                          .other = nv_get64(r->data + 8),
	                                          .ignore_key = cdw10 & IEKEY,
	                                          .persist = (uint8_t)(cdw10 >> 30)});
}

/* Preempt is Preempt and Abort, too: no request of the preempted is left when it is complete. */
void nt_reserve_acquire(struct nt_request *r)
{
	uint32_t cdw10 = r->sqe.cdw[0];

	change_reservation(r, &(struct nr_change){.op = cdw10 & 7 ? NR_PREEMPT : NR_ACQUIRE,
	                                          .key = nv_get64(r->data),
	                                          .other = nv_get64(r->data + 8),
	                                          .type = (uint8_t)(cdw10 >> 8)});
}

void nt_reserve_release(struct nt_request *r)
{
	uint32_t cdw10 = r->sqe.cdw[0];

	change_reservation(r, &(struct nr_change){.op = cdw10 & 7 ? NR_CLEAR : NR_RELEASE,
	                                          .key = nv_get64(r->data),
	                                          .type = (uint8_t)(cdw10 >> 8)});
}

void nt_reserve_persist(struct nt_request *r, bool persists)
{
	change_reservation(r, &(struct nr_change){.op = NR_PERSIST, .persist = persists ? NR_YES : NR_NO});
}

/* ---- the report ---- */

uint16_t nt_reserve_report_check(struct nt_request *r)
{
	uint16_t status = check_reserved_ns(r);
	uint64_t length = ((uint64_t)r->sqe.cdw[0] + 1) * 4;

	if (status)
		return status;
	if (!(r->sqe.cdw[1] & EDS))
		return NV_HOST_ID_FORMAT | NV_DNR;
	if (length > NT_TRANSFER_MAX)
		return NT_INVALID(r, NV_SQE_AT_CDW10);
	r->length = (uint32_t)length;
	return 0;
}

/* Controllers are not named: a host has some at several targets. Base 1.4, figure 234: FFFFh, as in the dynamic model */
void nt_reserve_report(struct nt_request *r)
{
	const struct nr_state *s = &r->ns->reserve.state;
	uint8_t d[HEAD + ENTRY * NR_REGISTRANTS] = {0};
	uint32_t size = HEAD + ENTRY * s->count;

	nv_put32(d, s->generation);
	d[4] = s->type;
	nv_put16(d + 5, (uint16_t)s->count);
	d[9] = s->persists;
	for (uint32_t i = 0; i < s->count; i++) {
		uint8_t *e = d + HEAD + (size_t)ENTRY * i;

		nv_put16(e, NV_CNTLID_DYNAMIC);
		e[2] = nr_holds(s, &s->registrants[i]);
		nv_put64(e + 8, s->registrants[i].key);
		memcpy(e + 16, s->registrants[i].host.id, 16);
	}
	memcpy(r->data, d, size < r->length ? size : r->length);
	nt_complete(r, 0);
}
