// copy.c - one copy between the memories of two programs (process_vm_readv, process_vm_writev) or within one (memcpy)
// follows: process_vm_readv(2)
// SPDX-License-Identifier: MIT
#include "path/local/copy.h"

#include <errno.h>
#include <string.h>
#include <unistd.h>

#include "util/guard.h"

/* Is all local memory mapped? Called only after a copy has failed. */
static bool local_is_mapped(const struct iovec *iov, int n)
{
	for (int i = 0; i < n; i++) {
		char c;

		for (size_t off = 0; off < iov[i].iov_len; off += 4096)
			if (!vb_guard_copy(&c, (char *)iov[i].iov_base + off, 1))
				return false;
		if (iov[i].iov_len && !vb_guard_copy(&c, (char *)iov[i].iov_base + iov[i].iov_len - 1, 1))
			return false;
	}
	return true;
}

static int explain_failure(struct vb_peer *peer, ssize_t done, size_t want, int err, const struct iovec *local, int n)
{
	if (done == (ssize_t)want)
		return 0;
	if (done >= 0 || err == EFAULT)
		return local_is_mapped(local, n) ? EFAULT : VB_EFAULT_LOCAL;
	if (err == ESRCH)
		return ESRCH;
	/* ptrace policy or seccomp forbids the call; do not try again with this peer */
	atomic_store(&peer->copy_ok, false);
	atomic_store(&peer->ours->can_pull, 0);
	return EPERM;
}

static int vm_write(struct vb_peer *peer, uint64_t remote, const struct iovec *local, int n, size_t total)
{
	size_t tail = vb_guard_tail(remote + total, total);
	struct iovec to[2] = {{(void *)(uintptr_t)remote, total - tail},
	                      {(void *)(uintptr_t)(remote + total - tail), tail}};
	bool split = tail < total;
	ssize_t done;

	if (!vb_peer_alive(peer)) /* directly before the call, because the kernel may reuse the pid */
		return ESRCH;

		/* One call suffices on x86: the kernel copies the second range after the first, and x86 keeps the order
		 * of stores. */
#if defined(__x86_64__)
	done = process_vm_writev(peer->pid, local, (unsigned long)n, split ? to : to + 1, split ? 2 : 1, 0);
#else
	struct iovec rest[VB_MAX_SGE + 1];
	int first = 0;

	done = split ? process_vm_writev(peer->pid, local, (unsigned long)n, to, 1, 0) : 0;
	if (done == (ssize_t)(total - tail)) {
		size_t skip = total - tail;
		ssize_t more;

		while (first < n && skip >= local[first].iov_len)
			skip -= local[first++].iov_len;
		memcpy(rest, local + first, sizeof(*rest) * (size_t)(n - first));
		rest[0].iov_base = (char *)rest[0].iov_base + skip;
		rest[0].iov_len -= skip;
		atomic_thread_fence(memory_order_seq_cst);
		more = process_vm_writev(peer->pid, rest, (unsigned long)(n - first), to + 1, 1, 0);
		done = more < 0 ? more : done + more;
	}
#endif
	return explain_failure(peer, done, total, errno, local, n);
}

static int vm_read(struct vb_peer *peer, uint64_t remote, const struct iovec *local, int n, size_t total)
{
	struct iovec from = {(void *)(uintptr_t)remote, total};
	ssize_t done;

	if (!vb_peer_alive(peer))
		return ESRCH;
	done = process_vm_readv(peer->pid, local, (unsigned long)n, &from, 1, 0);

	return explain_failure(peer, done, total, errno, local, n);
}

const struct vb_copy_ops vb_copy_vm = {.write = vm_write, .read = vm_read};

static int self_write(struct vb_peer *peer, uint64_t remote, const struct iovec *local, int n, size_t total)
{
	uint8_t *to = (uint8_t *)(uintptr_t)remote;

	for (int i = 0; i < n; i++) {
		bool ok = i == n - 1 ? vb_guard_copy_tail(to, local[i].iov_base, local[i].iov_len)
		                     : vb_guard_copy(to, local[i].iov_base, local[i].iov_len);
		if (!ok)
			return local_is_mapped(local, n) ? EFAULT : VB_EFAULT_LOCAL;
		to += local[i].iov_len;
	}
	return 0;
}

static int self_read(struct vb_peer *peer, uint64_t remote, const struct iovec *local, int n, size_t total)
{
	const struct iovec from = {(void *)(uintptr_t)remote, total};
	const uint8_t *src = (const uint8_t *)(uintptr_t)remote;

	for (int i = 0; i < n; i++) {
		if (!vb_guard_copy_tail(local[i].iov_base, src, local[i].iov_len))
			return local_is_mapped(&from, 1) ? VB_EFAULT_LOCAL : EFAULT;
		src += local[i].iov_len;
	}
	return 0;
}

const struct vb_copy_ops vb_copy_self = {.write = self_write, .read = self_read};

bool vb_copy_probe(int pid, uint64_t self, uint64_t incarnation)
{
	struct vb_seg_header there;
	struct iovec to = {&there, offsetof(struct vb_seg_header, self)}, from = {(void *)(uintptr_t)self, to.iov_len};

	if (pid <= 0 || !self)
		return false;
	return process_vm_readv(pid, &to, 1, &from, 1, 0) == (ssize_t)to.iov_len && there.magic == VB_SEG_MAGIC &&
	       there.incarnation == incarnation;
}
