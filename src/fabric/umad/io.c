// io.c - a umad port: its descriptor is a socket to the fabric process, from which a program may poll
// follows: umad_open_port(3), umad_register(3), umad_register2(3), umad_send(3), umad_recv(3)
// SPDX-License-Identifier: MIT
#include <endian.h>
#include <errno.h>
#include <fcntl.h>
#include <infiniband/umad.h>
#include <poll.h>
#include <pthread.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/socket.h>
#include <sys/uio.h>
#include <unistd.h>

#include "fabric/umad/umad.h"

_Static_assert(sizeof(struct ib_user_mad) == sizeof(struct vb_umad_head), "the layout that the kernel and we use");

#define OPENIB_OUI 0x001405 /* what rdma-core registers for classes without one */

#define GONE_US 200000

static int debug_level;

/* Looking at a message and taking it must not be parted by another thread. */
static pthread_mutex_t take_lock = PTHREAD_MUTEX_INITIALIZER;

void umad_complain(const char *fmt, ...)
{
	va_list ap;

	fputs("verbena: libibumad: ", stderr);
	va_start(ap, fmt);
	vfprintf(stderr, fmt, ap);
	va_end(ap);
	fputc('\n', stderr);
}

/* --- open and close --- */

int umad_open_port(const char *ca_name, int portnum)
{
	struct vb_fabric_ask ask = {.verb = VB_FABRIC_ATTACH};
	struct vb_fabric_reply reply = {0};
	struct vb_fabric_ca ca;
	int num = umad_find_port(ca_name, portnum, &ca), sock;

	if (num < 0)
		return num;
	ask.port = (uint32_t)num;
	snprintf(ask.node, sizeof(ask.node), "%s", vb_fabric_node_name());
	sock = vb_fabric_connect_to(vb_fabric_socket());
	if (sock < 0)
		return -EIO;
	if (vb_fabric_say(sock, &ask, sizeof(ask), -1) ||
	    vb_fabric_hear(sock, &reply, sizeof(reply), NULL) != sizeof(reply) || reply.error ||
	    fcntl(sock, F_SETFL, O_NONBLOCK)) {
		close(sock);
		return -EIO;
	}
	return sock;
}

int umad_open_smi_port(const char *ca_name, int portnum)
{
	return umad_open_port(ca_name, portnum);
}

int umad_close_port(int fd)
{
	close(fd);
	return 0;
}

int umad_get_fd(int fd)
{
	return fd;
}

/* --- agents --- */

/* The reply comes on a socket of its own, because datagrams may be waiting on the port's. Returns an errno. */
static int ask_agent(int fd, struct vb_fabric_register *r)
{
	struct vb_fabric_reply reply;
	int pair[2];

	if (socketpair(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0, pair))
		return errno;
	int rc = vb_fabric_say(fd, r, sizeof(*r), pair[1]);
	close(pair[1]);
	if (!rc && vb_fabric_hear(pair[0], &reply, sizeof(reply), NULL) != sizeof(reply))
		rc = EIO;
	close(pair[0]);
	if (rc)
		return rc;
	r->agent = reply.agent;
	if (!reply.error && reply.agent >= VB_FABRIC_AGENTS)
		return EIO;
	return reply.error;
}

static uint8_t qpn_of(int mgmt_class)
{
	return mgmt_class == 0x01 || mgmt_class == 0x81 ? 0 : 1;
}

/* A method mask of the calls with long[]: words of the machine, as the kernel's bitmap. */
static void take_mask(uint64_t mask[2], const long *method_mask)
{
	if (method_mask)
		memcpy(mask, method_mask, 16);
}

int umad_register(int fd, int mgmt_class, int mgmt_version, uint8_t rmpp_version, long method_mask[16 / sizeof(long)])
{
	struct vb_fabric_register r = {.verb = VB_FABRIC_REGISTER,
	                               .qpn = qpn_of(mgmt_class),
	                               .mgmt_class = (uint8_t)mgmt_class,
	                               .class_version = (uint8_t)mgmt_version,
	                               .rmpp_version = rmpp_version,
	                               .oui = OPENIB_OUI};

	take_mask(r.method_mask, method_mask);
	return ask_agent(fd, &r) ? -EPERM : (int)r.agent;
}

int umad_register_oui(int fd, int mgmt_class, uint8_t rmpp_version, uint8_t oui[3], long method_mask[16 / sizeof(long)])
{
	struct vb_fabric_register r = {.verb = VB_FABRIC_REGISTER,
	                               .qpn = 1,
	                               .mgmt_class = (uint8_t)mgmt_class,
	                               .class_version = 1,
	                               .rmpp_version = rmpp_version};

	if (mgmt_class < 0x30 || mgmt_class > 0x4f)
		return -EINVAL;
	r.oui = (uint32_t)(oui[0] << 16 | oui[1] << 8 | oui[2]);
	take_mask(r.method_mask, method_mask);
	return ask_agent(fd, &r) ? -EPERM : (int)r.agent;
}

