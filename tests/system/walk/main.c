// main.c - the random walk: its processes, their threads, and what is left at the end
// SPDX-License-Identifier: MIT
// usage: walk [-s SECONDS] [-p PROCESSES] [-t THREADS] [-e ENDS] [-a BYTES] [-f [-o SOCKET,N]] [-i] [-k] [-l] [-w] [SEED]
//   -e  queue pairs of a process at most; -a  bytes of an area that a request may use
//   -w  only opens the device, says so, and waits until its input ends
//   -f  on a simulated fabric (VERBENA_FABRIC): ib0 in place of roce_lo, and process 0 is its host1, and so on
//   -o SOCKET,N  with -f: the odd processes are the hosts hostN, hostN+1 … of another fabric process, the even ones host1 …
//   -i  iWARP connections carry data too, on own0 (tests/support/own-network)
//   -k  processes are killed and stopped at random, and started again
//   -l  devices are also closed while their objects exist
#include <dirent.h>
#include <signal.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#include "walk.h"

/* --- a thread --- */

static const struct {
	void (*step)(struct dice *d);
	unsigned weight;
} steps[] = {
        {make_context, 1}, {make_td, 1},        {make_pd, 2},      {make_parent, 2},    {make_channel, 1},
        {make_cq, 4},      {make_srq, 2},       {make_ah, 4},      {make_mr, 6},        {make_loose, 4},
        {destroy_one, 12}, {change_mr, 2},      {query_one, 1},    {change_cq, 2},      {arm_cq, 4},
        {take_events, 6},  {take_async, 4},     {change_srq, 2},   {walk_states, 12},   {query_state, 4},
        {post_loose, 6},   {wrong_call, 6},     {offer_end, 10},   {answer_end, 30},    {join_end, 30},
        {drain_end, 2},    {break_end, 1},      {post_some, 120},  {post_wrong, 1},     {send_datagram, 10},
        {make_mw, 2},      {make_xrcd, 1},      {make_xrc_srq, 1}, {make_loose_xrc, 2}, {change_window, 20},
        {change_group, 6}, {post_receives, 30}, {post_srq, 10},    {poll_some, 160},    {iwarp_step, 80},
};

static void walk_one_step(struct dice *d)
{
	unsigned sum = 0, at;

	for (size_t i = 0; i < sizeof(steps) / sizeof(*steps); i++)
		sum += steps[i].weight;
	at = roll(d, sum);
	for (size_t i = 0; i < sizeof(steps) / sizeof(*steps); i++) {
		if (at < steps[i].weight) {
			steps[i].step(d);
			return;
		}
		at -= steps[i].weight;
	}
}

static void *walk_thread(void *arg)
{
	struct dice d = {mix(mix(plan.seed, self), (uintptr_t)arg)};

	while (!board->over)
		walk_one_step(&d);
	return NULL;
}

/* --- a process --- */

static unsigned open_descriptors(void)
{
	DIR *dir = opendir("/proc/self/fd");
	unsigned n = 0;

	CHECK(dir);
	while (readdir(dir))
		n++;
	closedir(dir);
	return n;
}

/* The messages that have arrived are polled, so that one that is missing is found. */
static void hear_the_rest(struct dice *d)
{
	bool waits = true;

	while (waits) {
		waits = false;
		for (uint32_t i = 0; i < pool_size(CQ); i++)
			if (pool_at(CQ, i)->alive && !pool_at(CQ, i)->ctx->c.closed)
				waits |= poll_cq_once(d, pool_at(CQ, i));
		for (uint32_t i = 0; i < plan.ends; i++)
			if (pool_at(QP, i)->alive && !pool_at(QP, i)->qp.loose)
				waits |= !end_may_go(end_of(pool_at(QP, i)));
	}
}

