// sa.h - queries to the subnet administrator: the header of its datagrams, and path records
// follows: IBA volume 1, 15.2.1.1 (SA MAD format), 15.2.5.16 (PathRecord)
// SPDX-License-Identifier: MIT
#ifndef VB_FRAME_SA_H
#define VB_FRAME_SA_H

#include <stdbool.h>

#include "frame/mad.h"

#define VB_MAD_CLASS_SA_VERSION 2
#define VB_SA_PATH_RECORD 0x35

/* Bits of the component mask: the fields of the record that a query names. */
#define VB_SA_PATH_SERVICE_ID (3ull << 0)
#define VB_SA_PATH_DGID (1ull << 2)
#define VB_SA_PATH_SGID (1ull << 3)
#define VB_SA_PATH_REVERSIBLE (1ull << 11)
#define VB_SA_PATH_NUMB_PATH (1ull << 12)
#define VB_SA_PATH_PKEY (1ull << 13)
#define VB_SA_PATH_QOS_CLASS (1ull << 14)

struct vb_sa_path {
	uint64_t service_id;
	uint8_t dgid[16], sgid[16];
	uint16_t dlid, slid, pkey;
	uint32_t flow_label; /* 20 bits */
	uint8_t hop_limit, traffic_class;
	bool reversible;
	uint8_t numb_path; /* 7 bits */
	uint16_t qos_class;
	uint8_t sl;
	uint8_t mtu, rate, lifetime; /* codes; the selectors are "exactly" */
	uint8_t preference;
};

/* A query for the path with these fields: VB_SA_PATH_. */
void vb_sa_path_query(uint8_t mad[VB_MAD_LEN], uint64_t tid, uint64_t mask, const struct vb_sa_path *want);
/*
 * The answer. Returns false and leaves *path untouched if the datagram is not an answer to such a query. *status, of the
 * MAD (13.4.7, 15.2.2.2): if it is not 0 there is no path.
 */
bool vb_sa_path_answer(const uint8_t *mad, size_t len, uint64_t *tid, uint16_t *status, struct vb_sa_path *path);

#endif
