// internal.h - files, transactions and RMPP transfers of a port
// follows: IBA volume 1, 13.5, 13.6
// SPDX-License-Identifier: MIT
#ifndef VB_FABRIC_AGENT_INTERNAL_H
#define VB_FABRIC_AGENT_INTERNAL_H

#include "fabric/agent/agent.h"
#include "frame/rmpp.h"

#define VB_NS_PER_MS 1000000ull

struct agent {
	bool used;
	struct vb_agent_registration r;
	uint32_t tid_high; /* of the transactions that it begins */
};

/* A datagram that was sent and is not done: it waits for a reply, or its segments are under way. */
struct waiting {
	struct waiting *next;
	struct vb_agent_addr addr;
	unsigned agent;
	uint64_t due, timeout; /* ns */
	uint32_t retries;
	bool wants_reply;
	/* RMPP; segments counts from 1 */
	bool segmented, acked_all;
	uint32_t segments, acked, window, sent;
	size_t len;
	uint8_t mad[]; /* len bytes, VB_MAD_LEN at least */
};

/* Segments that are being put together. */
struct assembly {
	struct assembly *next;
	struct vb_agent_addr addr;
	uint8_t first[VB_MAD_LEN]; /* the first segment: its header is that of acknowledgements */
	unsigned agent;
	uint64_t due;
	uint32_t next_segment, window;
	size_t len, room; /* of bytes; len counts the header once */
	uint8_t *bytes;
	bool done; /* kept for acknowledgements that were lost */
};

struct vb_agent_file {
	struct vb_agents *agents;
	struct vb_agent_file *next;
	void *own;
	struct agent agent[VB_AGENTS_MOST];
	struct waiting *waiting;
	unsigned waiting_count;
	struct assembly *assemblies;
	unsigned assembly_count;
};

struct vb_agents {
	struct vb_fabric_port *port;
	const struct vb_agents_ops *ops;
	uint32_t *next_tid; /* of the whole fabric, so that two programs' transactions differ */
	struct vb_agent_file *files;
};

static inline struct vb_fabric *vb_agents_fabric(const struct vb_agents *a)
{
	return a->port->node->fabric;
}

/* A deadline in so many ns. */
static inline uint64_t vb_agents_after(const struct vb_agents *a, uint64_t ns)
{
	struct vb_fabric *f = vb_agents_fabric(a);
	uint64_t due = f->now + ns;

	if (due < f->agents_due)
		f->agents_due = due;
	return due;
}

static inline uint64_t vb_agent_tid(const uint8_t *mad)
{
	struct vb_reader r = vb_reader(mad + 8, 8);

	return vb_get64(&r);
}

/* A reply, as the kernel sees it: a TrapRepress too. */
static inline bool vb_agent_is_response(const uint8_t *mad)
{
	return (mad[3] & VB_MAD_RESPONSE) || mad[3] == VB_MAD_REPRESS;
}

void vb_agent_transmit(struct vb_agents *a, const struct vb_agent_addr *addr, const uint8_t mad[VB_MAD_LEN]);
/* The file and the request that this reply is for, or NULL. */
struct waiting *vb_agent_asked(struct vb_agent_file *file, unsigned agent, const uint8_t *mad);
void vb_agent_forget(struct vb_agent_file *file, struct waiting *w);
/* A whole datagram for an agent: ends the request that it answers. */
void vb_agent_give(struct vb_agent_file *file, unsigned agent, const struct vb_agent_addr *addr, const uint8_t *mad,
                   size_t len);

/* --- rmpp.c --- */

/* Prepares a datagram for its segments. */
void vb_rmpp_begin(const struct vb_agents *a, struct waiting *w);
void vb_rmpp_send_window(struct vb_agents *a, struct waiting *w);
/* A segment or a reply of RMPP. addr: the sender. */
void vb_rmpp_receive(struct vb_agent_file *file, unsigned agent, const struct vb_agent_addr *addr, const uint8_t *mad);
void vb_rmpp_timer(struct vb_agent_file *file);
void vb_rmpp_forget(struct vb_agent_file *file, unsigned agent);
/* The segments are not acknowledged: sends them again. False: too often. */
bool vb_rmpp_again(struct vb_agents *a, struct waiting *w);

#endif
