// client_hostile.c - the initiator against a target that violates the protocol: requests end, and no byte beside their
// buffers changes
// follows: NVMe/TCP transport specification 1.0, 3.6; NVMe over Fabrics 1.1, 3.3
// SPDX-License-Identifier: MIT
#include <arpa/inet.h>
#include <errno.h>
#include <netinet/tcp.h>
#include <pthread.h>
#include <sys/socket.h>
#include <unistd.h>

#include "../../support/check.h"
#include "client/verbena_nvme.h"
#include "client_load.h"
#include "frame/crc32c.h"
#include "nvme/nvme.h"
#include "nvme/tcp_pdu.h"

#define NQN "nqn.2026-01.test:hostile"
#define BLOCK 512u
#define BLOCKS 1024u
#define INLINE 8192u
#define GUARD 4096u
#define BUFFER 65536u

/* How the target misbehaves, and when. */
enum how {
	HONEST,
	/* in ICResp */
	IC_VERSION,
	IC_SHORT,
	IC_NO_IC,
	IC_ALIGN,
	IC_H2C_ZERO,
	IC_H2C_SMALL,
	IC_H2C_ODD,
	IC_DIGESTS,
	IC_CLOSE,
	/* in admin commands */
	NO_QUEUE_ROOM,
	NO_BLOCKS,
	BLOCK_SIZE_ZERO,
	BLOCK_SIZE_HUGE,
	METADATA,
	SIZE_OVERFLOW,
	CONNECT_FAILS,
	WANTS_AUTH,
	IDENTIFY_SHORT,
	NEVER_READY,
	/* in reads */
	READ_CID,
	READ_OFFSET,
	READ_TOO_LONG,
	READ_TWICE,
	READ_LAST_EARLY,
	READ_SUCCESS_EARLY,
	READ_LENGTH_LIES,
	READ_EMPTY,
	READ_NO_DATA,
	READ_PDO,
	READ_PDO_SMALL,
	READ_PLEN_HUGE,
	READ_PLEN_ZERO,
	READ_HLEN,
	READ_TYPE,
	READ_FLAGS,
	READ_HALF,
	READ_R2T,
	READ_ANSWER_TWICE,
	READ_ANSWER_CID,
	READ_ICRESP,
	READ_TERM,
	READ_CLOSE,
	READ_RANDOM,
	/* in writes larger than a capsule */
	WRITE_UNTAKEN,
	WRITE_R2T_ZERO,
	WRITE_R2T_BEYOND,
	WRITE_R2T_OFFSET,
	WRITE_R2T_HUGE,
	WRITE_R2T_TWO,
	WRITE_R2T_CID,
	WRITE_DATA,
	WRITE_ANSWER_EARLY,
	HOWS
};

static struct {
	int listener;
	unsigned port;
	enum how how;
	uint64_t seed;
	bool digests; /* data digests are sent */
	bool head_digests;
	uint8_t align;          /* CPDA */
	unsigned wrong;         /* number of wrong data digests in reads */
	unsigned busy;          /* number of Connects that are answered Busy */
	bool silent;            /* … and the next one gets no answer */
	unsigned slow_ms;       /* time of each read, one after the other */
	unsigned kept;          /* number of reads that get no answer */
	unsigned closes;        /* number of reads that end their connection */
	uint32_t first;         /* first namespace of the list; 0: number 1 */
	uint8_t nguid;          /* last byte of the UUID, minus the namespace's number; 0: no UUID */
	unsigned dmsl;          /* its limits: blocks of a discard; */
	uint8_t wzsl;           /* … of write zeroes, as a power of pages */
	unsigned cuts, longest; /* number of such commands, and most blocks of one */
	uint8_t dlfeat;
	uint32_t h2c;            /* MAXH2CDATA, 0: 65536 */
	unsigned pdus, too_long; /* number of data PDUs; longer than the limit */
	uint16_t maxcmd;         /* commands that it accepts at a time; 0: the queue's size */
	bool deallocates;        /* offset of the last write of zeroes */
	uint32_t nsid;           /* offset of the last answered read */
	uint8_t shift;           /* block size as a power of 2; 0: 9; with another it stores written data */
} fake;

#define KEPT (4u << 20)
static uint8_t kept[KEPT];

struct conn {
	int fd;
	uint16_t qid;
	uint8_t pdu[BUFFER + 4096];
	struct nv_sqe sqe;
};

static bool receive(int fd, void *at, size_t n)
{
	return recv(fd, at, n, MSG_WAITALL) == (ssize_t)n;
}

static void put(struct conn *c, const void *at, size_t n)
{
	(void)!send(c->fd, at, n, MSG_NOSIGNAL);
}

