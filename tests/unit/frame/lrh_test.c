// lrh_test.c - packets on an InfiniBand link: LRH, GRH, ICRC and VCRC, against bytes and sums computed elsewhere
// follows: IBA volume 1, 7.7 (LRH), 7.8 (ICRC, VCRC), 8.3 (GRH)
// SPDX-License-Identifier: MIT
#include "../../support/check.h"
#include "frame/icrc.h"
#include "frame/lrh.h"
#include "reference.h"

enum { BTH_AT = 8, PAYLOAD = 4, TRANSPORT = VB_BTH_LEN + PAYLOAD + VB_ICRC_LEN };

/* From LID 17 to LID 30, an RC SEND ONLY of "verb" with PSN 7. The sums are those of a long division bit by bit, and of zlib. */
static const uint8_t local[] = {0x00, 0x02, 0x00, 0x1e, 0x00, 0x07, 0x00, 0x11, 0x04, 0x40,
                                0xff, 0xff, 0x00, 0x01, 0x23, 0x45, 0x80, 0x00, 0x00, 0x07,
                                'v',  'e',  'r',  'b',  0x0a, 0xe7, 0xdf, 0x62, 0xb9, 0x0c};
/* The same with a GRH and SL 5. */
static const uint8_t global[] = {0x00, 0x53, 0x00, 0x1e, 0x00, 0x11, 0x00, 0x11, 0x62, 0xaa, 0xbc, 0xde, 0x00, 0x14,
                                 0x1b, 0x3f, 0xfe, 0x80, 0x00, 0x00, 0x00, 0x00, 0x00, 0x00, 0x00, 0x5e, 0x4b, 0x01,
                                 0x00, 0x00, 0x00, 0x11, 0xfe, 0x80, 0x00, 0x00, 0x00, 0x00, 0x00, 0x00, 0x00, 0x5e,
                                 0x4b, 0x01, 0x00, 0x00, 0x00, 0x1e, 0x04, 0x40, 0xff, 0xff, 0x00, 0x01, 0x23, 0x45,
                                 0x80, 0x00, 0x00, 0x07, 'v',  'e',  'r',  'b',  0x94, 0x9d, 0x31, 0x0a, 0x0d, 0x6c};

static struct vb_flow flow_of(bool with_grh)
{
	struct vb_flow f = {.slid = 17, .dlid = 30, .link = with_grh ? VB_LINK_GLOBAL : VB_LINK_LOCAL};

	f.sl = with_grh ? 5 : 0;
	vb_lid_address(f.src, 17);
	vb_lid_address(f.dst, 30);
	if (with_grh) {
		memcpy(f.src, global + 16, VB_GID_LEN);
		memcpy(f.dst, global + 32, VB_GID_LEN);
	}
	return f;
}

/* Writes the packet as a sender does, and compares it. */
static void same_packet(const uint8_t *want, size_t len, bool with_grh)
{
	static struct vb_icrc_cache cache;
	const struct vb_ip_fields ip = {.traffic_class = 0x2a, .flow_label = 0xabcde, .hop_limit = 63};
	struct vb_flow f = flow_of(with_grh);
	uint8_t got[128] = {0};
	size_t front = vb_link_front(got, &f, &ip, TRANSPORT);

	SAME(front, with_grh ? 48 : 8);
	memcpy(got + front, local + BTH_AT, VB_BTH_LEN + PAYLOAD);
	uint32_t crc = vb_icrc_packet(&cache, &f, 0, got + front, VB_BTH_LEN + PAYLOAD);
	SAME(crc, vb_icrc_start(&f, 0, got + front, VB_BTH_LEN + PAYLOAD, TRANSPORT));
	vb_icrc_encode(got + front + VB_BTH_LEN + PAYLOAD, crc);
	vb_vcrc_encode(got, front + TRANSPORT);
	SAME(front + TRANSPORT + VB_VCRC_LEN, len);
	for (size_t i = 0; i < len; i++)
		SAME(got[i], want[i]);
}

static void a_packet_has_its_headers_and_sums(void)
{
	same_packet(local, sizeof(local), false);
	same_packet(global, sizeof(global), true);
}

static void a_packet_is_decoded(void)
{
	struct vb_link_packet p;
	struct vb_ip_fields ip;
	struct vb_flow f, want = flow_of(true);

	SAME(vb_link_decode(&p, global, sizeof(global)), VB_LINK_OK);
	SAME(p.len, sizeof(global));
	SAME(p.transport_at, 48);
	SAME(p.transport_len, TRANSPORT);
	vb_link_addresses(&f, &ip, &p, global);
	CHECK(!memcmp(&f, &want, sizeof(f)));
	SAME(ip.traffic_class, 0x2a);
	SAME(ip.flow_label, 0xabcde);
	SAME(ip.hop_limit, 63);
	SAME(vb_link_decode(&p, local, sizeof(local)), VB_LINK_OK);
	vb_link_addresses(&f, &ip, &p, local);
	want = flow_of(false);
	CHECK(!memcmp(&f, &want, sizeof(f)));
}

