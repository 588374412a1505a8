// send.c - lays packets with their ICRC into messages
// follows: IBA annex A17 (RoCEv2)
// SPDX-License-Identifier: MIT
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "path/roce/message.h"

#define FRAME_MAX (VB_LINK_FRONT_MAX + VB_ROCE_PACKET_MAX + VB_ICRC_LEN + VB_VCRC_LEN)
#define FULL (VB_TX_STAGE - FRAME_MAX)
#define HOLD_TRIES \
	10000u /* so often a program that ends looks whether a sender is free: another thread may be sending */

struct vb_tx *vb_tx_new(struct vb_roce_sockets *s)
{
	struct vb_tx *tx = calloc(1, sizeof(*tx));

	if (!tx)
		return NULL;
	tx->sockets = s;
	vb_lock_init(&tx->lock, VB_RANK_TX);
	tx->fd[0] = tx->fd[1] = -1;
	tx->hops[0] = tx->hops[1] = -1;
	vb_tx_arm(tx, vb_fault_is_armed(VB_FAULT_ARM_ROCE_TX));
	return tx;
}

void vb_tx_free(struct vb_tx *tx)
{
	if (!tx)
		return;
	for (int i = 0; i < 2; i++)
		if (tx->fd[i] >= 0)
			close(tx->fd[i]);
	vb_udp_slots_free(tx->slots);
	vb_roce_fault_free(tx->fault);
	vb_roce_fault_free(tx->disarmed);
	free(tx);
}

__attribute__((hot)) struct vb_tx *vb_tx_of(struct vb_roce_sockets *s, uint32_t qpn, uint32_t dest_qpn)
{
	/* The destination's lane counts most, so that a flow has packets for one program only, which the kernel may
	 * merge. */
	return s->tx[(VB_QP_LANE(dest_qpn) * 5 + VB_QP_INDEX(qpn) + VB_QP_INDEX(dest_qpn)) % VB_TX_COUNT];
}

uint32_t vb_tx_burst(uint32_t len)
{
	uint32_t n = VB_TX_SEND_MAX / (len + VB_ICRC_LEN);

	return n < VB_TX_SEGMENTS ? n : VB_TX_SEGMENTS;
}

bool vb_tx_waits(const struct vb_tx *tx)
{
	return atomic_load_explicit(&tx->waits, memory_order_relaxed);
}

bool vb_tx_push(struct vb_tx *tx)
{
	if (!vb_tx_waits(tx))
		return true;
	if (!vb_trylock(&tx->lock))
		return false;
	bool all = !tx->n || vb_tx_flush(tx);

	vb_unlock(&tx->lock);
	return all;
}

bool vb_tx_is_held(struct vb_tx *tx)
{
	for (unsigned i = 0; i < HOLD_TRIES; i++) {
		if (vb_trylock(&tx->lock)) {
			vb_unlock(&tx->lock);
			return false;
		}
		sched_yield();
	}
	return true;
}

__attribute__((hot)) bool vb_tx_begin(struct vb_tx *tx, const struct vb_qp *qp)
{
	if (!atomic_load_explicit(&tx->sockets->up, memory_order_acquire))
		return false;
	vb_lock(&tx->lock);
	if (tx->n && !vb_tx_flush(tx)) {
		VB_COUNT(tx_waits, 1);
		vb_unlock(&tx->lock);
		return false;
	}
	tx->qp = qp;
	tx->qpn = qp ? qp->qp.qp_num : 0;
	return true;
}

/* Returns true if the stage must be sent before another packet is added. */
static bool must_go(const struct vb_tx *tx)
{
	return tx->full >= VB_TX_FULL_SENDS || tx->used > FULL || tx->n == VB_TX_MESSAGES;
}

/* May the kernel gather a send from more than the stage? */
static bool may_gather(const struct vb_tx *tx)
{
	return !tx->fault && !tx->no_gso && !tx->sockets->framed;
}

bool vb_tx_in_place(const struct vb_tx *tx)
{
	return may_gather(tx) && !vb_tx_has_slots(tx);
}

/* Where the BTH of the next packet is. */
static uint8_t *next_packet(struct vb_tx *tx, const struct vb_roce_addr *to)
{
	return tx->stage + tx->used + vb_link_front_len(to->link);
}

