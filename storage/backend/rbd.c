// rbd.c - a namespace in an image of a Ceph pool
// follows: docs/ceph.md; the interface of librbd in Ceph 16
// SPDX-License-Identifier: MIT
#include "backend/rbd.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

/* With that many late bytes, requests are held back, so that a cluster that is gone does not take the whole pool. */
#define LATE_MAX (4u << 20)
#define SILENT_MS 2000 /* a gateway without a lease whose requests get no answer for so long is cut off */
#define LOOK_MS 200    /* … which it checks so often */

/* A request at librbd. */
struct nb_flight {
	struct nb_post post;
	struct nb_rbd *rbd;
	struct nb_request *r; /* NULL: it was answered with NB_LATE */
	struct nb_flight *next, **back;
	uint64_t due, length, mismatch;
	ssize_t result;
	bool writes, again;
	struct nb_late late;
};

static uint64_t coarse_ms(void)
{
	struct timespec t;

	clock_gettime(CLOCK_MONOTONIC_COARSE, &t);
	return (uint64_t)t.tv_sec * 1000 + (uint64_t)t.tv_nsec / 1000000;
}

/* ---- flights ---- */

/* Keeps the order of deadlines: who waited for his turn has an earlier one than some who went before him. */
static void join_flying(struct nb_flights *l, struct nb_flight *f)
{
	struct nb_flight **at = l->end;

	while (at != &l->first) {
		uint8_t *next = (uint8_t *)at;
		const struct nb_flight *before = (void *)(next - offsetof(struct nb_flight, next));

		if (before->due <= f->due)
			break;
		at = before->back;
	}
	f->back = at;
	f->next = *at;
	*at = f;
	if (f->next)
		f->next->back = &f->next;
	else
		l->end = &f->next;
}

static struct nb_flight *take_flight(struct nb_rbd *d, struct nb_request *r, uint64_t due)
{
	struct nb_flight *f = d->spare;

	if (f)
		d->spare = f->next;
	else if (!(f = malloc(sizeof(*f))))
		return NULL;
	*f = (struct nb_flight){.rbd = d, .r = r, .due = due, .length = r->length, .writes = r->op != NB_READ};
	if (!d->flying.first)
		d->heard = coarse_ms();
	join_flying(&d->flying, f);
	d->outstanding++;
	d->writing += f->writes;
	return f;
}

static void leave_flying(struct nb_flight *f)
{
	*f->back = f->next;
	if (f->next)
		f->next->back = f->back;
	else
		f->rbd->flying.end = f->back;
}

static void spare_flight(struct nb_flight *f)
{
	struct nb_rbd *d = f->rbd;

	f->next = d->spare;
	d->spare = f;
	d->outstanding--;
	d->writing -= f->writes;
	if (d->draining && !d->writing) {
		d->draining = false;
		nb_rbd_gateway_drained(d->gateway);
	}
}

/* ---- the end of a request ---- */

static int error_of(const struct nb_rbd *d, const struct nb_flight *f, enum nb_op op)
{
	if (f->result >= 0)
		return op == NB_READ && (uint64_t)f->result != f->length ? EIO : 0; /* the image has shrunk */
	/* another client holds the exclusive lock, and keeps it */
	if (f->result == -EROFS && !d->b.readonly)
		return NB_LATE;
	return (int)-f->result;
}

static void start_waiting(struct nb_rbd *d);

static void shut_out(struct nb_rbd *d)
{
	if (d->b.fenced)
		return;
	d->b.fenced = true;
	nb_rbd_shut_out(d);
	nb_rbd_changes_end(d);
	nb_rbd_unfit_end(d);
	if (d->b.changed)
		d->b.changed(&d->b, NB_SHUT_OUT);
	if (d->gateway && !d->ended && !d->closing)
		nb_rbd_return(d);
}

static void show_access(struct nb_rbd *d)
{
	enum nb_access access = d->silent ? NB_AWAY : d->role;
	bool changed = access != d->b.access;

	d->b.access = access;
	if (changed && !d->b.fenced && d->b.changed)
		d->b.changed(&d->b, NB_MOVED);
}

