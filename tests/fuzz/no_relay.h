// no_relay.h - stands for XRC between processes (path/local/relay.c), which is not part of these targets
// SPDX-License-Identifier: MIT
#ifndef TESTS_FUZZ_NO_RELAY_H
#define TESTS_FUZZ_NO_RELAY_H

#include "engine/local/relay.h"

static void no_offer(struct vb_node *node)
{
}

const struct vb_xrc_far_ops vb_xrc_far_ops = {.offer = no_offer};

enum vb_xrc_place vb_relay_place(struct vb_qp *qp, uint32_t srqn)
{
	return srqn & 1 ? VB_XRC_THERE : VB_XRC_BUSY;
}

bool vb_relay_allows(struct vb_qp *qp)
{
	return true;
}

void vb_relay_reset(struct vb_qp *qp)
{
}

void vb_relay_free(struct vb_qp *qp)
{
}

bool vb_relay_put(struct vb_qp *qp, const struct vb_relayed *what)
{
	return false;
}

bool vb_relay_oldest(const struct vb_qp *qp, uint32_t *psn, uint64_t *count)
{
	return false;
}

enum vb_relay_result vb_relay_read(struct vb_qp *qp, uint64_t request, uint32_t srqn, uint32_t key, uint64_t addr,
                                   uint32_t total, void *to, uint32_t length)
{
	return VB_RELAY_GONE;
}

void vb_relay_data(struct vb_qp *qp, struct vb_peer *p, const struct vb_rec *rec, const struct vb_rec_ext *ext,
                   const uint8_t *payload)
{
}

unsigned vb_relay_visit(struct vb_qp *qp)
{
	return 0;
}

void vb_relay_asked(struct vb_peer *p, bool leaves, const struct vb_rec *rec, const struct vb_rec_ext *ext)
{
}

void vb_relay_joined(struct vb_peer *p, const struct vb_rec *rec)
{
}

#endif
