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

/* A library of the folder that VB_LIBDIR names, with every reference bound at once as in programs of Debian. */
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

/* Writes down what is going to be called, where VB_CALLS names a file: coverage.sh looks for what is not in it. */
static inline void note_call(const char *name, const char *version)
{
	const char *path = getenv("VB_CALLS");
	FILE *f = path ? fopen(path, "a") : NULL;

	if (f) {
		fprintf(f, "%s@%s\n", name, version);
		fclose(f);
	}
}

/* A symbol that the caller will call. */
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
