// lanes.c - the group of sockets on UDP port 4791
// follows: design "Receiving on UDP 4791 in several processes"; IBA 9.2 (BTH), RoCEv2 annex A17.4; socket(7), udp(7)
// SPDX-License-Identifier: MIT
#include "broker/lanes.h"

#include <errno.h>
#include <linux/filter.h>
#include <netinet/in.h>
#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>
#include <sys/socket.h>
#include <time.h>
#include <unistd.h>

#ifndef SOL_UDP
#define SOL_UDP 17
#endif
#ifndef UDP_NO_CHECK6_RX
#define UDP_NO_CHECK6_RX 102
#endif
#ifndef UDP_GRO
#define UDP_GRO 104
#endif
#ifndef IPV6_FLOWINFO
#define IPV6_FLOWINFO 11
#endif
#ifndef IPV6_MULTICAST_ALL
#define IPV6_MULTICAST_ALL 29
#endif
#define BTH_QPN_WORD 4              /* offset of the word whose low 24 bits are the destination QP */
#define RECEIVE_BUFFER (4 << 20)
#define MAX_STALE (1 << 20)         /* datagrams thrown away at a time: more than any buffer holds */
#define PORT_TRIES 150              /* 2 ms each: a program that is just ending closes its descriptors one after the other */

/* ---- one socket ---- */

static void set(int fd, int level, int name, int value)
{
	setsockopt(fd, level, name, &value, sizeof(value)); /* without it, too, datagrams arrive */
}

static void set_options(int fd, int family)
{
	set(fd, SOL_UDP, UDP_GRO, 1);
	set(fd, IPPROTO_IP, IP_RECVTOS, 1);
	set(fd, IPPROTO_IP, IP_RECVTTL, 1);
	set(fd, IPPROTO_IP, IP_MULTICAST_ALL, 0);
	if (family != AF_INET6) {
		set(fd, IPPROTO_IP, IP_PKTINFO, 1);
		return;
	}
	set(fd, SOL_UDP, UDP_NO_CHECK6_RX, 1); /* Linux's software RoCE sends no checksum */
	set(fd, IPPROTO_IPV6, IPV6_RECVPKTINFO, 1); /* of IPv4's datagrams, too */
	set(fd, IPPROTO_IPV6, IPV6_RECVTCLASS, 1);
	set(fd, IPPROTO_IPV6, IPV6_RECVHOPLIMIT, 1);
	set(fd, IPPROTO_IPV6, IPV6_FLOWINFO, 1); /* a datagram shows its whole header */
	set(fd, IPPROTO_IPV6, IPV6_MULTICAST_ALL, 0);
}

static int bind_port(int fd, int family)
{
	struct sockaddr_in6 any6 = {.sin6_family = AF_INET6, .sin6_port = htons(VB_ROCE_PORT)};
	struct sockaddr_in any4 = {.sin_family = AF_INET, .sin_port = htons(VB_ROCE_PORT)};

	if (family == AF_INET6)
		return bind(fd, (struct sockaddr *)&any6, sizeof(any6)) ? errno : 0;
	return bind(fd, (struct sockaddr *)&any4, sizeof(any4)) ? errno : 0;
}

static int make_socket(int family, int *out)
{
	int off = 0, fd = socket(family, SOCK_DGRAM | SOCK_CLOEXEC | SOCK_NONBLOCK, IPPROTO_UDP);

	if (fd < 0)
		return errno;
	/* a kernel's default may be otherwise, and then half of the addresses would be missing */
	if (family == AF_INET6 && setsockopt(fd, IPPROTO_IPV6, IPV6_V6ONLY, &off, sizeof(off))) {
		int err = errno;
		close(fd);
		return err;
	}
	*out = fd;
	return 0;
}

static int shut(int fd)
{
	struct sock_filter drop[] = {BPF_STMT(BPF_RET | BPF_K, 0)};
	struct sock_fprog prog = {.len = 1, .filter = drop};

	return setsockopt(fd, SOL_SOCKET, SO_ATTACH_FILTER, &prog, sizeof(prog)) ? errno : 0;
}

static void drain(int fd)
{
	char byte;

	for (int i = 0; i < MAX_STALE; i++)
		if (recv(fd, &byte, 1, MSG_DONTWAIT) < 0 && (errno == EAGAIN || errno == EBADF))
			return;
}

/* ---- the group ---- */

/* Alone, without SO_REUSEPORT: a socket of this user's that has it would let us into its group. Tells the family, too. */
static int probe_port(int *family)
{
	static const int families[] = {AF_INET6, AF_INET};
	int fd, err = EAFNOSUPPORT;

	for (int i = 0; i < 2; i++) {
		err = make_socket(families[i], &fd);
		if (err)
			continue;
		err = bind_port(fd, families[i]);
		close(fd);
		if (!err || err == EADDRINUSE) {
			*family = families[i];
			return err;
		}
	}
	return err;
}

