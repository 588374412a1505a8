// fuzz_cm.c - arbitrary bytes as datagrams to queue pair 1: nothing crashes, decoded messages encode to the same bytes,
// and all connections end
// follows: IBA volume 1, 12.6, 12.9; annex A11
// SPDX-License-Identifier: MIT
#include <assert.h>
#include <stdlib.h>
#include <string.h>

#include "engine/cm/cm.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

enum { PLACES = 4, HELD = 8 };

static struct {
	struct vb_cm cm;
	struct vb_cm_conn conns[PLACES];
	struct vb_cm_conn *held[HELD]; /* of the owner */
	uint8_t sent[VB_MAD_LEN];      /* the last one */
	uint64_t now;
} f;

static const struct vb_cm_addr addr = {.local = {[15] = 1}, .remote = {[15] = 2}};

static uint16_t on_admit(void *own, const struct vb_cm_addr *from, const struct vb_cm_msg *msg)
{
	return msg->tid & 0x80 ? VB_CM_REJ_INVALID_SERVICE_ID : 0;
}

static void on_send(void *own, const struct vb_cm_addr *to, const uint8_t mad[VB_MAD_LEN])
{
	struct vb_cm_msg msg;

	assert(vb_cm_decode(&msg, mad, VB_MAD_LEN));
	memcpy(f.sent, mad, VB_MAD_LEN);
}

static void hold(struct vb_cm_conn *conn)
{
	for (int i = 0; i < HELD; i++)
		if (!f.held[i]) {
			f.held[i] = conn;
			return;
		}
	assert(!"more connections than places");
}

static void on_event(void *own, struct vb_cm_conn *conn, const struct vb_cm_event *event)
{
	assert(conn->used && !conn->orphan);
	if (event->kind == VB_CM_REQ_RECEIVED || event->kind == VB_CM_SIDR_REQ_RECEIVED)
		hold(conn);
}

static const struct vb_cm_ops ops = {.admit = on_admit, .send = on_send, .event = on_event};

static void let_go(struct vb_cm_conn **conn)
{
	vb_cm_destroy(&f.cm, *conn, f.now);
	*conn = NULL;
}

/* A call of the owner, valid or not. */
static void call(uint8_t what, struct vb_cm_conn **held)
{
	struct vb_cm_conn *conn = *held;
	struct vb_cm_req req = {.max_cm_retries = what & 3, .local_ca_guid = 1, .local_qpn = what};

	if (!conn) {
		conn = what & 1 ? vb_cm_connect(&f.cm, &addr, &req, NULL, f.now)
		                : vb_cm_sidr_request(&f.cm, &addr, &(struct vb_cm_sidr_req){0}, 1, 2, NULL, f.now);
		if (conn)
			hold(conn);
		return;
	}
	switch (what & 15) {
	case 0:
		vb_cm_accept(&f.cm, conn, &(struct vb_cm_rep){.local_ca_guid = 1, .local_qpn = what}, f.now);
		break;
	case 1:
		vb_cm_rtu(&f.cm, conn, "x", 1, f.now);
		break;
	case 2:
		vb_cm_mra(&f.cm, conn, what, what & 16, "x", 1, f.now);
		break;
	case 3:
		vb_cm_reject(&f.cm, conn, what, "x", 1, "x", 1, f.now);
		break;
	case 4:
		vb_cm_disconnect(&f.cm, conn, "x", 1, f.now);
		break;
	case 5:
		vb_cm_dreply(&f.cm, conn, "x", 1, f.now);
		break;
	case 6:
		vb_cm_establish(&f.cm, conn, f.now);
		break;
	case 7:
		vb_cm_sidr_reply(&f.cm, conn, &(struct vb_cm_sidr_rep){.qpn = 1}, f.now);
		break;
	case 8:
		let_go(held);
		break;
	}
}

