// fallback.c - if process_vm_readv and process_vm_writev are forbidden, the rings carry all data
// follows: seccomp(2)
// see: docs/same-host.md
// SPDX-License-Identifier: MIT
#include "work.h"

enum when { NEVER, FROM_THE_START, IN_THE_MIDDLE };
struct job {
	enum when here, there;
	int err;
	struct work w;
};

static int tick_err;
static bool ticked;

static void forbid_later(uint64_t ms)
{
	if (ms > 300 && !ticked) {
		ticked = true;
		CHECK(forbid_process_vm(tick_err));
	}
}

static void side(int fd, const struct job *j, enum when when)
{
	struct work w = j->w;
	struct dev d;

	tick_err = j->err;
	ticked = false;
	if (when == FROM_THE_START)
		CHECK(forbid_process_vm(j->err));
	if (when == IN_THE_MIDDLE)
		w.tick = forbid_later;
	dev_open(&d);
	work(&d, fd, &w);
	dev_close(&d);
}

static void there(int fd, void *arg)
{
	const struct job *j = arg;

	side(fd, j, j->there);
}

static void here(int fd, void *arg)
{
	const struct job *j = arg;

	side(fd, j, j->here);
}

/* A process cannot drop the filter, so both sides are children; the socket between them is relayed. */
static void run(const struct job *j)
{
	struct peer a = start(here, (void *)j), b = start(there, (void *)j);
	bool a_ends = false, b_ends = false;
	char buf[4096];

	while (!a_ends || !b_ends) {
		for (int k = 0; k < 2; k++) {
			int from = k ? b.fd : a.fd, to = k ? a.fd : b.fd;
			bool *ends = k ? &b_ends : &a_ends;

			if (*ends || !heard(from, 1))
				continue;
			ssize_t n = read(from, buf, sizeof(buf));

			if (n <= 0)
				*ends = true;
			else
				tell(to, buf, (size_t)n);
		}
	}
	finish(&a);
	finish(&b);
}

static struct work load(unsigned qps, uint32_t max, unsigned ms, unsigned long ops)
{
	return (struct work){.qps = qps, .max = max, .ms = ms, .ops = ops, .seed = now_ms(), .depth = 16};
}

static void forbidden_to_one_side(void)
{
	run(&(struct job){FROM_THE_START, NEVER, EPERM, load(4, 300000, 800, 0)});
	run(&(struct job){NEVER, FROM_THE_START, ENOSYS, load(4, 300000, 800, 0)});
}

static void forbidden_to_both_sides(void)
{
	run(&(struct job){FROM_THE_START, FROM_THE_START, EPERM, load(4, 300000, 800, 0)});
	run(&(struct job){FROM_THE_START, FROM_THE_START, ENOSYS, load(1, 1000, 500, 0)});
}

static void forbidden_in_the_middle_of_traffic(void)
{
	run(&(struct job){IN_THE_MIDDLE, NEVER, EPERM, load(4, 300000, 1000, 0)});
	run(&(struct job){NEVER, IN_THE_MIDDLE, EPERM, load(4, 300000, 1000, 0)});
	run(&(struct job){IN_THE_MIDDLE, IN_THE_MIDDLE, ENOSYS, load(4, 300000, 1000, 0)});
}

static void eight_mebibytes_by_ring(void)
{
	run(&(struct job){FROM_THE_START, FROM_THE_START, EPERM, load(2, 8 << 20, 3000, 12)});
}

/* Fails if both sides wait for room in a ring that the other side does not empty while it waits itself. */
static void sixteen_queue_pairs_both_ways_do_not_block_each_other(void)
{
	struct work w = load(16, 1 << 20, 3000, 0);

	run(&(struct job){FROM_THE_START, FROM_THE_START, EPERM, w});
}

int main(int argc, char **argv)
{
	static const struct test tests[] = {
	        {"process_vm forbidden to one side", forbidden_to_one_side},
	        {"process_vm forbidden to both sides", forbidden_to_both_sides},
	        {"process_vm forbidden in the middle of traffic", forbidden_in_the_middle_of_traffic},
	        {"eight mebibytes by ring", eight_mebibytes_by_ring},
	        {"sixteen queue pairs both ways do not block each other",
	         sixteen_queue_pairs_both_ways_do_not_block_each_other},
	};

	return RUN_TESTS(argc, argv, tests);
}