static void packets_follow_one_another(void)
{
	uint8_t train[sizeof(local) + sizeof(global)];
	struct vb_link_packet p;

	memcpy(train, local, sizeof(local));
	memcpy(train + sizeof(local), global, sizeof(global));
	SAME(vb_link_decode(&p, train, sizeof(train)), VB_LINK_OK);
	SAME(p.len, sizeof(local));
	SAME(vb_link_decode(&p, train + p.len, sizeof(train) - p.len), VB_LINK_OK);
	SAME(p.len, sizeof(global));
}

static void each_changed_bit_is_noticed(void)
{
	uint8_t bytes[sizeof(global)];
	struct vb_link_packet p;

	for (size_t i = 0; i < 8 * sizeof(global); i++) {
		memcpy(bytes, global, sizeof(bytes));
		bytes[i / 8] ^= (uint8_t)(1 << i % 8);
		CHECK(vb_link_decode(&p, bytes, sizeof(bytes)) != VB_LINK_OK);
	}
}

static void a_checked_packet_needs_no_vcrc(void)
{
	uint8_t bytes[sizeof(global)];
	struct vb_link_packet p, q;

	memcpy(bytes, global, sizeof(bytes));
	bytes[sizeof(bytes) - 1] ^= 1;
	SAME(vb_link_decode(&p, bytes, sizeof(bytes)), VB_LINK_VCRC);
	SAME(vb_link_decode_trusted(&q, bytes, sizeof(bytes)), VB_LINK_OK);
	SAME(q.len, p.len);
	SAME(q.transport_at, p.transport_at);
	SAME(q.transport_len, p.transport_len);
	SAME(vb_link_decode_trusted(&q, bytes, sizeof(bytes) - 1), VB_LINK_SHORT);
}

static unsigned decoded(size_t at, uint8_t value)
{
	uint8_t bytes[sizeof(global)];
	struct vb_link_packet p;

	memcpy(bytes, global, sizeof(bytes));
	bytes[at] = value;
	return vb_link_decode(&p, bytes, sizeof(bytes));
}

static void a_wrong_header_is_told(void)
{
	struct vb_link_packet p;

	SAME(decoded(0, 0x01), VB_LINK_VERSION);
	SAME(decoded(1, 0x50), VB_LINK_NEXT);
	SAME(decoded(5, 0x12), VB_LINK_SHORT);
	SAME(decoded(5, 0x05), VB_LINK_SHORT);
	SAME(decoded(8, 0x42), VB_LINK_VERSION);
	SAME(decoded(13, 0x10), VB_LINK_GRH);
	SAME(decoded(14, 0x11), VB_LINK_GRH);
	SAME(decoded(30, 1), VB_LINK_VCRC);
	for (size_t n = 0; n < sizeof(global); n++)
		SAME(vb_link_decode(&p, global, n), VB_LINK_SHORT);
}

static void a_switch_may_change_the_lane_and_not_the_icrc(void)
{
	struct vb_flow f = flow_of(true);
	uint8_t masked[VB_LINK_FRONT_MAX];

	SAME(vb_link_front_masked(masked, &f, TRANSPORT), 48);
	SAME(masked[0], 0xf0);
	SAME(masked[8], 0x6f);
	SAME(masked[9] & masked[10] & masked[11] & masked[15], 0xff);
	SAME(masked[14], 0x1b);
}

static uint16_t bit_by_bit(const uint8_t *bytes, size_t len)
{
	uint16_t r = 0xffff;

	for (size_t i = 0; i < 8 * len; i++)
		r = (uint16_t)(r >> 1 ^ (((r ^ bytes[i / 8] >> i % 8) & 1) ? 0xd008 : 0));
	return (uint16_t)~r;
}

static void the_vcrc_is_the_same_by_all_ways(void)
{
	uint8_t bytes[4400], digits[] = "123456789";

	for (size_t i = 0; i < sizeof(bytes); i++)
		bytes[i] = (uint8_t)ref_random();
	SAME(vb_vcrc(0, digits, 9), 0x0a3d);
	for (size_t n = 0; n < 4300; n += n < 300 ? 1 : 37) {
		size_t at = n % 67;

		SAME(vb_vcrc(0, bytes + at, n), bit_by_bit(bytes + at, n));
		SAME(vb_vcrc_portable(0, bytes + at, n), bit_by_bit(bytes + at, n));
		SAME(vb_vcrc(vb_vcrc(0, bytes + at, n / 3), bytes + at + n / 3, n - n / 3), bit_by_bit(bytes + at, n));
	}
}

int main(void)
{
	RUN(a_packet_has_its_headers_and_sums);
	RUN(a_packet_is_decoded);
	RUN(packets_follow_one_another);
	RUN(each_changed_bit_is_noticed);
	RUN(a_checked_packet_needs_no_vcrc);
	RUN(a_wrong_header_is_told);
	RUN(a_switch_may_change_the_lane_and_not_the_icrc);
	RUN(the_vcrc_is_the_same_by_all_ways);
	return 0;
}
