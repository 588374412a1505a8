// parse.c - reads a rule of fault injection: ACTION [key=value...]
// see: man/verbena-fault.1
// SPDX-License-Identifier: MIT
#include <arpa/inet.h>
#include <ctype.h>
#include <locale.h>
#include <math.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "fault/rule.h"

/* A word of the rule: KEY or KEY=VALUE. */
struct word {
	const char *key, *value; /* value: NULL if there is no = */
	size_t key_len, value_len, at;
};

struct parser {
	const char *text;
	size_t len, pos;
	struct vb_fault_rule *rule;
	struct vb_fault_error *err;
	uint32_t given; /* bits of enum key */
};

enum { MAX_TIME_S = 1000000000, VALUE_MAX = 64 };

__attribute__((format(printf, 3, 4))) static bool refuse_word(struct parser *p, size_t at, const char *fmt, ...)
{
	va_list ap;

	va_start(ap, fmt);
	vsnprintf(p->err->text, sizeof(p->err->text), fmt, ap);
	va_end(ap);
	p->err->at = at;
	return false;
}

static bool is_blank(char c)
{
	return c == ' ' || c == '\t';
}

/* Takes the next word. Returns false at the end. */
static bool next_word(struct parser *p, struct word *w)
{
	while (p->pos < p->len && is_blank(p->text[p->pos]))
		p->pos++;
	size_t begin = p->pos;

	while (p->pos < p->len && !is_blank(p->text[p->pos]))
		p->pos++;
	size_t len = p->pos - begin;
	const char *is = len ? memchr(p->text + begin, '=', len) : NULL;

	*w = (struct word){.key = p->text + begin, .key_len = len, .at = begin};
	if (is) {
		w->key_len = (size_t)(is - w->key);
		w->value = is + 1;
		w->value_len = len - w->key_len - 1;
	}
	return len > 0;
}

static bool value_is(const struct word *w, const char *text)
{
	return w->value_len == strlen(text) && !memcmp(w->value, text, w->value_len);
}

/* Copies the value as a string. False if it is empty or long. */
static bool copy_value(const struct word *w, char out[VALUE_MAX])
{
	if (!w->value_len || w->value_len >= VALUE_MAX)
		return false;
	memcpy(out, w->value, w->value_len);
	out[w->value_len] = '\0';
	return strlen(out) == w->value_len;
}

static bool whole_number(const struct word *w, uint64_t most, uint64_t *out)
{
	char text[VALUE_MAX], *end;

	if (!copy_value(w, text) || !isdigit((unsigned char)text[0]))
		return false;
	unsigned long long n = strtoull(text, &end, 0);

	*out = n;
	return !*end && n <= most && strlen(text) < 20; /* 20 digits may wrap around */
}

double vb_fault_strtod(const char *text, char **end)
{
	locale_t c = newlocale(LC_ALL_MASK, "C", (locale_t)0); /* glibc's own: nothing is allocated */
	double v = strtod_l(text, end, c);

	freelocale(c);
	return v;
}

/* A decimal number: digits, perhaps a point and digits. *unit: what follows. */
static bool decimal_number(const char *text, double *out, const char **unit)
{
	size_t n = strspn(text, "0123456789.");
	char digits[VALUE_MAX], *end;

	if (!n || n >= sizeof(digits))
		return false;
	memcpy(digits, text, n);
	digits[n] = '\0';
	*out = vb_fault_strtod(digits, &end);
	*unit = text + n;
	return !*end && isfinite(*out);
}

static bool number_with_unit(const struct word *w, const char *const *units, const double *factors, int n, double *out)
{
	char text[VALUE_MAX];
	const char *unit;

	if (!copy_value(w, text) || !decimal_number(text, out, &unit))
		return false;
	for (int i = 0; i < n; i++)
		if (!strcmp(unit, units[i])) {
			*out *= factors[i];
			return true;
		}
	return false;
}

static bool time_value(struct parser *p, const struct word *w, uint64_t least, uint64_t *out)
{
	static const char *const units[] = {"ns", "us", "ms", "s", "m"};
	static const double factors[] = {1, 1e3, 1e6, 1e9, 60e9};
	double ns = 0;

	if (!number_with_unit(w, units, factors, 5, &ns) || ns > MAX_TIME_S * 1e9 || ns < (double)least)
		return refuse_word(p, w->at, "a time is a number and a unit, ns, us, ms, s or m%s",
		                   least ? ", and more than 0" : "");
	*out = (uint64_t)ns;
	return true;
}

