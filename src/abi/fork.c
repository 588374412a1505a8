// fork.c - fork needs no preparation with our adapters, which pin nothing; devices of the kernel have their own
// follows: ibv_fork_init(3), ibv_is_fork_initialized(3)
// SPDX-License-Identifier: MIT
#include "abi/hardware.h"
#include "abi/real.h"

/* Loads the system's library here, if at all: it has to know before memory is registered. */
VB_EXPORT int ibv_fork_init(void)
{
	return vb_hardware_load() && vb_real.fork_init ? vb_real.fork_init() : 0;
}

VB_EXPORT enum ibv_fork_status ibv_is_fork_initialized(void)
{
	return vb_hardware_load() && vb_real.is_fork_initialized ? vb_real.is_fork_initialized() : IBV_FORK_UNNEEDED;
}

VB_EXPORT int ibv_dontfork_range(void *base, size_t size);
int ibv_dontfork_range(void *base, size_t size)
{
	return vb_real.dontfork_range ? vb_real.dontfork_range(base, size) : 0;
}

VB_EXPORT int ibv_dofork_range(void *base, size_t size);
int ibv_dofork_range(void *base, size_t size)
{
	return vb_real.dofork_range ? vb_real.dofork_range(base, size) : 0;
}
