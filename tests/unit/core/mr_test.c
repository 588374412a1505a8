// mr_test.c - memory regions: valid registrations, and the accesses that a key allows
// follows: IBA volume 1, 10.6; ibv_reg_mr(3), ibv_rereg_mr(3)
// SPDX-License-Identifier: MIT
#include "harness.h"

#include <pthread.h>
#include <sched.h>
#include <sys/mman.h>

#include "core/mr.h"

static char buf[8192] __attribute__((aligned(4096)));
#define BASE ((uint64_t)(uintptr_t)buf)
#define LW IBV_ACCESS_LOCAL_WRITE

static struct objects o;

static bool opens(const struct ibv_mr *mr, uint64_t addr, uint64_t len, uint32_t access)
{
	uint64_t va = 0;

	return vb_mr_check_local(&fake_node, mr->pd->handle, mr->lkey, addr, len, access, &va);
}

static struct ibv_mr *reg(void *addr, size_t length, uint64_t iova, unsigned access)
{
	errno = 0;
	return vb_reg_mr(o.pd, addr, length, iova, access);
}

static int refusal(void *addr, size_t length, uint64_t iova, unsigned access)
{
	CHECK(!reg(addr, length, iova, access));
	return errno;
}

static void a_key_opens_its_range_and_no_more(void)
{
	struct ibv_mr *mr = reg(buf, 100, BASE, LW);

	CHECK(opens(mr, BASE, 100, LW) && opens(mr, BASE + 99, 1, 0) && opens(mr, BASE + 100, 0, 0));
	CHECK(!opens(mr, BASE, 101, 0) && !opens(mr, BASE + 100, 1, 0) && !opens(mr, BASE + 101, 0, 0));
	CHECK(!opens(mr, BASE - 1, 1, 0) && !opens(mr, BASE - 1, 2, 0));
	CHECK(!opens(mr, BASE, ~0ull, 0) && !opens(mr, BASE + 1, ~0ull, 0) && !opens(mr, 0, 1, 0) &&
	      !opens(mr, ~0ull, 1, 0));
	CHECK(!vb_dereg_mr(mr));
}

static void ranges_end_at_2_to_the_64(void)
{
	struct ibv_mr *mr = reg(buf, 4096, 0ull - 4096, LW);

	CHECK(mr);
	CHECK(opens(mr, 0ull - 4096, 4096, 0) && opens(mr, ~0ull, 1, 0));
	CHECK(!opens(mr, ~0ull, 2, 0) && !opens(mr, 0, 1, 0) && !opens(mr, 0ull - 4096, 4097, 0) &&
	      !opens(mr, 0ull - 4096, ~0ull, 0));
	CHECK(!vb_dereg_mr(mr));
	CHECK(refusal(buf, 4096, 0ull - 4095, LW) == EINVAL);
	CHECK(refusal((void *)(~0ull - 100), 200, 0, LW) == EINVAL);
}

static void iova_names_the_memory(void)
{
	struct ibv_mr *mr = reg(buf, 100, 0x1000, LW), *zero = reg(buf + 10, 50, BASE, LW | IBV_ACCESS_ZERO_BASED);
	uint64_t va;

	CHECK(vb_mr_check_local(&fake_node, o.pd->handle, mr->lkey, 0x1010, 8, LW, &va) && va == BASE + 0x10);
	CHECK(!opens(mr, BASE, 1, 0));
	CHECK(vb_mr_check_local(&fake_node, o.pd->handle, zero->lkey, 5, 8, LW, &va) && va == BASE + 15);
	CHECK(!vb_dereg_mr(mr) && !vb_dereg_mr(zero));
}

static void rights_and_protection_domain_are_checked(void)
{
	struct ibv_mr *ro = reg(buf, 100, BASE, 0);
	struct ibv_pd *other = vb_alloc_pd(o.ctx);
	uint64_t va;

	CHECK(opens(ro, BASE, 8, 0) && !opens(ro, BASE, 8, LW));
	CHECK(!vb_mr_check_local(&fake_node, other->handle, ro->lkey, BASE, 8, 0, &va));
	CHECK(!vb_mr_check_local(&fake_node, o.pd->handle, 0, BASE, 8, 0, &va));
	CHECK(!vb_mr_check_local(&fake_node, o.pd->handle, ro->lkey + 1, BASE, 8, 0, &va));
	CHECK(!vb_dereg_mr(ro) && !vb_dealloc_pd(other));
}

