// rbd_fake.c - calls in place of librados and librbd, which answer when the test wants
// see: rbd_fake.h
// SPDX-License-Identifier: MIT
#include "rbd_fake.h"

#include <errno.h>
#include <pthread.h>
#include <rbd/features.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* ---- the stand-in: one image, whose requests a thread of its own answers ---- */

/* A connection: pools and images are used by one of them. */
struct client {
	char address[40];
	bool blocklisted;
	struct client *next;
};

struct call {
	struct call *next;
	rbd_callback_t callback;
	void *arg;
	ssize_t result;
	const struct client *client;
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
static int full;  /* … of writes */
static uint32_t answered;
char bytes[SIZE];
uint64_t size = SIZE, size_at_watch;
uint64_t features = RBD_FEATURE_EXCLUSIVE_LOCK;
const char *rbd_cache = "false";
_Atomic int connect_error, pool_error, open_error, command_error;
uint32_t connections, images;
rbd_update_callback_t watcher;
void *watcher_arg;

static struct client *clients;
static uint32_t client_count;

static bool is_blocklisted(const void *client)
{
	pthread_mutex_lock(&lock);
	bool is = ((const struct client *)client)->blocklisted;

	pthread_mutex_unlock(&lock);
	return is;
}

static ssize_t perform(struct call *c)
{
	if (fails || c->client->blocklisted)
		return fails ? -fails : -ESHUTDOWN;
	if (full && c->op != 'r' && c->op != 'z')
		return -full;
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

static int begin_call(const struct client *client, struct call *c, char op, uint64_t offset, uint64_t length)
{
	c->client = client;
	c->op = op;
	c->offset = offset;
	c->length = length;
	pthread_mutex_lock(&lock);
	*calls_end = c;
	calls_end = &c->next;
	pthread_cond_broadcast(&more);
	pthread_mutex_unlock(&lock);
	return 0;
}

void set_stopped(bool stop)
{
	pthread_mutex_lock(&lock);
	stopped = stop;
	pthread_cond_broadcast(&more);
	pthread_mutex_unlock(&lock);
}

void set_fails(int error)
{
	pthread_mutex_lock(&lock);
	fails = error;
	pthread_mutex_unlock(&lock);
}

void set_full(int error)
{
	pthread_mutex_lock(&lock);
	full = error;
	pthread_mutex_unlock(&lock);
}

uint32_t answered_now(void)
{
	pthread_mutex_lock(&lock);
	uint32_t n = answered;

	pthread_mutex_unlock(&lock);
	return n;
}

static int fake_create(rados_t *out, const char *id)
{
	struct client *c = calloc(1, sizeof(*c));

	pthread_mutex_lock(&lock);
	snprintf(c->address, sizeof(c->address), "192.0.2.1:0/%u", ++client_count);
	c->next = clients;
	clients = c;
	pthread_mutex_unlock(&lock);
	*out = c;
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
	pthread_mutex_lock(&lock);
	connections += !connect_error;
	pthread_mutex_unlock(&lock);
	return -connect_error;
}
static void fake_shutdown(rados_t c)
{
	struct client **at = &clients;

	pthread_mutex_lock(&lock);
	connections -= connections > 0;
	while (*at != c)
		at = &(*at)->next;
	*at = ((struct client *)c)->next;
	pthread_mutex_unlock(&lock);
	free(c);
}
static int fake_command(rados_t c, const char **command, size_t n, const char *in, size_t in_n, char **out,
                        size_t *out_n, char **said, size_t *said_n)
{
	return -command_error;
}
static int fake_fsid(rados_t c, char *to, size_t n)
{
	strcpy(to, "fsid");
	return 4;
}
static int fake_pool(rados_t c, const char *name, rados_ioctx_t *out)
{
	*out = c;
	return -pool_error;
}
static void fake_pool_end(rados_ioctx_t io)
{
}
static void fake_space(rados_ioctx_t io, const char *name)
{
}
static void fake_full_try(rados_ioctx_t io)
{
}
static int64_t fake_pool_id(rados_ioctx_t io)
{
	return 7;
}
static int fake_open(rados_ioctx_t io, const char *name, rbd_image_t *out, const char *snap)
{
	*out = io;
	pthread_mutex_lock(&lock);
	images += !open_error;
	pthread_mutex_unlock(&lock);
	return -open_error;
}
static int fake_close(rbd_image_t i)
{
	pthread_mutex_lock(&lock);
	images--;
	pthread_mutex_unlock(&lock);
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
	pthread_mutex_lock(&lock);
	watcher = fn;
	watcher_arg = arg;
	if (size_at_watch)
		size = size_at_watch;
	pthread_mutex_unlock(&lock);
	return 0;
}
static int fake_unwatch(rbd_image_t i, uint64_t handle)
{
	pthread_mutex_lock(&lock);
	watcher = NULL;
	pthread_mutex_unlock(&lock);
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
	return begin_call(i, c, 'r', at, n);
}
static int fake_aio_write(rbd_image_t i, uint64_t at, size_t n, const char *from, rbd_completion_t c)
{
	((struct call *)c)->from = from;
	return begin_call(i, c, 'w', at, n);
}
static int fake_aio_zero(rbd_image_t i, uint64_t at, size_t n, rbd_completion_t c, int thick, int flags)
{
	return begin_call(i, c, 'z', at, n);
}
static ssize_t fake_aio_compare(rbd_image_t i, uint64_t at, size_t n, const char *is, const char *from,
                                rbd_completion_t c, uint64_t *mismatch, int flags)
{
	if (at / OBJECT != (at + n - 1) / OBJECT)
		return -EINVAL;
	((struct call *)c)->compare = is;
	((struct call *)c)->from = from;
	return begin_call(i, c, 'c', at, n);
}

/* ---- the object ---- */

static char object_text[NG_TEXT];
static uint64_t object_version, object_length;
static rados_watchcb2_t object_watchers[4];
static rados_watcherrcb_t object_breakers[4];
static void *object_watcher_args[4];
static bool watch_stops;
static uint32_t blocklisted;
static bool blocklist_fails, object_stops;

struct change {
	uint64_t version;
	bool create;
	char text[NG_TEXT];
	size_t length;
};

void fake_put_object(const char *text)
{
	pthread_mutex_lock(&lock);
	object_length = text ? strlen(text) : 0;
	strcpy(object_text, text ? text : "");
	object_version = text ? object_version + 1 : 0;
	pthread_mutex_unlock(&lock);
}

void fake_object_stops(bool stop)
{
	pthread_mutex_lock(&lock);
	object_stops = stop;
	pthread_cond_broadcast(&more);
	pthread_mutex_unlock(&lock);
}

/* With the lock. */
static void await_object(void)
{
	while (object_stops)
		pthread_cond_wait(&more, &lock);
}

void fake_get_object(char text[NG_TEXT])
{
	pthread_mutex_lock(&lock);
	strcpy(text, object_text);
	pthread_mutex_unlock(&lock);
}

uint32_t fake_blocklisted(void)
{
	pthread_mutex_lock(&lock);
	uint32_t n = blocklisted;

	pthread_mutex_unlock(&lock);
	return n;
}

void fake_blocklist_fails(bool fail)
{
	pthread_mutex_lock(&lock);
	blocklist_fails = fail;
	pthread_mutex_unlock(&lock);
}

static int fake_addresses(rados_t c, char **out)
{
	*out = strdup(((struct client *)c)->address);
	return 0;
}
static void fake_free(char *text)
{
	free(text);
}
static int fake_object_read(rados_ioctx_t io, const char *name, char *to, size_t n, uint64_t at)
{
	if (is_blocklisted(io))
		return -ESHUTDOWN;
	pthread_mutex_lock(&lock);
	await_object();
	int length = object_version ? (int)object_length : -ENOENT;

	if (length > 0)
		memcpy(to, object_text, (size_t)length);
	pthread_mutex_unlock(&lock);
	return length;
}
static uint64_t fake_version(rados_ioctx_t io)
{
	pthread_mutex_lock(&lock);
	uint64_t version = object_version;

	pthread_mutex_unlock(&lock);
	return version;
}
static rados_write_op_t fake_op(void)
{
	return calloc(1, sizeof(struct change));
}
static void fake_op_end(rados_write_op_t op)
{
	free(op);
}
static void fake_op_version(rados_write_op_t op, uint64_t version)
{
	((struct change *)op)->version = version;
}
static void fake_op_create(rados_write_op_t op, int exclusive, const char *category)
{
	((struct change *)op)->create = true;
}
static void fake_op_write(rados_write_op_t op, const char *text, size_t n)
{
	struct change *c = op;

	memcpy(c->text, text, n);
	c->length = n;
}
static int fake_operate(rados_write_op_t op, rados_ioctx_t io, const char *name, time_t *mtime, int flags)
{
	const struct change *c = op;
	int error = 0;

	if (is_blocklisted(io))
		return -ESHUTDOWN;
	if (!(flags & LIBRADOS_OPERATION_FULL_FORCE)) /* the pool is full all the time */
		return -EDQUOT;
	pthread_mutex_lock(&lock);
	await_object();
	if (c->create ? object_version : c->version != object_version)
		error = c->create ? -EEXIST : -ERANGE;
	if (!error) {
		memcpy(object_text, c->text, c->length);
		object_text[c->length] = 0;
		object_length = c->length;
		object_version++;
	}
	pthread_mutex_unlock(&lock);
	return error;
}
void fake_watch_stops(bool stop)
{
	pthread_mutex_lock(&lock);
	watch_stops = stop;
	pthread_mutex_unlock(&lock);
}

void fake_watch_breaks(void)
{
	pthread_mutex_lock(&lock);
	for (uint64_t i = 0; i < 4; i++)
		if (object_watchers[i])
			object_breakers[i](object_watcher_args[i], i, -ENOTCONN);
	pthread_mutex_unlock(&lock);
}

uint32_t fake_watches(void)
{
	uint32_t n = 0;

	pthread_mutex_lock(&lock);
	for (uint64_t i = 0; i < 4; i++)
		n += object_watchers[i] != NULL;
	pthread_mutex_unlock(&lock);
	return n;
}

static int fake_object_completion(void *arg, rados_callback_t done, rados_completion_t *out)
{
	*out = calloc(1, sizeof(int));
	return *out ? 0 : -ENOMEM;
}
static int fake_object_complete(rados_completion_t c)
{
	pthread_mutex_lock(&lock);
	int done = !watch_stops;

	pthread_mutex_unlock(&lock);
	return done;
}
static int fake_object_result(rados_completion_t c)
{
	return 0;
}
static void fake_object_release(rados_completion_t c)
{
	free(c);
}
static int fake_object_watch(rados_ioctx_t io, const char *name, rados_completion_t c, uint64_t *handle,
                             rados_watchcb2_t fn, rados_watcherrcb_t broke, uint32_t seconds, void *arg)
{
	pthread_mutex_lock(&lock);
	for (uint64_t i = 0; i < 4; i++)
		if (!object_watchers[i]) {
			object_watchers[i] = fn;
			object_breakers[i] = broke;
			object_watcher_args[i] = arg;
			*handle = i;
			break;
		}
	pthread_mutex_unlock(&lock);
	return 0;
}
static int fake_object_unwatch(rados_ioctx_t io, uint64_t handle, rados_completion_t c)
{
	pthread_mutex_lock(&lock);
	object_watchers[handle] = NULL;
	pthread_mutex_unlock(&lock);
	return 0;
}
static int fake_watch_flush(rados_t c)
{
	return 0;
}
static char acks[1000]; /* what the watchers have answered; under lock */

static int fake_notify(rados_ioctx_t io, const char *name, const char *text, int n, uint64_t ms, char **reply,
                       size_t *length)
{
	pthread_mutex_lock(&lock); /* no watcher ends meanwhile; they do not call back */
	*acks = 0;
	for (uint64_t i = 0; i < 4; i++)
		if (object_watchers[i])
			object_watchers[i](object_watcher_args[i], 1, i, 1, NULL, 0);
	*length = strlen(acks);
	*reply = strdup(acks);
	pthread_mutex_unlock(&lock);
	return 0;
}
static int fake_ack(rados_ioctx_t io, const char *name, uint64_t id, uint64_t handle, const char *text, int n)
{
	size_t at = strlen(acks);

	snprintf(acks + at, sizeof(acks) - at, "%.*s ", n, text);
	return 0;
}
static int fake_blocklist(rados_t c, char *address, uint32_t seconds)
{
	pthread_mutex_lock(&lock);
	int error = blocklist_fails ? -EPERM : 0;

	for (struct client *i = clients; i && !error; i = i->next)
		if (!strcmp(i->address, address))
			i->blocklisted = true;
	blocklisted += !error;
	pthread_mutex_unlock(&lock);
	return error;
}
static int fake_map(rados_t c)
{
	return 0;
}
static ssize_t fake_lockers(rados_ioctx_t io, const char *o, const char *name, int *exclusive, char *tag, size_t *tag_n,
                            char *client, size_t *client_n, char *cookie, size_t *cookie_n, char *address,
                            size_t *address_n)
{
	return -ENOENT;
}
static int fake_break_lock(rados_ioctx_t io, const char *o, const char *name, const char *client, const char *cookie)
{
	return 0;
}

static const struct nb_rbd_library fake = {fake_create,
                                           fake_set,
                                           fake_read,
                                           fake_env,
                                           fake_connect,
                                           fake_shutdown,
                                           fake_command,
                                           fake_fsid,
                                           fake_pool,
                                           fake_pool_end,
                                           fake_space,
                                           fake_pool_id,
                                           fake_open,
                                           fake_open,
                                           fake_close,
                                           fake_stat,
                                           fake_size,
                                           fake_features,
                                           fake_id,
                                           fake_unit,
                                           fake_snap_id,
                                           fake_options,
                                           fake_options_end,
                                           fake_watch,
                                           fake_unwatch,
                                           fake_completion,
                                           fake_result,
                                           fake_release,
                                           fake_aio_read,
                                           fake_aio_write,
                                           fake_aio_zero,
                                           fake_aio_compare,
                                           fake_addresses,
                                           fake_free,
                                           fake_object_read,
                                           fake_version,
                                           fake_op,
                                           fake_op_end,
                                           fake_op_version,
                                           fake_op_create,
                                           fake_op_write,
                                           fake_operate,
                                           fake_object_completion,
                                           fake_object_complete,
                                           fake_object_result,
                                           fake_object_release,
                                           fake_object_watch,
                                           fake_object_unwatch,
                                           fake_watch_flush,
                                           fake_notify,
                                           fake_ack,
                                           fake_blocklist,
                                           fake_map,
                                           fake_lockers,
                                           fake_break_lock,
                                           fake_full_try};

const struct nb_rbd_library *nb_rbd_load(char *why)
{
	return &fake;
}

/* ---- the thread ---- */

static pthread_t thread;

void fake_begin(void)
{
	pthread_create(&thread, NULL, answer_calls, NULL);
}

void fake_end(void)
{
	pthread_mutex_lock(&lock);
	ends = true;
	pthread_cond_broadcast(&more);
	pthread_mutex_unlock(&lock);
	pthread_join(thread, NULL);
}

void opening_done(struct nb_opening *o, int error, struct nb_backend *backend)
{
	struct opening *x = (struct opening *)(void *)o;

	x->done = true;
	x->error = error;
	x->b = backend;
}
