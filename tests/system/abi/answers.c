// answers.c - prints a library's results for all rates, texts and fork calls, to be compared with Debian's library
// follows: ibv_rate_to_mult(3), ibv_event_type_str(3)
// SPDX-License-Identifier: MIT
#include <infiniband/sa.h>
#include <infiniband/verbs.h>
#include <rdma/ib_user_sa.h>
#include <rdma/ib_user_verbs.h>
#include <unistd.h>

#include "load.h"

static void *lib;

static void print_numbers(const char *name, const char *version, int from, int to)
{
	int (*f)(int) = version_of(lib, name, version);

	for (int i = from; i <= to; i++)
		printf("%s(%d) = %d\n", name, i, f(i));
}

static void print_texts(const char *name, int to)
{
	const char *(*f)(int) = version_of(lib, name, "IBVERBS_1.1");

	for (int i = -2; i <= to; i++)
		printf("%s(%d) = %s\n", name, i, f(i));
	printf("%s(1000) = %s\n", name, f(1000));
}

static void print_bytes(const char *what, const void *data, size_t len)
{
	printf("%s =", what);
	for (size_t i = 0; i < len; i++)
		printf(" %02x", ((const unsigned char *)data)[i]);
	printf("\n");
}

/* Every byte of the source differs, so that a field in the wrong place is noticed, and an unchanged field too. */
#define PRINT_COPY(name, version, from, to)                                      \
	do {                                                                     \
		void (*f)(to *, from *) = version_of(lib, name, version);        \
		from src;                                                        \
		to dst;                                                          \
		for (size_t i = 0; i < sizeof(src); i++)                         \
			((unsigned char *)&src)[i] = (unsigned char)(i * 7 + 1); \
		memset(&dst, 0x5a, sizeof(dst));                                 \
		f(&dst, &src);                                                   \
		print_bytes(name, &dst, sizeof(dst));                            \
	} while (0)

int main(int argc, char **argv)
{
	lib = dlopen(argv[1], RTLD_NOW | RTLD_LOCAL);
	if (!lib)
		fprintf(stderr, "%s\n", dlerror());
	CHECK(lib);
	print_numbers("ibv_rate_to_mult", "IBVERBS_1.0", -3, 300);
	print_numbers("mult_to_ibv_rate", "IBVERBS_1.0", -3, 600);
	print_numbers("ibv_rate_to_mbps", "IBVERBS_1.1", -3, 300);
	int (*to_mbps)(int) = version_of(lib, "ibv_rate_to_mbps", "IBVERBS_1.1");
	for (int rate = 0; rate < 40; rate++)
		print_numbers("mbps_to_ibv_rate", "IBVERBS_1.1", to_mbps(rate) - 1, to_mbps(rate) + 1);

	/* Limited to the values of 44.0; we support more. */
	print_texts("ibv_node_type_str", 20);
	print_texts("ibv_port_state_str", 20);
	print_texts("ibv_event_type_str", IBV_EVENT_WQ_FATAL);
	print_texts("ibv_wc_status_str", 40);

	PRINT_COPY("ibv_copy_ah_attr_from_kern", "IBVERBS_1.1", struct ib_uverbs_ah_attr, struct ibv_ah_attr);
	PRINT_COPY("ibv_copy_qp_attr_from_kern", "IBVERBS_1.0", struct ib_uverbs_qp_attr, struct ibv_qp_attr);
	PRINT_COPY("ibv_copy_path_rec_from_kern", "IBVERBS_1.0", struct ib_user_path_rec, struct ibv_sa_path_rec);
	PRINT_COPY("ibv_copy_path_rec_to_kern", "IBVERBS_1.0", struct ibv_sa_path_rec, struct ib_user_path_rec);

	const char *(*sysfs)(void) = version_of(lib, "ibv_get_sysfs_path", "IBVERBS_1.0");
	printf("ibv_get_sysfs_path() = %s\n", sysfs());
	int (*read_file)(const char *, const char *, char *, size_t) =
	        version_of(lib, "ibv_read_sysfs_file", "IBVERBS_1.0");
	const char *content[] = {"", "\n", "a", "a\n", "1234567\n", "12345678", "12345678\n", "1\n2\n"};
	for (unsigned i = 0; i < sizeof(content) / sizeof(*content); i++) {
		char path[] = "/tmp/answers.XXXXXX", buf[8] = "unset";
		int fd = mkstemp(path);

		CHECK(fd >= 0 && write(fd, content[i], strlen(content[i])) == (ssize_t)strlen(content[i]));
		close(fd);
		int len = read_file("/tmp", path + 5, buf, sizeof(buf));
		printf("ibv_read_sysfs_file(%u) = %d %.8s\n", i, len, len > 0 ? buf : "");
		unlink(path);
	}
	printf("ibv_read_sysfs_file(none) = %d\n", read_file("/nonexistent", "x", (char[8]){0}, 8));

	void *cm = argc > 2 ? dlopen(argv[2], RTLD_NOW | RTLD_LOCAL) : NULL;
	if (cm) {
		const char *(*text)(int) = version_of(cm, "rdma_event_str", "RDMACM_1.0");
		for (int i = 0; i < 16; i++)
			printf("rdma_event_str(%d) = %s\n", i, text(i));
		printf("rdma_event_str(1000) = %s\n", text(1000));
	}
	return 0;
}
