// mw.c - memory windows: bind, invalidate, and the end of bindings
// follows: IBA volume 1, 10.6 (C10-72 to C10-75, o10-36.2.2, o10-37.2.26, o10-37.2.30, o10-37.2.40)
// SPDX-License-Identifier: MIT
#include "core/mw.h"

#include <errno.h>
#include <string.h>
#include <time.h>

#include "core/mr.h"
#include "core/pd.h"
#include "core/sq.h"
#include "util/log.h"

#define ACCESS_REMOTE (IBV_ACCESS_REMOTE_WRITE | IBV_ACCESS_REMOTE_READ | IBV_ACCESS_REMOTE_ATOMIC)
#define ACCESS_STORES (IBV_ACCESS_REMOTE_WRITE | IBV_ACCESS_REMOTE_ATOMIC)
#define PAUSE_NS 50000   /* between two looks whether a binding has faded */
#define SCAN_PIECE 1024u /* entries that are looked at under the lock at a time */

/* --- entries --- */

static uint32_t index_of(const struct vb_node *node, const struct vb_window *t)
{
	return (uint32_t)(t - node->keys->windows);
}

static struct vb_mr_shared *entry_of(const struct vb_node *node, const struct vb_window *t)
{
	return vb_seg_mr(node->seg, index_of(node, t));
}

/* The window whose keys have the slot of this key, or NULL. */
static struct vb_window *window_of(const struct vb_node *node, uint32_t key)
{
	struct vb_window *t = vb_mw_of_entry(node, vb_seg_mr_of(node->seg, key));

	return t->key && VB_KEY_SLOT(t->key) == VB_KEY_SLOT(key) ? t : NULL;
}

static void rewrite_end(struct vb_mr_shared *e, uint32_t key)
{
	atomic_store_explicit(&e->key, key, memory_order_release);
	atomic_fetch_add(&e->seq, 1);
}

/* --- the end of a binding --- */

/* Nobody copies with the ended key any more: the window is not bound. */
static void fade_end(struct vb_node *node, struct vb_window *t)
{
	if (t->qpn) {
		struct vb_qp *qp = atomic_load_explicit(&node->qps[VB_QP_INDEX(t->qpn)], memory_order_relaxed);

		if (qp && qp->qp.qp_num == t->qpn && qp->mw_bound)
			qp->mw_bound--;
	}
	node->keys->windows[t->region - 1].windows--;
	t->ended = t->region = t->qpn = t->next = 0;
}

/* Ends the binding of a window. alone: the responders of this process are not writing with the key, and will not; then
 * the binding has faded at once if no other process copies. Returns false if it fades from now on. */
static bool fade_begin(struct vb_node *node, struct vb_window *t, bool alone)
{
	struct vb_mr_shared *e = entry_of(node, t);

	t->ended = atomic_load_explicit(&e->key, memory_order_relaxed);
	t->grace = 0;
	vb_mr_rewrite_begin(e);
	rewrite_end(e, 0);
	if (alone && !vb_copies_stand(node, t->ended, &t->grace)) {
		fade_end(node, t);
		return true;
	}
	t->next = node->mw_fading;
	node->mw_fading = index_of(node, t) + 1;
	atomic_fetch_or(&node->attention, VB_ATTEND_WINDOWS);
	vb_timer_armed(node);
	return false;
}

/* Takes faded windows out of the list. Under progress. */
static void fade_sweep(struct vb_node *node)
{
	vb_lock(&node->mw_lock);
	for (uint32_t *at = &node->mw_fading; *at;) {
		struct vb_window *t = &node->keys->windows[*at - 1];

		if (vb_copies_stand(node, t->ended, &t->grace)) {
			at = &t->next;
			continue;
		}
		*at = t->next;
		fade_end(node, t);
	}
	vb_unlock(&node->mw_lock);
}

/* --- queue pairs that wait for that --- */

/* Adds the queue pair to the end of the list, once. */
static void waiter_add(struct vb_node *node, struct vb_qp *qp)
{
	struct vb_qp **at = &node->mw_waiters;

	if (qp->mw_waits)
		return;
	while (*at)
		at = &(*at)->mw_next;
	*at = qp;
	qp->mw_next = NULL;
	qp->mw_waits = true;
}

static struct vb_qp *waiter_take(struct vb_node *node)
{
	vb_lock(&node->mw_lock);
	struct vb_qp *qp = node->mw_waiters;

	if (qp) {
		node->mw_waiters = qp->mw_next;
		qp->mw_waits = false;
	}
	vb_unlock(&node->mw_lock);
	return qp;
}

static unsigned waiter_count(struct vb_node *node)
{
	unsigned n = 0;

	vb_lock(&node->mw_lock);
	for (struct vb_qp *qp = node->mw_waiters; qp; qp = qp->mw_next)
		n++;
	vb_unlock(&node->mw_lock);
	return n;
}

