// dm_test.c - the device management agent of the SRP target: what it says of itself, and what it says to wrong requests
// follows: IBA volume 1, 16.3 (device management), 13.4.7 (status)
// SPDX-License-Identifier: MIT
#include "../../support/check.h"
#include "scsi/be.h"
#include "srp/dm.h"

static const struct sp_dm target = {.id_ext = 0x1122334455667788,
                                    .ioc_guid = 0x0002c90300001234,
                                    .service_id = 0x10615b3,
                                    .iu_len = 16384,
                                    .rdma_len = 1 << 20,
                                    .depth = 64,
                                    .name = "a target"};
static uint8_t mad[SP_DM_MAD];

static uint16_t ask(uint8_t method, uint16_t attribute, uint32_t modifier)
{
	memset(mad, 0xee, sizeof(mad));
	memcpy(mad, (uint8_t[]){1, SP_DM_CLASS, 1, method}, 4);
	sc_put16(mad + 16, attribute);
	sc_put32(mad + 20, modifier);
	CHECK(sp_dm_answer(&target, mad));
	SAME(mad[3], 0x81);
	return sc_get16(mad + 4);
}

static void a_unit_has_one_controller_with_one_service(void)
{
	SAME(ask(1, 0x01, 0), 0);
	SAME(sc_get16(mad + 64), 0x0101);
	SAME(ask(1, 0x10, 0), 0);
	SAME(mad[66], 1);
	SAME(mad[68], 0x10); /* in the first slot */
	SAME(ask(1, 0x11, 1), 0);
	SAME(sc_get64(mad + 64), target.ioc_guid);
	SAME(sc_get16(mad + 94), 0x609e);
	SAME(mad[118], 1);
	CHECK(!strcmp((char *)mad + 128, "a target"));
	SAME(ask(1, 0x12, 1 << 16 | 3 << 8), 0);
	CHECK(!strcmp((char *)mad + 64, "SRP.T10:1122334455667788"));
	SAME(sc_get64(mad + 104), target.service_id);
}

static void what_is_not_there_gets_its_status(void)
{
	SAME(ask(1, 0x11, 0), 0x1c);
	SAME(ask(1, 0x11, 2), 0x100);
	SAME(ask(1, 0x12, 2 << 16), 0x100);
	SAME(ask(1, 0x12, 1 << 16 | 1 << 8 | 1), 0x1c);
	SAME(ask(1, 0x12, 1 << 16 | 4 << 8), 0x1c);
	SAME(ask(1, 0x20, 0), 0x0c);
	SAME(ask(2, 0x10, 0), 0x0c);
	SAME(ask(2, 0x01, 0), 0);
	SAME(ask(3, 0x10, 0), 0x08);
}

static void another_version_gets_its_status_and_another_class_nothing(void)
{
	memset(mad, 0, sizeof(mad));
	memcpy(mad, (uint8_t[]){1, SP_DM_CLASS, 2, 1}, 4);
	CHECK(sp_dm_answer(&target, mad));
	SAME(sc_get16(mad + 4), 0x04);
	CHECK(!sp_dm_answer(&target, mad)); /* that was a response */
	memcpy(mad, (uint8_t[]){1, 4, 1, 1}, 4);
	CHECK(!sp_dm_answer(&target, mad));
}

int main(void)
{
	RUN(a_unit_has_one_controller_with_one_service);
	RUN(what_is_not_there_gets_its_status);
	RUN(another_version_gets_its_status_and_another_class_nothing);
	return 0;
}
