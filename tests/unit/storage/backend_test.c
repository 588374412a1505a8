// backend_test.c - every backend stores its data, with io_uring and with threads
// see: backend/backend.h
// SPDX-License-Identifier: MIT
#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <sys/stat.h>
#include <unistd.h>

#include "backend/ring.h"
#include "../../support/check.h"

#define SIZE (4u << 20)

static struct nb_ring *ring;
static char path[64];
static int outcome;
static unsigned pending;

static void done(struct nb_request *r, int error)
{
	outcome = error;
	pending--;
}

static int wait_for_all(void)
{
	while (pending) {
		struct pollfd p = {.fd = nb_ring_fd(ring), .events = POLLIN};

		nb_ring_flush(ring);
		SAME(poll(&p, 1, 20000), 1);
		nb_ring_reap(ring);
	}
	return outcome;
}

static int act(struct nb_backend *b, enum nb_op op, uint64_t offset, uint64_t length, void *data, bool fua)
{
	struct nb_request r = {
	        .op = op, .offset = offset, .length = length, .data = data, .fua = fua, .may_punch = fua, .done = done};

	pending = 1;
	nb_submit(b, &r);
	return wait_for_all();
}

static void make_file(uint64_t size)
{
	strcpy(path, "/tmp/verbena-backend.XXXXXX");
	int fd = mkstemp(path);

	CHECK(fd >= 0 && !ftruncate(fd, (off_t)size));
	close(fd);
}

static uint8_t out[1 << 20] __attribute__((aligned(4096))), in[1 << 20] __attribute__((aligned(4096)));

static void keeps(const char *kind, bool buffered)
{
	struct nb_config c = {
	        .kind = kind, .path = path, .size = strcmp(kind, "memory") ? 0 : SIZE, .buffered = buffered};
	struct nb_backend *b;
	uint8_t *odd = out + 4096 + 8; /* not aligned for O_DIRECT */

	SAME(nb_open(&c, ring, &b), 0);
	SAME(b->size, SIZE);
	for (size_t i = 0; i < sizeof(out); i++)
		out[i] = (uint8_t)(i * 31 + i / 4096);
	SAME(act(b, NB_WRITE, 8192, sizeof(out), out, false), 0);
	SAME(act(b, NB_READ, 8192, sizeof(in), in, false), 0);
	CHECK(!memcmp(in, out, sizeof(in)));
	SAME(act(b, NB_WRITE, SIZE - 4096, 4096, out, true), 0);
	SAME(act(b, NB_FLUSH, 0, 0, NULL, false), 0);
	for (int punch = 0; punch < 2; punch++) {
		int error = act(b, punch ? NB_DISCARD : NB_ZERO, 16384, 65536, NULL, punch);

		CHECK(!error || error == EOPNOTSUPP);
		if (error)
			continue;
		SAME(act(b, NB_READ, 12288, 131072, in, false), 0);
		CHECK(!memcmp(in, out + 4096, 4096) && !in[4096] && !in[4096 + 65535] &&
		      !memcmp(in + 4096 + 65536, out + 8192 + 65536, 4096));
	}
	if (b->map)
		CHECK(!memcmp(b->map + 8192, out, 4096));
	if (buffered || !strcmp(kind, "mapped") || !strcmp(kind, "memory"))
		SAME(act(b, NB_WRITE, 0, 512, odd, false), 0);
	nb_close(b);
}

static void files_and_memory_keep_what_they_are_given(void)
{
	for (int threads = 0; threads < 2; threads++) {
		SAME(nb_ring_open(&ring, threads), 0);
		make_file(SIZE + 100);
		keeps("file", false);
		keeps("file", true);
		keeps("mapped", false);
		keeps("memory", false);
		unlink(path);
		nb_ring_close(ring);
	}
}

static void many_requests_are_under_way_at_a_time(void)
{
	static struct nb_request r[1000];
	struct nb_config c = {.kind = "file", .path = path};
	struct nb_backend *b;

	for (int threads = 0; threads < 2; threads++) {
		SAME(nb_ring_open(&ring, threads), 0);
		make_file(SIZE);
		SAME(nb_open(&c, ring, &b), 0);
		pending = 1000;
		for (unsigned i = 0; i < 1000; i++) {
			r[i] = (struct nb_request){
			        .op = NB_WRITE, .offset = i * 4096, .length = 4096, .data = out, .done = done};
			nb_submit(b, &r[i]);
		}
		SAME(wait_for_all(), 0);
		SAME(act(b, NB_READ, 999 * 4096, 4096, in, false), 0);
		CHECK(!memcmp(in, out, 4096));
		nb_close(b);
		unlink(path);
		nb_ring_close(ring);
	}
}

