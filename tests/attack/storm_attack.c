// storm_attack.c - one life of an attacker: random sequences of everything that a program can do to broker and keeper
// follows: unix(7), udp(7); IBA 12.6
// see: src/broker/proto/proto.h
// SPDX-License-Identifier: MIT
#include "storm_walk.h"

#include <arpa/inet.h>
#include <netinet/in.h>
#include <netinet/udp.h>
#include <poll.h>
#include <signal.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <unistd.h>

#include "frame/icrc.h"
#include "frame/packet.h"

#ifndef UDP_SEGMENT
#define UDP_SEGMENT 103
#endif
#define FLOOD 300
#define MOVES_MOST 600 /* steps of a life */

/* ---- incoming messages ---- */

static void check_relay(const struct link *l)
{
	static uint8_t buffer[80000];
	struct vb_relay_head head;
	ssize_t n;

	for (int i = 0; i < 64 && (n = recv(l->relay, buffer, sizeof(buffer), MSG_DONTWAIT)) > 0; i++) {
		if ((size_t)n <= sizeof(head)) {
			leaked("the keeper relays a head alone");
			continue;
		}
		memcpy(&head, buffer, sizeof(head));
		size_t seg = head.seg ? head.seg : (size_t)n;

		for (size_t at = sizeof(head); at + 8 <= (size_t)n; at += seg) {
			uint32_t qpn = (uint32_t)buffer[at + 5] << 16 | (uint32_t)buffer[at + 6] << 8 | buffer[at + 7];

			if (qpn != VB_QPN_MASK && qpn >> VB_LANE_SHIFT != l->lane)
				leaked("a packet for another lane is relayed");
		}
	}
}

static void take_wire(struct link *l, struct came *m)
{
	int type = 0;
	socklen_t len = sizeof(type);

	if (m->wire.err)
		return;
	if (!m->wire.relayed || m->nfds != 1 || getsockopt(m->fds[0], SOL_SOCKET, SO_TYPE, &type, &len) ||
	    type != SOCK_SEQPACKET) {
		leaked("another user's program gets more than a channel");
		return;
	}
	if (l->relay >= 0)
		close(l->relay);
	l->relay = m->fds[0];
	m->nfds = 0;
}

static void take_message(struct link *l, struct came *m)
{
	switch (m->head.type) {
	case VB_MSG_ATTACHED:
		l->lane = m->attached.lane;
		l->incarnation = m->attached.incarnation;
		w.lanes[w.nlanes < KEPT_LANES ? w.nlanes++ : some(KEPT_LANES)] = l->lane;
		break;
	case VB_MSG_MEET_REPLY:
	case VB_MSG_INTRODUCED:
		if (!m->meet.err && m->meet.uid != geteuid())
			leaked("another user's program is met");
		break;
	case VB_MSG_STATUS_PART:
		for (uint32_t i = 0; i < m->part.n && i < VB_STATUS_CHUNK; i++)
			if (m->part.lanes[i].uid != geteuid())
				leaked("another user's program is in the status");
		break;
	case VB_MSG_ROCE_REPLY:
		take_wire(l, m);
		break;
	default:
		break;
	}
	came_close(m);
}

static void read_link(struct link *l)
{
	struct came m;
	bool gone = false;

	while (l->sock >= 0 && link_take(l, &m, 0, &gone))
		take_message(l, &m);
	if (gone)
		link_close(l);
}

/* Closes in a child that exits, which closes its descriptors without waiting. */
static void send_oddly(const struct link *l, const uint8_t *msg, size_t len, int n)
{
	int fds[MANY_FDS];
	pid_t pid = fork();

	if (pid == 0) {
		n = odd_fds(fds, n);
		link_send(l, msg, len, fds, n);
		_exit(0);
	}
	roll(&w.dice);
	if (pid > 0)
		waitpid(pid, NULL, 0);
}

/* ---- moves ---- */

static void do_connect(void)
{
	struct link *l = some_link();

	link_close(l);
	link_open(l);
}

static void do_close(void)
{
	link_close(some_link());
}

static void do_attach(void)
{
	struct link *l = some_link();
	uint8_t msg[VB_MAX_MSG];

	if (l->sock < 0 && !link_open(l))
		return;
	size_t len = make_attach(msg, 1, one_in(8));

	memcpy(msg + sizeof(struct vb_msg_attach), w.gid, 16);
	link_send(l, msg, len, w.good, 3);
	if (!one_in(4)) {
		struct pollfd p = {.fd = l->sock, .events = POLLIN};

		poll(&p, 1, 20);
		read_link(l);
	}
}

static void do_attach_badly(void)
{
	struct link *l = some_link();
	uint8_t msg[VB_MAX_MSG];

	if (l->sock < 0 && !link_open(l))
		return;
	send_oddly(l, msg, make_attach(msg, some(3), one_in(3)), one_in(6) ? MANY_FDS : one_in(3) ? (int)some(6) : 3);
}

