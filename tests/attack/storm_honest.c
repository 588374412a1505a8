// storm_honest.c - two programs of one user that work normally and check each step: the broker must serve them
// follows: IBA 9.2 (BTH)
// see: src/broker/proto/proto.h
// SPDX-License-Identifier: MIT
#include "storm.h"

#include <errno.h>
#include <netinet/in.h>
#include <poll.h>
#include <signal.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <unistd.h>

#include "frame/cm.h"

#define AGAIN_MS 100 /* datagrams may be lost, and are sent again */
#define IDS 32       /* connections use so many numbers in turn */
#define QPN_REST 5
#define WARM 40 /* rounds until memory use is stable; then the pair is alone until SIGUSR1, and after the next */

enum { A, B, PROGRAMS };

struct pair {
	int number;
	uint32_t round;
	struct program_of {
		struct link link;
		int fds[3];
		uint8_t gid[16];
	} of[PROGRAMS];
	uint16_t port;
	int udp;
	int64_t began; /* present step */
	const char *step;
};

static volatile sig_atomic_t told_to_leave, alone;

static void on_term(int sig)
{
	(void)sig;
	told_to_leave = 1;
}

static void on_usr1(int sig)
{
	(void)sig;
	alone = !alone;
}

/* ---- steps ---- */

static void fail(const struct pair *p, const char *why)
{
	fprintf(stderr, "honest pair %d (uid %u), round %u: %s: %s after %lld ms\n", p->number, (unsigned)geteuid(),
	        p->round, p->step, why, (long long)(now_ms() - p->began));
	exit(1);
}

static void end_step(struct pair *p)
{
	uint64_t ms = (uint64_t)(now_ms() - p->began);

	if (!p->step || ms <= news->slowest_ms)
		return;
	news->slowest_ms = ms;
	snprintf(news->slowest, sizeof(news->slowest), "%s: %s", p->number ? "another user's" : "root's", p->step);
}

static void begin_step(struct pair *p, const char *step)
{
	end_step(p);
	p->step = step;
	p->began = now_ms();
}

static bool is_late(const struct pair *p)
{
	return now_ms() - p->began > LONG_MS;
}

static void say(const struct pair *p, const struct link *l, const void *msg, size_t len, const int *fds, int nfds)
{
	struct pollfd ready = {.fd = l->sock, .events = POLLOUT};

	while (!link_send(l, msg, len, fds, nfds)) {
		if (errno != EAGAIN || is_late(p))
			fail(p, strerror(errno));
		poll(&ready, 1, 100);
	}
}

/* Receives messages until one of this type, for at most ms. Ignores others, from repetitions and attackers. */
static bool hear(const struct pair *p, const struct link *l, uint8_t type, struct came *m, int ms)
{
	int64_t until = now_ms() + ms;
	bool gone;

	do {
		int left = (int)(until - now_ms());

		if (!link_take(l, m, left > 0 ? left : 0, &gone)) {
			if (gone)
				fail(p, "the broker has closed the connection");
			continue;
		}
		if (m->head.type == type)
			return true;
		if (m->head.type == VB_MSG_ERROR)
			fail(p, m->error.text);
		if (m->head.type != VB_MSG_CM_RECV)
			fail(p, "an answer to nothing");
		came_close(m);
	} while (now_ms() < until);
	return false;
}

static void must_hear(const struct pair *p, const struct link *l, uint8_t type, struct came *m)
{
	if (!hear(p, l, type, m, LONG_MS))
		fail(p, "no answer");
}

static void attach(struct pair *p, struct program_of *o)
{
	struct {
		struct vb_msg_attach m;
		uint8_t gid[16];
	} m = {.m = {.head = head_for(VB_MSG_ATTACH, sizeof(m)), .ngids = 1}};
	struct came answer;

	while (!link_open(&o->link)) {
		if (is_late(p))
			fail(p, "no connection");
		sleep_ms(10);
	}
	memcpy(m.gid, o->gid, sizeof(m.gid));
	say(p, &o->link, &m, sizeof(m), o->fds, 3);
	must_hear(p, &o->link, VB_MSG_ATTACHED, &answer);
	if (answer.nfds || !answer.attached.lane)
		fail(p, "a strange answer");
	o->link.lane = answer.attached.lane;
	o->link.incarnation = answer.attached.incarnation;
}

