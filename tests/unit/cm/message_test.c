// message_test.c - every field of every message is where the specification says, and is decoded from there
// follows: IBA volume 1, 12.6, 12.8, 12.11 (tables of message contents), 13.4.2; annex A11
// SPDX-License-Identifier: MIT
#include "../../support/check.h"
#include "frame/cm.h"

/* A field: byte after the MAD header, bit from the highest of that byte, width in bits, offset in the struct; for
 * three-byte fields, the number of bits after which another field intervenes. */
struct field {
	enum vb_cm_attr attr;
	int16_t byte;
	uint16_t bit, width;
	size_t at, size;
	uint16_t split;
};

#define SPLIT(NAME, m, byte, bit, width, f, split)                                                                     \
	{                                                                                                              \
		VB_CM_##NAME, byte, bit, width, offsetof(struct vb_cm_msg, m.f), sizeof(((struct vb_cm_msg *)0)->m.f), \
		        split                                                                                          \
	}
#define F(NAME, m, byte, bit, width, f) SPLIT(NAME, m, byte, bit, width, f, width)
#define ECE(NAME, m, byte, split) F(NAME, m, -4, 0, 32, ece.options), SPLIT(NAME, m, byte, 0, 24, ece.vendor_id, split)

#define REQ_PATH(p, base)                                                                                 \
	F(REQ, req, base, 0, 16, p.local_lid), F(REQ, req, base + 2, 0, 16, p.remote_lid),                \
	        F(REQ, req, base + 4, 0, 128, p.local_gid), F(REQ, req, base + 20, 0, 128, p.remote_gid), \
	        F(REQ, req, base + 36, 0, 20, p.flow_label), F(REQ, req, base + 39, 2, 6, p.packet_rate), \
	        F(REQ, req, base + 40, 0, 8, p.traffic_class), F(REQ, req, base + 41, 0, 8, p.hop_limit), \
	        F(REQ, req, base + 42, 0, 4, p.sl), F(REQ, req, base + 42, 4, 1, p.subnet_local),         \
	        F(REQ, req, base + 43, 0, 5, p.ack_timeout)

