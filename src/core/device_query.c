// device_query.c - queries of an adapter: attributes, port, GIDs, partition keys
// follows: IBA 11.2.1.2 (query HCA); ibv_query_device_ex(3), ibv_query_port(3), ibv_query_gid_ex(3)
// SPDX-License-Identifier: MIT
#include <endian.h>
#include <errno.h>
#include <stdio.h>
#include <string.h>

#include "core/device.h"
#include "core/lid.h"
#include "core/newer.h"
#include "core/rss.h"
#include "frame/fields.h"
#include "util/log.h"

/*
 * Only supported features. Not supported: RESIZE_MAX_WR, AUTO_PATH_MIG, SHUTDOWN_PORT, N_NOTIFY_CQ. MEM_MGT_EXTENSIONS
 * stands for SEND_WITH_INV and LOCAL_INV. Windows of type 2 are of type 2B.
 */
#define CAP_FLAGS                                                                                  \
	(IBV_DEVICE_CURR_QP_STATE_MOD | IBV_DEVICE_PORT_ACTIVE_EVENT | IBV_DEVICE_SYS_IMAGE_GUID | \
	 IBV_DEVICE_RC_RNR_NAK_GEN | IBV_DEVICE_SRQ_RESIZE | IBV_DEVICE_MEM_MGT_EXTENSIONS |       \
	 IBV_DEVICE_BAD_PKEY_CNTR | IBV_DEVICE_BAD_QKEY_CNTR | IBV_DEVICE_RAW_MULTI |              \
	 IBV_DEVICE_MANAGED_FLOW_STEERING | IBV_DEVICE_MEM_WINDOW | IBV_DEVICE_MEM_WINDOW_TYPE_2B | IBV_DEVICE_XRC)

/* iWARP has no datagrams, so no multicast groups and no address handles. It has no RNR NAK, no P_Keys and no XRC either. */
static void without_datagrams(struct ibv_device_attr *a)
{
	a->device_cap_flags &=
	        ~(unsigned)(IBV_DEVICE_RC_RNR_NAK_GEN | IBV_DEVICE_BAD_PKEY_CNTR | IBV_DEVICE_BAD_QKEY_CNTR |
	                    IBV_DEVICE_RAW_MULTI | IBV_DEVICE_MANAGED_FLOW_STEERING | IBV_DEVICE_XRC);
	a->max_raw_ethy_qp = 0;
	a->max_mcast_grp = a->max_mcast_qp_attach = a->max_total_mcast_qp_attach = 0;
	a->max_ah = 0;
	a->max_pkeys = 0;
}

/* A fabric has no Ethernet frames. Its adapters are known by the GUIDs of the topology. */
static void on_fabric(struct vb_device *dev, struct ibv_device_attr *a)
{
	struct vb_ib_port port;

	vb_device_ib_port(dev, &port);
	a->device_cap_flags &= ~(unsigned)(IBV_DEVICE_RAW_MULTI | IBV_DEVICE_MANAGED_FLOW_STEERING);
	a->max_raw_ethy_qp = 0;
	a->max_mcast_grp = a->max_mcast_qp_attach = a->max_total_mcast_qp_attach = 0;
	a->max_pkeys = VB_IB_PKEYS;
	a->sys_image_guid = htobe64(port.system_guid);
	a->vendor_id = port.vendor_id;
	a->vendor_part_id = port.device_id;
}

/* Copies find out by themselves whether memory is there, on all paths and for all operations. */
static void with_paging(struct ibv_device_attr_ex *attr, bool iwarp)
{
	const uint32_t datagrams = IBV_ODP_SUPPORT_SEND | IBV_ODP_SUPPORT_RECV | IBV_ODP_SUPPORT_SRQ_RECV;
	const uint32_t all = datagrams | IBV_ODP_SUPPORT_WRITE | IBV_ODP_SUPPORT_READ | IBV_ODP_SUPPORT_ATOMIC;

	attr->odp_caps.general_caps = IBV_ODP_SUPPORT | IBV_ODP_SUPPORT_IMPLICIT;
	attr->odp_caps.per_transport_caps.rc_odp_caps = all;
	if (!iwarp) {
		attr->odp_caps.per_transport_caps.rc_odp_caps |=
		        VB_IBV_ODP_SUPPORT_FLUSH | VB_IBV_ODP_SUPPORT_ATOMIC_WRITE;
		attr->odp_caps.per_transport_caps.uc_odp_caps = datagrams | IBV_ODP_SUPPORT_WRITE;
		attr->odp_caps.per_transport_caps.ud_odp_caps = datagrams;
	}
	if (attr->orig_attr.device_cap_flags & IBV_DEVICE_XRC) /* it receives by shared queues only */
		attr->xrc_odp_caps = attr->odp_caps.per_transport_caps.rc_odp_caps & ~(uint32_t)IBV_ODP_SUPPORT_RECV;
}

