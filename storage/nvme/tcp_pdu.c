// tcp_pdu.c - the PDUs of NVMe/TCP
// follows: NVMe/TCP transport specification 1.0, 3.6
// SPDX-License-Identifier: MIT
#include "nvme/tcp_pdu.h"

#include "nvme/le.h"

struct nv_tcp_common nv_tcp_common_decode(const uint8_t *at)
{
	return (struct nv_tcp_common){
	        .type = at[0], .flags = at[1], .hlen = at[2], .pdo = at[3], .plen = nv_get32(at + 4)};
}

void nv_tcp_common_encode(const struct nv_tcp_common *c, uint8_t *at)
{
	at[0] = c->type;
	at[1] = c->flags;
	at[2] = c->hlen;
	at[3] = c->pdo;
	nv_put32(at + 4, c->plen);
}

struct nv_tcp_ic nv_tcp_ic_decode(const uint8_t *at)
{
	return (struct nv_tcp_ic){
	        .pfv = nv_get16(at + 8), .align = at[10], .digests = at[11], .number = nv_get32(at + 12)};
}

void nv_tcp_ic_encode(const struct nv_tcp_ic *ic, bool response, uint8_t *at)
{
	struct nv_tcp_common c = {
	        .type = response ? NV_TCP_ICRESP : NV_TCP_ICREQ, .hlen = NV_TCP_IC_LEN, .plen = NV_TCP_IC_LEN};

	memset(at, 0, NV_TCP_IC_LEN);
	nv_tcp_common_encode(&c, at);
	nv_put16(at + 8, ic->pfv);
	at[10] = ic->align;
	at[11] = ic->digests;
	nv_put32(at + 12, ic->number);
}

struct nv_tcp_data nv_tcp_data_decode(const uint8_t *at)
{
	return (struct nv_tcp_data){.cccid = nv_get16(at + 8),
	                            .ttag = nv_get16(at + 10),
	                            .offset = nv_get32(at + 12),
	                            .length = nv_get32(at + 16)};
}

void nv_tcp_data_encode(const struct nv_tcp_data *d, uint8_t *at)
{
	nv_put16(at + 8, d->cccid);
	nv_put16(at + 10, d->ttag);
	nv_put32(at + 12, d->offset);
	nv_put32(at + 16, d->length);
	nv_put32(at + 20, 0);
}

struct nv_tcp_term nv_tcp_term_decode(const uint8_t *at)
{
	return (struct nv_tcp_term){.fes = nv_get16(at + 8), .fei = nv_get32(at + 10)};
}

size_t nv_tcp_term_encode(const struct nv_tcp_term *t, bool from_controller, const uint8_t *wrong, size_t len,
                          uint8_t *at)
{
	if (len > NV_TCP_TERM_MAX - NV_TCP_TERM_LEN)
		len = NV_TCP_TERM_MAX - NV_TCP_TERM_LEN;
	struct nv_tcp_common c = {.type = from_controller ? NV_TCP_C2H_TERM : NV_TCP_H2C_TERM,
	                          .hlen = NV_TCP_TERM_LEN,
	                          .plen = (uint32_t)(NV_TCP_TERM_LEN + len)};

	memset(at, 0, NV_TCP_TERM_LEN);
	nv_tcp_common_encode(&c, at);
	nv_put16(at + 8, t->fes);
	nv_put32(at + 10, t->fei);
	memcpy(at + NV_TCP_TERM_LEN, wrong, len);
	return NV_TCP_TERM_LEN + len;
}

/* Facts about each type: its header length, its sender, its flags, and whether digests and data are allowed. */
static const struct shape {
	uint8_t known, hlen, controller, flags, digests, data;
} shapes[] = {
        [NV_TCP_ICREQ] = {1, NV_TCP_IC_LEN, 0, 0, 0, 0},
        [NV_TCP_ICRESP] = {1, NV_TCP_IC_LEN, 1, 0, 0, 0},
        [NV_TCP_H2C_TERM] = {1, NV_TCP_TERM_LEN, 0, 0, 0, 0},
        [NV_TCP_C2H_TERM] = {1, NV_TCP_TERM_LEN, 1, 0, 0, 0},
        [NV_TCP_COMMAND] = {1, NV_TCP_COMMAND_LEN, 0, 0, 1, 1},
        [NV_TCP_RESPONSE] = {1, NV_TCP_RESPONSE_LEN, 1, 0, 1, 0},
        [NV_TCP_H2C_DATA] = {1, NV_TCP_DATA_LEN, 0, NV_TCP_LAST, 1, 1},
        [NV_TCP_C2H_DATA] = {1, NV_TCP_DATA_LEN, 1, NV_TCP_LAST | NV_TCP_SUCCESS, 1, 1},
        [NV_TCP_R2T] = {1, NV_TCP_DATA_LEN, 1, 0, 1, 0},
};

enum { AT_TYPE, AT_FLAGS, AT_HLEN, AT_PDO, AT_PLEN };

static int header_error(uint32_t *fei, uint32_t at)
{
	*fei = at;
	return NV_TCP_FES_HEADER;
}

int nv_tcp_check(const struct nv_tcp_common *c, bool from_controller, uint8_t digests, uint8_t align, uint32_t *data,
                 uint32_t *fei)
{
	if (c->type >= sizeof(shapes) / sizeof(*shapes) || !shapes[c->type].known ||
	    shapes[c->type].controller != from_controller)
		return header_error(fei, AT_TYPE);
	const struct shape *s = &shapes[c->type];
	uint8_t want = s->digests ? digests & NV_TCP_HDGST : 0, may = s->flags | want;
	uint32_t head = s->hlen + (want ? NV_TCP_DIGEST_LEN : 0u);

	*data = 0;
	if (c->hlen != s->hlen)
		return header_error(fei, AT_HLEN);
	if (c->type == NV_TCP_H2C_TERM || c->type == NV_TCP_C2H_TERM)
		return c->plen < s->hlen || c->plen > NV_TCP_TERM_MAX ? header_error(fei, AT_PLEN) : 0;
	if (s->data)
		may |= digests & NV_TCP_DDGST;
	if ((c->flags & ~may) || (c->flags & want) != want)
		return header_error(fei, AT_FLAGS);
	if (c->plen == head || !s->data)
		return c->plen == head && !(c->flags & NV_TCP_DDGST)
		               ? 0
		               : header_error(fei, c->plen == head ? AT_FLAGS : AT_PLEN);
	/* data follows */
	if ((c->flags & NV_TCP_DDGST) != (digests & NV_TCP_DDGST))
		return header_error(fei, AT_FLAGS);
	uint32_t tail = c->flags & NV_TCP_DDGST ? NV_TCP_DIGEST_LEN : 0;

	if (c->pdo < head || c->pdo % ((align + 1u) * 4))
		return header_error(fei, AT_PDO);
	if (c->plen <= c->pdo + tail)
		return header_error(fei, AT_PLEN);
	*data = c->plen - c->pdo - tail;
	return 0;
}
