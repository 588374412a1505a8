// icrc_test.c - the ICRC, compared with a second implementation and with packets of other implementations
// follows: IBA volume 1, 7.8.1 (ICRC); annex A17 (RoCEv2), A17.3.3 (CA17-22)
// SPDX-License-Identifier: MIT
#include "captures.h"
#include "../../support/check.h"
#include "frame/icrc.h"
#include "frame/packet.h"
#include "reference.h"

static const uint8_t v4_prefix[12] = {[10] = 0xff, [11] = 0xff};

/* A flow between random addresses. */
static struct vb_flow random_flow(bool ipv4)
{
	struct vb_flow f;

	ref_random_bytes(&f, sizeof(f));
	f.dport = VB_ROCE_PORT;
	f.link = VB_LINK_UDP;
	f.src[0] = f.dst[0] = 0x20;
	if (ipv4) {
		memcpy(f.src, v4_prefix, 12);
		memcpy(f.dst, v4_prefix, 12);
	}
	return f;
}

/* Builds the IP packet around a UDP payload. Fields that routers may change are random. Returns its length. */
#define IP_PACKET_MAX (40 + 8 + REF_PACKET_MAX)
static size_t ip_packet(uint8_t *ip, const struct vb_flow *f, uint16_t id, const uint8_t *udp_payload, size_t len)
{
	bool ipv4 = !memcmp(f->src, v4_prefix, 12);
	size_t udp = ipv4 ? 20 : 40, total = udp + 8 + len;

	ref_random_bytes(ip, udp + 8);
	if (ipv4) {
		ip[0] = 0x45;
		ip[2] = (uint8_t)(total >> 8);
		ip[3] = (uint8_t)total;
		ip[4] = (uint8_t)(id >> 8);
		ip[5] = (uint8_t)id;
		ip[6] = 0x40;
		ip[7] = 0;
		ip[9] = 17;
		memcpy(ip + 12, f->src + 12, 4);
		memcpy(ip + 16, f->dst + 12, 4);
	} else {
		ip[0] = 0x60 | (ip[0] & 15);
		ip[4] = (uint8_t)((8 + len) >> 8);
		ip[5] = (uint8_t)(8 + len);
		ip[6] = 17;
		memcpy(ip + 8, f->src, 16);
		memcpy(ip + 24, f->dst, 16);
	}
	ip[udp] = (uint8_t)(f->sport >> 8);
	ip[udp + 1] = (uint8_t)f->sport;
	ip[udp + 2] = (uint8_t)(f->dport >> 8);
	ip[udp + 3] = (uint8_t)f->dport;
	ip[udp + 4] = (uint8_t)((8 + len) >> 8);
	ip[udp + 5] = (uint8_t)(8 + len);
	memcpy(ip + udp + 8, udp_payload, len);
	return total;
}

/* A valid packet: a random opcode, flow and payload. Returns the length of its UDP payload. */
static size_t sealed_packet(uint8_t *udp_payload, const struct vb_flow *f, uint16_t id)
{
	static uint8_t ip[IP_PACKET_MAX];
	const struct ref_opcode *o = &ref_opcodes[ref_random() % ref_opcodes_len];
	size_t payload = o->payload ? ref_random() % 4097 & (o->last ? ~0u : ~3u) : 0;
	size_t len = ref_packet(udp_payload, o, payload);
	size_t total = ip_packet(ip, f, id, udp_payload, len);

	ref_icrc(ip, total, udp_payload + len - 4);
	return len;
}

static void both_crcs_are_the_standard_one(void)
{
	CHECK(vb_crc32(0, "123456789", 9) == 0xcbf43926); /* the check value in catalogues of CRCs */
	CHECK(vb_crc32_portable(0, "123456789", 9) == 0xcbf43926);
	CHECK(ref_crc32((const uint8_t *)"123456789", 9) == 0xcbf43926);
	CHECK(vb_crc32(0x1234, "", 0) == 0x1234 && vb_crc32_portable(0x1234, "", 0) == 0x1234);
}

