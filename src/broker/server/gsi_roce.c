// gsi_roce.c - queue pair 1 on the network: MADs as RoCEv2 packets, by the broker's lane and a sending socket
// follows: IBA volume 1, sections 9.6.1 (packet validation), 10.2.5 (Q_Keys), 13.5 (general services interface); annex A17 (RoCEv2)
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
#include "frame/fields.h"
#include "frame/icrc.h"
#include "frame/mad.h"
#include "frame/packet.h"
#include "net/udp.h"

#define DATAGRAMS_PER_TURN 16
#define DATAGRAM_MAX 65536
#define FIRST_PAUSE_MS 1000 /* another program holds the port: when to try again */
#define LAST_PAUSE_MS 60000
#define PKEY_BITS 0x7fff /* the highest bit is the membership type: full members talk to all */
#define HEADERS_LEN VB_HEADER_LEN(VB_EXT_DETH)
#define PACKET_LEN (HEADERS_LEN + VB_MAD_LEN + VB_ICRC_LEN)

_Static_assert(VB_CM_MAD == VB_MAD_LEN, "broker/proto includes no frame/mad.h");

struct vb_gsi_roce {
	bool wanted;
	int rx;    /* a socket that the keeper has too; -1: none */
	int tx[2]; /* IPv4, IPv6 */
	uint16_t sport[2];
	uint32_t psn;
	int64_t again_at;
	int pause_ms;
	uint8_t buffer[DATAGRAM_MAX];
};

struct vb_gsi_roce *vb_gsi_roce_new(struct vb_broker *b)
{
	struct vb_gsi_roce *roce = b->config.lanes == VB_LANES_NONE ? NULL : calloc(1, sizeof(*roce));

	if (!roce)
		return NULL;
	roce->rx = roce->tx[0] = roce->tx[1] = -1;
	if (getrandom(&roce->psn, sizeof(roce->psn), 0) != sizeof(roce->psn))
		roce->psn = 0;
	return roce;
}

/* ---- the broker's lane ---- */

static void close_roce_lane(struct vb_broker *b, struct vb_gsi_roce *roce)
{
	if (roce->rx < 0)
		return;
	epoll_ctl(b->epoll_fd, EPOLL_CTL_DEL, roce->rx, NULL); /* close alone would not: the keeper has it too */
	close(roce->rx);
	roce->rx = -1;
}

static void open_roce_lane(struct vb_broker *b, struct vb_gsi_roce *roce)
{
	struct vb_holder holder;
	int fd, err = vb_hold_give(&b->hold, &b->config.rt, 0, false, &fd, &holder);

	if (!err) {
		err = vb_broker_watch(b, fd, EPOLLIN, VB_SRC_GSI, 0, 0);
		if (err)
			close(fd);
	}
	if (err) {
		roce->again_at = vb_broker_now_ms() + roce->pause_ms;
		roce->pause_ms = roce->pause_ms * 2 < LAST_PAUSE_MS ? roce->pause_ms * 2 : LAST_PAUSE_MS;
		return;
	}
	roce->rx = fd;
	roce->again_at = 0;
	roce->pause_ms = FIRST_PAUSE_MS;
}

void vb_gsi_roce_open(struct vb_broker *b, struct vb_gsi_roce *roce)
{
	if (roce->wanted)
		return;
	roce->wanted = true;
	roce->pause_ms = FIRST_PAUSE_MS;
	open_roce_lane(b, roce);
}

bool vb_gsi_roce_lacks_socket(const struct vb_gsi_roce *roce)
{
	return roce->wanted && roce->rx < 0;
}

void vb_gsi_roce_rest(struct vb_gsi_roce *roce)
{
	if (roce->rx >= 0)
		return;
	roce->wanted = false;
	roce->again_at = 0;
}

void vb_gsi_roce_shut(struct vb_broker *b, struct vb_gsi_roce *roce)
{
	if (!roce->wanted)
		return;
	roce->wanted = false;
	roce->again_at = 0;
	close_roce_lane(b, roce);
	vb_hold_take_back(&b->hold, 0, VB_GROUPS_NONE);
}

