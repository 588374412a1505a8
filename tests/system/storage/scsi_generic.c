// scsi_generic.c - preloaded: units of verbena-srp-target as /dev/sg* files, for programs that send SCSI commands to a device file
// follows: sg(4), SG_IO; SRP (ANSI INCITS 365, T10/1415-D)
// SPDX-License-Identifier: MIT
// /dev/sgverbenaP.L is unit L for the initiator port P. SCSI_GENERIC_AT: "PORT GUID" of a target at 127.0.0.1
#include "preloaded.h"

#include <errno.h>
#include <linux/fs.h>
#include <scsi/sg.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/ioctl.h>
#include <sys/sysmacros.h>
#include <unistd.h>

#include "../../support/check.h"
#include "srp_host.h"

#define MAJOR 21          /* of the kernel's sg driver */
#define DID_ERROR 0x07    /* host_status */
#define DRIVER_SENSE 0x08 /* driver_status */

static struct unit {
	struct host *host; /* NULL: not ours */
	uint8_t lun;
} units[FDS];

static struct unit *unit_of(int fd)
{
	return fd >= 0 && fd < FDS && units[fd].host ? &units[fd] : NULL;
}

/* ---- opening ---- */

/* A new initiator is told of a power on. It is nothing that these programs expect. */
static void take_attentions(struct unit *u)
{
	struct sp_rsp r;

	do {
		CHECK(host_command(u->host, u->lun, HOST_CDB(0, 0, 0, 0, 0, 0), false, 0,
		                   (struct how){SP_DESC_NONE, 0, 0}, &r));
	} while (r.status == SC_CHECK_CONDITION && r.sense[2] == SC_UNIT_ATTENTION);
}

static int open_ours(const char *path)
{
	const char *at = getenv("SCSI_GENERIC_AT");
	unsigned port, lun;
	unsigned long long guid;
	char service[8], rest;
	uint8_t target[SP_PORT_ID];
	uint32_t reason = 0;

	if (!at || sscanf(path, "/dev/sgverbena%u.%u%c", &port, &lun, &rest) != 2)
		return -2;
	CHECK(sscanf(at, "%7s %llx", service, &guid) == 2);
	sc_put64(target, guid);
	sc_put64(target + 8, guid);
	int fd = REAL(open)("/dev/null", O_RDWR | O_CLOEXEC);

	CHECK(fd >= 0 && fd < FDS);
	units[fd].host = host_login("127.0.0.1", service, target, (uint8_t)port, SP_MULTI_CHANNEL, &reason);
	units[fd].lun = (uint8_t)lun;
	CHECK(units[fd].host);
	take_attentions(&units[fd]);
	return fd;
}

static void show_ours(int fd, mode_t *mode, dev_t *rdev)
{
	if (unit_of(fd))
		*rdev = makedev(MAJOR, 0);
}

STANDS int stat64(const char *path, struct stat64 *st)
{
	bool ours = !strncmp(path, "/dev/sgverbena", 14);
	int e = REAL(stat64)(ours ? "/dev/null" : path, st);

	if (!e && ours)
		st->st_rdev = makedev(MAJOR, 0);
	return e;
}

STANDS int close(int fd)
{
	struct unit *u = unit_of(fd);

	if (u) {
		host_close(u->host);
		u->host = NULL;
	}
	return REAL(close)(fd);
}

/* ---- commands ---- */

/* Short data-out is immediate, long data is in many parts, so that each way is used. */
static struct how way_of(bool out, uint32_t len)
{
	if (!len)
		return (struct how){SP_DESC_NONE, 0, 0};
	if (out && len <= 4096)
		return (struct how){SP_DESC_IMMEDIATE, 0, 0};
	if (len > 65536)
		return (struct how){SP_DESC_INDIRECT, 40, 0};
	return len > 16384 ? (struct how){SP_DESC_INDIRECT, 3, 3} : (struct how){SP_DESC_DIRECT, 0, 0};
}