void nb_rbd_access(struct nb_rbd *d, enum nb_access access, bool drain, bool out)
{
	if (d->ended)
		return;
	d->role = access;
	d->draining = drain && d->writing;
	if (drain && !d->writing)
		nb_rbd_gateway_drained(d->gateway);
	show_access(d);
	if (access != NB_HERE)
		nb_rbd_unfit_again(d);
	if (out)
		shut_out(d);
}

/* Until then requests have their deadlines, also those that were at librbd when another connection took over. */
static void end_image(struct nb_rbd *d)
{
	d->ended = true;
	nb_ring_unclock(d->ring, &d->clock);
	nb_rbd_close_image(d);
}

static void flight_ended(struct nb_post *p)
{
	struct nb_flight *f = (struct nb_flight *)(void *)p;
	struct nb_rbd *d = f->rbd;
	struct nb_request *r = f->r;
	int error = r ? error_of(d, f, r->op) : 0;
	uint64_t due = f->due;
	bool unfit = nb_rbd_is_full(error), fits = f->again && r && !error;

	d->heard = coarse_ms();
	d->b.answers += !unfit;
	if (f->result == -NB_FENCED)
		shut_out(d);
	if (r) {
		leave_flying(f);
	} else {
		d->late_bytes -= f->length;
		if (f->late.free)
			f->late.free(&f->late);
		nb_rbd_late_ended(d);
	}
	spare_flight(f);
	if (unfit && !d->b.fenced && !d->silent && !d->closing)
		nb_rbd_unfit(d, r, due, d->heard);
	else if (r)
		r->done(r, unfit ? NB_FENCED : error);
	if (fits)
		nb_rbd_fits(d);
	start_waiting(d);
	if (d->closing && !d->outstanding) {
		d->closing = false;
		end_image(d);
	}
}

/* Called by a thread of librbd. */
static void librbd_done(rbd_completion_t c, void *arg)
{
	struct nb_flight *f = arg;

	f->result = f->rbd->lib->rbd_aio_get_return_value(c);
	f->rbd->lib->rbd_aio_release(c);
	nb_ring_post(f->rbd->ring, &f->post);
}

/* ---- submission ---- */

static int call_librbd(struct nb_flight *f, rbd_completion_t c)
{
	const struct nb_rbd_library *lib = f->rbd->lib;
	rbd_image_t image = f->rbd->image;
	struct nb_request *r = f->r;

	switch (r->op) {
	case NB_READ:
		return lib->rbd_aio_read(image, r->offset, r->length, r->data, c);
	case NB_WRITE:
		return lib->rbd_aio_write(image, r->offset, r->length, r->data, c);
	case NB_COMPARE_WRITE:
		return (int)lib->rbd_aio_compare_and_write(image, r->offset, r->length, r->data, r->other, c,
		                                           &f->mismatch, 0);
	case NB_ZERO:
		return lib->rbd_aio_write_zeroes(image, r->offset, r->length, c,
		                                 r->may_punch ? 0 : RBD_WRITE_ZEROES_FLAG_THICK_PROVISION, 0);
	default: /* NB_DISCARD: librbd's own discard would leave the ends of the range as they are */
		return lib->rbd_aio_write_zeroes(image, r->offset, r->length, c, 0, 0);
	}
}

/* The host repeats a write that it still wants. One that arrives late, after its host has sent it elsewhere, is not
 * executed, whoever is the owner then. */
static bool belongs_elsewhere(struct nb_rbd *d, const struct nb_request *r)
{
	if (!d->gateway)
		return false;
	/* without a lease: the others may have completed a reservation that forbids the read */
	if (r->op == NB_READ)
		return d->b.reservations->count && !nb_rbd_gateway_in_lease(d->gateway);
	if (d->b.access == NB_HERE && nb_rbd_gateway_current(d->gateway))
		return false;
	nb_rbd_gateway_want(d->gateway);
	return true;
}

