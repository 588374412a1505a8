// runtime.h - the runtime directory, and where in it the tree stands that programs read instead of /sys and /dev
// follows: verbena(7), VERBENA_RUNTIME
// SPDX-License-Identifier: MIT
#ifndef VB_UTIL_RUNTIME_H
#define VB_UTIL_RUNTIME_H

#include <stdbool.h>
#include <stddef.h>

/*
 * $VERBENA_RUNTIME, else /run/verbena for root if it can write there, $XDG_RUNTIME_DIR/verbena where that directory is
 * the user's, else /tmp/verbena-<uid>. Brokers (broker/proto/runtime.h) and trees stand in the same directory.
 * vb_runtime_path only says which; vb_runtime_dir also makes it, and refuses one that is not a directory of ours
 * (EPERM), unless VERBENA_RUNTIME names it: then the user answers for it. 0 or an errno value.
 */
int vb_runtime_path(char *buf, size_t size);
int vb_runtime_dir(char *buf, size_t size);

/* VERBENA_LIDS=1: RoCE adapters have LIDs (core/lid.h). */
bool vb_lids_wanted(void);

/*
 * The place of the tree of the calling thread's network namespace, choice of devices (VERBENA_DEVICES) and of LIDs:
 * below it stand class/infiniband and so on. Nothing is made; no allocation and no lock, so that the path shim may ask
 * in a signal handler. 0 or an errno value: EPERM where another user has made it, or the runtime directory, and could
 * let us read anything; ENOENT where nobody has (buf has its path all the same).
 */
int vb_runtime_tree_place(char *buf, size_t size);

/* The same, for who reads: ENOENT too where the launcher that started this program has written no tree, or that of
 * another namespace. What an earlier start has left there may be of a namespace that has ended: the numbers of
 * namespaces come again. */
int vb_runtime_tree(char *buf, size_t size);

/* The launcher, to the program that it becomes and what that starts: it has written this tree, or (NULL) none. 0 or
 * an errno value. */
int vb_runtime_tree_announce(const char *tree);

/* What is wrong with the directory or the tree, in one clause: its path and owner. False: nothing is. */
bool vb_runtime_tree_complaint(char *text, size_t size);

#endif
