// paging.c - on-demand paging: memory that is not there yet, is replaced, or is never there
// follows: ibv_reg_mr(3), ibv_advise_mr(3); IBA volume 1, 9.9.2, 9.9.3
// see: docs/same-host.md
// SPDX-License-Identifier: MIT
#include "regions.h"

#include <pthread.h>
#include <stdatomic.h>
#include <sys/mman.h>

#define PAGING (ALL_ACCESS | IBV_ACCESS_ON_DEMAND)
#define MIB (1u << 20)
#define AWAY ((uint8_t *)FAR_AWAY)

static void *map_at(void *at, size_t n, int flags, int fd)
{
	void *p = mmap(at, n, PROT_READ | PROT_WRITE, flags | (at ? MAP_FIXED : 0), fd, 0);

	CHECK(p != MAP_FAILED);
	return p;
}

static struct mem implicit(struct dev *d)
{
	struct mem m = {.mr = ibv_reg_mr(d->pd, NULL, SIZE_MAX, PAGING)};

	CHECK(m.mr && m.mr->length == SIZE_MAX && !m.mr->addr);
	return m;
}

static bool is_ended(struct link *l)
{
	uint64_t until = now_ms() + PATIENCE;

	while (state_of(l->qp) != IBV_QPS_ERR && now_ms() < until)
		sleep_ms(1);
	return state_of(l->qp) == IBV_QPS_ERR;
}

/* The request was for memory of the other side that is not there. */
static void expect_refused(struct link *l, uint64_t id, enum ibv_wr_opcode op)
{
	struct ibv_wc wc = wait_wc(l->scq);

	SAME(wc.wr_id, id);
	if (over_iwarp ? wc.status == IBV_WC_SUCCESS && op != IBV_WR_RDMA_WRITE
	               : wc.status != IBV_WC_REM_ACCESS_ERR && wc.status != IBV_WC_REM_OP_ERR)
		fail(__FILE__, __LINE__, "operation %d: %s", op, ibv_wc_status_str(wc.status));
	CHECK(is_ended(l));
}

/* --- memory that nobody has touched --- */

#define SPAN (1ull << 32)
#define WORD_AT (SPAN - 4096)

static void untouched_owner(int fd, void *arg)
{
	struct dev d;
	struct link l;
	struct mem m = {.n = SPAN, .p = map_at(NULL, SPAN, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1)};

	side_open(&d);
	mem_reg(&m, &d, PAGING);
	link_make(&l, &d, &(struct conf){0});
	mem_tell(&m, fd);
	side_join(&l, fd);
	meet_up(fd);
	CHECK(holds(m.p + 12345, MIB, 5));
	SAME(*(uint64_t *)(m.p + WORD_AT), 7);
	link_end(&l);
	mem_end(&m);
	dev_close(&d);
}

static void memory_that_was_never_touched_is_read_and_written(void)
{
	struct peer p = start(untouched_owner, NULL);
	struct dev d;
	struct link l;
	struct mem m;

	side_open(&d);
	mem_make(&m, &d, MIB);
	CHECK(!ibv_dereg_mr(m.mr));
	mem_reg(&m, &d, PAGING);
	link_make(&l, &d, &(struct conf){0});
	struct far far = far_hear(p.fd);

	side_join(&l, p.fd);
	fill(m.p, MIB, 5);
	POST(&l, .op = IBV_WR_RDMA_WRITE, .id = 1, .m = &m, .len = MIB, .far = far, .far_off = 12345);
	expect(l.scq, 1, IBV_WC_SUCCESS);
	POST(&l, .op = IBV_WR_RDMA_READ, .id = 2, .m = &m, .len = MIB, .far = far, .far_off = SPAN / 2 + 3);
	expect(l.scq, 2, IBV_WC_SUCCESS);
	CHECK(!m.p[0] && !memcmp(m.p, m.p + 1, MIB - 1));
	POST(&l, .op = IBV_WR_ATOMIC_FETCH_AND_ADD, .id = 3, .m = &m, .len = 8, .far = far, .far_off = WORD_AT,
	     .compare_add = 7);
	expect(l.scq, 3, IBV_WC_SUCCESS);
	SAME(*(uint64_t *)m.p, 0);
	meet_up(p.fd);
	finish(&p);
	link_end(&l);
	mem_end(&m);
	dev_close(&d);
}

/* --- memory that appears after its registration, and is replaced --- */

static uint8_t *file_at(void *at, int *fd)
{
	*fd = memfd_create("paging", MFD_CLOEXEC);
	CHECK(*fd >= 0 && !ftruncate(*fd, MIB));
	return map_at(at, MIB, MAP_SHARED, *fd);
}

