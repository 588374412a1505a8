// rdmacm.h - ids, event channels and events of librdmacm, and the functions that its files share
// follows: rdma_cm(7); IBA volume 1, 12 (communication management); annex A11 (RDMA IP CM service)
// SPDX-License-Identifier: MIT
#ifndef VB_RDMACM_RDMACM_H
#define VB_RDMACM_RDMACM_H

#include <errno.h>
#include <infiniband/ib.h>
#include <netinet/in.h>
#include <pthread.h>
#include <rdma/rdma_cma.h>
#include <stdatomic.h>
#include <stdbool.h>
#include <stdint.h>
#include <string.h>

#include "engine/cm/cm.h"
#include "path/iwarp/cm.h"
#include "node/gsi.h"

#define RCM_EXPORT __attribute__((visibility("default")))

/* The values of the kernel's cma. Codes mean 4.096 us * 2^code. */
enum {
	RCM_RESPONSE_TIMEOUT = 20,
	RCM_MRA_TIMEOUT = 24,
	RCM_CM_RETRIES = 15,
	RCM_LIFETIME = 16, /* code of a packet's lifetime */
	RCM_BACKLOG = 1024,
	RCM_SHARED = 128, /* one host may use at most half of a backlog of at least this length */
	RCM_HOP_LIMIT = 64,
	/* A REQ with both values is for an iWARP queue pair, and never leaves the host. */
	RCM_IWARP_HOPS = 0,
	RCM_IWARP_PKEY = 0x7fff,
	RCM_CONNS = VB_CM_MAX_CONNS, /* at once, including those in timewait; memory is used only as far as needed */
};

union rcm_addr {
	struct sockaddr sa;
	struct sockaddr_in sin;
	struct sockaddr_in6 sin6;
	struct sockaddr_ib sib;
	struct sockaddr_storage ss;
};

/* A device stays open, with its protection domain, while the library is loaded. The lock of device.c guards it. */
struct rcm_device {
	struct rcm_device *next;
	struct ibv_context *verbs, *watch; /* watch: for its events */
	struct ibv_pd *pd;
	struct ibv_xrcd *xrcd;
	uint64_t guid;
	union ibv_gid first; /* made of the interface's hardware address; the watching thread's */
	uint8_t max_initiator_depth, max_responder_resources, ack_delay;
	bool iwarp, fabric; /* fabric: it is on an InfiniBand fabric (rdmacm/fabric.h) */
	bool gone;          /* its interface has gone */
	uint32_t last_gid;  /* the index of the GID that was looked up last */
};

/* A local address: its adapter and its index in the GID table. dev NULL: none yet. */
struct rcm_source {
	struct rcm_device *dev;
	int gid_index;
	uint8_t port;
	uint32_t ifindex;
	union ibv_gid gid;
};

enum rcm_state {
	RCM_IDLE,
	RCM_BOUND,
	RCM_ADDR_QUERY, /* the next hop is being asked */
	RCM_ADDR_RESOLVED,
	RCM_ROUTE_RESOLVED,
	RCM_LISTEN,
	RCM_CONNECT, /* from rdma_connect, or from the peer's request */
	RCM_DISCONNECT,
	RCM_REMOVED, /* its device is gone */
};

/* Attributes that the connection sets on its queue pair: from rdma_connect and REP, or from REQ. */
struct rcm_path {
	union ibv_gid dgid;
	uint32_t rq_psn, sq_psn, remote_qpn; /* as in ibv_qp_attr (IBA 12.7.31) */
	uint8_t mtu;
	uint8_t responder_resources, initiator_depth;
	uint8_t retry_count, rnr_retry_count, timeout;
	uint8_t traffic_class, hop_limit, sl, rate;
	uint8_t lifetime; /* code of a packet's lifetime; 0: not set */
	uint32_t flow_label;
	uint16_t dlid, slid, pkey; /* on a fabric */
};

