// stat.c - the verbs of the control socket that show what a program has: devices, queue pairs, CQs, regions
// follows: docs/control.md; rdma-resource(8), rdma-statistic(8)
// SPDX-License-Identifier: MIT
#include "node/stat.h"

#include <errno.h>
#include <inttypes.h>
#include <stdio.h>
#include <string.h>

#include "core/counters.h"
#include "core/device.h"
#include "core/key.h"
#include "core/pd.h"
#include "core/qp.h"
#include "engine/local/local.h"
#include "engine/local/peer.h"
#include "node/control.h"
#include "node/io.h"
#include "node/walk.h"

#define BATCH_QPS 32u  /* looked at without a pause, under progress */
#define PAGE_ROWS 256u /* in one answer */
#define SCAN_MOST 4096u

/* A snapshot of a queue pair. Fields that other locks guard may be a moment old, or not agree with each other. */
struct qp_row {
	uint32_t qpn, pd, dest_qpn, sq_psn, rq_psn, send_pending, send_cq, recv_cq;
	bool has_psns;
	uint8_t type, state;
	const char *path;
	char device[IBV_SYSFS_NAME_MAX], peer[64];
	uint32_t peer_pid, receives;
	struct vb_counts counts;
};

struct qp_scan {
	uint32_t from; /* the next index; VB_LANE_QPS: the end */
	unsigned n;
	struct qp_row rows[BATCH_QPS];
};

/* The path's name, its counters and the peer's address. */
static void show_path(struct vb_qp *qp, struct qp_row *row)
{
	static const char *const names[VB_TRANSPORTS] = {
	        [VB_TRANSPORT_ROCE] = "roce", [VB_TRANSPORT_IWARP] = "iwarp", [VB_TRANSPORT_RAW] = "raw"};
	struct vb_peer *peer = qp->local.peer;

	vb_local_counts(qp, &row->counts);
	row->path = qp->type == IBV_QPT_UD ? "datagrams" : peer ? "same-host" : "none";
	if (qp->type != IBV_QPT_UD && peer && vb_peer_ready(peer))
		row->peer_pid = peer->seg->pid;
	for (unsigned i = 0; i < VB_TRANSPORTS; i++)
		if (vb_transports[i]->show(qp, &row->counts, row->peer, sizeof(row->peer)) && qp->type != IBV_QPT_UD)
			row->path = names[i];
}

static uint32_t receives_posted(const struct vb_rq *rq)
{
	return atomic_load_explicit(&rq->tail, memory_order_relaxed) -
	       atomic_load_explicit(&rq->head, memory_order_relaxed);
}

static __attribute__((no_sanitize("thread"))) void show_qp(struct vb_qp *qp, struct qp_row *row)
{
	struct vb_device *dev = vb_qp_device(qp);

	memset(row, 0, sizeof(*row));
	row->qpn = qp->made.handle;
	row->pd = vb_pd_id(qp->pd);
	row->type = qp->type;
	row->state = atomic_load_explicit(&qp->state, memory_order_relaxed);
	if (qp->scq) { /* an XRC target uses the queues of SRQs, and others may have work queues */
		row->send_cq = qp->scq->made.handle;
		row->recv_cq = qp->rcq->made.handle;
		row->receives = receives_posted(qp->srq ? &qp->srq->rq : &qp->rq);
	}
	row->send_pending = atomic_load_explicit(&qp->sq_pending, memory_order_relaxed);
	snprintf(row->device, sizeof(row->device), "%s", dev ? dev->dev.name : "");
	show_path(qp, row);
	if (qp->type == IBV_QPT_UD || qp->type == IBV_QPT_RAW_PACKET || row->state < IBV_QPS_RTR)
		return;
	row->dest_qpn = qp->attr.dest_qp_num;
	row->has_psns = qp->path->next_psns != NULL;
	if (row->has_psns)
		qp->path->next_psns(qp, &row->sq_psn, &row->rq_psn);
}