/* Executes the request that has waited, and those behind it. It may wait again. Under progress. */
static void go_on(struct vb_qp *qp)
{
	vb_lock(&qp->sq_lock);
	uint8_t state = atomic_load_explicit(&qp->state, memory_order_relaxed);
	/* in SQD the networks' engines finish what they have begun, and begin nothing */
	bool may_kick = state == IBV_QPS_RTS || (state == IBV_QPS_SQD && !qp->path->ring);

	if (may_kick && qp->path->kick(qp) == VB_SQ_FAILED)
		qp->path->settle(qp);
	vb_qp_check_drained(qp);
	vb_unlock(&qp->sq_lock);
}

void vb_mw_settle(struct vb_node *node)
{
	struct vb_qp *qp;

	atomic_store_explicit(&node->mw_settler, vb_self(), memory_order_relaxed);
	fade_sweep(node);
	for (unsigned n = waiter_count(node); n && (qp = waiter_take(node)); n--)
		go_on(qp);
	atomic_store_explicit(&node->mw_settler, 0, memory_order_relaxed);
	vb_lock(&node->mw_lock);
	if (!node->mw_fading && !node->mw_waiters)
		atomic_fetch_and(&node->attention, (uint8_t)~VB_ATTEND_WINDOWS);
	vb_unlock(&node->mw_lock);
}

void vb_mw_forget(struct vb_qp *qp)
{
	struct vb_node *node = qp->node;

	vb_lock(&node->mw_lock);
	for (struct vb_qp **at = &node->mw_waiters; *at; at = &(*at)->mw_next) {
		if (*at != qp)
			continue;
		*at = qp->mw_next;
		qp->mw_waits = false;
		break;
	}
	vb_unlock(&node->mw_lock);
}

/* --- bind --- */

static bool is_in_reach(const struct vb_mr_shared *m, uint64_t addr, uint64_t length)
{
	uint64_t all = atomic_load_explicit(&m->length, memory_order_relaxed);
	uint64_t start = atomic_load_explicit(&m->iova, memory_order_relaxed);

	return addr >= start && length <= all && addr - start <= all - length;
}

/* The entry of the region that the request names, if the window may be bound to it. */
static struct vb_mr_shared *region_to_bind(const struct vb_qp *qp, const struct vb_swqe *w, const struct ibv_sge *sge)
{
	struct vb_mr_shared *m = vb_seg_mr_of(qp->node->seg, sge->lkey);
	uint32_t access;

	if (!sge->lkey || atomic_load_explicit(&m->key, memory_order_acquire) != sge->lkey ||
	    atomic_load_explicit(&m->pd, memory_order_relaxed) != vb_pd_id(qp->pd)) /* C10-72 */
		return NULL;
	access = atomic_load_explicit(&m->access, memory_order_relaxed); /* after the key, which is written last */
	if (!(access & IBV_ACCESS_MW_BIND) || (access & IBV_ACCESS_ZERO_BASED)) /* C10-73; like rxe and mlx5 */
		return NULL;
	if ((sge->length & ACCESS_STORES) && !(access & IBV_ACCESS_LOCAL_WRITE)) /* C10-74 */
		return NULL;
	return is_in_reach(m, w->remote_addr, w->compare_add) ? m : NULL; /* C10-75 */
}

/* Writes the window's entry. */
static void window_open(struct vb_qp *qp, struct vb_window *t, struct vb_mr_shared *m, const struct vb_swqe *w,
                        uint32_t access)
{
	struct vb_node *node = qp->node;
	struct vb_mr_shared *e = entry_of(node, t);
	uint64_t into = w->remote_addr - atomic_load_explicit(&m->iova, memory_order_relaxed);

	t->region = (uint32_t)(m - vb_seg_mr(node->seg, 0)) + 1;
	vb_mw_of_entry(node, m)->windows++;
	t->qpn = t->type == IBV_MW_TYPE_2 ? qp->qp.qp_num : 0;
	qp->mw_bound += t->type == IBV_MW_TYPE_2;
	vb_mr_rewrite_begin(e);
	atomic_store_explicit(&e->access, access & ACCESS_REMOTE, memory_order_relaxed);
	atomic_store_explicit(&e->pd, 0, memory_order_relaxed);
	atomic_store_explicit(&e->map_id, 0, memory_order_relaxed);
	atomic_store_explicit(&e->window, (uint64_t)t->pd << 32 | t->qpn, memory_order_relaxed);
	atomic_store_explicit(&e->device, atomic_load_explicit(&m->device, memory_order_relaxed), memory_order_relaxed);
	atomic_store_explicit(&e->iova, access & IBV_ACCESS_ZERO_BASED ? 0 : w->remote_addr, memory_order_relaxed);
	atomic_store_explicit(&e->length, w->compare_add, memory_order_relaxed);
	atomic_store_explicit(&e->addr, atomic_load_explicit(&m->addr, memory_order_relaxed) + into,
	                      memory_order_relaxed);
	rewrite_end(e, t->key);
}

