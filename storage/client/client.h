// client.h - shared by the files of the initiator; its functions return negative errno values, as its public ones do
// follows: NVMe over Fabrics 1.1; SRP (ANSI INCITS 365, T10/1415-D) for srp://
// SPDX-License-Identifier: MIT
#ifndef VN_CLIENT_H
#define VN_CLIENT_H

#include <poll.h>
#include <pthread.h>
#include <stdarg.h>
#include <stdatomic.h>
#include <stdbool.h>
#include <stdio.h>

#include "client/verbena_nvme.h"
#include "nvme/auth.h"
#include "nvme/nqn.h"
#include "nvme/nvme.h"
#include "nvme/secret.h"

#define VN_ADMIN_DEPTH 31u /* commands: 32 entries, of which one is always empty */
#define VN_DEPTH_MAX 1023u
#define VN_QUEUES_MAX 64u
#define VN_CONTROL_MAX 4096u       /* bytes of data of an admin command and of Connect */
#define VN_ADMIN_INLINE 8192u      /* bytes in capsules of the admin queue over TCP. NVMe/TCP 1.0, 3.3.2 */
#define VN_LOOK_MS 100             /* interval at which a wait checks whether to end */
#define VN_PATHS_MAX 8u            /* paths to one disk */
#define VN_TRANSFER_MAX (8u << 20) /* keyed descriptors have 24 bits */

/* ---- commands of a queue ---- */

enum vn_way { VN_NO_DATA, VN_TO_TARGET, VN_FROM_TARGET };

/* TCP: the output of a command, one PDU at a time. */
struct vn_tcp_part {
	struct vn_cmd *next;
	bool queued, h2c, sent_capsule, in_capsule;
	uint8_t head[144], tail[4]; /* head: 76 bytes, up to a multiple of 4 to 128 bytes: 144 for 72 */
	uint32_t head_len, data_at, data_len, tail_len, sent;
	uint32_t moved;   /* bytes received or requested so far */
	uint32_t h2c_end; /* … and the end of the requested ones */
	uint16_t ttag;
};

struct vn_rdma_part {
	void *once;      /* ibv_mr registered for this command only */
	uint8_t *bounce; /* buffer for a copy of the data */
	bool send_done;
};

/* SRP: a command is translated into a CDB when it is submitted, or has one already. */
struct vn_scsi_part {
	uint8_t cdb[16];
	bool raw;      /* cdb is given, sqe is not */
	bool sent;     /* not waiting for a credit of the target */
	bool synced;   /* its data is written, and made durable now */
	bool aborting; /* the target was asked to abort it, and has not answered it */
	uint8_t status;
	uint32_t sense; /* key, code and qualifier, 8 bits each; 0: none */
	uint32_t got;   /* bytes of data that came */
};

struct vn_cmd {
	struct vn_cmd *next; /* next in a list of the disk; or, in a queue of SRP, of those that wait for a credit */
	struct vn_op *op;    /* NULL: a command of vn_command */
	struct nv_sqe sqe;   /* without cid, data descriptor */
	enum vn_way way;
	uint8_t *data;
	uint32_t length;
	struct vn_memory *memory; /* NULL: data is not registered */
	uint16_t cid;
	uint16_t tries;
	uint64_t since;  /* ms */
	uint64_t before; /* number of answers in its queue when it was sent */
	uint64_t due;    /* ms: when it may be sent again */
	/* ms: since when the target reports that the namespace cannot be reached through it; 0: it does not */
	uint64_t unreachable;
	bool answered, done, digest_failed;
	bool soon;          /* SCSI: it was not executed because of a unit attention, and is repeated at once */
	uint8_t attentions; /* … so often */
	struct nv_cqe cqe;
	uint8_t range[16]; /* range of a discard */
	struct vn_tcp_part tcp;
	struct vn_rdma_part rdma;
	struct vn_scsi_part scsi;
};

/* ---- queues: one connection each ---- */

