// umad.h - what the parts of the drop-in libibumad call in each other
// SPDX-License-Identifier: MIT
#ifndef VB_FABRIC_UMAD_UMAD_H
#define VB_FABRIC_UMAD_UMAD_H

#include "fabric/proto/proto.h"

/* struct umad_ca_pair of later headers. */
struct vb_umad_pair {
	char smi_name[20];
	uint32_t smi_port;
	char gsi_name[20];
	uint32_t gsi_port;
};

/* The calls that Debian 12's header does not have. */
int umad_open_smi_port(const char *ca_name, int portnum);
/* Newer headers of libibumad declare these with types of their own, so ours have other names in C. */
int vb_umad_get_smi_gsi_pairs(struct vb_umad_pair *pairs, size_t max) __asm__("umad_get_smi_gsi_pairs");
int vb_umad_get_smi_gsi_pair_by_ca_name(const char *devname, uint8_t portnum, struct vb_umad_pair *pair,
                                        unsigned enforce_smi) __asm__("umad_get_smi_gsi_pair_by_ca_name");

/* Returns the number of the port (0 asks for the best one), or a negative errno. */
__attribute__((visibility("hidden"))) int umad_find_port(const char *ca_name, int portnum, struct vb_fabric_ca *ca);
__attribute__((visibility("hidden"), format(printf, 1, 2))) void umad_complain(const char *fmt, ...);

#endif
