// url.c - the addresses of disks
// follows: RFC 3986 (syntax); NVM Express Base 1.4, 7.9 (names)
// SPDX-License-Identifier: MIT
#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "client/client.h"

static const struct {
	const char *name;
	enum vn_scheme scheme;
} schemes[] = {{"nvme+tcp://", VN_SCHEME_TCP},
               {"nvme+tls://", VN_SCHEME_TLS},
               {"nvme+rdma://", VN_SCHEME_RDMA},
               {"nvme+auto://", VN_SCHEME_AUTO}};

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
static bool parse_authority(const char *at, const char *end, struct vn_url *u)
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
	if (!copy_part(u->host, sizeof(u->host), host, (size_t)(host_end - host)))
		return false;
	if (colon == end) {
		strcpy(u->service, "4420");
		return true;
	}
	return *colon == ':' && copy_part(u->service, sizeof(u->service), colon + 1, (size_t)(end - colon - 1)) &&
	       parse_number(u->service, 65535, &port);
}

int vn_url_parse(const char *text, struct vn_url *out)
{
	struct vn_url u = {0};
	const char *at = NULL, *end, *path;
	unsigned long n;

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
	if (path && path + 1 != end &&
	    (!copy_part(u.nqn, sizeof(u.nqn), path + 1, (size_t)(end - path - 1)) ||
	     !nv_nqn_valid(u.nqn, sizeof(u.nqn))))
		return -EINVAL;
	if (query) {
		if (strncmp(query, "?nsid=", 6) || !parse_number(query + 6, NV_NSID_ALL - 1, &n))
			return -EINVAL;
		u.nsid = (uint32_t)n;
	}
	*out = u;
	return 0;
}
