// collect_known.c - frames that were recorded by their sender, so that the receiver's record is not needed
// see: docs/capture.md, "Each frame once"
// SPDX-License-Identifier: MIT
#include "tools/collect_known.h"

enum { ETHERNET = 14, IPV4 = 20, IPV6 = 40, PORTS = 4 };

bool cap_ip_layout(const struct cap_frame *frame, uint32_t *addrs, uint32_t *addr_len, uint32_t *body)
{
	uint32_t n = frame->rec.captured;

	if (n >= ETHERNET + IPV4 + PORTS && frame->bytes[12] == 0x08) {
		*addrs = ETHERNET + 12;
		*addr_len = 4;
		*body = ETHERNET + IPV4;
		return true;
	}
	if (n >= ETHERNET + IPV6 + PORTS && frame->bytes[12] == 0x86) {
		*addrs = ETHERNET + 8;
		*addr_len = 16;
		*body = ETHERNET + IPV6;
		return true;
	}
	return false;
}

/* FNV-1a */
static uint64_t hash_bytes(uint64_t hash, const uint8_t *bytes, uint32_t n)
{
	for (uint32_t i = 0; i < n; i++)
		hash = (hash ^ bytes[i]) * 0x100000001b3u;
	return hash;
}

/* A packet with this content was sent n times more than it was received. */
static bool packet_known(struct cap_known *k, uint64_t hash, bool sent)
{
	uint32_t i = (uint32_t)(hash ^ hash >> 32) % CAP_KNOWN;

	if (sent) {
		k->sent[i].n = k->sent[i].hash == hash ? k->sent[i].n + 1 : 1;
		k->sent[i].hash = hash;
		return false;
	}
	if (k->sent[i].hash != hash || !k->sent[i].n)
		return false;
	k->sent[i].n--;
	return true;
}

/* Both ends cut a stream into different pieces, so all that one end receives is left out if the other end is captured. */
static bool stream_known(struct cap_known *k, uint64_t hash, bool sent)
{
	uint64_t *at = &k->streams[(hash ^ hash >> 32) % CAP_KNOWN];

	if (sent)
		*at = hash;
	return !sent && *at == hash;
}

bool cap_known_test(struct cap_known *k, const struct cap_frame *frame)
{
	bool sent = frame->rec.direction == VB_CAPTURE_OUT;
	uint32_t addrs, addr_len, body;

	if (frame->rec.kind == VB_CAPTURE_LOCAL || !cap_ip_layout(frame, &addrs, &addr_len, &body))
		return false;
	uint64_t hash = hash_bytes(0xcbf29ce484222325u, frame->bytes + addrs, 2 * addr_len);
	if (frame->rec.kind == VB_CAPTURE_IWARP)
		return stream_known(k, hash_bytes(hash, frame->bytes + body, PORTS), sent);
	return packet_known(k, hash_bytes(hash, frame->bytes + body, frame->rec.captured - body), sent);
}
