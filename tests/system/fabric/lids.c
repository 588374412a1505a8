// lids.c - two hosts of a fabric whose ports have several LIDs talk by their last ones
// follows: IBA volume 1, 4.1.3 (LMC), 9.6.1.5 (the SLID of a connection)
// SPDX-License-Identifier: MIT
// lids NODE NODE LMC MESSAGES: sends so many messages of 2 KiB from the first one to the second
#include "member.h"

#include "../../support/check.h"

int main(int argc, char **argv)
{
	CHECK(argc == 5);
	uint16_t lid[2], last = (uint16_t)((1 << atoi(argv[3])) - 1);
	int messages = atoi(argv[4]);
	struct member host[2];
	struct reply made[2];

	for (int i = 0; i < 2; i++) {
		host[i] = member_start(argv[1 + i]);
		made[i] = member_does(&host[i], &(struct order){.op = MAKE, .type = IBV_QPT_RC});
		lid[i] = member_does(&host[i], &(struct order){.op = PORT}).lid;
	}
	for (int i = 0; i < 2; i++)
		member_does(&host[i], &(struct order){.op = CONNECT,
		                                      .qp = made[i].qp,
		                                      .qpn = made[!i].qpn,
		                                      .lid = lid[!i] + last,
		                                      .path_bits = (uint8_t)last});
	for (int n = 0; n < messages; n++) {
		struct order o = {.op = SEND, .qp = made[0].qp, .count = 1, .length = TEXT_MAX};

		snprintf(o.text, sizeof(o.text), "message %d", n);
		SAME(member_does(&host[0], &o).rc, IBV_WC_SUCCESS);
		struct reply r = member_does(&host[1], &(struct order){.op = TAKE, .wait_ms = LONG_MS});
		SAME(r.rc, 0);
		SAME(r.wc.status, IBV_WC_SUCCESS);
		CHECK(!strcmp(r.text, o.text));
	}
	member_end(&host[0]);
	member_end(&host[1]);
	return 0;
}
