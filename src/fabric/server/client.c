// client.c - the programs that are connected: their questions, and the datagrams of their umad ports
// follows: unix(7), SCM_RIGHTS; Linux Documentation/infiniband/user_mad.rst
// SPDX-License-Identifier: MIT
#include <arpa/inet.h>
#include <errno.h>
#include <stdlib.h>
#include <sys/epoll.h>
#include <sys/mman.h>
#include <sys/socket.h>
#include <unistd.h>

#include "fabric/server/client.h"

_Static_assert(VB_AGENTS_MOST == VB_FABRIC_AGENTS, "an agent that a program accepts");

enum { BATCH = 64, TRAINS = 16 };

/* --- to the program --- */

struct vb_agent_file *client_file(const struct client *c)
{
	return c->file;
}

static int memfd_of(const void *bytes, size_t len)
{
	int fd = memfd_create("verbena-fabric", MFD_CLOEXEC);

	for (size_t at = 0; fd >= 0 && at < len;) {
		ssize_t n = write(fd, (const char *)bytes + at, len - at);

		if (n <= 0) {
			close(fd);
			return -1;
		}
		at += (size_t)n;
	}
	return fd;
}

static void on_receive(void *own, struct vb_agent_file *file, unsigned agent, int error, const struct vb_agent_addr *a,
                       const uint8_t *mad, size_t len)
{
	struct {
		struct vb_umad_head head;
		uint8_t mad[VB_FABRIC_INLINE];
	} m;
	struct client *c = own;

	if (c->cm) {
		cm_answered(c->cm, error, mad, len);
		return;
	}
	m.head = (struct vb_umad_head){.agent = agent,
	                               .status = (uint32_t)error,
	                               .length = (uint32_t)(sizeof(m.head) + len),
	                               .qpn = htonl(a->qpn),
	                               .qkey = htonl(a->qkey),
	                               .lid = htons(a->lid),
	                               .sl = a->sl,
	                               .path_bits = a->path_bits,
	                               .grh_present = a->grh,
	                               .gid_index = a->gid_index,
	                               .hop_limit = a->hop_limit,
	                               .traffic_class = a->traffic_class,
	                               .flow_label = htonl(a->flow_label),
	                               .pkey_index = a->pkey_index};
	memcpy(m.head.gid, a->gid, 16);
	if (len <= sizeof(m.mad)) {
		memcpy(m.mad, mad, len);
		client_post(c, &m, sizeof(m.head) + len);
		return;
	}
	int fd = memfd_of(mad, len);
	if (fd >= 0)
		client_post_with(c, &m.head, sizeof(m.head), fd);
	else
		c->server->lost++;
}

static const struct vb_agents_ops agents_ops = {.receive = on_receive};

static bool on_deliver(void *own, struct vb_fabric_port *port, const struct vb_fabric_packet *packet)
{
	return (port->host && vb_agents_deliver(port->host, packet)) || cm_deliver(own, port, packet);
}

const struct vb_fabric_ops server_fabric_ops = {.deliver = on_deliver,
                                                .is_attached = joined_are_attached,
                                                .deliver_to_group = joined_deliver,
                                                .cross = peer_cross,
                                                .cross_group = peer_cross_group,
                                                .count = joined_count,
                                                .show = captures_see,
                                                .show_group = captures_see_group};

/* --- from the program --- */

static void answer(int sock, int error, uint32_t agent)
{
	struct vb_fabric_reply r = {.error = error, .agent = agent};

	vb_fabric_try(sock, &(struct iovec){&r, sizeof(r)}, 1, -1);
}

static int attach(struct client *c, const char *node, unsigned port)
{
	struct vb_fabric_node *n = server_ca(c->server, node);
	struct vb_fabric_port *p = n ? vb_fabric_port(n, port) : NULL;

	if (!p)
		return ENODEV;
	if (c->file || c->joined || c->link)
		return EBUSY;
	struct vb_agents *a = p->host ? p->host : vb_agents_new(p, &agents_ops, &c->server->next_tid);
	c->file = a ? vb_agent_open(a, c) : NULL;
	if (!c->file)
		return ENOMEM;
	c->node = n;
	return 0;
}

static void open_cm(struct client *c, struct vb_fabric_cm_open *m)
{
	m->node[sizeof(m->node) - 1] = '\0';
	struct vb_fabric_node *n = server_ca(c->server, m->node);
	int rc = attach(c, m->node, 1);

	if (!rc) {
		rc = cm_open(c->server, vb_fabric_port(n, 1), c, m->lane, &c->cm);
		if (rc) {
			vb_agent_close(c->file);
			c->file = NULL;
			c->node = NULL;
		}
	}
	answer(c->fd, rc, 0);
}

