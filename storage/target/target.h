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
#include "target/pool.h"

/*
 * Everything here is called by one thread. What a transport does:
 *
 *   nt_queue_open       a host has connected: a queue that will be told by Connect which one it is
 *   nt_command          a capsule has come. In the call, or at any time later, the core asks for one of:
 *     ops->fetch        move request->length bytes from the host to request->data, then call nt_fetched
 *     ops->respond      send request->data (if request->send, request->length bytes), then request->cqe, then call nt_release
 *   nt_queue_close      the connection is gone (or is to go: ops->close has asked for it)
 *     ops->gone         nothing refers to the queue any more; the transport frees it. From within nt_queue_close, or later
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
#define NT_CONNECTIONS 512u /* unless the configuration sets another number */
#define NT_ID_MAX 0xffefu   /* of controllers; what follows is reserved */
#define NT_GONE_MAX 1024u
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
	/* Whether this descriptor is one for the transport (in-capsule ones are the core's): 0, or a status. NULL:
	 * 5Ah alone */
	uint16_t (*sgl)(struct nt_queue *q, const struct nv_sgl *sgl);
	void (*fetch)(struct nt_request *r);
	void (*respond)(struct nt_request *r);
	void (*close)(struct nt_queue *q); /* soon, not in this call */
	void (*gone)(struct nt_queue *q);
};

/* An address at which hosts find us: an entry of the discovery log. The transport's, for as long as the target
 * lives. */
struct nt_port {
	uint8_t trtype, adrfam;
	uint16_t id;
	uint8_t treq;      /* is a secure channel required? 0: not specified, 1: yes, 2: no */
	bool any;          /* listens on every address: hosts get their destination address */
	char address[257]; /* text */
	char service[33];  /* port number */
	uint8_t tsas[256]; /* transport specific address subtype, as in the log */
	struct nt_port *next;
};

/* ---- requests ---- */

enum nt_state {
	NT_FREE,
	NT_MEMORY,  /* waits for memory */
	NT_FETCH,   /* the transport's: data from the host */
	NT_HELD,    /* an asynchronous event request, a fused command, a write that waits for one */
	NT_BACKEND, /* the backend's */
	NT_RESPOND, /* the transport's: until nt_release */
};

struct nt_request {
	/* for transports to read */
	struct nt_queue *queue;
	struct nv_sqe sqe;
	uint16_t slot; /* its number in the queue: 1 to entries; 0 for Connect */
	enum nt_state state;
	bool send;       /* respond: data is sent to the host before the completion */
	bool in_capsule; /* fetch: the data stood in the capsule at sqe.sgl.address */
	bool borrowed;   /* data is the backend's own memory */
	uint8_t *data;
	uint32_t length;
	struct nv_cqe cqe;
	uint64_t priv[NT_PRIV_WORDS]; /* the transport's, zeroed when the command arrives */

	/* the core's own */
	const struct nt_verb *verb;
	struct nt_namespace *ns;
	struct nt_request *next, **back, *fused; /* back: in a line for memory, where next of the one in front is */
	uint32_t room;                           /* bytes of the pool in data */
	uint32_t capsule;                        /* bytes of data that came with the capsule */
	uint16_t error_at;                       /* which byte of the command was wrong: for the error log */
	uint16_t fate;                           /* it is to end like this as soon as it is ours */
	bool stranger;                           /* its command id is another's, too */
	bool writing;                            /* counted in ns->writers, or the one in ns->fused */
	bool ready;                              /* a fused command that has its data */
	bool waits;                              /* in target->connects */
	uint8_t phase;                           /* of a step: see io.c */
	int error;                               /* of a step */
	uint64_t at, left;                       /* progress of a request with several steps */
	uint32_t index;
	uint8_t *other; /* a second buffer: what a compare reads */
	struct nb_request io;
};

/* ---- queues ---- */

struct nt_queue {
	struct nt_target *target;
	const struct nt_ops *ops;
	const struct nt_port *port;
	struct nt_controller *ctrl; /* NULL before Connect */
	struct nt_queue *next;      /* of the controller's unproven */
	char address[257];          /* ours, as this host reached it */
	char peer[300];             /* for messages */
	const char *only_host;      /* NULL, or the two names that this connection's secure channel is for */
	const char *only_subsystem;
	const struct nv_secret *only_key; /* … and by which key it is so */
	uint32_t inline_max;              /* bytes of data that a capsule may carry */
	bool named;                       /* the transport knows the queue's number: Connect must have the same */
	uint16_t name;                    /* … its number */
	bool stable; /* data that is sent must not change meanwhile (a digest is computed over it) */

