// gsi_roce.c - queue pair 1 and the network: MADs as RoCEv2 datagrams, by the broker's lane and a socket of its own
// follows: IBA volume 1, 9.6.1 (packet validation), 10.2.5 (queue keys), 13.5 (general services); annex A17 (RoCEv2)
// SPDX-License-Identifier: MIT
#include "broker/server/gsi.h"

#include <errno.h>
#include <netinet/in.h>
#include <stdlib.h>
#include <string.h>
#include <sys/epoll.h>
#include <sys/random.h>
#include <sys/socket.h>
#include <unistd.h>

#include "broker/server/session.h"
#include "frame/icrc.h"
#include "frame/mad.h"
#include "frame/packet.h"
#include "net/udp.h"

#define DATAGRAMS_PER_TURN 16
#define DATAGRAM_MAX 65536
#define FIRST_PAUSE_MS 1000 /* the port is somebody else's: how soon to look again */
#define LAST_PAUSE_MS 60000
#define PKEY 0xffff
#define PKEY_BITS 0x7fff    /* the highest says what kind of member: full ones talk to all */
#define HEADERS_LEN VB_HEADER_LEN(VB_EXT_DETH)
#define PACKET_LEN (HEADERS_LEN + VB_MAD_LEN + VB_ICRC_LEN)

struct vb_gsi_roce {
	bool wanted;
	int rx;    /* ours and the keeper's; -1: there is none */
	int tx[2]; /* IPv4, IPv6 */
	uint16_t sport[2];
	uint32_t psn;
	int64_t again_at;
	int pause_ms;
	uint8_t buffer[DATAGRAM_MAX];
};

struct vb_gsi_roce *vb_gsi_roce_new(struct vb_broker *b)
{
	struct vb_gsi_roce *w = b->config.lanes == VB_LANES_NONE ? NULL : calloc(1, sizeof(*w));

	if (!w)
		return NULL;
	w->rx = w->tx[0] = w->tx[1] = -1;
	if (getrandom(&w->psn, sizeof(w->psn), 0) != sizeof(w->psn))
		w->psn = 0;
	return w;
}

/* ---- the broker's lane ---- */

static void lose_lane(struct vb_broker *b, struct vb_gsi_roce *w)
{
	if (w->rx < 0)
		return;
	epoll_ctl(b->epoll_fd, EPOLL_CTL_DEL, w->rx, NULL); /* the keeper has it too: closing alone would leave it there */
	close(w->rx);
	w->rx = -1;
}

static void take_lane(struct vb_broker *b, struct vb_gsi_roce *w)
{
	struct vb_holder holder;
	int fd, err = vb_hold_give(&b->hold, &b->config.rt, 0, false, &fd, &holder);

	if (!err) {
		err = vb_broker_watch(b, fd, EPOLLIN, VB_SRC_GSI, 0, 0);
		if (err)
			close(fd);
	}
	if (err) {
		w->again_at = vb_broker_now_ms() + w->pause_ms;
		w->pause_ms = w->pause_ms * 2 < LAST_PAUSE_MS ? w->pause_ms * 2 : LAST_PAUSE_MS;
		return;
	}
	w->rx = fd;
	w->again_at = 0;
	w->pause_ms = FIRST_PAUSE_MS;
}

void vb_gsi_roce_open(struct vb_broker *b, struct vb_gsi_roce *w)
{
	if (w->wanted)
		return;
	w->wanted = true;
	w->pause_ms = FIRST_PAUSE_MS;
	take_lane(b, w);
}

void vb_gsi_roce_rest(struct vb_gsi_roce *w)
{
	if (w->rx >= 0)
		return;
	w->wanted = false;
	w->again_at = 0;
}

void vb_gsi_roce_shut(struct vb_broker *b, struct vb_gsi_roce *w)
{
	if (!w->wanted)
		return;
	w->wanted = false;
	w->again_at = 0;
	lose_lane(b, w);
	vb_hold_take_back(&b->hold, 0);
}

