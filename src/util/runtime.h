// runtime.h - the runtime directory, and the place in it of the tree that programs read instead of /sys and /dev
// follows: verbena(7), VERBENA_RUNTIME
// SPDX-License-Identifier: MIT
#ifndef VB_UTIL_RUNTIME_H
#define VB_UTIL_RUNTIME_H

#include <stdbool.h>
#include <stddef.h>

/*
 * The runtime directory is $VERBENA_RUNTIME; without that /run/verbena for root if it can write there,
 * $XDG_RUNTIME_DIR/verbena if that directory is the user's, otherwise /tmp/verbena-<uid>. Brokers
 * (broker/proto/runtime.h) and trees are in the same directory. vb_runtime_path returns the path only. vb_runtime_dir
 * also makes the directory, and refuses one that is not ours (EPERM) unless VERBENA_RUNTIME names it: then the user is
 * responsible. 0 or an errno value.
 */
int vb_runtime_path(char *buf, size_t size);
int vb_runtime_dir(char *buf, size_t size);

/* VERBENA_LIDS=1: RoCE adapters have LIDs (core/lid.h). */
bool vb_lids_wanted(void);

/*
 * The path of the tree for the calling thread's network namespace, choice of devices (VERBENA_DEVICES) and LIDs;
 * class/infiniband and so on are below it. Makes nothing, allocates nothing and takes no lock, so that the path shim
 * may call it in a signal handler. 0 or an errno value: EPERM if another user has made the tree or the runtime
 * directory, and so controls its contents; ENOENT if it does not exist (buf has its path all the same).
 */
int vb_runtime_tree_place(char *buf, size_t size);

/* The same for readers: ENOENT also if the launcher that started this program has written no tree, or one for
 * another namespace. An old tree may be of a namespace that has ended, because numbers of namespaces are reused. */
int vb_runtime_tree(char *buf, size_t size);

/* The launcher announces the tree that it has written, or NULL for none, to the program that it becomes and its
 * children. 0 or an errno value. */
int vb_runtime_tree_announce(const char *tree);

/* Describes what is wrong with the directory or the tree: its path and owner. Returns false if nothing is. */
bool vb_runtime_tree_complaint(char *text, size_t size);

#endif
