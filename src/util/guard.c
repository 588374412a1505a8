// guard.c - copies that touch the program's memory and survive a page that is not there
// follows: nothing
// SPDX-License-Identifier: MIT
#include "util/guard.h"

#include <pthread.h>
#include <signal.h>
#include <string.h>
#include <sys/syscall.h>
#include <ucontext.h>
#include <unistd.h>

/*
 * The copies are assembly between known labels: where the program counter of a fault lies between them, the handler
 * sends it to the label that returns false. Nothing needs to be saved before a copy.
 */
#if defined(__x86_64__)
__asm__(".text\n"
	".p2align 4\n"
	"vb_guard_begin:\n"
	/* bool raw_copy(rdi dst, rsi src, rdx n) */
	"vb_guard_raw_copy:\n"
	"	cmpq $512, %rdx\n"
	"	jae 3f\n"
	"1:	cmpq $32, %rdx\n"
	"	jb 2f\n"
	"	movdqu (%rsi), %xmm0\n"
	"	movdqu 16(%rsi), %xmm1\n"
	"	movdqu %xmm0, (%rdi)\n"
	"	movdqu %xmm1, 16(%rdi)\n"
	"	addq $32, %rsi\n"
	"	addq $32, %rdi\n"
	"	subq $32, %rdx\n"
	"	jmp 1b\n"
	"2:	cmpq $8, %rdx\n"
	"	jb 4f\n"
	"	movq (%rsi), %rax\n"
	"	movq %rax, (%rdi)\n"
	"	addq $8, %rsi\n"
	"	addq $8, %rdi\n"
	"	subq $8, %rdx\n"
	"	jmp 2b\n"
	"4:	testq %rdx, %rdx\n"
	"	je 5f\n"
	"	movb (%rsi), %al\n"
	"	movb %al, (%rdi)\n"
	"	incq %rsi\n"
	"	incq %rdi\n"
	"	decq %rdx\n"
	"	jmp 4b\n"
	"3:	movq %rdx, %rcx\n"
	"	cld\n"
	"	rep movsb\n"
	"5:	movl $1, %eax\n"
	"	ret\n"
	/* bool raw_store8(rdi dst, rsi src) */
	"vb_guard_raw_word:\n"
	"	movq (%rsi), %rax\n"
	"	movq %rax, (%rdi)\n"
	"	movl $1, %eax\n"
	"	ret\n"
	/* bool raw_cas(rdi p, rsi compare, rdx swap, rcx *old) */
	"vb_guard_raw_cas:\n"
	"	movq %rsi, %rax\n"
	"	lock cmpxchgq %rdx, (%rdi)\n"
	"	movq %rax, (%rcx)\n"
	"	movl $1, %eax\n"
	"	ret\n"
	/* bool raw_add(rdi p, rsi add, rdx *old) */
	"vb_guard_raw_add:\n"
	"	lock xaddq %rsi, (%rdi)\n"
	"	movq %rsi, (%rdx)\n"
	"	movl $1, %eax\n"
	"	ret\n"
	"vb_guard_end:\n"
	"vb_guard_fixup:\n"
	"	xorl %eax, %eax\n"
	"	ret\n");
#define GUARD_PC(uc) ((uintptr_t)(uc)->uc_mcontext.gregs[REG_RIP])
#define GUARD_SET_PC(uc, pc) ((uc)->uc_mcontext.gregs[REG_RIP] = (greg_t)(pc))
#elif defined(__aarch64__)
__asm__(".text\n"
	".p2align 4\n"
	"vb_guard_begin:\n"
	"vb_guard_raw_copy:\n"
	"1:	cmp x2, #16\n"
	"	b.lo 2f\n"
	"	ldp x3, x4, [x1], #16\n"
	"	stp x3, x4, [x0], #16\n"
	"	sub x2, x2, #16\n"
	"	b 1b\n"
	"2:	cbz x2, 3f\n"
	"	ldrb w3, [x1], #1\n"
	"	strb w3, [x0], #1\n"
	"	sub x2, x2, #1\n"
	"	b 2b\n"
	"3:	mov w0, #1\n"
	"	ret\n"
	"vb_guard_raw_word:\n"
	"	ldr x3, [x1]\n"
	"	stlr x3, [x0]\n"
	"	mov w0, #1\n"
	"	ret\n"
	"vb_guard_raw_cas:\n"
	"1:	ldaxr x4, [x0]\n"
	"	cmp x4, x1\n"
	"	b.ne 2f\n"
	"	stlxr w5, x2, [x0]\n"
	"	cbnz w5, 1b\n"
	"2:	str x4, [x3]\n"
	"	mov w0, #1\n"
	"	ret\n"
	"vb_guard_raw_add:\n"
	"1:	ldaxr x4, [x0]\n"
	"	add x5, x4, x1\n"
	"	stlxr w6, x5, [x0]\n"
	"	cbnz w6, 1b\n"
	"	str x4, [x2]\n"
	"	mov w0, #1\n"
	"	ret\n"
	"vb_guard_end:\n"
	"vb_guard_fixup:\n"
	"	mov w0, #0\n"
	"	ret\n");