static void put_head(struct conn *c, uint8_t type, uint8_t flags, uint8_t hlen, uint8_t pdo, uint32_t plen,
                     const uint8_t *rest)
{
	uint8_t h[NV_TCP_DATA_LEN];
	uint8_t digest[NV_TCP_DIGEST_LEN], more = fake.head_digests ? NV_TCP_DIGEST_LEN : 0;
	struct nv_tcp_common common = {.type = type,
	                               .flags = flags | (more ? NV_TCP_HDGST : 0),
	                               .hlen = hlen,
	                               .pdo = (uint8_t)(pdo ? pdo + more : 0),
	                               .plen = plen + more};

	nv_tcp_common_encode(&common, h);
	memcpy(h + 8, rest, 16);
	put(c, h, sizeof(h));
	nv_put32(digest, vb_crc32c(0, h, sizeof(h)));
	put(c, digest, more);
}

static void answer(struct conn *c, uint16_t cid, uint16_t status, uint64_t result)
{
	struct nv_cqe e = {.cid = cid, .status = status, .result = result, .sqid = c->qid};
	uint8_t b[NV_CQE_LEN];

	nv_cqe_encode(&e, b);
	put_head(c, NV_TCP_RESPONSE, 0, NV_TCP_RESPONSE_LEN, 0, NV_TCP_RESPONSE_LEN, b);
}

static void data_head(struct conn *c, uint8_t type, uint8_t flags, uint16_t cid, uint32_t offset, uint32_t length,
                      uint8_t pdo, uint32_t plen)
{
	struct nv_tcp_data d = {.cccid = cid, .ttag = 7, .offset = offset, .length = length};
	uint8_t b[NV_TCP_DATA_LEN];

	nv_tcp_data_encode(&d, b);
	put_head(c, type, flags, NV_TCP_DATA_LEN, pdo, plen, b + 8);
}

static void data(struct conn *c, uint8_t flags, uint16_t cid, uint32_t offset, const void *at, uint32_t length)
{
	uint8_t digest[NV_TCP_DIGEST_LEN];

	if (fake.digests)
		flags |= NV_TCP_DDGST;
	data_head(c, NV_TCP_C2H_DATA, flags, cid, offset, length, NV_TCP_DATA_LEN,
	          NV_TCP_DATA_LEN + length + (fake.digests ? NV_TCP_DIGEST_LEN : 0));
	put(c, at, length);
	if (!fake.digests)
		return;
	nv_put32(digest, vb_crc32c(0, at, length) ^ (c->qid && fake.wrong));
	fake.wrong -= c->qid && fake.wrong;
	put(c, digest, sizeof(digest));
}

static void r2t(struct conn *c, uint16_t cid, uint32_t offset, uint32_t length)
{
	data_head(c, NV_TCP_R2T, 0, cid, offset, length, 0, NV_TCP_DATA_LEN);
}

/* ---- a working target ---- */

static void greet(struct conn *c)
{
	uint8_t pdu[NV_TCP_IC_LEN];
	struct nv_tcp_ic ic = {.number = fake.h2c ? fake.h2c : 65536,
	                       .align = fake.align,
	                       .digests = fake.head_digests ? NV_TCP_HDGST : 0};

	if (fake.how == IC_ALIGN)
		ic.align = 32;
	if (fake.how == IC_H2C_ZERO)
		ic.number = 0;
	if (fake.how == IC_H2C_ODD)
		ic.number = 65537;
	if (fake.how == IC_H2C_SMALL)
		ic.number = 4092;
	if (fake.how == IC_DIGESTS || fake.digests)
		ic.digests = NV_TCP_DDGST;
	if (fake.how == IC_VERSION)
		ic.pfv = 1;
	nv_tcp_ic_encode(&ic, true, pdu);
	if (fake.how == IC_NO_IC)
		pdu[0] = NV_TCP_RESPONSE;
	if (fake.how == IC_SHORT)
		pdu[4] = 64;
	put(c, pdu, fake.how == IC_CLOSE ? 50 : sizeof(pdu));
	if (fake.how == IC_CLOSE)
		shutdown(c->fd, SHUT_RDWR);
}

