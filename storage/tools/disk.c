// disk.c - verbena-disk: shows, copies and measures disks over NVMe over Fabrics and SRP
// SPDX-License-Identifier: MIT
#include "tools/disk.h"

#include <errno.h>
#include <getopt.h>
#include <stdlib.h>
#include <string.h>

#include "nvme/secret.h"

static const char usage[] =
        "usage: verbena-disk [OPTIONS] COMMAND ARGS\n"
        "  info URL                       the target's description of a disk\n"
        "  list URL                       the disks of a target\n"
        "  read URL [OFFSET [LENGTH]]     to standard output\n"
        "  write URL [OFFSET]             from standard input\n"
        "  copy SOURCE DESTINATION        either may be a URL or a file\n"
        "  bench URL                      random reads by default\n"
        "URL: nvme+tcp://HOST[:PORT][,HOST[:PORT]...]/NQN[?nsid=N], nvme+tls://..., nvme+rdma://... or nvme+auto://...\n"
        "  .../NQN?discover               by the paths that the discovery log at HOST lists\n"
        "  srp://HOST[:PORT]/ID_EXT[:IOC_GUID][?lun=N]\n"
        "options: --json --quiet --queues=N --queue-depth=N --host-nqn=NQN --digests --no-sparse --reconnect=SECONDS\n"
        "  --secret-file=FILE --controller-secret-file=FILE --tls-key-file=FILE\n"
        "bench: --sequential --write[=PERCENT] --depth=N --size=BYTES --seconds=N\n";

int vd_error(const char *what, int error)
{
	fprintf(stderr, "verbena-disk: %s: %s\n", what, strerror(-error));
	return 1;
}

bool vd_is_url(const char *name)
{
	return !strncmp(name, "nvme+", 5) || !strncmp(name, "srp://", 6);
}

bool vd_number(const char *text, uint64_t *n)
{
	static const char units[] = "kmgt";
	char *end;
	unsigned shift = 0;

	errno = 0;
	*n = strtoull(text, &end, 0);
	if (*text < '0' || *text > '9' || errno)
		return false;
	if (*end) {
		const char *u = strchr(units, *end | 0x20);

		if (!u || end[1])
			return false;
		shift = 10 * (unsigned)(u - units + 1);
	}
	if (*n > UINT64_MAX >> shift)
		return false;
	*n <<= shift;
	return true;
}

struct vn_disk *vd_open(const char *url, const struct vd_settings *s)
{
	struct vn_disk *d;
	char why[160];

	if (!vn_open(url, &s->options, &d, why, sizeof(why)))
		return d;
	fprintf(stderr, "verbena-disk: %s: %s\n", url, why);
	return NULL;
}

/* Prints a text for JSON. Texts of targets are printable, but may contain quotes. */
static void print_quoted(const char *name, const char *value, const char *end)
{
	printf("\"%s\": \"", name);
	for (; *value; value++) {
		if (*value == '"' || *value == '\\')
			putchar('\\');
		if ((unsigned char)*value >= ' ')
			putchar(*value);
	}
	printf("\"%s", end);
}

#define PATHS_MAX 8u

static void paths_json(struct vn_disk *d)
{
	struct vn_path_info p[PATHS_MAX];
	size_t n = vn_paths(d, p, PATHS_MAX);

	printf("\"paths\": [");
	for (size_t i = 0; i < n && i < PATHS_MAX; i++) {
		printf("%s{", i ? ", " : "");
		print_quoted("address", p[i].address, ", ");
		print_quoted("port", p[i].service, ", ");
		print_quoted("transport", p[i].transport, ", ");
		print_quoted("access", p[i].access, ", ");
		print_quoted("way", p[i].way, ", ");
		print_quoted("why", p[i].why, ", ");
		printf("\"connected\": %s, \"used\": %s}", p[i].connected ? "true" : "false",
		       p[i].used ? "true" : "false");
	}
	printf("], ");
}

