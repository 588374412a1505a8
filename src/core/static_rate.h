// static_rate.h - static rates of an address vector: the codes of enum ibv_rate
// follows: IBA 9.11.1 (static rate control), 11.2.5.2; ibv_rate_to_mult(3), ibv_rate_to_mbps(3)
// SPDX-License-Identifier: MIT
#ifndef VB_CORE_STATIC_RATE_H
#define VB_CORE_STATIC_RATE_H

#include <infiniband/verbs.h>
#include <stdint.h>

/* mult: multiples of 2.5 Gb/s; -1 if the rate is not a whole multiple, or is too new to have one. nominal: the speed in its
 * name, in Mb/s, as vb_port_mbps has it. */
struct vb_static_rate {
	enum ibv_rate rate;
	int mult, mbps, nominal;
};

#define VB_STATIC_RATES 23u
extern const struct vb_static_rate vb_static_rates[VB_STATIC_RATES];

/* The speed of all lanes of a port, in Mb/s; 0: unknown. */
uint32_t vb_port_mbps(const struct ibv_port_attr *port);
/* The code of a port's speed, rounded down. As in Linux, below 10 Gb/s it is IBV_RATE_MAX: the port's own. */
enum ibv_rate vb_port_rate(const struct ibv_port_attr *port);
/* The limit that a static rate is for packets that leave this port, in kbit/s. 0: none, because the port is not faster, or
 * the rate is unknown. */
uint32_t vb_static_kbps(uint8_t rate, const struct ibv_port_attr *port);

#endif
