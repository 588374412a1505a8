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

/* One of the two programs. */
struct side {
	struct dev d;
	struct link l;
	struct mem in, out;
	struct far to; /* the other's in */
};

static void side_open(struct side *s, int fd)
{
	dev_open(&s->d);
	mem_make(&s->in, &s->d, 4096);
	mem_make(&s->out, &s->d, 4096);
	mem_tell(&s->in, fd);
	s->to = far_hear(fd);
}

static void side_connect(struct side *s, int fd)
{
	link_make(&s->l, &s->d, &(struct conf){0});
	link_join(&s->l, fd);
}

static void side_close(struct side *s)
{
	mem_end(&s->in);
	mem_end(&s->out);
	dev_close(&s->d);
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
	struct side s;

	side_open(&s, fd);
	side_connect(&s, fd);
	for (unsigned long i = 1; i <= j->rounds; i++) {
		await_write(&s.in, i);
		if (j->manner == ANSWERS_LATE)
			usleep(50);
		if (j->manner == RESTS_AT_TIMES && i % 100 < 5)
			usleep(300);
		write_once(&s.l, &s.out, s.to, i);
	}
	meet_up(fd);
}

static void write_in_turns(enum manner manner, unsigned long rounds)
{
	struct job j = {.manner = manner, .rounds = count_or(under_sanitizer() ? rounds / 10 : rounds)};
	struct peer p = start(answer_all, &j);
	struct side s;

	side_open(&s, p.fd);
	side_connect(&s, p.fd);
	for (unsigned long i = 1; i <= j.rounds; i++) {
		bool stop = manner == IS_STOPPED_AT_TIMES && i % STOP_EVERY == 0;

		if (stop)
			stop_peer(&p);
		write_once(&s.l, &s.out, s.to, i); /* completes, whether it is stopped or not */
		if (stop)
			cont_peer(&p);
		await_write(&s.in, i);
	}
	meet_up(p.fd);
	finish(&p);
	link_end(&s.l);
	side_close(&s);
}

static void each_write_of_two_programs_in_turns_arrives_whole(void)
{
	write_in_turns(ANSWERS_AT_ONCE, 50000);
}

static void a_program_that_answers_late_loses_nothing(void)
{
	write_in_turns(ANSWERS_LATE, 2000);
}

static void a_program_that_rests_at_times_loses_nothing(void)
{
	write_in_turns(RESTS_AT_TIMES, 5000);
}

static void a_program_that_is_stopped_at_times_loses_nothing(void)
{
	write_in_turns(IS_STOPPED_AT_TIMES, 10000);
}

/* --- the queue pair of the second program ends as soon as it has the last write --- */

#define TURNS 8u
#define ROUNDS 60u

static void end_early(int fd, void *arg)
{
	struct side s;

	side_open(&s, fd);
	for (unsigned long round = 0; round < ROUNDS; round++) {
		side_connect(&s, fd);
		for (unsigned long i = 1; i <= TURNS; i++) {
			await_write(&s.in, i);
			if (i < TURNS)
				write_once(&s.l, &s.out, s.to, i);
		}
		link_end(&s.l);
		meet_up(fd);
	}
}

static void a_write_is_complete_although_its_target_ends_at_once(void)
{
	struct peer p = start(end_early, NULL);
	struct side s;

	side_open(&s, p.fd);
	for (unsigned long round = 0; round < ROUNDS; round++) {
		side_connect(&s, p.fd);
		for (unsigned long i = 1; i <= TURNS; i++) {
			write_once(&s.l, &s.out, s.to, i);
			if (i < TURNS)
				await_write(&s.in, i);
		}
		link_end(&s.l);
		meet_up(p.fd);
	}
	finish(&p);
	side_close(&s);
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

static void exchange_flags(int fd, unsigned long rounds, bool first)
{
	struct side s;

	side_open(&s, fd);
	side_connect(&s, fd);
	for (uint64_t i = 1; i <= rounds; i++) {
		if (first)
			write_data_and_flag(&s.l, &s.out, s.to, i);
		await_flag(&s.in, i);
		if (!first)
			write_data_and_flag(&s.l, &s.out, s.to, i);
	}
	meet_up(fd);
	link_end(&s.l);
	side_close(&s);
}

static void answer_flags(int fd, void *arg)
{
	exchange_flags(fd, *(unsigned long *)arg, false);
}

static void data_is_there_when_its_flag_is(void)
{
	unsigned long rounds = count_or(under_sanitizer() ? 1000 : 10000);
	struct peer p = start(answer_flags, &rounds);

	exchange_flags(p.fd, rounds, true);
	finish(&p);
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
