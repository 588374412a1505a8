// fabric.h - a simulated InfiniBand subnet: switches, channel adapters, cables, and the datagrams between them
// follows: IBA volume 1, chapters 13 (management), 14 (subnet management), 16.1 (performance management)
// SPDX-License-Identifier: MIT
#ifndef VB_FABRIC_FABRIC_H
#define VB_FABRIC_FABRIC_H

#include "frame/ib_port.h"
#include "frame/lrh.h"
#include "frame/pma.h"
#include "frame/smp.h"

/*
 * No socket, no clock, no thread: calls bring datagrams and the time (ns, of any origin). Datagrams go from port to port
 * as the switches' tables say, within the call that brought them.
 */

#define VB_FABRIC_ID 64
#define VB_FABRIC_NODES_MOST 49000 /* the unicast LIDs of a subnet are 48 Ki */
#define VB_FABRIC_CA_PKEYS 64
#define VB_FABRIC_SWITCH_PKEYS 32
#define VB_FABRIC_GUIDS 8
#define VB_FABRIC_LFT_CAP 0xc000
#define VB_FABRIC_MFT_CAP 1024
#define VB_FABRIC_HOPS_MOST 64                     /* LID-routed switches on one way, then it is a loop */
#define VB_FABRIC_LINK_LOCAL 0xfe80000000000000ull /* the prefix of GIDs that every port has */

/* X(name): why a datagram was dropped. */
#define VB_FABRIC_DROPS(X) \
	X(no_link)         \
	X(not_active)      \
	X(no_route)        \
	X(hop_limit)       \
	X(bad_path)        \
	X(bad_class)       \
	X(bad_mkey)        \
	X(bad_pkey)        \
	X(bad_qkey)        \
	X(not_for_us)      \
	X(nobody)          \
	X(queue_full)      \
	X(bad_packet)      \
	X(bad_vcrc)        \
	X(bad_vl)          \
	X(too_long)

struct vb_fabric_drops {
#define X(name) uint64_t name;
	VB_FABRIC_DROPS(X)
#undef X
};

struct vb_fabric_packet {
	uint16_t slid, dlid, pkey;
	uint8_t sl, path_bits; /* path_bits: of the sender's LID */
	bool grh;
	uint8_t hop_limit, traffic_class;
	uint32_t flow_label;
	uint8_t sgid[16], dgid[16];
	uint32_t src_qpn, dst_qpn, qkey;
	uint8_t mad[VB_MAD_LEN];
};

/* A datagram of a queue pair to a multicast group. */
struct vb_fabric_datagram {
	uint16_t slid, dlid, pkey; /* dlid: the group's MLID */
	uint8_t sl;
	uint8_t crossings; /* cables between two processes that it has passed */
	uint32_t psn;      /* with slid and src_qpn it tells datagrams apart; vb_fabric_multicast fills it in */
	uint32_t src_qpn;
	uint32_t length;    /* of its payload */
	uint32_t bytes;     /* from LRH to ICRC */
	const uint8_t *grh; /* 40 bytes */
	const void *own;    /* the owner's */
};

struct vb_fabric_node;

/* What a cable costs packets of programs, out of one of its ends. */
struct vb_fabric_pace {
	uint32_t mbit;       /* Mb/s; 0: as many as come */
	uint64_t latency;    /* ns */
	uint64_t free_at;    /* ns: when all that was sent has left */
	uint64_t arrives_at; /* ns: when the last of it arrives */
};

struct vb_fabric_port {
	struct vb_fabric_node *node;
	struct vb_fabric_port *peer; /* the other end of the cable, NULL: none */
	struct vb_port_info info;    /* of port 0 of a switch too */
	struct vb_port_counters counters;
	uint64_t guid;
	uint64_t lease_end;          /* of the M_Key; 0: not running */
	uint32_t reregisters;        /* how often a Set has asked for it */
	uint32_t downs, heard_downs; /* how often its link has gone down; and the other end's, when it came up */
	/* tables that are made when they are first written; NULL: as after a reset */
	uint16_t *pkeys;
	uint64_t *guids;
	uint8_t *sl2vl;              /* 8 bytes for each input port (CA: one) */
	uint8_t *vl_arb;             /* 4 blocks of 64 bytes */
	struct vb_fabric_pace *pace; /* NULL: it costs no time */
	void *host;                  /* the programs on this port: the owner's */
	void *links;                 /* those that send and receive packets on it: so too */
	void *joined;                /* those that use it by their verbs device: so too */
	uint64_t group_turn;         /* the last multicast datagram that came in here */
	struct vb_fabric_port *group_next;
	uint8_t num;
	bool cut; /* the administrator has pulled the cable */
	bool led;
};

