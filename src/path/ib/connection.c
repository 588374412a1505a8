// connection.c - the connection to the fabric process, as one of the node's transports
// see: fabric/proto/proto.h, node/transport.h
// SPDX-License-Identifier: MIT
#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <sys/epoll.h>
#include <sys/socket.h>
#include <unistd.h>

#include "core/device.h"
#include "path/ib/ib.h"
#include "path/path.h"
#include "path/roce/roce.h"
#include "path/wire_mode.h"
#include "util/log.h"

enum { MESSAGES_AT_A_TIME = 256 };

static void port_told(struct vb_ib_host *host, const struct vb_ib_port *port)
{
	vb_device_ib_told(port);
	vb_network_changed(host->node);
}

/* The socket stays open, but unwatched: its number must not become another file's while threads send. */
static void fabric_ended(struct vb_ib_host *host)
{
	vb_watch_remove(host->node, &host->watch);
	vb_mutex_lock(&host->node->io->meet_lock, VB_RANK_MEETING);
	host->alive = host->watched = false;
	vb_mutex_unlock(&host->node->io->meet_lock);
	shutdown(host->watch.fd, SHUT_RDWR);
	vb_log(VB_LOG_ERROR,
	       "the fabric process has ended: " VB_FABRIC_DEVICE " is down until this program is started again");
	vb_ib_ways_close(host);
	port_told(host, NULL);
	vb_ib_refresh(host->node);
}

/* Returns false at the end of the connection. *more: there may be other messages. *news: it was about the port or a way. */
static bool hear_message(struct vb_ib_host *host, bool *more, bool *news)
{
	union {
		uint32_t verb;
		struct vb_fabric_port_is port;
		struct vb_fabric_way_is way;
		struct vb_fabric_group_is group;
		struct vb_fabric_data data;
		uint8_t bytes[sizeof(struct vb_fabric_data) + VB_FABRIC_PAYLOAD];
	} m;
	ssize_t n = recv(host->watch.fd, &m, sizeof(m), MSG_DONTWAIT | MSG_TRUNC);

	*more = n > 0;
	if (n < 0)
		return errno == EAGAIN || errno == EINTR;
	*news |= n > 0 && (m.verb == VB_FABRIC_PORT_IS || m.verb == VB_FABRIC_WAY_IS);
	if (n == sizeof(m.port) && m.verb == VB_FABRIC_PORT_IS && !m.port.error)
		port_told(host, &m.port.port);
	else if (n == sizeof(m.way) && m.verb == VB_FABRIC_WAY_IS)
		vb_ib_way_told(host, &m.way);
	else if (n == sizeof(m.group) && m.verb == VB_FABRIC_GROUP_IS)
		vb_ib_group_told(host, &m.group);
	else if (n >= (ssize_t)sizeof(m.data) && n <= (ssize_t)sizeof(m) && m.verb == VB_FABRIC_DATA)
		vb_ib_data_came(host, &m.data, (size_t)n);
	return n > 0;
}

static void on_socket(struct vb_watch *w, uint32_t events)
{
	struct vb_ib_host *host = (struct vb_ib_host *)w;
	bool more = true, alive = true, news = false;

	for (int i = 0; i < MESSAGES_AT_A_TIME && alive && more; i++)
		alive = hear_message(host, &more, &news);
	if (!alive) {
		fabric_ended(host);
		return;
	}
	if (events & EPOLLOUT) {
		atomic_store(&host->talks, true);
		vb_ib_datagrams_again(host);
		vb_ib_ways_send(host);
	}
	if (news)
		vb_ib_refresh(host->node);
}

/* --- start --- */

static int join(struct vb_fabric_port_is *is)
{
	struct vb_fabric_ask ask = {.verb = VB_FABRIC_JOIN, .port = 1};
	const char *path = vb_fabric_socket(), *name = vb_fabric_node_name();

	if (strlen(name) >= sizeof(ask.node))
		return -1;
	strcpy(ask.node, name);
	int sock = vb_fabric_connect_to(path);
	if (sock < 0)
		return -1;
	if (!vb_fabric_say(sock, &ask, sizeof(ask), -1) && vb_fabric_hear(sock, is, sizeof(*is), NULL) == sizeof(*is) &&
	    is->verb == VB_FABRIC_PORT_IS && !is->error)
		return sock;
	close(sock);
	return -1;
}

