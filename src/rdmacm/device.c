// device.c - the adapters that librdmacm has opened, and which of them owns an address
// follows: rdma_get_devices(3); annex A17 (RoCEv2): the GIDs of a port are its interface's addresses
// SPDX-License-Identifier: MIT
#include <fcntl.h>
#include <stdlib.h>
#include <sys/socket.h>
#include <unistd.h>

#include "abi/hardware.h"
#include "abi/port.h"
#include "rdmacm/hardware.h"
#include "rdmacm/rdmacm.h"
#include "util/calls.h"
#include "util/lock.h"
#include "util/log.h"

/* Guards the list and its devices' pd and xrcd. Not taken with rcm.lock held; rcm.lock may be taken under it. */
static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
static struct rcm_device *devices;

/* Adapters are opened and queried under this lock, so the thread must not be cancelled meanwhile. */
static int lock_devices(void)
{
	int cancel;

	vb_cancel_defer(&cancel);
	vb_mutex_lock(&lock, VB_RANK_RCM_DEVICES);
	return cancel;
}

static void unlock_devices(int cancel)
{
	vb_mutex_unlock(&lock);
	vb_cancel_restore(cancel);
}

static struct rcm_device *open_device(struct ibv_device *ibdev)
{
	struct rcm_device *dev = calloc(1, sizeof(*dev));
	struct ibv_device_attr attr;
	struct ibv_port_attr port;

	if (!dev)
		return NULL;
	dev->verbs = ibv_open_device(ibdev);
	if (!dev->verbs || ibv_query_device(dev->verbs, &attr)) {
		if (dev->verbs)
			ibv_close_device(dev->verbs);
		free(dev);
		return NULL;
	}
	dev->guid = be64toh(attr.node_guid);
	dev->max_initiator_depth = (uint8_t)(attr.max_qp_init_rd_atom < 255 ? attr.max_qp_init_rd_atom : 254);
	dev->max_responder_resources = (uint8_t)(attr.max_qp_rd_atom < 255 ? attr.max_qp_rd_atom : 254);
	dev->ack_delay = attr.local_ca_ack_delay;
	dev->iwarp = ibdev->transport_type == IBV_TRANSPORT_IWARP;
	dev->fabric =
	        !dev->iwarp && !ibv_query_port(dev->verbs, 1, &port) && port.link_layer == IBV_LINK_LAYER_INFINIBAND;
	return dev;
}

static bool is_same_device(const struct rcm_device *dev, struct ibv_device *ibdev)
{
	return !strcmp(ibv_get_device_name(dev->verbs->device), ibv_get_device_name(ibdev)) &&
	       dev->guid == be64toh(ibv_get_device_guid(ibdev));
}

static bool is_listed(const struct rcm_device *dev, struct ibv_device *const *list, int n)
{
	for (int i = 0; i < n; i++)
		if (is_same_device(dev, list[i]))
			return true;
	return false;
}

static void add_device(struct ibv_device *ibdev)
{
	struct rcm_device **at = &devices;

	while (*at && ((*at)->gone || !is_same_device(*at, ibdev)))
		at = &(*at)->next;
	if (!*at)
		*at = open_device(ibdev);
}

/* rcm.lock held. */
static void tell_removal(struct rcm_id *id, const struct rcm_device *dev)
{
	for (; id; id = id->next) {
		if (id->source.dev != dev || id->state == RCM_REMOVED)
			continue;
		id->state = RCM_REMOVED;
		if (id->delivers_events)
			rcm_post(id, RDMA_CM_EVENT_DEVICE_REMOVAL, 0);
	}
}

/* The adapter vanished with its interface: notifies those of its users that do not know yet. */
static void remove_device(struct rcm_device *dev)
{
	dev->gone = true;
	rcm_lock();
	tell_removal(rcm.ids, dev);
	tell_removal(rcm.listeners, dev);
	rcm_unlock();
}