__attribute__((hot)) uint8_t *vb_tx_room(struct vb_tx *tx, const struct vb_roce_addr *to)
{
	if (__builtin_expect(must_go(tx), 0) && !vb_tx_flush(tx))
		return NULL;
	return next_packet(tx, to);
}

/* From the first byte of a packet of len bytes (BTH to payload) to its last: what the stage holds of it. */
__attribute__((hot)) uint32_t vb_tx_apart(const struct vb_roce_addr *to, size_t len)
{
	size_t front = vb_link_front_len(to->link);

	return (uint32_t)(front + len + VB_ICRC_LEN + (front ? VB_VCRC_LEN : 0));
}

static __attribute__((hot)) bool same_addr(const struct vb_roce_addr *a, const struct vb_roce_addr *b)
{
	uint64_t x[6], y[6];

	_Static_assert(sizeof(*a) == sizeof(x), "six words");
	memcpy(x, a, sizeof(x));
	memcpy(y, b, sizeof(y));
	return !((x[0] ^ y[0]) | (x[1] ^ y[1]) | (x[2] ^ y[2]) | (x[3] ^ y[3]) | (x[4] ^ y[4]) | (x[5] ^ y[5]));
}

/* Returns the message to which a packet of this size may be added, or NULL. request: see is_request. Others do not join
 * what is in a slot, because it could not be sent from there then. */
static __attribute__((hot)) struct vb_tx_message *message_to_join(struct vb_tx *tx, const struct vb_roce_addr *to,
                                                                  uint32_t size, bool request)
{
	struct vb_tx_message *m = tx->n > tx->sent ? &tx->msg[tx->n - 1] : NULL;

	if (!m || m->closed || size > m->seg || m->n == VB_TX_SEGMENTS || m->len + size > VB_TX_SEND_MAX ||
	    !same_addr(&m->to, to) || (m->slot && !request))
		return NULL;
	return m;
}

/* Adds the ICRC to a packet whose payload has a known sum. */
static void seal_summed(struct vb_tx *tx, struct vb_tx_message *m, uint8_t *packet, const struct vb_tx_laid *laid)
{
	size_t header_len = (size_t)(laid->at - packet), len = header_len + laid->len;

	if (laid->from) {
		tx->gap[tx->gaps++] = (struct vb_tx_gap){(uint32_t)(laid->at - tx->stage) + laid->from_at,
		                                         laid->from_len, laid->from};
		m->gaps++;
	}
	if (!tx->known || tx->known->len != len + VB_ICRC_LEN)
		tx->known = vb_icrc_known(&tx->icrc, &tx->flow, len + VB_ICRC_LEN);
	vb_icrc_encode(packet + len, vb_icrc_summed(tx->known, m->n, packet, header_len, laid->sum, laid->len));
}

/* Adds what an InfiniBand link has around a packet with its ICRC. */
static void add_frame(const struct vb_tx *tx, const struct vb_roce_addr *to, uint8_t *packet, size_t len)
{
	const struct vb_ip_fields ip = {
	        .traffic_class = to->traffic_class, .hop_limit = to->hop_limit, .flow_label = to->flow_label};
	uint8_t *front = packet - vb_link_front_len(to->link);

	vb_link_front(front, &tx->flow, &ip, len);
	vb_vcrc_encode(front, (size_t)(packet - front) + len);
}

/* Adds the ICRC to the next packet of m, and what an InfiniBand link has around it. The kernel numbers the
 * identifications of a send's segments from 0; links have none. */
static __attribute__((hot)) void seal_laid(struct vb_tx *tx, struct vb_tx_message *m, uint8_t *packet, uint32_t len,
                                           const struct vb_tx_laid *laid)
{
	if (laid && laid->at && laid->at + laid->len == packet + len)
		seal_summed(tx, m, packet, laid);
	else
		vb_tx_seal(tx, packet, &tx->flow, m->n, len);
	if (m->to.link != VB_LINK_UDP)
		add_frame(tx, &m->to, packet, len + VB_ICRC_LEN);
}

/* Is it a send or write of a reliable connection, for the first time? If it is repeated, the acknowledgement may be for
 * the first one, while this one waits in the receiver's socket. With fault injection packets of other queue pairs come
 * between. */