static void check_message(const uint8_t *mad, size_t len)
{
	struct vb_cm_route_info info;
	struct vb_cm_msg msg, back;
	uint8_t out[VB_MAD_LEN], again[VB_MAD_LEN];
	bool known = vb_cm_decode(&msg, mad, len);

	assert(known == (vb_cm_route(mad, len, &info) != VB_CM_DROP));
	for (int i = 0; i < 3; i++) {
		bool made = i == 0   ? vb_cm_make_rej(out, mad, len, 8)
		            : i == 1 ? vb_cm_make_sidr_rep(out, mad, len, 1)
		                     : vb_cm_make_unknown(out, mad, len);

		assert(!made || (known && vb_cm_decode(&back, out, VB_MAD_LEN) && back.tid == msg.tid));
	}
	if (!known)
		return;
	vb_cm_encode(out, &msg);
	assert(vb_cm_decode(&back, out, VB_MAD_LEN) && back.attr == msg.attr && back.tid == msg.tid);
	vb_cm_encode(again, &back);
	assert(!memcmp(out, again, VB_MAD_LEN));
}

/* A message of this kind with the right ids, transaction and queue pair of a connection, to get further than random
 * bytes. */
static void insider(uint8_t attr, const struct vb_cm_conn *conn, const uint8_t *rest, size_t len)
{
	struct vb_writer w = vb_writer(f.sent, VB_MAD_LEN);
	struct vb_mad h = {
	        1, 7, 2, 3, .tid = conn->state == VB_CM_DREQ_SENT ? conn->dreq_tid : conn->tid, .attr_id = attr};

	vb_mad_encode(&w, &h);
	vb_put32(&w, attr == VB_CM_SIDR_REP ? conn->local_comm_id : conn->remote_comm_id);
	vb_put32(&w, conn->local_comm_id);
	vb_put_bytes(&w, rest, len < 200 ? len : 200);
	if (attr == VB_CM_DREQ) {
		w.pos = VB_MAD_HEADER_LEN + 8;
		vb_put24(&w, conn->local_qpn);
	}
	vb_put_zeros(&w, VB_MAD_LEN - w.pos);
}

static void end_all(void)
{
	for (int i = 0; i < HELD; i++)
		if (f.held[i])
			let_go(&f.held[i]);
	for (int turns = 0; vb_cm_deadline(&f.cm); turns++) {
		assert(turns < PLACES * 20);
		f.now = vb_cm_deadline(&f.cm);
		vb_cm_timeout(&f.cm, f.now);
	}
	assert(f.cm.used == 0);
}

/* Each step: the action, the number of its bytes, the bytes. */
int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
	static const struct vb_cm_config cfg = {.lane = 3, .key = {1, 2}};
	struct vb_reader r = vb_reader(data, size);

	memset(&f, 0, sizeof(f));
	f.now = 1;
	vb_cm_init(&f.cm, &cfg, &ops, NULL, f.conns, PLACES);
	if (size == VB_MAD_LEN)
		check_message(data, size);
	while (vb_left(&r)) {
		uint8_t what = vb_get8(&r), which = vb_get8(&r), mad[VB_MAD_LEN] = {1, 7, 2, 3};
		size_t len = which & 0x80 ? vb_left(&r) < 64 ? vb_left(&r) : 64 : 0;
		const uint8_t *bytes = vb_take(&r, len);
		struct vb_cm_conn **held = &f.held[which % HELD];

		switch (what >> 6) {
		case 0:
			call(what, held);
			break;
		case 1: /* arbitrary bytes with the right class, so that they are not rejected for it */
			if (len)
				memcpy(mad + 8, bytes, len);
			check_message(mad, VB_MAD_LEN);
			vb_cm_input(&f.cm, &addr, mad, VB_MAD_LEN, f.now);
			break;
		case 2:
			if (*held)
				insider(0x10 + what % 11, *held, bytes, len);
			vb_cm_input(&f.cm, &addr, f.sent, VB_MAD_LEN, f.now);
			break;
		case 3:
			f.now += (uint64_t)1 << (what & 31);
			vb_cm_timeout(&f.cm, f.now);
			break;
		}
	}
	end_all();
	return 0;
}
