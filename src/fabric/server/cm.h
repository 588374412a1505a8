// cm.h - queue pair 1 of a port as connection management uses it: the programs that share it, their services, their connections
// follows: IBA volume 1, 12 (communication management), 13.5.3; annex A11 (RDMA IP CM service)
// SPDX-License-Identifier: MIT
#ifndef VB_FABRIC_SERVER_CM_H
#define VB_FABRIC_SERVER_CM_H

#include "engine/cm/cm.h"
#include "fabric/server/server.h"

struct cm_bound;
struct cm_conns;
struct cm_member;

/* Which subnet manager a port has: another one, or one that asks for it, hears of memberships again. */
struct cm_manager {
	uint32_t reregisters;
	uint16_t lid;
};

/* The connection manager of one program. */
struct cm {
	struct server *server;
	struct cm *next, **at;
	struct client *client;
	struct vb_fabric_port *port;
	uint32_t lane;
	struct cm_bound *bound;
	struct cm_conns *conns; /* NULL: it has had none */
	struct cm_member *members;
	struct cm_manager joined_for; /* the manager that knows of the members */
	unsigned agent;               /* of its questions to the subnet administrator */
};

/* Sends from this port to the one that m names. False: the port has no such P_Key. */
bool cm_transmit(struct vb_fabric_port *p, const struct vb_fabric_cm_mad *m);

void cm_give(struct cm *cm, const struct vb_fabric_cm_mad *m);
/* Answers as a host's connection manager that has no such service or connection. None of these answers causes another. */
void cm_refuse(struct vb_fabric_port *p, const struct vb_fabric_cm_mad *m);
/* The program that listens for this request; NULL: none. */
struct cm *cm_listener(const struct server *s, const struct vb_fabric_port *p, const struct vb_cm_route_info *info);
/* Has a program a binding there that does not listen yet? */
bool cm_may_listen(const struct server *s, const struct vb_fabric_port *p, const struct vb_cm_route_info *info);

/* --- cm_late.c: requests that come between the close of a listener and the start of the next one --- */

/* This number's listener is closed. */
void cm_late_closed(struct server *s, const struct vb_fabric_port *p, uint16_t number);
/* Keeps a request that nobody listens for. False: it need not wait, or too many do. */
bool cm_late_keep(struct server *s, struct vb_fabric_port *p, const struct vb_cm_route_info *info,
                  const struct vb_fabric_cm_mad *m);
/* A program of this port listens. */
void cm_late_listening(struct server *s, const struct vb_fabric_port *p);

/* --- cm_conns.c: the connections of a program, as its datagrams show them: when it ends, its peers get a DREQ --- */

void cm_conns_sent(struct cm *cm, const struct vb_fabric_cm_mad *m);
void cm_conns_received(struct cm *cm, const struct vb_fabric_cm_mad *m);
/* Has, or had it lately, a connection with this id of that port? */
bool cm_conns_has(const struct cm *cm, uint16_t lid, uint32_t remote_id);
/* The program has ended. */
void cm_conns_end(struct cm *cm);

/* --- cm_members.c: the multicast groups that a program has joined: it joins them again for a new
 * subnet manager, and when the program ends, its port leaves them --- */

/* Asks the subnet administrator; cm.c. Returns an errno. */
int cm_ask(struct cm *cm, const uint8_t mad[VB_MAD_LEN], uint32_t timeout_ms);
/* Notes a question of the program. False: it is not to be asked. There is no memory for a join, or the group that it
 * leaves still has members among the programs of its port. */
bool cm_members_ask(struct cm *cm, const uint8_t mad[VB_MAD_LEN]);
/* An answer of the subnet administrator. True: it is none for the program. */
bool cm_members_answered(struct cm *cm, int error, const uint8_t *mad, size_t len);
struct cm_manager cm_manager_of(const struct vb_fabric_port *p);
/* Makes the joins again that are due: the port has another subnet manager, or one that asks for it. */
void cm_members_time(struct cm *cm);
uint64_t cm_members_deadline(const struct cm *cm);
/* The program has ended. */
void cm_members_end(struct cm *cm);

#endif
