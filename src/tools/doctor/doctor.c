// doctor.c - verbena doctor: says what is there, what is wrong, and how to mend it
// follows: verbena-doctor(1)
// SPDX-License-Identifier: MIT
#include "tools/doctor/doctor.h"

#include <string.h>

#include "tools/verbena.h"
#include "util/env.h"
#include "util/settings.h"

enum { EXIT_USAGE = 3 };

static void check_this_host(void)
{
	doc_check_system();
	doc_check_loader();
	doc_check_limits();
	doc_check_copies();
	doc_check_interfaces();
	doc_check_hardware();
	doc_check_port();
	doc_check_firewall();
	if (doc_check_broker())
		doc_check_paths();
	else
		doc_find(DOC_WARN, "paths", "mend the broker first",
		         "messages were not tried, because programs would wait for the broker");
}

int cmd_doctor(int argc, char **argv)
{
	const char *host = NULL;
	bool json = false;

	for (int i = 1; i < argc; i++) {
		if (!strcmp(argv[i], "--json")) {
			json = true;
		} else if (argv[i][0] == '-' || !argv[i][0] || host) {
			cmd_complain("doctor", "'%s' is wrong: verbena doctor [--json] [HOST]", argv[i]);
			return EXIT_USAGE;
		} else {
			host = argv[i];
		}
	}
	if (vb_env_is_hostile()) {
		cmd_complain(
		        "doctor",
		        "this program runs with more privileges than its caller, and would load libraries: it does nothing");
		return EXIT_USAGE;
	}
	vb_settings_check();
	doc_report_open(json);
	if (host)
		doc_check_peer(host);
	else
		check_this_host();
	return doc_report_close();
}
