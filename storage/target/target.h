// target.h - the protocol core of an NVMe over Fabrics target: capsules in, completions out; no socket, clock or thread
// follows: NVM Express Base 1.4; NVMe over Fabrics 1.1
// SPDX-License-Identifier: MIT
#ifndef NT_TARGET_H
#define NT_TARGET_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <sys/socket.h>

#include "backend/backend.h"
#include "nvme/auth.h"
#include "nvme/nvme.h"
#include "nvme/nqn.h"
#include "nvme/secret.h"
#include "target/fair.h"
#include "target/limit.h"
#include "target/pool.h"

/*
 * Everything here is called by one thread. What a transport does:
 *
 *   nt_queue_open a host has connected; Connect will tell which queue this is
 *   nt_command a capsule has arrived. In the call, or at any time later, the core calls one of:
 *     ops->fetch move request->length bytes from the host to request->data, then call nt_fetched
 *     ops->respond send request->data (if request->send, request->length bytes), then request->cqe, then call
 *     nt_release
 *   nt_queue_close the connection has ended (or must end, because the core has called ops->close)
 *     ops->gone nothing refers to the queue any more, so the transport frees it. Called by nt_queue_close, or later
 *
 * Both may come from within nt_command, nt_fetched, nt_release, nt_target_tick, the reaping of a backend, or a change
 * of the configuration. From within fetch the transport may call nt_fetched; from within respond it must not call
 * nt_release, and from within neither nt_queue_close. A request that it holds is forgotten with nt_queue_close: then it
 * touches its memory no more.
 */

#define NT_ADMIN_ENTRIES 128u  /* 32 are usual; hosts that abort many commands at once need more */
#define NT_IO_ENTRIES_MAX 256u /* CAP.MQES + 1 */
#define NT_QUEUES_MAX 64u      /* I/O queues of a controller; configurable below that */
#define NT_AERS 4u
#define NT_MDTS 9u /* 2^9 pages: 2 MiB */
#define NT_TRANSFER_MAX (NV_PAGE << NT_MDTS)
#define NT_NAMESPACES_MAX 1024u
#define NT_ANA_GROUPS 16u
/* Groups of namespaces whose medium says so: */
#define NT_ANA_FENCED (NT_ANA_GROUPS + 1) /* it has shut this target out, or does not answer: not accessible */
#define NT_ANA_OTHER (NT_ANA_GROUPS + 2)  /* another gateway writes to it: not optimized */
#define NT_ANA_MOVING (NT_ANA_GROUPS + 3) /* … and soon perhaps this one: changing */
#define NT_ANA_LAST NT_ANA_MOVING
#define NT_CONNECTIONS 512u /* unless the configuration sets another number */
#define NT_ID_MAX 0xffefu   /* of controllers; what follows is reserved */
#define NT_GONE_MAX 1024u
#define NT_NOTICES 255u
#define NT_PRIV_WORDS 24

struct nt_target;
struct nt_queue;
struct nt_peer;
struct nt_request;
struct nt_controller;
struct nt_namespace;
struct nt_subsystem;

/* ---- transports ---- */

struct nt_ops {
	const char *name;
	uint8_t trtype;
	bool keyed; /* data is described by keyed descriptors with a host address (RDMA), instead of 5Ah */
	/* Checks a descriptor for the transport (the core checks in-capsule ones): 0, or a status. NULL: only 5Ah is
	 * valid */
	uint16_t (*sgl)(struct nt_queue *q, const struct nv_sgl *sgl);
	void (*fetch)(struct nt_request *r);
	void (*respond)(struct nt_request *r);
	void (*close)(struct nt_queue *q); /* ends the connection soon, not in this call */
	void (*gone)(struct nt_queue *q);
};

/* An address at which hosts find us: an entry of the discovery log. The transport owns it. It must exist as long as the
 * target. */
struct nt_port {
	uint8_t trtype, adrfam;
	uint16_t id;
	uint8_t treq;      /* is a secure channel required? 0: not specified, 1: yes, 2: no */
	bool any;          /* listens on all addresses: hosts are told their destination address */
	char address[257]; /* text */
	char service[33];  /* port number */
	uint8_t tsas[256]; /* transport specific address subtype, as in the log */
	struct nt_port *next;
};

/* ---- requests ---- */

