// rdmap.c - both ends of an rdma_cm connection: they send each other every kind of message, and check the received data
// follows: RFC 5040, RFC 7306; rdma_cm(7)
// SPDX-License-Identifier: MIT
//
//   rdmap -s ADDRESS | -c ADDRESS  [-p PORT] [-k KIND,…] [-l LONGEST] [-d DEPTH] [-w TYPE] [-f] [-g]
//
// -k: requests of this end (the client first, then the server): send, send-se, send-inv, send-se-inv, write, read,
// send-imm, write-imm, cmp-swap, fetch-add. The last one may be bad-read, bad-write, bad-send (too long), bad-atomic,
// bad-imm (a write with immediate to a peer without support) or no-receive: it ends the connection.
// -w: this end opens its memory by memory windows only: of type 1 or 2, and of type 2 the one that is invalidated.
// -g: this end's memory is a dma-buf of vgem.
// -f: the client writes, sends and reads until the connection ends. Both ends print how it ended.
#include <arpa/inet.h>
#include <errno.h>
#include <poll.h>
#include <rdma/rdma_cma.h>
#include <sched.h>
#include <stdarg.h>
#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <time.h>
#include <unistd.h>

#include "vgem.h"

enum { MAX = 300000, RECEIVES = 6, ROOM = MAX + 64, WORD = MAX, PATIENCE = 20 };
enum { FILL = 1, CHECK, END, OK, BAD };
#define MAGIC UINT64_C(0x72646d617020ff01)

struct info {
	uint64_t addr;
	uint32_t rkey, inv_rkey;
};
struct note {
	uint64_t magic;
	uint32_t what, kind, len, seq;
	struct info info;
};
enum kind {
	SEND,
	SEND_SE,
	SEND_INV,
	SEND_SE_INV,
	WRITE,
	READ,
	SEND_IMM,
	WRITE_IMM,
	CMP_SWAP,
	FETCH_ADD,
	BAD_READ,
	BAD_WRITE,
	BAD_SEND,
	BAD_ATOMIC,
	BAD_IMM,
	NO_RECEIVE,
	KINDS
};
static const char *const names[] = {"send",     "send-se",    "send-inv", "send-se-inv", "write",    "read",
                                    "send-imm", "write-imm",  "cmp-swap", "fetch-add",   "bad-read", "bad-write",
                                    "bad-send", "bad-atomic", "bad-imm",  "no-receive"};

static struct rdma_event_channel *channel;
static struct rdma_cm_id *id;
static struct ibv_cq *scq, *rcq;
static struct ibv_mr *region_mr, *out_mr, *in_mr, *inv_mr;
static uint8_t plain[ROOM], *region = plain, out[ROOM], in[RECEIVES][ROOM], victim[64];
static struct info peer;
static struct ibv_wc got; /* the last message that was not a note */
static uint8_t *got_at;
static uint32_t longest = 200000, depth = 4, seq;
static bool kinds[KINDS], forever, dmabuf;
static int windows; /* the type; 0: none */
static struct ibv_mw *region_mw, *inv_mw;

__attribute__((noreturn, format(printf, 1, 2))) static void die(const char *say, ...)
{
	va_list args;

	va_start(args, say);
	vprintf(say, args);
	printf(errno ? ": %m\n" : "\n");
	exit(1);
}

static uint8_t pattern(uint32_t s, uint32_t i)
{
	return (uint8_t)((s * 2654435761u + i * 40503u + i / 251) >> 7);
}

static void fill(uint8_t *at, uint32_t len, uint32_t s)
{
	for (uint32_t i = 0; i < len; i++)
		at[i] = pattern(s, i);
}

static bool is_filled(const uint8_t *at, uint32_t len, uint32_t s)
{
	for (uint32_t i = 0; i < len; i++)
		if (at[i] != pattern(s, i)) {
			printf("byte %u of %u is %02x, not %02x\n", i, len, at[i], pattern(s, i));
			return false;
		}
	return true;
}

/* --- completions and events --- */

static void next_event(enum rdma_cm_event_type want)
{
	struct rdma_cm_event *e;

	if (rdma_get_cm_event(channel, &e))
		die("rdma_get_cm_event");
	if (e->event != want) {
		errno = 0;
		die("%s, error %d, in place of %s", rdma_event_str(e->event), e->status, rdma_event_str(want));
	}
	if (want == RDMA_CM_EVENT_CONNECT_REQUEST)
		id = e->id;
	rdma_ack_cm_event(e);
}

