// uc.c - what an unreliable connection makes of gaps, and whom it believes
// follows: IBA volume 1, 9.8.2.2 (UC responder)
// SPDX-License-Identifier: MIT
#include "engine/roce/machine.h"

#define AHEAD 4096u    /* PSNs: so many lost in a row, and the peer is still known */
#define BEHIND 64u     /* PSNs: so late a packet may be */
#define BELIEVED 4096u /* packets of one stream that is not what was expected */
#define STRAY 64u      /* PSNs that may be missing between two of them */

static bool within(struct vb_psn psn, struct vb_psn from, uint32_t behind, uint32_t ahead)
{
	int32_t distance = vb_psn_diff(psn, from);

	return distance >= -(int32_t)behind && distance < (int32_t)ahead;
}

/* It goes on for so long that it is the peer, after an outage, or with another source port. */
static bool believed(struct vb_roce_responder *rs, struct vb_psn psn, uint16_t port)
{
	struct vb_roce_stranger *s = &rs->stranger;

	if (s->port != port || !within(psn, s->next, 0, STRAY))
		*s = (struct vb_roce_stranger){.port = port};
	s->next = vb_psn_add(psn, 1);
	return ++s->came >= BELIEVED;
}

/*
 * deviates: IBA takes the first packet of a message whatever its PSN, and looks at no port. Nothing but the queue pair
 * number would have to be guessed. Here a packet is the peer's if it comes from the source port of the one before and
 * its PSN is near the expected one, and otherwise if 4,096 packets of its stream have come in order since the peer was
 * last heard: more packets than that have been lost then, so that an outage becomes no more than twice as long by this.
 */
static bool from_the_peer(struct vb_roce_qp *qp, struct vb_psn psn, uint16_t port)
{
	struct vb_roce_responder *rs = &qp->rs;
	bool near = within(psn, rs->epsn, BEHIND, AHEAD) && (!rs->known || port == rs->port);

	if (!near && !believed(rs, psn, port)) {
		qp->stats.drop_stranger++;
		return false;
	}
	rs->stranger.came = 0;
	rs->known = true;
	rs->port = port;
	return true;
}

/*
 * A gap ends the message that was under way, without a word to anybody, and its receive is used for the next. What then
 * comes is dropped up to the next FIRST or ONLY. A message that is cut off by a new one is dropped too.
 */
bool vb_uc_in_sequence(struct vb_roce_qp *qp, const struct vb_packet *p, uint16_t port)
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