void vb_gsi_roce_free(struct vb_broker *b, struct vb_gsi_roce *w)
{
	if (!w)
		return;
	lose_lane(b, w);
	for (int i = 0; i < 2; i++)
		if (w->tx[i] >= 0)
			close(w->tx[i]);
	free(w);
}

void vb_gsi_roce_lost(struct vb_broker *b, struct vb_gsi_roce *w)
{
	if (w->rx < 0)
		return;
	lose_lane(b, w);
	w->again_at = vb_broker_now_ms();
}

int64_t vb_gsi_roce_timer(struct vb_broker *b, struct vb_gsi_roce *w, int64_t now)
{
	if (!w->wanted)
		return 0;
	if (w->again_at && now >= w->again_at)
		take_lane(b, w);
	return w->again_at;
}

/* ---- sending ---- */

static bool open_sender(struct vb_gsi_roce *w, bool v6)
{
	w->tx[v6] = vb_udp_sender(v6, &w->sport[v6]);
	return w->tx[v6] >= 0;
}

static bool needs_interface(const uint8_t *gid)
{
	return gid[0] == 0xfe && (gid[1] & 0xc0) == 0x80;
}

/* The packet of a MAD: BTH to ICRC. */
static void build(struct vb_gsi_roce *w, uint8_t out[PACKET_LEN], const struct vb_flow *flow, const uint8_t *mad)
{
	struct vb_packet p = {
		.bth = {.opcode = VB_UD_SEND_ONLY, .migreq = true, .pkey = PKEY, .dest_qpn = VB_GSI_QPN,
			.psn = vb_psn(w->psn++)},
		.deth = {.qkey = VB_GSI_QKEY, .src_qpn = VB_GSI_QPN},
	};
	struct vb_writer to = vb_writer(out, PACKET_LEN);

	vb_packet_encode(&to, &p);
	vb_put_bytes(&to, mad, VB_MAD_LEN);
	uint32_t crc = vb_icrc_start(flow, 0, out, HEADERS_LEN + VB_MAD_LEN, PACKET_LEN);
	vb_icrc_encode(out + HEADERS_LEN + VB_MAD_LEN, crc);
}

/* From this address of ours, whatever the routing would have chosen. */
static size_t put_source(char control[CMSG_SPACE(sizeof(struct in6_pktinfo))], const uint8_t *local, uint32_t ifindex)
{
	struct cmsghdr *c = (struct cmsghdr *)control;

	if (vb_gid_is_ipv4(local)) {
		struct in_pktinfo info = {0};

		memcpy(&info.ipi_spec_dst, local + 12, 4);
		*c = (struct cmsghdr){.cmsg_level = IPPROTO_IP, .cmsg_type = IP_PKTINFO, .cmsg_len = CMSG_LEN(sizeof(info))};
		memcpy(CMSG_DATA(c), &info, sizeof(info));
		return CMSG_SPACE(sizeof(info));
	}
	struct in6_pktinfo info = {.ipi6_ifindex = ifindex};

	memcpy(&info.ipi6_addr, local, 16);
	*c = (struct cmsghdr){.cmsg_level = IPPROTO_IPV6, .cmsg_type = IPV6_PKTINFO, .cmsg_len = CMSG_LEN(sizeof(info))};
	memcpy(CMSG_DATA(c), &info, sizeof(info));
	return CMSG_SPACE(sizeof(info));
}

