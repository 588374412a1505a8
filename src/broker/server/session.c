// session.c - one connected program: its descriptors, the messages to be sent to it, its end
// follows: unix(7), pidfd_open(2)
// SPDX-License-Identifier: MIT
#include "broker/server/session.h"

#include <errno.h>
#include <poll.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/epoll.h>
#include <sys/socket.h>
#include <sys/syscall.h>
#include <unistd.h>

#include "broker/server/discard.h"

#ifndef SO_PEERPIDFD
#define SO_PEERPIDFD 77
#endif

/* ---- opening ---- */

static int peer_pidfd(int sock, pid_t pid)
{
	int fd = -1;
	socklen_t len = sizeof(fd);

	if (!getsockopt(sock, SOL_SOCKET, SO_PEERPIDFD, &fd, &len))
		return fd;
	if (errno != ENOPROTOOPT || pid <= 0) /* the peer has ended, or the kernel is older than Linux 6.5 */
		return -1;
	fd = (int)syscall(SYS_pidfd_open, pid, 0);
	return fd;
}

static bool is_served(uid_t uid)
{
	return (geteuid() == 0 || geteuid() == uid) && vb_uid_is_known(uid);
}

static uint32_t pending_of(const struct vb_broker *b, uid_t uid)
{
	uint32_t n = 0;

	for (uint32_t i = 0; i < VB_MAX_SESSIONS; i++)
		n += b->sessions[i] && !b->sessions[i]->lane && b->sessions[i]->uid == uid;
	return n;
}

static void close_oldest_pending(struct vb_broker *b, uid_t uid)
{
	struct vb_session *oldest = NULL;

	for (uint32_t i = 0; i < VB_MAX_SESSIONS; i++) {
		struct vb_session *s = b->sessions[i];
		if (s && !s->lane && s->uid == uid && (!oldest || s->deadline < oldest->deadline))
			oldest = s;
	}
	if (oldest)
		vb_session_close(b, oldest, false);
}

static uid_t uid_of_most_pending(const struct vb_broker *b)
{
	uint32_t most = 0;
	uid_t uid = 0;

	for (uint32_t i = 0; i < VB_MAX_SESSIONS; i++) {
		if (!b->sessions[i] || b->sessions[i]->lane)
			continue;
		uint32_t n = pending_of(b, b->sessions[i]->uid);
		if (n > most) {
			most = n;
			uid = b->sessions[i]->uid;
		}
	}
	return uid;
}

/* Connections that send no ATTACH are closed at the cost of their own user first. */
static void make_room_for(struct vb_broker *b, const struct vb_session *s)
{
	if (s->foreign && pending_of(b, s->uid) >= VB_MAX_PENDING_EACH)
		close_oldest_pending(b, s->uid);
	if (b->npending >= VB_MAX_PENDING)
		close_oldest_pending(b, uid_of_most_pending(b));
}

static int session_add(struct vb_broker *b, struct vb_session *s)
{
	make_room_for(b, s);
	for (s->slot = 0; s->slot < VB_MAX_SESSIONS && b->sessions[s->slot]; s->slot++)
		;
	if (s->slot == VB_MAX_SESSIONS)
		return ENOSPC;
	s->gen = ++b->generation;
	s->interest = EPOLLIN;
	int err = vb_broker_watch(b, s->sock, s->interest, VB_SRC_SOCK, s->slot, s->gen);
	if (err)
		return err;
	err = vb_broker_watch(b, s->pid_fd, EPOLLIN, VB_SRC_PID, s->slot, s->gen);
	if (err) {
		epoll_ctl(b->epoll_fd, EPOLL_CTL_DEL, s->sock, NULL);
		return err;
	}
	b->sessions[s->slot] = s;
	b->nsessions++;
	b->npending++;
	return 0;
}

/* Closes all descriptors of a session. Closing those of another user's program may block, so a thread does that. */
static void session_close_fds(const struct vb_session *s)
{
	const int fds[] = {s->sock, s->pid_fd, s->fds[0], s->fds[1], s->fds[2]};

	if (s->foreign) {
		vb_discard(fds, sizeof(fds) / sizeof(fds[0]));
		return;
	}
	for (size_t i = 0; i < sizeof(fds) / sizeof(fds[0]); i++)
		if (fds[i] >= 0)
			close(fds[i]);
}

