// roce.h - RoCEv2 queue pairs as functions of packets and time; the caller has the sockets, the clock and the memory
// follows: IBA volume 1, 9.6 to 9.9 (packets, requester, responder, UC, UD, errors); annexes A14 (XRC), A17 (RoCEv2)
// SPDX-License-Identifier: MIT
#ifndef VB_ENGINE_ROCE_ROCE_H
#define VB_ENGINE_ROCE_ROCE_H

#include "engine/roce/stats.h"
#include "engine/roce/window.h"
#include "engine/work.h"
#include "frame/packet.h"

#define VB_ROCE_MAX_HEADER 48                                        /* a BTH and the longest extension headers: 44 */
#define VB_ROCE_PACKET_MAX (VB_ROCE_MAX_HEADER + VB_PAYLOAD_MAX + 3) /* without ICRC */
#define VB_ROCE_MAX_RESOURCES 128

enum vb_roce_type { VB_ROCE_RC, VB_ROCE_UC, VB_ROCE_UD };
/* Which end of an XRC connection is a queue pair of type VB_ROCE_RC? An initiator requests only, a target responds only. */
enum vb_roce_xrc { VB_ROCE_XRC_NONE, VB_ROCE_XRC_INITIATOR, VB_ROCE_XRC_TARGET };

/* Where is the SRQ that a request names? THERE: the owner of the queue pair passes the request on. BUSY: it cannot do so
 * now, and calls vb_roce_passed_again later. */
enum vb_roce_srq { VB_ROCE_SRQ_NONE, VB_ROCE_SRQ_HERE, VB_ROCE_SRQ_THERE, VB_ROCE_SRQ_BUSY };
/* WAIT: the data is not here yet. */
enum vb_roce_data { VB_ROCE_DATA, VB_ROCE_WAIT, VB_ROCE_GONE };

struct vb_roce_resource;
struct vb_roce_inbound;

const char *vb_work_status_text(enum vb_work_status status);

/*
 * Callbacks for queues and memory. They are called only from the functions below, for one queue pair by one thread at a
 * time, and must not call those functions. Payload arguments point into the packet.
 */
struct vb_roce_ops {
	/* Takes the next posted send from the queue. Returns false if there is none. */
	bool (*next_send)(void *own, struct vb_work *work);
	/* A send has completed. Called once for each, in posting order, unsignaled successes included. */
	void (*complete_send)(void *own, const struct vb_work *work, enum vb_work_status status);
	/* Provides len bytes of the request from offset on: copies them to dst, or notes that they are sent from where
	 * they are. Returns false if access is denied, or the memory is not mapped. */
	bool (*fetch)(void *own, const struct vb_work *work, uint32_t offset, void *dst, uint32_t len);
	/* Stores a read's data, or 8 bytes of an atomic's result in host order. */
	bool (*scatter)(void *own, const struct vb_work *work, uint32_t offset, const void *bytes, uint32_t len);
	/* Invalidates work->imm. Returns false if there is no such key. */
	enum vb_local (*local)(void *own, const struct vb_work *work);

