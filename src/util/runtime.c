// runtime.c - the runtime directory, and the path in it of the tree that programs read instead of /sys and /dev
// follows: verbena(7), VERBENA_RUNTIME
// SPDX-License-Identifier: MIT
#include "util/runtime.h"

#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <stdbool.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <unistd.h>

#include "util/env.h"
#include "util/trust.h"

#define ROOT_DIR "/run/verbena"
#define TREE "VERBENA_TREE" /* the tree that the launcher has written for its program and its children */

/* snprintf is not safe in a signal handler. */
struct writer {
	char *p, *end;
};

static void writer_put(struct writer *w, const char *s)
{
	while (*s && w->p < w->end)
		*w->p++ = *s++;
}

static void writer_put_number(struct writer *w, uint64_t v, unsigned base)
{
	char digits[24];
	int i = sizeof(digits) - 1;

	digits[i] = '\0';
	do {
		digits[--i] = "0123456789abcdef"[v % base];
		v /= base;
	} while (v);
	writer_put(w, digits + i);
}

static int finish_path(struct writer *w)
{
	if (w->p == w->end)
		return ENAMETOOLONG;
	*w->p = '\0';
	return 0;
}

/* Makes the system call itself, because in the path shim the library's stat calls this function. */
static bool is_own_directory(const char *path, bool follow)
{
	struct statx stx;

	return !syscall(SYS_statx, AT_FDCWD, path, follow ? 0 : AT_SYMLINK_NOFOLLOW, STATX_BASIC_STATS, &stx) &&
	       S_ISDIR(stx.stx_mode) && stx.stx_uid == geteuid() && !(stx.stx_mode & 022);
}

/* Checks with the effective user, not with the caller of a set-user-ID program. */
static bool can_write(const char *dir)
{
	if (!syscall(SYS_faccessat2, AT_FDCWD, dir, W_OK, AT_EACCESS))
		return true;
	/* before Linux 5.8, or with a seccomp filter that does not know the call: checks with the real user */
	return (errno == ENOSYS || errno == EPERM) && !syscall(SYS_faccessat, AT_FDCWD, dir, W_OK);
}

/* Root in a container may be unable to write /run. Root in a user namespace may see another root's /run. */
static bool has_root_directory(void)
{
	return geteuid() == 0 && (can_write(ROOT_DIR) || (errno == ENOENT && can_write("/run")));
}

int vb_runtime_path(char *buf, size_t size)
{
	struct writer w = {buf, buf + size};
	const char *dir = vb_env("VERBENA_RUNTIME");

	if (dir && *dir) {
		if (*dir != '/') {
			if (syscall(SYS_getcwd, buf, size) < 0)
				return errno;
			w.p += strlen(buf);
			writer_put(&w, "/");
		}
		writer_put(&w, dir);
		return finish_path(&w);
	}
	dir = vb_env("XDG_RUNTIME_DIR");
	if (has_root_directory()) {
		writer_put(&w, ROOT_DIR);
	} else if (dir && *dir == '/' && is_own_directory(dir, true)) {
		writer_put(&w, dir);
		writer_put(&w, "/verbena");
	} else {
		writer_put(&w, "/tmp/verbena-");
		writer_put_number(&w, geteuid(), 10);
	}
	return finish_path(&w);
}

int vb_runtime_dir(char *buf, size_t size)
{
	const char *explicit = vb_env("VERBENA_RUNTIME");
	int rc = vb_runtime_path(buf, size);
	struct stat st;

	if (rc)
		return rc;
	/* Other users look for root's broker in root's directory. */
	if (mkdir(buf, geteuid() == 0 ? 0755 : 0700) && errno != EEXIST)
		return errno;
	if (explicit && *explicit)
		return stat(buf, &st) ? errno : S_ISDIR(st.st_mode) ? 0 : ENOTDIR;
	return is_own_directory(buf, false) ? 0 : EPERM;
}

bool vb_lids_wanted(void)
{
	const char *text = vb_env("VERBENA_LIDS");

	return text && !strcmp(text, "1");
}

