// ah.h - address vectors, as address handles and connected queue pairs carry them
// follows: IBA volume 1, 11.2.2 (address handle); Annex A17 (RoCEv2: every address has a GRH)
// SPDX-License-Identifier: MIT
#ifndef VB_CORE_AH_H
#define VB_CORE_AH_H

#include "core/core.h"

/* Returns 0, or EINVAL if the vector is unusable: it has neither a GRH nor a LID that replaces one (core/lid.h), port
 * or source GID do not exist, the destination is missing, or source and destination are of different IP versions.
 * *whole is the vector with a complete grh; *sgid is the GID at sgid_index. Both may be NULL. */
int vb_ah_check(struct vb_context *ctx, const struct ibv_ah_attr *attr, struct ibv_ah_attr *whole, union ibv_gid *sgid);

#endif
