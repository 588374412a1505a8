// many.c - many processes, all connected to each other
// SPDX-License-Identifier: MIT
#include "pair.h"

#define MAX 64
#define ROUNDS 3u

struct group {
	unsigned n, me;
};

static struct addr addrs[MAX][MAX]; /* [of][for] */

/* Every process repeatedly sends a small message to every other, and adds 1 to a word of each. Fails if a doorbell is
 * lost among many rings, if rings are mixed up, or if the meetings take too long. */
static void member(int fd, void *arg)
{
	struct group g = *(struct group *)arg;
	struct link *l = calloc(g.n, sizeof(*l));
	struct far *far = calloc(g.n, sizeof(*far)), mine;
	struct dev d;
	struct mem m;
	struct ibv_cq *scq, *rcq;

	dev_open(&d);
	mem_make(&m, &d, 65536);
	scq = ibv_create_cq(d.ctx, 1024, NULL, NULL, 0);
	rcq = ibv_create_cq(d.ctx, 1024, NULL, NULL, 0);
	CHECK(l && far && scq && rcq);
	for (unsigned i = 0; i < g.n; i++) {
		if (i == g.me)
			continue;
		link_make(&l[i], &d, &(struct conf){.depth = 8, .sge = 1, .scq = scq, .rcq = rcq});
		for (unsigned r = 0; r < ROUNDS; r++)
			post_recv(&l[i], i, &m, 4096 + (i * ROUNDS + r) * 64, 64);
		tell(fd, &l[i].me, sizeof(l[i].me));
	}
	mine = (struct far){(uintptr_t)m.p, m.mr->rkey, 0};
	tell(fd, &mine, sizeof(mine));
	for (unsigned i = 0; i < g.n; i++) {
		struct addr it;

		if (i == g.me)
			continue;
		hear(fd, &it, sizeof(it));
		hear(fd, &far[i], sizeof(far[i]));
		link_to(&l[i], &it);
	}
	meet_up(fd); /* all are connected */
	unsigned sent = 0, got = 0, want = (g.n - 1) * ROUNDS;
	uint64_t last = now_ms();

	for (unsigned r = 0; r < ROUNDS; r++)
		for (unsigned k = 1; k < g.n; k++) {
			unsigned i = (g.me + k) % g.n;
			uint32_t *p = (uint32_t *)(m.p + 32768 + i * 64);

			p[0] = g.me;
			POST(&l[i], .op = IBV_WR_SEND, .id = i, .m = &m, .off = 32768 + i * 64, .len = 48);
			POST(&l[i], .op = IBV_WR_ATOMIC_FETCH_AND_ADD, .id = i, .m = &m, .off = 32768 + i * 64 + 56,
			     .len = 8, .far = far[i], .compare_add = 1);
		}
	while (sent < 2 * want || got < want) {
		struct ibv_wc wc;
		int n = ibv_poll_cq(scq, 1, &wc);

		if (n) {
			SAME(wc.status, IBV_WC_SUCCESS);
			sent++;
		}
		int k = ibv_poll_cq(rcq, 1, &wc);

		if (k) {
			SAME(wc.status, IBV_WC_SUCCESS);
			SAME(wc.qp_num, l[wc.wr_id].qp->qp_num);
			got++;
		}
		if (n || k)
			last = now_ms();
		else
			usleep(200); /* they all share two cores */
		if (now_ms() - last > 60000)
			fail(__FILE__, __LINE__, "process %u: %u of %u sent, %u of %u received", g.me, sent, 2 * want,
			     got, want);
	}
	for (unsigned i = 0; i < g.n; i++)
		for (unsigned r = 0; i != g.me && r < ROUNDS; r++)
			SAME(*(uint32_t *)(m.p + 4096 + (i * ROUNDS + r) * 64), i);
	meet_up(fd); /* all are done */
	SAME(*(uint64_t *)m.p, want);
}

static void barrier(struct peer *p, unsigned n)
{
	char c;

	for (unsigned i = 0; i < n; i++)
		hear(p[i].fd, &c, 1);
	for (unsigned i = 0; i < n; i++)
		tell(p[i].fd, &c, 1);
}

static void all_to_all(unsigned n)
{
	static struct peer p[MAX];
	static struct far far[MAX];

	for (unsigned i = 0; i < n; i++)
		p[i] = start(member, &(struct group){n, i});
	for (unsigned i = 0; i < n; i++) {
		for (unsigned k = 0; k < n; k++)
			if (k != i)
				hear(p[i].fd, &addrs[i][k], sizeof(addrs[i][k]));
		hear(p[i].fd, &far[i], sizeof(far[i]));
	}
	for (unsigned i = 0; i < n; i++)
		for (unsigned k = 0; k < n; k++)
			if (k != i) {
				tell(p[i].fd, &addrs[k][i], sizeof(addrs[k][i]));
				tell(p[i].fd, &far[k], sizeof(far[k]));
			}
	barrier(p, n);
	barrier(p, n);
	for (unsigned i = 0; i < n; i++)
		finish(&p[i]);
}

static void sixteen_processes_all_to_all(void)
{
	all_to_all(16);
}

static void sixty_four_processes_all_to_all(void)
{
	all_to_all(under_sanitizer() ? 24 : 64);
}

int main(int argc, char **argv)
{
	static const struct test tests[] = {
	        {"sixteen processes all to all", sixteen_processes_all_to_all, 300},
	        {"sixty-four processes all to all", sixty_four_processes_all_to_all, 300},
	};

	return RUN_TESTS(argc, argv, tests);
}
