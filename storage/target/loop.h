// loop.h - one thread waits for descriptors
// follows: epoll(7)
// SPDX-License-Identifier: MIT
#ifndef NT_LOOP_H
#define NT_LOOP_H

#include <stdint.h>

/* Embedded in objects with a descriptor. ready is called with EPOLL* bits; it may remove any watch, its own too. */
struct nt_watch {
	int fd;
	uint32_t events;
	void (*ready)(struct nt_watch *w, uint32_t events);
};

struct nt_loop;

struct nt_loop *nt_loop_open(void);
void nt_loop_close(struct nt_loop *l);
int nt_loop_add(struct nt_loop *l, struct nt_watch *w); /* 0 or errno */
void nt_loop_change(struct nt_loop *l, struct nt_watch *w, uint32_t events);
void nt_loop_remove(struct nt_loop *l, struct nt_watch *w); /* before the descriptor is closed */
/* *now is set when the wait is over, before anybody is called. */
void nt_loop_once(struct nt_loop *l, int timeout_ms, uint64_t *now);

uint64_t nt_now(void); /* ms, of the monotonic clock */

#endif
