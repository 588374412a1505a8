// srp.h - a channel of a SRP initiator: a queue over RDMA with SRP's messages
// follows: SRP (ANSI INCITS 365, T10/1415-D)
// SPDX-License-Identifier: MIT
#ifndef VN_SRP_H
#define VN_SRP_H

#include "client/rdma.h"
#include "client/scsi.h"

#define VN_SRP_IMMEDIATE 80u /* offset of immediate data in a message */
#define VN_SRP_LIST 128u     /* … of the parameters of UNMAP, behind it */
#define VN_SRP_ANSWER 512u   /* a response has 40 bytes and 252 of sense data at most */
#define VN_SRP_CREDITS_MAX (1u << 20)
#define VN_SRP_OWN 4u /* messages that are not commands, at once */

struct vn_srp_queue {
	struct vn_rdma_queue r; /* must be the first member */
	struct sp_login_rsp login;
	uint8_t initiator[16], target[16], lun[8];
	uint32_t iu_len;                       /* that we ask for */
	uint32_t credits;                      /* requests that the target accepts now */
	uint32_t block;                        /* bytes, for WRITE SAME */
	bool cached, fua;                      /* the unit's cache loses data without a flush; it has FUA */
	bool immediate, too_long;              /* the target takes immediate data; it refused iu_len */
	struct vn_cmd *waiting, **waiting_end; /* for a credit */
	uint32_t on_way;                       /* commands that were sent */
	uint32_t telling;                      /* bits: which of VN_SRP_OWN are sent */
	/* the management function that is asked for */
	bool managing;
	uint16_t managed;
	uint32_t managements;
	uint64_t managed_at; /* ms */
};

extern const struct vn_rdma_binding vn_srp_binding;

static inline struct vn_srp_queue *vn_srp_of(struct vn_queue *q)
{
	return (struct vn_srp_queue *)q;
}

int vn_srp_open(struct vn_link *l, uint16_t qid, uint16_t depth, struct vn_queue **q);
uint32_t vn_srp_ask(const struct vn_link *l, struct vn_rdma_queue *r, uint8_t private[VN_RDMA_PRIVATE]);
int vn_srp_accepted(struct vn_link *l, struct vn_rdma_queue *r, const uint8_t *private, size_t length);
int vn_srp_rejected(struct vn_link *l, struct vn_rdma_queue *r, const uint8_t *private, size_t length);

#endif