	/* XRC target: the next calls, down to invalidate, are for a request that names this SRQ. answer: for the response
	 * to an earlier READ that named it; then only read is called. */
	enum vb_roce_srq (*select_srq)(void *own, uint32_t srqn, bool answer);
	/* Passes a packet on whose SRQ is THERE. psn, msn: before it. Returns false if it cannot do so now: as BUSY. */
	bool (*pass)(void *own, const struct vb_packet *p, const uint8_t *payload, const struct vb_roce_inbound *in,
	             struct vb_psn psn, uint32_t msn);
	/* PSN and MSN of the oldest packet that was passed on and is not executed yet. False: there is none. */
	bool (*oldest_passed)(void *own, struct vb_psn *psn, uint32_t *msn);
	/* As read, for a READ that names an SRQ that is THERE. */
	enum vb_roce_data (*read_there)(void *own, const struct vb_roce_resource *r, uint32_t offset, void *dst,
	                                uint32_t len);
	/* Takes the oldest receive; *room is its size. Returns false if there is none. */
	bool (*take_receive)(void *own, uint32_t *room);
	/* The same for a SEND if cfg.tagged: the receive may depend on the payload of its first packet. single: it is the
	 * only one. */
	bool (*take_tagged)(void *own, const uint8_t *payload, uint32_t len, bool single, uint32_t *room);
	bool (*scatter_receive)(void *own, uint32_t offset, const void *bytes, uint32_t len);
	/* The taken receive has completed. */
	void (*complete_receive)(void *own, const struct vb_receipt *receipt);
	/* The number of posted receives, or UINT32_MAX if they are not counted (a shared receive queue). */
	uint32_t (*receives)(void *own);

	/* May the peer access [va, va + len)? Called once for the whole message; write and read check each packet. */
	bool (*check)(void *own, uint32_t rkey, uint64_t va, uint32_t len, enum vb_right access);
	/* The same check, then stores the bytes. last: stores the last byte last, because programs poll for it. */
	bool (*write)(void *own, uint32_t rkey, uint64_t va, const void *bytes, uint32_t len, bool last);
	/* The same check, then copies the bytes. */
	bool (*read)(void *own, uint32_t rkey, uint64_t va, void *dst, uint32_t len);
	enum vb_memory_result (*atomic)(void *own, bool add, const struct vb_atomic *a, uint64_t *original);
	/* Stores 8 bytes, those of the value in memory, at an aligned address with one store. */
	enum vb_memory_result (*atomic_write)(void *own, uint32_t rkey, uint64_t va, uint64_t value);
	/* Makes sure of what was stored before in the range, or in the region. Returns false if access is denied. */
	bool (*flush)(void *own, const struct vb_reth *range, struct vb_feth flush);
	bool (*invalidate)(void *own, uint32_t rkey);
	/* No packet is kept ahead: the owner may zero the slots. NULL: they stay as they are. */
	void (*ahead_unused)(void *own);

	/* The QP has failed. The requests that it had taken from both queues have completed; the owner flushes the
	 * others. */
	void (*failed)(void *own, enum vb_work_event event);
};

struct vb_roce_config {
	uint8_t type; /* enum vb_roce_type */
	uint8_t xrc;  /* enum vb_roce_xrc */
	bool tagged;  /* receives are chosen by ops->take_tagged */
	uint32_t mtu; /* 256 to 4096 */
	uint32_t qpn, dest_qpn, qkey;
	uint16_t pkey;
	struct vb_psn sq_psn, rq_psn;
	uint8_t timeout, retry_cnt, rnr_retry, min_rnr_timer;
	uint8_t max_rd_atomic, max_dest_rd_atomic;
	uint8_t access;      /* enum vb_right: access that the QP allows */
	uint32_t max_window; /* packets; 0: VB_ROCE_WINDOW_MAX */
	uint32_t ack_delay;  /* ns that an acknowledgement may wait for others; 0: it is sent with the next output */
	uint32_t ack_every;  /* packets after which an acknowledgement is sent at the latest; 0: 32 */
	/* number of packets that cost little more to send than one: while many are in flight, the sender waits until
	 * there is room for a burst; 0: 1 */
	uint32_t burst;
	uint64_t probe_min; /* ns: the earliest repetition of an unanswered packet; 0: 1 ms */
};

/* A read, atomic, flush or atomic write of the peer, stored to answer it and to repeat the answer. The answers to the
 * last two are those to reads of 0 bytes. */
