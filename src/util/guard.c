// guard.c - copies of the program's memory that survive unmapped pages
// SPDX-License-Identifier: MIT
#include "util/guard.h"

#include <pthread.h>
#include <signal.h>
#include <stdatomic.h>
#include <string.h>
#include <sys/syscall.h>
#include <ucontext.h>
#include <unistd.h>

#include "util/lock.h"

#define WIDE_MIN 256u /* copies of WIDE_MIN to WIDE_MAX bytes use 64-byte registers if the processor has them */
#define WIDE_MAX 8191u

/*
 * The copies are assembly between two labels. If the program counter of a fault lies between them, the handler sets it
 * to code that returns false. So a copy needs no setup such as sigsetjmp(3).
 */
#if defined(__x86_64__)
/* Multiplies zmm a by the powers of x in zmm10, and adds zmm b. */
#define GUARD_FOLD(a, b)                                            \
	"	vpclmulqdq $0x00, %zmm10, %zmm" #a ", %zmm8\n"      \
	"	vpclmulqdq $0x11, %zmm10, %zmm" #a ", %zmm" #a "\n" \
	"	vpternlogq $0x96, %zmm8, %zmm" #b ", %zmm" #a "\n"

/* 256 bytes at rsi into these registers of 64; from them to rdi */
#define GUARD_LOAD(a, b, c, d)                                                    \
	"	vmovdqu64 (%rsi), %zmm" #a "\n	vmovdqu64 64(%rsi), %zmm" #b "\n" \
	"	vmovdqu64 128(%rsi), %zmm" #c "\n	vmovdqu64 192(%rsi), %zmm" #d "\n"
#define GUARD_STORE(a, b, c, d)                                                   \
	"	vmovdqu64 %zmm" #a ", (%rdi)\n	vmovdqu64 %zmm" #b ", 64(%rdi)\n" \
	"	vmovdqu64 %zmm" #c ", 128(%rdi)\n	vmovdqu64 %zmm" #d ", 192(%rdi)\n"

/* x^(d+32), x^(d-32) modulo the CRC's polynomial, bits reversed, for d = 2048, 1024, 512, 384, 256, 128; then zeros */
__asm__(".pushsection .rodata\n"
        ".p2align 6\n"
        "vb_guard_fold:\n"
        "	.quad 0x11542778a, 0x1322d1430\n"
        "	.quad 0x1e88ef372, 0x14a7fe880\n"
        "	.quad 0x154442bd4, 0x1c6e41596\n"
        "	.quad 0x03db1ecdc, 0x174359406\n"
        "	.quad 0x0f1da05aa, 0x15a546366\n"
        "	.quad 0x1751997d0, 0x0ccaa009e\n"
        "	.quad 0, 0\n"
        "vb_guard_words:\n"
        "	.long 0, 1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 13, 14, 15\n"
        ".popsection\n");

