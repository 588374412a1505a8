// imported.c - a device, a protection domain and regions of another process, or of another context
// follows: ibv_import_device(3), ibv_import_pd(3), ibv_import_mr(3)
// SPDX-License-Identifier: MIT
#include "pair.h"

#include <fcntl.h>
#include <sys/mman.h>
#include <sys/socket.h>

#define BYTES (64u << 10)

/* What a program that shares its domain tells the other. */
struct offer {
	uint32_t pd, mr, rkey, private_mr;
	uint64_t addr;
	uint32_t null_mr;
};

static void send_fd(int sock, int fd)
{
	char byte = 'f', control[CMSG_SPACE(sizeof(int))] = {0};
	struct iovec iov = {&byte, 1};
	struct msghdr m = {.msg_iov = &iov, .msg_iovlen = 1, .msg_control = control, .msg_controllen = sizeof(control)};
	struct cmsghdr *c = CMSG_FIRSTHDR(&m);

	c->cmsg_level = SOL_SOCKET;
	c->cmsg_type = SCM_RIGHTS;
	c->cmsg_len = CMSG_LEN(sizeof(int));
	memcpy(CMSG_DATA(c), &fd, sizeof(fd));
	CHECK(sendmsg(sock, &m, MSG_NOSIGNAL) == 1);
}

static int hear_fd(int sock)
{
	char byte, control[CMSG_SPACE(sizeof(int))];
	struct iovec iov = {&byte, 1};
	struct msghdr m = {.msg_iov = &iov, .msg_iovlen = 1, .msg_control = control, .msg_controllen = sizeof(control)};
	int fd;

	CHECK(heard(sock, PATIENCE) && recvmsg(sock, &m, MSG_CMSG_CLOEXEC) == 1);
	struct cmsghdr *c = CMSG_FIRSTHDR(&m);
	CHECK(c && c->cmsg_type == SCM_RIGHTS);
	memcpy(&fd, CMSG_DATA(c), sizeof(fd));
	return fd;
}

/* The device, domain and region of an offer. */
struct import {
	struct dev d;
	struct ibv_mr *mr;
};

static void import_all(struct import *i, int fd, const struct offer *o)
{
	struct dev own;

	dev_open(&own); /* for the address */
	i->d = own;
	i->d.ctx = ibv_import_device(fd);
	CHECK(i->d.ctx && i->d.ctx->cmd_fd == fd && !strcmp(i->d.ctx->device->name, own.ctx->device->name));
	dev_close(&own);
	i->d.pd = ibv_import_pd(i->d.ctx, o->pd);
	CHECK(i->d.pd && i->d.pd->context == i->d.ctx && i->d.pd->handle == o->pd);
	CHECK(!ibv_import_pd(i->d.ctx, o->pd + 1000) && errno == ENOENT);
	CHECK(!ibv_import_pd(i->d.ctx, 0) && errno == ENOENT);
	i->mr = ibv_import_mr(i->d.pd, o->mr);
	CHECK(i->mr && i->mr->rkey == o->rkey && i->mr->lkey == o->rkey && i->mr->length == BYTES);
	CHECK(!i->mr->addr && i->mr->pd == i->d.pd && i->mr->handle == o->mr);
	CHECK(!ibv_import_mr(i->d.pd, 0) && errno == ENOENT);
	CHECK(!ibv_import_mr(i->d.pd, 1u << 30) && errno == ENOENT);
}

static void import_end(struct import *i)
{
	ibv_unimport_mr(i->mr);
	ibv_unimport_pd(i->d.pd);
	SAME(ibv_close_device(i->d.ctx), 0);
}

/* Has the domain of another process. Its queue pair reads and writes that process's memory. */
static void importer(int fd, void *arg)
{
	int cmd_fd = hear_fd(fd);
	struct import i;
	struct offer o;
	struct link l;
	struct mem m = {.n = BYTES};

	hear(fd, &o, sizeof(o));
	import_all(&i, cmd_fd, &o);
	CHECK(!ibv_import_mr(i.d.pd, o.private_mr) && errno == EOPNOTSUPP);
	CHECK(!ibv_import_mr(i.d.pd, o.null_mr) && errno == ENOENT); /* of mlx5 it is no object of the kernel */
	/* a handle of the other process's device memory, which is one of ours, too */
	struct ibv_dm *dm = ibv_alloc_dm(i.d.ctx, &(struct ibv_alloc_dm_attr){.length = 4096});

	CHECK(dm && !ibv_import_dm(i.d.ctx, dm->handle) && errno == EOPNOTSUPP && !ibv_free_dm(dm));
	struct ibv_mr *again = ibv_import_mr(i.d.pd, o.mr);
	CHECK(again && again->rkey == o.rkey);
	ibv_unimport_mr(again);
	m.mr = i.mr;
	m.p = (uint8_t *)(uintptr_t)o.addr; /* an address of the other process, as the region has it */
	link_make(&l, &i.d, &(struct conf){.pd = i.d.pd});
	post_recv(&l, 1, &m, 4096, 1000);
	link_join(&l, fd);
	expect(l.rcq, 1, IBV_WC_SUCCESS);
	POST(&l, .op = IBV_WR_SEND, .id = 2, .m = &m, .off = 8192, .len = 500);
	expect(l.scq, 2, IBV_WC_SUCCESS);
	meet_up(fd);
	link_end(&l);
	import_end(&i);
}

