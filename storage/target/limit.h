// limit.h - limits of operations and bytes per second: their names and values, and a token bucket for each
// follows: io.max of Linux (cgroup-v2) for the names of limits of one direction; man/verbena-target.8
// SPDX-License-Identifier: MIT
#ifndef NT_LIMIT_H
#define NT_LIMIT_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

enum nt_direction { NT_READS, NT_WRITES, NT_DIRECTIONS };

/* The first two are of both directions together, then come those of reads, then those of writes. */
enum nt_rate { NT_IOPS, NT_BPS, NT_RIOPS, NT_RBPS, NT_WIOPS, NT_WBPS, NT_RATES };

#define NT_RATE_MAX 1000000000000ull /* operations or bytes per second */
#define NT_BPS_MIN (128u << 10)      /* the largest command takes 16 s, less than hosts wait for it */
#define NT_BURST_MS 100u
#define NT_BURST_MS_MAX 60000u
#define NT_WEIGHT_MAX 100u
#define NT_DEPTH 128u /* commands of a namespace at its medium at once */
#define NT_DEPTH_MAX 65535u

struct nt_limits {
	uint64_t rate[NT_RATES]; /* 0: none */
	uint32_t burst_ms;       /* how much unused time is saved up; 0: NT_BURST_MS */
	uint32_t weight;         /* of a host: its share beside others; 0: 1 */
	uint32_t depth;          /* of a namespace; 0: NT_DEPTH */
};

/* What the limits are for: a namespace has no weight, and a host has no depth. */
enum nt_limited { NT_OF_NAMESPACE, NT_OF_HOST };

#define NT_LIMIT_WHY 200u

/* Sets the limit of this name; "max" removes it. False: *l is unchanged, and why is one line that describes the
 * error. */
bool nt_limit_set(struct nt_limits *l, enum nt_limited of, const char *name, const char *value, char why[NT_LIMIT_WHY]);
/* Sets limits from text: NAME=VALUE, separated by commas or spaces. False: *l is unchanged. */
bool nt_limits_parse(struct nt_limits *l, enum nt_limited of, const char *text, char why[NT_LIMIT_WHY]);
bool nt_limit_known(const char *name);
bool nt_limits_any(const struct nt_limits *l);
extern const char *const nt_rate_names[NT_RATES];

/*
 * A token bucket, as the time when it is full again. It lets a request pass while it has a token, and the request may
 * take more than there are; the next one waits until they have come. So at most rate * burst and one request pass at
 * once. It needs no timer, and the sum is exact.
 */
struct nt_bucket {
	uint64_t full_at; /* ns */
	uint64_t rest;    /* of the division, for the next request */
};

/* Returns the time (ns) from which on a request may pass. */
uint64_t nt_bucket_opens(const struct nt_bucket *b, uint32_t burst_ms);
void nt_bucket_take(struct nt_bucket *b, uint64_t rate, uint64_t tokens, uint64_t now);
/* The rate or the burst has changed: debts of the old rate are cancelled. */
void nt_bucket_change(struct nt_bucket *b, uint64_t now);

#endif
