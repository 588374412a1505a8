// fuzz_srp.c - hostile initiators at the SRP target: any logins, messages and commands on several channels, data that
// moves late or not at all, a medium that finishes late or fails. All ends, and no memory leaks
// follows: SRP (ANSI INCITS 365, T10/1415-D); SPC-4; SBC-3
// SPDX-License-Identifier: MIT
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>

#define CHECK_FAILED(fmt, ...)                                                          \
	do {                                                                            \
		fprintf(stderr, "%s:%d: " fmt "\n", __FILE__, __LINE__, ##__VA_ARGS__); \
		abort();                                                                \
	} while (0)
#include "input.h"
#include "slow_medium.h"
#include "srp/dm.h"
#include "srp_peer.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

#define CHANNELS 3u
#define SIZE (2u << 20)

static struct sp_target target;
static struct peer *peers[CHANNELS];

/* ---- initiators ---- */

static void connect_one(unsigned i, struct input *in)
{
	struct sp_login l = {.opcode = SP_LOGIN_REQ, .formats = 6, .iu_len = 1024, .immediate = IMMEDIATE};
	struct sp_login_rsp rsp;
	uint32_t reason;
	uint8_t kind = byte(in), raw[SP_LOGIN_LEN];

	memcpy(l.target, target.scsi.port, SP_PORT_ID);
	l.initiator[0] = kind & 1;
	l.flags = (uint8_t)((kind & 2 ? SP_MULTI_CHANNEL : 0) | (kind & 4 ? SP_IMMEDIATE : 0) |
	                    (kind & 16 ? SP_TELL_EVENTS : 0));
	if (kind & 0x80) { /* any bytes, with the target's name among them */
		bytes(in, raw, sizeof(raw));
		memcpy(raw + 32, target.scsi.port, SP_PORT_ID);
		if (!sp_login_decode(raw, byte(in) & 1 ? sizeof(raw) : byte(in) % sizeof(raw), &l))
			return;
	}
	peers[i] = peer_login(&target, &l, &rsp, &reason);
	if (peers[i] && kind & 8)
		memset(peers[i]->channel.nexus->scsi.attention, 0, sizeof(peers[i]->channel.nexus->scsi.attention));
}

static void close_one(unsigned i)
{
	if (!peers[i])
		return;
	peer_close(peers[i]);
	while (!peers[i]->gone) {
		CHECK(slow.count);
		slow_finish(0, 0);
	}
	free(peers[i]);
	peers[i] = NULL;
}

static size_t put_descs(struct peer *p, uint8_t *at, struct input *in, uint8_t format, uint8_t *count)
{
	static const uint32_t lengths[] = {0, 24, 255, 512, 1024, 4096, 65536, 1 << 20};
	uint8_t kind = byte(in), n = byte(in) % 16, *table = p->memory + (3u << 20);
	struct sp_desc d = {byte(in) * 512u, kind & 1 && kind & 2 ? 0 : KEY, lengths[kind >> 5]};

	switch (format) {
	case SP_DESC_DIRECT:
		sp_desc_encode(&d, at);
		return SP_DESC_LEN;
	case SP_DESC_INDIRECT:
		for (unsigned i = 0; i < 16; i++)
			sp_desc_encode(&(struct sp_desc){i * 65536u, KEY, lengths[(kind >> 2 & 3) + i % 3]},
			               table + i * SP_DESC_LEN);
		sp_desc_encode(&(struct sp_desc){3u << 20, d.key, (uint32_t)n * SP_DESC_LEN}, at);
		sc_put32(at + SP_DESC_LEN, d.len);
		*count = kind & 4 ? n : n / 2;
		memcpy(at + SP_INDIRECT_LEN, table, (size_t)*count * SP_DESC_LEN);
		return SP_INDIRECT_LEN + (size_t)*count * SP_DESC_LEN;
	case SP_DESC_IMMEDIATE:
		sc_put32(at, d.len);
		return 4;
	default:
		return 0;
	}
}

static void send_command(struct peer *p, struct input *in)
{
	static const uint8_t opcodes[] = {0x00, 0x03, 0x08, 0x0a, 0x12, 0x16, 0x17, 0x1a, 0x1b, 0x25, 0x28, 0x2a, 0x2e,
	                                  0x2f, 0x34, 0x35, 0x41, 0x42, 0x56, 0x57, 0x5a, 0x5e, 0x5f, 0x88, 0x89, 0x8a,
	                                  0x8e, 0x8f, 0x90, 0x91, 0x93, 0x9e, 0xa0, 0xa3, 0xa8, 0xaa, 0x15, 0x55};
	uint8_t m[1024] = {SP_CMD}, kind = byte(in), *cdb = m + 32;
	uint8_t out = byte(in) & 3, in_format = byte(in) % 3;
	size_t len = SP_CMD_LEN;

	m[15] = byte(in); /* the tag */
	m[21] = kind & 3;
	m[29] = kind >> 2 & 3; /* attributes */
	m[5] = (uint8_t)(out << 4 | in_format);
	bytes(in, cdb, kind & 0x10 ? 16 : 10);
	cdb[0] = opcodes[cdb[0] % sizeof(opcodes)];
	if (kind & 0x20) { /* near the begin, few blocks */
		bool sixteen = cdb[0] >> 5 == 4;

		memset(cdb + 1, 0, 15);
		cdb[1] = byte(in) & 0x1f;
		cdb[sixteen ? 9 : 5] = byte(in);
		cdb[sixteen ? 13 : 8] = byte(in) % 32;
	}
	len += put_descs(p, m + len, in, out, &m[6]);
	len += put_descs(p, m + len, in, in_format, &m[7]);
	if (out == SP_DESC_IMMEDIATE)
		len = IMMEDIATE + 512u * (byte(in) & 1);
	peer_send(p, m, len);
}

static void send_management(struct peer *p, struct input *in)
{
	uint8_t m[SP_TSK_MGMT_LEN] = {SP_TSK_MGMT};

	m[21] = byte(in) & 3;
	m[30] = (uint8_t)(1u << (byte(in) & 7));
	m[39] = byte(in); /* the tag of the task */
	peer_send(p, m, sizeof(m));
}

/* Unit 2 comes and goes, unit 1 goes once. */
static void change_units(uint8_t what)
{
	struct nb_config c = {.kind = "memory", .size = 65536};
	unsigned lun = what & 8 ? 1 : 2;
	struct nb_backend *b;

	if (what & 16) {
		sp_report_capacity(&target, lun);
		return;
	}
	if (target.scsi.lus[lun]) {
		sc_lu_remove(target.scsi.lus[lun]);
	} else if (lun == 2) {
		CHECK(!nb_open(&c, NULL, &b) && !sc_lu_add(&target.scsi, 2, b, "more"));
	}
	sc_luns_changed(&target.scsi);
	sp_report_luns(&target);
	if (what & 32)
		sc_target_sweep(&target.scsi);
}

static void act(struct input *in)
{
	uint8_t what = byte(in), raw[256];
	unsigned i = what >> 6 & 3;
	struct peer *p = i < CHANNELS ? peers[i] : NULL;

	if (i == CHANNELS) {
		if (what & 4)
			change_units(what);
		else if (slow.count)
			slow_finish(byte(in) % slow.count, what & 1 ? EIO : what & 2 ? ENOSPC : 0);
		return;
	}
	if (!p) {
		connect_one(i, in);
		return;
	}
	if (p->failed || p->said_count > 400) {
		close_one(i);
		return;
	}
	switch (what & 7) {
	case 0:
		bytes(in, raw, sizeof(raw));
		peer_send(p, raw, byte(in));
		break;
	case 1:
		p->held = what & 8;
		peer_settle(p);
		break;
	case 2:
		if (p->moving_count)
			peer_finish_move(p);
		break;
	case 3:
		send_management(p, in);
		break;
	case 4:
		if (what & 8 && what & 16)
			close_one(i);
		break;
	default:
		send_command(p, in);
	}
}

/* A datagram of one who looks for targets */
static void look_for_targets(const uint8_t *data, size_t size)
{
	static const struct sp_dm described = {.id_ext = 1, .ioc_guid = 2, .name = "fuzz"};
	uint8_t mad[SP_DM_MAD] = {0};

	memcpy(mad, data, size < sizeof(mad) ? size : sizeof(mad));
	sp_dm_answer(&described, mad);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
	struct nb_config c = {.kind = "memory", .size = SIZE};
	struct nb_backend *b;
	struct input in = {data, size};

	look_for_targets(data, size);
	memset(&target, 0, sizeof(target));
	CHECK(!nb_open(&c, NULL, &b) && !sc_lu_add(&target.scsi, 0, b, "fuzz"));
	CHECK(!sc_lu_add(&target.scsi, 1, slow_open(SIZE, NULL), "slow"));
	while (in.left)
		act(&in);
	for (unsigned i = 0; i < CHANNELS; i++)
		close_one(i);
	CHECK(!slow.count); /* closed channels have waited for theirs */
	CHECK(!target.count && !target.nexuses && !target.scsi.nexuses);
	for (unsigned i = 0; i < SC_LUNS; i++)
		CHECK(!target.scsi.lus[i] || (!target.scsi.lus[i]->first && !target.scsi.lus[i]->barriers));
	sc_target_sweep(&target.scsi);
	CHECK(!target.scsi.removed);
	sc_target_close(&target.scsi);
	return 0;
}
