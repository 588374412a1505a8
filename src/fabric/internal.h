// internal.h - what the parts of the simulated subnet call in each other
// follows: IBA volume 1, chapter 14
// SPDX-License-Identifier: MIT
#ifndef VB_FABRIC_INTERNAL_H
#define VB_FABRIC_INTERNAL_H

#include "fabric/fabric.h"

/* A datagram under way. SMPs travel decoded. */
struct vb_fabric_flight {
	struct vb_fabric_port *from; /* where it starts, or has come in by a cable */
	bool is_smp;
	bool came_in;
	unsigned hops; /* switches that it has passed by its LID */
	struct vb_smp smp;
	struct vb_fabric_packet packet;
};

#define VB_DROP(f, why) ((void)(f)->drops.why++)

/* Port 0 of a switch; the port itself otherwise: where SMPs and GMPs for the node end. */
static inline struct vb_fabric_port *vb_fabric_end_port(struct vb_fabric_port *p)
{
	return p->node->sw ? &p->node->port[0] : p;
}

static inline bool vb_fabric_is_up(const struct vb_fabric_port *p)
{
	return p->info.phys == VB_PHYS_UP && p->peer != NULL;
}

static inline bool vb_fabric_is_lid_of(const struct vb_fabric_port *p, uint16_t lid)
{
	return p->info.lid && lid >= p->info.lid && lid < p->info.lid + (1 << p->info.lmc);
}

/* 7.2.7: an Armed port takes data, and turns Active with it. */
static inline bool vb_fabric_takes_data(const struct vb_fabric_port *p)
{
	return p->info.state == VB_PORT_ACTIVE || p->info.state == VB_PORT_ARMED;
}

/* Data has come in here: no PortStateChange, because the port has changed by itself. */
static inline void vb_fabric_data_came(struct vb_fabric_port *p)
{
	if (p->info.state != VB_PORT_ARMED)
		return;
	p->info.state = VB_PORT_ACTIVE;
	p->node->fabric->changes++;
}

/* The most payload of a packet that its link takes. */
static inline uint32_t vb_fabric_mtu_bytes(const struct vb_fabric_port *p)
{
	return 128u << (p->info.neighbor_mtu & 7);
}

/* The port to which a switch's linear table leads. NULL: no route. */
static inline struct vb_fabric_port *vb_fabric_lft_port(struct vb_fabric_node *n, uint16_t dlid)
{
	uint8_t num = dlid < n->sw->lft_len && dlid <= n->sw->info.lft_top ? n->sw->lft[dlid] : 0xff;

	return num <= n->ports ? &n->port[num] : NULL;
}

/* 14.2.5.8. in: where it has come into the node of out; out itself at the start. A CA has one map for each port, a switch
 * one for each pair of ports. */
static inline uint8_t vb_fabric_vl_of(const struct vb_fabric_port *out, const struct vb_fabric_port *in, uint8_t sl)
{
	const uint8_t *map = out->sl2vl ? out->sl2vl + (out->node->sw ? 8 * in->num : 0) : NULL;

	if (!map)
		return sl & 7;
	return sl & 1 ? map[sl / 2] & 15 : map[sl / 2] >> 4;
}

/* OperationalVLs: 14.2.5.6. VL 15 is no lane for data. */
static inline bool vb_fabric_has_vl(const struct vb_fabric_port *p, uint8_t vl)
{
	static const uint8_t vls[] = {1, 1, 2, 4, 8, 15};

	return vl < (p->info.oper_vls < sizeof(vls) ? vls[p->info.oper_vls] : 1);
}

/* Does a switch that enforces partitions on a port (14.2.5.6) let this P_Key pass? way: VB_ENFORCE_*. Membership is
 * for hosts to judge: a switch's port to a limited member has the limited key, which that member sends. */
static inline bool vb_fabric_lets_pass(const struct vb_fabric_port *p, uint16_t pkey, uint8_t way)
{
	if (!p->node->sw || !p->num || !(p->info.enforce & way))
		return true;
	for (unsigned i = 0; (pkey & 0x7fff) && i < vb_fabric_pkeys(p); i++)
		if ((vb_fabric_pkey(p, i) & 0x7fff) == (pkey & 0x7fff))
			return true;
	return false;
}

/* Answers a request in place. in: where it arrived. False: it is not answered. */
bool vb_sma_answer(struct vb_fabric_port *in, struct vb_smp *smp);
/* Whether the node answers it: it is not SMInfo, a trap or a response, which are for programs. */
bool vb_sma_takes(const struct vb_smp *smp);
/* Set of PortInfo: changes what is set. Returns a status. */
uint8_t vb_sma_set_port_info(struct vb_fabric_port *p, const struct vb_port_info *set);
/* Answers a request for counters in place. False: it is not answered. */
bool vb_pma_answer(struct vb_fabric_port *p, uint8_t mad[VB_MAD_LEN]);

void vb_trap_repress(struct vb_fabric_node *n, const struct vb_smp *smp);
void vb_trap_timer(struct vb_fabric *f);
void vb_trap_forget(struct vb_fabric_node *n);

/* Does a switch's port let it pass? Otherwise it counts that, and sends a trap. way: VB_ENFORCE_*. */
bool vb_fabric_may_pass(struct vb_fabric_port *p, const struct vb_fabric_packet *k, uint8_t way);
/* A host's port has got a P_Key of none of its partitions: counts that, and sends a trap. */
void vb_fabric_bad_pkey(struct vb_fabric_port *p, const struct vb_fabric_packet *k);
/* Is it one of the GIDs of the port? */
bool vb_fabric_has_gid(const struct vb_fabric_port *p, const uint8_t gid[16]);

/* Queues, and runs what is queued unless that is being done. */
void vb_fabric_launch(struct vb_fabric_port *from, const struct vb_fabric_packet *packet, const struct vb_smp *smp);

/* From LRH to VCRC: a GRH, BTH, DETH, the datagram. */
#define VB_FABRIC_MAD_PACKET (8 + 40 + 12 + 8 + VB_MAD_LEN + 4 + 2)
/* Returns its length. */
size_t vb_fabric_encode(uint8_t bytes[VB_FABRIC_MAD_PACKET], const struct vb_fabric_packet *k);
/* False: it is no management datagram, or its ICRC is wrong. */
bool vb_fabric_decode(struct vb_fabric_packet *k, const uint8_t *bytes, const struct vb_link_packet *p);
void vb_fabric_launch_flight(struct vb_fabric *f, const struct vb_fabric_flight *fl);

void vb_fabric_port_defaults(struct vb_fabric_port *p);
void vb_fabric_port_state(struct vb_fabric_port *p, uint8_t state);

#endif
