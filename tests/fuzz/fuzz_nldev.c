// fuzz_nldev.c - arbitrary bytes as RDMA netlink requests: nothing is read beyond them, and the answers are well formed
// follows: netlink(7)
// SPDX-License-Identifier: MIT
#include <assert.h>
#include <linux/netlink.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "tools/shim/live.h"
#include "tools/shim/nldev.h"
#include "tools/shim/resources.h"
#include "tools/shim/tree_device.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

/* In place of the tree: names of the longest kind. */
int vb_shim_devices(struct vb_shim_device dev[VB_SHIM_DEVICES_MAX])
{
	for (uint32_t i = 0; i < 40; i++) {
		dev[i].index = i;
		memset(dev[i].name, 'x', sizeof(dev[i].name) - 1);
		dev[i].name[sizeof(dev[i].name) - 1] = '\0';
	}
	return 40;
}

bool vb_shim_device_read(const struct vb_shim_device *dev, const char *attribute, char *buf, size_t size)
{
	memset(buf, '7', size - 1);
	buf[size - 1] = '\0';
	return true;
}

/* In place of the running programs. */
void vb_shim_live_numbers(const char *device, const char *const *names, unsigned n, uint64_t *values)
{
	memset(values, 0xff, n * sizeof(*values));
}

void vb_shim_resources(enum vb_shim_kind kind, const char *device, vb_shim_take_resource *take, void *arg)
{
	struct vb_shim_resource r;

	memset(&r, 0xff, sizeof(r));
	r.has_peer = r.has_psns = true;
	for (unsigned i = 0; i < 50; i++)
		take(arg, &r);
}

static void check(void *arg, const void *buf, size_t len)
{
	const uint8_t *p = buf;

	assert(len <= 4096);
	while (len) {
		struct nlmsghdr h;

		assert(len >= sizeof(h));
		memcpy(&h, p, sizeof(h));
		assert(h.nlmsg_len >= sizeof(h) && h.nlmsg_len <= len && h.nlmsg_len % 4 == 0);
		p += h.nlmsg_len;
		len -= h.nlmsg_len;
	}
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
	uint8_t *copy = malloc(size ? size : 1);

	memcpy(copy, data, size);
	vb_shim_nldev_answer(copy, size, check, NULL);
	free(copy);
	return 0;
}
