// stat_devices.c - what a program has counted, by adapter: the verb "devices", and what is kept when it ends
// follows: docs/control.md; rdma-statistic(8)
// SPDX-License-Identifier: MIT
#include <errno.h>
#include <inttypes.h>
#include <pthread.h>
#include <stdarg.h>
#include <stdio.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

#include "core/counters.h"
#include "core/device.h"
#include "core/qp.h"
#include "engine/local/local.h"
#include "node/control.h"
#include "node/io.h"
#include "node/stat.h"
#include "node/walk.h"
#include "util/env.h"
#include "util/tally.h"

#define BATCH_QPS 32u /* looked at without a pause, under progress */
#define SCAN_MOST 4096u
#define DEVICES_MOST 64u

/* Adapters that this program has closed, by name. */
struct past_device {
	char name[IBV_SYSFS_NAME_MAX];
	struct vb_counts counts;
};

static struct {
	unsigned n;
	struct past_device of[DEVICES_MOST];
} past; /* under node->ctx_lock */

/* Held while the file of this program is written: by the progress thread, which answers, or when the program ends. Taken
 * before ctx_lock, which nobody holds while a file is written. */
static pthread_mutex_t file_lock = PTHREAD_MUTEX_INITIALIZER;
static bool is_over;                  /* the file has everything: nothing is answered any more */
static char final_text[VB_TALLY_MAX]; /* not from malloc(3): a program may end in a signal handler */
static bool says_at_end;              /* VERBENA_STATS */

void vb_stat_devices_start(void)
{
	pthread_mutex_init(&file_lock, NULL); /* in a child of fork(), a thread of the parent may have held it */
	is_over = false;
	past.n = 0;
	const char *value = vb_env("VERBENA_STATS");

	says_at_end = value && !strcmp(value, "1");
}

/* What a program uses of an adapter. */
struct device_sum {
	struct vb_device *dev;
	unsigned contexts, qps, cqs;
	struct vb_counts counts;
};

struct device_scan {
	uint32_t from;
	unsigned n;
	struct device_sum sums[DEVICES_MOST];
};

static struct device_sum *sum_of(struct device_scan *scan, const struct vb_device *dev)
{
	for (unsigned i = 0; i < scan->n; i++)
		if (scan->sums[i].dev == dev)
			return &scan->sums[i];
	return NULL;
}

/* Under ctx_lock. */
static void sum_contexts(struct vb_node *node, struct device_scan *scan)
{
	for (struct vb_context *c = node->contexts; c; c = c->next) {
		struct device_sum *sum = sum_of(scan, c->dev);

		if (!sum && scan->n < DEVICES_MOST) {
			sum = &scan->sums[scan->n++];
			sum->dev = c->dev;
		}
		if (sum)
			sum->contexts++;
	}
}

static __attribute__((no_sanitize("thread"))) void add_errors(struct vb_counts *c, uint64_t errors[2][2])
{
	c->req_cqe_error += errors[0][0] + errors[0][1];
	c->req_cqe_flush_error += errors[0][1];
	c->resp_cqe_error += errors[1][0] + errors[1][1];
	c->resp_cqe_flush_error += errors[1][1];
}

/* Under ctx_lock. */
static __attribute__((no_sanitize("thread"))) void sum_cqs(struct vb_node *node, struct device_scan *scan)
{
	for (unsigned i = 0; i < scan->n; i++)
		add_errors(&scan->sums[i].counts, scan->sums[i].dev->ended_cqs);
	for (struct vb_cq *cq = node->cqs; cq; cq = cq->next) {
		struct device_sum *sum = sum_of(scan, VB_CONTEXT_OF(cq)->dev);

		if (!sum)
			continue;
		sum->cqs++;
		add_errors(&sum->counts, cq->errors);
	}
}

static __attribute__((no_sanitize("thread"))) void sum_qp(struct device_scan *scan, struct vb_qp *qp)
{
	struct device_sum *sum = sum_of(scan, vb_qp_device(qp));

	if (!sum)
		return;
	sum->qps++;
	vb_local_counts(qp, &sum->counts);
	for (unsigned i = 0; i < VB_TRANSPORTS; i++)
		vb_transports[i]->show(qp, &sum->counts, NULL, 0);
}

