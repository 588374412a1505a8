// return.c - a disk that has fallen back to TCP returns to RDMA: attempts from time to time, and a change without repeats
// follows: verbena_nvme.h, "auto"
// SPDX-License-Identifier: MIT
#include <poll.h>
#include <string.h>

#include "client/client.h"

#define DRAIN_MS 1000   /* how long requests are held back until the outstanding ones are answered */
#define GOODBYE_MS 1000 /* for the shutdown of the old controller */

bool vn_return_due(const struct vn_disk *d)
{
	return d->url.scheme == VN_SCHEME_AUTO && d->transport == &vn_tcp && !d->who.tls.length &&
	       vn_now() >= d->rdma_at;
}

/* A target that does not answer must not delay the next keep alive for long. */
static uint64_t attempt_deadline(const struct vn_disk *d)
{
	uint32_t ms = d->options.rdma_ms, most = d->options.keep_alive_ms / 4;

	return vn_now() + (most && most < ms ? most : ms);
}

static unsigned progress_all(struct vn_disk *d)
{
	unsigned busy = 0;

	for (unsigned i = 0; i < d->now.n; i++) {
		struct vn_queue *q = d->now.io[i];

		q->transport->progress(q);
		if (q->error)
			vn_lost(d);
		busy += q->busy;
	}
	return busy;
}

/* Waits until no command is outstanding, with the disk's lock, and without it while sleeping. Meanwhile none is sent.
 * False: it takes too long, or the connection has broken. */
static bool drain_queues(struct vn_disk *d)
{
	uint64_t until = vn_now() + DRAIN_MS;

	d->draining = true;
	while (progress_all(d) && d->state == VN_UP && vn_now() < until && !d->stop) {
		if (d->done.first)
			vn_wake(d);
		pthread_mutex_unlock(&d->lock);
		poll(NULL, 0, 1);
		vn_lock(d);
	}
	d->draining = false;
	return d->state == VN_UP && !progress_all(d) && d->state == VN_UP;
}

/* Puts a in the place of the present association, which nobody uses any more. */
static void change_over(struct vn_disk *d, const struct vn_association *a, struct vn_association *old)
{
	for (unsigned i = 0; i < d->now.n; i++) {
		struct vn_queue *q = d->now.io[i];

		vn_queue_watch(q, -1);
		d->stats.bytes_copied += q->copied;
		d->stats.digest_errors += q->digest_errors;
		q->copied = q->digest_errors = 0;
	}
	*old = d->now;
	vn_install(d, a);
	vn_resize(d, a->info.size);
	d->rdma_pause = 0;
	d->stats.returns++;
}

bool vn_return(struct vn_disk *d)
{
	struct vn_association a, old;

	if (vn_associate_rdma(d, attempt_deadline(d), &a))
		return false;
	vn_lock(d);
	bool same = vn_is_same(d, &a), good = same && drain_queues(d);

	if (good)
		change_over(d, &a, &old);
	vn_issue(d);
	pthread_mutex_unlock(&d->lock);
	vn_wake(d);
	if (!good) {
		vn_rdma_again(d,
		              same ? "the change would have held requests up for too long" : "another disk is there");
		vn_dissolve(&a);
		return false;
	}
	if (!old.admin->error)
		vn_ctl_shutdown(old.admin, vn_now() + GOODBYE_MS);
	vn_dissolve(&old);
	return true;
}

void vn_way(struct vn_disk *d, char *text, size_t size)
{
	vn_lock(d);
	const struct vn_queue *q = d->now.admin;
	uint64_t now = vn_now(), in = d->rdma_at > now ? (d->rdma_at - now + 999) / 1000 : 0;

	if (!q)
		snprintf(text, size, "not connected");
	else if (q->transport != &vn_tcp)
		snprintf(text, size, "%s, %s", q->way, q->device);
	else if (d->who.tls.length)
		snprintf(text, size, "TCP, because there is a key for TLS");
	else if (d->url.scheme != VN_SCHEME_AUTO)
		snprintf(text, size, "TCP, because the address says so");
	else
		snprintf(text, size, "TCP, because RDMA failed: %s; next attempt in %llu s",
		         *d->rdma_why ? d->rdma_why : "built without it", (unsigned long long)in);
	pthread_mutex_unlock(&d->lock);
}
