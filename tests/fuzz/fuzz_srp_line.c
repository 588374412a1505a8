// fuzz_srp_line.c - any bytes as a line that names a SRP target
// see: man/verbena-srp-host.8
// SPDX-License-Identifier: MIT
#include <assert.h>
#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "tools/srp_line.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
	struct vd_srp_line l, again;
	char *text = malloc(size + 1), why[40], url[200];

	memcpy(text, data, size);
	text[size] = '\0';
	int e = vd_srp_line_parse(text, &l, why, sizeof(why));

	assert(!e || e == EINVAL || e == ERANGE);
	if (!e) {
		assert(!vd_srp_line_parse(text, &again, why, sizeof(why)) && vd_srp_line_same(&l, &again));
		assert(l.tl_retry_count >= 2 && l.tl_retry_count <= 7 && l.queue_size >= 0 && l.ch_count >= 0);
		vd_srp_line_url(&l, 16383, url, sizeof(url));
		assert(!strncmp(url, "srp://", 6) && strlen(url) < sizeof(url) - 1 && strstr(url, "lun=16383"));
	}
	free(text);
	return 0;
}
