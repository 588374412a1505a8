// wire_test.c - the messages between two rsockets, compared with literal bytes
// follows: rdma-core docs/rsocket (protocol version 1)
// SPDX-License-Identifier: MIT
#include "../../support/check.h"

#include <arpa/inet.h>
#include <stdalign.h>

#include "rsocket/rs_wire.h"

static const uint8_t conn_bytes[RS_CONN_LEN] = {
        1, 2, 0x01, 0x80, 0,    0,    0,    0x84,                                  /* version, flags, credits, iomap */
        0, 0, 0x7f, 0x12, 0x34, 0x56, 0x70, 0,    0, 0, 0x11, 0x22, 0, 0, 0, 2,    /* SGL */
        0, 0, 0x7f, 0xff, 0xee, 0xdd, 0x00, 0,    0, 0, 0x33, 0x44, 0, 1, 0, 0x00, /* buffer */
};
static const struct rs_conn conn = {.has_iomap = true,
                                    .credits = 384,
                                    .iomap_size = 1024,
                                    .sgl = {0x7f1234567000, 0x1122, 2},
                                    .buffer = {0x7fffeedd0000, 0x3344, 65536}};

static void connection_data_is_forty_bytes_in_network_order(void)
{
	uint8_t out[RS_CONN_LEN];
	struct rs_conn c;

	rs_conn_encode(out, &conn);
	CHECK(!memcmp(out, conn_bytes, sizeof(out)));
	CHECK(rs_conn_decode(&c, conn_bytes, sizeof(conn_bytes)));
	CHECK(c.credits == 384 && c.iomap_size == 1024 && c.has_iomap && !c.big_endian);
	CHECK(c.sgl.addr == conn.sgl.addr && c.sgl.key == conn.sgl.key && c.sgl.length == 2);
	CHECK(c.buffer.addr == conn.buffer.addr && c.buffer.length == 65536);
}

static void what_is_no_rsocket_is_refused(void)
{
	uint8_t in[64] = {0};
	struct rs_conn c;

	CHECK(!rs_conn_decode(&c, NULL, 0));
	CHECK(!rs_conn_decode(&c, in, sizeof(in)));
	memcpy(in, conn_bytes, sizeof(conn_bytes));
	CHECK(rs_conn_decode(&c, in, 56)); /* padded by IB */
	CHECK(!rs_conn_decode(&c, in, RS_CONN_LEN - 1));
	in[23] = 0; /* an SGL without entries */
	CHECK(!rs_conn_decode(&c, in, sizeof(in)));
	in[23] = 2;
	in[0] = 2;
	CHECK(!rs_conn_decode(&c, in, sizeof(in)));
}

static void a_message_has_its_type_on_top(void)
{
	CHECK(rs_msg(RS_DATA, 65536) == 0x00010000);
	CHECK(rs_msg(RS_CREDIT, 0xFFFF) == 0x8000FFFF);
	CHECK(rs_msg(RS_IOMAP, 3) == 0xC0000003);
	CHECK(rs_msg(RS_CONTROL, RS_CTRL_SHUTDOWN) == 0xE0000002);
	CHECK(rs_msg_type(0xE0000000) == RS_CONTROL && rs_msg_value(0xE0000001) == RS_CTRL_KEEPALIVE);
}

static void an_entry_is_written_in_its_owners_byte_order(void)
{
	struct rs_iomap m = {0x1122334455667788, {0x0102030405060708, 0x0A0B0C0D, 0x10203040}}, back;
	alignas(8) uint8_t here[RS_IOMAP_LEN], there[RS_IOMAP_LEN];

	rs_iomap_store(here, &m, false);
	rs_iomap_store(there, &m, true);
	back = rs_iomap_load(here);
	CHECK(back.offset == m.offset && back.sge.addr == m.sge.addr && back.sge.key == m.sge.key &&
	      back.sge.length == m.sge.length);
	for (int i = 0; i < 8; i++)
		CHECK(here[i] == there[7 - i] && here[8 + i] == there[15 - i]);
	for (int i = 0; i < 4; i++)
		CHECK(here[16 + i] == there[19 - i] && here[20 + i] == there[23 - i]);
}

