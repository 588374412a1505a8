// route_test.c - datagrams are routed without a table, service ids are resolved, and unknown ones are not answered
// follows: IBA volume 1, 12.6, 12.11; annex A11
// SPDX-License-Identifier: MIT
#include "fixture.h"

#include "frame/hello.h"

static struct vb_cm_route_info info;

static enum vb_cm_route route(const struct vb_cm_msg *msg)
{
	uint8_t mad[VB_MAD_LEN];

	vb_cm_encode(mad, msg);
	return vb_cm_route(mad, VB_MAD_LEN, &info);
}

static void requests_go_to_the_service(void)
{
	struct vb_cma cma = {.src_port = 40000,
	                     .src = {[10] = 0xff, [11] = 0xff, [15] = 1},
	                     .dst = {[10] = 0xff, [11] = 0xff, [15] = 9}};
	struct vb_cm_msg msg = {.attr = VB_CM_REQ, .req.service_id = 0x010604d2};

	vb_cma_encode(msg.req.private_data, &cma);
	CHECK(route(&msg) == VB_CM_TO_SERVICE && info.service_id == 0x010604d2);
	CHECK(info.port_space && info.ps == VB_PS_TCP && info.port == 1234 && info.cma && info.hdr.src_port == 40000);
	CHECK(!memcmp(info.hdr.dst, cma.dst, VB_GID_LEN) && info.attr == VB_CM_REQ);
	msg.req.private_data[0] = 0x10;
	CHECK(route(&msg) == VB_CM_TO_SERVICE && info.port_space && !info.cma);
	msg.req.private_data[0] = 0;
	msg.req.service_id = UINT64_C(0x1000000000000001);
	CHECK(route(&msg) == VB_CM_TO_SERVICE && !info.port_space && !info.cma &&
	      info.service_id == msg.req.service_id);

	struct vb_cm_msg sidr = {.attr = VB_CM_SIDR_REQ, .sidr_req.service_id = 0x01110007};

	vb_cma_encode(sidr.sidr_req.private_data, &cma);
	CHECK(route(&sidr) == VB_CM_TO_SERVICE && info.ps == VB_PS_UDP && info.port == 7 && info.cma);
}

static void answers_go_to_the_lane_of_our_id(void)
{
	const uint32_t ours = 1023u << 22 | 77, theirs = 3;
	const struct vb_cm_msg msgs[] = {
	        {.attr = VB_CM_MRA, .mra = {theirs, ours}},   {.attr = VB_CM_REJ, .rej = {theirs, ours}},
	        {.attr = VB_CM_REP, .rep = {theirs, ours}},   {.attr = VB_CM_RTU, .rtu = {theirs, ours}},
	        {.attr = VB_CM_DREQ, .dreq = {theirs, ours}}, {.attr = VB_CM_DREP, .drep = {theirs, ours}},
	        {.attr = VB_CM_LAP, .lap = {theirs, ours}},   {.attr = VB_CM_APR, .apr = {theirs, ours}},
	        {.attr = VB_CM_SIDR_REP, .sidr_rep = {ours}},
	};

	for (size_t i = 0; i < sizeof(msgs) / sizeof(*msgs); i++)
		CHECK(route(&msgs[i]) == VB_CM_TO_LANE && info.lane == 1023 && info.comm_id == ours &&
		      info.attr == msgs[i].attr);
}

static void who_gave_up_before_it_knew_us_is_heard_by_all(void)
{
	CHECK(route(&(struct vb_cm_msg){.attr = VB_CM_REJ, .rej = {.local_comm_id = 3, .reason = 4}}) == VB_CM_TO_ALL);
}

static void what_is_no_message_is_dropped(void)
{
	uint8_t mad[VB_MAD_LEN] = {1, 7, 2, 3, [17] = 0x1b};

	CHECK(vb_cm_route(mad, VB_MAD_LEN, &info) == VB_CM_DROP);
	mad[17] = 0x13;
	CHECK(vb_cm_route(mad, VB_MAD_LEN - 1, &info) == VB_CM_DROP && vb_cm_route(mad, 0, &info) == VB_CM_DROP);
	CHECK(vb_cm_route(mad, VB_MAD_LEN, &info) == VB_CM_TO_LANE);
	mad[1] = 3;
	CHECK(vb_cm_route(mad, VB_MAD_LEN, &info) == VB_CM_DROP);
}