struct vn_queue {
	const struct vn_transport *transport;
	/* while in service, under the disk's lock; NULL: only the thread that opened it uses it */
	struct vn_path *path;
	uint16_t qid, depth; /* depth: commands */
	uint32_t inline_max; /* bytes of data in a capsule */
	uint16_t mask, *generation;
	struct vn_cmd **slots;
	uint16_t *unused;
	unsigned n_unused, busy;
	uint64_t bytes;          /* bytes of outstanding commands */
	uint64_t answers;        /* total number of answers */
	uint64_t looked, moved;  /* for the caretaker: answers at its last check, and when there were new ones (ms) */
	int error;               /* the errno that broke it; 0 while it works */
	int epoll;               /* epoll descriptor that watches its descriptors; -1: none */
	const atomic_bool *stop; /* NULL, or a flag that ends waiting */
	char why[120];
	uint64_t copied, digest_errors;
	bool news;       /* SRP: the target has reported a change; the caretaker clears it */
	const char *way; /* the kind of transport, for people */
	char device[64]; /* the adapter; "": none */
};

/* The parameters for opening a queue. */
struct vn_link {
	const struct vn_transport *transport;
	const struct vn_options *options;
	char host[257], service[33];
	struct vn_domain *domain;
	const struct vn_identity *who;
	const char *nqn; /* NQN of the subsystem */
	uint16_t cntlid;
	const uint8_t *initiator, *target; /* SRP: the ports, 16 bytes each */
	uint16_t lun;
	uint64_t service_id; /* as in struct vn_url */
	uint16_t pkey;
	bool iwarp;              /* use the iWARP adapter of two */
	uint32_t inline_max;     /* bytes in a capsule of an I/O queue */
	uint64_t deadline;       /* ms */
	uint64_t latest;         /* ms: deadline may be extended to this once the target answers; 0: not at all */
	const atomic_bool *stop; /* NULL, or a flag that ends all waiting with -ECANCELED */
	char *why;               /* 120 bytes */
};

struct vn_association;

struct vn_transport {
	const char *name;
	/* Opens a connection on which Connect can be sent. 0, or -errno and why. */
	int (*open)(struct vn_link *l, uint16_t qid, uint16_t depth, struct vn_queue **q);
	void (*submit)(struct vn_queue *q, struct vn_cmd *c); /* c has a slot */
	void (*kick)(struct vn_queue *q);                     /* sends everything that was submitted */
	/* Calls vn_cmd_complete for each answer. Sets q->error when the queue breaks. */
	void (*progress)(struct vn_queue *q);
	int (*descriptors)(const struct vn_queue *q, struct pollfd p[2]);
	bool spins;                      /* polling is cheap, and sleeping costs much */
	bool (*arm)(struct vn_queue *q); /* enables wake-ups by descriptors; true: poll again now */
	/* Frees what the transport holds for c, which is answered, or given up without access by the target. */
	void (*release)(struct vn_queue *q, struct vn_cmd *c);
	/* NULL, or asks the target to abort c, which then completes and may be repeated. False: it cannot, or has been
	 * asked for longer than ms. */
	bool (*abort)(struct vn_queue *q, struct vn_cmd *c, uint64_t now, uint64_t ms);
	void (*cut)(struct vn_queue *q);   /* from now on the target cannot access memory */
	void (*close)(struct vn_queue *q); /* frees it */
	/* What differs between NVMe and SCSI. The last three are the caretaker's, and vn_close's. */
	int (*list)(struct vn_link *l, const struct vn_identity *who, struct vn_found **found, size_t *count);
	int (*associate)(struct vn_path *p, struct vn_link *l, struct vn_association *a);
	int (*keep_alive)(struct vn_queue *admin, uint64_t deadline);
	void (*look)(struct vn_path *p);                             /* takes what the target has reported */
	void (*shutdown)(struct vn_queue *admin, uint64_t deadline); /* NULL: the end of the connection is enough */
};