// clang-format off
__asm__(".pushsection .text.hot, \"ax\"\n"
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
        /* bool raw_copy_wide(rdi dst, rsi src, rdx n): 64 bytes and more. Fetches lines of the destination ahead, which
         * may be in another core's cache, also behind its end: there the next message goes. */
        "vb_guard_raw_copy_wide:\n"
        "	vmovdqu64 -64(%rsi,%rdx), %zmm2\n"
        "	leaq -64(%rdi,%rdx), %rcx\n"
        "	subq $256, %rdx\n"
        "	jb 1f\n"
        "2:	prefetchw 512(%rdi)\n"
        "	prefetchw 576(%rdi)\n"
        "	prefetchw 640(%rdi)\n"
        "	prefetchw 704(%rdi)\n"
        "	vmovdqu64 (%rsi), %zmm0\n"
        "	vmovdqu64 64(%rsi), %zmm1\n"
        "	vmovdqu64 128(%rsi), %zmm3\n"
        "	vmovdqu64 192(%rsi), %zmm4\n"
        "	vmovdqu64 %zmm0, (%rdi)\n"
        "	vmovdqu64 %zmm1, 64(%rdi)\n"
        "	vmovdqu64 %zmm3, 128(%rdi)\n"
        "	vmovdqu64 %zmm4, 192(%rdi)\n"
        "	addq $256, %rsi\n"
        "	addq $256, %rdi\n"
        "	subq $256, %rdx\n"
        "	jae 2b\n"
        "1:	cmpq %rcx, %rdi\n"
        "	jae 3f\n"
        "	vmovdqu64 (%rsi), %zmm0\n"
        "	vmovdqu64 %zmm0, (%rdi)\n"
        "	addq $64, %rsi\n"
        "	addq $64, %rdi\n"
        "	jmp 1b\n"
        "3:	vmovdqu64 %zmm2, (%rcx)\n"
        "	vzeroupper\n"
        "	movl $1, %eax\n"
        "	ret\n"
        /* bool raw_copy_sum(rdi dst, rsi src, rdx n, rcx sum): four sums, each of every fourth 64 bytes, which are
         * then folded into one */
        "vb_guard_raw_copy_sum:\n"
        "	vbroadcasti32x4 vb_guard_fold(%rip), %zmm10\n"
        GUARD_LOAD(0, 1, 2, 3)
        GUARD_STORE(0, 1, 2, 3)
        "1:	subq $256, %rdx\n"
        "	je 2f\n"
        "	addq $256, %rsi\n"
        "	addq $256, %rdi\n"
        GUARD_LOAD(4, 5, 6, 7)
        GUARD_STORE(4, 5, 6, 7)
        GUARD_FOLD(0, 4) GUARD_FOLD(1, 5) GUARD_FOLD(2, 6) GUARD_FOLD(3, 7)
        "	jmp 1b\n"
        /* bool raw_copy_sum_past(rdi dst, rsi src, rdx n, rcx sum, r8 past): the first and the last 64 bytes go to
         * dst. A line of past is put together from two consecutive loads of 64 bytes: zmm11 says from which words. */
        "vb_guard_raw_copy_sum_past:\n"
        "	vbroadcasti32x4 vb_guard_fold(%rip), %zmm10\n"
        "	movl %r8d, %eax\n"
        "	notl %eax\n"
        "	andl $63, %eax\n"
        "	incl %eax\n" /* 1 to 64: bytes before the first line that is stored past the caches */
        "	addq %rax, %r8\n"
        "	shrl $2, %eax\n"
        "	vpbroadcastd %eax, %zmm11\n"
        "	vpaddd vb_guard_words(%rip), %zmm11, %zmm11\n"
        "	leaq -64(%rdi,%rdx), %r9\n"
        GUARD_LOAD(0, 1, 2, 3)
        "	vmovdqu64 %zmm0, (%rdi)\n"
        "	vmovdqa64 %zmm0, %zmm12\n"
        "	vmovdqa64 %zmm1, %zmm13\n"
        "	vmovdqa64 %zmm2, %zmm14\n"
        "	vmovdqa64 %zmm3, %zmm9\n"
        "	vpermt2d %zmm1, %zmm11, %zmm12\n"
        "	vpermt2d %zmm2, %zmm11, %zmm13\n"
        "	vpermt2d %zmm3, %zmm11, %zmm14\n"
        "	vmovntdq %zmm12, (%r8)\n"
        "	vmovntdq %zmm13, 64(%r8)\n"
        "	vmovntdq %zmm14, 128(%r8)\n"
        "1:	subq $256, %rdx\n"
        "	je 3f\n"
        "	addq $256, %rsi\n"
        "	addq $256, %r8\n"
        GUARD_LOAD(4, 5, 6, 7)
        "	vmovdqa64 %zmm4, %zmm12\n"
        "	vmovdqa64 %zmm5, %zmm13\n"
        "	vmovdqa64 %zmm6, %zmm14\n"
        "	vpermt2d %zmm4, %zmm11, %zmm9\n"
        "	vpermt2d %zmm5, %zmm11, %zmm12\n"
        "	vpermt2d %zmm6, %zmm11, %zmm13\n"
        "	vpermt2d %zmm7, %zmm11, %zmm14\n"
        "	vmovntdq %zmm9, -64(%r8)\n"
        "	vmovntdq %zmm12, (%r8)\n"
        "	vmovntdq %zmm13, 64(%r8)\n"
        "	vmovntdq %zmm14, 128(%r8)\n"
        "	vmovdqa64 %zmm7, %zmm9\n"
        GUARD_FOLD(0, 4) GUARD_FOLD(1, 5) GUARD_FOLD(2, 6) GUARD_FOLD(3, 7)
        "	jmp 1b\n"
        "3:	vmovdqu64 %zmm9, (%r9)\n"
        "	jmp 2f\n"
        /* bool raw_sum(rdi unused, rsi src, rdx n, rcx sum): the same as raw_copy_sum without the copy */
        "vb_guard_raw_sum:\n"
        "	vbroadcasti32x4 vb_guard_fold(%rip), %zmm10\n"
        GUARD_LOAD(0, 1, 2, 3)
        "1:	subq $256, %rdx\n"
        "	je 2f\n"
        "	addq $256, %rsi\n"
        GUARD_LOAD(4, 5, 6, 7)
        GUARD_FOLD(0, 4) GUARD_FOLD(1, 5) GUARD_FOLD(2, 6) GUARD_FOLD(3, 7)
        "	jmp 1b\n"
        "2:	vbroadcasti32x4 16+vb_guard_fold(%rip), %zmm10\n"
        GUARD_FOLD(0, 2) GUARD_FOLD(1, 3)
        "	vbroadcasti32x4 32+vb_guard_fold(%rip), %zmm10\n"
        GUARD_FOLD(0, 1)
        "	vmovdqu64 48+vb_guard_fold(%rip), %zmm10\n"
        "	vpclmulqdq $0x00, %zmm10, %zmm0, %zmm1\n"
        "	vpclmulqdq $0x11, %zmm10, %zmm0, %zmm2\n"
        "	vextracti32x4 $3, %zmm0, %xmm3\n"
        "	vpxorq %zmm1, %zmm2, %zmm0\n"
        "	vextracti32x4 $1, %zmm0, %xmm1\n"
        "	vextracti32x4 $2, %zmm0, %xmm2\n"
        "	vpxor %xmm0, %xmm3, %xmm3\n"
        "	vpxor %xmm1, %xmm2, %xmm2\n"
        "	vpxor %xmm2, %xmm3, %xmm3\n"
        "	vmovdqu %xmm3, (%rcx)\n"
        "	vzeroupper\n"
        "	movl $1, %eax\n"
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
        /* int raw_place(rdi place, rsi src, rdx n, rcx rseq): 1, or 2 if the word has changed. An interrupted one
         * begins again at vb_guard_place_abort, unless its last store is done. */
        "vb_guard_raw_place:\n"
        "	movq %rsi, %r10\n"
        "	movq %rdx, %r11\n"
        "	movq %rcx, %r9\n"
        "	movq %rdi, %r8\n"
        "1:	leaq vb_guard_place_cs(%rip), %rax\n"
        "	movq %rax, 8(%r9)\n"
        "vb_guard_place_start:\n"
        "	movq (%r8), %rax\n" /* word */
        "	movl 8(%r8), %ecx\n"
        "	cmpl %ecx, (%rax)\n"
        "	jne 4f\n"
        "	movq 16(%r8), %rdi\n" /* dst */
        "	movq %r10, %rsi\n"
        "	movq %r11, %rcx\n"
        "	cld\n"
        "	rep movsb\n"
        "	movq 24(%r8), %rcx\n" /* tail */
        "	cmpq $8, %rcx\n"
        "	jne 2f\n"
        "	movq (%rsi), %rax\n"
        "	movq %rax, (%rdi)\n"
        "	jmp 3f\n"
        "2:	rep movsb\n"
        "3:	movq 32(%r8), %rax\n" /* done, its new value */
        "	movq 40(%r8), %rcx\n"
        "	movq %rcx, (%rax)\n"
        "vb_guard_place_commit:\n"
        "	movq $0, 8(%r9)\n"
        "	movl $1, %eax\n"
        "	ret\n"
        "4:	movq $0, 8(%r9)\n"
        "	movl $2, %eax\n"
        "	ret\n"
        "	.long 0x53053053\n" /* RSEQ_SIG */
        "vb_guard_place_abort:\n"
        "	jmp 1b\n"
        "vb_guard_end:\n"
        "vb_guard_fixup:\n"
        "	xorl %eax, %eax\n"
        "	ret\n"
        ".popsection\n");
