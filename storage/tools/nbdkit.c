// nbdkit.c - a plugin for nbdkit: a disk over NVMe over Fabrics as a network block device
// follows: nbdkit-plugin(3); man/nbdkit-verbena-plugin.1
// SPDX-License-Identifier: MIT
#define NBDKIT_API_VERSION 2
#include <nbdkit-plugin.h>

#include <errno.h>
#include <pthread.h>
#include <stdbool.h>
#include <stdlib.h>
#include <string.h>

#include "client/verbena_nvme.h"

#define THREAD_MODEL NBDKIT_THREAD_MODEL_PARALLEL
#define LARGEST (32u << 20)

static char *url, *host_nqn, *secret, *controller_secret, *tls_key;
static struct vn_options options;
static struct vn_disk *disk; /* one for all clients, so that a flush by one is a flush for all */
/* Requests that are not whole blocks read, change and write blocks, and take this lock exclusively. Other requests
 * share it. */
static pthread_rwlock_t blocks = PTHREAD_RWLOCK_INITIALIZER;

static void verbena_load(void)
{
	vn_options_init(&options);
}

static void wipe_text(char **text)
{
	if (*text)
		explicit_bzero(*text, strlen(*text));
	free(*text);
	*text = NULL;
}

static void verbena_unload(void)
{
	if (disk)
		vn_close(disk);
	free(url);
	free(host_nqn);
	wipe_text(&secret);
	wipe_text(&controller_secret);
	wipe_text(&tls_key);
}

/* Reads a secret as nbdkit reads passwords: +FILE, - to be asked, -FD, or the secret itself. */
static int read_secret(const char *value, char **text)
{
	wipe_text(text);
	return nbdkit_read_password(value, text);
}

static int verbena_config(const char *key, const char *value)
{
	int digests;

	if (!strcmp(key, "url")) {
		free(url);
		url = strdup(value);
		return url ? 0 : -1;
	}
	if (!strcmp(key, "queues"))
		return nbdkit_parse_unsigned(key, value, &options.queues);
	if (!strcmp(key, "max-transfer"))
		return nbdkit_parse_unsigned(key, value, &options.max_transfer);
	if (!strcmp(key, "queue-depth"))
		return nbdkit_parse_unsigned(key, value, &options.queue_depth);
	if (!strcmp(key, "host-nqn")) {
		free(host_nqn);
		options.host_nqn = host_nqn = strdup(value);
		return host_nqn ? 0 : -1;
	}
	if (!strcmp(key, "secret"))
		return read_secret(value, &secret);
	if (!strcmp(key, "controller-secret"))
		return read_secret(value, &controller_secret);
	if (!strcmp(key, "tls-key"))
		return read_secret(value, &tls_key);
	if (!strcmp(key, "digests")) {
		digests = nbdkit_parse_bool(value);
		options.header_digest = options.data_digest = options.require_digest = digests > 0;
		return digests < 0 ? -1 : 0;
	}
	nbdkit_error("unknown parameter %s", key);
	return -1;
}

static int verbena_config_complete(void)
{
	if (!url)
		nbdkit_error("url=nvme+auto://HOST[:PORT]/NQN or url=srp://HOST[:PORT]/ID_EXT is needed");
	return url ? 0 : -1;
}

/* Opens the disk after nbdkit has forked into the background, because threads do not survive the fork. */
static int verbena_after_fork(void)
{
	char why[160];

	options.secret = secret;
	options.controller_secret = controller_secret;
	options.tls_key = tls_key;
	if (!vn_open(url, &options, &disk, why, sizeof(why)))
		return 0;
	nbdkit_error("%s: %s", url, why);
	return -1;
}

static void *verbena_open(int readonly)
{
	return &disk;
}

static int64_t verbena_get_size(void *handle)
{
	return (int64_t)vn_info(disk)->size;
}

static int verbena_block_size(void *handle, uint32_t *minimum, uint32_t *preferred, uint32_t *maximum)
{
	const struct vn_info *i = vn_info(disk);

	*minimum = 1;
	*preferred = i->optimal_io >= 4096 && i->optimal_io <= LARGEST && !(i->optimal_io & (i->optimal_io - 1))
	                     ? i->optimal_io
	                     : 4096;
	if (*preferred < i->block_size)
		*preferred = i->block_size;
	*maximum = LARGEST;
	return 0;
}

static int verbena_can_write(void *handle)
{
	return !vn_info(disk)->readonly;
}

static int verbena_can(void *handle)
{
	return 1;
}

static int verbena_can_fua(void *handle)
{
	return NBDKIT_FUA_NATIVE;
}

static int verbena_can_cache(void *handle)
{
	return NBDKIT_CACHE_NONE;
}

static int nbdkit_result(int e)
{
	if (e)
		nbdkit_set_error(-e == ENOTCONN || -e == ESHUTDOWN ? EIO : -e);
	return e ? -1 : 0;
}

static bool is_whole_blocks(uint64_t offset, uint64_t count)
{
	uint32_t block = vn_info(disk)->block_size;

	return !(offset % block) && !(count % block);
}

/* The blocks around a range. The caller frees them. */
struct around {
	uint8_t *data;
	uint64_t at;
	size_t length;
};

static int read_around(uint64_t offset, uint32_t count, struct around *a)
{
	uint32_t block = vn_info(disk)->block_size;
	int e;

	a->at = offset / block * block;
	a->length = (size_t)((offset + count + block - 1) / block * block - a->at);
	a->data =
	        calloc(1, a->length); /* zeroed: a target that reports success without data must not expose our heap */
	if (!a->data)
		return -ENOMEM;
	e = vn_read_wait(disk, a->data, a->length, a->at);
	if (e)
		free(a->data);
	return e;
}

