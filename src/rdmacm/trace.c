// trace.c - logs each CM message and each event of librdmacm, with VERBENA_LOG=debug
// follows: IBA volume 1, 12.6 (messages); rdma_get_cm_event(3)
// SPDX-License-Identifier: MIT
#include <arpa/inet.h>
#include <stdatomic.h>
#include <stdio.h>

#include "rdmacm/fabric.h"
#include "util/log.h"

static const char *attr_name(enum vb_cm_attr attr)
{
	switch (attr) {
#define X(code, name, field, len) \
	case VB_CM_##name:        \
		return #name;
		VB_CM_MESSAGES(X)
#undef X
	}
	return "?";
}

struct ids {
	uint32_t from, to; /* ids of sender and receiver; 0 if not known yet */
};

static struct ids ids_of(const struct vb_cm_msg *msg)
{
	switch (msg->attr) {
	case VB_CM_REQ:
		return (struct ids){.from = msg->req.local_comm_id};
	case VB_CM_SIDR_REQ:
		return (struct ids){.from = msg->sidr_req.request_id};
	case VB_CM_SIDR_REP:
		return (struct ids){.to = msg->sidr_rep.request_id};
#define BOTH(name, field)  \
	case VB_CM_##name: \
		return (struct ids){msg->field.local_comm_id, msg->field.remote_comm_id};
		BOTH(MRA, mra)
		BOTH(REJ, rej)
		BOTH(REP, rep)
		BOTH(RTU, rtu)
		BOTH(DREQ, dreq)
		BOTH(DREP, drep)
		BOTH(LAP, lap)
		BOTH(APR, apr)
#undef BOTH
	}
	return (struct ids){0};
}

static const char *state_of(uint32_t id)
{
	const struct vb_cm_conn *conn = id ? vb_cm_find(&rcm.cm, id) : NULL;

	return conn ? vb_cm_state_text(conn->state) : "no connection";
}

static void address_text(char text[INET6_ADDRSTRLEN], const uint8_t gid[16])
{
	if (vb_gid_is_ipv4(gid))
		inet_ntop(AF_INET, gid + 12, text, INET6_ADDRSTRLEN);
	else
		inet_ntop(AF_INET6, gid, text, INET6_ADDRSTRLEN);
}

static void peer_text(char text[INET6_ADDRSTRLEN], const struct vb_cm_addr *addr)
{
	if (rcm_fabric_is_from(addr))
		snprintf(text, INET6_ADDRSTRLEN, "LID %u", rcm_fabric_lid(addr));
	else
		address_text(text, addr->remote);
}

void rcm_trace_mad(bool sent, const struct vb_cm_addr *addr, const uint8_t *mad, size_t len)
{
	char peer[INET6_ADDRSTRLEN];
	struct vb_cm_msg msg;

	if (vb_log_threshold() < VB_LOG_DEBUG || !vb_cm_decode(&msg, mad, len))
		return;
	struct ids ids = ids_of(&msg);
	uint32_t ours = sent ? ids.from : ids.to, theirs = sent ? ids.to : ids.from;

	peer_text(peer, addr);
	vb_log(VB_LOG_DEBUG, "cm: %s %s %s %s, id %08x, its id %08x, transaction %016llx: %s", sent ? "sends" : "gets",
	       attr_name(msg.attr), sent ? "to" : "from", peer, ours, theirs, (unsigned long long)msg.tid,
	       state_of(ours));
}

void rcm_trace_event(const struct rcm_event *e)
{
	const struct rcm_id *id = e->owner;
	const struct vb_cm_conn *conn = e->event.id ? rcm_id(e->event.id)->conn : NULL;

	if (vb_log_threshold() < VB_LOG_DEBUG)
		return;
	vb_log(VB_LOG_DEBUG, "cm: event %s, status %d, of %p, id %08x: %s", rdma_event_str(e->event.event),
	       e->event.status, (void *)id, conn ? conn->local_comm_id : 0,
	       conn ? vb_cm_state_text(conn->state) : "no connection");
}

void rcm_trace_silence(const struct rcm_id *id)
{
	static atomic_bool said;
	char to[INET6_ADDRSTRLEN];
	uint8_t gid[16];

	if (id->iwarp_here || rcm_on_fabric(id) || atomic_exchange(&said, true))
		return;
	rcm_addr_gid(&id->dst, gid);
	address_text(to, gid);
	vb_log(VB_LOG_ERROR,
	       "%s has not answered a connection request: \"verbena doctor\" and \"verbena doctor %s\" tell a taken port, a "
	       "firewall and a dead host apart",
	       to, to);
}
