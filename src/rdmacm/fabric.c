// fabric.c - queue pair 1 of the port on an InfiniBand fabric: the connection to the fabric process, and what comes and goes by it
// follows: IBA volume 1, 12 (communication management), 13.5.3; fabric/proto/proto.h; docs/infiniband.md
// SPDX-License-Identifier: MIT
#include <arpa/inet.h>
#include <fcntl.h>
#include <stdlib.h>
#include <sys/epoll.h>
#include <sys/socket.h>
#include <unistd.h>

#include "node/fd_watch.h"
#include "rdmacm/fabric.h"
#include "util/calls.h"
#include "util/log.h"

enum { AT_A_TIME = 64, QUEUED_MOST = 65536, TRIES = 10000, TRY_US = 1000 };

struct letter {
	struct letter *next;
	size_t len;
	union {
		struct vb_fabric_cm_mad mad;
		struct vb_fabric_sa_ask ask;
	} m;
};

/* rcm.lock guards it. */
static struct {
	int sock; /* -1: there is no fabric, or its process has ended */
	struct vb_fd_watch *watch, *parents;
	struct letter *first, **last; /* messages that did not fit in the socket */
	unsigned queued;
	uint32_t last_binding, last_question;
} fabric = {.sock = -1, .last = &fabric.first};

bool rcm_fabric_present(void)
{
	return __atomic_load_n(&fabric.sock, __ATOMIC_ACQUIRE) >= 0;
}

/* --- addresses --- */

#define IS_OF_FABRIC (1u << 31)

/* LIDs stand in the place of GIDs, because most datagrams have no GRH. The rest is where send finds it again. */
struct vb_cm_addr rcm_fabric_addr(uint16_t lid, uint16_t pkey, uint8_t sl, uint8_t path_bits)
{
	struct vb_cm_addr addr = {.ifindex = IS_OF_FABRIC | (uint32_t)(path_bits & 0x7f) << 20 |
	                                     (uint32_t)(sl & 15) << 16 | pkey};
	struct vb_writer w = vb_writer(addr.remote + 14, 2);

	vb_put16(&w, lid);
	return addr;
}

bool rcm_fabric_is_from(const struct vb_cm_addr *addr)
{
	return addr->ifindex & IS_OF_FABRIC;
}

uint16_t rcm_fabric_lid(const struct vb_cm_addr *addr)
{
	struct vb_reader r = vb_reader(addr->remote + 14, 2);

	return vb_get16(&r);
}

/* --- out --- */

static void drop_letters(void)
{
	while (fabric.first) {
		struct letter *l = fabric.first;

		fabric.first = l->next;
		free(l);
	}
	fabric.last = &fabric.first;
	fabric.queued = 0;
}

/* A message that cannot be kept is lost, as in a network. rcm.lock held. */
static void post_letter(const void *m, size_t len)
{
	struct letter *l;

	if (fabric.sock < 0 ||
	    (!fabric.first && vb_fabric_try(fabric.sock, &(struct iovec){(void *)m, len}, 1, -1) != EAGAIN))
		return;
	l = fabric.queued < QUEUED_MOST ? calloc(1, sizeof(*l)) : NULL;
	if (!l)
		return;
	l->len = len;
	memcpy(&l->m, m, len);
	if (!fabric.first)
		vb_fd_watch_change(fabric.watch, EPOLLIN | EPOLLOUT);
	*fabric.last = l;
	fabric.last = &l->next;
	fabric.queued++;
}

/* rcm.lock held. */
static void flush_letters(void)
{
	while (fabric.first &&
	       vb_fabric_try(fabric.sock, &(struct iovec){&fabric.first->m, fabric.first->len}, 1, -1) != EAGAIN) {
		struct letter *l = fabric.first;

		fabric.first = l->next;
		free(l);
		fabric.queued--;
	}
	if (fabric.first)
		return;
	fabric.last = &fabric.first;
	vb_fd_watch_change(fabric.watch, EPOLLIN);
}

void rcm_fabric_send(const struct vb_cm_addr *to, const uint8_t mad[VB_MAD_LEN])
{
	struct vb_fabric_cm_mad m = {.verb = VB_FABRIC_CM_SEND,
	                             .lid = rcm_fabric_lid(to),
	                             .pkey = (uint16_t)to->ifindex,
	                             .sl = to->ifindex >> 16 & 15,
	                             .path_bits = to->ifindex >> 20 & 0x7f};

	memcpy(m.mad, mad, VB_MAD_LEN);
	post_letter(&m, sizeof(m));
}