static const struct field fields[] = {
        F(REQ, req, 0, 0, 32, local_comm_id),
        ECE(REQ, req, 5, 24),
        F(REQ, req, 8, 0, 64, service_id),
        F(REQ, req, 16, 0, 64, local_ca_guid),
        F(REQ, req, 28, 0, 32, local_qkey),
        F(REQ, req, 32, 0, 24, local_qpn),
        F(REQ, req, 35, 0, 8, responder_resources),
        F(REQ, req, 36, 0, 24, local_eecn),
        F(REQ, req, 39, 0, 8, initiator_depth),
        F(REQ, req, 40, 0, 24, remote_eecn),
        F(REQ, req, 43, 0, 5, remote_response_timeout),
        F(REQ, req, 43, 5, 2, transport),
        F(REQ, req, 43, 7, 1, flow_control),
        F(REQ, req, 44, 0, 24, starting_psn),
        F(REQ, req, 47, 0, 5, local_response_timeout),
        F(REQ, req, 47, 5, 3, retry_count),
        F(REQ, req, 48, 0, 16, pkey),
        F(REQ, req, 50, 0, 4, mtu),
        F(REQ, req, 50, 4, 1, rdc_exists),
        F(REQ, req, 50, 5, 3, rnr_retry_count),
        F(REQ, req, 51, 0, 4, max_cm_retries),
        F(REQ, req, 51, 4, 1, srq),
        F(REQ, req, 51, 5, 3, extended_transport),
        REQ_PATH(primary, 52),
        REQ_PATH(alternate, 96),
        F(REQ, req, 139, 5, 1, sap_supported),
        F(REQ, req, 140, 0, 736, private_data),

        F(MRA, mra, 0, 0, 32, local_comm_id),
        F(MRA, mra, 4, 0, 32, remote_comm_id),
        F(MRA, mra, 8, 0, 2, answers),
        F(MRA, mra, 9, 0, 5, service_timeout),
        F(MRA, mra, 10, 0, 1776, private_data),

        F(REJ, rej, 0, 0, 32, local_comm_id),
        F(REJ, rej, 4, 0, 32, remote_comm_id),
        F(REJ, rej, 8, 0, 2, answers),
        F(REJ, rej, 9, 0, 7, ari_len),
        F(REJ, rej, 10, 0, 16, reason),
        F(REJ, rej, 12, 0, 576, ari),
        F(REJ, rej, 84, 0, 1184, private_data),

        F(REP, rep, 0, 0, 32, local_comm_id),
        F(REP, rep, 4, 0, 32, remote_comm_id),
        F(REP, rep, 8, 0, 32, local_qkey),
        F(REP, rep, 12, 0, 24, local_qpn),
        ECE(REP, rep, 15, 8),
        F(REP, rep, 16, 0, 24, local_eecn),
        F(REP, rep, 20, 0, 24, starting_psn),
        F(REP, rep, 24, 0, 8, responder_resources),
        F(REP, rep, 25, 0, 8, initiator_depth),
        F(REP, rep, 26, 0, 5, target_ack_delay),
        F(REP, rep, 26, 5, 2, failover_accepted),
        F(REP, rep, 26, 7, 1, flow_control),
        F(REP, rep, 27, 0, 3, rnr_retry_count),
        F(REP, rep, 27, 3, 1, srq),
        F(REP, rep, 28, 0, 64, local_ca_guid),
        F(REP, rep, 36, 0, 1568, private_data),

        F(RTU, rtu, 0, 0, 32, local_comm_id),
        F(RTU, rtu, 4, 0, 32, remote_comm_id),
        F(RTU, rtu, 8, 0, 1792, private_data),

        F(DREQ, dreq, 0, 0, 32, local_comm_id),
        F(DREQ, dreq, 4, 0, 32, remote_comm_id),
        F(DREQ, dreq, 8, 0, 24, remote_qpn),
        F(DREQ, dreq, 12, 0, 1760, private_data),

        F(DREP, drep, 0, 0, 32, local_comm_id),
        F(DREP, drep, 4, 0, 32, remote_comm_id),
        F(DREP, drep, 8, 0, 1792, private_data),

        F(LAP, lap, 0, 0, 32, local_comm_id),
        F(LAP, lap, 4, 0, 32, remote_comm_id),
        F(LAP, lap, 12, 0, 24, remote_qpn),
        F(LAP, lap, 15, 0, 5, remote_response_timeout),
        F(LAP, lap, 20, 0, 16, alternate.local_lid),
        F(LAP, lap, 22, 0, 16, alternate.remote_lid),
        F(LAP, lap, 24, 0, 128, alternate.local_gid),
        F(LAP, lap, 40, 0, 128, alternate.remote_gid),
        F(LAP, lap, 56, 0, 20, alternate.flow_label),
        F(LAP, lap, 59, 0, 8, alternate.traffic_class),
        F(LAP, lap, 60, 0, 8, alternate.hop_limit),
        F(LAP, lap, 61, 2, 6, alternate.packet_rate),
        F(LAP, lap, 62, 0, 4, alternate.sl),
        F(LAP, lap, 62, 4, 1, alternate.subnet_local),
        F(LAP, lap, 63, 0, 5, alternate.ack_timeout),
        F(LAP, lap, 64, 0, 1344, private_data),

        F(APR, apr, 0, 0, 32, local_comm_id),
        F(APR, apr, 4, 0, 32, remote_comm_id),
        F(APR, apr, 8, 0, 8, ari_len),
        F(APR, apr, 9, 0, 8, status),
        F(APR, apr, 12, 0, 576, ari),
        F(APR, apr, 84, 0, 1184, private_data),

        F(SIDR_REQ, sidr_req, 0, 0, 32, request_id),
        F(SIDR_REQ, sidr_req, 4, 0, 16, pkey),
        F(SIDR_REQ, sidr_req, 8, 0, 64, service_id),
        F(SIDR_REQ, sidr_req, 16, 0, 1728, private_data),

        F(SIDR_REP, sidr_rep, 0, 0, 32, request_id),
        F(SIDR_REP, sidr_rep, 4, 0, 8, status),
        F(SIDR_REP, sidr_rep, 5, 0, 8, ari_len),
        ECE(SIDR_REP, sidr_rep, 6, 16),
        F(SIDR_REP, sidr_rep, 8, 0, 24, qpn),
        F(SIDR_REP, sidr_rep, 12, 0, 64, service_id),
        F(SIDR_REP, sidr_rep, 20, 0, 32, qkey),
        F(SIDR_REP, sidr_rep, 24, 0, 576, ari),
        F(SIDR_REP, sidr_rep, 96, 0, 1088, private_data),
};

