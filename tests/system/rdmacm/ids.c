// ids.c - ids before they are connected: channels, addresses, listeners, options, names
// follows: rdma_create_event_channel(3), rdma_bind_addr(3), rdma_resolve_addr(3), rdma_listen(3), rdma_set_option(3)
// SPDX-License-Identifier: MIT
#include <dirent.h>
#include <fcntl.h>
#include <ifaddrs.h>
#include <infiniband/sa.h>
#include <net/if.h>
#include <netdb.h>
#include <poll.h>
#include <pthread.h>
#include <rdma/rdma_verbs.h>
#include <sched.h>
#include <stdatomic.h>
#include <sys/syscall.h>
#include <sys/wait.h>

#include "cm.h"

enum { ADDRINFO_RESOLVED = 16, ADDRINFO_ERROR = 17, USER = 18 };
int rdma_resolve_addrinfo(struct rdma_cm_id *id, const char *node, const char *service,
                          const struct rdma_addrinfo *hints);
int rdma_query_addrinfo(struct rdma_cm_id *id, struct rdma_addrinfo **info);
int rdma_write_cm_event(struct rdma_cm_id *id, enum rdma_cm_event_type event, int status, uint64_t arg);

static struct rdma_cm_id *new_id(struct rdma_event_channel *ch, enum rdma_port_space ps)
{
	struct rdma_cm_id *id;

	MUST(rdma_create_id(ch, &id, NULL, ps));
	return id;
}

static void a_channel_is_readable_while_an_event_waits(void)
{
	struct rdma_event_channel *ch = rdma_create_event_channel();
	struct rdma_cm_id *id = new_id(ch, RDMA_PS_TCP);
	union address a = at("127.0.0.1", 7);
	struct rdma_cm_event *e;

	CHECK(!event_waits(ch));
	MUST(fcntl(ch->fd, F_SETFL, fcntl(ch->fd, F_GETFL) | O_NONBLOCK));
	FAILS(rdma_get_cm_event(ch, &e), EAGAIN);
	MUST(rdma_resolve_addr(id, NULL, &a.sa, PATIENCE));
	CHECK(event_waits(ch));
	MUST(rdma_get_cm_event(ch, &e));
	CHECK(!event_waits(ch));
	MUST(rdma_ack_cm_event(e));
	FAILS(rdma_get_cm_event(ch, &e), EAGAIN);
	/* events that nobody fetched are freed with the id */
	MUST(rdma_resolve_route(id, PATIENCE));
	CHECK(event_waits(ch));
	MUST(rdma_destroy_id(id));
	CHECK(!event_waits(ch));
	FAILS(rdma_get_cm_event(ch, &e), EAGAIN);
	FAILS(rdma_get_cm_event(NULL, &e), EINVAL);
	FAILS(rdma_get_cm_event(ch, NULL), EINVAL);
	FAILS(rdma_ack_cm_event(NULL), EINVAL);
	rdma_destroy_event_channel(ch);
}

struct reader {
	struct rdma_event_channel *ch;
	atomic_int tid, acked, failed;
};

static bool sleeps_in_read(pid_t tid)
{
	char path[64];
	long nr = -1;

	snprintf(path, sizeof(path), "/proc/self/task/%d/syscall", (int)tid);
	FILE *f = fopen(path, "r");
	if (f && fscanf(f, "%ld", &nr) != 1)
		nr = -1; /* it runs */
	if (f)
		fclose(f);
	return nr == SYS_read;
}

/* As in rping: any failure ends the program. */
static void *take_events(void *arg)
{
	struct reader *r = arg;
	struct rdma_cm_event *e;

	atomic_store(&r->tid, gettid());
	while (!rdma_get_cm_event(r->ch, &e)) {
		rdma_ack_cm_event(e);
		atomic_fetch_add(&r->acked, 1);
		sleep_ms(5);
	}
	atomic_store(&r->failed, errno);
	return NULL;
}

static void who_asks_for_the_next_event_is_let_fall_asleep_before_its_channel_goes(void)
{
	struct reader r = {.ch = rdma_create_event_channel()};
	struct rdma_cm_id *id = new_id(r.ch, RDMA_PS_TCP);
	union address a = at("127.0.0.1", 7);
	pthread_t thread;

#if defined(__SANITIZE_THREAD__)
	skip("a channel that goes while a thread is in it is a race, of the program's");
#endif
	MUST(pthread_create(&thread, NULL, take_events, &r));
	for (int i = 0; i < PATIENCE && !sleeps_in_read(atomic_load(&r.tid)); i++)
		sleep_ms(1);
	MUST(rdma_resolve_addr(id, NULL, &a.sa, PATIENCE));
	for (int i = 0; i < PATIENCE && !atomic_load(&r.acked); i++)
		sleep_ms(1);
	SAME(atomic_load(&r.acked), 1);
	MUST(rdma_destroy_id(id));
	rdma_destroy_event_channel(r.ch);
	sleep_ms(20);
	SAME(atomic_load(&r.failed), 0);
	MUST(pthread_cancel(thread));
	MUST(pthread_join(thread, NULL));
}

