// fuzz_srp_client.c - a hostile SRP target: any messages at a channel with commands outstanding, and any data that
// describes a unit. Each command ends at most once, and nothing is read beside what came
// follows: SRP (ANSI INCITS 365, T10/1415-D); SPC-4; SBC-3
// SPDX-License-Identifier: MIT
#include <stdlib.h>

#include "client/srp.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

#define COMMANDS 8u
#define ANSWERS (COMMANDS + 1 + VN_SRP_OWN)

static const uint8_t *in;
static size_t left;

static void need(bool ok)
{
	if (!ok)
		abort();
}

static uint8_t next8(void)
{
	return left ? left--, *in++ : 0;
}

static size_t next_bytes(void *to, size_t n)
{
	n = n < left ? n : left;
	memcpy(to, in, n);
	in += n;
	left -= n;
	return n;
}

/* ---- an adapter that says that it does everything ---- */

static unsigned sent_own;

static int post_send(struct ibv_qp *qp, struct ibv_send_wr *wr, struct ibv_send_wr **bad)
{
	for (; wr; wr = wr->next)
		sent_own += !!(wr->wr_id & VN_RDMA_OWN);
	return 0;
}

static int post_receive(struct ibv_qp *qp, struct ibv_recv_wr *wr, struct ibv_recv_wr **bad)
{
	return 0;
}

static struct ibv_context context = {.ops = {.post_send = post_send, .post_recv = post_receive}};
static struct ibv_qp qp = {.context = &context};
static struct rdma_cm_id id = {.verbs = &context, .qp = &qp};
static struct ibv_mr mr = {.lkey = 1, .rkey = 2};

/* ---- a channel ---- */

static struct vn_srp_queue *make_channel(void)
{
	struct vn_srp_queue *s = calloc(1, sizeof(*s));
	const struct vn_rdma_binding *b = &vn_srp_binding;

	need(s && !vn_queue_init(&s->r.q, &vn_srp, 1, COMMANDS));
	s->r.binding = b;
	s->r.id = &id;
	s->r.mr = &mr;
	s->r.capsule_size = 512;
	s->r.memory = calloc(1, s->r.capsule_size * (COMMANDS + b->extra) + b->spare);
	s->r.answers = calloc(ANSWERS, b->answer);
	need(s->r.memory && s->r.answers);
	s->r.spare = s->r.memory + s->r.capsule_size * (COMMANDS + b->extra);
	s->waiting_end = &s->waiting;
	s->login.formats = next8() & 6;
	s->immediate = next8() & 1;
	uint8_t cache = next8();

	s->cached = cache & 1;
	s->fua = cache & 2;
	s->r.q.inline_max = s->immediate ? 256 : 0;
	s->block = 512;
	s->credits = next8() % 8;
	return s;
}

static struct vn_cmd commands[COMMANDS];
static uint8_t buffer[512];
static struct vn_memory memory = {.address = buffer, .length = sizeof(buffer), .mr = &mr};

static void submit_one(struct vn_srp_queue *s)
{
	static const uint8_t opcodes[] = {NV_IO_READ, NV_IO_WRITE, NV_IO_WRITE_ZEROES, NV_IO_DSM, NV_IO_FLUSH};
	unsigned i = next8() % COMMANDS;
	struct vn_cmd *c = &commands[i];

	if (c->memory && !c->done)
		return;
	*c = (struct vn_cmd){.memory = &memory, .sqe = {.opcode = opcodes[next8() % 5], .cdw = {next8(), 0, next8()}}};
	c->sqe.cdw[2] |= next8() & 1 ? 1u << 30 : 0;
	if (c->sqe.opcode == NV_IO_READ || c->sqe.opcode == NV_IO_WRITE) {
		c->way = c->sqe.opcode == NV_IO_READ ? VN_FROM_TARGET : VN_TO_TARGET;
		c->data = buffer;
		c->length = next8() & 1 ? 128 : 512;
	}
	vn_queue_submit(&s->r.q, c);
}

