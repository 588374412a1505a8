// segmented.c - TSO: one request of a raw packet queue pair becomes many TCP segments
// follows: ibv_post_send(3), IBV_WR_TSO; ibv_wr_post(3); ibv_create_qp_ex(3), max_tso_header; RFC 9293
// SPDX-License-Identifier: MIT
#include "frames.h"

#include <arpa/inet.h>
#include <netinet/ip.h>
#include <netinet/tcp.h>

#define HEADERS (HEAD + sizeof(struct iphdr) + sizeof(struct tcphdr))
#define MSS 1000u
#define FIRST_SEQ 0xfffffe00u /* wraps around in the second segment */

static struct ibv_qp *try_tso(struct dev *d, struct ibv_cq *cq, enum ibv_qp_type type, uint16_t header)
{
	struct ibv_qp_init_attr_ex a = {
	        .send_cq = cq,
	        .recv_cq = cq,
	        .cap = {.max_send_wr = 64, .max_recv_wr = 1, .max_send_sge = 2, .max_recv_sge = 1},
	        .qp_type = type,
	        .pd = d->pd,
	        .comp_mask = IBV_QP_INIT_ATTR_PD | IBV_QP_INIT_ATTR_MAX_TSO_HEADER | IBV_QP_INIT_ATTR_SEND_OPS_FLAGS,
	        .max_tso_header = header,
	        .send_ops_flags = type == IBV_QPT_RAW_PACKET ? IBV_QP_EX_WITH_TSO | IBV_QP_EX_WITH_SEND : 0};

	return ibv_create_qp_ex(d->ctx, &a);
}

/* On lo: a sends with TSO, b receives what is for `there`. */
static void tso_pair(struct raw *a, struct raw *b, struct dev *d)
{
	struct ibv_qp_attr init = {.qp_state = IBV_QPS_INIT, .port_num = 1};

	on_lo(d);
	memset(a, 0, sizeof(*a));
	a->d = d;
	a->cq = ibv_create_cq(d->ctx, 64, NULL, NULL, 0);
	CHECK(a->cq && (a->qp = try_tso(d, a->cq, IBV_QPT_RAW_PACKET, 128)));
	mem_make(&a->m, d, 1 << 19);
	for (unsigned i = 0; i < 1 << 19; i++)
		a->m.p[i] = (uint8_t)(i * 7 + i / 251);
	SAME(ibv_modify_qp(a->qp, &init, IBV_QP_STATE | IBV_QP_PORT), 0);
	SAME(to_state(a->qp, IBV_QPS_RTR), 0);
	SAME(to_state(a->qp, IBV_QPS_RTS), 0);
	raw_open(b, d, NULL);
	CHECK(steer(b, there));
}

static void write_headers(uint8_t head[HEADERS])
{
	struct iphdr ip = {.version = 4,
	                   .ihl = 5,
	                   .id = htons(0xffff),
	                   .ttl = 64,
	                   .protocol = IPPROTO_TCP,
	                   .saddr = htonl(0x0a000001),
	                   .daddr = htonl(0x0a000002)};
	struct tcphdr tcp = {.source = htons(1000),
	                     .dest = htons(2000),
	                     .seq = htonl(FIRST_SEQ),
	                     .doff = 5,
	                     .ack = 1,
	                     .psh = 1,
	                     .fin = 1,
	                     .window = htons(100)};

	memcpy(head, there, 6);
	memcpy(head + 6, here, 6);
	head[12] = 8;
	head[13] = 0;
	memcpy(head + HEAD, &ip, sizeof(ip));
	memcpy(head + HEAD + sizeof(ip), &tcp, sizeof(tcp));
}

/* The payload lies in two pieces. */
static int send_tso(struct raw *a, uint64_t id, uint8_t *head, uint32_t len, uint16_t mss)
{
	struct ibv_sge sge[2] = {{(uintptr_t)a->m.p, len / 3, a->m.mr->lkey},
	                         {(uintptr_t)a->m.p + len / 3, len - len / 3, a->m.mr->lkey}};
	struct ibv_send_wr wr = {.wr_id = id,
	                         .sg_list = sge,
	                         .num_sge = 2,
	                         .opcode = IBV_WR_TSO,
	                         .send_flags = IBV_SEND_SIGNALED,
	                         .tso = {.hdr = head, .hdr_sz = HEADERS, .mss = mss}},
	                   *bad;

	return ibv_post_send(a->qp, &wr, &bad);
}

static uint32_t sum_of(const uint8_t *p, size_t n, uint32_t sum)
{
	for (size_t i = 0; i < n; i++)
		sum += (uint32_t)p[i] << (i % 2 ? 0 : 8);
	while (sum >> 16)
		sum = (sum & 0xffff) + (sum >> 16);
	return sum;
}

