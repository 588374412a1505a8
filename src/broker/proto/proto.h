// proto.h - what a program and its broker say to each other, and every limit
// follows: nothing; one message per SOCK_SEQPACKET datagram, both ends on one host, so the structs are the format
// SPDX-License-Identifier: MIT
#ifndef VB_BROKER_PROTO_PROTO_H
#define VB_BROKER_PROTO_PROTO_H

#include <assert.h>
#include <stdint.h>

#define VB_PROTO_VERSION 2

/* A QP number is lane (top 10 bits) and index (14 bits). Lane 0 is the broker's own: QP 1 will live there. */
#define VB_LANE_COUNT 1024
#define VB_LANE_SHIFT 14
#define VB_FOREIGN_LANES 512      /* from here on, and as long as there are any, programs of users other than the broker's get theirs */
#define VB_QPN_MASK 0xffffffu

#define VB_MAX_GIDS 256
#define VB_MAX_PENDING 64         /* connections that have not attached (yet) */
#define VB_MAX_PENDING_EACH 16    /* … of one user other than the broker's */
#define VB_LANES_OWN 64           /* of the lanes the last so many are for the broker's own user */
#define VB_QUARANTINE_MS 60000    /* a lane that one user had is not another's before: packets for it may be on their way */
#define VB_QUARANTINE_EACH 64     /* … and of one user other than the broker's at most so many wait: more are his own again */
#define VB_MAX_SESSIONS (VB_LANE_COUNT - 1 + VB_MAX_PENDING)
#define VB_MAX_ANSWERS 64         /* meets a program may have unanswered because it does not read; then it is not read */
#define VB_MAX_PARKED 4096        /* meets that wait for a program to come back to a restarted broker, of all */
#define VB_MAX_PARKED_EACH 256    /* … and of one program */
#define VB_STATUS_CHUNK 32        /* lanes in one status message */
#define VB_MAX_FDS 4              /* descriptors in one message */
#define VB_MAX_SEG_BYTES (1ull << 40)
#define VB_MAX_BELL_BYTES (16ull << 20)
#define VB_SEND_BUFFER 8192       /* per program: bounds what a stopped one keeps in flight */
#define VB_SEND_BUFFER_OTHERS 2304 /* … of a user other than the broker's: what the kernel makes the least of */
#define VB_ERROR_TEXT 88
#define VB_CM_MAD 256
#define VB_MAX_SERVICE_REPLIES 64 /* answers about bindings a program may have not read; then it is not read */
#define VB_MAX_BINDINGS_EACH 16384
#define VB_MAX_BINDINGS (1u << 18)

#define VB_ROCE_EACH_MS 100       /* another user's program asks for its lane no more often */
#define VB_GROUP_CHANGES 4096     /* multicast groups joined and left by one program of another user's, in all */
#define VB_PENDING_MS 5000        /* a connection must say something within this */
#define VB_GRACE_MS 3000          /* a new broker waits this long for its first client */
#define VB_LINGER_MS 200          /* … and this long after the last has left */
#define VB_FOREIGN_MS 10000       /* a lane is kept this long for a holder whose pid cannot be watched */
#define VB_STALL_MS 50            /* pause when descriptors are short, on accept or on send */
#define VB_STARTED_MS 3000        /* a program waits this long for the broker that it started */
#define VB_ATTACHING_MS 2000      /* … and this long for the answer to ATTACH */

