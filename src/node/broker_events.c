// broker_events.c - hands the broker's messages to those that they are for
// see: broker/proto/proto.h
// SPDX-License-Identifier: MIT
#include "broker/client/client.h"
#include "node/io.h"

static void on_meet_reply(void *node, uint64_t tag, int err, const struct vb_peer_info *info)
{
	vb_peer_on_meet_reply(node, tag, err, info);
}

static void on_introduced(void *node, const struct vb_peer_info *info)
{
	vb_peer_on_introduced(node, info);
	vb_roce_introduced(node);
}

static void on_reattached(void *node)
{
	vb_questions_on_reattached(node);
	vb_roce_reattached(node);
	vb_unresolved_again(node);
	vb_gsi_on_reattached(node);
}

static void on_roce_reply(void *node, const struct vb_roce_grant *g)
{
	vb_roce_answered(node, g);
}

static void on_gsi_mad(void *node, const struct vb_msg_cm_mad *m)
{
	vb_gsi_on_mad(node, m);
}

static void on_service_reply(void *node, const struct vb_msg_service_reply *m)
{
	vb_gsi_on_service_reply(node, m);
}

void vb_broker_events(struct vb_node *node)
{
	static const struct vb_broker_ops ops = {.meet_reply = on_meet_reply,
	                                         .introduced = on_introduced,
	                                         .reattached = on_reattached,
	                                         .roce_reply = on_roce_reply,
	                                         .mad = on_gsi_mad,
	                                         .service_reply = on_service_reply};

	vb_broker_dispatch(node->io->broker, &ops, node);
}