/* Updates the list to the present devices. */
static void refresh_devices(void)
{
	int n = 0;
	struct ibv_device **list = ibv_get_device_list(&n);

	if (!list)
		return;
	for (int i = 0; i < n; i++)
		if (!vb_hardware_is(list[i]))
			add_device(list[i]);
	for (struct rcm_device *dev = devices; dev; dev = dev->next)
		if (!dev->gone && !is_listed(dev, list, n) && !vb_hardware_covers_device(dev->verbs->device))
			remove_device(dev); /* a new device of the kernel takes no device from the program */
	ibv_free_device_list(list);
}

void rcm_devices_forget(void)
{
	pthread_mutex_init(&lock, NULL);
	devices = NULL;
	rcm_watch_forget();
}

void rcm_device_gone(struct rcm_device *dev)
{
	int cancel = lock_devices();
	remove_device(dev);
	unlock_devices(cancel);
}

/* A call on a synchronous id waits for an event of its own, and would take this one for it. */
static void tell_move(struct rcm_id *id, const struct rcm_device *dev)
{
	for (; id; id = id->next)
		if (id->source.dev == dev && id->state != RCM_REMOVED && id->delivers_events && !id->sync)
			rcm_post(id, RDMA_CM_EVENT_ADDR_CHANGE, 0);
}

void rcm_device_moved(struct rcm_device *dev)
{
	rcm_lock();
	tell_move(rcm.ids, dev);
	tell_move(rcm.listeners, dev);
	rcm_unlock();
}

/* Its only GID is a MAC address, so the addresses are those of the interface. */
static bool find_in_iwarp(struct rcm_device *dev, const uint8_t gid[16], uint32_t ifindex, struct rcm_source *out)
{
	uint32_t own;

	if (!vb_iwcm_address(dev->verbs, gid, &own) || (ifindex && ifindex != own))
		return false;
	*out = (struct rcm_source){.dev = dev, .port = 1, .ifindex = own};
	memcpy(out->gid.raw, gid, sizeof(out->gid));
	return true;
}

static bool is_source(const struct ibv_gid_entry *e, const uint8_t gid[16], uint32_t ifindex)
{
	return e->gid_type == IBV_GID_TYPE_ROCE_V2 && !memcmp(e->gid.raw, gid, 16) &&
	       (!ifindex || e->ndev_ifindex == ifindex);
}

static struct rcm_source source_at(struct rcm_device *dev, const struct ibv_gid_entry *e)
{
	return (struct rcm_source){.dev = dev,
	                           .gid_index = (int)e->gid_index,
	                           .port = (uint8_t)e->port_num,
	                           .ifindex = e->ndev_ifindex,
	                           .gid = e->gid};
}

static bool find_in(struct rcm_device *dev, const uint8_t gid[16], uint32_t ifindex, struct rcm_source *out)
{
	struct ibv_gid_entry last;
	struct ibv_port_attr port;

	if (vb_query_port_bare(dev->verbs, 1, &port) || port.gid_tbl_len <= 0)
		return false;
	/* usually the one that was asked for before */
	if (!ibv_query_gid_ex(dev->verbs, 1, dev->last_gid, &last, 0) && is_source(&last, gid, ifindex)) {
		*out = source_at(dev, &last);
		return true;
	}
	struct ibv_gid_entry *e = calloc((size_t)port.gid_tbl_len, sizeof(*e));
	ssize_t n = e ? ibv_query_gid_table(dev->verbs, e, (size_t)port.gid_tbl_len, 0) : 0;
	bool found = false;

	for (ssize_t i = 0; i < n && !found; i++) {
		found = is_source(&e[i], gid, ifindex);
		if (found)
			*out = source_at(dev, &e[i]);
	}
	if (found)
		dev->last_gid = (uint32_t)out->gid_index;
	free(e);
	return found;
}

