// sma_tables.c - the tables of ports and switches: GUIDs, P_Keys, SL to VL, VL arbitration, forwarding
// follows: IBA volume 1, 14.2.5.5 (GUIDInfo), 14.2.5.7 to 14.2.5.12
// SPDX-License-Identifier: MIT
#include <stdlib.h>

#include "fabric/sma.h"

static struct vb_fabric_port *port_named(struct vb_fabric_port *in, unsigned num)
{
	return in->node->sw ? vb_fabric_port(in->node, num) : in;
}

uint8_t vb_sma_guid_info(struct vb_fabric_port *in, struct vb_smp *s, bool set)
{
	struct vb_fabric_port *p = vb_fabric_end_port(in);
	struct vb_reader r = vb_reader(s->data, VB_SMP_DATA);
	struct vb_writer w = vb_writer(s->data, VB_SMP_DATA);

	if (s->mad.attr_mod >= VB_FABRIC_GUIDS / 8)
		return VB_MAD_BAD_VALUE;
	if (set && !p->guids && !(p->guids = calloc(VB_FABRIC_GUIDS, sizeof(*p->guids))))
		return VB_MAD_BAD_VALUE;
	for (unsigned i = 0; set && i < VB_FABRIC_GUIDS; i++)
		p->guids[i] = vb_get64(&r);
	if (p->guids)
		p->guids[0] = p->guid; /* 14.2.5.5: the first is read-only */
	for (unsigned i = 0; i < VB_FABRIC_GUIDS; i++)
		vb_put64(&w, i ? p->guids ? p->guids[i] : 0 : p->guid);
	return 0;
}

/* The modifier: the port of a switch in the high half, the block of 32 in the low one. */
uint8_t vb_sma_pkey_table(struct vb_fabric_port *in, struct vb_smp *s, bool set)
{
	struct vb_fabric_port *p = port_named(in, s->mad.attr_mod >> 16);
	unsigned block = s->mad.attr_mod & 0xffff, most = p ? vb_fabric_pkeys(p) : 0;
	struct vb_reader r = vb_reader(s->data, VB_SMP_DATA);
	struct vb_writer w = vb_writer(s->data, VB_SMP_DATA);

	if (!p || block * 32 >= most)
		return VB_MAD_BAD_VALUE;
	if (set && !p->pkeys) {
		if (!(p->pkeys = calloc(most, sizeof(*p->pkeys))))
			return VB_MAD_BAD_VALUE;
		p->pkeys[0] = 0xffff;
	}
	for (unsigned i = 0; set && i < 32; i++)
		p->pkeys[block * 32 + i] = vb_get16(&r);
	for (unsigned i = 0; i < 32; i++)
		vb_put16(&w, vb_fabric_pkey(p, block * 32 + i));
	return 0;
}

/* After a reset: SL n to VL n, within the 8 VLs that we have. */
static void identity_map(uint8_t map[8])
{
	for (unsigned i = 0; i < 8; i++)
		map[i] = (uint8_t)((2 * i & 7) << 4 | ((2 * i + 1) & 7));
}

/* The modifier: the input port in bits 8 to 15, the output port in bits 0 to 7 (14.2.5.8). A CA has one map a port. */
uint8_t vb_sma_sl_to_vl(struct vb_fabric_port *in, struct vb_smp *s, bool set)
{
	unsigned from = s->mad.attr_mod >> 8 & 0xff, ports = in->node->sw ? in->node->ports + 1u : 1;
	struct vb_fabric_port *p = port_named(in, s->mad.attr_mod & 0xff);

	from = in->node->sw ? from : 0;
	if (!p || from >= ports)
		return VB_MAD_BAD_VALUE;
	if (set && !p->sl2vl) {
		if (!(p->sl2vl = malloc(ports * 8)))
			return VB_MAD_BAD_VALUE;
		for (unsigned i = 0; i < ports; i++)
			identity_map(p->sl2vl + 8 * i);
	}
	if (set)
		memcpy(p->sl2vl + 8 * from, s->data, 8);
	memset(s->data + 8, 0, VB_SMP_DATA - 8);
	if (p->sl2vl)
		memcpy(s->data, p->sl2vl + 8 * from, 8);
	else
		identity_map(s->data);
	return 0;
}

