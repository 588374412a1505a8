// fake.c - stands in for node/, engine/, the device list and abi/ under the tests of core/
// see: core/node.h
// SPDX-License-Identifier: MIT
#include "harness.h"

#include <fcntl.h>
#include <sys/mman.h>
#include <time.h>
#include <unistd.h>

#include "core/key.h"
#include "core/sq.h"

struct fake fake;
struct vb_node fake_node;
struct vb_device fake_device = {.dev.name = "roce_fake"};

void fake_reset(void)
{
	memset(&fake, 0, sizeof(fake));
}

/* --- node/, engine/ --- */

int vb_node_get(struct vb_node **out)
{
	struct vb_node *n = &fake_node;

	if (!fake.nodes++ && !n->seg) {
		n->seg = mmap(NULL, VB_SEG_BYTES, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE,
		              -1, 0);
		n->hdr = n->seg;
		n->lane = 7;
		n->incarnation = 1;
		n->qps = calloc(VB_LANE_QPS, sizeof(*n->qps));
		n->keys = calloc(1, sizeof(*n->keys));
		n->keys->slots = vb_seg_key_slots(n->seg);
		pthread_mutex_init(&n->mr_lock, NULL);
	}
	*out = n;
	return 0;
}

void vb_node_put(struct vb_node *node)
{
	CHECK(fake.nodes-- > 0);
}

unsigned vb_progress(struct vb_node *node, struct vb_cq *cq, unsigned want)
{
	fake.progressed++;
	if (fake.on_progress)
		fake.on_progress();
	return 0;
}

unsigned vb_progress_surely(struct vb_node *node)
{
	return vb_progress(node, NULL, 0);
}

void vb_node_tally(struct vb_node *node)
{
}

/* No other process has any. */
int vb_xrc_file_open(const char *device, const struct stat *st, int oflags, int *lock)
{
	*lock = -1;
	if (fake.on_xrc_file)
		fake.on_xrc_file();
	return oflags & O_CREAT ? 0 : EAGAIN;
}

static void no_offer(struct vb_node *node)
{
}

static int no_far(struct vb_qp *h, const struct vb_xrc_id *id)
{
	return EINVAL;
}

const struct vb_xrc_far_ops vb_xrc_far_ops = {.offer = no_offer, .open = no_far};

int vb_raw_open(struct vb_qp *qp)
{
	return fake.raw_error;
}

void vb_raw_close(struct vb_qp *qp)
{
}

int vb_raw_flows_changed(struct vb_qp *qp)
{
	fake.flows_changed++;
	return 0;
}

void vb_faults_opened(void)
{
}

bool vb_device_is_there(struct vb_device *dev)
{
	return dev;
}

void vb_progress_handover(struct vb_node *node)
{
	fake.handovers++;
}

void wait_for_handover(void)
{
	for (int ms = 0; ms < 20000 && !fake.handovers; ms++)
		usleep(1000);
	usleep(50000);
}

void vb_timer_armed(struct vb_node *node)
{
	fake.timers++;
}

void vb_timer_at(struct vb_node *node, uint64_t at)
{
	fake.timers++;
}

int vb_region_import(struct vb_node *node, const struct vb_share *share, struct vb_device *dev, uint32_t handle,
                     uint32_t pd, struct vb_region_map **map)
{
	return ENOENT;
}

void vb_region_unmap(struct vb_region_map *map)
{
}

void vb_path_moved(struct vb_qp *qp)
{
}

void vb_path_limit(struct vb_qp *qp)
{
}

void vb_path_entered(struct vb_qp *qp, enum ibv_qp_state cur, enum ibv_qp_state next)
{
}

bool vb_path_idle(const struct vb_qp *qp)
{
	return qp->sq_una == qp->sq_emit;
}

int vb_roce_request_lane(struct vb_node *node)
{
	return 0;
}

int vb_roce_membership(struct vb_node *node, const union ibv_gid *group, uint32_t ifindex, bool join)
{
	return 0;
}

int vb_ib_membership(struct vb_node *node, const union ibv_gid *group, uint16_t mlid, bool attach)
{
	return 0;
}

void vb_path_ah_made(struct vb_ah *ah)
{
}

void vb_path_ah_ends(struct vb_ah *ah)
{
}

void vb_path_connect(struct vb_qp *qp)
{
	fake.connects++;
	fake.locked_in_connect = atomic_load(&qp->sq_lock.held) || atomic_load(&qp->node->progress.held);
	CHECK(qp->type == IBV_QPT_UD || qp->attr.dest_qp_num);
}

void vb_path_reset(struct vb_qp *qp)
{
	CHECK(atomic_load(&qp->sq_lock.held) && atomic_load(&qp->node->progress.held));
	fake.resets++;
}

