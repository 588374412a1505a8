// ah.c - address handles
// follows: IBA volume 1, 11.2.2 (address handle); Annex A17.9 (RoCEv2 verbs); ibv_create_ah(3)
// SPDX-License-Identifier: MIT
#include "core/ah.h"

#include <errno.h>
#include <stdatomic.h>
#include <stdlib.h>
#include <string.h>

#include "core/context.h"
#include "core/device.h"
#include "core/handle.h"
#include "core/lid.h"
#include "core/node.h"
#include "core/verbs.h"
#include "util/log.h"

static bool is_v4(const union ibv_gid *gid)
{
	static const uint8_t prefix[12] = {[10] = 0xff, [11] = 0xff};

	return !memcmp(gid->raw, prefix, sizeof(prefix));
}

static bool dgid_plausible(const union ibv_gid *dgid)
{
	static const uint8_t nothing[4];

	return !vb_gid_is_zero(dgid) && !(is_v4(dgid) && !memcmp(dgid->raw + 12, nothing, 4));
}

/* The program knows LIDs only, which RoCE has not. A LID cannot be given to it now: it has asked for its own, and sent
 * that to its peer. */
static void report_no_route(struct vb_device *dev, const struct ibv_ah_attr *av)
{
	static atomic_bool said;

	if (atomic_exchange(&said, true))
		return;
	if (dev->lids)
		vb_log(VB_LOG_ERROR,
		       "%s: no address in the subnet of its first IPv4 address has the LID %u: both ends need VERBENA_LIDS=1 "
		       "and addresses of one subnet",
		       dev->dev.name, av->dlid);
	else
		vb_log(VB_LOG_ERROR,
		       "%s: an address without a GRH was refused, because RoCE has no LIDs: give the program the index of a GID "
		       "(often -g or -x; verbena devices lists them), or set VERBENA_LIDS=1 at both ends",
		       dev->dev.name);
}

static bool ah_has_route(struct vb_device *dev, struct ibv_ah_attr *av)
{
	if (av->is_global || !vb_lid_route(dev, av))
		return true;
	report_no_route(dev, av);
	return false;
}

int vb_ah_check(struct vb_context *ctx, const struct ibv_ah_attr *attr, struct ibv_ah_attr *whole, union ibv_gid *sgid)
{
	struct ibv_ah_attr av = *attr;
	const union ibv_gid *dgid = &av.grh.dgid;
	struct ibv_gid_entry entry;

	if (ctx->dev->ib) {
		if (whole)
			*whole = av;
		return vb_ib_check_av(ctx->dev, attr, sgid);
	}
	if (av.port_num != 1 || !ah_has_route(ctx->dev, &av) || !dgid_plausible(dgid))
		return EINVAL;
	if (vb_query_gid_entry(ctx->dev, 1, av.grh.sgid_index, &entry))
		return EINVAL;
	if (dgid->raw[0] != 0xff && is_v4(dgid) != is_v4(&entry.gid)) /* source and destination: one IP version */
		return EINVAL;
	if (whole)
		*whole = av;
	if (sgid)
		*sgid = entry.gid;
	return 0;
}

struct ibv_ah *vb_create_ah(struct ibv_pd *pd, struct ibv_ah_attr *attr)
{
	static _Atomic uint32_t last;
	struct vb_context *ctx = vb_ctx(pd->context);
	struct ibv_ah_attr whole;
	union ibv_gid sgid;
	int err = !vb_pd_is_sound(pd)           ? EINVAL
	          : vb_device_rc_only(ctx->dev) ? EOPNOTSUPP
	                                        : vb_ah_check(ctx, attr, &whole, &sgid);

	if (!err)
		err = vb_context_fault(ctx, VB_FAULT_CREATE_AH);
	struct vb_ah *ah = err ? NULL : calloc(1, sizeof(*ah));

	if (ah && atomic_fetch_add(&ctx->node->ah_count, 1) >= VB_MAX_AH) {
		atomic_fetch_sub(&ctx->node->ah_count, 1);
		free(ah);
		ah = NULL;
	}
	if (!ah) {
		errno = err ? err : ENOMEM;
		return NULL;
	}
	ah->ah.context = pd->context;
	ah->ah.pd = pd;
	ah->ah.handle = vb_handle_next(&last);
	ah->made = VB_MADE(ah->ah);
	ah->attr = whole;
	ah->sgid = sgid;
	ah->met = whole.grh.dgid;
	atomic_fetch_add(&vb_pd(pd)->users, 1);
	vb_path_ah_made(ah);
	return &ah->ah;
}

int vb_destroy_ah(struct ibv_ah *ibah)
{
	if (!vb_ah_is_sound(ibah))
		return ENOENT;
	atomic_fetch_sub(&vb_ctx(ibah->context)->node->ah_count, 1);
	vb_path_ah_ends(vb_ah(ibah));
	vb_pd_drop(vb_pd(ibah->pd));
	vb_object_free(vb_ah(ibah), &vb_ah(ibah)->made);
	return 0;
}
