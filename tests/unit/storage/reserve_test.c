// reserve_test.c - reservations of a namespace as hosts see them: commands, conflicts, the report, notifications
// follows: NVM Express Base 1.4, 6.10 to 6.13, 8.8
// SPDX-License-Identifier: MIT
#include "reserve_host.h"

#define DNR(x) ((x) | NV_DNR)
#define CONFLICT DNR(NV_RESERVATION_CONFLICT)

static struct medium *m;
static struct reserver one, two;

static void up(void)
{
	target_open(16 << 20);
	m = medium_open(1 << 20, 512);
	medium_add(m, 1);
	one = reserver_open(SUBNQN, HOSTNQN, 1);
	two = reserver_open(SUBNQN, "nqn.2026-01.test:two", 2);
}

static void down(void)
{
	reserver_close(&one);
	reserver_close(&two);
	target_close();
	CHECK(m->closed);
	free(m->bytes);
	free(m);
}

static uint16_t io(struct reserver *h, uint8_t opcode)
{
	return host_do(h->io, io_command(opcode, 0, 1)).status;
}

static void what_another_host_has_reserved_is_refused(void)
{
	static const uint8_t writes[] = {NV_IO_WRITE, NV_IO_WRITE_ZEROES, NV_IO_FLUSH},
	                     reads[] = {NV_IO_READ, NV_IO_COMPARE, NV_IO_VERIFY};

	up();
	SAME(enter(&one, 10), 0);
	SAME(acquire(&one, 10, NR_WRITES), 0);
	memset(one.io->out, 0, 512);
	memset(two.io->out, 0, 512);
	for (int i = 0; i < 3; i++) {
		SAME(io(&two, writes[i]), CONFLICT);
		SAME(io(&two, reads[i]), 0);
		SAME(io(&one, writes[i]), 0);
	}
	struct nv_sqe dsm = {.opcode = NV_IO_DSM, .nsid = 1, .sgl = by_transport(16), .cdw = {0, 4}};

	SAME(host_do(two.io, dsm).status, CONFLICT);
	dsm.cdw[1] = 1; /* only advice */
	SAME(host_do(two.io, dsm).status, CONFLICT);
	uint32_t written = m->count[NB_WRITE];
	struct nv_sqe compare = io_command(NV_IO_COMPARE, 0, 1), write = io_command(NV_IO_WRITE, 0, 1);

	compare.fuse = NV_FUSE_FIRST;
	write.fuse = NV_FUSE_SECOND;
	uint16_t first = host_post(two.io, compare, 0), second = host_post(two.io, write, 0);

	SAME(host_answer(two.io, first)->status, CONFLICT);
	SAME(host_answer(two.io, second)->status, NV_FUSED_FAILED);
	SAME(m->count[NB_WRITE], written);
	SAME(release(&one, 10, NR_WRITES), 0);
	SAME(acquire(&one, 10, NR_ACCESS), 0);
	for (int i = 0; i < 3; i++)
		SAME(io(&two, reads[i]), CONFLICT);
	SAME(clear(&one, 10), 0);
	SAME(io(&two, NV_IO_WRITE), 0);
	down();
}

static void the_report_lists_registrants(void)
{
	up();
	SAME(report(&one, 4096), 0);
	SAME(nv_get16(one.io->in + 5), 0);
	SAME(enter(&one, 0x1122334455667788), 0);
	SAME(enter(&two, 20), 0);
	SAME(acquire(&two, 20, NR_ACCESS_REGISTRANTS), 0);
	SAME(report(&one, 4096), 0);
	const uint8_t *d = one.io->in;

	SAME(nv_get32(d), 2);
	SAME(d[4], NR_ACCESS_REGISTRANTS);
	SAME(nv_get16(d + 5), 2);
	SAME(nv_get16(d + 64), NV_CNTLID_DYNAMIC);
	SAME(d[64 + 2], 0);
	SAME(nv_get64(d + 64 + 8), 0x1122334455667788);
	CHECK(d[64 + 16] == 1 && d[64 + 31] == 1);
	SAME(d[128 + 2], 1);
	SAME(nv_get64(d + 128 + 8), 20);
	CHECK(d[128 + 16] == 2);
	SAME(report(&one, 68), 0); /* as much as the host wants */
	SAME(nv_get16(d + 64), NV_CNTLID_DYNAMIC);
	struct nv_sqe c = {.opcode = NV_IO_RESERVE_REPORT, .nsid = 1, .sgl = by_transport(64), .cdw = {15, 0}};

	SAME(host_do(one.io, c).status, DNR(NV_HOST_ID_FORMAT));
	c.cdw[1] = 1;
	c.cdw[0] = UINT32_MAX;
	SAME(host_do(one.io, c).status, DNR(NV_INVALID_FIELD));
	down();
}

