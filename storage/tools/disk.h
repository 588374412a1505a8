// disk.h - shared by the commands of verbena-disk
// SPDX-License-Identifier: MIT
#ifndef VERBENA_DISK_H
#define VERBENA_DISK_H

#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>

#include "client/verbena_nvme.h"

struct vd_settings {
	struct vn_options options;
	bool json, sparse, quiet;
	/* bench */
	bool sequential;
	unsigned write_percent, depth, seconds;
	size_t size;
};

/* Opens a disk. On failure prints a message and returns NULL. */
struct vn_disk *vd_open(const char *url, const struct vd_settings *s);
bool vd_is_url(const char *name);
bool vd_number(const char *text, uint64_t *n); /* parses a number; k, m, g and t are powers of 1024 */
int vd_error(const char *what, int error);     /* prints a message for a negative errno, and returns 1 */

int vd_copy(const char *from, const char *to, const struct vd_settings *s);
int vd_read(const char *url, uint64_t offset, uint64_t length, const struct vd_settings *s); /* length 0: to the end */
int vd_write(const char *url, uint64_t offset, const struct vd_settings *s);
int vd_bench(const char *url, const struct vd_settings *s);

#endif
