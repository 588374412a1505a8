// socket.c - a NETLINK_RDMA socket without the kernel: one end of a socket pair, answered when it is written to
// follows: netlink(7)
// SPDX-License-Identifier: MIT
#include <errno.h>
#include <fcntl.h>
#include <linux/netlink.h>
#include <stdbool.h>
#include <stdint.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

#include "tools/shim/aside.h"
#include "tools/shim/inode.h"
#include "tools/shim/next.h"
#include "tools/shim/nldev.h"
#include "tools/shim/waiting.h"

NEXT_OF(socket)
NEXT_OF(bind)
NEXT_OF(connect)
NEXT_OF(getsockname)
NEXT_OF(setsockopt)
NEXT_OF(send)
NEXT_OF(sendto)
NEXT_OF(sendmsg)
NEXT_OF(recvfrom)
NEXT_OF(recvmsg)
NEXT_OF(close)

/* A program has one or two of these. fd is atomic; every call tests count first. The inodes tell a socket of ours
 * from another file that a dup2, a close_range or a direct system call put under its number. */
static struct {
	int fd, peer;
	uint64_t inode, peer_inode;
} table[VB_SHIM_SLOTS] = {
        [0 ... VB_SHIM_SLOTS - 1] = {-1, -1}}; /* rdma(8) opens one for each adapter, and closes none */
static int count;

/* fd of a slot that is not in use; our ends get descriptor numbers from PEER_FROM on */
enum { SLOTS = VB_SHIM_SLOTS, FREE = -1, FILLING = -2, PEER_FROM = 512 };

/* The program's end of a slot is closed, or about to be: closes the other end, unless its number was reused in the
 * same way. */
static void slot_free(int i, int fd)
{
	int expected = fd;

	if (!__atomic_compare_exchange_n(&table[i].fd, &expected, FILLING, false, __ATOMIC_ACQ_REL, __ATOMIC_RELAXED))
		return;
	if (vb_shim_socket_inode(table[i].peer) == table[i].peer_inode)
		NEXT(close)(table[i].peer);
	vb_shim_waiting_drop((unsigned)i);
	__atomic_sub_fetch(&count, 1, __ATOMIC_ACQ_REL);
	__atomic_store_n(&table[i].fd, FREE, __ATOMIC_RELEASE);
}

static int slot_of(int fd)
{
	if (__builtin_expect(!__atomic_load_n(&count, __ATOMIC_ACQUIRE), 1) || fd < 0)
		return -1;
	for (int i = 0; i < SLOTS; i++) {
		if (__atomic_load_n(&table[i].fd, __ATOMIC_ACQUIRE) != fd)
			continue;
		if (vb_shim_socket_inode(fd) == table[i].inode)
			return i;
		slot_free(i, fd);
	}
	return -1;
}

/* Moves our end away from the low numbers that programs count on, if the descriptor limit allows. */
static int move_high(int fd)
{
	int high = fcntl(fd, F_DUPFD_CLOEXEC, PEER_FROM);

	if (high < 0) {
		fcntl(fd, F_SETFD, FD_CLOEXEC);
		return fd;
	}
	NEXT(close)(fd);
	return high;
}

static int slot_make_socket(int type)
{
	int pair[2];

	for (int i = 0; i < SLOTS; i++) {
		int was = FREE;

		slot_of(__atomic_load_n(&table[i].fd,
		                        __ATOMIC_ACQUIRE)); /* frees the slot if its socket was closed unseen */
		if (!__atomic_compare_exchange_n(&table[i].fd, &was, FILLING, false, __ATOMIC_ACQ_REL,
		                                 __ATOMIC_RELAXED))
			continue;
		int flags = type & (SOCK_CLOEXEC | SOCK_NONBLOCK);
		if (socketpair(AF_UNIX, SOCK_DGRAM | flags, 0, pair)) {
			__atomic_store_n(&table[i].fd, FREE, __ATOMIC_RELEASE);
			return -1;
		}
		table[i].peer = move_high(pair[1]);
		table[i].inode = vb_shim_socket_inode(pair[0]);
		table[i].peer_inode = vb_shim_socket_inode(table[i].peer);
		__atomic_add_fetch(&count, 1, __ATOMIC_ACQ_REL);
		__atomic_store_n(&table[i].fd, pair[0], __ATOMIC_RELEASE);
		return pair[0];
	}
	errno = ENFILE;
	return -1;
}

EXPORT int socket(int domain, int type, int protocol)
{
	if (domain == AF_NETLINK && protocol == NETLINK_RDMA && !vb_shim_is_aside())
		return slot_make_socket(type);
	return NEXT(socket)(domain, type, protocol);
}

