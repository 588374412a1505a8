// xrc_stress.c - threads of three processes make, share, open, use and destroy the objects of one XRC domain at random
// follows: IBA volume 1, annex A14 (XRC); ibv_open_xrcd(3), ibv_open_qp(3), ibv_create_srq_ex(3)
// SPDX-License-Identifier: MIT
#include "xrc_ends.h"

#include <fcntl.h>
#include <pthread.h>
#include <stdatomic.h>
#include <sys/mman.h>

#define PROCESSES 2u
#define KINDS 3u /* threads of each process */
#define PLACES 8u

/* What all processes see: numbers of objects that may have been destroyed since. */
static struct {
	atomic_uint targets[PLACES], srqs[PLACES];
	atomic_bool stop;
} * seen;
static int domain_file;

struct worker {
	struct dev d;
	uint64_t random;
	unsigned place, rounds;
	pthread_t thread;
};

static void pause_a_moment(struct worker *w)
{
	usleep(random_next(&w->random) % 500);
}

static bool goes_on(struct worker *w)
{
	w->rounds++;
	return !atomic_load(&seen->stop);
}

/* --- threads --- */

static void *make_targets(void *arg)
{
	struct worker *w = arg;

	while (goes_on(w)) {
		struct ibv_xrcd *x = xrc_domain(w->d.ctx, domain_file);
		struct ibv_qp *qp = xrc_target_make(w->d.ctx, x);

		atomic_store(&seen->targets[w->place], qp->qp_num);
		pause_a_moment(w);
		if (random_next(&w->random) & 1) {
			xrc_target_connect(qp, &w->d, 0x123456);
			SAME(state_of(qp), IBV_QPS_RTR);
		}
		SAME(ibv_destroy_qp(qp), 0);
		SAME(ibv_close_xrcd(x), 0);
	}
	return NULL;
}

/* Opens what any process has made. What has ended meanwhile is refused. */
static void *open_targets(void *arg)
{
	struct worker *w = arg;

	while (goes_on(w)) {
		struct ibv_xrcd *x = xrc_domain(w->d.ctx, domain_file);
		struct ibv_qp_open_attr a = {.comp_mask = IBV_QP_OPEN_ATTR_NUM | IBV_QP_OPEN_ATTR_XRCD |
		                                          IBV_QP_OPEN_ATTR_TYPE,
		                             .qp_num = atomic_load(&seen->targets[random_next(&w->random) % PLACES]),
		                             .xrcd = x,
		                             .qp_type = IBV_QPT_XRC_RECV};
		struct ibv_qp *qp = ibv_open_qp(w->d.ctx, &a);

		if (!qp)
			SAME(errno, EINVAL);
		pause_a_moment(w);
		if (qp) {
			enum ibv_qp_state s = state_of(qp);

			CHECK(s == IBV_QPS_RESET || s == IBV_QPS_INIT || s == IBV_QPS_RTR);
			SAME(ibv_destroy_qp(qp), 0);
		}
		SAME(ibv_close_xrcd(x), 0);
	}
	return NULL;
}

static void *make_srqs(void *arg)
{
	struct worker *w = arg;
	struct xrc_srq srq;
	struct xrc_taker t;

	while (goes_on(w)) {
		struct ibv_xrcd *x = xrc_domain(w->d.ctx, domain_file);
		struct ibv_wc wc;

		xrc_taker_open(&t, &w->d, x, &srq);
		for (unsigned i = 0; i < 20; i++)
			xrc_post_receive(&t, i);
		atomic_store(&seen->srqs[w->place], srq.number);
		for (unsigned i = 0; i < 4; i++) {
			pause_a_moment(w);
			while (ibv_poll_cq(t.cq, 1, &wc) > 0)
				CHECK(wc.status == IBV_WC_SUCCESS ? wc.byte_len < 20000 : wc.wr_id < 20);
		}
		xrc_taker_close(&t);
		SAME(ibv_close_xrcd(x), 0);
	}
	return NULL;
}

/* --- processes --- */

static void works(int fd, void *arg)
{
	static void *(*const kinds[KINDS])(void *) = {make_targets, open_targets, make_srqs};
	struct worker w[KINDS] = {0};
	unsigned me = *(unsigned *)arg;

	unsetenv("VERBENA_WIRE");
	for (unsigned i = 0; i < KINDS; i++) {
		dev_open(&w[i].d);
		w[i].random = me * 10 + i + 1;
		w[i].place = me;
		CHECK(!pthread_create(&w[i].thread, NULL, kinds[i], &w[i]));
	}
	for (unsigned i = 0; i < KINDS; i++) {
		CHECK(!pthread_join(w[i].thread, NULL));
		CHECK(w[i].rounds > 2);
	}
	meet_up(fd);
	meet_up(fd); /* now no process has a handle of another one's target */
	for (unsigned i = 0; i < KINDS; i++)
		dev_close(&w[i].d);
}