enum nt_state {
	NT_FREE,
	NT_QUEUED,  /* waits for a limit, or for its turn at the medium */
	NT_MEMORY,  /* waits for memory */
	NT_FETCH,   /* with the transport: data from the host */
	NT_HELD,    /* an asynchronous event request, a fused command, a write that waits for one */
	NT_BACKEND, /* with the backend */
	NT_RESPOND, /* with the transport: until nt_release */
};

struct nt_request {
	/* for transports to read */
	struct nt_queue *queue;
	struct nv_sqe sqe;
	uint16_t slot; /* index in the queue: 1 to entries; 0 for Connect */
	enum nt_state state;
	bool send;       /* respond: send data to the host before the completion */
	bool in_capsule; /* fetch: the data is in the capsule, at sqe.sgl.address */
	bool borrowed;   /* data is the backend's own memory */
	uint8_t *data;
	uint32_t length;
	struct nv_cqe cqe;
	uint64_t priv[NT_PRIV_WORDS]; /* for the transport; zeroed when the command arrives */

	/* used by the core */
	const struct nt_command_info *info;
	struct nt_namespace *ns;
	struct nt_request *next, **back, *fused; /* back: the pointer to it in a queue for memory */
	uint32_t room;                           /* bytes of the pool in data */
	uint32_t capsule;                        /* bytes of data that came with the capsule */
	uint16_t error_at;                       /* offset of the invalid byte of the command, for the error log */
	uint16_t fate;                           /* status to complete it with as soon as the core owns it */
	uint8_t admitted;                        /* 1 + the group of ns->reserve that counts it; 0: none */
	bool stranger;                           /* another request has the same command id */
	bool writing;                            /* counted in ns->writers, or is ns->fused */
	bool ready;                              /* a fused command that has its data */
	bool waits;                              /* in target->connects */
	bool parked;                             /* its data came with the capsule while it waited for a limit */
	bool at_medium;                          /* counted in ns->at_medium */
	bool aside;                              /* the medium has no space for it */
	uint8_t pace;                            /* enum nt_pace: where its memory counts, or where it waits for it */
	uint8_t gate;                            /* limits that it has passed: 0, of its host, of its namespace */
	uint8_t phase;                           /* phase of a step: see io.c */
	int error;                               /* error of a step */
	uint64_t at, left;                       /* progress of a request with several steps */
	uint32_t index;
	uint8_t *other; /* second buffer, for compare */
	struct nt_place place;
	struct nb_request io;
};

/* ---- queues ---- */

struct nt_queue {
	struct nt_target *target;
	const struct nt_ops *ops;
	const struct nt_port *port;
	struct nt_controller *ctrl; /* NULL before Connect */
	struct nt_queue *next;      /* next in the controller's list of unproven queues */
	char address[257];          /* our address, as this host reached it */
	char peer[300];             /* for messages */
	char device[64];            /* the adapter; "": none */
	const char *way;            /* which kind of transport, for status displays; NULL: not known */
	const char *only_host;      /* NULL, or the names of this connection's secure channel */
	const char *only_subsystem;
	const struct nv_secret *only_key; /* … and its key */
	uint32_t inline_max;              /* bytes of data that a capsule may carry */
	bool named;                       /* the transport knows the queue's id, and Connect must have the same */
	uint16_t name;                    /* … that id */
	bool stable; /* data that is sent must not change meanwhile (a digest is computed over it) */

	struct nt_peer *owner; /* the peer that it counts for */
	enum nt_guest { NT_GUEST_NONE, NT_GUEST_STRANGER, NT_GUEST_DISCOVERY, NT_GUESTS } guest;
	struct nt_queue *guest_next, **guest_back;

	bool connected, closing, gone_called, no_sq_flow;
	bool authenticated; /* authentication is complete, or not required */
	bool proven;        /* the host has proven that it has its secret */
	void *auth;         /* state of target->auth */
	uint64_t auth_due;  /* deadline of an authentication that has begun, or should have begun; 0: none */
	uint16_t qid, entries, sqhd;
	struct nt_request first;     /* for the Connect command */
	struct nt_request *requests; /* from Connect on */
	struct nt_request *unused;
	struct nt_request *fused; /* a first fused command that waits for its second */
	bool fused_failed;        /* … or such a command has failed */
	uint32_t busy;            /* requests in NT_BACKEND, or kept for other reasons */
	uint32_t in_use;          /* requests not NT_FREE */
	uint64_t *cids;           /* one bit for each command id in use */
};

/* inline_max is also reported by Identify for I/O queues (IOCCSZ). address: the local address of the connection, or
 * NULL. */
