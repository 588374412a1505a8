// lrh.h - a packet on an InfiniBand link: local route header, global route header, transport packet, VCRC
// follows: IBA volume 1, 7.7 (LRH), 7.8 (ICRC, VCRC), 8.3 (GRH)
// SPDX-License-Identifier: MIT
#ifndef VB_FRAME_LRH_H
#define VB_FRAME_LRH_H

#include "frame/net.h"

#define VB_LRH_LEN 8
#define VB_LRH_WORDS_MOST 0x7ff /* its length field has 11 bits */
#define VB_VCRC_LEN 2
#define VB_LINK_FRONT_MAX (VB_LRH_LEN + VB_GRH_LEN)
#define VB_VL_MANAGEMENT 15

/* What follows the LRH: 7.7.5. */
enum vb_lnh { VB_LNH_RAW, VB_LNH_IPV6, VB_LNH_BTH, VB_LNH_GRH };

struct vb_lrh {
	uint8_t vl, version, sl, next; /* next: enum vb_lnh */
	uint16_t dlid, slid;
	uint16_t words; /* of 4 bytes, from the LRH to the ICRC */
};

void vb_lrh_encode(uint8_t lrh[VB_LRH_LEN], const struct vb_lrh *h);
void vb_lrh_decode(struct vb_lrh *h, const uint8_t lrh[VB_LRH_LEN]);

/* Continues a VCRC: crc is that of the bytes before, 0 at the start. */
uint16_t vb_vcrc(uint16_t crc, const void *bytes, size_t len);
/* The same without instructions that not all processors have. */
uint16_t vb_vcrc_portable(uint16_t crc, const void *bytes, size_t len);

/* The bytes before the BTH in packets of a flow. */
static inline size_t vb_link_front_len(uint8_t link)
{
	if (__builtin_expect(link == VB_LINK_UDP, 1))
		return 0;
	return link == VB_LINK_LOCAL ? VB_LRH_LEN : VB_LINK_FRONT_MAX;
}

/* Writes them, on virtual lane 0. transport_len: bytes from BTH to ICRC, a multiple of 4. Returns their length. */
size_t vb_link_front(uint8_t front[VB_LINK_FRONT_MAX], const struct vb_flow *flow, const struct vb_ip_fields *ip,
                     size_t transport_len);
/* The same for the ICRC: all bits that a switch or router may change are ones. */
size_t vb_link_front_masked(uint8_t front[VB_LINK_FRONT_MAX], const struct vb_flow *flow, size_t transport_len);
/* Writes the VCRC behind a packet of len bytes, from LRH to ICRC. */
void vb_vcrc_encode(uint8_t *packet, size_t len);

/* Packets without a GRH have no addresses but LIDs. In a struct vb_flow these stand for addresses: fe80::LID. */
void vb_lid_address(uint8_t gid[VB_GID_LEN], uint16_t lid);

/* X(name, text for counters and logs). */
#define VB_LINK_VERDICTS(X)                                           \
	X(OK, "well formed")                                          \
	X(SHORT, "shorter than its length says, or than its headers") \
	X(VERSION, "another version of the LRH or GRH")               \
	X(NEXT, "a raw packet")                                       \
	X(GRH, "a GRH that does not fit the packet")                  \
	X(VCRC, "a wrong VCRC")

enum vb_link_verdict {
#define X(name, text) VB_LINK_##name,
	VB_LINK_VERDICTS(X)
#undef X
};

struct vb_link_packet {
	struct vb_lrh lrh;
	bool global;
	size_t len;           /* from LRH to VCRC; 0: unknown */
	size_t transport_at;  /* of the BTH */
	size_t transport_len; /* from BTH to ICRC */
};

/* Decodes the first packet of these bytes. If len is known, another packet may follow even if the verdict is not OK. */
enum vb_link_verdict vb_link_decode(struct vb_link_packet *p, const uint8_t *bytes, size_t len);
/* The same without a look at the VCRC, for packets that the fabric process has checked. */
enum vb_link_verdict vb_link_decode_trusted(struct vb_link_packet *p, const uint8_t *bytes, size_t len);
/* Fills in addresses of a well-formed packet. */
void vb_link_addresses(struct vb_flow *flow, struct vb_ip_fields *ip, const struct vb_link_packet *p,
                       const uint8_t *bytes);

#endif
