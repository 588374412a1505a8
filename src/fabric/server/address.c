// address.c - the table of IP addresses of channel adapters, which stands for the address resolution of IPoIB
// follows: man/verbena-fabric.8; RFC 4291 §2.5.5.2 (IPv4-mapped addresses)
// SPDX-License-Identifier: MIT
#include <arpa/inet.h>
#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "fabric/server/server.h"
#include "frame/cursor.h"

struct address {
	uint8_t ip[16]; /* IPv4 mapped */
	struct vb_fabric_node *node;
	uint32_t next_same; /* of the same hash, as in address_by_ip */
};

static const uint8_t mapped[12] = {[10] = 0xff, [11] = 0xff};

static bool is_ipv4(const uint8_t ip[16])
{
	return !memcmp(ip, mapped, sizeof(mapped));
}

static bool ip_of(const char *text, uint8_t ip[16])
{
	memcpy(ip, mapped, sizeof(mapped));
	return inet_pton(AF_INET, text, ip + sizeof(mapped)) == 1 || inet_pton(AF_INET6, text, ip) == 1;
}

/* One of a port that programs may bind to and connect to. */
static bool is_usable(const uint8_t ip[16])
{
	static const uint8_t zeros[16];

	if (is_ipv4(ip))
		return ip[12] && ip[12] != 127 && ip[12] < 224;
	return ip[0] != 0xff && !(ip[0] == 0xfe && (ip[1] & 0xc0) == 0x80) && memcmp(ip, zeros, 15) != 0;
}

static uint32_t hash_of(const uint8_t ip[16])
{
	uint32_t h = 2166136261u;

	for (unsigned i = 0; i < 16; i++)
		h = (h ^ ip[i]) * 16777619u;
	return h % VB_FABRIC_IP_HASH;
}

static struct address *find(const struct server *s, const uint8_t ip[16])
{
	uint32_t i = s->address_by_ip[hash_of(ip)];

	while (i && memcmp(s->addresses[i - 1].ip, ip, 16) != 0)
		i = s->addresses[i - 1].next_same;
	return i ? &s->addresses[i - 1] : NULL;
}

/* Its place in the table has changed, or is new. */
static void enter_address(struct server *s, struct address *a)
{
	uint32_t *place = &s->address_by_ip[hash_of(a->ip)];

	a->next_same = *place;
	*place = (uint32_t)(a - s->addresses) + 1;
}

static int add(struct server *s, const uint8_t ip[16], struct vb_fabric_node *n)
{
	struct address *a = find(s, ip);

	if (!a && !(s->address_count & (s->address_count - 1))) { /* the room is a power of two */
		a = realloc(s->addresses, (s->address_count ? 2 * s->address_count : 1) * sizeof(*a));
		if (!a)
			return ENOMEM;
		s->addresses = a;
		a = NULL;
	}
	if (!a) {
		a = &s->addresses[s->address_count++];
		memcpy(a->ip, ip, 16);
		enter_address(s, a);
	}
	a->node = n;
	s->address_changes++;
	return 0;
}

static void drop_all_of(struct server *s, const struct vb_fabric_node *n)
{
	size_t kept = 0;

	for (size_t i = 0; i < s->address_count; i++)
		if (s->addresses[i].node != n)
			s->addresses[kept++] = s->addresses[i];
	s->address_count = kept;
	memset(s->address_by_ip, 0, sizeof(s->address_by_ip));
	for (size_t i = 0; i < kept; i++)
		enter_address(s, &s->addresses[i]);
	s->address_changes++;
}

/* The first address of a node of one family. */
static const struct address *first_of(const struct server *s, const struct vb_fabric_node *n, bool ipv4)
{
	for (size_t i = 0; i < s->address_count; i++)
		if (s->addresses[i].node == n && is_ipv4(s->addresses[i].ip) == ipv4)
			return &s->addresses[i];
	return NULL;
}

/* --- a network --- */