	struct nt_peer *owner; /* whom it counts for */
	enum nt_guest { NT_GUEST_NONE, NT_GUEST_STRANGER, NT_GUEST_DISCOVERY, NT_GUESTS } guest;
	struct nt_queue *guest_next, **guest_back;

	bool connected, closing, gone_called, no_sq_flow;
	bool authenticated; /* as far as that is asked for */
	bool proven;        /* the host has shown that it has its secret */
	void *auth;         /* of target->auth */
	uint64_t auth_due;  /* when an authentication that has begun, or should have, is given up; 0: there is none */
	uint16_t qid, entries, sqhd;
	struct nt_request first;     /* for the Connect command */
	struct nt_request *requests; /* from then on */
	struct nt_request *unused;
	struct nt_request *fused; /* a first fused command whose second has not come */
	bool fused_failed;        /* … or that there was, and has failed */
	uint32_t busy;            /* requests in NT_BACKEND, or otherwise not to be forgotten yet */
	uint32_t in_use;          /* requests not NT_FREE */
	uint64_t *cids;           /* a bit for each command id that is in use */
};

/* inline_max: also reported by Identify for I/O queues (IOCCSZ). address: the local address of the connection, or
 * NULL */
void nt_queue_open(struct nt_queue *q, struct nt_target *t, const struct nt_ops *ops, const struct nt_port *port,
                   uint32_t inline_max, const char *address);

/* Whom it counts for: where it comes from, until it has proven more. NULL: it cannot be said. false: that peer has
 * enough. */
bool nt_peer_join(struct nt_queue *q, const struct sockaddr *from);
void nt_peer_leave(struct nt_queue *q); /* for a connection that was not accepted; nt_queue_close does it, too */

/*
 * A command, and how many bytes of data stand in its capsule. false: there is no room for it, or no sense in it, and
 * the connection has to end. *out: the request, which may be with the transport already, or answered (and free again).
 */
bool nt_command(struct nt_queue *q, const uint8_t sqe[NV_SQE_LEN], uint32_t capsule, struct nt_request **out);

/* The data of fetch has arrived; or, with a status, could not be fetched. */
void nt_fetched(struct nt_request *r, uint16_t status);

/* The response was sent: the core owns the request and its memory again. */
void nt_release(struct nt_request *r);

void nt_queue_close(struct nt_queue *q);

/* Whether there is a controller with this id: a transport on which hosts name it before Connect can refuse others. */
bool nt_controller_known(struct nt_target *t, uint16_t id);

/* The request in a slot, 0 to entries, that is in use; NULL: none. For transports that tell hosts their slots. */
struct nt_request *nt_slot(struct nt_queue *q, uint32_t slot);

/* ---- subsystems and namespaces ---- */

struct nt_namespace {
	struct nt_subsystem *subsystem;
	struct nb_backend *backend;
	uint32_t nsid;
	uint8_t uuid[16], nguid[16];
	uint32_t ana_group; /* 1 to NT_ANA_GROUPS */
	uint8_t block_shift;
	bool removed;
	uint32_t users; /* requests that hold it; the last one of a removed namespace frees it */
	uint64_t lost;  /* number of the last loss of unflushed data; 0: there was none */
	/* a fused compare and write runs alone: writers wait for it, it waits for them */
	uint32_t writers;
	struct nt_request *fused, *waiting;
	bool pumping;
};

/* What a host has to prove, and what we prove to it: with length 0, nothing. */
struct nt_secrets {
	struct nv_secret host, controller;
	struct nv_secret tls;   /* of secure channels by TCP */
	uint8_t hashes, groups; /* which may be used, as bits by number; 0: any hash, the usual groups */
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
	bool auth_required; /* of every host; one that has a secret is asked for it in any case */
	struct nt_host *hosts;
	struct nt_controller *controllers;
	struct nt_namespace *ns[NT_NAMESPACES_MAX + 1]; /* by nsid */
	uint8_t ana[NT_ANA_GROUPS + 1];                 /* enum nv_ana_state by group */
	uint64_t ana_changes;
	uint16_t first_id, last_id, next_id; /* of its controllers */
	/* for hosts that vanished and are no longer stored: the last loss that all of them know of */
	bool forgot;
	uint64_t forgot_known;
};

