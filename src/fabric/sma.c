// sma.c - the subnet management agent of a node: which attributes it answers, and who may ask
// follows: IBA volume 1, 14.2.4 (M_Key), 14.2.5 (attributes), 14.3 (SMA)
// SPDX-License-Identifier: MIT
#include "fabric/sma.h"

#include <stdlib.h>

#define NS_PER_S 1000000000ull

bool vb_sma_takes(const struct vb_smp *s)
{
	uint8_t m = s->mad.method;

	return (m == VB_MAD_GET || m == VB_MAD_SET || m == VB_MAD_REPRESS) && s->mad.attr_id != VB_SMP_SM_INFO;
}

/* --- the M_Key: 14.2.4.1 --- */

static void bad_mkey_trap(struct vb_fabric_port *end, const struct vb_smp *s)
{
	uint8_t details[VB_NOTICE_DETAILS] = {0};
	struct vb_writer w = vb_writer(details, sizeof(details));
	bool directed = s->mad.mgmt_class == VB_MAD_CLASS_SM_DR;
	uint8_t hops = directed ? vb_smp_hops(s) : 0, shown = hops > 30 ? 30 : hops;

	vb_put16(&w, 0);
	vb_put16(&w, end->info.lid);
	vb_put16(&w, directed ? s->dr_slid : 0);
	vb_put8(&w, s->mad.method);
	vb_put8(&w, 0);
	vb_put16(&w, s->mad.attr_id);
	vb_put32(&w, s->mad.attr_mod);
	vb_put64(&w, s->mkey);
	vb_put8(&w, 0);
	vb_put8(&w, (uint8_t)(directed << 7 | (hops > shown) << 6 | shown));
	vb_put_bytes(&w, s->back + 1, shown);
	vb_fabric_trap_about(end, VB_TRAP_BAD_MKEY, details);
}

/* Whether the sender may do this. hide: the M_Key is not shown to it. */
static bool may_manage(struct vb_fabric_port *end, const struct vb_smp *s, bool *hide)
{
	struct vb_port_info *i = &end->info;
	uint64_t now = end->node->fabric->now;

	if (end->lease_end && now >= end->lease_end) {
		i->mkey_protect = 0;
		end->lease_end = 0;
	}
	*hide = false;
	if (!i->mkey || i->mkey == s->mkey) {
		if (i->mkey)
			end->lease_end = 0;
		return true;
	}
	if (s->mad.method == VB_MAD_REPRESS)
		return false;
	if (s->mad.method == VB_MAD_GET && i->mkey_protect < 2) {
		*hide = i->mkey_protect == 1;
		return true;
	}
	i->mkey_violations += i->mkey_violations < 0xffff;
	if (i->mkey_lease && !end->lease_end)
		end->lease_end = now + i->mkey_lease * NS_PER_S;
	VB_DROP(end->node->fabric, bad_mkey);
	bad_mkey_trap(end, s);
	return false;
}

/* --- attributes of the node --- */

static uint8_t node_desc(struct vb_fabric_port *in, struct vb_smp *s, bool set)
{
	if (set)
		return VB_MAD_BAD_ATTR;
	memset(s->data, 0, VB_SMP_DATA);
	memcpy(s->data, in->node->desc, strlen(in->node->desc));
	return 0;
}

static uint8_t node_info(struct vb_fabric_port *in, struct vb_smp *s, bool set)
{
	const struct vb_fabric_node *n = in->node;
	struct vb_node_info i = {.base_version = 1,
	                         .class_version = 1,
	                         .type = (uint8_t)n->type,
	                         .ports = n->ports,
	                         .system_guid = n->system_guid,
	                         .node_guid = n->guid,
	                         .port_guid = in->guid,
	                         .partitions = VB_FABRIC_CA_PKEYS,
	                         .device_id = n->device_id,
	                         .revision = 1,
	                         .vendor_id = n->vendor_id,
	                         .local_port = in->num};

	if (set)
		return VB_MAD_BAD_ATTR;
	vb_node_info_encode(s->data, &i);
	return 0;
}

static uint8_t switch_info(struct vb_fabric_port *in, struct vb_smp *s, bool set)
{
	struct vb_fabric_switch *sw = in->node->sw;
	struct vb_switch_info want;

	if (!sw)
		return VB_MAD_BAD_ATTR;
	if (set) {
		vb_switch_info_decode(&want, s->data);
		if (want.lft_top >= VB_FABRIC_LFT_CAP)
			return VB_MAD_BAD_VALUE;
		sw->info.lft_top = want.lft_top;
		sw->info.default_port = want.default_port;
		sw->info.default_mcast_primary = want.default_mcast_primary;
		sw->info.default_mcast_other = want.default_mcast_other;
		sw->info.life_time = want.life_time;
		sw->info.mft_top = want.mft_top;
		if (want.state_change) /* 14.2.5.4: writing 1 clears it */
			sw->info.state_change = 0;
	}
	vb_switch_info_encode(s->data, &sw->info);
	return 0;
}

