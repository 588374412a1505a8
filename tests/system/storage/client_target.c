// client_target.c - the initiator against verbena-target: written data reads back, whatever happens to the target
// follows: verbena_nvme.h
// SPDX-License-Identifier: MIT
// usage: client_target TARGET SCHEME [rbd:POOL/IMAGE]; the program, and tcp, tls (with secrets, too), rdma or auto. The
// image is of 16 MiB; without it a file is served
#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <pthread.h>
#include <signal.h>
#include <sys/prctl.h>
#include <sys/wait.h>
#include <unistd.h>

#include "../../support/check.h"
#include "client_load.h"

#define NQN "nqn.2026-01.test:client"
#define SIZE (16u << 20)

static const char *program, *scheme, *given; /* given: an image of Ceph */
static char image[] = "/tmp/verbena-client.XXXXXX", config[sizeof(image) + 5], url[300];
static bool secure;
static unsigned port;
static pid_t target;

/* ---- the target ---- */

#define HOSTNQN "nqn.2026-01.test:host"
#define TLS_KEY "NVMeTLSkey-1:01:VRLbtnN9AQb2WXW3c9+wEf/DRLz0QuLdbYvEhwtdWwNf9LrZ:"
#define SECRET "DHHC-1:00:ABEiM0RVZneImaq7zN3u/wARIjNEVWZ3iJmqu8zd7v8qDMNU:"
#define CONTROLLER_SECRET "DHHC-1:01:O3n/ZbCI/WDi1riVIMg1GqhQ1O55egewVNEk9/ZQLPyt5+by:"

/* A configuration, for what options cannot express. */
static void write_config(void)
{
	FILE *f = fopen(config, "w");

	CHECK(f);
	fprintf(f,
	        "{\"listen\": [{\"address\": \"127.0.0.1\", \"port\": %u, \"tls\": \"required\"}],"
	        " \"subsystems\": [{\"nqn\": \"" NQN "\", \"require_authentication\": true, \"hosts\": ["
	        "{\"nqn\": \"" HOSTNQN "\", \"tls_key\": \"" TLS_KEY "\", \"secret\": \"" SECRET "\","
	        " \"controller_secret\": \"" CONTROLLER_SECRET "\"}],"
	        " \"namespaces\": [{\"nsid\": 1, %s, \"path\": \"%s\"}]}]}\n",
	        port, given ? "\"backend\": \"rbd\", \"gateway\": \"t\"" : "\"backend\": \"file\", \"buffered\": true",
	        given ? given + strlen("rbd:") : image);
	CHECK(!fclose(f));
}

static void run_target(int out)
{
	char p[16];

	if (secure) {
		write_config();
		dup2(out, 1);
		execl(program, program, "--config", config, (char *)NULL);
		_exit(127);
	}
	snprintf(p, sizeof(p), "%u", port);
	dup2(out, 1);
	execl(program, program, "--export", given ? given : image, "--port", p, "--nqn", NQN, "--transport", scheme,
	      given ? "--gateway" : "--buffered", given ? "t" : NULL, (char *)NULL);
	_exit(127);
}

/* Waits until it has printed its address. */
static bool try_to_start(void)
{
	char line[300];
	int pipes[2];
	bool said;

	CHECK(!pipe2(pipes, O_CLOEXEC));
	target = fork();
	if (!target) {
		prctl(PR_SET_PDEATHSIG, SIGKILL);
		run_target(pipes[1]);
	}
	close(pipes[1]);
	FILE *f = fdopen(pipes[0], "r");

	CHECK(f);
	said = fgets(line, sizeof(line), f) && sscanf(line, "nvme+%*[a-z]://127.0.0.1:%u/", &port) == 1;
	fclose(f);
	if (!said)
		waitpid(target, NULL, 0);
	return said;
}

/* A killed target may still hold the image: the kernel ends its requests later. */
static void start_target(void)
{
	unsigned tries = 0;

	while (!try_to_start()) {
		CHECK(++tries < 1000);
		usleep(20000);
	}
	snprintf(url, sizeof(url), "nvme+%s://127.0.0.1:%u/" NQN, scheme, port);
}

