// device.h - one adapter per network interface: the device list, attributes of an adapter
// follows: IBA 11.2.1 (HCA); ibv_get_device_list(3), ibv_query_device(3), ibv_query_port(3), ibv_query_gid_ex(3)
// SPDX-License-Identifier: MIT
#ifndef VB_CORE_DEVICE_H
#define VB_CORE_DEVICE_H

#include <infiniband/verbs.h>
#include <stdatomic.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <sys/types.h>

#include "core/counts.h"
#include "core/gid.h"
#include "core/ib.h"
#include "core/limits.h"
#include "core/netif.h"
#include "util/lock.h"

/* Changes that vb_device_refresh reports. */
enum {
	VB_DEV_PORT_UP = 1 << 0,
	VB_DEV_PORT_DOWN = 1 << 1,
	VB_DEV_GID_CHANGE = 1 << 2,
	VB_DEV_MTU = 1 << 3, /* active_mtu changed */
	VB_DEV_LID_CHANGE = 1 << 5,
	VB_DEV_PKEY_CHANGE = 1 << 6,
	VB_DEV_SM_CHANGE = 1 << 7,
	VB_DEV_REREGISTER = 1 << 8, /* the subnet manager wants clients to register again */
	VB_DEV_SPEED = 1 << 9,      /* the link has come up with another speed, or has got another one */
	VB_DEV_GONE = 1 << 4,       /* the interface does not exist any more; reported once, and does not return */
};

struct vb_device {
	struct ibv_device dev; /* programs hold a pointer to this: must stay first */
	/* deviates: in rdma-core, fields of the private struct verbs_device follow, and libmlx5 reads them. If they are
	 * zeros, libmlx5 ignores the device. */
	char rdma_core_tail[4096 - sizeof(struct ibv_device)];

	int ifindex;           /* constant */
	int number;            /* constant: N of /dev/infiniband/uverbsN, netlink and ibv_get_device_index(3) */
	bool iwarp;            /* constant: RDMAP over TCP instead of RoCEv2 */
	bool ib;               /* constant: on an InfiniBand fabric; it has no interface, and ifindex is 0 */
	bool lids;             /* constant: has a LID, so that addresses need no GRH (core/lid.h) */
	__be64 node_guid;      /* constant: does not follow a later change of the MAC, as with hardware */
	unsigned refs;         /* atomic */
	atomic_size_t dm_used; /* bytes of device memory that this process has allocated */

	struct vb_lock lock; /* guards the fields below; the last in the order of locks */
	struct vb_netdev nd;
	struct vb_ib_port port;      /* of ib */
	_Atomic uint32_t lids_of_ib; /* LMC << 16 | LID of port, which datagrams read without the lock */
	struct vb_gid_table gids;
	unsigned pending; /* VB_DEV_ bits not yet returned by vb_device_refresh */
	uint32_t speed;   /* Mb/s: the last one of the link while it was up; 0: it has told none yet */
	bool gone;

	/* Counters in this process. Of queue pairs that have left their path: under node->progress. Of destroyed CQs, as
	 * vb_cq.errors: under node->ctx_lock. Those that were shown last, so that none seems to go back: the progress
	 * thread's. */
	struct vb_counts ended, shown;
	struct vb_counts tallied; /* what node/stat_devices.c keeps for closed devices: under node->ctx_lock */
	uint64_t ended_cqs[2][2];
};

/* The device list (node/device_list.c). These functions ask the kernel, and are thread-safe. */

/*
 * The devices of this machine, like ibv_get_device_list(3): an array that ends with NULL and holds one reference on
 * each device. *n (may be NULL) is their number. NULL with errno on failure. An interface has the same pointer as long
 * as a reference exists. Adapters that reach other hosts come first, then lo, then those that are down: programs use
 * the first one by default.
 */
struct ibv_device **vb_device_list(int *n);
void vb_device_list_free(struct ibv_device **list);

/* The same, selected as the program has last read it: neither a file that names adapters nor VERBENA_DEVICES is read. */
struct ibv_device **vb_device_list_kept(int *n);
/* Reads the file that names adapters again, for the calls that follow. No lock held. A file that is gone, cannot be
 * read or is wrong changes nothing. */
void vb_device_choice_read(void);

/* The fabric process has told the state of our port; NULL: it has ended. From the first call on vb_device_list does not ask
 * it. No lock held. */
void vb_device_ib_told(const struct vb_ib_port *port);

/* This program can use these n devices of the kernel only. An interface under another one stays Verbena's. Without this
 * call (the commands of `verbena`) all devices of the kernel count. */
void vb_device_list_beside(struct ibv_device *const *hardware, int n);

/* Reads the state of the interface again. Returns what changed since the last call for this device (VB_DEV_ bits).
 * Each bit is returned once, so only one thread of the process may call this for a device. */
unsigned vb_device_refresh(struct vb_device *dev);

/* Reads the state of the interface again. False: it has gone. What has changed is left for vb_device_refresh. */
bool vb_device_is_there(struct vb_device *dev);

