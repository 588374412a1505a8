// loader.c - which libibverbs.so.1 and librdmacm.so.1 a program gets here, and with `verbena run`
// follows: ld.so(8), dlinfo(3)
// SPDX-License-Identifier: MIT
#include <dlfcn.h>
#include <fcntl.h>
#include <limits.h>
#include <link.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#include "tools/doctor/doctor.h"
#include "tools/run_paths.h"

#define LOAD_MS 5000

/* Is this Verbena's library? It contains the name of its segment. */
static bool is_verbena(const char *path)
{
	int fd = open(path, O_RDONLY | O_CLOEXEC);
	struct stat st;
	bool found = false;

	if (fd < 0)
		return false;
	if (!fstat(fd, &st) && S_ISREG(st.st_mode) && st.st_size > 0) {
		void *map = mmap(NULL, (size_t)st.st_size, PROT_READ, MAP_PRIVATE, fd, 0);

		if (map != MAP_FAILED) {
			found = memmem(map, (size_t)st.st_size, "verbena-segment", 15) != NULL;
			munmap(map, (size_t)st.st_size);
		}
	}
	close(fd);
	return found;
}

/* In a child: asks the dynamic linker as a program would, with the caller's LD_LIBRARY_PATH. */
static int load_library(int out, void *arg)
{
	char real[PATH_MAX];
	struct link_map *map;
	void *lib = dlopen(arg, RTLD_LAZY);

	if (!lib || dlinfo(lib, RTLD_DI_LINKMAP, &map) || !realpath(map->l_name, real))
		return 1;
	return write(out, real, strlen(real)) < 0;
}

static void find_default_library(char *name)
{
	struct doc_child c;

	if (doc_child_run(&c, load_library, name, LOAD_MS, NULL) || !c.said[0])
		doc_find(DOC_OK, "loader", NULL,
		         "the system has no %s: a program that needs it starts with `verbena run` only", name);
	else
		doc_find(DOC_OK, "loader", NULL, "without `verbena run` a program gets %s, which is %s", c.said,
		         is_verbena(c.said) ? "Verbena's" : "for hardware and knows no adapter of Verbena");
}

void doc_check_loader(void)
{
	char ibverbs[] = "libibverbs.so.1", file[PATH_MAX + 32], real[PATH_MAX];
	struct run_paths paths;

	find_default_library(ibverbs);
	if (!run_find_libraries(&paths)) {
		doc_find(DOC_FAIL, "loader", "meson install, or ninja in the build tree",
		         "Verbena's libibverbs.so.1 was found neither beside this program nor in " VB_LIBDIR
		         "/verbena");
		return;
	}
	snprintf(file, sizeof(file), "%s/libibverbs.so.1", paths.lib_dir);
	doc_find(DOC_OK, "loader", NULL, "with `verbena run` a program gets %s", realpath(file, real) ? real : file);
	if (!paths.shim[0])
		doc_find(DOC_WARN, "loader", "install the whole of Verbena",
		         "libverbena-paths.so is missing: programs that read /sys/class/infiniband see no adapters");
}
