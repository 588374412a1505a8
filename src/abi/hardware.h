// hardware.h - the system's own libibverbs and its drivers, loaded where the kernel has RDMA devices
// see: ARCHITECTURE.md, "Hardware"
// SPDX-License-Identifier: MIT
#ifndef VB_ABI_HARDWARE_H
#define VB_ABI_HARDWARE_H

#include <infiniband/verbs.h>
#include <stdbool.h>
#include <stddef.h>

/* Exported for our librdmacm. */
#define VB_HARDWARE_EXPORT __attribute__((visibility("default")))

/* Loads the system's libibverbs if the kernel has an RDMA device and VERBENA_HARDWARE is not off. Returns whether it is
 * loaded, now or from before. Without devices it costs two system calls that fail. */
VB_HARDWARE_EXPORT bool vb_hardware_load(void);

/* Opens a library of the system, not one of Verbena's. NULL: there is none, or it cannot be loaded. `bare` is its name
 * ("librdmacm.so.1"); `own` a symbol that Verbena's library of this name has and the system's has not. */
VB_HARDWARE_EXPORT void *vb_hardware_open(const char *bare, const char *own);

/* The devices of the kernel, an array that ends with NULL, or NULL. The caller gives it back with
 * vb_real.free_device_list. */
struct ibv_device **vb_hardware_list(int *n);

/* True if a device of the kernel is on this interface. */
VB_HARDWARE_EXPORT bool vb_hardware_covers(int ifindex);

/* True if a device of the kernel is on the interface of this device of ours. */
VB_HARDWARE_EXPORT bool vb_hardware_covers_device(struct ibv_device *device);

/* True for a device of the kernel. */
VB_HARDWARE_EXPORT bool vb_hardware_is(const struct ibv_device *device);

/* The system's librdmacm was loaded: `inside` is the address of a function of it. */
VB_HARDWARE_EXPORT void vb_hardware_cm_is(const void *inside);
VB_HARDWARE_EXPORT bool vb_hardware_is_cm(const void *caller);

/* Does a library of the system call (ibv_import_device lists devices)? It gets the devices of the kernel only. */
bool vb_hardware_calls(const void *caller);

/* Under `verbena run`: from true to false this thread sees the kernel's own files, not the tree that stands for them. */
VB_HARDWARE_EXPORT void vb_hardware_aside(bool on);

/* private.c: the calls that drivers make. They go to the library with this handle. */
void vb_private_forward(void *handle);

#endif