void nb_rbd_start(struct nb_rbd *d, struct nb_request *r, uint64_t due, bool again)
{
	rbd_completion_t c;

	if (belongs_elsewhere(d, r)) {
		r->done(r, NB_ELSEWHERE);
		return;
	}
	if (!again && nb_rbd_unfit_before(d, r, due))
		return;
	struct nb_flight *f = take_flight(d, r, due);

	if (!f) {
		r->done(r, ENOMEM);
		return;
	}
	f->post.run = flight_ended;
	f->again = again;
	int error = -d->lib->rbd_aio_create_completion(f, librbd_done, &c);

	if (!error && (error = -call_librbd(f, c)))
		d->lib->rbd_aio_release(c);
	if (!error)
		return;
	leave_flying(f);
	spare_flight(f);
	r->done(r, error);
}

static void start_waiting(struct nb_rbd *d)
{
	while (d->waiting && (d->late_bytes < LATE_MAX || d->b.fenced)) {
		struct nb_request *r = d->waiting;

		d->waiting = r->next;
		if (d->b.fenced)
			r->done(r, NB_FENCED);
		else
			nb_rbd_start(d, r, r->moved, false);
	}
}

static void image_submit(struct nb_backend *b, struct nb_request *r)
{
	struct nb_rbd *d = (struct nb_rbd *)b;
	uint64_t now = coarse_ms(), due = (r->since ? r->since : now) + b->wait_ms;
	struct nb_request **at = &d->waiting;

	if (r->op == NB_FLUSH || b->fenced || d->silent) { /* what is written is durable when librbd answers */
		r->done(r, r->op == NB_FLUSH ? 0 : NB_FENCED);
		return;
	}
	if (r->op == NB_RESERVE) {
		nb_rbd_change(d, r, due);
		return;
	}
	if (due <= now) {
		b->late++;
		r->done(r, NB_LATE);
		return;
	}
	if (!d->waiting && d->late_bytes < LATE_MAX) {
		nb_rbd_start(d, r, due, false);
		return;
	}
	while (*at && (*at)->moved <= due) /* in the order of their deadlines, too */
		at = &(*at)->next;
	r->moved = due;
	r->next = *at;
	*at = r;
}

/* ---- deadlines ---- */

/* The host is told to try again. librbd still has the request, and executes it before any later one to the same object.
 * So if the host sends it again, also by another target, nothing lands out of order: that target needs the exclusive
 * lock, and gets it after the request has ended, or after this client was blocklisted. */
static void answer_late(struct nb_flight *f)
{
	struct nb_rbd *d = f->rbd;
	struct nb_request *r = f->r;

	leave_flying(f);
	f->r = NULL;
	if (!d->late_bytes && !d->silent && d->b.changed)
		d->b.changed(&d->b, NB_SLOW);
	if (r->op == NB_ZERO || r->op == NB_DISCARD) /* no memory, and up to the whole image */
		f->length = NB_ALIGN;
	d->late_bytes += f->length;
	d->b.late++;
	r->late = &f->late;
	r->done(r, NB_LATE);
}

/* Nothing of the cluster reaches this gateway, neither answers to requests nor the state. Another one may go on, so hosts
 * are sent there, and not kept waiting. */
static bool is_cut_off(const struct nb_rbd *d, uint64_t now)
{
	return d->gateway && !d->b.fenced && d->flying.first && now >= d->heard + SILENT_MS &&
	       !nb_rbd_gateway_in_lease(d->gateway);
}

/* Returns when to look again. */
static uint64_t look_for_cluster(struct nb_rbd *d, uint64_t now)
{
	bool silent = d->silent ? !nb_rbd_gateway_in_lease(d->gateway) : is_cut_off(d, now);

	if (silent != d->silent) {
		d->silent = silent;
		show_access(d);
	}
	while (silent && d->flying.first)
		answer_late(d->flying.first);
	if (silent)
		nb_rbd_unfit_end(d);
	while (silent && d->waiting) {
		struct nb_request *r = d->waiting;

		d->waiting = r->next;
		r->done(r, NB_FENCED);
	}
	return silent || (d->gateway && d->flying.first) ? now + LOOK_MS : UINT64_MAX;
}

