// bind.c - binds ids to an address and a port, and listens there
// follows: rdma_bind_addr(3), rdma_listen(3), rdma_get_src_port(3)
// SPDX-License-Identifier: MIT
#include <stdio.h>

#include "rdmacm/fabric.h"
#include "rdmacm/hardware.h"
#include "rdmacm/rdmacm.h"

#define PORTS_TRIED 64

/* Reads net.ipv6.bindv6only, the default of an IPv6 id. */
static bool v6_only_preset(void)
{
	FILE *f = fopen("/proc/sys/net/ipv6/bindv6only", "re");
	int c = f ? fgetc(f) : '0';

	if (f)
		fclose(f);
	return c == '1';
}

static bool wants_afonly(const struct rcm_id *id, const union rcm_addr *addr)
{
	return id->afonly_set ? id->afonly : addr->sa.sa_family == AF_INET || v6_only_preset();
}

static int bind_port(struct rcm_id *id, union rcm_addr *addr, const struct rcm_source *source, bool afonly)
{
	bool v4 = addr->sa.sa_family == AF_INET;
	uint16_t port = rcm_addr_port(addr);
	uint8_t gid[16] = {0};

	if (source->dev)
		rcm_addr_gid(addr, gid);
	int err = vb_gsi_client_bind(rcm.gsi, (uint16_t)id->id.ps, gid, v4, !v4 && afonly, source->ifindex, &port,
	                             id->reuse, &id->binding);

	if (!err)
		rcm_addr_set_port(addr, port);
	return err;
}

/* Binds to a port chosen by the broker that is also free for TCP, in case the program listens. */
static int bind_passive(struct rcm_id *id, union rcm_addr *addr, const struct rcm_source *source, bool afonly)
{
	const union rcm_addr want = *addr;
	int err;

	for (int i = 0; i < PORTS_TRIED; i++) {
		*addr = want;
		err = bind_port(id, addr, source, afonly);
		if (err || rcm_addr_port(&want) || !rcm_iw_port_is_taken(id, addr, source, afonly))
			return err;
		vb_gsi_client_unbind(rcm.gsi, id->binding);
	}
	return EADDRINUSE;
}

/* At all addresses: of the fabric, and of the other adapters. A host of the fabric is one among several on this machine, so
 * another one's program may have the port there. Then this id is on the fabric alone. */
static int bind_everywhere(struct rcm_id *id, union rcm_addr *addr, const struct rcm_source *source, bool afonly)
{
	const union rcm_addr want = *addr;
	int err = 0;

	for (int i = 0; i < PORTS_TRIED; i++) {
		*addr = want;
		err = rcm_fabric_bind(id, addr, source);
		if (err)
			return err;
		err = bind_passive(id, addr, source, afonly);
		id->bound = !err;
		if (!err || (err == EADDRINUSE && rcm_addr_port(&want)))
			return 0;
		rcm_fabric_unbind(id);
		if (err != EADDRINUSE)
			return err;
	}
	return err;
}

static int bind_somewhere(struct rcm_id *id, union rcm_addr *addr, const struct rcm_source *source, bool afonly,
                          bool passive)
{
	int err;

	id->bound = false;
	if (addr->sa.sa_family == AF_IB || (source->dev && source->dev->fabric))
		return rcm_fabric_bind(id, addr, source);
	if (passive && !source->dev && rcm_addr_any(addr) && rcm_fabric_present())
		return bind_everywhere(id, addr, source, afonly);
	err = (passive ? bind_passive : bind_port)(id, addr, source, afonly);
	id->bound = !err;
	return err;
}

