// stat.h - the verbs of the control socket that show what a program has: devices, queue pairs, CQs, regions
// follows: docs/control.md
// SPDX-License-Identifier: MIT
#ifndef VB_NODE_STAT_H
#define VB_NODE_STAT_H

#include <stdbool.h>

struct vb_control_call;
struct vb_counts;
struct vb_node;
struct vb_text;

/* Makes the verbs known: devices, qps, cqs, mrs, pds. */
void vb_stat_start(void);

/* Appends counters as JSON. */
void vb_stat_put_counts(struct vb_text *out, const struct vb_counts *bytes);

/* stat_devices.c: the verb "devices". vb_stat_devices_start: the program, which has no node yet, has counted nothing. */
void vb_stat_devices_start(void);
int vb_stat_devices(struct vb_control_call *call);

/*
 * The program ends, or closes its last device: keeps what it has counted (util/tally.h), for its control socket. From now
 * on the verb "devices" fails. False if another thread keeps an answer, and does not finish: the socket's name must then
 * stay, so that whoever finds it adds that answer. May be called in a signal handler.
 */
bool vb_stat_end(struct vb_node *node, int dir_fd, const char *name);

#endif