static void ids_are_of_a_known_port_space(void)
{
	struct rdma_event_channel *ch = rdma_create_event_channel();
	struct rdma_cm_id *id;

	FAILS(rdma_create_id(ch, &id, NULL, (enum rdma_port_space)17), EINVAL);
	id = new_id(ch, RDMA_PS_UDP);
	SAME(id->qp_type, IBV_QPT_UD);
	CHECK(id->channel == ch && id->ps == RDMA_PS_UDP);
	MUST(rdma_destroy_id(id));
	id = new_id(NULL, RDMA_PS_TCP);
	SAME(id->qp_type, IBV_QPT_RC);
	CHECK(id->channel && id->channel != ch);
	MUST(rdma_destroy_id(id));
	rdma_destroy_event_channel(ch);
}

static void ip(const char *what)
{
	char line[200];

	snprintf(line, sizeof(line), "ip %s 2>/dev/null", what);
	if (system(line))
		skip("ip %s does not work here", what);
}

static void shows_its_device(const struct rdma_cm_id *id, bool shows)
{
	CHECK(!id->verbs == !shows && !id->pd == !shows);
	SAME(id->port_num, shows);
}

static struct rdma_addrinfo *passive(const char *node, const char *service)
{
	const struct rdma_addrinfo hints = {
	        .ai_flags = RAI_PASSIVE, .ai_family = AF_INET, .ai_port_space = RDMA_PS_TCP};
	struct rdma_addrinfo *rai;

	MUST(rdma_getaddrinfo(node, service, &hints, &rai));
	return rai;
}

static void bound_to(const struct rdma_addrinfo *rai, bool shows)
{
	struct rdma_event_channel *ch = rdma_create_event_channel();
	struct rdma_cm_id *id = new_id(ch, RDMA_PS_TCP);

	MUST(rdma_bind_addr(id, rai->ai_src_addr));
	shows_its_device(id, shows);
	MUST(rdma_listen(id, 1));
	MUST(rdma_destroy_id(id));
	rdma_destroy_event_channel(ch);
}

/* libfabric looks for adapters in this way. With the kernel's adapters the id names none, and libfabric offers all of
 * them. */
static void the_address_of_localhost_names_no_adapter_where_others_are(void)
{
	struct rdma_event_channel *ch = rdma_create_event_channel();
	struct rdma_addrinfo *any = passive("localhost", NULL), *number = passive("127.0.0.1", NULL),
	                     *port = passive("localhost", "7471");
	struct rdma_cm_id *id = new_id(ch, RDMA_PS_TCP);
	union address lo = at("127.0.0.1", 0);
	struct rdma_cm_event e;

	if (!if_nametoindex("own0"))
		skip("there is nothing beside lo");
	bound_to(number, true);
	bound_to(port, true);
	bound_to(any, false);
	/* later it resolves through lo */
	MUST(rdma_bind_addr(id, any->ai_src_addr));
	MUST(rdma_resolve_addr(id, NULL, &lo.sa, 1000));
	next_is(ch, RDMA_CM_EVENT_ADDR_RESOLVED, &e);
	shows_its_device(id, true);
	CHECK(!strcmp(ibv_get_device_name(id->verbs->device), "roce_lo"));
	ip("link set own0 down");
	bound_to(any, true);
	ip("link set own0 up");
	ip("addr add fd00:6f::1/64 dev own0 nodad"); /* it disappears with the link */
	MUST(rdma_destroy_id(id));
	rdma_freeaddrinfo(number);
	rdma_freeaddrinfo(any);
	rdma_freeaddrinfo(port);
	rdma_destroy_event_channel(ch);
}

static void binding_gives_a_port_and_a_device(void)
{
	struct rdma_event_channel *ch = rdma_create_event_channel();
	struct rdma_cm_id *id = new_id(ch, RDMA_PS_TCP), *second = new_id(ch, RDMA_PS_TCP);
	union address lo = at("127.0.0.1", 0), any = at("0.0.0.0", 0), nowhere = at("203.0.113.77", 0);
	struct sockaddr_storage ib = {.ss_family = 27}, none = {0};

	SAME(rdma_get_src_port(id), 0);
	FAILS(rdma_bind_addr(id, NULL), EINVAL);
	FAILS(rdma_bind_addr(id, (struct sockaddr *)&none), EINVAL);
	FAILS(rdma_bind_addr(id, (struct sockaddr *)&ib), EAFNOSUPPORT);
	FAILS(rdma_bind_addr(id, &nowhere.sa), EADDRNOTAVAIL);
	MUST(rdma_bind_addr(id, &lo.sa));
	shows_its_device(id, true);
	CHECK(rdma_get_src_port(id));
	FAILS(rdma_bind_addr(id, &lo.sa), EINVAL);
	lo.sin.sin_port = rdma_get_src_port(id);
	FAILS(rdma_bind_addr(second, &lo.sa), EADDRINUSE);
	MUST(rdma_bind_addr(second, &any.sa));
	CHECK(!second->verbs);
	CHECK(rdma_get_src_port(second));
	MUST(rdma_destroy_id(second));
	MUST(rdma_destroy_id(id));
	id = new_id(ch, RDMA_PS_TCP);
	MUST(rdma_bind_addr(id, &lo.sa)); /* free again */
	MUST(rdma_destroy_id(id));
	rdma_destroy_event_channel(ch);
}