void vb_gsi_roce_free(struct vb_broker *b, struct vb_gsi_roce *roce)
{
	if (!roce)
		return;
	close_roce_lane(b, roce);
	for (int i = 0; i < 2; i++)
		if (roce->tx[i] >= 0)
			close(roce->tx[i]);
	free(roce);
}

void vb_gsi_roce_lost(struct vb_broker *b, struct vb_gsi_roce *roce)
{
	if (roce->rx < 0)
		return;
	close_roce_lane(b, roce);
	roce->again_at = vb_broker_now_ms();
}

int64_t vb_gsi_roce_timer(struct vb_broker *b, struct vb_gsi_roce *roce, int64_t now)
{
	if (!roce->wanted)
		return 0;
	if (roce->again_at && now >= roce->again_at)
		open_roce_lane(b, roce);
	return roce->again_at;
}

/* ---- sending ---- */

static bool open_sender(struct vb_gsi_roce *roce, bool v6)
{
	roce->tx[v6] = vb_udp_sender(v6, NULL, &roce->sport[v6]);
	return roce->tx[v6] >= 0;
}

static bool needs_interface(const uint8_t *gid)
{
	return gid[0] == 0xfe && (gid[1] & 0xc0) == 0x80;
}

/* The RoCEv2 packet of a MAD, from BTH to ICRC. */
static void encode_mad_packet(struct vb_gsi_roce *roce, uint8_t out[PACKET_LEN], const struct vb_flow *flow,
                              const uint8_t *mad)
{
	struct vb_packet p = {
	        .bth = {.opcode = VB_UD_SEND_ONLY,
	                .migreq = true,
	                .pkey = VB_DEFAULT_PKEY,
	                .dest_qpn = VB_GSI_QPN,
	                .psn = vb_psn(roce->psn++)},
	        .deth = {.qkey = VB_GSI_QKEY, .src_qpn = VB_GSI_QPN},
	};
	struct vb_writer to = vb_writer(out, PACKET_LEN);

	vb_packet_encode(&to, &p);
	vb_put_bytes(&to, mad, VB_MAD_LEN);
	uint32_t crc = vb_icrc_start(flow, 0, out, HEADERS_LEN + VB_MAD_LEN, PACKET_LEN);
	vb_icrc_encode(out + HEADERS_LEN + VB_MAD_LEN, crc);
}

/* Makes local the source address, whatever the routing table would choose. */
static size_t put_source(char control[CMSG_SPACE(sizeof(struct in6_pktinfo))], const uint8_t *local, uint32_t ifindex)
{
	struct cmsghdr *c = (struct cmsghdr *)control;

	if (vb_gid_is_ipv4(local)) {
		struct in_pktinfo info = {0};

		memcpy(&info.ipi_spec_dst, local + 12, 4);
		*c = (struct cmsghdr){
		        .cmsg_level = IPPROTO_IP, .cmsg_type = IP_PKTINFO, .cmsg_len = CMSG_LEN(sizeof(info))};
		memcpy(CMSG_DATA(c), &info, sizeof(info));
		return CMSG_SPACE(sizeof(info));
	}
	struct in6_pktinfo info = {.ipi6_ifindex = ifindex};

	memcpy(&info.ipi6_addr, local, 16);
	*c = (struct cmsghdr){
	        .cmsg_level = IPPROTO_IPV6, .cmsg_type = IPV6_PKTINFO, .cmsg_len = CMSG_LEN(sizeof(info))};
	memcpy(CMSG_DATA(c), &info, sizeof(info));
	return CMSG_SPACE(sizeof(info));
}

