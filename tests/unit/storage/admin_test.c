// admin_test.c - admin commands: identify, features, log pages, events, abort, keep alive; the discovery controller
// follows: NVM Express Base 1.4, chapter 5; NVMe over Fabrics 1.1, chapters 4 and 5
// SPDX-License-Identifier: MIT
#include "host.h"

#define DNR(x) ((x) | NV_DNR)

static struct medium *m;
static struct host *h;

static void up(void)
{
	target_open(16 << 20);
	m = medium_open(1 << 20, 512);
	medium_add(m, 1);
	h = host_admin();
}

static void down(void)
{
	host_close(h);
	target_close();
	CHECK(m->closed);
	free(m->bytes);
	free(m);
}

static struct answer feature(uint8_t opcode, uint32_t id, uint32_t value)
{
	return host_do(h, (struct nv_sqe){.opcode = opcode, .sgl = by_transport(0), .cdw = {id, value}});
}

static void identify_tells_of_controller_and_namespaces(void)
{
	up();
	SAME(host_do(h, identify(NV_CNS_CTRL, 0)).status, 0);
	CHECK(!strcmp((char *)h->in + 768, SUBNQN));
	SAME(h->in[77], NT_MDTS);
	SAME(nv_get16(h->in + 78), h->q.ctrl->id);
	SAME(nv_get32(h->in + 1792), (64 + 8192) / 16);
	SAME(host_do(h, identify(NV_CNS_NS, 1)).status, 0);
	SAME(nv_get64(h->in), 2048);
	SAME(h->in[130], 9);
	SAME(h->in[24] & 1 << 4, 1 << 4);
	SAME(nv_get16(h->in + 64), 7); /* pages are best: 8 blocks, counted from 0 */
	SAME(nv_get16(h->in + 72), 7);
	SAME(host_do(h, identify(NV_CNS_NS, 2)).status, 0); /* inactive: zeros */
	SAME(nv_get64(h->in), 0);
	SAME(host_do(h, identify(NV_CNS_NS, 0)).status, DNR(NV_INVALID_NS));
	SAME(host_do(h, identify(NV_CNS_NS, NV_NSID_ALL)).status, DNR(NV_INVALID_NS));
	SAME(host_do(h, identify(NV_CNS_NS_DESC, 1)).status, 0);
	SAME(h->in[0], 3);
	SAME(h->in[1], 16);
	CHECK(!memcmp(h->in + 4, subsystem->ns[1]->uuid, 16));
	SAME(host_do(h, identify(NV_CNS_NS_DESC, 2)).status, DNR(NV_INVALID_NS));
	SAME(host_do(h, identify(NV_CNS_CTRLS, 0)).status, 0);
	SAME(nv_get16(h->in), 1);
	SAME(host_do(h, identify(0x77, 0)).status, DNR(NV_INVALID_FIELD));
	SAME(host_do(h, (struct nv_sqe){.opcode = 0xee}).status, DNR(NV_INVALID_OPCODE));
	struct nv_sqe c = identify(NV_CNS_CTRL, 0);

	c.sgl.length = 512;
	SAME(host_do(h, c).status, DNR(NV_SGL_LENGTH));
	c.sgl = in_capsule(4096); /* data to the host cannot be in a capsule */
	SAME(host_do(h, c).status, DNR(NV_SGL_TYPE));
	c.sgl = (struct nv_sgl){.type = NV_SGL_KEYED, .length = 4096};
	SAME(host_do(h, c).status, DNR(NV_SGL_TYPE));
	down();
}