/* --- the keys --- */

static bool key_dir(struct parser *p, const struct word *w)
{
	if (value_is(w, "tx"))
		p->rule->dirs = VB_FAULT_TX;
	else if (value_is(w, "rx"))
		p->rule->dirs = VB_FAULT_RX;
	else if (value_is(w, "both"))
		p->rule->dirs = VB_FAULT_TX | VB_FAULT_RX;
	else
		return refuse_word(p, w->at, "dir is tx, rx or both");
	return true;
}

static bool key_path(struct parser *p, const struct word *w)
{
	if (value_is(w, "roce"))
		p->rule->paths &= VB_FAULT_ROCE;
	else if (value_is(w, "iwarp"))
		p->rule->paths &= VB_FAULT_IWARP;
	else if (value_is(w, "local"))
		p->rule->paths &= VB_FAULT_HERE;
	else
		return refuse_word(p, w->at, "path is roce, iwarp or local");
	return true;
}

static bool key_opcode(struct parser *p, const struct word *w)
{
	int kind = vb_fault_kind_named(w->value, w->value_len);

	if (kind >= 0 && kind != VB_FAULT_KIND_RECV && kind != VB_FAULT_KIND_LOCAL_INV) {
		p->rule->kinds |= (uint16_t)(1 << kind);
		return true;
	}
	p->rule->opcode = (int16_t)vb_fault_opcode_named(w->value, w->value_len);
	if (p->rule->opcode < 0)
		return refuse_word(p, w->at, "an opcode is %s, or of one RoCE packet as in RC_SEND_ONLY",
		                   vb_fault_kinds_listed());
	p->rule->paths &= VB_FAULT_ROCE;
	if (!p->rule->paths)
		return refuse_word(p, w->at, "this opcode is one of RoCE: allowed here are %s",
		                   vb_fault_kinds_listed());
	return true;
}

static bool key_op(struct parser *p, const struct word *w)
{
	int kind = vb_fault_kind_named(w->value, w->value_len);

	if (kind != VB_FAULT_KIND_SEND && kind != VB_FAULT_KIND_WRITE && kind != VB_FAULT_KIND_READ &&
	    kind != VB_FAULT_KIND_ATOMIC && kind != VB_FAULT_KIND_LOCAL_INV && kind != VB_FAULT_KIND_RECV)
		return refuse_word(p, w->at, "op is SEND, WRITE, READ, ATOMIC, LOCAL_INV or RECV");
	p->rule->kinds |= (uint16_t)(1 << kind);
	return true;
}

static bool key_qp(struct parser *p, const struct word *w)
{
	uint64_t n;

	if (!whole_number(w, 0xffffff, &n))
		return refuse_word(p, w->at, "a queue pair's number is from 0 to 0xffffff");
	p->rule->qpn = (int64_t)n;
	return true;
}

static bool key_peer(struct parser *p, const struct word *w)
{
	char text[VALUE_MAX];

	p->rule->has_peer = true;
	memset(p->rule->peer, 0, sizeof(p->rule->peer));
	if (copy_value(w, text) && inet_pton(AF_INET6, text, p->rule->peer) == 1)
		return true;
	p->rule->peer[10] = p->rule->peer[11] = 0xff;
	if (copy_value(w, text) && inet_pton(AF_INET, text, p->rule->peer + 12) == 1)
		return true;
	return refuse_word(p, w->at, "a peer is an IPv4 or IPv6 address in figures");
}

static bool key_device(struct parser *p, const struct word *w)
{
	char text[VALUE_MAX];

	if (!copy_value(w, text) ||
	    strspn(text, "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789_-.@") != w->value_len)
		return refuse_word(p, w->at, "a device is a name of 'verbena devices', as in roce_lo");
	memcpy(p->rule->device, text, sizeof(text));
	return true;
}

static bool key_every(struct parser *p, const struct word *w)
{
	return (whole_number(w, UINT64_MAX, &p->rule->every) && p->rule->every) ||
	       refuse_word(p, w->at, "every is a whole number from 1");
}

static bool key_nth(struct parser *p, const struct word *w)
{
	return (whole_number(w, UINT64_MAX, &p->rule->nth) && p->rule->nth) ||
	       refuse_word(p, w->at, "nth is a whole number from 1");
}

static bool key_p(struct parser *p, const struct word *w)
{
	static const char *const units[] = {"", "%"};
	static const double factors[] = {1, 0.01};

	if (!number_with_unit(w, units, factors, 2, &p->rule->p) || p->rule->p > 1)
		return refuse_word(p, w->at, "a probability is from 0 to 1, or from 0%% to 100%%");
	return true;
}

