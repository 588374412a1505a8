// packet_ring.h - the packets of an interface in memory that the kernel shares, so that a program polls without system calls
// follows: packet(7), PACKET_RX_RING; docs/roce.md
// SPDX-License-Identifier: MIT
#ifndef VB_NET_PACKET_RING_H
#define VB_NET_PACKET_RING_H

#include "net/udp.h"

/*
 * A packet socket gets the RoCEv2 packets that an interface receives for the queue pairs of one lane. Short ones are in
 * the ring whole, of long ones only the beginning. First the lane's UDP socket gets all of them too, so that the caller can
 * compare. Then it leaves the short ones to the ring, and keeps the long ones, which the ring announces in their order. No
 * function takes a lock.
 */
struct vb_packet_ring;

/* Makes a ring that nothing enters yet. This may take some milliseconds. Returns NULL if the process has no right to packet
 * sockets (CAP_NET_RAW), the kernel is too old (before 6.2, it cannot say that packets were merged), the interface has many
 * such sockets already, because each sees all packets, or it is a port of another one, which receives in its place. */
struct vb_packet_ring *vb_packet_ring_new(uint32_t ifindex, uint32_t lane);
void vb_packet_ring_free(struct vb_packet_ring *r);
bool vb_packet_ring_open(const struct vb_packet_ring *r); /* from now on packets enter it */
void vb_packet_ring_shut(const struct vb_packet_ring *r); /* no more packets enter it */
/* The lane's socket drops what is in the ring from now on. False: nothing has changed. */
bool vb_packet_ring_claim(const struct vb_packet_ring *r, int lane_fd);
/* Takes off what a ring, of this process or an earlier holder of the lane, has left on the socket. */
void vb_packet_ring_forget(int lane_fd);

/* Asks the kernel whether the ring may go on. Returns NULL, or why it may not: the interface was down, has gone or has
 * become a port, or packets found no room. */
const char *vb_packet_ring_trouble(const struct vb_packet_ring *r);
bool vb_packet_ring_is_lo(const struct vb_packet_ring *r);   /* is the interface the loopback? */
bool vb_packet_ring_crowded(const struct vb_packet_ring *r); /* a quarter of it is full */
uint32_t vb_packet_ring_at(const struct vb_packet_ring *r);  /* counts the packets that were given back */
uint32_t vb_packet_ring_ifindex(const struct vb_packet_ring *r);

enum vb_ring_packet { VB_RING_EMPTY, VB_RING_SHORT, VB_RING_LONG };
/* Looks at the first packet. *bytes are its *len bytes from the BTH on, in the ring, which the caller may change. Of a
 * long one only the first are there. */
enum vb_ring_packet vb_packet_ring_first(struct vb_packet_ring *r, struct vb_udp_arrival *a, uint8_t **bytes,
                                         size_t *len);
void vb_packet_ring_next(struct vb_packet_ring *r); /* gives the first one back to the kernel */
/* What a datagram of the lane's socket is to the ring. EMPTY: it is of another interface or lane. */
enum vb_ring_packet vb_packet_ring_kind(const struct vb_packet_ring *r, const struct vb_udp_arrival *a,
                                        const uint8_t *bytes, size_t len);
/* The place of this datagram: how many packets are before it, or -1 if it is not there. */
int vb_packet_ring_find(const struct vb_packet_ring *r, const struct vb_udp_arrival *a, const uint8_t *bytes,
                        size_t len);
/* Was it in the ring, a while ago? */
bool vb_packet_ring_had(const struct vb_packet_ring *r, const struct vb_udp_arrival *a, const uint8_t *bytes,
                        size_t len);
/* The packet at this place has come by the socket: it is first no more, and is not found again. */
void vb_packet_ring_seen(struct vb_packet_ring *r, int at);

#endif
