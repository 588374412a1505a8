// xrc_test.c - XRC domains, XRC SRQs by number, target queue pairs and their handles
// follows: IBA volume 1, annex A14 (XRC); ibv_open_xrcd(3), ibv_create_srq_ex(3), ibv_open_qp(3)
// SPDX-License-Identifier: MIT
#include <fcntl.h>
#include <sys/mman.h>
#include <unistd.h>

#include "core/inbound.h"
#include "core/rq.h"
#include "core/xrc.h"
#include "frame/fields.h"
#include "harness.h"

static struct objects o;

static struct ibv_xrcd *open_domain(struct ibv_context *ctx, int fd, int oflags)
{
	struct ibv_xrcd_init_attr a = {
	        .comp_mask = IBV_XRCD_INIT_ATTR_FD | IBV_XRCD_INIT_ATTR_OFLAGS, .fd = fd, .oflags = oflags};

	return vb_open_xrcd(ctx, &a);
}

static struct ibv_srq *make_xrc_srq(struct ibv_xrcd *x)
{
	struct ibv_srq_init_attr_ex a = {.attr = {8, 1, 0},
	                                 .comp_mask = IBV_SRQ_INIT_ATTR_TYPE | IBV_SRQ_INIT_ATTR_PD |
	                                              IBV_SRQ_INIT_ATTR_XRCD | IBV_SRQ_INIT_ATTR_CQ,
	                                 .srq_type = IBV_SRQT_XRC,
	                                 .pd = o.pd,
	                                 .xrcd = x,
	                                 .cq = o.cq};

	return vb_create_srq_ex(o.ctx, &a);
}

static struct ibv_qp *make_target_of(struct ibv_context *ctx, struct ibv_xrcd *x, void *qp_context)
{
	struct ibv_qp_init_attr_ex a = {
	        .qp_type = IBV_QPT_XRC_RECV, .qp_context = qp_context, .comp_mask = IBV_QP_INIT_ATTR_XRCD, .xrcd = x};

	return vb_create_qp_ex(ctx, &a);
}

static struct ibv_qp *make_initiator(uint64_t send_ops)
{
	struct ibv_qp_init_attr_ex a = {.qp_type = IBV_QPT_XRC_SEND,
	                                .cap = {4, 4, 1, 1, 0},
	                                .send_cq = o.cq,
	                                .comp_mask =
	                                        IBV_QP_INIT_ATTR_PD | (send_ops ? IBV_QP_INIT_ATTR_SEND_OPS_FLAGS : 0),
	                                .send_ops_flags = send_ops,
	                                .pd = o.pd};
	struct ibv_qp *qp = vb_create_qp_ex(o.ctx, &a);

	if (qp)
		CHECK(a.cap.max_recv_wr == 0 && a.cap.max_send_wr == 4);
	return qp;
}

static struct ibv_qp *open_target(struct ibv_context *ctx, struct ibv_xrcd *x, uint32_t qpn)
{
	struct ibv_qp_open_attr a = {.comp_mask = IBV_QP_OPEN_ATTR_NUM | IBV_QP_OPEN_ATTR_XRCD |
	                                          IBV_QP_OPEN_ATTR_CONTEXT | IBV_QP_OPEN_ATTR_TYPE,
	                             .qp_num = qpn,
	                             .xrcd = x,
	                             .qp_context = &a,
	                             .qp_type = IBV_QPT_XRC_RECV};

	return vb_open_qp(ctx, &a);
}

static void a_domain_is_that_of_its_file(void)
{
	int fd = memfd_create("domain", MFD_CLOEXEC), same = dup(fd), other = memfd_create("other", MFD_CLOEXEC);

	CHECK(!open_domain(o.ctx, fd, 0) && errno == EAGAIN); /* nobody has made it */
	struct ibv_xrcd *a = open_domain(o.ctx, fd, O_CREAT | O_EXCL);
	CHECK(a && a->context == o.ctx);
	CHECK(!open_domain(o.ctx, same, O_CREAT | O_EXCL) && errno == EINVAL);
	struct ibv_xrcd *b = open_domain(o.ctx, same, 0), *c = open_domain(o.ctx, other, O_CREAT);
	CHECK(b && c && vb_xrcd(a)->domain == vb_xrcd(b)->domain && vb_xrcd(a)->domain != vb_xrcd(c)->domain);
	CHECK(!close(fd) && !close(same));
	CHECK(!vb_close_xrcd(a) && !vb_close_xrcd(b) && !vb_close_xrcd(c) && !close(other));
}