static void lists_of_namespaces_begin_behind_the_one_named(void)
{
	up();
	struct medium *other = medium_open(4096, 512);

	medium_add(other, 7);
	for (int i = 0; i < 2; i++) {
		uint8_t cns = i ? NV_CNS_ALLOCATED : NV_CNS_ACTIVE;

		SAME(host_do(h, identify(cns, 0)).status, 0);
		SAME(nv_get32(h->in), 1);
		SAME(nv_get32(h->in + 4), 7);
		SAME(nv_get32(h->in + 8), 0);
		host_do(h, identify(cns, 1));
		SAME(nv_get32(h->in), 7);
		host_do(h, identify(cns, 7));
		SAME(nv_get32(h->in), 0);
		SAME(host_do(h, identify(cns, 0xfffffffe)).status, DNR(NV_INVALID_NS));
	}
	nt_namespace_remove(subsystem->ns[7]);
	CHECK(other->closed);
	free(other->bytes);
	free(other);
	down();
}

/* An image has the same UUID at another place, and another image at the same place has another UUID. */
static void a_namespace_is_named_by_what_its_medium_is(void)
{
	char image[] = "an image", copy[] = "a copy of it";
	uint8_t uuids[6][16];

	up();
	struct medium *other = medium_open(4096, 512);

	for (unsigned i = 0; i < 6; i++) {
		other->b.identity = i == 3 || i == 4 ? copy : i == 5 ? NULL : image;
		other->b.identity_anywhere = i < 4;
		other->closed = false;
		struct nt_namespace *ns = medium_add(other, i == 1 ? 9 : 7);

		memcpy(uuids[i], ns->uuid, 16);
		SAME(host_do(h, identify(NV_CNS_NS, ns->nsid)).status, 0);
		CHECK(!memcmp(h->in + 104, uuids[i], 16)); /* NGUID, and also among the descriptors */
		SAME(host_do(h, identify(NV_CNS_NS_DESC, ns->nsid)).status, 0);
		CHECK(!memcmp(h->in + 4, uuids[i], 16) && !memcmp(h->in + 24, uuids[i], 16));
		nt_namespace_remove(ns);
		CHECK(other->closed);
		if (i == 1) { /* served twice, it has two UUIDs */
			m->b.identity = image;
			m->b.identity_anywhere = true;
			medium_add(m, 8);
		}
		if (i == 2) {
			CHECK(!memcmp(subsystem->ns[8]->uuid, uuids[0], 16));
			nt_namespace_remove(subsystem->ns[8]);
			m->closed = false;
			m->b.identity = NULL;
		}
	}
	CHECK(!memcmp(uuids[0], uuids[1], 16));
	for (unsigned i = 2; i < 6; i++)
		for (unsigned k = 0; k < i; k++)
			CHECK(memcmp(uuids[i], uuids[k], 16));
	free(other->bytes);
	free(other);
	down();
}

