// fuzz_links.c - any bytes as the file that names adapters
// see: man/verbena-link.1
// SPDX-License-Identifier: MIT
#include <assert.h>
#include <stdlib.h>
#include <string.h>

#include "util/links.h"

static void count_line(void *arg, unsigned line, const char *why)
{
	assert(line && *why);
	++*(unsigned *)arg;
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
	static struct vb_links l;
	unsigned told = 0;
	char *text = malloc(size ? size : 1); /* without room for a final zero */

	memcpy(text, data, size);
	assert(vb_links_parse(&l, text, size, count_line, &told) == told);
	assert(l.n <= VB_LINKS_MAX);
	for (unsigned i = 0; i < l.n; i++) {
		const struct vb_link *k = &l.link[i];

		assert(vb_links_is_name(k->name) && vb_links_is_netdev(k->netdev) && k->line);
		assert(vb_links_named(&l, k->name) == k && vb_links_of(&l, k->netdev, k->iwarp) == k);
	}
	if (l.ib.line)
		assert(*l.ib.fabric && memchr(l.ib.fabric, 0, sizeof(l.ib.fabric)) &&
		       memchr(l.ib.node, 0, sizeof(l.ib.node)) && !vb_links_named(&l, VB_LINKS_IB));
	free(text);
	return 0;
}
