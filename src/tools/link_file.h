// link_file.h - changes the file that names adapters, one command at a time
// follows: verbena-link(1); flock(2), rename(2)
// SPDX-License-Identifier: MIT
#ifndef VB_TOOLS_LINK_FILE_H
#define VB_TOOLS_LINK_FILE_H

#include "util/links.h"

struct link_file {
	char path[VB_LINKS_ROOM];
	int dir; /* its folder, locked */
	char *text;
	size_t len;
	struct vb_links links;
};

/* Makes the folder if there is none, waits for another command's lock (ten seconds at most), and reads the file. No
 * file counts as an empty one. False after a line on standard error: also if a line of the file is wrong. */
bool link_file_open(struct link_file *f);

/* Replaces the line with this number (0: adds one; line NULL: removes it) and stores the file. The old file stays whole
 * until the new one is on the disk. False after a line on standard error. */
bool link_file_store(struct link_file *f, unsigned number, const char *line);

void link_file_close(struct link_file *f);

#endif
