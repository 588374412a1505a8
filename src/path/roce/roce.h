// roce.h - RoCE: the lane that receives, the sockets that send, the path of a queue pair
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

/* VERBENA_WIRE: auto (RoCE if the peer is no program of this host that can be met), always, never. */
enum vb_wire_mode { VB_WIRE_MODE_AUTO, VB_WIRE_MODE_ALWAYS, VB_WIRE_MODE_NEVER };
enum vb_wire_mode vb_wire_mode(void);

/* Destination and source address of packets. GIDs are IP addresses; both are of one family. */
struct vb_roce_addr {
	uint8_t src[VB_GID_LEN], dst[VB_GID_LEN];
	uint32_t ifindex; /* of the device, for addresses that need one */
	uint8_t traffic_class, hop_limit;
	uint16_t zero;
};

/* --- the sockets of this process: sockets.c --- */

#define VB_TX_COUNT 16

struct vb_roce_sockets {
	struct vb_node *node;
	int lane_fd, lifeline_fd;
	bool relayed; /* lane_fd is a channel, not a socket of the group, because the broker is root's and we are another user */
	_Atomic uint64_t lost_at; /* when to ask for another channel after that one has ended; 0: it has not ended */
	atomic_bool up;
	struct vb_roce_rx *rx;
	struct vb_tx *tx[VB_TX_COUNT];

	/* packets for programs that are not met yet: forward.c, under progress */
	struct vb_roce_held *held;
	unsigned held_count;
	uint64_t held_at; /* when they are visited again; 0: there are none */

	/* the question to the broker: under io->questions_lock */
	bool unsent;
	enum { VB_LANE_UNASKED, VB_LANE_ASKED, VB_LANE_HELD_BY_US, VB_LANE_REFUSED } asked;
	uint64_t asked_at;
	int err;
};

/* Made with the node, without sockets at first. NULL if there is no memory. */
struct vb_roce_sockets *vb_roce_sockets_new(struct vb_node *node);
void vb_roce_sockets_free(struct vb_roce_sockets *s);
/* ms that path resolution may take at RTR. Even on a very busy machine the broker and the keeper answer within this
 * time. After that the progress thread retries (unresolved.c). */
#define VB_RESOLVE_WAIT 10000
/* Asks the broker for our lane if not done yet, and waits up to wait_ms. 0 or an errno. No spin lock held if wait_ms
 * > 0, else any lock. */
int vb_roce_up(struct vb_node *node, unsigned wait_ms);
void vb_roce_send_question(struct vb_node *node); /* if not sent yet. No spin lock held */
/* The channel that relays our lane has ended: asks for another. Under progress. */
void vb_roce_lost(struct vb_node *node);
uint64_t vb_roce_lost_at(const struct vb_node *node); /* when to call vb_roce_ask_again; 0: not needed */
void vb_roce_ask_again(struct vb_node *node);         /* if it is time. Progress thread */
/* watch: packets wake the progress thread; otherwise a thread polls the lane. Under progress. */
void vb_roce_watch(struct vb_node *node, bool watch);
/* In a child of fork(): stops sending and receiving. */
void vb_roce_in_child(struct vb_node *node);

/* --- receiving: receive.c --- */

struct vb_roce_rx *vb_roce_rx_new(int fd, bool relayed);
/* Replaces the descriptor. Under progress. */
void vb_roce_rx_replace(struct vb_roce_rx *rx, int fd);
void vb_roce_rx_free(struct vb_roce_rx *rx);
/* Receives at most a batch of packets, and answers them. Under progress. Returns how many. */
unsigned vb_roce_poll(struct vb_node *node);

/* Facts about a packet besides its bytes. */
struct vb_roce_arrival {
	struct vb_flow flow;
	struct vb_ip_fields ip;
	uint32_t ifindex;
	uint64_t now;
};
/* Processes one packet, BTH to ICRC. icrc_known: the ICRC is already checked. Under progress. */
void vb_roce_packet(struct vb_node *node, const struct vb_roce_arrival *a, const uint8_t *bytes, size_t len);
/* Gives a packet to this QP, whatever number it carries. Under progress. */
void vb_roce_to_qp(struct vb_node *node, struct vb_qp *qp, const struct vb_roce_arrival *a, const struct vb_packet *p,
                   const uint8_t *bytes, size_t len);
/* Called after a batch: the queue pairs that received packets answer. Under progress. */
void vb_roce_settle_batch(struct vb_node *node);

/* --- sending: send.c --- */

/*
 * Payload whose sum is known (util/guard.h). from: its place if it was not copied and is sent from there; the memory
 * must stay mapped until vb_tx_end. NULL: it was copied. at: NULL if the sum is not known.
 */
struct vb_tx_laid {
	uint8_t *at;
	const uint8_t *from;
	uint32_t len;
	uint64_t sum[2];
};

struct vb_tx *vb_tx_new(struct vb_roce_sockets *s);
void vb_tx_free(struct vb_tx *tx);
/* The sender for this pair of queue pairs. Each sender has its own source port per address family. */
struct vb_tx *vb_tx_of(struct vb_roce_sockets *s, uint32_t qpn, uint32_t dest_qpn);
/* The number of packets of len bytes, without ICRC, that one send call takes. */
uint32_t vb_tx_burst(uint32_t len);
/* Locks the sender. Returns false if the network cannot take the packets already in it; try again in a moment. */
bool vb_tx_begin(struct vb_tx *tx);
/* Do packets of an earlier call wait in it? */
bool vb_tx_waits(const struct vb_tx *tx);
/* Payload of at least this size may be sent in place. */
#define VB_TX_IN_PLACE_MIN 1024u
bool vb_tx_in_place(const struct vb_tx *tx);
/* Returns room for one packet and its ICRC; NULL: as above. Only between begin and end. */
uint8_t *vb_tx_room(struct vb_tx *tx);
/* Adds the packet in that room for addr: header_len bytes of headers, len bytes in all without the ICRC. laid may be
 * NULL. */
