// spawn.c - starts a broker from inside a program, as a process or as a thread
// follows: clone(2), close_range(2), dladdr(3), getauxval(3)
// SPDX-License-Identifier: MIT
#include "broker/client/spawn.h"

#include <dlfcn.h>
#include <errno.h>
#include <fcntl.h>
#include <pthread.h>
#include <sched.h>
#include <semaphore.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

#include "broker/server/broker.h"
#include "broker/proto/proto.h"
#include "util/calls.h"
#include "util/env.h"
#include "util/log.h"
#include "util/thread_root.h"

#if __has_include("broker/vb_broker_path.h")
#include "broker/vb_broker_path.h" /* VB_BROKER_PATH: where make install puts it */
#endif

#ifndef CLOSE_RANGE_UNSHARE
#define CLOSE_RANGE_UNSHARE (1U << 1)
#endif
#define STACK_BYTES 65536
#define MAX_ENV 64
#define MAX_PATHS 5
#define FIRST_SPARE_FD 16 /* above those that broker_child replaces */
#define MAX_LINGER_MS 3600000

extern char **environ;

/* glibc's clone() by its other name: ThreadSanitizer, with which a program may be built, intercepts clone() and
 * cannot nest it. For the same reason the children make their system calls directly. */
int __clone(int (*fn)(void *), void *stack, int flags, void *arg, ...); /* NOLINT(bugprone-reserved-identifier) */

int vb_spawn_linger_ms(void)
{
	const char *s = vb_env("VERBENA_BROKER_LINGER");
	char *end;
	long v = s ? strtol(s, &end, 10) : -1;

	return !s || !*s || *end || v < 0 || v > MAX_LINGER_MS ? VB_LINGER_MS : (int)v;
}

/* ---- as a process ---- */

/* Everything that the two children need, prepared in advance: they share our memory and must not allocate. */
struct launch {
	char paths[MAX_PATHS][PATH_MAX];
	int npaths;
	char *env[MAX_ENV + 1];
	char *argv[8];
	int lock_fd, ready_fd;
	char *stack;
	bool on_valgrind;
	volatile int err; /* of the last execve; 0 if one succeeded */
};

static void add_path(struct launch *l, const char *dir, size_t dir_len, const char *rest)
{
	if (l->npaths < MAX_PATHS &&
	    (size_t)snprintf(l->paths[l->npaths], PATH_MAX, "%.*s%s", (int)dir_len, dir, rest) < PATH_MAX)
		l->npaths++;
}

/* The file that this code was loaded from. For a library the dynamic linker knows it. For the program itself the
 * linker knows only argv[0], which its caller chooses: there the kernel is asked, but not in a privileged program,
 * whose caller may have hard-linked it into a directory of his own. */
static bool find_own_directory(char real[PATH_MAX])
{
	Dl_info info, program;

	if (!dladdr((void *)vb_spawn_process, &info) || !info.dli_fname)
		return false;
	if (dladdr((void *)getauxval(AT_PHDR), &program) && program.dli_fbase == info.dli_fbase)
		return !vb_env_is_hostile() && realpath("/proc/self/exe", real);
	return realpath(info.dli_fname, real);
}

/* A path in VERBENA_BROKER is the only candidate: if it cannot be started, a thread replaces it. */
static void find_paths(struct launch *l)
{
	const char *named = vb_env("VERBENA_BROKER");
	char real[PATH_MAX];

	if (named && *named) {
		if (realpath(named, real)) /* the broker has another working directory */
			add_path(l, real, strlen(real), "");
		return;
	}
	if (find_own_directory(real)) {
		size_t dir = (size_t)(strrchr(real, '/') - real);
		add_path(l, real, dir, "/verbena-broker");
		add_path(l, real, dir, "/verbena/verbena-broker");
		add_path(l, real, dir, "/../broker/verbena-broker");
	}
#ifdef VB_BROKER_PATH
	add_path(l, VB_BROKER_PATH, strlen(VB_BROKER_PATH), "");
#endif
}

/* A privileged program does not pass on its caller's environment: a broker that it starts may not be able to tell
 * that the environment is hostile. */
static void make_env(struct launch *l)
{
	static char fixed_path[] = "PATH=/usr/sbin:/usr/bin:/sbin:/bin";
	int n = 0;

	if (vb_env_is_hostile()) {
		l->env[0] = fixed_path;
		l->env[1] = NULL;
		return;
	}
	for (char **e = environ; e && *e && n < MAX_ENV; e++)
		if (!strncmp(*e, "VERBENA_", 8) || !strncmp(*e, "PATH=", 5))
			l->env[n++] = *e;
	l->env[n] = NULL;
}

/* Leaves descriptors 0 to 4 open and no others: /dev/null three times, lock, ready. Signals stay blocked until main()
 * resets them. */
