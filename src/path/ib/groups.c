// groups.c - multicast on a fabric: attached queue pairs, datagrams to groups and from them, by the fabric process
// follows: IBA volume 1, 10.5 (multicast), 9.8.3 (UD), 10.2.5 (controlled Q_Key); fabric/proto/proto.h
// SPDX-License-Identifier: MIT
#include <errno.h>
#include <string.h>

#include "core/ah.h"
#include "core/ib.h"
#include "core/mcast.h"
#include "core/sq.h"
#include "engine/local/frames.h"
#include "frame/header.h"
#include "frame/net.h"
#include "frame/segment.h"
#include "path/ib/ib.h"
#include "path/roce/roce.h"
#include "util/timespec.h"
#include "util/units.h"

/* --- attached queue pairs --- */

static bool wait_until(struct vb_ib_host *host, const struct timespec *until)
{
	return !pthread_cond_timedwait(&host->node->io->meet_cond, &host->node->io->meet_lock, until);
}

/* Sends the question, as soon as there is room, until end. Returns an errno: EAGAIN if the fabric process reads nothing.
 * Under meet_lock, which is released while it waits. */
static int ask_membership(struct vb_ib_host *host, const struct vb_fabric_group *ask, uint64_t end)
{
	int err;

	while (((err = vb_fabric_try(host->watch.fd, &(struct iovec){(void *)ask, sizeof(*ask)}, 1, -1)) == EAGAIN ||
	        err == EINTR) &&
	       host->alive && vb_now() < end) {
		struct timespec pause = vb_timespec_after(VB_MS(1));

		wait_until(host, &pause);
	}
	return host->alive ? err : 0;
}

/* An answer that does not come changes nothing: the fabric process has the question, and reads it before what follows. Under
 * meet_lock, which is released while it waits. */
static int await_membership(struct vb_ib_host *host, uint32_t tag, uint64_t end)
{
	uint64_t now = vb_now();
	struct timespec until = vb_timespec_after(now < end ? end - now : 0);

	while (host->alive && host->groups_answered != tag)
		if (!wait_until(host, &until))
			return 0;
	return host->alive ? host->group_error : 0;
}

/* One question at a time, so that each has its answer. Under meet_lock, which is released while it waits. */
static int ask_in_turn(struct vb_ib_host *host, struct vb_fabric_group *ask)
{
	while (host->group_asking)
		pthread_cond_wait(&host->node->io->meet_cond, &host->node->io->meet_lock);
	uint64_t end = vb_now() + VB_MS(VB_RESOLVE_WAIT);

	host->group_asking = true;
	ask->tag = ++host->groups_asked;
	int err = ask_membership(host, ask, end);

	if (!err)
		err = await_membership(host, ask->tag, end);
	host->group_asking = false;
	pthread_cond_broadcast(&host->node->io->meet_cond);
	return err;
}

int vb_ib_membership(struct vb_node *node, const union ibv_gid *group, uint16_t mlid, bool attach)
{
	struct vb_ib_host *host = node->io->ib;
	struct vb_fabric_group ask = {.verb = attach ? VB_FABRIC_ATTACH_GROUP : VB_FABRIC_DETACH_GROUP, .mlid = mlid};

	if (!host)
		return 0;
	VB_MAY_WAIT();
	memcpy(ask.mgid, group->raw, sizeof(ask.mgid));
	vb_mutex_lock(&node->io->meet_lock, VB_RANK_MEETING);
	int err = ask_in_turn(host, &ask);

	vb_mutex_unlock(&node->io->meet_lock);
	return err;
}

void vb_ib_group_told(struct vb_ib_host *host, const struct vb_fabric_group_is *is)
{
	struct vb_io *io = host->node->io;

	vb_mutex_lock(&io->meet_lock, VB_RANK_MEETING);
	host->groups_answered = is->tag;
	host->group_error = is->error == ENOMEM ? ENOMEM : is->error ? EINVAL : 0;
	pthread_cond_broadcast(&io->meet_cond);
	vb_mutex_unlock(&io->meet_lock);
}

/* --- datagrams to a group --- */

static void group_head(const struct vb_qp *qp, const struct vb_swqe *w, struct vb_fabric_data *m)
{
	bool imm = w->opcode == IBV_WR_SEND_WITH_IMM;
	uint32_t headers = imm ? VB_HEADER_LEN(VB_EXT_DETH | VB_EXT_IMMDT) : VB_HEADER_LEN(VB_EXT_DETH);

	*m = (struct vb_fabric_data){.verb = VB_FABRIC_DATAGRAM,
	                             .length = w->length,
	                             .src_qpn = qp->qp.qp_num,
	                             .qkey = w->ud_qkey & VB_QKEY_CONTROLLED ? qp->attr.qkey
	                                                                     : w->ud_qkey, /* IBA 10.2.5 */
	                             .imm = w->imm,
	                             .dlid = w->ah->attr.dlid,
	                             .pkey = qp->local.pkey,
	                             .sl = w->ah->attr.sl & 15,
	                             .path_bits = w->ah->attr.src_path_bits & 0x7f,
	                             .flags = (imm ? VB_FABRIC_DATA_IMM : 0) |
	                                      (w->flags & IBV_SEND_SOLICITED ? VB_FABRIC_DATA_SOLICITED : 0)};
	vb_local_put_ib_grh(m->grh, w, headers + w->length + vb_pad_count(w->length) + VB_ICRC_LEN);
}

