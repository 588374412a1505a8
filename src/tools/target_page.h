// target_page.h - what a running verbena-target counts, for verbena exporter
// SPDX-License-Identifier: MIT
#ifndef VB_TOOLS_TARGET_PAGE_H
#define VB_TOOLS_TARGET_PAGE_H

#include "util/text.h"

/* Asks the target of this user (or of root) at a port, for two seconds at most, and puts its metrics into body. Returns
 * the status of HTTP: 200, 404 if there is no such target, 500 if it does not answer. */
int target_page(const char *port, struct vb_text *body);

#endif
