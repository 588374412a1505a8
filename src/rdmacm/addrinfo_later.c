// addrinfo_later.c - names and services of endpoints, answered by an event
// follows: rdma_resolve_addrinfo(3), rdma_query_addrinfo(3) (rdma-core 56; the headers of 44 do not declare them)
// SPDX-License-Identifier: MIT
#include <netdb.h>
#include <stdlib.h>

#include "rdmacm/rdmacm.h"

/* A question that a thread of its own asks. The program's arguments are copied, because its call has returned. */
struct question {
	uint64_t number; /* the id has it too, unless it was destroyed */
	char *node, *service;
	bool has_hints;
	struct rdma_addrinfo hints;
};

static void free_question(struct question *q)
{
	free(q->node);
	free(q->service);
	free(q->hints.ai_src_addr);
	free(q->hints.ai_dst_addr);
	free(q);
}

static bool keep_text(char **to, const char *from)
{
	*to = from ? strdup(from) : NULL;
	return !from || *to;
}

static bool keep_addr(struct sockaddr **to, const struct sockaddr *from, socklen_t len)
{
	*to = len ? malloc(len) : NULL;
	if (*to)
		memcpy(*to, from, len);
	return !len || *to;
}

/* NULL: no memory. */
static struct question *new_question(const char *node, const char *service, const struct rdma_addrinfo *hints)
{
	struct question *q = calloc(1, sizeof(*q));

	if (!q)
		return NULL;
	bool whole = keep_text(&q->node, node) && keep_text(&q->service, service);

	if (hints) { /* what rdma_getaddrinfo uses of them */
		q->has_hints = true;
		q->hints = (struct rdma_addrinfo){.ai_flags = hints->ai_flags,
		                                  .ai_family = hints->ai_family,
		                                  .ai_qp_type = hints->ai_qp_type,
		                                  .ai_port_space = hints->ai_port_space,
		                                  .ai_src_len = hints->ai_src_len,
		                                  .ai_dst_len = hints->ai_dst_len};
		whole = whole && keep_addr(&q->hints.ai_src_addr, hints->ai_src_addr, hints->ai_src_len) &&
		        keep_addr(&q->hints.ai_dst_addr, hints->ai_dst_addr, hints->ai_dst_len);
	}
	if (whole)
		return q;
	free_question(q);
	return NULL;
}

/* The errno of what rdma_getaddrinfo has returned. */
static int errno_of(int ret)
{
	switch (ret) {
	case 0:
		return 0;
	case -1: /* EAI_BADFLAGS is the same number, but then errno says EINVAL, too */
	case EAI_SYSTEM:
		return errno ? errno : EINVAL;
	case EAI_MEMORY:
		return ENOMEM;
	case EAI_AGAIN:
		return EAGAIN;
	default:
		return ENOENT;
	}
}

static struct rcm_id *asker_in(struct rcm_id *id, uint64_t number)
{
	while (id && id->question != number)
		id = id->next;
	return id;
}

/* Takes the answer over. If the id was destroyed, nobody wants it. */
static void tell_answer(uint64_t number, int err, struct rdma_addrinfo *answer)
{
	rcm_lock();
	struct rcm_id *id = asker_in(rcm.ids, number);

	if (!id)
		id = asker_in(rcm.listeners, number);
	if (id) {
		int type = err ? RCM_EVENT_ADDRINFO_ERROR : RCM_EVENT_ADDRINFO_RESOLVED;
		bool told = !rcm_post(id, (enum rdma_cm_event_type)type, -err);

		id->question = 0;
		id->resolving = told && !err;
		if (id->resolving) {
			id->resolved = answer;
			answer = NULL;
		}
	}
	rcm_unlock();
	rdma_freeaddrinfo(answer);
}

static void *ask_question(void *arg)
{
	struct question *q = arg;
	struct rdma_addrinfo *answer = NULL;

	errno = 0;
	int ret = rdma_getaddrinfo(q->node, q->service, q->has_hints ? &q->hints : NULL, &answer);

	tell_answer(q->number, errno_of(ret), answer);
	free_question(q);
	return NULL;
}

/* EBUSY: an earlier answer was not fetched. */
static int begin_question(struct rcm_id *id, struct question *q)
{
	static uint64_t questions;

	rcm_lock();
	bool busy = id->resolving;

	if (!busy) {
		id->question = q->number = ++questions;
		id->resolving = true;
	}
	rcm_unlock();
	return busy ? EBUSY : 0;
}

static void take_back(struct rcm_id *id)
{
	rcm_lock();
	id->question = 0;
	id->resolving = false;
	rcm_unlock();
}

RCM_EXPORT int rdma_resolve_addrinfo(struct rdma_cm_id *cm_id, const char *node, const char *service,
                                     const struct rdma_addrinfo *hints)
{
	struct rcm_id *id = rcm_id(cm_id);

	if (!rcm_ours(id))
		return -1;
	int err = rcm_check_question(node, service, hints);
	struct question *q = err ? NULL : new_question(node, service, hints);

	if (!err && !q)
		err = ENOMEM;
	if (!err)
		err = begin_question(id, q);
	if (err) {
		if (q)
			free_question(q);
		return rcm_fail(err);
	}
	err = rcm_thread(ask_question, q);
	if (err) {
		free_question(q);
		take_back(id);
		return rcm_fail(err);
	}
	return rcm_result(rcm_complete(id));
}

RCM_EXPORT int rdma_query_addrinfo(struct rdma_cm_id *cm_id, struct rdma_addrinfo **info)
{
	struct rcm_id *id = rcm_id(cm_id);

	if (!rcm_ours(id) || !info)
		return rcm_fail(EINVAL);
	rcm_lock();
	struct rdma_addrinfo *found = id->resolved;

	if (found) {
		id->resolved = NULL;
		id->resolving = false;
	}
	rcm_unlock();
	if (!found)
		return rcm_fail(ENOENT);
	*info = found;
	return 0;
}
