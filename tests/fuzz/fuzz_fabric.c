// fuzz_fabric.c - arbitrary datagrams and messages from two programs on a subnet: nothing crashes, and memory stays bounded
// follows: IBA volume 1, 13.5, 13.6, 14.2
// SPDX-License-Identifier: MIT
#include <assert.h>
#include <stdlib.h>
#include <string.h>

#include "fabric/agent/agent.h"
#include "fabric/server/server.h"
#include "fabric/topology.h"
#include "frame/sa.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

static void on_receive(void *own, struct vb_agent_file *file, unsigned agent, int error,
                       const struct vb_agent_addr *addr, const uint8_t *mad, size_t len)
{
	volatile uint8_t sum = 0;

	for (size_t i = 0; i < len; i++)
		sum = (uint8_t)(sum + mad[i]);
}

static const struct vb_agents_ops agents_ops = {.receive = on_receive};

static bool on_deliver(void *own, struct vb_fabric_port *port, const struct vb_fabric_packet *packet)
{
	return (port->host && vb_agents_deliver(port->host, packet)) || cm_deliver(own, port, packet);
}

struct client {
	struct vb_agent_file *file;
};

struct vb_agent_file *client_file(const struct client *c)
{
	return c->file;
}

/* What a program is told is one of these messages. */
void client_post(struct client *c, const void *bytes, size_t len)
{
	uint32_t verb;

	memcpy(&verb, bytes, sizeof(verb));
	if (verb == VB_FABRIC_WAY_IS) {
		const struct vb_fabric_way_is *is = bytes;

		assert(len == sizeof(*is) && is->why < VB_WAYS);
		return;
	}
	if (verb == VB_FABRIC_GROUP_IS) {
		assert(len == sizeof(struct vb_fabric_group_is));
		return;
	}
	assert((verb == VB_FABRIC_PORT_IS && len == sizeof(struct vb_fabric_port_is)) ||
	       (verb == VB_FABRIC_CM_RECV && len == sizeof(struct vb_fabric_cm_mad)) ||
	       (verb == VB_FABRIC_SA_IS && len == sizeof(struct vb_fabric_sa_is)));
}

void client_post_datagram(struct client *c, const void *bytes, size_t len)
{
	const struct vb_fabric_data *m = bytes;

	assert(m->verb == VB_FABRIC_DATA && len == sizeof(*m) + m->length && m->dlid >= VB_LID_MULTICAST);
}

bool client_is_behind(const struct client *c)
{
	return false;
}

static const struct vb_fabric_ops fabric_ops = {
        .deliver = on_deliver, .is_attached = joined_are_attached, .deliver_to_group = joined_deliver};

enum { HOSTS = 2, CLASSES = 4 };

/* As the server does it. */
static void settle_deadlines(struct vb_fabric *f, struct vb_agent_file *const *file, unsigned files)
{
	for (unsigned i = 0; i < files; i++)
		assert(f->agents_due <= vb_agent_deadline(file[i]));
	for (unsigned i = 0; i < files && f->agents_due <= f->now; i++)
		vb_agent_time(file[i]);
	if (f->agents_due > f->now)
		return;
	f->agents_due = UINT64_MAX;
	for (unsigned i = 0; i < files; i++)
		if (vb_agent_deadline(file[i]) < f->agents_due)
			f->agents_due = vb_agent_deadline(file[i]);
	assert(f->agents_due > f->now);
}

/* Both hosts have agents of these classes that take all requests; the SM's tables lead to both. */
static void set_up(struct vb_fabric *f, struct vb_agent_file *file[HOSTS], struct vb_agents *a[HOSTS], uint32_t *tid)
{
	static const uint8_t classes[CLASSES] = {VB_MAD_CLASS_SM_DR, VB_MAD_CLASS_SM_LID, VB_MAD_CLASS_SA, 0x32};
	struct vb_fabric_switch *sw = f->nodes[0]->sw;

	sw->lft = malloc(64);
	assert(sw->lft);
	memset(sw->lft, 255, 64);
	sw->lft_len = 64;
	sw->mft = calloc(VB_FABRIC_MFT_CAP, sizeof(*sw->mft));
	assert(sw->mft);
	sw->info.lft_top = 63;
	for (unsigned i = 0; i < HOSTS; i++) {
		struct vb_fabric_port *p = &f->nodes[1 + i]->port[1];
		unsigned agent;

		p->info.lid = (uint16_t)(1 + i);
		p->info.sm_lid = 1;
		p->info.state = p->peer->info.state = VB_PORT_ACTIVE;
		sw->lft[1 + i] = (uint8_t)(1 + i);
		sw->mft[i] = 6;
		a[i] = vb_agents_new(p, &agents_ops, tid);
		file[i] = vb_agent_open(a[i], NULL);
		for (unsigned k = 0; k < CLASSES; k++) {
			struct vb_agent_registration r = {.qpn = k < 2 ? 0 : 1,
			                                  .mgmt_class = classes[k],
			                                  .class_version = k == 2 ? 2 : 1,
			                                  .rmpp_version = k > 1,
			                                  .method_mask = {~0ull, ~0ull}};

			assert(!vb_agent_register(file[i], &r, &agent));
		}
	}
}

