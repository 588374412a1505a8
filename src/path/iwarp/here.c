// here.c - what librdmacm asks about iWARP devices and their queue pairs: for connections within this host
// see: path/iwarp/cm.h
// SPDX-License-Identifier: MIT
#include <errno.h>
#include <string.h>

#include "core/context.h"
#include "core/netif.h"
#include "core/qp.h"
#include "core/verbs.h"
#include "path/iwarp/exchange.h"
#include "path/wire_mode.h"

#define EXPORT __attribute__((visibility("default")))

struct vb_qp *vb_iwcm_hold_qp(struct vb_node *node, uint32_t qpn)
{
	struct vb_qp *qp = vb_qp_hold_number(node, qpn);

	if (!qp || vb_qp_is_iwarp(qp))
		return qp;
	vb_qp_drop(qp);
	return NULL;
}

EXPORT bool vb_iwcm_here(void)
{
	return vb_wire_mode() != VB_WIRE_MODE_ALWAYS;
}

EXPORT bool vb_iwcm_address(struct ibv_context *ctx, const uint8_t gid[16], uint32_t *ifindex)
{
	struct vb_device *dev = vb_ctx(ctx)->dev;
	struct vb_netdev nd;

	if (!dev->iwarp)
		return false;
	vb_device_netdev(dev, &nd);
	for (size_t i = 0; i < nd.n_addrs; i++)
		if (!memcmp(nd.addrs[i], gid, 16)) {
			*ifindex = (uint32_t)nd.ifindex;
			return true;
		}
	return false;
}

EXPORT int vb_iwcm_modify_here(struct ibv_context *ctx, uint32_t qpn, const struct ibv_qp_attr *attr, int mask)
{
	struct vb_qp *qp = vb_iwcm_hold_qp(vb_ctx(ctx)->node, qpn);
	int err = qp ? vb_modify_qp_here(qp, attr, mask) : EINVAL;

	if (qp)
		vb_qp_drop(qp);
	return err;
}
