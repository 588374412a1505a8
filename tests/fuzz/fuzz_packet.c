// fuzz_packet.c - a hostile network: any packets for RC, UC, UD and XRC queue pairs, of RoCE or one by one in trains of
// an InfiniBand link, between the program's posts and timers. Memory outside the granted regions does not change, each
// request completes once and in order, and all sent packets are well formed
// follows: IBA volume 1, 7.7 (LRH), 9.6 to 9.9; annex A17 (RoCEv2)
// SPDX-License-Identifier: MIT
// build: tests/fuzz/run 60 packet
#include <assert.h>
#include <errno.h>
#include <fcntl.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/socket.h>

#include "core/device.h"
#include "core/key.h"
#include "core/gid.h"
#include "core/verbs.h"
#include "core/xrc.h"
#include "frame/icrc.h"
#include "frame/lrh.h"
#include "path/path.h"
#include "path/roce/roce.h"

#include "no_relay.h"
#include "tagged.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

#define LANE 7u
#define QPS 7u
#define TARGET 5u /* of XRC */
#define TAGGED 6u /* its SRQ matches tags */
#define REGION 65536u
#define BESIDE 4096u
#define QUIET 0x5a
#define QKEY 5
#define LID 10u
#define ITS_LID 30u

static struct vb_node node;
static struct vb_io io;
static struct vb_roce_sockets sockets, port = {.framed = true};
static int fabric; /* the other end of port */
static struct vb_device device = {.dev.name = "roce_fuzz"};
static uint64_t clock_ns = 1000000000;
static uint8_t stage[2 * VB_ROCE_PACKET_MAX];

/* --- node/, without sockets --- */

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

void vb_progress_wake(struct vb_node *n)
{
}

bool vb_roce_socket_crowded(int lane_fd, bool relayed)
{
	return false;
}

int vb_roce_bring_up(struct vb_node *n, unsigned wait_ms)
{
	return 0;
}

void vb_path_none(struct vb_qp *qp)
{
	qp->path = qp->type == IBV_QPT_UD ? &vb_datagram_path_ops : &vb_local_path_ops;
}

/* no queue pair has these here */
const struct vb_path_ops vb_ib_path_ops = {.name = "fabric"};
const struct vb_path_ops vb_ib_datagram_path_ops = {.name = "fabric datagrams"};

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
	qp->local.pkey = VB_DEFAULT_PKEY;
	assert(!vb_roce_path_open(qp));
}

void vb_path_settle(struct vb_qp *qp)
{
	vb_lock(&qp->node->progress);
	vb_lock(&qp->sq_lock);
	qp->path->settle(qp);
	vb_unlock(&qp->sq_lock);
	vb_unlock(&qp->node->progress);
}

/* There is no ring between programs here. */
struct vb_local_req;
enum vb_verdict vb_relay_record(struct vb_qp *qp, struct vb_local_req *q)
{
	abort();
}

void vb_path_moved(struct vb_qp *qp)
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
	qp->path->reset(qp);
	vb_path_none(qp);
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

enum vb_datagram_result vb_ib_datagram(struct vb_qp *qp, struct vb_swqe *w)
{
	return VB_DATAGRAM_LOST; /* no fabric process is there */
}

