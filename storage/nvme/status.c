// status.c - texts of status codes
// follows: NVM Express Base 1.4, 4.6.1
// SPDX-License-Identifier: MIT
#include "nvme/status.h"

const char *nv_status_text(uint16_t status)
{
	switch (status & NV_STATUS_MASK) {
#define NV_STATUS_CASE(name, value, text) \
	case value:                       \
		return text;
		NV_STATUSES(NV_STATUS_CASE)
#undef NV_STATUS_CASE
	default:
		return "unknown status";
	}
}
