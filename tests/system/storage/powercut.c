// powercut.c - writes to a disk whose power is cut again and again, and checks every block
// follows: verbena_nvme.h (flush, FUA, reconnects); NVM Express Base 1.4, 6.8 (flush)
// SPDX-License-Identifier: MIT
// usage: powercut URL ROUNDS SEED power|process|control
//
// Prints "cut" to have the power cut and restored, and waits for a line that confirms it; driven by powercut.sh.
// power: data that was flushed, or written with FUA, must be there. process: only a process is killed, so all answered
// writes must be there. control: like power, but without flushes: succeeds if the loss is detected.
#include <poll.h>
#include <stdbool.h>
#include <unistd.h>

#include "../../support/check.h"
#include "client/verbena_nvme.h"
#include "client_load.h"

#define DEPTH 16
#define LARGEST (64u << 10)
#define HEAD 16u /* content of a block: its number and its generation */

/* The state of a block, in generations; 0 is the initial zeros. */
struct block {
	uint64_t sent, answered;
	uint64_t lasting;  /* at least this generation must be found */
	uint64_t flushing; /* the generation that the outstanding flush makes durable */
	uint64_t epoch;    /* number of reconnects when it was sent */
	uint64_t flushing_epoch;
	bool busy;
};

struct slot {
	uint8_t *data;
	uint64_t first;
	uint32_t n;
	bool busy, fua;
};

static struct vn_disk *disk;
static struct block *blocks;
static struct slot slots[DEPTH];
static uint64_t count, seed, data_seed, writes, flushes, lost, gone;
static uint32_t block_size;
static bool process, control, fua, flushing;
static unsigned under_way;

static uint64_t epoch(void)
{
	struct vn_statistics s;

	vn_statistics(disk, &s);
	return s.reconnects;
}

/* ---- content of a block ---- */

static void fill(uint8_t *at, uint64_t number, uint64_t generation)
{
	uint64_t s = data_seed ^ number << 32 ^ generation, x;

	memset(at, 0, block_size);
	if (!generation)
		return;
	memcpy(at, &number, 8);
	memcpy(at + 8, &generation, 8);
	for (uint32_t i = HEAD; i < block_size; i += 8) {
		x = draw(&s);
		memcpy(at + i, &x, 8);
	}
}

static void look_at(uint64_t number, const uint8_t *at)
{
	struct block *b = &blocks[number];
	uint8_t should[4096];
	uint64_t found;

	memcpy(&found, at + 8, 8);
	fill(should, number, found);
	if (found > b->sent || memcmp(at, should, block_size)) {
		fprintf(stderr, "block %llu is what was never written there\n", (unsigned long long)number);
		exit(1);
	}
	gone += found < b->answered;
	if (found >= b->lasting)
		return;
	lost++;
	if (control)
		return;
	fprintf(stderr, "block %llu was safe at its write %llu, and is back at %llu of %llu\n",
	        (unsigned long long)number, (unsigned long long)b->lasting, (unsigned long long)found,
	        (unsigned long long)b->sent);
	exit(1);
}

/* Reads with the surviving disk, or with a new one. */
static void look(struct vn_disk *d)
{
	uint8_t *all = malloc(count * block_size);

	CHECK(all);
	SAME(vn_read_wait(d, all, count * block_size, 0), 0);
	for (uint64_t i = 0; i < count; i++)
		look_at(i, all + i * block_size);
	free(all);
}

/* ---- the load ---- */

static void written(void *arg, int error)
{
	struct slot *s = arg;

	SAME(error, 0);
	for (uint64_t i = s->first; i < s->first + s->n; i++) {
		struct block *b = &blocks[i];

		b->busy = false;
		b->answered = b->sent;
		if (process || s->fua)
			b->lasting = b->sent;
	}
	s->busy = false;
	under_way--;
	writes++;
}

static void begin_write(struct slot *s)
{
	s->n = 1 + (uint32_t)(draw(&seed) % (draw(&seed) % 4 ? 8 : LARGEST / block_size));
	s->first = draw(&seed) % (count - s->n + 1);
	for (uint64_t i = s->first; i < s->first + s->n; i++)
		if (blocks[i].busy)
			return; /* another time */
	s->fua = fua && draw(&seed) % 16 == 0;
	for (uint64_t i = s->first; i < s->first + s->n; i++) {
		blocks[i].busy = true;
		blocks[i].epoch = epoch();
		fill(s->data + (i - s->first) * block_size, i, ++blocks[i].sent);
	}
	s->busy = true;
	under_way++;
	SAME(vn_write(disk, s->data, (size_t)s->n * block_size, s->first * block_size, s->fua ? VN_FUA : 0, written, s),
	     0);
}

