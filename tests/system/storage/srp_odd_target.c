// srp_odd_target.c - a SRP target that is right, but unlike ours
// follows: SRP (ANSI INCITS 365, T10/1415-D); SBC-3
// SPDX-License-Identifier: MIT
#include "srp_odd_target.h"

#include <arpa/inet.h>
#include <fcntl.h>
#include <rdma/rdma_cma.h>
#include <unistd.h>

#include "../../support/check.h"
#include "scsi/be.h"
#include "scsi/scsi.h"
#include "srp/srp.h"

#define IU 256u
#define RECEIVES 16u
#define CREDITS 3u /* one is for management */
#define CHANNELS 8u
#define DATA (1u << 20)

struct channel {
	struct rdma_cm_id *id;
	struct ibv_pd *pd;
	struct ibv_cq *cq;
	struct ibv_mr *mr;
	uint8_t *memory, *data; /* messages in, messages out, data */
	unsigned turn;
	uint64_t silent, late, held; /* tags of commands that are not answered, or only later; 0: none */
	bool greeted;                /* the unit attention of a new login was reported */
	bool moved;
};

static struct channel channels[CHANNELS];
static uint8_t medium[2 * ODD_BLOCKS * ODD_BLOCK];
static uint64_t blocks = ODD_BLOCKS;
static bool did[16];
static uint32_t syncs;

static void receive_at(struct channel *c, unsigned i)
{
	struct ibv_sge s = {(uintptr_t)(c->memory + (size_t)i * IU), IU, c->mr->lkey};
	struct ibv_recv_wr wr = {.wr_id = i, .sg_list = &s, .num_sge = 1}, *bad;

	CHECK(!ibv_post_recv(c->id->qp, &wr, &bad));
}

#define SENT 100u
#define MOVED 101u

static void say(struct channel *c, const void *message, size_t len)
{
	uint8_t *at = c->memory + (size_t)(RECEIVES + c->turn++ % RECEIVES) * IU;
	struct ibv_sge s = {(uintptr_t)at, (uint32_t)len, c->mr->lkey};
	struct ibv_send_wr wr = {.wr_id = SENT,
	                         .sg_list = &s,
	                         .num_sge = 1,
	                         .opcode = IBV_WR_SEND,
	                         .send_flags = IBV_SEND_SIGNALED},
	                   *bad;

	memcpy(at, message, len);
	ibv_post_send(c->id->qp, &wr, &bad);
}

static void respond_with(struct channel *c, struct sp_rsp *r)
{
	uint8_t out[IU];

	say(c, out, sp_rsp_encode(r, out, sizeof(out)));
}

static void check_condition(struct channel *c, uint64_t tag, uint8_t key, uint8_t asc, uint8_t ascq)
{
	struct sp_rsp r = {
	        .tag = tag, .credits = 1, .status = SC_CHECK_CONDITION, .flags = SP_SENSE_VALID, .sense_len = 18};

	r.sense[0] = 0x70;
	r.sense[2] = key;
	r.sense[12] = asc;
	r.sense[13] = ascq;
	respond_with(c, &r);
}

/* Moves data and waits until it has been. What comes meanwhile is a message that waits in the receive queue. */
static bool move(struct channel *c, const struct sp_buffer *b, bool write, uint32_t len)
{
	struct sp_desc d;
	struct ibv_send_wr *bad;

	CHECK(b->format == SP_DESC_INDIRECT && b->count == 1 && b->whole == 1); /* no other was agreed on */
	sp_desc_decode(b->list, &d);
	CHECK(d.len == b->len && len <= d.len);
	struct ibv_sge s = {(uintptr_t)c->data, len, c->mr->lkey};
	struct ibv_send_wr wr = {.wr_id = MOVED,
	                         .sg_list = &s,
	                         .num_sge = 1,
	                         .send_flags = IBV_SEND_SIGNALED,
	                         .opcode = write ? IBV_WR_RDMA_WRITE : IBV_WR_RDMA_READ,
	                         .wr.rdma = {d.va, d.key}};

	return !ibv_post_send(c->id->qp, &wr, &bad);
}

static void await_move(struct channel *c);

static void give(struct channel *c, const struct sp_cmd *m, const void *data, uint32_t len)
{
	struct sp_rsp r = {.tag = m->tag, .credits = 1};

	len = len < m->in.len ? len : m->in.len;
	memcpy(c->data, data, len);
	if (len < m->in.len) {
		r.flags = SP_IN_UNDER;
		r.in_residual = m->in.len - len;
	}
	CHECK(!len || move(c, &m->in, true, len));
	if (len)
		await_move(c);
	respond_with(c, &r);
}

