// session_in.c - messages of one connected program: read, and passed on with their descriptors
// follows: unix(7)
// SPDX-License-Identifier: MIT
#include "broker/server/session.h"

#include <errno.h>
#include <string.h>
#include <sys/epoll.h>
#include <sys/socket.h>
#include <unistd.h>

#include "broker/server/discard.h"
#include "broker/server/take.h"

#define READS_PER_TURN 16 /* messages of one program before others are served */

/* Copies all received descriptors. */
static int copy_fds(struct msghdr *mh, int fds[VB_FDS_PER_MESSAGE])
{
	int n = 0;

	for (struct cmsghdr *c = CMSG_FIRSTHDR(mh); c; c = CMSG_NXTHDR(mh, c)) {
		if (c->cmsg_level != SOL_SOCKET || c->cmsg_type != SCM_RIGHTS)
			continue;
		int got = (int)((c->cmsg_len - CMSG_LEN(0)) / sizeof(int));
		if (got > VB_FDS_PER_MESSAGE - n)
			got = VB_FDS_PER_MESSAGE - n;
		memcpy(fds + n, CMSG_DATA(c), (size_t)got * sizeof(int));
		n += got;
	}
	return n;
}

/* Of another user's program only descriptors of the right kinds get here: broker/server/take.h. */
void vb_session_drop_fds(const struct vb_session *s, const int *fds, int nfds)
{
	if (s->foreign && nfds)
		vb_discard(fds, nfds);
	for (int i = 0; !s->foreign && i < nfds; i++)
		close(fds[i]);
}

static bool refuse_truncated(struct vb_broker *b, struct vb_session *s, int flags)
{
	if (flags & MSG_TRUNC)
		vb_session_refuse(b, s, EBADMSG, "message too long");
	else /* MSG_CTRUNC although the buffer is large enough: we are out of descriptors */
		vb_session_refuse(b, s, EAGAIN, "the broker has no descriptors left: try again later");
	return false;
}

/* Reads one message of our own user's program. False: the session is over. */
static bool read_own(struct vb_broker *b, struct vb_session *s, char *msg, bool *more)
{
	static _Thread_local union {
		char buf[CMSG_SPACE(sizeof(int) * VB_FDS_PER_MESSAGE)];
		struct cmsghdr align;
	} control;
	struct iovec iov = {.iov_base = msg, .iov_len = VB_MAX_MSG};
	struct msghdr mh = {
	        .msg_iov = &iov, .msg_iovlen = 1, .msg_control = control.buf, .msg_controllen = sizeof(control.buf)};
	int fds[VB_FDS_PER_MESSAGE];

	ssize_t n = recvmsg(s->sock, &mh, MSG_DONTWAIT | MSG_CMSG_CLOEXEC);
	if (n < 0) {
		*more = false;
		return errno == EAGAIN || errno == EINTR;
	}
	int nfds = copy_fds(&mh, fds);
	bool whole = n > 0 && !(mh.msg_flags & (MSG_TRUNC | MSG_CTRUNC));

	if (!whole)
		vb_session_drop_fds(s, fds, nfds);
	if (!whole)
		return n > 0 && refuse_truncated(b, s, mh.msg_flags);
	return vb_session_handle(b, s, msg, (size_t)n, fds, nfds);
}

static bool take_attach(struct vb_broker *b, struct vb_session *s, char *msg)
{
	const char *wrong = NULL;
	size_t len = 0;
	int fds[3], err = vb_take_attach(s->uid, s->sock, msg, VB_MAX_MSG, &len, fds, &wrong);

	if (err == EAGAIN)
		vb_session_refuse(b, s, EAGAIN, "the broker has no room for descriptors: try again later");
	else if (err)
		vb_session_refuse(b, s, EBADMSG, "message too long, or not three descriptors");
	else if (wrong)
		vb_session_refuse(b, s, EBADF, wrong);
	return !err && !wrong && vb_session_handle(b, s, msg, len, fds, 3);
}

/*
 * Peeks at another user's message before receiving it. If it brings descriptors that it may not have, it stays in the
 * socket and is discarded with it. Peeking receives no descriptors, and MSG_CTRUNC tells that there are some.
 */
static bool read_foreign(struct vb_broker *b, struct vb_session *s, char *msg, bool *more)
{
	struct iovec iov = {.iov_base = msg, .iov_len = VB_MAX_MSG};
	struct msghdr mh = {.msg_iov = &iov, .msg_iovlen = 1};
	ssize_t n = recvmsg(s->sock, &mh, MSG_DONTWAIT | MSG_PEEK);

	if (n < 0 && errno == ECONNRESET) /* reported once, ahead of its last messages */
		n = recvmsg(s->sock, &mh, MSG_DONTWAIT | MSG_PEEK);
	if (n <= 0) {
		*more = false;
		return n < 0 && (errno == EAGAIN || errno == EINTR);
	}
	if (mh.msg_flags & MSG_CTRUNC) {
		if ((uint8_t)msg[0] == VB_MSG_ATTACH && !s->lane && !b->takes_left) { /* epoll reports it again */
			*more = false;
			return true;
		}
		if ((uint8_t)msg[0] == VB_MSG_ATTACH && !s->lane && b->takes_left--)
			return take_attach(b, s, msg);
		vb_session_refuse(b, s, EBADMSG, "descriptors in a message that may have none");
		return false;
	}
	if (mh.msg_flags & MSG_TRUNC)
		return refuse_truncated(b, s, mh.msg_flags);
	/* the same message: it has no descriptors */
	if (recv(s->sock, msg, VB_MAX_MSG, MSG_DONTWAIT) != n)
		return false;
	return vb_session_handle(b, s, msg, (size_t)n, NULL, 0);
}

/* False: the session is over. */
static bool read_one(struct vb_broker *b, struct vb_session *s, bool *more)
{
	static _Thread_local char msg[VB_MAX_MSG]; /* static: the broker thread's stack inside a program is small */

	return s->foreign ? read_foreign(b, s, msg, more) : read_own(b, s, msg, more);
}

void vb_session_readable(struct vb_broker *b, struct vb_session *s)
{
	bool more = true;

	for (int i = 0; more && i < READS_PER_TURN && (s->interest & EPOLLIN); i++) {
		if (!read_one(b, s, &more)) {
			vb_session_close(b, s, !s->detached);
			return;
		}
		vb_session_flush(b, s);
	}
}