/* The connection has ended as expected: prints the results of the requests, and the event. */
static void ended(struct ibv_wc *first)
{
	struct pollfd p = {.fd = channel->fd, .events = POLLIN};
	time_t end = time(NULL) + PATIENCE;
	struct rdma_cm_event *e = NULL;
	struct ibv_wc wc;
	int flushed = 0;

	printf("ended: %s: %s\n", first->wr_id < RECEIVES ? "receive" : "request", ibv_wc_status_str(first->status));
	if (poll(&p, 1, PATIENCE * 1000) == 1 && !rdma_get_cm_event(channel, &e))
		printf("event: %s, %d\n", rdma_event_str(e->event), e->status);
	while (time(NULL) < end && flushed < RECEIVES - (first->wr_id < RECEIVES)) {
		if (ibv_poll_cq(rcq, 1, &wc) == 1)
			flushed += wc.status == IBV_WC_WR_FLUSH_ERR;
		else
			sched_yield();
	}
	printf("flushed: %d receives\n", flushed);
	struct pollfd a = {.fd = id->verbs->async_fd, .events = POLLIN};
	struct ibv_async_event async;

	if (poll(&a, 1, 0) == 1 && !ibv_get_async_event(id->verbs, &async)) {
		printf("async: %s\n", ibv_event_type_str(async.event_type));
		ibv_ack_async_event(&async);
	}
	if (e)
		rdma_ack_cm_event(e);
	rdma_disconnect(id);
	rdma_destroy_qp(id);
	exit(0);
}

static void failed(struct ibv_wc *wc)
{
	bool may = forever;

	for (int k = BAD_READ; k < KINDS; k++)
		may |= kinds[k];
	if (may)
		ended(wc);
	errno = 0;
	die("completion: %s (0x%x), wr_id %d, opcode %d", ibv_wc_status_str(wc->status), wc->vendor_err, (int)wc->wr_id,
	    wc->opcode);
}

/* The next completion of cq. Errors of the other queue are not skipped. */
static struct ibv_wc next(struct ibv_cq *cq)
{
	time_t end = time(NULL) + PATIENCE * (forever ? 20 : 1);
	struct ibv_wc wc;

	do {
		int n = ibv_poll_cq(cq, 1, &wc);

		if (n < 0)
			die("ibv_poll_cq");
		if (n && wc.status)
			failed(&wc);
		if (n)
			return wc;
		sched_yield();
	} while (time(NULL) < end);
	errno = 0;
	die("nothing came");
}

static void receive(int i)
{
	struct ibv_sge sge = {(uintptr_t)in[i], sizeof(in[i]), in_mr->lkey};
	struct ibv_recv_wr wr = {.wr_id = (uint64_t)i, .sg_list = &sge, .num_sge = 1}, *bad;

	if ((errno = ibv_post_recv(id->qp, &wr, &bad)))
		die("ibv_post_recv");
}

static void post(struct ibv_send_wr *wr, void *at, uint32_t len)
{
	struct ibv_sge sge = {(uintptr_t)at, len,
	                      (uint8_t *)at >= region && (uint8_t *)at < region + ROOM ? region_mr->lkey
	                                                                               : out_mr->lkey};
	struct ibv_send_wr *bad;

	wr->wr_id = 1000 + seq;
	wr->sg_list = &sge;
	wr->num_sge = len ? 1 : 0;
	wr->send_flags |= IBV_SEND_SIGNALED;
	if ((errno = ibv_post_send(id->qp, wr, &bad)))
		die("ibv_post_send, opcode %d", wr->opcode);
}

/* --- notes --- */

static void tell(struct note n)
{
	static struct note kept[16];
	struct ibv_send_wr wr = {.opcode = IBV_WR_SEND, .send_flags = IBV_SEND_INLINE};

	kept[seq % 16] = n;
	kept[seq % 16].magic = MAGIC;
	kept[seq % 16].info = (struct info){(uintptr_t)region, windows ? region_mw->rkey : region_mr->rkey,
	                                    windows ? inv_mw->rkey : inv_mr->rkey};
	post(&wr, &kept[seq % 16], sizeof(n));
	next(scq);
}

static struct note hear(void)
{
	struct note n;

