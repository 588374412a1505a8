// arguments.c - invalid numbers from a program: each call rejects them, or only that request fails, and nothing else
// changes
// follows: the ibv_* man page of each call; IBA 9.4.5 (atomics), 10.7.1 (message length), 11.4.1 (posting)
// SPDX-License-Identifier: MIT
#include <errno.h>
#include <infiniband/verbs.h>
#include <limits.h>
#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <time.h>
#include <unistd.h>

#include "../support/check.h"

#define FAILS(call, why)               \
	do {                           \
		errno = 0;             \
		CHECK(!(call));        \
		CHECK(errno == (why)); \
	} while (0)

enum {
	DEPTH = 16,
	SGES = 4,
	MEMORY = 1 << 16,
	ALL = IBV_ACCESS_LOCAL_WRITE | IBV_ACCESS_REMOTE_WRITE | IBV_ACCESS_REMOTE_READ | IBV_ACCESS_REMOTE_ATOMIC
};

static struct ibv_context *ctx;
static struct ibv_pd *pd;
static struct ibv_cq *cq;
static struct ibv_mr *mr;
static uint8_t *memory;
static union ibv_gid gid;
static uint8_t gid_index;

/* --- two connected queue pairs: one under test, and its peer --- */

static struct ibv_qp *new_qp(bool ex)
{
	struct ibv_qp_init_attr_ex init = {
	        .send_cq = cq,
	        .recv_cq = cq,
	        .qp_type = IBV_QPT_RC,
	        .sq_sig_all = 1,
	        .pd = pd,
	        .cap = {.max_send_wr = DEPTH,
	                .max_recv_wr = DEPTH,
	                .max_send_sge = SGES,
	                .max_recv_sge = SGES,
	                .max_inline_data = 64},
	        .comp_mask = IBV_QP_INIT_ATTR_PD | (ex ? IBV_QP_INIT_ATTR_SEND_OPS_FLAGS : 0),
	        .send_ops_flags = IBV_QP_EX_WITH_SEND | IBV_QP_EX_WITH_RDMA_WRITE | IBV_QP_EX_WITH_RDMA_READ,
	};
	struct ibv_qp *qp = ibv_create_qp_ex(ctx, &init);

	CHECK(qp);
	return qp;
}

static void connect_to(struct ibv_qp *qp, const struct ibv_qp *peer)
{
	struct ibv_qp_attr attr = {
	        .qp_state = IBV_QPS_INIT,
	        .port_num = 1,
	        .qp_access_flags = ALL,
	        .path_mtu = IBV_MTU_1024,
	        .dest_qp_num = peer->qp_num,
	        .max_rd_atomic = 4,
	        .max_dest_rd_atomic = 4,
	        .min_rnr_timer = 1,
	        .timeout = 14,
	        .retry_cnt = 1,
	        .rnr_retry = 1,
	        .ah_attr = {.is_global = 1,
	                    .port_num = 1,
	                    .grh = {.dgid = gid, .sgid_index = gid_index, .hop_limit = 1}},
	};

	CHECK(!ibv_modify_qp(qp, &attr, IBV_QP_STATE | IBV_QP_PKEY_INDEX | IBV_QP_PORT | IBV_QP_ACCESS_FLAGS));
	attr.qp_state = IBV_QPS_RTR;
	CHECK(!ibv_modify_qp(qp, &attr,
	                     IBV_QP_STATE | IBV_QP_AV | IBV_QP_PATH_MTU | IBV_QP_DEST_QPN | IBV_QP_RQ_PSN |
	                             IBV_QP_MAX_DEST_RD_ATOMIC | IBV_QP_MIN_RNR_TIMER));
	attr.qp_state = IBV_QPS_RTS;
	CHECK(!ibv_modify_qp(qp, &attr,
	                     IBV_QP_STATE | IBV_QP_TIMEOUT | IBV_QP_RETRY_CNT | IBV_QP_RNR_RETRY | IBV_QP_SQ_PSN |
	                             IBV_QP_MAX_QP_RD_ATOMIC));
}

