// peer.c - connects two processes of this host: the broker exchanges their descriptors
// see: docs/same-host.md
// SPDX-License-Identifier: MIT
#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <stdlib.h>
#include <string.h>
#include <sys/epoll.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <time.h>
#include <unistd.h>

#include "core/device.h"
#include "engine/local/ring.h"
#include "path/local/copy.h"
#include "node/io.h"
#include "path/local/shared_map.h"
#include "path/roce/roce.h"
#include "path/wire_mode.h"
#include "util/calls.h"
#include "util/guard.h"
#include "util/log.h"
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

static bool fd_is_sealed(int fd, uint64_t size)
{
	struct stat st;
	int seals = fcntl(fd, F_GET_SEALS);

	/* without the seal the owner could truncate the file, and an access would raise SIGBUS */
	return seals >= 0 && (seals & F_SEAL_SHRINK) && !fstat(fd, &st) && (uint64_t)st.st_size >= size;
}

static struct vb_peer *peer_new(struct vb_node *node, uint32_t lane, uint64_t incarnation)
{
	struct vb_peer *p = aligned_alloc(64, (sizeof(*p) + 63) & ~63ul);

	if (!p)
		return NULL;
	memset(p, 0, sizeof(*p));
	p->node = node;
	p->lane = lane;
	vb_lock_init(&p->tx_lock, VB_RANK_PEER_TX);
	vb_lock_init(&p->map_lock, VB_RANK_MAPS);
	p->incarnation = incarnation;
	p->hot_index = -1;
	p->copy_mapped = &vb_copy_self;
	p->pid_fd = p->wake_fd = -1;
	p->ours = vb_seg_slot(node->seg, lane);
	p->tx = (uint8_t *)node->seg + VB_SEG_RINGS_OFF + (uint64_t)lane * VB_RING_BYTES;
	return p;
}

struct vb_peer *vb_peer_self(struct vb_node *node)
{
	struct vb_peer *p = peer_new(node, node->lane, node->incarnation);

	if (!p)
		return NULL;
	p->self = true;
	p->seg = node->hdr;
	p->theirs = p->ours;
	p->rx = p->tx;
	p->doorbell = node->doorbell;
	p->wake_fd = node->io->wake_fd;
	p->copy = &vb_copy_self;
	atomic_store(&p->copy_ok, true);
	atomic_store(&p->ours->can_pull, 1);
	p->fence = node->hdr->fence_needed;
	atomic_store(&p->ours->peer_incarnation, node->incarnation);
	p->next = node->io->all;
	node->io->all = p;
	atomic_store_explicit(&node->peers[p->lane], p, memory_order_release);
	return p;
}

/* The mappings and descriptors of a peer, detached from its struct. */
struct peer_resources {
	void *map, *ring_map, *doorbell;
	size_t map_len;
	int pid_fd, wake_fd;
	struct vb_map *maps;
};

/* Moves the mappings and descriptors out of the peer's struct. */
static struct peer_resources peer_detach(struct vb_peer *p)
{
	struct peer_resources r = {.map = p->map,
	                           .ring_map = p->ring_map,
	                           .doorbell = p->doorbell,
	                           .map_len = p->map_len,
	                           .pid_fd = p->pid_fd,
	                           .wake_fd = p->wake_fd,
	                           .maps = p->maps};

	p->map = p->ring_map = NULL;
	p->doorbell = NULL;
	p->pid_fd = p->wake_fd = -1;
	p->maps = NULL;
	return r;
}

static void peer_resources_free(struct vb_node *node, const struct peer_resources *r)
{
	vb_maps_free(r->maps);
	if (r->map)
		munmap(r->map, r->map_len);
	if (r->ring_map)
		munmap(r->ring_map, VB_RING_BYTES);
	if (r->doorbell)
		munmap(r->doorbell, VB_DOORBELL_BYTES);
	if (r->pid_fd >= 0) {
		/* other programs share the file description, so close() alone would leave it in the epoll set */
		epoll_ctl(node->io->epoll_fd, EPOLL_CTL_DEL, r->pid_fd, NULL);
		close(r->pid_fd);
	}
	if (r->wake_fd >= 0)
		close(r->wake_fd);
}

static void peer_unmap(struct vb_peer *p)
{
	if (p->self)
		return;
	struct peer_resources r = peer_detach(p);

	peer_resources_free(p->node, &r);
}

