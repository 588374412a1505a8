// proto.h - messages between a program and its broker, and all limits of the broker
// follows: unix(7), SOCK_SEQPACKET: one message per datagram. Both ends run on one host, so the structs are the format.
// SPDX-License-Identifier: MIT
#ifndef VB_BROKER_PROTO_PROTO_H
#define VB_BROKER_PROTO_PROTO_H

#include <assert.h>
#include <stdbool.h>
#include <stdint.h>

#include "util/lane.h"

#define VB_PROTO_VERSION 2

#define VB_FOREIGN_LANES 512 /* upper half: programs of users other than the broker's get these first */

#define VB_MAX_GIDS 256
#define VB_MAX_PENDING 64      /* connections that have not sent ATTACH yet */
#define VB_MAX_PENDING_EACH 16 /* the same, for one user other than the broker's */
#define VB_LANES_OWN 64        /* lanes kept for the broker's own user */
#define VB_QUARANTINE_MS \
	60000                 /* a lane stays with its last user for this long: packets for it may still be in flight */
#define VB_QUARANTINE_EACH 64 /* after this many quarantined lanes a user gets his own quarantined lanes again */
#define VB_MAX_SESSIONS (VB_LANE_COUNT - 1 + VB_MAX_PENDING)
#define VB_MAX_ANSWERS 64  /* unread MEET replies of one program; at this many the broker stops reading its requests */
#define VB_MAX_PARKED 4096 /* MEETs that wait for a program to reattach to a restarted broker, all programs together */
#define VB_MAX_PARKED_EACH 256 /* the same, for one program */
#define VB_STATUS_CHUNK 32     /* lanes in one status message */
#define VB_MAX_FDS 4           /* descriptors in one message */
#define VB_MAX_SEG_BYTES (1ull << 40)
#define VB_MAX_BELL_BYTES (16ull << 20)
#define VB_SEND_BUFFER 8192        /* per program: bounds what the kernel queues for a stopped one */
#define VB_SEND_BUFFER_OTHERS 2304 /* of a user other than the broker's: the kernel's minimum */
#define VB_ERROR_TEXT 88
#define VB_CM_MAD 256
#define VB_MAX_SERVICE_REPLIES \
	64 /* unread SERVICE_REPLYs of one program; at this many the broker stops reading its requests */
#define VB_MAX_BINDINGS_EACH 16384
#define VB_MAX_BINDINGS (1u << 18)

#define VB_ROCE_EACH_MS 100   /* least interval between two ROCE requests of another user's program */
#define VB_GROUP_CHANGES 4096 /* joins and leaves of multicast groups that one program of another user may do */
#define VB_PENDING_MS 5000    /* a connection must send ATTACH within this */
#define VB_GRACE_MS 3000      /* a new broker waits this long for its first program */
#define VB_LINGER_MS 200      /* a broker exits this long after the last program has left */
#define VB_FOREIGN_MS 10000   /* a lane is reserved this long for a holder whose pid cannot be watched */
#define VB_STALL_MS 50        /* pause after accept or send failed for lack of descriptors */
#define VB_STARTED_MS 3000    /* a program waits this long for the broker it has started */
#define VB_ATTACHING_MS 2000  /* a program waits this long for ATTACHED */

/*
 * The index of a lane's socket in a group of n sockets. Lane 0 is the broker's, which passes no packets on: it shares its
 * socket with no other lane. If there are fewer sockets than lanes, a group that serves several users (split) has one half for
 * its own user's programs and one for relayed programs. The filter of broker/server/lanes.c computes the same.
 */
static inline uint32_t vb_lane_socket(uint32_t n, bool split, uint32_t lane)
{
	uint32_t half = n / 2;

	if (n == VB_LANE_COUNT || !lane)
		return lane;
	if (!split)
		return 1 + (lane - 1) % (n - 1);
	return lane < VB_FOREIGN_LANES ? 1 + (lane - 1) % (half - 1) : half + lane % half;
}

/* Numbers are never reused. Messages from the broker have the top bit set. */
enum vb_msg_type {
	VB_MSG_ATTACH = 0x01,   /* vb_msg_attach, ngids × 16 bytes; descriptors: seg, doorbell, wake */
	VB_MSG_SET_GIDS = 0x02, /* vb_msg_set_gids, n × 16 bytes */
	VB_MSG_MEET = 0x03,
	VB_MSG_STATUS = 0x04, /* the head alone */
	VB_MSG_DETACH = 0x05, /* the head alone. A program that leaves without it counts as dead */
	VB_MSG_ROCE = 0x10,   /* the head alone: asks for the receiving socket of the program's lane */
	/* vb_msg_roce_group, from programs whose datagrams are relayed, or that share a socket. No answer, but the latter are
	 * introduced to each other, and, when one of them ends, to themselves */
	VB_MSG_ROCE_GROUP = 0x11,
	VB_MSG_CM_OPEN = 0x20,     /* the head alone: the program takes part in queue pair 1. No answer */
	VB_MSG_CM_CLOSE = 0x21,    /* the head alone: the program leaves queue pair 1, its bindings end. No answer */
	VB_MSG_CM_SEND = 0x22,     /* vb_msg_cm_mad */
	VB_MSG_CM_AT_DEATH = 0x23, /* vb_msg_cm_at_death. No answer */
	VB_MSG_CM_BIND = 0x30,     /* vb_msg_cm_bind; answered by SERVICE_REPLY */
	VB_MSG_CM_LISTEN = 0x31,   /* vb_msg_cm_binding; answered by SERVICE_REPLY */
	VB_MSG_CM_UNBIND = 0x32,   /* vb_msg_cm_binding. No answer */