static void walk_process(void)
{
	struct dice d = {mix(plan.seed, self)};
	pthread_t threads[64];

	if (plan.iwarp)
		iwarp_init();
	unsigned before = open_descriptors();

	pool_init();
	ends_init();
	for (uintptr_t i = 0; i < plan.threads; i++)
		CHECK(!pthread_create(&threads[i], NULL, walk_thread, (void *)(i + 1)));
	for (unsigned i = 0; i < plan.threads; i++)
		pthread_join(threads[i], NULL);
	for (uint32_t i = 0; i < plan.ends; i++)
		if (pool_at(QP, i)->alive)
			COUNT(last);
	hear_the_rest(&d);
	destroy_all(&d);
	if (plan.iwarp)
		iwarp_end();
	/* closed by another thread, which may take a moment. librdmacm keeps its devices open until the process ends */
	for (uint64_t end = clock_ms() + HARMLESS_MS; !plan.iwarp && open_descriptors() != before;) {
		if (clock_ms() > end)
			CHECK_FAILED("%u descriptors are open, %u were before", open_descriptors(), before);
		usleep(10000);
	}
	exit(0);
}

static void name_host(void)
{
	bool there = plan.other && self % 2;
	char name[16];

	snprintf(name, sizeof(name), "host%u", (plan.other ? self / 2 : self) + (there ? plan.first : 1));
	CHECK(!setenv("VERBENA_NODE", name, 1));
	CHECK(!there || !setenv("VERBENA_FABRIC", plan.other, 1));
}

static pid_t start_process(unsigned number)
{
	pid_t pid = fork();

	CHECK(pid >= 0);
	if (pid)
		return pid;
	self = number;
	prctl(PR_SET_PDEATHSIG, SIGKILL);
	if (getppid() != plan.parent)
		_exit(1);
	if (plan.fabric)
		name_host();
	walk_process();
	_exit(1);
}

/* --- the parent --- */

static pid_t pids[PROCESSES];
static unsigned killed, stopped;
static bool failed;

static void reap(unsigned i, bool was_killed)
{
	int status;

	CHECK(waitpid(pids[i], &status, 0) == pids[i]);
	pids[i] = 0;
	if (was_killed && WIFSIGNALED(status) && WTERMSIG(status) == SIGKILL)
		return;
	if (WIFSIGNALED(status))
		fprintf(stderr, "seed %llu: process %u ended by signal %d\n", (unsigned long long)plan.seed, i,
		        WTERMSIG(status));
	if (!WIFEXITED(status) || WEXITSTATUS(status)) {
		failed = true;
		board->over = true;
	}
}

/* One that ended early has failed. */
static void notice_ends(void)
{
	siginfo_t info = {0};

	if (!waitid(P_ALL, 0, &info, WEXITED | WNOHANG | WNOWAIT) && info.si_pid)
		for (unsigned i = 0; i < plan.processes; i++)
			if (pids[i] == info.si_pid)
				reap(i, false);
}

static void disturb(struct dice *d)
{
	unsigned i = roll(d, plan.processes);

	if (!pids[i])
		return;
	if (one_in(d, 2)) {
		kill(pids[i], SIGSTOP);
		usleep(roll(d, 400000));
		kill(pids[i], SIGCONT);
		stopped++;
	} else {
		atomic_fetch_add(&board->epoch[i], 2); /* its peers may fail from now on */
		atomic_fetch_or(&board->epoch[i], 1);
		kill(pids[i], SIGKILL);
		reap(i, true);
		pids[i] = start_process(i);
		killed++;
	}
}

static void end_all(void)
{
	uint64_t end = clock_ms() + 6 * HARMLESS_MS;

	for (unsigned i = 0; i < plan.processes; i++) {
		while (pids[i] && !failed && clock_ms() < end) {
			notice_ends();
			usleep(20000);
		}
		if (!pids[i])
			continue;
		if (!failed)
			fprintf(stderr, "seed %llu: process %u does not end\n", (unsigned long long)plan.seed, i);
		failed = true;
		if (!getenv("WALK_STAYS"))
			kill(pids[i], SIGKILL);
		reap(i, true);
	}
}

static void say_what_was_done(void)
{
	printf("%llu queue pairs at the end; %llu calls, %llu of them refused as expected, %llu of objects in use; "
	       "%llu connections; %llu messages, %llu writes, %llu atomics, %llu binds and invalidations, %llu by messages, %llu messages to groups, %llu requests that had to fail; %llu events; iWARP: %llu sides joined, %llu requests and messages; %u processes killed, %u stopped\n",
	       (unsigned long long)board->last, (unsigned long long)board->calls, (unsigned long long)board->refused,
	       (unsigned long long)board->busy, (unsigned long long)board->joined, (unsigned long long)board->sent,
	       (unsigned long long)board->written, (unsigned long long)board->atomics,
	       (unsigned long long)board->windows, (unsigned long long)board->invalidated,
	       (unsigned long long)board->casts, (unsigned long long)board->wrong, (unsigned long long)board->events,
	       (unsigned long long)board->iwarp_joined, (unsigned long long)board->iwarp_done, killed, stopped);
}