/*
 * Writes answered before the flush was started are durable, if both went to a disk with uninterrupted power: a flush
 * after a cut does not bring back a write answered before it.
 */
static void flushed(void *arg, int error)
{
	uint64_t now = epoch();

	SAME(error, 0);
	for (uint64_t i = 0; i < count; i++)
		if (blocks[i].flushing > blocks[i].lasting && blocks[i].flushing_epoch == now)
			blocks[i].lasting = blocks[i].flushing;
	flushing = false;
	flushes++;
}

static void begin_flush(void)
{
	flushing = true;
	for (uint64_t i = 0; i < count; i++) {
		struct block *b = &blocks[i];

		if (b->answered != b->sent) /* the epoch is that of the newer write */
			continue;
		b->flushing = b->answered;
		b->flushing_epoch = b->epoch;
	}
	if (control)
		flushed(NULL, 0);
	else
		SAME(vn_flush(disk, 0, flushed, NULL), 0);
}

static void load(void)
{
	for (unsigned i = 0; i < DEPTH; i++)
		if (!slots[i].busy)
			begin_write(&slots[i]);
	if (!flushing && draw(&seed) % 8 == 0)
		begin_flush();
	CHECK(vn_poll(disk, 10) >= 0);
}

/* ---- rounds ---- */

static bool power_is_back(void)
{
	struct pollfd p = {.fd = 0, .events = POLLIN};
	char line[16];

	if (poll(&p, 1, 0) <= 0)
		return false;
	ssize_t n = read(0, line, sizeof(line));

	CHECK(n > 0 && line[0] == 'o'); /* "on" */
	return true;
}

static void one_round(const char *url, const struct vn_options *o, bool anew)
{
	uint64_t before = epoch(), enough = writes + 1 + draw(&seed) % 600;
	struct vn_disk *d;
	char why[200] = "";

	fua = anew && !control; /* a write with FUA may flush other writes, so not in every round */
	while (writes < enough)
		load();
	printf("cut\n");
	fflush(stdout);
	while (!power_is_back())
		load();
	enough = writes + 1;
	while (epoch() == before || writes < enough)
		load();
	while (under_way || flushing)
		CHECK(vn_poll(disk, -1) >= 0);
	if (!anew) {
		look(disk);
		return;
	}
	if (vn_open(url, o, &d, why, sizeof(why))) {
		fprintf(stderr, "%s: %s\n", url, why);
		exit(1);
	}
	look(d);
	vn_close(d);
}

static void make_ready(void)
{
	block_size = vn_info(disk)->block_size;
	count = vn_info(disk)->size / block_size;
	CHECK(block_size <= 4096 && count > LARGEST / block_size);
	blocks = calloc(count, sizeof(*blocks));
	CHECK(blocks);
	for (unsigned i = 0; i < DEPTH; i++)
		CHECK(!posix_memalign((void **)&slots[i].data, 4096, LARGEST));
}

int main(int argc, char **argv)
{
	struct vn_options o;
	char why[200] = "";

	CHECK(argc == 5);
	unsigned rounds = (unsigned)atoi(argv[2]);

	seed = data_seed = strtoull(argv[3], NULL, 10) * 2 + 1;
	process = !strcmp(argv[4], "process");
	control = !strcmp(argv[4], "control");
	vn_options_init(&o);
	o.numeric = 1;
	o.reconnect_pause_ms = 50;
	if (vn_open(argv[1], &o, &disk, why, sizeof(why))) {
		fprintf(stderr, "%s: %s\n", argv[1], why);
		return 1;
	}
	make_ready();
	for (unsigned i = 0; i < rounds; i++)
		one_round(argv[1], &o, i % 2);
	printf("%u cuts, %llu reconnects, %llu writes, %llu flushes; blocks answered and gone: %llu, flushed and gone: "
	       "%llu\n",
	       rounds, (unsigned long long)epoch(), (unsigned long long)writes, (unsigned long long)flushes,
	       (unsigned long long)gone, (unsigned long long)lost);
	vn_close(disk);
	return control ? !lost : 0;
}