/* May this request bind the window? Of type 2 it must not be bound (o10-37.2.30), nor may it be unbound in this way
 * (o10-37.2.40). */
static bool may_bind(const struct vb_qp *qp, const struct vb_window *t, const struct vb_swqe *w)
{
	if (t->pd != vb_pd_id(qp->pd)) /* C10-72 */
		return false;
	return t->type == IBV_MW_TYPE_1 || (!t->region && w->compare_add && !((t->key ^ w->imm) >> 8));
}

static enum vb_mw_result bind_window(struct vb_qp *qp, struct vb_swqe *w, bool alone)
{
	struct vb_node *node = qp->node;
	const struct ibv_sge *sge = &qp->ssge[(size_t)(w - qp->swqe) * qp->sq_max_sge];
	struct vb_window *t = window_of(node, w->imm);
	struct vb_mr_shared *m = NULL;

	if (t && t->ended && t->pd == vb_pd_id(qp->pd))
		return VB_MW_LATER;
	if (!t || !may_bind(qp, t, w))
		return VB_MW_FAILED;
	if (w->compare_add) {
		m = region_to_bind(qp, w, sge);
		if (!m)
			return VB_MW_FAILED; /* type 1: the binding stays as it is */
	}
	if (t->region && !fade_begin(node, t, alone)) {
		w->data_written = 1;
		return VB_MW_LATER;
	}
	t->key = t->type == IBV_MW_TYPE_1 ? w->rkey : (t->key & ~0xffu) | (w->rkey & 0xff);
	if (m)
		window_open(qp, t, m, w, sge->length);
	return VB_MW_DONE;
}

/* --- invalidate --- */

/* May this queue pair invalidate the window? Only type 2 (o10-37.2.26), while this queue pair has it bound. */
static bool may_invalidate(const struct vb_qp *qp, const struct vb_window *t, uint32_t key)
{
	return t->type == IBV_MW_TYPE_2 && t->pd == vb_pd_id(qp->pd) && t->qpn == qp->qp.qp_num && !t->ended &&
	       atomic_load_explicit(&entry_of(qp->node, t)->key, memory_order_relaxed) == key;
}

static enum vb_mw_result invalidate_local(struct vb_qp *qp, struct vb_swqe *w, bool alone)
{
	struct vb_window *t = window_of(qp->node, w->imm);

	if (w->data_written) /* it is not the first call */
		return t && t->ended == w->imm ? VB_MW_LATER : VB_MW_DONE;
	if (!t)
		return vb_mr_invalidate(qp->node, vb_pd_id(qp->pd), w->imm, false) ? VB_MW_FAILED : VB_MW_DONE;
	if (!may_invalidate(qp, t, w->imm))
		return VB_MW_FAILED;
	/* what a network's peer writes with this key is written under this sq_lock */
	if (fade_begin(qp->node, t, alone || !qp->path->ring))
		return VB_MW_DONE;
	w->data_written = 1;
	return VB_MW_LATER;
}

/* If no thread makes progress, none of our responders is writing, and the binding can be looked at here. */
enum vb_mw_result vb_mw_execute(struct vb_qp *qp, struct vb_swqe *w)
{
	struct vb_node *node = qp->node;
	bool settles = atomic_load_explicit(&node->mw_settler, memory_order_relaxed) == vb_self();
	bool taken = !settles && vb_trylock(&node->progress), alone = settles || taken;

	vb_lock(&node->mw_lock);
	enum vb_mw_result r = w->opcode == IBV_WR_BIND_MW ? bind_window(qp, w, alone) : invalidate_local(qp, w, alone);

	if (r == VB_MW_LATER)
		waiter_add(node, qp);
	vb_unlock(&node->mw_lock);
	if (taken)
		vb_unlock(&node->progress);
	return r;
}

bool vb_mw_finish(struct vb_qp *qp, struct vb_swqe *w)
{
	struct vb_node *node = qp->node;

	if ((w->opcode != IBV_WR_LOCAL_INV && w->opcode != IBV_WR_BIND_MW) || !w->data_written)
		return false;
	fade_sweep(node);
	vb_lock(&node->mw_lock);
	enum vb_mw_result r = w->opcode == IBV_WR_BIND_MW ? bind_window(qp, w, true) : invalidate_local(qp, w, true);

	vb_unlock(&node->mw_lock);
	return r == VB_MW_DONE;
}

