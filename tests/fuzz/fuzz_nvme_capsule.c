// fuzz_nvme_capsule.c - a hostile host at the target's core: any commands on several queues, missing or failing data,
// ending connections, changing namespaces and limits. No command is answered twice, and no memory leaks
// follows: NVM Express Base 1.4; NVMe over Fabrics 1.1
// SPDX-License-Identifier: MIT
#include <stdint.h>

#include "host.h"
#include "input.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

#define QUEUES 4u

static struct host *queues[QUEUES];
static struct medium *media[64];
static unsigned medium_count;

static void command(struct host *h, const uint8_t *sqe, uint32_t capsule)
{
	struct nt_request *r;

	h->count = 0;
	if (h->unreleased_count > ANSWERS - 300 || h->fetch_count > ANSWERS - 300)
		return;
	nt_command(&h->q, sqe, capsule, &r);
}

/* Fills the fields from a few bytes: most of 64 arbitrary bytes would be rejected at once. */
static void likely_command(struct host *h, struct input *in)
{
	static const uint8_t opcodes[] = {0x00, 0x01, 0x02, 0x05, 0x06, 0x08, 0x09, 0x0a, 0x0c, 0x18, 0x7f, 0x0d};
	static const uint32_t lengths[] = {0, 16, 32, 512, 1024, 4096, 65536, 1 << 20};
	struct nv_sqe c = {.opcode = opcodes[byte(in) % 12],
	                   .fuse = byte(in) % 8 < 6 ? 0 : byte(in) & 3,
	                   .psdt = NV_PSDT_SGL,
	                   .cid = byte(in)};
	uint8_t kind = byte(in), sqe[NV_SQE_LEN];

	c.nsid = c.opcode == NV_FABRICS ? byte(in) % 10 : kind & 0x80 ? byte(in) : 1;
	c.fctype = (uint8_t)c.nsid;
	c.sgl = kind & 1 ? in_capsule(lengths[kind >> 1 & 7]) : by_transport(lengths[kind >> 1 & 7]);
	for (int i = 0; i < 6; i++)
		c.cdw[i] = byte(in) | (kind & 0x40 ? (uint32_t)byte(in) << 16 : 0);
	nv_sqe_encode(&c, sqe);
	command(h, sqe, kind & 1 && c.sgl.length <= 8192 ? c.sgl.length : 0);
}

static void open_queue(unsigned k, bool connect)
{
	struct host *h = queues[k] = host_open();
	const struct nt_controller *c = k && queues[0] ? queues[0]->q.ctrl : NULL;
	struct nv_sqe s = connect_command(h, (uint16_t)k, c ? c->id : NV_CNTLID_DYNAMIC);
	uint8_t sqe[NV_SQE_LEN];

	if (!connect)
		return;
	s.psdt = NV_PSDT_SGL;
	nv_sqe_encode(&s, sqe);
	command(h, sqe, 1024);
	host_settle(h);
	if (k || !h->q.ctrl)
		return;
	s = (struct nv_sqe){.opcode = NV_FABRICS,
	                    .psdt = NV_PSDT_SGL,
	                    .fctype = NV_FCT_PROPERTY_SET,
	                    .cdw = {0, NV_PROP_CC, 0x460001}};
	nv_sqe_encode(&s, sqe);
	command(h, sqe, 0);
	host_settle(h);
}

static void go_all(void)
{
	for (unsigned i = 0; i < medium_count; i++)
		medium_go(media[i]);
}

static void close_queue(unsigned k)
{
	struct host *h = queues[k];

	h->unreleased_count = h->fetch_count = 0;
	nt_queue_close(&h->q);
	go_all();
	host_close(h);
	queues[k] = NULL;
}

static void add_namespace(uint32_t nsid)
{
	if (medium_count >= 64 || subsystem->ns[nsid])
		return;
	media[medium_count] = medium_open(1 << 16, nsid & 1 ? 512 : 4096);
	media[medium_count]->slow = true;
	media[medium_count]->b.wait_ms = nsid & 2 ? 3000 : 0;
	medium_add(media[medium_count++], nsid);
}

