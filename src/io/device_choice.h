// device_choice.h - VERBENA_DEVICES: which interfaces become adapters
// follows: verbena(7)
// SPDX-License-Identifier: MIT
#ifndef VB_IO_DEVICE_CHOICE_H
#define VB_IO_DEVICE_CHOICE_H

#include <stdbool.h>
#include <stddef.h>

/* Is a RoCE adapter asked for on this interface? spec is the value of VERBENA_DEVICES, NULL or "" for all: a list of
 * "eth0" or "roce:eth0" with commas, * and ? as in file names. Items of other kinds are warned about once. */
bool vb_device_chosen(const char *spec, const char *ifname);

/* "roce_" and the name of the interface, with _ for what a device name cannot hold, to a buffer of IBV_SYSFS_NAME_MAX. */
void vb_device_name(char *buf, size_t size, const char *ifname);

#endif
