// fuzz_share.c - any bytes as the file behind a descriptor that ibv_import_device is given
// see: src/core/share.h
// SPDX-License-Identifier: MIT
#include <assert.h>
#include <stdlib.h>
#include <string.h>

#include "core/share.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
	struct vb_share_text t;
	char *bytes = malloc(size ? size : 1); /* without room for a final zero */

	memcpy(bytes, data, size);
	if (vb_share_parse(bytes, size, &t))
		assert(t.device[0] && memchr(t.device, '\0', sizeof(t.device)) && !strpbrk(t.device, " \n"));
	free(bytes);
	return 0;
}
