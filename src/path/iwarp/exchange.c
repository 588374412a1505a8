// exchange.c - the MPA request and reply, on nonblocking sockets, with untrusted peers
// follows: RFC 5044, 7.1 (MPA request and reply frames); RFC 6581, 8 (errors) and 9 (IRD, ORD, the peer-to-peer model)
// SPDX-License-Identifier: MIT
#include "fault/set.h"
#include "path/iwarp/exchange.h"

#include <errno.h>
#include <string.h>
#include <sys/epoll.h>
#include <sys/socket.h>
#include <unistd.h>

#include "capture/capture.h"
#include "util/env.h"

#define EARLIER 32 /* the most earlier connections that are served first, to keep their order */

/* --- VERBENA_MPA: a list of the options that we request --- */

static bool is_item(const char *at, const char *what)
{
	size_t len = strlen(what);

	return strcspn(at, ",") == len && !strncmp(at, what, len);
}

static bool list_contains(const char *list, const char *what)
{
	for (const char *at = list; at && *at; at += strcspn(at, ","), at += *at == ',')
		if (is_item(at, what))
			return true;
	return false;
}

void vb_iwcm_wishes(struct vb_iwcm *cm)
{
	const char *list = vb_env("VERBENA_MPA");

	cm->crc = list_contains(list, "crc");
	cm->markers = list_contains(list, "markers");
	cm->large = !list_contains(list, "emss");
}

/* --- contents of the frames --- */

/* Requests peer-to-peer mode: either side may send first (RFC 6581, 4.3). */
static void set_wish(struct vb_iwcm_conn *c, const struct vb_iwcm_offer *offer)
{
	c->wish = (struct vb_mpa_wish){.revision = 2,
	                               .markers = c->cm->markers,
	                               .crc = c->cm->crc,
	                               .peer_to_peer = true,
	                               .rtr = VB_MPA_RTR_WRITE | VB_MPA_RTR_READ | VB_MPA_RTR_SEND,
	                               .ird = offer->ird,
	                               .ord = offer->ord};
	if (!offer->ird) /* a read of length 0 counts as an outstanding read, too */
		c->wish.rtr &= (uint8_t)~VB_MPA_RTR_READ;
}

static void put_frame(struct vb_iwcm_conn *c, const struct vb_mpa_frame *f)
{
	struct vb_writer w = vb_writer(c->x->out, sizeof(c->x->out));

	vb_mpa_encode(&w, f);
	c->x->out_len = w.pos;
	c->x->sent = 0;
}

static void put_request(struct vb_iwcm_conn *c)
{
	struct vb_mpa_frame f;

	vb_mpa_request(&f, &c->wish, c->x->data, (uint16_t)c->x->data_len);
	put_frame(c, &f);
}

static void keep_data(struct vb_iwcm_exchange *x, const struct vb_iwcm_offer *offer)
{
	x->data_len = 0;
	for (int i = 0; i < 2; i++) {
		if (offer->len[i])
			memcpy(x->data + x->data_len, offer->data[i], offer->len[i]);
		x->data_len += offer->len[i];
	}
}

void vb_iwcm_compose_request(struct vb_iwcm_conn *c, const struct vb_iwcm_offer *offer)
{
	set_wish(c, offer);
	keep_data(c->x, offer);
	put_request(c);
}

static void take_terms(struct vb_iwcm_conn *c, const struct vb_mpa_terms *terms)
{
	enum vb_iw_rtr rtr = terms->rtr & VB_MPA_RTR_WRITE  ? VB_IW_RTR_WRITE
	                     : terms->rtr & VB_MPA_RTR_READ ? VB_IW_RTR_READ
	                     : terms->rtr & VB_MPA_RTR_SEND ? VB_IW_RTR_SEND
	                                                    : VB_IW_RTR_NONE;

	c->stream = (struct vb_iwarp_stream){.crc = terms->crc,
	                                     .markers_in = terms->markers_in,
	                                     .markers_out = terms->markers_out,
	                                     .large = c->cm->large,
	                                     .waits_for_initiator = terms->hold,
	                                     .ird = terms->ird,
	                                     .ord = terms->ord,
	                                     .send_rtr = c->active ? rtr : VB_IW_RTR_NONE,
	                                     .expect_rtr = c->active ? VB_IW_RTR_NONE : rtr};
}

