// tcp_receive.c - input of a connection: every field of every PDU is untrusted
// follows: NVMe/TCP transport specification 1.0, 3.3 to 3.6
// SPDX-License-Identifier: MIT
#include <errno.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/uio.h>

#include "client/tcp.h"
#include "frame/crc32c.h"

#define TURN (4u << 20) /* bytes read from one connection before others are served */

static void refuse_pdu(struct vn_tcp_queue *t, uint16_t fes, const char *what)
{
	uint8_t pdu[NV_TCP_TERM_MAX];
	struct nv_tcp_term term = {.fes = fes};

	if (t->q.error)
		return;
	vn_queue_break(&t->q, EPROTO, "the target violates the protocol: %s", what);
	if (!t->out || !t->out->tcp.sent) { /* not within another PDU */
		size_t n = nv_tcp_term_encode(&term, false, t->head, t->head_len, pdu);

		(void)!vn_tcp_write(t, &(struct iovec){pdu, n}, 1);
	}
}

static uint32_t hdgst_len(const struct vn_tcp_queue *t)
{
	return t->digests & NV_TCP_HDGST ? NV_TCP_DIGEST_LEN : 0;
}

static void client_next_pdu(struct vn_tcp_queue *t)
{
	t->rx = VN_RX_HEAD;
	t->head_len = 0;
	t->rx_cmd = NULL;
}

static void take_cqe(struct vn_tcp_queue *t, struct vn_cmd *c, const struct nv_cqe *cqe)
{
	c->cqe = *cqe;
	c->answered = true;
	if (!c->tcp.queued)
		vn_cmd_complete(&t->q, c);
}

/* ---- data ---- */

static void client_finish_data(struct vn_tcp_queue *t)
{
	struct vn_cmd *c = t->rx_cmd;
	struct nv_cqe ok = {.cid = c->cid};

	/* fails the command, not the connection. NVMe/TCP 1.0, 3.5.2 */
	if (t->pdu.flags & NV_TCP_DDGST && nv_get32(t->rx_digest) != t->rx_crc)
		c->digest_failed = true;
	client_next_pdu(t);
	if (t->pdu.flags & NV_TCP_SUCCESS)
		take_cqe(t, c, &ok);
}

/* n bytes of data have been stored */
static void client_took_data(struct vn_tcp_queue *t, uint32_t n)
{
	struct vn_cmd *c = t->rx_cmd;

	if (t->pdu.flags & NV_TCP_DDGST)
		t->rx_crc = vb_crc32c(t->rx_crc, c->data + c->tcp.moved, n);
	c->tcp.moved += n;
	t->rx_left -= n;
	if (t->rx_left)
		return;
	if (t->pdu.flags & NV_TCP_DDGST)
		t->rx = VN_RX_DIGEST;
	else
		client_finish_data(t);
}

/* ---- PDUs ---- */

static void take_data(struct vn_tcp_queue *t, uint32_t data)
{
	struct nv_tcp_data d = nv_tcp_data_decode(t->head);
	struct vn_cmd *c = vn_queue_find(&t->q, d.cccid);

	if (!c || c->way != VN_FROM_TARGET || !c->tcp.sent_capsule) {
		refuse_pdu(t, NV_TCP_FES_HEADER, "data for no command");
		return;
	}
	if (!data || d.length != data || d.offset != c->tcp.moved || d.length > c->length - c->tcp.moved) {
		refuse_pdu(t, NV_TCP_FES_RANGE, "data out of range");
		return;
	}
	bool whole = d.length == c->length - c->tcp.moved, last = t->pdu.flags & NV_TCP_LAST,
	     success = t->pdu.flags & NV_TCP_SUCCESS;

	if ((last && !whole) || (success && !last)) {
		refuse_pdu(t, NV_TCP_FES_HEADER, "flags of data");
		return;
	}
	t->rx_cmd = c;
	t->rx_left = d.length;
	t->rx_crc = 0;
	t->rx_digest_len = 0;
	t->rx = VN_RX_DATA;
}

