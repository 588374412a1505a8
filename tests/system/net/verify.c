// verify.c - two programs send, write, read and change each other's memory, and check every byte of it
// follows: ibv_post_send(3), ibv_poll_cq(3)
// SPDX-License-Identifier: MIT
//
// Both derive the requests of both sides from one seed. A round is 32 requests of each side, posted at once. Then both
// check the received data, the margins beside it, and the results of reads and atomics. Exit status: 0 right, 1 wrong
// data, 2 usage or no adapter, 3 a completion with an error, 4 the other side ended, 124 timeout.
#include "link.h"

#include <endian.h>
#include <errno.h>
#include <inttypes.h>
#include <poll.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/socket.h>
#include <time.h>
#include <unistd.h>

enum { GRH = 40, RECEIVE = 1u << 16, UNTOUCHED = 0xee };

struct verify {
	const struct options *o;
	struct link link;
	struct plan mine, theirs;
	uint8_t *out;      /* payload of this side's sends and writes */
	uint8_t *brought;  /* written by reads and atomics */
	uint8_t *written;  /* written by the other side */
	uint8_t *received; /* SLOTS slots of stride bytes, for UD three times as many */
	uint8_t *readable;
	uint64_t *cells;
	struct ibv_mr *out_mr, *brought_mr, *written_mr, *received_mr, *readable_mr, *cells_mr;
	size_t stride;                  /* bytes of a slot */
	uint32_t done, arrived, posted; /* numbers of this round: requests, receives, posted receives */
	uint32_t expected;
	uint64_t lost, twice; /* for UD, like those below */
	bool seen[SLOTS];
	uint64_t late; /* from earlier rounds */
};

static const char *const kind_names[KINDS] = {"send", "send-imm",  "write", "write-imm",
                                              "read", "read-back", "add",   "swap"};
static const char *phase = "starting";

static void too_long(int signal)
{
	(void)signal;
	char text[128];
	int n = snprintf(text, sizeof(text), "too long: %s\n", phase);

	if (write(1, text, (size_t)n) < 0)
		_exit(125);
	_exit(124);
}

/* --- memory --- */

static struct ibv_mr *region(struct verify *v, void *where, size_t len, int access)
{
	void **at = where;

