// unmapped.c - registered memory that is not mapped: errors for its users, and no crash
// follows: IBA volume 1, 9.9.2, 9.9.3, table 62
// see: docs/same-host.md
// SPDX-License-Identifier: MIT
#include "pair.h"

#include <fcntl.h>
#include <setjmp.h>
#include <signal.h>
#include <sys/mman.h>

struct job {
	const char *what;
	enum ibv_wr_opcode op;
	uint32_t len;
	bool by_ring;   /* the requester may not use process_vm_* */
	bool sleeps;    /* the target does not poll, so its progress thread hits the hole */
	bool truncated; /* truncate a mapped file instead of munmap */
};

static void hole_make(struct mem *m, struct dev *d, const struct job *j)
{
	if (j->truncated) {
		int fd = memfd_create("cut", MFD_CLOEXEC);

		CHECK(fd >= 0 && !ftruncate(fd, 4 << 20));
		m->n = 4 << 20;
		m->p = mmap(NULL, m->n, PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0);
		CHECK(m->p != MAP_FAILED);
		mem_reg(m, d, ALL_ACCESS);
		CHECK(!ftruncate(fd, 0));
	} else {
		mem_make_apart(m, d, 4 << 20);
		munmap(m->p, m->n);
	}
}

static void hole_target(int fd, void *arg)
{
	const struct job *j = arg;
	struct dev d;
	struct link l;
	struct mem hole, good;
	char c;

	dev_open(&d);
	hole_make(&hole, &d, j);
	mem_make(&good, &d, 4096);
	link_make(&l, &d, &(struct conf){0});
	mem_tell(&hole, fd);
	if (j->op == IBV_WR_SEND)
		post_recv(&l, 4, &hole, 0, 1 << 20);
	post_recv(&l, 5, &good, 0, 4096);
	link_join(&l, fd);
	while (!heard(fd, 1)) {
		struct ibv_wc wc;

		if (!j->sleeps && ibv_poll_cq(l.rcq, 0, &wc))
			break;
	}
	hear(fd, &c, 1);
	if (j->op == IBV_WR_SEND)
		expect(l.rcq, 4, IBV_WC_LOC_PROT_ERR);
	if (j->op != IBV_WR_RDMA_READ || j->len) { /* both ends in error (IBA 9.9.3.1) */
		expect(l.rcq, 5, IBV_WC_WR_FLUSH_ERR);
		SAME(state_of(l.qp), IBV_QPS_ERR);
	}
}

static void remote_hole(const struct job *j)
{
	struct peer p = start(hole_target, (void *)j);
	struct dev d;
	struct link l;
	struct mem m;

	dev_open(&d);
	if (j->by_ring)
		CHECK(forbid_process_vm(EPERM));
	mem_make(&m, &d, 4 << 20);
	link_make(&l, &d, &(struct conf){0});
	struct far far = far_hear(p.fd);
	link_join(&l, p.fd);
	/* several times: after some uses a shared mapping is mapped here too, and must be guarded then */
	POST(&l, .op = j->op, .id = 1, .m = &m, .len = j->len, .far = far);
	POST(&l, .op = IBV_WR_SEND, .id = 2, .m = &m, .len = 8);
	struct ibv_wc wc = wait_wc(l.scq);

	SAME(wc.wr_id, 1);
	if (wc.status != IBV_WC_REM_ACCESS_ERR && wc.status != IBV_WC_REM_OP_ERR)
		fail(__FILE__, __LINE__, "%s of %u%s%s: %s", j->what, j->len, j->by_ring ? " by ring" : "",
		     j->sleeps ? " (asleep)" : "", ibv_wc_status_str(wc.status));
	expect(l.scq, 2, IBV_WC_WR_FLUSH_ERR);
	SAME(state_of(l.qp), IBV_QPS_ERR);
	tell(p.fd, "", 1);
	finish(&p);
	link_end(&l);
	mem_end(&m);
}