int vb_session_open(struct vb_broker *b, int sock, struct vb_session **out)
{
	struct vb_session *s = calloc(1, sizeof(*s));
	struct ucred cred = {0};
	socklen_t len = sizeof(cred);
	int err = 0, small;

	if (!s) {
		vb_discard(&sock, 1);
		return ENOMEM;
	}
	s->sock = sock;
	s->pid_fd = s->fds[0] = s->fds[1] = s->fds[2] = -1;
	s->deadline = vb_broker_now_ms() + VB_PENDING_MS;
	if (getsockopt(sock, SOL_SOCKET, SO_PEERCRED, &cred, &len))
		err = errno;
	s->uid = cred.uid;
	s->pid = cred.pid;
	s->foreign = s->uid != geteuid();
	small = s->foreign ? VB_SEND_BUFFER_OTHERS : VB_SEND_BUFFER;
	setsockopt(sock, SOL_SOCKET, SO_SNDBUF, &small, sizeof(small));
	if (!err && !is_served(s->uid)) {
		vb_session_refuse(b, s, EACCES, "this broker serves another user");
		err = EACCES;
	}
	if (!err) {
		s->pid_fd = peer_pidfd(sock, s->pid);
		err = s->pid_fd < 0 ? ESRCH : session_add(b, s);
	}
	if (err) {
		session_close_fds(s);
		free(s);
		return err;
	}
	*out = s;
	return 0;
}

/* ---- closing ---- */

/* Peers share the file description of a pidfd: closing ours would not remove it from the epoll set. */
static void session_unwatch(struct vb_broker *b, int fd)
{
	if (fd >= 0)
		epoll_ctl(b->epoll_fd, EPOLL_CTL_DEL, fd, NULL);
}

static void session_unwatch_and_close(struct vb_broker *b, int *fd)
{
	session_unwatch(b, *fd);
	if (*fd >= 0)
		close(*fd);
	*fd = -1;
}

void vb_lane_release(struct vb_broker *b, uint32_t lane, enum vb_groups_left left)
{
	int64_t now = vb_broker_now_ms();

	session_unwatch_and_close(b, &b->reserved[lane].pid_fd);
	b->holder[lane] = NULL;
	vb_state_clear(&b->state, lane);
	vb_hold_take_back(&b->hold, lane, left);
	vb_table_free(&b->table, lane, now);
	for (uint32_t i = 1; i < VB_LANE_COUNT; i++)
		if (b->holder[i])
			vb_lane_set_remove(&b->holder[i]->introduce, lane);
	vb_parked_retry(b, lane);
}

void vb_session_close(struct vb_broker *b, struct vb_session *s, bool died)
{
	b->sessions[s->slot] = NULL;
	b->nsessions--;
	vb_gsi_leave(b, s);
	if (s->lane) {
		bool shared = s->in_groups && vb_session_introduce_sharers(b, s, true);

		b->counters.deaths += died;
		vb_parked_forget(b, s->lane);
		vb_lane_release(b, s->lane, s->in_groups ? VB_GROUPS_TOLD : VB_GROUPS_NONE);
		if (shared) /* they must not join again before the keeper has left */
			vb_hold_settle(&b->hold);
	} else {
		b->npending--;
	}
	b->exit_at = 0; /* if it was the last, the linger time starts now */
	session_unwatch(b, s->sock);
	session_unwatch(b, s->pid_fd);
	session_close_fds(s);
	free(s);
}

/* ---- sending ---- */

static struct vb_msg_head head_of(uint8_t type, size_t len)
{
	return (struct vb_msg_head){.type = type, .version = VB_PROTO_VERSION, .len = (uint32_t)len};
}

/*
 * The kernel limits the descriptors that one user has sent and that are not received yet. The broker's user is the
 * sender: without a limit, other users' programs that do not read would use up what his own programs need. So another
 * user's program has at most two such messages in flight: the unread bytes must be less than a quarter of its small
 * buffer, which is one message.
 */
static bool has_read(const struct vb_session *s)
{
	struct pollfd p = {.fd = s->sock, .events = POLLOUT};

	return !s->foreign || poll(&p, 1, 0) != 0;
}

