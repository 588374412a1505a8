// qp1.h - queue pair 1 of this host: connection management datagrams between its programs, and theirs with others
// follows: IBA volume 1, 13.5 (general services); 12 (communication management)
// SPDX-License-Identifier: MIT
#ifndef VB_BROKER_QP1_H
#define VB_BROKER_QP1_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "broker/services.h"

/* In the names gsi, the general services interface: what a program has of queue pair 1 is io/qp1.h's. */
struct vb_broker;
struct vb_session;
struct vb_gsi_member; /* a session's part, in session->gsi */
struct vb_gsi_wire;   /* the part of the network: qp1_wire.c */

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
	X(overflow, "for a program that does not read")                  \
	X(absent, "for a program that is not there")

struct vb_gsi_counters {
#define X(field, text) uint64_t field;
	VB_GSI_COUNTERS(X)
#undef X
};

/* Made with the first member, and there until the broker ends. */
struct vb_gsi {
	uint32_t members;
	struct vb_services services;
	struct vb_gsi_wire *wire; /* NULL: the broker has no part in the network */
	struct vb_gsi_counters counters;
};

/* A message of the types 0x20 to 0x3f. NULL, or what is wrong with it: the session is over. */
const char *vb_gsi_message(struct vb_broker *b, struct vb_session *s, uint8_t type, const void *msg, size_t len);
/* The program is no member any more; its bindings go. Also for one that never was. */
void vb_gsi_leave(struct vb_broker *b, struct vb_session *s);
/* All have left. */
void vb_gsi_close(struct vb_broker *b);

/* Is there something to send to it? Sends one message: 0 or as vb_session_send. */
bool vb_gsi_waiting(const struct vb_session *s);
int vb_gsi_send_next(struct vb_session *s);
/* It takes no more answers: it is not read. */
bool vb_gsi_is_full(const struct vb_session *s);

/* Something came by the network. */
void vb_gsi_readable(struct vb_broker *b);
/* Does what is due; when to call again, 0: need not be. */
int64_t vb_gsi_timer(struct vb_broker *b, int64_t now);

/* A MAD that came to an address of this host, to whomever it is for. ifindex 0: from this host. */
void vb_gsi_input(struct vb_broker *b, const uint8_t local[16], const uint8_t remote[16], uint32_t ifindex,
                  const uint8_t mad[VB_CM_MAD]);

/* qp1_wire.c. NULL where there is no memory, or this broker has no part in the network. */
struct vb_gsi_wire *vb_gsi_wire_new(struct vb_broker *b);
void vb_gsi_wire_free(struct vb_broker *b, struct vb_gsi_wire *w);
/* The first member has come; the last has gone. */
void vb_gsi_wire_open(struct vb_broker *b, struct vb_gsi_wire *w);
void vb_gsi_wire_shut(struct vb_broker *b, struct vb_gsi_wire *w);
/* False: it is lost. */
bool vb_gsi_wire_send(struct vb_gsi_wire *w, const uint8_t local[16], const uint8_t remote[16], uint32_t ifindex,
                      const uint8_t mad[VB_CM_MAD]);

#endif
