// xrc.c - extended reliable connections: an initiator in one process, a target with two SRQs in another
// follows: IBA volume 1, annex A14 (XRC); ibv_open_xrcd(3), ibv_create_srq_ex(3), ibv_open_qp(3), ibv_poll_cq(3)
// SPDX-License-Identifier: MIT
#include "xrc_ends.h"

#include <fcntl.h>

/* What the initiator must know. */
struct target_addr {
	uint32_t qpn, srqn_of_other_domain;
	union ibv_gid gid;
	struct xrc_srq srq[2];
};

struct target {
	struct dev d;
	struct ibv_context *second; /* another context of the process, which opens the domain and the queue pair too */
	struct ibv_xrcd *xrcd, *its_xrcd, *other_xrcd;
	struct xrc_taker of[2];
	struct ibv_srq *srq_of_other_domain;
	struct ibv_qp *qp, *its_qp;
};

struct initiator {
	struct xrc_initiator i;
	struct target_addr to;
};

static void target_open(struct target *t, int fd)
{
	int file = open("/proc/self/exe", O_RDONLY | O_CLOEXEC);
	struct target_addr me;

	dev_open(&t->d);
	CHECK((t->second = ibv_open_device(t->d.ctx->device)));
	t->xrcd = xrc_domain(t->d.ctx, file);
	t->its_xrcd = xrc_domain(t->second, file);
	t->other_xrcd = xrc_domain(t->d.ctx, -1);
	for (int i = 0; i < 2; i++)
		xrc_taker_open(&t->of[i], &t->d, t->xrcd, &me.srq[i]);
	t->srq_of_other_domain = xrc_srq_make(t->of[0].pd, t->other_xrcd, t->of[0].cq, &me.srqn_of_other_domain);
	t->qp = xrc_target_make(t->d.ctx, t->xrcd);
	struct ibv_qp_open_attr oa = {.comp_mask = IBV_QP_OPEN_ATTR_NUM | IBV_QP_OPEN_ATTR_XRCD | IBV_QP_OPEN_ATTR_TYPE,
	                              .qp_num = t->qp->qp_num,
	                              .xrcd = t->its_xrcd,
	                              .qp_type = IBV_QPT_XRC_RECV};
	CHECK((t->its_qp = ibv_open_qp(t->second, &oa)));
	me.qpn = t->qp->qp_num;
	me.gid = t->d.gid;
	tell(fd, &me, sizeof(me));
	hear(fd, &t->of[0].initiator, sizeof(t->of[0].initiator));
	t->of[1].initiator = t->of[0].initiator;
	t->of[0].target = t->of[1].target = me.qpn;
	xrc_target_connect(t->qp, &t->d, t->of[0].initiator);
	struct ibv_qp_attr q = {.qp_state = IBV_QPS_RTS, .timeout = 14};
	SAME(ibv_modify_qp(t->its_qp, &q, IBV_QP_STATE | IBV_QP_SQ_PSN | IBV_QP_TIMEOUT), 0); /* by any handle */
	CHECK(!close(file));
	meet_up(fd);
}

static void target_close(struct target *t)
{
	SAME(ibv_close_xrcd(t->xrcd), EBUSY);
	SAME(ibv_destroy_qp(t->qp), 0);
	SAME(ibv_destroy_qp(t->its_qp), 0);
	SAME(ibv_destroy_srq(t->srq_of_other_domain), 0);
	xrc_taker_close(&t->of[0]);
	xrc_taker_close(&t->of[1]);
	SAME(ibv_close_xrcd(t->its_xrcd), 0);
	SAME(ibv_close_xrcd(t->other_xrcd), 0);
	SAME(ibv_close_xrcd(t->xrcd), 0);
	SAME(ibv_close_device(t->second), 0);
	dev_close(&t->d);
}

static void initiator_open(struct initiator *i, int fd)
{
	const struct ibv_qp_attr retries = {.timeout = 20, .retry_cnt = 7, .rnr_retry = 7};

	xrc_initiator_open(&i->i);
	hear(fd, &i->to, sizeof(i->to));
	tell(fd, &i->i.qp->qp_num, sizeof(i->i.qp->qp_num));
	xrc_initiator_connect(&i->i, &i->to.gid, i->to.qpn, &retries);
	meet_up(fd);
}

