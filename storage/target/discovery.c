// discovery.c - the discovery log: the addresses of the subsystems
// follows: NVMe over Fabrics 1.1, 5.3 (discovery log page)
// SPDX-License-Identifier: MIT
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "target/core.h"

#define HEAD 1024u
#define ENTRY 1024u
enum {
	E_TRTYPE = 0,
	E_ADRFAM = 1,
	E_SUBTYPE = 2,
	E_TREQ = 3,
	E_PORTID = 4,
	E_CNTLID = 6,
	E_ASQSZ = 8,
	E_TRSVCID = 32,
	E_SUBNQN = 256,
	E_TRADDR = 512,
	E_TSAS = 768
};
#define TREQ_NO_SQ_FLOW 4u

static void put_padded(uint8_t *at, const char *text, size_t size)
{
	size_t len = strnlen(text, size);

	memset(at, ' ', size);
	memcpy(at, text, len);
}

static void put_entry(uint8_t *e, const struct nt_port *p, enum nv_subtype subtype, const char *nqn,
                      const char *address)
{
	e[E_TRTYPE] = p->trtype;
	/* for a listener on all addresses of both families, the family that the host used */
	e[E_ADRFAM] = !p->any ? p->adrfam : strchr(address, ':') ? NV_ADRFAM_IPV6 : NV_ADRFAM_IPV4;
	e[E_SUBTYPE] = (uint8_t)subtype;
	e[E_TREQ] = p->treq | TREQ_NO_SQ_FLOW;
	nv_put16(e + E_PORTID, p->id);
	nv_put16(e + E_CNTLID, NV_CNTLID_DYNAMIC);
	nv_put16(e + E_ASQSZ, NT_ADMIN_ENTRIES);
	put_padded(e + E_TRSVCID, p->service, 32);
	strncpy((char *)e + E_SUBNQN, nqn, 255);
	put_padded(e + E_TRADDR, address, 256);
	memcpy(e + E_TSAS, p->tsas, 256);
}

/* ---- the ports of other gateways ---- */

#define OTHERS 256u

static bool same_port(const struct nb_port *a, const struct nb_port *b)
{
	return a->trtype == b->trtype && a->service == b->service && !strcmp(a->address, b->address);
}

static uint32_t add_port(struct nb_port *list, uint32_t n, uint32_t room, const struct nb_port *p)
{
	for (uint32_t i = 0; i < n; i++)
		if (same_port(&list[i], p))
			return n;
	if (n < room)
		list[n++] = *p;
	return n;
}

/* Gateways may serve several media of a subsystem. */
static uint32_t ports_of_others(const struct nt_subsystem *s, struct nb_port list[OTHERS])
{
	uint8_t id[16];
	uint32_t n = 0;

	nv_uuid_from(s->nqn, 0, id);
	for (uint32_t i = 1; i <= NT_NAMESPACES_MAX; i++) {
		const struct nb_backend *b = s->ns[i] ? s->ns[i]->backend : NULL;

		for (uint32_t k = 0; b && k < b->other_count; k++)
			if (!memcmp(b->others[k].subsystem, id, 16))
				n = add_port(list, n, OTHERS, &b->others[k]);
	}
	return n;
}

static void put_other(uint8_t *e, const struct nb_port *other, const char *nqn)
{
	struct nt_port p = {.trtype = other->trtype,
	                    .adrfam = strchr(other->address, ':') ? NV_ADRFAM_IPV6 : NV_ADRFAM_IPV4,
	                    .id = other->id,
	                    .treq = other->treq};

	memcpy(p.tsas, other->tsas, sizeof(other->tsas));
	snprintf(p.service, sizeof(p.service), "%u", other->service);
	put_entry(e, &p, NV_SUBTYPE_NVM, nqn, other->address);
}

/* Without a configured address, and without one that others reach: the machine has only IPv6, or no interface yet. */
static bool is_only_here(const struct nt_target *t, const struct nt_port *p)
{
	return p->any && !t->announce_only && (!strcmp(t->announce, "127.0.0.1") || !strcmp(t->announce, "::1"));
}

