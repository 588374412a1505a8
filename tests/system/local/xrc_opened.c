// xrc_opened.c - XRC targets that other processes than their makers open
// follows: IBA volume 1, annex A14 (XRC); ibv_open_qp(3), ibv_open_xrcd(3)
// SPDX-License-Identifier: MIT
#include "xrc_ends.h"

#include <fcntl.h>
#include <signal.h>
#include <sys/resource.h>
#include <time.h>

/* What the target's process, the owner, tells the others. */
struct target_addr {
	uint32_t qpn, pad;
	union ibv_gid gid;
};

/* What they need to open it, and the initiator. */
struct numbers {
	uint32_t initiator, target;
	union ibv_gid gid;
};

/* A process of the domain. */
struct member {
	struct dev d;
	struct ibv_xrcd *xrcd;
	struct ibv_qp *qp;
};

/* The first process of a test is the initiator, and a member too. */
struct scene {
	struct xrc_initiator i;
	struct peer owner, opener;
	struct numbers n;
	struct xrc_srq srq;
	struct ibv_xrcd *xrcd;
};

static int domain_file;

static void member_open(struct member *m)
{
	*m = (struct member){0};
	unsetenv("VERBENA_WIRE"); /* "always" is for the initiator */
	dev_open(&m->d);
	m->xrcd = xrc_domain(m->d.ctx, domain_file);
}

static void member_close(struct member *m)
{
	SAME(ibv_close_xrcd(m->xrcd), 0);
	dev_close(&m->d);
}

static struct ibv_qp *open_target(struct ibv_context *ctx, struct ibv_xrcd *x, uint32_t qpn)
{
	struct ibv_qp_open_attr a = {.comp_mask = IBV_QP_OPEN_ATTR_NUM | IBV_QP_OPEN_ATTR_XRCD |
	                                          IBV_QP_OPEN_ATTR_CONTEXT | IBV_QP_OPEN_ATTR_TYPE,
	                             .qp_num = qpn,
	                             .xrcd = x,
	                             .qp_context = x,
	                             .qp_type = IBV_QPT_XRC_RECV};

	errno = 0;
	return ibv_open_qp(ctx, &a);
}

/* Makes the target, and lets others open it. */
static void owner_open(struct member *m, int fd)
{
	member_open(m);
	m->qp = xrc_target_make(m->d.ctx, m->xrcd);
	const struct target_addr me = {.qpn = m->qp->qp_num, .gid = m->d.gid};
	tell(fd, &me, sizeof(me));
	meet_up(fd);
}

static void opener_open(struct member *m, int fd, struct numbers *n)
{
	member_open(m);
	hear(fd, n, sizeof(*n));
	m->qp = open_target(m->d.ctx, m->xrcd, n->target);
	CHECK(m->qp && m->qp->qp_num == n->target && m->qp->qp_context == m->xrcd && m->qp->context == m->d.ctx);
	SAME(state_of(m->qp), IBV_QPS_INIT);
	SAME(ibv_close_xrcd(m->xrcd), EBUSY);
}

static void scene_open(struct scene *s, peer_fn *owner, peer_fn *opener)
{
	struct target_addr t;

	domain_file = open("/tmp", O_TMPFILE | O_RDWR, 0600);
	CHECK(domain_file >= 0);
	s->owner = start(owner, NULL);
	s->opener = start(opener, NULL);
	xrc_initiator_open(&s->i);
	hear(s->owner.fd, &t, sizeof(t));
	s->n = (struct numbers){s->i.qp->qp_num, t.qpn, t.gid};
	meet_up(s->owner.fd);
	tell(s->opener.fd, &s->n, sizeof(s->n));
	s->xrcd = xrc_domain(s->i.d.ctx, domain_file);
}

static void initiator_connect(struct scene *s)
{
	const struct ibv_qp_attr retries = {.timeout = 18, .retry_cnt = 7, .rnr_retry = 7};

	xrc_initiator_connect(&s->i, &s->n.gid, s->n.target, &retries);
}

static void scene_close(struct scene *s)
{
	SAME(ibv_close_xrcd(s->xrcd), 0);
	xrc_initiator_close(&s->i);
}