struct vb_roce_resource {
	uint8_t placed;        /* VB_OP_FLUSH, VB_OP_ATOMIC_WRITE, or 0 */
	bool atomic, answered; /* answered: the whole response was sent at least once */
	struct vb_psn psn;
	uint32_t packets, next; /* packets of the response; the next one to send */
	uint32_t from, end;     /* the current answer: its first packet (FIRST or ONLY), and its end */
	uint64_t va, original;
	uint32_t rkey, length, msn;
	uint32_t srqn;       /* XRC */
	bool waits;          /* it was passed on, and is not executed yet; not a read */
	uint32_t end_length; /* bytes of the response up to the end of the current answer */
};

#define VB_ROCE_TIMED 8 /* a power of two */

/* Does the peer keep packets ahead of a missing one? The first loss shows it. */
enum vb_roce_keeps { VB_ROCE_KEEPS_UNKNOWN, VB_ROCE_KEEPS_TRIAL, VB_ROCE_KEEPS, VB_ROCE_KEEPS_NOT };

struct vb_roce_requester {
	bool started, paused;     /* paused: SQD, no new message */
	uint64_t una, seq, high;  /* packets: the oldest unacknowledged, the next to send, the highest sent + 1 */
	uint64_t taken_seq;       /* the first packet of the next message to take */
	uint32_t head, cur, tail; /* of sends[]: the oldest, the one that contains seq, the next to take */
	uint64_t receives;        /* taken messages that consume a receive */
	uint64_t credit_limit;    /* the last of those that may be sent */
	bool credits;             /* the peer sends credits */
	uint32_t rd;              /* READ requests and atomics between una and seq that are not fully answered */
	uint32_t unasked;         /* packets since the last request for an acknowledgement */
	uint32_t burst_left;      /* of the burst that has begun */
	bool waits_for_burst;     /* packets wait for room for a burst */
	uint8_t retry_left, rnr_left, probes;
	uint64_t retry_at, probe_at, rnr_at; /* 0: not running */
	uint64_t back_una, back_at;          /* the last time that the requester went back: to which packet, when */
	bool back_echo;                      /* the first packet after going back must still be sent twice */
	uint64_t sure_from; /* packets from this one on were not executed before, so their answers can be timed */
	struct vb_roce_timed {
		uint64_t seq, at;
		bool first;     /* the packet was sent only once */
		bool guess;     /* the answer may belong to an earlier copy */
	} timed[VB_ROCE_TIMED]; /* packets whose answers are timed: timed_n from timed_0 on */
	uint8_t timed_0, timed_n;
	bool late; /* a timer was read late, and was postponed once */
	struct vb_roce_silence {
		uint64_t at;
		uint32_t packets, slow_start_below; /* the window before that */
	} silent;                                   /* the last retry after which nothing was answered yet */
	uint32_t stale;                             /* estimate of useless packets in flight after going back */
	uint8_t keeps;                              /* enum vb_roce_keeps */
	uint8_t trials;                             /* trials to find that out */
	uint8_t flat;      /* consecutive mends after which only the repeated packets were acknowledged */
	bool mending;      /* una is missing at the peer; packets behind it have arrived or are in flight */
	uint32_t mend_len; /* packets to repeat in one mend */
	uint64_t mend_seq, mend_next, mend_end; /* the packets of this mend: first, next, end */
	uint64_t mend_to;                       /* end of the packets sent before this mend */
	uint64_t mend_at, mend_last_at;         /* when the first packet of this mend was sent, and the last */
	bool echoes, echo;                      /* some packets are sent twice; the next one is a second copy */
	uint64_t mended_to;                     /* packets from this one on were never repeated */
	bool mend_response;                     /* the response is missing here, not the request at the peer */
	uint64_t executed;    /* the peer has executed packets before this one; some responses may be missing */
	uint64_t got_to;      /* no response from this packet on has arrived */
	uint32_t uncounted;   /* acknowledged packets that the window has not counted yet */
	uint64_t progress_at; /* when una last moved */
	uint64_t cnp_seq;     /* UC: seq at the last pause, plus one */
	uint64_t got[VB_ROCE_WINDOW_MAX / 64]; /* responses ahead of a missing one, one bit each */
	uint64_t pace_at, wake_at;             /* when the next packet may be sent; timer for that, or 0 */
	struct vb_roce_window window;
};

