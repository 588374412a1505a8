// tcp.c - queues over TCP: connecting, the exchange of ICReq and ICResp, the table of functions
// follows: NVMe/TCP transport specification 1.0, 3.1 and 3.6.2.1 to 3.6.2.2
// SPDX-License-Identifier: MIT
#include "client/tcp.h"

#include <errno.h>
#include <netdb.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

#define H2C_MIN 4096u /* the least MAXH2CDATA, a multiple of 4. NVMe/TCP 1.0, 3.6.2.3 */

int vn_tcp_wait(const struct vn_link *l, int fd, short events)
{
	struct pollfd p = {.fd = fd, .events = events};

	for (;;) {
		int ms = vn_left(l->deadline), n = poll(&p, 1, ms < VN_LOOK_MS ? ms : VN_LOOK_MS);

		if (n > 0)
			return 0;
		if (n < 0 && errno != EINTR)
			return -errno;
		if (l->stop && *l->stop)
			return -ECANCELED;
		if (!ms)
			return -ETIMEDOUT;
	}
}

static int connect_one(const struct vn_link *l, const struct addrinfo *a)
{
	int fd = socket(a->ai_family, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0), e = 0, one = 1;
	/* if the program dies, the kernel must not continue sending: another program may have taken over the disk */
	const struct linger at_once = {.l_onoff = 1};
	socklen_t len = sizeof(e);

	if (fd < 0)
		return -errno;
	setsockopt(fd, IPPROTO_TCP, TCP_NODELAY, &one, sizeof(one));
	setsockopt(fd, SOL_SOCKET, SO_LINGER, &at_once, sizeof(at_once));
	if (connect(fd, a->ai_addr, a->ai_addrlen) < 0) {
		e = errno == EINPROGRESS ? vn_tcp_wait(l, fd, POLLOUT) : -errno;
		if (!e && !getsockopt(fd, SOL_SOCKET, SO_ERROR, &e, &len))
			e = -e;
	}
	if (!e)
		return fd;
	close(fd);
	return e;
}

static int connect_any(struct vn_link *l)
{
	struct addrinfo hints = {.ai_socktype = SOCK_STREAM, .ai_flags = l->options->numeric ? AI_NUMERICHOST : 0},
	                *all;
	int e = getaddrinfo(l->host, l->service, &hints, &all), fd = -EHOSTUNREACH;

	if (e) {
		vn_say(l->why, "%s: %s", l->host, gai_strerror(e));
		return e == EAI_MEMORY ? -ENOMEM : -EHOSTUNREACH;
	}
	for (const struct addrinfo *a = all; a && fd < 0; a = a->ai_next)
		fd = connect_one(l, a);
	freeaddrinfo(all);
	if (fd < 0)
		vn_say(l->why, "%s port %s: %s", l->host, l->service, strerror(-fd));
	return fd;
}

static int receive_exactly(const struct vn_link *l, struct vn_tcp_queue *t, uint8_t *at, size_t len)
{
	while (len) {
		ssize_t n = vn_tcp_read(t, &(struct iovec){at, len}, 1);

		if (n > 0) {
			at += n;
			len -= (size_t)n;
			continue;
		}
		if (!n)
			return -ECONNRESET;
		int e = errno == EAGAIN || errno == EINTR ? vn_tcp_wait(l, t->fd, POLLIN) : -errno;

		if (e)
			return e;
	}
	return 0;
}

static int speaks_no_nvme(struct vn_link *l, const char *what)
{
	vn_say(l->why, "%s port %s does not speak NVMe/TCP: %s", l->host, l->service, what);
	return -EPROTO;
}

static int take_icresp(struct vn_link *l, struct vn_tcp_queue *t, const uint8_t *pdu, uint8_t asked)
{
	struct nv_tcp_ic ic = nv_tcp_ic_decode(pdu);

	if (ic.pfv)
		return speaks_no_nvme(l, "another version");
	if (ic.align > 31 || ic.number < H2C_MIN || ic.number % 4 || ic.digests & ~asked)
		return speaks_no_nvme(l, "a value in its greeting");
	if (l->options->require_digest && ic.digests != asked) {
		vn_say(l->why, "%s port %s does not support digests", l->host, l->service);
		return -EOPNOTSUPP;
	}
	t->digests = ic.digests;
	t->cpda = ic.align;
	t->h2c_max = ic.number;
	return 0;
}

