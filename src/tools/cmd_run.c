// cmd_run.c - verbena run: starts a program with Verbena's libraries instead of the system's
// follows: verbena-run(1), ld.so(8)
// SPDX-License-Identifier: MIT
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "core/device.h"
#include "fabric/proto/proto.h"
#include "tools/fabric_guest.h"
#include "tools/fault_file.h"
#include "tools/run_capture.h"
#include "tools/run_paths.h"
#include "tools/stat_options.h"
#include "tools/sysfs_tree.h"
#include "tools/verbena.h"
#include "util/env.h"
#include "util/links.h"
#include "util/runtime.h"
#include "util/settings.h"

/* The exit codes of env(1). */
enum { EXIT_BAD_FAULT = 2, EXIT_OURS = 125, EXIT_NOT_EXECUTABLE = 126, EXIT_NOT_FOUND = 127 };

/* The program names the words that cannot be understood, but not those that name no interface. */
static void warn_of_no_adapter(void)
{
	const char *list = vb_env("VERBENA_DEVICES");
	size_t len;

	if (list && *list && !vb_settings_devices_word(list, &len))
		cmd_complain("run", "--device or VERBENA_DEVICES selects no interface of this machine, so there is no "
		                    "adapter of Verbena's");
}

/* The tree is optional: programs that use verbs work without it. */
static void write_tree(void)
{
	char tree[PATH_MAX], why[PATH_MAX];
	int n, rc;
	struct ibv_device **devices = vb_device_list(&n);

	if (!devices) {
		cmd_complain("run", "the network interfaces cannot be listed: %s", strerror(errno));
		return;
	}
	if (!n)
		warn_of_no_adapter();
	rc = vb_sysfs_tree_write(devices, n, tree, sizeof(tree));
	vb_device_list_free(devices);
	if (!rc)
		rc = vb_runtime_tree_announce(tree);
	if (rc)
		cmd_complain(
		        "run",
		        "the tree for programs that read /sys/class/infiniband was not written: %s (set VERBENA_RUNTIME "
		        "to a directory of yours)",
		        rc == EPERM && vb_runtime_tree_has_complaint(why, sizeof(why)) ? why : strerror(rc));
}

/* The shim comes first, so a launcher within this one finds that it has been preloaded. */
static bool preload(const struct run_paths *paths)
{
	const char *memory = vb_env("VERBENA_MEMORY");
	char both[2 * PATH_MAX];

	if (!paths->memory[0] || (memory && !strcmp(memory, "off")))
		return run_prepend("LD_PRELOAD", paths->shim);
	snprintf(both, sizeof(both), "%s:%s", paths->shim, paths->memory);
	return run_prepend("LD_PRELOAD", both);
}

static bool set_environment(bool want_shim)
{
	struct run_paths paths;

	if (!run_find_libraries(&paths)) {
		cmd_complain("run",
		             "Verbena's libibverbs.so.1 was not found beside this program, nor in " VB_LIBDIR
		             "/verbena: %s",
		             access("/proc/self/exe", F_OK)
		                     ? "mount /proc, without which this program's own place is not known"
		                     : "build or install it");
		return false;
	}
	if (want_shim && !paths.shim[0])
		cmd_complain(
		        "run",
		        "libverbena-paths.so was not found: programs that read /sys/class/infiniband will see no adapters");
	/* The dynamic linker cannot quote these characters. */
	if (strpbrk(paths.lib_dir, ":;") || (want_shim && strpbrk(paths.shim, ": "))) {
		cmd_complain("run", "the directory %s cannot be used: its name contains a colon or a space",
		             paths.lib_dir);
		return false;
	}
	if (want_shim && paths.shim[0]) {
		vb_runtime_tree_announce(NULL); /* an outer launcher's tree may be of another namespace */
		write_tree();
		if (!preload(&paths))
			return false;
	}
	if (!run_prepend("LD_LIBRARY_PATH", paths.lib_dir))
		return false;
	if (!vb_fabric_socket())
		return true;
	if (!paths.fabric[0])
		cmd_complain("run", "VERBENA_FABRIC is set, but Verbena's libibumad.so.3 was not found");
	return !paths.fabric[0] || run_prepend("LD_LIBRARY_PATH", paths.fabric);
}

/* Starts the program in place of this one. Returns the exit code if that fails. */
static int exec_program(char **argv)
{
	const char *hint = "";
	char path[PATH_MAX];

	execvp(argv[0], argv);
	int rc = errno;
	/* execvp fails with EACCES if a directory of PATH cannot be searched, whatever is in it. */
	if (rc == EACCES && !strchr(argv[0], '/') && !run_find_program(argv[0], F_OK, path))
		rc = ENOENT;
	if (rc == ENOENT && vb_env("VERBENA_FAULT") && strchr(argv[0], '='))
		hint = " (a rule of --fault is one argument: put it in quotes)";
	cmd_complain("run", "%s: %s%s", argv[0], rc == ENOENT ? "not found" : strerror(rc), hint);
	return rc == ENOENT ? EXIT_NOT_FOUND : EXIT_NOT_EXECUTABLE;
}

