// srp.c - encodes and decodes the information units of SRP
// follows: SRP (ANSI INCITS 365, T10/1415-D), 6; SRP2 for immediate data
// SPDX-License-Identifier: MIT
#include "srp/srp.h"

#include <string.h>

#include "scsi/be.h"

#define TABLE_MAX (2048u * SP_DESC_LEN)

/* ---- logins ---- */

bool sp_login_decode(const uint8_t *at, size_t len, struct sp_login *l)
{
	if (len < SP_LOGIN_LEN)
		return false;
	l->tag = sc_get64(at);
	l->formats = sc_get16(at + 8);
	l->flags = at[10];
	l->opcode = at[11];
	l->iu_len = sc_get32(at + 12);
	memcpy(l->initiator, at + 16, SP_PORT_ID);
	memcpy(l->target, at + 32, SP_PORT_ID);
	l->immediate = sc_get16(at + 48);
	return l->opcode == SP_LOGIN_REQ;
}

void sp_login_encode(const struct sp_login *l, uint8_t out[SP_LOGIN_LEN])
{
	memset(out, 0, SP_LOGIN_LEN);
	sc_put64(out, l->tag);
	sc_put16(out + 8, l->formats);
	out[10] = l->flags;
	out[11] = l->opcode;
	sc_put32(out + 12, l->iu_len);
	memcpy(out + 16, l->initiator, SP_PORT_ID);
	memcpy(out + 32, l->target, SP_PORT_ID);
	sc_put16(out + 48, l->immediate);
}

bool sp_login_ib_decode(const uint8_t *at, size_t len, struct sp_login *l)
{
	if (len < SP_LOGIN_IB_LEN)
		return false;
	l->opcode = at[0];
	l->tag = sc_get64(at + 8);
	l->iu_len = sc_get32(at + 16);
	l->formats = sc_get16(at + 24);
	l->flags = at[26];
	l->immediate = sc_get16(at + 28);
	memcpy(l->initiator, at + 32, SP_PORT_ID);
	memcpy(l->target, at + 48, SP_PORT_ID);
	return l->opcode == SP_LOGIN_REQ;
}

void sp_login_ib_encode(const struct sp_login *l, uint8_t out[SP_LOGIN_IB_LEN])
{
	memset(out, 0, SP_LOGIN_IB_LEN);
	out[0] = l->opcode;
	sc_put64(out + 8, l->tag);
	sc_put32(out + 16, l->iu_len);
	sc_put16(out + 24, l->formats);
	out[26] = l->flags;
	sc_put16(out + 28, l->immediate);
	memcpy(out + 32, l->initiator, SP_PORT_ID);
	memcpy(out + 48, l->target, SP_PORT_ID);
}

void sp_login_rsp_encode(const struct sp_login_rsp *r, uint8_t out[SP_LOGIN_RSP_LEN])
{
	memset(out, 0, SP_LOGIN_RSP_LEN);
	out[0] = SP_LOGIN_RSP;
	sc_put32(out + 4, r->credits);
	sc_put64(out + 8, r->tag);
	sc_put32(out + 16, r->to_target);
	sc_put32(out + 20, r->to_initiator);
	sc_put16(out + 24, r->formats);
	out[26] = r->flags;
}

bool sp_login_rsp_decode(const uint8_t *at, size_t len, struct sp_login_rsp *r)
{
	if (len < SP_LOGIN_RSP_LEN)
		return false;
	*r = (struct sp_login_rsp){.opcode = at[0],
	                           .credits = sc_get32(at + 4),
	                           .tag = sc_get64(at + 8),
	                           .to_target = sc_get32(at + 16),
	                           .to_initiator = sc_get32(at + 20),
	                           .formats = sc_get16(at + 24),
	                           .flags = at[26]};
	return r->opcode == SP_LOGIN_RSP;
}

void sp_login_rej_encode(const struct sp_login_rej *r, uint8_t out[SP_LOGIN_REJ_LEN])
{
	memset(out, 0, SP_LOGIN_REJ_LEN);
	out[0] = SP_LOGIN_REJ;
	sc_put32(out + 4, r->reason);
	sc_put64(out + 8, r->tag);
	sc_put16(out + 24, r->formats);
}

bool sp_login_rej_decode(const uint8_t *at, size_t len, struct sp_login_rej *r)
{
	if (len < SP_LOGIN_REJ_LEN)
		return false;
	*r = (struct sp_login_rej){
	        .opcode = at[0], .reason = sc_get32(at + 4), .tag = sc_get64(at + 8), .formats = sc_get16(at + 24)};
	return r->opcode == SP_LOGIN_REJ;
}

/* ---- commands ---- */

