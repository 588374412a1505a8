// limits.h - limits of one adapter: reported by ibv_query_device, enforced when objects are made
// follows: IBA C11-5, C11-7 (query HCA)
// SPDX-License-Identifier: MIT
#ifndef VB_CORE_LIMITS_H
#define VB_CORE_LIMITS_H

#define VB_MAX_QP 15360
#define VB_MAX_QP_WR 16384
#define VB_MAX_SGE 32
#define VB_MAX_INLINE 1024
#define VB_MAX_QP_RD_ATOM 16
#define VB_MAX_CQ 65536
#define VB_MAX_COMP_CNTR 65536
#define VB_MAX_CQE 4194304
/* What the fields of struct ibv_moderate_cq can say. The period is in us. */
#define VB_MAX_CQ_COUNT 65535
#define VB_MAX_CQ_PERIOD 65535
#define VB_MAX_MR 262143 /* regions and windows together */
#define VB_MAX_MW VB_MAX_MR
#define VB_MAX_MR_SIZE (~0ull)
#define VB_MAX_PD 65535
#define VB_MAX_AH 1000000
#define VB_MAX_SRQ 65535
#define VB_MAX_SRQ_WR 16384
#define VB_MAX_SRQ_SGE 32
#define VB_MAX_WQ 8192
#define VB_MAX_RWQ_TABLES 4096
#define VB_MAX_LOG_RWQ_TABLE 11
/* Tag matching. The longest request of a rendezvous fits in a packet. */
#define VB_MAX_TAGS 1024
#define VB_MAX_TAG_OPS 16384
#define VB_MAX_TAG_SGE 8
#define VB_MAX_RNDV_LEN 64
#define VB_MAX_MSG_SZ 0x40000000u
/* Segmentation of TCP: payload of a request, and its headers. */
#define VB_MAX_TSO (1u << 18)
#define VB_MAX_TSO_HEADER 1024u
/* kbit/s: the limits that a queue pair's rate may have. The higher one is that of the fastest port that is reported. */
#define VB_MIN_RATE 1
#define VB_MAX_RATE 400000000u
/* Device memory of an adapter, in each program. */
#define VB_MAX_DM_SIZE (1u << 20)
#define VB_MAX_DM_LOG_ALIGN 12
/* Groups: what the kernel lets one socket join (net.ipv4.igmp_max_memberships), because a program has one. Queue pairs
 * of a group: as Linux's rxe. */
#define VB_MAX_MCAST_GRP 20
#define VB_MAX_MCAST_QP_ATTACH 56
#define VB_MAX_TOTAL_MCAST_QP_ATTACH (VB_MAX_MCAST_GRP * VB_MAX_MCAST_QP_ATTACH)

/* Every power of two from 4 KiB on. Memory is not pinned, so the page size has no effect. */
#define VB_PAGE_SIZE_CAP 0xfffff000ull
/* 4.096 us * 2^15 = 134 ms, because a program that is descheduled answers late. */
#define VB_LOCAL_CA_ACK_DELAY 15

#define VB_PORTS 1
#define VB_GID_TBL_LEN 128
#define VB_PKEY_TBL_LEN 1

/* Completion timestamps are CLOCK_MONOTONIC nanoseconds: a clock of 1 GHz. */
#define VB_CORE_CLOCK_KHZ 1000000

/* rxe's own number; 0x02c9 would switch on Mellanox quirks in tools and tests. */
#define VB_VENDOR_ID 0xffffff
#define VB_VENDOR_PART_ID 0
#define VB_HW_VER 0
#ifndef VB_VERSION
#define VB_VERSION "0.1.0"
#endif

#endif