struct rcm_mcast {
	struct rcm_mcast *next;
	void *context;
	union rcm_addr addr;
	union ibv_gid mgid;
	bool send_only;
	bool attached, gone; /* under qp_lock of its id. gone: the program has left it */
	unsigned reported, acked;
	uint32_t question; /* on a fabric: to the subnet administrator; 0: none is open */
	uint16_t mlid;     /* its answer */
	bool asked;        /* it has been asked to join, so it must be asked to leave */
};

/* The adapter to use if two have an address. */
enum rcm_kind { RCM_ROCE, RCM_IWARP, RCM_EITHER /* RoCE first */ };

/* Verbena's own level of rdma_set_option(3), and its options. The first is an int, enum ibv_transport_type. The second
 * changes nothing; setting it succeeds only on an id of Verbena's adapter. */
enum { RCM_OPTION_VERBENA = 0x5642, RCM_OPTION_TRANSPORT = 1, RCM_OPTION_OURS = 2 };

/* rcm.lock guards all members without a comment of their own. */
struct rcm_id {
	struct rdma_cm_id id; /* the program's, and first */
	/* id.qp is not destroyed, and tcp not released, while an event of this id is presented, which may change their state */
	pthread_mutex_t qp_lock;
	struct rcm_id *next, **link;
	unsigned generation;
	enum rcm_state state;
	bool sync;
	bool delivers_events; /* the program gets its events: a new connection has none before it is accepted */
	bool failed;          /* its queue pair could not be connected: later messages of the peer are ignored */
	bool heard;           /* its queue pair has received something: the peer has our REP */
	unsigned reported, acked;

	/* The system's librdmacm serves it (rdmacm/hardware.h); by_both: it listens on all addresses, Verbena too. */
	struct rdma_cm_id *real;
	bool by_both;

	enum vb_port_space space; /* of the port that it is bound to; an id of RDMA_PS_IB may use others */
	union rcm_addr src, dst;  /* shown to the program with an event */
	struct rcm_source source;
	uint64_t query;      /* number of the last query */
	uint64_t resolve_by; /* ns: deadline of the query; 0: none */
	bool bound, port_given;
	uint32_t binding;
	uint32_t fabric_binding; /* 0: none */
	uint32_t route_question; /* to the subnet administrator; 0: none is open */
	bool by_fabric;          /* its request came by the fabric */

	bool reuse, afonly, afonly_set, ack_timeout_set;
	enum rcm_kind kind;
	uint8_t tos, ack_timeout;
	int backlog_free, backlog_size;
	struct vb_cm_ece remote_ece;

	struct vb_cm_conn *conn;
	struct rcm_path path;

	/* iWARP: a TCP connection or listener. A connection within this host uses conn instead. */
	struct vb_iwcm_conn *tcp;
	struct vb_iwcm_listener *tcp_listener;
	bool iwarp_here; /* an iWARP connection within this host: conn, not tcp */
	bool starts;     /* tcp: the queue pair gets its stream when ESTABLISHED is fetched */
	uint32_t qpn;
	void *asked; /* private data, kept for a second try over TCP */
	size_t asked_len;

	uint64_t question;              /* of rdma_resolve_addrinfo, without an answer yet; 0: none */
	struct rdma_addrinfo *resolved; /* its answer, which the program has not fetched */
	bool resolving;                 /* from the question until the answer is fetched */

	/* used by the program's thread only */
	uint8_t initiator_depth, responder_resources;
	struct ibv_ece local_ece;
	void *connect;
	size_t connect_len;
	struct ibv_qp_init_attr *qp_init_attr;
	struct rcm_mcast *mcasts, *left; /* left: groups left, freed with the id because events may still name them */
};

struct rcm_channel {
	struct rdma_event_channel channel;       /* the program's, and first; fd is an epoll descriptor around units */
	int units;                               /* an eventfd: one unit for each queued event */
	struct rdma_event_channel *_Atomic real; /* of the system's librdmacm; NULL: none */
	unsigned generation;
	struct rcm_event *first, **last; /* rcm.lock */
	atomic_int inside;               /* threads in rdma_get_cm_event */
	atomic_int reader;               /* the thread that last waited there for an event */
};