static int opened_twice;
static struct ibv_xrcd *meanwhile;

/* As another thread does that opens the same file. */
static void open_meanwhile(void)
{
	fake.on_xrc_file = NULL;
	CHECK(!pthread_mutex_trylock(&fake_node.ctx_lock)); /* nobody waits for it while other processes are asked */
	CHECK(!pthread_mutex_unlock(&fake_node.ctx_lock));
	meanwhile = open_domain(o.ctx, opened_twice, O_CREAT);
	CHECK(meanwhile);
}

static void two_threads_that_open_one_file_get_one_domain(void)
{
	opened_twice = memfd_create("domain", MFD_CLOEXEC);
	fake.on_xrc_file = open_meanwhile;
	struct ibv_xrcd *a = open_domain(o.ctx, opened_twice, O_CREAT);
	CHECK(a && a != meanwhile && vb_xrcd(a)->domain == vb_xrcd(meanwhile)->domain);
	CHECK(!vb_close_xrcd(a) && !vb_close_xrcd(meanwhile));
	fake.on_xrc_file = open_meanwhile;
	CHECK(!open_domain(o.ctx, opened_twice, O_CREAT | O_EXCL) &&
	      errno == EINVAL); /* the other thread has made it */
	CHECK(!vb_close_xrcd(meanwhile) && !close(opened_twice));
}

static void a_domain_without_a_file_is_of_its_own(void)
{
	struct ibv_xrcd *a = open_domain(o.ctx, -1, O_CREAT), *b = open_domain(o.ctx, -1, O_CREAT);

	CHECK(a && b && vb_xrcd(a)->domain != vb_xrcd(b)->domain);
	CHECK(!vb_close_xrcd(a) && !vb_close_xrcd(b));
}

static void wrong_attributes_open_no_domain(void)
{
	struct ibv_xrcd_init_attr a = {.comp_mask = IBV_XRCD_INIT_ATTR_FD, .fd = -1, .oflags = O_CREAT};

	CHECK(!vb_open_xrcd(o.ctx, &a) && errno == EINVAL);
	CHECK(!open_domain(o.ctx, 1000000, O_CREAT) && errno == EBADF);
	CHECK(!open_domain(o.ctx, -2, O_CREAT) && errno == EINVAL);
	fake_device.iwarp = true;
	CHECK(!open_domain(o.ctx, -1, O_CREAT) && errno == EOPNOTSUPP);
	fake_device.iwarp = false;
}

static void an_xrc_srq_has_a_number_and_holds_its_parts(void)
{
	struct ibv_xrcd *x = open_domain(o.ctx, -1, O_CREAT);
	struct ibv_srq *a = make_xrc_srq(x), *b = make_xrc_srq(x);
	struct ibv_srq_init_attr basic = {.attr = {8, 1, 0}};
	struct ibv_srq *c = vb_create_srq(o.pd, &basic);
	uint32_t n, m;

	CHECK(a && b && c);
	CHECK(!vb_get_srq_num(a, &n) && !vb_get_srq_num(b, &m) && n != m && n <= VB_QPN_MASK && VB_QP_LANE(n) == 7);
	CHECK(vb_get_srq_num(c, &n) == EOPNOTSUPP);
	CHECK(vb_close_xrcd(x) == EBUSY && vb_destroy_cq(o.cq) == EBUSY);
	struct ibv_qp_init_attr qa = {
	        .send_cq = o.cq, .recv_cq = o.cq, .srq = a, .cap = {1, 0, 1, 0, 0}, .qp_type = IBV_QPT_RC};
	CHECK(!vb_create_qp(o.pd, &qa) && errno == EINVAL); /* a queue pair cannot have an XRC SRQ */
	CHECK(!vb_destroy_srq(a) && !vb_destroy_srq(b) && !vb_destroy_srq(c) && !vb_close_xrcd(x));
}

