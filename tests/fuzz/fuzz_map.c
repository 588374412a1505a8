// fuzz_map.c - arbitrary strings as paths: redirected paths stay in the tree, and nothing is written beyond a buffer
// SPDX-License-Identifier: MIT
#include <assert.h>
#include <errno.h>
#include <fcntl.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "tools/shim/map.h"
#include "util/runtime.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

static char runtime[] = "/tmp/fuzz_map.XXXXXX", tree[PATH_MAX];

static void remove_tree(void)
{
	rmdir(tree);
	rmdir(runtime);
}

/* Nothing is redirected to a tree that does not exist. */
static void make_tree(void)
{
	if (*tree)
		return;
	assert(mkdtemp(runtime) && !setenv("VERBENA_RUNTIME", runtime, 1));
	assert(vb_runtime_tree_place(tree, sizeof(tree)) == ENOENT && !mkdir(tree, 0755));
	assert(vb_runtime_tree(tree, sizeof(tree)) == ENOENT && !vb_runtime_tree_announce(tree));
	atexit(remove_tree);
	struct vb_shim_map_buf buf;
	assert(vb_shim_map(AT_FDCWD, "/sys/class/infiniband/x", &buf) == buf.path &&
	       !strncmp(buf.path, tree, strlen(tree)));
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
	static const char *const heads[] = {"", "/sys/class/infiniband", "/dev/infiniband", "class/infiniband",
	                                    "./infiniband"};
	struct vb_shim_map_buf *buf = malloc(sizeof(*buf));
	size_t head = size ? data[0] % 5 : 0, n = strlen(heads[head]);
	char *path = malloc(n + size + 1);

	make_tree();
	memcpy(path, heads[head], n);
	memcpy(path + n, size ? data + 1 : data, size ? size - 1 : 0);
	path[n + (size ? size - 1 : 0)] = '\0';
	char *exact = strdup(path);
	const char *p = vb_shim_map(AT_FDCWD, exact, buf);
	assert(p == exact || p == buf->path);
	if (p == buf->path) {
		assert(*p == '/' && strlen(p) < sizeof(buf->path) && !strstr(p, "/../") && !strstr(p, "//"));
		vb_shim_map_is_node(buf);
		vb_shim_map_undo(buf->path);
		assert(strlen(buf->path) < sizeof(buf->path));
	}
	free(exact);
	free(path);
	free(buf);
	return 0;
}
