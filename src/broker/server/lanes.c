// lanes.c - the group of sockets on UDP port 4791
// follows: IBA volume 1, section 9.2 (BTH); annex A17.4 (RoCEv2); socket(7), udp(7)
// SPDX-License-Identifier: MIT
#include "broker/server/lanes.h"

#include <errno.h>
#include <linux/filter.h>
#include <netinet/in.h>
#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>
#include <sys/socket.h>
#include <time.h>
#include <unistd.h>

#include "frame/fields.h"
#include "util/env.h"
#include "util/units.h"

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
#define BTH_QPN_WORD 4 /* offset of the word whose low 24 bits are the destination QP */
#define RECEIVE_BUFFER (4 << 20)
#define MAX_STALE (1 << 20) /* limit of datagrams to discard at a time: more than any buffer holds */
#define PORT_PAUSE_NS VB_MS(2)
#define PORT_TRIES 150 /* an exiting program closes its descriptors one by one */

/* ---- one socket ---- */

static void set_lane_option(int fd, int level, int name, int value)
{
	setsockopt(fd, level, name, &value, sizeof(value)); /* optional: datagrams arrive without it */
}

static void set_options(int fd, int family)
{
	set_lane_option(fd, SOL_UDP, UDP_GRO, 1);
	set_lane_option(fd, IPPROTO_IP, IP_RECVTOS, 1);
	set_lane_option(fd, IPPROTO_IP, IP_RECVTTL, 1);
	set_lane_option(fd, IPPROTO_IP, IP_MULTICAST_ALL, 0);
	if (family != AF_INET6) {
		set_lane_option(fd, IPPROTO_IP, IP_PKTINFO, 1);
		return;
	}
	set_lane_option(fd, SOL_UDP, UDP_NO_CHECK6_RX, 1);      /* Linux's rxe sends no checksum */
	set_lane_option(fd, IPPROTO_IPV6, IPV6_RECVPKTINFO, 1); /* also reports IPv4 datagrams */
	set_lane_option(fd, IPPROTO_IPV6, IPV6_RECVTCLASS, 1);
	set_lane_option(fd, IPPROTO_IPV6, IPV6_RECVHOPLIMIT, 1);
	set_lane_option(fd, IPPROTO_IPV6, IPV6_FLOWINFO, 1); /* flow label and traffic class */
	set_lane_option(fd, IPPROTO_IPV6, IPV6_MULTICAST_ALL, 0);
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
	/* the system's default may be IPv6 only, which excludes IPv4 */
	if (family == AF_INET6 && setsockopt(fd, IPPROTO_IPV6, IPV6_V6ONLY, &off, sizeof(off))) {
		int err = errno;
		close(fd);
		return err;
	}
	*out = fd;
	return 0;
}

static int shut_socket(int fd)
{
	struct sock_filter drop[] = {BPF_STMT(BPF_RET | BPF_K, 0)};
	struct sock_fprog prog = {.len = 1, .filter = drop};

	return setsockopt(fd, SOL_SOCKET, SO_ATTACH_FILTER, &prog, sizeof(prog)) ? errno : 0;
}

/* Broadcasts arrive at all sockets. One that nobody reads holds a datagram, and drops the rest. */
static void set_small_buffer(int fd)
{
	set_lane_option(fd, SOL_SOCKET, SO_RCVBUF, 0);
}

static void drain_socket(int fd)
{
	char byte;

	for (int i = 0; i < MAX_STALE; i++)
		if (recv(fd, &byte, 1, MSG_DONTWAIT) < 0 && (errno == EAGAIN || errno == EBADF))
			return;
}

/* One that an earlier holder has left: net/packet_ring.h. */
static void detach_filter(int fd)
{
	set_lane_option(fd, SOL_SOCKET, SO_DETACH_FILTER, 0);
}

static void set_receive_buffer(int fd)
{
	int size = RECEIVE_BUFFER;

	if (setsockopt(fd, SOL_SOCKET, SO_RCVBUFFORCE, &size, sizeof(size)))
		set_lane_option(fd, SOL_SOCKET, SO_RCVBUF, size);
}

/* ---- the group ---- */

/*
 * The first socket binds without SO_REUSEPORT: it fails if another group of this user exists or is being made, so two
 * groups never merge. The other sockets join it. There are a thousand of them, so what only a holder needs is done when
 * there is one.
 */
static int join_port(const struct vb_lane_group *g, int *out)
{
	int fd = -1, one = 1, err = make_socket(g->family, &fd);
	bool first = !g->n;

	if (err)
		return err;
	set_small_buffer(fd);
	if (!first && setsockopt(fd, SOL_SOCKET, SO_REUSEPORT, &one, sizeof(one)))
		err = errno;
	if (!err)
		err = bind_port(fd, g->family);
	if (!err && first && setsockopt(fd, SOL_SOCKET, SO_REUSEPORT, &one, sizeof(one)))
		err = errno;
	if (err)
		close(fd);
	else
		*out = fd;
	return err;
}

