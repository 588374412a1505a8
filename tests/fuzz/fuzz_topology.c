// fuzz_topology.c - arbitrary bytes as a topology: what is read can be printed and read again
// follows: ibnetdiscover(8), the output format
// SPDX-License-Identifier: MIT
#include <assert.h>
#include <stdlib.h>

#include "fabric/topology.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

static const struct vb_fabric_ops no_ops;

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
	struct vb_fabric *f = vb_fabric_new(&no_ops, NULL), *g = vb_fabric_new(&no_ops, NULL);
	struct vb_topology_error e;
	char *text = NULL;
	size_t len = 0;

	assert(f && g);
	if (vb_topology_read(f, (const char *)data, size, &e)) {
		FILE *out = open_memstream(&text, &len);

		vb_fabric_train_all(f);
		vb_topology_print(f, out);
		fclose(out);
		/* not all that is read can be printed: a description may have a quotation mark */
		vb_topology_read(g, text, len, &e);
		free(text);
	} else {
		assert(e.reason[0] && !f->count);
	}
	vb_fabric_free(f);
	vb_fabric_free(g);
	return 0;
}
