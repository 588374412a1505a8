// offloads.c - raw packet queue pairs: checksums that the adapter fills in and verifies, VLAN tags that it takes away, FCS
// follows: ibv_post_send(3), ibv_poll_cq(3), ibv_create_qp_ex(3), ibv_create_wq(3), ibv_create_cq_ex(3); RFC 1071
// SPDX-License-Identifier: MIT
#include "frames.h"

#include <arpa/inet.h>
#include <sys/socket.h>

#define IP_AT 14u
#define PAYLOAD 301u /* odd */
#define LEN(v4) (IP_AT + ((v4) ? 20u : 40u) + 8u + PAYLOAD)
#define TAG 0x6005u /* priority 3, VLAN 5 */

/* --- frames, and their sums computed in another way --- */

static uint16_t sum_of(const uint8_t *p, size_t n, uint32_t sum)
{
	for (size_t i = 0; i < n; i++)
		sum += (uint32_t)p[i] << (i % 2 ? 0 : 8);
	while (sum >> 16)
		sum = (sum & 0xffff) + (sum >> 16);
	return (uint16_t)sum;
}

/* A UDP datagram for `there`. Its checksums are wrong. Returns its length. */
static uint32_t put_udp(uint8_t *f, bool v4)
{
	uint8_t *ip = f + IP_AT, *udp = ip + (v4 ? 20 : 40);

	for (unsigned i = 0; i < LEN(v4); i++)
		f[i] = (uint8_t)(i * 7 + 1);
	memcpy(f, there, 6);
	memcpy(f + 6, here, 6);
	memcpy(f + 12, v4 ? "\x08\x00" : "\x86\xdd", 2);
	if (v4)
		memcpy(ip, (uint8_t[20]){0x45,
		                         0,
		                         (20 + 8 + PAYLOAD) >> 8,
		                         (20 + 8 + PAYLOAD) & 255,
		                         0,
		                         1,
		                         0,
		                         0,
		                         64,
		                         17,
		                         9,
		                         9,
		                         10,
		                         0,
		                         0,
		                         1,
		                         10,
		                         0,
		                         0,
		                         2},
		       20);
	else
		memcpy(ip,
		       (uint8_t[40]){0x60, [4] = (8 + PAYLOAD) >> 8, (8 + PAYLOAD) & 255, 17, 64, 0xfd, [23] = 1,
		                     0xfd, [39] = 2},
		       40);
	memcpy(udp, (uint8_t[8]){0x10, 0, 0x20, 0, (8 + PAYLOAD) >> 8, (8 + PAYLOAD) & 255, 0x77, 0x77}, 8);
	return LEN(v4);
}

static bool sums_are_right(const uint8_t *f, bool v4, uint32_t udp_len)
{
	const uint8_t *ip = f + IP_AT, *udp = ip + (v4 ? 20 : 40);
	uint32_t pseudo = sum_of(ip + (v4 ? 12 : 8), v4 ? 8 : 32, 17 + udp_len);

	return (!v4 || sum_of(ip, 20, 0) == 0xffff) && sum_of(udp, udp_len, pseudo) == 0xffff;
}

/* IEEE 802.3 3.2.9, bit by bit. */
static uint32_t fcs_of(const uint8_t *p, size_t n)
{
	uint32_t crc = UINT32_MAX;

	for (size_t i = 0; i < n; i++) {
		crc ^= p[i];
		for (int bit = 0; bit < 8; bit++)
			crc = crc >> 1 ^ (crc & 1 ? 0xedb88320 : 0);
	}
	return ~crc;
}

static void send_bytes(struct raw *r, uint64_t id, uint32_t len, unsigned flags)
{
	/* in two pieces, of which the first is odd */
	struct ibv_sge sge[2] = {{(uintptr_t)r->m.p + id * 2048, 33, r->m.mr->lkey},
	                         {(uintptr_t)r->m.p + id * 2048 + 33, len - 33, r->m.mr->lkey}};
	struct ibv_send_wr wr = {.wr_id = id,
	                         .sg_list = sge,
	                         .num_sge = 2,
	                         .opcode = IBV_WR_SEND,
	                         .send_flags = IBV_SEND_SIGNALED | flags},
	                   *bad;

	SAME(ibv_post_send(r->qp, &wr, &bad), 0);
	expect(r->cq, id, IBV_WC_SUCCESS);
}

/* --- queue pairs that want something --- */

