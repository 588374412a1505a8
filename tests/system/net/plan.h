// plan.h - what each side of `verify` asks of the other, known to both from one seed
// SPDX-License-Identifier: MIT
#pragma once
#include <stdbool.h>
#include <stdint.h>

enum kind { SEND, SEND_IMM, WRITE, WRITE_IMM, READ, READ_BACK, FETCH_ADD, CMP_SWAP, KINDS };
enum transport { RC, UC, UD };

enum { SLOTS = 32, CELLS = 4, MARGIN = 64 };

struct request {
	enum kind kind;
	uint32_t len, offset; /* within its slot, or within what may be read */
	uint32_t imm;
	uint32_t back;         /* READ_BACK: which request of the round wrote what it reads */
	uint32_t cell;         /* atomics */
	uint64_t operand;      /* what is added, or what is swapped in */
	uint64_t compare, was; /* what the cell holds before, if all goes well */
	uint64_t tag;          /* names its payload */
	uint8_t cuts;          /* into how many pieces the payload is cut */
	bool signaled, inlined;
};

/* One side's requests, a round at a time; whoever has the same seed gets the same. */
struct plan {
	uint64_t random, seed;
	uint32_t side;
	enum transport transport;
	uint32_t mtu, largest, kinds; /* kinds: a bit for each that may occur */
	uint64_t round, bytes;
	uint64_t cells[CELLS];
	struct request requests[SLOTS];
};

void plan_init(struct plan *, uint64_t seed, uint32_t side, enum transport, uint32_t mtu, uint32_t largest,
               uint32_t kinds);
void plan_next(struct plan *);
bool takes_receive(enum kind);
/* The bytes that a tag names: a function of tag and position. */
void fill(uint8_t *bytes, uint32_t len, uint64_t tag);
bool is_filled(const uint8_t *bytes, uint32_t len, uint64_t tag, uint32_t *where);
uint64_t readable_tag(uint64_t seed, uint32_t side);