/* The peer; destroy() frees it too. */
static struct ibv_qp *connected(struct ibv_qp *qp)
{
	struct ibv_qp *peer = new_qp(false);

	connect_to(qp, peer);
	connect_to(peer, qp);
	return peer;
}

static void destroy(struct ibv_qp *qp, struct ibv_qp *peer)
{
	CHECK(!ibv_destroy_qp(qp) && !ibv_destroy_qp(peer));
}

static struct ibv_wc next_completion(void)
{
	struct ibv_wc wc;
	time_t end = time(NULL) + 60;

	while (ibv_poll_cq(cq, 1, &wc) == 0)
		CHECK(time(NULL) < end);
	return wc;
}

/* The status of one request on a new queue pair, because most of these requests end it. */
static enum ibv_wc_status status_of(struct ibv_send_wr *wr)
{
	struct ibv_send_wr *bad;
	struct ibv_qp *qp = new_qp(false), *peer = connected(qp);

	CHECK(!ibv_post_send(qp, wr, &bad));
	struct ibv_wc wc = next_completion();
	CHECK(wc.qp_num == qp->qp_num);
	destroy(qp, peer);
	return wc.status;
}

static struct ibv_sge sge_at(uint64_t addr, uint32_t length)
{
	return (struct ibv_sge){.addr = addr, .length = length, .lkey = mr->lkey};
}

/* --- making objects --- */

static void queue_pairs_beyond_all_bounds(void)
{
	static const uint32_t wrs[] = {16385, 1u << 31, UINT32_MAX}, sges[] = {33, 1u << 31, UINT32_MAX},
	                      inlines[] = {1025, 1u << 31, UINT32_MAX - 6, UINT32_MAX};
	const struct ibv_qp_init_attr good = {
	        .send_cq = cq, .recv_cq = cq, .qp_type = IBV_QPT_RC, .cap = {1, 1, 1, 1, 0}};
	struct ibv_qp_init_attr a;

	for (int i = 0; i < 3; i++) {
		a = good, a.cap.max_send_wr = wrs[i];
		FAILS(ibv_create_qp(pd, &a), EINVAL);
		a = good, a.cap.max_recv_wr = wrs[i];
		FAILS(ibv_create_qp(pd, &a), EINVAL);
		a = good, a.cap.max_send_sge = sges[i];
		FAILS(ibv_create_qp(pd, &a), EINVAL);
		a = good, a.cap.max_recv_sge = sges[i];
		FAILS(ibv_create_qp(pd, &a), EINVAL);
	}
	for (int i = 0; i < 4; i++) {
		a = good, a.cap.max_inline_data = inlines[i];
		FAILS(ibv_create_qp(pd, &a), EINVAL);
	}
	for (int type = -1; type < 300; type += 7) {
		a = good, a.qp_type = (enum ibv_qp_type)type;
		if (type != IBV_QPT_RC && type != IBV_QPT_UC && type != IBV_QPT_UD)
			FAILS(ibv_create_qp(pd, &a), EOPNOTSUPP);
	}
	struct ibv_qp_init_attr_ex ex = {
	        .send_cq = cq, .recv_cq = cq, .qp_type = IBV_QPT_RC, .pd = pd, .comp_mask = UINT32_MAX};
	FAILS(ibv_create_qp_ex(ctx, &ex), EOPNOTSUPP);
	ex.comp_mask = IBV_QP_INIT_ATTR_PD | IBV_QP_INIT_ATTR_SEND_OPS_FLAGS;
	ex.send_ops_flags = UINT64_MAX;
	FAILS(ibv_create_qp_ex(ctx, &ex), EOPNOTSUPP);
}