void rcm_fabric_ask_sa(const uint8_t mad[VB_MAD_LEN], uint32_t timeout_ms)
{
	struct vb_fabric_sa_ask ask = {.verb = VB_FABRIC_SA_ASK, .timeout_ms = timeout_ms};

	memcpy(ask.mad, mad, VB_MAD_LEN);
	post_letter(&ask, sizeof(ask));
}

uint32_t rcm_fabric_question(void)
{
	while (!++fabric.last_question)
		;
	return fabric.last_question;
}

/* --- in --- */

static void fabric_take_mad(const struct vb_fabric_cm_mad *m)
{
	struct vb_cm_addr from = rcm_fabric_addr(m->lid, m->pkey, m->sl, m->path_bits);

	rcm_lock();
	if (rcm.gsi) {
		rcm_trace_mad(false, &from, m->mad, sizeof(m->mad));
		rcm_input_mad(&from, m->mad, sizeof(m->mad), vb_gsi_client_now());
		rcm_rearm();
	}
	rcm_unlock();
}

static void fabric_ended(void)
{
	vb_fd_watch_close(fabric.watch);
	rcm_lock();
	close(fabric.sock);
	__atomic_store_n(&fabric.sock, -1, __ATOMIC_RELEASE);
	fabric.watch = NULL;
	drop_letters();
	rcm_fabric_unanswered();
	rcm_unlock();
}

/* Returns false at the end of the connection. */
static bool hear_message(bool *more)
{
	union {
		uint32_t verb;
		struct vb_fabric_cm_mad mad;
		struct vb_fabric_sa_is sa;
	} m;
	ssize_t n = recv(fabric.sock, &m, sizeof(m), MSG_DONTWAIT | MSG_TRUNC);

	*more = n > 0;
	if (n < 0)
		return errno == EAGAIN || errno == EINTR;
	if (n == sizeof(m.mad) && m.verb == VB_FABRIC_CM_RECV)
		fabric_take_mad(&m.mad);
	else if (n == sizeof(m.sa) && m.verb == VB_FABRIC_SA_IS)
		rcm_fabric_told(&m.sa);
	else if (n == sizeof(m.sa) && m.verb == VB_FABRIC_MEMBER_LOST)
		rcm_fabric_group_lost(&m.sa);
	return n > 0;
}

/* Progress thread. */
static void on_socket(void *own, uint32_t events)
{
	bool more = true, alive = true;

	for (int i = 0; i < AT_A_TIME && alive && more; i++)
		alive = hear_message(&more);
	if (!alive) {
		fabric_ended();
	} else if (events & EPOLLOUT) {
		rcm_lock();
		flush_letters();
		rcm_unlock();
	}
}

/* --- bindings --- */

/* A message whose reply comes on a socket of its own. 0 or errno. */
static int ask_binding(const struct vb_fabric_cm_bind *m, uint16_t *port)
{
	struct vb_fabric_reply reply = {0};
	int pair[2], rc = EAGAIN, cancel;

	vb_cancel_defer(&cancel);
	if (socketpair(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0, pair)) {
		vb_cancel_restore(cancel);
		return errno;
	}
	for (int i = 0; i < TRIES && (rc == EAGAIN || rc == EINTR); i++) {
		if (i)
			usleep(TRY_US);
		rcm_lock();
		rc = fabric.sock < 0 ? ENODEV
		                     : vb_fabric_try(fabric.sock, &(struct iovec){(void *)m, sizeof(*m)}, 1, pair[1]);
		rcm_unlock();
	}
	close(pair[1]);
	if (!rc)
		rc = vb_fabric_hear(pair[0], &reply, sizeof(reply), NULL) == sizeof(reply) ? reply.error : ETIMEDOUT;
	close(pair[0]);
	vb_cancel_restore(cancel);
	if (!rc && port)
		*port = (uint16_t)reply.agent;
	return rc;
}