void vb_tx_add(struct vb_tx *tx, const struct vb_roce_addr *addr, size_t header_len, size_t len,
               const struct vb_tx_laid *laid);
/* The same for a packet without payload that must arrive before, or with the first of, the packets added since
 * begin. */
void vb_tx_add_ahead(struct vb_tx *tx, const struct vb_roce_addr *addr, size_t len);
/* The number of further packets of len bytes to addr that fit, contiguous from vb_tx_room on, each with room for its
 * ICRC. At most VB_TX_MORE. */
#define VB_TX_MORE 16u
uint32_t vb_tx_more(const struct vb_tx *tx, const struct vb_roce_addr *addr, size_t len);
/* Adds n such packets, each a BTH and payload. */
void vb_tx_add_more(struct vb_tx *tx, uint32_t n, size_t len, const struct vb_tx_laid *laid);
/* Sends the added packets, and unlocks. Returns false if some must wait. */
bool vb_tx_end(struct vb_tx *tx);

/* --- packets for other programs and groups: forward.c, multicast.c. Under progress --- */

/* Forwards a packet for another lane of this host to its program, by ring. It waits until the program is met. */
void vb_roce_forward(struct vb_node *node, const struct vb_roce_arrival *a, uint32_t qpn, const uint8_t *bytes,
                     size_t len);
/* Forwards waiting packets that can be sent now. */
void vb_roce_forward_held(struct vb_node *node);
/* When to visit them again; 0: there are none. */
uint64_t vb_roce_forward_due(const struct vb_node *node);
void vb_roce_forward_free(struct vb_roce_sockets *s);
/* Joins all groups of this process again, on a new channel or with a new broker. */
void vb_roce_join_again(struct vb_node *node);
/* Gives a packet to all queue pairs that joined its group. */
void vb_roce_multicast(struct vb_node *node, const struct vb_roce_arrival *a, const struct vb_packet *p,
                       const uint8_t *bytes, size_t len);

#define VB_TX_AGAIN VB_US(50) /* ns: pause before packets are sent again that the network could not take */

/* --- queue pairs: path.c --- */

struct vb_roce_path {
	struct vb_roce_qp q;
	struct vb_roce_addr to;
	struct vb_roce_ahead ahead;
	struct vb_tx *tx;
	uint64_t next_burst; /* UC: ns */
	uint64_t kicked_at;  /* the time of the last post */
	uint32_t train;      /* consecutive posts within TRAIN_GAP */
	uint8_t failed;      /* 1 + enum vb_work_event: the engine has failed; the queue pair must follow */
	bool touched;
	struct vb_qp *touched_next;
	struct vb_known known;
	uint8_t *laying; /* the first of the packets in construction, and their distance */
	uint32_t laying_apart;
	struct vb_tx_laid laid[VB_TX_MORE]; /* payload of the packets in construction */
	struct vb_work_sent sends[];
};

/* Called after sq_lock was taken. */
static inline void vb_roce_path_locked(struct vb_roce_path *w)
{
	vb_known_forget(&w->known);
}

/* Counters of ended queue pairs. */
extern struct vb_roce_stats vb_roce_totals;

/* Gives the QP its engine. 0 or an errno. No lock held. */
int vb_roce_path_open(struct vb_qp *qp);
/* The same under progress + sq_lock. */
int vb_roce_path_open_locked(struct vb_qp *qp);
/* Removes the QP's engine. Under progress + sq_lock. */
void vb_roce_path_close(struct vb_qp *qp);
/* As in struct vb_path_ops; for UD, too. */
void vb_roce_path_entered(struct vb_qp *qp, enum ibv_qp_state cur, enum ibv_qp_state next);
void vb_roce_path_closed(struct vb_qp *qp);
void vb_roce_path_reset(struct vb_qp *qp);
enum vb_datagram_result vb_roce_datagram(struct vb_qp *qp, struct vb_swqe *w);
void vb_roce_datagrams_end(struct vb_qp *qp);
/* Sends delayed acknowledgements now, because the program may end before it can send them later. Under progress +
 * sq_lock. */
void vb_roce_last_words(struct vb_qp *qp);
/* The QP with this number that receives RoCE packets, or NULL. Under progress. */
struct vb_qp *vb_roce_qp_of(struct vb_node *node, uint32_t qpn);
/* Processes a plain middle packet, BTH to ICRC. Returns false if it is none. Under progress + sq_lock. */
bool vb_roce_path_middle(struct vb_qp *qp, const uint8_t *bytes, size_t len, uint16_t port, uint64_t now);
/* Gives a packet to its QP. Under progress + sq_lock. */
void vb_roce_path_input(struct vb_qp *qp, const struct vb_packet *p, const uint8_t *payload,
                        const struct vb_roce_from *from, uint64_t now);
/* The same for a reserved opcode. Under progress + sq_lock. */
void vb_roce_path_input_unknown(struct vb_qp *qp, const struct vb_bth *bth);
/* Sends the QP's answers after input. crowded: many more packets wait in the socket. Under progress. */
void vb_roce_path_answer(struct vb_qp *qp, uint64_t now, bool crowded);

#endif
