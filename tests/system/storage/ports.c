// ports.c - a target of NVMe/TCP in this process, with several ports to one disk in memory
// follows: NVMe/TCP transport specification 1.0; NVM Express Base 1.4, 5.14.1.12 and 8.20
// SPDX-License-Identifier: MIT
#include "ports.h"

#include <arpa/inet.h>
#include <netinet/tcp.h>
#include <pthread.h>
#include <sys/socket.h>
#include <unistd.h>

#include "../../support/check.h"
#include "nvme/nvme.h"
#include "nvme/tcp_pdu.h"

#define BLOCK 512u
#define INLINE 8192u
#define CONNS 64u

struct conn {
	int fd;
	uint16_t qid;
	bool discovery; /* it is for the discovery service */
	bool dead;      /* under lock: nothing of it is executed */
	struct nv_sqe sqe;
	uint8_t data[INLINE];
	uint32_t length;
};

/* One lock for all: what a port executes, and who is dead, have one order. */
static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
static uint8_t disk[PORTS_BLOCKS * BLOCK];
struct port ports[PORTS];
static struct inside {
	int listener;
	pthread_t thread;
	bool halted;
	uint8_t access;
	struct conn *conns[CONNS];
	struct teller {
		struct conn *listening; /* of its event request */
		uint16_t event;
		bool pending, told; /* told: and the log has not been read since */
	} tellers[2];               /* of the disk, and of the discovery service */
} insides[PORTS];

static struct inside *in(const struct port *p)
{
	return &insides[p - ports];
}

static bool receive(int fd, void *at, size_t n)
{
	return recv(fd, at, n, MSG_WAITALL) == (ssize_t)n;
}

static void put(const struct conn *c, const void *at, size_t n)
{
	(void)!send(c->fd, at, n, MSG_NOSIGNAL);
}

static void answer(const struct conn *c, uint16_t cid, uint16_t status, uint64_t result)
{
	struct nv_cqe e = {.cid = cid, .status = status, .result = result, .sqid = c->qid};
	struct nv_tcp_common h = {.type = NV_TCP_RESPONSE, .hlen = NV_TCP_RESPONSE_LEN, .plen = NV_TCP_RESPONSE_LEN};
	uint8_t b[NV_TCP_RESPONSE_LEN];

	nv_tcp_common_encode(&h, b);
	nv_cqe_encode(&e, b + NV_TCP_COMMON_LEN);
	put(c, b, sizeof(b));
}

static void send_data(const struct conn *c, const uint8_t *at, uint32_t length)
{
	struct nv_tcp_common h = {.type = NV_TCP_C2H_DATA,
	                          .flags = NV_TCP_LAST,
	                          .hlen = NV_TCP_DATA_LEN,
	                          .pdo = NV_TCP_DATA_LEN,
	                          .plen = NV_TCP_DATA_LEN + length};
	struct nv_tcp_data d = {.cccid = c->sqe.cid, .length = length};
	uint8_t b[NV_TCP_DATA_LEN];

	nv_tcp_data_encode(&d, b);
	nv_tcp_common_encode(&h, b);
	put(c, b, sizeof(b));
	put(c, at, length);
}

/* ---- admin commands ---- */

static void identify(struct port *p, const struct conn *c)
{
	uint8_t d[4096] = {0};

	switch (c->sqe.cdw[0] & 0xff) {
	case NV_CNS_CTRL:
		if (c->discovery) {
			nv_put32(d + 92, p->mute ? 0 : NV_AEC_DISCOVERY_CHANGED);
			break;
		}
		d[76] = 1u << 3; /* asymmetric access */
		d[77] = 4;
		nv_put32(d + 92, NV_AEC_ANA_CHANGED);
		d[342] = 1; /* s: the longest change */
		nv_put16(d + 520, 0x09);
		nv_put32(d + 1792, (INLINE + 64) / 16);
		break;
	case NV_CNS_NS:
		nv_put64(d, p->blocks);
		d[119] = p->name;
		nv_put32(d + 128, 9u << 16);
		break;
	case NV_CNS_ACTIVE:
		nv_put32(d, 1);
		break;
	default:
		break;
	}
	send_data(c, d, sizeof(d));
	answer(c, c->sqe.cid, 0, 0);
}

