// client_vanish.c - a thousand hosts connect and vanish, while another host's requests continue undisturbed
// follows: man/verbena-target.8
// SPDX-License-Identifier: MIT
// usage: client_vanish TARGET SCHEME [HOSTS [rbd:POOL/IMAGE]]: the image of the hosts that vanish, instead of memory
#include <arpa/inet.h>
#include <errno.h>
#include <fcntl.h>
#include <pthread.h>
#include <signal.h>
#include <stdatomic.h>
#include <sys/socket.h>
#include <sys/prctl.h>
#include <sys/wait.h>
#include <unistd.h>

#include "../../support/check.h"
#include "client_load.h"
#include "nvme/tcp_pdu.h"

#define NQN "nqn.2026-01.test:vanish"
#define AT_A_TIME 4
#define MAY_GROW (32u << 10) /* KiB: pages of existing tables are touched little by little */

static const char *program, *scheme, *given = "memory:1M";
static char url[300];
static unsigned port, hosts = 1000;
static pid_t target;
static atomic_uint gone, connected;

static void start(void)
{
	char line[300] = "", *at;
	int pipes[2];

	CHECK(!pipe2(pipes, O_CLOEXEC));
	target = fork();
	if (!target) {
		prctl(PR_SET_PDEATHSIG, SIGKILL);
		dup2(pipes[1], 1);
		execl(program, program, "--export", "memory:16M", "--export", given, "--port", "0", "--nqn", NQN,
		      "--transport", scheme, (char *)NULL);
		_exit(127);
	}
	close(pipes[1]);
	FILE *f = fdopen(pipes[0], "r");

	CHECK(f && fgets(line, sizeof(line), f) && (at = strstr(line, "127.0.0.1:")));
	fclose(f);
	port = (unsigned)atoi(at + 10);
	snprintf(url, sizeof(url), "nvme+%s://127.0.0.1:%u/" NQN, scheme, port);
}

static void stop(void)
{
	if (target)
		kill(target, SIGKILL);
}

static struct vn_options usual(unsigned queues)
{
	struct vn_options o;

	vn_options_init(&o);
	o.numeric = 1;
	o.queues = queues;
	o.connect_ms = 60000;
	o.io_ms = 0;
	return o;
}

static void nothing(void *arg, int error)
{
}

/* A separate process, which dies with outstanding requests. It does nothing but exec itself. */
static int vanish(void)
{
	static uint8_t b[16][65536];
	struct vn_options o = usual(2);
	struct vn_disk *d;

	if (vn_open(url, &o, &d, NULL, 0))
		_exit(1);
	for (int i = 0; i < 8; i++) {
		vn_read(d, b[2 * i], sizeof(*b), 0, 0, nothing, NULL);
		vn_write(d, b[2 * i + 1], sizeof(*b), 0, 0, nothing, NULL);
	}
	vn_poll(d, 0);
	_exit(0);
}

/* A prefix of ICReq and what follows, and then a reset. */
static void reset(unsigned length)
{
	struct sockaddr_in a = {
	        .sin_family = AF_INET, .sin_port = htons((uint16_t)port), .sin_addr.s_addr = htonl(INADDR_LOOPBACK)};
	int fd = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
	uint8_t bytes[NV_TCP_IC_LEN + NV_TCP_COMMAND_LEN] = {0};

	nv_tcp_ic_encode(&(struct nv_tcp_ic){0}, false, bytes);
	nv_tcp_common_encode(&(struct nv_tcp_common){.type = NV_TCP_COMMAND, .hlen = 72, .pdo = 72, .plen = 72 + 1024},
	                     bytes + NV_TCP_IC_LEN);
	CHECK(fd >= 0);
	if (!connect(fd, (struct sockaddr *)&a, sizeof(a))) {
		(void)!send(fd, bytes, length % sizeof(bytes), MSG_NOSIGNAL);
		setsockopt(fd, SOL_SOCKET, SO_LINGER, &(struct linger){1, 0}, sizeof(struct linger));
	}
	close(fd);
}

static char self[300];

static void *come_and_go(void *arg)
{
	unsigned i;

	while ((i = atomic_fetch_add(&gone, 1)) < hosts) {
		int status;
		char p[16];

		if (i % 5 && !strcmp(scheme, "tcp")) {
			reset(i);
			continue;
		}
		snprintf(p, sizeof(p), "%u", port);
		pid_t child = vfork();

		if (!child) {
			execl("/proc/self/exe", self, "vanish", scheme, p, (char *)NULL);
			_exit(127);
		}
		CHECK(waitpid(child, &status, 0) == child);
		connected += !status;
	}
	return NULL;
}

static unsigned memory_of_target(void)
{
	char path[64], line[200];
	unsigned k = 0;

	snprintf(path, sizeof(path), "/proc/%d/status", target);
	FILE *f = fopen(path, "r");

	CHECK(f);
	while (!k && fgets(line, sizeof(line), f))
		sscanf(line, "VmRSS: %u", &k);
	fclose(f);
	return k;
}

static void wave(struct load *l)
{
	pthread_t t[AT_A_TIME];

	gone = 0;
	for (int i = 0; i < AT_A_TIME; i++)
		CHECK(!pthread_create(&t[i], NULL, come_and_go, NULL));
	while (gone < hosts)
		load_run(l, 50);
	for (int i = 0; i < AT_A_TIME; i++)
		CHECK(!pthread_join(t[i], NULL));
}

static void hosts_that_vanish_disturb_nobody_and_leave_nothing(void)
{
	struct vn_options o = usual(1);
	struct load l = {.depth = 8, .largest = 32 << 10, .registered = true, .seed = 5};
	struct vn_statistics s;

	SAME(vn_open(url, &o, &l.disk, NULL, 0), 0);
	load_begin(&l);
	wave(&l);
	unsigned was = memory_of_target();

	wave(&l);
	load_end(&l);
	unsigned is = memory_of_target();

	vn_statistics(l.disk, &s);
	SAME(s.reconnects, 0);
	SAME(s.retries, 0);
	CHECK(connected);
	printf("   %u of the hosts connected; the target has %u KiB, then %u\n", (unsigned)connected, was, is);
#if !defined(__SANITIZE_ADDRESS__)
	CHECK(is < was + MAY_GROW);
#endif
	vn_close(l.disk);
	SAME(waitpid(target, NULL, WNOHANG), 0);
}

int main(int argc, char **argv)
{
	setvbuf(stdout, NULL, _IOLBF, 0);
	CHECK(argc >= 3);
	program = argv[1];
	scheme = argv[2];
	snprintf(self, sizeof(self), "%s", argv[0]);
	if (argc == 4 && !strcmp(program, "vanish")) {
		snprintf(url, sizeof(url), "nvme+%s://127.0.0.1:%s/" NQN "?nsid=2", scheme, argv[3]);
		return vanish();
	}
	if (argc > 3)
		hosts = (unsigned)atoi(argv[3]);
	if (argc > 4)
		given = argv[4];
	atexit(stop);
	start();
	RUN(hosts_that_vanish_disturb_nobody_and_leave_nothing);
	return 0;
}
