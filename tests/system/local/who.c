// who.c - a pid may be reused: before each copy it is checked whose memory it is
// follows: pid_namespaces(7), clone(2) (set_tid), execve(2)
// see: docs/same-host.md
// SPDX-License-Identifier: MIT
#include "pair.h"

#include <fcntl.h>
#include <linux/sched.h>
#include <sched.h>
#include <signal.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <sys/wait.h>

#define AT ((uint8_t *)FAR_AWAY)
#define BYTES (1u << 20)
#define ITS 0x3c

static char *self_name;

/* Memory of a process that has never registered anything: it must not change. */
static void bystander(int fd, unsigned ms)
{
	uint64_t until;
	uint8_t *p = mmap(AT, BYTES, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_FIXED, -1, 0);

	if (p != AT)
		_exit(3);
	memset(p, ITS, BYTES);
	if (write(fd, "b", 1) != 1)
		_exit(4);
	until = now_ms() + ms;
	do
		for (uint32_t i = 0; i < BYTES; i++)
			if (((volatile uint8_t *)p)[i] != ITS)
				_exit(5);
	while (now_ms() < until);
	_exit(0);
}

/* The owner of the memory. On request it becomes another program with the same pid. */
static void owner(int fd, void *arg)
{
	struct mem m = {.n = BYTES};
	struct dev d;
	struct link l;
	char c;

	dev_open(&d);
	m.p = mmap(AT, BYTES, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_FIXED, -1, 0);
	CHECK(m.p == AT);
	mem_reg(&m, &d, ALL_ACCESS);
	link_make(&l, &d, &(struct conf){0});
	mem_tell(&m, fd);
	link_join(&l, fd);
	hear(fd, &c, 1);
	char number[16];

	snprintf(number, sizeof(number), "%d", fd);
	fcntl(fd, F_SETFD, 0);
	execl("/proc/self/exe", self_name, "--bystander", number, NULL);
	_exit(6);
}

/* Writes without pause until an error, and reports the errors and their order. */
static void writer(int fd, void *arg)
{
	uint32_t len = *(uint32_t *)arg;
	struct dev d;
	struct link l;
	struct mem m;
	struct ibv_wc wc = {.status = IBV_WC_SUCCESS};

	dev_open(&d);
	mem_make(&m, &d, BYTES);
	memset(m.p, 0x99, BYTES);
	link_make(&l, &d, &(struct conf){.timeout = 14, .retry = 3});
	struct far far = far_hear(fd);
	link_join(&l, fd);
	tell(fd, "w", 1);
	for (uint64_t i = 0; wc.status == IBV_WC_SUCCESS; i++) {
		POST(&l, .op = IBV_WR_RDMA_WRITE, .id = i, .m = &m, .len = len, .far = far);
		CHECK(wait_wc_ms(l.scq, &wc, PATIENCE));
		SAME(wc.wr_id, i);
		/* Between two writes, not during one: a writer that loses its core between its last check of the peer
		 * and the system call's own look-up may still write to the process that has the pid by then
		 * (docs/same-host.md, "Liveness of peers"). */
		nanosleep(&(struct timespec){0, 200000}, NULL);
	}
	SAME(wc.status, IBV_WC_RETRY_EXC_ERR);
	SAME(state_of(l.qp), IBV_QPS_ERR);
	tell(fd, "e", 1);
}

/* Relays the data that both exchange about their queue pairs. */
static void introduce(struct peer *o, struct peer *w)
{
	struct far f;
	struct addr a;
	char c;

	hear(o->fd, &f, sizeof(f));
	tell(w->fd, &f, sizeof(f));
	hear(o->fd, &a, sizeof(a));
	tell(w->fd, &a, sizeof(a));
	hear(w->fd, &a, sizeof(a));
	tell(o->fd, &a, sizeof(a));
	hear(o->fd, &c, 1);
	tell(w->fd, &c, 1);
	hear(w->fd, &c, 1);
	tell(o->fd, &c, 1);
	hear(w->fd, &c, 1); /* it writes */
	SAME(c, 'w');
}

static pid_t fork_as(pid_t number)
{
	struct clone_args a = {.exit_signal = SIGCHLD, .set_tid = (uintptr_t)&number, .set_tid_size = 1};

	return (pid_t)syscall(SYS_clone3, &a, sizeof(a));
}

/*
 * The owner dies while the writer is stopped, and another process gets its pid and has memory at the same address.
 * Fails if a writer relies on the pid: then 0x99 appears in the other process's memory.
 */
