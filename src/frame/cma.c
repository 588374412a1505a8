// cma.c - the header of the RDMA IP CM service before private data, and its service ids
// follows: IBA annex A11 (RDMA IP CM service), A11.2 (service id), A11.3 (private data)
// SPDX-License-Identifier: MIT
#include "frame/cm.h"

/* MajV, MinV; IPV, resv4; source port; source address; destination address. IPv4 uses the last 4 of the 16 bytes. */
enum { CMA_VERSION = 0 };

static void to_gid(uint8_t gid[VB_GID_LEN], const uint8_t *at, bool ipv4)
{
	static const uint8_t mapped[12] = {[10] = 0xff, [11] = 0xff};

	memcpy(gid, at, VB_GID_LEN);
	if (ipv4)
		memcpy(gid, mapped, sizeof(mapped));
}

bool vb_cma_decode(struct vb_cma *cma, const uint8_t private_data[VB_CMA_LEN])
{
	struct vb_reader r = vb_reader(private_data, VB_CMA_LEN);
	uint8_t version = vb_get8(&r), ip = vb_get8(&r) >> 4;

	if (version != CMA_VERSION || (ip != 4 && ip != 6))
		return false;
	cma->src_port = vb_get16(&r);
	to_gid(cma->src, vb_take(&r, VB_GID_LEN), ip == 4);
	to_gid(cma->dst, vb_take(&r, VB_GID_LEN), ip == 4);
	return true;
}

static void put_address(struct vb_writer *w, const uint8_t gid[VB_GID_LEN], bool ipv4)
{
	size_t skip = ipv4 ? 12 : 0;

	vb_put_zeros(w, skip);
	vb_put_bytes(w, gid + skip, VB_GID_LEN - skip);
}

void vb_cma_encode(uint8_t private_data[VB_CMA_LEN], const struct vb_cma *cma)
{
	struct vb_writer w = vb_writer(private_data, VB_CMA_LEN);
	bool ipv4 = vb_gid_is_ipv4(cma->src) && vb_gid_is_ipv4(cma->dst);

	vb_put8(&w, CMA_VERSION);
	vb_put8(&w, ipv4 ? 0x40 : 0x60);
	vb_put16(&w, cma->src_port);
	put_address(&w, cma->src, ipv4);
	put_address(&w, cma->dst, ipv4);
}

bool vb_cm_service_port(uint64_t service_id, enum vb_port_space *ps, uint16_t *port)
{
	switch (service_id >> 16) {
	case VB_PS_IPOIB:
	case VB_PS_TCP:
	case VB_PS_UDP:
	case VB_PS_IB:
		*ps = (enum vb_port_space)(service_id >> 16);
		*port = (uint16_t)service_id;
		return true;
	default:
		return false;
	}
}