int umad_register2(int port_fd, struct umad_reg_attr *attr, uint32_t *agent_id)
{
	if (!attr || !agent_id)
		return EINVAL;
	bool vendor = attr->mgmt_class >= 0x30 && attr->mgmt_class <= 0x4f;
	struct vb_fabric_register r = {.verb = VB_FABRIC_REGISTER,
	                               .qpn = qpn_of(attr->mgmt_class),
	                               .mgmt_class = attr->mgmt_class,
	                               .class_version = attr->mgmt_class_version,
	                               .rmpp_version = attr->rmpp_version,
	                               .oui = attr->oui,
	                               .user_rmpp = attr->flags & UMAD_USER_RMPP,
	                               .method_mask = {attr->method_mask[0], attr->method_mask[1]}};

	if (vendor && (!(attr->oui & 0xffffff) || attr->oui & 0xff000000))
		return EINVAL;
	if (attr->flags & ~(uint32_t)UMAD_USER_RMPP) { /* says which flags there are, as the kernel does */
		attr->flags = UMAD_USER_RMPP;
		return EINVAL;
	}
	int rc = ask_agent(port_fd, &r);
	if (!rc)
		*agent_id = r.agent;
	return rc;
}

int umad_unregister(int fd, int agentid)
{
	struct vb_fabric_register r = {.verb = VB_FABRIC_UNREGISTER, .agent = (uint32_t)agentid};
	int rc = ask_agent(fd, &r);

	errno = rc ? rc : errno;
	return rc ? -1 : 0;
}

/* --- datagrams --- */

static int send_large(int fd, struct vb_fabric_send *m, const void *mad, size_t len)
{
	int mem = memfd_create("umad", MFD_CLOEXEC), rc = mem < 0 ? errno : 0;

	for (size_t at = 0; !rc && at < len;) {
		ssize_t n = write(mem, (const char *)mad + at, len - at);

		if (n <= 0)
			rc = n ? errno : EIO;
		else
			at += (size_t)n;
	}
	m->len = (uint32_t)len;
	rc = rc ? rc : vb_fabric_say(fd, m, sizeof(*m), mem);
	if (mem >= 0)
		close(mem);
	return rc;
}

int umad_send(int fd, int agentid, void *umad, int length, int timeout_ms, int retries)
{
	enum { SHORTEST = 36 }; /* the kernel wants the header of RMPP too */
	struct ib_user_mad *mad = umad;
	struct vb_fabric_send m = {.verb = VB_FABRIC_SEND};

	mad->timeout_ms = (uint32_t)timeout_ms;
	mad->retries = (uint32_t)retries;
	mad->agent_id = (uint32_t)agentid;
	if (debug_level > 1)
		umad_dump(mad);
	if (length < SHORTEST) {
		errno = EINVAL;
		return -EIO;
	}
	memcpy(&m.head, mad, sizeof(m.head));
	struct iovec parts[] = {{&m, sizeof(m)}, {mad->data, (size_t)length}};
	int rc = length > VB_FABRIC_INLINE ? send_large(fd, &m, mad->data, (size_t)length)
	                                   : vb_fabric_say_parts(fd, parts, 2, -1);
	if (!rc)
		return 0;
	errno = rc;
	return -EIO;
}

int umad_poll(int fd, int timeout_ms)
{
	struct pollfd p = {.fd = fd, .events = POLLIN};
	int n = poll(&p, 1, timeout_ms);

	return n == 1 ? 0 : n ? -EIO : -ETIMEDOUT;
}

/* Takes the message whose head was seen. Returns 0 or an errno. */
static int take_seen(int fd, struct ib_user_mad *mad, size_t len, size_t room)
{
	char control[CMSG_SPACE(sizeof(int))] __attribute__((aligned(8)));
	struct iovec iov = {mad, sizeof(*mad) + room};
	struct msghdr h = {.msg_iov = &iov, .msg_iovlen = 1, .msg_control = control, .msg_controllen = sizeof(control)};
	ssize_t n = recvmsg(fd, &h, MSG_DONTWAIT | MSG_CMSG_CLOEXEC);
	int mem = n < 0 ? -1 : vb_fabric_descriptor(&h);

	if (mem < 0)
		return n == (ssize_t)(sizeof(*mad) + len) ? 0 : EIO;
	ssize_t got = pread(mem, mad->data, len, 0);
	close(mem);
	return got == (ssize_t)len ? 0 : EIO;
}

