// agent.c - the agents of programs: registration, transactions and their timeouts, who gets what
// follows: IBA volume 1, 13.5.3; Linux drivers/infiniband/core/{mad,user_mad}.c for what a program sees
// SPDX-License-Identifier: MIT
#include "fabric/agent/agent.h"

#include <errno.h>
#include <stdlib.h>

#include "fabric/agent/internal.h"

enum { VENDOR_FIRST = 0x30, VENDOR_LAST = 0x4f, OUI_AT = 37, SHORTEST = VB_RMPP_END };

static bool has_oui(uint8_t mgmt_class)
{
	return mgmt_class >= VENDOR_FIRST && mgmt_class <= VENDOR_LAST;
}

static bool is_smi_class(uint8_t mgmt_class)
{
	return mgmt_class == VB_MAD_CLASS_SM_LID || mgmt_class == VB_MAD_CLASS_SM_DR;
}

struct vb_agents *vb_agents_new(struct vb_fabric_port *port, const struct vb_agents_ops *ops, uint32_t *next_tid)
{
	struct vb_agents *a = calloc(1, sizeof(*a));

	if (a) {
		*a = (struct vb_agents){.port = port, .ops = ops, .next_tid = next_tid};
		port->host = a;
	}
	return a;
}

void vb_agents_free(struct vb_agents *a)
{
	if (!a)
		return;
	while (a->files)
		vb_agent_close(a->files);
	a->port->host = NULL;
	free(a);
}

struct vb_agents *vb_agent_agents(const struct vb_agent_file *file)
{
	return file->agents;
}

struct vb_agent_file *vb_agent_open(struct vb_agents *a, void *own)
{
	struct vb_agent_file *f = calloc(1, sizeof(*f));

	if (f) {
		f->agents = a;
		f->own = own;
		f->next = a->files;
		a->files = f;
	}
	return f;
}

void vb_agent_forget(struct vb_agent_file *file, struct waiting *w)
{
	for (struct waiting **at = &file->waiting; *at; at = &(*at)->next)
		if (*at == w) {
			*at = w->next;
			file->waiting_count--;
			free(w);
			return;
		}
}

/* IsDeviceManagementSupported: while a program of the port answers for I/O units (16.3). */
static void show_device_management(struct vb_agents *a)
{
	struct vb_port_info *i = &a->port->info;
	uint32_t old = i->cap_mask;

	i->cap_mask &= ~VB_CAP_DEVICE_MGMT;
	for (const struct vb_agent_file *f = a->files; f; f = f->next)
		for (unsigned k = 0; k < VB_AGENTS_MOST; k++)
			if (f->agent[k].used && f->agent[k].r.mgmt_class == VB_MAD_CLASS_DEVICE_MGMT &&
			    f->agent[k].r.method_mask[0] >> VB_MAD_GET & 1)
				i->cap_mask |= VB_CAP_DEVICE_MGMT;
	if (i->cap_mask == old)
		return;
	a->port->node->fabric->changes++;
	vb_fabric_trap(a->port, VB_TRAP_LOCAL_CHANGE);
}

static void forget_agent(struct vb_agent_file *file, unsigned agent)
{
	for (struct waiting *w = file->waiting, *next; w; w = next) {
		next = w->next;
		if (w->agent == agent)
			vb_agent_forget(file, w);
	}
	vb_rmpp_forget(file, agent);
	file->agent[agent].used = false;
	show_device_management(file->agents);
}

void vb_agent_close(struct vb_agent_file *file)
{
	struct vb_agent_file **at = &file->agents->files;

	for (unsigned i = 0; i < VB_AGENTS_MOST; i++)
		forget_agent(file, i);
	while (*at != file)
		at = &(*at)->next;
	*at = file->next;
	free(file);
}

/* --- registration --- */

/* 13.5.3: two agents of a port do not share a method of a class. */
static bool collide(const struct vb_agent_registration *a, const struct vb_agent_registration *b)
{
	return a->qpn == b->qpn && a->mgmt_class == b->mgmt_class && a->class_version == b->class_version &&
	       (!has_oui(a->mgmt_class) || a->oui == b->oui) &&
	       ((a->method_mask[0] & b->method_mask[0]) | (a->method_mask[1] & b->method_mask[1]));
}