static int verbena_pread(void *handle, void *buf, uint32_t count, uint64_t offset, uint32_t flags)
{
	struct around a;
	int e;

	if (is_whole_blocks(offset, count))
		return nbdkit_result(vn_read_wait(disk, buf, count, offset));
	e = read_around(offset, count, &a);
	if (!e) {
		memcpy(buf, a.data + (offset - a.at), count);
		free(a.data);
	}
	return nbdkit_result(e);
}

/* buf NULL: writes zeroes */
static int change_part(const void *buf, uint32_t count, uint64_t offset, unsigned flags)
{
	struct around a;
	int e;

	pthread_rwlock_wrlock(&blocks);
	e = read_around(offset, count, &a);
	if (!e) {
		if (buf)
			memcpy(a.data + (offset - a.at), buf, count);
		else
			memset(a.data + (offset - a.at), 0, count);
		e = vn_write_wait(disk, a.data, a.length, a.at, flags);
		free(a.data);
	}
	pthread_rwlock_unlock(&blocks);
	return e;
}

static unsigned fua_flag(uint32_t flags)
{
	return flags & NBDKIT_FLAG_FUA ? VN_FUA : 0;
}

static int verbena_pwrite(void *handle, const void *buf, uint32_t count, uint64_t offset, uint32_t flags)
{
	int e;

	if (!is_whole_blocks(offset, count))
		return nbdkit_result(change_part(buf, count, offset, fua_flag(flags)));
	pthread_rwlock_rdlock(&blocks);
	e = vn_write_wait(disk, buf, count, offset, fua_flag(flags));
	pthread_rwlock_unlock(&blocks);
	return nbdkit_result(e);
}

static int zero_blocks(uint64_t count, uint64_t offset, uint32_t flags)
{
	int e;

	if (!count)
		return 0;
	pthread_rwlock_rdlock(&blocks);
	e = vn_write_zeroes_wait(disk, count, offset,
	                         fua_flag(flags) | (flags & NBDKIT_FLAG_MAY_TRIM ? VN_DISCARD : 0));
	pthread_rwlock_unlock(&blocks);
	return e;
}

/* The first and last bytes may be parts of blocks. On EOPNOTSUPP nbdkit writes zeroes itself. */
static int verbena_zero(void *handle, uint32_t count, uint64_t offset, uint32_t flags)
{
	uint32_t block = vn_info(disk)->block_size;
	uint64_t first = (offset + block - 1) / block * block, last = (offset + count) / block * block;
	int e = 0;

	if (!vn_info(disk)->write_zeroes)
		return nbdkit_result(-EOPNOTSUPP);
	if (first >= last)
		return nbdkit_result(is_whole_blocks(offset, count)
		                             ? zero_blocks(count, offset, flags)
		                             : change_part(NULL, count, offset, fua_flag(flags)));
	if (offset < first)
		e = change_part(NULL, (uint32_t)(first - offset), offset, fua_flag(flags));
	if (!e)
		e = zero_blocks(last - first, first, flags);
	if (!e && last < offset + count)
		e = change_part(NULL, (uint32_t)(offset + count - last), last, fua_flag(flags));
	return nbdkit_result(e);
}

static int verbena_flush(void *handle, uint32_t flags)
{
	return nbdkit_result(vn_flush_wait(disk));
}

/* Deallocates whole blocks only. Partial blocks keep their contents, which NBD allows. */
static int verbena_trim(void *handle, uint32_t count, uint64_t offset, uint32_t flags)
{
	uint32_t block = vn_info(disk)->block_size;
	uint64_t first = (offset + block - 1) / block * block, last = (offset + count) / block * block;
	int e = 0;

	pthread_rwlock_rdlock(&blocks);
	if (first < last)
		e = vn_discard_wait(disk, last - first, first);
	pthread_rwlock_unlock(&blocks);
	if (!e && fua_flag(flags))
		e = vn_flush_wait(disk);
	return nbdkit_result(e);
}

static struct nbdkit_plugin plugin = {
        .name = "verbena",
        .longname = "Verbena: NVMe over Fabrics by TCP or RDMA",
        .description = "serves a disk that is reached by NVMe over Fabrics",
        .load = verbena_load,
        .unload = verbena_unload,
        .config = verbena_config,
        .config_complete = verbena_config_complete,
        .config_help =
                "url=nvme+auto://HOST[:PORT][,HOST[:PORT]...]/NQN[?discover] or srp://HOST[:PORT]/ID_EXT  (required) "
                "the disk\n"
                "queues=N  queue-depth=N  max-transfer=BYTES  digests=BOOL\n"
                "host-nqn=NQN  secret=+FILE  controller-secret=+FILE  tls-key=+FILE",
        .magic_config_key = "url",
        .after_fork = verbena_after_fork,
        .open = verbena_open,
        .get_size = verbena_get_size,
        .block_size = verbena_block_size,
        .can_write = verbena_can_write,
        .can_flush = verbena_can,
        .can_trim = verbena_can,
        .can_zero = verbena_can,
        .can_fast_zero = NULL,
        .can_fua = verbena_can_fua,
        .can_multi_conn = verbena_can,
        .can_cache = verbena_can_cache,
        .pread = verbena_pread,
        .pwrite = verbena_pwrite,
        .flush = verbena_flush,
        .trim = verbena_trim,
        .zero = verbena_zero,
        .errno_is_preserved = 0,
};

struct nbdkit_plugin *plugin_init(void); /* the macro declares no prototype */

NBDKIT_REGISTER_PLUGIN(plugin)
