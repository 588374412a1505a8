// calls.c - calls every verb without an object and with another library's object: an error by its convention, and no
// crash
// follows: libibverbs.map; the ibv_* man pages (how each reports errors)
// SPDX-License-Identifier: MIT
#include <fcntl.h>
#include <infiniband/verbs.h>
#include <stdbool.h>
#include <unistd.h>

#include "load.h"

enum kind { PTR, ERR, NEG, NEGERR, ZERO, VOID };

#define PTR(node, type, name, owner, params, args) {"ibv_" #name, "IBVERBS_" #node, #owner, PTR},
#define ERR(node, name, owner, params, args) {"ibv_" #name, "IBVERBS_" #node, #owner, ERR},
#define NEG(node, name, owner, params, args) {"ibv_" #name, "IBVERBS_" #node, #owner, NEG},
#define WAIT NEG
#define NEGERR(node, name, owner, params, args) {"ibv_" #name, "IBVERBS_" #node, #owner, NEGERR},
#define ZERO(node, type, name, owner, params, args) {"ibv_" #name, "IBVERBS_" #node, #owner, ZERO},
#define VOID(node, name, owner, params, args) {"ibv_" #name, "IBVERBS_" #node, #owner, VOID},
static const struct verb {
	const char *name, *version, *owner;
	enum kind kind;
} verbs[] = {
#include "abi/verbs.inc"
        {"_ibv_query_gid_ex", "IBVERBS_1.11", "VB_BY_CONTEXT", ERR},
        {"_ibv_query_gid_table", "IBVERBS_1.11", "VB_BY_CONTEXT", NEGERR},
        {"ibv_query_gid_type", "IBVERBS_PRIVATE_34", "VB_BY_CONTEXT", NEG},
};

/* Integers and pointers are passed alike on our machines, and a callee reads as many as it has. */
typedef long function(void *object, long, long, long, long, long);

static void check_result(const struct verb *verb, long result, int error)
{
	bool ok = errno == error;

	switch (verb->kind) {
	case PTR:
		ok = ok && !result;
		break;
	case ERR:
		ok = (int)result == error;
		break;
	case NEG:
		ok = ok && (int)result == -1;
		break;
	case NEGERR:
		ok = (int)result == -error;
		break;
	case ZERO:
		ok = (int)result == 0;
		break;
	case VOID:
		ok = true;
		break;
	}
	if (!ok)
		fprintf(stderr, "%s: %ld, errno %d, where %d is expected\n", verb->name, result, errno, error);
	CHECK(ok);
}

/* A context, a device and an object of another libibverbs in the process. */
static struct verbs_context foreign_context = {
        .sz = sizeof(struct verbs_context),
        .priv = (struct verbs_ex_private *)&foreign_context,
        .context.abi_compat = __VERBS_ABI_IS_EXTENDED,
};
static struct {
	struct ibv_device device;
	const void *driver;
	char more[4096];
} foreign_device = {.driver = &foreign_device};
static struct {
	struct ibv_context *context; /* first member of every kind of object */
	char more[1024];
} foreign_object = {.context = &foreign_context.context};
static struct ibv_async_event foreign_event = {.event_type = IBV_EVENT_QP_FATAL,
                                               .element.qp = (struct ibv_qp *)&foreign_object};

static void *foreign(const char *owner)
{
	if (!strncmp(owner, "VB_BY_CONTEXT", 13))
		return &foreign_context.context;
	if (!strncmp(owner, "VB_BY_DEVICE", 12))
		return &foreign_device;
	return strstr(owner, "event") ? (void *)&foreign_event : (void *)&foreign_object;
}

static void verbs_without_an_object_of_ours_fail(void *lib)
{
	for (unsigned i = 0; i < sizeof(verbs) / sizeof(*verbs); i++) {
		function *f = (function *)version_of(lib, verbs[i].name, verbs[i].version);

		errno = 0;
		check_result(&verbs[i], f(NULL, 0, 0, 0, 0, 0), EINVAL);
		errno = 0;
		check_result(&verbs[i], f(foreign(verbs[i].owner), 0, 0, 0, 0, 0), EOPNOTSUPP);
	}
}

