// rbd_library.c - loads librados and librbd, so that a machine without Ceph does not need them
// follows: dlopen(3)
// SPDX-License-Identifier: MIT
#include "backend/rbd_library.h"

#include <dlfcn.h>
#include <stdbool.h>
#include <stdio.h>

#include "backend/backend.h"

#define LIBRADOS "librados.so.2"
#define LIBRBD "librbd.so.1"

static struct nb_rbd_library calls;

/* The libraries stay: they have threads. */
const struct nb_rbd_library *nb_rbd_load(char *why)
{
	static bool loaded;

	if (loaded)
		return &calls;
	void *rados = dlopen(LIBRADOS, RTLD_NOW | RTLD_LOCAL),
	     *rbd = rados ? dlopen(LIBRBD, RTLD_NOW | RTLD_LOCAL) : NULL;

	if (!rbd) {
		snprintf(why, NB_WHY, "%s cannot be loaded: install Debian's librbd1", rados ? LIBRBD : LIBRADOS);
		return NULL;
	}
	/* dlsym of librbd finds librados, too, which it depends on */
#define LOAD(name)                                                                \
	if (!(*(void **)&calls.name = dlsym(rbd, #name))) {                       \
		snprintf(why, NB_WHY, LIBRBD " is too old: it has no %s", #name); \
		return NULL;                                                      \
	}
	NB_RBD_CALLS(LOAD)
	loaded = true;
	return &calls;
}
