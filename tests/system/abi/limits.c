// limits.c - what ibv_query_device reports can be had, and one more cannot
// follows: ibv_query_device(3), ibv_create_qp(3), ibv_attach_mcast(3); IBA C11-5, C11-7 (query HCA)
// SPDX-License-Identifier: MIT
#include <infiniband/verbs.h>
#include <linux/ethtool.h>
#include <linux/sockios.h>
#include <net/if.h>
#include <sys/ioctl.h>
#include <sys/socket.h>
#include <unistd.h>

#include "../../support/check.h"

static struct ibv_context *context;
static struct ibv_device_attr limits;
static struct ibv_pd *pd;
static struct ibv_cq *cq;
static char memory[4096];

/* --- the number of objects --- */

static void *make_pd(unsigned i)
{
	return ibv_alloc_pd(context);
}

static int end_pd(void *o)
{
	return ibv_dealloc_pd(o);
}

static void *make_cq(unsigned i)
{
	return ibv_create_cq(context, 1, NULL, NULL, 0);
}

static int end_cq(void *o)
{
	return ibv_destroy_cq(o);
}

static void *make_srq(unsigned i)
{
	struct ibv_srq_init_attr attr = {.attr = {.max_wr = 1, .max_sge = 1}};

	return ibv_create_srq(pd, &attr);
}

static int end_srq(void *o)
{
	return ibv_destroy_srq(o);
}

static void *make_mr(unsigned i)
{
	return ibv_reg_mr(pd, memory, sizeof(memory), IBV_ACCESS_LOCAL_WRITE);
}

static int end_mr(void *o)
{
	return ibv_dereg_mr(o);
}

static void *make_ah(unsigned i)
{
	static union ibv_gid gid;
	struct ibv_ah_attr attr = {.is_global = 1, .port_num = 1};

	if (!i)
		CHECK(!ibv_query_gid(context, 1, 0, &gid));
	attr.grh.dgid = gid;
	return ibv_create_ah(pd, &attr);
}

static int end_ah(void *o)
{
	return ibv_destroy_ah(o);
}

static struct ibv_qp *make_qp_with(const struct ibv_qp_cap *cap, enum ibv_qp_type type)
{
	struct ibv_qp_init_attr attr = {.send_cq = cq, .recv_cq = cq, .cap = *cap, .qp_type = type};

	return ibv_create_qp(pd, &attr);
}

static void *make_qp(unsigned i)
{
	return make_qp_with(&(struct ibv_qp_cap){1, 1, 1, 1, 0}, i % 2 && limits.max_ah ? IBV_QPT_UD : IBV_QPT_RC);
}

static int end_qp(void *o)
{
	return ibv_destroy_qp(o);
}

/* Makes as many as are reported, and one more in vain; then ends one, and makes another. `had`: so many exist before. */
static void fill(const char *name, int reported, int had, void *(*make)(unsigned), int (*end)(void *))
{
	CHECK(reported > had);
	unsigned n = (unsigned)(reported - had);
	void **all = calloc(n, sizeof(*all));

	CHECK(all);
	for (unsigned i = 0; i < n; i++) {
		all[i] = make(i);
		if (!all[i])
			CHECK_FAILED("%s: %u could be made of %u (%s)", name, i, n, strerror(errno));
	}
	errno = 0;
	if (make(n) || errno != ENOMEM)
		CHECK_FAILED("%s: one more than the %d that are reported (%s)", name, reported, strerror(errno));
	SAME(end(all[n / 2]), 0);
	CHECK((all[n / 2] = make(n / 2)));
	for (unsigned i = 0; i < n; i++)
		SAME(end(all[i]), 0);
	free(all);
	printf("%s: %d\n", name, reported);
}