/* lo tells no speed, so it has 4 lanes of 25 Gb/s; a veth interface has 10 Gb/s. */
static int rate_of(struct ibv_context *verbs)
{
	struct ibv_port_attr port;

	MUST(ibv_query_port(verbs, 1, &port));
	return port.active_speed == 32 && port.active_width == 2  ? IBV_RATE_100_GBPS
	       : port.active_speed == 8 && port.active_width == 1 ? IBV_RATE_10_GBPS
	                                                          : -1;
}

static void resolve(const char *host, const char *from)
{
	struct rdma_cm_id *id = new_id(NULL, RDMA_PS_TCP); /* synchronous: the call waits */
	union address to = at(host, 4000), src;

	if (from)
		src = at(from, 0);
	MUST(rdma_resolve_addr(id, from ? &src.sa : NULL, &to.sa, PATIENCE));
	SAME(id->event->event, RDMA_CM_EVENT_ADDR_RESOLVED);
	CHECK(id->verbs && id->pd);
	SAME(ntohs(rdma_get_dst_port(id)), 4000);
	CHECK(rdma_get_src_port(id));
	SAME(rdma_get_local_addr(id)->sa_family, to.sa.sa_family);
	SAME(rdma_get_peer_addr(id)->sa_family, to.sa.sa_family);
	FAILS(rdma_resolve_addr(id, NULL, &to.sa, PATIENCE), EINVAL);
	MUST(rdma_resolve_route(id, PATIENCE));
	SAME(id->route.num_paths, 1);
	CHECK(!memcmp(&id->route.path_rec->sgid, &id->route.addr.addr.ibaddr.sgid, 16));
	SAME(id->route.path_rec->pkey, htons(0xffff));
	SAME(id->route.path_rec->rate, rate_of(id->verbs));
	FAILS(rdma_resolve_route(id, PATIENCE), EINVAL);
	MUST(rdma_destroy_id(id));
}

static void addresses_are_resolved_as_the_kernel_routes(void)
{
	struct rdma_cm_id *id = new_id(NULL, RDMA_PS_TCP);
	union address six = at("::1", 0), four = at("127.0.0.1", 1);

	resolve("127.0.0.1", NULL);
	resolve("127.0.0.1", "127.0.0.1");
	resolve("127.0.0.1", "0.0.0.0");
	resolve("127.0.0.9", NULL);
	resolve("0.0.0.0", NULL);
	resolve("::1", NULL);
	resolve("::1", "::1");
	FAILS(rdma_resolve_addr(id, NULL, NULL, PATIENCE), EINVAL);
	FAILS(rdma_resolve_route(id, PATIENCE), EINVAL);
	FAILS(rdma_resolve_addr(id, &six.sa, &four.sa, PATIENCE), EINVAL);
	MUST(rdma_destroy_id(id));
}

static void *take_one(void *ch)
{
	struct rdma_cm_event *e;

	MUST(rdma_get_cm_event(ch, &e));
	SAME(e->event, RDMA_CM_EVENT_ADDR_RESOLVED);
	MUST(rdma_ack_cm_event(e));
	return NULL;
}

/* Fails, always under ThreadSanitizer, if the id is written after the event is queued. */
static void what_was_resolved_is_what_stays(void)
{
	union address any = at("0.0.0.0", 7);

	for (int i = 0; i < 100; i++) {
		struct rdma_event_channel *ch = rdma_create_event_channel();
		struct rdma_cm_id *id = new_id(ch, RDMA_PS_TCP);
		pthread_t thread;

		MUST(pthread_create(&thread, NULL, take_one, ch));
		MUST(rdma_resolve_addr(id, NULL, &any.sa, PATIENCE));
		MUST(pthread_join(thread, NULL));
		SAME(ntohl(id->route.addr.dst_sin.sin_addr.s_addr), INADDR_LOOPBACK);
		MUST(rdma_destroy_id(id));
		rdma_destroy_event_channel(ch);
	}
}

/* An unused address in our network. A destroyed id does not wait for it. */
static void a_host_that_does_not_answer_is_an_error(void)
{
	struct rdma_event_channel *ch = rdma_create_event_channel();
	struct rdma_cm_id *id = new_id(ch, RDMA_PS_TCP), *gone = new_id(ch, RDMA_PS_TCP);
	union address to = {0};
	struct rdma_cm_event e;
	struct ifaddrs *all;

	MUST(getifaddrs(&all));
	for (struct ifaddrs *i = all; i; i = i->ifa_next)
		if (i->ifa_addr && i->ifa_addr->sa_family == AF_INET && i->ifa_flags & IFF_BROADCAST &&
		    i->ifa_flags & IFF_UP && ~((struct sockaddr_in *)i->ifa_netmask)->sin_addr.s_addr & htonl(0xf0))
			memcpy(&to.sin, i->ifa_addr, sizeof(to.sin));
	freeifaddrs(all);
	if (!to.sa.sa_family)
		skip("no network with room for another host");
	to.sin.sin_addr.s_addr ^= htonl(0xb0);
	MUST(rdma_resolve_addr(gone, NULL, &to.sa, PATIENCE));
	MUST(rdma_destroy_id(gone));
	MUST(rdma_resolve_addr(id, NULL, &to.sa, PATIENCE));
	FAILS(rdma_resolve_addr(id, NULL, &to.sa, PATIENCE), EINVAL);
	next_is(ch, RDMA_CM_EVENT_ADDR_ERROR, &e);
	SAME(e.status, -ETIMEDOUT);
	MUST(rdma_destroy_id(id));
	rdma_destroy_event_channel(ch);
}

