// conn_test.c - connections: established, rejected, repeated, given up, ended
// follows: IBA volume 1, 12.6.7, 12.9, 12.10
// SPDX-License-Identifier: MIT
#include "fixture.h"

/* The timeout of a REQ: 4.096 us * (2^10 + 2^8); of b's REP for a: (2^11 + 2^8). */
#define REQ_WAIT (vb_cm_time(10) + vb_cm_time(8))
#define REP_WAIT (vb_cm_time(11) + vb_cm_time(8))

static struct vb_cm_conn *ca, *cb;

static void connect_a(void)
{
	struct vb_cm_req req = a_req();

	start();
	ca = vb_cm_connect(&a.cm, &a_to_b, &req, &a, now);
	CHECK(ca && ca->own == &a && ca->state == VB_CM_REQ_SENT);
}

static void receive_req(void)
{
	connect_a();
	deliver(VB_CM_REQ);
	cb = expect(&b, VB_CM_REQ_RECEIVED)->conn;
}

static void accept_b(void)
{
	struct vb_cm_rep rep = b_rep();

	CHECK(vb_cm_accept(&b.cm, cb, &rep, now) && cb->state == VB_CM_REP_SENT);
}

/* All entries of the end are free, and so are the resources of its connections. */
static void check_empty(struct end *e)
{
	CHECK(e->cm.used == 0 && e->cm.heap_len == 0 && vb_cm_deadline(&e->cm) == 0);
	for (int i = 0; i < PLACES; i++)
		CHECK(e->conns[i].place.id_head == VB_CM_NONE && e->conns[i].place.qp_head == VB_CM_NONE);
}

static void end_all(void)
{
	for (int turn = 0; turn < 1000 && (a.cm.heap_len || b.cm.heap_len); turn++) {
		uint64_t da = vb_cm_deadline(&a.cm), db = vb_cm_deadline(&b.cm);

		wait_for(!db || (da && da < db) ? &a : &b);
		mails = 0;
	}
	for (int i = 0; i < PLACES; i++) {
		if (a.conns[i].used && !a.conns[i].orphan)
			vb_cm_destroy(&a.cm, &a.conns[i], now);
		if (b.conns[i].used && !b.conns[i].orphan)
			vb_cm_destroy(&b.cm, &b.conns[i], now);
	}
	for (int turn = 0; turn < 1000 && (a.cm.heap_len || b.cm.heap_len); turn++)
		wait_for(a.cm.heap_len ? &a : &b);
	check_empty(&a);
	check_empty(&b);
}

static void three_messages_make_a_connection_and_bring_private_data(void)
{
	struct told *t;

	connect_a();
	struct vb_cm_msg req = deliver(VB_CM_REQ);

	t = expect(&b, VB_CM_REQ_RECEIVED);
	cb = t->conn;
	CHECK(!strcmp((char *)t->msg.req.private_data, "from a") && t->msg.req.local_qpn == QPN_A);
	CHECK(req.req.local_comm_id == ca->local_comm_id && vb_cm_lane_of(ca->local_comm_id) == LANE_A);
	CHECK(!cb->active && cb->remote_qpn == QPN_A && cb->service_id == req.req.service_id && cb->addr.ifindex == 3);
	accept_b();
	struct vb_cm_msg rep = deliver(VB_CM_REP);

	t = expect(&a, VB_CM_REP_RECEIVED);
	CHECK(t->conn == ca && !strcmp((char *)t->msg.rep.private_data, "from b") && ca->remote_qpn == QPN_B);
	CHECK(rep.tid == req.tid && rep.rep.remote_comm_id == ca->local_comm_id &&
	      vb_cm_lane_of(rep.rep.local_comm_id) == LANE_B);
	CHECK(vb_cm_rtu(&a.cm, ca, "ready", 5, now));
	struct vb_cm_msg rtu = deliver(VB_CM_RTU);

	t = expect(&b, VB_CM_RTU_RECEIVED);
	CHECK(rtu.tid == req.tid && !memcmp(t->msg.rtu.private_data, "ready", 6));
	CHECK(ca->state == VB_CM_ESTABLISHED && cb->state == VB_CM_ESTABLISHED);
	CHECK(!vb_cm_deadline(&a.cm) && !vb_cm_deadline(&b.cm));
	CHECK(vb_cm_find(&a.cm, ca->local_comm_id) == ca && !vb_cm_find(&a.cm, ca->local_comm_id ^ 1 << 20));
	nothing_more();
	end_all();
}