static void take_cm(struct client *c, const void *bytes, size_t n, int fd, bool *taken)
{
	struct vb_fabric_reply r = {.error = EINVAL};

	*taken = cm_take(c->cm, bytes, n, &r);
	if (*taken && fd >= 0)
		answer(fd, r.error, r.agent);
}

static void take_register(struct client *c, const struct vb_fabric_register *r, int reply)
{
	struct vb_agent_registration g = {.qpn = r->qpn,
	                                  .mgmt_class = r->mgmt_class,
	                                  .class_version = r->class_version,
	                                  .rmpp_version = r->rmpp_version,
	                                  .oui = r->oui,
	                                  .method_mask = {r->method_mask[0], r->method_mask[1]},
	                                  .user_rmpp = r->user_rmpp != 0};
	unsigned agent = 0;
	int rc = !c->file || c->cm               ? ENOTCONN
	         : r->verb == VB_FABRIC_REGISTER ? vb_agent_register(c->file, &g, &agent)
	                                         : vb_agent_unregister(c->file, r->agent);

	if (reply >= 0)
		answer(reply, rc, agent);
}

static struct vb_agent_addr address_from(const struct vb_umad_head *h)
{
	struct vb_agent_addr a = {.qpn = ntohl(h->qpn),
	                          .qkey = ntohl(h->qkey),
	                          .lid = ntohs(h->lid),
	                          .pkey_index = h->pkey_index,
	                          .sl = h->sl,
	                          .path_bits = h->path_bits,
	                          .grh = h->grh_present != 0,
	                          .gid_index = h->gid_index,
	                          .hop_limit = h->hop_limit,
	                          .traffic_class = h->traffic_class,
	                          .flow_label = ntohl(h->flow_label)};

	memcpy(a.gid, h->gid, 16);
	return a;
}

/* A program may change the memfd while it is read, so it is copied first. */
static uint8_t *copy_memfd(int fd, size_t len)
{
	uint8_t *bytes = fd >= 0 && len <= VB_AGENT_LEN_MOST ? malloc(len ? len : 1) : NULL;
	ssize_t n = bytes ? pread(fd, bytes, len, 0) : -1;

	if (n == (ssize_t)len)
		return bytes;
	free(bytes);
	return NULL;
}

static void take_mad(struct client *c, const struct vb_fabric_send *m, size_t n, int fd)
{
	const uint8_t *mad = (const uint8_t *)(m + 1);
	size_t len = n - sizeof(*m);
	uint8_t *copy = NULL;

	if (!c->file || c->cm)
		return;
	if (m->len) {
		mad = copy = copy_memfd(fd, m->len);
		len = m->len;
	}
	if (mad) {
		struct vb_agent_addr a = address_from(&m->head);
		int rc = vb_agent_send(c->file, m->head.agent, &a, mad, len, m->head.timeout_ms, m->head.retries);

		/* the program's library has checked what it can: this is returned, as an error */
		if (rc && len >= VB_MAD_HEADER_LEN)
			on_receive(c, c->file, m->head.agent, rc, &a, mad, VB_MAD_HEADER_LEN);
	}
	free(copy);
}

static void answer_text(struct client *c, int rc, const char *text, size_t len)
{
	struct vb_fabric_reply r = {.error = rc};
	int fd = memfd_of(text, len);

	if (fd < 0)
		r.error = errno;
	client_post_with(c, &r, sizeof(r), fd);
}

static void take_ctl(struct client *c, char *command)
{
	char *text = NULL;
	size_t len = 0;
	FILE *out = open_memstream(&text, &len);

	if (!out)
		return;
	int rc = ctl_command(c->server, command, out);
	fclose(out);
	answer_text(c, rc, text, len);
	free(text);
}

/* After the reply, which may say that it cannot be. */
static void take_capture(struct client *c, char *command)
{
	struct vb_fabric_node *n;
	struct vb_fabric_port *p;
	char *text = NULL;
	size_t len = 0;
	FILE *out = open_memstream(&text, &len);

	if (!out)
		return;
	int rc = ctl_capture(c->server, command, &n, &p, out);

	if (!rc && (c->file || c->joined || c->link || c->capture))
		rc = EBUSY;
	if (!rc && !(c->capture = capture_open(c->server, n, p, c)))
		rc = ENOMEM;
	fclose(out);
	answer_text(c, rc, text, len);
	free(text);
}

static void take_file(struct client *c, const struct vb_fabric_ask *ask)
{
	struct vb_fabric_node *n = server_ca(c->server, ask->node);
	char *text = NULL;
	size_t len = 0;
	FILE *out = open_memstream(&text, &len);

	if (!out)
		return;
	int rc = n ? show_file(c->server, n, ask->path, out) : ENODEV;
	fclose(out);
	if (!rc && len)
		client_post(c, text, len < VB_FABRIC_INLINE ? len : VB_FABRIC_INLINE);
	else
		client_post(c, "", 1); /* a zero byte: there is no such file */
	free(text);
}

