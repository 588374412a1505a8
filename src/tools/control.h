// control.h - the control sockets of running programs: finds them, asks them
// follows: docs/control.md
// SPDX-License-Identifier: MIT
#ifndef VB_TOOLS_CONTROL_H
#define VB_TOOLS_CONTROL_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <sys/types.h>

#define CTL_ANSWER_MAX ((size_t)1 << 20)

#define CTL_USER_MS 10000

/* A running program that has opened an adapter. */
struct ctl_program {
	int pid; /* as we see it; as it sees itself, if it is in another pid namespace */
	uid_t user;
	uint64_t netns; /* number of its network namespace */
	int sock;       /* connected, for one question; or -1 */
	/* what the last question gave: 0 with text, which ends with a zero byte and may contain others; or an errno
	 * value: ESRCH (the program has ended), ETIMEDOUT, EPERM, EPROTO (no answer, or too long) */
	int err;
	char *text;
	size_t len;
	int dir_fd; /* index of the directory, private to control.c */
	char name[64];
	size_t sent;
};

struct ctl_list {
	struct ctl_program *programs; /* ordered by pid */
	size_t n;
	int *dirs, n_dirs; /* private to control.c */
	uid_t *dir_users;
	int64_t *dir_ms; /* waited for its programs, one after another */
};

/*
 * Finds the programs that the caller may ask, and which a tool may show as one host: those of his user, for root those of
 * all users; in the caller's network namespace, or in all that share VERBENA_RUNTIME. everywhere: in all network
 * namespaces. Removes the names of ended programs. pid: only this one, or 0. Returns 0 or an errno value.
 * Finding none is no error.
 */
int ctl_find(struct ctl_list *list, int pid, bool everywhere);
void ctl_free(struct ctl_list *list);

/*
 * Asks all programs in the list the same at once, and waits until all have answered or timeout_ms is over. request has no
 * newline. fd: a descriptor that goes with the request, or -1. A program that has failed before is not asked again.
 */
void ctl_ask(struct ctl_list *list, const char *request, int fd, int timeout_ms);
/* The same for one of them. Returns program->err. It may be ETIMEDOUT earlier, because all such waits for programs of one
 * user take CTL_USER_MS at most. */
int ctl_ask_one(struct ctl_list *list, struct ctl_program *program, const char *request, int fd, int timeout_ms);
/* Frees the answer. */
void ctl_forget(struct ctl_program *program);
/* A file of util/tally.h. name: the control socket of the program that has kept it; NULL: sums of ended programs. */
typedef void ctl_take(void *arg, uid_t user, const char *name, const char *text, size_t len);
/* The sums of programs that have ended, and what programs have kept, of the users and the network namespace that ctl_find
 * looks at: calls take with each text. */
void ctl_ended(const struct ctl_list *list, ctl_take *take, void *arg);
void ctl_shown(const struct ctl_list *list, ctl_take *take, void *arg);
int64_t ctl_now_ms(void);

#endif
