// rwq_table.c - indirection tables, and the queue pairs that distribute frames by them
// follows: ibv_create_rwq_ind_table(3), ibv_create_qp_ex(3)
// SPDX-License-Identifier: MIT
#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "core/handle.h"
#include "core/node.h"
#include "core/verbs.h"
#include "core/wq.h"

static struct vb_rwq_table *table_of(struct ibv_rwq_ind_table *table)
{
	return (struct vb_rwq_table *)table;
}

static bool table_is_sound(struct ibv_rwq_ind_table *table)
{
	const struct vb_rwq_table *t = table_of(table);

	return table->context == t->made.context && (uint32_t)table->ind_tbl_handle == t->made.handle;
}

/* --- tables --- */

static int check_entries(const struct ibv_context *context, const struct ibv_rwq_ind_table_init_attr *attr)
{
	if (attr->comp_mask >= IBV_CREATE_IND_TABLE_RESERVED || attr->log_ind_tbl_size > VB_MAX_LOG_RWQ_TABLE ||
	    !attr->ind_tbl)
		return EINVAL;
	for (uint32_t i = 0; i < 1u << attr->log_ind_tbl_size; i++)
		if (!attr->ind_tbl[i] || attr->ind_tbl[i]->context != context || !vb_wq_is_sound(attr->ind_tbl[i]))
			return EINVAL;
	return 0;
}

static struct vb_rwq_table *table_new(struct ibv_context *context, const struct ibv_rwq_ind_table_init_attr *attr)
{
	static _Atomic uint32_t last;
	uint32_t n = 1u << attr->log_ind_tbl_size;
	struct vb_rwq_table *t = calloc(1, sizeof(*t) + n * sizeof(t->wqs[0]));

	if (!t)
		return NULL;
	t->made = (struct vb_made){context, vb_handle_next(&last)};
	t->table.context = context;
	t->table.ind_tbl_handle = t->table.ind_tbl_num = (int)t->made.handle;
	t->mask = n - 1;
	for (uint32_t i = 0; i < n; i++) {
		t->wqs[i] = (struct vb_wq *)attr->ind_tbl[i];
		atomic_fetch_add(&t->wqs[i]->users, 1);
	}
	return t;
}

struct ibv_rwq_ind_table *vb_create_rwq_ind_table(struct ibv_context *context, struct ibv_rwq_ind_table_init_attr *attr)
{
	struct vb_node *node = vb_ctx(context)->node;
	int err = check_entries(context, attr);
	struct vb_rwq_table *t = NULL;

	if (!err && atomic_fetch_add(&node->rwq_table_count, 1) < VB_MAX_RWQ_TABLES)
		t = table_new(context, attr);
	if (t)
		return &t->table;
	if (!err)
		atomic_fetch_sub(&node->rwq_table_count, 1);
	errno = err ? err : ENOMEM;
	return NULL;
}

int vb_destroy_rwq_ind_table(struct ibv_rwq_ind_table *table)
{
	struct vb_rwq_table *t = table_of(table);

	if (!table_is_sound(table))
		return ENOENT;
	if (atomic_load(&t->users))
		return EBUSY;
	for (uint32_t i = 0; i <= t->mask; i++)
		atomic_fetch_sub(&t->wqs[i]->users, 1);
	atomic_fetch_sub(&vb_ctx(table->context)->node->rwq_table_count, 1);
	vb_object_free(t, &t->made);
	return 0;
}

/* --- queue pairs --- */

/* Such a queue pair only receives, and not by a queue of its own. */
int vb_rss_check(const struct ibv_context *context, const struct ibv_qp_init_attr_ex *a)
{
	const uint32_t both = IBV_QP_INIT_ATTR_IND_TABLE | IBV_QP_INIT_ATTR_RX_HASH;
	struct vb_rss_hash hash;

	if ((a->comp_mask & both) != both || !a->rwq_ind_tbl || a->rwq_ind_tbl->context != context ||
	    !table_is_sound(a->rwq_ind_tbl))
		return EINVAL;
	if (a->srq || a->cap.max_recv_wr || a->cap.max_recv_sge)
		return EINVAL;
	if (a->cap.max_send_wr || a->cap.max_send_sge || a->cap.max_inline_data ||
	    (a->comp_mask & IBV_QP_INIT_ATTR_SEND_OPS_FLAGS))
		return EOPNOTSUPP;
	int err = vb_rss_parse(&a->rx_hash_conf, &hash);

	if (err)
		return err;
	return (hash.fields & ~(uint32_t)IBV_RX_HASH_INNER) || !table_of(a->rwq_ind_tbl)->mask
	               ? 0
	               : EINVAL; /* nothing to distribute by */
}

int vb_rss_open(struct vb_qp *qp, const struct ibv_qp_init_attr_ex *attr)
{
	struct vb_rss *rss = calloc(1, sizeof(*rss));

	if (!rss)
		return ENOMEM;
	int err = vb_rss_parse(&attr->rx_hash_conf, &rss->hash);

	if (err) {
		free(rss);
		return err;
	}
	rss->table = table_of(attr->rwq_ind_tbl);
	atomic_fetch_add(&rss->table->users, 1);
	qp->rss = rss;
	qp->cap = (struct ibv_qp_cap){0};
	qp->sq_max_wr = qp->rq.max_wr = 0;
	return 0;
}

void vb_rss_close(struct vb_qp *qp)
{
	if (!qp->rss)
		return;
	atomic_fetch_sub(&qp->rss->table->users, 1);
	free(qp->rss);
	qp->rss = NULL;
}

bool vb_rss_take(const struct vb_qp *qp, struct vb_arrival *a)
{
	const struct vb_rwq_table *t = qp->rss->table;
	union vb_frame_fields fields;
	uint16_t layers = qp->rss->hash.fields & (uint32_t)IBV_RX_HASH_INNER
	                          ? vb_frame_dissect_inner(a->frame, a->len, &fields)
	                          : vb_frame_dissect(a->frame, a->len, &fields);

	return vb_wq_take(t->wqs[vb_rss_hash_of(&qp->rss->hash, &fields, layers) & t->mask], a);
}
