// cm.h - the messages of connection management, in host order
// follows: IBA volume 1, 12.6 (message contents), 12.11 (service id resolution); annex A11 (RDMA IP CM service)
// SPDX-License-Identifier: MIT
#ifndef VB_FRAME_CM_H
#define VB_FRAME_CM_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "frame/mad.h"
#include "frame/net.h"

/* X(attribute id, NAME, field of struct vb_cm_msg, bytes of private data). */
#define VB_CM_MESSAGES(X)                \
	X(0x10, REQ, req, 92)            \
	X(0x11, MRA, mra, 222)           \
	X(0x12, REJ, rej, 148)           \
	X(0x13, REP, rep, 196)           \
	X(0x14, RTU, rtu, 224)           \
	X(0x15, DREQ, dreq, 220)         \
	X(0x16, DREP, drep, 224)         \
	X(0x17, SIDR_REQ, sidr_req, 216) \
	X(0x18, SIDR_REP, sidr_rep, 136) \
	X(0x19, LAP, lap, 168)           \
	X(0x1a, APR, apr, 148)

enum vb_cm_attr {
#define X(code, name, field, len) VB_CM_##name = code,
	VB_CM_MESSAGES(X)
#undef X
};

/* Private data always has its full length: shorter data is padded with zeros. */
enum vb_cm_private_len {
#define X(code, name, field, len) VB_CM_##name##_PRIVATE = len,
	VB_CM_MESSAGES(X)
#undef X
};

#define VB_CM_ARI 72 /* additional information of REJ, APR and SIDR_REP */

/* X(code, NAME, text): why a message was rejected (12.6.7.2). */
#define VB_CM_REASONS(X)                                                    \
	X(1, NO_QP, "no queue pair")                                        \
	X(2, NO_EEC, "no EE context")                                       \
	X(3, NO_RESOURCES, "no resources")                                  \
	X(4, TIMEOUT, "timeout")                                            \
	X(5, UNSUPPORTED, "request not supported")                          \
	X(6, INVALID_COMM_ID, "invalid communication id")                   \
	X(7, INVALID_COMM_INSTANCE, "invalid communication instance")       \
	X(8, INVALID_SERVICE_ID, "nobody listens")                          \
	X(9, INVALID_TRANSPORT, "invalid transport service type")           \
	X(10, STALE_CONN, "stale connection")                               \
	X(11, NO_RDC, "no RD channel")                                      \
	X(12, INVALID_GID, "primary GID rejected")                          \
	X(13, INVALID_LID, "primary LID rejected")                          \
	X(14, INVALID_SL, "invalid service level")                          \
	X(15, INVALID_TRAFFIC_CLASS, "invalid traffic class")               \
	X(16, INVALID_HOP_LIMIT, "invalid hop limit")                       \
	X(17, INVALID_PACKET_RATE, "invalid packet rate")                   \
	X(18, INVALID_ALT_GID, "alternate GID rejected")                    \
	X(19, INVALID_ALT_LID, "alternate LID rejected")                    \
	X(20, INVALID_ALT_SL, "invalid alternate service level")            \
	X(21, INVALID_ALT_TRAFFIC_CLASS, "invalid alternate traffic class") \
	X(22, INVALID_ALT_HOP_LIMIT, "invalid alternate hop limit")         \
	X(23, INVALID_ALT_PACKET_RATE, "invalid alternate packet rate")     \
	X(24, PORT_CM_REDIRECT, "port and CM redirection")                  \
	X(25, PORT_REDIRECT, "port redirection")                            \
	X(26, INVALID_MTU, "invalid path MTU")                              \
	X(27, INSUFFICIENT_RESOURCES, "insufficient responder resources")   \
	X(28, CONSUMER_DEFINED, "rejected by the application")              \
	X(29, INVALID_RNR_RETRY, "RNR retry count rejected")                \
	X(30, DUPLICATE_COMM_ID, "duplicate communication id")              \
	X(31, INVALID_CLASS_VERSION, "class version not supported")         \
	X(32, INVALID_FLOW_LABEL, "invalid flow label")                     \
	X(33, INVALID_ALT_FLOW_LABEL, "invalid alternate flow label")       \
	X(35, VENDOR_OPTION, "vendor option not supported")

enum vb_cm_reason {
#define X(code, name, text) VB_CM_REJ_##name = code,
	VB_CM_REASONS(X)
#undef X
};