struct vb_roce_inbound {
	bool active;           /* in the middle of a message */
	bool drop;             /* UC: drop packets until the next message */
	bool receive;          /* a receive is taken */
	uint8_t op;            /* enum vb_op */
	uint32_t offset, room; /* bytes of the message that have arrived; size of the receive */
	uint64_t va;           /* RDMA write: address of the next byte */
	uint32_t rkey, left;
	uint32_t srqn;  /* XRC: all packets of a message name the same */
	uint32_t whole; /* RDMA write: its length */
};

/*
 * Memory for requests that arrive ahead of a missing one: n slots (a power of two, at most 2^22) of VB_ROCE_SLOT(mtu)
 * bytes, aligned as by malloc and zero at first.
 */
struct vb_roce_ahead {
	uint8_t *slots;
	uint32_t n;
};

struct vb_roce_kept {
	struct vb_packet packet;
	bool used;
	bool disputed; /* two different packets with this PSN have arrived: neither is executed */
	uint8_t payload[];
};

#define VB_ROCE_SLOT(mtu) (sizeof(struct vb_roce_kept) + (mtu)) /* the mtu is a multiple of 256 */

enum vb_roce_ack_kind { VB_ROCE_NO_ACK, VB_ROCE_ACK, VB_ROCE_RNR, VB_ROCE_NAK };

/* UC: a stream of packets from an unknown source port. After enough packets it counts as the peer's (uc.c). */
struct vb_roce_stranger {
	struct vb_psn next;
	uint16_t port;
	uint32_t came;
};

struct vb_roce_responder {
	struct vb_psn epsn;
	uint32_t msn;
	bool refused;           /* a NAK was sent, or will be; packets ahead are dropped until epsn arrives */
	bool not_ready;         /* that NAK is an RNR NAK */
	bool closed;            /* the last NAK was sent or will be; nothing is executed any more */
	uint8_t owed;           /* enum vb_roce_ack_kind */
	uint8_t nak;            /* enum vb_nak */
	struct vb_psn nak_psn;  /* of RNR and NAK */
	uint32_t owed_for;      /* packets */
	uint64_t ack_at;        /* when it is due; 0: now */
	struct vb_psn acked_to; /* epsn of the last acknowledgement, or of an answer that acknowledges as much */
	bool cnp;               /* a congestion notification is due */
	uint64_t cnp_after;
	struct vb_roce_inbound in;
	struct vb_roce_resource res[VB_ROCE_MAX_RESOURCES];
	uint32_t res_head, res_tail, unanswered;
	bool known; /* UC: port is valid, because a packet has arrived */
	struct vb_roce_stranger stranger;
	uint32_t kept;         /* requests ahead of epsn */
	struct vb_psn kept_to; /* the PSN behind the last of them */
	uint64_t kept_until;   /* when kept packets are dropped and their memory is freed; 0: none was kept */
	bool vouched;          /* the peer has vouched for the kept packet with PSN epsn */
	bool vouches;          /* the peer has vouched at least once */
	uint64_t vouch_by;     /* until then the peer may vouch */
	struct vb_psn last;    /* the last PSN of the last request that arrived */
	uint16_t port;         /* the source port of the last packet in order */
	/* XRC: `in` before the packet with this PSN, which was passed on and may have to be repeated alone */
	bool kept_in;
	struct vb_psn in_psn;
	struct vb_roce_inbound in_before;
};

