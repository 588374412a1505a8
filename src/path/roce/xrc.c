// xrc.c - RoCE packets to an XRC target for SRQs of other processes
// follows: IBA volume 1, annexes A14 (XRC), A19, A20; docs/roce.md, "Extended reliable connections"
// SPDX-License-Identifier: MIT
#include <arpa/inet.h>
#include <string.h>

#include "engine/local/relay.h"
#include "path/roce/roce.h"

enum vb_roce_srq vb_roce_select_srq(void *own, uint32_t srqn, bool answer)
{
	static const uint8_t places[] = {[VB_XRC_NONE] = VB_ROCE_SRQ_NONE,
	                                 [VB_XRC_HERE] = VB_ROCE_SRQ_HERE,
	                                 [VB_XRC_THERE] = VB_ROCE_SRQ_THERE,
	                                 [VB_XRC_BUSY] = VB_ROCE_SRQ_BUSY};

	return (enum vb_roce_srq)places[answer ? vb_xrc_select_answer(own, srqn) : vb_xrc_select(own, srqn)];
}

static unsigned flags_of(const struct vb_packet *p)
{
	unsigned f = p->info->flags;

	return (f & VB_FIRST ? VB_RECF_FIRST : 0) | (f & VB_LAST ? VB_RECF_LAST : 0) |
	       (p->bth.solicited ? VB_RECF_SOLICITED : 0) | (p->info->ext & VB_EXT_IMMDT ? VB_RECF_IMM : 0) |
	       (p->info->ext & VB_EXT_IETH ? VB_RECF_INV : 0) |
	       (p->info->op == VB_OP_FETCH_ADD ? VB_RECF_FETCH_ADD : 0);
}

static struct vb_rec_ext ext_of_atomic(const struct vb_packet *p)
{
	bool adds = p->info->op == VB_OP_FETCH_ADD;

	return (struct vb_rec_ext){.remote_addr = p->atomic.va,
	                           .rkey = p->atomic.rkey,
	                           .compare_add = adds ? p->atomic.swap_add : p->atomic.compare,
	                           .swap = p->atomic.swap_add};
}

/* The range of a whole region has no length. */
static struct vb_rec_ext ext_of_flush(const struct vb_packet *p)
{
	return (struct vb_rec_ext){.remote_addr = p->reth.va,
	                           .rkey = p->reth.rkey,
	                           .compare_add = vb_feth_word(p->feth),
	                           .swap = p->feth.level ? 0 : p->reth.length};
}

static struct vb_rec_ext ext_of_word(const struct vb_packet *p, const uint8_t *payload)
{
	struct vb_rec_ext ext = {.remote_addr = p->reth.va, .rkey = p->reth.rkey, .total = sizeof(ext.swap)};

	memcpy(&ext.swap, payload, sizeof(ext.swap)); /* the engine has checked its length */
	return ext;
}

bool vb_roce_pass(void *own, const struct vb_packet *p, const uint8_t *payload, const struct vb_roce_inbound *in,
                  struct vb_psn psn, uint32_t msn)
{
	struct vb_relayed what = {.flags = flags_of(p),
	                          .srqn = in->srqn,
	                          .imm = p->info->ext & VB_EXT_IMMDT ? htonl(p->immdt.data) : p->ieth.rkey,
	                          .payload = payload,
	                          .psn = psn.v,
	                          .count = msn};

	switch (p->info->op) {
	case VB_OP_SEND:
		what.type = VB_REC_SEND;
		what.length = p->payload_len;
		break;
	case VB_OP_WRITE:
		what.type = VB_REC_WRITE;
		what.length = p->payload_len;
		what.ext = (struct vb_rec_ext){.remote_addr = in->va, .rkey = in->rkey, .total = in->whole};
		/* the packets before it are acknowledged, and not repeated if it finds no receive */
		what.alone = what.flags & VB_RECF_IMM && !(what.flags & VB_RECF_FIRST);
		break;
	case VB_OP_FLUSH:
		what.type = VB_REC_FLUSH;
		what.ext = ext_of_flush(p);
		break;
	case VB_OP_ATOMIC_WRITE:
		what.type = VB_REC_ATOMIC_WRITE;
		what.ext = ext_of_word(p, payload);
		break;
	default:
		what.type = VB_REC_ATOMIC;
		what.alone = true;
		what.ext = ext_of_atomic(p);
	}
	return vb_relay_put(own, &what);
}

bool vb_roce_oldest_passed(void *own, struct vb_psn *psn, uint32_t *msn)
{
	struct vb_qp *qp = own;
	uint64_t count;

	if (!qp->xrc.relay || !vb_relay_oldest(qp, &psn->v, &count))
		return false;
	*msn = (uint32_t)count;
	return true;
}

enum vb_roce_data vb_roce_read_there(void *own, const struct vb_roce_resource *r, uint32_t offset, void *dst,
                                     uint32_t len)
{
	static const uint8_t results[] = {
	        [VB_RELAY_DATA] = VB_ROCE_DATA, [VB_RELAY_WAIT] = VB_ROCE_WAIT, [VB_RELAY_GONE] = VB_ROCE_GONE};

	return (enum vb_roce_data)
	        results[vb_relay_read(own, r->psn.v, r->srqn, r->rkey, r->va + offset, r->length - offset, dst, len)];
}

/* --- what has come of what was passed on. Under progress. --- */

static struct vb_roce_qp *engine_locked(struct vb_qp *qp)
{
	vb_lock(&qp->sq_lock);
	return qp->roce ? &qp->roce->q : NULL;
}

static void unlock_and_answer(struct vb_qp *qp)
{
	bool open = qp->roce;

	vb_unlock(&qp->sq_lock);
	if (open)
		vb_roce_path_answer(qp, vb_now(), false);
}

void vb_roce_path_ask_again(struct vb_qp *qp)
{
	struct vb_roce_qp *q = engine_locked(qp);

	if (q)
		vb_roce_passed_again(q);
	unlock_and_answer(qp);
}

void vb_roce_path_no_receive(struct vb_qp *qp, uint32_t psn, uint32_t msn)
{
	struct vb_roce_qp *q = engine_locked(qp);

	if (q)
		vb_roce_passed_rnr(q, vb_psn(psn), msn);
	unlock_and_answer(qp);
}

void vb_roce_path_refuse(struct vb_qp *qp, enum vb_refusal why, const uint32_t *psn)
{
	struct vb_roce_qp *q = engine_locked(qp);

	if (q)
		vb_roce_passed_refused(q, why, psn ? vb_psn(*psn) : vb_roce_unanswered_psn(q));
	unlock_and_answer(qp);
}

void vb_roce_path_result(struct vb_qp *qp, uint32_t psn, uint64_t value)
{
	struct vb_roce_qp *q = engine_locked(qp);

	if (q)
		vb_roce_passed_result(q, vb_psn(psn), value);
	vb_unlock(&qp->sq_lock);
}

void vb_roce_path_executed(struct vb_qp *qp)
{
	struct vb_roce_qp *q = engine_locked(qp);

	if (q)
		vb_roce_passed_executed(q, vb_now());
	unlock_and_answer(qp);
}
