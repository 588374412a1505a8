// server.h - verbena-fabric: one process, one loop; its clients and what they may ask
// follows: man/verbena-fabric.8
// SPDX-License-Identifier: MIT
#ifndef VB_FABRIC_SERVER_SERVER_H
#define VB_FABRIC_SERVER_SERVER_H

#include <limits.h>
#include <stdarg.h>
#include <stdio.h>
#include <sys/types.h>

#include "fabric/agent/agent.h"
#include "fabric/fabric.h"
#include "fabric/proto/proto.h"

struct address;
struct capture;
struct client;
struct cm;
struct cm_late;
struct guests;
struct joined;
struct keep;
struct late;
struct late_due;
struct late_line;
struct link;
struct peer;

/* Multicast groups of a program, in no order. */
struct groups {
	struct group {
		uint32_t users; /* queue pairs */
		uint16_t mlid;
		uint8_t mgid[16];
	} * all;
	uint32_t count, room;
};

/* A file that a program opens to say that its port is a subnet manager's. */
struct issm {
	struct issm *next;
	struct vb_fabric_port *port;
	int watch;
	unsigned opened;
};

#define VB_FABRIC_CLOSED 64
#define VB_FABRIC_IP_HASH 4096

struct server {
	struct vb_fabric *fabric;
	int epoll, listener, inotify;
	int spare;          /* a descriptor, without which a program can be refused */
	uint64_t listen_at; /* the listener is not watched until then; 0: it is watched */
	uint64_t refused;   /* programs, for want of descriptors or memory */
	char path[PATH_MAX];
	char issm_dir[PATH_MAX];
	struct client *clients;
	struct joined *joined;
	struct cm *cms;
	uint64_t members_changes; /* of the fabric, when the memberships of all of them were looked at */
	uint64_t members_due;     /* when one of them is joined again; or earlier */
	size_t bound;             /* bindings of all of them */
	uint32_t next_ephemeral;  /* the port that is tried next */
	struct cm_late *late;     /* requests that wait for a listener */
	struct cm_closed {
		uint64_t until;
		const struct vb_fabric_port *port;
		uint16_t number;
	} closed[VB_FABRIC_CLOSED]; /* listeners that ended lately */
	unsigned next_closed;
	struct address *addresses;
	size_t address_count;
	uint32_t address_by_ip[VB_FABRIC_IP_HASH]; /* places in addresses, counted from 1; 0: none */
	uint64_t address_changes;
	size_t numbered;                    /* nodes that have been given an address of the network */
	uint32_t network_next, network_end; /* the next IPv4 address, and the broadcast address; 0: no network */
	struct link *links;
	uint64_t links_due; /* none of them has waited long enough before this time */
	struct late_heap {
		struct late_due *first; /* the one that arrives first; an array */
		size_t count, room;
		uint64_t turn; /* counts them */
	} late_heap;           /* packets under way */
	size_t late_bytes;
	struct capture *captures;
	uint64_t captures_lost; /* records that their readers were too slow for */
	struct peer *peers;     /* the other processes of the fabric */
	struct guests *guests;  /* NULL: there may be none */
	bool takes_guests;
	uint64_t strangers; /* those who wanted to be guests and have another secret */
	uint64_t linger;    /* ns: it ends when it has had no program for so long; 0: it stays */
	uint64_t idle_since;
	struct keep *keeps; /* programs that keep it, as if they were connected */
	size_t kept;
	uint64_t ways_told; /* how many were looked at when programs were told last */
	uint64_t changes_told,
	        tell_at;    /* what programs know of fabric->changes; when they hear of the rest, 0: nothing is new */
	uint8_t address[8]; /* of this process: the first half of all its ports' addresses */
	struct issm *issms;
	uint32_t next_tid;
	uint32_t next_join; /* counts the joins that are made again */
	uint64_t now;
	bool stop;
	uint64_t lost;   /* datagrams for programs that do not read */
	uint64_t forged; /* datagrams of connection management with ids that are not the program's */
};

uint64_t server_now(void); /* ns */

/* --- listener.c --- */

/* As many descriptors as this process may have: each program has two or three. */
void raise_files(void);
/* At s->path. -1: it has said why. */
int server_listen(struct server *s);
/* A program wants to connect. */
void listener_event(struct server *s);
/* It is watched again, if it was not for want of descriptors. */
void listener_time(struct server *s);
uint64_t listener_deadline(const struct server *s);
void listener_close(struct server *s);

