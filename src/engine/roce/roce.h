// roce.h - RoCEv2 queue pairs as functions of packets and time: what the owner of sockets, clocks and memory calls
// follows: IBA volume 1, 9.6 to 9.9 (packets, requester, responder, UC, UD, errors); annex A17 (RoCEv2)
// SPDX-License-Identifier: MIT
#ifndef VB_ENGINE_ROCE_ROCE_H
#define VB_ENGINE_ROCE_ROCE_H

#include "engine/roce/stats.h"
#include "engine/roce/window.h"
#include "engine/work.h"
#include "frame/packet.h"

#define VB_ROCE_MAX_HEADER 48                                        /* a BTH and the longest extension headers: 40 */
#define VB_ROCE_PACKET_MAX (VB_ROCE_MAX_HEADER + VB_PAYLOAD_MAX + 3) /* without ICRC */
#define VB_ROCE_MAX_RESOURCES 128

enum vb_roce_type { VB_ROCE_RC, VB_ROCE_UC, VB_ROCE_UD };

const char *vb_work_status_text(enum vb_work_status status);

/*
 * How a queue pair reaches queues and memory. Called only from within the functions below, for one queue pair by one
 * thread at a time; none may call back into them. The payload that a function is given lies in the packet.
 */
struct vb_roce_ops {
	/* The next posted send leaves the queue. false: there is none. */
	bool (*next_send)(void *own, struct vb_work *rq);
	/* A send is done: once each, in posting order; a success that was not asked for too. */
	void (*complete_send)(void *own, const struct vb_work *rq, enum vb_work_status status);
	/* Copies len bytes of the request from offset on. false: no access, or the memory is not there. */
	bool (*fetch)(void *own, const struct vb_work *rq, uint32_t offset, void *dst, uint32_t len);
	/* Stores a read's data, or 8 bytes of an atomic's result in host order. */
	bool (*scatter)(void *own, const struct vb_work *rq, uint32_t offset, const void *bytes, uint32_t len);
	bool (*local)(void *own, const struct vb_work *rq);

	/* Takes the oldest receive; *room is what fits. false: there is none. */
	bool (*take_receive)(void *own, uint32_t *room);
	bool (*scatter_receive)(void *own, uint32_t offset, const void *bytes, uint32_t len);
	/* The receive that was taken is done. */
	void (*complete_receive)(void *own, const struct vb_receipt *receipt);
	/* Receives that are posted, or UINT32_MAX where nobody counts them (a shared receive queue). */
	uint32_t (*receives)(void *own);

	/* May the peer have [va, va + len)? Asked for the message, then again for each packet of it. */
	bool (*check)(void *own, uint32_t rkey, uint64_t va, uint32_t len, enum vb_right access);
	/* The same check, then the bytes. last: programs poll for the last byte, which has to be stored last. */
	bool (*write)(void *own, uint32_t rkey, uint64_t va, const void *bytes, uint32_t len, bool last);
	/* The same check, then copies the bytes. */
	bool (*read)(void *own, uint32_t rkey, uint64_t va, void *dst, uint32_t len);
	enum vb_memory_result (*atomic)(void *own, bool add, const struct vb_atomic *a, uint64_t *original);
	bool (*invalidate)(void *own, uint32_t rkey);
	/* Nothing is kept ahead any more, for the moment: the slots may become zeros. NULL: they stay as they are. */
	void (*ahead_unused)(void *own);

	/* The QP is in error. What it had taken of both queues has been completed; the rest is the owner's to flush. */
	void (*failed)(void *own, enum vb_work_event event);
};

struct vb_roce_config {
	uint8_t type; /* enum vb_roce_type */
	uint32_t mtu; /* 256 to 4096 */
	uint32_t qpn, dest_qpn, qkey;
	uint16_t pkey;
	struct vb_psn sq_psn, rq_psn;
	uint8_t timeout, retry_cnt, rnr_retry, min_rnr_timer;
	uint8_t max_rd_atomic, max_dest_rd_atomic;
	uint8_t access;      /* enum vb_right: what the QP allows at all */
	uint32_t max_window; /* packets; 0: VB_ROCE_WINDOW_MAX */
	uint32_t ack_delay;  /* ns that an acknowledgement may wait for company; 0: it goes with the next output */
	uint32_t ack_every;  /* packets that are asked for at the latest; 0: 32 */
	/* packets that cost the network little more than one: while many are under way it waits for so many; 0: 1 */
	uint32_t burst;
	uint64_t probe_min; /* ns: the earliest time to send again what was never answered; 0: 1 ms */
};

