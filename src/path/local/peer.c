// peer.c - the processes of this host that this one knows: maps their memory, and unmaps it after their end
// see: docs/same-host.md
// SPDX-License-Identifier: MIT
#include <fcntl.h>
#include <stdlib.h>
#include <string.h>
#include <sys/epoll.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#include "engine/local/relay.h"
#include "engine/local/ring.h"
#include "node/io.h"
#include "path/local/copy.h"
#include "path/local/meeting.h"
#include "path/local/shared_map.h"
#include "util/guard.h"
#include "util/log.h"

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

struct reference {
	struct vb_peer *peer;
	bool found;
};

/* A thread that holds sq_lock may be finding the peer or sending it a datagram, so this is called under it. A later
 * holder sees that the peer is dead. */
static void find_reference(struct vb_qp *qp, void *arg)
{
	struct reference *r = arg;

	r->found = r->found || qp->local.peer == r->peer || (qp->xrc.relay && vb_relay_refers(qp, r->peer));
}

static bool referred_to(struct vb_node *node, struct vb_peer *p)
{
	struct reference r = {.peer = p};

	vb_node_each_qp(node, find_reference, &r);
	return r.found;
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

/* The structs stay, because address handles point to them. */
void vb_peers_reap(struct vb_node *node)
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

void vb_peer_info_close(const struct vb_peer_info *info)
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

struct vb_peer *vb_peer_meet(struct vb_node *node, const struct vb_peer_info *info)
{
	struct vb_io *io = node->io;
	struct vb_peer *old, *p;

	if (info->lane >= VB_LANE_COUNT || info->lane == node->lane) {
		vb_peer_info_close(info);
		return NULL;
	}
	vb_peers_reap(node);
	old = atomic_load_explicit(&node->peers[info->lane], memory_order_acquire);
	if (old && old->incarnation == info->incarnation) {
		vb_peer_info_close(info);
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
	vb_expect_records(node);
	vb_lock(&node->progress);
	atomic_store_explicit(&node->peers[p->lane], p, memory_order_release);
	vb_unlock(&node->progress);
	/* allows the peer to use our memory; only now do our hazard scan and doorbell include it */
	atomic_store(&p->ours->peer_incarnation, p->incarnation);
	return p;
}

void vb_peer_on_introduced(struct vb_node *node, const struct vb_peer_info *info)
{
	vb_peer_meet(node, info);
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
	if (node->asks) /* guests of its XRC targets */
		atomic_store(&node->relay_work, true);
	vb_peers_reap(node);
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
	vb_meetings_free(io);
}