static void tell(struct inside *i)
{
	static const uint64_t news[] = {NV_AEN_NOTICE | NV_AEN_ANA_CHANGED << 8 | NV_LOG_ANA << 16,
	                                NV_AEN_NOTICE | NV_AEN_DISCOVERY_CHANGED << 8 | NV_LOG_DISCOVERY << 16};

	for (unsigned k = 0; k < 2; k++) {
		struct teller *t = &i->tellers[k];

		if (!t->pending || t->told || !t->listening)
			continue;
		t->pending = false;
		t->told = true;
		answer(t->listening, t->event, 0, news[k]);
		t->listening = NULL;
	}
}

struct entry {
	uint8_t trtype, subtype;
	const char *nqn, *address, *service;
};

static void put_log_entry(uint8_t *at, const struct entry *e)
{
	at[0] = e->trtype;
	at[1] = NV_ADRFAM_IPV4;
	at[2] = e->subtype;
	memset(at + 32, ' ', 32);
	memcpy(at + 32, e->service, strlen(e->service));
	strcpy((char *)at + 256, e->nqn);
	memset(at + 512, ' ', 256);
	memcpy(at + 512, e->address, strlen(e->address));
}

/* After the ports entries that are no paths of the disk, or that a host cannot use. */
static void send_discovery_log(struct port *p, const struct conn *c)
{
	static const struct entry others[] = {
	        {NV_TRTYPE_TCP, NV_SUBTYPE_NVM, "nqn.2026-01.test:other", "127.0.0.1", "4420"},
	        {NV_TRTYPE_TCP, NV_SUBTYPE_REFERRAL, PORTS_NQN, "127.0.0.1", "4421"},
	        {NV_TRTYPE_TCP, NV_SUBTYPE_NVM, PORTS_NQN, "localhost", "4422"},
	        {NV_TRTYPE_TCP, NV_SUBTYPE_NVM, PORTS_NQN, "127.0.0.1", "0"},
	        {NV_TRTYPE_TCP, NV_SUBTYPE_NVM, PORTS_NQN, "127.0.0.1", "65536"},
	        {NV_TRTYPE_TCP, NV_SUBTYPE_NVM, PORTS_NQN, "127.0.0.1", "nvme"},
	        {NV_TRTYPE_RDMA, NV_SUBTYPE_NVM, PORTS_NQN, "127.0.0.1", "4423"},
	        {0x77, NV_SUBTYPE_NVM, PORTS_NQN, "127.0.0.1", "4424"}};
	const unsigned n_others = sizeof(others) / sizeof(*others);
	static uint8_t page[(1 + PORTS + sizeof(others) / sizeof(*others)) * 1024];
	uint32_t length = ((c->sqe.cdw[0] >> 16) + 1) * 4, at = c->sqe.cdw[2];
	uint64_t n = 0;

	memset(page, 0, sizeof(page));
	for (unsigned i = 0; i < PORTS; i++) {
		char service[12];

		snprintf(service, sizeof(service), "%u", ports[i].number);
		if (p->lists & 1u << i)
			put_log_entry(page + 1024 * ++n,
			              &(struct entry){NV_TRTYPE_TCP, NV_SUBTYPE_NVM, PORTS_NQN, "127.0.0.1", service});
	}
	for (unsigned i = 0; i < n_others; i++)
		put_log_entry(page + 1024 * ++n, &others[i]);
	nv_put64(page, p->lists | (uint64_t)p->restless << 8);
	if (!at && p->restless)
		p->restless--;
	nv_put64(page + 8, n);
	CHECK(at + length <= sizeof(page));
	send_data(c, page + at, length);
	in(p)->tellers[1].told = false;
	answer(c, c->sqe.cid, 0, 0);
}

static void send_log(struct port *p, const struct conn *c)
{
	struct inside *i = in(p);
	uint32_t length = ((c->sqe.cdw[0] >> 16) + 1) * 4, at = c->sqe.cdw[2];
	size_t size = 16 + (p->more_groups + 1u) * 36u + 4096;
	uint8_t *page = calloc(1, size + length), *group = page + 16;

	CHECK(page && at <= size);
	nv_put16(page + 8, p->more_groups + 1u);
	for (unsigned g = 0; g <= p->more_groups; g++, group += 36) {
		bool ours = g == p->more_groups;

		nv_put32(group, g + 1);
		nv_put32(group + 4, 1);
		group[16] = ours ? i->access : NV_ANA_LOSS;
		nv_put32(group + 32, ours ? 1 : g + 2);
	}
	send_data(c, page + at, length);
	free(page);
	i->tellers[0].told = false;
	answer(c, c->sqe.cid, 0, 0);
}