/* A queue pair, of fixed size. The caller owns it and sends[]. */
struct vb_roce_qp {
	struct vb_roce_config cfg; /* changed by vb_roce_reconfigure only */
	const struct vb_roce_ops *ops;
	void *own;
	struct vb_work_sent *sends;
	uint32_t mask;
	bool dead, turn;
	bool again;     /* for fetch and read: the data is sent again, because the first packet was lost or damaged */
	uint8_t passed; /* requests sent since an acknowledgement became due */
	struct vb_roce_requester rq;
	struct vb_roce_responder rs;
	struct vb_roce_ahead ahead;
	struct vb_roce_stats stats;
};

/* Properties of a received packet that are not in its BTH to ICRC. */
struct vb_roce_from {
	bool congested;      /* marked by the network: ECN CE */
	uint16_t port;       /* the UDP source port: a peer has one for each queue pair (A17.4.3) */
	const uint8_t *grh;  /* UD: VB_GRH_LEN bytes, see vb_grh */
	uint16_t slid, dlid; /* UD on an InfiniBand link, as the next */
	uint8_t sl;
	bool local; /* it has no GRH */
};

/* A packet to send: header_len + payload_len + pad contiguous bytes. The caller appends the ICRC. */
struct vb_roce_out {
	uint8_t *packet; /* the caller's memory, VB_ROCE_PACKET_MAX bytes; set before each vb_roce_output */
	uint32_t header_len, payload_len;
	uint8_t pad, opcode;
	struct vb_psn psn;
	void *ah; /* UD */
	/* Middle packets that may follow, and their header. The caller zeroes this before a series of vb_roce_output
	 * calls. During the series it makes no other calls for this queue pair. */
	struct vb_roce_run {
		uint32_t left;
		struct vb_roce_resource *answered; /* the packets are of this response; NULL: of a request */
		uint8_t bth[VB_BTH_LEN];
	} run;
};

/* sends_len: a power of two, the most send requests that may be outstanding. The QP starts in RTR: it responds, but
 * does not send requests. */
void vb_roce_init(struct vb_roce_qp *qp, const struct vb_roce_config *cfg, const struct vb_roce_ops *ops, void *own,
                  struct vb_work_sent *sends, uint32_t sends_len);
/* Called after vb_roce_init, for RC. Without this call packets ahead are dropped, and the peer must send them again. */
void vb_roce_keep_ahead(struct vb_roce_qp *qp, const struct vb_roce_ahead *ahead);
/*
 * Changes the attributes that ibv_modify_qp may change later: timeout, retry_cnt, rnr_retry, min_rnr_timer, access,
 * max_rd_atomic, max_dest_rd_atomic, pkey, qkey; also sq_psn before the first vb_roce_start. Other members of cfg are
 * ignored. A running timer keeps its time; the retry counts start again.
 */
void vb_roce_reconfigure(struct vb_roce_qp *qp, const struct vb_roce_config *cfg);
/* Goes to RTS. */
void vb_roce_start(struct vb_roce_qp *qp);
/* For SQD, and back to RTS. The send queue has drained when vb_roce_idle is true. */
void vb_roce_pause(struct vb_roce_qp *qp, bool paused);
bool vb_roce_idle(const struct vb_roce_qp *qp);
/* Called when the program takes the QP to ERR or RESET: flushes the taken requests. No other callback follows, and
 * ops->failed is not called. */
void vb_roce_abort(struct vb_roce_qp *qp);

/* Processes a decoded packet whose ICRC is correct and whose source address is the peer's (RC, UC). */
void vb_roce_input(struct vb_roce_qp *qp, const struct vb_packet *packet, const uint8_t *payload,
                   const struct vb_roce_from *from, uint64_t now);
/* XRC: what has come of the packets that ops->pass passed on (passed.c). Output may be due afterwards. */