/* --- client.c --- */
/* Takes the socket over. False: there is no memory, and it is closed. */
bool client_open(struct server *s, int fd);
/* What epoll said about a client's socket. */
void client_event(struct server *s, struct client *c, uint32_t events);
void clients_time(struct server *s);
uint64_t clients_deadline(const struct server *s);
void clients_close(struct server *s);
/* Has any of them a port of this node? */
bool node_has_programs(const struct server *s, const struct vb_fabric_node *n);
/* Its umad port. NULL: it has none. */
struct vb_agent_file *client_file(const struct client *c);
extern const struct vb_fabric_ops server_fabric_ops;

/* --- client_queue.c: messages to programs, and when their own are read --- */

/* Sends a message to the program, now or as soon as there is room. */
void client_post(struct client *c, const void *bytes, size_t len);
/* The same for a datagram, which is lost if too many bytes wait already. */
void client_post_datagram(struct client *c, const void *bytes, size_t len);
/* Do messages wait for room in its socket? */
bool client_is_behind(const struct client *c);
/* For links: sends the message now if it fits in the socket, or keeps it if no more than `most` bytes wait. False: neither. */
bool client_offer(struct client *c, const void *bytes, size_t len, size_t most);
/* Calls for each message that waits, which is then dropped. */
void client_drop_waiting(struct client *c, void (*each)(void *arg, const uint8_t *bytes, size_t len), void *arg);
/* Sends what waits, as far as its socket has room. False: nothing was sent. */
bool client_flush(struct client *c);
/* Stops reading from the program, or goes on. */
void client_pause(struct client *c, bool pause);

/* --- join.c: programs that use a port by its verbs device --- */

void join_show_port(const struct server *s, const struct vb_fabric_port *p, struct vb_fabric_port_is *is);
/* NULL: no memory. c gets the answer. */
struct joined *join_open(struct server *s, struct vb_fabric_port *p, struct client *c);
void join_close(struct joined *j);
/* The memory where the program counts what it sends. False: it is none, or the program has given some before. */
bool join_counts(struct joined *j, int fd);
/* Returns false if the message is none of ours. bytes is aligned to 8. */
bool join_take(struct joined *j, const void *bytes, size_t n);
/* The client is not behind any more: it is told what has changed meanwhile. */
void join_caught_up(struct joined *j);
/* Tells all programs what has changed, if it is time. */
void joined_tell(struct server *s);
uint64_t joined_deadline(const struct server *s);

/* --- cm.c: connection management of programs --- */

/* 0, EBUSY (another program of the port has this lane), EINVAL, ENOMEM. c has a umad port. */
int cm_open(struct server *s, struct vb_fabric_port *p, struct client *c, uint32_t lane, struct cm **out);
void cm_close(struct cm *cm);
/* Returns false if the message is none of ours. reply: of the verbs that have one. bytes is aligned to 8. */
bool cm_take(struct cm *cm, const void *bytes, size_t n, struct vb_fabric_reply *reply);
/* The subnet administrator has answered, or not: error is ETIMEDOUT then. */
void cm_answered(struct cm *cm, int error, const uint8_t *mad, size_t len);
/* A datagram that no agent of the port takes. Returns false if it is none of connection management. */
bool cm_deliver(struct server *s, struct vb_fabric_port *p, const struct vb_fabric_packet *k);
/* Requests that have waited for a listener for too long are rejected, and memberships are joined again: cm_late.c. */
void cms_time(struct server *s);
uint64_t cms_deadline(const struct server *s);
void cms_end(struct server *s);

/* --- address.c: IP addresses of CAs --- */

/* A network, as 10.1.0.0/16, whose addresses CAs get in their order. Returns an errno. */
int address_network(struct server *s, const char *text);
/* Numbers the CAs that are new. False: the network has no address left, or there is no memory. */
bool address_number(struct server *s);
void address_show(const struct server *s, struct vb_fabric_node *asker, const char *text,
                  struct vb_fabric_address *out);
/* All of them: an address, a tab, and the name of the node in the topology in each line. */
void address_print(const struct server *s, FILE *out);
/* Gives n the address; "none": takes all of n away; NULL: prints those of n, or all. Returns an errno. */
int ctl_address(struct server *s, struct vb_fabric_node *n, const char *text, FILE *out);

/* As in struct vb_fabric_ops. */
void joined_count(void *server);
bool joined_are_attached(void *server, struct vb_fabric_port *p, const struct vb_fabric_datagram *d);
void joined_deliver(void *server, struct vb_fabric_port *p, const struct vb_fabric_datagram *d);

/* --- traffic.c: what programs count in their own memory --- */