static void a_target_has_a_domain_and_nothing_else(void)
{
	struct ibv_xrcd *x = open_domain(o.ctx, -1, O_CREAT);
	struct ibv_qp_init_attr_ex a = {.qp_type = IBV_QPT_XRC_RECV, .comp_mask = IBV_QP_INIT_ATTR_PD, .pd = o.pd};
	struct ibv_recv_wr wr = {.num_sge = 0}, *bad = NULL;
	struct ibv_send_wr swr = {.opcode = IBV_WR_SEND}, *sbad = NULL;

	CHECK(!vb_create_qp_ex(o.ctx, &a) && errno == EINVAL);
	struct ibv_qp *qp = make_target_of(o.ctx, x, &x);
	CHECK(qp && qp->qp_context == &x && !qp->pd && !qp->send_cq && !qp->recv_cq && !qp->srq);
	CHECK(qp->qp_type == IBV_QPT_XRC_RECV && VB_QP_LANE(qp->qp_num) == 7);
	CHECK(vb_close_xrcd(x) == EBUSY);
	CHECK(vb_post_recv(qp, &wr, &bad) && bad == &wr && vb_post_send(qp, &swr, &sbad) == EINVAL && sbad == &swr);
	CHECK(!vb_destroy_qp(qp) && !vb_close_xrcd(x));
}

static void to_init(struct ibv_qp *qp)
{
	struct ibv_qp_attr a = {.qp_state = IBV_QPS_INIT, .port_num = 1};

	CHECK(!vb_modify_qp(qp, &a, IBV_QP_STATE | IBV_QP_PKEY_INDEX | IBV_QP_PORT | IBV_QP_ACCESS_FLAGS));
}

static void a_target_lives_until_its_last_handle_is_closed(void)
{
	struct ibv_context *second = vb_open_device(&fake_device.dev);
	int fd = memfd_create("domain", MFD_CLOEXEC);
	struct ibv_xrcd *x = open_domain(o.ctx, fd, O_CREAT), *y = open_domain(second, fd, 0);
	struct ibv_qp *a = make_target_of(o.ctx, x, NULL);
	uint32_t qpn = a->qp_num;

	CHECK(!open_target(second, x, qpn) && errno == EINVAL); /* a domain of another context */
	CHECK(!open_target(second, y, qpn ^ 1) && errno == EINVAL);
	CHECK(!open_target(second, y, qpn ^ 1 << VB_LANE_SHIFT) && errno == EINVAL); /* another process's */
	CHECK(!open_target(second, y, o.qp->qp_num) && errno == EINVAL);
	struct ibv_xrcd *z = open_domain(second, -1, O_CREAT);
	CHECK(!open_target(second, z, qpn) && errno == EINVAL && !vb_close_xrcd(z));
	struct ibv_qp *b = open_target(second, y, qpn);
	CHECK(b && b != a && b->qp_num == qpn && b->context == second && b->qp_context);
	to_init(b);
	CHECK(a->state == IBV_QPS_INIT && b->state == IBV_QPS_INIT);
	CHECK(!vb_destroy_qp(a) && !vb_close_xrcd(x) && atomic_load(&fake_node.qps[VB_QP_INDEX(qpn)]));
	struct ibv_qp_attr attr;
	struct ibv_qp_init_attr init;
	CHECK(!vb_query_qp(b, &attr, IBV_QP_STATE, &init) && attr.qp_state == IBV_QPS_INIT);
	CHECK(init.qp_context == b->qp_context && init.qp_type == IBV_QPT_XRC_RECV);
	CHECK(vb_close_xrcd(y) == EBUSY && !vb_destroy_qp(b) && !vb_close_xrcd(y));
	CHECK(!atomic_load(&fake_node.qps[VB_QP_INDEX(qpn)]) && fake.quiesced_qpn == qpn);
	CHECK(!vb_close_device(second) && !close(fd));
}