/* Those of the subsystem. A listener on all addresses has a port for each family; both get the same announced address,
 * so one is listed. */
static uint32_t own_ports(const struct nt_subsystem *s, struct nb_port list[NB_PORTS_OF_ONE])
{
	const struct nt_target *t = s->target;
	uint32_t n = 0;

	for (const struct nt_port *p = t->ports; p; p = p->next) {
		const char *address = t->announce_only || p->any ? t->announce : p->address;
		struct nb_port own = {.trtype = p->trtype,
		                      .treq = p->treq,
		                      .id = p->id,
		                      .service = (uint16_t)strtoul(p->service, NULL, 10)};

		if (is_only_here(t, p) || !nb_address_valid(address) || p->id > UINT8_MAX)
			continue;
		strcpy(own.address, address);
		memcpy(own.tsas, p->tsas, sizeof(own.tsas));
		nv_uuid_from(s->nqn, 0, own.subsystem);
		n = add_port(list, n, NB_PORTS_OF_ONE, &own);
	}
	return n;
}

void nt_announce(struct nt_target *t)
{
	for (const struct nt_subsystem *s = t->subsystems; s; s = s->next) {
		struct nb_port list[NB_PORTS_OF_ONE] = {0};
		uint32_t n = own_ports(s, list);

		for (uint32_t i = 1; i <= NT_NAMESPACES_MAX; i++)
			if (s->ns[i] && s->ns[i]->backend->parts)
				nb_announce(s->ns[i]->backend, list, n);
	}
}

/* ---- the log ---- */

/* The address reported to a host: its destination address, if the port listens on all addresses of that family. */
static const char *address_for(const struct nt_queue *q, const struct nt_port *p)
{
	if (!p->any)
		return p->address;
	return q->port && q->port->adrfam == p->adrfam && q->address[0] ? q->address : NULL;
}

static uint32_t fill_log(const struct nt_request *r, uint8_t *d, uint32_t room)
{
	const struct nt_queue *q = r->queue;
	const struct nt_target *t = q->target;
	uint32_t n = 0;

	for (const struct nt_subsystem *s = t->subsystems; s; s = s->next)
		for (const struct nt_port *p = t->ports; p; p = p->next) {
			const char *address = address_for(q, p);

			if (!address || !nt_allowed(s, q->ctrl->hostnqn) || (s->discovery && p != q->port))
				continue;
			if (n < room)
				put_entry(d + HEAD + (size_t)ENTRY * n, p,
				          s->discovery ? NV_SUBTYPE_CURRENT : NV_SUBTYPE_NVM, s->nqn, address);
			n++;
		}
	for (const struct nt_subsystem *s = t->subsystems; s; s = s->next) {
		struct nb_port others[OTHERS];
		uint32_t count = nt_allowed(s, q->ctrl->hostnqn) ? ports_of_others(s, others) : 0;

		for (uint32_t i = 0; i < count; i++, n++)
			if (n < room)
				put_other(d + HEAD + (size_t)ENTRY * n, &others[i], s->nqn);
	}
	for (const struct nt_referral *f = t->referrals; f; f = f->next, n++)
		if (n < room)
			put_entry(d + HEAD + (size_t)ENTRY * n, &f->port, NV_SUBTYPE_REFERRAL, NV_DISCOVERY_NQN,
			          f->port.address);
	return n;
}

uint8_t *nt_discovery_log(struct nt_request *r, size_t *len)
{
	uint32_t n = fill_log(r, NULL, 0);
	uint8_t *d = calloc(1, HEAD + (size_t)ENTRY * n);

	*len = HEAD + (size_t)ENTRY * n;
	if (!d)
		return NULL;
	fill_log(r, d, n);
	nv_put64(d, r->queue->target->generation);
	nv_put64(d + 8, n);
	return d;
}