static bool key_seed(struct parser *p, const struct word *w)
{
	p->rule->has_seed = true;
	return whole_number(w, UINT64_MAX, &p->rule->seed) || refuse_word(p, w->at, "a seed is a whole number");
}

static bool key_count(struct parser *p, const struct word *w)
{
	return (whole_number(w, UINT64_MAX, &p->rule->count) && p->rule->count) ||
	       refuse_word(p, w->at, "count is a whole number from 1");
}

static bool key_after(struct parser *p, const struct word *w)
{
	return time_value(p, w, 0, &p->rule->after);
}

static bool key_for(struct parser *p, const struct word *w)
{
	return time_value(p, w, 1, &p->rule->lasts);
}

static bool key_icrc(struct parser *p, const struct word *w)
{
	p->rule->icrc_right = value_is(w, "new");
	return p->rule->icrc_right || value_is(w, "stale") || refuse_word(p, w->at, "icrc is stale or new");
}

#define CLASS(name) (1u << VB_FAULT_CLASS_##name)
#define ALL_CLASSES (CLASS(WIRE) | CLASS(WORK) | CLASS(STATE) | CLASS(CM) | CLASS(VERB))

enum key { DIR, PATH, OPCODE, OP, QP, PEER, DEVICE_KEY, EVERY, NTH, P, SEED, COUNT, AFTER, FOR, ICRC, KEYS };

static const struct {
	const char *name;
	unsigned classes; /* of actions that take it */
	bool (*take)(struct parser *p, const struct word *w);
} keys[] = {
        [DIR] = {"dir", CLASS(WIRE), key_dir},
        [PATH] = {"path", CLASS(WIRE) | CLASS(WORK), key_path},
        [OPCODE] = {"opcode", CLASS(WIRE), key_opcode},
        [OP] = {"op", CLASS(WORK), key_op},
        [QP] = {"qp", CLASS(WIRE) | CLASS(WORK), key_qp},
        [PEER] = {"peer", CLASS(WIRE) | CLASS(WORK) | CLASS(CM), key_peer},
        [DEVICE_KEY] = {"device", CLASS(WIRE) | CLASS(WORK) | CLASS(STATE) | CLASS(VERB), key_device},
        [EVERY] = {"every", ALL_CLASSES & ~CLASS(STATE), key_every},
        [NTH] = {"nth", ALL_CLASSES & ~CLASS(STATE), key_nth},
        [P] = {"p", ALL_CLASSES & ~CLASS(STATE), key_p},
        [SEED] = {"seed", ALL_CLASSES & ~CLASS(STATE), key_seed},
        [COUNT] = {"count", ALL_CLASSES & ~CLASS(STATE), key_count},
        [AFTER] = {"after", ALL_CLASSES, key_after},
        [FOR] = {"for", ALL_CLASSES, key_for},
        [ICRC] = {"icrc", CLASS(WIRE), key_icrc},
};

static void list_keys(const struct vb_fault_rule *r, char *out, size_t size)
{
	size_t n = 0;

	out[0] = '\0';
	for (int i = 0; i < KEYS; i++) {
		if (!(keys[i].classes >> vb_fault_class_of(r) & 1) || (i == ICRC && r->action != VB_FAULT_CORRUPT))
			continue;
		int more = snprintf(out + n, size - n, "%s%s=", n ? ", " : "", keys[i].name);

		if (more < 0 || (size_t)more >= size - n)
			return;
		n += (size_t)more;
	}
}

static bool take_key(struct parser *p, const struct word *w)
{
	char list[200];
	int k = 0;

	while (k < KEYS && (strlen(keys[k].name) != w->key_len || memcmp(keys[k].name, w->key, w->key_len) != 0))
		k++;
	list_keys(p->rule, list, sizeof(list));
	if (k == KEYS)
		return refuse_word(p, w->at, "there is no such key: %s takes %s", vb_fault_action_name(p->rule->action),
		                   list);
	if (!(keys[k].classes >> vb_fault_class_of(p->rule) & 1) || (k == ICRC && p->rule->action != VB_FAULT_CORRUPT))
		return refuse_word(p, w->at, "%s does not take %s=: it takes %s", vb_fault_action_name(p->rule->action),
		                   keys[k].name, list);
	if (!w->value)
		return refuse_word(p, w->at, "%s needs a value: %s=VALUE", keys[k].name, keys[k].name);
	if (p->given >> k & 1 && k != OPCODE && k != OP)
		return refuse_word(p, w->at, "%s= is given twice", keys[k].name);
	p->given |= 1u << k;
	return keys[k].take(p, w);
}

