// relay.c - relays datagrams to programs of users other than the broker's: from the group's sockets to each program's channel
// follows: udp(7), UDP_GRO; unix(7), SOCK_SEQPACKET; sock_diag(7), SK_MEMINFO; IBA volume 1, section 9.2 (BTH)
// SPDX-License-Identifier: MIT
#include "broker/server/relay.h"

#include <errno.h>
#include <linux/sock_diag.h>
#include <string.h>
#include <unistd.h>

#include "net/udp.h"

#define BTH_QPN 5 /* offset of the 24 bits of the destination QP */
#define MULTICAST_QPN 0xffffffu

void vb_relay_init(struct vb_relay *r, const struct vb_lane_group *group)
{
	r->group = group;
	r->crowded = false;
	r->relayed = r->dropped = 0;
	r->n = 0;
	for (uint32_t lane = 0; lane < VB_LANE_COUNT; lane++)
		r->channel[lane] = -1;
}

int vb_relay_channel(int *ours, int *theirs)
{
	int pair[2], size = VB_RELAY_CHANNEL;

	if (socketpair(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC | SOCK_NONBLOCK, 0, pair))
		return errno;
	if (setsockopt(pair[0], SOL_SOCKET, SO_SNDBUFFORCE, &size, sizeof(size)))
		setsockopt(pair[0], SOL_SOCKET, SO_SNDBUF, &size, sizeof(size));
	/* nobody reads what a program writes: it would stay here, and descriptors in it would be ours to close */
	if (shutdown(pair[0], SHUT_RD)) {
		int err = errno;

		close(pair[0]);
		close(pair[1]);
		return err;
	}
	*ours = pair[0];
	*theirs = pair[1];
	return 0;
}

/* ---- sending to programs ---- */

/* Datagrams that a full channel does not accept are lost, as with a full socket. */
void vb_relay_flush(struct vb_relay *r)
{
	int sent = r->n ? sendmmsg(r->channel[r->to], r->out, r->n, MSG_DONTWAIT | MSG_NOSIGNAL) : 0;

	for (int i = 0; i < (int)r->n; i++)
		*(i < sent ? &r->relayed : &r->dropped) += r->packets[i];
	r->n = 0;
}

static void relay_to_lane(struct vb_relay *r, uint32_t lane, const struct vb_relay_head *head, const uint8_t *bytes,
                          size_t len, uint32_t packets)
{
	if (r->channel[lane] < 0) {
		r->dropped += packets;
		return;
	}
	if (r->n && (r->to != lane || r->n == VB_RELAY_OUT))
		vb_relay_flush(r);
	r->to = lane;
	uint32_t i = r->n++;

	r->head[i] = *head;
	r->packets[i] = packets;
	r->iov[i][0] = (struct iovec){&r->head[i], sizeof(r->head[i])};
	r->iov[i][1] = (struct iovec){(void *)bytes, len};
	r->out[i].msg_hdr = (struct msghdr){.msg_iov = r->iov[i], .msg_iovlen = 2};
}

/* Each relayed lane of this socket gets it: its program knows which groups it is in. */
static void relay_to_all(struct vb_relay *r, uint32_t i, const struct vb_relay_head *head, const uint8_t *bytes,
                         size_t len)
{
	for (uint32_t lane = 1; lane < VB_LANE_COUNT; lane++)
		if (r->channel[lane] >= 0 && vb_lanes_socket(r->group, lane) == i)
			relay_to_lane(r, lane, head, bytes, len, 1);
}

/* The QP number of the packet at off. A packet that is too short goes to lane 0, as by the group's filter. */
static uint32_t qpn_of(const uint8_t *bytes, size_t len, size_t off, size_t seg)
{
	const uint8_t *packet = bytes + off;

	if (seg < BTH_QPN + 3 || len - off < BTH_QPN + 3)
		return 0;
	return (uint32_t)packet[BTH_QPN] << 16 | (uint32_t)packet[BTH_QPN + 1] << 8 | packet[BTH_QPN + 2];
}

