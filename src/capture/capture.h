// capture.h - records the frames that this program sends and receives, while somebody captures them
// see: docs/capture.md
// SPDX-License-Identifier: MIT
#ifndef VB_CAPTURE_CAPTURE_H
#define VB_CAPTURE_CAPTURE_H

#include <stdbool.h>
#include <stddef.h>
#include <sys/uio.h>

#include "capture/ring.h"
#include "frame/message.h"
#include "frame/net.h"

/* The ring, or NULL: nobody captures. Only capture.c follows the pointer, under its lock. */
extern struct vb_capture_ring *_Atomic vb_capture_ring;

/* Does somebody capture? A hint: the functions below do nothing if nobody does. A build with -DVB_WITHOUT_HOOKS never
 * asks; bench/overhead compares with it. */
static inline bool vb_capturing(void)
{
#ifdef VB_WITHOUT_HOOKS
	return false;
#endif
	return __builtin_expect(atomic_load_explicit(&vb_capture_ring, memory_order_relaxed) != NULL, 0);
}

/* CLOCK_REALTIME, ns. */
uint64_t vb_capture_now(void);

/* The frames below are of this direction, of this time, and of this queue pair of the program (0: unknown). */
struct vb_capture_of {
	enum vb_capture_direction direction;
	uint64_t time;
	uint32_t qpn;
	uint32_t flags;
};

/*
 * Records a packet that crossed a UDP socket, BTH to ICRC: len bytes at offset off of the pieces. Memory that is not
 * mapped appears as zeros. Any lock but the capture's may be held, as for all functions of this file.
 */
void vb_capture_roce(const struct vb_capture_of *of, const struct vb_flow *flow, const struct vb_ip_fields *ip,
                     const struct iovec *iov, int n, size_t off, size_t len);

/* Records the packets of a message between programs of this host, with payload from these pieces. */
void vb_capture_message(const struct vb_capture_of *of, const struct vb_flow *flow, const struct vb_ip_fields *ip,
                        const struct vb_message *m, const struct iovec *iov, int n);

/* Records a datagram of queue pair 1: MADs of connection management. */
void vb_capture_mad(const struct vb_capture_of *of, const uint8_t src[VB_GID_LEN], const uint8_t dst[VB_GID_LEN],
                    const uint8_t *mad, size_t len);

/* Records the last len bytes that were sent on, or received from, a TCP socket: the first bytes of these pieces. errno
 * is kept. */
void vb_capture_tcp(enum vb_capture_direction direction, uint64_t time, int fd, const struct iovec *iov, int n,
                    size_t len, uint32_t qpn);

/* Makes a ring, and passes it to the collector at the other end of this socket. Returns 0, EBUSY if somebody captures
 * already, or an errno value. */
int vb_capture_attach(int sock);
void vb_capture_detach(void);
/* In a child of fork(), whose parent is captured. */
void vb_capture_in_child(void);

#endif
