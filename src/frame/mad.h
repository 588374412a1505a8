// mad.h - the common header of management datagrams
// follows: IBA volume 1, 13.4.2 (MAD header), 13.4.5 (methods); annex A17 (RoCEv2)
// SPDX-License-Identifier: MIT
#ifndef VB_FRAME_MAD_H
#define VB_FRAME_MAD_H

#include "frame/cursor.h"

#define VB_MAD_LEN 256 /* of every MAD, with its header */
#define VB_MAD_HEADER_LEN 24
#define VB_MAD_BASE_VERSION 1
#define VB_MAD_CLASS_CM 0x07
#define VB_MAD_CLASS_CM_VERSION 2
#define VB_MAD_METHOD_SEND 0x03
#define VB_GSI_QPN 1
#define VB_GSI_QKEY 0x80010000u

struct vb_mad {
	uint8_t base_version, mgmt_class, class_version;
	uint8_t method; /* the high bit marks a response */
	uint16_t status, class_specific;
	uint64_t tid;
	uint16_t attr_id;
	uint32_t attr_mod;
};

void vb_mad_decode(struct vb_reader *r, struct vb_mad *h);
void vb_mad_encode(struct vb_writer *w, const struct vb_mad *h);

#endif
