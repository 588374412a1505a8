// gsi_bind.c - queue pair 1 of this host: the ports that programs bind, and on which they listen
// follows: IBA volume 1, annex A11 (RDMA IP CM service); rdma_bind_addr(3)
// SPDX-License-Identifier: MIT
#include "broker/server/gsi.h"

#include <errno.h>
#include <string.h>

#include "broker/server/ports.h"
#include "broker/server/session.h"
#include "engine/cm/cm.h"

/* An IPv4 wildcard has two spellings. */
static void set_address(struct vb_binding *want, const struct vb_msg_cm_bind *m)
{
	const uint8_t *local = m->local;

	memcpy(want->local, local, sizeof(want->local));
	want->v4_only = m->v4_only || vb_gid_is_ipv4(local);
	want->v6_only = m->v6_only && !want->v4_only;
	if (!vb_gid_is_ipv4(local))
		return;
	if (!local[12] && !local[13] && !local[14] && !local[15])
		memset(want->local, 0, sizeof(want->local));
}

static bool is_known_port_space(uint16_t ps)
{
	return ps == VB_PS_IPOIB || ps == VB_PS_TCP || ps == VB_PS_UDP || ps == VB_PS_IB;
}

static bool is_same_binding(const struct vb_binding *a, const struct vb_binding *want)
{
	return a->port_space == want->port_space && (!want->port || a->port == want->port) &&
	       a->ifindex == want->ifindex && a->v4_only == want->v4_only &&
	       !memcmp(a->local, want->local, sizeof(a->local));
}

/* A repeated binding, perhaps with other options. Those affect later bindings. Returns 0 or EINVAL. */
static int binding_change(struct vb_binding *s, const struct vb_binding *want)
{
	if (!is_same_binding(s, want) || (s->listening && s->v6_only != want->v6_only))
		return EINVAL;
	s->reuse = want->reuse;
	s->v6_only = want->v6_only;
	return 0;
}

static int bind_service(struct vb_broker *b, const struct vb_session *s, const struct vb_msg_cm_bind *m,
                        struct vb_binding **out)
{
	struct vb_binding want = {
	        .lane = s->lane,
	        .id = m->id,
	        .port_space = m->port_space,
	        .port = m->port,
	        .ifindex = m->ifindex,
	        .reuse = m->reuse,
	        .uid = s->uid,
	        .foreign = s->foreign,
	};

	set_address(&want, m);
	*out = vb_service_of(&b->gsi->services, s->lane, m->id);
	if (*out)
		return binding_change(*out, &want);
	if (!is_known_port_space(m->port_space))
		return EPROTONOSUPPORT;
	if (m->port && !vb_port_allowed(m->port, s->uid, s->pid, s->pid_fd))
		return EACCES;
	struct vb_port_range range = {0};
	if (!m->port || s->foreign)
		range = vb_ephemeral_ports(&b->gsi->ports_file);
	return vb_service_bind(&b->gsi->services, &want, &range, out);
}

static int listen_at(struct vb_broker *b, struct vb_binding *service)
{
	int err = service->listening ? 0 : vb_service_listen(&b->gsi->services, service);

	if (!err)
		vb_gsi_late_listening(b, service->port_space, service->port);
	return err;
}

const char *vb_gsi_on_bind(struct vb_broker *b, struct vb_session *s, const void *msg, size_t len)
{
	struct vb_binding *service = NULL;
	struct vb_msg_cm_bind m;

	if (len != sizeof(m))
		return "CM_BIND of a wrong length";
	memcpy(&m, msg, sizeof(m));
	if (!m.id)
		return "CM_BIND without an id";
	int err = bind_service(b, s, &m, &service);
	if (!err && m.listen)
		err = listen_at(b, service);
	vb_gsi_reply(s, m.id, err, service);
	return NULL;
}

static const char *on_listen(struct vb_broker *b, struct vb_session *s, uint32_t id)
{
	struct vb_binding *service = vb_service_of(&b->gsi->services, s->lane, id);
	int err = service ? listen_at(b, service) : ENOENT;

	vb_gsi_reply(s, id, err, service);
	return NULL;
}

static const char *on_unbind(struct vb_broker *b, struct vb_session *s, uint32_t id)
{
	struct vb_binding *service = vb_service_of(&b->gsi->services, s->lane, id);

	if (service && service->listening)
		vb_gsi_late_closed(b, s->uid, service->port);
	if (service)
		vb_service_unbind(&b->gsi->services, service);
	return NULL;
}

const char *vb_gsi_on_binding(struct vb_broker *b, struct vb_session *s, uint8_t type, const void *msg, size_t len)
{
	struct vb_msg_cm_binding m;

	if (len != sizeof(m))
		return "CM_LISTEN or CM_UNBIND of a wrong length";
	memcpy(&m, msg, sizeof(m));
	return type == VB_MSG_CM_LISTEN ? on_listen(b, s, m.id) : on_unbind(b, s, m.id);
}