	for (;;) {
		struct ibv_wc wc = next(rcq);
		uint8_t *at = in[wc.wr_id];

		memcpy(&n, at, sizeof(n));
		bool note = wc.byte_len == sizeof(n) && n.magic == MAGIC && !(wc.wc_flags & IBV_WC_WITH_IMM);

		if (!note) {
			got = wc;
			got_at = at;
			static uint8_t keep[ROOM];

			memcpy(keep, at, ROOM);
			got_at = keep;
		}
		memset(at, 0xee, sizeof(in[0]));
		receive((int)wc.wr_id);
		if (note) {
			peer = n.info;
			return n;
		}
	}
}

static void ask(uint32_t what, enum kind kind, uint32_t len)
{
	tell((struct note){.what = what, .kind = kind, .len = len, .seq = seq});
	struct note n = hear();

	if (n.what != OK) {
		errno = 0;
		die("%s, %u bytes: the other end is not content", names[kind], len);
	}
}

/* --- memory windows --- */

static void bind_window(struct ibv_mw *mw, struct ibv_mr *mr, unsigned access)
{
	struct ibv_mw_bind_info info = {mr, (uintptr_t)mr->addr, mr->length, access};
	struct ibv_mw_bind bind = {.wr_id = 2000, .send_flags = IBV_SEND_SIGNALED, .bind_info = info};
	struct ibv_send_wr wr = {.wr_id = 2000,
	                         .opcode = IBV_WR_BIND_MW,
	                         .send_flags = IBV_SEND_SIGNALED,
	                         .bind_mw = {mw, ibv_inc_rkey(mw->rkey), info}},
	                   *bad;

	errno = mw->type == IBV_MW_TYPE_1 ? ibv_bind_mw(id->qp, mw, &bind) : ibv_post_send(id->qp, &wr, &bad);
	if (errno)
		die("bind of a memory window");
	next(scq);
	if (mw->type == IBV_MW_TYPE_2)
		mw->rkey = wr.bind_mw.rkey;
}

static void open_windows(void)
{
	struct ibv_device_attr device;
	unsigned access = IBV_ACCESS_REMOTE_READ | IBV_ACCESS_REMOTE_WRITE;

	region_mw = ibv_alloc_mw(id->pd, (enum ibv_mw_type)windows);
	inv_mw = ibv_alloc_mw(id->pd, IBV_MW_TYPE_2);
	if (!region_mw || !inv_mw || ibv_query_device(id->verbs, &device))
		die("ibv_alloc_mw");
	if (device.atomic_cap != IBV_ATOMIC_NONE)
		access |= IBV_ACCESS_REMOTE_ATOMIC;
	bind_window(region_mw, region_mr, access);
	bind_window(inv_mw, inv_mr, IBV_ACCESS_REMOTE_WRITE);
}

/* --- requests of the peer --- */

static void new_victim(void)
{
	if (inv_mr && windows) {
		bind_window(inv_mw, inv_mr, IBV_ACCESS_REMOTE_WRITE);
		return;
	}
	if (inv_mr)
		ibv_dereg_mr(inv_mr);
	inv_mr = ibv_reg_mr(id->pd, victim, sizeof(victim),
	                    windows ? IBV_ACCESS_LOCAL_WRITE | IBV_ACCESS_MW_BIND
	                            : IBV_ACCESS_LOCAL_WRITE | IBV_ACCESS_REMOTE_READ | IBV_ACCESS_REMOTE_WRITE);
	if (!inv_mr)
		die("ibv_reg_mr");
}

static bool received(const struct note *n, enum ibv_wc_opcode opcode)
{
	bool right = got.opcode == opcode && got.byte_len == n->len && got_at;

	if (!right)
		printf("opcode %d, %u bytes, in place of %d, %u\n", got.opcode, got.byte_len, opcode, n->len);
	return right;
}

static bool right(const struct note *n)
{
	bool imm = got.wc_flags & IBV_WC_WITH_IMM && got.imm_data == htonl(n->seq);

	switch ((enum kind)n->kind) {
	case SEND_IMM:
		return received(n, IBV_WC_RECV) && imm && is_filled(got_at, n->len, n->seq);
	case WRITE_IMM:
		return received(n, IBV_WC_RECV_RDMA_WITH_IMM) && imm && is_filled(region, n->len, n->seq);
	case SEND_INV:
	case SEND_SE_INV:
		/* libsiw does not report it */
		if (strncmp(ibv_get_device_name(id->verbs->device), "siw", 3) != 0 &&
		    (!(got.wc_flags & IBV_WC_WITH_INV) ||
		     got.invalidated_rkey != (windows ? inv_mw->rkey : inv_mr->rkey))) {
			printf("flags %x, %x invalidated\n", got.wc_flags, got.invalidated_rkey);
			return false;
		}
		new_victim();
		return received(n, IBV_WC_RECV) && is_filled(got_at, n->len, n->seq);
	case SEND:
	case SEND_SE:
		return received(n, IBV_WC_RECV) && is_filled(got_at, n->len, n->seq);
	case WRITE:
		return is_filled(region, n->len, n->seq);
	default:
		return true;
	}
}

