// capture.c - a captured program that sends the collector garbage: rings, descriptors and greetings of every wrong kind
// see: docs/capture.md
// SPDX-License-Identifier: MIT

#include "../support/check.h"
#include "capture/ring.h"

#include <fcntl.h>
#include <stdbool.h>
#include <sys/eventfd.h>
#include <sys/mman.h>
#include <sys/socket.h>
#include <sys/un.h>
#include <unistd.h>

enum { ROUNDS = 300, KINDS = 9 };

static uint32_t random_state = 20260101u;

static uint32_t next_random(void)
{
	random_state = random_state * 1664525u + 1013904223u;
	return random_state >> 8;
}

static int connect_collector(void)
{
	struct sockaddr_un sun = {.sun_family = AF_UNIX};
	const char *path = getenv("VERBENA_CAPTURE");
	int sock = socket(AF_UNIX, SOCK_STREAM, 0);

	CHECK(path && sock >= 0);
	snprintf(sun.sun_path, sizeof(sun.sun_path), "%s", path);
	CHECK(!connect(sock, (struct sockaddr *)&sun, sizeof(sun)));
	return sock;
}

static void greet(int sock, uint32_t version, const int *fds, size_t n)
{
	union {
		struct cmsghdr align;
		char bytes[CMSG_SPACE(8 * sizeof(int))];
	} control = {0};
	struct vb_capture_hello hello = {VB_CAPTURE_MAGIC, version};
	struct iovec iov = {&hello, sizeof(hello)};
	struct msghdr msg = {.msg_iov = &iov, .msg_iovlen = 1};

	if (n) {
		msg.msg_control = &control;
		msg.msg_controllen = CMSG_SPACE(n * sizeof(int));
		struct cmsghdr *m = CMSG_FIRSTHDR(&msg);
		m->cmsg_level = SOL_SOCKET;
		m->cmsg_type = SCM_RIGHTS;
		m->cmsg_len = CMSG_LEN(n * sizeof(int));
		memcpy(CMSG_DATA(m), fds, n * sizeof(int));
	}
	CHECK(sendmsg(sock, &msg, MSG_NOSIGNAL) >= 0);
}

static struct vb_capture_ring *make_ring(int *fd, size_t size, int seals)
{
	*fd = memfd_create("capture", MFD_ALLOW_SEALING);
	CHECK(*fd >= 0 && !ftruncate(*fd, (off_t)size) && (!seals || !fcntl(*fd, F_ADD_SEALS, seals)));
	struct vb_capture_ring *ring = mmap(NULL, size, PROT_READ | PROT_WRITE, MAP_SHARED, *fd, 0);
	CHECK(ring != MAP_FAILED);
	memset(ring->comm, next_random() & 0xff, sizeof(ring->comm));
	return ring;
}

/* Fills records that are partly right. */
static void fill_ring(struct vb_capture_ring *ring)
{
	uint8_t *at = (uint8_t *)ring + VB_CAPTURE_HEAD;
	uint32_t pos = 0;

	for (int i = 0; i < 50; i++) {
		struct vb_capture_record rec = {.size = 32 + 32 * (next_random() % 8),
		                                .captured = next_random() % 256,
		                                .length = next_random() % 512,
		                                .headers = (uint16_t)next_random(),
		                                .direction = (uint8_t)(1 + next_random() % 2),
		                                .kind = (uint8_t)(next_random() % 5),
		                                .time = next_random(),
		                                .qpn = next_random()};

		if (next_random() % 4 && rec.captured > rec.size - 32)
			rec.captured = rec.size - 32;
		if (rec.length < rec.captured && next_random() % 8)
			rec.length = rec.captured;
		if (!(next_random() % 30))
			rec.size = next_random();
		memcpy(at + pos, &rec, sizeof(rec));
		for (uint32_t b = 32; b < 288; b++)
			at[pos + b] = (uint8_t)next_random();
		at[pos + 32 + 12] = next_random() % 2 ? 0x08 : 0x86;
		pos += 32 + (rec.size < 512 ? rec.size - 32 : 0);
	}
	atomic_store(&ring->tail, next_random() % 5 ? pos : (uint64_t)next_random() << (next_random() % 40));
	atomic_store(&ring->dropped, next_random() % 2 ? 0 : 3);
}

