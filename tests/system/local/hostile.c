// hostile.c - a peer writes anything into the memory that it shares with us: we survive, and other peers are served
// docs/same-host.md; core/seg.h, engine/local/record.h (the attacker uses these)
// SPDX-License-Identifier: MIT
#include "pair.h"

#include <fcntl.h>
#include <signal.h>
#include <sys/mman.h>

#include "engine/local/record.h"
#include "core/seg.h"

enum attack { RING, RECORDS, QUEUE_PAIR, REGIONS, SLOT, HAZARD, BELL, TRUNCATE, ATTACKS };
struct raid {
	enum attack how;
	uint64_t seed;
};

/* Our own segment, as the library has mapped it: writable only for us. */
static void *own(const char *name, size_t at_least)
{
	FILE *f = fopen("/proc/self/maps", "re");
	char line[512], path[200];
	void *found = NULL;

	CHECK(f);
	while (!found && fgets(line, sizeof(line), f)) {
		unsigned long from, to;
		char perms[8];

		path[0] = 0;
		if (sscanf(line, "%lx-%lx %7s %*s %*s %*s %199s", &from, &to, perms, path) >= 3 && strstr(path, name) &&
		    perms[1] == 'w' && to - from >= at_least)
			found = (void *)from;
	}
	fclose(f);
	return found;
}

static int own_fd(const char *name)
{
	for (int fd = 3; fd < 100; fd++) {
		char link[64], path[200];
		ssize_t n;

		snprintf(link, sizeof(link), "/proc/self/fd/%d", fd);
		n = readlink(link, path, sizeof(path) - 1);
		if (n <= 0)
			continue;
		path[n] = 0;
		if (strstr(path, name))
			return fd;
	}
	return -1;
}

/* Records with valid heads at the start of the victim's ring and invalid contents. */
static void forge_records(void *seg, uint32_t victim, uint32_t me, struct far far, uint64_t *rnd)
{
	uint8_t *ring = (uint8_t *)seg + VB_SEG_RINGS_OFF + VB_QP_LANE(victim) * (uint64_t)VB_RING_BYTES;
	uint32_t gen = atomic_load(&vb_seg_qp(seg, me)->gen), psn = me & 0xffffff;
	uint64_t at = 0;

	for (int i = 0; i < 200; i++) {
		struct vb_rec *r = (struct vb_rec *)(ring + at);
		struct vb_rec_ext *x = (struct vb_rec_ext *)(r + 1);
		struct vb_rec_span *span = (struct vb_rec_span *)(x + 1);
		uint32_t lines = random_next(rnd) % 40 + 2;

		r->dest = victim | (random_next(rnd) % 13) << 24;
		r->src = me | (random_next(rnd) & 0xff) << 24;
		r->psn = ((random_next(rnd) % 4 ? psn + (uint32_t)i : random_next(rnd)) & 0xffffff) | (gen & 0xff)
		                                                                                              << 24;
		r->length = random_next(rnd) % 3 ? random_next(rnd) % (lines * 64) : random_next(rnd);
		r->ack = random_next(rnd);
		r->imm = random_next(rnd) % 2 ? far.rkey : random_next(rnd);
		x->remote_addr = far.addr + random_next(rnd) % 8192 - 2048;
		x->rkey = far.rkey;
		x->total = random_next(rnd) % 2 ? random_next(rnd) : random_next(rnd) % 65536;
		x->compare_add = x->swap = random_next(rnd);
		span[0] = (struct vb_rec_span){
		        random_next(rnd), random_next(rnd) % 2 ? random_next(rnd) : (uint64_t)random_next(rnd) << 32};
		atomic_store((_Atomic uint64_t *)(ring + at + lines * 64), 0);
		atomic_store(&r->mark, (uint64_t)lines | (at / 64) << 32);
		at += lines * 64;
	}
}

