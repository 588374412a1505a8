// client_peer.c - the initiator and a running target: the transport of the connection, and written data reads back
// follows: verbena_nvme.h
// SPDX-License-Identifier: MIT
// usage: client_peer URL TRANSPORT…: the expected transports, one after the other: tcp, rdma, or with which vn_way begins:
// RoCE, iWARP, TCP. Prints the present one, and writes until it is the next one. The disk is overwritten.
#include <stdbool.h>

#include "../../support/check.h"
#include "client_load.h"

#define SOME 300 /* requests */

static bool goes_by(struct vn_disk *d, const char *transport)
{
	char way[300];

	vn_way(d, way, sizeof(way));
	return !strcmp(vn_transport_name(d), transport) || !strncmp(way, transport, strlen(transport));
}

static void expect(struct vn_disk *d, const char *transport)
{
	if (goes_by(d, transport))
		return;
	fprintf(stderr, "it is connected by %s\n", vn_transport_name(d));
	exit(1);
}

int main(int argc, char **argv)
{
	struct load l = {.depth = 16, .largest = 128 << 10, .seed = 4711};
	struct vn_options o;
	struct vn_statistics s;
	char why[200] = "", way[300];

	CHECK(argc >= 3);
	vn_options_init(&o);
	o.numeric = 1;
	if (getenv("SLOW_PEER")) {
		o.connect_ms = 60000;
		o.rdma_ms = 20000; /* half of it if the log lists no port */
	} else {
		o.connect_ms = 30000;
		o.rdma_ms = 10000;
		/* silence is noticed soon; an attempt to return takes a quarter of it at most */
		o.keep_alive_ms = getenv("PATIENT_PEER") ? 16000 : 4000;
		o.rdma_again_ms = 100;
	}
	if (vn_open(argv[1], &o, &l.disk, why, sizeof(why))) {
		fprintf(stderr, "%s: %s\n", argv[1], why);
		return 1;
	}
	expect(l.disk, argv[2]);
	l.registered = true;
	load_begin(&l);
	load_run(&l, SOME);
	for (int i = 3; i < argc; i++) {
		vn_way(l.disk, way, sizeof(way));
		printf("now by %s: %s\n", argv[i - 1], way);
		fflush(stdout);
		while (!goes_by(l.disk, argv[i]))
			load_run(&l, SOME / 10);
		load_run(&l, SOME);
	}
	load_end(&l);
	l.registered = false;
	load_begin(&l);
	load_run(&l, SOME);
	load_end(&l);
	expect(l.disk, argv[argc - 1]);
	vn_statistics(l.disk, &s);
	printf("%s, %llu commands, %llu of them again, %llu reconnects, %llu returns\n", vn_transport_name(l.disk),
	       (unsigned long long)s.commands, (unsigned long long)s.retries, (unsigned long long)s.reconnects,
	       (unsigned long long)s.returns);
	vn_close(l.disk);
	return 0;
}
