// trap.c - the notices that nodes send to the subnet manager
// follows: IBA volume 1, 14.2.5.1 (Notices and Traps), 13.4.9 (Traps), 14.3.12 (SMA: repeats until repressed)
// SPDX-License-Identifier: MIT
#include <stdlib.h>

#include "fabric/internal.h"

#define REPEAT_NS 1000000000ull
#define PENDING_MOST 100000 /* of the whole fabric */

static void details_lid(struct vb_notice *n, unsigned at, uint16_t lid)
{
	n->details[at] = (uint8_t)(lid >> 8);
	n->details[at + 1] = (uint8_t)lid;
}

/* 14.2.5.1, the data details of each trap: LIDADDR first, but behind two reserved bytes in some. */
static void fill_notice(struct vb_notice *n, const struct vb_fabric_port *p, unsigned trap)
{
	const struct vb_fabric_port *end = vb_fabric_end_port((struct vb_fabric_port *)p);

	*n = (struct vb_notice){.generic = true,
	                        .type = VB_NOTICE_URGENT,
	                        .producer = p->node->type,
	                        .trap = (uint16_t)trap,
	                        .issuer_lid = end->info.lid};
	switch (trap) {
	case VB_TRAP_LINK_STATE:
		details_lid(n, 0, end->info.lid);
		break;
	case VB_TRAP_LOCAL_CHANGE:
		n->type = VB_NOTICE_INFORMATION;
		details_lid(n, 2, end->info.lid);
		n->details[5] = 1; /* OtherLocalChanges: NodeDescription or others */
		struct vb_writer w = vb_writer(n->details + 6, 4);
		vb_put32(&w, end->info.cap_mask);
		n->details[11] = 1; /* NodeDescriptionChange */
		break;
	case VB_TRAP_LINK_INTEGRITY:
	case VB_TRAP_BUFFER_OVERRUN:
	case VB_TRAP_FLOW_CONTROL:
		details_lid(n, 2, end->info.lid);
		n->details[4] = p->num;
		break;
	default: /* 256 to 259: security; the caller knows the details */
		n->type = VB_NOTICE_SECURITY;
		break;
	}
}

static void send_trap(struct vb_fabric *f, struct vb_fabric_trap *t)
{
	struct vb_fabric_port *p = t->port;
	struct vb_fabric_packet packet = {
	        .slid = p->info.lid, .dlid = p->info.sm_lid, .sl = p->info.sm_sl, .pkey = 0xffff};
	struct vb_smp smp = {.mad = {.base_version = VB_MAD_BASE_VERSION,
	                             .mgmt_class = VB_MAD_CLASS_SM_LID,
	                             .class_version = 1,
	                             .method = VB_MAD_TRAP,
	                             .tid = t->tid,
	                             .attr_id = VB_SMP_NOTICE},
	                     .mkey = p->info.mkey};

	t->due = f->now + REPEAT_NS;
	if (!p->info.sm_lid || !p->info.lid)
		return;
	vb_notice_encode(smp.data, &t->notice);
	vb_fabric_launch(p, &packet, &smp);
}

/* False: the node does not know a subnet manager yet, or is off. */
static bool has_manager(const struct vb_fabric_port *p)
{
	return p->info.sm_lid && p->info.lid && !p->node->off;
}

void vb_fabric_trap(struct vb_fabric_port *p, unsigned trap)
{
	vb_fabric_trap_about(p, trap, NULL);
}

void vb_fabric_trap_about(struct vb_fabric_port *p, unsigned trap, const uint8_t *details)
{
	struct vb_fabric *f = p->node->fabric;
	struct vb_fabric_port *from = vb_fabric_end_port(p);
	struct vb_notice notice;

	if (!has_manager(from) || f->trap_count >= PENDING_MOST)
		return;
	fill_notice(&notice, p, trap);
	if (details)
		memcpy(notice.details, details, VB_NOTICE_DETAILS);
	for (struct vb_fabric_trap *t = f->traps; t; t = t->next)
		if (t->port == from && t->notice.trap == trap && t->notice.details[4] == notice.details[4])
			return;
	struct vb_fabric_trap *t = calloc(1, sizeof(*t));
	if (!t)
		return;
	*t = (struct vb_fabric_trap){.notice = notice, .port = from, .tid = f->next_tid++, .next = f->traps};
	f->traps = t;
	f->trap_count++;
	send_trap(f, t);
}

static void drop_traps(struct vb_fabric *f, const struct vb_fabric_node *n, const uint64_t *tid)
{
	for (struct vb_fabric_trap **at = &f->traps; *at;) {
		struct vb_fabric_trap *t = *at;

		if (t->port->node != n || (tid && t->tid != *tid)) {
			at = &t->next;
			continue;
		}
		*at = t->next;
		f->trap_count--;
		free(t);
	}
}

/* A TrapRepress has the transaction of its trap. */
void vb_trap_repress(struct vb_fabric_node *n, const struct vb_smp *smp)
{
	drop_traps(n->fabric, n, &smp->mad.tid);
}

void vb_trap_forget(struct vb_fabric_node *n)
{
	drop_traps(n->fabric, n, NULL);
}

void vb_trap_timer(struct vb_fabric *f)
{
	bool held = vb_fabric_hold(f); /* a trap that arrives may be repressed, and so freed, at once */

	for (struct vb_fabric_trap *t = f->traps; t; t = t->next)
		if (t->due <= f->now)
			send_trap(f, t);
	vb_fabric_let_go(f, held);
}

uint64_t vb_fabric_deadline(const struct vb_fabric *f)
{
	uint64_t due = UINT64_MAX;

	for (const struct vb_fabric_trap *t = f->traps; t; t = t->next)
		due = t->due < due ? t->due : due;
	return due;
}

void vb_fabric_time(struct vb_fabric *f, uint64_t now)
{
	f->now = now;
	vb_trap_timer(f);
}
