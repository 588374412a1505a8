// session.c - one end of the cables between two fabric processes: greeting, states of links, packets, credits
// see: fabric/cable/cable.h
// SPDX-License-Identifier: MIT
#include "fabric/cable/cable.h"

#include "frame/header.h"

enum {
	GREETING = VB_CABLE_HEADER + 24,
	STATUS_HEAD = 8 + 4 + 4,
	STATUS_LINES = 50, /* of a datagram, so that it fits any path */
	NONE_BEGINS = 0xffff,
	HOLDS = 1, /* a flag of STATUS */
	SKB = 768, /* what the kernel counts for a datagram beside its bytes, at least */
};

/* --- keys --- */

static struct vb_sip_key derive(const struct vb_sip_key *from, const void *bytes, size_t len)
{
	static const uint8_t first[8] = {1}, second[8] = {2};

	return (struct vb_sip_key){{vb_siphash(from, first, sizeof(first), bytes, len),
	                            vb_siphash(from, second, sizeof(second), bytes, len)}};
}

struct vb_sip_key vb_cable_key(const void *secret, size_t len)
{
	static const struct vb_sip_key fixed;

	return derive(&fixed, secret, len);
}

/* Of what goes from one to the other: the two directions differ, so that nothing can be sent back to its sender. */
static struct vb_sip_key session_key(const struct vb_cable *c, uint64_t from, uint64_t to)
{
	uint8_t nonces[16];
	struct vb_writer w = vb_writer(nonces, sizeof(nonces));

	vb_put(&w, 8, from);
	vb_put(&w, 8, to);
	return derive(&c->secret, nonces, sizeof(nonces));
}

void vb_cable_init(struct vb_cable *c, const struct vb_cable_ops *ops, void *own, uint64_t digest, const void *secret,
                   size_t secret_len, uint32_t room, uint32_t send_room)
{
	*c = (struct vb_cable){.ops = ops, .own = own, .digest = digest, .own_room = room, .send_room = send_room};
	c->secret = vb_cable_key(secret, secret_len);
	c->next_nonce = ops->nonce(own);
}

/* --- sending --- */

static void greet(struct vb_cable *c, uint8_t kind, uint64_t nonce, uint64_t to)
{
	const struct vb_cable_head h = {.kind = kind};
	uint8_t d[GREETING];
	struct vb_writer w = vb_writer(d + VB_CABLE_HEADER, GREETING - VB_CABLE_HEADER);
	struct vb_sip_key key = kind == VB_CABLE_HELLO ? c->secret : session_key(c, nonce, to);

	vb_cable_head_encode(d, &h);
	vb_put(&w, 8, nonce);
	vb_put(&w, 8, to);
	vb_put(&w, 8, c->digest);
	vb_cable_seal(&key, d, sizeof(d));
	c->counts.sent++;
	c->ops->send(c->own, d, sizeof(d));
}

static bool add_line(struct vb_cable *c, struct vb_writer *w, size_t i)
{
	struct vb_cable_line line;

	if (!c->ops->line(c->own, i, &line))
		return false;
	vb_cable_line_encode(w, &line);
	return true;
}

void vb_cable_tell(struct vb_cable *c, bool lines)
{
	size_t i = 0, n;

	if (!c->up)
		return;
	do {
		struct vb_cable_head h = {.kind = VB_CABLE_STATUS, .seq = ++c->sent_seq};
		uint8_t d[VB_CABLE_HEADER + STATUS_HEAD + STATUS_LINES * VB_CABLE_LINE];
		struct vb_writer w = vb_writer(d + VB_CABLE_HEADER, sizeof(d) - VB_CABLE_HEADER);

		vb_cable_head_encode(d, &h);
		vb_put(&w, 8, c->taken_seq);
		vb_put32(&w, c->own_room);
		vb_put32(&w, c->holds ? HOLDS : 0);
		for (n = 0; lines && n < STATUS_LINES && add_line(c, &w, i); n++)
			i++;
		vb_cable_seal(&c->out, d, VB_CABLE_HEADER + w.pos);
		c->counts.sent++;
		c->ops->send(c->own, d, VB_CABLE_HEADER + w.pos);
	} while (n == STATUS_LINES);
}

size_t vb_cable_credit(const struct vb_cable *c, size_t datagram)
{
	uint64_t most = c->room / (datagram + SKB), under_way = c->sent_seq - c->acked_seq;

	return c->up && under_way < most ? (size_t)(most - under_way) : 0;
}

