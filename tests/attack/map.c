// map.c - a peer that forges /proc/PID/maps, where its shared mappings are looked for: only its own memory is opened or
// written
// follows: proc(5): /proc/pid/maps
// see: path/local/shared_map.c
// SPDX-License-Identifier: MIT
#include "pair.h"

#include <fcntl.h>
#include <limits.h>
#include <sched.h>
#include <sys/inotify.h>
#include <sys/ipc.h>
#include <sys/mman.h>
#include <sys/mount.h>
#include <sys/shm.h>
#include <sys/stat.h>
#include <sys/sysmacros.h>

#define BYTES 65536
#define WRITES 40 /* a region is mapped after 16 uses */

struct bait {
	void (*lay)(struct mem *m, struct dev *d); /* in the attacker: the region that is written */
	bool opened_is_wrong;
	char dir[64], name[128]; /* the file that must not be opened */
};
static struct bait *bait; /* the attacker's */

/* Tells how often the bait was opened, and whether the region contains the written data. */
static void angler(int fd, void *arg)
{
	struct inotify_event events[64];
	struct dev d;
	struct link l;
	struct mem m;
	uint8_t last;

	bait = arg;
	dev_open(&d);
	bait->lay(&m, &d);
	int watch = inotify_init1(IN_NONBLOCK | IN_CLOEXEC);

	CHECK(watch >= 0);
	if (bait->opened_is_wrong)
		CHECK(inotify_add_watch(watch, bait->name, IN_OPEN) >= 0);
	link_make(&l, &d, &(struct conf){0});
	mem_tell(&m, fd);
	link_join(&l, fd);
	hear(fd, &last, 1);
	SAME(m.p[100], last);
	CHECK(read(watch, events, sizeof(events)) < 0 && errno == EAGAIN);
	tell(fd, "o", 1);
	hear(fd, &last, 1);
	_exit(0);
}

static void write_into(struct bait *b)
{
	struct peer p = start(angler, b);
	struct dev d;
	struct link l;
	struct mem m;
	char c;

	dev_open(&d);
	mem_make(&m, &d, 4096);
	link_make(&l, &d, &(struct conf){0});
	struct far far = far_hear(p.fd);

	link_join(&l, p.fd);
	for (int i = 1; i <= WRITES; i++) {
		m.p[0] = (uint8_t)i;
		POST(&l, .op = IBV_WR_RDMA_WRITE, .id = 1, .m = &m, .len = 1, .far = far, .far_off = 100);
		expect(l.scq, 1, IBV_WC_SUCCESS);
	}
	tell(p.fd, &(uint8_t){WRITES}, 1);
	hear(p.fd, &c, 1);
	tell(p.fd, "e", 1);
	finish(&p);
}

static void reg_at(struct mem *m, struct dev *d, void *p)
{
	CHECK(p != MAP_FAILED);
	*m = (struct mem){p, BYTES, NULL};
	mem_reg(m, d, ALL_ACCESS);
}

static int new_file(const char *name)
{
	int fd = open(name, O_RDWR | O_CREAT | O_EXCL | O_CLOEXEC, 0600);

	CHECK(fd >= 0 && !ftruncate(fd, BYTES));
	return fd;
}

static struct bait bait_in_a_folder(void)
{
	struct bait b = {.opened_is_wrong = true, .dir = "/tmp/verbena-bait-XXXXXX"};

	CHECK(mkdtemp(b.dir));
	return b;
}

static void clean(const struct bait *b)
{
	char cmd[100];

	snprintf(cmd, sizeof(cmd), "rm -rf '%s'", b->dir);
	CHECK(!system(cmd));
}

/* The kernel names a deleted file "NAME (deleted)". Another file has that name. */
static void *map_a_deleted_file(void)
{
	char name[100];

	snprintf(name, sizeof(name), "%s/x", bait->dir);
	int fd = new_file(name);
	void *p = mmap(NULL, BYTES, PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0);

	CHECK(!close(fd) && !unlink(name));
	return p;
}

static void lay_fifo(struct mem *m, struct dev *d)
{
	void *p = map_a_deleted_file();

	CHECK(!mkfifo(bait->name, 0600));
	reg_at(m, d, p);
}

static void a_fifo_with_the_name_of_a_mapped_file_is_not_opened(void)
{
	struct bait b = bait_in_a_folder();

	b.lay = lay_fifo;
	snprintf(b.name, sizeof(b.name), "%s/x (deleted)", b.dir);
	write_into(&b);
	clean(&b);
}

static void lay_link(struct mem *m, struct dev *d)
{
	char link[100];
	void *p = map_a_deleted_file();

	snprintf(link, sizeof(link), "%s/x (deleted)", bait->dir);
	CHECK(!mkfifo(bait->name, 0600) && !symlink(bait->name, link));
	reg_at(m, d, p);
}

static void a_link_with_the_name_of_a_mapped_file_is_not_followed(void)
{
	struct bait b = bait_in_a_folder();

	b.lay = lay_link;
	snprintf(b.name, sizeof(b.name), "%s/device", b.dir);
	write_into(&b);
	clean(&b);
}

