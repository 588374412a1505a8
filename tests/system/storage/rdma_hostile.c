// rdma_hostile.c - hosts that violate NVMe over RDMA, one after the other, against verbena-target: it answers as the
// specification demands or ends that connection, nothing remains, and another host's requests continue undisturbed
// follows: NVMe over Fabrics 1.1, 3.3 (Connect), 7.3 (RDMA transport)
// SPDX-License-Identifier: MIT
// usage: rdma_hostile TARGET
#include <fcntl.h>
#include <pthread.h>
#include <signal.h>
#include <stdatomic.h>
#include <sys/wait.h>
#include <unistd.h>

#include "client_load.h"
#include "rdma_host.h"
#include "target/target.h"

#define ADDRESS "127.0.0.1"
#define BLOCKS ((16u << 20) / 512)
#define LARGE 4096u /* blocks of the largest command */
#define WAIT_MS 60000

static const char *program;
static char url[300];
static uint16_t port;
static pid_t target;
static atomic_bool stop;
static atomic_ullong good; /* requests of the other host */
static struct host *admin;

/* ---- the target ---- */

static void start(void)
{
	char line[300] = "", *at;
	int pipes[2];

	CHECK(!pipe2(pipes, O_CLOEXEC));
	target = fork();
	if (!target) {
		dup2(pipes[1], 1);
		execl(program, program, "--export", "memory:16M", "--export", "memory:4M", "--port", "0", "--nqn",
		      SUBNQN, "--transport", "rdma", (char *)NULL);
		_exit(127);
	}
	close(pipes[1]);
	FILE *f = fdopen(pipes[0], "r");

	CHECK(f && fgets(line, sizeof(line), f) && (at = strstr(line, ADDRESS ":")));
	fclose(f);
	port = (uint16_t)atoi(at + sizeof(ADDRESS));
	snprintf(url, sizeof(url), "nvme+rdma://" ADDRESS ":%u/" SUBNQN "?nsid=2", port);
}

static void kill_target(void)
{
	if (target)
		kill(target, SIGKILL);
}

/* Reads a number from its status. */
static unsigned long status(const char *key)
{
	char command[600], line[300], name[40];
	unsigned long n = ~0ul, k;

	snprintf(command, sizeof(command), "'%s' status --port %u", program, port);
	FILE *f = popen(command, "r");

	CHECK(f);
	while (fgets(line, sizeof(line), f))
		if (sscanf(line, " \"%39[^\"]\": %lu", name, &k) == 2 && !strcmp(name, key))
			n = k;
	pclose(f);
	CHECK(n != ~0ul);
	return n;
}

/* Checks that only the other host's two connections exist. */
static void alone(unsigned connections)
{
	for (int i = 0; i < WAIT_MS / 20 && status("connections") != connections; i++)
		usleep(20000);
	SAME(status("connections"), connections);
	SAME(waitpid(target, NULL, WNOHANG), 0);
}

static void *undisturbed(void *arg)
{
	struct load *l = arg;

	while (!stop) {
		load_run(l, 50);
		good = l->ended;
	}
	return NULL;
}

static void others_get_on(void)
{
	unsigned long long so_far = good;

	while (good < so_far + 200) {
		SAME(waitpid(target, NULL, WNOHANG), 0);
		usleep(1000);
	}
}

/* ---- hosts ---- */

static struct nv_sqe keyed(uint8_t opcode, uint32_t blocks, struct nv_sgl s)
{
	return io_command(opcode, 1, 0, blocks, s);
}

/* Connect, with fields that may be invalid. */
static struct nv_cqe connect_as(struct host *h, uint16_t qid, uint16_t cntlid, uint16_t sqsize)
{
	struct nv_sqe c = {.opcode = NV_FABRICS,
	                   .psdt = NV_PSDT_SGL,
	                   .fctype = NV_FCT_CONNECT,
	                   .cdw = {(uint32_t)qid << 16, sqsize}};

	memset(h->data, 0, NV_CONNECT_DATA_LEN);
	h->data[NV_CONNECT_AT_HOSTID] = 7;
	nv_put16(h->data + NV_CONNECT_AT_CNTLID, cntlid);
	strcpy((char *)h->data + NV_CONNECT_AT_SUBNQN, SUBNQN);
	strcpy((char *)h->data + NV_CONNECT_AT_HOSTNQN, HOSTNQN);
	c.sgl = host_keyed(h, 0, NV_CONNECT_DATA_LEN, false);
	return host_do(h, c, 0, NULL);
}