int address_network(struct server *s, const char *text)
{
	char *slash = strchr(text, '/'), *end = NULL, copy[INET_ADDRSTRLEN];
	size_t len = slash ? (size_t)(slash - text) : 0;
	unsigned long bits = slash ? strtoul(slash + 1, &end, 10) : 0;
	struct in_addr net;

	if (!len || len >= sizeof(copy) || !slash[1] || *end || bits < 1 || bits > 30)
		return EINVAL;
	memcpy(copy, text, len);
	copy[len] = '\0';
	if (inet_pton(AF_INET, copy, &net) != 1)
		return EINVAL;
	s->network_end = ntohl(net.s_addr) | (0xffffffffu >> bits);
	s->network_next = (s->network_end & ~(0xffffffffu >> bits)) + 1;
	return s->network_next >> 24 && s->network_next >> 24 != 127 && s->network_next >> 24 < 224 ? 0 : EINVAL;
}

bool address_number(struct server *s)
{
	uint8_t ip[16];

	for (size_t i = s->numbered; s->network_end && i < s->fabric->count; i++) {
		struct vb_fabric_node *n = s->fabric->nodes[i];

		if (n->type != VB_NODE_CA)
			continue;
		if (s->network_next >= s->network_end)
			return false;
		memcpy(ip, mapped, sizeof(mapped));
		struct vb_writer w = vb_writer(ip + sizeof(mapped), 4);
		vb_put32(&w, s->network_next++);
		if (add(s, ip, n))
			return false;
	}
	s->numbered = s->fabric->count;
	return true;
}

/* --- questions and commands --- */

void address_show(const struct server *s, struct vb_fabric_node *asker, const char *text, struct vb_fabric_address *out)
{
	uint8_t ip[16];

	*out = (struct vb_fabric_address){.error = EINVAL};
	if (!ip_of(text, ip))
		return;
	const struct address *a = find(s, ip), *own = first_of(s, asker, is_ipv4(ip));
	struct vb_writer w = vb_writer(out->gid, sizeof(out->gid));

	out->error = a ? 0 : EHOSTUNREACH;
	if (own)
		memcpy(out->own, own->ip, sizeof(out->own));
	if (!a)
		return;
	out->is_own = a->node == asker;
	/* the subnet manager tells the prefix of a node that is away to the process that has it; there is one in a subnet */
	vb_put64(&w, (a->node->away ? asker : a->node)->port[1].info.gid_prefix);
	vb_put64(&w, a->node->port[1].guid);
}

static void print_one(const struct address *a, const char *name, size_t len, FILE *out)
{
	char shown[INET6_ADDRSTRLEN];

	inet_ntop(is_ipv4(a->ip) ? AF_INET : AF_INET6, is_ipv4(a->ip) ? a->ip + 12 : a->ip, shown, sizeof(shown));
	fprintf(out, "%s\t%.*s\n", shown, (int)len, name);
}

void address_print(const struct server *s, FILE *out)
{
	for (size_t i = 0; i < s->address_count; i++)
		print_one(&s->addresses[i], s->addresses[i].node->id, strlen(s->addresses[i].node->id), out);
}

int ctl_address(struct server *s, struct vb_fabric_node *n, const char *text, FILE *out)
{
	uint8_t ip[16];
	int rc = 0;

	if (text && !strcmp(text, "none")) {
		drop_all_of(s, n);
	} else if (text) {
		if (n->type != VB_NODE_CA || !ip_of(text, ip) || !is_usable(ip)) {
			fprintf(out, "%s: not an IPv4 or IPv6 address that a channel adapter can have\n", text);
			return EINVAL;
		}
		rc = add(s, ip, n);
	}
	for (size_t i = 0; !text && i < s->address_count; i++) {
		const struct address *a = &s->addresses[i];

		const char *name = *a->node->desc ? a->node->desc : a->node->id;

		if (!n || a->node == n)
			print_one(a, name, strcspn(name, " "), out);
	}
	return rc;
}
