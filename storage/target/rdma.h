// rdma.h - the NVMe over RDMA transport: a listener, its connections, each a queue; libibverbs' and librdmacm's public calls
// follows: NVMe over Fabrics 1.1, 7.3 (RDMA transport)
// SPDX-License-Identifier: MIT
#ifndef NT_RDMA_H
#define NT_RDMA_H

#include "target/loop.h"
#include "target/target.h"
#include "target/tcp.h" /* the limits are the same */

struct nt_rdma;

struct nt_rdma_counts {
	uint64_t from_pool,
	        from_map; /* bytes sent to hosts: copied by the backend into the pool; sent from where they lie */
	uint64_t fetched,
	        in_capsule; /* bytes from hosts: read from their memory; that came with the command, and were copied */
	uint64_t rejected;  /* connections */
};

/* port 0: any. The listener is a port of the target's (two where it listens on ::), found in its discovery log.
 * second: by iWARP, where the address has another adapter, too, which is what it is taken for else; ENODEV where it
 * has not. 0 or errno. */
int nt_rdma_open(struct nt_loop *l, struct nt_target *t, const char *address, uint16_t port, bool second,
                 const struct nt_tcp_limits *limits, struct nt_rdma **out);
uint16_t nt_rdma_port(const struct nt_rdma *p);
const char *nt_rdma_address(const struct nt_rdma *p);
uint32_t nt_rdma_connections(const struct nt_rdma *p);
const struct nt_rdma_counts *nt_rdma_counted(const struct nt_rdma *p);

/* Once in each turn of the loop: takes completions, ends what has to end. When to be called again at the latest (ms).
 */
uint64_t nt_rdma_turn(struct nt_rdma *p);

/* Releases removed namespaces as soon as nothing is sent from their memory any more. */
void nt_rdma_devices_turn(void);

/* No new connections; those there are go on. */
void nt_rdma_stop(struct nt_rdma *p);
/* false: connections of it wait for a backend; all others have ended, and it is to be called again when the backend is
 * through. */
bool nt_rdma_close(struct nt_rdma *p);

#endif