static struct host *dial(struct hello hello)
{
	struct host *h;

	SAME(host_dial(ADDRESS, port, &hello, &h), 0);
	return h;
}

static int refused(struct hello hello)
{
	struct host *h;
	int why = host_dial(ADDRESS, port, &hello, &h);

	if (h)
		host_hang_up(h);
	return why;
}

static void up(void)
{
	admin = host_admin(ADDRESS, port, SUBNQN);
}

static void down(void)
{
	host_hang_up(admin);
	alone(2);
	others_get_on();
}

static struct host *queue(uint16_t qid)
{
	return host_io(admin, ADDRESS, port, qid);
}

/* The connection has ended, and the others have not. */
static void ends(struct host *h)
{
	CHECK(host_ends(h));
	host_hang_up(h);
	alone(3);
}

/* ---- queues ---- */

static void private_data_with_wrong_numbers_is_rejected(void)
{
	static const uint16_t numbers[] = {0, 1, 255, 256, 4095, 65535};
	struct hello h;

	for (size_t i = 0; i < sizeof(numbers) / sizeof(*numbers); i++)
		for (uint16_t qid = 0; qid < 2; qid++) {
			uint16_t n = numbers[i];
			bool fits = n && n < (qid ? NT_IO_ENTRIES_MAX : NT_ADMIN_ENTRIES);

			h = hello_for(qid);
			h.h.recfmt = n;
			SAME(refused(h), n ? NT_RDMA_INVALID_FORMAT : 0);
			h = hello_for(qid);
			h.h.hsqsize = n;
			SAME(refused(h), fits ? 0 : NT_RDMA_INVALID_HSQSIZE);
			h = hello_for(qid);
			h.h.hrqsize = n;
			SAME(refused(h), n ? 0 : NT_RDMA_INVALID_HRQSIZE);
			h = hello_for(n);
			SAME(refused(h), n <= NT_QUEUES_MAX ? 0 : NT_RDMA_INVALID_QID);
		}
	alone(2);
}

#define IN_COMMAND(at) (at)
#define IN_DATA(at) ((at) | 1u << 16)

static void wrong(struct host *h, uint16_t qid, uint16_t cntlid, uint16_t sqsize, uint32_t at)
{
	struct nv_cqe a = connect_as(h, qid, cntlid, sqsize);

	SAME(a.status, NV_CONNECT_PARAMETER | NV_DNR);
	SAME(a.result, at);
}

static void queues_that_were_never_made_are_not_there(void)
{
	struct host *h;

	up();
	h = dial(hello_for(NT_QUEUES_MAX)); /* more than a host may have */
	wrong(h, NT_QUEUES_MAX, admin->cntlid, 127, IN_COMMAND(NV_CONNECT_AT_QID));
	host_hang_up(h);
	h = dial(hello_for(1));
	wrong(h, 1, 0x1234, 127, IN_DATA(NV_CONNECT_AT_CNTLID));
	wrong(h, 1, NV_CNTLID_DYNAMIC, 127, IN_DATA(NV_CONNECT_AT_CNTLID));
	wrong(h, 1, admin->cntlid, 0, IN_COMMAND(NV_CONNECT_AT_SQSIZE));
	wrong(h, 1, admin->cntlid, NT_IO_ENTRIES_MAX, IN_COMMAND(NV_CONNECT_AT_SQSIZE));
	wrong(h, NT_QUEUES_MAX + 1, admin->cntlid, 127, IN_COMMAND(NV_CONNECT_AT_QID));
	/* a command before Connect */
	SAME(host_do(h, keyed(NV_IO_READ, 1, host_keyed(h, 0, 512, false)), 0, NULL).status, NV_SEQUENCE | NV_DNR);
	SAME(connect_as(h, 1, admin->cntlid, 127).status, 0);
	SAME(connect_as(h, 1, admin->cntlid, 127).status, NV_SEQUENCE | NV_DNR);
	SAME(connect_as(h, 2, admin->cntlid, 127).status, NV_SEQUENCE | NV_DNR);
	SAME(host_do(h, keyed(NV_IO_READ, 1, host_keyed(h, 0, 512, false)), 0, NULL).status, 0);
	struct host *twin = dial(hello_for(1));

	SAME(connect_as(twin, 1, admin->cntlid, 127).status, NV_SEQUENCE | NV_DNR); /* the queue exists already */
	host_hang_up(twin);
	host_hang_up(h);
	down();
}