static void queues_beyond_all_bounds(void)
{
	static const int cqes[] = {INT_MIN, -1, 0, 4194305, INT_MAX};
	struct ibv_srq_init_attr srq_attr = {.attr = {.max_wr = 8, .max_sge = 1}}, bad;
	struct ibv_srq *srq = ibv_create_srq(pd, &srq_attr);

	CHECK(srq);
	for (int i = 0; i < 5; i++) {
		FAILS(ibv_create_cq(ctx, cqes[i], NULL, NULL, 0), EINVAL);
		CHECK(ibv_resize_cq(cq, cqes[i]) == EINVAL);
	}
	FAILS(ibv_create_cq(ctx, 1, NULL, NULL, -1), EINVAL);
	FAILS(ibv_create_cq(ctx, 1, NULL, NULL, INT_MAX), EINVAL);
	struct ibv_cq_init_attr_ex ex = {.cqe = UINT32_MAX};
	FAILS(ibv_create_cq_ex(ctx, &ex), EINVAL);
	ex = (struct ibv_cq_init_attr_ex){.cqe = 1, .comp_mask = UINT32_MAX};
	FAILS(ibv_create_cq_ex(ctx, &ex), EINVAL);
	ex = (struct ibv_cq_init_attr_ex){.cqe = 1, .wc_flags = UINT64_MAX};
	FAILS(ibv_create_cq_ex(ctx, &ex), EINVAL);
	for (uint32_t n = 16385; n; n *= 2) {
		bad = (struct ibv_srq_init_attr){.attr = {.max_wr = n, .max_sge = 1}};
		FAILS(ibv_create_srq(pd, &bad), EINVAL);
		bad = (struct ibv_srq_init_attr){.attr = {.max_wr = 1, .max_sge = n}};
		FAILS(ibv_create_srq(pd, &bad), EINVAL);
		struct ibv_srq_attr change = {.max_wr = n, .srq_limit = n};
		CHECK(ibv_modify_srq(srq, &change, IBV_SRQ_MAX_WR) == EINVAL);
		CHECK(ibv_modify_srq(srq, &change, IBV_SRQ_LIMIT) == EINVAL);
		CHECK(ibv_modify_srq(srq, &change, -1) == EINVAL);
	}
	CHECK(!ibv_destroy_srq(srq));
}

static void regions_that_wrap(void)
{
	const int rw = IBV_ACCESS_LOCAL_WRITE;

	FAILS(ibv_reg_mr(pd, (void *)(UINTPTR_MAX - 4095), 8192, rw), EINVAL);
	FAILS(ibv_reg_mr(pd, memory, SIZE_MAX, rw), EINVAL);
	FAILS(ibv_reg_mr(pd, memory, SIZE_MAX - (uintptr_t)memory + 2, rw), EINVAL);
	FAILS(ibv_reg_mr(pd, memory, SIZE_MAX - (uintptr_t)memory, rw),
	      EFAULT); /* up to the last address, which is invalid */
	FAILS(ibv_reg_mr(pd, (void *)(UINTPTR_MAX - 8), 8, rw), EFAULT);
	FAILS(ibv_reg_mr(pd, NULL, 8, rw), EFAULT);
	FAILS(ibv_reg_mr(pd, memory, 8, 1 << 19), EINVAL);
	FAILS(ibv_reg_mr(pd, memory, 8, IBV_ACCESS_REMOTE_WRITE), EINVAL);
	FAILS(ibv_reg_mr_iova(pd, memory, 4096, UINT64_MAX - 4094, rw), EINVAL);
	struct ibv_mr *last = ibv_reg_mr_iova(pd, memory, 4096, UINT64_MAX - 4095, rw); /* ends at the address limit */
	CHECK(last);
	CHECK(ibv_rereg_mr(last, IBV_REREG_MR_CHANGE_TRANSLATION, NULL, memory, SIZE_MAX, 0) != 0);
	CHECK(ibv_rereg_mr(last, -1, NULL, memory, 8, -1) != 0);
	CHECK(!ibv_dereg_mr(last));
}

/* --- posting --- */