void sp_desc_decode(const uint8_t *at, struct sp_desc *d)
{
	d->va = sc_get64(at);
	d->key = sc_get32(at + 8);
	d->len = sc_get32(at + 12);
}

void sp_desc_encode(const struct sp_desc *d, uint8_t *at)
{
	sc_put64(at, d->va);
	sc_put32(at + 8, d->key);
	sc_put32(at + 12, d->len);
}

/* The rest of a message. */
struct rest {
	const uint8_t *at;
	size_t len;
};

static const uint8_t *take(struct rest *r, size_t n)
{
	const uint8_t *at = r->at;

	if (n > r->len)
		return NULL;
	r->at += n;
	r->len -= n;
	return at;
}

/* count: descriptors in the message, if the format is indirect. SRP, 5.4.2 */
static bool decode_buffer(struct rest *r, unsigned format, unsigned count, struct sp_buffer *b)
{
	const uint8_t *at;

	b->format = (enum sp_desc_format)format;
	switch (format) {
	case SP_DESC_NONE:
		return true;
	case SP_DESC_DIRECT:
		if (!(b->list = take(r, SP_DESC_LEN)))
			return false;
		b->count = b->whole = 1;
		b->len = sc_get32(b->list + 12);
		return true;
	case SP_DESC_INDIRECT:
		if (!(at = take(r, SP_INDIRECT_LEN)) || !(b->list = take(r, (size_t)count * SP_DESC_LEN)))
			return false;
		sp_desc_decode(at, &b->table);
		b->len = sc_get32(at + 16);
		b->count = count;
		b->whole = b->table.len / SP_DESC_LEN;
		return b->table.len % SP_DESC_LEN == 0 && b->table.len <= TABLE_MAX && count <= b->whole;
	case SP_DESC_IMMEDIATE:
		if (!(at = take(r, 4)))
			return false;
		b->len = sc_get32(at);
		return true;
	default:
		return false;
	}
}

bool sp_cmd_decode(const uint8_t *at, size_t len, uint32_t immediate, struct sp_cmd *c, bool *valid)
{
	if (len < SP_CMD_LEN)
		return false;
	unsigned add_cdb = at[31] >> 2 << 2; /* the upper six bits count words */
	struct rest r = {at + SP_CMD_LEN, len - SP_CMD_LEN};

	memset(c, 0, sizeof(*c));
	c->tag = sc_get64(at + 8);
	memcpy(c->lun, at + 20, 8);
	c->attr = at[29] & 7;
	c->long_cdb = add_cdb != 0;
	memcpy(c->cdb, at + 32, 16);
	/* the data-out buffer comes first. Immediate data has its place at a fixed offset, behind the descriptors */
	*valid = take(&r, add_cdb) && decode_buffer(&r, at[5] >> 4, at[6], &c->out) &&
	         (at[5] & 0xf) != SP_DESC_IMMEDIATE && decode_buffer(&r, at[5] & 0xf, at[7], &c->in);
	if (*valid && c->out.format == SP_DESC_IMMEDIATE) {
		*valid = immediate && (size_t)(r.at - at) <= immediate && immediate <= len &&
		         c->out.len <= len - immediate;
		c->immediate = at + immediate;
	}
	return true;
}

static size_t encode_buffer(const struct sp_buffer *b, const struct sp_desc *d, uint8_t *at)
{
	switch (b->format) {
	case SP_DESC_DIRECT:
		sp_desc_encode(d, at);
		return SP_DESC_LEN;
	case SP_DESC_INDIRECT:
		sp_desc_encode(&b->table, at);
		sc_put32(at + 16, d->len);
		sp_desc_encode(d, at + SP_INDIRECT_LEN);
		return SP_INDIRECT_LEN + SP_DESC_LEN;
	case SP_DESC_IMMEDIATE:
		sc_put32(at, d->len);
		return 4;
	default:
		return 0;
	}
}

size_t sp_cmd_encode(const struct sp_cmd *c, const struct sp_desc *d, uint8_t *out)
{
	uint8_t *at = out + SP_CMD_LEN;

	memset(out, 0, SP_CMD_LEN);
	out[0] = SP_CMD;
	out[5] = (uint8_t)((unsigned)c->out.format << 4 | (unsigned)c->in.format);
	out[6] = c->out.format == SP_DESC_INDIRECT;
	out[7] = c->in.format == SP_DESC_INDIRECT;
	sc_put64(out + 8, c->tag);
	memcpy(out + 20, c->lun, 8);
	out[29] = c->attr;
	memcpy(out + 32, c->cdb, 16);
	at += encode_buffer(&c->out, d, at);
	at += encode_buffer(&c->in, d, at);
	return (size_t)(at - out);
}

