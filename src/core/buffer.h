// buffer.h - the program's buffers and regions: looked up, read and stored with guarded copies
// follows: IBA volume 1, 10.6.3 (access), 10.7.3 (scatter, gather)
// SPDX-License-Identifier: MIT
#ifndef VB_CORE_BUFFER_H
#define VB_CORE_BUFFER_H

#include <sys/uio.h>

#include "core/node.h"

/* A peer's (or our own) memory region, read once. */
struct vb_mr_view {
	uint32_t access, pd, map_id;
	uint64_t iova, length, addr;
	uint64_t window; /* struct vb_mr_shared's; 0: a region */
};
bool vb_mr_read_shared(void *seg, uint32_t key, struct vb_mr_view *out);
/* May a queue pair of this number and PD use the region, or the window? */
static inline bool vb_mr_view_is_of(const struct vb_mr_view *v, uint32_t pd, uint32_t qpn)
{
	if (__builtin_expect(v->pd == pd, 1))
		return true;
	return !v->pd && v->window >> 32 == pd && (!(uint32_t)v->window || (uint32_t)v->window == qpn);
}
/* Checks PD, access rights and range, without wrap-around, for a queue pair of the owner. *va is the owner's address. */
bool vb_mr_view_allows(const struct vb_mr_view *v, uint32_t pd, uint32_t qpn, uint64_t addr, uint64_t length,
                       uint32_t access, uint64_t *va);
/* Checks a peer's access to this process's memory: the key must allow the whole range. */
bool vb_own_memory(struct vb_qp *qp, uint32_t key, uint64_t addr, uint64_t length, uint32_t access, uint64_t *va);

/* Resolves the local sges of w into iov, which has room for VB_MAX_SGE + 1. Returns the count, or -1 for a
 * protection error. */
int vb_gather(struct vb_qp *qp, const struct vb_swqe *w, uint32_t access, struct iovec *iov);
/* Copies n bytes at offset off of a gathered message. False if the memory is not mapped, or the message ends before. */
bool vb_copy_from(const struct iovec *iov, int niov, uint64_t off, void *dst, uint32_t n);
bool vb_copy_to(const struct iovec *iov, int niov, uint64_t off, const void *src, uint32_t n);

#endif
