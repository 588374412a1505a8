// device_list.c - the device list of this process, made from the machine's network interfaces
// follows: ibv_get_device_list(3)
// SPDX-License-Identifier: MIT
#include <endian.h>
#include <errno.h>
#include <limits.h>
#include <net/if_arp.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "core/device.h"
#include "node/device_choice.h"
#include "node/host_guid.h"
#include "node/lids_only.h"
#include "net/netdev.h"
#include "core/rdma_link.h"
#include "fabric/proto/proto.h"
#include "util/env.h"
#include "util/hardware.h"
#include "util/links.h"
#include "util/log.h"
#include "util/lock.h"
#include "util/runtime.h"
#include "util/settings.h"

#define VB_LINK_HEADERS 80 /* what vb_mtu_of_ip_mtu keeps for headers */
enum { ABOVE_HARDWARE = 4096 };

/* Held while the interfaces are read and stored, so that an older state never replaces a newer one. Guards registry.
 * A device's own lock is taken inside it. */
static pthread_mutex_t scan_lock = PTHREAD_MUTEX_INITIALIZER;

static struct {
	struct vb_device **dev; /* one reference on each */
	size_t n;
} registry;

/* What selects the adapters. The progress thread uses what the program has read: in the meantime the program may have
 * given up the privilege to read the file, or changed its root directory or its environment. */
struct choice {
	unsigned turn;                                 /* a later reading has a higher one */
	char *spec;                                    /* VERBENA_DEVICES, or NULL: the lines count */
	char user[VB_LINKS_ROOM], path[VB_LINKS_ROOM]; /* the user's file; the file of the lines. "" for none */
	struct vb_links lines;
};
static struct choice *choice; /* NULL before the program first lists its devices. Guarded by scan_lock */
static unsigned turns;        /* the same */

/* The names of the kernel's devices that this program can use. Guarded by scan_lock. */
static struct {
	bool known;
	int n;
	char name[VB_RDMA_LINKS_MAX][IBV_SYSFS_NAME_MAX];
} usable;

/* The port on an InfiniBand fabric (VERBENA_FABRIC). Guarded by scan_lock. */
static struct {
	bool present; /* the fabric process has answered */
	bool told;    /* it tells changes by itself */
	struct vb_ib_port port;
} on_fabric;

static void lock_scan(void)
{
	vb_mutex_lock(&scan_lock, VB_RANK_SCAN);
}

static void unlock_scan(void)
{
	vb_mutex_unlock(&scan_lock);
}

/* Holds the lock over fork(), so that a child does not inherit it locked by a thread of the parent. */
__attribute__((constructor)) static void keep_lock_over_fork(void)
{
	pthread_atfork(lock_scan, unlock_scan, unlock_scan);
}

static __be64 guid_of(const struct vb_netdev *nd)
{
	static const uint8_t none[6];
	uint64_t guid;

	if (!memcmp(nd->mac, none, sizeof(none)))
		return htobe64(vb_host_guid(nd->name));
	vb_gid_eui64((uint8_t *)&guid, nd->mac);
	return guid;
}

static void free_choice(struct choice *c)
{
	if (c)
		free(c->spec);
	free(c);
}

/* Prepares a reading. *first: there is nothing that it may have to keep. Returns false if there is nothing to read. */
static bool begin_choice(struct choice *c, bool by_program, bool *first)
{
	const char *spec = by_program ? vb_env("VERBENA_DEVICES") : NULL;

	if (spec && *spec && !(c->spec = strdup(spec)))
		return false;
	lock_scan();
	bool is_fixed = !by_program && (!choice || choice->spec);

	*first = !choice || choice->spec || c->spec;
	if (!*first) {
		strcpy(c->user, choice->user);
		strcpy(c->path, choice->path);
	}
	c->turn = ++turns;
	unlock_scan();
	return !is_fixed;
}

/* Reads the file of the lines again, or the first one that now exists where there was none. */
static bool read_lines_again(struct choice *c)
{
	unsigned wrong = 0;

	if (*c->path)
		return !vb_links_load_from(&c->lines, c->path, &wrong) && !wrong;
	strcpy(c->path, c->user);
	if (*c->path && !vb_links_load_from(&c->lines, c->path, &wrong))
		return !wrong;
	vb_links_system_path(c->path);
	return !vb_links_load_from(&c->lines, c->path, &wrong) && !wrong;
}

