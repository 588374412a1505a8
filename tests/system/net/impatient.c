// impatient.c - a library to preload: TCP keepalives after 2 s, and unacknowledged data is lost after 4 s
// follows: tcp(7)
// SPDX-License-Identifier: MIT
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <stddef.h>
#include <sys/socket.h>
#include <sys/syscall.h>
#include <unistd.h>

int setsockopt(int fd, int level, int name, const void *value, socklen_t len)
{
	int sooner = level != IPPROTO_TCP       ? 0
	             : name == TCP_KEEPIDLE     ? 2
	             : name == TCP_KEEPINTVL    ? 1
	             : name == TCP_KEEPCNT      ? 2
	             : name == TCP_USER_TIMEOUT ? 4000
	                                        : 0;

	return (int)syscall(SYS_setsockopt, fd, level, name, sooner ? &sooner : value, len);
}