static uint64_t image_turn(struct nb_clock *c, uint64_t now)
{
	struct nb_rbd *d = (struct nb_rbd *)(void *)((uint8_t *)c - offsetof(struct nb_rbd, clock));
	uint64_t look = look_for_cluster(d, now);

	while (d->flying.first && d->flying.first->due <= now)
		answer_late(d->flying.first);
	while (d->waiting && d->waiting->moved <= now) {
		struct nb_request *r = d->waiting;

		d->waiting = r->next;
		d->b.late++;
		r->done(r, NB_LATE);
	}
	uint64_t due = nb_rbd_unfit_turn(d, now), change = nb_rbd_changes_turn(d, now);

	due = d->flying.first && d->flying.first->due < due ? d->flying.first->due : due;
	due = change < due ? change : due;
	due = look < due ? look : due;
	return d->waiting && d->waiting->moved < due ? d->waiting->moved : due;
}

/* ---- the size ---- */

/* Called by a thread of librbd when the image's header has changed. */
static void header_changed(void *arg)
{
	struct nb_rbd *d = arg;
	uint64_t size;

	if (d->lib->rbd_get_size(d->image, &size))
		return;
	__atomic_store_n(&d->seen_size, size, __ATOMIC_RELEASE);
	if (!__atomic_exchange_n(&d->resized, true, __ATOMIC_ACQ_REL))
		nb_ring_post(d->ring, &d->resize);
}

/* A configured size that is larger than the image counts no more. */
static uint64_t size_to_serve(const struct nb_rbd *d)
{
	uint64_t has = __atomic_load_n(&d->seen_size, __ATOMIC_ACQUIRE),
	         size = d->fixed && d->fixed < has ? d->fixed : has;

	return (size < NB_SIZE_MAX ? size : NB_SIZE_MAX) / d->b.block * d->b.block;
}

static void take_size(struct nb_post *p)
{
	struct nb_rbd *d = (struct nb_rbd *)(void *)((uint8_t *)p - offsetof(struct nb_rbd, resize));

	__atomic_store_n(&d->resized, false, __ATOMIC_RELEASE);
	uint64_t size = size_to_serve(d);

	if (size == d->b.size)
		return;
	d->b.size = size;
	if (d->b.changed)
		d->b.changed(&d->b, NB_RESIZED);
}

static int image_resize(struct nb_backend *b, uint64_t size)
{
	struct nb_rbd *d = (struct nb_rbd *)b;

	if (size > __atomic_load_n(&d->seen_size, __ATOMIC_ACQUIRE))
		return EFBIG;
	d->fixed = size / b->block * b->block;
	b->size = size_to_serve(d);
	if (d->gateway) {
		char serves[NB_SERVES];

		d->config.size = size;
		nb_rbd_serves(&d->config, size, serves);
		nb_rbd_gateway_serves(d->gateway, serves);
	}
	return 0;
}

/* ---- open and close ---- */

static void free_rbd(struct nb_rbd *d)
{
	while (d->spare) {
		struct nb_flight *f = d->spare;

		d->spare = f->next;
		free(f);
	}
	nb_rbd_free_config(&d->config);
	free(d->b.identity);
	free(d);
}

static void image_closed(struct nb_post *p)
{
	struct nb_rbd *d = (struct nb_rbd *)(void *)((uint8_t *)p - offsetof(struct nb_rbd, closed));

	nb_rbd_closed(d);
	nb_ring_let_go(d->ring);
	free_rbd(d);
}

/* Nobody was told of a change between the opening and the watch. librbd asks the cluster only if there was one. A size
 * that the watch has seen since is newer. */
static void see_size_again(struct nb_rbd *d)
{
	uint64_t seen = __atomic_load_n(&d->seen_size, __ATOMIC_ACQUIRE), size;

	if (!d->lib->rbd_get_size(d->image, &size))
		__atomic_compare_exchange_n(&d->seen_size, &seen, size, false, __ATOMIC_ACQ_REL, __ATOMIC_ACQUIRE);
}

