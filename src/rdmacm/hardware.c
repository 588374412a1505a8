// hardware.c - ids that the system's librdmacm serves, beside ours on one event channel
// follows: rdma_create_id(3), rdma_get_cm_event(3), rdma_bind_addr(3); epoll(7)
// SPDX-License-Identifier: MIT
#include "rdmacm/hardware.h"

#include <dlfcn.h>
#include <fcntl.h>
#include <ifaddrs.h>
#include <net/if.h>
#include <stdlib.h>
#include <sys/epoll.h>
#include <sys/syscall.h>
#include <unistd.h>

#include "abi/hardware.h"
#include "rdmacm/fabric.h"
#include "util/hardware.h"
#include "util/log.h"

struct rcm_real rcm_real;
static pthread_once_t once = PTHREAD_ONCE_INIT;
static atomic_bool loaded;

/* Tells this library from the system's, which has no such symbol. */
RCM_EXPORT extern const char vb_rdmacm_mark[];
const char vb_rdmacm_mark[] = "Verbena";

static void load_once(void)
{
	void *handle = vb_hardware_open("librdmacm.so.1", "vb_rdmacm_mark");

	if (!handle) {
		vb_log(VB_LOG_ERROR, "the kernel has RDMA devices, but the system's librdmacm.so.1 cannot be loaded: "
		                     "rdma_cm uses Verbena's devices only");
		return;
	}
#define CALL(name) rcm_real.name = (__typeof__(rcm_real.name))dlsym(handle, "rdma_" #name);
#include "rdmacm/hardware.inc"
	vb_hardware_cm_is(dlsym(handle, "rdma_create_id"));
	atomic_store(&loaded, true);
}

bool rcm_hw_load(void)
{
	if (!atomic_load_explicit(&loaded, memory_order_acquire) && vb_hardware_load())
		pthread_once(&once, load_once);
	return atomic_load_explicit(&loaded, memory_order_acquire);
}

bool rcm_hw_calls(const void *caller)
{
	return atomic_load_explicit(&loaded, memory_order_relaxed) && vb_hardware_is_cm(caller);
}

/* The fields that programs and the library both set. */
static void copy_fields(struct rdma_cm_id *to, const struct rdma_cm_id *from)
{
	to->qp = from->qp;
	to->send_cq_channel = from->send_cq_channel;
	to->send_cq = from->send_cq;
	to->recv_cq_channel = from->recv_cq_channel;
	to->recv_cq = from->recv_cq;
	to->srq = from->srq;
	to->pd = from->pd;
	to->qp_type = from->qp_type;
}

struct rdma_cm_id *rcm_hw_real(struct rdma_cm_id *cm_id, const void *caller)
{
	if (!atomic_load_explicit(&loaded, memory_order_acquire) || !cm_id)
		return NULL;
	if (vb_hardware_is_cm(caller))
		return cm_id;
	struct rcm_id *id = rcm_id(cm_id);

	if (!id->real || id->by_both)
		return NULL;
	copy_fields(id->real, cm_id);
	return id->real;
}

static void show_real(struct rdma_cm_id *cm_id, const struct rdma_cm_id *real)
{
	copy_fields(cm_id, real);
	cm_id->verbs = real->verbs;
	cm_id->route = real->route;
	cm_id->port_num = real->port_num;
	cm_id->ps = real->ps;
}

/* What an event changes. The program may meanwhile have set the other fields, or freed what they name. */
static void show_changed(struct rdma_cm_id *cm_id, const struct rdma_cm_id *real)
{
	cm_id->verbs = real->verbs;
	cm_id->route = real->route;
	cm_id->port_num = real->port_num;
	if (!cm_id->pd)
		cm_id->pd = real->pd;
}

int rcm_hw_done(struct rdma_cm_id *cm_id, struct rdma_cm_id *real, int ret)
{
	if (cm_id != real)
		show_real(cm_id, real);
	return ret;
}

int rcm_hw_wait(struct rdma_cm_id *cm_id, struct rdma_cm_id *real, int ret)
{
	rcm_hw_done(cm_id, real, ret);
	return ret || cm_id == real ? ret : rcm_result(rcm_complete(rcm_id(cm_id)));
}

static bool is_address_of(const struct ifaddrs *a, const uint8_t gid[16])
{
	union rcm_addr addr;
	uint8_t own[16];

	if (!a->ifa_addr || (a->ifa_addr->sa_family != AF_INET && a->ifa_addr->sa_family != AF_INET6))
		return false;
	rcm_addr_copy(&addr, a->ifa_addr);
	rcm_addr_gid(&addr, own);
	return !memcmp(own, gid, sizeof(own));
}