static void access_flags_that_make_no_sense_are_refused(void)
{
	CHECK(refusal(buf, 8, BASE, IBV_ACCESS_REMOTE_WRITE) == EINVAL);
	CHECK(refusal(buf, 8, BASE, IBV_ACCESS_REMOTE_ATOMIC) == EINVAL);
	CHECK(refusal(buf, 8, BASE, 1 << 10) == EINVAL);
	CHECK(refusal(buf, 8, BASE, LW | VB_IBV_ACCESS_FLUSH_PERSISTENT) == EOPNOTSUPP);
	struct ibv_mr *flushed = reg(buf, 8, BASE, VB_IBV_ACCESS_FLUSH_GLOBAL);

	CHECK(flushed && !vb_dereg_mr(flushed));
	CHECK(refusal(buf, 8, BASE, 1u << 31) == EINVAL);
	CHECK(refusal(buf, 8, BASE, 1u << 30) == EINVAL);
	struct ibv_mr *mr = reg(buf, 8, BASE, LW | IBV_ACCESS_RELAXED_ORDERING | IBV_ACCESS_REMOTE_READ);

	CHECK(mr && !vb_dereg_mr(mr));
	mr = reg(buf, 8, BASE, IBV_ACCESS_REMOTE_READ);
	CHECK(mr && !vb_dereg_mr(mr));
}

/* As with the kernel's adapters, with or without windows: the flag alone grants nothing. */
static void a_region_may_allow_windows(void)
{
	const unsigned all = LW | IBV_ACCESS_REMOTE_READ | IBV_ACCESS_REMOTE_WRITE | IBV_ACCESS_MW_BIND;
	struct ibv_mr *mr = reg(buf, 100, BASE, all), *alone = reg(buf, 100, BASE, IBV_ACCESS_MW_BIND);

	CHECK(mr && opens(mr, BASE, 100, LW | IBV_ACCESS_REMOTE_WRITE));
	CHECK(alone && opens(alone, BASE, 100, 0) && !opens(alone, BASE, 1, LW) &&
	      !opens(alone, BASE, 1, IBV_ACCESS_REMOTE_READ));
	CHECK(!vb_rereg_mr(mr, IBV_REREG_MR_CHANGE_ACCESS, NULL, NULL, 0, LW | IBV_ACCESS_MW_BIND));
	CHECK(opens(mr, BASE, 100, LW) && !opens(mr, BASE, 1, IBV_ACCESS_REMOTE_WRITE));
	CHECK(!vb_dereg_mr(mr) && !vb_dereg_mr(alone));
}

