// preload_signal.c - delays signal handlers of the program while their thread holds a lock of this library
// follows: signal-safety(7), sigaction(2); rt_tgsigqueueinfo(2)
// SPDX-License-Identifier: MIT
#undef _FORTIFY_SOURCE
#include "rsocket/preload/preload.h"

#include <link.h>
#include <pthread.h>
#include <semaphore.h>
#include <stdatomic.h>
#include <stddef.h>
#include <string.h>
#include <sys/syscall.h>
#include <ucontext.h>
#include <unistd.h>

#include "util/calls.h"
#include "util/thread_root.h"

/*
 * Signal handlers may call the kernel's socket functions. Ours take locks and allocate. So the kernel gets our handler
 * in place of the program's. If the thread is inside a call of this library, our handler keeps the signal, and raises
 * it again when the thread leaves the call. A thread that sleeps in such a call holds no lock, so the program's handler
 * runs at once.
 */
__thread struct pre_thread pre_me __attribute__((tls_model("initial-exec")));

/* The program's handlers. */
static struct installed {
	void *_Atomic handler;
	atomic_int flags;
} installed[NSIG];
static atomic_bool any_handler;

/* False for faults of the thread, which cannot be deferred, and for SIGABRT, which must not be. */
static bool is_deferrable(int sig)
{
	return sig > 0 && sig < NSIG && sig != SIGSEGV && sig != SIGBUS && sig != SIGFPE && sig != SIGILL &&
	       sig != SIGTRAP && sig != SIGSYS && sig != SIGABRT && sig != SIGKILL && sig != SIGSTOP;
}

/* The stack grows down. If the present frame is above that of a handler, the handler was left by longjmp(). */
static void look_for_jump(const char *frame)
{
	if (pre_me.handler && frame > pre_me.handler) {
		pre_me.handler = NULL;
		pre_me.inside = pre_me.asleep = 0;
	}
}

bool pre_is_fragile(void)
{
	look_for_jump(__builtin_frame_address(0));
	return pre_me.handler && pre_me.fragile;
}

/* The range of the program's own code; a library's code may be in the allocator. */
static uintptr_t program_at, program_end;

static int find_program(struct dl_phdr_info *info, size_t size, void *arg)
{
	for (int i = 0; i < info->dlpi_phnum; i++) {
		const ElfW(Phdr) *p = &info->dlpi_phdr[i];

		if (p->p_type == PT_LOAD && (p->p_flags & PF_X)) {
			program_at = info->dlpi_addr + p->p_vaddr;
			program_end = program_at + p->p_memsz;
		}
	}
	return 1; /* the first is the program */
}

__attribute__((constructor)) static void look_at_program(void)
{
	dl_iterate_phdr(find_program, NULL);
}

#if defined(__x86_64__)
/* True at a system call that a signal interrupts or that will be restarted. The allocator makes no such call. */
static bool sleeps_at(const uint8_t *pc, long long rax)
{
	static const short calls[] = {SYS_read,    SYS_write,  SYS_readv,   SYS_writev, SYS_recvfrom,
	                              SYS_recvmsg, SYS_sendto, SYS_sendmsg, SYS_accept, SYS_accept4,
	                              SYS_connect, SYS_wait4,  SYS_waitid,  SYS_pause};
	static const uint8_t call[] = {0x0f, 0x05};

	if (!memcmp(pc - 2, call, 2) && rax == -EINTR)
		return true;
	for (size_t i = 0; !memcmp(pc, call, 2) && i < sizeof(calls) / sizeof(*calls); i++)
		if (rax == calls[i])
			return true;
	return false;
}
#endif

static bool is_at_rest(const ucontext_t *uc)
{
#if defined(__x86_64__)
	uintptr_t pc = (uintptr_t)uc->uc_mcontext.gregs[REG_RIP];

	if (sleeps_at((const uint8_t *)pc, uc->uc_mcontext.gregs[REG_RAX]))
		return true;
#elif defined(__aarch64__)
	uintptr_t pc = uc->uc_mcontext.pc;
#else
	uintptr_t pc = 0;
#endif

	return pc >= program_at && pc < program_end;
}

static void run_handler(int sig, siginfo_t *info, void *context)
{
	const char *before = pre_me.handler;
	bool fragile = pre_me.fragile;
	int inside = pre_me.inside, asleep = pre_me.asleep, flags = installed[sig].flags;
	void *handler = installed[sig].handler;
	const struct sigaction standard = {.sa_handler = SIG_DFL, .sa_flags = flags}; /* as the kernel resets it */

	if (flags & SA_RESETHAND)
		pre_real.sigaction(sig, &standard, NULL);
	/* for a nested handler, each may have interrupted a call */
	pre_me.fragile = (before && fragile) || !(asleep || is_at_rest(context));
	pre_me.handler = __builtin_frame_address(0);
	pre_me.inside = pre_me.asleep = 0; /* the handler may call this library, because the thread holds no lock */
	((void (*)(int, siginfo_t *, void *))handler)(sig, info, context);
	pre_me.handler = before;
	pre_me.fragile = fragile;
	pre_me.inside = inside;
	pre_me.asleep = asleep;
}

/* The handler installed for all signals that the program handles. */
static void signal_arrived(int sig, siginfo_t *info, void *context)
{
	ucontext_t *uc = context;

	look_for_jump(__builtin_frame_address(0));
	if (!pre_me.inside || pre_me.asleep || pre_me.deferred == PRE_DEFERRED_MAX) {
		run_handler(sig, info, context);
		return;
	}
	pre_me.kept[pre_me.deferred++] = *info;
	sigaddset(&uc->uc_sigmask, sig); /* blocks the signal until this one has been handled */
}

