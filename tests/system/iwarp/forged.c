// forged.c - a TCP peer whose FPDUs are written byte by byte from the standards: unusual and hostile ones
// follows: RFC 5044, 4 (FPDUs, markers, CRC); RFC 5041, 4; RFC 5040, 4 (headers, Terminate); RFC 7306, 5 and 6
// SPDX-License-Identifier: MIT
#include <arpa/inet.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <sys/socket.h>

#include "core/device.h"
#include "core/verbs.h"
#include "stream.h"

enum {
	WRITE,
	READ_REQUEST,
	READ_RESPONSE,
	SEND,
	SEND_INVALIDATE,
	SEND_SE,
	SEND_SE_INVALIDATE,
	TERMINATE,
	IMMEDIATE,
	IMMEDIATE_SE,
	ATOMIC,
	ATOMIC_RESPONSE
};
enum { MORE = 0, LAST = 0x40 };

static struct {
	struct dev d;
	struct link l;
	struct mem m;
	int fd;
	bool crc, markers, lies; /* the markers point elsewhere */
	unsigned step;           /* bytes per write; 0: all */
	uint64_t position;       /* in the stream that we send */
	uint32_t msn[4];
} t;

struct fpdu {
	uint8_t at[9000];
	size_t len;
};

/* --- bytes --- */

static void put(struct fpdu *f, uint64_t v, int bytes)
{
	for (int i = bytes - 1; i >= 0; i--)
		f->at[f->len++] = (uint8_t)(v >> 8 * i);
}

static uint64_t get(const uint8_t *p, int bytes)
{
	uint64_t v = 0;

	for (int i = 0; i < bytes; i++)
		v = v << 8 | p[i];
	return v;
}

/* The CRC32C of RFC 3385, bit by bit, lowest first. */
static uint32_t crc32c(const uint8_t *p, size_t n)
{
	uint32_t crc = 0xffffffff;

	while (n--) {
		crc ^= *p++;
		for (int i = 0; i < 8; i++)
			crc = crc >> 1 ^ (crc & 1 ? 0x82f63b78 : 0);
	}
	return ~crc;
}

static void put_crc(struct fpdu *f)
{
	uint32_t crc = t.crc ? crc32c(f->at, f->len) : 0;

	for (int i = 0; i < 4; i++)
		f->at[f->len++] = (uint8_t)(crc >> 8 * i);
}

static void tagged(struct fpdu *f, int last, int opcode, uint32_t stag, uint64_t to)
{
	f->len = 0;
	put(f, 0x81 | last, 1);
	put(f, 0x40 | opcode, 1);
	put(f, stag, 4);
	put(f, to, 8);
}

static void untagged(struct fpdu *f, int last, int opcode, uint32_t qn, uint32_t mo)
{
	f->len = 0;
	put(f, 0x01 | last, 1);
	put(f, 0x40 | opcode, 1);
	put(f, 0, 4);
	put(f, qn, 4);
	put(f, t.msn[qn], 4);
	put(f, mo, 4);
	t.msn[qn] += last != MORE;
}

static void add(struct fpdu *f, size_t n, int byte)
{
	memset(f->at + f->len, byte, n);
	f->len += n;
}

/* Length, ULPDU and pad, with markers at their places in the stream, and the CRC over all of it. */
static void say(const struct fpdu *ulpdu)
{
	struct fpdu plain = {.len = 0}, f = {.len = 0};
	size_t begin = 0;
	bool begun = false;

	put(&plain, ulpdu->len, 2);
	memcpy(plain.at + plain.len, ulpdu->at, ulpdu->len);
	plain.len += ulpdu->len;
	while (plain.len % 4)
		put(&plain, 0, 1);
	for (size_t i = 0; i < plain.len + 4; i++) {
		if (t.markers && (t.position + f.len) % 512 == 0)
			put(&f, begun ? f.len - begin + (t.lies ? 4 : 0) : 0, 4);
		if (!begun)
			begin = f.len;
		begun = true;
		if (i == plain.len)
			break;
		f.at[f.len++] = plain.at[i];
	}
	put_crc(&f);
	for (size_t at = 0, n; at < f.len; at += n) {
		n = t.step && f.len - at > t.step ? t.step : f.len - at;
		SAME(send(t.fd, f.at + at, n, MSG_NOSIGNAL), n);
	}
	t.position += f.len;
}