static void take_ca(struct client *c, const struct vb_fabric_ask *ask)
{
	struct vb_fabric_node *n = server_ca(c->server, ask->node);
	struct vb_fabric_ca ca = {.error = ENODEV};

	if (n)
		show_ca(c->server, n, &ca);
	client_post(c, &ca, sizeof(ca));
}

static void take_address(struct client *c, const struct vb_fabric_ask *ask)
{
	struct vb_fabric_node *n = server_ca(c->server, ask->node);
	struct vb_fabric_address is = {.error = ENODEV};

	if (n)
		address_show(c->server, n, ask->path, &is);
	client_post(c, &is, sizeof(is));
}

static void take_issm(struct client *c, const struct vb_fabric_ask *ask)
{
	struct vb_fabric_node *n = server_ca(c->server, ask->node);
	struct vb_fabric_port *p = n ? vb_fabric_port(n, ask->port) : NULL;
	char path[PATH_MAX + 128] = "";

	if (!p || issm_path(c->server, p, path, sizeof(path)))
		path[0] = '\0';
	client_post(c, path, strlen(path) + 1);
}

/* PORT, or JOIN: once on a connection that is nothing else yet. */
static void answer_port(struct client *c, const struct vb_fabric_ask *ask)
{
	struct vb_fabric_node *n = server_ca(c->server, ask->node);
	struct vb_fabric_port *p = n ? vb_fabric_port(n, ask->port) : NULL;
	struct vb_fabric_port_is is = {.verb = VB_FABRIC_PORT_IS, .error = ENODEV};

	if (p && ask->verb == VB_FABRIC_JOIN) {
		is.error = c->file || c->joined || c->link ? EBUSY : ENOMEM;
		if (is.error != EBUSY && (c->joined = join_open(c->server, p, c))) {
			c->node = n;
			return;
		}
	} else if (p) {
		join_show_port(c->server, p, &is);
	}
	client_post(c, &is, sizeof(is));
}

/* As many as a queue pair has in flight, so that a program that computes stops its senders less often. The kernel counts
 * twice what is asked for. */
static void hold_trains(int sock)
{
	int size = LINK_QUEUE;

	if (setsockopt(sock, SOL_SOCKET, SO_SNDBUFFORCE, &size, sizeof(size)))
		setsockopt(sock, SOL_SOCKET, SO_SNDBUF, &size, sizeof(size));
}

static void answer_link(struct client *c, struct vb_fabric_link_ask *ask)
{
	struct vb_fabric_reply r = {.error = EBUSY};

	ask->node[sizeof(ask->node) - 1] = '\0';
	if (!c->file && !c->joined)
		r.error = link_open(c->server, ask, c, &c->link);
	if (!r.error) {
		c->node = server_ca(c->server, ask->node);
		hold_trains(c->fd);
	}
	client_post(c, &r, sizeof(r));
}

static bool take_ask(struct client *c, struct vb_fabric_ask *ask)
{
	ask->node[sizeof(ask->node) - 1] = ask->path[sizeof(ask->path) - 1] = '\0';
	switch (ask->verb) {
	case VB_FABRIC_ATTACH:
		answer(c->fd, attach(c, ask->node, ask->port), 0);
		return true;
	case VB_FABRIC_CA:
		take_ca(c, ask);
		return true;
	case VB_FABRIC_FILE:
		take_file(c, ask);
		return true;
	case VB_FABRIC_ISSM:
		take_issm(c, ask);
		return true;
	case VB_FABRIC_ADDRESS:
		take_address(c, ask);
		return true;
	case VB_FABRIC_KEEP:
		answer(c->fd, keep_add(c->server, c->fd), 0);
		return true;
	case VB_FABRIC_PORT:
	case VB_FABRIC_JOIN:
		answer_port(c, ask);
		return true;
	default:
		return false;
	}
}

