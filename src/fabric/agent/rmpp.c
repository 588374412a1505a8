// rmpp.c - transfers of more than one datagram: segments, windows, acknowledgements, reassembly
// follows: IBA volume 1, 13.6 (RMPP)
// SPDX-License-Identifier: MIT
#include <stdlib.h>

#include "fabric/agent/internal.h"

enum { WINDOW = 64, RESEND_MS = 500, RESENDS = 8, ASSEMBLY_MS = 10000, ASSEMBLIES_MOST = 256 };

/* --- the sender --- */

void vb_rmpp_begin(const struct vb_agents *a, struct waiting *w)
{
	unsigned head = vb_rmpp_header_len(w->mad[1]), each = VB_MAD_LEN - head;
	size_t data = w->len > head ? w->len - head : 0;

	w->segments = data ? (uint32_t)((data + each - 1) / each) : 1;
	w->window = 1; /* 13.6.4: until the first acknowledgement */
	w->due = vb_agents_after(a, w->timeout + RESEND_MS * VB_NS_PER_MS);
	w->timeout = w->timeout ? w->timeout : RESEND_MS * VB_NS_PER_MS;
	w->retries = RESENDS;
}

static void send_segment(struct vb_agents *a, const struct waiting *w, uint32_t number)
{
	unsigned head = vb_rmpp_header_len(w->mad[1]), each = VB_MAD_LEN - head;
	size_t data = w->len > head ? w->len - head : 0, at = (size_t)(number - 1) * each;
	size_t n = data - at < each ? data - at : each;
	uint8_t mad[VB_MAD_LEN] = {0};
	bool last = number == w->segments;
	uint32_t class_part = head - VB_RMPP_END,
	         per_segment = VB_RMPP_PAYLOAD - each; /* payload counts the class's header */
	struct vb_rmpp h = {
	        .version = VB_RMPP_VERSION,
	        .type = VB_RMPP_DATA,
	        .flags = (uint8_t)(VB_RMPP_ACTIVE | (number == 1 ? VB_RMPP_FIRST : 0) | (last ? VB_RMPP_LAST : 0)),
	        .segment = number};

	memcpy(mad, w->mad, head);
	memcpy(mad + head, w->mad + head + at, n);
	if (number == 1) /* of all segments; the last one says it of itself */
		h.length = (uint32_t)(data + (size_t)w->segments * per_segment);
	if (last)
		h.length = (uint32_t)(n + class_part);
	vb_rmpp_encode(mad, &h);
	vb_agent_transmit(a, &w->addr, mad);
}

void vb_rmpp_send_window(struct vb_agents *a, struct waiting *w)
{
	while (w->sent < w->segments && w->sent < w->window)
		send_segment(a, w, ++w->sent);
}

bool vb_rmpp_again(struct vb_agents *a, struct waiting *w)
{
	if (!w->retries)
		return false;
	w->retries--;
	w->sent = w->acked;
	w->due = vb_agents_after(a, RESEND_MS * VB_NS_PER_MS);
	vb_rmpp_send_window(a, w);
	return true;
}

static struct waiting *sender_of(struct vb_agent_file *file, unsigned agent, const uint8_t *mad)
{
	for (struct waiting *w = file->waiting; w; w = w->next)
		if (w->agent == agent && w->segmented && !w->acked_all && vb_agent_tid(w->mad) == vb_agent_tid(mad) &&
		    w->mad[1] == mad[1])
			return w;
	return NULL;
}

static void abort_transfer(struct vb_agents *a, const struct vb_agent_addr *addr, const uint8_t *mad, uint8_t why)
{
	struct vb_rmpp h = {.version = VB_RMPP_VERSION, .type = VB_RMPP_ABORT, .flags = VB_RMPP_ACTIVE, .status = why};
	uint8_t reply[VB_MAD_LEN];

	memcpy(reply, mad, VB_MAD_LEN);
	reply[3] ^= VB_MAD_RESPONSE;
	vb_rmpp_encode(reply, &h);
	vb_agent_transmit(a, addr, reply);
}