/* A random message with descriptors that do not belong to it. */
static void do_uninvited(void)
{
	struct link *l = some_link();
	uint8_t msg[VB_MAX_MSG];

	send_oddly(l, msg, make_any(msg, l), one_in(8) ? MANY_FDS : 1 + (int)some(4));
}

static void do_say(void)
{
	struct link *l = some_member();
	uint8_t msg[VB_MAX_MSG];

	link_send(l, msg, make_any(msg, l), NULL, 0);
}

static void do_mutate(void)
{
	struct link *l = some_link();
	static uint8_t msg[2 * VB_MAX_MSG];
	size_t len = make_any(msg, l);

	for (uint32_t i = some(4); i > 0; i--)
		msg[some((uint32_t)len)] = (uint8_t)roll(&w.dice);
	switch (some(6)) {
	case 0:
		len = some((uint32_t)len + 1);
		break;
	case 1:
		len += some(VB_MAX_MSG);
		break;
	case 2: { /* the head is valid */
		uint32_t n = 8 + some((uint32_t)len);

		memcpy(msg + 4, &n, sizeof(n));
		len = n;
		break;
	}
	default:
		break;
	}
	link_send(l, msg, len, NULL, 0);
}

/* Floods one kind of message, mostly without reading the answers. */
static void do_flood(void)
{
	struct link *l = some_member();
	uint8_t msg[VB_MAX_MSG];
	size_t len = make_any(msg, l);
	bool anew = one_in(2);

	for (uint32_t i = some(FLOOD); i > 0 && link_send(l, msg, len, NULL, 0); i--)
		if (anew && one_in(2))
			len = make_any(msg, l);
}

static void do_binds(void)
{
	struct link *l = some_member();
	uint8_t msg[sizeof(struct vb_msg_cm_bind)];
	bool patient = one_in(2);

	for (uint32_t i = some(2000); i > 0; i--) {
		if (link_send(l, msg, make_bind(msg), NULL, 0))
			continue;
		if (!patient || l->sock < 0)
			break;
		read_link(l);
	}
}

static void do_read(void)
{
	read_link(some_link());
}

static void do_read_all(void)
{
	for (int i = 0; i < LINKS; i++)
		read_link(&w.links[i]);
}

static void do_relay(void)
{
	struct link *l = some_member();
	int fd = w.good[0];
	struct link to = {.sock = l->relay};

	if (l->relay < 0)
		return;
	switch (some(6)) {
	case 0:
		link_send(&to, &to, sizeof(to), &fd, 1);
		break;
	case 1:
		shutdown(l->relay, (int)some(3));
		break;
	case 2:
		close(l->relay);
		l->relay = -1;
		break;
	default:
		check_relay(l);
	}
}

/* ---- datagrams ---- */

static void put_bth(uint8_t *at, uint32_t qpn)
{
	at[0] = (uint8_t)roll(&w.dice);
	at[5] = (uint8_t)(qpn >> 16);
	at[6] = (uint8_t)(qpn >> 8);
	at[7] = (uint8_t)qpn;
}

static uint32_t some_qpn(void)
{
	return one_in(5) ? VB_QPN_MASK : one_in(8) ? 1 : some_lane() << VB_LANE_SHIFT | some(16);
}

static socklen_t some_destination(struct sockaddr_storage *sa, bool v6)
{
	static const char *const v4[] = {"127.0.0.1", "127.0.0.9", "239.1.1.5", "224.0.0.1"};
	struct sockaddr_in *in = (struct sockaddr_in *)sa;
	struct sockaddr_in6 *in6 = (struct sockaddr_in6 *)sa;

	memset(sa, 0, sizeof(*sa));
	if (v6) {
		*in6 = (struct sockaddr_in6){
		        .sin6_family = AF_INET6, .sin6_port = htons(4791), .sin6_addr = in6addr_loopback};
		if (one_in(4)) {
			inet_pton(AF_INET6, one_in(2) ? "ff02::1" : "fd00:6f::1", &in6->sin6_addr);
			in6->sin6_scope_id = some(4);
		}
		return sizeof(*in6);
	}
	*in = (struct sockaddr_in){.sin_family = AF_INET, .sin_port = htons(4791)};
	inet_pton(AF_INET, v4[one_in(3) ? some(4) : 0], &in->sin_addr);
	return sizeof(*in);
}

static void do_datagrams(void)
{
	static uint8_t data[65536];
	bool v6 = one_in(3);
	struct sockaddr_storage sa;
	socklen_t sa_len = some_destination(&sa, v6);
	uint32_t lens[] = {some(64), some(1500), 4096 + some(1024), some(65508)}, len = lens[some(4)];
	int seg = one_in(2) ? 0 : (int)(1 + some(one_in(2) ? 32 : 1400));

	setsockopt(w.udp[v6], IPPROTO_UDP, UDP_SEGMENT, &seg, sizeof(seg));
	for (uint32_t at = 0; at + 12 <= len; at += seg > 0 ? (uint32_t)seg : len)
		put_bth(data + at, some_qpn());
	for (uint32_t i = one_in(8) ? some(FLOOD) : 1; i > 0; i--) {
		uint32_t n = seg > 0 && (uint32_t)seg * 60 < len ? (uint32_t)seg * (1 + some(60)) : len;

		sendto(w.udp[v6], data, n, MSG_DONTWAIT, (struct sockaddr *)&sa, sa_len);
	}
}

