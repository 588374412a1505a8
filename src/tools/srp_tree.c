// srp_tree.c - writes what the kernel's SRP initiator has in /sys to the tree that replaces it
// follows: Linux Documentation/ABI/stable/sysfs-driver-ib_srp
// SPDX-License-Identifier: MIT
#include "tools/srp_tree.h"

#include <limits.h>
#include <stdio.h>
#include <string.h>

#include "util/env.h"

static bool is_host_of(const char *name, const void *arg)
{
	for (struct ibv_device *const *d = arg; *d; d++) {
		char own[96];

		snprintf(own, sizeof(own), "srp-%s-1", (*d)->name);
		if (!strcmp(own, name))
			return true;
	}
	return false;
}

static void write_host(struct vb_tree *t, const char *device)
{
	static const char *const names[] = {"add_target", "ibdev", "port"};
	char path[PATH_MAX], ibdev[96];

	snprintf(ibdev, sizeof(ibdev), "%s\n", device);
	const char *const texts[] = {"", ibdev, "1\n"};

	for (size_t i = 0; i < sizeof(names) / sizeof(*names); i++) {
		snprintf(path, sizeof(path), "class/infiniband_srp/srp-%s-1/%s", device, names[i]);
		vb_tree_file(t, path, texts[i]);
	}
}

void vb_srp_tree_write(struct vb_tree *t, struct ibv_device *const *devices, int n)
{
	const char *directory = vb_env("VERBENA_SRP");
	char logins[PATH_MAX];

	if (!directory || !*directory)
		return;
	vb_tree_dir(t, "class/infiniband_srp");
	vb_tree_prune(t, "class/infiniband_srp", is_host_of, devices);
	for (int i = 0; i < n; i++)
		write_host(t, devices[i]->name);
	if (snprintf(logins, sizeof(logins), "%s/scsi_host", directory) < (int)sizeof(logins))
		vb_tree_link(t, "class/scsi_host", logins);
}
