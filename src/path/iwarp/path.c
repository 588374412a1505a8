// path.c - the iWARP path: reads and writes the sockets of queue pairs
// follows: RFC 5040, RFC 5044; docs/iwarp.md
// SPDX-License-Identifier: MIT
#include "path/iwarp/iwarp.h"

#include <errno.h>
#include <limits.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <sys/epoll.h>
#include <sys/socket.h>
#include <sys/syscall.h>
#include <unistd.h>

#include "capture/capture.h"
#include "core/device.h"
#include "core/qp.h"
#include "core/sq.h"
#include "core/verbs.h"
#include "engine/local/local.h"
#include "frame/net.h"
#include "path/iwarp/path.h"
#include "path/path.h"
#include "util/calls.h"
#include "util/guard.h"
#include "util/log.h"
#include "util/units.h"

#define PIECES 1024            /* UIO_MAXIOV */
#define BURST (256u << 10)     /* bytes per sendmsg */
#define SEND_BUDGET (1u << 20) /* bytes sent for one stream before others are served */
#define READ_BUDGET (512u << 10)
#define READY 32 /* streams served in one turn */
#define EMSS_EVERY 1024u
#define QUIET 1000u /* a stream is quiet after this many polls without data */
#define SELDOM 16u  /* a quiet stream is polled once in this many polls */
#define HOLD_LENGTH 4096u
#define HOLD_MIN VB_US(2) /* ns */
#define HOLD_MAX VB_US(500)

/* --- sending --- */

void vb_iwarp_refresh_emss(struct vb_iwarp_path *path)
{
	struct vb_iw_config c = path->q.cfg;
	int mss = 0;
	socklen_t len = sizeof(mss);

	if (getsockopt(path->fd, IPPROTO_TCP, TCP_MAXSEG, &mss, &len) || mss <= 0 || (uint32_t)mss == c.emss)
		return;
	c.emss = (uint32_t)mss;
	vb_iw_reconfigure(&path->q, &c);
}

static void lose_socket(struct vb_iwarp_path *path, int err)
{
	path->lost = err;
	path->status = err;
}

/* A small message is one piece, which is sent by a plain system call: without an iovec, and without the C library's
 * preparations for pthread_cancel(3). */
static ssize_t hand_over(int fd, struct iovec *iov, int n)
{
	struct msghdr m = {.msg_iov = iov, .msg_iovlen = (size_t)n};

	if (n == 1)
		return syscall(SYS_sendto, fd, iov[0].iov_base, iov[0].iov_len, MSG_DONTWAIT | MSG_NOSIGNAL, NULL, 0);
	int cancel;

	vb_cancel_defer(&cancel); /* under sq_lock */
	ssize_t sent = sendmsg(fd, &m, MSG_DONTWAIT | MSG_NOSIGNAL);
	vb_cancel_restore(cancel);
	return sent;
}

/* Makes one system call. Returns false if no more can be sent now, or at all. */
static bool send_some(struct vb_iwarp_path *path, size_t *budget)
{
	struct iovec iov[PIECES];
	int n = __builtin_expect(path->faulty, 0) ? vb_iwarp_fault_output(path, iov, PIECES)
	                                          : vb_iw_output(&path->q, iov, PIECES, BURST);
	size_t want = 0;

	path->blocked = n > 0 || path->fault_until;
	if (n <= 0)
		return false;
	for (int i = 0; i < n; i++)
		want += iov[i].iov_len;
	uint64_t time = vb_capturing() ? vb_capture_now() : 0;
	ssize_t done = hand_over(path->fd, iov, n);

	if (__builtin_expect(time != 0, 0) && done > 0)
		vb_capture_tcp(VB_CAPTURE_OUT, time, path->fd, iov, n, (size_t)done, path->qp->qp.qp_num);

	if (done < 0) {
		if (errno == EFAULT) {
			path->status = EFAULT;
			vb_iw_closed(&path->q, VB_IW_FAULT);
		} else if (errno != EAGAIN && errno != EINTR) {
			lose_socket(path, errno);
		}
		return errno == EINTR;
	}
	vb_iw_sent(&path->q, (size_t)done);
	*budget -= (size_t)done < *budget ? (size_t)done : *budget;
	return (size_t)done == want && *budget;
}

