// srp_peer.h - an initiator of SRP without an adapter, for tests of channels: its memory is an array, and the test says
// when something has moved
// SPDX-License-Identifier: MIT
#ifndef SRP_PEER_H
#define SRP_PEER_H

#include "../../support/check.h"
#include "srp/channel.h"

#define MEMORY (4u << 20) /* of the initiator, from address 0 on */
#define KEY 0x1234u
#define IMMEDIATE 84u

struct said {
	uint8_t bytes[SP_RESPONSE_MAX];
	size_t len;
};

struct peer {
	struct sp_channel channel; /* first */
	uint8_t messages[SP_SLOTS][1024], responses[SP_SLOTS][SP_RESPONSE_MAX];
	bool given[SP_SLOTS]; /* the receive buffer is the peer's: a message is in it */
	uint8_t memory[MEMORY];
	struct sp_request *moving[SP_SLOTS], *answered[SP_SLOTS];
	unsigned moving_count, answered_count;
	bool writes[SP_SLOTS];
	struct said said[512];
	unsigned said_count;
	bool failed, gone, held; /* held: nothing moves by itself */
};

static bool peer_reaches(const struct sp_move *m)
{
	return m->key == KEY && m->va <= MEMORY && m->len <= MEMORY - m->va;
}

static bool peer_carry(struct peer *p, struct sp_request *r, bool write)
{
	for (uint32_t i = 0; i < r->move_count; i++) {
		const struct sp_move *m = &r->moves[i];

		if (!peer_reaches(m)) {
			p->failed = true; /* the adapter ends the connection */
			return false;
		}
		if (write)
			memcpy(p->memory + m->va, m->local, m->len);
		else
			memcpy(m->local, p->memory + m->va, m->len);
	}
	return true;
}

static void peer_finish_move(struct peer *p)
{
	struct sp_request *r = p->moving[0];
	bool write = p->writes[0];

	p->moving_count--;
	memmove(p->moving, p->moving + 1, p->moving_count * sizeof(r));
	memmove(p->writes, p->writes + 1, p->moving_count);
	if (peer_carry(p, r, write))
		sp_moved(r);
}

static void peer_move(struct sp_request *r, bool write)
{
	struct peer *p = (struct peer *)(void *)r->channel;

	CHECK(r->move_count > 0 && r->move_count <= SP_CHUNK);
	p->writes[p->moving_count] = write;
	p->moving[p->moving_count++] = r;
}

static void peer_answer(struct sp_request *r)
{
	struct peer *p = (struct peer *)(void *)r->channel;

	if (!peer_carry(p, r, true))
		return;
	CHECK(p->said_count < 512 && r->response_len <= SP_RESPONSE_MAX);
	memcpy(p->said[p->said_count].bytes, r->response, r->response_len);
	p->said[p->said_count++].len = r->response_len;
	p->answered[p->answered_count++] = r;
}

static void peer_release(struct sp_request *r)
{
	struct peer *p = (struct peer *)(void *)r->channel;

	CHECK(p->given[sp_slot(r)]);
	p->given[sp_slot(r)] = false;
}

static void peer_tell(struct sp_channel *c, const uint8_t *message, size_t len)
{
	struct peer *p = (struct peer *)(void *)c;

	CHECK(p->said_count < 512 && len <= SP_RESPONSE_MAX);
	memcpy(p->said[p->said_count].bytes, message, len);
	p->said[p->said_count++].len = len;
}

static void peer_fail(struct sp_channel *c)
{
	((struct peer *)(void *)c)->failed = true;
}

static void peer_gone(struct sp_channel *c)
{
	((struct peer *)(void *)c)->gone = true;
	sp_channel_free(c);
}

static const struct sp_ops peer_ops = {peer_move, peer_answer, peer_release, peer_tell, peer_fail, peer_gone};

/* Logs in, or returns NULL with a reason. */
static struct peer *peer_login(struct sp_target *t, const struct sp_login *l, struct sp_login_rsp *rsp,
                               uint32_t *reason)
{
	struct peer *p = calloc(1, sizeof(*p));

	CHECK(p);
	if ((*reason = sp_login_check(t, l))) {
		free(p);
		return NULL;
	}
	CHECK(sp_channel_open(&p->channel, t, &peer_ops, l, rsp));
	for (unsigned i = 0; i < SP_SLOTS; i++)
		p->channel.requests[i].response = p->responses[i];
	return p;
}

/* Moves what waits, and acknowledges responses. */
static void peer_settle(struct peer *p)
{
	while (!p->held && !p->failed && (p->moving_count || p->answered_count)) {
		if (p->answered_count)
			sp_answered(p->answered[--p->answered_count]);
		else
			peer_finish_move(p);
	}
}

/* False: there is no free receive buffer. */
static bool peer_send(struct peer *p, const void *message, size_t len)
{
	unsigned slot = 0;

	while (slot < SP_SLOTS && p->given[slot])
		slot++;
	if (slot == SP_SLOTS || len > sizeof(p->messages[0]))
		return false;
	p->given[slot] = true;
	memcpy(p->messages[slot], message, len);
	sp_received(&p->channel, slot, p->messages[slot], len);
	peer_settle(p);
	return true;
}

/* The adapter is closed first, so nothing moves any more. */
static void peer_close(struct peer *p)
{
	p->moving_count = p->answered_count = 0;
	sp_channel_close(&p->channel);
}

#endif
