// random.c - random work on many queue pairs at once; every byte is checked
// SPDX-License-Identifier: MIT
#include "work.h"

static void other(int fd, void *arg)
{
	struct dev d;

	dev_open(&d);
	work(&d, fd, arg);
	dev_close(&d);
}

static void run(const struct work *w)
{
	struct peer p = start(other, (void *)w);
	struct dev d;

	dev_open(&d);
	work(&d, p.fd, w);
	dev_close(&d);
	finish(&p);
}

static unsigned ms(void)
{
	return (unsigned)count_or(600);
}

static uint64_t seed(void)
{
	const char *s = getenv("VERBENA_TEST_SEED");

	return s ? strtoull(s, NULL, 0) : now_ms();
}

static void small_messages_on_one_queue_pair(void)
{
	run(&(struct work){.qps = 1, .ms = ms(), .max = 256, .seed = seed(), .depth = 60});
}

static void small_messages_on_sixteen_queue_pairs(void)
{
	run(&(struct work){.qps = 16, .ms = ms(), .max = 300, .seed = seed()});
}

static void messages_of_all_sizes_on_eight_queue_pairs(void)
{
	run(&(struct work){.qps = 8, .ms = ms(), .max = 1 << 20, .seed = seed()});
}

static void messages_into_shared_mappings(void)
{
	run(&(struct work){.qps = 4, .ms = ms(), .max = 100000, .seed = seed(), .shared = true});
}

static void all_types_of_queue_pairs_at_once(void)
{
	run(&(struct work){
	        .qps = 12, .ms = ms(), .max = 20000, .seed = seed(), .types = {IBV_QPT_RC, IBV_QPT_UC, IBV_QPT_UD}});
}

static void messages_of_all_sizes_by_ring(void)
{
	CHECK(forbid_process_vm(EPERM));
	run(&(struct work){.qps = 8, .ms = ms(), .max = 1 << 20, .seed = seed()});
}

int main(int argc, char **argv)
{
	static const struct test tests[] = {
	        {"small messages on one queue pair", small_messages_on_one_queue_pair, 4000},
	        {"small messages on sixteen queue pairs", small_messages_on_sixteen_queue_pairs, 4000},
	        {"messages of all sizes on eight queue pairs", messages_of_all_sizes_on_eight_queue_pairs, 4000},
	        {"messages into shared mappings", messages_into_shared_mappings, 4000},
	        {"all types of queue pairs at once", all_types_of_queue_pairs_at_once, 4000},
	        {"messages of all sizes by ring", messages_of_all_sizes_by_ring, 4000},
	};

	return RUN_TESTS(argc, argv, tests);
}
