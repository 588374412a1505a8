// dereg.c - after the end of a registration or of a queue pair, no byte changes any more
// follows: IBA volume 1, 10.6.7.2.4 (deregister), 10.3.1.7 (error state)
// see: docs/same-host.md
// SPDX-License-Identifier: MIT
#include "pair.h"

#include <pthread.h>
#include <signal.h>
#include <sys/mman.h>

enum end { DEREG, RESET, ERROR, DESTROY, INVALIDATE_BY_DEATH };
struct job {
	enum end end;
	enum ibv_wr_opcode op;
	uint32_t len;
	bool ring, shared, kill;
	unsigned rounds;
};

/* Posts without pause until a request fails. The bytes change with every write: the two buffers differ in every
 * byte. */
static void attacker(int fd, void *arg)
{
	const struct job *j = arg;
	struct dev d;
	struct mem m;
	uint32_t more;

	dev_open(&d);
	if (j->ring)
		CHECK(forbid_process_vm(EPERM));
	mem_make(&m, &d, 8 << 20);
	memset(m.p, 0x55, 4 << 20);
	memset(m.p + (4 << 20), 0xaa, 4 << 20);
	for (hear(fd, &more, sizeof(more)); more; hear(fd, &more, sizeof(more))) {
		struct link l;
		struct ibv_wc wc;
		uint64_t posted = 0, done = 0;
		bool failed = false;

		link_make(&l, &d, &(struct conf){.timeout = 10, .retry = 3, .depth = 8});
		struct far far = far_hear(fd);
		link_join(&l, fd);
		while (!failed) {
			while (posted - done < 4) {
				POST(&l, .op = j->op, .id = posted, .m = &m, .off = posted & 1 ? 4 << 20 : 0,
				     .len = j->len, .far = far);
				posted++;
			}
			while (ibv_poll_cq(l.scq, 1, &wc)) {
				SAME(wc.wr_id, done);
				done++;
				if (wc.status != IBV_WC_SUCCESS) {
					enum ibv_wc_status want =
					        j->end == DEREG ? IBV_WC_REM_ACCESS_ERR : IBV_WC_RETRY_EXC_ERR;

					if (wc.status != want)
						fail(__FILE__, __LINE__, "the writer gets %s",
						     ibv_wc_status_str(wc.status));
					failed = true;
					break;
				}
			}
		}
		SAME(state_of(l.qp), IBV_QPS_ERR);
		while (done < posted)
			expect(l.scq, done++, IBV_WC_WR_FLUSH_ERR);
		tell(fd, "d", 1);
		link_end(&l);
	}
}

static uint64_t sum(const uint8_t *p, size_t n)
{
	uint64_t h = 0;

	for (size_t i = 0; i + 8 <= n; i += 8)
		h = h * 31 + *(const volatile uint64_t *)(p + i);
	return h;
}

/* Checks repeatedly, for a while, that the bytes do not change any more. */
static void stands_still(const uint8_t *p, size_t n, unsigned ms, const char *what)
{
	uint64_t h = sum(p, n), until = now_ms() + ms;

	do
		if (sum(p, n) != h)
			fail(__FILE__, __LINE__, "bytes change after the end of %s", what);
	while (now_ms() < until);
}

/*
 * Fails if ibv_dereg_mr (or ibv_modify_qp) does not wait for copies in progress in another process. With 1 MiB writes
 * nearly every round has one. Afterwards the writer has its error, and both queue pairs have their states.
 */