struct traffic {
	uint64_t packets[2], bytes[2]; /* there and back */
};
/* NULL: it is no such memory, or there is none. */
const struct vb_ib_traffic_map *traffic_open(int fd);
void traffic_close(const struct vb_ib_traffic_map *m);
/* What was sent by a way, without what its senders have. To be asked before these. */
void traffic_of_way(const struct vb_ib_traffic_map *m, uint32_t tag, struct traffic *sum);
uint32_t traffic_senders(const struct vb_ib_traffic_map *m);
/* False: the i-th sender has no way now. */
bool traffic_of_sender(const struct vb_ib_traffic_map *m, uint32_t i, uint32_t *tag, struct traffic *sum);

/* --- groups.c --- */

bool groups_have(const struct groups *g, uint16_t mlid, const uint8_t mgid[16]);
/* One queue pair more, or less. Returns an errno: EINVAL (no group, or it is not attached), ENOMEM (too many groups). */
int groups_attach(struct groups *g, uint16_t mlid, const uint8_t mgid[16]);
int groups_detach(struct groups *g, uint16_t mlid, const uint8_t mgid[16]);
void groups_free(struct groups *g);

/* --- link.c: programs that send and receive packets --- */

#define LINK_QUEUE (1u << 20)    /* bytes that wait for a program, or for another process */
#define LINK_LIFETIME 250000000u /* ns; so long others wait for a program that does not read */
#define LINK_LATE (4u << 20)     /* bytes of a program, or a peer, that may be under way on links that take time */
#define LINK_WORTH 2000u         /* ns; so much longer for a byte that it reads */
#define LINK_MESSAGE 1024u       /* bytes that a message counts beside its own */

/* Returns an errno. */
int link_open(struct server *s, const struct vb_fabric_link_ask *ask, struct client *c, struct link **link);
void link_close(struct link *l);
/* A train from the program. Its bytes are changed. */
void link_take(struct link *l, uint8_t *bytes, size_t n);
/* A packet that was late: for a program, or for the cable of out. from NULL: nobody has to wait for it. */
void link_arrives(struct link *from, struct link *to, const uint8_t *bytes, size_t len);
/* Late packets that wait until its program reads; they end when the program does. */
struct late_line *link_line(struct link *l);
struct link *link_next(const struct link *l); /* of the server's */
bool link_has_room(const struct link *l);
/* A packet of `from` (NULL: of a peer) waits in its line. */
void link_lines_up(struct link *from, struct link *to);
void link_leaves(struct link *from, struct vb_fabric_port *out, const uint8_t *bytes, size_t len, unsigned hops);
/* So many bytes of this program more, or less, are late. */
void link_is_late(struct link *l, ssize_t bytes);
/* Those who get packets for the queue pair in this BTH. NULL: nobody. */
struct link *link_at(const struct vb_fabric_port *p, const uint8_t *bth);
/* Packets for a program, from another process. True: it reads too slowly, and they wait. */
bool link_give(struct link *to, const uint8_t *bytes, size_t len);
/* It is time that it reads. If it has read nothing, what waits for it is discarded. */
void link_stall(struct link *l);
/* Programs whose packets have waited for a peer go on. */
void links_go_on(struct server *s, const struct peer *p);
/* The program has read all that waited for it. */
void link_caught_up(struct link *l);
/* It has read some of that: others wait on. */
void link_reads(struct link *l, size_t bytes);
/* Somebody waits for it from now on. Returns until when. */
uint64_t link_await(struct link *l);
void links_time(struct server *s);
uint64_t links_deadline(const struct server *s);

/* --- late.c: packets on links that take time --- */

struct late_packet {
	uint64_t due;
	struct link *from, *to; /* from NULL: it has come from another process. to NULL: it leaves for another one */
	struct peer *by;        /* that process. NULL, as from: it has ended */
	struct vb_fabric_port *end; /* its node is away if it leaves */
	unsigned hops;
};

/* Packets that have arrived where there is no room. They go on in their order. */
struct late_line {
	struct late *first, *last;
};

/* Do packets wait in the line of this program, or of the process that has the node of this port? Then others wait behind
 * them. */
bool late_waits(struct link *to, const struct vb_fabric_port *end);
void late_put(struct server *s, const struct late_packet *k, const uint8_t *bytes, size_t len);
/* Those that are due go on. */
void late_time(struct server *s);
uint64_t late_deadline(const struct server *s);
/* There is room where the packets of this line go. */
void late_go_on(struct server *s, struct late_line *line);
/* Has the sender of so many late bytes too many? more: it had too many before. */
bool late_is_too_much(const struct server *s, size_t bytes, bool before);
/* The program ends. */
void late_forget(struct server *s, struct link *l);
/* The peer ends. */
void late_forget_peer(struct server *s, struct peer *p);
void late_free(struct server *s);

/* --- capture.c: what passes the cables, for people --- */

