// verbs.c - Verbena's libraries, loaded by a child of the doctor as a program under `verbena run` gets them
// follows: dlopen(3), rdma_cm(7)
// SPDX-License-Identifier: MIT
#include "tools/doctor/verbs.h"

#include <dlfcn.h>
#include <errno.h>
#include <limits.h>
#include <poll.h>
#include <stdio.h>
#include <string.h>

#include "tools/doctor/doctor.h"
#include "tools/run_paths.h"

static void *load_ours(const struct run_paths *paths, const char *name)
{
	char file[PATH_MAX + 32];

	snprintf(file, sizeof(file), "%s/%s", paths->lib_dir, name);
	void *lib = dlopen(file, RTLD_NOW | RTLD_GLOBAL);

	if (!lib)
		fprintf(stderr, "%s\n", dlerror());
	return lib;
}

bool doc_verbs_load(struct doc_verbs *v)
{
	struct run_paths paths;

	if (!run_find_libraries(&paths)) {
		fputs("Verbena's libraries were not found\n", stderr);
		return false;
	}
	/* librdmacm.so.1 needs libibverbs.so.1, and then gets the one that is loaded already. */
	void *ibverbs = load_ours(&paths, "libibverbs.so.1");
	void *rdmacm = ibverbs ? load_ours(&paths, "librdmacm.so.1") : NULL;

	if (!rdmacm)
		return false;
#define DOC_LOAD(name)                                     \
	v->name = dlsym(rdmacm, #name);                    \
	if (!v->name) {                                    \
		fprintf(stderr, "%s is missing\n", #name); \
		return false;                              \
	}
	DOC_VERBS(DOC_LOAD)
#undef DOC_LOAD
	return true;
}

int doc_verbs_event(const struct doc_verbs *v, struct rdma_event_channel *ch, int ms, struct doc_event *e)
{
	struct pollfd p = {.fd = ch->fd, .events = POLLIN};
	struct rdma_cm_event *event;

	if (poll(&p, 1, ms) <= 0)
		return ETIMEDOUT;
	if (v->rdma_get_cm_event(ch, &event))
		return errno;
	*e = (struct doc_event){.type = event->event, .status = event->status, .id = event->id};
	size_t len = event->param.conn.private_data ? event->param.conn.private_data_len : 0;

	if (len)
		memcpy(e->private_data, event->param.conn.private_data,
		       len < sizeof(e->private_data) ? len : sizeof(e->private_data));
	v->rdma_ack_cm_event(event);
	return 0;
}

int doc_verbs_queue_pair(const struct doc_verbs *v, struct rdma_cm_id *id, struct ibv_pd **pd, struct ibv_cq **cq)
{
	struct ibv_qp_init_attr attr = {
	        .qp_type = IBV_QPT_RC,
	        .cap = {.max_send_wr = 8, .max_recv_wr = 8, .max_send_sge = 1, .max_recv_sge = 1}};

	if (!*pd)
		*pd = v->ibv_alloc_pd(id->verbs);
	if (!*cq && *pd)
		*cq = v->ibv_create_cq(id->verbs, 32, NULL, NULL, 0);
	if (!*cq)
		return errno;
	attr.send_cq = attr.recv_cq = *cq;
	return v->rdma_create_qp(id, *pd, &attr) ? errno : 0;
}
