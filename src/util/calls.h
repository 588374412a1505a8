// calls.h - calls that a thread is not cancelled in: it would keep the locks that it holds for ever
// follows: pthread_setcancelstate(3), pthreads(7) (cancellation points)
// SPDX-License-Identifier: MIT
#ifndef VB_UTIL_CALLS_H
#define VB_UTIL_CALLS_H

#include <pthread.h>

/*
 * Whoever holds a lock, or leaves something half done, and calls what is a cancellation point stands between these two.
 * They nest. A thread that has been asked to end meanwhile does so at the next cancellation point of its own. Those
 * that wait for what may never come (ibv_get_cq_event, ibv_get_async_event, rdma_get_cm_event) hold no lock while they
 * wait, and can be cancelled there.
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
