// xrc_shared.c - an XRC domain in three processes: an initiator, a target, and SRQs of other processes
// follows: IBA volume 1, annex A14 (XRC); ibv_open_xrcd(3), ibv_create_srq_ex(3), ibv_open_qp(3)
// SPDX-License-Identifier: MIT
#include "pair.h"

#include <fcntl.h>
#include <signal.h>

#define SIZE (1u << 20)
#define PSN 0xfffff0u /* wraps around */

/* What a process with an SRQ tells the others. */
struct owner_addr {
	uint32_t srqn, qpn; /* qpn: of the target's process */
	union ibv_gid gid;
	struct far far;
};

/* A process of the domain: it has an SRQ, and maybe the target. */
struct owner {
	struct dev d;
	struct ibv_xrcd *xrcd;
	struct ibv_cq *cq;
	struct ibv_srq *srq;
	struct ibv_qp *qp;
	struct mem m;
	struct owner_addr me;
	uint32_t initiator, target;
};

struct initiator {
	struct dev d;
	struct ibv_cq *cq;
	struct ibv_qp *qp;
	struct mem m;
	struct owner_addr to[2]; /* the target's process, the other one */
	struct peer p[2];
	uint64_t id;
};

static int domain_file, rnr_retry = 7, retry_cnt = 7;

static void owner_open(struct owner *o)
{
	unsetenv("VERBENA_WIRE"); /* "always" is for the initiator: the processes of a domain need shared memory */
	dev_open(&o->d);
	struct ibv_xrcd_init_attr xa = {
	        .comp_mask = IBV_XRCD_INIT_ATTR_FD | IBV_XRCD_INIT_ATTR_OFLAGS, .fd = domain_file, .oflags = O_CREAT};
	CHECK((o->xrcd = ibv_open_xrcd(o->d.ctx, &xa)));
	CHECK((o->cq = ibv_create_cq(o->d.ctx, 512, NULL, NULL, 0)));
	struct ibv_srq_init_attr_ex a = {.attr = {256, 2, 0},
	                                 .comp_mask = IBV_SRQ_INIT_ATTR_TYPE | IBV_SRQ_INIT_ATTR_PD |
	                                              IBV_SRQ_INIT_ATTR_XRCD | IBV_SRQ_INIT_ATTR_CQ,
	                                 .srq_type = IBV_SRQT_XRC,
	                                 .pd = o->d.pd,
	                                 .xrcd = o->xrcd,
	                                 .cq = o->cq};
	CHECK((o->srq = ibv_create_srq_ex(o->d.ctx, &a)) && !ibv_get_srq_num(o->srq, &o->me.srqn));
	mem_make(&o->m, &o->d, SIZE);
	o->me.far = (struct far){(uintptr_t)o->m.p, o->m.mr->rkey, 0};
	o->me.gid = o->d.gid;
}

static void owner_close(struct owner *o)
{
	if (o->qp)
		SAME(ibv_destroy_qp(o->qp), 0);
	SAME(ibv_destroy_srq(o->srq), 0);
	SAME(ibv_close_xrcd(o->xrcd), 0);
	SAME(ibv_destroy_cq(o->cq), 0);
	mem_end(&o->m);
	dev_close(&o->d);
}

static struct ibv_qp_attr way_to(const struct dev *d, const union ibv_gid *gid, uint32_t qpn)
{
	return (struct ibv_qp_attr){
	        .qp_state = IBV_QPS_RTR,
	        .path_mtu = IBV_MTU_1024,
	        .dest_qp_num = qpn,
	        .rq_psn = PSN,
	        .max_dest_rd_atomic = 16,
	        .min_rnr_timer = 1,
	        .ah_attr = {.is_global = 1,
	                    .port_num = 1,
	                    .grh = {.dgid = *gid, .sgid_index = (uint8_t)d->gid_index, .hop_limit = 64}}};
}

static void initialise(struct ibv_qp *qp, unsigned access)
{
	struct ibv_qp_attr a = {.qp_state = IBV_QPS_INIT, .port_num = 1, .qp_access_flags = access};

	SAME(ibv_modify_qp(qp, &a, IBV_QP_STATE | IBV_QP_PKEY_INDEX | IBV_QP_PORT | IBV_QP_ACCESS_FLAGS), 0);
}

