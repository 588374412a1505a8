// udp_ways.c - MSG_ZEROCOPY and io_uring for the bare loops of stream_floor and wire_udp
// follows: MSG_ZEROCOPY (Linux, Documentation/networking/msg_zerocopy.rst); io_uring_enter(2), io_uring_prep_recvmsg_multishot(3)
// SPDX-License-Identifier: MIT
#include "udp_ways.h"

#include <errno.h>
#include <liburing.h>
#include <linux/errqueue.h>
#include <netinet/in.h>
#include <sys/mman.h>

#include "clock.h"

#ifndef IORING_SEND_ZC_REPORT_USAGE
#define IORING_SEND_ZC_REPORT_USAGE (1U << 3)
#define IORING_NOTIF_USAGE_ZC_COPIED (1U << 31)
#endif

enum { STAGES = 32, ENTRIES = 64, BUFFERS = 8, BUFFER = 66 << 10, GROUP = 0 };

// --- sends ---

struct message {
	struct msghdr mh;
	struct iovec iov;
	_Alignas(struct cmsghdr) char control[64];
};

struct stage {
	uint8_t *bytes;
	unsigned busy; // sends whose bytes the kernel may still need
	struct message message[2];
	unsigned messages; // laid since the last flush
};

struct udp_out {
	int fd;
	enum udp_send_way way;
	struct stage stage[STAGES], *now;
	struct stage *of[STAGES * 2]; // by the number of a send with MSG_ZEROCOPY
	uint32_t sends;               // the number of the next one
	uint64_t done, copied;        // sends without a copy: those that are over, and those that the kernel has copied
	struct io_uring ring;
};

struct udp_out *udp_out_new(int fd, enum udp_send_way way, size_t size)
{
	struct udp_out *o = calloc(1, sizeof(*o));
	int on = 1;

	if (!o)
		fail("calloc");
	o->fd = fd;
	o->way = way;
	for (int i = 0; i < STAGES; i++)
		if (!(o->stage[i].bytes = aligned_alloc(4096, (size + 4095) / 4096 * 4096)))
			fail("aligned_alloc");
	if (way == UDP_ZEROCOPY && setsockopt(fd, SOL_SOCKET, SO_ZEROCOPY, &on, sizeof(on)))
		fail("SO_ZEROCOPY");
	if (way == UDP_URING || way == UDP_URING_ZERO) {
		errno = -io_uring_queue_init(ENTRIES, &o->ring, IORING_SETUP_SINGLE_ISSUER);
		if (errno)
			fail("io_uring_queue_init");
	}
	return o;
}

/* Reads one notification: a range of sends is over. */
static bool reap_zerocopy(struct udp_out *o)
{
	_Alignas(struct cmsghdr) char control[128];
	struct msghdr mh = {.msg_control = control, .msg_controllen = sizeof(control)};
	struct sock_extended_err e;

	if (recvmsg(o->fd, &mh, MSG_ERRQUEUE | MSG_DONTWAIT) < 0)
		return false;
	struct cmsghdr *h = CMSG_FIRSTHDR(&mh);

	if (!h || h->cmsg_level != SOL_IP || h->cmsg_type != IP_RECVERR)
		return false;
	memcpy(&e, CMSG_DATA(h), sizeof(e));
	if (e.ee_origin != SO_EE_ORIGIN_ZEROCOPY)
		return false;
	for (uint32_t n = e.ee_info; n != e.ee_data + 1; n++) {
		o->of[n % (STAGES * 2)]->busy--;
		o->copied += e.ee_code == SO_EE_CODE_ZEROCOPY_COPIED;
		o->done++;
	}
	return true;
}

static bool reap_uring(struct udp_out *o)
{
	struct io_uring_cqe *cqe;

	if (io_uring_peek_cqe(&o->ring, &cqe))
		return false;
	struct stage *s = io_uring_cqe_get_data(cqe);

	if (cqe->flags & IORING_CQE_F_NOTIF) {
		o->done++;
		o->copied += ((uint32_t)cqe->res & IORING_NOTIF_USAGE_ZC_COPIED) != 0;
	} else if (cqe->res < 0) {
		errno = -cqe->res;
		fail("io_uring's sendmsg");
	}
	s->busy -= !(cqe->flags & IORING_CQE_F_MORE);
	io_uring_cqe_seen(&o->ring, cqe);
	return true;
}

static bool reap(struct udp_out *o)
{
	return o->way == UDP_ZEROCOPY ? reap_zerocopy(o) : reap_uring(o);
}

/* The first free one, which is the likeliest to be in the cache. */
uint8_t *udp_out_stage(struct udp_out *o)
{
	while (reap(o))
		;
	for (;; reap(o)) {
		for (o->now = o->stage; o->now < o->stage + STAGES; o->now++)
			if (!o->now->busy)
				return o->now->bytes;
	}
}

static void send_zerocopy(struct udp_out *o, const struct msghdr *mh)
{
	o->of[o->sends % (STAGES * 2)] = o->now;
	while (sendmsg(o->fd, mh, MSG_ZEROCOPY) < 0) {
		if (errno != EAGAIN && errno != ENOBUFS)
			fail("sendmsg with MSG_ZEROCOPY");
		reap(o);
	}
	o->sends++;
}

