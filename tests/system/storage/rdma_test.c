// rdma_test.c - an NVMe host on verbs: valid and invalid NVMe over RDMA
// follows: NVMe over Fabrics 1.1, 7.3
// SPDX-License-Identifier: MIT
// usage: rdma_test [ADDRESS [plain]]; both sides use the adapter at ADDRESS (127.0.0.1). plain: it does not invalidate
// keys of ibv_reg_mr
#include <errno.h>
#include <fcntl.h>
#include <signal.h>
#include <sys/epoll.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/wait.h>
#include <unistd.h>

#include "backend/ring.h"
#include "rdma_host.h"
#include "target/rdma_conn.h"

#define SIZE (4u << 20)
#define BLOCKS (SIZE / 512)
#define CONNECTIONS 40
#define WAIT_MS 40000

/* Shared memory: the target's results, and its orders. */
static struct shared {
	struct nt_rdma_counts counts;
	_Atomic uint32_t connections, used, port, port_any, stop, replace, sink, sink_key, written;
	_Atomic uint64_t sink_at;
} * shared;
enum { SINK_WANTED = 1, SINK_THERE, SINK_DONE, SINK_CLOSED };
static const char *address = "127.0.0.1";
static bool plain;
static char image[] = "/tmp/rdma_test.XXXXXX";
static pid_t child;

/* ---- the target, in its own process ---- */

static struct nb_ring *ring;

static void backend_done(struct nt_watch *w, uint32_t events)
{
	nb_ring_reap(ring);
}

static void add(struct nt_subsystem *s, uint32_t nsid, const struct nb_config *c)
{
	struct nb_backend *b;

	SAME(nb_open(c, ring, &b), 0);
	CHECK(nt_namespace_add(s, nsid, b, NULL));
}

/* The serving target locks the file, so a lock shows that it was released. */
static void replace(struct nt_subsystem *s, struct nt_rdma *p, struct nt_loop *loop, uint64_t *now)
{
	static const struct nb_config c = {.kind = "mapped", .path = "/proc/self/fd/9"};
	struct nb_backend *b;
	int error = EBUSY;

	nt_namespace_remove(s->ns[3]);
	for (int i = 0; error == EBUSY && i < 100; i++) {
		nt_rdma_turn(p);
		error = nb_open(&c, ring, &b);
		nt_loop_once(loop, 10, now);
	}
	SAME(error, 0);
	CHECK(nt_namespace_add(s, 3, b, NULL));
	shared->replace = 0;
}

/* The sink of a read of the first connection, which is the last in the list. */
static void open_sink(struct nt_rdma *p)
{
	static uint8_t at[4096];
	struct nt_rconn *c = p->conns;

	while (c->next)
		c = c->next;
	struct ibv_mr *mr = ibv_reg_mr(c->id->qp->pd, at, sizeof(at), IBV_ACCESS_LOCAL_WRITE | IBV_ACCESS_REMOTE_WRITE);

	CHECK(mr);
	shared->sink_at = (uintptr_t)at;
	shared->sink_key = mr->rkey;
	shared->sink = SINK_THERE;
	while (shared->sink != SINK_DONE) /* hosts' writes need no action of ours */
		usleep(1000);
	shared->written = at[0];
	ibv_dereg_mr(mr);
	shared->sink = SINK_CLOSED;
}