void nt_queue_open(struct nt_queue *q, struct nt_target *t, const struct nt_ops *ops, const struct nt_port *port,
                   uint32_t inline_max, const char *address);

/* Charges the queue to the peer with this address until the host authenticates. NULL: unknown address. False: that peer
 * has used its share. */
bool nt_peer_join(struct nt_queue *q, const struct sockaddr *from);
void nt_peer_leave(struct nt_queue *q); /* for a connection that was not accepted; nt_queue_close calls it, too */

/*
 * Takes a command with `capsule` bytes of data in its capsule. False if there is no room for it or it is invalid: the
 * connection must end. *out is the request. It may be with the transport already, or completed and free again.
 */
bool nt_command(struct nt_queue *q, const uint8_t sqe[NV_SQE_LEN], uint32_t capsule, struct nt_request **out);

/* The data of fetch has arrived, or (with a status) could not be fetched. */
void nt_fetched(struct nt_request *r, uint16_t status);

/* The response was sent. The core owns the request and its memory again. */
void nt_release(struct nt_request *r);

void nt_queue_close(struct nt_queue *q);

/* True if there is a controller with this id. For transports on which hosts name it before Connect. */
bool nt_controller_known(struct nt_target *t, uint16_t id);

/* True if the data of a capsule must stay where it is until fetch is called. */
bool nt_capsule_waits(const struct nt_request *r);

/* Returns the request in a slot, 0 to entries, or NULL if the slot is free. For transports that tell hosts their
 * slots. */
struct nt_request *nt_slot(struct nt_queue *q, uint32_t slot);

/* ---- limits of operations and bytes per second ---- */

/* What requests of a host, or to a namespace, have to pass. Those that wait are served by turns of their hosts. */
struct nt_gate {
	struct nt_target *target;
	struct nt_limits limits;
	struct nt_bucket buckets[NT_RATES];
	struct nt_fair lines[NT_DIRECTIONS];
	bool limited;
	uint8_t turn;                 /* the direction to be served next */
	uint64_t due;                 /* ms: when the next one may pass */
	struct nt_gate *next, **back; /* in target->gates, while any wait; back NULL: it is not there */
	/* for status displays */
	uint64_t operations[NT_DIRECTIONS], bytes[NT_DIRECTIONS], waited;
};

/* A host by its NQN: its limits, for all its controllers together. It exists while it has controllers, or limits. */
struct nt_account {
	struct nt_account *next; /* next in its bucket */
	char nqn[NV_NQN_SIZE];
	uint32_t controllers;
	uint32_t parked; /* bytes, as target->parked */
	bool own;        /* it has limits of its own, instead of target->each_host */
	struct nt_gate gate;
};

/* All take effect at once, also for requests that wait; a weight only for those that come later. False: no memory, or
 * not a valid name. */
void nt_limit_namespace(struct nt_namespace *ns, const struct nt_limits *l);
bool nt_limit_host(struct nt_target *t, const char *nqn, const struct nt_limits *l); /* NULL: those of each host */
/* Only hosts that keep is true for have limits of their own any more. */
void nt_limit_hosts_forget(struct nt_target *t, bool (*keep)(const void *of, const char *nqn), const void *of);
void nt_limit_each_host(struct nt_target *t, const struct nt_limits *l);
/* The limits in force of this host. */
const struct nt_limits *nt_limits_of_host(struct nt_target *t, const char *nqn);

/* Lets requests go whose time has come. To be called in each turn, before the transports and the ring. */
void nt_qos_tick(struct nt_target *t);

/* ---- subsystems and namespaces ---- */

/* Registered hosts and the reservation. If the medium is shared, it is a copy of the backend's. */
struct nt_reserve {
	struct nr_state state; /* in force */
	uint64_t version;      /* requests of the present group were admitted by it, or by a later one */
	uint64_t complete;     /* no request is left that an older one admitted */
	uint32_t running[2];   /* requests at the medium: of the present group, and older ones */
	uint8_t group;
	struct nt_request *waiting; /* for the end of older ones */
};

