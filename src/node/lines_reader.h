// lines_reader.h - reads the file that names adapters again, in a thread that may wait for it
// follows: verbena-link(1)
// SPDX-License-Identifier: MIT
#ifndef VB_NODE_LINES_READER_H
#define VB_NODE_LINES_READER_H

#include <stdbool.h>

/*
 * Starts a thread that reads the file, and then rings wake_fd. It may be on a network whose server does not answer, and
 * nothing waits for the thread: it keeps nothing of the node, and outlives it. While one reads, a further call makes it
 * read again. Returns 0 or an errno value. The progress thread calls it.
 */
int vb_lines_reader_start(int wake_fd);
/* Has a thread read the file since the last call? */
bool vb_lines_reader_done(void);

#endif