/* The index of the interface with this address, or 0. */
static int interface_of(const union rcm_addr *addr)
{
	struct ifaddrs *list, *a;
	uint8_t gid[16];
	int ifindex = 0;

	if (rcm_addr_link_local(addr))
		return (int)rcm_addr_scope(addr);
	rcm_addr_gid(addr, gid);
	if (getifaddrs(&list))
		return 0;
	for (a = list; a && !ifindex; a = a->ifa_next)
		if (is_address_of(a, gid))
			ifindex = (int)if_nametoindex(a->ifa_name);
	freeifaddrs(list);
	return ifindex;
}

/* Does the kernel bind an id to this address on one of its devices? Such an address may be of an interface that is not
 * the device's own: a VLAN, a bond, IPoIB. */
static bool kernel_binds(const union rcm_addr *local)
{
	union rcm_addr addr = *local;
	struct rdma_cm_id *id;
	bool binds = false;

	vb_hardware_aside(true);
	struct rdma_event_channel *ch = rcm_real.create_event_channel();
	vb_hardware_aside(false);
	if (!ch)
		return false;
	rcm_addr_set_port(&addr, 0);
	if (!rcm_real.create_id(ch, &id, NULL, RDMA_PS_TCP)) {
		binds = !rcm_real.bind_addr(id, &addr.sa) && id->verbs;
		rcm_real.destroy_id(id);
	}
	rcm_real.destroy_event_channel(ch);
	return binds;
}

static bool is_of_hardware(const union rcm_addr *local)
{
	int ifindex = interface_of(local), saved = errno;

	if (!ifindex || rcm_addr_loopback(local))
		return ifindex && vb_hardware_covers(ifindex);
	bool found = vb_hardware_covers(ifindex) || kernel_binds(local);

	errno = saved;
	return found;
}

enum rcm_server rcm_hw_server(const struct rcm_id *id, const union rcm_addr *local)
{
	if (local->sa.sa_family == AF_IB && rcm_fabric_present())
		return RCM_BY_VERBENA;
	if (id->kind != RCM_EITHER || !rcm_hw_load()) /* the transport option is Verbena's */
		return RCM_BY_VERBENA;
	if (vb_hardware_wanted() == VB_HARDWARE_ONLY)
		return RCM_BY_HARDWARE;
	if (rcm_addr_any(local))
		return RCM_BY_BOTH;
	return is_of_hardware(local) ? RCM_BY_HARDWARE : RCM_BY_VERBENA;
}

enum rcm_server rcm_hw_server_to(const struct rcm_id *id, const struct sockaddr *src, const struct sockaddr *dst)
{
	union rcm_addr any = {.sa.sa_family = dst->sa_family}, to, local;
	struct vb_fabric_address found;

	if (id->kind != RCM_EITHER || !rcm_hw_load() || ((id->bound || id->fabric_binding) && !id->by_both))
		return RCM_BY_VERBENA;
	if (vb_hardware_wanted() == VB_HARDWARE_ONLY)
		return RCM_BY_HARDWARE;
	rcm_addr_copy(&to, dst);
	if (rcm_fabric_present() && (to.sa.sa_family == AF_IB || !rcm_fabric_look_up(&to, &found)))
		return RCM_BY_VERBENA;
	if (src && rcm_addr_len(src)) {
		rcm_addr_copy(&local, src);
		if (!rcm_addr_any(&local))
			return rcm_hw_server(id, &local);
	}
	if (rcm_addr_link_local(&to))
		return vb_hardware_covers((int)rcm_addr_scope(&to)) ? RCM_BY_HARDWARE : RCM_BY_VERBENA;
	if (rcm_route_source(&to, &any, &local) || rcm_addr_any(&local))
		return RCM_BY_VERBENA;
	return rcm_hw_server(id, &local);
}

/* The options that the program set before its id had a device. */
static void replay_options(const struct rcm_id *id)
{
	int on = 1, afonly = id->afonly;
	uint8_t tos = id->tos, timeout = id->ack_timeout;

	if (id->reuse)
		rcm_real.set_option(id->real, RDMA_OPTION_ID, RDMA_OPTION_ID_REUSEADDR, &on, sizeof(on));
	if (id->afonly_set)
		rcm_real.set_option(id->real, RDMA_OPTION_ID, RDMA_OPTION_ID_AFONLY, &afonly, sizeof(afonly));
	if (tos)
		rcm_real.set_option(id->real, RDMA_OPTION_ID, RDMA_OPTION_ID_TOS, &tos, sizeof(tos));
	if (id->ack_timeout_set)
		rcm_real.set_option(id->real, RDMA_OPTION_ID, RDMA_OPTION_ID_ACK_TIMEOUT, &timeout, sizeof(timeout));
}