static int watch_header(struct nb_rbd *d)
{
	if (d->b.readonly) /* librbd does not watch what it cannot change */
		return 0;
	if (d->lib->rbd_update_watch(d->image, &d->watch, header_changed, d))
		return EIO;
	d->watching = true;
	see_size_again(d);
	return 0;
}

int nb_rbd_set_up(struct nb_rbd *d, const struct nb_config *config, char *why, bool *opened)
{
	int error;

	*opened = false;
	if (!config->path || !(d->lib = nb_rbd_load(why)))
		return config->path ? ENODEV : EINVAL;
	if ((error = nb_rbd_open_image(d, config, why)))
		return error;
	*opened = true;
	error = watch_header(d);
	if (!error && !size_to_serve(d))
		error = ENODATA;
	else if (!error && d->fixed > __atomic_load_n(&d->seen_size, __ATOMIC_ACQUIRE))
		error = EFBIG;
	return error;
}

struct nb_rbd *nb_rbd_new(const struct nb_config *config, struct nb_ring *ring)
{
	struct nb_rbd *d = calloc(1, sizeof(*d));

	if (!d || (config->gateway && !nb_rbd_copy_config(&d->config, config))) {
		free(d);
		return NULL;
	}
	d->ring = ring;
	d->b.wait_ms = config->wait_ms ? config->wait_ms : NB_WAIT_MS;
	d->fixed = config->size;
	d->flying.end = &d->flying.first;
	d->clock.turn = image_turn;
	d->resize.run = take_size;
	d->closed.run = image_closed;
	d->b.kind = &nb_rbd;
	d->b.block = config->block ? config->block : 512;
	d->b.zeros_after_discard = true;
	/* the cluster executes a client's requests to an object in order; rbd_full.c keeps it for those that wait */
	d->b.ordered = true;
	return d;
}

void nb_rbd_abandon(struct nb_rbd *d, bool opened)
{
	if (!opened) {
		free_rbd(d);
		return;
	}
	d->ended = true;
	nb_ring_hold(d->ring);
	nb_rbd_close_image(d); /* it frees d */
}

int nb_rbd_begin(struct nb_rbd *d)
{
	int error = 0;

	d->b.size = size_to_serve(d); /* not before, because take_size may have come */
	if (d->gateway) {
		d->role = d->b.access;
		nb_rbd_gateway_show(d->gateway, &d->b);
		error = nb_rbd_gateway_start(d->gateway, d);
	}
	if (!error)
		nb_ring_clock(d->ring, &d->clock);
	return error;
}

static int image_open(const struct nb_config *config, struct nb_ring *ring, struct nb_backend **out)
{
	char own[NB_WHY] = "";
	bool opened;
	struct nb_rbd *d = nb_rbd_new(config, ring);

	if (!d)
		return ENOMEM;
	int error = nb_rbd_set_up(d, config, config->why ? config->why : own, &opened);

	if (!error)
		error = nb_rbd_begin(d);
	if (error) {
		nb_rbd_abandon(d, opened);
		return error;
	}
	*out = &d->b;
	return 0;
}

/* Requests at librbd still use the image, and late ones their memory: it is closed after them. What waits outside librbd,
 * for space or for the gateway, is not executed. */
static void image_close(struct nb_backend *b)
{
	struct nb_rbd *d = (struct nb_rbd *)b;

	nb_ring_hold(d->ring);
	nb_rbd_return_forget(d);
	if (d->gateway)
		nb_rbd_gateway_ends(d->gateway);
	b->changed = NULL;
	d->closing = d->outstanding;
	nb_rbd_changes_end(d);
	nb_rbd_unfit_end(d);
	if (!d->closing)
		end_image(d);
}

const struct nb_kind nb_rbd = {"rbd",           image_open,      image_submit,      image_resize,       image_close,
                               nb_rbd_reserved, nb_rbd_announce, nb_rbd_open_later, nb_rbd_threads_left};
