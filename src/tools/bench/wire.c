// wire.c - the exchange before a session: 16 bytes that ask, 24 bytes that grant
// follows: verbena-bench(1)
// SPDX-License-Identifier: MIT
#include <endian.h>
#include <errno.h>
#include <netinet/in.h>
#include <poll.h>
#include <string.h>
#include <unistd.h>

#include "tools/bench/bench.h"
#include "tools/doctor/doctor.h"

static const char bench_magic[8] = {'V', 'B', 'b', 'e', 'n', 'c', 'h', '1'};

void bench_encode_ask(uint8_t out[BENCH_ASK_LEN], const struct bench_ask *ask)
{
	uint32_t kind = htobe32(ask->kind), size = htobe32(ask->size);

	memcpy(out, bench_magic, 8);
	memcpy(out + 8, &kind, 4);
	memcpy(out + 12, &size, 4);
}

bool bench_decode_ask(struct bench_ask *ask, const uint8_t in[BENCH_ASK_LEN])
{
	uint32_t kind, size;

	memcpy(&kind, in + 8, 4);
	memcpy(&size, in + 12, 4);
	kind = be32toh(kind);
	size = be32toh(size);
	if (memcmp(in, bench_magic, 8) != 0 || kind >= BENCH_KINDS || !size || size > BENCH_SIZE_MAX)
		return false;
	*ask = (struct bench_ask){.kind = kind, .size = size};
	return true;
}

void bench_encode_grant(uint8_t out[BENCH_GRANT_LEN], const struct bench_grant *g)
{
	uint64_t port = htobe64(g->port), token = htobe64(g->token);

	memcpy(out, bench_magic, 8);
	memcpy(out + 8, &port, 8);
	memcpy(out + 16, &token, 8);
}

bool bench_decode_grant(struct bench_grant *g, const uint8_t in[BENCH_GRANT_LEN])
{
	uint64_t port, token;

	memcpy(&port, in + 8, 8);
	memcpy(&token, in + 16, 8);
	port = be64toh(port);
	if (memcmp(in, bench_magic, 8) != 0 || port > UINT16_MAX)
		return false;
	*g = (struct bench_grant){.port = (uint16_t)port, .token = be64toh(token)};
	return true;
}

static bool bench_wait(int fd, short events, int64_t until)
{
	struct pollfd p = {.fd = fd, .events = events};
	int64_t left = (until - doc_now_us()) / 1000;

	return left > 0 && (poll(&p, 1, (int)left) > 0 || errno == EINTR);
}

bool bench_recv_all(int fd, void *buf, size_t n, int ms)
{
	int64_t until = doc_now_us() + (int64_t)ms * 1000;

	while (n && bench_wait(fd, POLLIN, until)) {
		ssize_t got = recv(fd, buf, n, MSG_DONTWAIT);

		if (!got || (got < 0 && errno != EAGAIN && errno != EINTR))
			return false;
		if (got > 0) {
			buf = (uint8_t *)buf + got;
			n -= (size_t)got;
		}
	}
	return !n;
}

bool bench_send_all(int fd, const void *buf, size_t n, int ms)
{
	int64_t until = doc_now_us() + (int64_t)ms * 1000;

	while (n && bench_wait(fd, POLLOUT, until)) {
		ssize_t put = send(fd, buf, n, MSG_DONTWAIT | MSG_NOSIGNAL);

		if (put < 0 && errno != EAGAIN && errno != EINTR)
			return false;
		if (put > 0) {
			buf = (const uint8_t *)buf + put;
			n -= (size_t)put;
		}
	}
	return !n;
}

void bench_set_port(struct sockaddr_storage *a, uint16_t port)
{
	if (a->ss_family == AF_INET6)
		((struct sockaddr_in6 *)a)->sin6_port = htons(port);
	else
		((struct sockaddr_in *)a)->sin_port = htons(port);
}

bool bench_same_host(const struct sockaddr_storage *a, const struct sockaddr_storage *b)
{
	if (a->ss_family != b->ss_family)
		return false;
	if (a->ss_family == AF_INET6)
		return !memcmp(&((const struct sockaddr_in6 *)a)->sin6_addr,
		               &((const struct sockaddr_in6 *)b)->sin6_addr, 16);
	return ((const struct sockaddr_in *)a)->sin_addr.s_addr == ((const struct sockaddr_in *)b)->sin_addr.s_addr;
}