/* A read or atomic that the responder remembers: to be answered, or to be answered again. */
struct vb_roce_resource {
	bool atomic, answered; /* answered: in full, at least once */
	struct vb_psn psn;
	uint32_t packets, next; /* of the response; next to be sent */
	uint32_t from, end;     /* where this answer began: that packet is a FIRST or ONLY; where it ends */
	uint64_t va, original;
	uint32_t rkey, length, msn;
	uint32_t end_length; /* bytes up to the end of this answer */
};

#define VB_ROCE_TIMED 8 /* a power of two */

/* Does the peer keep what comes ahead of a missing packet? Found out at the first loss. */
enum vb_roce_keeps { VB_ROCE_KEEPS_UNKNOWN, VB_ROCE_KEEPS_TRIAL, VB_ROCE_KEEPS, VB_ROCE_KEEPS_NOT };

struct vb_roce_requester {
	bool started, paused; /* paused: SQD, no new message */
	uint64_t una, seq,
	        high;       /* packets: oldest that is not acknowledged, next to go out, highest that went out + 1 */
	uint64_t taken_seq; /* where the next message taken starts */
	uint32_t head, cur, tail; /* of sends[]: oldest, the one that seq is in, next to be taken */
	uint64_t receives;        /* messages taken that take a receive */
	uint64_t credit_limit;    /* of those, the last that may go */
	bool credits;             /* the peer counts them */
	uint32_t rd;              /* READ requests and atomics between una and seq that are not answered in full */
	uint32_t unasked;         /* packets since the last that asked for an acknowledgement */
	uint32_t burst_left;      /* of the burst that has begun */
	bool held;                /* packets that the window has room for wait for a burst */
	uint8_t retry_left, rnr_left, probes;
	uint64_t retry_at, probe_at, rnr_at; /* 0: not running */
	uint64_t back_una, back_at;          /* the last time that it went back: to where, when */
	bool back_echo;                      /* its first packet is still to go twice */
	uint64_t sure_from;                  /* packets from here on were never executed: their answer can be timed */
	struct vb_roce_timed {
		uint64_t seq, at;
		bool first;     /* it went out once only */
		bool guess;     /* not when it was timed, but the answer may be to an earlier one */
	} timed[VB_ROCE_TIMED]; /* packets whose answers are timed: timed_n from timed_0 on */
	uint8_t timed_0, timed_n;
	bool late; /* timers are looked at late, and once more */
	struct vb_roce_silence {
		uint64_t at;
		uint32_t packets, slow_start_below; /* of the window before */
	} silent;                                   /* the last time that nothing came back */
	uint32_t stale;    /* packets, about, that are in the network for nothing since it went back */
	uint8_t keeps;     /* enum vb_roce_keeps */
	uint8_t trials;    /* to find that out */
	uint8_t flat;      /* mends in a row that brought no more than what was sent again */
	bool mending;      /* una is missing at the peer; what is behind it is there or on its way */
	uint32_t mend_len; /* packets to send again at once */
	uint64_t mend_seq, mend_next, mend_end; /* of those: first, next to go, end */
	uint64_t mend_to;                       /* what had gone out when they went */
	uint64_t mend_at, mend_last_at;         /* when the first of them went, and the last so far */
	bool echoes, echo;                      /* some of those go twice; the next is such a second one */
	uint64_t mended_to;                     /* packets from here on never went again */
	bool mend_response;                     /* what is missing is not at the peer but its response */
	uint64_t executed;    /* packets before this one are at the peer; some responses may be missing */
	uint64_t got_to;      /* no response from here on has come */
	uint32_t uncounted;   /* packets that una has passed and the window does not know of yet */
	uint64_t progress_at; /* when una moved last */
	uint64_t cnp_seq;     /* UC: seq at the last pause, and one */
	uint64_t got[VB_ROCE_WINDOW_MAX / 64]; /* responses ahead of a missing one: a bit each */
	uint64_t pace_at, wake_at;             /* when the next packet may go; 0: nothing waits for it */
	struct vb_roce_window window;
};

