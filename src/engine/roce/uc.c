// uc.c - unreliable connections: gaps in the sequence, and packets of strangers
// follows: IBA volume 1, 9.8.2.2 (UC responder)
// SPDX-License-Identifier: MIT
#include "engine/roce/machine.h"

#define AHEAD 4096u    /* PSNs ahead that still count as the peer's */
#define BEHIND 64u     /* PSNs behind that still count as the peer's */
#define BELIEVED 4096u /* after this many packets in order, an unexpected stream counts as the peer's */
#define STRAY 64u      /* PSNs that may be missing between two packets of such a stream */

static bool psn_within(struct vb_psn psn, struct vb_psn from, uint32_t behind, uint32_t ahead)
{
	int32_t distance = vb_psn_diff(psn, from);

	return distance >= -(int32_t)behind && distance < (int32_t)ahead;
}

/* Has the unexpected stream lasted so long that it must be the peer's, after an outage or with a new source port? */
static bool stream_believed(struct vb_roce_responder *rs, struct vb_psn psn, uint16_t port)
{
	struct vb_roce_stranger *s = &rs->stranger;

	if (s->port != port || !psn_within(psn, s->next, 0, STRAY))
		*s = (struct vb_roce_stranger){.port = port};
	s->next = vb_psn_add(psn, 1);
	return ++s->came >= BELIEVED;
}

/*
 * deviates: IBA accepts the first packet of a message with any PSN and from any port, so an attacker would have to
 * guess only the queue pair number. Here a packet counts as the peer's if it has the source port of the last packet and
 * a PSN near the expected one. Otherwise it counts only after 4,096 packets of its stream have arrived in order since
 * the last packet of the peer. By then more packets than that have been lost, so this at most doubles an outage.
 */
static bool from_the_peer(struct vb_roce_qp *qp, struct vb_psn psn, uint16_t port)
{
	struct vb_roce_responder *rs = &qp->rs;
	bool near = psn_within(psn, rs->epsn, BEHIND, AHEAD) && (!rs->known || port == rs->port);

	if (!near && !stream_believed(rs, psn, port)) {
		qp->stats.drop_stranger++;
		return false;
	}
	rs->stranger.came = 0;
	rs->known = true;
	rs->port = port;
	return true;
}

/*
 * A gap ends the current message silently, and the next message uses its receive. Packets are dropped up to the next
 * FIRST or ONLY. If a new message begins before the last packet of the current one, the current message is dropped.
 */
bool vb_roce_uc_in_sequence(struct vb_roce_qp *qp, const struct vb_packet *p, uint16_t port)
{
	struct vb_roce_responder *rs = &qp->rs;
	bool first = p->info->flags & VB_FIRST;

	if (!from_the_peer(qp, p->bth.psn, port))
		return false;
	bool gap = !vb_psn_equal(p->bth.psn, rs->epsn);

	rs->epsn = vb_psn_add(p->bth.psn, 1);
	if (rs->in.active && (gap || first)) {
		rs->in.active = false;
		qp->stats.drop_sequence++;
	}
	if (first) {
		rs->in.drop = false;
		return true;
	}
	if (!gap && !rs->in.drop && rs->in.active)
		return true;
	rs->in.drop = true;
	qp->stats.drop_sequence++;
	return false;
}
