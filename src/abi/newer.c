// newer.c - calls that rdma-core 59 to 65 added: exports of device memory are not supported
// follows: ibv_dm_export_dmabuf_fd(3), ibv_query_comp_cntr_caps(3)
// SPDX-License-Identifier: MIT
#include "abi/newer.h"

#include <errno.h>
#include <string.h>

#include "abi/abi.h"
#include "abi/real.h"
#include "core/cntr.h"

int vb_dm_export_dmabuf_fd(struct ibv_dm *dm)
{
	errno = EOPNOTSUPP;
	return -1;
}

/* The program's struct may be longer, or shorter. */
VB_EXPORT int _ibv_query_comp_cntr_caps(struct ibv_context *context, void *caps, size_t size);
int _ibv_query_comp_cntr_caps(struct ibv_context *context, void *caps, size_t size)
{
	struct vb_comp_cntr_caps ours;

	if (vb_owner_of_context(context) == VB_OWNER_REAL)
		return vb_real.query_comp_cntr_caps ? vb_real.query_comp_cntr_caps(context, caps, size) : EOPNOTSUPP;
	if (!context || !caps)
		return EINVAL;
	vb_query_comp_cntr_caps(&ours);
	memset(caps, 0, size);
	memcpy(caps, &ours, size < sizeof(ours) ? size : sizeof(ours));
	return 0;
}
