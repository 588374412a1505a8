// srp_line.h - a line that names a SRP target for an initiator to log in to
// follows: Linux Documentation/ABI/stable/sysfs-driver-ib_srp, add_target
// SPDX-License-Identifier: MIT
#ifndef VD_SRP_LINE_H
#define VD_SRP_LINE_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

/* Numbers that the line does not name are 0, except tl_retry_count (7) and cmd_sg_entries (12). */
struct vd_srp_line {
	uint64_t id_ext, ioc_guid, initiator_ext;
	bool by_ip;
	char host[48], service[8]; /* by IP */
	uint64_t service_id;       /* by GID */
	uint16_t pkey;
	uint8_t dgid[16];
	int max_sect, queue_size, ch_count, tl_retry_count, cmd_sg_entries, comp_vector, allow_ext_sg;
};

/* 0, or the errno that ib_srp gives (EINVAL, ERANGE), and why: a sentence of up to size bytes. */
int vd_srp_line_parse(const char *text, struct vd_srp_line *out, char *why, size_t size);

/* Do both name the same target port, for the same initiator? A login to the second is then refused. */
bool vd_srp_line_same(const struct vd_srp_line *a, const struct vd_srp_line *b);

/* The address of its logical unit, or of the target if lun is negative. size: 200 bytes are enough. */
void vd_srp_line_url(const struct vd_srp_line *l, int lun, char *url, size_t size);

#endif
