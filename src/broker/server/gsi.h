// gsi.h - queue pair 1 of this host: MADs of connection management between its programs, and between them and other hosts
// follows: IBA volume 1, chapter 12 (communication management), section 13.5 (general services interface)
// SPDX-License-Identifier: MIT
#ifndef VB_BROKER_SERVER_GSI_H
#define VB_BROKER_SERVER_GSI_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <sys/types.h>

#include "broker/server/services.h"

/* gsi: the general services interface. A program's side of queue pair 1 is node/gsi.h. */
struct vb_broker;
struct vb_session;
struct vb_gsi_member; /* one program's part, in session->gsi */
struct vb_gsi_roce;   /* the RoCE side: gsi_roce.c */
struct vb_gsi_conns;  /* the connections of one program: gsi_conns.c */

#define VB_GSI_LATE 64
#define VB_GSI_LATE_EACH 16 /* for one port */
#define VB_GSI_LATE_USER 16 /* for one user other than the broker's. An eighth is kept for the broker's own user */
#define VB_GSI_CLOSED 64
#define VB_GSI_CLOSED_USER 16

/*
 * Which programs may get a MAD. If it came from the network, or the kernel confirms that both addresses are of this
 * host: any program. If only programs announce the addresses: the programs of one user.
 */
struct vb_gsi_scope {
	bool one_user;
	uid_t uid;
};

/* State of gsi_late.c. */
struct vb_gsi_late {
	uint32_t n;
	struct vb_gsi_held {
		int64_t until;
		uint32_t lane; /* the lane it waits for; 0: it waits for a service */
		bool charged;  /* it counts against payer's limit */
		uid_t payer;
		struct vb_gsi_scope scope;
		uint16_t port_space, port;
		struct vb_msg_cm_mad msg;
	} held[VB_GSI_LATE]; /* in the order of arrival */
	struct vb_gsi_closed {
		int64_t until; /* ms */
		uint16_t port;
		uid_t uid; /* the listener's user */
	} closed[VB_GSI_CLOSED];
};

/* X(field, its text in the log). */
#define VB_GSI_COUNTERS(X)                                                        \
	X(sent, "sent")                                                           \
	X(received, "received")                                                   \
	X(delivered, "delivered")                                                 \
	X(answered, "rejected, because no program has the service or connection") \
	X(malformed, "malformed, or not for queue pair 1")                        \
	X(icrc, "wrong ICRC")                                                     \
	X(qkey, "wrong Q_Key or P_Key")                                           \
	X(nonsense, "not a message of connection management")                     \
	X(refused, "not sent: address or network")                                \
	X(forged, "with an address or id that is not the program's")              \
	X(overflow, "dropped: its program does not read")                         \
	X(absent, "for a program that does not exist")

struct vb_gsi_counters {
#define X(field, text) uint64_t field;
	VB_GSI_COUNTERS(X)
#undef X
};

/* Created with the first member; freed when the broker exits. */
struct vb_gsi {
	uint32_t members, nmads;   /* MADs that wait to be sent to members */
	struct vb_gsi_conns *gone; /* connections of programs that have ended */
	uint32_t gone_foreign,
	        ngone_foreign; /* of users other than the broker's: programs in gone, and their connections */
	struct vb_gsi_conns_user *users;
	struct vb_services services;
	int ports_file; /* of vb_ephemeral_ports */
	struct vb_gsi_late late;
	struct vb_gsi_roce *roce; /* NULL: no RoCE (VB_LANES_NONE, or no memory) */
	struct vb_gsi_counters counters;
};

/* Handles a message of the types 0x20 to 0x3f. Returns NULL, or what is wrong with it: the caller then ends the
 * session. */
const char *vb_gsi_message(struct vb_broker *b, struct vb_session *s, uint8_t type, const void *msg, size_t len);
/* The program leaves queue pair 1: its bindings end, and the peers of its connections get a DREQ, unless the broker
 * itself stops. Does nothing for a program that is not a member. */
