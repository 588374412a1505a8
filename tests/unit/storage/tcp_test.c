// tcp_test.c - a host made of bytes: valid and invalid NVMe/TCP
// follows: NVMe/TCP transport specification 1.0
// SPDX-License-Identifier: MIT
#include <errno.h>
#include <fcntl.h>
#include <netinet/in.h>
#include <sys/socket.h>
#include <unistd.h>

#include "../../support/check.h"
#include "frame/crc32c.h"
#include "nvme/tcp_pdu.h"
#include "target/tcp.h"

#define SUBNQN "nqn.2026-01.test:one"
#define HOSTNQN "nqn.2026-01.test:host"

static struct nt_loop *loop;
static struct nt_target target;
static struct nt_tcp *tcp;
static int fd;                /* the host's end */
static uint8_t digests, hpda; /* as negotiated */
static uint16_t next_cid;
static uint16_t cntlid;

/* ---- the target ---- */

static void pump(void)
{
	for (int i = 0; i < 12; i++) {
		nt_tcp_turn(tcp);
		nt_loop_once(loop, 0, &target.now);
	}
	nt_tcp_turn(tcp);
}

static void up(void)
{
	static const struct nt_tcp_limits limits = {.connections = 8, .hello_ms = 10000, .stall_ms = 30000};
	struct nb_config c = {.kind = "memory", .size = 4 << 20};
	struct nb_backend *b;

	loop = nt_loop_open();
	SAME(nt_target_init(&target, 16 << 20), 0);
	target.now = nt_now();
	struct nt_subsystem *s = nt_subsystem_add(&target, SUBNQN);

	s->any_host = true;
	SAME(nb_open(&c, NULL, &b), 0);
	CHECK(nt_namespace_add(s, 1, b, NULL));
	SAME(nt_tcp_open(loop, &target, "127.0.0.1", 0, &limits, &tcp), 0);
	next_cid = 0;
}

static int dial(void)
{
	int pair[2];

	SAME(socketpair(AF_UNIX, SOCK_STREAM | SOCK_NONBLOCK, 0, pair), 0);
	SAME(nt_tcp_serve(tcp, pair[1]), 0);
	return pair[0];
}

static void down(void)
{
	close(fd);
	pump();
	SAME(nt_tcp_connections(tcp), 0);
	SAME(nt_pool_used(target.pool), 0);
	CHECK(nt_tcp_close(tcp));
	nt_target_fini(&target);
	nt_loop_close(loop);
}

/* ---- bytes ---- */

static void put(const void *bytes, size_t len)
{
	const uint8_t *at = bytes;

	for (int tries = 0; len && tries < 10000; tries++) {
		ssize_t n = send(fd, at, len, MSG_NOSIGNAL | MSG_DONTWAIT);

		if (n > 0) {
			at += n;
			len -= (size_t)n;
		} else {
			pump();
		}
	}
	SAME(len, 0);
}

static size_t get(void *bytes, size_t len)
{
	uint8_t *at = bytes;
	size_t have = 0;

	for (int tries = 0; have < len && tries < 200; tries++) {
		ssize_t n = recv(fd, at + have, len - have, MSG_DONTWAIT);

		if (!n)
			break;
		if (n > 0)
			have += (size_t)n;
		else
			pump();
	}
	return have;
}

/* true: the other end has closed, after the data read */
static bool at_end(void)
{
	uint8_t c;

	pump();
	ssize_t n = recv(fd, &c, 1, MSG_DONTWAIT);

	return !n || (n < 0 && errno == ECONNRESET);
}

/* ---- PDUs ---- */

static void greet_with(struct nv_tcp_ic ic)
{
	uint8_t pdu[NV_TCP_IC_LEN];

	nv_tcp_ic_encode(&ic, false, pdu);
	put(pdu, sizeof(pdu));
}