static bool once(uint64_t lba, uint64_t what)
{
	bool now = lba == what && !did[what - ODD_SILENT];

	if (now)
		did[what - ODD_SILENT] = true;
	return now;
}

/* True: the block is read as any other. */
static bool is_odd(struct channel *c, const struct sp_cmd *m, uint64_t lba)
{
	struct sp_rsp r = {.tag = m->tag, .credits = 1};
	uint8_t out[IU];

	if (once(lba, ODD_SILENT)) {
		c->silent = m->tag;
	} else if (once(lba, ODD_HELD)) {
		c->held = m->tag;
	} else if (once(lba, ODD_BUSY)) {
		r.status = 0x08;
		respond_with(c, &r);
	} else if (lba == ODD_MEDIUM) {
		r.status = SC_CHECK_CONDITION;
		r.flags = SP_SENSE_VALID;
		r.sense_len = 8;
		memcpy(r.sense, (uint8_t[]){0x72, SC_MEDIUM_ERROR, 0x11, 0}, 4);
		respond_with(c, &r);
	} else if (once(lba, ODD_LOGOUT)) {
		sp_short_encode(SP_T_LOGOUT, 0, 7, out);
		say(c, out, SP_SHORT_LEN);
	} else if (lba == ODD_SHORT) {
		give(c, m, medium, 100);
	} else if (once(lba, ODD_NONSENSE)) {
		r.tag = m->tag ^ 0x1;
		respond_with(c, &r);
	} else {
		return false;
	}
	return true;
}

static void tell_of_growth(struct channel *c)
{
	struct sp_target_req r = {.opcode = SP_AER_REQ,
	                          .tag = 9,
	                          .sense = {0x70, [2] = SC_UNIT_ATTENTION, [12] = 0x2a, 9},
	                          .sense_len = 18};
	uint8_t out[IU];

	blocks = 2 * ODD_BLOCKS;
	say(c, out, sp_aer_encode(&r, out, sizeof(out)));
}

static void read_blocks(struct channel *c, const struct sp_cmd *m, uint64_t lba, uint32_t n)
{
	uint8_t out[IU];

	if (lba > blocks || n > blocks - lba) {
		check_condition(c, m->tag, SC_ILLEGAL_REQUEST, 0x21, 0);
		return;
	}
	if (is_odd(c, m, lba))
		return;
	if (once(lba, ODD_GROWS))
		tell_of_growth(c);
	memcpy(c->data, medium + lba * ODD_BLOCK, n * ODD_BLOCK);
	CHECK(move(c, &m->in, true, n * ODD_BLOCK));
	await_move(c);
	bool apart = once(lba, ODD_CREDIT);
	struct sp_rsp r = {.tag = m->tag, .credits = !apart};

	respond_with(c, &r);
	if (apart) {
		sp_short_encode(SP_CRED_REQ, 1, 8, out);
		say(c, out, SP_SHORT_LEN);
	}
}

static void write_blocks(struct channel *c, const struct sp_cmd *m, uint64_t lba, uint32_t n, bool same)
{
	struct sp_rsp r = {.tag = m->tag, .credits = 1};

	CHECK(lba <= blocks && n <= blocks - lba);
	CHECK(move(c, &m->out, false, same ? ODD_BLOCK : n * ODD_BLOCK));
	await_move(c);
	for (uint32_t i = 0; i < n; i++)
		memcpy(medium + (lba + i) * ODD_BLOCK, c->data + (same ? 0 : i * ODD_BLOCK), ODD_BLOCK);
	if (once(lba, ODD_LATE))
		c->late = m->tag;
	else
		respond_with(c, &r);
}

static void inquire(struct channel *c, const struct sp_cmd *m)
{
	uint8_t d[64] = {0};

	if (m->cdb[1] & 1) {
		if (m->cdb[2] != 0xb0) {
			check_condition(c, m->tag, SC_ILLEGAL_REQUEST, 0x24, 0);
			return;
		}
		d[1] = 0xb0;
		d[3] = 60;
		sc_put32(d + 8, 256); /* blocks of a command */
		sc_put64(d + 36, 128);
		give(c, m, d, 64);
		return;
	}
	memcpy(d + 8, "ODD     TARGET          1.0 ", 28);
	give(c, m, d, 36);
}

