// units.h - times as nanoseconds
// SPDX-License-Identifier: MIT
#ifndef VB_UTIL_UNITS_H
#define VB_UTIL_UNITS_H

#include <stdint.h>

#define VB_US(n) ((n)*UINT64_C(1000))
#define VB_MS(n) ((n)*UINT64_C(1000000))
#define VB_S(n) ((n)*UINT64_C(1000000000))

#endif