/* The source of an address that is not the unspecified one. */
static int find_source(const struct rcm_id *id, const union rcm_addr *addr, struct rcm_source *source)
{
	uint8_t gid[16];

	if (addr->sa.sa_family == AF_IB || (rcm_fabric_present() && id->kind != RCM_IWARP)) {
		int err = rcm_fabric_source(addr, source);

		if (!err || addr->sa.sa_family == AF_IB)
			return err;
	}
	rcm_addr_gid(addr, gid);
	int err = rcm_find_source(id->kind, gid, rcm_addr_scope(addr), source);

	/* As in the kernel, a loopback address that no adapter has is bound like the unspecified address. */
	return err == ENODEV && rcm_addr_loopback(addr) ? 0 : err;
}

int rcm_bind(struct rcm_id *id, const union rcm_addr *want, bool passive)
{
	union rcm_addr addr = *want;
	struct rcm_source source = {0};
	int err;

	if (id->state != RCM_IDLE || (rcm_addr_link_local(&addr) && !addr.sin6.sin6_scope_id))
		return EINVAL;
	if (addr.sa.sa_family == AF_IB) {
		enum vb_port_space space = rcm_fabric_space(id, &addr);

		if (!space)
			return EPROTONOSUPPORT;
		id->space = space;
	}
	if (!rcm_addr_any(&addr)) {
		err = find_source(id, &addr, &source);
		if (err)
			return err;
	}
	bool afonly = wants_afonly(id, &addr);
	err = bind_somewhere(id, &addr, &source, afonly, passive);
	if (err)
		return err;
	rcm_lock();
	id->afonly = afonly;
	id->port_given = rcm_addr_port(want) != 0;
	id->src = addr;
	id->source = source;
	id->state = RCM_BOUND;
	rcm_unlock();
	return 0;
}

int rcm_rebind(struct rcm_id *id)
{
	bool v6 = id->src.sa.sa_family == AF_INET6;

	int err = id->fabric_binding ? rcm_fabric_rebind(id) : 0;

	return !err && id->bound ? vb_gsi_client_change(rcm.gsi, id->binding, v6 && id->afonly, id->reuse) : err;
}

/* Shows the program its bound address. */
static int show_binding(struct rcm_id *id)
{
	rcm_show_addresses(id);
	return id->source.dev ? rcm_show_device(id) : 0;
}

/* With the kernel's adapters an id that is bound to a loopback address names no adapter. A program that looks for
 * adapters in this way (libfabric) then offers all of them. Here lo has an adapter, and libfabric would offer no
 * other. */
static bool is_for_any_adapter(const struct rcm_id *id, const struct sockaddr *addr)
{
	return id->kind == RCM_EITHER && rcm_addr_for_any_adapter(addr) && rcm_has_adapter_beside(id->source.ifindex);
}

static __be16 port_of(const struct sockaddr_storage *addr)
{
	union rcm_addr a = {.ss = *addr};

	return a.sa.sa_family == AF_INET || a.sa.sa_family == AF_INET6 || a.sa.sa_family == AF_IB
	               ? htons(rcm_addr_port(&a))
	               : 0;
}

/* Binds the id, which the system's librdmacm serves, there. It gives the port if *addr has none. */
static int bind_real(struct rcm_id *id, union rcm_addr *addr)
{
	if (rcm_real.bind_addr(id->real, &addr->sa)) {
		int err = errno;

		rcm_hw_end(id);
		return err;
	}
	rcm_addr_set_port(addr, ntohs(port_of(&id->real->route.addr.src_storage)));
	return 0;
}

/* Binds to all addresses, at both. A kernel without rdma_cm leaves the id to Verbena. */
static int bind_to_both(struct rcm_id *id, const union rcm_addr *want)
{
	int err = EADDRINUSE;

	for (int i = 0; i < PORTS_TRIED && err == EADDRINUSE; i++) {
		union rcm_addr addr = *want;

		if (rcm_hw_start(id))
			return rcm_bind(id, want, true);
		err = bind_real(id, &addr);
		if (err)
			return err;
		id->by_both = true;
		err = rcm_bind(id, &addr, true);
		if (err)
			rcm_hw_end(id);
		if (rcm_addr_port(want))
			break;
	}
	return err;
}