static void serve(void)
{
	static struct nt_target target;
	static const struct nt_tcp_limits limits = {.connections = CONNECTIONS, .hello_ms = 8000, .stall_ms = 7000};
	struct nt_loop *loop = nt_loop_open();
	struct nt_rdma *one, *any;
	struct nt_watch w = {.events = EPOLLIN, .ready = backend_done};

	SAME(nb_ring_open(&ring, true), 0);
	w.fd = nb_ring_fd(ring);
	SAME(nt_loop_add(loop, &w), 0);
	SAME(nt_target_init(&target, 16 << 20), 0);
	target.now = nt_now();
	struct nt_subsystem *s = nt_subsystem_add(&target, SUBNQN);

	s->any_host = true;
	add(s, 1, &(struct nb_config){.kind = "file", .path = image, .size = SIZE, .buffered = true});
	add(s, 2, &(struct nb_config){.kind = "memory", .size = SIZE});
	add(s, 3, &(struct nb_config){.kind = "mapped", .path = "/proc/self/fd/9"});
	SAME(nt_rdma_open(loop, &target, address, 0, false, &limits, &one), 0);
	SAME(nt_rdma_open(loop, &target, "::", 0, false, &limits, &any), 0);
	shared->port = nt_rdma_port(one);
	shared->port_any = nt_rdma_port(any);
	while (!shared->stop) {
		uint64_t a = nt_rdma_turn(one), b = nt_rdma_turn(any), next = a < b ? a : b;

		shared->counts = *nt_rdma_counted(one);
		shared->connections = nt_rdma_connections(one) + nt_rdma_connections(any);
		shared->used = nt_pool_used(target.pool);
		if (shared->replace)
			replace(s, one, loop, &target.now);
		if (shared->sink == SINK_WANTED)
			open_sink(one);
		nb_ring_flush(ring);
		nt_target_tick(&target);
		nt_loop_once(loop, next > target.now ? 20 : 0, &target.now);
	}
	while (!nt_rdma_close(one))
		nt_loop_once(loop, 10, &target.now);
	while (!nt_rdma_close(any))
		nt_loop_once(loop, 10, &target.now);
	SAME(nt_pool_used(target.pool), 0);
	nt_target_fini(&target);
	nt_loop_remove(loop, &w);
	nb_ring_close(ring);
	nt_loop_close(loop);
	exit(0);
}

static bool within(bool (*true_yet)(void))
{
	for (int i = 0; i < WAIT_MS / 10; i++) {
		if (true_yet())
			return true;
		CHECK(!waitpid(child, NULL, WNOHANG));
		usleep(10000);
	}
	return false;
}

static bool listening(void)
{
	return shared->port && shared->port_any;
}

static bool alone(void)
{
	return !shared->connections && !shared->used;
}