static void serve(void)
{
	for (;;) {
		struct note n = hear();

		if (n.what == END)
			return;
		bool ok = true;

		if (n.what == FILL) {
			fill(region, n.len, n.seq);
			*(uint64_t *)(region + WORD) = n.seq;
		} else {
			ok = right(&n);
		}
		got = (struct ibv_wc){0};
		tell((struct note){.what = ok ? OK : BAD});
	}
}

/* --- our requests --- */

static void request(enum kind kind, uint32_t len)
{
	static const enum ibv_wr_opcode opcodes[] = {IBV_WR_SEND,
	                                             IBV_WR_SEND,
	                                             IBV_WR_SEND_WITH_INV,
	                                             IBV_WR_SEND_WITH_INV,
	                                             IBV_WR_RDMA_WRITE,
	                                             IBV_WR_RDMA_READ,
	                                             IBV_WR_SEND_WITH_IMM,
	                                             IBV_WR_RDMA_WRITE_WITH_IMM,
	                                             IBV_WR_ATOMIC_CMP_AND_SWP,
	                                             IBV_WR_ATOMIC_FETCH_AND_ADD,
	                                             IBV_WR_RDMA_READ,
	                                             IBV_WR_RDMA_WRITE,
	                                             IBV_WR_SEND,
	                                             IBV_WR_ATOMIC_FETCH_AND_ADD,
	                                             IBV_WR_RDMA_WRITE_WITH_IMM,
	                                             IBV_WR_SEND};
	struct ibv_send_wr wr = {.opcode = opcodes[kind]};
	bool fetches = kind == READ || kind == CMP_SWAP || kind == FETCH_ADD;

	seq++;
	if (fetches)
		ask(FILL, kind, len);
	fill(out, len, fetches ? ~seq : seq);
	wr.wr.rdma.remote_addr = peer.addr;
	wr.wr.rdma.rkey = peer.rkey;
	if (kind == SEND_SE || kind == SEND_SE_INV || (kind == WRITE_IMM && seq % 2))
		wr.send_flags = IBV_SEND_SOLICITED;
	if (kind == SEND_INV || kind == SEND_SE_INV)
		wr.invalidate_rkey = wr.wr.rdma.rkey = peer.inv_rkey; /* libsiw uses the second */
	if (kind == SEND_IMM || kind == WRITE_IMM || kind == BAD_IMM)
		wr.imm_data = htonl(seq);
	if (kind == CMP_SWAP || kind == FETCH_ADD || kind == BAD_ATOMIC) {
		wr.wr.atomic.remote_addr = peer.addr + WORD;
		wr.wr.atomic.rkey = peer.rkey;
		wr.wr.atomic.compare_add = seq;
		wr.wr.atomic.swap = 7 * (uint64_t)seq;
	}
	if (kind == BAD_READ || kind == BAD_WRITE)
		wr.wr.rdma.rkey ^= 0x5500;
	if (kind == BAD_ATOMIC)
		wr.wr.atomic.rkey ^= 0x5500;
	post(&wr, out, len);
	next(scq);
	if (kind == READ && !is_filled(out, len, seq))
		die("what was read is not what is there");
	if ((kind == CMP_SWAP || kind == FETCH_ADD) && *(uint64_t *)out != seq)
		die("%s: the word was %llu, not %u", names[kind], (unsigned long long)*(uint64_t *)out, seq);
	if (!fetches)
		ask(CHECK, kind, len);
}

