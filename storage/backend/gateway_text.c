// gateway_text.c - the state that gateways share, as the text of an object
// follows: docs/ceph.md
// SPDX-License-Identifier: MIT
#include <arpa/inet.h>
#include <inttypes.h>
#include <stdarg.h>
#include <stdio.h>
#include <string.h>

#include "backend/gateway.h"

#define HEAD "verbena-gateways 2\n"
#define NOBODY "-" /* for a name or client that is empty */

bool ng_name_valid(const char *name)
{
	size_t n = strspn(name, "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789._-");

	return n && n < NG_NAME && !name[n] && *name != '-';
}

bool nb_address_valid(const char *text)
{
	char plain[INET6_ADDRSTRLEN];
	size_t n = strcspn(text, "%"); /* a scope follows */
	struct in6_addr address;

	if (n >= sizeof(plain) || strlen(text) >= NB_ADDRESS)
		return false;
	memcpy(plain, text, n);
	plain[n] = '\0';
	return inet_pton(strchr(plain, ':') ? AF_INET6 : AF_INET, plain, &address) == 1;
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

static void hex_of(struct words *w, char end, uint8_t *to, size_t size)
{
	static const char digits[] = "0123456789abcdef";
	const char *at;
	size_t n = word(w, end, &at);

	w->bad |= n != 2 * size;
	for (size_t i = 0; !w->bad && i < n; i++) {
		const char *digit = at[i] ? strchr(digits, at[i]) : NULL;

		w->bad |= !digit;
		if (digit)
			to[i / 2] = (uint8_t)(to[i / 2] << 4 | (digit - digits));
	}
}

static uint64_t number_to(struct words *w, char end, uint64_t most)
{
	uint64_t value = number(w, end);

	w->bad |= value > most;
	return w->bad ? 0 : value;
}

static void host_of(struct words *w, char end, struct nr_host *h)
{
	hex_of(w, ' ', h->id, sizeof(h->id));
	hex_of(w, end, h->name, sizeof(h->name));
}

static bool begins(const struct words *w, const char *text)
{
	size_t n = strlen(text);

	return !w->bad && (size_t)(w->end - w->at) >= n && !memcmp(w->at, text, n);
}

static void registrant_line(struct words *w, struct nr_state *s)
{
	struct nr_registrant r = {.holder = begins(w, "holder ")};
	uint8_t key[8] = {0};

	fixed(w, r.holder ? "holder " : "registrant ");
	host_of(w, ' ', &r.host);
	hex_of(w, '\n', key, sizeof(key));
	for (int i = 0; i < 8; i++)
		r.key = r.key << 8 | key[i];
	w->bad |= s->count == NR_REGISTRANTS;
	if (!w->bad)
		s->registrants[s->count++] = r;
}

static void notice_line(struct words *w, struct nr_state *s)
{
	struct nr_notice n = {0};

	fixed(w, "notice ");
	n.version = number(w, ' ');
	n.event = (uint8_t)number_to(w, ' ', NR_PREEMPTED);
	host_of(w, '\n', &n.by);
	w->bad |= s->notice_count == NR_NOTICES || n.version > s->version || !n.event;
	if (!w->bad)
		s->notices[s->notice_count++] = n;
}

static void reservations_of(struct words *w, struct nr_state *s)
{
	fixed(w, "reservation ");
	s->version = number(w, ' ');
	s->generation = (uint32_t)number_to(w, ' ', UINT32_MAX);
	s->type = (uint8_t)number_to(w, ' ', NR_ACCESS_ALL_REGISTRANTS);
	s->persists = number_to(w, '\n', 1);
	while (begins(w, "registrant ") || begins(w, "holder "))
		registrant_line(w, s);
	while (begins(w, "notice "))
		notice_line(w, s);
	w->bad |= !nr_valid(s);
}

/* Of the gateway of the line before. */
static void port_line(struct words *w, struct ng_gateway *g)
{
	struct nb_port p = {0};

	fixed(w, "port ");
	p.id = (uint16_t)number_to(w, ' ', UINT8_MAX);
	p.trtype = (uint8_t)number_to(w, ' ', UINT8_MAX);
	p.treq = (uint8_t)number_to(w, ' ', 3);
	hex_of(w, ' ', p.tsas, sizeof(p.tsas));
	p.service = (uint16_t)number_to(w, ' ', UINT16_MAX);
	hex_of(w, ' ', p.subsystem, sizeof(p.subsystem));
	text_of(w, '\n', p.address, sizeof(p.address));
	w->bad |= !nb_address_valid(p.address) || g->port_count == NB_PORTS_OF_ONE;
	if (!w->bad)
		g->ports[g->port_count++] = p;
}

static void gateway_line(struct words *w, struct ng_state *s)
{
	struct ng_gateway g = {0};

	fixed(w, "gateway ");
	name_of(w, ' ', g.name);
	uint64_t slot = number(w, ' ');

	g.beat = number(w, ' ');
	g.enforces = number(w, ' ');
	g.change = number(w, ' ');
	text_of(w, '\n', g.client, NG_CLIENT);
	if (begins(w, "serves ")) {
		fixed(w, "serves ");
		text_of(w, '\n', g.serves, NB_SERVES);
		w->bad |= !*g.serves;
	}
	while (begins(w, "port "))
		port_line(w, &g);
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
	reservations_of(&w, &s.reservations);
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

static const char *hex(const uint8_t *from, size_t size, char text[33])
{
	for (size_t i = 0; i < size; i++)
		snprintf(text + 2 * i, 3, "%02x", from[i]);
	return text;
}

/* The text grows by it. It has room for the longest state. */
__attribute__((format(printf, 3, 4))) static void put(char *text, size_t *n, const char *format, ...)
{
	va_list ap;

	va_start(ap, format);
	*n += (size_t)vsnprintf(text + *n, NG_TEXT - *n, format, ap);
	va_end(ap);
}

static void put_reservations(const struct nr_state *s, char *text, size_t *n)
{
	char id[33], name[33];

	put(text, n, "reservation %" PRIu64 " %u %u %u\n", s->version, s->generation, s->type, s->persists);
	for (uint32_t i = 0; i < s->count; i++) {
		const struct nr_registrant *r = &s->registrants[i];

		put(text, n, "%s %s %s %016" PRIx64 "\n", r->holder ? "holder" : "registrant", hex(r->host.id, 16, id),
		    hex(r->host.name, 16, name), r->key);
	}
	for (uint32_t i = 0; i < s->notice_count; i++)
		put(text, n, "notice %" PRIu64 " %u %s %s\n", s->notices[i].version, s->notices[i].event,
		    hex(s->notices[i].by.id, 16, id), hex(s->notices[i].by.name, 16, name));
}

static void put_gateway(const struct ng_gateway *g, char *text, size_t *n)
{
	char subsystem[33], tsas[33];

	put(text, n, "gateway %s %u %" PRIu64 " %" PRIu64 " %" PRIu64 " %s\n", g->name, g->slot, g->beat, g->enforces,
	    g->change, or_nobody(g->client));
	if (*g->serves)
		put(text, n, "serves %s\n", g->serves);
	for (uint32_t i = 0; i < g->port_count; i++) {
		const struct nb_port *p = &g->ports[i];

		put(text, n, "port %u %u %u %s %u %s %s\n", p->id, p->trtype, p->treq, hex(p->tsas, 4, tsas),
		    p->service, hex(p->subsystem, 16, subsystem), p->address);
	}
}

size_t ng_encode(const struct ng_state *s, char text[NG_TEXT])
{
	size_t n = 0;

	put(text, &n, HEAD "epoch %" PRIu64 "\nowner %s %s\nwanted %s\n", s->epoch, or_nobody(s->owner),
	    or_nobody(s->owner_client), or_nobody(s->wanted));
	put_reservations(&s->reservations, text, &n);
	for (uint32_t i = 0; i < s->count; i++)
		put_gateway(&s->gateways[i], text, &n);
	return n;
}

/* ---- configurations that differ ---- */

/* The length of the first word, and what follows it. */
static int first_word(const char **at)
{
	size_t n = strcspn(*at, ",");

	*at += n + ((*at)[n] == ',');
	return (int)n;
}

void ng_tell_difference(struct ng *g, char *out, size_t size)
{
	const struct ng_gateway *w = ng_find(&g->seen, g->other);
	const char *theirs = w ? w->serves : "", *ours = g->serves, *their_word, *our_word;
	int t, o;

	do {
		their_word = theirs;
		our_word = ours;
		t = first_word(&theirs);
		o = first_word(&ours);
	} while (t == o && !memcmp(their_word, our_word, (size_t)t) && *ours);
	snprintf(out, size, "the gateway %s of this image has %.*s, this one %.*s", g->other, t < 80 ? t : 80,
	         their_word, o < 80 ? o : 80, our_word);
}
