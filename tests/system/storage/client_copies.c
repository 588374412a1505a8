// client_copies.c - reads a disk with known content, and prints how many bytes the library copied for it
// follows: verbena_nvme.h
// SPDX-License-Identifier: MIT
// usage: client_copies URL FILE allocated|registered|plain BYTES; BYTES: of a request
#include "../../support/check.h"

#include <fcntl.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#include "client/verbena_nvme.h"

#define DEPTH 8

struct reader {
	struct vn_disk *disk;
	const uint8_t *file; /* the expected data */
	uint64_t size, next;
	size_t bytes;
	unsigned under_way;
};

struct slot {
	struct reader *reader;
	uint8_t *data;
	uint64_t at;
};

static void begin(struct slot *s);

static void done(void *arg, int error)
{
	struct slot *s = arg;

	SAME((unsigned)-error, 0u);
	CHECK(!memcmp(s->data, s->reader->file + s->at, s->reader->bytes));
	s->reader->under_way--;
	begin(s);
}

static void begin(struct slot *s)
{
	struct reader *r = s->reader;

	if (r->next == r->size)
		return;
	s->at = r->next;
	r->next += r->bytes;
	r->under_way++;
	CHECK(!vn_read(r->disk, s->data, r->bytes, s->at, 0, done, s));
}

static uint8_t *memory(struct vn_disk *d, const char *kind, size_t length)
{
	struct vn_memory *m;
	void *at;

	if (!strcmp(kind, "allocated")) {
		CHECK(!vn_allocate(d, length, &at, &m));
		return at;
	}
	CHECK(!posix_memalign(&at, 4096, length));
	memset(at, 1, length); /* its pages exist */
	CHECK(!strcmp(kind, "plain") || !vn_register(d, at, length, &m));
	return at;
}

static const uint8_t *map(const char *path, uint64_t *size)
{
	int fd = open(path, O_RDONLY);
	struct stat st;

	CHECK(fd >= 0 && !fstat(fd, &st));
	const uint8_t *at = mmap(NULL, (size_t)st.st_size, PROT_READ, MAP_SHARED, fd, 0);

	CHECK(at != MAP_FAILED);
	close(fd);
	*size = (uint64_t)st.st_size;
	return at;
}

int main(int argc, char **argv)
{
	struct reader r = {0};
	struct slot slots[DEPTH];
	struct vn_options o;
	struct vn_statistics s;
	char why[200] = "";

	CHECK(argc == 5);
	r.file = map(argv[2], &r.size);
	r.bytes = strtoul(argv[4], NULL, 10);
	CHECK(r.bytes && r.size && !(r.size % r.bytes));
	vn_options_init(&o);
	o.numeric = 1;
	if (vn_open(argv[1], &o, &r.disk, why, sizeof(why))) {
		fprintf(stderr, "%s: %s\n", argv[1], why);
		return 1;
	}
	SAME(vn_info(r.disk)->size, r.size);
	uint8_t *data = memory(r.disk, argv[3], DEPTH * r.bytes);

	for (unsigned i = 0; i < DEPTH; i++) {
		slots[i] = (struct slot){.reader = &r, .data = data + i * r.bytes};
		begin(&slots[i]);
	}
	while (r.under_way)
		vn_poll(r.disk, -1);
	vn_statistics(r.disk, &s);
	SAME(s.bytes_read, r.size);
	SAME(s.reconnects, 0u);
	printf("copied %llu\n", (unsigned long long)s.bytes_copied);
	vn_close(r.disk);
	return 0;
}
