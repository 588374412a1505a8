// scsi.c - CDBs of requests, and what the answers of a SCSI disk mean
// follows: SPC-4, 4.5 (sense data), 6.6, 7.8; SBC-3, 5.16 (READ CAPACITY (16)), 5.28 (UNMAP), 6.6
// SPDX-License-Identifier: MIT
#include "client/scsi.h"

#define FUA 0x08u
#define SAME_UNMAP 0x08u
#define CDW12_FUA (1u << 30)
#define CDW12_DEALLOCATE (1u << 25)

/* ---- CDBs ---- */

/* The form with 10 bytes, or that with 16 if the numbers need it. */
static void put_range(uint8_t *cdb, uint8_t ten, uint8_t sixteen, uint64_t lba, uint32_t blocks)
{
	if (ten && blocks <= UINT16_MAX && lba <= UINT32_MAX - blocks) {
		cdb[0] = ten;
		sc_put32(cdb + 2, (uint32_t)lba);
		sc_put16(cdb + 7, (uint16_t)blocks);
		return;
	}
	cdb[0] = sixteen;
	sc_put64(cdb + 2, lba);
	sc_put32(cdb + 10, blocks);
}

static uint32_t le32(const uint8_t *at)
{
	return (uint32_t)at[0] | (uint32_t)at[1] << 8 | (uint32_t)at[2] << 16 | (uint32_t)at[3] << 24;
}

/* The range is that of Dataset Management. */
static void put_unmap(const struct vn_cmd *c, uint8_t *cdb, uint8_t *list)
{
	memset(list, 0, VN_SCSI_LIST);
	sc_put16(list, VN_SCSI_LIST - 2);
	sc_put16(list + 2, VN_SCSI_LIST - 8);
	sc_put64(list + 8, le32(c->range + 8) | (uint64_t)le32(c->range + 12) << 32);
	sc_put32(list + 16, le32(c->range + 4));
	cdb[0] = SC_UNMAP;
	sc_put16(cdb + 7, VN_SCSI_LIST);
}

enum vn_scsi_data vn_scsi_cdb(struct vn_cmd *c, bool fua, uint8_t list[VN_SCSI_LIST])
{
	uint64_t lba = c->sqe.cdw[0] | (uint64_t)c->sqe.cdw[1] << 32;
	uint32_t blocks = (c->sqe.cdw[2] & 0xffff) + 1;
	uint8_t *cdb = c->scsi.cdb;

	if (c->scsi.raw)
		return c->way == VN_NO_DATA ? VN_SCSI_NONE : VN_SCSI_CALLERS;
	memset(cdb, 0, sizeof(c->scsi.cdb));
	if (c->scsi.synced) {
		put_range(cdb, SC_SYNC_CACHE10, SC_SYNC_CACHE16, lba, blocks);
		return VN_SCSI_NONE;
	}
	switch (c->sqe.opcode) {
	case NV_IO_READ:
		put_range(cdb, SC_READ10, SC_READ16, lba, blocks);
		return VN_SCSI_CALLERS;
	case NV_IO_WRITE:
		put_range(cdb, SC_WRITE10, SC_WRITE16, lba, blocks);
		cdb[1] = fua && c->sqe.cdw[2] & CDW12_FUA ? FUA : 0;
		return VN_SCSI_CALLERS;
	case NV_IO_WRITE_ZEROES:
		put_range(cdb, 0, SC_WRITE_SAME16, lba, blocks);
		cdb[1] = c->sqe.cdw[2] & CDW12_DEALLOCATE ? SAME_UNMAP : 0;
		return VN_SCSI_ZEROES;
	case NV_IO_DSM:
		put_unmap(c, cdb, list);
		return VN_SCSI_UNMAP;
	default: /* a flush: of the whole medium, which zeros stand for */
		cdb[0] = SC_SYNC_CACHE10;
		return VN_SCSI_NONE;
	}
}

/* WRITE SAME has no FUA. A unit without FUA refuses a WRITE that has it. */
bool vn_scsi_must_sync(const struct vn_cmd *c, bool fua)
{
	return !c->scsi.raw && !c->scsi.synced && !c->cqe.status && c->sqe.cdw[2] & CDW12_FUA &&
	       (c->sqe.opcode == NV_IO_WRITE_ZEROES || (c->sqe.opcode == NV_IO_WRITE && !fua));
}

/* SAM-5, 4.7.7: peripheral device addressing, and flat space addressing from 256 on */
void vn_scsi_lun(uint16_t lun, uint8_t out[8])
{
	memset(out, 0, 8);
	sc_put16(out, lun < 256 ? lun : lun | 0x4000);
}

bool vn_scsi_lun_decode(const uint8_t at[8], uint16_t *lun)
{
	static const uint8_t rest[6];
	unsigned method = at[0] >> 6;

	if (memcmp(at + 2, rest, sizeof(rest)) != 0 || method > 1 || (!method && at[0]))
		return false;
	*lun = sc_get16(at) & 0x3fff;
	return true;
}

