// dissect_sample.c - writes a packet of every opcode, over IPv4 and IPv6, as a capture file for tshark and as text
// follows: pcap-savefile(5), link type RAW; IBA annex A17 (RoCEv2)
// SPDX-License-Identifier: MIT
#include <inttypes.h>

#include "../../support/check.h"
#include "frame/icrc.h"
#include "frame/packet.h"
#include "frame/segment.h"
#include "reference.h"

static FILE *pcap, *text;

/* In this machine's byte order, which the magic number shows. */
static void put32(uint32_t v)
{
	CHECK(fwrite(&v, sizeof(v), 1, pcap) == 1);
}

static void put16(uint16_t v)
{
	CHECK(fwrite(&v, sizeof(v), 1, pcap) == 1);
}

static void put_file_header(void)
{
	put32(0xa1b2c3d4);
	put16(2); /* version 2.4 */
	put16(4);
	put32(0);
	put32(0);
	put32(65535);
	put32(101); /* LINKTYPE_RAW: begins with the IP header */
}

static void put_packet(const uint8_t *bytes, size_t len)
{
	static uint32_t seconds;

	put32(seconds++);
	put32(0);
	put32((uint32_t)len);
	put32((uint32_t)len);
	CHECK(fwrite(bytes, len, 1, pcap) == 1);
}

/* UDP over IPv4 needs no checksum; over IPv6 it does, or tshark complains. */
static uint16_t udp_checksum(const struct vb_flow *f, const uint8_t *udp, size_t len)
{
	uint32_t sum = 17 + (uint32_t)len;

	for (int i = 0; i < 16; i += 2)
		sum += (uint32_t)(f->src[i] << 8 | f->src[i + 1]) + (uint32_t)(f->dst[i] << 8 | f->dst[i + 1]);
	for (size_t i = 0; i < len; i += 2)
		sum += (uint32_t)(udp[i] << 8) + (i + 1 < len ? udp[i + 1] : 0);
	while (sum >> 16)
		sum = (sum & 0xffff) + (sum >> 16);
	return (uint16_t)(sum == 0xffff ? 0xffff : ~sum);
}

/* The expected output of tshark: the fields of dissect.sh, in its order. */
static void put_text(const struct vb_packet *p, const uint8_t *behind_bth, size_t len)
{
	const uint8_t *icrc = behind_bth + len - VB_ICRC_LEN;
	/* tshark 4.0 knows neither FLUSH nor ATOMIC WRITE, and no header of XRC */
	bool known = p->bth.opcode != VB_CNP && p->bth.opcode != VB_RC_FLUSH && p->bth.opcode != VB_RC_ATOMIC_WRITE &&
	             vb_opcode_info(p->bth.opcode)->service != VB_SVC_XRC;
	unsigned ext = known ? vb_opcode_info(p->bth.opcode)->ext : 0;

	fprintf(text, "%u|%d|%d|%u|%u|%u|0x%06x|%d|%u|", p->bth.opcode, p->bth.solicited, p->bth.migreq, p->bth.pad,
	        p->bth.tver, p->bth.pkey, p->bth.dest_qpn, p->bth.ack_req, p->bth.psn.v);
	if (ext & VB_EXT_DETH)
		fprintf(text, "0x%016" PRIx64 "|0x%08x|", (uint64_t)p->deth.qkey, p->deth.src_qpn);
	else
		fprintf(text, "||");
	if (ext & VB_EXT_RETH)
		fprintf(text, "0x%016" PRIx64 "|0x%08x|%u|", p->reth.va, p->reth.rkey, p->reth.length);
	else if (ext & VB_EXT_ATOMIC)
		fprintf(text, "0x%016" PRIx64 "|0x%08x||", p->atomic.va, p->atomic.rkey);
	else
		fprintf(text, "|||");
	if (ext & VB_EXT_ATOMIC)
		fprintf(text, "%" PRIu64 "|%" PRIu64 "|", p->atomic.swap_add, p->atomic.compare);
	else
		fprintf(text, "||");
	if (ext & VB_EXT_AETH)
		fprintf(text, "%u|%u|", p->aeth.kind << 5 | p->aeth.value, p->aeth.msn);
	else
		fprintf(text, "||");
	if (ext & VB_EXT_ATOMIC_ACK)
		fprintf(text, "%" PRIu64, p->atomic_ack.original);
	fprintf(text, "|");
	if (ext & VB_EXT_IMMDT)
		fprintf(text, "%08x", p->immdt.data);
	fprintf(text, "|");
	if (ext & VB_EXT_IETH)
		fprintf(text, "%08x", p->ieth.rkey);
	fprintf(text, "|");
	/* the dissector reads up to the ICRC if it knows the headers of the opcode; otherwise it shows the four bytes
	 * behind the BTH: of XRC the XRCETH */
	if (known)
		fprintf(text, "0x%02x%02x%02x%02x", icrc[0], icrc[1], icrc[2], icrc[3]);
	fprintf(text, "|");
	for (size_t i = 0; !known && i < 4; i++)
		fprintf(text, "%02x", behind_bth[i]);
	fprintf(text, "\n");
}

