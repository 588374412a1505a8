// tcp.c - records data of a TCP stream as segments with the stream's sequence numbers
// follows: tcp(7) (TCP_INFO); RFC 9293
// SPDX-License-Identifier: MIT
#include <errno.h>
#include <linux/sockios.h>
#include <linux/tcp.h>
#include <netinet/in.h>
#include <string.h>
#include <sys/ioctl.h>
#include <sys/socket.h>

#include "capture/capture.h"
#include "capture/frames.h"
#include "frame/ethernet.h"

#define SEGMENT 16384u /* bytes; longer than on a network, as a capture of this host would show it */

/* The addresses of the socket. in: those of received segments. */
static bool addresses_of(int fd, bool in, struct vb_flow *flow)
{
	struct sockaddr_storage own = {0}, peer = {0};
	socklen_t own_len = sizeof(own), peer_len = sizeof(peer);

	if (getsockname(fd, (struct sockaddr *)&own, &own_len) || getpeername(fd, (struct sockaddr *)&peer, &peer_len))
		return false;
	const struct sockaddr_storage *src = in ? &peer : &own, *dst = in ? &own : &peer;

	if (!vb_gid_of_sockaddr(flow->src, (const struct sockaddr *)src) ||
	    !vb_gid_of_sockaddr(flow->dst, (const struct sockaddr *)dst))
		return false;
	/* both families have the port at the same place */
	flow->sport = ntohs(((const struct sockaddr_in *)src)->sin_port);
	flow->dport = ntohs(((const struct sockaddr_in *)dst)->sin_port);
	return true;
}

/* How many bytes the program has sent on and read from this socket. */
static bool positions_of(int fd, uint32_t *sent, uint32_t *got)
{
	struct tcp_info info;
	int before, after;

	for (int i = 0; i < 8; i++) {
		socklen_t len = sizeof(info);

		memset(&info, 0, sizeof(info));
		if (ioctl(fd, SIOCINQ, &before) || getsockopt(fd, IPPROTO_TCP, TCP_INFO, &info, &len) ||
		    ioctl(fd, SIOCINQ, &after))
			return false;
		*sent = (uint32_t)(info.tcpi_bytes_sent - info.tcpi_bytes_retrans + info.tcpi_notsent_bytes);
		*got = (uint32_t)(info.tcpi_bytes_received - (uint64_t)after);
		if (before == after) /* nothing has arrived meanwhile */
			return true;
	}
	return true;
}

void vb_capture_tcp(enum vb_capture_direction direction, uint64_t time, int fd, const struct iovec *iov, int n,
                    size_t len, uint32_t qpn)
{
	const struct vb_capture_of of = {.direction = direction, .time = time, .qpn = qpn};
	bool in = direction == VB_CAPTURE_IN;
	int saved = errno;
	uint32_t sent = 0, got = 0;
	struct vb_flow flow = {.link = VB_LINK_UDP};

	if (addresses_of(fd, in, &flow) && positions_of(fd, &sent, &got)) {
		/* the first byte of a stream has the number 1, as if its SYN had the number 0 */
		struct vb_tcp_fields tcp = {.seq = 1 + (in ? got : sent) - (uint32_t)len, .ack = 1 + (in ? sent : got)};

		for (size_t off = 0; off < len; off += SEGMENT) {
			size_t part = len - off < SEGMENT ? len - off : SEGMENT;
			uint8_t head[VB_FRAME_HEAD_MAX];
			uint32_t head_len = (uint32_t)vb_frame_tcp(head, &flow, &tcp, part);

			vb_capture_segment(&of, head, head_len, iov, n, off, (uint32_t)part);
			tcp.seq += (uint32_t)part;
		}
	}
	errno = saved;
}