int vb_mw_invalidate_sent(struct vb_qp *qp, uint32_t rkey)
{
	struct vb_node *node = qp->node;
	int err = 0;

	vb_lock(&node->mw_lock);
	struct vb_window *t = window_of(node, rkey);

	if (!t)
		err = vb_mr_invalidate(node, vb_pd_id(qp->pd), rkey, true);
	else if (!may_invalidate(qp, t, rkey))
		err = EACCES;
	else
		fade_begin(node, t, true); /* under progress */
	struct vb_window is = t ? *t : (struct vb_window){0};

	vb_unlock(&node->mw_lock);
	if (__builtin_expect(err, 0))
		vb_log(VB_LOG_INFO,
		       "queue pair 0x%x: a peer cannot invalidate key 0x%x (a window's: key 0x%x, type %u, bound by 0x%x, ended 0x%x; of a region: %s)",
		       qp->qp.qp_num, rkey, is.key, is.type, is.qpn, is.ended, strerror(err));
	return err;
}

/* --- the ends of queue pairs, regions and windows --- */

/* The bindings of this queue pair among some entries. */
static void unbind_some(const struct vb_qp *qp, uint32_t from, uint32_t end)
{
	struct vb_node *node = qp->node;

	vb_lock(&node->mw_lock);
	for (uint32_t i = from; i < end; i++) {
		struct vb_window *t = &node->keys->windows[i];

		if (!t->key || !t->region || t->qpn != qp->qp.qp_num)
			continue;
		t->qpn = 0; /* another queue pair may get the number before the binding has faded */
		if (!t->ended)
			fade_begin(node, t, false);
	}
	vb_unlock(&node->mw_lock);
}

void vb_mw_unbind(struct vb_qp *qp)
{
	if (!qp->mw_bound)
		return;
	for (uint32_t i = 0; i < VB_SEG_MRS; i += SCAN_PIECE)
		unbind_some(qp, i, i + SCAN_PIECE);
}

/* Looks, and waits a moment if the binding still fades. */
static void look_again(struct vb_node *node, bool again)
{
	const struct timespec ts = {0, PAUSE_NS};

	VB_MAY_WAIT();
	if (again)
		nanosleep(&ts, NULL);
	vb_lock(&node->progress);
	vb_mw_settle(node);
	vb_unlock(&node->progress);
}

/* Does a binding to the region fade? Under mw_lock. */
static bool has_fading(const struct vb_node *node, const struct vb_mr_shared *e)
{
	uint32_t region = (uint32_t)(e - vb_seg_mr(node->seg, 0)) + 1;
	bool fades = false;

	for (uint32_t i = node->mw_fading; i && !fades; i = node->keys->windows[i - 1].next)
		fades = node->keys->windows[i - 1].region == region;
	return fades;
}

static bool region_fades(struct vb_node *node, const struct vb_mr_shared *e)
{
	vb_lock(&node->mw_lock);
	bool fades = has_fading(node, e);

	vb_unlock(&node->mw_lock);
	return fades;
}

void vb_mw_await_region(struct vb_node *node, struct vb_mr_shared *e)
{
	for (bool again = false; region_fades(node, e); again = true)
		look_again(node, again);
}

int vb_mw_close_region(struct vb_node *node, struct vb_mr_shared *e)
{
	vb_lock(&node->mw_lock);
	int err = !vb_mw_of_entry(node, e)->windows ? 0 : has_fading(node, e) ? EAGAIN : EBUSY;

	if (!err)
		vb_mr_rewrite_begin(e);
	vb_unlock(&node->mw_lock);
	return err;
}

void vb_mw_enter(struct vb_node *node, uint32_t entry, uint32_t key, uint32_t pd_id, enum ibv_mw_type type)
{
	vb_lock(&node->mw_lock);
	node->keys->windows[entry] = (struct vb_window){.key = key, .pd = pd_id, .type = (uint8_t)type};
	vb_unlock(&node->mw_lock);
}

bool vb_mw_has_key(struct vb_node *node, uint32_t key)
{
	vb_lock(&node->mw_lock);
	const struct vb_window *t = window_of(node, key);
	bool has = t && t->key == key;

	vb_unlock(&node->mw_lock);
	return has;
}

/* Ends its binding, if there is one, and forgets the window. Returns its key; 0 while the binding fades. */
static uint32_t window_close(struct vb_node *node, struct vb_window *t)
{
	uint32_t key = 0;

	vb_lock(&node->mw_lock);
	if (t->region && !t->ended)
		fade_begin(node, t, false);
	if (!t->region) {
		key = t->key;
		*t = (struct vb_window){0}; /* at once: a bind that is still in a queue must not find it */
	}
	vb_unlock(&node->mw_lock);
	return key;
}

uint32_t vb_mw_leave(struct vb_node *node, uint32_t entry)
{
	struct vb_window *t = &node->keys->windows[entry];
	uint32_t key;

	for (bool again = false; !(key = window_close(node, t)); again = true)
		look_again(node, again);
	return key;
}
