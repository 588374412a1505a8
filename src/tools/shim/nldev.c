// nldev.c - answers the requests of RDMA netlink from the tree
// follows: linux/rdma_netlink.h, netlink(7); Linux drivers/infiniband/core/nldev.c
// SPDX-License-Identifier: MIT
#include "tools/shim/nldev.h"

#include <errno.h>
#include <infiniband/verbs.h>
#include <linux/netlink.h>
#include <net/if.h>
#include <rdma/rdma_netlink.h>
#include <stdbool.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#include "tools/shim/live.h"
#include "tools/shim/resources.h"
#include "tools/shim/tree_device.h"

/* A datagram that is being filled. It is sent when the next message might not fit. The tools read at least 4 KiB at a
 * time. */
struct answer {
	vb_shim_nldev_emit *emit;
	void *arg;
	const struct nlmsghdr *to;
	uint32_t start; /* of the message being built */
	uint32_t len;
	_Alignas(8) uint8_t buf[4096];
};

enum { LARGEST_MESSAGE = 2048 };

static void answer_flush(struct answer *a)
{
	if (a->len)
		a->emit(a->arg, a->buf, a->len);
	a->len = 0;
}

static void answer_append(struct answer *a, const void *p, size_t n)
{
	if (n)
		memcpy(a->buf + a->len, p, n);
	a->len += (uint32_t)n;
	while (a->len % NLMSG_ALIGNTO)
		a->buf[a->len++] = 0;
}

static void answer_begin(struct answer *a, uint16_t type, uint16_t flags)
{
	struct nlmsghdr h = {.nlmsg_type = type, .nlmsg_flags = flags, .nlmsg_seq = a->to->nlmsg_seq};

	if (a->len + LARGEST_MESSAGE > sizeof(a->buf))
		answer_flush(a);
	a->start = a->len;
	answer_append(a, &h, sizeof(h));
}

static void answer_end(struct answer *a)
{
	uint32_t len = a->len - a->start;

	memcpy(a->buf + a->start, &len, sizeof(len));
}

static void put_attribute(struct answer *a, uint16_t type, const void *value, size_t n)
{
	struct nlattr h = {.nla_len = (uint16_t)(sizeof(h) + n), .nla_type = type};

	answer_append(a, &h, sizeof(h));
	answer_append(a, value, n);
}

static void put_u8(struct answer *a, uint16_t type, uint8_t v)
{
	put_attribute(a, type, &v, sizeof(v));
}

static void put_u32(struct answer *a, uint16_t type, uint32_t v)
{
	put_attribute(a, type, &v, sizeof(v));
}

static void put_string(struct answer *a, uint16_t type, const char *s)
{
	put_attribute(a, type, s, strlen(s) + 1);
}

/* The tree writes GUIDs as 0123:4567:89ab:cdef. */
static void put_guid(struct answer *a, uint16_t type, const char *text)
{
	uint64_t v = 0;

	for (; *text; text++)
		if (*text != ':')
			v = v << 4 | (uint64_t)(*text <= '9' ? *text - '0' : (*text | 32) - 'a' + 10);
	put_attribute(a, type, &v, sizeof(v));
}

static void put_device_name(struct answer *a, const struct vb_shim_device *dev)
{
	put_u32(a, RDMA_NLDEV_ATTR_DEV_INDEX, dev->index);
	put_string(a, RDMA_NLDEV_ATTR_DEV_NAME, dev->name);
}

static void put_device(struct answer *a, const struct vb_shim_device *dev)
{
	char text[64];

	put_device_name(a, dev);
	put_u32(a, RDMA_NLDEV_ATTR_PORT_INDEX, 1);
	if (vb_shim_device_read(dev, "fw_ver", text, sizeof(text)))
		put_string(a, RDMA_NLDEV_ATTR_FW_VERSION, text);
	if (vb_shim_device_read(dev, "node_guid", text, sizeof(text)))
		put_guid(a, RDMA_NLDEV_ATTR_NODE_GUID, text);
	if (vb_shim_device_read(dev, "sys_image_guid", text, sizeof(text)))
		put_guid(a, RDMA_NLDEV_ATTR_SYS_IMAGE_GUID, text);
	bool iwarp = vb_shim_device_read(dev, "node_type", text, sizeof(text)) && atoi(text) == RDMA_NODE_RNIC;

	put_u8(a, RDMA_NLDEV_ATTR_DEV_NODE_TYPE, iwarp ? RDMA_NODE_RNIC : RDMA_NODE_IB_CA);
	put_u8(a, RDMA_NLDEV_ATTR_DEV_DIM, 0);
	put_string(a, RDMA_NLDEV_ATTR_DEV_PROTOCOL, iwarp ? "iw" : "roce");
}

