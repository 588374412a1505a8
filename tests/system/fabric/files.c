// files.c - several threads with an agent each on one port, and programs that fork while they have a port open
// follows: umad_send(3), umad_recv(3), fork(2)
// SPDX-License-Identifier: MIT
// files LID: asks the port of this LID for its NodeInfo
#include <infiniband/umad.h>
#include <pthread.h>
#include <sys/wait.h>
#include <unistd.h>

#include "../../support/check.h"

enum { MAD = 256, THREADS = 8, ASKS = 200, CLASS_SM = 1, NODE_INFO = 0x11 };

static int lid;

static void send_question(int fd, int agent, void *umad, unsigned n)
{
	uint8_t *mad = umad_get_mad(umad);

	memset(umad, 0, umad_size() + MAD);
	memcpy(mad, (const uint8_t[]){1, CLASS_SM, 1, 1}, 4);
	mad[14] = (uint8_t)(n >> 8);
	mad[15] = (uint8_t)n;
	mad[17] = NODE_INFO;
	SAME(umad_set_addr(umad, lid, 0, 0, 0), 0);
	SAME(umad_send(fd, agent, umad, MAD, 2000, 5), 0);
}

static void take_reply(int fd, int agent, void *umad, unsigned n)
{
	const uint8_t *mad = umad_get_mad(umad);
	int length = MAD;

	SAME(umad_recv(fd, umad, &length, LONG_MS), agent);
	SAME(umad_status(umad), 0);
	SAME(mad[3], 0x81);
	SAME(mad[14] << 8 | mad[15], n & 0xffff);
	SAME(mad[66], 1); /* a channel adapter */
}

/* fd: a descriptor of this thread, or of all. */
static void ask(int fd, int agent, void *umad, unsigned n)
{
	send_question(fd, agent, umad, n);
	take_reply(fd, agent, umad, n);
}

static void *asks(void *unused)
{
	void *umad = umad_alloc(1, umad_size() + MAD);
	int fd = umad_open_port(NULL, 1), agent = umad_register(fd, CLASS_SM, 1, 0, NULL);

	CHECK(umad && fd >= 0 && agent >= 0);
	for (unsigned n = 1; n <= ASKS; n++)
		ask(fd, agent, umad, n);
	umad_close_port(fd);
	umad_free(umad);
	return unused;
}

static void each_thread_gets_its_own_replies(void)
{
	pthread_t thread[THREADS];

	for (int i = 0; i < THREADS; i++)
		CHECK(!pthread_create(&thread[i], NULL, asks, NULL));
	for (int i = 0; i < THREADS; i++)
		pthread_join(thread[i], NULL);
}

/* What a child does with the parent's descriptor, and with one of its own. */
static void child_asks(int fd, int agent)
{
	void *umad = umad_alloc(1, umad_size() + MAD);

	for (unsigned n = 1; n <= 20; n++)
		ask(fd, agent, umad, n);
	asks(NULL);
	_exit(0);
}

static void a_child_goes_on_with_the_parents_descriptor(void)
{
	void *umad = umad_alloc(1, umad_size() + MAD);
	int fd = umad_open_port(NULL, 1), agent = umad_register(fd, CLASS_SM, 1, 0, NULL), status;

	CHECK(umad && fd >= 0 && agent >= 0);
	ask(fd, agent, umad, 1);
	pid_t child = fork();
	CHECK(child >= 0);
	if (!child)
		child_asks(fd, agent);
	SAME(waitpid(child, &status, 0), child);
	SAME(status, 0);
	ask(fd, agent, umad, 2); /* the child's end has not closed it */
	SAME(umad_unregister(fd, agent), 0);
	umad_close_port(fd);
	umad_free(umad);
}

static void a_parent_that_closes_its_port_leaves_it_to_its_child(void)
{
	void *umad = umad_alloc(1, umad_size() + MAD);
	int fd = umad_open_port(NULL, 1), agent = umad_register(fd, CLASS_SM, 1, 0, NULL), closed[2], status;
	char c = 'x';

	CHECK(umad && fd >= 0 && agent >= 0 && !pipe(closed));
	pid_t child = fork();
	CHECK(child >= 0);
	if (!child) {
		CHECK(read(closed[0], &c, 1) == 1);
		for (unsigned n = 1; n <= 20; n++)
			ask(fd, agent, umad, n);
		_exit(0);
	}
	SAME(umad_close_port(fd), 0);
	CHECK(write(closed[1], &c, 1) == 1);
	SAME(waitpid(child, &status, 0), child);
	SAME(status, 0);
	close(closed[0]);
	close(closed[1]);
	umad_free(umad);
}

/* They have the same transactions, but each port has its own. */
static void children_have_ports_of_their_own_beside_their_parent(void)
{
	pid_t child[THREADS];
	int status;

	for (int i = 0; i < THREADS; i++) {
		child[i] = fork();
		CHECK(child[i] >= 0);
		if (!child[i]) {
			asks(NULL);
			_exit(0);
		}
	}
	asks(NULL);
	for (int i = 0; i < THREADS; i++) {
		SAME(waitpid(child[i], &status, 0), child[i]);
		SAME(status, 0);
	}
}

static void a_reply_that_a_dead_child_asked_for_reaches_its_parent(void)
{
	void *umad = umad_alloc(1, umad_size() + MAD);
	int fd = umad_open_port(NULL, 1), agent = umad_register(fd, CLASS_SM, 1, 0, NULL), status;

	CHECK(umad && fd >= 0 && agent >= 0);
	pid_t child = fork();
	CHECK(child >= 0);
	if (!child) {
		send_question(fd, agent, umad, 77);
		_exit(0);
	}
	SAME(waitpid(child, &status, 0), child);
	SAME(status, 0);
	take_reply(fd, agent, umad, 77);
	SAME(umad_close_port(fd), 0);
	umad_free(umad);
}

int main(int argc, char **argv)
{
	CHECK(argc == 2);
	lid = atoi(argv[1]);
	CHECK(!umad_init());
	RUN(each_thread_gets_its_own_replies);
	RUN(a_child_goes_on_with_the_parents_descriptor);
	RUN(a_parent_that_closes_its_port_leaves_it_to_its_child);
	RUN(children_have_ports_of_their_own_beside_their_parent);
	RUN(a_reply_that_a_dead_child_asked_for_reaches_its_parent);
	return 0;
}
