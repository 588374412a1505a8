// rs_iomap.c - buffers of the program that the peer writes to directly
// follows: rsocket(7) (riomap, riounmap, riowrite); rdma-core docs/rsocket ("Iomapped Buffers")
// SPDX-License-Identifier: MIT
#include "rsocket/rs.h"

#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>

/* The lowest free entry of the peer's table; -1: none. */
static int free_index(struct rsocket *rs)
{
	for (uint32_t i = 0; i < rs->peer_iomap.length; i++) {
		struct rs_mapping *m = rs->maps;

		while (m && m->index != (int)i)
			m = m->next;
		if (!m)
			return (int)i;
	}
	return -1;
}

static int map_region(struct rsocket *rs, struct rs_mapping *m, void *buf, size_t len, int prot)
{
	int access = IBV_ACCESS_LOCAL_WRITE;

	if (!rs->qp || (prot != PROT_NONE && prot != PROT_WRITE) || !len || len > UINT32_MAX)
		return EINVAL;
	m->index = -1;
	if (prot & PROT_WRITE) {
		access |= IBV_ACCESS_REMOTE_WRITE;
		m->index = free_index(rs);
		if (m->index < 0)
			return ENOMEM;
	}
	m->mr = ibv_reg_mr(rs->qp->pd, buf, len, access);
	if (!m->mr)
		return errno;
	m->told = m->index < 0;
	rs->maps_pending += !m->told;
	return 0;
}

RS_EXPORT off_t riomap(int socket, void *buf, size_t len, int prot, int flags, off_t offset)
{
	struct rsocket *rs = rs_get(socket);
	struct rs_mapping *m, **end;
	int err;

	if (!rs)
		return -1;
	m = calloc(1, sizeof(*m));
	vb_mutex_lock(&rs->lock, VB_RANK_RS);
	err = m ? map_region(rs, m, buf, len, prot) : ENOMEM;
	if (!err) {
		if (offset == -1)
			offset = (off_t)(uintptr_t)buf;
		m->offset = (uint64_t)offset;
		for (end = &rs->maps; *end; end = &(*end)->next)
			;
		*end = m;
	}
	vb_mutex_unlock(&rs->lock);
	rs_put(rs);
	if (!err)
		return offset;
	free(m);
	return rs_fail(err);
}

static void unmap_region(struct rsocket *rs, struct rs_mapping **at)
{
	struct rs_mapping *m = *at;

	*at = m->next;
	rs->maps_pending -= !m->told;
	ibv_dereg_mr(m->mr);
	free(m);
}

RS_EXPORT int riounmap(int socket, void *buf, size_t len)
{
	struct rsocket *rs = rs_get(socket);
	struct rs_mapping **at;
	bool found;

	if (!rs)
		return -1;
	vb_mutex_lock(&rs->lock, VB_RANK_RS);
	for (at = &rs->maps; *at && ((*at)->mr->addr != buf || (*at)->mr->length != len); at = &(*at)->next)
		;
	found = *at;
	if (found)
		unmap_region(rs, at);
	vb_mutex_unlock(&rs->lock);
	rs_put(rs);
	return found ? 0 : rs_fail(EINVAL);
}

void rs_iomap_free(struct rsocket *rs)
{
	while (rs->maps)
		unmap_region(rs, &rs->maps);
}

static int wait_send_settled(struct rsocket *rs, int flags)
{
	struct rs_deadline until = rs_deadline_tv(&rs->send_timeout);
	int err = rs_wait_soft(rs, rs_send_settled, rs_nonblocking(rs, flags), &until, &rs->send_lock);

	if (!err && !rs_can_send(rs))
		err = rs_error_of(rs, rs->we_shut ? EPIPE : ECONNRESET);
	return err;
}

