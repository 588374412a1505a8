// peer.h - another fabric process, which has a part of the nodes: its socket, its cables, what waits for it
// see: fabric/cable/cable.h; docs/infiniband.md, "Several hosts"
// SPDX-License-Identifier: MIT
#ifndef VB_FABRIC_SERVER_PEER_H
#define VB_FABRIC_SERVER_PEER_H

#include <sys/socket.h>

#include "fabric/cable/cable.h"
#include "fabric/server/server.h"

struct addrinfo;

#define PEER_PORT "4792"
#define PEER_TRAIN 32768 /* bytes of records that leave together */
#define PEER_SEEN 64

/* Records for one cable. */
struct train {
	struct train *next;
	struct vb_fabric_port *out;
	size_t len, packets;
	uint8_t records[PEER_TRAIN];
};

struct train_queue {
	struct train *first, *last;
	size_t bytes;
};

/* Our end of a cable. */
struct peer_end {
	struct vb_fabric_port *port;
	struct vb_fabric_end told; /* what the other end knows of it */
	struct vb_fabric_course course;
	uint64_t seen[PEER_SEEN]; /* datagrams to groups that have come in here lately */
	unsigned next_seen;
};

struct peer {
	struct peer *next;
	struct server *server;
	char host[256], port[8];
	const char *nodes; /* patterns */
	int fd;
	bool no_segments; /* the kernel does not cut for us */
	bool complained;
	uint64_t bad_versions,
	        other_topologies; /* what the cable had counted when the peer last was there, or was gone */
	struct vb_cable cable;
	struct peer_end *ends;
	size_t end_count, last_end;
	size_t datagram;           /* bytes of one, for the path */
	struct train_queue urgent; /* management, which waits for no credit */
	struct train_queue queue;
	bool is_awaited;      /* a program or a peer may wait until the queue has room */
	uint64_t stuck_until; /* the queue has waited for credit since a while before; 0: it does not wait */
	uint64_t held_until;  /* then it waits no longer, even if the peer says that it is held up */
	/* what comes in */
	unsigned came;          /* datagrams with packets since the other end was told */
	struct link *waits_for; /* what came waits there: no credit is given meanwhile */
	uint64_t waits_until;
	const struct peer *waits_way; /* so too: they go on to this one */
	size_t late;                  /* bytes that have come from it and are under way on links that take time */
	bool waits_late;              /* so too: these are too many */
	struct late_line line;        /* packets on their way to it that have no room in queue */
	struct link *run_to;          /* packets of run, which end there */
	size_t run_len;
	/* a guest */
	struct vb_fabric_node *guest; /* its channel adapter; NULL: a process that is always a peer */
	struct sockaddr_storage from;
	socklen_t from_len;
	uint64_t leave_at; /* if it is not there then */
	/* we are its guest */
	bool asks; /* with each HELLO: it may have forgotten us */
	uint8_t ask[VB_CABLE_ASK_LEN];
};

/* A socket for datagrams to the peer. from NULL: any address of ours. -1 with errno. */
int peer_socket(const struct addrinfo *to, const struct addrinfo *from);
/* Its socket, unless it has one, and its cable. 0, or -1 with a message on standard error. */
int peer_open(struct peer *p, const struct peer_settings *o, uint64_t digest);
/* Of one that is in no list. */
void peer_free(struct peer *p);

/* --- away.c --- */

/* Finds the ends of its cables. Returns why it cannot be, or NULL. */
const char *peer_find_ends(struct peer *p);
/* Of a text that describes a fabric. */
uint64_t topology_digest(const char *text, size_t len);

/* --- guest_self.c --- */

/* An answer, perhaps, to the question that goes with each HELLO. */
void guest_told(struct peer *p, const uint8_t *bytes, size_t len);

/* --- guest.c --- */

/* A question that has come in by this socket. */
void guests_asked(struct server *s, int fd, const uint8_t *bytes, size_t n, const struct sockaddr_storage *from,
                  socklen_t len);

/* --- peer_data.c --- */

/* Sends what waits, as far as there is credit. */
void peer_flush(struct peer *p);
/* Drops what waits. */
void peer_drop(struct peer *p);
/* So many bytes that have come from it more, or less, are late. */
void peer_is_late(struct peer *p, ssize_t bytes);
/* Is there room for packets that wait in its line? */
bool peer_has_room(const struct peer *p);
/* A packet waits in its line. */
void peer_lines_up(struct peer *p);
/* As in struct vb_cable_ops. */
bool peer_packet(void *own, uint64_t guid, uint8_t port, unsigned hops, uint8_t *bytes, size_t len);
/* All that has come in is with the programs; gives credit. */
void peer_came_end(struct peer *p);
struct peer_end *peer_end_at(struct peer *p, uint64_t guid, uint8_t port);
/* Sends these datagrams, each of p->datagram bytes but the last. */
void peer_transmit(struct peer *p, const uint8_t *bytes, size_t len);

/* --- group_packet.c: datagrams to groups as packets --- */

#define GROUP_PACKET_MOST (8 + 40 + 12 + 8 + 4 + VB_FABRIC_PAYLOAD + 4 + 2)
/* From LRH to VCRC. Returns its length. */
size_t group_encode(uint8_t bytes[GROUP_PACKET_MOST], const struct vb_fabric_datagram *d);
struct group_message {
	struct vb_fabric_data head;
	uint8_t payload[VB_FABRIC_PAYLOAD];
};
/* d->own becomes m. False: it is none, or its ICRC is wrong. */
bool group_decode(struct vb_fabric_datagram *d, struct group_message *m, const uint8_t *bytes,
                  const struct vb_link_packet *p);

#endif
