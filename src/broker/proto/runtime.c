// runtime.c - where a broker is found: runtime directory, socket names, start lock
// follows: unix(7), flock(2)
// SPDX-License-Identifier: MIT
#include "broker/proto/runtime.h"

#include <errno.h>
#include <fcntl.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/file.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/un.h>
#include <time.h>
#include <unistd.h>

#include "util/env.h"
#include "util/runtime.h"
#include "util/trust.h"

#define RUNTIME_OF_ROOT "/run/verbena"
#define LISTEN_BACKLOG 128
#define LOCK_NAME (sizeof((struct vb_runtime){0}.name) + sizeof(".lock"))

int64_t vb_broker_now_ms(void)
{
	struct timespec ts;

	clock_gettime(CLOCK_MONOTONIC, &ts);
	return (int64_t)ts.tv_sec * 1000 + ts.tv_nsec / 1000000;
}

/* Of the thread, not the process: a thread may have entered another network namespace. */
uint64_t vb_runtime_network(void)
{
	struct stat st;

	return stat("/proc/thread-self/ns/net", &st) ? 0 : st.st_ino;
}

static void name_by_netns(struct vb_runtime *rt)
{
	snprintf(rt->name, sizeof(rt->name), "broker-%llu.sock", (unsigned long long)vb_runtime_network());
}

int vb_runtime_own(struct vb_runtime *rt)
{
	const char *dir = vb_env("VERBENA_RUNTIME");

	memset(rt, 0, sizeof(*rt));
	rt->explicit_dir = dir && *dir;
	if (rt->explicit_dir)
		snprintf(rt->name, sizeof(rt->name), "broker.sock");
	else
		name_by_netns(rt);
	return vb_runtime_path(rt->dir, sizeof(rt->dir));
}

bool vb_runtime_root(struct vb_runtime *rt)
{
	const char *dir = vb_env("VERBENA_RUNTIME");

	if ((dir && *dir) || vb_runtime_own(rt) || !strcmp(rt->dir, RUNTIME_OF_ROOT))
		return false;
	strcpy(rt->dir, RUNTIME_OF_ROOT);
	return true;
}

bool vb_runtime_of_network(struct vb_runtime *rt)
{
	if (vb_runtime_own(rt) || !rt->explicit_dir)
		return false;
	name_by_netns(rt);
	return true;
}

/* chmod, because the umask of a set-user-ID program is its caller's. By descriptor, and only if the directory is
 * ours. */
static void set_dir_mode(const char *dir, mode_t mode)
{
	int fd = open(dir, O_PATH | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC);
	char path[64];
	struct stat st;

	if (fd < 0)
		return;
	snprintf(path, sizeof(path), "/proc/thread-self/fd/%d", fd);
	if (!fstat(fd, &st) && st.st_uid == geteuid())
		chmod(path, mode);
	close(fd);
}

/* Looks for a file of another user in the place of one of ours, in a directory that others may write in
 * (VERBENA_RUNTIME=/tmp). In a sticky directory we cannot remove it. Files of root and of the directory's owner are
 * accepted. */
static bool has_squatter(const struct vb_runtime *rt, char *text, size_t size)
{
	static const char *const suffixes[] = {"", ".lock", ".state", ".state.new"};
	int dir_fd = vb_runtime_open_dir(rt);
	char name[sizeof(rt->name) + 16];
	struct stat dir, st;
	bool found = false;

	if (dir_fd < 0)
		return false;
	for (size_t i = 0; i < 4 && !found && !fstat(dir_fd, &dir); i++) {
		snprintf(name, sizeof(name), "%s%s", rt->name, suffixes[i]);
		found = !fstatat(dir_fd, name, &st, AT_SYMLINK_NOFOLLOW) && st.st_uid && st.st_uid != geteuid() &&
		        st.st_uid != dir.st_uid;
	}
	close(dir_fd);
	if (found)
		snprintf(text, size, "%s/%s belongs to user %u, not to this program's user %u", rt->dir, name,
		         (unsigned)st.st_uid, (unsigned)geteuid());
	return found;
}

int vb_runtime_prepare(const struct vb_runtime *rt)
{
	uid_t me = geteuid();
	struct stat st;
	char text[PATH_MAX];
	mode_t mode = me == 0 ? 0755 : 0700; /* programs of all users connect to root's broker */

	if (!mkdir(rt->dir, mode))
		set_dir_mode(rt->dir, mode);
	else if (errno != EEXIST)
		return errno;
	if (rt->explicit_dir) {
		if (stat(rt->dir, &st))
			return errno;
		if (!S_ISDIR(st.st_mode))
			return ENOTDIR;
		return has_squatter(rt, text, sizeof(text)) ? EPERM : 0;
	}
	if (lstat(rt->dir, &st))
		return errno;
	return vb_trust_is_private(&st, me) ? 0 : EPERM;
}

