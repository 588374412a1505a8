// link.c - one queue pair between two programs that exchange addresses by TCP
// follows: ibv_modify_qp(3)
// SPDX-License-Identifier: MIT
#include "link.h"

#include <arpa/inet.h>
#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <netdb.h>
#include <netinet/tcp.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/random.h>
#include <unistd.h>

void stop(int status, const char *format, ...)
{
	va_list args;

	va_start(args, format);
	vprintf(format, args);
	va_end(args);
	printf("\n");
	fflush(stdout);
	_exit(status);
}

/* --- TCP --- */

static int tcp_listen(struct addrinfo *a)
{
	int s = socket(a->ai_family, SOCK_STREAM, 0), on = 1, off = 0, c;

	setsockopt(s, SOL_SOCKET, SO_REUSEADDR, &on, sizeof(on));
	if (a->ai_family == AF_INET6)
		setsockopt(s, IPPROTO_IPV6, IPV6_V6ONLY, &off, sizeof(off));
	if (bind(s, a->ai_addr, a->ai_addrlen) || listen(s, 1) || (c = accept(s, NULL, NULL)) < 0)
		stop(GONE, "listening: %s", strerror(errno));
	close(s);
	return c;
}

static int tcp_dial(struct addrinfo *a)
{
	for (int tries = 0;; tries++) {
		int s = socket(a->ai_family, SOCK_STREAM, 0);

		if (!connect(s, a->ai_addr, a->ai_addrlen))
			return s;
		if (tries == 100)
			stop(GONE, "connecting: %s", strerror(errno));
		close(s);
		usleep(100000);
	}
}

static int tcp_open(const char *server, int port)
{
	struct addrinfo hints = {.ai_socktype = SOCK_STREAM,
	                         .ai_flags = server ? 0 : AI_PASSIVE,
	                         .ai_family = server ? AF_UNSPEC : AF_INET6},
	                *a;
	char service[8];
	int on = 1;

	snprintf(service, sizeof(service), "%d", port);
	if (getaddrinfo(server, service, &hints, &a))
		stop(USAGE, "%s: not an address", server);
	int s = server ? tcp_dial(a) : tcp_listen(a);

	freeaddrinfo(a);
	setsockopt(s, IPPROTO_TCP, TCP_NODELAY, &on, sizeof(on));
	return s;
}

/* --- device --- */

static struct ibv_context *open_device(const char *name)
{
	int n;
	struct ibv_device **all = ibv_get_device_list(&n);

	for (int i = 0; all && i < n; i++) {
		if (name && strcmp(ibv_get_device_name(all[i]), name))
			continue;
		struct ibv_context *c = ibv_open_device(all[i]);

		if (!c)
			stop(USAGE, "%s: %s", ibv_get_device_name(all[i]), strerror(errno));
		ibv_free_device_list(all);
		return c;
	}
	stop(USAGE, "no adapter %s", name ? name : "");
}

static void make_qp(struct link *l)
{
	static const enum ibv_qp_type types[] = {IBV_QPT_RC, IBV_QPT_UC, IBV_QPT_UD};
	struct ibv_qp_init_attr init = {
	        .send_cq = l->cq,
	        .recv_cq = l->cq,
	        .qp_type = types[l->o->transport],
	        .cap = {.max_send_wr = SLOTS + 2,
	                .max_recv_wr = 4 * SLOTS,
	                .max_send_sge = 3,
	                .max_recv_sge = 1,
	                .max_inline_data = 64},
	};
	struct ibv_qp_attr a = {.qp_state = IBV_QPS_INIT,
	                        .port_num = 1,
	                        .qkey = UD_QKEY,
	                        .qp_access_flags =
	                                IBV_ACCESS_REMOTE_READ | IBV_ACCESS_REMOTE_WRITE | IBV_ACCESS_REMOTE_ATOMIC};
	int mask = IBV_QP_STATE | IBV_QP_PKEY_INDEX | IBV_QP_PORT |
	           (l->o->transport == UD ? IBV_QP_QKEY : IBV_QP_ACCESS_FLAGS);

	if (l->o->transport == UC)
		a.qp_access_flags = IBV_ACCESS_REMOTE_WRITE;
	l->qp = ibv_create_qp(l->pd, &init);
	if (!l->qp)
		stop(USAGE, "ibv_create_qp: %s", strerror(errno));
	l->max_inline = init.cap.max_inline_data;
	if (ibv_modify_qp(l->qp, &a, mask))
		stop(USAGE, "to INIT: %s", strerror(errno));
}