static struct vb_iwcm_said said_in(const struct vb_mpa_frame *f)
{
	bool known = f->enhanced;

	return (struct vb_iwcm_said){
	        .data = f->private_data,
	        .len = f->private_len,
	        .ird = known && f->ird != VB_MPA_ANY_DEPTH ? f->ird : VB_IWCM_DEPTH_UNKNOWN,
	        .ord = known && f->ord != VB_MPA_ANY_DEPTH ? f->ord : VB_IWCM_DEPTH_UNKNOWN,
	};
}

/* --- end of an exchange --- */

static void tell_failure(struct vb_iwcm_conn *c, int err, const struct vb_iwcm_said *said)
{
	void *own = c->own;
	const struct vb_iwcm_said nothing = {0};

	c->state = VB_IWCM_STATE_REFUSED;
	c->own = NULL;
	vb_iwcm_move(c, VB_IWCM_QUIET); /* until its owner ends it */
	c->cm->ops->replied(own, err, said ? said : &nothing);
}

static void fail_asking(struct vb_iwcm_conn *c, int err, const struct vb_iwcm_said *said)
{
	vb_iwcm_unwatch(c);
	if (c->watch.fd >= 0)
		close(c->watch.fd);
	c->watch.fd = -1;
	tell_failure(c, err, said);
}

/* Sends a Terminate as the first and only FPDU. */
void vb_iwcm_say_terminate(struct vb_iwcm_conn *c, enum vb_term term)
{
	uint8_t bytes[64];
	bool markers = c->stream.markers_out;
	uint32_t ulpdu = VB_DDP_UNTAGGED_LEN + 4, len = vb_mpa_fpdu_len(ulpdu),
	         marked = markers ? vb_mpa_marked_len(0, len) : len;
	struct vb_writer w = vb_writer(bytes + (marked - len), len);
	const struct vb_ddp h = {.last = true,
	                         .dv = VB_DDP_VERSION,
	                         .rv = VB_RDMAP_VERSION,
	                         .opcode = VB_RDMAP_TERMINATE,
	                         .qn = VB_QN_TERMINATE,
	                         .msn = 1};

	vb_put16(&w, (uint16_t)ulpdu);
	vb_ddp_encode(&w, &h);
	vb_terminate_encode(&w, &(struct vb_terminate){.term = (uint16_t)term});
	vb_put_zeros(&w, len - w.pos);
	if (markers)
		vb_mpa_mark(bytes, len, 0);
	if (c->stream.crc)
		vb_mpa_seal(bytes, marked);
	send(c->watch.fd, bytes, marked, MSG_NOSIGNAL | MSG_DONTWAIT);
	shutdown(c->watch.fd, SHUT_WR); /* vb_iwcm_release lets the socket linger */
	__atomic_fetch_add(&c->cm->stats.disagreed, 1, __ATOMIC_RELAXED);
}

/* Called when no reply has arrived. The peer may support only revision 1, so repeats the request with that. */
static bool ask_by_older(struct vb_iwcm_conn *c)
{
	if (c->wish.revision == 1)
		return false;
	vb_iwcm_unwatch(c);
	close(c->watch.fd);
	c->watch.fd = -1;
	if (c->any_port)
		c->ends.local_port = 0; /* the old connection still uses the port */
	c->wish.revision = 1;
	put_request(c);
	if (vb_iwcm_connect_tcp(c))
		return false;
	c->cm->stats.older++;
	return true;
}

static void connection_lost(struct vb_iwcm_conn *c, int err)
{
	c->cm->stats.lost++;
	if (!c->active)
		vb_iwcm_drop(c);
	else if (c->x->have || !ask_by_older(c))
		fail_asking(c, err == ETIMEDOUT ? err : ECONNRESET, NULL);
}

static void refuse_malformed(struct vb_iwcm_conn *c)
{
	c->cm->stats.malformed++;
	if (c->active)
		fail_asking(c, ECONNRESET, NULL);
	else
		vb_iwcm_drop(c);
}

/* Called when there is no listener. Tries again some times, like a repeated REQ, because programs may close a listener
 * and make the next one. */