static void deliver(struct vn_srp_queue *s)
{
	static const uint8_t kinds[] = {SP_RSP, SP_RSP, SP_RSP, SP_CRED_REQ, SP_AER_REQ, SP_T_LOGOUT};
	uint8_t *at = s->r.answers, kind = next8();
	uint32_t len = (uint32_t)(next8() | next8() << 8) % (VN_SRP_ANSWER + 1);

	memset(at, 0, VN_SRP_ANSWER);
	if (kind & 0x80) { /* one that is right for a command, with little else */
		at[0] = kinds[kind % 6];
		at[7] = next8() & 3;
		at[18] = next8();
		at[19] = next8() & 1 ? SC_CHECK_CONDITION : 0;
		at[31] = next8();
		at[35] = next8();
		sc_put64(at + 8, kind & 0x40 ? s->managements | 1ull << 32 : commands[next8() % COMMANDS].cid);
		next_bytes(at + SP_RSP_LEN, next8());
	} else {
		next_bytes(at, len);
	}
	vn_srp_binding.received(&s->r, 0, len);
}

static void finish_send(struct vn_srp_queue *s)
{
	struct vn_cmd *c = &commands[next8() % COMMANDS];

	if (c->memory && !c->done && c->scsi.sent && !c->rdma.send_done) {
		c->rdma.send_done = true;
		vn_rdma_maybe_over(&s->r, c);
	}
}

static void run_channel(void)
{
	struct vn_srp_queue *s = make_channel();

	memset(commands, 0, sizeof(commands));
	while (left && !s->r.q.error) {
		switch (next8() % 5) {
		case 0:
			submit_one(s);
			break;
		case 1:
			finish_send(s);
			break;
		case 2:
			vn_srp_binding.sent(&s->r, next8() % VN_SRP_OWN);
			break;
		case 3: {
			struct vn_cmd *c = &commands[next8() % COMMANDS];

			if (c->memory && !c->done)
				vn_srp.abort(&s->r.q, c, 1000, 100);
			break;
		}
		default:
			deliver(s);
			break;
		}
		unsigned busy = 0;

		for (unsigned i = 0; i < COMMANDS; i++)
			busy += commands[i].memory && !commands[i].done;
		need(busy == s->r.q.busy && s->on_way <= busy);
		vn_rdma_kick(&s->r.q);
	}
	vn_queue_fini(&s->r.q);
	free(s->r.memory);
	free(s->r.answers);
	free(s);
}

/* ---- logins, and what a unit says of itself: in memory of exactly the size ---- */

static void describe_unit(void)
{
	uint8_t kind = next8(), *exact = malloc(left ? left : 1);
	struct vn_unit u = {.block = 512};
	struct vn_info info = {0};
	struct vn_limits lim = {0};
	uint16_t luns[VN_SCSI_LUNS_MAX];
	size_t n = left;

	need(exact);
	next_bytes(exact, n);
	switch (kind % 9) {
	case 0:
		vn_scsi_inquiry(exact, n, &info);
		break;
	case 1:
		vn_scsi_serial(exact, n, &info);
		break;
	case 2:
		vn_scsi_designators(exact, n, &u);
		break;
	case 3:
		vn_scsi_limits(exact, n, &u);
		break;
	case 4:
		vn_scsi_provisioning(exact, n, &u);
		break;
	case 5:
		vn_scsi_mode(exact, n, &u);
		break;
	case 6:
		need(!vn_scsi_capacity(exact, n, &u) || (u.blocks && u.blocks <= (uint64_t)INT64_MAX / u.block));
		break;
	case 7:
		need(vn_scsi_luns(exact, n, luns) <= VN_SCSI_LUNS_MAX);
		break;
	default: {
		char why[120];
		struct vn_srp_queue s = {.r = {.q = {.qid = 1}}};
		struct vn_link l = {.why = why};

		if (!vn_srp_accepted(&l, &s.r, exact, n))
			need(s.r.q.inline_max <= 8192 && s.credits <= VN_SRP_CREDITS_MAX);
		vn_srp_rejected(&l, &s.r, exact, n);
		break;
	}
	}
	vn_scsi_describe(&u, &info, &lim);
	need(strlen(info.model) < sizeof(info.model) && strlen(info.serial) < sizeof(info.serial));
	free(exact);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
	in = data;
	left = size;
	if (next8() & 3)
		run_channel();
	else
		describe_unit();
	return 0;
}
