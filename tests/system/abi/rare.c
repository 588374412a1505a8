// rare.c - calls that few programs make answer as their manual pages say
// follows: ibv_query_ece(3), ibv_set_ece(3), ibv_query_rt_values_ex(3), ibv_query_qp_data_in_order(3),
// ibv_modify_qp_rate_limit(3), ibv_modify_qp(3), ibv_modify_srq(3), ibv_create_counters(3)
// SPDX-License-Identifier: MIT
#include <infiniband/verbs.h>
#include <poll.h>

#include "../../support/check.h"

static struct ibv_context *context;
static struct ibv_pd *pd;
static struct ibv_cq *cq;

static struct ibv_qp *make_qp(struct ibv_srq *srq)
{
	struct ibv_qp_init_attr attr = {
	        .send_cq = cq, .recv_cq = cq, .srq = srq, .cap = {4, 4, 1, 1, 0}, .qp_type = IBV_QPT_RC};
	struct ibv_qp *qp = ibv_create_qp(pd, &attr);

	CHECK(qp);
	return qp;
}

static void an_adapter_without_options_accepts_none(void)
{
	struct ibv_qp *qp = make_qp(NULL);
	struct ibv_ece ece = {1, 2, 3}, offered;

	SAME(ibv_query_ece(qp, &ece), 0);
	CHECK(ece.vendor_id && ece.vendor_id < 1 << 24 && !ece.options && !ece.comp_mask);
	SAME(ibv_set_ece(qp, &ece), 0);
	offered = (struct ibv_ece){.vendor_id = ece.vendor_id, .options = 0xff};
	SAME(ibv_set_ece(qp, &offered), 0);
	SAME(offered.options, 0); /* what was accepted */
	SAME(ibv_query_ece(qp, &ece), 0);
	SAME(ece.options, 0);
	offered = (struct ibv_ece){.vendor_id = ece.vendor_id ^ 1};
	SAME(ibv_set_ece(qp, &offered), EINVAL);
	SAME(ibv_set_ece(qp, &(struct ibv_ece){0}), EOPNOTSUPP); /* the peer has none */
	offered = (struct ibv_ece){.vendor_id = ece.vendor_id, .comp_mask = 1};
	SAME(ibv_set_ece(qp, &offered), EINVAL);
	SAME(ibv_destroy_qp(qp), 0);
}

static void the_raw_clock_runs_as_fast_as_is_reported(void)
{
	struct ibv_device_attr_ex attr;
	struct ibv_values_ex a = {.comp_mask = IBV_VALUES_MASK_RAW_CLOCK}, b = a, none = {.comp_mask = 1u << 9};

	SAME(ibv_query_device_ex(context, NULL, &attr), 0);
	CHECK(attr.hca_core_clock && attr.completion_timestamp_mask);
	SAME(ibv_query_rt_values_ex(context, &a), 0);
	SAME(ibv_query_rt_values_ex(context, &b), 0);
	SAME(a.comp_mask, IBV_VALUES_MASK_RAW_CLOCK);
	CHECK(b.raw_clock.tv_sec > a.raw_clock.tv_sec || b.raw_clock.tv_nsec >= a.raw_clock.tv_nsec);
	SAME(ibv_query_rt_values_ex(context, &none), 0);
	SAME(none.comp_mask, 0); /* nothing that was asked for was filled */
}

static void data_has_no_order_within_a_message(void)
{
	struct ibv_qp *qp = make_qp(NULL);

	SAME(ibv_query_qp_data_in_order(qp, IBV_WR_RDMA_WRITE, 0), 0);
	SAME(ibv_query_qp_data_in_order(qp, IBV_WR_SEND, 0), 0);
	SAME(ibv_query_qp_data_in_order(qp, IBV_WR_RDMA_READ, 0), 0);
	SAME(ibv_destroy_qp(qp), 0);
}

static void to_init(struct ibv_qp *qp)
{
	struct ibv_qp_attr attr = {.qp_state = IBV_QPS_INIT, .port_num = 1};

	SAME(ibv_modify_qp(qp, &attr, IBV_QP_STATE | IBV_QP_PKEY_INDEX | IBV_QP_PORT | IBV_QP_ACCESS_FLAGS), 0);
}

