// harness.h - shared by the broker's tests: one process and one runtime directory per test, clients that record events
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

/* Runs each test in its own child, with an empty VERBENA_RUNTIME, for at most 100 seconds, and checks that no process
 * remains. An argument selects the tests whose sentence contains it. Returns main's exit status. */
int run_tests(int argc, char **argv, const struct test *tests, size_t n);

/* Ends the test as skipped. */
void skip(const char *why) __attribute__((noreturn));

/* A program: a client, its descriptors, and its events. */
struct diary {
	struct vb_attach_fds fds;
	struct vb_broker_client *c;
	int replies, introductions, reattached;
	uint64_t tag;
	int err;
	struct vb_peer_info peer; /* the last peer, from either event; its descriptors are open */
	int wires, wire_err, lane_fd, lifeline_fd;
	bool relayed, holder_known;
	uint32_t nlanes;
	uid_t holder_uid;
};

void make_fds(struct vb_attach_fds *fds);
/* Connects with one GID, all bytes of which are gid, and returns when the broker knows it. Fails the test otherwise. */
void join_as(struct diary *d, uint8_t gid);
/* vb_broker_connect, also on a slow machine. */
int connect_with(const struct vb_attach_fds *fds, struct vb_broker_client **out);
void leave(struct diary *d);
union ibv_gid gid_of(uint8_t byte);
int ask(struct diary *d, uint64_t tag, uint32_t lane, uint8_t gid);

/* Asks for the lane's socket, waits, and returns the answer's errno. */
int wire_once(struct diary *d);
int wire(struct diary *d); /* repeats the request if the keeper had no processor time (ETIMEDOUT) */

/* Dispatches until *counter reaches at least want; false after ms. */
bool wait_for(struct diary *d, const int *counter, int want, int ms);

void sleep_ms(int ms);
int64_t now_ms(void);

/* A raw, blocking connection to the broker of this runtime directory. Fails the test if there is none. */
int raw_connect(void);

/* vb_broker_status, also on a slow machine. */
int status_of(struct vb_broker_report *r);
/* The broker's pid; 0: none. */
pid_t broker_pid(void);
bool wait_gone(int ms);    /* waits until no broker answers */
uint32_t lanes_held(void); /* lanes that are not reserved */
bool wait_lanes(uint32_t n, int ms);

/* A child that attaches as gid, reports its lane, and serves its client until it is killed or told to end. */
struct program {
	pid_t pid;
	uint32_t lane;
	uint64_t incarnation;
	int to, from;
};
void start_program(struct program *p, uint8_t gid, uid_t uid);
/* Its events so far. */
struct program_news {
	uint32_t lane;
	int reattached, introductions, wires, wire_err;
};
struct program_news news_of(struct program *p);
int wire_program(struct program *p);          /* makes it ask for its lane's socket; returns the answer's errno */
void end_program(struct program *p, int sig); /* sig 0: ends it in order */

int count_fds(pid_t pid);
bool wait_fds(pid_t pid, int most); /* waits until it has at most n */
bool wait_idle(pid_t pid);          /* waits until it has used no processor time for half a second */

/* Enters a new network namespace with loopback up; skips the test if that is not possible. */
void own_network(void);
/* The pid of the keeper of this network namespace; 0: none. */
pid_t keeper_pid(void);
bool wait_no_keeper(int ms);

#endif