int vb_session_send(struct vb_session *s, const void *msg, size_t len, const int *fds, int nfds)
{
	union {
		char buf[CMSG_SPACE(sizeof(int) * VB_MAX_FDS)];
		struct cmsghdr align;
	} control = {0};
	struct iovec iov = {.iov_base = (void *)msg, .iov_len = len};
	struct msghdr mh = {.msg_iov = &iov, .msg_iovlen = 1};

	if (nfds && !has_read(s))
		return EAGAIN;
	if (nfds) {
		mh.msg_control = control.buf;
		mh.msg_controllen = CMSG_SPACE(sizeof(int) * (size_t)nfds);
		struct cmsghdr *c = CMSG_FIRSTHDR(&mh);
		c->cmsg_level = SOL_SOCKET;
		c->cmsg_type = SCM_RIGHTS;
		c->cmsg_len = CMSG_LEN(sizeof(int) * (size_t)nfds);
		memcpy(CMSG_DATA(c), fds, sizeof(int) * (size_t)nfds);
	}
	if (sendmsg(s->sock, &mh, MSG_DONTWAIT | MSG_NOSIGNAL) >= 0)
		return 0;
	switch (errno) {
	case EAGAIN:
	case EINTR:
		return EAGAIN;
	case ETOOMANYREFS:
	case ENOBUFS:
	case ENOMEM:
		return ETOOMANYREFS;
	default:
		return EPIPE;
	}
}

void vb_session_refuse(struct vb_broker *b, struct vb_session *s, int err, const char *text)
{
	struct vb_msg_error m = {.head = head_of(VB_MSG_ERROR, sizeof(m)), .err = err};

	snprintf(m.text, sizeof(m.text), "%s", text);
	if (err == EBADMSG)
		b->counters.bad_messages++;
	else
		b->counters.refused++;
	vb_session_send(s, &m, sizeof(m), NULL, 0);
}

static int send_attached(struct vb_broker *b, struct vb_session *s)
{
	const struct vb_lane *l = &b->table.lanes[s->lane];
	struct vb_msg_attached m = {
	        .head = head_of(VB_MSG_ATTACHED, sizeof(m)),
	        .lane = s->lane,
	        .incarnation = l->incarnation,
	        .network = b->network,
	};
	int err = vb_session_send(s, &m, sizeof(m), NULL, 0);

	if (!err)
		s->attached_due = false;
	return err;
}

static int send_peer(struct vb_broker *b, struct vb_session *s, uint8_t type, uint64_t tag, uint32_t lane)
{
	const struct vb_session *peer = b->holder[lane];
	const int fds[4] = {peer->fds[VB_FD_SEG], peer->fds[VB_FD_BELL], peer->fds[VB_FD_WAKE], peer->pid_fd};
	struct vb_msg_meet_reply m = {
	        .head = head_of(type, sizeof(m)),
	        .tag = tag,
	        .lane = lane,
	        .incarnation = b->table.lanes[lane].incarnation,
	        .uid = peer->uid,
	};

	return vb_session_send(s, &m, sizeof(m), fds, 4);
}

static int send_answer(struct vb_broker *b, struct vb_session *s)
{
	const struct vb_answer *a = &s->answers[0];
	int err = a->err;

	if (!err && (!b->holder[a->lane] || b->table.lanes[a->lane].incarnation != a->incarnation))
		err = ENOENT;
	if (err) {
		struct vb_msg_meet_reply m = {.head = head_of(VB_MSG_MEET_REPLY, sizeof(m)), .tag = a->tag, .err = err};
		err = vb_session_send(s, &m, sizeof(m), NULL, 0);
	} else {
		err = send_peer(b, s, VB_MSG_MEET_REPLY, a->tag, a->lane);
	}
	if (!err)
		memmove(&s->answers[0], &s->answers[1], --s->nanswers * sizeof(s->answers[0]));
	return err;
}

static int send_introduction(struct vb_broker *b, struct vb_session *s, uint32_t lane)
{
	int err = send_peer(b, s, VB_MSG_INTRODUCED, 0, lane);

	if (!err) {
		vb_lane_set_remove(&s->introduce, lane);
		b->counters.introductions++;
	}
	return err;
}

/* Our sockets receive nothing of another network. */
static int give_lane(struct vb_broker *b, struct vb_session *s, int *fd, struct vb_holder *holder)
{
	*holder = (struct vb_holder){0};
	if (s->elsewhere)
		return ENETUNREACH;
	return vb_hold_give(&b->hold, &b->config.rt, s->lane, s->foreign, fd, holder);
}