static const enum vb_cm_attr attrs[] = {
#define X(code, name, field, len) VB_CM_##name,
        VB_CM_MESSAGES(X)
#undef X
};

#define COUNT(a) (sizeof(a) / sizeof(*(a)))

static uint64_t random_state = 1;

static uint64_t random64(void)
{
	uint64_t z = random_state += 0x9e3779b97f4a7c15;

	z = (z ^ z >> 30) * 0xbf58476d1ce4e5b9;
	z = (z ^ z >> 27) * 0x94d049bb133111eb;
	return z ^ z >> 31;
}

static void put_bit(uint8_t *mad, unsigned bit, bool v)
{
	mad[bit / 8] |= (uint8_t)(v << (7 - bit % 8));
}

/* The position of bit i of the field, from the start of the MAD. */
static unsigned bit_at(const struct field *f, unsigned i)
{
	return (unsigned)(VB_MAD_HEADER_LEN + f->byte) * 8 + f->bit + i + i / f->split * 24;
}

static void store(struct vb_cm_msg *m, const struct field *f, uint64_t v)
{
	uint8_t *at = (uint8_t *)m + f->at;

	switch (f->size) {
	case 1:
		*at = (uint8_t)v;
		break;
	case 2:
		memcpy(at, &(uint16_t){(uint16_t)v}, 2);
		break;
	case 4:
		memcpy(at, &(uint32_t){(uint32_t)v}, 4);
		break;
	case 8:
		memcpy(at, &v, 8);
		break;
	default:
		CHECK(0);
	}
}

/* Sets the field, in the struct and in the message. */
static void set(struct vb_cm_msg *m, uint8_t *mad, const struct field *f, uint64_t v)
{
	unsigned bit = bit_at(f, 0);

	if (f->width > 64) {
		CHECK(f->size == f->width / 8);
		for (size_t i = 0; i < f->size; i++)
			((uint8_t *)m)[f->at + i] = mad[bit / 8 + i] = v ? (uint8_t)random64() : 0;
		return;
	}
	if (f->width < 64)
		v &= (UINT64_C(1) << f->width) - 1;
	if (f->at == offsetof(struct vb_cm_msg, rej.ari_len) && f->attr == VB_CM_REJ)
		v %= VB_CM_ARI + 1;
	if ((f->at == offsetof(struct vb_cm_msg, apr.ari_len) && f->attr == VB_CM_APR) ||
	    (f->at == offsetof(struct vb_cm_msg, sidr_rep.ari_len) && f->attr == VB_CM_SIDR_REP))
		v %= VB_CM_ARI + 1;
	store(m, f, v);
	for (unsigned i = 0; i < f->width; i++)
		put_bit(mad, bit_at(f, i), v >> (f->width - 1 - i) & 1);
}

static void put_header(uint8_t *mad, struct vb_cm_msg *m, enum vb_cm_attr attr)
{
	const uint8_t head[] = {1, 7, 2, 3};

	memset(mad, 0, VB_MAD_LEN);
	memset(m, 0, sizeof(*m));
	memcpy(mad, head, sizeof(head));
	m->attr = attr;
	m->tid = random64();
	for (int i = 0; i < 8; i++)
		mad[8 + i] = (uint8_t)(m->tid >> (56 - 8 * i));
	mad[17] = (uint8_t)attr;
}

static void check(const struct vb_cm_msg *m, const uint8_t *mad)
{
	uint8_t got[VB_MAD_LEN];
	struct vb_cm_msg back;

	memset(got, 0xee, sizeof(got));
	vb_cm_encode(got, m);
	CHECK(!memcmp(got, mad, VB_MAD_LEN));
	memset(&back, 0, sizeof(back));
	CHECK(vb_cm_decode(&back, mad, VB_MAD_LEN));
	CHECK(back.attr == m->attr && back.tid == m->tid);
	vb_cm_encode(got, &back);
	CHECK(!memcmp(got, mad, VB_MAD_LEN));
	/* field by field, because of the padding between fields */
	for (size_t i = 0; i < COUNT(fields); i++)
		if (fields[i].attr == m->attr)
			CHECK(!memcmp((const uint8_t *)&back + fields[i].at, (const uint8_t *)m + fields[i].at,
			              fields[i].size));
}