/* Reads what selects the adapters, with no lock held: the file may be on a slow network. After the first time a file
 * that is gone, cannot be read or is wrong changes nothing, so that it takes no adapter away. by_program: in a thread of
 * the program, which may read the environment. */
static void read_choice(bool by_program)
{
	struct choice *c = calloc(1, sizeof(*c)), *old = c;
	bool first = false, good = c && begin_choice(c, by_program, &first);

	if (good && first && !c->spec) {
		if (!vb_links_user_path(c->user))
			*c->user = '\0';
		vb_links_load(&c->lines, c->path, false);
	} else if (good && !first) {
		good = read_lines_again(c);
	}
	lock_scan();
	if (good && (!choice || choice->turn < c->turn)) {
		old = choice;
		choice = c;
	}
	unlock_scan();
	free_choice(old);
}

/* The lines that name adapters; NULL if VERBENA_DEVICES selects them. Under scan_lock, as the others below. */
static const struct vb_links *kept_links(void)
{
	return choice && !choice->spec ? &choice->lines : NULL;
}

/* An interface under a device of the kernel has the adapters that the file names, not the automatic one. */
static bool is_wanted(const struct vb_links *l, enum vb_device_kind kind, const char *ifname, bool covered)
{
	if (!l)
		return vb_device_chosen(choice ? choice->spec : NULL, kind, ifname);
	return vb_links_of(l, ifname, kind == VB_DEVICE_IWARP) || (kind == VB_DEVICE_ROCE && l->automatic && !covered);
}

/* An adapter that its line sets down, or gives a smaller MTU, looks as if the interface were so. */
static void restrict_netdev(struct vb_netdev *nd, const struct vb_links *links, bool iwarp)
{
	const struct vb_link *link = links ? vb_links_of(links, nd->name, iwarp) : NULL;

	if (link && link->down)
		nd->flags &= ~(uint32_t)IFF_RUNNING;
	if (link && link->mtu && nd->mtu > link->mtu + VB_LINK_HEADERS)
		nd->mtu = link->mtu + VB_LINK_HEADERS;
}

/* Different interface names can give equal device names ("a:b", "a_b"). The second one gets the interface's index. */
static void unique_name(char *name, size_t size, enum vb_device_kind kind, const struct vb_netdev *nd,
                        const struct vb_links *links, struct vb_device *const *dev, size_t n)
{
	const struct vb_link *link = links ? vb_links_of(links, nd->name, kind == VB_DEVICE_IWARP) : NULL;

	if (link)
		snprintf(name, size, "%s", link->name);
	else
		vb_device_name(name, size, kind, nd->name);
	for (size_t i = 0; i < n; i++) {
		if (strcmp(dev[i]->dev.name, name))
			continue;
		size_t len = strlen(name);
		snprintf(name + len, size - len, "_%d", nd->ifindex);
		return;
	}
}

/* The kernel numbers its devices from 0, so ours begin above them where both stand in one list. */
static void number_above_hardware(struct vb_device *dev)
{
	if (vb_hardware_wanted() == VB_HARDWARE_OFF || !vb_rdma_link_exists())
		return;
	dev->number += ABOVE_HARDWARE;
	snprintf(dev->dev.dev_name, sizeof(dev->dev.dev_name), "uverbs%d", dev->number);
	snprintf(dev->dev.dev_path, sizeof(dev->dev.dev_path), "/sys/class/infiniband_verbs/%s", dev->dev.dev_name);
}

/* If the launcher has written a tree that replaces /sys, the device's paths are existing directories of that tree. */
static void set_paths(struct ibv_device *dev)
{
	char tree[IBV_SYSFS_PATH_MAX - 2 * IBV_SYSFS_NAME_MAX], path[PATH_MAX];

	if (vb_runtime_tree(tree, sizeof(tree)))
		return;
	int n = snprintf(path, sizeof(path), "%s/class/infiniband/%s", tree, dev->name);
	if (n < (int)sizeof(dev->ibdev_path) && !access(path, F_OK))
		memcpy(dev->ibdev_path, path, (size_t)n + 1);
	n = snprintf(path, sizeof(path), "%s/class/infiniband_verbs/%s", tree, dev->dev_name);
	if (n < (int)sizeof(dev->dev_path) && !access(path, F_OK))
		memcpy(dev->dev_path, path, (size_t)n + 1);
}

