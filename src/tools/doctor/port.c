// port.c - UDP port 4791: is it free, or whose is it
// follows: IBA annex A17.3 (RoCEv2); proc(5)
// SPDX-License-Identifier: MIT
#include <arpa/inet.h>
#include <errno.h>
#include <netinet/in.h>
#include <stdio.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

#include "frame/fields.h"
#include "tools/doctor/doctor.h"

#define SOCKETS 2048

/* 0 if the port can be bound now, or an errno value. */
static int try_port(void)
{
	struct sockaddr_in any = {.sin_family = AF_INET, .sin_port = htons(VB_ROCE_PORT)};
	int fd = socket(AF_INET, SOCK_DGRAM | SOCK_CLOEXEC, 0);

	if (fd < 0)
		return errno;
	int err = bind(fd, (struct sockaddr *)&any, sizeof(any)) ? errno : 0;

	close(fd);
	return err;
}

static void find_holder_of_port(const struct doc_socket *list, int n)
{
	struct doc_owner o;
	bool known = doc_find_owner(list, n, &o);
	uid_t uid = list[0].uid;

	if (known && o.ours)
		doc_find(DOC_OK, "port", NULL, "UDP port 4791 is held by Verbena: %s, process %d of user %u", o.comm,
		         (int)o.pid, (unsigned)uid);
	else if (known)
		doc_find(
		        DOC_FAIL, "port", doc_mend("kill %d (or let %s use another port)", (int)o.pid, o.comm),
		        "UDP port 4791 is held by %s (process %d of user %u): programs reach neither other hosts nor other "
		        "users",
		        o.comm, (int)o.pid, (unsigned)uid);
	else if (uid == geteuid() || geteuid() == 0)
		doc_find(DOC_FAIL, "port", "rmmod rdma_rxe, if it is loaded (rdma link shows its links)",
		         "UDP port 4791 is held by the kernel or a process outside this container, as user %u",
		         (unsigned)uid);
	else
		doc_find(
		        DOC_WARN, "port",
		        "end that user's programs; or, to serve all users, start \"verbena-broker --stay\" as root first",
		        "UDP port 4791 is held by a process of user %u, which only that user and root may look at",
		        (unsigned)uid);
}

void doc_check_port(void)
{
	static struct doc_socket list[SOCKETS];
	int n = doc_udp_sockets(VB_ROCE_PORT, list, SOCKETS), err = try_port();

	if (n > 0)
		find_holder_of_port(list, n);
	else if (err == EADDRINUSE)
		doc_find(DOC_FAIL, "port", "mount -t proc proc /proc, and run this again",
		         "UDP port 4791 is taken, and /proc does not say by whom");
	else if (err)
		doc_find(DOC_FAIL, "port", NULL, "UDP port 4791 cannot be used: %s", strerror(err));
	else
		doc_find(DOC_OK, "port", NULL, "UDP port 4791 is free");
}