/* What has ended, and then a part of the table. A queue pair that ends meanwhile may be missed, but is never counted
 * twice. */
static void sum_qps(struct vb_node *node, void *arg)
{
	struct device_scan *scan = arg;
	uint32_t end = scan->from + SCAN_MOST < VB_LANE_QPS ? scan->from + SCAN_MOST : VB_LANE_QPS;

	for (unsigned i = 0; !scan->from && i < scan->n; i++)
		vb_counts_add(&scan->sums[i].counts, &scan->sums[i].dev->ended);
	for (unsigned n = 0; scan->from < end && n < BATCH_QPS; scan->from++) {
		struct vb_qp *qp = atomic_load_explicit(&node->qps[scan->from], memory_order_relaxed);

		if (!qp)
			continue;
		sum_qp(scan, qp);
		n++;
	}
}

/* Counters never go back, although a queue pair that ends may be missed while they are added up. What past has is not
 * counted again. Under ctx_lock: a thread that closes a device may have moved its counters there meanwhile. */
static void keep_highest(struct device_sum *sum)
{
	struct vb_counts *shown = &sum->dev->shown;
	const struct vb_counts *moved = &sum->dev->tallied;

#define X(name, text)                           \
	if (sum->counts.name > shown->name)     \
		shown->name = sum->counts.name; \
	sum->counts.name = shown->name - moved->name;
	VB_COUNTS(X)
#undef X
}

static void put_process(struct vb_text *out, const struct vb_node *node)
{
	const struct vb_counters *c = &vb_counters;

	vb_text_format(out,
	               ", \"mrs\": %" PRIu32 ", \"process\": {\"one_copy_bytes\": %" PRIu64 ", \"ring_bytes\": %" PRIu64
	               ", \"mapped_bytes\": %" PRIu64 ", \"udp_packets_sent\": %" PRIu64
	               ", \"udp_packets_received\": %" PRIu64 ", \"dropped_icrc\": %" PRIu64
	               ", \"dropped_malformed\": %" PRIu64 ", \"dropped_no_qp\": %" PRIu64
	               ", \"dropped_source\": %" PRIu64 "}}\n",
	               node->mr_count, c->one_copy_bytes, c->ring_bytes, c->mapped_bytes, c->tx_packets, c->rx_packets,
	               c->drop_icrc, c->drop_malformed, c->drop_no_qp, c->drop_source);
}

static void hold_devices(struct device_scan *scan)
{
	for (unsigned i = 0; i < scan->n; i++)
		vb_device_get(scan->sums[i].dev);
}

/* --- adapters that were closed --- */

/* NULL: there are too many. */
static struct past_device *past_of(const char *name, bool add)
{
	for (unsigned i = 0; i < past.n; i++)
		if (!strcmp(past.of[i].name, name))
			return &past.of[i];
	if (!add || past.n == DEVICES_MOST)
		return NULL;
	struct past_device *p = &past.of[past.n++];

	*p = (struct past_device){0};
	snprintf(p->name, sizeof(p->name), "%s", name);
	return p;
}

static bool has_counted(const struct vb_counts *c)
{
	uint64_t any = 0;

#define X(name, text) any |= c->name;
	VB_COUNTS(X)
#undef X
	return any != 0;
}

static void move_to_past(struct device_scan *scan)
{
	for (unsigned i = 0; i < scan->n; i++) {
		struct device_sum *sum = &scan->sums[i];

		keep_highest(sum);
		struct past_device *p = has_counted(&sum->counts) ? past_of(sum->dev->dev.name, true) : NULL;
		if (!p)
			continue;
		vb_counts_add(&p->counts, &sum->counts);
		vb_counts_add(&sum->dev->tallied, &sum->counts);
	}
}

/* In a signal handler a lock is not waited for long. */
static bool lock_progress(struct vb_node *node, bool wait)
{
	const struct timespec ts = {0, 100000};
	int tries = 200;

	if (wait) {
		vb_lock(&node->progress);
		return true;
	}
	VB_MAY_WAIT();
	while (!vb_trylock(&node->progress)) {
		if (!tries--)
			return false;
		nanosleep(&ts, NULL);
	}
	return true;
}

