// static_rate.h - static rates of an address vector: the codes of enum ibv_rate
// follows: IBA 9.11.1 (static rate control), 11.2.5.2; ibv_rate_to_mult(3), ibv_rate_to_mbps(3)
// SPDX-License-Identifier: MIT
#ifndef VB_CORE_STATIC_RATE_H
#define VB_CORE_STATIC_RATE_H

#include <infiniband/verbs.h>
#include <stdint.h>

/* mult: multiples of 2.5 Gb/s; -1 if the rate is not a whole multiple, or is too new to have one. */
struct vb_static_rate {
	enum ibv_rate rate;
	int mult, mbps;
};

#define VB_STATIC_RATES 23u
extern const struct vb_static_rate vb_static_rates[VB_STATIC_RATES];

/* The speed of all lanes of a port, in Mb/s; 0: unknown. */
uint32_t vb_port_mbps(const struct ibv_port_attr *port);
/* The limit that a static rate is for packets that leave this port, in kbit/s. 0: none, because the port is not faster, or
 * the rate is unknown. */
uint32_t vb_static_kbps(uint8_t rate, const struct ibv_port_attr *port);

#endif
