// program.c - what verbena-target and verbena-srp-target have in common: numbers of the command line, signals, loop and ring
// follows: signalfd(2)
// SPDX-License-Identifier: MIT
#include "target/program.h"

#include <ctype.h>
#include <errno.h>
#include <signal.h>
#include <stdlib.h>
#include <sys/epoll.h>
#include <sys/signalfd.h>
#include <unistd.h>

bool nt_number_parse(const char *text, int base, uint64_t most, uint64_t *out)
{
	char *end;

	if (!(base == 16 ? isxdigit((unsigned char)*text) : isdigit((unsigned char)*text)))
		return false;
	errno = 0;
	*out = strtoull(text, &end, base);
	return !*end && !errno && *out <= most;
}

static struct {
	struct nt_watch signals, backend;
	struct nb_ring *ring;
	bool *stop, *reload;
} program;

static void signals_ready(struct nt_watch *w, uint32_t events)
{
	struct signalfd_siginfo si;

	while (read(w->fd, &si, sizeof(si)) == sizeof(si))
		*(si.ssi_signo == SIGHUP ? program.reload : program.stop) = true;
}

static void backend_done(struct nt_watch *w, uint32_t events)
{
	nb_ring_reap(program.ring);
}

static void block_signals(sigset_t *set, bool reload)
{
	signal(SIGPIPE, SIG_IGN);
	signal(SIGXFSZ, SIG_IGN); /* exceeding a file size limit is only an error of one request */
	sigemptyset(set);
	sigaddset(set, SIGINT);
	sigaddset(set, SIGTERM);
	if (reload)
		sigaddset(set, SIGHUP);
	sigprocmask(SIG_BLOCK, set, NULL); /* the ring's threads inherit the mask */
}

int nt_program_open(struct nt_loop **loop, struct nb_ring **ring, bool threads, bool *stop, bool *reload)
{
	sigset_t set;
	int error;

	block_signals(&set, reload);
	if (!(*loop = nt_loop_open()))
		return errno;
	if ((error = nb_ring_open(ring, threads)))
		return error;
	program.stop = stop;
	program.reload = reload;
	program.ring = *ring;
	program.signals = (struct nt_watch){
	        .fd = signalfd(-1, &set, SFD_CLOEXEC | SFD_NONBLOCK), .events = EPOLLIN, .ready = signals_ready};
	program.backend = (struct nt_watch){.fd = nb_ring_fd(*ring), .events = EPOLLIN, .ready = backend_done};
	error = nt_loop_add(*loop, &program.signals);
	return error ? error : nt_loop_add(*loop, &program.backend);
}
