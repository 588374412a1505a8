// pcap.c - reads a capture: counts the opcodes of its RoCEv2 packets, and checks the ICRC of each
// follows: draft-ietf-opsawg-pcap; IBA volume 1, annex A17
// SPDX-License-Identifier: MIT
//
// usage: pcap FILE. Prints a line "OPCODE COUNT" for each opcode. Exit status 1 if an ICRC is wrong or there are no
// packets.
#include "../../unit/frame/reference.h"

#include <stdio.h>
#include <string.h>

enum { ETHER = 14, ROCE = 4791 };

static const char *name_of(unsigned opcode)
{
	for (size_t i = 0; i < ref_opcodes_len; i++)
		if (ref_opcodes[i].code == opcode)
			return ref_opcodes[i].name;
	return "unknown";
}

/* The length of the IP packet, without Ethernet padding; 0 if it is not a complete RoCEv2 packet. */
static size_t roce(const uint8_t *frame, size_t len, const uint8_t **bth)
{
	const uint8_t *ip = frame + ETHER, *udp;
	size_t all;

	if (len < ETHER + 60u - 20)
		return 0;
	if (frame[12] == 8 && ip[9] == 17) {
		udp = ip + 20;
		all = (size_t)(ip[2] << 8 | ip[3]);
	} else if (frame[12] == 0x86 && ip[6] == 17 && len >= ETHER + 60) {
		udp = ip + 40;
		all = (size_t)(ip[4] << 8 | ip[5]) + 40;
	} else {
		return 0;
	}
	*bth = udp + 8;
	return (udp[2] << 8 | udp[3]) == ROCE && ETHER + all <= len && all >= (size_t)(udp - ip) + 8 + 12 + 4 ? all : 0;
}

int main(int argc, char **argv)
{
	static uint8_t frame[1 << 18];
	static unsigned long count[256], wrong[256];
	unsigned long packets = 0, bad = 0, others = 0;
	uint32_t head[6], record[4];
	const uint8_t *bth;
	FILE *f = argc == 2 ? fopen(argv[1], "rb") : NULL;

	if (!f || fread(head, 24, 1, f) != 1 || head[0] != 0xa1b2c3d4 || (head[5] & 0xffff) != 1) {
		fprintf(stderr, "usage: pcap FILE, one of Ethernet in this machine's byte order\n");
		return 2;
	}
	while (fread(record, 16, 1, f) == 1 && record[2] <= sizeof(frame) &&
	       fread(frame, 1, record[2], f) == record[2]) {
		size_t all = record[2] == record[3] ? roce(frame, record[2], &bth) : 0;

		if (!all) {
			others++;
			continue;
		}
		packets++;
		count[*bth]++;
		if (!ref_icrc_ok(frame + ETHER, all)) {
			wrong[*bth]++;
			bad++;
		}
	}
	fclose(f);
	for (unsigned i = 0; i < 256; i++)
		if (count[i])
			printf("%s %lu%s\n", name_of(i), count[i], wrong[i] ? " with a wrong ICRC among them" : "");
	printf("%lu packets, %lu with a wrong ICRC, %lu others\n", packets, bad, others);
	return !packets || bad;
}