static void lists_and_counts(void)
{
	struct ibv_qp *qp = new_qp(false);
	struct ibv_sge sge = sge_at((uintptr_t)memory, 8);
	struct ibv_send_wr wr = {.opcode = IBV_WR_RDMA_WRITE,
	                         .sg_list = &sge,
	                         .num_sge = 1,
	                         .wr.rdma = {(uintptr_t)memory, mr->rkey}},
	                   *bad;
	struct ibv_recv_wr recv = {.sg_list = &sge, .num_sge = 1}, *bad_recv;

	struct ibv_qp *peer = connected(qp);
	for (unsigned i = 0; i < 4; i++) {
		static const int counts[] = {-1, INT_MIN, SGES + 1, INT_MAX};
		struct ibv_send_wr many = wr;
		struct ibv_recv_wr many_recv = recv;
		many.num_sge = many_recv.num_sge = counts[i];
		CHECK(ibv_post_send(qp, &many, &bad) == EINVAL && bad == &many);
		CHECK(ibv_post_recv(qp, &many_recv, &bad_recv) == EINVAL && bad_recv == &many_recv);
	}
	for (unsigned opcode = 9; opcode; opcode *= 3) { /* numbers up to 2^32, and some that wrap to small ones */
		struct ibv_send_wr odd = wr;
		odd.opcode = (enum ibv_wr_opcode)opcode;
		if (opcode > IBV_WR_DRIVER1 && ibv_post_send(qp, &odd, &bad) != EINVAL)
			CHECK(!"an opcode that does not exist");
		if (opcode > UINT32_MAX / 3)
			break;
	}
	recv.next = &recv; /* a circular list: as many requests as there is room for */
	CHECK(ibv_post_recv(qp, &recv, &bad_recv) == ENOMEM && bad_recv == &recv);
	wr.next = &wr;
	CHECK(ibv_post_send(qp, &wr, &bad) == ENOMEM && bad == &wr);
	for (int i = 0; i < DEPTH; i++)
		CHECK(next_completion().status == IBV_WC_SUCCESS);
	struct ibv_wc wc;
	CHECK(ibv_poll_cq(cq, -5, &wc) == 0);
	destroy(qp, peer);
}

static void lengths_that_wrap(void)
{
	struct ibv_sge sges[SGES];
	struct ibv_send_wr wr = {.opcode = IBV_WR_RDMA_WRITE,
	                         .sg_list = sges,
	                         .num_sge = SGES,
	                         .wr.rdma = {(uintptr_t)memory, mr->rkey}},
	                   *bad;
	struct ibv_qp *qp = new_qp(false);

	/* 4 times 2^30 is 2^32, which is 0 in 32 bits; nothing is copied from there */
	for (int i = 0; i < SGES; i++)
		sges[i] = sge_at((uintptr_t)memory, 1u << 30);
	CHECK(status_of(&wr) == IBV_WC_LOC_LEN_ERR);
	struct ibv_qp *peer = connected(qp);
	wr.send_flags = IBV_SEND_INLINE;
	CHECK(ibv_post_send(qp, &wr, &bad) == EINVAL);
	sges[0].length = UINT32_MAX, sges[1].length = 65, sges[2].length = sges[3].length = 0; /* 64, in 32 bits */
	CHECK(ibv_post_send(qp, &wr, &bad) == EINVAL);
	destroy(qp, peer);
	wr.send_flags = 0;
	wr.num_sge = 1;
	sges[0] = sge_at(UINT64_MAX - 7, 16); /* ends at 8 */
	CHECK(status_of(&wr) == IBV_WC_LOC_PROT_ERR);
	sges[0] = sge_at((uintptr_t)memory + MEMORY - 8, 16);
	CHECK(status_of(&wr) == IBV_WC_LOC_PROT_ERR);
	sges[0] = sge_at((uintptr_t)memory, 16);
	wr.wr.rdma.remote_addr = UINT64_MAX - 7;
	CHECK(status_of(&wr) == IBV_WC_REM_ACCESS_ERR);
	wr.wr.rdma.remote_addr = (uintptr_t)memory + MEMORY - 8;
	CHECK(status_of(&wr) == IBV_WC_REM_ACCESS_ERR);
	wr.opcode = IBV_WR_RDMA_READ;
	CHECK(status_of(&wr) == IBV_WC_REM_ACCESS_ERR);
}