void vb_cable_record(uint8_t record[VB_CABLE_RECORD], size_t packet_len, unsigned hops)
{
	record[0] = (uint8_t)(packet_len >> 8);
	record[1] = (uint8_t)packet_len;
	record[2] = (uint8_t)(hops < 255 ? hops : 255);
	record[3] = 0;
}

static size_t record_len(const uint8_t *record)
{
	return (size_t)(record[0] << 8 | record[1]);
}

size_t vb_cable_pack(struct vb_cable *c, uint8_t *out, size_t room, size_t datagram, uint64_t guid, uint8_t port,
                     const uint8_t *records, size_t len)
{
	size_t body = datagram - VB_CABLE_HEADER, at = 0, next = 0, used = 0;

	if ((len + body - 1) / body * VB_CABLE_HEADER + len > room)
		return 0;
	while (at < len) {
		size_t n = len - at < body ? len - at : body;
		struct vb_cable_head h = {.kind = VB_CABLE_PACKETS, .guid = guid, .port = port, .seq = ++c->sent_seq};

		h.first = next < at + n ? (uint16_t)(next - at) : NONE_BEGINS;
		while (next < at + n)
			next += VB_CABLE_RECORD + record_len(records + next);
		vb_cable_head_encode(out + used, &h);
		memcpy(out + used + VB_CABLE_HEADER, records + at, n);
		vb_cable_seal(&c->out, out + used, VB_CABLE_HEADER + n);
		c->counts.sent++;
		used += VB_CABLE_HEADER + n;
		at += n;
	}
	return used;
}

/* --- the session --- */

static void begin(struct vb_cable *c, uint64_t peer_nonce)
{
	if (c->up)
		c->ops->is_there(c->own, false);
	c->nonce = c->next_nonce;
	c->next_nonce = c->ops->nonce(c->own);
	c->peer_nonce = peer_nonce;
	c->in = session_key(c, peer_nonce, c->nonce);
	c->out = session_key(c, c->nonce, peer_nonce);
	c->sent_seq = c->heard_seq = c->taken_seq = c->acked_seq = 0;
	c->room = 0;
	c->holds = c->is_held = false;
	c->part_len = 0;
	c->up = true;
	c->heard = false;
	c->heard_at = c->now;
	c->beat_at = c->now + VB_CABLE_BEAT;
	c->counts.sessions++;
	c->ops->is_there(c->own, true);
	greet(c, VB_CABLE_WELCOME, c->nonce, peer_nonce);
	vb_cable_tell(c, true);
}

static void end(struct vb_cable *c)
{
	c->up = false;
	c->ops->is_there(c->own, false);
}

void vb_cable_time(struct vb_cable *c, uint64_t now)
{
	c->now = now;
	if (c->up && now - c->heard_at >= VB_CABLE_SILENCE)
		end(c);
	if (now < c->beat_at)
		return;
	c->beat_at = now + VB_CABLE_BEAT;
	if (!c->up) {
		greet(c, VB_CABLE_HELLO, c->next_nonce, 0);
		return;
	}
	if (!c->heard) /* the last greeting may be lost */
		greet(c, VB_CABLE_WELCOME, c->nonce, c->peer_nonce);
	vb_cable_tell(c, true);
}

uint64_t vb_cable_deadline(const struct vb_cable *c)
{
	uint64_t silent = c->heard_at + VB_CABLE_SILENCE;

	return c->up && silent < c->beat_at ? silent : c->beat_at;
}

/* --- receiving --- */

static void take_greeting(struct vb_cable *c, const struct vb_cable_head *h, const uint8_t *d, size_t len)
{
	struct vb_reader r = vb_reader(d + VB_CABLE_HEADER, len - VB_CABLE_HEADER);
	uint64_t peer = vb_get64(&r), own = vb_get64(&r), digest = vb_get64(&r);
	struct vb_sip_key key = h->kind == VB_CABLE_HELLO ? c->secret : session_key(c, peer, own);

	if (len != GREETING) {
		c->counts.malformed++;
	} else if (!vb_cable_is_sealed(&key, d, len)) {
		c->counts.bad_tag++;
	} else if (digest != c->digest) {
		c->counts.other_topology++;
	} else if (peer == c->next_nonce || peer == c->nonce) { /* our own, sent back: both keys would be the same */
		c->counts.overtaken++;
	} else if (h->kind == VB_CABLE_HELLO) {
		greet(c, VB_CABLE_WELCOME, c->next_nonce, peer);
	} else if (own == c->next_nonce) {
		begin(c, peer);
	} else if (!c->up || own != c->nonce || peer != c->peer_nonce) { /* else it is said once more */
		c->counts.overtaken++;
	}
}

