// machine.h - functions that the files of connection management share
// follows: IBA volume 1, 12.9
// SPDX-License-Identifier: MIT
#ifndef VB_ENGINE_CM_MACHINE_H
#define VB_ENGINE_CM_MACHINE_H

#include "engine/cm/cm.h"

/* table.c: places, ids, and look-ups */
uint64_t vb_cm_random(struct vb_cm *cm);
struct vb_cm_conn *vb_cm_take(struct vb_cm *cm, const struct vb_cm_addr *addr);
void vb_cm_release(struct vb_cm *cm, struct vb_cm_conn *conn);
/* Like vb_cm_find, but finds orphans too. */
struct vb_cm_conn *vb_cm_lookup(struct vb_cm *cm, uint32_t local_comm_id);
void vb_cm_index_id(struct vb_cm *cm, struct vb_cm_conn *conn);
void vb_cm_index_qp(struct vb_cm *cm, struct vb_cm_conn *conn);
void vb_cm_unindex(struct vb_cm *cm, struct vb_cm_conn *conn);
void vb_cm_unindex_qp(struct vb_cm *cm, struct vb_cm_conn *conn);
/* The peer's connection with this id and transaction id. If there is none, a connection with this id that is not in
 * timewait. */
struct vb_cm_conn *vb_cm_by_id(struct vb_cm *cm, const struct vb_cm_addr *from, bool sidr, uint64_t guid, uint32_t id,
                               uint64_t tid);
struct vb_cm_conn *vb_cm_by_qp(struct vb_cm *cm, const struct vb_cm_addr *from, uint64_t guid, uint32_t qpn);

/* timer.c */
void vb_cm_set_deadline(struct vb_cm *cm, struct vb_cm_conn *conn, uint64_t deadline);

/* state.c: the last steps of transitions. After emitting an event a function must not use the connection any more. */
void vb_cm_emit(struct vb_cm *cm, struct vb_cm_conn *conn, enum vb_cm_event_kind kind, const struct vb_cm_msg *msg);
void vb_cm_to_idle(struct vb_cm *cm, struct vb_cm_conn *conn);
void vb_cm_to_timewait(struct vb_cm *cm, struct vb_cm_conn *conn, uint64_t now);
void vb_cm_to_dreq_sent(struct vb_cm *cm, struct vb_cm_conn *conn, const void *private_data, size_t len, uint64_t now);
/* Starts the timer of a state that repeats its message, with all retries. */
void vb_cm_start_timer(struct vb_cm *cm, struct vb_cm_conn *conn, uint64_t now);

/* message.c. keep stores the message that the state repeats. */
void vb_cm_keep(struct vb_cm_conn *conn, const struct vb_cm_msg *msg);
void vb_cm_repeat(struct vb_cm *cm, struct vb_cm_conn *conn);
bool vb_cm_kept(const struct vb_cm_conn *conn, enum vb_cm_attr attr);
void vb_cm_keep_mra(struct vb_cm_conn *conn, uint8_t service_timeout, const void *private_data, size_t len);
void vb_cm_keep_rtu(struct vb_cm_conn *conn, const void *private_data, size_t len);
void vb_cm_keep_dreq(struct vb_cm_conn *conn, const void *private_data, size_t len);
void vb_cm_keep_drep(struct vb_cm_conn *conn, const void *private_data, size_t len);
void vb_cm_keep_rej(struct vb_cm_conn *conn, uint16_t reason, const void *ari, size_t ari_len, const void *private_data,
                    size_t len);
/* Sends a REJ with the reason "timeout". */
void vb_cm_send_timeout(struct vb_cm *cm, struct vb_cm_conn *conn);

/* sidr.c */
void vb_cm_input_sidr_req(struct vb_cm *cm, const struct vb_cm_addr *from, const struct vb_cm_msg *msg);
void vb_cm_input_sidr_rep(struct vb_cm *cm, const struct vb_cm_addr *from, const struct vb_cm_msg *msg);
void vb_cm_sidr_refuse(struct vb_cm *cm, struct vb_cm_conn *conn);

/* answer.c */
void vb_cm_rej_msg(struct vb_cm_msg *rej, const struct vb_cm_msg *msg, uint16_t reason);
void vb_cm_sidr_rep_msg(struct vb_cm_msg *rep, const struct vb_cm_msg *msg, uint8_t status);
bool vb_cm_unknown_msg(struct vb_cm_msg *out, const struct vb_cm_msg *msg);

/* Do source and destination match the connection's? */
static inline bool vb_cm_same_addr(const struct vb_cm_conn *conn, const struct vb_cm_addr *from)
{
	return !memcmp(conn->addr.local, from->local, VB_GID_LEN) &&
	       !memcmp(conn->addr.remote, from->remote, VB_GID_LEN);
}

static inline uint64_t vb_cm_time_at_most(uint8_t code, uint8_t most)
{
	return vb_cm_time(code < most ? code : most);
}

static inline void vb_cm_send_msg(struct vb_cm *cm, const struct vb_cm_addr *to, const struct vb_cm_msg *msg)
{
	uint8_t mad[VB_MAD_LEN];

	vb_cm_encode(mad, msg);
	cm->ops->send(cm->own, to, mad);
}

#endif
