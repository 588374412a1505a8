// fuzz_frame.c - arbitrary bytes as a UDP payload: nothing is read beyond them, and decoded headers encode to the same
// bytes
// follows: IBA volume 1, 9.2, 9.3; annex A17 (RoCEv2)
// SPDX-License-Identifier: MIT
#include <assert.h>
#include <stdlib.h>
#include <string.h>

#include "frame/icrc.h"
#include "frame/packet.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

/* Fields that are sent as zeros and ignored. */
static void clear_reserved(uint8_t *headers, const struct vb_packet *p)
{
	headers[4] &= 0xc0;
	headers[8] &= 0x80;
	if (p->info->ext & VB_EXT_DETH)
		headers[12 + 4] = 0;
	if (p->info->ext & VB_EXT_XRCETH)
		headers[12] = 0;
	if (p->info->ext & VB_EXT_FETH) {
		uint8_t *feth = headers + 12 + (p->info->ext & VB_EXT_XRCETH ? 4 : 0);

		memset(feth, 0, 3);
		feth[3] &= 0x3f;
	}
}

static void check_ok(const struct vb_packet *p, const uint8_t *bytes, size_t size)
{
	uint8_t want[64], got[64];
	struct vb_writer w = vb_writer(got, sizeof(got));

	assert(p->payload_at == p->info->header_len && p->payload_at <= sizeof(want));
	assert(p->payload_at + p->payload_len + p->bth.pad + VB_ICRC_LEN == size);
	assert(p->payload_len <= VB_PAYLOAD_MAX && (p->payload_len == 0 || p->info->flags & VB_PAYLOAD));
	memcpy(want, bytes, p->payload_at);
	clear_reserved(want, p);
	vb_packet_encode(&w, p);
	assert(!w.failed && w.pos == p->payload_at && !memcmp(want, got, w.pos));
}

/* The ICRC that we append is right, and the identification is found. */
static void check_icrc(uint8_t *bytes, size_t size, const struct vb_flow *flow, uint16_t id)
{
	uint32_t crc = vb_icrc_start(flow, id, bytes, VB_BTH_LEN, size);

	crc = vb_crc32(crc, bytes + VB_BTH_LEN, size - VB_BTH_LEN - VB_ICRC_LEN);
	vb_icrc_encode(bytes + size - VB_ICRC_LEN, crc);
	assert(vb_icrc_check(flow, id, bytes, size) == 0);
	if (vb_gid_is_ipv4(flow->dst) && size <= UINT16_MAX)
		assert(vb_icrc_find_id(vb_icrc_check(flow, 0, bytes, size), 0, size) == id);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
	struct vb_flow flow = {
	        .src = {[10] = 0xff, [11] = 0xff}, .dst = {[10] = 0xff, [11] = 0xff}, .dport = VB_ROCE_PORT};
	/* a separate allocation, with a red zone after it */
	uint8_t *bytes = malloc(size ? size : 1);
	struct vb_packet p;

	memcpy(bytes, data, size);
	if (vb_packet_decode(&p, bytes, size) == VB_PACKET_OK)
		check_ok(&p, bytes, size);
	uint32_t residual = vb_icrc_check(&flow, 0, bytes, size);

	assert(vb_icrc_find_id(residual, 0, size) < 65536);
	if (size >= VB_BTH_LEN + VB_ICRC_LEN) {
		memcpy(flow.src + 12, bytes, 4);
		flow.dst[0] = size & 8 ? 0x20 : 0;
		check_icrc(bytes, size, &flow, (uint16_t)(bytes[10] << 8 | bytes[11]));
	}
	free(bytes);
	return 0;
}
