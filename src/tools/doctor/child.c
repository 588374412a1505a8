// child.c - a check in a process of its own: it may hang or be killed, and the report goes on
// follows: waitpid(2), poll(2)
// SPDX-License-Identifier: MIT
#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#include "tools/doctor/doctor.h"
#include "tools/progress.h"

#define OUTPUT_MAX (1 << 20)
#define PROGRAM_MS 3000

int64_t doc_now_us(void)
{
	struct timespec ts;

	clock_gettime(CLOCK_MONOTONIC, &ts);
	return (int64_t)ts.tv_sec * 1000000 + ts.tv_nsec / 1000;
}

bool doc_child_start(struct doc_child *c, int (*fn)(int out, void *arg), void *arg)
{
	int out[2], err[2];
	pid_t parent = getpid();

	*c = (struct doc_child){.pid = -1, .out = -1, .err = -1, .status = -1};
	if (pipe2(out, O_CLOEXEC))
		return false;
	if (pipe2(err, O_CLOEXEC)) {
		close(out[0]);
		close(out[1]);
		return false;
	}
	fflush(stdout);
	c->pid = fork();
	if (!c->pid) {
		prctl(PR_SET_PDEATHSIG, SIGKILL);
		dup2(err[1], STDERR_FILENO);
		if (getppid() == parent)
			_exit(fn(out[1], arg));
		_exit(127);
	}
	close(out[1]);
	close(err[1]);
	c->out = out[0];
	c->err = err[0];
	return c->pid > 0;
}

/* Reads what there is. What does not fit is dropped. Closes the descriptor at its end. */
static void collect_text(int *fd, char *text, size_t size, size_t *n)
{
	char rest[256];
	bool full = *n + 1 >= size;
	ssize_t got = read(*fd, full ? rest : text + *n, full ? sizeof(rest) : size - 1 - *n);

	if (got < 0 && errno == EINTR)
		return;
	if (got <= 0) {
		close(*fd);
		*fd = -1;
	} else if (!full) {
		*n += (size_t)got;
	}
}

/* Notes the end of a child. The broker that it started may keep its pipe open, so the pipe's end is not waited for. */
static bool has_ended(struct doc_child *c)
{
	int status;

	if (c->pid <= 0)
		return true;
	if (waitpid(c->pid, &status, WNOHANG) != c->pid)
		return false;
	c->status = WIFEXITED(status) ? WEXITSTATUS(status) : 128 + WTERMSIG(status);
	c->pid = 0;
	return true;
}

static void read_children(struct doc_child *c, int n, int ms)
{
	struct pollfd p[16];
	int n_poll = 0;

	for (int i = 0; i < n && n_poll < 14; i++) {
		p[n_poll++] = (struct pollfd){.fd = c[i].out, .events = POLLIN};
		p[n_poll++] = (struct pollfd){.fd = c[i].err, .events = POLLIN};
	}
	if (poll(p, (nfds_t)n_poll, ms) <= 0)
		return;
	for (int i = 0; 2 * i + 1 < n_poll; i++) {
		if (c[i].out >= 0 && p[2 * i].revents)
			collect_text(&c[i].out, c[i].said, sizeof(c[i].said), &c[i].n_said);
		if (c[i].err >= 0 && p[2 * i + 1].revents)
			collect_text(&c[i].err, c[i].complaint, sizeof(c[i].complaint), &c[i].n_complaint);
	}
}

static void close_pipe(int *fd)
{
	if (*fd >= 0)
		close(*fd);
	*fd = -1;
}

void doc_children_end(struct doc_child *c, int n, int ms, const char *what)
{
	int64_t began = doc_now_us(), us = 0;
	bool all;

	cmd_progress_begin();
	do {
		read_children(c, n, 20);
		all = true;
		for (int i = 0; i < n; i++)
			all &= has_ended(&c[i]);
		us = doc_now_us() - began;
		if (!all && what)
			cmd_progress_show("... %s, %d s", what, (int)(us / 1000000));
	} while (!all && us < (int64_t)ms * 1000);
	cmd_progress_clear();
	read_children(c, n, 0);
	for (int i = 0; i < n; i++) {
		if (!has_ended(&c[i])) {
			kill(c[i].pid, SIGKILL);
			waitpid(c[i].pid, NULL, 0);
			c[i].status = -1;
			c[i].pid = 0;
		}
		close_pipe(&c[i].out);
		close_pipe(&c[i].err);
	}
}

int doc_child_run(struct doc_child *c, int (*fn)(int out, void *arg), void *arg, int ms, const char *what)
{
	if (!doc_child_start(c, fn, arg))
		return -1;
	doc_children_end(c, 1, ms, what);
	return c->status;
}

const char *doc_child_complaint(struct doc_child *c)
{
	char *text = c->complaint;

	if (!strncmp(text, "verbena: ", 9))
		text += 9;
	text[strcspn(text, "\n")] = '\0';
	return text;
}

/* --- programs --- */

static void exec_first(const char *const paths[], const char *const argv[], int out)
{
	int null = open("/dev/null", O_RDWR | O_CLOEXEC);

	if (null >= 0) {
		dup2(null, STDIN_FILENO);
		dup2(null, STDERR_FILENO);
	}
	dup2(out, STDOUT_FILENO);
	prctl(PR_SET_PDEATHSIG, SIGKILL);
	for (; *paths; paths++)
		execv(*paths, (char *const *)argv);
	_exit(127);
}

/* Reads until the end, or the limit of time or size. */
static char *read_output(int fd)
{
	int64_t until = doc_now_us() + PROGRAM_MS * 1000;
	char *text = malloc(OUTPUT_MAX);
	size_t n = 0;

	while (text && n < OUTPUT_MAX - 1) {
		struct pollfd p = {.fd = fd, .events = POLLIN};
		int64_t left = until - doc_now_us();

		if (left <= 0 || poll(&p, 1, (int)(left / 1000) + 1) <= 0)
			break;
		ssize_t got = read(fd, text + n, OUTPUT_MAX - 1 - n);

		if (got <= 0)
			break;
		n += (size_t)got;
	}
	if (text)
		text[n] = '\0';
	return text;
}

char *doc_output_of(const char *const paths[], const char *const argv[])
{
	int out[2], status;

	if (pipe2(out, O_CLOEXEC))
		return NULL;
	fflush(stdout);
	pid_t pid = fork();
	if (!pid)
		exec_first(paths, argv, out[1]);
	close(out[1]);
	char *text = pid > 0 ? read_output(out[0]) : NULL;

	close(out[0]);
	if (pid <= 0)
		return text;
	struct timespec pause = {0, 10000000};

	for (int i = 0; waitpid(pid, &status, WNOHANG) != pid; i++) {
		if (i == PROGRAM_MS / 10)
			kill(pid, SIGKILL);
		nanosleep(&pause, NULL);
	}
	if (status) {
		free(text);
		return NULL;
	}
	return text;
}
