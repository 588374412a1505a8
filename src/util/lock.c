// lock.c - checks the order in which a thread takes locks, in sanitizer and debug builds
// see: docs/locking.md
// SPDX-License-Identifier: MIT
#include "util/lock.h"

#ifdef VB_LOCK_RANKS

#include <stdio.h>
#include <stdlib.h>

#define HELD_MAX 32

struct held {
	const void *lock;
	enum vb_lock_rank rank;
	const char *file;
	int line;
};

/* The locks that this thread holds, in the order in which it took them. */
static _Thread_local struct {
	unsigned n;
	struct held lock[HELD_MAX];
} held;

static const char *const names[] = {
        [VB_RANK_NONE] = "unranked",
        [VB_RANK_PROGRAM] = "program",
        [VB_RANK_PRE_FORK] = "preload fork",
        [VB_RANK_PRE_EPOLL] = "preload epoll",
        [VB_RANK_PRE_FILE] = "preload file",
        [VB_RANK_RS_EPOLL] = "rsocket epoll",
        [VB_RANK_RS_CM] = "rsocket cm",
        [VB_RANK_RS] = "rsocket",
        [VB_RANK_RS_LINGER] = "rsocket linger",
        [VB_RANK_RS_START] = "rsocket start",
        [VB_RANK_RS_ASLEEP] = "rsocket asleep",
        [VB_RANK_RCM_OPENING] = "rcm opening",
        [VB_RANK_RCM] = "rcm",
        [VB_RANK_RCM_DEVICES] = "rcm devices",
        [VB_RANK_NODE] = "node",
        [VB_RANK_GSI] = "gsi",
        [VB_RANK_MODIFY] = "modify",
        [VB_RANK_CONTEXTS] = "contexts",
        [VB_RANK_CONTEXT] = "context",
        [VB_RANK_SCAN] = "scan",
        [VB_RANK_MEETING] = "meeting",
        [VB_RANK_GROUPS] = "multicast groups",
        [VB_RANK_BROKER] = "broker",
        [VB_RANK_MR] = "mr",
        [VB_RANK_WATCHES] = "watches",
        [VB_RANK_ACK] = "ack",
        [VB_RANK_TAKERS] = "takers",
        [VB_RANK_SYSFS] = "sysfs",
        [VB_RANK_ABI_CHANNEL] = "abi channel",
        [VB_RANK_GUARD] = "guard",
        [VB_RANK_PRE_TABLE] = "preload table",
        [VB_RANK_RS_TABLE] = "rsocket table",
        [VB_RANK_PROGRESS] = "progress",
        [VB_RANK_SQ] = "sq",
        [VB_RANK_TAILS] = "tails",
        [VB_RANK_TX] = "tx",
        [VB_RANK_PEER_TX] = "peer tx",
        [VB_RANK_MAPS] = "maps",
        [VB_RANK_RQ] = "rq",
        [VB_RANK_CQ] = "cq",
        [VB_RANK_CHANNEL] = "channel",
        [VB_RANK_ASYNC] = "async",
        [VB_RANK_QUESTIONS] = "questions",
        [VB_RANK_DEVICE] = "device",
};

static _Noreturn void rank_error(const char *what, enum vb_lock_rank rank, const char *file, int line,
                                 const struct held *h)
{
	if (h)
		fprintf(stderr, "verbena: %s:%d: %s \"%s\" lock while this thread holds \"%s\", taken at %s:%d\n", file,
		        line, what, names[rank], names[h->rank], h->file, h->line);
	else
		fprintf(stderr, "verbena: %s:%d: %s \"%s\" lock\n", file, line, what, names[rank]);
	abort();
}

void vb_rank_check(const void *lock, enum vb_lock_rank rank, const char *file, int line)
{
	for (unsigned i = 0; i < held.n; i++) {
		const struct held *h = &held.lock[i];

		if (h->lock == lock)
			rank_error("takes twice the", rank, file, line, h);
		if (rank != VB_RANK_NONE && h->rank >= rank)
			rank_error("takes the", rank, file, line, h);
	}
}

void vb_rank_push(const void *lock, enum vb_lock_rank rank, const char *file, int line)
{
	if (rank == VB_RANK_NONE || rank == VB_RANK_PROGRAM)
		return;
	if (held.n == HELD_MAX)
		rank_error("cannot record the", rank, file, line, &held.lock[HELD_MAX - 1]);
	held.lock[held.n++] = (struct held){lock, rank, file, line};
}

static bool held_remove(const void *lock)
{
	for (unsigned i = held.n; i-- > 0;) {
		if (held.lock[i].lock != lock)
			continue;
		for (held.n--; i < held.n; i++)
			held.lock[i] = held.lock[i + 1];
		return true;
	}
	return false;
}

void vb_rank_pop(const void *lock, enum vb_lock_rank rank, const char *file, int line)
{
	if (!held_remove(lock) && rank > VB_RANK_PROGRAM)
		rank_error("releases, without holding it, the", rank, file, line, NULL);
}

void vb_rank_pop_mutex(const void *lock, const char *file, int line)
{
	if (held_remove(lock))
		return;
	fprintf(stderr, "verbena: %s:%d: releases a mutex that this thread does not hold\n", file, line);
	abort();
}

void vb_rank_forget(void)
{
	held.n = 0;
}

void vb_rank_may_wait(const char *file, int line)
{
	for (unsigned i = 0; i < held.n; i++)
		if (held.lock[i].rank >= VB_RANK_SPIN)
			rank_error("may wait, under no", VB_RANK_NONE, file, line, &held.lock[i]);
}

void vb_rank_holds_none(const char *file, int line)
{
	if (held.n)
		rank_error("calls out, under no", VB_RANK_NONE, file, line, &held.lock[0]);
}

#endif
