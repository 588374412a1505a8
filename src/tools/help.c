// help.c - what `verbena COMMAND --help` prints
// follows: verbena(1), and the manual page of each command
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
	const char *manual; /* NULL: verbena-NAME(1) */
	int section;
} pages[] = {
        {"run", "Usage: verbena run [OPTION...] [--] PROGRAM [ARGUMENT...]\n\n"
                "Runs a program with Verbena's libibverbs.so.1 and librdmacm.so.1.\n\n"
                "  --no-shim        programs that read /sys/class/infiniband see no adapters\n"
                "  --device LIST    its adapters, as VERBENA_DEVICES: roce:*,iwarp:eth0\n"
                "  --wire WHEN      auto, always or never use the network, as VERBENA_WIRE\n"
                "  --capture FILE   record its packets in a pcapng file\n"
                "  --fault RULE     inject a fault, see verbena-fault(1); may be given several\n"
                "                   times\n"
                "  --stats          print what it has sent and received when it ends\n\n"
                "Variables: VERBENA_DEVICES selects adapters, VERBENA_LIDS=1 gives them LIDs,\n"
                "VERBENA_LOG=error|warn|info|debug says how much is logged. See verbena(7).\n\n"
                "Exit status: the program's; 2 a rule is wrong, 125 the launcher failed, 126 the\n"
                "program cannot be executed, 127 it was not found.\n"},
        {"capture", "Usage: verbena capture -w FILE|- [OPTION...]\n\n"
                    "Records the packets of running programs in a pcapng file; - is standard output.\n\n"
                    "  --pid N              only this program\n"
                    "  --device NAME        only this adapter\n"
                    "  --qp N               only this queue pair\n"
                    "  --filter EXPRESSION  only frames that match it, see pcap-filter(7)\n"
                    "  --snaplen N          at most N bytes of each frame\n"
                    "  --no-payload         only the headers\n"
                    "  --rotate SIZE[,N]    begin another file at this size (100M); keep the last N\n"
                    "  --count N            end after N frames\n"
                    "  --seconds N          end after N seconds\n"
                    "  --stats              print a table of opcodes at the end; -w may be omitted\n"
                    "  --json               print what was captured as an object\n\n"
                    "Exit status: 0; 1 nothing can be captured, or the file cannot be written;\n"
                    "2 wrong usage.\n"},
        {"fault", "Usage: verbena fault add [--pid PID|--all] RULE\n"
                  "       verbena fault list [--pid PID]\n"
                  "       verbena fault remove [--pid PID|--all] ID|all\n"
                  "       verbena fault check FILE\n\n"
                  "Makes packets, requests, calls and connections of running programs fail.\n"
                  "`verbena run --fault RULE` does so from the start. With --json each prints JSON.\n"
                  "Some rules:\n\n"
                  "  drop p=0.05 seed=1\n"
                  "  delay=2ms peer=10.0.0.7\n"
                  "  wc=RETRY_EXC_ERR op=WRITE nth=100\n"
                  "  port=down device=roce_eth0 after=5s for=2s\n\n"
                  "Exit status: 0; 1 it failed; 2 a rule is wrong, or wrong usage.\n"},
        {"enable",
         "Usage: verbena enable [--force | --status] [--json]\n\n"
         "Puts Verbena's libraries in front of rdma-core's for all programs (root).\n\n"
         "  --force     also where the kernel has an RDMA adapter\n"
         "  --status    say whether they are, and change nothing\n"
         "  --json      print an object\n\n"
         "See verbena-enable(8) for what is written, and for the exit status.\n",
         "verbena-enable", 8},
        {"disable",
         "Usage: verbena disable [--json]\n\nTakes back what verbena enable did (root).\n\n"
         "See verbena-enable(8) for the exit status.\n",
         "verbena-enable", 8},
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
                 "       verbena link add NAME type roce|iwarp netdev INTERFACE [mtu BYTES]\n"
                 "                    [up|down]\n"
                 "       verbena link add ib0 type ib fabric SOCKET|udp:HOST [node NODE]\n"
                 "                    [secret FILE]\n"
                 "       verbena link set NAME [name NEW] [type T] [netdev INTERFACE]\n"
                 "                    [mtu BYTES|auto] [up|down]\n"
                 "       verbena link del NAME\n"
                 "       verbena link automatic on|off\n\n"
                 "Names adapters in a file: /etc/verbena/devices.conf for root, else the user's.\n\n"
                 "  --system, --user   which of the two files is changed\n"
                 "  --force            the interface, or the secret, need not exist\n"
                 "  --json             show an object\n\n"
                 "Exit status: 0; 1 it failed, or a line of the file is wrong; 2 wrong usage.\n"},
        {"doctor", "Usage: verbena doctor [--json] [HOST]\n\n"
                   "Says what is there, what is wrong, and how to mend it: interfaces, UDP port\n"
                   "4791, the firewall, limits, system calls, the broker; then sends messages by\n"
                   "each path.\n"
                   "With HOST: the name, the route, the path MTU, and what answers there.\n\n"
                   "  --json      print an object with the findings\n\n"
                   "Exit status: the worst finding, 0 [ok], 1 [warn], 2 [fail]; 3 wrong options.\n"},
        {"help",
         "Usage: verbena help [COMMAND]\n\nLists the commands, or describes one, as `verbena COMMAND --help` does.\n",
         "verbena", 1},
        {"version", "Usage: verbena version [--json]\n\nPrints the version.\n", "verbena", 1},
};

static bool has_page(const char *dir, const char *name, char out[PATH_MAX])
{
	int n = snprintf(out, PATH_MAX, "%s/%s", dir, name);

	return n > 0 && n < PATH_MAX && !access(out, R_OK);
}

/* In a build tree man(1) finds no page by its name. src/abi is the folder of the libraries there, man/ the pages'. */
static void name_manual(FILE *f, const char *page, int section)
{
	char file[64], found[PATH_MAX];
	struct run_paths paths;

	snprintf(file, sizeof(file), "../../man/%s.%d", page, section);
	if (run_find_libraries(&paths) && has_page(paths.lib_dir, file, found) && realpath(found, paths.lib_dir))
		fprintf(f, "\nMore: man %s\n", paths.lib_dir);
	else if (section != 1)
		fprintf(f, "\nMore: man %d %s\n", section, page);
	else
		fprintf(f, "\nMore: man %s\n", page);
}

void cmd_name_manual(FILE *f, const char *page)
{
	name_manual(f, page, 1);
}

bool cmd_wants_help(int argc, char **argv)
{
	char page[64];
	bool wants = argc > 1 && (!strcmp(argv[1], "--help") || !strcmp(argv[1], "-h"));

	/* the words behind `run` may be a program's */
	for (int i = 2; i < argc && strcmp(argv[0], "run") != 0; i++)
		wants = wants || !strcmp(argv[i], "--help");
	if (!wants)
		return false;
	for (size_t i = 0; i < sizeof(pages) / sizeof(*pages); i++) {
		if (strcmp(pages[i].name, argv[0]) != 0)
			continue;
		fputs(pages[i].text, stdout);
		if (!pages[i].manual) {
			snprintf(page, sizeof(page), "verbena-%s", argv[0]);
			cmd_name_manual(stdout, page);
		} else {
			name_manual(stdout, pages[i].manual, pages[i].section);
		}
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
