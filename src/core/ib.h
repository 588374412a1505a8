// ib.h - adapters on an InfiniBand fabric: their port, and the ways from it
// follows: IBA volume 1, 4.1.3 (LIDs), 10.9 (partitions); docs/infiniband.md
// SPDX-License-Identifier: MIT
#ifndef VB_CORE_IB_H
#define VB_CORE_IB_H

#include <infiniband/verbs.h>
#include <stdatomic.h>
#include <stdbool.h>

#include "frame/ib_port.h"

struct vb_device;

/* What identifies a way from our port. */
struct vb_ib_route {
	union ibv_gid dgid;  /* zeros without a GRH */
	uint16_t dlid, pkey; /* pkey 0: no switch is asked about it */
	uint8_t path_bits, sl;
	bool grh, both; /* both: answers come back */
};

/* A way through the fabric, as the fabric process has told it last. It exists as long as the node. */
struct vb_ib_way {
	_Atomic bool open;
	_Atomic uint16_t slid;
	_Atomic uint8_t path_bits; /* of the receiver's LID */
	_Atomic uint32_t turn;     /* counts the changes of address */
	struct vb_ib_route route;  /* constant */
	union ibv_gid address;     /* by which the broker finds programs at its end; under questions_lock */
	struct vb_ib_way *next;    /* of the same hash; under questions_lock, as the rest */
	uint32_t tag, users;
	struct vb_ib_way *next_unsent;
	bool asked, unsent, answered; /* asked: the fabric process knows it. unsent: a message about it waits */
	uint8_t why;                  /* enum vb_fabric_why */
	struct vb_ib_sent *sent;      /* constant; NULL: nothing is counted */
};

/* Stores what the fabric process said. Records what changed for vb_device_take_pending. Values that no port can have are
 * replaced. */
void vb_device_apply_ib(struct vb_device *dev, const struct vb_ib_port *port);
/* Copies the port. */
void vb_device_ib_port(struct vb_device *dev, struct vb_ib_port *port);
/* The LID with these path bits, and the path bits of a LID. They take no lock. */
uint16_t vb_ib_lid(const struct vb_device *dev, uint8_t path_bits);
uint8_t vb_ib_path_bits(const struct vb_device *dev, uint16_t lid);
int vb_ib_query_port(struct vb_device *dev, struct ibv_port_attr *attr);
/* The P_Key at this index, or 0. */
uint16_t vb_ib_pkey(struct vb_device *dev, unsigned index);
/* EINVAL if the address vector cannot be of this port. *sgid: the source GID. */
int vb_ib_check_av(struct vb_device *dev, const struct ibv_ah_attr *av, union ibv_gid *sgid);
struct vb_ib_route vb_ib_route_of(const struct ibv_ah_attr *av, uint16_t pkey, bool both);

/* What peers on this host read of a queue pair: its P_Key, or 0, and above it the LID from which a connected one takes packets.
 * 0: its adapter is on no fabric. */
#define VB_IB_ANY_LID 0xffffu
#define VB_IB_SHARED(pkey, from) ((uint32_t)(from) << 16 | ((pkey)&0x7fff ? (pkey) : 0))
#define VB_IB_UNCHECKED 0x8000 /* is never shared */
static inline bool vb_ib_partitions_match(uint32_t a, uint32_t b)
{
	return !(a >> 16) == !(b >> 16) && (!(a >> 16) || vb_pkeys_match((uint16_t)a, (uint16_t)b));
}

/* IBA 9.6.1.2: does a queue pair that shares this take what comes by the way? way NULL: that of datagrams, or there is none. */
static inline bool vb_ib_takes_from(uint32_t shared, const struct vb_ib_way *way)
{
	uint32_t from = shared >> 16;

	return !way || !from || from == VB_IB_ANY_LID || from == atomic_load_explicit(&way->slid, memory_order_relaxed);
}

#endif
