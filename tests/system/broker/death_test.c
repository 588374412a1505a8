// death_test.c - programs and brokers are killed: the effects on the others
// see: docs/connections.md
// SPDX-License-Identifier: MIT
#include "harness.h"

#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <pthread.h>
#include <sched.h>
#include <signal.h>
#include <stdatomic.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

static struct vb_broker_report report;

static void a_killed_program_frees_its_lane(void)
{
	struct program p;
	struct diary a;

	join_as(&a, 1);
	start_program(&p, 2, 0);
	SAME(ask(&a, 1, p.lane, 2), 0);
	CHECK(wait_for(&a, &a.replies, 1, LONG_MS));
	SAME(a.peer.pid, p.pid);
	SAME(a.peer.lane, p.lane);
	CHECK(a.peer.incarnation == p.incarnation);
	end_program(&p, SIGKILL);
	struct pollfd dead = {.fd = a.peer.pid_fd, .events = POLLIN};
	SAME(poll(&dead, 1, LONG_MS), 1);
	CHECK(wait_lanes(1, LONG_MS));
	SAME(status_of(&report), 0);
	SAME(report.counters.deaths, 1);
	SAME(ask(&a, 2, p.lane, 2), 0);
	CHECK(wait_for(&a, &a.replies, 2, LONG_MS));
	SAME(a.err, ENOENT);
	leave(&a);
}

static void a_killed_program_frees_its_lane_though_its_child_has_the_socket(void)
{
	struct diary a, d;
	int ready[2];
	char byte;

	join_as(&a, 1);
	CHECK(pipe(ready) == 0);
	pid_t pid = fork();
	if (pid == 0) {
		join_as(&d, 2);
		if (fork() == 0)
			sleep_ms(100000); /* with everything that it inherited */
		CHECK(write(ready[1], "r", 1) == 1);
		sleep_ms(100000);
	}
	CHECK(read(ready[0], &byte, 1) == 1);
	CHECK(wait_lanes(2, LONG_MS));
	kill(pid, SIGKILL);
	waitpid(pid, NULL, 0);
	CHECK(wait_lanes(1, LONG_MS));
	leave(&a);
}

static void a_program_that_executes_another_frees_its_lane(void)
{
	struct diary a, d;
	int until_exec[2];
	char byte;

	join_as(&a, 1);
	CHECK(pipe2(until_exec, O_CLOEXEC) == 0);
	pid_t pid = fork();
	if (pid == 0) {
		join_as(&d, 2);
		CHECK(wait_lanes(2, LONG_MS));
		execlp("sleep", "sleep", "100", NULL);
		_exit(127);
	}
	close(until_exec[1]);
	CHECK(read(until_exec[0], &byte, 1) == 0);
	CHECK(wait_lanes(1, LONG_MS));
	CHECK(waitpid(pid, NULL, WNOHANG) == 0);
	SAME(status_of(&report), 0);
	SAME(report.counters.attaches, 2);
	leave(&a);
}

/* As in two containers that share the runtime directory. */
static void programs_of_two_pid_namespaces_meet(void)
{
	struct diary a, d;
	int ready[2], status;
	uint32_t lane;

	join_as(&a, 1);
	uint32_t mine = vb_broker_lane_number(a.c);
	CHECK(pipe(ready) == 0);
	pid_t pid = fork();
	if (pid == 0) {
		if (unshare(CLONE_NEWPID))
			_exit(SKIPPED);
		pid_t inner = fork();
		if (inner) {
			waitpid(inner, &status, 0);
			_exit(WEXITSTATUS(status));
		}
		join_as(&d, 2);
		SAME(getpid(), 1);
		SAME(ask(&d, 1, mine, 1), 0);
		CHECK(wait_for(&d, &d.replies, 1, LONG_MS));
		SAME(d.err, 0);
		SAME(d.peer.pid, 0); /* there is no number for it here */
		lane = vb_broker_lane_number(d.c);
		CHECK(write(ready[1], &lane, sizeof(lane)) == sizeof(lane));
		/* the broker dies; whichever program starts the next one, in whichever namespace, both return */
		CHECK(wait_for(&d, &d.reattached, 1, LONG_MS));
		SAME(vb_broker_lane_number(d.c), lane);
		SAME(ask(&d, 2, mine, 1), 0);
		CHECK(wait_for(&d, &d.replies, 2, LONG_MS));
		SAME(d.err, 0);
		leave(&d);
		_exit(0);
	}
	close(ready[1]);
	if (read(ready[0], &lane, sizeof(lane)) != sizeof(lane)) {
		waitpid(pid, &status, 0);
		CHECK(WIFEXITED(status) && WEXITSTATUS(status) == SKIPPED);
		skip("no pid namespaces here");
	}
	CHECK(wait_for(&a, &a.introductions, 1, LONG_MS));
	CHECK(a.peer.pid > 1);
	kill(broker_pid(), SIGKILL);
	CHECK(wait_for(&a, &a.reattached, 1, LONG_MS));
	CHECK(wait_for(&a, &a.introductions, 2, LONG_MS));
	while (!waitpid(pid, &status, WNOHANG)) /* the broker may run inside it */
		wait_for(&a, &a.reattached, 99, 20);
	SAME(status, 0);
	/* a broker outside cannot see whether a program from inside lives, and would keep its lane for ten seconds */
	pid_t broker = broker_pid();
	if (broker > 1)
		kill(broker, SIGKILL);
	leave(&a);
	char path[300];
	snprintf(path, sizeof(path), "%s/broker.sock", getenv("VERBENA_RUNTIME"));
	if (broker > 1)
		unlink(path); /* left by the dead broker */
}

