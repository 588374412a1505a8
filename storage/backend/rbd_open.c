// rbd_open.c - connects to clusters, opens and closes images, in threads: each of these calls may block
// follows: the interfaces of librados and librbd in Ceph 16
// SPDX-License-Identifier: MIT
#include <errno.h>
#include <pthread.h>
#include <rbd/features.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include "backend/gateway.h"
#include "backend/rbd.h"

#define CONNECT_S "10" /* limit of librados */
#define OPEN_S 20      /* limit of all together, for whoever waits for it */
#define NAME 256

/* A connection, for all images with the same options. */
struct nb_rbd_cluster {
	struct nb_rbd_cluster *next;
	rados_t rados;
	char *conf, *user, *keyring;
	char fsid[64], why[NB_WHY];
	uint32_t images;
	bool connected;
	int error;   /* it could not be made: why; it is not in the list any more */
	bool fenced; /* the cluster has blocklisted this connection: new images need another one */
};

/* Guards the list and the fields below fsid. Threads that open and close take it, never while they block. */
static pthread_mutex_t clusters_lock = PTHREAD_MUTEX_INITIALIZER;
static pthread_cond_t clusters_changed = PTHREAD_COND_INITIALIZER; /* one is connected, or could not be */
static struct nb_rbd_cluster *clusters;

static bool same_option(const char *a, const char *b)
{
	return a == b || (a && b && !strcmp(a, b));
}

static bool copy_option(char **to, const char *from)
{
	return !from || (*to = strdup(from));
}

static void free_cluster(struct nb_rbd_cluster *c)
{
	free(c->conf);
	free(c->user);
	free(c->keyring);
	free(c);
}

/* With the lock. */
static void unlist(struct nb_rbd_cluster *c)
{
	struct nb_rbd_cluster **at = &clusters;

	while (*at && *at != c)
		at = &(*at)->next;
	if (*at)
		*at = c->next;
}

/* Ends the connection with its last image. */
static void let_go(const struct nb_rbd_library *lib, struct nb_rbd_cluster *c)
{
	pthread_mutex_lock(&clusters_lock);
	bool last = !--c->images;

	if (last)
		unlist(c);
	pthread_mutex_unlock(&clusters_lock);
	if (!last)
		return;
	if (c->rados) {
		rados_t rados = c->rados;

		lib->rados_shutdown(rados);
		nb_rbd_watch_shut_down(rados);
	}
	free_cluster(c);
}

void nb_rbd_shut_out(struct nb_rbd *r)
{
	pthread_mutex_lock(&clusters_lock);
	r->cluster->fenced = true;
	pthread_mutex_unlock(&clusters_lock);
}

/* ---- opening ---- */

/* The thread and the caller, who may give up, share it. */
struct opening {
	struct nb_rbd rbd; /* what the thread sets goes to the caller's */
	char *pool, *space, *image, *snap, *gateway, *before, serves[NB_SERVES];
	struct nb_rbd_cluster *cluster;
	bool connects; /* it is the one that makes this connection */
	int error;
	char why[NB_WHY];
	/* guarded by clusters_lock */
	pthread_cond_t changed;
	bool ready, given_up; /* whoever comes second frees it */
	struct opening *next; /* if it was given up */
};

static struct opening *given_up; /* those whose threads have not ended yet; clusters_lock guards it */

bool nb_rbd_threads_left(void)
{
	pthread_mutex_lock(&clusters_lock);
	bool left = given_up;

	pthread_mutex_unlock(&clusters_lock);
	return left;
}

__attribute__((format(printf, 3, 4))) static int fails(struct opening *o, int error, const char *format, ...)
{
	va_list ap;

	va_start(ap, format);
	int n = vsnprintf(o->why, sizeof(o->why), format, ap);

	va_end(ap);
	if (n >= 0 && n < (int)sizeof(o->why))
		snprintf(o->why + n, sizeof(o->why) - (size_t)n, ": %s", strerror(-error));
	return -error;
}

static const char *client_name(const struct opening *o)
{
	return o->cluster->user ? o->cluster->user : "admin";
}

static bool is_denied(int error)
{
	return error == -EPERM || error == -EACCES;
}