static void driver_calls_are_refused(void *lib)
{
	static const char *const nodes[] = {"34", "57", "59", "64", "65"};
#define PRIVATE_34(name) {#name, 0},
#define PRIVATE_59(name) {#name, 2},
#define PRIVATE_65(name) {#name, 4},
	static const struct {
		const char *name;
		unsigned since;
	} calls[] = {
#include "abi/private.inc"
	        {"execute_ioctl", 0},
	};

	for (unsigned i = 0; i < sizeof(calls) / sizeof(*calls); i++)
		for (unsigned node = calls[i].since; node < 5; node++) {
			char version[32];
			snprintf(version, sizeof(version), "IBVERBS_PRIVATE_%s", nodes[node]);
			function *f = (function *)version_of(lib, calls[i].name, version);
			CHECK((int)f(NULL, 0, 0, 0, 0, 0) == EOPNOTSUPP);
		}
}

/* Functions in all private nodes: the same in each. */
static void *in_all_nodes(void *lib, const char *name)
{
	void *f = version_of(lib, name, "IBVERBS_PRIVATE_34");

	CHECK(f == version_of(lib, name, "IBVERBS_PRIVATE_57"));
	CHECK(f == version_of(lib, name, "IBVERBS_PRIVATE_59"));
	CHECK(f == version_of(lib, name, "IBVERBS_PRIVATE_64"));
	CHECK(f == version_of(lib, name, "IBVERBS_PRIVATE_65"));
	return f;
}

static void the_rest_of_the_private_node_does_no_harm(void *lib)
{
	unsigned (*final_num_attrs)(unsigned, void *) = in_all_nodes(lib, "__ioctl_final_num_attrs");
	CHECK(final_num_attrs(3, NULL) == 3);

	void (*verbs_log)(void *, uint32_t, const char *, ...) = in_all_nodes(lib, "__verbs_log");
	verbs_log(NULL, 1, "%s %d", "text", 1);

	bool *allow = in_all_nodes(lib, "verbs_allow_disassociate_destroy");
	CHECK(!*allow);

	int fd = open("/dev/null", O_RDONLY);
	void *(*init)(void *, int, size_t, void *, uint32_t) = in_all_nodes(lib, "_verbs_init_and_alloc_context");
	CHECK(!init(NULL, fd, 1000, NULL, 0) && errno == EOPNOTSUPP);
	CHECK(fcntl(fd, F_GETFD) == -1);

	function *open_device = (function *)in_all_nodes(lib, "verbs_open_device");
	CHECK(!open_device(&foreign_device, 0, 0, 0, 0, 0) && errno == EOPNOTSUPP);
	((void (*)(void *))in_all_nodes(lib, "verbs_uninit_context"))(&foreign_context);
	((void (*)(void *, void *))in_all_nodes(lib, "verbs_set_ops"))(&foreign_context, NULL);

	struct ibv_cq cq;
	struct ibv_comp_channel channel = {.refcnt = 4};
	void (*init_cq)(void *, void *, void *, void *) = in_all_nodes(lib, "verbs_init_cq");
	init_cq(&cq, &foreign_context.context, &channel, &fd);
	CHECK(cq.context == &foreign_context.context && cq.channel == &channel && cq.cq_context == &fd &&
	      channel.refcnt == 5);
	CHECK(!pthread_mutex_lock(&cq.mutex) && !pthread_mutex_unlock(&cq.mutex));

	char text[16];
	int (*read_ibdev)(char *, size_t, void *, const char *, ...) = in_all_nodes(lib, "ibv_read_ibdev_sysfs_file");
	CHECK(read_ibdev(text, sizeof(text), NULL, "ports/%d/state", 1) == -1 && errno == EINVAL);
	CHECK(read_ibdev(text, sizeof(text), &foreign_device, "x") == -1 && errno == EOPNOTSUPP);

	const char *(*opcode)(int) = in_all_nodes(lib, "ibv_wr_opcode_str");
	CHECK(!strcmp(opcode(IBV_WR_SEND), "send") && !strcmp(opcode(12), "unknown") && !strcmp(opcode(-1), "unknown"));
	CHECK(!strcmp(opcode(15), "atomic-write"));

	in_all_nodes(lib, "ibv_query_gid_type");
	static const char *const numbers[] = {"34", "57", "59", "64", "65"};
	for (unsigned i = 0; i < 5; i++) {
		char name[32], version[32];
		snprintf(name, sizeof(name), "verbs_register_driver_%s", numbers[i]);
		snprintf(version, sizeof(version), "IBVERBS_PRIVATE_%s", numbers[i]);
		((void (*)(void *))version_of(lib, name, version))(NULL);
		if (i < 3)
			continue;
		CHECK(!((function *)version_of(lib, "ibv_dmabuf_heap_cc_shared_init", version))(NULL, 0, 0, 0, 0, 0));
		CHECK(!((function *)version_of(lib, "ibv_dmabuf_heap_alloc", version))(NULL, 0, 0, 0, 0, 0));
		((void (*)(void *))version_of(lib, "ibv_dmabuf_heap_destroy", version))(NULL);
		((void (*)(void *, long, int))version_of(lib, "ibv_dmabuf_heap_free", version))(NULL, 0, -1);
	}
	((void (*)(const char *, void *))version_of(lib, "ibv_register_driver", "IBVERBS_1.1"))("usnic", NULL);
}