static struct ibv_qp *try_flags(struct dev *d, struct ibv_cq *cq, enum ibv_qp_type type, uint32_t flags)
{
	struct ibv_qp_init_attr_ex a = {.send_cq = cq,
	                                .recv_cq = cq,
	                                .cap = {1, 64, 1, 1, 0},
	                                .qp_type = type,
	                                .comp_mask = IBV_QP_INIT_ATTR_PD | IBV_QP_INIT_ATTR_CREATE_FLAGS,
	                                .pd = d->pd,
	                                .create_flags = flags};

	errno = 0;
	return ibv_create_qp_ex(d->ctx, &a);
}

static struct ibv_cq *cq_with_vlan(struct dev *d)
{
	struct ibv_cq_init_attr_ex a = {
	        .cqe = 64, .wc_flags = IBV_WC_STANDARD_FLAGS | IBV_WC_EX_WITH_CVLAN | IBV_WC_EX_WITH_FLOW_TAG};
	struct ibv_cq_ex *cq = ibv_create_cq_ex(d->ctx, &a);

	CHECK(cq);
	return ibv_cq_ex_to_cq(cq);
}

static void raw_open_with(struct raw *r, struct dev *d, uint32_t flags)
{
	struct ibv_qp_attr a = {.qp_state = IBV_QPS_INIT, .port_num = 1};

	r->d = d;
	r->cq = cq_with_vlan(d);
	CHECK((r->qp = try_flags(d, r->cq, IBV_QPT_RAW_PACKET, flags)));
	mem_make(&r->m, d, 1 << 16);
	SAME(ibv_modify_qp(r->qp, &a, IBV_QP_STATE | IBV_QP_PORT), 0);
	SAME(to_state(r->qp, IBV_QPS_RTR), 0);
	CHECK(steer(r, there));
	for (uint64_t i = 0; i < 8; i++)
		receive(r, i, 2048);
}

struct got {
	uint32_t len;
	uint16_t cvlan;
	unsigned flags;
	uint32_t flow_tag;
};

static struct got next_frame(struct ibv_cq *cq, uint64_t id)
{
	struct ibv_cq_ex *ex = (struct ibv_cq_ex *)(void *)cq;
	struct ibv_poll_cq_attr attr = {0};
	uint64_t end = now_ms() + PATIENCE;

	while (ibv_start_poll(ex, &attr) == ENOENT)
		CHECK(now_ms() < end);
	SAME(ex->status, IBV_WC_SUCCESS);
	SAME(ex->wr_id, id);
	struct got g = {ibv_wc_read_byte_len(ex), ibv_wc_read_cvlan(ex), ibv_wc_read_wc_flags(ex),
	                ibv_wc_read_flow_tag(ex)};

	ibv_end_poll(ex);
	return g;
}

/* --- tests --- */

static void the_adapter_fills_in_the_checksums_of_a_copy(void)
{
	uint8_t before[2048];
	struct raw a, b;
	struct dev d;

	on_lo(&d);
	raw_open(&a, &d, NULL);
	raw_open(&b, &d, NULL);
	CHECK(steer(&b, there));
	for (uint64_t i = 0; i < 2; i++) {
		uint32_t len = put_udp(a.m.p + i * 2048, !i);

		receive(&b, i, 2048);
		memcpy(before, a.m.p + i * 2048, len);
		CHECK(!sums_are_right(before, !i, 8 + PAYLOAD));
		send_bytes(&a, i, len, IBV_SEND_IP_CSUM);
		struct ibv_wc wc = expect(b.cq, i, IBV_WC_SUCCESS);
		uint8_t *f = (uint8_t *)(uintptr_t)received(&b, i);
		uint8_t *udp_sum = f + len - PAYLOAD - 2;

		SAME(wc.byte_len, len);
		CHECK(sums_are_right(f, !i, 8 + PAYLOAD));
		SAME(wc.wc_flags, i ? 0 : IBV_WC_IP_CSUM_OK); /* which is about IPv4 */
		CHECK(!memcmp(before, a.m.p + i * 2048, len));
		if (!i)
			memcpy(f + 24, before + 24, 2);
		memcpy(udp_sum, before + (udp_sum - f), 2);
		CHECK(!memcmp(f, before, len)); /* all else is as it was */
	}
}