static int configure(struct opening *o, rados_t rados)
{
	/* Hosts have caches of their own. Without one here, writes are durable when they are answered, and two targets
	 * of one image read the same. A write without a copy never ends in librbd 16 if it fails before it is sent, for
	 * example because the lock of the image is refused: its completion waits for the data to be let go, and the
	 * data for the completion. */
	static const char *const settings[][2] = {{"rbd_cache", "false"},
	                                          {"rbd_persistent_cache_mode", "disabled"},
	                                          {"rbd_disable_zero_copy_writes", "true"},
	                                          {"rbd_blocklist_on_break_lock", "true"},
	                                          {"rbd_blocklist_expire_seconds", "86400"},
	                                          {"client_mount_timeout", CONNECT_S}};
	const struct nb_rbd_library *lib = o->rbd.lib;

	/* errors are reported in one line each; ceph.conf may ask for more */
	lib->rados_conf_set(rados, "log_to_stderr", "false");
	lib->rados_conf_set(rados, "err_to_stderr", "false");
	int error = lib->rados_conf_read_file(rados, o->cluster->conf);

	if (error)
		return fails(o, error, "%s", o->cluster->conf ? o->cluster->conf : "ceph.conf");
	lib->rados_conf_parse_env(rados, NULL);
	if (o->cluster->keyring && (error = lib->rados_conf_set(rados, "keyring", o->cluster->keyring)))
		return fails(o, error, "%s", o->cluster->keyring);
	for (size_t i = 0; i < sizeof(settings) / sizeof(*settings); i++)
		lib->rados_conf_set(rados, settings[i][0], settings[i][1]);
	return 0;
}

/* For all who wait for this connection. */
static void settle_cluster(struct opening *o, int error)
{
	struct nb_rbd_cluster *c = o->cluster;

	pthread_mutex_lock(&clusters_lock);
	c->connected = !error;
	c->error = error;
	if (error) {
		memcpy(c->why, o->why, NB_WHY);
		unlist(c);
	}
	pthread_cond_broadcast(&clusters_changed);
	pthread_mutex_unlock(&clusters_lock);
}

static int await_cluster(struct opening *o)
{
	struct nb_rbd_cluster *c = o->cluster;

	pthread_mutex_lock(&clusters_lock);
	while (!c->connected && !c->error)
		pthread_cond_wait(&clusters_changed, &clusters_lock);
	int error = c->error;

	if (error)
		memcpy(o->why, c->why, NB_WHY);
	pthread_mutex_unlock(&clusters_lock);
	return error;
}

static int connect_cluster(struct opening *o)
{
	struct nb_rbd_cluster *c = o->cluster;
	const struct nb_rbd_library *lib = o->rbd.lib;
	int error = lib->rados_create(&c->rados, c->user);

	if (error)
		return fails(o, error, "librados");
	error = configure(o, c->rados);
	if (!error && (error = lib->rados_connect(c->rados)))
		error = fails(o, error, "the cluster lets client.%s not in", client_name(o));
	if (!error && (error = lib->rados_cluster_fsid(c->rados, c->fsid, sizeof(c->fsid))) > 0)
		error = 0;
	if (error) {
		lib->rados_shutdown(c->rados);
		c->rados = NULL;
		return error < 0 ? fails(o, error, "librados") : error;
	}
	return 0;
}

static int join_cluster(struct opening *o)
{
	if (!o->connects)
		return await_cluster(o);
	int error = connect_cluster(o);

	settle_cluster(o, error);
	return error;
}

/* rbd_cache of the image's own configuration would override ours. */
static bool has_cache(const struct nb_rbd *d)
{
	rbd_config_option_t options[400];
	int n = sizeof(options) / sizeof(*options);
	bool cached = false;

	if (d->lib->rbd_config_image_list(d->image, options, &n))
		return false;
	for (int i = 0; i < n; i++)
		if (!strcmp(options[i].name, "rbd_cache"))
			cached = !strcmp(options[i].value, "true");
	d->lib->rbd_config_image_list_cleanup(options, n);
	return cached;
}

