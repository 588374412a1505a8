// dmabuf.c - regions of vgem's dma-bufs: what is registered, what is refused, what peers reach, what ends
// follows: ibv_reg_dmabuf_mr(3)
// SPDX-License-Identifier: MIT
#include "../system/local/dmabuf_case.h"

#include <sys/mman.h>

#include "../system/local/regions.h"
#include "vgem.h"

enum { PAGE = 4096, PAGES = 16, SIZE = PAGES * PAGE };
#define LW IBV_ACCESS_LOCAL_WRITE
#define RR IBV_ACCESS_REMOTE_READ
#define RW (LW | IBV_ACCESS_REMOTE_WRITE)

int dmabuf_new(size_t n)
{
	int fd = vgem_dmabuf(n, true);

	CHECK(fd >= 0);
	return fd;
}

static uint8_t *mapped(int fd)
{
	uint8_t *p = mmap(NULL, SIZE, PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0);

	CHECK(p != MAP_FAILED);
	return p;
}

/* How often a dma-buf is mapped in this process. */
static unsigned mappings(void)
{
	FILE *maps = fopen("/proc/self/maps", "re");
	char line[512];
	unsigned n = 0;

	CHECK(maps);
	while (fgets(line, sizeof(line), maps))
		n += strstr(line, "dmabuf") != NULL;
	fclose(maps);
	return n;
}

/* --- registering --- */

static void the_whole_a_part_and_an_offset_within_a_page_are_registered(void)
{
	static const struct {
		uint64_t offset, length, iova;
	} of[] = {{0, SIZE, 0},
	          {PAGE, PAGE, PAGE},
	          {3 * PAGE + 100, 5000, 7 * PAGE + 100},
	          {SIZE - 1, 1, PAGE - 1},
	          {0, SIZE, UINT64_C(1) << 40}};
	struct dev d;
	int fd = dmabuf_new(SIZE);

	side_open(&d);
	unsigned before = mappings(), descriptors = open_descriptors();

	for (size_t i = 0; i < sizeof(of) / sizeof(of[0]); i++) {
		struct ibv_mr *mr = ibv_reg_dmabuf_mr(d.pd, of[i].offset, of[i].length, of[i].iova, fd, ALL_ACCESS);

		CHECK(mr && mr->addr == (void *)(uintptr_t)of[i].offset && mr->length == of[i].length);
		SAME(mappings(), before + 1);
		SAME(ibv_dereg_mr(mr), 0);
	}
	SAME(mappings(), before);
	SAME(open_descriptors(), descriptors);
	dev_close(&d);
}

static void refused(struct dev *d, uint64_t offset, uint64_t length, int fd, int access, int err)
{
	errno = 0;
	struct ibv_mr *mr = ibv_reg_dmabuf_mr(d->pd, offset, length, offset, fd, access);
	int got = errno;

	if (mr || got != err)
		CHECK_FAILED("%llu bytes at %llu, access %#x: %s, errno %d, not %d", (unsigned long long)length,
		             (unsigned long long)offset, access, mr ? "registered" : "refused", got, err);
}

static void what_the_dma_buf_does_not_have_or_allow_is_refused(void)
{
	struct dev d;
	int fd = dmabuf_new(SIZE), readable = vgem_dmabuf(SIZE, false), file = memfd_create("file", MFD_CLOEXEC);

	CHECK(readable >= 0 && file >= 0 && !ftruncate(file, SIZE));
	side_open(&d);
	unsigned before = mappings();

	refused(&d, 0, SIZE + 1, fd, RR, EINVAL);
	refused(&d, PAGE, SIZE, fd, RR, EINVAL);
	refused(&d, SIZE, 1, fd, RR, EINVAL);
	refused(&d, SIZE, PAGE, fd, RR, EINVAL);
	refused(&d, UINT64_MAX - PAGE + 1, 2 * PAGE, fd, RR, EINVAL);
	refused(&d, 0, 0, fd, RR, EINVAL);
	refused(&d, 0, SIZE, fd, IBV_ACCESS_REMOTE_WRITE, EINVAL);
	refused(&d, 0, SIZE, fd, IBV_ACCESS_REMOTE_ATOMIC, EINVAL);
	refused(&d, 0, SIZE, fd, RW | IBV_ACCESS_MW_BIND, EINVAL);
	refused(&d, 0, SIZE, fd, RR | IBV_ACCESS_ON_DEMAND, EINVAL);
	refused(&d, 0, SIZE, file, RR, EINVAL);
	refused(&d, 0, SIZE, readable, RW, EACCES);
	errno = 0;
	CHECK(!ibv_reg_dmabuf_mr(d.pd, 0, SIZE, 1, fd, RR) && errno == EINVAL); /* another place within a page */
	close(fd);
	refused(&d, 0, SIZE, fd, RR, EBADF);
	refused(&d, 0, SIZE, -1, RR, EBADF);
	SAME(mappings(), before);
	dev_close(&d);
}

