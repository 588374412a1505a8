// verbs.h - the verbs, as abi/ calls them with a Verbena object
// follows: the ibv_* man page of the same name (arguments, errno); IBA volume 1, chapter 11
// SPDX-License-Identifier: MIT
#ifndef VB_CORE_VERBS_H
#define VB_CORE_VERBS_H

#include "core/core.h"

/* Each has the arguments, result and errno of the ibv_ call of the same name, unless its comment says otherwise. */
struct ibv_context *vb_open_device(struct ibv_device *device); /* vb_fill_ops() fills the context's tables */
/* Opens the device of a descriptor that vb_share_read accepts (core/share.h). The context owns the descriptor. */
struct ibv_context *vb_import_device(struct ibv_device *device, int cmd_fd);
int vb_close_device(struct ibv_context *context);
int vb_get_async_event(struct ibv_context *context, struct ibv_async_event *event);
void vb_ack_async_event(struct ibv_async_event *event);

struct ibv_pd *vb_alloc_pd(struct ibv_context *context);
int vb_dealloc_pd(struct ibv_pd *pd);
struct ibv_mr *vb_reg_mr(struct ibv_pd *pd, void *addr, size_t length, uint64_t iova, unsigned access);
int vb_rereg_mr(struct ibv_mr *mr, int flags, struct ibv_pd *pd, void *addr, size_t length,
                int access); /* errno > 0 or 0; abi/ maps to IBV_REREG_MR_ERR_* */
int vb_dereg_mr(struct ibv_mr *mr);
struct ibv_mr *vb_reg_dmabuf_mr(struct ibv_pd *pd, uint64_t offset, size_t length, uint64_t iova, int fd, int access);
struct ibv_mr *vb_alloc_null_mr(struct ibv_pd *pd);
int vb_advise_mr(struct ibv_pd *pd, enum ibv_advise_mr_advice advice, uint32_t flags, struct ibv_sge *sges, uint32_t n);
struct ibv_dm *vb_alloc_dm(struct ibv_context *context, struct ibv_alloc_dm_attr *attr);
int vb_free_dm(struct ibv_dm *dm);
struct ibv_dm *vb_import_dm(struct ibv_context *context, uint32_t handle);
void vb_unimport_dm(struct ibv_dm *dm);
struct ibv_mr *vb_reg_dm_mr(struct ibv_pd *pd, struct ibv_dm *dm, uint64_t offset, size_t length, unsigned access);

struct ibv_pd *vb_import_pd(struct ibv_context *context, uint32_t handle);
void vb_unimport_pd(struct ibv_pd *pd);
struct ibv_mr *vb_import_mr(struct ibv_pd *pd, uint32_t handle);
void vb_unimport_mr(struct ibv_mr *mr);

struct ibv_mw *vb_alloc_mw(struct ibv_pd *pd, enum ibv_mw_type type);
int vb_dealloc_mw(struct ibv_mw *mw);
int vb_bind_mw(struct ibv_qp *qp, struct ibv_mw *mw, struct ibv_mw_bind *bind);

struct ibv_ah *vb_create_ah(struct ibv_pd *pd, struct ibv_ah_attr *attr);
int vb_destroy_ah(struct ibv_ah *ah);
int vb_init_ah_from_wc(struct ibv_context *context, uint8_t port_num, struct ibv_wc *wc, struct ibv_grh *grh,
                       struct ibv_ah_attr *attr);

struct ibv_comp_channel *vb_create_comp_channel(struct ibv_context *context);
int vb_destroy_comp_channel(struct ibv_comp_channel *channel);
struct ibv_cq *vb_create_cq(struct ibv_context *context, int cqe, void *cq_context, struct ibv_comp_channel *channel,
                            int comp_vector);
struct ibv_cq_ex *vb_create_cq_ex(struct ibv_context *context, struct ibv_cq_init_attr_ex *attr);
int vb_resize_cq(struct ibv_cq *cq, int cqe);
int vb_modify_cq(struct ibv_cq *cq, struct ibv_modify_cq_attr *attr);
int vb_destroy_cq(struct ibv_cq *cq);
int vb_get_cq_event(struct ibv_comp_channel *channel, struct ibv_cq **cq, void **cq_context);
void vb_ack_cq_events(struct ibv_cq *cq, unsigned int nevents);
int vb_poll_cq(struct ibv_cq *cq, int num_entries, struct ibv_wc *wc);
int vb_req_notify_cq(struct ibv_cq *cq, int solicited_only);

struct ibv_srq *vb_create_srq(struct ibv_pd *pd, struct ibv_srq_init_attr *attr);
struct ibv_srq *vb_create_srq_ex(struct ibv_context *context, struct ibv_srq_init_attr_ex *attr);
int vb_modify_srq(struct ibv_srq *srq, struct ibv_srq_attr *attr, int mask);
int vb_query_srq(struct ibv_srq *srq, struct ibv_srq_attr *attr);
int vb_destroy_srq(struct ibv_srq *srq);
int vb_post_srq_recv(struct ibv_srq *srq, struct ibv_recv_wr *wr, struct ibv_recv_wr **bad_wr);

int vb_post_srq_ops(struct ibv_srq *srq, struct ibv_ops_wr *wr, struct ibv_ops_wr **bad_wr);

int vb_get_srq_num(struct ibv_srq *srq, uint32_t *number);
struct ibv_xrcd *vb_open_xrcd(struct ibv_context *context, struct ibv_xrcd_init_attr *attr);
int vb_close_xrcd(struct ibv_xrcd *xrcd);
/* Of another process's target, too (node/xrc_opener.c). */
struct ibv_qp *vb_open_qp(struct ibv_context *context, struct ibv_qp_open_attr *attr);