static bool referred_to(struct vb_node *node, struct vb_peer *p)
{
	for (unsigned i = 0, left = node->qp_count; i < VB_LANE_QPS && left; i++) {
		struct vb_qp *qp = atomic_load_explicit(&node->qps[i], memory_order_relaxed);

		if (!qp)
			continue;
		left--;
		/* A thread that holds sq_lock may be finding the peer or sending it a datagram. A later holder sees
		 * that the peer is dead. */
		vb_lock(&qp->sq_lock);
		vb_unlock(&qp->sq_lock);
		if (qp->local.peer == p)
			return true;
	}
	return false;
}

bool vb_peer_hold(struct vb_peer *p)
{
	struct vb_io *io = p->node->io;

	vb_lock(&io->questions_lock);
	bool there = p->self || p->map;

	p->users += there;
	vb_unlock(&io->questions_lock);
	return there;
}

void vb_peer_release(struct vb_peer *p)
{
	struct vb_io *io = p->node->io;

	vb_lock(&io->questions_lock);
	p->users--;
	vb_unlock(&io->questions_lock);
}

/* Under progress. */
static bool may_unmap(struct vb_node *node, struct vb_peer *p)
{
	if (p->hot_index >= 0 || atomic_load(&node->peers[p->lane]) == p || node->io->ndirty)
		return false;
	return !atomic_load(&node->io->scanning) && !referred_to(node, p);
}

/* Unmaps the dead peers that no queue pair refers to and no thread holds. Their structs stay, because address handles
 * point to them. Called by the progress thread with no lock held. */
static void peers_reap(struct vb_node *node)
{
	struct vb_io *io = node->io;

	for (struct vb_peer *p = io->all; p; p = p->next) {
		struct peer_resources r;
		bool taken = false;

		if (p->self || !p->map || atomic_load(&p->state) != VB_PEER_DEAD)
			continue;
		vb_lock(&node->progress);
		if (may_unmap(node, p)) {
			vb_lock(&io->questions_lock);
			taken = !p->users;
			if (taken)
				r = peer_detach(p);
			vb_unlock(&io->questions_lock);
		}
		vb_unlock(&node->progress);
		if (taken)
			peer_resources_free(node, &r);
	}
}

void vb_peers_in_child(struct vb_node *node)
{
	for (struct vb_peer *p = node->io->all; p; p = p->next) {
		void *at[] = {p->map, p->ring_map, p->doorbell};
		size_t bytes[] = {p->map_len, VB_RING_BYTES, VB_DOORBELL_BYTES};

		atomic_store(&p->state, VB_PEER_DEAD);
		atomic_store(&p->tx_lock.held, 0);
		atomic_store(&p->map_lock.held, 0);
		for (int i = 0; i < 3 && !p->self; i++)
			if (at[i])
				(void)mmap(at[i], bytes[i], PROT_READ | PROT_WRITE,
				           MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE | MAP_FIXED, -1, 0);
	}
}

/* Checks and maps the descriptors of another process, which the broker sent. Takes ownership of the descriptors. */
static struct vb_peer *peer_map(struct vb_node *node, const struct vb_peer_info *info)
{
	struct vb_peer *p = peer_new(node, info->lane, info->incarnation);
	void *m;

	if (!p)
		goto fail;
	p->pid = info->pid;
	p->pid_fd = info->pid_fd;
	p->wake_fd = info->wake_fd;
	p->map_len = VB_SEG_RINGS_OFF;
	if (!fd_is_sealed(info->seg_fd, VB_SEG_BYTES) || !fd_is_sealed(info->doorbell_fd, VB_DOORBELL_BYTES))
		goto fail;
	m = mmap(NULL, p->map_len, PROT_READ, MAP_SHARED | MAP_NORESERVE, info->seg_fd, 0);
	if (m == MAP_FAILED)
		goto fail;
	p->map = m;
	p->seg = m;
	m = mmap(NULL, VB_RING_BYTES, PROT_READ, MAP_SHARED, info->seg_fd,
	         (off_t)(VB_SEG_RINGS_OFF + (uint64_t)node->lane * VB_RING_BYTES));
	if (m == MAP_FAILED)
		goto fail;
	p->ring_map = m;
	p->rx = m;
	m = mmap(NULL, VB_DOORBELL_BYTES, PROT_READ | PROT_WRITE, MAP_SHARED, info->doorbell_fd, 0);
	if (m == MAP_FAILED)
		goto fail;
	p->doorbell = m;
	madvise(p->map, p->map_len, MADV_DONTFORK);
	madvise(p->ring_map, VB_RING_BYTES, MADV_DONTFORK);
	madvise(p->doorbell, VB_DOORBELL_BYTES, MADV_DONTFORK);
	if (p->seg->magic != VB_SEG_MAGIC || p->seg->version != VB_SEG_VERSION || p->seg->lane != p->lane ||
	    p->seg->incarnation != p->incarnation)
		goto fail;
	p->theirs = vb_seg_slot(p->map, node->lane);
	p->fence = p->seg->fence_needed;
	p->copy = &vb_copy_vm;
	bool can = vb_copy_probe(p->pid, p->seg->self, p->incarnation);

