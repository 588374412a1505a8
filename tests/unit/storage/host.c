// host.c - a host without a network, and a backend controlled by the test
// see: target/target.h
// SPDX-License-Identifier: MIT
#include "host.h"

struct nt_target target;
struct nt_port port = {.trtype = NV_TRTYPE_LOOP, .adrfam = NV_ADRFAM_IPV4, .address = "192.0.2.1", .service = "4420"};
struct nt_subsystem *subsystem;

void target_open(uint32_t memory)
{
	SAME(nt_target_init(&target, memory), 0);
	target.now = 1000;
	nt_port_add(&target, &port);
	subsystem = nt_subsystem_add(&target, SUBNQN);
	CHECK(subsystem);
	subsystem->any_host = true;
}

void target_close(void)
{
	SAME(nt_pool_used(target.pool), 0);
	nt_target_fini(&target);
}

/* ---- the medium ---- */

static void medium_do(struct medium *m, struct nb_request *r)
{
	if (!m->error && !(m->unknown & 1u << r->op)) {
		if (r->op == NB_READ)
			memcpy(r->data, m->bytes + r->offset, r->length);
		else if (r->op == NB_WRITE)
			memcpy(m->bytes + r->offset, r->data, r->length);
		else if (r->op != NB_FLUSH)
			memset(m->bytes + r->offset, 0, r->length);
	}
	r->done(r, m->error ? m->error : m->unknown & 1u << r->op ? 95 /* EOPNOTSUPP */ : 0);
}

static void medium_submit(struct nb_backend *b, struct nb_request *r)
{
	struct medium *m = (struct medium *)b;

	CHECK(r->offset + r->length <= b->size);
	m->count[r->op]++;
	m->fua = r->fua;
	if (!m->slow) {
		medium_do(m, r);
		return;
	}
	r->next = NULL;
	*m->end = r;
	m->end = &r->next;
}

static int medium_resize(struct nb_backend *b, uint64_t size)
{
	b->size = size;
	return 0;
}

static void medium_close(struct nb_backend *b)
{
	struct medium *m = (struct medium *)b;

	CHECK(!m->first);
	m->closed = true; /* the test frees it */
}

static const struct nb_kind medium_kind = {
        .name = "medium", .submit = medium_submit, .resize = medium_resize, .close = medium_close};

struct medium *medium_open(uint64_t size, uint32_t block)
{
	struct medium *m = calloc(1, sizeof(*m));

	CHECK(m && (m->bytes = calloc(1, size)));
	m->b = (struct nb_backend){.kind = &medium_kind,
	                           .size = size,
	                           .block = block,
	                           .volatile_cache = true,
	                           .zeros_after_discard = true};
	m->end = &m->first;
	return m;
}

struct nt_namespace *medium_add(struct medium *m, uint32_t nsid)
{
	struct nt_namespace *ns = nt_namespace_add(subsystem, nsid, &m->b, NULL);

	CHECK(ns);
	return ns;
}

void medium_go(struct medium *m)
{
	while (m->first) {
		struct nb_request *r = m->first;

		if (!(m->first = r->next))
			m->end = &m->first;
		medium_do(m, r);
	}
}

/* ---- the transport ---- */

static struct host *host_of(struct nt_queue *q)
{
	return (struct host *)(void *)q;
}

static void fetch(struct nt_request *r)
{
	struct host *h = host_of(r->queue);

	SAME(r->state, NT_FETCH);
	CHECK(r->data && r->length <= sizeof(h->out));
	if (h->hold_data && !r->in_capsule) {
		h->fetching[h->fetch_count++] = r;
		return;
	}
	memcpy(r->data, h->out, r->length);
	nt_fetched(r, 0);
}

static void respond(struct nt_request *r)
{
	struct host *h = host_of(r->queue);

	SAME(r->state, NT_RESPOND);
	CHECK(h->count < ANSWERS);
	h->answers[h->count++] = (struct answer){.cid = r->cqe.cid,
	                                         .status = r->cqe.status,
	                                         .sqhd = r->cqe.sqhd,
	                                         .result = r->cqe.result,
	                                         .data = r->send,
	                                         .length = r->send ? r->length : 0};
	if (r->send)
		memcpy(h->in, r->data, r->length);
	h->unreleased[h->unreleased_count++] = r;
}

static void ask_to_close(struct nt_queue *q)
{
	host_of(q)->asked_to_close = true;
}

static void gone(struct nt_queue *q)
{
	CHECK(!host_of(q)->gone);
	host_of(q)->gone = true;
}

static const struct nt_ops ops = {.name = "test",
                                  .trtype = NV_TRTYPE_LOOP,
                                  .fetch = fetch,
                                  .respond = respond,
                                  .close = ask_to_close,
                                  .gone = gone};

/* Queues are large: a closed one is used again, like a new one except for its buffers. */
static struct host *spare[8];
static unsigned spares;

struct host *host_open(void)
{
	struct host *h = spares ? spare[--spares] : calloc(1, sizeof(*h));

	CHECK(h);
	memset(h, 0, offsetof(struct host, in));
	nt_queue_open(&h->q, &target, &ops, &port, 8192, "192.0.2.1");
	CHECK(nt_peer_join(&h->q, NULL));
	return h;
}

void host_close(struct host *h)
{
	h->unreleased_count = 0;
	nt_queue_close(&h->q);
	CHECK(h->gone);
	if (spares < sizeof(spare) / sizeof(*spare))
		spare[spares++] = h;
	else
		free(h);
}

void host_settle(struct host *h)
{
	while (h->unreleased_count && !h->hold_answers)
		nt_release(h->unreleased[--h->unreleased_count]);
}

