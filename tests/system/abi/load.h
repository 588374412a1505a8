// load.h - how the programs of this folder load the library under test
// SPDX-License-Identifier: MIT
#ifndef VB_TEST_ABI_LOAD_H
#define VB_TEST_ABI_LOAD_H

#include <dlfcn.h>
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "../../support/check.h"

/* Loads a library from the folder VB_LIBDIR and binds all references at once, as Debian's programs do. */
static inline void *load(const char *name)
{
	const char *dir = getenv("VB_LIBDIR");
	char path[4096];

	snprintf(path, sizeof(path), "%s/%s", dir ? dir : ".", name);
	void *lib = dlopen(path, RTLD_NOW | RTLD_LOCAL);
	if (!lib) {
		fprintf(stderr, "%s\n", dlerror());
		exit(1);
	}
	return lib;
}

/* Records a call in the file VB_CALLS, if that is set: coverage.sh looks for missing ones. */
static inline void note_call(const char *name, const char *version)
{
	const char *path = getenv("VB_CALLS");
	FILE *f = path ? fopen(path, "a") : NULL;

	if (f) {
		fprintf(f, "%s@%s\n", name, version);
		fclose(f);
	}
}

/* Returns a symbol that the caller will call. */
static inline void *version_of(void *lib, const char *name, const char *version)
{
	void *symbol = dlvsym(lib, name, version);

	if (!symbol) {
		fprintf(stderr, "%s@%s: %s\n", name, version, dlerror());
		exit(1);
	}
	note_call(name, version);
	return symbol;
}

#endif