static void as_many_objects_as_are_reported_can_be_made(void)
{
	fill("PDs", limits.max_pd, 1, make_pd, end_pd);
	fill("CQs", limits.max_cq, 1, make_cq, end_cq);
	fill("QPs", limits.max_qp, 0, make_qp, end_qp);
	fill("SRQs", limits.max_srq, 0, make_srq, end_srq);
	fill("regions", limits.max_mr, 0, make_mr, end_mr);
	if (limits.max_ah)
		fill("address handles", limits.max_ah, 0, make_ah, end_ah);
}

/* --- sizes --- */

static struct ibv_sge *many_sges(unsigned n)
{
	struct ibv_sge *sge = calloc(n, sizeof(*sge));

	CHECK(sge);
	for (unsigned i = 0; i < n; i++)
		sge[i] = (struct ibv_sge){(uintptr_t)memory, 1, 0};
	return sge;
}

/* Posts receives of max_sge pieces, until the queue is full. */
static void fill_receives(struct ibv_qp *qp, struct ibv_srq *srq, unsigned most, unsigned sges)
{
	struct ibv_sge *sge = many_sges(sges + 1);
	struct ibv_recv_wr wr = {.sg_list = sge, .num_sge = (int)sges}, *bad;

#define POST_ONE() (srq ? ibv_post_srq_recv(srq, &wr, &bad) : ibv_post_recv(qp, &wr, &bad))
	for (unsigned i = 0; i < most; i++)
		SAME(POST_ONE(), 0);
	SAME(POST_ONE(), ENOMEM);
	wr.num_sge++;
	SAME(POST_ONE(), EINVAL);
#undef POST_ONE
	free(sge);
}

static void to_init(struct ibv_qp *qp)
{
	struct ibv_qp_attr attr = {.qp_state = IBV_QPS_INIT, .port_num = 1};

	SAME(ibv_modify_qp(qp, &attr, IBV_QP_STATE | IBV_QP_PKEY_INDEX | IBV_QP_PORT | IBV_QP_ACCESS_FLAGS), 0);
}

static void a_queue_pair_is_as_large_as_is_reported(void)
{
	const struct ibv_qp_cap most = {(unsigned)limits.max_qp_wr, (unsigned)limits.max_qp_wr,
	                                (unsigned)limits.max_sge, (unsigned)limits.max_sge, 0};
	struct ibv_qp *qp = make_qp_with(&most, IBV_QPT_RC);

	CHECK(qp);
	to_init(qp);
	fill_receives(qp, NULL, most.max_recv_wr, most.max_recv_sge);
	SAME(ibv_destroy_qp(qp), 0);
	for (unsigned i = 0; i < 4; i++) {
		struct ibv_qp_cap more = most;

		(&more.max_send_wr)[i]++;
		errno = 0;
		CHECK(!make_qp_with(&more, IBV_QPT_RC) && errno == EINVAL);
	}
}

/* There is no field for inline data. What ibv_create_qp grants can be used, and it does not grant any number. */
static void inline_data_is_as_long_as_is_granted(void)
{
	struct ibv_qp_init_attr attr = {.send_cq = cq, .recv_cq = cq, .cap = {1, 1, 1, 1, 1}, .qp_type = IBV_QPT_RC};
	unsigned granted = 0;

	for (unsigned ask = 1; ask <= 1u << 20; ask *= 2) {
		attr.cap.max_inline_data = ask;
		struct ibv_qp *qp = ibv_create_qp(pd, &attr);

		if (!qp)
			break;
		CHECK(attr.cap.max_inline_data >= ask);
		granted = attr.cap.max_inline_data;
		SAME(ibv_destroy_qp(qp), 0);
	}
	CHECK(granted >= 64 && granted < 1u << 20 && errno == EINVAL);
}

