// stream.c - starts and ends the streams of iWARP queue pairs; the operations of the iWARP path
// follows: RFC 5040, RFC 5044; docs/iwarp.md
// SPDX-License-Identifier: MIT
#include "path/iwarp/iwarp.h"

#include <stdlib.h>
#include <sys/mman.h>
#include <sys/socket.h>

#include "core/device.h"
#include "core/qp.h"
#include "engine/local/local.h"
#include "frame/net.h"
#include "path/iwarp/path.h"
#include "path/path.h"
#include "util/guard.h"
#include "util/units.h"

#define HOLD_START VB_US(20)
#define LEFT_OVER (256u << 10) /* bytes copied in one turn */

struct vb_iw_stats vb_iw_totals;

/* --- start --- */

/* For rules of fault injection that name a peer. */
static void learn_peer(struct vb_iwarp_path *path)
{
	struct sockaddr_storage sa = {0};
	socklen_t len = sizeof(sa);

	if (!getpeername(path->fd, (struct sockaddr *)&sa, &len))
		vb_gid_of_sockaddr(path->peer, (struct sockaddr *)&sa);
}

static struct vb_iwarp_path *path_new(struct vb_qp *qp, const struct vb_iwarp_stream *s)
{
	struct vb_iwarp_path *path = calloc(1, sizeof(*path) + qp->sq_max_wr * sizeof(path->sends[0]));

