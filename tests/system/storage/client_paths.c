// client_paths.c - several paths to one disk: which one is used, and what happens to requests when it fails
// follows: verbena_nvme.h, "Several paths"; NVM Express Base 1.4, 8.20
// SPDX-License-Identifier: MIT
// usage: client_paths [return]   return: only what needs an RDMA device, by `verbena run` (client_rdma.sh)
#include <errno.h>
#include <time.h>
#include <unistd.h>

#include "../../support/check.h"
#include "client_load.h"
#include "nvme/nvme.h"
#include "ports.h"

#define LENGTH 4096u
#define REQUESTS 8u

static uint8_t data[REQUESTS][LENGTH], back[LENGTH];

static void reset_ports(uint8_t a, uint8_t b, uint8_t c)
{
	const uint8_t states[PORTS] = {a, b, c};

	for (unsigned i = 0; i < PORTS; i++) {
		struct port *p = &ports[i];

		if (p->number)
			port_kill(p);
		p->name = 7;
		p->blocks = PORTS_BLOCKS;
		p->more_groups = 0;
		p->refusal = 0;
		p->holds = p->slow = false;
		p->asked = 0;
		p->served = p->refused = p->connects = p->unanswered = 0;
		port_lie(p, states[i]);
		port_open(p);
	}
}

static struct vn_options usual(void)
{
	struct vn_options o;

	vn_options_init(&o);
	o.numeric = 1;
	o.max_transfer = LENGTH;
	o.reconnect_ms = ENDLESS;
	return o;
}

static struct vn_disk *open_disk(const struct vn_options *o)
{
	struct vn_options standard = usual();
	struct vn_disk *d;
	char url[200], why[200] = "";

	ports_url(url, sizeof(url));
	if (vn_open(url, o ? o : &standard, &d, why, sizeof(why)))
		CHECK_FAILED("%s: %s", url, why);
	return d;
}

static struct vn_path_info path_of(struct vn_disk *d, unsigned i)
{
	struct vn_path_info all[PORTS];

	SAME(vn_paths(d, all, PORTS), PORTS);
	return all[i];
}

static unsigned served(void)
{
	return ports[0].served + ports[1].served + ports[2].served;
}

static void write_and_read(struct vn_disk *d, uint8_t value)
{
	memset(data[0], value, LENGTH);
	SAME(vn_write_wait(d, data[0], LENGTH, 0, 0), 0);
	memset(back, ~value, LENGTH);
	SAME(vn_read_wait(d, back, LENGTH, 0), 0);
	CHECK(!memcmp(back, data[0], LENGTH));
}

/* ---- requests that wait ---- */

static int ended[REQUESTS];

static void note(void *arg, int error)
{
	*(int *)arg = error;
}

static void begin_writes(struct vn_disk *d, uint8_t value)
{
	for (unsigned i = 0; i < REQUESTS; i++) {
		memset(data[i], value + (int)i, LENGTH);
		ended[i] = 1;
		SAME(vn_write(d, data[i], LENGTH, (uint64_t)i * LENGTH, 0, note, &ended[i]), 0);
	}
}

static bool any_waits(void)
{
	for (unsigned i = 0; i < REQUESTS; i++)
		if (ended[i] == 1)
			return true;
	return false;
}

static void await_writes(struct vn_disk *d, int error)
{
	while (any_waits())
		vn_poll(d, 1000);
	for (unsigned i = 0; i < REQUESTS; i++) {
		SAME(ended[i], (unsigned long long)error);
		if (error)
			continue;
		SAME(vn_read_wait(d, back, LENGTH, (uint64_t)i * LENGTH), 0);
		CHECK(!memcmp(back, data[i], LENGTH));
	}
}

/* ---- tests ---- */

static void lists_that_are_no_addresses_are_refused(void)
{
	static const char *const wrong[] = {"nvme+tcp://a,/nqn.2026-01.test:x",
	                                    "nvme+tcp://,a/nqn.2026-01.test:x",
	                                    "nvme+tcp://a,:1/nqn.2026-01.test:x",
	                                    "nvme+tcp://a:1,b:x/nqn.2026-01.test:x",
	                                    "nvme+tcp://1,2,3,4,5,6,7,8,9/nqn.2026-01.test:x",
	                                    "srp://a,b/1"};
	struct vn_found *f;
	struct vn_disk *d;
	size_t n;

	for (unsigned i = 0; i < sizeof(wrong) / sizeof(*wrong); i++)
		SAME(vn_open(wrong[i], NULL, &d, NULL, 0), (unsigned long long)-EINVAL);
	SAME(vn_discover("nvme+tcp://127.0.0.1:1,127.0.0.1:2", NULL, &f, &n, NULL, 0), (unsigned long long)-EINVAL);
}