struct vb_roce_inbound {
	bool active;           /* in the middle of a message */
	bool drop;             /* UC: until the next message */
	bool receive;          /* a receive is taken */
	uint8_t op;            /* enum vb_op */
	uint32_t offset, room; /* bytes of the message that are there; that the receive takes */
	uint64_t va;           /* RDMA write: of the next byte */
	uint32_t rkey, left;
};

/*
 * Where requests are kept that came before one that is missing: n slots (a power of two, 2^22 at most) of
 * VB_ROCE_SLOT(mtu) bytes, aligned as malloc does, of zeros at first. They are zeros again, as far as it matters, when
 * the QP has ended.
 */
struct vb_roce_ahead {
	uint8_t *slots;
	uint32_t n;
};

struct vb_roce_kept {
	struct vb_packet packet;
	bool used;
	bool disputed; /* two different packets claimed this PSN: neither is executed */
	uint8_t payload[];
};

#define VB_ROCE_SLOT(mtu) (sizeof(struct vb_roce_kept) + (mtu)) /* the mtu is a multiple of 256 */

enum vb_roce_ack_kind { VB_ROCE_NO_ACK, VB_ROCE_ACK, VB_ROCE_RNR, VB_ROCE_NAK };

/* UC: packets of somebody that the peer is not known by. He is believed after so many of them (uc.c). */
struct vb_roce_stranger {
	struct vb_psn next;
	uint16_t port;
	uint32_t came;
};

struct vb_roce_responder {
	struct vb_psn epsn;
	uint32_t msn;
	bool refused;          /* a NAK went out, or will; what is ahead is dropped until epsn comes */
	bool not_ready;        /* that NAK was for want of a receive */
	bool closed;           /* the last NAK is on its way; nothing is executed any more */
	uint8_t owed;          /* enum vb_roce_ack_kind */
	uint8_t nak;           /* enum vb_nak */
	struct vb_psn nak_psn; /* of RNR and NAK */
	uint32_t owed_for;     /* packets */
	uint64_t ack_at;       /* when it is due, 0: now */
	struct vb_psn told;    /* epsn, when the last one went out, or an answer that says as much */
	bool cnp;              /* a congestion notification is due */
	uint64_t cnp_after;
	struct vb_roce_inbound in;
	struct vb_roce_resource res[VB_ROCE_MAX_RESOURCES];
	uint32_t res_head, res_tail, unanswered;
	bool known; /* UC: a packet has come from that port */
	struct vb_roce_stranger stranger;
	uint32_t kept;         /* requests ahead of epsn */
	struct vb_psn kept_to; /* behind the last of them */
	uint64_t kept_until;   /* when those that are left are given up, and their memory; 0: there is none */
	bool vouched;          /* the peer has shown that what is kept at epsn is in flight */
	bool vouches;          /* it has done so once */
	uint64_t vouch_by;     /* it is waited for until then */
	struct vb_psn last;    /* the last PSN of the last request that came */
	uint16_t port;         /* the source port of the last packet that came in its turn */
};

/* Bounded, and all of it: the caller owns it and sends[]. */
struct vb_roce_qp {
	struct vb_roce_config cfg; /* changed by vb_roce_reconfigure only */
	const struct vb_roce_ops *ops;
	void *own;
	struct vb_work_sent *sends;
	uint32_t mask;
	bool dead, turn;
	bool again;     /* what is fetched or read goes out anew: the first time it was lost, or came changed */
	uint8_t passed; /* requests that went out before the acknowledgement that is due */
	struct vb_roce_requester rq;
	struct vb_roce_responder rs;
	struct vb_roce_ahead ahead;
	struct vb_roce_stats stats;
};

/* What came with a packet. */
struct vb_roce_from {
	bool congested;     /* marked by the network: ECN CE */
	uint16_t port;      /* the UDP source port: a peer has one for each queue pair (A17.4.3) */
	const uint8_t *grh; /* UD: 40 bytes, see vb_grh */
};

/* A packet to go out: header, payload, pad bytes of zeros, in one piece of header_len + payload_len + pad bytes. The
 * caller appends the ICRC. */
struct vb_roce_out {
	uint8_t *packet; /* the caller's, VB_ROCE_PACKET_MAX bytes: set before each vb_roce_output */
	uint32_t header_len, payload_len;
	uint8_t pad, opcode;
	struct vb_psn psn;
	void *ah; /* UD */
	/* Middle packets that may follow, and what they begin with: zeros before a series of vb_roce_output with
	 * nothing else of this queue pair in between. */
	struct vb_roce_run {
		uint32_t left;
		struct vb_roce_resource *answered; /* NULL: requests */
		uint8_t bth[VB_BTH_LEN];
	} run;
};

