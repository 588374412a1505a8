// fuzz_netdev.c - arbitrary bytes as rtnetlink messages: nothing is read beyond them, and the result is well formed
// follows: rtnetlink(7)
// SPDX-License-Identifier: MIT
#include <assert.h>
#include <stdlib.h>
#include <string.h>

#include "core/device.h"
#include "net/netdev_parse.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
	struct vb_netdev_gather g = {0};
	/* Copies each half separately: two datagrams with a red zone after each. */
	size_t half = size / 2;
	uint8_t *a = malloc(half + 1), *b = malloc(size - half + 1);

	a = realloc(a, half ? half : 1);
	b = realloc(b, size - half ? size - half : 1);
	memcpy(a, data, half);
	memcpy(b, data + half, size - half);
	vb_netdev_parse(&g, data, size);
	vb_netdev_parse(&g, a, half);
	vb_netdev_parse(&g, b, size - half);
	vb_netdev_parse_is_change(b, size - half);
	for (size_t i = 0; i < g.n; i++) {
		struct vb_netdev *nd = &g.list[i];

		assert(nd->ifindex > 0 && strnlen(nd->name, sizeof(nd->name)) < sizeof(nd->name));
		assert(nd->n_addrs <= VB_NETDEV_ADDRS);
		struct vb_device *dev = vb_device_new(nd, "roce_x", 1);
		vb_device_apply(dev, nd);
		vb_device_put(dev);
	}
	free(g.list);
	free(a);
	free(b);
	return 0;
}