static void put_port(struct answer *a, const struct vb_shim_device *dev)
{
	char text[64];

	put_device_name(a, dev);
	put_u32(a, RDMA_NLDEV_ATTR_PORT_INDEX, 1);
	if (vb_shim_device_read(dev, "ports/1/state", text, sizeof(text)))
		put_u8(a, RDMA_NLDEV_ATTR_PORT_STATE, (uint8_t)atoi(text));
	if (vb_shim_device_read(dev, "ports/1/phys_state", text, sizeof(text)))
		put_u8(a, RDMA_NLDEV_ATTR_PORT_PHYS_STATE, (uint8_t)atoi(text));
	if (vb_shim_device_read(dev, "ports/1/gid_attrs/ndevs/0", text, sizeof(text))) {
		put_u32(a, RDMA_NLDEV_ATTR_NDEV_INDEX, if_nametoindex(text));
		put_string(a, RDMA_NLDEV_ATTR_NDEV_NAME, text);
	}
}

static uint32_t begin_nest(struct answer *a, uint16_t type)
{
	uint32_t at = a->len;

	put_attribute(a, type | NLA_F_NESTED, NULL, 0);
	return at;
}

static void end_nest(struct answer *a, uint32_t at)
{
	uint16_t len = (uint16_t)(a->len - at);

	memcpy(a->buf + at, &len, sizeof(len));
}

static void put_u64(struct answer *a, uint16_t type, uint64_t v)
{
	put_attribute(a, type, &v, sizeof(v));
}

/* How many objects of each kind the programs of this user have. The kernel counts its own as well. */
static void put_resources(struct answer *a, const struct vb_shim_device *dev)
{
	static const char *const kinds[] = {"cqs", "qps", "contexts"}, *const names[] = {"cq", "qp", "ctx"};
	uint64_t values[3];

	vb_shim_live_numbers(dev->name, kinds, 3, values);
	put_device_name(a, dev);
	uint32_t all = begin_nest(a, RDMA_NLDEV_ATTR_RES_SUMMARY);

	for (unsigned i = 0; i < 3; i++) {
		uint32_t one = begin_nest(a, RDMA_NLDEV_ATTR_RES_SUMMARY_ENTRY);

		put_string(a, RDMA_NLDEV_ATTR_RES_SUMMARY_ENTRY_NAME, names[i]);
		put_u64(a, RDMA_NLDEV_ATTR_RES_SUMMARY_ENTRY_CURR, values[i]);
		end_nest(a, one);
	}
	end_nest(a, all);
}

static void put_statistics(struct answer *a, const struct vb_shim_device *dev)
{
	/* core/counts.h, without what Linux shows as port counters: data and packets */
	static const char *const names[] = {"out_of_sequence",       "packet_seq_err",       "implied_nak_seq_err",
	                                    "duplicate_request",     "rnr_nak_retry_err",    "out_of_buffer",
	                                    "local_ack_timeout_err", "rx_icrc_encapsulated", "req_cqe_error",
	                                    "resp_cqe_error",        "req_cqe_flush_error",  "resp_cqe_flush_error",
	                                    "np_cnp_sent",           "rp_cnp_handled",       "port_xmit_packets",
	                                    "port_rcv_packets",      "bad_pkey_cntr",        "qkey_viol_cntr"};
	enum { COUNTERS = sizeof(names) / sizeof(names[0]) };
	uint64_t values[COUNTERS];

	vb_shim_live_numbers(dev->name, names, COUNTERS, values);
	put_device_name(a, dev);
	put_u32(a, RDMA_NLDEV_ATTR_PORT_INDEX, 1);
	uint32_t all = begin_nest(a, RDMA_NLDEV_ATTR_STAT_HWCOUNTERS);

	for (unsigned i = 0; i < COUNTERS; i++) {
		uint32_t one = begin_nest(a, RDMA_NLDEV_ATTR_STAT_HWCOUNTER_ENTRY);

		put_string(a, RDMA_NLDEV_ATTR_STAT_HWCOUNTER_ENTRY_NAME, names[i]);
		put_u64(a, RDMA_NLDEV_ATTR_STAT_HWCOUNTER_ENTRY_VALUE, values[i]);
		end_nest(a, one);
	}
	end_nest(a, all);
}