	VB_MSG_ATTACHED = 0x81,
	VB_MSG_MEET_REPLY = 0x82, /* descriptors if err is 0: seg, doorbell, wake, pidfd */
	VB_MSG_INTRODUCED = 0x83, /* vb_msg_meet_reply with tag 0; the same descriptors */
	VB_MSG_ERROR = 0x84,      /* the last message: the broker closes the connection. EAGAIN: try again later */
	VB_MSG_STATUS_PART = 0x85,
	VB_MSG_STATUS_END = 0x86,
	/* Descriptors if err is 0: the lane's socket and the writing end of the lifeline. Relayed: one
	 * SOCK_SEQPACKET socket, on which each datagram follows a vb_relay_head. */
	VB_MSG_ROCE_REPLY = 0x90,
	VB_MSG_CM_RECV = 0xa0, /* vb_msg_cm_mad */
	VB_MSG_SERVICE_REPLY = 0xb0,
};

struct vb_msg_head {
	uint8_t type, version;
	uint16_t zero;
	uint32_t len; /* of the whole message */
};

struct vb_msg_attach {
	struct vb_msg_head head;
	uint32_t lane; /* 0, or the lane that the program held before */
	uint32_t ngids;
	uint64_t incarnation; /* of that lane; 0 without one */
	uint64_t network;     /* inode number of the program's network namespace; 0: unknown */
};

struct vb_msg_attached {
	struct vb_msg_head head;
	uint32_t lane, zero;
	uint64_t incarnation;
	uint64_t network; /* inode number of the broker's network namespace; 0: unknown */
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
	uint32_t holder_uid; /* if holder_known: the user who holds the UDP port (err EADDRINUSE) */
	uint8_t holder_known, relayed;
	uint8_t split; /* the group serves several users: lanes below VB_FOREIGN_LANES have its first half */
	uint8_t zero;
};

/* The lane joins or leaves a multicast group on an interface. */
struct vb_msg_roce_group {
	struct vb_msg_head head;
	uint8_t group[16];
	uint32_t ifindex;
	uint8_t join, zero[3];
};

#define VB_RELAY_CHANNEL (4 << 20) /* send buffer of a relay channel, in bytes */

/* Precedes each relayed datagram. Packets of seg bytes each follow; the last one may be shorter. */
struct vb_relay_head {
	uint8_t src[16], dst[16];
	uint16_t sport;
	uint8_t traffic_class, hop_limit;
	uint32_t flow_label, ifindex, seg;
	uint16_t id; /* IPv4 identification of the first packet; each further packet adds one */
	uint8_t crowded; /* the receive queue fills faster than it is read: unreliable connections must be told to slow down */
	uint8_t zero[13];
};

/* A MAD of queue pair 1. local is the program's address in both directions. */
struct vb_msg_cm_mad {
	struct vb_msg_head head;
	uint8_t local[16], remote[16];
	uint32_t ifindex,
	        zero; /* to the broker: for a link-local address; from it: the receiving interface, 0: sent on this host */
	uint8_t mad[VB_CM_MAD];
};

/* A connection that an earlier broker knew from its MADs. The broker sends its peer a DREQ if the program dies. */
struct vb_msg_cm_at_death {
	struct vb_msg_head head;
	uint8_t local[16], remote[16];
	uint32_t ifindex;
	uint32_t local_id, remote_id; /* local_id is not 0 and has the program's lane */
	uint32_t remote_qpn;
};

/* The program chooses id, and repeats its bindings to a restarted broker with the same ids. A known id is answered as
 * if it were new; reuse and v6_only are updated to the latest message. */
struct vb_msg_cm_bind {
	struct vb_msg_head head;
	uint32_t id;               /* not 0 */
	uint32_t ifindex;          /* 0: any */
	uint8_t local[16];         /* zeros: any address; v4_only: any IPv4 address; v6_only: any IPv6 address */
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
	int32_t err; /* ENOENT: CM_LISTEN of an unknown id; other values: see node/gsi.h */
	uint16_t port;
	uint8_t listening;
	uint8_t no_socket; /* queue pair 1 has no socket of UDP port 4791: other hosts cannot reach the binding */
	uint8_t zero[4];
};

/* The longest message of either end. The kernel truncates longer ones, and they are refused. */
#define VB_MAX_MSG (sizeof(struct vb_msg_attach) + VB_MAX_GIDS * 16)

/* Programs of 32 and 64 bits use one broker: no struct may have padding. */
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
