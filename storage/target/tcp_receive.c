// tcp_receive.c - input of a connection: every field of every PDU is untrusted
// follows: NVMe/TCP transport specification 1.0, 3.3 to 3.6
// SPDX-License-Identifier: MIT
#include <errno.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/uio.h>

#include "frame/crc32c.h"
#include "target/tcp_conn.h"

#define TURN (256u << 10) /* bytes read from one connection before others are served */

/* Offsets for FEI. NVMe/TCP 1.0, 3.6.2 */
enum { AT_PLEN = 4, AT_PFV = 8, AT_DGST = 11, AT_CCCID = 8, AT_TTAG = 10, AT_DATAO = 12, AT_DATAL = 16, AT_FLAGS = 1 };

static uint8_t data_digest(const struct nt_conn *c)
{
	return c->pdu.flags & NV_TCP_DDGST;
}

static void target_next_pdu(struct nt_conn *c)
{
	c->rx = NT_RX_HEAD;
	c->head_len = 0;
	c->rx_since = 0;
	c->rx_request = NULL;
}

/* ---- data ---- */

static void target_finish_data(struct nt_conn *c)
{
	struct nt_request *r = c->rx_request;
	bool whole = true;

	if (data_digest(c) && nv_get32(c->rx_digest) != c->rx_crc && r)
		nt_item(r)->digest_failed = true;
	target_next_pdu(c);
	if (!r)
		return;
	if (nt_item(r)->r2t) {
		whole = nt_item(r)->want == r->length;
		c->fetching -= whole;
	}
	/* a data digest error fails only the command, which may be retried. NVMe/TCP 1.0, 3.5.2 */
	if (whole)
		nt_fetched(r, nt_item(r)->digest_failed ? NV_TRANSIENT_TRANSPORT : 0);
}

static void after_data(struct nt_conn *c)
{
	if (c->rx_drain) {
		c->rx = NT_RX_DRAIN;
		c->rx_left = c->rx_drain;
		c->rx_drain = 0;
		return;
	}
	c->rx_digest_len = 0;
	if (data_digest(c))
		c->rx = NT_RX_DIGEST;
	else
		target_finish_data(c);
}

static void expect_data(struct nt_conn *c, struct nt_request *r, uint8_t *at, uint32_t length, uint32_t beyond)
{
	if (c->ending) /* reading has ended while the request waited for memory */
		return;
	c->rx_crc = 0;
	c->rx_request = r;
	c->rx_at = at;
	c->rx_left = length;
	c->rx_drain = beyond;
	c->rx = NT_RX_DATA;
	if (!length)
		after_data(c);
}

/* n bytes of data have been stored or skipped. */
static void target_took_data(struct nt_conn *c, const uint8_t *at, uint32_t n)
{
	if (data_digest(c))
		c->rx_crc = vb_crc32c(c->rx_crc, at, n);
	if (c->rx == NT_RX_DATA)
		c->rx_at += n;
	c->rx_left -= n;
	if (!c->rx_left)
		after_data(c);
}

/* ---- PDUs ---- */

static void take_icreq(struct nt_conn *c)
{
	struct nv_tcp_ic q = nv_tcp_ic_decode(c->head);
	struct nv_tcp_ic a = {.align = NT_TCP_CPDA, .number = NT_TCP_H2C_MAX};
	uint8_t pdu[NV_TCP_IC_LEN];

	if (c->greeted) {
		nt_conn_terminate(c, NV_TCP_FES_SEQUENCE, 0);
		return;
	}
	if (q.pfv) {
		nt_conn_terminate(c, NV_TCP_FES_UNSUPPORTED, AT_PFV);
		return;
	}
	if (q.align > 31) {
		nt_conn_terminate(c, NV_TCP_FES_HEADER, 10);
		return;
	}
	c->greeted = true;
	c->hpda = q.align;
	a.digests = q.digests & (NV_TCP_HDGST | NV_TCP_DDGST);
	nv_tcp_ic_encode(&a, true, pdu);
	nt_conn_send_own(c, pdu, sizeof(pdu));
	c->digests = a.digests;
	c->q.stable |= !!(c->digests & NV_TCP_DDGST);
	target_next_pdu(c);
}