/* Fails if the copy faults without a guard (a process dies), or if the fault counts as a dead peer. */
static void all_remote_holes(bool by_ring, bool sleeps, bool truncated)
{
	static const struct job kinds[] = {
	        {"write", IBV_WR_RDMA_WRITE, 8},
	        {"write", IBV_WR_RDMA_WRITE, 1 << 20},
	        {"read", IBV_WR_RDMA_READ, 8},
	        {"read", IBV_WR_RDMA_READ, 1 << 20},
	        {"atomic", IBV_WR_ATOMIC_FETCH_AND_ADD, 8},
	        {"compare and swap", IBV_WR_ATOMIC_CMP_AND_SWP, 8},
	        {"send", IBV_WR_SEND, 8},
	        {"send", IBV_WR_SEND, 1 << 20},
	};

	for (unsigned i = 0; i < sizeof(kinds) / sizeof(kinds[0]); i++) {
		struct job j = kinds[i];

		j.by_ring = by_ring;
		j.sleeps = sleeps;
		j.truncated = truncated;
		remote_hole(&j);
	}
}

static void requests_for_unmapped_memory_fail(void)
{
	all_remote_holes(false, false, false);
}

static void requests_for_unmapped_memory_of_a_sleeper_fail(void)
{
	all_remote_holes(false, true, false);
}

static void requests_by_ring_for_unmapped_memory_fail(void)
{
	all_remote_holes(true, false, false);
}

static void requests_by_ring_for_unmapped_memory_of_a_sleeper_fail(void)
{
	all_remote_holes(true, true, false);
}

static void requests_for_a_truncated_file_fail(void)
{
	all_remote_holes(false, false, true);
}

static void requests_by_ring_for_a_truncated_file_of_a_sleeper_fail(void)
{
	all_remote_holes(true, true, true);
}

/* --- a mapping shared with the peer, truncated while memcpy uses it --- */

static void cut_target(int fd, void *arg)
{
	struct dev d;
	struct link l;
	struct mem m = {.n = 1 << 20};
	int file = memfd_create("cut", MFD_CLOEXEC);
	char c;

	dev_open(&d);
	CHECK(file >= 0 && !ftruncate(file, (off_t)m.n));
	m.p = mmap(NULL, m.n, PROT_READ | PROT_WRITE, MAP_SHARED, file, 0);
	CHECK(m.p != MAP_FAILED);
	mem_reg(&m, &d, ALL_ACCESS);
	link_make(&l, &d, &(struct conf){0});
	mem_tell(&m, fd);
	link_join(&l, fd);
	hear(fd, &c, 1);
	CHECK(!ftruncate(file, 0));
	tell(fd, "", 1);
	while (!heard(fd, 0)) {
		struct ibv_wc wc;

		SAME(ibv_poll_cq(l.rcq, 1, &wc), 0);
	}
	SAME(state_of(l.qp), IBV_QPS_ERR);
}

/* Fails if the memcpy into the peer's file is not guarded against SIGBUS in the writer. */
static void a_file_cut_under_a_shared_mapping_fails_the_writer_only(void)
{
	for (int read = 0; read < 2; read++) {
		struct peer p = start(cut_target, NULL);
		struct dev d;
		struct link l;
		struct mem m;
		char c;

		dev_open(&d);
		mem_make(&m, &d, 1 << 20);
		link_make(&l, &d, &(struct conf){0});
		struct far far = far_hear(p.fd);
		link_join(&l, p.fd);
		enum ibv_wr_opcode op = read ? IBV_WR_RDMA_READ : IBV_WR_RDMA_WRITE;

		for (uint64_t i = 0; i < 64; i++) {
			POST(&l, .op = op, .id = i, .m = &m, .len = 65536, .far = far);
			expect(l.scq, i, IBV_WC_SUCCESS);
		}
		tell(p.fd, "", 1);
		hear(p.fd, &c, 1);
		POST(&l, .op = op, .id = 99, .m = &m, .len = 65536, .far = far);
		struct ibv_wc wc = wait_wc(l.scq);

		if (wc.status != IBV_WC_REM_ACCESS_ERR && wc.status != IBV_WC_REM_OP_ERR)
			fail(__FILE__, __LINE__, "%s: %s", read ? "read" : "write", ibv_wc_status_str(wc.status));
		tell(p.fd, "", 1);
		finish(&p);
		link_end(&l);
		mem_end(&m);
		dev_close(&d);
	}
}

