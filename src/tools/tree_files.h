// tree_files.h - files, links and directories below one directory, each changed atomically
// follows: rename(2)
// SPDX-License-Identifier: MIT
#ifndef VB_TOOLS_TREE_FILES_H
#define VB_TOOLS_TREE_FILES_H

#include <stdbool.h>
#include <stddef.h>
#include <sys/types.h>

/* Entries are created here before they are moved into place, and moved here before they are removed. */
#define VB_TREE_ASIDE ".aside"

/* FNV-1a, 64 bits */
#define VB_FNV_START 0xcbf29ce484222325ull
#define VB_FNV_PRIME 0x100000001b3ull

/* Paths are relative to fd, which the caller opens and closes. One writer at a time. Missing parents are created. The
 * first error stays in err (an errno), and later calls do nothing. */
struct vb_tree {
	int fd;
	int err;
};

void vb_tree_dir(struct vb_tree *t, const char *path);
/* Unchanged if it has this content already. */
void vb_tree_file(struct vb_tree *t, const char *path, const char *text);
void vb_tree_link(struct vb_tree *t, const char *path, const char *target);
void vb_tree_move(struct vb_tree *t, const char *from, const char *to);
/* Removes a file, a link, or a directory with its content. A missing one is no error. */
void vb_tree_remove(struct vb_tree *t, const char *path);
/* Removes the entries of a directory for which keep() is false. */
void vb_tree_prune(struct vb_tree *t, const char *dir, bool (*keep)(const char *name, const void *arg),
                   const void *arg);

/* Removes any directory with its content, as far as possible. */
void vb_tree_discard(int dirfd, const char *name);

/* Reads a file as a string, size - 1 bytes at most. Returns its length, or -1 with errno. */
ssize_t vb_tree_read(int dirfd, const char *path, char *buf, size_t size);

#endif
