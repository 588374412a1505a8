// preload.h - librspreload.so: puts the sockets of a program without RDMA on rsockets
// follows: rsocket(7) ("preload library")
// SPDX-License-Identifier: MIT
#ifndef VB_RSOCKET_PRELOAD_H
#define VB_RSOCKET_PRELOAD_H

#include <errno.h>
#include <poll.h>
#include <rdma/rsocket.h>
#include <signal.h>
#include <stdarg.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <sys/epoll.h>
#include <sys/socket.h>
#include <sys/uio.h>

#define PRE_EXPORT __attribute__((visibility("default")))

/* The functions of libc. */
struct pre_real {
	int (*socket)(int, int, int);
	int (*bind)(int, const struct sockaddr *, socklen_t);
	int (*listen)(int, int);
	int (*accept4)(int, struct sockaddr *, socklen_t *, int);
	int (*connect)(int, const struct sockaddr *, socklen_t);
	ssize_t (*recv)(int, void *, size_t, int);
	ssize_t (*recvfrom)(int, void *, size_t, int, struct sockaddr *, socklen_t *);
	ssize_t (*recvmsg)(int, struct msghdr *, int);
	ssize_t (*read)(int, void *, size_t);
	ssize_t (*readv)(int, const struct iovec *, int);
	ssize_t (*send)(int, const void *, size_t, int);
	ssize_t (*sendto)(int, const void *, size_t, int, const struct sockaddr *, socklen_t);
	ssize_t (*sendmsg)(int, const struct msghdr *, int);
	ssize_t (*write)(int, const void *, size_t);
	ssize_t (*writev)(int, const struct iovec *, int);
	int (*recvmmsg)(int, struct mmsghdr *, unsigned, int, struct timespec *);
	int (*sendmmsg)(int, struct mmsghdr *, unsigned, int);
	ssize_t (*splice)(int, off64_t *, int, off64_t *, size_t, unsigned);
	ssize_t (*sendfile)(int, int, off_t *, size_t);
	int (*poll)(struct pollfd *, nfds_t, int);
	int (*ppoll)(struct pollfd *, nfds_t, const struct timespec *, const sigset_t *);
	int (*select)(int, fd_set *, fd_set *, fd_set *, struct timeval *);
	int (*pselect)(int, fd_set *, fd_set *, fd_set *, const struct timespec *, const sigset_t *);
	int (*epoll_ctl)(int, int, int, struct epoll_event *);
	int (*epoll_pwait)(int, struct epoll_event *, int, int, const sigset_t *);
	int (*shutdown)(int, int);
	int (*close)(int);
	int (*getpeername)(int, struct sockaddr *, socklen_t *);
	int (*getsockname)(int, struct sockaddr *, socklen_t *);
	int (*setsockopt)(int, int, int, const void *, socklen_t);
	int (*getsockopt)(int, int, int, void *, socklen_t *);
	int (*fcntl)(int, int, ...);
	int (*ioctl)(int, unsigned long, ...);
	FILE *(*fdopen)(int, const char *);
	int (*vdprintf)(int, const char *, va_list);
	int (*dup)(int);
	int (*dup3)(int, int, int);
	long (*syscall)(long, ...);
	int (*sigaction)(int, const struct sigaction *, struct sigaction *);
};
extern struct pre_real pre_real;
void pre_init(void);

/* preload_signal.c: the state of a thread, and its deferred signals */
enum { PRE_DEFERRED_MAX = 8 };
struct pre_thread {
	int inside; /* number of our references and locks that the thread holds */
	int asleep; /* > 0: the thread sleeps, without a lock */
	int deferred;
	const char *handler; /* the stack frame of the running signal handler */
	bool fragile;        /* the handler may have interrupted the allocator, or other code that is not reentrant */
	siginfo_t kept[PRE_DEFERRED_MAX];
};
extern __thread struct pre_thread pre_me __attribute__((tls_model("initial-exec")));
void pre_handle_deferred(void);
bool pre_fall_asleep(void); /* false: a handler has run first */
void pre_wake_up(void);
bool pre_is_fragile(void);
static inline void pre_enter(void)
{
	pre_me.inside++;
	__atomic_signal_fence(__ATOMIC_SEQ_CST);
}
static inline void pre_leave(void)
{
	__atomic_signal_fence(__ATOMIC_SEQ_CST);
	if (--pre_me.inside > 0)
		return;
	pre_me.inside = 0; /* below 0 after a handler has left by longjmp() */
	if (pre_me.deferred)
		pre_handle_deferred();
}
/* Makes a system call that may sleep. The thread holds no lock of ours. */
#define PRE_SLEEP(call)                   \
	({                                \
		(void)pre_fall_asleep();  \
		__auto_type r__ = (call); \
		pre_wake_up();            \
		r__;                      \
	})