extern const struct vn_transport vn_tcp;
#ifdef VN_HAVE_RDMA
extern const struct vn_transport vn_rdma;
extern const struct vn_transport vn_srp;
unsigned vn_rdma_kinds(void); /* kinds of devices: 1, or 2 if there are iWARP devices beside others */
#endif

int vn_queue_init(struct vn_queue *q, const struct vn_transport *t, uint16_t qid, uint16_t depth);
void vn_queue_fini(struct vn_queue *q);
void vn_queue_submit(struct vn_queue *q, struct vn_cmd *c); /* there must be a free slot */
struct vn_cmd *vn_queue_find(struct vn_queue *q, uint16_t cid);
void vn_queue_release(struct vn_queue *q, struct vn_cmd *c); /* frees its slot */
void vn_queue_break(struct vn_queue *q, int error, const char *format, ...) __attribute__((format(printf, 3, 4)));
/* Completes c. A transport calls it when it no longer uses c. submit may call it, if no memory could be registered. */
void vn_cmd_complete(struct vn_queue *q, struct vn_cmd *c);
void vn_queue_watch(struct vn_queue *q, int epoll);

/* Performs a command on a queue that no other thread uses, with at most VN_CONTROL_MAX bytes of data. 0 and *cqe, or
 * -errno: the queue broke. */
int vn_command_run(struct vn_queue *q, struct vn_cmd *c, uint64_t deadline); /* the same with a filled command */
int vn_command(struct vn_queue *q, const struct nv_sqe *sqe, enum vn_way way, void *data, uint32_t length,
               uint64_t deadline, struct nv_cqe *cqe);

/* ---- memory ---- */

#define VN_DEVICES VN_PATHS_MAX

/*
 * The registrations of a disk. lock guards everything. Registering much memory takes long, and every request needs the
 * lock, so registration runs without it: of one piece of memory with all devices (busy; the protection domains stay
 * meanwhile), or of all memory with a new device (attaching; the list stays meanwhile).
 */
struct vn_domain {
	pthread_mutex_t lock;
	pthread_cond_t idle;
	unsigned busy;          /* threads that work on devices without the lock; idle is signalled at 0 */
	bool attaching;         /* a thread works on the list without the lock; idle is signalled at the end */
	struct vn_memory **all; /* sorted by address */
	size_t n, room;
	/* The devices of the queues. One that no queue uses any more is kept until another needs its place. */
	struct vn_device {
		void *pd;       /* ibv_pd; NULL: none */
		void *context;  /* ibv_context */
		unsigned users; /* queues */
	} devices[VN_DEVICES];
};

struct vn_memory {
	uint8_t *address;
	size_t length;
	void *mr[VN_DEVICES]; /* ibv_mr, of each of domain->devices; NULL: not registered there */
	unsigned users;       /* number of requests; under domain->lock */
	bool coming;          /* vn_register has not returned yet, so it is not used; under domain->lock */
	bool ours;            /* allocated by vn_allocate */
	int fd;               /* … the file that it maps */
};

void vn_domain_init(struct vn_domain *d);
void vn_domain_fini(struct vn_domain *d);
/* Allocates pages that another program of this host can map, if it may access our descriptors. NULL: errno; *fd may be
 * -1. */
void *vn_shared_new(size_t length, int *fd);
void vn_shared_free(void *at, size_t length, int fd);
struct vn_memory *vn_memory_get(struct vn_domain *d, const void *at, size_t length); /* NULL: not registered */
void vn_memory_put(struct vn_domain *d, struct vn_memory *m);
#ifdef VN_HAVE_RDMA
/* A queue begins to use a device, whose number is set, and ends. */
int vn_domain_attach(struct vn_domain *d, void *context, unsigned *device);
void vn_domain_leave(struct vn_domain *d, unsigned device);
int vn_mr_make(struct vn_domain *d, struct vn_memory *m); /* for all devices */
void vn_mr_drop(struct vn_memory *m);
void vn_domain_end(struct vn_domain *d); /* no queue is left */
#endif