static void fill_result(struct sg_io_hdr *io, const struct sp_rsp *r, bool out)
{
	io->status = r->status;
	io->masked_status = r->status >> 1 & 0x1f;
	io->resid = 0;
	if (r->flags & (out ? SP_OUT_UNDER : SP_IN_UNDER))
		io->resid = (int)(out ? r->out_residual : r->in_residual);
	io->host_status = r->flags & SP_RSP_VALID && r->code ? DID_ERROR : 0;
	io->driver_status = r->sense_len ? DRIVER_SENSE : 0;
	io->sb_len_wr = r->sense_len < io->mx_sb_len ? (uint8_t)r->sense_len : io->mx_sb_len;
	if (io->sb_len_wr)
		memcpy(io->sbp, r->sense, io->sb_len_wr);
	io->info = io->status || io->host_status ? SG_INFO_CHECK : SG_INFO_OK;
	io->duration = 0;
}

/* Copies data between the memory that the target reaches and the program's, which may be in pieces. */
static void copy_data(struct sg_io_hdr *io, uint8_t *data, uint32_t len, bool out)
{
	const struct sg_iovec whole = {io->dxferp, len}, *v = io->iovec_count ? io->dxferp : &whole;
	unsigned n = io->iovec_count ? io->iovec_count : 1;

	for (unsigned i = 0; i < n && len; i++) {
		uint32_t k = v[i].iov_len < len ? (uint32_t)v[i].iov_len : len;

		if (out)
			memcpy(data, v[i].iov_base, k);
		else
			memcpy(v[i].iov_base, data, k);
		data += k;
		len -= k;
	}
}

static int carry_out(struct unit *u, struct sg_io_hdr *io)
{
	bool out = io->dxfer_direction == SG_DXFER_TO_DEV, any = io->dxfer_direction != SG_DXFER_NONE;
	uint32_t len = any ? io->dxfer_len : 0;
	struct sp_rsp r;

	if (io->interface_id != 'S' || len > HOST_DATA || io->cmd_len > 16) {
		errno = io->cmd_len > 16 ? EMSGSIZE : EINVAL;
		return -1;
	}
	if (out)
		copy_data(io, u->host->data, len, true);
	if (!host_command(u->host, u->lun, io->cmdp, io->cmd_len, out, len, way_of(out, len), &r)) {
		errno = ENODEV;
		return -1;
	}
	fill_result(io, &r, out);
	if (!out && io->resid >= 0 && (uint32_t)io->resid < len)
		copy_data(io, u->host->data, len - (uint32_t)io->resid, false);
	return 0;
}

static int reset_unit(struct unit *u)
{
	struct sp_tsk_mgmt m = {.tag = ++u->host->tag, .lun = {0, u->lun}, .function = SP_LUN_RESET};
	uint8_t message[SP_TSK_MGMT_LEN];
	struct sp_rsp r;

	sp_tsk_mgmt_encode(&m, message);
	u->host->credits--;
	if (host_send(u->host, message, sizeof(message)) && host_response(u->host, &r) && r.code == SP_DONE)
		return 0;
	errno = EIO;
	return -1;
}

STANDS int ioctl(int fd, unsigned long request, ...)
{
	struct unit *u = unit_of(fd);
	va_list ap;

	va_start(ap, request);
	void *arg = va_arg(ap, void *);
	va_end(ap);
	if (!u)
		return REAL(ioctl)(fd, request, arg);
	switch (request) {
	case SG_IO:
		return carry_out(u, arg);
	case SG_GET_VERSION_NUM:
		*(int *)arg = 30536;
		return 0;
	case SG_SCSI_RESET:
		return *(int *)arg == SG_SCSI_RESET_NOTHING ? 0 : reset_unit(u);
	case BLKSECTGET:
		*(unsigned short *)arg = 2048;
		return 0;
	default:
		errno = ENOTTY;
		return -1;
	}
}
