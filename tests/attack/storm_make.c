// storm_make.c - an attacker's messages and descriptors: valid, nearly valid, and invalid
// follows: unix(7); IBA 12.6
// see: src/broker/proto/proto.h
// SPDX-License-Identifier: MIT
#include "storm_walk.h"

#include <arpa/inet.h>
#include <errno.h>
#include <fcntl.h>
#include <netinet/in.h>
#include <poll.h>
#include <string.h>
#include <sys/eventfd.h>
#include <sys/mman.h>
#include <sys/socket.h>
#include <unistd.h>

#ifndef F_SEAL_FUTURE_WRITE
#define F_SEAL_FUTURE_WRITE 0x0010
#endif

struct walk w;

uint32_t some(uint32_t n)
{
	return below(&w.dice, n);
}

bool one_in(uint32_t n)
{
	return !some(n);
}

struct link *some_link(void)
{
	return &w.links[some(LINKS)];
}

/* An attached connection, if there is one. */
struct link *some_member(void)
{
	uint32_t start = some(LINKS);

	for (uint32_t i = 0; i < LINKS; i++)
		if (w.links[(start + i) % LINKS].lane)
			return &w.links[(start + i) % LINKS];
	return &w.links[start];
}

/* A lane of ours, of other programs, or a random one. */
uint32_t some_lane(void)
{
	switch (some(4)) {
	case 0:
		return some(VB_LANE_COUNT);
	case 1:
		return w.nlanes ? w.lanes[some(w.nlanes)] : 0;
	default:
		return some_member()->lane;
	}
}

void some_gid(uint8_t gid[16])
{
	static const char *const hosts[] = {"127.0.0.1", "127.0.0.2", "127.0.0.3", "127.0.0.4",
	                                    "127.0.0.9", "224.0.0.1", "8.8.8.8",   "0.0.0.0"};

	switch (some(4)) {
	case 0:
		roll_bytes(&w.dice, gid, 16);
		break;
	case 1:
		memcpy(gid, w.gid, 16);
		break;
	case 2:
		memset(gid, 0, 16);
		gid[15] = (uint8_t)some(2); /* ::1, or a random one */
		break;
	default:
		gid_v4(gid, hosts[some(sizeof(hosts) / sizeof(hosts[0]))]);
	}
}

/* ---- descriptors of all kinds ---- */

static int memfd(off_t size, int seals)
{
	int fd = memfd_create("storm", MFD_CLOEXEC | MFD_ALLOW_SEALING);

	if (fd >= 0 && (ftruncate(fd, size) || fcntl(fd, F_ADD_SEALS, seals)))
		errno = 0; /* then it has another wrong kind */
	return fd;
}

/* One end of a TCP connection whose data nobody reads: the last close may block for an hour. The other end stays in the
 * listener's queue as long as the listener exists. */
static int lingering_socket(void)
{
	struct linger hour = {1, 3600};
	static char data[8192];
	int small = 4096, fd = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0);

	setsockopt(fd, SOL_SOCKET, SO_SNDBUF, &small, sizeof(small));
	connect(fd, (struct sockaddr *)&w.listens_at, sizeof(w.listens_at));
	struct pollfd p = {.fd = fd, .events = POLLOUT};

	poll(&p, 1, 100);
	for (int i = 0; i < 200 && send(fd, data, sizeof(data), MSG_DONTWAIT | MSG_NOSIGNAL) > 0; i++)
		;
	setsockopt(fd, SOL_SOCKET, SO_LINGER, &hour, sizeof(hour));
	return fd;
}

void listen_to_nobody(void)
{
	socklen_t len = sizeof(w.listens_at);
	int small = 4096, fd = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);

	w.listens_at = (struct sockaddr_in){.sin_family = AF_INET, .sin_addr = {htonl(INADDR_LOOPBACK)}};
	setsockopt(fd, SOL_SOCKET, SO_RCVBUF, &small, sizeof(small));
	CHECK(!bind(fd, (struct sockaddr *)&w.listens_at, len) && !listen(fd, 1024));
	getsockname(fd, (struct sockaddr *)&w.listens_at, &len);
}

/* A Unix socket with an unread message that contains a descriptor. */
static int stuffed_socket(void)
{
	int pair[2];

	if (socketpair(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0, pair))
		return -1;
	struct link to = {.sock = pair[0]};
	int inside = one_in(2) ? lingering_socket() : dup(pair[one_in(2)]);

	link_send(&to, "x", 1, &inside, 1);
	close(inside);
	close(pair[0]);
	return pair[1];
}

