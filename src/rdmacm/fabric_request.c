// fabric_request.c - requests of peers on an InfiniBand fabric: which listener they fit, their paths and addresses
// follows: IBA volume 1, 12.6.5 (REQ), 12.7.11 to 12.7.24 (paths in REQ); annex A11 (RDMA IP CM service)
// SPDX-License-Identifier: MIT
#include "frame/fields.h"
#include "rdmacm/fabric.h"

enum { EXACT_IP = 4, NO_HEADER = 3, ANY_IP = 2, UNUSED_HEADER = 1 };

/* An AF_IB listener takes requests without the addresses of annex A11. Those with them may be its own private data. */
int rcm_fabric_fits(const struct rcm_id *listener, const struct vb_cma *hdr)
{
	uint8_t own[16];
	union rcm_addr to;

	if (listener->kind == RCM_IWARP || (listener->source.dev && !listener->source.dev->fabric) ||
	    !listener->fabric_binding)
		return 0;
	if (listener->src.sa.sa_family == AF_IB)
		return hdr ? UNUSED_HEADER : NO_HEADER;
	if (!hdr)
		return 0;
	if (listener->source.dev) {
		rcm_addr_gid(&listener->src, own);
		return memcmp(own, hdr->dst, sizeof(own)) ? 0 : EXACT_IP;
	}
	rcm_addr_from_gid(&to, hdr->dst, 0, 0);
	return listener->src.sa.sa_family == to.sa.sa_family ||
	                       (listener->src.sa.sa_family == AF_INET6 && !listener->afonly)
	               ? ANY_IP
	               : 0;
}

/* As rcm_admit says: so that no peer can direct our packets to a third host. */
bool rcm_fabric_path_is_honest(const struct vb_cm_addr *from, const struct vb_cm_req *req)
{
	return req->primary.local_lid == rcm_fabric_lid(from);
}

void rcm_fabric_take_path(struct rcm_id *id, const struct vb_cm_addr *from, const struct vb_cm_req *req)
{
	struct rcm_path *path = &id->path;

	id->by_fabric = true;
	path->dlid = rcm_fabric_lid(from);
	path->slid = from->ifindex >> 20 & 0x7f; /* the path bits, which is all that counts of it */
	path->pkey = (uint16_t)from->ifindex;
	path->sl = from->ifindex >> 16 & 15;
	path->hop_limit = 0;
	if (!req)
		return;
	path->pkey = req->pkey;
	path->sl = req->primary.sl;
	path->slid = req->primary.remote_lid;
	path->hop_limit = req->primary.subnet_local ? 0 : req->primary.hop_limit;
	memcpy(path->dgid.raw, req->primary.local_gid, sizeof(path->dgid));
}

void rcm_fabric_show(struct rcm_id *child, const struct rcm_id *listener, const struct vb_cm_req *req)
{
	child->src = listener->src;
	child->dst = (union rcm_addr){.sib = {.sib_family = AF_IB, .sib_pkey = htobe16(child->path.pkey)}};
	child->src.sib.sib_pkey = htobe16(child->path.pkey);
	memcpy(child->dst.sib.sib_addr.sib_raw, child->path.dgid.raw, 16);
	if (req)
		memcpy(child->src.sib.sib_addr.sib_raw, req->primary.remote_gid, 16);
}
