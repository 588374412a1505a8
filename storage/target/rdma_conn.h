// rdma_conn.h - shared by the files of the RDMA transport: adapters, connections
// follows: NVMe over Fabrics 1.1, 7.3
// SPDX-License-Identifier: MIT
#ifndef NT_RDMA_CONN_H
#define NT_RDMA_CONN_H

#include <infiniband/verbs.h>
#include <rdma/rdma_cma.h>

#include "target/rdma.h"
#include "target/rdma_hello.h"

#define NT_RDMA_INLINE 4096u                /* data in a capsule of an I/O queue */
#define NT_RDMA_RINGS_MAX ((size_t)1 << 30) /* bytes for the capsules of all connections of an adapter */

/* ---- adapters, shared by all listeners ---- */

/* The registered memory of a namespace. Holds the namespace until it is removed and nothing is sent from it. */
struct nt_rdma_map {
	struct nt_rdma_map *next;
	struct nt_namespace *ns;
	struct ibv_mr *mr;
	uint32_t in_flight;
};

/*
 * The protection domain of a connection. With adapters that show no key to hosts, all connections share one. With
 * adapters that tell the peer sinks, each connection has its own, so that another host cannot use the key of a sink
 * that it has guessed.
 */
struct nt_rdma_domain {
	struct nt_rdma_domain *next; /* next domain of the device */
	struct ibv_pd *pd;
	struct ibv_mr *pool;
	struct nt_rdma_map *maps;
};

struct nt_rdma_device {
	struct nt_rdma_device *next;
	struct nt_loop *loop;
	struct ibv_context *ctx;
	struct ibv_device_attr attr;
	struct nt_rdma_domain shared, *domains; /* domains: all domains */
	struct ibv_comp_channel *channel;
	struct nt_watch completions, events;
	bool tells_sinks; /* iWARP: the peer is told the sink of a read, and must be allowed to write there */
	bool on_demand;   /* supports registration on demand, without pinning */
	bool pins;        /* registration pins pages */
	bool no_maps;     /* a map could not be registered */
	bool dead;
	uint32_t conns;
	size_t rings;
};

/* Finds the adapter of a context, with the pool registered. 0 or errno. */
int nt_rdma_device_get(struct nt_loop *l, struct nt_target *t, struct ibv_context *ctx, struct nt_rdma_device **out);
void nt_rdma_devices_hold(void);
void nt_rdma_devices_release(void); /* the last release closes the adapters */
/* Opens another domain on the adapter, with the pool registered. 0 or errno. */
int nt_rdma_domain_open(struct nt_rdma_device *d, struct nt_target *t, struct nt_rdma_domain *o);
void nt_rdma_domain_close(struct nt_rdma_device *d, struct nt_rdma_domain *o);
/* Returns the registered memory of a namespace and increments in_flight. NULL: it cannot be registered. */
struct nt_rdma_map *nt_rdma_map_get(struct nt_rdma_device *d, struct nt_rdma_domain *o, struct nt_namespace *ns);

/* ---- connections ---- */

struct nt_rdma_held {
	uint16_t index;
	uint32_t length;
};

struct nt_rconn {
	struct nt_queue q;
	struct nt_rdma *rdma;
	struct nt_rdma_device *device;
	struct nt_rdma_domain own, *domain; /* domain: own, or the device's shared one */
	struct nt_rconn *next, *prev, *next_dirty;
	bool dirty;     /* the connection has input or output, or must end */
	bool ending;    /* to be ended after the remaining output */
	bool failed;    /* ends at once */
	bool closed;    /* the core knows of the end */
	bool armed;     /* the completion queue is armed */
	bool gathering; /* output waits until the completions are handled */
	bool fetched;   /* nt_rconn_fetch has copied the data of the current capsule and posted its receive again */
	uint64_t hoped; /* ns: polled until then, before the queue is armed; 0: not polled */
	unsigned vain, skip; /* number of useless polls in a row; number of polls to skip */
	uint64_t began, ending_at;
	struct rdma_cm_id *id;
	struct ibv_cq *cq;
	uint32_t inline_send;

