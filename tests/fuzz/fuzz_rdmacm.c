// fuzz_rdmacm.c - any bytes as a script of calls of librdmacm: ids of one program, which may connect to each other
// follows: the rdma_* man pages. Pointers are valid, and each event is acknowledged once
// SPDX-License-Identifier: MIT
#include <arpa/inet.h>
#include <assert.h>
#include <fcntl.h>
#include <rdma/rdma_cma.h>
#include <rdma/rdma_verbs.h>
#include <string.h>
#include <unistd.h>

#include "adapter.h"

/* --- the script --- */

static const uint8_t *at;
static size_t left;

static uint8_t byte(void)
{
	return left ? left--, *at++ : 0;
}

static uint32_t word(void)
{
	return (uint32_t)byte() << 24 | (uint32_t)byte() << 16 | (uint32_t)byte() << 8 | byte();
}

static void any_bytes(void *p, size_t n)
{
	memset(p, 0, n);
	for (size_t i = 0; i < n && left; i++)
		((uint8_t *)p)[i] = byte();
}

/* --- ids --- */

enum { ROOM = 6, CHANNELS = 2 };
static struct rdma_event_channel *channels[CHANNELS];
static struct rdma_cm_id *ids[ROOM];

static struct rdma_cm_id *some_id(void)
{
	return ids[byte() % ROOM];
}

static void keep_id(struct rdma_cm_id *id)
{
	for (int i = 0; i < ROOM; i++)
		if (!ids[i]) {
			ids[i] = id;
			return;
		}
	assert(!rdma_destroy_id(id));
}

static void destroy_at(int i)
{
	if (ids[i] && ids[i]->qp)
		rdma_destroy_qp(ids[i]);
	if (ids[i] && ids[i]->srq)
		rdma_destroy_srq(ids[i]);
	assert(!ids[i] || !rdma_destroy_id(ids[i]));
	ids[i] = NULL;
}

/* Mostly an address of lo and one of a few ports, so that ids meet. */
static struct sockaddr *some_address(struct sockaddr_storage *s)
{
	struct sockaddr_in *in = (void *)s;
	struct sockaddr_in6 *in6 = (void *)s;
	uint8_t kind = byte();

	memset(s, 0, sizeof(*s));
	if (kind < 200) {
		in->sin_family = AF_INET;
		in->sin_addr.s_addr = htonl(kind < 20 ? INADDR_ANY : INADDR_LOOPBACK);
		in->sin_port = htons((uint16_t)(kind & 1 ? 20000 + byte() % 4 : 0));
	} else if (kind < 230) {
		in6->sin6_family = AF_INET6;
		in6->sin6_addr = in6addr_loopback;
		in6->sin6_port = htons((uint16_t)(20000 + byte() % 4));
	} else {
		any_bytes(s, sizeof(*s));
	}
	return (struct sockaddr *)s;
}

static void make_id(void)
{
	static const enum rdma_port_space spaces[] = {RDMA_PS_TCP, RDMA_PS_UDP, RDMA_PS_IPOIB, RDMA_PS_IB};
	struct rdma_cm_id *id;
	uint8_t space = byte();

	if (!rdma_create_id(channels[byte() % CHANNELS], &id, NULL,
	                    space < 230 ? spaces[space % 2]
	                                : (enum rdma_port_space)(space < 250 ? spaces[space % 4] : word())))
		keep_id(id);
}

static void destroy_some(void)
{
	destroy_at(byte() % ROOM);
}

static void bind_some(void)
{
	struct rdma_cm_id *id = some_id();
	struct sockaddr_storage s;

	if (id && !rdma_bind_addr(id, some_address(&s)) && byte() & 1)
		rdma_listen(id, (int)word());
}

static void resolve_some(void)
{
	struct rdma_cm_id *id = some_id();
	struct sockaddr_storage from, to;
	struct sockaddr *src = byte() & 1 ? some_address(&from) : NULL;

	if (id && byte() & 1)
		rdma_resolve_addr(id, src, some_address(&to), 1 + byte());
	else if (id)
		rdma_resolve_route(id, 1 + byte());
}

/* CQs of its own, or none. Without a device rdma-core's call fails in ways of its own. */
static void make_qp(void)
{
	struct rdma_cm_id *id = some_id();
	struct ibv_qp_init_attr attr = {.cap = {byte(), byte(), byte() % 40, byte() % 40, byte()},
	                                .qp_type = byte() < 250 ? byte() % 8 : (enum ibv_qp_type)word(),
	                                .sq_sig_all = byte()};

	if (id && id->verbs && !id->qp)
		rdma_create_qp(id, NULL, &attr);
	else if (id && id->qp && byte() & 1)
		rdma_destroy_qp(id);
}