static void identify(struct conn *c)
{
	static const uint8_t nothing[4096];
	uint8_t d[4096] = {0};
	uint8_t shift = fake.how == BLOCK_SIZE_ZERO   ? 0
	                : fake.how == BLOCK_SIZE_HUGE ? 63
	                : fake.shift                  ? fake.shift
	                                              : 9;

	switch (c->sqe.cdw[0] & 0xff) {
	case NV_CNS_CTRL:
		memcpy(d + 24, "hostile\"\n\x01model", 15);
		d[77] = fake.shift ? 0 : 4;
		d[520] = 0x0d;
		nv_put16(d + 514, fake.maxcmd);
		nv_put32(d + 80, fake.wzsl ? 0x00020000 : 0);
		nv_put32(d + 1792, (INLINE + 64) / 16);
		break;
	case NV_CNS_NS:
		nv_put64(d, fake.how == NO_BLOCKS       ? 0
		            : fake.how == SIZE_OVERFLOW ? UINT64_MAX / 2
		            : fake.shift                ? KEPT >> fake.shift
		                                        : BLOCKS);
		d[119] = (uint8_t)(fake.nguid ? fake.nguid + c->sqe.nsid : 0);
		d[33] = fake.dlfeat;
		nv_put32(d + 128, (uint32_t)shift << 16 | (fake.how == METADATA ? 8 : 0));
		break;
	case NV_CNS_ACTIVE:
		nv_put32(d, fake.first ? fake.first : 1);
		break;
	case NV_CNS_CSI_CTRL:
		d[1] = fake.wzsl;
		nv_put32(d + 4, 2 * fake.dmsl);
		nv_put64(d + 8, fake.dmsl);
		break;
	default:
		memset(d, 0xff, sizeof(d)); /* an endless list of descriptors */
		break;
	}
	if (fake.how == IDENTIFY_SHORT)
		data(c, 0, c->sqe.cid, 0, nothing, 100);
	else
		data(c, NV_TCP_LAST, c->sqe.cid, 0, d, sizeof(d));
	answer(c, c->sqe.cid, 0, 0);
}

static uint64_t property(uint32_t at)
{
	if (at == NV_PROP_CAP)
		return (fake.how == NO_QUEUE_ROOM ? 0 : 63) | 1u << 24 | 1ull << 37;
	return fake.how == NEVER_READY ? 0 : NV_CSTS_RDY;
}

static void fabrics(struct conn *c)
{
	uint64_t result = 0;

	if (c->sqe.fctype == NV_FCT_CONNECT) {
		c->qid = (uint16_t)(c->sqe.cdw[0] >> 16);
		result = fake.how == WANTS_AUTH ? 1 | 1u << 17 : 1;
	}
	if (c->sqe.fctype == NV_FCT_PROPERTY_GET)
		result = property(c->sqe.cdw[1]);
	if (c->sqe.fctype == NV_FCT_CONNECT && fake.busy) {
		fake.busy--;
		answer(c, c->sqe.cid, NV_CONNECT_BUSY, 0);
		return;
	}
	if (c->sqe.fctype == NV_FCT_CONNECT && fake.silent)
		return;
	answer(c, c->sqe.cid, fake.how == CONNECT_FAILS ? NV_INTERNAL : 0, result);
}

static void admin(struct conn *c)
{
	if (c->sqe.opcode == NV_ADMIN_IDENTIFY)
		identify(c);
	else
		answer(c, c->sqe.cid, 0, 0);
}

/* ---- violations ---- */

static void read_random(struct conn *c)
{
	uint8_t b[512];
	unsigned n = (unsigned)(draw(&fake.seed) % sizeof(b));

	for (unsigned i = 0; i < n; i++)
		b[i] = (uint8_t)draw(&fake.seed);
	/* half of them look valid at first */
	if (n > 32 && draw(&fake.seed) % 2) {
		struct nv_tcp_common h = {.type = draw(&fake.seed) % 2 ? NV_TCP_C2H_DATA : NV_TCP_R2T,
		                          .hlen = 24,
		                          .pdo = 24,
		                          .plen = 24 + (uint32_t)(draw(&fake.seed) % 200),
		                          .flags = b[1] & 0xf};

		nv_tcp_common_encode(&h, b);
		if (draw(&fake.seed) % 2)
			nv_put16(b + 8, c->sqe.cid);
	}
	put(c, b, n);
	shutdown(c->fd, SHUT_WR);
}

static uint8_t *kept_at(const struct conn *c)
{
	return kept + ((uint64_t)c->sqe.cdw[0] << fake.shift) % KEPT;
}

static void read_kept(struct conn *c, uint32_t length)
{
	for (uint32_t at = 0, n; at < length; at += n) {
		n = length - at < BUFFER ? length - at : BUFFER;
		data(c, at + n == length ? NV_TCP_LAST : 0, c->sqe.cid, at, kept_at(c) + at, n);
	}
	answer(c, c->sqe.cid, 0, 0);
}

