// abi.h - functions of exported verbs that core/ does not have
// follows: the ibv_* man page of the same name
// SPDX-License-Identifier: MIT
#ifndef VB_ABI_ABI_H
#define VB_ABI_ABI_H

#include <errno.h>

#include "abi/dispatch.h"
#include "abi/newer.h"
#include "core/verbs.h"

/* A verb that returns an errno value also stores it in errno. Programs read it there, because in rdma-core most
 * failures are those of a system call. */
static inline int vb_told(int err)
{
	if (err)
		errno = err;
	return err;
}

/* The owner of an event's object. An event of a port or device needs no owner: OWNER_US. */
enum vb_owner vb_owner_of_event(const struct ibv_async_event *event);

__be64 vb_get_device_guid(struct ibv_device *device);
int vb_get_device_index(struct ibv_device *device);

int vb_query_device(struct ibv_context *context, struct ibv_device_attr *attr);
/* Writes size bytes: fields that are not known here are zero. EINVAL if not even the original attributes fit. */
int vb_query_device_ex(struct ibv_context *context, const struct ibv_query_device_ex_input *input,
                       struct ibv_device_attr_ex *attr, size_t size);
int vb_query_port(struct ibv_context *context, uint8_t port, struct _compat_ibv_port_attr *attr);
/* Writes size bytes of struct ibv_port_attr, which grew twice: 48 bytes at first, 52 in 44.0, 56 in 62. */
int vb_query_port_sized(struct ibv_context *context, uint8_t port, struct ibv_port_attr *attr, size_t size);
int vb_query_port_speed(struct ibv_context *context, uint32_t port, uint64_t *speed);
int vb_query_gid(struct ibv_context *context, uint8_t port, int index, union ibv_gid *gid);
int vb_query_gid_ex(struct ibv_context *context, uint32_t port, uint32_t index, struct ibv_gid_entry *entry,
                    uint32_t flags, size_t entry_size);
ssize_t vb_query_gid_table(struct ibv_context *context, struct ibv_gid_entry *entries, size_t max, uint32_t flags,
                           size_t entry_size);
int vb_query_gid_type(struct ibv_context *context, uint8_t port, unsigned int index, int *type);
int vb_query_pkey(struct ibv_context *context, uint8_t port, int index, __be16 *pkey);
int vb_get_pkey_index(struct ibv_context *context, uint8_t port, __be16 pkey);

/* The ibv_ calls of these names; vb_reg_mr and vb_rereg_mr are core's. */
struct ibv_mr *vb_abi_reg_mr(struct ibv_pd *pd, void *addr, size_t length, int access);
struct ibv_mr *vb_reg_mr_iova(struct ibv_pd *pd, void *addr, size_t length, uint64_t iova, int access);
struct ibv_mr *vb_reg_mr_iova2(struct ibv_pd *pd, void *addr, size_t length, uint64_t iova, unsigned int access);
struct ibv_mr *vb_reg_mr_ex(struct ibv_pd *pd, struct vb_mr_init_attr *attr);
struct ibv_mr *vb_reg_buf_mr(struct ibv_pd *pd, struct vb_buf *buf, void *addr, size_t length, int access);
int vb_abi_rereg_mr(struct ibv_mr *mr, int flags, struct ibv_pd *pd, void *addr, size_t length, int access);

int vb_query_qp_data_in_order(struct ibv_qp *qp, enum ibv_wr_opcode op, uint32_t flags);
int vb_set_ece(struct ibv_qp *qp, struct ibv_ece *ece);
int vb_query_ece(struct ibv_qp *qp, struct ibv_ece *ece);
struct ibv_ah *vb_create_ah_from_wc(struct ibv_pd *pd, struct ibv_wc *wc, struct ibv_grh *grh, uint8_t port);
/* Returns 0 or a negative errno value: EINVAL (no such source GID), EHOSTUNREACH (no route, or no answer). */
int vb_resolve_eth_l2_from_gid(struct ibv_context *context, struct ibv_ah_attr *attr, uint8_t mac[6], uint16_t *vid);

struct vb_dmah *vb_alloc_dmah(struct ibv_context *context, void *attr);
int vb_dealloc_dmah(struct vb_dmah *dmah);
int vb_dm_export_dmabuf_fd(struct ibv_dm *dm);
/* Is the region within the buffer that attr names, and of its protection domain? 0 or EINVAL. */
int vb_buf_check(struct ibv_pd *pd, const struct vb_mr_init_attr *attr);
void *vb_alloc_buf(struct ibv_pd *pd, size_t size, struct vb_buf **buf);
struct vb_comp_cntr *vb_create_comp_cntr(struct ibv_context *context, void *attr);
int vb_destroy_comp_cntr(struct vb_comp_cntr *cntr);
int vb_qp_attach_comp_cntr(struct ibv_qp *qp, struct vb_comp_cntr *cntr, void *attr);
int vb_set_comp_cntr(struct vb_comp_cntr *cntr, uint64_t value);
int vb_set_err_comp_cntr(struct vb_comp_cntr *cntr, uint64_t value);
int vb_inc_comp_cntr(struct vb_comp_cntr *cntr, uint64_t amount);
int vb_inc_err_comp_cntr(struct vb_comp_cntr *cntr, uint64_t amount);
int vb_read_comp_cntr(struct vb_comp_cntr *cntr, uint64_t *value);
int vb_read_err_comp_cntr(struct vb_comp_cntr *cntr, uint64_t *value);

/* The current context of a context of 2006 (compat10.h). */
struct ibv_context *vb_context_of_any_age(struct ibv_context *context);

/* The exported functions under internal names, for callers inside the library: vbx_alloc_pd is ibv_alloc_pd. */
#define PTR(node, type, name, owner, params, args) type vbx_##name params;
#define ERR(node, name, owner, params, args) int vbx_##name params;
#define NEG ERR
#define WAIT ERR
#define NEGERR ERR
#define ZERO PTR
#define VOID(node, name, owner, params, args) void vbx_##name params;
#include "abi/verbs.inc"
struct ibv_device **vbx_get_device_list(int *n);
void vbx_free_device_list(struct ibv_device **list);
const char *vbx_get_device_name(struct ibv_device *device);

#endif