__attribute__((no_sanitize("address", "thread", "undefined"))) static int broker_child(void *arg)
{
	struct launch *l = arg;
	int lock = (int)syscall(SYS_fcntl, l->lock_fd, F_DUPFD, FIRST_SPARE_FD);
	int ready = (int)syscall(SYS_fcntl, l->ready_fd, F_DUPFD, FIRST_SPARE_FD);
	int null = (int)syscall(SYS_openat, AT_FDCWD, "/dev/null", O_RDWR);

	if (lock < 0 || ready < 0 || null < 0 || syscall(SYS_chdir, "/")) {
		l->err = errno;
		syscall(SYS_exit_group, 127);
	}
	for (int i = 0; i < 3; i++)
		syscall(SYS_dup3, null, i, 0); /* fails harmlessly if null is i */
	if (syscall(SYS_dup3, lock, 3, 0) < 0 || syscall(SYS_dup3, ready, 4, 0) < 0) {
		l->err = errno;
		syscall(SYS_exit_group, 127);
	}
	syscall(SYS_close_range, 5U, ~0U, 0U); /* main() repeats this for kernels without close_range */
	for (int i = 0; i < l->npaths; i++) {
		l->err = 0;
		syscall(SYS_execve, l->paths[i], l->argv, l->env);
		l->err = errno;
	}
	syscall(SYS_exit_group, 127);
	return 0;
}

/* Valgrind turns a child that shares our memory into one with a copy. When that exits, memcheck looks for leaks in all of
 * its memory, a fault for each word of what a fork leaves out (MADV_DONTFORK): this takes minutes. */
static bool runs_on_valgrind(void)
{
	const char *preload = getenv("LD_PRELOAD");

	return preload && strstr(preload, "/vgpreload_");
}

/* Becomes a program that Valgrind does not follow, and that exits at once. */
static void exit_as_another(struct launch *l)
{
	static char name[] = "verbena-broker", help[] = "--help";
	char *const argv[] = {name, help, NULL};
	int null = (int)syscall(SYS_openat, AT_FDCWD, "/dev/null", O_RDWR);

	for (int i = 0; i < 3; i++)
		syscall(SYS_dup3, null, i, 0);
	for (int i = 0; i < l->npaths; i++)
		syscall(SYS_execve, l->paths[i], argv, l->env);
}

/* The process between the program and the broker exits at once, so init adopts the broker. */
__attribute__((no_sanitize("address", "thread", "undefined"))) static int middle_child(void *arg)
{
	struct launch *l = arg;

	l->err = 0;
	syscall(SYS_setsid);
	if (__clone(broker_child, l->stack + STACK_BYTES, CLONE_VM | CLONE_VFORK, l) < 0)
		l->err = errno;
	if (l->on_valgrind)
		exit_as_another(l);
	syscall(SYS_exit_group, 0);
	return 0;
}

/* Exit signal 0: the program gets no SIGCHLD, and only a wait with __WCLONE or __WALL sees the child. On Valgrind the child
 * has written to a copy of l: if the broker does not come, its end of the pipe says so. */
__attribute__((no_sanitize("address", "thread", "undefined"))) static int launch_process(struct launch *l)
{
	sigset_t all, old;
	int cancel, saved = errno;

	l->err = ENOENT;
	l->on_valgrind = runs_on_valgrind();
	l->stack = mmap(NULL, 2 * STACK_BYTES, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_STACK, -1, 0);
	if (l->stack == MAP_FAILED)
		return ENOMEM;
	vb_cancel_defer(&cancel);
	sigfillset(&all);
	pthread_sigmask(SIG_SETMASK, &all,
	                &old); /* no signal handler of the program may run in a child that shares our memory */
	pid_t pid = __clone(middle_child, l->stack + 2 * STACK_BYTES, CLONE_VM | CLONE_VFORK, l);
	int err = pid < 0 ? errno : l->on_valgrind ? 0 : l->err;
	while (pid > 0 && waitpid(pid, NULL, __WALL) < 0 && errno == EINTR)
		;
	pthread_sigmask(SIG_SETMASK, &old, NULL);
	vb_cancel_restore(cancel);
	munmap(l->stack, 2 * STACK_BYTES);
	errno = saved;
	return err;
}

/* Init or a subreaper adopts orphans: if this process is one, the broker would become its child. */
static bool adopts_orphans(void)
{
	int subreaper = 0;

	return getpid() == 1 || (!prctl(PR_GET_CHILD_SUBREAPER, &subreaper, 0, 0, 0) && subreaper);
}

