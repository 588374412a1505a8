// packet_ring.h - the packets of an interface in memory that the kernel shares, so that a program polls without system calls
// follows: packet(7), PACKET_RX_RING; docs/roce.md
// SPDX-License-Identifier: MIT
#ifndef VB_NET_PACKET_RING_H
#define VB_NET_PACKET_RING_H

#include "net/udp.h"

/*
 * A packet socket gets the RoCEv2 packets that an interface receives for the queue pairs of one lane. Short ones are in
 * the ring whole, of long ones only the beginning. First the lane's UDP socket gets all of them too, so that the caller can
 * compare (vb_packet_ring_matches). Then it leaves the short ones to the ring, and keeps the long ones: those are found
 * there in the order in which the ring announces them. No function takes a lock.
 */
struct vb_packet_ring;

/* Makes a ring, which packets enter from now on. This may take some milliseconds. Returns NULL if the process has no right
 * to packet sockets (CAP_NET_RAW), the kernel is too old (before 6.2, it cannot say that packets were merged), or the
 * interface has many such sockets already, because each sees all packets. */
struct vb_packet_ring *vb_packet_ring_new(uint32_t ifindex, uint32_t lane);
/* The lane's socket drops what is in the ring from now on. False: nothing has changed. */
bool vb_packet_ring_claim(const struct vb_packet_ring *r, int lane_fd);
/* Takes off what a ring, of this process or an earlier holder of the lane, has left on the socket. */
void vb_packet_ring_forget(int lane_fd);
void vb_packet_ring_free(struct vb_packet_ring *r);

/* readable while the ring is not empty; an error if the interface went down */
int vb_packet_ring_fd(const struct vb_packet_ring *r);
/* Has the interface gone, or been down? */
bool vb_packet_ring_failed(const struct vb_packet_ring *r);
bool vb_packet_ring_crowded(const struct vb_packet_ring *r); /* a quarter of it is full */

enum vb_ring_packet {
	VB_RING_EMPTY,
	VB_RING_SHORT,    /* it is in the ring */
	VB_RING_IN_SOCKET /* it is, or will be, in the lane's socket */
};
/* Looks at the first packet. *bytes are its *len bytes from the BTH on, in the ring, which the caller may change. */
enum vb_ring_packet vb_packet_ring_first(const struct vb_packet_ring *r, struct vb_udp_arrival *a, uint8_t **bytes,
                                         size_t *len);
void vb_packet_ring_next(struct vb_packet_ring *r); /* gives the first one back to the kernel */
/* What the ring has of a datagram of the lane's socket: SHORT, IN_SOCKET, or EMPTY for one of another interface, lane or
 * kind. */
enum vb_ring_packet vb_packet_ring_has(const struct vb_packet_ring *r, const struct vb_udp_arrival *a,
                                       const uint8_t *bytes, size_t len);
/* Is the first packet of the ring, a short one, this datagram? */
bool vb_packet_ring_matches(const struct vb_packet_ring *r, const struct vb_udp_arrival *a, const uint8_t *bytes,
                            size_t len);

#endif