static int wait_for_port(int *family)
{
	struct timespec pause = {.tv_nsec = 2000000};
	int err = probe_port(family);

	for (int i = 0; err == EADDRINUSE && i < PORT_TRIES; i++) {
		nanosleep(&pause, NULL);
		err = probe_port(family);
	}
	return err;
}

static int add_socket(struct vb_lane_group *g, int family)
{
	int fd, one = 1, err = make_socket(family, &fd);

	if (err)
		return err;
	set_options(fd, family);
	err = shut(fd);
	if (!err && setsockopt(fd, SOL_SOCKET, SO_REUSEPORT, &one, sizeof(one)))
		err = errno;
	if (!err)
		err = bind_port(fd, family);
	if (err) {
		close(fd);
		return err;
	}
	g->shut[g->n] = true;
	g->fd[g->n++] = fd;
	return 0;
}

/* Lane 0 is the broker's, which hands nothing on: it shares its socket with nobody. attach_choice() says the same. */
static uint32_t socket_of(const struct vb_lane_group *g, uint32_t lane)
{
	return lane < g->n ? lane : 1 + (lane - 1) % (g->n - 1);
}

/* The program sees the datagram from the BTH on. One that is too short ends it with 0, which is lane 0. */
static int attach_choice(const struct vb_lane_group *g)
{
	struct sock_filter code[] = {
		BPF_STMT(BPF_LD | BPF_W | BPF_ABS, BTH_QPN_WORD),
		BPF_STMT(BPF_ALU | BPF_AND | BPF_K, VB_QPN_MASK),
		BPF_STMT(BPF_ALU | BPF_RSH | BPF_K, VB_LANE_SHIFT),
		BPF_JUMP(BPF_JMP | BPF_JGE | BPF_K, g->n, 0, 3), /* with all sockets, no division */
		BPF_STMT(BPF_ALU | BPF_SUB | BPF_K, 1),
		BPF_STMT(BPF_ALU | BPF_MOD | BPF_K, g->n - 1),
		BPF_STMT(BPF_ALU | BPF_ADD | BPF_K, 1),
		BPF_STMT(BPF_RET | BPF_A, 0),
	};
	struct sock_fprog prog = {.len = sizeof(code) / sizeof(code[0]), .filter = code};

	return setsockopt(g->fd[0], SOL_SOCKET, SO_ATTACH_REUSEPORT_CBPF, &prog, sizeof(prog)) ? errno : 0;
}

static int make_group(struct vb_lane_group *g, int family, uint32_t n)
{
	int err = 0;

	while (!err && g->n < n)
		err = add_socket(g, family);
	if (!err)
		err = attach_choice(g);
	if (err)
		vb_lanes_close(g);
	return err;
}

/* VERBENA_LANES: fewer sockets than programs, which then share and hand packets on. A power of two, and more than one. */
static uint32_t wanted(void)
{
	const char *text = getenv("VERBENA_LANES");
	long n = text ? strtol(text, NULL, 10) : 0;

	return n > 1 && n <= VB_LANE_COUNT && !(n & (n - 1)) ? (uint32_t)n : VB_LANE_COUNT;
}

int vb_lanes_open(struct vb_lane_group *g, uint32_t spare)
{
	struct rlimit lim = {.rlim_cur = 1024};
	uint32_t n = wanted();
	int family, err;

	g->n = 0;
	memset(&g->given, 0, sizeof(g->given));
	getrlimit(RLIMIT_NOFILE, &lim);
	while (n > VB_MIN_LANE_SOCKETS && lim.rlim_cur < n + (rlim_t)spare)
		n /= 2;
	err = wait_for_port(&family);
	if (err)
		return err;
	/* the limit says nothing of what is open already */
	do
		err = make_group(g, family, n);
	while ((err == EMFILE || err == ENFILE) && (n /= 2) >= VB_MIN_LANE_SOCKETS);
	return err;
}

void vb_lanes_close(struct vb_lane_group *g)
{
	while (g->n)
		close(g->fd[--g->n]);
}

int vb_lanes_give(struct vb_lane_group *g, uint32_t lane)
{
	uint32_t i = socket_of(g, lane);
	int unused = 0, size = RECEIVE_BUFFER;

	if (g->shut[i]) {
		if (setsockopt(g->fd[i], SOL_SOCKET, SO_RCVBUFFORCE, &size, sizeof(size)))
			set(g->fd[i], SOL_SOCKET, SO_RCVBUF, size);
		drain(g->fd[i]);
		setsockopt(g->fd[i], SOL_SOCKET, SO_DETACH_FILTER, &unused, sizeof(unused));
		g->shut[i] = false;
	}
	vb_lane_set_add(&g->given, lane);
	return g->fd[i];
}

void vb_lanes_take_back(struct vb_lane_group *g, uint32_t lane)
{
	uint32_t i = socket_of(g, lane);

	vb_lane_set_remove(&g->given, lane);
	for (uint32_t other = 0; other < VB_LANE_COUNT; other++)
		if (vb_lane_set_has(&g->given, other) && socket_of(g, other) == i)
			return;
	g->shut[i] = !shut(g->fd[i]);
	drain(g->fd[i]);
}