static void show_paths(struct vn_disk *d)
{
	struct vn_path_info p[PATHS_MAX];
	size_t n = vn_paths(d, p, PATHS_MAX);

	for (size_t i = 0; n > 1 && i < n && i < PATHS_MAX; i++)
		printf("path          %s port %s, %s: %s\n", p[i].address, p[i].service,
		       p[i].connected ? p[i].access : "not connected", p[i].why);
}

static void info_json(struct vn_disk *d, const struct vn_info *i)
{
	char way[300];

	printf("{");
	print_quoted("nqn", i->nqn, ", ");
	print_quoted("transport", vn_transport_name(d), ", ");
	vn_way(d, way, sizeof(way));
	print_quoted("way", way, ", ");
	paths_json(d);
	print_quoted("model", i->model, ", ");
	print_quoted("serial", i->serial, ", ");
	print_quoted("firmware", i->firmware, ", ");
	print_quoted("uuid", i->uuid, ", ");
	printf("\"nsid\": %u, \"size\": %llu, \"block_size\": %u, \"max_transfer\": %u, \"optimal_io\": %u, "
	       "\"queues\": %u, \"queue_depth\": %u, "
	       "\"controller\": %u, \"volatile_cache\": %s, \"compare\": %s, \"discard\": %s, \"write_zeroes\": %s, "
	       "\"readonly\": %s}\n",
	       i->nsid, (unsigned long long)i->size, i->block_size, i->max_transfer, i->optimal_io, i->queues,
	       i->queue_depth, i->controller, i->volatile_cache ? "true" : "false", i->compare ? "true" : "false",
	       i->discard ? "true" : "false", i->write_zeroes ? "true" : "false", i->readonly ? "true" : "false");
}

static int show_info(const char *url, const struct vd_settings *s)
{
	struct vn_disk *d = vd_open(url, s);

	if (!d)
		return 1;
	const struct vn_info *i = vn_info(d);

	if (s->json) {
		info_json(d, i);
	} else {
		bool srp = !strncmp(url, "srp://", 6);

		printf("%s     %s\n", srp ? "target   " : "subsystem", i->nqn);
		printf("%s     %u%s%s\n", srp ? "unit     " : "namespace", i->nsid, *i->uuid ? ", UUID " : "", i->uuid);
		printf("size          %llu bytes (%.1f GiB), blocks of %u\n", (unsigned long long)i->size,
		       (double)i->size / (1 << 30), i->block_size);
		printf("model         %s, serial number %s, firmware %s\n", i->model, i->serial, i->firmware);
		char way[300];

		vn_way(d, way, sizeof(way));
		printf("way           %s\n", way);
		show_paths(d);
		printf("connected by  %s, controller %u, queues %u of %u commands, %u bytes each at most\n",
		       vn_transport_name(d), i->controller, i->queues, i->queue_depth, i->max_transfer);
		printf("can           read%s, flush%s%s%s%s\n", i->readonly ? ", not write" : ", write",
		       i->compare ? ", compare" : "", i->discard && !i->readonly ? ", discard" : "",
		       i->write_zeroes && !i->readonly ? ", write zeroes" : "",
		       i->volatile_cache ? "; has a volatile write cache" : "");
	}
	vn_close(d);
	return 0;
}

static int show_list(const char *url, const struct vd_settings *s)
{
	struct vn_found *f;
	size_t n;
	char why[160];
	int e = vn_discover(url, &s->options, &f, &n, why, sizeof(why));

	if (e) {
		fprintf(stderr, "verbena-disk: %s: %s\n", url, why);
		return 1;
	}
	if (s->json)
		printf("[");
	for (size_t i = 0; i < n; i++) {
		bool v6 = strchr(f[i].address, ':');

		if (s->json) {
			printf("%s{", i ? ", " : "");
			print_quoted("nqn", f[i].nqn, ", ");
			print_quoted("transport", f[i].transport, ", ");
			print_quoted("address", f[i].address, ", ");
			print_quoted("port", f[i].service, ", ");
			printf("\"kind\": \"%s\"}", f[i].referral ? "referral" : f[i].discovery ? "discovery" : "disk");
		} else if (!f[i].discovery && *f[i].transport) {
			printf("%s%s%s://%s%s%s%s%s/%s\n", f[i].referral ? "ask also " : "",
			       strcmp(f[i].transport, "srp") ? "nvme+" : "", f[i].transport, v6 ? "[" : "",
			       f[i].address, v6 ? "]" : "", *f[i].service ? ":" : "", f[i].service, f[i].nqn);
		}
	}
	if (s->json)
		printf("]\n");
	free(f);
	return 0;
}