static void wire_up(struct pair *p, struct link *l)
{
	struct vb_msg_head ask = head_for(VB_MSG_ROCE, sizeof(ask));
	struct came m;

	for (;;) {
		say(p, l, &ask, sizeof(ask), NULL, 0);
		must_hear(p, l, VB_MSG_ROCE_REPLY, &m);
		if (!m.wire.err)
			break;
		if (is_late(p))
			fail(p, strerror(m.wire.err));
		sleep_ms(20);
	}
	if (m.nfds != (m.wire.relayed ? 1 : 2) || m.wire.relayed != (geteuid() != 0))
		fail(p, "a strange answer");
	if (l->relay >= 0)
		close(l->relay);
	l->relay = m.fds[0];
	if (m.nfds == 2)
		close(m.fds[1]);
}

static bool is_same_file(int a, int b)
{
	struct stat x, y;

	return !fstat(a, &x) && !fstat(b, &y) && x.st_dev == y.st_dev && x.st_ino == y.st_ino;
}

static void meet(struct pair *p, struct program_of *a, struct program_of *b)
{
	struct vb_msg_meet ask = {.head = head_for(VB_MSG_MEET, sizeof(ask)),
	                          .tag = p->round,
	                          .qpn = b->link.lane << VB_LANE_SHIFT | QPN_REST};
	struct came m;

	memcpy(ask.dgid, b->gid, sizeof(ask.dgid));
	begin_step(p, "to meet");
	say(p, &a->link, &ask, sizeof(ask), NULL, 0);
	must_hear(p, &a->link, VB_MSG_MEET_REPLY, &m);
	if (m.meet.err || m.nfds != 4 || m.meet.tag != p->round || !is_same_file(m.fds[0], b->fds[0]) ||
	    m.meet.uid != geteuid())
		fail(p, "a strange answer");
	came_close(&m);
	begin_step(p, "to be introduced");
	must_hear(p, &b->link, VB_MSG_INTRODUCED, &m);
	if (m.nfds != 4 || !is_same_file(m.fds[0], a->fds[0]) || m.meet.lane != a->link.lane)
		fail(p, "a strange introduction");
	came_close(&m);
}

/* ---- a datagram to a lane ---- */

struct cookie {
	uint8_t bth[12];
	uint64_t round;
	uint32_t pair, lane;
};

/* True if it has arrived. Ignores datagrams of attackers and others that the kernel merged. */
static bool has_cookie(const struct link *l, const struct cookie *want)
{
	static uint8_t buffer[70000];
	size_t skip = geteuid() ? sizeof(struct vb_relay_head) : 0;
	ssize_t n;

	while ((n = recv(l->relay, buffer, sizeof(buffer), MSG_DONTWAIT)) > 0)
		if ((size_t)n == skip + sizeof(*want) && !memcmp(buffer + skip, want, sizeof(*want)))
			return true;
	return false;
}