#define GUARD_PC(uc) ((uintptr_t)(uc)->uc_mcontext.pc)
#define GUARD_SET_PC(uc, to) ((uc)->uc_mcontext.pc = (to))
#else
#error "guarded copies are written for x86-64 and aarch64"
#endif

extern char vb_guard_begin[] __attribute__((visibility("hidden")));
extern char vb_guard_end[] __attribute__((visibility("hidden")));
extern char vb_guard_fixup[] __attribute__((visibility("hidden")));
bool vb_guard_raw_copy(void *dst, const void *src, size_t n) __attribute__((visibility("hidden")));
bool vb_guard_raw_word(void *dst, const void *src) __attribute__((visibility("hidden")));
bool vb_guard_raw_cas(void *p, uint64_t compare, uint64_t swap, uint64_t *old) __attribute__((visibility("hidden")));
bool vb_guard_raw_add(void *p, uint64_t add, uint64_t *old) __attribute__((visibility("hidden")));

/*
 * SIGSEGV, SIGBUS: who was there before us, and who has come since. A program's handler may be installed over ours and
 * may call it as the one before; ours is then installed over that again (vb_guard_install). Called by the kernel it goes
 * on to the newest, called by that one to the oldest.
 */
static struct sigaction oldest[2], newest[2];
static bool installed[2];
static void *restorer; /* where the kernel makes a handler return to; NULL: not known here */

static void find_restorer(void)
{
#if defined(__x86_64__)
	struct {
		void *handler;
		unsigned long flags;
		void *restorer;
		unsigned long mask;
	} now;

	if (!syscall(SYS_rt_sigaction, SIGSEGV, NULL, &now, sizeof(now.mask)) && (now.flags & 0x04000000ul /* SA_RESTORER */))
		restorer = now.restorer;
#endif
}

static void on_fault(int sig, siginfo_t *info, void *context)
{
	ucontext_t *uc = context;
	uintptr_t pc = GUARD_PC(uc);
	bool by_kernel = restorer && __builtin_return_address(0) == restorer;
	const struct sigaction *next = by_kernel ? &newest[sig == SIGBUS] : &oldest[sig == SIGBUS];

	if (pc >= (uintptr_t)vb_guard_begin && pc < (uintptr_t)vb_guard_end) {
		GUARD_SET_PC(uc, (uintptr_t)vb_guard_fixup);
		return;
	}
	if (next->sa_flags & SA_SIGINFO) {
		next->sa_sigaction(sig, info, context);
	} else if (next->sa_handler == SIG_DFL || (next->sa_handler == SIG_IGN && info->si_code > 0)) {
		/* not ours: the fault happens again, with the default action */
		signal(sig, SIG_DFL);
		if (info->si_code <= 0)
			raise(sig);
	} else if (next->sa_handler != SIG_IGN) {
		next->sa_handler(sig);
	}
}

void vb_guard_install(void)
{
	static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
	static const int signals[2] = {SIGSEGV, SIGBUS};

	pthread_mutex_lock(&lock);
	for (int i = 0; i < 2; i++) {
		struct sigaction now, ours = {.sa_sigaction = on_fault, .sa_flags = SA_SIGINFO | SA_ONSTACK | SA_NODEFER};

		if (sigaction(signals[i], NULL, &now))
			continue;
		if ((now.sa_flags & SA_SIGINFO) && now.sa_sigaction == on_fault)
			continue;
		if (installed[i] && !restorer) /* cannot tell who calls: over a newer handler there would be no way back */
			continue;
		newest[i] = now;
		if (!installed[i])
			oldest[i] = now;
		installed[i] = true;
		sigemptyset(&ours.sa_mask);
		sigaction(signals[i], &ours, NULL);
		if (!restorer)
			find_restorer();
	}
	pthread_mutex_unlock(&lock);
}

bool vb_guard_copy(void *dst, const void *src, size_t n)
{
	return vb_guard_raw_copy(dst, src, n);
}

bool vb_guard_copy_tail(void *dst, const void *src, size_t n)
{
	uintptr_t end = (uintptr_t)dst + n;
	size_t tail = n ? ((end - 1) & 7) + 1 : 0;

	if (tail > n)
		tail = n;
	if (n > tail && !vb_guard_raw_copy(dst, src, n - tail))
		return false;
	__atomic_thread_fence(__ATOMIC_RELEASE);
	if (tail == 8)
		return vb_guard_raw_word((char *)dst + n - 8, (const char *)src + n - 8);
	return vb_guard_raw_copy((char *)dst + n - tail, (const char *)src + n - tail, tail);
}

bool vb_guard_cas(uint64_t *p, uint64_t compare, uint64_t swap, uint64_t *old)
{
	return vb_guard_raw_cas(p, compare, swap, old);
}

bool vb_guard_add(uint64_t *p, uint64_t add, uint64_t *old)
{
	return vb_guard_raw_add(p, add, old);
}
