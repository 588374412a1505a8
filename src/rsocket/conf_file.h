// conf_file.h - opens the files below /etc/rdma/rsocket, if only their owner (root or the user) can write to them
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

/* Returns NULL if there is no such file, if it is not a regular file, if it belongs to neither root nor the user, or if
 * everybody may write to it. The caller closes it. */
static inline FILE *rs_open_conf(const char *name)
{
	char path[256];
	struct stat st;
	int fd;
	FILE *f = NULL;

	if (snprintf(path, sizeof(path), RS_CONF_DIR "/%s", name) >= (int)sizeof(path))
		return NULL;
	fd = open(path, O_RDONLY | O_CLOEXEC | O_NONBLOCK); /* does not block on a FIFO */
	if (fd < 0)
		return NULL;
	if (!fstat(fd, &st) && S_ISREG(st.st_mode) && (!st.st_uid || st.st_uid == geteuid()) && !(st.st_mode & S_IWOTH))
		f = fdopen(fd, "r");
	if (!f)
		close(fd);
	return f;
}

#endif