// clang-format on

/* struct rseq_cs of raw_place */
__asm__(".pushsection .data.rel.ro, \"aw\"\n"
        ".p2align 5\n"
        "vb_guard_place_cs:\n"
        "	.long 0, 0\n"
        "	.quad vb_guard_place_start\n"
        "	.quad vb_guard_place_commit - vb_guard_place_start\n"
        "	.quad vb_guard_place_abort\n"
        ".popsection\n");
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
        /* bool raw_last(x0 dst, x1 src, x2 n): 8, 4, 2 or 1 bytes, aligned, by one store with release */
        "vb_guard_raw_last:\n"
        "	tbnz x2, #3, 8f\n"
        "	tbnz x2, #2, 4f\n"
        "	tbnz x2, #1, 2f\n"
        "	ldrb w3, [x1]\n"
        "	stlrb w3, [x0]\n"
        "	b 9f\n"
        "2:	ldrh w3, [x1]\n"
        "	stlrh w3, [x0]\n"
        "	b 9f\n"
        "4:	ldr w3, [x1]\n"
        "	stlr w3, [x0]\n"
        "	b 9f\n"
        "8:	ldr x3, [x1]\n"
        "	stlr x3, [x0]\n"
        "9:	mov w0, #1\n"
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
#if defined(__x86_64__)
bool vb_guard_raw_copy_wide(void *dst, const void *src, size_t n) __attribute__((visibility("hidden")));
bool vb_guard_raw_copy_sum(void *dst, const void *src, size_t n, uint64_t sum[2]) __attribute__((visibility("hidden")));
bool vb_guard_raw_copy_sum_past(void *dst, const void *src, size_t n, uint64_t sum[2], void *past)
        __attribute__((visibility("hidden")));
