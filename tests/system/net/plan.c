// plan.c - the requests of each side of `verify`, which both derive from one seed
// SPDX-License-Identifier: MIT
#include "plan.h"

#include <string.h>

static uint64_t mix(uint64_t v)
{
	v = (v ^ v >> 30) * 0xbf58476d1ce4e5b9;
	v = (v ^ v >> 27) * 0x94d049bb133111eb;
	return v ^ v >> 31;
}

static uint64_t draw(struct plan *p)
{
	return mix(p->random += 0x9e3779b97f4a7c15);
}

static uint32_t below(struct plan *p, uint32_t limit)
{
	return (uint32_t)(draw(p) % limit);
}

void plan_init(struct plan *p, uint64_t seed, uint32_t side, enum transport transport, uint32_t mtu, uint32_t largest,
               uint32_t kinds)
{
	*p = (struct plan){.random = mix(seed * 2 + side),
	                   .seed = seed,
	                   .side = side,
	                   .transport = transport,
	                   .mtu = mtu,
	                   .largest = transport == UD ? mtu : largest};
	p->kinds = kinds & (transport == RC ? (1u << KINDS) - 1 : transport == UC ? 0xfu : 0x3u);
}

bool takes_receive(enum kind kind)
{
	return kind == SEND || kind == SEND_IMM || kind == WRITE_IMM;
}

static uint32_t length(struct plan *p)
{
	uint32_t n;

	switch (below(p, 8)) {
	case 0:
		n = below(p, 3);
		break;
	case 1:
		n = below(p, 64) + 1;
		break;
	case 2:
		n = below(p, p->mtu) + 1;
		break;
	case 3:
		n = p->mtu - 1 + below(p, 3);
		break;
	case 4:
		n = p->mtu * (1 + below(p, 4));
		break;
	case 5:
		n = p->mtu * (1 + below(p, 4)) + below(p, 5);
		break;
	default:
		n = below(p, p->largest) + 1;
		break;
	}
	return n < p->largest ? n : p->largest;
}

static void atomic(struct plan *p, struct request *r)
{
	r->len = 8;
	r->cell = below(p, CELLS);
	r->operand = draw(p);
	r->was = p->cells[r->cell];
	if (r->kind == FETCH_ADD) {
		p->cells[r->cell] += r->operand;
		return;
	}
	r->compare = below(p, 3) ? r->was : r->was + 1; /* a third of them finds a different value */
	if (r->compare == r->was)
		p->cells[r->cell] = r->operand;
}

/* Data that an earlier write of this round has stored; if there is none, an ordinary read. */
static void read_back(struct plan *p, struct request *r, uint32_t i)
{
	for (uint32_t n = 0; n < i; n++) {
		const struct request *w = &p->requests[(i - 1 - n)];

		if ((w->kind == WRITE || w->kind == WRITE_IMM) && w->len) {
			r->back = i - 1 - n;
			r->len = w->len;
			r->offset = w->offset;
			r->tag = w->tag;
			return;
		}
	}
	r->kind = READ;
}

static void one(struct plan *p, struct request *r, uint32_t i)
{
	bool last = i == SLOTS - 1;

	*r = (struct request){.imm = (uint32_t)draw(p),
	                      .cuts = (uint8_t)(1 + below(p, 3)),
	                      .tag = mix(p->seed + mix((p->round * SLOTS + i) * 2 + p->side))};
	do
		r->kind = (enum kind)below(p, KINDS);
	while (!(p->kinds & 1u << r->kind));
	if (last && !takes_receive(r->kind))
		r->kind = SEND; /* the value that the other side waits for */
	r->len = length(p);
	if (p->transport == UD && r->len < 8)
		r->len = 8; /* its first bytes identify it */
	r->offset = below(p, p->largest - r->len + 1);
	r->signaled = last || below(p, 4) == 0;
	r->inlined = r->len && r->len <= 64 && below(p, 2);
	if (r->kind == FETCH_ADD || r->kind == CMP_SWAP)
		atomic(p, r);
	else if (r->kind == READ_BACK)
		read_back(p, r, i);
	if (r->kind == READ) {
		r->len += !r->len;
		r->offset = below(p, (p->largest - r->len) / 8 + 1) * 8;
	}
	if (r->cuts > r->len)
		r->cuts = 1;
}

void plan_next(struct plan *p)
{
	p->round++;
	for (uint32_t i = 0; i < SLOTS; i++) {
		one(p, &p->requests[i], i);
		p->bytes += p->requests[i].len;
	}
}

void fill(uint8_t *bytes, uint32_t len, uint64_t tag)
{
	uint32_t at = 0;

	for (; at + 8 <= len; at += 8) {
		uint64_t v = mix(tag + at);

		memcpy(bytes + at, &v, 8);
	}
	uint64_t v = mix(tag + at);

	memcpy(bytes + at, &v, len - at);
}

bool is_filled(const uint8_t *bytes, uint32_t len, uint64_t tag, uint32_t *where)
{
	for (uint32_t at = 0; at < len; at += 8) {
		uint64_t v = mix(tag + at);

		if (memcmp(bytes + at, &v, len - at < 8 ? len - at : 8)) {
			*where = at;
			return false;
		}
	}
	return true;
}

uint64_t readable_tag(uint64_t seed, uint32_t side)
{
	return mix(seed + 77 + side) & ~7ull;
}
