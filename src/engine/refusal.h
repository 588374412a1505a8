// refusal.h - the effects of a refused request on its responder, the same on every path: one row each
// follows: IBA volume 1, 9.7.4.1 (checks), 9.9.3 (responder errors), 11.6.3 (events); RFC 5040, 7.2; RFC 5041, 7
// SPDX-License-Identifier: MIT
#ifndef VB_ENGINE_REFUSAL_H
#define VB_ENGINE_REFUSAL_H

/* X(name, status of the receive that the message had taken, asynchronous event). RQ: no event, because the receive
 * reports the error. Receives behind it are flushed. */
#define VB_REFUSALS(X)                                                              \
	X(INVALID, WR_FLUSH_ERR, REQ)     /* an invalid request */                  \
	X(TOO_LONG, LOC_LEN_ERR, REQ)     /* longer than its receive */             \
	X(DENIED, WR_FLUSH_ERR, ACCESS)   /* bad key or range, without a receive */ \
	X(ACCESS, LOC_ACCESS_ERR, ACCESS) /* the same with a receive */             \
	X(RECEIVE, LOC_PROT_ERR, RQ)      /* local: the receive's memory */

enum vb_refusal {
#define X(name, receive, event) VB_REFUSE_##name,
	VB_REFUSALS(X)
#undef X
};

#endif
