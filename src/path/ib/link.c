// link.c - queue pairs on an InfiniBand fabric whose packets go to and come from the fabric process
// see: fabric/proto/proto.h, docs/infiniband.md
// SPDX-License-Identifier: MIT
#include "path/ib/ib.h"

#include <errno.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

#include "core/qp.h"
#include "core/sq.h"
#include "engine/local/local.h"
#include "engine/local/requester.h"
#include "path/path.h"
#include "path/roce/roce.h"
#include "util/calls.h"
#include "util/log.h"

#define BUFFER (4 << 20) /* bytes; the kernel gives less to a program that is not root */

/* Packets for the queue pairs of this program's lane come to us. Returns a socket, or -1 with errno. */
static int ask_for_link(struct vb_node *node)
{
	struct vb_fabric_link_ask ask = {.verb = VB_FABRIC_LINK, .port = 1};
	struct vb_fabric_reply reply = {.error = EPROTO};
	int size = BUFFER;

	ask.mask = VB_QPN_MASK & ~(VB_LANE_QPS - 1);
	ask.qpn = node->lane * VB_LANE_QPS;
	if (strlen(vb_fabric_node_name()) >= sizeof(ask.node)) {
		errno = ENODEV;
		return -1;
	}
	strcpy(ask.node, vb_fabric_node_name());
	int sock = vb_fabric_connect_to(vb_fabric_socket());
	if (sock < 0)
		return -1;
	if (setsockopt(sock, SOL_SOCKET, SO_SNDBUFFORCE, &size, sizeof(size)))
		setsockopt(sock, SOL_SOCKET, SO_SNDBUF, &size, sizeof(size));
	int rc = vb_fabric_say(sock, &ask, sizeof(ask), -1);
	if (!rc && vb_fabric_hear(sock, &reply, sizeof(reply), NULL) == sizeof(reply))
		rc = reply.error;
	else
		rc = rc ? rc : errno;
	if (!rc)
		return sock;
	close(sock);
	errno = rc;
	return -1;
}

/* Once in a program: a fabric process that has ended does not come back for it. */
int vb_ib_open_link(struct vb_node *node)
{
	struct vb_io *io = node->io;
	struct vb_ib_host *host = io->ib;
	int cancel, rc = 0;

	if (!host || !host->alive)
		return ENODEV;
	vb_cancel_defer(&cancel);
	vb_mutex_lock(&io->meet_lock, VB_RANK_MEETING);
	if (!host->link_asked) {
		host->link_asked = true;
		int sock = ask_for_link(node);

		rc = sock < 0 ? errno : 0;
		if (!rc)
			io->link = vb_roce_sockets_of_port(node, sock);
		if (rc)
			vb_log(VB_LOG_ERROR, "the fabric process gives " VB_FABRIC_DEVICE " no link: %s", strerror(rc));
	}
	if (!rc && !io->link)
		rc = ENETDOWN;
	vb_mutex_unlock(&io->meet_lock);
	vb_cancel_restore(cancel);
	return rc;
}

void vb_ib_connect_link(struct vb_qp *qp)
{
	bool datagrams = qp->type == IBV_QPT_UD;
	int err = vb_ib_open_link(qp->node);

	vb_ib_take_pkey(qp);
	if (!err)
		err = vb_roce_path_open(qp);
	vb_lock(&qp->node->progress);
	vb_lock(&qp->sq_lock);
	if (!err && datagrams)
		vb_path_use(qp, &vb_datagram_path_ops);
	qp->datagram.roce_always = !err && datagrams;
	qp->local.cut = err && !datagrams;
	vb_unlock(&qp->sq_lock);
	vb_unlock(&qp->node->progress);
	if (err)
		vb_log(VB_LOG_WARN, "queue pair 0x%x has no link: %s", qp->qp.qp_num, strerror(err));
}

/* It has neither sent nor received, so both engines begin alike. */
bool vb_ib_change_over(struct vb_qp *qp)
{
	enum ibv_qp_state state = atomic_load(&qp->state);

	if (vb_roce_path_open_locked(qp))
		return false;
	vb_local_leave_peer(qp);
	vb_local_stop_timer(qp);
	qp->local.cut = false;
	if (state == IBV_QPS_RTR)
		return true;
	qp->path->entered(qp, IBV_QPS_RTR, IBV_QPS_RTS);
	if (state == IBV_QPS_SQD)
		qp->path->entered(qp, IBV_QPS_RTS, IBV_QPS_SQD);
	if (vb_sq_kick(qp) == VB_SQ_FAILED)
		qp->path->settle(qp);
	return true;
}