static void spoil(enum kind kind)
{
	static uint8_t *const too_long = out;
	struct ibv_wc wc;

	if (kind == BAD_SEND || kind == NO_RECEIVE) {
		/* longer than a receive: the peer's buffer is as long as ours, so send it twice */
		struct ibv_sge sge[2] = {{(uintptr_t)too_long, MAX, out_mr->lkey},
		                         {(uintptr_t)too_long, MAX, out_mr->lkey}};
		struct ibv_send_wr wr = {.wr_id = 1000,
		                         .opcode = IBV_WR_SEND,
		                         .sg_list = sge,
		                         .num_sge = 2,
		                         .send_flags = IBV_SEND_SIGNALED},
		                   *bad;

		if ((errno = ibv_post_send(id->qp, &wr, &bad)))
			die("ibv_post_send");
	} else {
		request(kind, kind == BAD_ATOMIC ? 8 : 1000);
	}
	for (;;) {
		wc = next(scq->context ? scq : rcq);
		if (wc.wr_id >= 1000)
			next(rcq);
	}
}

static void ask_all(void)
{
	static const uint32_t lengths[] = {1, 2, 3, 4, 7, 100, 1000, 1441, 1460, 4096, 5001, 16384, 65537, 200000};

	for (unsigned i = 0; i < sizeof(lengths) / sizeof(lengths[0]); i++)
		for (int k = 0; k < BAD_READ; k++)
			if (kinds[k] && lengths[i] <= longest && (k < CMP_SWAP || lengths[i] == 1))
				request((enum kind)k, k < CMP_SWAP ? lengths[i] : 8);
	for (int k = 0; k < BAD_READ; k++)
		if (kinds[k] && k <= WRITE)
			request((enum kind)k, 0);
	tell((struct note){.what = END});
}

static void ask_forever(void)
{
	struct ibv_send_wr wr;

	printf("under way\n");
	fflush(stdout);
	for (;; seq++) {
		enum ibv_wr_opcode opcode = seq % 3 == 0   ? IBV_WR_RDMA_WRITE
		                            : seq % 3 == 1 ? IBV_WR_SEND
		                                           : IBV_WR_RDMA_READ;

		wr = (struct ibv_send_wr){.opcode = opcode, .wr.rdma = {peer.addr, peer.rkey}};
		post(&wr, out, opcode == IBV_WR_SEND ? 100 : longest);
		next(scq);
	}
}

static void serve_forever(void)
{
	printf("under way\n");
	fflush(stdout);
	for (;;)
		receive((int)next(rcq).wr_id);
}

/* --- the connection --- */

/* Its address for the peer is that of the mapping. */
static struct ibv_mr *dmabuf_region(struct ibv_pd *pd, int access)
{
	int fd = vgem_dmabuf(ROOM, true);

	region = fd < 0 ? MAP_FAILED : mmap(NULL, ROOM, PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0);
	if (region == MAP_FAILED)
		die("vgem");
	struct ibv_mr *mr = ibv_reg_dmabuf_mr(pd, 0, ROOM, (uintptr_t)region, fd, access);

	close(fd);
	return mr;
}

static void make_qp(void)
{
	scq = ibv_create_cq(id->verbs, 64, NULL, NULL, 0);
	rcq = ibv_create_cq(id->verbs, 64, NULL, NULL, 0);
	struct ibv_pd *pd = ibv_alloc_pd(id->verbs);
	struct ibv_qp_init_attr attr = {.send_cq = scq,
	                                .recv_cq = rcq,
	                                .qp_type = IBV_QPT_RC,
	                                .cap = {.max_send_wr = 16,
	                                        .max_recv_wr = RECEIVES,
	                                        .max_send_sge = 2,
	                                        .max_recv_sge = 1,
	                                        .max_inline_data = 64}};
	struct ibv_device_attr device;
	int access = IBV_ACCESS_LOCAL_WRITE | IBV_ACCESS_REMOTE_READ | IBV_ACCESS_REMOTE_WRITE;

	if (!scq || !rcq || !pd || ibv_query_device(id->verbs, &device))
		die("verbs");
	if (device.atomic_cap != IBV_ATOMIC_NONE)
		access |= IBV_ACCESS_REMOTE_ATOMIC;
	if (windows)
		access = IBV_ACCESS_LOCAL_WRITE | IBV_ACCESS_MW_BIND;
	if (rdma_create_qp(id, pd, &attr))
		die("rdma_create_qp");
	id->pd = pd;
	region_mr = dmabuf ? dmabuf_region(pd, access) : ibv_reg_mr(pd, region, ROOM, access);
	out_mr = ibv_reg_mr(pd, out, sizeof(out),
	                    IBV_ACCESS_LOCAL_WRITE | IBV_ACCESS_REMOTE_WRITE); /* for a read's sink, RFC 5040 */
	in_mr = ibv_reg_mr(pd, in, sizeof(in), IBV_ACCESS_LOCAL_WRITE);
	if (!region_mr || !out_mr || !in_mr)
		die("ibv_reg_mr");
	new_victim();
	for (int i = 0; i < RECEIVES; i++)
		receive(i);
}