static __attribute__((hot)) bool is_request(const struct vb_tx *tx, uint8_t opcode)
{
	const struct vb_opcode_info *info = vb_opcode_info(opcode);

	return info && info->flags & VB_REQUEST && !(info->flags & VB_ANSWERED) && info->service == VB_SVC_RC &&
	       !tx->fault && tx->qp && tx->qp->roce && !tx->qp->roce->q.again;
}

/* Adds the packet at stage + used to the last message, or to a new one. */
static __attribute__((hot)) void append_packet(struct vb_tx *tx, const struct vb_roce_addr *to, uint32_t len,
                                               const struct vb_tx_laid *laid)
{
	uint8_t *packet = next_packet(tx, to);
	uint32_t size = vb_tx_apart(to, len);
	bool request = is_request(tx, packet[0]);
	struct vb_tx_message *m = message_to_join(tx, to, size, request);

	if (!m) {
		m = &tx->msg[tx->n++];
		*m = (struct vb_tx_message){
		        .at = tx->used, .seg = (uint16_t)size, .gap = (uint16_t)tx->gaps, .requests = true, .to = *to};
		vb_tx_flow(tx, to, &tx->flow);
		tx->known = NULL;
	}
	seal_laid(tx, m, packet, len, laid);
	m->requests = m->requests && request;
	m->closed = size < m->seg;
	m->n++;
	m->len += size;
	tx->used += size;
	tx->full += m->n == VB_TX_SEGMENTS || m->len + size > VB_TX_SEND_MAX;
}

static bool open_for(struct vb_tx *tx, const struct vb_roce_addr *to)
{
	bool v6 = !vb_gid_is_ipv4(to->dst);

	return tx->sockets->framed || tx->fd[v6] >= 0 || vb_tx_open_socket(tx, v6, to->src);
}

/* --- faults (fault.c) --- */

static bool has_room_for_fault(const struct vb_tx *tx)
{
	return tx->used <= FULL && tx->n < VB_TX_MESSAGES;
}

/* Adds held packets whose time has come. */
static void add_released(struct vb_tx *tx)
{
	uint8_t packet[VB_ROCE_PACKET_MAX];
	struct vb_roce_held held;

	while (has_room_for_fault(tx) && vb_roce_fault_release(tx->fault, packet, &held)) {
		uint8_t *at = next_packet(tx, &held.to);

		memcpy(at, packet, held.len);
		append_packet(tx, &held.to, held.len, NULL);
		if (held.corrupt)
			vb_roce_fault_flip(at, held.len, held.random);
	}
}

static void add_faulty(struct vb_tx *tx, const struct vb_roce_addr *to, size_t len)
{
	uint8_t *at = next_packet(tx, to);
	struct vb_fault_verdict v;

	vb_roce_fault_tx(tx->qp, to, at, len, &v);
	if (v.corrupt && v.icrc_right)
		vb_roce_fault_flip_payload(at, len, v.random);
	if (!v.drop && !vb_roce_fault_hold(tx->fault, at, len, to, &v)) {
		append_packet(tx, to, (uint32_t)len, NULL);
		if (v.duplicate && has_room_for_fault(tx)) {
			memcpy(next_packet(tx, to), at, len);
			append_packet(tx, to, (uint32_t)len, NULL);
		}
		if (v.corrupt && !v.icrc_right)
			vb_roce_fault_flip(at, len, v.random);
	}
	add_released(tx);
}

void vb_tx_arm(struct vb_tx *tx, bool on)
{
	struct vb_roce_fault *spare = on && !tx->fault && !tx->disarmed ? vb_roce_fault_new() : NULL;

	vb_lock(&tx->lock);
	if (on && !tx->fault) {
		tx->fault = tx->disarmed ? tx->disarmed : spare;
		tx->disarmed = NULL;
	} else if (!on && tx->fault && !vb_roce_fault_due(tx->fault)) { /* packets that are held go first */
		tx->disarmed = tx->fault;
		tx->fault = NULL;
	}
	vb_unlock(&tx->lock);
}

uint64_t vb_tx_serve_faults(struct vb_tx *tx)
{
	uint64_t at = 0;

	if (!atomic_load_explicit(&tx->sockets->up, memory_order_acquire))
		return 0;
	if (!vb_trylock(&tx->lock))
		return vb_now() + VB_TX_AGAIN;
	bool all = !tx->n || vb_tx_flush(tx);

	tx->qpn = 0;
	if (all && tx->fault) {
		add_released(tx);
		at = vb_roce_fault_due(tx->fault);
		all = !tx->n || vb_tx_flush(tx);
	}
	vb_unlock(&tx->lock);
	return all ? at : vb_now() + VB_TX_AGAIN;
}

