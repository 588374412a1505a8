// storm_link.c - raw connections to a broker, for honest and hostile programs
// follows: unix(7)
// see: src/broker/proto/proto.h
// SPDX-License-Identifier: MIT
#include "storm.h"

#include <arpa/inet.h>
#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <string.h>
#include <sys/eventfd.h>
#include <sys/mman.h>
#include <sys/socket.h>
#include <sys/un.h>
#include <unistd.h>

#ifndef F_SEAL_FUTURE_WRITE
#define F_SEAL_FUTURE_WRITE 0x0010
#endif
#define FDS_MAX 253

struct storm_news *news;

void leaked(const char *what)
{
	if (__atomic_fetch_add(&news->leaks, 1, __ATOMIC_RELAXED) == 0)
		snprintf(news->leak, sizeof(news->leak), "%s", what);
}

/* splitmix64: each life has a seed, and each seed gives another sequence */
uint64_t roll(struct dice *d)
{
	uint64_t z = d->state += 0x9e3779b97f4a7c15ull;

	z = (z ^ z >> 30) * 0xbf58476d1ce4e5b9ull;
	z = (z ^ z >> 27) * 0x94d049bb133111ebull;
	return z ^ z >> 31;
}

uint32_t below(struct dice *d, uint32_t n)
{
	return n ? (uint32_t)(roll(d) % n) : 0;
}

void roll_bytes(struct dice *d, void *out, size_t n)
{
	for (size_t i = 0; i < n; i++)
		((uint8_t *)out)[i] = (uint8_t)roll(d);
}

void gid_v4(uint8_t gid[16], const char *text)
{
	memset(gid, 0, 10);
	gid[10] = gid[11] = 0xff;
	CHECK(inet_pton(AF_INET, text, gid + 12) == 1);
}

struct vb_msg_head head_for(uint8_t type, size_t len)
{
	return (struct vb_msg_head){.type = type, .version = VB_PROTO_VERSION, .len = (uint32_t)len};
}

bool link_open(struct link *l)
{
	struct sockaddr_un sun = {.sun_family = AF_UNIX};

	*l = (struct link){.sock = socket(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC | SOCK_NONBLOCK, 0), .relay = -1};
	if (l->sock < 0)
		return false;
	snprintf(sun.sun_path, sizeof(sun.sun_path), "%s/broker.sock", getenv("VERBENA_RUNTIME"));
	if (!connect(l->sock, (struct sockaddr *)&sun, sizeof(sun)))
		return true;
	close(l->sock);
	l->sock = -1;
	return false;
}

void link_close(struct link *l)
{
	if (l->sock >= 0)
		close(l->sock);
	if (l->relay >= 0)
		close(l->relay);
	*l = (struct link){.sock = -1, .relay = -1};
}

bool link_send(const struct link *l, const void *msg, size_t len, const int *fds, int nfds)
{
	union {
		char buf[CMSG_SPACE(sizeof(int) * FDS_MAX)];
		struct cmsghdr align;
	} control = {0};
	struct iovec iov = {(void *)msg, len};
	struct msghdr mh = {.msg_iov = &iov, .msg_iovlen = 1};

	if (nfds) {
		mh.msg_control = control.buf;
		mh.msg_controllen = CMSG_SPACE(sizeof(int) * (size_t)nfds);
		struct cmsghdr *c = CMSG_FIRSTHDR(&mh);
		*c = (struct cmsghdr){.cmsg_level = SOL_SOCKET,
		                      .cmsg_type = SCM_RIGHTS,
		                      .cmsg_len = CMSG_LEN(sizeof(int) * (size_t)nfds)};
		memcpy(CMSG_DATA(c), fds, sizeof(int) * (size_t)nfds);
	}
	return sendmsg(l->sock, &mh, MSG_DONTWAIT | MSG_NOSIGNAL) >= 0;
}

bool link_take(const struct link *l, struct came *m, int ms, bool *gone)
{
	union {
		char buf[CMSG_SPACE(sizeof(int) * VB_MAX_FDS)];
		struct cmsghdr align;
	} control;
	struct pollfd p = {.fd = l->sock, .events = POLLIN};
	struct iovec iov = {m->bytes, sizeof(m->bytes)};
	struct msghdr mh = {
	        .msg_iov = &iov, .msg_iovlen = 1, .msg_control = control.buf, .msg_controllen = sizeof(control.buf)};

	m->head.type = 0;
	m->nfds = 0;
	*gone = false;
	if (ms && poll(&p, 1, ms) <= 0)
		return false;
	ssize_t n = recvmsg(l->sock, &mh, MSG_DONTWAIT | MSG_CMSG_CLOEXEC);

	if (n <= 0) {
		*gone = n == 0 || (errno != EAGAIN && errno != EINTR);
		return false;
	}
	for (struct cmsghdr *c = CMSG_FIRSTHDR(&mh); c; c = CMSG_NXTHDR(&mh, c)) {
		if (c->cmsg_level != SOL_SOCKET || c->cmsg_type != SCM_RIGHTS)
			continue;
		m->nfds = (int)((c->cmsg_len - CMSG_LEN(0)) / sizeof(int));
		memcpy(m->fds, CMSG_DATA(c), (size_t)m->nfds * sizeof(int));
	}
	memcpy(&m->head, m->bytes, sizeof(m->head));
	if (n < (ssize_t)sizeof(m->head) || m->head.len != (uint32_t)n)
		leaked("the broker says something of a wrong length");
	return true;
}

void came_close(struct came *m)
{
	while (m->nfds > 0)
		close(m->fds[--m->nfds]);
}

void storm_fds(int fds[3])
{
	struct vb_attach_fds made;

	make_fds(&made);
	fds[0] = made.seg_fd;
	fds[1] = made.doorbell_fd;
	fds[2] = made.wake_fd;
}
