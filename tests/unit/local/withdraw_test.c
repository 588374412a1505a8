// withdraw_test.c - the sender takes a read or write back while this side looks its key up: the key does not count
// see: docs/same-host.md; src/engine/local/withdraw.c
// SPDX-License-Identifier: MIT
#include "core/cntr.h"
#include "core/tm.h"
#include "engine/local/relay.h"
#include "engine/local/responder.h"
#include "util/guard.h"

#include <sys/mman.h>

#include "../../support/check.h"

#define PSN 77u
#define SENDER 5u
#define OWN 9u

static struct vb_qp qp;
static struct vb_peer peer;
static struct vb_qp_shared shared;
static struct vb_inread reads[VB_RD_ATOM_SLOTS];
static struct vb_rec in_ring;
static void (*meanwhile)(void); /* what the sender does while the key is looked up */

/* --- what stands in for the rest of the responder --- */

bool vb_own_memory(struct vb_qp *of, uint32_t key, uint64_t addr, uint64_t length, uint32_t access, uint64_t *va)
{
	CHECK(of == &qp && key && length && access);
	*va = addr;
	if (meanwhile)
		meanwhile();
	return false;
}

void vb_local_update_ackable(struct vb_qp *of)
{
	CHECK(of == &qp);
}

bool vb_guard_can_place(void)
{
	return false;
}

struct vb_counters vb_counters;

/* None of these is reached: every request of this test ends with its key. */
#define UNREACHED(result, name, ...)                  \
	result name(__VA_ARGS__)                      \
	{                                             \
		CHECK_FAILED("%s was called", #name); \
	}
UNREACHED(void, vb_local_ack_later, struct vb_qp *a)
UNREACHED(void, vb_local_refuse_read, struct vb_qp *a)
UNREACHED(void, vb_local_reads_served, struct vb_qp *a)
UNREACHED(void, vb_fence_all, struct vb_node *a)
UNREACHED(void, vb_peer_doorbell, struct vb_peer *a)
UNREACHED(bool, vb_guard_copy, void *a, const void *b, size_t c)
UNREACHED(bool, vb_guard_copy_tail, void *a, const void *b, size_t c)
UNREACHED(bool, vb_guard_add, uint64_t *a, uint64_t b, uint64_t *c)
UNREACHED(bool, vb_guard_cas, uint64_t *a, uint64_t b, uint64_t c, uint64_t *d)
UNREACHED(enum vb_placed, vb_guard_place, void *a, const void *b, size_t c, const _Atomic uint32_t *d, uint32_t e,
          _Atomic uint64_t *f, uint64_t g)
UNREACHED(enum vb_relay_result, vb_relay_read, struct vb_qp *a, uint64_t b, uint32_t c, uint32_t d, uint64_t e,
          uint32_t f, void *g, uint32_t h)
UNREACHED(enum vb_xrc_place, vb_xrc_select_answer, struct vb_qp *a, uint32_t b)
UNREACHED(enum vb_verdict, vb_local_atomic_write, struct vb_qp *a, const struct vb_local_req *b)
UNREACHED(enum vb_verdict, vb_local_flush, struct vb_qp *a, const struct vb_local_req *b)
UNREACHED(enum vb_verdict, vb_local_pull, struct vb_qp *a, struct vb_local_req *b)
UNREACHED(int, vb_mw_invalidate_sent, struct vb_qp *a, uint32_t b)
UNREACHED(bool, vb_receive_take, struct vb_qp *a)
UNREACHED(bool, vb_receive_store, struct vb_qp *a, uint64_t b, const void *c, uint32_t d)
UNREACHED(bool, vb_tm_take, struct vb_qp *a, const uint8_t *b, uint32_t c, bool d)
UNREACHED(void, vb_tm_complete, struct vb_qp *a, struct vb_cqe *b)
UNREACHED(void, vb_cntr_received, struct vb_qp *a, enum ibv_wc_status b, unsigned c, uint64_t d)
UNREACHED(void, vb_cq_push, struct vb_cq *a, const struct vb_cqe *b, bool c)
UNREACHED(uint64_t, vb_cost_begin, struct vb_cost *a)
UNREACHED(bool, vb_cost_end, struct vb_cost *a, uint64_t b, uint64_t c)

/* --- a request whose key this program has ended --- */

static struct vb_local_req request(unsigned type, unsigned flags)
{
	qp.type = IBV_QPT_RC;
	qp.attr.qp_access_flags = IBV_ACCESS_REMOTE_READ | IBV_ACCESS_REMOTE_WRITE;
	qp.attr.max_dest_rd_atomic = VB_RD_ATOM_SLOTS;
	qp.attr.dest_qp_num = SENDER;
	qp.shared = &shared;
	qp.local.inread = reads;
	qp.local.epsn = PSN;
	qp.local.taken = 0;
	in_ring.dest = vb_rec_word(OWN, type);
	atomic_store(&vb_seg_qp(peer.seg, SENDER)->withdrawn, 0);
	meanwhile = NULL;
	return (struct vb_local_req){
	        .peer = &peer,
	        .in_ring = &in_ring,
	        .rec = {.dest = in_ring.dest, .src = vb_rec_word(SENDER, flags), .psn = PSN, .length = 8},
	        .ext = {.remote_addr = 4096, .rkey = 3, .total = 8},
	        .type = type,
	        .flags = flags};
}

static void withdraw_read(void)
{
	atomic_store(&vb_seg_qp(peer.seg, SENDER)->withdrawn, vb_rec_word(PSN, 1));
}

static void withdraw_write(void)
{
	in_ring.dest = vb_rec_word(OWN, VB_REC_WRITTEN);
}

#define WHOLE (VB_RECF_FIRST | VB_RECF_LAST)

static void a_read_that_is_withdrawn_during_the_look_up_is_not_refused(void)
{
	struct vb_local_req q = request(VB_REC_READ, WHOLE);

	meanwhile = withdraw_read;
	SAME(vb_local_execute(&qp, &q), VB_VERDICT_OK);
	SAME(qp.local.taken, 1);
	SAME(qp.local.epsn, PSN + 1);
	SAME(qp.local.inread_tail, qp.local.inread_head);
}

static void a_write_that_is_withdrawn_during_the_look_up_is_not_refused(void)
{
	struct vb_local_req q = request(VB_REC_WRITE, WHOLE | VB_RECF_MAY_HOLD);

	meanwhile = withdraw_write;
	SAME(vb_local_execute(&qp, &q), VB_VERDICT_HELD);
	CHECK(q.held);
	SAME(qp.local.taken, 0); /* it is counted when it is read again, as one that is written */
}

static void what_is_not_withdrawn_is_refused(void)
{
	struct vb_local_req read = request(VB_REC_READ, WHOLE);

	SAME(vb_local_execute(&qp, &read), VB_VERDICT_DENIED);
	struct vb_local_req write = request(VB_REC_WRITE, WHOLE | VB_RECF_MAY_HOLD);

	SAME(vb_local_execute(&qp, &write), VB_VERDICT_DENIED);
	CHECK(!write.held);
	SAME(qp.local.taken, 0);
}

int main(void)
{
	peer.seg = mmap(NULL, VB_SEG_BYTES, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
	CHECK(peer.seg != MAP_FAILED);
	RUN(a_read_that_is_withdrawn_during_the_look_up_is_not_refused);
	RUN(a_write_that_is_withdrawn_during_the_look_up_is_not_refused);
	RUN(what_is_not_withdrawn_is_refused);
	return 0;
}
