// fault.h - fault injection in RoCE packets: holds packets, inverts bits
// see: docs/faults.md
// SPDX-License-Identifier: MIT
#ifndef VB_PATH_ROCE_FAULT_H
#define VB_PATH_ROCE_FAULT_H

#include "fault/set.h"
#include "fault/timer.h"
#include "path/roce/roce.h"

/* Packets that are held, of one sender or of the receiver. Guarded by its lock. */
struct vb_roce_fault;

/* A packet that was held. */
struct vb_roce_held {
	struct vb_roce_addr to;      /* of a sender */
	struct vb_roce_arrival from; /* of the receiver */
	uint32_t len;
	bool corrupt; /* invert a bit when the ICRC is there */
	uint32_t random;
};

struct vb_roce_fault *vb_roce_fault_new(void);
void vb_roce_fault_free(struct vb_roce_fault *f);

/* Asks the rules about a packet without ICRC that is to be sent. */
void vb_roce_fault_tx(const struct vb_qp *qp, const struct vb_roce_addr *to, const uint8_t *packet, size_t len,
                      struct vb_fault_verdict *v);
/* Holds the packet if the verdict says so. Returns false if it does not. */
bool vb_roce_fault_hold(struct vb_roce_fault *f, const uint8_t *packet, size_t len, const struct vb_roce_addr *to,
                        const struct vb_fault_verdict *v);
/* Copies out one packet whose time has come. False if there is none. */
bool vb_roce_fault_release(struct vb_roce_fault *f, uint8_t *packet, struct vb_roce_held *held);
/* When the next held packet is due; ns, 0: none is held. */
uint64_t vb_roce_fault_due(const struct vb_roce_fault *f);
/* Inverts one bit of the packet that its ICRC covers, or of the ICRC, which is behind len bytes. */
void vb_roce_fault_flip(uint8_t *packet, size_t len, uint32_t random);
/* Inverts one bit of the payload, or of the last header if there is none. The ICRC is computed afterwards. */
void vb_roce_fault_flip_payload(uint8_t *packet, size_t len, uint32_t random);

/* Asks the rules about a packet of len bytes, with its ICRC, that has arrived. Returns how often it is to be processed
 * now, 0 to 2. Under progress. */
unsigned vb_roce_fault_rx(struct vb_node *node, struct vb_roce_fault *f, const struct vb_roce_arrival *a,
                          uint8_t *packet, size_t len);

#endif
