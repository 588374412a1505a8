// storm.c - hostile programs of several users do random things to broker and keeper, beside honest ones that must be
// served all the time; afterwards nothing of the hostile ones may remain
// see: src/broker/proto/proto.h; SECURITY.md
// SPDX-License-Identifier: MIT
//
// storm [SECONDS [SEED [ATTACKER]]]: ATTACKER: one attacker alone repeats what it does beside the others, as far as the
// broker's answers allow.
#include "storm.h"

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <grp.h>
#include <signal.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#if defined(__SANITIZE_ADDRESS__) || defined(__SANITIZE_THREAD__)
#define SANITIZED true
#else
#define SANITIZED false
#endif
#define HONEST_UID 47120
#define ATTACKERS 6
#define SPARE_KIB (48 << 10) /* malloc keeps the memory of waiting MADs; LeakSanitizer is more exact */
#define SPARE_FDS 2          /* the broker's sending sockets for MADs, IPv4 and IPv6, are created on demand and kept */
#define BACK_MS 60000        /* peers of the connections of dead programs are told for some 25 s */

static const uid_t uids[ATTACKERS] = {65534, 65534, 47121, 47121, 47122, 47123};

struct size {
	int fds, threads;
	long kib;
};

static char dir[] = "/tmp/vb-storm-XXXXXX", log_path[64];
static pid_t broker, keeper, pairs[2], attackers[ATTACKERS];

/* ---- memory and descriptors of a process ---- */

static struct size size_of(pid_t pid)
{
	struct size s = {.fds = count_fds(pid)};
	char path[64], line[128];

	snprintf(path, sizeof(path), "/proc/%d/status", (int)pid);
	FILE *f = fopen(path, "re");
	while (f && fgets(line, sizeof(line), f)) {
		sscanf(line, "VmRSS: %ld kB", &s.kib);
		sscanf(line, "Threads: %d", &s.threads);
	}
	if (f)
		fclose(f);
	return s;
}

static void print_open(pid_t pid)
{
	char path[64], target[128];

	for (int fd = 0; fd < 4096; fd++) {
		snprintf(path, sizeof(path), "/proc/%d/fd/%d", (int)pid, fd);
		ssize_t n = readlink(path, target, sizeof(target) - 1);
		if (n > 0)
			fprintf(stderr, "%d %.*s\n", fd, (int)n, target);
	}
}

static bool is_back(struct size before, struct size now)
{
	return now.fds <= before.fds + SPARE_FDS && now.threads <= before.threads &&
	       (SANITIZED || now.kib <= before.kib + SPARE_KIB);
}

static bool check_back(const char *who, pid_t pid, struct size before)
{
	int64_t until = now_ms() + BACK_MS;
	struct size now;

	while (!is_back(before, now = size_of(pid)) && now_ms() < until)
		sleep_ms(100);
	printf("# %s: %d descriptors (%d before), %d threads (%d), %ld KiB (%ld)\n", who, now.fds, before.fds,
	       now.threads, before.threads, now.kib, before.kib);
	if (is_back(before, now))
		return true;
	fprintf(stderr, "the %s is not as it was; it has open:\n", who);
	print_open(pid);
	return false;
}

/* ---- beginning ---- */

static void become(uid_t uid)
{
	if (setgroups(0, NULL) || setresgid(uid, uid, uid) || setresuid(uid, uid, uid))
		_exit(2);
}

static void start_broker(void)
{
	const char *path = getenv("VERBENA_BROKER");
	struct stat st;
	char sock[64];

	CHECK(path && mkdtemp(dir) && !chmod(dir, 0755));
	setenv("VERBENA_RUNTIME", dir, 1);
	snprintf(log_path, sizeof(log_path), "%s/log", dir);
	snprintf(sock, sizeof(sock), "%s/broker.sock", dir);
	broker = fork();
	if (broker == 0) {
		int fd = open(log_path, O_WRONLY | O_CREAT | O_APPEND, 0600);

		dup2(fd, STDERR_FILENO);
		execl(path, "verbena-broker", "--dir", dir, "--name", "broker.sock", NULL);
		_exit(127);
	}
	for (int64_t until = now_ms() + LONG_MS; stat(sock, &st) && now_ms() < until;)
		sleep_ms(5);
}

static void start_honest(void)
{
	int ready[2];
	char byte;

	CHECK(!pipe2(ready, O_CLOEXEC));
	for (int i = 0; i < 2; i++) {
		pairs[i] = fork();
		if (pairs[i])
			continue;
		if (i)
			become(HONEST_UID);
		be_honest(i, ready[1]);
	}
	close(ready[1]);
	for (int i = 0; i < 2; i++)
		if (read(ready[0], &byte, 1) != 1)
			fprintf(stderr, "an honest pair has not come as far as that\n");
	close(ready[0]);
}

/* Runs lives one after the other, each with its own seed. */
__attribute__((noreturn)) static void be_attacker(int number, uint64_t seed)
{
	struct dice dice = {.state = seed * ATTACKERS + (uint64_t)number};

	setpgid(0, 0);
	become(uids[number]);
	prctl(PR_SET_PDEATHSIG, SIGKILL);
	if (number == ATTACKERS - 1)
		listen_to_nobody();
	for (;;) {
		uint64_t life = roll(&dice);
		int status;
		pid_t pid = fork();

		if (pid == 0)
			attack(life);
		waitpid(pid, &status, 0);
		if (WIFSIGNALED(status) && WTERMSIG(status) != SIGKILL) {
			leaked("an attacker has crashed: a defect of this test");
			_exit(1);
		}
	}
}

