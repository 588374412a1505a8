// fork.c - fork needs no preparation: nothing is pinned, so a child's copy-on-write takes no page away from an adapter
// follows: ibv_fork_init(3), ibv_is_fork_initialized(3)
// SPDX-License-Identifier: MIT
#include "abi/dispatch.h"

VB_EXPORT int ibv_fork_init(void)
{
	return 0;
}

VB_EXPORT enum ibv_fork_status ibv_is_fork_initialized(void)
{
	return IBV_FORK_UNNEEDED;
}

VB_EXPORT int ibv_dontfork_range(void *base, size_t size);
int ibv_dontfork_range(void *base, size_t size)
{
	return 0;
}

VB_EXPORT int ibv_dofork_range(void *base, size_t size);
int ibv_dofork_range(void *base, size_t size)
{
	return 0;
}
