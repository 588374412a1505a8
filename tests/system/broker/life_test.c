// life_test.c - the life of a broker: started in the background, only one, ends with the last program
// see: src/broker/client/spawn.h, man/verbena-broker.8
// SPDX-License-Identifier: MIT
#include "harness.h"

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <linux/filter.h>
#include <linux/seccomp.h>
#include <pthread.h>
#include <sched.h>
#include <signal.h>
#include <stddef.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/resource.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

/* A zombie that init has not reaped yet does not count. */
static bool runs(pid_t pid)
{
	char path[64], state = 'X';

	snprintf(path, sizeof(path), "/proc/%d/stat", (int)pid);
	FILE *f = fopen(path, "r");
	if (!f)
		return false;
	if (fscanf(f, "%*d %*s %c", &state) != 1) /* reaped just now */
		state = 'X';
	fclose(f);
	return state != 'Z' && state != 'X';
}

static void it_goes_with_the_last_and_leaves_nothing(void)
{
	struct diary a, b;

	join_as(&a, 1);
	join_as(&b, 1);
	pid_t broker = broker_pid();
	leave(&a);
	sleep_ms(400);
	SAME(broker_pid(), broker);
	leave(&b);
	CHECK(wait_gone(LONG_MS));
	for (int ms = 0; ms < LONG_MS && runs(broker); ms += 10)
		sleep_ms(10);
	CHECK(!runs(broker));
	DIR *d = opendir(getenv("VERBENA_RUNTIME"));
	for (struct dirent *e; (e = readdir(d));)
		CHECK(e->d_name[0] == '.' || !strcmp(e->d_name, "log"));
	closedir(d);
}

static void one_that_nobody_came_to_goes_too(void)
{
	pid_t pid = fork();

	if (pid == 0) {
		execl(getenv("VERBENA_BROKER"), "verbena-broker", NULL);
		_exit(127);
	}
	int status;
	waitpid(pid, &status, 0);
	SAME(status, 0);
	CHECK(wait_gone(0));
}

static void a_second_broker_does_not_start(void)
{
	struct diary a;
	int status;

	join_as(&a, 1);
	pid_t pid = fork();
	if (pid == 0) {
		freopen("/dev/null", "w", stderr);
		execl(getenv("VERBENA_BROKER"), "verbena-broker", "--stay", NULL);
		_exit(127);
	}
	waitpid(pid, &status, 0);
	CHECK(WIFEXITED(status) && WEXITSTATUS(status) == 1);
	leave(&a);
}

static void one_that_stays_ends_by_sigterm_without_a_trace(void)
{
	struct diary a;
	int status;
	pid_t pid = fork();

	if (pid == 0) {
		execl(getenv("VERBENA_BROKER"), "verbena-broker", "--stay", NULL);
		_exit(127);
	}
	while (broker_pid() != pid)
		sleep_ms(5);
	join_as(&a, 1);
	SAME(broker_pid(), pid);
	leave(&a);
	sleep_ms(500);
	SAME(broker_pid(), pid);
	kill(pid, SIGTERM);
	waitpid(pid, &status, 0);
	SAME(status, 0);
	CHECK(wait_gone(0));
}

static void twenty_programs_at_once_get_one_broker(void)
{
	enum { N = 20 };
	struct told {
		pid_t broker;
		uint32_t lane;
	} told[N];
	int go[2], back[2], hold[2];
	char byte;

	CHECK(pipe(go) == 0 && pipe(back) == 0 && pipe(hold) == 0);
	for (int i = 0; i < N; i++) {
		if (fork())
			continue;
		struct diary d;
		close(go[1]);
		close(hold[1]);
		CHECK(read(go[0], &byte, 1) == 0);
		join_as(&d, 1);
		struct told t = {broker_pid(), vb_broker_lane_number(d.c)};
		CHECK(write(back[1], &t, sizeof(t)) == sizeof(t));
		CHECK(read(hold[0], &byte, 1) == 0);
		leave(&d);
		_exit(0);
	}
	close(go[1]);
	for (int i = 0; i < N; i++) {
		CHECK(read(back[0], &told[i], sizeof(told[i])) == sizeof(told[i]));
		CHECK(told[i].broker > 0 && told[i].broker == told[0].broker);
		for (int j = 0; j < i; j++)
			CHECK(told[i].lane != told[j].lane);
	}
	close(hold[1]);
	for (int i = 0, status; i < N; i++)
		CHECK(wait(&status) > 0 && status == 0);
}