/* ---- responses ---- */

uint32_t vn_sense(const uint8_t *at, uint32_t len)
{
	uint8_t code = len ? at[0] & 0x7f : 0;

	if ((code == 0x70 || code == 0x71) && len >= 3)
		return VN_SENSE(at[2] & 0xf, len > 12 ? at[12] : 0, len > 13 ? at[13] : 0);
	if ((code == 0x72 || code == 0x73) && len >= 4)
		return VN_SENSE(at[1] & 0xf, at[2], at[3]);
	return 0;
}

static uint16_t status_of_request(uint32_t sense)
{
	switch (sense >> 8 & 0xff) {
	case 0x20:
		return NV_INVALID_OPCODE | NV_DNR;
	case 0x21:
		return NV_LBA_RANGE | NV_DNR;
	case 0x25:
		return NV_INVALID_NS | NV_DNR;
	default:
		return NV_INVALID_FIELD | NV_DNR;
	}
}

static uint16_t status_of_sense(const struct vn_cmd *c, uint32_t sense)
{
	bool writes = c->way == VN_TO_TARGET || c->sqe.opcode == NV_IO_FLUSH;

	switch (sense >> 16) {
	case 0x0: /* with CHECK CONDITION: nothing to report */
	case 0x1: /* recovered */
		return NV_OK;
	case 0x2:
		return NV_NS_NOT_READY;
	case 0x3:
	case 0x4:
		return writes ? NV_WRITE_FAULT : NV_READ_ERROR;
	case 0x5:
		return status_of_request(sense);
	case 0x7:
		return (sense & 0xffff) == 0x2707 ? NV_CAPACITY | NV_DNR : NV_WRITE_PROTECTED | NV_DNR;
	case 0x6: /* unit attention: nothing was done */
	case 0xb: /* aborted */
		return NV_ABORT_REQUESTED;
	default:
		return NV_INTERNAL | NV_DNR;
	}
}

static uint16_t status_of(const struct vn_cmd *c)
{
	switch (c->scsi.status) {
	case SC_GOOD:
		return NV_OK;
	case SC_CHECK_CONDITION:
		return c->scsi.sense ? status_of_sense(c, c->scsi.sense) : NV_INTERNAL | NV_DNR;
	case SC_RESERVATION_CONFLICT:
		return NV_INTERNAL | NV_DNR;
	default: /* BUSY, TASK SET FULL, TASK ABORTED, what is obsolete */
		return NV_ABORT_REQUESTED;
	}
}

bool vn_scsi_answer(struct vn_cmd *c, const struct sp_rsp *r, uint32_t len)
{
	bool in = c->way == VN_FROM_TARGET;
	uint32_t under = r->flags & (in ? SP_IN_UNDER : SP_OUT_UNDER) ? (in ? r->in_residual : r->out_residual) : 0;

	c->scsi.status = r->status;
	c->scsi.sense = r->flags & SP_SENSE_VALID ? vn_sense(r->sense, r->sense_len) : 0;
	c->scsi.got = under < len ? len - under : 0;
	c->cqe = (struct nv_cqe){.status = status_of(c)};
	if (r->flags & SP_RSP_VALID && r->code) /* the target did not understand the message */
		c->cqe.status = NV_INVALID_FIELD | NV_DNR;
	else if (!c->cqe.status && !c->scsi.raw && (under || r->flags & (SP_IN_OVER | SP_OUT_OVER)))
		c->cqe.status = NV_DATA_TRANSFER;
	c->soon = r->status == SC_CHECK_CONDITION && c->scsi.sense >> 16 == SC_UNIT_ATTENTION;
	return c->soon && (c->scsi.sense & 0xff00) != 0x2900; /* that of a new nexus is no news */
}

/* ---- what a unit says of itself ---- */

/* Copies a text field that is padded with spaces. Unprintable bytes become dots. */
static void copy_field(char *to, const uint8_t *from, size_t len)
{
	while (len && (from[len - 1] == ' ' || !from[len - 1]))
		len--;
	while (len && *from == ' ') {
		from++;
		len--;
	}
	for (size_t i = 0; i < len; i++)
		to[i] = from[i] >= ' ' && from[i] < 0x7f ? (char)from[i] : '.';
	to[len] = 0;
}

bool vn_scsi_inquiry(const uint8_t *d, size_t n, struct vn_info *info)
{
	if (n < 36 || d[0]) /* qualifier and type: a disk that is there */
		return false;
	copy_field(info->model, d + 8, 8);
	size_t at = strlen(info->model);

	if (at)
		info->model[at++] = ' ';
	copy_field(info->model + at, d + 16, 16);
	copy_field(info->firmware, d + 32, 4);
	return true;
}

