// fuzz_relay.c - arbitrary merged datagrams through the relay: each packet reaches its lane once and unchanged
// follows: udp(7) (UDP_GRO); llvm.org/docs/LibFuzzer.html
// see: src/broker/server/relay.h
// build: tests/fuzz/run 60 relay
// SPDX-License-Identifier: MIT
#include "broker/server/relay.h"
#include "frame/fields.h"

#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#define CHANNELS 8
#define BTH_QPN 5

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

/* The last lanes: one whose packets are for all, and one that shares a socket with the first if there are few
 * sockets. */
static const uint32_t lanes[CHANNELS] = {1, 2, 17, 511, 512, 513, 1022, 1023};

static struct vb_relay relay;
static struct vb_lane_group group;
static int theirs[CHANNELS];
static uint64_t handed;
static bool to_group; /* address of the datagram */

static uint32_t qpn_of(const uint8_t *p, size_t len)
{
	return len < BTH_QPN + 3 ? 0 : (uint32_t)p[BTH_QPN] << 16 | (uint32_t)p[BTH_QPN + 1] << 8 | p[BTH_QPN + 2];
}

static bool is_for(const uint8_t *packet, size_t len, uint32_t lane, uint32_t socket)
{
	uint32_t qpn = qpn_of(packet, len);

	return qpn == VB_QPN_MASK ? to_group && vb_lanes_socket(&group, lane) == socket : qpn >> VB_LANE_SHIFT == lane;
}

/* A channel delivers the datagram's packets for its lane in order, with the same identifications. A full channel may
 * lack some at the end of a batch, but has none more. */
static void check_channel(int c, uint32_t socket, const struct vb_relay_head *sent, const uint8_t *data, size_t len)
{
	static uint8_t buffer[sizeof(struct vb_relay_head) + VB_RELAY_DATAGRAM];
	size_t seg = sent->seg && sent->seg < len ? sent->seg : len, at = 0;
	ssize_t n;

	while ((n = recv(theirs[c], buffer, sizeof(buffer), MSG_DONTWAIT)) > 0) {
		struct vb_relay_head h;

		if ((size_t)n <= sizeof(h))
			abort();
		memcpy(&h, buffer, sizeof(h));
		size_t got = (size_t)n - sizeof(h), each = h.seg ? h.seg : got;

		if ((h.seg && (h.seg != seg || got <= seg)) || memcmp(h.src, sent->src, 16) ||
		    memcmp(h.dst, sent->dst, 16))
			abort();
		for (size_t off = 0; off < got; off += each) {
			size_t this = got - off < each ? got - off : each;

			while (at < len && !is_for(data + at, len - at < seg ? len - at : seg, lanes[c], socket))
				at += seg;
			if (at >= len || this != (len - at < seg ? len - at : seg) ||
			    memcmp(buffer + sizeof(h) + off, data + at, this) != 0)
				abort();
			if (off == 0 && h.id != (uint16_t)(at / seg))
				abort();
			at += seg;
			handed++;
		}
	}
	for (; at < len && !relay.dropped; at += seg)
		if (is_for(data + at, len - at < seg ? len - at : seg, lanes[c], socket))
			abort();
}

static void open_channels(uint8_t which)
{
	for (int c = 0; c < CHANNELS; c++) {
		theirs[c] = -1;
		if (which >> c & 1 && vb_relay_channel(&relay.channel[lanes[c]], &theirs[c]))
			abort();
	}
}

static void close_channels(void)
{
	for (int c = 0; c < CHANNELS; c++)
		if (theirs[c] >= 0) {
			close(relay.channel[lanes[c]]);
			close(theirs[c]);
		}
}

/* Mostly a packet is for one of a few lanes, which the first bytes of its payload select. */
static void aim(uint8_t *bytes, size_t len, size_t seg)
{
	for (size_t at = 0; at + BTH_QPN + 3 <= len && at + BTH_QPN + 3 <= at + seg; at += seg) {
		uint8_t to = bytes[at];
		uint32_t qpn = to & 0x80 ? VB_QPN_MASK : lanes[to % CHANNELS] << VB_LANE_SHIFT | bytes[at + 4];

		if (to & 0x40)
			continue;
		bytes[at + BTH_QPN] = (uint8_t)(qpn >> 16);
		bytes[at + BTH_QPN + 1] = (uint8_t)(qpn >> 8);
		bytes[at + BTH_QPN + 2] = (uint8_t)qpn;
	}
}

/* Input: {sockets of the group and flags, channels, the datagram's socket, size of the packets (2)}, the datagram. */
int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
	struct vb_relay_head head = {.sport = 4791, .hop_limit = 64};

	if (size < 6)
		return 0;
	group = (struct vb_lane_group){.n = data[0] & 1 ? VB_LANE_COUNT : 16u << (data[0] >> 1 & 3),
	                               .split = data[0] & 0x10};
	uint32_t socket = data[0] & 0x20 ? vb_lanes_socket(&group, lanes[data[2] % CHANNELS]) : data[2] % group.n;
	uint8_t which = data[1];
	size_t len = size - 5;
	uint8_t *bytes = malloc(len); /* of its exact size, so that reads beyond it are noticed */

	head.seg = (uint32_t)(data[3] | (data[4] & 3) << 8);
	memset(head.src, data[3], sizeof(head.src));
	to_group = !(data[0] & 0x80);
	head.dst[0] = to_group ? 0xff : 0xfe;
	memcpy(bytes, data + 5, len);
	size_t seg = head.seg && head.seg < len ? head.seg : len;

	if (data[0] & 0x40)
		aim(bytes, len, seg);
	vb_relay_init(&relay, &group);
	handed = 0;
	open_channels(which);
	vb_relay_datagram(&relay, socket, &head, bytes, len);
	vb_relay_flush(&relay);
	for (int c = 0; c < CHANNELS; c++)
		if (theirs[c] >= 0)
			check_channel(c, socket, &head, bytes, len);
	if (handed != relay.relayed)
		abort();
	close_channels();
	free(bytes);
	return 0;
}
