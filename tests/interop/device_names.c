// device_names.c - prints the names of the RDMA devices, once for each line that it reads
// follows: ibv_get_device_list(3)
// SPDX-License-Identifier: MIT
#include <infiniband/verbs.h>
#include <stdio.h>

int main(void)
{
	char line[64];

	while (fgets(line, sizeof(line), stdin)) {
		int n = 0;
		struct ibv_device **list = ibv_get_device_list(&n);

		if (!list)
			return 1;
		for (int i = 0; i < n; i++)
			printf("%s%s", i ? " " : "", ibv_get_device_name(list[i]));
		putchar('\n');
		fflush(stdout);
		ibv_free_device_list(list);
	}
	return 0;
}
