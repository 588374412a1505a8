// loop.h - the event loop: one thread waits for descriptors
// follows: epoll(7)
// SPDX-License-Identifier: MIT
#ifndef NT_LOOP_H
#define NT_LOOP_H

#include <stdint.h>

/* Embedded in an object with a descriptor. ready is called with EPOLL* bits. It may remove any watch, including its
 * own. */
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
/* Sets *now after the wait, before it calls any ready. */
void nt_loop_once(struct nt_loop *l, int timeout_ms, uint64_t *now);

uint64_t nt_now(void); /* ms, of the monotonic clock */

#endif
