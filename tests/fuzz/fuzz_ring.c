// fuzz_ring.c - a hostile peer: any records in its ring, anything in its segment. Memory outside the granted regions
// does not change, and each request completes once and in order
// see: docs/same-host.md
// build: tests/fuzz/run 60 ring
// SPDX-License-Identifier: MIT
#include <assert.h>
#include <errno.h>
#include <fcntl.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>

#include "core/device.h"
#include "core/key.h"
#include "core/verbs.h"
#include "core/xrc.h"
#include "engine/local/local.h"
#include "engine/local/responder.h"
#include "engine/local/ring.h"
#include "path/path.h"

#ifdef WITH_RELAY
#include "passed.h"
#else
#include "no_relay.h"
#define PASSED(what)
#endif
#include "tagged.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

#define LANE 7u
#define PEER_LANE 9u
#define QPS 7u
#define TARGET 5u /* of XRC */
#define TAGGED 6u /* its SRQ matches tags */
#define REGION 65536u
#define BESIDE 4096u
#define QUIET 0x5a

static struct vb_node node;
static struct vb_device device = {.dev.name = "roce_fuzz"};
static struct vb_peer peer;
static uint64_t clock_ns = 1000000000;
static uint8_t *peer_ring;
static void *peer_seg;
static int copy_result;

/* --- node/ --- */

int vb_node_get(struct vb_node **out)
{
	*out = &node;
	return 0;
}

void vb_node_put(struct vb_node *n)
{
}

unsigned vb_progress(struct vb_node *n, struct vb_cq *cq, unsigned want)
{
	return 0;
}

void vb_progress_handover(struct vb_node *n)
{
}

/* Without a network. */
static enum vb_datagram_result no_network(struct vb_qp *qp, struct vb_swqe *w)
{
	return VB_DATAGRAM_LOST;
}

static void nothing_ends(struct vb_qp *qp)
{
}

/* Like path/datagram.c, without a network. */
static const struct vb_path_ops datagrams = {
        .ring = true,
        .kick = vb_local_kick_datagrams,
        .settle = vb_local_settle,
        .visit = vb_local_visit,
        .deadline = vb_local_deadline,
        .idle = vb_local_idle,
        .closing = vb_local_settle,
        .closed = vb_local_closed,
        .forget_sends = vb_local_forget_sends,
        .reset = vb_local_reset,
        .datagram = no_network,
        .datagrams_end = nothing_ends,
};

void vb_path_none(struct vb_qp *qp)
{
	qp->path = qp->type == IBV_QPT_UD ? &datagrams : &vb_local_path_ops;
}

void vb_path_settle(struct vb_qp *qp)
{
	vb_lock(&qp->node->progress);
	vb_lock(&qp->sq_lock);
	qp->path->settle(qp);
	vb_unlock(&qp->sq_lock);
	vb_unlock(&qp->node->progress);
}

#ifndef WITH_RELAY
enum vb_verdict vb_relay_record(struct vb_qp *qp, struct vb_local_req *q)
{
	return VB_VERDICT_AGAIN;
}
#endif

void vb_roce_take_forwarded(struct vb_node *n, const uint8_t *record, uint32_t length)
{
	assert(length <= VB_RING_BYTES);
	for (uint32_t i = 0; i < length; i++)
		(void)*(volatile const uint8_t *)(record + i);
}

void vb_path_moved(struct vb_qp *qp)
{
}

void vb_path_limit(struct vb_qp *qp)
{
}

void vb_path_entered(struct vb_qp *qp, enum ibv_qp_state cur, enum ibv_qp_state next)
{
	if (qp->path->entered)
		qp->path->entered(qp, cur, next);
}

bool vb_path_idle(const struct vb_qp *qp)
{
	return qp->path->idle(qp);
}

int vb_roce_request_lane(struct vb_node *n)
{
	return ENETDOWN;
}

