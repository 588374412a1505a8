// sim.h - two queue pairs, a bad network, random work, virtual time: what must be true is looked at after every step
// SPDX-License-Identifier: MIT
#ifndef VB_TEST_WIRE_SIM_H
#define VB_TEST_WIRE_SIM_H

#include <sys/uio.h>

#include "engine/roce/roce.h"
#include "net.h"

#define SIM_GUARD 512u
#define SIM_SOURCE 262144u /* local data that is sent; never written */
#define SIM_CONST 131072u  /* remotely readable; never written */
#define SIM_TARGET 131072u /* remotely writable */
#define SIM_SLOT 66048u    /* one receive, or the destination of one read */
#define SIM_SLOTS 16u      /* length of each */
#define SIM_REQUESTS 4096u
#define SIM_SENDS 64u
#define SIM_SGES 4u

enum sim_region { SIM_R_SOURCE, SIM_R_CONST, SIM_R_TARGET, SIM_R_READS, SIM_R_RECEIVES, SIM_REGIONS };

struct sim_sge {
	uint32_t at, len; /* offset in the node's memory */
};

/* A posted send, and its expected result. */
struct sim_request {
	struct vb_work work;
	struct sim_sge sge[SIM_SGES];
	uint32_t sges;
	uint32_t from;      /* reads: where in the peer's memory */
	uint8_t *expected;  /* reads: the expected data */
	uint64_t original;  /* atomics */
	uint32_t order;     /* index among those that take a receive */
	bool bad;           /* must be rejected */
	bool succeeded;     /* and with it its key has ended */
	uint64_t completed; /* times */
	uint64_t psns, psn; /* number of its packets; its first packet, counted from the start */
};

struct sim_receive {
	struct sim_sge sge[2];
	uint32_t room;
};

struct sim_node {
	struct sim *sim;
	int id;
	uint8_t *memory, *model;
	uint32_t base[SIM_REGIONS], size[SIM_REGIONS];
	struct vb_roce_qp qp;
	struct vb_work_sent sends[SIM_SENDS];
	uint8_t *slots; /* store for packets ahead of a gap, or NULL */
	struct sim_request *requests;
	uint32_t goal, posted, taken, completed;
	uint32_t flushes, flushed; /* executed for the peer; completed here */
	struct sim_receive receives[SIM_REQUESTS];
	uint32_t r_posted, r_taken, r_completed, r_expected;
	bool taking;
	uint32_t order; /* requests posted that take a receive */
	uint64_t tick_at;
	uint64_t new_psns;   /* packets sent for the first time */
	uint64_t psns_taken; /* packets of all requests that were taken */
	struct vb_psn last_nak;
	struct vb_psn last_end; /* after the last request packet that was sent */
	bool nak_sent;
	bool failed;
	enum vb_work_status failure;
	enum vb_work_event event;
	uint64_t finished_at;
};

enum sim_mode { SIM_NORMAL, SIM_BLACKHOLE, SIM_REFUSED, SIM_UNRELIABLE, SIM_DATAGRAMS };

struct sim {
	uint64_t seed, now, events;
	enum sim_mode mode;
	bool clean;    /* the network loses nothing and keeps the order */
	bool attacked; /* also forges packets in flight */
	bool verbose;
	struct net net;
	struct sim_node node[2];
	char problem[256];
};

/* A run that is determined by the seed. work and network may be changed before sim_run. */
void sim_init(struct sim *sim, uint64_t seed);
/* False: sim->problem describes the violated invariant. */
bool sim_run(struct sim *sim);
void sim_free(struct sim *sim);

/* Shared by the simulator's files. The first problem is kept. */
void sim_fail(struct sim *sim, const char *format, ...) __attribute__((format(printf, 2, 3)));
#define SIM_MUST(sim, x)                                                      \
	do {                                                                  \
		if (!(x))                                                     \
			sim_fail((sim), "%s:%d: %s", __FILE__, __LINE__, #x); \
	} while (0)

/* node.c: memory and queues */
void sim_node_init(struct sim *sim, int id);
void sim_node_free(struct sim_node *n);
extern const struct vb_roce_ops sim_ops;
/* A key that is always valid, and a key for the next request of n to its peer. That one ends as soon as the request
 * succeeds: a program may then deregister the region. Late and repeated packets of the request still arrive. */
uint32_t sim_key(int node, enum sim_region region);
uint32_t sim_key_once(const struct sim_node *n, enum sim_region region);
void sim_check_memory(struct sim *sim, bool finished);

/* work.c: the program */
void sim_tick(struct sim_node *n);

#endif
