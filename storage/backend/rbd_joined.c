// rbd_joined.c - the gateways of this program: a later opening of the same image follows an earlier one of its
// name; what all gateways of an image have in common
// follows: docs/ceph.md, "Several targets of one image"
// SPDX-License-Identifier: MIT
#include <pthread.h>
#include <stdio.h>
#include <string.h>

#include "backend/rbd.h"

/* Threads that open and close images take it for a moment. */
static pthread_mutex_t joined_lock = PTHREAD_MUTEX_INITIALIZER;
static struct nb_rbd_joined *joined;

void nb_rbd_joined_add(struct nb_rbd_joined *j)
{
	pthread_mutex_lock(&joined_lock);
	j->next = joined;
	joined = j;
	pthread_mutex_unlock(&joined_lock);
}

void nb_rbd_joined_ends(struct nb_rbd_joined *j)
{
	pthread_mutex_lock(&joined_lock);
	j->ends = true;
	pthread_mutex_unlock(&joined_lock);
}

void nb_rbd_joined_remove(const struct nb_rbd_joined *j)
{
	struct nb_rbd_joined **at = &joined;

	pthread_mutex_lock(&joined_lock);
	while (*at != j)
		at = &(*at)->next;
	*at = j->next;
	pthread_mutex_unlock(&joined_lock);
}

bool nb_rbd_joined_ending(const char *object, const char *name, const char *client)
{
	pthread_mutex_lock(&joined_lock);
	const struct nb_rbd_joined *j = joined;

	while (j && (!j->ends || strcmp(j->object, object) != 0 || strcmp(j->name, name) != 0 ||
	             strcmp(j->client, client) != 0))
		j = j->next;
	pthread_mutex_unlock(&joined_lock);
	return j;
}

/* In the object it is a word. */
void nb_rbd_serves(const struct nb_config *config, uint64_t size, char out[NB_SERVES])
{
	snprintf(out, NB_SERVES, "block=%u,size=%llu%s%s", config->block ? config->block : 512,
	         (unsigned long long)size, config->serves ? "," : "", config->serves ? config->serves : "");
	for (char *c = out; *c; c++)
		if (*c <= ' ' || *c > '~')
			*c = '?';
}