static bool ask_later(struct vb_iwcm_conn *c)
{
	if (c->retries == VB_IWCM_RETRIES)
		return false;
	c->retries++;
	vb_iwcm_unwatch(c);
	close(c->watch.fd);
	c->watch.fd = -1;
	vb_iwcm_move(c, VB_IWCM_RETRYING);
	return true;
}

static void ask_now(struct vb_iwcm_conn *c)
{
	vb_iwcm_move(c, VB_IWCM_ASKING);
	int err = vb_iwcm_connect_tcp(c);

	if (err)
		fail_asking(c, err, NULL);
}

void vb_iwcm_expire(struct vb_iwcm_conn *c)
{
	if (c->queue == VB_IWCM_RETRYING) {
		ask_now(c);
		return;
	}
	if (c->queue == VB_IWCM_TIMEWAIT) {
		vb_iwcm_move(c, VB_IWCM_QUIET);
		c->cm->ops->exited(c->own);
		return;
	}
	if (c->queue == VB_IWCM_HOLDING) {
		vb_iwcm_move(c, VB_IWCM_QUIET);
		if (c->tie)
			vb_iwarp_hold_no_longer(c->cm->node, c->qpn);
		return;
	}
	if (c->queue != VB_IWCM_LINGERING)
		c->cm->stats.expired++;
	if (c->queue == VB_IWCM_ASKING)
		fail_asking(c, ETIMEDOUT, NULL);
	else
		vb_iwcm_drop(c);
}

/* --- bytes --- */

/* time: before the system call, or 0 if nobody captures. */
static void show_bytes(struct vb_iwcm_conn *c, enum vb_capture_direction direction, uint64_t time, uint8_t *bytes,
                       size_t n)
{
	const struct iovec iov = {bytes, n};

	if (time)
		vb_capture_tcp(direction, time, c->watch.fd, &iov, 1, n, 0);
}

/* Returns 0 when the whole frame is sent, EAGAIN, or another errno. */
static int send_some(struct vb_iwcm_conn *c)
{
	struct vb_iwcm_exchange *x = c->x;

	while (x->sent < x->out_len) {
		uint64_t time = vb_capturing() ? vb_capture_now() : 0;
		ssize_t n = send(c->watch.fd, x->out + x->sent, x->out_len - x->sent, MSG_NOSIGNAL | MSG_DONTWAIT);

		if (n < 0 && errno == EINTR)
			continue;
		if (n < 0)
			return errno;
		show_bytes(c, VB_CAPTURE_OUT, time, x->out + x->sent, (size_t)n);
		x->sent += (size_t)n;
	}
	return 0;
}

/* The length of the frame, as far as the bytes that have arrived show it. */
static size_t frame_size(const struct vb_iwcm_exchange *x)
{
	if (x->have < VB_MPA_FRAME_LEN)
		return VB_MPA_FRAME_LEN;
	return VB_MPA_FRAME_LEN + (size_t)vb_mpa_private_len(x->in);
}

/* Reads exactly one frame. Data behind it stays in the socket, for the stream. Returns 0 when the frame is complete,
 * EAGAIN, EPROTO if it is not a frame of this kind, or the errno of the connection. */
static int read_frame(struct vb_iwcm_conn *c, struct vb_mpa_frame *f)
{
	struct vb_iwcm_exchange *x = c->x;
	size_t used;

	for (;;) {
		ssize_t n = recv(c->watch.fd, x->in + x->have, frame_size(x) - x->have, MSG_DONTWAIT);

		if (n < 0 && errno == EINTR)
			continue;
		if (n <= 0)
			return n ? errno : ECONNRESET;
		show_bytes(c, VB_CAPTURE_IN, vb_capturing() ? vb_capture_now() : 0, x->in + x->have, (size_t)n);
		x->have += (size_t)n;
		enum vb_mpa_verdict verdict = vb_mpa_decode(f, &used, x->in, x->have, c->active);

		if (verdict != VB_MPA_SHORT)
			return verdict == VB_MPA_OK ? 0 : EPROTO;
	}
}

/* Returns an errno if the peer has sent data that it may not send before the reply, or has closed. */
static int check_silence(const struct vb_iwcm_conn *c)
{
	uint8_t byte;
	ssize_t n = recv(c->watch.fd, &byte, 1, MSG_PEEK | MSG_DONTWAIT);

	if (n > 0)
		return EPROTO;
	return n == 0 ? ECONNRESET : errno == EAGAIN ? 0 : errno;
}