int vb_ib_membership(struct vb_node *n, const union ibv_gid *group, uint16_t mlid, bool attach)
{
	return EOPNOTSUPP;
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

uint64_t vb_now(void)
{
	return clock_ns;
}

struct vb_peer *vb_peer_find(struct vb_node *n, uint32_t qpn, const union ibv_gid *dgid, unsigned wait_ms, int *err)
{
	*err = ENOENT;
	return NULL;
}

void vb_peer_remind(struct vb_peer *p)
{
}

bool vb_peer_sleeps(const struct vb_peer *p)
{
	return true;
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

struct vb_tx *vb_tx_of(struct vb_roce_sockets *s, uint32_t qpn, uint32_t dest_qpn)
{
	return NULL;
}

uint32_t vb_tx_burst(uint32_t len)
{
	return 4;
}

bool vb_tx_begin(struct vb_tx *tx, const struct vb_qp *qp)
{
	return true;
}

/* Data that is not copied is not checked here. */
bool vb_tx_in_place(const struct vb_tx *tx)
{
	return false;
}

uint8_t *vb_tx_room(struct vb_tx *tx, const struct vb_roce_addr *addr)
{
	return stage;
}

void vb_tx_add(struct vb_tx *tx, const struct vb_roce_addr *addr, size_t header_len, size_t len,
               const struct vb_tx_laid *laid)
{
	struct vb_packet p;

	assert(len <= VB_ROCE_PACKET_MAX && header_len <= len);
	assert(vb_packet_decode(&p, stage, len + VB_ICRC_LEN) == VB_PACKET_OK);
	assert(p.payload_at == header_len && p.payload_at + p.payload_len + p.bth.pad == len);
}

void vb_tx_add_ahead(struct vb_tx *tx, const struct vb_roce_addr *addr, size_t len)
{
	vb_tx_add(tx, addr, len, len, NULL);
}

uint32_t vb_tx_apart(const struct vb_roce_addr *addr, size_t len)
{
	return (uint32_t)len + VB_ICRC_LEN;
}

uint32_t vb_tx_more(const struct vb_tx *tx, const struct vb_roce_addr *addr, size_t len)
{
	return 0;
}

uint8_t *vb_tx_past(struct vb_tx *tx, uint32_t left)
{
	(void)tx, (void)left;
	return NULL;
}

void vb_tx_add_more(struct vb_tx *tx, uint32_t n, size_t len, const struct vb_tx_laid *laid)
{
}

void vb_roce_watch_sockets(struct vb_roce_sockets *s, bool watch)
{
}

bool vb_tx_waits(const struct vb_tx *tx)
{
	return false;
}

bool vb_tx_push(struct vb_tx *tx)
{
	return true;
}

bool vb_tx_is_held(struct vb_tx *tx)
{
	return false;
}

bool vb_tx_end(struct vb_tx *tx)
{
	return true;
}

/* --- the device, abi/ --- */

void vb_device_netdev(struct vb_device *dev, struct vb_netdev *nd)
{
	memset(nd, 0, sizeof(*nd));
}

void vb_roce_lost(struct vb_node *n)
{
}

uint64_t vb_roce_lost_at(const struct vb_node *n)
{
	return 0;
}

int vb_broker_post(struct vb_broker_client *c, uint8_t type, void *msg, size_t len, bool lossy)
{
	return 0;
}

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

int vb_query_gid_entry(struct vb_device *d, uint32_t port, uint32_t index, struct ibv_gid_entry *e)
{
	*e = (struct ibv_gid_entry){
	        .gid.raw = {0xfe, 0x80, [15] = 1}, .port_num = port, .gid_type = IBV_GID_TYPE_ROCE_V2};
	return index ? ENODATA : 0;
}

int vb_query_gid_at(struct vb_device *d, uint32_t port, int index, union ibv_gid *gid)
{
	*gid = (union ibv_gid){.raw = {0xfe, 0x80, [15] = 1}};
	return index ? EINVAL : 0;
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
	uint8_t link; /* enum vb_link */
	uint8_t train[16384];
	size_t train_len;
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
	assert(node.seg != MAP_FAILED);
	node.hdr = node.seg;
	node.lane = LANE;
	node.incarnation = 1;
	node.qps = calloc(VB_LANE_QPS, sizeof(*node.qps));
	node.peers = calloc(VB_LANE_COUNT, sizeof(*node.peers));
	node.keys = calloc(1, sizeof(*node.keys));
	node.keys->slots = vb_seg_key_slots(node.seg);
	node.io = &io;
	io.roce = &sockets;
	sockets.node = &node;
	sockets.rx = vb_roce_rx_new(-1, false);
	atomic_store(&sockets.up, true);
	int pair[2];

	assert(!socketpair(AF_UNIX, SOCK_SEQPACKET | SOCK_NONBLOCK, 0, pair));
	fabric = pair[1];
	io.link = &port;
	port.node = &node;
	port.rx = vb_roce_rx_new(pair[0], false);
	vb_roce_rx_frame(port.rx);
	atomic_store(&port.up, true);
	vb_device_apply_ib(&device, &(struct vb_ib_port){.lid = LID, .state = IBV_PORT_ACTIVE});
	pthread_mutex_init(&node.mr_lock, NULL);
}

static const union ibv_gid there = {.raw = {0xfe, 0x80, [15] = 2}};

static uint32_t its_qpn(unsigned i)
{
	return 9u << VB_LANE_SHIFT | (i + 1);
}

static const enum ibv_qp_type types[QPS] = {IBV_QPT_RC,       IBV_QPT_RC,       IBV_QPT_UC, IBV_QPT_UD,
                                            IBV_QPT_XRC_SEND, IBV_QPT_XRC_RECV, IBV_QPT_RC};

static void make_ready(const struct world *w, unsigned i)
{
	enum ibv_qp_type t = types[i];
	struct ibv_qp_attr a = {.qp_state = IBV_QPS_INIT,
	                        .port_num = 1,
	                        .qkey = QKEY,
	                        .qp_access_flags = IBV_ACCESS_REMOTE_WRITE | IBV_ACCESS_REMOTE_READ |
	                                           IBV_ACCESS_REMOTE_ATOMIC | VB_IBV_ACCESS_FLUSH_GLOBAL};
	int base = IBV_QP_STATE;

	assert(!vb_modify_qp(w->qp[i], &a,
	                     base | IBV_QP_PKEY_INDEX | IBV_QP_PORT |
	                             (t == IBV_QPT_UD ? IBV_QP_QKEY : IBV_QP_ACCESS_FLAGS)));
	a = (struct ibv_qp_attr){
	        .qp_state = IBV_QPS_RTR,
	        .path_mtu = IBV_MTU_256,
	        .dest_qp_num = its_qpn(i),
	        .max_dest_rd_atomic = 4,
	        .ah_attr = {.is_global = w->link != VB_LINK_LOCAL, .dlid = ITS_LID, .port_num = 1, .grh.dgid = there}};
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

static void world_open(struct world *w, uint8_t link)
{
	static uint8_t memory[REGION + 2 * BESIDE] __attribute__((aligned(4096)));

	memset(w, 0, sizeof(*w));
	w->link = link;
	device.ib = link != VB_LINK_UDP;
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
			assert(wc.qp_num == w->qp[i]->qp_num || (wc.wr_id == 2000 && !wc.qp_num));
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

static void train_arrives(struct world *w)
{
	if (!w->train_len)
		return;
	assert(send(fabric, w->train, w->train_len, 0) == (ssize_t)w->train_len);
	w->train_len = 0;
	vb_lock(&node.progress);
	while (vb_roce_poll_port(&port))
		;
	vb_unlock(&node.progress);
}

/* Adds a packet, BTH to ICRC, to a train. Its sums are right; then bytes may be changed, mostly with another VCRC. */
static void couple(struct world *w, struct input *in, const struct vb_roce_arrival *a, const uint8_t *bytes, size_t len)
{
	static struct vb_icrc_cache cache;
	struct vb_flow flow = a->flow;
	uint32_t how = take(in, 1);
	uint8_t *front = w->train + w->train_len;

	len &= ~(size_t)3;
	flow.link = w->link;
	flow.sl = how >> 4;
	flow.slid = (uint16_t)(how & 8 ? take(in, 2) : ITS_LID);
	flow.dlid = LID;
	uint8_t *bth = front + vb_link_front(front, &flow, &a->ip, len);

	memcpy(bth, bytes, len);
	if (len >= VB_BTH_LEN + VB_ICRC_LEN)
		vb_icrc_encode(bth + len - VB_ICRC_LEN, vb_icrc_packet(&cache, &flow, 0, bth, len - VB_ICRC_LEN));
	size_t size = (size_t)(bth - front) + len;

	if ((how & 7) == 7)
		front[take(in, 1) % size] = (uint8_t)take(in, 1);
	vb_vcrc_encode(front, size);
	if ((how & 7) == 6)
		front[take(in, 1) % size] = (uint8_t)take(in, 1);
	w->train_len += size + VB_VCRC_LEN;
	if (how & 1 || sizeof(w->train) - w->train_len < 2048)
		train_arrives(w);
}

/* Mostly a plausible value, sometimes an arbitrary one. */
static void packet(struct world *w, struct input *in)
{
	static const uint64_t far[] = {0, -1ull, -8ull, REGION, REGION - 8, REGION - 256, 8, 1ull << 63};
	uint32_t head = take(in, 1), i = take(in, 1) % QPS, k = take(in, 1);
	struct vb_qp *qp = vb_qp_real(vb_qp(w->qp[i]));
	struct vb_packet p = {.bth = {.opcode = (uint8_t)take(in, 1), .migreq = true, .pkey = 0xffff}};
	uint8_t bytes[1024] = {0};
	struct vb_roce_arrival a = {.now = clock_ns, .ip = {.traffic_class = head & 64 ? 3 : 0}};
	struct vb_writer out = vb_writer(bytes, sizeof(bytes));
	uint32_t len;

	if (!qp->roce || !vb_opcode_info(p.bth.opcode) || !vb_opcode_info(p.bth.opcode)->op)
		return;
	bool answer = !(vb_opcode_info(p.bth.opcode)->flags & VB_REQUEST);
	struct vb_psn base =
	        answer ? vb_psn((uint32_t)qp->roce->q.rq.una + qp->roce->q.cfg.sq_psn.v) : qp->roce->q.rs.epsn;

	p.bth.dest_qpn = head & 4 ? take(in, 3) : qp->qp.qp_num;
	p.bth.psn = head & 8 ? vb_psn(take(in, 3)) : vb_psn_add(base, (int32_t)(k & 7) - (k & 8 ? 2 : 0));
	p.bth.ack_req = k & 16;
	p.bth.solicited = k & 32;
	p.xrceth.srqn = head & 1 ? take(in, 3) : w->srqn;
	p.deth = (struct vb_deth){head & 16 ? take(in, 4) : QKEY, its_qpn(i)};
	p.reth = (struct vb_reth){(uintptr_t)w->memory + (k & 64 ? far[take(in, 1) & 7] : take(in, 2)),
	                          k & 128 ? take(in, 4) : w->mr->rkey, head & 32 ? take(in, 4) : take(in, 1) * 8};
	p.atomic = (struct vb_atomic){p.reth.va & ~(uint64_t)(k & 1 ? 0 : 7), p.reth.rkey, take(in, 1), take(in, 1)};
	p.aeth = (struct vb_aeth){
	        .kind = (uint8_t)(take(in, 1) & 3), .value = (uint8_t)(take(in, 1) & 31), .msn = take(in, 1)};
	p.immdt.data = p.ieth.rkey = take(in, 1) & 1 ? w->mr->rkey : 7;
	len = take(in, 1) & 1 ? 256 : take(in, 1) * 2;
	p.bth.pad = (uint8_t)(-len & 3);
	vb_packet_encode(&out, &p);
	memset(bytes + out.pos, 0x11, len);
	if (i == TAGGED)
		tagged_head(bytes + out.pos, len, take(in, 1), p.reth.va, p.reth.rkey, p.reth.length);
	uint32_t total = (uint32_t)out.pos + len + p.bth.pad + VB_ICRC_LEN;

	for (unsigned n = take(in, 1) & 3; n; n--) /* was ended by an error */
		bytes[take(in, 2) % total] = (uint8_t)take(in, 1);
	memcpy(a.flow.src, head & 128 ? node.hdr : (const void *)&there, VB_GID_LEN);
	a.flow.src[0] = 0xfe;
	vb_query_gid_at(NULL, 1, 0, (union ibv_gid *)(void *)a.flow.dst);
	if (take(in, 1) & 1)
		total -= take(in, 1) % total;
	if (w->link != VB_LINK_UDP) {
		couple(w, in, &a, bytes, total);
		return;
	}
	vb_lock(&node.progress);
	vb_roce_packet(&node, sockets.rx, &a, bytes, total);
	vb_roce_answer_batch(sockets.rx);
	vb_unlock(&node.progress);
}

static void post(struct world *w, struct input *in)
{
	static const enum ibv_wr_opcode ops[] = {
	        IBV_WR_SEND,      IBV_WR_SEND_WITH_IMM,      IBV_WR_RDMA_WRITE,           IBV_WR_RDMA_WRITE_WITH_IMM,
	        IBV_WR_RDMA_READ, IBV_WR_ATOMIC_CMP_AND_SWP, IBV_WR_ATOMIC_FETCH_AND_ADD, IBV_WR_LOCAL_INV};
	uint32_t k = take(in, 1), i = take(in, 1) % QPS;
	struct ibv_sge sge = {(uintptr_t)w->memory + take(in, 2) % (REGION - 4096), take(in, 1) * 16, w->mr->lkey};
	struct ibv_send_wr wr = {.wr_id = w->posted[i] % 1000,
	                         .qp_type.xrc.remote_srqn = 9,
	                         .sg_list = &sge,
	                         .num_sge = 1,
	                         .opcode = k & 64 ? IBV_WR_ATOMIC_WRITE : ops[k >> 2 & 7],
	                         .send_flags = k & 32 ? IBV_SEND_FENCE : 0},
	                   *bad;

	if (wr.opcode == IBV_WR_LOCAL_INV) {
		wr.num_sge = 0;
		wr.invalidate_rkey = 77;
	} else if (wr.opcode >= IBV_WR_ATOMIC_CMP_AND_SWP && wr.opcode <= IBV_WR_ATOMIC_FETCH_AND_ADD) {
		sge.length = 8;
		wr.wr.atomic.remote_addr = 64;
	} else {
		sge.length = k & 64 ? 8 : sge.length;
		wr.wr.rdma.remote_addr = 64;
	}
	if (i == 3 || i == TARGET) /* UD needs address handles, which are tested elsewhere; a target does not send */
		return;
	if (!vb_post_send(w->qp[i], &wr, &bad))
		w->posted[i]++;
}

static void post_receive(struct world *w, struct input *in)
{
	uint32_t i = take(in, 1) % QPS;
	struct ibv_sge sge = {(uintptr_t)w->memory + take(in, 2) % (REGION - 4096), take(in, 1) * 16, w->mr->lkey};
	struct ibv_recv_wr wr = {.wr_id = 1000, .sg_list = &sge, .num_sge = 1}, *bad;

	if (i == TAGGED && sge.length & 16)
		tagged_op(w->tm_srq, take(in, 2), &sge);
	else if (i == TAGGED)
		vb_post_srq_recv(w->tm_srq, &wr, &bad);
	else if (i == 1 || i == TARGET)
		vb_post_srq_recv(i == 1 ? w->srq : w->xrc_srq, &wr, &bad);
	else
		vb_post_recv(w->qp[i], &wr, &bad);
}

static void pass_time(struct input *in)
{
	clock_ns += (uint64_t)take(in, 2) * 1000;
	vb_lock(&node.progress);
	vb_tm_serve(&node);
	vb_active_collect(&node);
	for (struct vb_qp *qp = node.active, *next; qp; qp = next) {
		next = qp->active_next;
		qp->path->visit(qp, true);
	}
	vb_unlock(&node.progress);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
	static int ready;
	struct input in = {data, size};
	struct world w;

	if (!ready++)
		once();
	world_open(&w, (uint8_t)(take(&in, 1) % 3));
	while (in.n) {
		switch (take(&in, 1) & 7) {
		case 0:
			post(&w, &in);
			break;
		case 1:
			post_receive(&w, &in);
			break;
		case 2:
			pass_time(&in);
			break;
		case 3:
			poll_all(&w);
			break;
		default:
			packet(&w, &in);
		}
	}
	train_arrives(&w);
	world_close(&w);
	return 0;
}