/* Receives the next FPDU. Returns the length of its ULPDU. */
static size_t hear_fpdu(uint8_t ulpdu[9000])
{
	struct fpdu f;

	CHECK(heard(t.fd, PATIENCE));
	SAME(recv(t.fd, f.at, 2, MSG_WAITALL), 2);
	size_t n = get(f.at, 2), len = (2 + n + 3) / 4 * 4;

	SAME(recv(t.fd, f.at + 2, len + 4 - 2, MSG_WAITALL), len + 4 - 2);
	struct fpdu again = f;

	again.len = len;
	put_crc(&again);
	CHECK(!t.crc || !memcmp(f.at + len, again.at + len, 4));
	memcpy(ulpdu, f.at + 2, n);
	return n;
}

/* Layer, error type and code, then the end of the stream. */
static void expect_terminate(unsigned code)
{
	uint8_t u[9000];
	char c;

	CHECK(hear_fpdu(u) >= 22);
	SAME(u[1], 0x40 | TERMINATE);
	SAME(get(u + 6, 4), 2);
	SAME(get(u + 10, 4), 1);
	SAME(get(u + 18, 2), code);
	CHECK(heard(t.fd, PATIENCE));
	CHECK(recv(t.fd, &c, 1, 0) <= 0);
	wait_closed(1);
	SAME(state_of(t.l.qp), IBV_QPS_ERR);
}

static void on_closed(void *own, int status)
{
	closed_status = status;
	closed_calls++;
}

static void meet(bool crc, bool markers, unsigned step)
{
	struct sockaddr_in at = {.sin_family = AF_INET, .sin_addr.s_addr = htonl(INADDR_LOOPBACK)};
	socklen_t len = sizeof(at);
	int s = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0), one = 1;

	memset(&t, 0, sizeof(t));
	t.crc = crc;
	t.markers = markers;
	t.step = step;
	for (int i = 0; i < 4; i++)
		t.msn[i] = 1;
	open_side(&t.d, &t.l, &t.m, 1 << 20);
	CHECK(!bind(s, (struct sockaddr *)&at, sizeof(at)) && !listen(s, 1) &&
	      !getsockname(s, (struct sockaddr *)&at, &len));
	t.fd = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
	CHECK(!connect(t.fd, (struct sockaddr *)&at, sizeof(at)));
	CHECK(!setsockopt(t.fd, IPPROTO_TCP, TCP_NODELAY, &one, sizeof(one)));
	struct vb_iwarp_stream st = {.fd = accept4(s, NULL, NULL, SOCK_CLOEXEC),
	                             .crc = crc,
	                             .markers_in = markers,
	                             .ird = 4,
	                             .ord = 4,
	                             .closed = on_closed};

	close(s);
	t.l.it.gid = t.l.d->gid;
	SAME(vb_iwarp_attach(vb_qp(t.l.qp), &st), 0);
}

static uint32_t key(void)
{
	return t.m.mr->rkey;
}

static uint64_t place(size_t off)
{
	return (uintptr_t)t.m.p + off;
}

static void all_are(const uint8_t *p, size_t n, int byte)
{
	for (size_t i = 0; i < n; i++)
		SAME(p[i], byte);
}

/* --- unusual, but valid --- */

/* FPDUs of lengths that put markers at every offset, split anywhere. */
static void in_pieces(unsigned step)
{
	struct fpdu f;
	uint32_t off = 0;

	meet(true, true, step);
	post_recv(&t.l, 1, &t.m, 65536, 8192);
	for (uint32_t n = 1; off + n < 3000; off += n, n = n * 3 / 2 + 1) {
		untagged(&f, MORE, SEND, 0, off);
		add(&f, n, 0x5a);
		say(&f);
	}
	untagged(&f, LAST, SEND, 0, off);
	add(&f, 3, 0x5a);
	say(&f);
	SAME(expect(t.l.rcq, 1, IBV_WC_SUCCESS).byte_len, off + 3);
	all_are(t.m.p + 65536, off + 3, 0x5a);
	for (uint32_t i = 0; i < 70; i++) { /* each shifts by 4 bytes against the markers */
		tagged(&f, LAST, WRITE, key(), place(i));
		add(&f, 478 - i % 3, (int)i);
		say(&f);
	}
	post_recv(&t.l, 2, &t.m, 65536, 8192);
	untagged(&f, LAST, SEND_SE, 0, 0);
	say(&f);
	SAME(expect(t.l.rcq, 2, IBV_WC_SUCCESS).byte_len, 0);
	for (int i = 0; i < 70; i++)
		SAME(t.m.p[i], i);
}