static void take_r2t(struct vn_tcp_queue *t)
{
	struct nv_tcp_data d = nv_tcp_data_decode(t->head);
	struct vn_cmd *c = vn_queue_find(&t->q, d.cccid);

	if (!c || c->way != VN_TO_TARGET || c->tcp.in_capsule || !c->tcp.sent_capsule || c->answered) {
		refuse_pdu(t, NV_TCP_FES_HEADER, "a request for data of no command");
		return;
	}
	if (c->tcp.h2c) {
		refuse_pdu(t, NV_TCP_FES_LIMIT, "more requests for data than allowed");
		return;
	}
	if (!d.length || d.offset != c->tcp.moved || d.length > c->length - c->tcp.moved) {
		refuse_pdu(t, NV_TCP_FES_RANGE, "a request for data out of range");
		return;
	}
	client_next_pdu(t);
	c->tcp.ttag = d.ttag;
	c->tcp.h2c_end = d.offset + d.length;
	vn_tcp_requested(t, c);
}

static void take_response(struct vn_tcp_queue *t)
{
	struct nv_cqe e = nv_cqe_decode(t->head + NV_TCP_COMMON_LEN);
	struct vn_cmd *c = vn_queue_find(&t->q, e.cid);

	if (!c || c->answered || !c->tcp.sent_capsule) {
		refuse_pdu(t, NV_TCP_FES_HEADER, "an answer to no command");
		return;
	}
	bool moved = c->way == VN_NO_DATA || c->tcp.in_capsule || (c->tcp.moved == c->length && !c->tcp.h2c);

	if (!e.status && !moved) {
		refuse_pdu(t, NV_TCP_FES_SEQUENCE, "success before the data");
		return;
	}
	client_next_pdu(t);
	take_cqe(t, c, &e);
}

static void client_take_pdu(struct vn_tcp_queue *t, uint32_t data)
{
	switch (t->pdu.type) {
	case NV_TCP_C2H_DATA:
		take_data(t, data);
		break;
	case NV_TCP_R2T:
		take_r2t(t);
		break;
	case NV_TCP_RESPONSE:
		take_response(t);
		break;
	case NV_TCP_C2H_TERM:
		vn_queue_break(&t->q, EPROTO, "the target ends the connection: error %u at %u",
		               nv_tcp_term_decode(t->head).fes, nv_tcp_term_decode(t->head).fei);
		break;
	default:
		refuse_pdu(t, NV_TCP_FES_SEQUENCE, "a second greeting");
		break;
	}
}

/* ---- headers ---- */

/* The length of the header, as far as known. At most sizeof(t->head) once it is checked. */
static uint32_t client_header_length(const struct vn_tcp_queue *t)
{
	if (t->head_len < NV_TCP_COMMON_LEN)
		return NV_TCP_COMMON_LEN;
	uint32_t n = t->pdu.hlen + (t->pdu.flags & NV_TCP_HDGST ? NV_TCP_DIGEST_LEN : 0u);

	if (t->pdu.type == NV_TCP_C2H_TERM)
		return t->pdu.plen;
	return t->pdu.plen > n ? t->pdu.pdo : n;
}

static bool digest_right(const struct vn_tcp_queue *t)
{
	return !(t->pdu.flags & NV_TCP_HDGST) || nv_get32(t->head + t->pdu.hlen) == vb_crc32c(0, t->head, t->pdu.hlen);
}

