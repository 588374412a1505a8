// pool.c - the random walk: its random numbers, the objects of a process, and their locks
// SPDX-License-Identifier: MIT
#include <stdarg.h>
#include <time.h>
#include <unistd.h>

#include "walk.h"

struct plan plan;
unsigned self;
struct board *board;

/* --- failure --- */

void walk_failed(const char *file, int line, const char *function, const char *fmt, ...)
{
	static atomic_bool said;
	va_list args;

	if (atomic_exchange(&said, true)) /* one report is enough; what follows is often its effect */
		pause();
	board->over = true;
	flockfile(stderr);
	fprintf(stderr, "seed %llu, process %u: %s:%d: %s: ", (unsigned long long)plan.seed, self, file, line,
	        function);
	va_start(args, fmt);
	vfprintf(stderr, fmt, args);
	va_end(args);
	fputc('\n', stderr);
	funlockfile(stderr);
	if (getenv("WALK_STAYS"))
		pause();
	_exit(1);
}

/* --- random numbers --- */

uint64_t mix(uint64_t a, uint64_t b)
{
	uint64_t z = a + 0x9e3779b97f4a7c15ull * (b + 1);

	z = (z ^ z >> 30) * 0xbf58476d1ce4e5b9ull;
	z = (z ^ z >> 27) * 0x94d049bb133111ebull;
	return z ^ z >> 31;
}

uint64_t dice_word(struct dice *d)
{
	return mix(d->state++, 77);
}

uint32_t roll(struct dice *d, uint32_t n)
{
	return (uint32_t)((dice_word(d) >> 32) * n >> 32);
}

bool one_in(struct dice *d, uint32_t n)
{
	return roll(d, n) == 0;
}

void fill_bytes(void *p, size_t n, uint64_t seed)
{
	uint8_t *to = p;

	for (size_t i = 0; i < n; i += 8) {
		uint64_t word = mix(seed, i);

		memcpy(to + i, &word, n - i < 8 ? n - i : 8);
	}
}

bool bytes_hold(const void *p, size_t n, uint64_t seed)
{
	const uint8_t *from = p;

	for (size_t i = 0; i < n; i += 8) {
		uint64_t word = mix(seed, i);

		if (memcmp(from + i, &word, n - i < 8 ? n - i : 8))
			return false;
	}
	return true;
}

uint64_t clock_ms(void)
{
	struct timespec t;

	clock_gettime(CLOCK_MONOTONIC, &t);
	return (uint64_t)t.tv_sec * 1000 + (uint64_t)t.tv_nsec / 1000000;
}

/* --- the objects of this process --- */

static const uint32_t sizes[KINDS] = {
        [CTX] = 4, [TD] = 6,  [PD] = 12, [CHANNEL] = 6, [CQ] = 24,        [SRQ] = 8,
        [AH] = 24, [MR] = 32, [MW] = 12, [XRCD] = 4,    [QP] = END_COUNT,
};
static struct object pool[KINDS][END_COUNT];

uint32_t pool_size(enum kind kind)
{
	return kind == QP ? plan.ends : sizes[kind];
}

struct object *pool_at(enum kind kind, uint32_t index)
{
	return &pool[kind][index];
}

static void object_init(struct object *o, enum kind kind, uint32_t index)
{
	o->kind = kind;
	o->index = index;
	pthread_rwlock_init(&o->lock, NULL);
	if (kind == CQ)
		pthread_mutex_init(&o->cq.one, NULL);
}

void pool_init(void)
{
	for (int k = 0; k < KINDS; k++)
		for (uint32_t i = 0; i < pool_size((enum kind)k); i++)
			object_init(&pool[k][i], (enum kind)k, i);
}

/* --- locks --- */

static bool note_held(struct hold *h, struct object *o, int failed)
{
	if (failed)
		return false;
	h->o[h->n++] = o;
	return true;
}

static bool is_held(const struct hold *h, const struct object *o)
{
	for (int i = 0; i < h->n; i++)
		if (h->o[i] == o)
			return true;
	return false;
}

bool take_read(struct hold *h, struct object *o)
{
	return is_held(h, o) || note_held(h, o, pthread_rwlock_tryrdlock(&o->lock));
}

bool take_write(struct hold *h, struct object *o)
{
	return note_held(h, o, pthread_rwlock_trywrlock(&o->lock));
}

void let_go(struct hold *h)
{
	while (h->n)
		pthread_rwlock_unlock(&h->o[--h->n]->lock);
}

static void let_go_last(struct hold *h)
{
	pthread_rwlock_unlock(&h->o[--h->n]->lock);
}

static bool is_open(const struct object *o)
{
	const struct object *ctx = o->kind == CTX ? o : o->ctx;

	return o->alive && (o == ctx || !ctx->c.closed);
}

/* An object whose context was closed may only be destroyed. */
struct object *pick_of(struct hold *h, struct dice *d, enum kind kind, const struct object *ctx)
{
	uint32_t n = pool_size(kind), first = roll(d, n);

	for (uint32_t i = 0; i < n; i++) {
		struct object *o = pool_at(kind, (first + i) % n);
		bool had = is_held(h, o);

		if (!take_read(h, o))
			continue;
		if (is_open(o) && (!ctx || o->ctx == ctx))
			return o;
		if (!had)
			let_go_last(h);
	}
	return NULL;
}

struct object *pick(struct hold *h, struct dice *d, enum kind kind)
{
	return pick_of(h, d, kind, NULL);
}

static struct object *pick_written(struct hold *h, struct dice *d, enum kind kind, bool alive)
{
	uint32_t n = pool_size(kind), first = roll(d, n);

	for (uint32_t i = 0; i < n; i++) {
		struct object *o = pool_at(kind, (first + i) % n);

		if (is_held(h, o) || !take_write(h, o))
			continue;
		if (o->alive == alive)
			return o;
		let_go_last(h);
	}
	return NULL;
}

struct object *pick_to_destroy(struct hold *h, struct dice *d, enum kind kind)
{
	return pick_written(h, d, kind, true);
}

struct object *pick_free(struct hold *h, struct dice *d, enum kind kind)
{
	return pick_written(h, d, kind, false);
}

/* --- the model --- */

void object_born(struct object *o, void *p, struct object *ctx, struct object *a, struct object *b, struct object *c,
                 struct object *e)
{
	struct object *up[4] = {a, b, c, e};

	o->p = p;
	o->ctx = ctx;
	o->alive = true;
	atomic_fetch_add(&o->round, 1);
	for (int i = 0; i < 4; i++) {
		o->up[i] = up[i];
		if (up[i])
			count_by(&up[i]->users, 1);
	}
}

void object_gone(struct object *o)
{
	for (int i = 0; i < 4; i++) {
		if (o->up[i])
			count_by(&o->up[i]->users, -1);
		o->up[i] = NULL;
	}
	o->alive = false;
	if (o->kind != CTX) /* a closed context exists until its objects are gone */
		o->p = NULL;
}
