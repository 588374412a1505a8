// work.h - work requests and their results, for the RoCE and iWARP engines
// follows: IBA volume 1, 10.7 (work requests), 11.4 (operations), 11.6 (results); RFC 5040, 6
// SPDX-License-Identifier: MIT
#ifndef VB_ENGINE_WORK_H
#define VB_ENGINE_WORK_H

#include <stdbool.h>
#include <stdint.h>

#include "engine/refusal.h"

#define VB_WORK_MAX_MESSAGE 0x80000000u /* bytes: IBA C9-94 */

/* X(name, text): names are those of ibv_wc_status without IBV_WC_. */
#define VB_WORK_STATUSES(X)                              \
	X(SUCCESS, "success")                            \
	X(LOC_LEN_ERR, "message too long")               \
	X(LOC_QP_OP_ERR, "operation not supported")      \
	X(LOC_PROT_ERR, "local protection")              \
	X(WR_FLUSH_ERR, "flushed")                       \
	X(MW_BIND_ERR, "memory management operation")    \
	X(LOC_ACCESS_ERR, "local access")                \
	X(REM_INV_REQ_ERR, "the peer: invalid request")  \
	X(REM_ACCESS_ERR, "the peer: no access")         \
	X(REM_OP_ERR, "the peer: cannot execute")        \
	X(RETRY_EXC_ERR, "no answer, retries are spent") \
	X(RNR_RETRY_EXC_ERR, "no receive, retries are spent")

enum vb_work_status {
#define X(name, text) VB_WORK_##name,
	VB_WORK_STATUSES(X)
#undef X
};

enum vb_verb {
	VB_VERB_SEND,
	VB_VERB_WRITE,
	VB_VERB_READ,
	VB_VERB_CMP_SWAP,
	VB_VERB_FETCH_ADD,
	VB_VERB_LOCAL_INV,    /* LOCAL_INV, BIND_MW: executed by ops->local, in order */
	VB_VERB_FLUSH,        /* length: of its range; imm: its FETH */
	VB_VERB_ATOMIC_WRITE, /* swap_add: its 8 bytes */
};

/* The result of ops->local. */
enum vb_local {
	VB_LOCAL_FAILED,
	VB_LOCAL_DONE,
	VB_LOCAL_LATER, /* the owner calls for output again when it is time to try again */
};

enum {
	VB_WORK_SOLICITED = 1 << 0,
	VB_WORK_FENCE = 1 << 1,
	VB_WORK_IMM = 1 << 2,
	VB_WORK_INV = 1 << 3,
};

/* A send work request, filled in by the queue's owner. */
struct vb_work {
	uint64_t cookie; /* the owner's */
	uint64_t remote_addr, compare, swap_add;
	uint32_t rkey, imm; /* imm: in host order, or the key to invalidate */
	uint32_t length;
	uint8_t verb;  /* enum vb_verb */
	uint8_t flags; /* VB_WORK_SOLICITED and so on */
	void *ah;      /* UD: copied to struct vb_roce_out */
	uint32_t ud_qpn, ud_qkey;
	uint32_t srqn; /* XRC */
};

/* A taken request, until it completes. Packets are counted from the QP's start, without wrap-around. */
struct vb_work_sent {
	struct vb_work work;
	uint64_t seq;      /* number of its first packet; the PSN is cfg.sq_psn + seq. iWARP: its MSN */
	uint64_t receives; /* number of messages up to this one that consume a receive */
	uint32_t packets;  /* number of PSNs; 0 for VB_VERB_LOCAL_INV */
	uint32_t chunk;    /* reads: response packets per READ request, fixed when the first is sent */
	uint8_t middle;    /* opcode of its middle packets */
	uint8_t status;    /* a local error, reported in order */
	bool done;         /* VB_VERB_LOCAL_INV: executed */
};

/* The result of a completed receive. */
struct vb_receipt {
	enum vb_work_status status;
	bool write_imm; /* for an RDMA write with immediate */
	bool solicited;
	bool ipv4;  /* UD: the header before the data is IPv4 */
	bool local; /* UD on an InfiniBand link: there was no GRH */
	uint8_t sl; /* so too, as the next */
	uint16_t slid, dlid;
	uint8_t flags; /* VB_WORK_IMM, VB_WORK_INV */
	uint32_t imm;  /* or the key that was invalidated */
	uint32_t length, src_qpn;
};

enum vb_right {
	VB_RIGHT_WRITE = 1,
	VB_RIGHT_READ = 2,
	VB_RIGHT_ATOMIC = 4,
	VB_RIGHT_FLUSH_GLOBAL = 8, /* shifted to the right by VB_RIGHT_FLUSH_SHIFT: the placement type */
	VB_RIGHT_FLUSH_PERSISTENT = 16,
};
#define VB_RIGHT_FLUSH_SHIFT 3

enum vb_work_event {
	VB_WORK_EVENT_NONE,
	VB_WORK_EVENT_SQ,     /* a send failed; its completion reports it */
	VB_WORK_EVENT_REQ,    /* the peer sent an invalid request: IBV_EVENT_QP_REQ_ERR */
	VB_WORK_EVENT_ACCESS, /* the peer asked for memory without the right to it: IBV_EVENT_QP_ACCESS_ERR */
	VB_WORK_EVENT_RQ,     /* a receive failed; its completion reports it */
};

/* The rows of VB_REFUSALS, for the RoCE and iWARP engines. */
static const struct vb_refused {
	enum vb_work_status receive;
	enum vb_work_event event;
} vb_refused_rows[] = {
#define X(name, receive, event) [VB_REFUSE_##name] = {VB_WORK_##receive, VB_WORK_EVENT_##event},
        VB_REFUSALS(X)
#undef X
};

enum vb_memory_result { VB_MEMORY_OK, VB_MEMORY_DENIED, VB_MEMORY_MISALIGNED };

#endif
