// queue_pair.c - the calls for queue pairs and address handles that core/ does not implement
// follows: ibv_query_qp_data_in_order(3), ibv_set_ece(3), ibv_create_ah_from_wc(3)
// SPDX-License-Identifier: MIT
#include <errno.h>

#include "abi/abi.h"
#include "abi/port.h"
#include "core/handle.h"

/* No: the data is stored by memcpy and process_vm_writev, of which only the last bytes are ordered. */
int vb_query_qp_data_in_order(struct ibv_qp *qp, enum ibv_wr_opcode op, uint32_t flags)
{
	return 0;
}

/* Enhanced connection establishment negotiates a vendor's private options. This adapter has none: of any options that the
 * peer offers, it accepts 0. Options of another vendor are invalid. */
int vb_set_ece(struct ibv_qp *qp, struct ibv_ece *ece)
{
	if (!vb_qp_is_sound(qp) || !ece)
		return EINVAL;
	if (!ece->vendor_id) /* as rdma-core: the peer has no such options */
		return EOPNOTSUPP;
	if (ece->comp_mask || ece->vendor_id != VB_VENDOR_ID)
		return EINVAL;
	ece->options = 0;
	return 0;
}

int vb_query_ece(struct ibv_qp *qp, struct ibv_ece *ece)
{
	if (!vb_qp_is_sound(qp) || !ece)
		return EINVAL;
	*ece = (struct ibv_ece){.vendor_id = VB_VENDOR_ID};
	return 0;
}

struct ibv_ah *vb_create_ah_from_wc(struct ibv_pd *pd, struct ibv_wc *wc, struct ibv_grh *grh, uint8_t port)
{
	struct ibv_ah_attr attr;

	if (vb_init_ah_from_wc(pd->context, port, wc, grh, &attr))
		return NULL;
	return vb_create_ah(pd, &attr);
}

bool vb_queue_pair_has_heard(struct ibv_context *context, uint32_t qpn)
{
	return vb_qp_has_heard(context, qpn);
}