static void changing_owner(int fd, void *arg)
{
	struct dev d;
	struct link l;
	struct mem m = {.n = MIB, .p = AWAY};
	int first, second;

	side_open(&d);
	CHECK(!ibv_reg_mr(d.pd, m.p, m.n, ALL_ACCESS) && errno == EFAULT);
	mem_reg(&m, &d, PAGING);
	link_make(&l, &d, &(struct conf){0});
	mem_tell(&m, fd);
	side_join(&l, fd);
	file_at(m.p, &first);
	meet_up(fd);
	meet_up(fd);
	CHECK(holds(m.p, MIB, 1));
	uint8_t *old = map_at(NULL, MIB, MAP_SHARED, first);

	file_at(m.p, &second);
	meet_up(fd);
	meet_up(fd);
	CHECK(holds(m.p, MIB, 2) && holds(old, MIB, 1));
	map_at(m.p, MIB, MAP_PRIVATE | MAP_ANONYMOUS, -1);
	meet_up(fd);
	meet_up(fd);
	CHECK(holds(m.p, MIB, 3) && !madvise(m.p, MIB, MADV_DONTNEED));
	meet_up(fd);
	meet_up(fd);
	link_end(&l);
	mem_end(&m);
	dev_close(&d);
}

/* Many pieces, so that the writer could map the other side's file meanwhile. Then a read of the last one, after which
 * the other side's memory has all. */
static void write_all(struct link *l, struct mem *m, struct far far, uint32_t seed)
{
	fill(m->p, MIB, seed);
	for (unsigned round = 0; round < 4; round++) {
		for (uint64_t i = 0; i < 16; i++) {
			POST(l, .op = IBV_WR_RDMA_WRITE, .id = i, .m = m, .off = i << 16, .len = 1 << 16, .far = far,
			     .far_off = i << 16);
			expect(l->scq, i, IBV_WC_SUCCESS);
		}
		sleep_ms(20);
	}
	POST(l, .op = IBV_WR_RDMA_READ, .id = 99, .m = m, .off = MIB - 8, .len = 8, .far = far, .far_off = MIB - 8);
	expect(l->scq, 99, IBV_WC_SUCCESS);
}

/* Fails if a peer goes on with a file that was mapped before (path/local/shared_map.c). */
static void a_region_is_what_is_mapped_there_now(void)
{
	struct peer p = start(changing_owner, NULL);
	struct dev d;
	struct link l;
	struct mem m;

	side_open(&d);
	mem_make(&m, &d, MIB);
	link_make(&l, &d, &(struct conf){0});
	struct far far = far_hear(p.fd);

	side_join(&l, p.fd);
	for (uint32_t seed = 1; seed <= 3; seed++) {
		meet_up(p.fd);
		write_all(&l, &m, far, seed);
		meet_up(p.fd);
	}
	meet_up(p.fd);
	POST(&l, .op = IBV_WR_RDMA_READ, .id = 1, .m = &m, .len = MIB, .far = far);
	expect(l.scq, 1, IBV_WC_SUCCESS);
	CHECK(!m.p[0] && !memcmp(m.p, m.p + 1, MIB - 1));
	meet_up(p.fd);
	finish(&p);
	link_end(&l);
	mem_end(&m);
	dev_close(&d);
}

/* --- memory that is never there --- */

static const struct {
	enum ibv_wr_opcode op;
	uint32_t len;
} refused[] = {
        {IBV_WR_RDMA_WRITE, 8},  {IBV_WR_RDMA_WRITE, MIB},       {IBV_WR_RDMA_READ, 8},
        {IBV_WR_RDMA_READ, MIB}, {IBV_WR_ATOMIC_CMP_AND_SWP, 8}, {IBV_WR_ATOMIC_FETCH_AND_ADD, 8},
};
#define REFUSED (sizeof(refused) / sizeof(refused[0]))
/* An address of the kernel, one that no program can have, the ends of the address space, and a hole. */
static const uint64_t nowhere[] = {FAR_AWAY + 4 * MIB, 0, 8, 0xffff800000000000, 0x7fffffff0000000, 0ull - 2 * MIB};
#define NOWHERE (sizeof(nowhere) / sizeof(nowhere[0]))

static void holes_owner(int fd, void *arg)
{
	bool *whole = arg;
	struct dev d;
	struct mem m = {.n = 8 * MIB, .p = map_at(AWAY, MIB, MAP_PRIVATE | MAP_ANONYMOUS, -1)};

	side_open(&d);
	if (*whole)
		m.mr = implicit(&d).mr;
	else
		mem_reg(&m, &d, PAGING);
	mem_tell(&m, fd);
	for (unsigned i = 0; i < REFUSED * (*whole ? NOWHERE : 1); i++) {
		struct link l;

		link_make(&l, &d, &(struct conf){0});
		side_join(&l, fd);
		meet_up(fd);
		link_end(&l);
	}
	CHECK(holds(m.p, MIB, 3));
	CHECK(!ibv_dereg_mr(m.mr));
	dev_close(&d);
}

