// fuzz_nvme_client.c - a hostile target: ICResp, PDUs during commands, the data that describes disks, and the logs of
// discovery and asymmetric access. No byte beside a buffer changes, and nothing is sent that was not requested
// follows: NVMe/TCP transport specification 1.0; NVMe over Fabrics 1.1, 3.3 and 5.3; NVM Express Base 1.4, 5.15
// SPDX-License-Identifier: MIT
#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

#include "client/tcp.h"
#include "frame/crc32c.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);
int __wrap_connect(int fd, const struct sockaddr *to, socklen_t len);

#define COMMANDS 8
#define NQN "nqn.2026-01.test:disk"

static const uint8_t *in;
static size_t left;

static void need(bool ok)
{
	if (!ok)
		abort();
}

static uint8_t next8(void)
{
	return left ? left--, *in++ : 0;
}

static uint16_t next16(void)
{
	uint8_t low = next8();

	return (uint16_t)(low | next8() << 8);
}

static uint32_t next32(void)
{
	uint16_t low = next16();

	return low | (uint32_t)next16() << 16;
}

static size_t next_bytes(void *to, size_t n)
{
	n = n < left ? n : left;
	memcpy(to, in, n);
	in += n;
	left -= n;
	return n;
}

/* ---- a connection: the target's end is in this process and sends ICResp in advance ---- */

static int peer;
static uint8_t greeting[256];
static size_t greeting_len;

int __wrap_connect(int fd, const struct sockaddr *to, socklen_t len)
{
	int pair[2];

	if (to->sa_family == AF_UNSPEC) /* a reset */
		return shutdown(fd, SHUT_RDWR);
	need(!socketpair(AF_UNIX, SOCK_STREAM | SOCK_NONBLOCK | SOCK_CLOEXEC, 0, pair) && dup2(pair[0], fd) == fd);
	close(pair[0]);
	peer = pair[1];
	need(send(peer, greeting, greeting_len, MSG_NOSIGNAL) == (ssize_t)greeting_len);
	if (greeting_len < NV_TCP_IC_LEN)
		shutdown(peer, SHUT_WR);
	return 0;
}

static struct vn_queue *dial(struct vn_options *o)
{
	char why[120];
	struct vn_link l = {.transport = &vn_tcp,
	                    .options = o,
	                    .host = "127.0.0.1",
	                    .service = "4420",
	                    .inline_max = 8192,
	                    .deadline = vn_now() + 60000,
	                    .why = why};
	struct vn_queue *q = NULL;
	int e;

	peer = -1;
	e = vn_tcp.open(&l, 1, COMMANDS, &q);
	need(!e == !!q);
	return q;
}

static void greet_wildly(struct vn_options *o)
{
	greeting_len = next8();
	if (greeting_len & 1)
		nv_tcp_ic_encode(&(struct nv_tcp_ic){.number = 8192}, true, greeting);
	else
		memset(greeting, 0, sizeof(greeting));
	for (unsigned n = next8() % 16; n; n--) {
		uint8_t at = next8();

		greeting[at] = next8();
	}
	struct vn_queue *q = dial(o);

	if (q) {
		struct vn_tcp_queue *t = vn_tcp_of(q);

		need(greeting_len >= NV_TCP_IC_LEN && t->h2c_max >= 4096 && t->h2c_max % 4 == 0 && t->cpda < 32);
		need(!(t->digests & ~3) && (!o->require_digest || t->digests == 3));
		q->transport->close(q);
	}
	close(peer);
}

/* ---- outstanding commands ---- */

static struct vn_queue *queue;
static struct vn_cmd commands[COMMANDS];
static bool busy[COMMANDS];
static uint32_t asked[COMMANDS]; /* upper limit of the bytes that R2Ts in the input can request */
static uint8_t heard[1 << 17];   /* output of the client that was not checked yet */
static size_t heard_len;

static void listen_to(void);

static const uint32_t lengths[] = {512, 4096, 4100, 8192, 8196, 20000, 70000, 4};

static void command(uint8_t kind)
{
	unsigned i = 0;

	while (i < COMMANDS && busy[i])
		i++;
	if (i == COMMANDS || !queue->n_unused)
		return;
	struct vn_cmd *c = &commands[i];

	listen_to(); /* answers an earlier command with the same id */
	memset(c, 0, sizeof(*c));
	c->way = kind % 3;
	c->sqe.opcode = (uint8_t)c->way;
	if (c->way != VN_NO_DATA) {
		c->length = lengths[kind / 4 % 8];
		c->data = malloc(c->length); /* of its exact length, so that the sanitizer notices accesses beside it */
		need(c->data);
		memset(c->data, 0x5a, c->length);
	}
	busy[i] = true;
	asked[i] = 0;
	vn_queue_submit(queue, c);
	queue->transport->kick(queue);
}

