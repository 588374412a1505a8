// url.c - the addresses of disks
// follows: RFC 3986 (syntax); NVM Express Base 1.4, 7.9 (names)
// SPDX-License-Identifier: MIT
#include <arpa/inet.h>
#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "client/client.h"
#include "scsi/be.h"

static const struct {
	const char *name;
	enum vn_scheme scheme;
} schemes[] = {{"nvme+tcp://", VN_SCHEME_TCP},
               {"nvme+tls://", VN_SCHEME_TLS},
               {"nvme+rdma://", VN_SCHEME_RDMA},
               {"nvme+auto://", VN_SCHEME_AUTO},
               {"srp://", VN_SCHEME_SRP}};

static bool copy_part(char *to, size_t size, const char *from, size_t len)
{
	if (!len || len >= size)
		return false;
	memcpy(to, from, len);
	to[len] = 0;
	return true;
}

static bool parse_number(const char *text, unsigned long max, unsigned long *n)
{
	char *end;

	errno = 0;
	*n = strtoul(text, &end, 10);
	return *text >= '0' && *text <= '9' && !*end && !errno && *n && *n <= max;
}

/* Parses HOST[:PORT] up to end. A bracketed host may contain colons. */
static bool parse_place(const char *at, const char *end, const char *port_of_scheme, struct vn_place *p)
{
	const char *host = at, *host_end, *colon;
	unsigned long port;

	if (*at == '[') {
		host = at + 1;
		host_end = memchr(host, ']', (size_t)(end - host));
		if (!host_end)
			return false;
		colon = host_end + 1;
	} else {
		host_end = memchr(at, ':', (size_t)(end - at));
		colon = host_end = host_end ? host_end : end;
	}
	if (!copy_part(p->host, sizeof(p->host), host, (size_t)(host_end - host)))
		return false;
	if (colon == end) {
		strcpy(p->service, port_of_scheme);
		return true;
	}
	return *colon == ':' && copy_part(p->service, sizeof(p->service), colon + 1, (size_t)(end - colon - 1)) &&
	       parse_number(p->service, 65535, &port);
}

/* HOST[:PORT],… : a disk of NVMe may have several paths. */
static bool parse_authority(const char *at, const char *end, struct vn_url *u)
{
	bool srp = u->scheme == VN_SCHEME_SRP;

	for (const char *comma = at; comma < end || !u->n; at = comma + 1) {
		comma = memchr(at, ',', (size_t)(end - at));
		comma = comma ? comma : end;
		if (u->n == (srp ? 1 : VN_PATHS_MAX) || !parse_place(at, comma, srp ? "5555" : "4420", &u->at[u->n]))
			return false;
		u->n++;
	}
	return true;
}

static bool parse_hex(const char *at, const char *end, uint64_t *out)
{
	uint64_t n = 0;

	if (at == end || end - at > 16)
		return false;
	for (; at < end; at++) {
		const char *digits = "0123456789abcdef", *digit = strchr(digits, *at | (*at >= 'A' ? 0x20 : 0));

		if (!digit || !*digit)
			return false;
		n = n << 4 | (uint64_t)(digit - digits);
	}
	*out = n;
	return true;
}

/* ID_EXT[:IOC_GUID], the numbers that ib_srp takes by these names. They are the same for most targets. */
static bool parse_port_id(const char *at, const char *end, struct vn_url *u)
{
	const char *colon = memchr(at, ':', (size_t)(end - at)), *first = colon ? colon : end;
	uint64_t id, guid;

	if (!parse_hex(at, first, &id) || !parse_hex(colon ? colon + 1 : at, end, &guid))
		return false;
	sc_put64(u->target, id);
	sc_put64(u->target + 8, guid);
	snprintf(u->nqn, sizeof(u->nqn), "%016llx:%016llx", (unsigned long long)id, (unsigned long long)guid);
	return true;
}

#define LUN_MAX 16383u /* with flat space addressing. SAM-5, 4.7.7.3 */
#define PKEY_DEFAULT 0xffffu

static bool parse_hex_number(const char *text, uint64_t *n)
{
	return parse_hex(text, text + strlen(text), n);
}

static bool parse_srp_option(const char *text, struct vn_url *u)
{
	unsigned long n = 0;
	uint64_t pkey;

	if (!strncmp(text, "lun=", 4)) {
		bool right = !strcmp(text + 4, "0") || parse_number(text + 4, LUN_MAX, &n);

		u->lun = (uint16_t)n;
		return right;
	}
	if (!strncmp(text, "service=", 8))
		return parse_hex_number(text + 8, &u->service_id) && u->service_id;
	if (strncmp(text, "pkey=", 5) || !parse_hex_number(text + 5, &pkey) || pkey > 0xffff)
		return false;
	u->pkey = (uint16_t)pkey;
	return true;
}

/* ?lun=N; on InfiniBand ?service=ID[&pkey=P_KEY][&lun=N], after a GID without a port */
static bool parse_srp_query(const char *query, bool bare, struct vn_url *u)
{
	char copy[80], *rest = copy;
	uint8_t gid[16];

	if (!copy_part(copy, sizeof(copy), query + 1, strlen(query + 1)))
		return false;
	for (char *text; (text = strsep(&rest, "&"));)
		if (!parse_srp_option(text, u))
			return false;
	if (!u->service_id)
		return !u->pkey;
	if (!u->pkey)
		u->pkey = PKEY_DEFAULT;
	snprintf(u->at[0].service, sizeof(u->at[0].service), "%llx", (unsigned long long)u->service_id);
	return bare && inet_pton(AF_INET6, u->at[0].host, gid) == 1;
}

/* ?nsid=N, ?discover, or both in any order, joined by & */
static bool parse_nvme_query(const char *query, struct vn_url *u)
{
	char copy[40], *rest = copy;
	unsigned long n;

	if (!copy_part(copy, sizeof(copy), query + 1, strlen(query + 1)))
		return false;
	for (char *text; (text = strsep(&rest, "&"));) {
		if (!strcmp(text, "discover") && !u->discover) {
			u->discover = true;
			continue;
		}
		if (strncmp(text, "nsid=", 5) || u->nsid || !parse_number(text + 5, NV_NSID_ALL - 1, &n))
			return false;
		u->nsid = (uint32_t)n;
	}
	return true;
}

int vn_url_parse(const char *text, struct vn_url *out)
{
	struct vn_url u = {0};
	const char *at = NULL, *end, *path;

	for (size_t i = 0; i < sizeof(schemes) / sizeof(*schemes); i++)
		if (!strncmp(text, schemes[i].name, strlen(schemes[i].name))) {
			u.scheme = schemes[i].scheme;
			at = text + strlen(schemes[i].name);
		}
	if (!at)
		return -EINVAL;
	const char *query = strchr(at, '?');

	end = query ? query : at + strlen(at);
	path = memchr(at, '/', (size_t)(end - at));
	if (!parse_authority(at, path ? path : end, &u))
		return -EINVAL;
	if (u.scheme == VN_SCHEME_SRP) {
		if (!path || !parse_port_id(path + 1, end, &u) ||
		    (query && !parse_srp_query(query, *at == '[' && path[-1] == ']', &u)))
			return -EINVAL;
		*out = u;
		return 0;
	}
	if (path && path + 1 != end &&
	    (!copy_part(u.nqn, sizeof(u.nqn), path + 1, (size_t)(end - path - 1)) ||
	     !nv_nqn_valid(u.nqn, sizeof(u.nqn))))
		return -EINVAL;
	if (query && !parse_nvme_query(query, &u))
		return -EINVAL;
	*out = u;
	return 0;
}
