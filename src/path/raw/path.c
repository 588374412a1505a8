// path.c - the path of raw packet queue pairs: sends and receives whole Ethernet frames
// follows: ibv_create_flow(3), ibv_post_send(3); IBA volume 1, 10.3.1 (SQE); packet(7)
// SPDX-License-Identifier: MIT
#include <errno.h>
#include <net/if_arp.h>
#include <stdlib.h>
#include <string.h>
#include <sys/epoll.h>
#include <sys/socket.h>
#include <unistd.h>

#include "core/active.h"
#include "core/arrival.h"
#include "core/buffer.h"
#include "core/cq.h"
#include "core/device.h"
#include "core/inbound.h"
#include "core/rq.h"
#include "core/sq.h"
#include "core/wq.h"
#include "fault/set.h"
#include "frame/ip_sums.h"
#include "path/raw/raw.h"
#include "util/units.h"

#define TAKE_MAX 64u         /* frames per poll and queue pair */
#define FULL_WAIT VB_US(100) /* ns: until a full device queue is tried again */

/* --- creation, rules --- */

/* A port that is down loses frames, as one whose cable is out. */
static bool is_cut(const struct vb_raw_path *path)
{
	return vb_fault_is_armed(VB_FAULT_ARM_STATE) && vb_fault_port_is_down(path->dev->dev.name);
}

int vb_raw_open(struct vb_qp *qp)
{
	struct vb_raw_host *host = qp->node->io->raw;
	struct vb_netdev nd;

	vb_device_netdev(vb_ctx(qp->qp.context)->dev, &nd);
	if (nd.arphrd != ARPHRD_ETHER && nd.arphrd != ARPHRD_LOOPBACK)
		return EOPNOTSUPP;
	if (qp->blocks_self &&
	    nd.flags & IFF_LOOPBACK) /* what is sent comes back as received, and nothing tells by whom */
		return EOPNOTSUPP;
	struct vb_raw_path *path = calloc(1, sizeof(*path));

	if (!path)
		return ENOMEM;
	path->stage = qp->sq_max_wr ? malloc(VB_RAW_STAGE) : NULL;
	path->fd = qp->sq_max_wr && !path->stage ? -ENOMEM : vb_raw_socket(&nd);
	if (path->fd < 0) {
		int err = -path->fd;

		free(path->stage);
		free(path);
		return err;
	}
	path->qp = qp;
	path->dev = vb_ctx(qp->qp.context)->dev;
	path->ifindex = nd.ifindex;
	path->loopback = nd.flags & IFF_LOOPBACK;
	pthread_mutex_init(&path->lock, NULL);
	vb_lock(&qp->node->progress);
	atomic_store(&path->cut, is_cut(path)); /* under progress, as raw_arm: a change is seen here or there */
	path->next = host->paths;
	path->prev = &host->paths;
	if (path->next)
		path->next->prev = &path->next;
	host->paths = path;
	qp->raw = path;
	vb_unlock(&qp->node->progress);
	return 0;
}

void vb_raw_close(struct vb_qp *qp)
{
	struct vb_raw_path *path = qp->raw;

	if (!path)
		return;
	vb_lock(&qp->node->progress);
	*path->prev = path->next;
	if (path->next)
		path->next->prev = path->prev;
	qp->raw = NULL;
	vb_unlock(&qp->node->progress);
	if (path->fd >= 0)
		close(path->fd); /* and with it its memberships, and its place in the epoll set */
	pthread_mutex_destroy(&path->lock);
	free(path->stage);
	free(path);
}