static int add_socket(struct vb_lane_group *g)
{
	int err = join_port(g, &g->fd[g->n]);

	if (err)
		return err;
	g->shut[g->n++] = true;
	return 0;
}

/* Its index is the number of the lanes' sockets. */
static int add_sink(struct vb_lane_group *g)
{
	int err = join_port(g, &g->sink);

	if (err)
		return err;
	if ((err = shut_socket(g->sink)))
		close(g->sink);
	else
		g->has_sink = true;
	return err;
}

static int add_first(struct vb_lane_group *g)
{
	static const int families[] = {AF_INET6, AF_INET};
	int err = EAFNOSUPPORT;

	for (int i = 0; i < 2; i++) {
		g->family = families[i];
		err = add_socket(g);
		if (!err || err == EADDRINUSE || err == EMFILE || err == ENFILE)
			return err;
	}
	return err;
}

static int wait_for_port(struct vb_lane_group *g)
{
	struct timespec pause = {.tv_nsec = PORT_PAUSE_NS};
	int err = add_first(g);

	for (int i = 0; err == EADDRINUSE && i < PORT_TRIES; i++) {
		nanosleep(&pause, NULL);
		err = add_first(g);
	}
	return err;
}

uint32_t vb_lanes_socket(const struct vb_lane_group *g, uint32_t lane)
{
	return vb_lane_socket(g->n, g->split, lane);
}

#define WORDS (VB_LANE_COUNT / 32) /* of a set of lanes */

/* A bit for each of these lanes whose socket has a holder. */
static uint32_t open_lanes(const struct vb_lane_group *g, uint32_t word)
{
	uint32_t bits = 0;

	for (uint32_t i = 0; i < 32; i++)
		bits |= (uint32_t)!g->shut[vb_lanes_socket(g, 32 * word + i)] << i;
	return bits;
}

/*
 * The filter sees the datagram from the BTH on. For one that is too short it returns 0, which is lane 0. A datagram for a
 * socket without a holder goes to the sink, whose own filter drops it: a filter for each socket would take the kernel a
 * sixth of a millisecond each.
 */
static int steer(const struct vb_lane_group *g)
{
	uint32_t own = g->split ? g->n / 2 - 1 : g->n - 1, half = g->n / 2, word[WORDS];
	/* X: the lane's bit in its word, A: the word, the store: the lane */
	struct sock_filter code[3 * WORDS + 32] = {
	        BPF_STMT(BPF_LD | BPF_W | BPF_ABS, BTH_QPN_WORD),
	        BPF_STMT(BPF_ALU | BPF_AND | BPF_K, VB_QPN_MASK),
	        BPF_STMT(BPF_ALU | BPF_RSH | BPF_K, VB_LANE_SHIFT),
	        BPF_STMT(BPF_ST, 0),
	        BPF_STMT(BPF_ALU | BPF_AND | BPF_K, 31),
	        BPF_STMT(BPF_MISC | BPF_TAX, 0),
	        BPF_STMT(BPF_LD | BPF_MEM, 0),
	        BPF_STMT(BPF_ALU | BPF_RSH | BPF_K, 5),
	};
	const struct sock_filter sink = BPF_STMT(BPF_RET | BPF_K, g->n),
	                         of_open[] = {
	                                 BPF_STMT(BPF_ALU | BPF_RSH | BPF_X, 0),
	                                 BPF_STMT(BPF_ALU | BPF_AND | BPF_K, 1),
	                                 BPF_JUMP(BPF_JMP | BPF_JEQ | BPF_K, 1, 1, 0),
	                                 BPF_STMT(BPF_RET | BPF_K, g->n),
	                                 BPF_STMT(BPF_LD | BPF_MEM, 0),
	                                 BPF_JUMP(BPF_JMP | BPF_JGE | BPF_K, g->n == VB_LANE_COUNT ? VB_LANE_COUNT : 1,
	                                          0, 7), /* one socket per lane: no division */
	                                 BPF_JUMP(BPF_JMP | BPF_JGE | BPF_K,
	                                          g->split ? VB_FOREIGN_LANES : VB_LANE_COUNT, 4, 0),
	                                 BPF_STMT(BPF_ALU | BPF_SUB | BPF_K, 1),
	                                 BPF_STMT(BPF_ALU | BPF_MOD | BPF_K, own),
	                                 BPF_STMT(BPF_ALU | BPF_ADD | BPF_K, 1),
	                                 BPF_STMT(BPF_RET | BPF_A, 0),
	                                 BPF_STMT(BPF_ALU | BPF_MOD | BPF_K, half),
	                                 BPF_STMT(BPF_ALU | BPF_ADD | BPF_K, half),
	                                 BPF_STMT(BPF_RET | BPF_A, 0),
	                         };
	uint32_t at = 8, used = 0;

	for (uint32_t i = 0; i < WORDS; i++)
		used += (word[i] = open_lanes(g, i)) != 0;
	uint32_t end = at + 3 * used;

	for (uint32_t i = 0; i < WORDS; i++) {
		if (!word[i])
			continue;
		code[at++] = (struct sock_filter)BPF_JUMP(BPF_JMP | BPF_JEQ | BPF_K, i, 0, 2);
		code[at++] = (struct sock_filter)BPF_STMT(BPF_LD | BPF_IMM, word[i]);
		code[at] = (struct sock_filter)BPF_JUMP(BPF_JMP | BPF_JA, end - at, 0, 0);
		at++;
	}
	code[at++] = sink;
	memcpy(&code[at], of_open, sizeof(of_open));
	struct sock_fprog prog = {.len = (unsigned short)(at + sizeof(of_open) / sizeof(*of_open)), .filter = code};

	return setsockopt(g->fd[0], SOL_SOCKET, SO_ATTACH_REUSEPORT_CBPF, &prog, sizeof(prog)) ? errno : 0;
}

