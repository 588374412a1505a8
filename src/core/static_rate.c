// static_rate.c - static rates of an address vector, as multiples of 2.5 Gb/s and in Mb/s
// follows: IBA 9.11.1 (static rate control); ibv_rate_to_mult(3), ibv_rate_to_mbps(3)
// SPDX-License-Identifier: MIT
#include "core/static_rate.h"

const struct vb_static_rate vb_static_rates[VB_STATIC_RATES] = {
        {IBV_RATE_2_5_GBPS, 1, 2500, 2500},          {IBV_RATE_5_GBPS, 2, 5000, 5000},
        {IBV_RATE_10_GBPS, 4, 10000, 10000},         {IBV_RATE_20_GBPS, 8, 20000, 20000},
        {IBV_RATE_30_GBPS, 12, 30000, 30000},        {IBV_RATE_40_GBPS, 16, 40000, 40000},
        {IBV_RATE_60_GBPS, 24, 60000, 60000},        {IBV_RATE_80_GBPS, 32, 80000, 80000},
        {IBV_RATE_120_GBPS, 48, 120000, 120000},     {IBV_RATE_14_GBPS, -1, 14062, 14000},
        {IBV_RATE_56_GBPS, -1, 56250, 56000},        {IBV_RATE_112_GBPS, -1, 112500, 112000},
        {IBV_RATE_168_GBPS, -1, 168750, 168000},     {IBV_RATE_25_GBPS, -1, 25781, 25000},
        {IBV_RATE_100_GBPS, -1, 103125, 100000},     {IBV_RATE_200_GBPS, -1, 206250, 200000},
        {IBV_RATE_300_GBPS, -1, 309375, 300000},     {IBV_RATE_28_GBPS, 11, 28125, 28000},
        {IBV_RATE_50_GBPS, 20, 53125, 50000},        {IBV_RATE_400_GBPS, 160, 425000, 400000},
        {IBV_RATE_600_GBPS, 240, 637500, 600000},    {IBV_RATE_800_GBPS, 320, 850000, 800000},
        {IBV_RATE_1200_GBPS, 480, 1275000, 1200000},
};

/* IBA 14.2.5.6 (PortInfo): LinkSpeedActive is one bit per speed, from 2.5 Gb/s; LinkWidthActive one per width. */
uint32_t vb_port_mbps(const struct ibv_port_attr *port)
{
	static const unsigned lane[] = {2500, 5000, 10000, 10000, 14000, 25000, 50000, 100000},
	                      lanes[] = {1, 4, 8, 12, 2};
	uint32_t mbps = 0;

	for (unsigned s = 0; s < sizeof(lane) / sizeof(*lane); s++)
		for (unsigned w = 0; w < sizeof(lanes) / sizeof(*lanes); w++)
			if (port->active_speed >> s == 1 && port->active_width >> w == 1)
				mbps = lane[s] * lanes[w];
	return mbps;
}

uint32_t vb_static_kbps(uint8_t rate, const struct ibv_port_attr *port)
{
	for (unsigned i = 0; i < VB_STATIC_RATES; i++)
		if (vb_static_rates[i].rate == (enum ibv_rate)rate)
			return (uint32_t)vb_static_rates[i].mbps < vb_port_mbps(port)
			               ? (uint32_t)vb_static_rates[i].mbps * 1000
			               : 0;
	return 0;
}

enum ibv_rate vb_port_rate(const struct ibv_port_attr *port)
{
	uint32_t mbps = vb_port_mbps(port);
	const struct vb_static_rate *best = NULL;

	for (const struct vb_static_rate *r = vb_static_rates; r < vb_static_rates + VB_STATIC_RATES; r++)
		if (r->nominal >= 10000 && (uint32_t)r->nominal <= mbps && (!best || r->nominal > best->nominal))
			best = r;
	return best ? best->rate : IBV_RATE_MAX;
}