#define TO_RTR (IBV_QP_STATE | IBV_QP_AV | IBV_QP_PATH_MTU | IBV_QP_DEST_QPN | IBV_QP_RQ_PSN)

static void target_make(struct owner *o, int fd)
{
	struct ibv_qp_init_attr_ex a = {
	        .qp_type = IBV_QPT_XRC_RECV, .comp_mask = IBV_QP_INIT_ATTR_XRCD, .xrcd = o->xrcd};

	CHECK((o->qp = ibv_create_qp_ex(o->d.ctx, &a)));
	o->me.qpn = o->qp->qp_num;
	initialise(o->qp, IBV_ACCESS_REMOTE_WRITE | IBV_ACCESS_REMOTE_READ | IBV_ACCESS_REMOTE_ATOMIC);
	tell(fd, &o->me, sizeof(o->me));
	hear(fd, &o->initiator, sizeof(o->initiator));
	struct ibv_qp_attr q = way_to(&o->d, &o->d.gid, o->initiator);
	SAME(ibv_modify_qp(o->qp, &q, TO_RTR | IBV_QP_MAX_DEST_RD_ATOMIC | IBV_QP_MIN_RNR_TIMER), 0);
	o->target = o->qp->qp_num;
}

static void initiator_open(struct initiator *i, peer_fn *target, peer_fn *other, void *arg)
{
	struct ibv_qp_init_attr a = {.qp_type = IBV_QPT_XRC_SEND, .cap = {.max_send_wr = 128, .max_send_sge = 1}};

	domain_file = open("/tmp", O_TMPFILE | O_RDWR, 0600);
	CHECK(domain_file >= 0);
	i->p[0] = start(target, arg);
	i->p[1] = start(other, arg);
	i->id = 0;
	dev_open(&i->d);
	mem_make(&i->m, &i->d, SIZE);
	CHECK((i->cq = ibv_create_cq(i->d.ctx, 512, NULL, NULL, 0)));
	a.send_cq = i->cq;
	CHECK((i->qp = ibv_create_qp(i->d.pd, &a)));
	initialise(i->qp, 0);
	for (int n = 0; n < 2; n++)
		hear(i->p[n].fd, &i->to[n], sizeof(i->to[n]));
	uint32_t numbers[2] = {i->qp->qp_num, i->to[0].qpn};
	tell(i->p[0].fd, numbers, 4);
	tell(i->p[1].fd, numbers, 8);
	struct ibv_qp_attr q = way_to(&i->d, &i->to[0].gid, i->to[0].qpn);
	SAME(ibv_modify_qp(i->qp, &q, TO_RTR), 0);
	q = (struct ibv_qp_attr){.qp_state = IBV_QPS_RTS,
	                         .sq_psn = PSN,
	                         .timeout = 18,
	                         .retry_cnt = (uint8_t)retry_cnt,
	                         .rnr_retry = (uint8_t)rnr_retry,
	                         .max_rd_atomic = 16};
	SAME(ibv_modify_qp(i->qp, &q,
	                   IBV_QP_STATE | IBV_QP_SQ_PSN | IBV_QP_TIMEOUT | IBV_QP_RETRY_CNT | IBV_QP_RNR_RETRY |
	                           IBV_QP_MAX_QP_RD_ATOMIC),
	     0);
	meet_up(i->p[0].fd);
	meet_up(i->p[1].fd);
}

static void target_open(struct owner *o, int fd)
{
	*o = (struct owner){0};
	owner_open(o);
	target_make(o, fd);
	meet_up(fd);
}

static void other_open(struct owner *o, int fd)
{
	uint32_t numbers[2];

	*o = (struct owner){0};
	owner_open(o);
	tell(fd, &o->me, sizeof(o->me));
	hear(fd, numbers, sizeof(numbers));
	o->initiator = numbers[0];
	o->target = numbers[1];
	meet_up(fd);
}

static void initiator_close(struct initiator *i)
{
	SAME(ibv_destroy_qp(i->qp), 0);
	SAME(ibv_destroy_cq(i->cq), 0);
	mem_end(&i->m);
	dev_close(&i->d);
}