/* If several lanes share a socket, either of our two programs may receive it. */
static void datagram(struct pair *p, struct program_of *to)
{
	uint32_t qpn = to->link.lane << VB_LANE_SHIFT | QPN_REST;
	struct cookie c = {.bth = {4, 0, 0xff, 0xff, 0, (uint8_t)(qpn >> 16), (uint8_t)(qpn >> 8), (uint8_t)qpn},
	                   .round = p->round,
	                   .pair = (uint32_t)p->number,
	                   .lane = to->link.lane};
	struct sockaddr_in in = {.sin_family = AF_INET, .sin_port = htons(4791), .sin_addr = {htonl(INADDR_LOOPBACK)}};
	bool found = false;

	begin_step(p, "a datagram to its lane");
	while (!found) {
		struct pollfd ready[2] = {{.fd = p->of[A].link.relay, .events = POLLIN},
		                          {.fd = p->of[B].link.relay, .events = POLLIN}};
		int64_t again = now_ms() + AGAIN_MS;

		sendto(p->udp, &c, sizeof(c), MSG_DONTWAIT, (struct sockaddr *)&in, sizeof(in));
		while (!found && now_ms() < again) {
			poll(ready, 2, (int)(again - now_ms()) > 0 ? (int)(again - now_ms()) : 0);
			for (int i = 0; i < 2; i++)
				found |= has_cookie(&p->of[i].link, &c);
		}
		if (is_late(p))
			fail(p, "it does not come");
	}
}

/* ---- a MAD to a service, and the answer ---- */

static uint64_t tid_of(const struct pair *p, int step)
{
	return (uint64_t)(p->number + 1) << 56 | (uint64_t)step << 48 | p->round;
}

static void send_mad(struct pair *p, int from, const struct vb_cm_msg *msg)
{
	struct vb_msg_cm_mad m = {.head = head_for(VB_MSG_CM_SEND, sizeof(m))};

	memcpy(m.local, p->of[from].gid, 16);
	memcpy(m.remote, p->of[!from].gid, 16);
	vb_cm_encode(m.mad, msg);
	say(p, &p->of[from].link, &m, sizeof(m), NULL, 0);
}

static void carry_mad(struct pair *p, int from, const struct vb_cm_msg *msg)
{
	struct vb_cm_msg got;
	struct came m;

	for (;;) {
		int64_t again = now_ms() + AGAIN_MS;

		send_mad(p, from, msg);
		while (now_ms() < again) {
			if (!hear(p, &p->of[!from].link, VB_MSG_CM_RECV, &m, AGAIN_MS))
				continue;
			if (vb_cm_decode(&got, m.mad.mad, VB_CM_MAD) && got.attr == msg->attr && got.tid == msg->tid &&
			    !memcmp(m.mad.remote, p->of[from].gid, 16))
				return;
		}
		if (is_late(p))
			fail(p, "it does not come");
	}
}

static void connect_pair(struct pair *p)
{
	uint32_t id = p->of[A].link.lane << 22 | (1 + p->round % IDS),
	         other = p->of[B].link.lane << 22 | (1 + p->round % IDS);
	struct vb_cm_msg req = {.attr = VB_CM_REQ,
	                        .tid = tid_of(p, 1),
	                        .req = {.local_comm_id = id, .service_id = vb_cm_service_id(VB_PS_TCP, p->port)}};
	struct vb_cm_msg rep = {
	        .attr = VB_CM_REP, .tid = tid_of(p, 2), .rep = {.local_comm_id = other, .remote_comm_id = id}};
	struct vb_cm_msg dreq = {
	        .attr = VB_CM_DREQ, .tid = tid_of(p, 3), .dreq = {.local_comm_id = id, .remote_comm_id = other}};
	struct vb_cm_msg drep = {
	        .attr = VB_CM_DREP, .tid = tid_of(p, 4), .drep = {.local_comm_id = other, .remote_comm_id = id}};

	begin_step(p, "a request to connect");
	carry_mad(p, A, &req);
	begin_step(p, "the answer to it");
	carry_mad(p, B, &rep);
	begin_step(p, "a request to disconnect");
	carry_mad(p, A, &dreq);
	begin_step(p, "the answer to that");
	carry_mad(p, B, &drep);
}

