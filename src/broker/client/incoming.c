// incoming.c - receives messages from the broker, checks them, and passes their descriptors on
// follows: unix(7), SCM_RIGHTS
// SPDX-License-Identifier: MIT
#include "broker/client/incoming.h"

#include <errno.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

#include "broker/proto/runtime.h"
#include "util/log.h"

void vb_incoming_close(struct vb_incoming *in)
{
	for (int i = 0; i < in->nfds; i++)
		close(in->fds[i]);
	in->nfds = 0;
}

enum vb_incoming_result vb_incoming_receive(int sock, struct vb_incoming *in)
{
	union {
		char buf[CMSG_SPACE(sizeof(int) * VB_MAX_FDS)];
		struct cmsghdr align;
	} control;
	struct iovec iov = {.iov_base = in->bytes, .iov_len = sizeof(in->bytes)};
	struct msghdr mh = {
	        .msg_iov = &iov, .msg_iovlen = 1, .msg_control = control.buf, .msg_controllen = sizeof(control.buf)};

	ssize_t n = recvmsg(sock, &mh, MSG_DONTWAIT | MSG_CMSG_CLOEXEC);
	/* reported once, ahead of messages that the broker sent before: perhaps an ERROR */
	if (n < 0 && errno == ECONNRESET)
		n = recvmsg(sock, &mh, MSG_DONTWAIT | MSG_CMSG_CLOEXEC);
	if (n < 0)
		return errno == EAGAIN || errno == EINTR ? VB_INCOMING_NONE : VB_INCOMING_CLOSED;
	in->nfds = 0;
	in->fds_cut = mh.msg_flags & MSG_CTRUNC;
	struct cmsghdr *cm = CMSG_FIRSTHDR(&mh);
	if (cm && cm->cmsg_level == SOL_SOCKET && cm->cmsg_type == SCM_RIGHTS) {
		in->nfds = (int)((cm->cmsg_len - CMSG_LEN(0)) / sizeof(int));
		memcpy(in->fds, CMSG_DATA(cm), (size_t)in->nfds * sizeof(int));
	}
	if (n < (ssize_t)sizeof(in->head) || in->head.len != n || (mh.msg_flags & MSG_TRUNC)) {
		vb_incoming_close(in);
		return VB_INCOMING_CLOSED;
	}
	return VB_INCOMING_MESSAGE;
}

static bool is_meet_reply(const struct vb_incoming *in)
{
	const struct vb_msg_meet_reply *m = &in->peer;

	if (in->head.len != sizeof(*m))
		return false;
	return m->err || (m->lane > 0 && m->lane < VB_LANE_COUNT && m->incarnation);
}

static void give_peer(struct vb_incoming *in, const struct vb_broker_ops *ops, void *arg)
{
	const struct vb_msg_meet_reply *m = &in->peer;
	bool reply = in->head.type == VB_MSG_MEET_REPLY;

	if (m->err || in->fds_cut || in->nfds != 4) {
		vb_incoming_close(in);
		if (reply)
			ops->meet_reply(arg, m->tag, m->err ? m->err : EMFILE, NULL);
		else
			vb_log(VB_LOG_WARN, "broker: this program has no descriptors left for a peer that met it");
		return;
	}
	struct vb_peer_info info = {
	        .lane = m->lane,
	        .incarnation = m->incarnation,
	        .uid = m->uid,
	        .pid = vb_pidfd_pid(in->fds[3]),
	        .seg_fd = in->fds[0],
	        .doorbell_fd = in->fds[1],
	        .wake_fd = in->fds[2],
	        .pid_fd = in->fds[3],
	};
	if (reply)
		ops->meet_reply(arg, m->tag, 0, &info);
	else
		ops->introduced(arg, &info);
}

bool vb_incoming_peer(struct vb_incoming *in, const struct vb_broker_ops *ops, void *arg)
{
	if (!is_meet_reply(in))
		return false;
	give_peer(in, ops, arg);
	return true;
}

static bool is_roce_reply(const struct vb_incoming *in)
{
	const struct vb_msg_roce_reply *m = &in->roce;

	if (in->head.len != sizeof(*m) || m->err < 0)
		return false;
	return m->err || (m->nlanes > 0 && m->nlanes <= VB_LANE_COUNT);
}

static void give_roce_grant(struct vb_incoming *in, const struct vb_broker_ops *ops, void *arg)
{
	const struct vb_msg_roce_reply *m = &in->roce;
	struct vb_roce_grant g = {.err = m->err, .lane_fd = -1, .lifeline_fd = -1, .relayed = m->relayed};

	if (!g.err && (in->fds_cut || in->nfds != (m->relayed ? 1 : 2)))
		g.err = EMFILE;
	if (g.err || !ops->roce_reply)
		vb_incoming_close(in);
	if (!ops->roce_reply)
		return;
	if (g.err) {
		g.holder_known = g.err == EADDRINUSE && m->holder_known;
		g.holder_uid = m->holder_uid;
	} else {
		g.lane_fd = in->fds[0];
		g.lifeline_fd = m->relayed ? -1 : in->fds[1];
		g.nlanes = m->nlanes;
		g.split = m->split;
	}
	ops->roce_reply(arg, &g);
}

bool vb_incoming_roce(struct vb_incoming *in, const struct vb_broker_ops *ops, void *arg)
{
	if (!is_roce_reply(in))
		return false;
	give_roce_grant(in, ops, arg);
	return true;
}