static int check_image(struct opening *o)
{
	struct nb_rbd *d = &o->rbd;
	rbd_image_info_t info;
	uint64_t features, snap = 0, unit;
	char id[NAME];
	int error;

	if ((error = d->lib->rbd_stat(d->image, &info, sizeof(info))) ||
	    (error = d->lib->rbd_get_features(d->image, &features)) ||
	    (error = d->lib->rbd_get_stripe_unit(d->image, &unit)) ||
	    (error = d->lib->rbd_get_id(d->image, id, sizeof(id))) ||
	    (o->snap && (error = d->lib->rbd_snap_get_id(d->image, o->snap, &snap))))
		return fails(o, error, "image %s", o->image);
	if (!d->b.readonly && !(features & RBD_FEATURE_EXCLUSIVE_LOCK))
		return fails(o, -EOPNOTSUPP, "image %s has no exclusive lock (rbd feature enable IMAGE exclusive-lock)",
		             o->image);
	if (!d->b.readonly && has_cache(d))
		return fails(o, -EOPNOTSUPP, "image %s has a cache of its own (rbd config image rm IMAGE rbd_cache)",
		             o->image);
	d->seen_size = info.size;
	d->b.boundary = unit < UINT32_MAX ? (uint32_t)unit : 0;
	d->b.identity_anywhere = true;
	if (asprintf(&d->b.identity, "rbd %s %lld %s %s %llu", o->cluster->fsid,
	             (long long)d->lib->rados_ioctx_get_id(d->io), o->space ? o->space : "", id,
	             (unsigned long long)snap) < 0)
		d->b.identity = NULL;
	return d->b.identity ? 0 : ENOMEM;
}

/* Without this capability librbd cannot take the lock of a client that has failed, nor a gateway take over, which would
 * be noticed only then. The monitor looks at capabilities first, and then finds that this is no address, so it adds
 * nothing. */
static int check_blocklist(struct opening *o)
{
	const char *command = "{\"prefix\": \"osd blocklist\", \"blocklistop\": \"add\", \"addr\": \"verbena/0\"}";
	const struct nb_rbd_library *lib = o->rbd.lib;
	char *out = NULL, *said = NULL;
	size_t out_size, said_size;
	int error = lib->rados_mon_command(o->cluster->rados, &command, 1, NULL, 0, &out, &out_size, &said, &said_size);

	lib->rados_buffer_free(out);
	lib->rados_buffer_free(said);
	if (!is_denied(error))
		return 0;
	return fails(o, error, "client.%s needs the capability mon 'profile rbd', to shut clients out that have failed",
	             client_name(o));
}

static int join_gateways(struct opening *o)
{
	struct nb_rbd *d = &o->rbd;
	char id[NAME];
	struct nb_rbd_gateway_place at = {
	        .lib = d->lib, .rados = o->cluster->rados, .pool = o->pool, .space = o->space, .id = id};
	int error = d->lib->rbd_get_id(d->image, id, sizeof(id));

	if (!o->gateway || d->b.readonly)
		return 0;
	if (error)
		return fails(o, error, "image %s", o->image);
	d->b.parts = NG_GATEWAYS;
	d->b.access = NB_OTHER;
	return -nb_rbd_gateway_join(&at, o->gateway, o->before, o->serves, &d->gateway, &d->b.part, o->why);
}

static int open_pool(struct opening *o)
{
	struct nb_rbd *d = &o->rbd;
	int error = d->lib->rados_ioctx_create(o->cluster->rados, o->pool, &d->io);

	if (error)
		return fails(o, error, "pool %s", o->pool);
	if (o->space)
		d->lib->rados_ioctx_set_namespace(d->io, o->space);
	/* In a pool that is full, what needs no more space is executed, and the rest refused: librbd would keep it, and
	 * its memory with it */
	d->lib->rados_set_pool_full_try(d->io);
	if (d->b.readonly)
		error = d->lib->rbd_open_read_only(d->io, o->image, &d->image, o->snap);
	else
		error = d->lib->rbd_open(d->io, o->image, &d->image, NULL);
	if (is_denied(error))
		error = fails(o, error, "image %s: client.%s needs the capability osd 'profile rbd%s pool=%s'",
		              o->image, client_name(o), d->b.readonly ? "-read-only" : "", o->pool);
	else if (error)
		error = fails(o, error, "image %s%s%s", o->image, o->snap ? "@" : "", o->snap ? o->snap : "");
	else if ((error = check_image(o)) || (!d->b.readonly && (error = check_blocklist(o))) ||
	         (error = join_gateways(o)))
		d->lib->rbd_close(d->image);
	if (error)
		d->lib->rados_ioctx_destroy(d->io);
	return error;
}

