// key.c - memory keys: drawn at random, and not reused for a while after deregistration
// follows: IBA volume 1, 10.6 (memory keys); getrandom(2)
// SPDX-License-Identifier: MIT
#include "core/key.h"

#include <errno.h>
#include <sys/random.h>

/* The value of a slot: FREE, or its entry | USED, or its entry | RESTING. */
#define FREE 0u
#define USED (1u << 30)
#define RESTING (1u << 31)
_Static_assert(VB_SEG_MRS <= USED, "an entry is below the flags");

static uint32_t slot_value(const struct vb_keys *k, uint32_t slot)
{
	return atomic_load_explicit(&k->slots[slot], memory_order_relaxed);
}

static void slot_set(struct vb_keys *k, uint32_t slot, uint32_t value)
{
	atomic_store_explicit(&k->slots[slot], value,
	                      memory_order_relaxed); /* relaxed: other threads learn the key later */
}

static int word_draw(struct vb_keys *k, uint32_t *word)
{
	while (!k->left) {
		ssize_t n = getrandom(k->drawn, sizeof(k->drawn), 0);

		if (n < 0 && errno != EINTR)
			return errno;
		k->left = n < 0 ? 0 : (uint32_t)((size_t)n / sizeof(k->drawn[0]));
	}
	*word = k->drawn[--k->left];
	k->drawn[k->left] = 0; /* a leak of this memory shows no key in use */
	return 0;
}

static void wake_oldest(struct vb_keys *k)
{
	uint32_t slot = k->rest[k->rest_head];

	k->spare[k->nspare++] = slot_value(k, slot) & (VB_SEG_MRS - 1);
	slot_set(k, slot, FREE);
	k->rest_head = (k->rest_head + 1) % VB_KEY_REST;
	k->resting--;
}

/* Chooses an entry for the slot of a key, which is free. */
static void slot_take(struct vb_keys *k, uint32_t key, uint32_t *entry)
{
	*entry = k->nspare ? k->spare[--k->nspare] : k->fresh++;
	slot_set(k, VB_KEY_SLOT(key), USED | *entry);
	k->used++;
	if (k->resting && k->used + k->resting > VB_KEY_ROOM)
		wake_oldest(k);
}

int vb_key_take_this(struct vb_keys *k, uint32_t key, uint32_t *entry)
{
	if (!key || slot_value(k, VB_KEY_SLOT(key)) != FREE)
		return EBUSY;
	slot_take(k, key, entry);
	return 0;
}

int vb_key_take(struct vb_keys *k, uint32_t *key, uint32_t *entry)
{
	uint32_t word = 0;

	do {
		int err = word_draw(k, &word);

		if (err)
			return err;
	} while (!word || slot_value(k, VB_KEY_SLOT(word)) != FREE); /* 0: "no region" */
	slot_take(k, word, entry);
	*key = word;
	return 0;
}

int vb_key_change(struct vb_keys *k, uint32_t *key)
{
	const uint32_t tag = (1u << VB_KEY_TAG_BITS) - 1;
	uint32_t word = 0, next;

	do {
		int err = word_draw(k, &word);

		if (err)
			return err;
		next = (*key & ~tag) | (word & tag);
	} while (!next || next == *key);
	*key = next;
	return 0;
}

void vb_key_give_back(struct vb_keys *k, uint32_t key)
{
	uint32_t slot = VB_KEY_SLOT(key);

	if (k->resting == VB_KEY_REST || (k->resting && k->used + k->resting > VB_KEY_ROOM))
		wake_oldest(k);
	slot_set(k, slot, RESTING | (slot_value(k, slot) & (VB_SEG_MRS - 1)));
	k->rest[(k->rest_head + k->resting) % VB_KEY_REST] = slot;
	k->resting++;
	k->used--;
}