static void only_right_checksums_are_reported(void)
{
	struct raw a, b;
	struct dev d;
	uint8_t *f;

	on_lo(&d);
	raw_open(&a, &d, NULL);
	raw_open(&b, &d, NULL);
	CHECK(steer(&b, there));
	for (uint64_t i = 0; i < 5; i++)
		receive(&b, i, 2048);
	uint32_t len = put_udp(a.m.p, true); /* wrong ones */
	send_bytes(&a, 0, len, 0);
	SAME(expect(b.cq, 0, IBV_WC_SUCCESS).wc_flags, 0);
	f = (uint8_t *)(uintptr_t)received(&b, 0);
	CHECK(!memcmp(f, a.m.p, len)); /* without the flag a frame is sent as it is */
	send_bytes(&a, 0, len, IBV_SEND_IP_CSUM);
	SAME(expect(b.cq, 1, IBV_WC_SUCCESS).wc_flags, IBV_WC_IP_CSUM_OK);
	memcpy(a.m.p + 2 * 2048, received(&b, 1), len);
	a.m.p[2 * 2048 + len - 1] ^= 1; /* one wrong bit of the payload */
	send_bytes(&a, 2, len, 0);
	SAME(expect(b.cq, 2, IBV_WC_SUCCESS).wc_flags, 0);
	memcpy(a.m.p + 3 * 2048, received(&b, 1), len);
	a.m.p[3 * 2048 + 22] ^= 1; /* of the TTL */
	send_bytes(&a, 3, len, 0);
	SAME(expect(b.cq, 3, IBV_WC_SUCCESS).wc_flags, 0);
	SAME(send_frame(&a, 4, there, 100, 5, IBV_SEND_IP_CSUM), 0); /* no IP */
	expect(a.cq, 4, IBV_WC_SUCCESS);
	SAME(expect(b.cq, 4, IBV_WC_SUCCESS).wc_flags, 0);
	CHECK(!memcmp(received(&b, 4), a.m.p + 4 * 2048, 100));
}

/* Between the ends of a veth pair the kernel leaves the checksum to an interface that never computes it. */
static void a_frame_of_the_kernel_has_its_checksum(void)
{
	struct sockaddr_in to = {.sin_family = AF_INET, .sin_port = htons(9), .sin_addr.s_addr = inet_addr("10.9.0.2")};
	uint8_t payload[PAYLOAD] = {1, 2, 3};
	struct dev d0, d1;
	struct raw b;

	two_ends(&d0, &d1);
	if (system("ip addr add 10.9.0.1/24 dev v0 && ip neigh add 10.9.0.2 lladdr 02:00:00:00:00:02 dev v0"))
		skip("no right to set addresses");
	raw_open(&b, &d1, NULL);
	CHECK(steer(&b, there));
	receive(&b, 0, 2048);
	int fd = socket(AF_INET, SOCK_DGRAM, 0);

	CHECK(fd >= 0 && sendto(fd, payload, PAYLOAD, 0, (struct sockaddr *)&to, sizeof(to)) == PAYLOAD);
	struct ibv_wc wc = expect(b.cq, 0, IBV_WC_SUCCESS);

	SAME(wc.byte_len, LEN(true));
	SAME(wc.wc_flags, IBV_WC_IP_CSUM_OK);
	CHECK(sums_are_right(received(&b, 0), true, 8 + PAYLOAD));
	close(fd);
}

/* Puts a tag into a frame. */
static uint32_t put_tag(uint8_t *f, uint32_t len)
{
	memmove(f + 16, f + 12, len - 12);
	memcpy(f + 12, (uint8_t[]){0x81, 0, TAG >> 8, TAG & 255}, 4);
	return len + 4;
}

static void a_tag_is_taken_away_and_reported(void)
{
	struct raw a, b, whole;
	struct dev d0, d1;
	struct got g;

	two_ends(&d0, &d1);
	raw_open(&a, &d0, NULL);
	raw_open_with(&b, &d1, IBV_QP_CREATE_CVLAN_STRIPPING);
	raw_open_with(&whole, &d1, 0);
	struct ibv_flow *sniffs = steer_all(&whole, IBV_FLOW_ATTR_SNIFFER);

	CHECK(sniffs);
	uint32_t len = put_udp(a.m.p, true);
	uint32_t tagged = put_tag(a.m.p, len);

	send_bytes(&a, 0, tagged, IBV_SEND_IP_CSUM);
	g = next_frame(b.cq, 0);
	SAME(g.len, len);
	SAME(g.cvlan, TAG);
	SAME(g.flags, IBV_WC_IP_CSUM_OK);
	CHECK(!memcmp(received(&b, 0), a.m.p, 12) && received(&b, 0)[12] == 8 && received(&b, 0)[13] == 0);
	CHECK(sums_are_right(received(&b, 0), true, 8 + PAYLOAD));
	for (uint64_t i = 0; i < 8; i++) { /* the kernel's own frames pass, too */
		g = next_frame(whole.cq, i);
		if (!memcmp(received(&whole, i), there, 6))
			break;
	}
	SAME(g.len, tagged);
	SAME(g.cvlan, 0);
	put_udp(a.m.p + 2048, true);
	send_bytes(&a, 1, len, IBV_SEND_IP_CSUM);
	g = next_frame(b.cq, 1);
	SAME(g.len, len);
	SAME(g.cvlan, 0);
}

