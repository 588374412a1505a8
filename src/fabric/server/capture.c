// capture.c - what passes the cables, as records of a file that tshark(1) dissects from the LRH on
// follows: pcap-savefile(5), LINKTYPE_ERF; ERF type 21 (Endace); IBA volume 1, 5.2 (packets)
// SPDX-License-Identifier: MIT
#include <stdlib.h>
#include <time.h>

#include "fabric/server/capture.h"
#include "fabric/server/peer.h"

enum {
	QUEUE = 8 << 20, /* bytes that wait for a reader */
	INFINIBAND = 21,
	VARYING = 4, /* flags: records have different lengths */
	RECEIVED = 1 /* flags: the second interface; the first one: sent */
};

struct capture {
	struct capture *next, **at; /* of the server */
	struct server *server;
	struct client *client;
	const struct vb_fabric_node *node; /* NULL: all */
	const struct vb_fabric_port *port; /* NULL: all of the node */
};

struct capture *capture_open(struct server *s, const struct vb_fabric_node *n, const struct vb_fabric_port *p,
                             struct client *c)
{
	struct capture *k = calloc(1, sizeof(*k));

	if (!k)
		return NULL;
	*k = (struct capture){.next = s->captures, .at = &s->captures, .server = s, .client = c, .node = n, .port = p};
	if (k->next)
		k->next->at = &k->next;
	s->captures = k;
	s->fabric->captures++;
	return k;
}

void capture_close(struct capture *k)
{
	*k->at = k->next;
	if (k->next)
		k->next->at = k->at;
	k->server->fabric->captures--;
	free(k);
}

static bool wants(const struct capture *k, const struct vb_fabric_port *p)
{
	return (!k->node || k->node == p->node) && (!k->port || k->port == p);
}

static void put64_little(uint8_t *at, uint64_t v)
{
	for (int i = 0; i < 8; i++)
		at[i] = (uint8_t)(v >> 8 * i);
}

/* The head of the file's record is in host order, ERF's time little-endian, the rest of it big-endian. */
static void encode_head(struct capture_head *h, const struct timespec *now, bool received, size_t len)
{
	struct vb_writer w = vb_writer(h->erf + 8, sizeof(h->erf) - 8);
	uint64_t fraction = ((uint64_t)now->tv_nsec << 32) / 1000000000;

	h->sec = (uint32_t)now->tv_sec;
	h->nsec = (uint32_t)now->tv_nsec;
	h->len = h->whole = (uint32_t)(sizeof(h->erf) + len);
	put64_little(h->erf, (uint64_t)now->tv_sec << 32 | fraction);
	vb_put8(&w, INFINIBAND);
	vb_put8(&w, VARYING | (received ? RECEIVED : 0));
	vb_put16(&w, (uint16_t)h->len);
	vb_put16(&w, 0); /* losses */
	vb_put16(&w, (uint16_t)len);
}

void captures_see(void *server, struct vb_fabric_port *out, const uint8_t *bytes, size_t len)
{
	struct server *s = server;
	struct {
		struct capture_head head;
		uint8_t bytes[4 * VB_LRH_WORDS_MOST + VB_VCRC_LEN];
	} m;
	struct timespec now;

	clock_gettime(CLOCK_REALTIME, &now);
	memcpy(m.bytes, bytes, len);
	for (struct capture *k = s->captures; k; k = k->next) {
		bool sent = wants(k, out);

		if (!sent && !wants(k, out->peer))
			continue;
		encode_head(&m.head, &now, !sent, len);
		if (!client_offer(k->client, &m, sizeof(m.head) + len, QUEUE))
			s->captures_lost++;
	}
}

void captures_see_group(void *server, struct vb_fabric_port *out, const struct vb_fabric_datagram *d)
{
	uint8_t bytes[GROUP_PACKET_MOST];

	captures_see(server, out, bytes, group_encode(bytes, d));
}
