// death.c - programs end, by themselves or killed, and so does the broker: what the others observe
// follows: IBA volume 1, 9.9.2 (requester errors), 10.3.1 (states)
// see: docs/same-host.md
// SPDX-License-Identifier: MIT
#include "pair.h"

#include <dirent.h>
#include <pthread.h>
#include <signal.h>
#include <sys/resource.h>

static void open_side(struct dev *d, struct link *l, struct mem *m, const struct conf *c, int fd)
{
	dev_open(d);
	mem_make(m, d, 4 << 20);
	link_open(l, d, c, fd);
}

/* --- SIGKILL --- */

static void busy_target(int fd, void *arg)
{
	struct dev d;
	struct link l;
	struct mem m;
	struct ibv_wc wc;

	open_side(&d, &l, &m, &(struct conf){.depth = 64}, fd);
	mem_tell(&m, fd);
	for (uint64_t posted = 0, got = 0;;) {
		if (posted - got < 64)
			post_recv(&l, posted++, &m, 0, 1 << 16);
		got += (uint64_t)ibv_poll_cq(l.rcq, 1, &wc);
	}
}

/*
 * The peer is killed during traffic. Fails if the death is only noticed by the timer (more than two minutes here), if
 * requests are lost, or if the order of RETRY_EXC, then FLUSH, differs.
 */
static void kill_in_traffic(enum ibv_wr_opcode op, uint32_t len, unsigned after_ms)
{
	struct peer p = start(busy_target, NULL);
	struct conf c = {.depth = 16, .timeout = 22, .retry = 7};
	struct dev d;
	struct link l;
	struct mem m;
	struct ibv_wc wc;
	uint64_t posted = 0, done = 0, killed = 0;
	bool failed = false;

	open_side(&d, &l, &m, &c, p.fd);
	struct far far = far_hear(p.fd);
	uint64_t t0 = now_ms();

	while (!failed || done < posted) {
		while (!failed && posted - done < 16)
			POST(&l, .op = op, .id = posted++, .m = &m, .len = len, .far = far);
		if (!killed && now_ms() - t0 >= after_ms) {
			kill(p.pid, SIGKILL);
			killed = now_ms();
		}
		int n = ibv_poll_cq(l.scq, 1, &wc);

		CHECK(!killed || now_ms() - killed < PATIENCE);
		if (!n)
			continue;
		SAME(wc.wr_id, done);
		done++;
		if (wc.status == IBV_WC_SUCCESS) {
			CHECK(!failed);
		} else if (!failed) {
			CHECK(killed);
			SAME(wc.status, IBV_WC_RETRY_EXC_ERR);
			failed = true;
		} else {
			SAME(wc.status, IBV_WC_WR_FLUSH_ERR);
		}
	}
	SAME(state_of(l.qp), IBV_QPS_ERR);
	expect_none(l.scq, 20);
}

static void killing_a_peer_ends_sends_with_retry_exceeded(void)
{
	for (unsigned i = 0; i < 4; i++)
		kill_in_traffic(IBV_WR_SEND, 64, 20 + i);
}

static void killing_a_peer_ends_large_sends_with_retry_exceeded(void)
{
	for (unsigned i = 0; i < 4; i++)
		kill_in_traffic(IBV_WR_SEND, 65536, 20 + i);
}

static void killing_a_peer_ends_writes_with_retry_exceeded(void)
{
	kill_in_traffic(IBV_WR_RDMA_WRITE, 64, 20);
	kill_in_traffic(IBV_WR_RDMA_WRITE, 1 << 20, 20);
}

static void killing_a_peer_ends_reads_with_retry_exceeded(void)
{
	kill_in_traffic(IBV_WR_RDMA_READ, 64, 20);
	kill_in_traffic(IBV_WR_RDMA_READ, 1 << 20, 20);
}

static void killing_a_peer_ends_atomics_with_retry_exceeded(void)
{
	kill_in_traffic(IBV_WR_ATOMIC_FETCH_AND_ADD, 8, 20);
}

