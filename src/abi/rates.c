// rates.c - static rates of an address vector, as multiples of 2.5 Gb/s and in Mb/s
// follows: IBA 9.11.1 (static rate control); ibv_rate_to_mult(3), ibv_rate_to_mbps(3)
// SPDX-License-Identifier: MIT
#include "abi/dispatch.h"

/* mult is -1 if the rate is not a whole multiple, or is too new to have one. */
static const struct {
	enum ibv_rate rate;
	int mult, mbps;
} rates[] = {
        {IBV_RATE_2_5_GBPS, 1, 2500},     {IBV_RATE_5_GBPS, 2, 5000},         {IBV_RATE_10_GBPS, 4, 10000},
        {IBV_RATE_20_GBPS, 8, 20000},     {IBV_RATE_30_GBPS, 12, 30000},      {IBV_RATE_40_GBPS, 16, 40000},
        {IBV_RATE_60_GBPS, 24, 60000},    {IBV_RATE_80_GBPS, 32, 80000},      {IBV_RATE_120_GBPS, 48, 120000},
        {IBV_RATE_14_GBPS, -1, 14062},    {IBV_RATE_56_GBPS, -1, 56250},      {IBV_RATE_112_GBPS, -1, 112500},
        {IBV_RATE_168_GBPS, -1, 168750},  {IBV_RATE_25_GBPS, -1, 25781},      {IBV_RATE_100_GBPS, -1, 103125},
        {IBV_RATE_200_GBPS, -1, 206250},  {IBV_RATE_300_GBPS, -1, 309375},    {IBV_RATE_28_GBPS, 11, 28125},
        {IBV_RATE_50_GBPS, 20, 53125},    {IBV_RATE_400_GBPS, 160, 425000},   {IBV_RATE_600_GBPS, 240, 637500},
        {IBV_RATE_800_GBPS, 320, 850000}, {IBV_RATE_1200_GBPS, 480, 1275000},
};

#define FIND(field, value, result, none)                                      \
	do {                                                                  \
		for (unsigned i = 0; i < sizeof(rates) / sizeof(*rates); i++) \
			if (rates[i].field == (value))                        \
				return rates[i].result;                       \
		return none;                                                  \
	} while (0)

VB_EXPORT int ibv_rate_to_mult(enum ibv_rate rate)
{
	FIND(rate, rate, mult, -1);
}

VB_EXPORT enum ibv_rate mult_to_ibv_rate(int mult)
{
	if (mult < 0)
		return IBV_RATE_MAX;
	FIND(mult, mult, rate, IBV_RATE_MAX);
}

VB_EXPORT int ibv_rate_to_mbps(enum ibv_rate rate)
{
	FIND(rate, rate, mbps, -1);
}

VB_EXPORT enum ibv_rate mbps_to_ibv_rate(int mbps)
{
	FIND(mbps, mbps, rate, IBV_RATE_MAX);
}