static void calls_in_another_state_are_refused(void)
{
	struct vb_cm_rep rep = b_rep();
	struct vb_cm_sidr_rep sidr = {0};

	connect_a();
	CHECK(!vb_cm_accept(&a.cm, ca, &rep, now) && !vb_cm_rtu(&a.cm, ca, NULL, 0, now) &&
	      !vb_cm_establish(&a.cm, ca, now));
	CHECK(!vb_cm_mra(&a.cm, ca, 1, false, NULL, 0, now) && !vb_cm_disconnect(&a.cm, ca, NULL, 0, now));
	CHECK(!vb_cm_dreply(&a.cm, ca, NULL, 0, now) && !vb_cm_sidr_reply(&a.cm, ca, &sidr, now));
	start();
	establish(&ca, &cb);
	CHECK(!vb_cm_reject(&a.cm, ca, 28, NULL, 0, NULL, 0, now) && !vb_cm_rtu(&a.cm, ca, NULL, 0, now));
	CHECK(!vb_cm_disconnect(&a.cm, ca, "", VB_CM_DREQ_PRIVATE + 1, now));
	nothing_more();
	end_all();
}

static void a_service_that_is_not_there_is_refused_without_a_connection(void)
{
	struct vb_cm_req req = a_req();

	start();
	b.admit = VB_CM_REJ_INVALID_SERVICE_ID;
	ca = vb_cm_connect(&a.cm, &a_to_b, &req, NULL, now);
	deliver(VB_CM_REQ);
	check_empty(&b);
	deliver(VB_CM_REJ);
	CHECK(expect(&a, VB_CM_REJ_RECEIVED)->msg.rej.reason == 8 && ca->state == VB_CM_IDLE);
	nothing_more();
	b.admit = VB_CM_IGNORE;
	ca = vb_cm_connect(&a.cm, &a_to_b, &req, NULL, now);
	deliver(VB_CM_REQ);
	nothing_more();
	end_all();
}

static void a_full_table_refuses_for_lack_of_resources(void)
{
	struct vb_cm_req req = a_req();

	start();
	for (int i = 0; i < PLACES; i++) {
		req.local_qpn = (uint32_t)i;
		CHECK(vb_cm_connect(&a.cm, &a_to_b, &req, NULL, now));
		deliver(VB_CM_REQ);
		expect(&b, VB_CM_REQ_RECEIVED);
	}
	CHECK(!vb_cm_connect(&a.cm, &a_to_b, &req, NULL, now));
	forge(&b, &(struct vb_cm_msg){.attr = VB_CM_REQ, .tid = 1, .req = {.local_comm_id = 1, .local_qpn = 77}});
	CHECK(lose(VB_CM_REJ).rej.reason == VB_CM_REJ_NO_RESOURCES);
	forge(&b, &(struct vb_cm_msg){.attr = VB_CM_SIDR_REQ, .tid = 1, .sidr_req = {.request_id = 1}});
	CHECK(lose(VB_CM_SIDR_REP).sidr_rep.status == VB_CM_SIDR_NO_QP);
	nothing_more();
	end_all();
}

static void the_application_refuses_with_reason_and_private_data(void)
{
	struct told *t;

	receive_req();
	CHECK(vb_cm_reject(&b.cm, cb, VB_CM_REJ_CONSUMER_DEFINED, "xy", 2, "no", 2, now) && cb->state == VB_CM_IDLE);
	CHECK(deliver(VB_CM_REJ).rej.answers == VB_CM_ANSWERS_REQ);
	t = expect(&a, VB_CM_REJ_RECEIVED);
	CHECK(t->msg.rej.reason == 28 && t->msg.rej.ari_len == 2 && !memcmp(t->msg.rej.ari, "xy", 3));
	CHECK(!memcmp(t->msg.rej.private_data, "no", 3) && ca->state == VB_CM_IDLE);
	vb_cm_destroy(&a.cm, ca, now);
	vb_cm_destroy(&b.cm, cb, now);
	nothing_more();
	check_empty(&a);
	check_empty(&b);
}

static void every_reason_is_handed_on(void)
{
	for (uint32_t reason = 1; reason < 65536; reason = reason < 40 ? reason + 1 : reason * 2) {
		receive_req();
		vb_cm_reject(&b.cm, cb, (uint16_t)reason, NULL, 0, NULL, 0, now);
		deliver(VB_CM_REJ);
		CHECK(expect(&a, VB_CM_REJ_RECEIVED)->msg.rej.reason == reason);
		CHECK(ca->state == (reason == VB_CM_REJ_STALE_CONN ? VB_CM_TIMEWAIT : VB_CM_IDLE));
	}
	end_all();
}

static void the_active_side_may_refuse_a_rep(void)
{
	receive_req();
	accept_b();
	deliver(VB_CM_REP);
	expect(&a, VB_CM_REP_RECEIVED);
	CHECK(vb_cm_reject(&a.cm, ca, 28, NULL, 0, NULL, 0, now));
	CHECK(lose(VB_CM_REJ).rej.answers == VB_CM_ANSWERS_REP);
	wait_for(&b); /* the REJ was lost: the REP is repeated, and no connection knows it */
	deliver(VB_CM_REP);
	CHECK(deliver(VB_CM_REJ).rej.reason == VB_CM_REJ_INVALID_COMM_ID);
	expect(&b, VB_CM_REJ_RECEIVED);
	CHECK(cb->state == VB_CM_IDLE);
	nothing_more();
	end_all();
}