static void greet(uint8_t want, uint8_t align)
{
	uint8_t pdu[NV_TCP_IC_LEN];

	digests = 0;
	greet_with((struct nv_tcp_ic){.digests = want, .align = align});
	SAME(get(pdu, sizeof(pdu)), sizeof(pdu));
	struct nv_tcp_common c = nv_tcp_common_decode(pdu);
	struct nv_tcp_ic ic = nv_tcp_ic_decode(pdu);

	SAME(c.type, NV_TCP_ICRESP);
	SAME(c.plen, 128);
	SAME(ic.pfv, 0);
	SAME(ic.digests, want);
	CHECK(ic.number >= 4096);
	digests = want;
	hpda = align;
}

/* Sends a header of hlen bytes, and data. spoil: index of a byte of the PDU to change; -1: none. */
static void send_pdu(uint8_t *head, uint8_t hlen, uint8_t flags, const void *data, uint32_t len, long spoil)
{
	static uint8_t pdu[2 << 20];
	uint8_t hd = digests & NV_TCP_HDGST, dd = len ? digests & NV_TCP_DDGST : 0;
	uint32_t start = len ? nv_tcp_pdo(hlen, hd, 0) : hlen + (hd ? 4u : 0);
	struct nv_tcp_common c = {.type = head[0],
	                          .flags = flags | hd | dd,
	                          .hlen = hlen,
	                          .pdo = len ? (uint8_t)start : 0,
	                          .plen = start + len + (dd ? 4u : 0)};

	nv_tcp_common_encode(&c, head);
	memcpy(pdu, head, hlen);
	if (hd)
		nv_put32(pdu + hlen, vb_crc32c(0, pdu, hlen));
	if (len)
		memcpy(pdu + start, data, len);
	if (dd)
		nv_put32(pdu + start + len, vb_crc32c_portable(0, data, len));
	if (spoil >= 0)
		pdu[spoil] ^= 0x40;
	put(pdu, c.plen);
}

static uint16_t send_command(struct nv_sqe c, const void *data, uint32_t len, long spoil)
{
	uint8_t head[NV_TCP_COMMAND_LEN] = {NV_TCP_COMMAND};

	c.cid = next_cid++;
	c.psdt = NV_PSDT_SGL;
	nv_sqe_encode(&c, head + 8);
	send_pdu(head, sizeof(head), 0, data, len, spoil);
	return c.cid;
}

static void send_data(uint16_t cid, uint16_t ttag, uint32_t offset, const void *data, uint32_t len, uint8_t flags,
                      long spoil)
{
	uint8_t head[NV_TCP_DATA_LEN] = {NV_TCP_H2C_DATA};
	struct nv_tcp_data d = {.cccid = cid, .ttag = ttag, .offset = offset, .length = len};

	nv_tcp_data_encode(&d, head);
	send_pdu(head, sizeof(head), flags, data, len, spoil);
}

struct got {
	struct nv_tcp_common c;
	uint8_t head[256];
	uint8_t data[1 << 20];
	uint32_t len;
};
static struct got got;

/* Receives the next PDU and checks its digests. False: none. */
static bool get_pdu(void)
{
	uint8_t digest[4];
	size_t n = get(got.head, 8);

	if (n < 8)
		return false;
	got.c = nv_tcp_common_decode(got.head);
	SAME(get(got.head + 8, got.c.hlen - 8u), got.c.hlen - 8u);
	uint32_t at = got.c.hlen;

	if (got.c.flags & NV_TCP_HDGST) {
		SAME(get(digest, 4), 4);
		SAME(nv_get32(digest), vb_crc32c_portable(0, got.head, got.c.hlen));
		at += 4;
	}
	got.len = 0;
	if (got.c.type == NV_TCP_C2H_DATA) {
		SAME(got.c.pdo % ((hpda + 1u) * 4), 0);
		SAME(get(got.data, got.c.pdo - at), got.c.pdo - at);
		got.len = nv_tcp_data_decode(got.head).length;
		SAME(get(got.data, got.len), got.len);
		at = got.c.pdo + got.len;
		if (got.c.flags & NV_TCP_DDGST) {
			SAME(get(digest, 4), 4);
			SAME(nv_get32(digest), vb_crc32c_portable(0, got.data, got.len));
			at += 4;
		}
	}
	if (got.c.type == NV_TCP_C2H_TERM)
		SAME(get(got.data, got.c.plen - at), got.c.plen - at);
	else
		SAME(at, got.c.plen);
	return true;
}

