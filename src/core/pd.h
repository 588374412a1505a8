// pd.h - protection domains, thread domains
// follows: IBA volume 1, 10.2.3 (protection domains); ibv_alloc_parent_domain(3)
// SPDX-License-Identifier: MIT
#ifndef VB_CORE_PD_H
#define VB_CORE_PD_H

#include "core/core.h"

struct vb_td {
	struct ibv_td td;
	struct vb_made made; /* no handle */
	atomic_int users;    /* parent domains */
};

/* An object of the domain has ended. No spin lock held. */
void vb_pd_drop(struct vb_pd *pd);

/* The id by which a region and a queue pair are compared. A parent domain has the id of its protection domain. */
static inline uint32_t vb_pd_id(const struct vb_pd *pd)
{
	return pd->id;
}

#endif