/* An object to be freed. If a signal handler drops the last reference, a thread of ours frees it. */
struct pre_late {
	struct pre_late *next;
	void (*end)(struct pre_late *);
};
void pre_end(struct pre_late *l, void (*end)(struct pre_late *));
void pre_start_closer(void);

/* With fork support a connection is TCP until the first data, which shows the process that it belongs to. */
enum pre_fork { PRE_READY, PRE_FORK_NEW, PRE_FORK_LISTEN, PRE_FORK_ACTIVE, PRE_FORK_PASSIVE };

/*
 * The object behind one or more descriptors of the program. These descriptors are placeholders: kernel sockets that are
 * never connected. So their numbers, flags, dup and fstat are right. In fork mode, plain is the TCP socket behind them.
 */
struct pre_sock {
	struct pre_late late;
	int refs, domain, type;
	int rs;    /* the rsocket; -1: plain is used */
	int plain; /* the TCP or UDP socket if rs is -1 */
	enum pre_fork fork;
	/* For preload_fork.c: the process in which a thread decides the transport, the thread that called connect, and
	 * the number of forks before that. */
	unsigned settling;
	const void *owner;
	unsigned forks;
	/* For epoll: number of sets that contain it. For edge-triggered sets: number of reads, and of writes that found
	 * no room. */
	unsigned refs_by_epoll, in_reads, out_blocks;
};

/* preload_fd.c. A thread that holds a reference counts as inside. */
struct pre_sock *pre_get(int fd);  /* takes a reference; NULL: not one of ours */
struct pre_sock *pre_take(int fd); /* the same, and decides the transport in fork mode first */
void pre_put(struct pre_sock *s);
/* A reference that is released at the end of the block, also if the thread is cancelled. */
#define PRE_HELD __attribute__((cleanup(pre_put_held)))
static inline void pre_put_held(struct pre_sock **s)
{
	if (*s)
		pre_put(*s);
}
/* Preserves errno if the call succeeds, as a system call does. OpenSSL checks errno after the end of the data. */
#define PRE_ERRNO __attribute__((cleanup(pre_errno_back))) struct pre_errno errno_ = {errno, false}
struct pre_errno {
	int before;
	bool good; /* the call has succeeded */
};
static inline void pre_errno_back(const struct pre_errno *e)
{
	if (e->good)
		errno = e->before;
}
int pre_open(struct pre_sock **out, int domain, int type);
int pre_alias(int fd, struct pre_sock *s);
bool pre_drop(int fd);               /* before the descriptor is closed; true if it was one of ours */
int pre_next(int fd, unsigned last); /* the first of our descriptors from fd to last; -1: none */
bool pre_any(void);                  /* true if any descriptor is ours */
bool pre_borrowed(void);             /* true in a child of vfork(), which must not change anything here */
unsigned pre_list(bool (*wanted)(const struct pre_sock *), struct pre_sock **out,
                  unsigned room); /* with a reference on each */

/* preload_config.c */
extern bool pre_fork_support;
void pre_read_config(void);
bool pre_wanted(int domain, int type, int protocol);
void pre_tune(int rs);

/* preload_fork.c */
void pre_settle(struct pre_sock *s);
void pre_connecting(struct pre_sock *s); /* connect was called */
int pre_copy_options(int rs, int plain, int domain, int type, bool to_rsocket);

/* preload_mask.c: end lets in the signals of the mask that were held back since begin, and returns true if a handler
 * has run. begin returns a descriptor to poll meanwhile, or -1. */
struct pre_mask {
	sigset_t before, inside, let_in;
};
int pre_mask_begin(struct pre_mask *m, const sigset_t *mask);
bool pre_mask_end(struct pre_mask *m, int fd);

/* preload_poll.c */
int64_t pre_now_ms(void); /* CLOCK_MONOTONIC */

/* preload_epoll.c */
void pre_epoll_forget(int fd);
void pre_epoll_forget_range(unsigned first, unsigned last);
void pre_epoll_kick(struct pre_sock *s); /* to be called when one of the counters has changed */

#endif
