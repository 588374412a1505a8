// wire_link.c - emulates a slow and long link between two network namespaces: rate, delay, random loss, a bounded queue
// follows: Linux Documentation/networking/tuntap.rst. Does the work of tc-netem(8), for kernels without it.
// SPDX-License-Identifier: MIT
#include <errno.h>
#include <fcntl.h>
#include <linux/if_tun.h>
#include <net/if.h>
#include <poll.h>
#include <sys/ioctl.h>
#include <sys/prctl.h>
#include <unistd.h>

#include "clock.h"

enum {
	FRAME = 1514, // an Ethernet frame of MTU 1500
	SLOTS = 16384,
	OVERHEAD = 24, // preamble, checksum and gap, which also take time on a link
	NAP_NS = 50000,
	BATCH = 256,
};

struct slot {
	uint64_t due;
	uint32_t len;
	uint8_t frame[FRAME];
};

struct way {
	int from, to;
	struct slot *slots;
	uint32_t head, tail;
	uint64_t free_at; // when the last accepted bit leaves
};

static double ns_per_byte, loss;
static uint64_t delay_ns, queue_ns;

static int tap_in(const char *pid, const char *name)
{
	struct ifreq ifr = {.ifr_flags = IFF_TAP | IFF_NO_PI};
	char path[64];

	snprintf(path, sizeof(path), "/proc/%s/ns/net", pid);
	snprintf(ifr.ifr_name, sizeof(ifr.ifr_name), "%s", name);
	int net = open(path, O_RDONLY | O_CLOEXEC);
	if (net < 0 || setns(net, CLONE_NEWNET))
		fail(path);
	close(net);
	int fd = open("/dev/net/tun", O_RDWR | O_NONBLOCK | O_CLOEXEC);
	if (fd < 0 || ioctl(fd, TUNSETIFF, &ifr))
		fail("/dev/net/tun");
	return fd;
}

/* Drops the frame if the queue or the table is full, or by chance. */
static void accept_frame(struct way *w, uint32_t len, uint64_t now)
{
	struct slot *s = &w->slots[w->tail % SLOTS];
	uint64_t start = w->free_at > now ? w->free_at : now;

	if (start - now > queue_ns || w->tail - w->head == SLOTS - 1)
		return;
	w->free_at = start + (uint64_t)((len + OVERHEAD) * ns_per_byte);
	if (drand48() < loss)
		return;
	s->len = len;
	s->due = w->free_at + delay_ns;
	w->tail++;
}

static void take_in(struct way *w)
{
	for (int i = 0; i < BATCH; i++) {
		ssize_t n = read(w->from, w->slots[w->tail % SLOTS].frame, FRAME);

		if (n < 0 && errno != EAGAIN && errno != EIO)
			fail("read");
		if (n <= 0)
			return;
		accept_frame(w, (uint32_t)n, now_ns());
	}
}

static void hand_out(struct way *w)
{
	uint64_t now = now_ns();

	for (; w->head != w->tail && w->slots[w->head % SLOTS].due <= now; w->head++) {
		struct slot *s = &w->slots[w->head % SLOTS];

		if (write(w->to, s->frame, s->len) < 0 && errno != EAGAIN && errno != EIO)
			fail("write");
	}
}

/* Waits until a frame arrives or the first one is due, but at least NAP_NS. */
static void nap(struct way *ways)
{
	struct pollfd fds[2] = {{.fd = ways[0].from, .events = POLLIN}, {.fd = ways[1].from, .events = POLLIN}};
	struct timespec shortest = {.tv_nsec = NAP_NS}, wait = {.tv_sec = 1};
	uint64_t now = now_ns(), left = 1000000000;

	for (int i = 0; i < 2; i++) {
		uint64_t due = ways[i].head == ways[i].tail ? UINT64_MAX : ways[i].slots[ways[i].head % SLOTS].due;

		if (due < now + left)
			left = due > now ? due - now : 0;
	}
	if (left <= NAP_NS) {
		nanosleep(&shortest, NULL);
		return;
	}
	if (left < 1000000000)
		wait = (struct timespec){.tv_nsec = (long)left};
	if (ppoll(fds, 2, &wait, NULL) > 0)
		nanosleep(&shortest, NULL);
}

int main(int argc, char **argv)
{
	if (argc != 8) {
		fprintf(stderr, "usage: wire_link PID PID INTERFACE MBIT/S DELAY_MS LOSS_PERCENT QUEUE_MS\n");
		return 2;
	}
	ns_per_byte = 8000 / atof(argv[4]);
	delay_ns = (uint64_t)(atof(argv[5]) * 1e6);
	loss = atof(argv[6]) / 100;
	queue_ns = (uint64_t)(atof(argv[7]) * 1e6);
	int a = tap_in(argv[1], argv[3]), b = tap_in(argv[2], argv[3]);
	struct way ways[2] = {{.from = a, .to = b}, {.from = b, .to = a}};
	for (int i = 0; i < 2; i++) {
		ways[i].slots = calloc(SLOTS, sizeof(struct slot));
		if (!ways[i].slots)
			fail("calloc");
	}
	srand48((long)now_ns());
	prctl(PR_SET_TIMERSLACK, 1000, 0, 0, 0);
	puts("up");
	fflush(stdout);
	for (;;) {
		for (int i = 0; i < 2; i++)
			take_in(&ways[i]);
		for (int i = 0; i < 2; i++)
			hand_out(&ways[i]);
		nap(ways);
	}
}
