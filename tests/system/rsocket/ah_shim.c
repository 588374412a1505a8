// ah_shim.c - lets rdma-core's datagram rsockets start on RoCE: their first address handle lacks the GRH that RoCE
// needs
// SPDX-License-Identifier: MIT
#include <dlfcn.h>
#include <infiniband/verbs.h>

__attribute__((visibility("default"))) struct ibv_ah *ibv_create_ah(struct ibv_pd *pd, struct ibv_ah_attr *attr)
{
	struct ibv_ah *(*real)(struct ibv_pd *, struct ibv_ah_attr *);
	struct ibv_ah_attr full = *attr;

	real = (struct ibv_ah * (*)(struct ibv_pd *, struct ibv_ah_attr *)) dlsym(RTLD_NEXT, "ibv_create_ah");
	if (!attr->is_global) { /* an address handle to itself */
		full.is_global = 1;
		full.grh.sgid_index = 1;
		full.grh.hop_limit = 64;
		ibv_query_gid(pd->context, attr->port_num, 1, &full.grh.dgid);
	}
	return real(pd, &full);
}
