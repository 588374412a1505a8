// rdma_conn.h - what the files of the RDMA transport have in common: adapters, connections
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

/* ---- adapters: the same for all listeners ---- */

/* The memory of a namespace, registered. It holds the namespace until that is removed and nothing is sent from it. */
struct nt_rdma_map {
	struct nt_rdma_map *next;
	struct nt_namespace *ns;
	struct ibv_mr *mr;
	uint32_t in_flight;
};

/*
 * What the keys of a connection reach. Where no host gets a key of ours all connections of an adapter have one
 * together; where the peer is told sinks each has its own: another host that guesses the key of a sink reaches nothing
 * with it.
 */
struct nt_rdma_domain {
	struct nt_rdma_domain *next; /* of the device */
	struct ibv_pd *pd;
	struct ibv_mr *pool;
	struct nt_rdma_map *maps;
};

struct nt_rdma_device {
	struct nt_rdma_device *next;
	struct nt_loop *loop;
	struct ibv_context *ctx;
	struct ibv_device_attr attr;
	struct nt_rdma_domain shared, *domains; /* domains: all of them */
	struct ibv_comp_channel *channel;
	struct nt_watch completions, events;
	bool tells_sinks; /* iWARP: the peer learns the sink of a read, and must be allowed to write there */
	bool on_demand;   /* registers memory without pinning it, if asked to */
	bool pins;        /* a registration is a hold on pages, not on addresses */
	bool no_maps;     /* a map could not be registered */
	bool dead;
	uint32_t conns;
	size_t rings;
};

/* 0 and the adapter behind a context, with the pool registered, or errno. */
int nt_rdma_device_get(struct nt_loop *l, struct nt_target *t, struct ibv_context *ctx, struct nt_rdma_device **out);
void nt_rdma_devices_hold(void);
void nt_rdma_devices_release(void); /* the last: they are closed */
/* One more on the same adapter, with the pool registered in it. 0 or errno */
int nt_rdma_domain_open(struct nt_rdma_device *d, struct nt_target *t, struct nt_rdma_domain *o);
void nt_rdma_domain_close(struct nt_rdma_device *d, struct nt_rdma_domain *o);
/* The registered memory of a namespace, in_flight counted up; NULL: it cannot be had. */
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
	struct nt_rdma_domain own, *domain; /* domain: own, or that of the device */
	struct nt_rconn *next, *prev, *next_dirty;
	bool dirty;          /* something may have come, or is to be sent, or it has to end */
	bool ending;         /* it ends after the remaining output */
	bool failed;         /* ends at once */
	bool closed;         /* the queue has been told */
	bool armed;          /* the completion queue is armed */
	bool gathering;      /* output is sent after its completions are processed */
	bool told;           /* its capsule arrived while it was awaited */
	uint64_t hoped;      /* ns: how long it is polled before it is armed; 0: it is not polled */
	unsigned vain, skip; /* how often in vain, one after the other; how often not to, before the next time */
	uint64_t began, ending_at;
	struct rdma_cm_id *id;
	struct ibv_cq *cq;
	uint32_t inline_send;

	/* its own memory: capsules, then responses by slot */
	uint8_t *memory;
	size_t memory_len;
	struct ibv_mr *mr;
	uint16_t depth;
	uint32_t capsule; /* bytes of one */

	/* in */
	uint16_t current;          /* the capsule in processing */
	struct nt_rdma_held *held; /* a ring of depth: commands that wait until a response has arrived */
	uint32_t held_first, held_count;

	/* out */
	uint32_t room;                             /* work requests that may be posted */
	uint32_t answering;                        /* responses that are posted */
	uint32_t posted;                           /* requests that are */
	uint64_t since;                            /* when something moved last, while any are */
	struct nt_request *wait_first, **wait_end; /* for room */
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
	bool second; /* of two adapters, iWARP's */
};

/* What a request needs of the transport: in its priv words. */
struct nt_rdma_item {
	struct nt_request *next;
	struct nt_rdma_map *map;
	struct ibv_mr *sink; /* of a read in flight, if the peer learns sinks */
	uint16_t capsule;    /* 1 + the capsule that holds its data, while it waits for memory */
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

/* The numbers of work requests: what, and which. */
enum nt_rdma_work { NT_RDMA_CAPSULE = 1, NT_RDMA_FETCH, NT_RDMA_DATA, NT_RDMA_RESPONSE };

static inline uint64_t nt_rdma_wr(enum nt_rdma_work work, uint32_t which)
{
	return (uint64_t)work << 32 | which;
}

/* rdma.c */
void nt_rconn_dirty(struct nt_rconn *c);
void nt_rconn_fail(struct nt_rconn *c); /* it ends in this turn */

/* rdma_conn.c: 0 and a connection that is accepted, or why not */
enum nt_rdma_reason nt_rconn_open(struct nt_rdma *p, const struct nt_ops *ops, struct rdma_cm_id *id,
                                  const struct nt_rdma_hello *h, const struct rdma_conn_param *peer,
                                  struct nt_rconn **out);
void nt_rconn_close(struct nt_rconn *c); /* everything but its domain and the memory of the structure */
void nt_rconn_leave(struct nt_rconn *c); /* leaves its domain: no request has memory registered in it any more */

/* rdma_receive.c */
bool nt_rconn_receive(struct nt_rconn *c, uint16_t index); /* a capsule may come into its place */
bool nt_rconn_poll(struct nt_rconn *c); /* returns false if there was nothing, and the queue is armed */
void nt_rconn_fetch(struct nt_request *r);

/* rdma_send.c */
void nt_rconn_read(struct nt_request *r);     /* the data of a request from the host's memory */
void nt_rconn_end_sink(struct nt_request *r); /* from now on no host writes there */
void nt_rconn_respond(struct nt_request *r);
void nt_rconn_flush(struct nt_rconn *c);
void nt_rconn_finished(struct nt_rconn *c, struct nt_request *r); /* its work requests are through */

#endif