/* Has the target ended? Its process notices the end of an opener a moment later. */
static bool target_ends(struct scene *s)
{
	for (uint64_t until = now_ms() + PATIENCE / 2; now_ms() < until; sleep_ms(5)) {
		struct ibv_qp *qp = open_target(s->i.d.ctx, s->xrcd, s->n.target);

		if (!qp)
			return errno == EINVAL;
		SAME(ibv_destroy_qp(qp), 0);
	}
	return false;
}

/* --- its life --- */

static void makes_and_leaves(int fd, void *arg)
{
	struct member m;

	owner_open(&m, fd);
	meet_up(fd); /* the opener has connected it */
	SAME(state_of(m.qp), IBV_QPS_RTR);
	SAME(ibv_destroy_qp(m.qp), 0);
	member_close(&m);
	meet_up(fd);
	meet_up(fd);
}

static void connects_and_keeps(int fd, void *arg)
{
	struct xrc_taker t;
	struct ibv_qp_attr a;
	struct ibv_qp_init_attr init;
	struct numbers n;
	struct xrc_srq srq = {0};
	struct member m;

	opener_open(&m, fd, &n);
	xrc_target_connect(m.qp, &m.d, n.initiator);
	SAME(m.qp->state, IBV_QPS_RTR);
	CHECK(!ibv_query_qp(m.qp, &a, IBV_QP_DEST_QPN, &init) && a.qp_state == IBV_QPS_RTR);
	CHECK(a.dest_qp_num == n.initiator && a.path_mtu == IBV_MTU_1024 && init.qp_context == m.xrcd);
	CHECK(init.qp_type == IBV_QPT_XRC_RECV && !init.srq && !init.send_cq && !init.cap.max_recv_wr);
	a.qp_state = IBV_QPS_INIT;
	SAME(ibv_modify_qp(m.qp, &a, IBV_QP_STATE), EINVAL); /* also the errors are the target's */
	xrc_taker_open(&t, &m.d, m.xrcd, &srq);
	t.initiator = n.initiator;
	t.target = n.target;
	xrc_post_receive(&t, 1);
	xrc_post_receive(&t, 2);
	tell(fd, &srq, sizeof(srq));
	xrc_arrived(&t, 1, 100);
	meet_up(fd); /* the owner has closed its handle, its domain and its device */
	xrc_arrived(&t, 2, 5000);
	SAME(ibv_destroy_qp(m.qp), 0);
	CHECK(!open_target(m.d.ctx, m.xrcd, n.target) && errno == EINVAL);
	xrc_taker_close(&t);
	member_close(&m);
}

static void lives_until_its_last_handle_is_closed(void)
{
	struct scene s;

	scene_open(&s, makes_and_leaves, connects_and_keeps);
	hear(s.opener.fd, &s.srq, sizeof(s.srq));
	initiator_connect(&s);
	expect(s.i.cq, XRC_REQUEST(&s.i, 100, &s.srq, .opcode = IBV_WR_SEND), IBV_WC_SUCCESS);
	meet_up(s.owner.fd);
	meet_up(s.owner.fd);
	meet_up(s.opener.fd);
	expect(s.i.cq, XRC_REQUEST(&s.i, 5000, &s.srq, .opcode = IBV_WR_SEND), IBV_WC_SUCCESS);
	finish(&s.opener);
	meet_up(s.owner.fd);
	finish(&s.owner);
	scene_close(&s);
}

static void connects_and_ends(int fd, void *arg)
{
	struct ibv_qp_attr a = {.qp_state = IBV_QPS_ERR};
	struct xrc_taker t;
	struct numbers n;
	struct xrc_srq srq = {0};
	struct member m;

	opener_open(&m, fd, &n);
	xrc_target_connect(m.qp, &m.d, n.initiator);
	xrc_taker_open(&t, &m.d, m.xrcd, &srq);
	t.initiator = n.initiator;
	t.target = n.target;
	xrc_post_receive(&t, 1);
	tell(fd, &srq, sizeof(srq));
	xrc_arrived(&t, 1, 5000);
	SAME(ibv_modify_qp(m.qp, &a, IBV_QP_STATE), 0);
	meet_up(fd);
	SAME(ibv_destroy_qp(m.qp), 0);
	xrc_taker_close(&t);
	member_close(&m);
}