/* p NULL: of all ports of the node; n NULL too: of all nodes. NULL: no memory. */
struct capture *capture_open(struct server *s, const struct vb_fabric_node *n, const struct vb_fabric_port *p,
                             struct client *c);
void capture_close(struct capture *k);
/* As in struct vb_fabric_ops. */
void captures_see(void *server, struct vb_fabric_port *out, const uint8_t *bytes, size_t len);
void captures_see_group(void *server, struct vb_fabric_port *out, const struct vb_fabric_datagram *d);
/* The other end: writes what comes to standard output, as a file for tshark(1). Returns the exit status. */
int capture_write(int sock);

/* --- away.c: which nodes are in other processes --- */

struct peer_settings {
	char address_room[64], port[8];
	const char *address; /* NULL: all */
	const void *secret;
	size_t secret_len;
};

/* HOST[:PORT]=NODE,…. False: it is not written so. text stays. */
bool peer_add(struct server *s, const char *text);
/* ADDRESS[:PORT]. False: it is not written so. */
bool peers_listen(struct peer_settings *o, const char *text);
/* Gives nodes away to the peers; own: patterns of those that stay, or NULL. Returns why it cannot be, or NULL. */
const char *peers_divide(struct server *s, const char *own, char *why, size_t size);
uint64_t peers_digest(const struct server *s);

/* --- peer.c: the other processes of the fabric --- */

/* Before links come up. 0, or -1 with a message on standard error. */
int peers_open(struct server *s, const struct peer_settings *o);
void peers_close(struct server *s);
/* The peer that epoll has told about. NULL: it is none. */
struct peer *peer_of(const struct server *s, const void *what);
void peer_event(struct peer *p);
void peers_time(struct server *s);
void peers_tell(struct server *s);
uint64_t peers_deadline(const struct server *s);
int ctl_peers(struct server *s, char **w, FILE *out);

/* --- guest.c: processes that have one channel adapter each, and come and go --- */

/* Lets them come. 0, or -1 with a message on standard error. */
int guests_open(struct server *s, const struct peer_settings *o);
void guests_close(struct server *s);
void guests_event(struct server *s);
/* Those that are gone lose their nodes. The end of a turn. */
void guests_leave(struct server *s);

/* --- keep.c --- */

/* The program at the other end of the socket keeps this process until it ends. Returns an errno. */
int keep_add(struct server *s, int sock);
/* epoll has told about `what`. False: it is none of them. */
bool keep_ended(struct server *s, const void *what);
void keeps_close(struct server *s);

/* --- guest_self.c --- */

/* This process is a guest of another one: gets the topology from there. own: the name of its node; then its id. 0, or -1 with
 * a message on standard error. */
int guest_start(struct server *s, const char *host, const char **own, const struct peer_settings *o);

/* --- peer_data.c --- */

/* A packet for the cable of a port whose other end is away. True: it waits, and so should its sender. */
bool peer_offer(struct vb_fabric_port *out, const uint8_t *bytes, size_t len, unsigned hops);
/* A program has read all that waited for it. */
void peers_caught_up(struct server *s, const struct link *l);
/* Those that wait for a program wait until then. */
void peers_wait_until(struct server *s, const struct link *l, uint64_t until);
void peer_data_time(struct peer *p);
uint64_t peer_data_deadline(const struct peer *p);
/* As in struct vb_fabric_ops. */
void peer_cross(void *own, struct vb_fabric_port *out, const uint8_t *bytes, size_t len, unsigned hops);
void peer_cross_group(void *own, struct vb_fabric_port *out, const struct vb_fabric_datagram *d);

/* --- show.c: what programs ask about their CA --- */

/* The CA of a name, or the first one. NULL: there is no such CA. */
struct vb_fabric_node *server_ca(const struct server *s, const char *name);
void show_ca(const struct server *s, const struct vb_fabric_node *n, struct vb_fabric_ca *ca);
/* Returns an errno. */
int show_file(const struct server *s, struct vb_fabric_node *n, const char *path, FILE *out);

/* --- issm.c --- */
int issm_open(struct server *s);
void issm_close(struct server *s);
/* The path for a port; returns an errno. */
int issm_path(struct server *s, struct vb_fabric_port *p, char *path, size_t size);
void issm_event(struct server *s);

/* --- ctl.c --- */

/* Carries out a command: words separated by spaces, or "add" and a text. Returns an errno; the text says why. */
int ctl_command(struct server *s, char *command, FILE *out);
/* [NODE [PORT]]: whose packets a capture wants; NULL: all. Returns an errno; the text says why. */
int ctl_capture(struct server *s, char *words, struct vb_fabric_node **n, struct vb_fabric_port **p, FILE *out);

#endif