static uint64_t request(struct initiator *i, uint32_t len, struct ibv_send_wr *wr)
{
	struct ibv_sge sge = {(uintptr_t)i->m.p, len, i->m.mr->lkey};
	struct ibv_send_wr *bad;

	wr->wr_id = ++i->id;
	wr->sg_list = &sge;
	wr->num_sge = len ? 1 : 0;
	wr->send_flags |= IBV_SEND_SIGNALED;
	SAME(ibv_post_send(i->qp, wr, &bad), 0);
	return wr->wr_id;
}

#define REQUEST(i, len, n, ...) \
	request(i, len, &(struct ibv_send_wr){.qp_type.xrc.remote_srqn = (i)->to[n].srqn, __VA_ARGS__})
#define REMOTE(i, n) .wr.rdma = {(i)->to[n].far.addr, (i)->to[n].far.rkey}

static void post_to_srq(struct owner *o, uint64_t id)
{
	struct ibv_sge sge = {(uintptr_t)o->m.p, SIZE, o->m.mr->lkey};
	struct ibv_recv_wr wr = {.wr_id = id, .sg_list = &sge, .num_sge = 1}, *bad;

	SAME(ibv_post_srq_recv(o->srq, &wr, &bad), 0);
}

static struct ibv_wc arrived(struct owner *o, uint64_t id, uint32_t len)
{
	struct ibv_wc wc = expect(o->cq, id, IBV_WC_SUCCESS);

	SAME(wc.qp_num, o->target); /* also where the target is another process's */
	SAME(wc.src_qp, o->initiator);
	SAME(wc.byte_len, len);
	return wc;
}

/* --- all operations --- */

static const uint32_t lengths[] = {0, 1, 100, 1024, 1025, 5000, 20000, 300000, SIZE};
#define LENGTHS (sizeof(lengths) / sizeof(*lengths))

static void take_all(struct owner *o, int fd)
{
	struct ibv_wc wc;

	for (unsigned k = 0; k < LENGTHS; k++) {
		post_to_srq(o, k);
		post_to_srq(o, 100 + k);
		meet_up(fd); /* a SEND, a SEND with immediate */
		wc = arrived(o, k, lengths[k]);
		CHECK(wc.opcode == IBV_WC_RECV && !(wc.wc_flags & IBV_WC_WITH_IMM));
		wc = arrived(o, 100 + k, lengths[k]);
		CHECK(wc.wc_flags & IBV_WC_WITH_IMM && wc.imm_data == 0x01020304 && holds(o->m.p, lengths[k], k));
		memset(o->m.p, 0, SIZE);
		meet_up(fd); /* a WRITE, a READ of it */
		meet_up(fd);
		CHECK(holds(o->m.p, lengths[k], k + 50));
		post_to_srq(o, 200 + k);
		meet_up(fd); /* a WRITE with immediate */
		wc = arrived(o, 200 + k, lengths[k]);
		CHECK(wc.opcode == IBV_WC_RECV_RDMA_WITH_IMM && wc.imm_data == 0x05060708);
		CHECK(holds(o->m.p, lengths[k], k + 70));
	}
	*(uint64_t *)(void *)o->m.p = 40;
	meet_up(fd); /* atomics */
	meet_up(fd);
	SAME(*(uint64_t *)(void *)o->m.p, 99);
	post_to_srq(o, 300);
	struct ibv_mr *mr = ibv_reg_mr(o->d.pd, o->m.p, 4096, ALL_ACCESS);
	CHECK(mr);
	tell(fd, &mr->rkey, sizeof(mr->rkey)); /* a SEND with invalidate */
	wc = arrived(o, 300, 8);
	CHECK(wc.wc_flags & IBV_WC_WITH_INV && wc.invalidated_rkey == mr->rkey);
	meet_up(fd);
	SAME(ibv_dereg_mr(mr), 0);
}

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
	take_all(&o, fd);
	owner_close(&o);
}