static uint16_t odd(uint8_t opcode, uint32_t cdw10, uint32_t length)
{
	return host_do(one.io,
	               (struct nv_sqe){.opcode = opcode, .nsid = 1, .sgl = by_transport(length), .cdw = {cdw10}})
	        .status;
}

static void what_cannot_be_is_refused(void)
{
	up();
	SAME(odd(NV_IO_RESERVE_REGISTER, 3, 16), DNR(NV_INVALID_FIELD));
	SAME(odd(NV_IO_RESERVE_REGISTER, 1u << 30, 16), DNR(NV_INVALID_FIELD)); /* CPTPL 1 */
	SAME(odd(NV_IO_RESERVE_REGISTER, 0, 8), DNR(NV_SGL_LENGTH));
	SAME(odd(NV_IO_RESERVE_ACQUIRE, 3 | 1 << 8, 16), DNR(NV_INVALID_FIELD));
	SAME(odd(NV_IO_RESERVE_ACQUIRE, 1 << 3 | 1 << 8, 16), DNR(NV_INVALID_FIELD));
	SAME(odd(NV_IO_RESERVE_ACQUIRE, 0, 16), DNR(NV_INVALID_FIELD));
	SAME(odd(NV_IO_RESERVE_ACQUIRE, 7 << 8, 16), DNR(NV_INVALID_FIELD));
	SAME(odd(NV_IO_RESERVE_RELEASE, 2 | 1 << 8, 8), DNR(NV_INVALID_FIELD));
	SAME(odd(NV_IO_RESERVE_RELEASE, 0, 8), DNR(NV_INVALID_FIELD));
	SAME(enter(&one, 0), DNR(NV_INVALID_FIELD));
	SAME(acquire(&one, 0, NR_WRITES), CONFLICT);
	SAME(host_do(one.io,
	             (struct nv_sqe){.opcode = NV_IO_RESERVE_RELEASE, .nsid = 2, .sgl = by_transport(8), .cdw = {1}})
	             .status,
	     DNR(NV_INVALID_NS));
	m->b.readonly = true;
	SAME(enter(&one, 1), DNR(NV_INVALID_OPCODE));
	SAME(host_do(one.admin, identify(NV_CNS_NS, 1)).status, 0);
	SAME(one.admin->in[31], 0);
	m->b.readonly = false;
	SAME(host_do(one.admin, identify(NV_CNS_NS, 1)).status, 0);
	SAME(one.admin->in[31], 0xfe); /* all types; nothing persists */
	SAME(host_do(one.admin, identify(NV_CNS_CTRL, 0)).status, 0);
	SAME(nv_get16(one.admin->in + 520) & 1 << 5, 1 << 5);
	down();
}

/* None of its writes lands after the preemption, and none that waits begins. */
static void a_preemption_ends_after_what_it_forbids(void)
{
	up();
	nt_limit_namespace(subsystem->ns[1], &(struct nt_limits){.depth = 2});
	SAME(enter(&one, 10), 0);
	SAME(enter(&two, 20), 0);
	SAME(acquire(&one, 10, NR_WRITES), 0);
	m->slow = true;
	one.io->count = 0;
	uint16_t a = host_post(one.io, io_command(NV_IO_WRITE, 0, 1), 0),
	         b = host_post(one.io, io_command(NV_IO_WRITE, 8, 1), 0),
	         late = host_post(one.io, io_command(NV_IO_WRITE, 16, 1), 0);

	two.io->count = 0;
	uint16_t takes = post_preempt(&two, 20, 10, NR_WRITES);

	CHECK(!host_answer(two.io, takes));
	uint32_t written = m->count[NB_WRITE];

	medium_go(m);
	host_settle(one.io);
	host_settle(two.io);
	SAME(host_answer(one.io, a)->status, 0);
	SAME(host_answer(one.io, b)->status, 0);
	SAME(host_answer(one.io, late)->status, CONFLICT);
	SAME(host_answer(two.io, takes)->status, 0);
	SAME(m->count[NB_WRITE], written);
	m->slow = false;
	SAME(io(&one, NV_IO_WRITE), CONFLICT);
	SAME(io(&two, NV_IO_WRITE), 0);
	down();
}