/* --- lists of objects --- */

static void put_queue_pair(struct answer *a, const struct vb_shim_resource *r)
{
	bool connected = r->type == IBV_QPT_RC || r->type == IBV_QPT_UC;

	put_u32(a, RDMA_NLDEV_ATTR_PORT_INDEX, 1);
	put_u32(a, RDMA_NLDEV_ATTR_RES_LQPN, r->id);
	if (r->has_peer)
		put_u32(a, RDMA_NLDEV_ATTR_RES_RQPN, r->peer_qpn);
	if (connected)
		put_u32(a, RDMA_NLDEV_ATTR_RES_RQ_PSN, r->rq_psn);
	put_u32(a, RDMA_NLDEV_ATTR_RES_SQ_PSN, r->sq_psn);
	if (connected)
		put_u8(a, RDMA_NLDEV_ATTR_RES_PATH_MIG_STATE, IBV_MIG_MIGRATED);
	put_u8(a, RDMA_NLDEV_ATTR_RES_TYPE, r->type);
	put_u8(a, RDMA_NLDEV_ATTR_RES_STATE, r->state);
	put_u32(a, RDMA_NLDEV_ATTR_RES_PDN, r->pdn);
}

static void put_connection_id(struct answer *a, const struct vb_shim_resource *r)
{
	put_u32(a, RDMA_NLDEV_ATTR_PORT_INDEX, 1);
	put_u8(a, RDMA_NLDEV_ATTR_RES_STATE, r->state);
	put_u32(a, RDMA_NLDEV_ATTR_RES_PS, r->port_space);
	if (r->local.ss_family)
		put_attribute(a, RDMA_NLDEV_ATTR_RES_SRC_ADDR, &r->local, sizeof(r->local));
	if (r->remote.ss_family)
		put_attribute(a, RDMA_NLDEV_ATTR_RES_DST_ADDR, &r->remote, sizeof(r->remote));
	put_u32(a, RDMA_NLDEV_ATTR_RES_CM_IDN, r->id);
}

static void put_completion_queue(struct answer *a, const struct vb_shim_resource *r)
{
	put_u32(a, RDMA_NLDEV_ATTR_RES_CQE, r->cqe);
	put_u64(a, RDMA_NLDEV_ATTR_RES_USECNT, r->users);
	put_u32(a, RDMA_NLDEV_ATTR_RES_CQN, r->id);
}

static void put_region(struct answer *a, const struct vb_shim_resource *r)
{
	put_u32(a, RDMA_NLDEV_ATTR_RES_RKEY, r->id);
	put_u32(a, RDMA_NLDEV_ATTR_RES_LKEY, r->id);
	put_u64(a, RDMA_NLDEV_ATTR_RES_IOVA, r->iova);
	put_u64(a, RDMA_NLDEV_ATTR_RES_MRLEN, r->length);
	put_u32(a, RDMA_NLDEV_ATTR_RES_MRN, r->id);
	put_u32(a, RDMA_NLDEV_ATTR_RES_PDN, r->pdn);
}

static void put_domain(struct answer *a, const struct vb_shim_resource *r)
{
	put_u64(a, RDMA_NLDEV_ATTR_RES_USECNT, r->users);
	put_u32(a, RDMA_NLDEV_ATTR_RES_PDN, r->id);
}

/* A list: the command, the attribute of the table, that of an entry, and that of the number which a request without
 * NLM_F_DUMP gives. */
