// tree_files.h - files, links and directories below one directory, each changed in one step
// follows: rename(2)
// SPDX-License-Identifier: MIT
#ifndef VB_TOOLS_TREE_FILES_H
#define VB_TOOLS_TREE_FILES_H

#include <stdbool.h>
#include <stddef.h>
#include <sys/types.h>

/* Where things are made before they are moved into place, and moved to before they are removed. */
#define VB_TREE_ASIDE ".aside"

/* Paths are relative to fd, which the caller opened and closes; one writer at a time. Parents of what is made are made. The
 * first failure stays in err (an errno value), and nothing more is done after it. */
struct vb_tree {
	int fd;
	int err;
};

void vb_tree_dir(struct vb_tree *t, const char *path);
/* Left alone where it has this content already. */
void vb_tree_file(struct vb_tree *t, const char *path, const char *text);
void vb_tree_link(struct vb_tree *t, const char *path, const char *target);
void vb_tree_move(struct vb_tree *t, const char *from, const char *to);
/* A file, a link, or a directory with all in it; not being there is no failure. */
void vb_tree_remove(struct vb_tree *t, const char *path);
/* Removes what keep() does not know from a directory. */
void vb_tree_prune(struct vb_tree *t, const char *dir, bool (*keep)(const char *name, const void *arg), const void *arg);

/* A directory of any place and all in it, as far as that goes. */
void vb_tree_discard(int dirfd, const char *name);

/* A whole file as a string, at most size - 1 bytes of it: its length, or -1 with errno. */
ssize_t vb_tree_read(int dirfd, const char *path, char *buf, size_t size);

#endif