static void the_optimized_path_is_used(void)
{
	reset_ports(NV_ANA_NON_OPTIMIZED, NV_ANA_OPTIMIZED, NV_ANA_INACCESSIBLE);
	struct vn_disk *d = open_disk(NULL);

	for (unsigned i = 0; i < PORTS; i++)
		UNTIL(path_of(d, i).connected);
	unsigned before = ports[1].served, others = served() - before;

	write_and_read(d, 1);
	SAME(ports[1].served, before + 2);
	SAME(served() - ports[1].served, others);
	CHECK(path_of(d, 1).used && !strcmp(path_of(d, 1).access, "optimized"));
	CHECK(!path_of(d, 0).used && !strcmp(path_of(d, 0).access, "non-optimized"));
	CHECK(!path_of(d, 2).used && !strcmp(path_of(d, 2).access, "inaccessible"));
	CHECK(!strncmp(path_of(d, 1).why, "in use", 6));
	CHECK(strstr(path_of(d, 2).why, "does not give access"));
	vn_close(d);
}

static void commands_follow_the_access_that_the_target_reports(void)
{
	reset_ports(NV_ANA_NON_OPTIMIZED, NV_ANA_OPTIMIZED, NV_ANA_INACCESSIBLE);
	struct vn_disk *d = open_disk(NULL);
	struct vn_statistics s;

	for (unsigned round = 0; round < 3; round++) { /* each event is reported again */
		unsigned to = 2 * (round % 2), from = round ? 2 - to : 1;

		port_access(&ports[from], NV_ANA_INACCESSIBLE);
		port_access(&ports[to], NV_ANA_OPTIMIZED);
		UNTIL(path_of(d, to).used);
		unsigned before = ports[to].served;

		write_and_read(d, (uint8_t)(10 + round));
		SAME(ports[to].served, before + 2);
	}
	port_access(&ports[0], NV_ANA_INACCESSIBLE); /* only a worse one is left */
	port_access(&ports[1], NV_ANA_NON_OPTIMIZED);
	UNTIL(path_of(d, 1).used);
	write_and_read(d, 20);
	vn_statistics(d, &s);
	CHECK(s.moves >= 4);
	SAME(s.reconnects, 0);
	vn_close(d);
}

static void commands_of_a_path_that_dies_are_sent_by_another(void)
{
	reset_ports(NV_ANA_OPTIMIZED, NV_ANA_NON_OPTIMIZED, NV_ANA_INACCESSIBLE);
	struct vn_disk *d = open_disk(NULL);

	UNTIL(path_of(d, 1).connected && path_of(d, 0).used);
	ports[0].holds = true;
	begin_writes(d, 30);
	SAME(vn_poll(d, 50), 0);
	port_kill(&ports[0]);
	await_writes(d, 0);
	CHECK(path_of(d, 1).used && !path_of(d, 0).connected);
	CHECK(strstr(path_of(d, 1).why, "no other path is optimized"));
	ports[0].holds = false;
	port_open(&ports[0]);
	UNTIL(path_of(d, 0).used); /* it comes back by itself */
	SAME(path_of(d, 0).breaks, 1);
	write_and_read(d, 40);
	vn_close(d);
}

static void commands_of_a_path_that_is_silent_are_sent_by_another(void)
{
	reset_ports(NV_ANA_OPTIMIZED, NV_ANA_OPTIMIZED, NV_ANA_OPTIMIZED);
	struct vn_options o = usual();
	unsigned i = 0;

	o.io_ms = 0;
	o.keep_alive_ms = 0;
	struct vn_disk *d = open_disk(&o);

	while (!path_of(d, i).used)
		i++;
	port_halt(&ports[i]);
	begin_writes(d, 50);
	await_writes(d, 0);
	CHECK(!path_of(d, i).used);
	vn_close(d);
}

