// rs_wait.c - threads that sleep until an rsocket changes
// SPDX-License-Identifier: MIT
#include "rsocket/rs.h"

#include <sched.h>
#include <signal.h>
#include <stdlib.h>
#include <sys/eventfd.h>
#include <unistd.h>

#include "util/calls.h"
#include "util/units.h"

/*
 * A completion event may wake another thread than the one whose condition is now true. So each sleeping thread also
 * polls a descriptor of its own, and each change of an rsocket with watchers wakes all of them.
 */
struct sleeper {
	struct sleeper *next, **at;
	int fd;
	unsigned depth; /* nesting of waits: a signal handler may wait too */
	unsigned fork_generation;
};
static pthread_mutex_t asleep_lock = PTHREAD_MUTEX_INITIALIZER;
static struct sleeper *asleep; /* guarded by asleep_lock */
static unsigned asleep_generation;
static pthread_key_t key;
static pthread_once_t once = PTHREAD_ONCE_INIT;

static void free_sleeper(void *arg)
{
	struct sleeper *s = arg;

	close(s->fd);
	free(s);
}

static void make_key(void)
{
	pthread_key_create(&key, free_sleeper);
}

static struct sleeper *my_sleeper(void)
{
	struct sleeper *s;

	pthread_once(&once, make_key);
	s = pthread_getspecific(key);
	if (s && s->fork_generation == rs_fork_generation)
		return s;
	if (s) { /* it shares the parent's eventfd */
		close(s->fd);
	} else {
		s = calloc(1, sizeof(*s));
		if (!s)
			return NULL;
		pthread_setspecific(key, s);
	}
	s->fork_generation = rs_fork_generation;
	s->depth = 0;
	s->fd = eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK);
	return s;
}

/* In a child of fork() the list and its lock are in an unknown state, because another thread of the parent may have
 * held it. */
static void lock_asleep(void)
{
	if (asleep_generation != rs_fork_generation) {
		asleep_generation = rs_fork_generation;
		pthread_mutex_init(&asleep_lock, NULL);
		asleep = NULL;
	}
	vb_mutex_lock(&asleep_lock, VB_RANK_RS_ASLEEP);
}

bool rs_sleeper_begin(int *fd)
{
	struct sleeper *s = my_sleeper();
	uint64_t n;

	if (!s)
		return false;
	lock_asleep();
	if (!s->depth++) {
		s->next = asleep;
		s->at = &asleep;
		if (asleep)
			asleep->at = &s->next;
		asleep = s;
	}
	vb_mutex_unlock(&asleep_lock);
	if (s->depth > 1)
		(void)!read(s->fd, &n, sizeof(n));
	*fd = s->fd;
	return s->fd >= 0;
}

void rs_sleeper_end(void)
{
	struct sleeper *s = my_sleeper();
	uint64_t n = 1;

	if (!s || !s->depth) /* in a child forked by a signal handler */
		return;
	lock_asleep();
	if (!--s->depth) {
		*s->at = s->next;
		if (s->next)
			s->next->at = s->at;
	}
	vb_mutex_unlock(&asleep_lock);
	if (s->depth) /* makes the interrupted wait check again */
		(void)!write(s->fd, &n, sizeof(n));
	else
		(void)!read(s->fd, &n, sizeof(n));
}

void rs_wake_all(void)
{
	uint64_t one = 1;

	rs_firm();
	lock_asleep();
	for (struct sleeper *s = asleep; s; s = s->next)
		(void)!write(s->fd, &one, sizeof(one));
	vb_mutex_unlock(&asleep_lock);
	rs_soft();
}

__attribute__((hot)) void rs_wake(struct rsocket *rs)
{
	if (rs->watchers)
		rs_wake_all();
}

static __attribute__((hot)) struct timespec timespec_now(void)
{
	struct timespec t;

	clock_gettime(CLOCK_MONOTONIC, &t);
	return t;
}

uint64_t rs_now(void)
{
	struct timespec t = timespec_now();

	return VB_S((uint64_t)t.tv_sec) + (uint64_t)t.tv_nsec;
}

__attribute__((hot)) struct rs_deadline rs_deadline_ms(int64_t ms)
{
	struct rs_deadline d = {.set = ms >= 0};

	if (!d.set)
		return d;
	d.at = timespec_now();
	d.at.tv_sec += ms / 1000;
	d.at.tv_nsec += ms % 1000 * 1000000;
	if (d.at.tv_nsec >= 1000000000) {
		d.at.tv_nsec -= 1000000000;
		d.at.tv_sec++;
	}
	return d;
}

__attribute__((hot)) struct rs_deadline rs_deadline_tv(const struct timeval *tv)
{
	if (!tv->tv_sec && !tv->tv_usec)
		return (struct rs_deadline){0};
	return rs_deadline_ms((int64_t)tv->tv_sec * 1000 + (tv->tv_usec + 999) / 1000);
}

int rs_deadline_left(const struct rs_deadline *d)
{
	struct timespec t;
	int64_t ms;

	if (!d || !d->set)
		return -1;
	t = timespec_now();
	ms = (d->at.tv_sec - t.tv_sec) * 1000 + (d->at.tv_nsec - t.tv_nsec + 999999) / 1000000;
	return ms < 0 ? 0 : ms > 1000000000 ? 1000000000 : (int)ms;
}

__attribute__((hot)) bool rs_nonblocking(const struct rsocket *rs, int flags)
{
	return (rs->fs_flags & O_NONBLOCK) || (flags & MSG_DONTWAIT);
}

/* The nesting of this thread's calls, and its cancellation state before them. */
static __thread int firm, cancel_before;

__attribute__((hot)) void rs_firm(void)
{
	if (!firm++)
		vb_cancel_defer(&cancel_before);
}

