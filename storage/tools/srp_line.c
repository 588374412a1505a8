// srp_line.c - reads a line that names a SRP target, as Linux's ib_srp does
// follows: Linux Documentation/ABI/stable/sysfs-driver-ib_srp, add_target; drivers/infiniband/ulp/srp/ib_srp.c
// SPDX-License-Identifier: MIT
#include "tools/srp_line.h"

#include <arpa/inet.h>
#include <ctype.h>
#include <errno.h>
#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum {
	ID_EXT = 1,
	IOC_GUID = 2,
	DGID = 4,
	PKEY = 8,
	SERVICE_ID = 16,
	DEST = 32,
	BY_GID = ID_EXT | IOC_GUID | DGID | PKEY | SERVICE_ID,
	BY_IP = ID_EXT | IOC_GUID | DEST
};

#define LINE_MAX_BYTES 4096u /* of a file of sysfs */
#define IO_CLASS_16A 0x0100
#define SG_SEGMENTS_MAX 2048
#define CMD_SG_DEFAULT 12 /* the module parameter's */
#define RETRIES_DEFAULT 7

static int read_hex64(const char *text, uint64_t *n)
{
	char *end;

	if (*text == '+')
		text++;
	if (!isxdigit((unsigned char)*text))
		return EINVAL;
	errno = 0;
	*n = strtoull(text, &end, 16);
	return *end ? EINVAL : errno;
}

static int read_int(const char *text, int base, int least, int most, int *n)
{
	char *end;

	if (!isxdigit((unsigned char)text[*text == '-' && base != 16]))
		return EINVAL;
	errno = 0;
	long v = strtol(text, &end, base);

	if (*end || end == text)
		return EINVAL;
	if (errno || v > INT_MAX || v < INT_MIN)
		return ERANGE;
	if (v < least || v > most)
		return EINVAL;
	*n = (int)v;
	return 0;
}

static int read_gid(const char *text, uint8_t gid[16])
{
	if (strlen(text) != 32 || strspn(text, "0123456789abcdefABCDEF") != 32)
		return EINVAL;
	for (int i = 0; i < 16; i++)
		sscanf(text + 2 * i, "%2hhx", &gid[i]);
	return 0;
}

/* ADDRESS:PORT, an IPv6 address in brackets. A scope (%eth0) is not for InfiniBand, nor are names. */
static int read_ip_address(const char *text, bool port_needed, struct vd_srp_line *l)
{
	const char *colon = strrchr(text, ':'), *end;
	struct in6_addr any;
	int port = 0, family = *text == '[' ? AF_INET6 : AF_INET;

	if (colon && strchr(colon, ']'))
		colon = NULL;
	end = colon ? colon : text + strlen(text);
	if ((!colon && port_needed) || (colon && read_int(colon + 1, 10, 0, 65535, &port)))
		return EINVAL;
	if (family == AF_INET6 && (*--end != ']' || ++text > end))
		return EINVAL;
	if ((size_t)(end - text) >= sizeof(l->host))
		return EINVAL;
	char host[sizeof(l->host)];

	memcpy(host, text, (size_t)(end - text));
	host[end - text] = '\0';
	if (inet_pton(family, host, &any) != 1)
		return EINVAL;
	if (!port_needed) /* the source: the routing table chooses it */
		return 0;
	strcpy(l->host, host);
	snprintf(l->service, sizeof(l->service), "%d", port);
	l->by_ip = true;
	return 0;
}

static int read_io_class(const char *text)
{
	int class;
	int e = read_int(text, 16, 0, INT_MAX, &class);

	return e ? e : class == IO_CLASS_16A ? 0 : EINVAL; /* deviates: ib_srp also knows revision 10, 0xff00 */
}

static int read_pkey(const char *text, uint16_t *pkey)
{
	int n;
	int e = read_int(text, 16, 0, 0xffff, &n);

	if (!e)
		*pkey = (uint16_t)n;
	return e;
}