static void only_one_listens_at_a_port(void)
{
	struct end a;
	unsigned port = start_listening(&a, "0.0.0.0", RDMA_PS_TCP, 0);
	union address same = at("127.0.0.1", port), other = at("127.0.0.1", 0);
	struct rdma_cm_id *id = new_id(a.ch, RDMA_PS_TCP);

	FAILS(rdma_bind_addr(id, &same.sa), EADDRINUSE);
	MUST(rdma_listen(id, 3)); /* unbound: any address, any port */
	CHECK(rdma_get_src_port(id));
	FAILS(rdma_listen(id, 3), EINVAL);
	MUST(rdma_destroy_id(id));
	id = new_id(a.ch, RDMA_PS_UDP);
	MUST(rdma_bind_addr(id, &same.sa)); /* another port space */
	MUST(rdma_destroy_id(id));
	id = new_id(NULL, RDMA_PS_TCP);
	MUST(rdma_resolve_addr(id, NULL, &other.sa, PATIENCE));
	FAILS(rdma_listen(id, 3), EINVAL);
	FAILS(rdma_get_request(a.id, &id), EINVAL); /* not synchronous */
	MUST(rdma_destroy_id(id));
	drop_end(&a);
}

static void two_may_share_a_port_while_neither_listens(void)
{
	struct rdma_event_channel *ch = rdma_create_event_channel();
	struct rdma_cm_id *a = new_id(ch, RDMA_PS_TCP), *b = new_id(ch, RDMA_PS_TCP);
	union address addr = at("127.0.0.1", 0);
	int on = 1;

	MUST(rdma_set_option(a, RDMA_OPTION_ID, RDMA_OPTION_ID_REUSEADDR, &on, sizeof(on)));
	MUST(rdma_set_option(b, RDMA_OPTION_ID, RDMA_OPTION_ID_REUSEADDR, &on, sizeof(on)));
	MUST(rdma_bind_addr(a, &addr.sa));
	addr.sin.sin_port = rdma_get_src_port(a);
	MUST(rdma_bind_addr(b, &addr.sa));
	MUST(rdma_listen(a, 1));
	FAILS(rdma_listen(b, 1), EADDRINUSE);
	MUST(rdma_destroy_id(b));
	MUST(rdma_destroy_id(a));
	rdma_destroy_event_channel(ch);
}

static void what_a_port_is_shared_for_may_be_said_after_it_is_bound(void)
{
	struct rdma_event_channel *ch = rdma_create_event_channel();
	struct rdma_cm_id *a = new_id(ch, RDMA_PS_TCP), *b = new_id(ch, RDMA_PS_TCP), *four = new_id(ch, RDMA_PS_TCP);
	union address addr = at("::", 0), any_four = at("0.0.0.0", 0);
	int on = 1, off = 0;

	MUST(rdma_bind_addr(a, &addr.sa));
	addr.sin6.sin6_port = any_four.sin.sin_port = rdma_get_src_port(a);
	MUST(rdma_set_option(b, RDMA_OPTION_ID, RDMA_OPTION_ID_REUSEADDR, &on, sizeof(on)));
	FAILS(rdma_bind_addr(b, &addr.sa), EADDRINUSE);
	MUST(rdma_set_option(a, RDMA_OPTION_ID, RDMA_OPTION_ID_REUSEADDR, &on, sizeof(on)));
	MUST(rdma_bind_addr(b, &addr.sa));
	FAILS(rdma_set_option(a, RDMA_OPTION_ID, RDMA_OPTION_ID_REUSEADDR, &off, sizeof(off)), EINVAL);
	MUST(rdma_destroy_id(b));
	FAILS(rdma_bind_addr(four, &any_four.sa), EADDRINUSE);
	MUST(rdma_set_option(a, RDMA_OPTION_ID, RDMA_OPTION_ID_AFONLY, &on, sizeof(on)));
	MUST(rdma_bind_addr(four, &any_four.sa));
	MUST(rdma_listen(four, 1));
	MUST(rdma_listen(a, 1));
	FAILS(rdma_set_option(a, RDMA_OPTION_ID, RDMA_OPTION_ID_AFONLY, &off, sizeof(off)), EINVAL);
	FAILS(rdma_set_option(a, RDMA_OPTION_ID, RDMA_OPTION_ID_REUSEADDR, &on, sizeof(on)), EINVAL);
	MUST(rdma_destroy_id(four));
	MUST(rdma_destroy_id(a));
	rdma_destroy_event_channel(ch);
}

static void bind_both(bool only_six, int expect)
{
	struct rdma_cm_id *six = new_id(NULL, RDMA_PS_TCP), *four = new_id(NULL, RDMA_PS_TCP);
	union address any_six = at("::", 0), any_four = at("0.0.0.0", 0);
	int on = only_six;

	MUST(rdma_set_option(six, RDMA_OPTION_ID, RDMA_OPTION_ID_AFONLY, &on, sizeof(on)));
	MUST(rdma_bind_addr(six, &any_six.sa));
	any_four.sin.sin_port = rdma_get_src_port(six);
	if (expect) {
		FAILS(rdma_bind_addr(four, &any_four.sa), expect);
	} else {
		MUST(rdma_bind_addr(four, &any_four.sa));
		MUST(rdma_listen(six, 1));
		MUST(rdma_listen(four, 1));
	}
	MUST(rdma_destroy_id(four));
	MUST(rdma_destroy_id(six));
}