static void a_frame_has_its_fcs_if_asked_for(void)
{
	struct raw a, b;
	struct dev d;

	on_lo(&d);
	raw_open(&a, &d, NULL);
	raw_open_with(&b, &d, IBV_QP_CREATE_SCATTER_FCS | IBV_QP_CREATE_CVLAN_STRIPPING);
	uint32_t len = put_udp(a.m.p, true), tagged = put_tag(a.m.p, len);

	send_bytes(&a, 0, tagged, 0);
	struct got g = next_frame(b.cq, 0);
	uint32_t fcs = fcs_of(a.m.p, tagged), at_end;

	SAME(g.len, len + 4);
	SAME(g.cvlan, TAG);
	memcpy(&at_end, received(&b, 0) + len, 4);
	SAME(at_end, htole32(fcs)); /* of what was on the wire */
}

static struct ibv_flow *tagged_flow(struct raw *r, const uint8_t *to, uint32_t tag, unsigned tags)
{
	struct {
		struct ibv_flow_attr attr;
		struct ibv_flow_spec_eth eth;
		struct ibv_flow_spec_action_tag tag[2];
	} __attribute__((packed, aligned(8)))
	rule = {.attr = {.size = sizeof(rule), .num_of_specs = (uint8_t)(1 + tags), .port = 1},
	        .eth = {.type = IBV_FLOW_SPEC_ETH, .size = sizeof(rule.eth)},
	        .tag = {{IBV_FLOW_SPEC_ACTION_TAG, sizeof(rule.tag[0]), tag},
	                {IBV_FLOW_SPEC_ACTION_TAG, sizeof(rule.tag[0]), tag}}};

	memcpy(rule.eth.val.dst_mac, to, 6);
	memset(rule.eth.mask.dst_mac, 0xff, 6);
	return ibv_create_flow(r->qp, (void *)&rule);
}

static void a_completion_has_the_tag_of_its_rule(void)
{
	struct raw a, b;
	struct dev d;

	on_lo(&d);
	raw_open(&a, &d, NULL);
	raw_open_with(&b, &d, 0);
	CHECK(!tagged_flow(&b, group, 1, 2) && errno == EINVAL);
	CHECK(tagged_flow(&b, group, 0x12345678, 1));
	for (uint64_t i = 0; i < 2; i++) {
		SAME(send_frame(&a, i, i ? there : group, 100, 5, 0), 0);
		expect(a.cq, i, IBV_WC_SUCCESS);
		struct got g = next_frame(b.cq, i);

		SAME(g.len, 100);
		SAME(g.flow_tag, i ? 0 : 0x12345678);
	}
}