void vb_path_closing(struct vb_qp *qp)
{
	vb_path_settle(qp);
}

void vb_path_abort(struct vb_qp *qp)
{
}

void vb_path_closed(struct vb_qp *qp)
{
	CHECK(atomic_load(&qp->sq_lock.held) && atomic_load(&qp->node->progress.held));
	CHECK(!(atomic_load(&qp->shared->gen) & 1));
}

static enum vb_sq_status kick(struct vb_qp *qp)
{
	CHECK(atomic_load(&qp->sq_lock.held));
	fake.kicks++;
	if (!fake.kick_completes)
		return VB_SQ_GOOD;
	for (; qp->sq_una != qp->sq_head; vb_sq_retire(qp)) {
		struct vb_swqe *w = vb_sq_at(qp, qp->sq_una);

		if (w->state == VB_SWQE_DONE && w->status != IBV_WC_SUCCESS)
			return VB_SQ_FAILED;
		if (w->flags & IBV_SEND_SIGNALED)
			vb_sq_tell(qp, w, IBV_WC_SUCCESS);
	}
	qp->sq_emit = qp->sq_una;
	return VB_SQ_GOOD;
}

static void start_responder(struct vb_qp *qp)
{
	CHECK(atomic_load(&qp->sq_lock.held) && atomic_load(&qp->node->progress.held));
	CHECK(!(atomic_load(&qp->shared->gen) & 1));
	fake.responders++;
}

static void forget_sends(struct vb_qp *qp)
{
	CHECK(atomic_load(&qp->sq_lock.held) && qp->sq_una == qp->sq_head);
	vb_rate_forget(qp);
	fake.forgotten++;
}

static void next_psns(const struct vb_qp *qp, uint32_t *sq_psn, uint32_t *rq_psn)
{
	*sq_psn = 0x345;
	*rq_psn = 101;
}

static void settle(struct vb_qp *qp)
{
	CHECK(atomic_load(&qp->sq_lock.held) && atomic_load(&qp->node->progress.held));
}

void vb_path_none(struct vb_qp *qp)
{
	static const struct vb_path_ops ops = {.name = "fake",
	                                       .kick = kick,
	                                       .settle = settle,
	                                       .start_responder = start_responder,
	                                       .forget_sends = forget_sends,
	                                       .next_psns = next_psns};

	qp->path = &ops;
}

void vb_path_settle(struct vb_qp *qp)
{
	CHECK(fake.threads || (!atomic_load(&qp->sq_lock.held) && !atomic_load(&qp->node->progress.held)));
	fake.settles++;
}

void vb_quiesce(struct vb_node *node, uint32_t key, uint32_t qpn)
{
	CHECK(fake.threads || !atomic_load(&node->progress.held));
	fake.quiesced_key = key;
	fake.quiesced_qpn = qpn;
	if (fake.on_quiesce)
		fake.on_quiesce();
}

bool vb_copies_stand(struct vb_node *node, uint32_t key, uint64_t *grace)
{
	return fake.copies;
}

uint64_t vb_now(void)
{
	struct timespec ts;

	clock_gettime(CLOCK_MONOTONIC, &ts);
	return (uint64_t)ts.tv_sec * 1000000000u + (uint64_t)ts.tv_nsec;
}

/* --- the device, abi/ --- */

void vb_fill_ops(struct vb_context *ctx)
{
}

struct vb_device *vb_device_get(struct vb_device *dev)
{
	dev->refs++;
	return dev;
}

void vb_device_put(struct vb_device *dev)
{
	dev->refs--;
}

bool vb_gid_is_zero(const union ibv_gid *gid)
{
	return !gid->global.subnet_prefix && !gid->global.interface_id;
}

static const union ibv_gid gids[] = {
        {.raw = {0xfe, 0x80, [15] = 1}},
        {.raw = {[10] = 0xff, 0xff, 10, 0, 0, 1}},
};

int vb_query_gid_entry(struct vb_device *dev, uint32_t port, uint32_t index, struct ibv_gid_entry *entry)
{
	if (index >= 2)
		return index < VB_GID_TBL_LEN ? ENODATA : EINVAL;
	*entry = (struct ibv_gid_entry){
	        .gid = gids[index], .gid_index = index, .port_num = port, .gid_type = IBV_GID_TYPE_ROCE_V2};
	return 0;
}

int vb_query_gid_index(struct vb_device *dev, uint32_t port, const union ibv_gid *gid)
{
	for (int i = 0; i < 2; i++)
		if (!memcmp(gid, &gids[i], sizeof(*gid)))
			return i;
	return -1;
}

