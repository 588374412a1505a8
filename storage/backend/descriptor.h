// descriptor.h - what file, block and mapped have in common: a descriptor or two, and a ring
// follows: open(2), statx(2)
// SPDX-License-Identifier: MIT
#ifndef NB_DESCRIPTOR_H
#define NB_DESCRIPTOR_H

#include "backend/ring.h"

struct nb_descriptor {
	struct nb_backend b;
	struct nb_ring *ring;
	int fd;
	uint64_t fixed;  /* the size that was asked for, or 0 */
	uint64_t mapped; /* how much mapped.c has mapped */
};

enum nb_medium { NB_MEDIUM_FILE, NB_MEDIUM_BLOCK, NB_MEDIUM_MAPPED };

/* Opens, finds size, block and whether O_DIRECT can be, and takes the lock that keeps a second target off. 0 or errno.
 */
int nb_descriptor_open(const struct nb_config *config, struct nb_ring *ring, enum nb_medium medium,
                       struct nb_descriptor **out);
int nb_descriptor_size(const struct nb_descriptor *d, uint64_t *size); /* of the medium, in whole blocks */
/* The same for the same medium; anywhere: and for no other one, wherever that is. NULL: there is nothing. The caller
 * frees it */
char *nb_identity(int fd, const char *path, bool *anywhere);
void nb_descriptor_submit(struct nb_backend *b, struct nb_request *r);
int nb_descriptor_resize(struct nb_backend *b, uint64_t size);
void nb_descriptor_close(struct nb_backend *b);

#endif