static void features_are_set_and_read_back(void)
{
	up();
	SAME(feature(NV_ADMIN_SET_FEATURES, NV_FEAT_QUEUES, 3 | 5 << 16).result, 3 | 3 << 16);
	SAME(feature(NV_ADMIN_GET_FEATURES, NV_FEAT_QUEUES, 0).result, 3 | 3 << 16);
	SAME(feature(NV_ADMIN_SET_FEATURES, NV_FEAT_QUEUES, 999 | 999 << 16).result, 15 | 15 << 16);
	SAME(feature(NV_ADMIN_SET_FEATURES, NV_FEAT_QUEUES, 0xffff).status, DNR(NV_INVALID_FIELD));
	struct host *io = host_io(h, 1);

	SAME(feature(NV_ADMIN_SET_FEATURES, NV_FEAT_QUEUES, 0).status, DNR(NV_SEQUENCE));
	host_close(io);
	SAME(feature(NV_ADMIN_SET_FEATURES, NV_FEAT_KATO, 1500).status, 0);
	SAME(feature(NV_ADMIN_GET_FEATURES, NV_FEAT_KATO, 0).result, 2000);
	SAME(feature(NV_ADMIN_SET_FEATURES, NV_FEAT_KATO, UINT32_MAX).status, DNR(NV_KEEP_ALIVE_INVALID));
	SAME(feature(NV_ADMIN_GET_FEATURES, NV_FEAT_WRITE_CACHE, 0).result, 1);
	SAME(feature(NV_ADMIN_SET_FEATURES, NV_FEAT_WRITE_CACHE, 0).status, 0);
	SAME(feature(NV_ADMIN_GET_FEATURES, NV_FEAT_WRITE_CACHE, 0).result, 0);
	SAME(feature(NV_ADMIN_GET_FEATURES, NV_FEAT_WRITE_CACHE | 1 << 8, 0).result, 1); /* by default */
	SAME(feature(NV_ADMIN_GET_FEATURES, NV_FEAT_WRITE_CACHE | 3 << 8, 0).result, 4); /* can be changed */
	SAME(feature(NV_ADMIN_SET_FEATURES, NV_FEAT_WRITE_CACHE | 1u << 31, 0).status, DNR(NV_NOT_SAVEABLE));
	SAME(feature(NV_ADMIN_SET_FEATURES, NV_FEAT_ASYNC_EVENTS, NV_AEC_NS_CHANGED).status, 0);
	SAME(feature(NV_ADMIN_SET_FEATURES, NV_FEAT_ASYNC_EVENTS, 1u << 27).status, DNR(NV_INVALID_FIELD));
	SAME(feature(NV_ADMIN_SET_FEATURES, NV_FEAT_HOST_ID, 1).status, DNR(NV_SEQUENCE));
	SAME(feature(NV_ADMIN_SET_FEATURES, 0x33, 1).status, DNR(NV_INVALID_FIELD));
	SAME(feature(NV_ADMIN_GET_FEATURES, 0x33, 1).status, DNR(NV_INVALID_FIELD));
	struct nv_sqe c = {.opcode = NV_ADMIN_GET_FEATURES, .sgl = by_transport(16), .cdw = {NV_FEAT_HOST_ID, 1}};

	SAME(host_do(h, c).status, 0);
	SAME(h->in[15], 7);
	c.cdw[1] = 0; /* the short form */
	SAME(host_do(h, c).status, DNR(NV_HOST_ID_FORMAT));
	down();
}

static void the_timestamp_counts_on_from_what_the_host_has_set(void)
{
	up();
	struct nv_sqe get = {.opcode = NV_ADMIN_GET_FEATURES, .sgl = by_transport(8), .cdw = {NV_FEAT_TIMESTAMP}},
	              set = {.opcode = NV_ADMIN_SET_FEATURES, .sgl = by_transport(8), .cdw = {NV_FEAT_TIMESTAMP}};

	SAME(host_do(h, get).status, 0);
	uint64_t first = nv_get64(h->in);

	target.now += 5;
	SAME(host_do(h, get).status, 0);
	SAME(nv_get64(h->in), first + 5); /* origin 0: since a reset */
	nv_put64(h->out, UINT64_MAX);     /* the upper 16 bits are not the time's */
	SAME(host_do(h, set).status, 0);
	target.now += 8;
	SAME(host_do(h, get).status, 0);
	SAME(nv_get64(h->in), 7 | (uint64_t)2 << 48); /* origin 1: the host's */
	get.cdw[0] |= 1 << 8;
	SAME(host_do(h, get).status, 0);
	SAME(nv_get64(h->in), 0); /* the default */
	set.cdw[0] |= 1u << 31;
	SAME(host_do(h, set).status, DNR(NV_NOT_SAVEABLE));
	SAME(property_set(h, NV_PROP_CC, 0x460000, 0).status, 0);
	SAME(property_set(h, NV_PROP_CC, 0x460001, 0).status, 0);
	get.cdw[0] = NV_FEAT_TIMESTAMP;
	SAME(host_do(h, get).status, 0);
	SAME(nv_get64(h->in), 0);
	down();
}