#define REQUEST(t, len, n, ...) XRC_REQUEST(&(t)->i, len, &(t)->to.srq[n], __VA_ARGS__)
#define REMOTE(t, n) XRC_REMOTE(&(t)->to.srq[n])

/* --- all operations, in turns to both SRQs --- */

static void takes_all_operations(int fd, void *arg)
{
	struct target t;

	target_open(&t, fd);
	xrc_take_all(fd, t.of, 2);
	target_close(&t);
}

static void all_operations(void)
{
	struct peer p = start(takes_all_operations, NULL);
	struct initiator i;

	initiator_open(&i, p.fd);
	xrc_request_all(&i.i, p.fd, i.to.srq, 2);
	finish(&p);
	xrc_initiator_close(&i.i);
}

/* --- many requests at once, of which each names an SRQ of its own --- */

#define MANY 60

static void takes_many(int fd, void *arg)
{
	struct target t;

	target_open(&t, fd);
	for (unsigned k = 0; k < MANY; k++)
		xrc_post_receive(&t.of[k % 2], k);
	meet_up(fd);
	for (unsigned k = 0; k < MANY; k++)
		xrc_arrived(&t.of[k % 2], k, k * 100);
	meet_up(fd);
	target_close(&t);
}

static void many_at_once(void)
{
	struct peer p = start(takes_many, NULL);
	struct initiator i;

	initiator_open(&i, p.fd);
	fill(i.i.m.p, XRC_SIZE, 3);
	meet_up(p.fd);
	for (unsigned k = 0; k < MANY; k++)
		REQUEST(&i, k * 100, k % 2, .opcode = IBV_WR_SEND);
	for (unsigned k = 1; k <= MANY; k++)
		expect(i.i.cq, k, IBV_WC_SUCCESS);
	meet_up(p.fd);
	finish(&p);
	xrc_initiator_close(&i.i);
}

/* --- an SRQ without receives --- */

static void is_late(int fd, void *arg)
{
	struct target t;

	target_open(&t, fd);
	xrc_post_receive(&t.of[0], 1); /* not of the SRQ that the request names */
	meet_up(fd);
	sleep_ms(20);
	xrc_post_receive(&t.of[1], 2);
	xrc_arrived(&t.of[1], 2, 10);
	expect_none(t.of[0].cq, 5);
	meet_up(fd);
	target_close(&t);
}

static void waits_for_a_receive(void)
{
	struct peer p = start(is_late, NULL);
	struct initiator i;

	initiator_open(&i, p.fd);
	meet_up(p.fd);
	expect(i.i.cq, REQUEST(&i, 10, 1, .opcode = IBV_WR_SEND), IBV_WC_SUCCESS);
	meet_up(p.fd);
	finish(&p);
	xrc_initiator_close(&i.i);
}

/* --- errors: one request each --- */

static int event_of(struct ibv_context *ctx)
{
	struct dev d = {.ctx = ctx};
	int event = next_event(&d, PATIENCE);

	return event == IBV_EVENT_COMM_EST ? next_event(&d, PATIENCE) : event;
}

struct wrong {
	const char *what;
	int event;
};

static void refuses(int fd, void *arg)
{
	const struct wrong *w = arg;
	struct target t;
	struct ibv_wc wc;

	target_open(&t, fd);
	xrc_post_receive(&t.of[0], 1);
	fill(t.of[0].m.p, XRC_SIZE, 5);
	fill(t.of[1].m.p, XRC_SIZE, 6);
	meet_up(fd);
	meet_up(fd); /* the request has failed */
	SAME(event_of(t.d.ctx), w->event);
	SAME(event_of(t.second), w->event); /* all openers get it */
	SAME(state_of(t.qp), IBV_QPS_ERR);
	SAME(t.its_qp->state, IBV_QPS_ERR);
	CHECK(holds(t.of[0].m.p, XRC_SIZE, 5) && holds(t.of[1].m.p, XRC_SIZE, 6));
	CHECK(!ibv_poll_cq(t.of[0].cq, 1, &wc) && !ibv_poll_cq(t.of[1].cq, 1, &wc));
	target_close(&t);
}

