// rdma.h - the NVMe over RDMA transport: a listener and its connections, on the public calls of libibverbs and
// librdmacm
// follows: NVMe over Fabrics 1.1, 7.3 (RDMA transport)
// SPDX-License-Identifier: MIT
#ifndef NT_RDMA_H
#define NT_RDMA_H

#include "target/loop.h"
#include "target/target.h"
#include "target/tcp.h" /* for the limits */

struct nt_rdma;

struct nt_rdma_counts {
	uint64_t from_pool, from_map; /* bytes sent to hosts: from the pool; from the mapped file */
	uint64_t fetched, in_capsule; /* bytes from hosts: read from their memory; received in a capsule and copied */
	uint64_t rejected;            /* connections */
};

/* port 0: any. Becomes an entry of the discovery log (two if it listens on ::). second: uses the iWARP adapter of an
 * address that also has a RoCE adapter; ENODEV if it does not have both. 0 or errno. */
int nt_rdma_open(struct nt_loop *l, struct nt_target *t, const char *address, uint16_t port, bool second,
                 const struct nt_tcp_limits *limits, struct nt_rdma **out);
uint16_t nt_rdma_port(const struct nt_rdma *p);
const char *nt_rdma_address(const struct nt_rdma *p);
uint32_t nt_rdma_connections(const struct nt_rdma *p);
const struct nt_rdma_counts *nt_rdma_counted(const struct nt_rdma *p);

/* To be called in each iteration of the loop: handles completions, and ends connections. Returns when to call again at
 * the latest (ms). */
uint64_t nt_rdma_turn(struct nt_rdma *p);

/* Releases removed namespaces once nothing is sent from their memory any more. */
void nt_rdma_devices_turn(void);

/* Accepts no more connections. Existing ones continue. */
void nt_rdma_stop(struct nt_rdma *p);
/* False if connections wait for a backend. All others have ended. Call again when the backend has finished. */
bool nt_rdma_close(struct nt_rdma *p);

#endif
