// rates.c - static rates of an address vector, as multiples of 2.5 Gb/s and in Mb/s
// follows: IBA 9.11.1 (static rate control); ibv_rate_to_mult(3), ibv_rate_to_mbps(3)
// SPDX-License-Identifier: MIT
#include "abi/dispatch.h"
#include "abi/port.h"
#include "core/static_rate.h"

#define FIND(field, value, result, none)                          \
	do {                                                      \
		for (unsigned i = 0; i < VB_STATIC_RATES; i++)    \
			if (vb_static_rates[i].field == (value))  \
				return vb_static_rates[i].result; \
		return none;                                      \
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

enum ibv_rate vb_rate_of_port(const struct ibv_port_attr *port)
{
	return vb_port_rate(port);
}
