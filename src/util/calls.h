// calls.h - defers thread cancellation during calls under a lock, which a cancelled thread would keep for ever
// follows: pthread_setcancelstate(3), pthreads(7) (cancellation points)
// SPDX-License-Identifier: MIT
#ifndef VB_UTIL_CALLS_H
#define VB_UTIL_CALLS_H

#include <pthread.h>

/*
 * A thread that holds a lock, or has unfinished work, calls cancellation points only between these two. They nest. A
 * thread that is cancelled meanwhile ends at the next cancellation point outside of them. Calls that wait without limit
 * (ibv_get_cq_event, ibv_get_async_event, rdma_get_cm_event) hold no lock while they wait, and can be cancelled there.
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
