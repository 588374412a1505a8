// node.c - the node: the process on its host, made for the first open device and freed with the last
// see: docs/same-host.md
// SPDX-License-Identifier: MIT
#include <errno.h>
#include <fcntl.h>
#include <linux/futex.h>
#include <linux/membarrier.h>
#include <poll.h>
#include <stdlib.h>
#include <string.h>
#include <sys/epoll.h>
#include <sys/mman.h>
#include <sys/random.h>
#include <sys/syscall.h>
#include <unistd.h>

#include "core/device.h"
#include "core/key.h"
#include "core/xrc.h"
#include "engine/local/ring.h"
#include "frame/fields.h"
#include "node/capture.h"
#include "node/control.h"
#include "node/faults.h"
#include "node/io.h"
#include "node/stat.h"
#include "node/wake.h"
#include "node/xrc_far.h"
#include "util/calls.h"
#include "util/guard.h"
#include "util/log.h"
#include "util/units.h"

static pthread_mutex_t the_lock = PTHREAD_MUTEX_INITIALIZER;
static struct vb_node *the_node;
static unsigned the_users;

static void *table_new(size_t bytes)
{
	void *p = mmap(NULL, bytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);

	return p == MAP_FAILED ? NULL : p;
}

/* Makes and maps a memfd of this size. With F_SEAL_FUTURE_WRITE no other process can map it writable. */
static void *make_segment(const char *name, size_t bytes, int seals, int *fd)
{
	void *p;

	*fd = memfd_create(name, MFD_CLOEXEC | MFD_ALLOW_SEALING);
	if (*fd < 0)
		return NULL;
	if (ftruncate(*fd, (off_t)bytes))
		return NULL;
	p = mmap(NULL, bytes, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_NORESERVE, *fd, 0);
	if (p == MAP_FAILED)
		return NULL;
	madvise(p, bytes, MADV_DONTFORK);
	if (fcntl(*fd, F_ADD_SEALS, seals))
		return NULL;
	return p;
}

static int watch_fd(struct vb_io *io, int fd, void *tag)
{
	struct epoll_event ev = {.events = EPOLLIN, .data.ptr = tag};

	return epoll_ctl(io->epoll_fd, EPOLL_CTL_ADD, fd, &ev) ? errno : 0;
}

/* Maps private memory where a child of fork() has none (MADV_DONTFORK). */
static void fill_hole(void *at, size_t bytes)
{
	if (at)
		(void)mmap(at, bytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE | MAP_FIXED,
		           -1, 0);
}

/* Threads of the parent may have had its locks, or have held it (vb_qp_hold). Here they never let it go. */
static void qp_in_child(struct vb_qp *qp)
{
	vb_lock_reset(&qp->sq_lock);
	pthread_mutex_init(&qp->modify_lock, NULL);
	pthread_mutex_init(&qp->ack_lock, NULL);
	pthread_cond_init(&qp->ack_cond, NULL);
	atomic_store(&qp->holders, 0);
}

/*
 * A child of fork() has no progress thread and no segments, so the parent's node is dead in it. Inherited objects can
 * still be destroyed, as interpreters do when they exit, because they use private memory here.
 */
static void in_child(void)
{
	struct vb_node *node = the_node;
	int cancel;

	vb_cancel_defer(&cancel);
	pthread_mutex_init(&the_lock, NULL);
	if (node) {
		fill_hole(node->seg, VB_SEG_BYTES);
		fill_hole(node->doorbell, VB_DOORBELL_BYTES);
		vb_peers_in_child(node);
		for (unsigned i = 0; i < VB_TRANSPORTS; i++)
			vb_transports[i]->in_child(node);
		vb_watches_in_child(node);
		vb_node_capture_in_child();
		vb_faults_in_child();
		vb_control_in_child(node->io->control);
		vb_xrc_owner_in_child(node->io->xrc);
		node->io->xrc = NULL;
		pthread_mutex_init(&node->mr_lock, NULL);
		pthread_mutex_init(&node->io->meet_lock, NULL);
		pthread_mutex_init(&node->ctx_lock, NULL);
		pthread_mutex_init(&node->mcast_lock, NULL);
		atomic_store(&node->guests_end, false);
		vb_lock_reset(&node->progress);
		vb_lock_reset(&node->mw_lock);
		vb_lock_reset(&node->io->questions_lock);
		for (unsigned i = 0; i < VB_LANE_QPS && node->qp_count; i++)
			if (node->qps[i])
				qp_in_child(node->qps[i]);
	}
	the_node = NULL;
	the_users = 0;
	vb_cancel_restore(cancel);
}