/* A message of a verbs device: its verb is one that is known, or any; its length any. */
static void say(struct joined *j, uint8_t control, const uint8_t *bytes, size_t n)
{
	uint64_t m[64] = {0};
	uint32_t verb = VB_FABRIC_WAY + (control & 7);

	memcpy(m, bytes, n);
	if (control & 8)
		memcpy(m, &verb, sizeof(verb));
	if (control & 16 && verb == VB_FABRIC_DATAGRAM && n > sizeof(struct vb_fabric_data)) {
		struct vb_fabric_data *d = (void *)m;

		d->length = (uint32_t)(n - sizeof(*d));
		d->dlid |= VB_LID_MULTICAST;
	} else if (control & 16) {
		n = verb == VB_FABRIC_ATTACH_GROUP || verb == VB_FABRIC_DETACH_GROUP ? sizeof(struct vb_fabric_group)
		                                                                     : sizeof(struct vb_fabric_way_ask);
	}
	join_take(j, m, n);
}

/* A message of a connection manager: a datagram of its class, or any. The first byte that is any has the rest of the control. */
static void say_cm(struct cm *cm, uint8_t control, const uint8_t *bytes, size_t n)
{
	struct vb_fabric_reply reply;
	union {
		uint32_t verb;
		struct vb_fabric_cm_mad mad;
		struct vb_fabric_cm_bind bind;
		struct vb_fabric_sa_ask ask;
		uint8_t bytes[1024];
	} m = {0};

	memcpy(m.bytes, bytes, n);
	if (!(control & 1)) {
		m = (typeof(m)){.mad = {.verb = VB_FABRIC_CM_SEND, .lid = 1 + (control >> 1 & 1), .pkey = 0xffff}};
		memcpy(m.mad.mad, (const uint8_t[]){1, VB_MAD_CLASS_CM, 2, VB_MAD_METHOD_SEND}, 4);
		memcpy(m.mad.mad + 16, bytes, n < VB_MAD_LEN - 16 ? n : VB_MAD_LEN - 16); /* from the attribute on */
		cm_take(cm, &m, sizeof(m.mad), &reply);
		return;
	}
	if (control & 8)
		m.verb = VB_FABRIC_CM_SEND + (control >> 1 & 3) + (control & 64 ? 1 : 0);
	if (m.verb == VB_FABRIC_SA_ASK && control & 32) { /* about a membership */
		memcpy(m.ask.mad, (const uint8_t[]){1, VB_MAD_CLASS_SA, 2}, 3);
		m.ask.mad[3] = m.ask.mad[3] & 1 ? VB_SA_DELETE : VB_MAD_SET;
		memcpy(m.ask.mad + 16, (const uint8_t[]){0, VB_SA_MEMBER_RECORD}, 2);
	}
	cm_take(cm, &m,
	        m.verb == VB_FABRIC_CM_SEND  ? sizeof(m.mad)
	        : m.verb == VB_FABRIC_SA_ASK ? sizeof(m.ask)
	        : control & 16               ? sizeof(m.bind)
	                                     : n,
	        &reply);
}

/* Each step: a byte of control, one for the length, then so many bytes of the datagram or message; the rest of a datagram is
 * zeros. */
int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
	struct server s = {0};
	struct vb_fabric *f = vb_fabric_new(&fabric_ops, &s);
	struct client client[HOSTS];
	struct cm *cm[HOSTS];
	struct vb_agent_file *file[HOSTS];
	struct vb_agents *a[HOSTS];
	struct vb_topology_error e;
	uint32_t tid = 0;
	uint64_t now = 0;

	s.fabric = f;
	assert(f && vb_topology_generate(f, "switch:2", &e));
	f->own = &s;
	vb_fabric_train_all(f);
	set_up(f, file, a, &tid);
	struct joined *j = join_open(&s, &f->nodes[1]->port[1], NULL);
	assert(j);
	for (unsigned i = 0; i < HOSTS; i++) {
		client[i].file = vb_agent_open(a[i], &client[i]);
		assert(!cm_open(&s, &f->nodes[1 + i]->port[1], &client[i], 1 + i, &cm[i]));
	}
	for (size_t at = 0; at + 2 <= size;) {
		uint8_t control = data[at], mad[2048] = {1};
		size_t n = data[at + 1] < size - at - 2 ? data[at + 1] : size - at - 2,
		       len = control & 0x40 ? sizeof(mad) : VB_MAD_LEN;
		struct vb_agent_addr to = {.lid = control & 4 ? VB_LID_DIRECTED : 1 + (control >> 1 & 1),
		                           .qpn = control >> 3 & 1,
		                           .qkey = VB_GSI_QKEY};

		memcpy(mad, data + at + 2, n);
		at += 2 + n;
		if ((control & 0xa0) == 0xa0)
			say_cm(cm[control >> 2 & 1], control, mad, n);
		else if (control & 0x20)
			say(j, control, mad, n);
		else
			vb_agent_send(file[control & 1], control >> 4 & 1, &to, mad, len, control & 0x80 ? 10 : 0, 1);
		s.now = now += 1000000;
		joined_tell(&s);
		vb_fabric_time(f, now);
		settle_deadlines(f, (struct vb_agent_file *[]){file[0], file[1], client[0].file, client[1].file},
		                 2 * HOSTS);
		cms_time(&s);
	}
	join_close(j);
	cm_close(cm[0]);
	cm_close(cm[1]);
	cms_end(&s);
	vb_agents_free(a[0]);
	vb_agents_free(a[1]);
	vb_fabric_free(f);
	return 0;
}
