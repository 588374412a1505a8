// device_text.c - the attributes of an adapter as text, as Linux shows them below /sys/class/infiniband
// follows: Linux Documentation/ABI/stable/sysfs-class-infiniband
// SPDX-License-Identifier: MIT
#include <endian.h>
#include <errno.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "core/device.h"
#include "frame/fields.h"

struct text {
	char *buf;
	size_t size;
	struct ibv_port_attr port;
};

static int print_guid(struct text *t, __be64 guid)
{
	uint64_t g = be64toh(guid);

	return snprintf(t->buf, t->size, "%04x:%04x:%04x:%04x", (unsigned)(g >> 48), (unsigned)(g >> 32) & 0xffff,
	                (unsigned)(g >> 16) & 0xffff, (unsigned)g & 0xffff);
}

static int print_gid(struct text *t, const union ibv_gid *gid)
{
	const uint8_t *r = gid->raw;

	return snprintf(t->buf, t->size, "%02x%02x:%02x%02x:%02x%02x:%02x%02x:%02x%02x:%02x%02x:%02x%02x:%02x%02x",
	                r[0], r[1], r[2], r[3], r[4], r[5], r[6], r[7], r[8], r[9], r[10], r[11], r[12], r[13], r[14],
	                r[15]);
}

static int node_type(struct vb_device *dev, struct text *t)
{
	return snprintf(t->buf, t->size, "%d: %s", dev->dev.node_type, dev->iwarp ? "RNIC" : "CA");
}

static int version_text(struct vb_device *dev, struct text *t)
{
	return snprintf(t->buf, t->size, "%s", VB_VERSION);
}

static int hw_rev(struct vb_device *dev, struct text *t)
{
	return snprintf(t->buf, t->size, "%x", VB_HW_VER);
}

static int kind_text(struct vb_device *dev, struct text *t)
{
	return snprintf(t->buf, t->size, "verbena");
}

static int node_desc(struct vb_device *dev, struct text *t)
{
	return snprintf(t->buf, t->size, "Verbena %s", dev->dev.name);
}

static int node_guid(struct vb_device *dev, struct text *t)
{
	return print_guid(t, dev->node_guid);
}

static int parent_text(struct vb_device *dev, struct text *t)
{
	struct vb_netdev nd;

	if (dev->ib) {
		errno = ENOENT;
		return -1;
	}
	vb_device_netdev(dev, &nd);
	return snprintf(t->buf, t->size, "%s", nd.name);
}

static int state_text(struct vb_device *dev, struct text *t)
{
	static const char *const name[] = {"NOP", "DOWN", "INIT", "ARMED", "ACTIVE"};

	return snprintf(t->buf, t->size, "%d: %s", t->port.state, t->port.state < 5 ? name[t->port.state] : "DOWN");
}

static int phys_state(struct vb_device *dev, struct text *t)
{
	return snprintf(t->buf, t->size, "%d: %s", t->port.phys_state, t->port.phys_state == 5 ? "LinkUp" : "Disabled");
}

static int rate_text(struct vb_device *dev, struct text *t)
{
	static const struct {
		uint8_t code;
		int tenths; /* Gb/s of one lane, times ten */
		const char *name;
	} speeds[] = {{1, 25, ""},       {2, 50, " DDR"},   {4, 100, " QDR"},  {8, 100, " FDR10"},
	              {16, 140, " FDR"}, {32, 250, " EDR"}, {64, 500, " HDR"}, {128, 1000, " NDR"}};
	int lanes = t->port.active_width == 1 ? 1 : t->port.active_width == 2 ? 4 : t->port.active_width == 4 ? 8 : 2;
	size_t i = 0;

	while (i + 1 < sizeof(speeds) / sizeof(speeds[0]) && speeds[i].code != t->port.active_speed)
		i++;
	int tenths = speeds[i].tenths * lanes;
	return snprintf(t->buf, t->size, "%d%s Gb/sec (%dX%s)", tenths / 10, tenths % 10 ? ".5" : "", lanes,
	                speeds[i].name);
}