static void holes(bool whole)
{
	struct peer p = start(holes_owner, &whole);
	struct dev d;
	struct mem m;

	side_open(&d);
	mem_make(&m, &d, MIB);
	fill(m.p, MIB, 3);
	struct far far = far_hear(p.fd);

	for (unsigned i = 0; i < REFUSED * (whole ? NOWHERE : 1); i++) {
		struct far good = {FAR_AWAY, far.rkey, 0}, bad = {nowhere[i / REFUSED], far.rkey, 0};
		enum ibv_wr_opcode op = refused[i % REFUSED].op;
		struct link l;

		link_make(&l, &d, &(struct conf){0});
		side_join(&l, p.fd);
		POST(&l, .op = IBV_WR_RDMA_WRITE, .id = 1, .m = &m, .len = MIB, .far = good);
		expect(l.scq, 1, IBV_WC_SUCCESS);
		POST(&l, .op = IBV_WR_RDMA_READ, .id = 2, .m = &m, .len = 8, .far = good);
		expect(l.scq, 2, IBV_WC_SUCCESS);
		POST(&l, .op = op, .id = 3, .m = &m, .len = refused[i % REFUSED].len, .far = bad);
		expect_refused(&l, 3, op);
		fill(m.p, MIB, 3);
		meet_up(p.fd);
		link_end(&l);
	}
	finish(&p);
	mem_end(&m);
	dev_close(&d);
}

static void a_hole_is_an_access_error(void)
{
	holes(false);
}

static void an_implicit_region_has_holes(void)
{
	holes(true);
}

/* --- the whole address space --- */

static void whole_owner(int fd, void *arg)
{
	static uint8_t global[100];
	uint8_t stack[100] = {0}, *heap = calloc(1, 100000);
	struct dev d;
	struct link l;

	side_open(&d);
	struct mem all = implicit(&d);

	link_make(&l, &d, &(struct conf){0});
	post_recv(&l, 1, &all, (uintptr_t)heap + 50000, 50000);
	uint64_t at[4] = {all.mr->rkey, (uintptr_t)global, (uintptr_t)stack, (uintptr_t)heap};

	tell(fd, at, sizeof(at));
	side_join(&l, fd);
	expect(l.rcq, 1, IBV_WC_SUCCESS);
	CHECK(holds(global, 100, 1) && holds(stack, 100, 2) && holds(heap, 100, 3) && holds(heap + 50000, 50000, 4));
	POST(&l, .op = IBV_WR_SEND, .id = 2, .m = &all, .off = (uintptr_t)heap + 50000, .len = 50000);
	expect(l.scq, 2, IBV_WC_SUCCESS);
	meet_up(fd);
	link_end(&l);
	CHECK(!ibv_dereg_mr(all.mr));
	dev_close(&d);
	free(heap);
}

static void an_implicit_region_is_all_memory_of_the_program(void)
{
	struct peer p = start(whole_owner, NULL);
	uint8_t *heap = malloc(50000);
	uint64_t at[4];
	struct dev d;
	struct link l;

	side_open(&d);
	struct mem all = implicit(&d);

	link_make(&l, &d, &(struct conf){0});
	post_recv(&l, 9, &all, (uintptr_t)heap, 50000);
	hear(p.fd, at, sizeof(at));
	side_join(&l, p.fd);
	for (uint32_t i = 1; i <= 3; i++) {
		fill(heap, 100, i);
		POST(&l, .op = IBV_WR_RDMA_WRITE, .id = i, .m = &all, .off = (uintptr_t)heap, .len = 100,
		     .far = {at[i], (uint32_t)at[0], 0});
		expect(l.scq, i, IBV_WC_SUCCESS);
	}
	fill(heap, 50000, 4);
	POST(&l, .op = IBV_WR_SEND, .id = 4, .m = &all, .off = (uintptr_t)heap, .len = 50000);
	expect(l.scq, 4, IBV_WC_SUCCESS);
	expect(l.rcq, 9, IBV_WC_SUCCESS);
	CHECK(holds(heap, 50000, 4));
	meet_up(p.fd);
	finish(&p);
	link_end(&l);
	CHECK(!ibv_dereg_mr(all.mr));
	dev_close(&d);
	free(heap);
}

