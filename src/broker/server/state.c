// state.c - a file that outlives the broker: which living program holds which lane
// follows: proc(5), starttime; pidfd_open(2)
// SPDX-License-Identifier: MIT
#include "broker/server/state.h"

#include <assert.h>
#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <unistd.h>

#include "util/log.h"

#define FNV_START 0xcbf29ce484222325ull
#define FNV_PRIME 0x100000001b3ull

static const char magic[8] = "VBstate1";

struct file_head {
	char magic[8];
	char boot_id[40];
	uint64_t pid_ns;
	uint32_t next;
	uint32_t zero;
};

struct file_lane {
	uint64_t check;
	uint64_t incarnation, reserved, starttime;
	uint32_t lane, uid;
	int32_t pid;
	uint32_t zero[5];
};

static_assert(sizeof(struct file_head) == 64 && sizeof(struct file_lane) == 64, "format");
#define FILE_BYTES ((off_t)(VB_LANE_COUNT * sizeof(struct file_lane))) /* the head has the place of lane 0 */

uint64_t vb_process_starttime(pid_t pid)
{
	char path[64], text[1024];
	unsigned long long start = 0;

	snprintf(path, sizeof(path), "/proc/%d/stat", (int)pid);
	int fd = open(path, O_RDONLY | O_CLOEXEC);
	if (fd < 0)
		return 0;
	ssize_t n = read(fd, text, sizeof(text) - 1);
	close(fd);
	if (n <= 0)
		return 0;
	text[n] = 0;
	/* the second field is the program's name, which may contain anything; starttime is the 22nd */
	char *p = strrchr(text, ')');
	for (int field = 2; p && field < 22; field++)
		p = strchr(p + 1, ' ');
	if (!p || sscanf(p, "%llu", &start) != 1)
		return 0;
	return start;
}

static void read_boot_id(char out[40])
{
	memset(out, 0, 40);
	int fd = open("/proc/sys/kernel/random/boot_id", O_RDONLY | O_CLOEXEC);
	if (fd < 0)
		return;
	if (read(fd, out, 36) != 36)
		memset(out, 0, 40);
	close(fd);
}

static uint64_t pid_namespace(void)
{
	struct stat st;

	return stat("/proc/self/ns/pid", &st) ? 0 : st.st_ino;
}

/* FNV-1a. Detects torn and foreign records, not forgeries: the file's owner is checked. */
static uint64_t lane_checksum(const struct file_lane *rec)
{
	const uint8_t *p = (const uint8_t *)rec;
	uint64_t h = FNV_START;

	for (size_t i = sizeof(rec->check); i < sizeof(*rec); i++)
		h = (h ^ p[i]) * FNV_PRIME;
	return h;
}

static void file_name(const struct vb_runtime *rt, const char *suffix, char *out, size_t size)
{
	snprintf(out, size, "%s%s", rt->name, suffix);
}

/* Reads an earlier broker's file. False if it is missing or cannot be trusted. */
static bool read_old_file(int dir_fd, const struct vb_runtime *rt, char *buf)
{
	char name[96];
	struct stat st;
	bool ok = false;

	file_name(rt, ".state", name, sizeof(name));
	int fd = openat(dir_fd, name, O_RDONLY | O_NOFOLLOW | O_CLOEXEC | O_NONBLOCK);
	if (fd < 0)
		return false;
	memset(buf, 0, FILE_BYTES);
	if (!fstat(fd, &st) && S_ISREG(st.st_mode) && st.st_uid == geteuid() && !(st.st_mode & 077) &&
	    st.st_nlink == 1 && st.st_size <= FILE_BYTES) {
		ssize_t n = pread(fd, buf, FILE_BYTES, 0);
		ok = n >= (ssize_t)sizeof(struct file_head);
	} else {
		vb_log(VB_LOG_WARN, "broker: %s/%s is not a state file of this user: ignored", rt->dir, name);
	}
	close(fd);
	return ok;
}

/* A pidfd of the holder if it lives. *known tells whether that could be found out. */
static int open_holder_pidfd(const struct file_lane *rec, bool same_pid_ns, bool *known)
{
	*known = same_pid_ns && rec->pid > 0 && rec->starttime;
	if (!*known)
		return -1;
	int fd = (int)syscall(SYS_pidfd_open, (pid_t)rec->pid, 0);
	if (fd < 0)
		return -1;
	/* checked after the pidfd was opened: both name the same process */
	if (vb_process_starttime(rec->pid) == rec->starttime)
		return fd;
	close(fd);
	return -1;
}