static struct vb_packet sample(uint8_t opcode, uint16_t payload)
{
	uint64_t r = ref_random();

	return (struct vb_packet){
	        .bth = {.opcode = opcode,
	                .pad = vb_pad_count(payload),
	                .solicited = r & 1,
	                .migreq = r >> 1 & 1,
	                .ack_req = r >> 2 & 1,
	                .pkey = 0xffff,
	                .dest_qpn = (uint32_t)(r >> 8) & 0xffffff,
	                .psn = vb_psn((uint32_t)(r >> 32))},
	        .xrceth.srqn = (uint32_t)ref_random() & 0xffffff,
	        .deth = {.qkey = (uint32_t)ref_random(), .src_qpn = (uint32_t)ref_random() & 0xffffff},
	        .feth = {.type = 1, .level = 1},
	        .reth = {.va = ref_random(), .rkey = (uint32_t)ref_random(), .length = (uint32_t)ref_random()},
	        .atomic = {.va = ref_random(),
	                   .rkey = (uint32_t)ref_random(),
	                   .swap_add = ref_random(),
	                   .compare = ref_random()},
	        .aeth = {.kind = VB_AETH_ACK, .value = VB_CREDITS_UNLIMITED, .msn = (uint32_t)ref_random() & 0xffffff},
	        .atomic_ack.original = ref_random(),
	        .immdt.data = (uint32_t)ref_random(),
	        .ieth.rkey = (uint32_t)ref_random(),
	};
}

static void put_sample(const struct vb_packet *p, const struct vb_flow *f, uint16_t payload)
{
	uint8_t ip[256];
	const struct vb_ip_fields fields = {.hop_limit = 64, .traffic_class = 2, .flow_label = 0x12345, .id = 77};
	size_t udp_payload = vb_opcode_info(p->bth.opcode)->header_len + payload + p->bth.pad + VB_ICRC_LEN;
	size_t ip_len = vb_ip_header(ip, f, &fields, udp_payload);
	struct vb_writer w = vb_writer(ip + ip_len, sizeof(ip) - ip_len);

	vb_put16(&w, f->sport);
	vb_put16(&w, f->dport);
	vb_put16(&w, (uint16_t)(8 + udp_payload));
	vb_put16(&w, 0);
	vb_packet_encode(&w, p);
	for (uint16_t i = 0; i < payload; i++)
		vb_put8(&w, 0x61);
	vb_put_zeros(&w, p->bth.pad + VB_ICRC_LEN);
	CHECK(!w.failed && w.pos == 8 + udp_payload);

	uint8_t *icrc = w.bytes + w.pos - VB_ICRC_LEN, *bth = w.bytes + 8;

	vb_icrc_encode(icrc, vb_icrc_start(f, fields.id, bth, udp_payload - VB_ICRC_LEN, udp_payload));
	CHECK(ref_icrc_ok(ip, ip_len + w.pos));
	if (ip_len == 40) {
		struct vb_writer sum = vb_writer(w.bytes + 6, 2);

		vb_put16(&sum, udp_checksum(f, w.bytes, w.pos));
	}
	put_packet(ip, ip_len + w.pos);
	put_text(p, bth + VB_BTH_LEN, udp_payload - VB_BTH_LEN);
}

int main(int argc, char **argv)
{
	if (argc != 3) {
		fprintf(stderr, "usage: dissect_sample PCAP TEXT\n");
		return 2;
	}
	pcap = fopen(argv[1], "wb");
	text = fopen(argv[2], "w");
	CHECK(pcap && text);
	put_file_header();
	struct vb_flow v4 = {.src = {[10] = 0xff, [11] = 0xff, [12] = 192, [14] = 2, [15] = 1},
	                     .dst = {[10] = 0xff, [11] = 0xff, [12] = 192, [14] = 2, [15] = 2},
	                     .sport = 0xc123,
	                     .dport = VB_ROCE_PORT};
	struct vb_flow v6 = {.src = {0x20, 1, 0xd, 0xb8, [15] = 1},
	                     .dst = {0x20, 1, 0xd, 0xb8, [15] = 2},
	                     .sport = 0xc124,
	                     .dport = VB_ROCE_PORT};

	for (size_t i = 0; i < ref_opcodes_len; i++) {
		const struct ref_opcode *o = &ref_opcodes[i];

		for (uint16_t payload = 0; payload <= (o->payload ? 64 : 0); payload += o->last ? 13 : 32) {
			struct vb_packet p = sample(o->code, payload);

			put_sample(&p, &v4, payload);
			put_sample(&p, &v6, payload);
		}
	}
	CHECK(!fclose(pcap) && !fclose(text));
	return 0;
}
