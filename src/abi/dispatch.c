// dispatch.c - the exported verbs: each finds the owner of its object and calls core/, or the real library
// follows: the ibv_* man page of the same name
// SPDX-License-Identifier: MIT
#include "abi/dispatch.h"

#include <errno.h>

#include "abi/abi.h"
#include "abi/real.h"
#include "util/calls.h"

char vb_priv_mark[4096];

/* Two verbs have their namesakes in core/, with another signature. */
#define vb_reg_mr vb_abi_reg_mr
#define vb_rereg_mr vb_abi_rereg_mr

static int invalid(int value)
{
	errno = EINVAL;
	return value;
}

/* Most verbs take locks and make system calls, so a thread is not cancelled in them (util/calls.h). A thread can be
 * cancelled in the verbs that wait. An object that is NULL is an error here; rdma-core mostly crashes on it. */
#define VERB(node, type, name, owner, params, args, waits, told, null) \
	VB_SYMVER(vbx_##name, "ibv_" #name "@@IBVERBS_" #node);        \
	VB_EXPORT type vbx_##name params                               \
	{                                                              \
		int cancel = 0;                                        \
		type result;                                           \
                                                                       \
		switch (owner) {                                       \
		case VB_OWNER_US:                                      \
			if (!(waits))                                  \
				vb_cancel_defer(&cancel);              \
			result = vb_##name args;                       \
			if (!(waits))                                  \
				vb_cancel_restore(cancel);             \
			return told(result);                           \
		case VB_OWNER_REAL:                                    \
			return vb_real.name args;                      \
		default:                                               \
			return null;                                   \
		}                                                      \
	}
#define PTR(node, type, name, owner, params, args) \
	VERB(node, type, name, owner, params, args, false, , (invalid(0), NULL))
#define ERR(node, name, owner, params, args) VERB(node, int, name, owner, params, args, false, vb_told, invalid(EINVAL))
#define NEG(node, name, owner, params, args) VERB(node, int, name, owner, params, args, false, , invalid(-1))
#define WAIT(node, name, owner, params, args) VERB(node, int, name, owner, params, args, true, , invalid(-1))
#define NEGERR(node, name, owner, params, args) VERB(node, int, name, owner, params, args, false, , invalid(-EINVAL))
#define ZERO(node, type, name, owner, params, args) VERB(node, type, name, owner, params, args, false, , invalid(0))
#define VOID(node, name, owner, params, args)                   \
	VB_SYMVER(vbx_##name, "ibv_" #name "@@IBVERBS_" #node); \
	VB_EXPORT void vbx_##name params                        \
	{                                                       \
		enum vb_owner who = owner;                      \
		int cancel;                                     \
                                                                \
		if (who == VB_OWNER_US) {                       \
			vb_cancel_defer(&cancel);               \
			vb_##name args;                         \
			vb_cancel_restore(cancel);              \
		} else if (who == VB_OWNER_REAL) {              \
			vb_real.name args;                      \
		}                                               \
	}
#include "abi/verbs.inc"

enum vb_owner vb_owner_of_event(const struct ibv_async_event *event)
{
	if (!event)
		return VB_OWNER_NONE;
	switch (event->event_type) {
	case IBV_EVENT_CQ_ERR:
		return VB_BY(event->element.cq);
	case IBV_EVENT_QP_FATAL:
	case IBV_EVENT_QP_REQ_ERR:
	case IBV_EVENT_QP_ACCESS_ERR:
	case IBV_EVENT_COMM_EST:
	case IBV_EVENT_SQ_DRAINED:
	case IBV_EVENT_PATH_MIG:
	case IBV_EVENT_PATH_MIG_ERR:
	case IBV_EVENT_QP_LAST_WQE_REACHED:
		return VB_BY(event->element.qp);
	case IBV_EVENT_SRQ_ERR:
	case IBV_EVENT_SRQ_LIMIT_REACHED:
		return VB_BY(event->element.srq);
	case IBV_EVENT_WQ_FATAL:
		return VB_BY(event->element.wq);
	default:
		return VB_OWNER_US;
	}
}
