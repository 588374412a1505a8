// vgem.h - makes dma-bufs by the Linux driver vgem, whose memory is not made of pages that can be pinned
// follows: Linux, include/uapi/drm/drm.h; Documentation/driver-api/dma-buf.rst
// SPDX-License-Identifier: MIT
#ifndef VB_TEST_VGEM_H
#define VB_TEST_VGEM_H

#include <errno.h>
#include <fcntl.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <string.h>
#include <sys/ioctl.h>
#include <unistd.h>

struct vgem_version {
	int major, minor, patch;
	size_t name_len;
	char *name;
	size_t date_len;
	char *date;
	size_t desc_len;
	char *desc;
};
struct vgem_dumb {
	uint32_t height, width, bpp, flags;
	uint32_t handle, pitch;
	uint64_t size;
};
struct vgem_prime {
	uint32_t handle, flags;
	int32_t fd;
};
#define VGEM_VERSION _IOWR('d', 0x00, struct vgem_version)
#define VGEM_CREATE_DUMB _IOWR('d', 0xb2, struct vgem_dumb)
#define VGEM_HANDLE_TO_FD _IOWR('d', 0x2d, struct vgem_prime)

/* The card of vgem, or -1. */
static inline int vgem_open(void)
{
	for (int i = 0; i < 16; i++) {
		char path[32], name[8] = "";
		struct vgem_version v = {.name = name, .name_len = sizeof(name) - 1};

		snprintf(path, sizeof(path), "/dev/dri/card%d", i);
		int card = open(path, O_RDWR | O_CLOEXEC);

		if (card >= 0 && !ioctl(card, VGEM_VERSION, &v) && !strcmp(name, "vgem"))
			return card;
		if (card >= 0)
			close(card);
	}
	errno = ENODEV;
	return -1;
}

/* The descriptor of a new dma-buf of whole pages, at least so many bytes; or -1. Nothing else keeps its memory. It can be
 * mapped for writing if it is writable. */
static inline int vgem_dmabuf(size_t n, int writable)
{
	struct vgem_dumb dumb = {.width = 1024, .height = (uint32_t)((n + 4095) / 4096), .bpp = 32};
	struct vgem_prime prime = {.flags = O_CLOEXEC | (writable ? O_RDWR : 0), .fd = -1};
	int card = vgem_open();

	if (card < 0)
		return -1;
	if (!ioctl(card, VGEM_CREATE_DUMB, &dumb)) {
		prime.handle = dumb.handle;
		if (ioctl(card, VGEM_HANDLE_TO_FD, &prime))
			prime.fd = -1;
	}
	int err = errno;

	close(card);
	errno = err;
	return prime.fd;
}

#endif
