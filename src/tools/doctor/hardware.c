// hardware.c - RDMA devices of the kernel, beside which Verbena's adapters stand
// follows: sysfs(5), /proc/modules
// SPDX-License-Identifier: MIT
#include <dirent.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "tools/doctor/doctor.h"

/* The names in a folder, separated by commas. Under `verbena run` the shim shows a tree with Verbena's own. */
static int list_folder(const char *path, char *text, size_t size)
{
	DIR *dir = opendir(path);
	struct dirent *e;
	size_t len = 0;
	int n = 0;

	text[0] = '\0';
	while (dir && (e = readdir(dir))) {
		if (e->d_name[0] == '.' || len + strlen(e->d_name) + 3 > size)
			continue;
		len += (size_t)snprintf(text + len, size - len, "%s%s", n++ ? ", " : "", e->d_name);
	}
	if (dir)
		closedir(dir);
	return n;
}

static void list_modules(char *text, size_t size)
{
	static const char *const known[] = {"rdma_rxe", "siw", "mlx5_ib",  "mlx4_ib", "irdma",
	                                    "bnxt_re",  "efa", "hns_roce", "qedr",    "cxgb4"};
	FILE *f = fopen("/proc/modules", "re");
	char line[512];
	size_t len = 0;

	text[0] = '\0';
	while (f && fgets(line, sizeof(line), f)) {
		line[strcspn(line, " ")] = '\0';
		for (size_t i = 0; i < sizeof(known) / sizeof(*known); i++)
			if (!strcmp(line, known[i]) && len + 16 < size)
				len += (size_t)snprintf(text + len, size - len, "%s%s", len ? ", " : "", line);
	}
	if (f)
		fclose(f);
}

void doc_check_hardware(void)
{
	char devices[256], modules[128];
	const char *preload = "/sys/class/infiniband";
	int n = list_folder(preload, devices, sizeof(devices));

	list_modules(modules, sizeof(modules));
	if (n)
		doc_find(
		        DOC_OK, "hardware", NULL,
		        "the kernel has RDMA devices (%s%s%s): programs under `verbena run` do not use them, the others do",
		        devices, modules[0] ? "; modules " : "", modules);
	else
		doc_find(DOC_OK, "hardware", NULL, "the kernel has no RDMA device%s%s, and Verbena needs none",
		         modules[0] ? ", though these modules are loaded: " : "", modules);
	if (strstr(modules, "rdma_rxe"))
		doc_find(DOC_WARN, "hardware", "rmmod rdma_rxe",
		         "rdma_rxe is loaded: with a link it holds UDP port 4791");
}