/* Sets the variable of an option. False after a complaint. */
static bool set_variable(const char *option, const char *variable, const char *value)
{
	const char *allowed;

	if (!value || !*value) {
		cmd_complain("run", "%s needs a value", option);
		return false;
	}
	allowed = vb_settings_refusal(variable, value);
	if (allowed) {
		cmd_complain("run", "%s '%s' is wrong: allowed is %s", option, value, allowed);
		return false;
	}
	if (!setenv(variable, value, 1))
		return true;
	cmd_complain("run", "%s: %s", option, strerror(errno));
	return false;
}

/* --device LIST, --wire WHEN: the variables' short forms. *i is at the option. False after a complaint. */
static bool take_setting(char **argv, int *i)
{
	static const char *const options[][2] = {{"--device", "VERBENA_DEVICES"}, {"--wire", "VERBENA_WIRE"}};

	for (size_t o = 0; o < sizeof(options) / sizeof(*options); o++) {
		size_t len = strlen(options[o][0]);
		const char *value = NULL;

		if (strncmp(argv[*i], options[o][0], len) != 0)
			continue;
		if (argv[*i][len] == '=')
			value = argv[*i] + len + 1;
		else if (!argv[*i][len] && argv[*i + 1])
			value = argv[++*i];
		else if (argv[*i][len])
			continue;
		return set_variable(options[o][0], options[o][1], value);
	}
	cmd_complain("run", "unknown option '%s'; 'verbena run --help' lists them", argv[*i]);
	return false;
}

/* Takes the options. Returns the index of the program; after a complaint 0, or -1 if it was about a rule. */
static int read_options(int argc, char **argv, bool *want_shim, const char **capture)
{
	const char *rule;
	int i = 1;

	for (; i < argc && argv[i][0] == '-'; i++) {
		if (!strcmp(argv[i], "--")) {
			i++;
			break;
		}
		if (!strcmp(argv[i], "--no-shim")) {
			*want_shim = false;
		} else if (!strcmp(argv[i], "--stats")) {
			setenv("VERBENA_STATS", "1", 1);
		} else if (!strcmp(argv[i], "--capture")) {
			*capture = i + 1 < argc ? argv[++i] : "";
		} else if (!strncmp(argv[i], "--capture=", strlen("--capture="))) {
			*capture = argv[i] + strlen("--capture=");
		} else if (stat_option(argv, &i, "--fault", &rule)) {
			if (!rule || !*rule) {
				cmd_complain("run", "--fault needs a rule: see verbena-fault(1)");
				return -1;
			}
			if (!fault_to_environment("run", rule))
				return -1;
		} else if (!take_setting(argv, &i)) {
			return 0;
		}
	}
	if (*capture && (!**capture || !strcmp(*capture, "-"))) {
		cmd_complain("run", "--capture needs a file%s", **capture ? ": standard output is the program's" : "");
		return 0;
	}
	if (i < argc)
		return i;
	cmd_complain("run", "no program given: verbena run [OPTION...] [--] PROGRAM [ARGUMENT...]");
	return 0;
}

/* A program that the libraries cannot reach is started all the same: those that it starts may be others. */
static void warn_about(const char *path)
{
	const char *why = run_elf_refusal(path);

	if (run_is_privileged(path))
		cmd_complain("run",
		             "%s runs with more privileges than yours, so it ignores LD_LIBRARY_PATH and will not see "
		             "Verbena",
		             path);
	else if (why)
		cmd_complain(
		        "run",
		        "%s %s, so it cannot load Verbena's libraries; programs that it starts can, if they are not",
		        path, why);
}

/* A file may name the fabric. Variables go before it, also empty ones. */
static void take_fabric_from_file(void)
{
	static struct vb_links links;
	const char *devices = vb_env("VERBENA_DEVICES");
	char path[VB_LINKS_ROOM];

	if (vb_env("VERBENA_FABRIC") || (devices && *devices))
		return;
	vb_links_load(&links, path, false);
	if (!links.ib.line)
		return;
	setenv("VERBENA_FABRIC", links.ib.fabric, 1);
	if (*links.ib.node)
		setenv("VERBENA_NODE", links.ib.node, 0);
	if (*links.ib.secret)
		setenv("VERBENA_FABRIC_SECRET", links.ib.secret, 0);
}

int cmd_run(int argc, char **argv)
{
	bool want_shim = true;
	const char *capture = NULL;
	char path[PATH_MAX];

	if (vb_env_is_hostile()) {
		cmd_complain(
		        "run",
		        "this launcher runs with more privileges than its caller: it would pass them to any program, so it starts none");
		return EXIT_OURS;
	}
	int i = read_options(argc, argv, &want_shim, &capture);

	if (i <= 0)
		return i < 0 ? EXIT_BAD_FAULT : EXIT_OURS;
	if (!fault_environment_is_right("run"))
		return EXIT_BAD_FAULT;
	vb_settings_leave_to_program();
	take_fabric_from_file();
	if (!fabric_guest_start() || !set_environment(want_shim))
		return EXIT_OURS;
	if (run_find_program(argv[i], X_OK, path))
		warn_about(path);
	return capture ? run_captured(capture, argv + i, exec_program) : exec_program(argv + i);
}
