// option.c - options of an id, and extended connection parameters
// follows: rdma_set_option(3), rdma_set_local_ece(3), rdma_get_remote_ece(3)
// SPDX-License-Identifier: MIT
#include <infiniband/sa.h>

#include "rdmacm/hardware.h"
#include "rdmacm/rdmacm.h"

static int set_tos(struct rcm_id *id, const void *val, size_t len)
{
	if (len != sizeof(uint8_t))
		return EINVAL;
	id->tos = *(const uint8_t *)val;
	return 0;
}

static int set_reuse(struct rcm_id *id, const void *val, size_t len)
{
	int on;

	if (len != sizeof(on) || id->state == RCM_LISTEN)
		return EINVAL;
	memcpy(&on, val, sizeof(on));
	if (!on && id->state != RCM_IDLE)
		return EINVAL;
	id->reuse = on;
	return 0;
}

static int set_afonly(struct rcm_id *id, const void *val, size_t len)
{
	int on;

	if (len != sizeof(on) || (id->state != RCM_IDLE && id->state != RCM_BOUND))
		return EINVAL;
	memcpy(&on, val, sizeof(on));
	id->afonly = on;
	id->afonly_set = true;
	return 0;
}

static int set_ack_timeout(struct rcm_id *id, const void *val, size_t len)
{
	uint8_t code;

	if (len != sizeof(code) || (id->id.qp_type != IBV_QPT_RC && id->id.qp_type != IBV_QPT_XRC_SEND))
		return EINVAL;
	code = *(const uint8_t *)val;
	if (code > 31)
		return EINVAL;
	id->ack_timeout = code;
	id->ack_timeout_set = true;
	return 0;
}

static int set_id_option(struct rcm_id *id, int name, const void *val, size_t len)
{
	switch (name) {
	case RDMA_OPTION_ID_TOS:
		return set_tos(id, val, len);
	case RDMA_OPTION_ID_REUSEADDR:
		return set_reuse(id, val, len);
	case RDMA_OPTION_ID_AFONLY:
		return set_afonly(id, val, len);
	case RDMA_OPTION_ID_ACK_TIMEOUT:
		return set_ack_timeout(id, val, len);
	default:
		return ENOSYS;
	}
}

/* Selects the adapter if the interface has two. A program has no other means to tell them apart. */
static int set_transport(struct rcm_id *id, const void *val, size_t len)
{
	int transport;

	if (len != sizeof(transport) || id->state != RCM_IDLE)
		return EINVAL;
	memcpy(&transport, val, sizeof(transport));
	if (transport != IBV_TRANSPORT_IB && transport != IBV_TRANSPORT_IWARP)
		return EINVAL;
	id->kind = transport == IBV_TRANSPORT_IWARP ? RCM_IWARP : RCM_ROCE;
	return 0;
}

static int set_verbena_option(struct rcm_id *id, int name, const void *val, size_t len)
{
	if (name == RCM_OPTION_TRANSPORT)
		return set_transport(id, val, len);
	return name == RCM_OPTION_OURS ? 0 : ENOSYS;
}

/* The flags are in host order; the record is in network order. */
static const struct ibv_path_data *primary_path(const void *val, size_t len)
{
	const uint32_t need = IBV_PATH_FLAG_GMP | IBV_PATH_FLAG_PRIMARY | IBV_PATH_FLAG_BIDIRECTIONAL;
	const struct ibv_path_data *path = val;

	for (size_t i = 0; i < len / sizeof(*path); i++)
		if ((path[i].flags & need) == need)
			return &path[i];
	return NULL;
}