void vb_raw_listens(struct vb_raw_path *path, bool listens)
{
	struct vb_node *node = path->qp->node;
	struct vb_transport *transport = &node->io->transport[VB_TRANSPORT_RAW];
	struct epoll_event ev = {.events = EPOLLIN, .data.ptr = transport};

	vb_lock(&node->progress);
	path->listens = listens;
	if (atomic_load(&node->owner) == VB_OWNER_THREAD) /* else raw_watch does it later */
		epoll_ctl(node->io->epoll_fd, listens ? EPOLL_CTL_ADD : EPOLL_CTL_DEL, path->fd, &ev);
	if (listens)
		atomic_fetch_add(&transport->users, 1);
	else
		atomic_fetch_sub(&transport->users, 1);
	vb_unlock(&node->progress);
}

int vb_raw_flows_changed(struct vb_qp *qp)
{
	struct vb_raw_path *path = qp->raw;
	struct vb_flow_wants wants;

	if (!path || path->fd < 0)
		return 0;
	vb_mutex_lock(&path->lock, VB_RANK_FLOWS);
	vb_lock(&qp->node->progress);
	vb_flow_collect(qp, &wants);
	vb_unlock(&qp->node->progress);
	int err = vb_raw_listen(path, &wants);

	vb_mutex_unlock(&path->lock);
	return err;
}

/* --- sending: under sq_lock --- */

/* What a failed send means for the request. A link that is down loses frames, as a cable does. */
static enum ibv_wc_status status_of(int err)
{
	switch (err) {
	case ENETDOWN:
	case ENXIO:
	case ENODEV:
		return IBV_WC_SUCCESS;
	case EFAULT:
		return IBV_WC_LOC_PROT_ERR;
	case EMSGSIZE:
	case EINVAL: /* shorter than an Ethernet header */
	case E2BIG:  /* TSO: longer than the device says */
		return IBV_WC_LOC_LEN_ERR;
	default:
		return IBV_WC_LOC_QP_OP_ERR;
	}
}

/* Marks the next request as done, and completes it if it has succeeded. */
static void frame_done(struct vb_qp *qp, struct vb_swqe *w, enum ibv_wc_status status)
{
	w->state = VB_SWQE_DONE;
	w->status = (uint8_t)status;
	qp->sq_emit++;
	if (status != IBV_WC_SUCCESS)
		return;
	if (w->opcode != IBV_WR_TSO) {
		qp->raw->sent_frames++;
		qp->raw->sent_bytes += w->length;
	}
	if (w->flags & IBV_SEND_SIGNALED)
		vb_sq_tell(qp, w, IBV_WC_SUCCESS);
	vb_sq_retire(qp);
}

struct frames {
	struct mmsghdr msg[VB_RAW_BATCH];
	struct iovec iov[VB_RAW_BATCH][VB_MAX_SGE + 1];
};

static void end_frame(struct vb_swqe *w, enum ibv_wc_status status)
{
	w->state = VB_SWQE_DONE;
	w->status = (uint8_t)status;
}

/* IBV_SEND_IP_CSUM: a copy of the frame gets the checksums, because its memory is the program's. Returns the new number of
 * pieces; 0: the stage has no room left; -1: the frame's memory is not mapped. */
static int gather_with_sums(struct vb_qp *qp, const struct vb_swqe *w, struct iovec *iov, int pieces, uint32_t *used)
{
	uint8_t *copy = qp->raw->stage + *used;

	if (w->length > VB_RAW_FRAME_MAX) /* no interface takes it */
		return pieces;
	if (w->length > VB_RAW_STAGE - *used)
		return 0;
	if (!vb_copy_from(iov, pieces, 0, copy, w->length))
		return -1;
	vb_ip_sums_fill(copy, w->length);
	*used += w->length;
	iov[0] = (struct iovec){copy, w->length};
	return 1;
}