static int link_layer(struct vb_device *dev, struct text *t)
{
	return snprintf(t->buf, t->size, dev->ib ? "InfiniBand" : "Ethernet");
}

static int lid_text(struct vb_device *dev, struct text *t)
{
	return snprintf(t->buf, t->size, "0x%x", t->port.lid);
}

static int lmc_text(struct vb_device *dev, struct text *t)
{
	return snprintf(t->buf, t->size, "%u", t->port.lmc);
}

static int sm_sl(struct vb_device *dev, struct text *t)
{
	return snprintf(t->buf, t->size, "%u", t->port.sm_sl);
}

static int sm_lid(struct vb_device *dev, struct text *t)
{
	return snprintf(t->buf, t->size, "0x%x", t->port.sm_lid);
}

static int zero_text(struct vb_device *dev, struct text *t)
{
	return snprintf(t->buf, t->size, "0");
}

static int cap_mask(struct vb_device *dev, struct text *t)
{
	/* IP_BASED_GIDS is a flag between kernel and library, not a bit of the CapabilityMask. */
	return snprintf(t->buf, t->size, "0x%08x", t->port.port_cap_flags & ~(uint32_t)IBV_PORT_IP_BASED_GIDS);
}

static int pkey_text(struct vb_device *dev, struct text *t)
{
	__be16 pkey;

	if (vb_query_pkey_at(dev, 1, 0, &pkey)) {
		errno = ENOENT;
		return -1;
	}
	return snprintf(t->buf, t->size, "0x%04x", be16toh(pkey));
}

static int none_id(struct vb_device *dev, struct text *t)
{
	return snprintf(t->buf, t->size, "0x0000");
}

static const struct {
	const char *path;
	int (*print)(struct vb_device *, struct text *);
} attributes[] = {
        {"node_type", node_type},
        {"fw_ver", version_text},
        {"hw_rev", hw_rev},
        {"hca_type", kind_text},
        {"board_id", kind_text},
        {"node_desc", node_desc},
        {"node_guid", node_guid},
        {"sys_image_guid", node_guid},
        {"parent", parent_text},
        {"ports/1/state", state_text},
        {"ports/1/phys_state", phys_state},
        {"ports/1/rate", rate_text},
        {"ports/1/link_layer", link_layer},
        {"ports/1/lid", lid_text},
        {"ports/1/lid_mask_count", lmc_text},
        {"ports/1/sm_lid", sm_lid},
        {"ports/1/sm_sl", sm_sl},
        {"ports/1/cap_mask", cap_mask},
        {"ports/1/pkeys/0", pkey_text},
        {"device/vendor", none_id},
        {"device/device", none_id},
};

/* Zero here: the shim (tools/shim/live.c) adds what running programs have counted. Those without a counter in
 * core/counts.h are always zero. */
static const char *const counters[] = {"counters/excessive_buffer_overrun_errors",
                                       "counters/link_downed",
                                       "counters/link_error_recovery",
                                       "counters/local_link_integrity_errors",
                                       "counters/port_rcv_constraint_errors",
                                       "counters/port_rcv_data",
                                       "counters/port_rcv_errors",
                                       "counters/port_rcv_packets",
                                       "counters/port_rcv_remote_physical_errors",
                                       "counters/port_rcv_switch_relay_errors",
                                       "counters/port_xmit_constraint_errors",
                                       "counters/port_xmit_data",
                                       "counters/port_xmit_discards",
                                       "counters/port_xmit_packets",
                                       "counters/port_xmit_wait",
                                       "counters/symbol_error",
                                       "counters/VL15_dropped",
                                       "hw_counters/sent_pkts",
                                       "hw_counters/rcvd_pkts",
                                       "hw_counters/duplicate_request",
                                       "hw_counters/out_of_seq_request",
                                       "hw_counters/rcvd_rnr_err",
                                       "hw_counters/send_rnr_err",
                                       "hw_counters/rcvd_seq_err",
                                       "hw_counters/retry_exceeded_err",
                                       "hw_counters/completer_retry_err",
                                       "hw_counters/send_err",
                                       "hw_counters/link_downed",
                                       "hw_counters/rdma_sends",
                                       "hw_counters/rdma_recvs",
                                       "hw_counters/out_of_sequence",
                                       "hw_counters/packet_seq_err",
                                       "hw_counters/implied_nak_seq_err",
                                       "hw_counters/rnr_nak_retry_err",
                                       "hw_counters/out_of_buffer",
                                       "hw_counters/local_ack_timeout_err",
                                       "hw_counters/rx_icrc_encapsulated",
                                       "hw_counters/req_cqe_error",
                                       "hw_counters/resp_cqe_error",
                                       "hw_counters/req_cqe_flush_error",
                                       "hw_counters/resp_cqe_flush_error",
                                       "hw_counters/np_cnp_sent",
                                       "hw_counters/rp_cnp_handled",
                                       "hw_counters/bad_pkey_cntr",
                                       "hw_counters/qkey_viol_cntr"};