/* A whole frame of IPv4 and TCP, with right checksums. */
static void check_segment(const struct raw *a, const uint8_t *frame, uint32_t len, uint32_t number, uint32_t offset,
                          uint32_t payload, bool last)
{
	struct iphdr ip;
	struct tcphdr tcp;

	SAME(len, HEADERS + payload);
	memcpy(&ip, frame + HEAD, sizeof(ip));
	memcpy(&tcp, frame + HEAD + sizeof(ip), sizeof(tcp));
	SAME(ntohs(ip.tot_len), len - HEAD);
	SAME(ntohs(ip.id), (0xffff + number) & 0xffff);
	SAME(sum_of(frame + HEAD, sizeof(ip), 0), 0xffff);
	SAME(ntohl(tcp.seq), FIRST_SEQ + offset);
	SAME(tcp.fin, last);
	SAME(tcp.psh, last);
	SAME(tcp.ack, 1);
	SAME(sum_of(frame + HEAD + sizeof(ip), len - HEAD - sizeof(ip),
	            sum_of(frame + HEAD + 12, 8, IPPROTO_TCP + len - HEAD - (uint32_t)sizeof(ip))),
	     0xffff);
	CHECK(!memcmp(frame + HEADERS, a->m.p + offset, payload));
}

static void a_request_becomes_segments(void)
{
	const uint32_t lengths[] = {10 * MSS + 1, MSS, 1, 0, 3 * MSS};
	uint8_t head[HEADERS];
	struct raw a, b;
	struct dev d;

	tso_pair(&a, &b, &d);
	for (unsigned k = 0; k < sizeof(lengths) / sizeof(*lengths); k++) {
		uint32_t n = lengths[k], frames = n ? (n + MSS - 1) / MSS : 1;

		for (uint32_t i = 0; i < frames; i++)
			receive(&b, i, 2048);
		write_headers(head);
		SAME(send_tso(&a, k, head, n, MSS), 0);
		memset(head, 0xee, sizeof(head)); /* they were copied */
		SAME(expect(a.cq, k, IBV_WC_SUCCESS).opcode, IBV_WC_TSO);
		for (uint32_t i = 0; i < frames; i++) {
			uint32_t at = i * MSS;

			check_segment(&a, received(&b, i), expect(b.cq, i, IBV_WC_SUCCESS).byte_len, i, at,
			              n - at < MSS ? n - at : MSS, i == frames - 1);
		}
	}
}

static void requests_of_both_kinds_keep_their_order(void)
{
	struct ibv_qp_ex *x;
	uint8_t head[HEADERS];
	struct raw a, b;
	struct dev d;

	tso_pair(&a, &b, &d);
	x = ibv_qp_to_qp_ex(a.qp);
	write_headers(head);
	for (uint64_t i = 0; i < 8; i++)
		receive(&b, i, 2048);
	ibv_wr_start(x);
	for (x->wr_id = 0; x->wr_id < 4; x->wr_id++) {
		x->wr_flags = IBV_SEND_SIGNALED;
		if (x->wr_id % 2) {
			ibv_wr_send_tso(x, head, HEADERS, 500);
			ibv_wr_set_sge(x, a.m.mr->lkey, (uintptr_t)a.m.p, 1500);
		} else {
			memcpy(a.m.p + 4096, head, HEADERS);
			ibv_wr_send(x);
			ibv_wr_set_sge(x, a.m.mr->lkey, (uintptr_t)a.m.p + 4096, 200);
		}
	}
	SAME(ibv_wr_complete(x), 0);
	for (uint64_t i = 0; i < 4; i++)
		SAME(expect(a.cq, i, IBV_WC_SUCCESS).opcode, i % 2 ? IBV_WC_TSO : IBV_WC_SEND);
	for (uint64_t i = 0; i < 8; i++)
		SAME(expect(b.cq, i, IBV_WC_SUCCESS).byte_len, i % 4 ? HEADERS + 500 : 200);
}

/* All of the largest request is sent, also where the device's queue has no room for it at once. */
static void the_largest_request_is_sent(void)
{
	struct ibv_device_attr_ex attr;
	uint8_t head[HEADERS];
	uint32_t frames;
	struct raw a, b;
	struct dev d;

	tso_pair(&a, &b, &d);
	SAME(ibv_query_device_ex(d.ctx, NULL, &attr), 0);
	CHECK(ibv_is_qpt_supported(attr.tso_caps.supported_qpts, IBV_QPT_RAW_PACKET) &&
	      !ibv_is_qpt_supported(attr.tso_caps.supported_qpts, IBV_QPT_UD));
	write_headers(head);
	frames = (attr.tso_caps.max_tso + 8191) / 8192;
	CHECK(attr.tso_caps.max_tso == 1 << 18 && frames == 32);
	for (uint64_t i = 0; i < frames; i++) {
		struct ibv_sge sge = {(uintptr_t)b.m.p, 1 << 14, b.m.mr->lkey};
		struct ibv_recv_wr wr = {.wr_id = i, .sg_list = &sge, .num_sge = 1}, *bad;

		SAME(ibv_post_recv(b.qp, &wr, &bad), 0);
	}
	SAME(send_tso(&a, 0, head, attr.tso_caps.max_tso, 8192), 0);
	expect(a.cq, 0, IBV_WC_SUCCESS);
	for (uint64_t i = 0; i < frames; i++)
		SAME(expect(b.cq, i, IBV_WC_SUCCESS).byte_len, HEADERS + 8192);
	SAME(send_tso(&a, 1, head, attr.tso_caps.max_tso + 1, 8192), 0);
	expect(a.cq, 1, IBV_WC_LOC_LEN_ERR);
}

