// dead_trees.h - trees of network namespaces that have ended
// follows: namespaces(7), proc(5)
// SPDX-License-Identifier: MIT
#ifndef VB_TOOLS_DEAD_TREES_H
#define VB_TOOLS_DEAD_TREES_H

enum { VB_TREE_ORIGIN = 96, VB_TREE_STAMP = 192 };

/* Who writes a tree's .stamp: the boot, and the process and user namespace that it can see the processes of. */
void vb_tree_origin(char text[VB_TREE_ORIGIN]);

/* Removes those that stand beside this tree, are ours, and are of a network namespace that no process is in: nobody reads them.
 * Where we may not see all processes that could be, they stay. */
void vb_dead_trees_remove(const char *tree);

#endif
