// agent.h - the management datagrams of programs on a port: agents, transactions, timeouts, RMPP
// follows: IBA volume 1, 13.5 (MAD processing), 13.6 (RMPP); Linux drivers/infiniband/core/user_mad.c for what a program sees
// SPDX-License-Identifier: MIT
#ifndef VB_FABRIC_AGENT_AGENT_H
#define VB_FABRIC_AGENT_AGENT_H

#include "fabric/fabric.h"

/*
 * A port with programs has one vb_agents, and each umad port that a program has opened is a vb_agent_file. No socket,
 * no clock: the owner hands in what programs send and the time, and gets what they receive.
 */

#define VB_AGENTS_MOST 32             /* of one file, as libibumad knows: VB_FABRIC_AGENTS */
#define VB_AGENT_WAITING_MOST 4096    /* requests of one file that have no reply yet */
#define VB_AGENT_LEN_MOST (64u << 20) /* of a transfer by RMPP */

struct vb_agents;
struct vb_agent_file;

/* The address of a datagram as a program gives and gets it, in host order. */
struct vb_agent_addr {
	uint32_t qpn, qkey;
	uint16_t lid, pkey_index;
	uint8_t sl, path_bits;
	bool grh;
	uint8_t gid_index, hop_limit, traffic_class;
	uint8_t gid[16];
	uint32_t flow_label;
};

struct vb_agent_registration {
	uint8_t qpn, mgmt_class, class_version, rmpp_version;
	uint32_t oui;            /* of the classes 0x30 to 0x4f */
	uint64_t method_mask[2]; /* bit 0 of the first: method 0; all zeros: it only asks */
	bool user_rmpp;          /* the program does RMPP itself */
};

struct vb_agents_ops {
	/* A datagram for a program, or a request without a reply (error: ETIMEDOUT, with the header alone). */
	void (*receive)(void *own, struct vb_agent_file *file, unsigned agent, int error,
	                const struct vb_agent_addr *addr, const uint8_t *mad, size_t len);
};

/* port->host becomes the result. NULL: no memory. */
struct vb_agents *vb_agents_new(struct vb_fabric_port *port, const struct vb_agents_ops *ops, uint32_t *next_tid);
/* All files are closed. */
void vb_agents_free(struct vb_agents *a);

struct vb_agent_file *vb_agent_open(struct vb_agents *a, void *own);
void vb_agent_close(struct vb_agent_file *file);
struct vb_agents *vb_agent_agents(const struct vb_agent_file *file);

/* Returns 0 and the agent's number; EINVAL (wrong class, or another agent of this port has one of the methods), ENOMEM
 * (no room). */
int vb_agent_register(struct vb_agent_file *file, const struct vb_agent_registration *r, unsigned *agent);
int vb_agent_unregister(struct vb_agent_file *file, unsigned agent);

/*
 * Sends a datagram of VB_MAD_LEN bytes or less, or a longer one by RMPP. A request with a timeout (ms) has a reply, or
 * is returned with ETIMEDOUT after retries. Returns 0; EINVAL for what the kernel refuses: no such agent, too long or
 * short, a transaction that is under way.
 */
int vb_agent_send(struct vb_agent_file *file, unsigned agent, const struct vb_agent_addr *addr, const uint8_t *mad,
                  size_t len, uint32_t timeout_ms, uint32_t retries);

/* From the fabric. False: no agent takes it. */
bool vb_agents_deliver(struct vb_agents *a, const struct vb_fabric_packet *packet);

/* The time is that of the fabric. Its agents_due is the least deadline of all files, or earlier; the owner sets it after calls of
 * vb_agent_time. */
void vb_agent_time(struct vb_agent_file *file);
uint64_t vb_agent_deadline(const struct vb_agent_file *file);

#endif