/* False: a lock was held for long. Under ctx_lock. */
static bool close_contexts(struct vb_node *node, bool wait)
{
	struct device_scan scan = {0};

	sum_contexts(node, &scan);
	if (!scan.n)
		return true;
	sum_cqs(node, &scan);
	if (!lock_progress(node, wait))
		return false;
	while (scan.from < VB_LANE_QPS)
		sum_qps(node, &scan);
	vb_unlock(&node->progress);
	move_to_past(&scan);
	return true;
}

void vb_node_tally(struct vb_node *node)
{
	vb_mutex_lock(&node->ctx_lock, VB_RANK_CONTEXTS);
	close_contexts(node, true);
	vb_mutex_unlock(&node->ctx_lock);
}

/* --- the answer --- */

static void put_device(struct vb_text *out, const char *name, const struct device_sum *sum)
{
	vb_text_put(out, "{\"device\": ");
	vb_text_quote(out, name);
	vb_text_format(out, ", \"contexts\": %u, \"qps\": %u, \"cqs\": %u, \"counters\": ", sum->contexts, sum->qps,
	               sum->cqs);
	vb_stat_put_counts(out, &sum->counts);
	vb_text_put(out, "}");
}

static bool is_open(const struct device_scan *scan, const char *name)
{
	for (unsigned i = 0; i < scan->n; i++)
		if (!strcmp(scan->sums[i].dev->dev.name, name))
			return true;
	return false;
}

/* Under ctx_lock. */
static void put_devices(struct vb_text *out, struct device_scan *scan)
{
	unsigned rows = 0;

	vb_text_put(out, "{\"devices\": [");
	for (; rows < scan->n; rows++) {
		struct device_sum *sum = &scan->sums[rows];
		const struct past_device *p = past_of(sum->dev->dev.name, false);

		keep_highest(sum);
		if (p)
			vb_counts_add(&sum->counts, &p->counts);
		vb_text_put(out, rows ? ",\n " : "\n ");
		put_device(out, sum->dev->dev.name, sum);
	}
	for (unsigned i = 0; i < past.n && rows < DEVICES_MOST; i++) {
		if (is_open(scan, past.of[i].name))
			continue;
		const struct device_sum sum = {.counts = past.of[i].counts};

		vb_text_put(out, rows++ ? ",\n " : "\n ");
		put_device(out, past.of[i].name, &sum);
	}
	vb_text_put(out, "]");
}

static void answer_devices(struct vb_node *node, struct vb_text *out)
{
	struct device_scan scan = {0};

	vb_mutex_lock(&node->ctx_lock, VB_RANK_CONTEXTS);
	sum_contexts(node, &scan);
	hold_devices(&scan);
	sum_cqs(node, &scan);
	vb_mutex_unlock(&node->ctx_lock);
	while (scan.from < VB_LANE_QPS)
		vb_walk(node, sum_qps, &scan);
	vb_mutex_lock(&node->ctx_lock, VB_RANK_CONTEXTS);
	put_devices(out, &scan);
	put_process(out, node);
	vb_mutex_unlock(&node->ctx_lock);
	for (unsigned i = 0; i < scan.n; i++)
		vb_device_put(scan.sums[i].dev);
}

/* What was not kept is not shown: it would be lost if the program were killed. */
int vb_stat_devices(struct vb_control_call *call)
{
	const char *name;
	int dir_fd, err = 0;

	vb_mutex_lock(&file_lock, VB_RANK_TALLY);
	answer_devices(call->node, call->out);
	if (is_over)
		err = ESHUTDOWN;
	else if (call->out->failed)
		err = ENOMEM;
	else if (vb_control_place(call->node->io->control, &dir_fd, &name))
		err = vb_tally_keep(dir_fd, name, call->out->at, call->out->len);
	vb_mutex_unlock(&file_lock);
	return err;
}

/* --- the end --- */