int vb_roce_membership(struct vb_node *n, const union ibv_gid *group, uint32_t ifindex, bool join)
{
	return 0;
}

int vb_ib_membership(struct vb_node *n, const union ibv_gid *group, uint16_t mlid, bool attach)
{
	return 0;
}

void vb_path_ah_made(struct vb_ah *ah)
{
}

void vb_path_ah_ends(struct vb_ah *ah)
{
}

void vb_ib_way_address(struct vb_node *n, const struct vb_ib_way *way, union ibv_gid *address)
{
}

void vb_path_connect(struct vb_qp *qp)
{
	qp->local.peer = &peer;
	qp->local.remote = NULL;
}

void vb_path_closing(struct vb_qp *qp)
{
	vb_lock(&qp->node->progress);
	vb_lock(&qp->sq_lock);
	qp->path->closing(qp);
	vb_unlock(&qp->sq_lock);
	vb_unlock(&qp->node->progress);
}

void vb_path_abort(struct vb_qp *qp)
{
}

void vb_path_closed(struct vb_qp *qp)
{
	qp->path->closed(qp);
}

void vb_path_reset(struct vb_qp *qp)
{
	if (qp->type == IBV_QPT_XRC_RECV)
		vb_relay_reset(qp);
	qp->path->reset(qp);
	qp->inbound->active = false;
}

int vb_xrc_file_open(const char *device, const struct stat *st, int oflags, int *lock)
{
	*lock = -1;
	return 0;
}

int vb_raw_open(struct vb_qp *qp)
{
	return EPERM;
}

void vb_raw_close(struct vb_qp *qp)
{
}

int vb_raw_flows_changed(struct vb_qp *qp)
{
	return 0;
}

void vb_node_tally(struct vb_node *node)
{
}

unsigned vb_progress_surely(struct vb_node *node)
{
	return 0;
}

void vb_node_each_qp(struct vb_node *node, void (*each)(struct vb_qp *qp, void *arg), void *arg)
{
}

void vb_faults_opened(void)
{
}

bool vb_device_is_there(struct vb_device *dev)
{
	return dev;
}

void vb_quiesce(struct vb_node *n, uint32_t key, uint32_t qpn)
{
}

bool vb_copies_stand(struct vb_node *n, uint32_t key, uint64_t *grace)
{
	return clock_ns & 2;
}

void vb_fence_all(struct vb_node *n)
{
}

void vb_timer_armed(struct vb_node *n)
{
}

int vb_region_import(struct vb_node *node, const struct vb_share *share, struct vb_device *dev, uint32_t handle,
                     uint32_t pd, struct vb_region_map **map)
{
	return ENOENT;
}

void vb_region_unmap(struct vb_region_map *map)
{
}

void vb_timer_at(struct vb_node *n, uint64_t at)
{
}

bool vb_peer_sleeps(const struct vb_peer *p)
{
	return clock_ns & 1;
}

uint64_t vb_now(void)
{
	return clock_ns;
}

struct vb_peer *vb_peer_find(struct vb_node *n, uint32_t qpn, const union ibv_gid *dgid, unsigned wait_ms, int *err)
{
	*err = VB_QP_LANE(qpn) == PEER_LANE ? 0 : ENOENT;
	return *err ? NULL : &peer;
}

void vb_peer_remind(struct vb_peer *p)
{
}

void vb_peer_doorbell(struct vb_peer *p)
{
}

struct vb_map *vb_map_take(struct vb_peer *p, uint32_t key, const struct vb_mr_view *view, uint64_t va, uint64_t *local)
{
	return NULL;
}

void vb_map_drop(struct vb_peer *p, struct vb_map *m)
{
}

enum vb_mapped vb_map_ask(struct vb_peer *p, uint32_t key, const struct vb_mr_view *view)
{
	return VB_MAPPED_NEVER;
}