static void start_attackers(uint64_t seed, int only)
{
	for (int i = 0; i < ATTACKERS; i++) {
		if (only >= 0 && i != only)
			continue;
		attackers[i] = fork();
		if (!attackers[i])
			be_attacker(i, seed);
		setpgid(attackers[i], attackers[i]);
	}
}

/* ---- the end ---- */

static bool is_running(pid_t *pid)
{
	int status;

	if (*pid <= 0 || waitpid(*pid, &status, WNOHANG) != *pid)
		return *pid > 0;
	*pid = -1;
	return false;
}

static bool all_run(void)
{
	bool ok = true;

	if (!is_running(&broker) || keeper_pid() != keeper) {
		fprintf(stderr, "broker or keeper has ended\n");
		ok = false;
	}
	for (int i = 0; i < 2; i++)
		ok &= is_running(&pairs[i]);
	return ok && !news->leaks;
}

static void kill_attackers(void)
{
	for (int i = 0; i < ATTACKERS; i++)
		if (attackers[i] > 0)
			kill(-attackers[i], SIGKILL);
	for (int i = 0; i < ATTACKERS; i++)
		if (attackers[i] > 0)
			waitpid(attackers[i], NULL, 0);
}

static bool check_lanes(uint32_t want)
{
	if (wait_lanes(want, LONG_MS))
		return true;
	fprintf(stderr, "%u lanes are held, not %u\n", lanes_held(), want);
	return false;
}

static bool end_honest(void)
{
	bool ok = true;

	for (int i = 0; i < 2; i++) {
		int status = 1;

		if (pairs[i] > 0) {
			kill(pairs[i], SIGTERM);
			waitpid(pairs[i], &status, 0);
		}
		ok &= WIFEXITED(status) && !WEXITSTATUS(status);
	}
	return ok;
}

static bool check_gone(void)
{
	int64_t until = now_ms() + BACK_MS;
	int status;

	while (now_ms() < until && waitpid(broker, &status, WNOHANG) == 0)
		sleep_ms(10);
	if (now_ms() >= until || !WIFEXITED(status) || WEXITSTATUS(status) || !wait_no_keeper(LONG_MS)) {
		fprintf(stderr, "broker or keeper does not go, or not well\n");
		return false;
	}
	broker = -1;
	return true;
}

static bool check_log(void)
{
	char line[4096];
	FILE *f = fopen(log_path, "re");
	bool silent = true;

	while (f && fgets(line, sizeof(line), f)) {
		fputs(line, stderr);
		silent = false;
	}
	if (f)
		fclose(f);
	unlink(log_path);
	return silent;
}

static void clean_up(void)
{
	static const char *const files[] = {"broker.sock", "broker.sock.lock", "broker.sock.state"};
	char path[96];

	kill_attackers();
	for (int i = 0; i < 2; i++)
		if (pairs[i] > 0)
			kill(pairs[i], SIGKILL);
	if (broker > 0)
		kill(broker, SIGKILL);
	for (size_t i = 0; i < sizeof(files) / sizeof(files[0]); i++) {
		snprintf(path, sizeof(path), "%s/%s", dir, files[i]);
		unlink(path);
	}
	rmdir(dir);
}

/* ---- the storm ---- */

/* Starts or stops this. */
static void third_programs(void)
{
	for (int i = 0; i < 2; i++)
		if (pairs[i] > 0)
			kill(pairs[i], SIGUSR1);
}

static bool storm(int seconds, uint64_t seed, int only)
{
	start_broker();
	start_honest();
	keeper = keeper_pid();
	struct size b = size_of(broker), k = size_of(keeper);
	int64_t until = now_ms() + seconds * 1000ll;
	bool ok = all_run();

	third_programs();
	start_attackers(seed, only);
	while (ok && now_ms() < until) {
		sleep_ms(200);
		ok = all_run();
	}
	kill_attackers();
	printf("# %lu moves in %lu lives; root's pair did %lu rounds, another user's %lu; the slowest step took %lu ms "
	       "(%s)\n",
	       (unsigned long)news->moves, (unsigned long)news->lives, (unsigned long)news->rounds[0],
	       (unsigned long)news->rounds[1], (unsigned long)news->slowest_ms, news->slowest);
	if (news->leaks)
		fprintf(stderr, "%d times what must not be, first: %s\n", news->leaks, news->leak);
	third_programs();
	ok = ok && check_back("broker", broker, b) && check_back("keeper", keeper, k) && check_lanes(4) && all_run();
	ok &= end_honest();
	return ok && check_gone();
}

int main(int argc, char **argv)
{
	int seconds = argc > 1 ? atoi(argv[1]) : 20, only = argc > 3 ? atoi(argv[3]) : -1;
	uint64_t seed = argc > 2 ? strtoull(argv[2], NULL, 0) : (uint64_t)time(NULL);

	setvbuf(stdout, NULL, _IOLBF, 0);
	if (geteuid()) {
		fprintf(stderr, "skipped: only root can be several users\n");
		return SKIPPED;
	}
	own_network();
	signal(SIGPIPE, SIG_IGN);
	news = mmap(NULL, sizeof(*news), PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
	CHECK(news != MAP_FAILED);
	printf("# storm: %d s, seed %llu\n", seconds, (unsigned long long)seed);
	bool ok = storm(seconds, seed, only);

	ok &= check_log();
	clean_up();
	printf("%s broker and keeper serve the honest, and nothing is left of the others (seed %llu)\n",
	       ok ? "ok" : "not ok", (unsigned long long)seed);
	return !ok;
}
