// srp_client_test.c - srp:// disks of the library, at a target that is unlike ours
// follows: SRP (ANSI INCITS 365, T10/1415-D); storage/client/verbena_nvme.h
// SPDX-License-Identifier: MIT
#include <poll.h>
#include <signal.h>
#include <sys/prctl.h>
#include <sys/wait.h>
#include <unistd.h>

#include "../../support/check.h"
#include "client/verbena_nvme.h"
#include "srp_odd_target.h"

static char url[80];
static pid_t child;

static void start(void)
{
	int out[2];
	uint16_t port = 0;

	CHECK(!pipe(out));
	child = fork();
	CHECK(child >= 0);
	if (!child) {
		prctl(PR_SET_PDEATHSIG, SIGKILL); /* a failed test leaves nothing running */
		odd_target(out[1]);
	}
	close(out[1]);
	CHECK(read(out[0], &port, sizeof(port)) == sizeof(port));
	close(out[0]);
	snprintf(url, sizeof(url), "srp://127.0.0.1:%u/1:2", port);
}

static struct vn_disk *open_disk(unsigned io_ms, unsigned retries)
{
	struct vn_options o;
	struct vn_disk *d = NULL;
	char why[160] = "";

	vn_options_init(&o);
	o.io_ms = io_ms;
	o.retries = retries;
	if (vn_open(url, &o, &d, why, sizeof(why)))
		fprintf(stderr, "%s\n", why);
	CHECK(d);
	return d;
}

static uint8_t block[ODD_BLOCK];

static int read_block(struct vn_disk *d, uint64_t lba)
{
	return vn_read_wait(d, block, sizeof(block), lba * ODD_BLOCK);
}

static uint64_t reconnects(struct vn_disk *d)
{
	struct vn_statistics s;

	vn_statistics(d, &s);
	return s.reconnects;
}

static void a_target_with_short_messages_and_few_credits_is_described(void)
{
	struct vn_disk *d = open_disk(30000, 5);
	const struct vn_info *i = vn_info(d);

	SAME(i->size, ODD_BLOCKS * ODD_BLOCK);
	SAME(i->queue_depth, 3);
	SAME(i->max_transfer, 256 * ODD_BLOCK);
	SAME(i->write_zeroes, 1);
	SAME(i->discard, 0);
	CHECK(!strcmp(i->model, "ODD TARGET") && !strcmp(i->nqn, "0000000000000001:0000000000000002"));
	vn_close(d);
}

static void count_down(void *arg, int error)
{
	SAME(error, 0);
	--*(unsigned *)arg;
}

/* 64 requests at once, of more blocks than a command has, from registered memory and from other. */
static void what_is_written_is_read_with_more_requests_than_credits(void)
{
	enum { EACH = 96 * ODD_BLOCK, N = 40, ALL = N * EACH };
	struct vn_disk *d = open_disk(30000, 5);
	uint8_t *from = malloc(ALL), *to = NULL;
	struct vn_memory *m;
	unsigned left = N;
	struct vn_statistics s;

	CHECK(from && !vn_allocate(d, ALL, (void **)&to, &m));
	for (unsigned i = 0; i < ALL; i++)
		from[i] = (uint8_t)(i * 2654435761u >> 13);
	for (unsigned i = 0; i < N; i++)
		CHECK(!vn_write(d, from + i * EACH, EACH, (uint64_t)i * EACH, i % 2 ? VN_FUA : 0, count_down, &left));
	while (left)
		vn_poll(d, -1);
	vn_statistics(d, &s);
	uint64_t copied = s.bytes_copied;

	for (left = N; left;) {
		unsigned begin = left == N ? N : 0;

		for (unsigned i = 0; i < begin; i++)
			CHECK(!vn_read(d, to + i * EACH, EACH, (uint64_t)i * EACH, 0, count_down, &left));
		vn_poll(d, -1);
	}
	CHECK(!memcmp(from, to, ALL));
	vn_statistics(d, &s);
	SAME(s.bytes_copied, copied); /* reads go to registered memory directly */
	CHECK(!vn_write_zeroes_wait(d, 300 * ODD_BLOCK, 10 * ODD_BLOCK, VN_FUA) && !vn_flush_wait(d));
	CHECK(!vn_read_wait(d, to, 310 * ODD_BLOCK, 0));
	CHECK(!memcmp(from, to, 10 * ODD_BLOCK));
	for (unsigned i = 10 * ODD_BLOCK; i < 310 * ODD_BLOCK; i++)
		SAME(to[i], 0);
	SAME(reconnects(d), 0);
	vn_close(d);
	free(from);
}

