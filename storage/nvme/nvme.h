// nvme.h - commands, completions and the numbers in them; structures are in host order; only nv_*_decode and
// nv_*_encode handle bytes
// follows: NVM Express Base 1.4, chapters 3 to 6; NVMe over Fabrics 1.1, chapters 2 to 5
// SPDX-License-Identifier: MIT
#ifndef NV_NVME_H
#define NV_NVME_H

#include <stdbool.h>
#include <stdint.h>

#include "nvme/le.h"
#include "nvme/status.h"

#define NV_SQE_LEN 64
#define NV_CQE_LEN 16
#define NV_PAGE 4096u /* MPS 0: the only page size over fabrics */
#define NV_NSID_ALL 0xffffffffu
#define NV_CNTLID_DYNAMIC 0xffffu
#define NV_NQN_SIZE 256 /* size of the field, for at most 223 characters */
#define NV_NQN_MAX 223
#define NV_DISCOVERY_NQN "nqn.2014-08.org.nvmexpress.discovery"
#define NV_VERSION_1_4 0x00010400u

enum nv_admin_opcode {
	NV_ADMIN_GET_LOG = 0x02,
	NV_ADMIN_IDENTIFY = 0x06,
	NV_ADMIN_ABORT = 0x08,
	NV_ADMIN_SET_FEATURES = 0x09,
	NV_ADMIN_GET_FEATURES = 0x0a,
	NV_ADMIN_ASYNC_EVENT = 0x0c,
	NV_ADMIN_KEEP_ALIVE = 0x18,
	NV_FABRICS = 0x7f, /* on I/O queues, too */
};

enum nv_io_opcode {
	NV_IO_FLUSH = 0x00,
	NV_IO_WRITE = 0x01,
	NV_IO_READ = 0x02,
	NV_IO_COMPARE = 0x05,
	NV_IO_WRITE_ZEROES = 0x08,
	NV_IO_DSM = 0x09,
	NV_IO_VERIFY = 0x0c,
	NV_IO_RESERVE_REGISTER = 0x0d,
	NV_IO_RESERVE_REPORT = 0x0e,
	NV_IO_RESERVE_ACQUIRE = 0x11,
	NV_IO_RESERVE_RELEASE = 0x15,
};

enum nv_fabrics_type {
	NV_FCT_PROPERTY_SET = 0x00,
	NV_FCT_CONNECT = 0x01,
	NV_FCT_PROPERTY_GET = 0x04,
	NV_FCT_AUTH_SEND = 0x05,
	NV_FCT_AUTH_RECEIVE = 0x06,
	NV_FCT_DISCONNECT = 0x08,
};

enum nv_property {
	NV_PROP_CAP = 0x00,
	NV_PROP_VS = 0x08,
	NV_PROP_CC = 0x14,
	NV_PROP_CSTS = 0x1c,
};

#define NV_CC_EN 0x1u
#define NV_CC_SHN 0xc000u
#define NV_CSTS_RDY 0x1u
#define NV_CSTS_CFS 0x2u
#define NV_CSTS_SHST 0xcu
#define NV_CSTS_SHST_BUSY 0x4u
#define NV_CSTS_SHST_DONE 0x8u

enum nv_cns {
	NV_CNS_NS = 0x00,
	NV_CNS_CTRL = 0x01,
	NV_CNS_ACTIVE = 0x02,
	NV_CNS_NS_DESC = 0x03,
	NV_CNS_CSI_NS = 0x05,
	NV_CNS_CSI_CTRL = 0x06,
	NV_CNS_CSI_ACTIVE = 0x07,
	NV_CNS_ALLOCATED = 0x10,
	NV_CNS_ALLOCATED_NS = 0x11,
	NV_CNS_NS_CTRLS = 0x12,
	NV_CNS_CTRLS = 0x13,
};

enum nv_log {
	NV_LOG_ERROR = 0x01,
	NV_LOG_SMART = 0x02,
	NV_LOG_FIRMWARE = 0x03,
	NV_LOG_CHANGED_NS = 0x04,
	NV_LOG_EFFECTS = 0x05,
	NV_LOG_ANA = 0x0c,
	NV_LOG_DISCOVERY = 0x70,
	NV_LOG_RESERVATION = 0x80,
};