/* The modifier: the block (1 and 2 low, 3 and 4 high priority) in the high half, the port in the low one. */
uint8_t vb_sma_vl_arb(struct vb_fabric_port *in, struct vb_smp *s, bool set)
{
	unsigned block = s->mad.attr_mod >> 16;
	struct vb_fabric_port *p = port_named(in, s->mad.attr_mod & 0xff);

	if (!p || block < 1 || block > 4 || (in->node->sw && !p->num))
		return VB_MAD_BAD_VALUE;
	if (!p->vl_arb) {
		if (!(p->vl_arb = calloc(4, 64)))
			return VB_MAD_BAD_VALUE;
		for (uint8_t vl = 0; vl < 8; vl++) {
			p->vl_arb[2 * vl] = p->vl_arb[128 + 2 * vl] = vl;
			p->vl_arb[2 * vl + 1] = vl ? 4 : 0;
			p->vl_arb[128 + 2 * vl + 1] = vl ? 0 : 4;
		}
	}
	if (set)
		memcpy(p->vl_arb + 64 * (block - 1), s->data, 64);
	memcpy(s->data, p->vl_arb + 64 * (block - 1), 64);
	return 0;
}

static bool lft_reaches(struct vb_fabric_switch *sw, size_t len)
{
	uint8_t *lft = len > sw->lft_len ? realloc(sw->lft, len) : sw->lft;

	if (!lft)
		return false;
	if (len > sw->lft_len) {
		memset(lft + sw->lft_len, 0xff, len - sw->lft_len);
		sw->lft = lft;
		sw->lft_len = len;
	}
	return true;
}

uint8_t vb_sma_lft(struct vb_fabric_port *in, struct vb_smp *s, bool set)
{
	struct vb_fabric_switch *sw = in->node->sw;
	size_t block = s->mad.attr_mod, at = 64 * block;

	if (!sw)
		return VB_MAD_BAD_ATTR;
	if (block >= VB_FABRIC_LFT_CAP / 64)
		return VB_MAD_BAD_VALUE;
	if (set) {
		if (!lft_reaches(sw, at + 64))
			return VB_MAD_BAD_VALUE;
		memcpy(sw->lft + at, s->data, 64);
	}
	if (at + 64 <= sw->lft_len)
		memcpy(s->data, sw->lft + at, 64);
	else
		memset(s->data, 0xff, 64);
	return 0;
}

/* The modifier: the 16 ports in the high 4 bits, the block of 32 MLIDs in the low 9 (14.2.5.12). */
uint8_t vb_sma_mft(struct vb_fabric_port *in, struct vb_smp *s, bool set)
{
	struct vb_fabric_switch *sw = in->node->sw;
	unsigned position = s->mad.attr_mod >> 28, block = s->mad.attr_mod & 0x1ff;
	struct vb_reader r = vb_reader(s->data, VB_SMP_DATA);
	struct vb_writer w = vb_writer(s->data, VB_SMP_DATA);

	if (!sw)
		return VB_MAD_BAD_ATTR;
	if (block >= VB_FABRIC_MFT_CAP / 32 || position * 16 > in->node->ports)
		return VB_MAD_BAD_VALUE;
	size_t at = position * VB_FABRIC_MFT_CAP + block * 32;
	if (set && !sw->mft && !(sw->mft = calloc((in->node->ports / 16 + 1u) * VB_FABRIC_MFT_CAP, sizeof(*sw->mft))))
		return VB_MAD_BAD_VALUE;
	for (unsigned i = 0; set && i < 32; i++)
		sw->mft[at + i] = vb_get16(&r);
	for (unsigned i = 0; i < 32; i++)
		vb_put16(&w, sw->mft ? sw->mft[at + i] : 0);
	return 0;
}
