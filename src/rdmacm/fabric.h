// fabric.h - rdma_cm on an InfiniBand fabric
// see: docs/infiniband.md
// SPDX-License-Identifier: MIT
#ifndef VB_RDMACM_FABRIC_H
#define VB_RDMACM_FABRIC_H

#include "fabric/proto/proto.h"
#include "rdmacm/rdmacm.h"

/* --- fabric.c --- */

/* Connects, if there is a fabric. rcm.lock not held. */
void rcm_fabric_open(uint32_t lane);
void rcm_fabric_in_child(void);

/* Addresses of connection management that are LIDs. */
struct vb_cm_addr rcm_fabric_addr(uint16_t lid, uint16_t pkey, uint8_t sl, uint8_t path_bits);
uint16_t rcm_fabric_lid(const struct vb_cm_addr *addr);
/* rcm.lock held. */
void rcm_fabric_send(const struct vb_cm_addr *to, const uint8_t mad[VB_MAD_LEN]);
/* Asks the subnet administrator. rcm_fabric_told gets the answer, also if there is none in time. rcm.lock held. */
void rcm_fabric_ask_sa(const uint8_t mad[VB_MAD_LEN], uint32_t timeout_ms);
/* A transaction's low half. Never 0. rcm.lock held. */
uint32_t rcm_fabric_question(void);

/* 0 or errno. rcm.lock not held. A source without a device: at all addresses. */
int rcm_fabric_bind(struct rcm_id *id, union rcm_addr *addr, const struct rcm_source *source);
int rcm_fabric_rebind(const struct rcm_id *id);
int rcm_fabric_listen(const struct rcm_id *id);
void rcm_fabric_unbind(struct rcm_id *id);

/* Whose is an IP address? 0 or an errno, EHOSTUNREACH if it is none of the fabric's. found->own is filled in then too, if
 * the fabric was asked. rcm.lock not held. */
int rcm_fabric_look_up(const union rcm_addr *addr, struct vb_fabric_address *found);

/* --- fabric_route.c; 0 or errno --- */

/* Is this an address of our port: a GID, or an IP address of the table? ENODEV, EADDRNOTAVAIL. */
int rcm_fabric_source(const union rcm_addr *addr, struct rcm_source *out);
/* Is dst reached by the fabric? Fills in source, path and addresses of the query. EHOSTUNREACH: not by the fabric. ENODEV: the
 * port is not active. */
int rcm_fabric_destination(const struct rcm_id *id, const union rcm_addr *dst, struct rcm_found *found);
/* Asks for the path; an event tells the answer. */
int rcm_fabric_resolve_route(struct rcm_id *id, int timeout_ms);
void rcm_fabric_told(const struct vb_fabric_sa_is *is);
/* The fabric process has ended: no question has an answer any more. rcm.lock held. */
void rcm_fabric_unanswered(void);
/* The port space of an AF_IB address for this id, which its service id then names. 0: none. */
enum vb_port_space rcm_fabric_space(const struct rcm_id *id, union rcm_addr *addr);
uint16_t rcm_fabric_pkey_index(const struct rcm_id *id);
void rcm_fabric_ah_attr(const struct rcm_id *id, struct ibv_ah_attr *attr);

/* --- fabric_group.c: multicast groups; rcm.lock held --- */

/* The MGID of a group. */
void rcm_fabric_group(const struct rcm_id *id, const union rcm_addr *addr, union ibv_gid *mgid);
/* Asks for the membership; an event tells the answer. 0 or errno. */
int rcm_fabric_join(struct rcm_id *id, struct rcm_mcast *mc);
void rcm_fabric_leave(const struct rcm_id *id, struct rcm_mcast *mc);
/* The answer to this question. */
void rcm_fabric_group_told(uint32_t question, const struct vb_fabric_sa_is *is);
/* A new subnet manager does not give this membership again. rcm.lock not held. */
void rcm_fabric_group_lost(const struct vb_fabric_sa_is *is);
/* There will be none to this id's questions. */
void rcm_fabric_group_unanswered(struct rcm_id *id, int err);

/* --- fabric_request.c: rcm.lock held --- */

/* How well a listener fits: 0, not at all. hdr NULL: the request has no IP addresses. */
int rcm_fabric_fits(const struct rcm_id *listener, const struct vb_cma *hdr);
bool rcm_fabric_path_is_honest(const struct vb_cm_addr *from, const struct vb_cm_req *req);
/* What the REQ, or a SIDR_REQ (req NULL), says of the path to its sender. */
void rcm_fabric_take_path(struct rcm_id *id, const struct vb_cm_addr *from, const struct vb_cm_req *req);
/* The addresses of a child of an AF_IB listener. */
void rcm_fabric_show(struct rcm_id *child, const struct rcm_id *listener, const struct vb_cm_req *req);

#endif