static bool is_taken(const struct vb_agents *a, const struct vb_agent_registration *r)
{
	for (const struct vb_agent_file *f = a->files; f; f = f->next)
		for (unsigned i = 0; i < VB_AGENTS_MOST; i++)
			if (f->agent[i].used && collide(&f->agent[i].r, r))
				return true;
	return false;
}

int vb_agent_register(struct vb_agent_file *file, const struct vb_agent_registration *r, unsigned *agent)
{
	if (r->qpn != (is_smi_class(r->mgmt_class) ? VB_SMI_QPN : VB_GSI_QPN))
		return EINVAL;
	if ((r->rmpp_version && !vb_rmpp_header_len(r->mgmt_class)) || is_taken(file->agents, r))
		return EINVAL;
	for (unsigned i = 0; i < VB_AGENTS_MOST; i++) {
		if (file->agent[i].used)
			continue;
		file->agent[i] = (struct agent){.used = true, .r = *r, .tid_high = ++*file->agents->next_tid};
		*agent = i;
		show_device_management(file->agents);
		return 0;
	}
	return ENOMEM;
}

int vb_agent_unregister(struct vb_agent_file *file, unsigned agent)
{
	if (agent >= VB_AGENTS_MOST || !file->agent[agent].used)
		return EINVAL;
	forget_agent(file, agent);
	return 0;
}

/* --- sending --- */

static void own_gid(const struct vb_fabric_port *p, unsigned index, uint8_t gid[16])
{
	struct vb_writer w = vb_writer(gid, 16);

	vb_put64(&w, p->info.gid_prefix);
	vb_put64(&w, index && p->guids && index < VB_FABRIC_GUIDS ? p->guids[index] : p->guid);
}

void vb_agent_transmit(struct vb_agents *a, const struct vb_agent_addr *addr, const uint8_t mad[VB_MAD_LEN])
{
	const struct vb_fabric_port *p = a->port;
	bool smi = is_smi_class(mad[1]);
	struct vb_fabric_packet k = {.slid = (uint16_t)(p->info.lid | (addr->path_bits & ((1 << p->info.lmc) - 1))),
	                             .dlid = addr->lid,
	                             .pkey = smi ? 0xffff : vb_fabric_pkey(p, addr->pkey_index),
	                             .sl = addr->sl & 15,
	                             .path_bits = addr->path_bits,
	                             .grh = addr->grh,
	                             .hop_limit = addr->hop_limit,
	                             .traffic_class = addr->traffic_class,
	                             .flow_label = addr->flow_label & 0xfffff,
	                             .src_qpn = smi ? VB_SMI_QPN : VB_GSI_QPN,
	                             .dst_qpn = addr->qpn,
	                             .qkey = addr->qkey};

	if (mad[1] == VB_MAD_CLASS_SM_DR) {
		/* the LIDs of a directed route that begins here are in the SMP (14.2.2.1) */
		uint16_t dr_slid = (uint16_t)(mad[32] << 8 | mad[33]);

		k.slid = dr_slid == VB_LID_DIRECTED && !(mad[4] & 0x80) ? VB_LID_DIRECTED : k.slid;
	}
	if (addr->grh) {
		own_gid(p, addr->gid_index, k.sgid);
		memcpy(k.dgid, addr->gid, 16);
	}
	memcpy(k.mad, mad, VB_MAD_LEN);
	vb_fabric_send(a->port, &k);
}

static bool is_under_way(const struct vb_agent_file *file, const uint8_t *mad)
{
	for (const struct waiting *w = file->waiting; w; w = w->next)
		if (vb_agent_tid(w->mad) == vb_agent_tid(mad) && w->mad[1] == mad[1] && w->mad[3] == mad[3])
			return true;
	return false;
}

static struct waiting *make_waiting(const uint8_t *mad, size_t len)
{
	struct waiting *w = calloc(1, sizeof(*w) + (len < VB_MAD_LEN ? VB_MAD_LEN : len));

	if (w) {
		w->len = len;
		memcpy(w->mad, mad, len);
	}
	return w;
}

/* The high half of a request's transaction is the agent's, so that the reply finds it. */
static void own_tid(uint8_t *mad, uint32_t high)
{
	struct vb_writer w = vb_writer(mad + 8, 4);

	vb_put32(&w, high);
}