static void two_families_may_share_a_port(void)
{
	bind_both(true, 0);
	bind_both(false, EADDRINUSE);
}

static void options_are_checked(void)
{
	struct rdma_cm_id *id = new_id(NULL, RDMA_PS_TCP), *ud = new_id(NULL, RDMA_PS_UDP);
	uint8_t tos = 8, code = 14, too_long = 32;
	int on = 1, off = 0, roce = IBV_TRANSPORT_IB, iwarp = IBV_TRANSPORT_IWARP, neither = 77;
	union address a = at("127.0.0.1", 5);

	MUST(rdma_set_option(id, RDMA_OPTION_ID, RDMA_OPTION_ID_TOS, &tos, sizeof(tos)));
	FAILS(rdma_set_option(id, RDMA_OPTION_ID, RDMA_OPTION_ID_TOS, &on, sizeof(on)), EINVAL);
	MUST(rdma_set_option(id, RDMA_OPTION_ID, RDMA_OPTION_ID_AFONLY, &on, sizeof(on)));
	MUST(rdma_set_option(id, RDMA_OPTION_ID, RDMA_OPTION_ID_ACK_TIMEOUT, &code, sizeof(code)));
	FAILS(rdma_set_option(id, RDMA_OPTION_ID, RDMA_OPTION_ID_ACK_TIMEOUT, &too_long, sizeof(too_long)), EINVAL);
	FAILS(rdma_set_option(ud, RDMA_OPTION_ID, RDMA_OPTION_ID_ACK_TIMEOUT, &code, sizeof(code)), EINVAL);
	FAILS(rdma_set_option(id, RDMA_OPTION_ID, 77, &on, sizeof(on)), ENOSYS);
	FAILS(rdma_set_option(id, 77, 0, &on, sizeof(on)), ENOSYS);
	MUST(rdma_set_option(id, 0x5642, 1, &roce, sizeof(roce))); /* Verbena's own option, for the adapter */
	FAILS(rdma_set_option(id, 0x5642, 1, &roce, 1), EINVAL);
	FAILS(rdma_set_option(id, 0x5642, 1, &neither, sizeof(neither)), EINVAL);
	FAILS(rdma_set_option(id, 0x5642, 3, &roce, sizeof(roce)), ENOSYS);
	FAILS(rdma_set_option(id, RDMA_OPTION_ID, RDMA_OPTION_ID_TOS, NULL, 1), EINVAL);
	MUST(rdma_resolve_addr(id, NULL, &a.sa, PATIENCE));
	FAILS(rdma_set_option(id, RDMA_OPTION_ID, RDMA_OPTION_ID_AFONLY, &on, sizeof(on)), EINVAL);
	FAILS(rdma_set_option(id, 0x5642, 1, &iwarp, sizeof(iwarp)), EINVAL);
	MUST(rdma_set_option(id, 0x5642, 2, &on, sizeof(on))); /* … which says whose the adapter is */
	FAILS(rdma_set_option(id, RDMA_OPTION_ID, RDMA_OPTION_ID_REUSEADDR, &off, sizeof(off)), EINVAL);
	MUST(rdma_resolve_route(id, PATIENCE));
	SAME(id->route.path_rec->traffic_class, tos);
	SAME(id->route.path_rec->packet_life_time, code - 1);
	MUST(rdma_destroy_id(id));
	MUST(rdma_destroy_id(ud));
}

static void a_known_path_needs_no_resolving(void)
{
	struct rdma_cm_id *id = new_id(NULL, RDMA_PS_TCP);
	union address a = at("127.0.0.1", 5);
	struct ibv_path_data path = {.flags = IBV_PATH_FLAG_GMP | IBV_PATH_FLAG_PRIMARY | IBV_PATH_FLAG_BIDIRECTIONAL,
	                             .path = {.mtu = 2 << 6 | IBV_MTU_1024,
	                                      .rate = 2 << 6 | IBV_RATE_10_GBPS,
	                                      .packetlifetime = 2 << 6 | 14,
	                                      .tclass = 0x28,
	                                      .pkey = 0xffff,
	                                      .qosclass_sl = htons(0xabc << 4 | 5),
	                                      .flowlabel_hoplimit = htonl(0x12345 << 8 | 3)}};

	FAILS(rdma_set_option(id, RDMA_OPTION_IB, RDMA_OPTION_IB_PATH, &path, sizeof(path)), EINVAL);
	MUST(rdma_resolve_addr(id, NULL, &a.sa, PATIENCE));
	FAILS(rdma_set_option(id, RDMA_OPTION_IB, RDMA_OPTION_IB_PATH, &path, 3), EINVAL);
	path.path.sgid = id->route.addr.addr.ibaddr.sgid;
	path.path.dgid = id->route.addr.addr.ibaddr.dgid;
	path.flags = htonl(path.flags);
	FAILS(rdma_set_option(id, RDMA_OPTION_IB, RDMA_OPTION_IB_PATH, &path, sizeof(path)), EINVAL);
	path.flags = ntohl(path.flags);
	MUST(rdma_set_option(id, RDMA_OPTION_IB, RDMA_OPTION_IB_PATH, &path, sizeof(path)));
	next_is(id->channel, RDMA_CM_EVENT_ROUTE_RESOLVED, NULL);
	SAME(id->route.path_rec->mtu, IBV_MTU_1024);
	SAME(id->route.path_rec->hop_limit, 3);
	SAME(ntohl(id->route.path_rec->flow_label), 0x12345);
	SAME(id->route.path_rec->traffic_class, 0x28);
	SAME(id->route.path_rec->sl, 5);
	SAME(id->route.path_rec->rate, IBV_RATE_10_GBPS);
	SAME(id->route.path_rec->packet_life_time, 14);
	MUST(rdma_destroy_id(id));
}