static struct nv_cqe get_response(uint16_t cid)
{
	CHECK(get_pdu());
	SAME(got.c.type, NV_TCP_RESPONSE);
	struct nv_cqe e = nv_cqe_decode(got.head + 8);

	SAME(e.cid, cid);
	return e;
}

/* Checks that the target ends the connection with a termination request. */
static void ended_with(uint16_t fes, uint32_t fei)
{
	while (get_pdu() && got.c.type != NV_TCP_C2H_TERM)
		;
	SAME(got.c.type, NV_TCP_C2H_TERM);
	struct nv_tcp_term t = nv_tcp_term_decode(got.head);

	SAME(t.fes, fes);
	SAME(t.fei, fei);
	CHECK(at_end());
}

static struct nv_sgl in_capsule(uint32_t length)
{
	return (struct nv_sgl){.type = NV_SGL_DATA, .subtype = NV_SGL_OFFSET, .length = length};
}

static struct nv_sgl by_transport(uint32_t length)
{
	return (struct nv_sgl){.type = NV_SGL_TRANSPORT, .subtype = NV_SGL_TRANSPORT_SPECIFIC, .length = length};
}

static void connect_queue(uint16_t qid, uint8_t cattr)
{
	uint8_t data[NV_CONNECT_DATA_LEN] = {0};

	data[0] = 1;
	nv_put16(data + NV_CONNECT_AT_CNTLID, qid ? cntlid : NV_CNTLID_DYNAMIC);
	strcpy((char *)data + NV_CONNECT_AT_SUBNQN, SUBNQN);
	strcpy((char *)data + NV_CONNECT_AT_HOSTNQN, HOSTNQN);
	uint16_t cid = send_command((struct nv_sqe){.opcode = NV_FABRICS,
	                                            .fctype = NV_FCT_CONNECT,
	                                            .sgl = in_capsule(sizeof(data)),
	                                            .cdw = {(uint32_t)qid << 16, 31u | (uint32_t)cattr << 16}},
	                            data, sizeof(data), -1);
	struct nv_cqe e = get_response(cid);

	SAME(e.status, 0);
	if (!qid)
		cntlid = (uint16_t)e.result;
}

static int admin_fd;

/* Connects an admin queue and an I/O queue; fd is the latter. */
static void connect_all(uint8_t want, uint8_t align, uint8_t cattr)
{
	up();
	fd = admin_fd = dial();
	greet(want, align);
	connect_queue(0, cattr);
	uint16_t cid = send_command(
	        (struct nv_sqe){.opcode = NV_FABRICS, .fctype = NV_FCT_PROPERTY_SET, .cdw = {0, NV_PROP_CC, 0x460001}},
	        NULL, 0, -1);

	SAME(get_response(cid).status, 0);
	fd = dial();
	greet(want, align);
	connect_queue(1, cattr);
}

static void down_all(void)
{
	close(admin_fd);
	down();
}

static uint8_t pattern[1 << 20], back[1 << 20];

static struct nv_sqe io(uint8_t opcode, uint32_t block, uint32_t bytes, bool capsule)
{
	return (struct nv_sqe){.opcode = opcode,
	                       .nsid = 1,
	                       .sgl = capsule ? in_capsule(bytes) : by_transport(bytes),
	                       .cdw = {block, 0, bytes / 512 - 1}};
}