static void a_req_without_answer_is_repeated_and_given_up(void)
{
	connect_a();
	struct vb_cm_msg first = lose(VB_CM_REQ);
	uint64_t began = now;

	for (int i = 1; i <= 3; i++) {
		wait_for(&a);
		CHECK(now == began + (uint64_t)i * REQ_WAIT);
		struct vb_cm_msg again = lose(VB_CM_REQ);

		CHECK(again.tid == first.tid && again.req.local_comm_id == first.req.local_comm_id);
	}
	wait_for(&a);
	struct vb_cm_msg rej = lose(VB_CM_REJ);

	CHECK(rej.rej.reason == VB_CM_REJ_TIMEOUT && rej.rej.remote_comm_id == 0 && rej.rej.ari_len == 8 &&
	      rej.rej.ari[7] == 0xa);
	CHECK(expect(&a, VB_CM_REQ_ERROR)->conn == ca && ca->state == VB_CM_IDLE && !vb_cm_deadline(&a.cm));
	nothing_more();
	end_all();
}

static void one_who_gave_up_is_known_by_its_id_and_guid(void)
{
	receive_req();
	vb_cm_destroy(&a.cm, ca, now);
	check_empty(&a);
	CHECK(deliver(VB_CM_REJ).rej.remote_comm_id == 0);
	CHECK(expect(&b, VB_CM_REJ_RECEIVED)->conn == cb && cb->state == VB_CM_IDLE);
	nothing_more();
	end_all();
}

static void a_lost_rep_comes_again_by_time_and_by_a_repeated_req(void)
{
	receive_req();
	uint64_t began = now;

	accept_b();
	struct vb_cm_msg first = lose(VB_CM_REP);

	wait_for(&a);
	deliver(VB_CM_REQ);
	CHECK(lose(VB_CM_REP).rep.local_comm_id == first.rep.local_comm_id);
	wait_for(&b);
	CHECK(now == began + REP_WAIT);
	deliver(VB_CM_REP);
	expect(&a, VB_CM_REP_RECEIVED);
	nothing_more();
	end_all();
}

static void a_rep_without_answer_is_given_up_and_the_peer_told(void)
{
	receive_req();
	accept_b();
	deliver(VB_CM_REP);
	expect(&a, VB_CM_REP_RECEIVED);
	vb_cm_rtu(&a.cm, ca, NULL, 0, now);
	lose(VB_CM_RTU);
	for (int i = 0; i < 3; i++) {
		wait_for(&b);
		deliver(VB_CM_REP);
		lose(VB_CM_RTU);
	}
	wait_for(&b);
	CHECK(expect(&b, VB_CM_REP_ERROR)->conn == cb && cb->state == VB_CM_IDLE);
	deliver(VB_CM_REJ);
	CHECK(expect(&a, VB_CM_REJ_RECEIVED)->msg.rej.reason == VB_CM_REJ_TIMEOUT && ca->state == VB_CM_TIMEWAIT);
	nothing_more();
	end_all();
}

static void a_lost_rtu_comes_again_after_a_repeated_rep(void)
{
	receive_req();
	accept_b();
	deliver(VB_CM_REP);
	expect(&a, VB_CM_REP_RECEIVED);
	wait_for(&b);
	deliver(VB_CM_REP); /* not decided yet: no answer */
	CHECK(mails == 0);
	vb_cm_rtu(&a.cm, ca, "r", 1, now);
	lose(VB_CM_RTU);
	wait_for(&b);
	deliver(VB_CM_REP);
	CHECK(deliver(VB_CM_RTU).rtu.private_data[0] == 'r');
	expect(&b, VB_CM_RTU_RECEIVED);
	nothing_more();
	end_all();
}

static void data_before_the_rtu_establishes(void)
{
	receive_req();
	accept_b();
	deliver(VB_CM_REP);
	expect(&a, VB_CM_REP_RECEIVED);
	CHECK(vb_cm_establish(&b.cm, cb, now) && cb->state == VB_CM_ESTABLISHED && !vb_cm_deadline(&b.cm));
	expect(&b, VB_CM_USER_ESTABLISHED);
	vb_cm_rtu(&a.cm, ca, NULL, 0, now);
	deliver(VB_CM_RTU);
	nothing_more();
	end_all();
}

