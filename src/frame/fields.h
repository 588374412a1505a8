// fields.h - widths and special values of fields in InfiniBand's headers
// follows: IBA annex A17 (RoCEv2), A17.3.2; volume 1, 9.2 (base transport header), 9.3 (AETH), 10.2.5 (Q_Keys), 10.5.1 (multicast), 10.9.1 (P_Keys)
// SPDX-License-Identifier: MIT
#ifndef VB_FRAME_FIELDS_H
#define VB_FRAME_FIELDS_H

/* RoCEv2's UDP destination port. */
#define VB_ROCE_PORT 4791

/* A queue pair number has 24 bits. */
#define VB_QPN_MASK 0xffffffu
/* The destination queue pair of every multicast packet. */
#define VB_QPN_MULTICAST 0xffffffu

/* A packet sequence number has 24 bits. PSNs in the half of the range behind the expected one are duplicates. */
#define VB_PSN_MASK 0xffffffu
#define VB_PSN_HALF 0x800000u

/* A message sequence number of an acknowledgement has 24 bits. */
#define VB_MSN_MASK 0xffffffu

/* The only partition: its members are full members. */
#define VB_DEFAULT_PKEY 0xffff

/* The vendor id of enhanced connection establishment has 24 bits. */
#define VB_VENDOR_ID_MASK 0xffffffu

/* A Q_Key with this bit in a work request stands for the Q_Key of the sending queue pair. */
#define VB_QKEY_CONTROLLED 0x80000000u

#endif