static void log_pages_are_read_in_parts(void)
{
	up();
	SAME(host_do(h, get_log(NV_LOG_SMART, 512, 0)).status, 0);
	SAME(h->in[3], 100);
	SAME(host_do(h, get_log(NV_LOG_FIRMWARE, 512, 0)).status, 0);
	CHECK(!memcmp(h->in + 8, VB_VERSION, strlen(VB_VERSION)));
	SAME(host_do(h, get_log(NV_LOG_EFFECTS, 4096, 0)).status, 0);
	SAME(nv_get32(h->in + 4 * NV_ADMIN_IDENTIFY), 1);
	SAME(nv_get32(h->in + 1024 + 4 * NV_IO_WRITE), 3);
	SAME(host_do(h, get_log(NV_LOG_EFFECTS, 4, 1024 + 4 * NV_IO_WRITE)).status, 0);
	SAME(nv_get32(h->in), 3);
	SAME(host_do(h, get_log(NV_LOG_ANA, 4096, 0)).status, 0);
	SAME(nv_get16(h->in + 8), 1);  /* one group … */
	SAME(nv_get32(h->in + 16), 1); /* … number 1 … */
	SAME(nv_get32(h->in + 20), 1); /* … of one namespace … */
	SAME(h->in[32], NV_ANA_OPTIMIZED);
	SAME(nv_get32(h->in + 48), 1); /* … number 1 */
	SAME(host_do(h, get_log(NV_LOG_SMART, 512, 2)).status, DNR(NV_INVALID_FIELD));
	SAME(host_do(h, get_log(NV_LOG_SMART, 512, 516)).status, DNR(NV_INVALID_FIELD));
	SAME(host_do(h, get_log(NV_LOG_SMART, 2 * NT_TRANSFER_MAX, 0)).status, DNR(NV_INVALID_FIELD));
	SAME(host_do(h, get_log(NV_LOG_DISCOVERY, 1024, 0)).status, DNR(NV_INVALID_LOG));
	SAME(host_do(h, get_log(0x44, 512, 0)).status, DNR(NV_INVALID_LOG));
	SAME(host_do(h, get_log(NV_LOG_ERROR, 128, 0)).status, 0);
	SAME(nv_get64(h->in), 5); /* the errors above, newest first */
	SAME(nv_get16(h->in + 12), DNR(NV_INVALID_LOG) << 1 & 0xffff);
	SAME(nv_get64(h->in + 64), 4);
	down();
}

static struct nv_sqe aer(void)
{
	return (struct nv_sqe){.opcode = NV_ADMIN_ASYNC_EVENT, .sgl = by_transport(0)};
}

static void a_change_is_told_once_until_its_log_is_read(void)
{
	up();
	feature(NV_ADMIN_SET_FEATURES, NV_FEAT_ASYNC_EVENTS, NV_AEC_NS_CHANGED);
	uint16_t first = host_post(h, aer(), 0), second = host_post(h, aer(), 0);

	h->count = 0;
	SAME(nt_namespace_resize(subsystem->ns[1], 1 << 19), 0);
	host_settle(h);
	SAME(h->count, 1);
	CHECK(h->answers[0].cid == second || h->answers[0].cid == first);
	SAME(h->answers[0].result, 2 | 4 << 16);
	nt_namespace_resize(subsystem->ns[1], 1 << 18);
	SAME(h->count, 1);
	SAME(host_do(h, get_log(NV_LOG_CHANGED_NS | 1 << 15, 4096, 0)).status, 0); /* retain */
	SAME(nv_get32(h->in), 1);
	SAME(nv_get32(h->in + 4), 0);
	h->count = 0;
	host_post(h, get_log(NV_LOG_CHANGED_NS, 4096, 0), 0);
	SAME(nv_get32(h->in), 1);
	SAME(h->count, 2); /* the second change is reported now */
	host_do(h, get_log(NV_LOG_CHANGED_NS, 4096, 0));
	SAME(nv_get32(h->in), 0);
	down();
}