static void run(const struct job *j)
{
	static const char *names[] = {"a registration", "a queue pair (RESET)", "a queue pair (ERR)",
	                              "a queue pair (destroyed)"};
	struct peer p = start(attacker, (void *)j);
	uint64_t seed = 7 + (uint64_t)j->op;
	uint32_t one = 1, none = 0;
	struct dev d;
	char c;

	dev_open(&d);
	for (unsigned round = 0; round < j->rounds; round++) {
		struct link l;
		struct mem m;

		tell(p.fd, &one, sizeof(one));
		if (j->shared)
			mem_make_shared(&m, &d, 4 << 20);
		else
			mem_make(&m, &d, 4 << 20);
		memset(m.p, 1, m.n);
		link_make(&l, &d, &(struct conf){0});
		mem_tell(&m, p.fd);
		link_join(&l, p.fd);
		struct ibv_wc wc;
		volatile uint8_t *last = m.p + j->len - 1;
		uint64_t until = now_ms() + 2000;

		while (j->op == IBV_WR_RDMA_WRITE && *last == 1 && now_ms() < until)
			ibv_poll_cq(l.rcq, 1, &wc);
		for (unsigned spin = random_next(&seed) % 20000; spin; spin--)
			if (j->ring && spin % 16 == 0)
				ibv_poll_cq(l.rcq, 1, &wc);
			else
				__asm__ volatile("" ::: "memory");
		switch (j->end) {
		case DEREG:
			CHECK(!ibv_dereg_mr(m.mr));
			m.mr = NULL;
			break;
		case RESET:
			CHECK(!to_state(l.qp, IBV_QPS_RESET));
			break;
		case ERROR:
			CHECK(!to_state(l.qp, IBV_QPS_ERR));
			break;
		default:
			CHECK(!ibv_destroy_qp(l.qp));
			l.qp = NULL;
		}
		stands_still(m.p, j->len < 4096 ? 4096 : j->len, j->len > 4096 ? 3 : 1, names[j->end]);
		hear(p.fd, &c, 1); /* the writer has seen the error */
		stands_still(m.p, j->len < 4096 ? 4096 : j->len, 0, names[j->end]);
		if (j->end == DEREG)
			SAME(state_of(l.qp), IBV_QPS_ERR);
		if (l.qp)
			CHECK(!ibv_destroy_qp(l.qp));
		ibv_destroy_cq(l.scq);
		ibv_destroy_cq(l.rcq);
		mem_end(&m);
	}
	tell(p.fd, &none, sizeof(none));
	finish(&p);
	dev_close(&d);
}

static unsigned rounds(void)
{
	return (unsigned)count_or(under_sanitizer() ? 15 : 20);
}

#define RUN_JOB(...) run(&(struct job){.rounds = rounds(), __VA_ARGS__})

static void no_byte_is_written_after_dereg(void)
{
	RUN_JOB(.end = DEREG, .op = IBV_WR_RDMA_WRITE, .len = 8);
	RUN_JOB(.end = DEREG, .op = IBV_WR_RDMA_WRITE, .len = 1 << 20);
	RUN_JOB(.end = DEREG, .op = IBV_WR_RDMA_WRITE, .len = 4 << 20);
}

static void no_byte_of_a_shared_mapping_is_written_after_dereg(void)
{
	RUN_JOB(.end = DEREG, .op = IBV_WR_RDMA_WRITE, .len = 64, .shared = true);
	RUN_JOB(.end = DEREG, .op = IBV_WR_RDMA_WRITE, .len = 1 << 20, .shared = true);
}

static void no_byte_is_written_by_ring_after_dereg(void)
{
	RUN_JOB(.end = DEREG, .op = IBV_WR_RDMA_WRITE, .len = 8, .ring = true);
	RUN_JOB(.end = DEREG, .op = IBV_WR_RDMA_WRITE, .len = 1 << 20, .ring = true);
}

static void readers_fail_after_dereg(void)
{
	RUN_JOB(.end = DEREG, .op = IBV_WR_RDMA_READ, .len = 8);
	RUN_JOB(.end = DEREG, .op = IBV_WR_RDMA_READ, .len = 1 << 20);
	RUN_JOB(.end = DEREG, .op = IBV_WR_RDMA_READ, .len = 1 << 20, .ring = true);
}

