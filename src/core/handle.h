// handle.h - checks that an object is still the one its handle names: programs can write to the public part
// follows: the Linux uverbs commands, whose look-ups these replace: EINVAL when an object is used, ENOENT when it is destroyed
// SPDX-License-Identifier: MIT
#ifndef VB_CORE_HANDLE_H
#define VB_CORE_HANDLE_H

#include "core/core.h"

/* A handle that no other object of this kind in the process has. Never 0. */
static inline uint32_t vb_handle_next(_Atomic uint32_t *last)
{
	uint32_t n = atomic_fetch_add(last, 1) + 1;

	return n ? n : vb_handle_next(last);
}

/* The context and handle at the time of this call. */
#define VB_MADE(public) ((struct vb_made){(public).context, (public).handle})
/* Not used on the data path: posting and polling do not check. */
#define VB_IS_SOUND(object, public) \
	((object)->public.handle == (object)->made.handle && (object)->public.context == (object)->made.context)

/* Frees a destroyed object after a delay, so that a program that still uses its address gets an error. made is the
 * object's own field. */
void vb_object_free(void *object, struct vb_made *made);

static inline bool vb_pd_is_sound(const struct ibv_pd *pd)
{
	return VB_IS_SOUND((const struct vb_pd *)pd, pd);
}

static inline bool vb_mr_is_sound(const struct ibv_mr *mr)
{
	return VB_IS_SOUND((const struct vb_mr *)mr, mr);
}

static inline bool vb_ah_is_sound(const struct ibv_ah *ah)
{
	return VB_IS_SOUND((const struct vb_ah *)ah, ah);
}

static inline bool vb_cq_is_sound(const struct ibv_cq *cq)
{
	return VB_IS_SOUND((const struct vb_cq *)cq, cq);
}

static inline bool vb_srq_is_sound(const struct ibv_srq *srq)
{
	return VB_IS_SOUND((const struct vb_srq *)srq, srq);
}

/* A queue pair's number is its index in the tables. */
static inline bool vb_qp_is_sound(const struct ibv_qp *qp)
{
	return VB_IS_SOUND((const struct vb_qp *)qp, qp) && qp->qp_num == qp->handle;
}

#endif