/* sends_len: a power of two, how many send requests may be under way. In RTR: it answers, and does not ask. */
void vb_roce_init(struct vb_roce_qp *qp, const struct vb_roce_config *cfg, const struct vb_roce_ops *ops, void *own,
                  struct vb_work_sent *sends, uint32_t sends_len);
/* After vb_roce_init, RC. Without it what comes ahead is dropped, and the peer has to send it again. */
void vb_roce_keep_ahead(struct vb_roce_qp *qp, const struct vb_roce_ahead *ahead);
/*
 * What ibv_modify_qp may change later: timeout, retry_cnt, rnr_retry, min_rnr_timer, access, max_rd_atomic,
 * max_dest_rd_atomic, pkey and qkey; sq_psn too before the first vb_roce_start. The rest of cfg is not looked at: begin
 * with a copy of qp->cfg. A timer that runs keeps its time, retries begin anew.
 */
void vb_roce_reconfigure(struct vb_roce_qp *qp, const struct vb_roce_config *cfg);
/* RTS. */
void vb_roce_start(struct vb_roce_qp *qp);
/* SQD and back. Drained when vb_roce_idle. */
void vb_roce_pause(struct vb_roce_qp *qp, bool paused);
bool vb_roce_idle(const struct vb_roce_qp *qp);
/* To ERR or RESET by the program: what was taken is flushed; no callback comes after. ops->failed is not called. */
void vb_roce_abort(struct vb_roce_qp *qp);

/* A packet that was decoded, whose ICRC is right and whose source is the peer (RC, UC). */
void vb_roce_input(struct vb_roce_qp *qp, const struct vb_packet *packet, const uint8_t *payload,
                   const struct vb_roce_from *from, uint64_t now);
/* Before that: is it what the peer would send now, or anybody's (UD)? */
bool vb_roce_expects(const struct vb_roce_qp *qp, const struct vb_packet *packet);
/*
 * The same for a packet that is most of all: BTH to ICRC, right and from the peer, not marked by the network. false: it
 * is no plain middle packet in its turn, and nothing was done; vb_roce_input is for it.
 */
bool vb_roce_input_middle(struct vb_roce_qp *qp, const uint8_t *bytes, size_t len, uint16_t port, uint64_t now);
/* The same for one that only has a BTH that can be read: nobody has its opcode. */
void vb_roce_input_unknown(struct vb_roce_qp *qp, const struct vb_bth *bth);
/* What comes for it piles up here: its peer is told, at most every 50 us (annex A17.9.3). RC's window sees to
 * itself. */
void vb_roce_congested(struct vb_roce_qp *qp, uint64_t now);
/* The next packet to send, until false. After each input, timeout, and after something was posted. */
bool vb_roce_output(struct vb_roce_qp *qp, struct vb_roce_out *out, uint64_t now);
/*
 * After a vb_roce_output that has left run.left: up to n more packets, full middle ones that follow it, each `apart`
 * bytes behind the one before, the first at out->packet. Only a BTH and payload each. How many there are; 0:
 * vb_roce_output.
 */
uint32_t vb_roce_output_more(struct vb_roce_qp *qp, struct vb_roce_out *out, uint32_t n, uint32_t apart);
/* UC, UD: all that was output has been handed to the network: its requests complete. */
void vb_roce_sent(struct vb_roce_qp *qp);
/* When vb_roce_timeout is to be called, then vb_roce_output; 0: never. For timers, and for packets that are paced. */
uint64_t vb_roce_deadline(const struct vb_roce_qp *qp);
void vb_roce_timeout(struct vb_roce_qp *qp, uint64_t now);
/* Is there nothing to send now, unless more was posted? false: perhaps there is. */
bool vb_roce_silent(const struct vb_roce_qp *qp, uint64_t now);
/* A delayed acknowledgement waits no longer: something goes to this peer anyway. */
void vb_roce_ack_now(struct vb_roce_qp *qp);
/* The same of all that has come, whether the peer has asked for that or not. */
void vb_roce_ack_all(struct vb_roce_qp *qp);

#endif