bool vb_gsi_roce_send(struct vb_gsi_roce *w, const uint8_t local[16], const uint8_t remote[16], uint32_t ifindex,
                      const uint8_t mad[VB_CM_MAD])
{
	_Alignas(struct cmsghdr) char control[CMSG_SPACE(sizeof(struct in6_pktinfo))] = {0};
	bool v6 = !vb_gid_is_ipv4(remote);
	uint32_t scope = needs_interface(remote) ? ifindex : 0;
	uint8_t packet[PACKET_LEN];
	struct iovec iov = {packet, sizeof(packet)};
	struct sockaddr_storage sa;
	struct vb_flow flow;

	if (v6 == vb_gid_is_ipv4(local) || (w->tx[v6] < 0 && !open_sender(w, v6)))
		return false;
	memcpy(flow.src, local, sizeof(flow.src));
	memcpy(flow.dst, remote, sizeof(flow.dst));
	flow.sport = w->sport[v6];
	flow.dport = VB_ROCE_PORT;
	build(w, packet, &flow, mad);
	struct msghdr mh = {.msg_name = &sa, .msg_namelen = vb_gid_to_sockaddr(&sa, remote, VB_ROCE_PORT, scope),
			    .msg_iov = &iov, .msg_iovlen = 1, .msg_control = control,
			    .msg_controllen = put_source(control, local, scope)};
	return sendmsg(w->tx[v6], &mh, MSG_DONTWAIT | MSG_NOSIGNAL) >= 0;
}

/* ---- receiving ---- */

/* IPv4's identification is covered by the ICRC and hidden from us: is there one that fits? */
static bool icrc_is_right(const struct vb_udp_arrival *a, const uint8_t *bytes, size_t len)
{
	uint32_t residual = vb_icrc_check(&a->flow, 0, bytes, len);

	return !residual || (vb_gid_is_ipv4(a->flow.dst) && vb_icrc_find_id(residual, 0, len) >= 0);
}

static void packet(struct vb_broker *b, const struct vb_udp_arrival *a, const uint8_t *bytes, size_t len)
{
	struct vb_gsi_counters *count = &b->gsi->counters;
	struct vb_packet p;

	if (vb_packet_decode(&p, bytes, len) != VB_PACKET_OK || p.bth.opcode != VB_UD_SEND_ONLY ||
	    p.bth.dest_qpn != VB_GSI_QPN || p.payload_len != VB_MAD_LEN || p.bth.pad) {
		count->malformed++;
	} else if (!icrc_is_right(a, bytes, len)) {
		count->icrc++;
	} else if (p.deth.qkey != VB_GSI_QKEY || (p.bth.pkey & PKEY_BITS) != (PKEY & PKEY_BITS)) {
		count->qkey++;
	} else {
		struct vb_msg_cm_mad m = {.ifindex = a->ifindex};

		memcpy(m.local, a->flow.dst, sizeof(m.local));
		memcpy(m.remote, a->flow.src, sizeof(m.remote));
		memcpy(m.mad, bytes + p.payload_at, sizeof(m.mad));
		count->received++;
		vb_gsi_input(b, &m, &(struct vb_gsi_scope){0});
	}
}

/* False: there is nothing now. */
static bool receive(struct vb_broker *b, struct vb_gsi_roce *w)
{
	_Alignas(struct cmsghdr) char control[256];
	struct sockaddr_storage from;
	struct iovec iov = {w->buffer, sizeof(w->buffer)};
	struct msghdr mh = {.msg_name = &from, .msg_namelen = sizeof(from), .msg_iov = &iov, .msg_iovlen = 1,
			    .msg_control = control, .msg_controllen = sizeof(control)};
	struct vb_udp_arrival a;
	ssize_t n = recvmsg(w->rx, &mh, MSG_DONTWAIT);

	if (n < 0)
		return errno != EAGAIN && errno != EWOULDBLOCK;
	if (!n || !vb_udp_arrived(&mh, &a)) {
		b->gsi->counters.malformed++;
		return true;
	}
	size_t len = (size_t)n, seg = a.seg && a.seg < len ? a.seg : len;
	for (size_t off = 0; off < len; off += seg)
		packet(b, &a, w->buffer + off, len - off < seg ? len - off : seg);
	return true;
}

/* The programs have their turn between a flood's datagrams. */
void vb_gsi_readable(struct vb_broker *b)
{
	struct vb_gsi_roce *w = b->gsi ? b->gsi->roce : NULL;

	for (int i = 0; i < DATAGRAMS_PER_TURN && w && w->rx >= 0; i++)
		if (!receive(b, w))
			break;
}
