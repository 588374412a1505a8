// packet.c - encodes and decodes a RoCEv2 packet
// follows: IBA volume 1, 9.2, 9.3, 9.6 (packet validation); annex A17 (RoCEv2), figure 5
// SPDX-License-Identifier: MIT
#include "frame/packet.h"

const char *vb_verdict_text(enum vb_verdict verdict)
{
	static const char *const text[] = {
#define X(name, words) [VB_PACKET_##name] = words,
	        VB_VERDICTS(X)
#undef X
	};

	return text[verdict];
}

/* Checks payload and pad. IBA volume 1, 9.2 (PadCnt), 9.7.4.1 (length). rest: their bytes. */
static enum vb_verdict check_rest(const struct vb_packet *p, size_t rest)
{
	if (rest % 4)
		return VB_PACKET_LENGTH;
	if (!(p->info->flags & VB_PAYLOAD))
		return rest ? VB_PACKET_LENGTH : p->bth.pad ? VB_PACKET_PAD : VB_PACKET_OK;
	if (p->bth.pad > rest || (p->bth.pad && !(p->info->flags & VB_LAST)))
		return VB_PACKET_PAD;
	return rest - p->bth.pad > VB_PAYLOAD_MAX ? VB_PACKET_LONG : VB_PACKET_OK;
}

__attribute__((hot)) enum vb_verdict vb_packet_decode(struct vb_packet *packet, const uint8_t *udp_payload, size_t len)
{
	struct vb_packet p = {0};
	struct vb_reader r = vb_reader(udp_payload, len < VB_ICRC_LEN ? 0 : len - VB_ICRC_LEN);

	vb_bth_decode(&r, &p.bth);
	if (r.failed)
		return VB_PACKET_TRUNCATED;
	if (p.bth.tver)
		return VB_PACKET_TVER;
	p.info = vb_opcode_info(p.bth.opcode);
	if (!p.info)
		return VB_PACKET_OPCODE;
#define X(arg, name, field, len)         \
	if (p.info->ext & VB_EXT_##name) \
		vb_##field##_decode(&r, &p.field);
	VB_EXTENSIONS(X, )
#undef X
	if (r.failed)
		return VB_PACKET_TRUNCATED;
	enum vb_verdict verdict = check_rest(&p, vb_left(&r));

	if (verdict != VB_PACKET_OK)
		return verdict;
	p.payload_at = (uint32_t)r.pos;
	p.payload_len = (uint32_t)(vb_left(&r) - p.bth.pad);
	*packet = p;
	return VB_PACKET_OK;
}

__attribute__((hot)) void vb_packet_encode(struct vb_writer *w, const struct vb_packet *p)
{
	const struct vb_opcode_info *info = vb_opcode_info(p->bth.opcode);

	if (!info) {
		w->failed = true;
		return;
	}
	vb_bth_encode(w, &p->bth);
#define X(arg, name, field, len)       \
	if (info->ext & VB_EXT_##name) \
		vb_##field##_encode(w, &p->field);
	VB_EXTENSIONS(X, )
#undef X
}