static int exchange_ic(struct vn_link *l, struct vn_tcp_queue *t)
{
	const struct vn_options *o = l->options;
	uint8_t asked = (o->header_digest ? NV_TCP_HDGST : 0) | (o->data_digest ? NV_TCP_DDGST : 0);
	struct nv_tcp_ic ic = {.digests = asked};
	uint8_t pdu[NV_TCP_IC_LEN];
	int e;

	nv_tcp_ic_encode(&ic, false, pdu);
	if (vn_tcp_write(t, &(struct iovec){pdu, sizeof(pdu)}, 1) != sizeof(pdu)) /* a new connection has room */
		return speaks_no_nvme(l, strerror(errno));
	e = receive_exactly(l, t, pdu, NV_TCP_COMMON_LEN);
	if (e) {
		vn_say(l->why, "%s port %s, greeting: %s", l->host, l->service, strerror(-e));
		return e;
	}
	struct nv_tcp_common h = nv_tcp_common_decode(pdu);
	uint32_t data, fei;

	if (h.type != NV_TCP_ICRESP || nv_tcp_check(&h, true, 0, 0, &data, &fei))
		return speaks_no_nvme(l, "no greeting");
	e = receive_exactly(l, t, pdu + NV_TCP_COMMON_LEN, NV_TCP_IC_LEN - NV_TCP_COMMON_LEN);
	if (e) {
		vn_say(l->why, "%s port %s, greeting: %s", l->host, l->service, strerror(-e));
		return e;
	}
	return take_icresp(l, t, pdu, asked);
}

/* Makes close discard unsent data, which must not reach the target after the command was repeated on another
 * connection. */
static void reset_stream(int fd)
{
	(void)connect(fd, &(struct sockaddr){.sa_family = AF_UNSPEC}, sizeof(struct sockaddr));
}

/* Makes close send the remaining data and a FIN. */
static void close_stream(int fd)
{
	setsockopt(fd, SOL_SOCKET, SO_LINGER, &(struct linger){0}, sizeof(struct linger));
	shutdown(fd, SHUT_RDWR);
}

static void tcp_cut(struct vn_queue *q)
{
	struct vn_tcp_queue *t = vn_tcp_of(q);

	if (t->cut)
		return;
	t->cut = true;
	t->out = NULL;
	t->out_end = &t->out;
	if (q->qid && q->busy)
		reset_stream(t->fd);
	else
		close_stream(t->fd);
}

static void tcp_close(struct vn_queue *q)
{
	struct vn_tcp_queue *t = vn_tcp_of(q);

	vn_tcp_unwrap(t);
	if (t->fd >= 0) {
		tcp_cut(q);
		close(t->fd);
	}
	vn_queue_fini(q);
	free(t);
}

static int tcp_open(struct vn_link *l, uint16_t qid, uint16_t depth, struct vn_queue **q)
{
	struct vn_tcp_queue *t = calloc(1, sizeof(*t));
	int e;

	if (!t)
		return -ENOMEM;
	t->fd = -1;
	t->out_end = &t->out;
	t->q.inline_max = qid ? l->inline_max : VN_ADMIN_INLINE;
	e = vn_queue_init(&t->q, &vn_tcp, qid, depth);
	if (!e) {
		e = t->fd = connect_any(l);
		if (e >= 0)
			e = vn_tcp_wrap(l, t);
		if (!e)
			e = exchange_ic(l, t);
	}
	if (e) {
		tcp_close(&t->q);
		return e;
	}
	*q = &t->q;
	return 0;
}

static void tcp_progress(struct vn_queue *q)
{
	struct vn_tcp_queue *t = vn_tcp_of(q);

	if (q->error)
		return;
	vn_tcp_receive(t);
	vn_tcp_push(q); /* data that was requested, or did not fit before */
}

static int tcp_descriptors(const struct vn_queue *q, struct pollfd p[2])
{
	const struct vn_tcp_queue *t = (const struct vn_tcp_queue *)q;

	p[0] = (struct pollfd){.fd = t->fd, .events = (short)(POLLIN | (t->blocked ? POLLOUT : 0))};
	return 1;
}

static bool tcp_arm(struct vn_queue *q)
{
	return !q->error && vn_tcp_unread(vn_tcp_of(q));
}

static void tcp_release(struct vn_queue *q, struct vn_cmd *c)
{
	vn_tcp_of(q)->large -= c->way == VN_FROM_TARGET && c->length > NV_PAGE;
}

const struct vn_transport vn_tcp = {
        .name = "tcp",
        .open = tcp_open,
        .submit = vn_tcp_submit,
        .kick = vn_tcp_push,
        .progress = tcp_progress,
        .descriptors = tcp_descriptors,
        .arm = tcp_arm,
        .release = tcp_release,
        .cut = tcp_cut,
        .close = tcp_close,
        .list = vn_discover_at,
        .associate = vn_nvme_associate,
        .keep_alive = vn_ctl_keep_alive,
        .look = vn_events_look,
        .shutdown = vn_ctl_shutdown,
};