static void admin(struct port *p, struct conn *c)
{
	struct inside *i = in(p);

	if (c->sqe.opcode == NV_ADMIN_IDENTIFY) {
		identify(p, c);
	} else if (c->sqe.opcode == NV_ADMIN_GET_LOG) {
		if (c->discovery && p->slow)
			p->asked++;
		else if (c->discovery)
			send_discovery_log(p, c);
		else
			send_log(p, c);
	} else if (c->sqe.opcode == NV_ADMIN_ASYNC_EVENT) {
		i->tellers[c->discovery].listening = c;
		i->tellers[c->discovery].event = c->sqe.cid;
	} else {
		answer(c, c->sqe.cid, 0, 0);
	}
	tell(i);
}

static void fabrics(struct port *p, struct conn *c)
{
	uint64_t result = 1;

	if (c->sqe.fctype == NV_FCT_CONNECT) {
		c->qid = (uint16_t)(c->sqe.cdw[0] >> 16);
		c->discovery = !strcmp((char *)c->data + NV_CONNECT_AT_SUBNQN, NV_DISCOVERY_NQN);
		p->connects += !c->qid && !c->discovery;
	}
	if (c->sqe.fctype == NV_FCT_PROPERTY_GET)
		result = c->sqe.cdw[1] == NV_PROP_CAP ? 63 | 1u << 24 | 1ull << 37 : NV_CSTS_RDY;
	answer(c, c->sqe.cid, 0, result);
}

/* ---- I/O ---- */

static void execute(struct port *p, struct conn *c)
{
	static const uint16_t of_state[16] = {[NV_ANA_INACCESSIBLE] = NV_ANA_INACCESSIBLE_PATH,
	                                      [NV_ANA_LOSS] = NV_ANA_LOSS_PATH,
	                                      [NV_ANA_CHANGE] = NV_ANA_TRANSITION_PATH};
	uint16_t status = p->refusal ? p->refusal : of_state[in(p)->access];
	uint32_t length = ((c->sqe.cdw[2] & 0xffff) + 1) * BLOCK;
	uint8_t *at = disk + c->sqe.cdw[0] * (size_t)BLOCK;

	if (p->holds)
		return;
	p->refused += !!status;
	p->served += !status;
	if (!status && c->sqe.opcode != NV_IO_FLUSH)
		CHECK(c->sqe.cdw[0] + length / BLOCK <= PORTS_BLOCKS);
	if (!status && c->sqe.opcode == NV_IO_READ)
		send_data(c, at, length);
	if (!status && c->sqe.opcode == NV_IO_WRITE)
		memcpy(at, c->data, length);
	if (!status && c->sqe.opcode == NV_IO_WRITE_ZEROES)
		memset(at, 0, length);
	if (!status && c->sqe.opcode == NV_IO_COMPARE && memcmp(at, c->data, length))
		status = NV_COMPARE_FAILED;
	answer(c, c->sqe.cid, status, 0);
}

/* ---- connections ---- */

static bool next_command(struct conn *c)
{
	uint8_t h[128];

	if (!receive(c->fd, h, NV_TCP_COMMON_LEN))
		return false;
	struct nv_tcp_common common = nv_tcp_common_decode(h);

	CHECK(common.type == NV_TCP_COMMAND && common.hlen == 72 && common.plen - 72 <= INLINE + 56);
	if (!receive(c->fd, h, NV_SQE_LEN))
		return false;
	c->sqe = nv_sqe_decode(h);
	c->length = 0;
	if (common.plen > 72) {
		c->length = common.plen - common.pdo;
		return receive(c->fd, h, common.pdo - 72u) && receive(c->fd, c->data, c->length);
	}
	return true;
}

static bool greet(const struct conn *c)
{
	uint8_t pdu[NV_TCP_IC_LEN];

	if (!receive(c->fd, pdu, sizeof(pdu)))
		return false;
	nv_tcp_ic_encode(&(struct nv_tcp_ic){.number = 65536}, true, pdu);
	put(c, pdu, sizeof(pdu));
	return true;
}

static void do_command(struct port *p, struct conn *c)
{
	pthread_mutex_lock(&lock);
	if (!c->dead && in(p)->halted) {
		p->unanswered += !c->qid;
	} else if (!c->dead) {
		if (c->sqe.opcode == NV_FABRICS)
			fabrics(p, c);
		else if (c->qid)
			execute(p, c);
		else
			admin(p, c);
	}
	pthread_mutex_unlock(&lock);
}

struct pair {
	struct port *port;
	struct conn *conn;
};