/* A request was dropped because its SRQ was BUSY, or could not be passed on: the peer may send it again. */
void vb_roce_passed_again(struct vb_roce_qp *qp);
/* More of them were executed: ops->oldest_passed says which. */
void vb_roce_passed_executed(struct vb_roce_qp *qp, uint64_t now);
/* The request with this PSN is executed. value: the result of an atomic. */
void vb_roce_passed_result(struct vb_roce_qp *qp, struct vb_psn psn, uint64_t value);
/* The packet with this PSN found no receive. It, and all behind it, must come again. */
void vb_roce_passed_rnr(struct vb_roce_qp *qp, struct vb_psn psn, uint32_t msn);
/* The request with this PSN was refused. */
void vb_roce_passed_refused(struct vb_roce_qp *qp, enum vb_refusal why, struct vb_psn psn);
/* The PSN of the oldest response that is not sent yet. */
struct vb_psn vb_roce_unanswered_psn(struct vb_roce_qp *qp);
/* Called before vb_roce_input: would the peer send this packet now? UD: always true. */
bool vb_roce_expects(const struct vb_roce_qp *qp, const struct vb_packet *packet);
/*
 * A shortcut for the most frequent packets: bytes from BTH to a correct ICRC, from the peer, without congestion mark.
 * Returns false and does nothing if this is not a plain middle packet in order. Then call vb_roce_input.
 */
bool vb_roce_input_middle(struct vb_roce_qp *qp, const uint8_t *bytes, size_t len, uint16_t port, uint64_t now);
/* The same for a packet with a reserved opcode, of which only the BTH can be decoded. */
void vb_roce_input_unknown(struct vb_roce_qp *qp, const struct vb_bth *bth);
/* Called when many packets for this QP wait in a socket: sends the peer a congestion notification, at most every 50 us
 * (annex A17.9.3). Not needed for RC, which has a window. */
void vb_roce_congested(struct vb_roce_qp *qp, uint64_t now);
/* Writes the next packet to send. Call it until it returns false, after each input and timeout, and after posting. */
bool vb_roce_output(struct vb_roce_qp *qp, struct vb_roce_out *out, uint64_t now);
/* The same for a packet behind which no request follows soon: it asks for an acknowledgement, and no run begins. */
bool vb_roce_output_single(struct vb_roce_qp *qp, struct vb_roce_out *out, uint64_t now);
/* The same without requests: what the peer waits for. */
bool vb_roce_output_answer(struct vb_roce_qp *qp, struct vb_roce_out *out, uint64_t now);
/* No request may be sent before `until`. If one is to be repeated, no retry is spent meanwhile. Call it before
 * vb_roce_deadline. */
void vb_roce_repeat_waits(struct vb_roce_qp *qp, uint64_t until);
/* Is there a request that has not completed, or one that may be taken? waits: the queue has one. */
static inline bool vb_roce_has_requests(const struct vb_roce_qp *qp, bool waits)
{
	return waits || qp->rq.head != qp->rq.tail;
}
/*
 * After a vb_roce_output that set run.left: writes up to n full middle packets that follow it, the first at
 * out->packet, each `apart` bytes behind the previous one. Each is a BTH and payload. Returns how many; 0: call
 * vb_roce_output.
 */
uint32_t vb_roce_output_more(struct vb_roce_qp *qp, struct vb_roce_out *out, uint32_t n, uint32_t apart);
/* UC, UD: called when all output has been given to the network. Completes its requests. */
void vb_roce_sent(struct vb_roce_qp *qp);
/* The time to call vb_roce_timeout and then vb_roce_output, for timers and paced packets; 0: never. */
uint64_t vb_roce_deadline(const struct vb_roce_qp *qp);
void vb_roce_timeout(struct vb_roce_qp *qp, uint64_t now);
/* Is there certainly nothing to send now, except requests that were not taken yet? */
bool vb_roce_silent(const struct vb_roce_qp *qp, uint64_t now);
/* Ends the delay of an acknowledgement, because another packet is being sent to this peer anyway. */
void vb_roce_ack_now(struct vb_roce_qp *qp);
/* Acknowledges all that has arrived, whether the peer has asked for it or not. */
void vb_roce_ack_all(struct vb_roce_qp *qp);

#endif