static void memory_that_is_not_there_is_refused(void)
{
	char *gap = mmap(NULL, 4 * 4096, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
	struct ibv_mr *mr;

	CHECK(!munmap(gap + 3 * 4096, 4096));
	CHECK(refusal(NULL, 8, 0, LW) == EFAULT);
	CHECK(refusal(gap, 4 * 4096, 0, LW) == EFAULT);
	CHECK(refusal(gap + 3 * 4096, 1, 0, LW) == EFAULT);
	CHECK(!mprotect(gap, 4096, PROT_READ));
	CHECK(refusal(gap, 4096, 0, LW) == EFAULT);
	mr = reg(gap, 4096, 0, IBV_ACCESS_REMOTE_READ);
	CHECK(mr && !vb_dereg_mr(mr));
	mr = reg(gap + 4096, 2 * 4096, 0, LW);
	CHECK(mr && !vb_dereg_mr(mr));
	munmap(gap, 3 * 4096);
}

/* As in the kernel, which counts pages. */
static void nothing_can_be_registered_where_it_is_not_aligned(void)
{
	struct ibv_mr *mr = reg(buf + 16, 0, BASE, LW);

	CHECK(mr && !opens(mr, BASE, 1, 0));
	CHECK(!vb_dereg_mr(mr));
	CHECK(refusal(buf, 0, BASE, LW) == EINVAL);
}

static void a_key_dies_with_its_region(void)
{
	struct ibv_mr *mr = reg(buf, 100, BASE, LW), copy = *mr;

	CHECK(vb_dealloc_pd(o.pd) == EBUSY);
	CHECK(!vb_dereg_mr(mr));
	CHECK(fake.quiesced_key == copy.rkey && !fake.quiesced_qpn);
	CHECK(!opens(&copy, BASE, 1, 0));
	CHECK(!(atomic_load(&vb_seg_mr(fake_node.seg, copy.handle - 1)->seq) & 1));
}

static void rereg_changes_what_it_is_told_and_keeps_the_key(void)
{
	struct ibv_mr *mr = reg(buf, 100, BASE, LW);
	struct ibv_pd *other = vb_alloc_pd(o.ctx), *first = o.pd;
	uint32_t key = mr->rkey;

	CHECK(!vb_rereg_mr(mr, IBV_REREG_MR_CHANGE_TRANSLATION, NULL, buf + 4096, 50, 0));
	CHECK(fake.quiesced_key == key && mr->rkey == key && mr->addr == buf + 4096 && mr->length == 50);
	CHECK(opens(mr, BASE + 4096, 50, LW) && !opens(mr, BASE, 1, 0) && !opens(mr, BASE + 4096, 51, 0));
	CHECK(!vb_rereg_mr(mr, IBV_REREG_MR_CHANGE_ACCESS, NULL, NULL, 0, 0));
	CHECK(!opens(mr, BASE + 4096, 1, LW) && opens(mr, BASE + 4096, 1, 0));
	CHECK(!vb_rereg_mr(mr, IBV_REREG_MR_CHANGE_PD, other, NULL, 0, 0));
	CHECK(mr->pd == other && opens(mr, BASE + 4096, 1, 0));
	CHECK(vb_dealloc_pd(other) == EBUSY);
	mr->pd = first;
	CHECK(!opens(mr, BASE + 4096, 1, 0));
	mr->pd = other;
	CHECK(!vb_dereg_mr(mr) && !vb_dealloc_pd(other));
}

static void rereg_that_is_refused_leaves_all_as_it_was(void)
{
	struct ibv_mr *mr = reg(buf, 100, BASE, LW), before = *mr;

	CHECK(vb_rereg_mr(mr, 0, NULL, NULL, 0, 0) == EINVAL);
	CHECK(vb_rereg_mr(mr, 8, NULL, buf, 1, 0) == EINVAL);
	CHECK(vb_rereg_mr(mr, IBV_REREG_MR_CHANGE_TRANSLATION, NULL, buf, 0, 0) == EINVAL);
	CHECK(vb_rereg_mr(mr, IBV_REREG_MR_CHANGE_TRANSLATION, NULL, (void *)8, 8, 0) == EFAULT);
	CHECK(vb_rereg_mr(mr, IBV_REREG_MR_CHANGE_TRANSLATION, NULL, buf, 8, LW) == EINVAL);
	CHECK(vb_rereg_mr(mr, IBV_REREG_MR_CHANGE_PD, NULL, NULL, 0, 0) == EINVAL);
	CHECK(vb_rereg_mr(mr, IBV_REREG_MR_CHANGE_ACCESS, NULL, NULL, 0, IBV_ACCESS_REMOTE_WRITE) == EINVAL);
	CHECK(!memcmp(mr, &before, sizeof(before)) && opens(mr, BASE, 100, LW) && !fake.quiesced_key);
	CHECK(!vb_dereg_mr(mr));
}

static void an_invalidated_key_opens_nothing_until_rereg(void)
{
	struct ibv_mr *mr = reg(buf, 100, BASE, LW | IBV_ACCESS_REMOTE_WRITE), *local = reg(buf, 100, BASE, LW);
	uint32_t pd = o.pd->handle;

	CHECK(vb_mr_invalidate(&fake_node, pd + 1, mr->rkey, true) == EINVAL);
	CHECK(vb_mr_invalidate(&fake_node, pd, 0, false) == EINVAL);
	CHECK(vb_mr_invalidate(&fake_node, pd, mr->rkey ^ 1, false) == EINVAL);
	CHECK(vb_mr_invalidate(&fake_node, pd, local->rkey, true) == EACCES && opens(local, BASE, 1, 0));
	CHECK(!vb_mr_invalidate(&fake_node, pd, mr->rkey, true) && !opens(mr, BASE, 1, 0));
	CHECK(vb_mr_invalidate(&fake_node, pd, mr->rkey, true) == EINVAL);
	fake_node.keys->drawn[0] = 1;            /* the next key, */
	fake_node.keys->drawn[1] = mr->rkey ^ 1; /* skips a key of its entry, which is in use */
	fake_node.keys->left = 2;
	struct ibv_mr *next = reg(buf, 1, BASE, 0);

	CHECK(next->rkey == 1 && next->handle != mr->handle);
	CHECK(!vb_rereg_mr(mr, IBV_REREG_MR_CHANGE_ACCESS, NULL, NULL, 0, LW) && opens(mr, BASE, 1, LW));
	CHECK(!vb_dereg_mr(mr) && !vb_dereg_mr(local) && !vb_dereg_mr(next));
}

static void a_parent_domain_is_its_protection_domain(void)
{
	struct ibv_td_init_attr ta = {0};
	struct ibv_td *td = vb_alloc_td(o.ctx, &ta);
	struct ibv_parent_domain_init_attr a = {.pd = o.pd, .td = td};
	struct ibv_pd *parent = vb_alloc_parent_domain(o.ctx, &a);
	struct ibv_mr *mr = vb_reg_mr(parent, buf, 100, BASE, LW);
	uint64_t va;

	CHECK(vb_mr_check_local(&fake_node, o.pd->handle, mr->lkey, BASE, 8, LW, &va));
	CHECK(vb_dealloc_td(td) == EBUSY && vb_dealloc_pd(o.pd) == EBUSY && vb_dealloc_pd(parent) == EBUSY);
	CHECK(!vb_dereg_mr(mr) && !vb_dealloc_pd(parent) && !vb_dealloc_td(td));
	a.td = NULL;
	a.comp_mask = IBV_PARENT_DOMAIN_INIT_ATTR_ALLOCATORS; /* of which there are none */
	CHECK(!vb_alloc_parent_domain(o.ctx, &a) && errno == EINVAL);
	a.comp_mask = 8;
	CHECK(!vb_alloc_parent_domain(o.ctx, &a) && errno == EINVAL);
	a.comp_mask = 4; /* memory may be unprotected */
	parent = vb_alloc_parent_domain(o.ctx, &a);
	CHECK(parent && !vb_dealloc_pd(parent));
}

static struct ibv_mr *held;

static void dereg_meanwhile(void)
{
	fake.on_quiesce = NULL;
	CHECK(vb_dereg_mr(held) == ENOENT && vb_rereg_mr(held, IBV_REREG_MR_CHANGE_ACCESS, NULL, NULL, 0, 0) == EINVAL);
}

static void nobody_ends_a_region_while_it_is_changed(void)
{
	held = reg(buf, 100, BASE, LW);
	fake.on_quiesce = dereg_meanwhile;
	CHECK(!vb_rereg_mr(held, IBV_REREG_MR_CHANGE_TRANSLATION, NULL, buf + 4096, 100, 0));
	CHECK(!fake.on_quiesce && opens(held, BASE + 4096, 100, LW) && !opens(held, BASE, 1, 0));
	CHECK(!vb_dereg_mr(held));
}

static void *dereg_all(void *arg)
{
	struct ibv_mr **mrs = arg;

	for (int i = 0; i < 200; i++)
		CHECK(!vb_dereg_mr(mrs[i]));
	return NULL;
}

/* AddressSanitizer finds out if the thread that drops the last region still reads the domain. */
static void a_domain_may_be_freed_as_soon_as_its_last_region_is(void)
{
	struct ibv_mr *mrs[200];
	struct ibv_pd *pds[200];
	pthread_t thread;

	fake.threads = true;
	for (int i = 0; i < 200; i++) {
		pds[i] = vb_alloc_pd(o.ctx);
		mrs[i] = vb_reg_mr(pds[i], buf, 100, BASE, LW);
		CHECK(pds[i] && mrs[i]);
	}
	CHECK(!pthread_create(&thread, NULL, dereg_all, mrs));
	for (int i = 0; i < 200; i++)
		while (vb_dealloc_pd(pds[i]) == EBUSY)
			sched_yield();
	pthread_join(thread, NULL);
}

int main(void)
{
	o = open_objects(IBV_QPT_RC);
	int nodes = fake.nodes;

	RUN(a_key_opens_its_range_and_no_more);
	RUN(ranges_end_at_2_to_the_64);
	RUN(iova_names_the_memory);
	RUN(rights_and_protection_domain_are_checked);
	RUN(access_flags_that_make_no_sense_are_refused);
	RUN(a_region_may_allow_windows);
	RUN(memory_that_is_not_there_is_refused);
	RUN(nothing_can_be_registered_where_it_is_not_aligned);
	RUN(a_key_dies_with_its_region);
	RUN(rereg_changes_what_it_is_told_and_keeps_the_key);
	RUN(rereg_that_is_refused_leaves_all_as_it_was);
	RUN(an_invalidated_key_opens_nothing_until_rereg);
	RUN(nobody_ends_a_region_while_it_is_changed);
	RUN(a_domain_may_be_freed_as_soon_as_its_last_region_is);
	RUN(a_parent_domain_is_its_protection_domain);
	fake.nodes = nodes;
	CHECK(!fake_node.mr_count);
	close_objects(&o);
}
