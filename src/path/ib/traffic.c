// traffic.c - what the ways have carried, in memory that the fabric process reads, for the counters of the ports
// follows: IBA volume 1, 16.1.3.5 (PortCounters); memfd_create(2); docs/infiniband.md
// SPDX-License-Identifier: MIT
#include "path/ib/ib.h"

#include <errno.h>
#include <fcntl.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

#include "engine/local/local.h"
#include "util/log.h"
#include "util/units.h"

#define PAUSE VB_MS(100) /* ns: between two messages that something has moved */

/* --- the memory --- */

static int map_memory(struct vb_ib_host *host, int fd)
{
	if (ftruncate(fd, sizeof(*host->sent)) || fcntl(fd, F_ADD_SEALS, F_SEAL_SHRINK | F_SEAL_GROW))
		return errno;
	void *at = mmap(NULL, sizeof(*host->sent), PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0);

	if (at == MAP_FAILED)
		return errno;
	host->sent = at;
	return 0;
}

void vb_ib_traffic_open(struct vb_ib_host *host)
{
	const struct vb_fabric_counts m = {.verb = VB_FABRIC_COUNTS};
	int fd = memfd_create("verbena-traffic", MFD_CLOEXEC | MFD_ALLOW_SEALING);
	int err = fd < 0 ? errno : map_memory(host, fd);

	if (!err)
		err = vb_fabric_try(host->watch.fd, &(struct iovec){(void *)&m, sizeof(m)}, 1, fd);
	if (fd >= 0)
		close(fd);
	if (!err)
		return;
	vb_log(VB_LOG_WARN, "the ports of the fabric do not count what this program sends: %s", strerror(err));
	vb_ib_traffic_free(host);
}

void vb_ib_traffic_free(struct vb_ib_host *host)
{
	if (host->sent)
		munmap(host->sent, sizeof(*host->sent));
	host->sent = NULL;
}

struct vb_ib_sent *vb_ib_sent_by(const struct vb_ib_host *host, uint32_t tag)
{
	return host->sent ? &host->sent->way[tag] : NULL;
}

/* --- of queue pairs --- */

/* A free one has the number of the next free one, plus one, where its packets would be. Under questions_lock. */
static struct vb_ib_sent *take_free(struct vb_ib_host *host)
{
	struct vb_ib_traffic_map *m = host->sent;
	uint32_t used = atomic_load_explicit(&m->senders, memory_order_relaxed);
	struct vb_ib_sent *s = host->free_sent ? &m->sender[host->free_sent - 1] : NULL;

	if (s) {
		host->free_sent = (uint32_t)atomic_load_explicit(&s->packets[0], memory_order_relaxed);
		atomic_store_explicit(&s->packets[0], 0, memory_order_relaxed);
	} else if (used < VB_IB_SENDERS) {
		s = &m->sender[used];
		atomic_store_explicit(&m->senders, used + 1, memory_order_release);
	}
	return s;
}

struct vb_ib_sent *vb_ib_sender_get(struct vb_ib_host *host, const struct vb_ib_way *way)
{
	struct vb_lock *lock = &host->node->io->questions_lock;

	if (!host->sent)
		return NULL;
	vb_lock(lock);
	struct vb_ib_sent *s = take_free(host);

	if (s)
		atomic_store_explicit(&s->tag, way->tag + 1, memory_order_release);
	vb_unlock(lock);
	return s;
}

static void move_count(_Atomic uint64_t *from, _Atomic uint64_t *to)
{
	atomic_fetch_add_explicit(to, atomic_load_explicit(from, memory_order_relaxed), memory_order_release);
	atomic_store_explicit(from, 0, memory_order_relaxed);
}

/* First it has no way any more, then the way has its sum. A reader that looks at the way first, and then at the senders, never
 * counts a packet twice. */
void vb_ib_sender_put(struct vb_ib_host *host, struct vb_ib_sent *s)
{
	struct vb_lock *lock = &host->node->io->questions_lock;

	vb_lock(lock);
	struct vb_ib_sent *way = &host->sent->way[atomic_load_explicit(&s->tag, memory_order_relaxed) - 1];

	atomic_store_explicit(&s->tag, 0, memory_order_relaxed);
	atomic_fetch_add_explicit(&s->turn, 1, memory_order_relaxed);
	atomic_thread_fence(memory_order_release);
	for (int i = 0; i < 2; i++) {
		move_count(&s->packets[i], &way->packets[i]);
		move_count(&s->bytes[i], &way->bytes[i]);
	}
	atomic_store_explicit(&s->packets[0], host->free_sent, memory_order_relaxed);
	host->free_sent = (uint32_t)(s - host->sent->sender) + 1;
	vb_unlock(lock);
}

/* --- an Armed port turns Active when data comes, so the fabric process looks now and then --- */

static uint64_t packets_of(const struct vb_ib_sent *s)
{
	return atomic_load_explicit(&s->packets[0], memory_order_relaxed) +
	       atomic_load_explicit(&s->packets[1], memory_order_relaxed);
}

/* Of all ways. */
static uint64_t all_packets(struct vb_ib_host *host)
{
	const struct vb_ib_traffic_map *m = host->sent;
	uint64_t sum = 0;

	vb_lock(&host->node->io->questions_lock);
	uint32_t tags = host->tags, senders = atomic_load_explicit(&m->senders, memory_order_relaxed);

	for (uint32_t i = 0; i < tags; i++)
		sum += packets_of(&m->way[i]);
	for (uint32_t i = 0; i < senders; i++)
		if (atomic_load_explicit(&m->sender[i].tag, memory_order_relaxed))
			sum += packets_of(&m->sender[i]);
	vb_unlock(&host->node->io->questions_lock);
	return sum;
}

/* Returns whether anything has moved. A message that does not fit in the socket is sent next time. Under meet_lock. */
static bool tell(struct vb_ib_host *host)
{
	const struct vb_fabric_counts m = {.verb = VB_FABRIC_TRAFFIC};
	uint64_t now = host->sent && host->alive ? all_packets(host) : host->told;

	if (now == host->told)
		return false;
	if (!vb_fabric_try(host->watch.fd, &(struct iovec){(void *)&m, sizeof(m)}, 1, -1))
		host->told = now;
	return true;
}

/* A message that is counted at this moment may not see yet that it has to wake this thread. So there is one more look after
 * traffic_rests was set. */
void vb_ib_traffic_look(struct vb_ib_host *host)
{
	atomic_bool *rests = &host->node->traffic_rests;
	uint64_t now = vb_now();

	if (now < host->report_at)
		return;
	host->report_at = now + PAUSE;
	vb_mutex_lock(&host->node->io->meet_lock, VB_RANK_MEETING);
	bool any = tell(host);
	vb_mutex_unlock(&host->node->io->meet_lock);
	host->rests = atomic_exchange(rests, !any) && !any;
}

uint64_t vb_ib_traffic_due(const struct vb_ib_host *host)
{
	return host->rests && atomic_load(&host->node->traffic_rests) ? 0 : host->report_at;
}
