// fabric_guest.c - VERBENA_FABRIC=udp:HOST: finds or starts the fabric process of this host that has VERBENA_NODE
// follows: verbena(7), VERBENA_FABRIC; man/verbena-fabric.8
// SPDX-License-Identifier: MIT
#include "tools/fabric_guest.h"

#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <poll.h>
#include <signal.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/file.h>
#include <sys/wait.h>
#include <unistd.h>

#include "fabric/proto/proto.h"
#include "tools/progress.h"
#include "tools/run_paths.h"
#include "tools/verbena.h"
#include "util/env.h"
#include "util/runtime.h"

#define SCHEME "udp:"
#define LINGER "30" /* s: so long the process stays for the next program */
enum { START_MS = 10000, ACTIVE_MS = 5000, STEP_MS = 20, PORT_ACTIVE = 4 };

struct guest {
	const char *host, *node, *secret;
	char socket[PATH_MAX], program[PATH_MAX];
};

static uint64_t mix(uint64_t h, const char *text)
{
	do
		h = (h ^ (uint8_t)*text) * 0x100000001b3ull;
	while (*text++);
	return h;
}

static bool place(struct guest *g)
{
	char dir[PATH_MAX - 64];
	int rc = vb_runtime_dir(dir, sizeof(dir));

	if (rc) {
		cmd_complain("run", "the runtime directory cannot be used: %s", strerror(rc));
		return false;
	}
	uint64_t h = mix(mix(mix(0xcbf29ce484222325ull, g->host), g->node), g->secret);

	snprintf(g->socket, sizeof(g->socket), "%s/fabric.%016llx", dir, (unsigned long long)h);
	return true;
}

static bool is_there(const char *path)
{
	int sock = vb_fabric_connect_to(path);

	if (sock >= 0)
		close(sock);
	return sock >= 0;
}

/* Not a child of this process, which becomes the program. What it says comes by the pipe until its socket is there. */
static void become_fabric(const struct guest *g, int said)
{
	int null = open("/dev/null", O_RDWR);

	setsid();
	if (fork())
		_exit(0);
	signal(SIGPIPE, SIG_IGN);
	dup2(null, 0);
	dup2(null, 1);
	dup2(said, 2);
	for (int fd = 3; fd < 1024; fd++)
		close(fd);
	if (chdir("/"))
		_exit(1);
	execl(g->program, "verbena-fabric", "--join", g->host, "--own", g->node, "--secret", g->secret, "--socket",
	      g->socket, "--linger", LINGER, (char *)NULL);
	dprintf(2, "verbena-fabric: %s: %s\n", g->program, strerror(errno));
	_exit(1);
}

/* Until the socket is there. False: the process has ended, and has said why. */
static bool await_socket(const struct guest *g, int said)
{
	char text[1024];
	size_t len = 0;

	for (int ms = 0; ms < START_MS; ms += STEP_MS) {
		struct pollfd p = {.fd = said, .events = POLLIN};

		if (len == sizeof(text) - 1) /* its last words matter */
			len = 0;
		ssize_t n = poll(&p, 1, STEP_MS) > 0 ? read(said, text + len, sizeof(text) - 1 - len) : -1;

		if (is_there(g->socket))
			return true;
		if (!n)
			break;
		len += n > 0 ? (size_t)n : 0;
		cmd_progress_show("... waits for the fabric at %s", g->host);
	}
	text[len] = '\0';
	cmd_progress_clear();
	fputs(len ? text : "verbena run: verbena-fabric has not started\n", stderr);
	return false;
}

static bool start_fabric(const struct guest *g)
{
	int said[2];
	pid_t child = pipe2(said, O_CLOEXEC) ? -1 : fork();

	if (child < 0) {
		cmd_complain("run", "verbena-fabric cannot be started: %s", strerror(errno));
		return false;
	}
	if (!child)
		become_fabric(g, said[1]);
	close(said[1]);
	waitpid(child, NULL, 0);
	bool started = await_socket(g, said[0]);

	close(said[0]);
	return started;
}

/* Programs look at the port at once; a subnet manager needs a moment to bring it up. If there is none, they see that. */
static void await_active(const struct guest *g)
{
	struct vb_fabric_port_is is = {.error = ENODEV};

	for (int ms = 0; ms < ACTIVE_MS; ms += STEP_MS) {
		if (vb_fabric_ask(VB_FABRIC_PORT, 1, "", &is, sizeof(is)) != sizeof(is) ||
		    (!is.error && is.port.state == PORT_ACTIVE))
			return;
		cmd_progress_show("... waits until the port of %s is Active", g->node);
		poll(NULL, 0, STEP_MS);
	}
}

/* This process becomes the program, which may be a shell: the fabric process stays while it runs. Where that cannot be, as from
 * another PID namespace, it stays while programs use it. */
static void keep_for_program(void)
{
	struct vb_fabric_reply r;

	vb_fabric_ask(VB_FABRIC_KEEP, 0, "", &r, sizeof(r));
}

/* Programs that start together have one fabric process, and find its port Active: the first one has the lock so long. */
static bool find_or_start(const struct guest *g)
{
	char path[PATH_MAX + 8];

	snprintf(path, sizeof(path), "%s.lock", g->socket);
	int lock = open(path, O_RDWR | O_CREAT | O_CLOEXEC | O_NOFOLLOW, 0600);

	if (lock < 0 || flock(lock, LOCK_EX)) {
		cmd_complain("run", "%s: %s", path, strerror(errno));
		if (lock >= 0)
			close(lock);
		return false;
	}
	cmd_progress_begin();
	bool started = !is_there(g->socket);
	bool there = (!started || start_fabric(g)) && !setenv("VERBENA_FABRIC", g->socket, 1);

	if (there)
		keep_for_program();
	if (there && started)
		await_active(g);
	cmd_progress_clear();
	close(lock);
	return there;
}

bool fabric_guest_start(void)
{
	const char *to = vb_env("VERBENA_FABRIC"), *secret = vb_env("VERBENA_FABRIC_SECRET");
	struct guest g = {.node = vb_fabric_node_name()};
	char real[PATH_MAX];

	if (!to || strncmp(to, SCHEME, strlen(SCHEME)) != 0)
		return true;
	g.host = to + strlen(SCHEME);
	if (!*g.host || !*g.node || !secret || !*secret) {
		cmd_complain("run",
		             "VERBENA_FABRIC=" SCHEME "HOST[:PORT] needs a host, the channel adapter in VERBENA_NODE, "
		             "and the file of the fabric's secret in VERBENA_FABRIC_SECRET");
		return false;
	}
	if (!realpath(secret, real)) {
		cmd_complain("run", "VERBENA_FABRIC_SECRET: %s: %s", secret, strerror(errno));
		return false;
	}
	g.secret = real;
	if (!run_find_fabric(g.program)) {
		cmd_complain("run", "VERBENA_FABRIC=%s: verbena-fabric was not found beside this program", to);
		return false;
	}
	return place(&g) && find_or_start(&g);
}
