// two_cores.c - the steps of a message on one host as bare loops: an estimate of what two cores can do
// see: bench/README.md, "floor"
// SPDX-License-Identifier: MIT
#include <pthread.h>
#include <stdalign.h>
#include <stdatomic.h>
#include <sys/mman.h>

#include "clock.h"

/*
 * lat: a message of 8 bytes is one cache line in a ring, whose first word is stored last. The receiver polls that word,
 * copies the 8 bytes into its buffer and answers in a ring of its own. Prints half of the way to and fro, in ns.
 *
 * rate: such messages in one direction; the receiver publishes its position each 16 messages. Prints millions per second.
 *
 * copy: messages of SIZE bytes in one direction. The sender copies pieces of at most 16 KiB from its buffer into the
 * ring, the receiver copies them into its buffer, at the same time. Prints MB/s.
 */
enum { LINE = 64, RING = 256 << 10, PIECE = 16 << 10, BATCH = 16 };

struct ring {
	alignas(128) _Atomic uint64_t published; /* for copy */
	alignas(128) _Atomic uint64_t consumed;
	alignas(4096) uint8_t byte[RING];
};

static struct ring *ring[2]; /* written by thread 0, by thread 1 */
static uint64_t messages;
static size_t size;

static _Atomic uint64_t *word_at(struct ring *r, uint64_t line)
{
	return (_Atomic uint64_t *)(r->byte + line * LINE % RING);
}

static void put_line(struct ring *r, uint64_t line, const uint64_t *payload)
{
	_Atomic uint64_t *at = word_at(r, line);

	memcpy((uint8_t *)at + 32, payload, sizeof(*payload));
	atomic_store_explicit(at, line + 1, memory_order_release);
	__builtin_prefetch((const void *)word_at(r, line + 1), 1);
}

static void get_line(struct ring *r, uint64_t line, uint64_t *payload)
{
	_Atomic uint64_t *at = word_at(r, line);

	while (atomic_load_explicit(at, memory_order_acquire) != line + 1)
		;
	memcpy(payload, (uint8_t *)at + 32, sizeof(*payload));
	__asm__ volatile("" : : "r"(payload) : "memory");
}

static void *answer_lines(void *arg)
{
	uint64_t payload;

	take_core(1);
	for (uint64_t i = 0; i < messages; i++) {
		get_line(ring[0], i, &payload);
		put_line(ring[1], i, &payload);
	}
	return arg;
}

static void ask_lines(void)
{
	uint64_t payload = 1;

	for (uint64_t i = 0; i < messages; i++) {
		put_line(ring[0], i, &payload);
		get_line(ring[1], i, &payload);
	}
}

static void *take_lines(void *arg)
{
	uint64_t payload;

	take_core(1);
	for (uint64_t i = 0; i < messages; i++) {
		get_line(ring[0], i, &payload);
		if (i % BATCH == BATCH - 1)
			atomic_store_explicit(&ring[0]->consumed, i + 1, memory_order_release);
	}
	return arg;
}

static void give_lines(void)
{
	uint64_t payload = 1, consumed = 0;

	for (uint64_t i = 0; i < messages; i++) {
		while (i - consumed >= RING / LINE - 1)
			consumed = atomic_load_explicit(&ring[0]->consumed, memory_order_acquire);
		put_line(ring[0], i, &payload);
	}
}

static size_t piece_at(uint64_t pos)
{
	size_t left = size - pos % size;

	return left < PIECE ? left : PIECE;
}

static void *take_pieces(void *arg)
{
	uint8_t *to = arg;
	uint64_t pos = 0;

	take_core(1);
	while (pos < messages * size) {
		while (atomic_load_explicit(&ring[0]->published, memory_order_acquire) == pos)
			;
		memcpy(to + pos % size, ring[0]->byte + pos % RING, piece_at(pos));
		pos += piece_at(pos);
		atomic_store_explicit(&ring[0]->consumed, pos, memory_order_release);
	}
	return NULL;
}

static void give_pieces(const uint8_t *from)
{
	uint64_t pos = 0;

	while (pos < messages * size) {
		while (pos + PIECE - atomic_load_explicit(&ring[0]->consumed, memory_order_acquire) > RING)
			;
		memcpy(ring[0]->byte + pos % RING, from + pos % size, piece_at(pos));
		pos += piece_at(pos);
		atomic_store_explicit(&ring[0]->published, pos, memory_order_release);
	}
}

static void *memory(size_t n, int flags)
{
	void *p = mmap(NULL, n, PROT_READ | PROT_WRITE, flags | MAP_ANONYMOUS, -1, 0);

	if (p == MAP_FAILED)
		fail("mmap");
	memset(p, 0, n);
	return p;
}

int main(int argc, char **argv)
{
	const char *what = argc > 1 ? argv[1] : "";
	bool lat = !strcmp(what, "lat"), rate = !strcmp(what, "rate"), copy = !strcmp(what, "copy") && argc > 2;
	pthread_t thread;

	size = copy ? strtoul(argv[2], NULL, 0) : LINE;
	if ((!lat && !rate && !copy) || !size || (copy && size % PIECE))
		return fprintf(stderr, "usage: two_cores lat|rate|copy SIZE (a multiple of 16 KiB)\n"), 2;
	messages = lat ? 2000000 : rate ? 20000000 : (UINT64_C(8) << 30) / size;
	ring[0] = memory(sizeof(struct ring), MAP_SHARED);
	ring[1] = memory(sizeof(struct ring), MAP_SHARED);
	uint8_t *from = memory(size, MAP_PRIVATE), *to = memory(size, MAP_PRIVATE);

	if (pthread_create(&thread, NULL, lat ? answer_lines : rate ? take_lines : take_pieces, to))
		fail("pthread_create");
	take_core(0);
	uint64_t start = now_ns();

	if (lat)
		ask_lines();
	else if (rate)
		give_lines();
	else
		give_pieces(from);
	pthread_join(thread, NULL);
	double ns = (double)(now_ns() - start);

	printf("%.1f\n", lat ? ns / (double)messages / 2 : (double)messages * (copy ? (double)size : 1) * 1000 / ns);
	return 0;
}
