// conf_file.h - the files below /etc/rdma/rsocket: only what the administrator or the user has written is read
// follows: rsocket(7) ("configuration files")
// SPDX-License-Identifier: MIT
#ifndef VB_RSOCKET_CONF_FILE_H
#define VB_RSOCKET_CONF_FILE_H

#include <fcntl.h>
#include <stdio.h>
#include <sys/stat.h>
#include <unistd.h>

#ifndef RS_CONF_DIR
#define RS_CONF_DIR "/etc/rdma/rsocket"
#endif

/* NULL: there is none, or it is no plain file, or it is another user's, or others may write it. The caller closes
 * it. */
static inline FILE *rs_open_conf(const char *name)
{
	char path[256];
	struct stat st;
	int fd;
	FILE *f = NULL;

	if (snprintf(path, sizeof(path), RS_CONF_DIR "/%s", name) >= (int)sizeof(path))
		return NULL;
	fd = open(path, O_RDONLY | O_CLOEXEC | O_NONBLOCK); /* a FIFO would hold the program up */
	if (fd < 0)
		return NULL;
	if (!fstat(fd, &st) && S_ISREG(st.st_mode) && (!st.st_uid || st.st_uid == geteuid()) && !(st.st_mode & S_IWOTH))
		f = fdopen(fd, "r");
	if (!f)
		close(fd);
	return f;
}

#endif
