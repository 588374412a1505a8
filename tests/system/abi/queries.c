// queries.c - a normally linked program calls all queries of a device
// follows: ibv_query_device_ex(3), ibv_query_port(3), ibv_query_gid_ex(3), ibv_reg_mr(3), ibv_rereg_mr(3)
// SPDX-License-Identifier: MIT
#include <infiniband/verbs.h>

#include "load.h"

/* These are in the library but not in its public header. */
int ibv_read_sysfs_file(const char *dir, const char *file, char *buf, size_t size);
const char *ibv_get_sysfs_path(void);
int ibv_query_gid_type(struct ibv_context *context, uint8_t port, unsigned index, int *type);

static int has_only(const void *data, unsigned char byte, size_t from, size_t to)
{
	for (size_t i = from; i < to; i++)
		if (((const unsigned char *)data)[i] != byte)
			return 0;
	return 1;
}

static void device_attributes_come_in_the_size_that_is_asked_for(struct ibv_context *context)
{
	struct verbs_context *vctx = verbs_get_ctx(context);
	struct ibv_query_device_ex_input input = {0};
	struct {
		struct ibv_device_attr_ex ex;
		unsigned char more[64];
	} a, b;
	size_t old = sizeof(struct ibv_device_attr), all = sizeof(a.ex);

	memset(&a, 0xa5, sizeof(a));
	memset(&b, 0xa5, sizeof(b));
	CHECK(!ibv_query_device(context, &a.ex.orig_attr));
	CHECK(a.ex.orig_attr.phys_port_cnt == 1 && a.ex.orig_attr.max_qp > 0);
	CHECK(has_only(&a, 0xa5, old, sizeof(a)));
	CHECK(!vctx->query_device_ex(context, &input, &b.ex, sizeof(b)));
	CHECK(!memcmp(&a, &b, old));
	CHECK(has_only(&b, 0, all, sizeof(b)));
	CHECK(b.ex.phys_port_cnt_ex == 1);

	memset(&b, 0xa5, sizeof(b));
	CHECK(vctx->query_device_ex(context, NULL, &b.ex, old - 1) == EINVAL);
	input.comp_mask = 1;
	CHECK(vctx->query_device_ex(context, &input, &b.ex, sizeof(b)) == EINVAL);
	CHECK(ibv_query_device_ex(context, &input, &b.ex) == EINVAL);
	CHECK(has_only(&b, 0xa5, 0, sizeof(b)));
}

static void port_attributes_come_in_the_size_that_is_asked_for(struct ibv_context *context)
{
	struct ibv_port_attr all, cut;

	CHECK(!ibv_query_port(context, 1, &all));
	CHECK(all.link_layer == IBV_LINK_LAYER_ETHERNET && all.gid_tbl_len > 0 && all.pkey_tbl_len == 1);
	memset(&cut, 0xa5, sizeof(cut));
	CHECK(!verbs_get_ctx(context)->query_port(context, 1, &cut, 48));
	CHECK(!memcmp(&all, &cut, 48) && has_only(&cut, 0xa5, 48, sizeof(cut)));
	CHECK(ibv_query_port(context, 0, &all) && ibv_query_port(context, 2, &all));
}

