// client_hostile_rdma.c - the initiator against an RDMA target that violates the protocol: requests end, and no byte
// beside their buffers changes
// follows: NVMe over Fabrics 1.1, 7.3 (RDMA transport)
// SPDX-License-Identifier: MIT
// usage: client_hostile_rdma [ADDRESS [DISK [PLUGIN]]]   DISK: verbena-disk; PLUGIN: of nbdkit
#include <arpa/inet.h>
#include <errno.h>
#include <pthread.h>
#include <rdma/rdma_cma.h>
#include <unistd.h>

#include "../../support/check.h"
#include "client/verbena_nvme.h"
#include "client_load.h"
#include "nvme/nvme.h"

#define NQN "nqn.2026-01.test:hostile"
#define BLOCK 512u
#define BLOCKS 1024u
#define GUARD 4096u
#define BUFFER 65536u
#define CAPSULES 64
#define CAPSULE 256u

enum how {
	HONEST,
	/* before the first command is answered */
	ACCEPT_FORMAT,
	REJECTS,
	NEVER_ACCEPTS,
	LEAVES_AT_ONCE,
	LEAVES_AT_CONNECT,
	SILENT,
	/* in answers to reads */
	CID,
	SHORT,
	LONG,
	EMPTY,
	TWICE,
	RANDOM,
	INVALIDATE,
	IMMEDIATE,
	WRITE_BEYOND,
	WRITE_BEFORE,
	WRITE_KEY,
	READ_KEY,
	ATOMIC,
	NO_ANSWER,
	LEAVE,
	HOWS
};

static const char *address = "127.0.0.1";
static enum how how;
static unsigned port;
static uint64_t seed = 77;
static bool large;                /* block size; the target reports success without reading */
static uint8_t taken[2 * BUFFER]; /* place of the last write */
static unsigned held_ms;          /* delay of the answer to Connect on the admin queue */

struct conn {
	struct rdma_cm_id *id;
	struct ibv_cq *cq;
	struct ibv_comp_channel *channel;
	struct ibv_mr *mr;
	uint16_t qid;
	uint8_t capsules[CAPSULES][CAPSULE];
	uint8_t data[2 * BUFFER];
	uint8_t answers[CAPSULES][64];
	unsigned next;
};

static void receive(struct conn *c, uint64_t i)
{
	struct ibv_sge s = {(uintptr_t)c->capsules[i], CAPSULE, c->mr->lkey};
	struct ibv_recv_wr w = {.wr_id = i, .sg_list = &s, .num_sge = 1}, *bad;

	ibv_post_recv(c->id->qp, &w, &bad); /* the connection may have ended */
}

static void post(struct conn *c, enum ibv_wr_opcode opcode, void *at, uint32_t len, uint64_t remote, uint32_t key)
{
	struct ibv_sge s = {(uintptr_t)at, len, c->mr->lkey};
	struct ibv_send_wr w = {.wr_id = CAPSULES, .sg_list = &s, .num_sge = len ? 1 : 0, .opcode = opcode}, *bad;

	if (opcode == IBV_WR_ATOMIC_FETCH_AND_ADD) {
		w.wr.atomic.remote_addr = remote;
		w.wr.atomic.rkey = key;
		w.wr.atomic.compare_add = 1;
	} else if (opcode == IBV_WR_SEND_WITH_INV) {
		w.invalidate_rkey = key;
	} else {
		w.wr.rdma.remote_addr = remote;
		w.wr.rdma.rkey = key;
	}
	ibv_post_send(c->id->qp, &w, &bad);
}

static uint8_t *cqe(struct conn *c, uint16_t cid, uint64_t result)
{
	uint8_t *at = c->answers[c->next++ % CAPSULES];
	struct nv_cqe e = {.cid = cid, .result = result, .sqid = c->qid};

	memset(at, 0, 64);
	nv_cqe_encode(&e, at);
	return at;
}

