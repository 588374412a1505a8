// pair.h - two or more connected processes of one host: the helpers of the same-host tests
// follows: ibv_* man pages
// SPDX-License-Identifier: MIT
#ifndef VB_TEST_PAIR_H
#define VB_TEST_PAIR_H

#include <infiniband/verbs.h>
#include <errno.h>
#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/types.h>
#include <unistd.h>

/*
 * A test is a function that runs in its own process, with a time limit. It forks its peers, and each opens the device
 * itself. The first failed check, in any process, is the result of the test. After the limit, or at the end of the
 * test, all its processes are killed.
 */
struct test {
	const char *name; /* a sentence */
	void (*fn)(void);
	int seconds; /* 0: 100 */
};
/* Runs the tests whose name contains one of the arguments (all, without arguments). Prints "ok NAME" or "not ok NAME:
 * why". */
int run_tests(int argc, char **argv, const struct test *tests, size_t n);
#define RUN_TESTS(argc, argv, tests) run_tests(argc, argv, tests, sizeof(tests) / sizeof((tests)[0]))

__attribute__((noreturn, format(printf, 3, 4))) void fail(const char *file, int line, const char *fmt, ...);
__attribute__((noreturn, format(printf, 1, 2))) void skip(const char *fmt, ...);
#define CHECK_FAILED(...) fail(__FILE__, __LINE__, __VA_ARGS__)
#include "../../support/check.h"
/* A number from the command line of the test programs: -n COUNT, otherwise $VERBENA_TEST_COUNT, otherwise the
 * default. */
extern unsigned long test_count;
unsigned long count_or(unsigned long preset);
bool under_sanitizer(void);

/* --- processes --- */

struct peer {
	pid_t pid;
	int fd; /* a socket to it */
};
typedef void peer_fn(int fd, void *arg);
struct peer start(peer_fn *fn, void *arg);
void finish(struct peer *p);    /* waits for its end; it must exit with 0 */
void kill_peer(struct peer *p); /* sends SIGKILL and reaps it */
void stop_peer(struct peer *p); /* sends SIGSTOP and waits until it is stopped */
void cont_peer(struct peer *p);
void tell(int fd, const void *data, size_t n);
void hear(int fd, void *data, size_t n);
bool heard(int fd, int ms); /* true if a message is waiting */
#define PATIENCE 60000      /* ms: limit for expected events, also on a busy machine */
void meet_up(int fd);       /* waits until both sides have come this far */
uint64_t now_ms(void);
unsigned open_descriptors(void); /* of this process; only differences mean something */
void sleep_ms(unsigned ms);

/* Addresses where nothing is mapped by default, and which sanitizers leave to programs. */
#if defined(__SANITIZE_THREAD__)
#define FAR_AWAY 0x7ea000000000
#else
#define FAR_AWAY 0x200000000000
#endif

/* --- verbs --- */

struct dev {
	struct ibv_context *ctx;
	struct ibv_pd *pd;
	struct ibv_port_attr port;
	union ibv_gid gid;
	int gid_index;
};
void dev_open(struct dev *d);
void dev_close(struct dev *d);

/* 0 stands for the default in brackets. */
struct conf {
	enum ibv_qp_type type;    /* [RC] */
	unsigned depth, rdepth;   /* [64, depth] */
	bool no_sends;            /* max_send_wr 0 */
	unsigned sge, inline_max; /* [4, 0] */
	unsigned access;          /* [all remote] */
	bool no_access;
	int timeout;   /* [20, 4.3 s: over a network, a busy machine may matter; -1: 0] */
	int retry;     /* [7; -1: 0] */
	int rnr_retry; /* [7; -1: 0] */
	int rnr_timer; /* [1: 10 us] */
	int rd;        /* [16; -1: 0] */
	bool sig_all;
	uint8_t static_rate; /* enum ibv_rate */
	uint32_t psn;        /* [number of the QP] */
	uint32_t cqe;        /* [depth + rdepth + 16] */
	struct ibv_srq *srq;
	struct ibv_cq *scq, *rcq;         /* [own ones] */
	struct ibv_comp_channel *channel; /* of its own receive CQ */
	struct ibv_pd *pd;                /* [the device's] */
	bool ex;                          /* use ibv_wr_* */
	uint64_t ops;                     /* of ex: IBV_QP_EX_WITH_* [some of each type] */
};
#define QKEY 0x11111111u

