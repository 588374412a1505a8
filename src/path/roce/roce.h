// roce.h - the RoCE path: the lane that receives, the sockets that send, the packets of a queue pair
// see: docs/roce.md
// SPDX-License-Identifier: MIT
#ifndef VB_PATH_ROCE_ROCE_H
#define VB_PATH_ROCE_ROCE_H

#include <sys/uio.h>

#include "engine/roce/roce.h"
#include "frame/net.h"
#include "broker/client/client.h"
#include "node/io.h"
#include "path/queue_ops.h"
#include "util/units.h"

/* Destination and source address of packets. GIDs are IP addresses; both are of one family. */
struct vb_roce_addr {
	uint8_t src[VB_GID_LEN], dst[VB_GID_LEN];
	uint32_t ifindex; /* the device's interface, for link-local and multicast addresses */
	uint8_t traffic_class, hop_limit;
	uint8_t link; /* enum vb_link */
	uint8_t sl;   /* of an InfiniBand link, as the rest. Without a GRH src and dst are vb_lid_address's */
	uint16_t slid, dlid;
	uint32_t flow_label;
};

/* --- the sockets of this process: sockets.c --- */

#define VB_TX_COUNT 16

struct vb_packet_ring;
struct vb_udp_arrival;

enum vb_ring_state {
	VB_RING_PAUSED, /* nothing enters it */
	VB_RING_TRIAL,  /* the socket gets all packets; those of the ring are compared with them */
	VB_RING_IN_USE, /* the socket has no short ones, or copies */
	VB_RING_LEFT    /* nothing enters it any more. The socket has all, and copies of what the ring had */
};

#define VB_RING_ADDRESSES 8u
struct vb_ring_address {
	uint8_t gid[VB_GID_LEN];
	bool known, own; /* own: it is one of this host */
};

/* The ring of short packets (net/packet_ring.h), and what is known of it. Under progress, except what is atomic.
 * packet_ring.c */
struct vb_roce_ring {
	struct vb_packet_ring *_Atomic now; /* NULL: there is none. Freed by the progress thread alone */
	_Atomic enum vb_ring_state state;
	unsigned announced;   /* long packets of this look at the socket that the ring has announced */
	unsigned looks;       /* polls since the last look at the socket */
	unsigned often;       /* so many more polls look there each time */
	unsigned lost;        /* announced packets that have not come, one after the other */
	uint64_t waits_since; /* ns: for an announced packet; 0: it does not wait */
	uint64_t claimed_at;  /* ns: the ring is in use, or left, since then; 0: no copies are in the socket any more */
	struct vb_ring_address address[VB_RING_ADDRESSES];
	unsigned next_address;
	unsigned matched, mismatches;        /* in the trial */
	uint32_t heard_from;                 /* the interface from which datagrams come … */
	unsigned heard;                      /* … so many batches one after the other */
	uint32_t unfit;                      /* an interface that gets no ring any more */
	unsigned troubles;                   /* how often a ring has ended */
	_Atomic uint32_t wanted;             /* the interface of a ring that the progress thread makes; 0: none */
	struct vb_packet_ring *_Atomic dead; /* the progress thread frees it */
	bool ends;                           /* it ends when no copies are in the socket any more */
	atomic_bool forbidden; /* there is, or was, a queue pair whose packets must not come twice or late */
	const char *why;       /* why that one has ended, for the log; NULL: it is not said */
	bool told;             /* the log says that it is in use. Progress thread, as is the next */
	uint64_t checked_at;   /* ns: whether the ring may go on */
};

