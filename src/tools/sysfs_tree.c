// sysfs_tree.c - writes the tree that replaces /sys/class/infiniband* and /dev/infiniband
// follows: Linux Documentation/ABI/stable/sysfs-class-infiniband
// SPDX-License-Identifier: MIT
#include "tools/sysfs_tree.h"

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <stdio.h>
#include <string.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <time.h>
#include <unistd.h>

#include "core/device.h"
#include "core/rdma_link.h"
#include "tools/dead_trees.h"
#include "tools/fabric_tree.h"
#include "tools/srp_tree.h"
#include "tools/tree_files.h"
#include "util/hardware.h"
#include "util/runtime.h"
#include "util/trust.h"

enum { TEXT = 512, LOCK_WAIT_MS = 2000, LOCK_PAUSE_MS = 10, NS_PER_MS = 1000000 };

/* Reads an attribute of the NIC, if /sys shows our own network namespace: in another one the name may be of another
 * interface. */
static bool read_nic(const struct vb_netdev *nd, const char *attribute, char *buf, size_t size)
{
	char path[PATH_MAX], index[32], own[32];

	snprintf(path, sizeof(path), "/sys/class/net/%s/ifindex", nd->name);
	snprintf(own, sizeof(own), "%d\n", nd->ifindex);
	if (vb_tree_read(AT_FDCWD, path, index, sizeof(index)) < 0 || strcmp(index, own))
		return false;
	snprintf(path, sizeof(path), "/sys/class/net/%s/device/%s", nd->name, attribute);
	return vb_tree_read(AT_FDCWD, path, buf, size) > 0;
}

/* The mask of all processors as the kernel prints it: words of 32 bits, the highest first. */
static void all_cpus_mask(char *buf, size_t size)
{
	long cpus = sysconf(_SC_NPROCESSORS_CONF);
	size_t len = 0;

	for (long word = (cpus - 1) / 32; word >= 0 && len + 16 < size; word--) {
		long bits = cpus - 32 * word;
		unsigned mask = bits >= 32 ? 0xffffffffu : (1u << bits) - 1;

		len += (size_t)snprintf(buf + len, size - len, word ? "%08x," : "%08x\n", mask);
	}
}

/* device/, which replaces the adapter's PCI function. */
static void write_parent(struct vb_tree *t, const char *dir, struct vb_device *dev)
{
	char path[PATH_MAX], text[TEXT], target[PATH_MAX];
	struct vb_netdev nd;

	if (dev->ib) /* it has no interface, and no function of a bus */
		return;
	vb_device_netdev(dev, &nd);
	if (!read_nic(&nd, "numa_node", text, sizeof(text)))
		strcpy(text, "-1\n");
	snprintf(path, sizeof(path), "%s/device/numa_node", dir);
	vb_tree_file(t, path, text);
	if (!read_nic(&nd, "local_cpus", text, sizeof(text)))
		all_cpus_mask(text, sizeof(text));
	snprintf(path, sizeof(path), "%s/device/local_cpus", dir);
	vb_tree_file(t, path, text);
	snprintf(path, sizeof(path), "%s/device/net/%s", dir, nd.name);
	snprintf(target, sizeof(target), "/sys/class/net/%s", nd.name);
	vb_tree_link(t, path, target);
}

static void write_ibdev(struct vb_tree *t, const char *dir, struct vb_device *dev)
{
	char name[128], path[PATH_MAX], text[TEXT];

	for (unsigned i = 0; vb_device_attr_path(i, name, sizeof(name)); i++) {
		int n = vb_device_attr_text(dev, name, text, sizeof(text) - 1);

		snprintf(path, sizeof(path), "%s/%s", dir, name);
		if (n < 0) {
			vb_tree_remove(t, path);
			continue;
		}
		strcat(text, "\n");
		vb_tree_file(t, path, text);
	}
	write_parent(t, dir, dev);
}

static void write_uverbs(struct vb_tree *t, const char *dir, struct vb_device *dev)
{
	char path[PATH_MAX], text[TEXT];

	snprintf(path, sizeof(path), "%s/ibdev", dir);
	snprintf(text, sizeof(text), "%s\n", dev->dev.name);
	vb_tree_file(t, path, text);
	snprintf(path, sizeof(path), "%s/abi_version", dir);
	vb_tree_file(t, path, "1\n");
	/* The device number of /dev/null, to which the node links. */
	snprintf(path, sizeof(path), "%s/dev", dir);
	vb_tree_file(t, path, "1:3\n");
	snprintf(path, sizeof(path), "%s/device", dir);
	snprintf(text, sizeof(text), "../../infiniband/%s/device", dev->dev.name);
	vb_tree_link(t, path, text);
}

