// xrc_shared.c - an XRC domain in three processes: an initiator, a target, and SRQs of other processes
// follows: IBA volume 1, annex A14 (XRC); ibv_open_xrcd(3), ibv_create_srq_ex(3), ibv_open_qp(3)
// SPDX-License-Identifier: MIT
#include "xrc_ends.h"

#include <fcntl.h>
#include <signal.h>

/* What a process with an SRQ tells the others. */
struct owner_addr {
	struct xrc_srq srq;
	uint32_t qpn, pad; /* of the target's process */
	union ibv_gid gid;
};

/* A process of the domain: it has an SRQ, and maybe the target. */
struct owner {
	struct dev d;
	struct ibv_xrcd *xrcd;
	struct ibv_qp *qp;
	struct xrc_taker t;
	struct owner_addr me;
};

struct initiator {
	struct xrc_initiator i;
	struct owner_addr to[2]; /* the target's process, the other one */
	struct peer p[2];
};

static int domain_file, rnr_retry = 7, retry_cnt = 7;

static void owner_open(struct owner *o)
{
	unsetenv("VERBENA_WIRE"); /* "always" is for the initiator: the processes of a domain need shared memory */
	dev_open(&o->d);
	o->xrcd = xrc_domain(o->d.ctx, domain_file);
	xrc_taker_open(&o->t, &o->d, o->xrcd, &o->me.srq);
	o->me.gid = o->d.gid;
}

static void owner_close(struct owner *o)
{
	if (o->qp)
		SAME(ibv_destroy_qp(o->qp), 0);
	xrc_taker_close(&o->t);
	SAME(ibv_close_xrcd(o->xrcd), 0);
	dev_close(&o->d);
}

static void initiator_open(struct initiator *i, peer_fn *target, peer_fn *other, void *arg)
{
	const struct ibv_qp_attr retries = {
	        .timeout = 18, .retry_cnt = (uint8_t)retry_cnt, .rnr_retry = (uint8_t)rnr_retry};

	domain_file = open("/tmp", O_TMPFILE | O_RDWR, 0600);
	CHECK(domain_file >= 0);
	i->p[0] = start(target, arg);
	i->p[1] = start(other, arg);
	xrc_initiator_open(&i->i);
	for (int n = 0; n < 2; n++)
		hear(i->p[n].fd, &i->to[n], sizeof(i->to[n]));
	uint32_t numbers[2] = {i->i.qp->qp_num, i->to[0].qpn};
	for (int n = 0; n < 2; n++)
		tell(i->p[n].fd, numbers, sizeof(numbers));
	xrc_initiator_connect(&i->i, &i->to[0].gid, i->to[0].qpn, &retries);
	meet_up(i->p[0].fd);
	meet_up(i->p[1].fd);
}

/* Tells the initiator about this process, and hears from it about the connection. */
static void exchange(struct owner *o, int fd)
{
	uint32_t numbers[2];

	tell(fd, &o->me, sizeof(o->me));
	hear(fd, numbers, sizeof(numbers));
	o->t.initiator = numbers[0];
	o->t.target = numbers[1];
}

static void target_open(struct owner *o, int fd)
{
	*o = (struct owner){0};
	owner_open(o);
	o->qp = xrc_target_make(o->d.ctx, o->xrcd);
	o->me.qpn = o->qp->qp_num;
	exchange(o, fd);
	xrc_target_connect(o->qp, &o->d, o->t.initiator);
	meet_up(fd);
}

static void other_open(struct owner *o, int fd)
{
	*o = (struct owner){0};
	owner_open(o);
	exchange(o, fd);
	meet_up(fd);
}

#define REQUEST(t, len, n, ...) XRC_REQUEST(&(t)->i, len, &(t)->to[n].srq, __VA_ARGS__)
#define REMOTE(t, n) XRC_REMOTE(&(t)->to[n].srq)

/* The target's process ends last. */
static void end_all(struct initiator *i)
{
	finish(&i->p[1]);
	meet_up(i->p[0].fd);
	finish(&i->p[0]);
	xrc_initiator_close(&i->i);
}

/* --- all operations --- */

static void targets_process(int fd, void *arg)
{
	struct owner o;

	target_open(&o, fd);
	meet_up(fd);
	owner_close(&o);
}

static void takes_all(int fd, void *arg)
{
	struct owner o;

	other_open(&o, fd);
	xrc_take_all(fd, &o.t, 1);
	owner_close(&o);
}

static void all_operations(void)
{
	struct initiator i;

	initiator_open(&i, targets_process, takes_all, NULL);
	xrc_request_all(&i.i, i.p[1].fd, &i.to[1].srq, 1);
	end_all(&i);
}

/* --- many at once, in turns to the SRQs of both processes --- */

#define MANY 100

