// fabric_tree.c - writes the CA of a simulated InfiniBand subnet to the tree that replaces /sys and /dev
// follows: Linux Documentation/ABI/stable/sysfs-class-infiniband, Documentation/infiniband/user_mad.rst
// SPDX-License-Identifier: MIT
#include "tools/fabric_tree.h"

#include <limits.h>
#include <stdio.h>
#include <string.h>

#include "fabric/proto/proto.h"

/* The text of a file of the CA; of all their names if path is "". False: there is none. */
static bool ask_file(const char *path, char *text, size_t size)
{
	long n = vb_fabric_socket() ? vb_fabric_ask(VB_FABRIC_FILE, 0, path, text, size - 1) : -1;

	if (n <= 0 || !text[0])
		return false;
	text[n] = '\0';
	return true;
}

static bool ask_ca(struct vb_fabric_ca *ca)
{
	return vb_fabric_socket() && vb_fabric_ask(VB_FABRIC_CA, 0, "", ca, sizeof(*ca)) == sizeof(*ca) && !ca->error;
}

static void write_files(struct vb_tree *t)
{
	char names[VB_FABRIC_INLINE], path[PATH_MAX], text[512], *rest = names;

	if (!ask_file("", names, sizeof(names)))
		return;
	for (char *name; (name = strsep(&rest, "\n"));) {
		if (!*name || strstr(name, "..") || !ask_file(name, text, sizeof(text)))
			continue;
		snprintf(path, sizeof(path), "class/infiniband/" VB_FABRIC_DEVICE "/%s", name);
		vb_tree_file(t, path, text);
	}
}

/* umadN and issmN, one of each for a port. What opens umadN itself reaches nothing: libibumad is the way. */
static void write_port(struct vb_tree *t, unsigned port)
{
	char path[PATH_MAX], text[PATH_MAX];

	snprintf(path, sizeof(path), "class/infiniband_mad/umad%u/ibdev", port - 1);
	vb_tree_file(t, path, VB_FABRIC_DEVICE "\n");
	snprintf(path, sizeof(path), "class/infiniband_mad/umad%u/port", port - 1);
	snprintf(text, sizeof(text), "%u\n", port);
	vb_tree_file(t, path, text);
	long n = vb_fabric_ask(VB_FABRIC_ISSM, port, "", text, sizeof(text) - 1);
	if (n < 2)
		return;
	text[n] = '\0';
	snprintf(path, sizeof(path), "dev/infiniband/issm%u", port - 1);
	vb_tree_link(t, path, text);
}

void vb_fabric_tree_write(struct vb_tree *t)
{
	struct vb_fabric_ca ca;

	if (!ask_ca(&ca))
		return;
	write_files(t);
	for (unsigned k = 1; k <= ca.ports && k <= VB_FABRIC_PORTS; k++)
		write_port(t, k);
}

bool vb_fabric_tree_has(const char *name)
{
	return vb_fabric_socket() &&
	       (!strcmp(name, VB_FABRIC_DEVICE) || !strncmp(name, "umad", 4) || !strncmp(name, "issm", 4));
}

uint64_t vb_fabric_tree_fingerprint(uint64_t h)
{
	struct vb_fabric_ca ca;

	if (!ask_ca(&ca))
		return h;
	h = (h ^ ca.guid) * VB_FNV_PRIME;
	return (h ^ ca.ports) * VB_FNV_PRIME;
}