static void both_crcs_are_right_at_every_length_and_alignment(void)
{
	static uint8_t bytes[5000];

	ref_random_bytes(bytes, sizeof(bytes));
	for (size_t len = 0; len < 700; len++) {
		for (size_t at = 0; at < 9; at++) {
			uint32_t want = ref_crc32(bytes + at, len);

			CHECK(vb_crc32(0, bytes + at, len) == want);
			CHECK(vb_crc32_portable(0, bytes + at, len) == want);
		}
	}
	for (size_t len = 4000; len < 5000; len += 37)
		CHECK(vb_crc32(0, bytes, len) == ref_crc32(bytes, len));
	/* each bit at each offset in a step of eight bytes */
	for (int bit = 0; bit < 64 * 8; bit++) {
		uint8_t one[64] = {0};

		one[bit / 8] = (uint8_t)(1 << bit % 8);
		CHECK(vb_crc32_portable(0, one, 64) == ref_crc32(one, 64));
	}
}

static void a_crc_goes_over_pieces(void)
{
	static uint8_t bytes[4096];

	ref_random_bytes(bytes, sizeof(bytes));
	for (int i = 0; i < 1000; i++) {
		uint32_t crc = 0, portable = 0;
		size_t len = ref_random() % sizeof(bytes), piece;

		for (size_t at = 0; at < len; at += piece) {
			piece = ref_random() % (len - at + 1);
			crc = vb_crc32(crc, bytes + at, piece);
			portable = vb_crc32_portable(portable, bytes + at, piece);
		}
		CHECK(crc == ref_crc32(bytes, len) && portable == crc);
	}
}

/* The UDP payload of a captured packet, and its flow. Returns its length. */
#define IP_LEN(ip) ((ip)[0] >> 4 == 4 ? 20u : 40u)
static size_t captured(const struct capture *c, uint8_t ip[IP_PACKET_MAX], struct vb_flow *f,
                       const uint8_t **udp_payload)
{
	size_t len = ref_hex(ip, IP_PACKET_MAX, c->ip);
	const uint8_t *udp = ip + IP_LEN(ip);

	*f = (struct vb_flow){.sport = (uint16_t)(udp[0] << 8 | udp[1]), .dport = (uint16_t)(udp[2] << 8 | udp[3])};
	if (IP_LEN(ip) == 20) {
		memcpy(f->src, v4_prefix, 12);
		memcpy(f->dst, v4_prefix, 12);
		memcpy(f->src + 12, ip + 12, 4);
		memcpy(f->dst + 12, ip + 16, 4);
	} else {
		memcpy(f->src, ip + 8, 16);
		memcpy(f->dst, ip + 24, 16);
	}
	*udp_payload = udp + 8;
	return len - IP_LEN(ip) - 8;
}

/* The second implementation, ours, and the decoder agree with the sender. */
static void check_capture(const struct capture *c)
{
	uint8_t ip[IP_PACKET_MAX];
	const uint8_t *udp_payload;
	struct vb_flow f;
	struct vb_packet p;
	size_t len = captured(c, ip, &f, &udp_payload);
	uint16_t id = IP_LEN(ip) == 20 ? (uint16_t)(ip[4] << 8 | ip[5]) : 0;

	CHECK(ref_icrc_ok(ip, IP_LEN(ip) + 8 + len));
	CHECK(vb_packet_decode(&p, udp_payload, len) == VB_PACKET_OK);
	CHECK(!strcmp(p.info->name, c->opcode));
	CHECK(vb_icrc_check(&f, id, udp_payload, len) == 0);
	CHECK(vb_icrc_find_id(vb_icrc_check(&f, 0, udp_payload, len), 0, len) == id);
}

static void captured_packets_have_the_icrc_that_we_compute(void)
{
	for (size_t i = 0; i < sizeof(captures) / sizeof(*captures); i++)
		check_capture(&captures[i]);
}