struct vb_node;
/* Fills the counters of packets with a wrong P_Key and of datagrams with a wrong Q_Key: those that this program's queue
 * pairs on the device have dropped. No lock held except control mutexes. node/violations.c */
void vb_node_violations(struct vb_node *node, const struct vb_device *dev, struct ibv_port_attr *attr);

/* Is this an address of this host: of any interface, in 127.0.0.0/8, or a default GID? Asks the kernel, which takes
 * about 0.1 ms. */
bool vb_gid_is_local(const union ibv_gid *gid);
/* Index of the interface with this address or default GID, or 0. Asks the kernel. */
int vb_gid_to_ifindex(const union ibv_gid *gid);

/* One device (core/device.c). */

static inline struct vb_device *vb_device_of(struct ibv_device *dev)
{
	return (struct vb_device *)dev;
}

/* Makes a device of this interface with one reference and this node GUID. NULL if there is no memory. */
struct vb_device *vb_device_new(const struct vb_netdev *nd, const char *name, __be64 node_guid);
struct vb_device *vb_device_new_iwarp(const struct vb_netdev *nd, const char *name, __be64 node_guid);
struct vb_device *vb_device_new_ib(const char *name, const struct vb_ib_port *port);
struct vb_device *vb_device_get(struct vb_device *dev);
void vb_device_put(struct vb_device *dev);

/* Stores the state of the interface (NULL: it is gone), and records what changed for vb_device_refresh. */
void vb_device_apply(struct vb_device *dev, const struct vb_netdev *nd);
unsigned vb_device_take_pending(struct vb_device *dev);

/* Copies the stored state of the interface to *nd. */
void vb_device_netdev(struct vb_device *dev, struct vb_netdev *nd);

/*
 * Queries (core/device_query.c). They return 0 or an errno value, and fill nothing on failure. Ports are numbered from
 * 1.
 */

/* Fills the full-size struct. The caller cuts it to the size that the program passed. */
int vb_query_device_attr(struct vb_device *dev, struct ibv_device_attr_ex *attr);
/* EINVAL for a port other than 1. */
int vb_query_port_attr(struct vb_device *dev, uint32_t port, struct ibv_port_attr *attr);
/* An empty entry reads as the zero GID. EINVAL if index is out of range. */
int vb_query_gid_at(struct vb_device *dev, uint32_t port, int index, union ibv_gid *gid);
/* ENODATA for an empty entry, EINVAL if index is out of range. */
int vb_query_gid_entry(struct vb_device *dev, uint32_t port, uint32_t index, struct ibv_gid_entry *entry);
/* Copies all valid entries in order of index. Returns their number, or -EINVAL if max is too small for all. */
ssize_t vb_query_gid_list(struct vb_device *dev, struct ibv_gid_entry *entries, size_t max);
int vb_query_pkey_at(struct vb_device *dev, uint32_t port, int index, __be16 *pkey);
/* Has the adapter reliable connections only, and no address handles? RFC 5040 has neither UC nor UD. */
static inline bool vb_device_rc_only(const struct vb_device *dev)
{
	return dev->iwarp;
}
/* Has the adapter raw packet queue pairs? A fabric has no Ethernet frames. */
static inline bool vb_device_has_raw_packets(const struct vb_device *dev)
{
	return !dev->ib && !vb_device_rc_only(dev);
}
/* Number of entries of the GID table. An iWARP adapter has one entry, its MAC address, as in Linux. */
static inline int vb_device_gids(const struct vb_device *dev)
{
	return dev->iwarp ? 1 : dev->ib ? VB_IB_GUIDS : VB_GID_TBL_LEN;
}
/* Number of entries of the P_Key table. */
static inline int vb_device_pkeys(const struct vb_device *dev)
{
	return dev->iwarp ? 0 : dev->ib ? VB_IB_PKEYS : VB_PKEY_TBL_LEN;
}
/* Index of a GID in the table of this device, or -1. */
int vb_query_gid_index(struct vb_device *dev, uint32_t port, const union ibv_gid *gid);

/* The largest IB MTU that fits in IP packets of this size. Like rxe, it subtracts 80 bytes for headers. */
enum ibv_mtu vb_mtu_of_ip_mtu(uint32_t ip_mtu);

/*
 * Attributes as text (core/device_text.c), for ibv_read_sysfs_file and for the tree that programs read.
 */

/* Writes the attribute at a path below /sys/class/infiniband/<device>, without the newline of the file. Returns its
 * length and truncates like snprintf. Returns -1 with errno ENOENT (no such attribute) or EINVAL (attribute of an
 * empty GID entry, as in Linux). */
int vb_device_attr_text(struct vb_device *dev, const char *relpath, char *buf, size_t size);
/* Enumerates the paths that vb_device_attr_text accepts, in a fixed order, for index 0, 1, 2, ... False at the end. */
bool vb_device_attr_path(unsigned index, char *buf, size_t size);

#endif