static void a_file_that_is_shorter_than_its_namespace_gives_errors(void)
{
	struct nb_config c = {.kind = "file", .path = path};
	struct nb_backend *b, *second;

	SAME(nb_ring_open(&ring, false), 0);
	make_file(SIZE);
	SAME(nb_open(&c, ring, &b), 0);
	SAME(nb_open(&c, ring, &second), EBUSY); /* two targets would not know each other */
	SAME(truncate(path, 8192), 0);
	SAME(act(b, NB_READ, 16384, 4096, in, false), EIO);
	SAME(nb_resize(b, 0), 0);
	SAME(b->size, 8192);
	SAME(nb_resize(b, SIZE), EFBIG);
	nb_close(b);
	unlink(path);
	nb_ring_close(ring);
}

static bool known_as(const char *name, const char *as)
{
	struct nb_backend *b;

	SAME(nb_open(&(struct nb_config){.kind = "file", .path = name, .readonly = true}, ring, &b), 0);
	CHECK(b->identity);
	bool same = !strcmp(b->identity, as);

	nb_close(b);
	return same;
}

static void an_image_is_known_again(void)
{
	struct nb_backend *b;
	char as[5000], moved[80];

	make_file(SIZE);
	SAME(nb_open(&(struct nb_config){.kind = "file", .path = path}, ring, &b), 0);
	CHECK(b->identity && strlen(b->identity) < sizeof(as));
	strcpy(as, b->identity);
	bool anywhere = b->identity_anywhere;

	nb_close(b);
	CHECK(known_as(path, as));
	snprintf(moved, sizeof(moved), "%s.moved", path);
	SAME(rename(path, moved), 0);
	if (anywhere) { /* otherwise only its path identifies it */
		CHECK(known_as(moved, as));
		make_file(SIZE);
		CHECK(!known_as(path, as));
		SAME(rename(path, moved), 0); /* another one in its place */
	}
	CHECK(!known_as(moved, as));
	unlink(moved);
}

static void what_cannot_be_opened_says_so(void)
{
	struct nb_backend *b;

	SAME(nb_ring_open(&ring, false), 0);
	SAME(nb_open(&(struct nb_config){.kind = "tape"}, ring, &b), ENODEV);
	SAME(nb_open(&(struct nb_config){.kind = "file", .path = "/nonexistent"}, ring, &b), ENOENT);
	SAME(nb_open(&(struct nb_config){.kind = "file", .path = "/tmp"}, ring, &b), EISDIR);
	SAME(nb_open(&(struct nb_config){.kind = "block", .path = "/dev/null"}, ring, &b), ENOTBLK);
	SAME(nb_open(&(struct nb_config){.kind = "memory"}, ring, &b), EINVAL);
	SAME(nb_open(&(struct nb_config){.kind = "memory", .size = UINT64_MAX}, ring, &b), EFBIG);
	SAME(nb_open(&(struct nb_config){.kind = "memory", .size = 4096, .block = 1000}, ring, &b), EINVAL);
	make_file(0);
	SAME(nb_open(&(struct nb_config){.kind = "file", .path = path}, ring, &b), ENODATA);
	unlink(path);
	nb_ring_close(ring);
}

static struct nb_clock ends_the_next, ended, last;
static unsigned turns_of_ended, turns_of_last;

static uint64_t end_the_next(struct nb_clock *c, uint64_t now)
{
	nb_ring_unclock(ring, c);
	nb_ring_unclock(ring, &ended);
	return 3000;
}

static uint64_t count_ended(struct nb_clock *c, uint64_t now)
{
	turns_of_ended++;
	return 1000;
}

static uint64_t count_last(struct nb_clock *c, uint64_t now)
{
	turns_of_last++;
	return 2000;
}

/* The last request of a namespace ends its medium, and perhaps a whole subsystem with others. */
static void a_turn_may_end_itself_and_the_next(void)
{
	ends_the_next.turn = end_the_next;
	ended.turn = count_ended;
	last.turn = count_last;
	SAME(nb_ring_open(&ring, false), 0);
	nb_ring_clock(ring, &last); /* what comes later has its turn earlier */
	nb_ring_clock(ring, &ended);
	nb_ring_clock(ring, &ends_the_next);
	SAME(nb_ring_turn(ring, 1), 2000);
	SAME(turns_of_ended, 0);
	SAME(turns_of_last, 1);
	SAME(nb_ring_turn(ring, 2), 2000);
	SAME(turns_of_last, 2);
	nb_ring_close(ring);
}

int main(void)
{
	RUN(files_and_memory_keep_what_they_are_given);
	RUN(many_requests_are_under_way_at_a_time);
	RUN(a_file_that_is_shorter_than_its_namespace_gives_errors);
	RUN(an_image_is_known_again);
	RUN(what_cannot_be_opened_says_so);
	RUN(a_turn_may_end_itself_and_the_next);
	return 0;
}