struct nt_namespace {
	struct nt_subsystem *subsystem;
	struct nb_backend *backend;
	uint32_t nsid;
	uint8_t uuid[16], nguid[16];
	uint32_t ana_group; /* 1 to NT_ANA_GROUPS; see nt_ana_group */
	uint8_t block_shift;
	bool removed;
	uint32_t users; /* number of requests that hold it; the last one of a removed namespace frees it */
	uint64_t lost;  /* number of the last loss of unflushed data; 0: none */
	/* a fused compare and write runs alone: it and the writers wait for each other */
	uint32_t writers;
	struct nt_request *fused, *waiting;
	bool pumping;
	struct nt_gate gate;
	/* Only so many requests are at the medium, so that a host with few of them need not wait for all of another. */
	uint32_t at_medium;
	struct nt_fair turns;
	bool turning;
	/* ms: since when any are there, the medium's last answer, when the namespace became slow */
	uint64_t at_medium_since, answered, slow_since;
	uint64_t answers; /* of the medium, as seen last */
	bool slow;        /* requests wait at the medium, which completes none (slow.c) */
	struct nt_reserve reserve;
};

/* The secrets of a host and of ourselves. Length 0: no proof. */
struct nt_secrets {
	struct nv_secret host, controller;
	struct nv_secret tls;   /* for secure channels over TCP */
	uint8_t hashes, groups; /* allowed ones, as bits by number; 0: any hash, the usual groups */
};

struct nt_host {
	struct nt_host *next;
	char nqn[NV_NQN_SIZE];
	struct nt_secrets secrets;
};

struct nt_subsystem {
	struct nt_subsystem *next;
	struct nt_target *target;
	char nqn[NV_NQN_SIZE], serial[21], model[41];
	bool discovery, any_host, removed;
	bool auth_required; /* for all hosts; a host with a secret is always asked for it */
	struct nt_host *hosts;
	struct nt_controller *controllers;
	struct nt_namespace *ns[NT_NAMESPACES_MAX + 1]; /* indexed by nsid */
	uint8_t ana[NT_ANA_LAST + 1];                   /* enum nv_ana_state, indexed by group */
	uint64_t ana_changes;
	uint16_t first_id, last_id, next_id; /* range of controller ids, and the next one */
	/* for vanished hosts that are no longer stored: the last loss that all of them know */
	bool forgot;
	uint64_t forgot_known;
};

/* In-band authentication. If it is NULL in the target, no host has to authenticate. */
struct nt_auth {
	bool (*required)(struct nt_subsystem *s, const char *hostnqn);
	void (*send)(struct nt_request *r);    /* r->data, r->length from the host; answers with nt_complete */
	void (*receive)(struct nt_request *r); /* fills r->data; answers with nt_complete */
	void (*release)(struct nt_queue *q);   /* q->auth is no longer needed */
};

struct nt_referral {
	struct nt_referral *next;
	struct nt_port port;
};

/* Requests that wait for memory, in order of arrival. */
struct nt_line {
	struct nt_request *first, **end;
};

/* Memory of requests to slow namespaces counts apart from all other. */
enum nt_pace { NT_USUAL, NT_SLOW, NT_PACES };

struct nt_peer_line {
	struct nt_line line;
	struct nt_peer *next, **back; /* list of peers with waiting requests */
};

/*
 * A peer is charged for connections and for the memory of their requests. It is an IPv4 address or IPv6 network until
 * the host has authenticated, and the host from then on. Without authentication the address stays the peer, because any
 * host can use any name.
 */
struct nt_peer {
	struct nt_peer *next; /* next in its bucket */
	char name[NV_NQN_SIZE];
	bool proven;
	uint32_t queues, guests, discovery; /* guests: those that are not admitted yet */
	uint32_t memory[NT_PACES];          /* bytes of the pool in use */
	uint32_t tries;                     /* failed authentications, … */
	uint64_t tries_at;                  /* … at that time: they are forgotten one by one */
	struct nt_peer_line lines[NT_PACES];
};

#define NT_PEER_BUCKETS 256u

struct nt_peer_limits {
	uint32_t of_one; /* limit of connections of one peer */
	uint32_t guests_of_one, guests, discovery_of_one, discovery;
};

