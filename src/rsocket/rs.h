// rs.h - the rsocket and the functions that the files of this folder share
// follows: rsocket(7)
// SPDX-License-Identifier: MIT
#ifndef VB_RSOCKET_RS_H
#define VB_RSOCKET_RS_H

#include <errno.h>
#include <fcntl.h>
#include <infiniband/verbs.h>
#include <poll.h>
#include <pthread.h>
#include <rdma/rdma_cma.h>
#include <rdma/rsocket.h>
#include <stdatomic.h>
#include <sys/uio.h>
#include <time.h>

#include "rsocket/rs_flow.h"
#include "rsocket/rs_wire.h"
#include "util/lock.h"

#define RS_EXPORT __attribute__((visibility("default")))

enum {
	RS_QP_MIN = 16,
	RS_QP_MAX = 0xFFFE,
	RS_CONNECT_TRIES = 6,
	RS_INLINE_MAX = 256,  /* larger values gain nothing */
	RS_PIECE_MAX = 65536, /* smaller pieces cost the adapter more, larger ones delay the peer */
};

enum rs_state {
	RS_INIT,
	RS_BOUND,
	RS_LISTENING,
	RS_RESOLVING_ADDR,
	RS_RESOLVING_ROUTE,
	RS_CONNECTING,
	RS_ACCEPTING,
	RS_CONNECTED,
	RS_REFUSED,      /* connecting failed */
	RS_DISCONNECTED, /* in order, or because the peer has gone */
	RS_FAILED,       /* the connection broke */
};

/* Defaults and options. An accepted rsocket starts with those of its listener. */
struct rs_config {
	uint32_t send_size, recv_size;
	uint32_t sq, rq, inline_size, iomap_size;
};

struct rs_mapping {
	struct rs_mapping *next;
	struct ibv_mr *mr;
	uint64_t offset;
	int index; /* in the peer's iomap, -1: local only */
	bool told; /* the peer was told */
};

struct rs_dgram;

struct rsocket {
	/* Fixed at creation. */
	int type, domain, fd;
	uint32_t serial; /* tells this use of the descriptor from others */
	unsigned fork_generation;
	unsigned refs; /* guarded by the table's lock */

	/*
	 * Lock order: send_lock or recv_lock, then cm_lock, then lock. send_lock and recv_lock are held through a whole
	 * call, so that its bytes stay together, and so while signal handlers run: their rank is VB_RANK_PROGRAM. The
	 * service thread holds cm_lock while it works on the connection. lock guards the rest.
	 */
	pthread_mutex_t send_lock, recv_lock, cm_lock, lock;

	enum rs_state state;
	bool closed, can_read, can_write;
	bool we_shut; /* the program has shut down the writing side */
	bool reset_told;
	bool goodbye_said;     /* RS_CTRL_DISCONNECT was posted */
	atomic_bool lingering; /* closed; the service thread waits until all data has arrived. Written under lock */
	struct rsocket *linger_next; /* guarded by rs_linger.c's lock */
	uint8_t owed;                /* enum rs_control plus one: to be sent as soon as there is room; 0: nothing */
	bool end_said, end_heard;    /* RS_CTRL_SHUTDOWN: was posted, has arrived */
	int err;                     /* for SO_ERROR, and for the next call that fails */
	int fs_flags, fd_flags;
	int watchers; /* sleeping threads that wait for this rsocket */
	struct rs_config config;

	/* Options. */
	bool reuse_addr, keep_alive, no_delay, v6_only, oob_inline, linger_on;
	int linger_s, tos, keep_idle_s, keep_timer, keep_interval_s, keep_count, user_timeout_ms;
	struct timeval recv_timeout, send_timeout;
	void *route;
	size_t route_len;

	/* A stream's connection. */
	struct rdma_cm_id *id;
	struct rdma_event_channel *cm;
	union rs_addr peer;
	int tries;
	struct ibv_comp_channel *channel;
	struct ibv_cq *cq;
	struct ibv_qp *qp;
	bool armed, message_sends; /* iWARP has no immediate data, so messages are sends */
	bool swap;                 /* the peer has the other byte order */
	uint32_t inline_max;
	uint32_t unposted; /* receives that messages have taken, and that are not posted again yet */

