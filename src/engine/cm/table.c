// table.c - places and ids of connections, and look-ups by a peer's message
// follows: IBA volume 1, 12.9.8.3 (stale connections are found by CA GUID and QPN, or communication id)
// SPDX-License-Identifier: MIT
#include "engine/cm/machine.h"
#include "util/sip.h"

#define ID_BITS (32 - VB_CM_LANE_BITS)
#define REST 1024 /* freed places that a table accumulates before it reuses one */

uint64_t vb_cm_random(struct vb_cm *cm)
{
	cm->drawn++;
	return vb_sip(cm->cfg.key, &cm->drawn, 1);
}

void vb_cm_init(struct vb_cm *cm, const struct vb_cm_config *cfg, const struct vb_cm_ops *ops, void *own,
                struct vb_cm_conn *conns, uint32_t len)
{
	*cm = (struct vb_cm){.cfg = *cfg, .ops = ops, .own = own, .conns = conns, .len = len};
	if (!cm->cfg.max_service)
		cm->cfg.max_service = 24;
	if (!cm->cfg.max_response)
		cm->cfg.max_response = 21;
	if (!cm->cfg.max_timewait)
		cm->cfg.max_timewait = 20;
	while (1u << cm->index_bits < len)
		cm->index_bits++;
}

/* Makes an id with a new tag. It reveals neither the place nor the next id. */
static uint32_t new_id(struct vb_cm *cm, uint32_t i)
{
	uint32_t tag_bits = ID_BITS - cm->index_bits, tag, id;

	do {
		tag = (uint32_t)vb_cm_random(cm) & ((1u << tag_bits) - 1);
		id = cm->cfg.lane << ID_BITS | vb_shuffle(cm->cfg.key, ID_BITS, tag << cm->index_bits | i);
	} while (tag == cm->conns[i].place.tag || !id);
	cm->conns[i].place.tag = tag;
	return id;
}

/* Takes a new place while few places were freed, otherwise the one that has been free for the longest time. */
static uint32_t take_place(struct vb_cm *cm)
{
	uint32_t i = cm->free_first - 1;

	if (cm->fresh < cm->len && cm->nfree < REST)
		return cm->fresh++;
	cm->free_first = cm->conns[i].place.next_free;
	cm->nfree--;
	return i;
}

struct vb_cm_conn *vb_cm_take(struct vb_cm *cm, const struct vb_cm_addr *addr)
{
	if (cm->used == cm->len)
		return NULL;
	uint32_t i = take_place(cm), id = new_id(cm, i);
	struct vb_cm_conn *conn = &cm->conns[i];

	cm->used++;
	*conn = (struct vb_cm_conn){.place = conn->place, .used = true, .local_comm_id = id, .addr = *addr};
	return conn;
}

void vb_cm_release(struct vb_cm *cm, struct vb_cm_conn *conn)
{
	uint32_t link = (uint32_t)(conn - cm->conns) + 1;

	conn->used = false;
	conn->place.next_free = VB_CM_NONE;
	if (cm->nfree)
		cm->conns[cm->free_last - 1].place.next_free = link;
	else
		cm->free_first = link;
	cm->free_last = link;
	cm->nfree++;
	cm->used--;
}

struct vb_cm_conn *vb_cm_lookup(struct vb_cm *cm, uint32_t local_comm_id)
{
	uint32_t i = vb_unshuffle(cm->cfg.key, ID_BITS, local_comm_id) & (cm->len - 1);
	struct vb_cm_conn *conn = &cm->conns[i];

	return conn->used && conn->local_comm_id == local_comm_id ? conn : NULL;
}

struct vb_cm_conn *vb_cm_find(struct vb_cm *cm, uint32_t local_comm_id)
{
	struct vb_cm_conn *conn = vb_cm_lookup(cm, local_comm_id);

	return conn && !conn->orphan ? conn : NULL;
}

/* Kinds of buckets; the first two equal false and true of conn->sidr. */
enum { KIND_CONN, KIND_SIDR, KIND_QP };

