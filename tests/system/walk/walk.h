// walk.h - a random walk through the verbs: what its threads and processes share, and the model of each object
// follows: ibv_* man pages; IBA volume 1, chapters 10 and 11
// SPDX-License-Identifier: MIT
#ifndef VB_TEST_WALK_H
#define VB_TEST_WALK_H

#include <infiniband/verbs.h>
#include <pthread.h>
#include <stdatomic.h>
#include <stdbool.h>
#include <stdint.h>
#include <sys/types.h>

/*
 * Several processes make, use and destroy objects, each with several threads. A model of each object (struct object)
 * says what a call must return. Objects of one process are shared by its threads: a thread that uses an object has
 * its lock for reading, a thread that destroys it has it for writing. Threads only try the locks, and turn to something
 * else if they do not get one, so no order of locks is needed.
 */

/* A failed check prints its place and the seed, and ends the process. */
__attribute__((noreturn, format(printf, 4, 5))) void walk_failed(const char *file, int line, const char *function,
                                                                 const char *fmt, ...);
#define CHECK_FAILED(...) walk_failed(__FILE__, __LINE__, __func__, __VA_ARGS__)
#include "../../support/check.h"

enum {
	PROCESSES = 16,  /* at most */
	END_COUNT = 512, /* at most, in one process */
	SLOT_COUNT = 8,  /* requests of an end that may be outstanding */
	CHAIN = 4,       /* work requests of a slot at most */
	SEND_DEPTH = SLOT_COUNT * CHAIN,
	RECV_COUNT = 16,  /* receives of an end or SRQ */
	SRQ_GROWN = 64,   /* receives that an SRQ may have after ibv_modify_srq */
	WINDOW_COUNT = 3, /* memory windows of a connected end, the last of type 1 */
	GROUP_COUNT = 3,  /* multicast groups */
	GUARD = 64,       /* bytes beside an area that must not change */
	GUARD_BYTE = 0xc3,
	UNTOUCHED = 0xee, /* what memory holds before data is read into it */
	GRH = 40,         /* bytes before a datagram */
	ALL_ACCESS =
	        IBV_ACCESS_LOCAL_WRITE | IBV_ACCESS_REMOTE_WRITE | IBV_ACCESS_REMOTE_READ | IBV_ACCESS_REMOTE_ATOMIC,
	QKEY = 0x11223344,
	HARMLESS_MS = 60000, /* only a defect takes so long */
	IWARP_LINES = 6,     /* sides of iWARP connections of a process */
};

struct plan {
	uint64_t seed;
	unsigned seconds, processes, threads, ends;
	uint32_t area;     /* bytes that a slot may write */
	bool kills;        /* processes are killed and stopped */
	bool lasts;        /* also closes devices whose objects still exist */
	bool iwarp;        /* iWARP connections carry data */
	bool fabric;       /* ib0 in place of roce_lo: each process is a host of a simulated fabric */
	const char *other; /* socket of another process of that fabric, which has the hosts of odd processes, */
	unsigned first;    /* from this one on */
	pid_t parent;
};
extern struct plan plan;
extern unsigned self; /* number of this process */

/* --- random numbers --- */

struct dice {
	uint64_t state;
};
uint64_t dice_word(struct dice *d);
uint32_t roll(struct dice *d, uint32_t n); /* 0 to n - 1 */
bool one_in(struct dice *d, uint32_t n);
void fill_bytes(void *p, size_t n, uint64_t seed);
bool bytes_hold(const void *p, size_t n, uint64_t seed);
uint64_t mix(uint64_t a, uint64_t b);
uint64_t clock_ms(void);

/* --- the board: shared memory of all processes, in which ends meet --- */

enum phase { IDLE, OFFERED, TAKEN, ANSWERED, JOINED };

/* Why requests of an end may fail. Set before it happens. */
enum {
	CLOSED = 1,     /* a side was closed, taken to ERR, or killed */
	WRONG = 2,      /* this side has posted a request that must fail */
	PEER_WRONG = 4, /* the other side has */
};

struct address { /* of an end: what its peer must know */
	uint64_t window, qpn_psn, rkey_type, lid;
	union ibv_gid gid;
};
enum { ADDRESS_WORDS = sizeof(struct address) / 8 };