struct nt_target {
	struct nt_pool *pool;
	const struct nt_auth *auth;
	uint32_t auth_seq;               /* sequence number of the last challenge; 0: none */
	uint64_t auth_due;               /* not later than any queue's; 0: none */
	uint64_t now;                    /* ms; the owner of the target sets it before each turn */
	struct nt_subsystem *subsystems; /* the discovery subsystem comes first */
	struct nt_port *ports;
	struct nt_referral *referrals;
	struct nt_peer *peers[NT_PEER_BUCKETS];
	struct nt_peer_limits limits;
	struct nt_queue *guests, **guests_end; /* the oldest first */
	uint32_t guest_count[NT_GUESTS];
	struct nt_line urgent;                                      /* requests for memory that go before all others */
	struct nt_peer *in_line[NT_PACES], **in_line_end[NT_PACES]; /* peers that wait for memory, in turn */
	bool serving;
	uint64_t at_medium;   /* requests, of all namespaces */
	uint32_t slow;        /* slow namespaces */
	uint64_t slow_due;    /* ms: when to look for them again */
	uint32_t slow_memory; /* bytes of the pool of their requests, and of what was answered late */
	uint32_t slow_part;   /* … that one peer may have */
	uint32_t parked;      /* bytes of the pool with data of commands that wait for a limit */
	struct nt_account *accounts[NT_PEER_BUCKETS];
	struct nt_limits each_host; /* limits of each host without its own */
	struct nt_gate *gates;      /* those where requests wait */
	uint64_t gates_due;         /* ms: not later than any of them */
	struct nt_flows flows;
	uint64_t alive_due; /* ms: no keep-alive timer runs out before; 0: unknown */
	/* Connect or enabling requests that wait for the end of earlier commands of the same host; at: until then */
	struct nt_request *connects;
	void (*say)(const char *fmt, ...)
	        __attribute__((format(printf, 1, 2))); /* logs for the administrator; may be NULL */
	struct nt_controller *by_id[256];
	uint16_t queues;     /* I/O queues for each controller */
	uint32_t memory;     /* bytes of the pool */
	uint32_t share;      /* bytes of the pool for each peer */
	uint64_t generation; /* generation counter of the discovery log */
	uint64_t started;
	uint64_t losses; /* number of losses of all namespaces */
	struct nt_gone { /* vanished hosts that may return, and the last loss that was reported to them */
		struct nt_subsystem *subsystem; /* NULL: a free entry */
		uint8_t hostid[16];
		char hostnqn[NV_NQN_SIZE];
		uint64_t known;
		uint32_t n; /* number of their controllers that have not returned */
	} gone[NT_GONE_MAX];
	uint32_t next_gone;
	bool stopping;             /* no new associations */
	char announce[NB_ADDRESS]; /* the address that other gateways list: for ports that listen on all addresses … */
	bool announce_only;        /* … or for all ports */
	char firmware[9];
};

int nt_target_init(struct nt_target *t, uint32_t memory); /* 0 or errno; memory: the pool's size in bytes */
void nt_target_fini(struct nt_target *t);                 /* when all queues have gone */

struct nt_subsystem *nt_subsystem_add(struct nt_target *t,
                                      const char *nqn); /* NULL: invalid name, name in use, or no memory */
void nt_subsystem_remove(struct nt_subsystem *s);       /* notifies its controllers; the last of them frees it */
struct nt_subsystem *nt_subsystem_find(struct nt_target *t, const char *nqn);
bool nt_subsystem_allow(struct nt_subsystem *s, const char *hostnqn);
void nt_subsystem_disallow(struct nt_subsystem *s, const char *hostnqn); /* also ends that host's associations */
void nt_subsystem_any_host(struct nt_subsystem *s, bool any);
/* Sets the range of new controller ids. Two targets that serve one subsystem must not use the same ids. */
void nt_subsystem_ids(struct nt_subsystem *s, uint16_t first, uint16_t last);
/* Sets the secrets of a listed host. Connections with other secrets are ended. */
void nt_subsystem_secrets(struct nt_subsystem *s, const char *hostnqn, const struct nt_secrets *secrets);
void nt_subsystem_auth(struct nt_subsystem *s, bool required); /* also ends connections of hosts without a secret */
/* Finds the key of a secure channel. For the discovery subsystem it is the host's first key in any subsystem. False:
 * there is none. */
bool nt_tls_secret(const struct nt_target *t, const char *hostnqn, const char *subnqn, struct nv_secret *s);
const struct nt_secrets *nt_secrets_of(const struct nt_subsystem *s,
                                       const char *hostnqn); /* NULL: the host has no secret */
bool nt_allowed(const struct nt_subsystem *s, const char *hostnqn);
uint32_t nt_ana_group(const struct nt_namespace *ns); /* as hosts see it */
void nt_ana_set(struct nt_subsystem *s, uint32_t group, enum nv_ana_state state);

/* Takes ownership of the backend on success. uuid NULL: it is derived from the medium, or from the names if the medium
 * has no identity. Notifies hosts. */