/* ---- requests ---- */

struct vn_op {
	struct vn_op *next;
	uint8_t opcode, flags;
	uint8_t *data;
	uint64_t length, offset, issued;
	struct vn_memory *memory;
	uint32_t outstanding;
	bool whole; /* all its commands have been issued */
	int error;
	vn_done *done;
	void *arg;
};

struct vn_ops_list {
	struct vn_op *first, **end;
};

struct vn_cmds {
	struct vn_cmd *first, **end;
};

/* ---- addresses ---- */

enum vn_scheme { VN_SCHEME_AUTO, VN_SCHEME_TCP, VN_SCHEME_TLS, VN_SCHEME_RDMA, VN_SCHEME_SRP };

struct vn_place {
	char host[257], service[33];
};

struct vn_url {
	enum vn_scheme scheme;
	unsigned n; /* paths */
	struct vn_place at[VN_PATHS_MAX];
	char nqn[NV_NQN_SIZE];
	bool discover;      /* at[] are discovery services, whose log has the paths */
	uint32_t nsid;      /* 0: not given */
	uint8_t target[16]; /* SRP: the port; nqn has it as text */
	uint16_t lun;
	uint64_t service_id; /* SRP at a GID, which host is; 0: host and service are of IP */
	uint16_t pkey;
};

int vn_url_parse(const char *text, struct vn_url *u);

/* ---- the controller's side of a connection ---- */

struct vn_limits {
	uint16_t cntlid, mqes; /* mqes: outstanding commands of a queue */
	uint32_t ready_ms;     /* time limit for becoming ready, and for shutting down */
	uint32_t transfer;     /* bytes of one command, UINT32_MAX: no limit */
	uint32_t page;         /* bytes of the controller's smallest page */
	uint32_t inline_max;   /* bytes in capsules of I/O queues */
	uint64_t zeroes;       /* bytes of a Write Zeroes, UINT64_MAX: no limit */
	uint64_t discard;      /* blocks of a Dataset Management command with one range; UINT64_MAX: no limit */
	uint32_t events;       /* supported events that are of use here */
	uint8_t anatt;         /* s: the longest change of a group of asymmetric access; 0: it does not say */
	bool ana;              /* it reports asymmetric access */
	bool frees_zeroes;     /* Write Zeroes may deallocate, and deallocated blocks read as zeroes */
};

/* Identifiers of a namespace besides its UUID; zeroes: none */
struct vn_names {
	uint8_t nguid[16], eui64[8];
};

struct vn_identity {
	char host_nqn[NV_NQN_SIZE];
	uint8_t host_id[16];
	struct nv_secret secret, controller_secret, tls; /* length 0: none */
};

int vn_identity(const struct vn_options *o, struct vn_identity *i);

/* All take a queue that no other thread uses, and describe errors in l->why. */
int vn_ctl_connect(struct vn_link *l, struct vn_queue *q, const struct vn_identity *who, const char *nqn,
                   uint32_t kato);
int vn_ctl_authenticate(struct vn_link *l, struct vn_queue *q, const struct vn_identity *who, const char *nqn);
int vn_ctl_enable(struct vn_link *l, struct vn_queue *admin, struct vn_limits *lim);
int vn_ctl_identify(struct vn_link *l, struct vn_queue *admin, struct vn_limits *lim, struct vn_info *info);
/* info->nsid: 0 for the first */
int vn_ctl_namespace(struct vn_link *l, struct vn_queue *admin, struct vn_limits *lim, struct vn_info *info,
                     struct vn_names *names);
int vn_ctl_queues(struct vn_link *l, struct vn_queue *admin, unsigned want, unsigned *got);
int vn_ctl_log(struct vn_link *l, struct vn_queue *admin, struct vn_found **found, size_t *count);
int vn_ctl_want_events(struct vn_link *l, struct vn_queue *admin, uint32_t events);
int vn_ctl_read_log(struct vn_link *l, struct vn_queue *admin, uint8_t log); /* the contents are ignored */
/* The namespace's access by this controller. Reads the log page of asymmetric access, so that the next change is
 * reported. */