/* --- our own buffer --- */

static void idle_target(int fd, void *arg)
{
	struct dev d;
	struct link l;
	struct mem m;
	char c;
	bool *ring = arg;

	dev_open(&d);
	if (*ring)
		CHECK(forbid_process_vm(EPERM));
	mem_make(&m, &d, 4 << 20);
	link_make(&l, &d, &(struct conf){0});
	mem_tell(&m, fd);
	post_recv(&l, 5, &m, 0, 2 << 20);
	link_join(&l, fd);
	hear(fd, &c, 1);
	expect_none(l.rcq, 20); /* nothing arrived, because the requester noticed the fault */
}

static void local_holes(bool by_ring)
{
	static const struct {
		const char *what;
		enum ibv_wr_opcode op;
		uint32_t len;
	} kinds[] = {
	        {"write", IBV_WR_RDMA_WRITE, 8},
	        {"write", IBV_WR_RDMA_WRITE, 1 << 20},
	        {"read", IBV_WR_RDMA_READ, 8},
	        {"read", IBV_WR_RDMA_READ, 1 << 20},
	        {"atomic", IBV_WR_ATOMIC_FETCH_AND_ADD, 8},
	        {"send", IBV_WR_SEND, 8},
	        {"send", IBV_WR_SEND, 4096},
	        {"send", IBV_WR_SEND, 1 << 20},
	};

	for (unsigned i = 0; i < sizeof(kinds) / sizeof(kinds[0]); i++) {
		struct peer p = start(idle_target, &by_ring);
		struct dev d;
		struct link l;
		struct mem m;

		dev_open(&d);
		if (by_ring)
			CHECK(forbid_process_vm(EPERM));
		mem_make_apart(&m, &d, 4 << 20);
		link_make(&l, &d, &(struct conf){0});
		struct far far = far_hear(p.fd);
		link_join(&l, p.fd);
		munmap(m.p, m.n);
		POST(&l, .op = kinds[i].op, .id = 1, .m = &m, .len = kinds[i].len, .far = far);
		struct ibv_wc wc = wait_wc(l.scq);

		if (wc.status != IBV_WC_LOC_PROT_ERR)
			fail(__FILE__, __LINE__, "%s of %u: %s", kinds[i].what, kinds[i].len,
			     ibv_wc_status_str(wc.status));
		SAME(state_of(l.qp), IBV_QPS_ERR);
		tell(p.fd, "", 1);
		finish(&p);
		link_end(&l);
		ibv_dereg_mr(m.mr);
		dev_close(&d);
	}
}

static void an_unmapped_local_buffer_is_a_local_protection_error(void)
{
	local_holes(false);
}

static void an_unmapped_local_buffer_is_a_local_protection_error_by_ring(void)
{
	local_holes(true);
}

/* --- the program's own faults --- */

static sigjmp_buf back;
static volatile sig_atomic_t faults;
static void *volatile fault_addr;

static void on_fault(int sig, siginfo_t *info, void *context)
{
	faults++;
	fault_addr = info->si_addr;
	siglongjmp(back, 1);
}