	/* Its memory. */
	uint8_t *send_buf, *recv_buf, *target;
	struct ibv_mr *send_mr, *recv_mr, *target_mr;
	size_t recv_map; /* length of recv_buf, a mapping of recv_fd; 0: recv_buf is on the heap */
	int recv_fd;
	uint32_t msg_slot, ctrl_slot;
	struct rs_tx tx;
	struct rs_rx rx;
	struct rs_sge peer_sgl;
	unsigned peer_sgl_next;
	struct rs_sge peer_iomap;
	struct rs_mapping *maps;
	unsigned maps_pending;

	/* A listener's queue of established connections, and the link from a connection to its listener. */
	struct rsocket *accept_head, *accept_next;
	int accept_count, backlog;
	bool deaf;          /* this listener was shut down */
	atomic_bool paused; /* takes no requests for now */
	int listener_fd;
	uint32_t listener_serial;
	/* Connections that the peer has not confirmed yet, the oldest first. The service thread changes the list under
	 * lock. */
	struct rsocket *half_head, *half_next;
	int half_count;
	uint64_t half_since; /* ns */

	struct rs_dgram *dgram;
};

/* rs_table.c: descriptors. rs_get takes a reference. It returns NULL with errno if this is not an rsocket, or one of
 * the parent process. */
extern unsigned rs_fork_generation;
/* Takes send_lock or recv_lock. False if this thread holds it already: a signal handler interrupted it while it
 * slept. */
bool rs_lock_call(pthread_mutex_t *lock);
struct rsocket *rs_new(int type, int domain, const struct rs_config *config);
int rs_publish(struct rsocket *rs, int fd);
void rs_retract(struct rsocket *rs);
struct rsocket *rs_get(int fd);
struct rsocket *rs_find(int fd); /* does not set errno */
bool rs_foreign(int fd);         /* belongs to the parent process; is removed from the table */
struct rsocket *rs_get_serial(int fd, uint32_t serial);
unsigned rs_list(struct rsocket **out, unsigned room); /* rsockets of this process, with a reference on each */
void rs_put(struct rsocket *rs);

/* rs_config.c */
extern struct rs_config rs_defaults;
extern unsigned rs_spin_us;
void rs_configure(void);

/* rs_wait.c: sleeping until something changes. */
uint64_t rs_now(void); /* ns, CLOCK_MONOTONIC */
struct rs_deadline {
	bool set;
	struct timespec at;
};
struct rs_deadline rs_deadline_ms(int64_t ms); /* < 0: none */
struct rs_deadline rs_deadline_tv(const struct timeval *tv);
int rs_deadline_left(const struct rs_deadline *d); /* ms for poll(2) */
/* Between begin and end, rs_wake on an rsocket with watchers makes *fd readable. False: no memory, or no descriptor;
 * the end must be called even then. */
bool rs_sleeper_begin(int *fd);
void rs_sleeper_end(void);
void rs_wake(struct rsocket *rs);
void rs_wake_all(void);
/*
 * Waits until test is true. The caller holds rs->lock. Returns 0, or an errno: EAGAIN (nonblock, or too late), EINTR.
 */
int rs_wait(struct rsocket *rs, bool (*test)(struct rsocket *), bool nonblock, const struct rs_deadline *until);
/*
 * The same, but the thread may be cancelled here. It then releases rs->lock, the lock of the call (held; NULL: none)
 * and the call's reference. Between rs_firm and rs_soft a thread can be cancelled only here.
 */
int rs_wait_soft(struct rsocket *rs, bool (*test)(struct rsocket *), bool nonblock, const struct rs_deadline *until,
                 pthread_mutex_t *held);
void rs_firm(void);
void rs_soft(void);
int rs_poll_soft(struct pollfd *fds, nfds_t n, int ms, void (*undo)(void *),
                 void *arg); /* undo: called if the thread is cancelled */
bool rs_nonblocking(const struct rsocket *rs, int flags);

