// rdma_hello_test.c - the private data of a connection, with any length and content
// follows: NVMe over Fabrics 1.1, 7.3.6.2 to 7.3.6.4
// SPDX-License-Identifier: MIT
#include "../../support/check.h"
#include "nvme/le.h"
#include "target/rdma_hello.h"
#include "target/target.h"

static void what_is_encoded_is_decoded(void)
{
	struct nt_rdma_hello h = {.qid = 3, .hrqsize = 128, .hsqsize = 127, .cntlid = 9}, back;
	uint8_t bytes[NT_RDMA_HELLO_LEN];

	nt_rdma_hello_encode(&h, bytes);
	SAME(nt_rdma_hello_decode(bytes, sizeof(bytes), &back), 0);
	SAME(back.qid, 3);
	SAME(back.hrqsize, 128);
	SAME(back.hsqsize, 127);
	SAME(back.cntlid, 9);
	nt_rdma_accept_encode(128, bytes);
	SAME(nv_get32(bytes), 128u << 16);
	nt_rdma_reject_encode(NT_RDMA_NO_RESOURCES, bytes);
	SAME(nv_get32(bytes), 6u << 16);
}

static void what_is_too_short_is_none(void)
{
	struct nt_rdma_hello h;

	for (size_t len = 0; len < NT_RDMA_HELLO_LEN; len++) {
		uint8_t *exactly = calloc(1, len ? len : 1); /* so that a sanitizer notices reads beyond it */

		SAME(nt_rdma_hello_decode(exactly, len, &h), NT_RDMA_INVALID_LENGTH);
		free(exactly);
	}
	SAME(nt_rdma_hello_decode(NULL, 0, &h), NT_RDMA_INVALID_LENGTH);
	SAME(nt_rdma_hello_decode(NULL, 56, &h), NT_RDMA_INVALID_LENGTH);
}

/* Accepted values are within all limits. */
static void nothing_beyond_the_limits_is_taken(void)
{
	uint64_t x = 0x9e3779b97f4a7c15ull;
	unsigned taken = 0;

	for (int i = 0; i < 2000000; i++) {
		uint8_t bytes[NT_RDMA_HELLO_LEN];
		struct nt_rdma_hello h;

		for (size_t k = 0; k < sizeof(bytes); k++) {
			x ^= x << 13, x ^= x >> 7, x ^= x << 17;
			bytes[k] = (uint8_t)(x >> 24);
		}
		if (i % 2) /* otherwise most fail the first check */
			bytes[0] = bytes[1] = bytes[3] = bytes[7] = 0;
		int why = nt_rdma_hello_decode(bytes, sizeof(bytes), &h);

		CHECK(why >= 0 && why <= NT_RDMA_INVALID_HRQSIZE);
		if (why)
			continue;
		taken++;
		CHECK(!h.recfmt && h.qid <= NT_QUEUES_MAX && h.hrqsize && h.hsqsize);
		CHECK(h.hsqsize < (h.qid ? NT_IO_ENTRIES_MAX : NT_ADMIN_ENTRIES));
	}
	CHECK(taken > 1000);
}

int main(void)
{
	RUN(what_is_encoded_is_decoded);
	RUN(what_is_too_short_is_none);
	RUN(nothing_beyond_the_limits_is_taken);
	return 0;
}