int vn_ctl_access(struct vn_link *l, struct vn_queue *admin, uint32_t nsid, uint8_t *state);
int vn_ctl_keep_alive(struct vn_queue *admin, uint64_t deadline);
void vn_ctl_shutdown(struct vn_queue *admin, uint64_t deadline);

int vn_discover_at(struct vn_link *l, const struct vn_identity *who, struct vn_found **found, size_t *count);
/* A connection to a discovery service that stays, with its events if it has any. */
int vn_discovery_open(struct vn_link *l, const struct vn_identity *who, struct vn_association *a);

#ifdef VN_HAVE_RDMA
/* SCSI disks by SRP: what vn_ctl_… and associate.c are for NVMe. All take queues that no other thread uses. */
int vn_scsi_associate(struct vn_path *p, struct vn_link *l, struct vn_association *a);
int vn_scsi_alive(struct vn_queue *admin, uint64_t deadline);
void vn_scsi_look(struct vn_path *p); /* for the caretaker: asks for the size if there are news */
int vn_scsi_list(struct vn_link *l, const struct vn_identity *who, struct vn_found **found, size_t *count);
#endif

/* ---- the disk ---- */

enum vn_state { VN_OPEN, VN_GIVEN_UP, VN_CLOSING };

/* The queues of one controller. */
struct vn_association {
	struct vn_queue *admin, *io[VN_QUEUES_MAX];
	unsigned n;
	struct vn_limits limits;
	struct vn_info info;
	struct vn_names names;
	uint8_t access;       /* enum nv_ana_state */
	struct vn_cmd *event; /* the outstanding event request; used by the caretaker, NULL: none */
};

/* A way to the disk: a controller, the connections to it, and the thread that cares for them. */
struct vn_path {
	struct vn_disk *disk;
	struct vn_place at; /* changes only while it is parked */
	/* under the disk's lock */
	bool unlisted;     /* the discovery log does not list it: it ends when it breaks */
	bool parked;       /* … it has ended, and another place may take this one's memory */
	bool up;           /* connected */
	bool tried;        /* the first attempt to connect has ended */
	bool stale;        /* a command was refused: the caretaker should ask for the access */
	bool returning;    /* its caretaker tries to return to RDMA, and does not look at its queues meanwhile */
	atomic_bool leave; /* … and should leave that; written with the lock */
	uint8_t access;    /* enum nv_ana_state, as the target has reported it last */
	uint64_t changing; /* ms: since when access is "change" */
	uint64_t sick;     /* ms: until then other paths go before it; 0: not at all */
	struct vn_association now;            /* only the caretaker uses now.admin */
	const struct vn_transport *transport; /* transport of now, or of the last association; NULL: there was none */
	unsigned turn;                        /* queue of the last command */
	uint64_t commands, breaks;            /* sent, and connections that broke */
	uint64_t rdma_at; /* ms; auto: when RDMA is tried again after a fallback to TCP; only the caretaker writes it */
	char rdma_why[120]; /* … why it failed last */
	char said[120];     /* why the last attempt to connect failed; "": it did not */
	/* the caretaker's */
	int care; /* eventfd that it waits for */
	pthread_t caretaker;
	bool has_caretaker;  /* set by vn_open */
	int error;           /* of the first attempt, for vn_open, under the disk's lock */
	uint32_t rdma_pause; /* ms: the length of the pause until rdma_at; 0: RDMA has worked */
	uint64_t latest;     /* ms: the latest end of the present attempt to connect */
	bool by_iwarp;       /* with two kinds of RDMA, iWARP is the one that worked */
	uint64_t roce_at;    /* ms: when RoCE is tried again then */
	uint32_t roce_pause; /* … as rdma_pause */
	uint64_t probed;     /* ms: the last keep alive because of silence */
	char why[120];
};