EXPORT int close(int fd)
{
	int i = slot_of(fd);

	if (i >= 0)
		slot_free(i, fd);
	return NEXT(close)(fd);
}

EXPORT int bind(int fd, const struct sockaddr *addr, socklen_t len)
{
	return slot_of(fd) < 0 ? NEXT(bind)(fd, addr, len) : 0;
}

EXPORT int connect(int fd, const struct sockaddr *addr, socklen_t len)
{
	return slot_of(fd) < 0 ? NEXT(connect)(fd, addr, len) : 0;
}

EXPORT int setsockopt(int fd, int level, int option, const void *value, socklen_t len)
{
	if (slot_of(fd) >= 0 && level == SOL_NETLINK)
		return 0;
	return NEXT(setsockopt)(fd, level, option, value, len);
}

static void put_netlink_address(void *to, socklen_t *len, uint32_t pid)
{
	struct sockaddr_nl addr = {.nl_family = AF_NETLINK, .nl_pid = pid};

	if (!to || !len)
		return;
	memcpy(to, &addr, *len < sizeof(addr) ? *len : sizeof(addr));
	*len = sizeof(addr);
}

EXPORT int getsockname(int fd, struct sockaddr *addr, socklen_t *len)
{
	if (slot_of(fd) < 0)
		return NEXT(getsockname)(fd, addr, len);
	put_netlink_address(addr, len, (uint32_t)getpid());
	return 0;
}

static void write_answer(void *arg, const void *buf, size_t len)
{
	const int *slot = arg;

	vb_shim_waiting_put((unsigned)*slot, table[*slot].peer, buf, len);
}

static void send_waiting(int slot)
{
	vb_shim_waiting_send((unsigned)slot, table[slot].peer);
}

static ssize_t slot_answer(int slot, const void *buf, size_t len)
{
	vb_shim_nldev_answer(buf, len, write_answer, &slot);
	return (ssize_t)len;
}

EXPORT ssize_t send(int fd, const void *buf, size_t len, int flags)
{
	int i = slot_of(fd);

	return i < 0 ? NEXT(send)(fd, buf, len, flags) : slot_answer(i, buf, len);
}

EXPORT ssize_t sendto(int fd, const void *buf, size_t len, int flags, const struct sockaddr *to, socklen_t to_len)
{
	int i = slot_of(fd);

	return i < 0 ? NEXT(sendto)(fd, buf, len, flags, to, to_len) : slot_answer(i, buf, len);
}

/* Requests are short: a longer message is not one. */
APART static ssize_t slot_answer_message(int slot, const struct msghdr *msg)
{
	char buf[4096];
	size_t len = 0;

	for (size_t i = 0; i < msg->msg_iovlen; i++) {
		if (msg->msg_iov[i].iov_len > sizeof(buf) - len) {
			errno = EMSGSIZE;
			return -1;
		}
		memcpy(buf + len, msg->msg_iov[i].iov_base, msg->msg_iov[i].iov_len);
		len += msg->msg_iov[i].iov_len;
	}
	return slot_answer(slot, buf, len);
}

EXPORT ssize_t sendmsg(int fd, const struct msghdr *msg, int flags)
{
	int i = slot_of(fd);

	return i < 0 ? NEXT(sendmsg)(fd, msg, flags) : slot_answer_message(i, msg);
}

EXPORT ssize_t recvfrom(int fd, void *buf, size_t len, int flags, struct sockaddr *from, socklen_t *from_len)
{
	int slot = slot_of(fd);

	if (slot < 0)
		return NEXT(recvfrom)(fd, buf, len, flags, from, from_len);
	send_waiting(slot);
	ssize_t n = NEXT(recvfrom)(fd, buf, len, flags, NULL, NULL);
	send_waiting(slot);
	if (n >= 0)
		put_netlink_address(from, from_len, 0);
	return n;
}

EXPORT ssize_t recvmsg(int fd, struct msghdr *msg, int flags)
{
	int slot = slot_of(fd);

	if (slot < 0)
		return NEXT(recvmsg)(fd, msg, flags);
	socklen_t len = msg->msg_namelen;
	send_waiting(slot);
	ssize_t n = NEXT(recvmsg)(fd, msg, flags);
	send_waiting(slot);
	if (n >= 0) {
		put_netlink_address(msg->msg_name, &len, 0);
		msg->msg_namelen = msg->msg_name ? len : 0;
	}
	return n;
}
