// sma_port.c - Set of PortInfo: what may be written, and what a new state does to the link
// follows: IBA volume 1, 14.2.5.6 (PortInfo), 7.2 (link states)
// SPDX-License-Identifier: MIT
#include "fabric/internal.h"

/* Which logical states may follow which by a Set: Down from all, Armed from Init, Active from Armed. */
static bool state_may_follow(uint8_t old, uint8_t new)
{
	switch (new) {
	case VB_PORT_NO_CHANGE:
	case VB_PORT_DOWN:
		return true;
	case VB_PORT_ARMED:
		return old == VB_PORT_INIT || old == VB_PORT_ARMED;
	case VB_PORT_ACTIVE:
		return old == VB_PORT_ARMED || old == VB_PORT_ACTIVE;
	default: /* Init is the link's own */
		return false;
	}
}

static bool is_end(const struct vb_fabric_port *p)
{
	return !p->node->sw || !p->num;
}

/* 4 bits of which 15 is "all that is supported" and 0 "no change". */
static bool speed_is_possible(uint8_t want, uint8_t supported, uint8_t all)
{
	return !want || want == all || !(want & ~supported);
}

static bool values_are_right(const struct vb_fabric_port *p, const struct vb_port_info *set)
{
	const struct vb_port_info *i = &p->info;
	bool base = p->node->sw && !p->num;

	if (is_end(p) && (set->lid >= VB_LID_MULTICAST || set->sm_lid >= VB_LID_MULTICAST))
		return false;
	if (!base && (set->oper_vls > i->vl_cap || set->neighbor_mtu > i->mtu_cap))
		return false;
	if (!base && !state_may_follow(i->state, set->state))
		return false;
	if (!base &&
	    (set->phys > VB_PHYS_DISABLED || set->phys == VB_PHYS_SLEEP || set->down_default > VB_PHYS_POLLING))
		return false;
	return speed_is_possible(set->width_enabled, i->width_supported, 0xff) &&
	       speed_is_possible(set->speed_enabled, i->speed_supported, 15);
}

static void take_addresses(struct vb_port_info *i, const struct vb_port_info *set)
{
	i->mkey = set->mkey;
	i->gid_prefix = set->gid_prefix;
	i->lid = set->lid;
	i->sm_lid = set->sm_lid;
	i->sm_sl = set->sm_sl;
	i->lmc = set->lmc;
	i->mkey_lease = set->mkey_lease;
	i->mkey_protect = set->mkey_protect;
	i->subnet_timeout = set->subnet_timeout;
	i->reregister = set->reregister;
	/* 14.2.5.6: violations are written to zero */
	i->mkey_violations = set->mkey_violations ? i->mkey_violations : 0;
	i->pkey_violations = set->pkey_violations ? i->pkey_violations : 0;
	i->qkey_violations = set->qkey_violations ? i->qkey_violations : 0;
}

static void take_link(struct vb_port_info *i, const struct vb_port_info *set)
{
	if (set->width_enabled)
		i->width_enabled = set->width_enabled == 0xff ? i->width_supported : set->width_enabled;
	if (set->speed_enabled)
		i->speed_enabled = set->speed_enabled == 15 ? i->speed_supported : set->speed_enabled;
	if (i->ext_supported && set->ext_enabled && set->ext_enabled != 30) /* 30: no extended speed */
		i->ext_enabled = set->ext_enabled == 31 ? i->ext_supported : set->ext_enabled & i->ext_supported;
	else if (set->ext_enabled == 30)
		i->ext_enabled = 0;
	if (set->neighbor_mtu)
		i->neighbor_mtu = set->neighbor_mtu;
	if (set->oper_vls)
		i->oper_vls = set->oper_vls;
	i->vl_high_limit = set->vl_high_limit;
	i->vl_stall = set->vl_stall;
	i->hoq_life = set->hoq_life;
	i->enforce = set->enforce;
	i->phys_errors = set->phys_errors;
	i->overrun_errors = set->overrun_errors;
	if (set->down_default)
		i->down_default = set->down_default;
}

/* Down by a Set: the link trains again, unless it was disabled with it. */
static void bounce(struct vb_fabric_port *p)
{
	struct vb_fabric_port *q = p->peer;

	p->downs++;
	p->info.state = VB_PORT_DOWN; /* 14.2.5.4: no PortStateChange for what a Set did */
	if (p->info.phys == VB_PHYS_UP)
		p->info.phys = VB_PHYS_POLLING;
	if (!q)
		return;
	if (q->info.phys == VB_PHYS_UP) {
		q->info.phys = VB_PHYS_POLLING;
		vb_fabric_port_state(q, VB_PORT_DOWN);
	}
	vb_fabric_train(p);
}

static void take_states(struct vb_fabric_port *p, const struct vb_port_info *set)
{
	if (set->phys == VB_PHYS_DISABLED)
		p->info.phys = VB_PHYS_DISABLED;
	else if (set->phys == VB_PHYS_POLLING)
		p->info.phys = VB_PHYS_POLLING;
	if (set->state == VB_PORT_DOWN || set->phys)
		bounce(p);
	else if (set->state)
		p->info.state = set->state;
}

uint8_t vb_sma_set_port_info(struct vb_fabric_port *p, const struct vb_port_info *set)
{
	if (!values_are_right(p, set))
		return VB_MAD_BAD_VALUE;
	if (is_end(p)) {
		take_addresses(&p->info, set);
		p->reregisters += set->reregister;
	}
	if (!p->node->sw || p->num) {
		take_link(&p->info, set);
		take_states(p, set);
	}
	return 0;
}
