// calls.h - defers thread cancellation while a thread holds a lock, because a cancelled thread would never release it
// follows: pthread_setcancelstate(3), pthreads(7) (cancellation points)
// SPDX-License-Identifier: MIT
#ifndef VB_UTIL_CALLS_H
#define VB_UTIL_CALLS_H

#include <pthread.h>

/*
 * A thread that holds a lock, or has unfinished work, calls cancellation points only between defer and restore. Pairs
 * nest. A thread that is cancelled meanwhile ends at its first cancellation point after the last restore. Calls that
 * wait without limit (ibv_get_cq_event, ibv_get_async_event, rdma_get_cm_event) hold no lock while they wait and can
 * be cancelled there.
 */
static inline void vb_cancel_defer(int *state)
{
	pthread_setcancelstate(PTHREAD_CANCEL_DISABLE, state);
}

static inline void vb_cancel_restore(int state)
{
	pthread_setcancelstate(state, NULL);
}

#endif