static void take_command(struct nt_conn *c, uint32_t data)
{
	struct nt_request *r;

	if (data > NT_TCP_INLINE) {
		nt_conn_terminate(c, NV_TCP_FES_LIMIT, AT_PLEN);
		return;
	}
	c->rx_request = NULL;
	c->rx_left = data; /* nt_conn_fetch reads it */
	c->rx = NT_RX_PAUSED;
	if (!nt_command(&c->q, c->head + NV_TCP_COMMON_LEN, data, &r)) {
		nt_conn_terminate(c, NV_TCP_FES_SEQUENCE, 0);
		return;
	}
	if (c->rx != NT_RX_PAUSED) /* fetch was called already */
		return;
	if (nt_capsule_waits(r))
		c->rx_request = r;
	else if (data)
		expect_data(c, NULL, NULL, 0, data);
	else
		target_next_pdu(c);
}

void nt_conn_fetch(struct nt_request *r)
{
	struct nt_conn *c = nt_conn_of(r->queue);

	if (!r->in_capsule)
		nt_conn_r2t(r);
	else
		expect_data(c, r, r->data, r->length, c->rx_left - r->length);
	c->rx_since = c->rx_since ? c->tcp->target->now : 0; /* the host did not cause the delay */
	nt_conn_dirty(c);                                    /* reading may have been paused */
}

void nt_conn_answered(struct nt_request *r)
{
	struct nt_conn *c = nt_conn_of(r->queue);

	if (c->rx == NT_RX_PAUSED && c->rx_request == r) {
		expect_data(c, NULL, NULL, 0, c->rx_left);
		nt_conn_dirty(c);
	}
}

static void take_h2c_data(struct nt_conn *c, uint32_t data)
{
	struct nv_tcp_data d = nv_tcp_data_decode(c->head);
	struct nt_request *r = nt_slot(&c->q, d.ttag);

	if (!r || r->state != NT_FETCH || !nt_item(r)->r2t || !nt_item(r)->r2t_sent) {
		nt_conn_terminate(c, NV_TCP_FES_HEADER, AT_TTAG);
		return;
	}
	if (d.cccid != r->sqe.cid) {
		nt_conn_terminate(c, NV_TCP_FES_HEADER, AT_CCCID);
		return;
	}
	struct nt_tcp_item *i = nt_item(r);

	if (!d.length || d.length != data) {
		nt_conn_terminate(c, NV_TCP_FES_HEADER, AT_DATAL);
		return;
	}
	if (d.offset != i->want || d.length > r->length - i->want) {
		nt_conn_terminate(c, NV_TCP_FES_RANGE, d.offset != i->want ? AT_DATAO : AT_DATAL);
		return;
	}
	if (!(c->pdu.flags & NV_TCP_LAST) != (d.length < r->length - i->want)) {
		nt_conn_terminate(c, NV_TCP_FES_HEADER, AT_FLAGS);
		return;
	}
	i->want += d.length;
	expect_data(c, r, r->data + d.offset, d.length, 0);
}

static void target_take_pdu(struct nt_conn *c, uint32_t data)
{
	switch (c->pdu.type) {
	case NV_TCP_ICREQ:
		take_icreq(c);
		break;
	case NV_TCP_COMMAND:
		take_command(c, data);
		break;
	case NV_TCP_H2C_DATA:
		take_h2c_data(c, data);
		break;
	default: /* NV_TCP_H2C_TERM: the host ends the connection */
		c->rx = NT_RX_OFF;
		nt_conn_fail(c);
		break;
	}
}

/* ---- headers ---- */

/* The length of the header, as far as known. */
static uint32_t target_header_length(const struct nt_conn *c)
{
	if (c->head_len < NV_TCP_COMMON_LEN)
		return NV_TCP_COMMON_LEN;
	uint32_t n = c->pdu.hlen, digest = c->pdu.flags & NV_TCP_HDGST ? NV_TCP_DIGEST_LEN : 0;
	bool data = c->pdu.plen > n + digest;

	if (c->pdu.type == NV_TCP_H2C_TERM)
		return c->pdu.plen;
	return data ? c->pdu.pdo : n + digest;
}

