// control_dir.c - the directory with the control sockets of running programs
// follows: unix(7), verbena(7)
// SPDX-License-Identifier: MIT
#include "util/control_dir.h"

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <limits.h>
#include <stdio.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/un.h>
#include <time.h>
#include <unistd.h>

#include "util/runtime.h"
#include "util/tally.h"
#include "util/trust.h"

#define EARLY_S 60 /* seconds: no start needs so long to listen */

void vb_control_name_write(char buf[VB_CONTROL_NAME], const struct vb_control_name *name)
{
	snprintf(buf, VB_CONTROL_NAME, "%d-%" PRIu64 "-%016" PRIx64, name->pid, name->netns, name->number);
}

bool vb_control_name_read(const char *text, struct vb_control_name *name)
{
	char again[VB_CONTROL_NAME];

	if (sscanf(text, "%d-%" SCNu64 "-%" SCNx64, &name->pid, &name->netns, &name->number) != 3)
		return false;
	vb_control_name_write(again, name);
	return name->pid > 0 && !strcmp(text, again);
}

uint64_t vb_control_netns(void)
{
	struct stat st;

	return stat("/proc/thread-self/ns/net", &st) ? 0 : st.st_ino;
}

/* Opens the directory, and checks that only the user can write there. */
static int open_checked(int at, const char *path, uid_t user, int *fd)
{
	struct stat st;
	int dir = openat(at, path, O_RDONLY | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC);

	if (dir < 0)
		return errno;
	int err = fstat(dir, &st) ? errno : vb_trust_is_private(&st, user) ? 0 : EPERM;
	if (err)
		close(dir);
	else
		*fd = dir;
	return err;
}

static void dir_name(char buf[32], uid_t user)
{
	snprintf(buf, 32, "control-%u", (unsigned)user);
}

int vb_control_dir_open_at(const char *runtime, bool follow, uid_t user, int *fd)
{
	char name[32];
	int at = open(runtime, O_PATH | O_DIRECTORY | O_CLOEXEC | (follow ? 0 : O_NOFOLLOW));

	if (at < 0)
		return errno;
	dir_name(name, user);
	int err = open_checked(at, name, user, fd);
	close(at);
	return err;
}

/* mkdir applies the umask, which may lack bits that we need. Another user who may write in the runtime directory can put
 * a link in the directory's place, so the mode is changed by descriptor; O_PATH needs no permission. */
static void set_mode(int at, const char *name)
{
	char path[64];
	struct stat st;
	int dir = openat(at, name, O_PATH | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC);

	if (dir < 0)
		return;
	snprintf(path, sizeof(path), "/proc/thread-self/fd/%d", dir);
	if (!fstat(dir, &st) && st.st_uid == geteuid())
		chmod(path, 0700);
	close(dir);
}

static int make_dir(const char *runtime)
{
	char name[32];
	int at = open(runtime, O_PATH | O_DIRECTORY | O_CLOEXEC), err = 0;

	if (at < 0)
		return errno;
	dir_name(name, geteuid());
	if (!mkdirat(at, name, 0700))
		set_mode(at, name);
	else if (errno != EEXIST)
		err = errno;
	close(at);
	return err;
}

int vb_control_dir_open(bool make, int *fd)
{
	char runtime[PATH_MAX - 64];
	int err = make ? vb_runtime_dir(runtime, sizeof(runtime)) : vb_runtime_path(runtime, sizeof(runtime));

	if (!err && make)
		err = make_dir(runtime);
	return err ? err : vb_control_dir_open_at(runtime, true, geteuid(), fd);
}

/* By descriptor, so that a link in the socket's place is not followed, and no other socket is connected to. */
static int connect_to_inode(int inode_fd, int sock)
{
	struct sockaddr_un sun = {.sun_family = AF_UNIX};

	snprintf(sun.sun_path, sizeof(sun.sun_path), "/proc/thread-self/fd/%d", inode_fd);
	return connect(sock, (struct sockaddr *)&sun, sizeof(sun)) ? errno : 0;
}

static bool listens_for(int sock, uid_t user)
{
	struct ucred cred;
	socklen_t len = sizeof(cred);

	return !getsockopt(sock, SOL_SOCKET, SO_PEERCRED, &cred, &len) && cred.uid == user;
}

int vb_control_dir_connect(int dir_fd, const char *name, uid_t user, int *sock)
{
	struct stat st;
	int inode = openat(dir_fd, name, O_PATH | O_NOFOLLOW | O_CLOEXEC), err = 0;

	if (inode < 0)
		return errno;
	int s = socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0);
	if (s < 0 || fstat(inode, &st))
		err = errno;
	else if (!S_ISSOCK(st.st_mode) || st.st_uid != user)
		err = EPERM;
	else
		err = connect_to_inode(inode, s);
	if (!err && !listens_for(s, user))
		err = EPERM;
	close(inode);
	if (!err)
		*sock = s;
	else if (s >= 0)
		close(s);
	return err;
}

/* What a program has counted stays if its socket was removed by somebody else. */
static void sweep_shown(int dir_fd, const char *file)
{
	char name[VB_CONTROL_NAME];

	if (vb_tally_shown_name(file, name) && faccessat(dir_fd, name, F_OK, AT_SYMLINK_NOFOLLOW) && errno == ENOENT)
		vb_tally_end(dir_fd, name);
}

/* A name that a start has not finished with begins with a dot. It is left alone unless that start has surely ended. */
static bool may_sweep(int dir_fd, const char *name)
{
	struct vb_control_name parsed;
	struct stat st;

	if (name[0] != '.')
		return vb_control_name_read(name, &parsed);
	return vb_control_name_read(name + 1, &parsed) && !fstatat(dir_fd, name, &st, AT_SYMLINK_NOFOLLOW) &&
	       time(NULL) - st.st_mtime > EARLY_S;
}

void vb_control_dir_sweep(int dir_fd, uid_t user, unsigned most)
{
	int sock, copy = openat(dir_fd, ".", O_RDONLY | O_DIRECTORY | O_CLOEXEC);
	DIR *dir = copy < 0 ? NULL : fdopendir(copy);

	if (!dir) {
		if (copy >= 0)
			close(copy);
		return;
	}
	for (struct dirent *e; most && (e = readdir(dir));) {
		sweep_shown(dir_fd, e->d_name);
		if (!may_sweep(dir_fd, e->d_name))
			continue;
		most--;
		int err = vb_control_dir_connect(dir_fd, e->d_name, user, &sock);

		if (!err)
			close(sock);
		else if (err == ECONNREFUSED)
			vb_tally_end(dir_fd, e->d_name);
	}
	closedir(dir);
}
