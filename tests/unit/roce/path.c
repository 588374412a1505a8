// path.c - queue pairs that write endlessly over one bottleneck, alone or beside a TCP, in virtual time
// see: tests/unit/roce/tcp.c (the TCP)
// SPDX-License-Identifier: MIT
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "path.h"
#include "tcp.h"

#define RING 131072u
#define SENDS 4096u
#define MESSAGE (w.path->read ? 1u << 20 : 65536u)
#define OVERHEAD 62u /* Ethernet, IPv4, UDP, ICRC */
#define TCP PATH_PAIRS

struct parcel {
	uint64_t at, number; /* number: TCP */
	uint32_t payload_len;
	uint8_t flow;
	uint8_t header[VB_ROCE_MAX_HEADER];
};

/* One direction. All packets take the same time, so none overtakes another. */
struct pipe {
	uint64_t free_at;
	uint32_t first, last;
	struct parcel ring[RING];
};

struct end {
	struct vb_roce_qp qp;
	struct vb_work_sent sends[SENDS];
	uint8_t *slots;
	uint64_t asked, bytes;
};

static struct {
	const struct path *path;
	uint64_t random, now;
	struct pipe pipe[2];
	struct end end[PATH_PAIRS][2];
	struct tcp tcp;
	uint64_t tcp_bytes;
	bool begun;
	uint64_t busy_from[2], busy_to[2]; /* when an end is next stalled */
} w;

static uint64_t below(uint64_t n)
{
	uint64_t z = w.random += 0x9e3779b97f4a7c15ull; /* splitmix64 */

	z = (z ^ z >> 30) * 0xbf58476d1ce4e5b9ull;
	z = (z ^ z >> 27) * 0x94d049bb133111ebull;
	return (z ^ z >> 31) % n;
}

static bool chance(uint32_t of_100000)
{
	return below(100000) < of_100000;
}

/* --- the network --- */

/* Only the direction of the data has the bottleneck; acknowledgements have room. */
static struct parcel *put(int to, uint32_t len)
{
	struct pipe *pipe = &w.pipe[to];
	uint64_t rate = w.path->bits_per_us, start = pipe->free_at > w.now ? pipe->free_at : w.now;
	bool narrow = to == !w.path->read;

	if (narrow && w.path->queue && (start - w.now) * rate / 8000 > w.path->queue)
		return NULL;
	if (narrow)
		pipe->free_at = start + (len + OVERHEAD) * 8000 / rate;
	if (chance(w.path->lose) || pipe->last - pipe->first == RING)
		return NULL;
	struct parcel *p = &pipe->ring[pipe->last++ % RING];

	p->at = (narrow ? pipe->free_at : w.now) + w.path->rtt / 2;
	return p;
}

/* --- queue pairs --- */

static bool next_send(void *own, struct vb_work *work)
{
	struct end *e = own;

	*work = (struct vb_work){.cookie = e->asked++,
	                         .verb = w.path->read ? VB_VERB_READ : VB_VERB_WRITE,
	                         .length = MESSAGE,
	                         .rkey = 1};
	return true;
}

static void complete_send(void *own, const struct vb_work *work, enum vb_work_status status)
{
	struct end *e = own;

	if (status == VB_WORK_SUCCESS && w.now >= w.path->from)
		e->bytes += work->length;
}

static bool fetch(void *own, const struct vb_work *work, uint32_t offset, void *dst, uint32_t len)
{
	return true;
}

static bool scatter(void *own, const struct vb_work *work, uint32_t offset, const void *bytes, uint32_t len)
{
	return true;
}

static uint32_t receives(void *own)
{
	return UINT32_MAX;
}

static bool check(void *own, uint32_t rkey, uint64_t va, uint32_t len, enum vb_right access)
{
	return true;
}

static bool write_remote(void *own, uint32_t rkey, uint64_t va, const void *bytes, uint32_t len, bool last)
{
	return true;
}

static bool read_remote(void *own, uint32_t rkey, uint64_t va, void *dst, uint32_t len)
{
	return true;
}

static void failed(void *own, enum vb_work_event event)
{
	fprintf(stderr, "a queue pair failed: %d\n", event);
}

static const struct vb_roce_ops ops = {
        .next_send = next_send,
        .complete_send = complete_send,
        .fetch = fetch,
        .scatter = scatter,
        .receives = receives,
        .check = check,
        .write = write_remote,
        .read = read_remote,
        .failed = failed,
};

static void init_end(uint32_t pair, int id)
{
	struct vb_roce_config cfg = {.type = VB_ROCE_RC,
	                             .mtu = w.path->mtu,
	                             .burst = 65000 / (w.path->mtu + 16),
	                             .pkey = 0xffff,
	                             .timeout = 14,
	                             .retry_cnt = 7,
	                             .rnr_retry = 7,
	                             .max_rd_atomic = 16,
	                             .max_dest_rd_atomic = 16,
	                             .access = VB_RIGHT_WRITE | VB_RIGHT_READ};
	struct end *e = &w.end[pair][id];

	vb_roce_init(&e->qp, &cfg, &ops, e, e->sends, SENDS);
	e->slots = w.path->keep ? calloc(w.path->keep, VB_ROCE_SLOT(cfg.mtu)) : NULL;
	vb_roce_keep_ahead(&e->qp, &(struct vb_roce_ahead){e->slots, w.path->keep});
	if (!id)
		vb_roce_start(&e->qp);
}

static void output(uint32_t pair, int id)
{
	static uint8_t packet[VB_ROCE_PACKET_MAX];
	struct vb_roce_out out = {.packet = packet};
	struct vb_roce_qp *qp = &w.end[pair][id].qp;

	while (vb_roce_output(qp, &out, w.now)) {
		struct parcel *p = put(!id, out.header_len + out.payload_len);

		if (!p)
			continue;
		p->flow = (uint8_t)pair;
		p->payload_len = out.payload_len;
		memcpy(p->header, packet, out.header_len);
	}
}

