// resource_row.c - a row of a program's answer about its objects, as numbers for RDMA netlink
// follows: docs/control.md; linux/rdma_netlink.h; rdma-resource(8)
// SPDX-License-Identifier: MIT
#include "tools/shim/resource_row.h"

#include <arpa/inet.h>
#include <infiniband/verbs.h>
#include <rdma/rdma_cma.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* The names of an enumeration, in the order of its numbers; NULL: there is none. */
static const char *const qp_states[] = {"RESET", "INIT", "RTR", "RTS", "SQD", "SQE", "ERR"};
static const char *const id_states[] = {"IDLE",    "ADDR_QUERY", "ADDR_RESOLVED", "ROUTE_QUERY", "ROUTE_RESOLVED",
                                        "CONNECT", "DISCONNECT", "ADDR_BOUND",    "LISTEN",      "DEVICE_REMOVAL"};
/* The kernel's numbers of types: those of enum ib_qp_type. */
static const char *const qp_types[] = {NULL, NULL, "RC", "UC", "UD", NULL, NULL, NULL, "RAW", "XRC_SEND", "XRC_RECV"};
static const char *const port_spaces[] = {"IPOIB", "TCP", "UDP", "IB"};
static const uint32_t port_space_numbers[] = {RDMA_PS_IPOIB, RDMA_PS_TCP, RDMA_PS_UDP, RDMA_PS_IB};

#define COUNT_OF(names) (sizeof(names) / sizeof((names)[0]))

/* The value behind "key": in the line; NULL if there is none. */
static const char *value_of(const char *line, const char *key)
{
	char quoted[40];

	snprintf(quoted, sizeof(quoted), "\"%s\": ", key);
	const char *at = strstr(line, quoted);

	return at ? at + strlen(quoted) : NULL;
}

static bool read_number(const char *line, const char *key, uint64_t *n)
{
	const char *p = value_of(line, key);

	*n = p && *p >= '0' && *p <= '9' ? strtoull(p, NULL, 10) : 0;
	return p && *p >= '0' && *p <= '9';
}

static uint32_t number_of(const char *line, const char *key)
{
	uint64_t n;

	read_number(line, key, &n);
	return (uint32_t)n;
}

/* Copies a text without escapes. False if there is none, or if it is too long. */
static bool read_word(const char *line, const char *key, char *buf, size_t size)
{
	const char *p = value_of(line, key);
	size_t n = p && *p == '"' ? strcspn(p + 1, "\"\\") : size;

	if (n >= size || p[n + 1] != '"')
		return false;
	memcpy(buf, p + 1, n);
	buf[n] = '\0';
	return true;
}

/* The place of a text among names; -1 if it is none of them. */
static int place_of(const char *line, const char *key, const char *const *names, size_t n)
{
	char word[32];

	if (read_word(line, key, word, sizeof(word)))
		for (size_t i = 0; i < n; i++)
			if (names[i] && !strcmp(names[i], word))
				return (int)i;
	return -1;
}

/* Reads "1.2.3.4:5" or "[::1]:5". */
static void read_address(const char *line, const char *key, struct sockaddr_storage *to)
{
	struct sockaddr_in6 sin6 = {.sin6_family = AF_INET6};
	struct sockaddr_in sin = {.sin_family = AF_INET};
	char word[80];

	*to = (struct sockaddr_storage){0};
	char *colon = read_word(line, key, word, sizeof(word)) ? strrchr(word, ':') : NULL;
	if (!colon || colon == word)
		return;
	uint16_t port = htons((uint16_t)strtoul(colon + 1, NULL, 10));

	*colon = '\0';
	if (*word == '[' && colon[-1] == ']') {
		colon[-1] = '\0';
		if (inet_pton(AF_INET6, word + 1, &sin6.sin6_addr) == 1) {
			sin6.sin6_port = port;
			memcpy(to, &sin6, sizeof(sin6));
		}
	} else if (inet_pton(AF_INET, word, &sin.sin_addr) == 1) {
		sin.sin_port = port;
		memcpy(to, &sin, sizeof(sin));
	}
}

static bool read_queue_pair(const char *line, struct vb_shim_resource *r)
{
	int type = place_of(line, "type", qp_types, COUNT_OF(qp_types));
	int state = place_of(line, "state", qp_states, COUNT_OF(qp_states));
	uint64_t peer;

	if (!value_of(line, "qpn") || type < 0 || state < 0)
		return false;
	r->id = number_of(line, "qpn");
	r->pdn = number_of(line, "pd");
	r->type = (uint8_t)type;
	r->state = (uint8_t)state;
	r->has_peer = read_number(line, "peer_qpn", &peer);
	r->peer_qpn = (uint32_t)peer;
	r->has_psns = value_of(line, "rq_psn") != NULL;
	r->sq_psn = number_of(line, "sq_psn");
	r->rq_psn = number_of(line, "rq_psn");
	return true;
}

static bool read_id(const char *line, struct vb_shim_resource *r)
{
	int state = place_of(line, "state", id_states, COUNT_OF(id_states));
	int space = place_of(line, "port_space", port_spaces, COUNT_OF(port_spaces));

	if (state < 0 || space < 0)
		return false;
	r->state = (uint8_t)state;
	r->port_space = port_space_numbers[space];
	read_address(line, "local", &r->local);
	read_address(line, "remote", &r->remote);
	return true;
}

bool vb_shim_resource_read(enum vb_shim_kind kind, const char *device, const char *line, struct vb_shim_resource *r)
{
	static const char *const keys[] = {
	        [VB_SHIM_QP] = "qpn", [VB_SHIM_CQ] = "cqn", [VB_SHIM_MR] = "key", [VB_SHIM_PD] = "pdn"};
	char name[64];
	bool has_device = read_word(line, "device", name, sizeof(name));

	*r = (struct vb_shim_resource){0};
	if (has_device ? strcmp(name, device) != 0 : kind != VB_SHIM_CM_ID)
		return false;
	if (kind == VB_SHIM_CM_ID)
		return read_id(line, r);
	if (kind == VB_SHIM_QP)
		return read_queue_pair(line, r);
	if (!value_of(line, keys[kind]))
		return false;
	r->id = number_of(line, keys[kind]);
	r->pdn = number_of(line, "pd");
	r->cqe = number_of(line, "capacity");
	read_number(line, "users", &r->users);
	read_number(line, "iova", &r->iova);
	read_number(line, "length", &r->length);
	return true;
}