/* port 0: any. Returns the port from the broker. */
static uint16_t bind_and_listen(struct pair *p, struct link *l, uint32_t id)
{
	struct vb_msg_cm_bind ask = {
	        .head = head_for(VB_MSG_CM_BIND, sizeof(ask)), .id = id, .port_space = VB_PS_TCP, .listen = 1};
	struct came m;

	say(p, l, &ask, sizeof(ask), NULL, 0);
	must_hear(p, l, VB_MSG_SERVICE_REPLY, &m);
	if (m.service.id != id || m.service.err || !m.service.port || !m.service.listening)
		fail(p, m.service.err ? strerror(m.service.err) : "a strange answer");
	return m.service.port;
}

/* ---- a program that comes and goes ---- */

static void come_and_go(struct pair *p)
{
	struct program_of third = p->of[A];
	struct vb_msg_head status = head_for(VB_MSG_STATUS, sizeof(status)),
	                   detach = head_for(VB_MSG_DETACH, sizeof(detach));
	struct came m;
	bool gone = false;

	third.link = (struct link){.sock = -1, .relay = -1};
	begin_step(p, "a third program attaches");
	attach(p, &third);
	begin_step(p, "… binds");
	bind_and_listen(p, &third.link, 1);
	begin_step(p, "… asks for the status");
	say(p, &third.link, &status, sizeof(status), NULL, 0);
	for (uint32_t seen = 0;;) {
		if (!link_take(&third.link, &m, LONG_MS, &gone))
			fail(p, "no answer");
		if (m.head.type == VB_MSG_STATUS_PART)
			seen += m.part.n;
		else if (m.head.type == VB_MSG_CM_RECV) /* an attacker's MAD to its port */
			came_close(&m);
		else if (m.head.type == VB_MSG_STATUS_END && seen >= 3)
			break;
		else
			fail(p, m.head.type == VB_MSG_STATUS_END ? "programs are missing" : "a strange answer");
	}
	begin_step(p, "… and leaves");
	say(p, &third.link, &detach, sizeof(detach), NULL, 0);
	while (!gone && !is_late(p))
		if (link_take(&third.link, &m, 100, &gone))
			came_close(&m);
	if (!gone)
		fail(p, "the broker does not let it go");
	link_close(&third.link);
}

static void leave_for_good(struct pair *p)
{
	struct vb_msg_head detach = head_for(VB_MSG_DETACH, sizeof(detach));

	begin_step(p, "to leave");
	for (int i = 0; i < PROGRAMS; i++) {
		say(p, &p->of[i].link, &detach, sizeof(detach), NULL, 0);
		link_close(&p->of[i].link);
	}
	end_step(p);
}

void be_honest(int number, int ready_fd)
{
	static const char *const addresses[2][PROGRAMS] = {{"127.0.0.1", "127.0.0.2"}, {"127.0.0.3", "127.0.0.4"}};
	static struct pair p;

	p = (struct pair){.number = number, .udp = socket(AF_INET, SOCK_DGRAM | SOCK_CLOEXEC, 0)};
	prctl(PR_SET_PDEATHSIG, SIGKILL);
	signal(SIGTERM, on_term);
	signal(SIGUSR1, on_usr1);
	for (int i = 0; i < PROGRAMS; i++) {
		gid_v4(p.of[i].gid, addresses[number][i]);
		storm_fds(p.of[i].fds);
		begin_step(&p, "to attach");
		attach(&p, &p.of[i]);
		begin_step(&p, "to be on the port");
		wire_up(&p, &p.of[i].link);
	}
	begin_step(&p, "to bind");
	p.port = bind_and_listen(&p, &p.of[B].link, 1);
	for (; !told_to_leave; p.round++) {
		meet(&p, &p.of[A], &p.of[B]);
		datagram(&p, &p.of[B]);
		datagram(&p, &p.of[A]);
		connect_pair(&p);
		if (p.round % 8 == 3 && !alone)
			come_and_go(&p);
		if (p.round == WARM) {
			alone = 1;
			if (write(ready_fd, "r", 1) != 1)
				exit(1);
		}
		news->rounds[number]++;
		begin_step(&p, "to sleep");
		sleep_ms(2);
		p.step = NULL;
	}
	leave_for_good(&p);
	exit(0);
}
