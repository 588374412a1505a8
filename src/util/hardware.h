// hardware.h - VERBENA_HARDWARE: whether programs get the kernel's RDMA devices, Verbena's, or both
// follows: verbena(7), ENVIRONMENT
// SPDX-License-Identifier: MIT
#ifndef VB_UTIL_HARDWARE_H
#define VB_UTIL_HARDWARE_H

#include <string.h>

#include "util/env.h"

/* A value that is not allowed counts as the default; vb_settings_check names it. */
enum vb_hardware { VB_HARDWARE_FIRST, VB_HARDWARE_ONLY, VB_HARDWARE_OFF };

static inline enum vb_hardware vb_hardware_wanted(void)
{
	const char *text = vb_env("VERBENA_HARDWARE");

	if (text && !strcmp(text, "only"))
		return VB_HARDWARE_ONLY;
	return text && !strcmp(text, "off") ? VB_HARDWARE_OFF : VB_HARDWARE_FIRST;
}

#endif