static void attacker(int fd, void *arg)
{
	const struct raid *raid = arg;
	uint64_t rnd = raid->seed;
	struct dev d;
	struct link l;
	struct mem m;
	char c;

	dev_open(&d);
	mem_make(&m, &d, 1 << 16);
	link_make(&l, &d, &(struct conf){0});
	struct far far = far_hear(fd);
	mem_tell(&m, fd);
	link_join(&l, fd);
	uint8_t *seg = own("verbena-segment", VB_SEG_RINGS_OFF);
	uint32_t victim = l.it.qpn;

	CHECK(seg);
	uint8_t *ring = seg + VB_SEG_RINGS_OFF + VB_QP_LANE(victim) * (uint64_t)VB_RING_BYTES;

	if (raid->how == TRUNCATE) {
		int s = own_fd("verbena-segment"), b = own_fd("verbena-doorbell");

		CHECK(s >= 0 && b >= 0);
		CHECK(ftruncate(s, 0) && errno == EPERM);
		CHECK(ftruncate(b, 0) && errno == EPERM);
	}
	for (int i = 0; i < 400; i++) {
		void *what = seg;
		size_t n = 0;

		switch (raid->how) {
		case RING:
			what = ring;
			n = VB_RING_BYTES;
			break;
		case RECORDS:
			if (i < 3)
				forge_records(seg, victim, l.qp->qp_num, far, &rnd);
			POST(&l, .op = IBV_WR_SEND, .id = 1, .m = &m, .len = 8, .quiet = true);
			i += 40;
			break;
		case QUEUE_PAIR:
			what = vb_seg_qp(seg, l.qp->qp_num);
			n = sizeof(struct vb_qp_shared);
			break;
		case REGIONS:
			what = vb_seg_mr(seg, random_next(&rnd));
			n = 4096;
			break;
		case SLOT:
			what = vb_seg_slot(seg, VB_QP_LANE(victim));
			n = sizeof(struct vb_slot_shared);
			break;
		case HAZARD: /* a hazard that never ends */
			for (int k = 0; k < 8; k++)
				atomic_store(&vb_seg_slot(seg, VB_QP_LANE(victim))->hazard[k],
				             (uint64_t)far.rkey << 32 | victim);
			break;
		case BELL:
			what = own("verbena-doorbell", 4096);
			n = sizeof(struct vb_doorbell);
			break;
		default:
			break;
		}
		for (int k = 0; n && k < 64; k++)
			((volatile uint8_t *)what)[random_next(&rnd) % n] = (uint8_t)random_next(&rnd);
		if (heard(fd, 0))
			break;
		if (i % 8 == 0)
			sleep_ms(1);
	}
	tell(fd, "a", 1);
	hear(fd, &c, 1);
	_exit(0); /* copies to us may still run */
}

/* An honest peer, which works all the time. */
static void honest(int fd, void *arg)
{
	struct dev d;
	struct link l;
	struct mem m;
	uint32_t n;

	dev_open(&d);
	mem_make(&m, &d, 1 << 16);
	link_make(&l, &d, &(struct conf){0});
	mem_tell(&m, fd);
	link_join(&l, fd);
	for (hear(fd, &n, sizeof(n)); n; hear(fd, &n, sizeof(n))) {
		post_recv(&l, n, &m, 0, 4096);
		tell(fd, "r", 1);
		expect(l.rcq, n, IBV_WC_SUCCESS);
		CHECK(holds(m.p, 4000, n));
	}
}

/*
 * Fails if we crash, hang or spin forever; if a byte outside the granted region changes; if the honest peer's traffic
 * fails; or if the dead attacker's segment keeps us from deregistering.
 */