/* --- arguments --- */

static void usage(void)
{
	fputs("usage: walk [-s SECONDS] [-p PROCESSES] [-t THREADS] [-e ENDS] [-a BYTES] [-f [-o SOCKET,N]] [-i] [-k] [-l] [SEED]\n",
	      stderr);
	exit(2);
}

static uint32_t number_in(const char *text, unsigned long least, unsigned long most)
{
	char *end;
	unsigned long n = strtoul(text, &end, 0);

	if (!*text || *end || n < least || n > most) {
		fprintf(stderr, "walk: %s is not a number from %lu to %lu\n", text, least, most);
		exit(2);
	}
	return (uint32_t)n;
}

__attribute__((noreturn)) static void watch(void)
{
	struct ibv_device **list = ibv_get_device_list(NULL);
	struct ibv_context *ctx = list && list[0] ? ibv_open_device(list[0]) : NULL;

	CHECK(ctx);
	ibv_free_device_list(list);
	puts("ready");
	fflush(stdout);
	while (getchar() != EOF)
		;
	SAME(ibv_close_device(ctx), 0);
	exit(0);
}

static void read_other(char *text)
{
	char *comma = strrchr(text, ',');

	plan.other = text;
	plan.first = number_in(comma ? comma + 1 : "", 2, 1000);
	*comma = 0;
}

static void read_arguments(int argc, char **argv)
{
	int c;

	plan = (struct plan){
	        .seconds = 10, .processes = 3, .threads = 4, .ends = 24, .area = 16384, .parent = getpid()};
	plan.seed = (uint64_t)time(NULL) << 20 ^ (uint64_t)getpid();
	while ((c = getopt(argc, argv, "s:p:t:e:a:o:fiklw")) != -1)
		switch (c) {
		case 's':
			plan.seconds = number_in(optarg, 1, 1000000);
			break;
		case 'p':
			plan.processes = number_in(optarg, 1, PROCESSES);
			break;
		case 't':
			plan.threads = number_in(optarg, 1, 64);
			break;
		case 'e':
			plan.ends = number_in(optarg, 1, END_COUNT);
			break;
		case 'a':
			plan.area = number_in(optarg, 64, 1 << 20) & ~7u;
			break;
		case 'f':
			plan.fabric = true;
			break;
		case 'o':
			read_other(optarg);
			break;
		case 'i':
			plan.iwarp = iwarp_is_possible();
			if (!plan.iwarp)
				puts("there is no interface for iWARP here");
			break;
		case 'k':
			plan.kills = true;
			break;
		case 'l':
			plan.lasts = true;
			break;
		case 'w':
			watch();
		default:
			usage();
		}
	if (argc - optind > 1 || (plan.iwarp && (plan.kills || plan.fabric)))
		usage();
	if (optind < argc)
		plan.seed = strtoull(argv[optind], NULL, 0);
}

int main(int argc, char **argv)
{
	read_arguments(argc, argv);
	struct dice d = {mix(plan.seed, 12345)};
	uint64_t end = clock_ms() + plan.seconds * 1000ull;

	setenv("VERBENA_DEVICES", plan.iwarp ? "roce:lo,iwarp:lo,iwarp:own0" : "roce:lo,iwarp:lo", 1);
	board = mmap(NULL, sizeof(*board), PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
	CHECK(board != MAP_FAILED);
	printf("seed %llu: %u processes of %u threads, %u seconds\n", (unsigned long long)plan.seed, plan.processes,
	       plan.threads, plan.seconds);
	fflush(stdout);
	for (unsigned i = 0; i < plan.processes; i++)
		pids[i] = start_process(i);
	while (clock_ms() < end && !board->over) {
		usleep(50000);
		notice_ends();
		if (plan.kills && one_in(&d, 10))
			disturb(&d);
	}
	board->over = true;
	end_all();
	say_what_was_done();
	return failed;
}
