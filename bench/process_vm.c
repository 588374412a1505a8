// process_vm.c - process_vm_writev and process_vm_readv between two processes: the cost of one copy alone
// follows: process_vm_readv(2); latency as in ib_write_lat, bandwidth as in ib_write_bw and ib_read_bw
// SPDX-License-Identifier: MIT
#include <signal.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/uio.h>
#include <sys/wait.h>
#include <unistd.h>

#include "clock.h"

enum { TURNS = 100000 };

static void put(pid_t pid, void *to, const void *from, size_t n)
{
	struct iovec local = {(void *)from, n}, remote = {to, n};

	if (process_vm_writev(pid, &local, 1, &remote, 1, 0) != (ssize_t)n)
		fail("process_vm_writev");
}

static void get(pid_t pid, void *to, const void *from, size_t n)
{
	struct iovec local = {to, n}, remote = {(void *)from, n};

	if (process_vm_readv(pid, &local, 1, &remote, 1, 0) != (ssize_t)n)
		fail("process_vm_readv");
}

static char *private_memory(size_t n, int fill)
{
	char *p = mmap(NULL, n, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);

	if (p == MAP_FAILED)
		fail("mmap");
	memset(p, fill, n);
	return p;
}

/* Both sides have the same addresses, because they are forked from one program. */
static void latency(void)
{
	static uint64_t took[TURNS];
	volatile uint64_t *in = (volatile uint64_t *)private_memory(4096, 0);
	uint64_t *out = (uint64_t *)private_memory(4096, 0);
	pid_t parent = getpid(), child = fork();

	if (child < 0)
		fail("fork");
	*(volatile char *)out = 0; /* a page of its own on either side */
	*in = 0;
	if (child == 0) {
		prctl(PR_SET_PDEATHSIG, SIGKILL);
		take_core(1);
		for (uint64_t i = 1; i <= TURNS + 1; i++) {
			while (*in != i)
				;
			*out = i;
			put(parent, (void *)in, out, 8);
		}
		_exit(0);
	}
	take_core(0);
	usleep(20000);
	for (uint64_t i = 1; i <= TURNS + 1; i++) {
		uint64_t start = now_ns();

		*out = i;
		put(child, (void *)in, out, 8);
		while (*in != i)
			;
		if (i > 1)
			took[i - 2] = now_ns() - start;
	}
	waitpid(child, NULL, 0);
	printf("%.4f\n", (double)median_u64(took, TURNS) / 2000);
}

static void bandwidth(bool write, size_t size, uint64_t seconds_ns)
{
	char *buf = private_memory(2 * size, 1);
	pid_t child = fork();
	uint64_t bytes = 0, start, end;

	if (child < 0)
		fail("fork");
	memset(buf, child ? 2 : 3, 2 * size);
	if (child == 0) {
		prctl(PR_SET_PDEATHSIG, SIGKILL);
		for (;;)
			pause();
	}
	take_core(0);
	usleep(50000);
	for (int i = 0; i < 50; i++)
		put(child, buf + size, buf, size);
	start = now_ns();
	do {
		for (int i = 0; i < 16; i++) {
			if (write)
				put(child, buf + size, buf, size);
			else
				get(child, buf, buf + size, size);
			bytes += size;
		}
		end = now_ns();
	} while (end - start < seconds_ns);
	kill(child, SIGKILL);
	waitpid(child, NULL, 0);
	printf("%.1f\n", (double)bytes * 1000 / (double)(end - start));
}

int main(int argc, char **argv)
{
	size_t size = argc > 2 ? strtoul(argv[2], NULL, 0) : 1048576;
	double seconds = argc > 3 ? atof(argv[3]) : 1;
	const char *what = argc > 1 ? argv[1] : "";

	if (!strcmp(what, "lat"))
		latency(); /* µs one way */
	else if (!strcmp(what, "write") || !strcmp(what, "read"))
		bandwidth(*what == 'w', size, (uint64_t)(seconds * 1e9)); /* MB/s */
	else
		return fprintf(stderr, "usage: process_vm lat | write|read [SIZE [SECONDS]]\n"), 2;
	return 0;
}