bool vb_runtime_is_squatted(const struct vb_runtime *rt)
{
	struct stat st;

	return !rt->explicit_dir && !lstat(rt->dir, &st) && !vb_trust_is_private(&st, geteuid()) &&
	       !vb_trust_is_private(&st, 0);
}

bool vb_runtime_has_complaint(const struct vb_runtime *rt, char *text, size_t size)
{
	if (rt->explicit_dir && has_squatter(rt, text, size))
		return true;
	return vb_trust_has_complaint(rt->dir, text, size);
}

int vb_runtime_open_dir(const struct vb_runtime *rt)
{
	return open(rt->dir, O_PATH | O_DIRECTORY | O_CLOEXEC);
}

/* sun_path holds 107 bytes. A longer path goes through a descriptor of the directory, which the caller closes. */
static int socket_address(const struct vb_runtime *rt, struct sockaddr_un *sun, socklen_t *len, int *dir_fd)
{
	memset(sun, 0, sizeof(*sun));
	sun->sun_family = AF_UNIX;
	*dir_fd = -1;
	size_t n = strlen(rt->dir) + 1 + strlen(rt->name);
	if (n < sizeof(sun->sun_path)) {
		stpcpy(stpcpy(stpcpy(sun->sun_path, rt->dir), "/"), rt->name);
	} else {
		*dir_fd = vb_runtime_open_dir(rt);
		if (*dir_fd < 0)
			return errno;
		n = (size_t)snprintf(sun->sun_path, sizeof(sun->sun_path), "/proc/thread-self/fd/%d/%s", *dir_fd,
		                     rt->name);
	}
	*len = (socklen_t)(offsetof(struct sockaddr_un, sun_path) + n + 1);
	return 0;
}

static void close_if_open(int fd)
{
	if (fd >= 0)
		close(fd);
}

bool vb_uid_is_known(uid_t uid)
{
	unsigned overflow = 65534, inside, outside, count;
	bool found = false;
	FILE *f = fopen("/proc/sys/kernel/overflowuid", "re");

	if (f) {
		if (fscanf(f, "%u", &overflow) != 1)
			overflow = 65534;
		fclose(f);
	}
	if (uid != overflow)
		return true;
	f = fopen("/proc/self/uid_map", "re");
	if (!f)
		return true; /* without /proc no user namespace can have been set up */
	while (fscanf(f, "%u %u %u", &inside, &outside, &count) == 3)
		if (uid >= inside && uid - inside < count)
			found = true;
	fclose(f);
	return found;
}

/* Whoever can write to the directory can put a socket there. */
static bool is_trusted_listener(int sock)
{
	struct ucred cred;
	socklen_t len = sizeof(cred);

	if (getsockopt(sock, SOL_SOCKET, SO_PEERCRED, &cred, &len))
		return false;
	return cred.uid == 0 || (cred.uid == geteuid() && vb_uid_is_known(cred.uid));
}

int vb_runtime_connect(const struct vb_runtime *rt, int *sock)
{
	struct sockaddr_un sun;
	socklen_t len;
	int dir_fd, err = socket_address(rt, &sun, &len, &dir_fd);

	if (err)
		return err == ENOTDIR ? ENOENT : err;
	int fd = socket(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC | SOCK_NONBLOCK, 0);
	if (fd < 0) {
		err = errno;
	} else if (connect(fd, (struct sockaddr *)&sun, len)) {
		err = errno == ECONNREFUSED || errno == ENOTDIR ? ENOENT : errno;
	} else if (!is_trusted_listener(fd)) {
		err = EPERM;
	}
	close_if_open(dir_fd);
	if (err) {
		close_if_open(fd);
		return err;
	}
	*sock = fd;
	return 0;
}

mode_t vb_runtime_clients(void)
{
	return geteuid() == 0 ? 0666 : 0600;
}

/* Sets the mode of the bound socket: bind has applied the umask, which a thread must not change. By descriptor, so
 * that a link put in its place is not followed. */
static int set_socket_mode(int dir_fd, const char *name, mode_t mode, struct stat *st)
{
	char path[64];
	int fd = openat(dir_fd, name, O_PATH | O_NOFOLLOW | O_CLOEXEC), err = 0;

	if (fd < 0)
		return errno;
	snprintf(path, sizeof(path), "/proc/thread-self/fd/%d", fd);
	if (fstat(fd, st))
		err = errno;
	else if (!S_ISSOCK(st->st_mode) || st->st_uid != geteuid() || st->st_nlink != 1)
		err = EPERM;
	else if (chmod(path, mode))
		err = errno;
	close(fd);
	return err;
}

