// lanes_test.c - the group of sockets on UDP 4791 alone: which socket receives a datagram
// follows: IBA 9.2 (BTH)
// see: src/broker/server/lanes.h
// SPDX-License-Identifier: MIT
#include "harness.h"

#include <errno.h>
#include <fcntl.h>
#include <linux/filter.h>
#include <linux/seccomp.h>
#include <netinet/in.h>
#include <netinet/udp.h>
#include <poll.h>
#include <stddef.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/resource.h>
#include <sys/socket.h>
#include <sys/syscall.h>
#include <unistd.h>

#include "broker/server/lanes.h"
#include "broker/server/relay.h"

static struct vb_lane_group group;
static int sender4, sender6;

static void set_up(uint32_t spare, uint32_t want)
{
	struct rlimit lim;

	own_network();
	getrlimit(RLIMIT_NOFILE, &lim);
	if (want == VB_LANE_COUNT && lim.rlim_cur < VB_LANE_COUNT + 100)
		skip("needs RLIMIT_NOFILE of 1124");
	SAME(vb_lanes_open(&group, spare), 0);
	SAME(group.n, want);
	sender4 = socket(AF_INET, SOCK_DGRAM, 0);
	sender6 = socket(AF_INET6, SOCK_DGRAM, 0);
	CHECK(sender4 >= 0);
}

/* A BTH in which only the QP number matters. */
static void send_bth(int family, uint32_t qpn, size_t len)
{
	struct sockaddr_in to4 = {
	        .sin_family = AF_INET, .sin_port = htons(VB_ROCE_PORT), .sin_addr.s_addr = htonl(INADDR_LOOPBACK)};
	struct sockaddr_in6 to6 = {
	        .sin6_family = AF_INET6, .sin6_port = htons(VB_ROCE_PORT), .sin6_addr = IN6ADDR_LOOPBACK_INIT};
	uint8_t bth[12] = {4, 0, 0xff, 0xff, 0xee, (uint8_t)(qpn >> 16), (uint8_t)(qpn >> 8), (uint8_t)qpn};

	if (family == AF_INET)
		CHECK(sendto(sender4, bth, len, 0, (struct sockaddr *)&to4, sizeof(to4)) == (ssize_t)len);
	else
		CHECK(sendto(sender6, bth, len, 0, (struct sockaddr *)&to6, sizeof(to6)) == (ssize_t)len);
}

/* The number of the only socket that has a datagram; -1: none has. */
static int where(void)
{
	uint8_t buf[64];
	int at = -1;

	for (uint32_t i = 0; i < group.n; i++) {
		while (recv(group.fd[i], buf, sizeof(buf), MSG_DONTWAIT) >= 0) {
			SAME(at, -1);
			at = (int)i;
		}
	}
	return at;
}

static void arrives_at(uint32_t lane)
{
	struct pollfd p = {.fd = group.fd[lane], .events = POLLIN};

	SAME(poll(&p, 1, LONG_MS), 1);
	SAME(where(), lane);
}

static void a_datagram_arrives_at_the_lane_of_its_qp_and_nowhere_else(void)
{
	set_up(32, VB_LANE_COUNT);
	for (uint32_t i = 0; i < VB_LANE_COUNT; i++)
		vb_lanes_give(&group, i, false);
	for (uint32_t lane = 0; lane < VB_LANE_COUNT; lane += lane < 8 || lane > 1014 ? 1 : 23) {
		send_bth(AF_INET, lane << 14 | (lane * 77 & 0x3fff), 12);
		arrives_at(lane);
		if (sender6 < 0)
			continue;
		send_bth(AF_INET6, lane << 14 | 0x3fff, 12);
		arrives_at(lane);
	}
	send_bth(AF_INET, 0xffffff, 7); /* it contains no whole QP number */
	arrives_at(0);
	send_bth(AF_INET, 0, 0);
	arrives_at(0);
}

/* A datagram to QP 0xFFFFFF goes to all lanes of its socket only if its address is multicast. */
static void what_is_for_all_queue_pairs_at_one_address_is_handed_to_nobody(void)
{
	static const uint8_t bth[12] = {0x64, 0, 0xff, 0xff, 0, 0xff, 0xff, 0xff};
	static struct vb_relay relay;
	const struct vb_lane_group few = {.n = 32, .split = true};
	uint32_t lane[2] = {VB_FOREIGN_LANES, VB_FOREIGN_LANES + 16}, socket = vb_lanes_socket(&few, lane[0]);
	struct vb_relay_head head = {.dst = {[10] = 0xff, 0xff, 127, 0, 0, 1}};
	uint8_t buf[128];
	int theirs[2];

	SAME(vb_lanes_socket(&few, lane[1]), socket);
	vb_relay_init(&relay, &few);
	for (int i = 0; i < 2; i++)
		SAME(vb_relay_channel(&relay.channel[lane[i]], &theirs[i]), 0);
	vb_relay_datagram(&relay, socket, &head, bth, sizeof(bth));
	vb_relay_flush(&relay);
	CHECK(relay.relayed == 0 && relay.dropped == 1);
	for (int i = 0; i < 2; i++)
		CHECK(recv(theirs[i], buf, sizeof(buf), MSG_DONTWAIT) < 0);
	head.dst[12] = 239;
	vb_relay_datagram(&relay, socket, &head, bth, sizeof(bth));
	vb_relay_flush(&relay);
	CHECK(relay.relayed == 2 && relay.dropped == 1);
	for (int i = 0; i < 2; i++) {
		SAME(recv(theirs[i], buf, sizeof(buf), MSG_DONTWAIT), sizeof(head) + sizeof(bth));
		close(relay.channel[lane[i]]);
		close(theirs[i]);
	}
}

