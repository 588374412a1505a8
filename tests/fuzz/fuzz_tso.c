// fuzz_tso.c - any headers and payload of a TSO request: each frame has the headers' length and is TCP again
// follows: ibv_post_send(3), IBV_WR_TSO
// build: tests/fuzz/run 60 tso
// SPDX-License-Identifier: MIT
#include <stdlib.h>
#include <string.h>

#define CHECK_FAILED(...) abort() /* the fuzzer says which input it was */
#include "../support/check.h"
#include "frame/tso.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

/* The first byte is the payload's length, the second the number of the frame. */
int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
	struct vb_tso t, again;

	if (size < 2)
		return 0;
	uint32_t len = (uint32_t)size - 2, payload = data[0];
	uint8_t *head = malloc(len + 1), *frame = calloc(1, len + payload + 1);

	CHECK(head && frame);
	memcpy(head, data + 2, len);
	if (vb_tso_parse(&t, head, len)) {
		CHECK(t.len == len && t.ip_at >= 14 && t.tcp_at >= t.ip_at + 20 && t.tcp_at + 20 <= len);
		vb_tso_head(&t, head, frame, data[1], data[1] * payload, payload, data[1] & 1);
		CHECK(!memcmp(head, frame, t.ip_at));
		CHECK(vb_tso_parse(&again, frame, len) && again.ip_at == t.ip_at && again.tcp_at == t.tcp_at);
	}
	free(head);
	free(frame);
	return 0;
}