/* One copy: the peer's address is arbitrary, and ours must be within the region. */
static int copy(struct vb_peer *p, uint64_t remote, const struct iovec *local, int n, size_t total)
{
	size_t sum = 0;

	for (int i = 0; i < n; i++) {
		sum += local[i].iov_len;
		if (!copy_result)
			memset(local[i].iov_base, 0x11, local[i].iov_len);
	}
	assert(copy_result || sum == total);
	return copy_result;
}

static int copy_out(struct vb_peer *p, uint64_t remote, const struct iovec *local, int n, size_t total)
{
	return copy_result;
}

static const struct vb_copy_ops ops = {.write = copy_out, .read = copy};

/* --- the device, abi/ --- */

void vb_fill_ops(struct vb_context *ctx)
{
}

struct vb_device *vb_device_get(struct vb_device *d)
{
	return d;
}

void vb_device_put(struct vb_device *d)
{
}

bool vb_gid_is_zero(const union ibv_gid *gid)
{
	return !gid->global.subnet_prefix && !gid->global.interface_id;
}

int vb_query_gid_at(struct vb_device *d, uint32_t port, int index, union ibv_gid *gid)
{
	*gid = (union ibv_gid){.raw = {0xfe, 0x80, [15] = 1}};
	return 0;
}

int vb_query_gid_entry(struct vb_device *d, uint32_t port, uint32_t index, struct ibv_gid_entry *e)
{
	*e = (struct ibv_gid_entry){
	        .gid.raw = {0xfe, 0x80, [15] = 1}, .port_num = port, .gid_type = IBV_GID_TYPE_ROCE_V2};
	return index ? ENODATA : 0;
}

int vb_query_gid_index(struct vb_device *d, uint32_t port, const union ibv_gid *gid)
{
	return 0;
}

int vb_query_port_attr(struct vb_device *d, uint32_t port, struct ibv_port_attr *a)
{
	*a = (struct ibv_port_attr){.state = IBV_PORT_ACTIVE, .max_mtu = IBV_MTU_4096, .active_mtu = IBV_MTU_4096};
	return 0;
}

/* --- the environment --- */

struct world {
	struct ibv_context *ctx;
	struct ibv_pd *pd;
	struct ibv_cq *cq[QPS];
	struct ibv_srq *srq, *xrc_srq, *tm_srq;
	struct ibv_xrcd *xrcd;
	uint32_t srqn;
	struct ibv_qp *qp[QPS];
	struct ibv_mr *mr;
	uint8_t *memory; /* REGION bytes, surrounded by BESIDE bytes that must not change */
	uint64_t posted[QPS], done[QPS];
};

/* Keys are the same in every run, so that an input is reproducible. */
ssize_t getrandom(void *to, size_t n, unsigned flags)
{
	static uint64_t state = 1;

	for (size_t i = 0; i < n; i++)
		((uint8_t *)to)[i] = (uint8_t)((state = state * 6364136223846793005u + 1442695040888963407u) >> 56);
	return (ssize_t)n;
}

