// text.h - rules as text and as JSON, for `verbena fault list`
// see: man/verbena-fault.1
// SPDX-License-Identifier: MIT
#ifndef VB_FAULT_TEXT_H
#define VB_FAULT_TEXT_H

#include <stdio.h>

#include "fault/rule.h"

/* An object, without a comma or a newline behind it. */
void vb_fault_print_json(FILE *f, const struct vb_fault_rule *r);

#endif