/* "?" where the code has no name. */
const char *vb_cm_reason_text(uint16_t reason);

/* Which message a REJ or an MRA answers. */
enum vb_cm_answered { VB_CM_ANSWERS_REQ, VB_CM_ANSWERS_REP, VB_CM_ANSWERS_OTHER };

enum vb_cm_sidr_status {
	VB_CM_SIDR_OK = 0,
	VB_CM_SIDR_INVALID_SERVICE_ID = 1,
	VB_CM_SIDR_REJECTED = 2,
	VB_CM_SIDR_NO_QP = 3,
	VB_CM_SIDR_REDIRECT = 4,
	VB_CM_SIDR_VERSION = 5,
};

enum vb_cm_apr_status {
	VB_CM_APR_OK = 0,
	VB_CM_APR_INVALID_COMM_ID = 1,
	VB_CM_APR_UNSUPPORTED = 2,
	VB_CM_APR_REJECTED = 3
};

/* EXTENDED: extended_transport has the service; 1 is XRC. */
enum vb_cm_transport { VB_CM_RC = 0, VB_CM_UC = 1, VB_CM_RD = 2, VB_CM_EXTENDED = 3 };

#define VB_LID_PERMISSIVE 0xffff /* IBA 4.1.3 */

/* A path in one direction: local is the sender of the message. LIDs are VB_LID_PERMISSIVE over Ethernet. */
struct vb_cm_path {
	uint16_t local_lid, remote_lid;
	uint8_t local_gid[VB_GID_LEN], remote_gid[VB_GID_LEN];
	uint32_t flow_label; /* 20 bits */
	uint8_t packet_rate; /* 6 bits: enum ibv_rate */
	uint8_t traffic_class, hop_limit, sl;
	bool subnet_local;
	uint8_t ack_timeout; /* 5 bits */
};

/* Enhanced connection establishment: data that vendors exchange. */
struct vb_cm_ece {
	uint32_t vendor_id; /* 24 bits; 0: none */
	uint32_t options;   /* the MAD's attribute modifier */
};

struct vb_cm_req {
	uint32_t local_comm_id;
	uint64_t service_id, local_ca_guid;
	uint32_t local_qkey, local_qpn, local_eecn, remote_eecn;
	uint8_t responder_resources, initiator_depth;
	uint8_t remote_response_timeout; /* 5 bits: time in which the receiver of the REQ answers */
	uint8_t local_response_timeout;  /* time in which its sender answers */
	uint8_t transport, extended_transport;
	bool flow_control, rdc_exists, srq, sap_supported;
	uint32_t starting_psn;
	uint8_t retry_count, rnr_retry_count; /* 3 bits */
	uint16_t pkey;
	uint8_t mtu;            /* 4 bits: enum ibv_mtu */
	uint8_t max_cm_retries; /* 4 bits */
	struct vb_cm_path primary, alternate;
	struct vb_cm_ece ece;
	uint8_t private_data[VB_CM_REQ_PRIVATE];
};

struct vb_cm_mra {
	uint32_t local_comm_id, remote_comm_id;
	uint8_t answers;         /* enum vb_cm_answered */
	uint8_t service_timeout; /* 5 bits */
	uint8_t private_data[VB_CM_MRA_PRIVATE];
};

struct vb_cm_rej {
	uint32_t local_comm_id, remote_comm_id;
	uint8_t answers; /* enum vb_cm_answered */
	uint8_t ari_len; /* at most VB_CM_ARI; a larger value in a message is decoded as VB_CM_ARI */
	uint16_t reason; /* enum vb_cm_reason, or one that has no name */
	uint8_t ari[VB_CM_ARI];
	uint8_t private_data[VB_CM_REJ_PRIVATE];
};

struct vb_cm_rep {
	uint32_t local_comm_id, remote_comm_id;
	uint32_t local_qkey, local_qpn, local_eecn, starting_psn;
	uint8_t responder_resources, initiator_depth;
	uint8_t target_ack_delay, failover_accepted;
	bool flow_control, srq;
	uint8_t rnr_retry_count;
	uint64_t local_ca_guid;
	struct vb_cm_ece ece;
	uint8_t private_data[VB_CM_REP_PRIVATE];
};

struct vb_cm_rtu {
	uint32_t local_comm_id, remote_comm_id;
	uint8_t private_data[VB_CM_RTU_PRIVATE];
};

