// grh.c - the 40 bytes in front of a received datagram
// follows: IBA annex A17 (RoCEv2), A17.4.5.1: GRH, or for IPv4 the header in the last 20 bytes; RFC 791, RFC 8200
// SPDX-License-Identifier: MIT
#include <arpa/inet.h>
#include <string.h>

#include "engine/engine.h"

static bool is_v4(const union ibv_gid *gid)
{
	static const uint8_t prefix[12] = {0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0xff, 0xff};

	return !memcmp(gid->raw, prefix, 12);
}

static void put16(uint8_t *p, uint32_t v)
{
	p[0] = (uint8_t)(v >> 8);
	p[1] = (uint8_t)v;
}

static uint16_t ip_checksum(const uint8_t *p)
{
	uint32_t sum = 0;

	for (int i = 0; i < 20; i += 2)
		sum += (uint32_t)p[i] << 8 | p[i + 1];
	while (sum >> 16)
		sum = (sum & 0xffff) + (sum >> 16);
	return (uint16_t)~sum;
}

void vb_grh_build(uint8_t grh[40], const union ibv_gid *sgid, const struct ibv_ah_attr *attr, uint32_t payload)
{
	uint32_t udp = 8 + 12 + 8 + payload + 4; /* UDP, BTH, DETH, ICRC */

	memset(grh, 0, 40);
	if (is_v4(sgid) && is_v4(&attr->grh.dgid)) {
		uint8_t *ip = grh + 20;

		ip[0] = 0x45;
		ip[1] = attr->grh.traffic_class;
		put16(ip + 2, 20 + udp);
		ip[6] = 0x40; /* don't fragment */
		ip[8] = attr->grh.hop_limit;
		ip[9] = 17;
		memcpy(ip + 12, sgid->raw + 12, 4);
		memcpy(ip + 16, attr->grh.dgid.raw + 12, 4);
		put16(ip + 10, ip_checksum(ip));
		return;
	}
	uint32_t vtf = htonl(6u << 28 | (uint32_t)attr->grh.traffic_class << 20 | (attr->grh.flow_label & 0xfffff));

	memcpy(grh, &vtf, 4);
	put16(grh + 4, udp);
	grh[6] = 17; /* next header: UDP */
	grh[7] = attr->grh.hop_limit;
	memcpy(grh + 8, sgid->raw, 16);
	memcpy(grh + 24, attr->grh.dgid.raw, 16);
}