/* The work requests posted on rxe, as its packets show them. */
static void captured_fields_are_what_was_posted(void)
{
	uint8_t ip[IP_PACKET_MAX];
	const uint8_t *udp_payload;
	struct vb_flow f;
	struct vb_packet p;
	int seen = 0;

	for (size_t i = 1; i < sizeof(captures) / sizeof(*captures); i++) {
		size_t len = captured(&captures[i], ip, &f, &udp_payload);

		CHECK(vb_packet_decode(&p, udp_payload, len) == VB_PACKET_OK);
		CHECK(p.bth.pkey == 0xffff && p.bth.dest_qpn == (p.info->service == VB_SVC_UD ? 0x654321 : 0x123456));
		if (p.info->op == VB_OP_WRITE && p.info->ext & VB_EXT_RETH) {
			CHECK(p.reth.va == 0xdeadbeef1000 && p.reth.rkey == 0x11223344);
			seen |= 1;
		} else if (p.bth.opcode == VB_RC_CMP_SWAP) {
			CHECK(p.atomic.va == 0xdeadbeef2000 && p.atomic.rkey == 0x55667788);
			CHECK(p.atomic.compare == 0x1111111122222222 && p.atomic.swap_add == 0x3333333344444444);
			seen |= 2;
		} else if (p.bth.opcode == VB_RC_FETCH_ADD) {
			CHECK(p.atomic.va == 0xdeadbeef2000 && p.atomic.swap_add == 0x5555555566666666);
			seen |= 4;
		} else if (p.bth.opcode == VB_UD_SEND_ONLY_IMM) {
			CHECK(p.deth.qkey == 0x22222222 && p.immdt.data == 0x34333231 && p.payload_len == 0);
			seen |= 8;
		} else if (p.bth.opcode == VB_RC_ATOMIC_ACK) {
			CHECK(p.aeth.kind == VB_AETH_ACK && p.aeth.value == VB_CREDITS_UNLIMITED);
			CHECK(p.atomic_ack.original == 0x948d867f78716a63);
			seen |= 16;
		} else if (p.bth.opcode == VB_RC_ACK) {
			seen |= 32 << p.aeth.kind; /* of each kind: ACK 32, RNR 64, NAK 256 */
		}
	}
	CHECK(seen == (1 | 2 | 4 | 8 | 16 | 32 | 64 | 256));
}

static void random_packets_have_the_icrc_of_the_second_implementation(void)
{
	static uint8_t bytes[REF_PACKET_MAX];

	for (int i = 0; i < 5000; i++) {
		struct vb_flow f = random_flow(i % 2);
		uint16_t id = (uint16_t)ref_random();
		size_t len = sealed_packet(bytes, &f, id);

		CHECK(vb_icrc_check(&f, id, bytes, len) == 0);
	}
}

static void an_icrc_is_made_of_headers_and_pieces_of_payload(void)
{
	static uint8_t bytes[REF_PACKET_MAX];

	for (int i = 0; i < 1000; i++) {
		struct vb_flow f = random_flow(i % 2);
		size_t len = sealed_packet(bytes, &f, 5), piece;
		struct vb_packet p;
		uint8_t icrc[4];

		CHECK(vb_packet_decode(&p, bytes, len) == VB_PACKET_OK);
		uint32_t crc = vb_icrc_start(&f, 5, bytes, p.info->header_len, len);

		for (size_t at = p.payload_at; at < len - 4; at += piece) {
			piece = 1 + ref_random() % (len - 4 - at);
			crc = vb_crc32(crc, bytes + at, piece);
		}
		vb_icrc_encode(icrc, crc);
		CHECK(!memcmp(icrc, bytes + len - 4, 4));
		CHECK(vb_icrc_residual(icrc, crc) == 0);
	}
}

static void a_flipped_bit_is_seen_but_for_those_of_resv8a(void)
{
	static uint8_t bytes[REF_PACKET_MAX];
	struct vb_flow f = random_flow(true);
	size_t len;

	do
		len = sealed_packet(bytes, &f, 0);
	while (len > 600);
	for (size_t bit = 0; bit < len * 8; bit++) {
		bytes[bit / 8] ^= (uint8_t)(1 << bit % 8);
		CHECK((vb_icrc_check(&f, 0, bytes, len) == 0) == (bit / 8 == 4));
		bytes[bit / 8] ^= (uint8_t)(1 << bit % 8);
	}
}

static void every_identification_is_found(void)
{
	static uint8_t bytes[REF_PACKET_MAX];
	struct vb_flow f = random_flow(true);

	for (uint32_t id = 0; id < 65536; id++) {
		size_t len = sealed_packet(bytes, &f, (uint16_t)id);
		uint16_t guess = id % 3 ? 0 : (uint16_t)ref_random();
		uint32_t residual = vb_icrc_check(&f, guess, bytes, len);

		CHECK((residual == 0) == (guess == id));
		CHECK(vb_icrc_find_id(residual, guess, len) == (int)id);
	}
}

static void a_corrupted_packet_seldom_has_an_identification_that_fits(void)
{
	static uint8_t bytes[REF_PACKET_MAX];
	int fits = 0, tries = 100000;
	struct vb_flow f = random_flow(true);
	size_t len = sealed_packet(bytes, &f, 0);

	while (len < 100)
		len = sealed_packet(bytes, &f, 0);
	for (int i = 0; i < tries; i++) {
		size_t at = 12 + ref_random() % (len - 20);

		uint8_t kept[8];

		memcpy(kept, bytes + at, 8);
		ref_random_bytes(bytes + at, 8);
		uint32_t residual = vb_icrc_check(&f, 0, bytes, len);

		CHECK(residual != 0);
		fits += vb_icrc_find_id(residual, 0, len) >= 0;
		memcpy(bytes + at, kept, 8);
	}
	CHECK(fits <= 10); /* one in 65536 is expected */
}

