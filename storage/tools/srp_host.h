// srp_host.h - shared by the files of verbena-srp-host: the logins, their disks, their files
// see: man/verbena-srp-host.8
// SPDX-License-Identifier: MIT
#ifndef VD_SRP_HOST_H
#define VD_SRP_HOST_H

#include <limits.h>
#include <sys/types.h>

#include "tools/srp_line.h"

#define SH_UNITS 64u
#define SH_DEVICE 64u
#define SH_WHY 160u
#define SH_ADD "add_target" /* the socket in the directory */
#define SH_HOSTS "scsi_host"

struct sh_unit {
	uint16_t lun;
	pid_t nbdkit; /* 0: it has ended */
	bool ready;
};

/* A login, as ib_srp's SCSI hosts are. */
struct sh_host {
	struct sh_host *next;
	unsigned number;
	struct vd_srp_line line;
	char device[SH_DEVICE]; /* that its add_target belongs to, and its port */
	unsigned port, count;
	struct sh_unit units[SH_UNITS];
};

/* What a login has found. */
struct sh_found {
	int error; /* errno, as ib_srp gives it */
	unsigned count;
	uint16_t luns[SH_UNITS];
	char why[SH_WHY];
};

/* srp_units.c */
/* A process that logs in, and then writes a struct sh_found to *pipe. 0 or errno. */
int sh_login(const struct vd_srp_line *l, pid_t *pid, int *pipe);
/* Starts nbdkit for a unit: sockets are in the directory of the host. 0 or errno. */
int sh_unit_start(const struct sh_host *h, struct sh_unit *u);
bool sh_unit_ready(const struct sh_host *h, struct sh_unit *u);

/* srp_files.c; the working directory is the service's */
int sh_directory_enter(const char *path, const char **why); /* makes it; 0 or errno */
int sh_host_make(const struct sh_host *h);                  /* its files; 0 or errno */
void sh_host_remove(const struct sh_host *h);
void sh_unit_remove(const struct sh_host *h, const struct sh_unit *u);
void sh_unit_path(const struct sh_host *h, const struct sh_unit *u, const char *end, char path[PATH_MAX]);

#endif