/* --- peers --- */

/* Holds a pair of regions: all pages but the first and the last for writing, and all of a read-only dma-buf. */
static void limits_owner(int sock, void *arg)
{
	struct dev d;
	struct link l;
	int fd = dmabuf_new(SIZE), readable = vgem_dmabuf(SIZE, false);
	uint8_t *p = mapped(fd), *copy = malloc(SIZE);

	side_open(&d);
	struct mem m = {.mr = ibv_reg_dmabuf_mr(d.pd, PAGE, SIZE - 2 * PAGE, PAGE, fd, ALL_ACCESS), .p = (void *)PAGE};
	struct mem r = {.mr = ibv_reg_dmabuf_mr(d.pd, 0, SIZE, 0, readable, RR)};

	CHECK(m.mr && r.mr && copy);
	close(fd);
	close(readable);
	fill(p, SIZE, 1);
	fill(copy, SIZE, 1);
	mem_tell(&m, sock);
	mem_tell(&r, sock);
	for (int round = 0; round < 5; round++) { /* a refused request ends the connection */
		link_make(&l, &d, &(struct conf){0});
		side_join(&l, sock);
		meet_up(sock);
		if (round == 0)
			fill(copy + PAGE, SIZE - 2 * PAGE, 2);
		CHECK(!memcmp(p, copy, SIZE));
		if (round == 3) {
			unsigned before = mappings();

			SAME(ibv_dereg_mr(m.mr), 0);
			SAME(mappings(), before - 1);
		}
		link_end(&l);
	}
	SAME(ibv_dereg_mr(r.mr), 0);
	dev_close(&d);
}

/* Each round is one connection: a write of the whole region; one byte before it, one behind it, a read of a region that
 * grants reads, then a write of it; a write of a region that is deregistered. */
static void peers_reach_what_is_registered_and_nothing_else(void)
{
	struct peer p = start(limits_owner, NULL);
	struct dev d;
	struct link l;
	struct mem m;
	enum ibv_wc_status no = IBV_WC_REM_ACCESS_ERR;

	side_open(&d);
	mem_make(&m, &d, SIZE);
	struct far far = far_hear(p.fd), read_only = far_hear(p.fd);

	fill(m.p, SIZE, 2);
	for (int round = 0; round < 5; round++) {
		link_make(&l, &d, &(struct conf){0});
		side_join(&l, p.fd);
		switch (round) {
		case 0:
			POST(&l, .op = IBV_WR_RDMA_WRITE, .id = 1, .m = &m, .len = SIZE - 2 * PAGE, .far = far);
			expect(l.scq, 1, IBV_WC_SUCCESS);
			break;
		case 1:
			POST(&l, .op = IBV_WR_RDMA_WRITE, .id = 1, .m = &m, .len = SIZE - 2 * PAGE + 1, .far = far);
			expect(l.scq, 1, no);
			break;
		case 2:
			far.addr--;
			POST(&l, .op = IBV_WR_RDMA_WRITE, .id = 1, .m = &m, .len = 100, .far = far);
			expect(l.scq, 1, no);
			far.addr++;
			break;
		case 3:
			POST(&l, .op = IBV_WR_RDMA_READ, .id = 1, .m = &m, .len = SIZE, .far = read_only);
			expect(l.scq, 1, IBV_WC_SUCCESS);
			CHECK(!m.p[0] && !memcmp(m.p, m.p + 1, SIZE - 1));
			POST(&l, .op = IBV_WR_RDMA_WRITE, .id = 2, .m = &m, .len = 8, .far = read_only);
			expect(l.scq, 2, no);
			break;
		case 4:
			POST(&l, .op = IBV_WR_RDMA_WRITE, .id = 1, .m = &m, .len = 8, .far = far);
			expect(l.scq, 1, no);
			break;
		}
		meet_up(p.fd);
		link_end(&l);
	}
	finish(&p);
	mem_end(&m);
	dev_close(&d);
}

int main(int argc, char **argv)
{
	static const struct test tests[] = {
	        {"the whole, a part, and an offset within a page are registered",
	         the_whole_a_part_and_an_offset_within_a_page_are_registered},
	        {"what the dma-buf does not have or allow is refused",
	         what_the_dma_buf_does_not_have_or_allow_is_refused},
	        {"peers reach what is registered, and nothing else", peers_reach_what_is_registered_and_nothing_else},
	        {"a dma-buf is written, read, sent and received", a_dma_buf_is_written_read_sent_and_received},
	};

	return RUN_TESTS(argc, argv, tests);
}
