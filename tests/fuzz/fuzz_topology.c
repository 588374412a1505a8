// fuzz_topology.c - arbitrary bytes as a topology: what is read can be printed, and read again to the same
// follows: ibnetdiscover(8), the output format
// SPDX-License-Identifier: MIT
#include <assert.h>
#include <stdlib.h>
#include <string.h>

#include "fabric/topology.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

static const struct vb_fabric_ops no_ops;

static char *printed(const struct vb_fabric *f, size_t *len)
{
	char *text = NULL;
	FILE *out = open_memstream(&text, len);

	assert(out);
	vb_topology_print(f, out);
	fclose(out);
	return text;
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
	struct vb_fabric *f = vb_fabric_new(&no_ops, NULL), *g = vb_fabric_new(&no_ops, NULL);
	struct vb_topology_error e;
	size_t len, len_again;

	assert(f && g);
	if (vb_topology_read(f, (const char *)data, size, &e)) {
		vb_fabric_train_all(f);
		char *text = printed(f, &len);
		assert(vb_topology_read(g, text, len, &e));
		char *again = printed(g, &len_again);
		assert(len == len_again && !memcmp(text, again, len));
		free(text);
		free(again);
	} else {
		assert(e.reason[0] && !f->count);
	}
	vb_fabric_free(f);
	vb_fabric_free(g);
	return 0;
}