static int odd_fd(void)
{
	int pair[2];

	switch (some(14)) {
	case 0:
		return memfd(4096, F_SEAL_SHRINK | F_SEAL_FUTURE_WRITE);
	case 1:
		return memfd(4096, F_SEAL_SHRINK | F_SEAL_GROW);
	case 2:
		return memfd(one_in(2) ? 0 : 4097, F_SEAL_SHRINK);
	case 3:
		return memfd(1ll << (12 + some(36)), F_SEAL_SHRINK | F_SEAL_GROW | F_SEAL_WRITE | F_SEAL_SEAL);
	case 4:
		return memfd(1ll << 30, F_SEAL_SHRINK | F_SEAL_FUTURE_WRITE);
	case 5:
		return eventfd(0, EFD_CLOEXEC | (one_in(2) ? EFD_SEMAPHORE : EFD_NONBLOCK));
	case 6:
		return open("/", O_RDONLY | O_DIRECTORY | O_CLOEXEC);
	case 7:
		return open(one_in(2) ? "/dev/zero" : "/proc/self/status", O_RDONLY | O_CLOEXEC);
	case 8:
		return open("/", O_PATH | O_CLOEXEC);
	case 9:
		if (pipe2(pair, O_CLOEXEC))
			return -1;
		close(pair[one_in(2)]); /* sends one of the two ends; closing the other's number may fail */
		return fcntl(pair[0], F_GETFD) < 0 ? pair[1] : pair[0];
	case 10:
		return lingering_socket();
	case 11:
		return stuffed_socket();
	case 12:
		return dup(some_link()->sock); /* the broker gets a connection to itself */
	default:
		return dup(some_member()->relay);
	}
}

int odd_fds(int *fds, int n)
{
	int got = 0;

	for (int i = 0; i < n; i++) {
		/* many copies of one: few calls, and many closes for the broker */
		fds[got] = i > 3 ? dup(fds[some((uint32_t)got)]) : one_in(3) ? dup(w.good[some(3)]) : odd_fd();
		got += fds[got] >= 0;
	}
	return got;
}

/* ---- messages ---- */

size_t make_attach(uint8_t *out, uint32_t ngids, bool claim)
{
	struct vb_msg_attach m = {.head = head_for(VB_MSG_ATTACH, sizeof(m) + ngids * 16ull), .ngids = ngids};

	if (claim) {
		m.lane = some_lane();
		m.incarnation = one_in(2) ? some_member()->incarnation : roll(&w.dice);
		m.network = roll(&w.dice);
	}
	memcpy(out, &m, sizeof(m));
	for (uint32_t i = 0; i < ngids; i++)
		some_gid(out + sizeof(m) + i * 16ull);
	return sizeof(m) + ngids * 16ull;
}

static uint32_t some_comm_id(void)
{
	return some_lane() << 22 | some(1 + (1u << some(22)));
}

static uint16_t some_port(void)
{
	return (uint16_t)(one_in(3) ? some(65536) : 20000 + some(16));
}

static uint16_t some_space(void)
{
	static const uint16_t spaces[] = {VB_PS_TCP, VB_PS_UDP, VB_PS_IB, VB_PS_IPOIB, 7};

	return spaces[some(5)];
}

void make_mad(uint8_t mad[VB_MAD_LEN])
{
	struct vb_cm_msg m;
	uint32_t id = some_comm_id(), other = some_comm_id();

	roll_bytes(&w.dice, &m, sizeof(m));
	m.attr = (enum vb_cm_attr)(VB_CM_REQ + some(11));
	m.tid = roll(&w.dice);
	/* most messages have both ids at the same offsets; a request has one */
	if (m.attr == VB_CM_REQ) {
		memset(&m.req, 0, sizeof(m.req));
		m.req.local_comm_id = id;
		m.req.service_id = vb_cm_service_id(some_space(), some_port());
	} else if (m.attr == VB_CM_SIDR_REQ) {
		memset(&m.sidr_req, 0, sizeof(m.sidr_req));
		m.sidr_req.request_id = id;
		m.sidr_req.service_id = vb_cm_service_id(some_space(), some_port());
	} else if (m.attr == VB_CM_LAP || m.attr == VB_CM_REP || m.attr == VB_CM_SIDR_REP) {
		memset((uint8_t *)&m + offsetof(struct vb_cm_msg, req), 0, sizeof(m) - offsetof(struct vb_cm_msg, req));
		m.rtu.local_comm_id = m.attr == VB_CM_SIDR_REP ? other : id;
		m.rtu.remote_comm_id = other;
	} else {
		m.rtu.local_comm_id = id;
		m.rtu.remote_comm_id = one_in(4) ? 0 : other;
		if (m.attr == VB_CM_REJ)
			m.rej.ari_len %= VB_CM_ARI + 1;
		if (m.attr == VB_CM_APR)
			m.apr.ari_len %= VB_CM_ARI + 1;
	}
	vb_cm_encode(mad, &m);
	for (uint32_t i = one_in(4) ? some(6) : 0; i > 0; i--)
		mad[some(VB_MAD_LEN)] = (uint8_t)roll(&w.dice);
}