/* Is there anything that may be sent? Under sq_lock. */
static bool wants_to_send(const struct vb_iwarp_path *path)
{
	return path->qp->sq_emit != path->qp->sq_head || !vb_iw_quiet(&path->q);
}

void vb_iwarp_emit(struct vb_iwarp_path *path)
{
	size_t budget = SEND_BUDGET;
	int saved = errno;
	bool more;

	if (++path->turn % EMSS_EVERY == 0)
		vb_iwarp_refresh_emss(path);
	while ((more = send_some(path, &budget)) && wants_to_send(path))
		;
	if (more)
		path->blocked = false;
	vb_iwarp_rewatch(path);
	errno = saved;
}

/* --- receiving --- */

/* Reads the socket. A poll without data consists of little else, so a single piece is read by a plain system call,
 * without the C library's preparations for pthread_cancel(3). */
static ssize_t read_socket(int fd, struct iovec *iov, int n)
{
	struct msghdr m = {.msg_iov = iov, .msg_iovlen = (size_t)n};

	if (n == 1)
		return syscall(SYS_recvfrom, fd, iov[0].iov_base, iov[0].iov_len, MSG_DONTWAIT, NULL, NULL);
	int cancel;

	vb_cancel_defer(&cancel); /* under progress + sq_lock */
	ssize_t got = recvmsg(fd, &m, MSG_DONTWAIT);
	vb_cancel_restore(cancel);
	return got;
}

/* Makes one system call. Returns the number of bytes. *more: more data may be there. Under progress + sq_lock. */
static size_t take_some(struct vb_iwarp_path *path, bool *more)
{
	struct iovec iov[VB_IW_PIECES + 8];
	int n = vb_iw_room(&path->q, iov, VB_IW_PIECES + 8);
	size_t want = 0;

	*more = false;
	if (!n)
		return 0;
	for (int i = 0; i < n; i++)
		want += iov[i].iov_len;
	ssize_t got = read_socket(path->fd, iov, n);

	if (got > 0) {
		if (vb_capturing())
			vb_capture_tcp(VB_CAPTURE_IN, vb_capture_now(), path->fd, iov, n, (size_t)got,
			               path->qp->qp.qp_num);
		vb_iw_received(&path->q, (size_t)got);
		*more = (size_t)got == want;
		return (size_t)got;
	}
	if (!got) {
		lose_socket(path, ESHUTDOWN);
		path->status = 0;
	} else if (errno == EFAULT) {
		path->status = EFAULT;
		vb_iw_closed(&path->q, VB_IW_FAULT);
	} else if (errno != EAGAIN && errno != EINTR) {
		lose_socket(path, errno);
	}
	return 0;
}

/* Reads all data that has arrived, up to READ_BUDGET. Under progress + sq_lock. */
static size_t receive_all(struct vb_iwarp_path *path)
{
	size_t all = 0;
	bool more = true;

	while (more && all < READ_BUDGET && !path->failed)
		all += take_some(path, &more);
	return all;
}

/* --- failure --- */

bool vb_iwarp_ended(const struct vb_iwarp_path *path)
{
	return path->failed || path->lost || vb_iw_over(&path->q);
}

/* The event of a failed engine; 0: none. An error of our own is reported by a completion. A Terminate of the peer is an
 * asynchronous error, because the request that caused it may have completed. */
static int event_of(const struct vb_iwarp_path *path, enum vb_work_event event)
{
	switch (event) {
	case VB_WORK_EVENT_NONE:
		return 0;
	case VB_WORK_EVENT_REQ:
		return IBV_EVENT_QP_REQ_ERR;
	case VB_WORK_EVENT_ACCESS:
		return IBV_EVENT_QP_ACCESS_ERR;
	default:
		return vb_iw_got_terminate(&path->q, &(struct vb_iw_terminate){0}) ? IBV_EVENT_QP_FATAL : 0;
	}
}

/* Called when the connection has ended. Processes data that arrived before. Under progress + sq_lock. */
static void close_engine(struct vb_iwarp_path *path)
{
	int lost = path->lost, status = path->status;

	vb_iw_retry(&path->q);
	if (lost != ESHUTDOWN && !path->failed)
		receive_all(path);
	path->lost = lost;
	path->status = status;
	vb_iw_closed(&path->q, lost == ESHUTDOWN ? VB_IW_FIN : VB_IW_RESET);
}