static void killing_a_peer_ends_reads_by_ring_with_retry_exceeded(void)
{
	CHECK(forbid_process_vm(EPERM));
	kill_in_traffic(IBV_WR_RDMA_READ, 1 << 20, 20);
	kill_in_traffic(IBV_WR_RDMA_WRITE, 1 << 20, 20);
}

/* The requester sleeps in ibv_get_cq_event. Fails if its progress thread is not told of the death. */
static void a_sleeper_hears_of_the_death_of_its_peer(void)
{
	struct peer p = start(busy_target, NULL);
	struct dev d;
	struct link l;
	struct mem m;
	struct ibv_comp_channel *ch;
	struct ibv_cq *cq;
	void *ctx;

	dev_open(&d);
	mem_make(&m, &d, 4096);
	ch = ibv_create_comp_channel(d.ctx);
	CHECK(ch);
	cq = ibv_create_cq(d.ctx, 100, NULL, ch, 0);
	CHECK(cq && !ibv_req_notify_cq(cq, 0));
	struct conf c = {.scq = cq, .rcq = cq, .timeout = 24};
	link_open(&l, &d, &c, p.fd);
	far_hear(p.fd);
	stop_peer(&p);
	POST(&l, .op = IBV_WR_ATOMIC_FETCH_AND_ADD, .id = 5, .m = &m, .len = 8, .far = {(uintptr_t)m.p, m.mr->rkey, 0});
	sleep_ms(50);
	CHECK(!heard(ch->fd, 0));
	kill(p.pid, SIGKILL);
	CHECK(heard(ch->fd, PATIENCE));
	CHECK(!ibv_get_cq_event(ch, &cq, &ctx));
	ibv_ack_cq_events(cq, 1);
	expect(cq, 5, IBV_WC_RETRY_EXC_ERR);
}

/* --- before anything was sent --- */

static void only_an_address(int fd, void *arg)
{
	struct dev d;
	struct link l;
	char c;

	dev_open(&d);
	link_make(&l, &d, &(struct conf){0});
	tell(fd, &l.me, sizeof(l.me));
	hear(fd, &c, 1);
}

static void *kill_soon(void *arg)
{
	sleep_ms(100);
	kill(((struct peer *)arg)->pid, SIGKILL);
	return NULL;
}

/* A stopped peer does not map us, and a queue pair that goes to RTR waits for that. Fails if the death frees what is in
 * use meanwhile. */
static void a_peer_may_die_while_a_queue_pair_is_made_ready_to_receive(void)
{
	struct peer p = start(only_an_address, NULL);
	struct conf c = {.timeout = 8, .retry = 1};
	struct addr it;
	struct dev d;
	struct link l;
	struct mem m;
	pthread_t t;

	dev_open(&d);
	mem_make(&m, &d, 4096);
	link_make(&l, &d, &c);
	hear(p.fd, &it, sizeof(it));
	stop_peer(&p);
	CHECK(!pthread_create(&t, NULL, kill_soon, &p));
	link_to(&l, &it);
	CHECK(!pthread_join(t, NULL));
	POST(&l, .op = IBV_WR_SEND, .id = 1, .m = &m, .len = 64);
	expect(l.scq, 1, IBV_WC_RETRY_EXC_ERR);
	link_end(&l);
}

/* --- what was received before the end --- */

enum last_act { EXIT_AT_ONCE, DESTROY_AND_WAIT, RESET_AND_WAIT, ERROR_AND_WAIT, KILLED };