static uint64_t time_ms(void)
{
	struct timespec t;

	clock_gettime(CLOCK_MONOTONIC, &t);
	return (uint64_t)t.tv_sec * 1000 + (uint64_t)t.tv_nsec / 1000000;
}

/* All its paths have fallen back to TCP. An attempt to return lasts half a minute, if the discovery log is not answered. */
static struct vn_disk *open_fallen_back(void)
{
	reset_ports(NV_ANA_OPTIMIZED, NV_ANA_OPTIMIZED, NV_ANA_OPTIMIZED);
	struct vn_options o = usual();
	char url[200], automatic[210], why[200] = "";
	struct vn_disk *d;

	o.io_ms = o.keep_alive_ms = 0;
	o.rdma_again_ms = 300;
	o.rdma_ms = ENDLESS;
	ports_url(url, sizeof(url));
	snprintf(automatic, sizeof(automatic), "nvme+auto%s", strchr(url, ':'));
	if (vn_open(automatic, &o, &d, why, sizeof(why)))
		CHECK_FAILED("%s: %s", automatic, why);
	CHECK(!strstr(path_of(d, 0).way, "built without")); /* there is a device */
	return d;
}

static void writes_soon_leave_a_silent_path(struct vn_disk *d)
{
	unsigned i = 0;

	while (!path_of(d, i).used)
		i++;
	port_halt(&ports[i]);
	uint64_t since = time_ms();

	begin_writes(d, 55);
	await_writes(d, 0);
	CHECK(!path_of(d, i).used && time_ms() - since < ENDLESS / 3);
	vn_close(d);
}

/* It begins before the silence is noticed. */
static void an_attempt_to_return_to_rdma_does_not_delay_that(void)
{
	writes_soon_leave_a_silent_path(open_fallen_back());
}

static void attempts_of_all_paths_to_return_do_not_delay_it_either(void)
{
	struct vn_disk *d = open_fallen_back();

	for (unsigned i = 0; i < PORTS; i++)
		ports[i].slow = true;
	UNTIL(ports[0].asked + ports[1].asked + ports[2].asked);
	usleep(1500000); /* a caretaker looks once a second what it has to do */
	SAME(ports[0].asked + ports[1].asked + ports[2].asked, 1);
	writes_soon_leave_a_silent_path(d);
}

static void commands_that_a_path_refuses_are_sent_by_another(void)
{
	static const uint16_t refusals[] = {NV_ANA_INACCESSIBLE_PATH, NV_ANA_TRANSITION_PATH, NV_ANA_LOSS_PATH,
	                                    NV_INTERNAL_PATH, 0x360 /* controller pathing error */};

	for (unsigned i = 0; i < sizeof(refusals) / sizeof(*refusals); i++) {
		reset_ports(NV_ANA_OPTIMIZED, NV_ANA_NON_OPTIMIZED, NV_ANA_NON_OPTIMIZED);
		struct vn_disk *d = open_disk(NULL);

		UNTIL(path_of(d, 0).used && path_of(d, 1).connected);
		ports[0].refusal = refusals[i];
		begin_writes(d, (uint8_t)(60 + i));
		await_writes(d, 0);
		CHECK(ports[0].refused && ports[1].served + ports[2].served);
		vn_close(d);
	}
}

static void what_the_target_refuses_for_good_is_an_error(void)
{
	reset_ports(NV_ANA_OPTIMIZED, NV_ANA_OPTIMIZED, NV_ANA_OPTIMIZED);
	struct vn_disk *d = open_disk(NULL);

	for (unsigned i = 0; i < PORTS; i++)
		ports[i].refusal = NV_ANA_INACCESSIBLE_PATH | NV_DNR;
	SAME(vn_read_wait(d, back, LENGTH, 0), (unsigned long long)-EIO);
	for (unsigned i = 0; i < PORTS; i++) {
		UNTIL(path_of(d, i).connected);
		ports[i].refusal = 0;
		port_access(&ports[i], NV_ANA_LOSS);
	}
	SAME(vn_read_wait(d, back, LENGTH, 0), (unsigned long long)-EIO);
	port_access(&ports[1], NV_ANA_OPTIMIZED);
	UNTIL(path_of(d, 1).used);
	write_and_read(d, 70);
	vn_close(d);
}

