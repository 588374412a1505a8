// hardware.c - loads the system's own libibverbs, and lists the devices that it has
// follows: dlopen(3), ibv_get_device_list(3)
// SPDX-License-Identifier: MIT
#include "abi/hardware.h"

#include <dlfcn.h>
#include <errno.h>
#include <limits.h>
#include <link.h>
#include <pthread.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "abi/real.h"
#include "core/device.h"
#include "core/rdma_link.h"
#include "util/hardware.h"
#include "util/log.h"

/* No path comes from the environment: a privileged program may load these. */
static const char *const folders[] = {
#if defined(__x86_64__)
        "/usr/lib/x86_64-linux-gnu",
        "/lib/x86_64-linux-gnu",
#elif defined(__aarch64__)
        "/usr/lib/aarch64-linux-gnu",
        "/lib/aarch64-linux-gnu",
#endif
        "/usr/lib64",
        "/lib64",
        "/usr/lib",
        "/lib",
};

static pthread_once_t once = PTHREAD_ONCE_INIT;
static atomic_bool loaded;

/* Where a library of the system is in memory. The size is 0 until it is loaded. */
struct span {
	_Atomic uintptr_t start;
	atomic_size_t size;
};
static struct span verbs_span, cm_span;

/*
 * Opened by its path, a second library of the same SONAME is loaded beside ours. RTLD_LOCAL keeps it out of the scope
 * of the program. Its drivers ask for libibverbs.so.1 by that name, and get ours, which passes their calls on
 * (private.c).
 */
void *vb_hardware_open(const char *bare, const char *own)
{
	char path[PATH_MAX];

	for (size_t i = 0; i < sizeof(folders) / sizeof(*folders); i++) {
		snprintf(path, sizeof(path), "%s/%s", folders[i], bare);
		void *handle = dlopen(path, RTLD_NOW | RTLD_LOCAL);

		if (handle && !dlsym(handle, own))
			return handle;
		if (handle)
			dlclose(handle); /* an installation of Verbena in the system's own folder */
	}
	return NULL;
}

/* The launcher's preloaded library has this; without it there is nothing to see past. */
void vb_hardware_aside(bool on)
{
	static void (*_Atomic aside)(bool on);
	static atomic_bool asked;

	if (!atomic_load(&asked)) {
		atomic_store(&aside, (void (*)(bool))dlsym(RTLD_DEFAULT, "verbena_paths_aside"));
		atomic_store(&asked, true);
	}
	void (*call)(bool) = atomic_load(&aside);
	if (call)
		call(on);
}

struct search {
	uintptr_t inside, start, end;
};

/* Of the loaded objects, the one with this address. */
static int find_object(struct dl_phdr_info *info, size_t size, void *arg)
{
	struct search *s = arg;
	uintptr_t start = UINTPTR_MAX, end = 0;
	bool found = false;

	for (int i = 0; i < info->dlpi_phnum; i++) {
		uintptr_t from = info->dlpi_addr + info->dlpi_phdr[i].p_vaddr, to = from + info->dlpi_phdr[i].p_memsz;

		if (info->dlpi_phdr[i].p_type != PT_LOAD)
			continue;
		found |= s->inside >= from && s->inside < to;
		start = from < start ? from : start;
		end = to > end ? to : end;
	}
	if (found)
		*s = (struct search){.start = start, .end = end};
	return found;
}

static void record_span(struct span *span, const void *inside)
{
	struct search s = {.inside = (uintptr_t)inside};

	if (!inside || !dl_iterate_phdr(find_object, &s))
		return;
	atomic_store_explicit(&span->start, s.start, memory_order_relaxed);
	atomic_store_explicit(&span->size, s.end - s.start, memory_order_release);
}

static bool is_within(struct span *span, const void *caller)
{
	size_t size = atomic_load_explicit(&span->size, memory_order_acquire);

	return (uintptr_t)caller - atomic_load_explicit(&span->start, memory_order_relaxed) < size;
}

static struct ibv_context *(*real_open_device)(struct ibv_device *device);
static struct ibv_context *(*real_import_device)(int cmd_fd);

static struct ibv_context *open_aside(struct ibv_device *device)
{
	vb_hardware_aside(true);
	struct ibv_context *context = real_open_device(device);
	vb_hardware_aside(false);
	return context;
}

static struct ibv_context *import_aside(int cmd_fd)
{
	vb_hardware_aside(true);
	struct ibv_context *context = real_import_device(cmd_fd);
	vb_hardware_aside(false);
	return context;
}

static void load_once(void)
{
	void *handle = vb_hardware_open("libibverbs.so.1", "vb_control_number");

	if (!handle) {
		vb_log(VB_LOG_ERROR,
		       "the kernel has RDMA devices, but the system's libibverbs.so.1 cannot be loaded, so they are "
		       "not used: install it, or set VERBENA_HARDWARE=off");
		return;
	}
	vb_real_fill(handle);
	record_span(&verbs_span, (const void *)vb_real.get_device_list);
	real_open_device = vb_real.open_device;
	vb_real.open_device = open_aside;
	real_import_device = vb_real.import_device;
	vb_real.import_device = real_import_device ? import_aside : NULL;
	vb_private_forward(handle);
	atomic_store(&loaded, true);
}

bool vb_hardware_load(void)
{
	if (atomic_load_explicit(&loaded, memory_order_acquire))
		return true;
	if (vb_hardware_wanted() == VB_HARDWARE_OFF || !vb_rdma_link_exists())
		return false;
	int saved = errno;
	pthread_once(&once, load_once);
	errno = saved;
	return atomic_load_explicit(&loaded, memory_order_acquire);
}

struct ibv_device **vb_hardware_list(int *n)
{
	int saved = errno;
	struct ibv_device **list = NULL;

	*n = 0;
	if (vb_hardware_load()) {
		vb_hardware_aside(true);
		list = vb_real.get_device_list(n);
		vb_hardware_aside(false);
	}
	if (!list)
		*n = 0;
	/* An interface whose device of the kernel no provider drives, or has no node in /dev, stays Verbena's. */
	if (vb_hardware_wanted() != VB_HARDWARE_OFF)
		vb_device_list_beside(list, *n);
	errno = saved;
	return list;
}

static bool names_device(struct ibv_device *const *list, const char *name)
{
	for (; list && *list; list++)
		if (!strcmp((*list)->name, name))
			return true;
	return false;
}

bool vb_hardware_covers(int ifindex)
{
	struct vb_rdma_link *links = calloc(VB_RDMA_LINKS_MAX, sizeof(*links));
	size_t n = links ? vb_rdma_link_list(links, VB_RDMA_LINKS_MAX) : 0, kept = 0;
	int n_usable;
	struct ibv_device **usable = vb_hardware_list(&n_usable);

	for (size_t i = 0; i < n; i++)
		if (names_device(usable, links[i].name))
			links[kept++] = links[i];
	bool covered = vb_rdma_links_have(links, kept, ifindex);

	if (usable)
		vb_real.free_device_list(usable);
	free(links);
	return covered;
}

bool vb_hardware_covers_device(struct ibv_device *device)
{
	return vb_hardware_covers(vb_device_of(device)->ifindex);
}

bool vb_hardware_is(const struct ibv_device *device)
{
	return !vb_device_is_ours(device);
}

void vb_hardware_cm_is(const void *inside)
{
	record_span(&cm_span, inside);
}

bool vb_hardware_is_cm(const void *caller)
{
	return is_within(&cm_span, caller);
}

bool vb_hardware_calls(const void *caller)
{
	return is_within(&verbs_span, caller) || is_within(&cm_span, caller);
}
