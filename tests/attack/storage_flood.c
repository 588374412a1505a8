// storage_flood.c - a hostile host opens connections to verbena-target as fast as it can; hosts at other addresses still get in
// follows: NVMe/TCP transport specification 1.0, 3.3; NVMe over Fabrics 1.1, 3.3 (Connect)
// SPDX-License-Identifier: MIT
// usage: storage_flood TARGET DISK
#include <arpa/inet.h>
#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <unistd.h>

#include "nvme/nqn.h"
#include "nvme/nvme.h"

#define SUBNQN "nqn.2026-01.test:flood"
#define SOCKETS 600 /* more connections than the target accepts */
#define ICREQ_LEN 128
#define CMD_LEN 72

static const char *target_program, *disk_program;
static uint16_t port;
static pid_t target;

static void die(const char *what)
{
	fprintf(stderr, "%s: %s\n", what, strerror(errno));
	exit(1);
}

static void start(void)
{
	char line[300], *at;
	int pipes[2];

	if (pipe2(pipes, O_CLOEXEC))
		die("pipe");
	target = fork();
	if (!target) {
		prctl(PR_SET_PDEATHSIG, SIGKILL);
		dup2(pipes[1], 1);
		execl(target_program, target_program, "--export", "memory:4M", "--port", "0", "--nqn", SUBNQN,
		      (char *)NULL);
		_exit(127);
	}
	close(pipes[1]);
	FILE *f = fdopen(pipes[0], "r");

	at = f && fgets(line, sizeof(line), f) ? strstr(line, "127.0.0.1:") : NULL;
	if (!at)
		die("verbena-target");
	port = (uint16_t)atoi(at + 10);
	fclose(f);
}

static int dial(void)
{
	struct sockaddr_in from = {.sin_family = AF_INET, .sin_addr.s_addr = htonl(0x7f000009)},
	                   to = {.sin_family = AF_INET,
	                         .sin_port = htons(port),
	                         .sin_addr.s_addr = htonl(INADDR_LOOPBACK)};
	int fd = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);

	if (fd < 0 || bind(fd, (struct sockaddr *)&from, sizeof(from)))
		die("socket");
	if (!connect(fd, (struct sockaddr *)&to, sizeof(to)))
		return fd;
	close(fd);
	return -1;
}

/* ICReq, then Connect to the discovery service, in one write, without waiting for an answer. */
static void ask_for_discovery(int fd)
{
	uint8_t m[ICREQ_LEN + CMD_LEN + NV_CONNECT_DATA_LEN] = {0}, *cmd = m + ICREQ_LEN, *data = cmd + CMD_LEN;
	struct nv_sqe s = {.opcode = NV_FABRICS,
	                   .psdt = NV_PSDT_SGL,
	                   .fctype = NV_FCT_CONNECT,
	                   .sgl = {.type = NV_SGL_DATA, .subtype = NV_SGL_OFFSET, .length = NV_CONNECT_DATA_LEN},
	                   .cdw = {0, 31, 0}};

	m[2] = ICREQ_LEN; /* HLEN; PLEN at 4 */
	m[4] = ICREQ_LEN;
	cmd[0] = 4; /* CapsuleCmd */
	cmd[2] = cmd[3] = CMD_LEN;
	nv_put32(cmd + 4, CMD_LEN + NV_CONNECT_DATA_LEN);
	nv_sqe_encode(&s, cmd + 8);
	data[NV_CONNECT_AT_HOSTID] = 1;
	nv_put16(data + NV_CONNECT_AT_CNTLID, NV_CNTLID_DYNAMIC);
	strcpy((char *)data + NV_CONNECT_AT_SUBNQN, NV_DISCOVERY_NQN);
	strcpy((char *)data + NV_CONNECT_AT_HOSTNQN, "nqn.2026-01.test:hostile");
	(void)!send(fd, m, sizeof(m), MSG_NOSIGNAL);
}

/* Opens each connection that the target ends again. Never returns. */
static void flood(bool discovery, int ready)
{
	static struct pollfd p[SOCKETS];
	char byte;

	for (int i = 0; i < SOCKETS; i++)
		p[i].fd = -1;
	for (int round = 0;; round++) {
		for (int i = 0; i < SOCKETS; i++) {
			p[i].events = POLLIN | POLLRDHUP;
			if (p[i].fd < 0 && (p[i].fd = dial()) >= 0 && discovery)
				ask_for_discovery(p[i].fd);
		}
		if (round == 2)
			(void)!write(ready, "r", 1);
		poll(p, SOCKETS, 20);
		for (int i = 0; i < SOCKETS; i++)
			while (p[i].fd >= 0 && (p[i].revents & (POLLRDHUP | POLLHUP | POLLERR | POLLIN))) {
				ssize_t n = recv(p[i].fd, &byte, 1, MSG_DONTWAIT);

				if (n < 0 && errno == EAGAIN)
					break;
				if (n > 0)
					continue;
				close(p[i].fd);
				p[i].fd = -1;
			}
	}
}

/* A host at another address, with a normal host's patience. */
static bool another_gets(const char *command)
{
	char line[800];

	snprintf(line, sizeof(line), "timeout 30 '%s' %s nvme+tcp://127.0.0.1:%u/" SUBNQN " >/dev/null", disk_program,
	         command, port);
	return !system(line);
}

static int attack(const char *name, bool discovery)
{
	int pipes[2], bad = 0;
	char byte;

	if (pipe2(pipes, O_CLOEXEC))
		die("pipe");
	pid_t hostile = fork();

	if (!hostile) {
		prctl(PR_SET_PDEATHSIG, SIGKILL);
		flood(discovery, pipes[1]);
	}
	close(pipes[1]);
	if (read(pipes[0], &byte, 1) != 1)
		die("the hostile host");
	close(pipes[0]);
	for (int i = 0; i < 3; i++)
		bad += !another_gets("info") + !another_gets("list");
	kill(hostile, SIGKILL);
	waitpid(hostile, NULL, 0);
	printf("%s %s\n", bad ? "FAIL" : "ok", name);
	return bad;
}

int main(int argc, char **argv)
{
	int status;

	setvbuf(stdout, NULL, _IOLBF, 0);
	if (argc != 3)
		return 2;
	target_program = argv[1];
	disk_program = argv[2];
	start();
	int bad = attack("connections_that_say_nothing_leave_room_for_others", false);

	bad += attack("so_do_connections_to_the_discovery_service", true);
	if (waitpid(target, NULL, WNOHANG))
		die("verbena-target has ended");
	kill(target, SIGTERM);
	waitpid(target, &status, 0);
	return bad || status;
}
