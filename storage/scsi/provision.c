// provision.c - capacity, UNMAP, WRITE SAME, GET LBA STATUS
// follows: SBC-3, 4.7 (logical block provisioning), 5.5, 5.15, 5.16, 5.30, 5.43, 5.44
// SPDX-License-Identifier: MIT
#include "scsi/internal.h"

#define PATTERN (256u << 10) /* bytes that WRITE SAME writes at once, if they are not zeros */

void sc_run_capacity10(struct sc_task *t)
{
	uint64_t last = sc_lu_blocks(t->lu) - 1;

	sc_put32(t->data, last > 0xffffffff ? 0xffffffff : (uint32_t)last);
	sc_put32(t->data + 4, t->lu->backend->block);
	sc_give(t, 8, 8);
}

void sc_run_capacity16(struct sc_task *t)
{
	memset(t->data, 0, 32);
	sc_put64(t->data, sc_lu_blocks(t->lu) - 1);
	sc_put32(t->data + 8, t->lu->backend->block);
	t->data[14] = 0x80 | 0x40; /* LBPME, LBPRZ */
	sc_give(t, 32, sc_get32(t->cdb + 10));
}

/* A backend does not say which blocks are unmapped: all are "mapped or unknown". */
void sc_run_lba_status(struct sc_task *t)
{
	uint64_t lba = sc_get64(t->cdb + 2), all = sc_lu_blocks(t->lu);

	if (lba >= all) {
		sc_fail(t, SC_S_LBA);
		return;
	}
	memset(t->data, 0, 24);
	sc_put32(t->data, 20);
	sc_put64(t->data + 8, lba);
	sc_put32(t->data + 16, all - lba > 0xffffffff ? 0xffffffff : (uint32_t)(all - lba));
	sc_give(t, 24, sc_get32(t->cdb + 10));
}

/* ---- UNMAP ---- */

uint32_t sc_check_unmap(struct sc_task *t)
{
	t->length = t->fetch = sc_get16(t->cdb + 7);
	t->punch = true;
	uint32_t sense = sc_write_protection(t->lu);

	return sense ? sense : t->length && t->length < 8 ? SC_S_LIST_LENGTH : SC_S_NONE;
}

static uint32_t check_ranges(const struct sc_task *t, uint32_t n)
{
	uint64_t all = sc_lu_blocks(t->lu);

	if (n > SC_UNMAP_RANGES)
		return SC_S_FIELD_IN_LIST;
	for (uint32_t i = 0; i < n; i++) {
		uint64_t lba = sc_get64(t->data + 8 + 16 * i), blocks = sc_get32(t->data + 16 + 16 * i);

		if (lba > all || blocks > all - lba)
			return SC_S_LBA;
	}
	return SC_S_NONE;
}

static void unmap_next(struct sc_task *t, int error)
{
	const struct nb_backend *b = t->lu->backend;

	while (!error && t->step < t->blocks) {
		const uint8_t *range = t->data + 8 + 16 * (size_t)t->step++;
		uint64_t n = sc_get32(range + 8);

		if (!n)
			continue;
		sc_io(t, b->zeros_after_discard ? NB_DISCARD : NB_ZERO, sc_get64(range) * b->block, n * b->block, NULL,
		      unmap_next);
		return;
	}
	if (error)
		sc_error(t, error, true);
	else
		sc_good(t);
}

void sc_run_unmap(struct sc_task *t)
{
	if (!t->length) {
		sc_good(t);
		return;
	}
	uint32_t bytes = sc_get16(t->data + 2), sense = bytes > t->length - 8 ? SC_S_LIST_LENGTH : SC_S_NONE;

	if (!sense)
		sense = check_ranges(t, bytes / 16);
	if (sense) {
		sc_fail(t, sense);
		return;
	}
	t->blocks = bytes / 16; /* of ranges */
	unmap_next(t, 0);
}

/* ---- WRITE SAME ---- */

static bool no_data(const struct sc_task *t)
{
	return t->cdb[0] == SC_WRITE_SAME16 && (t->cdb[1] & 1); /* NDOB */
}

uint32_t sc_check_write_same(struct sc_task *t)
{
	uint32_t sense = sc_lba_range(t), block = t->lu->backend->block;

	if (sense)
		return sense;
	if (!t->blocks || t->blocks > SC_SAME_MAX / block)
		return SC_S_FIELD_IN_CDB;
	if ((sense = sc_write_protection(t->lu)))
		return sense;
	t->fetch = no_data(t) ? 0 : block;
	t->length = no_data(t) ? 0 : NB_ALIGN + PATTERN;
	t->punch = t->cdb[1] & 0x08;
	return SC_S_NONE;
}

static void write_same_next(struct sc_task *t, int error)
{
	uint32_t block = t->lu->backend->block;
	uint64_t left = t->blocks * block - t->at, n = left < PATTERN ? left : PATTERN, offset = t->lba * block + t->at;

	if (error) {
		sc_error(t, error, true);
	} else if (!left) {
		sc_good(t);
	} else {
		t->at += n;
		sc_io(t, NB_WRITE, offset, n, t->data + NB_ALIGN, write_same_next);
	}
}

static void has_zeroed(struct sc_task *t, int error)
{
	if (error)
		sc_error(t, error, true);
	else
		sc_good(t);
}

void sc_run_write_same(struct sc_task *t)
{
	uint32_t block = t->lu->backend->block;
	bool zeros = no_data(t) || (!t->data[0] && !memcmp(t->data, t->data + 1, block - 1));

	if (zeros) {
		sc_io(t, NB_ZERO, t->lba * block, t->blocks * block, NULL, has_zeroed);
		return;
	}
	for (uint32_t at = 0; at < PATTERN && at < t->blocks * block; at += block)
		memcpy(t->data + NB_ALIGN + at, t->data, block);
	t->at = 0;
	write_same_next(t, 0);
}