static void log_end(const struct vb_iwarp_path *path)
{
	struct vb_iw_terminate t;
	bool ours = vb_iw_sent_terminate(&path->q, &t);

	if (ours || vb_iw_got_terminate(&path->q, &t))
		vb_log(VB_LOG_WARN, "queue pair 0x%x: %s ended its connection: %s", path->qp->qp.qp_num,
		       ours ? "we" : "the peer", vb_term_text((uint16_t)(t.layer << 12 | t.etype << 8 | t.code)));
}

void vb_iwarp_settle(struct vb_qp *qp)
{
	struct vb_iwarp_path *path = qp->iwarp;

	if (!path || !vb_iwarp_ended(path))
		return;
	vb_known_forget(&path->known);
	bool reported = path->failed != VB_WORK_EVENT_NONE;

	if (path->lost) {
		close_engine(path);
		/* An end of the connection alone raises no event: the engine failed before, or the peer sent a
		 * Terminate. */
		reported = reported || vb_iw_got_terminate(&path->q, &(struct vb_iw_terminate){0});
	} else if (!path->status) {
		path->status = EPROTO;
	}
	int event = reported ? event_of(path, path->failed) : 0;

	log_end(path);
	vb_qp_error(qp); /* frees path */
	if (event)
		vb_async_raise(VB_CONTEXT_OF(qp), (enum ibv_event_type)event, &qp->qp);
}

/*
 * May the completion of this write be held? A small RDMA write is complete as soon as TCP has accepted it. A program
 * may write, wait for that completion, and then poll its memory for the answer. It is not in ibv_poll_cq then, so a
 * thread would have to be woken to receive the answer. So the completion of a single write is held for a moment, or
 * until data arrives. The moment becomes longer if answers often arrive soon after it. A polling thread releases the
 * completion; a thread that is going to sleep arms the queue first. Not done with many streams, because then a poller
 * reads only streams with events.
 */
static bool may_hold(struct vb_qp *qp)
{
	const struct vb_swqe *e = vb_sq_at(qp, qp->sq_una);

	return atomic_load_explicit(&qp->node->io->transport[VB_TRANSPORT_IWARP].users, memory_order_relaxed) <=
	               VB_IWARP_FEW &&
	       qp->sq_head - qp->sq_una == 1 && e->opcode == IBV_WR_RDMA_WRITE && e->length <= HOLD_LENGTH &&
	       (e->flags & IBV_SEND_SIGNALED) && !atomic_load_explicit(&qp->scq->armed, memory_order_relaxed);
}

/* Ends the hold if data arrived (company), or its time is over. */
static bool end_hold(struct vb_iwarp_path *path, bool company)
{
	if (company && (path->held || path->missed) && path->hold_ns < HOLD_MAX)
		path->hold_ns *= 2;
	if (company)
		path->missed = false;
	if (!path->held || (!company && vb_now() < path->held_until))
		return false;
	path->missed = !company;
	vb_iwarp_release(path);
	return true;
}

enum vb_sq_status vb_iwarp_kick(struct vb_qp *qp)
{
	struct vb_iwarp_path *path = qp->iwarp;

	atomic_store_explicit(&qp->sq_pending, qp->sq_head - qp->sq_una, memory_order_relaxed);
	if (path->missed && path->hold_ns > HOLD_MIN)
		path->hold_ns /= 2;
	path->missed = false;
	if (path->held)
		vb_iwarp_release(path);
	if (path->blocked) /* continues when the socket is writable */
		return VB_SQ_GOOD;
	vb_known_forget(&path->known);
	atomic_store_explicit(&path->seldom, false, memory_order_relaxed);
	vb_iwarp_heat(path);
	path->may_hold = may_hold(qp);
	vb_iwarp_emit(path);
	path->may_hold = false;
	return vb_iwarp_ended(path) ? VB_SQ_FAILED : VB_SQ_GOOD;
}

/* --- operation --- */