/* Returns false if the message is none of ours: the connection ends. */
static bool take_message(struct client *c, uint8_t *bytes, size_t n, int fd)
{
	uint32_t verb;

	if (c->link) {
		link_take(c->link, bytes, n);
		return true;
	}
	if (n < sizeof(verb))
		return false;
	memcpy(&verb, bytes, sizeof(verb));
	if (verb == VB_FABRIC_SEND && n >= sizeof(struct vb_fabric_send)) {
		take_mad(c, (void *)bytes, n, fd);
		return true;
	}
	if ((verb == VB_FABRIC_REGISTER || verb == VB_FABRIC_UNREGISTER) && n == sizeof(struct vb_fabric_register)) {
		take_register(c, (void *)bytes, fd);
		return true;
	}
	if (verb == VB_FABRIC_CTL && n > sizeof(verb)) {
		bytes[n] = '\0';
		take_ctl(c, (char *)bytes + sizeof(verb));
		return true;
	}
	if (verb == VB_FABRIC_CAPTURE) {
		bytes[n] = '\0';
		take_capture(c, (char *)bytes + sizeof(verb));
		return true;
	}
	if (verb == VB_FABRIC_LINK && n == sizeof(struct vb_fabric_link_ask)) {
		answer_link(c, (void *)bytes);
		return true;
	}
	if (c->joined && verb == VB_FABRIC_COUNTS && n == sizeof(struct vb_fabric_counts))
		return join_counts(c->joined, fd);
	if (c->joined && join_take(c->joined, bytes, n))
		return true;
	bool taken = false;

	if (c->cm)
		take_cm(c, bytes, n, fd, &taken);
	if (taken)
		return true;
	if (verb == VB_FABRIC_CM && n == sizeof(struct vb_fabric_cm_open)) {
		open_cm(c, (void *)bytes);
		return true;
	}
	return n == sizeof(struct vb_fabric_ask) && take_ask(c, (void *)bytes);
}

/* Returns false if the connection is over. */
static bool read_one(struct client *c, bool *more)
{
	static uint8_t bytes[VB_FABRIC_MESSAGE + 1] __attribute__((aligned(8)));
	char control[CMSG_SPACE(4 * sizeof(int))] __attribute__((aligned(8)));
	struct iovec iov = {bytes, VB_FABRIC_MESSAGE};
	struct msghdr h = {.msg_iov = &iov, .msg_iovlen = 1, .msg_control = control, .msg_controllen = sizeof(control)};
	ssize_t n = recvmsg(c->fd, &h, MSG_DONTWAIT | MSG_CMSG_CLOEXEC);

	*more = n > 0;
	if (n < 0)
		return errno == EAGAIN || errno == EINTR;
	int fd = vb_fabric_descriptor(&h);
	bool right = n > 0 && !(h.msg_flags & MSG_TRUNC) && take_message(c, bytes, (size_t)n, fd);
	if (fd >= 0)
		close(fd);
	return right;
}

/* --- connections --- */

static void client_close(struct server *s, struct client *c)
{
	if (c->cm)
		cm_close(c->cm);
	c->cm = NULL;
	if (c->file)
		vb_agent_close(c->file);
	if (c->joined)
		join_close(c->joined);
	if (c->link)
		link_close(c->link);
	if (c->capture)
		capture_close(c->capture);
	client_drop_all(c);
	close(c->fd);
	*c->at = c->next;
	if (c->next)
		c->next->at = c->at;
	free(c);
}

bool client_open(struct server *s, int fd)
{
	struct client *c = calloc(1, sizeof(*c));
	struct epoll_event e = {.events = EPOLLIN, .data.ptr = c};

	if (!c || epoll_ctl(s->epoll, EPOLL_CTL_ADD, fd, &e)) {
		free(c);
		close(fd);
		return false;
	}
	*c = (struct client){.server = s, .fd = fd, .next = s->clients, .at = &s->clients};
	c->last = &c->first;
	if (c->next)
		c->next->at = &c->next;
	s->clients = c;
	return true;
}

void client_event(struct server *s, struct client *c, uint32_t events)
{
	bool more = true, alive = true;

	if (events & EPOLLOUT)
		client_flush(c);
	for (int i = 0; i < (c->link ? TRAINS : BATCH) && alive && more && !c->paused; i++)
		alive = read_one(c, &more);
	if (!alive)
		client_close(s, c);
}

/* --- time --- */

/* What one file does may give another one a deadline, so all are looked at afterwards. */
void clients_time(struct server *s)
{
	uint64_t due = UINT64_MAX;

	if (s->now < s->fabric->agents_due)
		return;
	for (struct client *c = s->clients; c; c = c->next)
		if (c->file)
			vb_agent_time(c->file);
	for (const struct client *c = s->clients; c; c = c->next) {
		uint64_t one = c->file ? vb_agent_deadline(c->file) : UINT64_MAX;

		due = one < due ? one : due;
	}
	s->fabric->agents_due = due;
}

uint64_t clients_deadline(const struct server *s)
{
	return s->fabric->agents_due;
}

bool node_has_programs(const struct server *s, const struct vb_fabric_node *n)
{
	for (const struct client *c = s->clients; c; c = c->next)
		if (c->node == n)
			return true;
	return false;
}

void clients_close(struct server *s)
{
	while (s->clients)
		client_close(s, s->clients);
}
