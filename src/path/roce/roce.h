// roce.h - queue pairs on the network: the lane that receives, the sockets that send, the paths between
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

/* VERBENA_WIRE: auto (where the peer is no program of this host that can be met), always, never. */
enum vb_wire_mode { VB_WIRE_MODE_AUTO, VB_WIRE_MODE_ALWAYS, VB_WIRE_MODE_NEVER };
enum vb_wire_mode vb_wire_mode(void);

/* Where packets go, and from which of our addresses. GIDs are addresses; both are of one family. */
struct vb_roce_addr {
	uint8_t src[VB_GID_LEN], dst[VB_GID_LEN];
	uint32_t ifindex; /* of the device: for addresses that need one */
	uint8_t traffic_class, hop_limit;
	uint16_t zero;
};

/* --- the sockets of this process: sockets.c --- */

#define VB_TX_COUNT 16

struct vb_roce_sockets {
	struct vb_node *node;
	int lane_fd, lifeline_fd;
	bool relayed; /* lane_fd is a channel, not a socket of the group: root's broker serves us, who are another user */
	_Atomic uint64_t lost_at; /* that channel has ended: when another is asked for; 0: it has not */
	atomic_bool up;
	struct vb_roce_rx *rx;
	struct vb_tx *tx[VB_TX_COUNT];

	/* packets for programs that we have still to meet: forward.c, under progress */
	struct vb_roce_held *held;
	unsigned held_count;
	uint64_t held_at; /* when they are looked at again, 0: there are none */

	/* the question to the broker: under io->questions_lock */
	bool unsent;
	enum { VB_LANE_UNASKED, VB_LANE_ASKED, VB_LANE_HELD_BY_US, VB_LANE_REFUSED } asked;
	uint64_t asked_at;
	int err;
};

/* Made with the node, without a socket yet. NULL without memory. */
struct vb_roce_sockets *vb_roce_sockets_new(struct vb_node *node);
void vb_roce_sockets_free(struct vb_roce_sockets *s);
/* How long a queue pair waits to be told its way, ms: on a machine that is very busy, too, the broker and the owner
 * of the sockets get to answer within this. Later it is looked for beside its work (unresolved.c). */
#define VB_RESOLVE_WAIT 10000
/* Asks the broker for our lane if that was not done, and waits up to so many ms. 0 or an errno. No spin lock held if
 * wait_ms > 0, else any lock. */
int vb_roce_up(struct vb_node *node, unsigned wait_ms);
void vb_roce_send_question(struct vb_node *node); /* if it is not sent yet. No spin lock held */
/* The broker's answer; takes the descriptors. Adapter thread. */
void vb_roce_answered(struct vb_node *node, const struct vb_roce_grant *g);
/* The channel by which our lane was relayed to us has ended: another is asked for. Under progress. */
void vb_roce_lost(struct vb_node *node);
uint64_t vb_roce_lost_at(const struct vb_node *node); /* when to call the next; 0: need not be */
void vb_roce_ask_again(struct vb_node *node);         /* if it is time. Adapter thread */
/* Another broker: a question that was open is asked again, and our groups are joined again. Adapter thread, no lock
 * held. */
void vb_roce_reattached(struct vb_node *node);
/* Who reads the lane: with watch, the progress thread is woken by it; without, somebody polls. Under progress. */
void vb_roce_watch(struct vb_node *node, bool watch);
/* In a child of fork(): nothing is sent or received any more. */
void vb_roce_in_child(struct vb_node *node);

/* --- receiving: receive.c --- */

struct vb_roce_rx *vb_roce_rx_new(int fd, bool relayed);
/* Another descriptor in place of the one it had. Under progress. */
void vb_roce_rx_replace(struct vb_roce_rx *rx, int fd);
void vb_roce_rx_free(struct vb_roce_rx *rx);
/* Takes what has come, at most a batch, and answers it. Under progress. Returns how many packets. */
unsigned vb_roce_poll(struct vb_node *node);

/* What came with a packet beside its bytes. */
struct vb_roce_arrival {
	struct vb_flow flow;
	struct vb_ip_fields ip;
	uint32_t ifindex;
	uint64_t now;
};
/* One packet, BTH to ICRC, already checked or not as icrc_known says. Under progress. */
void vb_roce_packet(struct vb_node *node, const struct vb_roce_arrival *a, const uint8_t *bytes, size_t len);
/* To this QP, whatever number it carries. Under progress. */
void vb_roce_to_qp(struct vb_node *node, struct vb_qp *qp, const struct vb_roce_arrival *a, const struct vb_packet *p,
                   const uint8_t *bytes, size_t len);
/* After the last of a batch: the queue pairs that got something answer. Under progress. */
void vb_roce_settle_batch(struct vb_node *node);

/* --- sending: send.c --- */

/*
 * Payload that was added up (vb_guard.h): for here, so much. from: it was not copied, and goes out from there; the
 * memory has to be there until vb_tx_end. NULL: it was. at: NULL if it was not added up.
 */
struct vb_tx_laid {
	uint8_t *at;
	const uint8_t *from;
	uint32_t len;
	uint64_t sum[2];
};