static void own_faults(bool before)
{
	struct sigaction sa = {.sa_sigaction = on_fault, .sa_flags = SA_SIGINFO};
	char *hole = mmap(NULL, 4096, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
	struct dev d;
	struct mem m, gone;
	struct link a, b;

	if (before)
		CHECK(!sigaction(SIGSEGV, &sa, NULL));
	dev_open(&d);
	if (!before)
		CHECK(!sigaction(SIGSEGV, &sa, NULL));
	mem_make(&m, &d, 4096);
	mem_make_apart(&gone, &d, 4096);
	munmap(gone.p, gone.n);
	for (volatile int i = 0; i < 5; i++) {
		if (!sigsetjmp(back, 1)) {
			*(volatile char *)hole = 1;
			fail(__FILE__, __LINE__, "no fault");
		}
		SAME(faults, i + 1);
		CHECK(fault_addr == hole);
		/* a guarded fault in between is not the program's */
		link_make(&a, &d, &(struct conf){0});
		link_make(&b, &d, &(struct conf){0});
		link_to(&a, &b.me);
		link_to(&b, &a.me);
		POST(&a, .op = IBV_WR_RDMA_WRITE, .id = 1, .m = &m, .len = 8,
		     .far = {(uintptr_t)gone.p, gone.mr->rkey, 0});
		struct ibv_wc wc = wait_wc(a.scq);

		if (wc.status != IBV_WC_REM_ACCESS_ERR && wc.status != IBV_WC_REM_OP_ERR)
			fail(__FILE__, __LINE__, "a write within the process: %s", ibv_wc_status_str(wc.status));
		SAME(faults, i + 1);
		link_end(&a);
		link_end(&b);
	}
}

/* Fails if the chained handler is called only once (one that leaves by siglongjmp never returns to ours). */
static void a_program_with_a_fault_handler_gets_its_own_faults(void)
{
	own_faults(true);
}

static void a_fault_handler_installed_later_gets_only_its_own_faults(void)
{
#if defined(__SANITIZE_THREAD__)
	skip("the sanitizer stands between a program and its handlers");
#endif
	own_faults(false);
}

static void crash(int fd, void *arg)
{
	struct dev d;

	dev_open(&d);
	char *volatile nowhere = mmap(NULL, 4096, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);

	*(volatile char *)nowhere = 1;
}

/* Fails if our handler swallows, or repeats forever, a fault that is neither ours nor handled. */
static void a_program_without_a_handler_dies_of_its_own_fault(void)
{
	struct peer p = start(crash, NULL);
	uint64_t t0 = now_ms();

	if (under_sanitizer())
		skip("the sanitizer has a handler");
	while (!kill(p.pid, 0) && now_ms() - t0 < PATIENCE) {
		char name[64], text[200] = "";
		FILE *f;

		snprintf(name, sizeof(name), "/proc/%d/stat", p.pid);
		f = fopen(name, "re");
		if (f && fgets(text, sizeof(text), f) && strstr(text, ") Z "))
			t0 = 0;
		if (f)
			fclose(f);
		if (!t0)
			return;
		sleep_ms(2);
	}
	fail(__FILE__, __LINE__, "it lives");
}

int main(int argc, char **argv)
{
	static const struct test tests[] = {
	        {"requests for unmapped memory fail", requests_for_unmapped_memory_fail},
	        {"requests for unmapped memory of a sleeper fail", requests_for_unmapped_memory_of_a_sleeper_fail},
	        {"requests by ring for unmapped memory fail", requests_by_ring_for_unmapped_memory_fail},
	        {"requests by ring for unmapped memory of a sleeper fail",
	         requests_by_ring_for_unmapped_memory_of_a_sleeper_fail},
	        {"requests for a truncated file fail", requests_for_a_truncated_file_fail},
	        {"requests by ring for a truncated file of a sleeper fail",
	         requests_by_ring_for_a_truncated_file_of_a_sleeper_fail},
	        {"a file cut under a shared mapping fails the writer only",
	         a_file_cut_under_a_shared_mapping_fails_the_writer_only},
	        {"an unmapped local buffer is a local protection error",
	         an_unmapped_local_buffer_is_a_local_protection_error},
	        {"an unmapped local buffer is a local protection error, by ring",
	         an_unmapped_local_buffer_is_a_local_protection_error_by_ring},
	        {"a program with a fault handler gets its own faults",
	         a_program_with_a_fault_handler_gets_its_own_faults},
	        {"a fault handler installed later gets only its own faults",
	         a_fault_handler_installed_later_gets_only_its_own_faults},
	        {"a program without a handler dies of its own fault",
	         a_program_without_a_handler_dies_of_its_own_fault},
	};

	return RUN_TESTS(argc, argv, tests);
}