/* Work queues, segmentation, checksums and VLANs serve raw packet queue pairs alone. */
static void with_raw_packets(struct ibv_device_attr_ex *attr)
{
	attr->rss_caps = (struct ibv_rss_caps){.supported_qpts = 1u << IBV_QPT_RAW_PACKET,
	                                       .max_rwq_indirection_tables = VB_MAX_RWQ_TABLES,
	                                       .max_rwq_indirection_table_size = 1u << VB_MAX_LOG_RWQ_TABLE,
	                                       .rx_hash_fields_mask = VB_RSS_FIELDS,
	                                       .rx_hash_function = IBV_RX_HASH_FUNC_TOEPLITZ};
	attr->max_wq_type_rq = VB_MAX_WQ;
	attr->raw_packet_caps =
	        IBV_RAW_PACKET_CAP_CVLAN_STRIPPING | IBV_RAW_PACKET_CAP_SCATTER_FCS | IBV_RAW_PACKET_CAP_IP_CSUM;
	attr->orig_attr.device_cap_flags |= IBV_DEVICE_RAW_IP_CSUM;
	attr->device_cap_flags_ex |= (uint64_t)IBV_DEVICE_RAW_IP_CSUM | IBV_DEVICE_RAW_SCATTER_FCS;
	attr->tso_caps = (struct ibv_tso_caps){.max_tso = VB_MAX_TSO, .supported_qpts = 1u << IBV_QPT_RAW_PACKET};
}

/* Rate limits: of all that send. */
static void with_pacing(struct ibv_device_attr_ex *attr, const struct vb_device *dev)
{
	uint32_t types = 1u << IBV_QPT_RC;

	if (!vb_device_rc_only(dev))
		types |= 1u << IBV_QPT_UC | 1u << IBV_QPT_UD | 1u << IBV_QPT_XRC_SEND;
	if (vb_device_has_raw_packets(dev))
		types |= 1u << IBV_QPT_RAW_PACKET;
	attr->packet_pacing_caps = (struct ibv_packet_pacing_caps){VB_MIN_RATE, VB_MAX_RATE, types};
}

int vb_query_device_attr(struct vb_device *dev, struct ibv_device_attr_ex *attr)
{
	memset(attr, 0, sizeof(*attr));
	attr->orig_attr = (struct ibv_device_attr){
	        .fw_ver = VB_VERSION,
	        .node_guid = dev->node_guid,
	        .sys_image_guid = dev->node_guid,
	        .max_mr_size = VB_MAX_MR_SIZE,
	        .page_size_cap = VB_PAGE_SIZE_CAP,
	        .vendor_id = VB_VENDOR_ID,
	        .vendor_part_id = VB_VENDOR_PART_ID,
	        .hw_ver = VB_HW_VER,
	        .max_qp = VB_MAX_QP,
	        .max_qp_wr = VB_MAX_QP_WR,
	        .device_cap_flags = CAP_FLAGS,
	        .max_sge = VB_MAX_SGE,
	        .max_sge_rd = VB_MAX_SGE,
	        .max_cq = VB_MAX_CQ,
	        .max_cqe = VB_MAX_CQE,
	        .max_mr = VB_MAX_MR,
	        .max_mw = VB_MAX_MW,
	        .max_pd = VB_MAX_PD,
	        .max_qp_rd_atom = VB_MAX_QP_RD_ATOM,
	        .max_res_rd_atom = VB_MAX_QP * VB_MAX_QP_RD_ATOM,
	        .max_qp_init_rd_atom = VB_MAX_QP_RD_ATOM,
	        .atomic_cap = IBV_ATOMIC_HCA,
	        .max_raw_ethy_qp = VB_MAX_QP,
	        .max_mcast_grp = VB_MAX_MCAST_GRP,
	        .max_mcast_qp_attach = VB_MAX_MCAST_QP_ATTACH,
	        .max_total_mcast_qp_attach = VB_MAX_TOTAL_MCAST_QP_ATTACH,
	        .max_ah = VB_MAX_AH,
	        .max_srq = VB_MAX_SRQ,
	        .max_srq_wr = VB_MAX_SRQ_WR,
	        .max_srq_sge = VB_MAX_SRQ_SGE,
	        .max_pkeys = VB_PKEY_TBL_LEN,
	        .local_ca_ack_delay = VB_LOCAL_CA_ACK_DELAY,
	        .phys_port_cnt = VB_PORTS,
	};
	if (dev->iwarp)
		without_datagrams(&attr->orig_attr);
	if (dev->ib)
		on_fabric(dev, &attr->orig_attr);
	with_paging(attr, dev->iwarp);
	with_pacing(attr, dev);
	attr->max_dm_size = VB_MAX_DM_SIZE;
	attr->completion_timestamp_mask = ~0ull;
	attr->cq_mod_caps = (struct ibv_cq_moderation_caps){VB_MAX_CQ_COUNT, VB_MAX_CQ_PERIOD};
	attr->hca_core_clock = VB_CORE_CLOCK_KHZ;
	attr->device_cap_flags_ex = attr->orig_attr.device_cap_flags;
	attr->phys_port_cnt_ex = VB_PORTS;
	if (vb_device_has_raw_packets(dev))
		with_raw_packets(attr);
	if (!dev->iwarp) {
		attr->device_cap_flags_ex |= VB_IBV_DEVICE_FLUSH_GLOBAL | VB_IBV_DEVICE_ATOMIC_WRITE;
		attr->tm_caps = (struct ibv_tm_caps){VB_MAX_RNDV_LEN, VB_MAX_TAGS, IBV_TM_CAP_RC, VB_MAX_TAG_OPS,
		                                     VB_MAX_TAG_SGE};
	}
	return 0;
}