static bool is_active_rmpp(const struct agent *agent, const uint8_t *mad)
{
	struct vb_rmpp h;

	vb_rmpp_decode(&h, mad);
	return vb_rmpp_header_len(mad[1]) && agent->r.rmpp_version && !agent->r.user_rmpp && (h.flags & VB_RMPP_ACTIVE);
}

static int start_send(struct vb_agent_file *file, unsigned agent, const struct vb_agent_addr *addr, const uint8_t *mad,
                      size_t len, uint32_t timeout_ms, uint32_t retries)
{
	struct agent *g = agent < VB_AGENTS_MOST && file->agent[agent].used ? &file->agent[agent] : NULL;

	if (!g || len < SHORTEST || len > VB_AGENT_LEN_MOST || file->waiting_count >= VB_AGENT_WAITING_MOST)
		return EINVAL;
	if (len > VB_MAD_LEN && !is_active_rmpp(g, mad))
		return EINVAL;
	struct waiting *w = make_waiting(mad, len);
	if (!w)
		return ENOMEM;
	if (!vb_agent_is_response(mad))
		own_tid(w->mad, g->tid_high);
	if (is_under_way(file, w->mad)) {
		free(w);
		return EINVAL;
	}
	w->addr = *addr;
	w->agent = agent;
	w->timeout = timeout_ms * VB_NS_PER_MS;
	w->retries = retries;
	w->wants_reply = timeout_ms && !vb_agent_is_response(mad);
	w->segmented = is_active_rmpp(g, mad);
	if (w->segmented) {
		vb_rmpp_begin(file->agents, w);
	} else if (w->wants_reply) {
		w->due = vb_agents_after(file->agents, w->timeout);
	} else {
		vb_agent_transmit(file->agents, addr, w->mad);
		free(w);
		return 0;
	}
	w->next = file->waiting;
	file->waiting = w;
	file->waiting_count++;
	if (w->segmented)
		vb_rmpp_send_window(file->agents, w);
	else
		vb_agent_transmit(file->agents, addr, w->mad);
	return 0;
}

int vb_agent_send(struct vb_agent_file *file, unsigned agent, const struct vb_agent_addr *addr, const uint8_t *mad,
                  size_t len, uint32_t timeout_ms, uint32_t retries)
{
	struct vb_fabric *f = file->agents->port->node->fabric;
	bool held = vb_fabric_hold(f);
	int rc = start_send(file, agent, addr, mad, len, timeout_ms, retries);

	vb_fabric_let_go(f, held);
	return rc;
}

/* --- receiving --- */

struct waiting *vb_agent_asked(struct vb_agent_file *file, unsigned agent, const uint8_t *mad)
{
	for (struct waiting *w = file->waiting; w; w = w->next)
		if (w->agent == agent && w->wants_reply && vb_agent_tid(w->mad) == vb_agent_tid(mad) &&
		    w->mad[1] == mad[1])
			return w;
	return NULL;
}

void vb_agent_give(struct vb_agent_file *file, unsigned agent, const struct vb_agent_addr *addr, const uint8_t *mad,
                   size_t len)
{
	if (vb_agent_is_response(mad) && mad[3] != VB_MAD_REPRESS) {
		struct waiting *w = vb_agent_asked(file, agent, mad);

		if (!w)
			return; /* nobody asked, or it is too late */
		vb_agent_forget(file, w);
	}
	file->agents->ops->receive(file->own, file, agent, 0, addr, mad, len);
}

static struct vb_agent_addr address_of(const struct vb_fabric_port *p, const struct vb_fabric_packet *k)
{
	struct vb_agent_addr a = {.qpn = k->src_qpn,
	                          .qkey = k->src_qpn ? VB_GSI_QKEY : 0,
	                          .lid = k->slid,
	                          .sl = k->sl,
	                          .path_bits = (uint8_t)(k->dlid & ((1 << p->info.lmc) - 1)),
	                          .grh = k->grh,
	                          .hop_limit = k->hop_limit,
	                          .traffic_class = k->traffic_class,
	                          .flow_label = k->flow_label};

	memcpy(a.gid, k->sgid, 16);
	for (unsigned i = 0; i < vb_fabric_pkeys(p); i++)
		if ((vb_fabric_pkey(p, i) & 0x7fff) == (k->pkey & 0x7fff)) {
			a.pkey_index = (uint16_t)i;
			break;
		}
	return a;
}

