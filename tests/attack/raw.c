// raw.c - a program that speaks the broker's protocol without its rules
// see: src/broker/proto/proto.h
// SPDX-License-Identifier: MIT
#include "raw.h"

#include <errno.h>
#include <netinet/in.h>
#include <poll.h>
#include <signal.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <unistd.h>

#include "frame/cm.h"

void raw_open(struct raw *r)
{
	*r = (struct raw){.sock = raw_connect()};
	make_fds(&r->fds);
}

void raw_close(struct raw *r)
{
	close(r->sock);
	close(r->fds.seg_fd);
	close(r->fds.doorbell_fd);
	close(r->fds.wake_fd);
}

bool raw_say(struct raw *r, uint8_t type, void *msg, size_t len, const int *fds, int nfds)
{
	struct vb_msg_head head = {.type = type, .version = VB_PROTO_VERSION, .len = (uint32_t)len};
	union {
		char buf[CMSG_SPACE(sizeof(int) * 253)];
		struct cmsghdr align;
	} control = {0};
	struct iovec iov = {msg, len};
	struct msghdr mh = {.msg_iov = &iov, .msg_iovlen = 1};

	memcpy(msg, &head, sizeof(head));
	if (nfds) {
		mh.msg_control = control.buf;
		mh.msg_controllen = CMSG_SPACE(sizeof(int) * (size_t)nfds);
		struct cmsghdr *c = CMSG_FIRSTHDR(&mh);
		c->cmsg_level = SOL_SOCKET;
		c->cmsg_type = SCM_RIGHTS;
		c->cmsg_len = CMSG_LEN(sizeof(int) * (size_t)nfds);
		memcpy(CMSG_DATA(c), fds, sizeof(int) * (size_t)nfds);
	}
	return sendmsg(r->sock, &mh, MSG_NOSIGNAL) >= 0;
}

static void take_two(struct msghdr *mh, int fds[2])
{
	fds[0] = fds[1] = -1;
	for (struct cmsghdr *c = CMSG_FIRSTHDR(mh); c; c = CMSG_NXTHDR(mh, c)) {
		size_t n = (c->cmsg_len - CMSG_LEN(0)) / sizeof(int);

		if (c->cmsg_level == SOL_SOCKET && c->cmsg_type == SCM_RIGHTS)
			memcpy(fds, CMSG_DATA(c), (n < 2 ? n : 2) * sizeof(int));
	}
}

size_t raw_hear(struct raw *r, uint8_t type, void *msg, size_t size, int fds[2], int ms)
{
	int64_t until = now_ms() + ms;
	int none[2];

	for (;;) {
		union {
			char buf[CMSG_SPACE(sizeof(int) * 4)];
			struct cmsghdr align;
		} control;
		struct iovec iov = {msg, size};
		struct msghdr mh = {.msg_iov = &iov,
		                    .msg_iovlen = 1,
		                    .msg_control = control.buf,
		                    .msg_controllen = sizeof(control.buf)};
		struct pollfd p = {.fd = r->sock, .events = POLLIN};
		int64_t left = until - now_ms();

		if (left < 0 || poll(&p, 1, (int)left) != 1)
			return 0;
		ssize_t n = recvmsg(r->sock, &mh, MSG_DONTWAIT | MSG_CMSG_CLOEXEC);
		if (n <= 0)
			return 0;
		take_two(&mh, fds ? fds : none);
		if (*(uint8_t *)msg == type)
			return (size_t)n;
	}
}

static int attach(struct raw *r, uint32_t lane, uint64_t incarnation, const uint8_t *gid)
{
	struct {
		struct vb_msg_attach m;
		uint8_t gid[16];
	} out = {.m = {.lane = lane, .incarnation = incarnation, .ngids = gid ? 1 : 0}};
	const int fds[] = {r->fds.seg_fd, r->fds.doorbell_fd, r->fds.wake_fd};
	union {
		struct vb_msg_attached attached;
		struct vb_msg_error error;
		char bytes[512];
	} in;

	if (gid)
		memcpy(out.gid, gid, sizeof(out.gid));
	if (!raw_say(r, VB_MSG_ATTACH, &out, sizeof(out.m) + (gid ? 16 : 0), fds, 3))
		return ECONNRESET;
	struct pollfd p = {.fd = r->sock, .events = POLLIN};
	if (poll(&p, 1, LONG_MS) != 1)
		return ETIMEDOUT;
	ssize_t n = recv(r->sock, &in, sizeof(in), 0);
	if (n == sizeof(in.error) && in.error.head.type == VB_MSG_ERROR)
		return in.error.err;
	if (n != sizeof(in.attached) || in.attached.head.type != VB_MSG_ATTACHED)
		return ECONNRESET;
	r->lane = in.attached.lane;
	r->incarnation = in.attached.incarnation;
	return 0;
}

