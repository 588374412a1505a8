// fuzz_resource.c - arbitrary text as a program's row about one of its objects
// follows: docs/control.md
// SPDX-License-Identifier: MIT
#include <assert.h>
#include <stdlib.h>
#include <string.h>

#include "tools/shim/resource_row.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
	char *line = malloc(size + 1);
	struct vb_shim_resource r;

	memcpy(line, data, size);
	line[size] = '\0';
	for (int kind = 0; kind < VB_SHIM_KINDS; kind++) {
		if (!vb_shim_resource_read((enum vb_shim_kind)kind, "roce_lo", line, &r))
			continue;
		assert(r.local.ss_family == 0 || r.local.ss_family == AF_INET || r.local.ss_family == AF_INET6);
		assert(r.type <= 10 && r.state <= 9);
	}
	free(line);
	return 0;
}