/*
 * deviates: 12.9.8.3 identifies a peer by its CA GUID alone. On Ethernet a host can claim any GUID. Because the address
 * must match too, a host cannot make another host's connections stale.
 */
static uint32_t hash_bucket(const struct vb_cm *cm, const uint8_t gid[VB_GID_LEN], uint64_t kind, uint64_t guid,
                            uint32_t number)
{
	uint64_t words[5] = {[2] = kind, [3] = guid, [4] = number};

	memcpy(words, gid, VB_GID_LEN);
	return (uint32_t)vb_sip(cm->cfg.key, words, 5) & (cm->len - 1);
}

void vb_cm_index_id(struct vb_cm *cm, struct vb_cm_conn *conn)
{
	uint32_t b = hash_bucket(cm, conn->addr.remote, conn->sidr, conn->remote_guid, conn->remote_comm_id);

	conn->id_next = cm->conns[b].place.id_head;
	cm->conns[b].place.id_head = (uint32_t)(conn - cm->conns) + 1;
	conn->in_ids = true;
}

void vb_cm_index_qp(struct vb_cm *cm, struct vb_cm_conn *conn)
{
	uint32_t b = hash_bucket(cm, conn->addr.remote, KIND_QP, conn->remote_guid, conn->remote_qpn);

	conn->qp_next = cm->conns[b].place.qp_head;
	cm->conns[b].place.qp_head = (uint32_t)(conn - cm->conns) + 1;
	conn->in_qps = true;
}

void vb_cm_unindex(struct vb_cm *cm, struct vb_cm_conn *conn)
{
	uint32_t self = (uint32_t)(conn - cm->conns) + 1, *at;

	if (conn->in_ids) {
		at = &cm->conns[hash_bucket(cm, conn->addr.remote, conn->sidr, conn->remote_guid, conn->remote_comm_id)]
		              .place.id_head;
		while (*at != self)
			at = &cm->conns[*at - 1].id_next;
		*at = conn->id_next;
	}
	conn->in_ids = false;
	vb_cm_unindex_qp(cm, conn);
}

void vb_cm_unindex_qp(struct vb_cm *cm, struct vb_cm_conn *conn)
{
	uint32_t self = (uint32_t)(conn - cm->conns) + 1, *at;

	if (!conn->in_qps)
		return;
	at = &cm->conns[hash_bucket(cm, conn->addr.remote, KIND_QP, conn->remote_guid, conn->remote_qpn)].place.qp_head;
	while (*at != self)
		at = &cm->conns[*at - 1].qp_next;
	*at = conn->qp_next;
	conn->in_qps = false;
}

struct vb_cm_conn *vb_cm_by_id(struct vb_cm *cm, const struct vb_cm_addr *from, bool sidr, uint64_t guid, uint32_t id,
                               uint64_t tid)
{
	uint32_t i = cm->conns[hash_bucket(cm, from->remote, sidr, guid, id)].place.id_head;
	struct vb_cm_conn *other = NULL;

	for (; i != VB_CM_NONE; i = cm->conns[i - 1].id_next) {
		struct vb_cm_conn *conn = &cm->conns[i - 1];

		if (conn->remote_comm_id != id || conn->sidr != sidr || conn->remote_guid != guid ||
		    memcmp(conn->addr.remote, from->remote, VB_GID_LEN) != 0)
			continue;
		if (conn->tid == tid)
			return conn;
		if (conn->state != VB_CM_TIMEWAIT)
			other = conn;
	}
	return other;
}

struct vb_cm_conn *vb_cm_by_qp(struct vb_cm *cm, const struct vb_cm_addr *from, uint64_t guid, uint32_t qpn)
{
	uint32_t i = cm->conns[hash_bucket(cm, from->remote, KIND_QP, guid, qpn)].place.qp_head;

	for (; i != VB_CM_NONE; i = cm->conns[i - 1].qp_next) {
		struct vb_cm_conn *conn = &cm->conns[i - 1];

		if (conn->remote_qpn == qpn && conn->remote_guid == guid &&
		    !memcmp(conn->addr.remote, from->remote, VB_GID_LEN))
			return conn;
	}
	return NULL;
}