enum nv_feature {
	NV_FEAT_ARBITRATION = 0x01,
	NV_FEAT_POWER = 0x02,
	NV_FEAT_TEMPERATURE = 0x04,
	NV_FEAT_ERROR_RECOVERY = 0x05,
	NV_FEAT_WRITE_CACHE = 0x06,
	NV_FEAT_QUEUES = 0x07,
	NV_FEAT_ATOMICITY = 0x0a,
	NV_FEAT_ASYNC_EVENTS = 0x0b,
	NV_FEAT_TIMESTAMP = 0x0e,
	NV_FEAT_KATO = 0x0f,
	NV_FEAT_HOST_ID = 0x81,
	NV_FEAT_NOTICE_MASK = 0x82,
	NV_FEAT_PERSISTENCE = 0x83,
};

/* Asynchronous events of type Notice; the bits of the configuration feature and of OAES that allow them. */
#define NV_AEN_NOTICE 2u
#define NV_AEN_COMMAND_SET 6u /* an event of this type, with this number beside those of Notice */
#define NV_AEN_RESERVATION (NV_AEN_COMMAND_SET << 8)
#define NV_AEN_NS_CHANGED 0x00u
#define NV_AEN_ANA_CHANGED 0x03u
#define NV_AEN_DISCOVERY_CHANGED 0xf0u
#define NV_AEC_NS_CHANGED (1u << 8)
#define NV_AEC_ANA_CHANGED (1u << 11)
#define NV_AEC_DISCOVERY_CHANGED (1u << 31)

enum nv_ana_state {
	NV_ANA_OPTIMIZED = 1,
	NV_ANA_NON_OPTIMIZED = 2,
	NV_ANA_INACCESSIBLE = 3,
	NV_ANA_LOSS = 4,
	NV_ANA_CHANGE = 15
};

enum nv_trtype { NV_TRTYPE_RDMA = 1, NV_TRTYPE_TCP = 3, NV_TRTYPE_LOOP = 254 };
enum nv_adrfam { NV_ADRFAM_IPV4 = 1, NV_ADRFAM_IPV6 = 2 };
enum nv_subtype { NV_SUBTYPE_REFERRAL = 1, NV_SUBTYPE_NVM = 2, NV_SUBTYPE_CURRENT = 3 };

/* An SGL descriptor. type is its identifier; key is valid for keyed types only. Base 1.4, 4.4 */
enum nv_sgl_type { NV_SGL_DATA = 0x0, NV_SGL_KEYED = 0x4, NV_SGL_TRANSPORT = 0x5 };
enum nv_sgl_subtype {
	NV_SGL_ADDRESS = 0x0,
	NV_SGL_OFFSET = 0x1,
	NV_SGL_TRANSPORT_SPECIFIC = 0xa,
	NV_SGL_INVALIDATE = 0xf
};

#define NV_SGL_KEYED_LENGTH 0xffffffu /* the length of a keyed descriptor has 24 bits */

struct nv_sgl {
	uint8_t type, subtype;
	uint32_t length, key;
	uint64_t address;
};

/* A submission queue entry. For NV_FABRICS, fctype is in the place of nsid. cdw[] contains the bytes from
 * NV_SQE_AT_CDW10 on, too. */
struct nv_sqe {
	uint8_t opcode, fuse, psdt;
	uint16_t cid;
	uint32_t nsid;
	uint8_t fctype;
	struct nv_sgl sgl;
	uint32_t cdw[6]; /* dwords 10 to 15 */
};

/* offsets in the entry, of bytes and of little-endian dwords */
enum {
	NV_SQE_AT_FLAGS = 1, /* FUSE, PSDT */
	NV_SQE_AT_NSID = 4,
	NV_SQE_AT_FCTYPE = 4,
	NV_SQE_AT_SGL = 24,
	NV_SQE_AT_CDW10 = 40,
	NV_SQE_AT_CDW11 = 44,
	NV_SQE_AT_CDW12 = 48,
};

#define NV_PSDT_SGL 1 /* SGL, metadata pointer is a contiguous buffer: required over fabrics */
#define NV_FUSE_FIRST 1
#define NV_FUSE_SECOND 2

static inline struct nv_sgl nv_sgl_decode(const uint8_t at[16])
{
	struct nv_sgl s = {.type = at[15] >> 4, .subtype = at[15] & 0xf, .address = nv_get64(at)};

	if (s.type == NV_SGL_KEYED) {
		s.length = nv_get32(at + 8) & NV_SGL_KEYED_LENGTH;
		s.key = nv_get32(at + 11);
	} else {
		s.length = nv_get32(at + 8);
	}
	return s;
}

