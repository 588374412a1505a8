// reg_mr.c - the time of ibv_reg_mr for 4 KiB and for a large region, in ns: "small large"
// follows: ibv_reg_mr(3)
// SPDX-License-Identifier: MIT
#include <string.h>
#include <sys/mman.h>

#include "connect.h"

enum { ROUNDS = 501 };

static uint64_t register_once(struct adapter *a, void *p, size_t n)
{
	uint64_t start = now_ns();
	struct ibv_mr *mr =
	        ibv_reg_mr(a->pd, p, n, IBV_ACCESS_LOCAL_WRITE | IBV_ACCESS_REMOTE_WRITE | IBV_ACCESS_REMOTE_READ);
	uint64_t took = now_ns() - start;

	if (!mr)
		fail("ibv_reg_mr");
	if (ibv_dereg_mr(mr))
		fail("ibv_dereg_mr");
	return took;
}

int main(int argc, char **argv)
{
	size_t large = argc > 1 ? strtoul(argv[1], NULL, 0) : 1ul << 30;
	static uint64_t small_took[ROUNDS], large_took[ROUNDS];
	struct adapter a;
	char *p = mmap(NULL, large, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);

	if (p == MAP_FAILED)
		fail("mmap");
	if (argc > 2 && !strcmp(argv[2], "touched"))
		memset(p, 1, large);
	take_core(0);
	adapter_open(&a);
	for (int i = 0; i < ROUNDS; i++) {
		small_took[i] = register_once(&a, p, 4096);
		large_took[i] = register_once(&a, p, large);
	}
	printf("%llu %llu\n", (unsigned long long)median_u64(small_took, ROUNDS),
	       (unsigned long long)median_u64(large_took, ROUNDS));
	return 0;
}
