// key.c - memory keys: drawn, and their entries kept from coming again soon
// follows: IBA volume 1, 10.6 (memory keys); getrandom(2)
// SPDX-License-Identifier: MIT
#include "core/key.h"

#include <errno.h>
#include <sys/random.h>

enum { FREE, USED, RESTING };

static int draw(struct vb_keys *k, uint32_t *word)
{
	while (!k->left) {
		ssize_t n = getrandom(k->drawn, sizeof(k->drawn), 0);

		if (n < 0 && errno != EINTR)
			return errno;
		k->left = n < 0 ? 0 : (uint32_t)((size_t)n / sizeof(k->drawn[0]));
	}
	*word = k->drawn[--k->left];
	k->drawn[k->left] = 0; /* who reads this memory later finds no key that was given out */
	return 0;
}

static void wake_oldest(struct vb_keys *k)
{
	k->state[k->rest[k->rest_head]] = FREE;
	k->rest_head = (k->rest_head + 1) % VB_KEY_REST;
	k->resting--;
}

int vb_key_take(struct vb_keys *k, uint32_t *key)
{
	uint32_t word = 0;

	do {
		int err = draw(k, &word);

		if (err)
			return err;
	} while (!word || k->state[VB_KEY_INDEX(word)] != FREE); /* 0: "no region" */
	k->state[VB_KEY_INDEX(word)] = USED;
	k->used++;
	if (k->resting && k->used + k->resting > VB_KEY_ROOM)
		wake_oldest(k);
	*key = word;
	return 0;
}

void vb_key_give_back(struct vb_keys *k, uint32_t key)
{
	if (k->resting == VB_KEY_REST || (k->resting && k->used + k->resting > VB_KEY_ROOM))
		wake_oldest(k);
	k->state[VB_KEY_INDEX(key)] = RESTING;
	k->rest[(k->rest_head + k->resting) % VB_KEY_REST] = VB_KEY_INDEX(key);
	k->resting++;
	k->used--;
}
