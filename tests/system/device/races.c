// races.c - lists, opens and uses every RDMA device again and again, in threads, while other processes add and remove them
// follows: ibv_get_device_list(3), ibv_open_device(3)
// SPDX-License-Identifier: MIT
// usage: races SECONDS   prints what it has done; 1 if a call did what no removal explains, or if descriptors are lost
#include <dirent.h>
#include <errno.h>
#include <infiniband/verbs.h>
#include <pthread.h>
#include <stdatomic.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

enum { THREADS = 3 };

static atomic_uint lists, opened, gone, wrong;
static time_t until;

static void complain(const char *call, const char *device, int err)
{
	if (atomic_fetch_add(&wrong, 1) < 10)
		fprintf(stderr, "%s of %s: %s\n", call, device, strerror(err));
}

/* What a device that is removed meanwhile may answer. */
static bool is_removal(int err)
{
	return err == ENODEV || err == EIO || err == ENOENT || err == EINVAL;
}

static void use_device(struct ibv_context *ctx, const char *name)
{
	struct ibv_port_attr port;
	union ibv_gid gid;
	struct ibv_pd *pd = ibv_alloc_pd(ctx);
	struct ibv_cq *cq = ibv_create_cq(ctx, 16, NULL, NULL, 0);
	struct ibv_qp_init_attr init = {
	        .send_cq = cq,
	        .recv_cq = cq,
	        .qp_type = IBV_QPT_RC,
	        .cap = {.max_send_wr = 4, .max_recv_wr = 4, .max_send_sge = 1, .max_recv_sge = 1}};
	struct ibv_qp_attr attr = {.qp_state = IBV_QPS_INIT, .port_num = 1};
	struct ibv_qp *qp = pd && cq ? ibv_create_qp(pd, &init) : NULL;

	if (!qp)
		complain("ibv_create_qp", name, errno);
	else if (ibv_modify_qp(qp, &attr, IBV_QP_STATE | IBV_QP_PKEY_INDEX | IBV_QP_PORT | IBV_QP_ACCESS_FLAGS))
		complain("ibv_modify_qp", name, errno);
	int rc = ibv_query_port(ctx, 1, &port);
	if (rc && !is_removal(rc))
		complain("ibv_query_port", name, rc);
	for (int i = 0; !rc && i < port.gid_tbl_len && i < 4; i++)
		if (ibv_query_gid(ctx, 1, i, &gid) && !is_removal(errno))
			complain("ibv_query_gid", name, errno);
	if ((qp && ibv_destroy_qp(qp)) || (cq && ibv_destroy_cq(cq)) || (pd && ibv_dealloc_pd(pd)))
		complain("destroying", name, errno);
}

static void *work(void *arg)
{
	while (time(NULL) < until) {
		int n = 0;
		struct ibv_device **list = ibv_get_device_list(&n);

		if (!list) {
			complain("ibv_get_device_list", "the host", errno);
			break;
		}
		for (int i = 0; i < n; i++) {
			struct ibv_context *ctx = ibv_open_device(list[i]);

			if (ctx) {
				opened++;
				use_device(ctx, ibv_get_device_name(list[i]));
				if (ibv_close_device(ctx))
					complain("ibv_close_device", ibv_get_device_name(list[i]), errno);
			} else if (is_removal(errno)) {
				gone++;
			} else {
				complain("ibv_open_device", ibv_get_device_name(list[i]), errno);
			}
		}
		ibv_free_device_list(list);
		lists++;
	}
	return arg;
}

static int descriptors(bool name_them)
{
	DIR *dir = opendir("/proc/self/fd");
	struct dirent *e;
	int n = 0;

	while (dir && (e = readdir(dir))) {
		char to[128];
		ssize_t len = name_them ? readlinkat(dirfd(dir), e->d_name, to, sizeof(to)) : -1;

		n++;
		if (len > 0)
			printf("%s: %.*s\n", e->d_name, (int)len, to);
	}
	if (dir)
		closedir(dir);
	return n;
}

/* A context stays open, so that the library keeps what it has for the process. */
int main(int argc, char **argv)
{
	pthread_t t[THREADS];
	struct ibv_device **list = ibv_get_device_list(NULL);
	struct ibv_context *kept = list && list[0] ? ibv_open_device(list[0]) : NULL;

	if (argc != 2 || !kept)
		return 2;
	use_device(kept, "the first");
	int before = descriptors(false);
	until = time(NULL) + atoi(argv[1]);
	for (int i = 0; i < THREADS; i++)
		if (pthread_create(&t[i], NULL, work, NULL))
			return 2;
	for (int i = 0; i < THREADS; i++)
		pthread_join(t[i], NULL);
	int after = descriptors(false);

	/* the library's thread has some for a moment, while it looks at the interfaces */
	for (int i = 0; i < 50 && after > before; i++, after = descriptors(false))
		usleep(100000);
	if (after > before)
		descriptors(true);
	printf("%u lists, %u devices opened, %u were gone, %u wrong, %d descriptors, then %d\n", lists, opened, gone,
	       wrong, before, after);
	ibv_close_device(kept);
	ibv_free_device_list(list);
	return wrong || opened <= lists || after > before;
}