static void a_single_flipped_bit_never_has_an_identification_that_fits(void)
{
	static uint8_t bytes[REF_PACKET_MAX];
	struct vb_flow f = random_flow(true);
	size_t len;

	do
		len = sealed_packet(bytes, &f, 0);
	while (len < 4000);
	for (size_t bit = 0; bit < len * 8; bit++) {
		if (bit / 8 == 4)
			continue;
		bytes[bit / 8] ^= (uint8_t)(1 << bit % 8);
		CHECK(vb_icrc_find_id(vb_icrc_check(&f, 0, bytes, len), 0, len) == -1);
		bytes[bit / 8] ^= (uint8_t)(1 << bit % 8);
	}
}

static void what_is_no_packet_is_wrong_and_not_read(void)
{
	uint8_t *none = malloc(1);
	struct vb_flow f = random_flow(true);

	for (size_t len = 0; len < 16; len++)
		CHECK(vb_icrc_check(&f, 0, none, len) != 0);
	free(none);
	CHECK(vb_icrc_find_id(1, 0, 0) == -1 && vb_icrc_find_id(1, 0, 3) == -1);
	CHECK(vb_icrc_find_id(1, 0, SIZE_MAX) == -1 && vb_icrc_find_id(1, 0, 65536) == -1);
	CHECK(vb_icrc_find_id(0, 7, 65535) == 7 && vb_icrc_find_id(0, 7, 16) == 7);
}

/* Otherwise each of the other evicts the cached state of one. */
static void packets_of_a_flow_that_take_turns_are_known_at_once(void)
{
	static const size_t headers[] = {VB_BTH_LEN, VB_BTH_LEN + 4, VB_BTH_LEN + 16, VB_BTH_LEN + 20};
	static struct vb_icrc_cache cache;
	const struct vb_icrc_known *seen[5];
	struct vb_flow f = {.sport = 0xc123, .dport = 4791};

	for (size_t mtu = 256; mtu <= 4096; mtu *= 2) {
		memset(&cache, 0, sizeof(cache));
		seen[0] = vb_icrc_known(&cache, &f, VB_BTH_LEN + 4 + VB_ICRC_LEN); /* an acknowledgement */
		for (int i = 0; i < 4; i++) {
			seen[i + 1] = vb_icrc_known(&cache, &f, headers[i] + mtu + VB_ICRC_LEN);
			for (int k = 0; k <= i; k++)
				CHECK(seen[k] != seen[i + 1]);
		}
	}
}

static void a_cached_flow_gives_the_icrc_of_every_identification(void)
{
	static struct vb_icrc_cache cache;
	uint8_t packet[VB_BTH_LEN + 12] = {0};
	const struct vb_flow f[] = {random_flow(false), random_flow(true)};

	for (uint32_t id = 0; id <= UINT16_MAX; id++) {
		for (int i = 0; i < 2; i++) {
			ref_random_bytes(packet, sizeof(packet));
			CHECK(vb_icrc_packet(&cache, &f[i], (uint16_t)id, packet, sizeof(packet)) ==
			      vb_icrc_start(&f[i], (uint16_t)id, packet, sizeof(packet), sizeof(packet) + VB_ICRC_LEN));
		}
	}
}

int main(void)
{
	RUN(both_crcs_are_the_standard_one);
	RUN(both_crcs_are_right_at_every_length_and_alignment);
	RUN(a_crc_goes_over_pieces);
	RUN(captured_packets_have_the_icrc_that_we_compute);
	RUN(captured_fields_are_what_was_posted);
	RUN(random_packets_have_the_icrc_of_the_second_implementation);
	RUN(an_icrc_is_made_of_headers_and_pieces_of_payload);
	RUN(a_flipped_bit_is_seen_but_for_those_of_resv8a);
	RUN(every_identification_is_found);
	RUN(a_corrupted_packet_seldom_has_an_identification_that_fits);
	RUN(a_single_flipped_bit_never_has_an_identification_that_fits);
	RUN(what_is_no_packet_is_wrong_and_not_read);
	RUN(packets_of_a_flow_that_take_turns_are_known_at_once);
	RUN(a_cached_flow_gives_the_icrc_of_every_identification);
	return 0;
}
