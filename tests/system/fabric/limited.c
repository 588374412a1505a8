// limited.c - limited members of a partition do not hear each other, by no kind of queue pair, but full ones
// follows: IBA volume 1, 10.9.3 (partition key matching), 9.6.1.4 (the check at the receiver)
// SPDX-License-Identifier: MIT
// limited LIMITED LIMITED FULL PKEY-INDEX: nodes, and where their ports have the P_Key
#include "member.h"

#include "../../support/check.h"

#define QKEY 0x11111111u

enum { HOSTS = 3, FULL = 2 };

static struct member host[HOSTS];
static uint16_t lid[HOSTS], pkey_index;

static struct reply does(int i, struct order o)
{
	return member_does(&host[i], &o);
}

/* Queue pairs of two hosts, connected to each other. */
struct link {
	int host[2];
	struct reply made[2];
};

static struct link connect_hosts(int a, int b, enum ibv_qp_type type)
{
	struct link l = {.host = {a, b}};

	for (int i = 0; i < 2; i++)
		l.made[i] = does(l.host[i],
		                 (struct order){.op = MAKE, .type = type, .pkey_index = pkey_index, .qkey = QKEY});
	for (int i = 0; i < 2 && type != IBV_QPT_UD; i++)
		does(l.host[i],
		     (struct order){.op = CONNECT, .qp = l.made[i].qp, .qpn = l.made[!i].qpn, .lid = lid[l.host[!i]]});
	return l;
}

/* From the host `from` of the link to the other one. Returns the status. */
static int says(const struct link *l, int from, const char *text)
{
	struct order o = {.op = SEND,
	                  .qp = l->made[from].qp,
	                  .qpn = l->made[!from].qpn,
	                  .qkey = QKEY,
	                  .lid = lid[l->host[!from]],
	                  .count = 1,
	                  .length = (uint32_t)strlen(text) + 1};

	strcpy(o.text, text);
	return does(l->host[from], o).rc;
}

static void hears(const struct link *l, int to, const char *text)
{
	struct reply r = does(l->host[to], (struct order){.op = TAKE, .wait_ms = LONG_MS});

	SAME(r.rc, 0);
	SAME(r.wc.status, IBV_WC_SUCCESS);
	SAME(r.qp, l->made[to].qp);
	if (strcmp(r.text, text) != 0)
		CHECK_FAILED("host %d hears \"%s\", not \"%s\"", l->host[to], r.text, text);
}

/* A queue pair that has failed gives its receives back. */
static void hears_nothing(int i)
{
	for (struct reply r; !(r = does(i, (struct order){.op = TAKE, .wait_ms = 50})).rc;)
		if (r.wc.status != IBV_WC_WR_FLUSH_ERR)
			CHECK_FAILED("host %d hears \"%s\", status %d", i, r.text, r.wc.status);
}

static void try_type(enum ibv_qp_type type)
{
	struct link limited = connect_hosts(0, 1, type),
	            mixed[2] = {connect_hosts(0, FULL, type), connect_hosts(1, FULL, type)};

	for (int i = 0; i < 2; i++) {
		int status = says(&limited, i, "from a limited member");

		/* the first failure of a reliable queue pair is that of its retries, and then it is in ERR */
		SAME(status, type == IBV_QPT_RC ? IBV_WC_RETRY_EXC_ERR : IBV_WC_SUCCESS);
		hears_nothing(limited.host[!i]);
		hears_nothing(limited.host[i]);
	}
	for (int i = 0; i < 2; i++) {
		SAME(says(&mixed[i], 0, "to a full member"), IBV_WC_SUCCESS);
		hears(&mixed[i], 1, "to a full member");
		SAME(says(&mixed[i], 1, "from a full member"), IBV_WC_SUCCESS);
		hears(&mixed[i], 0, "from a full member");
	}
}

static void limited_members_hear_full_ones_alone_by_RC(void)
{
	try_type(IBV_QPT_RC);
}

static void limited_members_hear_full_ones_alone_by_UC(void)
{
	try_type(IBV_QPT_UC);
}

static void limited_members_hear_full_ones_alone_by_UD(void)
{
	try_type(IBV_QPT_UD);
}

int main(int argc, char **argv)
{
	CHECK(argc == 2 + HOSTS);
	pkey_index = (uint16_t)atoi(argv[1 + HOSTS]);
	for (int i = 0; i < HOSTS; i++) {
		host[i] = member_start(argv[1 + i]);
		lid[i] = does(i, (struct order){.op = PORT}).lid;
	}
	RUN(limited_members_hear_full_ones_alone_by_UD);
	RUN(limited_members_hear_full_ones_alone_by_UC);
	RUN(limited_members_hear_full_ones_alone_by_RC);
	for (int i = 0; i < HOSTS; i++)
		member_end(&host[i]);
	return 0;
}
