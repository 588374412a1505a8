// sma.h - the attributes that the subnet management agent answers, beside those of sma.c
// follows: IBA volume 1, 14.2.5 (attributes)
// SPDX-License-Identifier: MIT
#ifndef VB_FABRIC_SMA_H
#define VB_FABRIC_SMA_H

#include "fabric/internal.h"

/* Each answers a Get or Set that arrived at `in`, in s->data, and returns a status. A Set that is refused changes
 * nothing. */
uint8_t vb_sma_guid_info(struct vb_fabric_port *in, struct vb_smp *s, bool set);
uint8_t vb_sma_pkey_table(struct vb_fabric_port *in, struct vb_smp *s, bool set);
uint8_t vb_sma_sl_to_vl(struct vb_fabric_port *in, struct vb_smp *s, bool set);
uint8_t vb_sma_vl_arb(struct vb_fabric_port *in, struct vb_smp *s, bool set);
uint8_t vb_sma_lft(struct vb_fabric_port *in, struct vb_smp *s, bool set);
uint8_t vb_sma_mft(struct vb_fabric_port *in, struct vb_smp *s, bool set);

#endif