struct rcm_event {
	struct rdma_cm_event event; /* the program's, and first */
	struct rcm_event *next;
	struct rcm_id *owner; /* the id or listener; its destruction waits until this event is acknowledged */
	struct rcm_mcast *mcast;
	struct rdma_cm_event *real; /* the one that it shows; owner and mcast are not used then */
	uint8_t private_data[256];
};

/* One per process; a child of fork() starts with a new one. */
struct rcm {
	pthread_mutex_t lock;
	pthread_cond_t acked;
	int cancel_state;
	unsigned generation;
	struct vb_gsi_client *gsi;
	struct vb_cm cm;
	struct vb_cm_conn *conns;
	struct vb_iwcm *iwcm;           /* created with the first iWARP device */
	struct rcm_id *ids, *listeners; /* every id is in one of these lists */
};
extern struct rcm rcm;

static inline struct rcm_id *rcm_id(struct rdma_cm_id *id)
{
	return (struct rcm_id *)id;
}

static inline struct rcm_channel *rcm_channel(struct rdma_event_channel *channel)
{
	return (struct rcm_channel *)channel;
}

static inline int rcm_fail(int err)
{
	errno = err;
	return -1;
}

/* Returns 0, or -1 and sets errno. */
static inline int rcm_result(int err)
{
	return err ? rcm_fail(err) : 0;
}

static inline bool rcm_is_ud(const struct rcm_id *id)
{
	return id->id.qp_type == IBV_QPT_UD;
}

static inline bool rcm_on_fabric(const struct rcm_id *id)
{
	return id->by_fabric || (id->source.dev && id->source.dev->fabric);
}

static inline uint8_t rcm_at_most(uint8_t n, uint8_t most)
{
	return n < most ? n : most;
}

/* fabric.c: is there an InfiniBand fabric? The rest is in rdmacm/fabric.h. */
bool rcm_fabric_present(void);
bool rcm_fabric_is_from(const struct vb_cm_addr *addr);

/* global.c */
int rcm_open(void); /* 0 or errno */
/* id->qp_lock, around what uses id.qp or tcp, or takes it away. They also defer cancellation. present.c; no other lock of rcm
 * held */
void rcm_qp_lock(struct rcm_id *id, int *cancel);
void rcm_qp_unlock(struct rcm_id *id, int cancel);
void rcm_lock(void); /* also defers cancellation of the thread */
void rcm_unlock(void);
void rcm_wait(void);  /* rcm.lock held: for the next acknowledgement */
void rcm_rearm(void); /* rcm.lock held, after each call of vb_cm_ */
/* False, with errno EINVAL, if the id is another process's or its channel is gone. */
bool rcm_ours(const struct rcm_id *id);
void rcm_random(void *buf, size_t len);

/* trace.c: a line with VERBENA_LOG=debug, otherwise nothing; rcm.lock held */
void rcm_trace_mad(bool sent, const struct vb_cm_addr *addr, const uint8_t *mad, size_t len);
void rcm_trace_event(const struct rcm_event *e);
/* Says once, as an error, that the peer of this id has not answered at all. */
void rcm_trace_silence(const struct rcm_id *id);

/* incoming.c: callbacks of connection management; rcm.lock held */
uint16_t rcm_admit(void *own, const struct vb_cm_addr *from, const struct vb_cm_msg *msg);
void rcm_on_event(void *own, struct vb_cm_conn *conn, const struct vb_cm_event *event);

/* request.c: new connections, and the listener's answers; rcm.lock held */
struct rcm_id *rcm_listener(const struct vb_cm_addr *from, const struct vb_cm_msg *msg, struct vb_cma *hdr);
bool rcm_share_is_used_up(const struct rcm_id *listener,
                          const uint8_t remote[16]); /* may this host have no more requests waiting there? */
