// ops.c - the two tables of functions that inline verbs jump through: no entry is ever null
// follows: infiniband/verbs.h (struct verbs_context, struct ibv_context_ops)
// SPDX-License-Identifier: MIT
#include <errno.h>

#include "abi/abi.h"
#include "core/device.h"
#include "fault/set.h"

/* Operations that this adapter does not support (yet). Each fails by the convention of its kind. */
#define NO_INT(name, params)        \
	static int no_##name params \
	{                           \
		return EOPNOTSUPP;  \
	}
#define NO_PTR(type, name, params)   \
	static type no_##name params \
	{                            \
		errno = EOPNOTSUPP;  \
		return NULL;         \
	}

NO_INT(modify_flow_action_esp, (struct ibv_flow_action * action, struct ibv_flow_action_esp_attr *attr))
NO_INT(destroy_flow_action, (struct ibv_flow_action * action))
NO_PTR(struct ibv_flow_action *, create_flow_action_esp,
       (struct ibv_context * c, struct ibv_flow_action_esp_attr *attr))

/*
 * Until 2018 the _compat_ entries were the verbs, with the arguments of that time; now the library exports functions.
 * No program is known to call these entries, but they must not be null.
 */
static struct ibv_mr *old_reg_mr(struct ibv_pd *pd, void *addr, size_t length, int access)
{
	return vb_abi_reg_mr(pd, addr, length, access);
}

static struct ibv_cq *old_create_cq(struct ibv_context *context, int cqe, struct ibv_comp_channel *channel, int vector)
{
	return vb_create_cq(context, cqe, NULL, channel, vector);
}

static void old_cq_event(struct ibv_cq *cq)
{
}

static void old_async_event(struct ibv_async_event *event)
{
}

#define OLD(function) ((void *(*)(void))(void (*)(void))(function))

static const struct ibv_context_ops context_ops = {
        ._compat_query_device = vb_query_device,
        ._compat_query_port = vb_query_port,
        ._compat_alloc_pd = OLD(vb_alloc_pd),
        ._compat_dealloc_pd = OLD(vb_dealloc_pd),
        ._compat_reg_mr = OLD(old_reg_mr),
        ._compat_rereg_mr = OLD(vb_abi_rereg_mr),
        ._compat_dereg_mr = OLD(vb_dereg_mr),
        .alloc_mw = vb_alloc_mw,
        .bind_mw = vb_bind_mw,
        .dealloc_mw = vb_dealloc_mw,
        ._compat_create_cq = OLD(old_create_cq),
        .poll_cq = vb_poll_cq,
        .req_notify_cq = vb_req_notify_cq,
        ._compat_cq_event = OLD(old_cq_event),
        ._compat_resize_cq = OLD(vb_resize_cq),
        ._compat_destroy_cq = OLD(vb_destroy_cq),
        ._compat_create_srq = OLD(vb_create_srq),
        ._compat_modify_srq = OLD(vb_modify_srq),
        ._compat_query_srq = OLD(vb_query_srq),
        ._compat_destroy_srq = OLD(vb_destroy_srq),
        .post_srq_recv = vb_post_srq_recv,
        ._compat_create_qp = OLD(vb_create_qp),
        ._compat_query_qp = OLD(vb_query_qp),
        ._compat_modify_qp = OLD(vb_modify_qp),
        ._compat_destroy_qp = OLD(vb_destroy_qp),
        .post_send = vb_post_send,
        .post_recv = vb_post_recv,
        ._compat_create_ah = OLD(vb_create_ah),
        ._compat_destroy_ah = OLD(vb_destroy_ah),
        ._compat_attach_mcast = OLD(vb_attach_mcast),
        ._compat_detach_mcast = OLD(vb_detach_mcast),
        ._compat_async_event = OLD(old_async_event),
};