/* rs_service.c: one thread that drives connections, datagram look-ups and keep-alives. */
enum rs_watch { RS_WATCH_CM, RS_WATCH_TIMER, RS_WATCH_UDP, RS_WATCH_PATH, RS_WATCH_LINGER };
int rs_service_add(struct rsocket *rs, enum rs_watch what, int fd);
void rs_service_pause(int fd, bool pause, struct rsocket *rs, enum rs_watch what);
void rs_service_del(int fd);
void rs_service_forked(void);
int rs_keep_alive_set(struct rsocket *rs);
int rs_timer_set(struct rsocket *rs, int64_t ms); /* lock */
void rs_service_finish(int ms);                   /* makes the thread call rs_linger_all(); waits ms at most */

/* rs_linger.c. rs_linger closes. It returns true if the service thread continues; that thread then owns the table's
 * reference. */
bool rs_linger(struct rsocket *rs);
struct rs_deadline rs_patience(const struct rsocket *rs); /* how long the end of a connection waits for the peer */
void rs_linger_look(struct rsocket *rs, bool too_late);   /* service thread */
void rs_linger_all(void);                                 /* service thread: the program ends */

/* rs_api.c */
void rs_teardown(struct rsocket *rs);

/* rs_connect.c: all work with rdma_cm. */
void rs_cm_ready(struct rsocket *rs); /* service thread */
int rs_stream_open(struct rsocket *rs);
int rs_stream_bind(struct rsocket *rs, const union rs_addr *addr);
int rs_stream_connect(struct rsocket *rs, const union rs_addr *addr);
bool rs_opening(const struct rsocket *rs);
void rs_stream_close(struct rsocket *rs);

/* rs_accept.c */
int rs_stream_listen(struct rsocket *rs, int backlog);
struct rsocket *rs_stream_accept(struct rsocket *rs, int flags);
/* Answers the request and acknowledges the event. Sets paused if the listener takes no more for now. */
void rs_request(struct rsocket *listener, struct rdma_cm_event *event);
void rs_half_open_look(struct rsocket *listener); /* service thread: the listener's timer */
void rs_accepted(struct rsocket *rs, bool ok);
void rs_accept_flush(struct rsocket *listener);

/* rs_ep.c: queue pair, memory, messages. All return 0 or an errno. */
int rs_ep_create(struct rsocket *rs);
void rs_ep_destroy(struct rsocket *rs);
void rs_ep_conn(struct rsocket *rs, uint8_t out[RS_CONN_LEN]);
void rs_ep_peer(struct rsocket *rs, const struct rs_conn *peer);
void *rs_pages(size_t len);
bool rs_is_iwarp(struct ibv_context *verbs);
int rs_post_message(struct rsocket *rs, uint32_t msg, uint64_t wr_id);
int rs_post_write(struct rsocket *rs, struct ibv_sge *sges, int n, bool inl, struct rs_sge to, uint64_t wr_id);
int rs_post_write_message(struct rsocket *rs, struct ibv_sge *sges, int n, bool inl, struct rs_sge to, uint32_t msg,
                          uint64_t wr_id);
int rs_post_write_then_message(struct rsocket *rs, struct ibv_sge *sges, int n, struct rs_sge to, uint32_t msg,
                               uint64_t wr_id);
int rs_post_receive(struct rsocket *rs);
int rs_grant(struct rsocket *rs); /* lock */

/* What a completion releases. */
enum rs_wr { RS_WR_RECV = 1, RS_WR_DATA, RS_WR_CTRL, RS_WR_DISCONNECT, RS_WR_NOTICE };
static inline uint64_t rs_wr_id(enum rs_wr kind, uint32_t value)
{
	return (uint64_t)kind << 32 | value;
}