static size_t make_send(uint8_t *out, const struct link *from)
{
	struct vb_msg_cm_mad m = {.head = head_for(VB_MSG_CM_SEND, sizeof(m)), .ifindex = some(4)};

	some_gid(m.local);
	some_gid(m.remote);
	make_mad(m.mad);
	if (!one_in(3)) { /* otherwise most would fail: uses an id of its own and an address that it announces */
		uint32_t id = htonl(from->lane << 22 | some(1u << 16));

		memcpy(m.mad + VB_MAD_HEADER_LEN, &id, sizeof(id));
		memcpy(m.local, w.gid, 16);
	}
	memcpy(out, &m, sizeof(m));
	return sizeof(m);
}

size_t make_bind(uint8_t *out)
{
	struct vb_msg_cm_bind m = {.head = head_for(VB_MSG_CM_BIND, sizeof(m)),
	                           .id = some(one_in(2) ? 8 : UINT32_MAX),
	                           .ifindex = some(3),
	                           .port_space = some_space(),
	                           .port = one_in(2) ? some_port() : 0,
	                           .v4_only = one_in(2),
	                           .reuse = one_in(2),
	                           .listen = one_in(2),
	                           .v6_only = one_in(3)};

	if (one_in(2))
		some_gid(m.local);
	memcpy(out, &m, sizeof(m));
	return sizeof(m);
}

static size_t make_at_death(uint8_t *out, const struct link *from)
{
	struct vb_msg_cm_at_death m = {.head = head_for(VB_MSG_CM_AT_DEATH, sizeof(m)),
	                               .ifindex = some(3),
	                               .local_id = from->lane << 22 | (1 + some(1u << 20)),
	                               .remote_id = some_comm_id(),
	                               .remote_qpn = some(VB_QPN_MASK)};

	some_gid(m.local);
	some_gid(m.remote);
	if (!one_in(3))
		memcpy(m.local, w.gid, 16);
	memcpy(out, &m, sizeof(m));
	return sizeof(m);
}

static size_t make_group(uint8_t *out)
{
	struct vb_msg_roce_group m = {
	        .head = head_for(VB_MSG_ROCE_GROUP, sizeof(m)), .ifindex = some(5), .join = !one_in(3)};

	some_gid(m.group);
	if (!one_in(4))
		m.group[0] = 0xff, m.group[1] = (uint8_t)some(16);
	else if (one_in(2))
		gid_v4(m.group, "239.1.1.1"), m.group[15] = (uint8_t)some(64);
	memcpy(out, &m, sizeof(m));
	return sizeof(m);
}

static size_t make_gids(uint8_t *out)
{
	uint32_t n = one_in(4) ? VB_MAX_GIDS : some(5);
	struct vb_msg_set_gids m = {.head = head_for(VB_MSG_SET_GIDS, sizeof(m) + n * 16ull), .n = n};

	memcpy(out, &m, sizeof(m));
	for (uint32_t i = 0; i < n; i++)
		some_gid(out + sizeof(m) + i * 16ull);
	if (n)
		memcpy(out + sizeof(m), w.gid, 16);
	return sizeof(m) + n * 16ull;
}

static size_t make_meet(uint8_t *out)
{
	struct vb_msg_meet m = {.head = head_for(VB_MSG_MEET, sizeof(m)),
	                        .tag = roll(&w.dice),
	                        .qpn = some_lane() << VB_LANE_SHIFT | some(1 << VB_LANE_SHIFT)};

	some_gid(m.dgid);
	if (!one_in(3))
		memcpy(m.dgid, w.gid, 16);
	memcpy(out, &m, sizeof(m));
	return sizeof(m);
}

static const uint8_t plain[] = {VB_MSG_STATUS, VB_MSG_ROCE, VB_MSG_CM_OPEN, VB_MSG_CM_CLOSE, VB_MSG_DETACH};

static size_t make_plain(uint8_t *out, uint8_t type)
{
	struct vb_msg_head head = head_for(type, sizeof(head));

	memcpy(out, &head, sizeof(head));
	return sizeof(head);
}

static size_t make_binding(uint8_t *out, uint8_t type)
{
	struct vb_msg_cm_binding m = {.head = head_for(type, sizeof(m)), .id = some(9)};

	memcpy(out, &m, sizeof(m));
	return sizeof(m);
}

size_t make_any(uint8_t *out, const struct link *from)
{
	switch (some(12)) {
	case 0:
		return make_attach(out, some(3), one_in(2));
	case 1:
		return make_gids(out);
	case 2:
	case 3:
		return make_meet(out);
	case 4:
		return make_group(out);
	case 5:
	case 6:
		return make_send(out, from);
	case 7:
		return make_at_death(out, from);
	case 8:
		return make_bind(out);
	case 9:
		return make_binding(out, one_in(2) ? VB_MSG_CM_LISTEN : VB_MSG_CM_UNBIND);
	default:
		return make_plain(out, plain[some(one_in(4) ? 5 : 4)]);
	}
}