static bool wants(const struct agent *g, const struct vb_fabric_packet *k)
{
	const uint8_t *mad = k->mad;
	unsigned method = mad[3] & 0x7f;
	uint32_t oui = (uint32_t)(mad[OUI_AT] << 16 | mad[OUI_AT + 1] << 8 | mad[OUI_AT + 2]);

	return g->used && g->r.qpn == k->dst_qpn && g->r.mgmt_class == mad[1] && g->r.class_version == mad[2] &&
	       (g->r.method_mask[method / 64] >> (method % 64) & 1) && (!has_oui(mad[1]) || g->r.oui == oui);
}

/* The agent of a reply is that of the transaction, of whatever class: ibsrpdm sends those of two classes by one. Of everything
 * else it is the one that registered for it. */
static struct vb_agent_file *find_agent(struct vb_agents *a, const struct vb_fabric_packet *k, bool by_tid,
                                        unsigned *agent)
{
	uint32_t high = (uint32_t)(vb_agent_tid(k->mad) >> 32);

	for (struct vb_agent_file *f = a->files; f; f = f->next)
		for (unsigned i = 0; i < VB_AGENTS_MOST; i++) {
			struct agent *g = &f->agent[i];

			if (by_tid ? g->used && g->tid_high == high && g->r.qpn == k->dst_qpn : wants(g, k)) {
				*agent = i;
				return f;
			}
		}
	return NULL;
}

bool vb_agents_deliver(struct vb_agents *a, const struct vb_fabric_packet *k)
{
	bool response = (k->mad[3] & VB_MAD_RESPONSE) != 0;
	struct vb_agent_addr addr = address_of(a->port, k);
	unsigned agent;
	struct vb_agent_file *f = find_agent(a, k, response, &agent);
	struct vb_rmpp h;

	vb_rmpp_decode(&h, k->mad);
	bool rmpp = vb_rmpp_header_len(k->mad[1]) && (h.flags & VB_RMPP_ACTIVE);
	/* what a receiver of segments says has the direction of the request, and may be for either side */
	if (!f && rmpp && h.type != VB_RMPP_DATA)
		f = find_agent(a, k, !response, &agent);
	if (!f)
		return false;
	if (rmpp && f->agent[agent].r.rmpp_version && !f->agent[agent].r.user_rmpp)
		vb_rmpp_receive(f, agent, &addr, k->mad);
	else
		vb_agent_give(f, agent, &addr, k->mad, VB_MAD_LEN);
	return true;
}

/* --- time --- */

/* Sends it again; the request is over, and gone, if that was done often enough. */
static void waited_too_long(struct vb_agent_file *file, struct waiting *w)
{
	struct vb_agents *a = file->agents;

	if (w->segmented && !w->acked_all) {
		if (vb_rmpp_again(a, w))
			return;
	} else if (w->retries) {
		w->retries--;
		w->due = vb_agents_after(a, w->timeout);
		vb_agent_transmit(a, &w->addr, w->mad);
		return;
	}
	struct vb_agent_addr addr = w->addr;
	uint8_t header[VB_MAD_HEADER_LEN];
	unsigned agent = w->agent;

	memcpy(header, w->mad, sizeof(header));
	vb_agent_forget(file, w);
	a->ops->receive(file->own, file, agent, ETIMEDOUT, &addr, header, sizeof(header));
}

void vb_agent_time(struct vb_agent_file *file)
{
	struct vb_fabric *f = vb_agents_fabric(file->agents);
	bool held = vb_fabric_hold(f);

	for (struct waiting *w = file->waiting, *next; w; w = next) {
		next = w->next;
		if (w->due <= f->now)
			waited_too_long(file, w);
	}
	vb_rmpp_timer(file);
	vb_fabric_let_go(f, held);
}

uint64_t vb_agent_deadline(const struct vb_agent_file *file)
{
	uint64_t due = UINT64_MAX;

	for (const struct waiting *w = file->waiting; w; w = w->next)
		due = w->due < due ? w->due : due;
	for (const struct assembly *s = file->assemblies; s; s = s->next)
		due = s->due < due ? s->due : due;
	return due;
}
