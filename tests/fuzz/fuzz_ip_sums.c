// fuzz_ip_sums.c - any frame: filling in checksums changes nothing else, is done once, and what is filled in is right
// follows: ibv_post_send(3), IBV_SEND_IP_CSUM
// build: tests/fuzz/run 60 ip_sums
// SPDX-License-Identifier: MIT
#include <stdlib.h>
#include <string.h>

#include "frame/ip_sums.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
	uint8_t *once = malloc(size ? size : 1), *twice = malloc(size ? size : 1);
	uint32_t len = (uint32_t)size, changed = 0;

	memcpy(once, data, size);
	bool right = vb_ip_sums_right(once, len);

	vb_ip_sums_fill(once, len);
	for (uint32_t i = 0; i < len; i++) {
		changed += once[i] != data[i];
		/* a right checksum changes only where 0 stands for none (UDP), or where 0 and 0xffff mean the same */
		if (right && once[i] != data[i] && data[i] != 0 && data[i] != 0xff)
			abort();
	}
	if (changed > 4 || (right && !vb_ip_sums_right(once, len)))
		abort();
	memcpy(twice, once, size);
	vb_ip_sums_fill(twice, len);
	right = vb_ip_sums_finish(twice, len);
	if (right != vb_ip_sums_right(twice, len) || memcmp(once, twice, size) != 0)
		abort();
	free(once);
	free(twice);
	return 0;
}