	*at = mmap(NULL, len, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
	struct ibv_mr *mr = *at == MAP_FAILED ? NULL : ibv_reg_mr(v->link.pd, *at, len, access);

	if (!mr)
		stop(USAGE, "ibv_reg_mr: %s", strerror(errno));
	return mr;
}

static void regions(struct verify *v)
{
	struct side *s = &v->link.here;
	int local = IBV_ACCESS_LOCAL_WRITE, remote = local | IBV_ACCESS_REMOTE_READ | IBV_ACCESS_REMOTE_WRITE;

	v->stride = v->mine.largest + 2 * MARGIN;
	v->out_mr = region(v, &v->out, SLOTS * v->stride, 0);
	v->brought_mr = region(v, &v->brought, SLOTS * v->stride, local);
	v->written_mr = region(v, &v->written, SLOTS * v->stride, remote);
	v->received_mr = region(v, &v->received, 3 * SLOTS * v->stride, local);
	v->readable_mr = region(v, &v->readable, v->mine.largest, IBV_ACCESS_REMOTE_READ);
	v->cells_mr = region(v, &v->cells, sizeof(uint64_t) * CELLS, local | IBV_ACCESS_REMOTE_ATOMIC);
	memset(v->written, UNTOUCHED, SLOTS * v->stride);
	fill(v->readable, v->mine.largest, readable_tag(v->o->seed, v->link.number));
	s->key = v->written_mr->rkey;
	s->written = (uintptr_t)v->written;
	s->readable_key = v->readable_mr->rkey;
	s->readable = (uintptr_t)v->readable;
	s->cells_key = v->cells_mr->rkey;
	s->cells = (uintptr_t)v->cells;
}

static uint8_t *slot(const struct verify *v, uint8_t *base, uint64_t i)
{
	return base + i * v->stride + MARGIN;
}

/* --- outgoing data --- */

static int cut(const struct request *r, uint8_t *at, uint32_t key, struct ibv_sge *sge)
{
	uint32_t piece = r->len / r->cuts, taken = 0;

	for (int i = 0; i < r->cuts; i++) {
		uint32_t n = i == r->cuts - 1 ? r->len - taken : piece;

		sge[i] = (struct ibv_sge){(uintptr_t)at + taken, n, key};
		taken += n;
	}
	return r->len ? r->cuts : 0;
}

static bool brings(enum kind k)
{
	return k >= READ;
}

static void address(const struct verify *v, struct ibv_send_wr *w, const struct request *r, uint32_t i)
{
	const struct side *s = &v->link.there;

	switch (r->kind) {
	case SEND:
	case SEND_IMM:
		if (v->o->transport == UD) {
			w->wr.ud.ah = v->link.ah;
			w->wr.ud.remote_qpn = s->qpn;
			w->wr.ud.remote_qkey = UD_QKEY;
		}
		break;
	case WRITE:
	case WRITE_IMM:
	case READ_BACK:
		w->wr.rdma.remote_addr =
		        s->written + (r->kind == READ_BACK ? r->back : i) * v->stride + MARGIN + r->offset;
		w->wr.rdma.rkey = s->key;
		break;
	case READ:
		w->wr.rdma.remote_addr = s->readable + r->offset;
		w->wr.rdma.rkey = s->readable_key;
		break;
	default:
		w->wr.atomic.remote_addr = s->cells + 8 * r->cell;
		w->wr.atomic.rkey = s->cells_key;
		w->wr.atomic.compare_add = r->kind == FETCH_ADD ? r->operand : r->compare;
		w->wr.atomic.swap = r->operand;
	}
}

static void post(struct verify *v, uint32_t i)
{
	static const enum ibv_wr_opcode opcodes[KINDS] = {
	        IBV_WR_SEND,      IBV_WR_SEND_WITH_IMM, IBV_WR_RDMA_WRITE,           IBV_WR_RDMA_WRITE_WITH_IMM,
	        IBV_WR_RDMA_READ, IBV_WR_RDMA_READ,     IBV_WR_ATOMIC_FETCH_AND_ADD, IBV_WR_ATOMIC_CMP_AND_SWP};
	const struct request *r = &v->mine.requests[i];
	uint8_t *at = slot(v, brings(r->kind) ? v->brought : v->out, i);
	struct ibv_sge sge[3];
	struct ibv_send_wr w = {.wr_id = i, .sg_list = sge, .opcode = opcodes[r->kind], .imm_data = htobe32(r->imm)},
	                   *bad;

	w.num_sge = cut(r, at, brings(r->kind) ? v->brought_mr->lkey : v->out_mr->lkey, sge);
	if (r->kind == FETCH_ADD || r->kind == CMP_SWAP) {
		sge[0].length = 8;
		w.num_sge = 1;
	}
	if (brings(r->kind))
		memset(at, 0, r->len);
	else
		fill(at, r->len, r->tag);
	address(v, &w, r, i);
	if (r->signaled)
		w.send_flags |= IBV_SEND_SIGNALED;
	if (r->inlined && !brings(r->kind) && r->len <= v->link.max_inline)
		w.send_flags |= IBV_SEND_INLINE;
	if (takes_receive(r->kind) && r->imm & 1)
		w.send_flags |= IBV_SEND_SOLICITED;
	int e = ibv_post_send(v->link.qp, &w, &bad);

	if (e)
		stop(FAILED, "ibv_post_send, %s of %u bytes: %s", kind_names[r->kind], r->len, strerror(e));
}

static void post_receive(struct verify *v)
{
	uint64_t n = v->posted++ % (3 * SLOTS);
	struct ibv_sge sge = {(uintptr_t)slot(v, v->received, n) - (v->o->transport == UD ? GRH : 0),
	                      v->mine.largest + (v->o->transport == UD ? GRH : 0), v->received_mr->lkey};
	struct ibv_recv_wr w = {.wr_id = n | RECEIVE, .sg_list = &sge, .num_sge = 1}, *bad;
	int e = ibv_post_recv(v->link.qp, &w, &bad);

	if (e)
		stop(FAILED, "ibv_post_recv: %s", strerror(e));
}

/* --- received data --- */

static void same(struct verify *v, const char *what, const struct request *r, const uint8_t *at, uint64_t tag)
{
	uint32_t where;

	if (!is_filled(at, r->len, tag, &where))
		stop(WRONG, "wrong: round %" PRIu64 ", %s by %s of %u bytes, at %u", v->mine.round, what,
		     kind_names[r->kind], r->len, where);
}

static void brought(struct verify *v, uint32_t i)
{
	const struct request *r = &v->mine.requests[i];
	const uint8_t *at = slot(v, v->brought, i);
	uint64_t was;

	if (r->kind == READ)
		same(v, "brought", r, at, readable_tag(v->o->seed, !v->link.number) + r->offset);
	else if (r->kind == READ_BACK)
		same(v, "brought", r, at, r->tag);
	else if (brings(r->kind) && (memcpy(&was, at, 8), was != r->was))
		stop(WRONG, "wrong: round %" PRIu64 ", %s brought %" PRIx64 ", not %" PRIx64, v->mine.round,
		     kind_names[r->kind], was, r->was);
}

/* The n-th receive of this round is for the n-th of the other side's requests that takes a receive. */
static const struct request *nth(struct verify *v, uint32_t n, uint32_t *index)
{
	for (uint32_t i = 0; i < SLOTS; i++)
		if (takes_receive(v->theirs.requests[i].kind) && n-- == 0) {
			*index = i;
			return &v->theirs.requests[i];
		}
	stop(WRONG, "wrong: round %" PRIu64 ", a message too many", v->mine.round);
}

static void check_completion(struct verify *v, const struct ibv_wc *wc, const struct request *r)
{
	bool imm = r->kind != SEND;

	if (wc->opcode != (r->kind == WRITE_IMM ? IBV_WC_RECV_RDMA_WITH_IMM : IBV_WC_RECV) ||
	    !!(wc->wc_flags & IBV_WC_WITH_IMM) != imm || (imm && be32toh(wc->imm_data) != r->imm))
		stop(WRONG, "wrong: round %" PRIu64 ", receive of %s: opcode %d, flags %x, immediate %x for %x",
		     v->mine.round, kind_names[r->kind], wc->opcode, wc->wc_flags, be32toh(wc->imm_data), r->imm);
	if (wc->byte_len != r->len + (v->o->transport == UD ? GRH : 0))
		stop(WRONG, "wrong: round %" PRIu64 ", receive of %s has %u bytes, not %u", v->mine.round,
		     kind_names[r->kind], wc->byte_len, r->len);
}

static void received(struct verify *v, const struct ibv_wc *wc)
{
	uint32_t i;
	const struct request *r = nth(v, v->arrived++, &i);

	check_completion(v, wc, r);
	if (r->kind != WRITE_IMM)
		same(v, "received", r, slot(v, v->received, wc->wr_id & (RECEIVE - 1)), r->tag);
	if (v->posted < v->expected)
		post_receive(v);
}

/* Its first bytes identify the message. */
static bool find_datagram(const struct request *round, const uint8_t *at, uint32_t *i)
{
	uint8_t first[8];

	for (*i = 0; *i < SLOTS; ++*i) {
		fill(first, 8, round[*i].tag);
		if (!memcmp(first, at, 8))
			return true;
	}
	return false;
}

/* True if it is from an earlier round: queued datagrams may arrive late, and repeated ones even later. */
static bool find_late(struct verify *v, struct plan *p, const uint8_t *at, uint32_t *i)
{
	plan_init(p, v->o->seed, v->theirs.side, UD, v->link.mtu, v->o->largest, v->o->kinds);
	while (p->round + 1 < v->theirs.round) {
		plan_next(p);
		if (find_datagram(p->requests, at, i))
			return true;
	}
	return false;
}

static void received_datagram(struct verify *v, const struct ibv_wc *wc)
{
	static struct plan earlier;
	uint8_t *at = slot(v, v->received, wc->wr_id & (RECEIVE - 1));
	const struct request *round = v->theirs.requests;
	uint32_t i;

	if (!find_datagram(round, at, &i)) {
		if (!find_late(v, &earlier, at, &i))
			stop(WRONG, "wrong: a datagram nobody sent, %u bytes from %x", wc->byte_len, wc->src_qp);
		round = earlier.requests;
	}
	if (wc->src_qp != v->link.there.qpn || !(wc->wc_flags & IBV_WC_GRH) != (v->link.here.lid != 0))
		stop(WRONG, "wrong: a datagram from %x, flags %x", wc->src_qp, wc->wc_flags);
	check_completion(v, wc, &round[i]);
	same(v, "received", &round[i], at, round[i].tag);
	memset(at, 0, 8);
	post_receive(v);
	if (round == earlier.requests) {
		v->late++;
		return;
	}
	v->twice += v->seen[i];
	v->arrived += !v->seen[i];
	v->seen[i] = true;
}

static void completed(struct verify *v, const struct ibv_wc *wc)
{
	bool receive = wc->wr_id & RECEIVE;

	if (wc->status != IBV_WC_SUCCESS)
		stop(FAILED, "error: %s, %s of round %" PRIu64, ibv_wc_status_str(wc->status),
		     receive ? "receive" : kind_names[v->mine.requests[wc->wr_id % SLOTS].kind], v->mine.round);
	if (receive && v->o->transport == UD)
		received_datagram(v, wc);
	else if (receive)
		received(v, wc);
	else
		for (; v->done <= wc->wr_id; v->done++)
			brought(v, v->done);
}

static int look(struct verify *v)
{
	struct ibv_wc wc[8];
	int n = ibv_poll_cq(v->link.cq, 8, wc);

	for (int i = 0; i < n; i++)
		completed(v, &wc[i]);
	return n;
}

/* Sleeps until there is a completion or a message of the other side. */
static void rest(struct verify *v, int ms)
{
	struct pollfd p[2] = {{v->link.tcp, POLLIN, 0}, {v->link.channel ? v->link.channel->fd : -1, POLLIN, 0}};
	struct ibv_cq *cq;
	void *context;

	poll(p, 2, ms);
	if (!(p[1].revents & POLLIN))
		return;
	ibv_get_cq_event(v->link.channel, &cq, &context);
	ibv_ack_cq_events(cq, 1);
	ibv_req_notify_cq(cq, 0);
}

/* --- rounds --- */

/* The other side has ended: the outstanding requests must report that, or an additional write if there are none. */
static void gone(struct verify *v)
{
	phase = "waiting for the error that the other side's end must bring";
	if (v->o->transport != RC)
		stop(GONE, "the other side went");
	struct ibv_sge sge = {(uintptr_t)v->out, 1, v->out_mr->lkey};
	struct ibv_send_wr w = {.wr_id = 0,
	                        .sg_list = &sge,
	                        .num_sge = 1,
	                        .opcode = IBV_WR_RDMA_WRITE,
	                        .send_flags = IBV_SEND_SIGNALED,
	                        .wr.rdma = {v->link.there.written, v->link.there.key}},
	                   *bad;

	if (v->done == SLOTS)
		ibv_post_send(v->link.qp, &w, &bad);
	for (;;)
		if (!look(v) && v->o->events)
			rest(v, 10);
}

/* Waits until both sides have come here, and polls completions meanwhile. */
static void meet(struct verify *v, const char *where)
{
	char c = 0;
	ssize_t n;

	time_t quiet_since = time(NULL);

	phase = where;
	if (write(v->link.tcp, "x", 1) != 1)
		gone(v);
	while ((n = read(v->link.tcp, &c, 1)) != 1) {
		if (n == 0 || errno != EAGAIN || (v->o->patience && time(NULL) - quiet_since > v->o->patience))
			gone(v);
		if (!look(v))
			rest(v, v->o->events ? 1000 : 0);
	}
}

static void gone_if_closed(struct verify *v)
{
	char c;
	ssize_t n = recv(v->link.tcp, &c, 1, MSG_PEEK);

	if (n == 0 || (n < 0 && errno != EAGAIN))
		gone(v);
}

static void transfer(struct verify *v)
{
	phase = "waiting for completions";
	v->done = 0;
	for (uint32_t i = 0; i < SLOTS; i++)
		post(v, i);
	time_t quiet_since = time(NULL);

	for (uint64_t looks = 0; v->done < SLOTS || (v->o->transport != UD && v->arrived < v->expected);) {
		if (look(v)) {
			quiet_since = 0;
			continue;
		}
		if (!quiet_since)
			quiet_since = time(NULL);
		/* all our requests are done and nothing arrives: a cut network reports nothing by itself */
		if (v->done == SLOTS && v->o->patience && time(NULL) - quiet_since > v->o->patience)
			gone(v);
		if (v->o->events)
			rest(v, 1000);
		if (++looks % 4096 == 0 || v->o->events)
			gone_if_closed(v);
	}
}

static bool untouched(const uint8_t *at, size_t n)
{
	return !n || (*at == UNTOUCHED && !memcmp(at, at + 1, n - 1));
}

static void check_written(struct verify *v)
{
	for (uint32_t i = 0; i < SLOTS; i++) {
		const struct request *r = &v->theirs.requests[i];
		uint8_t *s = slot(v, v->written, i) - MARGIN;
		uint32_t from = MARGIN + r->offset, to = from + r->len;

		if (r->kind != WRITE && r->kind != WRITE_IMM)
			from = to = MARGIN;
		else
			same(v, "written", r, s + from, r->tag);
		if (!untouched(s, from) || !untouched(s + to, v->stride - to))
			stop(WRONG, "wrong: round %" PRIu64 ", a byte beside %s number %u has changed", v->mine.round,
			     kind_names[r->kind], i);
		memset(s + from, UNTOUCHED, to - from);
	}
	if (memcmp(v->cells, v->theirs.cells, sizeof(uint64_t) * CELLS))
		stop(WRONG, "wrong: round %" PRIu64 ", the cells", v->mine.round);
}

/* Waits for UD messages, which may be lost, until nothing has arrived for 100 ms. */
static void await_datagrams(struct verify *v)
{
	phase = "waiting for datagrams";
	for (int idle = 0; idle < 100 && v->arrived < SLOTS; idle++) {
		if (look(v))
			idle = 0;
		else
			poll(NULL, 0, idle > 0);
	}
	v->lost += SLOTS - v->arrived;
}

static void post_receives(struct verify *v)
{
	if (v->o->transport == UD)
		return; /* posted from the start: a receive that a lost datagram did not use serves the next round */
	v->posted = v->expected = 0;
	for (uint32_t i = 0; i < SLOTS; i++)
		v->expected += takes_receive(v->theirs.requests[i].kind);
	while (v->posted < v->expected && v->posted < v->o->receives)
		post_receive(v);
}

static void round_of(struct verify *v)
{
	plan_next(&v->mine);
	plan_next(&v->theirs);
	v->done = SLOTS; /* nothing is in flight yet */
	v->arrived = 0;
	memset(v->seen, 0, sizeof(v->seen));
	post_receives(v);
	meet(v, "waiting for the other side to begin the round");
	transfer(v);
	meet(v, "waiting for the other side to end the round");
	if (v->o->transport == UD)
		await_datagrams(v);
	else
		check_written(v);
}

static void run(struct verify *v)
{
	const struct plan *first = v->link.number ? &v->theirs : &v->mine;

	while (first->bytes < v->o->bytes)
		round_of(v);
	meet(v, "waiting for the other side to end");
	uint64_t sent = v->mine.round * SLOTS;

	if (v->lost * 100 > sent * v->o->may_lose)
		stop(WRONG, "lost %" PRIu64 " of %" PRIu64 " datagrams", v->lost, sent);
	printf("right: %" PRIu64 " requests, %" PRIu64 " bytes each way; lost %" PRIu64 ", twice %" PRIu64
	       ", late %" PRIu64 "\n",
	       sent, v->mine.bytes, v->lost, v->twice, v->late);
}

/* --- options --- */

static _Noreturn void usage(void)
{
	stop(USAGE,
	     "usage: verify [-d DEVICE] [-g GID] [-t rc|uc|ud] [-m MTU] [-l LARGEST] [-n BYTES] [-s SEED] [-k KIND,…]\n"
	     "  [-r RECEIVES AT A TIME] [-o READS AT A TIME] [-T TIMEOUT] [-R RETRIES] [-S SECONDS AT MOST] [-L "
	     "PERCENT MAY BE LOST] [-q SECONDS OF SILENCE] [-e] -p PORT [SERVER]");
}

static uint32_t kinds_of(char *list)
{
	uint32_t kinds = 0;

	for (char *k = strtok(list, ","); k; k = strtok(NULL, ",")) {
		uint32_t i = 0;

		while (i < KINDS && strcmp(k, kind_names[i]))
			i++;
		if (i == KINDS)
			usage();
		kinds |= 1u << i;
	}
	return kinds;
}

static enum transport transport_of(const char *s)
{
	if (strcmp(s, "rc") && strcmp(s, "uc") && strcmp(s, "ud"))
		usage();
	return !strcmp(s, "rc") ? RC : !strcmp(s, "uc") ? UC : UD;
}

static void options(struct options *o, int argc, char **argv)
{
	*o = (struct options){
	        .gid = 1,
	        .seed = 1,
	        .bytes = 10 << 20,
	        .largest = 65536,
	        .receives = SLOTS,
	        .kinds = (1u << KINDS) - 1,
	        .timeout = 20, /* two minutes with the retries: a busy machine is no network that loses everything */
	        .retries = 7,
	        .reads = 8,
	        .seconds = 60};
	for (int c; (c = getopt(argc, argv, "d:g:t:m:l:n:s:k:r:o:T:R:S:L:q:ep:")) != -1;)
		switch (c) {
		case 'd':
			o->device = optarg;
			break;
		case 'g':
			o->gid = atoi(optarg);
			break;
		case 't':
			o->transport = transport_of(optarg);
			break;
		case 'm':
			o->mtu = (uint32_t)atoi(optarg);
			break;
		case 'l':
			o->largest = (uint32_t)atoi(optarg);
			break;
		case 'n':
			o->bytes = strtoull(optarg, NULL, 0);
			break;
		case 's':
			o->seed = strtoull(optarg, NULL, 0);
			break;
		case 'k':
			o->kinds = kinds_of(optarg);
			break;
		case 'r':
			o->receives = (uint32_t)atoi(optarg);
			break;
		case 'o':
			o->reads = (uint8_t)atoi(optarg);
			break;
		case 'T':
			o->timeout = (uint8_t)atoi(optarg);
			break;
		case 'R':
			o->retries = (uint8_t)atoi(optarg);
			break;
		case 'S':
			o->seconds = atoi(optarg);
			break;
		case 'L':
			o->may_lose = (uint32_t)atoi(optarg);
			break;
		case 'q':
			o->patience = atoi(optarg);
			break;
		case 'e':
			o->events = true;
			break;
		case 'p':
			o->port = atoi(optarg);
			break;
		default:
			usage();
		}
	o->server = argv[optind];
	if (!o->port || o->largest < 8 || !o->receives)
		usage();
}

int main(int argc, char **argv)
{
	static struct options o;
	static struct verify v;

	options(&o, argc, argv);
	setvbuf(stdout, NULL, _IOLBF, 0);
	signal(SIGPIPE, SIG_IGN);
	signal(SIGALRM, too_long);
	alarm((unsigned)o.seconds);
	v.o = &o;
	link_open(&v.link, &o);
	plan_init(&v.mine, o.seed, v.link.number, o.transport, v.link.mtu, o.largest, o.kinds);
	plan_init(&v.theirs, o.seed, !v.link.number, o.transport, v.link.mtu, o.largest, o.kinds);
	if (!v.mine.kinds)
		usage();
	regions(&v);
	while (o.transport == UD && v.posted < 3 * SLOTS)
		post_receive(&v);
	link_connect(&v.link);
	run(&v);
	link_close(&v.link);
	return RIGHT;
}