static void last_receiver(int fd, void *arg)
{
	enum last_act act = *(enum last_act *)arg;
	struct dev d;
	struct link l;
	struct mem m;
	char c;

	open_side(&d, &l, &m, &(struct conf){0}, fd);
	post_recv(&l, 1, &m, 0, 1 << 20);
	meet_up(fd);
	expect(l.rcq, 1, IBV_WC_SUCCESS);
	if (act == EXIT_AT_ONCE)
		_exit(0);
	if (act == KILLED)
		kill(getpid(), SIGKILL);
	if (act == DESTROY_AND_WAIT)
		CHECK(!ibv_destroy_qp(l.qp));
	if (act == RESET_AND_WAIT)
		CHECK(!to_state(l.qp, IBV_QPS_RESET));
	if (act == ERROR_AND_WAIT)
		CHECK(!to_state(l.qp, IBV_QPS_ERR));
	hear(fd, &c, 1);
}

/*
 * The message was received, so the sender's completion is a success, whatever the receiver does after polling its last
 * receive. An adapter acknowledges before it completes. Fails if a held acknowledgement is lost, or if the sender
 * ignores what a queue pair published before it ended.
 */
static void last_message(enum last_act act, uint32_t len, bool late)
{
	for (int i = 0; i < 20; i++) {
		struct peer p = start(last_receiver, &act);
		struct conf c = {.timeout = 8, .retry = 2};
		struct dev d;
		struct link l;
		struct mem m;

		open_side(&d, &l, &m, &c, p.fd);
		meet_up(p.fd);
		POST(&l, .op = IBV_WR_SEND, .id = 9, .m = &m, .len = len);
		if (late)
			sleep_ms(20);
		expect(l.scq, 9, IBV_WC_SUCCESS);
		if (act == EXIT_AT_ONCE) {
			finish(&p);
		} else if (act == KILLED) {
			kill_peer(&p);
		} else {
			tell(p.fd, "", 1);
			finish(&p);
		}
		link_end(&l);
		mem_end(&m);
		dev_close(&d);
	}
}

static void a_receiver_that_exits_at_once_has_acknowledged(void)
{
	last_message(EXIT_AT_ONCE, 64, false);
	last_message(EXIT_AT_ONCE, 100000, false);
	last_message(EXIT_AT_ONCE, 64, true);
}

static void a_receiver_that_is_killed_after_its_receive_has_acknowledged(void)
{
	last_message(KILLED, 64, false);
	last_message(KILLED, 100000, true);
}

static void a_receiver_that_destroys_its_queue_pair_at_once_has_acknowledged(void)
{
	last_message(DESTROY_AND_WAIT, 64, false);
	last_message(DESTROY_AND_WAIT, 64, true);
	last_message(DESTROY_AND_WAIT, 100000, false);
}

static void a_receiver_that_resets_its_queue_pair_at_once_has_acknowledged(void)
{
	last_message(RESET_AND_WAIT, 64, false);
	last_message(RESET_AND_WAIT, 64, true);
}

static void a_receiver_that_goes_to_error_at_once_has_acknowledged(void)
{
	last_message(ERROR_AND_WAIT, 64, false);
	last_message(ERROR_AND_WAIT, 64, true);
}

/* --- messages of a dead sender --- */

static void last_sender(int fd, void *arg)
{
	struct dev d;
	struct link l;
	struct mem m;

	open_side(&d, &l, &m, &(struct conf){.inline_max = 64}, fd);
	meet_up(fd);
	for (uint32_t i = 0; i < 32; i++) {
		fill(m.p, 60, i);
		POST(&l, .op = IBV_WR_SEND, .id = i, .m = &m, .len = 60, .flags = IBV_SEND_INLINE);
	}
	/* a completion means that the data has arrived, whatever happens to us now */
	for (uint32_t i = 0; i < 32; i++)
		expect(l.scq, i, IBV_WC_SUCCESS);
	kill(getpid(), SIGKILL);
}

/* Fails if the death of a sender discards messages whose sends have completed. */
static void what_a_killed_sender_saw_complete_is_received(void)
{
	struct peer p = start(last_sender, NULL);
	struct dev d;
	struct link l;
	struct mem m;

	open_side(&d, &l, &m, &(struct conf){0}, p.fd);
	for (uint32_t i = 0; i < 32; i++)
		post_recv(&l, i, &m, i * 64, 64);
	meet_up(p.fd);
	sleep_ms(100);
	for (uint32_t i = 0; i < 32; i++) {
		expect(l.rcq, i, IBV_WC_SUCCESS);
		CHECK(holds(m.p + i * 64, 60, i));
	}
	kill_peer(&p);
}