struct vb_roce_sockets {
	struct vb_node *node;
	int lane_fd, lifeline_fd;
	/* lane_fd is a channel instead of a socket of the group, because root runs the broker and we are another
	 * user */
	bool relayed;
	uint32_t nlanes;          /* sockets of the group; set with lane_fd, as is the next */
	bool split;               /* programs of our user share the first half of them */
	bool grouped;             /* it has joined a group on its socket; under mcast_lock */
	_Atomic uint64_t lost_at; /* time to ask for a new channel after ours has ended; 0: ours has not ended */
	atomic_bool up;
	/* lane_fd is a port of a simulated InfiniBand fabric: messages are packets one behind the other, each from LRH to
	 * VCRC (frame/lrh.h) */
	bool framed;
	struct vb_roce_rx *rx;
	struct vb_roce_ring ring;
	struct vb_tx *tx[VB_TX_COUNT];
	/* packets whose queue pair may not send again are in a sender, because the kernel had no room. The transport has a user
	 * more then, so that it is polled until they are sent */
	atomic_bool datagrams_wait;

	/* packets for programs that the broker has not introduced yet (forward.c). Under progress */
	struct vb_roce_waiting *held;
	unsigned held_count;
	uint64_t held_at; /* time to try to forward them again; 0: there are none */

	/* the question to the broker. Under io->questions_lock */
	bool unsent;
	enum { VB_LANE_UNASKED, VB_LANE_ASKED, VB_LANE_HELD_BY_US, VB_LANE_REFUSED } asked;
	uint64_t asked_at;
	int err;
};

/* Called when the node is created. Opens no sockets. Returns NULL if there is no memory. */
struct vb_roce_sockets *vb_roce_sockets_new(struct vb_node *node);
/* Those of a port on a fabric. Takes ownership of the socket. NULL: no memory. No lock held. */
struct vb_roce_sockets *vb_roce_sockets_of_port(struct vb_node *node, int fd);
/* Those that carry the packets of a queue pair. */
static inline struct vb_roce_sockets *vb_roce_sockets_for(const struct vb_qp *qp)
{
	return qp->ib ? qp->node->io->link : qp->node->io->roce;
}
void vb_roce_sockets_free(struct vb_roce_sockets *s);
/* ms; how long path resolution may take at RTR. The broker and the keeper answer within this time even on a very busy
 * machine. After it the progress thread retries (unresolved.c). */
#define VB_RESOLVE_WAIT 10000
void vb_roce_send_question(struct vb_node *node); /* sends it unless already sent. No spin lock held */
/* Called when the channel that relays our lane has ended. Makes the progress thread ask for a new one. Under
 * progress. */
void vb_roce_lost(struct vb_node *node);
uint64_t vb_roce_lost_at(const struct vb_node *node); /* time to call vb_roce_ask_again; 0: not needed */
void vb_roce_ask_again(struct vb_node *node);         /* asks for a new channel if it is time. Progress thread */
/* Joins all groups of this process again, on a new channel or with a new broker. Joining a group twice does no harm.
 * Progress thread, no lock held. multicast.c */
void vb_roce_join_again(struct vb_node *node);
/* Adds the lane to the epoll set, so that packets wake the progress thread, or removes it, because a thread polls the
 * lane. Under progress. */
void vb_roce_watch(struct vb_node *node, bool watch);
void vb_roce_watch_sockets(struct vb_roce_sockets *s, bool watch); /* the same for these */
/* Is a quarter of the lane's buffer full (SO_MEMINFO), or of the channel's? */
bool vb_roce_socket_crowded(int lane_fd, bool relayed);
/* In a child of fork(): stops sending and receiving. */
void vb_roce_in_child(struct vb_node *node);

/* --- receiving: receive.c --- */

struct vb_roce_rx *vb_roce_rx_new(int fd, bool relayed);
/* Its messages are packets of an InfiniBand link from now on. */
void vb_roce_rx_frame(struct vb_roce_rx *rx);
/* Replaces the descriptor. Under progress. */
void vb_roce_rx_replace(struct vb_roce_rx *rx, int fd);
/* Short packets come by this ring. NULL: by the socket. Under progress. */
void vb_roce_rx_ring(struct vb_roce_rx *rx, struct vb_packet_ring *ring);
void vb_roce_rx_free(struct vb_roce_rx *rx);
/* Starts or stops asking the rules of fault injection about each packet. Under progress. */
void vb_roce_rx_arm(struct vb_roce_rx *rx, bool on);
/* Processes held packets whose time has come. Returns when the next is due; ns, 0: no packet is held. Under
 * progress. */