	atomic_store(&p->copy_ok, can);
	atomic_store(&p->ours->can_pull, can);
	atomic_store(&p->ours->can_place, vb_guard_can_place());
	close(info->seg_fd);
	close(info->doorbell_fd);
	return p;
fail:
	vb_log(VB_LOG_WARN, "the segment of the process on lane %u is invalid", info->lane);
	if (p) {
		peer_unmap(p);
		free(p);
	} else {
		close(info->pid_fd);
		close(info->wake_fd);
	}
	close(info->seg_fd);
	close(info->doorbell_fd);
	return NULL;
}

static void close_info(const struct vb_peer_info *info)
{
	close(info->seg_fd);
	close(info->doorbell_fd);
	close(info->wake_fd);
	close(info->pid_fd);
}

/* Clears our ring and shared slot for this lane, because another process may have owned the lane before. */
static void reset_lane(struct vb_node *node, uint32_t lane)
{
	struct vb_slot_shared *slot = vb_seg_slot(node->seg, lane);
	uint8_t *tx = (uint8_t *)node->seg + VB_SEG_RINGS_OFF + (uint64_t)lane * VB_RING_BYTES;
	bool used = false;

	for (struct vb_peer *p = node->io->all; p; p = p->next) {
		if (p->lane != lane)
			continue;
		used = true;
		vb_lock(&p->tx_lock); /* wait for a writer; later writers see that the peer is dead */
		vb_unlock(&p->tx_lock);
	}
	if (!used)
		return;
	atomic_store(&slot->peer_incarnation, 0);
	atomic_store(&slot->rx_head, 0);
	atomic_store(&slot->hot, 0);
	atomic_store(&slot->want_space, 0);
	atomic_store(&slot->claimed, 0);
	atomic_store(&slot->placed, 0);
	if (madvise(tx, VB_RING_BYTES, MADV_REMOVE))
		memset(tx, 0, VB_RING_BYTES);
}

/* Handles the introduction of a new or known process. Takes ownership of the descriptors. Returns the peer, or NULL.
 * Progress thread. */
static struct vb_peer *peer_meet(struct vb_node *node, const struct vb_peer_info *info)
{
	struct vb_io *io = node->io;
	struct vb_peer *old, *p;

	if (info->lane >= VB_LANE_COUNT || info->lane == node->lane) {
		close_info(info);
		return NULL;
	}
	peers_reap(node);
	old = atomic_load_explicit(&node->peers[info->lane], memory_order_acquire);
	if (old && old->incarnation == info->incarnation) {
		close_info(info);
		return old;
	}
	vb_lock(&node->progress);
	if (old) {
		vb_hot_drop(node, old);
		vb_node_publish(node);
		atomic_store(&old->state, VB_PEER_DEAD);
		atomic_store(&node->peers[info->lane], NULL);
	}
	vb_unlock(&node->progress);
	reset_lane(node, info->lane);
	p = peer_map(node, info);
	if (!p)
		return NULL;
	struct epoll_event ev = {.events = EPOLLIN, .data.ptr = p};

	epoll_ctl(io->epoll_fd, EPOLL_CTL_ADD, p->pid_fd, &ev);
	vb_lock(&io->questions_lock);
	p->next = io->all;
	io->all = p;
	vb_unlock(&io->questions_lock);
	vb_lock(&node->progress);
	atomic_store_explicit(&node->peers[p->lane], p, memory_order_release);
	vb_unlock(&node->progress);
	/* allows the peer to use our memory; only now do our hazard scan and doorbell include it */
	atomic_store(&p->ours->peer_incarnation, p->incarnation);
	return p;
}

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
	store_answer(node, tag, err, info ? peer_meet(node, info) : NULL);
}

