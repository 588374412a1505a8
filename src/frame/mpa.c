// mpa.c - MPA: request and reply frames, their negotiation, and the framing of FPDUs in the stream
// follows: RFC 5044, 4 (FPDUs, markers, CRC) and 7.1 (connection setup); RFC 6581, 4 to 9 (enhanced connection setup)
// SPDX-License-Identifier: MIT
#include "frame/mpa.h"

#include "frame/crc32c.h"

#define KEY_LEN 16u

enum { FLAG_M = 0x80, FLAG_C = 0x40, FLAG_R = 0x20, FLAG_S = 0x10 };
enum { WORD_A = 0x8000, WORD_B = 0x4000, WORD_C = 0x8000, WORD_D = 0x4000 };

static const uint8_t keys[2][KEY_LEN + 1] = {"MPA ID Req Frame", "MPA ID Rep Frame"};

const char *vb_mpa_verdict_text(enum vb_mpa_verdict verdict)
{
	static const char *const text[] = {
#define X(name, words) [VB_MPA_##name] = words,
	        VB_MPA_VERDICTS(X)
#undef X
	};

	return text[verdict];
}

/* --- frames --- */

static bool begins_with(const uint8_t *bytes, size_t len, const uint8_t *key)
{
	return !memcmp(bytes, key, len < KEY_LEN ? len : KEY_LEN);
}

/* IRD word: A, B, 14 bits; ORD word: C, D, 14 bits. */
static void decode_words(struct vb_reader *r, struct vb_mpa_frame *f)
{
	uint16_t ird = vb_get16(r), ord = vb_get16(r);

	f->peer_to_peer = ird & WORD_A;
	f->rtr = (uint8_t)((ird & WORD_B ? VB_MPA_RTR_SEND : 0) | (ord & WORD_C ? VB_MPA_RTR_WRITE : 0) |
	                   (ord & WORD_D ? VB_MPA_RTR_READ : 0));
	f->ird = ird & VB_MPA_ANY_DEPTH;
	f->ord = ord & VB_MPA_ANY_DEPTH;
}

static void encode_words(struct vb_writer *w, const struct vb_mpa_frame *f)
{
	vb_put16(w, (uint16_t)((f->peer_to_peer ? WORD_A : 0) | (f->rtr & VB_MPA_RTR_SEND ? WORD_B : 0) |
	                       (f->ird & VB_MPA_ANY_DEPTH)));
	vb_put16(w, (uint16_t)((f->rtr & VB_MPA_RTR_WRITE ? WORD_C : 0) | (f->rtr & VB_MPA_RTR_READ ? WORD_D : 0) |
	                       (f->ord & VB_MPA_ANY_DEPTH)));
}

/* Key; M, C, R, S; revision; length of the private data; private data. */
enum vb_mpa_verdict vb_mpa_decode(struct vb_mpa_frame *frame, size_t *used, const uint8_t *bytes, size_t len,
                                  bool reply)
{
	struct vb_mpa_frame f = {.reply = reply};
	struct vb_reader r = vb_reader(bytes, len);

	if (!begins_with(bytes, len, keys[reply]))
		return begins_with(bytes, len, keys[!reply]) ? VB_MPA_WRONG_WAY : VB_MPA_KEY;
	vb_take(&r, KEY_LEN);
	uint8_t flags = vb_get8(&r);

	f.revision = vb_get8(&r);
	uint16_t rest = vb_get16(&r);

	if (r.failed)
		return VB_MPA_SHORT;
	if (f.revision != 1 && f.revision != 2)
		return VB_MPA_REVISION;
	if (rest > VB_MPA_PRIVATE_MAX)
		return VB_MPA_LENGTH;
	f.markers = flags & FLAG_M;
	f.crc = flags & FLAG_C;
	f.reject = flags & FLAG_R;
	f.enhanced = f.revision == 2 && flags & FLAG_S;
	if (f.reject && !reply)
		return VB_MPA_REJECT;
	if (f.enhanced && rest < VB_MPA_ENHANCED_LEN)
		return VB_MPA_ENHANCED;
	f.private_data = vb_take(&r, rest);
	if (r.failed)
		return VB_MPA_SHORT;
	f.private_len = rest;
	if (f.enhanced) {
		struct vb_reader words = vb_reader(f.private_data, VB_MPA_ENHANCED_LEN);

		decode_words(&words, &f);
		f.private_data += VB_MPA_ENHANCED_LEN;
		f.private_len = (uint16_t)(rest - VB_MPA_ENHANCED_LEN);
	}
	*frame = f;
	*used = r.pos;
	return VB_MPA_OK;
}