void sp_tsk_mgmt_encode(const struct sp_tsk_mgmt *m, uint8_t out[SP_TSK_MGMT_LEN])
{
	memset(out, 0, SP_TSK_MGMT_LEN);
	out[0] = SP_TSK_MGMT;
	sc_put64(out + 8, m->tag);
	memcpy(out + 20, m->lun, 8);
	out[30] = m->function;
	sc_put64(out + 32, m->task_tag);
}

bool sp_tsk_mgmt_decode(const uint8_t *at, size_t len, struct sp_tsk_mgmt *m)
{
	if (len < SP_TSK_MGMT_LEN)
		return false;
	m->tag = sc_get64(at + 8);
	memcpy(m->lun, at + 20, 8);
	m->function = at[30];
	m->task_tag = sc_get64(at + 32);
	return true;
}

/* ---- responses ---- */

size_t sp_rsp_encode(const struct sp_rsp *r, uint8_t *out, size_t room)
{
	size_t code = r->flags & SP_RSP_VALID ? 4 : 0, sense = r->flags & SP_SENSE_VALID ? r->sense_len : 0;

	if (sense > room - SP_RSP_LEN - code)
		sense = room - SP_RSP_LEN - code;
	memset(out, 0, SP_RSP_LEN + code);
	out[0] = SP_RSP;
	sc_put32(out + 4, r->credits);
	sc_put64(out + 8, r->tag);
	out[18] = r->flags;
	out[19] = r->status;
	sc_put32(out + 20, r->out_residual);
	sc_put32(out + 24, r->in_residual);
	sc_put32(out + 28, (uint32_t)sense);
	sc_put32(out + 32, (uint32_t)code);
	if (code)
		out[SP_RSP_LEN + 3] = r->code;
	memcpy(out + SP_RSP_LEN + code, r->sense, sense);
	return SP_RSP_LEN + code + sense;
}

bool sp_rsp_decode(const uint8_t *at, size_t len, struct sp_rsp *r)
{
	if (len < SP_RSP_LEN || at[0] != SP_RSP)
		return false;
	uint32_t sense = sc_get32(at + 28), code = sc_get32(at + 32);

	*r = (struct sp_rsp){.credits = sc_get32(at + 4),
	                     .tag = sc_get64(at + 8),
	                     .flags = at[18],
	                     .status = at[19],
	                     .out_residual = sc_get32(at + 20),
	                     .in_residual = sc_get32(at + 24)};
	len -= SP_RSP_LEN;
	if (r->flags & SP_RSP_VALID) {
		if (code < 4 || code > len)
			return false;
		r->code = at[SP_RSP_LEN + 3];
	} else {
		code = 0;
	}
	if (r->flags & SP_SENSE_VALID) {
		if (sense > len - code)
			return false;
		r->sense_len = sense < sizeof(r->sense) ? sense : sizeof(r->sense);
		memcpy(r->sense, at + SP_RSP_LEN + code, r->sense_len);
	}
	return true;
}

bool sp_target_req_decode(const uint8_t *at, size_t len, struct sp_target_req *r)
{
	if (len < SP_SHORT_LEN || (at[0] != SP_T_LOGOUT && at[0] != SP_CRED_REQ && at[0] != SP_AER_REQ))
		return false;
	*r = (struct sp_target_req){.opcode = at[0], .value = sc_get32(at + 4), .tag = sc_get64(at + 8)};
	if (at[0] != SP_AER_REQ)
		return true;
	if (len < SP_AER_LEN)
		return false;
	uint32_t sense = sc_get32(at + 28);

	if (sense > len - SP_AER_LEN)
		return false;
	memcpy(r->lun, at + 20, 8);
	r->sense_len = sense < sizeof(r->sense) ? sense : sizeof(r->sense);
	memcpy(r->sense, at + SP_AER_LEN, r->sense_len);
	return true;
}

size_t sp_aer_encode(const struct sp_target_req *r, uint8_t *out, size_t room)
{
	size_t sense = r->sense_len < room - SP_AER_LEN ? r->sense_len : room - SP_AER_LEN;

	memset(out, 0, SP_AER_LEN);
	out[0] = SP_AER_REQ;
	sc_put32(out + 4, r->value);
	sc_put64(out + 8, r->tag);
	memcpy(out + 20, r->lun, 8);
	sc_put32(out + 28, (uint32_t)sense);
	memcpy(out + SP_AER_LEN, r->sense, sense);
	return SP_AER_LEN + sense;
}

void sp_short_encode(uint8_t opcode, uint32_t value, uint64_t tag, uint8_t out[SP_SHORT_LEN])
{
	memset(out, 0, SP_SHORT_LEN);
	out[0] = opcode;
	sc_put32(out + 4, value);
	sc_put64(out + 8, tag);
}