static bool find_on_fabric(struct rcm_device *dev, const uint8_t *gid, struct rcm_source *out)
{
	union ibv_gid own;

	if (dev->gone || !dev->fabric)
		return false;
	for (int i = 0; !ibv_query_gid(dev->verbs, 1, i, &own); i++)
		if (!gid || !memcmp(own.raw, gid, sizeof(own))) {
			*out = (struct rcm_source){.dev = dev, .gid_index = i, .port = 1, .gid = own};
			return true;
		}
	return false;
}

int rcm_find_fabric(const uint8_t gid[16], struct rcm_source *out)
{
	bool any = false, found = false;

	int cancel = lock_devices();
	if (!devices)
		refresh_devices();
	for (struct rcm_device *dev = devices; dev && !found; dev = dev->next) {
		any |= dev->fabric && !dev->gone;
		found = find_on_fabric(dev, gid, out);
	}
	unlock_devices(cancel);
	return found ? 0 : any ? EADDRNOTAVAIL : ENODEV;
}

static bool find_source(enum rcm_kind kind, const uint8_t gid[16], uint32_t ifindex, struct rcm_source *out)
{
	if (kind == RCM_EITHER)
		return find_source(RCM_ROCE, gid, ifindex, out) || find_source(RCM_IWARP, gid, ifindex, out);
	for (struct rcm_device *dev = devices; dev; dev = dev->next)
		if (!dev->gone && dev->iwarp == (kind == RCM_IWARP) &&
		    (dev->iwarp ? find_in_iwarp : find_in)(dev, gid, ifindex, out))
			return true;
	return false;
}

bool rcm_local_address(const uint8_t gid[16], uint32_t ifindex)
{
	union rcm_addr addr;

	rcm_addr_from_gid(&addr, gid, 0, ifindex);
	int fd = socket(addr.sa.sa_family, SOCK_DGRAM | SOCK_CLOEXEC, 0);
	bool local = fd >= 0 && !bind(fd, &addr.sa, rcm_addr_len(&addr.sa));

	if (fd >= 0)
		close(fd);
	return local;
}

/* All of 127.0.0.0/8 is this host, but the interface has only one address of it. */
static bool loopback_net(const uint8_t gid[16], uint8_t main_address[16])
{
	union rcm_addr addr;

	rcm_addr_from_gid(&addr, gid, 0, 0);
	if (addr.sa.sa_family != AF_INET || !rcm_addr_loopback(&addr))
		return false;
	addr.sin.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
	rcm_addr_gid(&addr, main_address);
	return true;
}

/* True if the port is up and has an address. The default GID of RoCE is not an address; the GID of iWARP stands for the
 * interface's addresses. */
static bool reaches_others(struct rcm_device *dev, uint32_t lo)
{
	struct ibv_gid_entry e;
	struct ibv_port_attr port;
	bool found = false;

	if (dev->gone || ibv_query_port(dev->verbs, 1, &port) || port.state != IBV_PORT_ACTIVE)
		return false;
	for (int i = dev->iwarp ? 0 : 1; i < port.gid_tbl_len && !found; i++)
		found = !ibv_query_gid_ex(dev->verbs, 1, (uint32_t)i, &e, 0) && e.ndev_ifindex != lo;
	return found;
}

bool rcm_has_adapter_beside(uint32_t lo)
{
	bool found = false;

	int cancel = lock_devices();
	refresh_devices();
	for (struct rcm_device *dev = devices; dev && !found; dev = dev->next)
		found = reaches_others(dev, lo);
	unlock_devices(cancel);
	return found;
}

int rcm_find_source(enum rcm_kind kind, const uint8_t gid[16], uint32_t ifindex, struct rcm_source *out)
{
	uint8_t main_address[16];

	int cancel = lock_devices();
	bool found = devices && find_source(kind, gid, ifindex, out);

	if (!found) {
		refresh_devices();
		found = find_source(kind, gid, ifindex, out) ||
		        (loopback_net(gid, main_address) && find_source(kind, main_address, 0, out));
	}
	unlock_devices(cancel);
	if (found)
		return 0;
	return rcm_local_address(gid, ifindex) ? ENODEV : EADDRNOTAVAIL;
}