static const struct verbs_context verbs_ops = {
        .query_port = vb_query_port_sized,
        .advise_mr = vb_advise_mr,
        .alloc_null_mr = vb_alloc_null_mr,
        .read_counters = vb_read_counters,
        .attach_counters_point_flow = vb_attach_counters_point_flow,
        .create_counters = vb_create_counters,
        .destroy_counters = vb_destroy_counters,
        .reg_dm_mr = vb_reg_dm_mr,
        .alloc_dm = vb_alloc_dm,
        .free_dm = vb_free_dm,
        .modify_flow_action_esp = no_modify_flow_action_esp,
        .destroy_flow_action = no_destroy_flow_action,
        .create_flow_action_esp = no_create_flow_action_esp,
        .modify_qp_rate_limit = vb_modify_qp_rate_limit,
        .alloc_parent_domain = vb_alloc_parent_domain,
        .dealloc_td = vb_dealloc_td,
        .alloc_td = vb_alloc_td,
        .modify_cq = vb_modify_cq,
        .post_srq_ops = vb_post_srq_ops,
        .destroy_rwq_ind_table = vb_destroy_rwq_ind_table,
        .create_rwq_ind_table = vb_create_rwq_ind_table,
        .destroy_wq = vb_destroy_wq,
        .modify_wq = vb_modify_wq,
        .create_wq = vb_create_wq,
        .query_rt_values = vb_query_rt_values,
        .create_cq_ex = vb_create_cq_ex,
        .priv = (struct verbs_ex_private *)vb_priv_mark,
        .query_device_ex = vb_query_device_ex,
        .ibv_destroy_flow = vb_destroy_flow,
        .ibv_create_flow = vb_create_flow,
        /* Programs built against libibverbs 1.1.8 look for the flow calls here. */
        .ABI_placeholder2 = (void (*)(void))vb_destroy_flow,
        .ABI_placeholder1 = (void (*)(void))vb_create_flow,
        .open_qp = vb_open_qp,
        .create_qp_ex = vb_create_qp_ex,
        .get_srq_num = vb_get_srq_num,
        .create_srq_ex = vb_create_srq_ex,
        .open_xrcd = vb_open_xrcd,
        .close_xrcd = vb_close_xrcd,
        .sz = sizeof(struct verbs_context),
};

void vb_fill_ops(struct vb_context *ctx)
{
	/* Copies all but the ibv_context at the end, whose device, descriptors and mutex are already set. */
	__builtin_memcpy(&ctx->vctx, &verbs_ops, offsetof(struct verbs_context, context));
	ctx->vctx.context.ops = context_ops;
	ctx->vctx.context.abi_compat = __VERBS_ABI_IS_EXTENDED;
	vb_arm_ops(ctx);
}

/* --- fault injection --- */

static int faulty_post_send(struct ibv_qp *qp, struct ibv_send_wr *wr, struct ibv_send_wr **bad_wr)
{
	int err = vb_fault_ask_verb(VB_FAULT_POST_SEND, VB_CONTEXT_OF(vb_qp(qp))->dev->dev.name);

	if (!err)
		return vb_post_send(qp, wr, bad_wr);
	*bad_wr = wr;
	return err;
}

static int faulty_post_recv(struct ibv_qp *qp, struct ibv_recv_wr *wr, struct ibv_recv_wr **bad_wr)
{
	int err = vb_fault_ask_verb(VB_FAULT_POST_RECV, VB_CONTEXT_OF(vb_qp(qp))->dev->dev.name);

	if (!err)
		return vb_post_recv(qp, wr, bad_wr);
	*bad_wr = wr;
	return err;
}

static int faulty_post_srq_recv(struct ibv_srq *srq, struct ibv_recv_wr *wr, struct ibv_recv_wr **bad_wr)
{
	int err = vb_fault_ask_verb(VB_FAULT_POST_RECV, VB_CONTEXT_OF(vb_srq(srq))->dev->dev.name);

	if (!err)
		return vb_post_srq_recv(srq, wr, bad_wr);
	*bad_wr = wr;
	return err;
}

void vb_arm_ops(struct vb_context *ctx)
{
	struct ibv_context_ops *ops = &ctx->vctx.context.ops;
	bool armed = vb_fault_is_armed(VB_FAULT_ARM_VERB);
	bool receives = vb_fault_is_armed(VB_FAULT_ARM_RECV);

	/* programs read these at any time */
	__atomic_store_n(&ops->post_send, armed ? faulty_post_send : vb_post_send, __ATOMIC_RELAXED);
	__atomic_store_n(&ops->post_recv, armed ? faulty_post_recv : vb_post_recv, __ATOMIC_RELAXED);
	__atomic_store_n(&ops->poll_cq, receives ? vb_poll_cq_faulty : vb_poll_cq, __ATOMIC_RELAXED);
	__atomic_store_n(&ops->post_srq_recv, armed ? faulty_post_srq_recv : vb_post_srq_recv, __ATOMIC_RELAXED);
}