/* Connects the queue pair with itself. */
static void to_rts(struct ibv_qp *qp)
{
	struct ibv_port_attr port;
	struct ibv_qp_attr attr = {
	        .qp_state = IBV_QPS_RTR, .dest_qp_num = qp->qp_num, .ah_attr = {.is_global = 1, .port_num = 1}};

	CHECK(!ibv_query_port(context, 1, &port) && !ibv_query_gid(context, 1, 0, &attr.ah_attr.grh.dgid));
	attr.path_mtu = port.active_mtu;
	SAME(ibv_modify_qp(qp, &attr,
	                   IBV_QP_STATE | IBV_QP_AV | IBV_QP_PATH_MTU | IBV_QP_DEST_QPN | IBV_QP_RQ_PSN |
	                           IBV_QP_MAX_DEST_RD_ATOMIC | IBV_QP_MIN_RNR_TIMER),
	     0);
	attr.qp_state = IBV_QPS_RTS;
	attr.timeout = 20;
	attr.retry_cnt = attr.rnr_retry = 7;
	SAME(ibv_modify_qp(qp, &attr,
	                   IBV_QP_STATE | IBV_QP_SQ_PSN | IBV_QP_TIMEOUT | IBV_QP_RETRY_CNT | IBV_QP_RNR_RETRY |
	                           IBV_QP_MAX_QP_RD_ATOMIC),
	     0);
}

static int next_event(void)
{
	struct pollfd p = {.fd = context->async_fd, .events = POLLIN};
	struct ibv_async_event event;

	if (poll(&p, 1, LONG_MS) != 1)
		return -1;
	CHECK(!ibv_get_async_event(context, &event));
	ibv_ack_async_event(&event);
	return (int)event.event_type;
}

static uint32_t limit_of(struct ibv_qp *qp)
{
	struct ibv_qp_init_attr init;
	struct ibv_qp_attr attr;

	SAME(ibv_query_qp(qp, &attr, IBV_QP_RATE_LIMIT, &init), 0);
	return attr.rate_limit;
}

/* What libmlx5 and its kernel driver refuse. tests/system/local/limited.c has limits at work. */
static void a_rate_limit_is_accepted_where_a_queue_pair_sends(void)
{
	struct ibv_device_attr_ex attr;
	struct ibv_qp *qp = make_qp(NULL);

	SAME(ibv_query_device_ex(context, NULL, &attr), 0);
	const struct ibv_packet_pacing_caps *caps = &attr.packet_pacing_caps;
	const struct {
		struct ibv_qp_rate_limit_attr limit;
		int err;
		uint32_t now;
	} rows[] = {
	        {{.rate_limit = caps->qp_rate_limit_min}, 0, caps->qp_rate_limit_min},
	        {{.rate_limit = caps->qp_rate_limit_max}, 0, caps->qp_rate_limit_max},
	        {{.rate_limit = caps->qp_rate_limit_max + 1}, EINVAL, caps->qp_rate_limit_max},
	        {{.rate_limit = 1000, .max_burst_sz = 1 << 20, .typical_pkt_sz = 1500}, 0, 1000},
	        {{.rate_limit = 2000, .comp_mask = 1}, EINVAL, 1000},
	        {{.max_burst_sz = 1}, EINVAL, 1000}, /* a burst of what? */
	        {{.typical_pkt_sz = 1}, EINVAL, 1000},
	        {{.rate_limit = 0}, 0, 0},
	};
	const uint32_t types = 1u << IBV_QPT_RC | 1u << IBV_QPT_UC | 1u << IBV_QPT_UD | 1u << IBV_QPT_XRC_SEND;
	struct ibv_qp_rate_limit_attr some = {.rate_limit = 1000};
	struct ibv_qp_attr state = {.qp_state = IBV_QPS_SQD, .rate_limit = 5000};

	CHECK(caps->qp_rate_limit_min && caps->qp_rate_limit_max > caps->qp_rate_limit_min);
	SAME(caps->supported_qpts & types, types);
	SAME(ibv_modify_qp_rate_limit(qp, &some), EINVAL);
	to_init(qp);
	SAME(ibv_modify_qp_rate_limit(qp, &some), EINVAL);
	to_rts(qp);
	for (size_t i = 0; i < sizeof(rows) / sizeof(rows[0]); i++) {
		struct ibv_qp_rate_limit_attr limit = rows[i].limit;

		SAME(ibv_modify_qp_rate_limit(qp, &limit), rows[i].err);
		SAME(limit_of(qp), rows[i].now);
	}
	SAME(ibv_modify_qp(qp, &state, IBV_QP_STATE | IBV_QP_RATE_LIMIT), EINVAL);
	state.qp_state = IBV_QPS_RTS;
	SAME(ibv_modify_qp(qp, &state, IBV_QP_STATE | IBV_QP_RATE_LIMIT), 0);
	SAME(limit_of(qp), 5000);
	SAME(ibv_destroy_qp(qp), 0);
}