/* Longer than the target has said (ANATT), so the paths are connected anew and asked again. */
static void requests_wait_while_the_access_of_all_paths_changes(void)
{
	reset_ports(NV_ANA_OPTIMIZED, NV_ANA_NON_OPTIMIZED, NV_ANA_NON_OPTIMIZED);
	struct vn_disk *d = open_disk(NULL);

	for (unsigned i = 0; i < PORTS; i++) {
		UNTIL(path_of(d, i).connected);
		port_access(&ports[i], NV_ANA_CHANGE);
	}
	for (unsigned i = 0; i < PORTS; i++)
		UNTIL(!strcmp(path_of(d, i).access, "change"));
	unsigned before = served();

	begin_writes(d, 80);
	for (unsigned i = 0; i < PORTS; i++)
		UNTIL(ports[i].connects > 1);
	SAME(vn_poll(d, 0), 0);
	SAME(served(), before);
	port_access(&ports[2], NV_ANA_OPTIMIZED);
	await_writes(d, 0);
	CHECK(path_of(d, 2).used);
	vn_close(d);
}

static void paths_to_another_disk_are_not_used(void)
{
	reset_ports(NV_ANA_NON_OPTIMIZED, NV_ANA_OPTIMIZED, NV_ANA_OPTIMIZED);
	port_kill(&ports[1]);
	port_kill(&ports[2]);
	struct vn_disk *d = open_disk(NULL);

	ports[1].name = 8;
	ports[2].blocks = PORTS_BLOCKS - 1;
	port_open(&ports[1]);
	port_open(&ports[2]);
	UNTIL(strstr(path_of(d, 1).why, "another disk"));
	UNTIL(strstr(path_of(d, 2).why, "another size"));
	write_and_read(d, 90);
	SAME(ports[1].served + ports[2].served, 0);
	port_kill(&ports[1]);
	ports[1].name = 7;
	port_open(&ports[1]);
	UNTIL(path_of(d, 1).used); /* it is looked at again and again */
	vn_close(d);

	reset_ports(NV_ANA_OPTIMIZED, NV_ANA_OPTIMIZED, NV_ANA_OPTIMIZED);
	for (unsigned i = 0; i < PORTS; i++)
		ports[i].name = 0;
	d = open_disk(NULL);
	unsigned refused = 0;

	for (unsigned i = 0; i < PORTS; i++) {
		UNTIL(path_of(d, i).used || strstr(path_of(d, i).why, "no identifier"));
		refused += !path_of(d, i).used;
	}
	SAME(refused, PORTS - 1);
	vn_close(d);
}

static void a_namespace_is_found_in_a_log_of_several_pieces(void)
{
	reset_ports(NV_ANA_NON_OPTIMIZED, NV_ANA_OPTIMIZED, NV_ANA_INACCESSIBLE);
	for (unsigned i = 0; i < PORTS; i++)
		ports[i].more_groups = (uint16_t)(112 + i); /* the last group's entry straddles 4096 bytes */
	struct vn_disk *d = open_disk(NULL);

	UNTIL(path_of(d, 1).used);
	UNTIL(!strcmp(path_of(d, 0).access, "non-optimized"));
	UNTIL(!strcmp(path_of(d, 2).access, "inaccessible"));
	vn_close(d);
}

static void a_disk_without_paths_is_given_up(void)
{
	reset_ports(NV_ANA_OPTIMIZED, NV_ANA_OPTIMIZED, NV_ANA_OPTIMIZED);
	struct vn_options o = usual();

	o.reconnect_ms = 500;
	struct vn_disk *d = open_disk(&o);

	for (unsigned i = 0; i < PORTS; i++)
		port_kill(&ports[i]);
	begin_writes(d, 100);
	await_writes(d, -ENOTCONN);
	SAME(vn_read(d, back, LENGTH, 0, 0, note, ended), (unsigned long long)-ESHUTDOWN);
	vn_close(d);
	for (unsigned i = 0; i < PORTS; i++)
		port_open(&ports[i]);
}

struct ending {
	unsigned times;
	int error;
};

static void note_ending(void *arg, int error)
{
	struct ending *e = arg;

	e->times++;
	e->error = error;
}