static void misread(struct conn *c, uint32_t length)
{
	static const uint8_t d[2 * BUFFER];
	uint16_t cid = c->sqe.cid;
	uint32_t whole = NV_TCP_DATA_LEN + length;

	usleep(fake.slow_ms * 1000);
	if (fake.closes) {
		fake.closes--;
		shutdown(c->fd, SHUT_RDWR);
		return;
	}
	fake.nsid = c->sqe.nsid;
	if (fake.kept) {
		fake.kept--;
		return;
	}
	switch (fake.how) {
	case READ_CID:
		data(c, NV_TCP_LAST, cid ^ 0x8000, 0, d, length);
		break;
	case READ_OFFSET:
		data(c, 0, cid, 4, d, length - 4);
		break;
	case READ_TOO_LONG:
		data(c, NV_TCP_LAST, cid, 0, d, length + 4);
		break;
	case READ_TWICE:
		data(c, 0, cid, 0, d, length);
		data(c, NV_TCP_LAST, cid, 0, d, length);
		break;
	case READ_LAST_EARLY:
		data(c, NV_TCP_LAST, cid, 0, d, length / 2);
		break;
	case READ_SUCCESS_EARLY:
		data(c, NV_TCP_SUCCESS, cid, 0, d, length);
		break;
	case READ_LENGTH_LIES:
		data_head(c, NV_TCP_C2H_DATA, NV_TCP_LAST, cid, 0, length, 24, whole + 64);
		put(c, d, length + 64);
		break;
	case READ_EMPTY:
		data(c, 0, cid, 0, d, 0);
		break;
	case READ_NO_DATA:
		answer(c, cid, 0, 0);
		break;
	case READ_PDO:
		data_head(c, NV_TCP_C2H_DATA, NV_TCP_LAST, cid, 0, length, 25, whole + 1);
		put(c, d, length + 1);
		break;
	case READ_PDO_SMALL:
		data_head(c, NV_TCP_C2H_DATA, NV_TCP_LAST, cid, 0, length, 8, whole);
		put(c, d, length);
		break;
	case READ_PLEN_HUGE:
		data_head(c, NV_TCP_C2H_DATA, NV_TCP_LAST, cid, 0, UINT32_MAX - 24, 24, UINT32_MAX);
		put(c, d, sizeof(d));
		break;
	case READ_PLEN_ZERO:
		data_head(c, NV_TCP_C2H_DATA, NV_TCP_LAST, cid, 0, length, 24, 0);
		break;
	case READ_HLEN:
		put_head(c, NV_TCP_C2H_DATA, NV_TCP_LAST, 72, 24, whole, d);
		put(c, d, length);
		break;
	case READ_TYPE:
		put_head(c, 0x55, 0, 24, 0, 24, d);
		break;
	case READ_FLAGS:
		data(c, 0xff, cid, 0, d, length);
		break;
	case READ_HALF:
		data_head(c, NV_TCP_C2H_DATA, NV_TCP_LAST, cid, 0, length, 24, whole);
		put(c, d, length / 2);
		shutdown(c->fd, SHUT_WR);
		break;
	case READ_R2T:
		r2t(c, cid, 0, length);
		break;
	case READ_ANSWER_TWICE:
		data(c, NV_TCP_LAST | NV_TCP_SUCCESS, cid, 0, d, length);
		answer(c, cid, 0, 0);
		break;
	case READ_ANSWER_CID:
		answer(c, 0xffff, 0, 0);
		break;
	case READ_ICRESP:
		greet(c);
		break;
	case READ_TERM:
		put_head(c, NV_TCP_C2H_TERM, 0, 24, 0, 24, d);
		break;
	case READ_CLOSE:
		shutdown(c->fd, SHUT_RDWR);
		break;
	case READ_RANDOM:
		read_random(c);
		break;
	default:
		data(c, NV_TCP_LAST, cid, 0, d, length);
		answer(c, cid, 0, 0);
		break;
	}
}

/* Receives the data for one R2T. */
static void take_data(struct conn *c, uint32_t length)
{
	uint8_t h[NV_TCP_DATA_LEN];

	while (length && receive(c->fd, h, sizeof(h))) {
		uint32_t n = nv_get32(h + 16), skip = h[3] - (uint32_t)sizeof(h);

		fake.pdus++;
		fake.too_long += n > (fake.h2c ? fake.h2c : 65536);
		if (n > length || h[3] < sizeof(h) || !receive(c->fd, c->pdu, skip) || !receive(c->fd, c->pdu, n))
			return;
		if (fake.shift)
			memcpy(kept_at(c) + nv_get32(h + 12) % KEPT, c->pdu, n);
		length -= n;
	}
}

