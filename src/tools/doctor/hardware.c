// hardware.c - RDMA devices of the kernel, beside which Verbena's adapters stand
// follows: sysfs(5), /proc/modules
// SPDX-License-Identifier: MIT
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "core/rdma_link.h"
#include "tools/doctor/doctor.h"
#include "util/hardware.h"

/* The names of the kernel's devices, separated by commas. Returns their number. */
static int list_devices(char *text, size_t size)
{
	struct vb_rdma_link *links = calloc(VB_RDMA_LINKS_MAX, sizeof(*links));
	size_t n = links ? vb_rdma_link_list(links, VB_RDMA_LINKS_MAX) : 0, len = 0;
	int devices = 0;

	text[0] = '\0';
	for (size_t i = 0; i < n; i++) {
		if (links[i].port != 1 || len + strlen(links[i].name) + 3 > size)
			continue;
		len += (size_t)snprintf(text + len, size - len, "%s%s", devices++ ? ", " : "", links[i].name);
	}
	free(links);
	return devices;
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
	int n = list_devices(devices, sizeof(devices));

	list_modules(modules, sizeof(modules));
	if (n)
		doc_find(DOC_OK, "hardware", NULL, "the kernel has RDMA devices (%s%s%s): programs %s", devices,
		         modules[0] ? "; modules " : "", modules,
		         vb_hardware_wanted() == VB_HARDWARE_OFF
		                 ? "do not use them, because VERBENA_HARDWARE is off"
		                 : "get them before Verbena's (VERBENA_HARDWARE=off: not at all)");
	else
		doc_find(DOC_OK, "hardware", NULL, "the kernel has no RDMA device%s%s, and Verbena needs none",
		         modules[0] ? ", though these modules are loaded: " : "", modules);
	if (strstr(modules, "rdma_rxe"))
		doc_find(DOC_WARN, "hardware", "rmmod rdma_rxe",
		         "rdma_rxe is loaded: with a link it holds UDP port 4791");
}