static uint32_t syncs(struct vn_disk *d)
{
	SAME(read_block(d, ODD_SYNCS), 0);
	return (uint32_t)block[0] << 24 | (uint32_t)block[1] << 16 | (uint32_t)block[2] << 8 | block[3];
}

static void writes_with_FUA_are_synced_by_themselves_where_the_unit_has_no_FUA(void)
{
	struct vn_disk *d = open_disk(30000, 5);
	uint32_t before = syncs(d);

	CHECK(!vn_write_wait(d, block, sizeof(block), 0, 0));
	SAME(syncs(d), before);
	CHECK(!vn_write_wait(d, block, sizeof(block), 0, VN_FUA));
	SAME(syncs(d), before + 1);
	CHECK(!vn_write_zeroes_wait(d, sizeof(block), 0, VN_FUA));
	SAME(syncs(d), before + 2);
	vn_close(d);
}

static void a_command_that_is_not_answered_is_aborted_and_sent_again(void)
{
	struct vn_disk *d = open_disk(1500, 5);

	SAME(read_block(d, ODD_SILENT), 0);
	SAME(reconnects(d), 0);
	vn_close(d);
}

/* The answer comes while the abort is on its way: then zeroes with FUA are still to be made durable. There is no credit
 * for that until the abort is answered. */
static void an_answer_that_is_faster_than_the_abort_counts(void)
{
	struct vn_disk *d = open_disk(1500, 0);
	unsigned left = 2;

	SAME(read_block(d, 0), 0);
	CHECK(!vn_write_zeroes(d, ODD_BLOCK, ODD_LATE * ODD_BLOCK, VN_FUA, count_down, &left));
	CHECK(!vn_read(d, block, sizeof(block), ODD_HELD * ODD_BLOCK, 0, count_down, &left));
	while (left)
		vn_poll(d, -1);
	SAME(read_block(d, ODD_LATE), 0);
	SAME(reconnects(d), 0);
	vn_close(d);
}

static void errors_of_the_unit_are_those_of_requests(void)
{
	struct vn_disk *d = open_disk(30000, 1);

	SAME(read_block(d, ODD_BUSY), 0);
	SAME(read_block(d, ODD_MEDIUM), -EIO);
	SAME(read_block(d, ODD_SHORT), -EIO);
	SAME(vn_compare_wait(d, block, sizeof(block), 0), -EOPNOTSUPP);
	SAME(read_block(d, ODD_CREDIT), 0);
	for (unsigned i = 0; i < 8; i++)
		SAME(read_block(d, i), 0);
	SAME(reconnects(d), 0);
	vn_close(d);
}

static void a_disk_that_grows_is_noticed(void)
{
	struct vn_disk *d = open_disk(30000, 5);

	SAME(read_block(d, ODD_GROWS), 0);
	for (int ms = 0; vn_info(d)->size != 2ull * ODD_BLOCKS * ODD_BLOCK && ms < LONG_MS; ms += 10)
		poll(NULL, 0, 10);
	SAME(vn_info(d)->size, 2ull * ODD_BLOCKS * ODD_BLOCK);
	SAME(read_block(d, 2 * ODD_BLOCKS - 1), 0);
	vn_close(d);
}

static void a_login_that_the_target_ends_is_made_again(void)
{
	struct vn_disk *d = open_disk(30000, 5);

	SAME(read_block(d, ODD_LOGOUT), 0);
	SAME(reconnects(d), 1);
	vn_close(d);
}

static void an_answer_to_no_command_ends_the_connection(void)
{
	struct vn_disk *d = open_disk(30000, 5);

	SAME(read_block(d, ODD_NONSENSE), 0);
	SAME(reconnects(d), 1);
	vn_close(d);
}

int main(void)
{
	start();
	RUN(a_target_with_short_messages_and_few_credits_is_described);
	RUN(what_is_written_is_read_with_more_requests_than_credits);
	RUN(writes_with_FUA_are_synced_by_themselves_where_the_unit_has_no_FUA);
	RUN(a_command_that_is_not_answered_is_aborted_and_sent_again);
	RUN(an_answer_that_is_faster_than_the_abort_counts);
	RUN(errors_of_the_unit_are_those_of_requests);
	RUN(a_disk_that_grows_is_noticed);
	RUN(a_login_that_the_target_ends_is_made_again);
	RUN(an_answer_to_no_command_ends_the_connection);
	CHECK(!waitpid(child, NULL, WNOHANG)); /* no check of the target has failed */
	kill(child, SIGKILL);
	return waitpid(child, NULL, 0) == child ? 0 : 1;
}
