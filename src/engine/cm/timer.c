// timer.c - deadlines: a heap stored in the table's places, and actions when one has passed
// follows: IBA volume 1, 12.9.8.1 (timeouts and retries), 12.9.8.4 (timewait)
// SPDX-License-Identifier: MIT
#include "engine/cm/machine.h"

static struct vb_cm_conn *heap_at(const struct vb_cm *cm, uint32_t k)
{
	return &cm->conns[cm->conns[k].place.heap];
}

static void heap_put(struct vb_cm *cm, uint32_t k, struct vb_cm_conn *conn)
{
	cm->conns[k].place.heap = (uint32_t)(conn - cm->conns);
	conn->heap_at = k + 1;
}

static void heap_sift(struct vb_cm *cm, struct vb_cm_conn *conn)
{
	uint32_t k = conn->heap_at - 1, child;

	for (; k && heap_at(cm, (k - 1) / 2)->deadline > conn->deadline; k = (k - 1) / 2)
		heap_put(cm, k, heap_at(cm, (k - 1) / 2));
	for (; (child = 2 * k + 1) < cm->heap_len; k = child) {
		if (child + 1 < cm->heap_len && heap_at(cm, child + 1)->deadline < heap_at(cm, child)->deadline)
			child++;
		if (heap_at(cm, child)->deadline >= conn->deadline)
			break;
		heap_put(cm, k, heap_at(cm, child));
	}
	heap_put(cm, k, conn);
}

static void remove_from_heap(struct vb_cm *cm, struct vb_cm_conn *conn)
{
	struct vb_cm_conn *last = heap_at(cm, --cm->heap_len);
	uint32_t k = conn->heap_at - 1;

	conn->heap_at = VB_CM_NONE;
	if (last != conn) {
		heap_put(cm, k, last);
		heap_sift(cm, last);
	}
}

/* deadline: 0 for none. */
void vb_cm_set_deadline(struct vb_cm *cm, struct vb_cm_conn *conn, uint64_t deadline)
{
	conn->deadline = deadline;
	if (!deadline) {
		if (conn->heap_at != VB_CM_NONE)
			remove_from_heap(cm, conn);
		return;
	}
	if (conn->heap_at == VB_CM_NONE)
		heap_put(cm, cm->heap_len++, conn);
	heap_sift(cm, conn);
}

uint64_t vb_cm_deadline(const struct vb_cm *cm)
{
	return cm->heap_len ? heap_at(cm, 0)->deadline : 0;
}

/* Repeats the message if a retry is left. */
static bool try_again(struct vb_cm *cm, struct vb_cm_conn *conn, uint64_t now)
{
	if (!conn->retries)
		return false;
	conn->retries--;
	vb_cm_set_deadline(cm, conn, now + conn->timeout);
	vb_cm_repeat(cm, conn);
	return true;
}

static void give_up_conn(struct vb_cm *cm, struct vb_cm_conn *conn, enum vb_cm_event_kind kind)
{
	if (!conn->sidr)
		vb_cm_send_timeout(cm, conn);
	vb_cm_to_idle(cm, conn);
	vb_cm_emit(cm, conn, kind, NULL);
}

static void expire_conn(struct vb_cm *cm, struct vb_cm_conn *conn, uint64_t now)
{
	switch (conn->state) {
	case VB_CM_MRA_REQ_RCVD:
	case VB_CM_REQ_SENT:
		if (!try_again(cm, conn, now))
			give_up_conn(cm, conn, VB_CM_REQ_ERROR);
		else
			conn->state = VB_CM_REQ_SENT;
		break;
	case VB_CM_MRA_REP_RCVD:
	case VB_CM_REP_SENT:
		if (!try_again(cm, conn, now))
			give_up_conn(cm, conn, VB_CM_REP_ERROR);
		else
			conn->state = VB_CM_REP_SENT;
		break;
	case VB_CM_DREQ_SENT:
		if (try_again(cm, conn, now))
			break;
		vb_cm_to_timewait(cm, conn, now);
		vb_cm_emit(cm, conn, VB_CM_DREQ_ERROR, NULL);
		break;
	case VB_CM_SIDR_REQ_SENT:
		if (!try_again(cm, conn, now))
			give_up_conn(cm, conn, VB_CM_SIDR_ERROR);
		break;
	case VB_CM_TIMEWAIT:
		vb_cm_to_idle(cm, conn);
		vb_cm_emit(cm, conn, VB_CM_TIMEWAIT_EXIT, NULL);
		break;
	default:
		vb_cm_set_deadline(cm, conn, 0);
	}
}

void vb_cm_timeout(struct vb_cm *cm, uint64_t now)
{
	while (cm->heap_len && heap_at(cm, 0)->deadline <= now)
		expire_conn(cm, heap_at(cm, 0), now);
}