static void kill_target(void)
{
	kill(target, SIGKILL);
	waitpid(target, NULL, 0);
	target = 0;
}

static struct vn_options usual(void);

static struct vn_disk *open_with(const struct vn_options *o)
{
	struct vn_options standard = usual();
	struct vn_disk *d;
	char why[200] = "";

	if (vn_open(url, o ? o : &standard, &d, why, sizeof(why))) {
		fprintf(stderr, "%s: %s\n", url, why);
		exit(1);
	}
	return d;
}

static struct vn_options usual(void)
{
	struct vn_options o;

	vn_options_init(&o);
	o.numeric = 1;
	o.connect_ms = 40000;
	o.rdma_ms = 20000;
	if (secure) {
		o.host_nqn = HOSTNQN;
		o.tls_key = TLS_KEY;
		o.secret = SECRET;
		o.controller_secret = CONTROLLER_SECRET;
	}
	return o;
}

static void load_with(const struct vn_options *o, unsigned depth, uint32_t largest, bool registered, uint64_t requests)
{
	struct load l = {
	        .disk = open_with(o), .depth = depth, .largest = largest, .registered = registered, .seed = 4711};

	load_begin(&l);
	load_run(&l, requests);
	load_end(&l);
	vn_close(l.disk);
}

static bool by_tcp(void)
{
	return secure || !strcmp(scheme, "tcp");
}

/* ---- tests ---- */

static void the_target_says_what_the_disk_is(void)
{
	struct vn_disk *d = open_with(NULL);
	const struct vn_info *i = vn_info(d);

	SAME(i->size, SIZE);
	CHECK(i->block_size >= 512 && i->max_transfer >= i->block_size && *i->model && *i->serial);
	CHECK(!strcmp(i->nqn, NQN));
	CHECK(!strcmp(vn_transport_name(d), by_tcp() ? "tcp" : "rdma"));
	vn_close(d);
}

static void discovery_lists_the_disk(void)
{
	struct vn_options o = usual();
	struct vn_found *f;
	size_t n;
	char at[100];
	bool seen = false;

	snprintf(at, sizeof(at), "nvme+%s://127.0.0.1:%u", scheme, port);
	SAME(vn_discover(at, &o, &f, &n, NULL, 0), 0);
	for (size_t i = 0; i < n; i++)
		seen |= !strcmp(f[i].nqn, NQN) && !strcmp(f[i].transport, by_tcp() ? scheme : "rdma");
	CHECK(seen);
	free(f);
}

static void what_makes_no_sense_is_refused(void)
{
	static const char *const bad[] = {"",
	                                  "nvme://h/" NQN,
	                                  "nvme+tcp://",
	                                  "nvme+tcp://h",
	                                  "nvme+tcp://h:0/" NQN,
	                                  "nvme+tcp://h:65536/" NQN,
	                                  "nvme+tcp://h:x/" NQN,
	                                  "nvme+tcp://[::1/" NQN,
	                                  "nvme+tcp://h/disk",
	                                  "nvme+tcp://h/" NQN "?nsid=0",
	                                  "nvme+tcp://h/" NQN "?x=1"};
	struct vn_options o = usual();
	struct vn_disk *d;
	char elsewhere[320];

	for (size_t i = 0; i < sizeof(bad) / sizeof(*bad); i++)
		SAME(vn_open(bad[i], NULL, &d, NULL, 0), (unsigned long long)-EINVAL);
	o.queues = 0;
	SAME(vn_open(url, &o, &d, NULL, 0), (unsigned long long)-EINVAL);
	o = usual();
	snprintf(elsewhere, sizeof(elsewhere), "%sx", url);
	SAME(vn_open(elsewhere, &o, &d, NULL, 0), (unsigned long long)(secure ? -EACCES : -ENXIO)); /* no key for it */
	snprintf(elsewhere, sizeof(elsewhere), "%s?nsid=7", url);
	SAME(vn_open(elsewhere, &o, &d, NULL, 0), (unsigned long long)-ENXIO);
}

