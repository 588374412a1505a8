// preload_config.c - which sockets become rsockets, and the size of their buffers
// follows: rsocket(7) ("preload library"); the format of preload_config in rdma-core
// SPDX-License-Identifier: MIT
#include "rsocket/preload/preload.h"

#include <netinet/in.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <strings.h>

#include "rsocket/conf_file.h"

enum { RULES_MAX = 1024 };

bool pre_fork_support;
static int sq_size, rq_size, inline_size;

/* One line of the file: program, domain, type and protocol; * stands for any. */
struct rule {
	struct rule *next;
	char program[64];
	int domain, type, protocol; /* 0: any */
};
static struct rule *rules;

static const struct name {
	const char *text;
	int value;
} domains[] = {{"*", 0},
               {"INET", AF_INET},
               {"AF_INET", AF_INET},
               {"PF_INET", AF_INET},
               {"INET6", AF_INET6},
               {"AF_INET6", AF_INET6},
               {"PF_INET6", AF_INET6},
               {NULL, -1}},
  types[] = {{"*", 0},
             {"STREAM", SOCK_STREAM},
             {"SOCK_STREAM", SOCK_STREAM},
             {"DGRAM", SOCK_DGRAM},
             {"SOCK_DGRAM", SOCK_DGRAM},
             {NULL, -1}},
  protocols[] = {{"*", 0},
                 {"TCP", IPPROTO_TCP},
                 {"IPPROTO_TCP", IPPROTO_TCP},
                 {"UDP", IPPROTO_UDP},
                 {"IPPROTO_UDP", IPPROTO_UDP},
                 {NULL, -1}};

static int value_of(const struct name *n, const char *text)
{
	while (n->text && strcasecmp(n->text, text))
		n++;
	return n->value;
}

static void read_rule(const char *line)
{
	char domain[16], type[16], protocol[16];
	struct rule r = {0}, *copy;

	if (*line == '#' || sscanf(line, "%63s %15s %15s %15s", r.program, domain, type, protocol) != 4)
		return;
	r.domain = value_of(domains, domain);
	r.type = value_of(types, type);
	r.protocol = value_of(protocols, protocol);
	if (r.domain < 0 || r.type < 0 || r.protocol < 0)
		return;
	copy = malloc(sizeof(*copy));
	if (!copy)
		return;
	*copy = r;
	copy->next = rules;
	rules = copy;
}

static int parse_number(const char *name)
{
	const char *text = secure_getenv(name);

	return text ? atoi(text) : 0;
}

void pre_read_config(void)
{
	FILE *f = rs_open_conf("preload_config");
	char line[160];
	int left = RULES_MAX;

	sq_size = parse_number("RS_SQ_SIZE");
	rq_size = parse_number("RS_RQ_SIZE");
	inline_size = parse_number("RS_INLINE");
	pre_fork_support = parse_number("RDMAV_FORK_SAFE") != 0;
	if (!f)
		return;
	while (left-- && fgets(line, sizeof(line), f))
		read_rule(line);
	fclose(f);
}

/* Without a file: all of TCP and UDP. */
bool pre_wanted(int domain, int type, int protocol)
{
	type &= ~(SOCK_NONBLOCK | SOCK_CLOEXEC);
	if ((domain != AF_INET && domain != AF_INET6) || (type != SOCK_STREAM && type != SOCK_DGRAM))
		return false;
	if (!protocol)
		protocol = type == SOCK_STREAM ? IPPROTO_TCP : IPPROTO_UDP;
	if (protocol != (type == SOCK_STREAM ? IPPROTO_TCP : IPPROTO_UDP))
		return false;
	for (struct rule *r = rules; r; r = r->next) {
		bool program = !strcmp(r->program, "*") ||
		               !strncasecmp(r->program, program_invocation_short_name, strlen(r->program));

		if (program && (!r->domain || r->domain == domain) && (!r->type || r->type == type) &&
		    (!r->protocol || r->protocol == protocol))
			return true;
	}
	return !rules;
}

void pre_tune(int rs)
{
	if (sq_size)
		rsetsockopt(rs, SOL_RDMA, RDMA_SQSIZE, &sq_size, sizeof(sq_size));
	if (rq_size)
		rsetsockopt(rs, SOL_RDMA, RDMA_RQSIZE, &rq_size, sizeof(rq_size));
	if (inline_size)
		rsetsockopt(rs, SOL_RDMA, RDMA_INLINE, &inline_size, sizeof(inline_size));
}