/* Programs come and go at the moment when the broker ends. */
static void nobody_is_refused_while_it_goes(void)
{
	int status;

	setenv("VERBENA_BROKER_LINGER", "0", 1);
	for (int p = 0; p < 4; p++) {
		if (fork())
			continue;
		for (int i = 0; i < 60; i++) {
			struct diary d;
			join_as(&d, 1);
			leave(&d);
			if (i % 3 == p % 3)
				sleep_ms(i % 5);
		}
		_exit(0);
	}
	for (int p = 0; p < 4; p++)
		CHECK(wait(&status) > 0 && status == 0);
}

static volatile sig_atomic_t child_signals;

static void on_child(int sig)
{
	child_signals++;
}

static void the_program_does_not_notice_its_birth(void)
{
	struct diary a;
	int fds = count_fds(getpid());

	signal(SIGCHLD, on_child);
	errno = 4711;
	join_as(&a, 1);
	SAME(child_signals, 0);
	CHECK(waitpid(-1, NULL, WNOHANG | __WALL) < 0 && errno == ECHILD);
	leave(&a);
	SAME(count_fds(getpid()), fds);
	CHECK(wait_gone(LONG_MS));
	SAME(child_signals, 0);
	CHECK(waitpid(-1, NULL, WNOHANG | __WALL) < 0 && errno == ECHILD);
}

static void read_proc(pid_t pid, const char *name, char *buf, size_t size)
{
	char path[64];

	snprintf(path, sizeof(path), "/proc/%d/%s", (int)pid, name);
	int fd = open(path, O_RDONLY);
	CHECK(fd >= 0);
	ssize_t n = read(fd, buf, size - 1);
	CHECK(n >= 0);
	buf[n] = 0;
	for (ssize_t i = 0; i < n; i++)
		if (!buf[i])
			buf[i] = '\n';
	close(fd);
}

static void check_fds(pid_t broker, ino_t program_pipe)
{
	char path[300], target[300];
	struct stat st;

	snprintf(path, sizeof(path), "/proc/%d/fd", (int)broker);
	DIR *d = opendir(path);
	for (struct dirent *e; (e = readdir(d));) {
		if (e->d_name[0] == '.')
			continue;
		snprintf(path, sizeof(path), "/proc/%d/fd/%s", (int)broker, e->d_name);
		if (!stat(path, &st))
			CHECK(st.st_ino != program_pipe || !S_ISFIFO(st.st_mode));
		ssize_t n = readlink(path, target, sizeof(target) - 1);
		if (n < 0 && errno == ENOENT) /* the connection that asked for its pid is closed by now */
			continue;
		CHECK(n > 0);
		target[n] = 0;
		int fd = atoi(e->d_name);
		if (fd < 2) /* 2 is the log file here */
			CHECK(!strcmp(target, "/dev/null"));
	}
	closedir(d);
}

