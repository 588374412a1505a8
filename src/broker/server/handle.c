// handle.c - handles each message of a program
// SPDX-License-Identifier: MIT
#include "broker/server/session.h"

#include <errno.h>
#include <fcntl.h>
#include <linux/magic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/epoll.h>
#include <sys/random.h>
#include <sys/stat.h>
#include <sys/vfs.h>
#include <unistd.h>

#ifndef F_SEAL_FUTURE_WRITE
#define F_SEAL_FUTURE_WRITE 0x0010
#endif

static bool refuse_bad_message(struct vb_broker *b, struct vb_session *s, const char *text)
{
	vb_session_refuse(b, s, EBADMSG, text);
	return false;
}

static bool refuse_session(struct vb_broker *b, struct vb_session *s, int err, const char *text)
{
	vb_session_refuse(b, s, err, text);
	return false;
}

#define SEGMENT_PAGE 4096

/* ---- ATTACH ---- */

static bool is_memfd(int fd, int sealed, int unsealed, uint64_t max_bytes)
{
	struct stat st;
	struct statfs fs;
	int seals = fcntl(fd, F_GET_SEALS);

	if (seals < 0 || (seals & sealed) != sealed || (seals & unsealed))
		return false;
	if (fstat(fd, &st) || !S_ISREG(st.st_mode))
		return false;
	/* a hugetlbfs page that its owner has punched out gives SIGBUS if no huge page is left */
	if (fstatfs(fd, &fs) || fs.f_type == HUGETLBFS_MAGIC)
		return false;
	return st.st_size > 0 && st.st_size % SEGMENT_PAGE == 0 && (uint64_t)st.st_size <= max_bytes;
}

static bool is_writable(int fd)
{
	int flags = fcntl(fd, F_GETFL);

	return flags >= 0 && (flags & O_ACCMODE) == O_RDWR;
}

static bool is_eventfd(int fd)
{
	char path[64], target[64];

	snprintf(path, sizeof(path), "/proc/thread-self/fd/%d", fd);
	ssize_t n = readlink(path, target, sizeof(target) - 1);
	if (n < 0)
		return access("/proc/self", F_OK) != 0; /* without /proc it cannot be checked */
	target[n] = 0;
	return !strcmp(target, "anon_inode:[eventfd]");
}

const char *vb_attach_wrong(const int fds[3])
{
	if (!is_memfd(fds[VB_FD_SEG], F_SEAL_SHRINK | F_SEAL_FUTURE_WRITE, 0, VB_MAX_SEG_BYTES))
		return "the segment is not a sealed memfd";
	if (!is_memfd(fds[VB_FD_BELL], F_SEAL_SHRINK | F_SEAL_GROW, F_SEAL_WRITE | F_SEAL_FUTURE_WRITE,
	              VB_MAX_BELL_BYTES) ||
	    !is_writable(fds[VB_FD_BELL]))
		return "the doorbell is not a sealed, writable memfd";
	if (!is_eventfd(fds[VB_FD_WAKE]))
		return "the wake descriptor is not an eventfd";
	return NULL;
}

static uint64_t random_nonzero(void)
{
	uint64_t v = 0;

	while (!v)
		if (getrandom(&v, sizeof(v), 0) != sizeof(v))
			v = 0;
	return v;
}

/* The same program on a second connection: it has closed the first, and we have not seen that yet. */
static bool replaces_itself(const struct vb_broker *b, const struct vb_session *s, const struct vb_msg_attach *m)
{
	const struct vb_session *old = m->lane < VB_LANE_COUNT ? b->holder[m->lane] : NULL;

	return old && old != s && old->uid == s->uid && old->pid && old->pid == s->pid &&
	       b->table.lanes[m->lane].incarnation == m->incarnation;
}

static struct vb_table_asker asker_of(const struct vb_broker *b, const struct vb_session *s)
{
	return (struct vb_table_asker){
	        .uid = s->uid, .foreign = s->foreign, .now = vb_broker_now_ms(), .max_lanes = b->max_lanes};
}

