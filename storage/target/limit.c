// limit.c - limits of operations and bytes per second: their names and values, and a token bucket for each
// follows: io.max of Linux (cgroup-v2) for the names of limits of one direction; man/verbena-target.8
// SPDX-License-Identifier: MIT
#include "target/limit.h"

#include <stdio.h>
#include <string.h>

#include "target/size.h"

const char *const nt_rate_names[NT_RATES] = {"iops", "bps", "riops", "rbps", "wiops", "wbps"};

#define NS_PER_S 1000000000ull
#define NS_PER_MS 1000000ull

/* ---- names and values ---- */

static bool wrong_limit(char why[NT_LIMIT_WHY], const char *name, const char *value, const char *what)
{
	snprintf(why, NT_LIMIT_WHY, "%.40s=%.40s: %s", name, value, what);
	return false;
}

static int rate_number(const char *name)
{
	for (int i = 0; i < NT_RATES; i++)
		if (!strcmp(nt_rate_names[i], name))
			return i;
	return -1;
}

static bool counts_bytes(int rate)
{
	return rate == NT_BPS || rate == NT_RBPS || rate == NT_WBPS;
}

bool nt_limit_known(const char *name)
{
	return rate_number(name) >= 0 || !strcmp(name, "burst") || !strcmp(name, "weight") || !strcmp(name, "depth");
}

static bool set_other(struct nt_limits *l, enum nt_limited of, const char *name, const char *value, uint64_t n,
                      char why[NT_LIMIT_WHY])
{
	bool burst = !strcmp(name, "burst"), weight = !strcmp(name, "weight");
	uint32_t most = burst ? NT_BURST_MS_MAX : weight ? NT_WEIGHT_MAX : NT_DEPTH_MAX;

	if (weight && of != NT_OF_HOST)
		return wrong_limit(why, name, value, "only a host has a weight");
	if (!burst && !weight && of != NT_OF_NAMESPACE)
		return wrong_limit(why, name, value, "only a namespace has a depth");
	if (!n || n > most) {
		snprintf(why, NT_LIMIT_WHY, "%s=%.40s: must be 1 to %u%s", name, value, most,
		         burst ? " milliseconds" : "");
		return false;
	}
	*(burst ? &l->burst_ms : weight ? &l->weight : &l->depth) = (uint32_t)n;
	return true;
}

bool nt_limit_set(struct nt_limits *l, enum nt_limited of, const char *name, const char *value, char why[NT_LIMIT_WHY])
{
	int rate = rate_number(name);
	bool none = !strcmp(value, "max");
	uint64_t n = 0;

	if (!nt_limit_known(name))
		return wrong_limit(why, name, value,
		                   "no such limit; there are iops, riops, wiops, bps, rbps, wbps, burst, "
		                   "weight and depth");
	if (rate < 0 && none)
		return wrong_limit(why, name, value, "must be a number");
	if (!none && !nt_size_parse(value, &n))
		return wrong_limit(why, name, value, rate < 0 ? "must be a number" : "must be a number or max");
	if (rate < 0)
		return set_other(l, of, name, value, n, why);
	if (!none && !n)
		return wrong_limit(why, name, value, "would let nothing through; max removes a limit");
	if (n > NT_RATE_MAX)
		return wrong_limit(why, name, value, "is more than 1000000000000; max removes a limit");
	if (!none && counts_bytes(rate) && n < NT_BPS_MIN)
		return wrong_limit(why, name, value,
		                   "is less than 128K: hosts would give up a command before it may pass");
	l->rate[rate] = n;
	return true;
}

bool nt_limits_parse(struct nt_limits *l, enum nt_limited of, const char *text, char why[NT_LIMIT_WHY])
{
	struct nt_limits all = *l;
	char one[128];

	for (text += strspn(text, ", "); *text; text += strspn(text, ", ")) {
		size_t n = strcspn(text, ", ");
		char *value;

		snprintf(one, sizeof(one), "%.*s", (int)(n < sizeof(one) ? n : sizeof(one) - 1), text);
		value = strchr(one, '=');
		if (!value) {
			snprintf(why, NT_LIMIT_WHY, "%.60s: a limit is NAME=VALUE", one);
			return false;
		}
		*value++ = 0;
		if (!nt_limit_set(&all, of, one, value, why))
			return false;
		text += n;
	}
	*l = all;
	return true;
}

bool nt_limits_any(const struct nt_limits *l)
{
	for (int i = 0; i < NT_RATES; i++)
		if (l->rate[i])
			return true;
	return false;
}

/* ---- the bucket ---- */

uint64_t nt_bucket_opens(const struct nt_bucket *b, uint32_t burst_ms)
{
	uint64_t burst = (burst_ms ? burst_ms : NT_BURST_MS) * NS_PER_MS;

	return b->full_at > burst ? b->full_at - burst : 0;
}

void nt_bucket_take(struct nt_bucket *b, uint64_t rate, uint64_t tokens, uint64_t now)
{
	uint64_t amount = tokens * NS_PER_S + b->rest;

	if (b->full_at < now)
		b->full_at = now;
	b->full_at += amount / rate;
	b->rest = amount % rate;
}

void nt_bucket_change(struct nt_bucket *b, uint64_t now)
{
	if (b->full_at > now)
		b->full_at = now;
	b->rest = 0;
}