static void raids(enum attack how)
{
	unsigned rounds = (unsigned)count_or(under_sanitizer() ? 4 : 10);
	struct peer h = start(honest, NULL);
	struct dev d;
	struct link lh;
	struct mem mh, m;

	dev_open(&d);
	mem_make(&mh, &d, 1 << 16);
	link_make(&lh, &d, &(struct conf){0});
	struct far hf = far_hear(h.fd);
	link_join(&lh, h.fd);
	for (unsigned round = 0; round < rounds; round++) {
		struct raid raid = {how, 0x1234567 + round * 77 + (uint64_t)how * 1000};
		struct peer p = start(attacker, &raid);
		uint8_t *whole = mmap(NULL, 3 << 16, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
		struct link l;

		CHECK(whole != MAP_FAILED);
		memset(whole, 0x5a, 3 << 16);
		m = (struct mem){whole + (1 << 16), 1 << 16, NULL};
		mem_reg(&m, &d, ALL_ACCESS);
		link_make(&l, &d, &(struct conf){.timeout = 10, .retry = 2, .rnr_retry = 2});
		mem_tell(&m, p.fd);
		for (uint64_t i = 0; i < 32; i++)
			post_recv(&l, i, &m, i * 1024, 1024);
		struct far af;
		struct addr it;

		hear(p.fd, &af, sizeof(af));
		tell(p.fd, &l.me, sizeof(l.me));
		hear(p.fd, &it, sizeof(it));
		link_to(&l, &it);
		meet_up(p.fd);
		uint64_t until = now_ms() + 60, k = 0;
		bool open = true;

		for (uint32_t n = 1; now_ms() < until; n++) {
			struct ibv_wc wc;

			for (; open && k < 30; k++) {
				struct wr w = {.op = k % 3 == 0   ? IBV_WR_SEND
				                     : k % 3 == 1 ? IBV_WR_RDMA_READ
				                                  : IBV_WR_ATOMIC_FETCH_AND_ADD,
				               .id = k,
				               .m = &m,
				               .off = 40960,
				               .len = k % 3 == 1 ? 4096 : 8,
				               .far = af};

				open = !try_post(&l, &w);
			}
			while (ibv_poll_cq(l.scq, 1, &wc))
				if (wc.status != IBV_WC_SUCCESS)
					open = false;
			while (ibv_poll_cq(l.rcq, 1, &wc))
				;
			fill(mh.p, 4000, n);
			tell(h.fd, &n, sizeof(n));
			char c;

			hear(h.fd, &c, 1);
			POST(&lh, .op = IBV_WR_SEND, .id = n, .m = &mh, .len = 4000);
			expect(lh.scq, n, IBV_WC_SUCCESS);
			POST(&lh, .op = IBV_WR_RDMA_READ, .id = n, .m = &mh, .off = 8192, .len = 4000, .far = hf);
			expect(lh.scq, n, IBV_WC_SUCCESS);
		}
		char c;

		tell(p.fd, "e", 1);
		hear(p.fd, &c, 1);
		for (int i = 0; i < 1 << 16; i++)
			CHECK(whole[i] == 0x5a && whole[(2 << 16) + i] == 0x5a);
		kill_peer(&p);
		close(p.fd);
		/* everything can be destroyed in bounded time */
		CHECK(!ibv_dereg_mr(m.mr));
		link_end(&l);
		munmap(whole, 3 << 16);
	}
	uint32_t none = 0;

	tell(h.fd, &none, sizeof(none));
	finish(&h);
}

static void a_peer_that_fills_its_ring_with_anything(void)
{
	raids(RING);
}

static void a_peer_that_forges_records(void)
{
	raids(RECORDS);
}

static void a_peer_that_lies_about_its_queue_pair(void)
{
	raids(QUEUE_PAIR);
}

static void a_peer_that_lies_about_its_regions(void)
{
	raids(REGIONS);
}

static void a_peer_that_lies_about_what_it_has_consumed(void)
{
	raids(SLOT);
}

static void a_peer_that_claims_to_copy_for_ever(void)
{
	raids(HAZARD);
}

static void a_peer_that_rings_for_nothing(void)
{
	raids(BELL);
}

static void a_peer_that_cuts_its_segment(void)
{
	raids(TRUNCATE);
}

int main(int argc, char **argv)
{
	static const struct test tests[] = {
	        {"a peer that fills its ring with anything", a_peer_that_fills_its_ring_with_anything},
	        {"a peer that forges records", a_peer_that_forges_records},
	        {"a peer that lies about its queue pair", a_peer_that_lies_about_its_queue_pair},
	        {"a peer that lies about its regions", a_peer_that_lies_about_its_regions},
	        {"a peer that lies about what it has consumed", a_peer_that_lies_about_what_it_has_consumed},
	        {"a peer that claims to copy for ever", a_peer_that_claims_to_copy_for_ever},
	        {"a peer that rings for nothing", a_peer_that_rings_for_nothing},
	        {"a peer that cuts its segment", a_peer_that_cuts_its_segment},
	};

	return RUN_TESTS(argc, argv, tests);
}