static int assign_lane(struct vb_broker *b, struct vb_session *s, const struct vb_msg_attach *m, uint32_t *lane)
{
	struct vb_table_asker asker = asker_of(b, s);

	if (!m->lane) {
		*lane = vb_table_take(&b->table, &asker, random_nonzero());
		return *lane ? 0 : ENOSPC;
	}
	if (replaces_itself(b, s, m)) {
		vb_session_close(b, b->holder[m->lane], false);
		vb_table_reserve(&b->table, m->lane, s->uid, m->incarnation);
	}
	*lane = m->lane;
	return vb_table_claim(&b->table, m->lane, &asker, m->incarnation);
}

static void save_lane(struct vb_broker *b, const struct vb_session *s)
{
	const struct vb_lane *l = &b->table.lanes[s->lane];
	struct vb_state_lane rec = {
	        .lane = s->lane,
	        .uid = s->uid,
	        .incarnation = l->incarnation,
	        .pid = s->pid,
	        .starttime = s->pid ? vb_process_starttime(s->pid) : 0,
	};

	vb_state_put(&b->state, &rec, b->table.next);
}

/* Its lane was swept, but the holder lives and still has its socket: opens the lane again. */
static void reopen_swept_lane(struct vb_broker *b, uint32_t lane)
{
	struct vb_holder holder;
	int fd;

	if (!vb_lane_set_has(&b->swept, lane))
		return;
	vb_lane_set_remove(&b->swept, lane);
	if (b->holder[lane]->foreign) /* its channel has ended: the program asks for a new one */
		return;
	if (!vb_hold_give(&b->hold, &b->config.rt, lane, false, &fd, &holder))
		close(fd);
}

static void finish_attach(struct vb_broker *b, struct vb_session *s, uint32_t lane, const int fds[3])
{
	struct vb_reserved *r = &b->reserved[lane];

	if (r->pid_fd >= 0) {
		epoll_ctl(b->epoll_fd, EPOLL_CTL_DEL, r->pid_fd, NULL);
		close(r->pid_fd);
		r->pid_fd = -1;
	}
	s->lane = lane;
	s->deadline = 0;
	s->attached_due = true;
	memcpy(s->fds, fds, sizeof(s->fds));
	b->holder[lane] = s;
	b->npending--;
	b->counters.attaches++;
	save_lane(b, s);
	reopen_swept_lane(b, lane);
	vb_parked_retry(b, lane);
}

/* If it returns true, the descriptors are the session's. */
static bool on_attach(struct vb_broker *b, struct vb_session *s, const void *msg, size_t len, const int *fds, int nfds)
{
	struct vb_msg_attach m;
	uint32_t lane;

	if (len < sizeof(m) || s->lane)
		return refuse_bad_message(b, s, "ATTACH too short, or sent twice");
	memcpy(&m, msg, sizeof(m));
	if (m.ngids > VB_MAX_GIDS || len != sizeof(m) + m.ngids * 16ull || nfds != 3)
		return refuse_bad_message(b, s, "ATTACH of a wrong length");
	const char *wrong = vb_attach_wrong(fds);
	if (wrong)
		return refuse_session(b, s, EBADF, wrong);
	/* the program was attached to an earlier broker; not one that reconnects to this broker */
	bool back = m.lane < VB_LANE_COUNT && b->table.lanes[m.lane].state == VB_LANE_RESERVED;
	s->elsewhere = m.network && b->network && m.network != b->network;
	int err = assign_lane(b, s, &m, &lane);
	if (err == EBUSY)
		return refuse_session(b, s, err, "the claimed lane belongs to another program now");
	if (err)
		return refuse_session(b, s, err,
		                      err == ENOSPC ? "all lanes are taken" : "the claimed lane does not exist");
	err = vb_table_set_gids(&b->table, lane, (const uint8_t(*)[16])((const char *)msg + sizeof(m)), m.ngids);
	if (err) {
		vb_lane_release(b, lane, VB_GROUPS_NONE);
		return refuse_session(b, s, err, "no memory");
	}
	if (back)
		b->returned_at = vb_broker_now_ms();
	if (!m.lane) { /* cleans up after an earlier holder */
		vb_lane_set_remove(&b->swept, lane);
		vb_hold_take_back(&b->hold, lane, VB_GROUPS_MAYBE);
	}
	finish_attach(b, s, lane, fds);
	return true;
}