static void one_wrong(const struct wrong *w, enum ibv_wc_status status, uint64_t (*post_wrong)(struct initiator *i))
{
	struct peer p = start(refuses, (void *)w);
	struct initiator i;

	initiator_open(&i, p.fd);
	meet_up(p.fd);
	uint64_t id = post_wrong(&i);
	struct ibv_wc wc = wait_wc(i.i.cq);

	if (wc.wr_id != id || wc.status != status)
		fail(__FILE__, __LINE__, "%s: request %lu has status %d, not %d", w->what, (unsigned long)wc.wr_id,
		     wc.status, status);
	SAME(state_of(i.i.qp), IBV_QPS_ERR);
	meet_up(p.fd);
	finish(&p);
	xrc_initiator_close(&i.i);
}

static uint64_t post_unknown_srq(struct initiator *i)
{
	i->to.srq[0].number ^= 1;
	return REQUEST(i, 10, 0, .opcode = IBV_WR_SEND);
}

static uint64_t post_other_domain(struct initiator *i)
{
	i->to.srq[0].number = i->to.srqn_of_other_domain;
	return REQUEST(i, 10, 0, .opcode = IBV_WR_SEND);
}

/* The initiator's process had an SRQ in the target's domain, opened the target too, and has closed both. */
static uint64_t post_other_process(struct initiator *i)
{
	int file = open("/proc/self/exe", O_RDONLY | O_CLOEXEC);
	struct ibv_xrcd *x = xrc_domain(i->i.d.ctx, file);
	struct ibv_srq *srq = xrc_srq_make(i->i.d.pd, x, i->i.cq, &i->to.srq[0].number);
	struct ibv_qp_open_attr oa = {.comp_mask = IBV_QP_OPEN_ATTR_NUM | IBV_QP_OPEN_ATTR_XRCD | IBV_QP_OPEN_ATTR_TYPE,
	                              .qp_num = i->to.qpn,
	                              .xrcd = x,
	                              .qp_type = IBV_QPT_XRC_RECV};

	struct ibv_qp *target = ibv_open_qp(i->i.d.ctx, &oa);

	CHECK(target && !ibv_destroy_qp(target));
	CHECK(!ibv_destroy_srq(srq) && !ibv_close_xrcd(x) && !close(file));
	return REQUEST(i, 10, 0, .opcode = IBV_WR_SEND);
}

static uint64_t read_by_unknown_srq(struct initiator *i)
{
	i->to.srq[0].number ^= 1;
	return REQUEST(i, 10, 0, .opcode = IBV_WR_RDMA_READ, REMOTE(i, 0));
}

/* The region is in the protection domain of the other SRQ. */
static uint64_t write_in_other_domain(struct initiator *i)
{
	return REQUEST(i, 10, 0, .opcode = IBV_WR_RDMA_WRITE, REMOTE(i, 1));
}

static uint64_t read_in_other_domain(struct initiator *i)
{
	return REQUEST(i, 10, 1, .opcode = IBV_WR_RDMA_READ, REMOTE(i, 0));
}

static uint64_t add_in_other_domain(struct initiator *i)
{
	return REQUEST(
	        i, 8, 0, .opcode = IBV_WR_ATOMIC_FETCH_AND_ADD,
	        .wr.atomic = {.remote_addr = i->to.srq[1].far.addr, .rkey = i->to.srq[1].far.rkey, .compare_add = 2});
}

static void wrong_srqs_are_invalid_requests(void)
{
	static const struct wrong unknown = {"a SEND to an unknown SRQ", IBV_EVENT_QP_REQ_ERR};
	static const struct wrong other = {"a SEND to an SRQ of another domain", IBV_EVENT_QP_REQ_ERR};
	static const struct wrong process = {"a SEND to an SRQ that another process had", IBV_EVENT_QP_REQ_ERR};
	static const struct wrong reads = {"a READ by an unknown SRQ", IBV_EVENT_QP_REQ_ERR};

	one_wrong(&unknown, IBV_WC_REM_INV_REQ_ERR, post_unknown_srq);
	one_wrong(&other, IBV_WC_REM_INV_REQ_ERR, post_other_domain);
	one_wrong(&process, IBV_WC_REM_INV_REQ_ERR, post_other_process);
	one_wrong(&reads, IBV_WC_REM_INV_REQ_ERR, read_by_unknown_srq);
}