static void iomap_sizes_fit_a_byte(void)
{
	CHECK(rs_iomap_scale(0) == 0 && rs_iomap_scale(128) == 128 && rs_iomap_scale(256) == 129);
	CHECK(rs_iomap_unscale(128) == 128 && rs_iomap_unscale(129) == 256 && rs_iomap_unscale(255) == 127 * 256);
	CHECK(rs_iomap_scale(UINT32_MAX) == 255);
	for (unsigned i = 0; i < 256; i++)
		CHECK(rs_iomap_scale(rs_iomap_unscale((uint8_t)i)) == i);
}

static union rs_addr v4(const char *text, uint16_t port)
{
	union rs_addr a = {.sin = {.sin_family = AF_INET, .sin_port = htons(port)}};

	CHECK(inet_pton(AF_INET, text, &a.sin.sin_addr) == 1);
	return a;
}

static union rs_addr v6(const char *text, uint16_t port)
{
	union rs_addr a = {.sin6 = {.sin6_family = AF_INET6, .sin6_port = htons(port)}};

	CHECK(inet_pton(AF_INET6, text, &a.sin6.sin6_addr) == 1);
	return a;
}

static void a_datagram_says_who_sent_it(void)
{
	static const uint8_t four[] = {4, 8, 0x1d, 0x33, 192, 0, 2, 1};
	union rs_addr a = v4("192.0.2.1", 7475), b = v6("2001:db8::1", 7475), back;
	uint8_t out[RS_UD_HEADER_MAX];

	CHECK(rs_ud_encode(out, &a) == 8 && !memcmp(out, four, 8));
	CHECK(rs_ud_decode(&back, out, 8) == 8 && rs_addr_equal(&a, &back));
	CHECK(!rs_ud_decode(&back, out, 7));
	CHECK(rs_ud_encode(out, &b) == 24 && out[0] == 6 && out[1] == 24);
	CHECK(rs_ud_decode(&back, out, 24) == 24 && rs_addr_equal(&b, &back));
	CHECK(!rs_ud_decode(&back, out, 23));
	out[1] = 8;
	CHECK(!rs_ud_decode(&back, out, 24));
}

static void a_datagram_by_udp_says_its_queue_pair(void)
{
	static const uint8_t four[] = {0x55, 0x55, 0x55, 0x55, 4, 7, 16, 0, 0, 0x12, 0x34, 0x56, 192, 0, 2, 1};
	struct rs_udp_header h = {.op = RS_CONTROL, .qpn = 0x123456, .local = v4("192.0.2.1", 1)}, back;
	uint8_t out[RS_UDP_HEADER_MAX];

	CHECK(rs_udp_encode(out, &h) == 16 && !memcmp(out, four, 16));
	CHECK(rs_udp_decode(&back, out, 16, AF_INET) == 16 && back.op == RS_CONTROL && back.qpn == 0x123456);
	CHECK(!rs_udp_decode(&back, out, 15, AF_INET));
	CHECK(!rs_udp_decode(&back, out, 16, AF_INET6));
	for (int i = 0; i < 7; i++) {
		uint8_t bad[16];

		memcpy(bad, four, 16);
		bad[i] ^= 0x10;
		CHECK(!rs_udp_decode(&back, bad, 16, AF_INET));
	}
	h.local = v6("2001:db8::1", 1);
	CHECK(rs_udp_encode(out, &h) == 28 && rs_udp_decode(&back, out, 28, AF_INET6) == 28);
}

int main(void)
{
	RUN(connection_data_is_forty_bytes_in_network_order);
	RUN(what_is_no_rsocket_is_refused);
	RUN(a_message_has_its_type_on_top);
	RUN(an_entry_is_written_in_its_owners_byte_order);
	RUN(iomap_sizes_fit_a_byte);
	RUN(a_datagram_says_who_sent_it);
	RUN(a_datagram_by_udp_says_its_queue_pair);
	return 0;
}