static void an_mra_buys_time_once_for_each_message(void)
{
	receive_req();
	uint64_t began = now;

	CHECK(vb_cm_mra(&b.cm, cb, 20, false, "m", 1, now) && cb->state == VB_CM_MRA_REQ_SENT);
	CHECK(deliver(VB_CM_MRA).mra.answers == VB_CM_ANSWERS_REQ);
	CHECK(expect(&a, VB_CM_MRA_RECEIVED)->msg.mra.private_data[0] == 'm' && ca->state == VB_CM_MRA_REQ_RCVD);
	forge(&a, &(struct vb_cm_msg){.attr = VB_CM_MRA,
	                              .tid = ca->tid,
	                              .mra = {.local_comm_id = cb->local_comm_id,
	                                      .remote_comm_id = ca->local_comm_id,
	                                      .service_timeout = 24}});
	CHECK(vb_cm_deadline(&a.cm) == began + vb_cm_time(20) + REQ_WAIT);
	wait_for(&a);
	CHECK(ca->state == VB_CM_REQ_SENT);
	deliver(VB_CM_REQ);
	deliver(VB_CM_MRA);
	expect(&a, VB_CM_MRA_RECEIVED);
	accept_b();
	deliver(VB_CM_REP);
	expect(&a, VB_CM_REP_RECEIVED);
	began = now;
	CHECK(vb_cm_mra(&a.cm, ca, 31, false, NULL, 0, now) && ca->state == VB_CM_MRA_REP_SENT);
	CHECK(deliver(VB_CM_MRA).mra.answers == VB_CM_ANSWERS_REP);
	expect(&b, VB_CM_MRA_RECEIVED);
	CHECK(cb->state == VB_CM_MRA_REP_RCVD && vb_cm_deadline(&b.cm) == began + vb_cm_time(24) + REP_WAIT);
	wait_for(&b);
	deliver(VB_CM_REP);
	deliver(VB_CM_MRA);
	expect(&b, VB_CM_MRA_RECEIVED);
	CHECK(vb_cm_rtu(&a.cm, ca, NULL, 0, now));
	deliver(VB_CM_RTU);
	expect(&b, VB_CM_RTU_RECEIVED);
	nothing_more();
	end_all();
}

static void an_mra_may_wait_until_the_peer_asks_again(void)
{
	receive_req();
	CHECK(vb_cm_mra(&b.cm, cb, 20, true, NULL, 0, now));
	CHECK(mails == 0);
	wait_for(&a);
	deliver(VB_CM_REQ);
	deliver(VB_CM_MRA);
	expect(&a, VB_CM_MRA_RECEIVED);
	nothing_more();
	end_all();
}

static void a_connection_that_the_peer_forgot_is_stale(void)
{
	struct vb_cm_msg again = {.attr = VB_CM_REQ, .tid = 99, .req = a_req()};

	start();
	establish(&ca, &cb);
	again.req.local_comm_id = ca->local_comm_id; /* the id again, in another transaction */
	forge(&b, &again);
	CHECK(lose(VB_CM_REJ).rej.reason == VB_CM_REJ_STALE_CONN);
	lose(VB_CM_DREQ); /* asks whether that is right */
	CHECK(cb->state == VB_CM_ESTABLISHED);
	again.tid = 100;
	again.req.local_comm_id++; /* the queue pair again */
	forge(&b, &again);
	CHECK(lose(VB_CM_REJ).rej.reason == VB_CM_REJ_STALE_CONN);
	struct vb_cm_msg drep = {.attr = VB_CM_DREP,
	                         .tid = 1,
	                         .drep = {.local_comm_id = cb->remote_comm_id, .remote_comm_id = cb->local_comm_id}};
	forge(&b, &drep); /* not the answer to our request */
	CHECK(cb->state == VB_CM_ESTABLISHED);
	drep.tid = lose(VB_CM_DREQ).tid;
	forge(&b, &drep);
	expect(&b, VB_CM_DREP_RECEIVED);
	CHECK(cb->state == VB_CM_TIMEWAIT);
	forge(&b, &again);
	expect(&b, VB_CM_REQ_RECEIVED);
	nothing_more();
	end_all();
}

/* The message that the peer has forgotten the connection may be forged. */
static void a_connection_that_the_peer_knows_outlives_who_claims_it_is_stale(void)
{
	struct vb_cm_msg claim = {.attr = VB_CM_REQ, .req = a_req()};

	start();
	establish(&ca, &cb);
	for (claim.tid = 99; claim.tid < 110; claim.tid++) {
		claim.req.local_comm_id = claim.tid & 1 ? ca->local_comm_id : (uint32_t)claim.tid;
		forge(&b, &claim);
		CHECK(lose(VB_CM_REJ).rej.reason == VB_CM_REJ_STALE_CONN);
		deliver(VB_CM_DREQ);
		nothing_more();
	}
	CHECK(ca->state == VB_CM_ESTABLISHED && cb->state == VB_CM_ESTABLISHED && !vb_cm_deadline(&b.cm));
	CHECK(vb_cm_disconnect(&b.cm, cb, NULL, 0, now)); /* and ends as usual */
	deliver(VB_CM_DREQ);
	expect(&a, VB_CM_DREQ_RECEIVED);
	end_all();
}