/* --- the action --- */

static bool value_of_cm(struct parser *p, const struct word *w)
{
	uint64_t *value = &p->rule->value;
	char text[VALUE_MAX];

	*value = VB_FAULT_CM_IGNORE;
	if (value_is(w, "ignore"))
		return true;
	*value = 28; /* consumer defined: IBA 12.6.7.2 */
	if (value_is(w, "reject"))
		return true;
	if (copy_value(w, text) && !strncmp(text, "reject=", 7)) {
		struct word reason = {.value = w->value + 7, .value_len = w->value_len - 7, .at = w->at};

		if (whole_number(&reason, 65535, value) && *value)
			return true;
	}
	return refuse_word(p, w->at, "cm is reject, reject=REASON (IBA 12.6.7.2: 1 to 65535) or ignore");
}

static bool value_of_rate(struct parser *p, const struct word *w)
{
	static const char *const units[] = {"", "bit", "k", "kbit", "M", "Mbit", "G", "Gbit"};
	static const double factors[] = {1, 1, 1e3, 1e3, 1e6, 1e6, 1e9, 1e9};
	double bits = 0;

	if (!number_with_unit(w, units, factors, 8, &bits) || bits < 1000 || bits > 1e12)
		return refuse_word(p, w->at, "a rate is in bits per second, from 1k to 1000G, as in 100M");
	p->rule->value = (uint64_t)bits;
	return true;
}

static bool value_of_action(struct parser *p, const struct word *w)
{
	struct vb_fault_rule *r = p->rule;
	int n;

	switch (r->action) {
	case VB_FAULT_DELAY:
		return time_value(p, w, 1, &r->value);
	case VB_FAULT_RATE:
		return value_of_rate(p, w);
	case VB_FAULT_WC:
		n = vb_fault_status_named(w->value, w->value_len);
		r->value = (uint64_t)n;
		return n > 0 || refuse_word(p, w->at, "a status is %s", vb_fault_statuses_listed());
	case VB_FAULT_PORT:
		r->value = value_is(w, "up");
		return r->value || value_is(w, "down") || refuse_word(p, w->at, "port is down or up");
	case VB_FAULT_DEVICE:
		return value_is(w, "remove") || refuse_word(p, w->at, "device is remove");
	case VB_FAULT_CM:
		return value_of_cm(p, w);
	default:
		n = vb_fault_errno_named(w->value, w->value_len);
		r->value = (uint64_t)n;
		return n > 0 ||
		       refuse_word(p, w->at, "%s is %s", vb_fault_action_name(r->action), vb_fault_errnos_listed());
	}
}

static bool has_value(unsigned action)
{
	return action != VB_FAULT_DROP && action != VB_FAULT_DUPLICATE && action != VB_FAULT_REORDER &&
	       action != VB_FAULT_CORRUPT && action != VB_FAULT_CUT && action != VB_FAULT_CQ_OVERFLOW &&
	       action != VB_FAULT_QP_FATAL;
}

/* The paths on which a wire action has a meaning. */
static uint8_t paths_of(unsigned action)
{
	switch (action) {
	case VB_FAULT_DROP:
		return VB_FAULT_ROCE | VB_FAULT_HERE;
	case VB_FAULT_DUPLICATE:
	case VB_FAULT_REORDER:
		return VB_FAULT_ROCE | VB_FAULT_DATAGRAM; /* a connected queue pair of one host would not see it */
	case VB_FAULT_CUT:
		return VB_FAULT_IWARP;
	default:
		return VB_FAULT_ROCE | VB_FAULT_IWARP | VB_FAULT_HERE;
	}
}

static bool take_action(struct parser *p)
{
	struct word w;

	if (!next_word(p, &w))
		return refuse_word(p, 0, "the rule is empty: a rule is ACTION [key=value...]");
	int action = vb_fault_action_named(w.key, w.key_len);

	if (action < 0)
		return refuse_word(p, w.at, "there is no such action: allowed are %s", vb_fault_actions_listed());
	p->rule->action = (uint8_t)action;
	if (!has_value((unsigned)action))
		return !w.value || refuse_word(p, w.at, "%s takes no value", vb_fault_action_name((unsigned)action));
	if (!w.value)
		return refuse_word(p, w.at, "%s needs a value: %s=VALUE", vb_fault_action_name((unsigned)action),
		                   vb_fault_action_name((unsigned)action));
	return value_of_action(p, &w);
}