static void acknowledges_what_came_before_its_end(void)
{
	struct scene s;

	scene_open(&s, makes_and_leaves, connects_and_ends);
	hear(s.opener.fd, &s.srq, sizeof(s.srq));
	initiator_connect(&s);
	expect(s.i.cq, XRC_REQUEST(&s.i, 5000, &s.srq, .opcode = IBV_WR_SEND), IBV_WC_SUCCESS);
	meet_up(s.opener.fd);
	finish(&s.opener);
	kill_peer(&s.owner);
	scene_close(&s);
}

static void makes_and_waits(int fd, void *arg)
{
	struct member m;

	owner_open(&m, fd);
	meet_up(fd);
	SAME(ibv_destroy_qp(m.qp), 0);
	meet_up(fd);
	meet_up(fd);
	member_close(&m);
}

static void opens_and_waits(int fd, void *arg)
{
	struct numbers n;
	struct member m;

	opener_open(&m, fd, &n);
	meet_up(fd);
	meet_up(fd);
	SAME(ibv_destroy_qp(m.qp), 0);
	member_close(&m);
}

static void a_killed_openers_handle_is_closed(void)
{
	struct scene s;

	scene_open(&s, makes_and_waits, opens_and_waits);
	meet_up(s.opener.fd);
	meet_up(s.owner.fd);
	meet_up(s.owner.fd); /* the opener alone has it now */
	struct ibv_qp *qp = open_target(s.i.d.ctx, s.xrcd, s.n.target);
	CHECK(qp);
	SAME(ibv_destroy_qp(qp), 0);
	kill_peer(&s.opener);
	CHECK(target_ends(&s));
	meet_up(s.owner.fd);
	finish(&s.owner);
	scene_close(&s);
}

static uint64_t processor_ms(void)
{
	struct timespec t;

	CHECK(!clock_gettime(CLOCK_PROCESS_CPUTIME_ID, &t));
	return (uint64_t)t.tv_sec * 1000 + (uint64_t)t.tv_nsec / 1000000;
}

/* Has no descriptor left when the opener comes. */
static void waits_for_descriptors(int fd, void *arg)
{
	const struct rlimit few = {200, 200};
	int taken[200], n = 0;
	struct member m;

	member_open(&m);
	m.qp = xrc_target_make(m.d.ctx, m.xrcd);
	const struct target_addr me = {.qpn = m.qp->qp_num, .gid = m.d.gid};

	CHECK(!setrlimit(RLIMIT_NOFILE, &few));
	while ((taken[n] = open("/dev/null", O_RDONLY)) >= 0)
		n++;
	tell(fd, &me, sizeof(me));
	meet_up(fd);
	meet_up(fd); /* the opener is coming */
	uint64_t before = processor_ms();

	sleep_ms(1000);
	CHECK(processor_ms() - before < 200);
	while (n)
		close(taken[--n]);
	meet_up(fd); /* it has come */
	SAME(ibv_destroy_qp(m.qp), 0);
	member_close(&m);
}

static void an_opener_waits_for_descriptors_of_the_owner(void)
{
	struct scene s;

	scene_open(&s, waits_for_descriptors, opens_and_waits);
	meet_up(s.owner.fd);
	meet_up(s.opener.fd);
	meet_up(s.opener.fd);
	finish(&s.opener);
	meet_up(s.owner.fd);
	finish(&s.owner);
	scene_close(&s);
}

/* --- events --- */

static int awaited_event(struct member *m)
{
	int event = next_event(&m->d, PATIENCE);

	return event == IBV_EVENT_COMM_EST ? next_event(&m->d, PATIENCE) : event;
}

static void fails_here(int fd, void *arg)
{
	struct member m;

	owner_open(&m, fd);
	SAME(awaited_event(&m), IBV_EVENT_QP_REQ_ERR);
	SAME(state_of(m.qp), IBV_QPS_ERR);
	meet_up(fd);
	SAME(ibv_destroy_qp(m.qp), 0);
	member_close(&m);
}

