// rs_table.c - maps descriptors to rsockets, counts references, and hides the parent's rsockets from a child of fork()
// follows: rsocket(7)
// SPDX-License-Identifier: MIT
#include "rsocket/rs.h"

#include <fcntl.h>
#include <stdatomic.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

/* A page of slots is allocated when a descriptor in it is first used, and never freed. */
enum { PAGE = 1024, PAGES = 1024 };
struct slot {
	struct vb_lock lock; /* guards rs, and the reference count of its object */
	struct rsocket *rs;
};
static struct slot *_Atomic pages[PAGES];
static atomic_uint next_serial;
unsigned rs_fork_generation;

static void unlock_page(struct slot *page)
{
	for (unsigned i = 0; page && i < PAGE; i++)
		vb_lock_init(&page[i].lock, VB_RANK_RS_TABLE);
}

static __attribute__((hot)) struct slot *slot_of(int fd, bool make)
{
	struct slot *page, *fresh;

	if (fd < 0 || fd >= PAGE * PAGES)
		return NULL;
	page = pages[fd / PAGE];
	if (!page && make) {
		fresh = calloc(PAGE, sizeof(*fresh));
		if (!fresh)
			return NULL;
		unlock_page(fresh);
		if (atomic_compare_exchange_strong(&pages[fd / PAGE], &page, fresh))
			page = fresh;
		else
			free(fresh);
	}
	return page ? page + fd % PAGE : NULL;
}

static void after_fork(void)
{
	rs_fork_generation++;
	rs_service_forked();
	rs_epoll_forked();
	/* Another thread of the parent may have held these. */
	for (unsigned i = 0; i < PAGES; i++)
		unlock_page(pages[i]);
}

static void set_up(void)
{
	pthread_atfork(NULL, NULL, after_fork);
	vb_lock_allow_favourites();
}

/* A thread holds this lock while it sleeps, and a signal handler may then make the same call: rs_lock_call notices
 * that. */
static void make_call_lock(pthread_mutex_t *lock)
{
	pthread_mutexattr_t attr;

	pthread_mutexattr_init(&attr);
	pthread_mutexattr_settype(&attr, PTHREAD_MUTEX_ERRORCHECK);
	pthread_mutex_init(lock, &attr);
	pthread_mutexattr_destroy(&attr);
}

__attribute__((hot)) bool rs_lock_call(pthread_mutex_t *lock)
{
	return !vb_mutex_lock(lock, VB_RANK_PROGRAM);
}

struct rsocket *rs_new(int type, int domain, const struct rs_config *config)
{
	static pthread_once_t once = PTHREAD_ONCE_INIT;
	struct rsocket *rs = calloc(1, sizeof(*rs));

	if (!rs)
		return NULL;
	pthread_once(&once, set_up);
	rs->type = type;
	rs->domain = domain;
	rs->fd = rs->keep_timer = -1;
	rs->serial = atomic_fetch_add(&next_serial, 1) + 1;
	rs->fork_generation = rs_fork_generation;
	rs->refs = 1;
	rs->config = *config;
	make_call_lock(&rs->send_lock);
	make_call_lock(&rs->recv_lock);
	pthread_mutex_init(&rs->cm_lock, NULL);
	pthread_mutex_init(&rs->lock, NULL);
	return rs;
}

int rs_publish(struct rsocket *rs, int fd)
{
	struct slot *s = slot_of(fd, true);

	if (!s)
		return EMFILE;
	rs->fd = fd;
	vb_lock(&s->lock);
	s->rs = rs; /* an rsocket that the parent left here has lost its descriptor */
	vb_unlock(&s->lock);
	return 0;
}

void rs_retract(struct rsocket *rs)
{
	struct slot *s = slot_of(rs->fd, false);

	if (!s)
		return;
	vb_lock(&s->lock);
	if (s->rs == rs)
		s->rs = NULL;
	vb_unlock(&s->lock);
}

static __attribute__((hot)) struct rsocket *look_up(int fd, uint32_t serial)
{
	struct slot *s = slot_of(fd, false);
	struct rsocket *rs;

	if (!s)
		return NULL;
	vb_lock(&s->lock);
	rs = s->rs;
	if (rs && serial && rs->serial != serial)
		rs = NULL;
	if (rs)
		rs->refs++;
	vb_unlock(&s->lock);
	return rs;
}

struct rsocket *rs_find(int fd)
{
	struct rsocket *rs = look_up(fd, 0);

	if (rs && rs->fork_generation != rs_fork_generation) {
		rs_put(rs);
		return NULL;
	}
	return rs;
}

struct rsocket *rs_get_serial(int fd, uint32_t serial)
{
	return look_up(fd, serial);
}

unsigned rs_list(struct rsocket **out, unsigned room)
{
	unsigned n = 0;

	for (int fd = 0; fd < PAGE * PAGES && n < room; fd++) {
		if (!pages[fd / PAGE]) {
			fd += PAGE - 1;
			continue;
		}
		out[n] = rs_find(fd);
		n += out[n] != NULL;
	}
	return n;
}

bool rs_foreign(int fd)
{
	struct rsocket *rs = look_up(fd, 0);

	if (!rs)
		return false;
	if (rs->fork_generation != rs_fork_generation) {
		rs_retract(rs);
		rs_put(rs);
		return true;
	}
	rs_put(rs);
	return false;
}

static void complain_of_fork(void)
{
	static const char text[] =
	        "verbena: an rsocket cannot be used after fork() by the child. With the preload library set "
	        "RDMAV_FORK_SAFE=1 on both sides: servers that accept, then fork, work that way\n";
	static atomic_flag said = ATOMIC_FLAG_INIT;

	if (!atomic_flag_test_and_set(&said))
		(void)!write(STDERR_FILENO, text, sizeof(text) - 1);
}

__attribute__((hot)) struct rsocket *rs_get(int fd)
{
	struct rsocket *rs = look_up(fd, 0);

	if (!rs) {
		errno = EBADF;
		return NULL;
	}
	if (rs->fork_generation == rs_fork_generation && !rs->lingering)
		return rs;
	errno = EBADF;
	if (rs->fork_generation != rs_fork_generation) {
		complain_of_fork();
		errno = ENOTSUP;
	}
	rs_put(rs);
	return NULL;
}

static void destroy_rsocket(struct rsocket *rs)
{
	if (rs->dgram)
		rs_dgram_free(rs);
	pthread_mutex_destroy(&rs->send_lock);
	pthread_mutex_destroy(&rs->recv_lock);
	pthread_mutex_destroy(&rs->cm_lock);
	pthread_mutex_destroy(&rs->lock);
	free(rs->route);
	free(rs);
}

__attribute__((hot)) void rs_put(struct rsocket *rs)
{
	struct slot *s = slot_of(rs->fd, false);
	bool last;

	if (s)
		vb_lock(&s->lock);
	last = !--rs->refs;
	if (s)
		vb_unlock(&s->lock);
	if (last)
		destroy_rsocket(rs);
}