static void up(void)
{
	int fd = memfd_create("mapped", 0);

	SAME(ftruncate(fd, SIZE), 0);
	SAME(dup2(fd, 9), 9);
	close(fd);
	fd = mkstemp(image);
	SAME(ftruncate(fd, SIZE), 0);
	close(fd);
	shared = mmap(NULL, sizeof(*shared), PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
	child = fork();
	if (!child) {
		prctl(PR_SET_PDEATHSIG, SIGKILL);
		serve();
	}
	CHECK(within(listening));
}

static void down(void)
{
	int status;

	shared->stop = 1;
	SAME(waitpid(child, &status, 0), child);
	SAME(status, 0);
	unlink(image);
}

/* ---- valid requests ---- */

static struct host *admin, *io;

static void connect_both(void)
{
	admin = host_admin(address, (uint16_t)shared->port, SUBNQN);
	io = host_io(admin, address, (uint16_t)shared->port, 1);
}

static void hang_up_both(void)
{
	host_hang_up(io);
	host_hang_up(admin);
	CHECK(within(alone));
}

static void fill(uint8_t *at, size_t len, unsigned seed)
{
	for (size_t i = 0; i < len; i++)
		at[i] = (uint8_t)(seed + i * 7 + (i >> 9));
}

static void a_host_identifies_the_controller(void)
{
	struct nv_sqe c = {.opcode = NV_ADMIN_IDENTIFY, .psdt = NV_PSDT_SGL, .cdw = {NV_CNS_CTRL}};

	connect_both();
	c.sgl = host_keyed(admin, 0, 4096, false);
	SAME(host_do(admin, c, 0, NULL).status, 0);
	SAME(nv_get32(admin->data + 1792), (NV_SQE_LEN + 4096) / 16); /* IOCCSZ */
	CHECK(nv_get32(admin->data + 536) & 1u << 2);                 /* SGLS: keyed */
	hang_up_both();
}

static void what_is_written_is_read(void)
{
	static const uint32_t sizes[] = {1, 2, 7, 8, 64, 255, 2048};

	connect_both();
	for (uint32_t ns = 1; ns <= 3; ns++)
		for (size_t i = 0; i < sizeof(sizes) / sizeof(*sizes); i++) {
			uint32_t len = sizes[i] * 512;
			uint8_t *in = io->data + (2 << 20);

			fill(io->data, len, ns + (unsigned)i);
			memset(in, 0, len + 1);
			struct nv_sgl from = host_keyed(io, 0, len, false),
			              to = host_keyed(io, 2 << 20, len, !plain && (i & 1));

			SAME(host_do(io, io_command(NV_IO_WRITE, ns, 3 * i, sizes[i], from), 0, NULL).status, 0);
			SAME(host_do(io, io_command(NV_IO_READ, ns, 3 * i, sizes[i], to), 0, NULL).status, 0);
			CHECK(!memcmp(in, io->data, len) && !in[len]);
			if (!plain && (i & 1)) { /* that has invalidated the key */
				hang_up_both();
				connect_both();
			}
		}
	hang_up_both();
}

static void data_may_come_in_the_capsule(void)
{
	uint8_t bytes[4096];

	connect_both();
	fill(bytes, sizeof(bytes), 99);
	for (uint32_t n = 1; n <= 8; n++) {
		SAME(host_do(io, io_command(NV_IO_WRITE, 1, 8 * n, n, host_inline(512 * n)), 512 * n, bytes).status, 0);
		SAME(host_do(io, io_command(NV_IO_READ, 1, 8 * n, n, host_keyed(io, 0, 512 * n, false)), 0, NULL)
		             .status,
		     0);
		CHECK(!memcmp(io->data, bytes, 512 * n));
	}
	CHECK(shared->counts.in_capsule >= 512 * 36);
	hang_up_both();
}

static void reads_of_a_map_are_sent_from_where_they_lie(void)
{
	connect_both();
	uint64_t map = shared->counts.from_map, pool = shared->counts.from_pool;

	for (int i = 0; i < 8; i++)
		SAME(host_do(io, io_command(NV_IO_READ, 3, 0, 256, host_keyed(io, 0, 128 << 10, false)), 0, NULL)
		             .status,
		     0);
	for (int i = 0; i < WAIT_MS / 10 && shared->counts.from_map - map + (shared->counts.from_pool - pool) < 1 << 20;
	     i++)
		usleep(10000); /* they are handled once per iteration */
	/* with an adapter that pins pages, data is copied: see rdma_device.c */
	SAME(shared->counts.from_map - map + (shared->counts.from_pool - pool), 1 << 20);
	CHECK(shared->counts.from_map > map || shared->counts.from_pool > pool);
	printf("   by map: %llu bytes\n", (unsigned long long)(shared->counts.from_map - map));
	hang_up_both();
}

static bool replaced(void)
{
	return !shared->replace;
}

static void a_namespace_that_is_removed_is_let_go_of(void)
{
	struct nv_sgl to;

	connect_both();
	to = host_keyed(io, 0, 32 << 10, false);
	for (int i = 0; i < 4; i++) {
		fill(io->data, 32 << 10, (unsigned)i);
		SAME(host_do(io, io_command(NV_IO_WRITE, 3, 0, 64, to), 0, NULL).status, 0);
		memset(io->data, 0, 32 << 10);
		SAME(host_do(io, io_command(NV_IO_READ, 3, 0, 64, to), 0, NULL).status, 0);
		SAME(io->data[77], (uint8_t)(i + 77 * 7));
		shared->replace = 1;
		CHECK(within(replaced));
		memset(io->data, 0, 32 << 10);
		SAME(host_do(io, io_command(NV_IO_READ, 3, 0, 64, to), 0, NULL).status, 0);
		SAME(io->data[77], (uint8_t)(i + 77 * 7));
	}
	hang_up_both();
}

/* The queue is full, and command ids are reused at once. */
static void many_commands_at_once(void)
{
	enum { DEPTH = 100, TOTAL = 4000, PART = 16 << 10 };
	static uint32_t block[DEPTH];
	static bool busy[DEPTH], writing[DEPTH];
	uint32_t sent = 0, done = 0;
	uint8_t sqe[NV_SQE_LEN], *disk = calloc(1, SIZE);
	struct nv_cqe a;

	connect_both();
	for (uint32_t i = 0; i < SIZE; i += 1 << 20) { /* a known state */
		memset(io->data, 0, 1 << 20);
		SAME(host_do(io, io_command(NV_IO_WRITE, 2, i / 512, 2048, host_keyed(io, 0, 1 << 20, false)), 0, NULL)
		             .status,
		     0);
	}
	for (uint32_t i = 0; done < TOTAL; i = (i + 1) % DEPTH) {
		if (!busy[i] && sent < TOTAL) { /* each slot has its own part of the disk */
			uint32_t n = 1 + sent % 32;
			uint8_t *own = io->data + i * PART;

			writing[i] = sent % 3;
			block[i] = n;
			if (writing[i]) {
				fill(own, n * 512, sent);
				memcpy(disk + i * PART, own, n * 512);
			} else {
				memset(own, 0xee, PART);
			}
			struct nv_sqe c = io_command(writing[i] ? NV_IO_WRITE : NV_IO_READ, 2, i * PART / 512, n,
			                             host_keyed(io, i * PART, n * 512, false));

			if (writing[i] && n <= 8)
				c.sgl = host_inline(n * 512);
			c.cid = (uint16_t)i;
			nv_sqe_encode(&c, sqe);
			host_send_raw(io, sqe, NV_SQE_LEN + (writing[i] && n <= 8 ? n * 512 : 0), own);
			busy[i] = true;
			sent++;
			if (sent % 7)
				continue;
		}
		CHECK(host_next(io, &a));
		CHECK(a.cid < DEPTH && busy[a.cid]);
		SAME(a.status, 0);
		busy[a.cid] = false;
		if (!writing[a.cid])
			CHECK(!memcmp(io->data + a.cid * PART, disk + a.cid * PART, block[a.cid] * 512));
		done++;
	}
	free(disk);
	hang_up_both();
}

static void the_key_is_ended_when_the_host_wants_it(void)
{
	connect_both();
	SAME(host_do(io, io_command(NV_IO_READ, 2, 0, 8, host_keyed(io, 0, 4096, true)), 0, NULL).status, 0);
	SAME(io->invalidated, 1);
	host_post(io, io_command(NV_IO_READ, 2, 0, 8, host_keyed(io, 0, 4096, false)), 0, NULL);
	CHECK(host_ends(io));
	hang_up_both();
}

static void a_listener_on_all_addresses_tells_each_host_its_own(void)
{
	const char *const by[] = {address, "::1"};

	for (int i = 0; i < (plain ? 1 : 2); i++) { /* hardware does not have ::1 */
		struct nv_sqe c = {
		        .opcode = NV_ADMIN_GET_LOG, .psdt = NV_PSDT_SGL, .cdw = {NV_LOG_DISCOVERY | 1023u << 16}};
		struct host *h = host_admin(by[i], (uint16_t)shared->port_any, NV_DISCOVERY_NQN);
		uint64_t n, found = 0;

		c.sgl = host_keyed(h, 0, 4096, false);
		SAME(host_do(h, c, 0, NULL).status, 0);
		n = nv_get64(h->data + 8);
		for (uint64_t k = 0; k < n && k < 3; k++) {
			const uint8_t *e = h->data + 1024 + 1024 * k;

			if (e[0] != NV_TRTYPE_RDMA || strtoul((const char *)e + 32, NULL, 10) != shared->port_any)
				continue;
			found++;
			SAME(e[1], i ? NV_ADRFAM_IPV6 : NV_ADRFAM_IPV4);
			CHECK(!strncmp((const char *)e + 512, by[i], strlen(by[i])));
			SAME(e[768], 1);
			SAME(e[769], 1);
			SAME(e[770], 1);
		}
		CHECK(found >= 1);
		host_hang_up(h);
	}
	CHECK(within(alone));
}

/* ---- invalid requests ---- */

static int dial_with(struct hello hello)
{
	struct host *h;
	int why = host_dial(address, (uint16_t)shared->port, &hello, &h);

	if (h)
		host_hang_up(h);
	return why;
}

static void private_data_that_is_none_is_rejected(void)
{
	struct hello h = hello_for(0);

	h.len = 0;
	/* InfiniBand's private data has no length: it is padded with zeros */
	CHECK(dial_with(h) == NT_RDMA_INVALID_LENGTH || dial_with(h) == NT_RDMA_INVALID_HSQSIZE);
	h = hello_for(0);
	h.h.recfmt = 1;
	SAME(dial_with(h), NT_RDMA_INVALID_FORMAT);
	h = hello_for(NT_QUEUES_MAX + 1);
	SAME(dial_with(h), NT_RDMA_INVALID_QID);
	h = hello_for(0);
	h.h.hsqsize = 128;
	SAME(dial_with(h), NT_RDMA_INVALID_HSQSIZE);
	h.h.hsqsize = 0;
	SAME(dial_with(h), NT_RDMA_INVALID_HSQSIZE);
	h = hello_for(1);
	h.h.hsqsize = 256;
	SAME(dial_with(h), NT_RDMA_INVALID_HSQSIZE);
	h = hello_for(1);
	h.h.hrqsize = 0;
	SAME(dial_with(h), NT_RDMA_INVALID_HRQSIZE);
	h = hello_for(1);
	h.responder_resources = 0;
	SAME(dial_with(h), NT_RDMA_INVALID_IRD);
	admin = host_admin(address, (uint16_t)shared->port, SUBNQN);
	h = hello_for(1);
	h.h.cntlid = admin->cntlid + 1; /* there is only one */
	SAME(dial_with(h), NT_RDMA_INVALID_CNTLID);
	h.h.cntlid = admin->cntlid;
	SAME(dial_with(h), 0);
	host_hang_up(admin);
	CHECK(within(alone));
}

static void descriptors_that_are_none_are_answered(void)
{
	static const uint8_t types[][2] = {{0, 0}, {4, 1}, {4, 0xa}, {5, 0xa}, {1, 0}, {2, 0}, {3, 0}, {0xf, 0xf}};

	connect_both();
	for (size_t i = 0; i < sizeof(types) / sizeof(*types); i++)
		for (int write = 0; write < 2; write++) {
			struct nv_sgl s = host_keyed(io, 0, 512, false);

			s.type = types[i][0];
			s.subtype = types[i][1];
			SAME(host_do(io, io_command(write ? NV_IO_WRITE : NV_IO_READ, 1, 0, 1, s), 0, NULL).status,
			     NV_SGL_TYPE | NV_DNR);
		}
	SAME(host_do(io, io_command(NV_IO_READ, 1, 0, 1, host_keyed(io, 0, 0, false)), 0, NULL).status,
	     NV_SGL_LENGTH | NV_DNR);
	SAME(host_do(io, io_command(NV_IO_WRITE, 1, 0, 1, host_keyed(io, 0, 0, false)), 0, NULL).status,
	     NV_SGL_LENGTH | NV_DNR);
	SAME(host_do(io, io_command(NV_IO_READ, 1, 0, 1, host_keyed(io, 0, 0xffffff, false)), 0, NULL).status,
	     NV_SGL_LENGTH | NV_DNR);
	SAME(host_do(io, io_command(NV_IO_READ, 1, 0, 8192, host_keyed(io, 0, 4 << 20, false)), 0, NULL).status,
	     NV_INVALID_FIELD | NV_DNR);
	SAME(host_do(io, io_command(NV_IO_WRITE, 1, 0, 1, host_inline(512)), 0, NULL).status, NV_SGL_LENGTH | NV_DNR);
	SAME(host_do(io, io_command(NV_IO_READ, 1, 0, 1, host_inline(512)), 512, io->data).status,
	     NV_SGL_TYPE | NV_DNR);
	SAME(host_do(io, io_command(NV_IO_READ, 1, BLOCKS, 1, host_keyed(io, 0, 512, false)), 0, NULL).status,
	     NV_LBA_RANGE | NV_DNR);
	SAME(host_do(io, io_command(NV_IO_READ, 1, 0, 1, host_keyed(io, 0, 512, false)), 0, NULL).status, 0);
	hang_up_both();
}

/* Each of these ends its own connection, and no other. */
static void a_wrong_key_ends_the_connection(void)
{
	connect_both();
	for (int i = 0; i < 6; i++) {
		struct host *other = host_io(admin, address, (uint16_t)shared->port, 2);
		struct nv_sgl s = host_keyed(other, 0, 4096, false);

		if (i / 2 == 0)
			s.key ^= 0x5500;
		else if (i / 2 == 1)
			s.address += HOST_DATA;
		else
			s.address = (uintptr_t)other->data + HOST_DATA - 2048;
		host_post(other, io_command(i & 1 ? NV_IO_WRITE : NV_IO_READ, 2, 0, 8, s), 0, NULL);
		CHECK(host_ends(other));
		host_hang_up(other);
		SAME(host_do(io, io_command(NV_IO_READ, 2, 0, 8, host_keyed(io, 0, 4096, false)), 0, NULL).status, 0);
		usleep(20000); /* until the target has released queue 2 */
		while (shared->connections > 2)
			usleep(1000);
	}
	hang_up_both();
}

static void a_capsule_of_a_wrong_length_ends_the_connection(void)
{
	static const uint32_t lengths[] = {0, 1, 16, 63, NV_SQE_LEN + 4097, HOST_CAPSULE};
	uint8_t sqe[NV_SQE_LEN] = {0};

	connect_both();
	for (size_t i = 0; i < sizeof(lengths) / sizeof(*lengths); i++) {
		struct host *other = host_io(admin, address, (uint16_t)shared->port, 2);

		host_send_raw(other, sqe, lengths[i], other->data);
		CHECK(host_ends(other));
		host_hang_up(other);
		while (shared->connections > 2)
			usleep(1000);
	}
	SAME(host_do(io, io_command(NV_IO_READ, 2, 0, 8, host_keyed(io, 0, 4096, false)), 0, NULL).status, 0);
	hang_up_both();
	for (uint32_t len = 65; len < 8192; len *= 2) { /* none on the admin queue */
		connect_both();
		host_send_raw(admin, sqe, len, admin->data);
		CHECK(host_ends(admin));
		hang_up_both();
	}
}

static void random_capsules_do_no_harm(void)
{
	uint64_t x = 88172645463325252ull;
	uint8_t sqe[NV_SQE_LEN];
	struct nv_cqe a;

	for (int round = 0; round < 30; round++) {
		connect_both();
		for (int i = 0; i < 60 && !io->ended; i++) {
			for (int k = 0; k < NV_SQE_LEN; k++) {
				x ^= x << 13, x ^= x >> 7, x ^= x << 17;
				sqe[k] = (uint8_t)(x >> 32);
			}
			if (i % 4) { /* not all of it */
				nv_put16(sqe, (uint16_t)(i % 3 ? 0x4001 : 0x4002));
				nv_put32(sqe + 4, 1 + (uint32_t)(x & 1));
				memset(sqe + 40, 0, 24);
				sqe[40] = (uint8_t)x;
			}
			nv_put16(sqe + 2, (uint16_t)i);
			host_send_raw(io, sqe, NV_SQE_LEN + (i % 5 ? 0 : 512), io->data);
			if (!host_next(io, &a))
				break;
		}
		hang_up_both();
	}
}

static void more_commands_than_the_queue_holds_do_no_harm(void)
{
	struct nv_sqe c = {.opcode = NV_ADMIN_ASYNC_EVENT, .psdt = NV_PSDT_SGL};
	struct nv_cqe a;

	connect_both();
	for (int i = 0; i < 100; i++)
		host_post(admin, c, 0, NULL);
	for (int i = 0; i < 90 && host_next(admin, &a); i++)
		SAME(a.status & 0xfff, NV_AER_LIMIT);
	hang_up_both();
	connect_both();
	for (int i = 0; i < 127; i++)
		host_post(io, io_command(NV_IO_READ, 1, 0, 2048, host_keyed(io, 0, 1 << 20, false)), 0, NULL);
	for (int i = 0; i < 127; i++) {
		CHECK(host_next(io, &a));
		SAME(a.status, 0);
	}
	hang_up_both();
}

static void hosts_that_leave_in_the_middle(void)
{
	for (int i = 0; i < 12; i++) {
		connect_both();
		for (int k = 0; k < 3 * i; k++)
			host_post(io,
			          io_command(k & 1 ? NV_IO_WRITE : NV_IO_READ, 1 + k % 3, 0, 2048,
			                     host_keyed(io, 0, 1 << 20, false)),
			          0, NULL);
		if (i & 1)
			host_free(io);
		else
			host_hang_up(io);
		host_hang_up(admin);
		CHECK(within(alone));
	}
}

static void die(uint32_t commands)
{
	connect_both();
	for (uint32_t k = 0; k < commands; k++)
		host_post(io,
		          io_command(k & 1 ? NV_IO_WRITE : NV_IO_READ, 1 + k % 3, 0, 2048,
		                     host_keyed(io, 0, 1 << 20, false)),
		          0, NULL);
	kill(getpid(), SIGKILL);
}

/* A separate program, because a child of fork() must not use the adapter. */
static void hosts_that_die(void)
{
	char port[16], commands[16];
	int status;

	snprintf(port, sizeof(port), "%u", (unsigned)shared->port);
	for (int i = 0; i < 3; i++) {
		snprintf(commands, sizeof(commands), "%d", 20 * i);
		pid_t pid = fork();

		if (!pid) {
			execl("/proc/self/exe", "rdma_test", address, "die", port, commands, NULL);
			_exit(1);
		}
		SAME(waitpid(pid, &status, 0), pid);
		CHECK(WIFSIGNALED(status) && WTERMSIG(status) == SIGKILL);
		CHECK(within(alone));
	}
}

static void a_host_that_says_nothing_is_not_waited_for(void)
{
	struct hello hello = hello_for(0);
	struct host *h;

	SAME(host_dial(address, (uint16_t)shared->port, &hello, &h), 0);
	CHECK(host_ends(h));
	host_hang_up(h);
	CHECK(within(alone));
}

/* It accepts no answers: it has posted no receives. */
static void a_host_that_does_not_listen_is_not_waited_for(void)
{
	struct ibv_wc wc;
	int got = 0;

	connect_both();
	for (uint32_t i = 0; i < HOST_DEPTH + 20; i++) {
		host_post(io, io_command(NV_IO_READ, 2, 0, 1, host_keyed(io, 0, 512, false)), 0, NULL);
		usleep(1000);
	}
	for (int i = 0; i < WAIT_MS / 10 && !io->ended; i++) {
		while (ibv_poll_cq(io->cq, 1, &wc) == 1) {
			got += wc.status == IBV_WC_SUCCESS && wc.wr_id != ~0ull;
			io->ended |= wc.status != IBV_WC_SUCCESS;
		}
		SAME(host_do(admin, (struct nv_sqe){.opcode = NV_ADMIN_KEEP_ALIVE, .psdt = NV_PSDT_SGL}, 0, NULL)
		             .status,
		     0);
		if (shared->connections == 1)
			break;
		usleep(10000);
	}
	CHECK(got <= (int)HOST_DEPTH);
	SAME(shared->connections, 1);
	hang_up_both();
}

/* Writes to the sink like a host that has guessed its key. */
static void write_to_sink(struct host *h)
{
	struct ibv_sge s = {.addr = (uintptr_t)h->data, .length = 64, .lkey = h->data_mr->lkey};
	struct ibv_send_wr w = {.wr_id = 77,
	                        .sg_list = &s,
	                        .num_sge = 1,
	                        .opcode = IBV_WR_RDMA_WRITE,
	                        .send_flags = IBV_SEND_SIGNALED,
	                        .wr.rdma = {.remote_addr = shared->sink_at, .rkey = shared->sink_key}},
	                   *bad;
	struct ibv_wc wc = {0};

	h->data[0] = 0xa5;
	SAME(ibv_post_send(h->id->qp, &w, &bad), 0);
	for (int i = 0; i < WAIT_MS / 10 && wc.wr_id != 77; i++) {
		if (ibv_poll_cq(h->cq, 1, &wc) == 1 && wc.wr_id == 77)
			break;
		usleep(10000);
	}
	SAME(wc.wr_id, 77);
	usleep(300000); /* with iWARP a write completes when it is sent, not when it has arrived */
}

static void a_sink_is_for_its_own_connection_alone(void)
{
	connect_both();
	if (admin->id->verbs->device->transport_type != IBV_TRANSPORT_IWARP) {
		hang_up_both();
		return;
	}
	for (int own = 0; own < 2; own++) {
		if (own)
			connect_both();
		shared->sink = SINK_WANTED;
		while (shared->sink != SINK_THERE)
			usleep(1000);
		write_to_sink(own ? admin : io);
		shared->sink = SINK_DONE;
		while (shared->sink != SINK_CLOSED)
			usleep(1000);
		SAME(shared->written, own ? 0xa5 : 0);
		hang_up_both();
	}
}

static void no_more_connections_than_allowed(void)
{
	static struct host *many[CONNECTIONS];

	for (int i = 0; i < CONNECTIONS; i++)
		many[i] = host_admin(address, (uint16_t)shared->port, SUBNQN);
	SAME(dial_with(hello_for(0)), NT_RDMA_NO_RESOURCES);
	for (int i = 0; i < CONNECTIONS; i++) {
		SAME(host_do(many[i], (struct nv_sqe){.opcode = NV_ADMIN_KEEP_ALIVE, .psdt = NV_PSDT_SGL}, 0, NULL)
		             .status,
		     0);
		host_hang_up(many[i]);
	}
	CHECK(within(alone));
}

static void a_file_that_shrinks_ends_the_connection_at_most(void)
{
	struct nv_cqe a;

	connect_both();
	SAME(host_do(io, io_command(NV_IO_READ, 3, 0, 64, host_keyed(io, 0, 32 << 10, false)), 0, NULL).status, 0);
	SAME(ftruncate(9, 4096), 0);
	host_post(io, io_command(NV_IO_READ, 3, 1024, 64, host_keyed(io, 0, 32 << 10, false)), 0, NULL);
	if (host_next(io, &a))
		CHECK(a.status);
	hang_up_both();
	connect_both();
	SAME(host_do(io, io_command(NV_IO_READ, 1, 0, 64, host_keyed(io, 0, 32 << 10, false)), 0, NULL).status, 0);
	hang_up_both();
}

int main(int argc, char **argv)
{
	setvbuf(stdout, NULL, _IOLBF, 0);
	if (argc > 1)
		address = argv[1];
	plain = argc > 2;
	if (argc == 5 && !strcmp(argv[2], "die")) {
		static struct shared only_the_port;

		shared = &only_the_port;
		shared->port = (uint32_t)atoi(argv[3]);
		die((uint32_t)atoi(argv[4]));
	}
	up();
	RUN(a_host_identifies_the_controller);
	RUN(what_is_written_is_read);
	RUN(data_may_come_in_the_capsule);
	RUN(reads_of_a_map_are_sent_from_where_they_lie);
	RUN(a_namespace_that_is_removed_is_let_go_of);
	RUN(many_commands_at_once);
	if (!plain)
		RUN(the_key_is_ended_when_the_host_wants_it);
	RUN(a_listener_on_all_addresses_tells_each_host_its_own);
	RUN(private_data_that_is_none_is_rejected);
	RUN(descriptors_that_are_none_are_answered);
	RUN(a_wrong_key_ends_the_connection);
	RUN(a_capsule_of_a_wrong_length_ends_the_connection);
	RUN(random_capsules_do_no_harm);
	RUN(more_commands_than_the_queue_holds_do_no_harm);
	RUN(hosts_that_leave_in_the_middle);
	RUN(hosts_that_die);
	RUN(a_host_that_says_nothing_is_not_waited_for);
	RUN(a_host_that_does_not_listen_is_not_waited_for);
	RUN(a_sink_is_for_its_own_connection_alone);
	RUN(no_more_connections_than_allowed);
	RUN(a_file_that_shrinks_ends_the_connection_at_most);
	down();
	return 0;
}