static bool has_lids(enum vb_device_kind kind)
{
	const char *text = vb_env("VERBENA_LIDS");

	return kind == VB_DEVICE_ROCE && (text && *text ? vb_lids_wanted() : vb_knows_lids_only());
}

/* Returns the known device of this interface, or makes one if it is new or was renamed. */
static struct vb_device *find_or_make(enum vb_device_kind kind, const struct vb_netdev *nd,
                                      const struct vb_links *links, struct vb_device *const *made, size_t n_made)
{
	char name[IBV_SYSFS_NAME_MAX];

	unique_name(name, sizeof(name), kind, nd, links, made, n_made);
	for (size_t i = 0; i < registry.n; i++) {
		struct vb_device *dev = registry.dev[i];

		if (dev->ifindex != nd->ifindex || strcmp(dev->dev.name, name))
			continue;
		vb_device_apply(dev, nd);
		return vb_device_get(dev);
	}
	struct vb_device *dev = (kind == VB_DEVICE_IWARP ? vb_device_new_iwarp : vb_device_new)(nd, name, guid_of(nd));
	if (dev) {
		dev->lids = has_lids(kind);
		number_above_hardware(dev);
		set_paths(&dev->dev);
	}
	return dev;
}

/* Asks the fabric process, unless it tells by itself. It may take long to answer, so no lock is held. */
static void ask_fabric(void)
{
	struct vb_fabric_port_is is;
	static bool said;

	lock_scan();
	bool ask = vb_fabric_socket() && !on_fabric.told;
	unlock_scan();
	if (!ask)
		return;
	long n = vb_fabric_ask(VB_FABRIC_PORT, 1, "", &is, sizeof(is));
	bool good = n == sizeof(is) && !is.error;

	lock_scan();
	if (good && !on_fabric.told) {
		on_fabric.present = true;
		on_fabric.port = is.port;
	}
	bool first = !good && !said;

	said |= first;
	unlock_scan();
	if (!first)
		return;
	char shown[128];

	if (n == sizeof(is))
		vb_log(VB_LOG_ERROR,
		       "VERBENA_NODE=\"%s\": no channel adapter of the fabric, or more than one, has this name",
		       vb_settings_shown(vb_fabric_node_name(), shown, sizeof(shown)));
	else
		vb_log(VB_LOG_ERROR, "VERBENA_FABRIC=\"%s\": no fabric answers there, so there is no " VB_FABRIC_DEVICE,
		       vb_settings_shown(vb_fabric_socket(), shown, sizeof(shown)));
}

/* The known device of the fabric, or a new one. NULL: there is none, or no memory. */
static struct vb_device *find_or_make_ib(void)
{
	if (!on_fabric.present)
		return NULL;
	for (size_t i = 0; i < registry.n; i++) {
		if (!registry.dev[i]->ib)
			continue;
		vb_device_apply_ib(registry.dev[i], &on_fabric.port);
		return vb_device_get(registry.dev[i]);
	}
	struct vb_device *dev = vb_device_new_ib(VB_FABRIC_DEVICE, &on_fabric.port);
	if (dev) {
		number_above_hardware(dev);
		set_paths(&dev->dev);
	}
	return dev;
}

void vb_device_ib_told(const struct vb_ib_port *port)
{
	lock_scan();
	on_fabric.told = true;
	if (port) {
		on_fabric.present = true;
		on_fabric.port = *port;
	} else {
		on_fabric.port.state = IBV_PORT_DOWN;
		on_fabric.port.phys = 3; /* Disabled */
	}
	for (size_t i = 0; i < registry.n; i++)
		if (registry.dev[i]->ib)
			vb_device_apply_ib(registry.dev[i], &on_fabric.port);
	unlock_scan();
}

static bool devices_listed(const struct vb_netdev *list, size_t n, int ifindex)
{
	for (size_t i = 0; i < n; i++)
		if (list[i].ifindex == ifindex)
			return true;
	return false;
}