static void attack_once(unsigned kind)
{
	int sock = connect_collector(), fd = -1, seals = F_SEAL_SHRINK | F_SEAL_GROW, fds[8];
	struct vb_capture_ring *ring = make_ring(&fd, VB_CAPTURE_MAP, kind == 2 ? 0 : seals), *small = NULL;
	int event = eventfd(next_random() % 2, 0), other = -1;

	for (int i = 0; i < 8; i++)
		fds[i] = i % 2 ? event : fd;
	fill_ring(ring);
	switch (kind) {
	case 0:
		greet(sock, VB_CAPTURE_VERSION, NULL, 0);
		break;
	case 1:
		greet(sock, VB_CAPTURE_VERSION + 1, fds, 2);
		break;
	case 3: /* a ring that is too small */
		small = make_ring(&other, 4096, seals);
		fds[0] = other;
		greet(sock, VB_CAPTURE_VERSION, fds, 2);
		munmap(small, 4096);
		break;
	case 4:
		greet(sock, VB_CAPTURE_VERSION, fds, 1);
		break;
	case 5:
		CHECK(send(sock, "x", 1, 0) == 1);
		break;
	case 6: /* more descriptors than are received */
		greet(sock, VB_CAPTURE_VERSION, fds, 8);
		break;
	case 7: /* something else than an event descriptor */
		fds[1] = fd;
		greet(sock, VB_CAPTURE_VERSION, fds, 2);
		break;
	default:
		greet(sock, VB_CAPTURE_VERSION, fds, 2);
	}
	for (int i = 0; i < 20 && kind == 8; i++) { /* changes what the collector reads */
		fill_ring(ring);
		usleep(500);
	}
	munmap(ring, VB_CAPTURE_MAP);
	close(fd);
	close(event);
	if (other >= 0)
		close(other);
	if (next_random() % 2)
		usleep(2000);
	close(sock);
}

/* Ends its socket, and goes on to record until the collector has closed its own end. */
static void record_without_end(void)
{
	int sock = connect_collector(), fd = -1, event = eventfd(0, 0);
	struct vb_capture_ring *ring = make_ring(&fd, VB_CAPTURE_MAP, F_SEAL_SHRINK | F_SEAL_GROW);
	const struct vb_capture_record rec = {
	        .size = 256, .captured = 64, .length = 64, .direction = VB_CAPTURE_OUT, .kind = VB_CAPTURE_ROCE};
	const int fds[2] = {fd, event};
	char byte;
	bool closed = false;

	for (uint32_t at = 0; at < VB_CAPTURE_BYTES; at += rec.size)
		memcpy((uint8_t *)ring + VB_CAPTURE_HEAD + at, &rec, sizeof(rec));
	atomic_store(&ring->tail, VB_CAPTURE_BYTES);
	greet(sock, VB_CAPTURE_VERSION, fds, 2);
	CHECK(!shutdown(sock, SHUT_WR));
	for (int i = 0; i < 1000000 && !closed && atomic_load(&ring->head) < 8ull * VB_CAPTURE_BYTES; i++) {
		atomic_store(&ring->tail, atomic_load(&ring->head) + VB_CAPTURE_BYTES);
		closed = recv(sock, &byte, 1, MSG_DONTWAIT) == 0;
		usleep(50);
	}
	if (!closed)
		CHECK_FAILED("the collector does not leave a ring that is filled again and again");
	munmap(ring, VB_CAPTURE_MAP);
	close(fd);
	close(event);
	close(sock);
}

/* A pipe in place of the event descriptor could make the collector wait for a byte. */
static void offer_pipe(void)
{
	int sock = connect_collector(), fd = -1, ends[2];
	struct vb_capture_ring *ring = make_ring(&fd, VB_CAPTURE_MAP, F_SEAL_SHRINK | F_SEAL_GROW);
	const struct timeval patience = {.tv_sec = 30};
	char byte;

	CHECK(!pipe(ends) && !setsockopt(sock, SOL_SOCKET, SO_RCVTIMEO, &patience, sizeof(patience)));
	greet(sock, VB_CAPTURE_VERSION, (const int[]){fd, ends[0]}, 2);
	if (recv(sock, &byte, 1, 0))
		CHECK_FAILED("the collector takes a pipe for an event descriptor");
	munmap(ring, VB_CAPTURE_MAP);
	close(fd);
	close(ends[0]);
	close(ends[1]);
	close(sock);
}

int main(void)
{
	for (unsigned i = 0; i < ROUNDS; i++)
		attack_once(i % KINDS);
	record_without_end();
	offer_pipe();
	return 0;
}
