// proto.h - what programs and the fabric process say to each other, over a SOCK_SEQPACKET socket
// SPDX-License-Identifier: MIT
#ifndef VB_FABRIC_PROTO_PROTO_H
#define VB_FABRIC_PROTO_PROTO_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <sys/socket.h>
#include <sys/uio.h>

#include "frame/ib_port.h"

/*
 * Each message of a program begins with its verb. ATTACH makes a connection a umad port: from then on it carries SEND,
 * REGISTER and UNREGISTER, and what the program receives comes as struct vb_umad_head and the datagram. JOIN makes a
 * connection the verbs device's: from then on it carries COUNTS, WAY, FORGET, TRAFFIC, ATTACH_GROUP, DETACH_GROUP and DATAGRAM, and
 * what the program receives is struct vb_fabric_port_is after each change of the port, struct vb_fabric_way_is: the answer to
 * WAY, and after each change of that answer, struct vb_fabric_group_is: the answer to ATTACH_GROUP and DETACH_GROUP, and
 * struct vb_fabric_data with a payload. CM makes a connection the program's connection manager: from then on it carries
 * CM_SEND, CM_BIND, CM_LISTEN, CM_UNBIND and SA_ASK, and what the program receives is struct vb_fabric_cm_mad and
 * struct vb_fabric_sa_is: the answer to SA_ASK, or MEMBER_LOST. LINK makes a connection a port's link: after the reply each message, in both directions, is a
 * train: packets one behind the other, each from LRH to VCRC (frame/lrh.h), VB_FABRIC_TRAIN bytes at most. All other
 * verbs are asked on a connection of their own.
 */
enum vb_fabric_verb {
	VB_FABRIC_ATTACH = 0x76660001, /* reply: struct vb_fabric_reply */
	VB_FABRIC_REGISTER,            /* with a descriptor, on which the reply is sent */
	VB_FABRIC_UNREGISTER,          /* so too */
	VB_FABRIC_SEND,                /* no reply; with a descriptor: a memfd with the datagram */
	VB_FABRIC_CA,                  /* reply: struct vb_fabric_ca */
	VB_FABRIC_FILE, /* reply: the text of a file in /sys/class/infiniband/DEVICE; no path: their names */
	VB_FABRIC_ISSM, /* reply: a path; while it is open, the port is one of a subnet manager */
	VB_FABRIC_CTL,  /* reply: struct vb_fabric_reply, with a memfd of the text */
	VB_FABRIC_PORT, /* reply: struct vb_fabric_port_is */
	VB_FABRIC_JOIN, /* so too */
	VB_FABRIC_LINK, /* reply: struct vb_fabric_reply */
	VB_FABRIC_WAY,
	VB_FABRIC_FORGET,
	VB_FABRIC_TRAFFIC,
	VB_FABRIC_ATTACH_GROUP,
	VB_FABRIC_DETACH_GROUP,
	VB_FABRIC_DATAGRAM,
	VB_FABRIC_PORT_IS, /* to a program, as the next three */
	VB_FABRIC_WAY_IS,
	VB_FABRIC_GROUP_IS,
	VB_FABRIC_DATA,
	VB_FABRIC_ADDRESS, /* reply: struct vb_fabric_address of the IP address that is the path */
	VB_FABRIC_CM,      /* struct vb_fabric_cm_open; reply: struct vb_fabric_reply */
	VB_FABRIC_CM_SEND, /* struct vb_fabric_cm_mad; no reply */
	VB_FABRIC_CM_BIND, /* with a descriptor, on which the reply is sent; so the next two */
	VB_FABRIC_CM_LISTEN,
	VB_FABRIC_CM_UNBIND,
	VB_FABRIC_SA_ASK,  /* no reply but SA_IS */
	VB_FABRIC_CM_RECV, /* to a program, as the next two */
	VB_FABRIC_SA_IS,
	VB_FABRIC_MEMBER_LOST, /* struct vb_fabric_sa_is: a membership that a new subnet manager does not give again */
	VB_FABRIC_CAPTURE,     /* as CTL; then each message is a record of a file: server/capture.c */
	VB_FABRIC_COUNTS,      /* once on a connection of a verbs device */
	VB_FABRIC_KEEP,        /* reply: struct vb_fabric_reply. A guest's process stays while the asking one runs */
};

