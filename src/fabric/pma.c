// pma.c - the performance management agent of a node
// follows: IBA volume 1, 16.1 (performance management)
// SPDX-License-Identifier: MIT
#include "fabric/internal.h"

#define ALL_PORTS 255

static void sum_counters_of(struct vb_port_counters *sum, const struct vb_port_counters *c)
{
#define X(field, select, ext) sum->field += c->field;
	VB_PMA_FIELDS(X)
#undef X
}

static void reset_counters(struct vb_port_counters *c, uint32_t mask, bool extended)
{
#define X(field, select, ext)                                                               \
	if ((extended ? ext : select) >= 0 && mask >> ((extended ? ext : select) & 31) & 1) \
		c->field = 0;
	VB_PMA_FIELDS(X)
#undef X
}

/* Calls for the port that is named, or for all. False: there is none. */
static bool for_ports(struct vb_fabric_node *n, const struct vb_pma_select *s, bool set, bool extended,
                      struct vb_port_counters *sum)
{
	bool found = false;

	memset(sum, 0, sizeof(*sum));
	for (unsigned i = n->sw ? 0 : 1; i <= n->ports; i++) {
		if (s->port != i && (s->port != ALL_PORTS || !n->sw))
			continue;
		found = true;
		if (set)
			reset_counters(&n->port[i].counters, s->counters, extended);
		sum_counters_of(sum, &n->port[i].counters);
	}
	return found;
}

static uint16_t pma_counters(struct vb_fabric_node *n, uint8_t *data, bool set, bool extended)
{
	struct vb_pma_select s;
	struct vb_port_counters sum;

	if (n->fabric->ops->count)
		n->fabric->ops->count(n->fabric->own);
	vb_pma_select_decode(&s, data, extended);
	if (!for_ports(n, &s, set, extended, &sum))
		return VB_MAD_BAD_VALUE;
	if (extended)
		vb_pma_counters_ext_encode(data, &s, &sum);
	else
		vb_pma_counters_encode(data, &s, &sum);
	return 0;
}

static uint16_t pma_class_info(const struct vb_fabric_node *n, uint8_t *data)
{
	struct vb_class_port_info i = {.base_version = 1,
	                               .class_version = 1,
	                               .cap_mask = VB_CLASS_CAP_EXTENDED | VB_CLASS_CAP_XMIT_WAIT,
	                               .resp_time = 18};

	if (n->sw)
		i.cap_mask |= VB_CLASS_CAP_ALL_PORTS;
	memset(data, 0, VB_PMA_DATA);
	vb_class_port_info_encode(data, &i);
	return 0;
}

static uint16_t pma_attribute(struct vb_fabric_node *n, const struct vb_mad *h, uint8_t *data)
{
	bool set = h->method == VB_MAD_SET;

	if (h->base_version != VB_MAD_BASE_VERSION || h->class_version != 1)
		return VB_MAD_BAD_VERSION;
	if (h->method != VB_MAD_GET && !set)
		return VB_MAD_BAD_METHOD;
	switch (h->attr_id) {
	case VB_PMA_CLASS_PORT_INFO:
		return set ? VB_MAD_BAD_ATTR : pma_class_info(n, data);
	case VB_PMA_COUNTERS:
		return pma_counters(n, data, set, false);
	case VB_PMA_COUNTERS_EXT:
		return pma_counters(n, data, set, true);
	default:
		return VB_MAD_BAD_ATTR;
	}
}

bool vb_pma_answer(struct vb_fabric_port *p, uint8_t mad[VB_MAD_LEN])
{
	struct vb_reader r = vb_reader(mad, VB_MAD_LEN);
	struct vb_writer w = vb_writer(mad, VB_MAD_LEN);
	struct vb_mad h;

	vb_mad_decode(&r, &h);
	if (h.method == VB_MAD_REPRESS || h.method == VB_MAD_TRAP)
		return false;
	h.status = pma_attribute(p->node, &h, mad + VB_PMA_DATA_AT);
	h.method = VB_MAD_GET_RESP;
	vb_mad_encode(&w, &h);
	return true;
}
