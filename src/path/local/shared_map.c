// shared_map.c - maps a peer's region that is shared memory (a file, a memfd, SysV), so that memcpy can copy to it
// follows: proc_pid_maps(5), proc_pid_fd(5), shmat(2); docs/same-host.md
// SPDX-License-Identifier: MIT
#include <dirent.h>
#include <fcntl.h>
#include <inttypes.h>
#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/shm.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <sys/sysmacros.h>
#include <unistd.h>

#include "core/import.h"
#include "engine/local/local.h"
#include "node/io.h"
#include "path/local/shared_map.h"

/* A region is mapped after this many operations on it, so that a short-lived one costs nothing. */
#define TRY_AFTER 16u
#define MAPS_MAX 32u

/* One for each R_Key in use. Its state is under peer->map_lock. Only the progress thread maps and unmaps, with no lock
 * held, because the peer chooses the file, and opening it may take long. */
struct vb_map {
	uint32_t key;
	uint32_t uses;         /* operations so far, counted until the mapping is tried */
	uint64_t addr, length; /* the key's region at the first operation */
	uint8_t *local;        /* our mapping of addr, or NULL */
	void *base;            /* start of our mapping */
	size_t size;
	bool sysv;
	bool wanted;   /* the progress thread is to map it */
	bool tried;    /* that was done: local says whether it worked */
	bool ended;    /* the progress thread is to unmap it; not used any more */
	unsigned busy; /* copies in progress through it, and the progress thread while it maps it */
	struct vb_map *next;
};

/* One mapping in the peer's address space. */
struct vma {
	uint64_t start, end, offset, inode;
	unsigned major, minor;
	char path[PATH_MAX + 16]; /* " (deleted)" may follow */
};

/* Finds the writable shared mapping of the address in /proc/pid/maps. Reads whole lines: the peer chooses its file
 * names, and a part of a line could look like another line. */
static bool find_vma(int pid, uint64_t addr, struct vma *out)
{
	char name[64], perms[8], *line = NULL;
	size_t room = 0;
	FILE *f;
	bool found = false;

	snprintf(name, sizeof(name), "/proc/%d/maps", pid);
	f = fopen(name, "re");
	while (f && !found && getline(&line, &room, f) > 0) {
		int at = 0;

		if (sscanf(line, "%" SCNx64 "-%" SCNx64 " %7s %" SCNx64 " %x:%x %" SCNu64 " %n", &out->start, &out->end,
		           perms, &out->offset, &out->major, &out->minor, &out->inode, &at) < 7)
			continue;
		snprintf(out->path, sizeof(out->path), "%.*s", (int)strcspn(line + at, "\n"), line + at);
		found = addr >= out->start && addr < out->end && perms[3] == 's' && perms[1] == 'w' && out->inode;
	}
	free(line);
	if (f)
		fclose(f);
	return found;
}

static bool is_on(const struct stat *st, const struct vma *v)
{
	return major(st->st_dev) == v->major && minor(st->st_dev) == v->minor;
}

static bool is_file(int fd, const struct vma *v)
{
	struct stat st;

	return !fstat(fd, &st) && S_ISREG(st.st_mode) && st.st_ino == v->inode && is_on(&st, v);
}

/* Nobody may open the memory of tools/memory by name. Its descriptor goes to those who may trace its owner. */
static int copy_descriptor(int pid, int number, const struct vma *v)
{
	int pid_fd = pid ? (int)syscall(SYS_pidfd_open, pid, 0) : -1, fd = -1;

	if (pid_fd >= 0) {
		fd = (int)syscall(SYS_pidfd_getfd, pid_fd, number, 0);
		close(pid_fd);
	}
	if (fd < 0 || (is_file(fd, v) && (fcntl(fd, F_GETFL) & O_ACCMODE) == O_RDWR))
		return fd;
	close(fd);
	return -1;
}

/* Opens the name only if it is the mapping's file. The peer chose the name, and opening a FIFO or a device would have
 * side effects. pid is not 0: the name is that of its descriptor `number`. */
static int open_if_file(const char *name, int flags, int pid, int number, const struct vma *v)
{
	int seen = open(name, O_PATH | O_CLOEXEC | flags), fd = -1;
	char again[64];

	if (seen >= 0 && is_file(seen, v)) {
		snprintf(again, sizeof(again), "/proc/self/fd/%d", seen);
		fd = open(again, O_RDWR | O_CLOEXEC | O_NONBLOCK | O_NOCTTY);
		if (fd < 0)
			fd = copy_descriptor(pid, number, v);
	}
	if (seen >= 0)
		close(seen);
	return fd;
}