static void miswrite(struct conn *c, uint32_t length)
{
	static const uint8_t d[64];
	uint16_t cid = c->sqe.cid;

	switch (fake.how) {
	case WRITE_UNTAKEN:
		answer(c, cid, 0, 0);
		break;
	case WRITE_R2T_ZERO:
		r2t(c, cid, 0, 0);
		break;
	case WRITE_R2T_BEYOND:
		r2t(c, cid, 0, length + 4);
		break;
	case WRITE_R2T_OFFSET:
		r2t(c, cid, 4, length - 4);
		break;
	case WRITE_R2T_HUGE:
		r2t(c, cid, 0, UINT32_MAX);
		break;
	case WRITE_R2T_TWO:
		r2t(c, cid, 0, length);
		r2t(c, cid, 0, length);
		take_data(c, length);
		break;
	case WRITE_R2T_CID:
		r2t(c, cid ^ 1, 0, length);
		break;
	case WRITE_DATA:
		data(c, 0, cid, 0, d, sizeof(d));
		break;
	case WRITE_ANSWER_EARLY:
		r2t(c, cid, 0, length / 2);
		take_data(c, length / 2);
		answer(c, cid, 0, 0);
		break;
	default:
		r2t(c, cid, 0, length);
		take_data(c, length);
		answer(c, cid, 0, 0);
		break;
	}
}

/* Zeroes and discards */
static void count_cut(struct conn *c)
{
	unsigned n = (c->sqe.cdw[2] & 0xffff) + 1;

	if (c->sqe.opcode == NV_IO_DSM)
		n = nv_get32(c->pdu + c->pdu[3] + 4); /* of the range in the capsule */
	fake.deallocates = c->sqe.cdw[2] >> 25 & 1;
	fake.cuts++;
	fake.longest = n > fake.longest ? n : fake.longest;
}

static void command(struct conn *c)
{
	uint32_t length = ((c->sqe.cdw[2] & 0xffff) + 1) << (fake.shift ? fake.shift : 9);

	if (c->sqe.opcode == NV_FABRICS)
		fabrics(c);
	else if (!c->qid)
		admin(c);
	else if (c->sqe.opcode == NV_IO_READ && fake.shift)
		read_kept(c, length);
	else if (c->sqe.opcode == NV_IO_READ)
		misread(c, length);
	else if (c->sqe.opcode == NV_IO_WRITE && length > INLINE)
		miswrite(c, length);
	else {
		if (c->sqe.opcode == NV_IO_DSM || c->sqe.opcode == NV_IO_WRITE_ZEROES)
			count_cut(c);
		answer(c, c->sqe.cid, 0, 0);
	}
}

static void *serve(void *arg)
{
	struct conn *c = arg;
	struct nv_tcp_common h;

	while (receive(c->fd, c->pdu, 8)) {
		h = nv_tcp_common_decode(c->pdu);
		if (h.plen < 8 || h.plen > sizeof(c->pdu) || !receive(c->fd, c->pdu + 8, h.plen - 8))
			break;
		c->sqe = nv_sqe_decode(c->pdu + 8);
		if (h.type == NV_TCP_ICREQ)
			greet(c);
		else if (h.type == NV_TCP_COMMAND)
			command(c);
		else
			break;
	}
	close(c->fd);
	free(c);
	return NULL;
}

static void *accept_all(void *arg)
{
	int one = 1;

	for (;;) {
		struct conn *c = calloc(1, sizeof(*c));
		pthread_t t;

		CHECK(c);
		c->fd = accept(fake.listener, NULL, NULL);
		CHECK(c->fd >= 0 && !setsockopt(c->fd, IPPROTO_TCP, TCP_NODELAY, &one, sizeof(one)));
		CHECK(!pthread_create(&t, NULL, serve, c));
		pthread_detach(t);
	}
}

static void start(void)
{
	struct sockaddr_in a = {.sin_family = AF_INET, .sin_addr.s_addr = htonl(INADDR_LOOPBACK)};
	socklen_t n = sizeof(a);
	pthread_t t;

	fake.listener = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
	CHECK(!bind(fake.listener, (struct sockaddr *)&a, n) && !listen(fake.listener, 64));
	CHECK(!getsockname(fake.listener, (struct sockaddr *)&a, &n));
	fake.port = ntohs(a.sin_port);
	CHECK(!pthread_create(&t, NULL, accept_all, NULL));
}

/* ---- tests ---- */

static char why[200]; /* message of the last vn_open */

static unsigned connect_ms = 10000, io_ms = 30000, queue_depth = 128, reconnect_ms;

static int open_it(struct vn_disk **d)
{
	struct vn_options o;
	char url[200];

	vn_options_init(&o);
	o.numeric = 1;
	o.reconnect_ms = reconnect_ms;
	o.reconnect_pause_ms = 100;
	o.connect_ms = connect_ms;
	o.io_ms = io_ms;
	o.queue_depth = queue_depth;
	o.data_digest = fake.digests;
	o.header_digest = fake.head_digests;
	snprintf(url, sizeof(url), "nvme+tcp://127.0.0.1:%u/" NQN, fake.port);
	return vn_open(url, &o, d, why, sizeof(why));
}

