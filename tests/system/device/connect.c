// connect.c - connects to an address once, and says which event or call ended that
// follows: rdma_cm(7) (CLIENT OPERATION), rdma_get_cm_event(3)
// SPDX-License-Identifier: MIT
// usage: connect ADDRESS PORT   0: connected; 1: an event said no, or a call; 2: arguments
#include <arpa/inet.h>
#include <errno.h>
#include <rdma/rdma_cma.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define PATIENCE 2000 /* ms */

static int no(const char *call)
{
	printf("%s: %s\n", call, strerror(errno));
	return 1;
}

static int go_on(struct rdma_cm_id *id, enum rdma_cm_event_type event)
{
	struct rdma_conn_param param = {.retry_count = 7};
	struct ibv_qp_init_attr init = {
	        .qp_type = IBV_QPT_RC,
	        .cap = {.max_send_wr = 1, .max_recv_wr = 1, .max_send_sge = 1, .max_recv_sge = 1}};

	switch (event) {
	case RDMA_CM_EVENT_ADDR_RESOLVED:
		return rdma_resolve_route(id, PATIENCE) ? no("rdma_resolve_route") : -1;
	case RDMA_CM_EVENT_ROUTE_RESOLVED:
		if (rdma_create_qp(id, NULL, &init))
			return no("rdma_create_qp");
		return rdma_connect(id, &param) ? no("rdma_connect") : -1;
	case RDMA_CM_EVENT_ESTABLISHED:
		return 0;
	default:
		puts(rdma_event_str(event));
		return 1;
	}
}

static int connect_once(struct rdma_event_channel *ch, struct rdma_cm_id *id, struct sockaddr_in *to)
{
	int end = rdma_resolve_addr(id, NULL, (struct sockaddr *)to, PATIENCE) ? no("rdma_resolve_addr") : -1;

	while (end < 0) {
		struct rdma_cm_event *event;

		if (rdma_get_cm_event(ch, &event))
			return no("rdma_get_cm_event");
		enum rdma_cm_event_type type = event->event;

		rdma_ack_cm_event(event);
		end = go_on(id, type);
	}
	return end;
}

int main(int argc, char **argv)
{
	struct sockaddr_in to = {.sin_family = AF_INET};
	struct rdma_event_channel *ch = rdma_create_event_channel();
	struct rdma_cm_id *id;

	if (argc != 3 || inet_pton(AF_INET, argv[1], &to.sin_addr) != 1 || !ch ||
	    rdma_create_id(ch, &id, NULL, RDMA_PS_TCP))
		return 2;
	to.sin_port = htons((uint16_t)atoi(argv[2]));
	int end = connect_once(ch, id, &to);

	if (id->qp)
		rdma_destroy_qp(id);
	if (rdma_destroy_id(id))
		return no("rdma_destroy_id");
	rdma_destroy_event_channel(ch);
	return end;
}