/* A receive of 2^32 bytes in four parts, all at invalid addresses. */
static void receives_that_wrap(void)
{
	struct ibv_qp *qp = new_qp(false), *peer = connected(qp);
	struct ibv_sge into[SGES], from = sge_at((uintptr_t)memory, 64);
	struct ibv_recv_wr recv = {.sg_list = into, .num_sge = SGES}, *bad_recv;
	struct ibv_send_wr wr = {.opcode = IBV_WR_SEND, .sg_list = &from, .num_sge = 1}, *bad;

	for (int i = 0; i < SGES; i++)
		into[i] = sge_at(UINT64_MAX - 15, 1u << 30);
	CHECK(!ibv_post_recv(peer, &recv, &bad_recv));
	CHECK(!ibv_post_send(qp, &wr, &bad));
	for (int i = 0; i < 2; i++) {
		struct ibv_wc wc = next_completion();
		CHECK(wc.status == (wc.qp_num == qp->qp_num ? IBV_WC_REM_OP_ERR : IBV_WC_LOC_PROT_ERR));
	}
	destroy(qp, peer);
}

static void atomics_askew(void)
{
	struct ibv_sge sge = sge_at((uintptr_t)memory + 1024, 8);
	struct ibv_send_wr wr = {.opcode = IBV_WR_ATOMIC_FETCH_AND_ADD,
	                         .sg_list = &sge,
	                         .num_sge = 1,
	                         .wr.atomic = {.remote_addr = (uintptr_t)memory, .rkey = mr->rkey, .compare_add = 1}};
	uint64_t before, after;

	CHECK(status_of(&wr) == IBV_WC_SUCCESS);
	memcpy(&before, memory, 8);
	for (int skew = 1; skew < 8; skew++) {
		wr.wr.atomic.remote_addr = (uintptr_t)memory + (unsigned)skew;
		CHECK(status_of(&wr) == IBV_WC_REM_INV_REQ_ERR);
	}
	wr.wr.atomic.remote_addr = UINT64_MAX - 7;
	CHECK(status_of(&wr) == IBV_WC_REM_ACCESS_ERR);
	wr.wr.atomic.remote_addr = (uintptr_t)memory + MEMORY;
	CHECK(status_of(&wr) == IBV_WC_REM_ACCESS_ERR);
	memcpy(&after, memory, 8);
	CHECK(before == after);
	/* the old value is stored in eight bytes: no other byte changes, and fewer bytes are an error */
	memset(memory + 1024, 0x5a, 64);
	wr.wr.atomic.remote_addr = (uintptr_t)memory;
	sge.length = 64;
	status_of(&wr);
	for (int i = 8; i < 64; i++)
		CHECK(memory[1024 + i] == 0x5a);
	sge.length = 4;
	memset(memory + 1024, 0x5a, 64);
	CHECK(status_of(&wr) != IBV_WC_SUCCESS);
	for (int i = 4; i < 64; i++)
		CHECK(memory[1024 + i] == 0x5a);
}