static void execute(struct channel *c, const struct sp_cmd *m)
{
	struct sp_rsp r = {.tag = m->tag, .credits = 1};
	uint8_t d[32] = {0};

	if (!c->greeted && m->cdb[0] != SC_INQUIRY) {
		c->greeted = true;
		check_condition(c, m->tag, SC_UNIT_ATTENTION, 0x29, 0);
		return;
	}
	switch (m->cdb[0]) {
	case SC_SYNC_CACHE10:
	case SC_SYNC_CACHE16:
		sc_put32(medium + ODD_SYNCS * ODD_BLOCK, ++syncs);
		respond_with(c, &r);
		return;
	case SC_TEST_UNIT_READY:
		respond_with(c, &r);
		return;
	case SC_INQUIRY:
		inquire(c, m);
		return;
	case SC_SERVICE_IN16:
		sc_put64(d, blocks - 1);
		sc_put32(d + 8, ODD_BLOCK);
		give(c, m, d, 32);
		return;
	case SC_READ10:
		read_blocks(c, m, sc_get32(m->cdb + 2), sc_get16(m->cdb + 7));
		return;
	case SC_WRITE10:
		CHECK(!m->cdb[1]); /* MODE SENSE has not said that there is FUA */
		write_blocks(c, m, sc_get32(m->cdb + 2), sc_get16(m->cdb + 7), false);
		return;
	case SC_WRITE_SAME16:
		write_blocks(c, m, sc_get64(m->cdb + 2), sc_get32(m->cdb + 10), true);
		return;
	default:
		check_condition(c, m->tag, SC_ILLEGAL_REQUEST, 0x20, 0);
		return;
	}
}

static void manage(struct channel *c, const struct sp_tsk_mgmt *m)
{
	struct sp_rsp r = {.tag = m->tag, .credits = 2, .flags = SP_RSP_VALID, .code = SP_DONE};
	struct sp_rsp late = {.tag = c->late}, held = {.tag = c->held, .credits = 2};

	CHECK(m->function == SP_ABORT_TASK && m->task_tag && (m->task_tag == c->silent || m->task_tag == c->late));
	if (c->late)
		respond_with(c, &late);
	respond_with(c, &r);
	if (c->held)
		respond_with(c, &held);
	c->silent = c->late = c->held = 0;
}

static void take(struct channel *c, unsigned slot, uint32_t len)
{
	uint8_t copy[IU];
	struct sp_tsk_mgmt t;
	struct sp_cmd m;
	bool valid;

	memcpy(copy, c->memory + (size_t)slot * IU, len);
	receive_at(c, slot);
	switch (copy[0]) {
	case SP_CMD:
		CHECK(sp_cmd_decode(copy, len, 0, &m, &valid) && valid);
		execute(c, &m);
		return;
	case SP_TSK_MGMT:
		CHECK(sp_tsk_mgmt_decode(copy, len, &t));
		manage(c, &t);
		return;
	default:
		CHECK(copy[0] == SP_CRED_RSP || copy[0] == SP_AER_RSP);
		CHECK(len == SP_SHORT_LEN && sc_get64(copy + 8) == (copy[0] == SP_CRED_RSP ? 8 : 9));
	}
}

/* False: nothing came. A message that comes while data moves waits. */
static bool poll_channel(struct channel *c, bool moving, struct ibv_wc *later, unsigned *count)
{
	struct ibv_wc wc;

	if (ibv_poll_cq(c->cq, 1, &wc) < 1)
		return false;
	if (wc.status) {
		c->moved = true; /* it is broken, and its end follows */
		return true;
	}
	if (wc.wr_id == MOVED)
		c->moved = true;
	else if (wc.wr_id < RECEIVES && moving)
		later[(*count)++] = wc;
	else if (wc.wr_id < RECEIVES)
		take(c, (unsigned)wc.wr_id, wc.byte_len);
	return true;
}

static struct ibv_wc later[CHANNELS * RECEIVES];
static struct channel *later_of[CHANNELS * RECEIVES];
static unsigned later_count;

static void await_move(struct channel *c)
{
	struct ibv_wc came[RECEIVES];
	unsigned n = 0;

	c->moved = false;
	while (!c->moved)
		poll_channel(c, true, came, &n);
	for (unsigned i = 0; i < n; i++) {
		later[later_count] = came[i];
		later_of[later_count++] = c;
	}
}

static void serve_later(void)
{
	while (later_count) {
		struct channel *c = later_of[0];
		struct ibv_wc wc = later[0];

		later_count--;
		memmove(later, later + 1, later_count * sizeof(*later));
		memmove(later_of, later_of + 1, later_count * sizeof(*later_of));
		if (c->id)
			take(c, (unsigned)wc.wr_id, wc.byte_len);
	}
}