void vb_mpa_encode(struct vb_writer *w, const struct vb_mpa_frame *f)
{
	uint32_t rest = f->private_len + (f->enhanced ? VB_MPA_ENHANCED_LEN : 0);

	if (rest > VB_MPA_PRIVATE_MAX)
		w->failed = true;
	vb_put_bytes(w, keys[f->reply], KEY_LEN);
	vb_put8(w, (uint8_t)((f->markers ? FLAG_M : 0) | (f->crc ? FLAG_C : 0) | (f->reject ? FLAG_R : 0) |
	                     (f->enhanced ? FLAG_S : 0)));
	vb_put8(w, f->revision);
	vb_put16(w, (uint16_t)rest);
	if (f->enhanced)
		encode_words(w, f);
	vb_put_bytes(w, f->private_data, f->private_len);
}

/* --- negotiation --- */

static uint16_t lower_of(uint16_t a, uint16_t b)
{
	return a < b ? a : b;
}

static uint16_t limit_depth(uint16_t wish)
{
	return lower_of(wish, VB_MPA_ANY_DEPTH - 1);
}

void vb_mpa_request(struct vb_mpa_frame *request, const struct vb_mpa_wish *wish, const void *private_data,
                    uint16_t len)
{
	*request = (struct vb_mpa_frame){
	        .markers = wish->markers,
	        .crc = wish->crc,
	        .revision = wish->revision,
	        .enhanced = wish->revision >= 2,
	        .private_data = private_data,
	        .private_len = len,
	};
	if (!request->enhanced)
		return;
	request->peer_to_peer = wish->peer_to_peer && wish->rtr;
	request->rtr = request->peer_to_peer ? wish->rtr : 0;
	request->ird = limit_depth(wish->ird);
	request->ord = limit_depth(wish->ord);
}

/* Chooses the cheapest of these options. A write of length 0 has no effect at the receiver. */
static uint8_t choose_rtr(uint8_t both)
{
	return both & VB_MPA_RTR_WRITE  ? VB_MPA_RTR_WRITE
	       : both & VB_MPA_RTR_READ ? VB_MPA_RTR_READ
	                                : both & VB_MPA_RTR_SEND;
}

/* Negotiates the numbers of outstanding reads in both directions. */
static void agree_depths(struct vb_mpa_terms *terms, const struct vb_mpa_wish *wish, const struct vb_mpa_frame *peer)
{
	terms->ird = limit_depth(wish->ird);
	terms->ord = limit_depth(wish->ord);
	if (!peer->enhanced)
		return;
	if (peer->ird != VB_MPA_ANY_DEPTH)
		terms->ord = lower_of(terms->ord, peer->ird);
	if (peer->ord != VB_MPA_ANY_DEPTH)
		terms->ird = lower_of(terms->ird, peer->ord);
}

static void agree_framing(struct vb_mpa_terms *terms, const struct vb_mpa_wish *wish, const struct vb_mpa_frame *peer)
{
	*terms = (struct vb_mpa_terms){
	        .crc = wish->crc || peer->crc,
	        .markers_in = wish->markers,
	        .markers_out = peer->markers,
	};
}

enum vb_mpa_refusal vb_mpa_answer(struct vb_mpa_frame *reply, struct vb_mpa_terms *terms,
                                  const struct vb_mpa_wish *wish, const struct vb_mpa_frame *request)
{
	uint8_t revision = request->revision < wish->revision ? request->revision : wish->revision;

	agree_framing(terms, wish, request);
	agree_depths(terms, wish, request);
	*reply = (struct vb_mpa_frame){
	        .reply = true,
	        .markers = wish->markers,
	        .crc = terms->crc,
	        .revision = revision,
	        .enhanced = revision >= 2 && request->enhanced,
	        .ird = terms->ird,
	        .ord = terms->ord,
	};
	if (reply->enhanced && request->peer_to_peer) {
		terms->rtr = choose_rtr(request->rtr & wish->rtr);
		reply->peer_to_peer = true;
		reply->rtr = terms->rtr ? terms->rtr : wish->rtr; /* the option that would have been used */
		if (!terms->rtr) {
			reply->reject = true;
			return VB_MPA_NO_RTR;
		}
	}
	/* RFC 5044, 7.1, and RFC 6581, 4.3: the responder waits for the initiator's first FPDU, with or without RTR */
	terms->hold = true;
	return VB_MPA_AGREED;
}

