// selftest.c - messages between two programs of this host, by each path
// follows: verbena-doctor(1)
// SPDX-License-Identifier: MIT
#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

#include "tools/doctor/doctor.h"
#include "tools/doctor/pingpong.h"

#define PATH_MS 8000

static const struct {
	const char *about, *name, *wire, *devices, *mend;
} test_paths[] = {
        {"same-host", "shared memory", "auto", "roce:lo", "ip link set lo up; see the findings above"},
        {"roce", "RoCE on UDP over lo", "always", "roce:lo",
         "see the findings about port and firewall; VERBENA_LOG=debug verbena doctor shows more"},
        {"iwarp", "iWARP on TCP over lo", "always", "iwarp:lo", "ip link set lo up; let the firewall accept TCP on lo"},
};

static void test_path(int i)
{
	struct doc_pingpong p = {.wire = test_paths[i].wire, .devices = test_paths[i].devices};
	struct doc_child c[2] = {{.status = -1, .out = -1, .err = -1}, {.status = -1, .out = -1, .err = -1}};

	if (pipe2(p.port, O_CLOEXEC)) {
		doc_find(DOC_FAIL, test_paths[i].about, "ulimit -n 1024", "no pipe: %s", strerror(errno));
		return;
	}
	bool started =
	        doc_child_start(&c[0], doc_pingpong_server, &p) && doc_child_start(&c[1], doc_pingpong_client, &p);

	close(p.port[0]);
	close(p.port[1]);
	doc_children_end(c, 2, started ? PATH_MS : 0, test_paths[i].name);
	if (started && !c[0].status && !c[1].status) {
		doc_find(DOC_OK, test_paths[i].about, NULL,
		         "%s: messages of 64 bytes and 64 KiB arrived whole, latency %s us", test_paths[i].name,
		         c[1].said);
		return;
	}
	const char *why = doc_child_complaint(&c[0]), *other = doc_child_complaint(&c[1]);

	doc_find(DOC_FAIL, test_paths[i].about, test_paths[i].mend, "%s: %s%s%s", test_paths[i].name,
	         *why || *other                       ? why
	         : c[0].status < 0 || c[1].status < 0 ? "the two programs did not end in time"
	                                              : "a program was killed",
	         *why && *other ? "; " : "", other);
}

void doc_check_paths(void)
{
	for (int i = 0; i < (int)(sizeof(test_paths) / sizeof(*test_paths)); i++)
		test_path(i);
}