static uint8_t memory[GUARD + BUFFER + GUARD];

static void guards_are_whole(void)
{
	for (unsigned i = 0; i < GUARD; i++)
		CHECK(memory[i] == 0xa5 && memory[GUARD + BUFFER + i] == 0xa5);
}

static void an_honest_target_is_understood(void)
{
	struct vn_disk *d;

	fake.how = HONEST;
	SAME(open_it(&d), 0);
	SAME(vn_info(d)->size, BLOCKS * BLOCK);
	CHECK(!strcmp(vn_info(d)->model, "hostile\"..model"));
	SAME(vn_read_wait(d, memory + GUARD, BUFFER, 0), 0);
	SAME(vn_write_wait(d, memory + GUARD, BUFFER, 0, 0), 0);
	SAME(vn_write_wait(d, memory + GUARD, BLOCK, 0, 0), 0);
	vn_close(d);
}

static void a_target_that_is_busy_is_asked_again(void)
{
	struct vn_disk *d;

	fake.how = HONEST;
	fake.busy = 3;
	SAME(open_it(&d), 0);
	SAME(fake.busy, 0);
	vn_close(d);
	fake.busy = 1000;
	connect_ms = 5000;
	SAME((unsigned)-open_it(&d), EBUSY);
	CHECK(fake.busy < 999);
	fake.busy = 1;
	fake.silent = true; /* its answer is reported, not the timeout */
	SAME((unsigned)-open_it(&d), EBUSY);
	fake.busy = 0;
	fake.silent = false;
	connect_ms = 10000;
}

static void a_target_that_makes_no_sense_is_not_connected_to(void)
{
	struct vn_disk *d;

	for (fake.how = IC_VERSION; fake.how < READ_CID; fake.how++)
		if (!open_it(&d)) {
			fprintf(stderr, "connected to misbehaviour %d\n", fake.how);
			exit(1);
		}
}

static void request(enum how how)
{
	struct vn_disk *d;
	int e;

	memset(memory, 0xa5, sizeof(memory));
	fake.how = HONEST;
	SAME(open_it(&d), 0);
	fake.how = how;
	e = how < WRITE_UNTAKEN ? vn_read_wait(d, memory + GUARD, BUFFER / 2, 0)
	                        : vn_write_wait(d, memory + GUARD, BUFFER / 2, 0, 0);
	/* a valid answer, and then an additional one: the first may be noticed alone */
	if (e != -ENOTCONN && !(how == READ_ANSWER_TWICE && !e) && !(how == READ_TWICE && !e)) {
		fprintf(stderr, "misbehaviour %d: %d\n", how, e);
		exit(1);
	}
	vn_close(d);
	for (unsigned i = GUARD + BUFFER / 2; i < GUARD + BUFFER; i++)
		CHECK(memory[i] == 0xa5);
	guards_are_whole();
}

static void misbehaviour_ends_the_connection_and_the_request(void)
{
	for (enum how h = READ_CID; h < HOWS; h++)
		if (h != READ_RANDOM)
			request(h);
}

static void random_bytes_do_no_harm(void)
{
	fake.seed = 12345;
	for (int i = 0; i < 200; i++)
		request(READ_RANDOM);
}

static void data_whose_digest_is_wrong_are_asked_for_again(void)
{
	struct vn_disk *d;
	struct vn_statistics s;

	fake.how = HONEST;
	fake.digests = true;
	SAME(open_it(&d), 0);
	fake.wrong = 3;
	SAME(vn_read_wait(d, memory + GUARD, BUFFER, 0), 0);
	vn_statistics(d, &s);
	SAME(s.digest_errors, 3);
	SAME(s.retries, 3);
	fake.wrong = 100;
	SAME(vn_read_wait(d, memory + GUARD, BUFFER, 0), (unsigned long long)-EIO);
	vn_close(d);
	fake.digests = false;
}

/* Data may have to begin far after the header: at 144 bytes with an alignment of 72. */
static void data_are_aligned_as_the_target_wants_them(void)
{
	struct vn_disk *d;

	fake.how = HONEST;
	fake.head_digests = true;
	for (fake.align = 0; fake.align < 32; fake.align++) {
		SAME(open_it(&d), 0);
		SAME(vn_write_wait(d, memory + GUARD, BLOCK, 0, 0), 0);
		SAME(vn_write_wait(d, memory + GUARD, BUFFER, 0, 0), 0);
		SAME(vn_read_wait(d, memory + GUARD, BUFFER, 0), 0);
		vn_close(d);
	}
	fake.align = 0;
	fake.head_digests = false;
}

