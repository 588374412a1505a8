// mode.c - MODE SENSE: the caching page and the control page; nothing can be changed
// follows: SPC-4, 6.13, 7.5; SBC-3, 6.5.5 (caching)
// SPDX-License-Identifier: MIT
#include "scsi/internal.h"

#define CHANGEABLE 1
#define SAVED 3

static uint8_t *page_caching(const struct sc_lu *lu, bool changeable, uint8_t *at)
{
	memset(at, 0, 20);
	at[0] = 0x08;
	at[1] = 18;
	if (!changeable && (lu->backend->volatile_cache || lu->backend->cached))
		at[2] = 0x04; /* WCE */
	return at + 20;
}

static uint8_t *page_control(bool changeable, uint8_t *at)
{
	memset(at, 0, 12);
	at[0] = 0x0a;
	at[1] = 10;
	if (changeable)
		return at + 12;
	at[3] = 0x10;             /* the unit may reorder commands */
	at[5] = 0x40;             /* TAS: tasks that others abort end with TASK ABORTED */
	sc_put16(at + 8, 0xffff); /* busy timeout: unlimited */
	return at + 12;
}

/* A short block descriptor, or a long one. SBC-3, 6.5.2 */
static uint32_t block_descriptor(const struct sc_lu *lu, bool with_long, uint8_t *at)
{
	uint64_t blocks = sc_lu_blocks(lu);

	memset(at, 0, 16);
	if (with_long) {
		sc_put64(at, blocks);
		sc_put32(at + 12, lu->backend->block);
		return 16;
	}
	sc_put32(at, blocks > 0xffffffff ? 0xffffffff : (uint32_t)blocks);
	sc_put32(at + 4, lu->backend->block); /* the first of these bytes is reserved, and 0 */
	return 8;
}

void sc_run_mode_sense(struct sc_task *t)
{
	bool ten = t->cdb[0] == SC_MODE_SENSE10, with_long = ten && (t->cdb[1] & 0x10);
	uint8_t control = t->cdb[2] >> 6, page = t->cdb[2] & 0x3f, sub = t->cdb[3], *d = t->data;
	uint32_t head = ten ? 8 : 4, descriptor = 0;

	if (control == SAVED) {
		sc_fail(t, SC_S_SAVING);
		return;
	}
	if ((sub && !(sub == 0xff && page == 0x3f)) || (page != 0x08 && page != 0x0a && page != 0x3f)) {
		sc_fail(t, SC_S_FIELD_IN_CDB);
		return;
	}
	memset(d, 0, head);
	if (!(t->cdb[1] & 0x08)) /* DBD */
		descriptor = block_descriptor(t->lu, with_long, d + head);
	uint8_t *at = d + head + descriptor;

	if (page != 0x0a)
		at = page_caching(t->lu, control == CHANGEABLE, at);
	if (page != 0x08)
		at = page_control(control == CHANGEABLE, at);
	uint32_t len = (uint32_t)(at - d);
	uint8_t specific = (uint8_t)((t->lu->backend->readonly ? 0x80 : 0) | 0x10); /* WP, DPOFUA */

	if (ten) {
		sc_put16(d, (uint16_t)(len - 2));
		d[3] = specific;
		d[4] = with_long;
		sc_put16(d + 6, (uint16_t)descriptor);
		sc_give(t, len, sc_get16(t->cdb + 7));
	} else {
		d[0] = (uint8_t)(len - 1);
		d[2] = specific;
		d[3] = (uint8_t)descriptor;
		sc_give(t, len, t->cdb[4]);
	}
}
