// nccl_loader.c - loads the library at run time and looks up each symbol by version, as NCCL does
// follows: NCCL's ibvsymbols.cc (the names and versions that it looks up)
// SPDX-License-Identifier: MIT
#include <infiniband/verbs.h>

#include "load.h"

#undef ibv_query_port
#undef ibv_reg_mr

static const struct {
	const char *name, *version;
} wanted[] = {
        {"ibv_get_device_list", "IBVERBS_1.1"},
        {"ibv_free_device_list", "IBVERBS_1.1"},
        {"ibv_get_device_name", "IBVERBS_1.1"},
        {"ibv_open_device", "IBVERBS_1.1"},
        {"ibv_close_device", "IBVERBS_1.1"},
        {"ibv_get_async_event", "IBVERBS_1.1"},
        {"ibv_ack_async_event", "IBVERBS_1.1"},
        {"ibv_query_device", "IBVERBS_1.1"},
        {"ibv_query_port", "IBVERBS_1.1"},
        {"ibv_query_gid", "IBVERBS_1.1"},
        {"ibv_query_qp", "IBVERBS_1.1"},
        {"ibv_alloc_pd", "IBVERBS_1.1"},
        {"ibv_dealloc_pd", "IBVERBS_1.1"},
        {"ibv_reg_mr", "IBVERBS_1.1"},
        {"ibv_reg_mr_iova2", "IBVERBS_1.8"},
        {"ibv_reg_dmabuf_mr", "IBVERBS_1.12"},
        {"ibv_dereg_mr", "IBVERBS_1.1"},
        {"ibv_create_cq", "IBVERBS_1.1"},
        {"ibv_destroy_cq", "IBVERBS_1.1"},
        {"ibv_create_qp", "IBVERBS_1.1"},
        {"ibv_modify_qp", "IBVERBS_1.1"},
        {"ibv_destroy_qp", "IBVERBS_1.1"},
        {"ibv_create_comp_channel", "IBVERBS_1.0"},
        {"ibv_destroy_comp_channel", "IBVERBS_1.0"},
        {"ibv_fork_init", "IBVERBS_1.1"},
        {"ibv_event_type_str", "IBVERBS_1.1"},
        {"ibv_query_ece", "IBVERBS_1.10"},
        {"ibv_set_ece", "IBVERBS_1.10"},
        {"ibv_query_port_speed", "IBVERBS_1.16"},
};

int main(void)
{
	void *lib = load("libibverbs.so.1");

	for (unsigned i = 0; i < sizeof(wanted) / sizeof(*wanted); i++)
		CHECK(dlvsym(lib, wanted[i].name, wanted[i].version));

	struct ibv_device **(*list)(int *) = version_of(lib, "ibv_get_device_list", "IBVERBS_1.1");
	void (*free_list)(struct ibv_device **) = version_of(lib, "ibv_free_device_list", "IBVERBS_1.1");
	struct ibv_context *(*open_device)(struct ibv_device *) = version_of(lib, "ibv_open_device", "IBVERBS_1.1");
	int (*close_device)(struct ibv_context *) = version_of(lib, "ibv_close_device", "IBVERBS_1.1");
	int (*query_port)(struct ibv_context *, uint8_t, void *) = version_of(lib, "ibv_query_port", "IBVERBS_1.1");
	struct ibv_pd *(*alloc_pd)(struct ibv_context *) = version_of(lib, "ibv_alloc_pd", "IBVERBS_1.1");
	int (*dealloc_pd)(struct ibv_pd *) = version_of(lib, "ibv_dealloc_pd", "IBVERBS_1.1");
	int n = -1;
	struct ibv_device **devices = list(&n);

	CHECK(devices && n >= 0 && !devices[n]);
	if (!n)
		SKIP("no device");
	struct ibv_context *context = open_device(devices[0]);
	CHECK(context);
	free_list(devices);

	/* The exported symbol is the old one. It must not write beyond the 48 bytes of its callers. */
	unsigned char port[64];
	memset(port, 0xa5, sizeof(port));
	CHECK(!query_port(context, 1, port));
	CHECK(((struct ibv_port_attr *)port)->link_layer == IBV_LINK_LAYER_ETHERNET);
	for (unsigned i = 48; i < sizeof(port); i++)
		CHECK(port[i] == 0xa5);

	struct ibv_pd *pd = alloc_pd(context);
	CHECK(pd);
	CHECK(!dealloc_pd(pd));
	CHECK(!close_device(context));
	return 0;
}
