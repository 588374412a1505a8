// smp.c - encodes and decodes subnet management packets and their attributes
// follows: IBA volume 1, 14.2.1 (SMP), 14.2.5.3 (NodeInfo), 14.2.5.4 (SwitchInfo), 14.2.5.6 (PortInfo), 13.4.8 (notice)
// SPDX-License-Identifier: MIT
#include "frame/smp.h"

/* Header; M_Key; DrSLID; DrDLID; 28 bytes reserved; data; initial path; return path. */
void vb_smp_decode(struct vb_smp *s, const uint8_t mad[VB_MAD_LEN])
{
	struct vb_reader r = vb_reader(mad, VB_MAD_LEN);

	memset(s, 0, sizeof(*s));
	vb_mad_decode(&r, &s->mad);
	s->mkey = vb_get64(&r);
	if (s->mad.mgmt_class == VB_MAD_CLASS_SM_DR) {
		s->dr_slid = vb_get16(&r);
		s->dr_dlid = vb_get16(&r);
		memcpy(s->initial, mad + 128, VB_SMP_HOPS);
		memcpy(s->back, mad + 192, VB_SMP_HOPS);
	}
	memcpy(s->data, mad + 64, VB_SMP_DATA);
}

void vb_smp_encode(uint8_t mad[VB_MAD_LEN], const struct vb_smp *s)
{
	struct vb_writer w = vb_writer(mad, VB_MAD_LEN);

	vb_mad_encode(&w, &s->mad);
	vb_put64(&w, s->mkey);
	vb_put16(&w, s->dr_slid);
	vb_put16(&w, s->dr_dlid);
	vb_put_zeros(&w, 28);
	vb_put_bytes(&w, s->data, VB_SMP_DATA);
	vb_put_bytes(&w, s->initial, VB_SMP_HOPS);
	vb_put_bytes(&w, s->back, VB_SMP_HOPS);
}

void vb_node_info_decode(struct vb_node_info *n, const uint8_t data[VB_SMP_DATA])
{
	struct vb_reader r = vb_reader(data, VB_SMP_DATA);

	n->base_version = vb_get8(&r);
	n->class_version = vb_get8(&r);
	n->type = vb_get8(&r);
	n->ports = vb_get8(&r);
	n->system_guid = vb_get64(&r);
	n->node_guid = vb_get64(&r);
	n->port_guid = vb_get64(&r);
	n->partitions = vb_get16(&r);
	n->device_id = vb_get16(&r);
	n->revision = vb_get32(&r);
	n->local_port = vb_get8(&r);
	n->vendor_id = vb_get24(&r);
}

void vb_node_info_encode(uint8_t data[VB_SMP_DATA], const struct vb_node_info *n)
{
	struct vb_writer w = vb_writer(data, VB_SMP_DATA);

	vb_put8(&w, n->base_version);
	vb_put8(&w, n->class_version);
	vb_put8(&w, n->type);
	vb_put8(&w, n->ports);
	vb_put64(&w, n->system_guid);
	vb_put64(&w, n->node_guid);
	vb_put64(&w, n->port_guid);
	vb_put16(&w, n->partitions);
	vb_put16(&w, n->device_id);
	vb_put32(&w, n->revision);
	vb_put8(&w, n->local_port);
	vb_put24(&w, n->vendor_id);
	vb_put_zeros(&w, w.len - w.pos);
}

/* A byte of two fields: the high and the low `bits` of it. */
static void split(struct vb_reader *r, unsigned low_bits, uint8_t *high, uint8_t *low)
{
	uint8_t v = vb_get8(r);

	*high = (uint8_t)(v >> low_bits);
	*low = (uint8_t)(v & ((1u << low_bits) - 1));
}

static void join(struct vb_writer *w, unsigned low_bits, uint8_t high, uint8_t low)
{
	vb_put8(w, (uint8_t)(high << low_bits | (low & ((1u << low_bits) - 1))));
}

void vb_port_info_decode(struct vb_port_info *p, const uint8_t data[VB_SMP_DATA])
{
	struct vb_reader r = vb_reader(data, VB_SMP_DATA);
	uint8_t v, high;

	p->mkey = vb_get64(&r);
	p->gid_prefix = vb_get64(&r);
	p->lid = vb_get16(&r);
	p->sm_lid = vb_get16(&r);
	p->cap_mask = vb_get32(&r);
	p->diag = vb_get16(&r);
	p->mkey_lease = vb_get16(&r);
	p->local_port = vb_get8(&r);
	p->width_enabled = vb_get8(&r);
	p->width_supported = vb_get8(&r);
	p->width_active = vb_get8(&r);
	split(&r, 4, &p->speed_supported, &p->state);
	split(&r, 4, &p->phys, &p->down_default);
	split(&r, 3, &high, &p->lmc);
	p->mkey_protect = high >> 3;
	split(&r, 4, &p->speed_active, &p->speed_enabled);
	split(&r, 4, &p->neighbor_mtu, &p->sm_sl);
	split(&r, 4, &p->vl_cap, &p->init_type);
	p->vl_high_limit = vb_get8(&r);
	p->vl_arb_high_cap = vb_get8(&r);
	p->vl_arb_low_cap = vb_get8(&r);
	split(&r, 4, &p->init_reply, &p->mtu_cap);
	split(&r, 5, &p->vl_stall, &p->hoq_life);
	split(&r, 4, &p->oper_vls, &p->enforce);
	p->mkey_violations = vb_get16(&r);
	p->pkey_violations = vb_get16(&r);
	p->qkey_violations = vb_get16(&r);
	p->guid_cap = vb_get8(&r);
	v = vb_get8(&r);
	p->reregister = v >> 7;
	p->mcast_pkey_trap = v >> 5 & 3;
	p->subnet_timeout = v & 31;
	p->resp_time = vb_get8(&r) & 31;
	split(&r, 4, &p->phys_errors, &p->overrun_errors);
	p->credit_hint = vb_get16(&r);
	p->round_trip = vb_get32(&r) & 0xffffff;
	p->cap_mask2 = vb_get16(&r);
	split(&r, 4, &p->ext_active, &p->ext_supported);
	p->ext_enabled = vb_get8(&r) & 31;
}