void udp_out_send(struct udp_out *o, uint8_t *from, size_t len, const void *control, size_t control_len)
{
	struct message *m = &o->now->message[o->now->messages++ % 2];

	m->iov = (struct iovec){from, len};
	memcpy(m->control, control, control_len);
	m->mh = (struct msghdr){
	        .msg_iov = &m->iov, .msg_iovlen = 1, .msg_control = m->control, .msg_controllen = control_len};
	o->now->busy++;
	if (o->way == UDP_ZEROCOPY) {
		send_zerocopy(o, &m->mh);
		return;
	}
	struct io_uring_sqe *sqe = io_uring_get_sqe(&o->ring);

	if (o->way == UDP_URING) {
		io_uring_prep_sendmsg(sqe, o->fd, &m->mh, 0);
	} else {
		io_uring_prep_sendmsg_zc(sqe, o->fd, &m->mh, 0);
		sqe->ioprio |= IORING_SEND_ZC_REPORT_USAGE;
	}
	io_uring_sqe_set_data(sqe, o->now);
}

void udp_out_flush(struct udp_out *o)
{
	o->now->messages = 0;
	if (o->way == UDP_ZEROCOPY)
		return;
	int n = io_uring_submit(&o->ring);

	if (n < 0) {
		errno = -n;
		fail("io_uring_submit");
	}
}

void udp_out_report(struct udp_out *o)
{
	while (reap(o))
		;
	if (o->way != UDP_URING)
		fprintf(stderr, "the kernel has copied %llu of %llu sends without a copy\n",
		        (unsigned long long)o->copied, (unsigned long long)o->done);
}

// --- receives ---

struct udp_in {
	int fd;
	bool enters;
	struct msghdr mh; // the lengths of name and control data
	struct io_uring ring;
	struct io_uring_buf_ring *buffers;
	uint8_t *memory;
	int taken; // the buffer that the caller has, or -1
};

static void offer(struct udp_in *in, int i)
{
	io_uring_buf_ring_add(in->buffers, in->memory + (size_t)i * BUFFER, BUFFER, (unsigned short)i,
	                      io_uring_buf_ring_mask(BUFFERS), 0);
	io_uring_buf_ring_advance(in->buffers, 1);
}

static void arm_receive(struct udp_in *in)
{
	struct io_uring_sqe *sqe = io_uring_get_sqe(&in->ring);

	io_uring_prep_recvmsg_multishot(sqe, in->fd, &in->mh, 0);
	sqe->flags |= IOSQE_BUFFER_SELECT;
	sqe->buf_group = GROUP;
	io_uring_submit(&in->ring);
}

struct udp_in *udp_in_new(int fd, enum udp_receive_way way, size_t name_len, size_t control_len)
{
	struct udp_in *in = calloc(1, sizeof(*in));
	void *ring = mmap(NULL, 4096, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);

	if (!in || ring == MAP_FAILED || !(in->memory = aligned_alloc(4096, (size_t)BUFFERS * BUFFER)))
		fail("memory");
	in->fd = fd;
	in->taken = -1;
	in->enters = way == UDP_MULTISHOT_ENTER;
	in->mh.msg_namelen = (socklen_t)name_len;
	in->mh.msg_controllen = control_len;
	errno = -io_uring_queue_init(ENTRIES, &in->ring,
	                             IORING_SETUP_SINGLE_ISSUER | (in->enters ? IORING_SETUP_DEFER_TASKRUN : 0));
	if (errno)
		fail("io_uring_queue_init");
	struct io_uring_buf_reg reg = {.ring_addr = (uintptr_t)ring, .ring_entries = BUFFERS, .bgid = GROUP};

	in->buffers = ring;
	io_uring_buf_ring_init(in->buffers);
	errno = -io_uring_register_buf_ring(&in->ring, &reg, 0);
	if (errno)
		fail("io_uring_register_buf_ring");
	for (int i = 0; i < BUFFERS; i++)
		offer(in, i);
	arm_receive(in);
	return in;
}

ssize_t udp_in_take(struct udp_in *in, uint8_t **bytes, void *name)
{
	struct io_uring_cqe *cqe;
	ssize_t len = -1;

	if (in->taken >= 0)
		offer(in, in->taken);
	in->taken = -1;
	if (in->enters)
		io_uring_get_events(&in->ring);
	if (io_uring_peek_cqe(&in->ring, &cqe))
		return -1;
	if (cqe->res < 0 && cqe->res != -ENOBUFS) {
		errno = -cqe->res;
		fail("io_uring's multishot recvmsg");
	}
	if (cqe->flags & IORING_CQE_F_BUFFER) {
		in->taken = (int)(cqe->flags >> IORING_CQE_BUFFER_SHIFT);
		struct io_uring_recvmsg_out *out =
		        io_uring_recvmsg_validate(in->memory + (size_t)in->taken * BUFFER, cqe->res, &in->mh);

		if (!out)
			fail("io_uring_recvmsg_validate");
		len = (ssize_t)io_uring_recvmsg_payload_length(out, cqe->res, &in->mh);
		*bytes = io_uring_recvmsg_payload(out, &in->mh);
		if (name)
			memcpy(name, io_uring_recvmsg_name(out), in->mh.msg_namelen);
	}
	bool ended = !(cqe->flags & IORING_CQE_F_MORE);

	io_uring_cqe_seen(&in->ring, cqe);
	if (ended)
		arm_receive(in);
	return len;
}