/* In-band authentication. NULL in the target: not required of any host. */
struct nt_auth {
	bool (*required)(struct nt_subsystem *s, const char *hostnqn);
	void (*send)(struct nt_request *r);    /* r->data, r->length from the host; answers with nt_complete */
	void (*receive)(struct nt_request *r); /* fills r->data; answers with nt_complete */
	void (*release)(struct nt_queue *q);   /* q->auth is not needed any more */
};

struct nt_referral {
	struct nt_referral *next;
	struct nt_port port;
};

/* Requests that wait for memory, in the order in which they came. */
struct nt_line {
	struct nt_request *first, **end;
};

/*
 * Whom connections, and the memory of their requests, count for: an address, or the network of one of IPv6, and the
 * host when it has proven which it is. Where nobody has to prove anything it stays with addresses: anybody can say
 * another's name.
 */
struct nt_peer {
	struct nt_peer *next; /* of its bucket */
	char name[NV_NQN_SIZE];
	bool proven;
	uint32_t queues, guests, discovery; /* guests: those that have not come in yet */
	uint32_t memory;                    /* bytes of the pool in use */
	uint32_t tries;                     /* at authenticating that have come to nothing yet, … */
	uint64_t tries_at;                  /* … at that time: they are forgotten little by little */
	struct nt_line line;
	struct nt_peer *line_next, **line_back; /* of peers with waiting requests */
};

#define NT_PEER_BUCKETS 256u

struct nt_peer_limits {
	uint32_t of_one; /* connections of one peer */
	uint32_t guests_of_one, guests, discovery_of_one, discovery;
};

struct nt_target {
	struct nt_pool *pool;
	const struct nt_auth *auth;
	uint32_t auth_seq;               /* sequence number of the last challenge, 0: there was none */
	uint64_t auth_due;               /* no queue's is before that; 0: there is none */
	uint64_t now;                    /* ms; the owner of the target sets it before each turn */
	struct nt_subsystem *subsystems; /* the discovery subsystem is the first */
	struct nt_port *ports;
	struct nt_referral *referrals;
	struct nt_peer *peers[NT_PEER_BUCKETS];
	struct nt_peer_limits limits;
	struct nt_queue *guests, **guests_end; /* the oldest first */
	uint32_t guest_count[NT_GUESTS];
	struct nt_line urgent;                  /* for memory, before all others */
	struct nt_peer *in_line, **in_line_end; /* peers that wait for it, in turn */
	bool serving;
	/* that wait for the end of what the same host has begun, Connect or enabling; at: until then */
	struct nt_request *connects;
	void (*say)(const char *fmt, ...)
	        __attribute__((format(printf, 1, 2))); /* logs for the administrator; may be NULL */
	struct nt_controller *by_id[256];
	uint16_t queues;     /* I/O queues for each controller */
	uint32_t memory;     /* bytes of the pool */
	uint32_t share;      /* bytes of the pool for each peer */
	uint64_t generation; /* of the discovery log */
	uint64_t started;
	uint64_t losses; /* of all namespaces */
	struct nt_gone { /* hosts that vanished and may come back: the last loss that was reported to them */
		struct nt_subsystem *subsystem; /* NULL: a free place */
		uint8_t hostid[16];
		char hostnqn[NV_NQN_SIZE];
		uint64_t known;
		uint32_t n; /* of their controllers that have not come back */
	} gone[NT_GONE_MAX];
	uint32_t next_gone;
	bool stopping; /* no new associations */
	char firmware[9];
};

int nt_target_init(struct nt_target *t, uint32_t memory); /* 0 or errno; memory: the pool's size in bytes */
void nt_target_fini(struct nt_target *t);                 /* all queues are gone */

struct nt_subsystem *nt_subsystem_add(struct nt_target *t,
                                      const char *nqn); /* NULL: no such name, there is one, or no memory */
void nt_subsystem_remove(struct nt_subsystem *s);       /* notifies its controllers; freed with the last of them */
struct nt_subsystem *nt_subsystem_find(struct nt_target *t, const char *nqn);
bool nt_subsystem_allow(struct nt_subsystem *s, const char *hostnqn);
void nt_subsystem_disallow(struct nt_subsystem *s, const char *hostnqn); /* and ends that host's associations */
void nt_subsystem_any_host(struct nt_subsystem *s, bool any);
/* From now on: two targets that serve one subsystem must not give two controllers the same id. */
void nt_subsystem_ids(struct nt_subsystem *s, uint16_t first, uint16_t last);
/* Of a host that is listed. One that is connected by other secrets has to go. */
void nt_subsystem_secrets(struct nt_subsystem *s, const char *hostnqn, const struct nt_secrets *secrets);
void nt_subsystem_auth(struct nt_subsystem *s, bool required); /* and ends connections of hosts without a secret */
/* The key of a secure channel; of the discovery subsystem, the host's first in any. false: there is none. */
bool nt_tls_secret(const struct nt_target *t, const char *hostnqn, const char *subnqn, struct nv_secret *s);
const struct nt_secrets *nt_secrets_of(const struct nt_subsystem *s,
                                       const char *hostnqn); /* NULL: there is no host secret */