void vb_gsi_leave(struct vb_broker *b, struct vb_session *s);
/* True while peers of ended programs have not been told. */
bool vb_gsi_is_busy(const struct vb_broker *b);
/* Frees everything. No member is left. */
void vb_gsi_close(struct vb_broker *b);
/* This broker's keeper holds UDP port 4791: from now on the broker answers for queue pair 1, with or without
 * members. */
void vb_gsi_on_port(struct vb_broker *b);
/* The broker exits and no other takes over the port. */
void vb_gsi_off_port(struct vb_broker *b);

/* vb_gsi_waiting: is there a message for this program? vb_gsi_send_next sends one: 0 or as vb_session_send. */
bool vb_gsi_waiting(const struct vb_session *s);
int vb_gsi_send_next(struct vb_session *s);
/* True while the program has too many unread replies: the broker then does not read its requests. */
bool vb_gsi_is_full(const struct vb_session *s);

/* The RoCE socket is readable. */
void vb_gsi_readable(struct vb_broker *b);
/* Runs the timers that are due. Returns when to call again; 0: not needed. */
int64_t vb_gsi_timer(struct vb_broker *b, int64_t now);

/* Routes a MAD for an address of this host to its program. m->ifindex is 0 if it was sent on this host. */
void vb_gsi_input(struct vb_broker *b, const struct vb_msg_cm_mad *m, const struct vb_gsi_scope *scope);

/* True if MADs that this user's programs send from local to remote stay on this host. *scope then receives the users
 * that may get them. */
bool vb_gsi_is_here(const struct vb_broker *b, uid_t uid, const uint8_t local[16], const uint8_t remote[16],
                    struct vb_gsi_scope *scope);
/* Sends a MAD for a program of this user: to a program of this host, or to the network. */
void vb_gsi_send_out(struct vb_broker *b, uid_t uid, const struct vb_msg_cm_mad *m);
/* The same with a known destination: scope NULL is the network. */
void vb_gsi_send_to(struct vb_broker *b, const struct vb_gsi_scope *scope, const struct vb_msg_cm_mad *m);
/* True if a program within the scope announces this GID. A program that is to be reached by the network alone
 * announces none. */
bool vb_gsi_is_announced(const struct vb_broker *b, const struct vb_gsi_scope *scope, const uint8_t gid[16]);
/* True while programs of an earlier broker may not have repeated their bindings yet. */
bool vb_gsi_some_are_missing(const struct vb_broker *b);
/* Delivers to the program of this lane. */
void vb_gsi_to_member(struct vb_broker *b, uint32_t lane, const struct vb_msg_cm_mad *m,
                      const struct vb_gsi_scope *scope);
/* Delivers a request to the program that listens. False if no program does. */
bool vb_gsi_to_service(struct vb_broker *b, uint16_t port_space, uint16_t port, const struct vb_msg_cm_mad *m,
                       const struct vb_gsi_scope *scope);
/* Rejects such a request. */
void vb_gsi_refuse(struct vb_broker *b, const struct vb_msg_cm_mad *m, const struct vb_gsi_scope *scope);

/* Queues the answer to a binding. service: NULL if there is none. */
void vb_gsi_reply(struct vb_session *s, uint32_t id, int err, const struct vb_binding *service);

/* gsi_bind.c. CM_BIND; CM_LISTEN and CM_UNBIND. Return NULL, or what is wrong with the message. */
const char *vb_gsi_on_bind(struct vb_broker *b, struct vb_session *s, const void *msg, size_t len);
const char *vb_gsi_on_binding(struct vb_broker *b, struct vb_session *s, uint8_t type, const void *msg, size_t len);

/* gsi_late.c. A listener was closed. */
void vb_gsi_late_closed(struct vb_broker *b, uid_t uid, uint16_t port);
/* May this request, for which no program listens, wait for a listener? True: it is kept. */
bool vb_gsi_late_keep(struct vb_broker *b, uint16_t port_space, uint16_t port, const struct vb_msg_cm_mad *m,
                      const struct vb_gsi_scope *scope);