/* The offset of the file's name in a line of /proc/self/maps. */
static size_t column_of_names(void)
{
	FILE *f = fopen("/proc/self/maps", "re");
	char line[PATH_MAX + 100];
	size_t at = 0;

	CHECK(f);
	while (!at && fgets(line, sizeof(line), f))
		at = strchr(line, '/') ? (size_t)(strchr(line, '/') - line) : 0;
	fclose(f);
	CHECK(at);
	return at;
}

/* A folder whose path has this length; its names are zeros. */
static void lengthen(char *path, size_t want)
{
	for (size_t n = strlen(path); n < want; n = strlen(path)) {
		size_t left = want - n, part = left > 400 ? 200 : left > 200 ? left / 2 : left;

		sprintf(path + n, "/%0*d", (int)part - 1, 0);
	}
}

/* A mapping below the region, of a file with a long name: a reader of 1024 bytes takes its end for another line, which
 * says that the region maps the bait. */
static void lay_line(struct mem *m, struct dev *d)
{
	char *low = (char *)FAR_AWAY, *region = low + (1ul << 32), deep[PATH_MAX], cmd[PATH_MAX + 20];
	struct stat st;
	int fd = new_file(bait->name);

	CHECK(!fstat(fd, &st) && !close(fd));
	strcpy(deep, bait->dir);
	lengthen(deep, 1023 - column_of_names() - 1);
	sprintf(deep + strlen(deep), "/%lx-%lx rw-s 00000000 %02x:%02x %lu %s", (unsigned long)region,
	        (unsigned long)region + BYTES, major(st.st_dev), minor(st.st_dev), (unsigned long)st.st_ino,
	        bait->name);
	*strrchr(deep, '/') = 0;
	snprintf(cmd, sizeof(cmd), "mkdir -p '%s'", deep);
	CHECK(!system(cmd));
	strcat(deep, strrchr(bait->name, '/'));
	fd = new_file(deep);
	CHECK(mmap(low, 4096, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_FIXED_NOREPLACE, fd, 0) == low && !close(fd));
	reg_at(m, d,
	       mmap(region, BYTES, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_FIXED_NOREPLACE, -1, 0));
}

static void a_line_forged_by_a_long_name_is_not_believed(void)
{
	struct bait b = bait_in_a_folder();

	b.lay = lay_line;
	snprintf(b.name, sizeof(b.name), "%s/victim", b.dir);
	write_into(&b);
	clean(&b);
}

/* --- SysV: the id of a mapping must name the same segment here --- */

static uint8_t *own_segment(int want)
{
	for (int i = 0; i <= want; i++) {
		int id = shmget(IPC_PRIVATE, BYTES, IPC_CREAT | 0600);

		CHECK(id >= 0);
		uint8_t *p = shmat(id, NULL, 0);

		CHECK(p != (void *)-1 && !shmctl(id, IPC_RMID, NULL));
		if (id == want)
			return p;
	}
	skip("ids of SysV segments are not counted from 0 here");
}

static void lay_foreign_segment(struct mem *m, struct dev *d)
{
	CHECK(!unshare(CLONE_NEWIPC));
	reg_at(m, d, own_segment(2));
}

/* Its number is that of segment 2, and none of our folders is above it any more. */
static void lay_file_called_like_a_segment(struct mem *m, struct dev *d)
{
	struct stat st;
	int fd;

	CHECK(!unshare(CLONE_NEWNS) && !mount(NULL, "/", NULL, MS_REC | MS_PRIVATE, NULL));
	CHECK(!mount("bait", bait->dir, "tmpfs", 0, NULL) && !chdir(bait->dir));
	fd = new_file("SYSV00000000");
	CHECK(!fstat(fd, &st));
	if (st.st_ino != 2)
		skip("tmpfs counts its files in another way");
	void *p = mmap(NULL, BYTES, PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0);

	CHECK(!close(fd) && !chdir("/") && !umount2(bait->dir, MNT_DETACH));
	reg_at(m, d, p);
}

static void writes_spare_our_segment(struct bait *b, int id)
{
	if (unshare(CLONE_NEWIPC))
		skip("no right to an IPC namespace");
	uint8_t *ours = own_segment(id);

	write_into(b);
	for (int i = 0; i < BYTES; i++)
		CHECK(!ours[i]);
}

static void a_segment_of_another_ipc_namespace_is_not_taken_for_ours(void)
{
	struct bait b = {.lay = lay_foreign_segment};

	writes_spare_our_segment(&b, 2);
}

static void a_file_that_is_called_like_a_segment_is_not_taken_for_one(void)
{
	struct bait b = bait_in_a_folder();

	b.opened_is_wrong = false;
	b.lay = lay_file_called_like_a_segment;
	writes_spare_our_segment(&b, 2);
	clean(&b);
}

int main(int argc, char **argv)
{
	static const struct test tests[] = {
	        {"a FIFO with the name of a mapped file is not opened",
	         a_fifo_with_the_name_of_a_mapped_file_is_not_opened},
	        {"a link with the name of a mapped file is not followed",
	         a_link_with_the_name_of_a_mapped_file_is_not_followed},
	        {"a line forged by a long name is not believed", a_line_forged_by_a_long_name_is_not_believed},
	        {"a segment of another IPC namespace is not taken for ours",
	         a_segment_of_another_ipc_namespace_is_not_taken_for_ours},
	        {"a file that is called like a segment is not taken for one",
	         a_file_that_is_called_like_a_segment_is_not_taken_for_one},
	};

	return RUN_TESTS(argc, argv, tests);
}
