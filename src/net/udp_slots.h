// udp_slots.h - memory that long UDP sends are made from without a copy by the kernel
// follows: vmsplice(2), splice(2), udp(7)
// SPDX-License-Identifier: MIT
#ifndef VB_NET_UDP_SLOTS_H
#define VB_NET_UDP_SLOTS_H

#include <stdbool.h>
#include <stdint.h>
#include <sys/socket.h>

#define VB_UDP_SLOT 65536u     /* bytes; room for the longest send */
#define VB_UDP_SLOT_MIN 32768u /* bytes; a shorter send is cheaper by sendmsg(2) */

struct vb_udp_slots;

/* Returns NULL if there is no memory, or if this machine or its kernel (before Linux 6.5) cannot send this way. */
struct vb_udp_slots *vb_udp_slots_new(void);
void vb_udp_slots_free(struct vb_udp_slots *s);

/* Who sends, to whom. */
struct vb_udp_slot_use {
	uint64_t owner;       /* of this connection and no other, not 0 */
	uint64_t sent, acked; /* numbers of its last packet and of the last acknowledged one */
	uint64_t now;         /* ns */
};

/*
 * Returns the next slot, VB_UDP_SLOT bytes from a multiple of 64 on, to be filled past the caches and passed to
 * vb_udp_slots_pass. NULL: it is in use, or the kernel refuses. The caller need not send it.
 */
uint8_t *vb_udp_slots_room(struct vb_udp_slots *s, const struct vb_udp_slot_use *use);
/* Copies past the caches. to and len are multiples of 64. */
void vb_udp_slots_fill(uint8_t *to, const uint8_t *from, size_t len);
/*
 * Sends len bytes, which are in a slot of vb_udp_slots_room. to: name and control data of the send. Returns false if
 * nothing was sent: the kernel refused. Then the caller sends by sendmsg(2). Nobody else may use the socket meanwhile.
 * No cancellation point.
 */
bool vb_udp_slots_pass(struct vb_udp_slots *s, int fd, const struct msghdr *to, uint8_t *bytes, uint32_t len,
                       const struct vb_udp_slot_use *use);
/* The kernel refuses for good: all further sends fail. */
bool vb_udp_slots_are_broken(const struct vb_udp_slots *s);

#endif