static int bind_to_hardware(struct rcm_id *id, const union rcm_addr *want)
{
	union rcm_addr addr = *want;
	int err = rcm_hw_start(id);

	return err ? err : bind_real(id, &addr);
}

/* Binds the id where its address belongs. */
static int bind_id(struct rcm_id *id, const union rcm_addr *want)
{
	enum rcm_server server = id->state == RCM_IDLE && !id->real ? rcm_hw_server(id, want) : RCM_BY_VERBENA;

	if (server == RCM_BY_BOTH)
		return bind_to_both(id, want);
	return server == RCM_BY_HARDWARE ? bind_to_hardware(id, want) : rcm_bind(id, want, true);
}

RCM_EXPORT int rdma_bind_addr(struct rdma_cm_id *cm_id, struct sockaddr *addr)
{
	struct rcm_id *id = rcm_id(cm_id);
	union rcm_addr want;

	if (rcm_hw_calls(__builtin_return_address(0)))
		return rcm_real.bind_addr(cm_id, addr);
	if (!rcm_ours(id) || !rcm_addr_len(addr))
		return -1;
	RCM_HARDWARE(bind_addr, cm_id, addr);
	rcm_addr_copy(&want, addr);
	int err = bind_id(id, &want);

	if (!err && id->real && !id->by_both)
		return rcm_hw_done(cm_id, id->real, 0);

	if (!err && is_for_any_adapter(id, addr)) {
		rcm_show_addresses(id);
		return 0;
	}
	return rcm_result(err ? err : show_binding(id));
}

static int bind_to_any(struct rcm_id *id)
{
	union rcm_addr any = {.sin.sin_family = AF_INET};
	int err = bind_id(id, &any);

	return err || (id->real && !id->by_both) ? err : show_binding(id);
}

static bool change_state(struct rcm_id *id, enum rcm_state from, enum rcm_state to)
{
	rcm_lock();
	bool changed = id->state == from;

	if (changed) {
		id->state = to;
		rcm_unlink(id);
		rcm_link(id);
	}
	rcm_unlock();
	return changed;
}

RCM_EXPORT int rdma_listen(struct rdma_cm_id *cm_id, int backlog)
{
	struct rcm_id *id = rcm_id(cm_id);

	if (rcm_hw_calls(__builtin_return_address(0)))
		return rcm_real.listen(cm_id, backlog);
	if (!rcm_ours(id))
		return -1;
	int err = id->state == RCM_IDLE && !id->real ? bind_to_any(id) : 0;

	if (err)
		return rcm_fail(err);
	RCM_HARDWARE(listen, cm_id, backlog);
	if (id->by_both && rcm_real.listen(id->real, backlog))
		return -1;
	if (!id->source.dev)
		rcm_open_devices();
	id->backlog_free = backlog > 0 && backlog < RCM_BACKLOG ? backlog : RCM_BACKLOG;
	id->backlog_size = id->backlog_free;
	/* Change the state first: a request may arrive before the call returns. */
	if (!change_state(id, RCM_BOUND, RCM_LISTEN))
		return rcm_fail(EINVAL);
	err = id->bound ? rcm_iw_listen(id) : 0;
	if (!err && id->bound)
		err = vb_gsi_client_listen(rcm.gsi, id->binding);
	if (!err && id->fabric_binding)
		err = rcm_fabric_listen(id);
	if (err) {
		rcm_lock();
		rcm_iw_end(id);
		rcm_unlock();
		change_state(id, RCM_LISTEN, RCM_BOUND);
		return rcm_fail(err);
	}
	rcm_lock();
	rcm_late_listening();
	rcm_rearm();
	rcm_unlock();
	return 0;
}

RCM_EXPORT __be16 rdma_get_src_port(struct rdma_cm_id *id)
{
	return port_of(&id->route.addr.src_storage);
}

RCM_EXPORT __be16 rdma_get_dst_port(struct rdma_cm_id *id)
{
	return port_of(&id->route.addr.dst_storage);
}