/* Sets a route given by the program. Only the fields that have a meaning over IP are used. rcm.lock held. */
static int set_path(struct rcm_id *id, const struct ibv_path_record *rec)
{
	struct ibv_path_data copy = {.path = *rec};
	uint32_t hop = be32toh(copy.path.flowlabel_hoplimit);
	uint8_t dst[16];

	rcm_addr_gid(&id->dst, dst);
	if (rcm_on_fabric(id))
		memcpy(dst, id->path.dgid.raw, sizeof(dst));
	if (id->state != RCM_ADDR_RESOLVED || memcmp(copy.path.dgid.raw, dst, sizeof(dst)) != 0)
		return EINVAL;
	id->path = (struct rcm_path){
	        .dgid = copy.path.dgid,
	        .mtu = copy.path.mtu & 0x3f,
	        .rate = copy.path.rate & 0x3f,
	        .traffic_class = copy.path.tclass,
	        .hop_limit = hop & 0xff || rcm_on_fabric(id) ? (uint8_t)hop : RCM_HOP_LIMIT,
	        .flow_label = hop >> 8 & 0xfffff,
	        .sl = be16toh(copy.path.qosclass_sl) & 0xf,
	        .lifetime = copy.path.packetlifetime & 0x3f,
	        .dlid = be16toh(copy.path.dlid),
	        .slid = be16toh(copy.path.slid),
	        .pkey = be16toh(copy.path.pkey),
	};
	int err = rcm_post(id, RDMA_CM_EVENT_ROUTE_RESOLVED, 0);

	if (!err)
		id->state = RCM_ROUTE_RESOLVED;
	return err;
}

static int set_ib_option(struct rcm_id *id, int name, const void *val, size_t len)
{
	const struct ibv_path_data *path;

	if (name != RDMA_OPTION_IB_PATH)
		return ENOSYS;
	if (len % sizeof(*path))
		return EINVAL;
	path = primary_path(val, len);
	return path ? set_path(id, &path->path) : EINVAL;
}

RCM_EXPORT int rdma_set_option(struct rdma_cm_id *cm_id, int level, int name, void *val, size_t len)
{
	RCM_HARDWARE(set_option, cm_id, level, name, val, len);
	struct rcm_id *id = rcm_id(cm_id);
	int err;

	if (!rcm_ours(id))
		return -1;
	if (!val || !len)
		return rcm_fail(EINVAL);
	rcm_lock();
	switch (level) {
	case RDMA_OPTION_ID:
		err = set_id_option(id, name, val, len);
		break;
	case RDMA_OPTION_IB:
		err = set_ib_option(id, name, val, len);
		break;
	case RCM_OPTION_VERBENA:
		err = set_verbena_option(id, name, val, len);
		break;
	default:
		err = ENOSYS;
	}
	rcm_unlock();
	if (!err && id->real && level != RCM_OPTION_VERBENA)
		rcm_real.set_option(id->real, level, name, val, len);
	if (!err && level == RDMA_OPTION_ID && (name == RDMA_OPTION_ID_REUSEADDR || name == RDMA_OPTION_ID_AFONLY))
		err = rcm_rebind(id);
	return rcm_result(err);
}

/* ECE options are sent with the REQ or its answer. The adapter has none of its own, and ignores the peer's. */
RCM_EXPORT int rdma_set_local_ece(struct rdma_cm_id *cm_id, struct ibv_ece *ece)
{
	RCM_HARDWARE(set_local_ece, cm_id, ece);
	struct rcm_id *id = rcm_id(cm_id);

	if (!rcm_ours(id) || cm_id->qp || !ece || !ece->vendor_id || ece->comp_mask)
		return rcm_fail(EINVAL);
	id->local_ece = *ece;
	return 0;
}

RCM_EXPORT int rdma_get_remote_ece(struct rdma_cm_id *cm_id, struct ibv_ece *ece)
{
	RCM_HARDWARE(get_remote_ece, cm_id, ece);
	struct rcm_id *id = rcm_id(cm_id);

	if (!rcm_ours(id) || cm_id->qp || !ece)
		return rcm_fail(EINVAL);
	rcm_lock();
	*ece = (struct ibv_ece){.vendor_id = id->remote_ece.vendor_id, .options = id->remote_ece.options};
	rcm_unlock();
	return 0;
}