/* Follows the discovery log, for addresses with ?discover. Its thread uses everything but care. */
struct vn_follower {
	int care; /* eventfd that it waits for; -1: there is no follower */
	pthread_t thread;
	bool has_thread;
	struct vn_association now; /* with the service; now.admin NULL: with none */
	unsigned next;             /* which service is asked next */
	char why[120];
};

struct vn_disk {
	pthread_mutex_t lock; /* guards everything below unless stated otherwise */
	pthread_cond_t cond;  /* signaled when no thread polls any more, and when a path has been tried or is parked */
	enum vn_state state;
	atomic_uint wanting;       /* number of threads that wait for the lock; a polling thread yields to them */
	uint64_t answered;         /* number of answered commands */
	unsigned vain, skip;       /* number of useless polling phases in a row; sleeps before the next one */
	bool draining;             /* nothing is sent: a path moves to another association soon */
	bool polling;              /* a thread is polling (one at a time) */
	bool look_all;             /* a descriptor was readable: also paths without commands are polled */
	bool fd_given;             /* vn_fd has been called */
	struct vn_waiter *waiters; /* threads that wait to poll next */
	int epoll, wake;           /* wake: an eventfd in epoll */
	struct vn_path paths[VN_PATHS_MAX];
	unsigned n_paths; /* including those that are parked */
	struct vn_follower follower;
	struct vn_path *use;  /* the path for commands; NULL: none is usable */
	struct vn_path *last; /* … and the last one that was */
	uint64_t useless;     /* ms: since when there is none */
	bool known;           /* info and names are set */
	struct vn_ops_list pending, done;
	struct vn_op *spare_ops;
	struct vn_cmds again; /* commands to be sent again */
	struct vn_cmd *spare, *cmds;
	struct vn_statistics stats;
	struct vn_limits limits; /* of all paths together */
	uint32_t max_part;
	struct vn_domain domain; /* has its own lock */

	/* constant, info and names after the first connection */
	struct vn_options options;
	struct vn_identity who;
	struct vn_url url;
	uint8_t initiator[16]; /* SRP: our port */
	struct vn_info info;   /* except its size: vn_resize */
	struct vn_names names;
	atomic_bool stop; /* vn_close has been called; written with the lock */
};

uint64_t vn_now(void);          /* ms */
int vn_left(uint64_t deadline); /* ms, for poll */

static inline void vn_lock(struct vn_disk *d)
{
	atomic_fetch_add(&d->wanting, 1);
	pthread_mutex_lock(&d->lock);
	atomic_fetch_sub(&d->wanting, 1);
}

static inline uint64_t vn_least(uint64_t a, uint64_t b)
{
	return a < b ? a : b;
}

static inline bool vn_several(const struct vn_disk *d)
{
	return d->url.discover || d->n_paths > 1; /* with discovery the number changes */
}

/* Connects all queues. Returns 0 and fills in *a, or a negative errno. tries: attempts that failed since the connection
 * broke. */
int vn_associate(struct vn_path *p, unsigned tries, struct vn_association *a);
int vn_nvme_associate(struct vn_path *p, struct vn_link *l, struct vn_association *a); /* by the link's transport */
/* The same, by RDMA alone; a failure puts the next attempt off. Nothing is disturbed that is in use. */
int vn_associate_rdma(struct vn_path *p, uint64_t deadline, struct vn_association *a);
/* The path goes by iWARP: tries RoCE alone. The caller clears by_iwarp when it has changed over. */
int vn_associate_roce(struct vn_path *p, uint64_t deadline, struct vn_association *a);
void vn_roce_again(struct vn_path *p);                  /* puts the next attempt with RoCE off */
void vn_rdma_again(struct vn_path *p, const char *why); /* puts the next attempt off, without the disk's lock */
void vn_dissolve(struct vn_association *a);
bool vn_return_due(const struct vn_path *p);
/* Called by the caretaker while the path is up: tries to move it from TCP to RDMA. True: it uses another association. */
bool vn_return(struct vn_path *p);
int vn_caretaker_start(struct vn_path *p);
void vn_care(struct vn_path *p);            /* wakes the caretaker */
bool vn_give_up_in_time(struct vn_disk *d); /* true: the disk is given up, now or before */
void vn_wake(struct vn_disk *d);            /* wakes the polling thread */

