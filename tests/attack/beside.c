// beside.c - a hostile user beside honest ones: repeats everything that broker.c tries, and sends them packets
// follows: IBA volume 1, 9.2 (BTH), annex A17
// see: SECURITY.md, "Users of one host"
// SPDX-License-Identifier: MIT
// usage: attack_beside SECONDS SEED, as any user, with VERBENA_RUNTIME. Exit status 0 if it got nothing; otherwise
// prints what it got.
#include "raw.h"

#include <errno.h>
#include <linux/filter.h>
#include <netinet/in.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/resource.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <unistd.h>

#include "frame/cm.h"
#include "frame/icrc.h"
#include "frame/packet.h"

#ifndef SO_ATTACH_REUSEPORT_CBPF
#define SO_ATTACH_REUSEPORT_CBPF 51
#endif
#define HELD 40

static const uint8_t lo[16] = {[10] = 0xff, 0xff, 127, 0, 0, 1};
static uint64_t state;

static uint32_t draw(void)
{
	state = state * 6364136223846793005ull + 1442695040888963407ull;
	return (uint32_t)(state >> 33);
}

static const uint8_t *some_address(uint8_t gid[16])
{
	memcpy(gid, lo, 16);
	if (draw() % 2)
		memcpy(gid + 12, (uint8_t[]){192, 0, 2, (uint8_t)draw()}, 4);
	return gid;
}

/* ---- what an attached program can try ---- */

static void send_anything(struct raw *r)
{
	struct vb_msg_cm_mad m = {.ifindex = draw() % 3};
	struct vb_cm_msg cm = {.tid = draw()};
	uint32_t mine = r->lane << 22 | draw() % 1000, somebody = draw() % 1024 << 22 | draw() % 100000;

	switch (draw() % 5) {
	case 0:
		cm.attr = VB_CM_REQ;
		cm.req.local_comm_id = draw() % 2 ? mine : somebody;
		cm.req.service_id = vb_cm_service_id(VB_PS_TCP, (uint16_t)(draw() % 65536));
		break;
	case 1:
		cm.attr = VB_CM_REP;
		cm.rep.local_comm_id = mine;
		cm.rep.remote_comm_id = somebody;
		break;
	case 2:
		cm.attr = VB_CM_REJ;
		cm.rej.local_comm_id = draw() % 2 ? mine : 0;
		cm.rej.remote_comm_id = draw() % 2 ? somebody : 0;
		cm.rej.reason = VB_CM_REJ_STALE_CONN;
		break;
	case 3:
		cm.attr = VB_CM_DREQ;
		cm.dreq.local_comm_id = draw() % 2 ? mine : somebody;
		cm.dreq.remote_comm_id = somebody;
		cm.dreq.remote_qpn = draw() & 0xffffff;
		break;
	default:
		cm.attr = VB_CM_RTU;
		cm.rtu.local_comm_id = mine;
		cm.rtu.remote_comm_id = somebody;
		break;
	}
	vb_cm_encode(m.mad, &cm);
	some_address(m.local);
	some_address(m.remote);
	raw_say(r, VB_MSG_CM_SEND, &m, sizeof(m), NULL, 0);
}

static void meet_anybody(struct raw *r)
{
	struct vb_msg_meet m = {.tag = draw(), .qpn = draw() & 0xffffff};

	memcpy(m.dgid, lo, 16);
	raw_say(r, VB_MSG_MEET, &m, sizeof(m), NULL, 0);
}

/* Applies every descriptor that it has to the group of sockets. A success is a hole. */
static int turn_what_there_is(struct raw *r)
{
	struct sock_filter mine[] = {BPF_STMT(BPF_RET | BPF_K, r->lane)};
	struct sock_fprog prog = {.len = 1, .filter = mine};
	struct vb_msg_head m;
	char in[512];
	int fds[2], holes = 0;

	if (!raw_say(r, VB_MSG_ROCE, &m, sizeof(m), NULL, 0) ||
	    !raw_hear(r, VB_MSG_ROCE_REPLY, in, sizeof(in), fds, 2000))
		return 0;
	for (int fd = 3; fd < 400; fd++)
		holes += !setsockopt(fd, SOL_SOCKET, SO_ATTACH_REUSEPORT_CBPF, &prog, sizeof(prog));
	for (int i = 0; i < 2; i++)
		if (fds[i] >= 0)
			close(fds[i]);
	return holes;
}

static void linger(void)
{
	struct vb_msg_attach m = {0};
	struct raw r;
	int fd = lingering_socket(), fds[3] = {fd, fd, fd};

	raw_open(&r);
	raw_say(&r, draw() % 2 ? VB_MSG_ATTACH : VB_MSG_STATUS, &m, sizeof(m), fds, 3);
}

