// fd_watch.c - a descriptor of librdmacm's that the progress thread watches
// see: node/io.h (struct vb_watch)
// SPDX-License-Identifier: MIT
#include "node/fd_watch.h"

#include <errno.h>
#include <stdlib.h>
#include <unistd.h>

#include "node/io.h"

#define EXPORT __attribute__((visibility("default")))

struct vb_fd_watch {
	struct vb_watch watch; /* first: on_event gets its address */
	struct vb_node *node;
	pid_t owner;
	void (*fn)(void *own, uint32_t events);
	void *own;
};

static void on_event(struct vb_watch *watch, uint32_t events)
{
	struct vb_fd_watch *w = (struct vb_fd_watch *)watch;

	w->fn(w->own, events);
}

EXPORT int vb_fd_watch_open(int fd, uint32_t events, void (*fn)(void *own, uint32_t events), void *own,
                            struct vb_fd_watch **out)
{
	struct vb_fd_watch *w = calloc(1, sizeof(*w));
	int err = w ? vb_node_get(&w->node) : ENOMEM;

	if (err) {
		free(w);
		return err;
	}
	w->watch = (struct vb_watch){.fd = fd, .fn = on_event};
	w->owner = getpid();
	w->fn = fn;
	w->own = own;
	*out = w;
	err = vb_watch_add(w->node, &w->watch, events);
	if (err) {
		*out = NULL;
		vb_node_put(w->node);
		free(w);
	}
	return err;
}

EXPORT void vb_fd_watch_change(struct vb_fd_watch *w, uint32_t events)
{
	vb_watch_change(w->node, &w->watch, events);
}

EXPORT void vb_fd_watch_close(struct vb_fd_watch *w)
{
	if (w->owner == getpid())
		vb_watch_remove(w->node, &w->watch);
	vb_node_put(w->node); /* does nothing for a parent's node */
	free(w);
}