static void no_byte_is_written_after_reset(void)
{
	RUN_JOB(.end = RESET, .op = IBV_WR_RDMA_WRITE, .len = 8);
	RUN_JOB(.end = RESET, .op = IBV_WR_RDMA_WRITE, .len = 1 << 20);
	RUN_JOB(.end = RESET, .op = IBV_WR_RDMA_WRITE, .len = 1 << 20, .ring = true);
}

static void no_byte_is_written_after_error(void)
{
	RUN_JOB(.end = ERROR, .op = IBV_WR_RDMA_WRITE, .len = 8);
	RUN_JOB(.end = ERROR, .op = IBV_WR_RDMA_WRITE, .len = 1 << 20);
	RUN_JOB(.end = ERROR, .op = IBV_WR_RDMA_WRITE, .len = 1 << 20, .ring = true);
}

static void no_byte_is_written_after_destroy(void)
{
	RUN_JOB(.end = DESTROY, .op = IBV_WR_RDMA_WRITE, .len = 8);
	RUN_JOB(.end = DESTROY, .op = IBV_WR_RDMA_WRITE, .len = 1 << 20);
}

/* --- a writer that dies during a copy --- */

static void doomed(int fd, void *arg)
{
	struct dev d;
	struct link l;
	struct mem m;
	struct ibv_wc wc;
	uint64_t i = 0;

	dev_open(&d);
	mem_make(&m, &d, 8 << 20);
	memset(m.p, 0x55, 4 << 20);
	memset(m.p + (4 << 20), 0xaa, 4 << 20);
	link_make(&l, &d, &(struct conf){.depth = 4});
	struct far far = far_hear(fd);
	link_join(&l, fd);
	for (;; i++) {
		POST(&l, .op = IBV_WR_RDMA_WRITE, .id = i, .m = &m, .off = i & 1 ? 4 << 20 : 0, .len = 4 << 20,
		     .far = far);
		while (!ibv_poll_cq(l.scq, 1, &wc))
			;
	}
}

/*
 * A killed writer's copy continues in the kernel for a while (up to 4 MiB), after its progress thread has died. Fails
 * if the death of that thread alone counts as the end of the copy.
 */
static void no_byte_is_written_after_dereg_by_a_writer_that_was_killed(void)
{
	unsigned n = (unsigned)count_or(under_sanitizer() ? 10 : 60);
	uint64_t seed = 99;
	struct dev d;

	dev_open(&d);
	for (unsigned round = 0; round < n; round++) {
		struct peer p = start(doomed, NULL);
		struct link l;
		struct mem m;

		mem_make(&m, &d, 4 << 20);
		memset(m.p, 1, m.n);
		link_make(&l, &d, &(struct conf){0});
		mem_tell(&m, p.fd);
		link_join(&l, p.fd);
		uint64_t until = now_ms() + 2000;

		while (*(volatile uint8_t *)(m.p + m.n - 1) == 1 && now_ms() < until)
			;
		for (unsigned spin = random_next(&seed) % 200000; spin; spin--)
			__asm__ volatile("" ::: "memory");
		kill(p.pid, SIGKILL);
		CHECK(!ibv_dereg_mr(m.mr));
		m.mr = NULL;
		stands_still(m.p, m.n, 2, "a registration");
		kill_peer(&p);
		close(p.fd);
		link_end(&l);
		mem_end(&m);
	}
}

/* --- the requester's own region, while reads fill it --- */

static void source(int fd, void *arg)
{
	struct dev d;
	struct mem m;
	uint32_t more;
	char c;

	dev_open(&d);
	mem_make(&m, &d, 4 << 20);
	memset(m.p, 0x77, m.n);
	for (hear(fd, &more, sizeof(more)); more; hear(fd, &more, sizeof(more))) {
		struct link l;
		struct ibv_wc wc;
		uint64_t i = 0;

		link_make(&l, &d, &(struct conf){0});
		mem_tell(&m, fd);
		link_join(&l, fd);
		while (!heard(fd, 0)) { /* the source changes, so that each read stores new bytes */
			memset(m.p, (int)++i, 1 << 20);
			ibv_poll_cq(l.rcq, 1, &wc);
		}
		hear(fd, &c, 1);
		link_end(&l);
	}
}