static void answer(struct conn *c, uint16_t cid, uint64_t result)
{
	post(c, IBV_WR_SEND, cqe(c, cid, result), NV_CQE_LEN, 0, 0);
}

/* ---- a working target ---- */

static void identify(struct conn *c, const struct nv_sqe *s)
{
	uint8_t *d = c->data;

	memset(d, 0, 4096);
	switch (s->cdw[0] & 0xff) {
	case NV_CNS_CTRL:
		nv_put32(d + 1792, 4); /* no data in capsules */
		break;
	case NV_CNS_NS:
		nv_put64(d, BLOCKS);
		nv_put32(d + 128, (large ? 16u : 9u) << 16);
		break;
	case NV_CNS_ACTIVE:
		nv_put32(d, 1);
		break;
	default:
		break;
	}
	post(c, IBV_WR_RDMA_WRITE, d, 4096, s->sgl.address, s->sgl.key);
	answer(c, s->cid, 0);
}

static void admin(struct conn *c, const struct nv_sqe *s)
{
	uint64_t result = 0;

	if (s->opcode == NV_ADMIN_IDENTIFY) {
		identify(c, s);
		return;
	}
	if (s->opcode == NV_FABRICS && s->fctype == NV_FCT_CONNECT) {
		c->qid = (uint16_t)(s->cdw[0] >> 16);
		result = 1;
		if (how == SILENT)
			return;
		usleep(c->qid ? 0 : held_ms * 1000);
		if (how == LEAVES_AT_CONNECT) {
			rdma_disconnect(c->id);
			return;
		}
	}
	if (s->opcode == NV_FABRICS && s->fctype == NV_FCT_PROPERTY_GET)
		result = s->cdw[1] == NV_PROP_CAP ? 63 | 1u << 24 | 1ull << 37 : NV_CSTS_RDY;
	answer(c, s->cid, result);
}

/* ---- violations ---- */

static void misread(struct conn *c, const struct nv_sqe *s, uint32_t length)
{
	const struct nv_sgl *g = &s->sgl;
	uint8_t *a = cqe(c, s->cid, 0);

	switch (how) {
	case CID:
		answer(c, s->cid ^ 0x8000, 0);
		break;
	case SHORT:
		post(c, IBV_WR_SEND, a, 8, 0, 0);
		break;
	case LONG:
		post(c, IBV_WR_SEND, a, 64, 0, 0);
		break;
	case EMPTY:
		post(c, IBV_WR_SEND, a, 0, 0, 0);
		break;
	case TWICE:
		answer(c, s->cid, 0);
		answer(c, s->cid, 0);
		break;
	case RANDOM:
		for (unsigned i = 0; i < NV_CQE_LEN; i++)
			a[i] = (uint8_t)draw(&seed);
		post(c, IBV_WR_SEND, a, NV_CQE_LEN, 0, 0);
		break;
	case INVALIDATE:
		post(c, IBV_WR_SEND_WITH_INV, a, NV_CQE_LEN, 0, g->key ^ 0xff00);
		break;
	case IMMEDIATE:
		post(c, IBV_WR_RDMA_WRITE_WITH_IMM, c->data, length, g->address, g->key);
		break;
	case WRITE_BEYOND:
		post(c, IBV_WR_RDMA_WRITE, c->data, 8, g->address + length - 4, g->key);
		break;
	case WRITE_BEFORE:
		post(c, IBV_WR_RDMA_WRITE, c->data, 8, g->address - 4, g->key);
		break;
	case WRITE_KEY:
		post(c, IBV_WR_RDMA_WRITE, c->data, length, g->address, g->key ^ 1);
		break;
	case READ_KEY:
		post(c, IBV_WR_RDMA_READ, c->data, length, g->address, g->key ^ 1);
		break;
	case ATOMIC:
		post(c, IBV_WR_ATOMIC_FETCH_AND_ADD, c->data, 8, g->address, g->key);
		break;
	case NO_ANSWER:
		break;
	case LEAVE:
		rdma_disconnect(c->id);
		break;
	default:
		post(c, IBV_WR_RDMA_WRITE, c->data, length, g->address, g->key);
		answer(c, s->cid, 0);
		break;
	}
}

