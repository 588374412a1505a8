// harness.h - what the broker's tests share: one process and one runtime directory per test, clients that keep a diary
// SPDX-License-Identifier: MIT
#ifndef VB_TESTS_BROKER_HARNESS_H
#define VB_TESTS_BROKER_HARNESS_H

#include <infiniband/verbs.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/types.h>

#include "../../support/check.h"
#include "broker/client/client.h"

struct test {
	const char *sentence;
	void (*run)(void);
};

#define SKIPPED 77

/* Runs each in a child of its own, with an empty VERBENA_RUNTIME, within 100 seconds; sees to it that nothing runs on.
 * An argument selects the tests whose sentence contains it. Returns main's exit status. */
int run_tests(int argc, char **argv, const struct test *tests, size_t n);

/* Ends the test as skipped. */
void skip(const char *why) __attribute__((noreturn));

/* A program's side: a client, its descriptors, and what it was told. */
struct diary {
	struct vb_attach_fds fds;
	struct vb_broker_client *c;
	int replies, introductions, reattached;
	uint64_t tag;
	int err;
	struct vb_peer_info peer; /* the last one, from either; its descriptors are open */
	int wires, wire_err, lane_fd, lifeline_fd;
	bool relayed, holder_known;
	uint32_t nlanes;
	uid_t holder_uid;
};

void make_fds(struct vb_attach_fds *fds);
/* Connects with one GID, whose bytes all are gid, and returns when the broker knows it; fails the test if it cannot. */
void join_as(struct diary *d, uint8_t gid);
/* vb_broker_connect, by a machine that is slow, too. */
int connect_with(const struct vb_attach_fds *fds, struct vb_broker_client **out);
void leave(struct diary *d);
union ibv_gid gid_of(uint8_t byte);
int ask(struct diary *d, uint64_t tag, uint32_t lane, uint8_t gid);

/* Asks for the lane's socket and waits: the answer's errno. */
int wire_once(struct diary *d);
int wire(struct diary *d); /* again, where a machine is slow and the keeper had no turn (ETIMEDOUT) */

/* Dispatches until *counter reaches at least want; false after ms. */
bool wait_for(struct diary *d, const int *counter, int want, int ms);

void sleep_ms(int ms);
int64_t now_ms(void);

/* A raw connection to the broker of this runtime directory, blocking; fails the test if there is none. */
int raw_connect(void);

/* vb_broker_status, by a machine that is slow, too. */
int status_of(struct vb_broker_report *r);
/* The broker's pid, 0 when there is none. */
pid_t broker_pid(void);
bool wait_gone(int ms);    /* until no broker answers */
uint32_t lanes_held(void); /* that are not reserved */
bool wait_lanes(uint32_t n, int ms);

/* A child that joins as gid, tells its lane, and serves its client until it is killed or told to end. */
struct program {
	pid_t pid;
	uint32_t lane;
	uint64_t incarnation;
	int to, from;
};
void start_program(struct program *p, uint8_t gid, uid_t uid);
/* What it was told so far. */
struct program_news {
	uint32_t lane;
	int reattached, introductions, wires, wire_err;
};
struct program_news news_of(struct program *p);
int wire_program(struct program *p);          /* has it ask for its lane's socket: the answer's errno */
void end_program(struct program *p, int sig); /* sig 0: orderly */

int count_fds(pid_t pid);
bool wait_fds(pid_t pid, int most); /* until it has no more than that */
bool wait_idle(pid_t pid);          /* until it has used no processor time for half a second */

/* A network namespace of this test's own, with its loopback up; skips the test where there can be none. */
void own_network(void);
/* The keeper of this network namespace, 0 when there is none. */
pid_t keeper_pid(void);
bool wait_no_keeper(int ms);

#endif