/* How many bytes from off on are packets for one lane. UDP GRO merges by address and port, not by QP. */
static size_t run_length(const uint8_t *bytes, size_t len, size_t off, size_t seg)
{
	uint32_t qpn = qpn_of(bytes, len, off, seg);
	size_t end = off + seg;

	while (qpn != MULTICAST_QPN && end < len) {
		uint32_t next = qpn_of(bytes, len, end, seg);

		if (next == MULTICAST_QPN || next >> VB_LANE_SHIFT != qpn >> VB_LANE_SHIFT)
			break;
		end += seg;
	}
	return (end < len ? end : len) - off;
}

void vb_relay_datagram(struct vb_relay *r, uint32_t i, const struct vb_relay_head *head, const uint8_t *bytes,
                       size_t len)
{
	size_t seg = head->seg && head->seg < len ? head->seg : len;

	for (size_t off = 0, n; off < len; off += n) {
		struct vb_relay_head h = *head;
		uint32_t qpn = qpn_of(bytes, len, off, seg);

		n = run_length(bytes, len, off, seg);
		h.seg = n > seg ? (uint32_t)seg : 0;
		h.id = (uint16_t)(off / seg);
		if (qpn != MULTICAST_QPN)
			relay_to_lane(r, qpn >> VB_LANE_SHIFT, &h, bytes + off, n, (uint32_t)((n + seg - 1) / seg));
		else if (vb_gid_is_multicast(h.dst))
			relay_to_all(r, i, &h, bytes + off, n);
		else
			r->dropped++; /* not for a multicast address: relaying it to all lanes would multiply it */
	}
}

/* ---- receiving ---- */

static bool is_filling(int fd)
{
	uint32_t info[16] = {0};
	socklen_t len = sizeof(info);

	if (getsockopt(fd, SOL_SOCKET, SO_MEMINFO, info, &len) || len < 2 * sizeof(info[0]))
		return false;
	return info[SK_MEMINFO_RMEM_ALLOC] > info[SK_MEMINFO_RCVBUF] / 4;
}

static struct vb_relay_head relay_head_of(const struct vb_relay *r, const struct vb_udp_arrival *a)
{
	struct vb_relay_head h = {
	        .sport = a->flow.sport,
	        .traffic_class = a->ip.traffic_class,
	        .hop_limit = a->ip.hop_limit,
	        .flow_label = a->ip.flow_label,
	        .ifindex = a->ifindex,
	        .seg = a->seg,
	        .crowded = r->crowded,
	};

	memcpy(h.src, a->flow.src, sizeof(h.src));
	memcpy(h.dst, a->flow.dst, sizeof(h.dst));
	return h;
}

static int receive_batch(struct vb_relay *r, int fd)
{
	for (int i = 0; i < VB_RELAY_BATCH; i++) {
		r->in_iov[i] = (struct iovec){r->buffer[i], VB_RELAY_DATAGRAM};
		r->in[i].msg_hdr = (struct msghdr){.msg_name = &r->from[i],
		                                   .msg_namelen = sizeof(r->from[i]),
		                                   .msg_iov = &r->in_iov[i],
		                                   .msg_iovlen = 1,
		                                   .msg_control = r->control[i],
		                                   .msg_controllen = sizeof(r->control[i])};
	}
	return recvmmsg(fd, r->in, VB_RELAY_BATCH, MSG_DONTWAIT, NULL);
}

void vb_relay_socket(struct vb_relay *r, uint32_t i)
{
	int fd = r->group->fd[i], n = receive_batch(r, fd);
	struct vb_udp_arrival a;

	r->crowded = n == VB_RELAY_BATCH && is_filling(fd);
	for (int m = 0; m < n; m++) {
		if (!r->in[m].msg_len || !vb_udp_arrived(&r->in[m].msg_hdr, &a)) {
			r->dropped++;
			continue;
		}
		struct vb_relay_head h = relay_head_of(r, &a);

		vb_relay_datagram(r, i, &h, r->buffer[m], r->in[m].msg_len);
	}
	vb_relay_flush(r);
}