struct nt_namespace *nt_namespace_add(struct nt_subsystem *s, uint32_t nsid, struct nb_backend *b,
                                      const uint8_t uuid[16]);
void nt_namespace_remove(struct nt_namespace *ns);
/* Another opening of the same medium takes the place of the one that shut us out. Takes ownership of it. */
void nt_namespace_replace(struct nt_namespace *ns, struct nb_backend *b);
int nt_namespace_resize(struct nt_namespace *ns, uint64_t size); /* 0: reads the present size of the medium */

void nt_port_add(struct nt_target *t, struct nt_port *p);
void nt_port_remove(struct nt_target *t, struct nt_port *p);
bool nt_referral_add(struct nt_target *t, const struct nt_port *p);
void nt_referrals_clear(struct nt_target *t);
void nt_announce(struct nt_target *t); /* tells the other gateways the ports, if they have changed */

/* Ends connections whose keep-alive or authentication time has run out. Returns when to call again at the latest;
 * UINT64_MAX: never. */
uint64_t nt_target_tick(struct nt_target *t);

/* Limits one peer to of_one (0: three quarters) of all connections. To be called after target->queues has been set. */
void nt_peers_limit(struct nt_target *t, uint32_t connections, uint32_t of_one);

/* ---- controllers, for status displays ---- */

struct nt_controller {
	struct nt_controller *next; /* next of the subsystem */
	struct nt_controller *chain;
	struct nt_subsystem *subsystem;
	struct nt_queue *admin, *queues[NT_QUEUES_MAX + 1]; /* [0] is admin */
	struct nt_queue *unproven; /* I/O queues that must still authenticate, and have no place yet */
	uint32_t attached;         /* number of queues, including the admin queue */
	uint16_t id, granted;      /* I/O queues */
	bool dying;
	bool knows; /* true from enabling to shutdown: the losses that it was told of are recorded */
	bool stuck; /* a medium does not finish its requests and its host must wait: logged already */
	char hostnqn[NV_NQN_SIZE];
	struct nt_account *account;
	struct nr_host who; /* the name is derived from hostnqn */
	uint32_t cc, csts;
	uint32_t flushes; /* outstanding flushes of a shutdown */
	uint32_t kato;    /* ms, 0: none */
	uint64_t seen;    /* time of the last input */
	uint64_t connected_at;
	uint32_t memory; /* bytes of the pool in use */
	/* features */
	uint32_t events, arbitration, power, temperature, recovery, atomicity;
	uint64_t stamp, stamp_at; /* the timestamp, in ms, and when it was that; of nt_target.now */
	bool stamped;             /* by the host; otherwise it counts from the reset on */
	bool write_cache;
	/* asynchronous events: pending ones, and ones that are masked until their log page is read */
	struct nt_request *aers[NT_AERS];
	uint32_t aer_count, pending, masked;
	uint32_t changed_ns[1024], changed_count; /* > 1024: too many to list */
	/* reservation notifications: pages of the log, the number of the last one, by nsid the events that do not matter */
	struct nt_notice {
		uint64_t number;
		uint32_t nsid;
		uint8_t event;
	} notices[NT_NOTICES];
	uint32_t notice_count;
	uint64_t notices_made;
	uint8_t notice_mask[NT_NAMESPACES_MAX + 1];
	uint64_t errors;
	struct nt_error {
		uint64_t count, lba;
		uint32_t nsid;
		uint16_t sqid, cid, status, at;
	} error_log[16];
	uint64_t reads, writes, read_blocks, written_blocks; /* blocks of 512 bytes */
	uint64_t losses_before,
	        told_lost[NT_NAMESPACES_MAX + 1]; /* losses before it connected; by nsid, the last one reported to it */
	uint64_t telling[NT_NAMESPACES_MAX + 1];  /* by nsid, the last one in an answer that may not have arrived yet */
};

/* Completes a request. Also called by nt_auth. */
void nt_complete(struct nt_request *r, uint16_t status);
/* A transport could not read r's data in place. If it is the backend's memory, no transport reads there any more. */
void nt_map_lost(struct nt_request *r);

#define NT_CONNECT_MS 2000u /* limit of the wait of Connect for earlier commands of its host */
#define NT_AUTH_MS 20000u   /* limit of an authentication, and of the time from Connect to its end */

extern const struct nt_auth nt_dhchap; /* auth.c, if built with OpenSSL */

#endif