uint64_t vb_roce_rx_serve_faults(struct vb_node *node, struct vb_roce_rx *rx);
/* Receives at most one batch of datagrams, and sends the responses. Returns the number of datagrams. Under progress. */
unsigned vb_roce_poll(struct vb_node *node);
unsigned vb_roce_poll_socket(struct vb_node *node, struct vb_roce_rx *rx); /* the same from the socket alone */
/* Processes one datagram. Under progress; vb_roce_answer_batch follows. */
void vb_roce_arrived(struct vb_node *node, struct vb_roce_rx *rx, const struct vb_udp_arrival *came, uint8_t *bytes,
                     size_t len);
unsigned vb_roce_poll_port(struct vb_roce_sockets *s); /* the same for a port on a fabric */
/* When that is to be done again although nothing has come, ns; 0: never. */
uint64_t vb_roce_port_due(const struct vb_roce_sockets *s);
/* When datagrams that wait are to be sent again by a poll, ns; 0: none wait. */
uint64_t vb_roce_datagrams_due(const struct vb_roce_sockets *s);
/* Some wait from now on, though their queue pair may send no more, or end. */
void vb_roce_datagrams_left(struct vb_roce_sockets *s);
void vb_roce_datagrams_again(struct vb_roce_sockets *s); /* sends them. Under progress */
static inline void vb_roce_datagrams_poll(struct vb_roce_sockets *s)
{
	if (__builtin_expect(atomic_load_explicit(&s->datagrams_wait, memory_order_relaxed), 0))
		vb_roce_datagrams_again(s);
}

/* Does the datagram with this BTH wait for a receive, with all that is behind it? *waits_since: since when it does, ns; 0: it
 * does not. starving.c. Under progress */
bool vb_roce_awaits_receive(struct vb_node *node, _Atomic uint64_t *waits_since, const uint8_t *bth, uint64_t now);

/* Addresses and arrival time of a packet. */
struct vb_roce_arrival {
	struct vb_flow flow;
	struct vb_ip_fields ip;
	uint32_t ifindex;
	uint64_t now;
};
/* Processes one packet, BTH to ICRC, of a batch of this receiver. The caller has checked the ICRC. Under progress. */
void vb_roce_packet(struct vb_node *node, struct vb_roce_rx *rx, const struct vb_roce_arrival *a, const uint8_t *bytes,
                    size_t len);
/* Passes a packet to this QP; does not look at the packet's destination QP number. Under progress. */
void vb_roce_to_qp(struct vb_roce_rx *rx, struct vb_qp *qp, const struct vb_roce_arrival *a, const struct vb_packet *p,
                   const uint8_t *bytes, size_t len);
/* Called after a batch. Sends the responses of the queue pairs that received packets. Under progress. */
void vb_roce_answer_batch(struct vb_roce_rx *rx);

/* --- short packets in memory that the kernel shares: packet_ring.c. Under progress --- */

unsigned vb_roce_poll_ring(struct vb_roce_sockets *s, struct vb_packet_ring *ring);
/* A datagram has come by the socket while there is a ring. False: it came, or will come, by the ring. */
bool vb_roce_ring_hears(struct vb_roce_sockets *s, struct vb_packet_ring *ring, const struct vb_udp_arrival *came,
                        const uint8_t *bytes, size_t len);
/* Datagrams of this interface have come, and no ring is in use. If a program polls for many, one will be. */
void vb_roce_ring_learn(struct vb_roce_sockets *s, uint32_t ifindex);
/* The progress thread owns progress from now on. It sleeps until the socket is readable, which gets all packets. */
void vb_roce_ring_pause(struct vb_roce_sockets *s);
void vb_roce_ring_end(struct vb_roce_sockets *s, const char *why); /* why: for the log, or NULL */
/* The program makes a UC or UD queue pair: there is no ring from now on. No lock held. */
void vb_roce_ring_forbid(struct vb_node *node);
void vb_roce_ring_free(struct vb_roce_sockets *s);  /* the one that has ended. No lock needed */
void vb_roce_ring_close(struct vb_roce_sockets *s); /* when the sockets are freed */
void vb_roce_ring_look(struct vb_node *node);       /* makes one, or ends one. Progress thread, no lock held */

