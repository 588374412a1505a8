// tcp_send.c - output of a connection: capsules, and data that the target requested
// follows: NVMe/TCP transport specification 1.0, 3.3 and 3.6
// SPDX-License-Identifier: MIT
#include <errno.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/uio.h>

#include "client/tcp.h"
#include "frame/crc32c.h"

#define PIECES 48 /* pieces of one sendmsg; three for each PDU */

static void enqueue_pdu(struct vn_tcp_queue *t, struct vn_cmd *c)
{
	c->tcp.sent = 0;
	c->tcp.queued = true;
	c->tcp.next = NULL;
	*t->out_end = c;
	t->out_end = &c->tcp.next;
}

/* Adds common header, digests and padding to a PDU whose own header is already in part->head. */
static void finish_pdu(struct vn_tcp_queue *t, struct vn_cmd *c, uint8_t type, uint8_t flags, uint8_t hlen)
{
	struct vn_tcp_part *p = &c->tcp;
	bool hdgst = t->digests & NV_TCP_HDGST, ddgst = p->data_len && t->digests & NV_TCP_DDGST;
	uint32_t end = hlen + (hdgst ? NV_TCP_DIGEST_LEN : 0u);
	struct nv_tcp_common h = {
	        .type = type, .hlen = hlen, .flags = flags | (hdgst ? NV_TCP_HDGST : 0) | (ddgst ? NV_TCP_DDGST : 0)};

	p->head_len = end;
	p->tail_len = ddgst ? NV_TCP_DIGEST_LEN : 0;
	if (p->data_len) {
		h.pdo = nv_tcp_pdo(hlen, hdgst, t->cpda);
		p->head_len = h.pdo;
		memset(p->head + end, 0, h.pdo - end);
	}
	h.plen = p->head_len + p->data_len + p->tail_len;
	nv_tcp_common_encode(&h, p->head);
	if (hdgst)
		nv_put32(p->head + hlen, vb_crc32c(0, p->head, hlen));
	if (ddgst)
		nv_put32(p->tail, vb_crc32c(0, c->data + p->data_at, p->data_len));
}

void vn_tcp_submit(struct vn_queue *q, struct vn_cmd *c)
{
	struct vn_tcp_queue *t = vn_tcp_of(q);
	struct nv_sqe s = c->sqe;

	memset(&c->tcp, 0, sizeof(c->tcp));
	c->tcp.in_capsule = c->way == VN_TO_TARGET && c->length <= q->inline_max;
	c->tcp.data_len = c->tcp.in_capsule ? c->length : 0;
	s.cid = c->cid;
	s.psdt = NV_PSDT_SGL;
	s.sgl = c->tcp.in_capsule ? (struct nv_sgl){.type = NV_SGL_DATA, .subtype = NV_SGL_OFFSET, .length = c->length}
	                          : (struct nv_sgl){.type = NV_SGL_TRANSPORT,
	                                            .subtype = NV_SGL_TRANSPORT_SPECIFIC,
	                                            .length = c->way == VN_NO_DATA ? 0 : c->length};
	nv_sqe_encode(&s, c->tcp.head + NV_TCP_COMMON_LEN);
	finish_pdu(t, c, NV_TCP_COMMAND, 0, NV_TCP_COMMAND_LEN);
	t->large += c->way == VN_FROM_TARGET && c->length > NV_PAGE;
	enqueue_pdu(t, c);
}

void vn_tcp_requested(struct vn_tcp_queue *t, struct vn_cmd *c)
{
	struct vn_tcp_part *p = &c->tcp;
	uint32_t n = p->h2c_end - p->moved;

	if (n > t->h2c_max)
		n = t->h2c_max;
	struct nv_tcp_data d = {.cccid = c->cid, .ttag = p->ttag, .offset = p->moved, .length = n};

	p->h2c = true;
	p->data_at = p->moved;
	p->data_len = n;
	p->moved += n;
	nv_tcp_data_encode(&d, p->head);
	finish_pdu(t, c, NV_TCP_H2C_DATA, p->moved == p->h2c_end ? NV_TCP_LAST : 0, NV_TCP_DATA_LEN);
	enqueue_pdu(t, c);
}

/* Called after a PDU was sent completely and removed from the list. */
static void pdu_sent(struct vn_tcp_queue *t, struct vn_cmd *c)
{
	struct vn_tcp_part *p = &c->tcp;

	p->queued = false;
	p->sent_capsule = true;
	if (p->h2c && p->moved < p->h2c_end) {
		vn_tcp_requested(t, c);
		return;
	}
	p->h2c = false;
	if (c->answered)
		vn_cmd_complete(&t->q, c);
}

static void add_piece(struct iovec *v, int *n, uint8_t *at, uint32_t len, uint32_t *skip)
{
	if (*skip >= len) {
		*skip -= len;
		return;
	}
	v[(*n)++] = (struct iovec){at + *skip, len - *skip};
	*skip = 0;
}

static int client_gather(struct vn_tcp_queue *t, struct iovec v[PIECES])
{
	int n = 0;

	for (struct vn_cmd *c = t->out; c && n + 3 <= PIECES; c = c->tcp.next) {
		struct vn_tcp_part *p = &c->tcp;
		uint32_t skip = p->sent;

		add_piece(v, &n, p->head, p->head_len, &skip);
		if (p->data_len) /* otherwise data may be NULL */
			add_piece(v, &n, c->data + p->data_at, p->data_len, &skip);
		add_piece(v, &n, p->tail, p->tail_len, &skip);
	}
	return n;
}

static void advance_output(struct vn_tcp_queue *t, size_t n)
{
	while (n) {
		struct vn_cmd *c = t->out;
		struct vn_tcp_part *p = &c->tcp;
		uint32_t left = p->head_len + p->data_len + p->tail_len - p->sent;

		if (n < left) {
			p->sent += (uint32_t)n;
			return;
		}
		n -= left;
		t->out = p->next;
		if (!t->out)
			t->out_end = &t->out;
		pdu_sent(t, c);
	}
}

static void set_blocked(struct vn_tcp_queue *t, bool blocked)
{
	if (t->blocked == blocked)
		return;
	t->blocked = blocked;
	if (t->q.epoll >= 0)
		vn_queue_watch(&t->q, t->q.epoll);
}

void vn_tcp_push(struct vn_queue *q)
{
	struct vn_tcp_queue *t = vn_tcp_of(q);

	while ((t->out || vn_tcp_unsent(t)) && !q->error && !t->cut) {
		struct iovec v[PIECES];
		int count = client_gather(t, v);
		ssize_t n = vn_tcp_write(t, v, count);

		if (n < 0 && errno == EINTR)
			continue;
		if (n < 0 && errno == EAGAIN) {
			set_blocked(t, true);
			return;
		}
		if (n < 0) {
			vn_queue_break(q, errno, "sending: %s", strerror(errno));
			return;
		}
		advance_output(t, (size_t)n);
		if (!count)
			break;
	}
	set_blocked(t, vn_tcp_unsent(t) && !t->cut);
}