static void the_other_way_of_posting(void)
{
	struct ibv_qp *qp = new_qp(true);
	struct ibv_qp_ex *x = ibv_qp_to_qp_ex(qp);
	struct ibv_sge sge = sge_at((uintptr_t)memory, 8);
	struct ibv_data_buf bufs[] = {{memory, 40}, {memory, SIZE_MAX - 7}};

	CHECK(x);
	struct ibv_qp *peer = connected(qp);
	ibv_wr_start(x);
	ibv_wr_set_sge(x, mr->lkey, (uintptr_t)memory, 8); /* before ibv_wr_* has started a request */
	CHECK(ibv_wr_complete(x) == EINVAL);
	ibv_wr_start(x);
	ibv_wr_rdma_write(x, mr->rkey, (uintptr_t)memory);
	ibv_wr_set_sge_list(x, SIZE_MAX, &sge);
	CHECK(ibv_wr_complete(x) == EINVAL);
	ibv_wr_start(x);
	ibv_wr_rdma_write(x, mr->rkey, (uintptr_t)memory);
	ibv_wr_set_sge_list(x, (1ull << 32) + 1, &sge);
	CHECK(ibv_wr_complete(x) == EINVAL);
	ibv_wr_start(x);
	ibv_wr_rdma_write(x, mr->rkey, (uintptr_t)memory);
	ibv_wr_set_inline_data_list(x, 2, bufs); /* together 33, in 64 bits */
	CHECK(ibv_wr_complete(x) == EINVAL);
	ibv_wr_start(x);
	ibv_wr_rdma_write(x, mr->rkey, (uintptr_t)memory);
	ibv_wr_set_inline_data(x, memory, 65);
	CHECK(ibv_wr_complete(x) == EINVAL);
	ibv_wr_start(x);
	ibv_wr_rdma_read(x, mr->rkey, (uintptr_t)memory);
	ibv_wr_set_inline_data(x, memory, 8); /* nothing is sent in a read */
	CHECK(ibv_wr_complete(x) == EINVAL);
	ibv_wr_start(x);
	for (int i = 0; i < 3 * DEPTH; i++)
		ibv_wr_rdma_write(x, mr->rkey, (uintptr_t)memory);
	CHECK(ibv_wr_complete(x) == ENOMEM);
	ibv_wr_start(x);
	ibv_wr_atomic_fetch_add(x, mr->rkey, (uintptr_t)memory, 1); /* was not requested */
	CHECK(ibv_wr_complete(x) == EOPNOTSUPP);
	ibv_wr_start(x); /* after all that the queue still works */
	ibv_wr_rdma_write(x, mr->rkey, (uintptr_t)memory);
	ibv_wr_set_sge(x, mr->lkey, (uintptr_t)memory + 8, 8);
	CHECK(!ibv_wr_complete(x));
	CHECK(next_completion().status == IBV_WC_SUCCESS);
	destroy(qp, peer);
}

/* --- changing and asking --- */

static void states_and_masks(void)
{
	struct ibv_qp *qp = new_qp(false);
	struct ibv_qp_attr attr;
	struct ibv_qp_init_attr init;

	for (int state = -3; state < 300; state++) {
		memset(&attr, 0xff, sizeof(attr));
		attr.qp_state = (enum ibv_qp_state)state;
		if (state != IBV_QPS_RESET)
			CHECK(ibv_modify_qp(qp, &attr, IBV_QP_STATE) == EINVAL);
		CHECK(ibv_modify_qp(qp, &attr, -1) == EINVAL);
	}
	struct ibv_qp *peer = connected(qp);
	for (int bit = 0; bit < 31; bit++) { /* every attribute, out of range, in RTS */
		memset(&attr, 0xff, sizeof(attr));
		int err = ibv_modify_qp(qp, &attr, 1 << bit);
		CHECK(err == EINVAL || (err == 0 && 1 << bit == IBV_QP_ACCESS_FLAGS));
	}
	CHECK(!ibv_query_qp(qp, &attr, -1, &init) && attr.qp_state == IBV_QPS_RTS && attr.max_dest_rd_atomic == 4);
	destroy(qp, peer);
}