static int run_command(int n, char **arg, const struct vd_settings *s)
{
	uint64_t offset = 0, length = 0;

	if (n == 2 && !strcmp(arg[0], "info"))
		return show_info(arg[1], s);
	if (n == 2 && !strcmp(arg[0], "list"))
		return show_list(arg[1], s);
	if (n == 2 && !strcmp(arg[0], "bench"))
		return vd_bench(arg[1], s);
	if (n == 3 && !strcmp(arg[0], "copy"))
		return vd_copy(arg[1], arg[2], s);
	if (n >= 2 && n <= 4 && !strcmp(arg[0], "read") && (n < 3 || vd_number(arg[2], &offset)) &&
	    (n < 4 || vd_number(arg[3], &length)))
		return vd_read(arg[1], offset, length, s);
	if (n >= 2 && n <= 3 && !strcmp(arg[0], "write") && (n < 3 || vd_number(arg[2], &offset)))
		return vd_write(arg[1], offset, s);
	fputs(usage, stderr);
	return 2;
}

enum {
	O_JSON = 1,
	O_QUIET,
	O_QUEUES,
	O_QUEUE_DEPTH,
	O_NQN,
	O_SECRET,
	O_CONTROLLER_SECRET,
	O_TLS_KEY,
	O_DIGESTS,
	O_NO_SPARSE,
	O_RECONNECT,
	O_SEQUENTIAL,
	O_WRITE,
	O_DEPTH,
	O_SIZE,
	O_SECONDS,
	O_HELP
};

static const struct option options[] = {{"json", 0, NULL, O_JSON},
                                        {"quiet", 0, NULL, O_QUIET},
                                        {"queues", 1, NULL, O_QUEUES},
                                        {"queue-depth", 1, NULL, O_QUEUE_DEPTH},
                                        {"host-nqn", 1, NULL, O_NQN},
                                        {"secret-file", 1, NULL, O_SECRET},
                                        {"controller-secret-file", 1, NULL, O_CONTROLLER_SECRET},
                                        {"tls-key-file", 1, NULL, O_TLS_KEY},
                                        {"digests", 0, NULL, O_DIGESTS},
                                        {"no-sparse", 0, NULL, O_NO_SPARSE},
                                        {"reconnect", 1, NULL, O_RECONNECT},
                                        {"sequential", 0, NULL, O_SEQUENTIAL},
                                        {"write", 2, NULL, O_WRITE},
                                        {"depth", 1, NULL, O_DEPTH},
                                        {"size", 1, NULL, O_SIZE},
                                        {"seconds", 1, NULL, O_SECONDS},
                                        {"help", 0, NULL, O_HELP},
                                        {0}};

static bool take_number(uint64_t max, uint64_t *n)
{
	return vd_number(optarg, n) && *n && *n <= max;
}

static char secrets[3][NV_SECRET_TEXT_MAX]; /* our secret, the controller's, the TLS key */

static bool take_secret(const char *file, char text[NV_SECRET_TEXT_MAX], const char **to)
{
	int e = nv_secret_file(file, text);

	*to = text;
	if (e == EPERM)
		fprintf(stderr, "verbena-disk: %s: everybody can write to it\n", file);
	else if (e)
		vd_error(file, -e);
	else if (nv_secret_exposed(file))
		fprintf(stderr, "verbena-disk: %s: everybody can read it\n", file);
	return !e;
}