/* --- many short-lived peers --- */

static void short_client(int fd, void *arg)
{
	struct dev d;
	struct link l;
	struct mem m;

	open_side(&d, &l, &m, &(struct conf){0}, fd);
	POST(&l, .op = IBV_WR_SEND, .id = 1, .m = &m, .len = 64);
	expect(l.scq, 1, IBV_WC_SUCCESS);
}

/* A server outlives its clients. Fails if each of them leaves descriptors or a mapping behind. */
static void a_server_keeps_nothing_of_clients_that_have_gone(void)
{
	unsigned before = 0, rounds = under_sanitizer() ? 20 : 60;
	struct dev d;
	struct mem m;

	dev_open(&d);
	mem_make(&m, &d, 4096);
	for (unsigned i = 0; i < rounds; i++) {
		struct peer p = start(short_client, NULL);
		struct link l;

		link_make(&l, &d, &(struct conf){0});
		post_recv(&l, 1, &m, 0, 64);
		link_join(&l, p.fd);
		expect(l.rcq, 1, IBV_WC_SUCCESS);
		finish(&p);
		link_end(&l);
		if (i == 8)
			before = open_descriptors();
	}
	for (uint64_t until = now_ms() + PATIENCE; open_descriptors() > before + 8 && now_ms() < until;)
		sleep_ms(10);
	CHECK(open_descriptors() <= before + 8);
}

/* --- the broker --- */

static pid_t broker_pid(void)
{
	const char *dir = getenv("VERBENA_RUNTIME");
	DIR *d = opendir("/proc");
	struct dirent *e;
	pid_t found = 0;

	CHECK(d && dir);
	while (!found && (e = readdir(d))) {
		char path[300], text[8192];
		FILE *f;

		if (e->d_name[0] < '0' || e->d_name[0] > '9')
			continue;
		snprintf(path, sizeof(path), "/proc/%s/comm", e->d_name);
		f = fopen(path, "re");
		if (!f)
			continue;
		text[0] = 0;
		if (!fgets(text, sizeof(text), f))
			text[0] = 0;
		fclose(f);
		if (strncmp(text, "verbena-broker", 14))
			continue;
		snprintf(path, sizeof(path), "/proc/%s/environ", e->d_name);
		f = fopen(path, "re");
		if (!f)
			continue;
		size_t n = fread(text, 1, sizeof(text) - 1, f);

		fclose(f);
		text[n] = 0;
		for (char *s = text; s < text + n; s += strlen(s) + 1)
			if (!strncmp(s, "VERBENA_RUNTIME=", 16) && !strcmp(s + 16, dir))
				found = atoi(e->d_name);
	}
	closedir(d);
	return found;
}

static void echo_target(int fd, void *arg)
{
	struct dev d;
	struct link l;
	struct mem m;
	uint32_t n;

	open_side(&d, &l, &m, &(struct conf){.depth = 16}, fd);
	hear(fd, &n, sizeof(n));
	for (uint32_t i = 0; i < 16; i++)
		post_recv(&l, i, &m, i * 64, 64);
	meet_up(fd);
	for (uint32_t i = 0; i < n; i++) {
		struct ibv_wc wc = expect(l.rcq, i % 16, IBV_WC_SUCCESS);

		CHECK(holds(m.p + (i % 16) * 64, 60, i));
		fill(m.p + 8192, 60, i + 1);
		post_recv(&l, wc.wr_id, &m, wc.wr_id * 64, 64);
		POST(&l, .op = IBV_WR_SEND, .id = i, .m = &m, .off = 8192, .len = 60);
		expect(l.scq, i, IBV_WC_SUCCESS);
	}
	meet_up(fd);
}

