// line.c - the time that a cache line takes from one core to the other, one way, in ns
// On virtual machines this time changes from minute to minute. Compare figures only if it was equal.
// SPDX-License-Identifier: MIT
#include <pthread.h>
#include <stdatomic.h>

#include "clock.h"

enum { TURNS = 20000, ROUNDS = 7 };
static _Alignas(128) atomic_uint ping;
static _Alignas(128) atomic_uint pong;

static void *answer(void *arg)
{
	(void)arg;
	take_core(1);
	for (unsigned i = 1; i <= TURNS * ROUNDS; i++) {
		while (atomic_load_explicit(&ping, memory_order_acquire) != i)
			;
		atomic_store_explicit(&pong, i, memory_order_release);
	}
	return NULL;
}

int main(void)
{
	uint64_t took[ROUNDS];
	pthread_t thread;
	unsigned turn = 1;

	if (pthread_create(&thread, NULL, answer, NULL))
		fail("pthread_create");
	take_core(0);
	for (int r = 0; r < ROUNDS; r++) {
		uint64_t start = now_ns();

		for (int i = 0; i < TURNS; i++, turn++) {
			atomic_store_explicit(&ping, turn, memory_order_release);
			while (atomic_load_explicit(&pong, memory_order_acquire) != turn)
				;
		}
		took[r] = now_ns() - start;
	}
	pthread_join(thread, NULL);
	printf("%.1f\n", (double)median_u64(took, ROUNDS) / TURNS / 2);
	return 0;
}