static void names_are_resolved_by_hints(void)
{
	struct rdma_addrinfo hints = {.ai_flags = RAI_PASSIVE, .ai_port_space = RDMA_PS_TCP}, *res;
	union address src = at("127.0.0.1", 9);

	FAILS(rdma_getaddrinfo(NULL, NULL, NULL, &res), EINVAL);
	MUST(rdma_getaddrinfo(NULL, "7471", &hints, &res));
	CHECK(res->ai_src_addr && !res->ai_dst_addr);
	SAME(res->ai_flags, RAI_PASSIVE);
	SAME(res->ai_qp_type, IBV_QPT_RC);
	SAME(((struct sockaddr_in *)res->ai_src_addr)->sin_port, htons(7471));
	rdma_freeaddrinfo(res);
	hints = (struct rdma_addrinfo){.ai_flags = RAI_NUMERICHOST | RAI_NOROUTE | RAI_FAMILY,
	                               .ai_family = AF_INET6,
	                               .ai_port_space = RDMA_PS_UDP};
	SAME(rdma_getaddrinfo("localhost", "1", &hints, &res), EAI_NONAME);
	MUST(rdma_getaddrinfo("::1", "1", &hints, &res));
	SAME(res->ai_family, AF_INET6);
	SAME(res->ai_qp_type, IBV_QPT_UD);
	SAME(res->ai_port_space, RDMA_PS_UDP);
	SAME(res->ai_dst_len, sizeof(struct sockaddr_in6));
	CHECK(!res->ai_route_len && !res->ai_connect_len && !res->ai_next);
	rdma_freeaddrinfo(res);
	hints = (struct rdma_addrinfo){.ai_src_addr = &src.sa, .ai_src_len = sizeof(src.sin), .ai_qp_type = IBV_QPT_UD};
	MUST(rdma_getaddrinfo("127.0.0.1", NULL, &hints, &res));
	SAME(res->ai_src_len, sizeof(src.sin));
	CHECK(res->ai_src_addr != &src.sa);
	SAME(res->ai_port_space, RDMA_PS_UDP);
	rdma_freeaddrinfo(res);
	hints = (struct rdma_addrinfo){.ai_flags = RAI_FAMILY | RAI_NUMERICHOST, .ai_family = 27};
	FAILS(rdma_getaddrinfo("::1", NULL, &hints, &res), EAFNOSUPPORT);
	rdma_freeaddrinfo(NULL);
}

static void later_releases_resolve_names_by_an_id(void)
{
	struct rdma_event_channel *ch = rdma_create_event_channel();
	struct rdma_cm_id *id = new_id(ch, RDMA_PS_TCP);
	const struct rdma_addrinfo numeric = {
	        .ai_flags = RAI_NUMERICHOST, .ai_qp_type = IBV_QPT_UD, .ai_port_space = RDMA_PS_UDP};
	struct rdma_addrinfo *res;
	struct rdma_cm_event *e, got;
	uint64_t arg;

	FAILS(rdma_query_addrinfo(id, &res), ENOENT);
	MUST(rdma_resolve_addrinfo(id, "127.0.0.1", "5", NULL));
	FAILS(rdma_resolve_addrinfo(id, "127.0.0.1", "5", NULL), EBUSY);
	next_is(ch, (enum rdma_cm_event_type)ADDRINFO_RESOLVED, NULL);
	MUST(rdma_query_addrinfo(id, &res));
	rdma_freeaddrinfo(res);
	FAILS(rdma_resolve_addrinfo(id, NULL, NULL, NULL), EINVAL);
	/* a question that fails is answered by an event too, and another may be asked then */
	MUST(rdma_resolve_addrinfo(id, "no address", "5", &numeric));
	next_is(ch, (enum rdma_cm_event_type)ADDRINFO_ERROR, &got);
	SAME(got.status, -ENOENT);
	FAILS(rdma_query_addrinfo(id, &res), ENOENT);
	MUST(rdma_resolve_addrinfo(id, "127.0.0.2", "6", &numeric));
	next_is(ch, (enum rdma_cm_event_type)ADDRINFO_RESOLVED, NULL);
	MUST(rdma_query_addrinfo(id, &res));
	CHECK(res->ai_dst_len && res->ai_qp_type == IBV_QPT_UD &&
	      ((struct sockaddr_in *)res->ai_dst_addr)->sin_port == htons(6));
	rdma_freeaddrinfo(res);
	FAILS(rdma_write_cm_event(id, RDMA_CM_EVENT_ESTABLISHED, 0, 1), EINVAL);
	MUST(rdma_write_cm_event(id, (enum rdma_cm_event_type)USER, 3, 0x1122334455667788));
	e = fetch(ch, (enum rdma_cm_event_type)USER);
	memcpy(&arg, &e->param, sizeof(arg));
	CHECK(arg == 0x1122334455667788 && e->status == 3);
	MUST(rdma_ack_cm_event(e));
	MUST(rdma_resolve_addrinfo(id, "127.0.0.1", "5", NULL));
	MUST(rdma_destroy_id(id)); /* cancels the question */
	id = new_id(NULL, RDMA_PS_TCP);
	MUST(rdma_resolve_addrinfo(id, "127.0.0.1", "5", NULL)); /* waits */
	MUST(rdma_query_addrinfo(id, &res));
	rdma_freeaddrinfo(res);
	FAILS(rdma_resolve_addrinfo(id, "no address", "5", &numeric), ENOENT);
	MUST(rdma_destroy_id(id));
	rdma_destroy_event_channel(ch);
}