static void replace_registry(struct vb_device **dev, size_t n, const struct vb_netdev *list, size_t n_list)
{
	for (size_t i = 0; i < registry.n; i++) {
		if (!registry.dev[i]->ib && !devices_listed(list, n_list, registry.dev[i]->ifindex))
			vb_device_apply(registry.dev[i], NULL);
		vb_device_put(registry.dev[i]);
	}
	free(registry.dev);
	registry.dev = dev;
	registry.n = n;
}

/* The order of the list. 0: reaches other hosts; 1: reaches this host; 2: up, but without an address; 3: down. */
static int device_rank(const struct vb_netdev *nd)
{
	if (!vb_netdev_is_up(nd))
		return 3;
	if (nd->arphrd == ARPHRD_LOOPBACK)
		return 1;
	return nd->n_addrs ? 0 : 2;
}

static int by_rank(const void *a, const void *b)
{
	const struct vb_device *x = *(struct vb_device *const *)a, *y = *(struct vb_device *const *)b;
	int d = y->ib - x->ib; /* who names a fabric wants to use it */

	if (!d)
		d = device_rank(&x->nd) - device_rank(&y->nd);
	if (!d)
		d = (x->ifindex > y->ifindex) - (x->ifindex < y->ifindex);
	return d ? d : x->iwarp - y->iwarp;
}

void vb_device_list_beside(struct ibv_device *const *hardware, int n)
{
	lock_scan();
	usable.known = true;
	usable.n = n < VB_RDMA_LINKS_MAX ? n : VB_RDMA_LINKS_MAX;
	for (int i = 0; i < usable.n; i++)
		snprintf(usable.name[i], sizeof(usable.name[i]), "%s", hardware[i]->name);
	unlock_scan();
}

static bool is_usable(const char *name)
{
	for (int i = 0; i < usable.n; i++)
		if (!strcmp(usable.name[i], name))
			return true;
	return !usable.known;
}

static bool covered_by_hardware(const struct vb_netdev *nd, const struct vb_netdev *all, size_t n_all,
                                const struct vb_rdma_link *ports, size_t n)
{
	for (size_t i = 0; i < n; i++)
		if (is_usable(ports[i].name) && vb_rdma_link_has(&ports[i], all, n_all, nd))
			return true;
	return false;
}

/* Moves the interfaces that are under a device of the kernel to the end of the list, and returns the number of the
 * others. If VERBENA_DEVICES is set (links is NULL), it alone chooses, and all are others. */
static size_t leave_to_hardware(struct vb_netdev *list, size_t n, const struct vb_links *links)
{
	size_t kept = 0, n_ports;

	if (vb_hardware_wanted() == VB_HARDWARE_OFF || !links || !vb_rdma_link_exists())
		return n;
	struct vb_rdma_link *ports = calloc(VB_RDMA_LINKS_MAX, sizeof(*ports));
	n_ports = ports ? vb_rdma_link_list(ports, VB_RDMA_LINKS_MAX) : 0;
	for (size_t i = 0; i < n; i++) {
		struct vb_netdev nd = list[i];

		if (covered_by_hardware(&nd, list, n, ports, n_ports))
			continue;
		list[i] = list[kept];
		list[kept++] = nd;
	}
	free(ports);
	return kept;
}

/* Under scan_lock. A device's nd is written under scan_lock only, so it is read here without the device's own lock. */
static int scan_devices(void)
{
	struct vb_netdev *list;
	size_t n_list, n = 0;
	int rc = vb_netdev_scan(&list, &n_list);

	if (rc)
		return rc;
	const struct vb_links *links = kept_links();
	size_t n_free = leave_to_hardware(list, n_list, links);
	size_t n_all = vb_hardware_wanted() == VB_HARDWARE_ONLY ? 0 : n_list;
	struct vb_device **dev = calloc(2 * n_all + 1, sizeof(struct vb_device *));
	if (dev && (dev[0] = find_or_make_ib()))
		n++;
	for (size_t i = 0; dev && i < 2 * n_all; i++) {
		struct vb_netdev nd = list[i / 2];
		enum vb_device_kind kind = i % 2 ? VB_DEVICE_IWARP : VB_DEVICE_ROCE;

		if (!vb_netdev_is_adapter(&nd) || !is_wanted(links, kind, nd.name, i / 2 >= n_free))
			continue;
		restrict_netdev(&nd, links, kind == VB_DEVICE_IWARP);
		dev[n] = find_or_make(kind, &nd, links, dev, n);
		if (!dev[n]) {
			while (n)
				vb_device_put(dev[--n]);
			free(dev);
			dev = NULL;
			break;
		}
		n++;
	}
	if (dev) {
		qsort(dev, n, sizeof(struct vb_device *), by_rank);
		replace_registry(dev, n, list, n_list);
	}
	free(list);
	return dev ? 0 : ENOMEM;
}