static void all_operations(void)
{
	struct initiator i;
	uint32_t key;

	initiator_open(&i, targets_process, takes_all, NULL);
	int fd = i.p[1].fd;
	for (unsigned k = 0; k < LENGTHS; k++) {
		uint32_t len = lengths[k];

		fill(i.m.p, SIZE, k);
		meet_up(fd);
		expect(i.cq, REQUEST(&i, len, 1, .opcode = IBV_WR_SEND), IBV_WC_SUCCESS);
		expect(i.cq, REQUEST(&i, len, 1, .opcode = IBV_WR_SEND_WITH_IMM, .imm_data = 0x01020304),
		       IBV_WC_SUCCESS);
		meet_up(fd);
		fill(i.m.p, SIZE, k + 50);
		expect(i.cq, REQUEST(&i, len, 1, .opcode = IBV_WR_RDMA_WRITE, REMOTE(&i, 1)), IBV_WC_SUCCESS);
		memset(i.m.p, 0, SIZE);
		expect(i.cq, REQUEST(&i, len, 1, .opcode = IBV_WR_RDMA_READ, REMOTE(&i, 1)), IBV_WC_SUCCESS);
		CHECK(holds(i.m.p, len, k + 50));
		meet_up(fd);
		fill(i.m.p, SIZE, k + 70);
		meet_up(fd);
		expect(i.cq,
		       REQUEST(&i, len, 1, .opcode = IBV_WR_RDMA_WRITE_WITH_IMM, .imm_data = 0x05060708, REMOTE(&i, 1)),
		       IBV_WC_SUCCESS);
	}
	meet_up(fd);
	expect(i.cq,
	       REQUEST(&i, 8, 1, .opcode = IBV_WR_ATOMIC_FETCH_AND_ADD,
	               .wr.atomic = {.remote_addr = i.to[1].far.addr, .rkey = i.to[1].far.rkey, .compare_add = 2}),
	       IBV_WC_SUCCESS);
	SAME(*(uint64_t *)(void *)i.m.p, 40);
	expect(i.cq,
	       REQUEST(&i, 8, 1, .opcode = IBV_WR_ATOMIC_CMP_AND_SWP,
	               .wr.atomic = {.remote_addr = i.to[1].far.addr,
	                             .rkey = i.to[1].far.rkey,
	                             .compare_add = 42,
	                             .swap = 99}),
	       IBV_WC_SUCCESS);
	SAME(*(uint64_t *)(void *)i.m.p, 42);
	meet_up(fd);
	hear(fd, &key, sizeof(key));
	expect(i.cq, REQUEST(&i, 8, 1, .opcode = IBV_WR_SEND_WITH_INV, .invalidate_rkey = key), IBV_WC_SUCCESS);
	meet_up(fd);
	finish(&i.p[1]);
	meet_up(i.p[0].fd);
	finish(&i.p[0]);
	initiator_close(&i);
}

/* --- many at once, in turns to the SRQs of both processes --- */

#define MANY 100

static void take_many(struct owner *o, int fd, bool odd)
{
	for (unsigned k = odd; k < MANY; k += 2)
		post_to_srq(o, k);
	meet_up(fd);
	for (unsigned k = odd; k < MANY; k += 2)
		arrived(o, k, k * 100);
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
		expect(i.cq, k, IBV_WC_SUCCESS);
	meet_up(i.p[1].fd);
	finish(&i.p[1]);
	meet_up(i.p[0].fd);
	finish(&i.p[0]);
	initiator_close(&i);
}

/* --- no receive --- */

static void is_late(int fd, void *arg)
{
	struct owner o;

	other_open(&o, fd);
	meet_up(fd);
	sleep_ms(20);
	post_to_srq(&o, 1);
	arrived(&o, 1, 10);
	post_to_srq(&o, 2);
	arrived(&o, 2, 5000);
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
	expect(i.cq, first, IBV_WC_SUCCESS);
	expect(i.cq, second, IBV_WC_SUCCESS);
	meet_up(i.p[1].fd);
	finish(&i.p[1]);
	meet_up(i.p[0].fd);
	finish(&i.p[0]);
	initiator_close(&i);
}

static void never_receives(int fd, void *arg)
{
	struct owner o;

	other_open(&o, fd);
	meet_up(fd);
	expect_none(o.cq, 5);
	owner_close(&o);
}