static void never(void *arg, int error)
{
	CHECK(!"called");
}

static void what_is_not_whole_blocks_is_refused(void)
{
	static uint8_t b[8192];
	struct vn_disk *d = open_with(NULL);
	uint32_t block = vn_info(d)->block_size;

	SAME(vn_read(d, b, block, 1, 0, never, NULL), (unsigned long long)-EINVAL);
	SAME(vn_read(d, b, block - 1, 0, 0, never, NULL), (unsigned long long)-EINVAL);
	SAME(vn_read(d, b, 0, 0, 0, never, NULL), (unsigned long long)-EINVAL);
	SAME(vn_read(d, NULL, block, 0, 0, never, NULL), (unsigned long long)-EINVAL);
	SAME(vn_write(d, b, block, SIZE, 0, never, NULL), (unsigned long long)-EINVAL);
	SAME(vn_write(d, b, block, UINT64_MAX / block * block, 0, never, NULL), (unsigned long long)-EINVAL);
	SAME(vn_write(d, b, block, 0, 0x100, never, NULL), (unsigned long long)-EINVAL);
	SAME(vn_poll(d, 0), 0);
	vn_close(d);
}

static void what_is_written_is_read(void)
{
	struct vn_options o = usual();

	load_with(&o, 32, 256 << 10, true, 3000);
}

static void memory_need_not_be_registered(void)
{
	struct vn_options o = usual();

	load_with(&o, 32, 256 << 10, false, 1500);
}

static void many_queues_are_used(void)
{
	struct vn_options o = usual();

	o.queues = 8;
	o.queue_depth = 4;
	load_with(&o, 64, 64 << 10, true, 3000);
}

static void a_request_beyond_the_limit_is_split(void)
{
	struct vn_options o = usual();

	o.max_transfer = 16 << 10;
	o.queue_depth = 3;
	load_with(&o, 8, 2 << 20, true, 300);
}

/* One command for each, in any kind of memory. */
static void a_request_may_be_as_large_as_the_target_takes(void)
{
	struct vn_options o = usual();
	struct vn_disk *d;
	struct vn_memory *m;
	struct vn_statistics s;
	uint8_t *b;
	void *c;

	o.max_transfer = 8 << 20;
	d = open_with(&o);
	uint32_t n = vn_info(d)->max_transfer;

	SAME(n, 2 << 20);
	CHECK((b = malloc(n)));
	SAME(vn_allocate(d, n, &c, &m), 0);
	for (uint32_t i = 0; i < n; i++)
		b[i] = (uint8_t)(i * 2654435761u >> 24);
	SAME(vn_write_wait(d, b, n, 4096, 0), 0);
	SAME(vn_read_wait(d, c, n, 4096), 0);
	CHECK(!memcmp(b, c, n));
	memset(b, 0, n);
	SAME(vn_write_wait(d, c, n, n, 0), 0);
	SAME(vn_compare_wait(d, c, n, n), 0);
	SAME(vn_read_wait(d, b, n, n), 0);
	CHECK(!memcmp(b, c, n));
	vn_statistics(d, &s);
	SAME(s.commands, 5);
	vn_close(d);
	free(b);
	load_with(&o, 8, 6 << 20, true, 100);
}

static void digests_are_made_and_checked(void)
{
	struct vn_options o = usual();

	if (!by_tcp())
		return;
	o.header_digest = o.data_digest = o.require_digest = 1;
	load_with(&o, 32, 256 << 10, true, 1500);
	o.header_digest = 0;
	load_with(&o, 8, 64 << 10, true, 500);
}

static void a_compare_sees_a_difference(void)
{
	static uint8_t b[4096];
	struct vn_disk *d = open_with(NULL);

	memset(b, 1, sizeof(b));
	SAME(vn_write_wait(d, b, sizeof(b), 4096, VN_FUA), 0);
	SAME(vn_compare_wait(d, b, sizeof(b), 4096), 0);
	b[4095] = 2;
	SAME(vn_compare_wait(d, b, sizeof(b), 4096), (unsigned long long)-EILSEQ);
	SAME(vn_discard_wait(d, SIZE, 0), 0);
	vn_close(d);
}

