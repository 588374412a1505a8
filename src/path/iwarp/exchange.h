// exchange.h - declarations that cm.c and exchange.c share
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
	IW_HALF_OPEN_MAX = 128, /* the most connections of a listener without a complete request */
	IW_LINGER_MAX = 256,
	IW_RETRIES = 12, /* tries without a listener, one per period of IW_RETRYING */
};

enum iw_queue_name {
	IW_QUIET, /* without time limit: requests that the program must answer, streams */
	IW_HALF_OPEN,
	IW_ASKING,
	IW_RETRYING,
	IW_HOLDING, /* streams of responders that wait for the initiator's first message */
	IW_LINGERING,
	IW_TIMEWAIT, /* ended streams, until exited() is called */
	IW_DEAD,
	IW_QUEUES,
};

struct iw_queue {
	struct vb_iwcm_conn *first, *last;
	uint64_t n;
};

enum iw_state {
	IW_STATE_CONNECTING, /* TCP's handshake */
	IW_STATE_ASKING,     /* the request is being sent */
	IW_STATE_AWAITS_REPLY,
	IW_STATE_REPLIED, /* vb_iwcm_start must follow */
	IW_STATE_AWAITS_REQUEST,
	IW_STATE_REQUESTED, /* accept or reject must follow */
	IW_STATE_REFUSED,   /* by either side */
	IW_STATE_STREAM,    /* the queue pair has the stream */
	IW_STATE_LINGER,
};

/* The frames of a connection. Freed when the stream starts. */
struct iw_exchange {
	uint8_t out[VB_MPA_FRAME_MAX], in[VB_MPA_FRAME_MAX];
	size_t out_len, sent;
	size_t have;
	uint8_t data[VB_IWCM_PRIVATE_MAX]; /* our private data */
	size_t data_len;
	struct vb_mpa_frame peers; /* the peer's request */
};

struct vb_iwcm_conn {
	struct vb_watch watch; /* must be first */
	struct vb_iwcm *cm;
	struct vb_iwcm_conn *next, *prev;
	struct vb_iwcm_listener *listener; /* of a half-open connection */
	void *own;
	uint64_t since;
	uint8_t queue, state, tos, retries;
	bool active, any_port, watched;
	bool told, over; /* told: closed() may be called; over: the stream has ended */
	int over_err;
	struct vb_iwcm_ends ends;
	struct vb_mpa_wish wish;
	struct vb_iwarp_stream stream; /* as negotiated; without its descriptor */
	struct iw_exchange *x;
	struct iw_tie *tie;
	uint32_t qpn;
};

/* A stream's link to its connection, which may be freed first. Freed with the stream. */
struct iw_tie {
	struct vb_iwcm *cm;
	struct vb_iwcm_conn *conn;
};

struct vb_iwcm_listener {
	struct vb_watch watch; /* must be first */
	struct vb_iwcm_listener *next;
	struct vb_iwcm *cm;
	void *own;
	unsigned half_open;
	bool closed, paused;
};

struct vb_iwcm {
	const struct vb_iwcm_ops *ops;
	struct vb_node *node;
	struct iw_queue queues[IW_QUEUES];
	struct vb_iwcm_listener *listeners;
	bool closed_listeners, crc, markers, large;
	uint64_t paused_until; /* listeners without descriptors pause until then */
	struct vb_iwcm_stats stats;
};

/* cm.c */
struct vb_iwcm_conn *iw_conn_new(struct vb_iwcm *cm, int fd, enum iw_queue_name queue);
void iw_move(struct vb_iwcm_conn *c, enum iw_queue_name name);
void iw_drop(struct vb_iwcm_conn *c);
void iw_linger(struct vb_iwcm_conn *c);
void iw_reap(struct vb_iwcm *cm); /* frees dead connections and listeners; progress thread only */
int iw_watch(struct vb_iwcm_conn *c, uint32_t events);
void iw_unwatch(struct vb_iwcm_conn *c);
bool iw_learn_ends(struct vb_iwcm_conn *c);
int iw_connect(struct vb_iwcm_conn *c); /* 0 or an errno */

/* exchange.c */
void iw_wishes(struct vb_iwcm *cm); /* reads VERBENA_MPA */
void iw_ready(struct vb_watch *w, uint32_t events);
void iw_take_connections(struct vb_iwcm_listener *l);
void iw_expire(struct vb_iwcm_conn *c);
void iw_compose_request(struct vb_iwcm_conn *c, const struct vb_iwcm_offer *offer);
int iw_reply(struct vb_iwcm_conn *c, const struct vb_iwcm_offer *offer); /* 0 or an errno */
void iw_refuse(struct vb_iwcm_conn *c, const void *data, size_t len);
void iw_say_terminate(struct vb_iwcm_conn *c, enum vb_term term); /* in place of a stream, with c->stream's framing */

#endif
