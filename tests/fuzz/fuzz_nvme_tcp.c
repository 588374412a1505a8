// fuzz_nvme_tcp.c - a hostile host at the end of a TCP connection: any bytes, and PDUs that are right but for a few of
// them
// follows: NVMe/TCP transport specification 1.0
// SPDX-License-Identifier: MIT
#include <stdint.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

#include "frame/crc32c.h"
#include "nvme/tcp_pdu.h"
#include "target/tcp.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

#define SUBNQN "nqn.2026-01.test:one"

static struct nt_loop *loop;
static struct nt_target target;
static struct nt_tcp *tcp;
static int fd;
static uint8_t digests;

static void need(bool ok)
{
	if (!ok)
		abort();
}

static void set_up(void)
{
	static const struct nt_tcp_limits limits = {8, 10000, 30000};
	struct nb_config c = {.kind = "memory", .size = 1 << 20};
	struct nb_backend *b;

	loop = nt_loop_open();
	need(loop && !nt_target_init(&target, 16 << 20));
	struct nt_subsystem *s = nt_subsystem_add(&target, SUBNQN);

	s->any_host = true;
	need(!nb_open(&c, NULL, &b) && nt_namespace_add(s, 1, b, NULL) &&
	     !nt_tcp_open(loop, &target, "127.0.0.1", 0, &limits, &tcp));
}

static void pump(void)
{
	uint8_t sink[65536];

	for (int i = 0; i < 3; i++) {
		nt_tcp_turn(tcp);
		nt_loop_once(loop, 0, &target.now);
	}
	nt_tcp_turn(tcp);
	while (recv(fd, sink, sizeof(sink), MSG_DONTWAIT) > 0)
		;
}

static void put(const void *bytes, size_t len)
{
	(void)!send(fd, bytes, len, MSG_NOSIGNAL | MSG_DONTWAIT);
	pump();
}

/* Adds the header digest and data with its digest, then changes one byte of it all, or none. */
static void put_pdu(uint8_t *head, uint8_t hlen, uint8_t flags, uint32_t len, uint16_t spoil)
{
	static uint8_t pdu[40000];
	uint8_t hd = digests & NV_TCP_HDGST, dd = len ? digests & NV_TCP_DDGST : 0;
	uint32_t start = len ? nv_tcp_pdo(hlen, hd, 0) : hlen + (hd ? 4u : 0), total = start + len + (dd ? 4u : 0);
	struct nv_tcp_common c = {.type = head[0],
	                          .flags = flags | hd | dd,
	                          .hlen = hlen,
	                          .pdo = len ? (uint8_t)start : 0,
	                          .plen = total};

	memset(pdu, 0x11, sizeof(pdu));
	nv_tcp_common_encode(&c, head);
	memcpy(pdu, head, hlen);
	if (hd)
		nv_put32(pdu + hlen, vb_crc32c(0, pdu, hlen));
	if (dd)
		nv_put32(pdu + start + len, vb_crc32c(0, pdu + start, len));
	if (spoil)
		pdu[spoil % total] ^= (uint8_t)(spoil >> 8);
	put(pdu, total);
}

static void greet(void)
{
	uint8_t pdu[NV_TCP_IC_LEN];
	struct nv_tcp_ic ic = {.digests = digests};

	nv_tcp_ic_encode(&ic, false, pdu);
	put(pdu, sizeof(pdu));
}

static void connect_admin(void)
{
	uint8_t pdu[72 + 4 + NV_CONNECT_DATA_LEN + 4] = {0};
	uint8_t hd = digests & NV_TCP_HDGST ? 4 : 0, dd = digests & NV_TCP_DDGST ? 4 : 0, *data = pdu + 72 + hd;
	struct nv_tcp_common c = {
	        .type = NV_TCP_COMMAND, .flags = digests, .hlen = 72, .pdo = 72 + hd, .plen = 72u + hd + 1024 + dd};
	struct nv_sqe s = {.opcode = NV_FABRICS,
	                   .psdt = NV_PSDT_SGL,
	                   .fctype = NV_FCT_CONNECT,
	                   .sgl = {.type = NV_SGL_DATA, .subtype = NV_SGL_OFFSET, .length = 1024},
	                   .cdw = {0, 31}};

	nv_tcp_common_encode(&c, pdu);
	nv_sqe_encode(&s, pdu + 8);
	if (hd)
		nv_put32(pdu + 72, vb_crc32c(0, pdu, 72));
	data[0] = 1;
	nv_put16(data + 16, NV_CNTLID_DYNAMIC);
	strcpy((char *)data + 256, SUBNQN);
	strcpy((char *)data + 512, "nqn.2026-01.test:host");
	if (dd)
		nv_put32(data + 1024, vb_crc32c(0, data, 1024));
	put(pdu, c.plen);
}

static size_t likely_pdu(const uint8_t *in, size_t left)
{
	uint8_t head[NV_TCP_COMMAND_LEN] = {0};

	if (left < 16)
		return left;
	uint16_t spoil = in[0] & 0xc0 ? 0 : nv_get16(in + 1);

	if (in[0] & 1) {
		static const uint8_t opcodes[] = {0x7f, 0x06, 0x02, 0x09, 0x0a, 0x0c, 0x18, 0x08};
		bool capsule = in[0] & 2;
		uint32_t len = nv_get16(in + 3);
		struct nv_sqe s = {.opcode = opcodes[in[5] % 8],
		                   .psdt = NV_PSDT_SGL,
		                   .cid = in[6],
		                   .nsid = in[7],
		                   .fctype = in[7],
		                   .sgl = {.type = capsule ? NV_SGL_DATA : NV_SGL_TRANSPORT,
		                           .subtype = capsule ? 1 : 10,
		                           .length = in[0] & 4 ? 4096 : len},
		                   .cdw = {nv_get16(in + 8), nv_get16(in + 10), nv_get32(in + 12)}};

		head[0] = NV_TCP_COMMAND;
		nv_sqe_encode(&s, head + 8);
		put_pdu(head, 72, 0, capsule ? (in[0] & 4 ? 4096 : len % 20000) : 0, spoil);
	} else {
		struct nv_tcp_data d = {.cccid = in[3],
		                        .ttag = in[4],
		                        .offset = nv_get16(in + 6),
		                        .length = nv_get16(in + 8) % 32768 + 1u};

		head[0] = in[0] & 8 ? in[10] : NV_TCP_H2C_DATA;
		nv_tcp_data_encode(&d, head);
		put_pdu(head, 24, in[5] & NV_TCP_LAST, d.length, spoil);
	}
	return 16;
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
	int pair[2];

	if (!loop)
		set_up();
	if (!size)
		return 0;
	need(!socketpair(AF_UNIX, SOCK_STREAM | SOCK_NONBLOCK, 0, pair) && !nt_tcp_serve(tcp, pair[1]));
	fd = pair[0];
	digests = data[0] & 3;
	if (data[0] & 4)
		greet();
	if (data[0] & 8)
		connect_admin();
	for (size_t at = 1; at < size;) {
		size_t n = size - at;

		if (data[0] & 16) {
			at += likely_pdu(data + at, n);
			continue;
		}
		if (n > 200)
			n = 200;
		put(data + at, n);
		at += n;
	}
	close(fd);
	for (int i = 0; i < 50 && nt_tcp_connections(tcp); i++) {
		nt_tcp_turn(tcp);
		nt_loop_once(loop, 0, &target.now);
	}
	need(!nt_tcp_connections(tcp) && !nt_pool_used(target.pool));
	return 0;
}
