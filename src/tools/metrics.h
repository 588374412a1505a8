// metrics.h - counters of running programs as text for Prometheus
// follows: OpenMetrics 1.0.0
// SPDX-License-Identifier: MIT
#ifndef VB_TOOLS_METRICS_H
#define VB_TOOLS_METRICS_H

#include "tools/stat_rows.h"
#include "util/text.h"

/* Asks the programs, and writes one sample for each counter, adapter and program. Returns 0 or an errno value. */
int metrics_write(struct vb_text *out, const char *name, const struct stat_query *query, bool *silent);

#endif