static void gids_are_the_same_in_each_of_their_calls(struct ibv_context *context)
{
	struct ibv_gid_entry table[256], entry;
	union ibv_gid gid;
	struct ibv_port_attr port;
	int type = -1;
	ssize_t n = ibv_query_gid_table(context, table, 256, 0);

	CHECK(n > 0 && !ibv_query_port(context, 1, &port));
	for (ssize_t i = 0; i < n; i++) {
		CHECK(!ibv_query_gid(context, 1, (int)table[i].gid_index, &gid));
		CHECK(!memcmp(&gid, &table[i].gid, sizeof(gid)));
		CHECK(!ibv_query_gid_ex(context, 1, table[i].gid_index, &entry, 0));
		CHECK(!memcmp(&entry, &table[i], sizeof(entry)));
		CHECK(entry.gid_type == IBV_GID_TYPE_ROCE_V2 && entry.port_num == 1 && entry.ndev_ifindex);
		CHECK(!ibv_query_gid_type(context, 1, table[i].gid_index, &type) && type == 1);
	}
	/* A table that is too short is an error, and is not filled in part. */
	CHECK(ibv_query_gid_table(context, table, (size_t)n - 1, 0) == -EINVAL);
	CHECK(ibv_query_gid_table(context, table, 256, 1) == -EINVAL);
	CHECK(_ibv_query_gid_table(context, table, 256, 0, 0) == -EINVAL);
	/* Entries of another size are that far apart. */
	unsigned char wide[8 * 40];
	if (n <= 8) {
		memset(wide, 0xa5, sizeof(wide));
		CHECK(_ibv_query_gid_table(context, (struct ibv_gid_entry *)wide, 8, 0, 40) == n);
		CHECK(!memcmp(wide + 40 * (n - 1), &table[n - 1], 32));
		CHECK(has_only(wide + 40 * (n - 1), 0, 32, 40) && has_only(wide, 0xa5, 40 * (size_t)n, sizeof(wide)));
	}
	CHECK(ibv_query_gid_ex(context, 1, 0, &entry, 1) == EINVAL);
	CHECK(_ibv_query_gid_ex(context, 1, 0, &entry, 0, 31) == EINVAL);
	CHECK(ibv_query_gid_ex(context, 2, 0, &entry, 0) == EINVAL);

	/* An empty entry is a zero GID in the old call, and ENODATA in the new one. */
	int empty = port.gid_tbl_len - 1;
	CHECK(!ibv_query_gid(context, 1, empty, &gid) && has_only(&gid, 0, 0, sizeof(gid)));
	CHECK(ibv_query_gid_ex(context, 1, (uint32_t)empty, &entry, 0) == ENODATA);
	CHECK(!ibv_query_gid_type(context, 1, (unsigned)empty, &type) && type == 0);
	CHECK(ibv_query_gid(context, 1, port.gid_tbl_len, &gid) == -1);
	CHECK(ibv_query_gid(context, 1, -1, &gid) == -1);
	CHECK(ibv_query_gid_type(context, 1, (unsigned)port.gid_tbl_len, &type) == -1);
}

static void the_partition_key_is_found(struct ibv_context *context)
{
	__be16 pkey = 0;

	CHECK(!ibv_query_pkey(context, 1, 0, &pkey) && pkey == htobe16(0xffff));
	CHECK(ibv_query_pkey(context, 1, 1, &pkey) == -1);
	CHECK(ibv_get_pkey_index(context, 1, htobe16(0xffff)) == 0);
	CHECK(ibv_get_pkey_index(context, 1, htobe16(0x1234)) == -1);
}

static void attribute_files_need_no_file(struct ibv_device *device)
{
	char text[64], path[300], small[3];

	CHECK(ibv_read_sysfs_file(device->ibdev_path, "ports/1/gid_attrs/types/0", text, sizeof(text)) == 7);
	CHECK(!strcmp(text, "RoCE v2"));
	snprintf(path, sizeof(path), "%s/class/infiniband/%s", ibv_get_sysfs_path(), device->name);
	CHECK(ibv_read_sysfs_file(path, "node_type", text, sizeof(text)) > 0 && !strcmp(text, "1: CA"));
	CHECK(ibv_read_sysfs_file(path, "node_type", small, sizeof(small)) == -1);
	CHECK(ibv_read_sysfs_file(path, "no_such_attribute", text, sizeof(text)) == -1);

	/* Other files are read from the disk. */
	char name[] = "/tmp/queries.XXXXXX";
	int fd = mkstemp(name);
	FILE *f = fdopen(fd, "w");
	fputs("abc\n", f);
	fclose(f);
	CHECK(ibv_read_sysfs_file("/tmp", name + 5, text, sizeof(text)) == 3 && !strcmp(text, "abc"));
	remove(name);
}

static void names_are_known(struct ibv_device *device)
{
	CHECK(!strcmp(ibv_get_device_name(device), device->name));
	CHECK(ibv_get_device_guid(device));
}

/* Netlink, the device file and the call report the same index. Two adapters of one interface have two indices. */
static void a_device_has_one_number(struct ibv_device *device)
{
	int number = -1;

	CHECK(sscanf(device->dev_name, "uverbs%d", &number) == 1 && number >= 0);
	CHECK(ibv_get_device_index(device) == number);
}

