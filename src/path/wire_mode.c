// wire_mode.c - VERBENA_WIRE: when queue pairs use the network
// see: docs/roce.md
// SPDX-License-Identifier: MIT
#include "path/wire_mode.h"

#include <stdatomic.h>
#include <string.h>

#include "util/env.h"

enum vb_wire_mode vb_wire_mode(void)
{
	static atomic_int known; /* 1 + mode */
	int mode = atomic_load(&known) - 1;

	if (mode >= 0)
		return (enum vb_wire_mode)mode;
	const char *text = vb_env("VERBENA_WIRE");

	mode = VB_WIRE_MODE_AUTO;
	if (text && !strcmp(text, "always"))
		mode = VB_WIRE_MODE_ALWAYS;
	else if (text && !strcmp(text, "never"))
		mode = VB_WIRE_MODE_NEVER;
	atomic_store(&known, 1 + mode);
	return (enum vb_wire_mode)mode;
}
