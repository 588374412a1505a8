// cable.c - joins two network namespaces by a cable that can lose, repeat, delay and corrupt RoCEv2 packets
// follows: Linux Documentation/networking/tuntap
// SPDX-License-Identifier: MIT
//
// usage: cable NAMESPACE NAMESPACE INTERFACE [PORT]
// A tap of that name appears in both. A line on standard input sets percentages (loss=5 dup=5 reorder=5 corrupt=1) or
// cuts the cable (cut=1, cut=0). Settings that are not named become zero. Each line is answered with the counts since
// the last one.
// The end of standard input ends the cable. Only packets to that UDP port (4791) are affected. A corrupted packet also loses
// its UDP checksum, so that only the ICRC can detect it.
#define _GNU_SOURCE
#include <errno.h>
#include <fcntl.h>
#include <linux/if.h>
#include <linux/if_tun.h>
#include <poll.h>
#include <sched.h>
#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/ioctl.h>
#include <time.h>
#include <unistd.h>

enum { FRAME = 10240, HELD = 1024, ETHER = 14, ROCE = 4791 };

static unsigned affected = ROCE;

static struct {
	unsigned loss, dup, reorder, corrupt, cut;
} setting;

static struct {
	unsigned long passed, lost, twice, late, corrupted, cut;
} count;

static struct held {
	uint64_t due; /* 0: free */
	int to;
	size_t len;
	uint8_t frame[FRAME];
} held[HELD];

static uint64_t state = 1;

static uint32_t below(uint32_t limit)
{
	state ^= state >> 12; /* xorshift64* */
	state ^= state << 25;
	state ^= state >> 27;
	return (uint32_t)(state * 0x2545f4914f6cdd1d >> 32) % limit;
}

static uint64_t now_us(void)
{
	struct timespec t;

	clock_gettime(CLOCK_MONOTONIC, &t);
	return (uint64_t)t.tv_sec * 1000000 + (uint64_t)t.tv_nsec / 1000;
}

static void die(const char *what)
{
	fprintf(stderr, "cable: %s: %s\n", what, strerror(errno));
	exit(1);
}

static int open_tap(const char *ns, const char *name)
{
	char path[256];
	struct ifreq r = {.ifr_flags = IFF_TAP | IFF_NO_PI};

	snprintf(path, sizeof(path), "/run/netns/%s", ns);
	int n = open(path, O_RDONLY | O_CLOEXEC);

	if (n < 0 || setns(n, CLONE_NEWNET))
		die(path);
	close(n);
	int tap = open("/dev/net/tun", O_RDWR | O_NONBLOCK | O_CLOEXEC);

	snprintf(r.ifr_name, sizeof(r.ifr_name), "%s", name);
	if (tap < 0 || ioctl(tap, TUNSETIFF, &r))
		die("/dev/net/tun");
	return tap;
}

/* The UDP header of a packet to the port; NULL for all others. */
static uint8_t *udp_of(uint8_t *frame, size_t len)
{
	uint8_t *ip = frame + ETHER;
	uint8_t *udp = NULL;

	if (len > ETHER + 28 && frame[12] == 8 && frame[13] == 0 && ip[9] == 17 && !(ip[6] & 0x1f) && !ip[7])
		udp = ip + (ip[0] & 15) * 4;
	else if (len > ETHER + 48 && frame[12] == 0x86 && frame[13] == 0xdd && ip[6] == 17)
		udp = ip + 40;
	return udp && udp + 12 < frame + len && (unsigned)(udp[2] << 8 | udp[3]) == affected ? udp : NULL;
}

static bool happens(unsigned percent, unsigned long *counter)
{
	bool yes = percent && below(100) < percent;

	*counter += yes;
	return yes;
}

static void pass(int to, const uint8_t *frame, size_t len)
{
	count.passed++;
	if (write(to, frame, len) < 0 && errno != EAGAIN && errno != EIO && errno != ENOBUFS)
		die("write");
}