static void a_lane_without_a_holder_collects_nothing(void)
{
	set_up(32, VB_LANE_COUNT);
	send_bth(AF_INET, 5 << 14, 12);
	SAME(where(), -1);
	vb_lanes_give(&group, 5, false);
	send_bth(AF_INET, 6 << 14, 12);
	SAME(where(), -1);
	send_bth(AF_INET, 5 << 14, 12);
	vb_lanes_give(&group, 5, false); /* asked twice: nothing is lost */
	arrives_at(5);
	send_bth(AF_INET, 5 << 14, 12);
	vb_lanes_take_back(&group, 5);
	SAME(where(), -1);
	send_bth(AF_INET, 5 << 14, 12);
	vb_lanes_give(&group, 5, false);
	SAME(where(), -1);
	send_bth(AF_INET, 5 << 14, 12);
	arrives_at(5);
}

/* Of 64 sockets, one half of root's group is for root's programs, and the other for other users' programs. */
static uint32_t shared_socket(uint32_t lane)
{
	if (!lane)
		return 0;
	if (geteuid() != 0)
		return 1 + (lane - 1) % 63;
	return lane < 512 ? 1 + (lane - 1) % 31 : 32 + lane % 32;
}

static void with_few_descriptors_lanes_share_sockets(void)
{
	struct rlimit lim;

	CHECK(getrlimit(RLIMIT_NOFILE, &lim) == 0);
	lim.rlim_cur = 120;
	CHECK(setrlimit(RLIMIT_NOFILE, &lim) == 0);
	set_up(40, 64);
	for (uint32_t i = 0; i < VB_LANE_COUNT; i++)
		SAME(vb_lanes_give(&group, i, false), group.fd[shared_socket(i)]);
	for (uint32_t i = 0; i < VB_LANE_COUNT; i++) { /* the broker shares its socket with nobody */
		send_bth(AF_INET, i << 14, 12);
		arrives_at(shared_socket(i));
	}
	for (uint32_t i = 0; i < VB_LANE_COUNT; i++)
		vb_lanes_take_back(&group, i);
	vb_lanes_give(&group, 3, false);
	uint32_t same = geteuid() == 0 ? 31 + 3 : 63 + 3;
	vb_lanes_give(&group, same, false);
	send_bth(AF_INET, same << 14, 12);
	arrives_at(3);
	vb_lanes_take_back(&group, 3);
	send_bth(AF_INET, same << 14, 12);
	arrives_at(3);
	vb_lanes_take_back(&group, same);
	send_bth(AF_INET, same << 14, 12);
	SAME(where(), -1);
	vb_lanes_close(&group);
	lim.rlim_cur = 100; /* the limit would allow more than fit */
	CHECK(setrlimit(RLIMIT_NOFILE, &lim) == 0);
	for (int i = 0; i < 50; i++)
		CHECK(dup(0) >= 0);
	SAME(vb_lanes_open(&group, 0), 0);
	SAME(group.n, 32);
	vb_lanes_close(&group);
	for (int i = 0; i < 30; i++)
		dup(0);
	SAME(vb_lanes_open(&group, 0), EMFILE);
}

static void a_lane_that_is_relayed_to_shares_no_socket_with_a_program_that_reads_it(void)
{
	struct rlimit lim;

	if (geteuid() != 0)
		skip("only root's group is relayed from");
	CHECK(getrlimit(RLIMIT_NOFILE, &lim) == 0);
	lim.rlim_cur = 120;
	CHECK(setrlimit(RLIMIT_NOFILE, &lim) == 0);
	set_up(40, 64);
	CHECK(vb_lanes_give(&group, 3, false) >= 0);
	SAME(vb_lanes_give(&group, 3 + 31, true), -1);
	CHECK(vb_lanes_give(&group, 600, true) >= 0);
	CHECK(vb_lanes_give(&group, 632, true) >= 0);
	SAME(vb_lanes_give(&group, 664, false), -1);
	vb_lanes_take_back(&group, 3);
	SAME(vb_lanes_give(&group, 3 + 31, true), -1); /* in the half for programs that read their own sockets */
	CHECK(vb_lanes_give(&group, 3, false) >= 0);
	vb_lanes_take_back(&group, 600);
	SAME(vb_lanes_give(&group, 664, false), -1);
	vb_lanes_take_back(&group, 632);
	CHECK(vb_lanes_give(&group, 664, false) >= 0);
	vb_lanes_close(&group);
}