static void it_inherits_nothing_of_the_program(void)
{
	char buf[16384], cwd[PATH_MAX] = "", path[64];
	struct rlimit lim;
	struct diary a;
	struct stat st;
	int pipe_fd[2];
	sigset_t set;
	cpu_set_t one, its;

	CHECK(pipe(pipe_fd) == 0 && fstat(pipe_fd[0], &st) == 0);
	CHECK(dup2(pipe_fd[1], 1) == 1 && dup2(pipe_fd[1], 700) == 700);
	setenv("LD_LIBRARY_PATH", "/nowhere", 1);
	setenv("SECRET_OF_MINE", "x", 1);
	signal(SIGUSR1, SIG_IGN);
	signal(SIGPIPE, SIG_IGN);
	sigfillset(&set);
	sigprocmask(SIG_BLOCK, &set, NULL);
	CPU_ZERO(&one);
	CPU_SET(0, &one);
	CHECK(sched_setaffinity(0, sizeof(one), &one) == 0);
	CHECK(getrlimit(RLIMIT_NOFILE, &lim) == 0);
	rlim_t hard = lim.rlim_max;
	lim.rlim_cur = 1000;
	CHECK(setrlimit(RLIMIT_NOFILE, &lim) == 0);
	join_as(&a, 1);
	pid_t broker = broker_pid();

	CHECK(getsid(broker) != getsid(0) && getpgid(broker) != getpgid(0));
	snprintf(path, sizeof(path), "/proc/%d/cwd", (int)broker);
	CHECK(readlink(path, cwd, sizeof(cwd)) == 1 && cwd[0] == '/');
	read_proc(broker, "environ", buf, sizeof(buf));
	CHECK(!strstr(buf, "SECRET_OF_MINE") && !strstr(buf, "LD_LIBRARY_PATH") && strstr(buf, "VERBENA_RUNTIME="));
	read_proc(broker, "status", buf, sizeof(buf));
	CHECK(strstr(buf, "SigBlk:\t0000000000004002")); /* INT and TERM: read by signalfd */
	CHECK(strstr(buf, "SigIgn:\t0000000000000000"));
	snprintf(path, sizeof(path), "PPid:\t%d\n", (int)getpid());
	CHECK(!strstr(buf, path));
	CHECK(sched_getaffinity(broker, sizeof(its), &its) == 0);
	CHECK(CPU_COUNT(&its) > 1 || sysconf(_SC_NPROCESSORS_ONLN) == 1);
	CHECK(prlimit(broker, RLIMIT_NOFILE, NULL, &lim) == 0 && lim.rlim_cur == hard);
	check_fds(broker, st.st_ino);
	leave(&a);
}

static void a_pipe_ends_when_its_program_ends(void)
{
	int pipe_fd[2];
	char byte;

	setenv("VERBENA_BROKER_LINGER", "3600000", 1);
	CHECK(pipe(pipe_fd) == 0);
	if (fork() == 0) {
		struct diary a;
		dup2(pipe_fd[1], 1);
		dup2(pipe_fd[1], 2);
		close(pipe_fd[0]);
		join_as(&a, 1);
		_exit(0); /* without DETACH */
	}
	close(pipe_fd[1]);
	CHECK(read(pipe_fd[0], &byte, 1) == 0); /* although the broker stays */
	pid_t broker = broker_pid();
	CHECK(broker > 0);
	kill(broker, SIGTERM);
	CHECK(wait_gone(LONG_MS));
}

static void an_idle_broker_uses_no_processor_time(void)
{
	struct diary a;

	join_as(&a, 1);
	CHECK(wait_idle(broker_pid()));
	leave(&a);
}

/* ---- inside a program ---- */

static void check_inside(void)
{
	struct diary a, b;
	struct program p;

	join_as(&a, 1);
	SAME(broker_pid(), getpid());
	start_program(&p, 2, 0); /* a forked child must hold no descriptor of the broker */
	SAME(broker_pid(), getpid());
	SAME(ask(&a, 1, p.lane, 2), 0);
	CHECK(wait_for(&a, &a.replies, 1, LONG_MS));
	SAME(a.err, 0);
	SAME(a.peer.pid, p.pid);
	end_program(&p, SIGKILL);
	CHECK(wait_lanes(1, LONG_MS));
	leave(&a);
	CHECK(wait_gone(LONG_MS));
	join_as(&b, 1); /* it can be started again */
	SAME(broker_pid(), getpid());
	leave(&b);
	CHECK(wait_gone(LONG_MS));
}