struct place {                    /* of an end on the board */
	_Atomic uint64_t state;   /* round << 40 | peer << 8 | phase. Round: queue pairs that the end has had */
	_Atomic uint64_t trouble; /* round << 8 | reasons */
	_Atomic uint32_t peer_round;
	_Atomic uint32_t target;                 /* the process that may answer */
	_Atomic uint64_t address[ADDRESS_WORDS]; /* written before the phase is published */
	_Atomic uint64_t key[WINDOW_COUNT];      /* of its windows: windows.c */
};
static inline uint64_t place_word(uint32_t round, uint32_t peer, enum phase phase)
{
	return (uint64_t)round << 40 | (uint64_t)peer << 8 | phase;
}
static inline uint32_t round_in(uint64_t word)
{
	return (uint32_t)(word >> 40);
}
static inline uint32_t peer_in(uint64_t word)
{
	return (uint32_t)(word >> 8);
}
static inline enum phase phase_in(uint64_t word)
{
	return (enum phase)(word & 0xff);
}

struct host { /* of a process on a fabric */
	_Atomic uint64_t gid[2];
	_Atomic uint32_t lid; /* written last; 0: not known yet */
};

struct iwarp_place {                   /* of a line: iwarp.c */
	_Atomic uint32_t open, rounds; /* the round, or 0: it is closed; the last round */
	_Atomic uint64_t receives;     /* that it has posted in this round */
};

struct board {
	/* of a process: changes before it is killed, and is odd until the next one has closed the places of its ends */
	_Atomic uint32_t epoch[PROCESSES];
	atomic_bool over;
	_Atomic uint64_t calls, joined, sent, written, atomics, wrong, refused, busy, events, windows, invalidated,
	        casts;
	_Atomic uint64_t last;                     /* queue pairs that there were at the end */
	_Atomic uint64_t iwarp_joined, iwarp_done; /* sides of connections; requests and messages */
	_Atomic uint32_t iwarp_port[PROCESSES];
	struct iwarp_place iwarp[PROCESSES][IWARP_LINES];
	struct host host[PROCESSES];
	struct place place[PROCESSES][END_COUNT];
};
extern struct board *board;

static inline struct place *place_of(uint32_t id)
{
	return &board->place[id >> 16][id & 0xffff];
}

/* --- objects and their model --- */

enum kind { CTX, TD, PD, CHANNEL, CQ, SRQ, AH, MR, MW, XRCD, QP, KINDS };

struct recv_slot {
	_Atomic uint32_t posted;
};

struct object {
	pthread_rwlock_t lock;
	enum kind kind;
	uint32_t index;
	bool alive;             /* under lock */
	_Atomic(void *) p;      /* the library's object */
	atomic_int users;       /* exact for who has the lock for writing */
	struct object *ctx;     /* its context */
	struct object *up[4];   /* objects that it was made from: it is one of their users */
	_Atomic uint32_t round; /* times that this entry was used */
	union {
		struct {
			bool iwarp;
			atomic_bool closed; /* the device was closed: its objects may still be used and destroyed */
			uint8_t gid_index;
			uint16_t lid; /* on a fabric */
			union ibv_gid gid;
		} c;
		struct {
			bool parent;
		} pd;
		struct {
			bool extended, single;
			uint32_t least;      /* its size at creation: it is never made smaller */
			atomic_int taken;    /* completions that may come at once */
			pthread_mutex_t one; /* with IBV_CREATE_CQ_ATTR_SINGLE_THREADED */
		} cq;
		struct {
			bool xrc;
			uint8_t *memory;
			struct ibv_mr *mr;
			struct recv_slot recv[RECV_COUNT];
		} srq;
		struct {
			uint8_t *memory;
			size_t length;
			unsigned access;
		} mr;
		struct {
			struct ibv_ah_attr attr;
		} ah;
		struct {
			enum ibv_qp_type type;
			enum ibv_qp_state state; /* loose queue pairs: under lock */
			bool loose, extended;
		} qp;
	};
};

/* Entries of the P_Key table. */
static inline uint32_t pkeys_of(const struct object *ctx)
{
	return ctx->c.lid ? 64 : 1;
}