#define VB_FABRIC_NAME 68 /* of a node, with its end */
#define VB_FABRIC_PATH 128
#define VB_FABRIC_INLINE 65536 /* datagrams beyond this are in a memfd */
#define VB_FABRIC_MESSAGE (VB_FABRIC_INLINE + 256)
#define VB_FABRIC_TRAIN 65536
#define VB_FABRIC_CTL_MOST 65536 /* of a command */
#define VB_FABRIC_PORTS 9        /* of a CA that libibumad can show */
#define VB_FABRIC_DEVICE "ib0"   /* the name of the CA for programs */
#define VB_FABRIC_AGENTS 32      /* of a umad port */
#define VB_FABRIC_GROUPS 256     /* multicast groups of a program */
#define VB_FABRIC_PAYLOAD 4096   /* of a multicast datagram */

struct vb_fabric_ask { /* ATTACH, CA, FILE, ISSM, PORT, JOIN, ADDRESS, KEEP */
	uint32_t verb, port;
	char node[VB_FABRIC_NAME]; /* "": the first CA */
	char path[VB_FABRIC_PATH];
};

struct vb_fabric_link_ask { /* LINK: packets for queue pairs whose number, masked, is qpn */
	uint32_t verb, port, qpn, mask;
	char node[VB_FABRIC_NAME];
};

struct vb_fabric_register { /* UNREGISTER: agent alone */
	uint32_t verb, agent;
	uint8_t qpn, mgmt_class, class_version, rmpp_version;
	uint32_t oui, user_rmpp;
	uint64_t method_mask[2];
};

struct vb_fabric_reply {
	int32_t error; /* an errno */
	uint32_t agent;
};

/* What precedes a datagram, as the kernel's struct ib_user_mad_hdr: addresses in network order, the rest in host order.
 */
struct vb_umad_head {
	uint32_t agent, status, timeout_ms, retries, length;
	uint32_t qpn, qkey;
	uint16_t lid;
	uint8_t sl, path_bits, grh_present, gid_index, hop_limit, traffic_class;
	uint8_t gid[16];
	uint32_t flow_label;
	uint16_t pkey_index;
	uint8_t reserved[6];
};
_Static_assert(sizeof(struct vb_umad_head) == 64, "struct ib_user_mad_hdr");

struct vb_fabric_send {
	uint32_t verb, len; /* len: of the datagram in the memfd, 0: it follows */
	struct vb_umad_head head;
};

struct vb_fabric_ca_port {
	uint64_t guid, prefix;
	uint32_t lid, lmc, sm_lid, sm_sl, state, phys, rate, cap_mask;
	uint32_t pkeys;
	uint16_t pkey[64];
};

struct vb_fabric_ca {
	int32_t error;
	uint32_t type, ports;
	uint64_t guid, system_guid;
	char name[20], fw_ver[20], hca_type[40], hw_rev[20];
	struct vb_fabric_ca_port port[VB_FABRIC_PORTS + 1];
};

/* --- the verbs device --- */

#define VB_FABRIC_PORT_PARTS 1u /* the fabric has several processes: datagrams go as packets */

struct vb_fabric_port_is {
	uint32_t verb;
	int32_t error; /* an errno; port is unspecified then */
	uint32_t flags, reserved;
	struct vb_ib_port port;
};

#define VB_FABRIC_WAY_GRH 1u
#define VB_FABRIC_WAY_BOTH 2u /* answers come back: of reliable queue pairs */

struct vb_fabric_way_ask {   /* FORGET: tag alone. A tag that is known already is asked anew. */
	uint32_t verb, tag;  /* tag: below VB_FABRIC_WAYS */
	uint16_t dlid, pkey; /* pkey 0: none is checked */
	uint8_t path_bits, flags, sl, reserved;
	uint8_t dgid[16];
};

struct vb_fabric_way_is {
	uint32_t verb, tag;
	uint32_t why; /* enum vb_fabric_why; 0: it is open */
	uint16_t slid;
	uint8_t path_bits;   /* of the receiver's LID */
	uint8_t mtu;         /* the smallest on the way, as in PortInfo */
	uint8_t address[16]; /* of the port at its end; unspecified unless the way is open */
};

/* COUNTS, with a sealed memfd of a struct vb_ib_traffic_map; and TRAFFIC: something there has grown. No replies. */
struct vb_fabric_counts {
	uint32_t verb, reserved;
};