static void offer_memory(struct offer *o, const struct dev *d, const struct mem *m, const struct mem *own)
{
	*o = (struct offer){d->pd->handle, m->mr->handle, m->mr->rkey, own->mr->handle, (uintptr_t)m->p};
}

static void a_process_with_the_descriptor_uses_domain_and_region(void)
{
	struct peer p = start(importer, NULL);
	struct dev d;
	struct link l;
	struct mem m, own;
	struct offer o;

	dev_open(&d);
	mem_make_shared(&m, &d, BYTES);
	mem_make(&own, &d, BYTES);
	offer_memory(&o, &d, &m, &own);
	struct ibv_mr *null = ibv_alloc_null_mr(d.pd);

	CHECK(null);
	o.null_mr = null->handle;
	CHECK(!ibv_import_mr(d.pd, o.null_mr) && errno == ENOENT);
	send_fd(p.fd, d.ctx->cmd_fd);
	tell(p.fd, &o, sizeof(o));
	fill(own.p, 1000, 1);
	fill(m.p + 8192, 500, 2);
	struct ibv_pd *apart = ibv_alloc_pd(d.ctx); /* the other end is in a domain of its own */
	struct ibv_mr *apart_mr = ibv_reg_mr(apart, own.p, BYTES, ALL_ACCESS);
	CHECK(apart && apart_mr);
	struct mem mine = {own.p, BYTES, apart_mr};
	link_make(&l, &d, &(struct conf){.pd = apart});
	post_recv(&l, 9, &mine, 8192, 500);
	link_join(&l, p.fd);
	/* a send lands in this process's own memory: the other has posted it as a receive */
	POST(&l, .op = IBV_WR_SEND, .id = 1, .m = &mine, .len = 1000);
	expect(l.scq, 1, IBV_WC_SUCCESS);
	expect(l.rcq, 9, IBV_WC_SUCCESS);
	CHECK(holds(m.p + 4096, 1000, 1) && holds(own.p + 8192, 500, 2));
	/* RDMA with the region's key, by the other's queue pair */
	struct far far = {.addr = o.addr, .rkey = o.rkey};
	fill(own.p, 30000, 3);
	POST(&l, .op = IBV_WR_RDMA_WRITE, .id = 3, .m = &mine, .len = 30000, .far = far, .far_off = 16384);
	expect(l.scq, 3, IBV_WC_SUCCESS);
	CHECK(holds(m.p + 16384, 30000, 3));
	POST(&l, .op = IBV_WR_RDMA_READ, .id = 4, .m = &mine, .off = 32768, .len = 500, .far = far, .far_off = 8192);
	expect(l.scq, 4, IBV_WC_SUCCESS);
	CHECK(holds(own.p + 32768, 500, 2));
	meet_up(p.fd);
	finish(&p);
	link_end(&l);
	CHECK(!ibv_dereg_mr(apart_mr) && !ibv_dereg_mr(null) && !ibv_dealloc_pd(apart));
	mem_end(&own);
	mem_end(&m);
	dev_close(&d);
}