static void read_back(uint32_t block, const uint8_t *want, uint32_t bytes)
{
	uint16_t cid = send_command(io(NV_IO_READ, block, bytes, false), NULL, 0, -1);
	uint32_t have = 0;

	do {
		CHECK(get_pdu());
		SAME(got.c.type, NV_TCP_C2H_DATA);
		SAME(nv_tcp_data_decode(got.head).cccid, cid);
		SAME(nv_tcp_data_decode(got.head).offset, have);
		memcpy(back + have, got.data, got.len);
		have += got.len;
	} while (!(got.c.flags & NV_TCP_LAST));
	SAME(have, bytes);
	CHECK(!memcmp(back, want, bytes));
	if (!(got.c.flags & NV_TCP_SUCCESS))
		SAME(get_response(cid).status, 0);
}

/* ---- valid PDUs ---- */

static struct nv_tcp_data get_r2t(uint16_t cid, uint32_t bytes)
{
	CHECK(get_pdu());
	SAME(got.c.type, NV_TCP_R2T);
	struct nv_tcp_data d = nv_tcp_data_decode(got.head);

	SAME(d.cccid, cid);
	SAME(d.offset, 0);
	SAME(d.length, bytes);
	return d;
}

static void data_goes_both_ways_with_any_digests_and_alignment(void)
{
	static const uint8_t aligns[] = {0, 1, 7, 31};

	for (uint32_t i = 0; i < sizeof(pattern); i++)
		pattern[i] = (uint8_t)(i * 2654435761u >> 13);
	for (unsigned round = 0; round < 16; round++) {
		connect_all(round & 3, aligns[round >> 2], round & 4 ? NV_CONNECT_NO_SQ_FLOW : 0);
		uint16_t cid = send_command(io(NV_IO_WRITE, 10, 16384, true), pattern, 16384, -1);

		SAME(get_response(cid).status, 0);
		read_back(10, pattern, 16384);
		cid = send_command(io(NV_IO_WRITE, 64, 1 << 20, false), NULL, 0, -1);
		struct nv_tcp_data r2t = get_r2t(cid, 1 << 20);

		for (uint32_t at = 0; at < 1 << 20; at += 1 << 18)
			send_data(cid, r2t.ttag, at, pattern + at, 1 << 18, at + (1 << 18) == 1 << 20 ? NV_TCP_LAST : 0,
			          -1);
		SAME(get_response(cid).status, 0);
		read_back(64, pattern, 1 << 20);
		read_back(65, pattern + 512, 512);
		down_all();
	}
}

static void data_with_a_wrong_digest_fails_its_command_alone(void)
{
	connect_all(NV_TCP_DDGST, 0, 0);
	uint16_t cid = send_command(io(NV_IO_WRITE, 0, 512, true), pattern, 512, 80);

	SAME(get_response(cid).status, NV_TRANSIENT_TRANSPORT);
	cid = send_command(io(NV_IO_WRITE, 0, 8192, false), NULL, 0, -1);
	struct nv_tcp_data r2t = get_r2t(cid, 8192);

	send_data(cid, r2t.ttag, 0, pattern, 4096, 0, 100);
	send_data(cid, r2t.ttag, 4096, pattern + 4096, 4096, NV_TCP_LAST, -1);
	SAME(get_response(cid).status, NV_TRANSIENT_TRANSPORT);
	memset(back, 0, 8192);
	static const uint8_t zeros[8192];

	read_back(0, zeros, 8192);
	down_all();
}

static void data_of_refused_commands_is_passed_over(void)
{
	connect_all(3, 0, 0);
	struct nv_sqe c = io(NV_IO_WRITE, 1u << 30, 4096, true);
	uint16_t cid = send_command(c, pattern, 4096, -1);

	SAME(get_response(cid).status, NV_LBA_RANGE | NV_DNR);
	c = io(NV_IO_WRITE, 0, 4096, true);
	cid = send_command(c, pattern, 2048, -1); /* less than in the descriptor */
	SAME(get_response(cid).status, NV_SGL_LENGTH | NV_DNR);
	cid = send_command(io(NV_IO_WRITE, 0, 512, true), pattern, 4096, -1); /* more */
	SAME(get_response(cid).status, 0);
	read_back(0, pattern, 512);
	down_all();
}

