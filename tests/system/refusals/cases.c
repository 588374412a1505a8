// cases.c - which wrong use is possible with which operation on which type of queue pair
// follows: IBA volume 1, table 97 (operations by transport service)
// SPDX-License-Identifier: MIT
#include "cases.h"

#include <stdio.h>

static const struct {
	const char *text;
	enum ibv_wr_opcode opcode;
	unsigned types;
} operations[] = {
#define X(name, text, opcode, types) {text, opcode, types},
        OPERATIONS(X)
#undef X
};

static const struct {
	const char *text;
	unsigned types, operations;
	bool large;
} wrongs[] = {
#define X(name, text, types, operations, large) {text, types, operations, large},
        WRONGS(X)
#undef X
};

bool plan_is_atomic(const struct plan *p)
{
	return ATOMICS >> p->operation & 1;
}

bool plan_is_window(const struct plan *p)
{
	return p->wrong >= WRONG_WINDOW_1 && p->wrong <= WRONG_WINDOW_PD;
}

bool plan_has_other_qp(const struct plan *p)
{
	return p->wrong == WRONG_WINDOW_QP || p->wrong == WRONG_WINDOW_PD;
}

bool plan_has_srq(const struct plan *p)
{
	return p->type == XRC || (p->wrong >= WRONG_SRQ && p->wrong <= WRONG_SRQ_ERR);
}

uint32_t plan_unit(const struct plan *p)
{
	return plan_is_atomic(p) || p->operation == OP_STORE ? 8 : 1;
}

enum wrong plan_receive(const struct plan *p)
{
	switch (p->wrong) {
	case WRONG_SRQ_SHORT:
		return WRONG_RECV_SHORT;
	case WRONG_SRQ_LKEY:
		return WRONG_RECV_LKEY;
	case WRONG_SRQ_RIGHT:
		return WRONG_RECV_RIGHT;
	case WRONG_SRQ_END:
		return WRONG_RECV_END;
	case WRONG_SRQ_BOTH_PD:
		return WRONG_RECV_PD;
	case WRONG_SRQ_RNR_0:
		return WRONG_RNR_0;
	default:
		return (enum wrong)p->wrong;
	}
}

bool plan_is_answered(const struct plan *p)
{
	return ANSWERED >> p->operation & 1;
}

uint32_t plan_length(const struct plan *p)
{
	if (p->wrong == WRONG_EMPTY || p->wrong == WRONG_EMPTY_RIGHT)
		return 0;
	if ((BINDS | OP(INV)) >> p->operation & 1)
		return 0;
	return plan_unit(p) == 8 ? 8 : p->large ? LARGE_BYTES : SMALL_BYTES;
}

enum ibv_wr_opcode plan_opcode(const struct plan *p)
{
	return operations[p->operation].opcode;
}

bool plan_type_has_it(const struct plan *p)
{
	return operations[p->operation].types & p->type;
}

void plan_name(const struct plan *p, char *text, size_t n)
{
	snprintf(text, n, "%s %s%s %s",
	         p->type == RC   ? "rc"
	         : p->type == UC ? "uc"
	         : p->type == UD ? "ud"
	                         : "xrc",
	         operations[p->operation].text, p->large ? "-large" : "", wrongs[p->wrong].text);
}

/* An operation that the type does not have is the wrong use itself. Only a queue pair that is made for it can be asked for
 * a flush. XRC has what RC has: a few cases show that. */
static bool is_possible(const struct plan *p)
{
	if (!(wrongs[p->wrong].types & p->type) || !(wrongs[p->wrong].operations >> p->operation & 1))
		return false;
	if (!plan_type_has_it(p))
		return p->wrong == WRONG_NOTHING && !p->large && p->operation != OP_FLUSH;
	if (p->large &&
	    (!wrongs[p->wrong].large || p->type == UD || !((SENDS | WRITES | OP(READ)) >> p->operation & 1)))
		return false;
	if (p->type == XRC && p->wrong != WRONG_NOTHING)
		return !p->large && (FEW | OP(WRITE_IMM) | PLACES) >> p->operation & 1;
	return p->operation != OP_FLUSH || (p->wrong != WRONG_EMPTY && p->wrong != WRONG_EMPTY_RIGHT);
}

static bool step(struct plan *p)
{
	if (!p->type) {
		p->type = RC;
		return true;
	}
	p->large = !p->large;
	if (p->large)
		return true;
	if (++p->wrong < WRONG_COUNT)
		return true;
	p->wrong = 0;
	if (++p->operation < OPERATION_COUNT)
		return true;
	p->operation = 0;
	p->type = (uint8_t)(p->type << 1);
	return p->type <= XRC;
}

bool plan_next(struct plan *p)
{
	do {
		if (!step(p))
			return false;
	} while (!is_possible(p));
	return true;
}
