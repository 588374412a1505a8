// flow_counters.c - counters objects: made, attached to flows, read
// follows: ibv_create_counters(3), ibv_attach_counters_point_flow(3), ibv_read_counters(3)
// SPDX-License-Identifier: MIT
#include "core/flow_counters.h"

#include <errno.h>
#include <stdlib.h>

#include "core/context.h"
#include "core/device.h"
#include "core/flow.h"
#include "core/handle.h"
#include "core/node.h"
#include "core/verbs.h"

static struct vb_flow_counters *counters_of(struct ibv_counters *counters)
{
	return (struct vb_flow_counters *)counters;
}

static bool counters_are_sound(const struct ibv_counters *counters)
{
	return counters->context == ((const struct vb_flow_counters *)counters)->made.context;
}

/* The list of a node's objects decides whether one exists: another thread may destroy it at any time, and then its memory
 * is not looked at. Returns where the list has it, or where the list ends. Under progress. */
static struct vb_flow_counters **place_in_list(struct vb_node *node, const struct ibv_counters *counters)
{
	struct vb_flow_counters **at = &node->counters;

	while (*at && &(*at)->counters != counters)
		at = &(*at)->next;
	return at;
}

struct ibv_counters *vb_create_counters(struct ibv_context *context, struct ibv_counters_init_attr *attr)
{
	struct vb_context *ctx = vb_ctx(context);

	if (!vb_device_has_raw_packets(ctx->dev)) { /* it has no flows */
		errno = EOPNOTSUPP;
		return NULL;
	}
	if (!attr || attr->comp_mask) {
		errno = EINVAL;
		return NULL;
	}
	struct vb_flow_counters *c = calloc(1, sizeof(*c));

	if (!c) {
		errno = ENOMEM;
		return NULL;
	}
	c->counters.context = context;
	c->made.context = context;
	c->node = ctx->node;
	vb_context_hold(ctx);
	vb_lock(&c->node->progress);
	c->next = c->node->counters;
	c->node->counters = c;
	vb_unlock(&c->node->progress);
	return &c->counters;
}

int vb_destroy_counters(struct ibv_counters *counters)
{
	struct vb_flow_counters *c = counters_of(counters);

	if (!counters || !counters_are_sound(counters))
		return EINVAL;
	struct vb_context *ctx = VB_CONTEXT_OF(c);
	struct vb_node *node = ctx->node;

	vb_lock(&node->progress);
	struct vb_flow_counters **at = place_in_list(node, counters);
	int err = !*at ? EINVAL : c->bound || c->points ? EBUSY : 0;

	if (!err)
		*at = c->next;
	vb_unlock(&node->progress);
	if (err)
		return err;
	vb_object_free(c, &c->made);
	vb_context_drop(ctx);
	return 0;
}

/* The sums of the object go on. Subtracting them here makes the index count from now on. Under progress. */
static void attach_index(struct vb_flow_counters *c, uint32_t index, bool bytes)
{
	struct vb_counter *k = &c->counter[index];

	if (bytes) {
		k->bytes++;
		k->value -= c->bytes;
	} else {
		k->packets++;
		k->value -= c->packets;
	}
}

static int attach_to_flow(struct vb_flow_counters *c, struct vb_flow *flow, uint32_t index, bool bytes)
{
	struct vb_counter_point *p = calloc(1, sizeof(*p));
	int err = p ? 0 : ENOMEM;

	if (err)
		return err;
	*p = (struct vb_counter_point){.counters = c, .index = index, .bytes = bytes};
	struct vb_node *node = VB_CONTEXT_OF(flow)->node;

	vb_lock(&node->progress);
	if (!*place_in_list(node, &c->counters)) {
		err = EINVAL;
	} else if (c->bound) {
		err = EBUSY;
	} else {
		p->next = flow->points;
		flow->points = p;
		c->points++;
	}
	vb_unlock(&node->progress);
	if (err)
		free(p);
	return err;
}

int vb_attach_counters_point_flow(struct ibv_counters *counters, struct ibv_counter_attach_attr *attr,
                                  struct ibv_flow *ibflow)
{
	struct vb_flow_counters *c = counters_of(counters);
	struct vb_flow *flow = (struct vb_flow *)ibflow;
	int err = 0;

	if (!counters || !counters_are_sound(counters) || !attr || attr->comp_mask || attr->index >= VB_COUNTER_INDEXES)
		return EINVAL;
	if (flow && (!VB_IS_SOUND(flow, flow) || ibflow->context != counters->context))
		return EINVAL;
	if ((uint32_t)attr->counter_desc > IBV_COUNTER_BYTES)
		return ENOTSUP;
	bool bytes = attr->counter_desc == IBV_COUNTER_BYTES;

	if (flow)
		return attach_to_flow(c, flow, attr->index, bytes);
	vb_lock(&c->node->progress);
	if (c->bound)
		err = EBUSY;
	else
		attach_index(c, attr->index, bytes);
	vb_unlock(&c->node->progress);
	return err;
}

/* Every value is current, so the flag for cached ones changes nothing. */
int vb_read_counters(struct ibv_counters *counters, uint64_t *values, uint32_t n, uint32_t flags)
{
	struct vb_flow_counters *c = counters_of(counters);

	if (!counters || !counters_are_sound(counters) || (n && !values) ||
	    (flags & ~(uint32_t)IBV_READ_COUNTERS_ATTR_PREFER_CACHED))
		return EINVAL;
	/* the program's memory is written without a lock, because that may wait for a page */
	uint64_t *copy = n ? calloc(VB_COUNTER_INDEXES, sizeof(*copy)) : NULL;

	if (n && !copy)
		return ENOMEM;
	vb_lock(&c->node->progress);
	for (uint32_t i = 0; i < n && i < VB_COUNTER_INDEXES; i++)
		copy[i] = c->counter[i].value + c->counter[i].packets * c->packets + c->counter[i].bytes * c->bytes;
	vb_unlock(&c->node->progress);
	for (uint32_t i = 0; i < n; i++)
		values[i] = i < VB_COUNTER_INDEXES ? copy[i] : 0;
	free(copy);
	return 0;
}

/* --- of a flow --- */

int vb_counters_bind(struct vb_flow *flow, const struct ibv_counters *counters, const struct ibv_context *context)
{
	struct vb_node *node = vb_ctx((struct ibv_context *)context)->node;

	vb_lock(&node->progress);
	struct vb_flow_counters *c = *place_in_list(node, counters);
	bool right = c && c->made.context == context && counters_are_sound(counters);

	if (right) {
		flow->counters = c;
		c->bound++;
	}
	vb_unlock(&node->progress);
	return right ? 0 : EINVAL;
}

void vb_counters_leave(struct vb_flow *flow)
{
	if (flow->counters)
		flow->counters->bound--;
	flow->counters = NULL;
	for (struct vb_counter_point *p = flow->points; p; p = p->next)
		p->counters->points--;
}

void vb_counters_count(struct vb_flow *flow, uint32_t len)
{
	if (flow->counters) {
		flow->counters->packets++;
		flow->counters->bytes += len;
	}
	for (struct vb_counter_point *p = flow->points; p; p = p->next)
		p->counters->counter[p->index].value += p->bytes ? len : 1;
}