static void what_has_ended_makes_nothing_stale(void)
{
	struct vb_cm_msg again = {.attr = VB_CM_REQ, .req = a_req()}, first;

	start();
	establish(&ca, &cb);
	first = again;
	first.tid = cb->tid;
	first.req.local_comm_id = cb->remote_comm_id;
	CHECK(vb_cm_disconnect(&b.cm, cb, NULL, 0, now));
	deliver(VB_CM_DREQ);
	expect(&a, VB_CM_DREQ_RECEIVED);
	CHECK(vb_cm_dreply(&a.cm, ca, NULL, 0, now));
	deliver(VB_CM_DREP);
	expect(&b, VB_CM_DREP_RECEIVED);
	CHECK(cb->state == VB_CM_TIMEWAIT);
	forge(&b, &first); /* its own late request */
	CHECK(lose(VB_CM_REJ).rej.reason == VB_CM_REJ_STALE_CONN);
	again.tid = 100;
	again.req.local_comm_id = 77; /* another one of the same queue pair */
	forge(&b, &again);
	struct vb_cm_conn *second = expect(&b, VB_CM_REQ_RECEIVED)->conn;
	CHECK(second != cb && second->remote_qpn == cb->remote_qpn && cb->state == VB_CM_TIMEWAIT);
	vb_cm_destroy(&b.cm, second, now);
	lose(VB_CM_REJ);
	again.tid = 101;
	again.req.local_comm_id = cb->remote_comm_id; /* and of the same id */
	forge(&b, &again);
	second = expect(&b, VB_CM_REQ_RECEIVED)->conn;
	CHECK(second != cb && second->tid == 101);
	forge(&b, &first); /* which the late one does not belong to */
	CHECK(lose(VB_CM_REJ).rej.reason == VB_CM_REJ_STALE_CONN);
	CHECK(second->state == VB_CM_REQ_RCVD);
	nothing_more();
	end_all();
	start();
	establish(&ca, &cb);
	vb_cm_destroy(&b.cm, cb, now); /* whether or not a knows already */
	lose(VB_CM_DREQ);
	again.req.local_comm_id = 78;
	forge(&b, &again);
	expect(&b, VB_CM_REQ_RECEIVED);
	nothing_more();
	end_all();
}

static void another_host_with_the_same_guid_makes_nothing_stale(void)
{
	struct vb_cm_msg req = {.attr = VB_CM_REQ, .tid = 99, .req = a_req()};
	struct vb_cm_addr from = {.local = {[10] = 0xff, [11] = 0xff, [15] = 2},
	                          .remote = {[10] = 0xff, [11] = 0xff, [15] = 66}};
	uint8_t mad[VB_MAD_LEN];

	start();
	establish(&ca, &cb);
	req.req.local_comm_id = ca->local_comm_id;
	vb_cm_encode(mad, &req);
	vb_cm_input(&b.cm, &from, mad, VB_MAD_LEN, now);
	CHECK(cb->state == VB_CM_ESTABLISHED && expect(&b, VB_CM_REQ_RECEIVED)->conn != cb);
	nothing_more();
	end_all();
}

static void two_sides_part_in_order(void)
{
	start();
	establish(&ca, &cb);
	CHECK(vb_cm_disconnect(&a.cm, ca, "bye", 3, now) && ca->state == VB_CM_DREQ_SENT);
	CHECK(deliver(VB_CM_DREQ).dreq.remote_qpn == QPN_B);
	CHECK(!memcmp(expect(&b, VB_CM_DREQ_RECEIVED)->msg.dreq.private_data, "bye", 4) &&
	      cb->state == VB_CM_DREQ_RCVD);
	CHECK(!vb_cm_deadline(&b.cm));
	CHECK(vb_cm_dreply(&b.cm, cb, "ok", 2, now) && cb->state == VB_CM_TIMEWAIT);
	lose(VB_CM_DREP);
	wait_for(&a);
	deliver(VB_CM_DREQ); /* the answer is repeated unchanged */
	CHECK(!memcmp(deliver(VB_CM_DREP).drep.private_data, "ok", 3));
	expect(&a, VB_CM_DREP_RECEIVED);
	CHECK(vb_cm_deadline(&a.cm) == now + vb_cm_time(8));
	wait_for(&b);
	expect(&b, VB_CM_TIMEWAIT_EXIT);
	wait_for(&a);
	expect(&a, VB_CM_TIMEWAIT_EXIT);
	nothing_more();
	end_all();
}

static void both_may_part_at_once(void)
{
	start();
	establish(&ca, &cb);
	vb_cm_disconnect(&a.cm, ca, NULL, 0, now);
	vb_cm_disconnect(&b.cm, cb, NULL, 0, now);
	deliver(VB_CM_DREQ);
	deliver(VB_CM_DREQ);
	expect(&a, VB_CM_DREQ_RECEIVED);
	expect(&b, VB_CM_DREQ_RECEIVED);
	CHECK(ca->state == VB_CM_TIMEWAIT && cb->state == VB_CM_TIMEWAIT && !vb_cm_dreply(&a.cm, ca, NULL, 0, now));
	deliver(VB_CM_DREP);
	deliver(VB_CM_DREP);
	nothing_more();
	end_all();
}