/* Checks written data once it has arrived; the answer waits for that. */
static void fetch(struct conn *c, const struct nv_sqe *s, uint32_t length)
{
	struct ibv_sge at = {(uintptr_t)c->data, length, c->mr->lkey},
	               said = {(uintptr_t)cqe(c, s->cid, 0), NV_CQE_LEN, c->mr->lkey};
	struct ibv_send_wr w = {.wr_id = CAPSULES,
	                        .sg_list = &said,
	                        .num_sge = 1,
	                        .opcode = IBV_WR_SEND,
	                        .send_flags = IBV_SEND_FENCE},
	                   read = {.wr_id = CAPSULES,
	                           .next = &w,
	                           .sg_list = &at,
	                           .num_sge = 1,
	                           .opcode = IBV_WR_RDMA_READ,
	                           .wr.rdma = {.remote_addr = s->sgl.address, .rkey = s->sgl.key}},
	                   *bad;

	CHECK(length <= sizeof(c->data));
	ibv_post_send(c->id->qp, &read, &bad);
}

static void command(struct conn *c, const struct nv_sqe *s)
{
	uint32_t length = ((s->cdw[2] & 0xffff) + 1) * (large ? BUFFER : BLOCK);

	if (!c->qid || s->opcode == NV_FABRICS)
		admin(c, s);
	else if (large && s->opcode == NV_IO_WRITE)
		fetch(c, s, length);
	else if (large)
		answer(c, s->cid, 0);
	else if (s->opcode == NV_IO_READ && length <= BUFFER)
		misread(c, s, length);
	else
		answer(c, s->cid, 0);
}

static void *serve(void *arg)
{
	struct conn *c = arg;
	struct ibv_wc w;
	bool over = false;

	while (!over) {
		if (!ibv_poll_cq(c->cq, 1, &w)) {
			usleep(200);
			continue;
		}
		if (w.status) {
			over = true;
		} else if (w.opcode == IBV_WC_RDMA_READ) {
			memcpy(taken, c->data, sizeof(taken));
		} else if (w.wr_id < CAPSULES) {
			struct nv_sqe s = nv_sqe_decode(c->capsules[w.wr_id]);

			receive(c, w.wr_id);
			command(c, &s);
		}
	}
	rdma_disconnect(c->id);
	return NULL; /* its memory remains: there are only few targets */
}

static void accept_one(struct rdma_cm_id *id)
{
	struct conn *c = calloc(1, sizeof(*c));
	uint8_t private[32] = {how == ACCEPT_FORMAT};
	struct rdma_conn_param p = {.private_data = private,
	                            .private_data_len = sizeof(private),
	                            .responder_resources = 1,
	                            .initiator_depth = 1,
	                            .rnr_retry_count = 7};
	struct ibv_qp_init_attr a = {
	        .qp_type = IBV_QPT_RC,
	        .sq_sig_all = 1,
	        .cap = {.max_send_wr = CAPSULES, .max_recv_wr = CAPSULES, .max_send_sge = 1, .max_recv_sge = 1}};
	pthread_t t;

	if (how == REJECTS) {
		for (unsigned i = 0; i < sizeof(private); i++)
		private[i] = (uint8_t)draw(&seed);
		rdma_reject(id, private, sizeof(private));
		return;
	}
	if (how == NEVER_ACCEPTS)
		return;
	CHECK(c);
	c->id = id;
	c->cq = ibv_create_cq(id->verbs, 4 * CAPSULES, NULL, NULL, 0);
	CHECK(c->cq);
	a.send_cq = a.recv_cq = c->cq;
	SAME(rdma_create_qp(id, NULL, &a), 0);
	c->mr = ibv_reg_mr(id->pd, c, sizeof(*c), IBV_ACCESS_LOCAL_WRITE);
	CHECK(c->mr);
	for (uint64_t i = 0; i < CAPSULES; i++)
		receive(c, i);
	SAME(rdma_accept(id, &p), 0);
	if (how == LEAVES_AT_ONCE)
		rdma_disconnect(id);
	CHECK(!pthread_create(&t, NULL, serve, c));
	pthread_detach(t);
}