/* The receives and the room for responses are those of the queue that was named first. */
static void a_queue_that_is_another_one_than_it_said_is_refused(void)
{
	static const uint16_t said[] = {0, 0, 1, 1, 2}, is[] = {1, 2, 0, 2, 1};

	up();
	for (size_t i = 0; i < sizeof(said) / sizeof(*said); i++) {
		struct host *h = dial(hello_for(said[i]));

		wrong(h, is[i], is[i] ? admin->cntlid : NV_CNTLID_DYNAMIC, is[i] ? 255 : 31,
		      IN_COMMAND(NV_CONNECT_AT_QID));
		host_hang_up(h);
	}
	down();
}

static void flood(struct host *h, uint32_t n, uint32_t blocks)
{
	struct nv_cqe a;

	for (uint32_t i = 0; i < n; i++)
		host_post(h, keyed(i & 1 ? NV_IO_WRITE : NV_IO_READ, blocks, host_keyed(h, 0, blocks * 512, false)), 0,
		          NULL);
	for (uint32_t i = 0; i < n && host_next(h, &a); i++)
		SAME(a.status, 0);
	host_hang_up(h);
}

/* All are answered, or the connection ends. Not too many: the adapter waits half a second for each that finds no
 * receive. */
static void more_commands_than_a_queue_holds(void)
{
	static const uint16_t sizes[] = {1, 2, 7, 127, 255};

	up();
	for (size_t i = 0; i < sizeof(sizes) / sizeof(*sizes); i++)
		for (int larger = 0; larger < 2; larger++) { /* than announced in the private data */
			struct hello hello = hello_for(1);

			hello.h.hsqsize = sizes[i];
			for (uint32_t blocks = 1; blocks <= LARGE; blocks *= LARGE) {
				struct host *h = dial(hello);

				SAME(connect_as(h, 1, admin->cntlid, larger ? 255 : sizes[i]).status, 0);
				flood(h, sizes[i] < 16 ? 2 * (sizes[i] + 1u) : 250, blocks);
				alone(3);
			}
		}
	down();
}

/* ---- memory ---- */

/* Memory that the host has not opened, or with other rights, or less of it: that connection ends. */
static void keys_that_do_not_fit_end_the_connection(void)
{
	uint8_t *own = calloc(1, 1 << 20);

	CHECK(own);
	up();
	for (int i = 0; i < 10; i++) {
		struct host *h = queue(1);
		struct ibv_pd *pd = ibv_alloc_pd(h->id->verbs);
		struct nv_sgl s = host_keyed(h, 0, LARGE * 512, false);
		bool write = i & 1;
		int access = i / 2 == 0 ? IBV_ACCESS_LOCAL_WRITE | IBV_ACCESS_REMOTE_WRITE | IBV_ACCESS_REMOTE_READ
		             : write    ? IBV_ACCESS_LOCAL_WRITE | IBV_ACCESS_REMOTE_WRITE
		                        : IBV_ACCESS_REMOTE_READ;
		struct ibv_mr *mr = ibv_reg_mr(i / 2 == 0 ? pd : h->id->pd, own, 1 << 20, access);

		CHECK(pd && mr);
		if (i / 2 <= 1) { /* of another protection domain; only the other right */
			s.key = mr->rkey;
			s.address = (uintptr_t)own;
		} else if (i / 2 == 2) {
			s.address += HOST_DATA - LARGE * 512 + 1; /* the last byte is out of bounds */
		} else if (i / 2 == 3) {
			s.address -= 1;
		} else {
			s.address = UINT64_MAX - 512; /* wraps around */
		}
		host_post(h, keyed(write ? NV_IO_WRITE : NV_IO_READ, LARGE, s), 0, NULL);
		CHECK(host_ends(h));
		for (uint32_t k = 0; k < 1 << 20; k++)
			SAME(own[k], 0);
		SAME(ibv_dereg_mr(mr), 0);
		SAME(ibv_dealloc_pd(pd), 0);
		host_hang_up(h);
		alone(3);
	}
	free(own);
	down();
}

