// auth.c - the controller's side of DH-HMAC-CHAP: one transaction at a time for each queue
// follows: NVM Express Base 2.0, 8.13.5.1 (the order of messages) to 8.13.5.6
// SPDX-License-Identifier: MIT
#include <stdlib.h>
#include <string.h>

#include "nvme/chap.h"
#include "target/core.h"

/* The next step, named by its message, except the first and the last. */
enum step { IDLE, CHALLENGE, REPLY, SUCCESS1, SUCCESS2, FAILURE1 };

struct transaction {
	enum step step;
	bool mutual; /* the host requires a proof, too */
	enum nv_auth_why why;
	uint64_t proven_at; /* ms */
	struct nv_chap chap;
};

#define AGAIN_MS 1000 /* pause before a host may authenticate again: an authentication delays all hosts */

static bool must_authenticate(struct nt_subsystem *s, const char *hostnqn)
{
	return !s->discovery && (s->auth_required || nt_secrets_of(s, hostnqn));
}

static void release_transaction(struct nt_queue *q)
{
	struct transaction *t = q->auth;

	nv_chap_wipe(&t->chap);
	free(t);
	q->auth = NULL;
}

static void finish_authentication(struct nt_queue *q)
{
	struct transaction *t = q->auth;

	if (t->chap.group)
		nt_peer_succeeds(q);
	nv_chap_wipe(&t->chap);
	t->step = IDLE;
	q->proven = true;
	q->auth_due = 0;
	t->proven_at = q->target->now;
	q->authenticated = nt_peer_in(q, q->ctrl->hostnqn) && nt_controller_place(q);
	if (!q->authenticated)
		q->ops->close(q);
}

static const struct nt_secrets *secrets_of_host(const struct nt_queue *q)
{
	return nt_secrets_of(q->ctrl->subsystem, q->ctrl->hostnqn);
}

/* ---- what the host sends ---- */

/* Returns the first entry of order that is in bits. The order of hashes begins with the strongest. The order of groups
 * begins with those that take us only milliseconds and ends with weaker ones. The two groups that take longer, while
 * all other hosts wait, are only for hosts whose entry lists them, because the host has not proven its identity yet. */
static uint8_t first_of(const uint8_t *order, size_t n, unsigned bits)
{
	for (size_t i = 0; i < n; i++)
		if (bits & 1u << order[i])
			return order[i];
	return UINT8_MAX;
}

static enum nv_auth_why choose_hash_and_group(struct nv_chap *c, const struct nv_negotiate *n,
                                              const struct nt_secrets *s)
{
	const uint8_t cheap = 1u << NV_DH_NULL | 1u << NV_DH_2048 | 1u << NV_DH_3072 | 1u << NV_DH_4096;
	static const uint8_t hashes[] = {NV_SHA512, NV_SHA384, NV_SHA256},
	                     groups[] = {NV_DH_3072, NV_DH_4096, NV_DH_2048, NV_DH_6144, NV_DH_8192, NV_DH_NULL};

	c->hash = first_of(hashes, sizeof(hashes), n->hashes & (s->hashes ? s->hashes : UINT8_MAX));
	c->group = first_of(groups, sizeof(groups), n->groups & (s->groups ? s->groups : cheap));
	return c->hash == UINT8_MAX ? NV_AUTH_HASH : c->group == UINT8_MAX ? NV_AUTH_GROUP : NV_AUTH_OK;
}

static enum nv_auth_why take_negotiate(struct nt_queue *q, struct transaction *t, const uint8_t *at, uint32_t len)
{
	const struct nt_secrets *s = secrets_of_host(q);
	struct nv_negotiate n;
	enum nv_auth_why why = nv_negotiate_decode(at, len, &n);

	t->chap.tid = nv_get16(at + 4);
	nt_auth_begin(q);
	if (why)
		return why;
	if (n.sc_c)
		return NV_AUTH_CONCATENATION;
	if (!s)
		return NV_AUTH_FAILED;
	if (q->proven && q->target->now - t->proven_at < AGAIN_MS)
		return NV_AUTH_FAILED;
	t->step = CHALLENGE;
	return choose_hash_and_group(&t->chap, &n, s);
}

static enum nv_auth_why take_reply(struct nt_queue *q, struct transaction *t, const uint8_t *at, uint32_t len)
{
	const struct nt_secrets *s = secrets_of_host(q);
	struct nv_chap *c = &t->chap;
	struct nv_reply r = {.hash = c->hash, .group = c->group};
	enum nv_auth_why why = nv_reply_decode(at, len, &r);
	uint8_t want[NV_HASH_MAX];
	size_t h = nv_hash_length(c->hash);

	if (why)
		return why;
	if (c->group && !nv_chap_agree(c, r.exponential))
		return NV_AUTH_PAYLOAD;
	t->mutual = r.challenge && r.seq;
	if (!s || (r.challenge && nv_chap_same(r.challenge, c->c1, h)) || (t->mutual && !s->controller.length) ||
	    !nv_chap_host(c, &s->host, q->ctrl->hostnqn, q->ctrl->subsystem->nqn, want) ||
	    !nv_chap_same(want, r.response, h))
		return NV_AUTH_FAILED;
	if (t->mutual) {
		c->s2 = r.seq;
		memcpy(c->c2, r.challenge, h);
	}
	t->step = SUCCESS1;
	return NV_AUTH_OK;
}

