// help.c - what `verbena COMMAND --help` prints
// follows: verbena(1), verbena-run(1), verbena-devices(1), verbena-doctor(1)
// SPDX-License-Identifier: MIT
#include <errno.h>
#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "tools/run_paths.h"
#include "tools/verbena.h"

static const struct {
	const char *name, *text;
} pages[] = {
        {"run", "Usage: verbena run [OPTION...] [--] PROGRAM [ARGUMENT...]\n\n"
                "Runs a program with Verbena's libibverbs.so.1 and librdmacm.so.1.\n\n"
                "  --no-shim        programs that read /sys/class/infiniband see no adapters\n"
                "  --capture FILE   record its packets in a pcapng file\n"
                "  --fault RULE     inject a fault, see verbena-fault(1); may be given several times\n\n"
                "Variables: VERBENA_DEVICES selects adapters, VERBENA_LIDS=1 gives them LIDs,\n"
                "VERBENA_LOG=error|warn|info|debug says how much is logged. See verbena(7).\n\n"
                "Exit status: the program's; 2 a rule is wrong, 125 the launcher failed, 126 the program cannot be\n"
                "executed, 127 it was not found.\n"},
        {"devices", "Usage: verbena devices [--json]\n\n"
                    "Shows the RDMA adapters of this machine, with their interfaces, states and GIDs.\n\n"
                    "  --json      print an array of objects\n\n"
                    "VERBENA_DEVICES selects the adapters, for example roce:*,iwarp:eth0.\n\n"
                    "Exit status: 0; 1 the adapters cannot be listed or printed, or a word of\n"
                    "VERBENA_DEVICES is wrong; 2 wrong options.\n"},
        {"bench", "Usage: verbena bench [OPTION...]           measure on this host\n"
                  "       verbena bench --serve              wait for the other host\n"
                  "       verbena bench HOST [OPTION...]     measure to that host\n\n"
                  "  --seconds N   the time in all, 1 to 60 (10)\n"
                  "  --size BYTES  one size of messages, instead of 4 KiB, 64 KiB and 1 MiB\n"
                  "  --port PORT   TCP port of the other end (7472)\n"
                  "  --hardware    use the system's libraries; with HOST or --serve\n"
                  "  --json        print an object\n\n"
                  "Exit status: 0 all works, 1 no connection or something failed, 2 wrong usage.\n"},
        {"link", "Usage: verbena link [show [NAME]] [--json]\n"
                 "       verbena link add NAME type roce|iwarp netdev INTERFACE [mtu BYTES] [up|down]\n"
                 "       verbena link set NAME [name NEW] [type T] [netdev INTERFACE] [mtu BYTES|auto] [up|down]\n"
                 "       verbena link del NAME\n"
                 "       verbena link automatic on|off\n\n"
                 "Names adapters in a file: /etc/verbena/devices.conf for root, else that of the user.\n\n"
                 "  --system, --user   which of the two files is changed\n"
                 "  --force            the interface need not exist\n"
                 "  --json             show an object\n\n"
                 "Exit status: 0; 1 it failed, or a line of the file is wrong; 2 wrong usage.\n"},
        {"doctor", "Usage: verbena doctor [--json] [HOST]\n\n"
                   "Says what is there, what is wrong, and how to mend it: interfaces, UDP port 4791,\n"
                   "the firewall, limits, system calls, the broker; then sends messages by each path.\n"
                   "With HOST: the name, the route, the path MTU, and what answers there.\n\n"
                   "  --json      print an object with the findings\n\n"
                   "Exit status: the worst finding, 0 [ok], 1 [warn], 2 [fail]; 3 wrong options.\n"},
        {"help", "Usage: verbena help\n\nLists the commands. `verbena COMMAND --help` describes one.\n"},
        {"version", "Usage: verbena version\n\nPrints the version.\n"},
};

static bool has_page(const char *dir, const char *name, char out[PATH_MAX])
{
	int n = snprintf(out, PATH_MAX, "%s/%s", dir, name);

	return n > 0 && n < PATH_MAX && !access(out, R_OK);
}

/* In a build tree man(1) finds no page by its name. src/abi is the folder of the libraries there, man/ the pages'. */
void cmd_name_manual(FILE *f, const char *page)
{
	char file[64], found[PATH_MAX];
	struct run_paths paths;

	snprintf(file, sizeof(file), "../../man/%s.1", page);
	if (run_find_libraries(&paths) && has_page(paths.lib_dir, file, found) && realpath(found, paths.lib_dir))
		fprintf(f, "\nMore: man %s\n", paths.lib_dir);
	else
		fprintf(f, "\nMore: man %s\n", page);
}

bool cmd_wants_help(int argc, char **argv)
{
	char page[64];

	if (argc < 2 || (strcmp(argv[1], "--help") != 0 && strcmp(argv[1], "-h") != 0))
		return false;
	for (size_t i = 0; i < sizeof(pages) / sizeof(*pages); i++) {
		if (strcmp(pages[i].name, argv[0]) != 0)
			continue;
		fputs(pages[i].text, stdout);
		bool own = strcmp(argv[0], "help") != 0 && strcmp(argv[0], "version") != 0;
		snprintf(page, sizeof(page), "verbena%s%s", own ? "-" : "", own ? argv[0] : "");
		cmd_name_manual(stdout, page);
		return true;
	}
	return false;
}

int cmd_finish(const char *name, int status)
{
	if (!fflush(stdout) && !ferror(stdout))
		return status;
	if (errno != EPIPE) /* a reader that wants no more is no error to talk about */
		cmd_complain(name, "the output cannot be written: %s", strerror(errno));
	return status ? status : 1;
}
