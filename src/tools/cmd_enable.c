// cmd_enable.c - verbena enable, verbena disable: Verbena's libraries for all programs of this machine
// follows: verbena-enable(8)
// SPDX-License-Identifier: MIT
#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <unistd.h>

#include "tools/enable_loader.h"
#include "tools/run_paths.h"
#include "tools/verbena.h"
#include "util/env.h"

enum { EXIT_USAGE = 2 };

/* An adapter of the kernel, which programs would reach through Verbena's libraries. By the system call itself: the path
 * shim, if this program runs below `verbena run`, shows Verbena's adapters beside the kernel's. */
static bool find_kernel_adapter(char name[NAME_MAX + 1])
{
	int fd = (int)syscall(SYS_openat, AT_FDCWD, "/sys/class/infiniband", O_RDONLY | O_DIRECTORY | O_CLOEXEC);
	DIR *d = fd < 0 ? NULL : fdopendir(fd);
	struct dirent *e;

	name[0] = '\0';
	while (d && !name[0] && (e = readdir(d)))
		if (e->d_name[0] != '.')
			snprintf(name, NAME_MAX + 1, "%s", e->d_name);
	if (d)
		closedir(d);
	else if (fd >= 0)
		close(fd);
	return name[0];
}

static bool may_switch(const char *command)
{
	if (vb_env_is_hostile() || geteuid() != 0) {
		cmd_complain(command, "this changes " ENABLE_CONF_DIR " for all programs: run it as root");
		return false;
	}
	return true;
}

/* The state as an object: dir is that of the libraries, or "". */
static void print_state(bool enabled, const char *dir, const char *problem)
{
	printf("{\"enabled\": %s, \"directory\": ", enabled ? "true" : "false");
	cmd_print_json_string(dir);
	if (problem) {
		fputs(", \"problem\": ", stdout);
		cmd_print_json_string(problem);
	}
	puts("}");
}

static int say_status(bool json)
{
	char dir[PATH_MAX] = "", other[PATH_MAX], problem[2 * PATH_MAX + 128] = "";
	bool configured = enable_read_conf(dir);
	enum enable_found found = configured && dir[0] ? enable_look_in_cache(dir, other) : ENABLE_NONE;

	if (configured && !dir[0])
		snprintf(problem, sizeof(problem), ENABLE_CONF " names no directory");
	else if (configured && found == ENABLE_OTHER)
		snprintf(problem, sizeof(problem), ENABLE_CONF " names %s, but programs load %s", dir, other);
	else if (configured && found != ENABLE_OURS)
		snprintf(problem, sizeof(problem),
		         ENABLE_CONF " names %s, but the cache of ldconfig(8) has no libibverbs.so.1", dir);
	if (json)
		print_state(found == ENABLE_OURS, dir, *problem ? problem : NULL);
	else if (found == ENABLE_OURS)
		printf("enabled: programs load Verbena's libraries from %s\n", dir);
	else if (*problem)
		printf("disabled: %s; verbena enable repairs this\n", problem);
	else
		puts("disabled: programs load the system's libibverbs, unless verbena run starts them");
	return found != ENABLE_OURS;
}

/* Undoes what was done, so that the machine is never left half way. */
static int take_back(const char *old)
{
	int err = enable_write_conf(old);

	if (err && err != ENOENT)
		cmd_complain("enable", ENABLE_CONF " cannot be restored: %s", strerror(err));
	enable_run_ldconfig();
	return 1;
}

static int switch_on(const char *dir, bool json)
{
	char old[PATH_MAX], other[PATH_MAX];
	bool had = enable_read_conf(old) && old[0];
	int err = enable_write_conf(dir);

	if (err) {
		cmd_complain("enable", ENABLE_CONF " cannot be written: %s", strerror(err));
		return 1;
	}
	if (!enable_run_ldconfig()) {
		cmd_complain("enable", "ldconfig failed; nothing has changed");
		return take_back(had ? old : NULL);
	}
	if (enable_look_in_cache(dir, other) != ENABLE_OURS) {
		cmd_complain("enable", "the dynamic linker still loads %s; nothing has changed",
		             other[0] ? other : "no libibverbs.so.1");
		return take_back(had ? old : NULL);
	}
	if (json)
		print_state(true, dir, NULL);
	else
		printf("Programs that start from now on load Verbena's libraries from %s.\n"
		       "Written: " ENABLE_CONF ", and the cache of ldconfig(8). 'verbena disable' restores both.\n"
		       "Programs that read /sys/class/infiniband still need 'verbena run'.\n",
		       dir);
	return 0;
}

static int enable_checked(bool force, bool json)
{
	char name[NAME_MAX + 1], why[PATH_MAX + 128];
	struct run_paths paths;

	if (!run_find_libraries(&paths)) {
		cmd_complain("enable", "Verbena's libibverbs.so.1 was not found: install it");
		return 1;
	}
	if (!enable_dir_is_safe(paths.lib_dir, why)) {
		cmd_complain("enable", "%s: install Verbena where only root can write", why);
		return 1;
	}
	if (find_kernel_adapter(name) && !force) {
		cmd_complain(
		        "enable",
		        "this machine has the RDMA adapter %s, which all would use through Verbena: verbena enable "
		        "--force, or verbena run for single programs",
		        name);
		return 1;
	}
	return switch_on(paths.lib_dir, json);
}

int cmd_enable(int argc, char **argv)
{
	bool force = false, status = false, json = false;

	for (int i = 1; i < argc; i++) {
		if (!strcmp(argv[i], "--force")) {
			force = true;
		} else if (!strcmp(argv[i], "--status")) {
			status = true;
		} else if (!strcmp(argv[i], "--json")) {
			json = true;
		} else {
			cmd_complain("enable", "unknown option '%s': verbena enable [--force | --status] [--json]",
			             argv[i]);
			return EXIT_USAGE;
		}
	}
	if (status)
		return say_status(json);
	return may_switch("enable") ? enable_checked(force, json) : 1;
}

int cmd_disable(int argc, char **argv)
{
	bool json = argc == 2 && !strcmp(argv[1], "--json");

	if (argc > 1 && !json) {
		cmd_complain("disable", "its only option is --json, and '%s' is one argument too many", argv[argc - 1]);
		return EXIT_USAGE;
	}
	if (!may_switch("disable"))
		return 1;
	int err = enable_write_conf(NULL);
	if (err == ENOENT) {
		if (json)
			print_state(false, "", NULL);
		else
			puts("It was not enabled: there is no " ENABLE_CONF ".");
		return 0;
	}
	if (err) {
		cmd_complain("disable", ENABLE_CONF " cannot be removed: %s", strerror(err));
		return 1;
	}
	if (!enable_run_ldconfig()) {
		cmd_complain("disable", ENABLE_CONF " is removed, but ldconfig failed: run it again");
		return 1;
	}
	if (json)
		print_state(false, "", NULL);
	else
		puts("Programs that start from now on load the system's libraries. Removed: " ENABLE_CONF ".");
	return 0;
}