static void the_srq_grants_its_protection_domain_only(void)
{
	static const struct wrong writes = {"a WRITE", IBV_EVENT_QP_ACCESS_ERR};
	static const struct wrong reads = {"a READ", IBV_EVENT_QP_ACCESS_ERR};
	static const struct wrong adds = {"an atomic", IBV_EVENT_QP_ACCESS_ERR};

	one_wrong(&writes, IBV_WC_REM_ACCESS_ERR, write_in_other_domain);
	one_wrong(&reads, IBV_WC_REM_ACCESS_ERR, read_in_other_domain);
	one_wrong(&adds, IBV_WC_REM_ACCESS_ERR, add_in_other_domain);
}

/* --- a domain in several processes --- */

static int domain_file;

static void knows_the_domain(int fd, void *arg)
{
	struct ibv_xrcd *x, *twice;
	struct dev d;

	dev_open(&d);
	meet_up(fd); /* the other process has opened it */
	SAME(xrc_domain_try(d.ctx, domain_file, O_CREAT | O_EXCL, &x), EINVAL);
	SAME(xrc_domain_try(d.ctx, domain_file, 0, &x), 0);
	SAME(xrc_domain_try(d.ctx, domain_file, 0, &twice), 0);
	meet_up(fd);
	meet_up(fd); /* the other process has closed it */
	SAME(ibv_close_xrcd(twice), 0);
	meet_up(fd);
	meet_up(fd); /* the other process knows that it is still open here */
	if (arg)
		_exit(0); /* without closing it */
	SAME(ibv_close_xrcd(x), 0);
}

static void one_domain_ends(void *dies)
{
	struct ibv_xrcd *x;
	struct peer p;
	struct dev d;

	domain_file = open("/tmp", O_TMPFILE | O_RDWR, 0600);
	CHECK(domain_file >= 0);
	p = start(knows_the_domain, dies);
	dev_open(&d);
	SAME(xrc_domain_try(d.ctx, domain_file, 0, &x), EAGAIN); /* nobody has made it */
	SAME(xrc_domain_try(d.ctx, domain_file, O_CREAT | O_EXCL, &x), 0);
	meet_up(p.fd);
	meet_up(p.fd);
	SAME(ibv_close_xrcd(x), 0);
	meet_up(p.fd);
	meet_up(p.fd);
	SAME(xrc_domain_try(d.ctx, domain_file, O_CREAT | O_EXCL, &x), EINVAL);
	meet_up(p.fd);
	finish(&p);
	SAME(xrc_domain_try(d.ctx, domain_file, 0, &x), EAGAIN);
	SAME(xrc_domain_try(d.ctx, domain_file, O_CREAT | O_EXCL, &x), 0);
	SAME(ibv_close_xrcd(x), 0);
}

static void a_domain_exists_while_any_process_has_it_open(void)
{
	static int dies;

	one_domain_ends(NULL);
	one_domain_ends(&dies);
}

static const struct test tests[] = {
        {"a domain exists while any process has it open", a_domain_exists_while_any_process_has_it_open, 0},
        {"XRC has the operations of RC, and each completes at the SRQ that it names", all_operations, 0},
        {"many XRC requests at once arrive at their SRQs in order", many_at_once, 0},
        {"an XRC request waits for a receive of its own SRQ", waits_for_a_receive, 0},
        {"a wrong SRQ number is an invalid request, which all openers learn of", wrong_srqs_are_invalid_requests, 0},
        {"the SRQ that an XRC request names decides about its access to memory",
         the_srq_grants_its_protection_domain_only, 0},
};

int main(int argc, char **argv)
{
	return RUN_TESTS(argc, argv, tests);
}