static void forget(struct port *p, struct conn *c)
{
	struct inside *i = in(p);

	pthread_mutex_lock(&lock);
	for (unsigned n = 0; n < CONNS; n++)
		if (i->conns[n] == c)
			i->conns[n] = NULL;
	for (unsigned k = 0; k < 2; k++)
		if (i->tellers[k].listening == c)
			i->tellers[k].listening = NULL;
	pthread_mutex_unlock(&lock);
	close(c->fd);
	free(c);
}

static void *serve_one(void *arg)
{
	struct pair pair = *(struct pair *)arg;

	free(arg);
	if (greet(pair.conn))
		while (next_command(pair.conn))
			do_command(pair.port, pair.conn);
	forget(pair.port, pair.conn);
	return NULL;
}

static void take_conn(struct port *p, int fd)
{
	struct pair *pair = malloc(sizeof(*pair));
	struct conn *c = calloc(1, sizeof(*c));
	pthread_t t;
	int one = 1;

	CHECK(pair && c);
	setsockopt(fd, IPPROTO_TCP, TCP_NODELAY, &one, sizeof(one));
	c->fd = fd;
	*pair = (struct pair){p, c};
	pthread_mutex_lock(&lock);
	for (unsigned n = 0;; n++) {
		CHECK(n < CONNS);
		if (!in(p)->conns[n]) {
			in(p)->conns[n] = c;
			break;
		}
	}
	pthread_mutex_unlock(&lock);
	CHECK(!pthread_create(&t, NULL, serve_one, pair));
	pthread_detach(t);
}

static void *serve(void *arg)
{
	struct port *p = arg;

	for (int fd; (fd = accept(in(p)->listener, NULL, NULL)) >= 0;)
		take_conn(p, fd);
	return NULL;
}

/* ---- for the test ---- */

void port_open(struct port *p)
{
	struct sockaddr_in a = {.sin_family = AF_INET, .sin_addr.s_addr = htonl(INADDR_LOOPBACK)};
	socklen_t len = sizeof(a);
	struct inside *i = in(p);
	int one = 1;

	a.sin_port = htons((uint16_t)p->number);
	i->listener = socket(AF_INET, SOCK_STREAM, 0);
	setsockopt(i->listener, SOL_SOCKET, SO_REUSEADDR, &one, sizeof(one));
	CHECK(!bind(i->listener, (struct sockaddr *)&a, len) && !listen(i->listener, 64));
	CHECK(!getsockname(i->listener, (struct sockaddr *)&a, &len));
	if (!p->number) /* other ports list it meanwhile */
		p->number = ntohs(a.sin_port);
	i->halted = false;
	CHECK(!pthread_create(&i->thread, NULL, serve, p));
}

/* Resets the connections whose queue has at least this number. */
static void cut_from(struct inside *i, uint16_t qid)
{
	pthread_mutex_lock(&lock);
	for (unsigned n = 0; n < CONNS; n++)
		if (i->conns[n] && i->conns[n]->qid >= qid) {
			i->conns[n]->dead = true;
			shutdown(i->conns[n]->fd, SHUT_RDWR);
		}
	if (!qid)
		i->tellers[0].listening = i->tellers[1].listening = NULL;
	pthread_mutex_unlock(&lock);
}

void port_kill(struct port *p)
{
	struct inside *i = in(p);

	shutdown(i->listener, SHUT_RDWR);
	pthread_join(i->thread, NULL);
	close(i->listener);
	cut_from(i, 0);
}

void port_halt(struct port *p)
{
	pthread_mutex_lock(&lock);
	in(p)->halted = true;
	pthread_mutex_unlock(&lock);
}

void port_cut(struct port *p)
{
	cut_from(in(p), 1);
}

void port_lie(struct port *p, uint8_t state)
{
	pthread_mutex_lock(&lock);
	in(p)->access = state;
	pthread_mutex_unlock(&lock);
}

void port_access(struct port *p, uint8_t state)
{
	pthread_mutex_lock(&lock);
	in(p)->access = state;
	in(p)->tellers[0].pending = true;
	tell(in(p));
	pthread_mutex_unlock(&lock);
}

void port_list(struct port *p, uint8_t list)
{
	pthread_mutex_lock(&lock);
	p->lists = list;
	in(p)->tellers[1].pending = true;
	tell(in(p));
	pthread_mutex_unlock(&lock);
}

void ports_url(char *url, unsigned size)
{
	unsigned n = (unsigned)snprintf(url, size, "nvme+tcp://");

	for (unsigned i = 0; i < PORTS; i++)
		n += (unsigned)snprintf(url + n, size - n, "%s127.0.0.1:%u", i ? "," : "", ports[i].number);
	snprintf(url + n, size - n, "/" PORTS_NQN);
}
