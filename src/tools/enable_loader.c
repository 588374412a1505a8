// enable_loader.c - the file in /etc/ld.so.conf.d, and ldconfig(8) that reads it
// follows: ld.so(8), ldconfig(8)
// SPDX-License-Identifier: MIT
#include "tools/enable_loader.h"

#include <errno.h>
#include <fcntl.h>
#include <spawn.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#define CONF_NEW ENABLE_CONF_DIR "/.00-verbena.conf.new" /* ldconfig reads *.conf only */
#define LIBRARY "libibverbs.so.1"
#define NOTE "# written by verbena enable; verbena disable removes it\n"

/* ---- who may write the libraries ---- */

static bool only_root_writes(const char *path, char why[PATH_MAX + 128])
{
	struct stat st;

	if (stat(path, &st)) {
		snprintf(why, PATH_MAX + 128, "%s: %s", path, strerror(errno));
		return false;
	}
	if (st.st_uid || st.st_mode & (S_IWGRP | S_IWOTH)) {
		snprintf(why, PATH_MAX + 128, "%s can be changed by others than root", path);
		return false;
	}
	return true;
}

static bool chain_is_safe(const char *path, char why[PATH_MAX + 128])
{
	char real[PATH_MAX];

	if (!realpath(path, real)) {
		snprintf(why, PATH_MAX + 128, "%s: %s", path, strerror(errno));
		return false;
	}
	while (only_root_writes(real, why)) {
		char *slash = strrchr(real, '/');

		if (!slash[1])
			return true;
		slash[slash == real] = '\0';
	}
	return false;
}

bool enable_dir_is_safe(const char *dir, char why[PATH_MAX + 128])
{
	static const char *const names[] = {LIBRARY, "librdmacm.so.1"};
	char path[PATH_MAX];

	/* what ldconfig reads as something else */
	if (strpbrk(dir, " \t\n#=:;,")) {
		snprintf(why, PATH_MAX + 128, "%s has a character that ld.so.conf(5) cannot hold", dir);
		return false;
	}
	for (size_t i = 0; i < sizeof(names) / sizeof(names[0]); i++)
		if (snprintf(path, sizeof(path), "%s/%s", dir, names[i]) >= PATH_MAX || !chain_is_safe(path, why))
			return false;
	return chain_is_safe(dir, why); /* a library can be a link to another directory */
}

/* ---- the file ---- */

static int write_whole(int fd, const char *dir)
{
	char text[PATH_MAX + sizeof(NOTE) + 1];
	int n = snprintf(text, sizeof(text), NOTE "%s\n", dir);

	errno = EIO;
	if (n >= (int)sizeof(text) || write(fd, text, (size_t)n) != n || fchmod(fd, 0644) || fsync(fd))
		return errno;
	return 0;
}

int enable_write_conf(const char *dir)
{
	if (!dir)
		return unlink(ENABLE_CONF) ? errno : 0;
	mkdir(ENABLE_CONF_DIR, 0755);
	unlink(CONF_NEW);
	int fd = open(CONF_NEW, O_WRONLY | O_CREAT | O_EXCL | O_NOFOLLOW | O_CLOEXEC, 0644);
	if (fd < 0)
		return errno;
	int err = write_whole(fd, dir);
	close(fd);
	if (!err && rename(CONF_NEW, ENABLE_CONF))
		err = errno;
	if (err)
		unlink(CONF_NEW);
	return err;
}

bool enable_read_conf(char dir[PATH_MAX])
{
	FILE *f = fopen(ENABLE_CONF, "re");
	char line[PATH_MAX];

	if (!f)
		return false;
	dir[0] = '\0';
	while (fgets(line, sizeof(line), f)) {
		line[strcspn(line, "\n")] = '\0';
		if (line[0] == '/')
			snprintf(dir, PATH_MAX, "%s", line);
	}
	fclose(f);
	return true;
}