int raw_attach(struct raw *r, const uint8_t gid[16])
{
	int64_t until = now_ms() + LONG_MS;
	int err;

	while ((err = attach(r, 0, 0, gid)) == EAGAIN && now_ms() < until) {
		close(r->sock);
		sleep_ms(10);
		r->sock = raw_connect();
	}
	return err;
}

int raw_claim(struct raw *r, uint32_t lane, uint64_t incarnation)
{
	return attach(r, lane, incarnation, NULL);
}

int raw_listen(struct raw *r, uint32_t id, uint16_t port)
{
	struct vb_msg_cm_bind m = {.id = id, .port_space = VB_PS_TCP, .port = port, .listen = 1};
	union {
		struct vb_msg_service_reply reply;
		char bytes[512];
	} in;

	if (!raw_say(r, VB_MSG_CM_BIND, &m, sizeof(m), NULL, 0) ||
	    raw_hear(r, VB_MSG_SERVICE_REPLY, &in, sizeof(in), NULL, LONG_MS) != sizeof(in.reply))
		return ECONNRESET;
	return in.reply.err;
}

void raw_request(struct raw *r, const uint8_t local[16], const uint8_t remote[16], uint16_t port, uint32_t comm_id,
                 uint64_t tid)
{
	struct vb_cm_msg req = {.attr = VB_CM_REQ,
	                        .tid = tid,
	                        .req = {.local_comm_id = comm_id, .service_id = vb_cm_service_id(VB_PS_TCP, port)}};
	struct vb_msg_cm_mad m = {0};

	memcpy(m.local, local, 16);
	memcpy(m.remote, remote, 16);
	vb_cm_encode(m.mad, &req);
	CHECK(raw_say(r, VB_MSG_CM_SEND, &m, sizeof(m), NULL, 0));
}

int lingering_socket(void)
{
	struct sockaddr_in a = {.sin_family = AF_INET, .sin_addr.s_addr = htonl(INADDR_LOOPBACK)};
	struct linger hour = {.l_onoff = 1, .l_linger = 3600};
	socklen_t len = sizeof(a);
	int listener = socket(AF_INET, SOCK_STREAM, 0), fd = socket(AF_INET, SOCK_STREAM, 0), far, small = 4096;
	static char data[65536];

	setsockopt(listener, SOL_SOCKET, SO_RCVBUF, &small, sizeof(small));
	CHECK(bind(listener, (struct sockaddr *)&a, sizeof(a)) == 0 && listen(listener, 1) == 0);
	CHECK(getsockname(listener, (struct sockaddr *)&a, &len) == 0);
	CHECK(connect(fd, (struct sockaddr *)&a, sizeof(a)) == 0);
	far = accept(listener, NULL, NULL); /* stays open, and reads nothing */
	CHECK(far >= 0);
	close(listener);
	while (send(fd, data, sizeof(data), MSG_DONTWAIT) > 0)
		;
	CHECK(setsockopt(fd, SOL_SOCKET, SO_LINGER, &hour, sizeof(hour)) == 0);
	return fd;
}

pid_t run_as(uid_t uid, int (*run)(void *), void *arg)
{
	pid_t pid = fork();

	if (pid)
		return pid;
	prctl(PR_SET_PDEATHSIG, SIGKILL);
	if (uid && (setgid(uid) || setuid(uid)))
		_exit(SKIPPED);
	_exit(run(arg));
}

void ended_well(pid_t pid)
{
	int status;

	CHECK(waitpid(pid, &status, 0) == pid);
	if (WIFEXITED(status) && WEXITSTATUS(status) == SKIPPED)
		skip("only one user here");
	SAME(status, 0);
}
