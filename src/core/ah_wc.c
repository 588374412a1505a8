// ah_wc.c - the address vector that answers a received datagram
// follows: IBA Annex A17.4.5.1 (the 40 bytes before a datagram); ibv_init_ah_from_wc(3)
// SPDX-License-Identifier: MIT
#include <arpa/inet.h>
#include <endian.h>
#include <errno.h>
#include <netinet/in.h>
#include <netinet/ip.h>
#include <string.h>

#include "core/device.h"
#include "core/verbs.h"
#include "frame/net.h"

/* Returns 4, 6, or 0 for neither. An IPv4 header is in the last 20 of the 40 bytes, behind arbitrary bytes. */
static int ip_version(const uint8_t *grh)
{
	bool v4 = grh[20] == 0x45 && !vb_ipv4_checksum(grh + 20);

	if (grh[0] >> 4 == 6)
		return v4 ? 4 : 6;
	return grh[20] >> 4 == 4 ? 4 : 0;
}

static void map_v4(union ibv_gid *gid, const uint8_t *addr)
{
	memset(gid, 0, sizeof(*gid));
	gid->raw[10] = gid->raw[11] = 0xff;
	memcpy(gid->raw + 12, addr, 4);
}

static void from_v4(const uint8_t *ip, struct ibv_global_route *grh, union ibv_gid *self)
{
	map_v4(self, ip + 16);
	map_v4(&grh->dgid, ip + 12);
	grh->hop_limit = ip[8];
	grh->traffic_class = ip[1];
}

static void from_v6(const struct ibv_grh *in, struct ibv_global_route *grh, union ibv_gid *self)
{
	*self = in->dgid;
	grh->dgid = in->sgid;
	grh->hop_limit = in->hop_limit;
	grh->traffic_class = (be32toh(in->version_tclass_flow) >> 20) & 0xff;
}

static bool is_multicast(const union ibv_gid *gid)
{
	return gid->raw[0] == 0xff ||
	       (gid->raw[10] == 0xff && gid->raw[11] == 0xff && !gid->raw[0] && gid->raw[12] >> 4 == 14);
}

/* Returns 0, or -1 with errno. As in rdma-core, it fails for a datagram to a multicast group, because the group is not
 * in the port's GID table. */
int vb_init_ah_from_wc(struct ibv_context *context, uint8_t port_num, struct ibv_wc *wc, struct ibv_grh *grh,
                       struct ibv_ah_attr *attr)
{
	union ibv_gid self;
	int version, index;

	memset(attr, 0, sizeof(*attr));
	attr->dlid = wc->slid;
	attr->sl = wc->sl;
	attr->src_path_bits = wc->dlid_path_bits;
	attr->port_num = port_num;
	if (!(wc->wc_flags & IBV_WC_GRH))
		return 0;
	attr->is_global = 1;
	attr->grh.flow_label = be32toh(grh->version_tclass_flow) & 0xfffff;
	bool ib = vb_ctx(context)->dev->ib;
	version = ib ? 6 : ip_version((const uint8_t *)grh);
	if (!version || (version == 6 && grh->next_hdr != (ib ? VB_GRH_NEXT_HEADER : IPPROTO_UDP))) {
		errno = EPROTONOSUPPORT;
		return -1;
	}
	if (version == 4)
		from_v4((const uint8_t *)grh + 20, &attr->grh, &self);
	else
		from_v6(grh, &attr->grh, &self);
	index = is_multicast(&self) ? -1 : vb_query_gid_index(vb_ctx(context)->dev, port_num, &self);
	if (index < 0) {
		errno = EINVAL;
		return -1;
	}
	attr->grh.sgid_index = (uint8_t)index;
	return 0;
}
