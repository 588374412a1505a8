// network.c - the client's second broker, where several network namespaces share one runtime directory
// follows: network_namespaces(7), epoll(7)
// SPDX-License-Identifier: MIT
#include "broker/client/network.h"

#include <errno.h>
#include <string.h>
#include <sys/epoll.h>
#include <unistd.h>

#include "util/lock.h"
#include "util/log.h"

/*
 * Containers with network namespaces of their own may share a runtime directory. The broker of the directory gives each
 * program its lane and introduces programs to each other, whatever their network. But its sockets and its queue pair 1
 * belong to its own network namespace. A program of another namespace has a second broker, which serves that namespace
 * alone: there it claims the lane that it has already. Lanes stay unique, because only the broker of the directory gives
 * them.
 */

/* True if programs of our namespace have made their own broker already. The broker of the directory may have come to
 * this namespace since, but the port is still the other one's. */
static bool has_broker_of_its_own(const struct vb_runtime *rt)
{
	int sock, err = vb_runtime_connect(rt, &sock);

	if (!err)
		close(sock);
	return !err || err == EAGAIN;
}

static struct vb_broker_client *network_client(struct vb_broker_client *c)
{
	struct vb_broker_client *network = vb_client_new(&c->fds);
	struct epoll_event ev = {.events = EPOLLIN};

	if (!network)
		return NULL;
	if (epoll_ctl(c->epoll_fd, EPOLL_CTL_ADD, network->epoll_fd, &ev)) {
		int err = errno;
		vb_broker_disconnect(network);
		errno = err;
		return NULL;
	}
	network->of_network = true;
	network->lane = c->lane;
	network->incarnation = c->incarnation;
	network->giver = c->giver;
	return network;
}

void vb_client_find_network(struct vb_broker_client *c, uint64_t of_broker)
{
	uint64_t own = vb_runtime_network();
	struct vb_runtime rt;

	if (!own || !of_broker || atomic_load_explicit(&c->network, memory_order_relaxed) ||
	    !vb_runtime_of_network(&rt) || (own == of_broker && !has_broker_of_its_own(&rt)))
		return;
	struct vb_broker_client *network = network_client(c);
	if (!network) {
		vb_log(VB_LOG_ERROR, "broker: no connection to a broker of this network namespace: %s",
		       strerror(errno));
		return;
	}
	vb_mutex_lock(&c->lock, VB_RANK_BROKER);
	network->ngids = c->ngids;
	memcpy(network->gids, c->gids, sizeof(c->gids));
	atomic_store_explicit(&c->network, network, memory_order_release);
	vb_mutex_unlock(&c->lock);
}
