// ops_tables.c - the tables of functions for inline verbs have no null entry; unsupported functions return EOPNOTSUPP
// follows: infiniband/verbs.h
// SPDX-License-Identifier: MIT
#include <infiniband/verbs.h>
#include <stdint.h>

#include "load.h"

static void no_entry_is_null(struct ibv_context *context)
{
	struct verbs_context *vctx = verbs_get_ctx(context);
	void *const *entry = (void *const *)vctx, *const *ops = (void *const *)&context->ops;

	CHECK(vctx && vctx->sz == sizeof(*vctx) && sizeof(*vctx) == 648);
	/* The last two words are an unused placeholder and the size. */
	for (unsigned i = 0; i < offsetof(struct verbs_context, _ABI_placeholder3) / sizeof(void *); i++)
		CHECK(entry[i]);
	for (unsigned i = 0; i < sizeof(context->ops) / sizeof(void *); i++)
		CHECK(ops[i]);
	CHECK((void *)vctx->ABI_placeholder1 == (void *)vctx->ibv_create_flow);
	CHECK((void *)vctx->ABI_placeholder2 == (void *)vctx->ibv_destroy_flow);
}

#define REFUSES_NULL(call)                             \
	do {                                           \
		errno = 0;                             \
		CHECK(!(call) && errno == EOPNOTSUPP); \
	} while (0)

static void what_is_missing_says_so(struct ibv_context *context, struct ibv_pd *pd)
{
	REFUSES_NULL(ibv_create_flow_action_esp(context, NULL));
	CHECK(ibv_modify_flow_action_esp(&(struct ibv_flow_action){context}, NULL) == EOPNOTSUPP);
	CHECK(ibv_destroy_flow_action(&(struct ibv_flow_action){context}) == EOPNOTSUPP);
}

int main(void)
{
	struct ibv_device **devices = ibv_get_device_list(NULL);

	CHECK(devices);
	if (!devices[0])
		SKIP("no device");
	struct ibv_context *context = ibv_open_device(devices[0]);
	CHECK(context);
	struct ibv_pd *pd = ibv_alloc_pd(context);
	CHECK(pd);
	no_entry_is_null(context);
	what_is_missing_says_so(context, pd);
	CHECK(!ibv_dealloc_pd(pd));
	CHECK(!ibv_close_device(context));
	ibv_free_device_list(devices);
	return 0;
}
