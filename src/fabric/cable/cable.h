// cable.h - the cables between two fabric processes, as datagrams: who the other one is, states of links, packets, credits
// see: docs/infiniband.md, "Several hosts"; SECURITY.md
// SPDX-License-Identifier: MIT
#ifndef VB_FABRIC_CABLE_CABLE_H
#define VB_FABRIC_CABLE_CABLE_H

#include "fabric/cable/siphash.h"
#include "fabric/fabric.h"

/*
 * No socket, no clock: calls bring datagrams and the time (ns, of any origin). A datagram is a header of VB_CABLE_HEADER
 * bytes, big-endian, and a body:
 *
 *   0  magic 0x5646, version, kind (enum vb_cable_kind)
 *   4  first: PACKETS: where in the body the first record begins; 0xffff: none does
 *   6  port of the cable's end at the receiver, 0
 *   8  GUID of the node of that end
 *  16  sequence number
 *  24  tag: SipHash of all else
 *
 * HELLO and WELCOME have a body of three numbers: the sender's nonce, the receiver's nonce (HELLO: 0), and a digest of
 * the topology. A process says HELLO until it is welcome. Each HELLO gets a WELCOME. The key of what follows is made of
 * both nonces and of the secret, so only the receiver of the WELCOME can make it. A nonce is used for one session.
 *
 * STATUS: the sequence number up to which the sender has taken PACKETS, the bytes that its socket holds, flags (4 bytes;
 * 1: it takes no more now, because of its own links, programs or peers), and lines, each the state of a cable's end. All of
 * it is repeated, so that a loss does no harm. PACKETS: records one behind the other, each a length (2 bytes), the switches
 * passed (1), 0 (1), and a packet from LRH to VCRC. A record may continue in
 * the datagrams that follow. A datagram that was overtaken by a later one is dropped: links keep the order.
 *
 * ASK and TELL (ask.c) come before a session with a process that has one channel adapter, a guest. It asks for the
 * topology, piece by piece, and at last to be taken. They are sealed with the secret alone, and the number in the place of
 * the sequence number, which the guest has drawn, tells an answer from an old one. An ASK is no shorter than its TELL, so
 * that a forged sender gets no more than was sent.
 */
#define VB_CABLE_VERSION 1
#define VB_CABLE_HEADER 32
#define VB_CABLE_RECORD 4                                 /* bytes before a packet */
#define VB_CABLE_PACKET_MOST (8 + 40 + 84 + 4096 + 4 + 2) /* the longest packet of a link: 7.7.8 */
#define VB_CABLE_RECORD_MOST (VB_CABLE_RECORD + VB_CABLE_PACKET_MOST)
#define VB_CABLE_BODY_LEAST 512        /* of a datagram that is not the last of its train */
#define VB_CABLE_BEAT 250000000ull     /* ns: STATUS is repeated, or HELLO */
#define VB_CABLE_SILENCE 2000000000ull /* ns: then the other process is gone */

enum vb_cable_kind {
	VB_CABLE_HELLO = 1,
	VB_CABLE_WELCOME,
	VB_CABLE_STATUS,
	VB_CABLE_PACKETS, /* the last of a session */
	VB_CABLE_ASK,
	VB_CABLE_TELL
};

/* X(name): why a datagram, or a part of it, was dropped. */
#define VB_CABLE_DROPS(X) \
	X(malformed)      \
	X(bad_version)    \
	X(bad_tag)        \
	X(other_topology) \
	X(overtaken)      \
	X(missing)        \
	X(bad_record)     \
	X(no_such_cable)  \
	X(unsent)

struct vb_cable_counts {
	uint64_t sent, received, sessions;
#define X(name) uint64_t name;
	VB_CABLE_DROPS(X)
#undef X
};

struct vb_cable_head {
	uint8_t kind, port;
	uint16_t first;
	uint64_t guid, seq;
};

/* The end of a cable: port of a node. */
struct vb_cable_line {
	uint64_t guid; /* of the receiver's node */
	uint8_t port;
	struct vb_fabric_end end;
};

struct vb_cable;

/* What the owner of an end does. */
struct vb_cable_ops {
	void (*send)(void *own, const uint8_t *bytes, size_t len);
	uint64_t (*nonce)(void *own);
	/* The other process is there, or gone. If it was there before, it has been replaced. */
	void (*is_there)(void *own, bool there);
	/* The i-th cable's line to send. False: there are no more. */
	bool (*line)(void *own, size_t i, struct vb_cable_line *line);
	/* Returns false if there is no such cable to this process, as the next does. */
	bool (*told)(void *own, const struct vb_cable_line *line);
	/* A packet from LRH to VCRC, which may be changed. */
	bool (*packet)(void *own, uint64_t guid, uint8_t port, unsigned hops, uint8_t *bytes, size_t len);
};

struct vb_cable {
	const struct vb_cable_ops *ops;
	void *own;
	uint64_t digest; /* of the topology */
	struct vb_sip_key secret, in, out;
	uint64_t nonce, peer_nonce; /* of the session */
	uint64_t next_nonce;        /* of the next one */
	bool up, heard;             /* heard: a datagram of this session */
	uint64_t now, heard_at, beat_at;
	uint64_t sent_seq, heard_seq;
	uint64_t taken_seq; /* up to here the owner has found room for what came */
	uint64_t acked_seq; /* the other's taken_seq */
	uint32_t room;      /* bytes that the other's socket holds, and ours before they leave */
	uint32_t own_room, send_room;
	bool holds;   /* the owner's: it takes no more now, and is not idle */
	bool is_held; /* the other one has said that of itself. False: nothing is heard of it, or it takes packets */
	struct vb_cable_counts counts;
	/* a record that continues in the next datagram */
	struct vb_cable_head part_head;
	size_t part_len;
	uint8_t part[VB_CABLE_RECORD_MOST] __attribute__((aligned(8)));
};

