// preload_mask.c - signals that are unblocked only while a call waits: ppoll, pselect, epoll_pwait
// follows: POSIX pselect(); signalfd(2)
// SPDX-License-Identifier: MIT
#undef _FORTIFY_SOURCE
#include "rsocket/preload/preload.h"

#include <pthread.h>
#include <sys/signalfd.h>

/*
 * rpoll takes no mask. So these signals stay blocked while it waits, and a signalfd that is polled with the other
 * descriptors reports them. They are unblocked afterwards. No signal is lost between a change of the mask and the
 * sleep.
 */
int pre_mask_begin(struct pre_mask *m, const sigset_t *mask)
{
	sigset_t both;

	m->inside = *mask;
	pthread_sigmask(SIG_SETMASK, NULL, &m->before);
	sigorset(&both, &m->before, mask);
	sigemptyset(&m->let_in);
	for (int sig = 1; sig <= SIGRTMAX; sig++)
		if (sigismember(&m->before, sig) == 1 && !sigismember(mask, sig))
			sigaddset(&m->let_in, sig);
	pthread_sigmask(SIG_SETMASK, &both, NULL);
	return sigisemptyset(&m->let_in) ? -1 : signalfd(-1, &m->let_in, SFD_CLOEXEC | SFD_NONBLOCK);
}

/* True if a pending signal has a handler. */
static bool is_handled(const struct pre_mask *m)
{
	struct sigaction act;
	sigset_t waiting;

	sigpending(&waiting);
	for (int sig = 1; sig <= SIGRTMAX; sig++)
		if (sigismember(&waiting, sig) == 1 && sigismember(&m->let_in, sig) == 1 &&
		    !sigaction(sig, NULL, &act) && act.sa_handler != SIG_DFL && act.sa_handler != SIG_IGN)
			return true;
	return false;
}

bool pre_mask_end(struct pre_mask *m, int fd)
{
	int saved = errno;
	bool interrupted = fd >= 0 && is_handled(m);

	pthread_sigmask(SIG_SETMASK, &m->inside, NULL); /* the handlers run here */
	pthread_sigmask(SIG_SETMASK, &m->before, NULL);
	if (fd >= 0)
		pre_real.close(fd);
	errno = saved;
	return interrupted;
}
