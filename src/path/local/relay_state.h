// relay_state.h - what an XRC target knows of the processes to which it passes requests on
// see: docs/roce.md, "Extended reliable connections"
// SPDX-License-Identifier: MIT
#ifndef VB_PATH_LOCAL_RELAY_STATE_H
#define VB_PATH_LOCAL_RELAY_STATE_H

#include "engine/local/relay.h"

#define VB_RELAY_SLOT 0u /* of the result of an atomic: there is one at a time */

enum vb_guest_state {
	VB_GUEST_ASKED, /* the process is not met yet, or has not answered */
	VB_GUEST_OPEN,  /* it has a guest */
	VB_GUEST_NONE,  /* there is no such process, or it has not opened the XRC domain */
};

/* The way to one process. */
struct vb_way {
	struct vb_way *next;
	uint32_t lane;
	enum vb_guest_state state;
	union ibv_gid gid; /* an address of this host, by which the broker finds the process */
	struct vb_peer *peer;
	uint32_t guest, gen;
	struct vb_qp_shared *shared; /* the guest's */
	uint64_t sent, done;         /* records, and those of them that the guest has executed */
	uint32_t nak_seen;
	uint64_t asked; /* ns */
	uint64_t since; /* ns: when the process was first looked for */
};

/* A record that was passed on. */
struct vb_relay_entry {
	uint8_t type;
	uint32_t psn, slot;
	uint64_t count;
};

/* Data for the answer to a READ. */
struct vb_fetched {
	enum { VB_FETCH_NONE, VB_FETCH_ASKED, VB_FETCH_DONE } state;
	uint32_t srqn, key, length, got;
	uint64_t addr, record, request;
	uint32_t age;
};

/* All under progress. The lists change under sq_lock, too. */
struct vb_relay {
	struct vb_way *ways;
	struct vb_way *current; /* all records that are not executed yet went to one process, in order */
	struct vb_relay_entry entries[VB_RELAY_RECORDS];
	bool in_message;     /* the rest of a message follows */
	bool alone;          /* nothing is passed on until all before it is executed */
	bool dropped;        /* a request was dropped, and must be asked for */
	bool stalled;        /* a record waits in the ring from its requester */
	bool waits_for_data; /* the answer to a READ */
	uint64_t stalled_since;
	struct vb_fetched fetched;
	uint8_t data[VB_RELAY_READ];
};

/* The target is looked after within this time (ns). Under progress. */
void vb_relay_look(struct vb_qp *qp, uint64_t within);

/* A record about guests, between a target and a process of its domain. It is lost if there is no room: the target asks
 * again, and guests end without it. ext may be NULL. guest.c */
void vb_relay_say(struct vb_peer *peer, uint32_t dest, uint32_t src, uint32_t gen, const struct vb_rec_ext *ext);

#endif
