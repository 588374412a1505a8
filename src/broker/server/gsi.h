// gsi.h - queue pair 1 of this host: connection management datagrams between its programs, and theirs with others
// follows: IBA volume 1, 13.5 (general services); 12 (communication management)
// SPDX-License-Identifier: MIT
#ifndef VB_BROKER_SERVER_GSI_H
#define VB_BROKER_SERVER_GSI_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <sys/types.h>

#include "broker/server/services.h"

/* In the names gsi, the general services interface: what a program has of queue pair 1 is node/gsi.h's. */
struct vb_broker;
struct vb_session;
struct vb_gsi_member; /* a session's part, in session->gsi */
struct vb_gsi_roce;   /* the part of the network: gsi_wire.c */
struct vb_gsi_conns;  /* one program's connections: gsi_conns.c */

#define VB_GSI_LATE 64
#define VB_GSI_LATE_EACH 16 /* for one port */
#define VB_GSI_LATE_USER 16 /* for one user other than the broker's; an eighth is left by all of them */
#define VB_GSI_CLOSED 64
#define VB_GSI_CLOSED_USER 16

/*
 * Whom a datagram is for. One from an address of this host that the kernel confirms to another such, or from the network, is
 * for whoever has the port; one between addresses that only programs speak of stays among the programs of one user.
 */
struct vb_gsi_scope {
	bool one_user;
	uid_t uid;
};

/* What gsi_late.c remembers. */
struct vb_gsi_late {
	uint32_t n;
	struct vb_gsi_held {
		int64_t until;
		uint32_t lane; /* it is for, and not for a service; 0: for a service */
		bool charged;  /* to that user */
		uid_t payer;
		struct vb_gsi_scope scope;
		uint16_t port_space, port;
		struct vb_msg_cm_mad msg;
	} held[VB_GSI_LATE]; /* in the order they came */
	struct vb_gsi_closed {
		int64_t until; /* ms */
		uint16_t port;
		uid_t uid; /* whose it was */
	} closed[VB_GSI_CLOSED];
};

/* X(field, what a log says of it). */
#define VB_GSI_COUNTERS(X)                                               \
	X(sent, "sent")                                                  \
	X(received, "received")                                          \
	X(delivered, "delivered")                                        \
	X(answered, "answered for nobody")                               \
	X(malformed, "no datagram for queue pair 1")                     \
	X(icrc, "wrong ICRC")                                            \
	X(qkey, "wrong Q_Key or P_Key")                                  \
	X(nonsense, "no message of connection management")               \
	X(refused, "not taken by the network")                           \
	X(forged, "from what is not the program's")                           \
	X(overflow, "for a program that does not read")                  \
	X(absent, "for a program that is not there")

struct vb_gsi_counters {
#define X(field, text) uint64_t field;
	VB_GSI_COUNTERS(X)
#undef X
};

/* Made with the first member, and there until the broker ends. */
struct vb_gsi {
	uint32_t members, nmads; /* MADs that wait for them */
	struct vb_gsi_conns *gone; /* of programs that have ended */
	uint32_t gone_foreign, ngone_foreign; /* of users other than the broker's: so many of those, so many connections */
	struct vb_gsi_conns_user *users;
	struct vb_services services;
	struct vb_gsi_late late;
	struct vb_gsi_roce *roce; /* NULL: the broker has no part in the network */
	struct vb_gsi_counters counters;
};

/* A message of the types 0x20 to 0x3f. NULL, or what is wrong with it: the session is over. */
const char *vb_gsi_message(struct vb_broker *b, struct vb_session *s, uint8_t type, const void *msg, size_t len);
/* The program is no member any more: its bindings go, and the peers of its connections are told, unless it is the broker
 * that goes. Also for one that never was. */
void vb_gsi_leave(struct vb_broker *b, struct vb_session *s);
/* Is there a peer that is still to be told? */
bool vb_gsi_is_busy(const struct vb_broker *b);
/* All have left. */
void vb_gsi_close(struct vb_broker *b);
/* UDP port 4791 is ours, whether there are members or not; it is so no longer, and nobody takes it over from us. */
void vb_gsi_on_port(struct vb_broker *b);
void vb_gsi_off_port(struct vb_broker *b);

/* Is there something to send to it? Sends one message: 0 or as vb_session_send. */
bool vb_gsi_waiting(const struct vb_session *s);
int vb_gsi_send_next(struct vb_session *s);
/* It takes no more answers: it is not read. */
bool vb_gsi_is_full(const struct vb_session *s);

/* Something came by the network. */
void vb_gsi_readable(struct vb_broker *b);
/* Does what is due; when to call again, 0: need not be. */
int64_t vb_gsi_timer(struct vb_broker *b, int64_t now);

/* A MAD that came to an address of this host, to whomever it is for. m->ifindex 0: from this host. */
void vb_gsi_input(struct vb_broker *b, const struct vb_msg_cm_mad *m, const struct vb_gsi_scope *scope);

/* Does what a program of this user sends from local to remote stay on this host? Then *scope tells whom it is for. */
bool vb_gsi_is_here(const struct vb_broker *b, uid_t uid, const uint8_t local[16], const uint8_t remote[16],
                    struct vb_gsi_scope *scope);
