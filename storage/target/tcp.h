// tcp.h - the NVMe/TCP transport: a listener and its connections, each a queue
// follows: NVMe/TCP transport specification 1.0
// SPDX-License-Identifier: MIT
#ifndef NT_TCP_H
#define NT_TCP_H

#include "target/loop.h"
#include "target/target.h"

struct nt_tcp;

struct nt_tcp_limits {
	uint32_t connections; /* limit of all connections */
	uint32_t hello_ms;    /* limit of the first exchange and Connect */
	uint32_t stall_ms;    /* limit of a begun PDU or answer to an R2T; also for a host that does not read */
};

/* Port 0: any. The listener becomes a port of the target in its discovery log. 0 or errno. */
int nt_tcp_open(struct nt_loop *l, struct nt_target *t, const char *address, uint16_t port,
                const struct nt_tcp_limits *limits, struct nt_tcp **out);
uint16_t nt_tcp_port(const struct nt_tcp *p);
const char *nt_tcp_address(const struct nt_tcp *p);
uint32_t nt_tcp_connections(const struct nt_tcp *p);
uint64_t nt_tcp_copied(const struct nt_tcp *p); /* bytes from hosts that arrived with headers, and were copied */

/* Called before the first connection, if built with OpenSSL. */
enum nt_tls { NT_TLS_OFF, NT_TLS_ALLOWED, NT_TLS_REQUIRED };
void nt_tcp_secure(struct nt_tcp *p, enum nt_tls security);

/* To be called in each iteration of the loop: sends output, and ends connections. Returns when to call again at the
 * latest (ms). */
uint64_t nt_tcp_turn(struct nt_tcp *p);

/* Accepts no more connections; existing ones finish their requests and end. */
void nt_tcp_stop(struct nt_tcp *p);
/* False if connections wait for a backend. All others have ended. Call again when the backend has finished. */
bool nt_tcp_close(struct nt_tcp *p);

/* Adds a connected descriptor: for tests, and for callers that accept by other means. 0 or errno. */
int nt_tcp_serve(struct nt_tcp *p, int fd);

#endif