void rcm_on_request(struct vb_cm_conn *conn, const struct vb_cm_msg *msg);

/* late.c; rcm.lock held */
void rcm_late_closed(const struct rcm_id *id); /* a listener is closed */
bool rcm_late_may_wait(uint64_t service_id);   /* for admit: may this request, which has no listener, wait? */
/* Hands a MAD to connection management. Keeps it if rcm_admit said, by rcm_late_may_wait, that it may wait. */
void rcm_input_mad(const struct vb_cm_addr *from, const uint8_t *mad, size_t len, uint64_t now);
void rcm_late_listening(void); /* a program listens */
uint64_t rcm_late_due(void);   /* 0: never */
void rcm_late_timeout(uint64_t now);
void rcm_late_forget(void); /* in a child of fork() */

/* channel.c */
struct rcm_event *rcm_event_new(struct rcm_id *id, enum rdma_cm_event_type type, int status);
/* Copies data, into param.conn or param.ud depending on the id. */
void rcm_event_data(struct rcm_event *e, const void *data, size_t len);
void rcm_queue(struct rcm_event *e); /* adds it to the channel of its owner; rcm.lock held */
/* Makes and queues an event; rcm.lock held. 0 or ENOMEM. */
int rcm_post(struct rcm_id *id, enum rdma_cm_event_type type, int status);
int rcm_post_unlocked(struct rcm_id *id, enum rdma_cm_event_type type, int status);
/* Removes this owner's events from the queue and returns them; rcm.lock held. */
struct rcm_event *rcm_unqueue(struct rcm_id *owner, const struct rcm_mcast *mcast);
bool rcm_pending(struct rcm_id *id);    /* is an event queued? */
int rcm_complete(struct rcm_id *id);    /* a synchronous id waits for its event here; 0 or errno */
void rcm_drop_event(struct rcm_id *id); /* acknowledges the event kept in id->event */

/* present.c: processes an event in the program's thread. False: it is not delivered */
bool rcm_present(struct rcm_event *e);
int rcm_show_device(struct rcm_id *id); /* 0 or errno */
void rcm_show_addresses(struct rcm_id *id);

/* id.c */
struct rcm_id *rcm_id_new(enum rdma_port_space ps, enum ibv_qp_type type, void *context);
/* 0 or errno */
int rcm_create_id(struct rdma_event_channel *channel, struct rdma_cm_id **id, void *context, enum rdma_port_space ps,
                  enum ibv_qp_type type);
void rcm_link(struct rcm_id *id);   /* adds it to the list of ids or listeners; rcm.lock held */
void rcm_unlink(struct rcm_id *id); /* rcm.lock held */
void rcm_free_id(struct rcm_id *id);
void rcm_discard(struct rcm_event *e); /* events from rcm_unqueue; rcm.lock held */
/* The channel is closed. Ends the connections of its ids, which afterwards can only be destroyed. */
void rcm_detach(const struct rdma_event_channel *channel);

/* address.c */
socklen_t rcm_addr_len(const struct sockaddr *addr); /* 0 with errno set: unknown family */
void rcm_addr_copy(union rcm_addr *to, const struct sockaddr *from);
bool rcm_addr_any(const union rcm_addr *addr);
bool rcm_addr_loopback(const union rcm_addr *addr);
bool rcm_addr_multicast(const union rcm_addr *addr);
bool rcm_addr_link_local(const union rcm_addr *addr);
void rcm_addr_gid(const union rcm_addr *addr, uint8_t gid[16]);
void rcm_addr_from_gid(union rcm_addr *addr, const uint8_t gid[16], uint16_t port, uint32_t scope);
uint16_t rcm_addr_port(const union rcm_addr *addr);
void rcm_addr_set_port(union rcm_addr *addr, uint16_t port);
uint32_t rcm_addr_scope(const union rcm_addr *addr);

/* addrinfo.c: True if rdma_getaddrinfo() returned this address to a program that looks for adapters. addr is the
 * pointer that the program passes. */