static void each_field_alone_stands_at_its_offset(void)
{
	for (size_t i = 0; i < COUNT(fields); i++) {
		struct vb_cm_msg m;
		uint8_t mad[VB_MAD_LEN];

		put_header(mad, &m, fields[i].attr);
		set(&m, mad, &fields[i], UINT64_MAX);
		check(&m, mad);
	}
}

static void all_fields_together_round_trip(void)
{
	for (int round = 0; round < 200; round++)
		for (size_t a = 0; a < COUNT(attrs); a++) {
			struct vb_cm_msg m;
			uint8_t mad[VB_MAD_LEN];

			put_header(mad, &m, attrs[a]);
			for (size_t i = 0; i < COUNT(fields); i++)
				if (fields[i].attr == attrs[a])
					set(&m, mad, &fields[i], random64() | 1);
			check(&m, mad);
		}
}

static void private_data_ends_where_the_datagram_ends(void)
{
	for (size_t i = 0; i < COUNT(fields); i++)
		if (fields[i].width > 576)
			CHECK(VB_MAD_HEADER_LEN + fields[i].byte + fields[i].width / 8 == VB_MAD_LEN);
}

static void reserved_bits_are_not_looked_at(void)
{
	for (size_t a = 0; a < COUNT(attrs); a++) {
		struct vb_cm_msg m, other;
		uint8_t mad[VB_MAD_LEN], noise[VB_MAD_LEN], mask[VB_MAD_LEN];

		put_header(mask, &m, attrs[a]);
		memset(mask, 0xff, VB_MAD_HEADER_LEN);
		mask[18] = mask[19] = 0;
		for (size_t i = 0; i < COUNT(fields); i++)
			for (unsigned b = 0; fields[i].attr == attrs[a] && b < fields[i].width; b++)
				put_bit(mask, bit_at(&fields[i], b), true);
		put_header(mad, &m, attrs[a]);
		for (int i = 0; i < VB_MAD_LEN; i++)
			noise[i] = (uint8_t)(mad[i] | (~mask[i] & 0xff));
		CHECK(vb_cm_decode(&other, noise, VB_MAD_LEN));
		vb_cm_encode(noise, &other);
		CHECK(!memcmp(noise, mad, VB_MAD_LEN));
	}
}

static void what_is_no_message_of_the_class_is_refused_and_touches_nothing(void)
{
	struct vb_cm_msg m, before;
	uint8_t mad[VB_MAD_LEN];

	put_header(mad, &m, VB_CM_REQ);
	memset(&m, 0xaa, sizeof(m));
	before = m;
	for (size_t len = 0; len < VB_MAD_LEN; len++)
		CHECK(!vb_cm_decode(&m, mad, len));
	CHECK(!vb_cm_decode(&m, mad, VB_MAD_LEN + 1));
	for (int i = 0; i < 4; i++) {
		mad[i] ^= 0x80;
		CHECK(!vb_cm_decode(&m, mad, VB_MAD_LEN));
		mad[i] ^= 0x80;
	}
	for (unsigned attr = 0; attr < 65536; attr++) {
		mad[16] = (uint8_t)(attr >> 8);
		mad[17] = (uint8_t)attr;
		if (attr < 0x10 || attr > 0x1a)
			CHECK(!vb_cm_decode(&m, mad, VB_MAD_LEN));
	}
	CHECK(!memcmp(&m, &before, sizeof(m)));
}

static void additional_information_that_is_too_long_is_cut(void)
{
	struct vb_cm_msg m;
	uint8_t mad[VB_MAD_LEN];

	put_header(mad, &m, VB_CM_REJ);
	mad[VB_MAD_HEADER_LEN + 9] = 127 << 1;
	CHECK(vb_cm_decode(&m, mad, VB_MAD_LEN) && m.rej.ari_len == VB_CM_ARI);
	put_header(mad, &m, VB_CM_SIDR_REP);
	mad[VB_MAD_HEADER_LEN + 5] = 255;
	CHECK(vb_cm_decode(&m, mad, VB_MAD_LEN) && m.sidr_rep.ari_len == VB_CM_ARI);
}