static void node_free(struct vb_node *node)
{
	struct vb_io *io = node->io;

	vb_faults_stop();
	if (io) {
		for (unsigned i = 0; i < VB_TRANSPORTS; i++)
			vb_transports[i]->free(node);
		vb_control_stop(io->control);
		vb_node_capture_stop(node);
		vb_watches_free(io->watches);
		if (io->broker)
			vb_broker_disconnect(io->broker);
		if (io->netmon)
			vb_netmon_close(io->netmon);
		vb_peers_free(node);
		if (node->seg)
			munmap(node->seg, VB_SEG_BYTES);
		if (node->doorbell)
			munmap(node->doorbell, VB_DOORBELL_BYTES);
		int fds[] = {io->seg_fd, io->doorbell_fd, io->wake_fd, io->epoll_fd};

		for (unsigned i = 0; i < 4; i++)
			if (fds[i] >= 0)
				close(fds[i]);
		pthread_mutex_destroy(&io->meet_lock);
		pthread_cond_destroy(&io->meet_cond);
		free(io);
	}
	vb_xrc_free(node);
	if (node->qps)
		munmap((void *)node->qps, VB_LANE_QPS * sizeof(*node->qps));
	if (node->peers)
		munmap((void *)node->peers, VB_LANE_COUNT * sizeof(*node->peers));
	if (node->keys)
		munmap(node->keys, sizeof(*node->keys));
	pthread_mutex_destroy(&node->ctx_lock);
	pthread_mutex_destroy(&node->mr_lock);
	pthread_mutex_destroy(&node->mcast_lock);
	free(node);
}