static struct opening *new_opening(void)
{
	struct opening *o = calloc(1, sizeof(*o));
	pthread_condattr_t a;

	if (!o)
		return NULL;
	pthread_condattr_init(&a);
	pthread_condattr_setclock(&a, CLOCK_MONOTONIC);
	pthread_cond_init(&o->changed, &a);
	pthread_condattr_destroy(&a);
	return o;
}

static void free_opening(struct opening *o)
{
	pthread_cond_destroy(&o->changed);
	free(o->pool); /* the other names are in the same string */
	free(o->gateway);
	free(o->before);
	free(o->rbd.b.identity);
	free(o);
}

/* Nobody may wait for a thread that does not end, but not one more for each attempt. */
static bool is_stuck(const struct opening *o)
{
	pthread_mutex_lock(&clusters_lock);
	const struct opening *g = given_up;

	while (g && (g->cluster != o->cluster || strcmp(g->pool, o->pool) != 0 || strcmp(g->image, o->image) != 0 ||
	             !same_option(g->space, o->space) || !same_option(g->snap, o->snap)))
		g = g->next;
	pthread_mutex_unlock(&clusters_lock);
	return g;
}

static void forget_given_up(struct opening *o)
{
	struct opening **at = &given_up;
	struct nb_rbd_cluster *c = o->cluster;

	pthread_mutex_lock(&clusters_lock);
	o->cluster = NULL; /* nobody is stuck for it */
	pthread_mutex_unlock(&clusters_lock);
	if (!o->error)
		let_go(o->rbd.lib, c);
	pthread_mutex_lock(&clusters_lock);
	while (*at != o)
		at = &(*at)->next;
	*at = o->next;
	pthread_mutex_unlock(&clusters_lock);
}

static void *open_in_thread(void *arg)
{
	struct opening *o = arg;

	if ((o->error = join_cluster(o)) || (o->error = open_pool(o)))
		let_go(o->rbd.lib, o->cluster);
	pthread_mutex_lock(&clusters_lock);
	bool wanted = !o->given_up;

	o->ready = true;
	pthread_cond_signal(&o->changed);
	pthread_mutex_unlock(&clusters_lock);
	if (wanted)
		return NULL;
	if (!o->error) {
		if (o->rbd.gateway)
			nb_rbd_gateway_leave(o->rbd.gateway);
		nb_rbd_gateway_free(o->rbd.gateway);
		o->rbd.lib->rbd_close(o->rbd.image);
		o->rbd.lib->rados_ioctx_destroy(o->rbd.io);
	}
	forget_given_up(o);
	free_opening(o);
	return NULL;
}

/* POOL/[NAMESPACE/]IMAGE[@SNAP] */
static bool take_names(struct opening *o, const char *path)
{
	char *at = o->pool = strdup(path), *slash = at ? strchr(at, '/') : NULL;

	if (!slash || slash == at)
		return false;
	*slash = 0;
	o->image = slash + 1;
	if ((slash = strchr(o->image, '/'))) {
		*slash = 0;
		o->space = o->image;
		o->image = slash + 1;
	}
	if ((o->snap = strchr(o->image, '@')))
		*o->snap++ = 0;
	return *o->image && !strchr(o->image, '/') && (!o->snap || *o->snap) && (!o->space || *o->space);
}

static struct nb_rbd_cluster *new_cluster(const struct nb_config *config)
{
	struct nb_rbd_cluster *c = calloc(1, sizeof(*c));

	if (!c || (copy_option(&c->conf, config->ceph_conf) && copy_option(&c->user, config->ceph_user) &&
	           copy_option(&c->keyring, config->ceph_keyring)))
		return c;
	free_cluster(c);
	return NULL;
}

/* A connection that exists, that another opening makes now, or that the caller is to make. */
static struct nb_rbd_cluster *find_cluster(const struct nb_config *config, bool *connects)
{
	pthread_mutex_lock(&clusters_lock);
	struct nb_rbd_cluster *c = clusters;

	while (c && (c->fenced || !same_option(c->conf, config->ceph_conf) ||
	             !same_option(c->user, config->ceph_user) || !same_option(c->keyring, config->ceph_keyring)))
		c = c->next;
	*connects = !c;
	if (*connects && (c = new_cluster(config))) {
		c->next = clusters;
		clusters = c;
	}
	if (c)
		c->images++;
	pthread_mutex_unlock(&clusters_lock);
	return c;
}