static void input(const struct parcel *parcel, int id)
{
	static uint8_t bytes[VB_ROCE_PACKET_MAX + VB_ICRC_LEN];
	struct vb_packet p;
	uint32_t len = vb_opcode_info(parcel->header[0])->header_len;

	memset(bytes, 0, VB_ROCE_MAX_HEADER); /* the payload is zeros */
	memcpy(bytes, parcel->header, len);
	if (vb_packet_decode(&p, bytes, len + parcel->payload_len + VB_ICRC_LEN) != VB_PACKET_OK)
		abort();
	vb_roce_input(&w.end[parcel->flow][id].qp, &p, bytes + p.payload_at, &(struct vb_roce_from){0}, w.now);
	output(parcel->flow, id);
}

/* --- the TCP --- */

static void tcp_output(void)
{
	while (tcp_may_send(&w.tcp, w.now)) {
		uint64_t number = w.tcp.sent;
		struct parcel *p = put(!w.path->read, TCP_LEN + 20);

		tcp_sending(&w.tcp, w.now);
		if (p) {
			p->flow = TCP;
			p->number = number;
		}
	}
}

/* The network keeps the order, so overtaken packets are lost. */
static void tcp_input(uint64_t number)
{
	w.tcp_bytes += w.now >= w.path->from ? TCP_LEN : 0;
	tcp_acknowledged(&w.tcp, number, w.now);
	tcp_output();
}

static void arrive(int to)
{
	struct pipe *pipe = &w.pipe[to];
	const struct parcel *p = &pipe->ring[pipe->first++ % RING];

	if (p->flow < TCP) {
		input(p, to);
	} else if (to == 0) {
		tcp_input(p->number);
	} else {
		struct parcel *ack = put(0, 20);

		if (ack) {
			ack->flow = TCP;
			ack->number = p->number;
		}
	}
}

/* --- time --- */

static uint64_t earlier(uint64_t a, uint64_t b)
{
	return !a ? b : !b || a < b ? a : b;
}

/* When this end handles what is due at that time. */
static uint64_t awake(int end, uint64_t at)
{
	if (!w.path->stall || !at)
		return at;
	while (w.busy_to[end] <= w.now) {
		w.busy_from[end] = w.busy_to[end] + below(8 * w.path->stall);
		w.busy_to[end] = w.busy_from[end] + below(2 * w.path->stall);
	}
	return at >= w.busy_from[end] && at < w.busy_to[end] ? w.busy_to[end] : at;
}

static uint64_t head_at(int to)
{
	const struct pipe *pipe = &w.pipe[to];

	return pipe->first == pipe->last ? 0 : awake(to, pipe->ring[pipe->first % RING].at);
}

static uint64_t deadline(uint32_t pair, int id)
{
	return awake(id, vb_roce_deadline(&w.end[pair][id].qp));
}

static uint64_t tcp_deadline(void)
{
	return w.path->tcp ? earlier(tcp_paced_until(&w.tcp), w.tcp.heard_at + 10 * w.path->rtt) : 0;
}

static uint64_t next_event(void)
{
	uint64_t at = earlier(tcp_deadline(), earlier(head_at(0), head_at(1)));

	if (w.now < w.path->pairs_at)
		at = earlier(at, w.path->pairs_at);

	for (uint32_t i = 0; i < w.path->pairs; i++)
		at = earlier(at, earlier(deadline(i, 0), deadline(i, 1)));
	return at;
}

static void step(void)
{
	if (w.path->pairs_at && !w.begun && w.now >= w.path->pairs_at) {
		w.begun = true;
		for (uint32_t i = 0; i < w.path->pairs; i++)
			output(i, 0);
	}
	for (int to = 0; to < 2; to++) {
		if (head_at(to) && head_at(to) <= w.now)
			arrive(to);
	}
	for (uint32_t i = 0; i < 2 * w.path->pairs; i++) {
		struct vb_roce_qp *qp = &w.end[i / 2][i % 2].qp;
		uint64_t at = deadline(i / 2, i % 2);

		if (!at || at > w.now)
			continue;
		vb_roce_timeout(qp, w.now);
		output(i / 2, i % 2);
	}
	if (w.path->tcp && w.tcp.heard_at + 10 * w.path->rtt <= w.now)
		tcp_silent(&w.tcp, w.now);
	if (w.path->tcp && w.now >= w.path->tcp_at)
		tcp_output();
}

static double percent(uint64_t bytes)
{
	return 100.0 * (double)bytes * 8000 / (double)w.path->bits_per_us / (double)(w.path->time - w.path->from);
}

struct path_result path_run(const struct path *path)
{
	struct path_result result = {0};

	memset(&w, 0, sizeof(w));
	w.path = path;
	w.now = w.random = 1;
	tcp_start(&w.tcp, path->tcp, path->tcp_at);
	w.tcp.pace_at = path->tcp_at;
	for (uint32_t i = 0; i < path->pairs; i++) {
		init_end(i, 0);
		init_end(i, 1);
		if (!path->pairs_at)
			output(i, 0);
	}
	for (uint64_t at; (at = next_event()) && at <= path->time;) {
		w.now = at > w.now ? at : w.now;
		step();
	}
	for (uint32_t i = 0; i < path->pairs; i++) {
		result.share[i] = percent(w.end[i][0].bytes);
		free(w.end[i][0].slots);
		free(w.end[i][1].slots);
	}
	result.tcp = percent(w.tcp_bytes);
	result.stats = w.end[0][0].qp.stats;
	result.requester = w.end[0][0].qp.rq;
	return result;
}
