// nvme_passthrough.c - preloaded: the target's core as /dev/nvme99 and its namespace as /dev/nvme99n1, for nvme(1)
// follows: linux/nvme_ioctl.h; NVM Express Base 1.4
// SPDX-License-Identifier: MIT
#include "preloaded.h"

#include <errno.h>
#include <linux/nvme_ioctl.h>
#include <sys/ioctl.h>
#include <unistd.h>

#include "../../unit/storage/host.h"

#define SIZE (16u << 20)

enum kind { FOREIGN, CONTROLLER, NAMESPACE };

static uint8_t kinds[FDS];
static struct host *admin, *io;

static enum kind kind_of(int fd)
{
	return fd >= 0 && fd < FDS ? (enum kind)kinds[fd] : FOREIGN;
}

/* A controller with two namespaces, the second of which cannot be written. */
static void begin_target(void)
{
	if (admin)
		return;
	target_open(8u << 20);
	strcpy(target.firmware, "1");
	medium_add(medium_open(SIZE, 512), 1);
	struct medium *m = medium_open(SIZE, 4096);

	m->b.readonly = true;
	medium_add(m, 2);
	admin = host_admin();
	io = host_io(admin, 1);
}

static int open_ours(const char *path)
{
	enum kind k = !strcmp(path, "/dev/nvme99") ? CONTROLLER : !strcmp(path, "/dev/nvme99n1") ? NAMESPACE : FOREIGN;

	if (k == FOREIGN)
		return -2;
	begin_target();
	int fd = REAL(open)("/dev/null", O_RDWR | O_CLOEXEC);

	CHECK(fd >= 0 && fd < FDS);
	kinds[fd] = (uint8_t)k;
	return fd;
}

static void show_ours(int fd, mode_t *mode, dev_t *rdev)
{
	if (kind_of(fd) == NAMESPACE)
		*mode = (*mode & ~(mode_t)S_IFMT) | S_IFBLK;
}

STANDS int close(int fd)
{
	if (kind_of(fd))
		kinds[fd] = FOREIGN;
	return REAL(close)(fd);
}

/* The low bits of an operation code say which way data goes. Returns what the kernel does: the status, or -1. */
static int carry_out(struct host *h, const struct nvme_passthru_cmd64 *c, uint64_t *result)
{
	uint8_t way = c->opcode == NV_FABRICS ? (uint8_t)(c->nsid & 3) : c->opcode & 3;
	struct nv_sqe s = {.opcode = c->opcode,
	                   .nsid = c->nsid,
	                   .fctype = (uint8_t)c->nsid,
	                   .sgl = by_transport(c->data_len),
	                   .cdw = {c->cdw10, c->cdw11, c->cdw12, c->cdw13, c->cdw14, c->cdw15}};

	if (c->data_len > sizeof(h->in) || c->metadata_len) {
		errno = EINVAL;
		return -1;
	}
	if (way & 1)
		memcpy(h->out, (const void *)(uintptr_t)c->addr, c->data_len);
	struct answer a = host_do(h, s);

	if (a.data)
		memcpy((void *)(uintptr_t)c->addr, h->in, a.length);
	*result = a.result;
	return a.status;
}

static int carry_old(struct host *h, struct nvme_passthru_cmd *c)
{
	struct nvme_passthru_cmd64 wide = {0};
	uint64_t result = 0;

	memcpy(&wide, c, offsetof(struct nvme_passthru_cmd, result)); /* the same up to the result */
	int status = carry_out(h, &wide, &result);

	c->result = (uint32_t)result;
	return status;
}

static int move_blocks(const struct nvme_user_io *u)
{
	struct nvme_passthru_cmd64 c = {.opcode = u->opcode,
	                                .nsid = 1,
	                                .addr = u->addr,
	                                .data_len = (u->nblocks + 1u) * 512,
	                                .cdw10 = (uint32_t)u->slba,
	                                .cdw11 = (uint32_t)(u->slba >> 32),
	                                .cdw12 = u->nblocks | (uint32_t)u->control << 16};

	return carry_out(io, &c, &(uint64_t){0});
}

static int reset_controller(void)
{
	SAME(property_set(admin, NV_PROP_CC, 0x460000, 0).status, 0);
	SAME(property_set(admin, NV_PROP_CC, 0x460001, 0).status, 0);
	return 0;
}

STANDS int ioctl(int fd, unsigned long request, ...)
{
	va_list ap;

	va_start(ap, request);
	void *arg = va_arg(ap, void *);
	va_end(ap);
	if (!kind_of(fd))
		return REAL(ioctl)(fd, request, arg);
	if (request == NVME_IOCTL_ID && kind_of(fd) == NAMESPACE)
		return 1;
	switch (request) {
	case NVME_IOCTL_ADMIN_CMD:
		return carry_old(admin, arg);
	case NVME_IOCTL_ADMIN64_CMD: {
		struct nvme_passthru_cmd64 *c = arg;

		return carry_out(admin, c, (uint64_t *)&c->result);
	}
	case NVME_IOCTL_IO_CMD:
		return carry_old(io, arg);
	case NVME_IOCTL_IO64_CMD: {
		struct nvme_passthru_cmd64 *c = arg;

		return carry_out(io, c, (uint64_t *)&c->result);
	}
	case NVME_IOCTL_SUBMIT_IO:
		return move_blocks(arg);
	case NVME_IOCTL_RESET:
		return reset_controller();
	case NVME_IOCTL_RESCAN:
		return 0;
	default: /* a subsystem reset, too: CAP.NSSRS is 0 */
		errno = ENOTTY;
		return -1;
	}
}