/* Opens the file by its path, or by a descriptor that the peer has open. Returns -1 if neither works. */
static int open_file(int pid, const struct vma *v)
{
	char name[300];
	struct dirent *e;
	int fd = v->path[0] == '/' ? open_if_file(v->path, O_NOFOLLOW, 0, 0, v) : -1;
	DIR *d = NULL;

	if (fd < 0) {
		snprintf(name, sizeof(name), "/proc/%d/fd", pid);
		d = opendir(name);
	}
	while (d && fd < 0 && (e = readdir(d))) {
		snprintf(name, sizeof(name), "/proc/%d/fd/%s", pid, e->d_name);
		fd = open_if_file(name, 0, pid, atoi(e->d_name), v);
	}
	if (d)
		closedir(d);
	return fd;
}

/* Returns true if the peer is in our IPC namespace. Another namespace (a container) has its own SysV ids. */
static bool same_ipc(int pid)
{
	struct stat theirs, ours;
	char name[64];

	snprintf(name, sizeof(name), "/proc/%d/ns/ipc", pid);
	return !stat(name, &theirs) && !stat("/proc/self/ns/ipc", &ours) && theirs.st_ino == ours.st_ino &&
	       theirs.st_dev == ours.st_dev;
}

/* Returns true if the mapping is a SysV segment, and not a file of that name: SysV segments are on the device of
 * memfds. */
static bool is_sysv(const struct vb_peer *peer, const struct vma *v)
{
	struct stat memfd;

	return !strncmp(v->path, "/SYSV", 5) && !fstat(peer->node->io->seg_fd, &memfd) && is_on(&memfd, v) &&
	       same_ipc(peer->pid);
}

static void map_sysv(struct vb_map *m, const struct vma *v)
{
	struct shmid_ds ds;
	void *p;

	p = shmat((int)v->inode, NULL, 0);
	if (p == (void *)-1)
		return;
	if (shmctl((int)v->inode, IPC_STAT, &ds) || ds.shm_segsz < v->offset + (m->addr - v->start) + m->length) {
		shmdt(p);
		return;
	}
	m->base = p;
	m->sysv = true;
	m->local = (uint8_t *)p + v->offset + (m->addr - v->start);
}

static void map_file(struct vb_map *m, int pid, const struct vma *v)
{
	int fd = open_file(pid, v);
	struct vma now;
	void *p = MAP_FAILED;

	if (fd < 0)
		return;
	/* check again that the mapping is of this file: now it is open, so no other file can get its inode number */
	if (find_vma(pid, m->addr, &now) && is_file(fd, &now) && now.start == v->start && now.end == v->end &&
	    now.offset == v->offset)
		p = mmap(NULL, v->end - v->start, PROT_READ | PROT_WRITE, MAP_SHARED, fd, (off_t)v->offset);
	close(fd);
	if (p == MAP_FAILED)
		return;
	madvise(p, v->end - v->start, MADV_DONTFORK);
	m->base = p;
	m->size = v->end - v->start;
	m->local = (uint8_t *)p + (m->addr - v->start);
}

/* Returns true if /proc belongs to our pid namespace. Otherwise its numbers mean other processes. */
static bool proc_is_ours(void)
{
	char self[32];
	ssize_t n = readlink("/proc/self", self, sizeof(self) - 1);

	if (n <= 0)
		return false;
	self[n] = 0;
	return atoi(self) == getpid();
}

static bool region_is_live(const struct vb_peer *peer, const struct vb_map *m)
{
	struct vb_mr_view view;

	return vb_mr_read_shared(peer->seg, m->key, &view) && view.addr == m->addr && view.length == m->length;
}

static void region_unmap(struct vb_map *m)
{
	if (m->base && m->sysv)
		shmdt(m->base);
	else if (m->base)
		munmap(m->base, m->size);
	m->base = m->local = NULL;
}

/* m is a copy of the entry. A region that has ended meanwhile is not mapped: its addresses may be those of another file
 * now. */
static void region_map(struct vb_peer *peer, struct vb_map *m)
{
	struct vma v;

	VB_MAY_WAIT();
	if (!proc_is_ours() || !find_vma(peer->pid, m->addr, &v) || m->length > v.end - m->addr || !vb_peer_alive(peer))
		return;
	if (is_sysv(peer, &v))
		map_sysv(m, &v);
	else
		map_file(m, peer->pid, &v);
	if (!vb_peer_alive(peer) || !region_is_live(peer, m))
		region_unmap(m);
}

bool vb_shared_map_region(struct vb_peer *peer, const struct vb_mr_view *view, struct vb_region_map *map)
{
	struct vb_map m = {.key = map->key, .addr = view->addr, .length = view->length};

	region_map(peer, &m);
	map->local = m.local;
	map->base = m.base;
	map->size = m.size;
	map->sysv = m.sysv;
	return m.local;
}

void vb_shared_map_end(struct vb_region_map *map)
{
	struct vb_map m = {.base = map->base, .size = map->size, .sysv = map->sysv};

	region_unmap(&m);
}

/* Forgets keys of ended regions, and all keys if there are too many. true: there is something to unmap. Under
 * map_lock. */