static void all_devices_are_listed(void)
{
	int n = -1;
	struct ibv_context **list = rdma_get_devices(&n);

	CHECK(list && n > 0 && !list[n]);
	struct ibv_device_attr attr;
	MUST(ibv_query_device(list[0], &attr));
	rdma_free_devices(list);
	list = rdma_get_devices(NULL);
	CHECK(list);
	rdma_free_devices(list);
}

static void events_have_names(void)
{
	CHECK(!strcmp(rdma_event_str(RDMA_CM_EVENT_ADDR_RESOLVED), "RDMA_CM_EVENT_ADDR_RESOLVED"));
	CHECK(!strcmp(rdma_event_str(RDMA_CM_EVENT_TIMEWAIT_EXIT), "RDMA_CM_EVENT_TIMEWAIT_EXIT"));
	CHECK(!strcmp(rdma_event_str((enum rdma_cm_event_type)999), "UNKNOWN EVENT"));
	CHECK(!strcmp(rdma_event_str((enum rdma_cm_event_type) - 1), "UNKNOWN EVENT"));
}

static void vendor_options_of_a_peer_are_those_of_nobody_at_first(void)
{
	struct rdma_cm_id *id = new_id(NULL, RDMA_PS_TCP);
	struct ibv_ece ece = {.vendor_id = 0x15b3, .options = 1};

	MUST(rdma_set_local_ece(id, &ece));
	MUST(rdma_get_remote_ece(id, &ece));
	CHECK(!ece.vendor_id && !ece.options);
	FAILS(rdma_set_local_ece(id, &ece), EINVAL);
	FAILS(rdma_set_local_ece(id, NULL), EINVAL);
	FAILS(rdma_get_remote_ece(id, NULL), EINVAL);
	MUST(rdma_destroy_id(id));
}

/* AF_IB, which libc does not define. */
static void names_of_a_fabric_are_refused(void)
{
	struct rdma_event_channel *ch = rdma_create_event_channel();
	struct rdma_cm_id *id = new_id(ch, RDMA_PS_IB);
	struct sockaddr_storage ib = {.ss_family = 27}, ip = {.ss_family = AF_INET};
	struct rdma_addrinfo hints = {.ai_family = 27, .ai_port_space = RDMA_PS_IB}, *info = NULL;

	FAILS(rdma_bind_addr(id, (struct sockaddr *)&ib), EAFNOSUPPORT);
	FAILS(rdma_resolve_addr(id, NULL, (struct sockaddr *)&ib, PATIENCE), EAFNOSUPPORT);
	FAILS(rdma_resolve_addr(id, (struct sockaddr *)&ib, (struct sockaddr *)&ip, PATIENCE), EAFNOSUPPORT);
	FAILS(rdma_join_multicast(id, (struct sockaddr *)&ib, NULL), EAFNOSUPPORT);
	FAILS(rdma_getaddrinfo("fe80::1", "5", &hints, &info), EAFNOSUPPORT);
	CHECK(!info);
	MUST(rdma_destroy_id(id));
	rdma_destroy_event_channel(ch);
}

static void calls_out_of_turn_are_refused(void)
{
	struct rdma_cm_id *id = new_id(NULL, RDMA_PS_TCP);
	struct rdma_conn_param param = {0};
	union address group = at("239.1.2.3", 0);
	struct ibv_qp_init_attr attr = qp_attr(NULL, IBV_QPT_RC);
	struct ibv_qp_init_attr_ex ex = {.qp_type = IBV_QPT_RC};
	struct ibv_srq_init_attr srq = {.attr = {.max_wr = 4, .max_sge = 1}};
	struct ibv_qp_attr qp = {.qp_state = IBV_QPS_INIT};
	int mask;

	FAILS(rdma_connect(id, &param), EINVAL);
	FAILS(rdma_accept(id, &param), EINVAL);
	FAILS(rdma_reject(id, NULL, 0), EINVAL);
	FAILS(rdma_reject_ece(id, NULL, 0), EINVAL);
	FAILS(rdma_disconnect(id), EINVAL);
	FAILS(rdma_establish(id), EINVAL);
	FAILS(rdma_notify(id, IBV_EVENT_COMM_EST), EINVAL);
	FAILS(rdma_create_qp(id, NULL, &attr), EINVAL);
	FAILS(rdma_create_qp_ex(id, &ex), EINVAL);
	FAILS(rdma_create_srq(id, NULL, &srq), EINVAL);
	FAILS(rdma_init_qp_attr(id, &qp, &mask), EINVAL);
	FAILS(rdma_join_multicast(id, &group.sa, NULL), EINVAL);
	FAILS(rdma_migrate_id(id, NULL), EINVAL);
	MUST(rdma_destroy_id(id));
}

