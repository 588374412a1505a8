// lane.h - lanes: the part of a QP number that names a process of the host
// see: docs/glossary.md
// SPDX-License-Identifier: MIT
#ifndef VB_UTIL_LANE_H
#define VB_UTIL_LANE_H

/* A QP number is a lane (top 10 bits) and an index (14 bits). A process has one lane; lane 0 is the broker's own: queue
 * pair 1 is there. */
#define VB_LANE_COUNT 1024u
#define VB_LANE_SHIFT 14

#endif