__attribute__((hot)) void vb_tx_add(struct vb_tx *tx, const struct vb_roce_addr *to, size_t header_len, size_t len,
                                    const struct vb_tx_laid *laid)
{
	if (__builtin_expect(!open_for(tx, to), 0)) {
		VB_COUNT(tx_refused, 1);
		return;
	}
	if (__builtin_expect(tx->fault != NULL, 0))
		add_faulty(tx, to, len);
	else
		append_packet(tx, to, (uint32_t)len, laid);
}

/* If the only waiting message can take the packet, they share one send. Otherwise the packet becomes a message of its
 * own, which is sent first. */
__attribute__((hot)) void vb_tx_add_ahead(struct vb_tx *tx, const struct vb_roce_addr *to, size_t len)
{
	unsigned waits = tx->n - tx->sent;
	bool alone = !tx->fault && waits && tx->n < VB_TX_MESSAGES &&
	             (waits > 1 || tx->sockets->framed || !message_to_join(tx, to, (uint32_t)len + VB_ICRC_LEN, false));

	if (alone)
		tx->msg[tx->n - 1].closed = true;
	vb_tx_add(tx, to, len, len, NULL);
	if (!alone || tx->n - tx->sent != waits + 1)
		return;
	struct vb_tx_message m = tx->msg[tx->n - 1];

	memmove(&tx->msg[tx->sent + 1], &tx->msg[tx->sent], waits * sizeof(m));
	tx->msg[tx->sent] = m;
	tx->msg[tx->n - 1].closed = true; /* the next packet is not contiguous with this message */
}

uint32_t vb_tx_more(const struct vb_tx *tx, const struct vb_roce_addr *to, size_t len)
{
	uint32_t size = vb_tx_apart(to, len), n;
	const struct vb_tx_message *m = tx->n > tx->sent ? &tx->msg[tx->n - 1] : NULL;

	if (!m || m->closed || m->seg != size || tx->fault || !same_addr(&m->to, to))
		return 0;
	if (must_go(tx))
		return 0;
	n = (VB_TX_SEND_MAX - m->len) / size;
	n = n < VB_TX_SEGMENTS - m->n ? n : VB_TX_SEGMENTS - m->n;
	n = n < (VB_TX_STAGE - tx->used) / size ? n : (uint32_t)(VB_TX_STAGE - tx->used) / size;
	return n < VB_TX_MORE ? n : VB_TX_MORE;
}

uint8_t *vb_tx_past(struct vb_tx *tx, uint32_t left)
{
	struct vb_tx_message *m = &tx->msg[tx->n - 1];
	uint32_t more = VB_TX_SEGMENTS - m->n;

	if (more > left)
		more = left;
	if (!m->asked && m->requests && m->at % 4 == 0 && m->seg % 4 == 0 &&
	    m->len + more * m->seg >= VB_UDP_SLOT_MIN && may_gather(tx) && vb_tx_has_slots(tx))
		vb_tx_take_slot(tx, m);
	return m->slot ? vb_tx_in_slot(m, tx->used) : NULL;
}

void vb_tx_add_more(struct vb_tx *tx, uint32_t n, size_t len, const struct vb_tx_laid *laid)
{
	struct vb_tx_message *m = &tx->msg[tx->n - 1];
	uint8_t *packet = next_packet(tx, &m->to);

	m->requests = m->requests && is_request(tx, packet[0]);
	for (uint32_t i = 0; i < n; i++, m->n++, packet += m->seg)
		seal_laid(tx, m, packet, (uint32_t)len, laid + i);
	tx->used += n * m->seg;
	m->len += n * m->seg;
	tx->full += m->n == VB_TX_SEGMENTS || m->len + m->seg > VB_TX_SEND_MAX;
}

__attribute__((hot)) bool vb_tx_end(struct vb_tx *tx)
{
	bool all = !tx->n || vb_tx_flush(tx);

	if (!all)
		VB_COUNT(tx_waits, 1);
	tx->qp = NULL; /* packets that wait may be sent after it has ended */
	vb_unlock(&tx->lock);
	return all;
}
