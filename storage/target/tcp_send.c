// tcp_send.c - output of a connection: data, responses, R2Ts, and its last message
// follows: NVMe/TCP transport specification 1.0, 3.3.1 to 3.3.4, 3.5, 3.6
// SPDX-License-Identifier: MIT
#include <errno.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/uio.h>
#include <unistd.h>

#include "frame/crc32c.h"
#include "target/tcp_conn.h"

#define PIECES 64
#define PIECES_OF_ITEM 5

static const uint8_t padding[256];

static uint8_t append_header_digest(const struct nt_conn *c, uint8_t *head, uint8_t len)
{
	if (!(c->digests & NV_TCP_HDGST))
		return len;
	nv_put32(head + len, vb_crc32c(0, head, len));
	return len + NV_TCP_DIGEST_LEN;
}

static void queue_output(struct nt_request *r)
{
	struct nt_conn *c = nt_conn_of(r->queue);

	if (c->mute)
		return;
	nt_item(r)->next = NULL;
	if (!c->tx_first)
		c->tx_since = c->tcp->target->now;
	*c->tx_end = r;
	c->tx_end = &nt_item(r)->next;
	nt_conn_dirty(c);
}

static uint8_t header_flag(const struct nt_conn *c)
{
	return c->digests & NV_TCP_HDGST;
}

/* One R2T for all data: any host allows that, and the memory exists. */
void nt_conn_r2t(struct nt_request *r)
{
	struct nt_conn *c = nt_conn_of(r->queue);
	struct nt_tcp_item *i = nt_item(r);
	uint32_t len = NV_TCP_DATA_LEN + (header_flag(c) ? NV_TCP_DIGEST_LEN : 0u);
	struct nv_tcp_common h = {.type = NV_TCP_R2T, .flags = header_flag(c), .hlen = NV_TCP_DATA_LEN, .plen = len};
	struct nv_tcp_data d = {.cccid = r->sqe.cid, .ttag = r->slot, .length = r->length};

	i->r2t = true;
	i->want = 0;
	i->since = c->tcp->target->now;
	c->fetching++;
	nv_tcp_common_encode(&h, i->head);
	nv_tcp_data_encode(&d, i->head);
	i->head_len = append_header_digest(c, i->head, NV_TCP_DATA_LEN);
	queue_output(r);
}

static void put_response(struct nt_conn *c, const struct nt_request *r, uint8_t *at, uint8_t *len)
{
	struct nv_tcp_common h = {.type = NV_TCP_RESPONSE,
	                          .flags = header_flag(c),
	                          .hlen = NV_TCP_RESPONSE_LEN,
	                          .plen = NV_TCP_RESPONSE_LEN + (header_flag(c) ? NV_TCP_DIGEST_LEN : 0u)};

	nv_tcp_common_encode(&h, at);
	nv_cqe_encode(&r->cqe, at + NV_TCP_COMMON_LEN);
	*len = append_header_digest(c, at, NV_TCP_RESPONSE_LEN);
}

/* Sends all data in one PDU. A successful response may be omitted if the host does not use SQHD. NVMe/TCP 1.0,
 * 3.3.2.2 */
static void put_data(struct nt_conn *c, struct nt_request *r)
{
	struct nt_tcp_item *i = nt_item(r);
	uint8_t pdo = nv_tcp_pdo(NV_TCP_DATA_LEN, header_flag(c), c->hpda),
	        digest = c->digests & NV_TCP_DDGST ? NV_TCP_DIGEST_LEN : 0;
	bool silent = c->q.no_sq_flow && !r->cqe.status && !r->cqe.result;
	struct nv_tcp_common h = {.type = NV_TCP_C2H_DATA,
	                          .flags = c->digests | NV_TCP_LAST | (silent ? NV_TCP_SUCCESS : 0),
	                          .hlen = NV_TCP_DATA_LEN,
	                          .pdo = pdo,
	                          .plen = pdo + r->length + digest};
	struct nv_tcp_data d = {.cccid = r->sqe.cid, .length = r->length};

	nv_tcp_common_encode(&h, i->head);
	nv_tcp_data_encode(&d, i->head);
	i->head_len = append_header_digest(c, i->head, NV_TCP_DATA_LEN);
	i->pad = pdo - i->head_len;
	if (digest)
		nv_put32(i->digest, vb_crc32c(0, r->data, r->length));
	if (!silent)
		put_response(c, r, i->tail, &i->tail_len);
}

void nt_conn_respond(struct nt_request *r)
{
	struct nt_conn *c = nt_conn_of(r->queue);
	struct nt_tcp_item *i = nt_item(r);

	nt_conn_answered(r);
	memset(i, 0, sizeof(*i));
	if (r->send)
		put_data(c, r);
	else
		put_response(c, r, i->head, &i->head_len);
	queue_output(r);
}

void nt_conn_send_own(struct nt_conn *c, const uint8_t *bytes, uint32_t len)
{
	memcpy(c->own, bytes, len);
	c->own_len = len;
	c->own_at = 0;
	if (!c->tx_since)
		c->tx_since = c->tcp->target->now;
	nt_conn_dirty(c);
}

