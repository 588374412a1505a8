// handle.c - what the broker does with each message
// follows: proto.h
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

static bool garbage(struct vb_broker *b, struct vb_session *s, const char *text)
{
	vb_session_refuse(b, s, EBADMSG, text);
	return false;
}

static bool refuse(struct vb_broker *b, struct vb_session *s, int err, const char *text)
{
	vb_session_refuse(b, s, err, text);
	return false;
}

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
	/* huge pages: who touches one after its owner has punched it out gets SIGBUS when there is none left */
	if (fstatfs(fd, &fs) || fs.f_type == HUGETLBFS_MAGIC)
		return false;
	return st.st_size > 0 && st.st_size % 4096 == 0 && (uint64_t)st.st_size <= max_bytes;
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
		return access("/proc/self", F_OK) != 0; /* no /proc here: nothing to tell it by */
	target[n] = 0;
	return !strcmp(target, "anon_inode:[eventfd]");
}

const char *vb_attach_wrong(const int fds[3])
{
	if (!is_memfd(fds[VB_FD_SEG], F_SEAL_SHRINK | F_SEAL_FUTURE_WRITE, 0, VB_MAX_SEG_BYTES))
		return "the segment is not a sealed memfd";
	if (!is_memfd(fds[VB_FD_BELL], F_SEAL_SHRINK | F_SEAL_GROW, F_SEAL_WRITE | F_SEAL_FUTURE_WRITE, VB_MAX_BELL_BYTES) ||
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

/* The same program on a second connection, because it gave up the first before we saw its end. */
static bool replaces_itself(const struct vb_broker *b, const struct vb_session *s, const struct vb_msg_attach *m)
{
	const struct vb_session *old = m->lane < VB_LANE_COUNT ? b->holder[m->lane] : NULL;

	return old && old != s && old->uid == s->uid && old->pid && old->pid == s->pid &&
	       b->table.lanes[m->lane].incarnation == m->incarnation;
}

static struct vb_table_asker asker_of(const struct vb_broker *b, const struct vb_session *s)
{
	return (struct vb_table_asker){.uid = s->uid, .foreign = s->foreign, .now = vb_broker_now_ms(), .max_lanes = b->max_lanes};
}

static int take_lane(struct vb_broker *b, struct vb_session *s, const struct vb_msg_attach *m, uint32_t *lane)
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

static void save(struct vb_broker *b, const struct vb_session *s)
{
	const struct vb_lane *l = &b->table.lanes[s->lane];
	struct vb_state_lane rec = {
		.lane = s->lane, .uid = s->uid, .incarnation = l->incarnation,
		.pid = s->pid, .starttime = s->pid ? vb_process_starttime(s->pid) : 0,
	};

	vb_state_put(&b->state, &rec, b->table.next);
}

/* Its holder was given up for dead, and has its socket still. */
static void reopen(struct vb_broker *b, uint32_t lane)
{
	struct vb_holder holder;
	int fd;

	if (!vb_lane_set_has(&b->swept, lane))
		return;
	vb_lane_set_remove(&b->swept, lane);
	if (b->holder[lane]->foreign) /* its channel has ended: it asks again */
		return;
	if (!vb_hold_give(&b->hold, &b->config.rt, lane, false, &fd, &holder))
		close(fd);
}

static void settle(struct vb_broker *b, struct vb_session *s, uint32_t lane, const int fds[3])
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
	save(b, s);
	reopen(b, lane);
	vb_parked_retry(b, lane);
}

/* The descriptors are ours when it returns true. */
static bool attach(struct vb_broker *b, struct vb_session *s, const void *msg, size_t len, const int *fds, int nfds)
{
	struct vb_msg_attach m;
	uint32_t lane;

	if (len < sizeof(m) || s->lane)
		return garbage(b, s, "ATTACH too short, or twice");
	memcpy(&m, msg, sizeof(m));
	if (m.ngids > VB_MAX_GIDS || len != sizeof(m) + m.ngids * 16ull || nfds != 3)
		return garbage(b, s, "ATTACH of a wrong length");
	const char *wrong = vb_attach_wrong(fds);
	if (wrong)
		return refuse(b, s, EBADF, wrong);
	/* a program of the broker before us; not one that connects anew to this one */
	bool back = m.lane < VB_LANE_COUNT && b->table.lanes[m.lane].state == VB_LANE_RESERVED;
	int err = take_lane(b, s, &m, &lane);
	if (err == EBUSY)
		return refuse(b, s, err, "the lane claimed is another program's by now");
	if (err)
		return refuse(b, s, err, err == ENOSPC ? "all lanes are taken" : "claim of an impossible lane");
	err = vb_table_set_gids(&b->table, lane, (const uint8_t(*)[16])((const char *)msg + sizeof(m)), m.ngids);
	if (err) {
		vb_lane_release(b, lane);
		return refuse(b, s, err, "no memory");
	}
	if (back)
		b->returned_at = vb_broker_now_ms();
	if (!m.lane) { /* whatever an earlier holder left */
		vb_lane_set_remove(&b->swept, lane);
		vb_hold_take_back(&b->hold, lane);
	}
	settle(b, s, lane, fds);
	return true;
}

/* ---- MEET ---- */

/* Of all the programs of its user. */
static uint32_t parked_of(const struct vb_broker *b, uid_t uid)
{
	uint32_t n = 0;

	for (const struct vb_parked *p = b->parked; p; p = p->next)
		n += b->holder[p->asker] && b->holder[p->asker]->uid == uid;
	return n;
}

static int park(struct vb_broker *b, struct vb_session *s, const struct vb_msg_meet *m)
{
	if (b->nparked >= VB_MAX_PARKED || s->nparked >= VB_MAX_PARKED_EACH)
		return ENOENT;
	if (s->foreign && parked_of(b, s->uid) >= (VB_MAX_PARKED - b->nparked) / 2)
		return ENOENT;
	struct vb_parked *p = malloc(sizeof(*p));
	if (!p)
		return ENOENT;
	*p = (struct vb_parked){
		.next = b->parked, .asker = s->lane, .qpn = m->qpn, .tag = m->tag,
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
		err = park(b, s, m);
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

static bool meet(struct vb_broker *b, struct vb_session *s, const void *msg, size_t len)
{
	struct vb_msg_meet m;

	if (len != sizeof(m) || !s->lane)
		return garbage(b, s, "MEET of a wrong length, or before ATTACH");
	if (s->nanswers >= VB_MAX_ANSWERS) /* only by the test entry: such a session is not read */
		return garbage(b, s, "too many meets");
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

/* ---- the others ---- */

static bool set_gids(struct vb_broker *b, struct vb_session *s, const void *msg, size_t len)
{
	struct vb_msg_set_gids m;

	if (len < sizeof(m) || !s->lane)
		return garbage(b, s, "SET_GIDS too short, or before ATTACH");
	memcpy(&m, msg, sizeof(m));
	if (m.n > VB_MAX_GIDS || len != sizeof(m) + m.n * 16ull)
		return garbage(b, s, "SET_GIDS of a wrong length");
	int err = vb_table_set_gids(&b->table, s->lane, (const uint8_t(*)[16])((const char *)msg + sizeof(m)), m.n);
	return err ? refuse(b, s, err, "no memory") : true;
}

static bool wire(struct vb_broker *b, struct vb_session *s, size_t len)
{
	if (len != sizeof(struct vb_msg_head) || !s->lane)
		return garbage(b, s, "WIRE of a wrong length, or before ATTACH");
	/* the keeper is asked and waited for: not as often as another user's program likes */
	int64_t now = vb_broker_now_ms();
	if (s->foreign && s->wire_at && now - s->wire_at < VB_ROCE_EACH_MS)
		return refuse(b, s, EAGAIN, "the lane was asked for a moment ago");
	s->wire_at = now;
	s->due = true;
	return true;
}

static bool wire_group(struct vb_broker *b, struct vb_session *s, const void *msg, size_t len)
{
	struct vb_msg_roce_group m;

	if (len != sizeof(m) || !s->lane)
		return garbage(b, s, "WIRE_GROUP of a wrong length, or before ATTACH");
	memcpy(&m, msg, sizeof(m));
	if (s->foreign && s->groups_changed++ < VB_GROUP_CHANGES)
		vb_hold_group(&b->hold, s->lane, m.group, m.ifindex, m.join);
	return true;
}

static bool status(struct vb_broker *b, struct vb_session *s, size_t len)
{
	if (len != sizeof(struct vb_msg_head))
		return garbage(b, s, "STATUS of a wrong length");
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
		return garbage(b, s, "length in the head is not the message's");
	}
	if (head.version != VB_PROTO_VERSION) {
		vb_session_drop_fds(s, fds, nfds);
		return refuse(b, s, EPROTONOSUPPORT, "broker and program are of different versions of Verbena");
	}
	if (head.type == VB_MSG_ATTACH) {
		ok = attach(b, s, msg, len, fds, nfds);
		if (!ok)
			vb_session_drop_fds(s, fds, nfds);
		return ok;
	}
	vb_session_drop_fds(s, fds, nfds); /* uninvited */
	if (nfds)
		return garbage(b, s, "descriptors that nobody asked for");
	switch (head.type) {
	case VB_MSG_SET_GIDS:
		return set_gids(b, s, msg, len);
	case VB_MSG_MEET:
		return meet(b, s, msg, len);
	case VB_MSG_ROCE:
		return wire(b, s, len);
	case VB_MSG_ROCE_GROUP:
		return wire_group(b, s, msg, len);
	case VB_MSG_STATUS:
		return status(b, s, len);
	case VB_MSG_CM_OPEN:
	case VB_MSG_CM_CLOSE:
	case VB_MSG_CM_SEND:
	case VB_MSG_CM_AT_DEATH:
	case VB_MSG_CM_BIND:
	case VB_MSG_CM_LISTEN:
	case VB_MSG_CM_UNBIND:
		wrong = vb_gsi_message(b, s, head.type, msg, len);
		return wrong ? garbage(b, s, wrong) : true;
	case VB_MSG_DETACH:
		s->detached = true;
		return false;
	default:
		return garbage(b, s, "unknown message");
	}
}