static void reap(void)
{
	for (unsigned i = 0; i < COMMANDS; i++) {
		struct vn_cmd *c = &commands[i];

		if (!busy[i] || !c->done)
			continue;
		if (c->way == VN_FROM_TARGET && !c->cqe.status)
			need(c->tcp.moved == c->length);
		free(c->data);
		busy[i] = false;
	}
}

/* A PDU of the client is valid, and has all its data. */
static void look_at(const uint8_t *pdu, const struct nv_tcp_common *h, uint8_t digests)
{
	uint32_t data, fei;

	if (h->type == NV_TCP_ICREQ || h->type == NV_TCP_H2C_TERM)
		return;
	need(!nv_tcp_check(h, false, digests, vn_tcp_of(queue)->cpda, &data, &fei));
	if (digests & NV_TCP_HDGST)
		need(nv_get32(pdu + h->hlen) == vb_crc32c(0, pdu, h->hlen));
	for (uint32_t i = 0; i < data; i++)
		need(pdu[h->pdo + i] == 0x5a);
	if (h->type != NV_TCP_H2C_DATA)
		return;
	struct nv_tcp_data d = nv_tcp_data_decode(pdu);

	need(d.length == data && d.length <= vn_tcp_of(queue)->h2c_max);
	for (unsigned i = 0; i < COMMANDS; i++)
		if (busy[i] && commands[i].cid == d.cccid)
			need(d.offset + d.length <= commands[i].length && d.length <= asked[i]);
}

static void listen_to(void)
{
	for (ssize_t n; (n = recv(peer, heard + heard_len, sizeof(heard) - heard_len, MSG_DONTWAIT)) > 0;) {
		size_t at = 0;

		heard_len += (size_t)n;
		while (heard_len - at >= 8) {
			struct nv_tcp_common h = nv_tcp_common_decode(heard + at);

			need(h.plen >= 8 && h.plen <= sizeof(heard));
			if (h.plen > heard_len - at)
				break;
			look_at(heard + at, &h, vn_tcp_of(queue)->digests);
			at += h.plen;
		}
		memmove(heard, heard + at, heard_len -= at);
	}
}

/* Any PDU may be an R2T for any command. */
static void put(const void *bytes, size_t len)
{
	for (unsigned i = 0; i < COMMANDS; i++)
		asked[i] = busy[i] ? commands[i].length : 0;
	(void)!send(peer, bytes, len, MSG_NOSIGNAL | MSG_DONTWAIT);
}

static void put_pdu(uint8_t *head, uint8_t type, uint8_t flags, uint32_t len, uint16_t spoil)
{
	static uint8_t pdu[80000];
	uint8_t digests = vn_tcp_of(queue)->digests, hd = digests & NV_TCP_HDGST, dd = len ? digests & NV_TCP_DDGST : 0;
	uint32_t start = len ? nv_tcp_pdo(24, hd, 0) : 24 + (hd ? 4u : 0), total = start + len + (dd ? 4u : 0);
	struct nv_tcp_common c = {
	        .type = type, .flags = flags | hd | dd, .hlen = 24, .pdo = len ? (uint8_t)start : 0, .plen = total};

	memset(pdu, 0x33, total);
	nv_tcp_common_encode(&c, head);
	memcpy(pdu, head, 24);
	if (hd)
		nv_put32(pdu + 24, vb_crc32c(0, pdu, 24));
	if (dd)
		nv_put32(pdu + start + len, vb_crc32c(0, pdu + start, len));
	if (spoil)
		pdu[spoil % total] ^= (uint8_t)(spoil >> 8);
	put(pdu, total);
}

/* A PDU for one of the commands, valid except for the input's changes. */
static void likely_pdu(uint8_t kind)
{
	static const uint8_t types[] = {NV_TCP_C2H_DATA, NV_TCP_R2T, NV_TCP_RESPONSE, NV_TCP_C2H_DATA};
	uint8_t head[24] = {0}, i = next8() % COMMANDS, flags = kind >> 2 & (NV_TCP_LAST | NV_TCP_SUCCESS),
	        type = types[kind & 3];
	struct vn_cmd *c = &commands[i];
	uint32_t rest = busy[i] ? c->length - c->tcp.moved : 64;
	struct nv_tcp_data d = {.cccid = c->cid, .ttag = i, .offset = busy[i] ? c->tcp.moved : 0, .length = rest};
	uint16_t spoil = kind & 0x40 ? next16() : 0;

	if (kind & 0x10)
		d.length = next16() % (rest + 8);
	if (kind & 0x80) {
		d.cccid ^= next8();
		d.offset += next16();
		d.length = next8() & 1 ? next32() : d.length + next8();
	}
	if (type == NV_TCP_RESPONSE) {
		struct nv_cqe e = {.cid = d.cccid, .status = kind & 0x10 ? next16() & 0x7fff : 0, .result = next8()};

		nv_cqe_encode(&e, head + 8);
	} else {
		nv_tcp_data_encode(&d, head);
	}
	put_pdu(head, type, type == NV_TCP_C2H_DATA ? flags : 0, type == NV_TCP_C2H_DATA ? d.length % 70001 : 0, spoil);
}