/* The end of what a page says that it contains, and that came. */
static size_t page_end(const uint8_t *d, size_t n, uint8_t page)
{
	if (n < 4 || d[1] != page)
		return 0;
	size_t end = 4u + sc_get16(d + 2);

	return end < n ? end : n;
}

void vn_scsi_serial(const uint8_t *d, size_t n, struct vn_info *info)
{
	size_t end = page_end(d, n, 0x80), len = end > 4 ? end - 4 : 0;

	copy_field(info->serial, d + 4, len < sizeof(info->serial) ? len : sizeof(info->serial) - 1);
}

/* NAA and EUI-64 names of the logical unit; other designators are not unique, or are those of ports. SPC-4, 7.8.6 */
void vn_scsi_designators(const uint8_t *d, size_t n, struct vn_unit *u)
{
	size_t end = page_end(d, n, 0x83);

	for (size_t at = 4; at + 4 <= end && at + 4 + d[at + 3] <= end; at += 4u + d[at + 3]) {
		uint8_t kind = d[at + 1] & 0x3f, len = d[at + 3]; /* association and type */

		if (kind != 2 && kind != 3)
			continue;
		if (len == 8)
			memcpy(u->names.eui64, d + at + 4, 8);
		if (len == 16)
			memcpy(u->names.nguid, d + at + 4, 16);
	}
}

void vn_scsi_limits(const uint8_t *d, size_t n, struct vn_unit *u)
{
	size_t end = page_end(d, n, 0xb0);

	if (end >= 16) {
		u->transfer = sc_get32(d + 8);
		u->optimal = sc_get32(d + 12);
	}
	if (end >= 28) {
		u->unmap_max = sc_get32(d + 20);
		u->unmap_ranges = sc_get32(d + 24);
	}
	if (end >= 44)
		u->same_max = sc_get64(d + 36);
}

void vn_scsi_provisioning(const uint8_t *d, size_t n, struct vn_unit *u)
{
	if (page_end(d, n, 0xb2) < 8)
		return;
	u->unmaps = d[5] & 0x80;
	u->same_unmaps = d[5] & 0x40;
}

void vn_scsi_mode(const uint8_t *d, size_t n, struct vn_unit *u)
{
	if (n < 8)
		return;
	size_t at = 8u + sc_get16(d + 6), end = 2u + sc_get16(d);

	end = end < n ? end : n;
	u->readonly = d[3] & 0x80;
	u->fua = d[3] & 0x10;
	if (at + 3 <= end && (d[at] & 0x3f) == 0x08)
		u->cached = d[at + 2] & 0x04;
}

bool vn_scsi_capacity(const uint8_t *d, size_t n, struct vn_unit *u)
{
	if (n < 12)
		return false;
	uint64_t last = sc_get64(d);
	uint32_t block = sc_get32(d + 8);

	if (block < 512 || block > 1u << 20 || block & (block - 1) || last >= (uint64_t)INT64_MAX / block)
		return false;
	u->blocks = last + 1;
	u->block = block;
	u->thin = n >= 15 && d[14] & 0x80;
	u->zeroes_after = n >= 15 && d[14] & 0x40;
	return true;
}

size_t vn_scsi_luns(const uint8_t *d, size_t n, uint16_t luns[VN_SCSI_LUNS_MAX])
{
	size_t end = n < 8 ? 0 : 8ull + sc_get32(d), count = 0;

	end = end < n ? end : n;
	for (size_t at = 8; at + 8 <= end && count < VN_SCSI_LUNS_MAX; at += 8)
		count += vn_scsi_lun_decode(d + at, &luns[count]);
	return count;
}

static uint32_t to_bytes(uint64_t blocks, uint32_t block)
{
	uint64_t n = blocks * block;

	return n < UINT32_MAX ? (uint32_t)n : UINT32_MAX;
}

void vn_scsi_describe(const struct vn_unit *u, struct vn_info *info, struct vn_limits *lim)
{
	info->size = u->blocks * u->block;
	info->block_size = u->block;
	info->readonly = u->readonly;
	info->volatile_cache = u->cached;
	info->optimal_io = u->optimal ? to_bytes(u->optimal, u->block) : 0;
	info->discard = u->thin && u->unmaps && u->unmap_ranges && u->unmap_max;
	/* a unit that names no limit may not have the command at all */
	info->write_zeroes = (u->same_max || u->same_unmaps) && u->block <= VN_SCSI_SAME_MAX;
	lim->transfer = u->transfer ? to_bytes(u->transfer, u->block) : UINT32_MAX;
	lim->zeroes = u->same_max && u->same_max < UINT64_MAX / u->block ? u->same_max * u->block : UINT64_MAX;
	lim->discard = u->unmap_max;
	lim->frees_zeroes = u->thin && u->same_unmaps && u->zeroes_after;
}