int vb_query_port_attr(struct vb_device *dev, uint32_t port, struct ibv_port_attr *attr)
{
	*attr = (struct ibv_port_attr){.state = IBV_PORT_ACTIVE, .max_mtu = IBV_MTU_4096, .active_mtu = IBV_MTU_1024};
	return 0;
}

/* --- objects --- */

struct ibv_qp *make_qp(const struct objects *o, enum ibv_qp_type type, struct ibv_srq *srq)
{
	struct ibv_qp_init_attr_ex a = {
	        .send_cq = o->cq,
	        .recv_cq = o->cq,
	        .srq = srq,
	        .cap = {8, 8, 2, 2, 64},
	        .qp_type = type,
	        .comp_mask = IBV_QP_INIT_ATTR_PD | IBV_QP_INIT_ATTR_SEND_OPS_FLAGS,
	        .pd = o->pd,
	        .send_ops_flags = type == IBV_QPT_RC   ? 0x3ff
	                          : type == IBV_QPT_UC ? 0x18f
	                          : type == IBV_QPT_UD ? 0xc
	                                               : 0x4,
	};
	struct ibv_qp *qp = vb_create_qp_ex(o->ctx, &a);

	CHECK(qp);
	return qp;
}

struct objects open_objects(enum ibv_qp_type type)
{
	struct objects o = {.ctx = vb_open_device(&fake_device.dev)};

	CHECK(o.ctx);
	o.pd = vb_alloc_pd(o.ctx);
	o.cq = vb_create_cq(o.ctx, 63, NULL, NULL, 0);
	CHECK(o.pd && o.cq);
	o.qp = make_qp(&o, type, NULL);
	return o;
}

void close_objects(struct objects *o)
{
	if (o->qp)
		CHECK(!vb_destroy_qp(o->qp));
	CHECK(!vb_destroy_cq(o->cq));
	CHECK(!vb_dealloc_pd(o->pd));
	CHECK(!vb_close_device(o->ctx));
	CHECK(!fake.nodes && !fake_device.refs);
}

void to_state(struct ibv_qp *qp, enum ibv_qp_state state)
{
	enum ibv_qp_type t = qp->qp_type;
	struct ibv_qp_attr a = {
	        .qp_state = IBV_QPS_INIT,
	        .port_num = 1,
	        .qp_access_flags = IBV_ACCESS_REMOTE_WRITE,
	        .qkey = 0x11,
	        .path_mtu = IBV_MTU_1024,
	        .dest_qp_num = 9 << VB_LANE_SHIFT | 5,
	        .rq_psn = 100,
	        .sq_psn = 0x1000200, /* 25 bits */
	        .max_dest_rd_atomic = 4,
	        .max_rd_atomic = 4,
	        .min_rnr_timer = 12,
	        .timeout = 14,
	        .retry_cnt = 7,
	        .rnr_retry = 6,
	        .ah_attr = {.is_global = 1, .port_num = 1, .grh.dgid.raw = {0xfe, 0x80, [15] = 2}},
	};
	int path = IBV_QP_AV | IBV_QP_PATH_MTU | IBV_QP_DEST_QPN | IBV_QP_RQ_PSN;
	int rtr = t == IBV_QPT_RC   ? path | IBV_QP_MAX_DEST_RD_ATOMIC | IBV_QP_MIN_RNR_TIMER
	          : t == IBV_QPT_UC ? path
	                            : 0;
	int rts = t == IBV_QPT_RC ? IBV_QP_TIMEOUT | IBV_QP_RETRY_CNT | IBV_QP_RNR_RETRY | IBV_QP_MAX_QP_RD_ATOMIC : 0;

	CHECK(!vb_modify_qp(qp, &a,
	                    IBV_QP_STATE | IBV_QP_PKEY_INDEX | IBV_QP_PORT |
	                            (t == IBV_QPT_UD ? IBV_QP_QKEY : IBV_QP_ACCESS_FLAGS)));
	if (state == IBV_QPS_INIT)
		return;
	a.qp_state = IBV_QPS_RTR;
	CHECK(!vb_modify_qp(qp, &a, IBV_QP_STATE | rtr));
	if (state == IBV_QPS_RTR)
		return;
	a.qp_state = IBV_QPS_RTS;
	CHECK(!vb_modify_qp(qp, &a, IBV_QP_STATE | IBV_QP_SQ_PSN | rts));
	if (state == IBV_QPS_RTS)
		return;
	a.qp_state = state;
	CHECK(!vb_modify_qp(qp, &a, IBV_QP_STATE));
}

enum vb_xrc_place vb_relay_place(struct vb_qp *qp, uint32_t srqn)
{
	return VB_XRC_NONE;
}

bool vb_relay_allows(struct vb_qp *qp)
{
	return true;
}

void vb_relay_free(struct vb_qp *qp)
{
}