/* A MAD as queue pair 1 of another host would send it. */
static void do_mad_by_network(void)
{
	uint8_t mad[VB_MAD_LEN], packet[VB_HEADER_LEN(VB_EXT_DETH) + VB_MAD_LEN + VB_ICRC_LEN];
	struct vb_packet p = {
	        .bth = {.opcode = VB_UD_SEND_ONLY, .migreq = true, .pkey = 0xffff, .dest_qpn = VB_GSI_QPN},
	        .deth = {.qkey = one_in(8) ? some(9) : VB_GSI_QKEY, .src_qpn = VB_GSI_QPN}};
	struct sockaddr_in in = {.sin_family = AF_INET, .sin_port = htons(4791), .sin_addr = {htonl(INADDR_LOOPBACK)}},
	                   us;
	struct vb_writer to = vb_writer(packet, sizeof(packet));
	socklen_t len = sizeof(us);
	struct vb_flow flow = {.dport = 4791};
	int none = 0;

	setsockopt(w.udp[0], IPPROTO_UDP, UDP_SEGMENT, &none, sizeof(none));
	if (getsockname(w.udp[0], (struct sockaddr *)&us, &len))
		return;
	gid_v4(flow.src, "127.0.0.1");
	gid_v4(flow.dst, "127.0.0.1");
	flow.sport = ntohs(us.sin_port);
	make_mad(mad);
	vb_packet_encode(&to, &p);
	vb_put_bytes(&to, mad, VB_MAD_LEN);
	vb_icrc_encode(packet + sizeof(packet) - VB_ICRC_LEN,
	               vb_icrc_start(&flow, 0, packet, sizeof(packet) - VB_ICRC_LEN, sizeof(packet)));
	for (uint32_t i = one_in(4) ? some(FLOOD) : 1; i > 0; i--)
		sendto(w.udp[0], packet, sizeof(packet), MSG_DONTWAIT, (struct sockaddr *)&in, sizeof(in));
}

/* ---- lives ---- */

/* Forks a child that keeps the sockets for a while after this life has ended. */
static void do_fork(void)
{
	if (fork())
		return;
	prctl(PR_SET_PDEATHSIG, 0);
	sleep_ms((int)some(600));
	_exit(0);
}

static void do_wait(void)
{
	sleep_ms((int)some(8));
}

static const struct move {
	uint32_t weight;
	void (*run)(void);
} moves[] = {
        {10, do_connect}, {3, do_close},  {14, do_attach},   {3, do_attach_badly},   {2, do_uninvited},
        {24, do_say},     {4, do_mutate}, {5, do_flood},     {1, do_binds},          {8, do_read},
        {2, do_read_all}, {5, do_relay},  {5, do_datagrams}, {3, do_mad_by_network}, {8, do_wait},
};

static void one_move(void)
{
	uint32_t sum = 0, at;

	for (size_t i = 0; i < sizeof(moves) / sizeof(moves[0]); i++)
		sum += moves[i].weight;
	at = some(sum);
	for (const struct move *m = moves;; m++) {
		if (at < m->weight) {
			m->run();
			break;
		}
		at -= m->weight;
	}
	__atomic_fetch_add(&news->moves, 1, __ATOMIC_RELAXED);
}

static int sender(int family)
{
	struct sockaddr_in in = {.sin_family = AF_INET, .sin_addr = {htonl(INADDR_LOOPBACK)}};
	int fd = socket(family, SOCK_DGRAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0);

	if (family == AF_INET)
		bind(fd, (struct sockaddr *)&in, sizeof(in));
	return fd;
}

void attack(uint64_t seed)
{
	prctl(PR_SET_PDEATHSIG, SIGKILL);
	signal(SIGCHLD, SIG_IGN);
	w.dice.state = seed;
	w.udp[0] = sender(AF_INET);
	w.udp[1] = sender(AF_INET6);
	gid_v4(w.gid, "127.0.0.9");
	storm_fds(w.good);
	if (!w.listens_at.sin_port)
		listen_to_nobody();
	for (int i = 0; i < LINKS; i++)
		w.links[i] = (struct link){.sock = -1, .relay = -1};
	for (uint32_t n = 1 + some(MOVES_MOST); n > 0; n--)
		one_move();
	__atomic_fetch_add(&news->lives, 1, __ATOMIC_RELAXED);
	if (one_in(4))
		do_fork();
	if (one_in(2))
		raise(SIGKILL);
	_exit(0);
}
