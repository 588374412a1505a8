// fixture.c - two tables of connections, the datagrams between them, and the events of their owners
// SPDX-License-Identifier: MIT
#include "fixture.h"

struct end a, b;
struct mail mail[MAX_MAIL];
int mails;
uint64_t now;

const struct vb_cm_addr a_to_b = {
        .local = {[10] = 0xff, [11] = 0xff, [15] = 1}, .remote = {[10] = 0xff, [11] = 0xff, [15] = 2}, .ifindex = 3};

static uint16_t on_admit(void *own, const struct vb_cm_addr *from, const struct vb_cm_msg *msg)
{
	return ((struct end *)own)->admit;
}

static struct vb_cm_addr turned(const struct vb_cm_addr *to)
{
	struct vb_cm_addr from = {.ifindex = to->ifindex};

	memcpy(from.local, to->remote, VB_GID_LEN);
	memcpy(from.remote, to->local, VB_GID_LEN);
	return from;
}

static void on_send(void *own, const struct vb_cm_addr *to, const uint8_t bytes[VB_MAD_LEN])
{
	struct mail *m = &mail[mails++];

	CHECK(mails <= MAX_MAIL);
	m->to = ((struct end *)own)->other;
	m->from = turned(to);
	memcpy(m->mad, bytes, VB_MAD_LEN);
}

static void on_event(void *own, struct vb_cm_conn *conn, const struct vb_cm_event *event)
{
	struct end *e = own;
	struct told *t = &e->told[e->events++];

	CHECK(e->events <= MAX_EVENTS);
	*t = (struct told){.kind = event->kind, .conn = conn};
	if (event->msg)
		t->msg = *event->msg;
	if (e->destroy_in_call)
		vb_cm_destroy(&e->cm, conn, now);
}

static const struct vb_cm_ops ops = {.admit = on_admit, .send = on_send, .event = on_event};

static void start_end(struct end *e, struct end *other, uint32_t lane)
{
	const struct vb_cm_config cfg = {.lane = lane, .key = {lane, 42}};

	e->other = other;
	e->admit = 0;
	e->destroy_in_call = false;
	e->events = e->seen = 0;
	memset(e->conns, 0, sizeof(e->conns));
	vb_cm_init(&e->cm, &cfg, &ops, e, e->conns, PLACES);
}

void start(void)
{
	now = 1000;
	mails = 0;
	start_end(&a, &b, LANE_A);
	start_end(&b, &a, LANE_B);
}

struct vb_cm_req a_req(void)
{
	return (struct vb_cm_req){.service_id = vb_cm_service_id(VB_PS_TCP, 7471),
	                          .local_ca_guid = 0xa,
	                          .local_qpn = QPN_A,
	                          .remote_response_timeout = 10,
	                          .local_response_timeout = 11,
	                          .max_cm_retries = 3,
	                          .transport = VB_CM_RC,
	                          .primary.ack_timeout = 8,
	                          .private_data = "from a"};
}

struct vb_cm_rep b_rep(void)
{
	return (struct vb_cm_rep){.local_ca_guid = 0xb, .local_qpn = QPN_B, .private_data = "from b"};
}

static struct mail oldest(enum vb_cm_attr attr, struct vb_cm_msg *msg)
{
	struct mail m = mail[0];

	CHECK(mails > 0 && vb_cm_decode(msg, m.mad, VB_MAD_LEN) && msg->attr == attr);
	memmove(mail, mail + 1, (size_t)--mails * sizeof(*mail));
	return m;
}

struct vb_cm_msg deliver(enum vb_cm_attr attr)
{
	struct vb_cm_msg msg;
	struct mail m = oldest(attr, &msg);

	vb_cm_input(&m.to->cm, &m.from, m.mad, VB_MAD_LEN, now);
	return msg;
}

struct vb_cm_msg lose(enum vb_cm_attr attr)
{
	struct vb_cm_msg msg;

	oldest(attr, &msg);
	return msg;
}

void forge(struct end *to, const struct vb_cm_msg *msg)
{
	struct vb_cm_addr from = to == &a ? a_to_b : turned(&a_to_b);
	uint8_t mad[VB_MAD_LEN];

	vb_cm_encode(mad, msg);
	vb_cm_input(&to->cm, &from, mad, VB_MAD_LEN, now);
}

struct told *expect(struct end *e, enum vb_cm_event_kind kind)
{
	CHECK(e->seen < e->events && e->told[e->seen].kind == kind);
	return &e->told[e->seen++];
}

void nothing_more(void)
{
	CHECK(a.seen == a.events && b.seen == b.events && mails == 0);
}

void wait_for(struct end *e)
{
	uint64_t deadline = vb_cm_deadline(&e->cm);

	CHECK(deadline);
	if (now < deadline)
		now = deadline;
	vb_cm_timeout(&e->cm, now);
}

void establish(struct vb_cm_conn **at_a, struct vb_cm_conn **at_b)
{
	struct vb_cm_req req = a_req();
	struct vb_cm_rep rep = b_rep();

	*at_a = vb_cm_connect(&a.cm, &a_to_b, &req, NULL, now);
	deliver(VB_CM_REQ);
	*at_b = expect(&b, VB_CM_REQ_RECEIVED)->conn;
	CHECK(vb_cm_accept(&b.cm, *at_b, &rep, now));
	deliver(VB_CM_REP);
	CHECK(expect(&a, VB_CM_REP_RECEIVED)->conn == *at_a);
	CHECK(vb_cm_rtu(&a.cm, *at_a, "ready", 5, now));
	deliver(VB_CM_RTU);
	CHECK(expect(&b, VB_CM_RTU_RECEIVED)->conn == *at_b);
	CHECK((*at_a)->state == VB_CM_ESTABLISHED && (*at_b)->state == VB_CM_ESTABLISHED);
	nothing_more();
}
