// rbd_library.c - loads librados and librbd, so that a machine without Ceph does not need them
// follows: dlopen(3)
// SPDX-License-Identifier: MIT
#include "backend/rbd_library.h"

#include <dlfcn.h>
#include <pthread.h>
#include <stdbool.h>
#include <stdio.h>

#include "backend/backend.h"

#define LIBRADOS "librados.so.2"
#define LIBRBD "librbd.so.1"

static struct nb_rbd_library calls;

/* The libraries stay: they have threads. */
static bool load_libraries(char *why)
{
	void *rados = dlopen(LIBRADOS, RTLD_NOW | RTLD_LOCAL),
	     *rbd = rados ? dlopen(LIBRBD, RTLD_NOW | RTLD_LOCAL) : NULL;

	if (!rbd) {
		snprintf(why, NB_WHY, "%s cannot be loaded: install Debian's librbd1", rados ? LIBRBD : LIBRADOS);
		return false;
	}
	/* dlsym of librbd finds librados, too, which it depends on */
#define LOAD(name)                                                                \
	if (!(*(void **)&calls.name = dlsym(rbd, #name))) {                       \
		snprintf(why, NB_WHY, LIBRBD " is too old: it has no %s", #name); \
		return false;                                                     \
	}
	NB_RBD_CALLS(LOAD)
	return true;
}

const struct nb_rbd_library *nb_rbd_load(char *why)
{
	static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER; /* threads open images */
	static bool loaded;

	pthread_mutex_lock(&lock);
	loaded = loaded || load_libraries(why);
	bool there = loaded;

	pthread_mutex_unlock(&lock);
	return there ? &calls : NULL;
}