static void what_needs_no_object_works(void *lib)
{
	CHECK(!((int (*)(void))version_of(lib, "ibv_fork_init", "IBVERBS_1.1"))());
	CHECK(((int (*)(void))version_of(lib, "ibv_is_fork_initialized", "IBVERBS_1.13"))() == IBV_FORK_UNNEEDED);
	CHECK(!((int (*)(void *, size_t))version_of(lib, "ibv_dontfork_range", "IBVERBS_1.1"))(lib, 5));
	CHECK(!((int (*)(void *, size_t))version_of(lib, "ibv_dofork_range", "IBVERBS_1.1"))(lib, 5));
	CHECK(!((void *(*)(int))version_of(lib, "ibv_import_device", "IBVERBS_1.10"))(0) && errno == EOPNOTSUPP);
	CHECK(((int (*)(void *))version_of(lib, "ibv_export_buf_dmabuf_fd", "IBVERBS_1.18"))(NULL) == -1);
	CHECK(((int (*)(void *, void *, size_t))version_of(lib, "_ibv_query_comp_cntr_caps", "IBVERBS_1.18"))(
	              NULL, NULL, 0) == EINVAL);
	((void (*)(void *))version_of(lib, "ibv_free_buf", "IBVERBS_1.17"))(NULL);
	((void (*)(void *))version_of(lib, "ibv_free_device_list", "IBVERBS_1.1"))(NULL);
	CHECK(!((void *(*)(void *))version_of(lib, "ibv_get_device_name", "IBVERBS_1.1"))(NULL));

	int n = -1;
	struct ibv_device **(*get_list)(int *) = version_of(lib, "ibv_get_device_list", "IBVERBS_1.1");
	struct ibv_device **list = get_list(&n);
	CHECK(list && n >= 0 && !list[n]);
	((void (*)(void *))version_of(lib, "ibv_free_device_list", "IBVERBS_1.1"))(list);
}

int main(void)
{
	void *lib = load("libibverbs.so.1");

	verbs_without_an_object_of_ours_fail(lib);
	driver_calls_are_refused(lib);
	the_rest_of_the_private_node_does_no_harm(lib);
	what_needs_no_object_works(lib);
	return 0;
}