	if (!path)
		return NULL;
	path->qp = qp;
	path->fd = s->fd;
	path->faulty = vb_fault_is_armed(VB_FAULT_ARM_IWARP);
	learn_peer(path);
	path->hold_ns = HOLD_START;
	path->memory = mmap(NULL, VB_IWARP_STAGE + VB_IWARP_OUT, PROT_READ | PROT_WRITE,
	                    MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
	path->tail = path->memory == MAP_FAILED ? NULL : vb_iwarp_tail_new(qp->node, s);
	if (path->tail)
		return path;
	if (path->memory != MAP_FAILED)
		munmap(path->memory, VB_IWARP_STAGE + VB_IWARP_OUT);
	free(path);
	return NULL;
}

static void path_free(struct vb_iwarp_path *path)
{
	munmap(path->memory, VB_IWARP_STAGE + VB_IWARP_OUT);
	free(path);
}

static void start_engine(struct vb_iwarp_path *path, const struct vb_iwarp_stream *s)
{
	struct vb_qp *qp = path->qp;
	struct vb_iw_config c = {.crc = s->crc,
	                         .markers_in = s->markers_in,
	                         .markers_out = s->markers_out,
	                         .initiator = s->initiator,
	                         .emss = 1024,
	                         .large = s->large,
	                         .ird = s->ird,
	                         .ord = s->ord,
	                         .access = vb_rights_of(qp->attr.qp_access_flags)};

	vb_iw_init(&path->q, &c, &vb_iwarp_ops, qp, path->sends, qp->sq_max_wr, path->memory, VB_IWARP_STAGE,
	           path->memory + VB_IWARP_STAGE, VB_IWARP_OUT);
	vb_iwarp_refresh_emss(path);
	if (s->waits_for_initiator)
		vb_iw_hold_until_input(&path->q);
	if (s->expect_rtr != VB_IW_RTR_NONE)
		vb_iw_expect_rtr(&path->q, s->expect_rtr);
	if (s->send_rtr != VB_IW_RTR_NONE)
		vb_iw_send_rtr(&path->q, s->send_rtr);
}

/* Under progress. */
static void start_stream(struct vb_iwarp_path *path, const struct vb_iwarp_stream *s)
{
	struct vb_qp *qp = path->qp;

	vb_iwarp_host_join(path);
	vb_lock(&qp->sq_lock);
	qp->iwarp = path;
	vb_path_use(qp, &vb_iwarp_path_ops);
	qp->attr.max_rd_atomic = (uint8_t)(s->ord < 255 ? s->ord : 255);
	qp->attr.max_dest_rd_atomic = (uint8_t)(s->ird < 255 ? s->ird : 255);
	start_engine(path, s);
	vb_qp_set_state(qp, IBV_QPS_RTS);
	if (s->early_len)
		vb_iw_input(&path->q, s->early, s->early_len); /* fits in the stage */
	vb_iwarp_starve(path);
	if (!path->failed)
		vb_iwarp_emit(path);
	if (vb_iwarp_ended(path))
		vb_iwarp_settle(qp);
	vb_unlock(&qp->sq_lock);
}

/* iWARP has one state for RESET and INIT. A destroyed queue pair is in RESET too. Under modify_lock + progress. */
static bool is_idle(const struct vb_qp *qp)
{
	uint8_t state = atomic_load(&qp->state);

	return state == IBV_QPS_INIT || (state == IBV_QPS_RESET && vb_qp_is_listed(qp));
}

int vb_iwarp_attach(struct vb_qp *qp, const struct vb_iwarp_stream *s)
{
	struct vb_iwarp_path *path = NULL;
	int err = EINVAL;

	if (qp->type == IBV_QPT_RC && vb_qp_is_iwarp(qp)) {
		path = path_new(qp, s);
		err = path ? 0 : ENOMEM;
	}
	if (err)
		return err;
	vb_guard_install();
	vb_iwarp_prepare_socket(s->fd, qp->node->io->iwarp->congestion);
	vb_mutex_lock(&qp->modify_lock, VB_RANK_MODIFY);
	vb_lock(&qp->node->progress);
	if (is_idle(qp))
		start_stream(path, s);
	else
		err = EINVAL;
	vb_unlock(&qp->node->progress);
	vb_mutex_unlock(&qp->modify_lock);
	if (err) {
		vb_iwarp_tail_drop(path->tail);
		path_free(path);
	}
	return err;
}

/* --- end --- */

/* Copies the remaining output, which the tail sends. */
static uint8_t *take_leftover(struct vb_iwarp_path *path, size_t *len)
{
	struct iovec iov[64];
	uint8_t *rest = NULL;
	int n;

	*len = 0;
	while (!path->lost && (n = vb_iw_output(&path->q, iov, 64, LEFT_OVER)) > 0) {
		size_t bytes = 0, at = *len;

		for (int i = 0; i < n; i++)
			bytes += iov[i].iov_len;
		uint8_t *more = realloc(rest, at + bytes);

		if (!more)
			break;
		rest = more;
		for (int i = 0; i < n; i++) {
			if (!vb_guard_copy(rest + at, iov[i].iov_base, iov[i].iov_len))
				return rest;
			at += iov[i].iov_len;
		}
		vb_iw_sent(&path->q, bytes);
		*len = at;
		if (*len > VB_IWARP_OUT)
			break;
	}
	return rest;
}

/*
 * Called when the program takes its queue pair to ERR while the stream is connected. Data of completed requests may be
 * in the socket while the peer is unreachable. If the program connects again and repeats the requests, the old data
 * must not arrive afterwards, so the stream is reset. A program that wants completed data to arrive disconnects
 * instead.
 */
static void iwarp_abort_stream(struct vb_qp *qp)
{
	struct vb_iwarp_path *path = qp->iwarp;

	if (!path->lost && !vb_iw_over(&path->q))
		path->aborted = true;
}

static void reset_stream(struct vb_iwarp_path *path)
{
	vb_iw_abort(&path->q, false);
	(void)connect(path->fd, &(struct sockaddr){.sa_family = AF_UNSPEC}, sizeof(struct sockaddr));
}

/* Other threads may send meanwhile: what people see may be a moment old. */
__attribute__((no_sanitize("thread"))) void vb_iwarp_path_counts(const struct vb_iwarp_path *path, struct vb_counts *c)
{
	const struct vb_iw_stats *s = &path->q.stats;

	c->port_xmit_data += s->sent_bytes;
	c->port_rcv_data += s->rcvd_bytes;
	c->port_xmit_packets += s->sent_fpdus;
	c->port_rcv_packets += s->rcvd_fpdus;
	c->out_of_buffer += s->starved;
}

/* Called when the queue pair leaves its connection, which ends. Completes the engine's requests. */
static void iwarp_closed(struct vb_qp *qp)
{
	struct vb_iwarp_path *path = qp->iwarp;
	uint8_t *rest;
	size_t len;

	vb_known_forget(&path->known);
	vb_iwarp_release(path);
	if (path->aborted)
		reset_stream(path);
	if (!vb_iw_over(&path->q)) {
		vb_iwarp_emit(path);
		vb_iw_abort(&path->q, false);
	}
	rest = take_leftover(path, &len);
	vb_iwarp_unstarve(path);
	vb_iwarp_host_leave(path);
	vb_iwarp_path_counts(path, &vb_qp_device(qp)->ended);
#define X(name, text) vb_iw_totals.name += path->q.stats.name;
	VB_IW_COUNTERS(X)
#undef X
	qp->iwarp = NULL;
	vb_path_none(qp);
	vb_iwarp_tail_end(path->tail, path->status, rest, len);
	path_free(path);
	vb_local_closed(qp);
}

static void iwarp_reset(struct vb_qp *qp)
{
	iwarp_closed(qp);
	vb_local_reset(qp);
}

static unsigned iwarp_visit(struct vb_qp *qp, bool finish)
{
	return 0; /* vb_iwarp_poll serves streams */
}

static void iwarp_configure(struct vb_qp *qp)
{
	struct vb_iw_config c = qp->iwarp->q.cfg;

	c.access = vb_rights_of(qp->attr.qp_access_flags);
	vb_iw_reconfigure(&qp->iwarp->q, &c);
	if (qp->iwarp->kbps == qp->rate.kbps)
		return;
	qp->iwarp->kbps = qp->rate.kbps;
	vb_iwarp_limit_socket(qp->iwarp->fd, qp->rate.kbps);
}

static void iwarp_entered(struct vb_qp *qp, enum ibv_qp_state cur, enum ibv_qp_state next)
{
	vb_iwarp_release(qp->iwarp);
	iwarp_configure(qp);
	vb_iw_pause(&qp->iwarp->q, next == IBV_QPS_SQD);
}

static bool iwarp_idle(const struct vb_qp *qp)
{
	return vb_iw_idle(&qp->iwarp->q);
}

const struct vb_path_ops vb_iwarp_path_ops = {
        .name = "iWARP",
        .socket = true,
        .kick = vb_iwarp_kick,
        .settle = vb_iwarp_settle,
        .visit = iwarp_visit,
        .entered = iwarp_entered,
        .idle = iwarp_idle,
        .closing = vb_iwarp_settle,
        .abort = iwarp_abort_stream,
        .closed = iwarp_closed,
        .reset = iwarp_reset,
};

/* Requests EPOLLOUT, so that waiting data is sent when the socket is served. */
void vb_iwarp_hold_no_longer(struct vb_node *node, uint32_t qpn)
{
	vb_lock(&node->progress);
	struct vb_qp *qp = atomic_load(&node->qps[VB_QP_INDEX(qpn)]);

	if (qp && qp->qp.qp_num == qpn && vb_qp_is_iwarp(qp)) {
		vb_lock(&qp->sq_lock);
		if (qp->iwarp) {
			vb_iw_hold_no_longer(&qp->iwarp->q);
			qp->iwarp->blocked = true;
			vb_iwarp_rewatch(qp->iwarp);
		}
		vb_unlock(&qp->sq_lock);
	}
	vb_unlock(&node->progress);
}

void vb_iwarp_disconnect(struct vb_qp *qp)
{
	vb_mutex_lock(&qp->modify_lock, VB_RANK_MODIFY);
	vb_lock(&qp->node->progress);
	vb_lock(&qp->sq_lock);
	if (qp->iwarp) {
		vb_iwarp_settle(qp);
		vb_qp_error(qp);
	}
	vb_unlock(&qp->sq_lock);
	vb_unlock(&qp->node->progress);
	vb_mutex_unlock(&qp->modify_lock);
	vb_quiesce(qp->node, 0, qp->qp.qp_num);
}