static bool check_common(struct nt_conn *c, uint32_t *data)
{
	uint32_t fei = 0;

	c->pdu = nv_tcp_common_decode(c->head);
	int fes = nv_tcp_check(&c->pdu, false, c->digests, NT_TCP_CPDA, data, &fei);

	if (!fes && !c->greeted && c->pdu.type != NV_TCP_ICREQ && c->pdu.type != NV_TCP_H2C_TERM)
		fes = NV_TCP_FES_SEQUENCE;
	if (!fes && c->pdu.type == NV_TCP_H2C_DATA && !*data)
		fes = NV_TCP_FES_HEADER, fei = AT_PLEN;
	if (!fes && *data > NT_TCP_H2C_MAX)
		fes = NV_TCP_FES_LIMIT, fei = AT_PLEN;
	if (fes)
		nt_conn_terminate(c, (uint16_t)fes, fei);
	return !fes;
}

static bool check_digest(struct nt_conn *c)
{
	uint32_t is, want;

	if (!(c->pdu.flags & NV_TCP_HDGST))
		return true;
	is = nv_get32(c->head + c->pdu.hlen);
	want = vb_crc32c(0, c->head, c->pdu.hlen);
	if (is != want)
		nt_conn_terminate(c, NV_TCP_FES_HDGST, is);
	return is == want;
}

static uint32_t target_take_header(struct nt_conn *c, const uint8_t *bytes, uint32_t len)
{
	uint32_t want = target_header_length(c), data = 0, n = len < want - c->head_len ? len : want - c->head_len;

	if (!c->rx_since)
		c->rx_since = c->tcp->target->now;
	memcpy(c->head + c->head_len, bytes, n);
	c->head_len += n;
	if (c->head_len < want)
		return n;
	if (!check_common(c, &data) || target_header_length(c) > c->head_len)
		return n;
	if (check_digest(c))
		target_take_pdu(c, data);
	return n;
}

/* ---- bytes ---- */

static uint32_t target_take_digest(struct nt_conn *c, const uint8_t *bytes, uint32_t len)
{
	uint32_t n = len < NV_TCP_DIGEST_LEN - c->rx_digest_len ? len : NV_TCP_DIGEST_LEN - c->rx_digest_len;

	memcpy(c->rx_digest + c->rx_digest_len, bytes, n);
	c->rx_digest_len += n;
	if (c->rx_digest_len == NV_TCP_DIGEST_LEN)
		target_finish_data(c);
	return n;
}

/* Handles the buffer. False if it is empty or has to wait. */
static bool target_consume(struct nt_conn *c)
{
	const uint8_t *at = c->in + c->in_at;
	uint32_t left = c->in_len - c->in_at, n = 0;

	if (!left)
		return false;
	switch (c->rx) {
	case NT_RX_HEAD:
		n = target_take_header(c, at, left);
		break;
	case NT_RX_DATA:
	case NT_RX_DRAIN:
		n = left < c->rx_left ? left : c->rx_left;
		if (c->rx == NT_RX_DATA) {
			memcpy(c->rx_at, at, n);
			c->tcp->copied += n;
		}
		target_took_data(c, at, n);
		break;
	case NT_RX_DIGEST:
		n = target_take_digest(c, at, left);
		break;
	case NT_RX_PAUSED:
	case NT_RX_OFF:
		return false;
	}
	c->in_at += n;
	return !c->failed;
}

/* Reads data directly into its memory, and the bytes after it into the buffer. */
static ssize_t target_read_more(struct nt_conn *c)
{
	uint32_t direct = c->rx == NT_RX_DATA ? c->rx_left : 0;
	struct iovec v[2] = {{c->rx_at, direct}, {c->in, sizeof(c->in)}};
	ssize_t n = nt_conn_read(c, direct ? v : v + 1, direct ? 2 : 1);

	if (n <= 0)
		return n;
	uint32_t k = (size_t)n < direct ? (uint32_t)n : direct;

	c->in_at = 0;
	c->in_len = (uint32_t)n - k;
	if (k)
		target_took_data(c, c->rx_at, k);
	return n;
}

void nt_conn_receive(struct nt_conn *c)
{
	for (uint32_t total = 0;;) {
		while (target_consume(c))
			;
		if (c->failed || c->rx == NT_RX_PAUSED || c->rx == NT_RX_OFF || total >= TURN)
			return; /* settle_tcp_conn finds data that TLS has decrypted already */
		ssize_t n = target_read_more(c);

		if (n < 0 && errno == EINTR)
			continue;
		if (n < 0 && errno == EAGAIN)
			return;
		if (n <= 0) {
			nt_conn_fail(c);
			return;
		}
		total += (uint32_t)n;
	}
}