static enum nv_auth_why take_auth_message(struct nt_queue *q, struct transaction *t, int kind, uint16_t tid,
                                          const struct nt_request *r)
{
	if (kind == NV_AUTH_NEGOTIATE && t->step == IDLE)
		return take_negotiate(q, t, r->data, r->length);
	if (kind != (t->step == REPLY ? NV_AUTH_REPLY : t->step == SUCCESS2 ? NV_AUTH_SUCCESS2 : -1))
		return NV_AUTH_MESSAGE;
	if (tid != t->chap.tid)
		return NV_AUTH_PAYLOAD;
	if (t->step == REPLY)
		return take_reply(q, t, r->data, r->length);
	if (r->length != NV_SUCCESS2_LEN)
		return NV_AUTH_PAYLOAD;
	finish_authentication(q);
	return NV_AUTH_OK;
}

static void fail_transaction(struct nt_queue *q, struct transaction *t, enum nv_auth_why why)
{
	t->step = FAILURE1;
	t->why = why;
	q->authenticated = q->proven = false;
	nt_auth_begin(q);
}

static struct transaction *get_transaction(struct nt_queue *q)
{
	if (!q->auth)
		q->auth = calloc(1, sizeof(struct transaction));
	return q->auth;
}

/* The next Receive reports a rejected message and ends the connection. */
static void from_host(struct nt_request *r)
{
	struct nt_queue *q = r->queue;
	struct transaction *t = get_transaction(q);
	uint16_t tid = 0;
	int kind = nv_auth_kind(r->data, r->length, &tid);

	if (!t) {
		nt_complete(r, NV_INTERNAL);
		return;
	}
	bool ends = kind == NV_AUTH_FAILURE2;

	if (!ends && t->step != FAILURE1) {
		enum nv_auth_why why = kind < 0 ? NV_AUTH_PAYLOAD : take_auth_message(q, t, kind, tid, r);

		if (why)
			fail_transaction(q, t, why);
	}
	if (ends)
		fail_transaction(q, t, NV_AUTH_FAILED);
	nt_complete(r, 0);
	if (ends)
		q->ops->close(q);
}

/* ---- messages to the host ---- */

static size_t make_challenge(struct nt_queue *q, struct transaction *t, uint8_t *at)
{
	struct nv_chap *c = &t->chap;
	uint8_t exponential[NV_DH_MAX];
	struct nv_challenge m = {
	        .tid = c->tid, .hash = c->hash, .group = c->group, .challenge = c->c1, .exponential = exponential};

	c->s1 = q->target->auth_seq = m.seq = nv_sequence(q->target->auth_seq);
	if (!m.seq || !nv_random(c->c1, nv_hash_length(c->hash)) ||
	    (c->group && (!nt_peer_tries(q) || !nv_chap_exponential(c, exponential))))
		return 0;
	t->step = REPLY;
	return nv_challenge_encode(&m, at);
}

static size_t make_success1(struct nt_queue *q, struct transaction *t, uint8_t *at)
{
	const struct nt_secrets *s = secrets_of_host(q);
	struct nv_chap *c = &t->chap;
	uint8_t proof[NV_HASH_MAX];
	struct nv_success1 m = {.tid = c->tid, .hash = c->hash, .response = t->mutual ? proof : NULL};

	if (t->mutual &&
	    (!s || !nv_chap_controller(c, &s->controller, q->ctrl->hostnqn, q->ctrl->subsystem->nqn, proof)))
		return 0;
	size_t n = nv_success1_encode(&m, at);

	if (t->mutual)
		t->step = SUCCESS2;
	else
		finish_authentication(q);
	return n;
}

static size_t longest_message(const struct transaction *t)
{
	return t->step == CHALLENGE  ? 16 + nv_hash_length(t->chap.hash) + nv_dh_length(t->chap.group)
	       : t->step == SUCCESS1 ? 16 + nv_hash_length(t->chap.hash)
	                             : NV_FAILURE_LEN;
}

static void to_host(struct nt_request *r)
{
	struct nt_queue *q = r->queue;
	struct transaction *t = get_transaction(q);

	if (!t) {
		nt_complete(r, NV_INTERNAL);
		return;
	}
	if (r->length < longest_message(t)) {
		nt_complete(r, NT_INVALID(r, NV_SQE_AT_CDW11));
		return;
	}
	size_t n = t->step == CHALLENGE  ? make_challenge(q, t, r->data)
	           : t->step == SUCCESS1 ? make_success1(q, t, r->data)
	                                 : 0;

	if (!n) { /* it is not our turn, we failed, or a message was rejected */
		if (t->step != FAILURE1)
			fail_transaction(
			        q, t, t->step == CHALLENGE || t->step == SUCCESS1 ? NV_AUTH_FAILED : NV_AUTH_MESSAGE);
		memset(r->data, 0, r->length);
		nv_failure_encode(NV_AUTH_FAILURE1, t->chap.tid, t->why, r->data);
	}
	nt_complete(r, 0);
	if (!n)
		q->ops->close(q);
}

const struct nt_auth nt_dhchap = {
        .required = must_authenticate, .send = from_host, .receive = to_host, .release = release_transaction};
