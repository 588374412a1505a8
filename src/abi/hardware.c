// hardware.c - loads the system's own libibverbs, and lists the devices that it has
// follows: dlopen(3), ibv_get_device_list(3)
// SPDX-License-Identifier: MIT
#include "abi/hardware.h"

#include <dlfcn.h>
#include <errno.h>
#include <limits.h>
#include <link.h>
#include <net/if.h>
#include <net/if_arp.h>
#include <pthread.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/ioctl.h>
#include <sys/socket.h>
#include <unistd.h>

#include "abi/real.h"
#include "core/device.h"
#include "core/rdma_link.h"
#include "util/hardware.h"
#include "util/lock.h"
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

/* Where a library lies. Written once, before anything of it runs. */
struct span {
	_Atomic uintptr_t start, end;
};
static struct span cm_span, verbs_span;

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

struct span_search {
	uintptr_t inside;
	struct span *span;
};

/* Called for each loaded library. Returns 1 to end the search. */
static int find_span(struct dl_phdr_info *info, size_t size, void *arg)
{
	struct span_search *search = arg;
	uintptr_t start = UINTPTR_MAX, end = 0;

	for (int i = 0; i < info->dlpi_phnum; i++) {
		const ElfW(Phdr) *ph = &info->dlpi_phdr[i];
		uintptr_t at = info->dlpi_addr + ph->p_vaddr;

		if (ph->p_type != PT_LOAD)
			continue;
		start = at < start ? at : start;
		end = at + ph->p_memsz > end ? at + ph->p_memsz : end;
	}
	if (search->inside < start || search->inside >= end)
		return 0;
	atomic_store(&search->span->end, end);
	atomic_store(&search->span->start, start);
	return 1;
}

static void learn_span(struct span *span, const void *inside)
{
	dl_iterate_phdr(find_span, &(struct span_search){.inside = (uintptr_t)inside, .span = span});
}

static bool is_inside(const struct span *span, const void *address)
{
	uintptr_t start = atomic_load_explicit(&span->start, memory_order_relaxed);

	return __builtin_expect(start != 0, 0) && (uintptr_t)address >= start &&
	       (uintptr_t)address < atomic_load_explicit(&span->end, memory_order_relaxed);
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
	learn_span(&verbs_span, dlsym(handle, "ibv_get_device_list"));
	vb_real_fill(handle);
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

/* The names of the devices that the system's library has listed: it leaves out those without a driver or without a file in
 * /dev/infiniband. */
static struct {
	pthread_mutex_t lock;
	bool known;
	unsigned n;
	char name[VB_RDMA_LINKS_MAX][IBV_SYSFS_NAME_MAX];
} usable = {.lock = PTHREAD_MUTEX_INITIALIZER};

static void note_usable(struct ibv_device *const *list, int n)
{
	vb_mutex_lock(&usable.lock, VB_RANK_NONE);
	usable.known = true;
	usable.n = 0;
	for (int i = 0; i < n && usable.n < VB_RDMA_LINKS_MAX; i++)
		snprintf(usable.name[usable.n++], IBV_SYSFS_NAME_MAX, "%s", list[i]->name);
	vb_mutex_unlock(&usable.lock);
}

struct ibv_device **vb_hardware_list(int *n)
{
	int saved = errno;

	*n = 0;
	if (!vb_hardware_load())
		return NULL;
	vb_hardware_aside(true);
	struct ibv_device **list = vb_real.get_device_list(n);
	vb_hardware_aside(false);
	note_usable(list, list ? *n : 0);
	errno = saved;
	return list;
}

static bool list_usable(void)
{
	int n;
	struct ibv_device **list = vb_hardware_list(&n);

	if (list)
		vb_real.free_device_list(list);
	return list;
}

/* Can programs use the kernel's device of this name? */
static bool is_usable(const char *name)
{
	bool found = false;

	vb_mutex_lock(&usable.lock, VB_RANK_NONE);
	bool known = usable.known;
	vb_mutex_unlock(&usable.lock);
	if (!known && !list_usable())
		return false;
	vb_mutex_lock(&usable.lock, VB_RANK_NONE);
	for (unsigned i = 0; i < usable.n && !found; i++)
		found = !strcmp(usable.name[i], name);
	vb_mutex_unlock(&usable.lock);
	return found;
}

__attribute__((constructor)) static void register_usable(void)
{
	vb_rdma_link_usable = is_usable;
}

static bool is_infiniband(int ifindex)
{
	struct ifreq ifr = {0};
	int sock = socket(AF_INET, SOCK_DGRAM | SOCK_CLOEXEC, 0);
	bool is = sock >= 0 && if_indextoname((unsigned)ifindex, ifr.ifr_name) && !ioctl(sock, SIOCGIFHWADDR, &ifr) &&
	          ifr.ifr_hwaddr.sa_family == ARPHRD_INFINIBAND;

	if (sock >= 0)
		close(sock);
	return is;
}

bool vb_hardware_covers(int ifindex)
{
	struct vb_rdma_link *links = calloc(VB_RDMA_LINKS_MAX, sizeof(*links));
	size_t n = links ? vb_rdma_link_list(links, VB_RDMA_LINKS_MAX) : 0;
	bool covered = false;

	for (size_t i = 0; i < n && !covered; i++)
		covered = links[i].ifindex == ifindex && is_usable(links[i].name);
	free(links);
	return covered || is_infiniband(ifindex);
}

bool vb_hardware_took_over(const struct ibv_device *ours)
{
	return vb_hardware_load() && vb_hardware_covers(vb_device_of((struct ibv_device *)ours)->ifindex);
}

bool vb_hardware_is(const struct ibv_device *device)
{
	return !vb_device_is_ours(device);
}

void vb_hardware_cm_is(const void *inside)
{
	learn_span(&cm_span, inside);
}

bool vb_hardware_is_cm(const void *caller)
{
	return is_inside(&cm_span, caller);
}

bool vb_hardware_is_caller(const void *caller)
{
	return is_inside(&cm_span, caller) || is_inside(&verbs_span, caller);
}