bool nt_allowed(const struct nt_subsystem *s, const char *hostnqn);
void nt_ana_set(struct nt_subsystem *s, uint32_t group, enum nv_ana_state state);

/* Takes the backend over if it succeeds. uuid NULL: one that follows from the
 * medium, or from the names where that is not known again. Hosts are told. */
struct nt_namespace *nt_namespace_add(struct nt_subsystem *s, uint32_t nsid, struct nb_backend *b,
                                      const uint8_t uuid[16]);
void nt_namespace_remove(struct nt_namespace *ns);
int nt_namespace_resize(struct nt_namespace *ns, uint64_t size); /* 0: looks how large it is by now */

void nt_port_add(struct nt_target *t, struct nt_port *p);
void nt_port_remove(struct nt_target *t, struct nt_port *p);
bool nt_referral_add(struct nt_target *t, const struct nt_port *p);
void nt_referrals_clear(struct nt_target *t);

/* Ends connections whose keep-alive or authentication time is over. When to call again at the latest, UINT64_MAX for
 * never. */
uint64_t nt_target_tick(struct nt_target *t);

/* How many connections one peer may have, of so many in all; of_one 0: three quarters. After target->queues has been
 * set. */
void nt_peers_limit(struct nt_target *t, uint32_t connections, uint32_t of_one);

/* ---- controllers, for status displays ---- */

struct nt_controller {
	struct nt_controller *next; /* of the subsystem */
	struct nt_controller *chain;
	struct nt_subsystem *subsystem;
	struct nt_queue *admin, *queues[NT_QUEUES_MAX + 1]; /* [0] is admin */
	struct nt_queue *unproven; /* I/O queues that must still authenticate: they have no place yet */
	uint32_t attached;         /* queues, the admin queue too */
	uint16_t id, granted;      /* I/O queues */
	bool dying;
	bool knows; /* which losses it has been told of is kept: from when it is enabled to when it has shut down */
	bool stuck; /* a medium does not finish its requests, so its host must wait: this was logged */
	char hostnqn[NV_NQN_SIZE];
	uint8_t hostid[16];
	uint32_t cc, csts;
	uint32_t flushes; /* outstanding flushes of a shutdown */
	uint32_t kato;    /* ms, 0: none */
	uint64_t seen;    /* when something came last */
	uint64_t connected_at;
	uint32_t memory; /* bytes of the pool in use */
	/* features */
	uint32_t events, arbitration, power, temperature, recovery, atomicity;
	bool write_cache;
	/* asynchronous events: which wait to be told, which must first be read by their log page */
	struct nt_request *aers[NT_AERS];
	uint32_t aer_count, pending, masked;
	uint32_t changed_ns[1024], changed_count; /* > 1024: too many to list */
	uint64_t errors;
	struct nt_error {
		uint64_t count, lba;
		uint32_t nsid;
		uint16_t sqid, cid, status, at;
	} error_log[16];
	uint64_t reads, writes, read_blocks, written_blocks; /* blocks of 512 bytes */
	uint64_t losses_before,
	        told_lost[NT_NAMESPACES_MAX + 1]; /* losses before it came; by nsid, the last that it was told of */
	uint64_t telling[NT_NAMESPACES_MAX + 1];  /* the last one in an answer that may not have arrived yet */
};

/* Ends a request. For nt_auth, too. */
void nt_complete(struct nt_request *r, uint16_t status);
/* r's data could not be read in place: if that is the backend's memory, no other transport reads there any more. */
void nt_map_lost(struct nt_request *r);

#define NT_CONNECT_MS 2000u /* so long a Connect may wait for what its host had begun before */
#define NT_AUTH_MS 20000u   /* for an authentication, and from Connect to its end */

extern const struct nt_auth nt_dhchap; /* auth.c, if built with OpenSSL */

#endif