struct vb_fabric_group { /* ATTACH_GROUP, DETACH_GROUP: one queue pair more, or less */
	uint32_t verb, tag;
	uint16_t mlid, reserved[3];
	uint8_t mgid[16];
};

struct vb_fabric_group_is {
	uint32_t verb, tag; /* tag: of the question */
	int32_t error;      /* an errno */
	uint32_t reserved;
};

#define VB_FABRIC_DATA_IMM 1u
#define VB_FABRIC_DATA_SOLICITED 2u

/* DATAGRAM, from the sender, and DATA, to a receiver: a multicast datagram. Its payload follows. */
struct vb_fabric_data {
	uint32_t verb, length; /* length: of the payload, VB_FABRIC_PAYLOAD at most */
	uint32_t src_qpn, qkey;
	uint32_t imm;              /* as the program has it, if flags have VB_FABRIC_DATA_IMM */
	uint16_t slid, dlid, pkey; /* slid: 0 in DATAGRAM */
	uint8_t sl, path_bits;     /* path_bits: of the sender's LID */
	uint8_t flags, reserved[3];
	uint8_t grh[40];
};
_Static_assert(sizeof(struct vb_fabric_data) == 72, "the payload is aligned to 8");

/* --- connection management: the queue pair 1 of a port, which its programs share --- */

/* Whose an IP address is: the fabric's table of names stands for IPoIB's address resolution. */
struct vb_fabric_address {
	int32_t error; /* an errno: EINVAL, EHOSTUNREACH (it is not in the table), ENODEV */
	uint32_t is_own;
	uint8_t gid[16]; /* of the port that has it */
	uint8_t own[16]; /* the first address that the asking CA has of this family; zeros: none */
};

struct vb_fabric_cm_open {
	uint32_t verb, lane; /* lane: the ten high bits of the program's communication ids; EBUSY: another one has it */
	char node[VB_FABRIC_NAME];
};

struct vb_fabric_cm_mad { /* CM_SEND, CM_RECV. The address is the other end's; path_bits are those of our LID */
	uint32_t verb;
	uint16_t lid, pkey;
	uint8_t sl, path_bits, reserved[6];
	uint8_t mad[256];
};

#define VB_FABRIC_CM_REUSE 1u /* as SO_REUSEADDR: allowed while no one listens */

struct vb_fabric_cm_bind {   /* LISTEN, UNBIND: id alone. The reply's agent is the port */
	uint32_t verb, id;   /* id: the program's; a known one: its flags change */
	uint16_t port_space; /* enum rdma_port_space */
	uint16_t port;       /* 0: one is chosen */
	uint32_t flags;
	uint8_t address[16]; /* a GID, or an IP address; zeros: all */
};

struct vb_fabric_sa_ask {
	uint32_t verb, timeout_ms;
	uint8_t mad[256]; /* the high half of its transaction is replaced */
};

struct vb_fabric_sa_is {
	uint32_t verb;
	int32_t error; /* an errno: ETIMEDOUT; mad has a header alone then */
	uint8_t mad[256];
};

/* --- the program's end --- */

/* The socket and the node of VERBENA_FABRIC and VERBENA_NODE. NULL: no fabric; "": the first CA. */
const char *vb_fabric_socket(void);
const char *vb_fabric_node_name(void);

/* Returns a connected socket, or -1 with errno. */
int vb_fabric_connect_to(const char *path);
/* Sends a message in parts, with a descriptor if fd is not -1. Returns 0 or an errno. try: EAGAIN if it does not fit now. */
int vb_fabric_try(int sock, const struct iovec *parts, size_t count, int fd);
int vb_fabric_say_parts(int sock, const struct iovec *parts, size_t count, int fd);
int vb_fabric_say(int sock, const void *msg, size_t len, int fd);
/* The descriptor that came with a message, or -1. Closes all others that came. */
int vb_fabric_descriptor(struct msghdr *h);
/* Waits for a reply. fd, if it is not NULL: the descriptor that came with it, or -1. Returns its length, or -1 with errno.
 */
long vb_fabric_hear(int sock, void *reply, size_t size, int *fd);
/* Asks on a connection of its own. Returns the reply's length, or -1 with errno. */
long vb_fabric_ask(uint32_t verb, unsigned port, const char *file, void *reply, size_t size);

#endif
