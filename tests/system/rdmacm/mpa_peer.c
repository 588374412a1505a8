// mpa_peer.c - a peer on a plain socket that sends arbitrary MPA frames
// follows: RFC 5044, 7.1; RFC 6581, 9
// SPDX-License-Identifier: MIT
#include "mpa_peer.h"

#include <linux/sockios.h>
#include <sys/ioctl.h>
#include <sys/socket.h>

struct bytes frame(bool reply, unsigned flags, unsigned revision, const void *data, size_t len)
{
	struct bytes b = {.len = 20 + len};

	memcpy(b.at, reply ? "MPA ID Rep Frame" : "MPA ID Req Frame", 16);
	b.at[16] = (uint8_t)flags;
	b.at[17] = (uint8_t)revision;
	b.at[18] = (uint8_t)(len >> 8);
	b.at[19] = (uint8_t)len;
	if (len)
		memcpy(b.at + 20, data, len);
	return b;
}

struct bytes enhanced(bool reply, unsigned flags, unsigned ird, unsigned ord, const void *data, size_t len)
{
	uint8_t all[512] = {(uint8_t)(ird >> 8), (uint8_t)ird, (uint8_t)(ord >> 8), (uint8_t)ord};

	if (len)
		memcpy(all + 4, data, len);
	return frame(reply, flags | S, 2, all, len + 4);
}

int tcp_to(unsigned port)
{
	union address a = at("127.0.0.1", port);
	int fd = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);

	CHECK(fd >= 0);
	MUST(connect(fd, &a.sa, sizeof(a.sin)));
	return fd;
}

int tcp_listen(unsigned *port)
{
	union address a = at("127.0.0.1", 0);
	int fd = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);

	CHECK(fd >= 0);
	MUST(bind(fd, &a.sa, sizeof(a.sin)));
	MUST(listen(fd, 16));
	*port = port_of(fd, false);
	return fd;
}

int tcp_accept(int fd)
{
	int got = accept(fd, NULL, NULL);

	CHECK(got >= 0);
	return got;
}

unsigned port_of(int fd, bool peer)
{
	struct sockaddr_in sin;
	socklen_t len = sizeof(sin);

	MUST((peer ? getpeername : getsockname)(fd, (struct sockaddr *)&sin, &len));
	return ntohs(sin.sin_port);
}

void say(int fd, const struct bytes *b)
{
	SAME(send(fd, b->at, b->len, MSG_NOSIGNAL), b->len);
}

void has_arrived(int fd)
{
	int left = 1;

	for (int ms = 0; ms < PATIENCE && left; ms++) {
		MUST(ioctl(fd, SIOCOUTQ, &left));
		if (left)
			sleep_ms(1);
	}
	SAME(left, 0);
}

static unsigned get16(const uint8_t *at)
{
	return (unsigned)(at[0] << 8 | at[1]);
}

static void hear_all(int fd, uint8_t *to, size_t len)
{
	if (len)
		SAME(recv(fd, to, len, MSG_WAITALL), len);
}

struct heard listen_to(int fd)
{
	uint8_t head[20], words[4];
	struct heard h = {0};

	hear_all(fd, head, sizeof(head));
	h.reply = !memcmp(head, "MPA ID Rep Frame", 16);
	CHECK(h.reply || !memcmp(head, "MPA ID Req Frame", 16));
	h.flags = head[16];
	h.revision = head[17];
	h.len = get16(head + 18);
	CHECK(h.len <= 512);
	if (h.flags & S) {
		hear_all(fd, words, sizeof(words));
		h.ird = get16(words);
		h.ord = get16(words + 2);
		h.len -= 4;
	}
	hear_all(fd, h.data, h.len);
	return h;
}

bool says(const struct heard *h, const char *text)
{
	return h->len == strlen(text) && !memcmp(h->data, text, h->len);
}

static ssize_t drain(int fd)
{
	char waste[1024];
	ssize_t n;

	while ((n = recv(fd, waste, sizeof(waste), 0)) > 0)
		;
	return n;
}

bool ends(int fd)
{
	return drain(fd) == 0 || errno == ECONNRESET;
}

bool ends_in_order(int fd)
{
	return drain(fd) == 0;
}