bool vb_guard_raw_sum(void *none, const void *src, size_t n, uint64_t sum[2]) __attribute__((visibility("hidden")));
#endif
struct place;
int vb_guard_raw_place(const struct place *p, const void *src, size_t n, void *rseq)
        __attribute__((visibility("hidden")));
#if defined(__x86_64__)
bool vb_guard_raw_word(void *dst, const void *src) __attribute__((visibility("hidden")));
#else
bool vb_guard_raw_last(void *dst, const void *src, size_t n) __attribute__((visibility("hidden")));
#endif
bool vb_guard_raw_cas(void *p, uint64_t compare, uint64_t swap, uint64_t *old) __attribute__((visibility("hidden")));
bool vb_guard_raw_add(void *p, uint64_t add, uint64_t *old) __attribute__((visibility("hidden")));

/*
 * Handlers of SIGSEGV and SIGBUS: the one before our first installation, and the one before our last. A program may
 * install a handler over ours that calls ours as the previous one. vb_guard_install then installs ours again on top. If
 * the kernel calls ours, ours continues with the newest handler. If the newest handler calls ours, ours continues with
 * the oldest.
 */
static struct sigaction oldest[2], newest[2];
static bool installed[2];
static void *restorer; /* the return address of a handler that the kernel calls; NULL: unknown on this machine */

