// handle.h - is an object still the one that its handle names? Programs can write to the public part
// follows: the Linux uverbs commands, whose look-ups these stand for: EINVAL where an object is used, ENOENT where it is destroyed
// SPDX-License-Identifier: MIT
#ifndef VB_CORE_HANDLE_H
#define VB_CORE_HANDLE_H

#include "core/core.h"

/* A handle that nothing else of its kind in this process has; never 0. */
static inline uint32_t vb_handle_next(_Atomic uint32_t *last)
{
	uint32_t n = atomic_fetch_add(last, 1) + 1;

	return n ? n : vb_handle_next(last);
}

/* As they are when this is called. */
#define VB_MADE(public) ((struct vb_made){(public).context, (public).handle})
/* Not on the data path: who posts and polls is not asked. */
#define VB_IS_SOUND(object, public) \
	((object)->public.handle == (object)->made.handle && (object)->public.context == (object)->made.context)

/* Frees a destroyed object, later than at once: a program that still uses its address is refused. made: the object's own. */
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

/* Its number is its place in the tables. */
static inline bool vb_qp_is_sound(const struct ibv_qp *qp)
{
	return VB_IS_SOUND((const struct vb_qp *)qp, qp) && qp->qp_num == qp->handle;
}

#endif
