// control.h - the control socket: how a person asks a running program
// follows: unix(7); docs/control.md
// SPDX-License-Identifier: MIT
#ifndef VB_NODE_CONTROL_H
#define VB_NODE_CONTROL_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "util/text.h"

struct vb_node;

/*
 * A request is a line of words, "verb key=value ...". The answer is JSON, up to the end of the stream. The other end is a
 * process of the same user, or of root: what it sends is checked all the same.
 */
struct vb_control_call {
	struct vb_node *node;
	const char *verb;
	char *args;          /* the words behind the verb; "" if there are none. The function may write into them */
	int fd;              /* the descriptor that came with the request, or -1. The function sets -1 if it keeps it */
	struct vb_text *out; /* the answer */
};

/*
 * From now on requests with this verb call serve, in the progress thread, with no lock held. It must not block, and should
 * return within a millisecond: a long list is answered in parts. It returns 0, or an errno value for the answer
 * {"error": ..., "errno": ...}, which then replaces what it has put. verb must last. A verb may be added again with the
 * same function. False if there are too many verbs. Any thread, any lock.
 */
bool vb_control_add(const char *verb, int (*serve)(struct vb_control_call *));

/* Copies the value of "key=value" from the words of a request. False if there is none, or if it is too long. */
bool vb_control_word(const char *args, const char *key, char *value, size_t size);
/* The same for an unsigned number: *n keeps its value if there is no such word. False if the word is no number. */
bool vb_control_number(const char *args, const char *key, uint64_t *n);

/* node.c. Opens the socket. Without it everything else works, so that a failure is only logged. */
struct vb_control *vb_control_start(struct vb_node *node);
/* Closes it, and removes its name. After the progress thread has ended, or in a program that ends. */
void vb_control_stop(struct vb_control *c);
void vb_control_remove_name(struct vb_control *c);
/* Its directory and its name, for util/tally.h. False in a child that does not know that it is one. */
bool vb_control_place(const struct vb_control *c, int *dir_fd, const char **name);
/* In a child of fork(), to which the parent's socket does not belong. */
void vb_control_in_child(struct vb_control *c);

#endif
