// fuzz_bench.c - any bytes as what the ends of `verbena bench` and `verbena doctor` send each other
// see: man/verbena-bench.1, src/frame/hello.h
// SPDX-License-Identifier: MIT
#include <assert.h>
#include <string.h>

#include "frame/hello.h"
#include "tools/bench/bench.h"
#include "tools/doctor/doctor.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

int64_t doc_now_us(void)
{
	return 0;
}

static void read_ask(const uint8_t *data)
{
	uint8_t out[BENCH_ASK_LEN];
	struct bench_ask ask;

	if (!bench_decode_ask(&ask, data))
		return;
	assert(ask.kind < BENCH_KINDS && ask.size && ask.size <= BENCH_SIZE_MAX);
	bench_encode_ask(out, &ask);
	assert(!memcmp(out, data, sizeof(out)));
}

static void read_grant(const uint8_t *data)
{
	uint8_t out[BENCH_GRANT_LEN];
	struct bench_grant g;

	if (!bench_decode_grant(&g, data))
		return;
	bench_encode_grant(out, &g);
	assert(!memcmp(out, data, sizeof(out)));
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
	char version[VB_HELLO_VERSION_LEN];

	if (size >= BENCH_ASK_LEN)
		read_ask(data);
	if (size >= BENCH_GRANT_LEN)
		read_grant(data);
	if (vb_hello_read(data, size, version))
		assert(*version && strlen(version) < sizeof(version));
	return 0;
}
