// dm.c - answers of the device management agent; pure functions of bytes
// follows: IBA volume 1, 16.3.3 (attributes), 13.4.7 (status); SRP (ANSI INCITS 365, T10/1415-D), annex B.7
// SPDX-License-Identifier: MIT
#include "srp/dm.h"

#include <stdio.h>

#include "scsi/be.h"

enum { AT_METHOD = 3, AT_STATUS = 4, AT_ATTRIBUTE = 16, AT_MODIFIER = 20, AT_DATA = 64, DATA = SP_DM_MAD - AT_DATA };
enum { GET = 0x01, SET = 0x02, GET_RESPONSE = 0x81 };
enum { CLASS_PORT_INFO = 0x01, IO_UNIT_INFO = 0x10, IO_CONTROLLER_PROFILE = 0x11, SERVICE_ENTRIES = 0x12 };
enum { GOOD = 0, BAD_VERSION = 0x04, NO_METHOD = 0x08, NO_ATTRIBUTE = 0x0c, BAD_VALUE = 0x1c, NO_CONTROLLER = 0x100 };

#define RESPONSE_TIME 18 /* 4.096 us × 2^18: a second */
#define SLOTS_PER_BYTE 2u
#define SLOT_PRESENT 0x10  /* the first slot, in the high half: there is a controller */
#define IO_CLASS 0x0100    /* of SRP as the standard has it; 0xff00: before */
#define IO_SUBCLASS 0x609e /* of T10 */
#define PROTOCOL 0x0108
#define CAPABILITIES 0x2b /* messages are sent to it and by it; it reads and writes by RDMA */

/* 13.4.8.1 */
static void class_port_info(uint8_t *d)
{
	d[0] = 1; /* base version, class version */
	d[1] = 1;
	d[7] = RESPONSE_TIME;
}

/* 16.3.3.3: one slot, which has a controller */
static void io_unit_info(uint8_t *d)
{
	sc_put16(d, 1); /* change id: nothing changes while the target runs */
	d[2] = 1;
	d[4] = SLOT_PRESENT;
}

/* 16.3.3.4, and the values that annex B.7 asks for */
static void controller_profile(const struct sp_dm *t, uint8_t *d)
{
	sc_put64(d, t->ioc_guid);
	sc_put32(d + 8, (uint32_t)(t->ioc_guid >> 40)); /* the vendor's OUI */
	sc_put16(d + 28, IO_CLASS);
	sc_put16(d + 30, IO_SUBCLASS);
	sc_put16(d + 32, PROTOCOL);
	sc_put16(d + 34, 1);
	sc_put16(d + 40, t->depth);
	d[43] = 16; /* RDMA reads at once */
	sc_put32(d + 44, t->iu_len);
	sc_put32(d + 48, t->rdma_len);
	d[52] = CAPABILITIES;
	d[54] = 1; /* service entries */
	snprintf((char *)d + 64, 64, "%s", t->name);
}

/* 16.3.3.5: four at most, of which we have the first */
static void service_entries(const struct sp_dm *t, uint8_t *d)
{
	snprintf((char *)d, 40, "SRP.T10:%016llx", (unsigned long long)t->id_ext);
	sc_put64(d + 40, t->service_id);
}

static uint16_t get_attribute(const struct sp_dm *t, uint16_t attribute, uint32_t modifier, uint8_t *d)
{
	uint32_t slot = attribute == SERVICE_ENTRIES ? modifier >> 16 : modifier, high = modifier >> 8 & 0xff,
	         low = modifier & 0xff;

	memset(d, 0, DATA);
	switch (attribute) {
	case CLASS_PORT_INFO:
		class_port_info(d);
		return GOOD;
	case IO_UNIT_INFO:
		io_unit_info(d);
		return GOOD;
	case IO_CONTROLLER_PROFILE:
		if (slot != 1)
			return slot ? NO_CONTROLLER : BAD_VALUE;
		controller_profile(t, d);
		return GOOD;
	case SERVICE_ENTRIES:
		if (slot != 1)
			return slot ? NO_CONTROLLER : BAD_VALUE;
		if (low || high > 3)
			return BAD_VALUE;
		service_entries(t, d);
		return GOOD;
	default:
		return NO_ATTRIBUTE;
	}
}

bool sp_dm_answer(const struct sp_dm *t, uint8_t mad[SP_DM_MAD])
{
	uint16_t attribute = sc_get16(mad + AT_ATTRIBUTE), status;

	if (mad[0] != 1 || mad[1] != SP_DM_CLASS || mad[AT_METHOD] & 0x80)
		return false;
	if (mad[2] != 1)
		status = BAD_VERSION;
	else if (mad[AT_METHOD] == GET)
		status = get_attribute(t, attribute, sc_get32(mad + AT_MODIFIER), mad + AT_DATA);
	else if (mad[AT_METHOD] == SET) /* where traps are sent to: we send none, and keep nothing */
		status = attribute == CLASS_PORT_INFO ? GOOD : NO_ATTRIBUTE;
	else
		status = NO_METHOD;
	mad[AT_METHOD] = GET_RESPONSE;
	sc_put16(mad + AT_STATUS, status);
	return true;
}
