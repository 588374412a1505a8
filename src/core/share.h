// share.h - the file behind context->cmd_fd: who has it imports the device, and the objects of its owner
// follows: ibv_import_device(3), ibv_import_pd(3), ibv_import_mr(3)
// SPDX-License-Identifier: MIT
#ifndef VB_CORE_SHARE_H
#define VB_CORE_SHARE_H

#include "core/core.h"

/*
 * The file is a memfd that only its owner can write. It names the device and the owner, and has the handles of the
 * owner's protection domains. Regions are found in the owner's segment, where each names its protection domain.
 */
struct vb_share {
	struct vb_share *next; /* node->shares */
	unsigned refs;         /* contexts; under node->ctx_lock */
	uint64_t file[2];      /* device and inode of the file */
	struct vb_share_file *map;
	bool writable; /* this process has made it */
	uint32_t lane; /* of the owner */
	uint64_t incarnation;
	struct vb_pd *imported; /* protection domains of another process; under node->ctx_lock */
};

/* What the file says. */
struct vb_share_text {
	char device[IBV_SYSFS_NAME_MAX];
	uint32_t lane;
	uint64_t incarnation;
};

/* Makes the file of a new context, and its descriptor. 0 or an errno value. No lock held, as in the calls below. */
int vb_share_new(struct vb_node *node, const char *device, struct vb_share **out, int *fd);
/* Reads a descriptor that another process, or this one, was given. EBADF, or EOPNOTSUPP: it is none of ours. */
int vb_share_read(int fd, struct vb_share_text *text);
/* Opens such a descriptor. Contexts with the same file share one struct. */
int vb_share_open(struct vb_node *node, int fd, struct vb_share **out);
void vb_share_put(struct vb_node *node, struct vb_share *share);

/* Was the file made by this process? Then handles are those of its own objects. */
bool vb_share_is_ours(const struct vb_node *node, const struct vb_share *share);

/* The owner enters and removes the handles of its protection domains. */
void vb_share_enter(struct vb_share *share, uint32_t handle);
void vb_share_remove(struct vb_share *share, uint32_t handle);
bool vb_share_has(const struct vb_share *share, uint32_t handle);

/* Parses the first line of the file, n bytes that may be anything. */
bool vb_share_parse(const char *bytes, size_t n, struct vb_share_text *text);

#endif