static void many_commands_may_be_under_way(void)
{
	connect_all(1, 0, 0);
	uint16_t cids[30], ttags[30];

	for (int i = 0; i < 30; i++)
		cids[i] = send_command(io(NV_IO_WRITE, (uint32_t)i * 16, 8192, false), NULL, 0, -1);
	for (int i = 0; i < 30; i++)
		ttags[i] = get_r2t(cids[i], 8192).ttag;
	for (int i = 30; i--;)
		send_data(cids[i], ttags[i], 0, pattern + i * 8192, 8192, NV_TCP_LAST, -1);
	for (int i = 30; i--;)
		SAME(get_response(cids[i]).status, 0);
	read_back(0, pattern, 30 * 8192);
	down_all();
}

/* ---- invalid PDUs ---- */

static void alone(void)
{
	up();
	fd = dial();
	digests = hpda = 0;
}

static void strangers_are_told_what_is_wrong(void)
{
	static const struct {
		uint8_t bytes[8];
		uint16_t fes;
		uint32_t fei;
	} cases[] = {
	        {{0x55, 0, 128, 0, 128}, NV_TCP_FES_HEADER, 0},          /* unknown PDU */
	        {{NV_TCP_C2H_DATA, 0, 24, 0, 24}, NV_TCP_FES_HEADER, 0}, /* not a PDU of a host */
	        {{NV_TCP_ICREQ, 1, 128, 0, 128}, NV_TCP_FES_HEADER, 1},
	        {{NV_TCP_ICREQ, 0, 127, 0, 128}, NV_TCP_FES_HEADER, 2},
	        {{NV_TCP_ICREQ, 0, 128, 0, 129}, NV_TCP_FES_HEADER, 4},
	        {{NV_TCP_ICREQ, 0, 128, 0, 0}, NV_TCP_FES_HEADER, 4},
	        {{NV_TCP_COMMAND, 0, 72, 0, 72}, NV_TCP_FES_SEQUENCE, 0},
	        {{NV_TCP_H2C_DATA, 0, 24, 24, 28}, NV_TCP_FES_SEQUENCE, 0},
	        {{NV_TCP_COMMAND, 0, 72, 71, 100}, NV_TCP_FES_HEADER, 3},
	        {{NV_TCP_COMMAND, 0, 72, 0, 71}, NV_TCP_FES_HEADER, 3},
	        {{NV_TCP_COMMAND, 0, 72, 72, 0xff, 0xff, 0xff, 0xff}, NV_TCP_FES_SEQUENCE, 0},
	};

	for (size_t i = 0; i < sizeof(cases) / sizeof(*cases); i++) {
		alone();
		put(cases[i].bytes, 8);
		ended_with(cases[i].fes, cases[i].fei);
		down();
	}
	alone();
	greet_with((struct nv_tcp_ic){.pfv = 1});
	ended_with(NV_TCP_FES_UNSUPPORTED, 8);
	down();
	alone();
	greet_with((struct nv_tcp_ic){.align = 32});
	ended_with(NV_TCP_FES_HEADER, 10);
	down();
	alone();
	greet(0, 0);
	greet_with((struct nv_tcp_ic){0});
	ended_with(NV_TCP_FES_SEQUENCE, 0);
	down();
}

static void a_wrong_header_digest_ends_the_connection(void)
{
	connect_all(NV_TCP_HDGST, 0, 0);
	uint8_t head[NV_TCP_COMMAND_LEN] = {NV_TCP_COMMAND}, whole[80];
	struct nv_sqe c = io(NV_IO_READ, 0, 512, false);
	struct nv_tcp_common common = {.type = NV_TCP_COMMAND, .flags = NV_TCP_HDGST, .hlen = 72, .plen = 76};

	c.psdt = NV_PSDT_SGL;
	nv_sqe_encode(&c, head + 8);
	nv_tcp_common_encode(&common, head);
	memcpy(whole, head, 72);
	nv_put32(whole + 72, 0x12345678);
	put(whole, 76);
	ended_with(NV_TCP_FES_HDGST, 0x12345678);
	down_all();
	connect_all(NV_TCP_HDGST, 0, 0);
	common.flags = 0; /* as if no digest had been negotiated */
	nv_tcp_common_encode(&common, head);
	put(head, 72);
	ended_with(NV_TCP_FES_HEADER, 1);
	down_all();
}