/* … and it does not wait for those that came after it. */
static void changes_in_a_row_wait_each_for_its_own(void)
{
	up();
	SAME(enter(&one, 10), 0);
	m->slow = true;
	one.io->count = two.io->count = 0;
	uint16_t old = host_post(one.io, io_command(NV_IO_WRITE, 0, 1), 0), first = post_enter(&two, 20);
	uint16_t newer = host_post(one.io, io_command(NV_IO_READ, 0, 1), 0), second = post_enter(&two, 20);

	CHECK(!host_answer(two.io, first) && !host_answer(two.io, second));
	struct nb_request *r = m->first;

	m->first = r->next; /* the old one alone */
	r->done(r, 0);
	host_settle(one.io);
	host_settle(two.io);
	SAME(host_answer(one.io, old)->status, 0);
	SAME(host_answer(two.io, first)->status, 0);
	CHECK(!host_answer(two.io, second) && !host_answer(one.io, newer));
	medium_go(m);
	host_settle(one.io);
	host_settle(two.io);
	SAME(host_answer(two.io, second)->status, 0);
	down();
}

static void a_connection_may_end_while_its_change_waits(void)
{
	up();
	m->slow = true;
	one.io->count = 0;
	host_post(one.io, io_command(NV_IO_WRITE, 0, 1), 0);
	post_enter(&two, 20);
	two.io->unreleased_count = 0;
	nt_queue_close(&two.io->q);
	CHECK(!two.io->gone);
	medium_go(m);
	host_settle(one.io);
	CHECK(two.io->gone);
	m->slow = false;
	free(two.io);
	two.io = reserver_queue(SUBNQN, "nqn.2026-01.test:two", 2, 1, two.admin->q.ctrl->id);
	SAME(report(&one, 4096), 0);
	SAME(nv_get16(one.io->in + 5), 1);
	down();
}

static struct medium *joint; /* takes the place of m, and shares its reservations with other targets */
static uint64_t reported;

static void note_reserved(struct nb_backend *b, uint64_t version)
{
	reported = version;
}

static void pass_on(struct nb_backend *b)
{
	while (m->first) {
		struct nb_request *r = m->first;

		m->first = r->next;
		nb_submit(&joint->b, r);
	}
	m->closed = true;
}

/* Fails if other targets are told that this one enforces a version of theirs, when it only had as many of its own. */
static void take_shared(uint64_t version)
{
	static struct nb_kind passes, shares;
	struct nr_state shared = {.version = version};

	up();
	joint = medium_open(1 << 20, 512);
	passes = shares = *m->b.kind;
	passes.close = pass_on;
	shares.reserved = note_reserved;
	m->b.kind = &passes;
	joint->b.kind = &shares;
	joint->b.reservations = &shared;
	SAME(enter(&one, 10), 0);
	m->slow = joint->slow = true;
	one.io->count = two.io->count = 0;
	uint16_t older = host_post(one.io, io_command(NV_IO_WRITE, 0, 1), 0), change = post_enter(&two, 20);
	uint16_t newer = host_post(one.io, io_command(NV_IO_WRITE, 8, 1), 0);

	CHECK(!host_answer(two.io, change));
	reported = 0;
	nt_namespace_replace(subsystem->ns[1], &joint->b);
	CHECK(host_answer(two.io, change));
	SAME(host_answer(two.io, change)->status, NV_NS_NOT_READY);
	struct nb_request *r = joint->first;

	joint->first = r->next; /* the older one alone */
	r->done(r, 0);
	SAME(reported, 0);
	medium_go(joint);
	SAME(reported, version);
	host_settle(one.io);
	host_settle(two.io);
	SAME(host_answer(one.io, older)->status, 0);
	SAME(host_answer(one.io, newer)->status, 0);
	down();
	CHECK(joint->closed);
	free(joint->bytes);
	free(joint);
}

static void shared_reservations_take_the_place_of_own_ones(void)
{
	take_shared(1);
	take_shared(5);
}