static void take_ack(struct vb_agent_file *file, unsigned agent, const struct vb_agent_addr *addr, const uint8_t *mad,
                     const struct vb_rmpp *h)
{
	struct vb_agents *a = file->agents;
	struct waiting *w = sender_of(file, agent, mad);

	if (!w)
		return;
	if (h->segment > w->sent) {
		abort_transfer(a, addr, mad, VB_RMPP_BAD_SEGMENT);
		vb_agent_forget(file, w);
		return;
	}
	if (h->length < w->window && h->length < w->segments) {
		abort_transfer(a, addr, mad, VB_RMPP_BAD_WINDOW);
		vb_agent_forget(file, w);
		return;
	}
	if (h->segment > w->acked) {
		w->acked = h->segment;
		w->retries = RESENDS;
	}
	w->window = h->length > w->window ? h->length : w->window;
	w->due = vb_agents_after(a, RESEND_MS * VB_NS_PER_MS);
	if (w->acked < w->segments) {
		vb_rmpp_send_window(a, w);
		return;
	}
	if (!w->wants_reply) {
		vb_agent_forget(file, w);
		return;
	}
	w->acked_all = true; /* its reply is still to come */
	w->retries = 0;
	w->due = vb_agents_after(a, w->timeout);
}

/* --- the receiver --- */

static bool is_of(const struct assembly *s, unsigned agent, const struct vb_agent_addr *addr, const uint8_t *mad)
{
	return s->agent == agent && s->addr.lid == addr->lid && vb_agent_tid(s->first) == vb_agent_tid(mad) &&
	       s->first[1] == mad[1] && s->first[3] == mad[3];
}

static void drop_assembly(struct vb_agent_file *file, struct assembly *gone)
{
	for (struct assembly **at = &file->assemblies; *at; at = &(*at)->next)
		if (*at == gone) {
			*at = gone->next;
			file->assembly_count--;
			free(gone->bytes);
			free(gone);
			return;
		}
}

/* Finished ones make room. */
static bool has_room(struct vb_agent_file *file)
{
	struct assembly *s = file->assemblies;

	while (file->assembly_count >= ASSEMBLIES_MOST && s && !s->done)
		s = s->next;
	if (file->assembly_count >= ASSEMBLIES_MOST && s)
		drop_assembly(file, s);
	return file->assembly_count < ASSEMBLIES_MOST;
}

static struct assembly *assembly_for(struct vb_agent_file *file, unsigned agent, const struct vb_agent_addr *addr,
                                     const uint8_t *mad, const struct vb_rmpp *h)
{
	struct assembly *s = file->assemblies;

	while (s && !is_of(s, agent, addr, mad))
		s = s->next;
	if (s || h->segment != 1 || !has_room(file))
		return s;
	s = calloc(1, sizeof(*s));
	if (!s)
		return NULL;
	s->addr = *addr;
	s->agent = agent;
	s->next_segment = s->window = 1;
	memcpy(s->first, mad, VB_MAD_LEN);
	s->next = file->assemblies;
	file->assemblies = s;
	file->assembly_count++;
	return s;
}

static void send_ack(struct vb_agents *a, struct assembly *s)
{
	struct vb_rmpp h = {.version = VB_RMPP_VERSION,
	                    .type = VB_RMPP_ACK,
	                    .flags = VB_RMPP_ACTIVE,
	                    .segment = s->next_segment - 1};
	uint8_t mad[VB_MAD_LEN] = {0};

	s->window = h.length = s->next_segment - 1 + WINDOW;
	memcpy(mad, s->first, vb_rmpp_header_len(s->first[1]));
	mad[3] ^= VB_MAD_RESPONSE;
	vb_rmpp_encode(mad, &h);
	vb_agent_transmit(a, &s->addr, mad);
}

static bool append(struct assembly *s, const uint8_t *bytes, size_t n)
{
	if (s->len + n > VB_AGENT_LEN_MOST)
		return false;
	if (s->len + n > s->room) {
		size_t room = s->room ? 2 * s->room : 1024;
		uint8_t *grown;

		while (room < s->len + n)
			room *= 2;
		grown = realloc(s->bytes, room);
		if (!grown)
			return false;
		s->bytes = grown;
		s->room = room;
	}
	memcpy(s->bytes + s->len, bytes, n);
	s->len += n;
	return true;
}

/* The bytes that the last segment has; a length that cannot be counts as full. */
static size_t payload_of(const uint8_t *mad, const struct vb_rmpp *h)
{
	unsigned head = vb_rmpp_header_len(mad[1]), class_part = head - VB_RMPP_END;

	if (!(h->flags & VB_RMPP_LAST) || h->length < class_part || h->length > VB_RMPP_PAYLOAD)
		return VB_MAD_LEN - head;
	return h->length - class_part;
}