static void without_an_executable_it_runs_inside_the_program(void)
{
	setenv("VERBENA_BROKER", "/nonexistent/verbena-broker", 1);
	int fds = count_fds(getpid());
	check_inside();
	SAME(count_fds(getpid()), fds);
}

static void one_that_dies_at_once_is_replaced_by_a_thread(void)
{
	setenv("VERBENA_BROKER", "/bin/false", 1);
	check_inside();
}

static void where_exec_is_forbidden_it_runs_inside_the_program(void)
{
	struct sock_filter code[] = {
	        BPF_STMT(BPF_LD | BPF_W | BPF_ABS, offsetof(struct seccomp_data, nr)),
	        BPF_JUMP(BPF_JMP | BPF_JEQ | BPF_K, SYS_execve, 0, 1),
	        BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_ERRNO | EPERM),
	        BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_ALLOW),
	};
	struct sock_fprog prog = {.len = 4, .filter = code};

	CHECK(prctl(PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0) == 0);
	if (prctl(PR_SET_SECCOMP, SECCOMP_MODE_FILTER, &prog))
		skip("no seccomp filters here");
	check_inside();
}

static void where_exec_kills_it_runs_inside_the_program(void)
{
	struct sock_filter code[] = {
	        BPF_STMT(BPF_LD | BPF_W | BPF_ABS, offsetof(struct seccomp_data, nr)),
	        BPF_JUMP(BPF_JMP | BPF_JEQ | BPF_K, SYS_execve, 0, 1),
	        BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_KILL_PROCESS),
	        BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_ALLOW),
	};
	struct sock_fprog prog = {.len = 4, .filter = code};
	struct rlimit none = {0};

	setrlimit(RLIMIT_CORE, &none);
	CHECK(prctl(PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0) == 0);
	if (prctl(PR_SET_SECCOMP, SECCOMP_MODE_FILTER, &prog))
		skip("no seccomp filters here");
	check_inside();
}

static void a_program_that_adopts_orphans_has_it_inside(void)
{
	CHECK(prctl(PR_SET_CHILD_SUBREAPER, 1) == 0);
	check_inside();
	CHECK(waitpid(-1, NULL, WNOHANG | __WALL) < 0 && errno == ECHILD);
}

static void when_the_program_with_the_broker_ends_another_takes_over(void)
{
	struct diary a;
	int ready[2];
	char byte;

	CHECK(pipe(ready) == 0);
	pid_t pid = fork();
	if (pid == 0) {
		setenv("VERBENA_BROKER", "/nonexistent/verbena-broker", 1);
		join_as(&a, 1);
		CHECK(write(ready[1], "r", 1) == 1);
		sleep_ms(100000);
	}
	CHECK(read(ready[0], &byte, 1) == 1);
	join_as(&a, 2);
	SAME(broker_pid(), pid);
	uint32_t lane = vb_broker_lane_number(a.c);
	kill(pid, SIGKILL);
	waitpid(pid, NULL, 0);
	CHECK(wait_for(&a, &a.reattached, 1, LONG_MS));
	CHECK(broker_pid() != 0 && broker_pid() != pid && broker_pid() != getpid());
	CHECK(wait_lanes(1, LONG_MS));
	SAME(vb_broker_lane_number(a.c), lane);
	leave(&a);
}

static void a_long_runtime_path_works(void)
{
	char dir[512];

	snprintf(dir, sizeof(dir), "%s/%0120d", getenv("VERBENA_RUNTIME"), 1);
	setenv("VERBENA_RUNTIME", dir, 1);
	struct diary a, b;
	join_as(&a, 1);
	join_as(&b, 1);
	CHECK(wait_lanes(2, LONG_MS));
	leave(&a);
	leave(&b);
	CHECK(wait_gone(LONG_MS));
	setenv("VERBENA_BROKER", "/nonexistent", 1);
	join_as(&a, 1);
	SAME(broker_pid(), getpid());
	leave(&a);
	CHECK(wait_gone(LONG_MS));
}