static void events_of_a_target_go_to_all_openers(void)
{
	struct ibv_context *second = vb_open_device(&fake_device.dev);
	int fd = memfd_create("domain", MFD_CLOEXEC);
	struct ibv_xrcd *x = open_domain(o.ctx, fd, O_CREAT), *y = open_domain(second, fd, O_CREAT);
	struct ibv_qp *a = make_target_of(o.ctx, x, NULL), *b = open_target(second, y, a->qp_num);
	struct vb_qp *qp = vb_qp_real(vb_qp(a));
	struct ibv_async_event ev;

	CHECK(!fcntl(second->async_fd, F_SETFL, O_NONBLOCK) && qp == vb_qp_real(vb_qp(b)));
	vb_async_raise(vb_ctx(o.ctx), IBV_EVENT_QP_FATAL, &qp->qp);
	CHECK(!vb_get_async_event(o.ctx, &ev) && ev.element.qp == a);
	vb_ack_async_event(&ev);
	CHECK(!vb_get_async_event(second, &ev) && ev.element.qp == b);
	vb_ack_async_event(&ev);
	vb_async_raise(vb_ctx(o.ctx), IBV_EVENT_QP_FATAL, &qp->qp);
	CHECK(!vb_destroy_qp(b)); /* with an event that nobody has taken */
	CHECK(vb_get_async_event(second, &ev) == -1 && errno == EAGAIN);
	CHECK(!vb_get_async_event(o.ctx, &ev));
	vb_ack_async_event(&ev);
	CHECK(!vb_destroy_qp(a) && !vb_close_xrcd(x) && !vb_close_xrcd(y) && !vb_close_device(second) && !close(fd));
}

static unsigned told;

static void tell_it(struct vb_qp *handle, enum ibv_event_type type)
{
	told += type == IBV_EVENT_QP_FATAL && handle->qp.qp_context == &told;
}

static void another_process_has_a_handle_as_programs_have(void)
{
	int fd = memfd_create("domain", MFD_CLOEXEC);
	struct ibv_xrcd *x = open_domain(o.ctx, fd, O_CREAT);
	struct ibv_qp *a = make_target_of(o.ctx, x, NULL);
	struct vb_qp *qp = vb_qp_real(vb_qp(a)), *h;
	uint32_t qpn = a->qp_num;
	struct vb_xrc_id id, wrong;

	CHECK(vb_xrc_id_of(vb_xrcd(x)->domain, &id));
	wrong = id;
	wrong.st_ino ^= 1;
	CHECK(vb_xrc_handle_for(&fake_node, &wrong, qpn, tell_it, &told, &h) == EINVAL && !h);
	CHECK(vb_xrc_handle_for(&fake_node, &id, qpn ^ 1, tell_it, &told, &h) == EINVAL && !h);
	CHECK(vb_xrc_handle_for(&fake_node, &id, o.qp->qp_num, tell_it, &told, &h) == EINVAL && !h);
	CHECK(!vb_xrc_handle_for(&fake_node, &id, qpn, tell_it, &told, &h) && vb_qp_real(h) == qp);
	to_init(&h->qp);
	CHECK(a->state == IBV_QPS_INIT);
	CHECK(!vb_destroy_qp(a) && !vb_close_xrcd(x)); /* the other process keeps the target and its domain */
	CHECK(atomic_load(&fake_node.qps[VB_QP_INDEX(qpn)]) == qp && !told);
	vb_async_raise(vb_ctx(o.ctx), IBV_EVENT_QP_FATAL, &qp->qp);
	CHECK(told == 1);
	struct vb_qp *second;
	CHECK(!vb_xrc_handle_for(&fake_node, &id, qpn, tell_it, NULL, &second) && second->qp.state == IBV_QPS_INIT);
	x = open_domain(o.ctx, fd, 0);
	CHECK(x && qp->xrc.domain == vb_xrcd(x)->domain); /* it is still the same */
	vb_xrc_handle_close(h);
	CHECK(atomic_load(&fake_node.qps[VB_QP_INDEX(qpn)]) == qp);
	vb_xrc_handle_close(second);
	CHECK(!atomic_load(&fake_node.qps[VB_QP_INDEX(qpn)]));
	CHECK(!vb_close_xrcd(x) && !close(fd));
}

