// block.c - reading, writing, verifying and comparing blocks
// follows: SBC-3, 5.2 (COMPARE AND WRITE), 5.8 to 5.11, 5.26 to 5.29, 5.32 to 5.42
// SPDX-License-Identifier: MIT
#include "scsi/internal.h"

enum { BYTCHK_MEDIUM, BYTCHK_ALL, BYTCHK_RESERVED, BYTCHK_ONE };

uint64_t sc_lu_blocks(const struct sc_lu *lu)
{
	return lu->backend->size / lu->backend->block;
}

uint32_t sc_write_protection(const struct sc_lu *lu)
{
	return lu->backend->readonly ? SC_S_WRITE_PROTECTED : lu->mode.protected ? SC_S_SOFTWARE_PROTECTED : SC_S_NONE;
}

uint32_t sc_lba_range(struct sc_task *t)
{
	const uint8_t *c = t->cdb;

	switch (c[0] >> 5) {
	case 0:
		t->lba = sc_get24(c + 1) & 0x1fffff;
		t->blocks = c[4] ? c[4] : 256;
		break;
	case 4:
		t->lba = sc_get64(c + 2);
		t->blocks = c[0] == SC_COMPARE_WRITE ? c[13] : sc_get32(c + 10);
		break;
	case 5:
		t->lba = sc_get32(c + 2);
		t->blocks = sc_get32(c + 6);
		break;
	default:
		t->lba = sc_get32(c + 2);
		t->blocks = sc_get16(c + 7);
		break;
	}
	uint64_t all = sc_lu_blocks(t->lu);

	return t->lba > all || t->blocks > all - t->lba ? SC_S_LBA : SC_S_NONE;
}

uint32_t sc_check_range(struct sc_task *t)
{
	return sc_lba_range(t);
}

/* Sets length to the bytes of the blocks that a command transfers. */
static uint32_t check_transfer(struct sc_task *t)
{
	uint32_t sense = sc_lba_range(t);

	if (sense)
		return sense;
	if (t->blocks > SC_TRANSFER_MAX / t->lu->backend->block)
		return SC_S_FIELD_IN_CDB;
	t->length = (uint32_t)t->blocks * t->lu->backend->block;
	return SC_S_NONE;
}

static uint64_t offset_of(const struct sc_task *t)
{
	return t->lba * t->lu->backend->block;
}

static uint32_t data_length(const struct sc_task *t)
{
	return (uint32_t)t->blocks * t->lu->backend->block;
}

/* ---- READ ---- */

uint32_t sc_check_read(struct sc_task *t)
{
	return check_transfer(t);
}

static void has_read(struct sc_task *t, int error)
{
	if (error)
		sc_error(t, error, false);
	else
		sc_give(t, t->length, t->length);
}

void sc_run_read(struct sc_task *t)
{
	if (t->blocks)
		sc_io(t, NB_READ, offset_of(t), t->length, t->data, has_read);
	else
		sc_good(t);
}

/* ---- WRITE, WRITE AND VERIFY ---- */

uint32_t sc_check_write(struct sc_task *t)
{
	uint32_t sense = check_transfer(t);

	t->fetch = t->length;
	t->fua = t->cdb[0] != SC_WRITE6 && (t->cdb[1] & 0x08);
	return sense ? sense : sc_write_protection(t->lu);
}

uint32_t sc_check_write_verify(struct sc_task *t)
{
	uint32_t sense = sc_check_write(t);

	t->fua = true;
	t->length *= 2; /* what is read back comes behind the data-out */
	return sense;
}

static void has_verified(struct sc_task *t, int error)
{
	uint32_t n = data_length(t);

	if (error)
		sc_error(t, error, false);
	else if ((t->cdb[1] & 0x02) && memcmp(t->data, t->data + n, n) != 0)
		sc_fail(t, SC_S_MISCOMPARE);
	else
		sc_good(t);
}

static void has_written(struct sc_task *t, int error)
{
	if (error)
		sc_error(t, error, true);
	else if (t->length > t->fetch && t->row->run == sc_run_write)
		sc_io(t, NB_READ, offset_of(t), t->fetch, t->data + t->fetch, has_verified);
	else
		sc_good(t);
}

void sc_run_write(struct sc_task *t)
{
	if (t->blocks)
		sc_io(t, NB_WRITE, offset_of(t), t->fetch, t->data, has_written);
	else
		sc_good(t);
}

/* ---- VERIFY ---- */

uint32_t sc_check_verify(struct sc_task *t)
{
	unsigned check = t->cdb[1] >> 1 & 3;
	uint32_t sense = check_transfer(t);

	if (sense)
		return sense;
	if (check == BYTCHK_RESERVED)
		return SC_S_FIELD_IN_CDB;
	if (!t->blocks)
		return SC_S_NONE;
	t->fetch = check == BYTCHK_ALL ? t->length : check == BYTCHK_ONE ? t->lu->backend->block : 0;
	t->length += check == BYTCHK_ONE ? NB_ALIGN : t->fetch; /* first the data-out, then the medium's */
	return SC_S_NONE;
}

static void has_compared(struct sc_task *t, int error)
{
	unsigned check = t->cdb[1] >> 1 & 3;
	uint32_t n = data_length(t), block = t->lu->backend->block;
	const uint8_t *medium = t->data + t->length - n;

	if (error) {
		sc_error(t, error, false);
		return;
	}
	for (uint32_t at = 0; check && at < n; at += block)
		if (memcmp(medium + at, t->data + (check == BYTCHK_ALL ? at : 0), block) != 0) {
			sc_fail(t, SC_S_MISCOMPARE);
			return;
		}
	sc_good(t);
}

void sc_run_verify(struct sc_task *t)
{
	uint32_t n = data_length(t);

	if (n)
		sc_io(t, NB_READ, offset_of(t), n, t->data + t->length - n, has_compared);
	else
		sc_good(t);
}

/* ---- COMPARE AND WRITE ---- */

uint32_t sc_check_compare_write(struct sc_task *t)
{
	uint32_t sense = sc_lba_range(t), n;

	if (sense)
		return sense;
	if (t->blocks > 32) /* page B0h */
		return SC_S_FIELD_IN_CDB;
	if ((sense = sc_write_protection(t->lu)))
		return sense;
	n = data_length(t);
	t->fetch = 2 * n;
	t->length = 3 * n;
	t->exclusive = true; /* no command may write between the comparison and the write */
	t->fua = t->cdb[1] & 0x08;
	return SC_S_NONE;
}

static void has_read_to_compare(struct sc_task *t, int error)
{
	uint32_t n = data_length(t);
	const uint8_t *medium = t->data + 2 * n;

	if (error) {
		sc_error(t, error, false);
		return;
	}
	for (uint32_t i = 0; i < n; i++)
		if (medium[i] != t->data[i]) {
			sc_fail_at(t, SC_S_MISCOMPARE, i);
			return;
		}
	sc_io(t, NB_WRITE, offset_of(t), n, t->data + n, has_written);
}

void sc_run_compare_write(struct sc_task *t)
{
	uint32_t n = data_length(t);

	if (n)
		sc_io(t, NB_READ, offset_of(t), n, t->data + 2 * n, has_read_to_compare);
	else
		sc_good(t);
}

/* ---- SYNCHRONIZE CACHE ---- */

void sc_run_sync(struct sc_task *t)
{
	sc_io(t, NB_FLUSH, 0, 0, NULL, has_written);
}