static bool take_disk_option(int o, struct vd_settings *s)
{
	uint64_t n = 0;

	switch (o) {
	case O_JSON:
		return s->json = true;
	case O_QUIET:
		return s->quiet = true;
	case O_QUEUES:
		s->options.queues = take_number(64, &n) ? (unsigned)n : 0;
		return n;
	case O_QUEUE_DEPTH:
		s->options.queue_depth = take_number(1023, &n) ? (unsigned)n : 0;
		return s->options.queue_depth;
	case O_NQN:
		s->options.host_nqn = optarg;
		return true;
	case O_SECRET:
		return take_secret(optarg, secrets[0], &s->options.secret);
	case O_CONTROLLER_SECRET:
		return take_secret(optarg, secrets[1], &s->options.controller_secret);
	case O_TLS_KEY:
		return take_secret(optarg, secrets[2], &s->options.tls_key);
	case O_DIGESTS:
		s->options.header_digest = s->options.data_digest = s->options.require_digest = 1;
		return true;
	case O_NO_SPARSE:
		return !(s->sparse = false);
	case O_RECONNECT:
		if (!vd_number(optarg, &n) || n > 1000000)
			return false;
		s->options.reconnect_ms = (unsigned)n * 1000;
		return true;
	case O_SEQUENTIAL:
		return s->sequential = true;
	case O_WRITE:
		n = 100;
		if (optarg && !take_number(100, &n))
			return false;
		s->write_percent = (unsigned)n;
		return true;
	case O_DEPTH:
		return take_number(65536, &n) && (s->depth = (unsigned)n);
	case O_SIZE:
		return take_number(64u << 20, &n) && (s->size = n);
	case O_SECONDS:
		return take_number(86400, &n) && (s->seconds = (unsigned)n);
	default:
		return false;
	}
}

/* An empty variable is as one that is not set. */
static const char *from_environment(const char *name)
{
	const char *value = secure_getenv(name);

	return value && *value ? value : NULL;
}

/* The library cannot say which of the texts is wrong. */
static bool is_secret(const char *text, bool (*parse)(const char *, struct nv_secret *), const char *what)
{
	struct nv_secret s = {0};
	bool good = !text || parse(text, &s);

	nv_secret_wipe(&s);
	if (!good)
		fprintf(stderr, "verbena-disk: %s\n", what);
	return good;
}

static bool secrets_are_right(const struct vn_options *o)
{
	return is_secret(o->secret, nv_secret_parse,
	                 "VERBENA_NVME_SECRET or the file of --secret-file has no secret as nvme gen-dhchap-key prints "
	                 "it (DHHC-1:...:)") &&
	       is_secret(o->controller_secret, nv_secret_parse,
	                 "VERBENA_NVME_CONTROLLER_SECRET or the file of --controller-secret-file has no secret as nvme "
	                 "gen-dhchap-key prints it (DHHC-1:...:)") &&
	       is_secret(o->tls_key, nv_tls_key_parse,
	                 "VERBENA_NVME_TLS_KEY or the file of --tls-key-file has no key as nvme gen-tls-key prints it "
	                 "(NVMeTLSkey-1:...:)");
}

int main(int argc, char **argv)
{
	struct vd_settings s = {.sparse = true, .depth = 32, .seconds = 10, .size = 4096};

	vn_options_init(&s.options);
	s.options.secret = from_environment("VERBENA_NVME_SECRET");
	s.options.controller_secret = from_environment("VERBENA_NVME_CONTROLLER_SECRET");
	s.options.tls_key = from_environment("VERBENA_NVME_TLS_KEY");
	for (int o; (o = getopt_long(argc, argv, "h", options, NULL)) != -1;) {
		if (o == O_HELP || o == 'h') {
			fputs(usage, stdout);
			return 0;
		}
		if (!take_disk_option(o, &s)) {
			fputs(usage, stderr);
			return 2;
		}
	}
	int status = secrets_are_right(&s.options) ? run_command(argc - optind, argv + optind, &s) : 2;

	explicit_bzero(secrets, sizeof(secrets));
	if (fflush(stdout) && !status)
		status = vd_error("standard output", -errno);
	return status;
}
