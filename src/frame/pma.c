// pma.c - encodes and decodes the counters of a port
// follows: IBA volume 1, 16.1.3.5 (PortCounters), 16.1.4.11 (PortCountersExtended), 13.4.8.1 (ClassPortInfo)
// SPDX-License-Identifier: MIT
#include "frame/pma.h"

static uint64_t at_most(uint64_t v, unsigned bits)
{
	return v >> bits ? (UINT64_C(1) << bits) - 1 : v;
}

/* Reserved; PortSelect; CounterSelect. CounterSelect2 is the byte 18 of PortCounters. */
void vb_pma_select_decode(struct vb_pma_select *s, const uint8_t *data, bool extended)
{
	s->port = data[1];
	s->counters = (uint32_t)(data[2] << 8 | data[3]);
	if (!extended)
		s->counters |= (uint32_t)data[18] << 16;
}

static void select_encode(struct vb_writer *w, const struct vb_pma_select *s)
{
	vb_put8(w, 0);
	vb_put8(w, s->port);
	vb_put16(w, (uint16_t)s->counters);
}

void vb_pma_counters_encode(uint8_t *data, const struct vb_pma_select *s, const struct vb_port_counters *c)
{
	struct vb_writer w = vb_writer(data, VB_PMA_DATA);

	select_encode(&w, s);
	vb_put16(&w, (uint16_t)at_most(c->symbol_errors, 16));
	vb_put8(&w, (uint8_t)at_most(c->link_recovers, 8));
	vb_put8(&w, (uint8_t)at_most(c->link_downed, 8));
	vb_put16(&w, (uint16_t)at_most(c->rcv_errors, 16));
	vb_put16(&w, (uint16_t)at_most(c->rcv_remote_errors, 16));
	vb_put16(&w, (uint16_t)at_most(c->rcv_relay_errors, 16));
	vb_put16(&w, (uint16_t)at_most(c->xmit_discards, 16));
	vb_put8(&w, (uint8_t)at_most(c->xmit_constraint, 8));
	vb_put8(&w, (uint8_t)at_most(c->rcv_constraint, 8));
	vb_put8(&w, (uint8_t)(s->counters >> 16));
	vb_put8(&w, (uint8_t)(at_most(c->link_integrity, 4) << 4 | at_most(c->buffer_overruns, 4)));
	vb_put16(&w, 0);
	vb_put16(&w, (uint16_t)at_most(c->vl15_dropped, 16));
	vb_put32(&w, (uint32_t)at_most(c->xmit_data, 32));
	vb_put32(&w, (uint32_t)at_most(c->rcv_data, 32));
	vb_put32(&w, (uint32_t)at_most(c->xmit_pkts, 32));
	vb_put32(&w, (uint32_t)at_most(c->rcv_pkts, 32));
	vb_put32(&w, (uint32_t)at_most(c->xmit_wait, 32));
	vb_put_zeros(&w, w.len - w.pos);
}

void vb_pma_counters_decode(struct vb_port_counters *c, const uint8_t *data)
{
	struct vb_reader r = vb_reader(data, VB_PMA_DATA);

	memset(c, 0, sizeof(*c));
	vb_get32(&r);
	c->symbol_errors = vb_get16(&r);
	c->link_recovers = vb_get8(&r);
	c->link_downed = vb_get8(&r);
	c->rcv_errors = vb_get16(&r);
	c->rcv_remote_errors = vb_get16(&r);
	c->rcv_relay_errors = vb_get16(&r);
	c->xmit_discards = vb_get16(&r);
	c->xmit_constraint = vb_get8(&r);
	c->rcv_constraint = vb_get8(&r);
	vb_get8(&r);
	uint8_t v = vb_get8(&r);
	c->link_integrity = v >> 4;
	c->buffer_overruns = v & 15;
	vb_get16(&r);
	c->vl15_dropped = vb_get16(&r);
	c->xmit_data = vb_get32(&r);
	c->rcv_data = vb_get32(&r);
	c->xmit_pkts = vb_get32(&r);
	c->rcv_pkts = vb_get32(&r);
	c->xmit_wait = vb_get32(&r);
}

void vb_pma_counters_ext_encode(uint8_t *data, const struct vb_pma_select *s, const struct vb_port_counters *c)
{
	struct vb_writer w = vb_writer(data, VB_PMA_DATA);

	select_encode(&w, s);
	vb_put32(&w, 0);
	vb_put64(&w, c->xmit_data);
	vb_put64(&w, c->rcv_data);
	vb_put64(&w, c->xmit_pkts);
	vb_put64(&w, c->rcv_pkts);
	vb_put64(&w, c->unicast_xmit);
	vb_put64(&w, c->unicast_rcv);
	vb_put64(&w, c->multicast_xmit);
	vb_put64(&w, c->multicast_rcv);
	vb_put_zeros(&w, w.len - w.pos);
}

void vb_class_port_info_encode(uint8_t *data, const struct vb_class_port_info *c)
{
	struct vb_writer w = vb_writer(data, VB_CLASS_PORT_INFO);

	vb_put8(&w, c->base_version);
	vb_put8(&w, c->class_version);
	vb_put16(&w, c->cap_mask);
	vb_put32(&w, c->cap_mask2 << 5 | (c->resp_time & 31));
	vb_put_zeros(&w, w.len - w.pos);
}

void vb_class_port_info_decode(struct vb_class_port_info *c, const uint8_t *data)
{
	struct vb_reader r = vb_reader(data, VB_CLASS_PORT_INFO);

	c->base_version = vb_get8(&r);
	c->class_version = vb_get8(&r);
	c->cap_mask = vb_get16(&r);
	uint32_t v = vb_get32(&r);
	c->cap_mask2 = v >> 5;
	c->resp_time = v & 31;
}
