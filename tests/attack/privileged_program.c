// privileged_program.c - a set-user-ID program that uses RDMA: becomes root or not, opens a device, and reports
// follows: secure_getenv(3), credentials(7)
// SPDX-License-Identifier: MIT
// usage: privileged_program become|stay|capable|grouped (privileged.sh makes it set-user-ID or set-group-ID, or gives it a capability)
#include <dirent.h>
#include <infiniband/verbs.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/auxv.h>
#include <sys/wait.h>
#include <unistd.h>

/* The library exports this, but no header declares it. */
int ibv_read_sysfs_file(const char *dir, const char *file, char *buf, size_t size);

static int fail(const char *what)
{
	printf("failed: %s\n", what);
	return 1;
}

/* Programs started later get the environment as the library leaves it. */
static int show_environment(void)
{
	fflush(stdout);
	pid_t pid = fork();

	if (!pid) {
		execl("/usr/bin/env", "env", NULL);
		_exit(127);
	}
	int status = 1;
	waitpid(pid, &status, 0);
	return status;
}

int main(int argc, char **argv)
{
	char attribute[64];
	int n;

	if (argc < 2 || !getauxval(AT_SECURE) ||
	    (geteuid() == 0) != (!strcmp(argv[1], "become") || !strcmp(argv[1], "stay")))
		return fail("not privileged");
	if (!strcmp(argv[1], "become") && (setgid(0) || setuid(0)))
		return fail("setuid");
	struct ibv_device **list = ibv_get_device_list(&n);
	printf("devices %d\n", list ? n : -1);
	printf("sysfs %s\n",
	       ibv_read_sysfs_file("/sys/class/infiniband/roce_lo", "node_type", attribute, sizeof(attribute)) > 0
	               ? attribute
	               : "none");
	struct ibv_context *context = NULL;
	for (int i = 0; i < n; i++)
		if (!strcmp(ibv_get_device_name(list[i]), "roce_lo"))
			context = ibv_open_device(list[i]);
	if (!context)
		return fail("open");
	struct ibv_port_attr port;
	if (ibv_query_port(context, 1, &port))
		return fail("port");
	printf("lid %u\n", port.lid);
	printf("shows\n");
	show_environment();
	printf("ready\n");
	fflush(stdout);
	getchar(); /* the script looks at the broker meanwhile */
	ibv_close_device(context);
	ibv_free_device_list(list);
	return 0;
}
