// main.c - the broker as a process of its own
// follows: verbena-broker(8)
// SPDX-License-Identifier: MIT
#include "broker/server/broker.h"
#include "broker/server/confine.h"
#include "broker/client/spawn.h"

#include <errno.h>
#include <fcntl.h>
#include <getopt.h>
#include <sched.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>
#include <sys/signalfd.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <unistd.h>

#include "util/env.h"
#include "util/log.h"
#include "util/settings.h"

enum { LOCK_FD = 3, READY_FD = 4 }; /* with --started: see client/spawn.c */
enum { ROOT_FILES = 524288 };       /* the limit of systemd's services */

struct options {
	bool stay, started;
	bool alien_limits; /* the resource limits were set by a user with fewer rights than ours */
	const char *dir, *name;
};

static int print_usage(FILE *to)
{
	fputs("usage: verbena-broker [--stay] [--dir DIRECTORY] [--name SOCKET]\n"
	      "Programs start it by themselves; --stay is for a system service.\n",
	      to);
	return to == stderr ? 2 : 0;
}

static int parse_options(int argc, char **argv, struct options *o)
{
	static const struct option longs[] = {
	        {"stay", no_argument, NULL, 's'},
	        {"started", no_argument, NULL, 'S'},
	        {"alien-limits", no_argument, NULL, 'a'},
	        {"dir", required_argument, NULL, 'd'},
	        {"name", required_argument, NULL, 'n'},
	        {"help", no_argument, NULL, 'h'},
	        {0},
	};

	for (int c; (c = getopt_long(argc, argv, "h", longs, NULL)) != -1;) {
		switch (c) {
		case 's':
			o->stay = true;
			break;
		case 'S':
			o->started = true;
			break;
		case 'a':
			o->alien_limits = true;
			break;
		case 'd':
			o->dir = optarg;
			break;
		case 'n':
			o->name = optarg;
			break;
		case 'h':
			exit(print_usage(stdout));
		default:
			return print_usage(stderr);
		}
	}
	return optind == argc ? 0 : print_usage(stderr);
}

/* Undoes what the program that started us had set up for itself. The nice value stays, except for a broker that
 * serves all users (replace_alien_limits). */
static void reset_signals(void)
{
	static const char by_default[64]; /* an all-zero struct sigaction of the kernel: SIG_DFL */
	sigset_t none;

	/* not with signal(3), which excludes the two signals that libc reserves: some programs start others with
	 * these ignored */
	for (int sig = 1; sig < NSIG; sig++)
		syscall(SYS_rt_sigaction, sig, by_default, NULL, 8);
	sigemptyset(&none);
	sigprocmask(SIG_SETMASK, &none, NULL);
}

/* Raises hard limits that the caller of a set-user-ID program may have lowered. */
static void replace_alien_limits(void)
{
	static const int unlimited[] = {RLIMIT_AS, RLIMIT_DATA, RLIMIT_CPU, RLIMIT_FSIZE};
	const struct rlimit none = {RLIM_INFINITY, RLIM_INFINITY}, files = {ROOT_FILES, ROOT_FILES};
	struct rlimit lim;

	for (size_t i = 0; i < sizeof(unlimited) / sizeof(unlimited[0]); i++)
		setrlimit(unlimited[i], &none);
	if (!getrlimit(RLIMIT_NOFILE, &lim) && lim.rlim_max < ROOT_FILES)
		setrlimit(RLIMIT_NOFILE, &files);
	setpriority(PRIO_PROCESS, 0, 0);
}

static void reset_limits(void)
{
	static const int raised[] = {RLIMIT_NOFILE, RLIMIT_AS, RLIMIT_DATA, RLIMIT_CPU, RLIMIT_FSIZE};
	struct rlimit lim;

	for (size_t i = 0; i < sizeof(raised) / sizeof(raised[0]); i++) {
		if (getrlimit(raised[i], &lim))
			continue;
		lim.rlim_cur = lim.rlim_max; /* each program needs five descriptors */
		setrlimit(raised[i], &lim);
	}
}

static void reset_scheduling(void)
{
	struct sched_param param = {0};
	cpu_set_t all;

	memset(&all, 0xff, sizeof(all));
	sched_setaffinity(0, sizeof(all), &all);
	if (sched_getscheduler(0) != SCHED_OTHER)
		sched_setscheduler(0, SCHED_OTHER, &param);
}

