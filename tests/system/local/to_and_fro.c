// to_and_fro.c - two programs write to each other in turns: each polls for its completion, then looks at its memory
// see: docs/same-host.md, "Writes to and fro"
// SPDX-License-Identifier: MIT
#include "pair.h"

#include <sched.h>

/* What the second program does between the arrival of a write and its own. */
enum manner { ANSWERS_AT_ONCE, ANSWERS_LATE, RESTS_AT_TIMES, IS_STOPPED_AT_TIMES };

struct job {
	enum manner manner;
	unsigned long rounds;
};
#define LONGEST 256u
#define STOP_EVERY 397u

static uint32_t length_of(unsigned long i)
{
	return i % 5 ? 8 : (uint32_t)(i / 5 % LONGEST + 1);
}

static uint8_t value_of(unsigned long i)
{
	return (uint8_t)(i % 251 + 1);
}

/* The write of round i has arrived: all of it, and nothing behind it. */
static void await_write(const struct mem *m, unsigned long i)
{
	volatile uint8_t *at = m->p;
	uint32_t n = length_of(i);
	uint64_t end = now_ms() + PATIENCE;

	for (unsigned long spins = 1; at[n - 1] != value_of(i); spins++) {
		if (spins % 256 == 0)
			sched_yield();
		if (spins % 4096 == 0)
			CHECK(now_ms() < end);
	}
	__atomic_thread_fence(__ATOMIC_ACQUIRE);
	for (uint32_t k = 0; k < n; k++)
		SAME(at[k], value_of(i));
	SAME(at[n], 0);
	memset(m->p, 0, n);
}

static void write_once(struct link *l, struct mem *from, struct far to, unsigned long i)
{
	memset(from->p, value_of(i), length_of(i));
	POST(l, .op = IBV_WR_RDMA_WRITE, .id = i, .m = from, .len = length_of(i), .far = to);
	expect(l->scq, i, IBV_WC_SUCCESS);
}

static void answer_all(int fd, void *arg)
{
	const struct job *j = arg;
	struct dev d;
	struct link l;
	struct mem in, out;

	dev_open(&d);
	mem_make(&in, &d, 4096);
	mem_make(&out, &d, 4096);
	link_make(&l, &d, &(struct conf){0});
	mem_tell(&in, fd);
	struct far to = far_hear(fd);
	link_join(&l, fd);
	for (unsigned long i = 1; i <= j->rounds; i++) {
		await_write(&in, i);
		if (j->manner == ANSWERS_LATE)
			usleep(50);
		if (j->manner == RESTS_AT_TIMES && i % 100 < 5)
			usleep(300);
		write_once(&l, &out, to, i);
	}
	meet_up(fd);
}

static void write_in_turns(enum manner manner, unsigned long rounds)
{
	struct job j = {.manner = manner, .rounds = count_or(under_sanitizer() ? rounds / 10 : rounds)};
	struct peer p = start(answer_all, &j);
	struct dev d;
	struct link l;
	struct mem in, out;

	dev_open(&d);
	mem_make(&in, &d, 4096);
	mem_make(&out, &d, 4096);
	link_make(&l, &d, &(struct conf){0});
	struct far to = far_hear(p.fd);
	mem_tell(&in, p.fd);
	link_join(&l, p.fd);
	for (unsigned long i = 1; i <= j.rounds; i++) {
		bool stop = manner == IS_STOPPED_AT_TIMES && i % STOP_EVERY == 0;

		if (stop)
			stop_peer(&p);
		write_once(&l, &out, to, i); /* completes, whether it is stopped or not */
		if (stop)
			cont_peer(&p);
		await_write(&in, i);
	}
	meet_up(p.fd);
	finish(&p);
	link_end(&l);
	mem_end(&in);
	mem_end(&out);
	dev_close(&d);
}

static void each_write_of_two_programs_in_turns_arrives_whole(void)
{
	write_in_turns(ANSWERS_AT_ONCE, 200000);
}

static void a_program_that_answers_late_loses_nothing(void)
{
	write_in_turns(ANSWERS_LATE, 5000);
}

static void a_program_that_rests_at_times_loses_nothing(void)
{
	write_in_turns(RESTS_AT_TIMES, 20000);
}

static void a_program_that_is_stopped_at_times_loses_nothing(void)
{
	write_in_turns(IS_STOPPED_AT_TIMES, 40000);
}

/* --- the queue pair of the second program ends as soon as it has the last write --- */

#define TURNS 8u
#define ROUNDS 60u