/* The disk is given up while the caretaker of the path with the commands waits for the answer to a keep alive. */
static void each_request_ends_once_when_a_busy_path_is_given_up(void)
{
	reset_ports(NV_ANA_OPTIMIZED, NV_ANA_INACCESSIBLE, NV_ANA_INACCESSIBLE);
	struct ending whole = {0}, partly = {0}, waiting = {0};
	struct vn_options o = usual();

	o.reconnect_ms = 0;
	o.queues = 1;
	o.queue_depth = 2;
	o.io_ms = 0;
	o.path_ms = 1500;
	struct vn_disk *d = open_disk(&o);

	for (unsigned i = 0; i < PORTS; i++)
		UNTIL(path_of(d, i).connected);
	port_halt(&ports[0]);
	SAME(vn_read(d, back, LENGTH, 0, 0, note_ending, &whole), 0);
	SAME(vn_write(d, data, sizeof(data), 0, 0, note_ending, &partly), 0);
	SAME(vn_flush(d, 0, note_ending, &waiting), 0);
	UNTIL(ports[0].unanswered);
	port_cut(&ports[0]);
	UNTIL((vn_poll(d, 0), !path_of(d, 0).connected));
	port_kill(&ports[1]);
	port_kill(&ports[2]);
	for (unsigned i = 0; i < 100 && !(whole.times && partly.times && waiting.times); i++)
		vn_poll(d, 100);
	vn_close(d);
	CHECK(whole.times == 1 && whole.error == -ENOTCONN);
	CHECK(partly.times == 1 && partly.error == -ENOTCONN);
	CHECK(waiting.times == 1 && waiting.error == -ENOTCONN);
	port_open(&ports[1]);
	port_open(&ports[2]);
}

static void a_disk_opens_when_one_path_works(void)
{
	reset_ports(NV_ANA_OPTIMIZED, NV_ANA_OPTIMIZED, NV_ANA_OPTIMIZED);
	port_kill(&ports[0]);
	port_halt(&ports[1]);
	struct vn_disk *d = open_disk(NULL);

	CHECK(path_of(d, 2).used);
	write_and_read(d, 110);
	vn_close(d);
	port_open(&ports[0]);
}

/* What was answered is there, whatever happens to the ports. */
static void everything_is_found_after_any_failures(void)
{
	struct vn_options o = usual();
	uint64_t seed = 4711;

	reset_ports(NV_ANA_OPTIMIZED, NV_ANA_NON_OPTIMIZED, NV_ANA_OPTIMIZED);
	o.queues = 2;
	o.reconnect_pause_ms = 20;
	struct load l = {.disk = open_disk(&o), .depth = 16, .largest = 16384, .seed = 3};

	load_begin(&l);
	for (unsigned i = 0; i < 40; i++) {
		struct port *p = &ports[draw(&seed) % PORTS];
		static const uint8_t states[] = {NV_ANA_OPTIMIZED, NV_ANA_NON_OPTIMIZED, NV_ANA_INACCESSIBLE,
		                                 NV_ANA_LOSS};

		if (i % 2) {
			port_kill(p);
			port_open(p);
		} else {
			port_access(p, states[draw(&seed) % 4]);
			port_access(&ports[draw(&seed) % PORTS], NV_ANA_OPTIMIZED);
		}
		load_run(&l, 60);
	}
	load_end(&l);
	vn_close(l.disk);
}

int main(int argc, char **argv)
{
	setvbuf(stdout, NULL, _IOLBF, 0);
	if (argc > 1 && !strcmp(argv[1], "return")) {
		RUN(an_attempt_to_return_to_rdma_does_not_delay_that);
		RUN(attempts_of_all_paths_to_return_do_not_delay_it_either);
		return 0;
	}
	RUN(lists_that_are_no_addresses_are_refused);
	RUN(the_optimized_path_is_used);
	RUN(commands_follow_the_access_that_the_target_reports);
	RUN(commands_of_a_path_that_dies_are_sent_by_another);
	RUN(commands_of_a_path_that_is_silent_are_sent_by_another);
	RUN(commands_that_a_path_refuses_are_sent_by_another);
	RUN(what_the_target_refuses_for_good_is_an_error);
	RUN(requests_wait_while_the_access_of_all_paths_changes);
	RUN(paths_to_another_disk_are_not_used);
	RUN(a_namespace_is_found_in_a_log_of_several_pieces);
	RUN(a_disk_without_paths_is_given_up);
	RUN(each_request_ends_once_when_a_busy_path_is_given_up);
	RUN(a_disk_opens_when_one_path_works);
	RUN(everything_is_found_after_any_failures);
	return 0;
}