static void offer_lane(struct vb_state *s, const struct file_lane *rec, uint32_t slot, bool same_pid_ns,
                       vb_state_accept *accept, void *arg)
{
	bool known;

	if (!rec->incarnation || rec->lane != slot || rec->check != lane_checksum(rec))
		return;
	if (geteuid() != 0 && rec->uid != geteuid())
		return;
	int pid_fd = open_holder_pidfd(rec, same_pid_ns, &known);
	if (known && pid_fd < 0)
		return;
	struct vb_state_lane lane = {
	        .lane = slot,
	        .uid = rec->uid,
	        .incarnation = rec->incarnation,
	        .pid = known ? rec->pid : 0,
	        .starttime = known ? rec->starttime : 0,
	};
	if (accept(arg, &lane, pid_fd))
		vb_state_put(s, &lane, s->next);
	else if (pid_fd >= 0)
		close(pid_fd);
}

/* Under another name until the old file has been read: if this broker is killed meanwhile, the next one finds the old
 * file. */
static int create_new_file(int dir_fd, const struct vb_runtime *rt)
{
	char name[96];

	file_name(rt, ".state.new", name, sizeof(name));
	unlinkat(dir_fd, name, 0);
	return openat(dir_fd, name, O_RDWR | O_CREAT | O_EXCL | O_NOFOLLOW | O_CLOEXEC, 0600);
}

static void write_head(struct vb_state *s)
{
	struct file_head head = {.pid_ns = s->pid_ns, .next = s->next};

	memcpy(head.magic, magic, sizeof(magic));
	read_boot_id(head.boot_id);
	if (pwrite(s->fd, &head, sizeof(head), 0) != sizeof(head))
		vb_log(VB_LOG_WARN, "broker: state file: %s", strerror(errno));
}

void vb_state_open(struct vb_state *s, const struct vb_runtime *rt, vb_state_accept *accept, void *arg, uint32_t *next)
{
	char boot_id[40], from[96], to[96], *old = malloc(FILE_BYTES);
	int dir_fd = vb_runtime_open_dir(rt);
	bool have = false;

	*s = (struct vb_state){.fd = -1, .pid_ns = pid_namespace()};
	if (dir_fd < 0 || !old)
		goto out;
	read_boot_id(boot_id);
	struct file_head *head = (struct file_head *)old;
	have = read_old_file(dir_fd, rt, old) && !memcmp(head->magic, magic, sizeof(magic)) &&
	       !memcmp(head->boot_id, boot_id, sizeof(boot_id));
	s->followed = have;
	if (have)
		*next = head->next % VB_LANE_COUNT;
	s->next = *next;
	s->fd = create_new_file(dir_fd, rt);
	if (s->fd < 0)
		vb_log(VB_LOG_WARN, "broker: no state file in %s: %s", rt->dir, strerror(errno));
	else
		write_head(s);
	const struct file_lane *recs = (const struct file_lane *)old;
	for (uint32_t i = 1; have && i < VB_LANE_COUNT; i++)
		offer_lane(s, &recs[i], i, head->pid_ns && head->pid_ns == s->pid_ns, accept, arg);
	if (s->fd >= 0) {
		file_name(rt, ".state.new", from, sizeof(from));
		file_name(rt, ".state", to, sizeof(to));
		if (renameat(dir_fd, from, dir_fd, to))
			vb_log(VB_LOG_WARN, "broker: %s/%s: %s", rt->dir, to, strerror(errno));
	}
out:
	if (dir_fd >= 0)
		close(dir_fd);
	free(old);
}

void vb_state_put(struct vb_state *s, const struct vb_state_lane *lane, uint32_t next)
{
	struct file_lane rec = {
	        .incarnation = lane->incarnation,
	        .starttime = lane->starttime,
	        .lane = lane->lane,
	        .uid = lane->uid,
	        .pid = lane->pid,
	};

	if (s->fd < 0)
		return;
	rec.check = lane_checksum(&rec);
	if (pwrite(s->fd, &rec, sizeof(rec), (off_t)(lane->lane * sizeof(rec))) != sizeof(rec))
		vb_log(VB_LOG_WARN, "broker: state file: %s", strerror(errno));
	if (next != s->next) {
		s->next = next;
		write_head(s);
	}
}

void vb_state_clear(struct vb_state *s, uint32_t lane)
{
	struct file_lane rec = {0};

	if (s->fd >= 0 && pwrite(s->fd, &rec, sizeof(rec), (off_t)(lane * sizeof(rec))) != sizeof(rec))
		vb_log(VB_LOG_WARN, "broker: state file: %s", strerror(errno));
}

void vb_state_close(struct vb_state *s, const struct vb_runtime *rt, bool keep)
{
	char name[96];
	int dir_fd = s->fd >= 0 && !keep ? vb_runtime_open_dir(rt) : -1;

	if (dir_fd >= 0) {
		file_name(rt, ".state", name, sizeof(name));
		unlinkat(dir_fd, name, 0);
		close(dir_fd);
	}
	if (s->fd >= 0)
		close(s->fd);
	s->fd = -1;
}