static void data_come_in_pieces_that_the_target_takes(void)
{
	static const uint32_t sizes[] = {4096, 5000, 65532, 65536, UINT32_MAX - 3};
	struct vn_disk *d;

	fake.how = HONEST;
	for (unsigned i = 0; i < sizeof(sizes) / sizeof(*sizes); i++) {
		fake.h2c = sizes[i];
		SAME(open_it(&d), 0);
		fake.pdus = 0;
		SAME(vn_write_wait(d, memory + GUARD, BUFFER, 0, 0), 0);
		SAME(fake.pdus, sizes[i] < BUFFER ? (BUFFER + sizes[i] - 1) / sizes[i] : 1);
		SAME(fake.too_long, 0);
		vn_close(d);
	}
	fake.h2c = 0;
}

static void ended(void *arg, int error)
{
	*(int *)arg = error;
}

static int begin_reads(struct vn_disk *d, int n, int ends[])
{
	for (int i = 0; i < n; i++) {
		ends[i] = 1;
		SAME(vn_read(d, memory + GUARD + i * BLOCK, BLOCK, 0, 0, ended, &ends[i]), 0);
	}
	return n;
}

/* The last one waits longer than a command may, while others are answered. */
static void a_target_that_is_slow_is_not_lost(void)
{
	struct vn_disk *d;
	int ends[16];

	fake.how = HONEST;
	io_ms = 10000;
	SAME(open_it(&d), 0);
	fake.slow_ms = 750;
	for (int left = begin_reads(d, 16, ends); left;) {
		int n = vn_poll(d, -1);

		CHECK(n > 0);
		left -= n;
	}
	for (int i = 0; i < 16; i++)
		SAME(ends[i], 0);
	fake.slow_ms = 0;
	vn_close(d);
}

static void a_command_that_all_others_overtake_is_lost(void)
{
	struct vn_disk *d;
	int end, e;

	fake.how = HONEST;
	io_ms = 1000;
	queue_depth = 4;
	SAME(open_it(&d), 0);
	fake.kept = 1;
	begin_reads(d, 1, &end);
	fake.slow_ms = 100;
	for (int i = 0; i < 6000 && !(e = vn_read_wait(d, memory + GUARD + BLOCK, BLOCK, 0)); i++)
		;
	SAME(e, (unsigned long long)-ENOTCONN);
	vn_close(d);
	SAME(end, (unsigned long long)-ENOTCONN);
	fake.slow_ms = 0;
	io_ms = 30000;
	queue_depth = 128;
}

static void a_disk_stays_at_its_namespace_when_another_has_come_before_it(void)
{
	struct vn_disk *d;

	fake.how = HONEST;
	fake.first = 2;
	fake.nguid = 1;
	reconnect_ms = 60000;
	SAME(open_it(&d), 0);
	SAME(vn_info(d)->nsid, 2);
	fake.first = 1;
	fake.closes = 1;
	SAME(vn_read_wait(d, memory + GUARD, BLOCK, 0), 0);
	SAME(fake.closes, 0);
	SAME(fake.nsid, 2);
	vn_close(d);
	fake.first = fake.nguid = 0;
}

/* It has no UUID, but another identifier, which has changed. */
static void a_namespace_with_another_name_is_another_disk(void)
{
	struct vn_disk *d;

	fake.how = HONEST;
	fake.nguid = 1;
	reconnect_ms = 60000;
	SAME(open_it(&d), 0);
	fake.closes = 1;
	SAME(vn_read_wait(d, memory + GUARD, BLOCK, 0), 0);
	vn_close(d);
	reconnect_ms = 500;
	SAME(open_it(&d), 0);
	fake.nguid = 2;
	fake.closes = 1;
	SAME(vn_read_wait(d, memory + GUARD, BLOCK, 0), (unsigned long long)-ENOTCONN);
	vn_close(d);
	fake.nguid = 0;
	reconnect_ms = 0;
}

static void zeroes_and_discards_are_as_large_as_the_target_takes_them(void)
{
	struct vn_disk *d;

	fake.how = HONEST;
	for (unsigned limits = 0; limits < 2; limits++) {
		fake.wzsl = limits ? 1 : 0; /* 8 KiB */
		fake.dmsl = limits ? 100 : 0;
		SAME(open_it(&d), 0);
		fake.cuts = fake.longest = 0;
		SAME(vn_write_zeroes_wait(d, BLOCKS * BLOCK, 0, 0), 0);
		SAME(fake.cuts, limits ? BLOCKS / 16 : 1);
		SAME(fake.longest, limits ? 16 : BLOCKS);
		fake.cuts = fake.longest = 0;
		SAME(vn_discard_wait(d, BLOCKS * BLOCK, 0), 0);
		SAME(fake.cuts, limits ? BLOCKS / 100 + 1 : 1);
		SAME(fake.longest, limits ? 100 : BLOCKS);
		vn_close(d);
	}
	fake.wzsl = 0;
	fake.dmsl = 0;
}