static void scan_qps(struct vb_node *node, void *arg)
{
	struct qp_scan *scan = arg;
	uint32_t end = scan->from + SCAN_MOST < VB_LANE_QPS ? scan->from + SCAN_MOST : VB_LANE_QPS;

	scan->n = 0;
	for (; scan->from < end && scan->n < BATCH_QPS; scan->from++) {
		struct vb_qp *qp = atomic_load_explicit(&node->qps[scan->from], memory_order_relaxed);

		if (qp)
			show_qp(qp, &scan->rows[scan->n++]);
	}
}

static const char *type_text(uint8_t type)
{
	static const char *const names[] = {[IBV_QPT_RC] = "RC",
	                                    [IBV_QPT_UC] = "UC",
	                                    [IBV_QPT_UD] = "UD",
	                                    [IBV_QPT_XRC_SEND] = "XRC_SEND",
	                                    [IBV_QPT_XRC_RECV] = "XRC_RECV",
	                                    [IBV_QPT_RAW_PACKET] = "RAW"};

	return names[type];
}

static const char *state_name(uint8_t state)
{
	static const char *const names[] = {"RESET", "INIT", "RTR", "RTS", "SQD", "SQE", "ERR"};

	return state < sizeof(names) / sizeof(names[0]) ? names[state] : "UNKNOWN";
}

/* port_xmit_data and port_rcv_data count units of 4 bytes, as in Linux; the bytes come first. */
void vb_stat_put_counts(struct vb_text *out, const struct vb_counts *bytes)
{
	struct vb_counts units = *bytes;
	const struct vb_counts *c = &units;

	units.port_xmit_data /= 4;
	units.port_rcv_data /= 4;
	vb_text_format(out, "{\"xmit_bytes\": %" PRIu64 ", \"rcv_bytes\": %" PRIu64, bytes->port_xmit_data,
	               bytes->port_rcv_data);
#define X(name, text) vb_text_format(out, ", \"" #name "\": %" PRIu64, c->name);
	VB_COUNTS(X)
#undef X
	vb_text_put(out, "}");
}

static void put_qp(struct vb_text *out, const struct qp_row *r)
{
	vb_text_format(out, "{\"qpn\": %" PRIu32 ", \"device\": ", r->qpn);
	vb_text_quote(out, r->device);
	vb_text_format(out, ", \"type\": \"%s\", \"state\": \"%s\", \"path\": \"%s\"", type_text(r->type),
	               state_name(r->state), r->path);
	if (r->dest_qpn)
		vb_text_format(out, ", \"peer_qpn\": %" PRIu32, r->dest_qpn);
	if (r->peer_pid)
		vb_text_format(out, ", \"peer_pid\": %" PRIu32, r->peer_pid);
	if (r->peer[0]) {
		vb_text_put(out, ", \"peer\": ");
		vb_text_quote(out, r->peer);
	}
	if (r->has_psns)
		vb_text_format(out, ", \"sq_psn\": %" PRIu32 ", \"rq_psn\": %" PRIu32, r->sq_psn, r->rq_psn);
	vb_text_format(out,
	               ", \"outstanding\": %" PRIu32 ", \"receives\": %" PRIu32 ", \"send_cq\": %" PRIu32
	               ", \"recv_cq\": %" PRIu32 ", \"pd\": %" PRIu32 ", \"counters\": ",
	               r->send_pending, r->receives, r->send_cq, r->recv_cq, r->pd);
	vb_stat_put_counts(out, &r->counts);
	vb_text_put(out, "}");
}

/* Reads from=N, where the last answer ended. */
static int page_start(const char *args, uint64_t *from)
{
	*from = 0;
	return vb_control_number(args, "from", from) && *from <= UINT32_MAX ? 0 : EINVAL;
}

static void put_row_mark(struct vb_text *out, unsigned row)
{
	vb_text_put(out, row ? ",\n " : "\n ");
}