static void a_shared_receive_queue_is_as_large_as_is_reported(void)
{
	struct ibv_srq_init_attr attr = {
	        .attr = {.max_wr = (unsigned)limits.max_srq_wr, .max_sge = (unsigned)limits.max_srq_sge}};
	struct ibv_srq *srq = ibv_create_srq(pd, &attr);

	CHECK(srq);
	fill_receives(NULL, srq, (unsigned)limits.max_srq_wr, (unsigned)limits.max_srq_sge);
	SAME(ibv_destroy_srq(srq), 0);
	attr.attr = (struct ibv_srq_attr){.max_wr = (unsigned)limits.max_srq_wr + 1, .max_sge = 1};
	CHECK(!ibv_create_srq(pd, &attr) && errno == EINVAL);
	attr.attr = (struct ibv_srq_attr){.max_wr = 1, .max_sge = (unsigned)limits.max_srq_sge + 1};
	CHECK(!ibv_create_srq(pd, &attr) && errno == EINVAL);
}

static void a_completion_queue_is_as_large_as_is_reported(void)
{
	struct ibv_cq *large = ibv_create_cq(context, limits.max_cqe, NULL, NULL, 0);

	CHECK(large && large->cqe >= limits.max_cqe);
	SAME(ibv_resize_cq(large, limits.max_cqe), 0);
	SAME(ibv_resize_cq(large, limits.max_cqe + 1), EINVAL);
	SAME(ibv_destroy_cq(large), 0);
	CHECK(!ibv_create_cq(context, limits.max_cqe + 1, NULL, NULL, 0) && errno == EINVAL);
}

#define RTR_RC                                                                                                      \
	(IBV_QP_STATE | IBV_QP_AV | IBV_QP_PATH_MTU | IBV_QP_DEST_QPN | IBV_QP_RQ_PSN | IBV_QP_MAX_DEST_RD_ATOMIC | \
	 IBV_QP_MIN_RNR_TIMER)
#define RTS_RC \
	(IBV_QP_STATE | IBV_QP_SQ_PSN | IBV_QP_TIMEOUT | IBV_QP_RETRY_CNT | IBV_QP_RNR_RETRY | IBV_QP_MAX_QP_RD_ATOMIC)

static void so_many_reads_and_atomics_are_outstanding_as_are_reported(void)
{
	struct ibv_port_attr port;
	struct ibv_qp *qp = make_qp_with(&(struct ibv_qp_cap){1, 1, 1, 1, 0}, IBV_QPT_RC);

	CHECK(qp && !ibv_query_port(context, 1, &port));
	to_init(qp);
	struct ibv_qp_attr attr = {.qp_state = IBV_QPS_RTR,
	                           .path_mtu = port.active_mtu,
	                           .dest_qp_num = qp->qp_num,
	                           .max_dest_rd_atomic = (uint8_t)(limits.max_qp_rd_atom + 1),
	                           .ah_attr = {.is_global = 1, .port_num = 1}};
	CHECK(!ibv_query_gid(context, 1, 0, &attr.ah_attr.grh.dgid));
	SAME(ibv_modify_qp(qp, &attr, RTR_RC), EINVAL);
	attr.max_dest_rd_atomic = (uint8_t)limits.max_qp_rd_atom;
	SAME(ibv_modify_qp(qp, &attr, RTR_RC), 0);
	attr.qp_state = IBV_QPS_RTS;
	attr.max_rd_atomic = (uint8_t)(limits.max_qp_init_rd_atom + 1);
	SAME(ibv_modify_qp(qp, &attr, RTS_RC), EINVAL);
	attr.max_rd_atomic = (uint8_t)limits.max_qp_init_rd_atom;
	SAME(ibv_modify_qp(qp, &attr, RTS_RC), 0);
	SAME(ibv_destroy_qp(qp), 0);
	SAME(limits.max_res_rd_atom, limits.max_qp_rd_atom * limits.max_qp);
}

/* --- multicast --- */

static union ibv_gid group_of(unsigned i)
{
	union ibv_gid gid = {.raw = {[10] = 0xff, 0xff, 239, 7, (uint8_t)(i >> 8), (uint8_t)i}};

	return gid;
}

