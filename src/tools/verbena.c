// verbena.c - the verbena tool: finds the subcommand
// follows: verbena(1)
// SPDX-License-Identifier: MIT
#include "tools/verbena.h"

#include <errno.h>
#include <stdarg.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

#include "core/limits.h"
#include "tools/progress.h"
#include "util/env.h"

static int cmd_help(int argc, char **argv);

static int cmd_version(int argc, char **argv)
{
	bool json = argc == 2 && !strcmp(argv[1], "--json");

	if (argc > 1 && !json) {
		cmd_complain("version", "its only option is --json, and '%s' is one argument too many",
		             argv[argc > 2 && !strcmp(argv[1], "--json") ? 2 : 1]);
		return 2;
	}
	puts(json ? "{\"version\": \"" VB_VERSION "\"}" : "verbena " VB_VERSION);
	return 0;
}

static const struct {
	const char *name, *args, *text;
	int (*run)(int, char **);
} commands[] = {
        {"run", "[OPTION...] PROGRAM...", "run a program with Verbena's adapters", cmd_run},
        {"capture", "-w FILE [OPTION...]", "record the packets of running programs", cmd_capture},
        {"devices", "[--json]", "show the adapters of this machine", cmd_devices},
        {"link", "add|set|del|show|automatic", "choose and name the adapters", cmd_link},
        {"stat", "[OBJECT] [OPTION...]", "what running programs have and send", cmd_stat},
        {"top", "[OPTION...]", "what running programs send, live", cmd_top},
        {"fault", "add|list|remove|check", "make packets, requests and calls fail", cmd_fault},
        {"exporter", "[--listen ADDRESS:PORT]", "serve their counters to Prometheus", cmd_exporter},
        {"doctor", "[--json] [HOST]", "find what is wrong here, or up to HOST", cmd_doctor},
        {"bench", "[--serve|HOST] [OPTION...]", "measure RDMA and TCP, here or to HOST", cmd_bench},
        {"enable", "[--force | --status]", "use the adapters in all programs (root)", cmd_enable},
        {"disable", "", "undo enable", cmd_disable},
        {"help", "[COMMAND]", "show this, or describe a command", cmd_help},
        {"version", "[--json]", "show the version", cmd_version},
};

enum { COMMANDS = sizeof(commands) / sizeof(commands[0]) };

static void print_usage(FILE *f)
{
	fputs("Verbena: RDMA on any Linux machine\n\nUsage: verbena COMMAND...\n\n", f);
	for (int i = 0; i < COMMANDS; i++)
		fprintf(f, "  %-8s %-26s %s\n", commands[i].name, commands[i].args, commands[i].text);
	fputs("\n`verbena COMMAND --help` describes a command.\n", f);
	cmd_name_manual(f, "verbena");
}

static int run_command(const char *name, int argc, char **argv)
{
	for (int i = 0; i < COMMANDS; i++)
		if (!strcmp(commands[i].name, name))
			return cmd_finish(name, cmd_wants_help(argc, argv) ? 0 : commands[i].run(argc, argv));
	fprintf(stderr, "verbena: there is no command '%s'; 'verbena help' lists them\n", name);
	return 2;
}

static int cmd_help(int argc, char **argv)
{
	char option[] = "--help", *described[] = {argc > 1 ? argv[1] : NULL, option, NULL};

	if (argc > 2) {
		cmd_complain("help", "it takes one command, and '%s' is one argument too many", argv[2]);
		return 2;
	}
	if (argc > 1)
		return run_command(argv[1], 2, described);
	print_usage(stdout);
	return 0;
}

bool cmd_may_be_bold(void)
{
	const char *term = vb_env("TERM");

	return isatty(STDOUT_FILENO) && term && *term && strcmp(term, "dumb") != 0;
}

void cmd_complain(const char *name, const char *fmt, ...)
{
	va_list ap;

	cmd_progress_clear();
	fprintf(stderr, "verbena %s: ", name);
	va_start(ap, fmt);
	vfprintf(stderr, fmt, ap);
	va_end(ap);
	fputc('\n', stderr);
}

int main(int argc, char **argv)
{
	if (argc < 2) {
		print_usage(stderr);
		return 2;
	}
	const char *name = argv[1];
	if (!strcmp(name, "--help") || !strcmp(name, "-h"))
		name = "help";
	else if (!strcmp(name, "--version") || !strcmp(name, "-V"))
		name = "version";
	return run_command(name, argc - 1, argv + 1);
}
