// meeting.c - asks the broker which process has a queue pair, and keeps its answers
// see: docs/same-host.md
// SPDX-License-Identifier: MIT
#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include "core/device.h"
#include "node/io.h"
#include "path/local/meeting.h"
#include "path/roce/roce.h"
#include "util/calls.h"
#include "util/timespec.h"
#include "util/units.h"

/* A question to the broker. It keeps its answer until it is asked again, so that a retry finds the answer. */
struct vb_meeting {
	uint64_t tag;
	uint32_t qpn;
	union ibv_gid dgid;
	bool asking;       /* the broker has not answered yet */
	bool unsent;       /* the question is not sent yet */
	bool reminder;     /* a repeated question, which needs no answer, is not sent yet */
	int err;           /* result of the last answer; EAGAIN if there is none */
	uint64_t asked;    /* ns; time of the last question or answer */
	uint64_t answered; /* ns; time of the last answer */
	struct vb_peer *peer;
	struct vb_meeting *next;
};

/* An answer "no such process" older than this makes us ask the broker again. */
#define NOBODY_NS VB_MS(1)
/* Callers that do not wait use the old answer up to this age, until the new one arrives. On a busy machine they would
 * otherwise never see an answer, because they always return later than NOBODY_NS. */
#define NOBODY_STANDS_NS VB_S(10)
/* A question without an answer is sent again after this time. It keeps its tag, because the first answer of a slow
 * broker may still arrive. */
#define ASK_AGAIN_NS VB_S(1)
/* A peer that has not mapped us after this time is slow or has lost our introduction. The broker introduces us
 * again. */
#define REMIND_NS VB_MS(100)

static bool gid_confirmed(const struct vb_peer *p, const union ibv_gid *dgid)
{
	for (unsigned i = 0; i < p->ngids; i++)
		if (!memcmp(&p->gids[i], dgid, sizeof(*dgid)))
			return true;
	return false;
}

/* Under questions_lock. */
static void gid_confirm(struct vb_peer *p, const union ibv_gid *dgid)
{
	if (gid_confirmed(p, dgid))
		return;
	if (p->self && !p->ngids) /* for others vb_peer_meet has done it */
		vb_expect_records(p->node);
	p->gids[p->ngids % VB_PEER_GIDS] = *dgid;
	p->ngids += p->ngids < VB_PEER_GIDS;
}

/* Stores the answer to the question with this tag: the peer p, or NULL and an errno value. No lock held. */
static void store_answer(struct vb_node *node, uint64_t tag, int err, struct vb_peer *p)
{
	struct vb_io *io = node->io;

	vb_mutex_lock(&io->meet_lock, VB_RANK_MEETING);
	vb_lock(&io->questions_lock);
	for (struct vb_meeting *m = io->meetings; m; m = m->next) {
		if (m->tag != tag)
			continue;
		m->asking = m->unsent = false;
		m->err = p ? 0 : err ? err : ENOENT;
		m->peer = p;
		m->asked = m->answered = vb_now();
		if (p)
			gid_confirm(p, &m->dgid);
	}
	vb_unlock(&io->questions_lock);
	pthread_cond_broadcast(&io->meet_cond);
	vb_mutex_unlock(&io->meet_lock);
	io->resolve_news = true;
}

void vb_peer_on_meet_reply(struct vb_node *node, uint64_t tag, int err, const struct vb_peer_info *info)
{
	store_answer(node, tag, err, info ? vb_peer_meet(node, info) : NULL);
}

void vb_questions_on_reattached(struct vb_node *node)
{
	struct vb_io *io = node->io;

	vb_lock(&io->questions_lock);
	for (struct vb_meeting *m = io->meetings; m; m = m->next)
		m->unsent = m->asking;
	vb_unlock(&io->questions_lock);
	vb_questions_note(node); /* the progress thread sends them after the broker's messages */
}

/* Returns the question about this QP's process and address, or NULL. Under questions_lock. */
static struct vb_meeting *meeting_of(struct vb_io *io, uint32_t qpn, const union ibv_gid *dgid)
{
	struct vb_meeting *m = io->meetings;

	while (m && (VB_QP_LANE(m->qpn) != VB_QP_LANE(qpn) || memcmp(&m->dgid, dgid, sizeof(*dgid)) != 0))
		m = m->next;
	return m;
}

/* Allocates the struct for the next question in advance, because code under a spin lock must not allocate. No lock
 * held. */
static bool allocate_spare(struct vb_io *io)
{
	struct vb_meeting *m;

	if (atomic_load(&io->spare_meeting))
		return true;
	m = calloc(1, sizeof(*m));
	if (m && (m = atomic_exchange(&io->spare_meeting, m)))
		free(m); /* another thread stored one first */
	return atomic_load(&io->spare_meeting);
}