bool rcm_addr_for_any_adapter(const struct sockaddr *addr);

/* addrinfo.c; 0 or errno: may rdma_getaddrinfo be asked this? */
int rcm_check_question(const char *node, const char *service, const struct rdma_addrinfo *hints);

/* bind.c; 0 or errno */
/* passive: the program may listen there. */
int rcm_bind(struct rcm_id *id, const union rcm_addr *addr, bool passive);
/* To be called after its options have changed; rcm.lock not held. */
int rcm_rebind(struct rcm_id *id);

/* resolve.c */
struct rcm_found {
	uint64_t query;
	union rcm_addr src, dst;
	struct rcm_source source;
	union ibv_gid dgid; /* on a fabric */
	uint16_t pkey;
};
bool rcm_wanted(const struct rcm_found *found); /* does anybody still wait for this answer? */
void rcm_found(const struct rcm_found *found);  /* the next hop answers */
uint64_t rcm_resolve_due(void);                 /* rcm.lock held, here and below */
void rcm_resolve_timeout(uint64_t now);
void rcm_resolve_forget(void); /* in a child of fork() */

/* neighbour.c */
/* Returns true if the next hop is asked: another thread calls rcm_found when it has answered. False: there is no
 * next hop to ask. */
bool rcm_ask_neighbour(const struct rcm_found *found);

/* route.c; 0 or errno */
int rcm_route_source(const union rcm_addr *dst, const union rcm_addr *bound, union rcm_addr *src);
int rcm_path_record(struct rcm_id *id);
uint8_t rcm_packet_lifetime(const struct rcm_id *id);

/* device.c */
/* 0, EADDRNOTAVAIL, ENODEV: no adapter of this kind has this address. ifindex 0: any. */
int rcm_find_source(enum rcm_kind kind, const uint8_t gid[16], uint32_t ifindex, struct rcm_source *out);
/* Our port on the fabric, if it has this GID; NULL: any. 0, ENODEV (there is no fabric), EADDRNOTAVAIL. */
int rcm_find_fabric(const uint8_t gid[16], struct rcm_source *out);
bool rcm_any_iwarp(void); /* is an iWARP device open? */
/* True if an adapter of an interface other than lo reaches other hosts. */
bool rcm_has_adapter_beside(uint32_t lo);
/* Opens all devices, so that the broker learns our addresses. */
void rcm_open_devices(void);
/* True if this is an address of this host. */
bool rcm_local_address(const uint8_t gid[16], uint32_t ifindex);
int rcm_device_pd(struct rcm_device *dev);    /* 0 or errno */
int rcm_device_xrcd(struct rcm_device *dev);  /* 0 or errno */
void rcm_device_gone(struct rcm_device *dev); /* no lock held */
/* Its hardware address has changed. No lock held. */
void rcm_device_moved(struct rcm_device *dev);
void rcm_devices_forget(void); /* in a child of fork() */

/* watch.c */
void rcm_watch(struct rcm_device *dev);
void rcm_watch_forget(void);
/* Starts a detached thread with all signals of the program blocked; 0 or errno. */
int rcm_thread(void *(*fn)(void *), void *arg);

/* Rejects a request with this reason; connect.c */
void rcm_reject(struct rcm_id *id, uint16_t reason);
/* connect.c, sidr.c; 0 or errno */
struct rcm_connect {
	const void *data[2];
	size_t len[2];
	uint32_t qp_num;
	bool srq;
	uint8_t retry_count, rnr_retry_count, flow_control;
};
int rcm_send_req(struct rcm_id *id, const struct rcm_connect *c); /* rcm.lock held */
int rcm_sidr_connect(struct rcm_id *id, const struct rcm_connect *c);
int rcm_sidr_accept(struct rcm_id *id, const struct rcm_connect *c);
int rcm_sidr_reject(struct rcm_id *id, const void *data, size_t len);
void rcm_private_data(uint8_t *to, const struct rcm_connect *c);
/* Puts the header of annex A11 if the addresses are IP addresses. Returns its length. */
size_t rcm_cma_header(const struct rcm_id *id, uint8_t *to);
size_t rcm_cma_len(const struct rcm_id *id);
struct vb_cm_addr rcm_cm_addr(const struct rcm_id *id);
uint64_t rcm_service_id(const struct rcm_id *id, const union rcm_addr *addr);
int rcm_answer_response(struct rcm_id *id); /* CONNECT_RESPONSE: queue pair, RTU; 0 or errno */