/* ---- what any user can send ---- */

static size_t make_packet(uint8_t *out, const struct vb_flow *flow)
{
	static const uint8_t opcodes[] = {VB_RC_SEND_ONLY, VB_RC_WRITE_ONLY, VB_RC_ACK, VB_UC_SEND_ONLY,
	                                  VB_UD_SEND_ONLY};
	struct vb_packet p = {.bth = {.opcode = opcodes[draw() % 5],
	                              .pkey = 0xffff,
	                              .dest_qpn = draw() & 0xffffff,
	                              .psn = vb_psn(draw())},
	                      .reth = {draw(), draw(), 64},
	                      .deth = {.qkey = draw(), .src_qpn = draw() & 0xffffff}};
	struct vb_writer w = vb_writer(out, 256);

	vb_packet_encode(&w, &p);
	size_t headers = w.pos;

	memset(out + headers, 0x66, 64);
	vb_icrc_encode(out + headers + 64, vb_icrc_start(flow, 0, out, headers + 64, headers + 64 + VB_ICRC_LEN));
	return headers + 64 + VB_ICRC_LEN;
}

static void inject(int fd, uint16_t sport)
{
	struct sockaddr_in to = {
	        .sin_family = AF_INET, .sin_port = htons(4791), .sin_addr.s_addr = htonl(INADDR_LOOPBACK)};
	struct vb_flow flow = {.sport = sport, .dport = 4791};
	uint8_t packet[256];

	memcpy(flow.src, lo, 16);
	memcpy(flow.dst, lo, 16);
	for (int i = 0; i < 64; i++)
		sendto(fd, packet, make_packet(packet, &flow), MSG_DONTWAIT, (struct sockaddr *)&to, sizeof(to));
}

static int sender(uint16_t *sport)
{
	struct sockaddr_in a = {.sin_family = AF_INET};
	socklen_t len = sizeof(a);
	int fd = socket(AF_INET, SOCK_DGRAM, 0), df = IP_PMTUDISC_DO;

	CHECK(bind(fd, (struct sockaddr *)&a, sizeof(a)) == 0 && getsockname(fd, (struct sockaddr *)&a, &len) == 0);
	setsockopt(fd, IPPROTO_IP, IP_MTU_DISCOVER, &df, sizeof(df));
	*sport = ntohs(a.sin_port);
	return fd;
}

/* ---- one round: some programs of the attacker ---- */

/* Any port but 10000 to 29999, where honest programs listen: the first one to bind a port owns it. */
static uint16_t some_port(void)
{
	uint32_t which = draw() % 3;

	return (uint16_t)(which == 0 ? 0 : which == 1 ? draw() % 10000 : 30000 + draw() % 35536);
}

static int round_of_mischief(int udp, uint16_t sport)
{
	static struct raw held[HELD];
	uint8_t gid[16];
	int n = 0, holes = 0;

	for (int i = 0; i < HELD; i++) {
		raw_open(&held[n]);
		if (raw_attach(&held[n], some_address(gid)))
			raw_close(&held[n]);
		else
			n++;
	}
	for (int i = 0; i < n; i++)
		raw_listen(&held[i], 1, some_port());
	for (int i = 0; n && i < 300; i++) {
		struct raw *r = &held[draw() % (uint32_t)n];

		if (draw() % 3)
			send_anything(r);
		else
			meet_anybody(r);
		if (i % 100 == 0)
			holes += turn_what_there_is(r);
		inject(udp, sport);
	}
	linger();
	for (int i = 0; i < n; i++)
		raw_close(&held[i]);
	return holes;
}

int main(int argc, char **argv)
{
	int64_t until = now_ms() + (argc > 1 ? atoi(argv[1]) : 5) * 1000;
	int holes = 0, rounds = 0, status;
	struct rlimit lim;
	uint16_t sport;

	state = argc > 2 ? strtoull(argv[2], NULL, 10) : 1;
	getrlimit(RLIMIT_NOFILE, &lim);
	lim.rlim_cur = lim.rlim_max;
	setrlimit(RLIMIT_NOFILE, &lim);
	int udp = sender(&sport);
	for (; now_ms() < until; rounds++) { /* each in its own process, so that a hanging close stays there */
		pid_t pid = fork();
		if (pid == 0) {
			prctl(PR_SET_PDEATHSIG, SIGKILL);
			alarm(60);
			_exit(round_of_mischief(udp, sport) > 0);
		}
		state += 0x9e3779b97f4a7c15ull;
		waitpid(pid, &status, 0);
		holes += WIFEXITED(status) && WEXITSTATUS(status) == 1;
	}
	printf("user %d: %d rounds, %d of them with a socket of the group\n", (int)getuid(), rounds, holes);
	return holes > 0;
}