static const struct list {
	uint16_t op, table, entry, number;
	enum vb_shim_kind kind;
	void (*put)(struct answer *, const struct vb_shim_resource *);
} lists[] = {
        {RDMA_NLDEV_CMD_RES_QP_GET, RDMA_NLDEV_ATTR_RES_QP, RDMA_NLDEV_ATTR_RES_QP_ENTRY, RDMA_NLDEV_ATTR_RES_LQPN,
         VB_SHIM_QP, put_queue_pair},
        {RDMA_NLDEV_CMD_RES_CM_ID_GET, RDMA_NLDEV_ATTR_RES_CM_ID, RDMA_NLDEV_ATTR_RES_CM_ID_ENTRY,
         RDMA_NLDEV_ATTR_RES_CM_IDN, VB_SHIM_CM_ID, put_connection_id},
        {RDMA_NLDEV_CMD_RES_CQ_GET, RDMA_NLDEV_ATTR_RES_CQ, RDMA_NLDEV_ATTR_RES_CQ_ENTRY, RDMA_NLDEV_ATTR_RES_CQN,
         VB_SHIM_CQ, put_completion_queue},
        {RDMA_NLDEV_CMD_RES_MR_GET, RDMA_NLDEV_ATTR_RES_MR, RDMA_NLDEV_ATTR_RES_MR_ENTRY, RDMA_NLDEV_ATTR_RES_MRN,
         VB_SHIM_MR, put_region},
        {RDMA_NLDEV_CMD_RES_PD_GET, RDMA_NLDEV_ATTR_RES_PD, RDMA_NLDEV_ATTR_RES_PD_ENTRY, RDMA_NLDEV_ATTR_RES_PDN,
         VB_SHIM_PD, put_domain},
};

struct listing {
	struct answer *a;
	const struct list *list;
	const struct vb_shim_device *dev;
	bool dump, found;
	uint32_t number; /* without dump: the object that is asked for */
};

/* Each object has a message of its own: the tables of all messages are one list. */
static void put_object(void *arg, const struct vb_shim_resource *r)
{
	struct listing *l = arg;
	struct answer *a = l->a;

	if (!l->dump && (l->found || r->id != l->number))
		return;
	l->found = true;
	answer_begin(a, a->to->nlmsg_type, l->dump ? NLM_F_MULTI : 0);
	put_device_name(a, l->dev);
	uint32_t table = l->dump ? begin_nest(a, l->list->table) : 0;
	uint32_t entry = l->dump ? begin_nest(a, l->list->entry) : 0;

	l->list->put(a, r);
	put_u32(a, RDMA_NLDEV_ATTR_RES_PID, r->pid);
	if (l->dump) {
		end_nest(a, entry);
		end_nest(a, table);
	}
	answer_end(a);
}

static const struct {
	uint16_t op;
	void (*put)(struct answer *, const struct vb_shim_device *);
} per_device[] = {
        {RDMA_NLDEV_CMD_GET, put_device},
        {RDMA_NLDEV_CMD_PORT_GET, put_port},
        {RDMA_NLDEV_CMD_RES_GET, put_resources},
        {RDMA_NLDEV_CMD_STAT_GET, put_statistics},
};

/* Finds an attribute of a request and reads its four bytes. False if there is none. */
static bool find_u32(const uint8_t *p, size_t len, uint16_t type, uint32_t *value)
{
	struct nlattr h;

	while (len >= sizeof(h)) {
		memcpy(&h, p, sizeof(h));
		if (h.nla_len < sizeof(h) || h.nla_len > len)
			return false;
		if ((h.nla_type & NLA_TYPE_MASK) == type && h.nla_len >= sizeof(h) + sizeof(*value)) {
			memcpy(value, p + sizeof(h), sizeof(*value));
			return true;
		}
		size_t step = NLA_ALIGN((size_t)h.nla_len);
		step = step < len ? step : len;
		p += step;
		len -= step;
	}
	return false;
}

/* Returns 0 or a negative errno, as netlink messages carry it. */
static int answer_per_device(struct answer *a, const uint8_t *body, size_t len,
                             void (*put_it)(struct answer *, const struct vb_shim_device *))
{
	struct vb_shim_device dev[VB_SHIM_DEVICES_MAX];
	int n = vb_shim_devices(dev);
	uint32_t index, port;
	bool dump = (a->to->nlmsg_flags & NLM_F_DUMP) == NLM_F_DUMP;
	bool one = find_u32(body, len, RDMA_NLDEV_ATTR_DEV_INDEX, &index);
	bool found = false;

	if (!dump && !one)
		return -EINVAL;
	if (!dump && (put_it == put_port || put_it == put_statistics) &&
	    (!find_u32(body, len, RDMA_NLDEV_ATTR_PORT_INDEX, &port) || port != 1))
		return -EINVAL;
	for (int i = 0; i < n; i++) {
		if (one && dev[i].index != index)
			continue;
		found = true;
		answer_begin(a, a->to->nlmsg_type, dump ? NLM_F_MULTI : 0);
		put_it(a, &dev[i]);
		answer_end(a);
	}
	return found || dump ? 0 : -ENODEV;
}