static void end_rows(struct vb_text *out, bool more, uint64_t next)
{
	vb_text_put(out, "]");
	if (more)
		vb_text_format(out, ", \"next\": %" PRIu64, next);
	vb_text_put(out, "}\n");
}

static int serve_qps(struct vb_control_call *call)
{
	struct qp_scan scan = {0};
	unsigned rows = 0;
	uint64_t from;
	int err = page_start(call->args, &from);

	if (err)
		return err;
	scan.from = from < VB_LANE_QPS ? (uint32_t)from : VB_LANE_QPS;
	vb_text_put(call->out, "{\"qps\": [");
	while (scan.from < VB_LANE_QPS && rows < PAGE_ROWS) {
		vb_walk(call->node, scan_qps, &scan);
		for (unsigned i = 0; i < scan.n; i++) {
			put_row_mark(call->out, rows++);
			put_qp(call->out, &scan.rows[i]);
		}
	}
	end_rows(call->out, scan.from < VB_LANE_QPS, scan.from);
	return 0;
}

/* --- completion queues --- */

static void put_cq(struct vb_text *out, const struct vb_cq *cq)
{
	static const char *const arms[] = {"no", "solicited", "any"};
	int armed = atomic_load_explicit(&cq->armed, memory_order_relaxed);
	uint32_t head = atomic_load_explicit(&cq->head, memory_order_relaxed);

	vb_text_format(out, "{\"cqn\": %" PRIu32 ", \"device\": ", cq->made.handle);
	vb_text_quote(out, VB_CONTEXT_OF(cq)->dev->dev.name);
	vb_text_format(out,
	               ", \"capacity\": %" PRIu32 ", \"entries\": %" PRIu32
	               ", \"armed\": \"%s\", \"channel\": %s, \"users\": %d, \"overrun\": %s}",
	               cq->capacity, atomic_load_explicit(&cq->tail, memory_order_relaxed) - head,
	               arms[armed > 0 && armed < 3 ? armed : 0], cq->channel ? "true" : "false",
	               atomic_load(&cq->users), atomic_load(&cq->overrun) ? "true" : "false");
}

static int serve_cqs(struct vb_control_call *call)
{
	struct vb_node *node = call->node;
	unsigned rows = 0;
	uint64_t from, next = 0;
	int err = page_start(call->args, &from);

	if (err)
		return err;
	vb_text_put(call->out, "{\"cqs\": [");
	vb_mutex_lock(&node->ctx_lock, VB_RANK_CONTEXTS);
	struct vb_cq *cq = node->cqs;
	for (; cq && rows < PAGE_ROWS; cq = cq->next) {
		if (cq->made.handle <= from)
			continue;
		put_row_mark(call->out, rows++);
		put_cq(call->out, cq);
		next = cq->made.handle;
	}
	bool more = cq != NULL;
	vb_mutex_unlock(&node->ctx_lock);
	end_rows(call->out, more, next);
	return 0;
}

/* --- protection domains --- */

static int serve_pds(struct vb_control_call *call)
{
	struct vb_node *node = call->node;
	unsigned rows = 0;
	uint64_t from, next = 0;
	int err = page_start(call->args, &from);

	if (err)
		return err;
	vb_text_put(call->out, "{\"pds\": [");
	vb_mutex_lock(&node->ctx_lock, VB_RANK_CONTEXTS);
	struct vb_pd *pd = node->pds;
	for (; pd && rows < PAGE_ROWS; pd = pd->next) {
		if (pd->made.handle <= from)
			continue;
		put_row_mark(call->out, rows++);
		vb_text_format(call->out, "{\"pdn\": %" PRIu32 ", \"device\": ", pd->made.handle);
		vb_text_quote(call->out, VB_CONTEXT_OF(pd)->dev->dev.name);
		vb_text_format(call->out, ", \"users\": %d}", atomic_load(&pd->users));
		next = pd->made.handle;
	}
	bool more = pd != NULL;
	vb_mutex_unlock(&node->ctx_lock);
	end_rows(call->out, more, next);
	return 0;
}