static void no_more_commands_are_sent_than_the_target_takes_at_a_time(void)
{
	struct vn_disk *d;

	fake.how = HONEST;
	for (unsigned i = 0; i < 2; i++) {
		fake.maxcmd = i ? 5 : 0;
		SAME(open_it(&d), 0);
		SAME(vn_info(d)->queue_depth, i ? 5 : 63);
		vn_close(d);
	}
	fake.maxcmd = 0;
}

/* Otherwise deallocated blocks might not read as zeroes. Base 1.4, figure 245: DLFEAT */
static void zeroes_may_be_deallocated_where_that_reads_as_zeroes(void)
{
	static const uint8_t features[] = {0, 1, 8, 1 | 8, 2 | 8};
	struct vn_disk *d;

	fake.how = HONEST;
	for (unsigned i = 0; i < sizeof(features); i++) {
		fake.dlfeat = features[i];
		SAME(open_it(&d), 0);
		SAME(vn_write_zeroes_wait(d, BLOCK, 0, VN_DISCARD), 0);
		SAME(fake.deallocates, features[i] == (1 | 8));
		SAME(vn_write_zeroes_wait(d, BLOCK, 0, 0), 0);
		SAME(fake.deallocates, 0);
		vn_close(d);
	}
	fake.dlfeat = 0;
}

static const char *disk_program;

static void copy(const char *from, const char *to)
{
	char line[600];

	snprintf(line, sizeof(line), "timeout 60 '%s' --quiet --queue-depth=1 copy %s %s", disk_program, from, to);
	SAME(system(line), 0);
}

/* Its blocks are larger than the tool's chunks, and its data must still fit into the tool's memory. */
static void a_disk_with_large_blocks_is_copied(void)
{
	static uint8_t file[KEPT];
	char url[200], in[] = "/tmp/client_hostile.XXXXXX", out[] = "/tmp/client_hostile.XXXXXX";
	int fd = mkstemp(in), back = mkstemp(out);
	uint64_t seed = 5;
	uint32_t length = (3u << 19) + 100;

	fake.how = HONEST;
	for (fake.shift = 19; fake.shift <= 20; fake.shift++) {
		for (uint32_t i = 0; i < length; i++)
			file[i] = (uint8_t)draw(&seed);
		memset(file + length, 0x5a, KEPT - length);
		memset(kept, 0x5a, KEPT);
		SAME(ftruncate(fd, 0) | (pwrite(fd, file, length, 0) != (ssize_t)length), 0);
		snprintf(url, sizeof(url), "nvme+tcp://127.0.0.1:%u/" NQN, fake.port);
		copy(in, url);
		CHECK(!memcmp(kept, file, KEPT));
		copy(url, out);
		memset(file, 0, KEPT);
		SAME(pread(back, file, KEPT, 0), KEPT);
		CHECK(!memcmp(kept, file, KEPT));
	}
	fake.shift = 0;
	unlink(in);
	unlink(out);
	close(fd);
	close(back);
}

int main(int argc, char **argv)
{
	CHECK(argc == 2);
	disk_program = argv[1];
	memset(memory, 0xa5, sizeof(memory));
	start();
	RUN(an_honest_target_is_understood);
	RUN(a_target_that_is_busy_is_asked_again);
	RUN(a_target_that_makes_no_sense_is_not_connected_to);
	RUN(misbehaviour_ends_the_connection_and_the_request);
	RUN(random_bytes_do_no_harm);
	RUN(data_whose_digest_is_wrong_are_asked_for_again);
	RUN(data_are_aligned_as_the_target_wants_them);
	RUN(data_come_in_pieces_that_the_target_takes);
	RUN(a_target_that_is_slow_is_not_lost);
	RUN(a_command_that_all_others_overtake_is_lost);
	RUN(zeroes_and_discards_are_as_large_as_the_target_takes_them);
	RUN(no_more_commands_are_sent_than_the_target_takes_at_a_time);
	RUN(zeroes_may_be_deallocated_where_that_reads_as_zeroes);
	RUN(a_disk_with_large_blocks_is_copied);
	RUN(a_disk_stays_at_its_namespace_when_another_has_come_before_it);
	RUN(a_namespace_with_another_name_is_another_disk);
	return 0;
}
