// open_device.c - opens the first device and prints the path of its attributes
// follows: ibv_open_device(3)
// SPDX-License-Identifier: MIT
#include <infiniband/verbs.h>
#include <stdio.h>

int main(void)
{
	struct ibv_device **list = ibv_get_device_list(NULL);

	if (!list || !list[0])
		return 2;
	printf("path %s\n", list[0]->ibdev_path);
	struct ibv_context *context = ibv_open_device(list[0]);
	puts(context ? "opened" : "refused");
	if (context)
		ibv_close_device(context);
	ibv_free_device_list(list);
	return !context;
}
