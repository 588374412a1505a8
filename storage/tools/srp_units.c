// srp_units.c - logs in at a SRP target, and serves its units by nbdkit
// follows: nbdkit(1), man/nbdkit-verbena-plugin.1; the errors of Linux's ib_srp
// SPDX-License-Identifier: MIT
#include <errno.h>
#include <fcntl.h>
#include <signal.h>
#include <spawn.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/prctl.h>
#include <unistd.h>

#include "client/verbena_nvme.h"
#include "tools/srp_host.h"

#define LOGIN_S 30 /* a login that hangs ends then */
#define SECTOR 512
#define QUEUE_MAX 1023
#define CHANNELS_MAX 15 /* and one for the caretaker */
#define TRANSFER_MAX (1 << 20)

extern char **environ;

/* Rejected logins are a reset connection to ib_srp, whatever the reason. */
static int error_of_ib_srp(int error, bool by_ip)
{
	switch (error) {
	case 0:
	case ENOMEM:
		return error;
	case ENODEV: /* no adapter leads there */
		return by_ip ? ENXIO : ENODEV;
	case EHOSTUNREACH:
		return by_ip ? EHOSTUNREACH : EINVAL; /* the subnet administrator knows no path */
	case ETIMEDOUT:
		return by_ip ? EHOSTUNREACH : ECONNRESET;
	default:
		return ECONNRESET;
	}
}

static int lun_of(const char *nqn)
{
	const char *at = strstr(nqn, "lun=");

	return at ? atoi(at + 4) : 0;
}

static bool has_lun(const struct sh_found *f, int lun)
{
	for (unsigned i = 0; i < f->count; i++)
		if (f->luns[i] == lun)
			return true;
	return false;
}

static void find_units(const struct vd_srp_line *l, struct sh_found *out)
{
	struct vn_options o;
	struct vn_found *found;
	char url[200];
	size_t n;

	vn_options_init(&o);
	vd_srp_line_url(l, -1, url, sizeof(url));
	int e = -vn_discover(url, &o, &found, &n, out->why, sizeof(out->why));

	out->error = error_of_ib_srp(e, l->by_ip);
	for (size_t i = 0; !e && i < n && out->count < SH_UNITS; i++) {
		int lun = lun_of(found[i].nqn);

		if (!has_lun(out, lun)) /* two nbdkits would want the same socket */
			out->luns[out->count++] = (uint16_t)lun;
	}
	if (!e)
		free(found);
}

/* In a process of its own, so that what a hostile target does to it ends no other login. */
int sh_login(const struct vd_srp_line *l, pid_t *pid, int *out)
{
	struct sh_found found = {0};
	pid_t service = getpid();
	sigset_t none;
	int ends[2];

	if (pipe2(ends, O_CLOEXEC))
		return errno;
	*pid = fork();
	if (*pid) {
		int error = *pid < 0 ? errno : 0;

		close(ends[1]);
		if (error)
			close(ends[0]);
		*out = ends[0];
		return error;
	}
	prctl(PR_SET_PDEATHSIG, SIGKILL); /* it has the lock of the directory, and the clients */
	if (getppid() != service)
		_exit(1);
	sigemptyset(&none);
	sigprocmask(SIG_SETMASK, &none, NULL);
	alarm(LOGIN_S);
	find_units(l, &found);
	_exit(write(ends[1], &found, sizeof(found)) != sizeof(found));
}

/* Beside this program (a build tree), or where it was installed; otherwise nbdkit looks for it. */
static void find_plugin(char path[PATH_MAX])
{
	static const char file[] = "nbdkit-verbena-plugin.so";
	ssize_t n = readlink("/proc/self/exe", path, PATH_MAX - sizeof(file));

	if (n > 0) {
		path[n] = '\0';
		strcpy(strrchr(path, '/') + 1, file);
		if (!access(path, R_OK))
			return;
	}
	snprintf(path, PATH_MAX, "%s/%s", VD_PLUGINS, file);
	if (access(path, R_OK))
		strcpy(path, "verbena");
}

static int at_most(int n, int most)
{
	return n < most ? n : most;
}

int sh_unit_start(const struct sh_host *h, struct sh_unit *u)
{
	char socket[PATH_MAX], pid_file[PATH_MAX], plugin[PATH_MAX], url[220] = "url=", more[3][48];
	const char *argv[16] = {
	        "nbdkit", "--foreground", "--exit-with-parent", "--unix", socket, "--pidfile", pid_file, plugin, url};
	const struct vd_srp_line *l = &h->line;
	posix_spawnattr_t attr;
	sigset_t none;
	int n = 9;

	sh_unit_path(h, u, "", socket);
	sh_unit_path(h, u, ".pid", pid_file);
	find_plugin(plugin);
	vd_srp_line_url(l, u->lun, url + 4, sizeof(url) - 4);
	if (l->queue_size) {
		snprintf(more[0], sizeof(more[0]), "queue-depth=%d", at_most(l->queue_size, QUEUE_MAX));
		argv[n++] = more[0];
	}
	if (l->ch_count) {
		snprintf(more[1], sizeof(more[1]), "queues=%d", at_most(l->ch_count, CHANNELS_MAX));
		argv[n++] = more[1];
	}
	if (l->max_sect > 0) {
		snprintf(more[2], sizeof(more[2]), "max-transfer=%d",
		         at_most(l->max_sect, TRANSFER_MAX / SECTOR) * SECTOR);
		argv[n++] = more[2];
	}
	sigemptyset(&none);
	posix_spawnattr_init(&attr);
	posix_spawnattr_setsigmask(&attr, &none);
	posix_spawnattr_setflags(&attr, POSIX_SPAWN_SETSIGMASK);
	int error = posix_spawnp(&u->nbdkit, "nbdkit", NULL, &attr, (char **)(void *)argv, environ);

	posix_spawnattr_destroy(&attr);
	if (error)
		u->nbdkit = 0;
	return error;
}

/* nbdkit writes the file when it serves the disk. */
bool sh_unit_ready(const struct sh_host *h, struct sh_unit *u)
{
	char path[PATH_MAX];

	sh_unit_path(h, u, ".pid", path);
	u->ready = u->ready || !access(path, F_OK);
	return u->ready;
}