static void another_context_of_the_process_uses_domain_and_region(void)
{
	struct dev d;
	struct mem m;
	struct link l, other;
	struct import i;

	dev_open(&d);
	mem_make(&m, &d, BYTES); /* of any kind */
	struct offer o = {d.pd->handle, m.mr->handle, m.mr->rkey, 0, (uintptr_t)m.p};
	int fd = fcntl(d.ctx->cmd_fd, F_DUPFD_CLOEXEC, 0);
	import_all(&i, fd, &o);
	struct ibv_mr *again = ibv_import_mr(i.d.pd, o.mr);
	CHECK(again && again != i.mr && again->rkey == o.rkey);
	ibv_unimport_mr(again);
	link_make(&l, &i.d, &(struct conf){.pd = i.d.pd});
	link_make(&other, &d, &(struct conf){0});
	link_to(&l, &other.me);
	link_to(&other, &l.me);
	fill(m.p, 1000, 5);
	struct far far = {.addr = o.addr, .rkey = i.mr->rkey};
	POST(&other, .op = IBV_WR_RDMA_WRITE, .id = 1, .m = &m, .len = 1000, .far = far, .far_off = 2000);
	expect(other.scq, 1, IBV_WC_SUCCESS);
	CHECK(holds(m.p + 2000, 1000, 5));
	struct mem imported = {m.p, BYTES, i.mr};
	POST(&l, .op = IBV_WR_RDMA_WRITE, .id = 2, .m = &imported, .len = 1000, .far = far, .far_off = 4000);
	expect(l.scq, 2, IBV_WC_SUCCESS);
	CHECK(holds(m.p + 4000, 1000, 5));
	SAME(ibv_dealloc_pd(i.d.pd), EBUSY);
	/* the region ends by one handle; the other can only be unimported */
	SAME(ibv_dereg_mr(i.mr), 0);
	SAME(ibv_dereg_mr(m.mr), ENOENT);
	POST(&other, .op = IBV_WR_RDMA_WRITE, .id = 3, .m = &m, .len = 8, .far = far);
	expect(other.scq, 3, IBV_WC_LOC_PROT_ERR);
	link_end(&l);
	ibv_unimport_mr(m.mr);
	munmap(m.p, m.n);
	link_end(&other);
	SAME(ibv_dealloc_pd(i.d.pd), 0);
	CHECK(!ibv_import_pd(i.d.ctx, o.pd) && errno == ENOENT);
	SAME(ibv_close_device(i.d.ctx), 0);
	CHECK(fcntl(fd, F_GETFD) == -1); /* the import owned it */
	ibv_unimport_pd(d.pd);
	CHECK(!ibv_close_device(d.ctx));
}

/* As rdma-core's own test has it: the queue pairs live on without handles of domain and region. */
static void objects_outlive_an_unimported_domain(void)
{
	struct dev d;
	struct mem m;
	struct link l;
	struct import i;

	dev_open(&d);
	mem_make(&m, &d, BYTES);
	struct offer o = {d.pd->handle, m.mr->handle, m.mr->rkey, 0, (uintptr_t)m.p};
	import_all(&i, fcntl(d.ctx->cmd_fd, F_DUPFD_CLOEXEC, 0), &o);
	link_make(&l, &i.d, &(struct conf){.pd = i.d.pd});
	ibv_unimport_mr(i.mr);
	ibv_unimport_pd(i.d.pd);
	CHECK(ibv_dealloc_pd(i.d.pd) == ENOENT);
	link_end(&l);
	CHECK(!ibv_close_device(i.d.ctx));
	mem_end(&m);
	dev_close(&d);
}

static void no_other_descriptor_is_a_device(void)
{
	static const char text[] = "verbena device roce_lo lane 1 incarnation 1\n";
	int null = open("/dev/null", O_RDWR | O_CLOEXEC), fake = memfd_create("verbena-context", MFD_CLOEXEC);

	CHECK(null >= 0 && fake >= 0 && write(fake, text, sizeof(text)) > 0);
	CHECK(!ibv_import_device(-1) && errno == EBADF);
	CHECK(!ibv_import_device(null) && errno == EOPNOTSUPP);
	CHECK(!ibv_import_device(fake) && errno == EOPNOTSUPP); /* it could be truncated */
	SAME(ftruncate(fake, 1 << 20), 0);
	CHECK(!ibv_import_device(fake) && errno == EOPNOTSUPP);
	close(null);
	close(fake);
}

static void a_descriptor_cannot_be_written(void)
{
	struct dev d;

	dev_open(&d);
	CHECK(pwrite(d.ctx->cmd_fd, "x", 1, 4096) == -1 && errno == EPERM);
	CHECK(ftruncate(d.ctx->cmd_fd, 0) == -1 && errno == EPERM);
	CHECK(mmap(NULL, 4096, PROT_WRITE, MAP_SHARED, d.ctx->cmd_fd, 4096) == MAP_FAILED);
	dev_close(&d);
}

int main(int argc, char **argv)
{
	static const struct test tests[] = {
	        {"a process with the descriptor uses domain and region",
	         a_process_with_the_descriptor_uses_domain_and_region},
	        {"another context of the process uses domain and region",
	         another_context_of_the_process_uses_domain_and_region},
	        {"objects outlive an unimported domain", objects_outlive_an_unimported_domain},
	        {"no other descriptor is a device", no_other_descriptor_is_a_device},
	        {"a descriptor cannot be written", a_descriptor_cannot_be_written},
	};

	return RUN_TESTS(argc, argv, tests);
}