struct object *pool_at(enum kind kind, uint32_t index);
uint32_t pool_size(enum kind kind);
void pool_init(void);

/* The locks that one step holds. */
struct hold {
	struct object *o[12];
	int n;
};
bool take_read(struct hold *h, struct object *o);  /* false: somebody changes it */
bool take_write(struct hold *h, struct object *o); /* false: somebody uses it */
void let_go(struct hold *h);
/* An object of this kind, locked; NULL: not found at once. */
struct object *pick(struct hold *h, struct dice *d, enum kind kind);
struct object *pick_of(struct hold *h, struct dice *d, enum kind kind, const struct object *ctx);
struct object *pick_to_destroy(struct hold *h, struct dice *d, enum kind kind);
struct object *pick_free(struct hold *h, struct dice *d, enum kind kind);
/* A new object, and the end of one. The locks of all four are held. */
void object_born(struct object *o, void *p, struct object *ctx, struct object *a, struct object *b, struct object *c,
                 struct object *e);
void object_gone(struct object *o);

/* Relaxed, so that the model's own counters put no order between threads that ThreadSanitizer would take for the
 * library's. */
#define COUNT(what) ((void)atomic_fetch_add_explicit(&board->what, 1, memory_order_relaxed))
static inline void count_by(atomic_int *n, int by)
{
	atomic_fetch_add_explicit(n, by, memory_order_relaxed);
}

