// server.h - the program around the core: configuration, listeners, control socket
// SPDX-License-Identifier: MIT
#ifndef NT_SERVER_H
#define NT_SERVER_H

#include "backend/ring.h"
#include "target/control.h"
#include "target/tcp.h"

#define NT_PORT_DEFAULT 4420

struct json_object;

struct nt_config_ns {
	uint32_t nsid, block, ana_group;
	char *kind, *path;
	uint64_t size;
	bool readonly, buffered, has_uuid;
	char *ceph_conf, *ceph_user, *ceph_keyring; /* rbd; NULL: Ceph's default */
	char *gateway;                              /* … the name of this target among several; NULL: it is alone */
	uint32_t wait_ms;                           /* 0: the default */
	uint8_t uuid[16];
	struct nt_limits limits;
};

struct nt_config_host {
	char *nqn;
	struct nt_secrets secrets;
};

struct nt_config_limits {
	char *nqn; /* of a host */
	struct nt_limits limits;
};

struct nt_config_subsystem {
	char *nqn, *serial, *model;
	bool any_host, auth_required;
	struct nt_config_host *hosts;
	size_t host_count, ns_count;
	uint16_t first_id, last_id; /* range of controller ids; 0: any */
	struct nt_config_ns *ns;
};

struct nt_config_address {
	char *transport, *address; /* tcp, rdma, iwarp */
	uint16_t port;
	enum nt_tls tls;
	bool optional; /* no error if it fails */
	bool second;   /* … and no message */
};

struct nt_config {
	struct nt_config_address *listen, *referrals;
	size_t listen_count, referral_count, subsystem_count;
	struct nt_config_subsystem *subsystems;
	struct nt_config_limits *host_limits;
	size_t host_limit_count;
	struct nt_limits each_host; /* limits of each host that is not among them */
	char *announce;             /* the address that other gateways list; NULL: that of the listeners */
	uint32_t memory, queues, connections_per_host; /* 0: three quarters of connections */
	struct nt_tcp_limits limits;
};

/* Reads a configuration file over the defaults. Returns false with *why, the reason (malloc'd). */
bool nt_config_read(const char *file, struct nt_config *out, char **why);
void nt_config_default(struct nt_config *c);
void nt_config_free(struct nt_config *c);
/* For command lines: appends a zeroed entry. NULL: no memory. */
struct nt_config_address *nt_config_listen(struct nt_config *c);
struct nt_config_subsystem *nt_config_subsystem(struct nt_config *c);
struct nt_config_ns *nt_config_ns(struct nt_config_subsystem *s);
bool nt_config_host(struct nt_config_subsystem *s, const char *nqn);

/* Reads a namespace from its JSON object, as it is in the file. False with *why (malloc'd), and nothing to free. */
bool nt_config_read_ns(struct json_object *o, struct nt_config_ns *ns, char **why);
void nt_config_free_ns(struct nt_config_ns *ns);
bool nt_gateway_valid(const struct nt_config_ns *ns); /* a name that a gateway can have, and an image to be shared */

struct nt_server {
	struct nt_loop *loop;
	struct nb_ring *ring;
	struct nt_target target;
	struct nt_config config; /* the configuration in force */
	struct nt_listener {
		struct nt_listener *next;
		struct nt_tcp *tcp; /* one of the two is set */
		struct nt_rdma *rdma;
		struct nt_config_address where;
		bool leaving;
	} * listeners;
	struct nt_control *control;
	const char *file;
	bool reload, stop;
	bool serving;               /* hosts may be there */
	uint32_t awaited;           /* media that are opened at the start; more than 0 after it: threads use the ring */
	struct nt_pending *pending; /* namespaces whose media are being opened */
	bool reread;                /* … and the configuration was read again, of which wrong items have failed */
	unsigned wrong;
};

/* Changes the server to config and takes ownership of it. Returns the number of items that failed; each is reported. */
unsigned nt_apply(struct nt_server *s, struct nt_config *config);
/* An address of this machine that others can use; for listeners on all addresses. */
void nt_reachable_address(bool v6, char *text, size_t size);
/* Subsystems and namespaces of a configuration; NULL: there is none. */
const struct nt_config_subsystem *nt_config_find_subsystem(const struct nt_config *c, const char *nqn);
const struct nt_config_ns *nt_config_find_ns(const struct nt_config_subsystem *s, uint32_t nsid);
void nt_config_drop_ns(struct nt_config *c, const char *nqn, uint32_t nsid);
void nt_apply_ids(struct nt_subsystem *s, const struct nt_config_subsystem *c); /* the range of controllers' ids */

/* opening.c. An error is 0 or errno, and is reported. */
bool nt_same_ns(const struct nt_config_ns *a, const struct nt_config_ns *b); /* … apart from its size */
/* Adds a namespace, or opens its medium again that has shut us out. */
int nt_apply_ns(struct nt_server *s, struct nt_subsystem *x, const struct nt_config_ns *c);
bool nt_opens_later(const struct nt_server *s, const struct nt_config_ns *c);
/* The same later, if the configuration has it then. asker is told (nt_control_defer); 0: nobody. */
int nt_open_later(struct nt_server *s, struct nt_subsystem *x, const struct nt_config_ns *c, uint64_t asker);
bool nt_is_opening(struct nt_server *s, const char *nqn, uint32_t nsid);
uint32_t nt_opening_count(const struct nt_server *s);

/* hold.c: another opening of the medium is to take its place. It ends, and requests wait meanwhile, for wait_ms at most
 * (0: the default). False: no memory. */
bool nt_hold_medium(struct nt_server *s, struct nt_namespace *ns, uint32_t wait_ms);
bool nt_is_held(const struct nt_namespace *ns);
void nt_reread(struct nt_server *s, unsigned wrong); /* the configuration: says so when everything is open */
void nt_listeners_turn(struct nt_server *s, uint64_t *next);

int nt_listener_open(struct nt_listener *l, struct nt_server *s, const struct nt_config_address *a,
                     const struct nt_tcp_limits *limits); /* 0 or errno */
const char *nt_listener_transport(const struct nt_listener *l);
const char *nt_listener_address(const struct nt_listener *l);
uint16_t nt_listener_port(const struct nt_listener *l);
uint32_t nt_listener_connections(const struct nt_listener *l);
uint64_t nt_listener_turn(struct nt_listener *l);
void nt_listener_stop(struct nt_listener *l);
bool nt_listener_close(struct nt_listener *l); /* as nt_tcp_close */
/* Further counters of the transport: bytes by origin. */
void nt_listener_count(const struct nt_listener *l, void (*say)(void *to, const char *what, uint64_t n), void *to);
void nt_listeners_let_go(void); /* releases the memory of removed namespaces */

char *nt_answer_line(void *server, char *line); /* for the control socket */
/* Changes namespaces and limits as a line of the control socket says. Returns the answer (malloc'd); NULL: the line is
 * something else, or no memory. */
char *nt_change(struct nt_server *s, char *line);

const char *nt_why_this_way(const struct nt_server *s, const struct nt_queue *q); /* of a host's connection */
const char *nt_writer_name(const struct nb_backend *b);                           /* who writes a shared image */
char *nt_metrics(const struct nt_server *s);                                      /* OpenMetrics, malloc'd */
char *nt_status_json(const struct nt_server *s);                                  /* malloc'd */

void nt_say(const char *fmt, ...) __attribute__((format(printf, 1, 2)));

#endif