/* From an address of ours to whoever has the other, for a program of this user. */
void vb_gsi_send_out(struct vb_broker *b, uid_t uid, const struct vb_msg_cm_mad *m);
/* The same where the way is known: scope NULL is by the network. */
void vb_gsi_send_to(struct vb_broker *b, const struct vb_gsi_scope *scope, const struct vb_msg_cm_mad *m);
/* By a program of the scope. One that wants its peers by the network alone announces nothing. */
bool vb_gsi_is_announced(const struct vb_broker *b, const struct vb_gsi_scope *scope, const uint8_t gid[16]);
/* Programs of the broker before us may not have told us yet what is theirs. */
bool vb_gsi_some_are_missing(const struct vb_broker *b);
/* To this member. */
void vb_gsi_to_member(struct vb_broker *b, uint32_t lane, const struct vb_msg_cm_mad *m, const struct vb_gsi_scope *scope);
/* A request, to who listens; false: nobody. */
bool vb_gsi_to_service(struct vb_broker *b, uint16_t port_space, uint16_t port, const struct vb_msg_cm_mad *m,
                       const struct vb_gsi_scope *scope);
/* … as is to be said then. */
void vb_gsi_refuse(struct vb_broker *b, const struct vb_msg_cm_mad *m, const struct vb_gsi_scope *scope);

/* gsi_late.c: a listener was closed; may this request for nobody wait for the next one; here it is; may this for a
 * program wait until it has come back; here it is; when to call again (0: need not be). */
void vb_gsi_late_closed(struct vb_broker *b, uid_t uid, uint16_t port);
bool vb_gsi_late_keep(struct vb_broker *b, uint16_t port_space, uint16_t port, const struct vb_msg_cm_mad *m,
                      const struct vb_gsi_scope *scope);
void vb_gsi_late_listening(struct vb_broker *b, uint16_t port_space, uint16_t port);
void vb_gsi_late_keep_for(struct vb_broker *b, uint32_t lane, const struct vb_msg_cm_mad *m, const struct vb_gsi_scope *scope);
void vb_gsi_late_returned(struct vb_broker *b, uint32_t lane);
int64_t vb_gsi_late_due(struct vb_broker *b, int64_t now);

/* Its program lives, but has not come back from the broker before us, or has not said yet that it is a member. */
bool vb_gsi_is_awaited(const struct vb_broker *b, uint32_t lane);

/* gsi_conns.c: what a program sends and gets, and what it says of its connections; *all is NULL at first. The
 * end of the program that had the lane; tell: the peers that are still connected, from vb_gsi_gone_due on. */
void vb_gsi_conns_sent(struct vb_gsi_conns **all, const struct vb_msg_cm_mad *m);
void vb_gsi_conns_received(struct vb_gsi *gsi, uid_t uid, struct vb_gsi_conns **all, const struct vb_msg_cm_mad *m);
void vb_gsi_conns_told(struct vb_gsi *gsi, uid_t uid, struct vb_gsi_conns **all, const struct vb_msg_cm_at_death *m);
void vb_gsi_conns_end(struct vb_broker *b, struct vb_gsi_conns *c, uint32_t lane, bool tell);
/* Has it, or had it lately, a connection with this id of that address? */
bool vb_gsi_conns_has(struct vb_gsi_conns *c, const uint8_t remote[16], uint32_t remote_id);
/* Tells a few of those who have not been told, or have not answered; when to call again, 0: need not be. */
int64_t vb_gsi_gone_due(struct vb_broker *b, int64_t now);
/* True: the answer to that. */
bool vb_gsi_gone_input(struct vb_gsi *gsi, const uint8_t remote[16], const uint8_t mad[VB_CM_MAD]);
void vb_gsi_gone_forget(struct vb_gsi *gsi);

/* gsi_wire.c. NULL where there is no memory, or this broker has no part in the network. */
struct vb_gsi_roce *vb_gsi_roce_new(struct vb_broker *b);
/* Does what is due; when to call again, 0: need not be. */
int64_t vb_gsi_roce_timer(struct vb_broker *b, struct vb_gsi_roce *w, int64_t now);
void vb_gsi_roce_free(struct vb_broker *b, struct vb_gsi_roce *w);
/* There is a member, a peer to hear from, or a program on the port. Stays open where that ends: as long as the port is ours,
 * who asks for a service is told at once that there is none. */
void vb_gsi_roce_open(struct vb_broker *b, struct vb_gsi_roce *w);
/* There is neither member nor peer: a port that we have not got is not looked for any more. */
void vb_gsi_roce_rest(struct vb_gsi_roce *w);
/* The group has ended with its keeper: our socket of it goes at once, and the next is asked for. */
void vb_gsi_roce_lost(struct vb_broker *b, struct vb_gsi_roce *w);
/* The broker ends, and leaves nothing to the next one. */
void vb_gsi_roce_shut(struct vb_broker *b, struct vb_gsi_roce *w);
/* False: it is lost. */
bool vb_gsi_roce_send(struct vb_gsi_roce *w, const uint8_t local[16], const uint8_t remote[16], uint32_t ifindex,
                      const uint8_t mad[VB_CM_MAD]);

#endif