static void post_one(struct ibv_srq *srq, uint64_t id)
{
	struct ibv_recv_wr wr = {.wr_id = id}, *bad;

	CHECK(!vb_post_srq_recv(srq, &wr, &bad));
}

static void a_request_uses_the_srq_that_it_names(void)
{
	struct ibv_xrcd *x = open_domain(o.ctx, -1, O_CREAT), *other = open_domain(o.ctx, -1, O_CREAT);
	struct ibv_srq *a = make_xrc_srq(x), *b = make_xrc_srq(x), *c = make_xrc_srq(other);
	struct ibv_qp *handle = make_target_of(o.ctx, x, NULL);
	struct vb_qp *qp = vb_qp_real(vb_qp(handle));
	uint32_t na, nb, nc;

	CHECK(!vb_get_srq_num(a, &na) && !vb_get_srq_num(b, &nb) && !vb_get_srq_num(c, &nc));
	post_one(a, 1);
	post_one(b, 2);
	vb_lock(&fake_node.progress);
	CHECK(!vb_xrc_select(qp, nc) && !vb_xrc_select(qp, 0) && !vb_xrc_select(qp, na ^ 1 << VB_LANE_SHIFT));
	CHECK(vb_xrc_select(qp, na) && qp->srq == vb_srq(a) && qp->pd == vb_pd(o.pd) && qp->rcq == vb_cq(o.cq));
	CHECK(vb_receive_take(qp) && qp->inbound->wqe.wr_id == 1);
	CHECK(!vb_xrc_select(qp, nb)); /* in the middle of a message */
	CHECK(vb_xrc_select_answer(qp, nb) && qp->srq == vb_srq(a));
	vb_rq_give_back(&qp->srq->rq);
	qp->inbound->active = false;
	CHECK(vb_xrc_select(qp, nb) && vb_receive_take(qp) && qp->inbound->wqe.wr_id == 2);
	vb_unlock(&fake_node.progress);
	CHECK(!vb_destroy_qp(handle) && !vb_destroy_srq(a) && !vb_destroy_srq(b) && !vb_destroy_srq(c));
	CHECK(!vb_close_xrcd(x) && !vb_close_xrcd(other));
}

static void an_srq_that_is_destroyed_leaves_nothing_behind(void)
{
	struct ibv_xrcd *x = open_domain(o.ctx, -1, O_CREAT);
	struct ibv_srq *a = make_xrc_srq(x), *b = make_xrc_srq(x);
	struct ibv_qp *handle = make_target_of(o.ctx, x, NULL);
	struct vb_qp *qp = vb_qp_real(vb_qp(handle));
	struct vb_cqe of_a = {.wc = {.wr_id = 1, .opcode = IBV_WC_RECV}, .receive = &vb_srq(a)->rq};
	struct vb_cqe of_b = {.wc = {.wr_id = 2, .opcode = IBV_WC_RECV}, .receive = &vb_srq(b)->rq};
	struct ibv_async_event ev;
	struct ibv_wc wc;
	uint32_t n;

	to_init(handle);
	CHECK(!vb_get_srq_num(a, &n));
	post_one(a, 3);
	vb_cq_push(vb_cq(o.cq), &of_a, false);
	vb_cq_push(vb_cq(o.cq), &of_b, false);
	vb_lock(&fake_node.progress);
	CHECK(vb_xrc_select(qp, n) && vb_receive_take(qp)); /* a message begins */
	vb_unlock(&fake_node.progress);
	CHECK(!vb_destroy_srq(a) && handle->state == IBV_QPS_ERR && !qp->srq);
	CHECK(!vb_get_async_event(o.ctx, &ev) && ev.event_type == IBV_EVENT_QP_REQ_ERR && ev.element.qp == handle);
	vb_ack_async_event(&ev);
	CHECK(vb_poll_cq(o.cq, 1, &wc) == 1 && wc.wr_id == 2 && vb_poll_cq(o.cq, 1, &wc) == 0);
	vb_lock(&fake_node.progress);
	CHECK(!vb_xrc_select(qp, n));
	vb_unlock(&fake_node.progress);
	CHECK(!vb_destroy_qp(handle) && !vb_destroy_srq(b) && !vb_close_xrcd(x));
}