static void data_that_was_not_asked_for_ends_the_connection(void)
{
	static const struct {
		int cid, ttag, offset, length;
		uint8_t flags;
		uint16_t fes;
		uint32_t fei;
	} cases[] = {
	        {0, 1, 0, 8192, NV_TCP_LAST, NV_TCP_FES_HEADER, 10},
	        {0, 31, 0, 8192, NV_TCP_LAST, NV_TCP_FES_HEADER, 10},
	        {0, 60000, 0, 8192, NV_TCP_LAST, NV_TCP_FES_HEADER, 10},
	        {1, 0, 0, 8192, NV_TCP_LAST, NV_TCP_FES_HEADER, 8},
	        {0, 0, 512, 4096, 0, NV_TCP_FES_RANGE, 12},
	        {0, 0, 0, 8196, NV_TCP_LAST, NV_TCP_FES_RANGE, 16},
	        {0, 0, 0, 4096, NV_TCP_LAST, NV_TCP_FES_HEADER, 1},
	        {0, 0, 0, 8192, 0, NV_TCP_FES_HEADER, 1},
	};

	for (size_t i = 0; i < sizeof(cases) / sizeof(*cases); i++) {
		connect_all(0, 0, 0);
		uint16_t cid = send_command(io(NV_IO_WRITE, 0, 8192, false), NULL, 0, -1);
		struct nv_tcp_data r2t = get_r2t(cid, 8192);

		send_data((uint16_t)(cid + cases[i].cid), (uint16_t)(r2t.ttag + cases[i].ttag),
		          (uint32_t)cases[i].offset, pattern, (uint32_t)cases[i].length, cases[i].flags, -1);
		ended_with(cases[i].fes, cases[i].fei);
		down_all();
	}
	connect_all(0, 0, 0); /* a second time */
	uint16_t cid = send_command(io(NV_IO_WRITE, 0, 512, false), NULL, 0, -1);
	struct nv_tcp_data r2t = get_r2t(cid, 512);

	send_data(cid, r2t.ttag, 0, pattern, 512, NV_TCP_LAST, -1);
	SAME(get_response(cid).status, 0);
	send_data(cid, r2t.ttag, 0, pattern, 512, NV_TCP_LAST, -1);
	ended_with(NV_TCP_FES_HEADER, 10);
	down_all();
}

static void capsules_that_are_too_large_end_the_connection(void)
{
	connect_all(0, 0, 0);
	uint8_t head[NV_TCP_COMMAND_LEN] = {NV_TCP_COMMAND};
	struct nv_tcp_common common = {.type = NV_TCP_COMMAND, .hlen = 72, .pdo = 72, .plen = 72 + 16385};

	nv_tcp_common_encode(&common, head);
	put(head, sizeof(head));
	ended_with(NV_TCP_FES_LIMIT, 4);
	down_all();
}

static void more_commands_than_the_queue_has_end_the_connection(void)
{
	connect_all(0, 0, 0);
	for (int i = 0; i < 33; i++)
		send_command(io(NV_IO_WRITE, 0, 8192, false), NULL, 0, -1);
	ended_with(NV_TCP_FES_SEQUENCE, 0);
	down_all();
}

static void a_host_may_leave_at_any_byte(void)
{
	for (size_t cut = 1; cut < 128 + 72 + 1024; cut += 37) {
		alone();
		uint8_t bytes[128 + 72 + 1024] = {0};
		struct nv_tcp_ic ic = {0};
		struct nv_tcp_common c = {.type = NV_TCP_COMMAND, .hlen = 72, .pdo = 72, .plen = 72 + 1024};
		struct nv_sqe s = {.opcode = NV_FABRICS,
		                   .fctype = NV_FCT_CONNECT,
		                   .psdt = NV_PSDT_SGL,
		                   .sgl = in_capsule(1024),
		                   .cdw = {0, 31}};

		nv_tcp_ic_encode(&ic, false, bytes);
		nv_tcp_common_encode(&c, bytes + 128);
		nv_sqe_encode(&s, bytes + 136);
		put(bytes, cut);
		down();
	}
}