/* --- the active side --- */

static void reply_is_here(struct vb_iwcm_conn *c, const struct vb_mpa_frame *f)
{
	struct vb_iwcm_said said = said_in(f);
	struct vb_mpa_terms terms;

	c->cm->stats.replies++;
	enum vb_mpa_refusal refusal = vb_mpa_conclude(&terms, &c->wish, f);

	if (refusal == VB_MPA_REJECTED) {
		fail_asking(c, ECONNREFUSED, &said);
		return;
	}
	if (refusal == VB_MPA_NEWER) {
		refuse_malformed(c);
		return;
	}
	take_terms(c, &terms);
	vb_iwcm_unwatch(c);
	if (refusal != VB_MPA_AGREED) {
		vb_iwcm_say_terminate(c, refusal == VB_MPA_NO_IRD ? VB_TERM_MPA_IRD : VB_TERM_MPA_RTR);
		tell_failure(c, refusal == VB_MPA_NO_IRD ? ENOMEM : EPROTO, &said);
		return;
	}
	c->state = VB_IWCM_STATE_REPLIED;
	vb_iwcm_move(c, VB_IWCM_QUIET);
	c->cm->ops->replied(c->own, 0, &said);
}

static void read_reply(struct vb_iwcm_conn *c)
{
	struct vb_mpa_frame f;
	int err = read_frame(c, &f);

	if (!err)
		reply_is_here(c, &f);
	else if (err == EPROTO)
		refuse_malformed(c);
	else if (err != EAGAIN)
		connection_lost(c, err);
}

static void send_request(struct vb_iwcm_conn *c)
{
	int err = send_some(c);

	if (err == EAGAIN)
		return;
	if (!err) {
		c->state = VB_IWCM_STATE_AWAITS_REPLY;
		err = vb_watch_change(c->cm->node, &c->watch, EPOLLIN);
	}
	if (err)
		connection_lost(c, err);
}

static void has_connected(struct vb_iwcm_conn *c)
{
	int err = 0;
	socklen_t len = sizeof(err);

	if (getsockopt(c->watch.fd, SOL_SOCKET, SO_ERROR, &err, &len))
		err = errno;
	if (!err && !vb_iwcm_learn_ends(c))
		err = ECONNRESET;
	if (err == ECONNREFUSED && ask_later(c))
		return;
	if (err) {
		fail_asking(c, err, NULL);
		return;
	}
	c->state = VB_IWCM_STATE_ASKING;
	send_request(c);
}

static bool is_connected(const struct vb_iwcm_conn *c)
{
	struct sockaddr_storage peer;
	socklen_t len = sizeof(peer);

	return c->state == VB_IWCM_STATE_CONNECTING && !getpeername(c->watch.fd, (struct sockaddr *)&peer, &len);
}

/* Lets earlier connections send their requests first, because programs number their queue pairs in that order. */
static void tcp_connected(struct vb_iwcm_conn *c)
{
	struct vb_iwcm_conn *e = c->cm->queues[VB_IWCM_ASKING].first, *next;

	for (int i = 0; i < EARLIER && e && e != c && e->queue == VB_IWCM_ASKING; i++, e = next) {
		next = e->next;
		if (is_connected(e))
			has_connected(e);
	}
	if (c->queue == VB_IWCM_ASKING && c->state == VB_IWCM_STATE_CONNECTING)
		has_connected(c);
}

/* --- the passive side --- */

static void request_is_here(struct vb_iwcm_conn *c, const struct vb_mpa_frame *f)
{
	struct vb_iwcm_said said = said_in(f);
	struct vb_iwcm_listener *l = c->listener;

	if (check_silence(c)) {
		refuse_malformed(c);
		return;
	}
	c->cm->stats.requests++;
	c->x->peers = *f;
	c->state = VB_IWCM_STATE_REQUESTED;
	vb_iwcm_unwatch(c);
	uint64_t fault = vb_fault_ask_cm(c->ends.remote);

	if (fault == VB_FAULT_CM_IGNORE) /* never answered: it ends when the time for half-open connections is over */
		return;
	vb_iwcm_move(c, VB_IWCM_QUIET);
	c->own = l->own && !fault ? c->cm->ops->request(l->own, c, &said) : NULL;
	if (!c->own && c->queue != VB_IWCM_DEAD)
		vb_iwcm_release(c);
}

