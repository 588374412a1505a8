// exchange.h - declarations that cm.c, exchange.c, here.c and listen.c share
// follows: RFC 5044, 7; RFC 6581
// SPDX-License-Identifier: MIT
#ifndef VB_PATH_IWARP_EXCHANGE_H
#define VB_PATH_IWARP_EXCHANGE_H

#include "core/device.h"
#include "frame/mpa.h"
#include "frame/rdmap.h"
#include "path/iwarp/iwarp.h"
#include "path/iwarp/cm.h"

enum {
	VB_IWCM_HALF_OPEN_MAX = 128, /* of one listener: connections whose request is not complete */
	VB_IWCM_LINGER_MAX = 256,
	VB_IWCM_RETRIES = 12, /* tries without a listener, one per period of VB_IWCM_RETRYING */
};

enum vb_iwcm_queue_name {
	VB_IWCM_QUIET, /* no limit: requests that the program must answer, streams */
	VB_IWCM_HALF_OPEN,
	VB_IWCM_ASKING,
	VB_IWCM_RETRYING,
	VB_IWCM_HOLDING, /* streams of responders that wait for the initiator's first message */
	VB_IWCM_LINGERING,
	VB_IWCM_TIMEWAIT, /* ended streams, until exited() is called */
	VB_IWCM_DEAD,
	VB_IWCM_QUEUES,
};

struct vb_iwcm_queue {
	struct vb_iwcm_conn *first, *last;
	uint64_t n;
};

enum vb_iwcm_state {
	VB_IWCM_STATE_CONNECTING, /* TCP's handshake */
	VB_IWCM_STATE_ASKING,     /* the request is being sent */
	VB_IWCM_STATE_AWAITS_REPLY,
	VB_IWCM_STATE_REPLIED, /* vb_iwcm_start is next */
	VB_IWCM_STATE_AWAITS_REQUEST,
	VB_IWCM_STATE_REQUESTED, /* accept or reject is next */
	VB_IWCM_STATE_REFUSED,   /* by either */
	VB_IWCM_STATE_STREAM,    /* the queue pair's */
	VB_IWCM_STATE_LINGER,
};

/* The frames of a connection. Freed when the stream starts. */
struct vb_iwcm_exchange {
	uint8_t out[VB_MPA_FRAME_MAX], in[VB_MPA_FRAME_MAX];
	size_t out_len, sent;
	size_t have;
	uint8_t data[VB_IWCM_PRIVATE_MAX]; /* our private data */
	size_t data_len;
	struct vb_mpa_frame peers; /* the peer's request */
};

struct vb_iwcm_conn {
	struct vb_watch watch; /* must be the first member: the callback casts it */
	struct vb_iwcm *cm;
	struct vb_iwcm_conn *next, *prev;
	struct vb_iwcm_listener *listener; /* of a half-open connection */
	void *own;
	uint64_t since;
	uint8_t queue, state, tos, retries;
	bool active, any_port, watched;
	bool owner_knows, over; /* owner_knows: closed() may be called; over: the stream has ended */
	int over_err;
	struct vb_iwcm_addresses ends;
	struct vb_mpa_wish wish;
	struct vb_iwarp_stream stream; /* as negotiated; without its descriptor */
	struct vb_iwcm_exchange *x;
	struct vb_iwcm_tie *tie;
	uint32_t qpn;
};

/* A stream's link to its connection, which may be freed first. Freed with the stream. */
struct vb_iwcm_tie {
	struct vb_iwcm *cm;
	struct vb_iwcm_conn *conn;
};

struct vb_iwcm_listener {
	struct vb_watch watch; /* must be the first member: the callback casts it */
	struct vb_iwcm_listener *next;
	struct vb_iwcm *cm;
	void *own;
	unsigned half_open;
	bool closed, paused;
};

struct vb_iwcm {
	const struct vb_iwcm_ops *ops;
	struct vb_node *node;
	struct vb_iwcm_queue queues[VB_IWCM_QUEUES];
	struct vb_iwcm_listener *listeners;
	bool closed_listeners, crc, markers, large;
	uint64_t paused_until; /* listeners without descriptors pause until then */
	struct vb_iwcm_stats stats;
};

/* here.c: the iWARP queue pair with this number, or NULL. The program may destroy it meanwhile: to be released with
 * vb_qp_drop */
struct vb_qp *vb_iwcm_hold_qp(struct vb_node *node, uint32_t qpn);

/* cm.c */
struct vb_iwcm_conn *vb_iwcm_conn_new(struct vb_iwcm *cm, int fd, enum vb_iwcm_queue_name queue);
void vb_iwcm_move(struct vb_iwcm_conn *c, enum vb_iwcm_queue_name name);
void vb_iwcm_drop(struct vb_iwcm_conn *c);
void vb_iwcm_linger(struct vb_iwcm_conn *c);
void vb_iwcm_reap(struct vb_iwcm *cm); /* by the progress thread only */
int vb_iwcm_watch(struct vb_iwcm_conn *c, uint32_t events);
void vb_iwcm_unwatch(struct vb_iwcm_conn *c);
bool vb_iwcm_learn_ends(struct vb_iwcm_conn *c);
int vb_iwcm_connect_tcp(struct vb_iwcm_conn *c); /* 0 or an errno */

/* listen.c */
void vb_iwcm_take_connections(struct vb_iwcm_listener *l);

/* exchange.c */
/* Reads the request of a half-open connection, as far as it has arrived. */
void vb_iwcm_read_request(struct vb_iwcm_conn *c);
void vb_iwcm_wishes(struct vb_iwcm *cm); /* VERBENA_MPA */
void vb_iwcm_ready(struct vb_watch *w, uint32_t events);
void vb_iwcm_expire(struct vb_iwcm_conn *c);
void vb_iwcm_compose_request(struct vb_iwcm_conn *c, const struct vb_iwcm_offer *offer);
int vb_iwcm_reply(struct vb_iwcm_conn *c, const struct vb_iwcm_offer *offer); /* 0 or an errno */
void vb_iwcm_refuse(struct vb_iwcm_conn *c, const void *data, size_t len);
void vb_iwcm_say_terminate(struct vb_iwcm_conn *c,
                           enum vb_term term); /* in place of a stream, with c->stream's framing */

#endif