enum vb_mpa_refusal vb_mpa_conclude(struct vb_mpa_terms *terms, const struct vb_mpa_wish *wish,
                                    const struct vb_mpa_frame *reply)
{
	agree_framing(terms, wish, reply);
	agree_depths(terms, wish, reply);
	if (reply->reject)
		return VB_MPA_REJECTED;
	if (reply->revision > wish->revision)
		return VB_MPA_NEWER;
	if (!reply->enhanced)
		return VB_MPA_AGREED;
	/* RFC 6581, 9.1: the peer wants more outstanding reads than we support, and accepts no fewer */
	if ((reply->ord != VB_MPA_ANY_DEPTH && reply->ord > limit_depth(wish->ird)) ||
	    (wish->strict && reply->ird != VB_MPA_ANY_DEPTH && reply->ird < limit_depth(wish->ord)))
		return VB_MPA_NO_IRD;
	if (wish->peer_to_peer && wish->rtr && reply->peer_to_peer) {
		terms->rtr = choose_rtr(reply->rtr & wish->rtr);
		if (!terms->rtr)
			return VB_MPA_NO_RTR;
	}
	return VB_MPA_AGREED;
}

/* --- FPDUs --- */

uint32_t vb_mpa_mulpdu(uint32_t emss, bool markers)
{
	uint32_t markers_len = markers ? VB_MPA_MARKER_LEN * ((emss + VB_MPA_INTERVAL - 1) / VB_MPA_INTERVAL) : 0;
	uint32_t taken = VB_MPA_LENGTH_LEN + VB_MPA_CRC_LEN + markers_len + emss % 4;

	if (emss <= taken)
		return 0;
	return emss - taken < VB_MPA_ULPDU_MAX ? emss - taken : VB_MPA_ULPDU_MAX;
}

static uint32_t to_marker(uint64_t position)
{
	return -(uint32_t)position & (VB_MPA_INTERVAL - 1);
}

uint32_t vb_mpa_marked_len(uint64_t position, uint32_t len)
{
	uint32_t first = to_marker(position), between = VB_MPA_INTERVAL - VB_MPA_MARKER_LEN;

	return len <= first ? len : len + VB_MPA_MARKER_LEN * ((len - first + between - 1) / between);
}

/* RFC 5044, 4.3: the marker's FPDUPTR counts bytes from the FPDU's first byte, or is 0 if the marker precedes the FPDU.
 * leads: the FPDU has a marker before it, which does not count. */
static uint32_t fpdu_pointer(uint32_t at, bool leads)
{
	return at && leads ? at - VB_MPA_MARKER_LEN : at;
}

void vb_mpa_mark(uint8_t *bytes, uint32_t len, uint64_t position)
{
	uint32_t marked = vb_mpa_marked_len(position, len), from = marked - len, to = 0, run = to_marker(position);
	bool leads = !run;

	while (from < marked) {
		uint32_t n = marked - from < run ? marked - from : run;

		memmove(bytes + to, bytes + from, n);
		from += n;
		to += n;
		if (from == marked)
			return;
		struct vb_writer w = vb_writer(bytes + to, VB_MPA_MARKER_LEN);

		vb_put16(&w, 0);
		vb_put16(&w, (uint16_t)fpdu_pointer(to, leads));
		to += VB_MPA_MARKER_LEN;
		run = VB_MPA_INTERVAL - VB_MPA_MARKER_LEN;
	}
}

bool vb_mpa_unmark(uint8_t *bytes, uint32_t len, uint64_t position)
{
	uint32_t marked = vb_mpa_marked_len(position, len), from = 0, to = 0, run = to_marker(position);
	bool leads = !run;

	while (from < marked) {
		uint32_t n = marked - from < run ? marked - from : run;

		memmove(bytes + to, bytes + from, n);
		from += n;
		to += n;
		if (from == marked)
			break;
		struct vb_reader r = vb_reader(bytes + from, VB_MPA_MARKER_LEN);

		vb_get16(&r);
		if (vb_get16(&r) != (uint16_t)fpdu_pointer(from, leads))
			return false;
		from += VB_MPA_MARKER_LEN;
		run = VB_MPA_INTERVAL - VB_MPA_MARKER_LEN;
	}
	return true;
}

/* The lowest byte of the CRC comes first, as in iSCSI. */
void vb_mpa_seal(uint8_t *fpdu, uint32_t marked_len)
{
	uint32_t crc = vb_crc32c(0, fpdu, marked_len - VB_MPA_CRC_LEN);

	for (uint32_t i = 0; i < VB_MPA_CRC_LEN; i++, crc >>= 8)
		fpdu[marked_len - VB_MPA_CRC_LEN + i] = (uint8_t)crc;
}

bool vb_mpa_sealed(const uint8_t *fpdu, uint32_t marked_len)
{
	uint32_t crc = vb_crc32c(0, fpdu, marked_len - VB_MPA_CRC_LEN), is = 0;

	for (uint32_t i = VB_MPA_CRC_LEN; i > 0; i--)
		is = is << 8 | fpdu[marked_len - VB_MPA_CRC_LEN + i - 1];
	return is == crc;
}
