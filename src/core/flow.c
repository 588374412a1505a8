// flow.c - flow steering: rules are made and destroyed, and decide which queue pair of the process receives a frame
// follows: ibv_create_flow(3), ibv_destroy_flow(3)
// SPDX-License-Identifier: MIT
#include "core/flow.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "core/device.h"
#include "core/flow_counters.h"
#include "core/handle.h"
#include "core/qp.h"
#include "core/verbs.h"

#define MAX_FLOWS 4096u /* of a process: each frame is compared with all of its adapter */

static int check_flow(struct ibv_qp *ibqp, const struct ibv_flow_attr *attr)
{
	if (!vb_qp_is_sound(ibqp))
		return EINVAL;
	if (!vb_device_has_raw_packets(VB_CONTEXT_OF(vb_qp(ibqp))->dev)) /* IBV_DEVICE_MANAGED_FLOW_STEERING */
		return ENXIO;
	if (ibqp->qp_type ==
	    IBV_QPT_UD) /* the manual page allows it; datagrams here are steered by their number alone */
		return EOPNOTSUPP;
	if (ibqp->qp_type != IBV_QPT_RAW_PACKET || attr->comp_mask || attr->port != 1 ||
	    (uint32_t)attr->type > IBV_FLOW_ATTR_SNIFFER)
		return EINVAL;
	if (attr->flags & IBV_FLOW_ATTR_FLAGS_EGRESS)
		return EOPNOTSUPP;
	if (attr->flags & ~(uint32_t)IBV_FLOW_ATTR_FLAGS_DONT_TRAP)
		return EINVAL;
	/* the other types have no specifications and trap every frame: note 4 of the manual page */
	if (attr->type != IBV_FLOW_ATTR_NORMAL && (attr->flags || attr->num_of_specs))
		return EINVAL;
	return 0;
}

/* Rules for what no other rule takes come behind all others. */
static uint32_t rank_of(const struct ibv_flow_attr *attr)
{
	static const uint8_t ranks[] = {[IBV_FLOW_ATTR_SNIFFER] = 0,
	                                [IBV_FLOW_ATTR_NORMAL] = 1,
	                                [IBV_FLOW_ATTR_MC_DEFAULT] = 2,
	                                [IBV_FLOW_ATTR_ALL_DEFAULT] = 3};

	return (uint32_t)ranks[attr->type] << 16 | attr->priority;
}

/* Behind the rules of the same rank. Under progress. */
static void insert_flow(struct vb_node *node, struct vb_flow *flow)
{
	struct vb_flow **at = &node->flows;

	while (*at && (*at)->rank <= flow->rank)
		at = &(*at)->next;
	flow->next = *at;
	*at = flow;
}

static int enter_flow(struct vb_qp *qp, struct vb_flow *flow)
{
	vb_lock(&qp->node->progress);
	bool has_room = qp->node->flow_count < MAX_FLOWS;

	if (has_room) {
		insert_flow(qp->node, flow);
		qp->node->flow_count++;
		qp->flows++;
	} else {
		vb_counters_leave(flow);
	}
	vb_unlock(&qp->node->progress);
	return has_room ? vb_raw_flows_changed(qp) : ENOMEM;
}

static void leave_flow(struct vb_flow *flow)
{
	struct vb_node *node = flow->qp->node;
	struct vb_flow **at = &node->flows;

	vb_lock(&node->progress);
	while (*at && *at != flow)
		at = &(*at)->next;
	bool found = *at;

	if (found) {
		*at = flow->next;
		node->flow_count--;
		vb_counters_leave(flow);
	}
	vb_unlock(&node->progress);
	if (!found)
		return;
	/* it wants less; if the kernel has no memory, it receives more than that */
	(void)vb_raw_flows_changed(flow->qp);
	vb_lock(&node->progress);
	flow->qp->flows--; /* from now on the queue pair may be destroyed */
	vb_unlock(&node->progress);
}

struct ibv_flow *vb_create_flow(struct ibv_qp *ibqp, struct ibv_flow_attr *attr)
{
	static _Atomic uint32_t last;
	struct vb_flow_match match;
	int err = check_flow(ibqp, attr);

	if (!err)
		err = vb_flow_parse(attr, &match);
	struct vb_flow *flow = err ? NULL : calloc(1, sizeof(*flow));

