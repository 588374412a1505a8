// rbd_test.c - the backend for Ceph images, with calls in place of librbd that answer when the test wants
// see: backend/rbd.h
// SPDX-License-Identifier: MIT
#include <errno.h>
#include <poll.h>
#include <rbd/features.h>

#include "../../support/check.h"
#include "backend/rbd.h"
#include "host.h"
#include "rbd_fake.h"

/* ---- a host of a target with this image ---- */

static struct nb_ring *ring;
static struct host *admin, *h;
static struct nt_namespace *ns;
static uint64_t now_ms; /* beyond the real time, for deadlines */

static uint64_t clock_ms(void)
{
	struct timespec t;

	clock_gettime(CLOCK_MONOTONIC, &t);
	return (uint64_t)t.tv_sec * 1000 + (uint64_t)t.tv_nsec / 1000000 + now_ms;
}

static int open_backend(const char *path, bool readonly, char why[NB_WHY], struct nb_backend **b)
{
	struct nb_config c = {.kind = "rbd", .path = path, .readonly = readonly, .wait_ms = 5000, .why = why};

	*why = 0;
	return nb_open(&c, ring, b);
}

static void up(void)
{
	struct nb_backend *b;
	char why[NB_WHY];

	SAME(open_backend("p/i", false, why, &b), 0);
	target_open(16 << 20);
	ns = nt_namespace_add(subsystem, 1, b, NULL);
	CHECK(ns);
	admin = host_admin();
	h = host_io(admin, 1);
}

static void down(void)
{
	host_close(h);
	host_close(admin);
	target_close();
	CHECK(nb_ring_drain(ring, LONG_MS));
	SAME(images, 0);
	SAME(connections, 0);
}

static void one_turn(int ms)
{
	struct pollfd p = {.fd = nb_ring_fd(ring), .events = POLLIN};

	poll(&p, 1, ms);
	nb_ring_reap(ring);
	nb_ring_turn(ring, clock_ms());
}

static uint16_t answer_to(uint16_t cid)
{
	for (int ms = 0; ms < LONG_MS && !host_answer(h, cid); ms += 10)
		one_turn(10);
	CHECK(host_answer(h, cid));
	uint16_t status = host_answer(h, cid)->status;

	host_settle(h);
	return status;
}

static uint16_t act(struct nv_sqe c)
{
	return answer_to(host_post(h, c, 0));
}

static void what_is_written_is_read(void)
{
	up();
	for (uint32_t i = 0; i < 65536; i++)
		h->out[i] = (uint8_t)(i * 7 + i / 4096);
	SAME(act(io_command(NV_IO_WRITE, 100, 128)), 0);
	CHECK(!memcmp(bytes + 51200, h->out, 65536));
	SAME(act(io_command(NV_IO_READ, 100, 128)), 0);
	CHECK(!memcmp(h->in, h->out, 65536));
	SAME(act(io_command(NV_IO_FLUSH, 0, 1)), 0);
	SAME(act(io_command(NV_IO_WRITE_ZEROES, 101, 2)), 0);
	CHECK(bytes[51200 + 511] && !bytes[51200 + 512] && !bytes[51200 + 1535] && bytes[51200 + 1537]);
	SAME(act(io_command(NV_IO_READ, SIZE / 512, 1)), NV_LBA_RANGE | NV_DNR);
	down();
}

static uint16_t fused(uint64_t block, uint32_t n, uint16_t *second)
{
	struct nv_sqe c = io_command(NV_IO_COMPARE, block, n), w = io_command(NV_IO_WRITE, block, n);

	c.fuse = NV_FUSE_FIRST;
	w.fuse = NV_FUSE_SECOND;
	uint16_t first = host_post(h, c, 0), then = host_post(h, w, 0);
	uint16_t status = answer_to(first);

	*second = answer_to(then);
	return status;
}

static void compare_and_write_is_one_step_of_the_cluster(void)
{
	uint16_t second;
	uint32_t before;

	up();
	memset(bytes, 0, SIZE);
	memset(h->out, 0, 1024);
	before = answered_now();
	SAME(fused(8, 1, &second), 0);
	SAME(second, 0);
	SAME(answered_now() - before, 1);
	bytes[8 * 512 + 3] = 1;
	SAME(fused(8, 1, &second), NV_COMPARE_FAILED | NV_DNR);
	SAME(second, NV_FUSED_FAILED);
	/* across two objects: read, compared, written */
	before = answered_now();
	SAME(fused(OBJECT / 512 - 1, 2, &second), 0);
	SAME(second, 0);
	SAME(answered_now() - before, 2);
	down();
}