static void lengths_that_do_not_fit_are_answered(void)
{
	static const uint32_t blocks[] = {1, 8, LARGE, LARGE + 1, 2 * LARGE, 65536},
	                      lengths[] = {0, 1, 511, 513, LARGE * 512 - 1, LARGE * 512 + 1, 0xffffff};
	struct host *h;

	up();
	h = queue(1);
	for (size_t i = 0; i < sizeof(blocks) / sizeof(*blocks); i++)
		for (size_t k = 0; k < sizeof(lengths) / sizeof(*lengths); k++)
			for (int write = 0; write < 2; write++) {
				struct nv_sqe c = keyed(write ? NV_IO_WRITE : NV_IO_READ, blocks[i],
				                        host_keyed(h, 0, lengths[k], false));
				uint16_t is = host_do(h, c, 0, NULL).status;

				SAME(is, NV_DNR | (blocks[i] > BLOCKS  ? NV_LBA_RANGE
				                   : blocks[i] > LARGE ? NV_INVALID_FIELD
				                                       : NV_SGL_LENGTH));
			}
	for (uint32_t at = 1; at < 1 << 20; at *= 3) { /* the place of data in the capsule is fixed */
		struct nv_sqe c = keyed(NV_IO_WRITE, 1, host_inline(512));

		c.sgl.address = at;
		SAME(host_do(h, c, 512, h->data).status, NV_SGL_OFFSET_INVALID | NV_DNR);
		c.sgl = host_inline(512 + at);
		SAME(host_do(h, c, 512, h->data).status, NV_SGL_LENGTH | NV_DNR);
	}
	SAME(host_do(h, keyed(NV_IO_READ, LARGE, host_keyed(h, 0, LARGE * 512, false)), 0, NULL).status, 0);
	host_hang_up(h);
	down();
}

static void many_under_way(struct host *h, unsigned n, bool invalidate)
{
	for (unsigned i = 0; i < n; i++)
		host_post(h, keyed(i % 3 ? NV_IO_WRITE : NV_IO_READ, LARGE, host_keyed(h, 0, LARGE * 512, invalidate)),
		          0, NULL);
}

/* Its memory is deregistered while the target reads and writes it. */
static void keys_that_end_in_the_middle(void)
{
	uint64_t seed = 77;

	up();
	for (int i = 0; i < 24; i++) {
		struct host *h = queue(1);
		int access = IBV_ACCESS_LOCAL_WRITE | IBV_ACCESS_REMOTE_READ | IBV_ACCESS_REMOTE_WRITE;

		many_under_way(h, 60, i % 2); /* the first answer ends the key for the others */
		usleep((unsigned)(draw(&seed) % 3000));
		SAME(ibv_dereg_mr(h->data_mr), 0);
		memset(h->data, (uint8_t)i, HOST_DATA);
		CHECK(host_ends(h));
		for (uint32_t k = 0; k < HOST_DATA; k++) /* after the end of its key nobody writes there */
			SAME(h->data[k], (uint8_t)i);
		CHECK((h->data_mr = ibv_reg_mr(h->id->pd, h->data, HOST_DATA, access)));
		host_hang_up(h);
		alone(3);
	}
	down();
}

static void connections_that_end_in_the_middle(void)
{
	uint64_t seed = 99;

	up();
	for (int i = 0; i < 30; i++) {
		struct host *h = queue(1);

		many_under_way(h, 100, false);
		usleep((unsigned)(draw(&seed) % 4000));
		if (i % 3 == 0)
			rdma_disconnect(h->id);
		if (i % 3 == 1) {
			struct ibv_qp_attr a = {.qp_state = IBV_QPS_ERR};

			ibv_modify_qp(h->id->qp, &a, IBV_QP_STATE);
		}
		host_free(h);
		alone(3);
	}
	down();
}

/* ---- invalid capsules ---- */

