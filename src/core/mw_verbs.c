// mw_verbs.c - memory windows: allocated, freed, and bound by work requests
// follows: ibv_alloc_mw(3), ibv_bind_mw(3), ibv_post_send(3); IBA volume 1, 11.2.8, 11.4.1
// SPDX-License-Identifier: MIT
#include <errno.h>
#include <stdlib.h>

#include "core/context.h"
#include "core/handle.h"
#include "core/mw.h"
#include "core/sq.h"
#include "core/verbs.h"

#define ACCESS_KNOWN                                                                                            \
	(IBV_ACCESS_LOCAL_WRITE | IBV_ACCESS_REMOTE_WRITE | IBV_ACCESS_REMOTE_READ | IBV_ACCESS_REMOTE_ATOMIC | \
	 IBV_ACCESS_ZERO_BASED | IBV_ACCESS_MW_BIND | IBV_ACCESS_OPTIONAL_RANGE)

/* Takes a key whose upper 24 bits, which do not change by the binds of type 2, are not 0: no such key is 0. Under
 * mr_lock. */
static int window_key(struct vb_keys *keys, uint32_t *key, uint32_t *entry)
{
	int err = vb_key_take(keys, key, entry);

	while (!err && !(*key >> 8))
		err = vb_key_change(keys, key);
	return err;
}

static struct vb_mw *mw_new(struct ibv_pd *pd, enum ibv_mw_type type)
{
	struct vb_node *node = vb_ctx(pd->context)->node;
	struct vb_mw *mw = calloc(1, sizeof(*mw));
	uint32_t entry;

	if (!mw)
		return NULL;
	mw->mw = (struct ibv_mw){.context = pd->context, .pd = pd, .type = type};
	vb_mutex_lock(&node->mr_lock, VB_RANK_MR);
	if (node->mr_count + node->mw_count >= VB_MAX_MW || window_key(node->keys, &mw->mw.rkey, &entry)) {
		vb_mutex_unlock(&node->mr_lock);
		free(mw);
		return NULL;
	}
	node->mw_count++;
	vb_mw_enter(node, entry, mw->mw.rkey, vb_pd_id(vb_pd(pd)), type);
	vb_mutex_unlock(&node->mr_lock);
	mw->mw.handle = entry + 1;
	mw->made = VB_MADE(mw->mw);
	return mw;
}

struct ibv_mw *vb_alloc_mw(struct ibv_pd *pd, enum ibv_mw_type type)
{
	if (!vb_pd_is_sound(pd) || (type != IBV_MW_TYPE_1 && type != IBV_MW_TYPE_2)) {
		errno = EINVAL;
		return NULL;
	}
	struct vb_mw *mw = mw_new(pd, type);

	if (!mw) {
		errno = ENOMEM;
		return NULL;
	}
	atomic_fetch_add(&vb_pd(pd)->users, 1);
	return &mw->mw;
}

int vb_dealloc_mw(struct ibv_mw *ibmw)
{
	struct vb_mw *mw = vb_mw(ibmw);

	if (!vb_mw_is_sound(ibmw))
		return ENOENT;
	struct vb_node *node = vb_ctx(ibmw->context)->node;
	uint32_t key = vb_mw_leave(node, ibmw->handle - 1);

	vb_mutex_lock(&node->mr_lock, VB_RANK_MR);
	vb_key_give_back(node->keys, key);
	node->mw_count--;
	vb_mutex_unlock(&node->mr_lock);
	vb_pd_drop(vb_pd(ibmw->pd));
	vb_object_free(mw, &mw->made);
	return 0;
}

/* The window is named by its key, because it may be freed before the request is executed. The first place for an sge
 * takes what has no room in the request: the region's key, and the rights. */
int vb_mw_fill(struct vb_qp *qp, struct vb_swqe *w, enum ibv_mw_type type, const struct ibv_mw *mw, uint32_t rkey,
               const struct ibv_mw_bind_info *info)
{
	struct ibv_sge *sge = &qp->ssge[(size_t)(w - qp->swqe) * qp->sq_max_sge];

	if (!mw || mw->type != type || (info->mw_access_flags & ~(unsigned)ACCESS_KNOWN))
		return EINVAL;
	w->imm = mw->rkey;
	w->rkey = rkey;
	w->remote_addr = info->addr;
	w->compare_add = info->length;
	w->swap = 0;
	w->num_sge = 0;
	w->flags &= (uint8_t)~IBV_SEND_INLINE;
	sge->lkey = info->mr ? info->mr->lkey : 0;
	sge->length = info->mw_access_flags;
	return 0;
}

/* Appends the request. Under sq_lock. */
static int post_bind(struct vb_qp *qp, struct ibv_mw *mw, uint32_t rkey, const struct ibv_mw_bind *bind)
{
	if (!(vb_wr_lookup(IBV_WR_BIND_MW)->qp_types & VB_QPT_BIT(qp->type)))
		return EINVAL;
	if (!vb_sq_has_room(qp, qp->sq_head))
		return ENOMEM;
	struct vb_swqe *w = vb_sq_at(qp, qp->sq_head);

	w->wr_id = bind->wr_id;
	w->opcode = IBV_WR_BIND_MW;
	w->flags = (uint8_t)((bind->send_flags & VB_SEND_FLAGS) | qp->sq_flags);
	w->slot = w->data_written = 0;
	int err = vb_mw_fill(qp, w, IBV_MW_TYPE_1, mw, rkey, &bind->bind_info);

	if (!err)
		vb_sq_append(qp, w, 0);
	return err;
}

/* Checks what ibv_bind_mw checks, too, for programs that call the table's entry. Type 1 has no zero-based windows
 * (o10-36.2.2). */
static int check_bind(struct ibv_mw *mw, const struct ibv_mw_bind_info *info)
{
	if (!vb_mw_is_sound(mw) || mw->type != IBV_MW_TYPE_1 || (!info->mr && (info->addr || info->length)) ||
	    (info->mw_access_flags & IBV_ACCESS_ZERO_BASED))
		return EINVAL;
	if (info->mr && info->mr->pd != mw->pd)
		return EPERM;
	return 0;
}

int vb_bind_mw(struct ibv_qp *ibqp, struct ibv_mw *mw, struct ibv_mw_bind *bind)
{
	struct vb_qp *qp = vb_qp(ibqp);
	struct vb_node *node = qp->node;
	int err = check_bind(mw, &bind->bind_info);
	uint32_t rkey = mw->rkey;

	if (err)
		return err;
	vb_mutex_lock(&node->mr_lock, VB_RANK_MR);
	err = vb_key_change(node->keys, &rkey);
	vb_mutex_unlock(&node->mr_lock);
	if (err)
		return err;
	bool is_ex = qp->is_ex;

	if (is_ex)
		vb_lock(&qp->wr_lock);
	vb_lock(&qp->sq_lock);
	uint8_t state = atomic_load_explicit(&qp->state, memory_order_relaxed);

	err = vb_sq_accepts(state) ? post_bind(qp, mw, rkey, bind) : EINVAL;
	if (!err)
		mw->rkey = rkey;
	vb_sq_submit(qp, state);
	if (is_ex)
		vb_unlock(&qp->wr_lock);
	return err;
}