/* Numbers are for ever. Free for what comes: 0x40 multicast; answers have the top bit set. */
enum vb_msg_type {
	VB_MSG_ATTACH = 0x01,   /* vb_msg_attach, ngids × 16 bytes; descriptors: seg, doorbell, wake */
	VB_MSG_SET_GIDS = 0x02, /* vb_msg_set_gids, n × 16 bytes */
	VB_MSG_MEET = 0x03,
	VB_MSG_STATUS = 0x04,   /* the head alone */
	VB_MSG_DETACH = 0x05,   /* the head alone; who goes without it counts as dead */
	VB_MSG_ROCE = 0x10,     /* the head alone: the receiving end of the asker's lane, please */
	VB_MSG_ROCE_GROUP = 0x11, /* vb_msg_roce_group: for programs that are relayed to. No answer */
	VB_MSG_CM_OPEN = 0x20,  /* the head alone: queue pair 1 is to be reachable. No answer */
	VB_MSG_CM_CLOSE = 0x21, /* the head alone: no MADs any more, and the bindings go */
	VB_MSG_CM_SEND = 0x22,  /* vb_msg_cm_mad */
	VB_MSG_CM_AT_DEATH = 0x23, /* vb_msg_cm_at_death. No answer */
	VB_MSG_CM_BIND = 0x30,  /* vb_msg_cm_bind; answered by SERVICE_REPLY, as is CM_LISTEN */
	VB_MSG_CM_LISTEN = 0x31, /* vb_msg_cm_binding, as CM_UNBIND, which has no answer */
	VB_MSG_CM_UNBIND = 0x32,

	VB_MSG_ATTACHED = 0x81,
	VB_MSG_MEET_REPLY = 0x82, /* descriptors when err is 0: seg, doorbell, wake, pidfd */
	VB_MSG_INTRODUCED = 0x83, /* vb_msg_meet_reply with tag 0; the same descriptors */
	VB_MSG_ERROR = 0x84,      /* the last message: the broker closes. EAGAIN: come back in a while */
	VB_MSG_STATUS_PART = 0x85,
	VB_MSG_STATUS_END = 0x86,
	VB_MSG_ROCE_REPLY = 0x90, /* descriptors when err is 0: the lane's socket, the lifeline's writing end; relayed: a socket of
	                           * type SOCK_SEQPACKET alone, which brings each datagram behind a vb_relay_head */
	VB_MSG_CM_RECV = 0xa0,    /* vb_msg_cm_mad */
	VB_MSG_SERVICE_REPLY = 0xb0,
};

struct vb_msg_head {
	uint8_t type, version;
	uint16_t zero;
	uint32_t len; /* of the whole message */
};

struct vb_msg_attach {
	struct vb_msg_head head;
	uint32_t lane;        /* 0, or the one held before */
	uint32_t ngids;
	uint64_t incarnation; /* with lane: what went with it */
	uint64_t reserved;    /* zero */
};

struct vb_msg_attached {
	struct vb_msg_head head;
	uint32_t lane, zero;
	uint64_t incarnation, reserved;
};

struct vb_msg_set_gids {
	struct vb_msg_head head;
	uint32_t n, zero;
};

struct vb_msg_meet {
	struct vb_msg_head head;
	uint64_t tag;
	uint32_t qpn, zero;
	uint8_t dgid[16];
};

struct vb_msg_meet_reply {
	struct vb_msg_head head;
	uint64_t tag;
	int32_t err; /* an errno of the kernel both ends run on */
	uint32_t lane;
	uint64_t incarnation;
	uint32_t uid, zero;
};

struct vb_msg_error {
	struct vb_msg_head head;
	int32_t err;
	uint32_t zero;
	char text[VB_ERROR_TEXT];
};

struct vb_status_lane {
	uint32_t lane;
	int32_t pid;
	uint32_t uid;
	uint16_t ngids;
	uint8_t reserved, zero;
	char comm[16];
};

struct vb_msg_status_part {
	struct vb_msg_head head;
	uint32_t n, zero;
	struct vb_status_lane lanes[VB_STATUS_CHUNK];
};

struct vb_msg_status_end {
	struct vb_msg_head head;
	uint64_t attaches, refused, bad_messages, deaths, meets, introductions;
};

struct vb_msg_roce_reply {
	struct vb_msg_head head;
	int32_t err;
	uint32_t nlanes;     /* sockets in the group: lane 0 has the first, the others share the rest */
	uint32_t holder_uid; /* with EADDRINUSE: whose the port is, where holder_known */
	uint8_t holder_known, relayed, zero[2];
};

/* A multicast group of the lane's, on an interface: joined, or left. */
struct vb_msg_roce_group {
	struct vb_msg_head head;
	uint8_t group[16];
	uint32_t ifindex;
	uint8_t join, zero[3];
};