static void a_relative_runtime_path_works(void)
{
	struct diary a;

	CHECK(chdir(getenv("VERBENA_RUNTIME")) == 0);
	setenv("VERBENA_RUNTIME", "here", 1);
	join_as(&a, 1);
	CHECK(access("here/broker.sock", F_OK) == 0);
	leave(&a);
	CHECK(wait_gone(LONG_MS));
}

static void without_a_named_directory_it_is_found_by_network_namespace(void)
{
	char dir[300], tmp[64], want[400];
	uid_t user = 60000 + (uid_t)getpid() % 5000; /* another test like this one may run */
	struct stat st;
	int status;

	if (geteuid() != 0)
		skip("needs root to be another user");
	if (unshare(CLONE_NEWNET)) /* root's broker of this machine may run, and would be used */
		skip("no network namespaces here");
	CHECK(chmod(getenv("VERBENA_RUNTIME"), 0777) == 0);
	snprintf(dir, sizeof(dir), "%s/xdg", getenv("VERBENA_RUNTIME"));
	snprintf(tmp, sizeof(tmp), "/tmp/verbena-%u", (unsigned)user);
	snprintf(want, sizeof(want), "rm -rf %s %s", tmp, dir);
	CHECK(system(want) == 0); /* left by a test that was killed */
	CHECK(stat("/proc/self/ns/net", &st) == 0);
	unsigned long net = st.st_ino;
	unsetenv("VERBENA_RUNTIME");
	pid_t pid = fork();
	if (pid == 0) {
		struct diary a;
		CHECK(setgid(user) == 0 && setuid(user) == 0);
		CHECK(mkdir(dir, 0700) == 0 && setenv("XDG_RUNTIME_DIR", dir, 1) == 0);
		snprintf(want, sizeof(want), "%s/verbena/broker-%lu.sock", dir, net);
		join_as(&a, 1);
		CHECK(stat(want, &st) == 0 && (st.st_mode & 0777) == 0600);
		leave(&a);
		while (!access(want, F_OK))
			sleep_ms(10);
		/* without XDG_RUNTIME_DIR, with a directory in /tmp that others could have prepared */
		unsetenv("XDG_RUNTIME_DIR");
		CHECK(mkdir(tmp, 0700) == 0);
		CHECK(chmod(tmp, 0777) == 0);
		struct vb_broker_client *c;
		freopen("/dev/null", "w", stderr);
		SAME(vb_broker_connect(&a.fds, &c), EPERM);
		CHECK(rmdir(tmp) == 0);
		join_as(&a, 1);
		CHECK(stat(tmp, &st) == 0 && (st.st_mode & 0777) == 0700);
		snprintf(want, sizeof(want), "%s/broker-%lu.sock", tmp, net);
		CHECK(!access(want, F_OK));
		leave(&a);
		while (!access(want, F_OK))
			sleep_ms(10);
		_exit(0);
	}
	waitpid(pid, &status, 0);
	snprintf(want, sizeof(want), "rm -rf %s %s", tmp, dir);
	CHECK(system(want) == 0);
	SAME(status, 0);
	setenv("VERBENA_RUNTIME", "/tmp", 1);
}

static void a_dead_socket_and_alien_state_do_no_harm(void)
{
	char path[300], junk[70000];
	struct diary a;

	snprintf(path, sizeof(path), "%s/broker.sock.state", getenv("VERBENA_RUNTIME"));
	for (int round = 0; round < 4; round++) {
		memset(junk, round == 0 ? 0 : 0xa5, sizeof(junk));
		int fd = open(path, O_RDWR | O_CREAT | O_TRUNC, 0600);
		CHECK(write(fd, junk, round == 1 ? 10 : round == 2 ? 65536 : sizeof(junk)) > 0);
		close(fd);
		if (round == 3) {
			CHECK(unlink(path) == 0 && symlink("/etc/passwd", path) == 0);
		}
		snprintf(junk, sizeof(junk), "%s/broker.sock", getenv("VERBENA_RUNTIME"));
		fd = open(junk, O_RDWR | O_CREAT, 0600); /* not even a socket */
		close(fd);
		join_as(&a, 1);
		CHECK(wait_lanes(1, LONG_MS));
		leave(&a);
		CHECK(wait_gone(LONG_MS));
	}
}