/* A target that stays; the initiator's process has its handle, and connects it anew after each error. */
static void keeps_a_target(int fd, void *arg)
{
	struct {
		uint32_t qpn, pad;
		union ibv_gid gid;
	} me = {0};
	struct dev d;

	unsetenv("VERBENA_WIRE");
	dev_open(&d);
	struct ibv_xrcd *x = xrc_domain(d.ctx, domain_file);
	struct ibv_qp *qp = xrc_target_make(d.ctx, x);
	me.qpn = qp->qp_num;
	me.gid = d.gid;
	tell(fd, &me, sizeof(me));
	meet_up(fd);
	while (!atomic_load(&seen->stop)) /* it polls nothing, so its progress thread passes requests on */
		sleep_ms(5);
	meet_up(fd);
	SAME(ibv_destroy_qp(qp), 0);
	SAME(ibv_close_xrcd(x), 0);
	dev_close(&d);
}

static void connect_anew(struct xrc_initiator *i, struct ibv_qp *target, uint32_t qpn, const union ibv_gid *gid)
{
	const struct ibv_qp_attr retries = {.timeout = 14, .retry_cnt = 3, .rnr_retry = 3};
	struct ibv_qp_attr a = {.qp_state = IBV_QPS_RESET};

	SAME(ibv_modify_qp(target, &a, IBV_QP_STATE), 0);
	SAME(ibv_modify_qp(i->qp, &a, IBV_QP_STATE), 0);
	a = (struct ibv_qp_attr){.qp_state = IBV_QPS_INIT, .port_num = 1};
	SAME(ibv_modify_qp(target, &a, IBV_QP_STATE | IBV_QP_PKEY_INDEX | IBV_QP_PORT | IBV_QP_ACCESS_FLAGS), 0);
	SAME(ibv_modify_qp(i->qp, &a, IBV_QP_STATE | IBV_QP_PKEY_INDEX | IBV_QP_PORT | IBV_QP_ACCESS_FLAGS), 0);
	xrc_target_connect(target, &i->d, i->qp->qp_num);
	xrc_initiator_connect(i, gid, qpn, &retries);
}

/* Sends to SRQs that may have ended. Returns how many messages have arrived. */
static unsigned send_to_any(struct xrc_initiator *i, uint64_t *random)
{
	unsigned arrived = 0;

	for (unsigned k = 0; k < 20; k++) {
		struct xrc_srq to = {.number = atomic_load(&seen->srqs[random_next(random) % PROCESSES])};
		uint64_t id = XRC_REQUEST(i, random_next(random) % 20000, &to, .opcode = IBV_WR_SEND);
		struct ibv_wc wc = wait_wc(i->cq);

		SAME(wc.wr_id, id);
		if (wc.status != IBV_WC_SUCCESS) {
			CHECK(wc.status == IBV_WC_REM_INV_REQ_ERR || wc.status == IBV_WC_RNR_RETRY_EXC_ERR ||
			      wc.status == IBV_WC_RETRY_EXC_ERR || wc.status == IBV_WC_REM_OP_ERR);
			break;
		}
		arrived++;
	}
	return arrived;
}

static void all_at_once(void)
{
	struct peer p[PROCESSES], keeper;
	unsigned number[PROCESSES], arrived = 0;
	struct xrc_initiator i;
	uint64_t random = 1;
	struct {
		uint32_t qpn, pad;
		union ibv_gid gid;
	} to;

	seen = mmap(NULL, 4096, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
	domain_file = open("/tmp", O_TMPFILE | O_RDWR, 0600);
	CHECK(seen != MAP_FAILED && domain_file >= 0);
	keeper = start(keeps_a_target, NULL);
	for (unsigned k = 0; k < PROCESSES; k++) {
		number[k] = k;
		p[k] = start(works, &number[k]);
	}
	hear(keeper.fd, &to, sizeof(to));
	xrc_initiator_open(&i);
	struct ibv_xrcd *x = xrc_domain(i.d.ctx, domain_file);
	struct ibv_qp_open_attr a = {.comp_mask = IBV_QP_OPEN_ATTR_NUM | IBV_QP_OPEN_ATTR_XRCD | IBV_QP_OPEN_ATTR_TYPE,
	                             .qp_num = to.qpn,
	                             .xrcd = x,
	                             .qp_type = IBV_QPT_XRC_RECV};
	struct ibv_qp *target = ibv_open_qp(i.d.ctx, &a);
	CHECK(target);
	meet_up(keeper.fd);
	for (uint64_t until = now_ms() + count_or(3000), least = now_ms() + PATIENCE;
	     now_ms() < until || (!arrived && now_ms() < least);) {
		connect_anew(&i, target, to.qpn, &to.gid);
		arrived += send_to_any(&i, &random);
	}
	atomic_store(&seen->stop, true);
	CHECK(arrived);
	SAME(ibv_destroy_qp(target), 0);
	SAME(ibv_close_xrcd(x), 0);
	for (unsigned k = 0; k < PROCESSES; k++)
		meet_up(p[k].fd);
	for (unsigned k = 0; k < PROCESSES; k++) {
		meet_up(p[k].fd);
		finish(&p[k]);
	}
	meet_up(keeper.fd);
	finish(&keeper);
	xrc_initiator_close(&i);
}

static const struct test tests[] = {
        {"threads of several processes make, open, use and destroy what is in one XRC domain", all_at_once, 0},
};

int main(int argc, char **argv)
{
	return RUN_TESTS(argc, argv, tests);
}