/* Writes a device's directory: an existing one in place, a new one aside and then moved. */
static void write_device(struct vb_tree *t, const char *class, const char *name, struct vb_device *dev,
                         void (*write_it)(struct vb_tree *, const char *, struct vb_device *))
{
	char dir[PATH_MAX], aside[PATH_MAX];

	snprintf(dir, sizeof(dir), "class/%s/%s", class, name);
	if (!faccessat(t->fd, dir, F_OK, 0)) {
		write_it(t, dir, dev);
		return;
	}
	snprintf(aside, sizeof(aside), VB_TREE_ASIDE "/%s", name);
	vb_tree_remove(t, aside);
	write_it(t, aside, dev);
	vb_tree_move(t, aside, dir);
}

/* The folders of the kernel's devices, and where the tree has them. */
static const struct {
	const char *real, *tree;
} hardware_folders[] = {
        {"/sys/class/infiniband", "class/infiniband"},
        {"/sys/class/infiniband_verbs", "class/infiniband_verbs"},
        {"/sys/class/infiniband_mad", "class/infiniband_mad"},
        {"/dev/infiniband", "dev/infiniband"},
};

/* By system call: a launcher that another one started sees that one's tree. */
static DIR *open_hardware_folder(size_t i)
{
	int fd = -1;

	if (vb_hardware_wanted() != VB_HARDWARE_OFF && vb_rdma_link_exists())
		fd = (int)syscall(SYS_openat, AT_FDCWD, hardware_folders[i].real, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
	return fd < 0 ? NULL : fdopendir(fd);
}

/* Calls fn for each entry of the kernel's folders, and for each attribute file beside them. */
static void for_hardware(void (*fn)(size_t folder, const char *name, void *arg), void *arg)
{
	for (size_t i = 0; i < sizeof(hardware_folders) / sizeof(*hardware_folders); i++) {
		DIR *dir = open_hardware_folder(i);
		struct dirent *e;

		while (dir && (e = readdir(dir)))
			if (e->d_name[0] != '.' && strcmp(e->d_name, "abi_version") != 0)
				fn(i, e->d_name, arg);
		if (dir)
			closedir(dir);
	}
}

static void link_hardware(size_t folder, const char *name, void *arg)
{
	char path[PATH_MAX], target[PATH_MAX];

	snprintf(path, sizeof(path), "%s/%s", hardware_folders[folder].tree, name);
	snprintf(target, sizeof(target), "%s/%s", hardware_folders[folder].real, name);
	vb_tree_link(arg, path, target);
}

static void hash_hardware(size_t folder, const char *name, void *arg)
{
	uint64_t *h = arg;

	for (; *name; name++)
		*h = (*h ^ (uint8_t)*name) * VB_FNV_PRIME;
	*h = (*h ^ folder) * VB_FNV_PRIME;
}

/* True if an entry of a class belongs to a present device. */
static bool is_present(const char *name, const void *arg)
{
	for (struct ibv_device *const *d = arg; *d; d++)
		if (!strcmp((*d)->name, name) || !strcmp((*d)->dev_name, name))
			return true;
	return !strcmp(name, "abi_version") || vb_fabric_tree_has(name);
}

static void write_tree_entries(struct vb_tree *t, struct ibv_device *const *devices, int n)
{
	static const char *const classes[] = {"class/infiniband", "class/infiniband_verbs", "class/infiniband_mad",
	                                      "dev/infiniband"};
	char path[PATH_MAX];

	vb_tree_dir(t, VB_TREE_ASIDE);
	for (size_t i = 0; i < sizeof(classes) / sizeof(classes[0]); i++) {
		vb_tree_dir(t, classes[i]);
		vb_tree_prune(t, classes[i], is_present, devices);
	}
	vb_tree_file(t, "class/infiniband_verbs/abi_version", "6\n");
	vb_tree_file(t, "class/infiniband_mad/abi_version", "5\n");
	for (int i = 0; i < n; i++) {
		struct vb_device *dev = vb_device_of(devices[i]);

		write_device(t, "infiniband", dev->dev.name, dev, write_ibdev);
		write_device(t, "infiniband_verbs", dev->dev.dev_name, dev, write_uverbs);
		/* Creating a device node needs privileges; /dev/null is a character device that anybody may read and
		 * write. */
		snprintf(path, sizeof(path), "dev/infiniband/%s", dev->dev.dev_name);
		vb_tree_link(t, path, "/dev/null");
	}
	for_hardware(link_hardware, t);
	vb_fabric_tree_write(t);
	vb_srp_tree_write(t, devices, n);
}

/* A hash of the tree's content, to skip writing if nothing has changed. */
static uint64_t tree_fingerprint(struct ibv_device *const *devices, int n)
{
	uint64_t h = VB_FNV_START;
	char name[128], text[TEXT];

	for (int i = 0; i < n; i++) {
		struct vb_device *dev = vb_device_of(devices[i]);

		for (unsigned k = 0; vb_device_attr_path(k, name, sizeof(name)); k++) {
			int len = vb_device_attr_text(dev, name, text, sizeof(text));

			for (int c = 0; c < len && c < TEXT; c++)
				h = (h ^ (uint8_t)text[c]) * VB_FNV_PRIME;
			h = (h ^ 0xff) * VB_FNV_PRIME;
		}
		for (const char *s = dev->dev.name; *s; s++)
			h = (h ^ (uint8_t)*s) * VB_FNV_PRIME;
	}
	for_hardware(hash_hardware, &h);
	return vb_fabric_tree_fingerprint(h);
}

static bool is_current(struct vb_tree *t, const char *stamp, struct ibv_device *const *devices, int n)
{
	char path[PATH_MAX], old[VB_TREE_STAMP];

	if (vb_tree_read(t->fd, ".stamp", old, sizeof(old)) < 0 || strcmp(old, stamp))
		return false;
	for (int i = 0; i < n; i++) {
		snprintf(path, sizeof(path), "class/infiniband/%s/ports/1/state", devices[i]->name);
		if (faccessat(t->fd, path, F_OK, 0))
			return false;
	}
	return true;
}

/* Waits for LOCK_WAIT_MS at most: the holder of the lock may be stopped. */
static int lock_tree(int tree_fd, int *lock_fd)
{
	struct timespec pause = {.tv_nsec = LOCK_PAUSE_MS * NS_PER_MS};
	int fd = openat(tree_fd, ".lock", O_RDWR | O_CREAT | O_NOFOLLOW | O_CLOEXEC, 0600);

	if (fd < 0)
		return errno;
	for (int ms = 0; ms < LOCK_WAIT_MS; ms += LOCK_PAUSE_MS) {
		if (!flock(fd, LOCK_EX | LOCK_NB)) {
			*lock_fd = fd;
			return 0;
		}
		nanosleep(&pause, NULL);
	}
	close(fd);
	return EBUSY;
}

/* Opens the tree and takes its lock, which removers of dead trees take too: a locked tree may just have been removed.
 * Returns 0, EAGAIN in that case, EBUSY if another process keeps the lock (the tree is open then), or another errno. */
static int enter_tree(const char *path, struct vb_tree *t, int *lock_fd)
{
	bool made = !mkdir(path, 0755);
	struct stat st, now;

	if (!made && errno != EEXIST)
		return errno;
	t->fd = open(path, O_RDONLY | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC);
	if (t->fd < 0)
		return errno;
	/* never write through links in another user's tree, or change another user's directory */
	if (made && !fstat(t->fd, &st) && st.st_uid == geteuid())
		fchmod(t->fd, 0755);
	int rc = !fstat(t->fd, &st) && vb_trust_is_private(&st, geteuid()) ? lock_tree(t->fd, lock_fd) : EPERM;
	if (!rc && !lstat(path, &now) && now.st_dev == st.st_dev && now.st_ino == st.st_ino)
		return 0;
	if (!rc)
		close(*lock_fd);
	if (rc != EBUSY)
		close(t->fd);
	return rc ? rc : EAGAIN;
}

/* Updates the tree if needed. Returns 0 or an errno: EBUSY if that needs the lock and we don't have it. */
static int update_tree(struct vb_tree *t, bool locked, struct ibv_device *const *devices, int n)
{
	char stamp[VB_TREE_STAMP], origin[VB_TREE_ORIGIN];

	vb_tree_origin(origin);
	snprintf(stamp, sizeof(stamp), "%s " VB_VERSION " %016llx\n", origin,
	         (unsigned long long)tree_fingerprint(devices, n));
	if (is_current(t, stamp, devices, n))
		return 0;
	if (!locked)
		return EBUSY;
	vb_tree_remove(t, ".stamp");
	write_tree_entries(t, devices, n);
	if (!t->err)
		vb_tree_file(t, ".stamp", stamp);
	return t->err;
}

int vb_sysfs_tree_write(struct ibv_device *const *devices, int n, char *path, size_t size)
{
	struct vb_tree t = {.fd = -1};
	int lock_fd = -1;
	int rc = vb_runtime_dir(path, size);

	if (rc)
		return rc;
	rc = vb_runtime_tree_place(path, size);
	if (rc && rc != ENOENT)
		return rc;
	do
		rc = enter_tree(path, &t, &lock_fd);
	while (rc == EAGAIN);
	if (rc && rc != EBUSY)
		return rc;
	rc = update_tree(&t, !rc, devices, n);
	if (lock_fd >= 0)
		close(lock_fd);
	close(t.fd);
	vb_dead_trees_remove(path);
	return rc;
}