/* --- memory regions --- */

static void put_access(struct vb_text *out, uint32_t access)
{
	static const struct {
		uint32_t bit;
		const char *name;
	} names[] = {{IBV_ACCESS_LOCAL_WRITE, "local_write"},
	             {IBV_ACCESS_REMOTE_WRITE, "remote_write"},
	             {IBV_ACCESS_REMOTE_READ, "remote_read"},
	             {IBV_ACCESS_REMOTE_ATOMIC, "remote_atomic"},
	             {IBV_ACCESS_ON_DEMAND, "on_demand"}};
	const char *comma = "";

	vb_text_put(out, "[");
	for (size_t i = 0; i < sizeof(names) / sizeof(names[0]); i++) {
		if (!(access & names[i].bit))
			continue;
		vb_text_format(out, "%s\"%s\"", comma, names[i].name);
		comma = ", ";
	}
	vb_text_put(out, "]");
}

static const char *device_name(const struct vb_node *node, uint64_t number)
{
	for (struct vb_context *c = node->contexts; c; c = c->next)
		if ((uint64_t)c->dev->number == number)
			return c->dev->dev.name;
	return "";
}

/* A memory window and a null region have it elsewhere (core/seg.h). */
static uint32_t pd_of(const struct vb_mr_shared *e)
{
	uint32_t pd = atomic_load(&e->pd);
	uint64_t window = atomic_load(&e->window);

	return pd ? pd : window >> 32 ? (uint32_t)(window >> 32) : (uint32_t)window;
}

static void put_mr(struct vb_text *out, const struct vb_node *node, const struct vb_mr_shared *e, uint32_t key)
{
	vb_text_format(out, "{\"key\": %" PRIu32 ", \"device\": ", key);
	vb_text_quote(out, device_name(node, atomic_load(&e->device)));
	vb_text_format(out,
	               ", \"address\": %" PRIu64 ", \"iova\": %" PRIu64 ", \"length\": %" PRIu64 ", \"pd\": %" PRIu32
	               ", \"access\": ",
	               atomic_load(&e->addr), atomic_load(&e->iova), atomic_load(&e->length), pd_of(e));
	put_access(out, atomic_load(&e->access));
	vb_text_put(out, "}");
}

static int serve_mrs(struct vb_control_call *call)
{
	struct vb_node *node = call->node;
	unsigned rows = 0;
	uint64_t from;
	int err = page_start(call->args, &from);

	if (err)
		return err;
	vb_text_put(call->out, "{\"mrs\": [");
	vb_mutex_lock(&node->ctx_lock, VB_RANK_CONTEXTS);
	vb_mutex_lock(&node->mr_lock, VB_RANK_MR);
	uint32_t end = node->keys->fresh, scanned = 0;
	for (; from < end && rows < PAGE_ROWS && scanned < SCAN_MOST; from++, scanned++) {
		const struct vb_mr_shared *e = vb_seg_mr(node->seg, (uint32_t)from);
		uint32_t key = atomic_load(&e->key);

		if (!key || atomic_load(&e->window) >> 32) /* a window is no region */
			continue;
		put_row_mark(call->out, rows++);
		put_mr(call->out, node, e, key);
	}
	vb_mutex_unlock(&node->mr_lock);
	vb_mutex_unlock(&node->ctx_lock);
	end_rows(call->out, from < end, from);
	return 0;
}

void vb_stat_start(void)
{
	vb_stat_devices_start();
	vb_control_add("devices", vb_stat_devices);
	vb_control_add("qps", serve_qps);
	vb_control_add("cqs", serve_cqs);
	vb_control_add("mrs", serve_mrs);
	vb_control_add("pds", serve_pds);
}
