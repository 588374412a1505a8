// rbd_test.c - the backend for Ceph images, with calls in place of librbd that answer when the test wants
// see: backend/rbd.h
// SPDX-License-Identifier: MIT
#include <errno.h>
#include <poll.h>
#include <pthread.h>
#include <rbd/features.h>
#include <stdatomic.h>

#include "../../support/check.h"
#include "backend/rbd.h"
#include "host.h"

#define SIZE (8u << 20)
#define OBJECT (1u << 20)

/* ---- the stand-in: one image, whose requests a thread of its own answers ---- */

struct call {
	struct call *next;
	rbd_callback_t callback;
	void *arg;
	ssize_t result;
	char op;
	uint64_t offset, length;
	char *into;
	const char *from, *compare;
	bool done;
};

static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
static pthread_cond_t more = PTHREAD_COND_INITIALIZER;
static struct call *calls, **calls_end = &calls; /* the fields below, too */
static bool stopped, ends;
static int fails; /* errno of all requests */
static uint32_t answered;
static char bytes[SIZE];
static uint64_t size = SIZE, size_at_watch; /* 0: it does not change then */
static uint64_t features = RBD_FEATURE_EXCLUSIVE_LOCK;
static const char *rbd_cache = "false";
static int connect_error, pool_error, open_error;
static uint32_t connections, images;
static rbd_update_callback_t watcher;
static void *watcher_arg;
static int cluster, pool, image;

static ssize_t perform(struct call *c)
{
	if (fails)
		return -fails;
	switch (c->op) {
	case 'r':
		if (c->offset + c->length > size)
			return (ssize_t)(size - c->offset);
		memcpy(c->into, bytes + c->offset, c->length);
		return (ssize_t)c->length;
	case 'c':
		if (memcmp(bytes + c->offset, c->compare, c->length))
			return -EILSEQ;
		/* fallthrough */
	case 'w':
		memcpy(bytes + c->offset, c->from, c->length);
		return 0;
	default:
		memset(bytes + c->offset, 0, c->length);
		return 0;
	}
}

static void *answer_calls(void *arg)
{
	pthread_mutex_lock(&lock);
	while (!ends) {
		struct call *c = calls;

		if (!c || stopped) {
			pthread_cond_wait(&more, &lock);
			continue;
		}
		if (!(calls = c->next))
			calls_end = &calls;
		c->result = perform(c);
		answered++;
		pthread_mutex_unlock(&lock);
		c->callback(c, c->arg);
		pthread_mutex_lock(&lock);
	}
	pthread_mutex_unlock(&lock);
	return NULL;
}

static int begin_call(struct call *c, char op, uint64_t offset, uint64_t length)
{
	c->op = op;
	c->offset = offset;
	c->length = length;
	pthread_mutex_lock(&lock);
	*calls_end = c;
	calls_end = &c->next;
	pthread_cond_signal(&more);
	pthread_mutex_unlock(&lock);
	return 0;
}

static void set_stopped(bool stop)
{
	pthread_mutex_lock(&lock);
	stopped = stop;
	pthread_cond_signal(&more);
	pthread_mutex_unlock(&lock);
}

static void set_fails(int error)
{
	pthread_mutex_lock(&lock);
	fails = error;
	pthread_mutex_unlock(&lock);
}

static uint32_t answered_now(void)
{
	pthread_mutex_lock(&lock);
	uint32_t n = answered;

	pthread_mutex_unlock(&lock);
	return n;
}