enum ibv_mtu vb_mtu_of_ip_mtu(uint32_t ip_mtu)
{
	/* rxe's RXE_MAX_HDR_LENGTH: IPv6 40, UDP 8, BTH 12, the longest extension headers, ICRC 4, rounded up. */
	const uint32_t headers = 80;

	for (int mtu = IBV_MTU_4096; mtu > IBV_MTU_256; mtu--)
		if (ip_mtu >= headers + (128u << mtu))
			return mtu;
	return IBV_MTU_256;
}

/* The MTU of IP, rounded down to a value of the enumeration. RDMAP does not use it (Linux's siw does the same). */
static enum ibv_mtu iwarp_mtu(uint32_t ip_mtu)
{
	int mtu = IBV_MTU_4096;

	while (mtu > IBV_MTU_256 && ip_mtu < 128u << mtu)
		mtu--;
	return mtu;
}

/* The codes of the smallest width (1: 1X, 2: 4X, 16: 2X, 4: 8X) and speed (1 SDR 2.5, 8 FDR10, 32 EDR 25, 64 HDR 50,
 * 128 NDR 100) that suffice for this speed, as in the kernel's ib_get_eth_speed. */
static void speed_codes(uint32_t mbps, uint8_t *width, uint8_t *speed)
{
	static const struct {
		uint32_t mbps;
		uint8_t width, speed;
	} row[] = {{1000, 1, 1},   {10000, 1, 8},   {20000, 2, 2},   {25000, 1, 32},   {40000, 2, 8},
	           {50000, 1, 64}, {100000, 2, 32}, {200000, 2, 64}, {400000, 2, 128}, {~0u, 4, 128}};
	int i = 0;

	/* Virtual interfaces report no speed. */
	if (!mbps)
		mbps = 100000;
	while (mbps > row[i].mbps)
		i++;
	*width = row[i].width;
	*speed = row[i].speed;
}

/* Adds a LID, for programs that do not use GIDs. They need no GRH then. */
static void with_lid(struct ibv_port_attr *attr, const struct vb_netdev *nd)
{
	static int said;

	attr->lid = vb_lid_of(nd);
	if (attr->lid)
		attr->flags = 0;
	else if (nd->n_addrs && !__atomic_exchange_n(&said, 1, __ATOMIC_RELAXED))
		vb_log(VB_LOG_WARN,
		       "VERBENA_LIDS: the host part of %s's first IPv4 address is no LID (1 to 49151): it has none",
		       nd->name);
}