static void find_restorer(void)
{
#if defined(__x86_64__)
	struct {
		void *handler;
		unsigned long flags;
		void *restorer;
		unsigned long mask;
	} now;

	if (!syscall(SYS_rt_sigaction, SIGSEGV, NULL, &now, sizeof(now.mask)) &&
	    (now.flags & 0x04000000ul /* SA_RESTORER */))
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
		/* no guarded copy: after the return the instruction faults again, and the default action follows */
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

	vb_mutex_lock(&lock, VB_RANK_GUARD);
	for (int i = 0; i < 2; i++) {
		struct sigaction now,
		        ours = {.sa_sigaction = on_fault, .sa_flags = SA_SIGINFO | SA_ONSTACK | SA_NODEFER};

		if (sigaction(signals[i], NULL, &now))
			continue;
		if ((now.sa_flags & SA_SIGINFO) && now.sa_sigaction == on_fault)
			continue;
		/* ours could not tell whether the kernel or a newer handler called it, so it is not installed again */
		if (installed[i] && !restorer)
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
	vb_mutex_unlock(&lock);
}

bool vb_guard_can_sum(void)
{
#if defined(__x86_64__)
	static atomic_int known; /* 1: no, 2: yes */
	int k = atomic_load_explicit(&known, memory_order_relaxed);

	if (__builtin_expect(!k, 0)) {
		k = 1 + (__builtin_cpu_supports("avx512f") && __builtin_cpu_supports("vpclmulqdq") &&
		         __builtin_cpu_supports("pclmul"));
		atomic_store_explicit(&known, k, memory_order_relaxed);
	}
	return k == 2;
#else
	return false;
#endif
}

bool vb_guard_copy_sum(void *dst, const void *src, size_t n, uint64_t sum[2])
{
#if defined(__x86_64__)
	return vb_guard_raw_copy_sum(dst, src, n, sum);
#else
	(void)sum;
	return vb_guard_raw_copy(dst, src, n);
#endif
}

bool vb_guard_copy_sum_past(void *dst, void *past, const void *src, size_t n, uint64_t sum[2])
{
#if defined(__x86_64__)
	return vb_guard_raw_copy_sum_past(dst, src, n, sum, past);
#else
	(void)dst, (void)past, (void)src, (void)n, (void)sum;
	return false;
#endif
}

bool vb_guard_sum(const void *src, size_t n, uint64_t sum[2])
{
#if defined(__x86_64__)
	return vb_guard_raw_sum(NULL, src, n, sum);
#else
	(void)src, (void)n, (void)sum;
	return false;
#endif
}

/* The wide copy is the fastest for medium lengths. Shorter ones use 16-byte moves, longer ones string moves. */
__attribute__((hot)) bool vb_guard_copy(void *dst, const void *src, size_t n)
{
#if defined(__x86_64__)
	if (n == 8)
		return vb_guard_raw_word(dst, src);
	if (n - WIDE_MIN <= WIDE_MAX - WIDE_MIN && vb_guard_can_sum())
		return vb_guard_raw_copy_wide(dst, src, n);
#endif
	return vb_guard_raw_copy(dst, src, n);
}

__attribute__((hot)) size_t vb_guard_tail(uintptr_t end, size_t n)
{
#if defined(__x86_64__)
	size_t tail = n ? ((end - 1) & 7) + 1 : 0;

	return tail < n ? tail : n;
#else
	size_t tail = 8;

	while (tail > n || (tail && end & (tail - 1)))
		tail /= 2;
	return tail;
#endif
}

__attribute__((hot)) bool vb_guard_copy_tail(void *dst, const void *src, size_t n)
{
#if defined(__x86_64__)
	if (n == 8 && !((uintptr_t)dst & 7))
		return vb_guard_raw_word(dst, src);
#endif
	size_t tail = vb_guard_tail((uintptr_t)dst + n, n);

	if (n > tail && !vb_guard_copy(dst, src, n - tail))
		return false;
	dst = (char *)dst + n - tail;
	src = (const char *)src + n - tail;
#if defined(__x86_64__)
	__atomic_thread_fence(__ATOMIC_RELEASE);
	return tail == 8 ? vb_guard_raw_word(dst, src) : vb_guard_raw_copy(dst, src, tail);
#else
	return !tail || vb_guard_raw_last(dst, src, tail);
#endif
}

/* What raw_place needs, at the offsets that it knows. */
struct place {
	const _Atomic uint32_t *word;
	uint64_t expected; /* 32 bits */
	void *dst;
	uint64_t tail; /* bytes to store last */
	_Atomic uint64_t *done;
	uint64_t value;
};

#if defined(__x86_64__)
/* glibc 2.35 and later register each thread's struct rseq. */
extern const ptrdiff_t __rseq_offset __attribute__((weak));
extern const unsigned int __rseq_size __attribute__((weak));

static char *own_rseq(void)
{
	return (char *)vb_self() + __rseq_offset;
}
#endif

bool vb_guard_can_place(void)
{
#if defined(__x86_64__)
	/* cpu_id is negative in a thread that is not registered */
	return &__rseq_size && __rseq_size && *(volatile int32_t *)(own_rseq() + 4) >= 0;
#else
	return false;
#endif
}

enum vb_placed vb_guard_place(void *dst, const void *src, size_t n, const _Atomic uint32_t *word, uint32_t expected,
                              _Atomic uint64_t *done, uint64_t value)
{
#if defined(__x86_64__)
	struct place p = {word, expected, dst, (((uintptr_t)dst + n - 1) & 7) + 1, done, value};

	if (p.tail > n)
		p.tail = n;
	return (enum vb_placed)vb_guard_raw_place(&p, src, n - p.tail, own_rseq());
#else
	(void)dst, (void)src, (void)n, (void)word, (void)expected, (void)done, (void)value;
	return VB_PLACE_FAULT;
#endif
}

bool vb_guard_cas(uint64_t *p, uint64_t compare, uint64_t swap, uint64_t *old)
{
	return vb_guard_raw_cas(p, compare, swap, old);
}

bool vb_guard_add(uint64_t *p, uint64_t add, uint64_t *old)
{
	return vb_guard_raw_add(p, add, old);
}