static void post(struct host *h, enum ibv_wr_opcode opcode, uint32_t length, uint64_t address, uint32_t key)
{
	struct ibv_sge s = {.addr = (uintptr_t)h->data, .length = length, .lkey = h->data_mr->lkey};
	struct ibv_send_wr w = {.wr_id = ~0ull,
	                        .sg_list = &s,
	                        .num_sge = 1,
	                        .opcode = opcode,
	                        .send_flags = IBV_SEND_SIGNALED,
	                        .wr.rdma = {.remote_addr = address, .rkey = key}},
	                   *bad;

	if (opcode == IBV_WR_SEND_WITH_INV)
		w.invalidate_rkey = key;
	ibv_post_send(h->id->qp, &w, &bad); /* it may have ended already */
}

static void sends_that_are_no_capsules_end_the_connection(void)
{
	static const uint32_t lengths[] = {0, 1, NV_SQE_LEN - 1, NV_SQE_LEN + 4096 + 1, 65536, HOST_DATA};
	bool iwarp;

	up();
	for (size_t i = 0; i < sizeof(lengths) / sizeof(*lengths); i++) {
		struct host *h = queue(1);

		memset(h->data, 0, HOST_DATA);
		post(h, IBV_WR_SEND, lengths[i], 0, 0);
		ends(h);
	}
	struct host *h = queue(1);

	iwarp = h->id->verbs->device->transport_type == IBV_TRANSPORT_IWARP;
	post(h, IBV_WR_SEND_WITH_IMM, NV_SQE_LEN, 0, 0);
	ends(h);
	if (!iwarp) {
		h = queue(1);
		post(h, IBV_WR_RDMA_WRITE_WITH_IMM, 0, 0, 0);
		ends(h);
	}
	h = queue(1);
	post(h, IBV_WR_SEND_WITH_INV, NV_SQE_LEN, 0, h->data_mr->rkey);
	CHECK(host_ends(h));
	host_hang_up(h);
	alone(3);
	down();
}

/* The target reveals no key, so keys that a host guesses are invalid. */
static void keys_of_the_target_cannot_be_guessed(void)
{
	uint64_t seed = 1234;

	up();
	for (int i = 0; i < 40; i++) {
		struct host *h = queue(1);
		uint32_t key = i < 8 ? (uint32_t)i : i < 16 ? h->data_mr->rkey + (uint32_t)i : (uint32_t)draw(&seed);

		post(h, i & 1 ? IBV_WR_RDMA_WRITE : IBV_WR_RDMA_READ, 4096, (uintptr_t)h->data & ~0xfffull, key);
		ends(h);
	}
	down();
}

static void begin_other(struct load *l)
{
	struct vn_options o;
	char why[200] = "";

	vn_options_init(&o);
	o.numeric = 1;
	o.connect_ms = 60000;
	o.host_nqn = "nqn.2026-01.test:good";
	if (vn_open(url, &o, &l->disk, why, sizeof(why))) {
		fprintf(stderr, "%s: %s\n", url, why);
		exit(1);
	}
	l->registered = true;
	load_begin(l);
}

int main(int argc, char **argv)
{
	struct load l = {.depth = 8, .largest = 64 << 10, .seed = 3};
	struct vn_statistics s;
	pthread_t other;
	int ended;

	setvbuf(stdout, NULL, _IOLBF, 0);
	CHECK(argc == 2);
	program = argv[1];
	atexit(kill_target);
	start();
	begin_other(&l);
	SAME(pthread_create(&other, NULL, undisturbed, &l), 0);
	RUN(private_data_with_wrong_numbers_is_rejected);
	RUN(queues_that_were_never_made_are_not_there);
	RUN(a_queue_that_is_another_one_than_it_said_is_refused);
	RUN(more_commands_than_a_queue_holds);
	RUN(keys_that_do_not_fit_end_the_connection);
	RUN(lengths_that_do_not_fit_are_answered);
	RUN(keys_that_end_in_the_middle);
	RUN(connections_that_end_in_the_middle);
	RUN(sends_that_are_no_capsules_end_the_connection);
	RUN(keys_of_the_target_cannot_be_guessed);
	stop = true;
	pthread_join(other, NULL);
	load_end(&l);
	vn_statistics(l.disk, &s);
	SAME(s.reconnects, 0);
	SAME(s.retries, 0);
	vn_close(l.disk);
	alone(0);
	SAME(status("memory_used"), 0);
	SAME(kill(target, SIGTERM), 0);
	SAME(waitpid(target, &ended, 0), target);
	target = 0;
	SAME(ended, 0);
	return 0;
}
