// device_choice.h - VERBENA_DEVICES: which interfaces become adapters
// follows: verbena(7)
// SPDX-License-Identifier: MIT
#ifndef VB_NODE_DEVICE_CHOICE_H
#define VB_NODE_DEVICE_CHOICE_H

#include <stdbool.h>
#include <stddef.h>

enum vb_device_kind { VB_DEVICE_ROCE, VB_DEVICE_IWARP };

/* Is an adapter of this kind requested on this interface? spec is the value of VERBENA_DEVICES: a list of "eth0",
 * "roce:eth0" or "iwarp:eth0", separated by commas, with * and ? as in file names. NULL or "": RoCE on all
 * interfaces. Other items are left out (vb_settings_check names them). */
bool vb_device_chosen(const char *spec, enum vb_device_kind kind, const char *ifname);

/* Writes "roce_" or "iwarp_" and the name of the interface to a buffer of IBV_SYSFS_NAME_MAX bytes, with _ for
 * characters that a device name cannot have. */
void vb_device_name(char *buf, size_t size, enum vb_device_kind kind, const char *ifname);

#endif
