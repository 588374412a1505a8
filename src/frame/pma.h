// pma.h - performance management: the counters of a port, in host order
// follows: IBA volume 1, 16.1.3.5 (PortCounters), 16.1.4.11 (PortCountersExtended), 13.4.8.1 (ClassPortInfo)
// SPDX-License-Identifier: MIT
#ifndef VB_FRAME_PMA_H
#define VB_FRAME_PMA_H

#include "frame/mad.h"

enum vb_pma_attr { VB_PMA_CLASS_PORT_INFO = 0x01, VB_PMA_COUNTERS = 0x12, VB_PMA_COUNTERS_EXT = 0x1d };

#define VB_PMA_DATA_AT 64 /* where the attribute begins in the MAD */
#define VB_PMA_DATA (VB_MAD_LEN - VB_PMA_DATA_AT)

/*
 * X(field, bit of CounterSelect, bit of CounterSelect in the extended attribute or -1), in the
 * order of PortCounters. Bit 16 is the first one of CounterSelect2.
 */
#define VB_PMA_FIELDS(X)            \
	X(symbol_errors, 0, -1)     \
	X(link_recovers, 1, -1)     \
	X(link_downed, 2, -1)       \
	X(rcv_errors, 3, -1)        \
	X(rcv_remote_errors, 4, -1) \
	X(rcv_relay_errors, 5, -1)  \
	X(xmit_discards, 6, -1)     \
	X(xmit_constraint, 7, -1)   \
	X(rcv_constraint, 8, -1)    \
	X(link_integrity, 9, -1)    \
	X(buffer_overruns, 10, -1)  \
	X(vl15_dropped, 11, -1)     \
	X(xmit_data, 12, 0)         \
	X(rcv_data, 13, 1)          \
	X(xmit_pkts, 14, 2)         \
	X(rcv_pkts, 15, 3)          \
	X(xmit_wait, 16, -1)        \
	X(unicast_xmit, -1, 4)      \
	X(unicast_rcv, -1, 5)       \
	X(multicast_xmit, -1, 6)    \
	X(multicast_rcv, -1, 7)

/* Counters count in 64 bits. Data is in units of 4 bytes. */
struct vb_port_counters {
#define X(field, select, ext) uint64_t field;
	VB_PMA_FIELDS(X)
#undef X
};

/* What a PortCounters or PortCountersExtended names: which port (255: all), which counters. */
struct vb_pma_select {
	uint8_t port;
	uint32_t counters; /* bit 16: CounterSelect2 */
};

/* data: VB_PMA_DATA bytes. Values that do not fit the attribute's field are its largest value. */
void vb_pma_select_decode(struct vb_pma_select *s, const uint8_t *data, bool extended);
void vb_pma_counters_encode(uint8_t *data, const struct vb_pma_select *s, const struct vb_port_counters *c);
void vb_pma_counters_ext_encode(uint8_t *data, const struct vb_pma_select *s, const struct vb_port_counters *c);
/* The counters of the attribute; those that it lacks are zeros. */
void vb_pma_counters_decode(struct vb_port_counters *c, const uint8_t *data);

#define VB_CLASS_CAP_ALL_PORTS 0x0100
#define VB_CLASS_CAP_EXTENDED 0x0200
#define VB_CLASS_CAP_XMIT_WAIT 0x1000

struct vb_class_port_info {
	uint8_t base_version, class_version;
	uint16_t cap_mask;
	uint32_t cap_mask2; /* 27 bits */
	uint8_t resp_time;  /* 5 bits */
};

/* Without redirection and without a trap target. data: 72 bytes. */
#define VB_CLASS_PORT_INFO 72
void vb_class_port_info_encode(uint8_t *data, const struct vb_class_port_info *c);
void vb_class_port_info_decode(struct vb_class_port_info *c, const uint8_t *data);

#endif
