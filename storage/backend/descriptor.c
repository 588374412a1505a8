// descriptor.c - code shared by the backends file, block and mapped
// follows: open(2), statx(2), flock(2), ioctl_list(2) for BLKGETSIZE64 and BLKSSZGET
// SPDX-License-Identifier: MIT
#include "backend/descriptor.h"

#include <errno.h>
#include <fcntl.h>
#include <linux/fs.h>
#include <stdlib.h>
#include <sys/file.h>
#include <sys/ioctl.h>
#include <sys/stat.h>
#include <unistd.h>

int nb_descriptor_size(const struct nb_descriptor *d, uint64_t *size)
{
	struct stat st;
	uint64_t n = 0;

	if (fstat(d->fd, &st))
		return errno;
	if (S_ISBLK(st.st_mode)) {
		if (ioctl(d->fd, BLKGETSIZE64, &n))
			return errno;
	} else {
		n = (uint64_t)st.st_size;
	}
	*size = (n < NB_SIZE_MAX ? n : NB_SIZE_MAX) / d->b.block * d->b.block;
	return 0;
}

/* The unit of O_DIRECT for this file, or 0 if it is not supported. A unit larger than the block could tear blocks. */
static uint32_t direct_unit(int fd, const struct stat *st)
{
	int sector = 0;

	if (S_ISBLK(st->st_mode))
		return ioctl(fd, BLKSSZGET, &sector) || sector <= 0 ? 0 : (uint32_t)sector;
#ifdef STATX_DIOALIGN /* Linux 6.1 */
	struct statx x;

	if (!statx(fd, "", AT_EMPTY_PATH, STATX_DIOALIGN, &x) && (x.stx_mask & STATX_DIOALIGN))
		return x.stx_dio_mem_align > NB_ALIGN ? 0 : x.stx_dio_offset_align;
#endif
	return NB_ALIGN; /* every file system with O_DIRECT accepts this */
}

static int check_medium(struct nb_descriptor *d, const struct nb_config *config, enum nb_medium medium)
{
	struct stat st;

	if (fstat(d->fd, &st))
		return errno;
	if (medium == NB_MEDIUM_BLOCK ? !S_ISBLK(st.st_mode) : !S_ISREG(st.st_mode))
		return medium == NB_MEDIUM_BLOCK ? ENOTBLK : S_ISDIR(st.st_mode) ? EISDIR : EINVAL;
	if (flock(d->fd, (config->readonly ? LOCK_SH : LOCK_EX) | LOCK_NB))
		return errno == EWOULDBLOCK ? EBUSY : errno;
	uint32_t unit = direct_unit(d->fd, &st);

	d->b.block = config->block ? config->block : 512;
	if (S_ISBLK(st.st_mode) && unit > d->b.block) {
		if (config->block || unit > 4096)
			return EINVAL;
		d->b.block = unit;
	}
	bool direct = medium != NB_MEDIUM_MAPPED && !config->buffered && unit && unit <= d->b.block;
	int flags = fcntl(d->fd, F_GETFL) & ~O_NONBLOCK; /* O_NONBLOCK only kept open() from waiting for a FIFO */

	d->b.cached = !direct || fcntl(d->fd, F_SETFL, flags | O_DIRECT);
	if (d->b.cached)
		fcntl(d->fd, F_SETFL, flags); /* without O_DIRECT, the page cache is used */
	return 0;
}

static int settle_size(struct nb_descriptor *d, const struct nb_config *config)
{
	uint64_t have;
	int error = nb_descriptor_size(d, &have);

	if (error)
		return error;
	d->fixed = config->size / d->b.block * d->b.block;
	if (d->fixed > have)
		return EFBIG;
	d->b.size = d->fixed ? d->fixed : have;
	return d->b.size ? 0 : ENODATA;
}

int nb_descriptor_open(const struct nb_config *config, struct nb_ring *ring, enum nb_medium medium,
                       struct nb_descriptor **out)
{
	if (!config->path)
		return EINVAL;
	struct nb_descriptor *d = calloc(1, sizeof(*d));

	if (!d)
		return ENOMEM;
	d->ring = ring;
	d->fd = open(config->path, (config->readonly ? O_RDONLY : O_RDWR) | O_CLOEXEC | O_NONBLOCK);
	int error = d->fd < 0 ? errno : check_medium(d, config, medium);

	if (!error)
		error = settle_size(d, config);
	if (error) {
		nb_descriptor_close(&d->b);
		return error;
	}
	d->b.identity = nb_identity(d->fd, config->path, &d->b.identity_anywhere);
	d->b.readonly = config->readonly;
	d->b.volatile_cache = true;
	d->b.zeros_after_discard = true;
	*out = d;
	return 0;
}

void nb_descriptor_submit(struct nb_backend *b, struct nb_request *r)
{
	struct nb_descriptor *d = (struct nb_descriptor *)b;

	r->fd = d->fd;
	nb_ring_submit(d->ring, r);
}

/* Follows the size of the medium, and never changes it. */
int nb_descriptor_resize(struct nb_backend *b, uint64_t size)
{
	struct nb_descriptor *d = (struct nb_descriptor *)b;
	uint64_t have;
	int error = nb_descriptor_size(d, &have);

	if (error)
		return error;
	if (size)
		d->fixed = size / b->block * b->block;
	if (d->fixed > have)
		return EFBIG;
	b->size = d->fixed ? d->fixed : have;
	return 0;
}

void nb_descriptor_close(struct nb_backend *b)
{
	struct nb_descriptor *d = (struct nb_descriptor *)b;

	if (d->fd >= 0)
		close(d->fd);
	free(b->identity);
	free(d);
}