static void turn(void)
{
	uint8_t kind = next8(), bytes[256];

	switch (kind % 8) {
	case 0:
	case 1:
		command(kind / 8);
		break;
	case 2:
		put(bytes, next_bytes(bytes, kind / 8 * 4u + 1));
		break;
	case 3: /* until then the client's socket fills up */
		listen_to();
		break;
	default:
		likely_pdu(next8());
		break;
	}
	queue->transport->progress(queue);
	reap();
}

static void exchange(struct vn_options *o)
{
	struct nv_tcp_ic ic = {.digests = (o->header_digest ? NV_TCP_HDGST : 0) | (o->data_digest ? NV_TCP_DDGST : 0),
	                       .align = next8() % 32,
	                       .number = 4096u + next8() * 4096u};
	int small = 8192;

	nv_tcp_ic_encode(&ic, true, greeting);
	greeting_len = NV_TCP_IC_LEN;
	queue = dial(o);
	need(queue);
	setsockopt(vn_tcp_of(queue)->fd, SOL_SOCKET, SO_SNDBUF, &small, sizeof(small));
	heard_len = 0;
	while (left && !queue->error)
		turn();
	if (!queue->error) {
		listen_to();
		shutdown(peer, SHUT_WR);
		for (int i = 0; i < 100 && !queue->error; i++)
			queue->transport->progress(queue);
		need(queue->error);
	}
	reap();
	queue->transport->cut(queue);
	for (unsigned i = 0; i < COMMANDS; i++)
		if (busy[i]) {
			vn_queue_release(queue, &commands[i]);
			free(commands[i].data);
			busy[i] = false;
		}
	need(!queue->busy && queue->n_unused == queue->depth);
	queue->transport->close(queue);
	close(peer);
}

/* ---- data in answers: each answer comes at once, with status, result and data from the input ---- */

static atomic_bool stop;
static unsigned answers;

static int page_open(struct vn_link *l, uint16_t qid, uint16_t depth, struct vn_queue **q);
static void page_close(struct vn_queue *q)
{
	vn_queue_fini(q);
	free(q);
}

static void fill(struct vn_cmd *c)
{
	uint8_t kind = next8();

	memset(c->data, kind & 1 ? 0xff : 0, c->length);
	for (unsigned n = kind >> 1 & 7; n; n--) {
		uint32_t at = next16() % c->length, len = next8() % 16u;

		next_bytes(c->data + at, len < c->length - at ? len : c->length - at);
	}
	if (kind & 0x10 && c->length > 192) { /* a plausible namespace and a plausible log */
		nv_put64(c->data, 1024);
		nv_put64(c->data + 8, kind >> 5);
		nv_put32(c->data + 128, 9u << 16);
	}
}

static void page_submit(struct vn_queue *q, struct vn_cmd *c)
{
	uint8_t kind = next8();

	c->cqe = (struct nv_cqe){.cid = c->cid};
	if (kind & 1)
		c->cqe.result = next32() | (uint64_t)next32() << 32;
	else if (c->sqe.fctype == NV_FCT_PROPERTY_GET) /* CAP, or CSTS */
		c->cqe.result = c->sqe.cdw[0] ? 63 | 1ull << 37 : NV_CSTS_RDY;
	if (kind % 16 == 3)
		c->cqe.status = next16() & 0x7fff;
	if (c->way == VN_FROM_TARGET)
		fill(c);
	if (c->sqe.fctype == NV_FCT_PROPERTY_GET && !c->sqe.cdw[0] && !(c->cqe.result & NV_CSTS_RDY))
		stop = true; /* skips the wait until it is ready */
	if (++answers > 20000 || (kind & 0xf0) == 0xf0) {
		vn_queue_break(q, ECONNRESET, "gone");
		return;
	}
	vn_cmd_complete(q, c);
}

static void nothing(struct vn_queue *q)
{
}

static void nothing_of(struct vn_queue *q, struct vn_cmd *c)
{
}

static int page_descriptors(const struct vn_queue *q, struct pollfd p[2])
{
	return 0;
}

