// socket.c - the packet socket of a raw packet queue pair
// follows: packet(7); IEEE 802.1Q
// SPDX-License-Identifier: MIT
#include <arpa/inet.h>
#include <errno.h>
#include <linux/filter.h>
#include <linux/if_packet.h>
#include <net/ethernet.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

#include "path/raw/raw.h"

#define RECEIVE_BUFFER (8 << 20) /* bytes; the kernel grants what it allows */
#define RAW_MARK 0x56524157u     /* skb->mark of the frames that raw packet queue pairs send: "VRAW" */

#ifndef PACKET_IGNORE_OUTGOING
#define PACKET_IGNORE_OUTGOING 23
#endif

static int bind_socket(int fd, int ifindex, bool receive)
{
	struct sockaddr_ll sa = {
	        .sll_family = AF_PACKET, .sll_protocol = htons(receive ? ETH_P_ALL : 0), .sll_ifindex = ifindex};

	return bind(fd, (const struct sockaddr *)&sa, sizeof(sa)) ? errno : 0;
}

int vb_raw_socket(const struct vb_netdev *nd)
{
	int fd = socket(AF_PACKET, SOCK_RAW | SOCK_CLOEXEC | SOCK_NONBLOCK, 0), on = 1, room = RECEIVE_BUFFER;
	uint32_t mark = RAW_MARK;

	if (fd < 0)
		return -errno;
	int err = bind_socket(fd, nd->ifindex, false);

	if (!err && setsockopt(fd, SOL_PACKET, PACKET_AUXDATA, &on, sizeof(on)))
		err = errno;
	if (err) {
		close(fd);
		return -err;
	}
	if (setsockopt(fd, SOL_SOCKET, SO_RCVBUFFORCE, &room, sizeof(room)))
		setsockopt(fd, SOL_SOCKET, SO_RCVBUF, &room, sizeof(room));
	if (nd->flags & IFF_LOOPBACK)
		setsockopt(fd, SOL_PACKET, PACKET_IGNORE_OUTGOING, &on, sizeof(on)); /* else vb_raw_take skips them */
	else
		setsockopt(fd, SOL_SOCKET, SO_MARK, &mark, sizeof(mark)); /* Linux before 5.17 wants CAP_NET_ADMIN */
	return fd;
}

/* Which of the frames that this host sends the socket receives: those of other raw packet queue pairs, or with sniffs all.
 * An adapter does not receive what its host sends through it. On lo, all that is sent comes back as received. */
static int filter_outgoing(const struct vb_raw_path *path, bool sniffs)
{
	struct sock_filter code[] = {
	        BPF_STMT(BPF_LD | BPF_W | BPF_ABS, (uint32_t)(SKF_AD_OFF + SKF_AD_PKTTYPE)),
	        BPF_JUMP(BPF_JMP | BPF_JEQ | BPF_K, PACKET_OUTGOING, 0, 2),
	        BPF_STMT(BPF_LD | BPF_W | BPF_ABS, (uint32_t)(SKF_AD_OFF + SKF_AD_MARK)),
	        BPF_JUMP(BPF_JMP | BPF_JEQ | BPF_K, RAW_MARK, 0, 1),
	        BPF_STMT(BPF_RET | BPF_K, UINT32_MAX),
	        BPF_STMT(BPF_RET | BPF_K, sniffs ? UINT32_MAX : 0),
	};
	const struct sock_fprog program = {.len = sizeof(code) / sizeof(code[0]), .filter = code};

	if (path->loopback)
		return 0;
	return setsockopt(path->fd, SOL_SOCKET, SO_ATTACH_FILTER, &program, sizeof(program)) ? errno : 0;
}

static int change_membership(const struct vb_raw_path *path, int type, const uint8_t *mac, bool join)
{
	struct packet_mreq m = {.mr_ifindex = path->ifindex, .mr_type = (unsigned short)type};

	if (mac) {
		m.mr_alen = 6;
		memcpy(m.mr_address, mac, 6);
	}
	return setsockopt(path->fd, SOL_PACKET, join ? PACKET_ADD_MEMBERSHIP : PACKET_DROP_MEMBERSHIP, &m, sizeof(m))
	               ? errno
	               : 0;
}

#define WISHES(w) ((w)->n + 2) /* the addresses, and what the first two stand for */

