// import.h - memory of another process that is mapped here for an imported region
// follows: ibv_import_mr(3)
// SPDX-License-Identifier: MIT
#ifndef VB_CORE_IMPORT_H
#define VB_CORE_IMPORT_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

struct vb_region_map {
	void *local; /* our address of the region's first byte */
	size_t length;
	uint64_t iova;
	uint32_t key, access;
	/* our mapping; NULL: none */
	void *base;
	size_t size;
	bool sysv; /* by shmat(2) */
};

#endif