static void changes_are_listed_in_order(void)
{
	static const uint32_t changed[] = {9, 3, 1024, 1, 9, 5}, listed[] = {1, 3, 5, 9, 1024, 0};
	struct medium *others[6] = {NULL};

	up();
	for (int i = 0; i < 6; i++)
		if (subsystem->ns[changed[i]])
			nt_namespace_resize(subsystem->ns[changed[i]], 1 << 18);
		else
			medium_add(others[i] = medium_open(4096, 512), changed[i]);
	SAME(host_do(h, get_log(NV_LOG_CHANGED_NS, 4096, 0)).status, 0);
	for (int i = 0; i < 6; i++)
		SAME(nv_get32(h->in + 4 * i), listed[i]);
	down();
	for (int i = 0; i < 6; i++)
		if (others[i]) {
			CHECK(others[i]->closed);
			free(others[i]->bytes);
			free(others[i]);
		}
}

/* All namespaces are added, removed and added again with the same numbers, while a host is connected. */
static void as_many_namespaces_as_there_can_be(void)
{
	struct medium **all = calloc(NT_NAMESPACES_MAX + 1, sizeof(*all));

	CHECK(all);
	up();
	feature(NV_ADMIN_SET_FEATURES, NV_FEAT_ASYNC_EVENTS, NV_AEC_NS_CHANGED);
	for (int round = 0; round < 2; round++) {
		for (uint32_t n = NT_NAMESPACES_MAX; n > 1; n--)
			medium_add(all[n] = medium_open(4096, 512), n);
		CHECK(!nt_namespace_add(subsystem, NT_NAMESPACES_MAX + 1, &m->b, NULL));
		SAME(host_do(h, identify(NV_CNS_ACTIVE, 0)).status, 0);
		for (uint32_t n = 1; n <= NT_NAMESPACES_MAX; n++)
			SAME(nv_get32(h->in + 4 * (n - 1)), n);
		SAME(host_do(h, identify(NV_CNS_NS, NT_NAMESPACES_MAX)).status, 0);
		SAME(nv_get64(h->in), 8);
		SAME(host_do(h, get_log(NV_LOG_CHANGED_NS, 4096, 0)).status, 0);
		SAME(nv_get32(h->in), 2 - (uint32_t)round); /* round 1: number 1 has changed, too */
		SAME(host_do(h, get_log(NV_LOG_ANA, 4096, 0)).status, 0);
		SAME(nv_get32(h->in + 20), NT_NAMESPACES_MAX);
		SAME(host_do(h, get_log(NV_LOG_ANA, 4096, 4096)).status, 0); /* the rest of it */
		SAME(nv_get32(h->in), 4096 / 4 - 12 + 1);
		for (uint32_t n = 2; n <= NT_NAMESPACES_MAX; n++) {
			nt_namespace_remove(subsystem->ns[n]);
			CHECK(all[n]->closed);
			free(all[n]->bytes);
			free(all[n]);
		}
		SAME(host_do(h, identify(NV_CNS_ACTIVE, 0)).status, 0);
		SAME(nv_get32(h->in), 1);
		SAME(nv_get32(h->in + 4), 0);
		nt_namespace_resize(subsystem->ns[1], round ? 1 << 20 : 1 << 19);
	}
	down();
	free(all);
}

static void events_that_were_not_asked_for_are_not_told(void)
{
	up();
	host_post(h, aer(), 0);
	h->count = 0;
	nt_namespace_resize(subsystem->ns[1], 1 << 19);
	nt_ana_set(subsystem, 1, NV_ANA_INACCESSIBLE);
	SAME(h->count, 0);
	feature(NV_ADMIN_SET_FEATURES, NV_FEAT_ASYNC_EVENTS, NV_AEC_ANA_CHANGED);
	h->count = 0;
	nt_ana_set(subsystem, 1, NV_ANA_OPTIMIZED);
	host_settle(h);
	SAME(h->count, 1);
	SAME(h->answers[0].result, 2 | 3 << 8 | 0xc << 16);
	down();
}