static __attribute__((format(printf, 2, 3))) size_t append_final(size_t n, const char *fmt, ...)
{
	va_list args;

	if (n >= sizeof(final_text))
		return n;
	va_start(args, fmt);
	n += (size_t)vsnprintf(final_text + n, sizeof(final_text) - n, fmt, args);
	va_end(args);
	return n;
}

/* As put_device writes it, without what the sums do not have. */
static size_t append_device(size_t n, const struct past_device *p)
{
	const struct vb_counts *bytes = &p->counts;
	struct vb_counts units = *bytes;

	units.port_xmit_data /= 4;
	units.port_rcv_data /= 4;
	n = append_final(n, "{\"device\": \"%s\", \"counters\": {\"xmit_bytes\": %" PRIu64 ", \"rcv_bytes\": %" PRIu64,
	                 p->name, bytes->port_xmit_data, bytes->port_rcv_data);
#define X(name, text) n = append_final(n, ", \"" #name "\": %" PRIu64, units.name);
	VB_COUNTS(X)
#undef X
	return append_final(n, "}}");
}

/* Returns the length; 0 if nothing was counted. */
static size_t write_final(void)
{
	size_t n = append_final(0, "{\"devices\": [");

	for (unsigned i = 0; i < past.n; i++) {
		n = append_final(n, i ? ",\n " : "\n ");
		n = append_device(n, &past.of[i]);
	}
	n = append_final(n, "]}\n");
	return past.n && n < sizeof(final_text) ? n : 0;
}

static size_t append_line(char *line, size_t room, size_t n, const char *text, uint64_t value)
{
	int more = n < room ? snprintf(line + n, room - n, text, value) : 0;

	return more > 0 ? n + (size_t)more : n;
}

/* For a person: a line for each adapter. One write(2) a line, so that lines of several programs are not mixed. */
static void say_final(void)
{
	for (unsigned i = 0; i < past.n; i++) {
		const struct vb_counts *c = &past.of[i].counts;
		char line[1024];
		int begin = snprintf(line, sizeof(line), "verbena: %s (%d): %s: ", program_invocation_short_name,
		                     (int)getpid(), past.of[i].name);
		size_t room = sizeof(line) - 1, n = begin > 0 ? (size_t)begin : 0;

		n = append_line(line, room, n, "sent %" PRIu64 " bytes", c->port_xmit_data);
		n = append_line(line, room, n, " in %" PRIu64 " packets", c->port_xmit_packets);
		n = append_line(line, room, n, ", received %" PRIu64 " bytes", c->port_rcv_data);
		n = append_line(line, room, n, " in %" PRIu64, c->port_rcv_packets);
#define X(name, text) \
	if (c->name)  \
		n = append_line(line, room, n, ", " #name " %" PRIu64, c->name);
		VB_COUNTS_TROUBLE(X)
#undef X
		n = n < room ? n : room - 1;
		line[n++] = '\n';
		if (write(STDERR_FILENO, line, n) < 0)
			break; /* nobody reads it */
	}
}

/* The program may end in a signal handler, so a lock is not waited for long. */
static bool lock_file(void)
{
	const struct timespec ts = {0, 100000};

	VB_MAY_WAIT();
	for (int i = 0; i < 200; i++) {
		if (!vb_mutex_trylock(&file_lock, VB_RANK_TALLY))
			return true;
		nanosleep(&ts, NULL);
	}
	return false;
}

bool vb_stat_end(struct vb_node *node, int dir_fd, const char *name)
{
	size_t len = 0;

	if (!lock_file())
		return false;
	if (!is_over && !vb_mutex_trylock(&node->ctx_lock, VB_RANK_CONTEXTS)) {
		len = close_contexts(node, false) ? write_final() : 0;
		vb_mutex_unlock(&node->ctx_lock);
	}
	is_over = true;
	if (len)
		vb_tally_keep(dir_fd, name, final_text, len); /* otherwise what was shown remains */
	if (len &&
	    says_at_end) /* last, and without ctx_lock: standard error may be a full pipe, or one without a reader */
		say_final();
	vb_mutex_unlock(&file_lock);
	return true;
}
