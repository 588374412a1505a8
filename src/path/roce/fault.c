// fault.c - fault injection: VERBENA_FAULT
// SPDX-License-Identifier: MIT
#include "path/roce/fault.h"

#include <stdlib.h>
#include <string.h>

#include "engine/roce/roce.h"
#include "util/env.h"
#include "util/log.h"

enum { LOSS, DUP, REORDER, CORRUPT, KINDS };

struct vb_fault {
	uint64_t random;
	uint32_t chance[KINDS]; /* probability, times 2^32 */
	unsigned countdown;     /* packets before the held one is sent */
	size_t held;
	uint8_t tag[64], packet[VB_ROCE_PACKET_MAX];
};

/* xorshift64* */
static uint32_t draw_number(struct vb_fault *f)
{
	f->random ^= f->random >> 12;
	f->random ^= f->random << 25;
	f->random ^= f->random >> 27;
	return (uint32_t)(f->random * 0x2545f4914f6cdd1dull >> 32);
}

static bool parse_word(struct vb_fault *f, const char *word)
{
	static const char *const names[KINDS] = {"loss=", "dup=", "reorder=", "corrupt="};
	char *end;

	if (!strncmp(word, "seed=", 5)) {
		f->random = strtoull(word + 5, &end, 0) * 0x9e3779b97f4a7c15ull + 1;
		return end != word + 5 && !*end;
	}
	for (int i = 0; i < KINDS; i++) {
		size_t n = strlen(names[i]);

		if (strncmp(word, names[i], n))
			continue;
		double percent = strtod(word + n, &end);

		if (end == word + n || *end || !(percent >= 0 && percent <= 100))
			return false;
		f->chance[i] = (uint32_t)(percent / 100 * 4294967295.0);
		return true;
	}
	return false;
}

static bool parse_faults(struct vb_fault *f, const char *text)
{
	char *copy = strdup(text), *rest = copy;
	bool any = false;

	for (char *word; copy && (word = strsep(&rest, ","));)
		if (*word && !parse_word(f, word))
			vb_log(VB_LOG_ERROR,
			       "VERBENA_FAULT: \"%s\" is not loss=, dup=, reorder= or corrupt= and a percentage, or seed=",
			       word);
	free(copy);
	for (int i = 0; i < KINDS; i++)
		any |= f->chance[i] != 0;
	return any;
}

struct vb_fault *vb_fault_new(void)
{
	const char *text = vb_env("VERBENA_FAULT");
	struct vb_fault *f = text && *text ? calloc(1, sizeof(*f)) : NULL;

	if (!f)
		return NULL;
	f->random = 0x9e3779b97f4a7c15ull;
	if (parse_faults(f, text))
		return f;
	free(f);
	return NULL;
}

void vb_fault_free(struct vb_fault *f)
{
	free(f);
}

unsigned vb_fault_next(struct vb_fault *f)
{
	static const unsigned what[KINDS] = {VB_FAULT_LOSE, VB_FAULT_REPEAT, VB_FAULT_HOLD, VB_FAULT_CORRUPT};
	unsigned bits = 0;

	for (int i = 0; i < KINDS; i++)
		if (draw_number(f) < f->chance[i])
			bits |= what[i];
	if (f->countdown)
		f->countdown--;
	return bits;
}

bool vb_fault_hold(struct vb_fault *f, const uint8_t *packet, size_t len, const void *tag, size_t tag_len)
{
	if (f->held || len > sizeof(f->packet) || tag_len > sizeof(f->tag))
		return false;
	memcpy(f->packet, packet, len);
	memcpy(f->tag, tag, tag_len);
	f->held = len;
	f->countdown = 1 + draw_number(f) % 8;
	return true;
}

size_t vb_fault_release(struct vb_fault *f, uint8_t *packet, void *tag, size_t tag_len)
{
	size_t len = f->held;

	if (!len || f->countdown)
		return 0;
	memcpy(packet, f->packet, len);
	memcpy(tag, f->tag, tag_len);
	f->held = 0;
	return len;
}

void vb_fault_corrupt(struct vb_fault *f, uint8_t *packet, size_t len)
{
	packet[draw_number(f) % len] ^= (uint8_t)(1 << (draw_number(f) & 7));
}