static void event_requests_are_limited_and_can_be_aborted(void)
{
	up();
	uint16_t cid = host_post(h, aer(), 0);

	for (unsigned i = 1; i < NT_AERS; i++)
		host_post(h, aer(), 0);
	SAME(host_do(h, aer()).status, DNR(NV_AER_LIMIT));
	h->count = 0;
	uint16_t abort = host_post(
	        h, (struct nv_sqe){.opcode = NV_ADMIN_ABORT, .sgl = by_transport(0), .cdw = {(uint32_t)cid << 16}}, 0);

	SAME(host_answer(h, cid)->status, NV_ABORT_REQUESTED);
	SAME(host_answer(h, abort)->result, 0);
	SAME(host_abort(h, 0, cid), 1);
	SAME(host_do(h, (struct nv_sqe){.opcode = NV_ADMIN_ABORT, .sgl = by_transport(0), .cdw = {9}}).status,
	     DNR(NV_INVALID_FIELD));
	down();
}

/* Another command with the id of an event request is executed, and the event request ends. */
static void an_event_request_whose_number_is_used_again_is_given_up(void)
{
	up();
	feature(NV_ADMIN_SET_FEATURES, NV_FEAT_ASYNC_EVENTS, NV_AEC_NS_CHANGED);
	for (int i = 0; i < 100; i++) {
		uint16_t cid = host_post(h, aer(), 0);

		h->next_cid = cid;
		SAME(host_do(h, get_log(NV_LOG_CHANGED_NS, 4096, 0)).status, 0);
	}
	h->count = 0;
	nt_namespace_resize(subsystem->ns[1], 1 << 19);
	SAME(h->count, 0); /* nobody waits for the event */
	host_post(h, aer(), 0);
	SAME(h->count, 1);
	down();
}

static void a_host_that_is_not_heard_of_is_given_up(void)
{
	up();
	feature(NV_ADMIN_SET_FEATURES, NV_FEAT_KATO, 5000);
	target.now += 5000;
	SAME(nt_target_tick(&target), target.now + 1000);
	SAME(host_do(h, (struct nv_sqe){.opcode = NV_ADMIN_KEEP_ALIVE, .sgl = by_transport(0)}).status, 0);
	struct host *io = host_io(h, 1);

	target.now += 5000;
	SAME(host_do(io, io_command(NV_IO_FLUSH, 0, 1)).status, 0); /* traffic counts as keep-alive */
	target.now += 5999;
	nt_target_tick(&target);
	CHECK(!h->asked_to_close);
	target.now += 1;
	SAME(nt_target_tick(&target), UINT64_MAX);
	CHECK(h->asked_to_close && io->asked_to_close);
	SAME(property_get(h, NV_PROP_CSTS, 0).result, NV_CSTS_CFS);
	host_close(io);
	down();
}

static void a_host_without_a_keep_alive_timeout_may_be_silent(void)
{
	up();
	feature(NV_ADMIN_SET_FEATURES, NV_FEAT_KATO, 0);
	for (int i = 0; i < 10; i++) {
		target.now += 100000000;
		SAME(nt_target_tick(&target), UINT64_MAX);
		CHECK(!h->asked_to_close);
	}
	SAME(host_do(h, (struct nv_sqe){.opcode = NV_ADMIN_KEEP_ALIVE, .sgl = by_transport(0)}).status, 0);
	down();
}