static uint32_t client_take_header(struct vn_tcp_queue *t, const uint8_t *bytes, uint32_t len)
{
	uint32_t want = client_header_length(t), n = len < want - t->head_len ? len : want - t->head_len, data, fei;

	memcpy(t->head + t->head_len, bytes, n);
	t->head_len += n;
	if (t->head_len < want)
		return n;
	t->pdu = nv_tcp_common_decode(t->head);
	int fes = nv_tcp_check(&t->pdu, true, t->digests, 0, &data, &fei);

	if (fes)
		refuse_pdu(t, (uint16_t)fes, "a header");
	else if (client_header_length(t) > t->head_len)
		return n;
	else if (!digest_right(t))
		refuse_pdu(t, NV_TCP_FES_HDGST, "a header's digest");
	else
		client_take_pdu(t, data);
	return n;
}

static uint32_t client_take_digest(struct vn_tcp_queue *t, const uint8_t *bytes, uint32_t len)
{
	uint32_t n = len < NV_TCP_DIGEST_LEN - t->rx_digest_len ? len : NV_TCP_DIGEST_LEN - t->rx_digest_len;

	memcpy(t->rx_digest + t->rx_digest_len, bytes, n);
	t->rx_digest_len += n;
	if (t->rx_digest_len == NV_TCP_DIGEST_LEN)
		client_finish_data(t);
	return n;
}

/* ---- bytes ---- */

static bool client_consume(struct vn_tcp_queue *t)
{
	const uint8_t *at = t->in + t->in_at;
	uint32_t left = t->in_len - t->in_at, n = 0;

	if (!left || t->q.error)
		return false;
	switch (t->rx) {
	case VN_RX_HEAD:
		n = client_take_header(t, at, left);
		break;
	case VN_RX_DATA:
		n = left < t->rx_left ? left : t->rx_left;
		memcpy(t->rx_cmd->data + t->rx_cmd->tcp.moved, at, n);
		t->q.copied += n;
		client_took_data(t, n);
		break;
	case VN_RX_DIGEST:
		n = client_take_digest(t, at, left);
		break;
	}
	t->in_at += n;
	return true;
}

/* The limit for reading into in[]. Does not read beyond the next header if large data may follow. */
static uint32_t input_room(const struct vn_tcp_queue *t)
{
	uint32_t header = NV_TCP_DATA_LEN + hdgst_len(t);

	if (!t->large)
		return sizeof(t->in);
	switch (t->rx) {
	case VN_RX_HEAD:
		return t->head_len < NV_TCP_COMMON_LEN ? header - t->head_len : client_header_length(t) - t->head_len;
	case VN_RX_DATA:
		return header + (t->pdu.flags & NV_TCP_DDGST ? NV_TCP_DIGEST_LEN : 0u);
	default:
		return header + NV_TCP_DIGEST_LEN - t->rx_digest_len;
	}
}

/* Reads data directly into its memory, and the bytes after it into the buffer. */
static ssize_t client_read_more(struct vn_tcp_queue *t)
{
	uint32_t direct = t->rx == VN_RX_DATA ? t->rx_left : 0;
	struct iovec v[2] = {{direct ? t->rx_cmd->data + t->rx_cmd->tcp.moved : NULL, direct}, {t->in, input_room(t)}};
	ssize_t n = vn_tcp_read(t, direct ? v : v + 1, direct ? 2 : 1);

	if (n <= 0)
		return n;
	uint32_t k = (size_t)n < direct ? (uint32_t)n : direct;

	t->in_at = 0;
	t->in_len = (uint32_t)n - k;
	if (k)
		client_took_data(t, k);
	return n;
}

void vn_tcp_receive(struct vn_tcp_queue *t)
{
	for (uint32_t total = 0; total < TURN;) { /* arm finds data that TLS has decrypted already */
		while (client_consume(t))
			;
		if (t->q.error)
			return;
		ssize_t n = client_read_more(t);

		if (n < 0 && errno == EINTR)
			continue;
		if (n < 0 && errno == EAGAIN)
			return;
		if (n <= 0) {
			vn_queue_break(&t->q, n ? errno : ECONNRESET,
			               n ? "receiving: %s" : "the target closed the connection", strerror(errno));
			return;
		}
		total += (uint32_t)n;
	}
	while (client_consume(t))
		;
}