static void once(void)
{
	node.seg = mmap(NULL, VB_SEG_BYTES, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
	peer_seg = mmap(NULL, VB_SEG_BYTES, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
	assert(node.seg != MAP_FAILED && peer_seg != MAP_FAILED);
	node.hdr = node.seg;
	node.lane = LANE;
	node.incarnation = 1;
	node.membarrier = true;
	setenv("VERBENA_RDMA", "random", 1);
	node.qps = calloc(VB_LANE_QPS, sizeof(*node.qps));
	node.keys = calloc(1, sizeof(*node.keys));
	node.keys->slots = vb_seg_key_slots(node.seg);
	pthread_mutex_init(&node.mr_lock, NULL);
}

static void peer_reset(void)
{
	peer_ring = (uint8_t *)peer_seg + VB_SEG_RINGS_OFF + LANE * (uint64_t)VB_RING_BYTES;
	memset(peer_ring, 0, VB_RING_BYTES);
	memset(&peer, 0, sizeof(peer));
	peer.lane = PEER_LANE;
	peer.incarnation = 2;
	peer.node = &node;
	peer.hot_index = -1;
	peer.copy = peer.copy_mapped = &ops;
	peer.seg = peer_seg;
	memset(peer.seg, 0, sizeof(*peer.seg));
	peer.theirs = vb_seg_slot(peer_seg, LANE);
	memset(peer.theirs, 0, sizeof(*peer.theirs));
	peer.ours = vb_seg_slot(node.seg, PEER_LANE);
	atomic_store(&peer.theirs->peer_incarnation, 1);
	atomic_store(&peer.theirs->hot, 1);
	atomic_store(&peer.theirs->can_place, 1);
	PASSED(passed_begin(&node));
	peer.tx = (uint8_t *)node.seg + VB_SEG_RINGS_OFF + PEER_LANE * (uint64_t)VB_RING_BYTES;
	memset(peer.tx, 0, VB_RING_BYTES);
	peer.rx = peer_ring;
}

static uint32_t its_qpn(unsigned i)
{
	return PEER_LANE << VB_LANE_SHIFT | (i + 1);
}

static const enum ibv_qp_type types[QPS] = {IBV_QPT_RC,       IBV_QPT_RC,       IBV_QPT_UC, IBV_QPT_UD,
                                            IBV_QPT_XRC_SEND, IBV_QPT_XRC_RECV, IBV_QPT_RC};

static void make_ready(struct world *w, unsigned i)
{
	enum ibv_qp_type t = types[i];
	struct ibv_qp_attr a = {.qp_state = IBV_QPS_INIT,
	                        .port_num = 1,
	                        .qkey = 5,
	                        .qp_access_flags = IBV_ACCESS_REMOTE_WRITE | IBV_ACCESS_REMOTE_READ |
	                                           IBV_ACCESS_REMOTE_ATOMIC | VB_IBV_ACCESS_FLUSH_GLOBAL};
	int base = IBV_QP_STATE;

	assert(!vb_modify_qp(w->qp[i], &a,
	                     base | IBV_QP_PKEY_INDEX | IBV_QP_PORT |
	                             (t == IBV_QPT_UD ? IBV_QP_QKEY : IBV_QP_ACCESS_FLAGS)));
	struct vb_qp_shared *s = vb_seg_qp(peer_seg, its_qpn(i));

	memset(s, 0, sizeof(*s));
	atomic_store(&s->qpn, its_qpn(i));
	atomic_store(&s->type, t == IBV_QPT_XRC_SEND ? IBV_QPT_XRC_RECV : t);
	atomic_store(&s->dest_qpn, w->qp[i]->qp_num);
	atomic_store(&s->gen, 1);
	a = (struct ibv_qp_attr){.qp_state = IBV_QPS_RTR,
	                         .path_mtu = IBV_MTU_1024,
	                         .dest_qp_num = its_qpn(i),
	                         .max_dest_rd_atomic = 4,
	                         .ah_attr = {.is_global = 1, .port_num = 1, .grh.dgid.raw = {0xfe, 0x80, [15] = 2}}};
	if (t != IBV_QPT_UD)
		base |= IBV_QP_AV | IBV_QP_PATH_MTU | IBV_QP_DEST_QPN | IBV_QP_RQ_PSN;
	assert(!vb_modify_qp(w->qp[i], &a,
	                     base | (t == IBV_QPT_RC || t == IBV_QPT_XRC_RECV
	                                     ? IBV_QP_MAX_DEST_RD_ATOMIC | IBV_QP_MIN_RNR_TIMER
	                                     : 0)));
	a = (struct ibv_qp_attr){
	        .qp_state = IBV_QPS_RTS, .timeout = 10, .retry_cnt = 2, .rnr_retry = 2, .max_rd_atomic = 4};
	assert(!vb_modify_qp(
	        w->qp[i], &a,
	        IBV_QP_STATE | IBV_QP_SQ_PSN |
	                (t == IBV_QPT_RC || t == IBV_QPT_XRC_SEND
	                         ? IBV_QP_TIMEOUT | IBV_QP_RETRY_CNT | IBV_QP_RNR_RETRY | IBV_QP_MAX_QP_RD_ATOMIC
	                 : t == IBV_QPT_XRC_RECV ? IBV_QP_TIMEOUT
	                                         : 0)));
}

static struct ibv_qp *make_target(struct world *w)
{
	struct ibv_xrcd_init_attr xa = {
	        .comp_mask = IBV_XRCD_INIT_ATTR_FD | IBV_XRCD_INIT_ATTR_OFLAGS, .fd = -1, .oflags = O_CREAT};

	PASSED(xa.fd = passed_file());
	struct ibv_srq_init_attr_ex sa = {.attr = {.max_wr = 8, .max_sge = 2},
	                                  .comp_mask = IBV_SRQ_INIT_ATTR_TYPE | IBV_SRQ_INIT_ATTR_PD |
	                                               IBV_SRQ_INIT_ATTR_XRCD | IBV_SRQ_INIT_ATTR_CQ,
	                                  .srq_type = IBV_SRQT_XRC,
	                                  .pd = w->pd,
	                                  .cq = w->cq[TARGET]};
	struct ibv_qp_init_attr_ex a = {.qp_type = IBV_QPT_XRC_RECV, .comp_mask = IBV_QP_INIT_ATTR_XRCD};

	a.xrcd = sa.xrcd = w->xrcd = vb_open_xrcd(w->ctx, &xa);
	w->xrc_srq = vb_create_srq_ex(w->ctx, &sa);
	assert(w->xrc_srq && !vb_get_srq_num(w->xrc_srq, &w->srqn));
	return vb_create_qp_ex(w->ctx, &a);
}

static void world_open(struct world *w)
{
	static uint8_t memory[REGION + 2 * BESIDE] __attribute__((aligned(4096)));

	peer_reset();
	memset(w, 0, sizeof(*w));
	w->memory = memory + BESIDE;
	memset(memory, QUIET, sizeof(memory));
	w->ctx = vb_open_device(&device.dev);
	w->pd = vb_alloc_pd(w->ctx);
	w->mr = vb_reg_mr(w->pd, w->memory, REGION, (uintptr_t)w->memory,
	                  IBV_ACCESS_LOCAL_WRITE | IBV_ACCESS_REMOTE_WRITE | IBV_ACCESS_REMOTE_READ |
	                          IBV_ACCESS_REMOTE_ATOMIC | VB_IBV_ACCESS_FLUSH_GLOBAL);
	struct ibv_srq_init_attr sa = {.attr = {.max_wr = 8, .max_sge = 2}};

	w->srq = vb_create_srq(w->pd, &sa);
	assert(w->mr && w->srq);
	for (unsigned i = 0; i < QPS; i++) {
		struct ibv_qp_init_attr a = {
		        .cap = {8, 8, 2, 2, 64}, .qp_type = types[i], .srq = i == 1 ? w->srq : NULL, .sq_sig_all = 1};

		w->cq[i] = vb_create_cq(w->ctx, 63, NULL, NULL, 0);
		a.send_cq = a.recv_cq = w->cq[i];
		if (i == TAGGED) {
			w->tm_srq = a.srq = tagged_srq(w->ctx, w->pd, w->cq[i]);
			a.cap.max_send_wr = 0;
		}
		w->qp[i] = i == TARGET ? make_target(w) : vb_create_qp(w->pd, &a);
		assert(w->qp[i]);
		make_ready(w, i);
	}
}

/* Sends complete once, in the order of posting. The wr_id of receives starts at 1000. */
static void poll_all(struct world *w)
{
	struct ibv_wc wc;

	for (unsigned i = 0; i < QPS; i++)
		while (vb_poll_cq(w->cq[i], 1, &wc) > 0) {
			/* a guest names the queue pair of its target */
			assert(wc.qp_num == w->qp[i]->qp_num || (wc.wr_id == 2000 && !wc.qp_num) ||
			       (i == TARGET && VB_QP_LANE(wc.qp_num) == PEER_LANE));
			if (wc.wr_id < 1000)
				assert(wc.wr_id == w->done[i]++ % 1000 && w->done[i] <= w->posted[i]);
			else
				assert(wc.status != IBV_WC_SUCCESS || wc.byte_len <= REGION ||
				       wc.opcode == IBV_WC_RECV_RDMA_WITH_IMM);
		}
}

static void world_close(struct world *w)
{
	poll_all(w);
	for (unsigned i = 0; i < BESIDE; i++)
		assert(w->memory[-1 - (int)i] == QUIET && w->memory[REGION + i] == QUIET);
	struct ibv_async_event ev;

	(void)ev;
	for (unsigned i = 0; i < QPS; i++)
		assert(!vb_destroy_qp(w->qp[i]));
	tagged_at_rest(w->tm_srq);
	assert(!vb_destroy_srq(w->tm_srq) && !vb_destroy_srq(w->srq) && !vb_destroy_srq(w->xrc_srq) &&
	       !vb_close_xrcd(w->xrcd));
	for (unsigned i = 0; i < QPS; i++)
		assert(!vb_destroy_cq(w->cq[i]));
	assert(!vb_dereg_mr(w->mr));
	assert(!vb_dealloc_pd(w->pd));
	assert(!vb_close_device(w->ctx));
}

/* --- decoding the input --- */

struct input {
	const uint8_t *p;
	size_t n;
};

static uint32_t take(struct input *in, unsigned bytes)
{
	uint32_t v = 0;

	while (bytes-- && in->n) {
		v = v << 8 | *in->p++;
		in->n--;
	}
	return v;
}

/* Puts records behind this one that are like it, but for their PSN and one byte: a run, or what looks like one. */
static void put_more(const struct vb_rec *first, uint32_t at, uint32_t lines, struct input *in)
{
	uint32_t size = lines * VB_LINE, n = take(in, 1) % 20;

	for (uint32_t k = 1; k <= n && at + (k + 1) * size <= VB_RING_BYTES; k++) {
		uint8_t *to = peer_ring + at + k * size;
		struct vb_rec *r = (struct vb_rec *)to;
		uint32_t change = take(in, 1);

		memcpy(to + 8, (const uint8_t *)first + 8, size - 8);
		r->psn = (first->psn & 0xff000000) | ((first->psn + k) & 0xffffff);
		if (change & 128)
			to[8 + change % 24] = (uint8_t)take(in, 1);
		atomic_store(&r->mark, (uint64_t)lines | (uint64_t)(uint32_t)((peer.rx_head + k * size) / VB_LINE)
		                                                 << 32);
	}
}

static void put_record(struct world *w, struct input *in)
{
	uint32_t head = take(in, 1), i = take(in, 1) % QPS, lines = take(in, 1) % 64 + 1,
	         at = (uint32_t)(peer.rx_head & VB_RING_MASK);
	struct vb_rec *r = (struct vb_rec *)(peer_ring + at);
	struct vb_rec_ext *x = (struct vb_rec_ext *)(r + 1);
	struct vb_qp *qp = vb_qp_real(vb_qp(w->qp[i]));
	uint32_t type = take(in, 1) % 16, flags = take(in, 1);
	static const uint64_t far[] = {0, -1ull, -8ull, REGION, REGION - 8, 4, 8, 1ull << 63};

	if (lines * VB_LINE > VB_RING_BYTES - at)
		lines = (VB_RING_BYTES - at) / VB_LINE;
	r->dest = (head & 4 ? take(in, 3) : qp->qp.qp_num) | type << 24;
	r->src = (head & 8 ? take(in, 3) : its_qpn(i)) | flags << 24;
	r->psn = ((head & 16                  ? take(in, 3)
	           : type == VB_REC_READ_DATA ? (uint32_t)qp->local.ssn_una
	                                      : qp->local.epsn) &
	          0xffffff) |
	         1u << 24;
	r->length = head & 32 ? take(in, 4) : take(in, 2) % (lines * VB_LINE);
	r->ack = head & 64 ? take(in, 4) : i == TARGET ? w->srqn : (uint32_t)qp->local.ssn_emit;
	r->imm = take(in, 1) & 1 ? w->mr->rkey : 7;
	if (lines * VB_LINE >= 64) {
		uint32_t k = take(in, 1);

		x->remote_addr = type == VB_REC_READ_DATA
		                         ? take(in, 2)
		                         : (k & 8 ? 0 : (uintptr_t)w->memory) + (k & 16 ? far[k & 7] : take(in, 2));
		x->rkey = k & 32 ? take(in, 4) : type == VB_REC_UD ? 5 : w->mr->rkey;
		x->total = k & 64 ? take(in, 4) : take(in, 2);
		x->compare_add = take(in, 1);
		x->swap = take(in, 1);
	}
	for (uint32_t k = 0; k < take(in, 1); k++)
		((uint8_t *)r)[64 + take(in, 1) % (lines * VB_LINE > 128 ? 64 : 1)] = (uint8_t)take(in, 1);
	if (i == TAGGED && lines * VB_LINE >= 128)
		tagged_head((uint8_t *)r + vb_rec_send_head(r->length), 32, take(in, 1), take(in, 2), take(in, 1),
		            take(in, 1));
	PASSED(passed_record(take(in, 2), vb_qp_real(vb_qp(w->qp[TARGET])), w->srqn, r, x));
	copy_result = (int[]){0, 0, EFAULT, VB_EFAULT_LOCAL, ESRCH, EPERM, 0, 0}[take(in, 1) & 7];
	if (head & 128 && take(in, 1) & 1)
		lines = take(in, 4); /* an impossible size */
	else if (take(in, 1) & 1)
		put_more(r, at, lines, in);
	atomic_store(&r->mark, (uint64_t)lines | (uint64_t)(uint32_t)(peer.rx_head / VB_LINE) << 32);
	vb_lock(&node.progress);
	if (!vb_local_take_plain(&peer, head & 1 ? qp->rcq : NULL, 1 + (head & 2)))
		vb_local_drain(&peer, 3);
	vb_local_publish_acks(&node);
	vb_unlock(&node.progress);
	/* its previous content is obsolete */
	atomic_store((_Atomic uint64_t *)(peer_ring + (peer.rx_head & VB_RING_MASK)), 0);
}

static void post(struct world *w, struct input *in)
{
	static const enum ibv_wr_opcode opcodes[] = {IBV_WR_SEND,
	                                             IBV_WR_RDMA_WRITE,
	                                             IBV_WR_RDMA_READ,
	                                             IBV_WR_ATOMIC_FETCH_AND_ADD,
	                                             IBV_WR_ATOMIC_CMP_AND_SWP,
	                                             IBV_WR_RDMA_WRITE_WITH_IMM,
	                                             IBV_WR_SEND_WITH_INV,
	                                             IBV_WR_LOCAL_INV,
	                                             IBV_WR_ATOMIC_WRITE};
	uint32_t k = take(in, 1), i = take(in, 1) % QPS, len = take(in, 2);
	struct ibv_sge sge = {(uintptr_t)w->memory + take(in, 2), len, k & 64 ? 1 : w->mr->lkey};
	struct ibv_recv_wr r = {.wr_id = 1000 + (k >> 2), .sg_list = &sge, .num_sge = 1}, *rbad;
	struct ibv_send_wr s = {.wr_id = w->posted[i] % 1000,
	                        .sg_list = &sge,
	                        .num_sge = 1,
	                        .opcode = opcodes[take(in, 1) % 9]},
	                   *sbad;

	if (k & 128) {
		if (i == TAGGED && k & 1)
			tagged_op(w->tm_srq, take(in, 2), &sge);
		else if (i == TAGGED)
			vb_post_srq_recv(w->tm_srq, &r, &rbad);
		else if (i == 1 || i == TARGET)
			vb_post_srq_recv(i == 1 ? w->srq : w->xrc_srq, &r, &rbad);
		else
			vb_post_recv(w->qp[i], &r, &rbad);
		return;
	}
	if (i == 3 || i == TARGET || (s.opcode == IBV_WR_LOCAL_INV && take(in, 1) & 15))
		return;
	if (s.opcode == IBV_WR_ATOMIC_FETCH_AND_ADD || s.opcode == IBV_WR_ATOMIC_CMP_AND_SWP ||
	    s.opcode == IBV_WR_ATOMIC_WRITE)
		sge.length = 8;
	s.send_flags = k & 32 ? IBV_SEND_FENCE : 0;
	s.invalidate_rkey = 3;
	s.wr.rdma.rkey = 77;
	s.wr.rdma.remote_addr = 4096;
	atomic_store(&peer.copy_ok, k & 16);
	if (!vb_post_send(w->qp[i], &s, &sbad))
		w->posted[i]++;
}

static void visit(struct world *w)
{
	vb_lock(&node.progress);
	vb_tm_serve(&node);
	vb_active_collect(&node);
	for (struct vb_qp *qp = node.active, *next; qp; qp = next) {
		next = qp->active_next;
		if (atomic_load(&qp->xrc.relay_due))
			vb_relay_visit(qp);
		qp->path->visit(qp, false);
	}
	for (struct vb_qp *qp = node.active; qp; qp = qp->active_next)
		qp->path->deadline(qp);
	vb_local_publish_acks(&node);
	vb_unlock(&node.progress);
	poll_all(w);
}

/* The peer may write anything into its own segment: the queue pairs, the slot for us, the region table. */
static void scribble(struct input *in)
{
	uint32_t what = take(in, 1), off = take(in, 2), v = take(in, 4);
	uint8_t *base = what & 1 ? (uint8_t *)vb_seg_qp(peer_seg, its_qpn((what >> 2) % QPS)) : (uint8_t *)peer.theirs;
	uint32_t size = what & 1 ? sizeof(struct vb_qp_shared) : sizeof(struct vb_slot_shared);

	if (what & 2)
		memset(vb_seg_mr(peer_seg, off), (int)v, 64);
	else
		memcpy(base + off % (size - 4), &v, 4);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
	struct input in = {data, size};
	struct world w;

	if (!node.seg)
		once();
	world_open(&w);
	PASSED(passed_act(0, vb_qp_real(vb_qp(w.qp[TARGET])),
	                  &peer)); /* a way and a guest are there from the beginning */
	PASSED(passed_act(1, vb_qp_real(vb_qp(w.qp[TARGET])), &peer));
	while (in.n) {
		switch (take(&in, 1) % 8) {
		case 0:
		case 1:
		case 2:
			if (atomic_load(&peer.state) != VB_PEER_DEAD)
				put_record(&w, &in);
			break;
		case 3:
		case 4:
			post(&w, &in);
			break;
		case 5:
			scribble(&in);
			break;
		case 6:
			clock_ns += take(&in, 4);
			visit(&w);
			break;
		default:
			PASSED(passed_act(take(&in, 2), vb_qp_real(vb_qp(w.qp[TARGET])), &peer));
			visit(&w);
		}
	}
	clock_ns += 10000000000ull;
	visit(&w);
	world_close(&w);
	return 0;
}