static void echo(struct link *l, struct mem *m, uint32_t from, uint32_t to)
{
	for (uint32_t i = from; i < to; i++) {
		fill(m->p, 60, i);
		post_recv(l, i, m, 4096, 64);
		POST(l, .op = IBV_WR_SEND, .id = i, .m = m, .len = 60);
		expect(l->scq, i, IBV_WC_SUCCESS);
		expect(l->rcq, i, IBV_WC_SUCCESS);
		CHECK(holds(m->p + 4096, 60, i + 1));
	}
}

/*
 * Fails if a connected pair needs the broker for its traffic, or if the next broker does not learn of living processes,
 * so that new ones cannot meet them.
 */
static void killing_the_broker_hurts_neither_the_connected_nor_the_new(void)
{
	struct peer p = start(echo_target, NULL);
	uint32_t n = 3000;
	struct dev d;
	struct link l;
	struct mem m;

	open_side(&d, &l, &m, &(struct conf){0}, p.fd);
	tell(p.fd, &n, sizeof(n));
	meet_up(p.fd);
	for (uint32_t k = 0; k < 3; k++) {
		echo(&l, &m, k * 1000, k * 1000 + 100);
		pid_t broker = broker_pid();

		if (!broker)
			skip("the broker is not a process of its own");
		kill(broker, SIGKILL);
		echo(&l, &m, k * 1000 + 100, k * 1000 + 1000);

		/* a new process meets an older one */
		struct peer q = start(echo_target, NULL);
		uint32_t few = 50;
		struct link l2;

		link_open(&l2, &d, &(struct conf){0}, q.fd);
		tell(q.fd, &few, sizeof(few));
		meet_up(q.fd);
		echo(&l2, &m, 0, few);
		meet_up(q.fd);
		finish(&q);
		link_end(&l2);
	}
	meet_up(p.fd);
	finish(&p);
}

int main(int argc, char **argv)
{
	static const struct test tests[] = {
	        {"killing a peer ends sends with retry exceeded", killing_a_peer_ends_sends_with_retry_exceeded},
	        {"killing a peer ends large sends with retry exceeded",
	         killing_a_peer_ends_large_sends_with_retry_exceeded},
	        {"killing a peer ends writes with retry exceeded", killing_a_peer_ends_writes_with_retry_exceeded},
	        {"killing a peer ends reads with retry exceeded", killing_a_peer_ends_reads_with_retry_exceeded},
	        {"killing a peer ends atomics with retry exceeded", killing_a_peer_ends_atomics_with_retry_exceeded},
	        {"killing a peer ends reads by ring with retry exceeded",
	         killing_a_peer_ends_reads_by_ring_with_retry_exceeded},
	        {"a sleeper hears of the death of its peer", a_sleeper_hears_of_the_death_of_its_peer},
	        {"a peer may die while a queue pair is made ready to receive",
	         a_peer_may_die_while_a_queue_pair_is_made_ready_to_receive},
	        {"a receiver that exits at once has acknowledged", a_receiver_that_exits_at_once_has_acknowledged},
	        {"a receiver that is killed after its receive has acknowledged",
	         a_receiver_that_is_killed_after_its_receive_has_acknowledged},
	        {"a receiver that destroys its queue pair at once has acknowledged",
	         a_receiver_that_destroys_its_queue_pair_at_once_has_acknowledged},
	        {"a receiver that resets its queue pair at once has acknowledged",
	         a_receiver_that_resets_its_queue_pair_at_once_has_acknowledged},
	        {"a receiver that goes to error at once has acknowledged",
	         a_receiver_that_goes_to_error_at_once_has_acknowledged},
	        {"what a killed sender saw complete is received", what_a_killed_sender_saw_complete_is_received},
	        {"a server keeps nothing of clients that have gone", a_server_keeps_nothing_of_clients_that_have_gone},
	        {"killing the broker hurts neither the connected nor the new",
	         killing_the_broker_hurts_neither_the_connected_nor_the_new},
	};

	return RUN_TESTS(argc, argv, tests);
}