static void end_early(int fd, void *arg)
{
	struct dev d;
	struct link l;
	struct mem in, out;

	dev_open(&d);
	mem_make(&in, &d, 4096);
	mem_make(&out, &d, 4096);
	mem_tell(&in, fd);
	struct far to = far_hear(fd);
	for (unsigned long round = 0; round < ROUNDS; round++) {
		link_make(&l, &d, &(struct conf){0});
		link_join(&l, fd);
		for (unsigned long i = 1; i <= TURNS; i++) {
			await_write(&in, i);
			if (i < TURNS)
				write_once(&l, &out, to, i);
		}
		link_end(&l);
		meet_up(fd);
	}
}

static void a_write_is_complete_although_its_target_ends_at_once(void)
{
	struct peer p = start(end_early, NULL);
	struct dev d;
	struct link l;
	struct mem in, out;

	dev_open(&d);
	mem_make(&in, &d, 4096);
	mem_make(&out, &d, 4096);
	struct far to = far_hear(p.fd);
	mem_tell(&in, p.fd);
	for (unsigned long round = 0; round < ROUNDS; round++) {
		link_make(&l, &d, &(struct conf){0});
		link_join(&l, p.fd);
		for (unsigned long i = 1; i <= TURNS; i++) {
			write_once(&l, &out, to, i);
			if (i < TURNS)
				await_write(&in, i);
		}
		link_end(&l);
		meet_up(p.fd);
	}
	finish(&p);
}

/* --- data, then a flag --- */

#define DATA 64u
#define FLAG 128u /* offset */

static void write_data_and_flag(struct link *l, struct mem *from, struct far to, uint64_t i)
{
	memset(from->p, (int)(i % 251 + 1), DATA);
	memcpy(from->p + FLAG, &i, sizeof(i));
	POST(l, .op = IBV_WR_RDMA_WRITE, .id = 0, .m = from, .len = DATA, .far = to, .quiet = true);
	POST(l, .op = IBV_WR_RDMA_WRITE, .id = i, .m = from, .off = FLAG, .len = 8, .far = to, .far_off = FLAG);
	expect(l->scq, i, IBV_WC_SUCCESS);
}

static void await_flag(const struct mem *m, uint64_t i)
{
	volatile uint64_t *flag = (volatile uint64_t *)(m->p + FLAG);
	uint64_t end = now_ms() + PATIENCE;

	for (unsigned long spins = 1; *flag != i; spins++) {
		if (spins % 256 == 0)
			sched_yield();
		if (spins % 4096 == 0)
			CHECK(now_ms() < end);
	}
	__atomic_thread_fence(__ATOMIC_ACQUIRE);
	for (uint32_t k = 0; k < DATA; k++)
		SAME(m->p[k], i % 251 + 1);
}

static void exchange_flags(struct peer *other, unsigned long rounds, bool first, int fd)
{
	struct dev d;
	struct link l;
	struct mem in, out;

	dev_open(&d);
	mem_make(&in, &d, 4096);
	mem_make(&out, &d, 4096);
	link_make(&l, &d, &(struct conf){0});
	struct far to;
	if (first) {
		to = far_hear(fd);
		mem_tell(&in, fd);
	} else {
		mem_tell(&in, fd);
		to = far_hear(fd);
	}
	link_join(&l, fd);
	for (uint64_t i = 1; i <= rounds; i++) {
		if (first)
			write_data_and_flag(&l, &out, to, i);
		await_flag(&in, i);
		if (!first)
			write_data_and_flag(&l, &out, to, i);
	}
	meet_up(fd);
	if (other)
		finish(other);
}

static void answer_flags(int fd, void *arg)
{
	exchange_flags(NULL, *(unsigned long *)arg, false, fd);
}

static void data_is_there_when_its_flag_is(void)
{
	unsigned long rounds = count_or(under_sanitizer() ? 1000 : 10000);
	struct peer p = start(answer_flags, &rounds);

	exchange_flags(&p, rounds, true, p.fd);
}

int main(int argc, char **argv)
{
	static const struct test tests[] = {
	        {"each write of two programs in turns arrives whole", each_write_of_two_programs_in_turns_arrives_whole,
	         300},
	        {"a program that answers late loses nothing", a_program_that_answers_late_loses_nothing, 300},
	        {"a program that rests at times loses nothing", a_program_that_rests_at_times_loses_nothing, 300},
	        {"a program that is stopped at times loses nothing", a_program_that_is_stopped_at_times_loses_nothing,
	         300},
	        {"a write is complete although its target ends at once",
	         a_write_is_complete_although_its_target_ends_at_once, 300},
	        {"data is there when its flag is", data_is_there_when_its_flag_is, 300},
	};

	return RUN_TESTS(argc, argv, tests);
}
