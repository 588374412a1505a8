// dead_trees.h - removes the trees of network namespaces that no longer exist
// follows: namespaces(7), proc(5)
// SPDX-License-Identifier: MIT
#ifndef VB_TOOLS_DEAD_TREES_H
#define VB_TOOLS_DEAD_TREES_H

enum { VB_TREE_ORIGIN = 96, VB_TREE_STAMP = 192 };

/* Identifies the writer of a tree's .stamp: the boot, and the pid and user namespaces, whose processes it sees. */
void vb_tree_origin(char text[VB_TREE_ORIGIN]);

/* Removes our trees beside this one whose network namespace has no process: nobody reads them. Trees stay where we
 * may not see all processes. */
void vb_dead_trees_remove(const char *tree);

#endif