int vb_runtime_listen(const struct vb_runtime *rt, mode_t mode, int *sock, dev_t *dev, ino_t *ino)
{
	struct sockaddr_un sun;
	struct stat st;
	socklen_t len;
	int name_fd, err = 0, dir_fd = vb_runtime_open_dir(rt);

	if (dir_fd < 0)
		return errno;
	int fd = socket(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC | SOCK_NONBLOCK, 0);
	if (fd < 0) {
		err = errno;
		close(dir_fd);
		return err;
	}
	unlinkat(dir_fd, rt->name, 0);
	fchmod(fd, 0600); /* bind gives the file this mode; nobody can connect before listen */
	err = socket_address(rt, &sun, &len, &name_fd);
	if (!err && bind(fd, (struct sockaddr *)&sun, len))
		err = errno;
	if (!err)
		err = set_socket_mode(dir_fd, rt->name, mode, &st);
	if (!err && listen(fd, LISTEN_BACKLOG))
		err = errno;
	close_if_open(name_fd);
	close(dir_fd);
	if (err) {
		close(fd);
		return err;
	}
	*sock = fd;
	*dev = st.st_dev;
	*ino = st.st_ino;
	return 0;
}

void vb_runtime_unlink(const struct vb_runtime *rt, dev_t dev, ino_t ino)
{
	struct stat st;
	int dir_fd = vb_runtime_open_dir(rt);

	if (dir_fd < 0)
		return;
	if (!fstatat(dir_fd, rt->name, &st, AT_SYMLINK_NOFOLLOW) && st.st_dev == dev && st.st_ino == ino)
		unlinkat(dir_fd, rt->name, 0);
	close(dir_fd);
}

/* A broker that ends removes the file that it has locked. A process that waited for the lock then has a file without a
 * name. */
static int lock_named_file(int dir_fd, const char *name, int *lock_fd)
{
	struct stat st, named;
	int fd = openat(dir_fd, name, O_RDWR | O_CREAT | O_NOFOLLOW | O_CLOEXEC, 0600);
	int err = 0;

	if (fd < 0)
		return errno;
	if (fstat(fd, &st) || !S_ISREG(st.st_mode))
		err = EPERM;
	else if (flock(fd, LOCK_EX | LOCK_NB))
		err = errno;
	else if (fstatat(dir_fd, name, &named, AT_SYMLINK_NOFOLLOW) || named.st_dev != st.st_dev ||
	         named.st_ino != st.st_ino)
		err = EWOULDBLOCK;
	if (err)
		close(fd);
	else
		*lock_fd = fd;
	return err;
}

static void lock_name(const struct vb_runtime *rt, char name[LOCK_NAME])
{
	snprintf(name, LOCK_NAME, "%s.lock", rt->name);
}

int vb_runtime_lock(const struct vb_runtime *rt, int *lock_fd)
{
	char name[LOCK_NAME];
	int dir_fd = vb_runtime_open_dir(rt);

	if (dir_fd < 0)
		return errno;
	lock_name(rt, name);
	int err = lock_named_file(dir_fd, name, lock_fd);
	close(dir_fd);
	return err;
}

void vb_runtime_unlock(int *lock_fd)
{
	if (*lock_fd < 0)
		return;
	flock(*lock_fd, LOCK_UN);
	close(*lock_fd);
	*lock_fd = -1;
}

void vb_runtime_remove_lock(const struct vb_runtime *rt, int *lock_fd)
{
	char name[LOCK_NAME];
	int dir_fd = *lock_fd < 0 ? -1 : vb_runtime_open_dir(rt);

	if (dir_fd >= 0) {
		lock_name(rt, name);
		unlinkat(dir_fd, name, 0);
		close(dir_fd);
	}
	vb_runtime_unlock(lock_fd);
}

/* fdinfo shows pids of the pid namespace of the mounted /proc. NSpid lists our pids from that namespace down to ours:
 * a single number means that it is the same namespace. */
static bool is_proc_ours(void)
{
	char line[256];
	int outer, inner, n = 0;
	FILE *f = fopen("/proc/self/status", "re");

	if (!f)
		return false;
	while (n < 1 && fgets(line, sizeof(line), f))
		n = sscanf(line, "NSpid: %d %d", &outer, &inner);
	fclose(f);
	return n == 1 && outer == getpid();
}

int vb_pidfd_pid(int pid_fd)
{
	char path[64], line[128];
	int pid = 0;

	snprintf(path, sizeof(path), "/proc/thread-self/fdinfo/%d", pid_fd);
	FILE *f = is_proc_ours() ? fopen(path, "re") : NULL;
	if (!f)
		return 0;
	while (fgets(line, sizeof(line), f))
		if (sscanf(line, "Pid: %d", &pid) == 1)
			break;
	fclose(f);
	return pid > 0 ? pid : 0;
}