/* iwarp.c; 0 or errno. rcm.lock is not held unless stated */
/* Would rcm_iw_listen find the address taken? */
bool rcm_iw_port_is_taken(const struct rcm_id *id, const union rcm_addr *addr, const struct rcm_source *source,
                          bool afonly);
int rcm_iw_listen(struct rcm_id *id);
int rcm_iw_connect(struct rcm_id *id, const struct rcm_connect *c, bool here); /* rcm.lock held */
int rcm_iw_connect_elsewhere(struct rcm_id *id); /* no program of this host listens: tries TCP. rcm.lock held */
bool rcm_iw_is_here(const struct rcm_id *id, const struct rcm_connect *c);
int rcm_iw_accept(struct rcm_id *id, const struct rcm_connect *c);
int rcm_iw_disconnect(struct rcm_id *id);     /* qp_lock held. ENOENT: its connection is not one of TCP */
void rcm_iw_adopt(struct rcm_event *e);       /* the program fetches a request */
void rcm_iw_established(struct rcm_event *e); /* the program fetches the reply: connects the queue pair */
void rcm_iw_end(struct rcm_id *id);           /* rcm.lock held */
void rcm_iw_in_child(void);
/* Packs private data with its length into a field that is always sent whole. */
void rcm_iw_pack(uint8_t *field, size_t room, const struct rcm_connect *c);
size_t rcm_iw_unpack(const uint8_t *field, size_t room);

/* qp_state.c; 0 or errno */
int rcm_qp_init(struct rcm_id *id, struct ibv_qp *qp);
int rcm_qp_rtr(struct rcm_id *id, uint8_t responder_resources);
int rcm_qp_rts(struct rcm_id *id, uint8_t initiator_depth);
int rcm_qp_err(struct rcm_id *id);
/* If the RTU is missing: notes whether the queue pair has received something. To be called before the queue pair leaves
 * RTS. rcm.lock not held. */
void rcm_qp_hear(struct rcm_id *id);
/* After rcm_qp_hear: establishes a connection whose peer has our REP, although its RTU is missing. rcm.lock held. */
void rcm_establish_heard(struct rcm_id *id);
void rcm_ah_attr(const struct rcm_id *id, struct ibv_ah_attr *attr);

/* multicast.c */
/* Queues the event that a join has succeeded, or failed with this errno; rcm.lock held. 0 or ENOMEM. */
int rcm_post_joined(struct rcm_id *id, struct rcm_mcast *mc, int err, const struct ibv_ah_attr *ah, uint32_t qkey);
int rcm_joined(struct rcm_event *e); /* 0 or errno */
void rcm_leave_all(struct rcm_id *id);

/* show.c: shows the ids through the control socket */
void rcm_show_start(void);

/* Added in rdma-core 56; the headers of 44 do not name them. */
enum {
	RCM_EVENT_ADDRINFO_RESOLVED = 16,
	RCM_EVENT_ADDRINFO_ERROR = 17,
	RCM_EVENT_USER = 18,
	RCM_EVENT_INTERNAL = 19,
};
int rdma_resolve_addrinfo(struct rdma_cm_id *id, const char *node, const char *service,
                          const struct rdma_addrinfo *hints);
int rdma_query_addrinfo(struct rdma_cm_id *id, struct rdma_addrinfo **info);
int rdma_write_cm_event(struct rdma_cm_id *id, enum rdma_cm_event_type event, int status, uint64_t arg);

#endif