/* ---- MEET ---- */

/* MEETs parked for all programs of this user. */
static uint32_t parked_of(const struct vb_broker *b, uid_t uid)
{
	uint32_t n = 0;

	for (const struct vb_parked *p = b->parked; p; p = p->next)
		n += b->holder[p->asker] && b->holder[p->asker]->uid == uid;
	return n;
}

static int park_meet(struct vb_broker *b, struct vb_session *s, const struct vb_msg_meet *m)
{
	if (b->nparked >= VB_MAX_PARKED || s->nparked >= VB_MAX_PARKED_EACH)
		return ENOENT;
	if (s->foreign && parked_of(b, s->uid) >= (VB_MAX_PARKED - b->nparked) / 2)
		return ENOENT;
	struct vb_parked *p = malloc(sizeof(*p));
	if (!p)
		return ENOENT;
	*p = (struct vb_parked){
	        .next = b->parked,
	        .asker = s->lane,
	        .qpn = m->qpn,
	        .tag = m->tag,
	        .asker_incarnation = b->table.lanes[s->lane].incarnation,
	};
	memcpy(p->dgid, m->dgid, sizeof(p->dgid));
	b->parked = p;
	b->nparked++;
	s->nparked++;
	return 0;
}

static void answer_meet(struct vb_broker *b, struct vb_session *s, const struct vb_msg_meet *m)
{
	uint32_t lane = 0;
	int err = vb_table_find(&b->table, s->lane, m->qpn, m->dgid, &lane);

	if (err == EAGAIN) {
		err = park_meet(b, s, m);
		if (!err)
			return;
	}
	s->answers[s->nanswers++] = (struct vb_answer){
	        .tag = m->tag, .err = err, .lane = lane, .incarnation = b->table.lanes[lane].incarnation};
	if (err)
		return;
	b->counters.meets++;
	vb_lane_set_add(&b->holder[lane]->introduce, s->lane);
	vb_session_flush(b, b->holder[lane]);
}

static bool on_meet(struct vb_broker *b, struct vb_session *s, const void *msg, size_t len)
{
	struct vb_msg_meet m;

	if (len != sizeof(m) || !s->lane)
		return refuse_bad_message(b, s, "MEET of a wrong length, or before ATTACH");
	if (s->nanswers >= VB_MAX_ANSWERS) /* only tests get here: the broker does not read such a session */
		return refuse_bad_message(b, s, "too many meets");
	memcpy(&m, msg, sizeof(m));
	answer_meet(b, s, &m);
	return true;
}

static void unlink_parked(struct vb_broker *b, struct vb_parked **at)
{
	struct vb_parked *p = *at;

	*at = p->next;
	b->nparked--;
	if (b->holder[p->asker] && b->table.lanes[p->asker].incarnation == p->asker_incarnation)
		b->holder[p->asker]->nparked--;
}

void vb_parked_retry(struct vb_broker *b, uint32_t lane)
{
	struct vb_parked **at = &b->parked, *p;

	while ((p = *at)) {
		struct vb_session *s = b->holder[p->asker];
		if (p->qpn >> VB_LANE_SHIFT != lane || !s) {
			at = &p->next;
			continue;
		}
		unlink_parked(b, at);
		struct vb_msg_meet m = {.tag = p->tag, .qpn = p->qpn};
		memcpy(m.dgid, p->dgid, sizeof(m.dgid));
		free(p);
		answer_meet(b, s, &m);
		vb_session_flush(b, s);
	}
}

void vb_parked_forget(struct vb_broker *b, uint32_t asker)
{
	struct vb_parked **at = &b->parked, *p;

	while ((p = *at)) {
		if (p->asker != asker) {
			at = &p->next;
			continue;
		}
		unlink_parked(b, at);
		free(p);
	}
}

/* ---- other messages ---- */