int rcm_fabric_bind(struct rcm_id *id, union rcm_addr *addr, const struct rcm_source *source)
{
	struct vb_fabric_cm_bind m = {.verb = VB_FABRIC_CM_BIND,
	                              .port_space = (uint16_t)id->space,
	                              .port = rcm_addr_port(addr),
	                              .flags = id->reuse ? VB_FABRIC_CM_REUSE : 0};
	uint16_t port;

	if (source->dev)
		rcm_addr_gid(addr, m.address);
	rcm_lock();
	while (!(m.id = ++fabric.last_binding))
		;
	rcm_unlock();
	int err = ask_binding(&m, &port);

	if (err)
		return err;
	rcm_addr_set_port(addr, port);
	id->fabric_binding = m.id;
	return 0;
}

int rcm_fabric_rebind(const struct rcm_id *id)
{
	return ask_binding(&(struct vb_fabric_cm_bind){.verb = VB_FABRIC_CM_BIND,
	                                               .id = id->fabric_binding,
	                                               .flags = id->reuse ? VB_FABRIC_CM_REUSE : 0},
	                   NULL);
}

int rcm_fabric_listen(const struct rcm_id *id)
{
	return ask_binding(&(struct vb_fabric_cm_bind){.verb = VB_FABRIC_CM_LISTEN, .id = id->fabric_binding}, NULL);
}

void rcm_fabric_unbind(struct rcm_id *id)
{
	if (id->fabric_binding)
		ask_binding(&(struct vb_fabric_cm_bind){.verb = VB_FABRIC_CM_UNBIND, .id = id->fabric_binding}, NULL);
	id->fabric_binding = 0;
}

/* --- the table of addresses --- */

int rcm_fabric_look_up(const union rcm_addr *addr, struct vb_fabric_address *found)
{
	bool v6 = addr->sa.sa_family == AF_INET6;
	char text[INET6_ADDRSTRLEN];
	int cancel;

	if (!rcm_fabric_present() || (!v6 && addr->sa.sa_family != AF_INET) || rcm_addr_multicast(addr) ||
	    rcm_addr_loopback(addr) || rcm_addr_link_local(addr) || rcm_addr_any(addr))
		return EHOSTUNREACH;
	inet_ntop(addr->sa.sa_family, v6 ? (const void *)&addr->sin6.sin6_addr : (const void *)&addr->sin.sin_addr,
	          text, sizeof(text));
	vb_cancel_defer(&cancel);
	long n = vb_fabric_ask(VB_FABRIC_ADDRESS, 1, text, found, sizeof(*found));

	vb_cancel_restore(cancel);
	return n == sizeof(*found) ? found->error : EHOSTUNREACH;
}

/* --- the connection --- */

static int connect_cm(uint32_t lane)
{
	struct vb_fabric_cm_open m = {.verb = VB_FABRIC_CM, .lane = lane};
	struct vb_fabric_reply reply = {.error = ENODEV};
	const char *name = vb_fabric_node_name();
	int sock = strlen(name) < sizeof(m.node) ? vb_fabric_connect_to(vb_fabric_socket()) : -1;

	if (sock < 0)
		return -1;
	strcpy(m.node, name);
	if (!vb_fabric_say(sock, &m, sizeof(m), -1) &&
	    vb_fabric_hear(sock, &reply, sizeof(reply), NULL) == sizeof(reply) && !reply.error)
		return sock;
	vb_log(VB_LOG_ERROR, "rdma_cm does not reach the fabric: %s", strerror(reply.error));
	close(sock);
	return -1;
}

void rcm_fabric_open(uint32_t lane)
{
	int sock;

	if (fabric.parents)
		vb_fd_watch_close(fabric.parents);
	fabric.parents = NULL;
	if (!vb_fabric_socket() || (sock = connect_cm(lane)) < 0)
		return; /* the list of devices has said that there is none */
	rcm_lock();
	__atomic_store_n(&fabric.sock, sock, __ATOMIC_RELEASE);
	int err = vb_fd_watch_open(sock, EPOLLIN, on_socket, NULL, &fabric.watch);

	if (err) {
		__atomic_store_n(&fabric.sock, -1, __ATOMIC_RELEASE);
		close(sock);
	}
	rcm_unlock();
}

void rcm_fabric_in_child(void)
{
	if (fabric.sock >= 0)
		close(fabric.sock);
	fabric.sock = -1;
	if (fabric.watch)
		fabric.parents = fabric.watch;
	fabric.watch = NULL;
	drop_letters();
}
