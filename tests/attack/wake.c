// wake.c - a peer that blocks the descriptors by which programs wake each other: the other programs still run
// follows: eventfd(2)
// see: node/wake.h
// SPDX-License-Identifier: MIT
#include "pair.h"

#include <dirent.h>
#include <fcntl.h>
#include <pthread.h>
#include <sys/epoll.h>
#include <sys/uio.h>

#define FDS 64

/* The kinds of this process's descriptors, from /proc. */
static int all_of(const char *what, int fds[FDS])
{
	DIR *d = opendir("/proc/self/fd");
	struct dirent *e;
	int n = 0;

	CHECK(d);
	while ((e = readdir(d))) {
		char name[300], link[200];

		snprintf(name, sizeof(name), "/proc/self/fd/%s", e->d_name);
		ssize_t len = readlink(name, link, sizeof(link) - 1);

		if (len <= 0)
			continue;
		link[len] = 0;
		if (!strcmp(link, what) && n < FDS)
			fds[n++] = atoi(e->d_name);
	}
	closedir(d);
	return n;
}

static void set_blocking(int fd)
{
	fcntl(fd, F_SETFL, fcntl(fd, F_GETFL) & ~O_NONBLOCK);
}

/* Empties the descriptor or fills it completely, as far as possible, so that readers or writers would block forever. */
static void jam(int fd, bool full)
{
	uint64_t v;

	fcntl(fd, F_SETFL, fcntl(fd, F_GETFL) | O_NONBLOCK);
	if (full) {
		for (uint64_t n = UINT64_MAX - 1; n; n /= 2)
			while (write(fd, &n, sizeof(n)) == sizeof(n))
				;
	} else {
		for (int i = 0; i < 1000 && read(fd, &v, sizeof(v)) == sizeof(v); i++)
			;
	}
	set_blocking(fd);
}

enum how { FULL, EMPTY };

/* Nobody reads its descriptor any more, and its segment says that it sleeps. */
static void jammer(int fd, void *arg)
{
	int events[FDS], epolls[FDS], n, m;
	struct dev d;
	struct link l;
	char c;

	dev_open(&d);
	link_open(&l, &d, &(struct conf){0}, fd);
	sleep_ms(50); /* its progress thread is asleep */
	n = all_of("anon_inode:[eventfd]", events);
	m = all_of("anon_inode:[eventpoll]", epolls);
	CHECK(n > 0 && m > 0);
	for (int i = 0; i < n; i++)
		for (int k = 0; k < m; k++)
			epoll_ctl(epolls[k], EPOLL_CTL_DEL, events[i], NULL);
	for (int i = 0; i < n; i++)
		jam(events[i], *(enum how *)arg == FULL);
	tell(fd, "j", 1);
	hear(fd, &c, 1);
	_exit(0);
}

static void rings_a_jammed_bell(enum how how)
{
	struct peer p = start(jammer, &how);
	struct ibv_wc wc;
	struct dev d;
	struct link l;
	struct mem m;
	char c;

	dev_open(&d);
	mem_make(&m, &d, 4096);
	link_open(&l, &d, &(struct conf){.timeout = 10, .retry = 1}, p.fd);
	hear(p.fd, &c, 1);
	for (int i = 0; i < 8; i++)
		POST(&l, .op = IBV_WR_SEND, .id = 1, .m = &m, .len = 8);
	tell(p.fd, "e", 1);
	finish(&p);
	CHECK(wait_wc_ms(l.scq, &wc, PATIENCE)); /* the peer died */
	link_end(&l);
	mem_end(&m);
	dev_close(&d);
}

static void a_peer_whose_descriptor_is_full_and_blocks_holds_up_nobody(void)
{
	rings_a_jammed_bell(FULL);
}

static void a_peer_whose_descriptor_is_empty_and_blocks_holds_up_nobody(void)
{
	rings_a_jammed_bell(EMPTY);
}

/* --- the victim's own descriptor, which all its peers have --- */

static void *steal(void *arg)
{
	int fd = *(int *)arg;
	uint64_t v;
	const struct iovec to = {&v, sizeof(v)};

	for (;;) {
		set_blocking(fd);
		for (int i = 0; i < 100; i++)
			if (preadv2(fd, &to, 1, -1, RWF_NOWAIT) < 0 && errno != EAGAIN)
				break;
	}
	return NULL;
}