struct ibv_qp *vb_create_qp(struct ibv_pd *pd, struct ibv_qp_init_attr *attr);
struct ibv_qp *vb_create_qp_ex(struct ibv_context *context, struct ibv_qp_init_attr_ex *attr);
int vb_modify_qp(struct ibv_qp *qp, struct ibv_qp_attr *attr, int mask);
int vb_modify_qp_rate_limit(struct ibv_qp *qp, struct ibv_qp_rate_limit_attr *limit);
/* For an RC queue pair of an iWARP device whose peer is a program of this host. Like vb_modify_qp of a RoCE device,
 * except that only ah_attr.grh.dgid of the address vector is used: an address of that program. EHOSTUNREACH: the
 * program cannot be met. */
int vb_modify_qp_here(struct vb_qp *qp, const struct ibv_qp_attr *attr, int mask);
int vb_query_qp(struct ibv_qp *qp, struct ibv_qp_attr *attr, int mask, struct ibv_qp_init_attr *init);
/* For librdmacm. Has the queue pair of this process with this number, in a state that receives, received anything since it
 * was in RTR? What a peer on the same host has copied itself moves no PSN, and is not noticed. */
bool vb_qp_has_heard(struct ibv_context *context, uint32_t qpn);
int vb_destroy_qp(struct ibv_qp *qp);
struct ibv_qp_ex *vb_qp_to_qp_ex(struct ibv_qp *qp); /* NULL with EOPNOTSUPP unless made with send_ops_flags */
int vb_post_send(struct ibv_qp *qp, struct ibv_send_wr *wr, struct ibv_send_wr **bad_wr);
int vb_post_recv(struct ibv_qp *qp, struct ibv_recv_wr *wr, struct ibv_recv_wr **bad_wr);
int vb_attach_mcast(struct ibv_qp *qp, const union ibv_gid *gid, uint16_t lid);
int vb_detach_mcast(struct ibv_qp *qp, const union ibv_gid *gid, uint16_t lid);

int vb_query_rt_values(struct ibv_context *context, struct ibv_values_ex *values);
struct ibv_pd *vb_alloc_parent_domain(struct ibv_context *context, struct ibv_parent_domain_init_attr *attr);
struct ibv_td *vb_alloc_td(struct ibv_context *context, struct ibv_td_init_attr *attr);
int vb_dealloc_td(struct ibv_td *td);

/* vb_poll_cq, in which the rules of fault injection are asked about receives. */
int vb_poll_cq_faulty(struct ibv_cq *cq, int n, struct ibv_wc *wc);

/* Fills every pointer of both tables (abi/ops.c). Calls that are not supported return EOPNOTSUPP. */
void vb_fill_ops(struct vb_context *ctx);
/* The rules of fault injection have changed: post_send and post_recv ask them, or do not. */
void vb_arm_ops(struct vb_context *ctx);
/* The same for extended completion queues. Under node->ctx_lock. cq_ex.c */
void vb_cq_arm_all(struct vb_node *node);

struct ibv_flow *vb_create_flow(struct ibv_qp *qp, struct ibv_flow_attr *attr);
int vb_destroy_flow(struct ibv_flow *flow);
struct ibv_counters *vb_create_counters(struct ibv_context *context, struct ibv_counters_init_attr *attr);
int vb_destroy_counters(struct ibv_counters *counters);
int vb_attach_counters_point_flow(struct ibv_counters *counters, struct ibv_counter_attach_attr *attr,
                                  struct ibv_flow *flow);
int vb_read_counters(struct ibv_counters *counters, uint64_t *values, uint32_t n, uint32_t flags);

/* rdma-core 59. attr: struct vb_dmah_init_attr (core/dmah.h). */
struct vb_dmah;
struct vb_dmah *vb_alloc_dmah(struct ibv_context *context, void *attr);
int vb_dealloc_dmah(struct vb_dmah *dmah);

/* rdma-core 65. attr: struct vb_comp_cntr_init_attr, struct vb_comp_cntr_attach_attr (core/cntr.h). */
struct vb_comp_cntr;
struct vb_comp_cntr *vb_create_comp_cntr(struct ibv_context *context, void *attr);
int vb_destroy_comp_cntr(struct vb_comp_cntr *cntr);
int vb_qp_attach_comp_cntr(struct ibv_qp *qp, struct vb_comp_cntr *cntr, void *attr);
int vb_set_comp_cntr(struct vb_comp_cntr *cntr, uint64_t value);
int vb_set_err_comp_cntr(struct vb_comp_cntr *cntr, uint64_t value);
int vb_inc_comp_cntr(struct vb_comp_cntr *cntr, uint64_t amount);
int vb_inc_err_comp_cntr(struct vb_comp_cntr *cntr, uint64_t amount);
int vb_read_comp_cntr(struct vb_comp_cntr *cntr, uint64_t *value);
int vb_read_err_comp_cntr(struct vb_comp_cntr *cntr, uint64_t *value);

struct ibv_wq *vb_create_wq(struct ibv_context *context, struct ibv_wq_init_attr *attr);
int vb_modify_wq(struct ibv_wq *wq, struct ibv_wq_attr *attr);
int vb_destroy_wq(struct ibv_wq *wq);
struct ibv_rwq_ind_table *vb_create_rwq_ind_table(struct ibv_context *context,
                                                  struct ibv_rwq_ind_table_init_attr *attr);
int vb_destroy_rwq_ind_table(struct ibv_rwq_ind_table *table);

#endif