/* --- sending: send.c --- */

/* Payload of a packet whose CRC sum (util/guard.h) is known. */
struct vb_tx_laid {
	uint8_t *at; /* its place in the packet; NULL: the sum is not known */
	/* where a part of it is instead, in memory that stays mapped until vb_tx_end; NULL: all is at its place */
	const uint8_t *from;
	uint32_t len;
	uint32_t from_at, from_len; /* that part */
	uint64_t sum[2];
};

struct vb_tx *vb_tx_new(struct vb_roce_sockets *s);
void vb_tx_free(struct vb_tx *tx);
/* Returns the sender for this pair of queue pairs. Each sender has its own source port per address family. */
struct vb_tx *vb_tx_of(struct vb_roce_sockets *s, uint32_t qpn, uint32_t dest_qpn);
/* Returns how many packets of len bytes (without ICRC) one send call takes. */
uint32_t vb_tx_burst(uint32_t len);
/* Returns true if packets of an earlier call wait in the sender. */
bool vb_tx_waits(const struct vb_tx *tx);
/* Sends those. Returns false if some wait on, or if a thread has the sender. */
bool vb_tx_push(struct vb_tx *tx);
/* Does a thread have the sender, for longer than a send lasts? A signal may have interrupted it, whose handler has called
 * exit(). */
bool vb_tx_is_held(struct vb_tx *tx);
/* Locks the sender for packets of this queue pair. Returns false, unlocked, if the kernel does not accept the packets of an earlier call; try again
 * after VB_TX_AGAIN. */
bool vb_tx_begin(struct vb_tx *tx, const struct vb_qp *qp);
/* bytes; a payload of at least this size may be sent from the program's memory, without a copy */
#define VB_TX_IN_PLACE_MIN 1024u
bool vb_tx_in_place(const struct vb_tx *tx);
/* Returns room for one packet to addr, from BTH to ICRC, or NULL if the kernel does not accept the earlier packets. Call
 * it only between vb_tx_begin and vb_tx_end. */
uint8_t *vb_tx_room(struct vb_tx *tx, const struct vb_roce_addr *addr);
/* Adds the packet in that room, for addr. header_len: bytes of headers; len: bytes of the packet without ICRC. laid may
 * be NULL. */
void vb_tx_add(struct vb_tx *tx, const struct vb_roce_addr *addr, size_t header_len, size_t len,
               const struct vb_tx_laid *laid);
/* The same for a packet without payload that must arrive before, or in one send with, the packets added since
 * vb_tx_begin. */
void vb_tx_add_ahead(struct vb_tx *tx, const struct vb_roce_addr *addr, size_t len);
/* Returns how many more packets of len bytes to addr fit in the present send, at most VB_TX_MORE. They start at
 * vb_tx_room, and are vb_tx_apart bytes apart. */
#define VB_TX_MORE 16u
uint32_t vb_tx_apart(const struct vb_roce_addr *addr, size_t len);
uint32_t vb_tx_more(const struct vb_tx *tx, const struct vb_roce_addr *addr, size_t len);
/* Where payload of such packets may go past the caches (vb_guard_copy_sum_past) instead of into the stage: the place of the
 * first byte of the next one. left: how many follow at most. NULL: nowhere, or it would not pay. */
uint8_t *vb_tx_past(struct vb_tx *tx, uint32_t left);
/* Adds n such packets, each with a BTH and payload. */
void vb_tx_add_more(struct vb_tx *tx, uint32_t n, size_t len, const struct vb_tx_laid *laid);
/* Sends the added packets and unlocks the sender. Returns false if some must wait. */
bool vb_tx_end(struct vb_tx *tx);
/* Starts or stops asking the rules of fault injection about each packet. No lock of the sender held. */
void vb_tx_arm(struct vb_tx *tx, bool on);
/* Sends what waits, and held packets whose time has come. Returns when to call it again; ns, 0: no packet is there. It
 * does not wait for the lock either. */