/* rs_stream.c and rs_cq.c. "lock" means that the caller holds rs->lock. */
void rs_process(struct rsocket *rs);        /* lock */
void rs_give_credits(struct rsocket *rs);   /* lock */
void rs_arm(struct rsocket *rs);            /* lock */
void rs_drain(struct rsocket *rs);          /* lock */
void rs_break(struct rsocket *rs, int err); /* lock */
int rs_send_control(struct rsocket *rs, enum rs_control what);
bool rs_can_send(struct rsocket *rs);
bool rs_send_settled(struct rsocket *rs);
bool rs_recv_settled(struct rsocket *rs);
bool rs_control_settled(struct rsocket *rs);
bool rs_sends_done(struct rsocket *rs);
int rs_connected(struct rsocket *rs); /* lock; 0, EAGAIN, ENOTCONN ... */
int rs_error_of(struct rsocket *rs, int otherwise);

/* The buffers of a call. */
struct rs_cursor {
	const struct iovec *iov;
	size_t count, at;
	size_t left;
};
/* False: the sum does not fit. */
bool rs_cursor_init(struct rs_cursor *c, const struct iovec *iov, size_t count);
void rs_cursor_get(struct rs_cursor *c, void *to, size_t n);         /* copies out of the buffers */
void rs_cursor_put(struct rs_cursor *c, const void *from, size_t n); /* copies into the buffers */

ssize_t rs_stream_send(struct rsocket *rs, struct rs_cursor *c, int flags);
ssize_t rs_stream_recv(struct rsocket *rs, struct rs_cursor *c, int flags);
int rs_stream_shutdown(struct rsocket *rs, int how);
void rs_part(struct rsocket *rs,
             const struct rs_deadline
                     *until); /* lock: sends the end of the stream, and waits until the peer's has arrived */
void rs_abort(struct rsocket *rs, const struct rs_deadline *until); /* lock: ends the connection with an error */
void rs_end_qp(struct rsocket *rs);                                 /* lock */
/* The length of the next piece: no more than fits inline or into the ring. send_lock and lock are held. */
uint32_t rs_piece(struct rsocket *rs, size_t left);
struct rs_load {
	struct ibv_sge sges[2];
	int n;
	bool inl;
	uint32_t ring;
	uint8_t copy[RS_INLINE_MAX];
};
void rs_load(struct rsocket *rs, struct rs_load *l, struct rs_cursor *c, uint32_t n);

/* rs_iomap.c; send_lock and lock are held. */
int rs_iomap_send(struct rsocket *rs, int flags);
void rs_iomap_free(struct rsocket *rs);

/* rs_poll.c */
short rs_ready(struct rsocket *rs, short events); /* lock */
/* Also returns when *version (NULL: none) has changed from `was` and rs_wake_all() was called. */
int rs_poll_until(struct pollfd *fds, nfds_t nfds, const struct rs_deadline *d, const unsigned *version, unsigned was);

/* rs_epoll.c */
bool rs_epoll_close(int epfd); /* false: not one of our sets */
void rs_epoll_forked(void);

/* rs_dgram.c, rs_dgram_path.c */
int rs_dgram_open(struct rsocket *rs);
int rs_dgram_bind(struct rsocket *rs, const union rs_addr *addr);
int rs_dgram_connect(struct rsocket *rs, const union rs_addr *addr);
ssize_t rs_dgram_send(struct rsocket *rs, struct rs_cursor *c, int flags, const union rs_addr *to);
ssize_t rs_dgram_recv(struct rsocket *rs, struct rs_cursor *c, int flags, union rs_addr *from, bool *truncated);
int rs_dgram_shutdown(struct rsocket *rs, int how);
void rs_dgram_process(struct rsocket *rs);
void rs_dgram_arm(struct rsocket *rs);
void rs_dgram_drain(struct rsocket *rs);
bool rs_dgram_readable(struct rsocket *rs);
bool rs_dgram_writable(struct rsocket *rs);
int rs_dgram_wait_fd(struct rsocket *rs);
bool rs_dgram_has_qp(struct rsocket *rs);
void rs_dgram_close(struct rsocket *rs);
void rs_dgram_free(struct rsocket *rs);
void rs_dgram_udp_ready(struct rsocket *rs);  /* service thread */
void rs_dgram_path_ready(struct rsocket *rs); /* service thread */

static inline int rs_fail(int err)
{
	errno = err;
	return -1;
}

#endif