static int node_start(struct vb_node *node)
{
	struct vb_io *io = node->io;
	pthread_condattr_t ca;
	int err;

	pthread_mutex_init(&node->ctx_lock, NULL);
	pthread_mutex_init(&node->mr_lock, NULL);
	pthread_mutex_init(&node->mcast_lock, NULL);
	pthread_mutex_init(&io->meet_lock, NULL);
	vb_lock_init(&node->progress, VB_RANK_PROGRESS);
	vb_lock_init(&node->mw_lock, VB_RANK_WINDOWS);
	vb_lock_init(&io->questions_lock, VB_RANK_QUESTIONS);
	pthread_condattr_init(&ca);
	pthread_condattr_setclock(&ca, CLOCK_MONOTONIC);
	pthread_cond_init(&io->meet_cond, &ca);
	pthread_condattr_destroy(&ca);

	node->qps = table_new(VB_LANE_QPS * sizeof(*node->qps));
	node->peers = table_new(VB_LANE_COUNT * sizeof(*node->peers));
	node->keys = table_new(sizeof(*node->keys));
	if (!node->qps || !node->peers || !node->keys)
		return ENOMEM;
	node->membarrier = !syscall(SYS_membarrier, MEMBARRIER_CMD_REGISTER_GLOBAL_EXPEDITED, 0, 0) &&
	                   !syscall(SYS_membarrier, MEMBARRIER_CMD_GLOBAL_EXPEDITED, 0, 0);
	vb_lock_allow_favourites();
	errno = 0;
	node->seg = make_segment("verbena-segment", VB_SEG_BYTES, F_SEAL_SHRINK | F_SEAL_GROW | F_SEAL_FUTURE_WRITE,
	                         &io->seg_fd);
	node->doorbell = node->seg ? make_segment("verbena-doorbell", VB_DOORBELL_BYTES, F_SEAL_SHRINK | F_SEAL_GROW,
	                                          &io->doorbell_fd)
	                           : NULL;
	if (!node->doorbell) {
		err = errno ? errno : ENOMEM;
		vb_log(VB_LOG_ERROR,
		       "cannot make the shared segment (%s); is there a limit on file size or address space?",
		       strerror(err));
		return err;
	}
	node->keys->slots = vb_seg_key_slots(node->seg);
	io->wake_fd = vb_wake_new();
	io->epoll_fd = epoll_create1(EPOLL_CLOEXEC);
	if (io->wake_fd < 0 || io->epoll_fd < 0)
		return errno;
	io->watches = vb_watches_new(node);
	if (!io->watches)
		return ENOMEM;
	for (unsigned i = 0; i < VB_TRANSPORTS; i++) {
		err = vb_transports[i]->start(node);
		if (err)
			return err;
	}
	node->hdr = node->seg;
	node->hdr->fence_needed = !node->membarrier;
	atomic_store(&node->owner, VB_OWNER_THREAD);
	atomic_store(&node->yield_every, 64);
	atomic_store(&node->sleep_until, UINT64_MAX);

	struct vb_attach_fds fds = {io->seg_fd, io->doorbell_fd, io->wake_fd};

	err = vb_broker_connect(&fds, &io->broker);
	if (err) {
		vb_log(VB_LOG_ERROR, "no broker: %s", strerror(err));
		return err;
	}
	node->lane = vb_broker_lane_number(io->broker);
	node->incarnation = vb_broker_incarnation(io->broker);
	node->hdr->lane = node->lane;
	node->hdr->incarnation = node->incarnation;
	node->hdr->pid = (uint32_t)getpid();
	node->hdr->self = (uintptr_t)node->hdr;
	node->hdr->version = VB_SEG_VERSION;
	node->hdr->magic = VB_SEG_MAGIC;
	if (!vb_peer_self(node))
		return ENOMEM;
	err = vb_wake_watch(io->epoll_fd, io->wake_fd, &io->wake_fd);
	if (!err)
		err = watch_fd(io, vb_broker_pollfd(io->broker), &io->broker);
	if (!err && !vb_netmon_open(&io->netmon)) /* without it, changes of addresses are not noticed */
		err = watch_fd(io, vb_netmon_fd(io->netmon), &io->netmon);
	vb_announce_gids(node);
	vb_await_broker(node);
	io->control = err ? NULL : vb_control_start(node);
	if (!err) {
		vb_node_capture_start(node);
		vb_faults_start(node);
	}
	return err ? err : vb_progress_start(node);
}

int vb_node_get(struct vb_node **out)
{
	static int registered;
	struct vb_node *node;
	int err = 0;

	vb_mutex_lock(&the_lock, VB_RANK_NODE);
	if (!registered) {
		pthread_atfork(NULL, NULL, in_child);
		registered = 1;
	}
	vb_guard_install();
	if (!the_node) {
		node = calloc(1, sizeof(*node));
		if (node)
			node->io = calloc(1, sizeof(*node->io));
		if (!node || !node->io || getrandom(node->qp_key, sizeof(node->qp_key), 0) != sizeof(node->qp_key)) {
			if (node)
				free(node->io);
			free(node);
			vb_mutex_unlock(&the_lock);
			return ENOMEM;
		}
		node->io->seg_fd = node->io->doorbell_fd = node->io->wake_fd = node->io->epoll_fd = -1;
		err = node_start(node);
		if (err)
			node_free(node);
		else
			the_node = node;
	}
	if (!err) {
		the_users++;
		*out = the_node;
	}
	vb_mutex_unlock(&the_lock);
	return err;
}

/* With VERBENA_LOG=debug: logs counters of drops, refusals, repetitions and copies. node is NULL unless its progress
 * lock is held. */