struct vb_fabric_switch {
	struct vb_switch_info info;
	uint8_t *lft; /* lft_len entries; beyond them: no route */
	size_t lft_len;
	uint16_t *mft; /* VB_FABRIC_MFT_CAP entries for each 16 ports */
};

/* A trap that is repeated until the subnet manager represses it. */
struct vb_fabric_trap {
	struct vb_notice notice;
	struct vb_fabric_port *port; /* it is sent from here */
	uint64_t due, tid;
	struct vb_fabric_trap *next;
};

struct vb_fabric_node {
	struct vb_fabric *fabric;
	char id[VB_FABRIC_ID];
	char desc[VB_SMP_DATA + 1];
	enum vb_node_type type;
	bool off;
	bool away; /* another process has it: its ports stand for the ends of cables alone */
	uint8_t ports;
	uint64_t guid, system_guid;
	uint32_t vendor_id;
	uint16_t device_id;
	struct vb_fabric_switch *sw;      /* NULL: a CA or a router */
	void *where;                      /* who has it, if it is away: the owner's */
	struct vb_fabric_node *next_same; /* of the same hash */
	struct vb_fabric_port port[];     /* ports + 1; a CA does not use port 0 */
};

/* What the owner of a fabric does. */
struct vb_fabric_ops {
	/* A datagram for this port, which may have no programs. Returns false if nobody takes it. It may send. */
	bool (*deliver)(void *own, struct vb_fabric_port *port, const struct vb_fabric_packet *packet);
	/* Is a queue pair on this port attached to the group of the datagram? */
	bool (*is_attached)(void *own, struct vb_fabric_port *port, const struct vb_fabric_datagram *d);
	/* A datagram for these queue pairs. It may not send. */
	void (*deliver_to_group)(void *own, struct vb_fabric_port *port, const struct vb_fabric_datagram *d);
	/* A management datagram, as a packet from LRH to VCRC, for the cable of a port whose other end is away. */
	void (*cross)(void *own, struct vb_fabric_port *out, const uint8_t *bytes, size_t len, unsigned hops);
	/* The same for a datagram to a group. */
	void (*cross_group)(void *own, struct vb_fabric_port *out, const struct vb_fabric_datagram *d);
	/* Counts what programs have sent in shared memory until now, if the owner knows of any. NULL: there is none. */
	void (*count)(void *own);
	/* While captures is not 0: a packet, from LRH to VCRC, passes the cable of a port, out of this end. */
	void (*show)(void *own, struct vb_fabric_port *out, const uint8_t *bytes, size_t len);
	/* The same for a datagram to a group. */
	void (*show_group)(void *own, struct vb_fabric_port *out, const struct vb_fabric_datagram *d);
};

struct vb_fabric {
	const struct vb_fabric_ops *ops;
	void *own;
	struct vb_fabric_node **nodes;
	size_t count, room;
	size_t away; /* nodes */
	struct vb_fabric_node *by_id[4096];
	struct vb_fabric_drops drops;
	uint64_t now, next_tid;
	struct vb_fabric_trap *traps;
	size_t trap_count;
	unsigned paces;      /* ports that have one */
	bool late_full;      /* the owner keeps no more packets that arrive later: they cost a link no time */
	unsigned captures;   /* the owner's: how many want to see what passes the cables */
	uint64_t changes;    /* grows with whatever may change a port or a way */
	uint64_t group_turn; /* counts multicast datagrams, from any number */
	uint64_t agents_due; /* no file of fabric/agent has anything to do before this time */
	/* datagrams that are under way: a ring, because one may cause others */
	struct vb_fabric_flight *queue;
	size_t queue_head, queue_len, queue_room;
	bool running;
};

struct vb_fabric *vb_fabric_new(const struct vb_fabric_ops *ops, void *own);
void vb_fabric_free(struct vb_fabric *f);

/* --- nodes and cables; all ports start Down --- */

/* Returns NULL if there is no memory. The id is not taken, guid is that of no other node: the caller has checked both.
 */
struct vb_fabric_node *vb_fabric_add(struct vb_fabric *f, enum vb_node_type type, const char *id, uint8_t ports,
                                     uint64_t guid);