/* Steals every wake-up that it can. */
static void thief(int fd, void *arg)
{
	static int events[FDS];
	struct dev d;
	struct link l;
	char c;

	dev_open(&d);
	link_open(&l, &d, &(struct conf){0}, fd);
	sleep_ms(50);
	int n = all_of("anon_inode:[eventfd]", events);

	for (int i = 0; i < n; i++) {
		pthread_t t;

		CHECK(!pthread_create(&t, NULL, steal, &events[i]));
	}
	tell(fd, "j", 1);
	hear(fd, &c, 1);
	_exit(0);
}

static void next_completion(struct link *l, uint64_t id)
{
	struct ibv_comp_channel *channel = l->c.channel;
	struct ibv_wc wc;
	struct ibv_cq *cq;
	void *own;

	for (;;) {
		CHECK(!ibv_req_notify_cq(l->rcq, 0));
		int n = ibv_poll_cq(l->rcq, 1, &wc);

		CHECK(n >= 0);
		if (n)
			break;
		CHECK(!ibv_get_cq_event(channel, &cq, &own));
		ibv_ack_cq_events(cq, 1);
	}
	SAME(wc.status, IBV_WC_SUCCESS);
	SAME(wc.wr_id, id);
}

/* A send holds its slot until its completion has been polled. */
static void take_sends(struct link *l)
{
	struct ibv_wc wc;

	while (ibv_poll_cq(l->scq, 1, &wc) > 0)
		SAME(wc.status, IBV_WC_SUCCESS);
}

#define TURNS 300
static int no_preadv2; /* the errno that it returns here, or 0 */

/* Sleeps for each message; the pauses let both progress threads sleep too. */
static void play(int fd, bool serve)
{
	struct dev d;
	struct link l;
	struct mem m;

	if (no_preadv2)
		CHECK(forbid_preadv2(no_preadv2));
	dev_open(&d);
	mem_make(&m, &d, 4096);
	struct conf c = {.channel = ibv_create_comp_channel(d.ctx)};

	CHECK(c.channel);
	link_make(&l, &d, &c);
	for (uint64_t i = 0; i < 32; i++)
		post_recv(&l, i, &m, 0, 8);
	link_join(&l, fd);
	for (uint64_t i = 0; i < TURNS; i++) {
		if (serve)
			POST(&l, .op = IBV_WR_SEND, .id = i, .m = &m, .len = 8, .quiet = i % 16 != 0);
		next_completion(&l, i);
		post_recv(&l, i + 32, &m, 0, 8);
		take_sends(&l);
		if (i % 3 == 0)
			sleep_ms(1);
		if (!serve)
			POST(&l, .op = IBV_WR_SEND, .id = i, .m = &m, .len = 8, .quiet = i % 16 != 0);
	}
	meet_up(fd);
}

static void honest(int fd, void *arg)
{
	play(fd, false);
}

static void a_peer_that_takes_our_wake_ups_delays_nobody(void)
{
	struct peer t = start(thief, NULL), h = start(honest, NULL);
	struct dev d;
	struct link l;
	char c;

	dev_open(&d);
	link_open(&l, &d, &(struct conf){0}, t.fd);
	hear(t.fd, &c, 1);
	play(h.fd, true);
	finish(&h);
	tell(t.fd, "e", 1);
	finish(&t);
}

/* On other kernels a plain read wakes the peer. */
static void without_preadv2(int err)
{
	no_preadv2 = err;
	struct peer h = start(honest, NULL);

	play(h.fd, true);
	finish(&h);
}

static void programs_wake_each_other_without_preadv2(void)
{
	without_preadv2(EOPNOTSUPP);
}

static void programs_wake_each_other_where_preadv2_is_unknown(void)
{
	without_preadv2(ENOSYS);
}

int main(int argc, char **argv)
{
	static const struct test tests[] = {
	        {"a peer whose descriptor is full and blocks holds up nobody",
	         a_peer_whose_descriptor_is_full_and_blocks_holds_up_nobody, 30},
	        {"a peer whose descriptor is empty and blocks holds up nobody",
	         a_peer_whose_descriptor_is_empty_and_blocks_holds_up_nobody, 30},
	        {"a peer that takes our wake-ups delays nobody", a_peer_that_takes_our_wake_ups_delays_nobody, 30},
	        {"programs wake each other without preadv2", programs_wake_each_other_without_preadv2, 30},
	        {"programs wake each other where preadv2 is unknown", programs_wake_each_other_where_preadv2_is_unknown,
	         30},
	};

	return RUN_TESTS(argc, argv, tests);
}