uint64_t vb_tx_serve_faults(struct vb_tx *tx);

/* --- packets for other programs and groups: forward.c, multicast.c. Under progress --- */

/* May other processes share the socket of this one? */
bool vb_roce_sharing(const struct vb_roce_sockets *s);
/* Forwards a datagram for a multicast group, which has arrived on a socket that others share: each of them gets it, and looks
 * whether it is in the group. No sq_lock held. */
void vb_roce_forward_group(struct vb_node *node, const struct vb_roce_arrival *a, const uint8_t *bytes, size_t len);
/* Forwards a packet for another lane to that lane's program, by ring. Holds it until the broker has introduced the
 * program. */
void vb_roce_forward(struct vb_node *node, const struct vb_roce_arrival *a, uint32_t qpn, const uint8_t *bytes,
                     size_t len);
/* Forwards the held packets whose ring is ready now. */
void vb_roce_forward_held(struct vb_node *node);
/* Returns when to call vb_roce_forward_held next; 0 if there are no held packets or no QP uses RoCE. */
uint64_t vb_roce_forward_due(const struct vb_node *node);
void vb_roce_forward_free(struct vb_roce_sockets *s);
/* Passes a packet to all queue pairs attached to its group. */
void vb_roce_multicast(struct vb_node *node, struct vb_roce_rx *rx, const struct vb_roce_arrival *a,
                       const struct vb_packet *p, const uint8_t *bytes, size_t len);

#define VB_TX_AGAIN VB_US(50) /* ns; pause before the sender retries packets that the kernel did not accept */

/* --- addresses: address.c --- */

/* Sets the addresses of packets from this GID of ours to the destination of the address vector. */
void vb_roce_address(struct vb_roce_addr *to, struct vb_qp *qp, const union ibv_gid *sgid,
                     const struct ibv_ah_attr *ah);

/* --- queue pairs: path.c --- */

#define VB_ROCE_AHEAD (16u << 20) /* bytes; address space for out-of-order packets of one QP */

struct vb_roce_path {
	struct vb_roce_qp q;
	struct vb_roce_addr to;
	struct vb_roce_ahead ahead;
	struct vb_tx *tx;
	uint64_t connection; /* no other connection of this process has this number */
	bool inside;         /* packets through its interface stay on this machine */
	uint64_t next_burst; /* UC: ns */
	bool limited;        /* its rate has a limit, which is slower than its pace */
	uint64_t kicked_at;  /* the time of the last post */
	uint32_t train;      /* consecutive posts within TRAIN_GAP */
	uint8_t failed;      /* enum vb_work_event: the engine has failed; the queue pair must follow */
	uint64_t wrong_icrc; /* packets that seem to be for it, and have a wrong ICRC */
	uint64_t waited; /* UD on a fabric: ns that datagrams have waited for receives, less what it has earned since */
	bool touched;
	struct vb_qp *touched_next;
	struct vb_known known;
	uint8_t *laying; /* the first of the packets under construction, and the distance between them */
	uint32_t laying_apart;
	uint8_t *laying_past;               /* where it is past the caches; NULL: nowhere */
	struct vb_tx_laid laid[VB_TX_MORE]; /* payload of the packets under construction */
	struct vb_work_sent sends[];
};

/* Called after sq_lock was taken. */
static inline void vb_roce_path_locked(struct vb_roce_path *path)
{
	vb_known_forget(&path->known);
}

/* limited.c: sends the packets that may be sent now and that the rate limit allows. Under sq_lock. */
void vb_roce_emit_limited(struct vb_qp *qp, uint64_t now);
/* Sets the time of the path's next visit; 0: none. Under sq_lock. */
void vb_roce_set_due(struct vb_qp *qp, uint64_t at);

/* Adds its counters. Under progress. */
void vb_roce_path_counts(const struct vb_roce_path *w, struct vb_counts *c);
/* Counters of queue pairs whose RoCE path is closed. */
extern struct vb_roce_stats vb_roce_totals;

