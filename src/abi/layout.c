// layout.c - the layouts that programs were compiled with, pinned
// follows: infiniband/verbs.h, rdma/rdma_cma.h of rdma-core 44.0 to 56.1 on 64-bit machines
// SPDX-License-Identifier: MIT
#include <infiniband/verbs.h>
#include <rdma/rdma_cma.h>
#include <stddef.h>

#define SIZE(type, n) _Static_assert(sizeof(type) == (n), "size of " #type)
/* glibc's mutex is larger on aarch64, and these structures contain one each. */
#if defined(__aarch64__)
#define MUTEX 48
#else
#define MUTEX 40
#endif
/* A structure to which a later rdma-core has added its last field. */
#define GREW(type, n, later) _Static_assert(sizeof(type) == (n) || sizeof(type) == (later), "size of " #type)
#define AT(type, field, n) _Static_assert(offsetof(type, field) == (n), #type "." #field)

SIZE(struct ibv_device, 664);
AT(struct ibv_device, name, 24);
AT(struct ibv_device, dev_name, 88);
AT(struct ibv_device, dev_path, 152);
AT(struct ibv_device, ibdev_path, 408);
SIZE(struct ibv_context, 288 + MUTEX);
AT(struct ibv_context, ops.poll_cq, 96);
AT(struct ibv_context, ops.post_send, 208);
AT(struct ibv_context, ops.post_recv, 216);
AT(struct ibv_context, cmd_fd, 264);
AT(struct ibv_context, async_fd, 268);
AT(struct ibv_context, num_comp_vectors, 272);
AT(struct ibv_context, abi_compat, 280 + MUTEX);
SIZE(struct verbs_context, 608 + MUTEX);
AT(struct verbs_context, query_port, 0);
AT(struct verbs_context, sz, 312);
AT(struct verbs_context, context, 320);
SIZE(struct ibv_pd, 16);
SIZE(struct ibv_mr, 48);
SIZE(struct ibv_mw, 32);
SIZE(struct ibv_cq, 88 + MUTEX);
SIZE(struct ibv_cq_ex, 248 + MUTEX);
AT(struct ibv_cq_ex, start_poll, 104 + MUTEX);
SIZE(struct ibv_qp, 120 + MUTEX);
GREW(struct ibv_qp_ex, 312 + MUTEX, 320 + MUTEX); /* wr_flush */
AT(struct ibv_qp_ex, wr_start, 280 + MUTEX);
SIZE(struct ibv_srq, 88 + MUTEX);
SIZE(struct ibv_ah, 24);
SIZE(struct ibv_comp_channel, 16);
SIZE(struct ibv_wc, 48);
SIZE(struct ibv_send_wr, 128);
SIZE(struct ibv_recv_wr, 32);
SIZE(struct ibv_sge, 16);
GREW(struct ibv_port_attr, 52, 56); /* active_speed_ex */
AT(struct ibv_port_attr, port_cap_flags2, 48);
SIZE(struct ibv_device_attr, 232);
SIZE(struct ibv_device_attr_ex, 400);
SIZE(struct ibv_qp_attr, 144);
SIZE(struct ibv_qp_init_attr, 64);
SIZE(struct ibv_qp_init_attr_ex, 136);
SIZE(struct ibv_gid_entry, 32);
SIZE(struct ibv_async_event, 16);
SIZE(struct ibv_cq_init_attr_ex, 56);
SIZE(struct rdma_cm_id, 416);
AT(struct rdma_cm_id, verbs, 0);
AT(struct rdma_cm_id, qp, 24);
AT(struct rdma_cm_id, route, 32);
AT(struct rdma_cm_id, event, 352);
AT(struct rdma_cm_id, pd, 400);
AT(struct rdma_cm_id, qp_type, 408);
SIZE(struct rdma_cm_event, 80);
SIZE(struct rdma_event_channel, 4);
SIZE(struct rdma_addrinfo, 96);
SIZE(struct rdma_conn_param, 24);
SIZE(struct rdma_route, 312);
SIZE(struct rdma_addr, 296);