struct vb_cm_dreq {
	uint32_t local_comm_id, remote_comm_id;
	uint32_t remote_qpn;
	uint8_t private_data[VB_CM_DREQ_PRIVATE];
};

struct vb_cm_drep {
	uint32_t local_comm_id, remote_comm_id;
	uint8_t private_data[VB_CM_DREP_PRIVATE];
};

struct vb_cm_lap {
	uint32_t local_comm_id, remote_comm_id;
	uint32_t remote_qpn;
	uint8_t remote_response_timeout;
	struct vb_cm_path alternate;
	uint8_t private_data[VB_CM_LAP_PRIVATE];
};

struct vb_cm_apr {
	uint32_t local_comm_id, remote_comm_id;
	uint8_t ari_len; /* as in REJ */
	uint8_t status;  /* enum vb_cm_apr_status and more */
	uint8_t ari[VB_CM_ARI];
	uint8_t private_data[VB_CM_APR_PRIVATE];
};

struct vb_cm_sidr_req {
	uint32_t request_id;
	uint16_t pkey;
	uint64_t service_id;
	uint8_t private_data[VB_CM_SIDR_REQ_PRIVATE];
};

struct vb_cm_sidr_rep {
	uint32_t request_id;
	uint8_t status;  /* enum vb_cm_sidr_status, or another */
	uint8_t ari_len; /* as in REJ */
	uint32_t qpn;
	uint64_t service_id;
	uint32_t qkey;
	uint8_t ari[VB_CM_ARI];
	struct vb_cm_ece ece;
	uint8_t private_data[VB_CM_SIDR_REP_PRIVATE];
};

struct vb_cm_msg {
	enum vb_cm_attr attr; /* selects the member of the union */
	uint64_t tid;
	union {
#define X(code, name, field, len) struct vb_cm_##field field;
		VB_CM_MESSAGES(X)
#undef X
	};
};

/*
 * Returns false and leaves *msg untouched if the MAD is not 256 bytes, is of another class, version or method, or its
 * attribute has no row above. Reserved bits are ignored when received, and sent as zeros.
 */
bool vb_cm_decode(struct vb_cm_msg *msg, const uint8_t *mad, size_t len);
void vb_cm_encode(uint8_t mad[VB_MAD_LEN], const struct vb_cm_msg *msg);

/* Response timeouts of the messages: 4.096 us * 2^code, in ns. Only the low 5 bits of code are used. */
static inline uint64_t vb_cm_time(uint8_t code)
{
	return UINT64_C(4096) << (code & 31);
}

/* The largest code, 0 to 31, whose time is at most ns. */
uint8_t vb_cm_time_code(uint64_t ns);

/*
 * Source and destination address: precedes the user's private data in REQ and SIDR_REQ if the service id is of a port
 * space and the addresses are IP addresses (A11.2). Addresses are GIDs: IPv4 mapped.
 */
#define VB_CMA_LEN 36
#define VB_CMA_REQ_PRIVATE (VB_CM_REQ_PRIVATE - VB_CMA_LEN)           /* the rest: 56 */
#define VB_CMA_SIDR_REQ_PRIVATE (VB_CM_SIDR_REQ_PRIVATE - VB_CMA_LEN) /* 180 */

struct vb_cma {
	uint16_t src_port;
	uint8_t src[VB_GID_LEN], dst[VB_GID_LEN];
};

/* private_data: its first VB_CMA_LEN bytes. Returns false and leaves *cma untouched if the version is unknown, or the
 * family is neither IPv4 nor IPv6. */
bool vb_cma_decode(struct vb_cma *cma, const uint8_t private_data[VB_CMA_LEN]);
/* The family is IPv4 if both addresses are. */
void vb_cma_encode(uint8_t private_data[VB_CMA_LEN], const struct vb_cma *cma);

/* Port spaces: RDMA_PS_ of librdmacm. */
enum vb_port_space { VB_PS_IPOIB = 0x0002, VB_PS_TCP = 0x0106, VB_PS_UDP = 0x0111, VB_PS_IB = 0x013f };

static inline uint64_t vb_cm_service_id(enum vb_port_space ps, uint16_t port)
{
	return (uint64_t)ps << 16 | port;
}

/* Returns false if it is not the service id of a port space. */
bool vb_cm_service_port(uint64_t service_id, enum vb_port_space *ps, uint16_t *port);

#endif