/* Sends the error, but not within another PDU. Nothing else is sent or read afterwards. NVMe/TCP 1.0, 3.5.1 */
void nt_conn_terminate(struct nt_conn *c, uint16_t fes, uint32_t fei)
{
	uint8_t pdu[NV_TCP_TERM_MAX];
	struct nv_tcp_term t = {.fes = fes, .fei = fei};
	bool between = !c->tx_at && !c->own_at;

	c->rx = NT_RX_OFF;
	if (c->ending)
		return;
	c->mute = true;
	c->tx_first = NULL;
	c->tx_end = &c->tx_first;
	if (!between) {
		nt_conn_fail(c);
		return;
	}
	nt_conn_send_own(c, pdu, (uint32_t)nv_tcp_term_encode(&t, true, c->head, c->head_len, pdu));
	nt_conn_end(c);
}

static int request_pieces(struct nt_conn *c, struct nt_request *r, struct iovec v[PIECES_OF_ITEM])
{
	struct nt_tcp_item *i = nt_item(r);
	bool data = !i->r2t && r->send;
	int n = 0;

	v[n++] = (struct iovec){i->head, i->head_len};
	if (data) {
		if (i->pad)
			v[n++] = (struct iovec){(void *)(uintptr_t)padding, i->pad};
		v[n++] = (struct iovec){r->data, r->length};
		if (c->digests & NV_TCP_DDGST)
			v[n++] = (struct iovec){i->digest, NV_TCP_DIGEST_LEN};
	}
	if (i->tail_len)
		v[n++] = (struct iovec){i->tail, i->tail_len};
	return n;
}

static size_t skip_bytes(struct iovec *v, int n, size_t bytes)
{
	size_t total = 0;

	for (int i = 0; i < n; i++) {
		size_t k = bytes < v[i].iov_len ? bytes : v[i].iov_len;

		v[i].iov_base = (uint8_t *)v[i].iov_base + k;
		v[i].iov_len -= k;
		bytes -= k;
		total += v[i].iov_len;
	}
	return total;
}

static int target_gather(struct nt_conn *c, struct iovec *v)
{
	int n = 0;

	if (c->own_at < c->own_len)
		v[n++] = (struct iovec){c->own + c->own_at, c->own_len - c->own_at};
	for (struct nt_request *r = c->tx_first; r && n + PIECES_OF_ITEM <= PIECES; r = nt_item(r)->next) {
		int k = request_pieces(c, r, v + n);

		if (r == c->tx_first)
			skip_bytes(v + n, k, c->tx_at);
		n += k;
	}
	return n;
}

static void output_sent(struct nt_conn *c, size_t bytes)
{
	if (c->own_at < c->own_len) {
		size_t k = bytes < c->own_len - c->own_at ? bytes : c->own_len - c->own_at;

		c->own_at += (uint32_t)k;
		bytes -= k;
		if (c->own_at == c->own_len)
			c->own_at = c->own_len = 0;
	}
	while (c->tx_first) {
		struct nt_request *r = c->tx_first;
		struct iovec v[PIECES_OF_ITEM];
		size_t left = skip_bytes(v, request_pieces(c, r, v), c->tx_at);

		if (bytes < left) {
			c->tx_at += bytes;
			return;
		}
		bytes -= left;
		c->tx_at = 0;
		c->tx_since = c->tcp->target->now;
		if (!(c->tx_first = nt_item(r)->next))
			c->tx_end = &c->tx_first;
		if (nt_item(r)->r2t)
			nt_item(r)->r2t_sent = true;
		else
			nt_release(r);
	}
	c->tx_since = c->own_len ? c->tx_since : 0;
}

/* Tests whether a request's data is readable. The kernel gathers from several requests and does not report which one
 * failed. */
static bool is_data_readable(const struct nt_request *r)
{
	static uint8_t nowhere[64 << 10];
	struct iovec to = {nowhere, sizeof(nowhere)}, from = {r->data, sizeof(nowhere)};

	for (uint32_t at = 0; at < r->length; at += (uint32_t)from.iov_len) {
		from.iov_base = r->data + at;
		if (from.iov_len > r->length - at)
			from.iov_len = to.iov_len = r->length - at;
		if (process_vm_readv(getpid(), &to, 1, &from, 1, 0) != (ssize_t)from.iov_len)
			return false;
	}
	return true;
}

/* A mapped file has shrunk, so announced data cannot be sent. */
static void find_lost(struct nt_conn *c)
{
	for (struct nt_request *r = c->tx_first; r; r = nt_item(r)->next)
		if (r->borrowed && r->send && !is_data_readable(r))
			nt_map_lost(r);
}

void nt_conn_flush(struct nt_conn *c)
{
	for (int turns = 0; turns < 16; turns++) {
		struct iovec v[PIECES];
		int count = target_gather(c, v);

		if (!count && !nt_conn_unsent(c))
			return;
		ssize_t n = nt_conn_write(c, v, count);

		if (n < 0 && errno == EINTR)
			continue;
		if (n < 0) {
			int error = errno;

			if (error == EFAULT)
				find_lost(c);
			if (error != EAGAIN)
				nt_conn_fail(c);
			return;
		}
		output_sent(c, (size_t)n);
		if (!count)
			return;
	}
}