struct addr {
	uint32_t qpn, psn;
	union ibv_gid gid;
};

struct link {
	struct dev *d;
	struct conf c;
	struct ibv_qp *qp;
	struct ibv_cq *scq, *rcq;
	struct addr me, it;
};
void link_make(struct link *l, struct dev *d, const struct conf *c); /* INIT */
void link_rtr(struct link *l, const struct addr *it);
void link_rts(struct link *l);
void link_to(struct link *l, const struct addr *it); /* RTS */
void link_join(struct link *l, int fd);              /* exchanges addresses with the other side; both reach RTS */
void link_open(struct link *l, struct dev *d, const struct conf *c, int fd); /* makes and joins */
void link_end(struct link *l);
enum ibv_qp_state state_of(struct ibv_qp *qp);
int to_state(struct ibv_qp *qp, enum ibv_qp_state s);

struct mem {
	uint8_t *p;
	size_t n;
	struct ibv_mr *mr;
};
/* What the other side must know about it. */
struct far {
	uint64_t addr;
	uint32_t rkey;
	uint32_t pad;
};
#define ALL_ACCESS \
	(IBV_ACCESS_LOCAL_WRITE | IBV_ACCESS_REMOTE_WRITE | IBV_ACCESS_REMOTE_READ | IBV_ACCESS_REMOTE_ATOMIC)
void mem_make(struct mem *m, struct dev *d, size_t n);        /* anonymous, zeroed, all access */
void mem_make_shared(struct mem *m, struct dev *d, size_t n); /* a memfd, MAP_SHARED */
void mem_make_apart(struct mem *m, struct dev *d, size_t n);  /* where nothing else is mapped after munmap */
void mem_reg(struct mem *m, struct dev *d, unsigned access);
void mem_end(struct mem *m);
void mem_tell(const struct mem *m, int fd);
struct far far_hear(int fd);

/* One work request of one sge; NULL, 0 for none. */
struct wr {
	enum ibv_wr_opcode op;
	uint64_t id;
	struct mem *m; /* its key; */
	uint64_t off;  /* from m->p + off */
	uint32_t len;
	uint32_t lkey; /* instead of m's, with */
	void *p;
	struct far far;
	uint64_t far_off;
	uint64_t compare_add, swap;
	unsigned flags; /* without SIGNALED */
	bool quiet;
	uint32_t imm;
	struct ibv_ah *ah;
	uint32_t qpn, qkey; /* UD */
};
int try_post(struct link *l, const struct wr *w);
void post(struct link *l, const struct wr *w);
#define POST(l, ...) post(l, &(struct wr){__VA_ARGS__})
void post_recv(struct link *l, uint64_t id, struct mem *m, uint64_t off, uint32_t len);

/* Waits for the next completion, for PATIENCE (or ms). */
bool wait_wc_ms(struct ibv_cq *cq, struct ibv_wc *wc, unsigned ms);
struct ibv_wc wait_wc(struct ibv_cq *cq);
/* Checks that the next completion is for this request and has this status. */
struct ibv_wc expect_at(const char *file, int line, struct ibv_cq *cq, uint64_t id, enum ibv_wc_status status);
#define expect(cq, id, status) expect_at(__FILE__, __LINE__, cq, id, status)
/* Checks that nothing completes for this time. */
void expect_none_at(const char *file, int line, struct ibv_cq *cq, unsigned ms);
#define expect_none(cq, ms) expect_none_at(__FILE__, __LINE__, cq, ms)
/* The next asynchronous event, acknowledged; -1 if none comes in time. */
int next_event(struct dev *d, unsigned ms);

void fill(void *p, size_t n, uint32_t seed);
bool holds(const void *p, size_t n, uint32_t seed);
uint32_t random_next(uint64_t *state);

/* From now on process_vm_readv and process_vm_writev fail with this errno in the calling process. False: no seccomp
 * here. */
bool forbid_process_vm(int err);
bool forbid_preadv2(int err);

#endif
