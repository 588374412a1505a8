// udp_slots.c - memory that long UDP sends are made from without a copy by the kernel
// follows: vmsplice(2), splice(2), udp(7)
// SPDX-License-Identifier: MIT
#include "net/udp_slots.h"

#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/syscall.h>
#include <sys/uio.h>
#include <sys/utsname.h>
#include <unistd.h>
#if defined(__x86_64__)
#include <immintrin.h>
#endif

#ifndef MADV_DONTNEED_LOCKED
#define MADV_DONTNEED_LOCKED 24 /* MADV_DONTNEED refuses memory that mlockall(2) has locked */
#endif

/*
 * Why: between two programs of one machine sendmsg(2) copies into pages that the receiver has just read. Each cache
 * line has to be taken from the receiver's core first, which costs four times the time of the copy, or more. Stores that
 * bypass the cache need no line. So the packets are copied into a slot by such stores, and the kernel passes the slot's
 * pages on. The receiver's copy then reads from memory, which takes less than the sender gains.
 *
 * The kernel reads a slot until the receiver has it. If a slot were overwritten too early, a packet could be half of
 * one send and half of another. Over IPv4 only 16 bits of the ICRC tell (frame/icrc.h), so this must not happen: repeated
 * packets, which the acknowledgement of the first ones covers too, do not go from slots. A receiver could acknowledge
 * packets that it has not read yet, and later find there what was sent to somebody else. So all slots are of one
 * connection. Before another one gets them, new pages take their place.
 */
#define SLOTS 32u                   /* together one huge page, so that the kernel counts references to one page */
#define BYTES (SLOTS * VB_UDP_SLOT) /* 2 MiB */
#define OLD 20000000u               /* ns; a connection that has not used the slots for so long loses them */

struct vb_udp_slots {
	uint8_t *map, *bytes; /* what is mapped, and the huge page in it */
	int pipe[2];
	bool broken;
	uint32_t next;
	uint64_t owner, used_at; /* 0: none */
	uint64_t sent[SLOTS];    /* the last packet of each slot; 0: free */
};

/* Before Linux 6.5 splice(2) sends to a UDP socket page by page. */
static bool kernel_can(void)
{
	struct utsname u;
	unsigned major = 0, minor = 0;

	return !uname(&u) && sscanf(u.release, "%u.%u", &major, &minor) == 2 &&
	       (major > 6 || (major == 6 && minor >= 5));
}

struct vb_udp_slots *vb_udp_slots_new(void)
{
#if defined(__x86_64__)
	struct vb_udp_slots *s = kernel_can() ? calloc(1, sizeof(*s)) : NULL;

	if (!s)
		return NULL;
	void *p = mmap(NULL, 2 * (size_t)BYTES, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1,
	               0);

	if (p == MAP_FAILED || pipe2(s->pipe, O_CLOEXEC | O_NONBLOCK)) {
		if (p != MAP_FAILED)
			munmap(p, 2 * (size_t)BYTES);
		free(s);
		return NULL;
	}
	s->map = p;
	s->bytes = s->map + (BYTES - (uintptr_t)s->map % BYTES);
	madvise(s->bytes, BYTES, MADV_HUGEPAGE);
	madvise(s->bytes, BYTES, MADV_DONTFORK);
	return s;
#else
	(void)kernel_can;
	return NULL;
#endif
}

void vb_udp_slots_free(struct vb_udp_slots *s)
{
	if (!s)
		return;
	close(s->pipe[0]);
	close(s->pipe[1]);
	munmap(s->map, 2 * (size_t)BYTES);
	free(s);
}

void vb_udp_slots_fill(uint8_t *to, const uint8_t *from, size_t len)
{
#if defined(__x86_64__)
	for (size_t i = 0; i < len; i += 64) {
		const __m128i *in = (const __m128i *)(from + i);
		__m128i *out = (__m128i *)(to + i);
		__m128i a = _mm_loadu_si128(in), b = _mm_loadu_si128(in + 1), c = _mm_loadu_si128(in + 2),
		        d = _mm_loadu_si128(in + 3);

		_mm_stream_si128(out, a);
		_mm_stream_si128(out + 1, b);
		_mm_stream_si128(out + 2, c);
		_mm_stream_si128(out + 3, d);
	}
#else
	(void)to, (void)from, (void)len;
#endif
}

/* Gives the slots to this connection, with new pages. Returns false if another one uses them. */
static bool own_slots(struct vb_udp_slots *s, const struct vb_udp_slot_use *use)
{
	if (s->owner && (use->now - s->used_at <= OLD || madvise(s->bytes, BYTES, MADV_DONTNEED_LOCKED)))
		return false;
	memset(s->sent, 0, sizeof(s->sent));
	s->owner = use->owner;
	return true;
}

/* After a failure the pipe or the socket may hold a part of the send. The peer drops what this sends. */
static void clear_rest(struct vb_udp_slots *s, int fd)
{
	uint8_t bytes[4096];

	while (syscall(SYS_read, s->pipe[0], bytes, sizeof(bytes)) > 0)
		;
	syscall(SYS_sendto, fd, NULL, 0, MSG_DONTWAIT, NULL, 0);
}

static bool pass_pages(struct vb_udp_slots *s, int fd, const struct msghdr *to, uint8_t *slot, uint32_t len)
{
	struct iovec iov = {slot, len};
	struct msghdr begin = *to;

	begin.msg_iov = NULL;
	begin.msg_iovlen = 0;
	if (syscall(SYS_vmsplice, s->pipe[1], &iov, 1, SPLICE_F_NONBLOCK) != (long)len) {
		s->broken = true; /* the user has too many pipes: this one is short */
		return false;
	}
	return syscall(SYS_sendmsg, fd, &begin, MSG_DONTWAIT | MSG_MORE) >= 0 &&
	       syscall(SYS_splice, s->pipe[0], NULL, fd, NULL, (size_t)len, SPLICE_F_NONBLOCK) == (long)len;
}

bool vb_udp_slots_are_broken(const struct vb_udp_slots *s)
{
	return s->broken;
}

uint8_t *vb_udp_slots_room(struct vb_udp_slots *s, const struct vb_udp_slot_use *use)
{
	uint32_t i = s->next % SLOTS;

	if (s->broken || (s->owner != use->owner && !own_slots(s, use)) || use->acked < s->sent[i])
		return NULL;
	s->used_at = use->now;
	s->next++;
	return s->bytes + (size_t)i * VB_UDP_SLOT;
}

bool vb_udp_slots_pass(struct vb_udp_slots *s, int fd, const struct msghdr *to, uint8_t *bytes, uint32_t len,
                       const struct vb_udp_slot_use *use)
{
	s->sent[(uint32_t)(bytes - s->bytes) / VB_UDP_SLOT] = use->sent;
#if defined(__x86_64__)
	_mm_sfence();
#endif
	if (!s->broken && pass_pages(s, fd, to, bytes, len))
		return true;
	int err = errno;

	s->broken |= err == ENOSYS || err == EPERM; /* seccomp(2) refuses splice */
	clear_rest(s, fd);
	errno = err;
	return false;
}
