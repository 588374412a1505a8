// inode.h - the inode of a socket, which tells it from another file that has got its number
// follows: statx(2)
// SPDX-License-Identifier: MIT
#ifndef VB_SHIM_INODE_H
#define VB_SHIM_INODE_H

#include <errno.h>
#include <fcntl.h>
#include <stdint.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <unistd.h>

/* 0: fd is no socket. errno is kept. By system call, because the shim replaces the library's statx. */
static inline uint64_t vb_shim_socket_inode(int fd)
{
	int saved = errno;
	struct statx stx = {0};

	if (syscall(SYS_statx, fd, "", AT_EMPTY_PATH, STATX_TYPE | STATX_INO, &stx) || !S_ISSOCK(stx.stx_mode))
		stx.stx_ino = 0;
	errno = saved;
	return stx.stx_ino;
}

#endif