static void reuse_in_namespace(void)
{
	static const uint32_t sizes[] = {8, 4096, BYTES};
	char dir[200];
	uint64_t seed = 17;

	snprintf(dir, sizeof(dir), "%s/inner", getenv("VERBENA_RUNTIME"));
	mkdir(dir, 0700);
	setenv("VERBENA_RUNTIME", dir, 1);
	for (unsigned round = 0; round < (unsigned)count_or(12); round++) {
		struct peer o = start(owner, NULL), w = start(writer, (void *)&sizes[round % 3]);
		int pipes[2], status;
		char c;

		introduce(&o, &w);
		sleep_ms(2);
		for (unsigned spin = random_next(&seed) % 30000; spin; spin--)
			__asm__ volatile("" ::: "memory");
		stop_peer(&w);
		kill_peer(&o);
		CHECK(!pipe(pipes));
		pid_t again = fork_as(o.pid);

		if (!again)
			bystander(pipes[1], 150);
		if (again < 0)
			skip("no process with a chosen number: %s", strerror(errno));
		SAME(again, o.pid);
		hear(pipes[0], &c, 1);
		cont_peer(&w);
		hear(w.fd, &c, 1);
		SAME(c, 'e');
		CHECK(waitpid(again, &status, 0) == again);
		if (status)
			fail(__FILE__, __LINE__,
			     "the process that got the number %d: status 0x%x (0x500: its memory was written)", again,
			     status);
		finish(&w);
		close(o.fd);
		close(pipes[0]);
		close(pipes[1]);
	}
}

static void a_number_that_is_used_again_is_another_process(void)
{
	int status;

	if (unshare(CLONE_NEWPID))
		skip("no pid namespace: %s", strerror(errno));
	pid_t init = fork();

	if (!init) { /* pid 1 of the namespace */
		reuse_in_namespace();
		_exit(0);
	}
	CHECK(waitpid(init, &status, 0) == init);
	if (status)
		_exit(WIFEXITED(status) ? WEXITSTATUS(status) : 1);
}

/* exec keeps the pid and replaces the memory. Fails if programs are told apart by pid or pidfd. */
static void a_peer_that_execs_is_another_program(void)
{
	static const uint32_t sizes[] = {8, 4096, BYTES};

	for (unsigned round = 0; round < 12; round++) {
		struct peer o = start(owner, NULL), w = start(writer, (void *)&sizes[round % 3]);
		char c;
		int status;

		introduce(&o, &w);
		tell(o.fd, "x", 1);
		hear(o.fd, &c, 1);
		SAME(c, 'b');
		hear(w.fd, &c, 1);
		SAME(c, 'e');
		CHECK(waitpid(o.pid, &status, 0) == o.pid);
		if (status)
			fail(__FILE__, __LINE__,
			     "the program that was exec'd: status 0x%x (0x500: its memory was written)", status);
		finish(&w);
		close(o.fd);
	}
}

/* A child of fork() is another process with the same memory. Writes for its parent go only to the parent. The child may
 * open the device itself, and its end is not the parent's end. */
static void child_of_owner(int fd, void *arg)
{
	struct dev d;
	struct link l;
	struct mem m;

	dev_open(&d);
	mem_make(&m, &d, 4096);
	memset(m.p, 1, 4096);
	link_make(&l, &d, &(struct conf){0});
	mem_tell(&m, fd);
	link_join(&l, fd);
	for (int i = 0; i < 3; i++) {
		pid_t child = fork();

		if (!child) {
			for (int k = 0; k < 30; k++) {
				for (int b = 0; b < 4096; b++)
					if (((volatile uint8_t *)m.p)[b] != i + 1)
						_exit(9);
				sleep_ms(1);
			}
			struct dev mine;
			struct link x, y;
			struct mem n;

			dev_open(&mine);
			mem_make(&n, &mine, 4096);
			link_make(&x, &mine, &(struct conf){0});
			link_make(&y, &mine, &(struct conf){0});
			link_to(&x, &y.me);
			link_to(&y, &x.me);
			post_recv(&y, 1, &n, 0, 64);
			POST(&x, .op = IBV_WR_SEND, .id = 1, .m = &n, .len = 64);
			expect(x.scq, 1, IBV_WC_SUCCESS);
			expect(y.rcq, 1, IBV_WC_SUCCESS);
			_exit(0);
		}
		int status;

		meet_up(fd); /* forked, so now the writer writes */
		meet_up(fd);
		SAME(m.p[0], i + 2);
		SAME(m.p[4095], i + 2);
		CHECK(waitpid(child, &status, 0) == child);
		SAME(status, 0);
	}
}

static void a_forked_child_does_not_get_what_is_written_to_its_parent(void)
{
	struct peer p = start(child_of_owner, NULL);
	struct dev d;
	struct link l;
	struct mem m;

	dev_open(&d);
	mem_make(&m, &d, 4096);
	link_make(&l, &d, &(struct conf){0});
	struct far far = far_hear(p.fd);
	link_join(&l, p.fd);
	for (int i = 0; i < 3; i++) {
		meet_up(p.fd);
		memset(m.p, i + 2, 4096);
		POST(&l, .op = IBV_WR_RDMA_WRITE, .id = 1, .m = &m, .len = 4096, .far = far);
		expect(l.scq, 1, IBV_WC_SUCCESS);
		meet_up(p.fd);
	}
	finish(&p);
}

int main(int argc, char **argv)
{
	static const struct test tests[] = {
	        {"a number that is used again is another process", a_number_that_is_used_again_is_another_process},
	        {"a peer that execs is another program", a_peer_that_execs_is_another_program},
	        {"a forked child does not get what is written to its parent",
	         a_forked_child_does_not_get_what_is_written_to_its_parent},
	};

	if (argc == 3 && !strcmp(argv[1], "--bystander"))
		bystander(atoi(argv[2]), 150);
	self_name = argv[0];
	return RUN_TESTS(argc, argv, tests);
}
