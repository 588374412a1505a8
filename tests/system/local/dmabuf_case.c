// dmabuf_case.c - a region of a dma-buf in traffic between two programs
// follows: ibv_reg_dmabuf_mr(3)
// SPDX-License-Identifier: MIT
#include "dmabuf_case.h"

#include <sys/mman.h>

#include "regions.h"

#define MIB (1u << 20)
/* By default peers have tried every way of large messages then. */
#define MANY ((uint32_t)count_or(20))

static struct mem dmabuf_make(struct dev *d, uint8_t **mapped)
{
	int fd = dmabuf_new(2 * MIB);

	*mapped = mmap(NULL, 2 * MIB, PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0);
	CHECK(*mapped != MAP_FAILED);
	struct mem m = {.n = MIB, .mr = ibv_reg_dmabuf_mr(d->pd, 4096 + 8, MIB, 8, fd, ALL_ACCESS)};

	CHECK(m.mr && m.mr->addr == (void *)(uintptr_t)(4096 + 8) && m.mr->length == MIB);
	close(fd);
	m.p = (uint8_t *)8; /* its address in requests */
	return m;
}

static void dmabuf_owner(int fd, void *arg)
{
	struct dev d;
	struct link l;
	uint8_t *mapped;

	side_open(&d);
	struct mem m = dmabuf_make(&d, &mapped);

	link_make(&l, &d, &(struct conf){0});
	post_recv(&l, 1, &m, 600000, 400000);
	mem_tell(&m, fd);
	fill(mapped, 2 * MIB, 1);
	side_join(&l, fd);
	expect(l.rcq, 1, IBV_WC_SUCCESS);
	uint8_t *region = mapped + 4096 + 8;

	CHECK(holds(mapped, 4096 + 8, 1) && holds(region, 500000, 2) && holds(region + 600000, 400000, 3));
	SAME(*(uint64_t *)(region + 500000), 43);
	for (uint32_t i = 0; i < MANY; i++) {
		POST(&l, .op = IBV_WR_SEND, .id = 2, .m = &m, .len = 500000);
		expect(l.scq, 2, IBV_WC_SUCCESS);
	}
	meet_up(fd);
	link_end(&l);
	SAME(ibv_dereg_mr(m.mr), 0);
	dev_close(&d);
}

/* Fails if a peer copies to or from the owner's memory itself, large messages among them. */
void a_dma_buf_is_written_read_sent_and_received(void)
{
	struct peer p = start(dmabuf_owner, NULL);
	uint8_t *mapped;
	struct dev d;
	struct link l;
	struct mem m;

	side_open(&d);
	mem_make(&m, &d, 2 * MIB);
	struct mem mine = dmabuf_make(&d, &mapped);

	link_make(&l, &d, &(struct conf){0});
	struct far far = far_hear(p.fd);

	for (uint32_t i = 0; i < MANY; i++)
		post_recv(&l, 9, &mine, 0, MIB);
	side_join(&l, p.fd);
	POST(&l, .op = IBV_WR_RDMA_READ, .id = 1, .m = &mine, .len = MIB, .far = far);
	expect(l.scq, 1, IBV_WC_SUCCESS);
	fill(m.p, 2 * MIB, 1);
	CHECK(!memcmp(mapped + 4096 + 8, m.p + 4096 + 8, MIB));
	for (uint32_t i = 0; i < MANY; i++) {
		fill(m.p, 500000, i == MANY - 1 ? 2 : i);
		POST(&l, .op = IBV_WR_RDMA_WRITE, .id = 2, .m = &m, .len = 500000, .far = far);
		expect(l.scq, 2, IBV_WC_SUCCESS);
	}
	memset(m.p, 0, 8);
	m.p[0] = 1;
	POST(&l, .op = IBV_WR_RDMA_WRITE, .id = 3, .m = &m, .len = 8, .far = far, .far_off = 500000);
	expect(l.scq, 3, IBV_WC_SUCCESS);
	POST(&l, .op = IBV_WR_ATOMIC_FETCH_AND_ADD, .id = 4, .m = &m, .len = 8, .far = far, .far_off = 500000,
	     .compare_add = 42);
	expect(l.scq, 4, IBV_WC_SUCCESS);
	SAME(*(uint64_t *)m.p, 1);
	fill(m.p, 400000, 3);
	POST(&l, .op = IBV_WR_SEND, .id = 5, .m = &m, .len = 400000);
	expect(l.scq, 5, IBV_WC_SUCCESS);
	for (uint32_t i = 0; i < MANY; i++)
		SAME(expect(l.rcq, 9, IBV_WC_SUCCESS).byte_len, 500000);
	CHECK(holds(mapped + 4096 + 8, 500000, 2));
	meet_up(p.fd);
	finish(&p);
	link_end(&l);
	SAME(ibv_dereg_mr(mine.mr), 0);
	mem_end(&m);
	dev_close(&d);
}