static int start_opening(struct opening *o)
{
	pthread_t t;
	int error = pthread_create(&t, NULL, open_in_thread, o);

	if (!error)
		pthread_detach(t);
	return error;
}

/* False: it takes too long, and the thread frees o. */
static bool await_opening(struct opening *o)
{
	struct timespec until;

	clock_gettime(CLOCK_MONOTONIC, &until);
	until.tv_sec += OPEN_S;
	pthread_mutex_lock(&clusters_lock);
	while (!o->ready && !pthread_cond_timedwait(&o->changed, &clusters_lock, &until))
		;
	bool ready = o->ready;

	if (!ready) {
		o->given_up = true;
		o->next = given_up;
		given_up = o;
	}
	pthread_mutex_unlock(&clusters_lock);
	return ready;
}

static int take_result(struct nb_rbd *r, struct opening *o, char *why)
{
	int error = o->error;

	memcpy(why, o->why, NB_WHY);
	if (!error) {
		r->cluster = o->cluster;
		r->io = o->rbd.io;
		r->image = o->rbd.image;
		r->seen_size = o->rbd.seen_size;
		r->b.readonly = o->rbd.b.readonly;
		r->b.compare_write = !r->b.readonly;
		r->b.boundary = o->rbd.b.boundary;
		r->b.identity = o->rbd.b.identity;
		o->rbd.b.identity = NULL;
		r->b.identity_anywhere = o->rbd.b.identity_anywhere;
		r->gateway = o->rbd.gateway;
		r->b.access = o->rbd.b.access;
		r->b.part = o->rbd.b.part;
		r->b.parts = o->rbd.b.parts;
	}
	free_opening(o);
	return error;
}

static int too_late(char *why)
{
	snprintf(why, NB_WHY, "the cluster does not answer within %d s, or the pool is full", OPEN_S);
	return ETIMEDOUT;
}

int nb_rbd_open_image(struct nb_rbd *r, const struct nb_config *config, char *why)
{
	struct opening *o = new_opening();

	if (!o)
		return ENOMEM;
	if (!take_names(o, config->path)) {
		free_opening(o);
		snprintf(why, NB_WHY, "wanted: POOL/IMAGE, POOL/NAMESPACE/IMAGE, or either with @SNAPSHOT");
		return EINVAL;
	}
	o->rbd.lib = r->lib;
	o->rbd.b.readonly = config->readonly || o->snap;
	nb_rbd_serves(config, config->size, o->serves);
	bool copied = copy_option(&o->gateway, config->gateway) && copy_option(&o->before, config->before);

	o->cluster = copied ? find_cluster(config, &o->connects) : NULL;
	if (o->cluster && !o->connects && is_stuck(o)) {
		let_go(r->lib, o->cluster);
		free_opening(o);
		return too_late(why);
	}
	if (!o->cluster || start_opening(o)) {
		if (o->cluster && o->connects)
			settle_cluster(o, ENOMEM);
		if (o->cluster)
			let_go(r->lib, o->cluster);
		free_opening(o);
		return ENOMEM;
	}
	return await_opening(o) ? take_result(r, o, why) : too_late(why);
}

/* ---- closing ---- */

static void *close_in_thread(void *arg)
{
	struct nb_rbd *r = arg;

	if (r->gateway)
		nb_rbd_gateway_leave(r->gateway);
	if (r->watching)
		r->lib->rbd_update_unwatch(r->image, r->watch);
	r->lib->rbd_close(r->image);
	r->lib->rados_ioctx_destroy(r->io);
	let_go(r->lib, r->cluster);
	nb_ring_post(r->ring, &r->closed);
	return NULL;
}

void nb_rbd_close_image(struct nb_rbd *r)
{
	r->has_closer = !pthread_create(&r->closer, NULL, close_in_thread, r);
	if (!r->has_closer)
		close_in_thread(r);
}

void nb_rbd_closed(struct nb_rbd *r)
{
	if (r->has_closer)
		pthread_join(r->closer, NULL);
	nb_rbd_gateway_free(r->gateway); /* after its last post */
}