/* By id, NodeDescription, or the first word of NodeDescription; a GUID as 0x… too. NULL: none, or several. */
struct vb_fabric_node *vb_fabric_find(const struct vb_fabric *f, const char *name);
struct vb_fabric_node *vb_fabric_by_id(const struct vb_fabric *f, const char *id);
struct vb_fabric_node *vb_fabric_by_guid(const struct vb_fabric *f, uint64_t guid);
/* The i-th port of a node, counted from 0 for a switch and from 1 for others. NULL: there is none. */
struct vb_fabric_port *vb_fabric_port(struct vb_fabric_node *n, unsigned num);
/* Both ends are free. The link does not come up before vb_fabric_train. */
void vb_fabric_connect(struct vb_fabric_port *a, struct vb_fabric_port *b);
/* Removes the nodes that were added last; `count` stay. Their links have not come up yet. */
void vb_fabric_remove_after(struct vb_fabric *f, size_t count);
/* Lets the links of all nodes come up that can. */
void vb_fabric_train_all(struct vb_fabric *f);

/* --- a fabric of several processes: each has all nodes, and simulates its own (cross.c) --- */

/* Another process has this node. Before its links come up. */
void vb_fabric_give_away(struct vb_fabric_node *n, void *where);
/* The same for a node that has been here, with links that are up. */
void vb_fabric_hand_over(struct vb_fabric_node *n, void *where);
/* It is here again, as after its power has come. */
void vb_fabric_take_back(struct vb_fabric_node *n);
/* What one end of a cable tells the other. */
struct vb_fabric_end {
	bool wants; /* it is not cut, not off, not disabled */
	uint8_t widths, speeds, ext_speeds;
	uint32_t downs;
};
struct vb_fabric_end vb_fabric_end_of(const struct vb_fabric_port *p);
/* What the other end of p's cable, which is away, tells. NULL: nothing is heard of it any more. */
void vb_fabric_end_told(struct vb_fabric_port *p, const struct vb_fabric_end *e);

enum vb_fabric_kind { VB_FABRIC_IS_MAD, VB_FABRIC_IS_GROUP, VB_FABRIC_IS_DATA };
/* Of a packet that is well formed but for its VCRC perhaps. */
enum vb_fabric_kind vb_fabric_kind_of(const struct vb_link_packet *p, const uint8_t *bytes);
/* A management datagram that comes in by the cable of a port whose other end is away. hops: switches that it has passed. */
void vb_fabric_arrive(struct vb_fabric_port *in, const uint8_t *bytes, const struct vb_link_packet *p,
                      enum vb_link_verdict verdict, unsigned hops);

/* --- what happens to a fabric --- */

/* The link to the peer comes up if nothing forbids it (cut, off, disabled), and goes down otherwise. */
void vb_fabric_train(struct vb_fabric_port *p);
void vb_fabric_cut(struct vb_fabric_port *p, bool cut);
void vb_fabric_switch_off(struct vb_fabric_node *n, bool off);
void vb_fabric_describe(struct vb_fabric_node *n, const char *desc);

/* --- datagrams --- */

/* From a program on a port of a CA, or from port 0 of a switch. */
void vb_fabric_send(struct vb_fabric_port *from, const struct vb_fabric_packet *packet);
/* Between the two calls, what is sent waits, so that nothing is delivered to a caller that is in the middle of a change.
 * Pass the first one's result to the second. */
bool vb_fabric_hold(struct vb_fabric *f);
void vb_fabric_let_go(struct vb_fabric *f, bool held);
void vb_fabric_time(struct vb_fabric *f, uint64_t now);
/* When vb_fabric_time must be called next; UINT64_MAX: never. */
uint64_t vb_fabric_deadline(const struct vb_fabric *f);

/* Whether this P_Key may talk on this port: 10.9.3. */
bool vb_fabric_pkey_matches(const struct vb_fabric_port *p, uint16_t pkey);
uint16_t vb_fabric_pkey(const struct vb_fabric_port *p, unsigned index);
unsigned vb_fabric_pkeys(const struct vb_fabric_port *p);
/* Replaces the table, as a subnet manager does: vb_fabric_pkeys(p) entries. False: no memory. */
bool vb_fabric_set_pkeys(struct vb_fabric_port *p, const uint16_t *table);

/* --- ways: what data that is not simulated packet by packet needs to know (way.c) --- */