static void a_dreq_without_answer_ends_in_timewait(void)
{
	start();
	establish(&ca, &cb);
	vb_cm_disconnect(&a.cm, ca, NULL, 0, now);
	lose(VB_CM_DREQ);
	for (int i = 0; i < 3; i++) {
		wait_for(&a);
		lose(VB_CM_DREQ);
	}
	wait_for(&a);
	expect(&a, VB_CM_DREQ_ERROR);
	CHECK(ca->state == VB_CM_TIMEWAIT);
	wait_for(&a);
	expect(&a, VB_CM_TIMEWAIT_EXIT);
	vb_cm_destroy(&a.cm, ca, now);
	check_empty(&a);
	vb_cm_disconnect(&b.cm, cb, NULL, 0, now);
	deliver(VB_CM_DREQ);
	deliver(VB_CM_DREP); /* from a peer that has forgotten it */
	expect(&b, VB_CM_DREP_RECEIVED);
	nothing_more();
	end_all();
}

static void destroying_ends_a_connection_on_both_sides(void)
{
	start();
	establish(&ca, &cb);
	uint32_t id = ca->local_comm_id;

	vb_cm_destroy(&a.cm, ca, now);
	CHECK(!vb_cm_find(&a.cm, id) && a.cm.used == 1);
	lose(VB_CM_DREQ);
	wait_for(&a);
	deliver(VB_CM_DREQ);
	expect(&b, VB_CM_DREQ_RECEIVED);
	vb_cm_destroy(&b.cm, cb, now);
	deliver(VB_CM_DREP);
	nothing_more();
	wait_for(&a);
	wait_for(&b);
	nothing_more();
	check_empty(&a);
	check_empty(&b);
}

static void destroying_before_it_is_established_refuses(void)
{
	for (int stage = 0; stage < 5; stage++) {
		struct end *who = stage < 3 ? &b : &a;

		receive_req();
		if (stage == 1)
			vb_cm_mra(&b.cm, cb, 1, true, NULL, 0, now);
		if (stage >= 2)
			accept_b();
		if (stage >= 3) {
			deliver(VB_CM_REP);
			expect(&a, VB_CM_REP_RECEIVED);
		}
		if (stage == 4)
			vb_cm_mra(&a.cm, ca, 1, true, NULL, 0, now);
		vb_cm_destroy(&who->cm, stage < 3 ? cb : ca, now);
		if (stage == 2)
			lose(VB_CM_REP);
		CHECK(deliver(VB_CM_REJ).rej.reason == VB_CM_REJ_CONSUMER_DEFINED);
		expect(who->other, VB_CM_REJ_RECEIVED);
		nothing_more();
		end_all();
	}
}

static void a_late_rtu_hears_the_rejection_again(void)
{
	receive_req();
	accept_b();
	deliver(VB_CM_REP);
	expect(&a, VB_CM_REP_RECEIVED);
	vb_cm_rtu(&a.cm, ca, NULL, 0, now);
	vb_cm_destroy(&b.cm, cb, now);
	mail[1] = mail[0], mails = 1; /* the REJ is lost, and the RTU is in flight */
	deliver(VB_CM_RTU);
	deliver(VB_CM_REJ);
	expect(&a, VB_CM_REJ_RECEIVED);
	CHECK(ca->state == VB_CM_TIMEWAIT);
	nothing_more();
	end_all();
}

static void an_event_may_destroy_its_connection(void)
{
	connect_a();
	b.destroy_in_call = true;
	deliver(VB_CM_REQ);
	expect(&b, VB_CM_REQ_RECEIVED);
	check_empty(&b);
	a.destroy_in_call = true;
	deliver(VB_CM_REJ);
	expect(&a, VB_CM_REJ_RECEIVED);
	check_empty(&a);
	connect_a();
	a.destroy_in_call = true;
	while (a.cm.heap_len)
		wait_for(&a);
	expect(&a, VB_CM_REQ_ERROR);
	check_empty(&a);
}

static void who_does_not_know_the_transaction_changes_nothing(void)
{
	struct vb_cm_conn before;

	receive_req();
	accept_b();
	lose(VB_CM_REP);
	before = *ca;
	forge(&a, &(struct vb_cm_msg){.attr = VB_CM_MRA, .tid = 1, .mra = {.remote_comm_id = ca->local_comm_id}});
	forge(&a, &(struct vb_cm_msg){.attr = VB_CM_REJ, .tid = 1, .rej = {.remote_comm_id = ca->local_comm_id}});
	forge(&a, &(struct vb_cm_msg){.attr = VB_CM_REP, .tid = 1, .rep = {.remote_comm_id = ca->local_comm_id}});
	lose(VB_CM_REJ); /* to the sender: no such connection */
	CHECK(!memcmp(&before, ca, sizeof(before)));
	before = *cb;
	forge(&b,
	      &(struct vb_cm_msg){.attr = VB_CM_RTU,
	                          .tid = 1,
	                          .rtu = {.local_comm_id = ca->local_comm_id, .remote_comm_id = cb->local_comm_id}});
	forge(&b, &(struct vb_cm_msg){.attr = VB_CM_DREQ,
	                              .tid = 1,
	                              .dreq = {.local_comm_id = ca->local_comm_id,
	                                       .remote_comm_id = cb->local_comm_id,
	                                       .remote_qpn = QPN_B + 1}});
	CHECK(!memcmp(&before, cb, sizeof(before)));
	nothing_more();
	end_all();
}