static bool maps_sweep(struct vb_peer *peer)
{
	bool unmap = false;
	unsigned n = 0;

	for (struct vb_map **at = &peer->maps; *at;) {
		struct vb_map *m = *at;

		if (m->ended || m->busy || (region_is_live(peer, m) && ++n <= MAPS_MAX)) {
			at = &m->next;
		} else if (m->base) {
			m->ended = unmap = true;
		} else {
			*at = m->next;
			free(m);
		}
	}
	return unmap;
}

static void maps_note(struct vb_node *node)
{
	if (atomic_exchange(&node->io->maps_noted, true))
		return;
	vb_progress_wake(node);
	/* the thread may need this core, which the program's polls use: the next poll in vain gives way */
	atomic_store_explicit(&node->empty_polls, VB_YIELD_NOW, memory_order_relaxed);
}

/* The region's entry, which is made if there is none. Counts a use of it. Under map_lock. */
static struct vb_map *map_entry(struct vb_peer *peer, uint32_t key, const struct vb_mr_view *view, bool *note)
{
	struct vb_map *m;

	for (m = peer->maps; m; m = m->next)
		if (m->key == key && m->addr == view->addr && m->length == view->length && !m->ended)
			break;
	if (!m) {
		*note = maps_sweep(peer);
		m = calloc(1, sizeof(*m));
		if (m) {
			*m = (struct vb_map){
			        .key = key, .addr = view->addr, .length = view->length, .next = peer->maps};
			peer->maps = m;
		}
	}
	if (m && m->uses <= TRY_AFTER && ++m->uses == TRY_AFTER && m->length)
		m->wanted = *note = true;
	return m;
}

enum vb_mapped vb_map_ask(struct vb_peer *peer, uint32_t key, const struct vb_mr_view *view)
{
	enum vb_mapped answer = VB_MAPPED_NEVER;
	bool note = false;

	if (peer->self || !atomic_load_explicit(&peer->copy_ok, memory_order_relaxed))
		return VB_MAPPED_NEVER;
	vb_lock(&peer->map_lock);
	struct vb_map *m = map_entry(peer, key, view, &note);

	if (m && m->local)
		answer = VB_MAPPED;
	else if (m && m->length && !m->tried)
		answer = VB_MAPPED_LATER;
	vb_unlock(&peer->map_lock);
	if (note)
		maps_note(peer->node);
	return answer;
}

struct vb_map *vb_map_take(struct vb_peer *peer, uint32_t key, const struct vb_mr_view *view, uint64_t va,
                           uint64_t *local)
{
	bool note = false;

	if (peer->self || !atomic_load_explicit(&peer->copy_ok, memory_order_relaxed))
		return NULL;
	vb_lock(&peer->map_lock);
	struct vb_map *m = map_entry(peer, key, view, &note);

	if (m && m->local) {
		m->busy++;
		*local = (uintptr_t)m->local + (va - m->addr);
	} else {
		m = NULL;
	}
	vb_unlock(&peer->map_lock);
	if (note)
		maps_note(peer->node);
	return m;
}

void vb_map_drop(struct vb_peer *peer, struct vb_map *m)
{
	vb_lock(&peer->map_lock);
	m->busy--;
	vb_unlock(&peer->map_lock);
}

/* Maps what is wanted of this peer's. */
static void peer_maps_make(struct vb_peer *peer)
{
	for (;;) {
		struct vb_map *m, made;

		vb_lock(&peer->map_lock);
		for (m = peer->maps; m && !m->wanted; m = m->next)
			;
		if (m) {
			m->wanted = false;
			m->busy++;
			made = *m;
		}
		vb_unlock(&peer->map_lock);
		if (!m)
			return;
		region_map(peer, &made);
		vb_lock(&peer->map_lock);
		m->local = made.local;
		m->base = made.base;
		m->size = made.size;
		m->sysv = made.sysv;
		m->tried = true;
		m->busy--;
		vb_unlock(&peer->map_lock);
	}
}

static void peer_maps_reap(struct vb_peer *peer)
{
	struct vb_map *ended = NULL;

	vb_lock(&peer->map_lock);
	for (struct vb_map **at = &peer->maps; *at;) {
		struct vb_map *m = *at;

		if (m->ended) {
			*at = m->next;
			m->next = ended;
			ended = m;
		} else {
			at = &m->next;
		}
	}
	vb_unlock(&peer->map_lock);
	vb_maps_free(ended);
}

/* A peer is unmapped by this thread alone, so all stay. */
void vb_maps_work(struct vb_node *node)
{
	struct vb_io *io = node->io;

	if (!atomic_load_explicit(&io->maps_noted, memory_order_relaxed) || !atomic_exchange(&io->maps_noted, false))
		return;
	for (struct vb_peer *p = io->all; p; p = p->next) {
		if (!p->map)
			continue;
		peer_maps_reap(p);
		peer_maps_make(p);
	}
}

void vb_maps_free(struct vb_map *maps)
{
	while (maps) {
		struct vb_map *next = maps->next;

		region_unmap(maps);
		free(maps);
		maps = next;
	}
}