#define VB_RELAY_CHANNEL (4 << 20) /* bytes that may wait in a channel */

/* In front of datagrams that are relayed. What follows are packets of seg bytes each, the last perhaps shorter. */
struct vb_relay_head {
	uint8_t src[16], dst[16];
	uint16_t sport;
	uint8_t traffic_class, hop_limit;
	uint32_t flow_label, ifindex, seg;
	uint16_t id;     /* IPv4: of the first packet; the next have the next */
	uint8_t crowded; /* much more waits: who has no window has to be told */
	uint8_t zero[13];
};

/* Between queue pairs 1: local is the program's address in both directions. */
struct vb_msg_cm_mad {
	struct vb_msg_head head;
	uint8_t local[16], remote[16];
	uint32_t ifindex, zero; /* to the broker: of an address that needs one; from it: where it came in, 0: from this host */
	uint8_t mad[VB_CM_MAD];
};

/* A connection that the broker before knew from its messages: its peer is to be told when the program dies. */
struct vb_msg_cm_at_death {
	struct vb_msg_head head;
	uint8_t local[16], remote[16];
	uint32_t ifindex;
	uint32_t local_id, remote_id; /* local_id: not 0, and of the program's lane */
	uint32_t remote_qpn;
};

/* The number is the program's choice, and the same for a broker that comes after: one it has already is answered as if it
 * was new, so that everything may be said twice; reuse and v6_only are from then on what was said last. */
struct vb_msg_cm_bind {
	struct vb_msg_head head;
	uint32_t id;       /* not 0 */
	uint32_t ifindex;  /* 0: any */
	uint8_t local[16]; /* zeros: any address; an IPv4 one with v4_only, none of those with v6_only */
	uint16_t port_space, port; /* port 0: the broker chooses */
	uint8_t v4_only, reuse, listen, v6_only; /* listen: as if CM_LISTEN followed */
};

struct vb_msg_cm_binding {
	struct vb_msg_head head;
	uint32_t id, zero;
};

struct vb_msg_service_reply {
	struct vb_msg_head head;
	uint32_t id;
	int32_t err; /* ENOENT: CM_LISTEN for one that is not known; the others as in node/gsi.h */
	uint16_t port;
	uint8_t listening, zero[5];
};

/* The longest that either end ever sends; a longer one is cut by the kernel and refused. */
#define VB_MAX_MSG (sizeof(struct vb_msg_attach) + VB_MAX_GIDS * 16)

/* Both ends may have been compiled for different machines of one architecture (32 and 64 bits): nothing may be padded. */
static_assert(sizeof(struct vb_msg_head) == 8, "format");
static_assert(sizeof(struct vb_msg_attach) == 32, "format");
static_assert(sizeof(struct vb_msg_attached) == 32, "format");
static_assert(sizeof(struct vb_msg_set_gids) == 16, "format");
static_assert(sizeof(struct vb_msg_meet) == 40, "format");
static_assert(sizeof(struct vb_msg_meet_reply) == 40, "format");
static_assert(sizeof(struct vb_msg_error) == 16 + VB_ERROR_TEXT, "format");
static_assert(sizeof(struct vb_status_lane) == 32, "format");
static_assert(sizeof(struct vb_msg_status_part) == 16 + 32 * VB_STATUS_CHUNK, "format");
static_assert(sizeof(struct vb_msg_status_end) == 56, "format");
static_assert(sizeof(struct vb_msg_roce_reply) == 24, "format");
static_assert(sizeof(struct vb_msg_roce_group) == 32, "format");
static_assert(sizeof(struct vb_relay_head) == 64, "format");
static_assert(sizeof(struct vb_msg_cm_mad) == 304, "format");
static_assert(sizeof(struct vb_msg_cm_at_death) == 56, "format");
static_assert(sizeof(struct vb_msg_cm_bind) == 40, "format");
static_assert(sizeof(struct vb_msg_cm_binding) == 16, "format");
static_assert(sizeof(struct vb_msg_service_reply) == 24, "format");
static_assert(sizeof(struct vb_msg_status_part) <= VB_MAX_MSG, "fits");

#endif