static void registrants_are_told_what_they_have_lost(void)
{
	up();
	SAME(enter(&one, 10), 0);
	SAME(enter(&two, 20), 0);
	SAME(acquire(&one, 10, NR_WRITES_REGISTRANTS), 0);
	one.admin->count = 0;
	uint16_t aer = host_post(one.admin, (struct nv_sqe){.opcode = NV_ADMIN_ASYNC_EVENT, .sgl = by_transport(0)}, 0);

	SAME(preempt(&two, 20, 10, NR_ACCESS), 0);
	SAME(host_answer(one.admin, aer)->result, NV_AEN_COMMAND_SET | (uint32_t)NV_LOG_RESERVATION << 16);
	SAME(host_do(one.admin, get_log(NV_LOG_RESERVATION, 64, 0)).status, 0);
	SAME(nv_get64(one.admin->in), 1);
	SAME(one.admin->in[8], NR_REGISTRATION_PREEMPTED);
	SAME(one.admin->in[9], 0); /* no more: it is no registrant whose reservation was released */
	SAME(nv_get32(one.admin->in + 12), 1);
	SAME(enter(&one, 10), 0);
	for (int i = 0; i < 2; i++) {
		SAME(release(&two, 20, i ? NR_WRITES_REGISTRANTS : NR_ACCESS), 0);
		SAME(acquire(&two, 20, NR_WRITES_REGISTRANTS), 0);
	}
	SAME(release(&two, 20, NR_WRITES_REGISTRANTS), 0);
	SAME(host_do(one.admin, get_log(NV_LOG_RESERVATION, 64, 0)).status, 0);
	SAME(nv_get64(one.admin->in), 2);
	SAME(one.admin->in[8], NR_RELEASED);
	SAME(one.admin->in[9], 1); /* one more */
	SAME(host_do(one.admin, get_log(NV_LOG_RESERVATION, 64, 0)).status, 0);
	SAME(nv_get64(one.admin->in), 3);
	SAME(one.admin->in[9], 0);
	SAME(host_do(one.admin, get_log(NV_LOG_RESERVATION, 64, 0)).status, 0);
	SAME(one.admin->in[8], 0); /* no more */
	/* the one that did it is not told */
	SAME(host_do(two.admin, get_log(NV_LOG_RESERVATION, 64, 0)).status, 0);
	SAME(two.admin->in[8], 0);
	/* what is masked */
	struct nv_sqe mask = {.opcode = NV_ADMIN_SET_FEATURES,
	                      .nsid = NV_NSID_ALL,
	                      .sgl = by_transport(0),
	                      .cdw = {NV_FEAT_NOTICE_MASK, 0xff}};

	SAME(host_do(one.admin, mask).status, 0);
	mask.opcode = NV_ADMIN_GET_FEATURES;
	mask.nsid = 1;
	SAME(host_do(one.admin, mask).result, 0xe);
	SAME(enter(&one, 10), 0);
	SAME(clear(&two, 20), 0);
	SAME(host_do(one.admin, get_log(NV_LOG_RESERVATION, 64, 0)).status, 0);
	SAME(one.admin->in[8], 0);
	down();
}

static void a_namespace_without_reservations_has_none_of_their_features(void)
{
	static const uint8_t ids[] = {NV_FEAT_NOTICE_MASK, NV_FEAT_PERSISTENCE};

	up();
	m->b.readonly = true;
	for (unsigned i = 0; i < 2; i++) {
		struct nv_sqe c = {
		        .opcode = NV_ADMIN_SET_FEATURES, .nsid = 1, .sgl = by_transport(0), .cdw = {ids[i], 0}};

		SAME(host_do(one.admin, c).status, DNR(NV_INVALID_FIELD));
		c.opcode = NV_ADMIN_GET_FEATURES;
		SAME(host_do(one.admin, c).status, DNR(NV_INVALID_FIELD));
	}
	m->b.readonly = false;
	down();
}

static void persistence_is_not_offered_alone(void)
{
	up();
	struct nv_sqe c = {
	        .opcode = NV_ADMIN_SET_FEATURES, .nsid = 1, .sgl = by_transport(0), .cdw = {NV_FEAT_PERSISTENCE, 1}};

	SAME(host_do(one.admin, c).status, DNR(NV_INVALID_FIELD));
	c.cdw[1] = 0;
	SAME(host_do(one.admin, c).status, 0);
	c.nsid = NV_NSID_ALL;
	SAME(host_do(one.admin, c).status, DNR(NV_INVALID_NS));
	c.nsid = 1;
	c.opcode = NV_ADMIN_GET_FEATURES;
	SAME(host_do(one.admin, c).status, 0);
	SAME(host_do(one.admin, c).result, 0);
	c.cdw[0] |= 3 << 8;
	SAME(host_do(one.admin, c).result, 6); /* it can be changed, of a namespace */
	SAME(enter(&one, 10), 0);              /* as Linux does it: with CPTPL 3 */
	SAME(report(&one, 64), 0);
	SAME(one.io->in[9], 0);
	down();
}

int main(void)
{
	RUN(what_another_host_has_reserved_is_refused);
	RUN(the_report_lists_registrants);
	RUN(what_cannot_be_is_refused);
	RUN(a_preemption_ends_after_what_it_forbids);
	RUN(changes_in_a_row_wait_each_for_its_own);
	RUN(a_connection_may_end_while_its_change_waits);
	RUN(shared_reservations_take_the_place_of_own_ones);
	RUN(registrants_are_told_what_they_have_lost);
	RUN(a_namespace_without_reservations_has_none_of_their_features);
	RUN(persistence_is_not_offered_alone);
	return 0;
}