static void a_host_that_stalls_is_given_up_and_disturbs_nobody(void)
{
	connect_all(0, 0, 0);
	uint16_t cid = send_command(io(NV_IO_WRITE, 0, 8192, false), NULL, 0, -1);
	int stalled = fd;

	get_r2t(cid, 8192); /* and no answer */
	fd = dial();
	int silent = fd; /* sends nothing */

	fd = dial();
	greet(0, 0);
	connect_queue(2, 0);
	uint8_t half[8] = {NV_TCP_COMMAND, 0, 72, 0, 72};
	int working = fd;

	fd = dial();
	greet(0, 0);
	put(half, 8); /* half a PDU */
	pump();
	SAME(nt_tcp_connections(tcp), 5);
	int half_way = fd;

	fd = working;
	read_back(0, (const uint8_t[512]){0}, 512);
	target.now += 29000;
	nt_tcp_turn(tcp);
	SAME(nt_tcp_connections(tcp), 3); /* the silent connection, and the one without Connect */
	target.now += 32000;
	nt_tcp_turn(tcp);
	SAME(nt_tcp_connections(tcp), 2); /* and the one with missing data */
	fd = working;
	read_back(0, (const uint8_t[512]){0}, 512);
	close(stalled);
	close(silent);
	close(half_way);
	down_all();
}

static void a_host_that_does_not_read_is_given_up(void)
{
	connect_all(0, 0, 0);
	int small = 4096;

	setsockopt(fd, SOL_SOCKET, SO_RCVBUF, &small, sizeof(small));
	for (int i = 0; i < 30; i++)
		send_command(io(NV_IO_READ, 0, 1 << 20, false), NULL, 0, -1);
	pump();
	SAME(nt_tcp_connections(tcp), 2);
	CHECK(nt_pool_used(target.pool) <= 4 << 20); /* its share */
	target.now += 31000;
	nt_tcp_turn(tcp);
	SAME(nt_tcp_connections(tcp), 1);
	SAME(nt_pool_used(target.pool), 0);
	down_all();
}

static void there_are_so_many_connections_and_no_more(void)
{
	int many[9];

	alone();
	for (int i = 0; i < 9; i++) {
		struct sockaddr_in a = {.sin_family = AF_INET,
		                        .sin_port = htons(nt_tcp_port(tcp)),
		                        .sin_addr.s_addr = htonl(INADDR_LOOPBACK)};

		many[i] = socket(AF_INET, SOCK_STREAM, 0);
		SAME(connect(many[i], (struct sockaddr *)&a, sizeof(a)), 0);
		pump();
	}
	SAME(nt_tcp_connections(tcp), 8);
	for (int i = 0; i < 9; i++)
		close(many[i]);
	down();
}

int main(void)
{
	RUN(data_goes_both_ways_with_any_digests_and_alignment);
	RUN(data_with_a_wrong_digest_fails_its_command_alone);
	RUN(data_of_refused_commands_is_passed_over);
	RUN(many_commands_may_be_under_way);
	RUN(strangers_are_told_what_is_wrong);
	RUN(a_wrong_header_digest_ends_the_connection);
	RUN(data_that_was_not_asked_for_ends_the_connection);
	RUN(capsules_that_are_too_large_end_the_connection);
	RUN(more_commands_than_the_queue_has_end_the_connection);
	RUN(a_host_may_leave_at_any_byte);
	RUN(a_host_that_stalls_is_given_up_and_disturbs_nobody);
	RUN(a_host_that_does_not_read_is_given_up);
	RUN(there_are_so_many_connections_and_no_more);
	return 0;
}
