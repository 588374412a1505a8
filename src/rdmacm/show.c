// show.c - the verb of the control socket that shows communication ids
// follows: docs/control.md; rdma-resource(8), cm_id
// SPDX-License-Identifier: MIT
#include <arpa/inet.h>
#include <inttypes.h>
#include <stdio.h>

#include "node/control.h"
#include "rdmacm/rdmacm.h"

#define PAGE_IDS 256u

/* The kernel's names, as `rdma resource show cm_id` prints them. */
static const char *id_state_text(enum rcm_state state)
{
	static const char *const names[] = {
	        [RCM_IDLE] = "IDLE",
	        [RCM_BOUND] = "ADDR_BOUND",
	        [RCM_ADDR_QUERY] = "ADDR_QUERY",
	        [RCM_ADDR_RESOLVED] = "ADDR_RESOLVED",
	        [RCM_ROUTE_RESOLVED] = "ROUTE_RESOLVED",
	        [RCM_LISTEN] = "LISTEN",
	        [RCM_CONNECT] = "CONNECT",
	        [RCM_DISCONNECT] = "DISCONNECT",
	        [RCM_REMOVED] = "DEVICE_REMOVAL",
	};

	return (unsigned)state < sizeof(names) / sizeof(names[0]) ? names[state] : "UNKNOWN";
}

static const char *port_space_text(enum rdma_port_space ps)
{
	return ps == RDMA_PS_TCP     ? "TCP"
	       : ps == RDMA_PS_UDP   ? "UDP"
	       : ps == RDMA_PS_IB    ? "IB"
	       : ps == RDMA_PS_IPOIB ? "IPOIB"
	                             : "UNKNOWN";
}

static void put_address(struct vb_text *out, const char *member, const union rcm_addr *addr)
{
	char text[INET6_ADDRSTRLEN];
	bool v6 = addr->sa.sa_family == AF_INET6 || addr->sa.sa_family == AF_IB;

	if (!v6 && addr->sa.sa_family != AF_INET)
		return;
	if (addr->sa.sa_family == AF_IB)
		inet_ntop(AF_INET6, &addr->sib.sib_addr, text, sizeof(text));
	else
		inet_ntop(addr->sa.sa_family,
		          v6 ? (const void *)&addr->sin6.sin6_addr : (const void *)&addr->sin.sin_addr, text,
		          sizeof(text));
	vb_text_format(out, v6 ? ", \"%s\": \"[%s]:%u\"" : ", \"%s\": \"%s:%u\"", member, text, rcm_addr_port(addr));
}

static void put_id(struct vb_text *out, const struct rcm_id *id)
{
	vb_text_format(out, "{\"state\": \"%s\", \"port_space\": \"%s\"", id_state_text(id->state),
	               port_space_text(id->id.ps));
	if (id->source.dev) {
		vb_text_put(out, ", \"device\": ");
		vb_text_quote(out, id->source.dev->verbs->device->name);
		vb_text_format(out, ", \"transport\": \"%s\"",
		               id->source.dev->iwarp    ? "iwarp"
		               : id->source.dev->fabric ? "ib"
		                                        : "roce");
	}
	if (id->path.remote_qpn)
		vb_text_format(out, ", \"peer_qpn\": %" PRIu32, id->path.remote_qpn);
	put_address(out, "local", &id->src);
	put_address(out, "remote", &id->dst);
	vb_text_put(out, "}");
}

/* Returns the number of ids in the list. Those from first on, up to last, are put. rcm.lock held. */
static uint64_t put_ids(struct vb_text *out, const struct rcm_id *list, uint64_t index, uint64_t first, uint64_t last)
{
	for (; list; list = list->next, index++) {
		if (index < first || index >= last)
			continue;
		vb_text_put(out, index > first ? ",\n " : "\n ");
		put_id(out, list);
	}
	return index;
}

static int serve_connections(struct vb_control_call *call)
{
	uint64_t from = 0;

	if (!vb_control_number(call->args, "from", &from) || from > UINT32_MAX)
		return EINVAL;
	uint64_t last = from + PAGE_IDS;

	vb_text_put(call->out, "{\"connections\": [");
	rcm_lock();
	uint64_t n = put_ids(call->out, rcm.listeners, 0, from, last);
	n = put_ids(call->out, rcm.ids, n, from, last);
	rcm_unlock();
	vb_text_put(call->out, "]");
	if (n > last)
		vb_text_format(call->out, ", \"next\": %" PRIu64, last);
	vb_text_put(call->out, "}\n");
	return 0;
}

void rcm_show_start(void)
{
	vb_control_add("connections", serve_connections);
}
