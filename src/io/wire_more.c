// wire_more.c - packets that are not for one queue pair of this process: multicast, and those of another lane
// follows: IBA volume 1, 10.5 (multicast); annex A17 (RoCEv2), A17.4.3; ip(7) (IP_ADD_MEMBERSHIP), ipv6(7)
// SPDX-License-Identifier: MIT
#include <errno.h>
#include <netinet/in.h>
#include <string.h>
#include <sys/socket.h>

#include "core/mcast.h"
#include "engine/ring.h"
#include "io/wire.h"

int vb_wire_ready(struct vb_node *node)
{
	int err = vb_wire_up(node, VB_WAY_WAIT);

	return err == ENETUNREACH ? EOPNOTSUPP : err;
}

int vb_wire_membership(struct vb_node *node, const union ibv_gid *group, uint32_t ifindex, bool join)
{
	int fd = node->io->wire->lane_fd, r;

	if (vb_gid_is_ipv4(group->raw)) {
		struct ip_mreqn m = {.imr_ifindex = (int)ifindex};

		memcpy(&m.imr_multiaddr, group->raw + 12, 4);
		r = setsockopt(fd, IPPROTO_IP, join ? IP_ADD_MEMBERSHIP : IP_DROP_MEMBERSHIP, &m, sizeof(m));
	} else {
		struct ipv6_mreq m = {.ipv6mr_interface = ifindex};

		memcpy(&m.ipv6mr_multiaddr, group->raw, 16);
		r = setsockopt(fd, IPPROTO_IPV6, join ? IPV6_ADD_MEMBERSHIP : IPV6_DROP_MEMBERSHIP, &m, sizeof(m));
	}
	/* a lane that several programs share is in the group already */
	return r && errno != EADDRINUSE ? errno : 0;
}

void vb_wire_multicast(struct vb_node *node, const struct vb_wire_arrival *a, const struct vb_packet *p, const uint8_t *bytes, size_t len)
{
	unsigned taken = 0;

	for (struct vb_mcast *m = node->mcasts; m; m = m->next) {
		if (m->ifindex != a->ifindex || memcmp(m->group.raw, a->flow.dst, VB_GID_LEN) != 0 || !m->qp->wire)
			continue;
		struct vb_packet mine = *p;

		mine.bth.dest_qpn = m->qp->qp.qp_num;
		vb_wire_to_qp(node, m->qp, a, &mine, bytes, len);
		taken++;
	}
	if (!taken)
		VB_COUNT(drop_no_qp, 1);
}

/* --- another lane --- */

void vb_wire_forward(struct vb_node *node, const struct vb_wire_arrival *a, uint32_t qpn, const uint8_t *bytes, size_t len)
{
	struct vb_peer *p = atomic_load_explicit(&node->peers[VB_QP_LANE(qpn)], memory_order_acquire);
	union ibv_gid dgid;
	int err;

	if (!VB_QP_LANE(qpn) || len > VB_WIRE_PACKET_MAX + VB_ICRC_LEN) {
		VB_COUNT(drop_forward, 1);
		return;
	}
	memcpy(dgid.raw, a->flow.dst, VB_GID_LEN);
	if (!p || !vb_peer_alive(p))
		p = vb_peer_find(node, qpn, &dgid, 0, &err);
	if (!p || p->self || !vb_peer_ready(p)) { /* not met yet: its sender repeats it */
		VB_COUNT(drop_forward, 1);
		return;
	}
	uint32_t size = (uint32_t)(sizeof(struct vb_rec) + sizeof(*a) + len);

	vb_lock(&p->tx_lock);
	struct vb_rec *rec = vb_ring_reserve(p, size);

	if (rec) {
		memcpy(rec + 1, a, sizeof(*a));
		memcpy((uint8_t *)(rec + 1) + sizeof(*a), bytes, len);
		rec->dest = qpn | (uint32_t)VB_REC_PACKET << 24;
		rec->src = rec->psn = rec->ack = rec->imm = 0;
		rec->length = (uint32_t)(sizeof(*a) + len);
		vb_ring_commit(p, size);
		vb_peer_notify(p);
		vb_ring_prepare(p);
	}
	vb_unlock(&p->tx_lock);
	if (rec)
		VB_COUNT(forwarded, 1);
	else
		VB_COUNT(drop_forward, 1);
}

void vb_wire_forwarded(struct vb_node *node, const uint8_t *record, uint32_t length)
{
	uint8_t bytes[VB_WIRE_PACKET_MAX + VB_ICRC_LEN];
	struct vb_wire_arrival a;
	size_t len = length - sizeof(a);

	if (length < sizeof(a) + VB_BTH_LEN + VB_ICRC_LEN || len > sizeof(bytes) || !node->io->wire->rx) {
		VB_COUNT(drop_malformed, 1);
		return;
	}
	memcpy(&a, record, sizeof(a));
	a.now = vb_now();
	memcpy(bytes, record + sizeof(a), len); /* once: the peer can change what stands there */
	vb_wire_packet(node, &a, bytes, len);
	vb_wire_settle_batch(node);
}