int vb_spawn_process(const struct vb_runtime *rt, int lock_fd, int *ready_fd)
{
	int pipe_fd[2];

	if (adopts_orphans())
		return ENOTSUP;
	struct launch *l = calloc(1, sizeof(*l));
	if (!l)
		return ENOMEM;
	if (pipe2(pipe_fd, O_CLOEXEC | O_NONBLOCK)) {
		int failed = errno;
		free(l);
		return failed;
	}
	find_paths(l);
	make_env(l);
	l->lock_fd = lock_fd;
	l->ready_fd = pipe_fd[1];
	const char *argv[] = {"verbena-broker",
	                      "--started",
	                      "--dir",
	                      rt->dir,
	                      "--name",
	                      rt->name,
	                      vb_env_is_hostile() ? "--alien-limits" : NULL,
	                      NULL};
	memcpy(l->argv, argv, sizeof(argv));
	int err = l->npaths ? launch_process(l) : ENOENT;
	free(l);
	close(pipe_fd[1]);
	if (err) {
		close(pipe_fd[0]);
		return err;
	}
	*ready_fd = pipe_fd[0];
	return 0;
}

/* ---- as a thread ---- */

static void close_descriptors(unsigned first, unsigned last)
{
	if (first <= last)
		syscall(SYS_close_range, first, last, 0U);
}

struct thread_start {
	struct vb_broker_config config;
	sem_t looked;
	bool own_table; /* valid once looked is posted */
};

/* Gives the thread a descriptor table of its own: children that the program forks inherit nothing of the broker's,
 * and the broker keeps nothing of the program's open. False without close_range: they keep sharing one table. */
static bool isolate_descriptors(int keep_a, int keep_b)
{
	unsigned low = (unsigned)(keep_a < keep_b ? keep_a : keep_b),
	         high = (unsigned)(keep_a < keep_b ? keep_b : keep_a);

	if (syscall(SYS_close_range, ~0U, ~0U, CLOSE_RANGE_UNSHARE))
		return false;
	if (low > 0)
		close_descriptors(0, low - 1);
	close_descriptors(low + 1, high - 1);
	close_descriptors(high + 1, ~0U);
	/* fill 0 to 2: the broker's descriptors must not take the place of standard error, where log lines go */
	for (int fd; (fd = open("/dev/null", O_RDWR | O_CLOEXEC)) >= 0;) {
		if (fd > 2) {
			close(fd);
			break;
		}
	}
	return true;
}

static void *broker_thread(void *arg)
{
	struct thread_start *start = arg;
	struct vb_broker_config config = start->config;

	VB_THREAD_ROOT();
	pthread_setname_np(pthread_self(), "verbena-broker");
	start->own_table = isolate_descriptors(config.lock_fd, config.ready_fd);
	sem_post(&start->looked); /* the creator frees start after this */
	vb_broker_run(&config);
	return NULL;
}

/* The thread runs this library's code until the last program has left: dlclose must not unmap it. */
static void pin_library(void)
{
	Dl_info info;
	void *self = NULL;

	if (dladdr((void *)vb_spawn_thread, &info) && info.dli_fname)
		self = dlopen(info.dli_fname, RTLD_NOW | RTLD_NOLOAD | RTLD_NODELETE);
	if (self)
		dlclose(self);
}

static int create_thread(struct thread_start *start)
{
	pthread_attr_t attr;
	sigset_t all, old;
	pthread_t thread;

	pthread_attr_init(&attr);
	pthread_attr_setdetachstate(&attr, PTHREAD_CREATE_DETACHED);
	sigfillset(&all);
	pthread_sigmask(SIG_SETMASK, &all, &old);
	int err = pthread_create(&thread, &attr, broker_thread, start);
	pthread_sigmask(SIG_SETMASK, &old, NULL);
	pthread_attr_destroy(&attr);
	return err;
}

int vb_spawn_thread(const struct vb_runtime *rt, int lock_fd, int *ready_fd)
{
	struct thread_start *start = calloc(1, sizeof(*start));
	int pipe_fd[2] = {-1, -1}, err = 0, lock = fcntl(lock_fd, F_DUPFD_CLOEXEC, 3);

	if (!start || lock < 0 || pipe2(pipe_fd, O_CLOEXEC | O_NONBLOCK)) {
		err = start ? errno : ENOMEM;
	} else {
		start->config = (struct vb_broker_config){.rt = *rt,
		                                          .lock_fd = lock,
		                                          .ready_fd = pipe_fd[1],
		                                          .stop_fd = -1,
		                                          .linger_ms = vb_spawn_linger_ms(),
		                                          .lanes = VB_LANES_INSIDE};
		sem_init(&start->looked, 0, 0);
		pin_library();
		err = create_thread(start);
		while (!err && sem_wait(&start->looked) && errno == EINTR)
			;
	}
	if (err && pipe_fd[0] >= 0)
		close(pipe_fd[0]);
	/* with a shared table these two belong to the thread now */
	if (pipe_fd[1] >= 0 && (err || start->own_table))
		close(pipe_fd[1]);
	if (lock >= 0 && (err || start->own_table))
		close(lock);
	free(start);
	if (!err)
		*ready_fd = pipe_fd[0];
	return err;
}
