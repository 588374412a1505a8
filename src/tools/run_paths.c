// run_paths.c - where the launcher finds Verbena's libraries and the program to run
// follows: ld.so(8), execvp(3)
// SPDX-License-Identifier: MIT
#include "tools/run_paths.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/auxv.h>
#include <sys/stat.h>
#include <sys/xattr.h>
#include <unistd.h>

#include "util/env.h"

static bool has_file(const char *dir, const char *name, char out[PATH_MAX])
{
	int n = snprintf(out, PATH_MAX, "%s/%s", dir, name);

	return n > 0 && n < PATH_MAX && !access(out, R_OK);
}

static void find_preload(const char *dir, const char *name, char out[PATH_MAX])
{
	char found[PATH_MAX];

	if (!has_file(dir, name, found) || !realpath(found, out))
		out[0] = '\0';
}

static bool try_dir(struct run_paths *paths, const char *lib_dir, const char *shim_dir, const char *fabric_dir)
{
	char found[PATH_MAX];

	if (!has_file(lib_dir, "libibverbs.so.1", found) || !realpath(lib_dir, paths->lib_dir))
		return false;
	find_preload(shim_dir, "libverbena-paths.so", paths->shim);
	find_preload(shim_dir, "libverbena-memory.so", paths->memory);
	if (!has_file(fabric_dir, "libibumad.so.3", found) || !realpath(fabric_dir, paths->fabric))
		paths->fabric[0] = '\0';
	return true;
}

/* Finds this executable. Without /proc, by the path that it was started with, which its caller may have chosen: so not
 * in a privileged program. */
static bool find_own_path(char exe[PATH_MAX])
{
	ssize_t n = readlink("/proc/self/exe", exe, PATH_MAX - 1);
	const char *started = (const char *)getauxval(AT_EXECFN);

	if (n > 0)
		exe[n] = '\0';
	return n > 0 || (!vb_env_is_hostile() && started && realpath(started, exe));
}

bool run_find_libraries(struct run_paths *paths)
{
	char exe[PATH_MAX], lib[PATH_MAX + 64], shim[PATH_MAX + 64], fabric[PATH_MAX + 80];

	if (find_own_path(exe)) {
		*strrchr(exe, '/') = '\0';
		snprintf(lib, sizeof(lib), "%s/src/abi", exe);
		snprintf(shim, sizeof(shim), "%s/src/tools", exe);
		snprintf(fabric, sizeof(fabric), "%s/src/fabric", exe);
		if (try_dir(paths, lib, shim, fabric))
			return true;
		/* An installation that was moved as a whole (DESTDIR, a container's bind mount): tries the trailing
		 * parts of libdir. */
		for (const char *p = strstr(VB_LIBDIR, "/lib"); p; p = strstr(p + 1, "/lib")) {
			snprintf(lib, sizeof(lib), "%s/..%s/verbena", exe, p);
			snprintf(fabric, sizeof(fabric), "%s/fabric", lib);
			if (try_dir(paths, lib, lib, fabric))
				return true;
		}
	}
	return try_dir(paths, VB_LIBDIR "/verbena", VB_LIBDIR "/verbena", VB_LIBDIR "/verbena/fabric");
}

bool run_find_fabric(char path[PATH_MAX])
{
	char exe[PATH_MAX], dir[PATH_MAX + 16];

	if (!find_own_path(exe))
		return false;
	*strrchr(exe, '/') = '\0';
	snprintf(dir, sizeof(dir), "%s/src/fabric", exe);
	return has_file(dir, "verbena-fabric", path) || has_file(exe, "verbena-fabric", path);
}

static bool is_program(const char *path, int mode)
{
	struct stat st;

	return !stat(path, &st) && S_ISREG(st.st_mode) && !access(path, mode);
}

bool run_find_program(const char *name, int mode, char path[PATH_MAX])
{
	const char *dirs = vb_env("PATH");

	if (strchr(name, '/')) {
		snprintf(path, PATH_MAX, "%s", name);
		return is_program(path, mode);
	}
	for (dirs = dirs ? dirs : "/bin:/usr/bin";; dirs++) {
		int n = (int)strcspn(dirs, ":");

		if (snprintf(path, PATH_MAX, "%.*s/%s", n ? n : 1, n ? dirs : ".", name) < PATH_MAX &&
		    is_program(path, mode))
			return true;
		dirs += n;
		if (!*dirs)
			return false;
	}
}

bool run_is_privileged(const char *path)
{
	struct stat st;
	char caps[64];

	if (stat(path, &st))
		return false;
	if ((st.st_mode & S_ISUID) && st.st_uid != getuid())
		return true;
	if ((st.st_mode & S_ISGID) && (st.st_mode & S_IXGRP) && st.st_gid != getgid())
		return true;
	return geteuid() != 0 && getxattr(path, "security.capability", caps, sizeof(caps)) > 0;
}

bool run_prepend(const char *variable, const char *item)
{
	const char *old = vb_env(variable);
	size_t n = strlen(item);
	char *value;

	if (old && !strncmp(old, item, n) && (old[n] == ':' || !old[n]))
		return true;
	if (asprintf(&value, "%s%s%s", item, old && *old ? ":" : "", old ? old : "") < 0)
		return false;
	bool done = !setenv(variable, value, 1);
	free(value);
	return done;
}
