// adapter.h - a fuzzer's adapter: a broker inside the fuzzer, with a runtime directory that goes when the fuzzer ends
// see: man/verbena.7
// SPDX-License-Identifier: MIT
#ifndef VB_FUZZ_ADAPTER_H
#define VB_FUZZ_ADAPTER_H

#include <assert.h>
#include <fcntl.h>
#include <infiniband/verbs.h>
#include <stdio.h>
#include <stdlib.h>

static char runtime[] = "/tmp/verbena-fuzz.XXXXXX";

static inline void remove_runtime(void)
{
	char command[64];

	snprintf(command, sizeof(command), "rm -rf %s", runtime);
	if (system(command))
		perror(runtime);
}

/* Of the adapters that VERBENA_DEVICES names so, and of no others. Called once. */
static inline void have_adapters(const char *devices)
{
	assert(mkdtemp(runtime));
	atexit(remove_runtime);
	setenv("VERBENA_RUNTIME", runtime, 1);
	setenv("VERBENA_BROKER", "/nonexistent", 1); /* it runs in this program */
	setenv("VERBENA_DEVICES", devices, 1);
	setenv("VERBENA_HARDWARE", "off", 1);
}

/* Opens an adapter of lo. Asking it for events does not wait. */
static inline struct ibv_context *open_on_lo(void)
{
	have_adapters("roce:lo");
	struct ibv_device **list = ibv_get_device_list(NULL);

	assert(list && list[0]);
	struct ibv_context *ctx = ibv_open_device(list[0]);

	assert(ctx);
	ibv_free_device_list(list);
	fcntl(ctx->async_fd, F_SETFL, O_NONBLOCK);
	return ctx;
}

#endif
