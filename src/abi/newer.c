// newer.c - calls that rdma-core 59 to 65 added and this adapter does not support yet
// follows: ibv_alloc_dmah(3), ibv_dm_export_dmabuf_fd(3), ibv_create_comp_cntr(3)
// SPDX-License-Identifier: MIT
#include "abi/newer.h"

#include <errno.h>

#include "abi/abi.h"
#include "abi/real.h"

struct vb_dmah *vb_alloc_dmah(struct ibv_context *context, void *attr)
{
	errno = EOPNOTSUPP;
	return NULL;
}

int vb_dealloc_dmah(struct vb_dmah *dmah)
{
	return EOPNOTSUPP;
}

int vb_dm_export_dmabuf_fd(struct ibv_dm *dm)
{
	errno = EOPNOTSUPP;
	return -1;
}

VB_EXPORT int _ibv_query_comp_cntr_caps(struct ibv_context *context, void *caps, size_t size);
int _ibv_query_comp_cntr_caps(struct ibv_context *context, void *caps, size_t size)
{
	if (vb_owner_of_context(context) == VB_OWNER_REAL && vb_real.query_comp_cntr_caps)
		return vb_real.query_comp_cntr_caps(context, caps, size);
	return EOPNOTSUPP;
}

struct vb_comp_cntr *vb_create_comp_cntr(struct ibv_context *context, void *attr)
{
	errno = EOPNOTSUPP;
	return NULL;
}

int vb_destroy_comp_cntr(struct vb_comp_cntr *cntr)
{
	return EOPNOTSUPP;
}

int vb_qp_attach_comp_cntr(struct ibv_qp *qp, struct vb_comp_cntr *cntr, void *attr)
{
	return EOPNOTSUPP;
}

int vb_set_comp_cntr(struct vb_comp_cntr *cntr, uint64_t value)
{
	return EOPNOTSUPP;
}

int vb_set_err_comp_cntr(struct vb_comp_cntr *cntr, uint64_t value)
{
	return EOPNOTSUPP;
}

int vb_inc_comp_cntr(struct vb_comp_cntr *cntr, uint64_t amount)
{
	return EOPNOTSUPP;
}

int vb_inc_err_comp_cntr(struct vb_comp_cntr *cntr, uint64_t amount)
{
	return EOPNOTSUPP;
}

int vb_read_comp_cntr(struct vb_comp_cntr *cntr, uint64_t *value)
{
	return EOPNOTSUPP;
}

int vb_read_err_comp_cntr(struct vb_comp_cntr *cntr, uint64_t *value)
{
	return EOPNOTSUPP;
}