int vb_query_port_attr(struct vb_device *dev, uint32_t port, struct ibv_port_attr *attr)
{
	struct vb_netdev nd;

	if (port != 1)
		return EINVAL;
	if (dev->ib)
		return vb_ib_query_port(dev, attr);
	vb_device_netdev(dev, &nd);
	bool up = vb_netdev_is_up(&nd);
	*attr = (struct ibv_port_attr){
	        .state = up ? IBV_PORT_ACTIVE : IBV_PORT_DOWN,
	        .max_mtu = IBV_MTU_4096,
	        .active_mtu = vb_mtu_of_ip_mtu(nd.mtu),
	        .gid_tbl_len = VB_GID_TBL_LEN,
	        .port_cap_flags = IBV_PORT_CM_SUP | IBV_PORT_IP_BASED_GIDS,
	        .max_msg_sz = VB_MAX_MSG_SZ,
	        .pkey_tbl_len = VB_PKEY_TBL_LEN,
	        .max_vl_num = 1,
	        .phys_state = up ? 5 /* LinkUp */ : 3 /* Disabled */,
	        .link_layer = IBV_LINK_LAYER_ETHERNET,
	        .flags = IBV_QPF_GRH_REQUIRED,
	};
	if (dev->iwarp) {
		attr->active_mtu = attr->max_mtu = iwarp_mtu(nd.mtu);
		attr->gid_tbl_len = 1;
		attr->pkey_tbl_len = 0;
		attr->max_vl_num = 0;
		attr->port_cap_flags = IBV_PORT_CM_SUP | IBV_PORT_DEVICE_MGMT_SUP;
		attr->flags = 0;
	}
	if (dev->lids)
		with_lid(attr, &nd);
	speed_codes(nd.speed_mbps, &attr->active_width, &attr->active_speed);
	return 0;
}

int vb_query_gid_at(struct vb_device *dev, uint32_t port, int index, union ibv_gid *gid)
{
	if (port != 1 || index < 0 || index >= vb_device_gids(dev))
		return EINVAL;
	vb_lock(&dev->lock);
	*gid = dev->gids.gid[index];
	vb_unlock(&dev->lock);
	return 0;
}

static struct ibv_gid_entry entry_of(const struct vb_device *dev, uint32_t index, const union ibv_gid *gid)
{
	return (struct ibv_gid_entry){.gid = *gid,
	                              .gid_index = index,
	                              .port_num = 1,
	                              .gid_type = dev->iwarp || dev->ib ? IBV_GID_TYPE_IB : IBV_GID_TYPE_ROCE_V2,
	                              .ndev_ifindex = dev->gone ? 0 : (uint32_t)dev->ifindex};
}

int vb_query_gid_entry(struct vb_device *dev, uint32_t port, uint32_t index, struct ibv_gid_entry *entry)
{
	int rc = 0;

	if (port != 1 || index >= (uint32_t)vb_device_gids(dev))
		return EINVAL;
	vb_lock(&dev->lock);
	if (vb_gid_is_zero(&dev->gids.gid[index]))
		rc = ENODATA;
	else
		*entry = entry_of(dev, index, &dev->gids.gid[index]);
	vb_unlock(&dev->lock);
	return rc;
}

ssize_t vb_query_gid_list(struct vb_device *dev, struct ibv_gid_entry *entries, size_t max)
{
	size_t n = 0, k = 0;

	vb_lock(&dev->lock);
	for (int i = 0; i < VB_GID_TBL_LEN; i++)
		n += !vb_gid_is_zero(&dev->gids.gid[i]);
	for (uint32_t i = 0; n <= max && i < VB_GID_TBL_LEN; i++)
		if (!vb_gid_is_zero(&dev->gids.gid[i]))
			entries[k++] = entry_of(dev, i, &dev->gids.gid[i]);
	vb_unlock(&dev->lock);
	return n <= max ? (ssize_t)n : -EINVAL;
}

int vb_query_pkey_at(struct vb_device *dev, uint32_t port, int index, __be16 *pkey)
{
	if (port != 1 || index < 0 || index >= vb_device_pkeys(dev))
		return EINVAL;
	*pkey = htobe16(dev->ib ? vb_ib_pkey(dev, (unsigned)index) : VB_DEFAULT_PKEY);
	return 0;
}

int vb_query_gid_index(struct vb_device *dev, uint32_t port, const union ibv_gid *gid)
{
	if (port != 1)
		return -1;
	vb_lock(&dev->lock);
	int index = vb_gid_table_find(&dev->gids, gid);
	vb_unlock(&dev->lock);
	return index;
}