static int take_number(const char *name, const char *value, struct vd_srp_line *l)
{
	int ignored;
	const struct {
		const char *name;
		int least, most, *n;
	} numbers[] = {
	        {"max_sect", INT_MIN, INT_MAX, &l->max_sect},   {"max_cmd_per_lun", 1, INT_MAX, &ignored},
	        {"target_can_queue", 1, INT_MAX, &ignored},     {"queue_size", 1, INT_MAX, &l->queue_size},
	        {"cmd_sg_entries", 1, 255, &l->cmd_sg_entries}, {"allow_ext_sg", INT_MIN, INT_MAX, &l->allow_ext_sg},
	        {"sg_tablesize", 1, SG_SEGMENTS_MAX, &ignored}, {"comp_vector", 0, INT_MAX, &l->comp_vector},
	        {"tl_retry_count", 2, 7, &l->tl_retry_count},   {"max_it_iu_size", 0, INT_MAX, &ignored},
	        {"ch_count", 1, INT_MAX, &l->ch_count}};

	for (size_t i = 0; i < sizeof(numbers) / sizeof(*numbers); i++)
		if (!strcmp(name, numbers[i].name))
			return read_int(value, 0, numbers[i].least, numbers[i].most, numbers[i].n);
	return EINVAL;
}

static int take_parameter(const char *name, const char *value, struct vd_srp_line *l, unsigned *seen)
{
	struct vd_srp_line source;

	if (!strcmp(name, "id_ext"))
		return *seen |= ID_EXT, read_hex64(value, &l->id_ext);
	if (!strcmp(name, "ioc_guid"))
		return *seen |= IOC_GUID, read_hex64(value, &l->ioc_guid);
	if (!strcmp(name, "dgid"))
		return *seen |= DGID, read_gid(value, l->dgid);
	if (!strcmp(name, "pkey"))
		return *seen |= PKEY, read_pkey(value, &l->pkey);
	if (!strcmp(name, "service_id"))
		return *seen |= SERVICE_ID, read_hex64(value, &l->service_id);
	if (!strcmp(name, "dest"))
		return *seen |= DEST, read_ip_address(value, true, l);
	if (!strcmp(name, "src"))
		return read_ip_address(value, false, &source);
	if (!strcmp(name, "initiator_ext"))
		return read_hex64(value, &l->initiator_ext);
	return strcmp(name, "io_class") ? take_number(name, value, l) : read_io_class(value);
}

int vd_srp_line_parse(const char *text, struct vd_srp_line *out, char *why, size_t size)
{
	struct vd_srp_line l = {.tl_retry_count = RETRIES_DEFAULT, .cmd_sg_entries = CMD_SG_DEFAULT};
	char copy[LINE_MAX_BYTES + 1], *rest = copy;
	unsigned seen = 0;

	if (strlen(text) > LINE_MAX_BYTES)
		return snprintf(why, size, "the line is too long"), EINVAL;
	strcpy(copy, text);
	for (char *option; (option = strsep(&rest, ",\n"));) {
		char *equals = strchr(option, '=');

		if (!*option)
			continue;
		if (equals)
			*equals = '\0';
		int e = equals && equals[1] ? take_parameter(option, equals + 1, &l, &seen) : EINVAL;

		if (e)
			return snprintf(why, size, "unknown parameter or bad value: %.40s=%.60s", option,
			                equals ? equals + 1 : ""),
			       e;
	}
	if ((seen & BY_GID) != BY_GID && (seen & BY_IP) != BY_IP)
		return snprintf(why, size, "it is missing one or more parameters"), EINVAL;
	*out = l;
	return 0;
}

bool vd_srp_line_same(const struct vd_srp_line *a, const struct vd_srp_line *b)
{
	return a->id_ext == b->id_ext && a->ioc_guid == b->ioc_guid && a->initiator_ext == b->initiator_ext &&
	       a->by_ip == b->by_ip && (!a->by_ip || (!strcmp(a->host, b->host) && !strcmp(a->service, b->service)));
}

void vd_srp_line_url(const struct vd_srp_line *l, int lun, char *url, size_t size)
{
	unsigned long long id = l->id_ext, guid = l->ioc_guid, service = l->service_id;
	char gid[INET6_ADDRSTRLEN], unit[16] = "";
	bool v6 = strchr(l->host, ':');

	if (l->by_ip) {
		if (lun >= 0)
			snprintf(unit, sizeof(unit), "?lun=%d", lun);
		snprintf(url, size, "srp://%s%s%s:%s/%016llx:%016llx%s", v6 ? "[" : "", l->host, v6 ? "]" : "",
		         l->service, id, guid, unit);
		return;
	}
	if (lun >= 0)
		snprintf(unit, sizeof(unit), "&lun=%d", lun);
	inet_ntop(AF_INET6, l->dgid, gid, sizeof(gid));
	snprintf(url, size, "srp://[%s]/%016llx:%016llx?service=%llx&pkey=%x%s", gid, id, guid, service, l->pkey, unit);
}
