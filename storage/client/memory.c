// memory.c - memory for requests: finds the registration of a buffer
// follows: memfd_create(2)
// SPDX-License-Identifier: MIT
#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/resource.h>
#include <unistd.h>

#include "client/client.h"

/* Without a memfd ordinary memory is used, and copying into it is slower. The descriptor stays open, because the target
 * finds the memory by it. */
void *vn_shared_new(size_t length, int *fd)
{
	struct rlimit most; /* a memfd is a file: exceeding this limit raises SIGXFSZ */
	void *at;

	*fd = -1;
	if (!getrlimit(RLIMIT_FSIZE, &most) && length <= most.rlim_cur)
		*fd = memfd_create("verbena-nvme", MFD_CLOEXEC);
	if (*fd >= 0 && ftruncate(*fd, (off_t)length)) {
		close(*fd);
		*fd = -1;
	}
	at = mmap(NULL, length, PROT_READ | PROT_WRITE, *fd < 0 ? MAP_PRIVATE | MAP_ANONYMOUS : MAP_SHARED, *fd, 0);
	if (at != MAP_FAILED)
		return at;
	if (*fd >= 0)
		close(*fd);
	return NULL;
}

void vn_shared_free(void *at, size_t length, int fd)
{
	if (at)
		munmap(at, length);
	if (fd >= 0)
		close(fd);
}

static void free_memory(struct vn_memory *m)
{
	if (m->ours)
		vn_shared_free(m->address, m->length, m->fd);
	free(m);
}

void vn_domain_init(struct vn_domain *d)
{
	memset(d, 0, sizeof(*d));
	pthread_mutex_init(&d->lock, NULL);
	pthread_cond_init(&d->idle, NULL);
}

void vn_domain_fini(struct vn_domain *d)
{
	for (size_t i = 0; i < d->n; i++) {
#ifdef VN_HAVE_RDMA
		vn_mr_drop(d->all[i]);
#endif
		free_memory(d->all[i]);
	}
	free(d->all);
#ifdef VN_HAVE_RDMA
	d->n = 0;
	vn_domain_end(d);
#endif
	pthread_cond_destroy(&d->idle);
	pthread_mutex_destroy(&d->lock);
}

/* The number of regions that begin at or before `at`. Only the last of these can contain it. */
static size_t regions_up_to(const struct vn_domain *d, const uint8_t *at)
{
	size_t low = 0, high = d->n;

	while (low < high) {
		size_t middle = (low + high) / 2;

		if (d->all[middle]->address <= at)
			low = middle + 1;
		else
			high = middle;
	}
	return low;
}

struct vn_memory *vn_memory_get(struct vn_domain *d, const void *at, size_t length)
{
	struct vn_memory *m = NULL;

	pthread_mutex_lock(&d->lock);
	size_t n = regions_up_to(d, at);

	if (n) {
		m = d->all[n - 1];
		size_t skip = (size_t)((const uint8_t *)at - m->address);

		if (m->coming || skip > m->length || length > m->length - skip)
			m = NULL;
		else
			m->users++;
	}
	pthread_mutex_unlock(&d->lock);
	return m;
}

void vn_memory_put(struct vn_domain *d, struct vn_memory *m)
{
	pthread_mutex_lock(&d->lock);
	m->users--;
	pthread_mutex_unlock(&d->lock);
}

static int insert_region(struct vn_domain *d, struct vn_memory *m)
{
	size_t n = regions_up_to(d, m->address);

	if (n && (size_t)(m->address - d->all[n - 1]->address) < d->all[n - 1]->length)
		return -EEXIST;
	if (n < d->n && (size_t)(d->all[n]->address - m->address) < m->length)
		return -EEXIST;
	if (d->n == d->room) {
		size_t room = d->room ? 2 * d->room : 16;
		struct vn_memory **all = realloc(d->all, room * sizeof(struct vn_memory *));

		if (!all)
			return -ENOMEM;
		d->all = all;
		d->room = room;
	}
	memmove(d->all + n + 1, d->all + n, (d->n - n) * sizeof(struct vn_memory *));
	d->all[n] = m;
	d->n++;
	return 0;
}

static void take_out(struct vn_domain *d, const struct vn_memory *m)
{
	size_t i = regions_up_to(d, m->address) - 1;

	memmove(d->all + i, d->all + i + 1, (d->n - i - 1) * sizeof(struct vn_memory *));
	d->n--;
}

/* Registers or deregisters memory, and releases the lock meanwhile. */
static int without_lock(struct vn_domain *d, struct vn_memory *m, int (*work)(struct vn_domain *d, struct vn_memory *m))
{
	int e;

	d->busy++;
	pthread_mutex_unlock(&d->lock);
	e = work(d, m);
	pthread_mutex_lock(&d->lock);
	if (!--d->busy)
		pthread_cond_broadcast(&d->idle);
	return e;
}

/* Takes the lock when no device is being attached, which registers all memory. */
static void lock_list(struct vn_domain *d)
{
	pthread_mutex_lock(&d->lock);
	while (d->attaching)
		pthread_cond_wait(&d->idle, &d->lock);
}

static int make_mr(struct vn_domain *d, struct vn_memory *m)
{
#ifdef VN_HAVE_RDMA
	return vn_mr_make(d, m);
#else
	return 0;
#endif
}

static int drop_mr(struct vn_domain *d, struct vn_memory *m)
{
#ifdef VN_HAVE_RDMA
	vn_mr_drop(m);
#endif
	return 0;
}

int vn_register(struct vn_disk *disk, void *address, size_t length, struct vn_memory **memory)
{
	struct vn_domain *d = &disk->domain;
	struct vn_memory *m;
	int e;

	if (!address || !length || (uintptr_t)address + length < (uintptr_t)address)
		return -EINVAL;
	m = calloc(1, sizeof(*m));
	if (!m)
		return -ENOMEM;
	m->address = address;
	m->length = length;
	lock_list(d);
	m->coming = true;
	e = insert_region(d, m);
	if (!e) {
		e = without_lock(d, m, make_mr);
		m->coming = false;
		if (e)
			take_out(d, m);
	}
	pthread_mutex_unlock(&d->lock);
	if (e)
		free(m);
	else
		*memory = m;
	return e;
}

int vn_allocate(struct vn_disk *disk, size_t length, void **address, struct vn_memory **memory)
{
	int fd, e;
	void *at;

	if (!length || length > SIZE_MAX / 2)
		return -EINVAL;
	length = (length + 4095) / 4096 * 4096;
	at = vn_shared_new(length, &fd);
	if (!at)
		return -ENOMEM;
	e = vn_register(disk, at, length, memory);
	if (e) {
		vn_shared_free(at, length, fd);
		return e;
	}
	(*memory)->fd = fd;
	(*memory)->ours = true;
	*address = at;
	return 0;
}

int vn_unregister(struct vn_disk *disk, struct vn_memory *m)
{
	struct vn_domain *d = &disk->domain;
	int e = -EINVAL;

	lock_list(d);
	for (size_t i = 0; i < d->n && e == -EINVAL; i++) {
		if (d->all[i] != m)
			continue;
		e = m->users ? -EBUSY : 0;
		if (e)
			break;
		take_out(d, m);
		without_lock(d, m, drop_mr);
	}
	pthread_mutex_unlock(&d->lock);
	if (!e)
		free_memory(m);
	return e;
}