static void an_adapter_that_moves_and_goes_is_told_of(void)
{
	union address a = at("198.51.100.7", 0);
	char dir[] = "/tmp/rdmacm.XXXXXX";
	struct rdma_event_channel *ch;
	struct rdma_cm_id *id;

	if (unshare(CLONE_NEWNET))
		skip("no network namespace of its own");
	setenv("VERBENA_RUNTIME", mkdtemp(dir), 1);
	ip("link set lo up");
	ip("link add going type veth peer name peer");
	ip("addr add 198.51.100.7/24 dev going");
	ip("link set peer up");
	ip("link set going up");
	ch = rdma_create_event_channel();
	id = new_id(ch, RDMA_PS_TCP);
	MUST(rdma_bind_addr(id, &a.sa));
	CHECK(!event_waits(ch));
	ip("link set going address 02:00:00:00:00:77");
	next_is(ch, RDMA_CM_EVENT_ADDR_CHANGE, NULL);
	ip("addr add 198.51.100.8/24 dev going"); /* another change of the GIDs */
	CHECK(!event_waits(ch));
	ip("link del going");
	next_is(ch, RDMA_CM_EVENT_DEVICE_REMOVAL, NULL);
	FAILS(rdma_listen(id, 1), EINVAL);
	MUST(rdma_destroy_id(id));
	rdma_destroy_event_channel(ch);
	char line[64];

	snprintf(line, sizeof(line), "rm -rf %s", dir);
	CHECK(!system(line));
}

static bool other_threads_sleep(void)
{
	DIR *d = opendir("/proc/self/task");
	bool all = true;

	CHECK(d);
	for (struct dirent *e; all && (e = readdir(d));) {
		char path[300], state = 0;

		if (e->d_name[0] == '.' || atoi(e->d_name) == getpid())
			continue;
		snprintf(path, sizeof(path), "/proc/self/task/%s/stat", e->d_name);
		FILE *f = fopen(path, "re");
		all = f && fscanf(f, "%*d (%*[^)]) %c", &state) == 1 && state == 'S';
		if (f)
			fclose(f);
	}
	closedir(d);
	return all;
}

/* AddressSanitizer's allocator (GCC 12) does not release its locks in a child, so no thread may be in it during a
 * fork. */
static pid_t fork_while_they_sleep(void)
{
	for (int i = 0, asleep = 0; i < 1000 && asleep < 5; i++) {
		sleep_ms(10);
		asleep = other_threads_sleep() ? asleep + 1 : 0;
	}
	return fork();
}

/* A child can use its own channels and ids. It can only destroy those of its parent. */
static void a_child_starts_anew(void)
{
	struct end a;
	unsigned port = start_listening(&a, "127.0.0.1", RDMA_PS_TCP, 4);
	pid_t pid = fork_while_they_sleep();

	if (!pid) {
		union address addr = at("127.0.0.1", port);
		struct rdma_cm_event *e;

		FAILS(rdma_get_cm_event(a.ch, &e), EINVAL);
		FAILS(rdma_listen(a.id, 1), EINVAL);
		MUST(rdma_destroy_id(a.id));
		struct rdma_cm_id *id = new_id(NULL, RDMA_PS_TCP);

		MUST(rdma_resolve_addr(id, NULL, &addr.sa, PATIENCE));
		MUST(rdma_destroy_id(id));
		_exit(0);
	}
	int status;

	SAME(waitpid(pid, &status, 0), pid);
	SAME(status, 0);
	CHECK(!event_waits(a.ch));
	drop_end(&a);
}

int main(int argc, char **argv)
{
#define T(name)                \
	{                      \
#name, name, 0 \
	}
	static const struct test tests[] = {
	        T(a_channel_is_readable_while_an_event_waits),
	        T(who_asks_for_the_next_event_is_let_fall_asleep_before_its_channel_goes),
	        T(ids_are_of_a_known_port_space),
	        T(binding_gives_a_port_and_a_device),
	        T(the_address_of_localhost_names_no_adapter_where_others_are),
	        T(addresses_are_resolved_as_the_kernel_routes),
	        T(what_was_resolved_is_what_stays),
	        T(a_host_that_does_not_answer_is_an_error),
	        T(only_one_listens_at_a_port),
	        T(two_may_share_a_port_while_neither_listens),
	        T(what_a_port_is_shared_for_may_be_said_after_it_is_bound),
	        T(two_families_may_share_a_port),
	        T(options_are_checked),
	        T(a_known_path_needs_no_resolving),
	        T(names_are_resolved_by_hints),
	        T(later_releases_resolve_names_by_an_id),
	        T(all_devices_are_listed),
	        T(events_have_names),
	        T(vendor_options_of_a_peer_are_those_of_nobody_at_first),
	        T(names_of_a_fabric_are_refused),
	        T(calls_out_of_turn_are_refused),
	        T(an_adapter_that_moves_and_goes_is_told_of),
	        T(a_child_starts_anew),
	};

	return RUN_TESTS(argc, argv, tests);
}