static void memory_is_registered_in_every_way(struct ibv_context *context)
{
	static char buf[3 * 4096];
	struct ibv_pd *pd = ibv_alloc_pd(context), *other = ibv_alloc_pd(context);
	volatile int access = IBV_ACCESS_LOCAL_WRITE | IBV_ACCESS_RELAXED_ORDERING;
	struct ibv_mr *mr;

	CHECK(pd && other && pd->context == context);
	mr = ibv_reg_mr(pd, buf, sizeof(buf), IBV_ACCESS_LOCAL_WRITE);
	CHECK(mr && mr->context == context && mr->pd == pd && mr->addr == buf && mr->length == sizeof(buf));
	CHECK(!ibv_dereg_mr(mr));
	mr = ibv_reg_mr(pd, buf, sizeof(buf), access);
	CHECK(mr && !ibv_dereg_mr(mr));
	mr = ibv_reg_mr_iova(pd, buf, sizeof(buf), 0x1000, IBV_ACCESS_LOCAL_WRITE);
	CHECK(mr && mr->addr == buf && !ibv_dereg_mr(mr));
	CHECK(!ibv_reg_mr(pd, buf, sizeof(buf), 1 << 19) && errno == EINVAL);
	CHECK(!ibv_reg_mr(pd, buf, sizeof(buf), IBV_ACCESS_REMOTE_WRITE) && errno == EINVAL);
	CHECK(!ibv_reg_dmabuf_mr(pd, 0, 4096, 0, -1, 0) && errno == EBADF);
	CHECK(!ibv_import_pd(context, 0) && errno == ENOENT);
	CHECK(!ibv_import_pd(context, 54321) && errno == ENOENT);
	CHECK(!ibv_import_mr(pd, 54321) && errno == ENOENT);

	mr = ibv_reg_mr(pd, buf, 4096, IBV_ACCESS_LOCAL_WRITE);
	CHECK(mr);
	CHECK(ibv_rereg_mr(mr, 1 << 10, NULL, NULL, 0, 0) == IBV_REREG_MR_ERR_INPUT && errno == EINVAL);
	CHECK(ibv_rereg_mr(mr, IBV_REREG_MR_CHANGE_TRANSLATION, NULL, NULL, 0, 0) == IBV_REREG_MR_ERR_INPUT);
	CHECK(ibv_rereg_mr(mr, IBV_REREG_MR_CHANGE_PD, NULL, NULL, 0, 0) == IBV_REREG_MR_ERR_INPUT);
	CHECK(ibv_rereg_mr(mr, 0, NULL, NULL, 0, IBV_ACCESS_LOCAL_WRITE) == IBV_REREG_MR_ERR_INPUT);
	CHECK(!ibv_rereg_mr(mr, IBV_REREG_MR_CHANGE_TRANSLATION, NULL, buf, sizeof(buf), 0));
	CHECK(mr->addr == buf && mr->length == sizeof(buf) && mr->pd == pd);
	CHECK(!ibv_rereg_mr(mr, IBV_REREG_MR_CHANGE_PD | IBV_REREG_MR_CHANGE_ACCESS, other, NULL, 0,
	                    IBV_ACCESS_REMOTE_READ));
	CHECK(mr->pd == other);
	CHECK(!ibv_dealloc_pd(pd));
	CHECK(ibv_dealloc_pd(other) == EBUSY);
	CHECK(!ibv_dereg_mr(mr));
	CHECK(!ibv_dealloc_pd(other));
}

