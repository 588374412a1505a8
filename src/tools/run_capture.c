// run_capture.c - verbena run --capture: records the frames of the program and of its children
// follows: verbena-run(1), wait(2)
// SPDX-License-Identifier: MIT
#include "tools/run_capture.h"

#include <errno.h>
#include <signal.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

#include "tools/collect.h"
#include "tools/verbena.h"

#define CAPTURE_FAILED 125

static pid_t child;

/* The terminal sends SIGINT to the program too, which decides whether it ends. */
static void pass_on(int signal)
{
	if (child > 0)
		kill(child, signal);
}

/* Returns what the signals did before, for the program. */
static void take_signals(struct sigaction before[4])
{
	struct sigaction ignore = {.sa_handler = SIG_IGN}, pass = {.sa_handler = pass_on, .sa_flags = SA_RESTART};

	sigaction(SIGINT, &ignore, &before[0]);
	sigaction(SIGQUIT, &ignore, &before[1]);
	sigaction(SIGPIPE, &ignore, &before[2]);
	sigaction(SIGXFSZ, &ignore, &before[3]);
	sigaction(SIGTERM, &pass, NULL);
	sigaction(SIGHUP, &pass, NULL);
}

static int start_program(char **argv, int (*exec_program)(char **argv))
{
	struct sigaction before[4];

	take_signals(before);
	child = fork();
	if (child)
		return child < 0 ? errno : 0;
	signal(SIGTERM, SIG_DFL);
	signal(SIGHUP, SIG_DFL);
	sigaction(SIGINT, &before[0], NULL);
	sigaction(SIGQUIT, &before[1], NULL);
	sigaction(SIGPIPE, &before[2], NULL);
	sigaction(SIGXFSZ, &before[3], NULL);
	_exit(exec_program(argv));
}

/* Returns the exit status. If the capture has ended, goes on to wait for the program. */
static int collect_until_end(struct cap_collector *c)
{
	int status, wait_for = WNOHANG;
	pid_t ended;

	while (!(ended = waitpid(child, &status, wait_for)) || (ended < 0 && errno == EINTR))
		if (!cap_step(c, 20))
			wait_for = 0;
	return ended < 0 ? CAPTURE_FAILED : WIFSIGNALED(status) ? 128 + WTERMSIG(status) : WEXITSTATUS(status);
}

int run_captured(const char *file, char **argv, int (*exec_program)(char **argv))
{
	const struct cap_options o = {.command = "run", .file = file};
	struct cap_collector *c = cap_new(&o);
	const char *path = c ? cap_listen(c) : NULL;
	int status = CAPTURE_FAILED;

	if (path && !setenv("VERBENA_CAPTURE", path, 1)) {
		int err = start_program(argv, exec_program);

		if (err)
			cmd_complain("run", "%s: %s", argv[0], strerror(err));
		else
			status = collect_until_end(c);
	}
	if (c && !cap_end(c) && !status)
		status = CAPTURE_FAILED;
	return status;
}
