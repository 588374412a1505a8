// host.c - the host's NQN and id, and the defaults of options
// follows: NVMe over Fabrics 1.1, 1.5.2 (host NQN and identifier)
// SPDX-License-Identifier: MIT
#include <errno.h>
#include <string.h>
#include <sys/random.h>

#include "client/client.h"

void vn_options_init(struct vn_options *o)
{
	*o = (struct vn_options){.size = sizeof(*o),
	                         .queue_depth = 128,
	                         .queues = 1,
	                         .max_transfer = 2u << 20,
	                         .keep_alive_ms = 15000,
	                         .connect_ms = 10000,
	                         .rdma_ms = 3000,
	                         .rdma_again_ms = 60000,
	                         .spin_us = 200,
	                         .io_ms = 30000,
	                         .reconnect_ms = 600000,
	                         .reconnect_pause_ms = 1000,
	                         .retries = 5,
	                         .path_ms = 2000};
}

/* Reads the first line of a file, without its end. */
static bool first_line(const char *path, char *line, int size)
{
	FILE *f = fopen(path, "re");
	bool got;

	if (!f)
		return false;
	got = fgets(line, size, f);
	fclose(f);
	if (got)
		line[strcspn(line, " \t\r\n")] = 0;
	return got && *line;
}

static int made_nqn(char nqn[NV_NQN_SIZE])
{
	char machine[64], text[NV_UUID_TEXT];
	uint8_t uuid[16];

	if (first_line("/etc/machine-id", machine, sizeof(machine)))
		nv_uuid_from(machine, 0, uuid);
	else if (getrandom(uuid, sizeof(uuid), 0) != sizeof(uuid))
		return -errno;
	nv_uuid_format(uuid, text);
	snprintf(nqn, NV_NQN_SIZE, "nqn.2014-08.org.nvmexpress:uuid:%s", text);
	return 0;
}

/* text NULL: there is no secret. */
static int take_secret_text(const char *text, bool (*parse)(const char *text, struct nv_secret *s), struct nv_secret *s)
{
	if (!text)
		return 0;
#ifndef VN_HAVE_AUTH
	return -EOPNOTSUPP;
#endif
	return parse(text, s) ? 0 : -EINVAL;
}

int vn_identity(const struct vn_options *o, struct vn_identity *i)
{
	static const uint8_t none[16];
	char line[NV_NQN_SIZE + 2];
	int e = 0;

	if (o->host_nqn) {
		if (!nv_nqn_valid(o->host_nqn, strlen(o->host_nqn) + 1))
			return -EINVAL;
		strcpy(i->host_nqn, o->host_nqn);
	} else if (first_line("/etc/nvme/hostnqn", line, sizeof(line)) && nv_nqn_valid(line, sizeof(line))) {
		strcpy(i->host_nqn, line);
	} else {
		e = made_nqn(i->host_nqn);
	}
	if (!e)
		e = take_secret_text(o->secret, nv_secret_parse, &i->secret);
	if (!e)
		e = take_secret_text(o->controller_secret, nv_secret_parse, &i->controller_secret);
	if (!e)
		e = take_secret_text(o->tls_key, nv_tls_key_parse, &i->tls);
	if (!e && i->controller_secret.length && !i->secret.length)
		e = -EINVAL;
	if (e)
		return e;
	if (o->host_id) {
		memcpy(i->host_id, o->host_id, 16);
		return memcmp(o->host_id, none, 16) ? 0 : -EINVAL;
	}
	if (o->host_nqn || !first_line("/etc/nvme/hostid", line, sizeof(line)) || !nv_uuid_parse(line, i->host_id))
		nv_uuid_from(i->host_nqn, 0, i->host_id);
	return 0;
}
