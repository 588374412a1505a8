// limited.c - sends the packets of a queue pair whose rate has a limit
// follows: ibv_modify_qp_rate_limit(3); IBA volume 1, 9.7.7.2 (requests), 9.7.5 (answers)
// see: core/rate.h
// SPDX-License-Identifier: MIT
#include "core/sq.h"
#include "path/roce/roce.h"

/* The longest packet of its requests. */
static uint32_t longest_packet(const struct vb_roce_path *path)
{
	return path->q.cfg.mtu + VB_RATE_HEADERS;
}

/* When may the next request send a packet? 0: now, or there is none. Requests that await their acknowledgement count, because
 * they may be repeated. */
static uint64_t turn_of_requests(struct vb_qp *qp, uint64_t now)
{
	struct vb_roce_path *path = qp->roce;

	if (!vb_roce_has_requests(&path->q, qp->sq_emit != qp->sq_head))
		return 0;
	return vb_rate_ready(&qp->rate, longest_packet(path), now);
}

static bool is_request(uint8_t opcode)
{
	return vb_opcode_info(opcode)->flags & VB_REQUEST;
}

static bool is_send(uint8_t opcode)
{
	return vb_opcode_info(opcode)->op == VB_OP_SEND && is_request(opcode);
}

/* Writes the next packet. If none can follow it soon, it asks for an acknowledgement: else the peer would send none, and the
 * packet would be repeated. */
static bool next_packet(struct vb_qp *qp, struct vb_roce_out *out, uint64_t now, bool answers)
{
	struct vb_roce_path *path = qp->roce;

	if (answers)
		return vb_roce_output_answer(&path->q, out, now);
	if (!vb_rate_has_room(&qp->rate, 2 * longest_packet(path), now))
		return vb_roce_output_single(&path->q, out, now);
	out->run.left = 0;
	return vb_roce_output(&path->q, out, now);
}

/* Adds the packets that may leave now. *turn: when the next request may, if it has to wait; else 0. Returns false if the
 * network takes no more. */
static bool add_packets(struct vb_qp *qp, uint64_t now, uint64_t *turn)
{
	struct vb_roce_path *path = qp->roce;
	struct vb_roce_out out;
	bool sends = true; /* all requests so far are sends: see emit_packets */

	for (;;) {
		out.packet = vb_tx_room(path->tx, &path->to);
		if (!out.packet)
			return false;
		path->laying = out.packet;
		path->laying_apart = UINT32_MAX;
		path->laid[0].at = NULL;
		*turn = turn_of_requests(qp, now);
		if (!next_packet(qp, &out, now, *turn))
			return true;
		size_t len = out.header_len + out.payload_len + out.pad;

		if (is_request(out.opcode))
			vb_rate_take(&qp->rate, len + VB_ICRC_LEN);
		if (out.opcode == VB_RC_ACK && sends)
			vb_tx_add_ahead(path->tx, &path->to, out.header_len);
		else
			vb_tx_add(path->tx, &path->to, out.header_len, len, path->laid);
		sends = sends && is_send(out.opcode);
	}
}

void vb_roce_emit_limited(struct vb_qp *qp, uint64_t now)
{
	struct vb_roce_path *path = qp->roce;
	uint64_t turn = 0;

	vb_roce_path_locked(path);
	if (!vb_tx_begin(path->tx, qp)) {
		vb_roce_set_due(qp, now + VB_TX_AGAIN);
		return;
	}
	bool all = add_packets(qp, now, &turn);

	all = vb_tx_end(path->tx) && all;
	if (qp->type == IBV_QPT_UC)
		vb_roce_sent(&path->q);
	if (turn)
		vb_roce_repeat_waits(&path->q, turn);
	uint64_t at = vb_roce_deadline(&path->q);

	if (turn && (!at || turn < at))
		at = turn;
	vb_roce_set_due(qp, all ? at : now + VB_TX_AGAIN);
}
