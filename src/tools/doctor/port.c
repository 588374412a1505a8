// port.c - UDP port 4791: is it free, or whose is it
// follows: IBA annex A17.3 (RoCEv2); proc(5)
// SPDX-License-Identifier: MIT
#include <arpa/inet.h>
#include <errno.h>
#include <netinet/in.h>
#include <stdio.h>
#include <string.h>
#include <sys/socket.h>
#include <time.h>
#include <unistd.h>

#include "frame/fields.h"
#include "tools/doctor/doctor.h"

#define SOCKETS 2048
#define LOOKS 10              // at a port whose holder is not found
#define LOOK_PAUSE 100000000L // ns

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

/* uid: the user of the sockets. o: the process that has one, or NULL. */
static void report_holder(uid_t uid, const struct doc_owner *o)
{
	if (o && o->ours)
		doc_find(DOC_OK, "port", NULL, "UDP port 4791 is held by Verbena: %s, process %d of user %u", o->comm,
		         (int)o->pid, (unsigned)uid);
	else if (o)
		doc_find(
		        DOC_FAIL, "port", doc_mend("kill %d (or let %s use another port)", (int)o->pid, o->comm),
		        "UDP port 4791 is held by %s (process %d of user %u): programs reach neither other hosts nor other "
		        "users",
		        o->comm, (int)o->pid, (unsigned)uid);
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

/* Fills list with the sockets of the port and returns their number; *known: *owner has one. A process that is ending has
 * lost its memory, or its sockets too, before they are closed, and a socket may be on its way to another process. So only
 * a holder that is Verbena's, or that two looks found, is believed. */
static int look_at_port(struct doc_socket *list, struct doc_owner *owner, bool *known)
{
	int n = doc_udp_sockets(VB_ROCE_PORT, list, SOCKETS);
	pid_t before = -1;

	for (int i = 1; n > 0; i++) {
		*known = doc_find_owner(list, n, owner);
		if (i >= LOOKS || (*known && (owner->ours || owner->pid == before)))
			break;
		before = *known ? owner->pid : -1;
		nanosleep(&(struct timespec){.tv_nsec = LOOK_PAUSE}, NULL);
		n = doc_udp_sockets(VB_ROCE_PORT, list, SOCKETS);
	}
	return n;
}

void doc_check_port(void)
{
	static struct doc_socket list[SOCKETS];
	struct doc_owner owner;
	bool known = false;
	int n = look_at_port(list, &owner, &known), err = try_port();

	if (n > 0)
		report_holder(list[0].uid, known ? &owner : NULL);
	else if (err == EADDRINUSE)
		doc_find(DOC_FAIL, "port", "mount -t proc proc /proc, and run this again",
		         "UDP port 4791 is taken, and /proc does not say by whom");
	else if (err)
		doc_find(DOC_FAIL, "port", NULL, "UDP port 4791 cannot be used: %s", strerror(err));
	else
		doc_find(DOC_OK, "port", NULL, "UDP port 4791 is free");
}