static inline void nv_sgl_encode(const struct nv_sgl *s, uint8_t at[16])
{
	nv_put64(at, s->address);
	nv_put32(at + 8, s->length);
	if (s->type == NV_SGL_KEYED)
		nv_put32(at + 11, s->key);
	else
		memset(at + 12, 0, 3);
	at[15] = (uint8_t)(s->type << 4 | s->subtype);
}

static inline struct nv_sqe nv_sqe_decode(const uint8_t at[NV_SQE_LEN])
{
	struct nv_sqe c = {.opcode = at[0],
	                   .fuse = at[1] & 3,
	                   .psdt = at[1] >> 6,
	                   .cid = nv_get16(at + 2),
	                   .nsid = nv_get32(at + NV_SQE_AT_NSID),
	                   .fctype = at[NV_SQE_AT_FCTYPE],
	                   .sgl = nv_sgl_decode(at + NV_SQE_AT_SGL)};

	for (int i = 0; i < 6; i++)
		c.cdw[i] = nv_get32(at + NV_SQE_AT_CDW10 + 4 * i);
	return c;
}

static inline void nv_sqe_encode(const struct nv_sqe *c, uint8_t at[NV_SQE_LEN])
{
	memset(at, 0, NV_SQE_LEN);
	at[0] = c->opcode;
	at[1] = (uint8_t)(c->fuse | c->psdt << 6);
	nv_put16(at + 2, c->cid);
	nv_put32(at + NV_SQE_AT_NSID, c->opcode == NV_FABRICS ? c->fctype : c->nsid);
	nv_sgl_encode(&c->sgl, at + NV_SQE_AT_SGL);
	for (int i = 0; i < 6; i++)
		nv_put32(at + NV_SQE_AT_CDW10 + 4 * i, c->cdw[i]);
}

/* A completion queue entry. status is without the phase bit. */
struct nv_cqe {
	uint64_t result;
	uint16_t sqhd, sqid, cid, status;
};

static inline void nv_cqe_encode(const struct nv_cqe *c, uint8_t at[NV_CQE_LEN])
{
	nv_put64(at, c->result);
	nv_put16(at + 8, c->sqhd);
	nv_put16(at + 10, c->sqid);
	nv_put16(at + 12, c->cid);
	nv_put16(at + 14, (uint16_t)(c->status << 1));
}

static inline struct nv_cqe nv_cqe_decode(const uint8_t at[NV_CQE_LEN])
{
	return (struct nv_cqe){.result = nv_get64(at),
	                       .sqhd = nv_get16(at + 8),
	                       .sqid = nv_get16(at + 10),
	                       .cid = nv_get16(at + 12),
	                       .status = nv_get16(at + 14) >> 1};
}

/* The Connect command's fields in the entry, and its data. Fabrics 1.1, 3.3 */
#define NV_CONNECT_DATA_LEN 1024
#define NV_CONNECT_NO_SQ_FLOW 0x4u /* CATTR: the host does not use SQHD */
/* offsets for IPO, in the entry and in the data */
enum {
	NV_CONNECT_AT_RECFMT = NV_SQE_AT_CDW10,
	NV_CONNECT_AT_QID = NV_SQE_AT_CDW10 + 2,
	NV_CONNECT_AT_SQSIZE = NV_SQE_AT_CDW11,
	NV_CONNECT_AT_CATTR = NV_SQE_AT_CDW11 + 2,
	NV_CONNECT_AT_KATO = NV_SQE_AT_CDW12
};
enum { NV_CONNECT_AT_HOSTID = 0, NV_CONNECT_AT_CNTLID = 16, NV_CONNECT_AT_SUBNQN = 256, NV_CONNECT_AT_HOSTNQN = 512 };

struct nv_connect {
	uint16_t recfmt, qid, sqsize;
	uint8_t cattr;
	uint32_t kato; /* ms */
};

static inline struct nv_connect nv_connect_decode(const struct nv_sqe *c)
{
	return (struct nv_connect){.recfmt = (uint16_t)c->cdw[0],
	                           .qid = (uint16_t)(c->cdw[0] >> 16),
	                           .sqsize = (uint16_t)c->cdw[1],
	                           .cattr = (uint8_t)(c->cdw[1] >> 16),
	                           .kato = c->cdw[2]};
}

#endif