/* Another value of the variable is another tree. */
static void put_variable(struct writer *w, const char *name)
{
	const char *value = vb_env(name);
	uint64_t h = 0xcbf29ce484222325ull;

	if (!value || !*value)
		return;
	for (; *value; value++)
		h = (h ^ (uint8_t)*value) * 0x100000001b3ull;
	writer_put(w, ".");
	writer_put_number(w, h, 16);
}

/* The path of the tree. Its owner is not checked. */
static int tree_path(char *buf, size_t size)
{
	const char *fabric = vb_env("VERBENA_FABRIC");
	struct statx ns;
	int rc = vb_runtime_path(buf, size);

	if (rc)
		return rc;
	if (syscall(SYS_statx, AT_FDCWD, "/proc/thread-self/ns/net", 0, STATX_INO, &ns))
		ns.stx_ino = 0;
	struct writer w = {buf + strlen(buf), buf + size};
	writer_put(&w, "/sys.");
	writer_put_number(&w, ns.stx_ino, 10);
	put_variable(&w, "VERBENA_DEVICES");
	if (fabric && *fabric) {
		writer_put(&w, ".fabric");
		put_variable(&w, "VERBENA_FABRIC");
		put_variable(&w, "VERBENA_NODE");
	}
	if (vb_env("VERBENA_SRP")) {
		writer_put(&w, ".srp");
		put_variable(&w, "VERBENA_SRP");
	}
	if (vb_lids_wanted())
		writer_put(&w, ".lids");
	return finish_path(&w);
}

static bool is_explicit(void)
{
	const char *dir = vb_env("VERBENA_RUNTIME");

	return dir && *dir;
}

/* Programs trust the tree, so its owner is checked. If VERBENA_RUNTIME names the directory, others may write in it
 * (/tmp), and the tree must belong to us, root, or the directory's owner. A directory that we choose ourselves must be
 * ours. The tree or directory must exist, because one made after this check would not be checked. The function changes
 * the tree's path temporarily, because a signal handler's stack has no room for a copy. */
static int tree_judge(char *tree)
{
	bool named = is_explicit();
	char *slash = strrchr(tree, '/');
	struct statx dir, stx;

	*slash = '\0';
	bool found = !syscall(SYS_statx, AT_FDCWD, tree, named ? 0 : AT_SYMLINK_NOFOLLOW, STATX_BASIC_STATS, &dir);
	*slash = '/';
	if (!found)
		return ENOENT;
	if (!named)
		return S_ISDIR(dir.stx_mode) && dir.stx_uid == geteuid() && !(dir.stx_mode & 022) ? 0 : EPERM;
	if (syscall(SYS_statx, AT_FDCWD, tree, AT_SYMLINK_NOFOLLOW, STATX_BASIC_STATS, &stx))
		return ENOENT;
	if (!S_ISDIR(stx.stx_mode) || (stx.stx_mode & 022))
		return EPERM;
	return stx.stx_uid == geteuid() || stx.stx_uid == 0 || stx.stx_uid == dir.stx_uid ? 0 : EPERM;
}

int vb_runtime_tree_place(char *buf, size_t size)
{
	int rc = tree_path(buf, size);

	return rc ? rc : tree_judge(buf);
}

int vb_runtime_tree(char *buf, size_t size)
{
	const char *written = vb_env(TREE);
	int rc = tree_path(buf, size);

	if (rc)
		return rc;
	return written && !strcmp(written, buf) ? tree_judge(buf) : ENOENT;
}

int vb_runtime_tree_announce(const char *tree)
{
	return (tree ? setenv(TREE, tree, 1) : unsetenv(TREE)) ? errno : 0;
}

bool vb_runtime_tree_has_complaint(char *text, size_t size)
{
	char path[PATH_MAX];

	if (!is_explicit() && !vb_runtime_path(path, sizeof(path)) && vb_trust_has_complaint(path, text, size))
		return true;
	return !tree_path(path, sizeof(path)) && vb_trust_has_complaint(path, text, size);
}