void vb_port_info_encode(uint8_t data[VB_SMP_DATA], const struct vb_port_info *p)
{
	struct vb_writer w = vb_writer(data, VB_SMP_DATA);

	vb_put64(&w, p->mkey);
	vb_put64(&w, p->gid_prefix);
	vb_put16(&w, p->lid);
	vb_put16(&w, p->sm_lid);
	vb_put32(&w, p->cap_mask);
	vb_put16(&w, p->diag);
	vb_put16(&w, p->mkey_lease);
	vb_put8(&w, p->local_port);
	vb_put8(&w, p->width_enabled);
	vb_put8(&w, p->width_supported);
	vb_put8(&w, p->width_active);
	join(&w, 4, p->speed_supported, p->state);
	join(&w, 4, p->phys, p->down_default);
	join(&w, 6, p->mkey_protect, p->lmc & 7);
	join(&w, 4, p->speed_active, p->speed_enabled);
	join(&w, 4, p->neighbor_mtu, p->sm_sl);
	join(&w, 4, p->vl_cap, p->init_type);
	vb_put8(&w, p->vl_high_limit);
	vb_put8(&w, p->vl_arb_high_cap);
	vb_put8(&w, p->vl_arb_low_cap);
	join(&w, 4, p->init_reply, p->mtu_cap);
	join(&w, 5, p->vl_stall, p->hoq_life);
	join(&w, 4, p->oper_vls, p->enforce);
	vb_put16(&w, p->mkey_violations);
	vb_put16(&w, p->pkey_violations);
	vb_put16(&w, p->qkey_violations);
	vb_put8(&w, p->guid_cap);
	vb_put8(&w, (uint8_t)(p->reregister << 7 | (p->mcast_pkey_trap & 3) << 5 | (p->subnet_timeout & 31)));
	vb_put8(&w, p->resp_time & 31);
	join(&w, 4, p->phys_errors, p->overrun_errors);
	vb_put16(&w, p->credit_hint);
	vb_put32(&w, p->round_trip & 0xffffff);
	vb_put16(&w, p->cap_mask2);
	join(&w, 4, p->ext_active, p->ext_supported);
	vb_put8(&w, p->ext_enabled & 31);
}

void vb_switch_info_decode(struct vb_switch_info *s, const uint8_t data[VB_SMP_DATA])
{
	struct vb_reader r = vb_reader(data, VB_SMP_DATA);
	uint8_t low;

	s->lft_cap = vb_get16(&r);
	s->random_cap = vb_get16(&r);
	s->mft_cap = vb_get16(&r);
	s->lft_top = vb_get16(&r);
	s->default_port = vb_get8(&r);
	s->default_mcast_primary = vb_get8(&r);
	s->default_mcast_other = vb_get8(&r);
	split(&r, 3, &s->life_time, &low);
	s->state_change = low >> 2;
	s->sl2vl_optimized = low & 3;
	s->lids_per_port = vb_get16(&r);
	s->enforce_cap = vb_get16(&r);
	s->caps = vb_get8(&r) >> 3;
	vb_get8(&r);
	s->mft_top = vb_get16(&r);
}

void vb_switch_info_encode(uint8_t data[VB_SMP_DATA], const struct vb_switch_info *s)
{
	struct vb_writer w = vb_writer(data, VB_SMP_DATA);

	vb_put16(&w, s->lft_cap);
	vb_put16(&w, s->random_cap);
	vb_put16(&w, s->mft_cap);
	vb_put16(&w, s->lft_top);
	vb_put8(&w, s->default_port);
	vb_put8(&w, s->default_mcast_primary);
	vb_put8(&w, s->default_mcast_other);
	join(&w, 3, s->life_time, (uint8_t)(s->state_change << 2 | (s->sl2vl_optimized & 3)));
	vb_put16(&w, s->lids_per_port);
	vb_put16(&w, s->enforce_cap);
	vb_put8(&w, (uint8_t)(s->caps << 3));
	vb_put8(&w, 0);
	vb_put16(&w, s->mft_top);
	vb_put_zeros(&w, w.len - w.pos);
}

void vb_notice_decode(struct vb_notice *n, const uint8_t data[VB_SMP_DATA])
{
	struct vb_reader r = vb_reader(data, VB_SMP_DATA);
	uint8_t generic;

	split(&r, 7, &generic, &n->type);
	n->generic = generic;
	n->producer = vb_get24(&r);
	n->trap = vb_get16(&r);
	n->issuer_lid = vb_get16(&r);
	n->toggle_count = vb_get16(&r);
	memcpy(n->details, data + r.pos, VB_NOTICE_DETAILS);
}

void vb_notice_encode(uint8_t data[VB_SMP_DATA], const struct vb_notice *n)
{
	struct vb_writer w = vb_writer(data, VB_SMP_DATA);

	join(&w, 7, n->generic, n->type);
	vb_put24(&w, n->producer);
	vb_put16(&w, n->trap);
	vb_put16(&w, n->issuer_lid);
	vb_put16(&w, n->toggle_count);
	vb_put_bytes(&w, n->details, VB_NOTICE_DETAILS);
}