static void take_status(struct vb_cable *c, const uint8_t *body, size_t len)
{
	struct vb_reader r = vb_reader(body, len);
	uint64_t acked = vb_get64(&r);
	uint32_t room = vb_get32(&r), flags = vb_get32(&r);

	if (r.failed || vb_left(&r) % VB_CABLE_LINE || acked > c->sent_seq) {
		c->counts.malformed++;
		return;
	}
	c->room = room < c->send_room ? room : c->send_room;
	if (acked > c->acked_seq)
		c->acked_seq = acked;
	c->is_held = flags & HOLDS;
	while (vb_left(&r)) {
		struct vb_cable_line line;

		vb_cable_line_decode(&r, &line);
		c->counts.no_such_cable += !c->ops->told(c->own, &line);
	}
}

static void drop_part(struct vb_cable *c)
{
	c->part_len = 0;
	c->counts.bad_record++;
}

/* A record is whole, or its head is. False: its length is wrong. */
static bool record_came(struct vb_cable *c)
{
	size_t len = record_len(c->part);

	if (c->part_len == VB_CABLE_RECORD)
		return len >= VB_LRH_LEN + VB_BTH_LEN + VB_ICRC_LEN + VB_VCRC_LEN && len <= VB_CABLE_PACKET_MOST;
	c->part_len = 0;
	c->counts.no_such_cable += !c->ops->packet(c->own, c->part_head.guid, c->part_head.port, c->part[2],
	                                           c->part + VB_CABLE_RECORD, len);
	return true;
}

static bool continues(const struct vb_cable *c, const struct vb_cable_head *h)
{
	const struct vb_cable_head *p = &c->part_head;

	return c->part_len && h->seq == p->seq + 1 && h->guid == p->guid && h->port == p->port;
}

static void take_packets(struct vb_cable *c, const struct vb_cable_head *h, const uint8_t *body, size_t len)
{
	size_t at = 0;

	if (!continues(c, h)) {
		if (c->part_len)
			drop_part(c);
		at = h->first;
	}
	c->part_head = *h;
	while (at < len) {
		size_t want = VB_CABLE_RECORD;

		if (c->part_len >= VB_CABLE_RECORD)
			want += record_len(c->part);
		size_t n = want - c->part_len < len - at ? want - c->part_len : len - at;

		memcpy(c->part + c->part_len, body + at, n);
		c->part_len += n;
		at += n;
		if (c->part_len == want && !record_came(c)) {
			drop_part(c);
			return;
		}
	}
}

void vb_cable_input(struct vb_cable *c, const uint8_t *d, size_t len, uint64_t now)
{
	struct vb_cable_head h;

	c->now = now;
	c->counts.received++;
	switch (vb_cable_head_decode(&h, d, len)) {
	case VB_CABLE_MALFORMED:
		c->counts.malformed++;
		return;
	case VB_CABLE_OTHER_VERSION:
		c->counts.bad_version++;
		return;
	case VB_CABLE_WELL_FORMED:
		break;
	}
	if (h.kind > VB_CABLE_PACKETS) {
		c->counts.malformed++;
		return;
	}
	if (h.kind == VB_CABLE_HELLO || h.kind == VB_CABLE_WELCOME) {
		take_greeting(c, &h, d, len);
		return;
	}
	if (!c->up || !vb_cable_is_sealed(&c->in, d, len)) {
		c->counts.bad_tag++;
		return;
	}
	if (h.seq <= c->heard_seq) {
		c->counts.overtaken++;
		return;
	}
	c->counts.missing += h.seq - c->heard_seq - 1;
	c->heard_seq = h.seq;
	c->heard = true;
	c->heard_at = now;
	if (h.kind == VB_CABLE_STATUS)
		take_status(c, d + VB_CABLE_HEADER, len - VB_CABLE_HEADER);
	else
		take_packets(c, &h, d + VB_CABLE_HEADER, len - VB_CABLE_HEADER);
}