/* Called by the caretaker only. */
uint64_t vn_patience(const struct vn_path *p); /* ms: the deadline of an admin command that is sent now */
void vn_events_look(struct vn_path *p);
void vn_ask_access(struct vn_path *p);

/* Events of a controller, for the thread that uses its admin queue. */
void vn_events_begin(struct vn_association *a);
bool vn_event_came(const struct vn_association *a, uint32_t *result);
void vn_event_again(struct vn_association *a); /* after the event's log page was read */
void vn_events_end(struct vn_association *a);

/* follow.c: paths by the discovery log. first: asks for it, and makes its paths; the rest is the thread's */
int vn_follow_first(struct vn_disk *d, char *said);
int vn_follow_start(struct vn_disk *d);
void vn_follow_end(struct vn_disk *d); /* with d->stop set: no path comes any more. The connection stays */
void vn_follow_now(struct vn_disk *d); /* the log should be read again */

/* Called under d->lock. */
bool vn_same_disk(const struct vn_disk *d, const struct vn_info *is, const struct vn_names *names);
const char *vn_misfit(const struct vn_disk *d, const struct vn_association *a); /* NULL: it leads to the same disk */
void vn_resize(struct vn_disk *d, uint64_t size);
void vn_cmd_over(struct vn_path *p, struct vn_cmd *c);            /* c was answered */
void vn_again(struct vn_disk *d, struct vn_cmd *c, uint64_t due); /* c is to be sent again, from due on */
void vn_resend(struct vn_disk *d);                                /* commands that wait may be sent again at once */
void vn_install(struct vn_path *p, const struct vn_association *a);
void vn_retire(struct vn_path *p);   /* its queues are not polled any more; the disk has their numbers */
void vn_withdraw(struct vn_path *p); /* queues cannot access memory: outstanding commands will be sent again */
void vn_lost(struct vn_path *p);
void vn_choose(struct vn_disk *d);                    /* the path for commands, after something has changed */
void vn_set_access(struct vn_path *p, uint8_t state); /* … and chooses */
bool vn_refused(struct vn_path *p, uint16_t status);  /* the path cannot execute a command: others may */
bool vn_hopeless(const struct vn_disk *d);            /* no path has been usable for reconnect_ms */
void vn_review(struct vn_path *p, uint64_t now);      /* the caretaker's look at it, from time to time */
void vn_issue(struct vn_disk *d);                     /* sends all commands that can be sent */
void vn_requests_end(struct vn_disk *d, int error);   /* ends all, those that queues have at their last command */
bool vn_callbacks(struct vn_disk *d, int *n);         /* releases the lock meanwhile */
uint64_t vn_again_at(const struct vn_disk *d);        /* when the next command is to be sent again; UINT64_MAX: never */

/* ana.c: what a log page of asymmetric access says of a namespace */
enum vn_found_access { VN_ACCESS_FOUND, VN_ACCESS_NONE, VN_ACCESS_MORE, VN_ACCESS_WRONG };
enum vn_found_access vn_access_find(const uint8_t *page, size_t length, uint32_t nsid, uint8_t *state);
const char *vn_access_name(uint8_t state);

#define VN_STATUS_NO_MEMORY 0x7ffu /* our own status: no memory could be registered */
int vn_status_errno(uint16_t status);

static inline void vn_say(char *why, const char *format, ...) __attribute__((format(printf, 2, 3)));
static inline void vn_say(char *why, const char *format, ...)
{
	va_list v;

	va_start(v, format);
	vsnprintf(why, 120, format, v);
	va_end(v);
}

#endif