static int fake_create(rados_t *out, const char *id)
{
	*out = &cluster;
	return 0;
}
static int fake_set(rados_t c, const char *name, const char *value)
{
	return 0;
}
static int fake_read(rados_t c, const char *file)
{
	return file ? -ENOENT : 0;
}
static int fake_env(rados_t c, const char *name)
{
	return 0;
}
static int fake_connect(rados_t c)
{
	connections += !connect_error;
	return -connect_error;
}
static void fake_shutdown(rados_t c)
{
	connections -= connections > 0;
}
static int fake_fsid(rados_t c, char *to, size_t n)
{
	strcpy(to, "fsid");
	return 4;
}
static int fake_pool(rados_t c, const char *name, rados_ioctx_t *out)
{
	*out = &pool;
	return -pool_error;
}
static void fake_pool_end(rados_ioctx_t io)
{
}
static void fake_space(rados_ioctx_t io, const char *name)
{
}
static int64_t fake_pool_id(rados_ioctx_t io)
{
	return 7;
}
static int fake_open(rados_ioctx_t io, const char *name, rbd_image_t *out, const char *snap)
{
	*out = &image;
	images += !open_error;
	return -open_error;
}
static int fake_close(rbd_image_t i)
{
	images--;
	return 0;
}
static int fake_stat(rbd_image_t i, rbd_image_info_t *info, size_t n)
{
	*info = (rbd_image_info_t){.size = size, .obj_size = OBJECT};
	return 0;
}
static int fake_size(rbd_image_t i, uint64_t *out)
{
	*out = size;
	return 0;
}
static int fake_features(rbd_image_t i, uint64_t *out)
{
	*out = features;
	return 0;
}
static int fake_id(rbd_image_t i, char *out, size_t n)
{
	strcpy(out, "abc");
	return 0;
}
static int fake_unit(rbd_image_t i, uint64_t *out)
{
	*out = OBJECT;
	return 0;
}
static int fake_snap_id(rbd_image_t i, const char *name, uint64_t *out)
{
	*out = 3;
	return 0;
}
static int fake_options(rbd_image_t i, rbd_config_option_t *list, int *n)
{
	list[0] = (rbd_config_option_t){.name = (char *)"rbd_cache", .value = (char *)(uintptr_t)rbd_cache};
	*n = 1;
	return 0;
}
static void fake_options_end(rbd_config_option_t *list, int n)
{
}
static int fake_watch(rbd_image_t i, uint64_t *handle, rbd_update_callback_t fn, void *arg)
{
	watcher = fn;
	watcher_arg = arg;
	size = size_at_watch ? size_at_watch : size;
	return 0;
}
static int fake_unwatch(rbd_image_t i, uint64_t handle)
{
	watcher = NULL;
	return 0;
}
static int fake_completion(void *arg, rbd_callback_t fn, rbd_completion_t *out)
{
	struct call *c = calloc(1, sizeof(*c));

	c->arg = arg;
	c->callback = fn;
	*out = c;
	return 0;
}
static ssize_t fake_result(rbd_completion_t c)
{
	return ((struct call *)c)->result;
}
static void fake_release(rbd_completion_t c)
{
	free(c);
}
static int fake_aio_read(rbd_image_t i, uint64_t at, size_t n, char *to, rbd_completion_t c)
{
	((struct call *)c)->into = to;
	return begin_call(c, 'r', at, n);
}
static int fake_aio_write(rbd_image_t i, uint64_t at, size_t n, const char *from, rbd_completion_t c)
{
	((struct call *)c)->from = from;
	return begin_call(c, 'w', at, n);
}
static int fake_aio_zero(rbd_image_t i, uint64_t at, size_t n, rbd_completion_t c, int thick, int flags)
{
	return begin_call(c, 'z', at, n);
}
static ssize_t fake_aio_compare(rbd_image_t i, uint64_t at, size_t n, const char *is, const char *from,
                                rbd_completion_t c, uint64_t *mismatch, int flags)
{
	if (at / OBJECT != (at + n - 1) / OBJECT)
		return -EINVAL;
	((struct call *)c)->compare = is;
	((struct call *)c)->from = from;
	return begin_call(c, 'c', at, n);
}

static const struct nb_rbd_library fake = {
        fake_create,      fake_set,      fake_read,       fake_env,        fake_connect, fake_shutdown, fake_fsid,
        fake_pool,        fake_pool_end, fake_space,      fake_pool_id,    fake_open,    fake_open,     fake_close,
        fake_stat,        fake_size,     fake_features,   fake_id,         fake_unit,    fake_snap_id,  fake_options,
        fake_options_end, fake_watch,    fake_unwatch,    fake_completion, fake_result,  fake_release,  fake_aio_read,
        fake_aio_write,   fake_aio_zero, fake_aio_compare};

const struct nb_rbd_library *nb_rbd_load(char *why)
{
	return &fake;
}

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
	SAME(h->q.owner->memory, 0);
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
	fails_with("p/i", EPERM, "image i: Operation not permitted");
	open_error = 0;
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
	pthread_t t;

	pthread_create(&t, NULL, answer_calls, NULL);
	SAME(nb_ring_open(&ring, false), 0);
	RUN(what_is_written_is_read);
	RUN(compare_and_write_is_one_step_of_the_cluster);
	RUN(a_cluster_that_does_not_answer_lets_hosts_try_again);
	RUN(a_host_that_leaves_meanwhile_is_no_matter);
	RUN(a_blocklisted_target_sends_hosts_to_another);
	RUN(another_size_is_told);
	RUN(a_size_that_changes_while_the_image_is_opened_is_seen);
	RUN(snapshots_are_read_only);
	RUN(every_failure_has_one_line);
	nb_ring_close(ring);
	pthread_mutex_lock(&lock);
	ends = true;
	pthread_cond_signal(&more);
	pthread_mutex_unlock(&lock);
	pthread_join(t, NULL);
	return 0;
}