	/* memory of the connection: capsules, then responses by slot */
	uint8_t *memory;
	size_t memory_len;
	struct ibv_mr *mr;
	uint16_t depth;
	uint32_t capsule; /* bytes of a capsule */

	/* input */
	uint16_t current;          /* the capsule being handled */
	struct nt_rdma_held *held; /* a ring of `depth` commands that wait until a response has arrived */
	uint32_t held_first, held_count;

	/* output */
	uint32_t room;                             /* free work requests */
	uint32_t answering;                        /* posted responses */
	uint32_t posted;                           /* posted requests */
	uint64_t since;                            /* time of the last progress, while any are posted */
	struct nt_request *wait_first, **wait_end; /* requests that wait for work requests */
};

struct nt_rdma {
	struct nt_loop *loop;
	struct nt_target *target;
	struct nt_watch watch;
	struct rdma_event_channel *channel;
	struct rdma_cm_id *listener;
	struct nt_port port, port4; /* port4: the port of a listener on :: as reported to IPv4 hosts */
	struct nt_tcp_limits limits;
	struct nt_rdma_counts counts;
	struct nt_rconn *conns, *dirty;
	uint32_t count;
	uint64_t swept;
	bool stopped;
	bool second; /* uses the iWARP adapter of two */
};

/* The transport's part of a request, in its priv words. */
struct nt_rdma_item {
	struct nt_request *next;
	struct nt_rdma_map *map;
	struct ibv_mr *sink; /* sink of a read in flight, if the peer is told sinks */
	uint16_t capsule;    /* 1 + index of the capsule with its data, while it waits for memory */
	uint8_t used;        /* work requests */
};

static inline struct nt_rdma_item *nt_ritem(struct nt_request *r)
{
	_Static_assert(sizeof(struct nt_rdma_item) <= sizeof(r->priv), "the item fits");
	return (struct nt_rdma_item *)(void *)r->priv;
}

static inline struct nt_rconn *nt_rconn_of(struct nt_queue *q)
{
	return (struct nt_rconn *)(void *)((uint8_t *)q - offsetof(struct nt_rconn, q));
}

/* The ids of work requests: kind and index. */
enum nt_rdma_work { NT_RDMA_CAPSULE = 1, NT_RDMA_FETCH, NT_RDMA_DATA, NT_RDMA_RESPONSE };

static inline uint64_t nt_rdma_wr(enum nt_rdma_work work, uint32_t which)
{
	return (uint64_t)work << 32 | which;
}

/* rdma.c */
void nt_rconn_dirty(struct nt_rconn *c);
void nt_rconn_fail(struct nt_rconn *c); /* ends the connection in this iteration */

/* rdma_conn.c: 0 and an accepted connection, or the reason for a rejection */
enum nt_rdma_reason nt_rconn_open(struct nt_rdma *p, const struct nt_ops *ops, struct rdma_cm_id *id,
                                  const struct nt_rdma_hello *h, const struct rdma_conn_param *peer,
                                  struct nt_rconn **out);
void nt_rconn_close(struct nt_rconn *c); /* releases everything but its domain and the structure itself */
void nt_rconn_leave(struct nt_rconn *c); /* leaves its domain: no request has memory registered there any more */

/* rdma_receive.c */
bool nt_rconn_receive(struct nt_rconn *c, uint16_t index); /* posts a receive for this capsule */
bool nt_rconn_poll(struct nt_rconn *c);                    /* false: there was nothing, and the queue is armed */
void nt_rconn_fetch(struct nt_request *r);

/* rdma_send.c */
void nt_rconn_queue(struct nt_request *r);    /* queues a fetch from the host's memory, or a response */
void nt_rconn_end_sink(struct nt_request *r); /* from now on no host can write there */
void nt_rconn_respond(struct nt_request *r);
void nt_rconn_flush(struct nt_rconn *c);
void nt_rconn_finished(struct nt_rconn *c, struct nt_request *r); /* all its work requests are complete */

#endif