static void a_queue_pair_joins_as_many_groups_as_are_reported(void)
{
	struct ibv_qp *qp = make_qp_with(&(struct ibv_qp_cap){1, 1, 1, 1, 0}, IBV_QPT_UD);
	union ibv_gid gid = group_of(0);

	CHECK(qp);
	for (int i = 0; i < limits.max_mcast_grp; i++) {
		gid = group_of((unsigned)i);
		SAME(ibv_attach_mcast(qp, &gid, 0), 0);
	}
	gid = group_of((unsigned)limits.max_mcast_grp);
	SAME(ibv_attach_mcast(qp, &gid, 0), ENOMEM);
	SAME(ibv_destroy_qp(qp), EBUSY);
	for (int i = 0; i < limits.max_mcast_grp; i++) {
		gid = group_of((unsigned)i);
		SAME(ibv_detach_mcast(qp, &gid, 0), 0);
	}
	SAME(ibv_destroy_qp(qp), 0);
}

static void as_many_queue_pairs_join_a_group_as_are_reported(void)
{
	int n = limits.max_mcast_qp_attach;
	struct ibv_qp **qps = calloc((size_t)n + 1, sizeof(*qps));
	union ibv_gid gid = group_of(0);

	CHECK(qps && limits.max_total_mcast_qp_attach == limits.max_mcast_grp * n);
	for (int i = 0; i <= n; i++)
		CHECK((qps[i] = make_qp_with(&(struct ibv_qp_cap){1, 1, 1, 1, 0}, IBV_QPT_UD)));
	for (int i = 0; i <= n; i++)
		SAME(ibv_attach_mcast(qps[i], &gid, 0), i < n ? 0 : ENOMEM);
	SAME(ibv_attach_mcast(qps[0], &gid, 0), 0); /* it is in the group already */
	for (int i = 0; i < n; i++)
		SAME(ibv_detach_mcast(qps[i], &gid, 0), 0);
	for (int i = 0; i <= n; i++)
		SAME(ibv_destroy_qp(qps[i]), 0);
	free(qps);
}

/* False if there is no UDP port 4791 for us, or no interface with multicast. */
static int can_join(void)
{
	struct ibv_qp *qp = make_qp_with(&(struct ibv_qp_cap){1, 1, 1, 1, 0}, IBV_QPT_UD);
	union ibv_gid gid = group_of(0);

	CHECK(qp);
	int joined = !ibv_attach_mcast(qp, &gid, 0);

	if (joined)
		SAME(ibv_detach_mcast(qp, &gid, 0), 0);
	else
		printf("no multicast here\n");
	SAME(ibv_destroy_qp(qp), 0);
	return joined;
}

/* --- the port --- */

static void the_tables_of_the_port_are_as_long_as_is_reported(void)
{
	struct ibv_port_attr port;
	union ibv_gid gid;
	__be16 pkey;

	CHECK(!ibv_query_port(context, limits.phys_port_cnt, &port));
	SAME(ibv_query_port(context, (uint8_t)(limits.phys_port_cnt + 1), &port), EINVAL);
	CHECK(!ibv_query_gid(context, 1, port.gid_tbl_len - 1, &gid) &&
	      ibv_query_gid(context, 1, port.gid_tbl_len, &gid));
	SAME(limits.max_pkeys, port.pkey_tbl_len);
	for (int i = 0; i < port.pkey_tbl_len; i++)
		SAME(ibv_query_pkey(context, 1, i, &pkey), 0);
	SAME(ibv_query_pkey(context, 1, port.pkey_tbl_len, &pkey), -1);
	CHECK(port.active_mtu <= port.max_mtu && port.max_msg_sz);
}

static int ask_interface(const struct ibv_device *device, unsigned long request, struct ifreq *ifr)
{
	int fd = socket(AF_INET, SOCK_DGRAM | SOCK_CLOEXEC, 0);

	CHECK(fd >= 0 && !strncmp(device->name, "roce_", 5));
	snprintf(ifr->ifr_name, sizeof(ifr->ifr_name), "%s", device->name + 5);
	int err = ioctl(fd, request, ifr);
	close(fd);
	return err;
}

