// random.c - random writes, reads and atomics over streams in both directions at once; every byte is checked
// follows: RFC 5040, 5.5 (order); RFC 7306
// SPDX-License-Identifier: MIT
#include "stream.h"

#define SLOTS 8u
#define LINKS_MAX 16u

struct job {
	struct stream how;
	unsigned links;
	uint32_t max;
	bool sleeps; /* waits for completion events instead of polling */
};

struct side {
	struct dev d;
	struct mem m;
	struct far far;
	struct link l[LINKS_MAX];
	struct ibv_comp_channel *ch;
	uint32_t len[LINKS_MAX][SLOTS], seed[LINKS_MAX][SLOTS];
	uint64_t adds[LINKS_MAX], rnd;
	const struct job *j;
};

/* A link's part of the memory: outgoing data, data read back, the peer's writes, a word. */
static uint64_t part(const struct side *s, unsigned link, unsigned which, unsigned slot)
{
	return ((uint64_t)link * 4 + which) * SLOTS * s->j->max + (uint64_t)slot * s->j->max;
}

/* A write, a read of the same bytes, and a fetch-and-add. The last two signal completions. */
static void one(struct side *s, unsigned i, unsigned slot)
{
	struct link *l = &s->l[i];
	uint32_t n = 1 + random_next(&s->rnd) % (random_next(&s->rnd) % 4 ? 2000 : s->j->max);

	s->len[i][slot] = n;
	s->seed[i][slot] = random_next(&s->rnd);
	fill(s->m.p + part(s, i, 0, slot), n, s->seed[i][slot]);
	POST(l, IBV_WR_RDMA_WRITE, 100 + slot, &s->m, part(s, i, 0, slot), n, .far = s->far,
	     .far_off = part(s, i, 2, slot), .quiet = true);
	POST(l, IBV_WR_RDMA_READ, slot, &s->m, part(s, i, 1, slot), n, .far = s->far, .far_off = part(s, i, 2, slot));
	POST(l, IBV_WR_ATOMIC_FETCH_AND_ADD, 200 + slot, &s->m, part(s, i, 3, 0) + 64 + 8 * slot, 8, .far = s->far,
	     .far_off = part(s, i, 3, 0), .compare_add = 1);
}

static struct ibv_wc next(struct side *s, unsigned i)
{
	struct ibv_wc wc;
	struct ibv_cq *cq;
	void *ctx;

	if (!s->j->sleeps)
		return wait_wc(s->l[i].scq);
	for (;;) {
		if (ibv_poll_cq(s->l[i].scq, 1, &wc) > 0)
			return wc;
		CHECK(!ibv_req_notify_cq(s->l[i].scq, 0));
		if (ibv_poll_cq(s->l[i].scq, 1, &wc) > 0)
			return wc;
		if (!heard(s->ch->fd, PATIENCE))
			fail(__FILE__, __LINE__, "no completion comes");
		CHECK(!ibv_get_cq_event(s->ch, &cq, &ctx));
		ibv_ack_cq_events(cq, 1);
	}
}

static void take(struct side *s, unsigned i)
{
	struct ibv_wc wc = next(s, i);

	if (wc.status != IBV_WC_SUCCESS)
		fail(__FILE__, __LINE__, "link %u: request %u: %s", i, (unsigned)wc.wr_id,
		     ibv_wc_status_str(wc.status));
	if (wc.wr_id < SLOTS) {
		unsigned slot = (unsigned)wc.wr_id;

		if (!holds(s->m.p + part(s, i, 1, slot), s->len[i][slot], s->seed[i][slot]))
			fail(__FILE__, __LINE__, "link %u: %u bytes are others when they are read back", i,
			     s->len[i][slot]);
	} else {
		CHECK(wc.wr_id >= 200);
		SAME(*(uint64_t *)(s->m.p + part(s, i, 3, 0) + 64 + 8 * (wc.wr_id - 200)), s->adds[i]);
		s->adds[i]++;
		one(s, i, (unsigned)wc.wr_id - 200);
	}
}

static void play(int fd, void *arg)
{
	struct side *s = calloc(1, sizeof(*s));
	unsigned long turns = count_or(600);
	const struct job *j = arg;

	s->j = j;
	s->rnd = (uint64_t)getpid() * 0x9e3779b97f4a7c15ull;
	how = j->how;
	setenv("VERBENA_DEVICES", "iwarp:lo", 1);
	dev_open(&s->d);
	mem_make(&s->m, &s->d, part(s, j->links, 0, 0));
	mem_tell(&s->m, fd);
	s->far = far_hear(fd);
	CHECK((s->ch = ibv_create_comp_channel(s->d.ctx)));
	for (unsigned i = 0; i < j->links; i++) {
		struct ibv_cq *cq = ibv_create_cq(s->d.ctx, 256, NULL, s->ch, 0);

		CHECK(cq);
		stream_open(&s->l[i], &s->d, &(struct conf){.scq = cq}, fd);
	}
	for (unsigned i = 0; i < j->links; i++)
		for (unsigned slot = 0; slot < SLOTS; slot++)
			one(s, i, slot);
	for (unsigned long t = 0; t < turns; t++)
		take(s, j->sleeps ? (unsigned)(t % j->links) : random_next(&s->rnd) % j->links);
	meet_up(fd);
}

static void both(struct job j)
{
	struct peer p = start(play, &j);

	play(p.fd, &j);
	finish(&p);
}

static void one_stream(void)
{
	both((struct job){.links = 1, .max = 200000});
}

static void with_crc_and_markers(void)
{
	both((struct job){.how = {.crc = true, .markers = true}, .links = 1, .max = 200000});
}

static void few_reads_at_once(void)
{
	both((struct job){.how = {.crc = true, .ird = 1, .ord = 1}, .links = 2, .max = 50000});
}

static void programs_that_sleep(void)
{
	both((struct job){.links = 3, .max = 50000, .sleeps = true});
}

static void sixteen_streams(void)
{
	both((struct job){.links = 16, .max = 20000});
}

int main(int argc, char **argv)
{
	static const struct test tests[] = {
	        {"one stream", one_stream},
	        {"with CRC and markers", with_crc_and_markers},
	        {"few reads at once", few_reads_at_once},
	        {"programs that sleep", programs_that_sleep},
	        {"sixteen streams", sixteen_streams},
	};

	return RUN_TESTS(argc, argv, tests);
}