static void gives_up_without_a_receive(void)
{
	struct initiator i;

	rnr_retry = 1;
	initiator_open(&i, targets_process, never_receives, NULL);
	expect(i.cq, REQUEST(&i, 10, 1, .opcode = IBV_WR_SEND), IBV_WC_RNR_RETRY_EXC_ERR);
	meet_up(i.p[1].fd);
	finish(&i.p[1]);
	meet_up(i.p[0].fd);
	finish(&i.p[0]);
	initiator_close(&i);
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
	fill(o.m.p, SIZE, 9);
	meet_up(fd);
	meet_up(fd);
	CHECK(holds(o.m.p, SIZE, 9));
	expect_none(o.cq, 1);
	owner_close(&o);
}

static void one_wrong(int event, enum ibv_wc_status status, uint64_t (*post_wrong)(struct initiator *i))
{
	struct initiator i;

	initiator_open(&i, target_fails, is_not_touched, &event);
	meet_up(i.p[1].fd);
	expect(i.cq, post_wrong(&i), status);
	SAME(state_of(i.qp), IBV_QPS_ERR);
	meet_up(i.p[0].fd);
	meet_up(i.p[1].fd);
	finish(&i.p[1]);
	meet_up(i.p[0].fd);
	finish(&i.p[0]);
	initiator_close(&i);
}

static uint64_t send_to_unknown_srq(struct initiator *i)
{
	i->to[1].srqn ^= 1;
	return REQUEST(i, 10, 1, .opcode = IBV_WR_SEND);
}

static uint64_t write_with_wrong_key(struct initiator *i)
{
	i->to[1].far.rkey ^= 1;
	return REQUEST(i, 10, 1, .opcode = IBV_WR_RDMA_WRITE, REMOTE(i, 1));
}

static uint64_t read_with_wrong_key(struct initiator *i)
{
	i->to[1].far.rkey ^= 1;
	return REQUEST(i, 10, 1, .opcode = IBV_WR_RDMA_READ, REMOTE(i, 1));
}

static uint64_t add_with_wrong_key(struct initiator *i)
{
	return REQUEST(i, 8, 1, .opcode = IBV_WR_ATOMIC_FETCH_AND_ADD,
	               .wr.atomic = {.remote_addr = i->to[1].far.addr, .rkey = i->to[0].far.rkey, .compare_add = 2});
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
		post_to_srq(&o, k);
	meet_up(fd);
	for (unsigned k = 0; k < 20; k++)
		expect(o.cq, k, IBV_WC_SUCCESS);
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
		wc = wait_wc(i.cq);
	} while (wc.status == IBV_WC_SUCCESS && i.id < 1000);
	SAME(wc.status, IBV_WC_REM_INV_REQ_ERR);
	meet_up(i.p[0].fd);
	meet_up(i.p[0].fd);
	finish(&i.p[0]);
	initiator_close(&i);
}

static void outlives_the_target(int fd, void *arg)
{
	struct owner o;

	other_open(&o, fd);
	for (unsigned k = 0; k < 200; k++)
		post_to_srq(&o, k);
	meet_up(fd);
	meet_up(fd);
	owner_close(&o);
}

static void the_target_dies(void)
{
	struct initiator i;

	retry_cnt = 1;
	initiator_open(&i, targets_process, outlives_the_target, NULL);
	meet_up(i.p[1].fd);
	expect(i.cq, REQUEST(&i, 3000, 1, .opcode = IBV_WR_SEND), IBV_WC_SUCCESS);
	uint64_t id = REQUEST(&i, SIZE, 1, .opcode = IBV_WR_SEND);
	kill_peer(&i.p[0]);
	struct ibv_wc wc = wait_wc(i.cq);
	CHECK(wc.wr_id == id && (wc.status == IBV_WC_SUCCESS || wc.status == IBV_WC_RETRY_EXC_ERR));
	meet_up(i.p[1].fd);
	finish(&i.p[1]);
	initiator_close(&i);
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
        {"the SRQ's process outlives the target's", the_target_dies, 0},
};

int main(int argc, char **argv)
{
	return RUN_TESTS(argc, argv, tests);
}
