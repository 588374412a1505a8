// plan.h - the requests of each side of `verify`, which both derive from one seed
// SPDX-License-Identifier: MIT
#pragma once
#include <stdbool.h>
#include <stdint.h>

enum kind { SEND, SEND_IMM, WRITE, WRITE_IMM, READ, READ_BACK, FETCH_ADD, CMP_SWAP, KINDS };
enum transport { RC, UC, UD };

enum { SLOTS = 32, CELLS = 4, MARGIN = 64 };

struct request {
	enum kind kind;
	uint32_t len, offset; /* within its slot, or within the readable range */
	uint32_t imm;
	uint32_t back;         /* READ_BACK: the request of this round that wrote the data */
	uint32_t cell;         /* atomics */
	uint64_t operand;      /* the value to add or to swap in */
	uint64_t compare, was; /* the expected old value of the cell */
	uint64_t tag;          /* identifies its payload */
	uint8_t cuts;          /* number of pieces of the payload */
	bool signaled, inlined;
};

/* One side's requests, one round at a time. The same seed gives the same requests. */
struct plan {
	uint64_t random, seed;
	uint32_t side;
	enum transport transport;
	uint32_t mtu, largest, kinds; /* kinds: a bit for each kind that may occur */
	uint64_t round, bytes;
	uint64_t cells[CELLS];
	struct request requests[SLOTS];
};

void plan_init(struct plan *, uint64_t seed, uint32_t side, enum transport, uint32_t mtu, uint32_t largest,
               uint32_t kinds);
void plan_next(struct plan *);
bool takes_receive(enum kind);
/* The bytes of a tag: a function of tag and position. */
void fill(uint8_t *bytes, uint32_t len, uint64_t tag);
bool is_filled(const uint8_t *bytes, uint32_t len, uint64_t tag, uint32_t *where);
uint64_t readable_tag(uint64_t seed, uint32_t side);