__attribute__((hot)) void rs_soft(void)
{
	if (!--firm)
		vb_cancel_restore(cancel_before);
}

/* Sleeps in ppoll, which marks that the thread holds no locks but those of whole calls. The preload library lets signal
 * handlers run there. */
int rs_poll_soft(struct pollfd *fds, nfds_t n, int ms, void (*undo)(void *), void *arg)
{
	const struct timespec ts = {ms / 1000, ms % 1000 * 1000000L};
	int r, err, firmly;

	pthread_cleanup_push(undo, arg);
	pthread_setcancelstate(cancel_before, &firmly);
	r = ppoll(fds, n, ms < 0 ? NULL : &ts, NULL);
	err = errno;
	pthread_setcancelstate(firmly, NULL);
	pthread_cleanup_pop(0);
	errno = err;
	return r;
}

static int wait_fd(struct rsocket *rs)
{
	if (rs->type == SOCK_DGRAM)
		return rs_dgram_wait_fd(rs);
	return rs->channel ? rs->channel->fd : -1;
}

struct nap {
	struct rsocket *rs;
	pthread_mutex_t *held;
	bool soft; /* may be cancelled */
};

/* Releases everything if the thread is cancelled while it sleeps. */
static void called_off(void *arg)
{
	struct nap *nap = arg;
	struct rsocket *rs = nap->rs;

	firm = 0;
	vb_mutex_lock(&rs->lock, VB_RANK_RS);
	rs->watchers--;
	vb_mutex_unlock(&rs->lock);
	rs_sleeper_end();
	if (nap->held)
		vb_mutex_unlock(nap->held);
	rs_put(rs);
}

/* Sleeps once; rs->lock is held, but not while asleep. */
static int nap_doze(struct nap *nap, int wake_fd, int ms)
{
	struct rsocket *rs = nap->rs;
	struct pollfd fds[2] = {{.fd = wait_fd(rs), .events = POLLIN}, {.fd = wake_fd, .events = POLLIN}};
	int n, err;

	vb_mutex_unlock(&rs->lock);
	n = nap->soft ? rs_poll_soft(fds, 2, ms, called_off, nap) : poll(fds, 2, ms);
	err = n < 0 ? errno : 0;
	vb_mutex_lock(&rs->lock, VB_RANK_RS);
	rs_drain(rs);
	return err;
}

static int sleep_for(struct nap *nap, bool (*test)(struct rsocket *), const struct rs_deadline *until)
{
	struct rsocket *rs = nap->rs;
	int fd, ms, err = 0;

	if (!rs_sleeper_begin(&fd)) {
		rs_sleeper_end();
		return ENOMEM;
	}
	rs->watchers++;
	rs_arm(rs);
	rs_process(rs);
	ms = rs_deadline_left(until);
	if (!test(rs))
		err = ms ? nap_doze(nap, fd, ms) : EAGAIN;
	rs->watchers--;
	rs_sleeper_end();
	return err;
}

/*
 * Decides whether to continue after EINTR. poll(2) does not tell which signal arrived. If all handlers that may have
 * run have SA_RESTART, the call continues, as a system call would. Otherwise the program gets EINTR.
 */
static bool goes_on(void)
{
	static const int own_fault[] = {SIGSEGV, SIGBUS, SIGFPE, SIGILL, SIGTRAP, SIGSYS};
	struct sigaction act;
	sigset_t not ;

	pthread_sigmask(SIG_SETMASK, NULL, &not );
	for (size_t i = 0; i < sizeof(own_fault) / sizeof(*own_fault); i++)
		sigaddset(&not, own_fault[i]);
	for (int sig = 1; sig <= SIGRTMAX; sig++) {
		if (sigismember(&not, sig) == 1 || sigaction(sig, NULL, &act) || act.sa_handler == SIG_IGN)
			continue;
		/* a one-shot handler leaves its flags behind */
		if (act.sa_handler == SIG_DFL && !(act.sa_flags & SA_RESETHAND))
			continue;
		if (!(act.sa_flags & SA_RESTART))
			return false;
	}
	return true;
}

static __attribute__((hot)) int wait_until(struct nap *nap, bool (*test)(struct rsocket *), bool nonblock,
                                           const struct rs_deadline *until)
{
	struct rsocket *rs = nap->rs;
	struct timespec start = {0}, t;
	int err = 0;

	for (;;) {
		rs_process(rs);
		if (test(rs))
			return 0;
		if (err == EINTR && !(until && until->set) && goes_on()) /* signal(7): no restart with a timeout */
			err = 0;
		if (err || nonblock)
			return err ? err : EAGAIN;
		t = timespec_now();
		if (!start.tv_sec)
			start = t;
		if ((t.tv_sec - start.tv_sec) * 1000000 + (t.tv_nsec - start.tv_nsec) / 1000 < rs_spin_us) {
			vb_mutex_unlock(&rs->lock);
			sched_yield();
			vb_mutex_lock(&rs->lock, VB_RANK_RS);
			continue;
		}
		err = sleep_for(nap, test, until);
	}
}

int rs_wait(struct rsocket *rs, bool (*test)(struct rsocket *), bool nonblock, const struct rs_deadline *until)
{
	struct nap nap = {.rs = rs};
	int err;

	rs_firm();
	err = wait_until(&nap, test, nonblock, until);
	rs_soft();
	return err;
}

__attribute__((hot)) int rs_wait_soft(struct rsocket *rs, bool (*test)(struct rsocket *), bool nonblock,
                                      const struct rs_deadline *until, pthread_mutex_t *held)
{
	struct nap nap = {.rs = rs, .held = held, .soft = true};

	return wait_until(&nap, test, nonblock, until);
}
