// dead_trees.c - removes the trees of network namespaces that no longer exist
// follows: namespaces(7), proc(5)
// SPDX-License-Identifier: MIT
#include "tools/dead_trees.h"

#include <ctype.h>
#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <unistd.h>

#include "tools/tree_files.h"
#include "util/trust.h"

#define GONE ".gone" /* being removed */
#define BOOT_LEN 36

/* The kernel's numbers of the first namespaces (include/linux/proc_ns.h). */
enum { FIRST_USER = 0xeffffffdu, FIRST_PID = 0xeffffffcu };

static uint64_t namespace_inode(const char *path)
{
	struct stat st;

	return stat(path, &st) ? 0 : st.st_ino;
}

void vb_tree_origin(char text[VB_TREE_ORIGIN])
{
	char boot[64];

	if (vb_tree_read(AT_FDCWD, "/proc/sys/kernel/random/boot_id", boot, sizeof(boot)) != BOOT_LEN + 1)
		memset(boot, '-', BOOT_LEN);
	snprintf(text, VB_TREE_ORIGIN, "%.*s %llu %llu", BOOT_LEN, boot,
	         (unsigned long long)namespace_inode("/proc/self/ns/pid"),
	         (unsigned long long)namespace_inode("/proc/self/ns/user"));
}

static bool sees_all_processes(void)
{
	return namespace_inode("/proc/self/ns/pid") == FIRST_PID && namespace_inode("/proc/self/ns/user") == FIRST_USER;
}

static bool is_number(const char *name)
{
	return isdigit((unsigned char)*name);
}

/* True if a thread of the process with this directory in /proc is in the namespace. Processes that we may not inspect
 * are not ours. */
static bool has_thread_in(int proc_fd, const char *pid, uint64_t netns)
{
	char path[64];
	struct stat st;
	bool found = false;

	snprintf(path, sizeof(path), "%.16s/task", pid);
	int fd = openat(proc_fd, path, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
	DIR *dir = fd < 0 ? NULL : fdopendir(fd);
	if (!dir) {
		if (fd >= 0)
			close(fd);
		return false;
	}
	for (struct dirent *e; !found && (e = readdir(dir));) {
		snprintf(path, sizeof(path), "%.16s/ns/net", e->d_name);
		found = is_number(e->d_name) && !fstatat(dirfd(dir), path, &st, 0) && st.st_ino == netns;
	}
	closedir(dir);
	return found;
}

static bool has_process(uint64_t netns)
{
	DIR *dir = opendir("/proc");
	bool found = !dir; /* without /proc, assume so */

	for (struct dirent *e; !found && (e = readdir(dir));)
		found = is_number(e->d_name) && has_thread_in(dirfd(dir), e->d_name, netns);
	if (dir)
		closedir(dir);
	return found;
}

/* True if the tree is of another boot, or if no process is in its namespace and we can see all that could be. */
static bool is_dead(int tree_fd, uint64_t netns)
{
	char stamp[VB_TREE_STAMP], origin[VB_TREE_ORIGIN];
	bool known = vb_tree_read(tree_fd, ".stamp", stamp, sizeof(stamp)) > BOOT_LEN && stamp[BOOT_LEN] == ' ';

	vb_tree_origin(origin);
	if (known && strncmp(stamp, origin, BOOT_LEN) != 0)
		return true;
	bool same = known && !strncmp(stamp, origin, strlen(origin)) && stamp[strlen(origin)] == ' ';
	return (same || sees_all_processes()) && !has_process(netns);
}

static bool ends_with(const char *name, const char *end)
{
	size_t n = strlen(name), m = strlen(end);

	return n > m && !strcmp(name + n - m, end);
}

/* Removes the tree under its lock, so that nobody writes to it. A process that waits for the lock then finds the tree
 * gone. */
static void remove_if_dead(int dir_fd, int tree_fd, const char *name)
{
	char gone[NAME_MAX + sizeof(GONE)];
	int lock = openat(tree_fd, ".lock", O_RDWR | O_CREAT | O_NOFOLLOW | O_CLOEXEC, 0600);

	if (lock < 0)
		return;
	snprintf(gone, sizeof(gone), "%s" GONE, name);
	if (!flock(lock, LOCK_EX | LOCK_NB) && is_dead(tree_fd, strtoull(name + strlen("sys."), NULL, 10)) &&
	    !renameat(dir_fd, name, dir_fd, gone))
		vb_tree_discard(dir_fd, gone);
	close(lock);
}

static void remove_tree_entry(int dir_fd, const char *name)
{
	int fd = openat(dir_fd, name, O_RDONLY | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC);
	struct stat st;

	if (fd < 0)
		return;
	if (!fstat(fd, &st) && vb_trust_is_private(&st, geteuid())) {
		if (ends_with(name, GONE))
			vb_tree_discard(dir_fd, name);
		else
			remove_if_dead(dir_fd, fd, name);
	}
	close(fd);
}

void vb_dead_trees_remove(const char *tree)
{
	const char *own = strrchr(tree, '/') + 1;
	char path[PATH_MAX];

	snprintf(path, sizeof(path), "%.*s", (int)(own - tree), tree);
	DIR *dir = opendir(path);
	if (!dir)
		return;
	for (struct dirent *e; (e = readdir(dir));)
		if (!strncmp(e->d_name, "sys.", 4) && is_number(e->d_name + 4) && strcmp(e->d_name, own))
			remove_tree_entry(dirfd(dir), e->d_name);
	closedir(dir);
}