static void connect_to(const char *to, const char *port)
{
	struct rdma_addrinfo *found;
	struct rdma_conn_param param = {.responder_resources = (uint8_t)depth, .initiator_depth = (uint8_t)depth};

	if (rdma_getaddrinfo(to, port, &(struct rdma_addrinfo){.ai_port_space = RDMA_PS_TCP}, &found))
		die("rdma_getaddrinfo");
	if (rdma_create_id(channel, &id, NULL, RDMA_PS_TCP) || rdma_resolve_addr(id, NULL, found->ai_dst_addr, 2000))
		die("rdma_resolve_addr");
	next_event(RDMA_CM_EVENT_ADDR_RESOLVED);
	if (rdma_resolve_route(id, 2000))
		die("rdma_resolve_route");
	next_event(RDMA_CM_EVENT_ROUTE_RESOLVED);
	make_qp();
	if (rdma_connect(id, &param))
		die("rdma_connect");
	next_event(RDMA_CM_EVENT_ESTABLISHED);
}

static void take_one(const char *at, const char *port)
{
	struct rdma_addrinfo *found;
	struct rdma_conn_param param = {.responder_resources = (uint8_t)depth, .initiator_depth = (uint8_t)depth};
	struct rdma_cm_id *listener;

	if (rdma_getaddrinfo(at, port, &(struct rdma_addrinfo){.ai_flags = RAI_PASSIVE, .ai_port_space = RDMA_PS_TCP},
	                     &found))
		die("rdma_getaddrinfo");
	if (rdma_create_id(channel, &listener, NULL, RDMA_PS_TCP) || rdma_bind_addr(listener, found->ai_src_addr) ||
	    rdma_listen(listener, 4))
		die("rdma_listen");
	next_event(RDMA_CM_EVENT_CONNECT_REQUEST);
	make_qp();
	if (rdma_accept(id, &param))
		die("rdma_accept");
	next_event(RDMA_CM_EVENT_ESTABLISHED);
}

static void choose(char *list)
{
	for (char *k = strtok(list, ","); k; k = strtok(NULL, ",")) {
		int i = 0;

		while (i < KINDS && strcmp(k, names[i]) != 0)
			i++;
		if (i == KINDS) {
			errno = 0;
			die("no such kind: %s", k);
		}
		kinds[i] = true;
	}
}

int main(int argc, char **argv)
{
	const char *port = "7471", *to = NULL, *at = "0.0.0.0";
	int o;

	while ((o = getopt(argc, argv, "s:c:p:k:l:d:w:fg")) != -1) {
		switch (o) {
		case 's':
			at = optarg;
			break;
		case 'c':
			to = optarg;
			break;
		case 'p':
			port = optarg;
			break;
		case 'k':
			choose(optarg);
			break;
		case 'l':
			longest = (uint32_t)atoi(optarg);
			break;
		case 'd':
			depth = (uint32_t)atoi(optarg);
			break;
		case 'w':
			windows = atoi(optarg);
			break;
		case 'f':
			forever = true;
			break;
		case 'g':
			dmabuf = true;
			break;
		default:
			return 2;
		}
	}
	channel = rdma_create_event_channel();
	if (!channel)
		die("rdma_create_event_channel");
	if (to)
		connect_to(to, port);
	else
		take_one(at, port);
	if (windows)
		open_windows();
	/* with iWARP the initiator sends first */
	if (to)
		tell((struct note){.what = OK});
	hear();
	if (!to)
		tell((struct note){.what = OK});
	if (forever && to)
		ask_forever();
	else if (forever)
		serve_forever();
	if (to)
		ask_all();
	serve();
	if (!to)
		ask_all();
	for (int k = BAD_READ; to && k < KINDS; k++)
		if (kinds[k])
			spoil((enum kind)k);
	for (int k = BAD_READ; !to && k < KINDS; k++)
		if (kinds[k])
			hear();
	if (to)
		rdma_disconnect(id);
	next_event(RDMA_CM_EVENT_DISCONNECTED);
	printf("all right: %u requests\n", seq);
	return 0;
}
