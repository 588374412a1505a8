// refusal.h - what a request that is refused does to its responder, on every way the same: one row each
// follows: IBA volume 1, 9.7.4.1 (checks), 9.9.3 (responder errors), 11.6.3 (events); RFC 5040, 7.2; RFC 5041, 7
// SPDX-License-Identifier: MIT
#ifndef VB_ENGINE_REFUSAL_H
#define VB_ENGINE_REFUSAL_H

/* How the receive completes that the message had taken, if it had taken one, and the event; RQ: none, the receive
 * tells. Those that wait behind it are flushed. */
#define VB_REFUSALS(X)                                                                                               \
	X(INVALID, WR_FLUSH_ERR, REQ)     /* what this end does not take at all */                                   \
	X(TOO_LONG, LOC_LEN_ERR, REQ)     /* for its receive */                                                      \
	X(DENIED, WR_FLUSH_ERR, ACCESS)   /* a key or a range of what takes no receive */                            \
	X(ACCESS, LOC_ACCESS_ERR, ACCESS) /* … of what takes one: its immediate, or the key that it invalidates */ \
	X(RECEIVE, LOC_PROT_ERR, RQ)      /* our own fault: the receive's memory */

enum vb_refusal {
#define X(name, receive, event) VB_REFUSE_##name,
	VB_REFUSALS(X)
#undef X
};

#endif