static void *events(void *channel)
{
	struct rdma_cm_event *e;

	while (!rdma_get_cm_event(channel, &e)) {
		struct rdma_cm_id *id = e->id;
		enum rdma_cm_event_type type = e->event;

		rdma_ack_cm_event(e);
		if (type == RDMA_CM_EVENT_CONNECT_REQUEST)
			accept_one(id);
		else if (type == RDMA_CM_EVENT_DISCONNECTED)
			rdma_disconnect(id);
	}
	return NULL;
}

static void start(void)
{
	struct rdma_event_channel *channel = rdma_create_event_channel();
	struct sockaddr_in a = {.sin_family = AF_INET};
	struct rdma_cm_id *id;
	pthread_t t;

	CHECK(channel && inet_pton(AF_INET, address, &a.sin_addr) == 1);
	SAME(rdma_create_id(channel, &id, NULL, RDMA_PS_TCP), 0);
	SAME(rdma_bind_addr(id, (struct sockaddr *)&a), 0);
	SAME(rdma_listen(id, 16), 0);
	port = ntohs(rdma_get_src_port(id));
	CHECK(!pthread_create(&t, NULL, events, channel));
}

/* ---- tests ---- */

static uint8_t memory[GUARD + BUFFER + GUARD];

static int open_it(struct vn_disk **d, unsigned io_ms)
{
	struct vn_options o;
	char url[200];

	vn_options_init(&o);
	o.numeric = 1;
	o.reconnect_ms = 0;
	o.queue_depth = 16;
	o.connect_ms = how == NEVER_ACCEPTS || how == SILENT ? 700 : 20000;
	o.io_ms = io_ms;
	snprintf(url, sizeof(url), "nvme+rdma://%s:%u/" NQN, address, port);
	return vn_open(url, &o, d, NULL, 0);
}

static void an_honest_target_is_understood(void)
{
	struct vn_disk *d;

	SAME(open_it(&d, 0), 0);
	SAME(vn_info(d)->size, BLOCKS * BLOCK);
	SAME(vn_read_wait(d, memory + GUARD, BUFFER, 0), 0);
	SAME(vn_read_wait(d, memory + GUARD, BLOCK, 0), 0);
	SAME(vn_write_wait(d, memory + GUARD, BLOCK, 0, 0), 0);
	vn_close(d);
}

static void a_target_that_does_not_answer_as_it_should_is_not_connected_to(void)
{
	struct vn_disk *d;

	for (how = ACCEPT_FORMAT; how < CID; how++)
		if (!open_it(&d, 0)) {
			fprintf(stderr, "connected to misbehaviour %d\n", how);
			exit(1);
		}
	how = HONEST;
}

/* length: copied by the library, or read directly by the target */
static void request(enum how what, uint32_t length)
{
	struct vn_disk *d;
	int e;

	memset(memory, 0xa5, sizeof(memory));
	how = HONEST;
	for (int tries = 0; (e = open_it(&d, 500)) && tries < 20; tries++)
		; /* some violations only show as a missing answer; an honest answer may be late, too */
	SAME(e, 0);
	how = what;
	e = vn_read_wait(d, memory + GUARD, length, 0);
	how = HONEST;
	/* a valid answer, and then an additional one: the first may be noticed alone */
	if (e != -ENOTCONN && !(what == TWICE && !e)) {
		fprintf(stderr, "misbehaviour %d, %u bytes: %d\n", what, length, e);
		exit(1);
	}
	vn_close(d);
	for (unsigned i = 0; i < sizeof(memory); i++)
		CHECK(memory[i] == 0xa5 || (i >= GUARD && i < GUARD + length));
}