/* Gives the QP its engine. Returns 0 or an errno value. No lock held. */
int vb_roce_path_open(struct vb_qp *qp);
/* The same under progress + sq_lock. */
int vb_roce_path_open_locked(struct vb_qp *qp);
/* Removes the QP's engine. Under progress + sq_lock. */
void vb_roce_path_close(struct vb_qp *qp);
/* See struct vb_path_ops. The path of UD uses them, too. */
void vb_roce_path_entered(struct vb_qp *qp, enum ibv_qp_state cur, enum ibv_qp_state next);
void vb_roce_path_closed(struct vb_qp *qp);
void vb_roce_path_reset(struct vb_qp *qp);
/* Sends delayed acknowledgements now, because the program may exit before their time. Under progress + sq_lock. */
void vb_roce_last_words(struct vb_qp *qp);
/* Returns the QP with this number if it has a RoCE engine, otherwise NULL. Under progress. */
struct vb_qp *vb_find_roce_receiver(struct vb_node *node, uint32_t qpn);
/* Processes a MIDDLE packet, BTH to ICRC. Returns false if the packet needs vb_roce_path_input. Under progress +
 * sq_lock. */
bool vb_roce_path_middle(struct vb_qp *qp, const uint8_t *bytes, size_t len, uint16_t port, uint64_t now);
/* Passes the P_Key of its port on, which has changed. Under progress + sq_lock. */
void vb_roce_path_pkey(struct vb_qp *qp);
/* Passes a packet to its QP. Under progress + sq_lock. */
void vb_roce_path_input(struct vb_qp *qp, const struct vb_packet *p, const uint8_t *payload,
                        const struct vb_roce_from *from, uint64_t now);
/* The same for a packet with a reserved opcode. Under progress + sq_lock. */
void vb_roce_path_input_unknown(struct vb_qp *qp, const struct vb_bth *bth);
/* Sends the QP's responses after input. crowded: many more packets wait in the socket. Under progress. */
void vb_roce_path_answer(struct vb_qp *qp, uint64_t now, bool crowded);

/* xrc.c: callbacks of the engine for requests that name SRQs of other processes */
enum vb_roce_srq vb_roce_select_srq(void *own, uint32_t srqn, bool answer);
bool vb_roce_pass(void *own, const struct vb_packet *p, const uint8_t *payload, const struct vb_roce_inbound *in,
                  struct vb_psn psn, uint32_t msn);
bool vb_roce_oldest_passed(void *own, struct vb_psn *psn, uint32_t *msn);
enum vb_roce_data vb_roce_read_there(void *own, const struct vb_roce_resource *r, uint32_t offset, void *dst,
                                     uint32_t len);
/* What has come of them, as in engine/roce/roce.h; answers follow. psn NULL: that of a READ. Under progress. */
void vb_roce_path_ask_again(struct vb_qp *qp);
void vb_roce_path_no_receive(struct vb_qp *qp, uint32_t psn, uint32_t msn);
void vb_roce_path_refuse(struct vb_qp *qp, enum vb_refusal why, const uint32_t *psn);
void vb_roce_path_result(struct vb_qp *qp, uint32_t psn, uint64_t value);
void vb_roce_path_executed(struct vb_qp *qp);

/* The rules of fault injection have changed for these sockets. No lock held. transport.c, as the next */
void vb_roce_arm_sockets(struct vb_node *node, struct vb_roce_sockets *s);
uint64_t vb_roce_serve_faults_of(struct vb_node *node, struct vb_roce_sockets *s);
/* Waits for what rules hold of them, and for what waits for room. No lock held. */
void vb_roce_drain_held(struct vb_roce_sockets *s);

/* --- callbacks of the engine: ops.c --- */

extern const struct vb_roce_ops vb_roce_engine_ops;

/* --- datagrams: datagram.c. See struct vb_path_ops --- */

enum vb_datagram_result vb_roce_datagram(struct vb_qp *qp, struct vb_swqe *w);
void vb_roce_datagrams_end(struct vb_qp *qp);

#endif