/* In Mb/s; 0: unknown. */
static unsigned speed_of(const struct ibv_device *device)
{
	uint32_t words[sizeof(struct ethtool_link_settings) / 4 + 3 * 127] = {
	        0}; /* with room for the masks behind it */
	struct ethtool_link_settings *req = (struct ethtool_link_settings *)words;
	struct ifreq ifr = {.ifr_data = (void *)words};

	/* the first answer is the number of words that the masks take */
	req->cmd = ETHTOOL_GLINKSETTINGS;
	if (ask_interface(device, SIOCETHTOOL, &ifr) || req->link_mode_masks_nwords >= 0)
		return 0;
	req->link_mode_masks_nwords = (int8_t)-req->link_mode_masks_nwords;
	req->cmd = ETHTOOL_GLINKSETTINGS;
	if (ask_interface(device, SIOCETHTOOL, &ifr) || req->speed == (uint32_t)SPEED_UNKNOWN)
		return 0;
	return req->speed;
}

/* The width and the speed of a lane give at least the interface's speed, and not twice as much. */
static void is_as_fast(const struct ibv_port_attr *port, unsigned mbps)
{
	static const unsigned lane[] = {2500, 5000, 10000, 10000, 14000, 25000, 50000, 100000};
	static const unsigned lanes[] = {1, 4, 8, 12, 2};
	int s = __builtin_ctz(port->active_speed | 0x100), w = __builtin_ctz(port->active_width | 0x100);

	CHECK(s < 8 && w < 5);
	unsigned have = lane[s] * lanes[w];

	CHECK(have >= mbps && (have <= 2500 || have < 2 * mbps));
}

static void a_port_is_as_its_interface_is(struct ibv_device **devices)
{
	for (int i = 0; devices[i]; i++) {
		struct ibv_context *c = ibv_open_device(devices[i]);
		struct ibv_port_attr port;
		struct ifreq ifr = {0};
		unsigned mbps = speed_of(devices[i]);

		CHECK(c && !ibv_query_port(c, 1, &port) && !ask_interface(devices[i], SIOCGIFMTU, &ifr));
		CHECK((128 << port.active_mtu) + 80 <= ifr.ifr_mtu || port.active_mtu == IBV_MTU_256);
		CHECK(port.active_mtu == IBV_MTU_4096 || (256 << port.active_mtu) + 80 > ifr.ifr_mtu);
		if (mbps)
			is_as_fast(&port, mbps);
		printf("%s: MTU %d, %u Mb/s\n", devices[i]->name, ifr.ifr_mtu, mbps);
		SAME(ibv_close_device(c), 0);
	}
}

int main(void)
{
	struct ibv_device **devices = ibv_get_device_list(NULL);

	CHECK(devices);
	if (!devices[0])
		SKIP("no device");
	a_port_is_as_its_interface_is(devices);
	CHECK((context = ibv_open_device(devices[0])));
	CHECK(!ibv_query_device(context, &limits));
	CHECK((pd = ibv_alloc_pd(context)) && (cq = ibv_create_cq(context, 16, NULL, NULL, 0)));
	RUN(a_queue_pair_is_as_large_as_is_reported);
	RUN(inline_data_is_as_long_as_is_granted);
	RUN(a_shared_receive_queue_is_as_large_as_is_reported);
	RUN(a_completion_queue_is_as_large_as_is_reported);
	RUN(so_many_reads_and_atomics_are_outstanding_as_are_reported);
	RUN(the_tables_of_the_port_are_as_long_as_is_reported);
	if (limits.max_mcast_grp && can_join()) {
		RUN(a_queue_pair_joins_as_many_groups_as_are_reported);
		RUN(as_many_queue_pairs_join_a_group_as_are_reported);
	}
	RUN(as_many_objects_as_are_reported_can_be_made);
	CHECK(!ibv_destroy_cq(cq) && !ibv_dealloc_pd(pd) && !ibv_close_device(context));
	ibv_free_device_list(devices);
	return 0;
}