static bool hold(int to, const uint8_t *frame, size_t len)
{
	for (int i = 0; i < HELD; i++)
		if (!held[i].due) {
			held[i].due = now_us() + 500 + below(4000);
			held[i].to = to;
			held[i].len = len;
			memcpy(held[i].frame, frame, len);
			return true;
		}
	return false;
}

static void carry(int to, uint8_t *frame, size_t len)
{
	uint8_t *udp = udp_of(frame, len);

	if (setting.cut) {
		count.cut++;
		return;
	}
	if (!udp) {
		pass(to, frame, len);
		return;
	}
	if (happens(setting.loss, &count.lost))
		return;
	if (happens(setting.corrupt, &count.corrupted)) {
		udp[6] = udp[7] = 0;
		udp[8 + below((uint32_t)(frame + len - udp - 8))] ^= (uint8_t)(1u << below(8));
	}
	if (happens(setting.dup, &count.twice))
		pass(to, frame, len);
	if (setting.reorder && below(100) < setting.reorder && hold(to, frame, len)) {
		count.late++;
		return;
	}
	pass(to, frame, len);
}

/* Sends packets that are due. Returns the time until the next one, in ms; -1: none. */
static int release(void)
{
	uint64_t now = now_us(), next = UINT64_MAX;

	for (int i = 0; i < HELD; i++)
		if (held[i].due && held[i].due <= now) {
			pass(held[i].to, held[i].frame, held[i].len);
			held[i].due = 0;
		} else if (held[i].due && held[i].due < next) {
			next = held[i].due;
		}
	return next == UINT64_MAX ? -1 : (int)((next - now + 999) / 1000);
}

static void obey(char *line)
{
	static const struct {
		const char *name;
		unsigned *value;
	} names[] = {{"loss", &setting.loss},
	             {"dup", &setting.dup},
	             {"reorder", &setting.reorder},
	             {"corrupt", &setting.corrupt},
	             {"cut", &setting.cut}};

	memset(&setting, 0, sizeof(setting));
	for (char *w = strtok(line, " \n"); w; w = strtok(NULL, " \n")) {
		char *is = strchr(w, '=');

		if (is && !strncmp(w, "seed=", 5))
			state = strtoull(is + 1, NULL, 0) * 2 + 1;
		for (size_t i = 0; is && i < sizeof(names) / sizeof(*names); i++)
			if (strlen(names[i].name) == (size_t)(is - w) && !strncmp(w, names[i].name, (size_t)(is - w)))
				*names[i].value = (unsigned)atoi(is + 1);
	}
	printf("passed %lu lost %lu twice %lu late %lu corrupted %lu cut %lu\n", count.passed, count.lost, count.twice,
	       count.late, count.corrupted, count.cut);
	fflush(stdout);
	memset(&count, 0, sizeof(count));
}

static void drain(int from, int to)
{
	static uint8_t frame[FRAME];

	for (int i = 0; i < 64; i++) {
		ssize_t n = read(from, frame, sizeof(frame));

		if (n <= 0)
			return;
		carry(to, frame, (size_t)n);
	}
}

int main(int argc, char **argv)
{
	if (argc < 4)
		return fprintf(stderr, "usage: cable NAMESPACE NAMESPACE INTERFACE [PORT]\n"), 2;
	if (argc > 4)
		affected = (unsigned)atoi(argv[4]);
	int a = open_tap(argv[1], argv[3]), b = open_tap(argv[2], argv[3]);
	struct pollfd p[] = {{0, POLLIN, 0}, {a, POLLIN, 0}, {b, POLLIN, 0}};
	char line[256];

	printf("ready\n");
	fflush(stdout);
	for (;;) {
		if (poll(p, 3, release()) < 0 && errno != EINTR)
			die("poll");
		if (p[0].revents) {
			ssize_t n = read(0, line, sizeof(line) - 1);

			if (n <= 0)
				return 0;
			line[n] = 0;
			obey(line);
		}
		if (p[1].revents)
			drain(a, b);
		if (p[2].revents)
			drain(b, a);
	}
}