static void a_child_that_leaves_its_parent_s_client_does_it_no_harm(void)
{
	struct diary a, b;
	int status;

	join_as(&a, 1);
	join_as(&b, 2);
	pid_t pid = fork();
	if (pid == 0) {
		struct diary own;
		join_as(&own, 3);
		CHECK(vb_broker_lane_number(own.c) != vb_broker_lane_number(a.c));
		leave(&a);
		leave(&own);
		_exit(0);
	}
	waitpid(pid, &status, 0);
	SAME(status, 0);
	CHECK(wait_lanes(2, LONG_MS));
	SAME(ask(&a, 1, vb_broker_lane_number(b.c), 2), 0);
	CHECK(wait_for(&a, &a.replies, 1, LONG_MS));
	SAME(a.err, 0);
	SAME(a.reattached, 0);
	leave(&a);
	leave(&b);
}

static struct program_news reattached(struct program *p, int times)
{
	int64_t until = now_ms() + LONG_MS;

	while (news_of(p).reattached < times && now_ms() < until)
		sleep_ms(5);
	SAME(news_of(p).reattached, times);
	return news_of(p);
}

static void after_the_broker_s_death_all_have_their_lanes_again(void)
{
	enum { N = 8 };
	struct program p[N], third;

	for (int i = 0; i < N; i++)
		start_program(&p[i], 2, 0);
	pid_t first = broker_pid();
	kill(first, SIGKILL);
	start_program(&third, 3, 0);
	for (int i = 0; i < N; i++) {
		struct program_news news = reattached(&p[i], 1);
		SAME(news.lane, p[i].lane);
		CHECK(third.lane != p[i].lane);
	}
	CHECK(broker_pid() != 0 && broker_pid() != first);
	CHECK(wait_lanes(N + 1, LONG_MS));
	struct diary a;
	join_as(&a, 1);
	SAME(ask(&a, 1, p[3].lane, 2), 0); /* its GIDs are known again, too */
	CHECK(wait_for(&a, &a.replies, 1, LONG_MS));
	SAME(a.err, 0);
	CHECK(a.peer.incarnation == p[3].incarnation);
	leave(&a);
	for (int i = 0; i < N; i++)
		end_program(&p[i], 0);
	end_program(&third, 0);
}

static void a_broker_that_is_killed_again_and_again_comes_back(void)
{
	struct program p;
	struct diary a;

	join_as(&a, 1);
	start_program(&p, 2, 0);
	for (int i = 1; i <= 10; i++) {
		kill(broker_pid(), SIGKILL);
		CHECK(wait_for(&a, &a.reattached, i, LONG_MS));
		reattached(&p, i);
		SAME(ask(&a, (uint64_t)i, p.lane, 2), 0);
		CHECK(wait_for(&a, &a.replies, i, LONG_MS));
		SAME(a.err, 0);
	}
	end_program(&p, 0);
	leave(&a);
}

static void a_stopped_program_keeps_its_lane_and_a_meet_waits_for_it(void)
{
	struct program p;
	struct diary a;

	join_as(&a, 1);
	start_program(&p, 2, 0);
	kill(p.pid, SIGSTOP);
	kill(broker_pid(), SIGKILL);
	CHECK(wait_for(&a, &a.reattached, 1, LONG_MS));
	SAME(status_of(&report), 0);
	SAME(report.nlanes, 2);
	CHECK(wait_lanes(1, LONG_MS));
	SAME(ask(&a, 1, p.lane, 2), 0);
	CHECK(!wait_for(&a, &a.replies, 1, 300));
	kill(p.pid, SIGCONT);
	CHECK(wait_for(&a, &a.replies, 1, LONG_MS));
	SAME(a.err, 0);
	CHECK(a.peer.incarnation == p.incarnation);
	SAME(news_of(&p).lane, p.lane);
	end_program(&p, 0);
	leave(&a);
}

static void a_meet_with_one_that_dies_before_it_comes_back_is_answered(void)
{
	struct program p;
	struct diary a;

	join_as(&a, 1);
	start_program(&p, 2, 0);
	kill(p.pid, SIGSTOP);
	kill(broker_pid(), SIGKILL);
	CHECK(wait_for(&a, &a.reattached, 1, LONG_MS));
	for (int i = 0; i < 300; i++) /* more than may wait */
		SAME(ask(&a, 1, p.lane, 2), 0);
	CHECK(wait_for(&a, &a.replies, 300 - 256, LONG_MS));
	end_program(&p, SIGKILL);
	CHECK(wait_for(&a, &a.replies, 300, LONG_MS));
	SAME(a.err, ENOENT);
	CHECK(wait_lanes(1, LONG_MS));
	leave(&a);
}