/* Its segments leave one by one: with 8 kbit/s all would take some seconds. */
static void a_rate_limit_counts_segments(void)
{
	struct ibv_qp_rate_limit_attr slow = {.rate_limit = 8, .max_burst_sz = 2500}, none = {0};
	uint8_t head[HEADERS];
	struct ibv_wc wc;
	struct raw a, b;
	struct dev d;
	unsigned n = 0;

	tso_pair(&a, &b, &d);
	write_headers(head);
	for (uint64_t i = 0; i < 8; i++)
		receive(&b, i, 2048);
	SAME(ibv_modify_qp_rate_limit(a.qp, &slow), 0);
	SAME(send_tso(&a, 1, head, 8 * MSS, MSS), 0);
	for (; wait_wc_ms(b.cq, &wc, 50); n++)
		SAME(wc.wr_id, n);
	CHECK(n >= 2 && n < 8);
	expect_none(a.cq, 1);
	SAME(ibv_modify_qp_rate_limit(a.qp, &none), 0);
	for (; n < 8; n++)
		check_segment(&a, received(&b, n), expect(b.cq, n, IBV_WC_SUCCESS).byte_len, n, n * MSS, MSS, n == 7);
	expect(a.cq, 1, IBV_WC_SUCCESS);
}

/* lo's MTU would let a packet of 65536 bytes pass, but IPv4's total length has 16 bits. */
static void a_segment_that_ipv4_cannot_name_is_refused(void)
{
	const uint16_t mss = 65536 - (HEADERS - HEAD);
	uint8_t head[HEADERS];
	struct raw a, b;
	struct dev d;

	tso_pair(&a, &b, &d);
	write_headers(head);
	SAME(send_tso(&a, 0, head, mss - 1, mss - 1), 0);
	expect(a.cq, 0, IBV_WC_SUCCESS);
	SAME(send_tso(&a, 1, head, mss, mss), 0);
	expect(a.cq, 1, IBV_WC_LOC_LEN_ERR);
}

static void what_is_no_tcp_ends_the_send_queue(void)
{
	uint8_t head[HEADERS];
	struct raw a, b;
	struct dev d;

	tso_pair(&a, &b, &d);
	write_headers(head);
	head[HEAD + 9] = IPPROTO_UDP;
	SAME(send_tso(&a, 0, head, 5000, MSS), 0);
	expect(a.cq, 0, IBV_WC_LOC_QP_OP_ERR);
	SAME(a.qp->state, IBV_QPS_SQE);
}

static void wrong_requests_and_queue_pairs_are_refused(void)
{
	uint8_t head[HEADERS] = {0};
	struct raw a, b;
	struct dev d;

	tso_pair(&a, &b, &d);
	SAME(send_tso(&a, 0, NULL, 10, MSS), EINVAL);
	SAME(send_tso(&a, 0, head, 10, 0), EINVAL);
	SAME(send_tso(&b, 0, head, 10, MSS), EINVAL); /* without max_tso_header */
	CHECK(!try_tso(&d, a.cq, IBV_QPT_RAW_PACKET, 1025) && errno == EINVAL);
	CHECK(!try_tso(&d, a.cq, IBV_QPT_UD, 64) && errno == EOPNOTSUPP);
	CHECK(!try_tso(&d, a.cq, IBV_QPT_RC, 64) && errno == EOPNOTSUPP);
	struct ibv_qp *small = try_tso(&d, a.cq, IBV_QPT_RAW_PACKET, HEADERS - 1);

	CHECK(small);
	SAME(ibv_destroy_qp(small), 0);
}

int main(int argc, char **argv)
{
	static const struct test tests[] = {
	        {"a request becomes segments", a_request_becomes_segments, 0},
	        {"requests of both kinds keep their order", requests_of_both_kinds_keep_their_order, 0},
	        {"the largest request is sent", the_largest_request_is_sent, 0},
	        {"a rate limit counts segments", a_rate_limit_counts_segments, 0},
	        {"a segment that IPv4 cannot name is refused", a_segment_that_ipv4_cannot_name_is_refused, 0},
	        {"what is no TCP ends the send queue", what_is_no_tcp_ends_the_send_queue, 0},
	        {"wrong requests and queue pairs are refused", wrong_requests_and_queue_pairs_are_refused, 0},
	};

	return RUN_TESTS(argc, argv, tests);
}