/* Sets the limit so that n more descriptors can be opened. */
static void leave_room(pid_t pid, int n)
{
	struct rlimit lim;
	char path[64];
	int fd = -1;

	while (n >= 0) {
		snprintf(path, sizeof(path), "/proc/%d/fd/%d", (int)pid, ++fd);
		n -= access(path, F_OK) != 0;
	}
	CHECK(prlimit(pid, RLIMIT_NOFILE, NULL, &lim) == 0);
	lim.rlim_cur = (rlim_t)fd;
	CHECK(prlimit(pid, RLIMIT_NOFILE, &lim, NULL) == 0);
}

static void a_broker_short_of_descriptors_is_asked_again(void)
{
	struct vb_broker_client *c = NULL;
	struct vb_attach_fds fds;
	struct program p;
	int err;

	start_program(&p, 1, 0);
	pid_t broker = broker_pid();
	make_fds(&fds);
	CHECK(wait_idle(broker)); /* it has closed the descriptors of the query */
	leave_room(broker, 4);    /* enough for the socket and its process, not for the descriptors of ATTACH */
	pid_t rescuer = fork();
	if (rescuer == 0) {
		static struct vb_broker_report r;

		while (vb_broker_status(&r) || !(r.counters.refused + r.counters.bad_messages))
			sleep_ms(10);
		leave_room(broker, 100);
		_exit(0);
	}
	err = connect_with(&fds, &c);
	kill(rescuer, SIGKILL);
	SAME(err, 0);
	CHECK(waitpid(rescuer, NULL, 0) == rescuer);
	CHECK(wait_lanes(2, LONG_MS));
	vb_broker_disconnect(c);
	end_program(&p, 0);
}

static const struct test tests[] = {
        {"it goes with the last and leaves only the lock", it_goes_with_the_last_and_leaves_nothing},
        {"one that nobody came to goes too", one_that_nobody_came_to_goes_too},
        {"a second broker does not start", a_second_broker_does_not_start},
        {"one that stays ends by SIGTERM without a trace", one_that_stays_ends_by_sigterm_without_a_trace},
        {"twenty programs at once get one broker", twenty_programs_at_once_get_one_broker},
        {"nobody is refused while it goes", nobody_is_refused_while_it_goes},
        {"the program does not notice its birth", the_program_does_not_notice_its_birth},
        {"it inherits nothing of the program", it_inherits_nothing_of_the_program},
        {"a pipe ends when its program ends", a_pipe_ends_when_its_program_ends},
        {"an idle broker uses no processor time", an_idle_broker_uses_no_processor_time},
        {"without an executable it runs inside the program", without_an_executable_it_runs_inside_the_program},
        {"one that dies at once is replaced by a thread", one_that_dies_at_once_is_replaced_by_a_thread},
        {"where exec is forbidden it runs inside the program", where_exec_is_forbidden_it_runs_inside_the_program},
        {"where exec kills it runs inside the program", where_exec_kills_it_runs_inside_the_program},
        {"a program that adopts orphans has it inside", a_program_that_adopts_orphans_has_it_inside},
        {"when the program with the broker ends another takes over",
         when_the_program_with_the_broker_ends_another_takes_over},
        {"a long runtime path works", a_long_runtime_path_works},
        {"a relative runtime path works", a_relative_runtime_path_works},
        {"without a named directory it is found by network namespace",
         without_a_named_directory_it_is_found_by_network_namespace},
        {"a broker short of descriptors is asked again", a_broker_short_of_descriptors_is_asked_again},
        {"a dead socket and alien state do no harm", a_dead_socket_and_alien_state_do_no_harm},
};

int main(int argc, char **argv)
{
	return run_tests(argc, argv, tests, sizeof(tests) / sizeof(tests[0]));
}