#define COUNT(a) (sizeof(a) / sizeof((a)[0]))

static const char *const gid_dirs[] = {"gids", "gid_attrs/types", "gid_attrs/ndevs"};

static int gid_text(struct vb_device *dev, unsigned dir, unsigned index, struct text *t)
{
	struct vb_netdev nd;
	union ibv_gid gid;

	if (vb_query_gid_at(dev, 1, (int)index, &gid)) {
		errno = ENOENT;
		return -1;
	}
	if (dir == 0)
		return print_gid(t, &gid);
	if (vb_gid_is_zero(&gid) || (dir == 2 && dev->ib)) {
		errno = EINVAL;
		return -1;
	}
	if (dir == 1)
		return snprintf(t->buf, t->size, dev->iwarp || dev->ib ? "IB/RoCE v1" : "RoCE v2");
	vb_device_netdev(dev, &nd);
	return snprintf(t->buf, t->size, "%s", nd.name);
}

/* The index in a path such as "gids/7" below ports/1, or -1. */
static int index_below(const char *path, const char *dir)
{
	size_t n = strlen(dir);
	char *end;

	if (strncmp(path, dir, n) || path[n] != '/' || path[n + 1] < '0' || path[n + 1] > '9')
		return -1;
	if (path[n + 1] == '0' && path[n + 2])
		return -1;
	unsigned long i = strtoul(path + n + 1, &end, 10);
	return *end || i >= VB_GID_TBL_LEN ? -1 : (int)i;
}

static int port_text(struct vb_device *dev, const char *path, struct text *t)
{
	for (unsigned dir = 0; dir < COUNT(gid_dirs); dir++) {
		int index = index_below(path, gid_dirs[dir]);

		if (index >= 0)
			return gid_text(dev, dir, (unsigned)index, t);
	}
	for (size_t i = 0; i < COUNT(counters); i++)
		if (!strcmp(path, counters[i]))
			return zero_text(dev, t);
	errno = ENOENT;
	return -1;
}

int vb_device_attr_text(struct vb_device *dev, const char *relpath, char *buf, size_t size)
{
	struct text t = {.buf = buf, .size = size};

	while (*relpath == '/')
		relpath++;
	vb_query_port_attr(dev, 1, &t.port);
	for (size_t i = 0; i < COUNT(attributes); i++)
		if (!strcmp(relpath, attributes[i].path))
			return attributes[i].print(dev, &t);
	if (!strncmp(relpath, "ports/1/", 8))
		return port_text(dev, relpath + 8, &t);
	errno = ENOENT;
	return -1;
}

bool vb_device_attr_path(unsigned index, char *buf, size_t size)
{
	if (index < COUNT(attributes))
		return snprintf(buf, size, "%s", attributes[index].path) > 0;
	index -= COUNT(attributes);
	if (index < COUNT(counters))
		return snprintf(buf, size, "ports/1/%s", counters[index]) > 0;
	index -= COUNT(counters);
	if (index < COUNT(gid_dirs) * VB_GID_TBL_LEN)
		return snprintf(buf, size, "ports/1/%s/%u", gid_dirs[index / VB_GID_TBL_LEN], index % VB_GID_TBL_LEN) >
		       0;
	return false;
}