static struct ibv_device **list_devices(int *n)
{
	struct ibv_device **list = NULL;

	lock_scan();
	int rc = scan_devices();
	if (!rc) {
		list = calloc(registry.n + 1, sizeof(struct ibv_device *));
		rc = list ? 0 : ENOMEM;
	}
	for (size_t i = 0; list && i < registry.n; i++)
		list[i] = &vb_device_get(registry.dev[i])->dev;
	if (list && n)
		*n = (int)registry.n;
	unlock_scan();
	if (rc)
		errno = rc;
	return list;
}

struct ibv_device **vb_device_list(int *n)
{
	vb_settings_check();
	read_choice(true);
	ask_fabric();
	return list_devices(n);
}

struct ibv_device **vb_device_list_kept(int *n)
{
	return list_devices(n);
}

void vb_device_choice_read(void)
{
	read_choice(false);
}

void vb_device_list_free(struct ibv_device **list)
{
	for (size_t i = 0; list && list[i]; i++)
		vb_device_put(vb_device_of(list[i]));
	free(list);
}

/* Applies what the interface is now. The scan's lock is held. */
static void apply_interface(struct vb_device *dev)
{
	struct vb_netdev nd;
	int rc = vb_netdev_get(dev->ifindex, &nd);
	const struct vb_links *links = rc ? NULL : kept_links();
	if (!rc)
		restrict_netdev(&nd, links, dev->iwarp);
	if (links && !is_wanted(links, dev->iwarp ? VB_DEVICE_IWARP : VB_DEVICE_ROCE, nd.name, false))
		rc = ENODEV;
	/* ENODEV is a state of the interface, or its adapter was removed from the file. Other errors say nothing about it. */
	if (!rc || rc == ENODEV)
		vb_device_apply(dev, rc ? NULL : &nd);
}

unsigned vb_device_refresh(struct vb_device *dev)
{
	if (dev->ib)
		return vb_device_take_pending(dev);
	lock_scan();
	apply_interface(dev);
	unsigned changes = vb_device_take_pending(dev);
	unlock_scan();
	return changes;
}

bool vb_device_is_there(struct vb_device *dev)
{
	if (dev->ib)
		return true;
	lock_scan();
	apply_interface(dev);
	bool there = !dev->gone;
	unlock_scan();
	return there;
}

static bool has_gid(const struct vb_netdev *nd, const union ibv_gid *gid)
{
	union ibv_gid own;

	for (size_t i = 0; i < nd->n_addrs; i++)
		if (!memcmp(nd->addrs[i], gid->raw, 16))
			return true;
	vb_gid_default(&own, nd->mac);
	return vb_netdev_is_adapter(nd) && !memcmp(&own, gid, sizeof(own));
}

static bool is_ipv4_loopback(const union ibv_gid *gid)
{
	static const uint8_t prefix[13] = {0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0xff, 0xff, 127};

	return !memcmp(gid->raw, prefix, sizeof(prefix));
}

int vb_gid_to_ifindex(const union ibv_gid *gid)
{
	struct vb_netdev *list;
	size_t n;
	int ifindex = 0;

	if (vb_gid_is_zero(gid) || vb_netdev_scan(&list, &n))
		return 0;
	for (size_t i = 0; !ifindex && i < n; i++)
		if (has_gid(&list[i], gid))
			ifindex = list[i].ifindex;
	/* All of 127.0.0.0/8 is local, on lo, whatever its address. */
	for (size_t i = 0; !ifindex && i < n; i++)
		if (is_ipv4_loopback(gid) && list[i].arphrd == ARPHRD_LOOPBACK)
			ifindex = list[i].ifindex;
	free(list);
	return ifindex;
}

bool vb_gid_is_local(const union ibv_gid *gid)
{
	return is_ipv4_loopback(gid) || vb_gid_to_ifindex(gid) > 0;
}