/* secret: any bytes. room: what our socket holds of what comes; send_room: of what is sent. */
void vb_cable_init(struct vb_cable *c, const struct vb_cable_ops *ops, void *own, uint64_t digest, const void *secret,
                   size_t secret_len, uint32_t room, uint32_t send_room);
void vb_cable_input(struct vb_cable *c, const uint8_t *bytes, size_t len, uint64_t now);
void vb_cable_time(struct vb_cable *c, uint64_t now);
uint64_t vb_cable_deadline(const struct vb_cable *c);
/* Sends STATUS: with the lines, or only how far packets have been taken. */
void vb_cable_tell(struct vb_cable *c, bool lines);
/* How many datagrams of this length PACKETS may have, before the other end takes more. */
size_t vb_cable_credit(const struct vb_cable *c, size_t datagram);
/* Writes the head of a record. */
void vb_cable_record(uint8_t record[VB_CABLE_RECORD], size_t packet_len, unsigned hops);
/* Makes datagrams of whole records for one cable, each of `datagram` bytes but the last. Returns their length in all, or 0:
 * they do not fit. */
size_t vb_cable_pack(struct vb_cable *c, uint8_t *out, size_t room, size_t datagram, uint64_t guid, uint8_t port,
                     const uint8_t *records, size_t len);

/* --- the form alone (frame.c) --- */

void vb_cable_head_encode(uint8_t bytes[VB_CABLE_HEADER], const struct vb_cable_head *h);
/* Fills in the tag of a datagram, or checks it. */
void vb_cable_seal(const struct vb_sip_key *key, uint8_t *datagram, size_t len);
bool vb_cable_is_sealed(const struct vb_sip_key *key, const uint8_t *datagram, size_t len);

/* --- before a session: ask.c --- */

#define VB_CABLE_NAME 68
#define VB_CABLE_ASK_LEN 1200
#define VB_CABLE_PIECE 1024
#define VB_CABLE_TAKE 0xffffffff /* in the place of `at`: the guest has all, and wants to be taken */

/* X(name, text): what a guest is told. */
#define VB_CABLE_ANSWERS(X)                                                                    \
	X(YES, "")                                                                             \
	X(NO_NODE, "its fabric has no channel adapter of this name, or it has several")        \
	X(TAKEN, "programs of another host, or of that one, have this channel adapter")        \
	X(ELSEWHERE, "the switch of this channel adapter is in another process of its fabric") \
	X(BAD_SECRET, "it has another secret")                                                 \
	X(TROUBLE, "it has not the memory, or no socket, for one more guest")

enum vb_cable_answer {
#define X(name, text) VB_CABLE_##name,
	VB_CABLE_ANSWERS(X)
#undef X
	        VB_CABLE_ANSWERS_MOST
};

struct vb_cable_ask {
	uint64_t nonce;
	uint32_t at; /* where the piece begins, or VB_CABLE_TAKE */
	char node[VB_CABLE_NAME];
};

struct vb_cable_tell {
	uint64_t nonce;
	uint32_t answer; /* enum vb_cable_answer */
	uint32_t at, whole;
	size_t len;
	uint8_t bytes[VB_CABLE_PIECE];
};

/* The topology, of which several pieces are asked for at once, so that a long way costs no turn for each. A piece that is lost is
 * asked for again. */
#define VB_CABLE_WINDOW 64 /* pieces: what the smallest socket buffers hold */
struct vb_cable_text {
	char *bytes; /* malloc'd, whole + 1 */
	uint32_t whole;
	uint32_t pieces, first, next; /* first that is missing, and first that has not been asked for */
	uint8_t *have;
};

/* The answer for `at` 0 begins it. False: too large, or empty, or there is no memory. */
bool vb_cable_text_begin(struct vb_cable_text *x, const struct vb_cable_tell *t);
/* Which piece to ask for now. False: none. */
bool vb_cable_text_next(struct vb_cable_text *x, uint32_t *at);
/* False: the answer is of another text. */
bool vb_cable_text_take(struct vb_cable_text *x, const struct vb_cable_tell *t);
/* Those that were asked for have not come: they are asked for again. */
void vb_cable_text_again(struct vb_cable_text *x);
bool vb_cable_text_is_whole(const struct vb_cable_text *x);
void vb_cable_text_free(struct vb_cable_text *x);

/* The key of a secret. Without one: that of answers to strangers. */
struct vb_sip_key vb_cable_key(const void *secret, size_t len);
void vb_cable_ask_encode(uint8_t d[VB_CABLE_ASK_LEN], const struct vb_sip_key *key, const struct vb_cable_ask *a);
/* False: it is no such datagram. Its seal is not looked at: vb_cable_is_sealed. */
bool vb_cable_ask_decode(struct vb_cable_ask *a, const uint8_t *d, size_t len);
/* Returns its length. */
size_t vb_cable_tell_encode(uint8_t d[VB_CABLE_ASK_LEN], const struct vb_sip_key *key, const struct vb_cable_tell *t);
bool vb_cable_tell_decode(struct vb_cable_tell *t, const uint8_t *d, size_t len);

enum vb_cable_form { VB_CABLE_WELL_FORMED, VB_CABLE_MALFORMED, VB_CABLE_OTHER_VERSION };
enum vb_cable_form vb_cable_head_decode(struct vb_cable_head *h, const uint8_t *datagram, size_t len);
#define VB_CABLE_LINE 20
void vb_cable_line_encode(struct vb_writer *w, const struct vb_cable_line *l);
void vb_cable_line_decode(struct vb_reader *r, struct vb_cable_line *l);

#endif