static bool on_set_gids(struct vb_broker *b, struct vb_session *s, const void *msg, size_t len)
{
	struct vb_msg_set_gids m;

	if (len < sizeof(m) || !s->lane)
		return refuse_bad_message(b, s, "SET_GIDS too short, or before ATTACH");
	memcpy(&m, msg, sizeof(m));
	if (m.n > VB_MAX_GIDS || len != sizeof(m) + m.n * 16ull)
		return refuse_bad_message(b, s, "SET_GIDS of a wrong length");
	int err = vb_table_set_gids(&b->table, s->lane, (const uint8_t(*)[16])((const char *)msg + sizeof(m)), m.n);
	return err ? refuse_session(b, s, err, "no memory") : true;
}

static bool on_roce(struct vb_broker *b, struct vb_session *s, size_t len)
{
	if (len != sizeof(struct vb_msg_head) || !s->lane)
		return refuse_bad_message(b, s, "ROCE of a wrong length, or before ATTACH");
	/* the broker waits for the keeper: limits how often another user's program can cause that */
	int64_t now = vb_broker_now_ms();
	if (s->foreign && s->roce_asked_at && now - s->roce_asked_at < VB_ROCE_EACH_MS)
		return refuse_session(b, s, EAGAIN, "the lane was asked for a moment ago");
	s->roce_asked_at = now;
	s->roce_due = true;
	return true;
}

static bool on_roce_group(struct vb_broker *b, struct vb_session *s, const void *msg, size_t len)
{
	struct vb_msg_roce_group m;

	if (len != sizeof(m) || !s->lane)
		return refuse_bad_message(b, s, "ROCE_GROUP of a wrong length, or before ATTACH");
	memcpy(&m, msg, sizeof(m));
	if (s->foreign && s->groups_changed++ < VB_GROUP_CHANGES)
		vb_hold_group(&b->hold, s->lane, m.group, m.ifindex, m.join);
	if (!s->foreign) {
		s->in_groups = true;
		vb_session_introduce_sharers(b, s, false);
	}
	return true;
}

static bool on_status(struct vb_broker *b, struct vb_session *s, size_t len)
{
	if (len != sizeof(struct vb_msg_head))
		return refuse_bad_message(b, s, "STATUS of a wrong length");
	s->status_next = 1;
	return true;
}

bool vb_session_handle(struct vb_broker *b, struct vb_session *s, const void *msg, size_t len, const int *fds, int nfds)
{
	struct vb_msg_head head;
	const char *wrong;
	bool ok;

	if (len >= sizeof(head))
		memcpy(&head, msg, sizeof(head));
	if (len < sizeof(head) || head.len != len) {
		vb_session_drop_fds(s, fds, nfds);
		return refuse_bad_message(b, s, "the head's length is not that of the message");
	}
	if (head.version != VB_PROTO_VERSION) {
		vb_session_drop_fds(s, fds, nfds);
		return refuse_session(b, s, EPROTONOSUPPORT, "broker and program are different versions of Verbena");
	}
	if (head.type == VB_MSG_ATTACH) {
		ok = on_attach(b, s, msg, len, fds, nfds);
		if (!ok)
			vb_session_drop_fds(s, fds, nfds);
		return ok;
	}
	vb_session_drop_fds(s, fds, nfds); /* no other message may bring descriptors */
	if (nfds)
		return refuse_bad_message(b, s, "descriptors in a message that may have none");
	switch (head.type) {
	case VB_MSG_SET_GIDS:
		return on_set_gids(b, s, msg, len);
	case VB_MSG_MEET:
		return on_meet(b, s, msg, len);
	case VB_MSG_ROCE:
		return on_roce(b, s, len);
	case VB_MSG_ROCE_GROUP:
		return on_roce_group(b, s, msg, len);
	case VB_MSG_STATUS:
		return on_status(b, s, len);
	case VB_MSG_CM_OPEN:
	case VB_MSG_CM_CLOSE:
	case VB_MSG_CM_SEND:
	case VB_MSG_CM_AT_DEATH:
	case VB_MSG_CM_BIND:
	case VB_MSG_CM_LISTEN:
	case VB_MSG_CM_UNBIND:
		wrong = vb_gsi_message(b, s, head.type, msg, len);
		return wrong ? refuse_bad_message(b, s, wrong) : true;
	case VB_MSG_DETACH:
		s->detached = true;
		return false;
	default:
		return refuse_bad_message(b, s, "unknown message");
	}
}