/* ---- ldconfig ---- */

static const char *ldconfig_path(void)
{
	static const char *const paths[] = {"/sbin/ldconfig", "/usr/sbin/ldconfig"};

	return access(paths[0], X_OK) ? paths[1] : paths[0];
}

/* Starts ldconfig with an environment of our own. out: -1, or where it prints the cache. 0 or an errno value. */
static int start_ldconfig(int out, pid_t *pid)
{
	static char name[] = "ldconfig", print[] = "-p", path[] = "PATH=/usr/sbin:/usr/bin:/sbin:/bin",
	            locale[] = "LC_ALL=C";
	char *argv[] = {name, out < 0 ? NULL : print, NULL}, *env[] = {path, locale, NULL};
	posix_spawn_file_actions_t actions;

	posix_spawn_file_actions_init(&actions);
	if (out >= 0)
		posix_spawn_file_actions_adddup2(&actions, out, STDOUT_FILENO);
	int err = posix_spawn(pid, ldconfig_path(), &actions, NULL, argv, env);
	posix_spawn_file_actions_destroy(&actions);
	return err;
}

static bool ended_well(pid_t pid)
{
	int status;

	while (waitpid(pid, &status, 0) < 0)
		if (errno != EINTR)
			return false;
	return WIFEXITED(status) && !WEXITSTATUS(status);
}

bool enable_run_ldconfig(void)
{
	pid_t pid;
	int err = start_ldconfig(-1, &pid);

	if (err) {
		fprintf(stderr, "%s: %s\n", ldconfig_path(), strerror(err));
		return false;
	}
	return ended_well(pid);
}

/* A line of ldconfig -p is "\tNAME (KIND) => PATH". The kind, such as "libc6,x86-64", tells the machine: the first of
 * our kind counts. */
struct cache_entry {
	char kind[128], path[PATH_MAX];
};

static bool parse_entry(const char *line, struct cache_entry *e)
{
	char format[64];

	snprintf(format, sizeof(format), " " LIBRARY " (%%127[^)]) => %%%d[^\n]", PATH_MAX - 1);
	return sscanf(line, format, e->kind, e->path) == 2;
}

/* Reads all of the output, so that ldconfig can end. */
static enum enable_found first_of_kind(FILE *f, const char *ours, char other[PATH_MAX])
{
	static struct cache_entry e, first[8];
	enum enable_found found = ENABLE_NONE;
	char line[PATH_MAX + 256];
	int n = 0;

	while (fgets(line, sizeof(line), f)) {
		int i = 0;

		if (!parse_entry(line, &e))
			continue;
		while (i < n && strcmp(first[i].kind, e.kind) != 0)
			i++;
		if (i == n && n < 8)
			first[n++] = e;
		if (i < n && !strcmp(e.path, ours)) {
			found = strcmp(first[i].path, ours) ? ENABLE_OTHER : ENABLE_OURS;
			snprintf(other, PATH_MAX, "%s", first[i].path);
		}
	}
	if (!found && n) {
		snprintf(other, PATH_MAX, "%s", first[0].path);
		found = ENABLE_OTHER;
	}
	return found;
}

enum enable_found enable_look_in_cache(const char *dir, char other[PATH_MAX])
{
	enum enable_found found = ENABLE_NONE;
	char ours[PATH_MAX];
	int ends[2];
	pid_t pid;

	other[0] = '\0';
	if (snprintf(ours, sizeof(ours), "%s/" LIBRARY, dir) >= PATH_MAX || pipe2(ends, O_CLOEXEC))
		return ENABLE_NONE;
	int err = start_ldconfig(ends[1], &pid);
	close(ends[1]);
	FILE *f = fdopen(ends[0], "r");
	if (!err && f)
		found = first_of_kind(f, ours, other);
	if (f)
		fclose(f);
	else
		close(ends[0]);
	return !err && ended_well(pid) ? found : ENABLE_NONE;
}
