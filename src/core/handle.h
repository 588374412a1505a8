// handle.h - checks that an object is valid: programs can write to its public part, and use it after its destruction
// follows: the uverbs commands of Linux: use of an invalid object gives EINVAL, its destruction ENOENT
// SPDX-License-Identifier: MIT
#ifndef VB_CORE_HANDLE_H
#define VB_CORE_HANDLE_H

#include "core/core.h"
#include "core/pd.h"

/* A handle that is unique among the objects of one kind in this process. Never 0. */
static inline uint32_t vb_handle_next(_Atomic uint32_t *last)
{
	uint32_t n = atomic_fetch_add(last, 1) + 1;

	return n ? n : vb_handle_next(last);
}

/* Copies context and handle of a new object. */
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

static inline bool vb_mw_is_sound(const struct ibv_mw *mw)
{
	return VB_IS_SOUND((const struct vb_mw *)mw, mw);
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

/* Completion channels and thread domains have no handle. */
static inline bool vb_channel_is_sound(const struct ibv_comp_channel *ch)
{
	return ch->context == ((const struct vb_channel *)ch)->made.context;
}

static inline bool vb_td_is_sound(const struct ibv_td *td)
{
	return td->context == ((const struct vb_td *)td)->made.context;
}

/* A queue pair's number is its index in the tables. */
static inline bool vb_qp_is_sound(const struct ibv_qp *qp)
{
	return VB_IS_SOUND((const struct vb_qp *)qp, qp) && qp->qp_num == qp->handle;
}

#endif