/* The datagram stays in its queue until there is room in the socket, which the progress thread awaits. */
static enum vb_datagram_result await_room(struct vb_ib_host *host)
{
	atomic_store(&host->datagrams_wait, true);
	atomic_store(&host->talks, true);
	vb_progress_wake(host->node);
	return VB_DATAGRAM_WAIT;
}

enum vb_datagram_result vb_ib_datagram(struct vb_qp *qp, struct vb_swqe *w)
{
	struct vb_ib_host *host = qp->node->io->ib;
	struct iovec parts[1 + VB_MAX_SGE + 1];
	struct vb_fabric_data m;
	int n;

	/* unicast datagrams reach programs of this host alone */
	if (!host || !atomic_load(&host->alive) || !vb_ib_is_group_lid(w->ah->attr.dlid))
		return VB_DATAGRAM_LOST;
	n = vb_gather(qp, w, 0, parts + 1);
	if (n < 0)
		return VB_DATAGRAM_FAULT;
	group_head(qp, w, &m);
	parts[0] = (struct iovec){&m, sizeof(m)};
	switch (vb_fabric_try(host->watch.fd, parts, (size_t)n + 1, -1)) {
	case 0:
		break;
	case EAGAIN:
	case EINTR:
		return await_room(host);
	case EFAULT:
		return VB_DATAGRAM_FAULT;
	default: /* the fabric process has ended */
		return VB_DATAGRAM_LOST;
	}
	qp->local.sent.messages++;
	vb_local_count_sent(qp, w);
	if (__builtin_expect(qp->datagram.shown, 0))
		vb_local_show_datagram(qp, w, m.qkey, parts + 1, n);
	return VB_DATAGRAM_SENT;
}

/* Under progress + sq_lock. */
static void send_datagrams(struct vb_qp *qp, void *arg)
{
	if (qp->ib && qp->type == IBV_QPT_UD && atomic_load(&qp->state) == IBV_QPS_RTS &&
	    vb_sq_kick(qp) == VB_SQ_FAILED)
		qp->path->settle(qp);
}

void vb_ib_datagrams_again(struct vb_ib_host *host)
{
	if (!atomic_exchange(&host->datagrams_wait, false))
		return;
	vb_lock(&host->node->progress);
	vb_node_each_qp(host->node, send_datagrams, NULL);
	vb_unlock(&host->node->progress);
}

/* --- datagrams from a group --- */

static unsigned flags_of(const struct vb_fabric_data *m)
{
	return VB_RECF_FIRST | VB_RECF_LAST | (m->flags & VB_FABRIC_DATA_IMM ? VB_RECF_IMM : 0) |
	       (m->flags & VB_FABRIC_DATA_SOLICITED ? VB_RECF_SOLICITED : 0);
}

/* To all attached queue pairs of this program, also to the one that has sent it, unless it does not want that: the fabric
 * process tells each program once. */
void vb_ib_data_came(struct vb_ib_host *host, const struct vb_fabric_data *m, size_t len)
{
	struct vb_node *node = host->node;
	bool taken = false;

	if (len < sizeof(*m) || m->length > VB_FABRIC_PAYLOAD || len != sizeof(*m) + m->length)
		return;
	const struct vb_rec rec = {.dest = vb_rec_word(0, VB_REC_UD),
	                           .src = vb_rec_word(m->src_qpn & VB_QPN_MASK, flags_of(m)),
	                           .length = VB_GRH_LEN + m->length,
	                           .imm = m->imm};
	const struct vb_rec_ext ext = {
	        .rkey = m->qkey, .total = m->length, .compare_add = VB_REC_UD_IB(m->slid, m->pkey, m->sl & 15, 0, 1)};

	vb_lock(&node->progress);
	for (struct vb_mcast *g = node->mcasts; g; g = g->next) {
		if (g->lid != m->dlid || memcmp(g->group.raw, m->grh + 24, sizeof(g->group)) != 0)
			continue;
		taken = true;
		if (!vb_mcast_is_unwanted(g->qp, m->src_qpn & VB_QPN_MASK, m->grh + 8))
			vb_local_take_datagram(g->qp, &rec, &ext, m->grh);
	}
	if (!taken)
		VB_COUNT(drop_no_qp, 1);
	vb_unlock(&node->progress);
}
