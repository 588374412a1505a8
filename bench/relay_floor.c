// relay_floor.c - the steps of packets through a fabric process as a bare loop of three processes: what they can reach
// follows: unix(7), SOCK_SEQPACKET; IBA volume 1, 7.8 (ICRC, VCRC); docs/infiniband.md
// SPDX-License-Identifier: MIT
#include <errno.h>
#include <poll.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <unistd.h>

#include "clock.h"
#include "frame/crc32.h"
#include "frame/lrh.h"

/*
 * usage: relay_floor GIB. Prints GB/s of payload.
 * The sender copies each packet from the program's memory into a train, and computes both CRCs. The relay checks the second
 * one of each packet, and passes the train on. The receiver checks the first one, and copies into the program's memory. It
 * acknowledges two trains at a time, by the relay. The sender spins while a MiB is not acknowledged; the others sleep.
 */
enum {
	PAYLOAD = 2048,
	FRONT = 8 + 12, /* LRH, BTH */
	PACKET = FRONT + PAYLOAD + 4 + VB_VCRC_LEN,
	PACKETS = 31,
	TRAIN = PACKETS * PACKET,
	ACK = 30,
	ACK_EVERY = 2,
	WINDOW = (1 << 20) / (PACKETS * PAYLOAD),
	BUFFER = 4 << 20,
	USER = 1 << 20
};

static _Alignas(64) uint8_t train[TRAIN], user[USER + PACKETS * PAYLOAD];

static void quit(const char *what)
{
	perror(what);
	exit(1);
}

static void link_of(int fd[2])
{
	int size = BUFFER;

	if (socketpair(AF_UNIX, SOCK_SEQPACKET, 0, fd))
		quit("socketpair");
	for (int i = 0; i < 2; i++)
		if (setsockopt(fd[i], SOL_SOCKET, SO_SNDBUFFORCE, &size, sizeof(size)))
			setsockopt(fd[i], SOL_SOCKET, SO_SNDBUF, &size, sizeof(size));
}

static void lay(uint8_t *packet, const uint8_t *from)
{
	memcpy(packet + FRONT, from, PAYLOAD);
	uint32_t crc = vb_crc32(0, packet + FRONT - 12, 12 + PAYLOAD);

	memcpy(packet + FRONT + PAYLOAD, &crc, sizeof(crc));
	vb_vcrc_encode(packet, PACKET - VB_VCRC_LEN);
}

static void sender(int fd, uint64_t trains)
{
	uint8_t ack[ACK];

	for (uint64_t sent = 0, acked = 0, at = 0; acked < trains;) {
		if (sent < trains && sent - acked < WINDOW) {
			for (int i = 0; i < PACKETS; i++, at = (at + PAYLOAD) % USER)
				lay(train + i * PACKET, user + at);
			if (send(fd, train, TRAIN, MSG_NOSIGNAL) < 0)
				quit("send");
			sent++;
		}
		if (recv(fd, ack, sizeof(ack), MSG_DONTWAIT) > 0)
			acked += ACK_EVERY;
		else if (errno != EAGAIN)
			quit("recv");
	}
}

static void relay(int from, int to)
{
	struct pollfd p[2] = {{.fd = from, .events = POLLIN}, {.fd = to, .events = POLLIN}};

	while (poll(p, 2, -1) > 0)
		for (int i = 0; i < 2; i++) {
			ssize_t n;

			while ((n = recv(p[i].fd, train, sizeof(train), MSG_DONTWAIT)) > 0) {
				for (int k = 0; k < n / PACKET; k++) {
					const uint8_t *end = train + (k + 1) * PACKET - VB_VCRC_LEN;

					if (vb_vcrc(0, end + VB_VCRC_LEN - PACKET, PACKET - VB_VCRC_LEN) !=
					    (end[0] | end[1] << 8))
						exit(1);
				}
				if (send(p[!i].fd, train, (size_t)n, MSG_NOSIGNAL) < 0)
					exit(1);
			}
			if (!n)
				exit(0);
		}
}

static void receiver(int fd)
{
	uint8_t ack[ACK] = {0};

	for (uint64_t got = 1, at = 0; recv(fd, train, sizeof(train), 0) == TRAIN; got++) {
		for (int i = 0; i < PACKETS; i++, at = (at + PAYLOAD) % USER) {
			uint8_t *packet = train + i * PACKET;
			uint32_t crc = vb_crc32(0, packet + FRONT - 12, 12 + PAYLOAD);

			if (memcmp(packet + FRONT + PAYLOAD, &crc, sizeof(crc)) != 0)
				exit(1);
			memcpy(user + at, packet + FRONT, PAYLOAD);
		}
		if (got % ACK_EVERY == 0 && send(fd, ack, sizeof(ack), MSG_NOSIGNAL) < 0)
			exit(1);
	}
	exit(0);
}

int main(int argc, char **argv)
{
	uint64_t trains =
	        (strtoull(argc > 1 ? argv[1] : "1", NULL, 10) << 30) / (PACKETS * PAYLOAD) / ACK_EVERY * ACK_EVERY;
	int in[2], out[2];

	link_of(in);
	link_of(out);
	memset(user, 1, sizeof(user));
	if (!fork()) {
		close(in[0]);
		close(out[1]);
		relay(in[1], out[0]);
	}
	close(in[1]);
	if (!fork()) {
		close(in[0]);
		close(out[0]);
		receiver(out[1]);
	}
	close(out[0]);
	close(out[1]);
	uint64_t start = now_ns();

	sender(in[0], trains);
	printf("%.2f\n", (double)(trains * PACKETS * PAYLOAD) / (double)(now_ns() - start));
	close(in[0]);
	while (wait(NULL) > 0)
		;
	return 0;
}