static struct link *reader_link;
static struct mem *reader_mem;
static struct far reader_far;
static uint32_t reader_len;

static void *reader_thread(void *arg)
{
	struct ibv_wc wc;
	uint64_t i = 0;

	for (;; i++) {
		/* the key as a number, because the other thread deregisters the region */
		POST(reader_link, .op = IBV_WR_RDMA_READ, .id = i, .p = reader_mem->p, .lkey = (uint32_t)(uintptr_t)arg,
		     .len = reader_len, .far = reader_far);
		while (!ibv_poll_cq(reader_link->scq, 1, &wc))
			;
		if (wc.status != IBV_WC_SUCCESS)
			break;
	}
	return (void *)(uintptr_t)wc.status;
}

#if defined(__SANITIZE_THREAD__)
__attribute__((no_sanitize("thread"))) /* it reads bytes that an adapter writes */
#endif
static void
local_dereg(bool ring, uint32_t len)
{
	struct peer p = start(source, NULL);
	uint32_t one = 1, none = 0;
	uint64_t seed = 3;
	struct dev d;

	dev_open(&d);
	if (ring)
		CHECK(forbid_process_vm(EPERM));
	for (unsigned round = 0; round < rounds() / 2; round++) {
		struct link l;
		struct mem m;
		pthread_t t;
		void *status;

		tell(p.fd, &one, sizeof(one));
		mem_make(&m, &d, 4 << 20);
		link_make(&l, &d, &(struct conf){0});
		reader_far = far_hear(p.fd);
		link_join(&l, p.fd);
		reader_link = &l;
		reader_mem = &m;
		reader_len = len;
		CHECK(!pthread_create(&t, NULL, reader_thread, (void *)(uintptr_t)m.mr->lkey));
		while (!*(volatile uint8_t *)m.p)
			;
		for (unsigned spin = random_next(&seed) % 100000; spin; spin--)
			__asm__ volatile("" ::: "memory");
		CHECK(!ibv_dereg_mr(m.mr));
		m.mr = NULL;
		stands_still(m.p, len < 4096 ? 4096 : len, 2, "a local registration");
		pthread_join(t, &status);
		SAME((uintptr_t)status, IBV_WC_LOC_PROT_ERR);
		tell(p.fd, "", 1);
		link_end(&l);
		mem_end(&m);
	}
	tell(p.fd, &none, sizeof(none));
	finish(&p);
}

static void no_byte_is_read_into_a_region_after_its_dereg(void)
{
	local_dereg(false, 8);
	local_dereg(false, 1 << 20);
}

static void no_byte_is_read_by_ring_into_a_region_after_its_dereg(void)
{
	local_dereg(true, 8);
	local_dereg(true, 1 << 20);
}

int main(int argc, char **argv)
{
	static const struct test tests[] = {
	        {"no byte is written after dereg", no_byte_is_written_after_dereg, 120},
	        {"no byte of a shared mapping is written after dereg",
	         no_byte_of_a_shared_mapping_is_written_after_dereg, 120},
	        {"no byte is written by ring after dereg", no_byte_is_written_by_ring_after_dereg, 120},
	        {"readers fail after dereg", readers_fail_after_dereg, 120},
	        {"no byte is written after RESET", no_byte_is_written_after_reset, 120},
	        {"no byte is written after ERR", no_byte_is_written_after_error, 120},
	        {"no byte is written after destroy", no_byte_is_written_after_destroy, 120},
	        {"no byte is written after dereg by a writer that was killed",
	         no_byte_is_written_after_dereg_by_a_writer_that_was_killed, 120},
	        {"no byte is read into a region after its dereg", no_byte_is_read_into_a_region_after_its_dereg},
	        {"no byte is read by ring into a region after its dereg",
	         no_byte_is_read_by_ring_into_a_region_after_its_dereg},
	};

	return RUN_TESTS(argc, argv, tests);
}
