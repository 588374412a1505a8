// capture.h - who captures this program's frames, and since when
// see: docs/capture.md
// SPDX-License-Identifier: MIT
#ifndef VB_NODE_CAPTURE_H
#define VB_NODE_CAPTURE_H

struct vb_node;

/* Adds the verb "capture", and connects to the collector of VERBENA_CAPTURE, if that is set. Before the progress thread
 * runs. */
void vb_node_capture_start(struct vb_node *node);
/* After the progress thread has ended. */
void vb_node_capture_stop(struct vb_node *node);
/* In a child of fork(), whose parent may be captured. */
void vb_node_capture_in_child(void);

#endif