static void reset_descriptors(const struct options *o)
{
	if (!o->started)
		return; /* a shell's or a service manager's descriptors are meant for us */
	if (syscall(SYS_close_range, READY_FD + 1, ~0U, 0U)) {
		long max = sysconf(_SC_OPEN_MAX);
		for (int fd = READY_FD + 1; fd < (max > 0 ? max : 1024); fd++)
			close(fd);
	}
	fcntl(LOCK_FD, F_SETFD, FD_CLOEXEC);
	fcntl(READY_FD, F_SETFD, FD_CLOEXEC);
}

/* Standard error of a broker that a program started: a regular file of our user alone. Non-blocking, because open
 * would wait for the reader of a FIFO. */
static void open_log(const struct options *o)
{
	const char *log = o->started ? vb_env("VERBENA_BROKER_LOG") : NULL;
	int fd = log ? open(log, O_WRONLY | O_CREAT | O_APPEND | O_NOFOLLOW | O_NONBLOCK | O_NOCTTY | O_CLOEXEC, 0600)
	             : -1;
	struct stat st;

	if (fd < 0)
		return;
	if (!fstat(fd, &st) && S_ISREG(st.st_mode) && st.st_uid == geteuid() && st.st_nlink == 1)
		dup2(fd, STDERR_FILENO);
	close(fd);
}

/* A set-user-ID program starts us with two users' rights: keep those of the effective user, which our sockets show. A
 * broker serves all programs of its user, so a set-group-ID program's group is dropped. */
static int reset_user(void)
{
	uid_t me = geteuid();
	gid_t group = getuid() == me ? getgid() : getegid();

	if (setresgid(group, group, group) || setresuid(me, me, me))
		return errno;
	return 0;
}

static int stop_signals(void)
{
	sigset_t set;

	sigemptyset(&set);
	sigaddset(&set, SIGTERM);
	sigaddset(&set, SIGINT);
	sigprocmask(SIG_BLOCK, &set, NULL);
	return signalfd(-1, &set, SFD_CLOEXEC | SFD_NONBLOCK);
}

static int set_runtime(struct vb_runtime *rt, const struct options *o)
{
	int err = vb_runtime_own(rt);

	if (!o->dir && !o->name)
		return err;
	/* programs pass both --dir and --name: the name "broker.sock" tells that VERBENA_RUNTIME named the directory, and
	 * for the broker of one network namespace the variable itself does */
	rt->explicit_dir = o->dir && (!o->name || !strcmp(o->name, "broker.sock") || rt->explicit_dir);
	if (o->dir && (size_t)snprintf(rt->dir, sizeof(rt->dir), "%s", o->dir) >= sizeof(rt->dir))
		return ENAMETOOLONG;
	if (o->name && (size_t)snprintf(rt->name, sizeof(rt->name), "%s", o->name) >= sizeof(rt->name))
		return ENAMETOOLONG;
	return strchr(rt->name, '/') ? EINVAL : 0;
}

static bool is_other_users_dir(const char *dir)
{
	struct stat st;

	return !stat(dir, &st) && st.st_uid != geteuid();
}

int main(int argc, char **argv)
{
	static struct vb_broker_config config;
	struct options o = {0};

	if (parse_options(argc, argv, &o))
		return 2;
	reset_descriptors(&o);
	reset_signals();
	int err = reset_user();
	if (!err && o.alien_limits && geteuid() == 0)
		replace_alien_limits();
	reset_limits();
	reset_scheduling();
	if (!err)
		open_log(&o);
	if (!o.started) /* otherwise the program names them */
		vb_settings_check();
	if (!err)
		err = set_runtime(&config.rt, &o);
	config.lock_fd = o.started ? LOCK_FD : -1;
	config.ready_fd = o.started ? READY_FD : -1;
	config.stop_fd = stop_signals();
	config.linger_ms = vb_spawn_linger_ms();
	config.stay = o.stay;
	config.lanes = VB_LANES_KEEPER;
	vb_confine_broker(is_other_users_dir(config.rt.dir));
	if (!err)
		err = vb_broker_run(&config);
	if (err)
		vb_log(VB_LOG_ERROR, "verbena-broker: %s/%s: %s", config.rt.dir, config.rt.name,
		       err == EADDRINUSE ? "another broker serves there" : strerror(err));
	return err ? 1 : 0;
}