/* Low limits, so that most commands wait. */
static void limit(struct input *in, struct nt_namespace *ns)
{
	struct nt_limits l = {.burst_ms = 1, .depth = 1 + byte(in) % 3};

	for (int i = 0; i < NT_RATES; i++) {
		uint8_t b = byte(in);

		l.rate[i] = b & 1 ? (b & 0x7e) * (i & 1 ? 65536u : 1u) : 0;
	}
	if (ns) {
		nt_limit_namespace(ns, &l);
	} else if (byte(in) & 1) {
		nt_limit_each_host(&target, &l);
	} else {
		l.weight = 1 + byte(in) % 4;
		nt_limit_host(&target, HOSTNQN, byte(in) & 1 ? &l : NULL);
	}
}

static void change(struct input *in)
{
	uint8_t what = byte(in);
	uint32_t nsid = what >> 4 & 3;
	struct nt_namespace *ns = subsystem->ns[nsid];

	switch (what & 7) {
	case 0:
		if (ns)
			nt_namespace_remove(ns);
		break;
	case 1:
		if (nsid)
			add_namespace(nsid);
		break;
	case 2:
		nt_ana_set(subsystem, 1, what >> 4);
		break;
	case 3:
		target.now += (uint64_t)byte(in) * 100;
		nt_target_tick(&target);
		nt_qos_tick(&target);
		break;
	case 4:
		if (ns)
			((struct medium *)ns->backend)->error = byte(in) & 1 ? 5 : 0;
		break;
	case 5:
		if (ns)
			((struct medium *)ns->backend)->unknown = byte(in);
		break;
	case 6:
		if (ns)
			((struct medium *)ns->backend)->slow = byte(in) & 1;
		for (struct nb_request *r = what & 0x80 && ns ? ((struct medium *)ns->backend)->first : NULL; r;
		     r = r->next)
			r->aside(r);
		break;
	default:
		nt_subsystem_any_host(subsystem, byte(in) & 1);
		break;
	}
}

static void act(struct input *in)
{
	uint8_t op = byte(in), raw[NV_SQE_LEN];
	unsigned k = op >> 4 & 3;
	struct host *h = queues[k];

	if (!h) {
		open_queue(k, op & 0x80);
		return;
	}
	switch (op & 15) {
	case 0:
		bytes(in, raw, sizeof(raw));
		command(h, raw, byte(in) * 64u);
		break;
	case 1:
		while (h->unreleased_count)
			nt_release(h->unreleased[--h->unreleased_count]);
		break;
	case 2:
		if (h->fetch_count) {
			struct nt_request *r = h->fetching[--h->fetch_count];

			bytes(in, r->data, r->length < 64 ? r->length : 64);
			nt_fetched(r, op & 0x80 ? NV_TRANSIENT_TRANSPORT : 0);
		}
		break;
	case 3:
		go_all();
		break;
	case 4:
		close_queue(k);
		break;
	case 5:
		change(in);
		break;
	case 6:
		h->hold_data = op & 0x80;
		break;
	case 7:
		limit(in, subsystem->ns[byte(in) & 3]);
		break;
	case 8:
		target.stopping = false;
		target.now += byte(in);
		nt_qos_tick(&target);
		break;
	default:
		likely_command(h, in);
		break;
	}
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
	struct input in = {data, size};

	target_open(16 << 20);
	medium_count = 0;
	add_namespace(1);
	open_queue(0, true);
	open_queue(1, true);
	for (unsigned steps = 0; in.left && steps < 400; steps++)
		act(&in);
	for (unsigned k = 0; k < QUEUES; k++)
		if (queues[k])
			close_queue(k);
	go_all();
	CHECK(!target.gates && !target.parked && !target.at_medium && !target.slow_memory && !target.in_line[NT_SLOW]);
	target_close();
	for (unsigned i = 0; i < medium_count; i++) {
		CHECK(media[i]->closed && !media[i]->first);
		free(media[i]->bytes);
		free(media[i]);
	}
	return 0;
}