static void nobodys_messages_are_answered(void)
{
	uint8_t mad[VB_MAD_LEN], out[VB_MAD_LEN];
	struct vb_cm_msg msg;

	vb_cm_encode(mad, &(struct vb_cm_msg){.attr = VB_CM_REQ, .tid = 7, .req = {.local_comm_id = 5}});
	CHECK(vb_cm_make_rej(out, mad, VB_MAD_LEN, VB_CM_REJ_INVALID_SERVICE_ID) &&
	      vb_cm_decode(&msg, out, VB_MAD_LEN));
	CHECK(msg.attr == VB_CM_REJ && msg.tid == 7 && msg.rej.remote_comm_id == 5 && msg.rej.reason == 8);
	CHECK(msg.rej.local_comm_id == 0 && msg.rej.answers == VB_CM_ANSWERS_REQ);
	CHECK(!vb_cm_make_unknown(out, mad, VB_MAD_LEN) && !vb_cm_make_sidr_rep(out, mad, VB_MAD_LEN, 1));

	vb_cm_encode(mad, &(struct vb_cm_msg){.attr = VB_CM_REP, .tid = 7, .rep = {5, 6}});
	CHECK(vb_cm_make_unknown(out, mad, VB_MAD_LEN) && vb_cm_decode(&msg, out, VB_MAD_LEN));
	CHECK(msg.attr == VB_CM_REJ && msg.rej.local_comm_id == 6 && msg.rej.remote_comm_id == 5 &&
	      msg.rej.reason == 6);

	vb_cm_encode(mad, &(struct vb_cm_msg){.attr = VB_CM_DREQ, .tid = 7, .dreq = {5, 6, 1}});
	CHECK(vb_cm_make_unknown(out, mad, VB_MAD_LEN) && vb_cm_decode(&msg, out, VB_MAD_LEN));
	CHECK(msg.attr == VB_CM_DREP && msg.tid == 7 && msg.drep.local_comm_id == 6 && msg.drep.remote_comm_id == 5);
	CHECK(!vb_cm_make_rej(out, mad, VB_MAD_LEN, 8));

	vb_cm_encode(mad, &(struct vb_cm_msg){
	                          .attr = VB_CM_SIDR_REQ, .tid = 7, .sidr_req = {.request_id = 5, .service_id = 9}});
	CHECK(vb_cm_make_sidr_rep(out, mad, VB_MAD_LEN, VB_CM_SIDR_INVALID_SERVICE_ID) &&
	      vb_cm_decode(&msg, out, VB_MAD_LEN));
	CHECK(msg.attr == VB_CM_SIDR_REP && msg.sidr_rep.request_id == 5 && msg.sidr_rep.status == 1 &&
	      msg.sidr_rep.service_id == 9);

	vb_cm_encode(mad, &(struct vb_cm_msg){.attr = VB_CM_REJ, .rej = {5, 6}});
	CHECK(!vb_cm_make_unknown(out, mad, VB_MAD_LEN) && !vb_cm_make_rej(out, mad, VB_MAD_LEN, 8));
}

/* `verbena doctor` asks in a REQ. Nobody else gets anything but zeros. */
static void a_verbena_that_is_asked_tells_its_version(void)
{
	struct vb_cm_msg msg, req = {.attr = VB_CM_REQ, .tid = 7, .req = {.local_comm_id = 5}};
	uint8_t mad[VB_MAD_LEN], out[VB_MAD_LEN];
	char version[VB_HELLO_VERSION_LEN];

	vb_cm_encode(mad, &req);
	CHECK(vb_cm_make_rej(out, mad, VB_MAD_LEN, VB_CM_REJ_INVALID_SERVICE_ID) &&
	      vb_cm_decode(&msg, out, VB_MAD_LEN));
	for (size_t i = 0; i < sizeof(msg.rej.private_data); i++)
		CHECK(!msg.rej.private_data[i]);
	CHECK(!vb_hello_read(msg.rej.private_data, sizeof(msg.rej.private_data), version));

	memcpy(req.req.private_data + VB_CMA_LEN, VB_HELLO_ASK, VB_HELLO_LEN);
	vb_cm_encode(mad, &req);
	CHECK(vb_cm_make_rej(out, mad, VB_MAD_LEN, VB_CM_REJ_INVALID_SERVICE_ID) &&
	      vb_cm_decode(&msg, out, VB_MAD_LEN));
	CHECK(vb_hello_read(msg.rej.private_data, sizeof(msg.rej.private_data), version) &&
	      !strcmp(version, VB_VERSION));
	CHECK(!vb_hello_read(msg.rej.private_data, 40, version));
	msg.rej.private_data[VB_HELLO_LEN] = '\033';
	CHECK(!vb_hello_read(msg.rej.private_data, sizeof(msg.rej.private_data), version));
	memset(msg.rej.private_data + VB_HELLO_LEN, 'a', VB_HELLO_VERSION_LEN);
	CHECK(!vb_hello_read(msg.rej.private_data, sizeof(msg.rej.private_data), version));
	CHECK(vb_cm_make_rej(out, mad, VB_MAD_LEN, VB_CM_REJ_STALE_CONN) && vb_cm_decode(&msg, out, VB_MAD_LEN) &&
	      !msg.rej.private_data[0]);
}