/* Polls a quiet stream less often, because its system calls delay busy streams. Under progress + sq_lock. */
static void adjust_polling(struct vb_iwarp_path *path, bool done)
{
	path->in_vain = done || path->held || path->missed || path->blocked || path->starving || path->lost
	                        ? 0
	                        : path->in_vain + 1;
	if ((path->in_vain >= QUIET) != atomic_load_explicit(&path->seldom, memory_order_relaxed))
		atomic_store_explicit(&path->seldom, path->in_vain >= QUIET, memory_order_relaxed);
}

/* Under progress. */
static unsigned visit_stream(struct vb_iwarp_path *path, bool finish)
{
	struct vb_qp *qp = path->qp;
	size_t done = 0;

	if (finish)
		vb_lock(&qp->sq_lock);
	else if (!vb_trylock(&qp->sq_lock))
		return 0;
	vb_known_forget(&path->known);
	if (path->starving)
		done = vb_iwarp_feed(path, finish);
	done += receive_all(path);
	if (vb_iw_starved(&path->q) != path->starving)
		vb_iwarp_starve(path);
	if (done)
		vb_iwarp_heat(path);
	if ((path->held || path->missed) && end_hold(path, done))
		done = 1;
	if ((path->blocked || (done && wants_to_send(path))) && !path->lost)
		vb_iwarp_emit(path);
	adjust_polling(path, done);
	if (vb_iwarp_ended(path)) { /* path may be freed then */
		vb_iwarp_settle(qp);
		done = 1;
	}
	vb_qp_check_drained(qp);
	vb_unlock(&qp->sq_lock);
	return done != 0;
}

static bool has_turn(const struct vb_iwarp_host *h, struct vb_iwarp_path *path)
{
	return h->n == 1 || !(h->turn % SELDOM) || !atomic_load_explicit(&path->seldom, memory_order_relaxed);
}

unsigned vb_iwarp_poll(struct vb_node *node, bool finish)
{
	struct vb_iwarp_host *h = node->io->iwarp;
	struct epoll_event ev[READY];
	unsigned done = 0;
	int saved = errno;

	h->turn++;
	if (h->n <= VB_IWARP_FEW) {
		for (struct vb_iwarp_path *path = h->paths, *next; path; path = next) {
			next = path->next;
			if (finish || has_turn(h, path))
				done += visit_stream(path, finish);
		}
	} else {
		int cancel;

		vb_cancel_defer(&cancel);
		int n = epoll_wait(h->epoll_fd, ev, READY, 0);
		vb_cancel_restore(cancel);

		for (int i = 0; i < n; i++)
			done += visit_stream(ev[i].data.ptr, finish);
		for (struct vb_iwarp_path *path = h->starved, *next; path; path = next) {
			next = path->starved_next;
			done += visit_stream(path, finish);
		}
	}
	errno = saved;
	return done;
}

uint64_t vb_iwarp_serve_faults(struct vb_node *node)
{
	uint64_t next = 0;

	vb_lock(&node->progress);
	for (struct vb_iwarp_path *path = node->io->iwarp->paths, *after; path; path = after) {
		after = path->next;
		if (!path->fault_until)
			continue;
		visit_stream(path, true);
	}
	for (struct vb_iwarp_path *path = node->io->iwarp->paths; path; path = path->next)
		if (path->fault_until && (!next || path->fault_until < next))
			next = path->fault_until;
	vb_unlock(&node->progress);
	return next;
}

void vb_iwarp_last_words(struct vb_node *node)
{
	for (struct vb_iwarp_path *path = node->io->iwarp->paths; path; path = path->next) {
		if (!vb_trylock(&path->qp->sq_lock))
			continue;
		vb_known_forget(&path->known);
		path->faulty = false; /* what a rule holds is sent now */
		path->fault_until = 0;
		vb_iwarp_emit(path);
		vb_unlock(&path->qp->sq_lock);
	}
}

void vb_iwarp_last_ends(struct vb_node *node)
{
	static uint8_t nowhere[65536];

	for (struct vb_iwarp_path *path = node->io->iwarp->paths; path; path = path->next) {
		if (!vb_trylock(&path->qp->sq_lock))
			continue;
		shutdown(path->fd, SHUT_WR);
		for (int i = 0; i < 64 && recv(path->fd, nowhere, sizeof(nowhere), MSG_DONTWAIT) > 0; i++)
			; /* unread data would make close() reset the connection */
		vb_unlock(&path->qp->sq_lock);
	}
}