void link_open(struct link *l, const struct options *o)
{
	struct ibv_port_attr port;

	*l = (struct link){.o = o, .number = o->server != NULL};
	l->context = open_device(o->device);
	if (ibv_query_port(l->context, 1, &port))
		stop(USAGE, "ibv_query_port: %s", strerror(errno));
	l->mtu = o->mtu ? o->mtu : 128u << port.active_mtu;
	l->here.lid = port.link_layer == IBV_LINK_LAYER_INFINIBAND ? port.lid : 0;
	l->pd = ibv_alloc_pd(l->context);
	if (o->events)
		l->channel = ibv_create_comp_channel(l->context);
	l->cq = l->pd ? ibv_create_cq(l->context, 6 * SLOTS, NULL, l->channel, 0) : NULL;
	if (!l->cq)
		stop(USAGE, "ibv_create_cq: %s", strerror(errno));
	if (l->channel)
		ibv_req_notify_cq(l->cq, 0);
	if (ibv_query_gid(l->context, 1, o->gid, &l->here.gid))
		stop(USAGE, "GID %d: %s", o->gid, strerror(errno));
	make_qp(l);
	l->here.qpn = l->qp->qp_num;
	getrandom(&l->here.psn, sizeof(l->here.psn), 0);
	l->here.psn &= 0xffffff;
}

/* --- the exchange of addresses --- */

static void tell(const struct link *l)
{
	const struct side *s = &l->here;
	char line[256], gid[INET6_ADDRSTRLEN];
	int n = snprintf(line, sizeof(line), "%x %x %x %x %x %" PRIx64 " %" PRIx64 " %" PRIx64 " %x %s\n", s->qpn,
	                 s->psn, s->key, s->cells_key, s->readable_key, s->written, s->cells, s->readable, s->lid,
	                 inet_ntop(AF_INET6, &s->gid, gid, sizeof(gid)));

	if (write(l->tcp, line, (size_t)n) != n)
		stop(GONE, "telling the other side: %s", strerror(errno));
}

static void listen_to(struct link *l)
{
	struct side *s = &l->there;
	char line[256], gid[64];
	size_t n = 0;

	while (n < sizeof(line) - 1 && read(l->tcp, line + n, 1) == 1 && line[n] != '\n')
		n++;
	line[n] = 0;
	if (sscanf(line, "%x %x %x %x %x %" SCNx64 " %" SCNx64 " %" SCNx64 " %x %63s", &s->qpn, &s->psn, &s->key,
	           &s->cells_key, &s->readable_key, &s->written, &s->cells, &s->readable, &s->lid, gid) != 10 ||
	    inet_pton(AF_INET6, gid, &s->gid) != 1)
		stop(GONE, "the other side says: %s", line);
}

static int to_rtr(struct link *l, struct ibv_ah_attr *ah)
{
	struct ibv_qp_attr a = {.qp_state = IBV_QPS_RTR,
	                        .dest_qp_num = l->there.qpn,
	                        .rq_psn = l->there.psn,
	                        .ah_attr = *ah,
	                        .max_dest_rd_atomic = l->o->reads,
	                        .min_rnr_timer = 12};
	int mask = IBV_QP_STATE;

	for (a.path_mtu = IBV_MTU_256; 128u << a.path_mtu < l->mtu;)
		a.path_mtu++;
	if (l->o->transport != UD)
		mask |= IBV_QP_AV | IBV_QP_PATH_MTU | IBV_QP_DEST_QPN | IBV_QP_RQ_PSN;
	if (l->o->transport == RC)
		mask |= IBV_QP_MAX_DEST_RD_ATOMIC | IBV_QP_MIN_RNR_TIMER;
	return ibv_modify_qp(l->qp, &a, mask);
}

static int to_rts(struct link *l)
{
	struct ibv_qp_attr a = {.qp_state = IBV_QPS_RTS,
	                        .sq_psn = l->here.psn,
	                        .timeout = l->o->timeout,
	                        .retry_cnt = l->o->retries,
	                        .rnr_retry = 7,
	                        .max_rd_atomic = l->o->reads};
	int mask = IBV_QP_STATE | IBV_QP_SQ_PSN;

	if (l->o->transport == RC)
		mask |= IBV_QP_TIMEOUT | IBV_QP_RETRY_CNT | IBV_QP_RNR_RETRY | IBV_QP_MAX_QP_RD_ATOMIC;
	return ibv_modify_qp(l->qp, &a, mask);
}

void link_connect(struct link *l)
{
	l->tcp = tcp_open(l->o->server, l->o->port);
	tell(l);
	listen_to(l);
	struct ibv_ah_attr ah = {.port_num = 1, .dlid = (uint16_t)l->there.lid};

	if (!l->here.lid) {
		ah.is_global = 1;
		ah.grh = (struct ibv_global_route){
		        .dgid = l->there.gid, .sgid_index = (uint8_t)l->o->gid, .hop_limit = 64};
	}

	if (to_rtr(l, &ah))
		stop(USAGE, "to RTR: %s", strerror(errno));
	if (to_rts(l))
		stop(USAGE, "to RTS: %s", strerror(errno));
	if (l->o->transport == UD && !(l->ah = ibv_create_ah(l->pd, &ah)))
		stop(USAGE, "ibv_create_ah: %s", strerror(errno));
	fcntl(l->tcp, F_SETFL, O_NONBLOCK);
}

void link_close(struct link *l)
{
	close(l->tcp);
	if (l->ah)
		ibv_destroy_ah(l->ah);
	ibv_destroy_qp(l->qp);
	ibv_destroy_cq(l->cq);
	if (l->channel)
		ibv_destroy_comp_channel(l->channel);
}
