// segment.c - TSO requests of raw packet queue pairs: a payload, cut into TCP segments
// follows: ibv_post_send(3), IBV_WR_TSO; ibv_query_device_ex(3), tso_caps
// SPDX-License-Identifier: MIT
#include <errno.h>
#include <sys/socket.h>

#include "core/buffer.h"
#include "core/sq.h"
#include "frame/tso.h"
#include "path/raw/raw.h"

/* The frames of one system call, which lie in the stage. */
struct segments {
	struct mmsghdr msg[VB_RAW_BATCH];
	struct iovec iov[VB_RAW_BATCH];
	uint32_t payload[VB_RAW_BATCH];
	unsigned n;
};

struct cut {
	struct vb_tso tso;
	const uint8_t *head;
	struct iovec from[VB_MAX_SGE + 1];
	int pieces;
	uint32_t mss, total;
};

/* Builds the next frames, from this byte of the payload on. A request without payload is one frame. False: the payload is
 * not mapped. */
static bool build_segments(struct segments *s, const struct cut *c, uint8_t *stage, uint32_t at)
{
	uint8_t *frame = stage;

	s->n = 0;
	do {
		uint32_t n = c->total - at < c->mss ? c->total - at : c->mss;

		if (frame - stage + c->tso.len + n > VB_RAW_STAGE)
			break;
		if (!vb_copy_from(c->from, c->pieces, at, frame + c->tso.len, n))
			return false;
		vb_tso_head(&c->tso, c->head, frame, at / c->mss, at, n, at + n == c->total);
		s->iov[s->n] = (struct iovec){frame, c->tso.len + n};
		s->msg[s->n] = (struct mmsghdr){.msg_hdr = {.msg_iov = &s->iov[s->n], .msg_iovlen = 1}};
		s->payload[s->n++] = n;
		frame += c->tso.len + n;
		at += n;
	} while (at < c->total && s->n < VB_RAW_BATCH);
	return true;
}

/* Returns how many were sent, or a negative errno value. */
static int send_built(const struct vb_raw_path *path, struct segments *s)
{
	int sent;

	if (atomic_load(&path->cut))
		return (int)s->n;
	do
		sent = sendmmsg(path->fd, s->msg, s->n, MSG_DONTWAIT);
	while (sent < 0 && errno == EINTR);
	return sent < 0 ? -errno : sent;
}

/* Leaves those that the rate limit lets leave now. Returns false if it lets none, and sets rate.due. */
static bool within_limit(struct vb_qp *qp, struct segments *s)
{
	struct vb_rate r = qp->rate;
	uint64_t now = vb_now();
	unsigned n = 0;

	for (; n < s->n && !vb_rate_ready(&r, s->iov[n].iov_len, now); n++)
		vb_rate_take(&r, s->iov[n].iov_len);
	s->n = n;
	qp->rate.due = n ? 0 : vb_rate_ready(&qp->rate, s->iov[0].iov_len, now);
	return n;
}

static int begin_cut(struct vb_qp *qp, struct vb_swqe *w, struct cut *c)
{
	c->head = vb_sq_tso(qp, w);
	c->mss = w->rkey;
	c->total = w->length;
	if (c->total > VB_MAX_TSO)
		return E2BIG;
	if (!vb_tso_parse(&c->tso, c->head, w->imm))
		return ENOMSG;
	if (c->tso.len + c->mss > VB_RAW_FRAME_MAX ||
	    (c->tso.v4 && c->tso.len - c->tso.ip_at + c->mss > UINT16_MAX)) /* its total length */
		return EMSGSIZE;
	c->pieces = vb_gather(qp, w, 0, c->from);
	return c->pieces < 0 ? EFAULT : 0;
}

int vb_raw_send_segments(struct vb_qp *qp, struct vb_swqe *w)
{
	struct vb_raw_path *path = qp->raw;
	bool limited = qp->rate.kbps;
	struct segments s;
	struct cut c;
	int err = begin_cut(qp, w, &c);

	qp->rate.due = 0;
	if (err)
		return err;
	do {
		if (!build_segments(&s, &c, path->stage, path->segmented))
			return EFAULT;
		if (limited && !within_limit(qp, &s))
			return EAGAIN;
		int sent = send_built(path, &s);

		if (sent < 0)
			return -sent;
		for (int i = 0; i < sent; i++) {
			if (limited) {
				(void)vb_rate_ready(&qp->rate, s.iov[i].iov_len, vb_now());
				vb_rate_take(&qp->rate, s.iov[i].iov_len);
			}
			path->segmented += s.payload[i];
			path->sent_frames++;
			path->sent_bytes += s.iov[i].iov_len;
		}
	} while (path->segmented < c.total);
	return 0;
}
