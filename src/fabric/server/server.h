// server.h - verbena-fabric: one process, one loop; its clients and what they may ask
// follows: man/verbena-fabric.8
// SPDX-License-Identifier: MIT
#ifndef VB_FABRIC_SERVER_SERVER_H
#define VB_FABRIC_SERVER_SERVER_H

#include <limits.h>
#include <stdarg.h>
#include <stdio.h>

#include "fabric/agent/agent.h"
#include "fabric/fabric.h"
#include "fabric/proto/proto.h"

struct client;
struct joined;
struct link;

/* A file that a program opens to say that its port is a subnet manager's. */
struct issm {
	struct issm *next;
	struct vb_fabric_port *port;
	int watch;
	unsigned opened;
};

struct server {
	struct vb_fabric *fabric;
	int epoll, listener, inotify;
	char path[PATH_MAX];
	char issm_dir[PATH_MAX];
	struct client *clients;
	struct joined *joined;
	struct link *links;
	uint64_t changes_told,
	        tell_at;    /* what programs know of fabric->changes; when they hear of the rest, 0: nothing is new */
	uint8_t address[8]; /* of this process: the first half of all its ports' addresses */
	struct issm *issms;
	uint32_t next_tid;
	uint64_t now;
	bool stop;
	uint64_t lost; /* datagrams for programs that do not read */
};

uint64_t server_now(void); /* ns */

/* --- client.c --- */
void client_accept(struct server *s);
/* What epoll said about a client's socket. */
void client_event(struct server *s, struct client *c, uint32_t events);
void clients_time(struct server *s);
uint64_t clients_deadline(const struct server *s);
void clients_close(struct server *s);
/* Sends a message to the program, now or as soon as there is room. */
void client_post(struct client *c, const void *bytes, size_t len);
/* Do messages wait for room in its socket? */
bool client_is_behind(const struct client *c);
/* For links: sends the message now if it fits in the socket, or keeps it if no more than `most` bytes wait. False: neither. */
bool client_offer(struct client *c, const void *bytes, size_t len, size_t most);
/* Calls for each message that waits, which is then dropped. */
void client_drop_waiting(struct client *c, void (*each)(void *arg, const uint8_t *bytes, size_t len), void *arg);
/* Stops reading from the program, or goes on. */
void client_pause(struct client *c, bool pause);
extern const struct vb_fabric_ops server_fabric_ops;

/* --- join.c: programs that use a port by its verbs device --- */

void join_show_port(const struct server *s, const struct vb_fabric_port *p, struct vb_fabric_port_is *is);
/* NULL: no memory. c gets the answer. */
struct joined *join_open(struct server *s, struct vb_fabric_port *p, struct client *c);
void join_close(struct joined *j);
/* Returns false if the message is none of ours. bytes is aligned to 8. */
bool join_take(struct joined *j, const void *bytes, size_t n);
/* The client is not behind any more: it is told what has changed meanwhile. */
void join_caught_up(struct joined *j);
/* Tells all programs what has changed, if it is time. */
void joined_tell(struct server *s);
uint64_t joined_deadline(const struct server *s);

/* --- link.c: programs that send and receive packets --- */

/* Returns an errno. */
int link_open(struct server *s, const struct vb_fabric_link_ask *ask, struct client *c, struct link **link);
void link_close(struct link *l);
/* A train from the program. Its bytes are changed. */
void link_take(struct link *l, uint8_t *bytes, size_t n);
/* The program has read all that waited for it. */
void link_caught_up(struct link *l);
void links_time(struct server *s);
uint64_t links_deadline(const struct server *s);

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

#endif
