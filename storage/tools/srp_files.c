// srp_files.c - the directory of verbena-srp-host: what ib_srp has in /sys/class/scsi_host, and the sockets of the disks
// follows: Linux Documentation/ABI/stable/sysfs-driver-ib_srp
// SPDX-License-Identifier: MIT
#include <arpa/inet.h>
#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <stdarg.h>
#include <stdio.h>
#include <string.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <unistd.h>

#include "tools/srp_host.h"

#define PATH_BYTES_MAX 70 /* so that a socket's path fits into an address */

static void host_path(const struct sh_host *h, const char *name, char path[PATH_MAX])
{
	snprintf(path, PATH_MAX, SH_HOSTS "/host%u/%s", h->number, name);
}

void sh_unit_path(const struct sh_host *h, const struct sh_unit *u, const char *end, char path[PATH_MAX])
{
	char name[32];

	snprintf(name, sizeof(name), "lun%u%s", u->lun, end);
	host_path(h, name, path);
}

void sh_unit_remove(const struct sh_host *h, const struct sh_unit *u)
{
	char path[PATH_MAX];

	sh_unit_path(h, u, "", path);
	unlink(path);
	sh_unit_path(h, u, ".pid", path);
	unlink(path);
}

static void empty_directory(const char *path)
{
	DIR *dir = opendir(path);

	if (!dir)
		return;
	for (struct dirent *e; (e = readdir(dir));)
		if (e->d_name[0] != '.')
			unlinkat(dirfd(dir), e->d_name, 0);
	closedir(dir);
}

void sh_host_remove(const struct sh_host *h)
{
	char path[PATH_MAX];

	host_path(h, "", path);
	empty_directory(path);
	rmdir(path);
}

/* Logins of a service that was killed. */
static void remove_old(void)
{
	struct sh_host h = {0};
	DIR *dir = opendir(SH_HOSTS);

	if (!dir)
		return;
	for (struct dirent *e; (e = readdir(dir));)
		if (sscanf(e->d_name, "host%u", &h.number) == 1)
			sh_host_remove(&h);
	closedir(dir);
}

int sh_directory_enter(const char *path, const char **why)
{
	struct stat st;
	int lock;

	*why = "the directory";
	if (mkdir(path, 0700) && errno != EEXIST)
		return errno;
	if (chdir(path) || stat(".", &st))
		return errno;
	*why = "the directory is not yours alone";
	if (st.st_uid != geteuid() || (st.st_mode & 022))
		return EPERM;
	char real[PATH_MAX];

	*why = "its path is too long for sockets";
	if (!getcwd(real, sizeof(real)) || strlen(real) > PATH_BYTES_MAX)
		return ENAMETOOLONG;
	*why = "another verbena-srp-host runs there";
	lock = open("lock", O_RDWR | O_CREAT | O_CLOEXEC | O_NOFOLLOW, 0600);
	if (lock < 0 || flock(lock, LOCK_EX | LOCK_NB))
		return errno;
	*why = "making files";
	remove_old();
	return mkdir(SH_HOSTS, 0700) && errno != EEXIST ? errno : 0;
}

static void __attribute__((format(printf, 4, 5)))
write_attribute(const struct sh_host *h, int *error, const char *name, const char *format, ...)
{
	char path[PATH_MAX];
	va_list ap;

	host_path(h, name, path);
	FILE *f = *error ? NULL : fopen(path, "we");

	if (!f) {
		*error = *error ? *error : errno;
		return;
	}
	va_start(ap, format);
	vfprintf(f, format, ap);
	va_end(ap);
	if (fclose(f))
		*error = errno;
}

static void print_gid(const uint8_t gid[16], char text[40])
{
	for (int i = 0; i < 8; i++)
		sprintf(text + 5 * i, "%02x%02x%s", gid[2 * i], gid[2 * i + 1], i < 7 ? ":" : "");
}

int sh_host_make(const struct sh_host *h)
{
	const struct vd_srp_line *l = &h->line;
	unsigned long long service = l->service_id;
	char path[PATH_MAX], gid[40];
	int error = 0;

	host_path(h, "", path);
	if (mkdir(path, 0700))
		return errno;
	write_attribute(h, &error, "id_ext", "0x%016llx\n", (unsigned long long)l->id_ext);
	write_attribute(h, &error, "ioc_guid", "0x%016llx\n", (unsigned long long)l->ioc_guid);
	if (!l->by_ip) {
		print_gid(l->dgid, gid);
		write_attribute(h, &error, "service_id", "0x%016llx\n", service);
		write_attribute(h, &error, "pkey", "0x%04x\n", l->pkey);
		write_attribute(h, &error, "dgid", "%s\n", gid);
		write_attribute(h, &error, "orig_dgid", "%s\n", gid);
	}
	write_attribute(h, &error, "proc_name", "ib_srp\n");
	write_attribute(h, &error, "local_ib_device", "%s\n", h->device);
	write_attribute(h, &error, "local_ib_port", "%u\n", h->port);
	write_attribute(h, &error, "ch_count", "%d\n", l->ch_count ? l->ch_count : 1);
	write_attribute(h, &error, "comp_vector", "%d\n", l->comp_vector);
	write_attribute(h, &error, "tl_retry_count", "%d\n", l->tl_retry_count);
	write_attribute(h, &error, "cmd_sg_entries", "%d\n", l->cmd_sg_entries);
	write_attribute(h, &error, "allow_ext_sg", "%s\n", l->allow_ext_sg ? "true" : "false");
	if (error)
		sh_host_remove(h);
	return error;
}