void rcm_open_devices(void)
{
	int cancel = lock_devices();
	if (!devices) /* later adapters are found when they are needed */
		refresh_devices();
	unlock_devices(cancel);
}

bool rcm_any_iwarp(void)
{
	const struct rcm_device *dev;

	int cancel = lock_devices();
	for (dev = devices; dev && (dev->gone || !dev->iwarp);)
		dev = dev->next;
	unlock_devices(cancel);
	return dev;
}

int rcm_device_pd(struct rcm_device *dev)
{
	int cancel = lock_devices();
	if (!dev->pd)
		dev->pd = ibv_alloc_pd(dev->verbs);
	int err = dev->pd ? 0 : errno;

	if (!dev->gone && !dev->watch)
		rcm_watch(dev);
	if (dev->gone) /* the caller's id may have got the device after the others were notified */
		remove_device(dev);
	unlock_devices(cancel);
	return err;
}

int rcm_device_xrcd(struct rcm_device *dev)
{
	struct ibv_xrcd_init_attr attr = {
	        .comp_mask = IBV_XRCD_INIT_ATTR_FD | IBV_XRCD_INIT_ATTR_OFLAGS, .fd = -1, .oflags = O_CREAT};

	int cancel = lock_devices();
	if (!dev->xrcd)
		dev->xrcd = ibv_open_xrcd(dev->verbs, &attr);
	int err = dev->xrcd ? 0 : errno;

	unlock_devices(cancel);
	return err;
}

/* Returns all contexts, with a NULL after the last. The caller holds lock. */
static struct ibv_context **list_contexts(int *count)
{
	struct ibv_context **list;
	int n = 0;

	for (struct rcm_device *dev = devices; dev; dev = dev->next)
		n += !dev->gone;
	list = n ? calloc((size_t)n + 1, sizeof(*list)) : NULL;
	if (!list) {
		errno = n ? ENOMEM : ENODEV;
		return NULL;
	}
	*count = n;
	n = 0;
	for (struct rcm_device *dev = devices; dev; dev = dev->next)
		if (!dev->gone)
			list[n++] = dev->verbs;
	return list;
}

/* The kernel's devices, then ours. Takes both lists over. */
static struct ibv_context **join_contexts(struct ibv_context **real, int n_real, struct ibv_context **ours, int n_ours)
{
	struct ibv_context **list = calloc((size_t)n_real + (size_t)n_ours + 1, sizeof(*list));

	if (list) {
		memcpy(list, real, (size_t)n_real * sizeof(*list));
		if (n_ours)
			memcpy(list + n_real, ours, (size_t)n_ours * sizeof(*list));
		free(real);
	} else {
		rcm_real.free_devices(real);
		errno = ENOMEM;
	}
	free(ours);
	return list;
}

RCM_EXPORT struct ibv_context **rdma_get_devices(int *num_devices)
{
	struct ibv_context **list, **real = NULL;
	int n = 0, n_real = 0;

	if (rcm_hw_load()) {
		vb_hardware_aside(true);
		real = rcm_real.get_devices(&n_real);
		vb_hardware_aside(false);
	}
	int cancel = lock_devices();
	refresh_devices();
	list = list_contexts(&n);
	unlock_devices(cancel);
	if (real)
		list = join_contexts(real, n_real, list, n);
	if (num_devices)
		*num_devices = list ? n + n_real : 0;
	return list;
}

RCM_EXPORT void rdma_free_devices(struct ibv_context **list)
{
	size_t others = 0;

	for (size_t i = 0; list && list[i]; i++) /* the program may have sorted the array */
		if (vb_hardware_is(list[i]->device))
			list[others++] = list[i];
	if (!others) {
		free(list);
		return;
	}
	list[others] = NULL; /* ours stay open */
	rcm_real.free_devices(list);
}