static int option(int fd, int level, int name)
{
	int value = -1;
	socklen_t len = sizeof(value);

	CHECK(getsockopt(fd, level, name, &value, &len) == 0);
	return value;
}

static void every_socket_has_its_options(void)
{
	set_up(32, VB_LANE_COUNT);
	for (uint32_t i = 0; i < group.n; i += 341) {
		int fd = vb_lanes_give(&group, i, false);
		SAME(option(fd, IPPROTO_UDP, 104), 1); /* UDP_GRO */
		SAME(option(fd, IPPROTO_IP, IP_PKTINFO), option(fd, SOL_SOCKET, SO_DOMAIN) != AF_INET6);
		SAME(option(fd, IPPROTO_IP, IP_RECVTOS), 1);
		SAME(option(fd, IPPROTO_IP, IP_RECVTTL), 1);
		SAME(option(fd, IPPROTO_IP, IP_MULTICAST_ALL), 0);
		CHECK(fcntl(fd, F_GETFL) & O_NONBLOCK && fcntl(fd, F_GETFD) & FD_CLOEXEC);
		CHECK(option(fd, SOL_SOCKET, SO_RCVBUF) > 200000);
		if (option(fd, SOL_SOCKET, SO_DOMAIN) != AF_INET6)
			continue;
		SAME(option(fd, IPPROTO_UDP, 102), 1); /* UDP_NO_CHECK6_RX */
		SAME(option(fd, IPPROTO_IPV6, IPV6_V6ONLY), 0);
		SAME(option(fd, IPPROTO_IPV6, IPV6_RECVPKTINFO), 1);
		SAME(option(fd, IPPROTO_IPV6, IPV6_RECVTCLASS), 1);
		SAME(option(fd, IPPROTO_IPV6, IPV6_RECVHOPLIMIT), 1);
		SAME(option(fd, IPPROTO_IPV6, 29), 0); /* IPV6_MULTICAST_ALL */
	}
}

static void a_port_that_this_user_shares_already_is_not_joined(void)
{
	struct sockaddr_in any = {.sin_family = AF_INET, .sin_port = htons(VB_ROCE_PORT)};
	int one = 1, fds = count_fds(getpid());

	own_network();
	int fd = socket(AF_INET, SOCK_DGRAM, 0);
	CHECK(setsockopt(fd, SOL_SOCKET, SO_REUSEPORT, &one, sizeof(one)) == 0);
	CHECK(bind(fd, (struct sockaddr *)&any, sizeof(any)) == 0);
	SAME(vb_lanes_open(&group, 32), EADDRINUSE);
	close(fd);
	SAME(vb_lanes_open(&group, 32), 0);
	vb_lanes_close(&group);
	SAME(count_fds(getpid()), fds);
}

static void without_ipv6_there_is_ipv4(void)
{
	struct sock_filter code[] = {
	        BPF_STMT(BPF_LD | BPF_W | BPF_ABS, offsetof(struct seccomp_data, nr)),
	        BPF_JUMP(BPF_JMP | BPF_JEQ | BPF_K, SYS_socket, 0, 3),
	        BPF_STMT(BPF_LD | BPF_W | BPF_ABS, offsetof(struct seccomp_data, args[0])),
	        BPF_JUMP(BPF_JMP | BPF_JEQ | BPF_K, AF_INET6, 0, 1),
	        BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_ERRNO | EAFNOSUPPORT),
	        BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_ALLOW),
	};
	struct sock_fprog prog = {.len = 6, .filter = code};

	CHECK(prctl(PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0) == 0);
	if (prctl(PR_SET_SECCOMP, SECCOMP_MODE_FILTER, &prog))
		skip("no seccomp filters here");
	set_up(32, VB_LANE_COUNT);
	SAME(option(group.fd[0], SOL_SOCKET, SO_DOMAIN), AF_INET);
	vb_lanes_give(&group, 700, false);
	send_bth(AF_INET, 700 << 14, 12);
	arrives_at(700);
}

static const struct test tests[] = {
        {"a datagram arrives at the lane of its QP and nowhere else",
         a_datagram_arrives_at_the_lane_of_its_qp_and_nowhere_else},
        {"what is for all queue pairs at one address is handed to nobody",
         what_is_for_all_queue_pairs_at_one_address_is_handed_to_nobody},
        {"a lane without a holder collects nothing", a_lane_without_a_holder_collects_nothing},
        {"with few descriptors lanes share sockets", with_few_descriptors_lanes_share_sockets},
        {"a lane that is relayed to shares no socket with a program that reads it",
         a_lane_that_is_relayed_to_shares_no_socket_with_a_program_that_reads_it},
        {"every socket has its options", every_socket_has_its_options},
        {"without IPv6 there is IPv4", without_ipv6_there_is_ipv4},
        {"a port that this user shares already is not joined", a_port_that_this_user_shares_already_is_not_joined},
};

int main(int argc, char **argv)
{
	struct rlimit lim;

	getrlimit(RLIMIT_NOFILE, &lim);
	lim.rlim_cur = lim.rlim_max;
	setrlimit(RLIMIT_NOFILE, &lim);
	return run_tests(argc, argv, tests, sizeof(tests) / sizeof(tests[0]));
}
