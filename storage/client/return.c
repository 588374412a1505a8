// return.c - a disk that has fallen back to TCP returns to RDMA, one by iWARP to RoCE: attempts from time to time, and a
// change without repeats
// follows: verbena_nvme.h, "auto"
// SPDX-License-Identifier: MIT
#include <poll.h>
#include <string.h>

#include "client/client.h"

#define DRAIN_MS 1000   /* how long requests are held back until the outstanding ones are answered */
#define GOODBYE_MS 1000 /* for the shutdown of the old controller */

static bool is_by_iwarp(const struct vn_path *p)
{
	return p->transport != &vn_tcp && p->by_iwarp;
}

bool vn_return_due(const struct vn_path *p)
{
	enum vn_scheme scheme = p->disk->url.scheme;

	if (is_by_iwarp(p))
		return (scheme == VN_SCHEME_AUTO || scheme == VN_SCHEME_RDMA) && vn_now() >= p->roce_at;
	return scheme == VN_SCHEME_AUTO && p->transport == &vn_tcp && !p->disk->who.tls.length &&
	       vn_now() >= p->rdma_at;
}

/* A target that does not answer must not delay the next keep alive for long. */
static uint64_t attempt_deadline(const struct vn_path *p)
{
	uint32_t ms = p->disk->options.rdma_ms, most = p->disk->options.keep_alive_ms / 4;

	return vn_now() + (most && most < ms ? most : ms);
}

static unsigned progress_all(struct vn_path *p)
{
	unsigned busy = 0;

	for (unsigned i = 0; i < p->now.n; i++) {
		struct vn_queue *q = p->now.io[i];

		q->transport->progress(q);
		if (q->error)
			vn_lost(p);
		busy += q->busy;
	}
	return busy;
}

/* Waits until no command is outstanding, with the disk's lock, and without it while sleeping. Meanwhile none is sent.
 * False: it takes too long, or the connection has broken. */
static bool drain_queues(struct vn_path *p)
{
	uint64_t until = vn_now() + DRAIN_MS;

	p->disk->draining = true;
	while (progress_all(p) && p->up && vn_now() < until && !p->disk->stop) {
		if (p->disk->done.first)
			vn_wake(p->disk);
		pthread_mutex_unlock(&p->disk->lock);
		poll(NULL, 0, 1);
		vn_lock(p->disk);
	}
	p->disk->draining = false;
	return p->up && !progress_all(p) && p->up;
}

/* Puts a in the place of the present association, which nobody uses any more. */
static void change_over(struct vn_path *p, bool roce, const struct vn_association *a, struct vn_association *old)
{
	vn_retire(p);
	*old = p->now;
	vn_install(p, a);
	vn_resize(p->disk, a->info.size);
	p->rdma_pause = 0;
	if (roce) {
		p->by_iwarp = false;
		p->roce_pause = 0;
	}
	p->disk->stats.returns++;
}

static void mark_return(struct vn_path *p, bool returning)
{
	p->returning = returning;
	p->leave = p->disk->stop;
}

/* One after the other: the others' caretakers look at the queues of the one that tries. False: it is not its turn. */
static bool begin_return(struct vn_path *p)
{
	struct vn_disk *d = p->disk;
	bool turn = true;

	vn_lock(d);
	for (unsigned i = 0; i < d->n_paths; i++)
		turn &= !d->paths[i].returning;
	if (turn)
		mark_return(p, true);
	pthread_mutex_unlock(&d->lock);
	return turn;
}

bool vn_return(struct vn_path *p)
{
	struct vn_association a, old;

	if (!begin_return(p))
		return false;
	bool roce = is_by_iwarp(p);
	int e = (roce ? vn_associate_roce : vn_associate_rdma)(p, attempt_deadline(p), &a);

	vn_lock(p->disk);
	mark_return(p, false);
	if (e) {
		pthread_mutex_unlock(&p->disk->lock);
		return false;
	}
	const char *misfit = vn_misfit(p->disk, &a);
	bool good = !misfit && drain_queues(p);

	if (good)
		change_over(p, roce, &a, &old);
	vn_issue(p->disk);
	pthread_mutex_unlock(&p->disk->lock);
	vn_wake(p->disk);
	if (!good && roce)
		vn_roce_again(p);
	else if (!good)
		vn_rdma_again(p, misfit ? misfit : "the change would have held requests up for too long");
	if (!good) {
		vn_dissolve(&a);
		return false;
	}
	if (!old.admin->error)
		vn_ctl_shutdown(old.admin, vn_now() + GOODBYE_MS);
	vn_dissolve(&old);
	return true;
}