/* Returns the agent, or a negative errno; ENOSPC leaves the message where it is. */
static int take_one(int fd, struct ib_user_mad *mad, int *length)
{
	struct ib_user_mad head;
	ssize_t n = recv(fd, &head, sizeof(head), MSG_PEEK | MSG_DONTWAIT);

	if (n < 0)
		return errno == EAGAIN ? -EWOULDBLOCK : -EIO;
	if (n != sizeof(head) || head.length < sizeof(head))
		return -ENODEV; /* the fabric has gone */
	size_t len = head.length - sizeof(head), room = *length > 0 ? (size_t)*length : 0;
	if (len > room) {
		*length = (int)len;
		return -ENOSPC;
	}
	int rc = take_seen(fd, mad, len, room);
	if (rc || mad->agent_id >= VB_FABRIC_AGENTS)
		return rc ? -rc : -EIO;
	*length = (int)len;
	return (int)mad->agent_id;
}

int umad_recv(int fd, void *umad, int *length, int timeout_ms)
{
	int rc;

	errno = 0;
	if (!umad || !length) {
		errno = EINVAL;
		return -EINVAL;
	}
	if (timeout_ms && (rc = umad_poll(fd, timeout_ms)) < 0) {
		errno = errno ? errno : -rc;
		return rc;
	}
	pthread_mutex_lock(&take_lock);
	rc = take_one(fd, umad, length);
	pthread_mutex_unlock(&take_lock);
	if (rc == -ENODEV) { /* opensm asks again at once, for ever, and logs each time */
		usleep(GONE_US);
		rc = -EIO;
	}
	if (rc < 0)
		errno = -rc;
	return rc;
}

/* --- the parts of a umad --- */

void *umad_get_mad(void *umad)
{
	return ((struct ib_user_mad *)umad)->data;
}

size_t umad_size(void)
{
	return sizeof(struct ib_user_mad);
}

int umad_status(void *umad)
{
	return (int)((struct ib_user_mad *)umad)->status;
}

ib_mad_addr_t *umad_get_mad_addr(void *umad)
{
	return &((struct ib_user_mad *)umad)->addr;
}

int umad_set_grh(void *umad, void *mad_addr)
{
	struct ib_user_mad *mad = umad;
	const struct ib_mad_addr *addr = mad_addr;

	mad->addr.grh_present = addr != NULL;
	if (!addr)
		return 0;
	mad->addr.ib_gid = addr->ib_gid;
	mad->addr.flow_label = htobe32((uint32_t)addr->flow_label);
	mad->addr.hop_limit = addr->hop_limit;
	mad->addr.traffic_class = addr->traffic_class;
	return 0;
}

int umad_set_pkey(void *umad, int pkey_index)
{
	((struct ib_user_mad *)umad)->addr.pkey_index = (uint16_t)pkey_index;
	return 0;
}

int umad_get_pkey(void *umad)
{
	return ((struct ib_user_mad *)umad)->addr.pkey_index;
}

int umad_set_addr_net(void *umad, __be16 dlid, __be32 dqp, int sl, __be32 qkey)
{
	struct ib_user_mad *mad = umad;

	mad->addr.qpn = dqp;
	mad->addr.lid = dlid;
	mad->addr.qkey = qkey;
	mad->addr.sl = (uint8_t)sl;
	return 0;
}

int umad_set_addr(void *umad, int dlid, int dqp, int sl, int qkey)
{
	return umad_set_addr_net(umad, htobe16((uint16_t)dlid), htobe32((uint32_t)dqp), sl, htobe32((uint32_t)qkey));
}

int umad_debug(int level)
{
	if (level >= 0)
		debug_level = level;
	return debug_level;
}

void umad_addr_dump(ib_mad_addr_t *addr)
{
	fprintf(stderr,
	        "qpn %u qkey 0x%x lid %u sl %u grh_present %u gid_index %u hop_limit %u traffic_class %u flow_label 0x%x pkey_index %u gid 0x",
	        be32toh(addr->qpn), be32toh(addr->qkey), be16toh(addr->lid), addr->sl, addr->grh_present,
	        addr->gid_index, addr->hop_limit, addr->traffic_class, be32toh(addr->flow_label), addr->pkey_index);
	for (size_t i = 0; i < sizeof(addr->gid); i++)
		fprintf(stderr, "%02x", addr->gid[i]);
	fputc('\n', stderr);
}

void umad_dump(void *umad)
{
	struct ib_user_mad *mad = umad;

	fprintf(stderr, "agent %u status %u timeout %u ", mad->agent_id, mad->status, mad->timeout_ms);
	umad_addr_dump(&mad->addr);
}