static void connect_some(void)
{
	static const char data[256];
	struct rdma_cm_id *id = some_id();
	struct rdma_conn_param p = {.private_data = data,
	                            .private_data_len = byte(),
	                            .responder_resources = byte(),
	                            .initiator_depth = byte(),
	                            .flow_control = byte(),
	                            .retry_count = byte(),
	                            .rnr_retry_count = byte(),
	                            .srq = byte(),
	                            .qp_num = word()};

	if (!id)
		return;
	switch (byte() % 8) {
	case 0:
	case 1:
		rdma_connect(id, &p);
		break;
	case 2:
	case 3:
		rdma_accept(id, byte() & 1 ? &p : NULL);
		break;
	case 4:
		rdma_reject(id, data, byte());
		break;
	case 5:
		rdma_disconnect(id);
		break;
	case 6:
		rdma_notify(id, (enum ibv_event_type)word());
		break;
	default:
		rdma_establish(id);
	}
}

static void take_event(void)
{
	struct rdma_cm_event *event;
	struct rdma_cm_id *asks = NULL;

	if (rdma_get_cm_event(channels[byte() % CHANNELS], &event))
		return;
	rdma_event_str(event->event);
	if (event->event == RDMA_CM_EVENT_CONNECT_REQUEST)
		asks = event->id;
	rdma_ack_cm_event(event);
	if (asks)
		keep_id(asks);
}

static void ask_some(void)
{
	static const char *const names[] = {"127.0.0.1", "::1", "", "20000", "x", "127.0.0.1:5"};
	struct rdma_addrinfo hints, *found;
	struct rdma_cm_id *id = some_id();
	struct ibv_qp_attr attr = {.qp_state = (enum ibv_qp_state)(byte() % 9)};
	uint8_t option[32];
	int mask;

	switch (byte() % 5) {
	case 0:
		any_bytes(&hints, offsetof(struct rdma_addrinfo, ai_src_len));
		memset((char *)&hints + offsetof(struct rdma_addrinfo, ai_src_len), 0,
		       sizeof(hints) - offsetof(struct rdma_addrinfo, ai_src_len));
		hints.ai_flags |= RAI_NUMERICHOST;
		if (!rdma_getaddrinfo(names[byte() % 6], byte() & 1 ? "20000" : NULL, byte() & 1 ? &hints : NULL,
		                      &found))
			rdma_freeaddrinfo(found);
		break;
	case 1:
		any_bytes(option, sizeof(option));
		if (id)
			rdma_set_option(id, byte() & 1 ? byte() & 3 : (int)word(), byte(), option, byte() % 33);
		break;
	case 2:
		if (id && id->verbs)
			rdma_init_qp_attr(id, &attr, &mask);
		break;
	case 3:
		if (id)
			rdma_migrate_id(id, channels[byte() % CHANNELS]);
		break;
	default:
		if (id)
			rdma_get_src_port(id), rdma_get_dst_port(id);
	}
}

static void join_some(void)
{
	struct rdma_cm_id *id = some_id();
	struct sockaddr_in group = {.sin_family = AF_INET, .sin_addr.s_addr = htonl(0xe0000100u + byte() % 4)};

	if (id && byte() & 1)
		rdma_join_multicast(id, (struct sockaddr *)&group, NULL);
	else if (id)
		rdma_leave_multicast(id, (struct sockaddr *)&group);
}

static void pause_some(void)
{
	usleep(byte() * 4);
}

static void (*const steps[])(void) = {make_id,      make_id,  destroy_some, bind_some,    bind_some,  resolve_some,
                                      resolve_some, make_qp,  connect_some, connect_some, take_event, take_event,
                                      take_event,   ask_some, join_some,    pause_some};

static void open_channels(void)
{
	have_adapters("roce:lo,iwarp:lo");
	for (int i = 0; i < CHANNELS; i++) {
		channels[i] = rdma_create_event_channel();
		assert(channels[i]);
		fcntl(channels[i]->fd, F_SETFL, O_NONBLOCK);
	}
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
	if (!channels[0])
		open_channels();
	at = data;
	left = size < 600 ? size : 600;
	while (left)
		steps[byte() % (sizeof(steps) / sizeof(*steps))]();
	for (int i = 0; i < ROOM; i++)
		destroy_at(i);
	left = 0;
	for (int i = 0; i < 64; i++) /* those of destroyed ids are gone; requests that nobody wanted may have come */
		take_event();
	for (int i = 0; i < ROOM; i++)
		destroy_at(i);
	return 0;
}