void vb_peer_on_introduced(struct vb_node *node, const struct vb_peer_info *info)
{
	peer_meet(node, info);
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

/* Handles the end of the peer's program. Its segment stays mapped, because its last acknowledgements are in it. */
void vb_peer_pidfd(struct vb_node *node, struct vb_peer *p)
{
	epoll_ctl(node->io->epoll_fd, EPOLL_CTL_DEL, p->pid_fd, NULL);
	/* read at most one full ring: a process that inherited the segment could continue to write */
	unsigned left = VB_RING_BYTES / VB_LINE;

	vb_lock(&node->progress);
	while (left && vb_ring_ready(p) && atomic_load(&p->state) != VB_PEER_DEAD) {
		unsigned n = vb_local_drain(p, left);

		left -= n;
		if (!n)
			break;
	}
	vb_hot_drop(node, p);
	vb_node_publish(node);
	atomic_store(&p->state, VB_PEER_DEAD);
	if (atomic_load(&node->peers[p->lane]) == p)
		atomic_store(&node->peers[p->lane], NULL);
	/* visit its QPs here, because the threads that wait for them may sleep */
	vb_active_collect(node);
	for (struct vb_qp *qp = node->active, *next; qp; qp = next) {
		next = qp->active_next;
		if (qp->local.peer == p)
			qp->path->visit(qp, true);
	}
	vb_unlock(&node->progress);
	peers_reap(node);
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
static bool is_local(const union ibv_gid *gid)
{
	int cancel;

	vb_cancel_defer(&cancel);
	bool local = vb_gid_is_local(gid);
	vb_cancel_restore(cancel);
	return local;
}

void vb_path_address(struct vb_node *node, const union ibv_gid *dgid)
{
	struct vb_peer *self = atomic_load_explicit(&node->peers[node->lane], memory_order_acquire);
	struct vb_io *io = node->io;

	if (!self || !self->self)
		return;
	vb_lock(&io->questions_lock);
	bool known = gid_confirmed(self, dgid);
	vb_unlock(&io->questions_lock);
	if (known || !is_local(dgid))
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
		store_answer(node, q->tag, ENOENT, is_local(&q->dgid) ? p : NULL);
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

/* Stores the addresses by which peers find this program: for RoCE the GIDs of the device, for iWARP the addresses of
 * its interface. Returns how many. */
static size_t addresses_of(struct vb_device *dev, union ibv_gid *all, size_t max)
{
	struct vb_netdev nd;
	size_t n = 0;

	vb_device_netdev(dev, &nd);
	for (size_t i = 0; dev->iwarp && i < nd.n_addrs && n < max; i++)
		memcpy(all[n++].raw, nd.addrs[i], sizeof(all->raw));
	for (int i = 0; !dev->iwarp && i < VB_GID_TBL_LEN && n < max; i++) {
		union ibv_gid gid;

		if (!vb_query_gid_at(dev, 1, i, &gid) && !vb_gid_is_zero(&gid))
			all[n++] = gid;
	}
	return n;
}

void vb_announce_gids(struct vb_node *node)
{
	struct ibv_device **list;
	union ibv_gid all[256];
	int count = 0;
	size_t n = 0;

	if (vb_wire_mode() == VB_WIRE_MODE_ALWAYS) /* this mode forbids shared memory */
		return;
	list = vb_device_list(&count);
	for (int d = 0; list && d < count; d++)
		n += addresses_of(vb_device_of(list[d]), all + n, 256 - n);
	vb_device_list_free(list);
	vb_broker_set_gids(node->io->broker, all, n);
}

static void on_settled(void *arg, uint64_t tag, int err, const struct vb_peer_info *info)
{
	*(bool *)arg = true;
}

static void on_introduced_ignored(void *arg, const struct vb_peer_info *info)
{
	close_info(info);
}

static void on_another_broker(void *arg)
{
	*(bool *)arg = true; /* the client has reconnected, and has announced everything to the new broker */
}

/*
 * Waits until the broker has our addresses, at most a second. The answer to a later message of the connection proves
 * it. Without the wait, the broker might tell another program that no process has our address. Called before the
 * progress thread runs.
 */
void vb_await_broker(struct vb_node *node)
{
	static const struct vb_broker_ops ops = {
	        .meet_reply = on_settled, .introduced = on_introduced_ignored, .reattached = on_another_broker};
	struct vb_broker_client *broker = node->io->broker;
	union ibv_gid none = {0};
	bool settled = false;

	if (vb_broker_meet(broker, 0, node->lane << VB_LANE_SHIFT, &none))
		return;
	for (int i = 0; i < 100 && !settled; i++) {
		struct pollfd p = {.fd = vb_broker_pollfd(broker), .events = POLLIN};

		poll(&p, 1, 10);
		vb_broker_dispatch(broker, &ops, &settled);
	}
}

void vb_peers_free(struct vb_node *node)
{
	struct vb_io *io = node->io;

	while (io->all) {
		struct vb_peer *p = io->all;

		io->all = p->next;
		peer_unmap(p);
		free(p);
	}
	while (io->meetings) {
		struct vb_meeting *m = io->meetings;

		io->meetings = m->next;
		free(m);
	}
	free(atomic_load(&io->spare_meeting));
}
