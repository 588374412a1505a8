// rs_ep.c - a stream's queue pair, its registered memory, and its work requests
// follows: rdma-core docs/rsocket ("Connection Establishment", "Message Format"); IBA volume 1, 10.7
// SPDX-License-Identifier: MIT
#include "rsocket/rs.h"

#include <endian.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

enum { MSG_LEN = 4 };

static uint32_t clamp_u32(uint32_t v, uint32_t min, uint32_t max)
{
	return v < min ? min : v > max ? max : v;
}

bool rs_is_iwarp(struct ibv_context *verbs)
{
	return verbs->device->transport_type == IBV_TRANSPORT_IWARP;
}

/* Allocates whole pages: with ibv_fork_init a child does not get registered pages. */
void *rs_pages(size_t len)
{
	size_t page = (size_t)sysconf(_SC_PAGESIZE);
	void *p;

	len = (len + page - 1) / page * page;
	if (posix_memalign(&p, page, len))
		return NULL;
	return memset(p, 0, len);
}

static int make_cq(struct rsocket *rs)
{
	struct ibv_device_attr attr;
	uint32_t max = RS_QP_MAX;

	if (!ibv_query_device(rs->id->verbs, &attr)) {
		max = clamp_u32((uint32_t)attr.max_qp_wr, RS_QP_MIN, RS_QP_MAX);
		if (attr.max_cqe > 2 * RS_QP_MIN && (uint32_t)attr.max_cqe / 2 < max)
			max = (uint32_t)attr.max_cqe / 2;
	}
	rs->config.sq = clamp_u32(rs->config.sq, RS_QP_MIN, max);
	rs->config.rq = clamp_u32(rs->config.rq, RS_QP_MIN, max);
	rs->channel = ibv_create_comp_channel(rs->id->verbs);
	if (!rs->channel)
		return errno;
	rs->cq = ibv_create_cq(rs->id->verbs, (int)(rs->config.sq + rs->config.rq), rs, rs->channel, 0);
	return rs->cq ? 0 : errno;
}

static int make_qp(struct rsocket *rs)
{
	struct ibv_qp_init_attr attr = {.qp_context = rs,
	                                .send_cq = rs->cq,
	                                .recv_cq = rs->cq,
	                                .qp_type = IBV_QPT_RC,
	                                .sq_sig_all = 1,
	                                .cap = {.max_send_wr = rs->config.sq,
	                                        .max_recv_wr = rs->config.rq,
	                                        .max_send_sge = 2,
	                                        .max_recv_sge = 1,
	                                        .max_inline_data = rs->config.inline_size}};

	rs->message_sends = rs_is_iwarp(rs->id->verbs);
	if (rs->message_sends && attr.cap.max_inline_data < MSG_LEN)
		attr.cap.max_inline_data = MSG_LEN;
	if (rdma_create_qp(rs->id, NULL, &attr))
		return errno;
	rs->qp = rs->id->qp;
	rs->inline_max = attr.cap.max_inline_data < RS_INLINE_MAX ? attr.cap.max_inline_data : RS_INLINE_MAX;
	rs->config.inline_size = attr.cap.max_inline_data;
	return rs->message_sends && rs->inline_max < MSG_LEN ? ENOTSUP : 0;
}

/* The place of the next control message. Behind the send ring there is one for each control message in flight. Behind
 * the receive buffer there is room for messages that arrive as sends. */
static uint8_t *control_place(struct rsocket *rs)
{
	return rs->send_buf + rs->config.send_size + RS_SGE_LEN * (rs->ctrl_slot++ % RS_CTRL_WINDOW);
}

static struct ibv_mr *make_region(struct rsocket *rs, uint8_t **buf, size_t len, int access)
{
	*buf = rs_pages(len);
	return *buf ? ibv_reg_mr(rs->qp->pd, *buf, len, access) : NULL;
}

/*
 * Maps the receive buffer from a file whose descriptor stays open. An adapter that moves data within one host can then
 * map it in the other process and copy, instead of a system call for each write.
 */
static void *map_receive(struct rsocket *rs, size_t len)
{
	void *p = MAP_FAILED;
	int fd = memfd_create("rsocket", MFD_CLOEXEC);

	if (fd < 0)
		return NULL;
	if (!ftruncate(fd, (off_t)len))
		p = mmap(NULL, len, PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0);
	if (p == MAP_FAILED) {
		close(fd);
		return NULL;
	}
	rs->recv_map = len;
	rs->recv_fd = fd;
	return p;
}

static struct ibv_mr *make_receive(struct rsocket *rs, size_t len)
{
	const int access = IBV_ACCESS_LOCAL_WRITE | IBV_ACCESS_REMOTE_WRITE;

	rs->recv_buf = map_receive(rs, len);
	return rs->recv_buf ? ibv_reg_mr(rs->qp->pd, rs->recv_buf, len, access)
	                    : make_region(rs, &rs->recv_buf, len, access);
}