static void waiting_peer(int fd, void *arg)
{
	struct dev d;
	struct link l;
	struct mem m;

	side_open(&d);
	mem_make(&m, &d, MIB);
	link_make(&l, &d, &(struct conf){0});
	mem_tell(&m, fd);
	post_recv(&l, 1, &m, 0, MIB);
	side_join(&l, fd);
	meet_up(fd);
}

static void a_hole_of_our_own_is_a_local_protection_error(void)
{
	static const enum ibv_wr_opcode ops[] = {IBV_WR_SEND, IBV_WR_RDMA_WRITE, IBV_WR_RDMA_READ};

	for (unsigned i = 0; i < 6; i++) {
		struct peer p = start(waiting_peer, NULL);
		struct dev d;
		struct link l;

		side_open(&d);
		struct mem all = implicit(&d);

		link_make(&l, &d, &(struct conf){0});
		struct far far = far_hear(p.fd);

		side_join(&l, p.fd);
		POST(&l, .op = ops[i % 3], .id = 1, .m = &all, .off = FAR_AWAY, .len = i < 3 ? 8 : MIB, .far = far);
		expect(l.scq, 1, IBV_WC_LOC_PROT_ERR);
		CHECK(is_ended(&l));
		meet_up(p.fd);
		finish(&p);
		link_end(&l);
		CHECK(!ibv_dereg_mr(all.mr));
		dev_close(&d);
	}
}

/* --- memory that comes and goes while the peer uses it --- */

#define ROUNDS 6
#define FLIPS 2000
static atomic_bool flips;

static void *flip(void *arg)
{
	while (atomic_load(&flips)) {
		munmap(AWAY, MIB);
		map_at(AWAY, MIB, MAP_PRIVATE | MAP_ANONYMOUS, -1);
	}
	return NULL;
}

static void flipping_owner(int fd, void *arg)
{
	struct dev d;
	struct mem m = {.n = MIB, .p = AWAY};
	pthread_t thread;

	side_open(&d);
	mem_reg(&m, &d, PAGING);
	mem_tell(&m, fd);
	for (unsigned i = 0; i < ROUNDS; i++) {
		struct link l;

		link_make(&l, &d, &(struct conf){0});
		side_join(&l, fd);
		atomic_store(&flips, true);
		CHECK(!pthread_create(&thread, NULL, flip, NULL));
		meet_up(fd);
		atomic_store(&flips, false);
		pthread_join(thread, NULL);
		link_end(&l);
	}
	CHECK(!ibv_dereg_mr(m.mr));
	dev_close(&d);
}

/* Fails if a request that follows one which the peer refused, but this side took back and executed, waits for all of its
 * retries. */
static void a_program_may_unmap_while_a_peer_writes_and_reads(void)
{
	struct peer p = start(flipping_owner, NULL);
	struct dev d;
	struct mem m;

	side_open(&d);
	mem_make(&m, &d, MIB);
	struct far far = far_hear(p.fd);

	for (unsigned round = 0; round < ROUNDS; round++) {
		struct ibv_wc wc = {.status = IBV_WC_SUCCESS};
		struct link l;

		link_make(&l, &d, &(struct conf){0});
		side_join(&l, p.fd);
		for (unsigned i = 0; wc.status == IBV_WC_SUCCESS && i < FLIPS; i++) {
			POST(&l, .op = i % 2 ? IBV_WR_RDMA_READ : IBV_WR_RDMA_WRITE, .id = i, .m = &m,
			     .len = round % 2 ? 64 : 1 << 16, .far = far);
			wc = wait_wc(l.scq);
			SAME(wc.wr_id, i);
		}
		if (!over_iwarp && wc.status != IBV_WC_SUCCESS && wc.status != IBV_WC_REM_ACCESS_ERR &&
		    wc.status != IBV_WC_REM_OP_ERR)
			fail(__FILE__, __LINE__, "%s", ibv_wc_status_str(wc.status));
		meet_up(p.fd);
		link_end(&l);
	}
	finish(&p);
	mem_end(&m);
	dev_close(&d);
}

int main(int argc, char **argv)
{
	static const struct test tests[] = {
	        {"memory that was never touched is read and written",
	         memory_that_was_never_touched_is_read_and_written},
	        {"a region is what is mapped there now", a_region_is_what_is_mapped_there_now},
	        {"a hole is an access error", a_hole_is_an_access_error},
	        {"an implicit region has holes", an_implicit_region_has_holes},
	        {"an implicit region is all memory of the program", an_implicit_region_is_all_memory_of_the_program},
	        {"a hole of our own is a local protection error", a_hole_of_our_own_is_a_local_protection_error},
	        {"a program may unmap while a peer writes and reads",
	         a_program_may_unmap_while_a_peer_writes_and_reads},
	};

	return RUN_TESTS(argc, argv, tests);
}