	if (flow && match.counts) {
		err = vb_counters_bind(flow, match.counters, ibqp->context);
		if (err)
			free(flow);
	}
	if (flow && !err) {
		flow->flow.context = ibqp->context;
		flow->flow.handle = vb_handle_next(&last);
		flow->made = VB_MADE(flow->flow);
		flow->qp = vb_qp(ibqp);
		flow->rank = rank_of(attr);
		flow->type = (uint8_t)attr->type;
		flow->dont_trap = attr->flags & IBV_FLOW_ATTR_FLAGS_DONT_TRAP;
		flow->match = match;
		err = enter_flow(flow->qp, flow);
		if (!err)
			return &flow->flow;
		leave_flow(flow);
		free(flow);
	}
	errno = err ? err : ENOMEM;
	return NULL;
}

static void free_points(struct vb_flow *flow)
{
	while (flow->points) {
		struct vb_counter_point *p = flow->points;

		flow->points = p->next;
		free(p);
	}
}

int vb_destroy_flow(struct ibv_flow *ibflow)
{
	struct vb_flow *flow = (struct vb_flow *)ibflow;

	if (!VB_IS_SOUND(flow, flow))
		return EINVAL;
	leave_flow(flow);
	free_points(flow);
	vb_object_free(flow, &flow->made);
	return 0;
}

/* Is the rule's part about the inside of a tunnel right? Few rules have one, so the frame is dissected for each. */
static bool inside_matches(const struct vb_flow *f, const uint8_t *frame, uint32_t len)
{
	union vb_frame_fields fields;
	uint16_t layers = vb_frame_dissect_inner(frame, len, &fields);

	return layers && vb_flow_matches(&f->match.inner, &fields, layers);
}

static bool rule_matches(const struct vb_flow *f, const union vb_frame_fields *fields, uint16_t layers)
{
	if (f->type == IBV_FLOW_ATTR_MC_DEFAULT)
		return vb_frame_is_group(fields);
	return f->type == IBV_FLOW_ATTR_ALL_DEFAULT || vb_flow_matches(&f->match.outer, fields, layers);
}

bool vb_flow_takes(struct vb_qp *qp, const uint8_t *frame, uint32_t len, uint32_t *tag)
{
	union vb_frame_fields fields;
	uint16_t layers = vb_frame_dissect(frame, len, &fields);

	bool taken = false;

	*tag = 0;
	for (struct vb_flow *f = qp->node->flows; f; f = f->next) {
		bool sniffs = f->type == IBV_FLOW_ATTR_SNIFFER;

		if (sniffs ? f->qp != qp : vb_qp_device(f->qp) != vb_qp_device(qp) || !rule_matches(f, &fields, layers))
			continue;
		if (__builtin_expect(f->match.deep, 0) && !inside_matches(f, frame, len))
			continue;
		if (f->qp == qp) { /* each queue pair of the process sees the frame, so a rule counts it once */
			vb_counters_count(f, len);
			if (!*tag) /* of several rules the most important one */
				*tag = f->match.tag;
			taken = taken || !f->match.drop;
		}
		if (!sniffs && (f->match.drop || !f->dont_trap))
			break;
	}
	return taken;
}

static void want_address(struct vb_flow_wants *w, const struct vb_flow_match *m)
{
	static const uint8_t whole[6] = {0xff, 0xff, 0xff, 0xff, 0xff, 0xff};

	if (memcmp(m->outer.mask.key.dst_mac, whole, 6) != 0)
		return; /* frames for this station and for all, which the interface receives anyway */
	if (w->n == sizeof(w->mac) / sizeof(w->mac[0]))
		w->all = true;
	else
		memcpy(w->mac[w->n++], m->outer.value.key.dst_mac, 6);
}

void vb_flow_collect(const struct vb_qp *qp, struct vb_flow_wants *wants)
{
	memset(wants, 0, sizeof(*wants));
	for (const struct vb_flow *f = qp->node->flows; f; f = f->next) {
		if (f->qp != qp)
			continue;
		wants->any = true;
		wants->all = wants->all || f->type == IBV_FLOW_ATTR_SNIFFER;
		wants->sniffs = wants->sniffs || f->type == IBV_FLOW_ATTR_SNIFFER;
		wants->groups = wants->groups || f->type >= IBV_FLOW_ATTR_ALL_DEFAULT;
		if (f->type == IBV_FLOW_ATTR_NORMAL)
			want_address(wants, &f->match);
	}
}