static void take_many(struct owner *o, int fd, bool odd)
{
	for (unsigned k = odd; k < MANY; k += 2)
		xrc_post_receive(&o->t, k);
	meet_up(fd);
	for (unsigned k = odd; k < MANY; k += 2)
		xrc_arrived(&o->t, k, k * 100);
	meet_up(fd);
	owner_close(o);
}

static void target_takes_many(int fd, void *arg)
{
	struct owner o;

	target_open(&o, fd);
	take_many(&o, fd, false);
}

static void other_takes_many(int fd, void *arg)
{
	struct owner o;

	other_open(&o, fd);
	take_many(&o, fd, true);
}

static void many_at_once(void)
{
	struct initiator i;

	initiator_open(&i, target_takes_many, other_takes_many, NULL);
	meet_up(i.p[0].fd);
	meet_up(i.p[1].fd);
	for (unsigned k = 0; k < MANY; k++)
		REQUEST(&i, k * 100, k % 2, .opcode = IBV_WR_SEND);
	for (unsigned k = 1; k <= MANY; k++)
		expect(i.i.cq, k, IBV_WC_SUCCESS);
	meet_up(i.p[1].fd);
	end_all(&i);
}

/* --- no receive --- */

static void is_late(int fd, void *arg)
{
	struct owner o;

	other_open(&o, fd);
	meet_up(fd);
	sleep_ms(20);
	xrc_post_receive(&o.t, 1);
	xrc_arrived(&o.t, 1, 10);
	xrc_post_receive(&o.t, 2);
	xrc_arrived(&o.t, 2, 5000);
	meet_up(fd);
	owner_close(&o);
}

static void waits_for_a_receive(void)
{
	struct initiator i;

	initiator_open(&i, targets_process, is_late, NULL);
	meet_up(i.p[1].fd);
	uint64_t first = REQUEST(&i, 10, 1, .opcode = IBV_WR_SEND);
	uint64_t second = REQUEST(&i, 5000, 1, .opcode = IBV_WR_RDMA_WRITE_WITH_IMM, REMOTE(&i, 1));
	expect(i.i.cq, first, IBV_WC_SUCCESS);
	expect(i.i.cq, second, IBV_WC_SUCCESS);
	meet_up(i.p[1].fd);
	end_all(&i);
}

static void never_receives(int fd, void *arg)
{
	struct owner o;

	other_open(&o, fd);
	meet_up(fd);
	expect_none(o.t.cq, 5);
	owner_close(&o);
}

static void gives_up_without_a_receive(void)
{
	struct initiator i;

	rnr_retry = 1;
	initiator_open(&i, targets_process, never_receives, NULL);
	expect(i.i.cq, REQUEST(&i, 10, 1, .opcode = IBV_WR_SEND), IBV_WC_RNR_RETRY_EXC_ERR);
	meet_up(i.p[1].fd);
	end_all(&i);
}

/* --- errors --- */

static void target_fails(int fd, void *arg)
{
	struct owner o;

	target_open(&o, fd);
	meet_up(fd);
	int event = next_event(&o.d, PATIENCE);

	if (event == IBV_EVENT_COMM_EST)
		event = next_event(&o.d, PATIENCE);
	SAME(event, *(int *)arg);
	SAME(state_of(o.qp), IBV_QPS_ERR);
	meet_up(fd);
	owner_close(&o);
}

static void is_not_touched(int fd, void *arg)
{
	struct owner o;

	other_open(&o, fd);
	fill(o.t.m.p, XRC_SIZE, 9);
	meet_up(fd);
	meet_up(fd);
	CHECK(holds(o.t.m.p, XRC_SIZE, 9));
	expect_none(o.t.cq, 1);
	owner_close(&o);
}

static void one_wrong(int event, enum ibv_wc_status status, uint64_t (*post_wrong)(struct initiator *i))
{
	struct initiator i;

	initiator_open(&i, target_fails, is_not_touched, &event);
	meet_up(i.p[1].fd);
	expect(i.i.cq, post_wrong(&i), status);
	SAME(state_of(i.i.qp), IBV_QPS_ERR);
	meet_up(i.p[0].fd);
	meet_up(i.p[1].fd);
	end_all(&i);
}

static uint64_t send_to_unknown_srq(struct initiator *i)
{
	i->to[1].srq.number ^= 1;
	return REQUEST(i, 10, 1, .opcode = IBV_WR_SEND);
}

static uint64_t write_with_wrong_key(struct initiator *i)
{
	i->to[1].srq.far.rkey ^= 1;
	return REQUEST(i, 10, 1, .opcode = IBV_WR_RDMA_WRITE, REMOTE(i, 1));
}

static uint64_t read_with_wrong_key(struct initiator *i)
{
	i->to[1].srq.far.rkey ^= 1;
	return REQUEST(i, 10, 1, .opcode = IBV_WR_RDMA_READ, REMOTE(i, 1));
}

