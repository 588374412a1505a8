// ipsec.h - whether this network namespace uses IPsec
// follows: ip-xfrm(8); linux/xfrm.h
// SPDX-License-Identifier: MIT
#ifndef VB_NET_IPSEC_H
#define VB_NET_IPSEC_H

#include <stdbool.h>

/* Returns true only if the kernel says that there are neither associations nor policies, which needs CAP_NET_ADMIN, or has
 * no IPsec at all. Asks the kernel each time. */
bool vb_ipsec_is_unused(void);

#endif