static void misbehaviour_ends_the_connection_and_the_request(void)
{
	for (enum how h = CID; h < HOWS; h++) {
		request(h, BUFFER);
		request(h, BLOCK);
	}
}

static void random_answers_do_no_harm(void)
{
	for (int i = 0; i < 20; i++)
		request(RANDOM, BUFFER);
}

/* Longer than rdma_ms, which only limits reaching the target. */
static void a_connect_that_is_held_back_does_not_end_rdma(void)
{
	struct vn_options o;
	struct vn_disk *d;
	char url[200], why[200] = "";
	int e = -1;

	vn_options_init(&o);
	o.numeric = 1;
	o.reconnect_ms = 0;
	o.queue_depth = 16;
	o.connect_ms = 60000;
	o.rdma_ms = 2000;
	held_ms = 2500;
	/* no target listens on TCP. On a very busy machine the rest may take too long, too */
	snprintf(url, sizeof(url), "nvme+auto://%s:%u/" NQN, address, port);
	for (unsigned tries = 0; e && tries < 10; tries++)
		e = vn_open(url, &o, &d, why, sizeof(why));
	if (e)
		fprintf(stderr, "%s\n", why);
	SAME(e, 0);
	CHECK(!strcmp(vn_transport_name(d), "rdma"));
	SAME(vn_read_wait(d, memory + GUARD, BLOCK, 0), 0);
	vn_close(d);
	held_ms = 0;
}

/* Around the written bytes is data that was read and never written: zeroes, and not the previous content of the
 * heap. */
static void writes(const char *command, uint32_t at, uint32_t length)
{
	memset(taken, 1, sizeof(taken));
	large = true;
	SAME(system(command), 0);
	large = false;
	for (uint32_t i = 0; i < BUFFER; i++)
		SAME(taken[i], i >= at && i < at + length ? 0x42 : 0);
}

static const char *disk_program, *plugin;

static void a_tool_does_not_send_its_heap(void)
{
	char line[800];

	snprintf(
	        line, sizeof(line),
	        "head -c 100 /dev/zero | tr '\\0' B | MALLOC_PERTURB_=90 timeout 60 '%s' --quiet write nvme+rdma://%s:%u/" NQN,
	        disk_program, address, port);
	writes(line, 0, 100);
}

static void nor_does_the_plugin(void)
{
	char line[1000];

	snprintf(line, sizeof(line),
	         "MALLOC_PERTURB_=90 timeout 60 nbdkit -U - '%s' url=nvme+rdma://%s:%u/" NQN
	         " --run 'qemu-io -f raw -c \"write -P 0x42 100 40000\" \"$uri\"' >/dev/null",
	         plugin, address, port);
	writes(line, 100, 40000);
}

int main(int argc, char **argv)
{
	setvbuf(stdout, NULL, _IOLBF, 0);
	if (argc > 1)
		address = argv[1];
	start();
	RUN(an_honest_target_is_understood);
	RUN(a_target_that_does_not_answer_as_it_should_is_not_connected_to);
	RUN(a_connect_that_is_held_back_does_not_end_rdma);
	RUN(misbehaviour_ends_the_connection_and_the_request);
	RUN(random_answers_do_no_harm);
	disk_program = argc > 2 ? argv[2] : NULL;
	plugin = argc > 3 ? argv[3] : NULL;
	if (disk_program)
		RUN(a_tool_does_not_send_its_heap);
	if (plugin && !system("command -v nbdkit qemu-io >/dev/null"))
		RUN(nor_does_the_plugin);
	else
		puts("skip nor_does_the_plugin: nbdkit, its plugin or qemu-io is not there");
	return 0;
}
