// auth.c - the host's side of DH-HMAC-CHAP, on a queue that has just been connected
// follows: NVM Express Base 2.0, 8.13.5.1 (the order of messages) to 8.13.5.6
// SPDX-License-Identifier: MIT
#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "client/client.h"
#include "nvme/chap.h"

#define RECEIVE VN_CONTROL_MAX /* longer than any message; the target's messages contain their length */

struct talk {
	struct vn_link *l;
	struct vn_queue *q;
	const struct vn_identity *who;
	const char *nqn;
	struct nv_chap chap;
	uint8_t message[RECEIVE];
	uint8_t exponential[NV_DH_MAX]; /* ours */
};

/* Performs an Authentication Send or Receive. 0, or -errno and why. */
static int auth_command(struct talk *t, uint8_t type, size_t len)
{
	struct nv_sqe s = {.opcode = NV_FABRICS, .fctype = type, .cdw = {NV_AUTH_CDW10, (uint32_t)len}};
	struct nv_cqe cqe;
	int e = vn_command(t->q, &s, type == NV_FCT_AUTH_SEND ? VN_TO_TARGET : VN_FROM_TARGET, t->message,
	                   (uint32_t)len, t->l->deadline, &cqe);

	if (e)
		vn_say(t->l->why, "authentication: %s", t->q->error && *t->q->why ? t->q->why : strerror(-e));
	else if (cqe.status)
		vn_say(t->l->why, "authentication: the target says: %s", nv_status_text(cqe.status));
	return e ? e : cqe.status ? -EACCES : 0;
}

/* The target violates the protocol, or its proof is wrong: sends a failure message; the connection will end. */
static int refuse_message(struct talk *t, enum nv_auth_why why, const char *what)
{
	auth_command(t, NV_FCT_AUTH_SEND, nv_failure_encode(NV_AUTH_FAILURE2, t->chap.tid, why, t->message));
	vn_say(t->l->why, "authentication: %s", what);
	return why == NV_AUTH_FAILED ? -EACCES : -EPROTO;
}

static int receive_message(struct talk *t, enum nv_auth_message want)
{
	uint16_t tid = 0;

	memset(t->message, 0, RECEIVE);
	int e = auth_command(t, NV_FCT_AUTH_RECEIVE, RECEIVE), kind = nv_auth_kind(t->message, RECEIVE, &tid);

	if (e)
		return e;
	if (kind == NV_AUTH_FAILURE1) {
		vn_say(t->l->why, "the target rejects this host: %s",
		       nv_auth_text(nv_failure_decode(t->message, RECEIVE)));
		return -EACCES;
	}
	if (kind != (int)want)
		return refuse_message(t, NV_AUTH_MESSAGE, "another message than expected");
	if (tid != t->chap.tid)
		return refuse_message(t, NV_AUTH_PAYLOAD, "a message of another transaction");
	return 0;
}

/* ---- the steps ---- */

static int send_negotiate(struct talk *t)
{
	struct nv_negotiate n = {.hashes = 1u << NV_SHA256 | 1u << NV_SHA384 | 1u << NV_SHA512,
	                         .groups = (uint8_t)((1u << NV_DH_GROUPS) - 1)};

	if (!nv_random(&t->chap.tid, sizeof(t->chap.tid)))
		return -ENOMEM;
	n.tid = t->chap.tid;
	int e = auth_command(t, NV_FCT_AUTH_SEND, nv_negotiate_encode(&n, t->message));

	return e ? e : receive_message(t, NV_AUTH_CHALLENGE);
}

static int take_challenge(struct talk *t)
{
	struct nv_challenge m;
	enum nv_auth_why why = nv_challenge_decode(t->message, RECEIVE, &m);
	struct nv_chap *c = &t->chap;

	if (why)
		return refuse_message(t, why, "an invalid challenge");
	c->hash = m.hash;
	c->group = m.group;
	c->s1 = m.seq;
	memcpy(c->c1, m.challenge, nv_hash_length(m.hash));
	if (!m.group)
		return 0;
	if (!nv_chap_exponential(c, t->exponential))
		return refuse_message(t, NV_AUTH_FAILED, "no exponential can be made");
	return nv_chap_agree(c, m.exponential) ? 0 : refuse_message(t, NV_AUTH_PAYLOAD, "an exponential out of range");
}

static int send_reply(struct talk *t)
{
	struct nv_chap *c = &t->chap;
	uint8_t response[NV_HASH_MAX];
	size_t h = nv_hash_length(c->hash);
	struct nv_reply r = {
	        .tid = c->tid, .hash = c->hash, .group = c->group, .response = response, .exponential = t->exponential};

	if (t->who->controller_secret.length) {
		c->s2 = r.seq = nv_sequence(0);
		r.challenge = c->c2;
		if (!r.seq || !nv_random(c->c2, h))
			return refuse_message(t, NV_AUTH_FAILED, "no random number is available");
	}
	if (!nv_chap_host(c, &t->who->secret, t->who->host_nqn, t->nqn, response))
		return refuse_message(t, NV_AUTH_FAILED, "no response can be made");
	int e = auth_command(t, NV_FCT_AUTH_SEND, nv_reply_encode(&r, t->message));

	return e ? e : receive_message(t, NV_AUTH_SUCCESS1);
}

static int take_success1(struct talk *t)
{
	struct nv_chap *c = &t->chap;
	struct nv_success1 m = {.hash = c->hash};
	enum nv_auth_why why = nv_success1_decode(t->message, RECEIVE, &m);
	uint8_t want[NV_HASH_MAX];

	if (why)
		return refuse_message(t, why, "an invalid success message");
	if (!t->who->controller_secret.length)
		return 0;
	if (!m.response || !nv_chap_controller(c, &t->who->controller_secret, t->who->host_nqn, t->nqn, want) ||
	    !nv_chap_same(want, m.response, nv_hash_length(c->hash)))
		return refuse_message(t, NV_AUTH_FAILED, "the target does not have the controller's secret");
	return auth_command(t, NV_FCT_AUTH_SEND, nv_success2_encode(c->tid, t->message));
}

int vn_ctl_authenticate(struct vn_link *l, struct vn_queue *q, const struct vn_identity *who, const char *nqn)
{
	struct talk *t = calloc(1, sizeof(*t));
	int e;

	if (!t)
		return -ENOMEM;
	*t = (struct talk){.l = l, .q = q, .who = who, .nqn = nqn};
	e = send_negotiate(t);
	if (!e)
		e = take_challenge(t);
	if (!e)
		e = send_reply(t);
	if (!e)
		e = take_success1(t);
	nv_chap_wipe(&t->chap);
	explicit_bzero(t, sizeof(*t));
	free(t);
	return e;
}
