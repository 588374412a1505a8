// fault.c - fault injection in the FPDUs of a stream: holds them, inverts bits, resets the connection
// see: docs/faults.md
// SPDX-License-Identifier: MIT
#include <errno.h>
#include <sys/socket.h>

#include "core/device.h"
#include "fault/set.h"
#include "fault/timer.h"
#include "frame/mpa.h"
#include "path/iwarp/path.h"

/* The RDMAP control field follows MPA's length and DDP's control field; a marker may come first. */
static enum vb_fault_kind kind_of_fpdu(const struct vb_iwarp_path *w, const struct iovec *first)
{
	size_t at = w->q.cfg.markers_out ? SIZE_MAX : VB_MPA_LENGTH_LEN + 1;

	return at < first->iov_len ? vb_fault_kind_of_rdmap(((const uint8_t *)first->iov_base)[at] & 15)
	                           : VB_FAULT_KIND_COUNT;
}

static void cut_connection(struct vb_iwarp_path *w)
{
	(void)connect(w->fd, &(struct sockaddr){.sa_family = AF_UNSPEC}, sizeof(struct sockaddr));
	w->lost = w->status = ECONNRESET;
}

#define MARKER_LEN 4u

/* Inverts a bit of the part that lies in our own memory: the header, and the payload if it was copied. The FPDU's length is
 * left alone: if it grew, the peer would wait for the rest, and would see no wrong CRC. */
static void flip_in_fpdu(struct vb_iwarp_path *w, const struct iovec *iov, int n, const struct vb_fault_verdict *v)
{
	const struct vb_iw_fpdu *f = &w->q.out.fpdus[w->q.out.head % VB_IW_FPDUS];
	size_t own = f->head < iov[0].iov_len ? f->head : iov[0].iov_len;
	size_t from = VB_MPA_LENGTH_LEN + (w->q.cfg.markers_out ? MARKER_LEN : 0);
	uint8_t *bytes = iov[0].iov_base;

	if (own <= from)
		return;
	bytes[from + (v->random >> 3) % (own - from)] ^= (uint8_t)(1 << (v->random & 7));
	if (v->icrc_right && w->q.cfg.crc && n == 1 && f->head == iov[0].iov_len)
		vb_mpa_seal(bytes, f->head);
}

static void hold_stream(struct vb_iwarp_path *w, uint64_t ns)
{
	w->fault_until = vb_now() + ns;
	vb_fault_wake(w->fault_until);
}

/* Judges an FPDU of which nothing was sent. Returns whether it may be sent now. */
static bool judge_fpdu(struct vb_iwarp_path *w, const struct iovec *iov, int n)
{
	struct vb_qp *qp = w->qp;
	size_t len = 0;

	for (int i = 0; i < n; i++)
		len += iov[i].iov_len;
	const struct vb_fault_subject s = {
	        .path = VB_FAULT_IWARP,
	        .dir = VB_FAULT_TX,
	        .kind = (uint8_t)kind_of_fpdu(w, iov),
	        .opcode = -1,
	        .qpn = qp->qp.qp_num,
	        .peer = w->peer,
	        .device = VB_CONTEXT_OF(qp)->dev->dev.name,
	        .len = (uint32_t)len,
	};
	struct vb_fault_verdict v;

	vb_fault_ask_wire(&s, &v);
	w->fault_judged = !v.drop; /* the port is down: the FPDU waits, and is judged again */
	w->fault_head = w->q.out.head;
	if (v.cut)
		cut_connection(w);
	else if (v.corrupt)
		flip_in_fpdu(w, iov, n, &v);
	if (v.delay)
		hold_stream(w, v.delay);
	return !v.cut && !v.delay;
}

int vb_iwarp_fault_output(struct vb_iwarp_path *w, struct iovec *iov, int max)
{
	if (w->fault_until && vb_now() < w->fault_until)
		return 0;
	w->fault_until = 0;
	int n = vb_iw_output(&w->q, iov, max, 1); /* one FPDU */

	if (n <= 0 || w->q.out.sent || (w->fault_judged && w->fault_head == w->q.out.head))
		return n;
	return judge_fpdu(w, iov, n) ? n : 0;
}

void vb_iwarp_arm(struct vb_node *node)
{
	vb_lock(&node->progress);
	for (struct vb_iwarp_path *w = node->io->iwarp->paths; w; w = w->next) {
		vb_lock(&w->qp->sq_lock);
		w->faulty = vb_fault_is_armed(VB_FAULT_ARM_IWARP);
		if (!w->faulty && w->fault_until) /* continues at once */
			w->fault_until = 1;
		vb_unlock(&w->qp->sq_lock);
	}
	vb_unlock(&node->progress);
}
