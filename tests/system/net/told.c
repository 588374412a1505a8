// told.c - one end of an rdma_cm connection without data: prints the events of the other end
// follows: rdma_get_cm_event(3)
// SPDX-License-Identifier: MIT
//
// told ADDRESS PORT [client]: without "client" it listens there
#include <rdma/rdma_cma.h>
#include <stdio.h>
#include <string.h>

static struct rdma_cm_id *endpoint(const char *address, const char *port, int active)
{
	struct rdma_addrinfo hints = {.ai_port_space = RDMA_PS_TCP, .ai_flags = active ? 0 : RAI_PASSIVE}, *res;
	struct ibv_qp_init_attr attr = {
	        .cap = {.max_send_wr = 1, .max_recv_wr = 1, .max_send_sge = 1, .max_recv_sge = 1}, .sq_sig_all = 1};
	struct rdma_cm_id *id;

	if (rdma_getaddrinfo(address, port, &hints, &res) || rdma_create_ep(&id, res, NULL, &attr))
		return NULL;
	return id;
}

int main(int argc, char **argv)
{
	int active = argc > 3;
	struct rdma_cm_id *id = endpoint(argv[1], argv[2], active), *listener = id;
	struct rdma_cm_event *event;

	setvbuf(stdout, NULL, _IOLBF, 0);
	if (!id || (active ? rdma_connect(id, NULL) : rdma_listen(listener, 1)))
		return 1;
	if (!active) {
		puts("listening");
		if (rdma_get_request(listener, &id) || rdma_accept(id, NULL))
			return 1;
	}
	puts("connected");
	if (rdma_get_cm_event(id->channel, &event))
		return 1;
	puts(rdma_event_str(event->event));
	return 0;
}