/* A program listens: delivers the requests that waited for it. */
void vb_gsi_late_listening(struct vb_broker *b, uint16_t port_space, uint16_t port);
/* Keeps a MAD for a program that was attached to an earlier broker and has not attached to this one yet. */
void vb_gsi_late_keep_for(struct vb_broker *b, uint32_t lane, const struct vb_msg_cm_mad *m,
                          const struct vb_gsi_scope *scope);
/* To be called when the program has attached: delivers the MADs kept for it. */
void vb_gsi_late_returned(struct vb_broker *b, uint32_t lane);
/* Rejects or drops MADs that have waited too long. Returns when to call again; 0: not needed. */
int64_t vb_gsi_late_due(struct vb_broker *b, int64_t now);

/* True while the lane's program has not come back from an earlier broker, or has not joined queue pair 1 again. */
bool vb_gsi_is_awaited(const struct vb_broker *b, uint32_t lane);

/* gsi_conns.c. Learns a program's connections from the MADs that it sends and receives, and from what it tells a new
 * broker. *all is NULL at first. */
void vb_gsi_conns_sent(struct vb_gsi_conns **all, const struct vb_msg_cm_mad *m);
void vb_gsi_conns_received(struct vb_gsi *gsi, uid_t uid, struct vb_gsi_conns **all, const struct vb_msg_cm_mad *m);
void vb_gsi_conns_told(struct vb_gsi *gsi, uid_t uid, struct vb_gsi_conns **all, const struct vb_msg_cm_at_death *m);
/* The program that had the lane has ended. tell: vb_gsi_gone_due then disconnects its peers. */
void vb_gsi_conns_end(struct vb_broker *b, struct vb_gsi_conns *c, uint32_t lane, bool tell);
/* True if the program has, or had lately, a connection with this id of that address. */
bool vb_gsi_conns_has(struct vb_gsi_conns *c, const uint8_t remote[16], uint32_t remote_id);
/* Sends DREQs to a few peers of ended programs that have not answered yet. Returns when to call again; 0: not
 * needed. */
int64_t vb_gsi_gone_due(struct vb_broker *b, int64_t now);
/* True if this MAD is a DREP to such a DREQ. */
bool vb_gsi_gone_input(struct vb_gsi *gsi, const uint8_t remote[16], const uint8_t mad[VB_CM_MAD]);
void vb_gsi_gone_forget(struct vb_gsi *gsi);

/* gsi_roce.c. NULL if there is no memory, or this broker has no RoCE (VB_LANES_NONE). */
struct vb_gsi_roce *vb_gsi_roce_new(struct vb_broker *b);
/* Runs the timers that are due. Returns when to call again; 0: not needed. */
int64_t vb_gsi_roce_timer(struct vb_broker *b, struct vb_gsi_roce *roce, int64_t now);
void vb_gsi_roce_free(struct vb_broker *b, struct vb_gsi_roce *roce);
/* Opens the broker's lane: there is a member, a peer to disconnect, or a program on the port. It stays open after
 * that: as long as the port is ours, requests for a service that does not exist are rejected at once. */
void vb_gsi_roce_open(struct vb_broker *b, struct vb_gsi_roce *roce);
/* There is neither a member nor a peer to disconnect: no more attempts to get a port that we do not have. */
void vb_gsi_roce_rest(struct vb_gsi_roce *roce);
/* The group of sockets has ended with its keeper: closes our socket of it at once, then asks for a new one. */
void vb_gsi_roce_lost(struct vb_broker *b, struct vb_gsi_roce *roce);
/* The broker exits and leaves nothing to a next one. */
/* True if there should be a socket, and there is none. */
bool vb_gsi_roce_lacks_socket(const struct vb_gsi_roce *roce);
void vb_gsi_roce_shut(struct vb_broker *b, struct vb_gsi_roce *roce);
/* False: the MAD was not sent. */
bool vb_gsi_roce_send(struct vb_gsi_roce *roce, const uint8_t local[16], const uint8_t remote[16], uint32_t ifindex,
                      const uint8_t mad[VB_CM_MAD]);

#endif