/* Collects the next frames, before this position, up to one that cannot be sent. */
static unsigned gather_frames(struct vb_qp *qp, struct frames *f, uint32_t end)
{
	uint32_t used = 0; /* of the stage */
	unsigned n = 0;

	for (; n < VB_RAW_BATCH && qp->sq_emit + n != end; n++) {
		struct vb_swqe *w = vb_sq_at(qp, qp->sq_emit + n);

		if (w->opcode == IBV_WR_TSO && w->state != VB_SWQE_DONE) /* its checksums are always right */
			break;
		int pieces = w->state == VB_SWQE_DONE ? 0 : vb_gather(qp, w, 0, f->iov[n]);

		if (pieces > 0 && w->flags & IBV_SEND_IP_CSUM)
			pieces = gather_with_sums(qp, w, f->iov[n], pieces, &used);
		if (pieces < 0)
			end_frame(w, IBV_WC_LOC_PROT_ERR);
		if (w->state == VB_SWQE_DONE || (!pieces && used))
			break;
		f->msg[n] = (struct mmsghdr){.msg_hdr = {.msg_iov = f->iov[n], .msg_iovlen = (size_t)pieces}};
	}
	return n;
}

/* at, ns: when the rate limit allows more; 0: the socket has no room. */
static enum vb_sq_status try_later(struct vb_qp *qp, uint64_t at)
{
	at = at ? at : vb_now() + FULL_WAIT;

	atomic_store(&qp->due, at);
	if (!atomic_load_explicit(&qp->on_active, memory_order_relaxed))
		vb_active_add(qp);
	vb_timer_at(qp->node, at);
	return VB_SQ_GOOD;
}

/* A TSO request: ends it, or returns false if the rest of it must wait. */
static bool segment_request(struct vb_qp *qp, struct vb_swqe *w)
{
	int err = vb_raw_send_segments(qp, w);

	if (err == EAGAIN || err == ENOBUFS || err == ENOMEM)
		return false;
	qp->raw->segmented = 0;
	end_frame(w, err ? status_of(err) : IBV_WC_SUCCESS);
	return true;
}

static enum vb_sq_status send_frames(struct vb_qp *qp)
{
	struct frames f;
	uint32_t end = __builtin_expect(qp->rate.kbps, 0) ? vb_rate_grant(qp, qp->sq_head) : qp->sq_head;

	while (qp->sq_emit != end) {
		unsigned n = gather_frames(qp, &f, end);

		if (!n) { /* TSO, or it has ended: here, or by a rule of fault injection */
			struct vb_swqe *w = vb_sq_at(qp, qp->sq_emit);

			if (w->state != VB_SWQE_DONE && !segment_request(qp, w))
				return try_later(qp, qp->rate.due);
			frame_done(qp, w, (enum ibv_wc_status)w->status);
			if (w->status != IBV_WC_SUCCESS)
				return VB_SQ_FAILED;
			continue;
		}
		int sent = atomic_load(&qp->raw->cut) ? (int)n : sendmmsg(qp->raw->fd, f.msg, n, MSG_DONTWAIT);

		if (sent < 0 && errno == EINTR)
			continue;
		if (sent < 0 && (errno == EAGAIN || errno == ENOBUFS || errno == ENOMEM))
			return try_later(qp, 0);
		if (sent < 0) {
			enum ibv_wc_status status = status_of(errno);

			frame_done(qp, vb_sq_at(qp, qp->sq_emit), status);
			if (status != IBV_WC_SUCCESS)
				return VB_SQ_FAILED;
		}
		for (int i = 0; i < sent; i++)
			frame_done(qp, vb_sq_at(qp, qp->sq_emit), IBV_WC_SUCCESS);
	}
	return end == qp->sq_head ? VB_SQ_GOOD : try_later(qp, qp->rate.due);
}

static enum vb_sq_status raw_kick(struct vb_qp *qp)
{
	enum vb_sq_status status = send_frames(qp);

	atomic_store_explicit(&qp->sq_pending, qp->sq_head - qp->sq_una, memory_order_relaxed);
	return status;
}