static void fails_there(int fd, void *arg)
{
	struct numbers n;
	struct member m;

	opener_open(&m, fd, &n);
	xrc_target_connect(m.qp, &m.d, n.initiator);
	meet_up(fd);
	SAME(awaited_event(&m), IBV_EVENT_QP_REQ_ERR);
	SAME(state_of(m.qp), IBV_QPS_ERR);
	SAME(ibv_destroy_qp(m.qp), 0);
	member_close(&m);
	meet_up(fd);
}

static void all_openers_hear_of_an_error(void)
{
	const struct xrc_srq none = {.number = 1};
	struct scene s;

	scene_open(&s, fails_here, fails_there);
	meet_up(s.opener.fd);
	initiator_connect(&s);
	expect(s.i.cq, XRC_REQUEST(&s.i, 10, &none, .opcode = IBV_WR_SEND), IBV_WC_REM_INV_REQ_ERR);
	meet_up(s.opener.fd);
	finish(&s.opener);
	meet_up(s.owner.fd);
	finish(&s.owner);
	scene_close(&s);
}

static void outlives_it(int fd, void *arg)
{
	struct ibv_qp_attr a = {.qp_state = IBV_QPS_ERR};
	struct ibv_qp_init_attr init;
	struct numbers n;
	struct member m;

	opener_open(&m, fd, &n);
	meet_up(fd);
	SAME(next_event(&m.d, PATIENCE), IBV_EVENT_QP_FATAL);
	SAME(m.qp->state, IBV_QPS_ERR);
	SAME(ibv_query_qp(m.qp, &a, IBV_QP_STATE, &init), EIO);
	SAME(ibv_modify_qp(m.qp, &a, IBV_QP_STATE), EIO);
	SAME(ibv_destroy_qp(m.qp), 0);
	CHECK(!open_target(m.d.ctx, m.xrcd, n.target) && errno == EINVAL);
	member_close(&m);
}

static void openers_hear_of_its_processs_death(void)
{
	struct scene s;

	scene_open(&s, makes_and_waits, outlives_it);
	meet_up(s.opener.fd);
	kill_peer(&s.owner);
	finish(&s.opener);
	scene_close(&s);
}

/* --- what cannot be opened --- */

static void what_does_not_exist_cannot_be_opened(void)
{
	int other = open("/tmp", O_TMPFILE | O_RDWR, 0600);
	struct scene s;

	scene_open(&s, makes_and_waits, opens_and_waits);
	meet_up(s.opener.fd);
	struct ibv_xrcd *x = xrc_domain(s.i.d.ctx, other), *y = xrc_domain(s.i.d.ctx, -1);
	CHECK(!open_target(s.i.d.ctx, x, s.n.target) && errno == EINVAL);
	CHECK(!open_target(s.i.d.ctx, y, s.n.target) && errno == EINVAL);
	CHECK(!open_target(s.i.d.ctx, s.xrcd, s.n.target ^ 1) && errno == EINVAL);
	CHECK(!open_target(s.i.d.ctx, s.xrcd, s.n.target ^ 0x800000) && errno == EINVAL); /* no process has it */
	SAME(ibv_close_xrcd(x), 0);
	SAME(ibv_close_xrcd(y), 0);
	meet_up(s.opener.fd);
	finish(&s.opener);
	meet_up(s.owner.fd);
	meet_up(s.owner.fd);
	meet_up(s.owner.fd);
	finish(&s.owner);
	scene_close(&s);
	close(other);
}

static const struct test tests[] = {
        {"another process connects a target, which lives until its last handle is closed",
         lives_until_its_last_handle_is_closed, 0},
        {"what has arrived before an opener takes the target to ERR is acknowledged",
         acknowledges_what_came_before_its_end, 0},
        {"a killed process's handle of a target is closed", a_killed_openers_handle_is_closed, 0},
        {"an error of a target is an event in all processes that have opened it", all_openers_hear_of_an_error, 0},
        {"the death of a target's process is a fatal event for its openers", openers_hear_of_its_processs_death, 0},
        {"a target that is not in the domain cannot be opened", what_does_not_exist_cannot_be_opened, 0},
        {"an opener waits while the target's process has no descriptor, at no cost",
         an_opener_waits_for_descriptors_of_the_owner, 0},
};

int main(int argc, char **argv)
{
	return RUN_TESTS(argc, argv, tests);
}
