// scsi.h - SCSI as the initiator speaks it: CDBs of requests, and what a target's answers mean. Pure functions of bytes
// follows: SPC-4; SBC-3
// SPDX-License-Identifier: MIT
#ifndef VN_SCSI_H
#define VN_SCSI_H

#include "client/client.h"
#include "scsi/be.h"
#include "scsi/scsi.h"
#include "srp/srp.h"

#define VN_SCSI_LIST 24u       /* bytes of the parameters of UNMAP with one range */
#define VN_SCSI_SAME_MAX 4096u /* bytes of a block that WRITE SAME can write */
#define VN_SCSI_REPLY 4096u    /* bytes of control data */
#define VN_SCSI_LUNS_MAX 256u  /* that are listed */

/* Where the data of a command is. */
enum vn_scsi_data { VN_SCSI_NONE, VN_SCSI_CALLERS, VN_SCSI_UNMAP, VN_SCSI_ZEROES };

/* Makes the CDB of a command of the disk. fua: the unit has FUA. list: parameters, for VN_SCSI_UNMAP */
enum vn_scsi_data vn_scsi_cdb(struct vn_cmd *c, bool fua, uint8_t list[VN_SCSI_LIST]);
/* True if c, which is done, is durable only after a SYNCHRONIZE CACHE, if the unit has a cache. vn_scsi_cdb makes that of
 * it when scsi.synced is set. */
bool vn_scsi_must_sync(const struct vn_cmd *c, bool fua);

void vn_scsi_lun(uint16_t lun, uint8_t out[8]);
bool vn_scsi_lun_decode(const uint8_t at[8], uint16_t *lun); /* false: of a form that addresses here do not have */

/*
 * Takes a response to c, with len bytes of data. Sets c->cqe.status to the status of NVMe that is treated in the same
 * way, and c->scsi. Returns true if the response reports a change of the unit.
 */
bool vn_scsi_answer(struct vn_cmd *c, const struct sp_rsp *r, uint32_t len);

#define VN_SENSE(key, asc, ascq) ((uint32_t)(key) << 16 | (uint32_t)(asc) << 8 | (uint32_t)(ascq))
uint32_t vn_sense(const uint8_t *at, uint32_t len); /* fixed or descriptor format; 0: none */

/* What a unit says of itself. Each takes n bytes that came, and leaves what they do not contain as it is. */
struct vn_unit {
	uint64_t blocks, same_max, unmap_max; /* blocks; same_max, unmap_max: of one command, 0: none said */
	uint32_t block, transfer, optimal;    /* transfer, optimal: blocks, 0: none said */
	uint32_t unmap_ranges;
	bool thin, unmaps, same_unmaps, zeroes_after; /* zeroes_after: unmapped blocks read as zeros */
	bool cached, readonly, fua;                   /* fua: it has FUA (DPOFUA) */
	struct vn_names names;
};

bool vn_scsi_inquiry(const uint8_t *d, size_t n, struct vn_info *info); /* false: it is no disk */
void vn_scsi_serial(const uint8_t *d, size_t n, struct vn_info *info);
void vn_scsi_designators(const uint8_t *d, size_t n, struct vn_unit *u);
void vn_scsi_limits(const uint8_t *d, size_t n, struct vn_unit *u);
void vn_scsi_provisioning(const uint8_t *d, size_t n, struct vn_unit *u);
void vn_scsi_mode(const uint8_t *d, size_t n, struct vn_unit *u); /* MODE SENSE (10), with the caching page */
bool vn_scsi_capacity(const uint8_t *d, size_t n, struct vn_unit *u);
size_t vn_scsi_luns(const uint8_t *d, size_t n, uint16_t luns[VN_SCSI_LUNS_MAX]);
/* Puts the limits into the terms of NVMe. */
void vn_scsi_describe(const struct vn_unit *u, struct vn_info *info, struct vn_limits *lim);

#endif
