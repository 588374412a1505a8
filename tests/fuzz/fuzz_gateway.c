// fuzz_gateway.c - the object that gateways of a Ceph image share, with any contents: what is read is sound, is written as it
// was, and a gateway that finds it does what its rules say
// see: storage/backend/gateway.h
// SPDX-License-Identifier: MIT
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "../support/check.h"
#include "backend/gateway.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

static const char head[] = "verbena-gateways 2\nepoch 1\nowner a x\nwanted -\n";

static void use_state(const struct ng_state *s)
{
	static struct ng g;
	static struct nb_port ports[NG_PORTS];
	char why[NB_WHY];

	g = (struct ng){.name = "b", .client = "y", .serves = "block=512,nsid=1", .change_number = 1};
	g.change = (struct nr_change){.op = (enum nr_op)(s->epoch % 8), .other = 1, .type = 1, .ignore_key = true};
	for (uint64_t now = 1000; now < 12000; now += 500) {
		ng_saw(&g, s, now, now);
		enum ng_act act = ng_decide(&g, now);

		CHECK(nr_valid(&g.next.reservations) && g.next.count <= NG_GATEWAYS);
		CHECK(ng_others(&g, ports) <= NG_PORTS);
		if (act == NG_DIFFERS)
			ng_tell_difference(&g, why, sizeof(why));
		if (act == NG_FENCE)
			ng_fenced(&g);
		if (act == NG_WRITE)
			ng_wrote(&g, now);
	}
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
	static struct ng_state s, again;
	static char text[NG_TEXT], in[NG_TEXT];
	size_t n = 0;

	if (size > sizeof(in) - sizeof(head))
		return 0;
	if (size && data[0] & 1) { /* what comes after the first lines is reached more often */
		memcpy(in, head, n = strlen(head));
		data++, size--;
	}
	memcpy(in + n, data, size);
	if (!ng_decode(in, n + size, &s))
		return 0;
	CHECK(nr_valid(&s.reservations) && s.count <= NG_GATEWAYS);
	n = ng_encode(&s, text);
	CHECK(n < NG_TEXT && ng_decode(text, n, &again));
	CHECK(!memcmp(&s, &again, sizeof(s)));
	use_state(&s);
	return 0;
}
