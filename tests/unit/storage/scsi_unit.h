// scsi_unit.h - an initiator without a transport, for the tests of the SCSI layer
// SPDX-License-Identifier: MIT
#ifndef SCSI_UNIT_H
#define SCSI_UNIT_H

#include "../../support/check.h"
#include "scsi/device.h"
#include "slow_medium.h"

#define BLOCK 512u
#define BLOCKS 4096u

/* The outcome of a command. */
struct outcome {
	struct sc_task task;
	unsigned done;
	uint8_t data[SC_MEMORY_MAX];
};

static struct sc_target target;
static struct sc_nexus nexus, other;

static void outcome_done(struct sc_task *t)
{
	((struct outcome *)(void *)t)->done++;
}

/* Unit 0 is memory, unit 1 a slow medium. */
static void target_open(void)
{
	struct nb_config c = {.kind = "memory", .size = BLOCK * BLOCKS};
	struct nb_backend *b;

	memset(&target, 0, sizeof(target));
	CHECK(!nb_open(&c, NULL, &b));
	CHECK(!sc_lu_add(&target, 0, b, "test"));
	CHECK((b = slow_open(BLOCK * BLOCKS, calloc(BLOCKS, BLOCK))) && slow.bytes);
	CHECK(!sc_lu_add(&target, 1, b, "slow"));
	memset(&nexus, 0, sizeof(nexus));
	memset(&other, 0, sizeof(other));
	nexus.port[0] = 1;
	other.port[0] = 2;
	sc_nexus_open(&target, &nexus);
	sc_nexus_open(&target, &other);
	memset(nexus.attention, 0, sizeof(nexus.attention));
	memset(other.attention, 0, sizeof(other.attention));
}

static void target_close(void)
{
	sc_nexus_close(&nexus);
	sc_nexus_close(&other);
	sc_target_close(&target);
	free(slow.bytes);
}

/* Starts a command; data-out is in o->data already. */
static void begin(struct outcome *o, struct sc_nexus *n, unsigned lun, const uint8_t *cdb, size_t len, uint32_t out)
{
	o->task = (struct sc_task){.nexus = n, .offered = out, .done = outcome_done};
	o->done = 0;
	o->task.lun[1] = (uint8_t)lun;
	memcpy(o->task.cdb, cdb, len);
	sc_task_start(&o->task);
	if (o->done)
		return;
	CHECK(o->task.length <= sizeof(o->data));
	o->task.data = o->data;
	sc_task_run(&o->task);
}

static struct outcome said;

/* Carries a command out on unit 0. Returns its status, or its sense code. */
static uint32_t command_of(struct sc_nexus *n, const uint8_t *cdb, size_t len, uint32_t out)
{
	begin(&said, n, 0, cdb, len, out);
	SAME(said.done, 1);
	if (said.task.status != SC_CHECK_CONDITION)
		return said.task.status;
	SAME(said.task.sense_len, SC_SENSE_LEN);
	return SC_SENSE(said.task.sense[2], said.task.sense[12], said.task.sense[13]);
}

#define CDB(...) ((const uint8_t[]){__VA_ARGS__}), sizeof((const uint8_t[]){__VA_ARGS__})
#define COMMAND(...) command_of(&nexus, CDB(__VA_ARGS__), 0)
#define COMMAND_OUT(out, ...) command_of(&nexus, CDB(__VA_ARGS__), out)

#endif