static void log_counters(struct vb_node *node)
{
	const struct vb_counters *c = &vb_counters;

	vb_log(VB_LOG_DEBUG,
	       "dropped: %lu no qp, %lu state, %lu stale, %lu psn, %lu no receive, %lu no path, %lu q_key, %lu length; %lu bad records",
	       c->drop_no_qp, c->drop_state, c->drop_stale, c->drop_psn, c->drop_rnr_ud, c->drop_ud_path, c->drop_qkey,
	       c->drop_length, c->bad_record);
	vb_log(VB_LOG_DEBUG,
	       "RoCE: %lu packets and %lu bytes sent, %lu refused by the network, %lu waits, %lu sends without a copy by the kernel; %lu packets and %lu bytes received; dropped: %lu malformed, "
	       "%lu ICRC, %lu source; %lu forwarded, %lu not",
	       c->tx_packets, c->tx_bytes, c->tx_refused, c->tx_waits, c->tx_slots, c->rx_packets, c->rx_bytes,
	       c->drop_malformed, c->drop_icrc, c->drop_source, c->forwarded, c->drop_forward);
	for (unsigned i = 0; i < VB_TRANSPORTS; i++)
		vb_transports[i]->log_counters(node);
	vb_log(VB_LOG_DEBUG,
	       "requester: %lu retries, %lu RNR NAKs; bytes: %lu by one copy, of these %lu mapped; %lu by ring",
	       c->retry, c->rnr_nak, c->one_copy_bytes, c->mapped_bytes, c->ring_bytes);
}

/* Takes the progress lock. Other threads may hold it and still run, or never run again, so the wait is limited. */
static bool take_over(struct vb_node *node)
{
	const struct timespec ts = {0, 100000};

	VB_MAY_WAIT();
	for (int i = 0; i < 200; i++) {
		if (vb_trylock(&node->progress))
			return true;
		nanosleep(&ts, NULL);
	}
	return false;
}

static void log_at_end(struct vb_node *node)
{
	if (vb_log_threshold() < VB_LOG_DEBUG)
		return;
	bool taken = take_over(node);

	log_counters(taken ? node : NULL);
	if (taken)
		vb_unlock(&node->progress);
}

/* If a program ends without closing its devices, acknowledges received data and waits for sent data. */
__attribute__((destructor)) static void at_end(void)
{
	struct vb_node *node;

	vb_rank_forget(); /* a signal handler may have called exit() */
	if (vb_mutex_trylock(&the_lock, VB_RANK_NODE))
		return;
	node = the_node;
	the_users += node != NULL; /* so that the node is not freed any more */
	vb_mutex_unlock(&the_lock);
	if (node) {
		log_at_end(node);
		vb_control_remove_name(node->io->control);
		vb_xrc_owner_remove_name(node->io->xrc);
	}
	if (!node || !take_over(node))
		return;
	for (unsigned i = 0; i < VB_TRANSPORTS; i++)
		if (vb_transports[i]->last_words)
			vb_transports[i]->last_words(node);
	vb_active_collect(node);
	for (struct vb_qp *qp = node->active, *next; qp; qp = next) {
		next = qp->active_next;
		if (!vb_trylock(&qp->sq_lock))
			continue;
		if (qp->path->last_words)
			qp->path->last_words(qp);
		vb_unlock(&qp->sq_lock);
	}
	vb_unlock(&node->progress);
	for (unsigned i = 0; i < VB_TRANSPORTS; i++)
		if (vb_transports[i]->last_wait)
			vb_transports[i]->last_wait(node);
	if (!take_over(node))
		return;
	for (unsigned i = 0; i < VB_TRANSPORTS; i++)
		if (vb_transports[i]->last_ends)
			vb_transports[i]->last_ends(node);
	vb_unlock(&node->progress);
}