static void words_of_an_earlier_answer_to_the_same_req_change_nothing(void)
{
	struct vb_cm_msg rej, rep;

	receive_req();
	vb_cm_destroy(&b.cm, cb, now);
	rej = lose(VB_CM_REJ); /* in flight for long */
	wait_for(&a);
	deliver(VB_CM_REQ);
	cb = expect(&b, VB_CM_REQ_RECEIVED)->conn;
	accept_b();
	rep = deliver(VB_CM_REP);
	expect(&a, VB_CM_REP_RECEIVED);
	forge(&a, &rej);
	CHECK(ca->state == VB_CM_REP_RCVD);
	vb_cm_rtu(&a.cm, ca, NULL, 0, now);
	deliver(VB_CM_RTU);
	expect(&b, VB_CM_RTU_RECEIVED);
	rep.rep.local_comm_id = rej.rej.local_comm_id;
	forge(&a, &rej);
	forge(&a, &rep);
	CHECK(ca->state == VB_CM_ESTABLISHED);
	nothing_more();
	end_all();
}

static void another_address_changes_nothing(void)
{
	struct vb_cm_addr from = a_to_b;
	struct vb_cm_msg rep;
	uint8_t mad[VB_MAD_LEN];

	receive_req();
	accept_b();
	rep = lose(VB_CM_REP);
	vb_cm_encode(mad, &rep);
	from.remote[15] = 66;
	vb_cm_input(&a.cm, &from, mad, VB_MAD_LEN, now);
	CHECK(ca->state == VB_CM_REQ_SENT);
	lose(VB_CM_REJ);
	nothing_more();
	end_all();
}

static void the_peer_cannot_make_us_wait_forever(void)
{
	struct vb_cm_msg req = {.attr = VB_CM_REQ, .tid = 7, .req = a_req()};

	start();
	req.req.local_comm_id = 1;
	req.req.local_response_timeout = 31;
	req.req.primary.ack_timeout = 31;
	req.req.max_cm_retries = 15;
	forge(&b, &req);
	cb = expect(&b, VB_CM_REQ_RECEIVED)->conn;
	accept_b();
	CHECK(vb_cm_deadline(&b.cm) == now + 2 * vb_cm_time(21));
	vb_cm_destroy(&b.cm, cb, now);
	CHECK(vb_cm_deadline(&b.cm) == now + vb_cm_time(20));
	mails = 0;
	end_all();
}

static void other_transports_and_alternate_paths_are_refused(void)
{
	struct vb_cm_msg req = {.attr = VB_CM_REQ, .tid = 7, .req = a_req()};

	start();
	req.req.transport = VB_CM_RD;
	forge(&b, &req);
	CHECK(lose(VB_CM_REJ).rej.reason == VB_CM_REJ_INVALID_TRANSPORT);
	establish(&ca, &cb);
	forge(&b,
	      &(struct vb_cm_msg){.attr = VB_CM_LAP,
	                          .tid = 8,
	                          .lap = {.local_comm_id = ca->local_comm_id, .remote_comm_id = cb->local_comm_id}});
	CHECK(deliver(VB_CM_APR).apr.status == VB_CM_APR_UNSUPPORTED);
	forge(&b, &(struct vb_cm_msg){.attr = VB_CM_LAP, .tid = 8, .lap = {.remote_comm_id = 3}});
	CHECK(deliver(VB_CM_APR).apr.status == VB_CM_APR_INVALID_COMM_ID);
	nothing_more();
	end_all();
}

static void a_place_never_has_the_same_id_twice_in_a_row(void)
{
	struct vb_cm_req req = a_req();
	uint32_t last[PLACES] = {0}, different = 0;

	start();
	for (int i = 0; i < 10000; i++) {
		ca = vb_cm_connect(&a.cm, &a_to_b, &req, NULL, now);
		CHECK(ca->local_comm_id && ca->local_comm_id != last[ca - a.conns] &&
		      vb_cm_lane_of(ca->local_comm_id) == LANE_A);
		different |= ca->local_comm_id ^ last[ca - a.conns];
		last[ca - a.conns] = ca->local_comm_id;
		vb_cm_destroy(&a.cm, ca, now);
		mails = 0;
	}
	CHECK((different & 0x3fffff) == 0x3fffff);
	check_empty(&a);
}

