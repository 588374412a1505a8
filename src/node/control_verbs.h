// control_verbs.h - the verbs of the control socket: the table, and those of node/
// follows: docs/control.md
// SPDX-License-Identifier: MIT
#ifndef VB_NODE_CONTROL_VERBS_H
#define VB_NODE_CONTROL_VERBS_H

#include "node/control.h"

/* Serves the request in call->args, which is its whole line. Afterwards call->out is the answer. */
void vb_control_serve(struct vb_control_call *call);

int vb_control_about(struct vb_control_call *call);

#endif