static int ib_start(struct vb_node *node)
{
	struct vb_fabric_port_is is;

	if (!vb_fabric_socket())
		return 0;
	struct vb_ib_host *host = calloc(1, sizeof(*host));

	if (!host)
		return ENOMEM;
	node->io->ib = host;
	host->node = node;
	host->watch = (struct vb_watch){.fd = join(&is), .fn = on_socket};
	if (host->watch.fd < 0) {
		vb_device_ib_told(NULL);
		return 0; /* the list of devices has said so */
	}
	host->by_tag = calloc(VB_FABRIC_WAYS, sizeof(*host->by_tag));
	if (!host->by_tag || vb_watch_add(node, &host->watch, EPOLLIN))
		return ENOMEM;
	vb_ib_traffic_open(host);
	host->alive = host->watched = true;
	host->rests = true;
	atomic_store(&node->traffic_rests, true);
	host->parts = is.flags & VB_FABRIC_PORT_PARTS;
	vb_device_ib_told(&is.port);
	if (vb_wire_mode() != VB_WIRE_MODE_ALWAYS)
		memcpy(&node->io->ib_address, is.port.address, sizeof(node->io->ib_address));
	return 0;
}

/* The connection is the parent's. The number of its descriptor may become another file's. */
static void ib_in_child(struct vb_node *node)
{
	struct vb_ib_host *host = node->io->ib;

	if (!host || host->watch.fd < 0)
		return;
	close(host->watch.fd);
	host->watch.fd = -1;
	host->alive = host->watched = false;
	if (node->io->link)
		atomic_store(&node->io->link->up, false);
}

static unsigned ib_poll(struct vb_node *node, bool finish)
{
	if (!atomic_load_explicit(&node->io->link->up, memory_order_relaxed))
		return 0;
	vb_roce_datagrams_poll(node->io->link);
	return vb_roce_poll_port(node->io->link);
}

static void ib_watch(struct vb_node *node, bool watch)
{
	if (node->io->link)
		vb_roce_watch_sockets(node->io->link, watch);
}

static uint64_t ib_due(struct vb_node *node)
{
	const struct vb_ib_host *host = node->io->ib;
	uint64_t report = host && host->watched ? vb_ib_traffic_due(host) : 0;
	bool links = atomic_load_explicit(&node->io->transport[VB_TRANSPORT_IB].users, memory_order_relaxed);
	uint64_t waits = links ? vb_roce_port_due(node->io->link) : 0;

	if (links && !waits)
		waits = vb_roce_datagrams_due(node->io->link);
	return waits && (!report || waits < report) ? waits : report;
}

static void ib_look(struct vb_node *node)
{
	struct vb_ib_host *host = node->io->ib;

	if (!host || !host->watched)
		return;
	vb_ib_ways_send(host);
	vb_ib_traffic_look(host);
}

static void ib_last_wait(struct vb_node *node)
{
	vb_roce_drain_held(node->io->link);
}

static void ib_free(struct vb_node *node)
{
	struct vb_ib_host *host = node->io->ib;

	vb_roce_drain_held(node->io->link);
	vb_roce_sockets_free(node->io->link);
	node->io->link = NULL;
	if (!host)
		return;
	if (host->watched)
		vb_watch_remove(node, &host->watch);
	if (host->watch.fd >= 0)
		close(host->watch.fd);
	vb_ib_traffic_free(host);
	vb_ib_ways_free(host);
	free(host);
	node->io->ib = NULL;
}

static void ib_log_counters(struct vb_node *node)
{
}

static bool ib_show(const struct vb_qp *qp, struct vb_counts *c, char *peer, size_t size)
{
	return false; /* its traffic is that of the same host, or its packets are RoCE's */
}

static void ib_arm(struct vb_node *node)
{
	vb_roce_arm_sockets(node, node->io->link);
}

static uint64_t ib_serve_faults(struct vb_node *node)
{
	return vb_roce_serve_faults_of(node, node->io->link);
}

const struct vb_transport_ops vb_ib_transport = {
        .start = ib_start,
        .free = ib_free,
        .in_child = ib_in_child,
        .poll = ib_poll,
        .watch = ib_watch,
        .due = ib_due,
        .look = ib_look,
        .last_wait = ib_last_wait,
        .log_counters = ib_log_counters,
        .show = ib_show,
        .arm = ib_arm,
        .serve_faults = ib_serve_faults,
};