static uint8_t led_info(struct vb_fabric_port *in, struct vb_smp *s, bool set)
{
	struct vb_fabric_port *p =
	        vb_fabric_port(in->node, s->mad.attr_mod && in->node->sw ? s->mad.attr_mod : in->num);

	if (!p)
		return VB_MAD_BAD_VALUE;
	if (set)
		p->led = s->data[0] >> 7;
	memset(s->data, 0, VB_SMP_DATA);
	s->data[0] = (uint8_t)(p->led << 7);
	return 0;
}

static uint8_t notice(struct vb_fabric_port *in, struct vb_smp *s, bool set)
{
	if (set)
		return VB_MAD_BAD_ATTR;
	memset(s->data, 0, VB_SMP_DATA); /* no notice is queued: ours are sent as traps */
	return 0;
}

/* The port that an attribute modifier names: on a CA, 0 is the one that was asked. */
static struct vb_fabric_port *named_port(struct vb_fabric_port *in, unsigned num)
{
	if (in->node->sw)
		return vb_fabric_port(in->node, num);
	return num ? vb_fabric_port(in->node, num) : in;
}

static uint8_t port_info(struct vb_fabric_port *in, struct vb_smp *s, bool set)
{
	struct vb_fabric_port *p = named_port(in, s->mad.attr_mod & 0xff);
	struct vb_port_info want;
	uint8_t status = 0;

	if (!p)
		return VB_MAD_BAD_VALUE;
	if (set && !in->node->sw && p != in)
		return VB_MAD_BAD_VALUE; /* 14.2.5.6: a CA's port is set by the port itself */
	if (set) {
		vb_port_info_decode(&want, s->data);
		status = vb_sma_set_port_info(p, &want);
		if (status)
			return status;
	}
	struct vb_port_info shown = p->info;
	shown.local_port = in->num;
	vb_port_info_encode(s->data, &shown);
	return 0;
}

/* --- the table of attributes --- */

static const struct {
	uint16_t attr;
	uint8_t (*answer)(struct vb_fabric_port *in, struct vb_smp *s, bool set);
} attributes[] = {
        {VB_SMP_NOTICE, notice},
        {VB_SMP_NODE_DESC, node_desc},
        {VB_SMP_NODE_INFO, node_info},
        {VB_SMP_SWITCH_INFO, switch_info},
        {VB_SMP_GUID_INFO, vb_sma_guid_info},
        {VB_SMP_PORT_INFO, port_info},
        {VB_SMP_PKEY_TABLE, vb_sma_pkey_table},
        {VB_SMP_SL_TO_VL, vb_sma_sl_to_vl},
        {VB_SMP_VL_ARB, vb_sma_vl_arb},
        {VB_SMP_LFT, vb_sma_lft},
        {VB_SMP_MFT, vb_sma_mft},
        {VB_SMP_LED_INFO, led_info},
};

static uint8_t answer_attribute(struct vb_fabric_port *in, struct vb_smp *s, bool hide)
{
	bool set = s->mad.method == VB_MAD_SET;

	if (s->mad.base_version != VB_MAD_BASE_VERSION || s->mad.class_version != 1)
		return VB_MAD_BAD_VERSION;
	for (size_t i = 0; i < sizeof(attributes) / sizeof(*attributes); i++) {
		if (attributes[i].attr != s->mad.attr_id)
			continue;
		uint8_t status = attributes[i].answer(in, s, set);

		if (hide && s->mad.attr_id == VB_SMP_PORT_INFO)
			memset(s->data, 0, sizeof(uint64_t));
		return status;
	}
	return VB_MAD_BAD_ATTR;
}

bool vb_sma_answer(struct vb_fabric_port *in, struct vb_smp *s)
{
	bool hide;

	if (!may_manage(vb_fabric_end_port(in), s, &hide))
		return false;
	if (s->mad.method == VB_MAD_REPRESS) {
		vb_trap_repress(in->node, s);
		return false;
	}
	uint8_t status = answer_attribute(in, s, hide);

	in->node->fabric->changes += s->mad.method == VB_MAD_SET;
	s->mad.status = status;
	s->mad.method = VB_MAD_GET_RESP;
	return true;
}