static const struct list *list_of(uint16_t op)
{
	for (size_t i = 0; i < sizeof(lists) / sizeof(lists[0]); i++)
		if (lists[i].op == op)
			return &lists[i];
	return NULL;
}

/* As answer_per_device, but the device must be named, as the kernel wants it. */
static int answer_list(struct answer *a, const uint8_t *body, size_t len, const struct list *list)
{
	struct vb_shim_device dev[VB_SHIM_DEVICES_MAX];
	struct listing l = {.a = a, .list = list, .dump = (a->to->nlmsg_flags & NLM_F_DUMP) == NLM_F_DUMP};
	uint32_t index;
	int n = vb_shim_devices(dev), i = 0;

	if (!find_u32(body, len, RDMA_NLDEV_ATTR_DEV_INDEX, &index) ||
	    (!l.dump && !find_u32(body, len, list->number, &l.number)))
		return -EINVAL;
	while (i < n && dev[i].index != index)
		i++;
	if (i == n)
		return -EINVAL;
	l.dev = &dev[i];
	vb_shim_resources(list->kind, dev[i].name, put_object, &l);
	return l.found || l.dump ? 0 : -ENOENT;
}

static int answer_system(struct answer *a)
{
	answer_begin(a, a->to->nlmsg_type, 0);
	/* Not shared: each network namespace has its own adapters. */
	put_u8(a, RDMA_NLDEV_SYS_ATTR_NETNS_MODE, 0);
	put_u8(a, RDMA_NLDEV_SYS_ATTR_COPY_ON_FORK, 1);
	answer_end(a);
	return 0;
}

static void answer_one(struct answer *a, const uint8_t *body, size_t len)
{
	uint16_t op = RDMA_NL_GET_OP(a->to->nlmsg_type);
	bool dump = (a->to->nlmsg_flags & NLM_F_DUMP) == NLM_F_DUMP;
	int32_t rc = -EOPNOTSUPP;

	if (RDMA_NL_GET_CLIENT(a->to->nlmsg_type) == RDMA_NL_NLDEV) {
		if (op == RDMA_NLDEV_CMD_SYS_GET)
			rc = answer_system(a);
		for (size_t i = 0; i < sizeof(per_device) / sizeof(per_device[0]); i++)
			if (per_device[i].op == op)
				rc = answer_per_device(a, body, len, per_device[i].put);
		if (list_of(op))
			rc = answer_list(a, body, len, list_of(op));
	}
	if (!rc && dump) {
		answer_begin(a, NLMSG_DONE, NLM_F_MULTI);
		answer_append(a, &rc, sizeof(rc));
		answer_end(a);
	} else if (rc || (a->to->nlmsg_flags & NLM_F_ACK)) {
		answer_begin(a, NLMSG_ERROR, NLM_F_CAPPED);
		answer_append(a, &rc, sizeof(rc));
		answer_append(a, a->to, sizeof(*a->to));
		answer_end(a);
	}
	/* The kernel sends the acknowledgement in a datagram of its own, and may do so with the end of a dump. */
	answer_flush(a);
}

void vb_shim_nldev_answer(const void *request, size_t len, vb_shim_nldev_emit *emit, void *arg)
{
	const uint8_t *p = request;
	struct nlmsghdr h;

	while (len >= sizeof(h)) {
		struct answer a = {.emit = emit, .arg = arg, .to = &h};

		memcpy(&h, p, sizeof(h));
		if (h.nlmsg_len < sizeof(h) || h.nlmsg_len > len)
			return;
		if (h.nlmsg_flags & NLM_F_REQUEST)
			answer_one(&a, p + sizeof(h), h.nlmsg_len - sizeof(h));
		size_t step = NLMSG_ALIGN((size_t)h.nlmsg_len);
		step = step < len ? step : len;
		p += step;
		len -= step;
	}
}