/* A thread that waits for an event of ours only is woken, so that it waits for both kinds. */
static void wake_reader(const struct rcm_channel *ch)
{
	const uint64_t one = 1;

	if (atomic_load(&ch->inside))
		syscall(SYS_write, ch->units, &one, sizeof(one));
}

int rcm_hw_attach(struct rcm_channel *ch)
{
	struct epoll_event ev = {.events = EPOLLIN};
	struct rdma_event_channel *none = NULL, *real;

	if (atomic_load(&ch->real))
		return 0;
	vb_hardware_aside(true);
	real = rcm_real.create_event_channel();
	vb_hardware_aside(false);
	if (!real)
		return errno ? errno : ENODEV;
	if (fcntl(real->fd, F_SETFL, fcntl(real->fd, F_GETFL) | O_NONBLOCK) ||
	    epoll_ctl(ch->channel.fd, EPOLL_CTL_ADD, real->fd, &ev) ||
	    !atomic_compare_exchange_strong(&ch->real, &none, real)) {
		int err = errno;

		rcm_real.destroy_event_channel(real);
		return none ? 0 : err;
	}
	wake_reader(ch);
	return 0;
}

/* The real id's context is our id. The program's context is in ours. */
int rcm_hw_start(struct rcm_id *id)
{
	struct rcm_channel *ch = rcm_channel(id->id.channel);
	struct rdma_cm_id *real;
	int err = rcm_hw_attach(ch);

	if (err)
		return err;
	if (rcm_real.create_id(atomic_load(&ch->real), &real, id, id->id.ps))
		return errno;
	real->qp_type = id->id.qp_type;
	id->real = real;
	id->by_both = false;
	replay_options(id);
	return 0;
}

void rcm_hw_abandon(struct rcm_id *id)
{
	if (id->real && !id->by_both)
		id->id.route.path_rec = NULL; /* the real id's */
	id->real = NULL;
	id->by_both = false;
}

void rcm_hw_end(struct rcm_id *id)
{
	struct rdma_cm_id *real = id->real;

	if (!real)
		return;
	/* It waits for events of this id that another thread has fetched and that wrap_event still reads. */
	rcm_real.destroy_id(real);
	rcm_hw_abandon(id);
}

/* A new connection: an id of ours around the real one. */
static struct rcm_id *adopt_real(struct rdma_cm_id *real, const struct rcm_id *listener)
{
	struct rcm_id *child = rcm_id_new(listener->id.ps, listener->id.qp_type, listener->id.context);

	if (!child) {
		rcm_real.destroy_id(real);
		return NULL;
	}
	child->real = real;
	real->context = child;
	child->delivers_events = true;
	child->id.channel = listener->id.channel;
	show_real(&child->id, real);
	rcm_lock();
	rcm_link(child);
	rcm_unlock();
	if (!listener->sync || !rdma_migrate_id(&child->id, NULL))
		return child;
	rdma_destroy_id(&child->id);
	return NULL;
}

/* Ours for the program, with the real one behind it. Its id and its listener are ours. */
static struct rcm_event *wrap_event(struct rdma_cm_event *real)
{
	bool request = real->event == RDMA_CM_EVENT_CONNECT_REQUEST;
	struct rcm_id *owner = request ? real->listen_id->context : real->id->context;
	struct rcm_event *e = rcm_event_new(owner, real->event, real->status);
	struct rcm_id *id = e && request ? adopt_real(real->id, owner) : owner;

	if (!e || !id) {
		free(e);
		return NULL;
	}
	e->event = *real;
	e->event.id = &id->id;
	e->event.listen_id = request ? &owner->id : NULL;
	e->real = real;
	if (!request && !id->by_both)
		show_changed(&id->id, id->real);
	return e;
}

struct rcm_event *rcm_hw_event(struct rcm_channel *ch)
{
	struct rdma_event_channel *real = atomic_load(&ch->real);
	struct rdma_cm_event *event;

	if (rcm_real.get_cm_event(real, &event))
		return NULL;
	struct rcm_event *e = wrap_event(event);

	if (!e) {
		rcm_real.ack_cm_event(event);
		errno = EAGAIN;
	}
	return e;
}