static void *sync_thread(void *arg)
{
	struct vn_disk *d = arg;
	static uint64_t next;
	uint64_t at = __atomic_fetch_add(&next, 1 << 20, __ATOMIC_RELAXED), seed = at + 1;
	uint8_t b[8192], c[8192];

	for (unsigned i = 0; i < 100; i++) {
		uint64_t to = at + draw(&seed) % 64 * 8192;

		memset(b, (int)draw(&seed), sizeof(b));
		SAME(vn_write_wait(d, b, sizeof(b), to, 0), 0);
		SAME(vn_read_wait(d, c, sizeof(c), to), 0);
		CHECK(!memcmp(b, c, sizeof(b)));
	}
	return NULL;
}

static void any_number_of_threads_may_wait(void)
{
	struct vn_disk *d = open_with(NULL);
	pthread_t t[12];

	for (int i = 0; i < 12; i++)
		CHECK(!pthread_create(&t[i], NULL, sync_thread, d));
	for (int i = 0; i < 12; i++)
		CHECK(!pthread_join(t[i], NULL));
	vn_close(d);
}

/* Threads register and unregister memory while other threads use theirs. */
static void *register_thread(void *arg)
{
	struct vn_disk *d = arg;
	static uint64_t next;
	uint64_t at = __atomic_fetch_add(&next, 1 << 20, __ATOMIC_RELAXED), seed = at + 7;
	uint8_t b[8192];

	for (unsigned i = 0; i < 50; i++) {
		struct vn_memory *m, *again;
		void *c;

		memset(b, (int)draw(&seed), sizeof(b));
		SAME(vn_allocate(d, 1 << 20, &c, &m), 0);
		SAME((unsigned)-vn_register(d, (uint8_t *)c + 4096, 4096, &again), EEXIST);
		SAME(vn_write_wait(d, b, sizeof(b), at, 0), 0);
		SAME(vn_read_wait(d, c, sizeof(b), at), 0);
		CHECK(!memcmp(b, c, sizeof(b)));
		SAME(vn_unregister(d, m), 0);
	}
	return NULL;
}

static void memory_comes_and_goes_in_many_threads(void)
{
	struct vn_disk *d = open_with(NULL);
	pthread_t t[8];

	for (int i = 0; i < 8; i++)
		CHECK(!pthread_create(&t[i], NULL, register_thread, d));
	for (int i = 0; i < 8; i++)
		CHECK(!pthread_join(t[i], NULL));
	vn_close(d);
}

static void note(void *arg, int error)
{
	*(int *)arg = error;
}

static void the_descriptor_tells_when_there_is_something_to_do(void)
{
	static uint8_t b[65536];
	struct vn_disk *d = open_with(NULL);
	int said = 1;
	struct pollfd p = {.fd = vn_fd(d), .events = POLLIN};

	for (int i = 0; i < 50; i++, said = 1) {
		SAME(vn_read(d, b, sizeof(b), 0, 0, note, &said), 0);
		while (!vn_poll(d, 0))
			SAME(poll(&p, 1, 30000), 1);
		SAME(said, 0);
	}
	vn_close(d);
}

static void memory_in_use_is_not_unregistered(void)
{
	static uint8_t b[1 << 20];
	struct vn_disk *d = open_with(NULL);
	struct vn_memory *m, *again;
	int said = 1;

	SAME(vn_register(d, b, sizeof(b), &m), 0);
	SAME(vn_register(d, b + 4096, 4096, &again), (unsigned long long)-EEXIST);
	SAME(vn_read(d, b, sizeof(b), 0, VN_MORE, note, &said), 0);
	SAME(vn_unregister(d, m), (unsigned long long)-EBUSY);
	while (said)
		vn_poll(d, -1);
	SAME(vn_unregister(d, m), 0);
	vn_close(d);
}