/* Finds or makes the meeting. If it has no valid answer, marks its question for sending. Returns NULL if a new meeting
 * is needed and there is no spare struct. Under questions_lock. */
static struct vb_meeting *ask_broker(struct vb_node *node, uint32_t qpn, const union ibv_gid *dgid)
{
	struct vb_io *io = node->io;
	struct vb_meeting *m = meeting_of(io, qpn, dgid);
	uint64_t now = vb_now();

	if (m) {
		bool gone = m->err == 0 && (!m->peer || !vb_peer_alive(m->peer));
		bool stale = m->asking ? now - m->asked > ASK_AGAIN_NS : m->err ? now - m->asked > NOBODY_NS : gone;

		if (gone || (m->err && now - m->answered > NOBODY_STANDS_NS)) {
			m->err = EAGAIN;
			m->peer = NULL;
		}
		if (!stale)
			return m;
	} else {
		m = atomic_exchange(&io->spare_meeting, NULL);
		if (!m)
			return NULL;
		m->dgid = *dgid;
		m->err = EAGAIN;
		m->next = io->meetings;
		io->meetings = m;
	}
	m->qpn = qpn;
	if (!m->asking)
		m->tag = ++io->meet_tag;
	m->asking = m->unsent = true;
	m->asked = now;
	return m;
}

/* Asks the kernel whether the GID is an address of this host. No lock held. */
static bool is_local(struct vb_node *node, const union ibv_gid *gid)
{
	int cancel;

	if (!memcmp(gid, &node->io->ib_address, sizeof(*gid)) && !vb_gid_is_zero(gid))
		return true;
	vb_cancel_defer(&cancel);
	bool local = vb_gid_is_local(gid);
	vb_cancel_restore(cancel);
	return local;
}

void vb_peer_address(struct vb_node *node, const union ibv_gid *dgid)
{
	struct vb_peer *self = atomic_load_explicit(&node->peers[node->lane], memory_order_acquire);
	struct vb_io *io = node->io;

	if (!self || !self->self)
		return;
	vb_lock(&io->questions_lock);
	bool known = gid_confirmed(self, dgid);
	vb_unlock(&io->questions_lock);
	if (known || !is_local(node, dgid))
		return;
	vb_lock(&io->questions_lock);
	gid_confirm(self, dgid);
	vb_unlock(&io->questions_lock);
}

void vb_questions_note(struct vb_node *node)
{
	if (!atomic_exchange(&node->io->questions, true))
		vb_progress_wake(node);
}

struct question {
	uint64_t tag;
	uint32_t qpn;
	union ibv_gid dgid;
};

/* Takes the next unsent questions. Returns how many. */
static unsigned take_questions(struct vb_io *io, struct question *q, unsigned max)
{
	unsigned n = 0;

	vb_lock(&io->questions_lock);
	for (struct vb_meeting *m = io->meetings; m && n < max; m = m->next) {
		if (m->unsent)
			q[n++] = (struct question){m->tag, m->qpn, m->dgid};
		else if (m->reminder)
			q[n++] = (struct question){++io->meet_tag, m->qpn, m->dgid};
		m->unsent = m->reminder = false;
	}
	vb_unlock(&io->questions_lock);
	return n;
}

static void send_question(struct vb_node *node, const struct question *q)
{
	struct vb_peer *p = atomic_load_explicit(&node->peers[VB_QP_LANE(q->qpn)], memory_order_acquire);

	if (p && p->self)
		store_answer(node, q->tag, ENOENT, is_local(node, &q->dgid) ? p : NULL);
	else
		vb_broker_meet(node->io->broker, q->tag, q->qpn,
		               &q->dgid); /* if the broker is away, vb_questions_on_reattached asks again */
}

void vb_questions_send(struct vb_node *node)
{
	struct vb_io *io = node->io;
	struct question some[16];
	unsigned n;

	if (!atomic_load_explicit(&io->questions, memory_order_relaxed) || !atomic_exchange(&io->questions, false))
		return;
	VB_MAY_WAIT();
	allocate_spare(io);
	do {
		n = take_questions(io, some, sizeof(some) / sizeof(some[0]));
		for (unsigned i = 0; i < n; i++)
			send_question(node, &some[i]);
	} while (n == sizeof(some) / sizeof(some[0]));
	vb_roce_send_question(node);
}

/* Returns the peer of the last answer, or NULL and *err; EAGAIN if the broker has not answered. Under
 * questions_lock. */
static struct vb_peer *answer_of(const struct vb_meeting *m, int *err)
{
	*err = !m || m->asking ? EAGAIN : m->err;
	return *err ? NULL : m->peer;
}

/* Returns the peer if it is known; otherwise schedules a question to the broker. With `stands`, the previous answer is
 * valid until the new one arrives. Sets *err as vb_peer_find does, or to ENOMEM if there is no spare struct. */