/* The first socket exists. */
static int open_other_sockets(struct vb_lane_group *g, uint32_t n)
{
	int err = 0;

	while (!err && g->n < n)
		err = add_socket(g);
	if (!err)
		err = add_sink(g);
	return err ? err : steer(g);
}

static void close_sockets_from(struct vb_lane_group *g, uint32_t n)
{
	if (g->has_sink)
		close(g->sink);
	g->has_sink = false;
	while (g->n > n)
		close(g->fd[--g->n]);
}

/* VERBENA_LANES, a power of two: with fewer sockets than lanes, programs share sockets and pass packets on. */
static uint32_t wanted_sockets(bool split)
{
	const char *text = vb_env("VERBENA_LANES");
	long n = text ? strtol(text, NULL, 10) : 0;

	if (n < VB_FEWEST_SOCKETS(false) || n > VB_LANE_COUNT || (n & (n - 1)))
		return VB_LANE_COUNT;
	return n < VB_FEWEST_SOCKETS(split) ? VB_FEWEST_SOCKETS(split) : (uint32_t)n;
}

int vb_lanes_open(struct vb_lane_group *g, uint32_t spare)
{
	struct rlimit lim = {.rlim_cur = 1024};
	bool split = geteuid() == 0;
	uint32_t n = wanted_sockets(split);
	int err;

	*g = (struct vb_lane_group){.split = split};
	getrlimit(RLIMIT_NOFILE, &lim);
	while (n > VB_MIN_LANE_SOCKETS && lim.rlim_cur < n + 1 + (rlim_t)spare)
		n /= 2;
	err = wait_for_port(g);
	if (err)
		return err;
	/* the limit does not count descriptors that are open already. The first socket stays, so nobody else gets the
	 * port meanwhile */
	do {
		close_sockets_from(g, 1);
		err = open_other_sockets(g, n);
	} while ((err == EMFILE || err == ENFILE) && (n /= 2) >= VB_MIN_LANE_SOCKETS);
	if (err)
		vb_lanes_close(g);
	return err;
}

void vb_lanes_close(struct vb_lane_group *g)
{
	close_sockets_from(g, 0);
}

/* True if this socket serves a lane of the other kind. A relayed lane must not share with a program that reads the
 * socket. */
static bool serves_others(const struct vb_lane_group *g, uint32_t i, bool relayed)
{
	const struct vb_lane_set *set = relayed ? &g->given : &g->relayed;

	for (uint32_t lane = 1; lane < VB_LANE_COUNT; lane++)
		if (vb_lane_set_has(set, lane) && vb_lanes_socket(g, lane) == i &&
		    (!relayed || !vb_lane_set_has(&g->relayed, lane)))
			return true;
	return false;
}

int vb_lanes_give(struct vb_lane_group *g, uint32_t lane, bool relayed)
{
	uint32_t i = vb_lanes_socket(g, lane);

	if (lane && g->n < VB_LANE_COUNT && (serves_others(g, i, relayed) || (relayed && lane < VB_FOREIGN_LANES)))
		return -1;
	if (g->shut[i]) {
		drain_socket(g->fd[i]);
		detach_filter(g->fd[i]);
		set_options(g->fd[i], g->family);
		set_receive_buffer(g->fd[i]);
		g->shut[i] = false;
		if (steer(g)) {
			g->shut[i] = true;
			return -1;
		}
	}
	vb_lane_set_add(&g->given, lane);
	if (relayed)
		vb_lane_set_add(&g->relayed, lane);
	else
		vb_lane_set_remove(&g->relayed, lane);
	return g->fd[i];
}

bool vb_lanes_take_back(struct vb_lane_group *g, uint32_t lane)
{
	uint32_t i = vb_lanes_socket(g, lane);

	vb_lane_set_remove(&g->given, lane);
	vb_lane_set_remove(&g->relayed, lane);
	for (uint32_t other = 0; other < VB_LANE_COUNT; other++)
		if (vb_lane_set_has(&g->given, other) && vb_lanes_socket(g, other) == i)
			return false;
	g->shut[i] = true;
	steer(g); /* without memory for it the socket holds a datagram, which the next holder discards */
	set_small_buffer(g->fd[i]);
	drain_socket(g->fd[i]);
	return true;
}
