// fixture.h - two tables of connections, the datagrams between them, and the events of their owners
// SPDX-License-Identifier: MIT
#ifndef VB_TEST_CM_FIXTURE_H
#define VB_TEST_CM_FIXTURE_H

#include "../../support/check.h"
#include "engine/cm/cm.h"

enum { PLACES = 8, LANE_A = 5, LANE_B = 1023, QPN_A = 0x00a001, QPN_B = 0x00b001, MAX_MAIL = 64, MAX_EVENTS = 64 };

struct told {
	enum vb_cm_event_kind kind;
	struct vb_cm_conn *conn;
	struct vb_cm_msg msg;
};

struct mail {
	struct end *to;
	struct vb_cm_addr from; /* as the receiver sees it */
	uint8_t mad[VB_MAD_LEN];
};

struct end {
	struct vb_cm cm;
	struct vb_cm_conn conns[PLACES];
	struct end *other;
	uint16_t admit;       /* answer to the next REQ or SIDR_REQ */
	bool destroy_in_call; /* each event ends its connection */
	struct told told[MAX_EVENTS];
	int events, seen;
};

/* a connects, and b listens. */
extern struct end a, b;
extern struct mail mail[MAX_MAIL];
extern int mails;
extern uint64_t now;
extern const struct vb_cm_addr a_to_b;

void start(void);
struct vb_cm_req a_req(void);
struct vb_cm_rep b_rep(void);
/* Delivers the oldest datagram, which must be this message, and returns it. */
struct vb_cm_msg deliver(enum vb_cm_attr attr);
/* Discards the oldest datagram. */
struct vb_cm_msg lose(enum vb_cm_attr attr);
/* Delivers bytes to an end, as if from the other end. */
void forge(struct end *to, const struct vb_cm_msg *msg);
/* The next event of the end must be this one. */
struct told *expect(struct end *e, enum vb_cm_event_kind kind);
/* There are no other events or datagrams. */
void nothing_more(void);
/* Advances to the next deadline of the end. */
void wait_for(struct end *e);
/* The connections of a and b, both ESTABLISHED unless b is told otherwise. */
void establish(struct vb_cm_conn **at_a, struct vb_cm_conn **at_b);

#endif