static int change_one(const struct vb_raw_path *path, const struct vb_flow_wants *w, unsigned i, bool join)
{
	if (i == 0)
		return w->all ? change_membership(path, PACKET_MR_PROMISC, NULL, join) : 0;
	if (i == 1)
		return w->groups ? change_membership(path, PACKET_MR_ALLMULTI, NULL, join) : 0;
	const uint8_t *mac = w->mac[i - 2];

	if (path->loopback)
		return 0;
	return change_membership(path, mac[0] & 1 ? PACKET_MR_MULTICAST : PACKET_MR_UNICAST, mac, join);
}

/* Drops the first of what w wants, up to this one. */
static void drop_first(const struct vb_raw_path *path, const struct vb_flow_wants *w, unsigned end)
{
	for (unsigned i = 0; i < end; i++)
		(void)change_one(path, w, i, false);
}

/* The kernel counts memberships, so an address may be joined twice. Its own station's needs none, but does no harm. */
static int join_all(const struct vb_raw_path *path, const struct vb_flow_wants *w)
{
	for (unsigned i = 0; i < WISHES(w); i++) {
		int err = change_one(path, w, i, true);

		if (err) {
			drop_first(path, w, i);
			return err;
		}
	}
	return 0;
}

int vb_raw_listen(struct vb_raw_path *path, const struct vb_flow_wants *wants)
{
	const struct vb_flow_wants before = path->joined;

	VB_MAY_WAIT();
	int err = join_all(path, wants);

	if (err)
		return err;
	err = filter_outgoing(path, wants->sniffs);
	if (!err && wants->any && !path->listens)
		err = bind_socket(path->fd, path->ifindex, true);
	if (err) {
		drop_first(path, wants, WISHES(wants));
		(void)filter_outgoing(path, before.sniffs);
		return err;
	}
	drop_first(path, &before, WISHES(&before)); /* what both want stays joined, because it was joined twice */
	path->joined = *wants;
	if (wants->any == path->listens)
		return 0;
	vb_raw_listens(path, wants->any);
	if (!wants->any)
		(void)bind_socket(path->fd, path->ifindex, false);
	return 0;
}

/* Puts back the VLAN tag that the kernel took out of the frame, and notes that the kernel has left out its checksum. */
static void restore_frame(struct msghdr *msg, struct vb_arrival *a)
{
	for (struct cmsghdr *c = CMSG_FIRSTHDR(msg); c; c = CMSG_NXTHDR(msg, c)) {
		struct tpacket_auxdata aux;

		if (c->cmsg_level != SOL_PACKET || c->cmsg_type != PACKET_AUXDATA ||
		    c->cmsg_len < CMSG_LEN(sizeof(aux)))
			continue;
		memcpy(&aux, CMSG_DATA(c), sizeof(aux));
		a->unsummed = aux.tp_status & TP_STATUS_CSUMNOTREADY;
		if (!(aux.tp_status & TP_STATUS_VLAN_VALID) || a->len < VB_MACS_LEN)
			return;
		bool has_type = aux.tp_status & TP_STATUS_VLAN_TPID_VALID;

		a->frame -= VB_VLAN_TAG_LEN;
		a->len += VB_VLAN_TAG_LEN;
		memmove(a->frame, a->frame + VB_VLAN_TAG_LEN, VB_MACS_LEN);
		vb_store16(a->frame + VB_MACS_LEN, has_type ? aux.tp_vlan_tpid : VB_ETHERTYPE_CVLAN);
		vb_store16(a->frame + VB_MACS_LEN + 2, aux.tp_vlan_tci);
		return;
	}
}

bool vb_raw_take(struct vb_raw_path *path, struct vb_arrival *a)
{
	_Alignas(struct cmsghdr) uint8_t control[CMSG_SPACE(sizeof(struct tpacket_auxdata))];
	struct sockaddr_ll from;
	uint8_t *frame = path->frame + VB_VLAN_TAG_LEN;

	for (unsigned tries = 0; tries < 64; tries++) {
		struct iovec iov = {frame, VB_RAW_FRAME_MAX};
		struct msghdr msg = {.msg_name = &from,
		                     .msg_namelen = sizeof(from),
		                     .msg_iov = &iov,
		                     .msg_iovlen = 1,
		                     .msg_control = control,
		                     .msg_controllen = sizeof(control)};
		ssize_t n = recvmsg(path->fd, &msg, MSG_DONTWAIT);

		if (n < 0 && (errno == EINTR || errno == ENETDOWN))
			continue;
		if (n <= 0)
			return false;
		if ((msg.msg_flags & MSG_TRUNC) || (path->loopback && from.sll_pkttype == PACKET_OUTGOING))
			continue;
		*a = (struct vb_arrival){.frame = frame, .len = (uint32_t)n};
		restore_frame(&msg, a);
		return true;
	}
	return false;
}