static void a_discovery_controller_tells_where_subsystems_are(void)
{
	static const struct nt_port elsewhere = {
	        .trtype = NV_TRTYPE_TCP, .adrfam = NV_ADRFAM_IPV4, .address = "192.0.2.9", .service = "8009"};

	up();
	nt_referral_add(&target, &elsewhere);
	struct host *d = host_open();
	struct nv_sqe c = connect_command(d, 0, NV_CNTLID_DYNAMIC);

	strcpy((char *)d->out + NV_CONNECT_AT_SUBNQN, NV_DISCOVERY_NQN);
	SAME(host_do(d, c).status, 0);
	property_set(d, NV_PROP_CC, 1, 0);
	SAME(host_do(d, identify(NV_CNS_CTRL, 0)).status, 0);
	SAME(d->in[111], 2);
	SAME(host_do(d, identify(NV_CNS_ACTIVE, 0)).status, DNR(NV_INVALID_FIELD));
	SAME(host_do(d, get_log(NV_LOG_SMART, 512, 0)).status, DNR(NV_INVALID_LOG));
	SAME(host_do(d, get_log(NV_LOG_DISCOVERY, 4096, 0)).status, 0);
	uint64_t generation = nv_get64(d->in);

	SAME(nv_get64(d->in + 8), 3);
	SAME(d->in[1024 + 2], NV_SUBTYPE_CURRENT);
	SAME(d->in[2048 + 2], NV_SUBTYPE_NVM);
	CHECK(!strcmp((char *)d->in + 2048 + 256, SUBNQN));
	CHECK(!memcmp(d->in + 2048 + 512, "192.0.2.1 ", 10));
	CHECK(!memcmp(d->in + 2048 + 32, "4420 ", 5));
	SAME(d->in[3072 + 2], NV_SUBTYPE_REFERRAL);
	host_do(d, (struct nv_sqe){.opcode = NV_ADMIN_SET_FEATURES,
	                           .sgl = by_transport(0),
	                           .cdw = {NV_FEAT_ASYNC_EVENTS, NV_AEC_DISCOVERY_CHANGED}});
	host_post(d, aer(), 0);
	d->count = 0;
	subsystem->any_host = false; /* … without an error */
	nt_subsystem_allow(subsystem, "nqn.2026-01.test:somebody");
	host_settle(d);
	SAME(d->count, 1);
	SAME(d->answers[0].result, 2 | 0xf0 << 8 | 0x70 << 16);
	host_do(d, get_log(NV_LOG_DISCOVERY, 4096, 0));
	CHECK(nv_get64(d->in) > generation);
	SAME(nv_get64(d->in + 8), 2); /* no longer visible to us */
	port.any = true;              /* it listens on ::, and the host connected by IPv4 */
	port.adrfam = NV_ADRFAM_IPV6;
	host_do(d, get_log(NV_LOG_DISCOVERY, 4096, 0));
	SAME(d->in[1024 + 1], NV_ADRFAM_IPV4);
	CHECK(!memcmp(d->in + 1024 + 512, "192.0.2.1 ", 10));
	port.any = false;
	port.adrfam = NV_ADRFAM_IPV4;
	target.now += 200000;
	nt_target_tick(&target);
	CHECK(d->asked_to_close && !h->asked_to_close);
	host_close(d);
	subsystem->any_host = true;
	down();
}

int main(void)
{
	RUN(identify_tells_of_controller_and_namespaces);
	RUN(lists_of_namespaces_begin_behind_the_one_named);
	RUN(a_namespace_is_named_by_what_its_medium_is);
	RUN(features_are_set_and_read_back);
	RUN(the_timestamp_counts_on_from_what_the_host_has_set);
	RUN(log_pages_are_read_in_parts);
	RUN(a_change_is_told_once_until_its_log_is_read);
	RUN(changes_are_listed_in_order);
	RUN(as_many_namespaces_as_there_can_be);
	RUN(events_that_were_not_asked_for_are_not_told);
	RUN(event_requests_are_limited_and_can_be_aborted);
	RUN(an_event_request_whose_number_is_used_again_is_given_up);
	RUN(a_host_that_is_not_heard_of_is_given_up);
	RUN(a_host_without_a_keep_alive_timeout_may_be_silent);
	RUN(a_discovery_controller_tells_where_subsystems_are);
	return 0;
}