static void finish(struct vb_agent_file *file, struct assembly *s)
{
	struct vb_agent_addr addr = s->addr;
	uint8_t *bytes = s->bytes;
	size_t len = s->len;
	unsigned agent = s->agent;

	s->done = true;
	s->bytes = NULL;
	send_ack(file->agents, s);
	vb_agent_give(file, agent, &addr, bytes, len);
	free(bytes);
}

/* A reply that comes in segments is not late while it comes. */
static void postpone(struct vb_agent_file *file, unsigned agent, const uint8_t *mad)
{
	struct waiting *w = mad[3] & VB_MAD_RESPONSE ? vb_agent_asked(file, agent, mad) : NULL;

	if (w)
		w->due = vb_agents_after(file->agents, w->timeout);
}

static void take_segment(struct vb_agent_file *file, unsigned agent, const struct vb_agent_addr *addr,
                         const uint8_t *mad, const struct vb_rmpp *h)
{
	struct vb_agents *a = file->agents;
	unsigned head = vb_rmpp_header_len(mad[1]);

	if (!h->segment || (h->segment == 1) != ((h->flags & VB_RMPP_FIRST) != 0)) {
		abort_transfer(a, addr, mad, VB_RMPP_BAD_FIRST);
		return;
	}
	if ((mad[3] & VB_MAD_RESPONSE) && h->segment == 1 && !vb_agent_asked(file, agent, mad)) {
		abort_transfer(a, addr, mad, VB_RMPP_UNSPECIFIED); /* nobody waits for it */
		return;
	}
	struct assembly *s = assembly_for(file, agent, addr, mad, h);
	if (!s)
		return;
	s->due = vb_agents_after(a, ASSEMBLY_MS * VB_NS_PER_MS);
	if (s->done || h->segment != s->next_segment) {
		if (h->segment < s->next_segment || h->segment <= s->window)
			send_ack(a, s); /* a segment again, or one that is missing */
		return;
	}
	if ((!s->len && !append(s, mad, head)) || !append(s, mad + head, payload_of(mad, h))) {
		abort_transfer(a, addr, mad, VB_RMPP_RESX);
		drop_assembly(file, s);
		return;
	}
	postpone(file, agent, mad);
	s->next_segment++;
	if (h->flags & VB_RMPP_LAST)
		finish(file, s);
	else if (h->segment == s->window)
		send_ack(a, s);
}

/* STOP and ABORT: of a transfer that we send, or one that we receive. */
static void take_end(struct vb_agent_file *file, unsigned agent, const struct vb_agent_addr *addr, const uint8_t *mad)
{
	struct waiting *w = sender_of(file, agent, mad);

	if (w)
		vb_agent_forget(file, w);
	for (struct assembly *s = file->assemblies, *next; s; s = next) {
		next = s->next;
		if (is_of(s, agent, addr, mad))
			drop_assembly(file, s);
	}
}

void vb_rmpp_receive(struct vb_agent_file *file, unsigned agent, const struct vb_agent_addr *addr, const uint8_t *mad)
{
	struct vb_rmpp h;

	vb_rmpp_decode(&h, mad);
	if (h.version != VB_RMPP_VERSION) {
		abort_transfer(file->agents, addr, mad, VB_RMPP_BAD_VERSION);
		return;
	}
	switch (h.type) {
	case VB_RMPP_DATA:
		if (h.status)
			abort_transfer(file->agents, addr, mad, VB_RMPP_BAD_STATUS);
		else
			take_segment(file, agent, addr, mad, &h);
		break;
	case VB_RMPP_ACK:
		take_ack(file, agent, addr, mad, &h);
		break;
	case VB_RMPP_STOP:
	case VB_RMPP_ABORT:
		take_end(file, agent, addr, mad);
		break;
	default:
		abort_transfer(file->agents, addr, mad, VB_RMPP_BAD_TYPE);
	}
}

void vb_rmpp_timer(struct vb_agent_file *file)
{
	for (struct assembly *s = file->assemblies, *next; s; s = next) {
		next = s->next;
		if (s->due <= vb_agents_fabric(file->agents)->now)
			drop_assembly(file, s);
	}
}

void vb_rmpp_forget(struct vb_agent_file *file, unsigned agent)
{
	for (struct assembly *s = file->assemblies, *next; s; s = next) {
		next = s->next;
		if (s->agent == agent)
			drop_assembly(file, s);
	}
}
