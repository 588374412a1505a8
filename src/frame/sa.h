// sa.h - queries to the subnet administrator: the header of its datagrams, path records, members of multicast groups
// follows: IBA volume 1, 15.2.1.1 (SA MAD format), 15.2.5.16 (PathRecord), 15.2.5.17 (MCMemberRecord)
// SPDX-License-Identifier: MIT
#ifndef VB_FRAME_SA_H
#define VB_FRAME_SA_H

#include <stdbool.h>

#include "frame/mad.h"

#define VB_MAD_CLASS_SA_VERSION 2
#define VB_SA_MEMBER_RECORD 0x38
#define VB_SA_PATH_RECORD 0x35
#define VB_SA_DELETE 0x15 /* the method SubnAdmDelete */

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

#define VB_SA_MEMBER_MGID (1ull << 0)
#define VB_SA_MEMBER_PORT_GID (1ull << 1)
#define VB_SA_MEMBER_QKEY (1ull << 2)
#define VB_SA_MEMBER_TRAFFIC_CLASS (1ull << 6)
#define VB_SA_MEMBER_PKEY (1ull << 7)
#define VB_SA_MEMBER_SL (1ull << 12)
#define VB_SA_MEMBER_FLOW_LABEL (1ull << 13)
#define VB_SA_MEMBER_JOIN_STATE (1ull << 16)
/* What names a membership, and what a port has to name besides to make a group. */
#define VB_SA_MEMBER_NAME (VB_SA_MEMBER_MGID | VB_SA_MEMBER_PORT_GID | VB_SA_MEMBER_JOIN_STATE)
#define VB_SA_MEMBER_NEW \
	(VB_SA_MEMBER_QKEY | VB_SA_MEMBER_TRAFFIC_CLASS | VB_SA_MEMBER_PKEY | VB_SA_MEMBER_SL | VB_SA_MEMBER_FLOW_LABEL)

/* Bits of join_state. */
#define VB_SA_FULL_MEMBER 1u
#define VB_SA_SEND_ONLY_FULL_MEMBER 8u

struct vb_sa_member {
	uint8_t mgid[16], port_gid[16];
	uint32_t qkey, flow_label; /* flow_label: 20 bits */
	uint16_t mlid, pkey;
	uint8_t mtu, rate, lifetime; /* codes; the selectors are "exactly" */
	uint8_t traffic_class, hop_limit;
	uint8_t sl, scope, join_state; /* 4 bits */
};

/* A query for the path with these fields: VB_SA_PATH_. */
void vb_sa_path_query(uint8_t mad[VB_MAD_LEN], uint64_t tid, uint64_t mask, const struct vb_sa_path *want);
/*
 * The answer. Returns false and leaves *path untouched if the datagram is not an answer to such a query. *status, of the
 * MAD (13.4.7, 15.2.2.2): if it is not 0 there is no path.
 */
bool vb_sa_path_answer(const uint8_t *mad, size_t len, uint64_t *tid, uint16_t *status, struct vb_sa_path *path);

/* VB_MAD_SET joins a group, VB_SA_DELETE leaves it. mask: VB_SA_MEMBER_. */
void vb_sa_member_query(uint8_t mad[VB_MAD_LEN], uint64_t tid, uint8_t method, uint64_t mask,
                        const struct vb_sa_member *want);
/* The method of such a query, and its record; 0: it is none. */
uint8_t vb_sa_member_asked(const uint8_t mad[VB_MAD_LEN], struct vb_sa_member *member);
/* As vb_sa_path_answer, for a join. */
bool vb_sa_member_answer(const uint8_t *mad, size_t len, uint16_t *status, struct vb_sa_member *member);

#endif