/* The oldest request has failed: only the send queue ends (IBA 10.3.1), as that of a datagram. */
static void raw_settle(struct vb_qp *qp)
{
	struct vb_swqe *w = vb_sq_at(qp, qp->sq_una);
	uint8_t state = atomic_load_explicit(&qp->state, memory_order_relaxed);

	if ((state != IBV_QPS_RTS && state != IBV_QPS_SQD) || qp->sq_una == qp->sq_emit || w->state != VB_SWQE_DONE ||
	    w->status == IBV_WC_SUCCESS)
		return;
	vb_sq_tell(qp, w, (enum ibv_wc_status)w->status);
	vb_sq_retire(qp);
	vb_qp_sq_error(qp);
	atomic_store_explicit(&qp->sq_pending, qp->sq_head - qp->sq_una, memory_order_relaxed);
}

static unsigned raw_visit(struct vb_qp *qp, bool finish)
{
	if (finish)
		vb_lock(&qp->sq_lock);
	else if (!vb_trylock(&qp->sq_lock))
		return 0;
	uint32_t before = qp->sq_emit;

	atomic_store(&qp->due, 0);
	if (vb_sq_kick(qp) == VB_SQ_FAILED)
		raw_settle(qp);
	unsigned work = qp->sq_emit != before;

	vb_unlock(&qp->sq_lock);
	return work;
}

static bool raw_idle(const struct vb_qp *qp)
{
	return qp->sq_una == qp->sq_emit;
}

static void raw_forget_sends(struct vb_qp *qp)
{
	atomic_store(&qp->due, 0);
	vb_rate_forget(qp);
	if (qp->raw)
		qp->raw->segmented = 0;
}

static void raw_reset(struct vb_qp *qp)
{
	raw_forget_sends(qp);
	vb_active_collect(qp->node);
	vb_active_remove(qp);
}

static void raw_closed(struct vb_qp *qp)
{
}

/* --- receiving: under progress --- */

/* a: what has arrived, if status is success. */
static void complete_frame(struct vb_qp *qp, enum ibv_wc_status status, const struct vb_arrival *a)
{
	struct vb_cqe cqe = {
	        .wc = {.wr_id = qp->inbound->wqe.wr_id,
	               .status = status,
	               .opcode = IBV_WC_RECV,
	               .qp_num = qp->qp.qp_num},
	        .receive = vb_rq_of(qp),
	};

	if (status == IBV_WC_SUCCESS)
		vb_arrival_complete(a, &cqe.wc);
	qp->inbound->active = false;
	vb_cq_push(qp->rcq, &cqe, status != IBV_WC_SUCCESS);
}

static bool frames_wanted(struct vb_qp *qp)
{
	unsigned s = atomic_load_explicit(&qp->state, memory_order_relaxed);

	if (qp->rss) /* its work queues have states; its own only says that it has failed */
		return s != IBV_QPS_ERR;
	return s == IBV_QPS_RTR || s == IBV_QPS_RTS || s == IBV_QPS_SQD || s == IBV_QPS_SQE;
}

/* IBA 9.9.3: a local error ends any queue pair. */
static void end_by_receive(struct vb_qp *qp)
{
	vb_lock(&qp->sq_lock);
	vb_qp_set_state(qp, IBV_QPS_ERR);
	complete_frame(qp, IBV_WC_LOC_PROT_ERR, NULL);
	vb_qp_error(qp);
	vb_unlock(&qp->sq_lock);
}

/* A frame without a receive is lost. One that is too long for its receive fails it, as a datagram does. */
static void frame_input(struct vb_raw_path *path, struct vb_arrival *a)
{
	struct vb_qp *qp = path->qp;
	const uint32_t len = a->len; /* on the wire */

	if (!frames_wanted(qp) || !vb_flow_takes(qp, a->frame, len, &a->flow_tag)) {
		path->unclaimed++;
		return;
	}
	if (qp->rss ? !vb_rss_take(qp, a) : !vb_receive_take(qp)) {
		path->no_receive++;
		return;
	}
	path->received_frames++;
	path->received_bytes += len;
	if (qp->rss)
		return;
	vb_arrive(a, qp->wants);
	if (a->len > qp->inbound->wqe.length)
		complete_frame(qp, IBV_WC_LOC_LEN_ERR, NULL);
	else if (vb_receive_store(qp, 0, a->frame, a->len))
		complete_frame(qp, IBV_WC_SUCCESS, a);
	else
		end_by_receive(qp);
}