/* Counts a call, and compares its result with the model's. */
#define ANSWER(call, want)                                                                                          \
	do {                                                                                                        \
		errno = 0;                                                                                          \
		int answer_ = (call), want_ = (want);                                                               \
		COUNT(calls);                                                                                       \
		if (answer_ != want_)                                                                               \
			CHECK_FAILED("%s returned %d (errno %d), the model says %d", #call, answer_, errno, want_); \
		if (want_)                                                                                          \
			COUNT(refused);                                                                             \
	} while (0)
/* A call that must return NULL and set errno. */
#define REFUSED(call, why)                                                                                        \
	do {                                                                                                      \
		errno = 0;                                                                                        \
		const void *answer_ = (call);                                                                     \
		COUNT(calls);                                                                                     \
		COUNT(refused);                                                                                   \
		if (answer_ || errno != (why))                                                                    \
			CHECK_FAILED("%s returned %p (errno %d), the model says errno %d", #call, answer_, errno, \
			             (int)(why));                                                                 \
	} while (0)

/* --- the steps --- */

void make_context(struct dice *d);
void make_td(struct dice *d);
void make_pd(struct dice *d);
void make_parent(struct dice *d);
void make_channel(struct dice *d);
void make_cq(struct dice *d);
void make_srq(struct dice *d);
void srq_begin(struct object *o, struct object *pd);
void make_ah(struct dice *d);
void make_mr(struct dice *d);
void destroy_one(struct dice *d);
bool destroy_object(struct object *o, struct hold *h);
void destroy_all(struct dice *d);
void change_mr(struct dice *d);
void query_one(struct dice *d);
void change_cq(struct dice *d);
void arm_cq(struct dice *d);
void take_events(struct dice *d);
void take_async(struct dice *d);
void change_srq(struct dice *d);

void make_loose(struct dice *d);
void walk_states(struct dice *d);
void query_state(struct dice *d);
void post_loose(struct dice *d);
struct ibv_qp *new_qp(struct dice *d, struct object *o, struct hold *h, enum ibv_qp_type type, bool use_srq);
bool room_take(struct object *cq, int n);
void qp_room_back(struct object *o);

void wrong_call(struct dice *d);

/* iWARP connections between the processes. init: before other threads; end: after them. */
bool iwarp_is_possible(void);
void iwarp_init(void);
void iwarp_step(struct dice *d);
void iwarp_end(void);

/* --- ends: queue pairs that are connected to one of another process, or of this one --- */

struct held_window { /* of the peer */
	unsigned index;
	uint32_t key;
	bool is;
};

struct slot {
	_Atomic uint32_t state;
	enum ibv_wr_opcode op;
	uint32_t offset, length;
	uint32_t number; /* of messages */
	uint64_t seed, before;
	enum ibv_wc_status must; /* of a request that must fail */
	bool chained;
	struct held_window window; /* whose key the request names */
};
enum { SLOT_FREE, SLOT_HELD, SLOT_BUSY };

struct heard { /* numbers of received messages */
	uint64_t seen, top;
};

struct end {
	struct object *o; /* its queue pair */
	uint32_t round;   /* on the board */
	uint32_t psn;
	uint64_t old_pattern; /* of a window that nobody may write */
	struct ibv_mr *mr, *window_mr;
	struct ibv_ah *ah[PROCESSES],
	        *group_ah[GROUP_COUNT]; /* on a fabric one for each process, otherwise one for all */
	uint32_t groups, had_groups;    /* datagrams: joined, and joined at any time */
	struct {
		struct ibv_mw *mw;
		atomic_int state;
	} window[WINDOW_COUNT];
	uint8_t *memory, *expect; /* expect: the peer's window */
	size_t size;
	uint32_t peer, peer_round, peer_epoch;
	struct address there;
	bool joined;
	bool draining;              /* in SQD */
	bool grh;                   /* of its address, or its handles. Without a fabric always */
	_Atomic uint32_t statuses;  /* bits of the statuses of its completions so far: for the report of a failure */
	_Atomic uint64_t odd_since; /* since when a message seems lost */
	struct slot slot[SLOT_COUNT];
	struct recv_slot recv[RECV_COUNT];
	pthread_mutex_t hear_lock;
	struct heard heard[SLOT_COUNT];
};
struct end *end_of(const struct object *o);
/* The address of a port as an object of ctx names it: with a GRH, or by the LID alone, which only ports of a fabric have. */
struct ibv_ah_attr address_of(const struct object *ctx, const union ibv_gid *gid, uint64_t lid, bool grh);
void ends_init(void);
void offer_end(struct dice *d);
void answer_end(struct dice *d);
void join_end(struct dice *d);
void end_gone(struct end *e, bool destroyed);
void drain_end(struct dice *d);
void break_end(struct dice *d);
bool end_may_go(struct end *e);
void end_fails_soon(struct end *e, uint32_t reason);
uint32_t end_trouble(const struct end *e);
uint8_t *window_of(const struct end *e, unsigned slot);
uint8_t *out_of(const struct end *e, unsigned slot);
uint8_t *back_of(const struct end *e, unsigned slot);
uint8_t *recv_of(const struct end *e, unsigned slot);
uint64_t window_seed(uint32_t end, uint32_t round);
size_t recv_size(void);

void windows_begin(struct end *e);
void windows_end(struct end *e);
bool window_hold(struct dice *d, struct end *e, bool to_invalidate, struct held_window *held);
void window_release(struct end *e, struct held_window *held);
void window_changed(struct end *e, const struct slot *s);
void window_lost(struct end *e, const struct slot *s);
void window_invalidated(struct end *e, uint32_t key);
void change_window(struct dice *d);
void make_mw(struct dice *d);

void make_xrcd(struct dice *d);
void make_xrc_srq(struct dice *d);
void make_loose_xrc(struct dice *d);

void groups_begin(struct end *e);
void groups_leave(struct end *e);
void groups_end(struct end *e);
void change_group(struct dice *d);
void group_heard(const struct end *e, uint32_t group);

/* wr_id of a request */
enum { ID_SLOT = 1, ID_PART, ID_RECV, ID_SRQ, ID_LOOSE };
uint64_t id_make(unsigned kind, uint32_t index, uint32_t round, uint32_t slot);
struct slot *begin_slot(struct dice *d, struct end *e, unsigned *index);
struct end *pick_joined(struct hold *h, struct dice *d, bool ud);
int post_ex(struct end *e, const struct ibv_send_wr *wr);
void post_some(struct dice *d);
void post_wrong(struct dice *d);
void post_receives(struct dice *d);
void post_srq(struct dice *d);
void send_datagram(struct dice *d);
void poll_some(struct dice *d);
bool poll_cq_once(struct dice *d, struct object *cq);
void completion_seen(const struct ibv_wc *wc);
void message_arrived(const struct ibv_wc *wc, const uint8_t *bytes);

#endif