/* Every byte that the cluster still writes to belongs to nobody else. */
static void a_cluster_that_does_not_answer_lets_hosts_try_again(void)
{
	uint16_t cid[8];

	up();
	memset(bytes, 5, SIZE);
	set_stopped(true);
	for (int i = 0; i < 8; i++)
		cid[i] = host_post(h, io_command(NV_IO_READ, 4096, 1024), 0);
	one_turn(0);
	CHECK(!host_answer(h, cid[0]));
	now_ms += 6000;
	uint32_t used = nt_pool_used(target.pool);

	for (int i = 0; i < 8; i++)
		SAME(answer_to(cid[i]), NV_INTERNAL_PATH);
	SAME(ns->backend->late, 8);
	SAME(nt_pool_used(target.pool), used);
	SAME(h->q.owner->memory[NT_USUAL], 0);
	/* with so much memory there, no more goes to the cluster */
	cid[0] = host_post(h, io_command(NV_IO_WRITE, 0, 8), 0);
	now_ms += 6000;
	SAME(answer_to(cid[0]), NV_INTERNAL_PATH);
	SAME(nt_pool_used(target.pool), used);
	now_ms = 0;
	cid[0] = host_post(h, io_command(NV_IO_READ, 0, 8), 0);
	set_stopped(false);
	SAME(answer_to(cid[0]), 0);
	for (int ms = 0; ms < LONG_MS && nt_pool_used(target.pool); ms += 10)
		one_turn(10);
	SAME(nt_pool_used(target.pool), 0);
	down();
}

static void another_client_that_keeps_the_lock_lets_hosts_try_again(void)
{
	up();
	set_fails(EROFS);
	SAME(act(io_command(NV_IO_WRITE, 0, 8)), NV_INTERNAL_PATH);
	set_fails(0);
	SAME(act(io_command(NV_IO_WRITE, 0, 8)), 0);
	down();
}

static void a_host_that_leaves_meanwhile_is_no_matter(void)
{
	up();
	set_stopped(true);
	host_post(h, io_command(NV_IO_READ, 0, 1024), 0);
	now_ms += 6000;
	one_turn(0);
	SAME(ns->backend->late, 1);
	nt_namespace_remove(ns);
	host_close(h);
	host_close(admin);
	CHECK(!nb_ring_drain(ring, 50));
	SAME(images, 1);
	set_stopped(false);
	CHECK(nb_ring_drain(ring, LONG_MS));
	SAME(images, 0);
	SAME(nt_pool_used(target.pool), 0);
	target_close();
	now_ms = 0;
}

static void a_blocklisted_target_sends_hosts_to_another(void)
{
	struct nb_backend *b;
	char why[NB_WHY];

	up();
	uint8_t before[16];

	memcpy(before, ns->uuid, 16);
	set_fails(ESHUTDOWN);
	SAME(act(io_command(NV_IO_WRITE, 0, 8)), NV_ANA_INACCESSIBLE_PATH);
	set_fails(0);
	uint32_t n = answered_now();

	SAME(act(io_command(NV_IO_WRITE, 0, 8)), NV_ANA_INACCESSIBLE_PATH);
	SAME(act(io_command(NV_IO_READ, 0, 8)), NV_ANA_INACCESSIBLE_PATH);
	SAME(answered_now(), n);
	host_do(admin, get_log(NV_LOG_ANA, 4096, 0));
	SAME(nv_get32(admin->in + 16), NT_ANA_FENCED);
	SAME(admin->in[16 + 16], NV_ANA_INACCESSIBLE);
	SAME(nv_get32(admin->in + 16 + 32), 1);
	SAME(open_backend("p/i", false, why, &b), 0);
	SAME(connections, 2);
	nt_namespace_replace(ns, b);
	SAME(act(io_command(NV_IO_WRITE, 0, 8)), 0);
	CHECK(!memcmp(before, ns->uuid, 16));
	down();
}

static void another_size_is_told(void)
{
	up();
	size = SIZE / 2;
	watcher(watcher_arg);
	one_turn(1000);
	SAME(ns->backend->size, SIZE / 2);
	SAME(admin->q.ctrl->changed_count, 1);
	SAME(act(io_command(NV_IO_READ, SIZE / 512 - 1, 1)), NV_LBA_RANGE | NV_DNR);
	size = SIZE;
	watcher(watcher_arg);
	one_turn(1000);
	SAME(act(io_command(NV_IO_READ, SIZE / 512 - 1, 1)), 0);
	host_do(admin, identify(NV_CNS_NS, 1));
	SAME(nv_get64(admin->in), SIZE / 512);
	SAME(nv_get16(admin->in + 46), OBJECT / 512);
	down();
}

static void an_opening_that_is_read_only_is_told(void)
{
	struct nb_backend *b;
	char why[NB_WHY];

	up();
	SAME(open_backend("p/i", true, why, &b), 0);
	SAME(admin->q.ctrl->changed_count, 0);
	nt_namespace_replace(ns, b);
	SAME(admin->q.ctrl->changed_count, 1);
	SAME(act(io_command(NV_IO_WRITE, 0, 8)), NV_WRITE_PROTECTED | NV_DNR);
	down();
}