void vb_node_put(struct vb_node *node)
{
	vb_mutex_lock(&the_lock, VB_RANK_NODE);
	if (node == the_node && !--the_users) {
		the_node = NULL;
		vb_xrc_owner_stop(node->io->xrc); /* its thread may wait for the progress thread */
		vb_progress_stop(node);
		vb_lock(&node->progress);
		vb_node_publish(node);
		log_counters(node);
		vb_unlock(&node->progress);
		atomic_store(&node->hdr->life, FUTEX_OWNER_DIED);
		node_free(node);
	}
	vb_mutex_unlock(&the_lock);
}

/* --- functions of core/node.h --- */

static bool hazard_stands(struct vb_peer *p, uint32_t key, uint32_t qpn)
{
	struct vb_slot_shared *slot = p->theirs; /* the peer's hazards: its copies to and from our memory */

	for (unsigned i = 0; i < VB_HAZARDS; i++) {
		uint64_t h = atomic_load(&slot->hazard[i]);

		if (h && (!key || h >> 32 == key) && (!qpn || (h & VB_QPN_MASK) == qpn))
			return true;
	}
	return false;
}

#define GRACE VB_MS(200) /* ns: after this time the threads of a program that called exec have ended */

/*
 * Has the program ended? The mark in its segment shows that its progress thread has ended, but another thread may still
 * be copying. The pidfd reports the end of all threads, but not after an exec. Then the threads end a moment after the
 * mark.
 */
static bool has_ended(struct vb_peer *p, uint64_t *grace)
{
	struct pollfd pfd = {.fd = p->pid_fd, .events = POLLIN};

	if (vb_peer_alive(p))
		return false;
	if (p->pid_fd < 0 || poll(&pfd, 1, 0) > 0)
		return true;
	if (!*grace)
		*grace = vb_now() + GRACE;
	return vb_now() > *grace;
}

void vb_node_each_qp(struct vb_node *node, void (*each)(struct vb_qp *qp, void *arg), void *arg)
{
	for (unsigned i = 0, left = node->qp_count; i < VB_LANE_QPS && left; i++) {
		struct vb_qp *qp = atomic_load_explicit(&node->qps[i], memory_order_relaxed);

		if (!qp)
			continue;
		left--;
		vb_lock(&qp->sq_lock);
		each(qp, arg);
		vb_unlock(&qp->sq_lock);
	}
}

/* Whoever held sq_lock has released it. */
static void nothing_under_lock(struct vb_qp *qp, void *arg)
{
}

bool vb_copies_stand(struct vb_node *node, uint32_t key, uint64_t *grace)
{
	struct vb_io *io = node->io;
	bool stand = false;

	atomic_thread_fence(memory_order_seq_cst);
	atomic_fetch_add(&io->scanning, 1);
	for (struct vb_peer *p = io->all; p && !stand; p = p->next)
		stand = p->theirs && atomic_load(&p->state) != VB_PEER_DEAD && hazard_stands(p, key, 0) &&
		        !has_ended(p, grace);
	atomic_fetch_sub(&io->scanning, 1);
	return stand;
}

void vb_quiesce(struct vb_node *node, uint32_t key, uint32_t qpn)
{
	struct vb_io *io = node->io;
	unsigned spins = 0;
	uint64_t grace = 0;

	VB_MAY_WAIT();
	atomic_thread_fence(memory_order_seq_cst);
	/* copies by other programs, and by this one to or from itself */
	atomic_fetch_add(&io->scanning, 1);
	for (struct vb_peer *p = io->all; p; p = p->next) {
		while (p->theirs && atomic_load(&p->state) != VB_PEER_DEAD && hazard_stands(p, key, qpn) &&
		       !has_ended(p, &grace)) {
			struct timespec ts = {0, 50000};

			if (++spins > 1000)
				nanosleep(&ts, NULL);
			else
				vb_cpu_relax();
		}
	}
	atomic_fetch_sub(&io->scanning, 1);
	if (!key)
		return;
	/* copies by our queue pairs that use the region as local buffer: these are made under sq_lock */
	vb_lock(&node->progress);
	vb_node_each_qp(node, nothing_under_lock, NULL);
	vb_unlock(&node->progress);
}
