// descriptor.h - shared by the backends file, block and mapped: one or two descriptors, and a ring
// follows: open(2), statx(2)
// SPDX-License-Identifier: MIT
#ifndef NB_DESCRIPTOR_H
#define NB_DESCRIPTOR_H

#include "backend/ring.h"

struct nb_descriptor {
	struct nb_backend b;
	struct nb_ring *ring;
	int fd;
	uint64_t fixed;  /* the configured size, or 0 */
	uint64_t mapped; /* bytes that mapped.c has mapped */
};

enum nb_medium { NB_MEDIUM_FILE, NB_MEDIUM_BLOCK, NB_MEDIUM_MAPPED };

/* Opens the medium, finds its size, its block and whether it supports O_DIRECT, and takes the lock that excludes a
 * second target. 0 or errno. */
int nb_descriptor_open(const struct nb_config *config, struct nb_ring *ring, enum nb_medium medium,
                       struct nb_descriptor **out);
int nb_descriptor_size(const struct nb_descriptor *d, uint64_t *size); /* size of the medium, in whole blocks */
/* A string that is always the same for the same medium. *anywhere: it also differs from that of any other medium on any
 * host. NULL: there is none. The caller frees it. */
char *nb_identity(int fd, const char *path, bool *anywhere);
void nb_descriptor_submit(struct nb_backend *b, struct nb_request *r);
int nb_descriptor_resize(struct nb_backend *b, uint64_t size);
void nb_descriptor_close(struct nb_backend *b);

#endif