static uint64_t add_with_wrong_key(struct initiator *i)
{
	return REQUEST(
	        i, 8, 1, .opcode = IBV_WR_ATOMIC_FETCH_AND_ADD,
	        .wr.atomic = {.remote_addr = i->to[1].srq.far.addr, .rkey = i->to[0].srq.far.rkey, .compare_add = 2});
}

static void unknown_srq(void)
{
	one_wrong(IBV_EVENT_QP_REQ_ERR, IBV_WC_REM_INV_REQ_ERR, send_to_unknown_srq);
}

static void wrong_key_of_a_write(void)
{
	one_wrong(IBV_EVENT_QP_ACCESS_ERR, IBV_WC_REM_ACCESS_ERR, write_with_wrong_key);
}

static void wrong_key_of_a_read(void)
{
	one_wrong(IBV_EVENT_QP_ACCESS_ERR, IBV_WC_REM_ACCESS_ERR, read_with_wrong_key);
}

static void wrong_key_of_an_atomic(void)
{
	one_wrong(IBV_EVENT_QP_ACCESS_ERR, IBV_WC_REM_ACCESS_ERR, add_with_wrong_key);
}

/* --- the end of a process --- */

static void dies(int fd, void *arg)
{
	struct owner o;

	other_open(&o, fd);
	for (unsigned k = 0; k < 50; k++)
		xrc_post_receive(&o.t, k);
	meet_up(fd);
	for (unsigned k = 0; k < 20; k++)
		expect(o.t.cq, k, IBV_WC_SUCCESS);
	raise(SIGKILL);
}

static void an_srqs_process_dies(void)
{
	struct initiator i;
	int event = IBV_EVENT_QP_REQ_ERR;
	struct ibv_wc wc;

	initiator_open(&i, target_fails, dies, &event);
	meet_up(i.p[1].fd);
	do {
		REQUEST(&i, 3000, 1, .opcode = IBV_WR_SEND);
		wc = wait_wc(i.i.cq);
	} while (wc.status == IBV_WC_SUCCESS && i.i.id < 1000);
	SAME(wc.status, IBV_WC_REM_INV_REQ_ERR);
	meet_up(i.p[0].fd);
	meet_up(i.p[0].fd);
	finish(&i.p[0]);
	xrc_initiator_close(&i.i);
}

/* While a process has a guest, it keeps descriptors of the target's process. */
static void outlives_the_target(int fd, void *arg)
{
	struct owner o;

	other_open(&o, fd);
	for (unsigned k = 0; k < 200; k++)
		xrc_post_receive(&o.t, k);
	meet_up(fd);
	meet_up(fd); /* the guest has executed a request */
	unsigned before = open_descriptors();
	meet_up(fd);
	meet_up(fd); /* the target's process has ended */
	for (uint64_t until = now_ms() + PATIENCE / 2; open_descriptors() >= before && now_ms() < until;)
		sleep_ms(5);
	CHECK(open_descriptors() < before);
	owner_close(&o);
}

static void the_target_dies(void)
{
	struct initiator i;

	retry_cnt = 1;
	initiator_open(&i, targets_process, outlives_the_target, NULL);
	meet_up(i.p[1].fd);
	expect(i.i.cq, REQUEST(&i, 3000, 1, .opcode = IBV_WR_SEND), IBV_WC_SUCCESS);
	meet_up(i.p[1].fd);
	meet_up(i.p[1].fd);
	uint64_t id = REQUEST(&i, XRC_SIZE, 1, .opcode = IBV_WR_SEND);
	kill_peer(&i.p[0]);
	struct ibv_wc wc = wait_wc(i.i.cq);
	CHECK(wc.wr_id == id && (wc.status == IBV_WC_SUCCESS || wc.status == IBV_WC_RETRY_EXC_ERR));
	meet_up(i.p[1].fd);
	finish(&i.p[1]);
	xrc_initiator_close(&i.i);
}

static const struct test tests[] = {
        {"an SRQ of another process than the target's takes all operations of XRC", all_operations, 0},
        {"many requests in turns to the SRQs of two processes arrive in order", many_at_once, 0},
        {"a request waits for a receive in another process", waits_for_a_receive, 0},
        {"a request that finds no receive in another process fails after its retries", gives_up_without_a_receive, 0},
        {"an unknown SRQ of another process is an invalid request", unknown_srq, 0},
        {"the SRQ's process refuses a WRITE with a wrong key", wrong_key_of_a_write, 0},
        {"the SRQ's process refuses a READ with a wrong key", wrong_key_of_a_read, 0},
        {"the SRQ's process refuses an atomic with a wrong key", wrong_key_of_an_atomic, 0},
        {"requests to an SRQ whose process has died are invalid", an_srqs_process_dies, 0},
        {"the SRQ's process outlives the target's, and its guest ends", the_target_dies, 0},
};

int main(int argc, char **argv)
{
	return RUN_TESTS(argc, argv, tests);
}