/* Raises the deferred signals for this thread, in order. The kernel then calls the handlers with the right mask and
 * stack. */
void pre_handle_deferred(void)
{
	int saved = errno, n = pre_me.deferred;
	siginfo_t kept[PRE_DEFERRED_MAX];
	sigset_t set;

	memcpy(kept, pre_me.kept, sizeof(kept));
	sigemptyset(&set);
	for (int i = 0; i < n; i++) {
		sigaddset(&set, kept[i].si_signo);
		if (pre_real.syscall(SYS_rt_tgsigqueueinfo, (long)getpid(), pre_real.syscall(SYS_gettid),
		                     (long)kept[i].si_signo, &kept[i]))
			raise(kept[i].si_signo);
	}
	pre_me.deferred = 0;
	pre_me.asleep++; /* the thread holds no lock */
	pthread_sigmask(SIG_UNBLOCK, &set, NULL);
	pre_me.asleep--;
	errno = saved;
}

bool pre_fall_asleep(void)
{
	pre_me.asleep++;
	atomic_signal_fence(memory_order_seq_cst);
	if (!pre_me.deferred)
		return true;
	pre_handle_deferred();
	return false;
}

void pre_wake_up(void)
{
	atomic_signal_fence(memory_order_seq_cst);
	pre_me.asleep--;
}

/* --- calls that install handlers --- */
static void show_installed(int sig, struct sigaction *act, void *handler, int flags)
{
	if (act->sa_sigaction != signal_arrived)
		return;
	act->sa_sigaction = (void (*)(int, siginfo_t *, void *))handler;
	if (!(flags & SA_SIGINFO))
		act->sa_flags &= ~SA_SIGINFO;
	act->sa_flags |= flags & (int)SA_RESETHAND;
}

PRE_EXPORT int sigaction(int sig, const struct sigaction *restrict act, struct sigaction *restrict old)
{
	struct sigaction ours;
	void *handler;
	int flags, r;

	pre_init();
	if (!is_deferrable(sig) || pre_borrowed())
		return pre_real.sigaction(sig, act, old);
	handler = installed[sig].handler;
	flags = installed[sig].flags;
	if (act && act->sa_handler != SIG_DFL && act->sa_handler != SIG_IGN) {
		installed[sig].flags = act->sa_flags;
		installed[sig].handler = (void *)act->sa_sigaction;
		ours = *act;
		ours.sa_sigaction = signal_arrived;
		ours.sa_flags = (act->sa_flags | SA_SIGINFO) & ~(int)SA_RESETHAND;
		act = &ours;
		any_handler = true;
		pre_start_closer();
	}
	r = pre_real.sigaction(sig, act, old);
	if (!r && old)
		show_installed(sig, old, handler, flags);
	return r;
}

static __sighandler_t install_handler(int sig, __sighandler_t handler, int flags)
{
	struct sigaction act = {.sa_handler = handler, .sa_flags = flags}, old;

	return handler == SIG_ERR || sigaction(sig, &act, &old) ? (errno = EINVAL, SIG_ERR) : old.sa_handler;
}

PRE_EXPORT __sighandler_t signal(int sig, __sighandler_t handler)
{
	return install_handler(sig, handler, SA_RESTART);
}

__sighandler_t bsd_signal(int sig, __sighandler_t handler); /* from older standards, declared in no header */
PRE_EXPORT __sighandler_t bsd_signal(int sig, __sighandler_t handler)
{
	return install_handler(sig, handler, SA_RESTART);
}

PRE_EXPORT __sighandler_t ssignal(int sig, __sighandler_t handler)
{
	return install_handler(sig, handler, SA_RESTART);
}

PRE_EXPORT __sighandler_t __sysv_signal(int sig, __sighandler_t handler)
{
	return install_handler(sig, handler, (int)(SA_RESETHAND | SA_NODEFER));
}

PRE_EXPORT __sighandler_t sysv_signal(int sig, __sighandler_t handler)
{
	return install_handler(sig, handler, (int)(SA_RESETHAND | SA_NODEFER));
}

/* --- work that a handler cannot finish, because it may have interrupted the allocator --- */
static _Atomic(struct pre_late *) late;
static sem_t come;
static atomic_int closer; /* the process whose thread runs */

static void *close_late(void *arg)
{
	VB_THREAD_ROOT();
	for (;;) {
		while (sem_wait(&come))
			;
		struct pre_late *next, *l = atomic_exchange(&late, NULL);

		for (; l; l = next) {
			next = l->next;
			l->end(l);
		}
	}
	return NULL;
}

/* Starts the thread if there are signal handlers and rsockets. */
void pre_start_closer(void)
{
	int none = closer, cancel;
	pthread_t thread;
	sigset_t all, before;

	if (none == getpid() || !any_handler || !pre_any() || pre_me.handler ||
	    !atomic_compare_exchange_strong(&closer, &none, getpid()))
		return;
	vb_cancel_defer(&cancel);
	sem_init(&come, 0, late != NULL);
	sigfillset(&all);
	pthread_sigmask(SIG_SETMASK, &all, &before);
	if (pthread_create(&thread, NULL, close_late, NULL))
		closer = 0;
	else
		pthread_detach(thread);
	pthread_sigmask(SIG_SETMASK, &before, NULL);
	vb_cancel_restore(cancel);
}

void pre_end(struct pre_late *l, void (*end)(struct pre_late *))
{
	if (!pre_me.handler || closer != getpid()) {
		end(l);
		return;
	}
	l->end = end;
	l->next = late;
	while (!atomic_compare_exchange_weak(&late, &l->next, l))
		;
	sem_post(&come);
}