static void markers_and_fpdus_may_be_cut_anywhere(void)
{
	in_pieces(1);
}

static void markers_and_fpdus_may_be_cut_elsewhere(void)
{
	in_pieces(509);
}

/* Nothing waits for its end, and none of it is stored. */
static void a_write_may_go_on_for_ever(void)
{
	struct fpdu f;

	meet(false, false, 0);
	for (uint32_t i = 0; i < 1000; i++) {
		tagged(&f, MORE, WRITE, key(), place(i * 8 % 4096));
		add(&f, i % 7 ? 8 : 5000, 0x77);
		say(&f);
	}
	post_recv(&t.l, 1, &t.m, 65536, 100);
	untagged(&f, LAST, SEND, 0, 0);
	add(&f, 10, 1);
	say(&f);
	expect(t.l.rcq, 1, IBV_WC_SUCCESS);
	all_are(t.m.p, 4096, 0x77);
	tagged(&f, MORE, WRITE, key(), place(8192)); /* it ends with a Terminate, in the middle of an FPDU */
	add(&f, 100, 2);
	say(&f);
	untagged(&f, LAST, TERMINATE, 2, 0);
	put(&f, 0x01020000, 4); /* a request that we could not serve */
	say(&f);
	wait_closed(1);
	SAME(state_of(t.l.qp), IBV_QPS_ERR);
	all_are(t.m.p + 8192, 100, 2);
}

static void ask_read(uint32_t len, uint32_t stag, uint64_t from)
{
	struct fpdu f;

	untagged(&f, LAST, READ_REQUEST, 1, 0);
	put(&f, 0x1111, 4);
	put(&f, 0x2222, 8);
	put(&f, len, 4);
	put(&f, stag, 4);
	put(&f, from, 8);
	say(&f);
}

static void a_read_of_nothing_names_nothing(void)
{
	uint8_t u[9000];

	meet(true, false, 0);
	memset(t.m.p, 0x42, 100);
	ask_read(0, 0xdead, UINT64_MAX);
	SAME(hear_fpdu(u), 14);
	CHECK(u[0] == 0xc1 && u[1] == (0x40 | READ_RESPONSE) && get(u + 2, 4) == 0x1111 && get(u + 6, 8) == 0x2222);
	ask_read(100, key(), place(0));
	SAME(hear_fpdu(u), 114);
	all_are(u + 14, 100, 0x42);
	SAME(state_of(t.l.qp), IBV_QPS_RTS);
}

static void ask_atomic(uint8_t op, uint32_t id, uint64_t value, uint64_t compare, uint64_t mask)
{
	struct fpdu f;

	untagged(&f, LAST, ATOMIC, 1, 0);
	put(&f, op, 4);
	put(&f, id, 4);
	put(&f, key(), 4);
	put(&f, place(64), 8);
	put(&f, value, 8);
	put(&f, op ? UINT64_MAX : 0, 8);
	put(&f, compare, 8);
	put(&f, mask, 8);
	say(&f);
}

static void atomics_and_immediates_are_those_of_the_standard(void)
{
	uint64_t *word;
	uint8_t u[9000];
	struct fpdu f;

	meet(false, false, 0);
	word = (uint64_t *)(t.m.p + 64);
	*word = 40;
	ask_atomic(0, 0xabc, 2, 0, 0);
	ask_atomic(2, 0xabd, 7, 42, UINT64_MAX);
	for (uint32_t i = 0; i < 2; i++) {
		SAME(hear_fpdu(u), 18 + 12);
		CHECK(u[0] == 0x41 && u[1] == (0x40 | ATOMIC_RESPONSE) && get(u + 6, 4) == 3 &&
		      get(u + 10, 4) == i + 1);
		SAME(get(u + 18, 4), 0xabc + i);
		SAME(get(u + 22, 8), i ? 42 : 40);
	}
	SAME(*(volatile uint64_t *)word, 7);
	post_recv(&t.l, 1, &t.m, 65536, 100);
	tagged(&f, LAST, WRITE, key(), place(128));
	add(&f, 30, 9);
	say(&f);
	untagged(&f, LAST, IMMEDIATE, 0, 0);
	put(&f, 0x01020304, 4);
	put(&f, 0, 4);
	say(&f);
	struct ibv_wc wc = expect(t.l.rcq, 1, IBV_WC_SUCCESS);

	CHECK(wc.opcode == IBV_WC_RECV_RDMA_WITH_IMM && wc.byte_len == 30 && !memcmp(&wc.imm_data, "\1\2\3\4", 4));
	all_are(t.m.p + 128, 30, 9);
}