bool vb_gsi_roce_send(struct vb_gsi_roce *roce, const uint8_t local[16], const uint8_t remote[16], uint32_t ifindex,
                      const uint8_t mad[VB_CM_MAD])
{
	_Alignas(struct cmsghdr) char control[CMSG_SPACE(sizeof(struct in6_pktinfo))] = {0};
	bool v6 = !vb_gid_is_ipv4(remote);
	uint32_t scope = needs_interface(remote) ? ifindex : 0;
	uint8_t packet[PACKET_LEN];
	struct iovec iov = {packet, sizeof(packet)};
	struct sockaddr_storage sa;

	if (v6 == vb_gid_is_ipv4(local) || (roce->tx[v6] < 0 && !open_sender(roce, v6)))
		return false;
	struct vb_flow flow = vb_roce_flow(local, remote, roce->sport[v6]);

	encode_mad_packet(roce, packet, &flow, mad);
	struct msghdr mh = {.msg_name = &sa,
	                    .msg_namelen = vb_gid_to_sockaddr(&sa, remote, VB_ROCE_PORT, scope),
	                    .msg_iov = &iov,
	                    .msg_iovlen = 1,
	                    .msg_control = control,
	                    .msg_controllen = put_source(control, local, scope)};
	return sendmsg(roce->tx[v6], &mh, MSG_DONTWAIT | MSG_NOSIGNAL) >= 0;
}

/* ---- receiving ---- */

/* The ICRC covers IPv4's identification, which a socket does not show: is there one that fits? */
static bool icrc_is_right(const struct vb_udp_arrival *a, const uint8_t *bytes, size_t len)
{
	uint32_t residual = vb_icrc_check(&a->flow, 0, bytes, len);

	return !residual || (vb_gid_is_ipv4(a->flow.dst) && vb_icrc_find_id(residual, 0, len) >= 0);
}

static void input_packet(struct vb_broker *b, const struct vb_udp_arrival *a, const uint8_t *bytes, size_t len)
{
	struct vb_gsi_counters *count = &b->gsi->counters;
	struct vb_packet p;

	if (vb_packet_decode(&p, bytes, len) != VB_PACKET_OK || p.bth.opcode != VB_UD_SEND_ONLY ||
	    p.bth.dest_qpn != VB_GSI_QPN || p.payload_len != VB_MAD_LEN || p.bth.pad) {
		count->malformed++;
	} else if (!icrc_is_right(a, bytes, len)) {
		count->icrc++;
	} else if (p.deth.qkey != VB_GSI_QKEY || (p.bth.pkey & PKEY_BITS) != (VB_DEFAULT_PKEY & PKEY_BITS)) {
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

/* False if no datagram is waiting. */
static bool receive_datagram(struct vb_broker *b, struct vb_gsi_roce *roce)
{
	_Alignas(struct cmsghdr) char control[256];
	struct sockaddr_storage from;
	struct iovec iov = {roce->buffer, sizeof(roce->buffer)};
	struct msghdr mh = {.msg_name = &from,
	                    .msg_namelen = sizeof(from),
	                    .msg_iov = &iov,
	                    .msg_iovlen = 1,
	                    .msg_control = control,
	                    .msg_controllen = sizeof(control)};
	struct vb_udp_arrival a;
	ssize_t n = recvmsg(roce->rx, &mh, MSG_DONTWAIT);

	if (n < 0)
		return errno != EAGAIN && errno != EWOULDBLOCK;
	if (!n || !vb_udp_arrived(&mh, &a)) {
		b->gsi->counters.malformed++;
		return true;
	}
	size_t len = (size_t)n, seg = a.seg && a.seg < len ? a.seg : len;
	for (size_t off = 0; off < len; off += seg)
		input_packet(b, &a, roce->buffer + off, len - off < seg ? len - off : seg);
	return true;
}

/* Limited per turn, so that a flood of datagrams does not keep programs from being served. */
void vb_gsi_readable(struct vb_broker *b)
{
	struct vb_gsi_roce *roce = b->gsi ? b->gsi->roce : NULL;

	for (int i = 0; i < DATAGRAMS_PER_TURN && roce && roce->rx >= 0; i++)
		if (!receive_datagram(b, roce))
			break;
}