struct vb_fabric_way_key {
	uint16_t dlid, pkey; /* pkey 0: no P_Key is checked */
	uint8_t path_bits;   /* of the sender's LID */
	uint8_t sl;          /* of answers too */
	bool grh, both;      /* both: answers must come back */
	uint8_t dgid[16];
};

/* The ports that a packet passes: out of one, into the next. */
struct vb_fabric_way {
	struct vb_fabric_port *port[2 * (VB_FABRIC_HOPS_MOST + 1)];
	unsigned ports;
	struct vb_fabric_port *end;
	uint8_t mtu; /* the smallest on the way, as in PortInfo */
};

/* way[1] is the way of the answers; it has no ports unless key->both. Both are unspecified if the way is not open. */
enum vb_fabric_why vb_fabric_find_way(struct vb_fabric_port *from, const struct vb_fabric_way_key *key,
                                      struct vb_fabric_way way[2]);
/* Counts packets that took a way, at all its ports, and turns the Armed ones Active that they came to. bytes: from LRH to
 * ICRC. */
void vb_fabric_count(struct vb_fabric_port *const *port, unsigned ports, uint64_t packets, uint64_t bytes);

/* --- multicast (mcast.c) --- */

/* Sends copies to all ports to which the switches' tables lead, and to the attached queue pairs of `from` itself, before it
 * returns. */
void vb_fabric_multicast(struct vb_fabric_port *from, struct vb_fabric_datagram *d);
/* Goes on with one that comes in by the cable of a port whose other end is away. */
void vb_fabric_multicast_on(struct vb_fabric_port *in, struct vb_fabric_datagram *d);

/* --- data, packet by packet (data.c) --- */

/* What the last packet of a sender met. All zeros at first. */
struct vb_fabric_course {
	uint64_t changes; /* of the fabric, plus one; 0: nothing is known */
	struct vb_lrh lrh;
	uint16_t pkey;
	uint32_t longest; /* bytes from LRH to ICRC that all ports take */
	struct vb_fabric_way way;
	unsigned hops; /* switches on it */
	uint8_t vl;    /* on the last link */
	uint64_t due;  /* ns: when the last packet arrives, if that is later than now; otherwise 0 */
};

/* A packet, well formed but for its VCRC perhaps (verdict), that a program sends on a port. Returns the port where it
 * ends, or leaves for another process (its node is away), or NULL: it was dropped. Counts it at all ports that it has
 * passed. Writes the VL of the last link into it. */
struct vb_fabric_port *vb_fabric_carry(struct vb_fabric_port *from, struct vb_fabric_course *c, uint8_t *bytes,
                                       const struct vb_link_packet *p, enum vb_link_verdict verdict);
/* Goes on with one that comes in by the cable of a port whose other end is away, after so many switches. */
struct vb_fabric_port *vb_fabric_carry_on(struct vb_fabric_port *in, struct vb_fabric_course *c, uint8_t *bytes,
                                          const struct vb_link_packet *p, enum vb_link_verdict verdict, unsigned hops);
/* False: no memory. Both 0: it has no pace any more, once what is on it has arrived. */
bool vb_fabric_set_pace(struct vb_fabric_port *p, uint32_t mbit, uint64_t latency);
/* Packets that did not fit a queue at the end of a way. */
void vb_fabric_discard(struct vb_fabric_port *end, uint64_t packets);

/* --- traps: those that a node makes by itself --- */

enum vb_fabric_trap_number {
	VB_TRAP_GID_IN = 64, /* 64 to 67 are made by the subnet manager */
	VB_TRAP_LINK_STATE = 128,
	VB_TRAP_LINK_INTEGRITY = 129,
	VB_TRAP_BUFFER_OVERRUN = 130,
	VB_TRAP_FLOW_CONTROL = 131,
	VB_TRAP_LOCAL_CHANGE = 144,
	VB_TRAP_BAD_MKEY = 256,
	VB_TRAP_BAD_PKEY = 257,
	VB_TRAP_BAD_QKEY = 258,
	VB_TRAP_SWITCH_PKEY = 259,
};

/* Sends the trap of a port now and then every second until it is repressed. One with the same number and port that is
 * already pending is not sent twice. */
void vb_fabric_trap(struct vb_fabric_port *p, unsigned trap);
/* details: VB_NOTICE_DETAILS bytes; NULL: what is known of the port alone. */
void vb_fabric_trap_about(struct vb_fabric_port *p, unsigned trap, const uint8_t *details);

#endif