static struct vb_peer *find_or_ask(struct vb_node *node, uint32_t qpn, const union ibv_gid *dgid, bool stands, int *err)
{
	struct vb_io *io = node->io;
	struct vb_peer *p = atomic_load_explicit(&node->peers[VB_QP_LANE(qpn)], memory_order_acquire);
	bool note = false;

	*err = 0;
	vb_lock(&io->questions_lock);
	if (!p || !vb_peer_alive(p) || !gid_confirmed(p, dgid)) {
		const struct vb_meeting *m = ask_broker(node, qpn, dgid);

		p = answer_of(m, err);
		if (m && m->asking && stands) {
			*err = m->err;
			p = m->peer;
		}
		note = !m || m->unsent;
		if (!m)
			*err = ENOMEM;
	}
	vb_unlock(&io->questions_lock);
	if (note)
		vb_questions_note(node);
	return p;
}

static bool is_open(struct vb_io *io, uint32_t qpn, const union ibv_gid *dgid)
{
	vb_lock(&io->questions_lock);
	const struct vb_meeting *m = meeting_of(io, qpn, dgid);
	bool open = m && m->asking;

	vb_unlock(&io->questions_lock);
	return open;
}

/* Waits for the answer to an open question. */
static struct vb_peer *await_answer(struct vb_node *node, uint32_t qpn, const union ibv_gid *dgid,
                                    const struct timespec *until, int *err)
{
	struct vb_io *io = node->io;
	struct vb_peer *p;

	VB_MAY_WAIT();
	vb_questions_send(node);
	vb_mutex_lock(&io->meet_lock, VB_RANK_MEETING);
	while (is_open(io, qpn, dgid))
		if (pthread_cond_timedwait(&io->meet_cond, &io->meet_lock, until))
			break;
	vb_mutex_unlock(&io->meet_lock);
	vb_lock(&io->questions_lock);
	p = answer_of(meeting_of(io, qpn, dgid), err);
	vb_unlock(&io->questions_lock);
	return p;
}

struct vb_peer *vb_peer_find(struct vb_node *node, uint32_t qpn, const union ibv_gid *dgid, unsigned wait_ms, int *err)
{
	struct vb_peer *p;

	if (!wait_ms) {
		/* the previous answer is good enough only if RoCE is up, because then there is another path */
		p = find_or_ask(node, qpn, dgid, atomic_load_explicit(&node->io->roce->up, memory_order_relaxed), err);
		if (*err == ENOMEM) /* the progress thread allocates the struct */
			*err = EAGAIN;
		return p;
	}
	struct timespec until = vb_timespec_after(VB_MS(wait_ms));

	do {
		if (!allocate_spare(node->io)) {
			*err = ENOMEM;
			return NULL;
		}
		p = find_or_ask(node, qpn, dgid, false, err);
	} while (*err == ENOMEM); /* another thread took the spare struct */
	return *err == EAGAIN ? await_answer(node, qpn, dgid, &until, err) : p;
}

bool vb_peer_answered(struct vb_node *node, uint32_t qpn, const union ibv_gid *dgid, uint64_t since)
{
	struct vb_io *io = node->io;

	vb_lock(&io->questions_lock);
	const struct vb_meeting *m = meeting_of(io, qpn, dgid);
	bool answered = m && m->answered >= since;

	vb_unlock(&io->questions_lock);
	return answered;
}

void vb_peer_remind(struct vb_peer *p)
{
	struct vb_io *io = p->node->io;
	uint64_t now = vb_now();

	vb_lock(&io->questions_lock);
	struct vb_meeting *m = io->meetings;

	while (m && m->peer != p)
		m = m->next;
	bool due = m && !m->asking && now - m->answered > REMIND_NS && now - p->reminded > REMIND_NS;

	if (due) {
		p->reminded = now;
		m->reminder = true;
	}
	vb_unlock(&io->questions_lock);
	if (due)
		vb_questions_note(p->node);
}

struct vb_peer *vb_peer_known(struct vb_node *node, uint32_t qpn, const union ibv_gid *dgid, int *err)
{
	struct vb_peer *p = atomic_load_explicit(&node->peers[VB_QP_LANE(qpn)], memory_order_acquire);
	struct vb_io *io = node->io;

	*err = 0;
	vb_lock(&io->questions_lock);
	if (!p || !p->self || !gid_confirmed(p, dgid))
		p = answer_of(meeting_of(io, qpn, dgid), err);
	vb_unlock(&io->questions_lock);
	if (!*err && (!p || !vb_peer_alive(p))) {
		*err = EAGAIN;
		p = NULL;
	}
	return p;
}

void vb_meetings_free(struct vb_io *io)
{
	while (io->meetings) {
		struct vb_meeting *m = io->meetings;

		io->meetings = m->next;
		free(m);
	}
	free(atomic_load(&io->spare_meeting));
}
