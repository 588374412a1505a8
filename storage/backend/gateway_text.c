// gateway_text.c - the state that gateways share, as the text of an object
// follows: docs/ceph.md
// SPDX-License-Identifier: MIT
#include <inttypes.h>
#include <stdio.h>
#include <string.h>

#include "backend/gateway.h"

#define HEAD "verbena-gateways 1\n"
#define NOBODY "-" /* for a name or client that is empty */

bool ng_name_valid(const char *name)
{
	size_t n = strspn(name, "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789._-");

	return n && n < NG_NAME && !name[n] && *name != '-';
}

/* ---- reading ---- */

/* The text that is left. A wrong byte makes it bad for good. */
struct words {
	const char *at, *end;
	bool bad;
};

/* The next word, which ends with that character. */
static size_t word(struct words *w, char end, const char **out)
{
	const char *at = w->at, *stop = w->bad ? NULL : memchr(at, end, (size_t)(w->end - at));
	size_t n = stop ? (size_t)(stop - at) : 0;

	w->bad |= !n;
	if (stop)
		w->at = stop + 1;
	*out = at;
	return w->bad ? 0 : n;
}

static void fixed(struct words *w, const char *text)
{
	size_t n = strlen(text);

	if (w->bad || (size_t)(w->end - w->at) < n || memcmp(w->at, text, n))
		w->bad = true;
	else
		w->at += n;
}

static uint64_t number(struct words *w, char end)
{
	const char *at;
	size_t n = word(w, end, &at);
	uint64_t value = 0;

	w->bad |= n > 19;
	for (size_t i = 0; !w->bad && i < n; i++) {
		w->bad |= at[i] < '0' || at[i] > '9';
		value = value * 10 + (uint64_t)(at[i] - '0');
	}
	return w->bad ? 0 : value;
}

static void text_of(struct words *w, char end, char *to, size_t size)
{
	const char *at;
	size_t n = word(w, end, &at);

	memset(to, 0, size);
	w->bad |= n >= size;
	for (size_t i = 0; !w->bad && i < n; i++)
		w->bad |= at[i] <= ' ' || at[i] > '~';
	if (!w->bad && (n != 1 || *at != *NOBODY))
		memcpy(to, at, n);
}

static void name_of(struct words *w, char end, char name[NG_NAME])
{
	text_of(w, end, name, NG_NAME);
	w->bad |= *name && !ng_name_valid(name);
}

static void gateway_line(struct words *w, struct ng_state *s)
{
	struct ng_gateway g = {0};

	fixed(w, "gateway ");
	name_of(w, ' ', g.name);
	uint64_t slot = number(w, ' ');

	g.beat = number(w, ' ');
	text_of(w, '\n', g.client, NG_CLIENT);
	w->bad |= !*g.name || slot >= NG_GATEWAYS || s->count == NG_GATEWAYS || ng_find(s, g.name);
	for (uint32_t i = 0; i < s->count; i++)
		w->bad |= s->gateways[i].slot == slot;
	if (w->bad)
		return;
	g.slot = (uint16_t)slot;
	s->gateways[s->count++] = g;
}

bool ng_decode(const char *text, size_t length, struct ng_state *out)
{
	struct words w = {.at = text, .end = text + length};
	struct ng_state s = {0};

	fixed(&w, HEAD "epoch ");
	s.epoch = number(&w, '\n');
	fixed(&w, "owner ");
	name_of(&w, ' ', s.owner);
	text_of(&w, '\n', s.owner_client, NG_CLIENT);
	fixed(&w, "wanted ");
	name_of(&w, '\n', s.wanted);
	while (!w.bad && w.at < w.end)
		gateway_line(&w, &s);
	if (w.bad)
		return false;
	*out = s;
	return true;
}

/* ---- writing ---- */

static const char *or_nobody(const char *text)
{
	return *text ? text : NOBODY;
}

size_t ng_encode(const struct ng_state *s, char text[NG_TEXT])
{
	int n = snprintf(text, NG_TEXT, HEAD "epoch %" PRIu64 "\nowner %s %s\nwanted %s\n", s->epoch,
	                 or_nobody(s->owner), or_nobody(s->owner_client), or_nobody(s->wanted));

	for (uint32_t i = 0; i < s->count; i++)
		n += snprintf(text + n, NG_TEXT - (size_t)n, "gateway %s %u %" PRIu64 " %s\n", s->gateways[i].name,
		              s->gateways[i].slot, s->gateways[i].beat, or_nobody(s->gateways[i].client));
	return (size_t)n;
}