/* ---- logins ---- */

static void make_channel(struct channel *c, struct rdma_cm_id *id)
{
	size_t size = 2 * RECEIVES * (size_t)IU + DATA;
	struct ibv_qp_init_attr q = {
	        .qp_type = IBV_QPT_RC,
	        .cap = {.max_send_wr = 64, .max_recv_wr = RECEIVES, .max_send_sge = 1, .max_recv_sge = 1}};

	*c = (struct channel){.id = id, .memory = calloc(1, size)};
	CHECK(c->memory && (c->pd = ibv_alloc_pd(id->verbs)));
	c->data = c->memory + 2 * RECEIVES * IU;
	CHECK((c->mr = ibv_reg_mr(c->pd, c->memory, size, IBV_ACCESS_LOCAL_WRITE)));
	CHECK((q.send_cq = q.recv_cq = c->cq = ibv_create_cq(id->verbs, 128, NULL, NULL, 0)));
	CHECK(!rdma_create_qp(id, c->pd, &q));
	for (unsigned i = 0; i < RECEIVES; i++)
		receive_at(c, i);
}

static void log_in(struct rdma_cm_id *id, const struct sp_login *l)
{
	struct sp_login_rej rej = {.tag = l->tag, .reason = SP_REJ_IU_LENGTH};
	struct sp_login_rsp rsp = {
	        .tag = l->tag, .credits = CREDITS, .to_target = IU, .to_initiator = IU, .formats = SP_FORMAT_INDIRECT};
	uint8_t said[SP_LOGIN_RSP_LEN];
	struct rdma_conn_param p = {.private_data = said,
	                            .private_data_len = SP_LOGIN_RSP_LEN,
	                            .responder_resources = 4,
	                            .initiator_depth = 4,
	                            .rnr_retry_count = 7};
	unsigned i = 0;

	if (l->iu_len > IU) {
		sp_login_rej_encode(&rej, said);
		rdma_reject(id, said, SP_LOGIN_REJ_LEN);
		rdma_destroy_id(id);
		return;
	}
	while (channels[i].id)
		CHECK(++i < CHANNELS);
	make_channel(&channels[i], id);
	id->context = &channels[i];
	sp_login_rsp_encode(&rsp, said);
	CHECK(!rdma_accept(id, &p));
}

static void end_channel(struct channel *c)
{
	rdma_disconnect(c->id);
	rdma_destroy_qp(c->id);
	ibv_destroy_cq(c->cq);
	ibv_dereg_mr(c->mr);
	ibv_dealloc_pd(c->pd);
	rdma_destroy_id(c->id);
	free(c->memory);
	c->id = NULL;
}

static void take_cm(struct rdma_event_channel *events)
{
	struct rdma_cm_event *e;
	struct sp_login l = {0};

	if (rdma_get_cm_event(events, &e))
		return;
	enum rdma_cm_event_type what = e->event;
	struct rdma_cm_id *id = e->id;

	if (what == RDMA_CM_EVENT_CONNECT_REQUEST)
		CHECK(sp_login_decode(e->param.conn.private_data, e->param.conn.private_data_len, &l));
	rdma_ack_cm_event(e);
	if (what == RDMA_CM_EVENT_CONNECT_REQUEST)
		log_in(id, &l);
	else if (id->context && what == RDMA_CM_EVENT_DISCONNECTED)
		end_channel(id->context);
}

_Noreturn void odd_target(int fd)
{
	struct rdma_event_channel *events = rdma_create_event_channel();
	struct sockaddr_in a = {.sin_family = AF_INET, .sin_addr.s_addr = htonl(INADDR_LOOPBACK)};
	struct rdma_cm_id *listener;
	struct ibv_wc none[1];
	unsigned n = 0;

	CHECK(events && !fcntl(events->fd, F_SETFL, O_NONBLOCK));
	CHECK(!rdma_create_id(events, &listener, NULL, RDMA_PS_TCP) &&
	      !rdma_bind_addr(listener, (struct sockaddr *)&a));
	CHECK(!rdma_listen(listener, 16));
	uint16_t port = ntohs(rdma_get_src_port(listener));

	CHECK(write(fd, &port, sizeof(port)) == sizeof(port));
	for (;;) {
		bool any = false;

		take_cm(events);
		for (unsigned i = 0; i < CHANNELS; i++)
			any |= channels[i].id && poll_channel(&channels[i], false, none, &n);
		serve_later();
		if (!any)
			usleep(100);
	}
}
