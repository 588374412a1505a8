// tcp_pdu.h - the PDUs of NVMe/TCP, for both ends of a connection
// follows: NVMe/TCP transport specification 1.0, 3.6 (PDU definitions)
// SPDX-License-Identifier: MIT
#ifndef NV_TCP_PDU_H
#define NV_TCP_PDU_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

enum nv_tcp_type {
	NV_TCP_ICREQ = 0x00,
	NV_TCP_ICRESP = 0x01,
	NV_TCP_H2C_TERM = 0x02,
	NV_TCP_C2H_TERM = 0x03,
	NV_TCP_COMMAND = 0x04,
	NV_TCP_RESPONSE = 0x05,
	NV_TCP_H2C_DATA = 0x06,
	NV_TCP_C2H_DATA = 0x07,
	NV_TCP_R2T = 0x09,
};

enum nv_tcp_flag { NV_TCP_HDGST = 0x1, NV_TCP_DDGST = 0x2, NV_TCP_LAST = 0x4, NV_TCP_SUCCESS = 0x8 };

/* Fatal error status of a termination request. NVMe/TCP 1.0, 3.6.2.3 */
enum nv_tcp_fes {
	NV_TCP_FES_HEADER = 1,      /* invalid PDU header field; FEI: its offset */
	NV_TCP_FES_SEQUENCE = 2,    /* PDU sequence error */
	NV_TCP_FES_HDGST = 3,       /* header digest error; FEI: the received digest */
	NV_TCP_FES_RANGE = 4,       /* data transfer out of range */
	NV_TCP_FES_LIMIT = 5,       /* data transfer limit exceeded */
	NV_TCP_FES_UNSUPPORTED = 6, /* unsupported parameter; FEI: its offset */
};

#define NV_TCP_COMMON_LEN 8
#define NV_TCP_IC_LEN 128
#define NV_TCP_TERM_LEN 24
#define NV_TCP_TERM_MAX 152
#define NV_TCP_COMMAND_LEN 72
#define NV_TCP_RESPONSE_LEN 24
#define NV_TCP_DATA_LEN 24 /* H2CData, C2HData, R2T */
#define NV_TCP_DIGEST_LEN 4
#define NV_TCP_PDO_MAX 255

/* The common header of all PDUs. */
struct nv_tcp_common {
	uint8_t type, flags, hlen, pdo;
	uint32_t plen;
};

/* ICReq: align is HPDA, number MAXR2T. ICResp: CPDA and MAXH2CDATA. digests: 1 header, 2 data, as in the flags. */
struct nv_tcp_ic {
	uint16_t pfv;
	uint8_t align, digests;
	uint32_t number;
};

/* H2CData, C2HData (no ttag) and R2T. */
struct nv_tcp_data {
	uint16_t cccid, ttag;
	uint32_t offset, length;
};

struct nv_tcp_term {
	uint16_t fes;
	uint32_t fei;
};

/* The buffers have the PDU's fixed length. The caller encodes the common header with its own function. */
struct nv_tcp_common nv_tcp_common_decode(const uint8_t *at);
void nv_tcp_common_encode(const struct nv_tcp_common *c, uint8_t *at);
struct nv_tcp_ic nv_tcp_ic_decode(const uint8_t *at);
void nv_tcp_ic_encode(const struct nv_tcp_ic *ic, bool response, uint8_t *at); /* the whole PDU */
struct nv_tcp_data nv_tcp_data_decode(const uint8_t *at);
void nv_tcp_data_encode(const struct nv_tcp_data *d, uint8_t *at); /* from byte 8 on */
struct nv_tcp_term nv_tcp_term_decode(const uint8_t *at);
/* Encodes the whole PDU, at most NV_TCP_TERM_MAX bytes, and returns its length. wrong, len: the header with the
 * error. */
size_t nv_tcp_term_encode(const struct nv_tcp_term *t, bool from_controller, const uint8_t *wrong, size_t len,
                          uint8_t *at);

/* The offset of the data: behind header and digest, aligned to (align + 1) dwords. NVMe/TCP 1.0, 3.3.3 */
static inline uint8_t nv_tcp_pdo(uint8_t hlen, bool digest, uint8_t align)
{
	unsigned unit = (align + 1u) * 4, end = hlen + (digest ? NV_TCP_DIGEST_LEN : 0u);

	return (uint8_t)((end + unit - 1) / unit * unit);
}

/*
 * The checks of every receiver on a header: type, lengths, flags, data offset. from_controller: the sender. digests: as
 * negotiated. *data: length of the data. Returns 0, or the error and *fei.
 */
int nv_tcp_check(const struct nv_tcp_common *c, bool from_controller, uint8_t digests, uint8_t align, uint32_t *data,
                 uint32_t *fei);

#endif