static void read_one_request(struct vb_iwcm_conn *c)
{
	struct vb_mpa_frame f;
	int err = read_frame(c, &f);

	if (!err)
		request_is_here(c, &f);
	else if (err == EPROTO)
		refuse_malformed(c);
	else if (err != EAGAIN)
		connection_lost(c, err);
}

/* Reads requests of connections that were accepted earlier first, to keep their order here too. */
void vb_iwcm_read_request(struct vb_iwcm_conn *c)
{
	struct vb_iwcm_conn *e = c->cm->queues[VB_IWCM_HALF_OPEN].first, *next;

	for (int i = 0; i < EARLIER && e && e != c && e->queue == VB_IWCM_HALF_OPEN; i++, e = next) {
		next = e->next;
		if (e->listener == c->listener)
			read_one_request(e);
	}
	if (c->queue == VB_IWCM_HALF_OPEN)
		read_one_request(c);
}

/* Sends the whole frame at once. On a new socket this fails only if the peer does not read. */
static int send_whole(struct vb_iwcm_conn *c)
{
	int err = send_some(c);

	return err == EAGAIN || err == EPIPE ? ECONNRESET : err;
}

int vb_iwcm_reply(struct vb_iwcm_conn *c, const struct vb_iwcm_offer *offer)
{
	struct vb_mpa_terms terms;
	struct vb_mpa_frame f;
	int err = check_silence(c);

	if (!err) {
		set_wish(c, offer);
		keep_data(c->x, offer);
		enum vb_mpa_refusal refusal = vb_mpa_answer(&f, &terms, &c->wish, &c->x->peers);

		f.private_data = c->x->data;
		f.private_len = (uint16_t)c->x->data_len;
		put_frame(c, &f);
		err = send_whole(c);
		if (refusal != VB_MPA_AGREED)
			err = EPROTO;
	}
	c->state = VB_IWCM_STATE_REFUSED;
	if (err)
		return err == EPROTO ? ECONNRESET : err;
	take_terms(c, &terms);
	return 0;
}

void vb_iwcm_refuse(struct vb_iwcm_conn *c, const void *data, size_t len)
{
	struct vb_iwcm_offer offer = {.ird = c->x->peers.ord, .ord = c->x->peers.ird};
	struct vb_mpa_terms terms;
	struct vb_mpa_frame f;

	set_wish(c, &offer);
	vb_mpa_answer(&f, &terms, &c->wish, &c->x->peers);
	f.reject = true;
	f.private_data = data;
	f.private_len = (uint16_t)len;
	put_frame(c, &f);
	send_whole(c);
}

/* --- both sides --- */

static void drain_lingering(struct vb_iwcm_conn *c)
{
	uint8_t waste[1024];
	ssize_t n = recv(c->watch.fd, waste, sizeof(waste), MSG_DONTWAIT);

	if (n == 0 || (n < 0 && errno != EAGAIN && errno != EINTR))
		vb_iwcm_drop(c);
}

void vb_iwcm_ready(struct vb_watch *w, uint32_t events)
{
	struct vb_iwcm_conn *c = (struct vb_iwcm_conn *)w;
	struct vb_iwcm *cm = c->cm;

	cm->ops->lock();
	switch (c->queue == VB_IWCM_DEAD ? VB_IWCM_STATE_STREAM : (enum vb_iwcm_state)c->state) {
	case VB_IWCM_STATE_CONNECTING:
		tcp_connected(c);
		break;
	case VB_IWCM_STATE_ASKING:
		send_request(c);
		break;
	case VB_IWCM_STATE_AWAITS_REPLY:
		read_reply(c);
		break;
	case VB_IWCM_STATE_AWAITS_REQUEST:
		vb_iwcm_read_request(c);
		break;
	case VB_IWCM_STATE_LINGER:
		drain_lingering(c);
		break;
	default:
		break;
	}
	vb_iwcm_reap(cm);
	cm->ops->unlock();
}
