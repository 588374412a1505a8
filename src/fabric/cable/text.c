// text.c - a guest gets the topology in pieces, several of which are under way at once
// see: fabric/cable/cable.h
// SPDX-License-Identifier: MIT
#include <stdlib.h>

#include "fabric/cable/cable.h"

enum { TEXT_MOST = 64 << 20 };

bool vb_cable_text_begin(struct vb_cable_text *x, const struct vb_cable_tell *t)
{
	*x = (struct vb_cable_text){0};
	if (!t->whole || t->whole > TEXT_MOST)
		return false;
	x->whole = t->whole;
	x->pieces = (x->whole + VB_CABLE_PIECE - 1) / VB_CABLE_PIECE;
	x->bytes = malloc(x->whole + 1u);
	x->have = calloc(x->pieces, 1);
	if (!x->bytes || !x->have) {
		vb_cable_text_free(x);
		return false;
	}
	x->bytes[x->whole] = '\0';
	if (vb_cable_text_take(x, t))
		return true;
	vb_cable_text_free(x);
	return false;
}

bool vb_cable_text_next(struct vb_cable_text *x, uint32_t *at)
{
	while (x->next < x->pieces && x->have[x->next])
		x->next++;
	if (x->next == x->pieces || x->next >= x->first + VB_CABLE_WINDOW)
		return false;
	*at = x->next++ * VB_CABLE_PIECE;
	return true;
}

bool vb_cable_text_take(struct vb_cable_text *x, const struct vb_cable_tell *t)
{
	uint32_t i = t->at / VB_CABLE_PIECE, rest = t->at < x->whole ? x->whole - t->at : 0;

	if (t->whole != x->whole || t->at % VB_CABLE_PIECE || !rest ||
	    t->len != (rest < VB_CABLE_PIECE ? rest : VB_CABLE_PIECE))
		return false;
	memcpy(x->bytes + t->at, t->bytes, t->len);
	x->have[i] = 1;
	while (x->first < x->pieces && x->have[x->first])
		x->first++;
	return true;
}

void vb_cable_text_again(struct vb_cable_text *x)
{
	x->next = x->first;
}

bool vb_cable_text_is_whole(const struct vb_cable_text *x)
{
	return x->pieces && x->first == x->pieces;
}

void vb_cable_text_free(struct vb_cable_text *x)
{
	free(x->bytes);
	free(x->have);
	*x = (struct vb_cable_text){0};
}