/* ---- commands ---- */

struct nv_sgl by_transport(uint32_t length)
{
	return (struct nv_sgl){.type = NV_SGL_TRANSPORT, .subtype = NV_SGL_TRANSPORT_SPECIFIC, .length = length};
}

struct nv_sgl in_capsule(uint32_t length)
{
	return (struct nv_sgl){.type = NV_SGL_DATA, .subtype = NV_SGL_OFFSET, .length = length};
}

uint16_t host_post(struct host *h, struct nv_sqe c, uint32_t capsule)
{
	uint8_t sqe[NV_SQE_LEN];
	struct nt_request *r;

	c.cid = h->next_cid++;
	c.psdt = c.psdt ? c.psdt - 1 : NV_PSDT_SGL;
	nv_sqe_encode(&c, sqe);
	CHECK(nt_command(&h->q, sqe, capsule, &r));
	host_settle(h);
	return c.cid;
}

const struct answer *host_answer(const struct host *h, uint16_t cid)
{
	for (uint32_t i = h->count; i--;)
		if (h->answers[i].cid == cid)
			return &h->answers[i];
	return NULL;
}

struct answer host_do(struct host *h, struct nv_sqe c)
{
	uint32_t capsule = c.sgl.type == NV_SGL_DATA ? c.sgl.length : 0;

	h->count = 0;
	uint16_t cid = host_post(h, c, capsule);

	SAME(h->count, 1);
	SAME(h->answers[0].cid, cid);
	return h->answers[0];
}

struct nv_sqe connect_command(struct host *h, uint16_t qid, uint16_t cntlid)
{
	uint32_t entries = qid ? 64 : 32;

	memset(h->out, 0, NV_CONNECT_DATA_LEN);
	memset(h->out + NV_CONNECT_AT_HOSTID, 7, 16);
	nv_put16(h->out + NV_CONNECT_AT_CNTLID, cntlid);
	strcpy((char *)h->out + NV_CONNECT_AT_SUBNQN, SUBNQN);
	strcpy((char *)h->out + NV_CONNECT_AT_HOSTNQN, HOSTNQN);
	return (struct nv_sqe){.opcode = NV_FABRICS,
	                       .fctype = NV_FCT_CONNECT,
	                       .sgl = in_capsule(NV_CONNECT_DATA_LEN),
	                       .cdw = {(uint32_t)qid << 16, entries - 1, 0}};
}

struct answer property_set(struct host *h, uint32_t offset, uint64_t value, unsigned attrib)
{
	return host_do(h, (struct nv_sqe){.opcode = NV_FABRICS,
	                                  .fctype = NV_FCT_PROPERTY_SET,
	                                  .cdw = {attrib, offset, (uint32_t)value, (uint32_t)(value >> 32)}});
}

struct answer property_get(struct host *h, uint32_t offset, unsigned attrib)
{
	return host_do(h,
	               (struct nv_sqe){.opcode = NV_FABRICS, .fctype = NV_FCT_PROPERTY_GET, .cdw = {attrib, offset}});
}

struct host *host_admin_of(const char *hostnqn)
{
	struct host *h = host_open();
	struct nv_sqe c = connect_command(h, 0, NV_CNTLID_DYNAMIC);

	strcpy((char *)h->out + NV_CONNECT_AT_HOSTNQN, hostnqn);
	SAME(host_do(h, c).status, 0);
	SAME(property_set(h, NV_PROP_CC, 0x460001, 0).status, 0);
	SAME(property_get(h, NV_PROP_CSTS, 0).result, NV_CSTS_RDY);
	return h;
}

struct host *host_admin(void)
{
	return host_admin_of(HOSTNQN);
}

struct host *host_io(struct host *admin, uint16_t qid)
{
	struct host *h = host_open();
	struct nv_sqe c = connect_command(h, qid, admin->q.ctrl->id);

	strcpy((char *)h->out + NV_CONNECT_AT_HOSTNQN, admin->q.ctrl->hostnqn);
	SAME(host_do(h, c).status, 0);
	h->count = 0;
	return h;
}

uint64_t host_abort(struct host *admin, uint16_t qid, uint16_t cid)
{
	struct answer a = host_do(
	        admin,
	        (struct nv_sqe){.opcode = NV_ADMIN_ABORT, .sgl = by_transport(0), .cdw = {qid | (uint32_t)cid << 16}});

	SAME(a.status, 0);
	return a.result;
}

struct nv_sqe identify(uint8_t cns, uint32_t nsid)
{
	return (struct nv_sqe){.opcode = NV_ADMIN_IDENTIFY, .nsid = nsid, .sgl = by_transport(4096), .cdw = {cns}};
}

struct nv_sqe get_log(uint32_t id, uint32_t length, uint64_t offset)
{
	uint32_t dwords = length / 4 - 1;

	return (struct nv_sqe){.opcode = NV_ADMIN_GET_LOG,
	                       .sgl = by_transport(length),
	                       .cdw = {id | dwords << 16, dwords >> 16, (uint32_t)offset, (uint32_t)(offset >> 32)}};
}

struct nv_sqe io_command(uint8_t opcode, uint64_t block, uint32_t blocks)
{
	bool data = opcode == NV_IO_READ || opcode == NV_IO_WRITE || opcode == NV_IO_COMPARE;

	return (struct nv_sqe){.opcode = opcode,
	                       .nsid = 1,
	                       .sgl = by_transport(data ? blocks * 512 : 0),
	                       .cdw = {(uint32_t)block, (uint32_t)(block >> 32), blocks - 1}};
}