/* --- the whole --- */

static bool check_path(struct parser *p)
{
	struct vb_fault_rule *r = p->rule;
	uint8_t allowed = paths_of(r->action);
	const char *name = vb_fault_action_name(r->action);

	if (vb_fault_class_of(r) != VB_FAULT_CLASS_WIRE)
		return true;
	bool iwarp = r->paths == VB_FAULT_IWARP || !strncmp(r->device, "iwarp_", 6);

	if (iwarp && !(allowed & VB_FAULT_IWARP))
		return refuse_word(p, 0,
		                   "%s has no meaning for iWARP, because TCP would repair it: allowed are delay, rate, "
		                   "corrupt and cut",
		                   name);
	if (r->paths == VB_FAULT_HERE && !(allowed & VB_FAULT_HERE))
		return refuse_word(p, 0,
		                   "%s has no meaning on one host, which has no connection of TCP: allowed are drop, "
		                   "duplicate, reorder, corrupt, delay and rate",
		                   name);
	if (r->paths == VB_FAULT_ROCE && !(allowed & VB_FAULT_ROCE))
		return refuse_word(
		        p, 0,
		        "%s is for iWARP, which has a connection: allowed are drop, duplicate, reorder, corrupt, "
		        "delay and rate",
		        name);
	r->paths &= allowed;
	if (!strncmp(r->device, "roce_", 5))
		r->paths &= (uint8_t)~VB_FAULT_IWARP;
	if (r->icrc_right)
		r->paths &= (uint8_t)~VB_FAULT_HERE;
	if (!r->paths)
		return refuse_word(p, 0, "the rule's path, device and opcode contradict each other, or %s and icrc=new",
		                   name);
	if (r->dirs == VB_FAULT_RX && !(r->paths & VB_FAULT_ROCE))
		return refuse_word(p, 0,
		                   "dir=rx is for RoCE: iWARP and the same-host path have faults where they send");
	return true;
}

static bool check_whole(struct parser *p)
{
	struct vb_fault_rule *r = p->rule;

	if ((r->nth != 0) + (r->every != 0) + (r->p >= 0) > 1)
		return refuse_word(p, 0, "only one of nth=, every= and p= may be given");
	if (r->has_seed && r->p < 0 && r->action != VB_FAULT_REORDER && r->action != VB_FAULT_CORRUPT)
		return refuse_word(p, 0, "seed= needs p=, because nothing else is random");
	if (r->nth && r->count != UINT64_MAX)
		return refuse_word(p, 0, "nth= and count= contradict each other: nth= acts once");
	if (r->action == VB_FAULT_DEVICE && r->lasts != VB_FAULT_ALWAYS)
		return refuse_word(p, 0, "a removed device does not come back: device=remove takes no for=");
	if (r->action == VB_FAULT_PORT && r->value && r->lasts != VB_FAULT_ALWAYS)
		return refuse_word(p, 0, "port=up takes no for=: for a while it is port=down for=TIME");
	return check_path(p);
}

static bool take_text(struct parser *p)
{
	if (p->len >= VB_FAULT_TEXT_LEN)
		return refuse_word(p, 0, "a rule has at most %d characters", VB_FAULT_TEXT_LEN - 1);
	for (size_t i = 0; i < p->len; i++)
		if (p->text[i] < ' ' && p->text[i] != '\t')
			return refuse_word(p, i, "a rule is one line of printable characters");
	memcpy(p->rule->text, p->text, p->len);
	p->rule->text[p->len] = '\0';
	return true;
}

bool vb_fault_parse(const char *text, size_t len, struct vb_fault_rule *rule, struct vb_fault_error *err)
{
	while (len && is_blank(*text)) {
		text++;
		len--;
	}
	while (len && is_blank(text[len - 1]))
		len--;
	struct parser p = {.text = text, .len = len, .rule = rule, .err = err};
	struct word w;

	*rule = (struct vb_fault_rule){
	        .paths = VB_FAULT_ROCE | VB_FAULT_IWARP | VB_FAULT_HERE,
	        .dirs = VB_FAULT_TX,
	        .opcode = -1,
	        .qpn = -1,
	        .p = -1,
	        .count = UINT64_MAX,
	        .lasts = VB_FAULT_ALWAYS,
	};
	if (!take_text(&p) || !take_action(&p))
		return false;
	while (next_word(&p, &w))
		if (!take_key(&p, &w))
			return false;
	return check_whole(&p);
}