static void a_drained_send_queue_says_so(void)
{
	struct ibv_qp *qp = make_qp(NULL);
	struct ibv_qp_attr attr = {.qp_state = IBV_QPS_SQD, .en_sqd_async_notify = 1};
	struct ibv_qp_init_attr init;

	to_init(qp);
	to_rts(qp);
	SAME(ibv_modify_qp(qp, &attr, IBV_QP_STATE | IBV_QP_EN_SQD_ASYNC_NOTIFY), 0);
	SAME(next_event(), IBV_EVENT_SQ_DRAINED);
	SAME(ibv_query_qp(qp, &attr, IBV_QP_STATE, &init), 0);
	CHECK(attr.qp_state == IBV_QPS_SQD && !attr.sq_draining);
	attr.qp_state = IBV_QPS_RTS;
	SAME(ibv_modify_qp(qp, &attr, IBV_QP_STATE), 0);
	attr = (struct ibv_qp_attr){.qp_state = IBV_QPS_SQD}; /* without the event */
	SAME(ibv_modify_qp(qp, &attr, IBV_QP_STATE | IBV_QP_EN_SQD_ASYNC_NOTIFY), 0);
	struct pollfd p = {.fd = context->async_fd, .events = POLLIN};
	SAME(poll(&p, 1, 20), 0);
	SAME(ibv_destroy_qp(qp), 0);
}

static void poll_one(enum ibv_wc_status status)
{
	struct ibv_wc wc;
	int n = 0;

	for (int i = 0; i < 20000000 && !n; i++)
		n = ibv_poll_cq(cq, 1, &wc);
	SAME(n, 1);
	SAME(wc.status, status);
}

static void a_shared_receive_queue_falls_below_its_limit_once(void)
{
	struct ibv_srq_init_attr init = {.attr = {.max_wr = 8, .max_sge = 1}};
	struct ibv_srq *srq = ibv_create_srq(pd, &init);
	struct ibv_srq_attr attr = {.max_wr = 32, .srq_limit = 3};
	struct ibv_recv_wr receive = {0}, *bad_receive;
	struct ibv_send_wr send = {.opcode = IBV_WR_SEND}, *bad_send;

	CHECK(srq);
	struct ibv_qp *qp = make_qp(srq);
	to_init(qp);
	to_rts(qp);
	for (int i = 0; i < 4; i++)
		SAME(ibv_post_srq_recv(srq, &receive, &bad_receive), 0);
	SAME(ibv_modify_srq(srq, &attr, IBV_SRQ_MAX_WR | IBV_SRQ_LIMIT), 0);
	attr = (struct ibv_srq_attr){0};
	SAME(ibv_query_srq(srq, &attr), 0);
	CHECK(attr.max_wr >= 32 && attr.srq_limit == 3 && attr.max_sge >= 1);
	for (int i = 0; i < 3; i++) {
		SAME(ibv_post_send(qp, &send, &bad_send), 0);
		poll_one(IBV_WC_SUCCESS);
	}
	SAME(next_event(), IBV_EVENT_SRQ_LIMIT_REACHED);
	SAME(ibv_query_srq(srq, &attr), 0);
	SAME(attr.srq_limit, 0); /* it has to be set again */
	attr.srq_limit = attr.max_wr + 1;
	SAME(ibv_modify_srq(srq, &attr, IBV_SRQ_LIMIT), EINVAL);
	attr.max_wr = 0;
	SAME(ibv_modify_srq(srq, &attr, IBV_SRQ_MAX_WR), EINVAL);
	SAME(ibv_modify_srq(srq, &attr, 1 << 5), EINVAL);
	SAME(ibv_destroy_qp(qp), 0);
	SAME(ibv_destroy_srq(srq), 0);
}

/* A counters object without a flow counts nothing. tests/system/local/raw.c has flows. */
static void counters_begin_with_zero(void)
{
	struct ibv_counters_init_attr attr = {0};
	struct ibv_counter_attach_attr point = {.counter_desc = IBV_COUNTER_BYTES, .index = 1};
	struct ibv_counters *counters = ibv_create_counters(context, &attr);
	uint64_t values[2] = {7, 7};

	CHECK(counters && !ibv_attach_counters_point_flow(counters, &point, NULL));
	CHECK(!ibv_read_counters(counters, values, 2, 0) && !values[0] && !values[1]);
	point.counter_desc = (enum ibv_counter_description)7;
	SAME(ibv_attach_counters_point_flow(counters, &point, NULL), ENOTSUP);
	SAME(ibv_destroy_counters(counters), 0);
}

int main(void)
{
	struct ibv_device **devices = ibv_get_device_list(NULL);

	CHECK(devices);
	if (!devices[0])
		SKIP("no device");
	CHECK((context = ibv_open_device(devices[0])));
	CHECK((pd = ibv_alloc_pd(context)) && (cq = ibv_create_cq(context, 64, NULL, NULL, 0)));
	RUN(an_adapter_without_options_accepts_none);
	RUN(the_raw_clock_runs_as_fast_as_is_reported);
	RUN(data_has_no_order_within_a_message);
	RUN(a_rate_limit_is_accepted_where_a_queue_pair_sends);
	RUN(a_drained_send_queue_says_so);
	RUN(a_shared_receive_queue_falls_below_its_limit_once);
	RUN(counters_begin_with_zero);
	CHECK(!ibv_destroy_cq(cq) && !ibv_dealloc_pd(pd) && !ibv_close_device(context));
	ibv_free_device_list(devices);
	return 0;
}