/* Tells the peer of one mapping. It takes a work request, but no credit: the peer does not queue it. */
static int send_mapping(struct rsocket *rs, struct rs_mapping *m)
{
	struct rs_iomap entry = {m->offset, {(uintptr_t)m->mr->addr, m->mr->rkey, (uint32_t)m->mr->length}};
	struct rs_sge at = rs->peer_iomap;
	uint8_t raw[RS_IOMAP_LEN];
	struct iovec iov = {raw, sizeof(raw)};
	struct rs_cursor c;
	struct rs_load l;
	uint32_t msg = rs_msg(RS_IOMAP, (uint32_t)m->index);

	rs_iomap_store(raw, &entry, rs->swap);
	at.addr += (uint64_t)m->index * RS_IOMAP_LEN;
	m->told = true;
	rs->maps_pending--;
	rs->tx.sq -= rs->tx.cost;
	rs_cursor_init(&c, &iov, 1);
	rs_load(rs, &l, &c, sizeof(raw));
	return rs_post_write_message(rs, l.sges, l.n, l.inl, at, msg, rs_wr_id(RS_WR_DATA, l.ring));
}

int rs_iomap_send(struct rsocket *rs, int flags)
{
	struct rs_mapping *m;
	int err = 0;

	while (!err && rs->maps_pending) {
		err = wait_send_settled(rs, flags);
		for (m = rs->maps; m && m->told; m = m->next)
			;
		if (!err && m)
			err = send_mapping(rs, m);
	}
	return err;
}

/* Finds the peer's buffer at this offset. The peer wrote the entry, so it is copied once and used only as a remote
 * address. */
static bool find_mapping(struct rsocket *rs, uint64_t offset, struct rs_iomap *out)
{
	const uint8_t *table = rs->target + RS_SGL_ENTRIES * RS_SGE_LEN;

	for (uint32_t i = 0; i < rs->config.iomap_size; i++) {
		*out = rs_iomap_load(table + i * RS_IOMAP_LEN);
		if (offset >= out->offset && offset - out->offset < out->sge.length)
			return true;
	}
	return false;
}

static int write_piece(struct rsocket *rs, struct rs_cursor *c, uint64_t offset, uint32_t *done)
{
	struct rs_iomap m;
	struct rs_load l;
	uint32_t n, room;
	int err;

	if (!find_mapping(rs, offset, &m))
		return ENXIO;
	n = rs_piece(rs, c->left);
	room = m.sge.length - (uint32_t)(offset - m.offset);
	*done = n = n < room ? n : room;
	m.sge.addr += offset - m.offset;
	rs->tx.sq--;
	rs_load(rs, &l, c, n);
	err = rs_post_write(rs, l.sges, l.n, l.inl, m.sge, rs_wr_id(RS_WR_DATA, l.ring));
	if (err)
		rs_break(rs, err);
	return err;
}

RS_EXPORT size_t riowrite(int socket, const void *buf, size_t count, off_t offset, int flags)
{
	struct rsocket *rs = rs_get(socket);
	struct iovec iov = {(void *)buf, count};
	uint32_t done;
	struct rs_cursor c;
	int err = 0;

	if (!rs)
		return (size_t)-1;
	rs_firm();
	rs_cursor_init(&c, &iov, 1);
	vb_mutex_lock(&rs->send_lock, VB_RANK_PROGRAM);
	vb_mutex_lock(&rs->lock, VB_RANK_RS);
	if (rs->type != SOCK_STREAM || !rs->qp || rs->state < RS_CONNECTED)
		err = ENOTCONN;
	if (!err && rs->maps_pending)
		err = rs_iomap_send(rs, flags);
	while (!err && c.left) {
		err = wait_send_settled(rs, flags);
		if (!err)
			err = write_piece(rs, &c, (uint64_t)offset, &done);
		if (!err)
			offset += done;
	}
	vb_mutex_unlock(&rs->lock);
	vb_mutex_unlock_program(&rs->send_lock);
	rs_put(rs);
	rs_soft();
	/* An unmapped offset is not an error in this interface: 0 bytes were written. */
	if (err == ENXIO)
		err = 0;
	return c.left < count || !err ? count - c.left : (size_t)rs_fail(err);
}