static void questions_of_any_size(void)
{
	struct {
		union {
			struct ibv_device_attr_ex attr;
			uint8_t bytes[1024];
		};
		uint8_t guard[64];
	} out;
	struct ibv_query_device_ex_input input = {.comp_mask = 1};
	struct ibv_gid_entry entry;
	struct ibv_port_attr port;
	union ibv_gid any;
	__be16 pkey;
	struct verbs_context *v = verbs_get_ctx(ctx);

	for (size_t size = 0; size <= sizeof(out.bytes); size++) {
		memset(&out, 0xa5, sizeof(out));
		int err = v->query_device_ex(ctx, NULL, &out.attr, size);
		CHECK(size < sizeof(struct ibv_device_attr) ? err == EINVAL : err == 0);
		for (size_t i = err ? 0 : size; i < sizeof(out); i++)
			CHECK(((uint8_t *)&out)[i] == 0xa5);
	}
	CHECK(v->query_device_ex(ctx, &input, &out.attr, sizeof(out.attr)) == EINVAL);
	for (size_t size = 0; size <= 128; size++) {
		memset(&out, 0xa5, sizeof(out));
		CHECK(!v->query_port(ctx, 1, (struct ibv_port_attr *)&out, size));
		for (size_t i = size; i < sizeof(out); i++)
			CHECK(((uint8_t *)&out)[i] == 0xa5);
	}
	for (unsigned n = 2; n < 600; n += 13) {
		CHECK((uint8_t)n == 1 || ibv_query_port(ctx, (uint8_t)n, &port));
		CHECK(ibv_query_gid_ex(ctx, n, 0, &entry, 0) == EINVAL);
		CHECK(ibv_query_gid_ex(ctx, 1, n << 8, &entry, 0) == EINVAL);
		CHECK(ibv_query_gid_ex(ctx, 1, 0, &entry, n) == EINVAL);
	}
	CHECK(ibv_query_gid_ex(ctx, 1, UINT32_MAX, &entry, 0) == EINVAL);
	CHECK(ibv_query_gid(ctx, 1, -1, &any) == -1 && ibv_query_gid(ctx, 1, INT_MAX, &any) == -1 &&
	      ibv_query_gid(ctx, 1, INT_MIN, &any) == -1);
	CHECK(ibv_query_pkey(ctx, 1, -1, &pkey) == -1 && ibv_query_pkey(ctx, 1, INT_MAX, &pkey) == -1);
}

static void addresses_to_nowhere(void)
{
	struct ibv_ah_attr good = {.is_global = 1, .port_num = 1, .grh = {.dgid = gid, .sgid_index = gid_index}}, a;

	for (int port = 0; port < 256; port++) {
		a = good, a.port_num = (uint8_t)port;
		if (port != 1)
			FAILS(ibv_create_ah(pd, &a), EINVAL);
	}
	for (int index = 128; index < 256; index++) {
		a = good, a.grh.sgid_index = (uint8_t)index;
		FAILS(ibv_create_ah(pd, &a), EINVAL);
	}
	a = good, a.is_global = 0;
	FAILS(ibv_create_ah(pd, &a), EINVAL);
	a = good, memset(&a.grh.dgid, 0, sizeof(a.grh.dgid));
	FAILS(ibv_create_ah(pd, &a), EINVAL);
}

int main(void)
{
	struct ibv_device **list = ibv_get_device_list(NULL);
	struct ibv_gid_entry entries[128];

	alarm(200);
	for (int i = 0; list && list[i]; i++)
		if (!strcmp(ibv_get_device_name(list[i]), "roce_lo"))
			ctx = ibv_open_device(list[i]);
	CHECK(ctx);
	ssize_t n = ibv_query_gid_table(ctx, entries, 128, 0);
	for (ssize_t i = 0; i < n; i++)
		if (entries[i].gid.raw[10] == 0xff && entries[i].gid.raw[12] == 127) {
			gid = entries[i].gid;
			gid_index = (uint8_t)entries[i].gid_index;
		}
	CHECK(gid_index);
	memory = mmap(NULL, MEMORY + 4096, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
	CHECK(memory != MAP_FAILED && !mprotect(memory + MEMORY, 4096, PROT_NONE));
	pd = ibv_alloc_pd(ctx);
	cq = ibv_create_cq(ctx, 256, NULL, NULL, 0);
	CHECK(pd && cq);
	mr = ibv_reg_mr(pd, memory, MEMORY, ALL);
	CHECK(mr);
	RUN(queue_pairs_beyond_all_bounds);
	RUN(queues_beyond_all_bounds);
	RUN(regions_that_wrap);
	RUN(lists_and_counts);
	RUN(lengths_that_wrap);
	RUN(receives_that_wrap);
	RUN(atomics_askew);
	RUN(the_other_way_of_posting);
	RUN(states_and_masks);
	RUN(questions_of_any_size);
	RUN(addresses_to_nowhere);
	CHECK(!ibv_dereg_mr(mr) && !ibv_destroy_cq(cq) && !ibv_dealloc_pd(pd) && !ibv_close_device(ctx));
	ibv_free_device_list(list);
	return 0;
}