static void free_receive(struct rsocket *rs)
{
	if (rs->recv_mr)
		ibv_dereg_mr(rs->recv_mr);
	if (rs->recv_map) {
		munmap(rs->recv_buf, rs->recv_map);
		close(rs->recv_fd);
	} else {
		free(rs->recv_buf);
	}
	rs->recv_mr = NULL;
	rs->recv_buf = NULL;
	rs->recv_map = 0;
}

static int make_buffers(struct rsocket *rs)
{
	const int remote = IBV_ACCESS_LOCAL_WRITE | IBV_ACCESS_REMOTE_WRITE;
	size_t target = RS_SGL_ENTRIES * RS_SGE_LEN + rs->config.iomap_size * RS_IOMAP_LEN;
	size_t messages = rs->message_sends ? rs->config.rq * MSG_LEN : 0;
	uint32_t *lengths = calloc(rs->config.rq, sizeof(*lengths));

	rs_rx_init(&rs->rx, rs->config.recv_size, (uint16_t)rs->config.rq, lengths);
	rs->send_mr = make_region(rs, &rs->send_buf, rs->config.send_size + RS_SGE_LEN * RS_CTRL_WINDOW,
	                          IBV_ACCESS_LOCAL_WRITE);
	rs->target_mr = make_region(rs, &rs->target, target, remote);
	rs->recv_mr = make_receive(rs, rs->config.recv_size + messages);
	if (!lengths || !rs->send_mr || !rs->target_mr || !rs->recv_mr)
		return errno ? errno : ENOMEM;
	rs->tx = (struct rs_tx){.ring.size = rs->config.send_size,
	                        .sgl = rs->target,
	                        .sq = rs->config.sq - RS_CTRL_WINDOW,
	                        .sq_max = rs->config.sq - RS_CTRL_WINDOW,
	                        .cost = rs->message_sends ? 2 : 1};
	return 0;
}

int rs_ep_create(struct rsocket *rs)
{
	int err = make_cq(rs);

	if (!err)
		err = make_qp(rs);
	if (!err)
		err = make_buffers(rs);
	for (uint32_t i = 0; !err && i < rs->config.rq; i++)
		err = rs_post_receive(rs);
	return err;
}

static void free_region(struct ibv_mr **mr, uint8_t **buf)
{
	if (*mr)
		ibv_dereg_mr(*mr);
	free(*buf);
	*mr = NULL;
	*buf = NULL;
}

void rs_ep_destroy(struct rsocket *rs)
{
	if (rs->qp)
		rdma_destroy_qp(rs->id);
	rs->qp = NULL;
	rs->unposted = 0;
	rs_iomap_free(rs);
	free_region(&rs->send_mr, &rs->send_buf);
	free_receive(rs);
	free_region(&rs->target_mr, &rs->target);
	if (rs->cq)
		ibv_destroy_cq(rs->cq);
	rs->cq = NULL;
	if (rs->channel)
		ibv_destroy_comp_channel(rs->channel);
	rs->channel = NULL;
	free(rs->rx.lengths);
	rs->rx = (struct rs_rx){0};
}

void rs_ep_conn(struct rsocket *rs, uint8_t out[RS_CONN_LEN])
{
	struct rs_conn c = {.big_endian = BYTE_ORDER == BIG_ENDIAN,
	                    .has_iomap = true,
	                    .credits = (uint16_t)rs->config.rq,
	                    .iomap_size = rs->config.iomap_size,
	                    .sgl = {(uintptr_t)rs->target, rs->target_mr->rkey, RS_SGL_ENTRIES},
	                    .buffer = {(uintptr_t)rs->recv_buf, rs->recv_mr->rkey, rs->config.recv_size / 2}};

	rs_conn_encode(out, &c);
}

void rs_ep_peer(struct rsocket *rs, const struct rs_conn *peer)
{
	rs->swap = peer->big_endian != (BYTE_ORDER == BIG_ENDIAN);
	rs->peer_sgl = peer->sgl;
	rs->peer_sgl_next = 1 % peer->sgl.length; /* the first entry came in the connection data */
	rs->peer_iomap = (struct rs_sge){.addr = peer->sgl.addr + (uint64_t)peer->sgl.length * RS_SGE_LEN,
	                                 .key = peer->sgl.key,
	                                 .length = peer->iomap_size};
	rs->tx.to = peer->buffer;
	rs->tx.sgl_next = 1;
	rs->tx.limit = peer->credits;
}

static __attribute__((hot)) int post_send(struct rsocket *rs, struct ibv_send_wr *wr)
{
	struct ibv_send_wr *bad;

	return ibv_post_send(rs->qp, wr, &bad);
}

int rs_post_write(struct rsocket *rs, struct ibv_sge *sges, int n, bool inl, struct rs_sge to, uint64_t wr_id)
{
	struct ibv_send_wr wr = {.wr_id = wr_id,
	                         .sg_list = sges,
	                         .num_sge = n,
	                         .opcode = IBV_WR_RDMA_WRITE,
	                         .send_flags = inl ? IBV_SEND_INLINE : 0,
	                         .wr.rdma = {.remote_addr = to.addr, .rkey = to.key}};

	return post_send(rs, &wr);
}