struct vb_tx *vb_tx_new(struct vb_roce_sockets *s);
void vb_tx_free(struct vb_tx *tx);
/* The sender of this pair of queue pairs: each has a source port of its own per address family. */
struct vb_tx *vb_tx_of(struct vb_roce_sockets *s, uint32_t qpn, uint32_t dest_qpn);
/* Packets of len bytes without ICRC that go out as one. */
uint32_t vb_tx_burst(uint32_t len);
/* Locks it. false: the network does not take what is there already; try again in a moment. */
bool vb_tx_begin(struct vb_tx *tx);
/* Is something of an earlier time still there? */
bool vb_tx_waits(const struct vb_tx *tx);
/* Does it take payload from where that lies, if there is at least so much of it? */
#define VB_TX_IN_PLACE_MIN 1024u
bool vb_tx_in_place(const struct vb_tx *tx);
/* Room for one packet and its ICRC; NULL: as above. Only between begin and end. */
uint8_t *vb_tx_room(struct vb_tx *tx);
/* The packet in that room goes to addr: header_len bytes of headers, len bytes in all without the ICRC. laid: or
 * NULL. */
void vb_tx_add(struct vb_tx *tx, const struct vb_roce_addr *addr, size_t header_len, size_t len,
               const struct vb_tx_laid *laid);
/* The same, of headers alone; but it arrives before, or with the first of, what was laid out since begin. */
void vb_tx_add_ahead(struct vb_tx *tx, const struct vb_roce_addr *addr, size_t len);
/* How many more packets of len bytes that go to addr fit beside it: they lie one behind the other from vb_tx_room
 * on, each with room for its ICRC. At most VB_TX_MORE. */
#define VB_TX_MORE 16u
uint32_t vb_tx_more(const struct vb_tx *tx, const struct vb_roce_addr *addr, size_t len);
/* They are there, n of them, each a BTH and payload. */
void vb_tx_add_more(struct vb_tx *tx, uint32_t n, size_t len, const struct vb_tx_laid *laid);
/* Hands over what was added, and unlocks. false: some of it has to wait. */
bool vb_tx_end(struct vb_tx *tx);

/* --- what is for others: forward.c, multicast.c. Under progress --- */

/* A packet for another lane of this host: by ring to the program that has it. Where that has to be met first it
 * waits. */
void vb_roce_forward(struct vb_node *node, const struct vb_roce_arrival *a, uint32_t qpn, const uint8_t *bytes,
                     size_t len);
/* Those that wait go, if they can by now. */
void vb_roce_forward_held(struct vb_node *node);
/* When to look at them again; 0: there are none. */
uint64_t vb_roce_forward_due(const struct vb_node *node);
void vb_roce_forward_free(struct vb_roce_sockets *s);
/* All groups of this process are joined again: by a new channel, or as a new broker is told. */
void vb_roce_join_again(struct vb_node *node);
/* One to all queue pairs that joined its group. */
void vb_roce_multicast(struct vb_node *node, const struct vb_roce_arrival *a, const struct vb_packet *p,
                       const uint8_t *bytes, size_t len);

#define VB_TX_AGAIN 50000u /* ns: how soon to try again what the network did not take */

/* --- queue pairs: path.c --- */

struct vb_roce_path {
	struct vb_roce_qp q;
	struct vb_roce_addr to;
	struct vb_roce_ahead ahead;
	struct vb_tx *tx;
	uint64_t next_burst; /* UC: ns */
	uint64_t kicked_at;  /* when something was posted last */
	uint32_t train;      /* posts, one close behind the other */
	uint8_t failed;      /* 1 + enum vb_work_event: the engine gave up; the queue pair follows */
	bool touched;
	struct vb_qp *touched_next;
	struct vb_known known;
	uint8_t *laying; /* the first of the packets that are being made, and how far apart they are */
	uint32_t laying_apart;
	struct vb_tx_laid laid[VB_TX_MORE]; /* in the packets that are being made */
	struct vb_work_sent sends[];
};

/* After sq_lock was taken. */
static inline void vb_roce_path_locked(struct vb_roce_path *w)
{
	vb_known_forget(&w->known);
}

/* Counts of the queue pairs that have ended. */
extern struct vb_roce_stats vb_roce_totals;

/* Gives the QP its engine. 0 or an errno. No lock held. */
int vb_roce_path_open(struct vb_qp *qp);
/* The same under progress + sq_lock. */
int vb_roce_path_open_locked(struct vb_qp *qp);
/* Takes the engine from it. Under progress + sq_lock. */
void vb_roce_path_close(struct vb_qp *qp);
/* As in struct vb_path_ops; for UD, too. */
void vb_roce_path_entered(struct vb_qp *qp, enum ibv_qp_state cur, enum ibv_qp_state next);
void vb_roce_path_closed(struct vb_qp *qp);
void vb_roce_path_reset(struct vb_qp *qp);
enum vb_datagram_result vb_roce_datagram(struct vb_qp *qp, struct vb_swqe *w);
void vb_roce_datagrams_end(struct vb_qp *qp);
/* Acknowledgements wait for company no longer: nobody may be left to send them later. Under progress + sq_lock. */
void vb_roce_last_words(struct vb_qp *qp);
/* The QP with this number whose packets come from the wire, or NULL. Under progress. */
struct vb_qp *vb_roce_qp_of(struct vb_node *node, uint32_t qpn);
/* The same for a plain middle packet, BTH to ICRC; false: it is none. Under progress + sq_lock. */
bool vb_roce_path_middle(struct vb_qp *qp, const uint8_t *bytes, size_t len, uint16_t port, uint64_t now);
/* Hands a packet to its QP. Under progress + sq_lock. */
void vb_roce_path_input(struct vb_qp *qp, const struct vb_packet *p, const uint8_t *payload,
                        const struct vb_roce_from *from, uint64_t now);
/* The same for one whose opcode nobody has. Under progress + sq_lock. */
void vb_roce_path_input_unknown(struct vb_qp *qp, const struct vb_bth *bth);
/* Sends what it has to say, after input. crowded: much more waits in the socket. Under progress. */
void vb_roce_path_answer(struct vb_qp *qp, uint64_t now, bool crowded);

#endif
