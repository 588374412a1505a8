// rs_flow.c - flow control of a stream
// follows: rdma-core docs/rsocket ("Data Streaming", "Message Format")
// SPDX-License-Identifier: MIT
#include "rsocket/rs_flow.h"

static uint32_t min32(uint32_t a, uint32_t b)
{
	return a < b ? a : b;
}

__attribute__((hot)) int rs_ring_take(struct rs_ring *r, uint32_t n, struct rs_span out[2])
{
	uint32_t first = min32(n, r->size - r->head);

	out[0] = (struct rs_span){r->head, first};
	out[1] = (struct rs_span){0, n - first};
	r->head = first < n ? n - first : r->head + n;
	if (r->head == r->size)
		r->head = 0;
	r->used += n;
	return first < n ? 2 : 1;
}

__attribute__((hot)) uint32_t rs_ring_pad(struct rs_ring *r)
{
	uint32_t n = -r->head % RS_RING_LINE;

	if (n > r->size - r->used || n > r->size - r->head)
		return 0;
	r->head += n;
	r->used += n;
	if (r->head == r->size)
		r->head = 0;
	return n;
}

__attribute__((hot)) void rs_ring_give(struct rs_ring *r, uint32_t n)
{
	r->used -= n;
}

void rs_rx_init(struct rs_rx *rx, uint32_t size, uint16_t credits, uint32_t *lengths)
{
	*rx = (struct rs_rx){.size = size,
	                     .granted = size / 2, /* in the connection data */
	                     .freed = size / 2,
	                     .next = size / 2,
	                     .lengths = lengths,
	                     .slots = credits,
	                     .credits = credits,
	                     .tell_at = credits / 2};
}

__attribute__((hot)) bool rs_rx_data(struct rs_rx *rx, uint32_t n)
{
	if (n > rx->granted || rx->count == rx->slots)
		return false;
	if (!n) { /* carries no data, but uses a credit */
		rx->read_no++;
		return true;
	}
	rx->lengths[(rx->head + rx->count++) % rx->slots] = n;
	rx->granted -= n;
	rx->unread += n;
	return true;
}

__attribute__((hot)) struct rs_span rs_rx_peek(const struct rs_rx *rx, uint32_t skip, uint32_t max)
{
	struct rs_span s = {rx->read_at + skip, 0};

	if (s.offset >= rx->size)
		s.offset -= rx->size;
	s.length = min32(min32(rx->unread - skip, max), rx->size - s.offset);
	return s;
}

__attribute__((hot)) void rs_rx_read(struct rs_rx *rx, uint32_t n)
{
	rx->unread -= n;
	rx->freed += n;
	rx->read_at += n;
	if (rx->read_at >= rx->size)
		rx->read_at -= rx->size;
	while (n) {
		uint32_t *first = &rx->lengths[rx->head];
		uint32_t part = min32(*first, n);

		*first -= part;
		n -= part;
		if (*first)
			break;
		rx->head = (rx->head + 1) % rx->slots;
		rx->count--;
		rx->read_no++;
	}
}

__attribute__((hot)) bool rs_rx_has_half(const struct rs_rx *rx)
{
	return rx->freed >= rx->size / 2;
}

__attribute__((hot)) bool rs_rx_owes(const struct rs_rx *rx)
{
	return rs_rx_has_half(rx) || (int16_t)(uint16_t)(rx->read_no - rx->tell_at) >= 0;
}

__attribute__((hot)) uint16_t rs_rx_grant(struct rs_rx *rx, struct rs_span *half)
{
	if (rs_rx_has_half(rx)) {
		*half = (struct rs_span){rx->next, rx->size / 2};
		rx->freed -= half->length;
		rx->granted += half->length;
		rx->next = rx->next ? 0 : half->length;
	}
	rx->tell_at = (uint16_t)(rx->read_no + rx->credits / 2);
	return (uint16_t)(rx->read_no + rx->credits);
}

/* Frees the next entry of the SGL. The peer writes it again only when all data for it has arrived. */
static void leave_entry(struct rs_tx *tx)
{
	__atomic_store_n((uint32_t *)(tx->sgl + tx->sgl_next * RS_SGE_LEN + 12), 0, __ATOMIC_RELEASE);
	tx->sgl_next = (tx->sgl_next + 1) % RS_SGL_ENTRIES;
}

__attribute__((hot)) bool rs_tx_room(struct rs_tx *tx)
{
	if (tx->to.length)
		return true;
	tx->to = rs_sge_load(tx->sgl + tx->sgl_next * RS_SGE_LEN);
	if (!tx->to.length)
		return false;
	leave_entry(tx);
	return true;
}

void rs_tx_join(struct rs_tx *tx)
{
	struct rs_sge next = rs_sge_load(tx->sgl + tx->sgl_next * RS_SGE_LEN);

	if (!next.length || next.key != tx->to.key || next.addr != tx->to.addr + tx->to.length ||
	    next.length > UINT32_MAX - tx->to.length)
		return;
	tx->to.length += next.length;
	leave_entry(tx);
}

__attribute__((hot)) bool rs_tx_may_send(struct rs_tx *tx)
{
	return tx->sq >= tx->cost && tx->ring.size - tx->ring.used >= RS_SEND_LOW && tx->seq != tx->limit &&
	       rs_tx_room(tx);
}

__attribute__((hot)) struct rs_sge rs_tx_take(struct rs_tx *tx, uint32_t n)
{
	struct rs_sge at = {.addr = tx->to.addr, .key = tx->to.key, .length = n};

	tx->to.addr += n;
	tx->to.length -= n;
	tx->seq++;
	tx->sq -= tx->cost;
	return at;
}

__attribute__((hot)) bool rs_tx_may_control(const struct rs_tx *tx, unsigned n)
{
	return tx->ctrl + n <= RS_CTRL_WINDOW;
}

__attribute__((hot)) bool rs_tx_idle(const struct rs_tx *tx)
{
	return tx->sq == tx->sq_max && !tx->ctrl;
}
