// inquiry.c - INQUIRY: standard data, vital product data pages
// follows: SPC-4, 6.6, 7.8; SBC-3, 6.6
// SPDX-License-Identifier: MIT
#include <stdio.h>

#include "scsi/internal.h"

#define VENDOR "VERBENA "
#define PRODUCT "SRP DISK        "
#define NO_UNIT 0x7f /* peripheral qualifier 3, device type 1Fh */
#define PROTOCOL_SRP 4
#define UNMAP_GRANULE 4096u /* bytes; what files and memory free at least */

static uint32_t standard_data(uint8_t *d)
{
	static const uint16_t versions[] = {0x00a0, 0x0460, 0x04c0, 0x0940}; /* SAM-5, SPC-4, SBC-3, SRP */

	d[2] = 6;    /* SPC-4 */
	d[3] = 0x02; /* response data format */
	d[4] = 74 - 5;
	d[7] = 0x02; /* CMDQUE */
	memcpy(d + 8, VENDOR, 8);
	memcpy(d + 16, PRODUCT, 16);
	memcpy(d + 32, VB_VERSION "    ", 4);
	for (unsigned i = 0; i < sizeof(versions) / sizeof(*versions); i++)
		sc_put16(d + 58 + 2 * i, versions[i]);
	return 74;
}

static void serial_text(const struct sc_lu *lu, char text[17])
{
	snprintf(text, 17, "%016llx", (unsigned long long)lu->id);
}

static uint32_t page_serial(const struct sc_lu *lu, uint8_t *d)
{
	char text[17];

	serial_text(lu, text);
	memcpy(d + 4, text, 16);
	return 16;
}

static uint8_t *designator(uint8_t *at, uint8_t set, uint8_t type, const void *bytes, uint8_t len)
{
	at[0] = set;
	at[1] = type;
	at[3] = len;
	memcpy(at + 4, bytes, len);
	return at + 4 + len;
}

/* SPC-4, 7.8.6 */
static uint32_t page_identification(const struct sc_lu *lu, uint8_t *d)
{
	char text[8 + 17] = VENDOR;
	uint8_t naa[8], relative[4] = {0, 0, 0, 1}, *at = d + 4;

	sc_put64(naa, lu->id);
	serial_text(lu, text + 8);
	at = designator(at, 1, 3, naa, sizeof(naa));
	at = designator(at, 2, 1, text, 24); /* T10 vendor ID based */
	at = designator(at, PROTOCOL_SRP << 4 | 1, 0x94, relative, sizeof(relative));
	at = designator(at, PROTOCOL_SRP << 4 | 1, 0x92, lu->target->port, SC_PORT_ID); /* as SRP has it */
	return (uint32_t)(at - d) - 4;
}

/* SPC-4, 7.8.7 */
static uint32_t page_extended(uint8_t *d)
{
	d[5] = 0x07; /* SIMPSUP, ORDSUP, HEADSUP */
	d[6] = 0x01; /* V_SUP */
	return 60;
}

/* SBC-3, 6.6.4 */
static uint32_t page_limits(const struct sc_lu *lu, uint8_t *d)
{
	uint32_t block = lu->backend->block;

	d[4] = 0x01; /* WSNZ */
	d[5] = 32;   /* maximum COMPARE AND WRITE length */
	sc_put16(d + 6, (uint16_t)(UNMAP_GRANULE / block));
	sc_put32(d + 8, SC_TRANSFER_MAX / block);
	sc_put32(d + 12, SC_TRANSFER_MAX / 2 / block); /* optimal */
	sc_put32(d + 20, 0xffffffff);                  /* UNMAP: blocks */
	sc_put32(d + 24, SC_UNMAP_RANGES);
	sc_put32(d + 28, UNMAP_GRANULE / block);
	sc_put32(d + 32, 1u << 31); /* the granules begin at block 0 */
	sc_put64(d + 36, SC_SAME_MAX / block);
	return 60;
}

/* SBC-3, 6.6.2 */
static uint32_t page_characteristics(uint8_t *d)
{
	sc_put16(d + 4, 1); /* does not rotate */
	return 60;
}

/* SBC-3, 6.6.7 */
static uint32_t page_provisioning(uint8_t *d)
{
	d[5] = 0x80 | 0x40 | 0x20 | 0x04; /* UNMAP, WRITE SAME (16) and (10) unmap; what they unmap reads as zeros */
	d[6] = 0x02;                      /* thin provisioned */
	return 4;
}

static int page_of(const struct sc_lu *lu, uint8_t page, uint8_t *d)
{
	static const uint8_t pages[] = {0x00, 0x80, 0x83, 0x86, 0xb0, 0xb1, 0xb2};

	switch (page) {
	case 0x00:
		memcpy(d + 4, pages, sizeof(pages));
		return sizeof(pages);
	case 0x80:
		return (int)page_serial(lu, d);
	case 0x83:
		return (int)page_identification(lu, d);
	case 0x86:
		return (int)page_extended(d);
	case 0xb0:
		return (int)page_limits(lu, d);
	case 0xb1:
		return (int)page_characteristics(d);
	case 0xb2:
		return (int)page_provisioning(d);
	default:
		return -1;
	}
}

void sc_run_inquiry(struct sc_task *t)
{
	uint32_t allocation = sc_get16(t->cdb + 3);
	uint8_t *d = t->data;

	memset(d, 0, SC_REPLY_MAX);
	if (!(t->cdb[1] & 1)) {
		if (t->cdb[2]) {
			sc_fail(t, SC_S_FIELD_IN_CDB);
			return;
		}
		d[0] = t->lu ? 0 : NO_UNIT;
		sc_give(t, standard_data(d), allocation);
		return;
	}
	int len = t->lu ? page_of(t->lu, t->cdb[2], d) : -1;

	if (len < 0) {
		sc_fail(t, SC_S_FIELD_IN_CDB);
		return;
	}
	d[1] = t->cdb[2];
	sc_put16(d + 2, (uint16_t)len);
	sc_give(t, (uint32_t)len + 4, allocation);
}