/* --- hostile ones --- */

static void a_wrong_crc_at_the_end_of_much_places_nothing(void)
{
	struct fpdu f;

	meet(true, false, 0);
	t.crc = false; /* zeros instead */
	tagged(&f, LAST, WRITE, key(), place(0));
	add(&f, 8000, 3);
	say(&f);
	t.crc = true;
	expect_terminate(0x2002);
	all_are(t.m.p, 8192, 0);
}

static void a_marker_that_lies_ends_the_stream(void)
{
	struct fpdu f;

	meet(false, true, 0);
	t.lies = true;
	tagged(&f, LAST, WRITE, key(), place(0));
	add(&f, 2000, 3);
	say(&f);
	expect_terminate(0x2003);
	all_are(t.m.p, 4096, 0);
}

/* The key is valid, but belongs to another protection domain. */
static void memory_of_another_domain_is_not_touched(void)
{
	struct fpdu f;
	struct ibv_pd *pd;
	struct ibv_mr *mr;

	for (size_t n = 8; n <= 8000; n += 7992) {
		meet(false, false, 0);
		closed_calls = 0;
		CHECK((pd = ibv_alloc_pd(t.d.ctx)));
		CHECK((mr = ibv_reg_mr(pd, t.m.p, t.m.n, ALL_ACCESS)));
		tagged(&f, LAST, WRITE, mr->rkey, place(0));
		add(&f, n, 3);
		say(&f);
		expect_terminate(0x1102);
		all_are(t.m.p, 8192, 0);
		closed_calls = 0;
		close(t.fd);
	}
	meet(false, false, 0);
	CHECK((pd = ibv_alloc_pd(t.d.ctx)));
	CHECK((mr = ibv_reg_mr(pd, t.m.p, t.m.n, ALL_ACCESS)));
	ask_read(8, mr->rkey, place(0));
	expect_terminate(0x0103);
}

static void a_message_longer_than_its_receive_is_cut_off(void)
{
	struct fpdu f;

	meet(false, false, 0);
	post_recv(&t.l, 1, &t.m, 4096, 100);
	untagged(&f, MORE, SEND, 0, 0);
	add(&f, 60, 3);
	say(&f);
	untagged(&f, LAST, SEND, 0, 60);
	add(&f, 6000, 4);
	say(&f);
	expect_terminate(0x1205);
	SAME(wait_wc(t.l.rcq).status, IBV_WC_LOC_LEN_ERR);
	all_are(t.m.p + 4096 + 60, 8192, 0);
}

static void a_read_that_is_cut_off_ends_the_stream(void)
{
	struct fpdu f;
	uint8_t u[9000];

	meet(false, false, 0);
	for (int i = 0; i < 3; i++) { /* one after the other, any number is allowed */
		ask_read(8, key(), place(0));
		SAME(hear_fpdu(u), 22);
	}
	untagged(&f, LAST, READ_REQUEST, 1, 0);
	add(&f, 27, 0);
	say(&f);
	expect_terminate(0x02ff);
}

int main(int argc, char **argv)
{
	static const struct test tests[] = {
	        {"markers and FPDUs may be cut anywhere", markers_and_fpdus_may_be_cut_anywhere},
	        {"markers and FPDUs may be cut elsewhere", markers_and_fpdus_may_be_cut_elsewhere},
	        {"a write may go on for ever", a_write_may_go_on_for_ever},
	        {"a read of nothing names nothing", a_read_of_nothing_names_nothing},
	        {"atomics and immediates are those of the standard", atomics_and_immediates_are_those_of_the_standard},
	        {"a wrong CRC at the end of much places nothing", a_wrong_crc_at_the_end_of_much_places_nothing},
	        {"a marker that lies ends the stream", a_marker_that_lies_ends_the_stream},
	        {"memory of another domain is not touched", memory_of_another_domain_is_not_touched},
	        {"a message longer than its receive is cut off", a_message_longer_than_its_receive_is_cut_off},
	        {"a read that is cut off ends the stream", a_read_that_is_cut_off_ends_the_stream},
	};

	return RUN_TESTS(argc, argv, tests);
}
