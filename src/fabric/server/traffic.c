// traffic.c - what a program has sent in shared memory: counters in its own memory, which this process reads
// follows: memfd_create(2), fcntl(2) (F_GET_SEALS); IBA volume 1, 16.1.3.5
// SPDX-License-Identifier: MIT
#include <fcntl.h>
#include <stdatomic.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#include "fabric/server/server.h"

/* A file that may shrink would end this process when it reads. */
const struct vb_ib_traffic_map *traffic_open(int fd)
{
	struct stat st;
	int seals = fd < 0 ? -1 : fcntl(fd, F_GET_SEALS);

	if (seals < 0 || !(seals & F_SEAL_SHRINK) || fstat(fd, &st) ||
	    st.st_size < (off_t)sizeof(struct vb_ib_traffic_map))
		return NULL;
	void *at = mmap(NULL, sizeof(struct vb_ib_traffic_map), PROT_READ, MAP_SHARED, fd, 0);

	return at == MAP_FAILED ? NULL : at;
}

void traffic_close(const struct vb_ib_traffic_map *m)
{
	if (m)
		munmap((void *)m, sizeof(*m));
}

static void add_sent(struct traffic *to, const struct vb_ib_sent *s)
{
	for (int i = 0; i < 2; i++) {
		to->packets[i] += atomic_load_explicit(&s->packets[i], memory_order_acquire);
		to->bytes[i] += atomic_load_explicit(&s->bytes[i], memory_order_acquire);
	}
}

void traffic_of_way(const struct vb_ib_traffic_map *m, uint32_t tag, struct traffic *sum)
{
	*sum = (struct traffic){{0}, {0}};
	add_sent(sum, &m->way[tag]);
}

uint32_t traffic_senders(const struct vb_ib_traffic_map *m)
{
	uint32_t n = atomic_load_explicit(&m->senders, memory_order_acquire);

	return n < VB_IB_SENDERS ? n : VB_IB_SENDERS;
}

/* The program may give it to another way meanwhile. Then the next look finds its sum there. */
bool traffic_of_sender(const struct vb_ib_traffic_map *m, uint32_t i, uint32_t *tag, struct traffic *sum)
{
	const struct vb_ib_sent *s = &m->sender[i];
	uint32_t turn = atomic_load_explicit(&s->turn, memory_order_acquire),
	         known = atomic_load_explicit(&s->tag, memory_order_acquire);

	if (!known || known > VB_FABRIC_WAYS)
		return false;
	*tag = known - 1;
	*sum = (struct traffic){{0}, {0}};
	add_sent(sum, s);
	return atomic_load_explicit(&s->turn, memory_order_relaxed) == turn &&
	       atomic_load_explicit(&s->tag, memory_order_relaxed) == known;
}