static void an_initiator_notes_the_srq_of_each_request(void)
{
	struct ibv_qp *qp = make_initiator(IBV_QP_EX_WITH_SEND | IBV_QP_EX_WITH_LOCAL_INV);
	struct ibv_send_wr wr = {.opcode = IBV_WR_SEND, .qp_type.xrc.remote_srqn = 0xff123456}, *bad;
	struct ibv_qp_attr a = {
	        .qp_state = IBV_QPS_RTR, .path_mtu = IBV_MTU_256, .ah_attr = {.is_global = 1, .port_num = 1}};
	struct ibv_recv_wr rwr = {.num_sge = 0}, *rbad;

	CHECK(qp && !qp->srq);
	to_init(qp);
	CHECK(vb_post_recv(qp, &rwr, &rbad));
	a.dest_qp_num = 5;
	a.ah_attr.grh.dgid = (union ibv_gid){.raw = {0xfe, 0x80, [15] = 9}};
	CHECK(!vb_modify_qp(qp, &a, IBV_QP_STATE | IBV_QP_AV | IBV_QP_PATH_MTU | IBV_QP_DEST_QPN | IBV_QP_RQ_PSN));
	a.qp_state = IBV_QPS_RTS;
	CHECK(!vb_modify_qp(qp, &a,
	                    IBV_QP_STATE | IBV_QP_SQ_PSN | IBV_QP_TIMEOUT | IBV_QP_RETRY_CNT | IBV_QP_RNR_RETRY |
	                            IBV_QP_MAX_QP_RD_ATOMIC));
	CHECK(!vb_post_send(qp, &wr, &bad) && vb_qp(qp)->xrc.srqns[0] == 0x123456);
	struct ibv_qp_ex *x = vb_qp_to_qp_ex(qp);
	ibv_wr_start(x);
	ibv_wr_send(x);
	CHECK(ibv_wr_complete(x) == EINVAL); /* it names no SRQ */
	ibv_wr_start(x);
	ibv_wr_local_inv(x, 5);
	ibv_wr_send(x);
	ibv_wr_set_xrc_srqn(x, 7);
	CHECK(!ibv_wr_complete(x) && vb_qp(qp)->xrc.srqns[2] == 7);
	CHECK(!vb_destroy_qp(qp));
}

int main(void)
{
	o = open_objects(IBV_QPT_RC);
	int nodes = fake.nodes;

	CHECK(!fcntl(o.ctx->async_fd, F_SETFL, O_NONBLOCK));
	RUN(a_domain_is_that_of_its_file);
	RUN(two_threads_that_open_one_file_get_one_domain);
	RUN(a_domain_without_a_file_is_of_its_own);
	RUN(wrong_attributes_open_no_domain);
	RUN(an_xrc_srq_has_a_number_and_holds_its_parts);
	RUN(a_target_has_a_domain_and_nothing_else);
	RUN(a_target_lives_until_its_last_handle_is_closed);
	RUN(events_of_a_target_go_to_all_openers);
	RUN(another_process_has_a_handle_as_programs_have);
	RUN(a_request_uses_the_srq_that_it_names);
	RUN(an_srq_that_is_destroyed_leaves_nothing_behind);
	RUN(an_initiator_notes_the_srq_of_each_request);
	fake.nodes = nodes;
	close_objects(&o);
	vb_xrc_free(&fake_node);
	return 0;
}