static int send_roce_reply(struct vb_broker *b, struct vb_session *s)
{
	struct vb_holder holder;

	if (!has_read(s)) /* check before asking the keeper for a socket that could not be sent */
		return EAGAIN;
	int fds[2], err = give_lane(b, s, &fds[0], &holder);
	struct vb_msg_roce_reply m = {
	        .head = head_of(VB_MSG_ROCE_REPLY, sizeof(m)),
	        .err = err,
	        .nlanes = err ? 0 : b->hold.n,
	        .holder_uid = holder.uid,
	        .holder_known = holder.known,
	        .relayed = s->foreign,
	        .split = !err && geteuid() == 0,
	};

	fds[1] = b->hold.lifeline;
	int sent = vb_session_send(s, &m, sizeof(m), fds, err ? 0 : s->foreign ? 1 : 2);
	if (!err) {
		close(fds[0]);
		vb_gsi_on_port(b);
	}
	if (!sent) {
		s->roce_due = false;
		if (!err)
			vb_session_introduce_sharers(b, s, false);
	}
	return sent;
}

static void read_comm(pid_t pid, char out[16])
{
	char path[64];

	memset(out, 0, 16);
	snprintf(path, sizeof(path), "/proc/%d/comm", (int)pid);
	FILE *f = pid > 0 ? fopen(path, "re") : NULL;
	if (!f)
		return;
	if (fgets(out, 16, f))
		out[strcspn(out, "\n")] = 0;
	fclose(f);
}

static int send_status(struct vb_broker *b, struct vb_session *s)
{
	struct vb_msg_status_part m = {0};
	uint32_t lane = s->status_next;

	for (; lane < VB_LANE_COUNT && m.n < VB_STATUS_CHUNK; lane++) {
		const struct vb_lane *l = &b->table.lanes[lane];
		const struct vb_session *holder = b->holder[lane];
		if (l->state == VB_LANE_FREE || (s->uid != 0 && s->uid != l->uid))
			continue;
		struct vb_status_lane *o = &m.lanes[m.n++];
		*o = (struct vb_status_lane){
		        .lane = lane,
		        .uid = l->uid,
		        .ngids = (uint16_t)l->ngids,
		        .pid = holder ? holder->pid : vb_pidfd_pid(b->reserved[lane].pid_fd),
		        .reserved = l->state == VB_LANE_RESERVED,
		};
		read_comm(o->pid, o->comm);
	}
	if (m.n) {
		size_t len = offsetof(struct vb_msg_status_part, lanes) + m.n * sizeof(m.lanes[0]);
		m.head = head_of(VB_MSG_STATUS_PART, len);
		int err = vb_session_send(s, &m, len, NULL, 0);
		if (!err)
			s->status_next = lane;
		return err;
	}
	struct vb_msg_status_end end = b->counters;
	end.head = head_of(VB_MSG_STATUS_END, sizeof(end));
	int err = vb_session_send(s, &end, sizeof(end), NULL, 0);
	if (!err)
		s->status_next = 0;
	return err;
}

static bool has_output(const struct vb_session *s)
{
	return s->attached_due || s->roce_due || s->nanswers || s->status_next || vb_lane_set_any(&s->introduce) ||
	       vb_gsi_waiting(s);
}

static int send_next(struct vb_broker *b, struct vb_session *s)
{
	if (s->attached_due)
		return send_attached(b, s);
	if (s->roce_due)
		return send_roce_reply(b, s);
	if (s->nanswers)
		return send_answer(b, s);
	if (s->status_next)
		return send_status(b, s);
	uint32_t lane = vb_lane_set_any(&s->introduce);
	return lane ? send_introduction(b, s, lane) : vb_gsi_send_next(s);
}

static void session_break_off(struct vb_session *s)
{
	shutdown(s->sock, SHUT_RDWR); /* its own event closes the session: callers may be iterating over sessions now */
	s->attached_due = s->roce_due = false;
	s->nanswers = s->status_next = 0;
	memset(&s->introduce, 0, sizeof(s->introduce));
}

void vb_session_flush(struct vb_broker *b, struct vb_session *s)
{
	uint32_t want = s->full ? EPOLLOUT : 0;

	while (has_output(s) && !s->stalled && !s->full) {
		int err = send_next(b, s);
		if (!err)
			continue;
		if (err == ETOOMANYREFS) {
			s->stalled = true;
			vb_broker_stall(b);
		} else if (err == EAGAIN) {
			s->full = true;
			want |= EPOLLOUT;
		} else {
			session_break_off(s);
		}
		break;
	}
	if (s->nanswers < VB_MAX_ANSWERS && !s->status_next && !vb_gsi_is_full(s))
		want |= EPOLLIN;
	if (want == s->interest)
		return;
	struct epoll_event ev = {.events = want, .data.u64 = vb_source_key(VB_SRC_SOCK, s->slot, s->gen)};
	if (!epoll_ctl(b->epoll_fd, EPOLL_CTL_MOD, s->sock, &ev))
		s->interest = want;
	else
		s->full = false;
}
