// mw.h - memory windows: bound to a part of a region by a work request, until another ends that
// follows: IBA volume 1, 10.6 (memory windows of type 1 and 2B); RFC 5040, 8.1; ibv_alloc_mw(3), ibv_bind_mw(3)
// SPDX-License-Identifier: MIT
#ifndef VB_CORE_MW_H
#define VB_CORE_MW_H

#include "core/key.h"
#include "core/node.h"

/*
 * A window takes an entry of the table of keys, as a region does. While it is bound, the entry names memory of the region
 * and the queue pair that may use it (type 2) or all those of the protection domain (type 1). Its pd is 0, so no local key
 * opens it.
 *
 * A binding ends by LOCAL_INV or by the peer's SEND_WITH_INV (type 2), by the next bind (type 1), by ibv_dealloc_mw, or
 * with the queue pair that made it (type 2). First the key is cleared. From then on the binding fades: another thread or
 * process may have looked the key up before, and be copying. The owner of progress finds out that nobody is
 * (vb_mw_settle): its own responders run under node->progress, which it holds, and other processes announce their copies
 * as hazards. Only then LOCAL_INV and the next bind complete, and ibv_dealloc_mw and ibv_dereg_mr return. The receive of a
 * SEND_WITH_INV completes at once: the peer's writes before it are done, because requests of a queue pair are executed
 * in order.
 */

enum vb_mw_result {
	VB_MW_FAILED, /* IBV_WC_MW_BIND_ERR */
	VB_MW_DONE,
	VB_MW_LATER, /* to be called again: vb_mw_settle kicks the queue pair then */
};

static inline struct vb_window *vb_mw_of_entry(const struct vb_node *node, const struct vb_mr_shared *entry)
{
	return &node->keys->windows[entry - vb_seg_mr(node->seg, 0)];
}

/* Is it a window's key, bound or not? No spin lock of a higher rank held. */
bool vb_mw_has_key(struct vb_node *node, uint32_t key);
/* Executes a LOCAL_INV, of a region or of a window, or a BIND_MW. All requests before it must be done. Under sq_lock. */
enum vb_mw_result vb_mw_execute(struct vb_qp *qp, struct vb_swqe *w);
/* The queue pair has an error, and this is its oldest request. If it has ended a binding before, and nobody copies with that
 * key any more, it is executed to its end. Returns true if it has succeeded. Under progress + sq_lock. */
bool vb_mw_finish(struct vb_qp *qp, struct vb_swqe *w);
/* Invalidates the key that a peer's SEND_WITH_INV names, of a region or of a window. 0 or an errno: a remote access error
 * (IBA 9.4.1.1.3). Under progress. */
int vb_mw_invalidate_sent(struct vb_qp *qp, uint32_t rkey);
/* Looks which bindings have faded, and continues the queue pairs that wait for that. Called while VB_ATTEND_WINDOWS is set.
 * Under progress, no sq_lock. */
void vb_mw_settle(struct vb_node *node);
/* A queue pair ends: it waits for no window. Under progress. */
void vb_mw_forget(struct vb_qp *qp);
/* Ends the bindings that a queue pair has made. Peers must have stopped to write for it. No lock held. */
void vb_mw_unbind(struct vb_qp *qp);

/* Waits until no binding to the region of this entry fades. No spin lock held. */
void vb_mw_await_region(struct vb_node *node, struct vb_mr_shared *entry);
/* Clears the key of a region: vb_mr_rewrite_begin. EBUSY: a window is bound to it. EAGAIN: a binding to it fades, so that
 * vb_mw_await_region must come first. Under mr_lock. */
int vb_mw_close_region(struct vb_node *node, struct vb_mr_shared *entry);

/* Fills a request of the send queue, at its place there, that binds mw. rkey: the new key; of type 2 only the low byte
 * counts. Returns 0 or EINVAL: mw is not of this type, or there are unknown flags. Under sq_lock or wr_lock. mw_verbs.c */
int vb_mw_fill(struct vb_qp *qp, struct vb_swqe *w, enum ibv_mw_type type, const struct ibv_mw *mw, uint32_t rkey,
               const struct ibv_mw_bind_info *info);

/* For mw_verbs.c: makes the entry a window's, or no window's any more, when its binding has faded. Under mr_lock. */
void vb_mw_enter(struct vb_node *node, uint32_t entry, uint32_t key, uint32_t pd_id, enum ibv_mw_type type);
/* Returns the key of the window, whose place may be reused. No spin lock held. */
uint32_t vb_mw_leave(struct vb_node *node, uint32_t entry);

#endif