static unsigned raw_poll(struct vb_node *node, bool finish)
{
	unsigned work = 0;

	(void)finish; /* the sockets stay readable, so the progress thread comes back */
	for (struct vb_raw_path *path = node->io->raw->paths; path; path = path->next) {
		struct vb_arrival a;

		for (unsigned n = 0; path->listens && n < TAKE_MAX; n++) {
			if (!vb_raw_take(path, &a))
				break;
			if (!atomic_load(&path->cut))
				frame_input(path, &a);
			work++;
		}
	}
	return work;
}

/* --- the transport --- */

static int raw_start(struct vb_node *node)
{
	node->io->raw = calloc(1, sizeof(*node->io->raw));
	return node->io->raw ? 0 : ENOMEM;
}

static void raw_free(struct vb_node *node)
{
	free(node->io->raw);
	node->io->raw = NULL;
}

static void raw_in_child(struct vb_node *node)
{
	for (struct vb_raw_path *path = node->io->raw ? node->io->raw->paths : NULL; path; path = path->next) {
		close(path->fd);
		path->fd = -1;
		path->listens = false;
		pthread_mutex_init(&path->lock, NULL);
	}
}

static void raw_watch(struct vb_node *node, bool watch)
{
	struct epoll_event ev = {.events = EPOLLIN, .data.ptr = &node->io->transport[VB_TRANSPORT_RAW]};

	if (!node->io->raw)
		return;
	for (struct vb_raw_path *path = node->io->raw->paths; path; path = path->next)
		if (path->listens)
			epoll_ctl(node->io->epoll_fd, watch ? EPOLL_CTL_ADD : EPOLL_CTL_DEL, path->fd, &ev);
}

static uint64_t raw_due(struct vb_node *node)
{
	return 0;
}

static void raw_look(struct vb_node *node)
{
}

static void raw_log_counters(struct vb_node *node)
{
}

static bool raw_show(const struct vb_qp *qp, struct vb_counts *c, char *peer, size_t size)
{
	const struct vb_raw_path *path = qp->raw;

	if (!path)
		return false;
	c->port_xmit_data += path->sent_bytes;
	c->port_xmit_packets += path->sent_frames;
	c->port_rcv_data += path->received_bytes;
	c->port_rcv_packets += path->received_frames;
	c->out_of_buffer += path->no_receive;
	if (peer)
		peer[0] = '\0';
	return true;
}

/* Ports have gone down or come back. */
static void raw_arm(struct vb_node *node)
{
	vb_lock(&node->progress);
	for (struct vb_raw_path *path = node->io->raw ? node->io->raw->paths : NULL; path; path = path->next)
		atomic_store(&path->cut, is_cut(path));
	vb_unlock(&node->progress);
}

static uint64_t raw_serve_faults(struct vb_node *node)
{
	raw_arm(node);
	return 0; /* the timer knows when ports change */
}

const struct vb_transport_ops vb_raw_transport = {
        .start = raw_start,
        .free = raw_free,
        .in_child = raw_in_child,
        .poll = raw_poll,
        .watch = raw_watch,
        .due = raw_due,
        .look = raw_look,
        .log_counters = raw_log_counters,
        .show = raw_show,
        .arm = raw_arm,
        .serve_faults = raw_serve_faults,
};

const struct vb_path_ops vb_raw_path_ops = {
        .name = "raw",
        .socket = true,
        .kick = raw_kick,
        .settle = raw_settle,
        .visit = raw_visit,
        .idle = raw_idle,
        .closing = raw_settle,
        .closed = raw_closed,
        .forget_sends = raw_forget_sends,
        .reset = raw_reset,
};