static void work_queues_change_what_they_want(void)
{
	struct ibv_wq_attr change = {
	        .attr_mask = IBV_WQ_ATTR_STATE, .wq_state = IBV_WQS_RDY, .flags_mask = IBV_WQ_FLAGS_CVLAN_STRIPPING};
	uint8_t key[40] = {1};
	struct raw a;
	struct mem m;
	struct dev d;

	on_lo(&d);
	raw_open(&a, &d, NULL);
	mem_make(&m, &d, 1 << 14);
	struct ibv_cq *cq = cq_with_vlan(&d);
	struct ibv_wq_init_attr wa = {.wq_type = IBV_WQT_RQ,
	                              .max_wr = 8,
	                              .max_sge = 1,
	                              .pd = d.pd,
	                              .cq = cq,
	                              .comp_mask = IBV_WQ_INIT_ATTR_FLAGS,
	                              .create_flags = IBV_WQ_FLAGS_DELAY_DROP};

	CHECK(!ibv_create_wq(d.ctx, &wa) && errno == EOPNOTSUPP);
	wa.create_flags = IBV_WQ_FLAGS_CVLAN_STRIPPING;
	struct ibv_wq *wq = ibv_create_wq(d.ctx, &wa);

	CHECK(wq && !ibv_modify_wq(wq, &change));
	struct ibv_rwq_ind_table_init_attr ta = {.ind_tbl = &wq};
	struct ibv_rwq_ind_table *table = ibv_create_rwq_ind_table(d.ctx, &ta);
	struct ibv_qp_init_attr_ex qa = {.qp_type = IBV_QPT_RAW_PACKET,
	                                 .comp_mask = IBV_QP_INIT_ATTR_PD | IBV_QP_INIT_ATTR_IND_TABLE |
	                                              IBV_QP_INIT_ATTR_RX_HASH,
	                                 .pd = d.pd,
	                                 .rwq_ind_tbl = table,
	                                 .rx_hash_conf = {IBV_RX_HASH_FUNC_TOEPLITZ, sizeof(key), key, 0}};

	CHECK(table);
	struct raw b = {.d = &d, .qp = ibv_create_qp_ex(d.ctx, &qa)};

	CHECK(b.qp && steer(&b, there));
	for (uint64_t i = 0; i < 2; i++) {
		struct ibv_sge sge = {(uintptr_t)m.p + i * 2048, 2048, m.mr->lkey};
		struct ibv_recv_wr wr = {.wr_id = i, .sg_list = &sge, .num_sge = 1}, *bad;

		SAME(ibv_post_wq_recv(wq, &wr, &bad), 0);
	}
	uint32_t len = put_udp(a.m.p, true), tagged = put_tag(a.m.p, len);

	send_bytes(&a, 0, tagged, IBV_SEND_IP_CSUM);
	struct got g = next_frame(cq, 0);
	CHECK(g.len == len && g.cvlan == TAG && g.flags == IBV_WC_IP_CSUM_OK && sums_are_right(m.p, true, 8 + PAYLOAD));
	change.attr_mask = IBV_WQ_ATTR_FLAGS;
	SAME(ibv_modify_wq(wq, &change), 0); /* flags has none of them */
	send_bytes(&a, 0, tagged, 0);
	g = next_frame(cq, 1);
	CHECK(g.len == tagged && !g.cvlan && !g.flags && !memcmp(m.p + 2048, a.m.p, tagged));
	change.flags_mask = IBV_WQ_FLAGS_DELAY_DROP;
	SAME(ibv_modify_wq(wq, &change), EOPNOTSUPP);
}

static void the_device_says_what_it_can(void)
{
	struct ibv_device_attr_ex attr;
	struct dev d;

	on_lo(&d);
	SAME(ibv_query_device_ex(d.ctx, NULL, &attr), 0);
	SAME(attr.raw_packet_caps,
	     IBV_RAW_PACKET_CAP_CVLAN_STRIPPING | IBV_RAW_PACKET_CAP_SCATTER_FCS | IBV_RAW_PACKET_CAP_IP_CSUM);
	CHECK(attr.orig_attr.device_cap_flags & IBV_DEVICE_RAW_IP_CSUM);
	CHECK(attr.device_cap_flags_ex & IBV_DEVICE_RAW_SCATTER_FCS);
	CHECK(!(attr.orig_attr.device_cap_flags & IBV_DEVICE_UD_IP_CSUM));
	struct ibv_cq *cq = cq_with_vlan(&d);

	CHECK(!try_flags(&d, cq, IBV_QPT_RAW_PACKET, IBV_QP_CREATE_PCI_WRITE_END_PADDING) && errno == EOPNOTSUPP);
	CHECK(!try_flags(&d, cq, IBV_QPT_UD, IBV_QP_CREATE_CVLAN_STRIPPING) && errno == EOPNOTSUPP);
	CHECK(!try_flags(&d, cq, IBV_QPT_RC, IBV_QP_CREATE_SCATTER_FCS) && errno == EOPNOTSUPP);
}

static const struct test tests[] = {
        {"the adapter fills in the checksums, in a copy of the frame", the_adapter_fills_in_the_checksums_of_a_copy, 0},
        {"only right checksums are reported as right", only_right_checksums_are_reported, 0},
        {"a frame that the kernel sends has its checksum", a_frame_of_the_kernel_has_its_checksum, 0},
        {"a VLAN tag is taken away, and the completion has it", a_tag_is_taken_away_and_reported, 0},
        {"a frame has its FCS if asked for", a_frame_has_its_fcs_if_asked_for, 0},
        {"a completion has the tag of its rule", a_completion_has_the_tag_of_its_rule, 0},
        {"a work queue takes tags away until it is changed", work_queues_change_what_they_want, 0},
        {"the device says what it can do", the_device_says_what_it_can, 0},
};

int main(int argc, char **argv)
{
	return RUN_TESTS(argc, argv, tests);
}