/* Before it is watched, nobody tells of a change. */
static void a_size_that_changes_while_the_image_is_opened_is_seen(void)
{
	size_at_watch = SIZE / 2;
	up();
	SAME(ns->backend->size, SIZE / 2);
	SAME(act(io_command(NV_IO_READ, SIZE / 512 - 1, 1)), NV_LBA_RANGE | NV_DNR);
	down();
	size_at_watch = 0;
	size = SIZE;
}

/* Also if the namespace may have only one command at its medium. */
static void writes_that_wait_for_space_leave_their_places_to_reads(void)
{
	up();
	struct nt_limits l = ns->gate.limits;

	l.depth = 1;
	nt_limit_namespace(ns, &l);
	target.now = clock_ms(); /* deadlines of what waits for its turn count from it */
	set_full(ENOSPC);
	uint16_t first = host_post(h, io_command(NV_IO_WRITE, 0, 8), 0),
	         second = host_post(h, io_command(NV_IO_WRITE, 8, 8), 0);

	SAME(act(io_command(NV_IO_READ, 0, 8)), 0);
	CHECK(!host_answer(h, first) && !host_answer(h, second));
	set_full(0);
	SAME(answer_to(first), 0);
	SAME(answer_to(second), 0);
	SAME(ns->at_medium, 0);
	down();
}

static void snapshots_are_read_only(void)
{
	struct nb_backend *b;
	char why[NB_WHY];

	SAME(open_backend("p/i@s", false, why, &b), 0);
	CHECK(b->readonly && !b->compare_write);
	CHECK(!strcmp(b->identity, "rbd fsid 7  abc 3"));
	nb_close(b);
	CHECK(nb_ring_drain(ring, LONG_MS));
}

static void fails_with(const char *path, int error, const char *says)
{
	struct nb_backend *b;
	char why[NB_WHY];

	SAME(open_backend(path, false, why, &b), error);
	if (strcmp(why, says))
		CHECK_FAILED("'%s', not '%s'", why, says);
	CHECK(nb_ring_drain(ring, LONG_MS));
	SAME(images, 0);
	SAME(connections, 0);
}

static void every_failure_has_one_line(void)
{
	static const char *const wrong[] = {"", "p", "/i", "p/", "p//i", "p/i@", "p/@s", "p/n/i/x"};

	for (size_t i = 0; i < sizeof(wrong) / sizeof(*wrong); i++)
		fails_with(wrong[i], EINVAL, "wanted: POOL/IMAGE, POOL/NAMESPACE/IMAGE, or either with @SNAPSHOT");
	connect_error = EACCES;
	fails_with("p/i", EACCES, "the cluster lets client.admin not in: Permission denied");
	connect_error = 0;
	pool_error = ENOENT;
	fails_with("p/i", ENOENT, "pool p: No such file or directory");
	pool_error = 0;
	open_error = ENOENT;
	fails_with("p/n/i@s", ENOENT, "image i@s: No such file or directory");
	open_error = EPERM;
	fails_with("p/i", EPERM,
	           "image i: client.admin needs the capability osd 'profile rbd pool=p': Operation not permitted");
	fails_with(
	        "p/i@s", EPERM,
	        "image i: client.admin needs the capability osd 'profile rbd-read-only pool=p': Operation not permitted");
	open_error = 0;
	command_error = EACCES;
	fails_with("p/i", EACCES,
	           "client.admin needs the capability mon 'profile rbd', to shut clients out that have failed: "
	           "Permission denied");
	command_error = EINVAL; /* what the monitor says if it would do it: there is no such address */
	features = 0;
	fails_with("p/i", EOPNOTSUPP,
	           "image i has no exclusive lock (rbd feature enable IMAGE exclusive-lock): Operation not supported");
	features = RBD_FEATURE_EXCLUSIVE_LOCK;
	rbd_cache = "true";
	fails_with("p/i", EOPNOTSUPP,
	           "image i has a cache of its own (rbd config image rm IMAGE rbd_cache): Operation not supported");
	rbd_cache = "false";
	size = 100;
	fails_with("p/i", ENODATA, "");
	size = SIZE;
}

int main(void)
{
	fake_begin();
	SAME(nb_ring_open(&ring, false), 0);
	RUN(what_is_written_is_read);
	RUN(compare_and_write_is_one_step_of_the_cluster);
	RUN(a_cluster_that_does_not_answer_lets_hosts_try_again);
	RUN(another_client_that_keeps_the_lock_lets_hosts_try_again);
	RUN(a_host_that_leaves_meanwhile_is_no_matter);
	RUN(a_blocklisted_target_sends_hosts_to_another);
	RUN(another_size_is_told);
	RUN(an_opening_that_is_read_only_is_told);
	RUN(a_size_that_changes_while_the_image_is_opened_is_seen);
	RUN(writes_that_wait_for_space_leave_their_places_to_reads);
	RUN(snapshots_are_read_only);
	RUN(every_failure_has_one_line);
	nb_ring_close(ring);
	fake_end();
	return 0;
}