static void addresses_stand_in_front_of_private_data(void)
{
	static const uint8_t v4[VB_CMA_LEN] = {0, 0x40, 0x12, 0x34, [16] = 192, 0, 2, 1, [32] = 192, 0, 2, 2};
	static const uint8_t v6[VB_CMA_LEN] = {0,    0x60,     0xff, 0xfe, 0x20, 1,    0xd,
	                                       0xb8, [19] = 7, 0x20, 1,    0xd,  0xb8, [35] = 9};
	struct vb_cma c;
	uint8_t got[VB_CMA_LEN];

	CHECK(vb_cma_decode(&c, v4) && c.src_port == 0x1234);
	CHECK(vb_gid_is_ipv4(c.src) && vb_gid_is_ipv4(c.dst) && c.src[15] == 1 && c.dst[15] == 2 && c.dst[12] == 192);
	vb_cma_encode(got, &c);
	CHECK(!memcmp(got, v4, sizeof(v4)));
	CHECK(vb_cma_decode(&c, v6) && c.src_port == 0xfffe);
	CHECK(!vb_gid_is_ipv4(c.src) && c.src[0] == 0x20 && c.src[15] == 7 && c.dst[0] == 0x20 && c.dst[15] == 9);
	vb_cma_encode(got, &c);
	CHECK(!memcmp(got, v6, sizeof(v6)));
}

static void another_version_of_the_address_header_is_refused(void)
{
	uint8_t bytes[VB_CMA_LEN] = {0};
	struct vb_cma c;

	for (unsigned version = 0; version < 256; version++)
		for (unsigned ip = 0; ip < 256; ip++) {
			bytes[0] = (uint8_t)version;
			bytes[1] = (uint8_t)ip;
			CHECK(vb_cma_decode(&c, bytes) == (!version && (ip >> 4 == 4 || ip >> 4 == 6)));
		}
}

static void service_ids_name_port_space_and_port(void)
{
	enum vb_port_space ps = 0;
	uint16_t port = 0;

	CHECK(vb_cm_service_id(VB_PS_TCP, 0x4d2) == 0x00000000010604d2);
	CHECK(vb_cm_service_id(VB_PS_UDP, 0xffff) == 0x000000000111ffff);
	CHECK(vb_cm_service_port(0x000000000106ffff, &ps, &port) && ps == VB_PS_TCP && port == 0xffff);
	CHECK(vb_cm_service_port(0x00000000013f0001, &ps, &port) && ps == VB_PS_IB && port == 1);
	CHECK(vb_cm_service_port(0x0000000000020007, &ps, &port) && ps == VB_PS_IPOIB && port == 7);
	CHECK(!vb_cm_service_port(0x0000000001070001, &ps, &port));
	CHECK(!vb_cm_service_port(0x1000000001060001, &ps, &port) && ps == VB_PS_IPOIB && port == 7);
}

static void timeouts_are_powers_of_two(void)
{
	CHECK(vb_cm_time(0) == 4096 && vb_cm_time(20) == UINT64_C(4294967296) &&
	      vb_cm_time(31) == UINT64_C(4096) << 31);
	CHECK(vb_cm_time_code(0) == 0 && vb_cm_time_code(8191) == 0 && vb_cm_time_code(8192) == 1);
	for (uint8_t code = 0; code < 32; code++)
		CHECK(vb_cm_time_code(vb_cm_time(code)) == code);
	CHECK(vb_cm_time_code(UINT64_MAX) == 31);
}

static void reasons_have_names(void)
{
	CHECK(!strcmp(vb_cm_reason_text(VB_CM_REJ_INVALID_SERVICE_ID), "nobody listens"));
	CHECK(!strcmp(vb_cm_reason_text(28), "rejected by the application"));
	CHECK(!strcmp(vb_cm_reason_text(0), "?") && !strcmp(vb_cm_reason_text(65535), "?"));
}

int main(void)
{
	RUN(each_field_alone_stands_at_its_offset);
	RUN(all_fields_together_round_trip);
	RUN(private_data_ends_where_the_datagram_ends);
	RUN(reserved_bits_are_not_looked_at);
	RUN(what_is_no_message_of_the_class_is_refused_and_touches_nothing);
	RUN(additional_information_that_is_too_long_is_cut);
	RUN(addresses_stand_in_front_of_private_data);
	RUN(another_version_of_the_address_header_is_refused);
	RUN(service_ids_name_port_space_and_port);
	RUN(timeouts_are_powers_of_two);
	RUN(reasons_have_names);
	return 0;
}
