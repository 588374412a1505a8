// arrival_test.c - a frame with its VLAN tag taken away and its FCS appended: both are of the frame that was on the wire
// follows: ibv_create_wq(3); IEEE 802.1Q, 802.3 3.2.9
// SPDX-License-Identifier: MIT
#include <stdbool.h>
#include <string.h>

#include "../../support/check.h"
#include "core/arrival.h"
#include "frame/crc32.h"

enum { MACS = 12, TAG = 4, ROOM = TAG + 64 + VB_FCS_LEN };

static uint8_t room[ROOM];

/* A frame of len bytes with a tag, or the beginning of one. */
static uint8_t *tagged_frame(uint32_t len)
{
	uint8_t *frame = room + TAG;

	for (unsigned i = 0; i < sizeof(room); i++)
		room[i] = (uint8_t)(0x40 + i);
	frame[MACS] = 0x81;
	frame[MACS + 1] = 0;
	frame[MACS + 2] = 0x20;
	frame[MACS + 3] = 0x05;
	memset(frame + len, 0xee, sizeof(room) - TAG - len);
	return frame;
}

static uint32_t fcs_at(const uint8_t *p)
{
	return p[0] | p[1] << 8 | p[2] << 16 | (uint32_t)p[3] << 24;
}

static void arrives(uint32_t len, uint32_t wants)
{
	uint8_t *frame = tagged_frame(len);
	uint32_t crc = vb_crc32(0, frame, len);
	bool strips = wants & IBV_WQ_FLAGS_CVLAN_STRIPPING && len >= MACS + TAG + 2;
	struct vb_arrival a = {.frame = frame, .len = len, .flow_tag = 7};

	vb_arrive(&a, wants);

	SAME(a.cvlan, strips ? 0x2005 : 0);
	SAME(a.len, len - (strips ? TAG : 0) + (wants & IBV_WQ_FLAGS_SCATTER_FCS ? VB_FCS_LEN : 0));
	SAME(a.frame - frame, strips ? TAG : 0);
	SAME(a.frame[0], 0x44);
	if (wants & IBV_WQ_FLAGS_SCATTER_FCS)
		SAME(fcs_at(a.frame + a.len - VB_FCS_LEN), crc);
	SAME(a.flow_tag, 7);
}

static void a_tag_is_taken_from_the_frame_alone(void)
{
	for (uint32_t len = MACS + 2; len < 64; len++)
		for (uint32_t wants = 0; wants <= VB_ARRIVAL_FLAGS; wants++)
			arrives(len, wants);
}

int main(void)
{
	RUN(a_tag_is_taken_from_the_frame_alone);
	return 0;
}