static bool page_arm(struct vn_queue *q)
{
	return true;
}

static const struct vn_transport pages = {.name = "pages",
                                          .open = page_open,
                                          .submit = page_submit,
                                          .kick = nothing,
                                          .progress = nothing,
                                          .descriptors = page_descriptors,
                                          .arm = page_arm,
                                          .release = nothing_of,
                                          .cut = nothing,
                                          .close = page_close};

static int page_open(struct vn_link *l, uint16_t qid, uint16_t depth, struct vn_queue **q)
{
	struct vn_queue *n = calloc(1, sizeof(*n));

	need(n && !vn_queue_init(n, &pages, qid, depth));
	*q = n;
	return 0;
}

static bool ends(const char *text, size_t room)
{
	return memchr(text, 0, room);
}

static void learn_log(struct vn_link *l, const struct vn_identity *who)
{
	struct vn_found *found;
	size_t n;

	if (vn_discover_at(l, who, &found, &n))
		return;
	for (size_t i = 0; i < n; i++)
		need(ends(found[i].transport, 8) && ends(found[i].address, 257) && ends(found[i].service, 33) &&
		     ends(found[i].nqn, 224));
	free(found);
}

/* The log page of asymmetric access: by the command, and any bytes in memory of their exact length. */
static void learn_access(struct vn_link *l, struct vn_queue *q, uint32_t nsid)
{
	uint8_t state = 0x55, *page;
	size_t n = next8() * 8u + next8() % 8u;

	if (!vn_ctl_access(l, q, nsid, &state))
		need(state && state < 16 && *vn_access_name(state));
	else
		need(state == 0x55);
	page = calloc(1, n ? n : 1);
	need(page);
	next_bytes(page, n);
	state = 0x55;
	if (vn_access_find(page, n, next8() % 4u, &state) == VN_ACCESS_FOUND)
		need(state && state < 16);
	else
		need(state == 0x55);
	free(page);
}

static void learn_disk(struct vn_link *l, const struct vn_identity *who)
{
	struct vn_limits lim = {0};
	struct vn_info info = {.nsid = next8() & 1};
	struct vn_names names;
	struct vn_queue *q;
	unsigned got = 0;

	need(!page_open(l, 0, VN_ADMIN_DEPTH, &q));
	int e = vn_ctl_connect(l, q, who, NQN, 15000);

	if (!e)
		e = vn_ctl_enable(l, q, &lim);
	if (!e) {
		need(lim.mqes && lim.page >= 4096);
		e = vn_ctl_identify(l, q, &lim, &info);
	}
	if (!e) {
		need(lim.transfer >= 4096 && lim.inline_max <= VN_TRANSFER_MAX);
		need(ends(info.model, 41) && ends(info.serial, 21) && ends(info.firmware, 9));
		e = vn_ctl_namespace(l, q, &lim, &info, &names);
	}
	if (!e)
		learn_access(l, q, info.nsid);
	if (!e) {
		need(info.block_size >= 512 && info.block_size <= 1u << 20 && info.size && info.size <= INT64_MAX);
		need(!(info.size % info.block_size) && info.nsid && ends(info.uuid, 37));
		e = vn_ctl_queues(l, q, 4, &got);
	}
	need(e || (got && got <= 4));
	page_close(q);
}

static void learn(const struct vn_options *o, bool log)
{
	static struct vn_identity who = {.host_nqn = "nqn.2026-01.test:host"};
	struct vn_domain domain;
	char why[120];

	if (!who.secret.length)
		need(nv_secret_parse("DHHC-1:00:AQEBAQEBAQEBAQEBAQEBAQEBAQEBAQEBAQEBAQEBAQHMnzFi:", &who.secret));
	vn_domain_init(&domain);
	struct vn_link l = {.transport = &pages,
	                    .options = o,
	                    .domain = &domain,
	                    .deadline = vn_now() + 60000,
	                    .stop = &stop,
	                    .why = why};

	stop = false;
	answers = 0;
	if (log)
		learn_log(&l, &who);
	else
		learn_disk(&l, &who);
	vn_domain_fini(&domain);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
	struct vn_options o;

	in = data;
	left = size;
	uint8_t kind = next8();

	vn_options_init(&o);
	o.numeric = 1;
	o.header_digest = kind >> 2 & 1;
	o.data_digest = kind >> 3 & 1;
	o.require_digest = o.header_digest && o.data_digest && kind >> 4 & 1;
	switch (kind & 3) {
	case 0:
		greet_wildly(&o);
		break;
	case 1:
		learn(&o, kind & 0x20);
		break;
	default:
		exchange(&o);
		break;
	}
	return 0;
}
