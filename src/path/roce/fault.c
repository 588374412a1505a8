// fault.c - fault injection in RoCE packets: holds packets, inverts bits
// see: docs/faults.md
// SPDX-License-Identifier: MIT
#include "path/roce/fault.h"

#include <stdlib.h>
#include <string.h>

#include "core/device.h"
#include "frame/header.h"
#include "frame/icrc.h"
#include "frame/opcode.h"

#define HELD_MAX 8192         /* packets; more are lost, as in the queue of a slow link */
#define PASSED_BY 8u          /* a reordered packet is sent after at most so many later ones */
#define PASSED_BY_NS VB_MS(5) /* or after this time */
#define OUTSIDE 46u           /* bytes of Ethernet, IPv4, UDP and checksum around a packet, for rate */

struct held {
	struct held *next;
	struct vb_roce_held h;
	uint64_t due;   /* ns */
	unsigned after; /* packets that pass by first; 0: only the time counts */
	uint8_t packet[];
};

struct vb_roce_fault {
	struct held *first, *last; /* in the order of due */
	unsigned n, counting;      /* counting: those that some packets pass by */
};

struct vb_roce_fault *vb_roce_fault_new(void)
{
	return calloc(1, sizeof(struct vb_roce_fault));
}

void vb_roce_fault_free(struct vb_roce_fault *f)
{
	for (struct held *h = f ? f->first : NULL, *next; h; h = next) {
		next = h->next;
		free(h);
	}
	free(f);
}

static void insert_by_due(struct vb_roce_fault *f, struct held *h)
{
	struct held **at = f->last && f->last->due <= h->due ? &f->last->next : &f->first;

	while (*at && (*at)->due <= h->due)
		at = &(*at)->next;
	h->next = *at;
	*at = h;
	if (!h->next)
		f->last = h;
	f->n++;
	f->counting += h->after != 0;
}

/* Returns the copy, or NULL if it is lost. */
static struct held *hold_packet(struct vb_roce_fault *f, const uint8_t *packet, size_t len,
                                const struct vb_fault_verdict *v)
{
	struct held *h = f->n < HELD_MAX ? calloc(1, sizeof(*h) + len) : NULL;

	if (!h)
		return NULL;
	memcpy(h->packet, packet, len);
	h->h.len = (uint32_t)len;
	h->h.corrupt = v->corrupt && !v->icrc_right;
	h->h.random = v->random;
	h->due = vb_now() + (v->delay ? v->delay : PASSED_BY_NS);
	h->after = v->delay ? 0 : 1 + v->random % PASSED_BY;
	insert_by_due(f, h);
	return h;
}

bool vb_roce_fault_hold(struct vb_roce_fault *f, const uint8_t *packet, size_t len, const struct vb_roce_addr *to,
                        const struct vb_fault_verdict *v)
{
	if (!v->delay && !v->reorder)
		return false;
	struct held *h = hold_packet(f, packet, len, v);

	if (h) {
		h->h.to = *to;
		vb_fault_wake(h->due);
	}
	return true;
}

bool vb_roce_fault_release(struct vb_roce_fault *f, uint8_t *packet, struct vb_roce_held *held)
{
	uint64_t now = f->first ? vb_now() : 0;
	struct held **at = &f->first, *before = NULL;

	while (*at && (*at)->due > now && (*at)->after != 1) {
		if (!f->counting)
			return false;
		if ((*at)->after)
			(*at)->after--;
		before = *at;
		at = &(*at)->next;
	}
	struct held *h = *at;

	if (!h)
		return false;
	*at = h->next;
	if (f->last == h)
		f->last = before;
	f->n--;
	f->counting -= h->after != 0;
	*held = h->h;
	memcpy(packet, h->packet, h->h.len);
	free(h);
	return true;
}

uint64_t vb_roce_fault_due(const struct vb_roce_fault *f)
{
	return f->first ? f->first->due : 0;
}

void vb_roce_fault_flip(uint8_t *packet, size_t len, uint32_t random)
{
	size_t at = (random >> 3) % (len + VB_ICRC_LEN - 1);

	at += at >= VB_BTH_RESV8A;
	packet[at] ^= (uint8_t)(1 << (random & 7));
}

void vb_roce_fault_flip_payload(uint8_t *packet, size_t len, uint32_t random)
{
	const struct vb_opcode_info *info = vb_opcode_info(packet[0]);
	size_t from = info && info->header_len < len ? info->header_len : len - 1;

	packet[from + (random >> 3) % (len - from)] ^= (uint8_t)(1 << (random & 7));
}

static const char *device_of(const struct vb_qp *qp)
{
	return qp ? VB_CONTEXT_OF(qp)->dev->dev.name : NULL;
}

void vb_roce_fault_tx(const struct vb_qp *qp, const struct vb_roce_addr *to, const uint8_t *packet, size_t len,
                      struct vb_fault_verdict *v)
{
	const struct vb_fault_subject s = {
	        .path = VB_FAULT_ROCE,
	        .dir = VB_FAULT_TX,
	        .kind = (uint8_t)vb_fault_kind_of_roce(packet[0]),
	        .opcode = packet[0],
	        .qpn = qp ? qp->qp.qp_num : 0,
	        .peer = to->dst,
	        .device = device_of(qp),
	        .len = (uint32_t)len + VB_ICRC_LEN + OUTSIDE,
	};

	vb_fault_ask_wire(&s, v);
}

/* A right ICRC for a packet that was changed. */
static void seal_again(const struct vb_roce_arrival *a, uint8_t *packet, size_t len)
{
	struct vb_icrc_cache *cache = calloc(1, sizeof(*cache));

	if (cache)
		vb_icrc_encode(packet + len, vb_icrc_packet(cache, &a->flow, a->ip.id, packet, len));
	free(cache);
}

unsigned vb_roce_fault_rx(struct vb_node *node, struct vb_roce_fault *f, const struct vb_roce_arrival *a,
                          uint8_t *packet, size_t len)
{
	if (len < VB_BTH_LEN + VB_ICRC_LEN)
		return 1;
	const struct vb_qp *qp = vb_find_roce_receiver(node, vb_bth_dest_qpn(packet));
	const struct vb_fault_subject s = {
	        .path = VB_FAULT_ROCE,
	        .dir = VB_FAULT_RX,
	        .kind = (uint8_t)vb_fault_kind_of_roce(packet[0]),
	        .opcode = packet[0],
	        .qpn = vb_bth_dest_qpn(packet),
	        .peer = a->flow.src,
	        .device = device_of(qp),
	        .len = (uint32_t)len + OUTSIDE,
	};
	struct vb_fault_verdict v;
	struct held *h;

	vb_fault_ask_wire(&s, &v);
	if (v.drop)
		return 0;
	if (v.corrupt && v.icrc_right) {
		vb_roce_fault_flip_payload(packet, len - VB_ICRC_LEN, v.random);
		seal_again(a, packet, len - VB_ICRC_LEN);
	} else if (v.corrupt) {
		vb_roce_fault_flip(packet, len - VB_ICRC_LEN, v.random);
	}
	if (!v.delay && !v.reorder)
		return 1 + v.duplicate;
	h = hold_packet(f, packet, len, &v);
	if (h) {
		h->h.corrupt = false;
		h->h.from = *a;
		vb_fault_wake(h->due);
	}
	return 0;
}
