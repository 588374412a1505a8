// ah.h - address vectors, as address handles and connected queue pairs carry them
// follows: IBA volume 1, 11.2.2 (address handle); Annex A17 (RoCEv2: a GRH, always)
// SPDX-License-Identifier: MIT
#ifndef VB_CORE_AH_H
#define VB_CORE_AH_H

#include "core/core.h"

/* 0, or EINVAL for a vector that no packet could be made from: no GRH (and no LID that stands for one: core/lid.h), no
 * such port or source GID, no destination, or source and destination of different IP families. *whole is the vector with
 * what packets need in its grh, *sgid what sgid_index names (both may be NULL). */
int vb_ah_check(struct vb_context *ctx, const struct ibv_ah_attr *attr, struct ibv_ah_attr *whole, union ibv_gid *sgid);

#endif