static void one_that_died_together_with_the_broker_is_forgotten(void)
{
	struct program p;
	struct diary a;

	join_as(&a, 1);
	start_program(&p, 2, 0);
	pid_t broker = broker_pid();
	kill(broker, SIGSTOP);
	kill(p.pid, SIGKILL);
	waitpid(p.pid, NULL, 0);
	kill(broker, SIGKILL);
	CHECK(wait_for(&a, &a.reattached, 1, LONG_MS));
	SAME(status_of(&report), 0);
	SAME(report.nlanes, 1);
	leave(&a);
}

static void without_the_state_lanes_come_from_the_living(void)
{
	struct diary a;
	char path[300];

	join_as(&a, 1);
	uint32_t lane = vb_broker_lane_number(a.c);
	snprintf(path, sizeof(path), "%s/broker.sock.state", getenv("VERBENA_RUNTIME"));
	CHECK(unlink(path) == 0);
	kill(broker_pid(), SIGKILL);
	CHECK(wait_for(&a, &a.reattached, 1, LONG_MS));
	SAME(vb_broker_lane_number(a.c), lane);
	struct diary b;
	join_as(&b, 1);
	CHECK(vb_broker_lane_number(b.c) != lane);
	leave(&a);
	leave(&b);
}

static void a_meet_while_the_broker_is_away_says_so(void)
{
	struct diary a;

	join_as(&a, 1);
	kill(broker_pid(), SIGKILL);
	while (broker_pid())
		sleep_ms(1);
	int err = ask(&a, 1, 5, 1);
	CHECK(err == 0 || err == ENOTCONN);
	CHECK(wait_for(&a, &a.reattached, 1, LONG_MS));
	SAME(ask(&a, 2, 5, 1), 0);
	CHECK(wait_for(&a, &a.replies, 1, LONG_MS));
	SAME(a.tag, 2);
	leave(&a);
}

static atomic_bool end_threads;

static void *ask_and_tell(void *arg)
{
	struct diary *d = arg;
	union ibv_gid gids[3] = {gid_of(1), gid_of(2), gid_of(3)};

	for (uint64_t i = 0; !atomic_load(&end_threads); i++) {
		vb_broker_set_gids(d->c, gids, i % 4);
		ask(d, i, (uint32_t)(i % 1024), 1);
		if (i % 64 == 0)
			sleep_ms(1);
	}
	return NULL;
}

static void threads_may_ask_while_another_dispatches_and_the_broker_dies(void)
{
	pthread_t threads[3];
	struct diary a;

	join_as(&a, 1);
	for (int i = 0; i < 3; i++)
		CHECK(pthread_create(&threads[i], NULL, ask_and_tell, &a) == 0);
	for (int i = 1; i <= 5; i++) {
		int before = a.replies;
		CHECK(wait_for(&a, &a.replies, before + 500, LONG_MS));
		kill(broker_pid(), SIGKILL);
		CHECK(wait_for(&a, &a.reattached, i, LONG_MS));
	}
	atomic_store(&end_threads, true);
	for (int i = 0; i < 3; i++)
		pthread_join(threads[i], NULL);
	leave(&a);
}

static const struct test tests[] = {
        {"a killed program frees its lane", a_killed_program_frees_its_lane},
        {"a killed program frees its lane though its child has the socket",
         a_killed_program_frees_its_lane_though_its_child_has_the_socket},
        {"a program that executes another frees its lane", a_program_that_executes_another_frees_its_lane},
        {"programs of two pid namespaces meet", programs_of_two_pid_namespaces_meet},
        {"a child that leaves its parent's client does it no harm",
         a_child_that_leaves_its_parent_s_client_does_it_no_harm},
        {"after the broker's death all have their lanes again", after_the_broker_s_death_all_have_their_lanes_again},
        {"a broker that is killed again and again comes back", a_broker_that_is_killed_again_and_again_comes_back},
        {"a stopped program keeps its lane and a meet waits for it",
         a_stopped_program_keeps_its_lane_and_a_meet_waits_for_it},
        {"a meet with one that dies before it comes back is answered",
         a_meet_with_one_that_dies_before_it_comes_back_is_answered},
        {"one that died together with the broker is forgotten", one_that_died_together_with_the_broker_is_forgotten},
        {"without the state lanes come from the living", without_the_state_lanes_come_from_the_living},
        {"a meet while the broker is away says so", a_meet_while_the_broker_is_away_says_so},
        {"threads may ask while another dispatches and the broker dies",
         threads_may_ask_while_another_dispatches_and_the_broker_dies},
};

int main(int argc, char **argv)
{
	return run_tests(argc, argv, tests, sizeof(tests) / sizeof(tests[0]));
}