/* The ids that a host has been told do not predict the next one: they differ in all bits, and not by ones. */
static void ids_tell_nothing_of_each_other(void)
{
	struct vb_cm_req req = a_req();
	uint32_t last = 0, near = 0;

	start();
	for (int i = 0; i < 1000; i++) {
		ca = vb_cm_connect(&a.cm, &a_to_b, &req, NULL, now);
		CHECK(vb_cm_find(&a.cm, ca->local_comm_id) == ca);
		near += (last ^ ca->local_comm_id) < 0x400 || ca->local_comm_id - last < 0x400;
		last = ca->local_comm_id;
		vb_cm_destroy(&a.cm, ca, now);
		mails = 0;
	}
	CHECK(near < 20);
	check_empty(&a);
}

static uint32_t said[PLACES];
static unsigned nsaid;

static void say(void *own, const struct vb_cm_conn *conn)
{
	said[nsaid++ % PLACES] = conn->local_comm_id;
}

/* Only peers that have not answered are asked again, and the peer of each connection is right. */
static void another_broker_is_told_of_connections_and_what_was_lost_is_sent_again(void)
{
	receive_req();
	nsaid = 0;
	vb_cm_again(&a.cm, say);
	CHECK(nsaid == 0); /* the peer has no connection to end */
	lose(VB_CM_REQ);
	accept_b();
	lose(VB_CM_REP);
	vb_cm_again(&b.cm, say);
	CHECK(nsaid == 1 && said[0] == cb->local_comm_id);
	deliver(VB_CM_REP);
	expect(&a, VB_CM_REP_RECEIVED);
	CHECK(vb_cm_rtu(&a.cm, ca, NULL, 0, now));
	deliver(VB_CM_RTU);
	expect(&b, VB_CM_RTU_RECEIVED);
	vb_cm_again(&a.cm, say);
	CHECK(nsaid == 2 && said[1] == ca->local_comm_id);
	nothing_more();
	CHECK(vb_cm_disconnect(&a.cm, ca, NULL, 0, now));
	lose(VB_CM_DREQ);
	vb_cm_again(&a.cm, say);
	CHECK(nsaid == 3);
	deliver(VB_CM_DREQ);
	expect(&b, VB_CM_DREQ_RECEIVED);
	CHECK(vb_cm_dreply(&b.cm, cb, NULL, 0, now));
	deliver(VB_CM_DREP);
	expect(&a, VB_CM_DREP_RECEIVED);
	vb_cm_again(&a.cm, say);
	vb_cm_again(&b.cm, say);
	CHECK(nsaid == 3);
	nothing_more();
	end_all();
}

int main(void)
{
	RUN(three_messages_make_a_connection_and_bring_private_data);
	RUN(calls_in_another_state_are_refused);
	RUN(a_service_that_is_not_there_is_refused_without_a_connection);
	RUN(a_full_table_refuses_for_lack_of_resources);
	RUN(the_application_refuses_with_reason_and_private_data);
	RUN(every_reason_is_handed_on);
	RUN(the_active_side_may_refuse_a_rep);
	RUN(a_req_without_answer_is_repeated_and_given_up);
	RUN(one_who_gave_up_is_known_by_its_id_and_guid);
	RUN(a_lost_rep_comes_again_by_time_and_by_a_repeated_req);
	RUN(a_rep_without_answer_is_given_up_and_the_peer_told);
	RUN(a_lost_rtu_comes_again_after_a_repeated_rep);
	RUN(data_before_the_rtu_establishes);
	RUN(an_mra_buys_time_once_for_each_message);
	RUN(an_mra_may_wait_until_the_peer_asks_again);
	RUN(a_connection_that_the_peer_forgot_is_stale);
	RUN(a_connection_that_the_peer_knows_outlives_who_claims_it_is_stale);
	RUN(what_has_ended_makes_nothing_stale);
	RUN(another_host_with_the_same_guid_makes_nothing_stale);
	RUN(two_sides_part_in_order);
	RUN(both_may_part_at_once);
	RUN(a_dreq_without_answer_ends_in_timewait);
	RUN(destroying_ends_a_connection_on_both_sides);
	RUN(destroying_before_it_is_established_refuses);
	RUN(a_late_rtu_hears_the_rejection_again);
	RUN(an_event_may_destroy_its_connection);
	RUN(who_does_not_know_the_transaction_changes_nothing);
	RUN(words_of_an_earlier_answer_to_the_same_req_change_nothing);
	RUN(another_address_changes_nothing);
	RUN(the_peer_cannot_make_us_wait_forever);
	RUN(other_transports_and_alternate_paths_are_refused);
	RUN(a_place_never_has_the_same_id_twice_in_a_row);
	RUN(ids_tell_nothing_of_each_other);
	RUN(another_broker_is_told_of_connections_and_what_was_lost_is_sent_again);
	return 0;
}