static void a_local_address_has_the_mac_of_its_interface(struct ibv_context *context)
{
	struct ibv_ah_attr attr = {.port_num = 1, .is_global = 1};
	uint8_t mac[6], multicast[6] = {0x01, 0x00, 0x5e, 0x01, 0x02, 0x03};
	uint16_t vid = 0;
	union ibv_gid gid;

	CHECK(!ibv_query_gid(context, 1, 0, &gid));
	attr.grh.dgid = gid;
	memset(mac, 0xa5, sizeof(mac));
	CHECK(!ibv_resolve_eth_l2_from_gid(context, &attr, mac, &vid));
	/* The default GID is derived from the MAC (RFC 4291, appendix A). */
	CHECK(mac[0] == (gid.raw[8] ^ 2) && mac[2] == gid.raw[10] && mac[5] == gid.raw[15]);

	attr.grh.dgid = (union ibv_gid){.raw = {[10] = 0xff, [11] = 0xff, [12] = 224, [13] = 129, [14] = 2, [15] = 3}};
	CHECK(!ibv_resolve_eth_l2_from_gid(context, &attr, mac, NULL) && !memcmp(mac, multicast, 6));
	attr.grh.sgid_index = 255;
	CHECK(ibv_resolve_eth_l2_from_gid(context, &attr, mac, NULL) < 0);
}

/* By their man pages these return an errno value. Programs that call perror() get the same. */
static void a_failure_stands_in_errno_too(struct ibv_context *context)
{
	struct ibv_pd *pd = ibv_alloc_pd(context);
	struct ibv_cq *cq = ibv_create_cq(context, 10, NULL, NULL, 0);
	struct ibv_qp_init_attr init = {.send_cq = cq, .recv_cq = cq, .cap = {1, 1, 1, 1, 0}, .qp_type = IBV_QPT_RC};
	struct ibv_qp *qp = ibv_create_qp(pd, &init);
	struct ibv_qp_attr attr = {.qp_state = IBV_QPS_RTS};
	struct ibv_port_attr port;
	struct ibv_gid_entry entry;
	union ibv_gid gid = {0};

	CHECK(pd && cq && qp);
#define SAYS(err, call) CHECK((errno = 0, (call) == (err)) && errno == (err))
	SAYS(EBUSY, ibv_dealloc_pd(pd));
	SAYS(EBUSY, ibv_destroy_cq(cq));
	SAYS(EINVAL, ibv_query_port(context, 2, &port)); /* inline in the program, like the next one */
	SAYS(EINVAL, ibv_query_gid_ex(context, 2, 0, &entry, 0));
	SAYS(EINVAL, ibv_resize_cq(cq, 0));
	SAYS(EINVAL, ibv_modify_qp(qp, &attr, IBV_QP_STATE));
	SAYS(EINVAL, ibv_attach_mcast(qp, &gid, 0));
	SAYS(EINVAL, ibv_detach_mcast(qp, &gid, 0));
	attr = (struct ibv_qp_attr){.qp_state = IBV_QPS_INIT, .port_num = 1};
	CHECK(!ibv_modify_qp(qp, &attr, IBV_QP_STATE | IBV_QP_PKEY_INDEX | IBV_QP_PORT | IBV_QP_ACCESS_FLAGS));
	attr.qp_state = IBV_QPS_ERR;
	CHECK(!ibv_modify_qp(qp, &attr, IBV_QP_STATE));
	attr.qp_state = IBV_QPS_RTR; /* ERR has only one valid transition */
	SAYS(EINVAL, ibv_modify_qp(qp, &attr, IBV_QP_STATE));
	attr.qp_state = IBV_QPS_RESET;
	CHECK(!ibv_modify_qp(qp, &attr, IBV_QP_STATE));
	CHECK(!ibv_destroy_qp(qp) && !ibv_destroy_cq(cq) && !ibv_dealloc_pd(pd));
#undef SAYS
}

int main(void)
{
	int n;
	struct ibv_device **devices = ibv_get_device_list(&n);

	CHECK(devices);
	if (!n)
		SKIP("no device");
	struct ibv_context *context = ibv_open_device(devices[0]);
	CHECK(context && context->device == devices[0]);
	names_are_known(devices[0]);
	for (int i = 0; i < n; i++)
		a_device_has_one_number(devices[i]);
	device_attributes_come_in_the_size_that_is_asked_for(context);
	port_attributes_come_in_the_size_that_is_asked_for(context);
	gids_are_the_same_in_each_of_their_calls(context);
	the_partition_key_is_found(context);
	attribute_files_need_no_file(devices[0]);
	memory_is_registered_in_every_way(context);
	a_local_address_has_the_mac_of_its_interface(context);
	a_failure_stands_in_errno_too(context);
	CHECK(!ibv_close_device(context));
	ibv_free_device_list(devices);
	return 0;
}
