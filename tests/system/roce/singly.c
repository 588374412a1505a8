// singly.c - a kernel or device without UDP_SEGMENT: each packet is sent by itself
// follows: udp(7) (UDP_SEGMENT); the errors are those of Linux
// SPDX-License-Identifier: MIT
#include "stranger.h"

#include <netinet/in.h>
#include <netinet/udp.h>
#include <stddef.h>
#include <sys/socket.h>

#include "engine/local/local.h"
#include "path/roce/roce.h"

#ifndef UDP_SEGMENT
#define UDP_SEGMENT 103
#endif

#define PACKETS 40u

static int refusal;
static unsigned refused, busy, plain;
static bool narrow; /* the MTU of the route is below the segment size of the socket, on a kernel before 6.14 */
static bool ipsec;  /* the next send without a segment size of its own is refused */

long __real_vb_udp_send(int fd, const struct msghdr *mh);
long __wrap_vb_udp_send(int fd, const struct msghdr *mh);

static bool has_segment_size(int fd)
{
	int size = 0;
	socklen_t len = sizeof(size);

	CHECK(!getsockopt(fd, SOL_UDP, UDP_SEGMENT, &size, &len));
	return size;
}

/* Replaces the adapter's sends (by the linker): those with segments fail, and some of the others must be retried. */
long __wrap_vb_udp_send(int fd, const struct msghdr *mh)
{
	const struct cmsghdr *c = mh->msg_controllen ? CMSG_FIRSTHDR(mh) : NULL;

	for (; c && refusal; c = CMSG_NXTHDR((struct msghdr *)mh, (struct cmsghdr *)c)) {
		if (c->cmsg_level == SOL_UDP && c->cmsg_type == UDP_SEGMENT) {
			refused++;
			errno = refusal;
			return -1;
		}
	}
	plain += !mh->msg_controllen;
	if (ipsec && !mh->msg_controllen) {
		ipsec = false;
		errno = EIO;
		return -1;
	}
	if (narrow && !mh->msg_controllen && has_segment_size(fd)) {
		refused++;
		errno = EINVAL;
		return -1;
	}
	if (busy) {
		busy--;
		errno = ENOBUFS;
		return -1;
	}
	return __real_vb_udp_send(fd, mh);
}

static void all_come(bool v6, int err)
{
	struct stranger s;
	struct came c;

	refusal = err;
	stranger_meet(&s, &(struct conf){.psn = 500}, v6);
	fill(s.m.p, PACKETS * 1024, 3);
	POST(&s.l, .op = IBV_WR_SEND, .id = 1, .m = &s.m, .len = PACKETS * 1024);
	for (uint32_t i = 0; i < PACKETS; i++) {
		struct vb_packet ack = stranger_packet(&s, VB_RC_ACK, 500 + i, 0);

		stranger_expect(&s, &c,
		                i == 0             ? VB_RC_SEND_FIRST
		                : i == PACKETS - 1 ? VB_RC_SEND_LAST
		                                   : VB_RC_SEND_MIDDLE,
		                500 + i);
		CHECK(c.p.payload_len == 1024 && !memcmp(c.payload, s.m.p + i * 1024, 1024));
		if (c.p.bth.ack_req)
			stranger_say(&s, &ack, NULL);
	}
	expect(s.l.scq, 1, IBV_WC_SUCCESS);
	SAME(refused, 1); /* segments are not tried again */
	SAME(atomic_load(&vb_counters.tx_refused), 0);
}

static void a_device_that_cannot_checksum_gets_packets(void)
{
	all_come(false, EIO);
}

static void an_older_kernel_gets_packets(void)
{
	all_come(true, ENOPROTOOPT);
}

/* On a busy machine the peer may acknowledge later than the requester repeats a packet. */
static bool asked_again(struct stranger *s)
{
	return STAT(s, probes) || STAT(s, timeouts);
}

static void nothing_is_lost(struct stranger *s)
{
	CHECK(!STAT(s, resent_pkts) || asked_again(s));
	SAME(atomic_load(&vb_counters.tx_refused), 0);
}

static void were_plain(struct stranger *s, unsigned n)
{
	if (asked_again(s))
		CHECK(plain > n);
	else
		SAME(plain, n);
}

static void send_two(struct stranger *s, uint32_t i)
{
	struct vb_packet ack = stranger_packet(s, VB_RC_ACK, 501 + 2 * i, 0);
	struct came c;

	POST(&s->l, .op = IBV_WR_SEND, .id = i, .m = &s->m, .len = 2 * 1024);
	stranger_expect(s, &c, VB_RC_SEND_FIRST, 500 + 2 * i);
	stranger_expect(s, &c, VB_RC_SEND_LAST, 501 + 2 * i);
	stranger_say(s, &ack, NULL);
	expect(s->l.scq, i, IBV_WC_SUCCESS);
}

/* A size that sends have in a row is set on the socket. When IPsec comes later, Linux refuses all sends of the socket. */
static void a_segment_size_of_the_socket_is_taken_back(void)
{
	struct stranger s;
	uint32_t i;

	refusal = 0;
	stranger_meet(&s, &(struct conf){.psn = 500}, false);
	for (i = 0; i < 3; i++)
		send_two(&s, i);
	were_plain(&s, 2);
	ipsec = true;
	send_two(&s, i++);
	CHECK(!ipsec);
	send_two(&s, i);
	were_plain(&s, 2 + 1 + 2 + 2); /* the refused one, then single packets */
	nothing_is_lost(&s);
}

/* Peers share a socket, and the routes to them may have different MTUs. */
static void a_segment_size_of_one_peer_does_not_stop_another(void)
{
	struct stranger s;
	struct came c;

	stranger_meet(&s, &(struct conf){.psn = 500}, false);
	for (uint32_t i = 0; i < 3; i++)
		send_two(&s, i);
	narrow = true;
	POST(&s.l, .op = IBV_WR_SEND, .id = 3, .m = &s.m, .len = 100);
	stranger_expect(&s, &c, VB_RC_SEND_ONLY, 506);
	SAME(refused, 1);
	nothing_is_lost(&s);
}

/* Packets that do not fit now wait, and are sent in order. */
static void what_has_no_room_now_goes_later(void)
{
	struct stranger s;
	struct came c;

	stranger_meet(&s, &(struct conf){.psn = 500}, false);
	busy = 5;
	for (uint32_t i = 0; i < 8; i++)
		POST(&s.l, .op = IBV_WR_SEND, .id = i, .m = &s.m, .len = 100 + i);
	for (uint32_t i = 0; i < 8; i++) {
		stranger_expect(&s, &c, VB_RC_SEND_ONLY, 500 + i);
		SAME(c.p.payload_len, 100 + i);
	}
	SAME(busy, 0);
	CHECK(atomic_load(&vb_counters.tx_waits) > 0);
	nothing_is_lost(&s);
}

int main(int argc, char **argv)
{
	static const struct test tests[] = {
	        {"a device that cannot checksum gets packets", a_device_that_cannot_checksum_gets_packets},
	        {"an older kernel gets packets", an_older_kernel_gets_packets},
	        {"a segment size of the socket is taken back", a_segment_size_of_the_socket_is_taken_back},
	        {"a segment size of one peer does not stop another", a_segment_size_of_one_peer_does_not_stop_another},
	        {"what has no room now goes later", what_has_no_room_now_goes_later},
	};

	setenv("VERBENA_WIRE", "always", 1);
	if (!stranger_network()) {
		printf("ok # skipped: no network namespaces here\n");
		return 77;
	}
	return RUN_TESTS(argc, argv, tests);
}