static void what_is_under_way_when_a_disk_is_closed_is_cancelled(void)
{
	static uint8_t b[1 << 20];
	struct vn_disk *d = open_with(NULL);
	int said[16];

	for (int i = 0; i < 16; i++) {
		said[i] = 1;
		SAME(vn_read(d, b, sizeof(b), 0, VN_MORE, note, &said[i]), 0);
	}
	vn_close(d);
	for (int i = 0; i < 16; i++)
		CHECK(!said[i] || said[i] == -ECANCELED);
}

static void a_target_that_is_killed_and_comes_back_has_lost_nothing(void)
{
	struct vn_options o = usual();
	struct vn_statistics s;

	o.queues = 3;
	o.reconnect_pause_ms = 50;
	struct load l = {.disk = open_with(&o), .depth = 48, .largest = 128 << 10, .registered = true, .seed = 99};

	load_begin(&l);
	for (int i = 0; i < 5; i++) {
		load_run(&l, 400);
		kill_target();
		start_target();
	}
	load_run(&l, 400);
	load_end(&l);
	vn_statistics(l.disk, &s);
	CHECK(s.reconnects >= 5 && s.retries > 0);
	vn_close(l.disk);
}

static void a_target_that_stays_away_ends_the_requests(void)
{
	static uint8_t b[4096];
	struct vn_options o = usual();

	o.reconnect_ms = 300;
	o.reconnect_pause_ms = 50;
	struct vn_disk *d = open_with(&o);

	SAME(vn_read_wait(d, b, sizeof(b), 0), 0);
	kill_target();
	SAME(vn_read_wait(d, b, sizeof(b), 0), (unsigned long long)-ENOTCONN);
	SAME(vn_read_wait(d, b, sizeof(b), 0), (unsigned long long)-ESHUTDOWN);
	vn_close(d);
	start_target();
}

static unsigned long long reconnects_while_idle(void)
{
	static uint8_t b[4096];
	struct vn_options o = usual();
	struct vn_statistics s;

	o.keep_alive_ms = 4000; /* every two seconds, with two seconds of slack */
	struct vn_disk *d = open_with(&o);

	do {
		usleep(100000);
		vn_statistics(d, &s);
	} while (s.keep_alives < 3);
	SAME(vn_read_wait(d, b, sizeof(b), 0), 0);
	vn_statistics(d, &s);
	vn_close(d);
	return s.reconnects;
}

/* On a machine that hangs for two seconds it may be too late once. */
static void an_idle_disk_is_kept_alive(void)
{
	int tries = 0;

	while (reconnects_while_idle())
		CHECK(++tries < 5);
}

static void clean_up(void)
{
	if (target)
		kill(target, SIGKILL);
	unlink(image);
	unlink(config);
}

int main(int argc, char **argv)
{
	int fd = mkstemp(image);

	CHECK((argc == 3 || argc == 4) && fd >= 0 && !ftruncate(fd, SIZE));
	given = argv[3];
	program = argv[1];
	scheme = argv[2];
	secure = !strcmp(scheme, "tls");
	snprintf(config, sizeof(config), "%s.json", image);
	atexit(clean_up);
	start_target();
	RUN(the_target_says_what_the_disk_is);
	RUN(discovery_lists_the_disk);
	RUN(what_makes_no_sense_is_refused);
	RUN(what_is_not_whole_blocks_is_refused);
	RUN(what_is_written_is_read);
	RUN(memory_need_not_be_registered);
	RUN(many_queues_are_used);
	RUN(a_request_beyond_the_limit_is_split);
	RUN(a_request_may_be_as_large_as_the_target_takes);
	RUN(digests_are_made_and_checked);
	RUN(a_compare_sees_a_difference);
	RUN(any_number_of_threads_may_wait);
	RUN(memory_comes_and_goes_in_many_threads);
	RUN(the_descriptor_tells_when_there_is_something_to_do);
	RUN(memory_in_use_is_not_unregistered);
	RUN(what_is_under_way_when_a_disk_is_closed_is_cancelled);
	RUN(an_idle_disk_is_kept_alive);
	RUN(a_target_that_is_killed_and_comes_back_has_lost_nothing);
	RUN(a_target_that_stays_away_ends_the_requests);
	return 0;
}
