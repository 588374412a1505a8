// runtime.h - the runtime directory, and the path in it of the tree that programs read instead of /sys and /dev
// follows: verbena(7), VERBENA_RUNTIME
// SPDX-License-Identifier: MIT
#ifndef VB_UTIL_RUNTIME_H
#define VB_UTIL_RUNTIME_H

#include <stdbool.h>
#include <stddef.h>

/*
 * The runtime directory is $VERBENA_RUNTIME. If that is not set, it is /run/verbena for root if root can write there,
 * $XDG_RUNTIME_DIR/verbena if that directory is the user's, otherwise /tmp/verbena-<uid>. Sockets of brokers
 * (broker/proto/runtime.h) and trees are in it. vb_runtime_path returns the path only. vb_runtime_dir also makes the
 * directory, and refuses one that is not ours (EPERM) unless VERBENA_RUNTIME names it: then the user is responsible. 0
 * or an errno value.
 */
int vb_runtime_path(char *buf, size_t size);
int vb_runtime_dir(char *buf, size_t size);

/* VERBENA_LIDS=1: RoCE adapters have LIDs (core/lid.h). If it is not set, see node/lids_only.h. */
bool vb_lids_wanted(void);

/*
 * The path of the tree for the calling thread's network namespace, choice of devices (VERBENA_DEVICES) and LIDs. The
 * tree contains class/infiniband and so on. Creates nothing, allocates nothing and takes no lock, so that the path shim
 * may call it in a signal handler. 0 or an errno value: EPERM if another user owns the tree or the runtime directory,
 * and so controls its contents; ENOENT if it does not exist (buf has its path all the same).
 */
int vb_runtime_tree_place(char *buf, size_t size);

/* The same for readers: ENOENT also if the launcher that started this program has written no tree, or a tree for
 * another namespace. Other trees may be stale, because the kernel reuses the numbers of namespaces. */
int vb_runtime_tree(char *buf, size_t size);

/* The launcher announces the tree that it has written, or NULL for none, to the program that it becomes and its
 * children. 0 or an errno value. */
int vb_runtime_tree_announce(const char *tree);

/* Describes what is wrong with the directory or the tree: its path and owner. Returns false if nothing is. */
bool vb_runtime_tree_has_complaint(char *text, size_t size);

#endif