static struct vb_cm_conn *ask(void)
{
	start();
	return vb_cm_sidr_request(&a.cm, &a_to_b, &(struct vb_cm_sidr_req){.service_id = 0x01110007, .pkey = 0xffff},
	                          1000, 2, NULL, now);
}

static void a_service_tells_its_queue_pair(void)
{
	struct vb_cm_conn *ca = ask(), *cb;
	struct vb_cm_sidr_rep rep = {.qpn = 0x123, .qkey = 0x1234567, .private_data = "hi"};
	struct told *t;

	lose(VB_CM_SIDR_REQ);
	wait_for(&a);
	CHECK(now == 2000);
	deliver(VB_CM_SIDR_REQ);
	t = expect(&b, VB_CM_SIDR_REQ_RECEIVED);
	cb = t->conn;
	CHECK(t->msg.sidr_req.service_id == 0x01110007 && vb_cm_lane_of(t->msg.sidr_req.request_id) == LANE_A);
	wait_for(&a);
	deliver(VB_CM_SIDR_REQ); /* not decided yet */
	CHECK(vb_cm_sidr_reply(&b.cm, cb, &rep, now) && cb->state == VB_CM_IDLE);
	deliver(VB_CM_SIDR_REP);
	t = expect(&a, VB_CM_SIDR_REP_RECEIVED);
	CHECK(t->conn == ca && t->msg.sidr_rep.qpn == 0x123 && t->msg.sidr_rep.qkey == 0x1234567 &&
	      ca->state == VB_CM_IDLE);
	CHECK(!vb_cm_sidr_reply(&b.cm, cb, &rep, now));
	vb_cm_destroy(&a.cm, ca, now);
	vb_cm_destroy(&b.cm, cb, now);
	CHECK(a.cm.used == 0 && b.cm.used == 0 && !vb_cm_deadline(&a.cm));
	nothing_more();
}

static void a_service_that_is_not_there_says_so(void)
{
	ask();
	b.admit = VB_CM_SIDR_INVALID_SERVICE_ID;
	deliver(VB_CM_SIDR_REQ);
	deliver(VB_CM_SIDR_REP);
	CHECK(expect(&a, VB_CM_SIDR_REP_RECEIVED)->msg.sidr_rep.status == VB_CM_SIDR_INVALID_SERVICE_ID);
	CHECK(b.cm.used == 0);
	ask();
	deliver(VB_CM_SIDR_REQ);
	vb_cm_destroy(&b.cm, expect(&b, VB_CM_SIDR_REQ_RECEIVED)->conn, now);
	deliver(VB_CM_SIDR_REP);
	CHECK(expect(&a, VB_CM_SIDR_REP_RECEIVED)->msg.sidr_rep.status == VB_CM_SIDR_REJECTED && b.cm.used == 0);
	nothing_more();
}

static void a_question_without_answer_is_given_up(void)
{
	struct vb_cm_conn *ca = ask();

	for (int i = 0; i < 2; i++) {
		lose(VB_CM_SIDR_REQ);
		wait_for(&a);
	}
	lose(VB_CM_SIDR_REQ);
	wait_for(&a);
	CHECK(expect(&a, VB_CM_SIDR_ERROR)->conn == ca && ca->state == VB_CM_IDLE && !vb_cm_deadline(&a.cm));
	ca = ask();
	forge(&a, &(struct vb_cm_msg){.attr = VB_CM_SIDR_REP, .tid = 1, .sidr_rep = {.request_id = ca->local_comm_id}});
	CHECK(ca->state == VB_CM_SIDR_REQ_SENT); /* another transaction */
	vb_cm_destroy(&a.cm, ca, now);
	CHECK(a.cm.used == 0);
	lose(VB_CM_SIDR_REQ);
	nothing_more();
}

static void states_and_events_have_names(void)
{
	CHECK(!strcmp(vb_cm_state_text(VB_CM_MRA_REP_RCVD), "MRA_REP_RCVD"));
	CHECK(!strcmp(vb_cm_event_text(VB_CM_SIDR_ERROR), "SIDR_ERROR"));
	CHECK(!strcmp(vb_cm_event_text((enum vb_cm_event_kind)99), "?") &&
	      !strcmp(vb_cm_state_text((enum vb_cm_state)99), "?"));
}

int main(void)
{
	RUN(requests_go_to_the_service);
	RUN(answers_go_to_the_lane_of_our_id);
	RUN(who_gave_up_before_it_knew_us_is_heard_by_all);
	RUN(what_is_no_message_is_dropped);
	RUN(nobodys_messages_are_answered);
	RUN(a_verbena_that_is_asked_tells_its_version);
	RUN(a_service_tells_its_queue_pair);
	RUN(a_service_that_is_not_there_says_so);
	RUN(a_question_without_answer_is_given_up);
	RUN(states_and_events_have_names);
	return 0;
}