/* iWARP: sends the message as a send, in the byte order of this host. */
static int post_notice(struct rsocket *rs, uint32_t msg, uint64_t wr_id)
{
	struct ibv_sge sge = {.addr = (uintptr_t)&msg, .length = MSG_LEN};
	struct ibv_send_wr wr = {
	        .wr_id = wr_id, .sg_list = &sge, .num_sge = 1, .opcode = IBV_WR_SEND, .send_flags = IBV_SEND_INLINE};

	return post_send(rs, &wr);
}

__attribute__((hot)) int rs_post_write_message(struct rsocket *rs, struct ibv_sge *sges, int n, bool inl,
                                               struct rs_sge to, uint32_t msg, uint64_t wr_id)
{
	struct ibv_send_wr wr = {.wr_id = wr_id,
	                         .sg_list = sges,
	                         .num_sge = n,
	                         .opcode = IBV_WR_RDMA_WRITE_WITH_IMM,
	                         .send_flags = inl ? IBV_SEND_INLINE : 0,
	                         .imm_data = htobe32(msg),
	                         .wr.rdma = {.remote_addr = to.addr, .rkey = to.key}};
	bool control = wr_id >> 32 != RS_WR_DATA;
	int err;

	if (!rs->message_sends)
		return post_send(rs, &wr);
	err = rs_post_write(rs, sges, n, inl, to, wr_id);
	if (err)
		return err;
	return post_notice(rs, msg, control ? rs_wr_id(RS_WR_CTRL, 1) : rs_wr_id(RS_WR_NOTICE, 0));
}

/* RoCE: sends the message as a separate write of 0 bytes. */
int rs_post_write_then_message(struct rsocket *rs, struct ibv_sge *sges, int n, struct rs_sge to, uint32_t msg,
                               uint64_t wr_id)
{
	struct ibv_send_wr say = {
	        .wr_id = rs_wr_id(RS_WR_NOTICE, 0), .opcode = IBV_WR_RDMA_WRITE_WITH_IMM, .imm_data = htobe32(msg)};
	struct ibv_send_wr wr = {.wr_id = wr_id,
	                         .next = &say,
	                         .sg_list = sges,
	                         .num_sge = n,
	                         .opcode = IBV_WR_RDMA_WRITE,
	                         .wr.rdma = {.remote_addr = to.addr, .rkey = to.key}};

	return post_send(rs, &wr);
}

int rs_post_message(struct rsocket *rs, uint32_t msg, uint64_t wr_id)
{
	struct rs_sge nowhere = {0};

	if (rs->message_sends)
		return post_notice(rs, msg, wr_id);
	return rs_post_write_message(rs, NULL, 0, false, nowhere, msg, wr_id);
}

__attribute__((hot)) int rs_post_receive(struct rsocket *rs)
{
	struct ibv_sge sge = {0};
	struct ibv_recv_wr wr = {.wr_id = rs_wr_id(RS_WR_RECV, rs->msg_slot)}, *bad;

	if (rs->message_sends) {
		sge.addr = (uintptr_t)rs->recv_buf + rs->config.recv_size + rs->msg_slot * MSG_LEN;
		sge.length = MSG_LEN;
		sge.lkey = rs->recv_mr->lkey;
		wr.sg_list = &sge;
		wr.num_sge = 1;
		rs->msg_slot = (rs->msg_slot + 1) % rs->config.rq;
	}
	return ibv_post_recv(rs->qp, &wr, &bad);
}

/* Sends a credit message, and adds a half of the buffer to the peer's SGL if one is free. rs->lock is held. */
int rs_grant(struct rsocket *rs)
{
	bool has_half = rs_rx_has_half(&rs->rx);
	struct rs_span half = {0};
	uint32_t msg = rs_msg(RS_CREDIT, rs_rx_grant(&rs->rx, &half));
	struct rs_sge entry, at = rs->peer_sgl;
	uint8_t *place, inl[RS_SGE_LEN];
	struct ibv_sge sge = {.length = RS_SGE_LEN};
	bool is_inline = rs->inline_max >= RS_SGE_LEN;

	rs->tx.ctrl++;
	if (!has_half)
		return rs_post_message(rs, msg, rs_wr_id(RS_WR_CTRL, 1));
	rs->tx.ctrl += rs->message_sends;
	entry = (struct rs_sge){(uintptr_t)rs->recv_buf + half.offset, rs->recv_mr->rkey, half.length};
	place = is_inline ? inl : control_place(rs);
	rs_sge_store(place, &entry, rs->swap);
	sge.addr = (uintptr_t)place;
	sge.lkey = is_inline ? 0 : rs->send_mr->lkey;
	at.addr += (uint64_t)rs->peer_sgl_next * RS_SGE_LEN;
	rs->peer_sgl_next = (rs->peer_sgl_next + 1) % rs->peer_sgl.length;
	return rs_post_write_message(rs, &sge, 1, is_inline, at, msg, rs_wr_id(RS_WR_CTRL, 1));
}
