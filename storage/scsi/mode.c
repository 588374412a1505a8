// mode.c - MODE SENSE and MODE SELECT: the caching page and the control page. What is changed lasts until a reset
// follows: SPC-4, 6.11 to 6.14, 7.5; SBC-3, 6.5.5 (caching)
// SPDX-License-Identifier: MIT
#include "scsi/internal.h"

enum { CURRENT, CHANGEABLE, DEFAULTS, SAVED };
enum { CACHING = 0x08, CONTROL = 0x0a, ALL_PAGES = 0x3f };
#define CACHING_LEN 20u
#define CONTROL_LEN 12u
#define WCE 0x04u     /* byte 2 of the caching page */
#define D_SENSE 0x04u /* byte 2 of the control page */
#define SWP 0x08u     /* … byte 4 */

static bool has_cache(const struct sc_lu *lu)
{
	return lu->backend->volatile_cache || lu->backend->cached;
}

static uint8_t *page_caching(const struct sc_lu *lu, unsigned which, uint8_t *at)
{
	memset(at, 0, CACHING_LEN);
	at[0] = CACHING;
	at[1] = CACHING_LEN - 2;
	if (has_cache(lu) && (which != CURRENT || !lu->mode.write_through))
		at[2] = WCE;
	return at + CACHING_LEN;
}

static uint8_t *page_control(const struct sc_lu *lu, unsigned which, uint8_t *at)
{
	memset(at, 0, CONTROL_LEN);
	at[0] = CONTROL;
	at[1] = CONTROL_LEN - 2;
	if (which == CHANGEABLE || (which == CURRENT && lu->mode.sense_descriptors))
		at[2] = D_SENSE;
	if (which == CHANGEABLE || (which == CURRENT && lu->mode.protected))
		at[4] = SWP;
	if (which == CHANGEABLE)
		return at + CONTROL_LEN;
	at[3] = 0x10;             /* the unit may reorder commands */
	at[5] = 0x40;             /* TAS: tasks that others abort end with TASK ABORTED */
	sc_put16(at + 8, 0xffff); /* busy timeout: unlimited */
	return at + CONTROL_LEN;
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
	if ((sub && !(sub == 0xff && page == ALL_PAGES)) || (page != CACHING && page != CONTROL && page != ALL_PAGES)) {
		sc_fail(t, SC_S_FIELD_IN_CDB);
		return;
	}
	memset(d, 0, head);
	if (!(t->cdb[1] & 0x08)) /* DBD */
		descriptor = block_descriptor(t->lu, with_long, d + head);
	uint8_t *at = d + head + descriptor;

	if (page != CONTROL)
		at = page_caching(t->lu, control, at);
	if (page != CACHING)
		at = page_control(t->lu, control, at);
	uint32_t len = (uint32_t)(at - d);
	uint8_t specific = (uint8_t)((sc_write_protection(t->lu) ? 0x80 : 0) | 0x10); /* WP, DPOFUA */

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

/* ---- MODE SELECT ---- */

uint32_t sc_check_mode_select(struct sc_task *t)
{
	t->length = t->fetch = t->cdb[0] == SC_MODE_SELECT10 ? sc_get16(t->cdb + 7) : t->cdb[4];
	return t->length && !(t->cdb[1] & 0x10) ? SC_S_FIELD_IN_CDB
	                                        : SC_S_NONE; /* PF: pages as the standard has them */
}

/* A block descriptor may say what is so anyway, or a number of blocks that stands for all. */
static uint32_t check_descriptor(const struct sc_lu *lu, const uint8_t *at, uint32_t len, bool with_long)
{
	if (!len)
		return SC_S_NONE;
	if (len != (with_long ? 16 : 8))
		return SC_S_FIELD_IN_LIST;
	uint64_t blocks = with_long ? sc_get64(at) : sc_get32(at), all = sc_lu_blocks(lu);
	uint32_t block = with_long ? sc_get32(at + 12) : sc_get24(at + 5);
	bool every = !blocks || blocks == all || blocks == (with_long ? UINT64_MAX : UINT32_MAX);

	return every && block == lu->backend->block ? SC_S_NONE : SC_S_FIELD_IN_LIST;
}

/* Takes the page at *at, of which left bytes are there, into *m. SPC-4, 6.11: what cannot be changed must be as it is. */
static uint32_t take_page(const struct sc_lu *lu, const uint8_t **at, uint32_t *left, struct sc_mode *m)
{
	uint8_t now[CACHING_LEN], may[CACHING_LEN];
	const uint8_t *page = *at;
	bool caching = (page[0] & 0x7f) == CACHING; /* and not SPF */
	uint32_t len = caching ? CACHING_LEN : CONTROL_LEN;

	if (!caching && (page[0] & 0x7f) != CONTROL)
		return SC_S_FIELD_IN_LIST;
	if (*left < 2)
		return SC_S_LIST_LENGTH;
	if (page[1] != len - 2)
		return SC_S_FIELD_IN_LIST;
	if (*left < len)
		return SC_S_LIST_LENGTH;
	(caching ? page_caching : page_control)(lu, CURRENT, now);
	(caching ? page_caching : page_control)(lu, CHANGEABLE, may);
	for (uint32_t i = 2; i < len; i++)
		if ((now[i] ^ page[i]) & ~may[i])
			return SC_S_FIELD_IN_LIST;
	if (caching) {
		m->write_through = has_cache(lu) && !(page[2] & WCE);
	} else {
		m->sense_descriptors = page[2] & D_SENSE;
		m->protected = page[4] & SWP;
	}
	*at += len;
	*left -= len;
	return SC_S_NONE;
}

/* Reads the whole list before anything changes. */
static uint32_t read_list(const struct sc_task *t, struct sc_mode *m)
{
	bool ten = t->cdb[0] == SC_MODE_SELECT10;
	uint32_t head = ten ? 8 : 4, left = t->length;
	const uint8_t *at = t->data;

	if (left < head)
		return SC_S_LIST_LENGTH;
	uint32_t descriptor = ten ? sc_get16(at + 6) : at[3];
	bool with_long = ten && (at[4] & 1);

	if (descriptor > left - head)
		return SC_S_LIST_LENGTH;
	uint32_t sense = check_descriptor(t->lu, at + head, descriptor, with_long);

	at += head + descriptor;
	left -= head + descriptor;
	while (!sense && left)
		sense = take_page(t->lu, &at, &left, m);
	return sense;
}

static void has_synced(struct sc_task *t, int error)
{
	if (error)
		sc_error(t, error, true);
	else
		sc_good(t);
}

void sc_run_mode_select(struct sc_task *t)
{
	struct sc_lu *lu = t->lu;
	struct sc_mode m = lu->mode, before = lu->mode;
	uint32_t sense = t->length ? read_list(t, &m) : SC_S_NONE;

	if (sense) {
		sc_fail(t, sense);
		return;
	}
	lu->mode = m;
	if (m.write_through != before.write_through || m.protected != before.protected ||
	    m.sense_descriptors != before.sense_descriptors)
		sc_attention_set(lu, t->nexus, SC_UA_MODE);
	if (m.write_through && !before.write_through) /* what was written before must not be less durable */
		sc_io(t, NB_FLUSH, 0, 0, NULL, has_synced);
	else
		sc_good(t);
}
